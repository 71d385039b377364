"""Every chart is one that Vega-Lite draws, with short labels, and is stored once in few digits."""

import re
from dataclasses import replace

import numpy as np
import pytest
import vl_convert
from matplotlib.figure import Figure

from coverwell import PredictionInterval, plots
from coverwell.plots.chart import Axis, Chart, Mark, Tip, draw
from coverwell.report.charts import ChartStore, legend, specification
from coverwell.slices import Slice, Slices

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


def svg_of(chart):
    store = ChartStore()
    assert store.place_of(chart) == "0 0"
    (table,), (spec,) = store.tables, store.specs
    records = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return vl_convert.vegalite_to_svg({**spec, "data": {"values": records}, "width": 300})


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_one_that_vega_and_matplotlib_draw(name):
    chart, mark = CHARTS[name]
    svg = svg_of(chart)
    assert mark in svg
    assert "NaN" not in svg
    figure = Figure()
    assert draw(chart, figure.subplots()).has_data()
    figure.draw_without_rendering()


def test_every_mark_with_a_label_is_in_the_legend_with_a_sign_of_its_own():
    assert legend(CHARTS["forecast"][0]) == [
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


def test_numbers_are_stored_to_six_digits_and_more_where_they_differ_far_behind_the_first():
    table = {
        "third": np.array([1 / 3, np.inf, np.nan]),
        "close": 1013250.25 + np.arange(3) / 8,
        "truth": np.array([True, False, True]),
        "time": np.array(["2024-01-31T10", "2024-01-31T11", "2024-02-01"], dtype="datetime64[s]"),
    }
    store = ChartStore()
    store.place_of(replace(BARS, table=table))
    (found,) = store.tables
    assert found["third"] == [0.333333, None, None]
    assert found["close"] == [1013250.25, 1013250.375, 1013250.5]
    assert found["truth"] == [1, 0, 1]
    assert found["time"][0] == "2024-01-31T10:00:00.000"


def test_charts_share_equal_specifications_and_the_same_table():
    store = ChartStore()
    other = replace(BARS, table=dict(BARS.table), height=100)
    assert [store.place_of(chart) for chart in (BARS, replace(BARS), other)] == ["0 0", "0 0", "1 1"]
