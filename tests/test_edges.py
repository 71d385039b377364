"""Half-widths beyond the range of training."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP, IntervalAround, MatchedRegressor, Schedule, load, save
from coverwell.calibration import Estimate
from coverwell.edges import FEWEST_COPIES, MOST_COLUMNS, EdgeRates, edge_copies, edge_rates
from coverwell.errors import ExtrapolationWarning
from coverwell.inputs.scaling import Scaling
from coverwell.training.rows import Altered

EVERYWHERE = np.ones(200, dtype=bool)


def test_rows_of_the_outer_tenths_are_moved_back_to_where_these_begin():
    X = np.column_stack([np.arange(200.0), np.arange(200) % 2, np.arange(200)[::-1] ** 2])
    altered = edge_copies(X, X[:, :1], EVERYWHERE, 0)
    assert altered is not None
    assert sorted(set(map(tuple, altered.edge.tolist()))) == [(0, 0), (0, 2), (1, 0), (1, 2)]  # two values have no edge
    high = (altered.edge == [1, 0]).all(axis=1)
    assert sorted(altered.copy_of[high]) == list(range(180, 200))
    assert set(altered.X[high, 0]) == {179.0}
    assert_array_equal(altered.X[high, 1:], X[altered.copy_of[high], 1:])
    few = np.arange(200) < 199 - FEWEST_COPIES  # the high side of the first column has no longer enough
    shown = edge_copies(X[:, :1], X[:, :1], few, 0)
    assert shown is not None
    assert set(shown.edge[:, 0]) == {0}
    assert edge_copies(X[:60], X[:60, :1], EVERYWHERE[:60], 0) is None


def test_of_wide_tables_the_columns_that_go_with_a_target_are_moved():
    X = np.random.default_rng(0).normal(size=(200, MOST_COLUMNS + 50))
    y = np.column_stack([np.exp(X[:, 120]), -X[:, 7]])
    altered = edge_copies(X, y, EVERYWHERE, 0)
    assert altered is not None
    moved = set(altered.edge[:, 1])
    assert len(moved) == MOST_COLUMNS
    assert {7, 120} <= moved
    assert len(altered.X) <= 3000


def test_the_rate_is_the_slope_of_least_pinball_loss_of_changes():
    # One column of spread 2, rows that were moved by 2, 4, ..., 20: by 1 to 10 spreads. Predictions change by 3 each
    # spread, those of the last row, which weighs 10 of 55, by 7.
    d = np.arange(1.0, 11.0)
    X, mean = 2 * d[:, None], 3 * d[:, None]
    mean[-1] = 70.0
    estimate = Estimate(np.zeros((10, 1)), np.ones((10, 1, 2, 2)))
    altered = Altered(np.zeros((10, 1)), np.arange(10), np.tile([1, 0], (10, 1)), estimate=estimate)
    rates = edge_rates(altered, X, mean, np.array([2.0]), np.array([[2.0, 2.0]]), (0.5, 0.95))
    assert rates is not None
    assert_allclose(rates.rate[1, 0, 0].numpy(), [3 / 2, 7 / 2])  # before the factor
    assert not rates.rate[0].any()
    inputs = Scaling((1,), np.zeros(1), np.array([2.0]), np.zeros(1), np.array([20.0]))
    grown = rates(inputs, torch.tensor([[10.0], [20.0], [22.0], [1e9], [-9.0]], dtype=torch.float64))[:, 0, 0, 0]
    assert_allclose(grown.numpy(), [0.0, 0.0, 1.5, 15.0, 0.0])  # no further than the range is wide, 10 spreads
    none = edge_rates(altered, X, np.zeros((10, 1)), np.array([2.0]), np.array([[2.0, 2.0]]), (0.5, 0.95))
    assert none is None


def test_rates_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"1 columns must have rates .* at 2 levels, got the shape \(2, 1, 1, 3\)"):
        EdgeRates(np.zeros(1, dtype=np.int64), np.zeros((2, 1, 1, 3)), (0.5, 0.9))


def law(n, rng, low=-3.0, high=3.0):
    X = rng.uniform(low, high, (n, 2))
    X[:, 1] = rng.uniform(-3, 3, n)
    return X, 2 * X[:, 0] + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model():
    X, y = law(400, np.random.default_rng(0))
    how = {"network": MLP(hidden=16), "schedule": Schedule(mean_epochs=20, max_rounds=2), "random_state": 0}
    return MatchedRegressor(0.9, **how).fit(X, y)


def test_intervals_grow_with_the_distance_to_what_was_learned(model):
    rng = np.random.default_rng(1)
    shares = []
    for low, high in ((2.5, 3.0), (3.0, 4.0), (4.0, 6.0)):
        X, y = law(1000, rng, low, high)
        if low < 3:
            shares.append(model.predict_interval(X).contains(y).mean())
            continue
        with pytest.warns(ExtrapolationWarning, match=r"1000 of 1000 rows lie outside the range .* \(in column 0"):
            shares.append(model.predict_interval(X).contains(y).mean())
    assert min(shares[1:]) >= 0.85  # a network alone covers none beyond 4
    along = np.column_stack([np.linspace(3.1, 12, 30), np.zeros(30)])
    with pytest.warns(ExtrapolationWarning, match="by more than half of it"):
        widths = model.predict_interval(along).width
    assert (np.diff(widths) >= -1e-9).all()
    assert widths[-1] == pytest.approx(widths[-9])  # it ends a range outside


def test_intervals_inside_the_range_are_those_without_edges(model):
    X, _ = law(50, np.random.default_rng(2), -2.9, 2.9)
    X[:, 1] *= 0.9
    without = copy.deepcopy(model)
    (team,) = without.predictor_.fitted_teams
    assert team.edges is not None
    team.edges = None
    assert_array_equal(model.predict_interval(X).upper, without.predict_interval(X).upper)


def test_a_model_file_keeps_the_growth(model, tmp_path):
    save(model, tmp_path / "model.safetensors")
    X = np.array([[5.0, 0.0], [-3.5, 8.0], [0.0, 0.0]])
    with pytest.warns(ExtrapolationWarning):
        expected = model.predict_interval(X)
    again = load(tmp_path / "model.safetensors")
    with pytest.warns(ExtrapolationWarning, match="2 of 3 rows"):
        assert_array_equal(again.predict_interval(X).lower, expected.lower)


def test_no_growth_is_learned_where_a_regressor_sees_rows_as_they_are():
    from sklearn.linear_model import LinearRegression

    X, y = law(300, np.random.default_rng(0))
    around = IntervalAround(LinearRegression(), random_state=0).fit(X, y)  # it goes on along its line
    assert around.predictor_.fitted_teams[0].edges is None
