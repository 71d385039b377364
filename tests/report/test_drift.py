"""Means of test rows beside what the model keeps of its training rows."""

import numpy as np
import pytest
from coverwell.report.drift import shifts_between

from coverwell import MLP, MatchedRegressor


@pytest.fixture(scope="module")
def plain():
    """A model of two plain columns: the first has mean 0.5 and deviation 0.5, the second counts."""
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    return MatchedRegressor(network=MLP(hidden=4), max_rounds=1, repeats=1, folds=2, random_state=0).fit(X, X[:, 1])


def by_name(model, X):
    return {shift.name: shift for shift in shifts_between(model, X)}


def test_a_difference_is_in_standard_deviations_of_the_training_rows(plain):
    found = by_name(plain, np.column_stack([np.ones(40), np.full(40, 29.5)]))
    assert found["column 0"].difference == pytest.approx((1 - 0.5) / 0.5)
    assert found["column 0"].is_share
    assert found["column 0"].standard_error == pytest.approx((1 / 40 + 1 / 60) ** 0.5)
    assert found["column 0"].chance < 0.05
    assert found["column 1"].difference == pytest.approx(0.0)
    assert found["column 1"].chance == 1.0


def test_rows_outside_the_range_of_training_are_counted(plain):
    X = np.column_stack([np.tile([0.0, 1.0], 10), np.arange(50.0, 70.0)])
    assert by_name(plain, X)["column 1"].n_outside == 10


def test_what_differs_most_surely_comes_first(plain):
    X = np.column_stack([np.tile([0.0, 1.0], 20), np.full(40, 59.0)])
    assert shifts_between(plain, X)[0].name == "column 1"


def test_new_samples_of_the_same_rows_are_rarely_called_different(plain):
    # By Bonferroni, at most one sample in twenty has any input with a chance below 0.05; of 40 samples at most 7, save
    # in one case of a thousand.
    rng = np.random.default_rng(0)
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    samples = [X[rng.integers(0, 60, 30)] for _ in range(40)]
    called = sum(any(shift.chance < 0.05 for shift in shifts_between(plain, s)) for s in samples)
    assert called <= 7


def test_levels_and_gaps_of_a_frame_are_inputs_with_their_shares(model, flats):
    found = by_name(model, flats(60, seed=1).drop("rent"))
    training = flats(120)
    assert found["city=Oslo"].is_share
    assert found["city=Oslo"].train_mean == pytest.approx((training["city"] == "Oslo").mean())
    assert found["area (missing)"].test_mean == pytest.approx(4 / 60)
