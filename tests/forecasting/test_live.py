import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from coverwell.calibration import Estimate
from coverwell.forecasting.live import FactorBoundWarning, LiveCalibrator, run_live, truths_ahead
from coverwell.forecasting.rates import choose_rate
from coverwell.metrics import rolling_coverage


def around_zero(n_times, horizon=1, n_levels=1):
    """Forecasts of 0 that reach 1 to both sides."""
    return Estimate(np.zeros((n_times, horizon)), np.ones((n_times, horizon, 2, n_levels)))


# Bounds of the factor ------------------------------------------------------------------------------------------------


def truth(live, y):
    live.interval(0.0)
    live.update(y)


def test_reaching_a_bound_warns_once_and_again_only_after_leaving_it():
    live = LiveCalibrator(0.5, rate=1.0, farthest=2.0)
    truth(live, 100.0)  # log factor 0.5
    with pytest.warns(FactorBoundWarning, match="step 1 at coverage 0.5 has reached its bound 2 and is held"):
        truth(live, 100.0)
    truth(live, 100.0)  # held: a warning here would be an error
    assert live.factor == pytest.approx(2.0)
    truth(live, 0.0)
    assert live.factor == pytest.approx(2 * math.exp(-0.5))
    with pytest.warns(FactorBoundWarning):
        truth(live, 100.0)


def test_the_lower_bound_is_warned_of_too():
    live = LiveCalibrator(0.5, rate=1.0, start=4.0, farthest=2.0)
    truth(live, 0.0)
    with pytest.warns(FactorBoundWarning, match="its bound 2 "):
        truth(live, 0.0)


def test_a_warning_that_is_raised_leaves_the_truth_counted():
    live = LiveCalibrator(0.5, rate=5.0, farthest=2.0)
    live.interval(0.0)
    with pytest.raises(FactorBoundWarning):
        live.update(9.0)
    assert (live.n_updates, live.missed) == (1, 1.0)


def test_a_whole_period_warns_once_with_the_number_of_times():
    live = LiveCalibrator(0.5, rate=1.0, farthest=2.0)
    y = np.array([100.0, 100.0, 100.0, 0.0, 100.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_live(live, around_zero(5), y)
    assert [w.category for w in caught] == [FactorBoundWarning]
    assert "the first of 2 times" in str(caught[0].message)


# The state -----------------------------------------------------------------------------------------------------------


def broken(**changes):
    return LiveCalibrator(0.9).state_dict() | changes


@pytest.mark.parametrize(
    "state",
    [
        {},
        broken(log_factor_over_start=[[0.0, 0.0]]),
        broken(log_factor_over_start=[[99.0]]),
        broken(log_factor_over_start=[[math.nan]]),
        broken(pending=[]),
        broken(pending=[[[[1.0]]]]),
        broken(rate=-1.0),
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state):
    live = LiveCalibrator(0.9)
    truth(live, 3.0)
    before = live.state_dict()
    with pytest.raises(ValueError, match="not the state_dict of a LiveCalibrator"):
        live.load_state_dict(state)
    assert live.state_dict() == before


def test_the_state_of_another_kind_of_calibrator_is_refused():
    state = LiveCalibrator(0.9).state_dict()
    with pytest.raises(ValueError, match=r"coverage=0\.9, this one has 0\.8"):
        LiveCalibrator(0.8).load_state_dict(state)
    with pytest.raises(ValueError, match="horizon=1, this one has 2"):
        LiveCalibrator(0.9, horizon=2).load_state_dict(state)


def test_a_truth_without_an_interval_is_refused():
    live = LiveCalibrator(0.9, horizon=2)
    with pytest.raises(ValueError, match="no interval is due"):
        live.update(1.0)
    live.interval([0.0, 0.0])
    live.update(0.0)
    live.update(0.0)  # step 2 of the only call
    with pytest.raises(ValueError, match="no interval is due"):
        live.update(math.nan)
    assert live.n_updates == 2


# From the past -------------------------------------------------------------------------------------------------------


def test_the_start_is_the_coverage_rank_of_the_residuals():
    residuals = np.array([-9.0, 1.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0])
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1).factor == 8.0  # the 8th of 9
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1, scale=2.0).factor == 4.0
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1, scale=np.abs(residuals)).factor == 1.0
    assert_array_equal(LiveCalibrator.from_residuals(residuals, [0.8, 0.5], rate=0.1).factor, [[8.0, 5.0]])


def test_missing_residuals_are_left_out_of_the_rank():
    residuals = np.array([np.nan, -9.0, 1.0, 2.0, -3.0, np.nan, 4.0, 5.0, -6.0, 7.0, 8.0])
    assert LiveCalibrator.from_residuals(residuals, 0.8).factor == 8.0


def test_residuals_of_several_steps_give_a_start_for_each():
    errors = np.random.default_rng(0).normal(size=(2000, 3)) * [1.0, 2.0, 3.0]
    live = LiveCalibrator.from_residuals(errors, [0.5, 0.9])
    assert live.horizon == 3
    # The standard error of the log of a quantile of 2000 is below .025 here: four of them.
    assert_allclose(np.log(live.factor), np.log(np.outer([1, 2, 3], norm.ppf([0.75, 0.95]))), atol=0.1)


def test_the_rate_of_several_steps_is_chosen_on_forecasts_with_those_residuals():
    rng = np.random.default_rng(5)
    y, mean = rng.normal(size=700), np.zeros((700, 2))
    y[300] = np.nan
    residuals = truths_ahead(y, 2) - mean
    live = LiveCalibrator.from_residuals(residuals, 0.9)
    assert live.rate == choose_rate(around_zero(700, horizon=2), y, 0.9)


@pytest.mark.parametrize(
    ("residuals", "complaint"),
    [
        (np.zeros(100), "residual at the rank"),
        (np.ones(5), "needs at least 9 rows, got 5"),
        (np.ones((2, 2, 2)), "residuals must have the shape"),
        (np.array([]), "residuals must have the shape"),
    ],
)
def test_residuals_that_give_no_start_are_refused(residuals, complaint):
    with pytest.raises(ValueError, match=complaint):
        LiveCalibrator.from_residuals(residuals, 0.9)


def test_an_unknown_word_for_the_rate_is_refused():
    with pytest.raises(ValueError, match="a positive number or 'auto', got 'fast'"):
        LiveCalibrator.from_residuals(np.arange(1.0, 50.0), 0.9, rate="fast")


# A real series -------------------------------------------------------------------------------------------------------


def test_on_half_hourly_demand_an_autoregression_keeps_its_coverage(shared_data):
    file = shared_data / "forecasting" / "PRICE_AND_DEMAND_2013_NSW1.csv.gz"
    demand = np.loadtxt(file, delimiter=",", skiprows=1, usecols=2)
    n_train, past = int(0.3 * len(demand)), 48
    windows = np.lib.stride_tricks.sliding_window_view(demand, past)[:-1]
    inputs, y = np.c_[np.ones(len(windows)), windows], demand[past:]
    train = slice(0, n_train - past)
    forecast = inputs @ np.linalg.lstsq(inputs[train], y[train], rcond=None)[0]
    live = LiveCalibrator.from_residuals((y - forecast)[train], 0.95)
    forecast, y = forecast[n_train - past :, None], y[n_train - past :]
    static = np.mean(np.abs(y - forecast[:, 0]) <= live.factor)
    lower, upper, factors = run_live(live, Estimate(forecast, np.ones((*forecast.shape, 2, 1))), y)
    inside = (lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0])
    assert static < 0.93
    assert inside.mean() == pytest.approx(0.95, abs=(np.ptp(np.log(factors)) + live.rate) / (live.rate * len(y)))
    assert rolling_coverage(inside, 500).min() >= 0.9
