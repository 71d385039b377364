"""The laws draw from the distributions they describe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, sampled_from
from scipy import stats

from tests.synthetic import Law, laws

LAWS = laws()
N = 100_000
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())


@every_law
def test_draws_follow_the_law_in_both_halves_of_each_input(law: Law) -> None:
    X, y = law.draw(N, random_state=2)
    assert (X.shape, y.shape) == ((N, law.n_features), (N,))
    assert all(stats.kstest(column, "uniform").pvalue > 1e-5 for column in X.T)
    ranks, residual = law.cdf(X, y), y - law.true_mean(X)
    for half in [*(X.T < 0.5), *(X.T >= 0.5)]:  # a law that holds only on average would fail here
        assert stats.kstest(ranks[half], "uniform").pvalue > 1e-5
        assert abs(residual[half].mean()) < 4.5 * residual[half].std() / np.sqrt(half.sum())


@given(law=sampled_from(list(LAWS.values())), coverage=floats(0.01, 0.999), seed=integers(0, 1000))
def test_the_true_interval_has_the_exact_coverage_and_equal_tails(law: Law, coverage: float, seed: int) -> None:
    X, _ = law.draw(20, random_state=seed)
    lower, upper = law.true_interval(X, coverage)
    np.testing.assert_allclose(law.exact_coverage(X, lower, upper), coverage, atol=1e-9)
    np.testing.assert_allclose(law.cdf(X, lower), (1 - coverage) / 2, atol=1e-9)


def test_one_standard_deviation_of_a_normal_covers_68_percent() -> None:
    X = np.array([[0.0], [0.25], [1.0]])  # the wave is 0, 1, 0
    law = LAWS["homoscedastic"]
    mean = np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(law.true_mean(X), mean, atol=1e-12)
    np.testing.assert_allclose(law.exact_coverage(X, mean - 0.3, mean + 0.3), 0.6826895, atol=1e-7)


def test_the_spread_grows_sixfold_and_the_skewed_law_is_exponential_at_the_left_and_the_heavy_tailed_students() -> None:
    lower, upper = LAWS["heteroscedastic"].true_interval(np.array([[0.0], [1.0]]), 0.9)
    assert np.divide(*(upper - lower)[::-1]) == pytest.approx(6)
    bounds = LAWS["skewed"].true_interval(np.array([[0.0]]), 0.9)
    np.testing.assert_allclose(bounds, -0.2 * np.log([[0.95], [0.05]]))
    lower, upper = LAWS["heavy tailed"].true_interval(np.array([[0.5]]), 0.95)
    assert upper[0] == pytest.approx(0.2 * 2.776445, abs=1e-6)  # t table, 4 degrees of freedom, 97.5 %
    assert lower[0] == pytest.approx(-upper[0])


def test_the_last_four_of_many_inputs_have_no_effect() -> None:
    law = LAWS["many inputs"]
    X, y = law.draw(100, random_state=0)
    changed = X.copy()
    changed[:, 6:] = 0.5
    np.testing.assert_array_equal(law.cdf(X, y), law.cdf(changed, y))
    for informative in range(6):
        changed = X.copy()
        changed[:, informative] = 0.3
        assert not np.array_equal(law.cdf(X, y), law.cdf(changed, y))


def test_crossed_bounds_cover_nothing() -> None:
    X, y = LAWS["skewed"].draw(50, random_state=0)
    np.testing.assert_array_equal(LAWS["skewed"].exact_coverage(X, y + 1, y - 1), 0.0)
