"""A page holds what it is given, escapes it, and refers to nothing outside of itself."""

import json
import re

import pytest
from coverwell.report.charts import histogram_spec

from coverwell.report import page as page_module
from coverwell.report.page import Chart, Choice, Figures, Mark, Page, Section, Table, Text, rendered, write_page

EVIL = "<script>alert('\"&')</script>"
RECORDS = [{"low": 0.0, "high": float("nan"), "rows": 3}, {"low": float("inf"), "high": 1 / 3, "rows": 1}]


def made(*blocks, choice=None):
    return Page("A title", "below it", [Section("one", "One", "A lead.", blocks, choice)])


def stored(html):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])


def test_texts_tables_and_choices_with_html_in_them_are_escaped():
    blocks = (
        Text(EVIL),
        Figures(((EVIL, EVIL),)),
        Table(EVIL, (EVIL,), [(EVIL,)], texts=(EVIL,)),
        Chart(
            histogram_spec("rows"), [{"low": 0, "high": 1, "rows": 1, "name": EVIL}], EVIL, (Mark("x", "ink", EVIL),)
        ),
    )
    html = rendered(Page(EVIL, EVIL, [Section("one", EVIL, EVIL, blocks)], (Choice("level", EVIL, (EVIL, EVIL)),)))
    assert "<script>alert" not in html
    assert stored(html)["tables"][0]["name"] == [EVIL]
    assert html.count("<script") == html.count("</script>") == 3


def test_what_is_not_finite_is_stored_as_nothing_and_numbers_to_six_digits():
    table = stored(rendered(made(Chart(histogram_spec("rows"), RECORDS, "told"))))["tables"][0]
    assert table == {"low": [0.0, None], "high": [None, 0.333333], "rows": [3, 1]}


def test_numbers_that_differ_far_behind_the_first_digit_stay_apart():
    records = [{"low": 1013250.25 + step / 8, "high": -1.0 / 3, "rows": 3} for step in range(3)]
    table = stored(rendered(made(Chart(histogram_spec("rows"), records, "told"))))["tables"][0]
    assert table["low"] == [1013250.25, 1013250.375, 1013250.5]
    assert table["high"] == [-0.333333] * 3


def test_what_can_be_chosen_has_a_control_and_nothing_else_does():
    one, two = Choice("level", "Level", ("90 %",)), Choice("target", "Target", ("a", "b"))
    assert "<select" not in rendered(Page("A", "b", [], (one,)))
    assert 'class="toolbar' not in rendered(Page("A", "b", [], (one,)))
    assert rendered(Page("A", "b", [], (one, two))).count("<select") == 1


def test_a_chart_can_be_opened_in_numbers_unless_it_says_otherwise():
    charts = [Chart(histogram_spec("rows"), RECORDS, "a", in_numbers=shown) for shown in (True, False)]
    assert rendered(made(charts[0])).count("<details") == 1
    assert rendered(made(charts[1])).count("<details") == 0


def test_a_page_loads_nothing():
    html = rendered(made(Chart(histogram_spec("rows"), RECORDS, "told")))
    assert (
        re.findall(r"(?:src|srcset|action)\s*=\s*[\"'](?!data:)", html.split('<script type="application/json"')[0])
        == []
    )
    assert set(re.findall(r"href=\"([^#\"]*)", html)) <= {"data:,", ""}
    assert "@import" not in html
    assert "url(http" not in html
    assert "default-src 'none'" in html


def test_charts_share_equal_specifications_and_the_same_records():
    charts = [Chart(histogram_spec("rows"), RECORDS, "a"), Chart(histogram_spec("rows"), RECORDS, "b")]
    content = stored(rendered(made(*charts, Chart(histogram_spec("values"), list(RECORDS), "c"))))
    assert (len(content["specs"]), len(content["tables"])) == (2, 2)


def test_blocks_of_what_is_not_chosen_are_hidden():
    choice = Choice("column", "Column", ("area", "city"), chosen=1)
    html = rendered(made(Text("by area", when={"column": 0}), Text("by city", when={"column": 1}), choice=choice))
    assert re.search(r"hidden>\s*<p class=\"plain\">by area", html)
    assert re.search(r"\}'>\s*<p class=\"plain\">by city", html)


def test_a_page_beyond_the_limit_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="must stay below 1,000 bytes"):
        write_page(made(Text("text")), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
