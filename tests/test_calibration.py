import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta, kstest, norm

from coverwell import calibration
from coverwell.calibration import (
    CrossScores,
    Estimate,
    average,
    cross_factor,
    cross_scores,
    cv_plus_bounds,
    rank_factor,
    stretch_scores,
)
from coverwell.metrics import coverage_rank

seeds = st.integers(0, 2**16)
LEVELS = (0.5, 0.9)


def estimate(rng, *leading, n_targets=2, n_levels=2):
    """Random means and nested reaches; the axes before the target are given."""
    reach = rng.lognormal(size=(*leading, n_targets, 2, n_levels)).cumsum(axis=-1)
    return Estimate(rng.normal(size=(*leading, n_targets)), reach)


def column(*values):
    """Scores or means of one target and one level."""
    return np.array(values, dtype=float).reshape(-1, 1, 1)


# Scores --------------------------------------------------------------------------------------------------------------


def test_bounds_by_hand():
    # Mean 10, reach 1 below and 2 above at the inner level, 3 and 4 at the outer; factors 2 and 0.5.
    given_ = Estimate(np.array([[10.0]]), np.array([[[[1.0, 3.0], [2.0, 4.0]]]]))
    lower, upper = given_.bounds(np.array([[2.0, 0.5]]))
    assert_array_equal(lower, [[[8.0, 8.5]]])  # 10 - 2 x 1, 10 - 0.5 x 3
    assert_array_equal(upper, [[[14.0, 12.0]]])  # 10 + 2 x 2, 10 + 0.5 x 4


@pytest.mark.parametrize(("y", "score"), [(12.0, 1.0), (14.0, 2.0), (9.5, 0.5), (7.0, 3.0), (10.0, 0.0)])
def test_scores_by_hand(y, score):
    # Mean 10, reach 1 below and 2 above: above, the residual over 2; below, its size over 1.
    given_ = Estimate(np.array([[10.0]]), np.array([[[[1.0], [2.0]]]]))
    assert_allclose(stretch_scores(np.array([[y]]), given_), [[[score]]])


@given(seed=seeds)
def test_an_interval_stretched_by_its_score_just_contains_the_value(seed):
    rng = np.random.default_rng(seed)
    given_, y = estimate(rng, 5), 3 * rng.normal(size=(5, 2))
    scores = stretch_scores(y, given_)
    for factor, inside in ((1 + 1e-9, True), (1 - 1e-6, False)):
        lower, upper = given_.bounds(scores * factor)
        assert_array_equal((lower <= y[..., None]) & (y[..., None] <= upper), np.full((5, 2, 2), inside))


@given(seed=seeds, unit=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_scores_depend_on_neither_unit_nor_origin(seed, unit, shift):
    rng = np.random.default_rng(seed)
    given_, y = estimate(rng, 5), rng.normal(size=(5, 2))
    moved = Estimate(given_.mean * unit + shift, given_.reach * unit)
    assert_allclose(stretch_scores(y * unit + shift, moved), stretch_scores(y, given_), rtol=1e-7, atol=1e-9)


def test_an_empty_interval_has_a_large_but_finite_score():
    scores = stretch_scores(np.array([[1.0], [0.0]]), Estimate(np.zeros((2, 1)), np.zeros((2, 1, 2, 1))))
    assert np.isfinite(scores).all()
    assert scores[0, 0, 0] > 1e6
    assert scores[1, 0, 0] == 0  # nothing has to be stretched to reach the mean


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


@given(seed=seeds, order=st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(seed, order):
    scores = np.random.default_rng(seed).exponential(size=(12, 2, 2))
    assert_array_equal(rank_factor(scores[list(order)], LEVELS), rank_factor(scores, LEVELS))


def test_too_few_rows_for_a_level_are_refused_with_their_number():
    with pytest.raises(ValueError, match="needs at least 9 rows, got 8"):
        rank_factor(np.zeros((8, 1, 1)), (0.9,))


@pytest.mark.parametrize(("level", "n"), [(0.5, 20), (0.9, 39), (0.9, 100), (0.95, 200)])
def test_the_coverage_of_split_ranks_follows_the_beta_law(level, n):
    # With continuous scores, the coverage on new rows given n calibration rows is Beta(k, n + 1 - k).
    rng = np.random.default_rng(0)
    n_draws = 2000
    mean, reach = rng.normal(size=(n_draws, n)), rng.lognormal(size=(n_draws, n))
    y = mean + reach * rng.normal(size=(n_draws, n))  # reach is right up to a factor
    scores = stretch_scores(y.T, Estimate(mean.T, np.stack([reach.T] * 2, axis=-1)[..., None]))  # draws are targets
    covered = 2 * norm.cdf(rank_factor(scores, (level,))[:, 0]) - 1
    k = coverage_rank(level, n)
    law = beta(k, n + 1 - k)
    assert kstest(covered, law.cdf).pvalue > 1e-4
    error = law.std() / np.sqrt(n_draws)
    assert abs(covered.mean() - k / (n + 1)) < 4 * error
    assert covered.mean() > level - 4 * error


# Cross: ranks of out-of-fold scores ----------------------------------------------------------------------------------


def test_the_average_of_speaking_members_by_hand():
    members = Estimate(column(1, 2, 3, 4, 5, 6).reshape(3, 2, 1), np.arange(12.0).reshape(3, 2, 1, 2, 1))
    speaks = np.array([[True, False], [False, False], [True, True]])
    result = average(members, speaks)
    assert_allclose(result.mean[:, 0], [3.0, 6.0])  # (1 + 5) / 2 and 6
    assert_allclose(result.reach[:, 0, :, 0], [[4.0, 5.0], [10.0, 11.0]])  # ([0, 1] + [8, 9]) / 2 and [10, 11]


@given(seed=seeds)
def test_the_average_is_numpys_over_the_members_that_speak(seed):
    rng = np.random.default_rng(seed)
    members, speaks = estimate(rng, 4, 6), rng.random((4, 6)) < 0.5
    speaks[0] = True
    result = average(members, speaks)
    for row in range(6):
        assert_allclose(result.mean[row], members.mean[speaks[:, row], row].mean(axis=0))
        assert_allclose(result.reach[row], members.reach[speaks[:, row], row].mean(axis=0))


@given(seed=seeds)
def test_cross_scores_are_those_of_heard_rows_by_averages_and_by_single_members(seed):
    rng = np.random.default_rng(seed)
    members, y = estimate(rng, 4, 6), rng.normal(size=(6, 2))
    speaks = rng.random((4, 6)) < 0.5
    speaks[:, 0], speaks[:2, 1] = False, True
    scores = cross_scores(y, members, speaks)
    heard = speaks.any(axis=0)
    assert_allclose(scores.averaged, stretch_scores(y, average(members, speaks))[heard])
    singles = [
        stretch_scores(y[row], Estimate(members.mean[m, row], members.reach[m, row])) for m, row in np.argwhere(speaks)
    ]
    assert_allclose(scores.singles, singles)
    assert scores.n_members == 4
    assert_allclose(scores.n_left_out, speaks.sum() / heard.sum())


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


def test_with_one_member_per_row_the_plain_rank_is_taken():
    scores = cross([1, 2, 3], [1, 2, 3], n_left_out=1.0, n_members=5)
    assert_array_equal(cross_factor(scores, (0.5,)), [[2.0]])


def test_single_members_that_err_less_than_their_average_do_not_widen_the_interval():
    scores = cross([1, 2, 3], [1, 1, 1], n_left_out=2.0, n_members=4)
    assert_array_equal(cross_factor(scores, (0.5,)), [[2.0]])


@given(seed=seeds, r=st.floats(1.1, 5), more=st.integers(0, 20))
def test_the_factor_lies_between_the_plain_rank_and_the_least_that_theory_allows(seed, r, more):
    rng = np.random.default_rng(seed)
    n_members = int(np.ceil(r)) + more
    scores = CrossScores(rng.exponential(size=(30, 2, 2)), rng.exponential(size=(60, 2, 2)), r, n_members)
    plain, factor = rank_factor(scores.averaged, LEVELS), cross_factor(scores, LEVELS)
    assert (factor <= plain * (1 + 1e-12)).all()
    assert (factor >= plain * np.sqrt(r / n_members) * (1 - 1e-12)).all()


def test_a_team_that_leaves_every_row_out_needs_no_extrapolation():
    scores = cross([1, 2, 3], [2, 4, 6], n_left_out=4.0, n_members=4)
    assert_allclose(cross_factor(scores, (0.5,)), [[2.0]])


def simulated_team(rng, *, n_rows, n_members, n_left_out, disagreement):
    """Scores of a team whose members say the truth plus independent noise, each row left out by some at random."""
    said = disagreement * rng.normal(size=(n_members, n_rows, 1))
    members = Estimate(said, np.ones((n_members, n_rows, 1, 2, 1)))
    places = rng.random((n_members, n_rows)).argsort(axis=0)
    return cross_scores(rng.normal(size=(n_rows, 1)), members, places < n_left_out)


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


def test_the_joint_score_is_the_largest_in_units_of_each_targets_factor():
    scores = CrossScores(np.array([[[2.0], [9.0]], [[6.0], [3.0]]]), np.array([[[4.0], [1.0]]]), 1.0, 5)
    joint = scores.joint(np.array([[2.0], [3.0]]))
    assert_allclose(joint.averaged, [[[3.0]], [[3.0]]])  # max(2 / 2, 9 / 3), max(6 / 2, 3 / 3)
    assert_allclose(joint.singles, [[[2.0]]])  # max(4 / 2, 1 / 3)
    assert (joint.n_left_out, joint.n_members) == (1.0, 5)


def test_joint_boxes_hold_all_targets_together():
    # 3 independent targets; ranks of the joint score cover each new row in all targets with the asked probability.
    rng = np.random.default_rng(1)
    level, n, n_draws, spread = 0.8, 99, 400, np.array([[1.0], [2.0], [0.5]])
    covered = []
    for _ in range(n_draws):
        residuals = np.abs(rng.normal(size=(n, 3, 1)) * spread)
        scores = CrossScores(residuals, residuals, n_left_out=1.0, n_members=5).joint(spread)
        box = spread * cross_factor(scores, (level,))
        covered.append(np.prod(2 * norm.cdf(box / spread) - 1))
    assert abs(np.mean(covered) - level) < 4 * np.std(covered) / np.sqrt(n_draws)  # rank 80 of 99


# CV+: each left-out team's interval, stretched by the scores of the rows it left out ---------------------------------


def naive_cv_plus(estimates, scores, coverage):
    """The definition, row by row and score by score."""
    n = sum(len(part) for part in scores)
    n_rows, n_targets = estimates[0].mean.shape
    lower, upper = np.empty((2, n_rows, n_targets, len(coverage)))
    for row, target, position in np.ndindex(lower.shape):
        ends = [
            (
                e.mean[row, target] - s * e.reach[row, target, 0, position],
                e.mean[row, target] + s * e.reach[row, target, 1, position],
            )
            for e, part in zip(estimates, scores, strict=True)
            for s in part[:, target, position]
        ]
        k = coverage_rank(coverage[position], n)
        centre = np.mean([e.mean[row, target] for e in estimates])
        lower[row, target, position] = min(sorted(end[0] for end in ends)[n - k], centre)
        upper[row, target, position] = max(sorted(end[1] for end in ends)[k - 1], centre)
    return lower, upper


def random_cv_plus(seed, n_rows=3, sizes=(4, 3, 5)):
    rng = np.random.default_rng(seed)
    return [estimate(rng, n_rows) for _ in sizes], [rng.exponential(size=(size, 2, 2)) for size in sizes]


def test_cv_plus_by_hand():
    # Two teams say 0 and 1 with reach 1; scores 1, 2 of the first, 3, 4 of the second; at 0.6 the rank is 3 of 4.
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


@given(seed=seeds)
def test_cv_plus_of_equal_teams_is_the_stretched_interval(seed):
    rng = np.random.default_rng(seed)
    one = estimate(rng, 3)
    scores = rng.exponential(size=(12, 2, 2))
    lower, upper = cv_plus_bounds([one, one], [scores[:5], scores[5:]], LEVELS)
    expected = one.bounds(rank_factor(scores, LEVELS))
    assert_allclose(lower, expected[0])
    assert_allclose(upper, expected[1])


@given(seed=seeds)
def test_cv_plus_holds_the_prediction(seed):
    estimates, scores = random_cv_plus(seed)
    tight = [0.01 * part for part in scores]  # the teams are further apart than their intervals are wide
    lower, upper = cv_plus_bounds(estimates, tight, (0.1, 0.5))
    centre = np.mean([e.mean for e in estimates], axis=0)[..., None]
    assert (lower <= centre).all()
    assert (centre <= upper).all()


def test_cv_plus_is_the_same_in_parts(monkeypatch):
    estimates, scores = random_cv_plus(0, n_rows=7)
    whole = cv_plus_bounds(estimates, scores, LEVELS)
    monkeypatch.setattr(calibration, "CHUNK", 24)  # 12 scores: two rows at a time
    for part, side in zip(cv_plus_bounds(estimates, scores, LEVELS), whole, strict=True):
        assert_array_equal(part, side)


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
        scores.append(stretch_scores(y[fold, None], Estimate((X[fold] @ learned)[:, None], unit)))
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
