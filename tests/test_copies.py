"""Rows with equal inputs: in one fold, and what is said of a row that was seen before."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP, MatchedRegressor, Schedule, load, save
from coverwell.cli import main
from coverwell.copies import Copies
from coverwell.inputs.scaling import Scaling
from coverwell.training.rows import FEWEST_DISTINCT, equal_rows
from tests.exported import onnx_outputs

GRID = (0.5, 0.8, 0.9, 0.95, 0.99)
SHORT = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 3, "repeats": 1, "random_state": 0}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=20, interval_epochs=20), "companions": ()}


def table(n, n_twice, random_state=0):
    """Rows of three columns, the first `n_twice` of them twice, with targets that follow them and noise."""
    rng = np.random.RandomState(random_state)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=n)
    return np.vstack([X, X[:n_twice]]), np.append(y, y[:n_twice])


def copies_of(X, y):
    return Copies.of(X, y.reshape(len(y), -1), Scaling.of(X), GRID)


def test_rows_seen_before_have_their_targets_and_others_are_not_taken_for_them():
    X, y = table(200, 40)
    copies = copies_of(X, y)
    order = np.random.RandomState(1).permutation(200)
    seen, targets = copies(torch.from_numpy(X[order]))
    assert seen.all()
    assert_allclose(targets[:, 0], y[order])
    moved = X[order] + 1e-6 * np.eye(3)[np.arange(200) % 3]  # one column of each row by a millionth
    assert not copies(torch.from_numpy(moved))[0].any()
    assert not copies(torch.full((1, 3), torch.nan, dtype=torch.float64))[0].any()


def test_rows_far_from_zero_are_told_apart():
    """A column of time stamps in microseconds beside others of order one, which its rounding must not swallow."""
    X, y = table(200, 40)
    X[:, 2] = 1.7e15 + np.round(1e3 * X[:, 2])
    copies = copies_of(X, y)
    assert copies(torch.from_numpy(X))[0].all()
    X[:, 0] += 1e-3
    assert not copies(torch.from_numpy(X))[0].any()


@pytest.mark.parametrize(
    ("n_twice", "n_differ", "level"),
    [(8, 0, None), (9, 0, 0.9), (18, 0, 0.9), (19, 0, 0.95), (99, 0, 0.99), (99, 1, 0.95), (99, 10, None)],
)
def test_the_level_is_the_highest_that_a_rank_among_the_sets_of_copies_supports(n_twice, n_differ, level):
    """Of m sets, k agree: the level is at most k / (m + 1)."""
    X, y = table(200, n_twice)
    y[200 : 200 + n_differ] += 1.0
    copies = copies_of(X, y)
    assert (copies and copies.level) == level


def test_copies_that_differ_in_one_of_two_targets_differ():
    X, y = table(200, 40)
    other = y.copy()
    other[200:] += 0.5
    assert copies_of(X, np.column_stack([y, y])) is not None
    assert copies_of(X, np.column_stack([y, other])) is None


def test_equal_inputs_are_one_group_unless_there_are_few():
    X = np.arange(FEWEST_DISTINCT, dtype=float)[:, None]
    assert equal_rows(X) is None
    assert_array_equal(equal_rows(np.vstack([X, X[::-1]])), np.append(np.arange(len(X)), np.arange(len(X))[::-1]))
    assert equal_rows(np.repeat(X[1:], 5, axis=0)) is None


@pytest.fixture(scope="module")
def fitted():
    X, y = table(200, 60)
    return MatchedRegressor([0.8, 0.9, 0.99], **SHORT).fit(X, y), X, y


def test_a_row_seen_before_has_no_width_up_to_the_level_and_that_of_any_row_above_it(fitted):
    model, X, y = fitted
    interval = model.predict_interval(X)
    assert_allclose(model.predict(X), y)
    assert_allclose(interval.lower[:, :2], np.column_stack([y, y]))
    assert_allclose(interval.upper[:, :2], np.column_stack([y, y]))
    assert (interval.upper[:, 2] - interval.lower[:, 2] > 0.5).all()  # 60 sets say nothing about .99
    new = model.predict_interval(X + 0.01)
    assert (new.upper - new.lower > 0.5).all()


def test_out_of_fold_bounds_are_about_new_rows(fitted):
    model, _, y = fitted
    width = model.out_of_fold_.upper - model.out_of_fold_.lower
    assert (width > 0.5).all()
    assert np.abs(model.out_of_fold_.prediction[:, 0] - y).mean() > 0.2


def test_files_and_graphs_know_the_rows(fitted, tmp_path):
    model, X, _ = fitted
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").predict_interval(X)
    assert_array_equal(again.upper, model.predict_interval(X).upper)
    copies = model.predictor_.fitted_teams[0].copies
    rows = np.vstack([X[:5], X[:5] + 0.01])
    seen, targets = onnx_outputs(copies, rows)
    assert_array_equal(seen, np.arange(10) < 5)
    assert_allclose(targets[:5], copies(torch.from_numpy(rows))[1][:5])


def test_info_names_the_level(fitted, tmp_path):
    model, X, y = fitted
    path = tmp_path / "model.safetensors"
    save(model, path)
    text = CliRunner().invoke(main, ["info", str(path)], catch_exceptions=False).output
    assert "seen rows:   have their targets, with no width up to 0.98" in text
    save(MatchedRegressor(**SHORT).fit(X[:200], y[:200]), path)
    assert "seen rows" not in CliRunner().invoke(main, ["info", str(path)], catch_exceptions=False).output


def test_a_fit_at_the_command_line_says_that_rows_come_again(fitted, tmp_path):
    _, X, y = fitted
    rows = np.column_stack([X, y])[:60]
    for name, times in (("twice", 2), ("once", 1)):
        text = "\n".join(",".join(map(str, row)) for row in np.repeat(rows, times, axis=0).tolist())
        head = ",".join([*(f"x{place}" for place in range(X.shape[1])), "y"])
        (tmp_path / f"{name}.csv").write_text(f"{head}\n{text}\n")
        asked = ["--target", "y", "--max-rounds", "1", "--folds", "2", "--out", str(tmp_path / f"{name}.safetensors")]
        output = CliRunner().invoke(main, ["fit", str(tmp_path / f"{name}.csv"), *asked], catch_exceptions=False).output
        assert ("rows come again: rows with equal inputs stay in one fold" in output) == (times == 2)


@pytest.mark.parametrize("times", [2, 10])
def test_a_table_in_which_every_row_is_repeated_covers_new_rows_as_asked(times):
    """With copies on both sides of a fold, .9 would be far from reached; three draws of 120 rows, 4000 new rows."""
    covered = []
    for draw in range(3):
        X, y = table(120, 0, random_state=draw)
        X_new, y_new = table(4000, 0, random_state=100 + draw)
        lower, upper = (
            MatchedRegressor(**SHORT).fit(np.repeat(X, times, axis=0), np.repeat(y, times)).predict_interval(X_new)
        )
        covered.append(np.mean((lower <= y_new) & (y_new <= upper)))
    # The ranks are of 120 rows: the coverage of one fit has a standard deviation of some sqrt(.9 * .1 / 120).
    assert np.mean(covered) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 120 / 3)
