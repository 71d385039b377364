"""Ends of intervals at values that the target takes."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.calibration import Atoms

SHORT = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 3, "repeats": 1, "random_state": 0}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=20, interval_epochs=20), "companions": ()}


def moved(atoms, lower, upper):
    """Ends of one target and level, before and after."""
    ends = (torch.tensor(side, dtype=torch.float64)[:, None, None] for side in (lower, upper))
    return [side[:, 0, 0].tolist() for side in atoms(*ends)]


@pytest.mark.parametrize(
    ("reach", "lower", "upper"),
    [
        (0.0, [1.0, 2.0, 3.0], [3.0, 4.0, 4.0]),  # inwards: the values 1, 2, 3 are in both
        (0.3, [1.0, 2.0, 2.0], [3.0, 4.0, 4.0]),  # from 2.2, less than .3 of the way from 2, outwards
        (0.7, [0.0, 2.0, 2.0], [4.0, 4.0, 4.0]),
    ],
)
def test_ends_move_to_the_value_inside_or_to_one_outside_that_is_near_enough(reach, lower, upper):
    atoms = Atoms([np.arange(5.0)], np.array([reach]))
    assert moved(atoms, [0.5, 2.0, 2.2], [3.5, 4.0, 4.6]) == [lower, upper]


def test_a_level_contains_the_one_inside_it_also_where_neither_has_a_value_inside():
    atoms = Atoms([np.arange(5.0)], np.array([0.4]))
    lower, upper = (torch.tensor([[side]], dtype=torch.float64) for side in ([1.45, 1.35], [1.5, 1.55]))
    low, high = (side[0, 0].tolist() for side in atoms(lower, upper))  # inner ends go to 2, outer ones to 1
    assert (low, high) == ([2.0, 1.0], [2.0, 2.0])


@pytest.mark.parametrize(("width", "chosen"), [(0.8, True), (2.8, True), (4.8, False)])
def test_the_reach_is_chosen_where_intervals_hold_few_values_and_zero_elsewhere(width, chosen):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 30, (600, 1)).astype(float)
    lower = y[..., None] + 0.1  # the lower end just misses: moved outwards, it would not
    atoms = Atoms.of(y, lower, lower + width, (0.9,))
    assert_array_equal(atoms.values[0], np.arange(30))
    assert (atoms.reach.item() > 0.1) == chosen


def test_a_target_of_many_values_has_no_atoms():
    y = np.arange(100.0).repeat(4)[:, None]  # fewer than five rows a value
    assert Atoms.of(y, y[..., None] - 1, y[..., None] + 1, (0.9,)) is None


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (1200, 2))
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    return MatchedRegressor([0.5, 0.8, 0.9], **SHORT).fit(X[:400], y[:400]), X[400:], y[400:]


def test_ends_of_any_level_are_values_and_levels_between_others_cover_no_less(counts):
    model, X, y = counts
    levels = (0.5, 0.73, 0.8, 0.87, 0.9)
    interval = model.predict_interval(X, coverage=levels)
    assert_array_equal(interval.lower, interval.lower.round())
    assert_array_equal(interval.upper, interval.upper.round())
    assert (np.diff(interval.upper - interval.lower, axis=1) >= 0).all()
    covered = ((interval.lower <= y[:, None]) & (y[:, None] <= interval.upper)).mean(axis=0)
    # The ranks are of 400 rows, the test rows 800.
    assert (covered > np.array(levels) - 4 * np.sqrt(0.25 / 400 + 0.25 / 800)).all()


def test_fitted_levels_are_the_same_alone_and_beside_others(counts):
    model, X, _ = counts
    alone, beside = (model.predict_interval(X, coverage=levels) for levels in ((0.5, 0.8), (0.5, 0.73, 0.8)))
    assert_allclose(alone.lower, beside.lower[:, [0, 2]])
    assert_allclose(alone.upper, beside.upper[:, [0, 2]])
