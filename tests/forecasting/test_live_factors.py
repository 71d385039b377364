"""The rule, seen through the calls that users make."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from coverwell.calibration import Estimate
from coverwell.forecasting.live import FactorBoundWarning, LiveCalibrator, run_live, truths_ahead

seeds = st.integers(0, 2**16)


def step_by_step(calibrator, estimate, y):
    """The same as run_live, by the calls that users make."""
    lower, upper, factors = [], [], []
    shape = (calibrator.horizon, -1)
    for mean, reach, truth in zip(estimate.mean, estimate.reach, y, strict=True):
        factors.append(np.reshape(calibrator.factor, shape))
        interval = calibrator.interval(mean, reach)
        lower.append(interval.lower.reshape(shape))
        upper.append(interval.upper.reshape(shape))
        calibrator.update(truth)
    return np.array(lower), np.array(upper), np.array(factors)


@st.composite
def periods(draw):
    """Levels in any order, forecasts whose levels cross now and then, and truths with gaps."""
    levels = draw(st.lists(st.sampled_from([0.2, 0.5, 0.8, 0.9, 0.95]), min_size=1, max_size=3, unique=True))
    horizon, n_times = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(seeds))
    y = 2 * rng.normal(size=n_times)
    y[rng.random(n_times) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    estimate = Estimate(
        rng.normal(size=(n_times, horizon)), rng.lognormal(sigma=0.5, size=(n_times, horizon, 2, len(levels)))
    )
    start = rng.lognormal(size=(horizon, len(levels)))
    rate = draw(st.floats(0.01, 0.5))
    return lambda: LiveCalibrator(levels, rate=rate, horizon=horizon, start=start, farthest=1e9), estimate, y


def around_zero(n_times, horizon=1, n_levels=1):
    """Forecasts of 0 that reach 1 to both sides."""
    return Estimate(np.zeros((n_times, horizon)), np.ones((n_times, horizon, 2, n_levels)))


# The rule ------------------------------------------------------------------------------------------------------------


def test_a_miss_and_a_hit_move_the_factor_as_worked_out_by_hand():
    live = LiveCalibrator(0.9, rate=0.2, start=2.0)
    lower, upper = live.interval(10.0, scale=3.0)
    assert (lower.tolist(), upper.tolist()) == ([4.0], [16.0])  # 10 -+ 2 x 3
    live.update(16.5)
    assert live.factor == pytest.approx(2 * math.exp(0.2 * 0.9))
    live.interval(10.0, scale=3.0)
    live.update(10.0)
    assert live.factor == pytest.approx(2 * math.exp(0.2 * 0.9 - 0.2 * 0.1))
    assert (live.n_updates, live.n_judged.tolist(), live.missed) == (2, [2], 0.5)


def test_a_truth_on_a_bound_is_inside():
    live = LiveCalibrator(0.9)
    live.interval(0.0)
    live.update(1)
    assert live.missed == 0
    assert live.factor < 1


@given(scores=st.lists(st.floats(0, 5), max_size=60), level=st.floats(0.05, 0.99), rate=st.floats(0.01, 0.5))
def test_the_rule_is_that_of_a_textbook_loop(scores, level, rate):
    live, log_factor = LiveCalibrator(level, rate=rate, farthest=1e15), 0.0
    for score in scores:
        upper = live.interval(0.0).upper[0]
        assert upper == pytest.approx(math.exp(log_factor), rel=1e-9)
        live.update(score)
        log_factor += rate * ((score > upper) - (1 - level))
    assert live.factor == pytest.approx(math.exp(log_factor), rel=1e-9)


@given(
    scores=st.lists(st.floats(0, 100), min_size=1, max_size=80), level=st.floats(0.05, 0.99), rate=st.floats(0.01, 1)
)
def test_the_mean_miss_obeys_the_statement_at_every_time_while_no_bound_is_reached(scores, level, rate):
    live = LiveCalibrator(level, rate=rate)
    in_use, misses = [], []
    for score in scores:
        in_use.append(math.log(live.factor))
        misses.append(not live.interval(0.0).contains([score])[0])
        try:
            live.update(score)
        except FactorBoundWarning:
            break
        T = len(misses)
        off = abs(np.mean(misses) - (1 - level))
        assert off <= (max(in_use) - min(in_use) + rate) / (rate * T) + 1e-12
        assert off == pytest.approx(abs(math.log(live.factor)) / (rate * T), abs=1e-12)
        assert live.missed == pytest.approx(np.mean(misses))


@given(period=periods())
def test_the_statement_holds_for_the_given_intervals_of_every_step_and_level(period):
    make, estimate, y = period
    live = make()
    lower, upper, factors = run_live(live, estimate, y)
    truths = truths_ahead(y, live.horizon)[..., None]
    known = ~np.isnan(truths)
    n_judged = known.sum(axis=0)
    n_missed = (known & ((truths < lower) | (truths > upper))).sum(axis=0)
    assert_array_equal(live.n_judged, n_judged[:, 0])
    off = np.abs(n_missed - n_judged * (1 - np.array(live.coverage)))  # T |mean miss - (1 - p)|
    log_range = np.ptp(np.log(factors), axis=0)
    assert (off <= (log_range + live.rate) / live.rate + 1e-6).all()


def test_on_independent_errors_the_factor_settles_at_the_true_quantile():
    y = np.random.default_rng(0).normal(size=20_000)
    live = LiveCalibrator(0.9, rate=0.02, start=1.0)
    _, _, factors = run_live(live, around_zero(len(y)), y)
    # Near the quantile the log factor is an autoregression that forgets in 1 / (rate f) steps, f = 2 z phi(z) = .34:
    # its variance is rate .9 .1 / (2 f) = .052^2, so a mean over n steps errs by .052 sqrt(2 / (rate f n)) = .006.
    # Four of those, and .01 for the bend of the quantile function.
    assert np.log(factors[1000:]).mean() == pytest.approx(math.log(norm.ppf(0.95)), abs=0.035)
    assert live.missed == pytest.approx(0.1, abs=(np.ptp(np.log(factors)) + 0.02) / (0.02 * len(y)))


def test_after_a_jump_of_the_noise_coverage_returns():
    rng = np.random.default_rng(1)
    y = rng.normal(size=4000) * np.repeat([1.0, 4.0], 2000)
    lower, upper, _ = run_live(LiveCalibrator(0.9, start=1.645), around_zero(len(y)), y)
    inside = (lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0])
    assert np.mean(np.abs(y[2000:]) <= 1.645) < 0.4
    # From any time on: the log factor had log 4 to go, and rarely leaves .5 on either side.
    assert inside[2000:].mean() == pytest.approx(0.9, abs=(math.log(4) + 1) / (0.05 * 2000))


# Several levels ------------------------------------------------------------------------------------------------------


def test_an_outer_level_is_judged_by_the_interval_that_was_given():
    # The inner reach is the larger: the outer level is given 3, so a truth of 2 is no miss though its own reach was 1.
    live = LiveCalibrator([0.5, 0.9], rate=0.1)
    lower, upper = live.interval(0.0, scale=[[3.0, 1.0]])
    assert_array_equal(lower, [[-3.0, -3.0]])
    assert_array_equal(upper, [[3.0, 3.0]])
    live.update(2.0)
    assert_array_equal(live.missed, [[0.0, 0.0]])
    assert_allclose(live.factor, np.exp([[-0.05, -0.01]]))


def test_levels_keep_the_order_in_which_they_were_asked():
    live = LiveCalibrator([0.9, 0.5], start=[2.0, 1.0])
    interval = live.interval(0.0)
    assert interval.coverage == (0.9, 0.5)
    assert_array_equal(interval.upper, [[2.0, 1.0]])
    live.update(1.5)
    assert_array_equal(live.missed, [[0.0, 1.0]])


@given(period=periods())
def test_given_intervals_are_nested(period):
    make, estimate, y = period
    live = make()
    lower, upper, _ = run_live(live, estimate, y)
    outwards = np.argsort(live.coverage)
    assert (np.diff(lower[..., outwards]) <= 0).all()
    assert (np.diff(upper[..., outwards]) >= 0).all()


# Several steps -------------------------------------------------------------------------------------------------------


def test_feedback_for_step_h_arrives_h_truths_later():
    live = LiveCalibrator(0.9, rate=0.1, horizon=2)
    live.interval([0.0, 0.0])
    live.update(5.0)  # judges step 1 of the first call
    assert_allclose(live.factor, np.exp([[0.09], [0.0]]))
    live.interval([5.0, 5.0])
    live.update(5.0)  # step 1 of the second call: a hit; step 2 of the first: a miss
    assert_allclose(live.factor, np.exp([[0.08], [0.09]]))
    assert live.n_judged.tolist() == [2, 1]
    assert_allclose(live.missed, [[0.5], [1.0]])


def test_a_pending_step_is_judged_by_the_width_it_was_given_with():
    live = LiveCalibrator(0.9, rate=1.0, horizon=2)
    live.interval([0.0, 0.0], scale=[1.0, 2.0])
    live.update(1.5)
    live.interval([0.0, 0.0], scale=100.0)
    live.update(3.0)  # beyond the 2 that step 2 was given with
    assert_array_equal(live.missed, [[0.5], [1.0]])


def test_a_missing_truth_drops_what_was_due_and_moves_nothing():
    live = LiveCalibrator(0.9, horizon=2)
    live.interval([0.0, 0.0])
    live.update(math.nan)
    live.interval([0.0, 0.0])
    assert_array_equal(live.factor, [[1.0], [1.0]])
    assert np.isnan(live.missed).all()
    live.update(9.0)  # judges step 2 of the first call and step 1 of the second
    assert live.n_judged.tolist() == [1, 1]
    assert live.n_updates == 2


def test_a_second_interval_before_the_truth_replaces_the_first():
    live = LiveCalibrator(0.9)
    live.interval(100.0)
    live.interval(0.0)
    live.update(0.0)
    assert (live.missed, live.n_judged.tolist()) == (0.0, [1])


# The whole period, and the state -------------------------------------------------------------------------------------


@given(period=periods())
def test_a_whole_period_gives_the_bits_of_the_loop_and_its_end_state(period):
    make, estimate, y = period
    one_by_one, at_once = make(), make()
    for expected, got in zip(step_by_step(one_by_one, estimate, y), run_live(at_once, estimate, y), strict=True):
        assert_array_equal(got, expected)
    assert at_once.state_dict() == one_by_one.state_dict()


@given(period=periods(), cut=st.floats(0, 1))
def test_a_calibrator_restored_from_json_goes_on_bit_for_bit(period, cut):
    make, estimate, y = period
    whole, first = make(), make()
    expected = np.array(run_live(whole, estimate, y))
    k = round(cut * len(y))
    run_live(first, Estimate(estimate.mean[:k], estimate.reach[:k]), y[:k])
    restored = LiveCalibrator(first.coverage, horizon=first.horizon)
    restored.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    got = step_by_step(restored, Estimate(estimate.mean[k:], estimate.reach[k:]), y[k:])
    if k < len(y):
        assert_array_equal(np.array(got), expected[:, k:])
    assert restored.state_dict() == whole.state_dict()


def test_the_factor_returned_is_the_one_that_made_the_bounds():
    rng = np.random.default_rng(3)
    estimate = Estimate(rng.normal(size=(50, 2)), rng.lognormal(size=(50, 2, 2, 1)))
    lower, upper, factors = run_live(LiveCalibrator(0.9, horizon=2), estimate, rng.normal(size=50))
    expected_lower, expected_upper = estimate.bounds(factors)
    assert_array_equal(lower, expected_lower)
    assert_array_equal(upper, expected_upper)
