"""Live calibration through the calls that users make: its rule, what is proven of it, its state and its past."""

import copy
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from coverwell.errors import FactorBoundWarning
from coverwell.forecasting.live import RATES, LiveCalibrator, best_rate, truths_ahead
from coverwell.metrics import coverage, interval_score, rolling_coverage


def around_zero(n_times, horizon=1, n_levels=1):
    """Forecasts of 0 with a half-width of 1 to both sides."""
    return np.zeros((n_times, horizon)), np.ones((n_times, horizon, 2, n_levels))


def truth(live, y):
    live.interval(0.0)
    live.update(y)


def step_by_step(calibrator, mean, half_width, y):
    """The same as `run`, by the calls that users make."""
    lower, upper, factors = [], [], []
    shape = (calibrator.horizon, -1)
    for centre, scale, value in zip(mean, half_width, y, strict=True):
        factors.append(np.reshape(calibrator.factor, shape))
        interval = calibrator.interval(centre, scale)
        lower.append(interval.lower.reshape(shape))
        upper.append(interval.upper.reshape(shape))
        calibrator.update(value)
    return np.array(lower), np.array(upper), np.array(factors)


@st.composite
def periods(draw):
    """Levels in any order, forecasts whose levels cross now and then, and truths with gaps."""
    levels = draw(st.lists(st.sampled_from([0.2, 0.5, 0.8, 0.9, 0.95]), min_size=1, max_size=3, unique=True))
    horizon, n_times = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    y = 2 * rng.normal(size=n_times)
    y[rng.random(n_times) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    mean, half_width = rng.normal(size=(n_times, horizon)), rng.lognormal(0, 0.5, (n_times, horizon, 2, len(levels)))
    start = rng.lognormal(size=(horizon, len(levels)))
    rate = draw(st.one_of(st.floats(0.01, 0.5), st.just("adaptive")))
    return lambda: LiveCalibrator(levels, rate=rate, horizon=horizon, start=start, farthest=1e9), mean, half_width, y


def test_a_miss_and_a_hit_move_the_factor_as_worked_out_by_hand():
    live = LiveCalibrator(0.9, rate=0.2, start=2.0)
    lower, upper = live.interval(10.0, scale=3.0)
    assert (lower.tolist(), upper.tolist()) == ([4.0], [16.0])  # 10 -+ 2 x 3
    live.update(16.5)
    assert live.factor == pytest.approx(2 * math.exp(0.2 * 0.9))
    live.interval(10.0, scale=3.0)
    live.update(10.0)
    assert live.factor == pytest.approx(2 * math.exp(0.2 * 0.9 - 0.2 * 0.1))
    assert (live.n_updates, live.n_scored.tolist(), live.missed) == (2, [2], 0.5)
    live = LiveCalibrator(0.9)
    truth(live, 1)  # on the bound: inside
    assert live.missed == 0


@given(scores=st.lists(st.floats(0, 5), max_size=60), level=st.floats(0.05, 0.99), rate=st.floats(0.01, 0.5))
def test_the_rule_is_that_of_a_textbook_loop(scores, level, rate):
    live, log_factor = LiveCalibrator(level, rate=rate, farthest=1e15), 0.0
    for score in scores:
        upper = live.interval(0.0).upper[0]
        assert upper == pytest.approx(math.exp(log_factor), rel=1e-9)
        live.update(score)
        log_factor += rate * ((score > upper) - (1 - level))
    assert live.factor == pytest.approx(math.exp(log_factor), rel=1e-9)


@given(scores=st.lists(st.floats(0, 100), min_size=1), level=st.floats(0.05, 0.99), rate=st.floats(0.01, 1))
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
    make, mean, half_width, y = period
    live = make()
    lower, upper, factors = live.run(mean, half_width, y)
    truths = truths_ahead(y, live.horizon)[..., None]
    known = ~np.isnan(truths)
    n_scored = known.sum(axis=0)
    n_missed = (known & ((truths < lower) | (truths > upper))).sum(axis=0)
    assert_array_equal(live.n_scored, n_scored[:, 0])
    off = np.abs(n_missed - n_scored * (1 - np.array(live.coverage)))  # T |mean miss - (1 - p)|
    assert_allclose(off, np.abs(live.correction) / live.correction_rate, atol=1e-6)
    if live.rate != "adaptive":  # and that lies within the range of the factors in use, and one move
        assert (off <= (np.ptp(np.log(factors), axis=0) + live.rate) / live.rate + 1e-6).all()
    outwards = np.argsort(live.coverage)  # and they are nested
    assert (np.diff(lower[..., outwards]) <= 0).all()
    assert (np.diff(upper[..., outwards]) >= 0).all()


def test_on_independent_errors_the_factor_settles_at_the_true_quantile():
    y = np.random.default_rng(0).normal(size=20_000)
    live = LiveCalibrator(0.9, rate=0.02, start=1.0)
    _, _, factors = live.run(*around_zero(len(y)), y)
    # Near the quantile the log factor is an autoregression that forgets in 1 / (rate f) steps, f = 2 z phi(z) = .34:
    # its variance is rate .9 .1 / (2 f) = .052^2, so a mean over n steps errs by .052 sqrt(2 / (rate f n)) = .006.
    # Four of those, and .01 for the bend of the quantile function.
    assert np.log(factors[1000:]).mean() == pytest.approx(math.log(norm.ppf(0.95)), abs=0.035)
    assert live.missed == pytest.approx(0.1, abs=(np.ptp(np.log(factors)) + 0.02) / (0.02 * len(y)))


def test_after_a_jump_of_the_noise_coverage_returns():
    rng = np.random.default_rng(1)
    y = rng.normal(size=4000) * np.repeat([1.0, 4.0], 2000)
    lower, upper, _ = LiveCalibrator(0.9, start=1.645).run(*around_zero(len(y)), y)
    inside = (lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0])
    assert np.mean(np.abs(y[2000:]) <= 1.645) < 0.4
    # From any time on: the log factor had log 4 to go, and rarely leaves .5 on either side.
    assert inside[2000:].mean() == pytest.approx(0.9, abs=(math.log(4) + 1) / (0.05 * 2000))


def test_blended_rates_return_faster_than_a_slow_rate_and_score_better_than_a_fast_one():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(size=2000), 4 * rng.normal(size=500)])
    found = {}
    for rate in (0.02, 0.3, "adaptive"):
        live = LiveCalibrator(0.9, rate=rate, start=norm.ppf(0.95))
        lower, upper, _ = live.run(*around_zero(2500), y)
        found[rate] = lower[:, 0, 0], upper[:, 0, 0]
    after = {rate: coverage(y[2000:], *(bound[2000:] for bound in bounds)) for rate, bounds in found.items()}
    before = {rate: interval_score(y[:2000], *(b[:2000] for b in bounds), 0.9) for rate, bounds in found.items()}
    assert after[0.02] < 0.83 < 0.88 < after["adaptive"]
    assert before["adaptive"] < before[0.3]


def test_what_waits_for_a_truth_may_be_dropped():
    live = LiveCalibrator(0.9, rate="adaptive")
    live.interval(0.0)
    live.drop_pending()
    with pytest.raises(ValueError, match="no interval is due"):
        live.update(1.0)


def test_an_outer_level_is_compared_by_the_interval_that_was_given():
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


def test_feedback_for_step_h_arrives_h_truths_later():
    live = LiveCalibrator(0.9, rate=0.1, horizon=2)
    live.interval([0.0, 0.0])
    live.update(5.0)  # for step 1 of the first call
    assert_allclose(live.factor, np.exp([[0.09], [0.0]]))
    live.interval([5.0, 5.0])
    live.update(5.0)  # step 1 of the second call: a hit; step 2 of the first: a miss
    assert_allclose(live.factor, np.exp([[0.08], [0.09]]))
    assert live.n_scored.tolist() == [2, 1]
    assert_allclose(live.missed, [[0.5], [1.0]])


def test_a_pending_step_counts_with_the_width_it_was_given_with():
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
    live.update(9.0)  # for step 2 of the first call and step 1 of the second
    assert live.n_scored.tolist() == [1, 1]
    assert live.n_updates == 2


def test_a_second_interval_before_the_truth_replaces_the_first():
    live = LiveCalibrator(0.9)
    live.interval(100.0)
    live.interval(0.0)
    live.update(0.0)
    assert (live.missed, live.n_scored.tolist()) == (0.0, [1])


@given(period=periods())
def test_a_whole_period_gives_the_bits_of_the_loop_and_its_end_state(period):
    make, mean, half_width, y = period
    one_by_one, at_once = make(), make()
    for expected, got in zip(
        step_by_step(one_by_one, mean, half_width, y), at_once.run(mean, half_width, y), strict=True
    ):
        assert_array_equal(got, expected)
    assert at_once.state_dict() == one_by_one.state_dict()


@given(period=periods(), cut=st.floats(0, 1))
def test_a_calibrator_restored_from_json_goes_on_bit_for_bit(period, cut):
    make, mean, half_width, y = period
    whole, first = make(), make()
    expected = np.array(whole.run(mean, half_width, y))
    k = round(cut * len(y))
    first.run(mean[:k], half_width[:k], y[:k])
    restored = LiveCalibrator(first.coverage, horizon=first.horizon)  # takes over the rate
    restored.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    got = step_by_step(restored, mean[k:], half_width[k:], y[k:])
    if k < len(y):
        assert_array_equal(np.array(got), expected[:, k:])
    assert restored.state_dict() == whole.state_dict()


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
    lower = LiveCalibrator(0.5, rate=1.0, start=4.0, farthest=2.0)
    truth(lower, 0.0)
    with pytest.warns(FactorBoundWarning, match="its bound 2 "):
        truth(lower, 0.0)


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
        live.run(*around_zero(5), y)
    assert [w.category for w in caught] == [FactorBoundWarning]
    assert "the first of 2 times" in str(caught[0].message)


def test_a_state_that_is_none_is_refused_and_changes_nothing():
    live = LiveCalibrator(0.9)
    truth(live, 3.0)
    before, broken = live.state_dict(), [{}]
    for factor in ([[0.0, 0.0]], [[99.0]], [[math.nan]]):
        broken.append(before | {"log_factor_over_start": factor})
    for changes in ({"pending": []}, {"pending": [[[[1.0]]]]}, {"rate": -1.0}, {"rate": "adaptive"}):
        broken.append(before | changes)
    adaptive = LiveCalibrator(0.9, rate="adaptive").state_dict()
    for weights in ([[[1.0]]], [[[0.5]]] * 4, [[[-1.0]], [[1.0]], [[0.5]], [[0.5]]]):
        broken.append(adaptive | {"blend": adaptive["blend"] | {"weights": weights}})
    broken.append(adaptive | {"blend": adaptive["blend"] | {"log_factors": [[[99.0]]] * 4}})
    for state in broken:
        with pytest.raises(ValueError, match="not the state_dict of a LiveCalibrator"):
            live.load_state_dict(state)
    assert live.state_dict() == before


def test_the_state_of_another_kind_of_calibrator_is_refused():
    state = LiveCalibrator(0.9).state_dict()
    for other in (LiveCalibrator(0.8), LiveCalibrator(0.9, horizon=2)):
        with pytest.raises(ValueError, match=r"coverage=0\.9 and horizon=1, this one has .*make one like that"):
            other.load_state_dict(state)


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


def test_the_start_is_the_coverage_rank_of_the_residuals():
    residuals = np.array([-9.0, 1.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0])
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1).factor == 8.0  # the 8th of 9
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1, scale=2.0).factor == 4.0
    assert LiveCalibrator.from_residuals(residuals, 0.8, rate=0.1, scale=np.abs(residuals)).factor == 1.0
    assert_array_equal(LiveCalibrator.from_residuals(residuals, [0.8, 0.5], rate=0.1).factor, [[8.0, 5.0]])
    with_gaps = np.insert(residuals, [0, 4], np.nan)
    assert LiveCalibrator.from_residuals(with_gaps, 0.8).factor == 8.0


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
    trials = [LiveCalibrator(0.9, rate=rate, horizon=2, start=live.start) for rate in RATES]
    assert live.rate == best_rate(trials, *around_zero(700, horizon=2), y)


@pytest.mark.parametrize(
    ("residuals", "complaint"),
    [
        (np.zeros(100), "start must be positive, got 0; residuals must be of rows"),
        (np.ones(5), "needs at least 9 rows, got 5"),
        (np.ones((2, 2, 2)), "residuals must have the shape"),
        (np.array([]), "residuals must have the shape"),
    ],
)
def test_residuals_that_give_no_start_and_an_unknown_rate_are_refused(residuals, complaint):
    with pytest.raises(ValueError, match=complaint):
        LiveCalibrator.from_residuals(residuals, 0.9)
    with pytest.raises(ValueError, match="rate must be 'adaptive', 'auto' or a positive number, got 'fast'"):
        LiveCalibrator.from_residuals(np.arange(1.0, 50.0), 0.9, rate="fast")


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
    lower, upper, factors = live.run(forecast, np.ones((*forecast.shape, 2, 1)), y)
    inside = (lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0])
    assert static < 0.93
    assert inside.mean() == pytest.approx(0.95, abs=(np.ptp(np.log(factors)) + live.rate) / (live.rate * len(y)))
    assert rolling_coverage(inside, 500).min() >= 0.9


def chosen(y, rates=RATES, **options):
    """The best rate for forecasts of 0 and truths of deviation 1, or near it."""
    trials = [LiveCalibrator(0.9, rate=rate, start=1.645) for rate in rates]
    return best_rate(trials, *around_zero(len(y)), y, **options)


def test_steady_noise_takes_the_slowest_rate_and_waves_of_noise_a_faster_one():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=4000)
    waves = np.exp(1.5 * np.sin(np.arange(4000) / 30))
    assert chosen(noise) == 0.05
    assert chosen(noise * waves) > 0.05


def worst_coverage(y, rate, window):
    lower, upper, _ = LiveCalibrator(0.9, rate=rate, start=1.645).run(*around_zero(len(y)), y)
    return rolling_coverage((lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0]), window).min()


def test_a_rate_that_loses_its_coverage_is_passed_over_though_its_score_is_better():
    # Long calm noise and 200 louder steps: the slow rate scores better, and loses its coverage there.
    y = np.random.default_rng(0).normal(size=6000)
    y[3000:3200] *= 1.6
    assert worst_coverage(y, 0.001, window=200) < 0.8 < worst_coverage(y, 0.2, window=200)
    assert worst_coverage(y, 0.001, window=50) < worst_coverage(y, 0.2, window=50) < 0.8
    # If no rate holds its coverage, the one that covers most is best; a past shorter than the window has only scores.
    best = {window: chosen(y, (0.001, 0.2), window=window) for window in (50, 200, 6000, 6001)}
    assert best == {50: 0.2, 200: 0.2, 6000: 0.001, 6001: 0.001}


@pytest.mark.parametrize("scale", [2.0, [2.0, 2.0], [[2.0] * 3] * 2, [[[2.0] * 3] * 2] * 2])
def test_a_scale_may_be_a_number_or_have_axes_step_side_and_level(scale):
    live = LiveCalibrator([0.5, 0.8, 0.9], horizon=2)
    lower, upper = live.interval([10.0, 20.0], scale)
    assert_array_equal(lower, [[8.0] * 3, [18.0] * 3])
    assert_array_equal(upper, [[12.0] * 3, [22.0] * 3])
    lower, upper = LiveCalibrator(0.9).interval(10.0, scale=[[[1.0], [5.0]]])  # below and above
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
        ({"rate": 0.0}, "rate must be 'adaptive' or a positive number, got 0.0"),
        ({"rate": math.inf}, "rate must be 'adaptive' or a positive number, got inf"),
        ({"horizon": 0}, "horizon must be a whole number"),
        ({"start": 0.0}, "start must be positive"),
        ({"start": [1.0, 1.0]}, "start must have one of the shapes"),
        ({"farthest": 1.0}, "farthest must be a number above 1, got 1.0"),
    ],
)
def test_bad_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        LiveCalibrator(**options)


@pytest.mark.parametrize(
    ("forecasts", "y", "complaint"),
    [
        (around_zero(3, horizon=2), np.zeros(3), r"mean must have one of the shapes \[\(3, 1\)\], got"),
        (around_zero(3, n_levels=2), np.zeros(3), r"half_width must have one of the shapes \[\(3, 1, 2, 1\)\], got"),
        (around_zero(3), np.zeros(4), r"y must have one of the shapes \[\(3,\)\], got"),
        (around_zero(3), np.array([0.0, math.inf, 0.0]), "1 infinite"),
        (around_zero(3), np.zeros((3, 1)), r"y must have one of the shapes \[\(3,\)\], got"),
        ((np.full((3, 1), np.nan), np.ones((3, 1, 2, 1))), np.zeros(3), "mean must be finite"),
        ((np.zeros((3, 1)), -np.ones((3, 1, 2, 1))), np.zeros(3), "must not be negative"),
    ],
)
def test_a_bad_period_is_refused_and_leaves_the_calibrator_unchanged(forecasts, y, complaint):
    live = LiveCalibrator(0.9)
    before = live.state_dict()
    with pytest.raises(ValueError, match=complaint):
        live.run(*forecasts, y)
    assert live.state_dict() == before
