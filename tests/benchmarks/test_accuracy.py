"""Accuracy: what a line holds, and what the report makes of it, on lines worked out by hand."""

import time

import accuracy
import accuracy_report
import numpy as np
import pytest
import table_fits

from reproduction.domains.tables import Rows

QUICK = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}


def test_the_true_interval_of_a_law_has_its_level_and_the_score_of_the_oracle():
    levels, law = (0.5, 0.9), accuracy.LAWS["heteroscedastic"]
    X, y = law.draw(1000, random_state=0)
    rows = Rows(X, y, None, X, y)
    lower, upper = (np.column_stack(side) for side in zip(*(law.true_interval(X, p) for p in levels), strict=True))
    found = accuracy.measured("heteroscedastic", rows, law.true_mean(X), lower, upper, levels)
    assert found["coverage"] == pytest.approx(levels)
    assert found["rmse"] == 0
    assert found["interval_score"] == found["oracle_score"]


def test_a_level_needs_as_many_rows_as_its_rank():
    assert table_fits.levels_for(98) == (0.5, 0.8, 0.9, 0.95)
    assert table_fits.levels_for(99) == (0.5, 0.8, 0.9, 0.95, 0.99)


def test_a_line_has_fitted_levels_and_others_nested(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    (line,) = accuracy.run("coverwell", "concreteslump", [0], "cpu", QUICK)
    assert (line["n_train"], line["n_test"]) == (82, 21)
    assert line["asked"] == (0.5, 0.8, 0.9, 0.95)
    assert line["levels"] == (0.5, 0.6, 0.73, 0.8, 0.85, 0.9, 0.95)
    assert (np.diff(line["width"]) > 0).all()
    assert (np.diff(line["coverage"]) >= 0).all()


def line(method, split, *, score=1.0, rmse=1.0, coverage=0.9, inside=None, data="boston"):
    return {
        "method": method,
        "data": data,
        "split": split,
        "trial": split,
        "levels": [0.9],
        "asked": [0.9],
        "n_train": 400,
        "n_test": 100,
        "values": 100,
        "rmse": rmse,
        "interval_score": [score],
        "coverage": [coverage],
        "strictly_inside": [coverage if inside is None else inside],
        "seconds": 2.0,
        "device": "CPU",
        "versions": {"coverwell": "1"},
    }


def test_the_best_competitor_is_the_one_that_is_hardest_to_beat_on_shared_splits():
    ours = [line("coverwell", 0, score=3.0, rmse=1.0), line("coverwell", 1, score=5.0, rmse=1.0)]
    rivals = [
        line("ngboost", 0, score=4.0, rmse=2.0),
        line("ngboost", 1, score=6.0, rmse=2.0),
        line("forest-oob", 1, score=5.0, rmse=4.0),
        line("forest-oob", 7, score=0.1, rmse=0.1),  # not a split of ours
    ]
    text = accuracy_report.report(ours, rivals)
    cells = [cell.strip() for cell in next(row for row in text.splitlines() if row.startswith("| boston")).split("|")]
    assert cells[3:5] == ["random forest, out-of-bag ranks", "1.000 [1]"]  # 5 / 5, where NGBoost has 8 / 10
    assert cells[6:8] == ["NGBoost", "0.5000"]
    assert "1.000 (target 0.90: MISSED)" in text
    assert "0.500 (target 0.97: reached)" in text


def test_the_asked_level_lies_between_the_share_strictly_inside_and_the_share_covered():
    # (strictly inside, covered): of targets that are never an end both are the same
    for inside, covered, missed in ((0.95, 0.95, 1), (0.9, 0.9, 0), (0.8, 0.8, 1), (0.6, 0.97, 0), (0.95, 0.99, 1)):
        lines = [line("coverwell", k, coverage=covered, inside=inside) for k in range(20)]
        text = accuracy_report.report(lines, [])
        assert f"Missed: {missed} of 1." in text  # .005 + 3 sqrt(.09 (1/100 + 1/400) / 20) = .0275
        assert ("boston, 100 values" in text) == (covered > inside)


def test_fits_side_by_side_are_stored_one_failure_stops_no_other_and_none_starts_late(tmp_path):
    path, late = tmp_path / "lines.jsonl", time.time() + 600
    jobs = [([{"a": 1}],), (1,), ([{"a": 2}],)]  # list(1) fails
    failed = table_fits.run_jobs(list, jobs, path, 2, late)
    assert sorted(path.read_text().splitlines()) == ['{"a": 1}', '{"a": 2}']
    assert len(failed) == 1
    assert "TypeError" in failed[0]
    assert table_fits.run_jobs(list, jobs, path, 2, end=0.0) == []
    assert len(path.read_text().splitlines()) == 2
