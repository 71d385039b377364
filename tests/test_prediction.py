import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import laplace, norm

from coverwell.prediction import PredictedDistribution, PredictionInterval, central_shares, prediction_columns


def test_a_prediction_interval_unpacks_and_has_a_length_a_width_and_a_short_name():
    interval = PredictionInterval(np.array([0.0, 1.0, 2.0]), np.array([2.0, 4.0, 6.0]), coverage=0.9)
    lower, upper = interval
    assert_array_equal(lower, [0.0, 1.0, 2.0])
    assert_array_equal(upper, [2.0, 4.0, 6.0])
    assert_array_equal(interval.width, [2.0, 3.0, 4.0])
    assert len(interval) == 3
    assert repr(interval) == "PredictionInterval(3 rows, targets ['y'], coverage 0.9)"


def test_both_ends_belong_to_the_interval():
    interval = PredictionInterval(np.zeros(4), np.ones(4), coverage=0.9)
    assert_array_equal(interval.contains([0.0, 1.0, -1e-9, 1 + 1e-9]), [True, True, False, False])


def test_one_value_is_compared_with_the_bounds_of_every_level():
    lower = np.array([[-1.0, -2.0], [-1.0, -2.0]])
    interval = PredictionInterval(lower, -lower, coverage=(0.5, 0.9))
    assert_array_equal(interval.contains([0.5, 1.5]), [[True, True], [False, True]])


def test_every_target_is_compared_with_its_own_bounds():
    lower = np.array([[0.0, 10.0], [0.0, 10.0]])
    interval = PredictionInterval(lower, lower + 1, coverage=0.9, target_names=("a", "b"))
    assert_array_equal(interval.contains([[0.5, 0.5], [10.5, 10.5]]), [[True, False], [False, True]])


@pytest.mark.parametrize(
    ("shape", "coverage", "wrong"),
    [((3,), 0.9, (4,)), ((3,), 0.9, (3, 1)), ((3, 2), 0.9, (3,)), ((3, 2), (0.5, 0.9), (3, 2))],
)
def test_values_of_another_shape_are_refused_with_the_right_one(shape, coverage, wrong):
    interval = PredictionInterval(np.zeros(shape), np.ones(shape), coverage=coverage)
    right = shape[:-1] if isinstance(coverage, tuple) else shape
    with pytest.raises(ValueError, match="must have the shape") as refused:
        interval.contains(np.zeros(wrong))
    assert str(right) in str(refused.value)
    assert str(wrong) in str(refused.value)


def test_a_frame_of_one_target_keeps_the_index():
    interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9, index=["a", "b"])
    frame = interval.to_frame()
    assert list(frame.columns) == [("y", 0.9, "lower"), ("y", 0.9, "upper")]
    assert list(frame.columns.names) == ["target", "coverage", "bound"]
    assert list(frame.index) == ["a", "b"]
    assert_array_equal(frame["y"][0.9]["upper"], [2.0, 4.0])


def test_a_frame_of_two_targets_and_two_levels_has_every_bound_in_its_column():
    lower = np.arange(12.0).reshape(3, 2, 2)  # (row, target, level)
    names = ("height", "weight")
    interval = PredictionInterval(lower, lower + 100, coverage=(0.5, 0.9), target_names=names)
    frame = interval.to_frame()
    assert frame.shape == (3, 8)
    for t, name in enumerate(names):
        for k, level in enumerate((0.5, 0.9)):
            assert_array_equal(frame[name, level, "lower"], lower[:, t, k])
            assert_array_equal(frame[name, level, "upper"], lower[:, t, k] + 100)


def test_a_frame_of_one_target_and_several_levels_holds_one_pair_per_level():
    lower = np.array([[0.0, -1.0], [5.0, 4.0]])
    frame = PredictionInterval(lower, lower + 2, coverage=(0.5, 0.9), index=pd.Index([7, 9], name="id")).to_frame()
    assert_array_equal(frame["y", 0.9, "lower"], [-1.0, 4.0])
    assert_array_equal(frame["y", 0.5, "upper"], [2.0, 7.0])
    assert frame.index.name == "id"


# Distributions -------------------------------------------------------------------------------------------------------

LEVELS = np.array([0.25, 0.5, 0.75])
GAPS = st.floats(0.01, 10)
GAPS_AND_ATOMS = st.just(0.0) | GAPS
SHARES = st.floats(1e-6, 1 - 1e-6)


@st.composite
def quantiles(draw, gaps=GAPS):
    """Levels and the values of one row."""
    levels = np.array(sorted(draw(st.sets(st.integers(1, 99), min_size=2, max_size=8)))) / 100
    steps = draw(st.lists(gaps, min_size=len(levels) - 1, max_size=len(levels) - 1))
    return levels, draw(st.floats(-20, 20)) + np.cumsum([[0.0, *steps]], axis=1)


def integral(function, points, start, end):
    """By quadrature, from kink to kink."""
    ends = [start, *sorted(point for point in points if start < point < end), end]
    return sum(quad(function, a, b, epsabs=1e-10)[0] for a, b in pairwise(ends))


def crps_by_quantiles(distribution, y):
    """Twice the integral of the pinball loss."""

    def loss(u):
        error = y - distribution.quantile(u)[0]
        return 2 * max(u * error, (u - 1) * error)

    return integral(loss, [*distribution.levels, float(distribution.cdf(y)[0])], 0, 1)


def crps_by_definition(distribution, y):
    values = distribution.values[0]
    far = 60 * (values[-1] - values[0]) + abs(y) + 1  # beyond, tails have less than e^-40 left
    squared = lambda t: (distribution.cdf(t)[0] - (t >= y)) ** 2  # noqa: E731
    return integral(squared, [*values, y], values[0] - far, values[-1] + far)


def test_a_distribution_is_linear_between_its_levels_and_has_a_length_and_a_short_name():
    distribution = PredictedDistribution(LEVELS, np.array([[1.0, 2.0, 4.0], [10.0, 10.0, 11.0]]))
    assert_array_equal(distribution.quantile([0.25, 0.375, 0.5, 0.625, 0.75])[0], [1.0, 1.5, 2.0, 3.0, 4.0])
    assert_array_equal(distribution.cdf([3.0, 10.5]), [0.625, 0.625])
    assert_array_equal(distribution.cdf(1.0), [0.25, 0.0])
    assert len(distribution) == 2
    assert repr(distribution) == "PredictedDistribution(2 rows, targets ['y'], 3 levels)"


def test_a_tail_is_the_exponential_through_the_two_outermost_quantiles():
    """Those of a Laplace distribution are exponential, so it is continued as it is."""
    levels, shares = np.array([0.1, 0.2, 0.5, 0.7, 0.95]), np.array([1e-9, 0.01, 0.099, 0.951, 0.99, 1 - 1e-9])
    distribution = PredictedDistribution(levels, laplace.ppf(levels)[None])
    assert_allclose(distribution.quantile(shares)[0], laplace.ppf(shares), rtol=1e-12)
    for y in (-30.0, -5.0, -1.7, 2.5, 30.0):
        assert distribution.cdf(y)[0] == pytest.approx(laplace.cdf(y), rel=1e-12)


def test_an_atom_is_reached_at_its_highest_share_and_ends_the_distribution_where_it_is_outermost():
    values = np.array([[0.0, 0.0, 3.0], [0.0, 3.0, 3.0], [3.0, 3.0, 3.0]])
    distribution = PredictedDistribution(LEVELS, values)
    assert_array_equal(distribution.cdf(0.0), [0.5, 0.25, 0.0])
    assert_array_equal(distribution.cdf(-1e-9)[[0, 2]], [0.0, 0.0])
    assert_array_equal(distribution.cdf(3.0), [0.75, 1.0, 1.0])
    assert_array_equal(distribution.quantile(1e-9)[[0, 2]], [0.0, 3.0])
    assert_array_equal(distribution.quantile(1 - 1e-9)[1:], [3.0, 3.0])
    assert set(distribution.sample(100, random_state=0)[2]) == {3.0}


def test_the_crps_of_a_point_is_the_absolute_error():
    point = PredictedDistribution(LEVELS, np.full((3, 3), 2.0))
    assert_array_equal(point.crps([2.0, -1.0, 7.0]), [0.0, 3.0, 5.0])
    assert_array_equal(point.mean(), [2.0, 2.0, 2.0])


@pytest.mark.parametrize("y", [-2.0, 0.0, 0.2, 0.5, 0.9, 1.0, 4.0])
def test_the_crps_of_a_uniform_distribution_is_its_closed_form(y):
    ends = np.array([1e-10, 1 - 1e-10])
    inside = min(max(y, 0.0), 1.0)
    expected = abs(y - inside) + inside**2 - inside + 1 / 3
    assert PredictedDistribution(ends, ends[None]).crps(y)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("y", [-6.0, -1.0, 0.0, 0.3, 2.0, 6.0])
def test_the_crps_of_a_normal_distribution_is_its_closed_form(y):
    z = np.linspace(-6, 6, 2001)
    distribution = PredictedDistribution(norm.cdf(z), 5 + 2 * z[None])
    expected = 2 * (y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / math.sqrt(math.pi))
    assert distribution.crps(5 + 2 * y)[0] == pytest.approx(expected, abs=1e-5)
    assert distribution.mean()[0] == pytest.approx(5, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_crps_and_mean_are_what_quadrature_gives(seed):
    rng = np.random.default_rng(seed)
    levels, steps = np.sort(rng.choice(np.arange(1, 50), 6, replace=False)) / 50, rng.exponential(size=5)
    steps[rng.random(5) < 0.4] = 0.0  # atoms
    distribution = PredictedDistribution(levels, np.cumsum([[0.0, *steps]], axis=1))
    mean = integral(lambda u: distribution.quantile(u)[0], levels, 0, 1)
    assert distribution.mean()[0] == pytest.approx(mean, abs=1e-8)
    for y in (-2.0, 0.0, float(rng.uniform(0, steps.sum())), float(steps.sum()), 2 * float(steps.sum())):
        score = distribution.crps(y)[0]
        assert score == pytest.approx(crps_by_quantiles(distribution, y), abs=1e-7)
        assert score == pytest.approx(crps_by_definition(distribution, y), abs=1e-7)


@given(known=quantiles(), q=SHARES)
def test_the_cdf_undoes_the_quantile_where_there_is_no_atom(known, q):
    distribution = PredictedDistribution(*known)
    assert distribution.cdf(distribution.quantile(q))[0] == pytest.approx(q, abs=1e-11)


@given(known=quantiles(GAPS_AND_ATOMS), q=SHARES)
def test_at_least_a_share_q_lies_at_or_below_its_quantile(known, q):
    distribution = PredictedDistribution(*known)
    assert distribution.cdf(distribution.quantile(q))[0] >= q - 1e-11


@given(known=quantiles(GAPS_AND_ATOMS), shares=st.lists(SHARES, min_size=2, max_size=20), y=st.floats(-50, 50))
def test_quantiles_and_cdf_never_fall(known, shares, y):
    distribution = PredictedDistribution(*known)
    quantiles = distribution.quantile(sorted(shares))
    assert (np.diff(quantiles) >= 0).all()
    ladder = np.sort([y, y + 1e-9, *quantiles[0]])
    assert (np.diff([distribution.cdf(t)[0] for t in ladder]) >= -1e-15).all()


@given(known=quantiles(GAPS_AND_ATOMS), y=st.floats(-100, 100), shift=st.floats(-100, 100), scale=st.floats(0.01, 100))
def test_the_crps_moves_scales_and_mirrors_with_the_target(known, y, shift, scale):
    distribution = PredictedDistribution(*known)
    score = distribution.crps(y)[0]
    assert score >= 0
    moved = PredictedDistribution(distribution.levels, shift + scale * distribution.values)
    assert moved.crps(shift + scale * y)[0] == pytest.approx(scale * score, rel=1e-9, abs=1e-9)
    mirrored = PredictedDistribution(1 - distribution.levels[::-1], -distribution.values[:, ::-1])
    assert mirrored.crps(-y)[0] == pytest.approx(score, rel=1e-9, abs=1e-9)


@given(known=quantiles(GAPS_AND_ATOMS), shift=st.floats(0.2, 3) | st.floats(-3, -0.2), scale=st.floats(0.2, 5))
def test_the_truth_scores_better_than_what_is_shifted_or_scaled(known, shift, scale):
    (levels, values), distribution = known, PredictedDistribution(*known)
    spread = values[0, -1] - values[0, 0]
    n = 2000
    y = distribution.quantile((np.arange(n) + 0.5) / n)[0]
    others = [values + shift * (spread or 1.0)]
    if spread and abs(math.log(scale)) > 0.2:
        others.append(values.mean() + scale * (values - values.mean()))
    truth, *scores = (PredictedDistribution(levels, np.repeat(v, n, axis=0)).crps(y).mean() for v in (values, *others))
    assert truth < min(scores)


def test_samples_lie_below_any_value_as_often_as_the_cdf_says():
    n = 40_000
    distribution = PredictedDistribution(LEVELS, np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 3.0]]))
    samples = distribution.sample(n, random_state=0)
    assert samples.shape == (2, n)
    for y in (-1.0, 0.0, 0.5, 1.9, 3.0, 8.0):
        share = distribution.cdf(y)
        assert (np.abs((samples <= y).mean(axis=1) - share) <= 4.5 * np.sqrt(share * (1 - share) / n)).all()
    error = samples.mean(axis=1) - distribution.mean()
    assert (np.abs(error) <= 4.5 * samples.std(axis=1) / math.sqrt(n)).all()
    assert_array_equal(samples, distribution.sample(n, random_state=np.random.RandomState(0)))
    assert (samples != distribution.sample(n, random_state=1)).any()


def test_rows_and_targets_are_sampled_independently():
    n = 10_000
    samples = PredictedDistribution(LEVELS, np.tile([0.0, 1.0, 2.0], (2, 2, 1))).sample(n, random_state=0)
    others = np.corrcoef(samples.reshape(4, n))[np.triu_indices(4, 1)]
    assert (np.abs(others) < 4.5 / math.sqrt(n)).all()


@pytest.mark.parametrize("n_targets", [1, 2])
def test_every_target_has_its_own_distribution_and_axis(n_targets):
    rng = np.random.default_rng(n_targets)
    values, y = np.sort(rng.normal(size=(5, n_targets, 3))), rng.normal(size=(5, n_targets))
    both = PredictedDistribution(LEVELS, values)
    assert both.quantile([0.1, 0.9]).shape == (5, n_targets, 2)
    assert both.sample(7, random_state=0).shape == (5, n_targets, 7)
    for t in range(n_targets):
        one = PredictedDistribution(LEVELS, values[:, t])
        assert_array_equal(both.cdf(y)[:, t], one.cdf(y[:, t]))
        assert_array_equal(both.crps(y)[:, t], one.crps(y[:, t]))
        assert_array_equal(both.quantile(0.1)[:, t], one.quantile(0.1))
        assert_allclose(both.mean()[:, t], one.mean(), rtol=1e-14)
        assert_array_equal(both.interval([0.5, 0.9]).upper[:, t], one.interval([0.5, 0.9]).upper)


def test_one_row_alone_is_what_it_is_among_others():
    values, y = np.sort(np.random.default_rng(0).normal(size=(4, 3))), np.array([-3.0, 0.0, 0.1, 3.0])
    together = PredictedDistribution(LEVELS, values)
    for i in range(4):
        alone = PredictedDistribution(LEVELS, values[i : i + 1])
        assert alone.crps(y[i : i + 1]) == together.crps(y)[i]
        assert_array_equal(alone.quantile([0.01, 0.6]), together.quantile([0.01, 0.6])[i : i + 1])


def test_a_central_interval_lies_between_two_quantiles():
    distribution = PredictedDistribution(np.array([0.05, 0.5, 0.95]), np.array([[1.0, 2.0, 4.0]]), index=["a"])
    interval = distribution.interval(0.9)
    assert (interval.lower[0], interval.upper[0], interval.coverage) == (1.0, 4.0, 0.9)
    assert list(interval.to_frame().index) == ["a"]
    both = distribution.interval([0.9, 0.5])
    assert both.coverage == (0.9, 0.5)
    assert_array_equal(both.lower, distribution.quantile([0.05, 0.25]))
    assert_array_equal(central_shares([0.9, 0.98]), [[0.05, 0.01], [0.95, 0.99]])


def test_a_frame_has_the_quantiles_of_each_target_in_its_columns():
    values = np.arange(18.0).reshape(3, 2, 3)
    distribution = PredictedDistribution(LEVELS, values, target_names=("height", "weight"), index=pd.Index([7, 8, 9]))
    frame = distribution.to_frame()
    assert list(frame.columns.names) == ["target", "q"]
    assert list(frame.columns) == [(name, q) for name in ("height", "weight") for q in LEVELS]
    assert_array_equal(frame["weight", 0.5], values[:, 1, 1])
    assert list(frame.index) == [7, 8, 9]
    some = distribution.to_frame([0.1, 0.5])
    assert_array_equal(some["height", 0.1], distribution.quantile(0.1)[:, 0])
    assert some.shape == (3, 4)


def test_a_score_takes_little_memory_beside_the_quantiles():
    levels = np.arange(1, 100) / 100
    distribution = PredictedDistribution(levels, np.tile(norm.ppf(levels), (20_000, 1)))
    y = np.zeros(20_000)
    tracemalloc.start()
    for score in (distribution.crps, distribution.cdf):
        score(y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < distribution.values.nbytes / 2


@pytest.mark.parametrize("levels", [[0.5], [0.5, 0.5], [0.9, 0.1], [0.0, 0.5], [0.5, 1.0], [0.5, np.nan], [[0.1, 0.9]]])
def test_levels_that_do_not_ascend_between_0_and_1_are_refused(levels):
    with pytest.raises(ValueError, match=r"levels must be at least two ascending shares in \(0, 1\), got"):
        PredictedDistribution(np.array(levels), np.zeros((3, len(levels))))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"shape \(n, 3\) or \(n, target, 3\), one per level, got \(3,\)"),
        (np.zeros((4, 2)), r"got \(4, 2\)"),
        (np.array([[0.0, 2.0, 1.0]]), "never fall from one level to the next; sort"),
        (np.array([[0.0, np.nan, 1.0]]), "values must be finite"),
    ],
)
def test_values_that_are_no_quantiles_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        PredictedDistribution(LEVELS, values)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, math.nan, [0.5, 1.5], "half", [[0.5]]])
def test_shares_outside_0_and_1_have_no_quantile(q):
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1, got"):
        PredictedDistribution(LEVELS, np.zeros((2, 3))).quantile(q)


def test_without_a_share_there_is_no_quantile():
    with pytest.raises(ValueError, match="q must hold at least one share, got none"):
        PredictedDistribution(LEVELS, np.zeros((2, 3))).quantile([])


def test_targets_of_another_length_or_without_a_value_and_no_samples_are_refused():
    distribution = PredictedDistribution(LEVELS, np.zeros((2, 3)))
    for score in (distribution.cdf, distribution.crps):
        with pytest.raises(ValueError, match=r"y must be a number or have the shape \(2,\).* got \(3,\)"):
            score(np.zeros(3))
        with pytest.raises(ValueError, match="y must be finite, got 1 NaN or infinite values"):
            score([0.0, math.nan])
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        distribution.sample(0)


# Columns -------------------------------------------------------------------------------------------------------------


def test_quantiles_follow_the_bounds_of_their_target():
    names = prediction_columns(["a", "b"], [0.9], ["id"], [0.05, 0.5])
    own = ("", "_lower_0.9", "_upper_0.9", "_quantile_0.05", "_quantile_0.5")
    assert names == ["id", *(f"{target}{column}" for target in "ab" for column in own)]
    with pytest.raises(ValueError, match="two columns named a_quantile"):
        prediction_columns(["a"], [0.9], ["a_quantile_0.5"], [0.5])
