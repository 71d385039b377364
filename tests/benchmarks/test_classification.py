"""Classes beside peers: splits, what is counted of sets, which peer is the best; one failure stops nobody."""

import sys

import class_peers_runner
import class_report
import classification
import numpy as np
import pytest
from accuracy_report import Runs
from pandas.api.types import is_numeric_dtype


def test_splits_have_a_fifth_of_every_class_and_differ_by_their_number():
    (train, test), (_, other) = classification.split_of("wine", 0), classification.split_of("wine", 1)
    assert sorted([*train, *test]) == list(range(178))
    counts, of_all = (np.bincount(classification.codes_of("wine")[rows]) for rows in (test, slice(None)))
    np.testing.assert_allclose(counts, of_all / 5, atol=1)
    assert set(test) != set(other)
    np.testing.assert_array_equal(test, classification.split_of("wine", 0)[1])


def test_each_text_has_a_column_and_gaps_stay():
    X, _ = classification.load_classes("crx")
    text = [name for name in X if not is_numeric_dtype(X[name])]
    assert classification.encoded("crx").shape == (len(X), X.shape[1] - len(text) + X[text].nunique().sum())
    assert np.isnan(classification.encoded("hepatitis")).sum() == 167


def test_sets_are_counted_by_size_and_by_class():
    """Two rows of the first class, one of the second: the sets {0}, {}, {0, 1} and, at a higher level, all full."""
    sets = np.array([[[1, 1], [0, 1]], [[0, 1], [0, 1]], [[1, 1], [1, 1]]], dtype=bool)
    y, p = np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    found = classification.measured(p, sets, classification.with_likeliest(sets, p), y)
    assert found["sets"] == {
        "coverage": [0.66667, 1.0],
        "size": [1.0, 2.0],
        "rows_of_size": [[1, 1, 1], [0, 0, 3]],
        "hits_of_size": [[0, 1, 1], [0, 0, 3]],
        "empty": [0.33333, 0.0],
        "full": [0.33333, 1.0],
        "hits_of_class": [[1, 1], [2, 1]],
    }
    assert found["never_empty"]["rows_of_size"] == [[0, 2, 1], [0, 0, 3]]
    assert (found["rows_of_class"], found["accuracy"]) == ([2, 1], 1.0)
    assert found["brier"] == pytest.approx(2 * (0.1**2 + 0.2**2 + 0.3**2) / 3, abs=1e-5)


def test_the_same_rows_are_fitted_once_and_every_peer_has_the_seconds(monkeypatch):
    monkeypatch.setattr(class_peers_runner.Base, "fits", {})
    monkeypatch.setattr(class_peers_runner.Base, "spared", 0.0)
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    first = class_peers_runner.Base("forest", 3).fit(X, y)
    assert class_peers_runner.Base.spared == 0
    again = class_peers_runner.Base("forest", 3).fit(X.copy(), y.copy())
    assert again.model_ is first.model_
    assert class_peers_runner.Base.spared > 0
    assert class_peers_runner.Base("forest", 3).fit(X[1:], y[1:]).model_ is not first.model_


def test_a_peer_that_fails_is_stored_with_its_error_and_the_others_go_on():
    """This environment has scikit-learn, but not crepes."""
    bad, good = classification.measure_peers(sys.executable, ["crepes-forest", "forest"], "wine", [1])
    assert "No module named 'crepes'" in bad["error"]
    assert (good["method"], good["split"], good["n_train"], good["n_test"]) == ("forest", 1, 142, 36)
    assert good["accuracy"] > 0.9
    assert "sets" not in good


def made_up(method, coverage, size, split=0, brier=0.2):
    sets = {"coverage": [coverage], "size": [size], "strictly": [coverage]}
    return {
        "method": method,
        "data": "wine",
        "split": split,
        "trial": split,
        "levels": [0.9],
        "n_train": 400,
        "n_test": 100,
        "sets": sets,
        "never_empty": sets,
        "brier": brier,
    }


def test_the_best_peer_has_the_smallest_sets_of_those_that_cover_enough():
    """The standard error is sqrt(.09 (1/100 + 1/400) / 2) = .0237: .825 is enough, .82 is not."""
    runs = Runs(
        made_up(method, coverage, size, split)
        for method, coverage, size in [("coverwell", 0.9, 1.0), ("a", 0.825, 1.25), ("b", 0.82, 1.1), ("c", 0.95, 1.3)]
        for split in (0, 1)
    )
    lines = runs.of("a", "wine")
    assert class_report.slack(lines, 0.9) == pytest.approx(0.005 + 3 * (0.09 * 0.0125 / 2) ** 0.5)
    assert class_report.valid(lines)
    assert not class_report.valid(runs.of("b", "wine"))
    best = class_report.best(runs, "wine", class_report.at("size"), kind="sets")
    assert (best.method, class_report.ratio(best)) == ("a", pytest.approx(0.8))


def test_a_peer_that_was_run_on_fewer_splits_is_not_the_best():
    lines = [made_up("coverwell", 0.9, 1.0, split) for split in (0, 1)]
    lines += [made_up("a", 0.9, 1.25, split) for split in (0, 1)] + [made_up("b", 0.9, 1.1, 0)]
    assert class_report.best(Runs(lines), "wine", class_report.at("size"), kind="sets").method == "a"


def test_coverage_is_off_on_both_sides_but_for_rows_with_the_same_score():
    low, high = made_up("coverwell", 0.7, 1.0), made_up("coverwell", 1.0, 1.0)
    low["n_train"] = low["n_test"] = high["n_train"] = high["n_test"] = 10_000
    assert class_report.missed([low], 0.9) == pytest.approx(-0.2)
    assert class_report.missed([high], 0.9) == pytest.approx(0.1)
    assert class_report.missed([high], 0.9, "never_empty") == 0
    high["sets"] = {**high["sets"], "strictly": [0.8]}
    assert class_report.missed([high], 0.9) == 0
    assert class_report.missed([high], 0.8) is None  # no such level


def test_what_is_run_again_is_forgotten_first(monkeypatch, tmp_path):
    path = tmp_path / "classification.jsonl"
    classification.append(path, made_up("coverwell", 0.9, 1.0), made_up("a", 0.9, 1.0))
    command = ["classification", "--again", "coverwell", "--out", str(tmp_path), "--seconds", "0"]
    monkeypatch.setattr(sys, "argv", command)
    classification.main()
    assert [line["method"] for line in classification.read_lines(path)] == ["a"]


def test_our_baselines_are_peers_and_no_packages():
    runs = Runs([made_up("coverwell", 0.9, 1.0), made_up("temperature", 0.9, 1.25), made_up("adaptive", 0.9, 1.1)])
    assert class_report.best(runs, "wine", class_report.at("size"), kind="sets").method == "temperature"
    assert class_report.packages(runs.lines) == ""
    assert set(class_report.BASELINES) == set(classification.MODELS) - set(class_report.OURS)


@pytest.mark.parametrize("method", ["temperature", "temperature-split"])
def test_a_baseline_has_the_levels_for_which_its_rows_have_ranks(method):
    """142 rows train, of which 29 are kept for ranks: .99 needs 99."""
    (line,) = classification.measure(method, "wine", 0, quick=True)
    levels = [0.8, 0.9, 0.95] + [0.99] * (method == "temperature")
    assert (line["levels"], len(line["sets"]["coverage"]), line["rounds"]) == (levels, len(levels), 1)
    assert line["sets"]["strictly"] <= line["sets"]["coverage"]


def test_settings_are_not_chosen_by_baselines_who_leave_no_row_out(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["classification", "--selection", "--tables", "wine", "--splits", "1"])
    ours, peers = classification.jobs_of(classification.arguments(), [])
    assert ({job[0] for job in ours}, peers) == (set(class_report.OURS), [])
