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
@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.99])
def test_the_true_interval_covers_its_share_of_draws_in_both_halves_of_each_input(law: Law, coverage: float) -> None:
    X, y = law.draw(N, random_state=0)
    lower, upper = law.true_interval(X, coverage)
    inside = (lower <= y) & (y <= upper)
    for half in [*(X.T < 0.5), *(X.T >= 0.5)]:  # a coverage that holds only on average would fail here
        error = np.sqrt(coverage * (1 - coverage) / half.sum())
        assert abs(inside[half].mean() - coverage) < 4.5 * error


@every_law
def test_as_many_draws_miss_below_as_above(law: Law) -> None:
    X, y = law.draw(N, random_state=1)
    lower, upper = law.true_interval(X, 0.8)
    error = np.sqrt(0.1 * 0.9 / N)
    assert abs((y < lower).mean() - 0.1) < 4.5 * error
    assert abs((y > upper).mean() - 0.1) < 4.5 * error


@every_law
def test_the_cdf_at_the_draws_is_uniform(law: Law) -> None:
    X, y = law.draw(N, random_state=2)
    assert stats.kstest(law.cdf(X, y), "uniform").pvalue > 1e-5


@every_law
def test_the_true_mean_is_the_mean_of_the_draws(law: Law) -> None:
    X, y = law.draw(N, random_state=3)
    residual = y - law.true_mean(X)
    assert abs(residual.mean()) < 4.5 * residual.std() / np.sqrt(N)


@every_law
def test_inputs_fill_the_unit_cube(law: Law) -> None:
    X, y = law.draw(N, random_state=4)
    assert X.shape == (N, law.n_features)
    assert y.shape == (N,)
    assert all(stats.kstest(column, "uniform").pvalue > 1e-5 for column in X.T)


@given(law=sampled_from(list(LAWS.values())), coverage=floats(0.01, 0.999), seed=integers(0, 1000))
def test_exact_coverage_of_the_true_interval_is_what_was_asked(law: Law, coverage: float, seed: int) -> None:
    X, _ = law.draw(20, random_state=seed)
    lower, upper = law.true_interval(X, coverage)
    np.testing.assert_allclose(law.exact_coverage(X, lower, upper), coverage, atol=1e-9)


@given(law=sampled_from(list(LAWS.values())), inner=floats(0.01, 0.98), more=floats(0.001, 0.019))
def test_intervals_of_higher_coverage_contain_those_of_lower(law: Law, inner: float, more: float) -> None:
    X, _ = law.draw(20, random_state=0)
    (lower, upper), (lower_outer, upper_outer) = law.true_interval(X, inner), law.true_interval(X, inner + more)
    assert (lower_outer < lower).all()
    assert (upper < upper_outer).all()


def test_one_standard_deviation_of_a_normal_covers_68_percent() -> None:
    X = np.array([[0.0], [0.25], [1.0]])  # the wave is 0, 1, 0
    law = LAWS["homoscedastic"]
    mean = np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(law.true_mean(X), mean, atol=1e-12)
    np.testing.assert_allclose(law.exact_coverage(X, mean - 0.3, mean + 0.3), 0.6826895, atol=1e-7)


def test_the_skewed_law_is_exponential_at_the_left_edge() -> None:
    lower, upper = LAWS["skewed"].true_interval(np.array([[0.0]]), 0.9)
    assert lower[0] == pytest.approx(-0.2 * np.log(0.95))
    assert upper[0] == pytest.approx(-0.2 * np.log(0.05))


def test_the_heteroscedastic_spread_grows_sixfold() -> None:
    lower, upper = LAWS["heteroscedastic"].true_interval(np.array([[0.0], [1.0]]), 0.9)
    width = upper - lower
    assert width[1] / width[0] == pytest.approx(6)


def test_the_heavy_tailed_interval_is_that_of_student() -> None:
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


@every_law
def test_the_same_seed_gives_the_same_rows(law: Law) -> None:
    first, second = law.draw(10, random_state=7), law.draw(10, random_state=np.random.default_rng(7))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90.0, float("nan")])
def test_a_coverage_outside_zero_and_one_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        LAWS["skewed"].true_interval(np.zeros((3, 1)), coverage)


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_inputs_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"X must have shape \(n_rows, 1\) for 'skewed'"):
        LAWS["skewed"].true_mean(np.zeros(shape))
