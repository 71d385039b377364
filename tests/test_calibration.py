from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta, kstest, norm
from sklearn.model_selection import PredefinedSplit

from coverwell import MLP, MatchedRegressor, Schedule, fit_together
from coverwell.calibration import (
    Correction,
    CrossScores,
    Estimate,
    Split,
    average_out_of_fold,
    cross_factor,
    effective_rows,
    outwards,
    rank_factor,
    scores_of,
)
from coverwell.options import coverage_rank
from coverwell.predictor import MatchedTeam
from coverwell.training.rows import Rows
from tests.synthetic import laws

seeds = st.integers(0, 2**16)
bounds = array_shapes(min_dims=1, max_dims=3, max_side=4).flatmap(
    lambda shape: st.tuples(*[arrays(np.float64, shape, elements=st.floats(-10, 10))] * 2)
)
LEVELS = (0.5, 0.9)


def estimate(rng, *leading, n_targets=2, n_levels=2):
    """Random means and nested half-widths; the axes before the target are given."""
    half_width = rng.lognormal(size=(*leading, n_targets, 2, n_levels)).cumsum(axis=-1)
    return Estimate(rng.normal(size=(*leading, n_targets)), half_width)


def column(*values):
    """Scores or means of one target and one level."""
    return np.array(values, dtype=float).reshape(-1, 1, 1)


def corrected(correction, estimates, levels=LEVELS, *, joint=False):
    """Bounds in numpy."""
    means, half_widths = ([torch.from_numpy(getattr(e, name)) for e in estimates] for name in ("mean", "half_width"))
    return tuple(side.numpy() for side in correction(means, half_widths, levels, joint))


def stretched(estimate, factor):
    """Bounds (row, target, level), the half-widths multiplied by a factor."""
    below, above = factor * estimate.half_width[..., 0, :], factor * estimate.half_width[..., 1, :]
    return estimate.mean[..., None] - below, estimate.mean[..., None] + above


def cv_plus_bounds(estimates, scores, levels):
    return corrected(Correction(levels, levels, scores=scores), estimates, levels)


# Scores --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("y", "score"), [(12.0, 1.0), (14.0, 2.0), (9.5, 0.5), (7.0, 3.0), (10.0, 0.0)])
def test_scores_by_hand(y, score):
    # Mean 10, half_width 1 below and 2 above: above, the residual over 2; below, its size over 1.
    given_ = Estimate(np.array([[10.0]]), np.array([[[[1.0], [2.0]]]]))
    assert_allclose(scores_of(np.array([[y]]), given_), [[[score]]])


@given(seed=seeds)
def test_an_interval_stretched_by_its_score_just_contains_the_value(seed):
    rng = np.random.default_rng(seed)
    given_, y = estimate(rng, 5), 3 * rng.normal(size=(5, 2))
    scores = scores_of(y, given_)
    for factor, inside in ((1 + 1e-9, True), (1 - 1e-6, False)):
        lower, upper = stretched(given_, scores * factor)
        assert_array_equal((lower <= y[..., None]) & (y[..., None] <= upper), np.full((5, 2, 2), inside))


@given(seed=seeds, unit=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_scores_depend_on_neither_unit_nor_origin(seed, unit, shift):
    rng = np.random.default_rng(seed)
    given_, y = estimate(rng, 5), rng.normal(size=(5, 2))
    moved = Estimate(given_.mean * unit + shift, given_.half_width * unit)
    assert_allclose(scores_of(y * unit + shift, moved), scores_of(y, given_), rtol=1e-7, atol=1e-9)


def test_an_empty_interval_has_a_large_but_finite_score():
    scores = scores_of(np.array([[1.0], [0.0]]), Estimate(np.zeros((2, 1)), np.zeros((2, 1, 2, 1))))
    assert np.isfinite(scores).all()
    assert scores[0, 0, 0] > 1e6
    assert scores[1, 0, 0] == 0  # nothing has to be stretched to half_width the mean


# Split: ranks of rows that touched nothing before --------------------------------------------------------------------


def test_ranks_by_hand():
    # Nine scores: at 0.5 the rank ceil(10 x 0.5) = 5, at 0.9 the rank 9; levels and targets have scores of their own.
    scores = np.empty((9, 2, 2))
    scores[:, 0, 0] = [5, 3, 1, 9, 7, 2, 8, 6, 4]
    scores[:, 0, 1] = scores[:, 0, 0] * 10
    scores[:, 1, :] = scores[:, 0, :] + 100
    assert_array_equal(rank_factor(scores, LEVELS), [[5, 90], [105, 190]])


@given(seed=seeds, n=st.integers(20, 60), level=st.sampled_from([0.1, 0.5, 0.8, 0.95]))
def test_the_rank_is_numpys_inverted_distribution_at_the_corrected_level(seed, n, level):
    scores = np.random.default_rng(seed).exponential(size=(n, 1, 1))
    corrected = np.ceil(np.round((n + 1) * level, 9)) / n
    twin = np.quantile(scores, corrected - 1e-9, method="inverted_cdf")  # the k-th smallest, k = ceil((n + 1) level)
    assert rank_factor(scores, (level,)).item() == twin


def test_a_heavier_row_counts_more_in_its_rank():
    scores, weight = np.tile(np.array([3.0, 1.0, 2.0]).reshape(-1, 1, 1), 4), np.array([1.0, 1.0, 2.0])
    # Of the weight of 4 and of a new row, 6 / 4: 0.5 needs 2.75, more than the smallest score has, less than two have.
    assert rank_factor(scores, (0.18, 0.19, 0.5, 0.7), weight, or_largest=True).tolist() == [[1.0, 2.0, 2.0, 3.0]]
    assert effective_rows(weight) == 16 / 6
    with pytest.raises(ValueError, match="needs at least 3 rows, got 2"):
        rank_factor(scores, (0.75,), weight)


@given(seed=seeds, n=st.integers(20, 60), level=st.sampled_from([0.1, 0.5, 0.8, 0.9]), scale=st.floats(0.01, 100))
def test_equal_weights_change_no_rank_and_rows_without_weight_do_not_count(seed, n, level, scale):
    scores = np.random.default_rng(seed).exponential(size=(n, 2, 1))
    alone = rank_factor(scores, (level,))
    assert_array_equal(rank_factor(scores, (level,), np.full(n, scale)), alone)
    weight = np.concatenate([np.full(n, scale), np.zeros(n)])
    assert_array_equal(rank_factor(np.concatenate([scores, scores[::-1] / 2]), (level,), weight), alone)


@pytest.mark.parametrize(("level", "n"), [(0.5, 20), (0.9, 39), (0.9, 100), (0.95, 200)])
def test_the_coverage_of_split_ranks_follows_the_beta_law(level, n):
    # With continuous scores, the coverage on new rows given n calibration rows is Beta(k, n + 1 - k).
    rng = np.random.default_rng(0)
    n_draws = 2000
    mean, half_width = rng.normal(size=(n_draws, n)), rng.lognormal(size=(n_draws, n))
    y = mean + half_width * rng.normal(size=(n_draws, n))  # half_width is right up to a factor
    scores = scores_of(y.T, Estimate(mean.T, np.stack([half_width.T] * 2, axis=-1)[..., None]))  # draws are targets
    covered = 2 * norm.cdf(rank_factor(scores, (level,))[:, 0]) - 1
    k = coverage_rank(level, n)
    law = beta(k, n + 1 - k)
    assert kstest(covered, law.cdf).pvalue > 1e-4
    error = law.std() / np.sqrt(n_draws)
    assert abs(covered.mean() - k / (n + 1)) < 4 * error
    assert covered.mean() > level - 4 * error


# Cross: ranks of out-of-fold scores ----------------------------------------------------------------------------------


@given(seed=seeds)
def test_the_average_is_numpys_over_the_members_that_leave_a_row_out(seed):
    rng = np.random.default_rng(seed)
    members, leaves_out = estimate(rng, 4, 6), rng.random((4, 6)) < 0.5
    leaves_out[0] = True
    result = average_out_of_fold(members, leaves_out)
    for row in range(6):
        assert_allclose(result.mean[row], members.mean[leaves_out[:, row], row].mean(axis=0))
        assert_allclose(result.half_width[row], members.half_width[leaves_out[:, row], row].mean(axis=0))


@given(seed=seeds)
def test_cross_scores_are_those_of_some_rows_by_averages_and_by_single_members(seed):
    rng = np.random.default_rng(seed)
    members, y = estimate(rng, 4, 6), rng.normal(size=(6, 2))
    leaves_out = rng.random((4, 6)) < 0.5
    leaves_out[:, 0], leaves_out[:2, 1] = False, True
    scores = CrossScores.of(y, members, leaves_out)
    some = leaves_out.any(axis=0)
    assert_allclose(scores.averaged, scores_of(y, average_out_of_fold(members, leaves_out))[some])
    for single, (m, row) in zip(scores.singles, np.argwhere(leaves_out), strict=True):
        assert_allclose(single, scores_of(y[row], Estimate(members.mean[m, row], members.half_width[m, row])))
    assert scores.n_members == 4
    assert_allclose(scores.n_left_out, leaves_out.sum() / some.sum())


@given(seed=seeds)
def test_members_by_themselves_are_scored_by_half_widths_of_their_own(seed):
    rng = np.random.default_rng(seed)
    members, y = estimate(rng, 4, 6), rng.normal(size=(6, 2))
    leaves_out = np.zeros((4, 6), dtype=bool)
    leaves_out[:2, :5], leaves_out[2, 2:4] = True, True  # nobody leaves the last row out
    pairs = np.argwhere(leaves_out)
    alone = members.half_width[leaves_out] * rng.lognormal(size=(len(pairs), 1, 1, 1))
    scores = CrossScores.of(y, replace(members, alone=alone), leaves_out)
    for single, half_width, (m, row) in zip(scores.singles, alone, pairs, strict=True):
        assert_allclose(single, scores_of(y[row], Estimate(members.mean[m, row], half_width)))
    assert_allclose(scores.averaged, CrossScores.of(y, members, leaves_out).averaged)


def cross(averaged, singles, *, n_left_out, n_members):
    return CrossScores(column(*averaged), column(*singles), n_left_out, n_members)


def test_the_extrapolation_by_hand():
    # Plain rank 2, single members 3, r = 2: b = (9 - 4) / (1 - 1/2) = 10, a = -1; at M = 5: 4 - 10 (1/2 - 1/5) = 1.
    # The least, with all of the error from disagreement, is 4 x 2/5 = 1.6: the factor is sqrt(1.6).
    scores = cross([2.0], [3.0], n_left_out=2.0, n_members=5)
    assert_allclose(cross_factor(scores, (0.5,)), [[np.sqrt(1.6)]])
    # Single members 2.2: b = (4.84 - 4) / 0.5 = 1.68; at M = 5: 4 - 1.68 x 0.3 = 3.496.
    scores = cross([2.0], [2.2], n_left_out=2.0, n_members=5)
    assert_allclose(cross_factor(scores, (0.5,)), [[np.sqrt(3.496)]])


@pytest.mark.parametrize(
    ("singles", "n_left_out", "n_members"),
    [([1, 2, 3], 1.0, 5), ([1, 1, 1], 2.0, 4), ([2, 4, 6], 4.0, 4)],
    ids=["one member per row", "members that err less than their average", "every row is left out by the whole team"],
)
def test_without_anything_to_extrapolate_the_plain_rank_is_taken(singles, n_left_out, n_members):
    scores = cross([1, 2, 3], singles, n_left_out=n_left_out, n_members=n_members)
    assert_allclose(cross_factor(scores, (0.5,)), [[2.0]])


@pytest.mark.parametrize(("whole", "factor"), [(1.2, 1.6), (3.5, 4.0)])
def test_rows_that_all_leave_out_tell_what_an_average_is_worth(whole, factor):
    # They score 1.2 by averages, 3 by single members: 4 x 1.2 / 3. An average errs as much as one member at most.
    by_all = cross([whole], [3.0], n_left_out=5.0, n_members=5)
    scores = CrossScores(column(4.0), column(4.0), 1.0, 5, by_all)
    assert_allclose(cross_factor(scores, (0.5,)), [[factor]])


def test_with_one_member_per_row_rows_that_all_leave_out_bring_the_factor_to_the_team():
    """Nearly all of the error is the members' own, with heavy tails: no law of quantiles is needed."""
    rng, n_rows, n_members = np.random.default_rng(0), 20_000, 5
    errors = rng.standard_t(3, size=(n_members, n_rows, 1)) * rng.lognormal(size=(1, n_rows, 1))
    leaves_out = np.arange(n_rows) % n_members == np.arange(n_members)[:, None]
    leaves_out[:, :2000] = True
    members = Estimate(errors, np.ones((n_members, n_rows, 1, 2, 1)))
    scores = CrossScores.of(np.zeros((n_rows, 1)), members, leaves_out)
    assert (len(scores.averaged), len(scores.by_all.averaged), len(scores.by_all.singles)) == (18_000, 2000, 10_000)
    new = np.abs(errors.mean(axis=0))[2000:]  # by an average over all, which nobody could know
    for level in (0.5, 0.9):
        covered = (new <= cross_factor(scores, (level,))).mean()
        assert abs(covered - level) < 4 * np.sqrt(level * (1 - level) / 2000)
        assert (new <= rank_factor(scores.averaged, (level,))).mean() > level + 0.05


@given(seed=seeds, r=st.floats(1.1, 5), more=st.integers(0, 20))
def test_the_factor_lies_between_the_plain_rank_and_the_least_that_theory_allows(seed, r, more):
    rng = np.random.default_rng(seed)
    n_members = int(np.ceil(r)) + more
    scores = CrossScores(rng.exponential(size=(30, 2, 2)), rng.exponential(size=(60, 2, 2)), r, n_members)
    plain, factor = rank_factor(scores.averaged, LEVELS), cross_factor(scores, LEVELS)
    assert (factor <= plain * (1 + 1e-12)).all()
    assert (factor >= plain * np.sqrt(r / n_members) * (1 - 1e-12)).all()


def simulated_team(rng, *, n_rows, n_members, n_left_out, disagreement):
    """Scores of a team whose members give the truth plus independent noise, each row left out by some at random."""
    outputs = disagreement * rng.normal(size=(n_members, n_rows, 1))
    members = Estimate(outputs, np.ones((n_members, n_rows, 1, 2, 1)))
    places = rng.random((n_members, n_rows)).argsort(axis=0)
    return CrossScores.of(rng.normal(size=(n_rows, 1)), members, places < n_left_out)


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize(("n_members", "n_left_out"), [(15, 3), (10, 2)])
def test_the_deployed_team_covers_what_was_asked_where_the_plain_rank_covers_more(level, n_members, n_left_out):
    rng = np.random.default_rng(0)
    deployed_error = np.sqrt(1 + 1 / n_members)  # noise of the row, and of the average of all members

    def coverage_of(factor):
        return 2 * norm.cdf(factor.item() / deployed_error) - 1

    plain, brought = [], []
    for _ in range(60):
        scores = simulated_team(rng, n_rows=1000, n_members=n_members, n_left_out=n_left_out, disagreement=1.0)
        plain.append(coverage_of(rank_factor(scores.averaged, (level,))))
        brought.append(coverage_of(cross_factor(scores, (level,))))
    error = np.std(brought) / np.sqrt(60)
    # Normal errors have quantiles that go with the square root of 1 + 1 / r: the extrapolation is exact for them.
    assert abs(np.mean(brought) - level) < 4 * error + 1 / 1000  # the rank is ceil(1001 p)
    expected = 2 * norm.cdf(norm.ppf((1 + level) / 2) * np.sqrt(1 + 1 / n_left_out) / deployed_error) - 1
    assert abs(np.mean(plain) - expected) < 4 * np.std(plain) / np.sqrt(60) + 1 / 1000
    assert expected > level + 0.02


def test_the_joint_factor_ranks_the_largest_score_in_units_of_each_targets_factor():
    # In units 2 and 3, the rows' largest are max(2 / 2, 9 / 3) = 3 and max(8 / 2, 3 / 3) = 4; at 60 % the rank is 2.
    scores = CrossScores(np.array([[[2.0], [9.0]], [[8.0], [3.0]]]), np.array([[[4.0], [1.0]]]), 1.0, 5)
    assert_allclose(cross_factor(scores.joint(np.array([[2.0], [3.0]])), (0.6,)), [[4.0]])


# CV+: each left-out team's interval, stretched by the scores of the rows it left out ---------------------------------


def naive_cv_plus(estimates, scores, coverage):
    """The definition, row by row and score by score."""
    n = sum(len(part) for part in scores)
    n_rows, n_targets = estimates[0].mean.shape
    lower, upper = np.empty((2, n_rows, n_targets, len(coverage)))
    for row, target, position in np.ndindex(lower.shape):
        ends = [
            (
                e.mean[row, target] - s * e.half_width[row, target, 0, position],
                e.mean[row, target] + s * e.half_width[row, target, 1, position],
            )
            for e, part in zip(estimates, scores, strict=True)
            for s in part[:, target, position]
        ]
        k = coverage_rank(coverage[position], n)
        centre = np.mean([e.mean[row, target] for e in estimates])
        lower[row, target, position] = min(sorted(end[0] for end in ends)[n - k], centre)
        upper[row, target, position] = max(sorted(end[1] for end in ends)[k - 1], centre)
    return np.minimum.accumulate(lower, axis=-1), np.maximum.accumulate(upper, axis=-1)  # levels are nested


def random_cv_plus(seed, n_rows=3, sizes=(4, 3, 5)):
    rng = np.random.default_rng(seed)
    return [estimate(rng, n_rows) for _ in sizes], [rng.exponential(size=(size, 2, 2)) for size in sizes]


def test_cv_plus_by_hand():
    # Two teams give 0 and 1 with half-width 1; scores 1, 2 of the first, 3, 4 of the second; at 0.6 the rank is 3 of 4.
    # Upper ends 1, 2, 4, 5: the third is 4. Lower ends -1, -2, -2, -3 sorted -3, -2, -2, -1: the second is -2.
    estimates = [Estimate(np.array([[mean]]), np.ones((1, 1, 2, 1))) for mean in (0.0, 1.0)]
    lower, upper = cv_plus_bounds(estimates, [column(1, 2), column(3, 4)], (0.6,))
    assert (lower.item(), upper.item()) == (-2.0, 4.0)


@given(seed=seeds)
def test_cv_plus_is_its_definition(seed):
    estimates, scores = random_cv_plus(seed)
    for side, twin in zip(
        cv_plus_bounds(estimates, scores, LEVELS), naive_cv_plus(estimates, scores, LEVELS), strict=True
    ):
        assert_allclose(side, twin)


def left_out_regressions(rng, n_rows, n_features, n_folds):
    """Least squares without each fold in turn: estimates for one new row, and the scores of the rows left out."""
    truth = rng.normal(size=n_features)
    X, new = rng.normal(size=(n_rows, n_features)), rng.normal(size=(1, n_features))
    y = X @ truth + rng.normal(size=n_rows)
    estimates, scores = [], []
    for fold in np.array_split(rng.permutation(n_rows), n_folds):
        kept = np.setdiff1d(np.arange(n_rows), fold)
        learned = np.linalg.lstsq(X[kept], y[kept], rcond=None)[0]
        unit = np.ones((len(fold), 1, 2, 1))
        scores.append(scores_of(y[fold, None], Estimate((X[fold] @ learned)[:, None], unit)))
        estimates.append(Estimate((new @ learned)[:, None], unit[:1]))
    return estimates, scores, (new @ truth).item()


@pytest.mark.parametrize("n_features", [3, 31, 33])  # 32 rows train: stable, and about as many weights as rows
def test_cv_plus_covers_at_least_twice_the_level_less_one(n_features):
    rng = np.random.default_rng(2)
    level, n_draws = 0.8, 250
    covered = []
    for _ in range(n_draws):
        estimates, scores, mean = left_out_regressions(rng, 40, n_features, 5)
        lower, upper = cv_plus_bounds(estimates, scores, (level,))
        covered.append(norm.cdf(upper.item() - mean) - norm.cdf(lower.item() - mean))
    error = np.std(covered) / np.sqrt(n_draws)
    small = (1 - 5 / 40) / (5 + 1)  # Barber et al. 2021, Theorem 4: the smaller of (1 - K/n) / (K + 1) and another term
    assert np.mean(covered) > 2 * level - 1 - min(small, 2 / np.sqrt(40)) - 4 * error
    if n_features == 3:  # a stable regression covers about what was asked
        assert abs(np.mean(covered) - level) < 0.02 + 4 * error


def widened(lower, upper):
    return -outwards(torch.from_numpy(-lower)).numpy(), outwards(torch.from_numpy(upper)).numpy()


def test_each_level_is_widened_to_contain_the_one_inside_it():
    lower, upper = widened(np.array([[-1.0, -0.5, -3.0]]), np.array([[2.0, 4.0, 3.0]]))
    assert_array_equal(lower, [[-1.0, -1.0, -3.0]])  # the second level is drawn out to the first
    assert_array_equal(upper, [[2.0, 4.0, 4.0]])  # the third to the second


@given(bounds=bounds)
def test_widened_levels_are_nested_contain_the_given_ones_and_stay_when_widened_again(bounds):
    lower, upper = widened(*bounds)
    assert (np.diff(lower, axis=-1) <= 0).all()
    assert (np.diff(upper, axis=-1) >= 0).all()
    assert (lower <= bounds[0]).all()
    assert (upper >= bounds[1]).all()
    again = widened(lower, upper)
    assert_array_equal(again[0], lower)
    assert_array_equal(again[1], upper)


# Calibrated models ---------------------------------------------------------------------------------------------------

SMALL = MLP(hidden=16, bins=4)
TINY = {"network": MLP(hidden=4, layers=2, dropout=0.0, bins=0), "schedule": Schedule(max_rounds=1)}
TINY |= {"folds": 2, "repeats": 1, "companions": ()}
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 3))
Y = np.stack([np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=120), 50 * X[:, 1] + 5 * RNG.normal(size=120)], axis=1)


def fitted(y=Y, **changes):
    defaults = {"coverage": (0.5, 0.8), "calibration": "cross", "companions": (), "network": SMALL, "folds": 3}
    defaults |= {"repeats": 1, "schedule": Schedule(max_rounds=2)}
    return MatchedRegressor(**defaults | changes, random_state=0).fit(X, y)


# Corrections, by hand ------------------------------------------------------------------------------------------------

# One row, two targets, half_width 1 below and 2 above at the first level, 2 and 3 at the second.
ESTIMATE = Estimate(np.array([[10.0, 20.0]]), np.tile([[1.0, 2.0], [2.0, 3.0]], (1, 2, 1, 1)))


def test_factors_multiply_the_reach_and_each_level_contains_the_inner_one():
    factor = np.array([[1.0, 2.0], [4.0, 1.0]])
    lower, upper = corrected(Correction((0.5, 0.8), (0.5, 0.8), factor), [ESTIMATE], (0.5, 0.8), joint=False)
    # Second target: 4 x 1 below at the inner level, 1 x 2 at the outer one, which is widened to 4.
    assert_allclose(lower, [[[9.0, 6.0], [16.0, 16.0]]])
    assert_allclose(upper, [[[12.0, 16.0], [28.0, 28.0]]])


def test_joint_boxes_have_factors_of_their_own():
    joint_factor = np.array([[1.0, 2.0], [3.0, 4.0]])
    correction = Correction((0.5, 0.8), (0.5, 0.8), np.ones((2, 2)), joint_factor)
    lower, upper = corrected(correction, [ESTIMATE], (0.5, 0.8), joint=True)
    assert_allclose(lower, [[[9.0, 6.0], [17.0, 12.0]]])
    assert_allclose(upper, [[[12.0, 16.0], [26.0, 32.0]]])


def test_without_ranks_there_are_no_joint_boxes():
    with pytest.raises(ValueError, match=r"joint=True needs ranks .* calibration other than None"):
        corrected(Correction((0.5, 0.8), (0.5, 0.8), np.ones((2, 2))), [ESTIMATE], (0.5, 0.8), joint=True)


def test_cv_plus_takes_for_joint_boxes_the_largest_score_of_a_row():
    # Three rows left out by one team; at 50 % the rank is ceil(4 x .5) = 2, at 75 % it is 3.
    estimate = Estimate(np.array([[0.0, 0.0]]), np.ones((1, 2, 2, 2)))
    scores = np.array([[[1.0] * 2, [5.0] * 2], [[2.0] * 2, [1.0] * 2], [[3.0] * 2, [4.0] * 2]])
    correction = Correction((0.5, 0.75), (0.5, 0.75), scores=[scores])
    _, apart = corrected(correction, [estimate], (0.5, 0.75))
    _, together = corrected(correction, [estimate], (0.5, 0.75), joint=True)
    assert_allclose(apart, [[[2.0, 3.0], [4.0, 5.0]]])
    assert_allclose(together, [[[4.0, 5.0], [4.0, 5.0]]])  # the largest of each row: 5, 2, 4


# What a fit leaves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split", None])
def test_a_fit_leaves_factors_or_scores(calibration):
    model = fitted(calibration=calibration)
    correction = model.predictor_.correction
    assert correction.asked == (0.5, 0.8)
    grid = len(correction.levels)
    if calibration == "cv+":
        assert model.factor_ is None
        assert [tuple(scores.shape) for scores in correction.scores] == [(40, 2, grid)] * 3
        assert len(model.predictor_.teams) == 3
        return
    assert not correction.scores
    assert len(model.predictor_.teams) == 1
    assert model.factor_.shape == (2, 2)
    if calibration is None:
        assert_array_equal(model.factor_, np.ones((2, 2)))
        assert correction.joint_factor is None
    else:
        assert (model.factor_ > 0).all()
        assert correction.joint_factor.shape == (2, grid)
        assert (correction.joint_factor >= correction.factor).all()


def test_for_one_target_a_joint_box_is_its_interval():
    for calibration in ("local", "cross", "cv+", "split"):
        model = fitted(Y[:, 0], calibration=calibration, repeats=2)
        for one, other in zip(model.predict_interval(X), model.predict_interval(X, joint=True), strict=True):
            assert_allclose(one, other)


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+"])
def test_the_out_of_fold_view_has_every_row(calibration):
    outputs = fitted(calibration=calibration).out_of_fold_
    assert outputs.prediction.shape == (120, 2)
    assert outputs.lower.shape == outputs.upper.shape == (120, 2, 2)
    assert np.isfinite(outputs.prediction).all()
    assert (np.diff(outputs.lower) <= 0).all()
    assert (np.diff(outputs.upper) >= 0).all()
    assert (outputs.lower <= outputs.prediction[..., None]).all()
    assert (outputs.prediction[..., None] <= outputs.upper).all()


@pytest.mark.parametrize("changes", [{}, {"calibration": "local", "companions": ("forest",)}], ids=["cross", "local"])
def test_with_one_member_per_row_the_out_of_fold_bounds_hold_as_many_rows_as_the_rank(changes):
    outputs = fitted(repeats=1, **changes).out_of_fold_
    inside = ((outputs.lower <= Y[..., None]) & (Y[..., None] <= outputs.upper)).sum(axis=0)  # (target, level)
    # The k-th score itself may fall on either side by rounding: scores are ranked in the units of training.
    assert (np.abs(inside - [coverage_rank(level, 120) for level in (0.5, 0.8)]) <= 1).all()


def test_rows_that_nobody_left_out_or_that_were_kept_for_ranks_are_missing_out_of_fold():
    fold = np.where(np.arange(120) < 30, -1, np.arange(120) % 3)
    assert_array_equal(np.isnan(fitted(folds=PredefinedSplit(fold)).out_of_fold_.prediction[:, 0]), fold == -1)
    kept = rows_kept_for_split(X, Y, levels=(0.5, 0.8), folds=3)
    missing = np.isnan(fitted(calibration="split").out_of_fold_.prediction[:, 0])
    assert_array_equal(np.flatnonzero(missing), kept)


def test_literal_training_has_no_out_of_fold_view():
    assert fitted(folds=None, calibration=None).out_of_fold_ is None
    assert fitted(folds=None, calibration="split").out_of_fold_ is None


def test_the_out_of_fold_prediction_of_a_row_is_by_the_member_that_left_it_out():
    fold = np.arange(120) % 4
    model = fitted(Y[:, 0], folds=PredefinedSplit(fold), coverage=0.8)
    (team,) = model.predictor_.fitted_teams
    for k in range(4):
        member = slice(k, k + 1)
        pair = team.mean_team.deployed(member), team.interval_team.deployed(member)
        alone = MatchedTeam(*pair, team.matching, team.unit.numpy(), (0.8,), team.inputs, team.targets)
        expected = alone.estimate(X[fold == k]).mean
        assert_allclose(model.out_of_fold_.prediction[fold == k], expected, rtol=1e-4, atol=1e-5)


# What the ranks promise ----------------------------------------------------------------------------------------------


def rows_kept_for_split(X, y, *, levels, folds, seed=0):
    """The rows that calibration="split" keeps, found as `fit` finds them."""
    options = {"levels": levels, "folds": folds, "repeats": 1, "calibration": Split()}
    return Rows.of(X, y.reshape(len(X), -1), random_state=np.random.RandomState(seed), **options).held_back[0]


def exact_coverage(law, model, X):
    """The probability of falling inside the intervals, averaged over rows, for each level."""
    lower, upper = model.predict_interval(X)
    return np.array([law.exact_coverage(X, lo, up).mean() for lo, up in zip(lower.T, upper.T, strict=True)])


def test_split_covers_what_is_asked_on_average_over_fits_with_few_rows_for_the_ranks():
    # 19 rows for the ranks: k / 20 is exactly .5 and .9 on average over draws, and a rank too high or low is .05 off.
    law, levels, n_fits = laws()["heteroscedastic"], np.array([0.5, 0.9]), 80
    models = [MatchedRegressor(levels, calibration="split", random_state=seed, **TINY) for seed in range(n_fits)]
    fit_together(models, [(*law.draw(95, random_state=seed), None) for seed in range(n_fits)])
    X_new, _ = law.draw(2000, random_state=10_000)
    covered = np.mean([exact_coverage(law, model, X_new) for model in models], axis=0)
    k = 20 * levels
    variance = k * (20 - k) / (20**2 * 21)  # of Beta(k, 20 - k)
    assert (np.abs(covered - levels) < 4 * np.sqrt(variance / n_fits)).all()


@pytest.mark.parametrize(
    ("law_name", "matching", "repeats"), [("heteroscedastic", "sigma", 1), ("skewed", "iqr", 1), ("skewed", "sigma", 3)]
)
def test_cross_ranks_cover_near_what_is_asked(law_name, matching, repeats):
    law, levels, n_rows, n_fits = laws()[law_name], np.array([0.5, 0.8, 0.9, 0.95]), 600, 2
    changes = {"network": SMALL, "repeats": repeats, "schedule": Schedule(max_rounds=3), "companions": ()}
    changes |= {"calibration": "cross"}
    models = [MatchedRegressor(levels, matching, random_state=seed, **changes) for seed in range(n_fits)]
    fit_together(models, [(*law.draw(n_rows, random_state=seed), None) for seed in range(n_fits)])
    X_new, _ = law.draw(4000, random_state=10_000)
    covered = np.mean([exact_coverage(law, model, X_new) for model in models], axis=0)
    standard_error = np.sqrt(levels * (1 - levels) / (n_rows * n_fits))
    assert (np.abs(covered - levels) < 3 * standard_error + 0.02).all()


def test_cv_plus_covers_at_least_its_promise_and_not_all():
    law, levels, n_rows = laws()["heteroscedastic"], np.array([0.5, 0.8, 0.9, 0.95]), 400
    X, y = law.draw(n_rows, random_state=0)
    changes = {"calibration": "cv+", "network": SMALL, "folds": 3, "schedule": Schedule(max_rounds=3)}
    model = MatchedRegressor(levels, random_state=0, companions=(), **changes).fit(X, y)
    covered = exact_coverage(law, model, law.draw(4000, random_state=1)[0])
    assert (covered >= 2 * levels - 1).all()
    assert (covered <= levels + 3 * np.sqrt(levels * (1 - levels) / n_rows) + 0.03).all()


def test_the_rows_kept_for_split_touch_nothing_but_the_factor():
    law = laws()["many inputs"]
    X, y = law.draw(150, random_state=0)
    kept = rows_kept_for_split(X, y, levels=(0.9,), folds=3)
    assert len(kept) == 30

    def fit(X, y):
        short = {"network": SMALL, "folds": 3, "repeats": 1, "schedule": Schedule(max_rounds=2)}
        return MatchedRegressor(0.9, calibration="split", random_state=0, **short).fit(X, y)

    one = fit(X, y)
    X_other, y_other = X.copy(), y.copy()
    X_other[kept] = 1e3 * np.random.default_rng(1).normal(size=(30, 10))
    y_other[kept] = -1e4 * np.random.default_rng(2).normal(size=30)
    other = fit(X_other, y_other)
    (mine,), (yours,) = one.predictor_.fitted_teams, other.predictor_.fitted_teams
    for team, same in ((mine.mean_team, yours.mean_team), (mine.interval_team, yours.interval_team)):
        for name, value in team.state_dict().items():  # weights and bin edges
            assert_array_equal(value, same.state_dict()[name])
    assert "code.start" in mine.mean_team.state_dict()
    assert_array_equal(mine.unit, yours.unit)
    for scaler, same in ((mine.inputs, yours.inputs), (mine.targets, yours.targets)):
        for name, value in scaler.named_buffers():
            assert_array_equal(value, getattr(same, name))
    assert [r.interval_score for r in one.rounds_] == [r.interval_score for r in other.rounds_]  # the stop rule
    assert_array_equal(one.predict(X), other.predict(X))
    assert (one.factor_ != other.factor_).all()


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split"])
def test_joint_boxes_hold_all_targets_together_as_often_as_asked(calibration):
    rng = np.random.default_rng(0)
    n_rows, n_new, p = 400, 4000, 0.8
    X = rng.uniform(size=(n_rows + n_new, 2))
    y = X @ rng.normal(size=(2, 3)) + rng.normal(size=(n_rows + n_new, 3)) * [0.1, 1.0, 5.0]
    calibrated = {"calibration": Split(0.4) if calibration == "split" else calibration, "random_state": 0}
    model = MatchedRegressor(p, network=SMALL, folds=3, schedule=Schedule(max_rounds=2), **calibrated)
    model.fit(X[:n_rows], y[:n_rows])
    apart = model.predict_interval(X[n_rows:]).contains(y[n_rows:]).all(axis=1).mean()
    together = model.predict_interval(X[n_rows:], joint=True).contains(y[n_rows:]).all(axis=1).mean()
    n_ranks = 160 if calibration == "split" else n_rows
    assert abs(together - p) < 4 * np.sqrt(p * (1 - p) * (1 / n_ranks + 1 / n_new)) + 0.02
    assert apart < together - 0.1  # independent noise: about .8 to the third


@pytest.mark.parametrize("calibration", ["local", "split", "cv+"])
def test_ranks_do_not_depend_on_the_unit_of_the_target(calibration: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + rng.normal(size=120)
    inside, beside = [], {"folds": 3, "companions": ("forest",)}
    for unit in (1.0, 1e-15):
        model = MatchedRegressor(0.8, calibration=calibration, random_state=0, **TINY | beside)
        model.fit(X, unit * y)
        inside.append(model.predict_interval(X).contains(unit * y).mean())
    assert abs(inside[0] - inside[1]) < 2.5 / 120


# Any level after the fit ---------------------------------------------------------------------------------------------

ALL = ["local", "cross", "cv+", "split"]


@pytest.fixture(scope="module", params=ALL)
def of_two_levels(request):
    beside = ("forest",) if request.param == "local" else ()
    return fitted(calibration=Split(0.4) if request.param == "split" else request.param, companions=beside)


@pytest.mark.parametrize("joint", [False, True])
def test_levels_that_were_not_fitted_are_nested_among_the_fitted_ones_also_call_by_call(of_two_levels, joint):
    levels = [0.05, 0.2, 0.5, 0.51, 0.73, 0.8, 0.81, 0.9, 0.95]
    calls = [of_two_levels.predict_interval(X, level, joint=joint) for level in levels]
    lower, upper = (np.stack([getattr(call, side) for call in calls], axis=-1) for side in ("lower", "upper"))
    assert (np.diff(lower) <= 1e-12).all()  # but for rounding
    assert (np.diff(upper) >= -1e-12).all()
    fitted_levels = of_two_levels.predict_interval(X, joint=joint)
    together = of_two_levels.predict_interval(X, levels, joint=joint)
    for found in (lower, together.lower):
        assert_allclose(found[..., [2, 5]], fitted_levels.lower, rtol=1e-12)
    for found in (upper, together.upper):
        assert_allclose(found[..., [2, 5]], fitted_levels.upper, rtol=1e-12)


@given(seed=seeds, of_scores=st.booleans())
def test_asked_levels_do_not_depend_on_the_others_which_lie_between_them(seed, of_scores):
    """Whatever the ranks are: also where an inner level has the larger ones."""
    rng, asked, grid = np.random.default_rng(seed), (0.5, 0.8), (0.2, 0.5, 0.6, 0.7, 0.8, 0.9)
    sizes = (4, 3, 5) if of_scores else (1,)
    estimates = [Estimate(rng.normal(size=(3, 2)), rng.lognormal(size=(3, 2, 2, 6))) for _ in sizes]
    if of_scores:
        correction = Correction(asked, grid, scores=[rng.exponential(size=(size, 2, 6)) for size in sizes])
    else:
        correction = Correction(asked, grid, rng.exponential(size=(2, 6)))
    lower, upper = corrected(correction, estimates, asked)
    whole = corrected(correction, estimates, grid)
    assert_array_equal(whole[0][..., [1, 4]], lower)
    assert_array_equal(whole[1][..., [1, 4]], upper)
    assert (np.diff(whole[0]) <= 0).all()
    assert (np.diff(whole[1]) >= 0).all()


def test_the_highest_level_is_the_highest_that_the_ranked_rows_have_a_rank_for(of_two_levels):
    n_ranked = 48 if of_two_levels.calibration == Split(0.4) else 120
    highest = 0.97 if n_ranked == 48 else 0.99  # 0.97 x 49 = 47.5; 0.99 x 121 = 119.8
    assert of_two_levels.predictor_.correction.levels[-1] == highest
    with pytest.raises(ValueError, match=f"coverage must be at most {highest}, .* got 0.995; fit with more rows, or"):
        of_two_levels.predict_interval(X, [0.5, 0.995])
    of_two_levels.predict_quantiles(X, 0.999)  # tails of distributions go on


def test_without_ranks_every_level_is_known_and_lies_where_the_normal_law_has_it():
    model = fitted(Y[:, 0], calibration=None, coverage=0.8)
    width = model.predict_interval(X, [0.8, 0.5, 0.73, 0.998]).width
    assert_allclose(width / width[:, :1], np.tile(norm.ppf([0.9, 0.75, 0.865, 0.999]) / norm.ppf(0.9), (120, 1)))


def test_bounds_between_ranked_levels_are_linear_in_the_normal_quantile():
    # Ranked at .5 and .8; at .7 the share of the way is (z(.7) - z(.5)) / (z(.8) - z(.5)).
    model = fitted(Y[:, 0])
    lower, upper = model.predict_interval(X, [0.7, 0.73, 0.8])
    z70, z73, z80 = norm.ppf([0.85, 0.865, 0.9])
    share = (z73 - z70) / (z80 - z70)
    assert_allclose(lower[:, 1], (1 - share) * lower[:, 0] + share * lower[:, 2])
    assert_allclose(upper[:, 1], (1 - share) * upper[:, 0] + share * upper[:, 2])


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_new_rows_are_covered_as_asked_at_levels_that_were_not_fitted(calibration):
    law, levels, n_rows, n_fits, n_new = laws()["heteroscedastic"], np.array([0.3, 0.5, 0.73, 0.9, 0.95]), 400, 3, 4000
    changes = {"network": SMALL, "folds": 3, "companions": (), "schedule": Schedule(max_rounds=2), "repeats": 1}
    changes["calibration"] = Split(0.5) if calibration == "split" else calibration
    models = [MatchedRegressor(0.8, random_state=seed, **changes) for seed in range(n_fits)]
    fit_together(models, [(*law.draw(n_rows, random_state=seed), None) for seed in range(n_fits)])
    X_new, _ = law.draw(n_new, random_state=10_000)
    covered = []
    for model in models:
        lower, upper = model.predict_interval(X_new, levels)
        covered.append([law.exact_coverage(X_new, lo, up).mean() for lo, up in zip(lower.T, upper.T, strict=True)])
    error = np.sqrt(levels * (1 - levels) / (n_fits * n_rows * (0.5 if calibration == "split" else 1.0)))
    # Out of fold, fewer rows train and fewer members are averaged than are deployed: a little more is covered.
    more = 0.0 if calibration == "split" else 0.03
    assert (np.mean(covered, axis=0) > levels - 3 * error - 0.005).all()
    assert (np.mean(covered, axis=0) < levels + 3 * error + more).all()
