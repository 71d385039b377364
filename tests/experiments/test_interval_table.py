"""The table of intervals: means by hand, both readings, and notes on the variants."""

import pytest
from coverwell.experiments import interval_table
from coverwell.experiments.summary import Selection

from coverwell import metrics


def line(method, trial, *, data="boston", coverage=0.9, **more):
    base = {"method": method, "data": data, "trial": trial, "levels": [0.9], "n_train": 400, "n_test": 100}
    measures = {"rmse": 3.0 + trial, "coverage": [coverage], "width": [9.0], "interval_score": [12.0]}
    return {**base, **measures, **more}


def selection(*lines):
    return Selection(list(lines), [], asked=0.9, trials=20)


def test_the_calibration_error_is_the_mean_distance_and_not_the_distance_of_the_mean():
    chosen = selection(line("hnn", 0, coverage=0.86), line("hnn", 1, coverage=0.94))
    (one,) = interval_table.measured(chosen, "boston")
    assert one.values["coverage"].mean == pytest.approx(0.90)
    assert one.values["calibration_error"].mean == pytest.approx(0.04)
    assert one.expected_error == metrics.expected_calibration_error(0.9, 100, 400)


def test_a_method_with_a_second_reading_has_a_second_row():
    second = {"coverage": [0.4], "width": [2.0], "interval_score": [40.0]}
    chosen = selection(line("mc-dropout", 0, epistemic=second), line("hnn", 0))
    titles = [one.title for one in interval_table.measured(chosen, "boston")]
    assert titles == ["MC Dropout", "MC Dropout, epistemic only", "HNN"]


def test_a_row_has_a_cell_for_every_column():
    (text,) = [
        part for part in interval_table.sections(selection(line("hnn", 0), line("hnn", 1))) if part.startswith("|")
    ]
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["HNN", "2", "3.50 (0.61)", "0.9000", "0.000", "0.0265", "9.000", "12.00"]


def test_variants_follow_the_tables_with_a_note():
    chosen = selection(line("hnn", 0, data="red wine unique"), line("hnn", 0))
    parts = [part for part in interval_table.sections(chosen) if not part.startswith("|")]
    assert parts[2:] == ["### boston", "### red wine unique", "Repeated rows dropped, the first one kept."]


def test_records_name_what_to_expect_beside_the_calibration_error_alone():
    records = list(interval_table.records(selection(line("hnn", 0))))
    assert [record["metric"] for record in records if record["expected"] is not None] == ["calibration_error"]
    assert len(records) == 5
