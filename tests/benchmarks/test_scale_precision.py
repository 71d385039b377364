import pytest
import scale_precision
from scale_precision import TABLES, WAYS


def one(table, way, coverage=0.9, width=2.0):
    own = {"table": table, "way": way, "splits": [100], "seconds": 1.0, "rounds": [4]}
    return {**own, "coverage": [coverage], "width": [width], "interval score": [3.0], "rmse": [1.0]}


def test_tables_that_are_not_run_again_stay_as_they_were():
    before = {"asked": 0.9, "timed": [1], "fits": [one("boston", "FP32"), one("crime", "FP32")]}
    found = {"asked": 0.9, "timed": [2], "fits": [one("crime", "FP32", coverage=0.8)]}
    after = scale_precision.together(before, found)
    assert after["timed"] == [2]
    assert [(fit["table"], fit["coverage"]) for fit in after["fits"]] == [("boston", [0.9]), ("crime", [0.8])]


def test_changes_are_beside_fp32_table_by_table():
    fits = [one("boston", "FP32"), one("boston", "TF32", coverage=0.88, width=2.2), one("crime", "FP32")]
    assert scale_precision.change(fits, "TF32", "coverage", relative=False) == pytest.approx([-0.02])
    assert scale_precision.change(fits, "TF32", "width", relative=True) == pytest.approx([0.1])


def test_the_text_has_a_row_for_every_fit_in_the_order_of_the_tables():
    fits = [one(table, way) for table in reversed(TABLES) for way in WAYS]
    found = {"asked": 0.9, "timed": [one("boston", "FP32"), one("boston", "TF32")], "fits": fits}
    rows = [line for line in scale_precision.lines(found, "cuda").splitlines() if line.count("|") == 8][2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [table for table in TABLES for _ in WAYS]


def test_a_short_fit_has_scores_of_rows_that_were_left_out(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    found = scale_precision.fit("boston", "TF32", [100], "cpu", **scale_precision.QUICK)
    assert found["rounds"] == [1]
    (coverage,) = found["coverage"]
    n = 404  # training rows; ranks give the asked share of them up to a row or two, as there is one member a fold
    assert abs(coverage - 0.9) < 3 / n
