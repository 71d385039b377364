import copy
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coverwell.calibration import Estimate
from coverwell.forecasting.live import LiveCalibrator, run_live


def around_zero(n_times, horizon=1, n_levels=1):
    """Forecasts of 0 that reach 1 to both sides."""
    return Estimate(np.zeros((n_times, horizon)), np.ones((n_times, horizon, 2, n_levels)))


@pytest.mark.parametrize("scale", [2.0, [2.0, 2.0], [[2.0] * 3] * 2, [[[2.0] * 3] * 2] * 2])
def test_a_scale_may_be_a_number_or_have_axes_step_side_and_level(scale):
    live = LiveCalibrator([0.5, 0.8, 0.9], horizon=2)
    lower, upper = live.interval([10.0, 20.0], scale)
    assert_array_equal(lower, [[8.0] * 3, [18.0] * 3])
    assert_array_equal(upper, [[12.0] * 3, [22.0] * 3])


def test_a_side_axis_reaches_below_and_above():
    lower, upper = LiveCalibrator(0.9).interval(10.0, scale=[[[1.0], [5.0]]])
    assert (lower.tolist(), upper.tolist()) == ([9.0], [15.0])


@pytest.mark.parametrize("y", [math.inf, -math.inf, "3", [1.0], [1.0, 2.0], True, np.array([[1.0]])])
def test_a_bad_truth_raises_and_leaves_the_calibrator_unchanged(y):
    live = LiveCalibrator([0.5, 0.9], horizon=2)
    live.interval([0.0, 1.0])
    live.update(3.0)
    live.interval([0.0, 1.0])
    before = copy.deepcopy(live.state_dict())
    with pytest.raises((ValueError, TypeError), match="y must"):
        live.update(y)
    assert live.state_dict() == before


@pytest.mark.parametrize(
    ("prediction", "scale", "complaint"),
    [
        (0.0, 1.0, "each of 2 steps"),
        ([0.0, 0.0, 0.0], 1.0, "each of 2 steps"),
        ([0.0, math.nan], 1.0, "prediction must be finite"),
        ([0.0, 0.0], -1.0, "must not be negative"),
        ([0.0, 0.0], math.inf, "scale must be finite"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "one of the shapes"),
        ([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]], "one of the shapes"),
    ],
)
def test_a_bad_forecast_is_refused_and_leaves_what_is_pending(prediction, scale, complaint):
    live = LiveCalibrator(0.9, horizon=2)
    live.interval([0.0, 0.0])
    before = live.state_dict()
    with pytest.raises(ValueError, match=complaint):
        live.interval(prediction, scale)
    assert live.state_dict() == before


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"coverage": 1.0}, "coverage must lie"),
        ({"coverage": [0.9, 0.9]}, "twice"),
        ({"rate": 0.0}, "rate must be a positive number"),
        ({"rate": math.inf}, "rate must be finite"),
        ({"horizon": 0}, "horizon must be a whole number"),
        ({"start": 0.0}, "start must be positive"),
        ({"start": [1.0, 1.0]}, "start must be a number or"),
        ({"farthest": 1.0}, "farthest must be a number above 1"),
    ],
)
def test_bad_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        LiveCalibrator(**options)


@pytest.mark.parametrize(
    ("estimate", "y", "complaint"),
    [
        (around_zero(3, horizon=2), np.zeros(3), "estimate must have a mean"),
        (around_zero(3, n_levels=2), np.zeros(3), "estimate must have a mean"),
        (around_zero(3), np.zeros(4), "estimate must have a mean"),
        (around_zero(3), np.array([0.0, math.inf, 0.0]), "1 infinite"),
        (around_zero(3), np.zeros((3, 1)), "y must have the shape"),
        (Estimate(np.full((3, 1), np.nan), np.ones((3, 1, 2, 1))), np.zeros(3), "mean must be finite"),
        (Estimate(np.zeros((3, 1)), -np.ones((3, 1, 2, 1))), np.zeros(3), "must not be negative"),
    ],
)
def test_a_bad_period_is_refused_and_leaves_the_calibrator_unchanged(estimate, y, complaint):
    live = LiveCalibrator(0.9)
    before = live.state_dict()
    with pytest.raises(ValueError, match=complaint):
        run_live(live, estimate, y)
    assert live.state_dict() == before
