import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import betabinom, binom, norm
from sklearn.metrics import mean_pinball_loss, root_mean_squared_error

from coverwell.metrics import (
    _worst_slab,
    average_width,
    calibration_curve,
    calibration_error,
    constant_width,
    coverage,
    coverage_band,
    coverage_by_size,
    crps,
    expected_calibration_error,
    interval_score,
    iou,
    joint_coverage,
    pinball,
    rmse,
    rolling_coverage,
    weighted_interval_score,
    worst_slab_coverage,
)
from coverwell.options import coverage_rank
from coverwell.prediction import PredictedDistribution

values = st.floats(-100, 100)
samples = arrays(np.float64, st.integers(1, 30), elements=values)
shares = st.floats(0.01, 0.99)
nine_levels = np.arange(1, 10) / 10

# Two targets, four rows: the first target is missed below and above, the second never.
y = np.array([[-1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [4.0, 1.0]])
lower = np.zeros((4, 2))
upper = np.full((4, 2), 2.0)


def normal_bounds(asked, *, mean=0.0, scale=1.0):
    """Central intervals of normal forecasts, the level on the last axis."""
    mean, scale = np.asarray(mean)[..., None], np.asarray(scale)[..., None]
    z = norm.ppf((1 + np.asarray(asked)) / 2)
    return mean - scale * z, mean + scale * z


def normal_crps(y, mean, scale):
    z = (y - mean) / scale
    return scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))


def simulate_coverage(asked, *, n_test, n_train, n_trials, seed):
    """Coverage of new uniform scores below the score of the right rank, once per trial."""
    rng = np.random.default_rng(seed)
    rank = coverage_rank(asked, n_train)
    thresholds = np.sort(rng.random((n_trials, n_train)), axis=1)[:, rank - 1]
    return (rng.random((n_trials, n_test)) <= thresholds[:, None]).mean(axis=1)


def binomial_error(asked, n_test):
    """E|Bin(n_test, asked) / n_test - asked| by de Moivre's closed form."""
    m = math.floor(asked * n_test) + 1
    return 2 / n_test * m * math.comb(n_test, m) * asked**m * (1 - asked) ** (n_test - m + 1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rmse([1.0, 2.0, 3.0], [1.0, 2.0, 6.0]), math.sqrt(3)),
        (rmse(y, lower), [math.sqrt(18 / 4), 1.0]),
        (coverage([0.0, 1.0, 2.0, 2.1], [0.0] * 4, [2.0] * 4), 0.75),  # bounds are inside
        (coverage(y, lower, upper), [0.5, 1.0]),
        (joint_coverage(y, lower, upper), 0.5),  # the rows 0 and 3 miss their first target
        (calibration_error(y, lower, upper, asked=0.8), [0.3, 0.2]),
        (average_width(lower, upper * [1, 3]), [2.0, 6.0]),
        # n_train = 1, k = 1: the probability of covering is uniform, so 0, 1 and 2 of two rows are equally likely
        (expected_calibration_error(0.5, n_test=2, n_train=1), 1 / 3),
        # width 2; misses of 1 and 2 at 2 / (1 - .9) = 20 each, over four rows: 2 + 20 * 3 / 4
        (interval_score(y, lower, upper, asked=0.9), [17.0, 2.0]),
        (pinball([2.0], [0.0], level=0.9), 1.8),
        (pinball([-2.0], [0.0], level=0.9), 0.2),
        (pinball(y, lower, level=0.75), [(0.25 + 0.75 + 3) / 4, 0.75]),
    ],
)
def test_scores_by_hand_are_floats_for_one_target_and_arrays_for_several(found, expected):
    assert_allclose(found, expected)
    assert isinstance(found, float) == isinstance(expected, float)


def test_weighted_interval_score_of_a_point_forecast():
    # All quantiles at 0 and y = 1: 2 * sum of weight * level. The 19 levels .05, .1, ..., .95 weigh .05 and sum to 9.5.
    zeros = np.zeros((1, 9))
    assert weighted_interval_score([1.0], [0.0], zeros, zeros, nine_levels) == pytest.approx(2 * 0.05 * 9.5)


def test_calibration_curve_has_one_value_per_target_and_level():
    bounds = np.broadcast_to([0.5, 1.0, 4.0], (4, 2, 3))
    assert_allclose(calibration_curve(y, -bounds, bounds, [0.1, 0.5, 0.9]), [[0.25, 0.75, 1.0], [0.0, 1.0, 1.0]])
    assert_allclose(calibration_curve(y[:, 0], -bounds[:, 0], bounds[:, 0], [0.1, 0.5, 0.9]), [0.25, 0.75, 1.0])


def test_coverage_rank_is_not_one_too_high_where_floating_point_is():
    assert math.ceil(100 * 0.55) == 56
    assert coverage_rank(0.55, 99) == 55
    assert coverage_rank(0.1 + 0.2, 9) == 3
    assert coverage_rank(np.float64(0.9), 9) == 9
    assert coverage_rank(1e-15, 5) == 1
    with pytest.raises(ValueError, match="more rows or ask for less"):
        coverage_rank(1 - 1e-15, 5)


@pytest.mark.parametrize(("asked", "needed"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_coverage_rank_says_how_many_rows_it_needs(asked, needed):
    assert coverage_rank(asked, needed) == needed
    if needed > 1:
        with pytest.raises(ValueError, match=f"needs at least {needed} rows, got {needed - 1}"):
            coverage_rank(asked, needed - 1)


@given(thousandths=st.integers(1, 999), n_train=st.integers(1000, 10**9))
def test_coverage_rank_agrees_with_integer_arithmetic(thousandths, n_train):
    assert coverage_rank(thousandths / 1000, n_train) == -(-(n_train + 1) * thousandths // 1000)


@given(level=shares, y=values, q=values)
def test_pinball_mirrors_when_level_and_sign_flip(level, y, q):
    assert pinball([y], [q], level) == pytest.approx(pinball([-y], [-q], 1 - level), abs=1e-12)


@given(y=samples, level=shares, other=values)
def test_pinball_is_lowest_at_the_quantile_of_the_sample(y, level, other):
    quantile = np.quantile(y, level, method="inverted_cdf")
    best = pinball(y, np.full_like(y, quantile), level)
    assert best <= pinball(y, np.full_like(y, other), level) + 1e-9


@given(y=samples, asked=shares, bounds=st.tuples(values, values).map(sorted))
def test_interval_score_is_lowest_at_the_quantiles_of_the_sample(y, asked, bounds):
    ends = np.quantile(y, [(1 - asked) / 2, (1 + asked) / 2], method="inverted_cdf")
    best, other = (
        interval_score(y, np.full_like(y, low), np.full_like(y, high), asked) for low, high in (ends, bounds)
    )
    assert best <= other + 1e-9 / (1 - asked)


@given(y=samples, asked=shares, bounds=st.tuples(values, values).map(sorted))
def test_interval_score_is_the_pinball_of_both_ends(y, asked, bounds):
    low, high = (np.full_like(y, bound) for bound in bounds)
    ends = pinball(y, low, (1 - asked) / 2) + pinball(y, high, (1 + asked) / 2)
    assert interval_score(y, low, high, asked) == pytest.approx(2 / (1 - asked) * ends, abs=1e-8)


@given(y=samples, bounds=st.tuples(values, values).map(sorted), scale=st.floats(0.1, 10), shift=values)
def test_scores_scale_with_the_target_and_do_not_shift(y, bounds, scale, shift):
    low, high = (np.full_like(y, bound) for bound in bounds)
    moved_y, moved_low, moved_high = (scale * array + shift for array in (y, low, high))
    for score, arguments, moved in [
        (rmse, (y, low), (moved_y, moved_low)),
        (average_width, (low, high), (moved_low, moved_high)),
        (interval_score, (y, low, high, 0.9), (moved_y, moved_low, moved_high, 0.9)),
        (pinball, (y, low, 0.3), (moved_y, moved_low, 0.3)),
    ]:
        assert score(*moved) == pytest.approx(scale * score(*arguments), abs=1e-8)


@given(scale=st.floats(0.1, 10), shift=values, seed=st.integers(0, 1000))
def test_weighted_interval_score_scales_with_the_target_and_does_not_shift(scale, shift, seed):
    rng = np.random.default_rng(seed)
    y, median = rng.normal(size=(2, 5, 2))
    low, high = normal_bounds(nine_levels, mean=median, scale=rng.random((5, 2)))
    moved = (scale * array + shift for array in (y, median, low[..., ::-1], high[..., ::-1]))  # in another order
    expected = scale * np.asarray(weighted_interval_score(y, median, low, high, nine_levels))
    assert_allclose(weighted_interval_score(*moved, nine_levels[::-1]), expected, atol=1e-9)


@given(asked=shares, n_test=st.integers(1, 300), n_train=st.integers(100, 1000), probability=shares)
def test_coverage_band_is_central_and_holds_its_probability(asked, n_test, n_train, probability):
    rank = coverage_rank(asked, n_train)
    law = betabinom(n_test, rank, n_train + 1 - rank)
    low, high = (round(share * n_test) for share in coverage_band(asked, n_test, n_train, probability=probability))
    assert law.cdf(high) - law.cdf(low - 1) >= probability - 1e-9
    assert law.cdf(low - 1) <= (1 - probability) / 2 + 1e-9
    assert law.sf(high) <= (1 - probability) / 2 + 1e-9


@given(asked=shares, n_test=st.integers(1, 100))
def test_with_very_many_training_rows_the_expected_error_is_the_binomial_one(asked, n_test):
    expected = expected_calibration_error(asked, n_test, n_train=10**6 - 1)
    assert expected == pytest.approx(binomial_error(asked, n_test), rel=0.02, abs=1e-4)


@given(seed=st.integers(0, 1000), level=shares)
def test_rmse_and_pinball_agree_with_scikit_learn(seed, level):
    a, b = np.random.default_rng(seed).normal(size=(2, 20, 3))
    assert_allclose(rmse(a, b), root_mean_squared_error(a, b, multioutput="raw_values"))
    assert_allclose(pinball(a, b, level), mean_pinball_loss(a, b, alpha=level, multioutput="raw_values"))


@pytest.mark.parametrize(("asked", "n_test", "n_train"), [(0.9, 102, 404), (0.5, 20, 7), (0.99, 1000, 3918)])
def test_expected_calibration_error_and_band_agree_with_scipy(asked, n_test, n_train):
    rank = coverage_rank(asked, n_train)
    law = betabinom(n_test, rank, n_train + 1 - rank)
    expected = law.expect(lambda covered: np.abs(covered / n_test - asked), maxcount=10_000)
    assert expected_calibration_error(asked, n_test, n_train) == pytest.approx(expected, rel=1e-9)
    assert_allclose(coverage_band(asked, n_test, n_train), law.ppf([0.05, 0.95]) / n_test)


@pytest.mark.parametrize(("asked", "n_test"), [(0.9, 102), (0.5, 20), (0.99, 1000)])
def test_without_ranks_expected_error_and_band_are_those_of_the_binomial_law(asked, n_test):
    assert expected_calibration_error(asked, n_test, None) == pytest.approx(binomial_error(asked, n_test), rel=1e-9)
    assert_allclose(coverage_band(asked, n_test, None), binom(n_test, asked).ppf([0.05, 0.95]) / n_test)


def test_weighted_interval_score_approaches_the_crps_of_a_normal_forecast():
    rng = np.random.default_rng(0)
    mean, scale = rng.normal(size=(50, 2)), rng.uniform(0.5, 2, size=(50, 2))
    y = mean + scale * rng.normal(size=(50, 2))
    crps = normal_crps(y, mean, scale).mean(axis=0)
    for n_levels, tolerance in [(9, 0.02), (99, 1e-3), (999, 1e-4)]:
        asked = np.arange(1, n_levels + 1) / (n_levels + 1)
        low, high = normal_bounds(asked, mean=mean, scale=scale)
        assert_allclose(weighted_interval_score(y, mean, low, high, asked), crps, rtol=tolerance)


def test_weighted_interval_score_on_even_levels_is_the_one_of_bracher():
    # Bracher et al. 2021: 1 / (K + 1/2) * (|y - median| / 2 + sum of (1 - p) / 2 * interval score), all weights alike;
    # ours spreads the same weights over K + 1 trapezoids, tails included.
    y, median = np.array([0.3, -2.0]), np.zeros(2)
    low, high = normal_bounds(nine_levels, mean=median)
    intervals = sum(
        (1 - p) / 2 * interval_score(y, low[:, i], high[:, i], p) for i, p in enumerate(nine_levels.tolist())
    )
    bracher = (np.abs(y - median).mean() / 2 + intervals) / 9.5
    ours = weighted_interval_score(y, median, low, high, nine_levels)
    assert ours == pytest.approx(bracher * 19 / 20)


@pytest.mark.parametrize(("asked", "n_test", "n_train"), [(0.9, 100, 99), (0.5, 30, 40), (0.95, 200, 50)])
def test_expected_calibration_error_is_what_exact_ranks_reach(asked, n_test, n_train):
    n_trials = 20_000
    reached = simulate_coverage(asked, n_test=n_test, n_train=n_train, n_trials=n_trials, seed=1)
    errors = np.abs(reached - asked)
    standard_error = errors.std() / math.sqrt(n_trials)
    assert abs(errors.mean() - expected_calibration_error(asked, n_test, n_train)) < 4 * standard_error

    low, high = coverage_band(asked, n_test, n_train, probability=0.8)
    inside = np.mean((low - 1e-9 <= reached) & (reached <= high + 1e-9))
    assert inside > 0.8 - 4 * math.sqrt(0.8 * 0.2 / n_trials)


@pytest.mark.parametrize("asked", [0.5, 0.9, 0.99])
def test_interval_score_of_the_true_normal_interval(asked):
    # E = 4 phi(z) / (1 - asked): the width 2z cancels against the mean excess on both sides.
    n = 200_000
    y = np.random.default_rng(2).normal(size=n)
    z = norm.ppf((1 + asked) / 2)
    excess = 2 / (1 - asked) * np.maximum(np.abs(y) - z, 0)
    standard_error = excess.std() / math.sqrt(n)
    score = interval_score(y, np.full(n, -z), np.full(n, z), asked)
    assert abs(score - 4 * norm.pdf(z) / (1 - asked)) < 4 * standard_error


def test_calibration_curve_of_true_normal_intervals_is_the_diagonal():
    n = 20_000
    y = np.random.default_rng(3).normal(size=n)
    low, high = normal_bounds(nine_levels, mean=np.zeros(n))
    reached = calibration_curve(y, low, high, nine_levels)
    assert (np.abs(reached - nine_levels) < 4 * np.sqrt(nine_levels * (1 - nine_levels) / n)).all()


@pytest.mark.parametrize("asked", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_a_share_outside_zero_and_one_is_an_error(asked):
    must = "strictly between 0 and 1"
    for call in [
        lambda: calibration_error([1.0], [0.0], [2.0], asked),
        lambda: interval_score([1.0], [0.0], [2.0], asked),
        lambda: pinball([1.0], [0.0], asked),
        lambda: expected_calibration_error(asked, 10, 10),
        lambda: coverage_band(asked, 10, 10),
        lambda: coverage_band(asked, 10, None),
        lambda: coverage_band(0.5, 10, 10, probability=asked),
    ]:
        with pytest.raises(ValueError, match=must):
            call()


def test_bad_values_shapes_and_bounds_are_errors():
    order = "lower must not lie above upper, but does in 1 of 2 places"
    for must, call in [
        ("y must be finite, got 1 NaN or infinite", lambda: rmse([1.0, math.nan], [1.0, 2.0])),
        ("upper must be finite", lambda: coverage([1.0], [0.0], [math.inf])),
        (r"one shape, .* got y \(2,\), y_hat \(2, 1\)", lambda: rmse([1.0, 2.0], [[1.0], [2.0]])),
        (r"one shape, .* got y \(4,\)", lambda: interval_score(y[:, 0], lower, upper, 0.9)),
        ("one shape", lambda: rmse(np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))),
        (r"asked of shape \(level,\)", lambda: calibration_curve([1.0, 2.0], np.zeros((2, 3)), np.ones((2, 3)), [0.5])),
        ("y must not be empty", lambda: rmse([], [])),
        ("y must be an array of numbers", lambda: rmse(np.array(["a", "b"]), [1.0, 2.0])),
        (order, lambda: coverage([0.0, 0.0], [0.0, 1.0], [0.0, 0.5])),
        (order, lambda: average_width([0.0, 1.0], [0.0, 0.5])),
        (order, lambda: calibration_curve([0.0], [[0.0, 1.0]], [[0.0, 0.5]], [0.5, 0.9])),
        ("n_test must be a whole number of at least 1", lambda: expected_calibration_error(0.5, n_test=0, n_train=10)),
        ("n_train must be a whole number of at least 1", lambda: coverage_rank(0.5, 0)),
        (r"shape \(n, 4\): left, top, width and height; got \(2, 3\)", lambda: iou(np.ones((2, 3)), np.ones((2, 3)))),
    ]:
        with pytest.raises(ValueError, match=must):
            call()


def test_the_weighted_interval_score_needs_nine_different_levels():
    with pytest.raises(ValueError, match="at least 9 coverage levels, got 8"):
        weighted_interval_score([0.0], [0.0], np.zeros((1, 8)), np.zeros((1, 8)), nine_levels[:8])
    with pytest.raises(ValueError, match="must differ from each other"):
        weighted_interval_score([0.0], [0.0], np.zeros((1, 10)), np.zeros((1, 10)), [*nine_levels, 0.5])
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        calibration_curve([0.0], np.zeros((1, 2)), np.zeros((1, 2)), [0.5, 1.0])


@settings(max_examples=30)
@given(inside=st.lists(st.booleans(), min_size=1, max_size=50), window=st.integers(1, 50))
def test_rolling_coverage_is_a_moving_average(inside, window):
    if window > len(inside):
        with pytest.raises(ValueError, match="at least one window"):
            rolling_coverage(inside, window)
    else:
        assert_allclose(rolling_coverage(inside, window), np.convolve(inside, np.ones(window) / window, "valid"))


def test_rolling_coverage_keeps_further_axes():
    inside = [[True, False], [True, True], [False, True], [False, True]]  # (time, target)
    assert rolling_coverage(inside, 2).tolist() == [[1.0, 0.5], [0.5, 1.0], [0.0, 1.0]]


def test_rolling_coverage_needs_truth_values_and_a_whole_window():
    with pytest.raises(ValueError, match="True and False"):
        rolling_coverage([1.0, 0.5], 1)
    for window in (0, -1, True):
        with pytest.raises(ValueError, match="window must be a whole number of at least 1"):
            rolling_coverage([True, False, True], window)


def random_boxes(seed, n=50):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-5, 5, (n, 2)), rng.uniform(0.1, 6, (n, 2))], axis=1)


@given(seed=st.integers(0, 1000))
def test_all_targets_together_are_covered_no_more_often_than_each_and_no_less_than_all_misses_allow(seed):
    truth = np.random.default_rng(seed).normal(size=(40, 3))
    bounds = -np.ones_like(truth), np.ones_like(truth)
    each, together = coverage(truth, *bounds), joint_coverage(truth, *bounds)
    assert 1 - (1 - each).sum() - 1e-12 <= together <= each.min() + 1e-12


@pytest.mark.parametrize(
    ("box", "other", "expected"),
    [
        ([0, 0, 2, 2], [0, 0, 2, 2], 1.0),
        ([0, 0, 2, 2], [1, 1, 2, 2], 1 / 7),  # 1 in common, 4 + 4 - 1 together
        ([0, 0, 4, 4], [1, 1, 2, 2], 4 / 16),  # one within the other
        ([0, 0, 1, 1], [1, 0, 1, 1], 0.0),  # side by side
        ([0, 0, 1, 1], [5, 5, 1, 1], 0.0),
        ([0, 0, -1, 1], [-1, 0, 1, 1], 0.0),  # a width below 0 is no box
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0),
    ],
)
def test_iou_of_one_pair_is_the_common_area_over_the_area_together(box, other, expected):
    assert iou([box], [other]) == pytest.approx(expected, abs=1e-15)


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10), shift=st.floats(-10, 10))
def test_iou_does_not_depend_on_order_place_or_unit(seed, scale, shift):
    one, other = random_boxes(seed), random_boxes(seed + 1)
    before = iou(one, other)
    assert 0 <= before <= 1
    assert iou(other, one) == pytest.approx(before)
    moved = [boxes * scale + np.array([shift, shift, 0, 0]) for boxes in (one, other)]
    assert iou(*moved) == pytest.approx(before)


def test_iou_is_what_counting_pixels_gives():
    rng = np.random.default_rng(0)
    one, other = np.concatenate([rng.integers(0, 10, (2, 30, 2)), rng.integers(1, 10, (2, 30, 2))], axis=2)
    found = []
    for pair in zip(one, other, strict=True):
        filled = np.zeros((2, 20, 20), dtype=bool)
        for image, (left, top, width, height) in zip(filled, pair, strict=True):
            image[top : top + height, left : left + width] = True
        found.append(filled.all(axis=0).sum() / filled.any(axis=0).sum())
    assert iou(one, other) == pytest.approx(np.mean(found))


def test_a_constant_width_is_twice_the_error_of_its_rank():
    errors = np.array([3.0, -1.0, 2.0, -4.0])
    for share, width in ((0.0, 0.0), (0.25, 2.0), (0.5, 4.0), (0.51, 6.0), (1.0, 8.0)):
        assert constant_width(errors, np.zeros(4), share) == width
    both = np.stack([errors, 10 * errors], axis=1)
    assert_array_equal(constant_width(both, np.zeros((4, 2)), [0.25, 0.5]), [2.0, 40.0])


@given(y=samples, share=shares)
def test_a_constant_width_covers_the_share_and_no_narrower_one_does(y, share):
    half = constant_width(y, np.zeros_like(y), share) / 2
    assert coverage(y, np.full_like(y, -half), np.full_like(y, half)) >= share - 1e-6
    assert np.mean(np.abs(y) < half) < share


@given(n=st.integers(1, 200), data=st.data())
def test_a_constant_width_at_a_share_that_was_reached_covers_exactly_as_many_rows(n, data):
    n_inside = data.draw(st.integers(0, n))
    errors = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))  # no ties
    half = constant_width(errors, np.zeros(n), n_inside / n) / 2
    assert (errors <= half).sum() == n_inside


@pytest.mark.parametrize("share", [-0.1, 1.1, [0.5, 0.5, 0.5]])
def test_a_constant_width_needs_a_share_for_each_target_or_one_for_all(share):
    with pytest.raises(ValueError, match="coverage must be shares"):
        constant_width(np.ones((3, 2)), np.zeros((3, 2)), share)


def test_the_crps_is_a_mean_over_rows_and_one_number_per_target():
    levels, z = np.arange(1, 1000) / 1000, norm.ppf(np.arange(1, 1000) / 1000)
    mean, scale = np.array([[0.0, 5.0], [1.0, 6.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    targets = np.array([[0.5, 9.0], [-1.0, 6.0]])
    values = mean[..., None] + scale[..., None] * z
    expected = normal_crps(targets, mean, scale).mean(axis=0)
    assert_allclose(crps(targets, PredictedDistribution(levels, values)), expected, atol=1e-4)
    alone = crps(targets[:, 1], PredictedDistribution(levels, values[:, 1]))
    assert isinstance(alone, float)
    assert alone == pytest.approx(expected[1], abs=1e-4)


def test_the_weighted_interval_score_of_many_levels_is_close_to_the_crps():
    asked, rng = np.arange(1, 100) / 100, np.random.default_rng(0)
    mean = rng.normal(size=50)
    targets, bounds = mean + rng.normal(size=50), normal_bounds(asked, mean=mean)
    order = np.concatenate([(1 - asked) / 2, [0.5], (1 + asked) / 2])
    quantiles = np.concatenate([bounds[0], mean[:, None], bounds[1]], axis=1)[:, np.argsort(order)]
    trapezoid = weighted_interval_score(targets, mean, *bounds, asked)
    assert crps(targets, PredictedDistribution(np.sort(order), quantiles)) == pytest.approx(trapezoid, abs=2e-3)


def test_the_crps_needs_one_finite_target_per_row():
    distribution = PredictedDistribution(np.array([0.1, 0.9]), np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"shape \(3,\) of the predictions, got \(2,\)"):
        crps([1.0, 2.0], distribution)
    with pytest.raises(ValueError, match="y must be finite"):
        crps([1.0, 2.0, math.inf], distribution)


# Coverage of parts.


def test_coverage_by_size_is_that_of_rows_cut_at_quantiles_of_the_width():
    width = np.array([4.0, 1.0, 3.0, 2.0, 5.0, 6.0, 7.0])
    inside = np.array([True, False, True, True, False, True, True])  # by width: no, yes, yes; yes, no; yes, yes
    y = np.where(inside, 0.0, 10.0)
    assert_array_equal(coverage_by_size(y, -width, width, n_parts=3), [2 / 3, 1 / 2, 1.0])
    assert_array_equal(coverage_by_size(y, -width, width, n_parts=1), [5 / 7])
    bounds = [np.stack([side, side], axis=1) for side in (-width, width)]
    assert_array_equal(coverage_by_size(np.stack([y, -y], axis=1), *bounds, 3), [[2 / 3, 1 / 2, 1.0]] * 2)


def test_equal_widths_stay_together():
    y = np.array([0.0, 0.0, 3.0, 0.0])
    assert_array_equal(coverage_by_size(y, -np.ones(4), np.ones(4), n_parts=2), [0.75, np.nan])
    assert np.nanmin(coverage_by_size(y, -np.ones(4), [1.0, 1.0, 2.0, 2.0], n_parts=4)) == 0.5


@settings(max_examples=40)
@given(seed=st.integers(0, 999), n_rows=st.integers(8, 25), least=st.integers(2, 5), share=st.floats(0.1, 0.9))
def test_the_worst_slab_is_that_of_a_search_in_loops(seed, n_rows, least, share):
    rng = np.random.default_rng(seed)
    X, directions, missed = rng.normal(size=(n_rows, 3)), rng.normal(size=(4, 3)), rng.random(n_rows) < share
    rates = []
    for direction in directions:
        own = missed[np.argsort(X @ direction)]
        rates += [own[a:b].mean() for a in range(n_rows) for b in range(a + least, n_rows + 1)]
    direction, low, high = _worst_slab(X, missed, directions, least)
    place = X @ direction
    held = missed[(low - 1e-9 <= place) & (place <= high + 1e-9)]
    assert len(held) >= least
    assert held.mean() == pytest.approx(max(rates))


def test_slabs_in_several_blocks_of_directions_are_those_of_one(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    whole = worst_slab_coverage(X, y, -np.ones(200), np.ones(200), n_directions=20)
    monkeypatch.setattr("coverwell.metrics.SLAB_NUMBERS", 250)
    assert worst_slab_coverage(X, y, -np.ones(200), np.ones(200), n_directions=20) == whole


def slabs(seed, n_rows=2000):
    """Of a law whose noise grows with one of five columns: exactly conditional intervals, and of one width for all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    spread = np.exp(0.7 * X[:, 0])
    y, half = spread * rng.normal(size=n_rows), norm.ppf(0.95) * spread
    marginal = np.full(n_rows, np.quantile(np.abs(y), 0.9))
    bounds = [np.stack([side * half, side * marginal], axis=1) for side in (-1, 1)]
    return worst_slab_coverage(X, np.stack([y, y], axis=1), *bounds, n_directions=100, random_state=seed)


def test_slabs_find_where_marginal_coverage_fails_and_accuse_no_conditional_one():
    """Slabs of both halves hold 400 rows at least: the mean of 10 has a standard error of .005."""
    conditional, marginal = np.mean([slabs(seed) for seed in range(10)], axis=0)
    assert conditional == pytest.approx(0.9, abs=3 * np.sqrt(0.9 * 0.1 / 400 / 10))
    assert marginal < 0.75


def test_slabs_do_not_depend_on_units_or_constant_columns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    one = worst_slab_coverage(X, y, -np.ones(200), np.ones(200), n_directions=50)
    assert worst_slab_coverage(X * [1e6, 1e-6] + 3, y, -np.ones(200), np.ones(200), n_directions=50) == one


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros(100)}, "shape"),
        ({"X": np.zeros((99, 2))}, "a row for each of 100"),
        ({"X": np.full((100, 2), np.nan)}, "finite"),
        ({"share": 1.0}, "share must lie strictly between 0 and 1"),
        ({"share": 0.1}, "at least 200 rows, got 100"),
        ({"n_directions": 0}, "n_directions"),
    ],
)
def test_bad_slabs_are_refused(changed, message):
    given = {"X": np.zeros((100, 2)), "y": np.zeros(100), "lower": -np.ones(100), "upper": np.ones(100), **changed}
    with pytest.raises(ValueError, match=message):
        worst_slab_coverage(**given)
