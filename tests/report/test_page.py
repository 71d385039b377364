"""A page holds what it is given, escapes it, and loads nothing; its charts are ones that Vega draws."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import vl_convert

from coverwell import PredictionInterval, plots
from coverwell.plots.grammar import Axis, Chart, Mark, Tip
from coverwell.report import page as page_module
from coverwell.report.page import (
    Choice,
    Figures,
    Graph,
    Image,
    Page,
    Section,
    Table,
    Text,
    check_library,
    library_versions,
    rendered,
    write_page,
)
from coverwell.report.vega import legend, specification
from coverwell.report.words import as_text
from coverwell.slices import Slice, Slices

EVIL = "<script>alert('\"&')</script>"
INTERVAL = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
DAYS = np.array(["2024-01-30", "2024-01-31"], dtype="datetime64[D]")
FOUND = Slices(0.9, (Slice("city", "Oslo", 100, 60), Slice("city", "Rome", 100, 90)))
BARS = Chart(
    {"low": [0.0, 1.0], "high": [1.0, 2.0], "rows": [3, 1]},
    [Mark("bars", "low", "rows", "high"), Mark("rule", 0, label="zero")],
    Axis("residual"),
    Axis("rows", zero=True),
    [Tip("rows", "rows", "count")],
)
CHARTS = {
    "bars": (BARS, "residual"),
    "calibration": (plots.draw_calibration_curve.chart([0.5, 0.9], [0.4, 0.8], band=([0.3, 0.7], [0.6, 0.9])), "asked"),
    "one level": (plots.draw_calibration_curve.chart([0.9], [0.8], band=([0.7], [0.9]), error=[0.1]), "reached"),
    "widths": (plots.draw_width_curve.chart([0.5, 0.9], [1.0, 2.0], unit="EUR"), "EUR"),
    "intervals": (plots.draw_intervals.chart(INTERVAL, prediction=[1.0, 2.0], y=[1.0, 9.0]), "row, from the lowest"),
    "forecast": (
        plots.draw_forecast.chart(DAYS, INTERVAL, prediction=[1.0, 2.0], y=[1.0, 9.0], static=INTERVAL),
        "path",
    ),
    "forecast of steps": (plots.draw_forecast.chart([3, 4], INTERVAL, prediction=[1.0, 2.0], y=[np.nan, 9.0]), "path"),
    "rolling": (plots.draw_rolling_coverage.chart(DAYS, [0.9, 0.8], asked=0.9), "%"),
    "rounds": (plots.draw_rounds.chart([[3.0, 2.0, 1.0], [4.0, 3.0, np.nan]]), "round"),
    "one round": (plots.draw_rounds.chart([[0.9]], asked=0.8), "round"),
    "slices": (plots.draw_slices.chart(FOUND), "city: Oslo (100 rows)"),
}


def made(*blocks, choice=None):
    return Page("A title", "below it", [Section("calibration", blocks, choice)])


def stored(html):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])


def svg_of(chart):
    content = stored(rendered(made(Graph(chart, "caption"))))
    (table,), (spec,) = content["tables"], content["specs"]
    records = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return vl_convert.vegalite_to_svg({**spec, "data": {"values": records}, "width": 300})


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_of_the_plots_is_one_that_vega_draws(name):
    chart, mark = CHARTS[name]
    svg = svg_of(chart)
    assert mark in svg
    assert "NaN" not in svg


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_one_that_matplotlib_draws(name):
    from matplotlib.figure import Figure

    from coverwell.plots.axes import draw

    figure = Figure()
    assert draw(CHARTS[name][0], figure.subplots()).has_data()
    figure.draw_without_rendering()


def test_every_mark_with_a_label_is_in_the_legend_with_a_sign_of_its_own():
    chart, _ = CHARTS["forecast"]
    assert legend(chart) == [
        ("▮", "var(--band)", "90 % interval"),
        ("╌", "var(--other)", "static interval"),
        ("━", "var(--inside)", "forecast"),
        ("●", "var(--ink)", "observed"),
        ("✚", "var(--outside)", "observed, outside"),
    ]


def test_ticks_of_rounds_are_whole_numbers():
    for n_rounds in (2, 3, 7, 100):
        chart = plots.draw_rounds.chart([np.ones(n_rounds)])
        ticks = specification(chart)["layer"][0]["encoding"]["x"]["axis"]["values"]
        assert (ticks[0], ticks[-1]) == (1, n_rounds)
        assert len(set(ticks)) == len(ticks) <= 5


@pytest.mark.parametrize(("value", "label"), [(3e100, "e+100"), (4e-30, "e-30"), (101325.25, "101,32")])
def test_labels_of_very_large_and_small_numbers_are_short(value, label):
    table = {"x": np.array([value, 1.00001 * value]), "y": np.ones(2)}
    svg = svg_of(Chart(table, [Mark("points", "x", "y", marker="o")], Axis("x"), Axis("y")))
    labels = re.findall(r"<text[^>]*>([-+,.e\d]+)</text>", svg.replace("−", "-"))
    assert any(label in one for one in labels)
    assert max(map(len, labels)) < 13


def test_texts_tables_and_choices_with_html_in_them_are_escaped():
    evil = replace(BARS, table={**BARS.table, "name": [EVIL, EVIL]}, marks=[replace(BARS.marks[0], label=EVIL)])
    blocks = (
        Text(EVIL),
        Figures(((EVIL, EVIL),)),
        Table(EVIL, (EVIL,), [(EVIL,)], texts=(EVIL,)),
        Graph(evil, EVIL),
        Image("data:image/jpeg;base64,", [(EVIL, 0.1, 0.1, 0.5, 0.5)], EVIL),
    )
    html = rendered(Page(EVIL, EVIL, [Section("calibration", blocks)], (Choice("level", EVIL, (EVIL, EVIL)),)))
    assert "<script>alert" not in html
    assert stored(html)["tables"][0]["name"] == [EVIL, EVIL]
    assert html.count("<script") == html.count("</script>") == 3


def test_numbers_are_stored_to_six_digits_and_more_where_they_differ_far_behind_the_first():
    table = {
        "third": np.array([1 / 3, np.inf, np.nan]),
        "close": 1013250.25 + np.arange(3) / 8,
        "truth": np.array([True, False, True]),
        "time": np.array(["2024-01-31T10", "2024-01-31T11", "2024-02-01"], dtype="datetime64[s]"),
    }
    (found,) = stored(rendered(made(Graph(replace(BARS, table=table), "caption"))))["tables"]
    assert found["third"] == [0.333333, None, None]
    assert found["close"] == [1013250.25, 1013250.375, 1013250.5]
    assert found["truth"] == [1, 0, 1]
    assert found["time"][0] == "2024-01-31T10:00:00.000"


def test_charts_share_equal_specifications_and_the_same_table():
    other = replace(BARS, table=dict(BARS.table), height=100)
    content = stored(rendered(made(Graph(BARS, "a"), Graph(replace(BARS), "b"), Graph(other, "c"))))
    assert (len(content["specs"]), len(content["tables"])) == (2, 2)


def test_what_can_be_chosen_has_a_control_and_nothing_else_does():
    one, two = Choice("level", "Level", ("90 %",)), Choice("target", "Target", ("a", "b"))
    assert "<select" not in rendered(Page("A", "b", [], (one,)))
    assert 'class="toolbar' not in rendered(Page("A", "b", [], (one,)))
    assert rendered(Page("A", "b", [], (one, two))).count("<select") == 1


def test_blocks_that_are_not_chosen_are_hidden():
    choice = Choice("column", "Column", ("area", "city"), chosen=1)
    html = rendered(made(Text("by area", when={"column": 0}), Text("by city", when={"column": 1}), choice=choice))
    assert re.search(r"hidden>\s*<p class=\"plain\">by area", html)
    assert re.search(r"\}'>\s*<p class=\"plain\">by city", html)


def test_a_chart_can_be_opened_in_numbers_unless_it_says_otherwise():
    assert rendered(made(Graph(BARS, "a"))).count("<details") == 1
    assert rendered(made(Graph(BARS, "a", in_numbers=False))).count("<details") == 0


def test_a_page_loads_nothing():
    html = rendered(made(Graph(BARS, "caption")))
    head = html.split('<script type="application/json"')[0]
    assert re.findall(r"(?:src|srcset|action)\s*=\s*[\"'](?!data:)", head) == []
    assert set(re.findall(r"href=\"([^#\"]*)", html)) <= {"data:,", ""}
    assert "@import" not in html
    assert "url(http" not in html
    assert "default-src 'none'" in html


def test_a_page_beyond_the_limit_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="must stay below 1,000 bytes"):
        write_page(made(Text("text")), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "package"), [("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")])
def test_a_missing_package_is_named_with_the_extra_that_has_it(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"reports need {package}; install the extra `report`"):
        check_library()


def test_the_charting_library_is_in_the_page_with_its_licence():
    html = rendered(made(Graph(BARS, "caption")))
    assert "BSD-3-Clause licence" in html
    assert len(html) < 1_500_000
    assert set(library_versions()) == {"vega", "vl-convert-python"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.datetime64("NaT"), "missing"),
        (np.datetime64("2024-01-31T00:00"), "2024-01-31"),
        (np.datetime64("2024-01-31T10:30:00"), "2024-01-31 10:30"),
        (np.datetime64("2024-01-31T10:30:05"), "2024-01-31 10:30:05"),
        (1.0, "1"),
        (0.1 + 0.2, "0.3"),
        ("Oslo", "Oslo"),
    ],
)
def test_a_value_takes_as_few_characters_as_it_needs(value, text):
    assert as_text(value) == text
