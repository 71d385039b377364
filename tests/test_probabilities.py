import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from coverwell.class_metrics import log_loss
from coverwell.probabilities import (
    CALIBRATORS,
    PENALTY,
    Beta,
    MixedTemperature,
    Platt,
    Quadratic,
    Temperature,
    VennAbers,
    fit_calibrator,
    fitted,
)

every_kind = pytest.mark.parametrize("kind", CALIBRATORS, ids=lambda kind: kind.__name__)
seeds = st.integers(0, 2**16)


def probabilities(kind, seed, rows=12):
    return np.random.default_rng(seed).dirichlet(np.ones(2 if kind.for_two else 4), rows)


def drawn(p, seed=0):
    """One class for each row, drawn from its probabilities: 1 at the class."""
    u = np.random.default_rng(seed).uniform(size=(len(p), 1))
    return np.eye(p.shape[1])[(u > p.cumsum(axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)]


def tempered(p, temperature):
    z = p ** (1 / temperature)
    return z / z.sum(axis=1, keepdims=True)


def applied(calibrator, p):
    return calibrator(torch.tensor(p, dtype=torch.float64)).numpy()


def odds(p):
    return np.log(p[:, 1] / p[:, 0])


# What each calibrator computes ---------------------------------------------------------------------------------------


@every_kind
@given(seed=seeds)
def test_parameters_of_zero_leave_probabilities_as_they_are(kind, seed):
    p = probabilities(kind, seed)
    assert_allclose(applied(kind(np.zeros(kind.n_parameters)), p), p, atol=1e-11)


def test_a_temperature_of_a_half_squares_by_hand():
    assert_allclose(applied(Temperature(np.log([2.0])), [[0.6, 0.3, 0.1]]), [[0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46]])


def test_a_mixture_of_tempered_given_and_equal_probabilities_by_hand():
    # Weights 1, 1/2 and 1/2 of four halves: half of it tempered, a quarter as it was, a quarter equal.
    mixed = applied(MixedTemperature(np.array([np.log(2), 0.5, 0.5])), [[0.75, 0.25]])
    assert_allclose(mixed, [[0.9 / 2 + 0.75 / 4 + 0.5 / 4, 0.1 / 2 + 0.25 / 4 + 0.5 / 4]])


def test_platt_stretches_and_shifts_the_logit_by_hand():
    assert_allclose(odds(applied(Platt(np.array([np.log(2), 0.5])), [[0.2, 0.8]])), [2 * np.log(4) + 0.5])


def test_beta_by_hand():
    # 2 log .8 - 3 log .2 + 1
    found = applied(Beta(np.array([np.log(2), np.log(3), 1.0])), [[0.2, 0.8]])
    assert_allclose(odds(found), [2 * np.log(0.8) - 3 * np.log(0.2) + 1])


def test_quadratic_by_hand():
    z, bend = np.log(4), np.tanh(0.3)
    found = applied(Quadratic(np.array([np.log(2), 0.3, 1.0])), [[0.2, 0.8]])
    assert_allclose(odds(found), [2 * (z + bend * (np.sqrt(1 + z**2) - 1)) + 1])


@every_kind
@given(seed=seeds, values=st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_calibrated_are_probabilities_in_the_same_order(kind, seed, values):
    bounded = np.maximum(values, kind.least)[: kind.n_parameters] if kind.least else values[: kind.n_parameters]
    p = probabilities(kind, seed)
    found = applied(kind(np.array(bounded)), p)
    assert_allclose(found.sum(axis=1), 1)
    assert (found >= 0).all()
    if kind.for_two:  # rows stay in their order, by the probability of the second class
        assert (np.diff(found[p[:, 1].argsort(), 1]) >= -1e-15).all()
    else:  # classes of a row do
        assert (np.diff(np.take_along_axis(found, p.argsort(axis=1), axis=1)) >= -1e-15).all()


@every_kind
def test_certain_rows_stay_finite(kind):
    p = np.eye(2 if kind.for_two else 4)
    assert np.isfinite(applied(kind(np.full(kind.n_parameters, 0.5)), p)).all()


@every_kind
def test_too_many_numbers_are_refused(kind):
    with pytest.raises(ValueError, match=rf"has {kind.n_parameters} numbers, got the shape \(4,\)"):
        kind(np.zeros(4))


# How they are fitted -------------------------------------------------------------------------------------------------


def test_the_temperature_of_a_known_optimum():
    # All rows say .8, .1, .1, and .6, .2, .2 of them come: odds of 8 become odds of 3.
    p, y = np.tile([0.8, 0.1, 0.1], (5000, 1)), np.eye(3)[np.repeat([0, 1, 2], [3000, 1000, 1000])]
    found = fitted(Temperature, p, y, None)
    # The penalty is worth one row in 5000.
    assert_allclose(found.values, [np.log(np.log(3) / np.log(8))], atol=2e-3)
    assert_allclose(applied(found, p[:1]), [[0.6, 0.2, 0.2]], atol=1e-3)


def platt_objective(values, p, y, weight):
    z = np.exp(values[0]) * odds(p) + values[1]
    loss = weight @ np.where(y[:, 1] > 0, np.logaddexp(0, -z), np.logaddexp(0, z))
    return loss + PENALTY * np.square(values).sum()


def temperature_objective(values, p, y, weight):
    z = np.exp(values[0]) * np.log(p)
    return weight @ (np.logaddexp.reduce(z, axis=1) - (z * y).sum(axis=1)) + PENALTY * values[0] ** 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "objective"), [(Platt, platt_objective), (Temperature, temperature_objective)])
def test_the_fitted_numbers_are_those_of_a_direct_search(kind, objective, weighted):
    p = probabilities(kind, seed=0, rows=150)
    y = drawn(tempered(p, 2.0))
    weight = np.random.default_rng(1).uniform(0.5, 2, len(p)) if weighted else np.ones(len(p))
    known = p, y, weight / weight.mean()
    twin = minimize(objective, np.zeros(kind.n_parameters), args=known, method="Nelder-Mead", options={"fatol": 1e-9})
    found = fitted(kind, p, y, weight if weighted else None)
    assert_allclose(found.values, twin.x, atol=2e-3)
    assert objective(found.values.numpy(), *known) <= twin.fun + 1e-4


@every_kind
def test_few_rows_are_drawn_towards_leaving_probabilities_alone(kind):
    p = probabilities(kind, seed=0, rows=1)
    found = fitted(kind, p, np.eye(p.shape[1])[p.argmin(axis=1)], None)
    assert found.values.abs().max() < 1.0


@every_kind
def test_a_fit_is_no_worse_than_none(kind):
    p = probabilities(kind, seed=0, rows=300)
    y = drawn(tempered(p, 3.0))
    before, after = (log_loss(y.argmax(axis=1), one) for one in (p, applied(fitted(kind, p, y, None), p)))
    assert after < before


# Which one is kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_that_are_too_sure_get_a_calibrator_that_helps_new_ones(classes):
    p = np.random.default_rng(0).dirichlet(np.ones(classes), 2000)
    sure, y = tempered(p, 0.4), drawn(p).argmax(axis=1)
    calibrator = fit_calibrator(sure[:1000], np.eye(classes)[y[:1000]], None, seed=0)
    assert calibrator is not None
    assert calibrator.for_two == (classes == 2)
    # Not far from the true probabilities, which are the best: a few parameters in 1000 rows.
    new, least = log_loss(y[1000:], applied(calibrator, sure[1000:])), log_loss(y[1000:], p[1000:])
    assert least - 0.01 < new < least + 0.01 < log_loss(y[1000:], sure[1000:])


def test_a_calibrator_is_rarely_kept_where_probabilities_are_right():
    kept = 0
    for seed in range(20):
        p = np.random.default_rng(seed).dirichlet(np.ones(4), 300)
        kept += fit_calibrator(p, drawn(p, seed), None, seed) is not None
    # Two kinds, each a standard error better by chance: .16 at most for either, of 20; three standard errors above.
    assert kept <= 0.32 * 20 + 3 * np.sqrt(20 * 0.32 * 0.68)


def test_the_same_seed_keeps_the_same_calibrator():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    y = drawn(tempered(p, 3.0))
    one, same = (fit_calibrator(p, y, None, seed=3) for _ in range(2))
    assert type(one) is type(same)
    assert_array_equal(one.values, same.values)


# Venn-Abers ----------------------------------------------------------------------------------------------------------


def directly(p, is_second, weight, new):
    """Two isotonic regressions for each new row, with that row under either label."""
    found = np.empty((2, len(new)))
    for number, own in enumerate(new):
        for label in (0, 1):
            rows, labels = np.append(p, own), np.append(is_second, label)
            isotonic = IsotonicRegression(y_min=0, y_max=1).fit(rows, labels, np.append(weight, 1.0))
            found[label, number] = isotonic.predict([own])[0]
    return found


grids = arrays(np.float64, st.integers(1, 12), elements=st.integers(1, 9).map(lambda k: k / 10))


@settings(max_examples=60)
@given(p=grids, seed=seeds, weighted=st.booleans())
def test_venn_abers_is_what_isotonic_regressions_give_directly(p, seed, weighted):
    rng = np.random.default_rng(seed)
    is_second, weight = rng.uniform(size=len(p)) < p, rng.uniform(0.5, 2, len(p)) if weighted else np.ones(len(p))
    new = np.sort(np.concatenate([p, rng.uniform(size=4), [0.0, 1.0]]))
    low, high = VennAbers.of(p, is_second, weight)(torch.from_numpy(new))
    right = directly(p, is_second, weight / weight.mean(), new)
    assert_allclose(low, right[0], atol=1e-9)
    assert_allclose(high, right[1], atol=1e-9)


def test_venn_abers_by_hand():
    # Between .2 (first class) and .8 (second class), a row of its own: 0 under the first label, 1 under the second.
    low, high = VennAbers.of(np.array([0.2, 0.8]), np.array([False, True]), None)(torch.tensor([0.1, 0.5, 0.9]))
    # At .1 under the second label, it joins the row at .2: (1 + 0) / 2. At .9 under the first, the row at .8.
    assert_allclose(low, [0.0, 0.0, 0.5])
    assert_allclose(high, [0.5, 1.0, 1.0])


def test_the_interval_narrows_with_rows():
    rng, widths = np.random.default_rng(0), []
    for n in (50, 500, 5000):
        p = rng.uniform(size=n)
        low, high = VennAbers.of(p, rng.uniform(size=n) < p, None)(torch.linspace(0.05, 0.95, 19))
        assert (low <= high).all()
        assert (low.diff() >= 0).all()
        assert (high.diff() >= 0).all()
        widths.append(float((high - low).mean()))
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_many_scores_are_joined_and_say_about_the_same():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=3000)
    joined = VennAbers.of(p, rng.uniform(size=3000) < p, None)
    assert len(joined.scores) <= 1000
    low, high = joined(torch.linspace(0, 1, 101, dtype=torch.float64))
    # An isotonic regression of n rows errs by about n^(-1/3).
    assert np.abs((low + high).numpy() / 2 - np.linspace(0, 1, 101)).mean() < 3000 ** (-1 / 3)


def test_the_probability_of_the_true_label_is_calibrated():
    """Vovk's promise: of all rows with this probability, whichever label came, that share has the second class."""
    rng, found, came = np.random.default_rng(0), [], []
    for _ in range(400):
        p = np.round(rng.uniform(size=21), 1)
        is_second = rng.uniform(size=21) < np.sqrt(p)  # p itself is wrong
        low, high = VennAbers.of(p[:20], is_second[:20], None)(torch.from_numpy(p[20:]))
        found.append(float(high if is_second[20] else low))
        came.append(is_second[20])
    error = np.array(came) - np.array(found)
    assert abs(error.mean()) < 4 * np.std(error, ddof=1) / 20
    upper = np.array(found) > 0.75
    assert abs(error[upper].mean()) < 4 * np.std(error[upper], ddof=1) / np.sqrt(upper.sum())


def test_places_must_be_one_more_than_scores():
    with pytest.raises(ValueError, match="2 scores part 3 places, got 2 and 3"):
        VennAbers(np.array([0.1, 0.2]), np.zeros(2), np.zeros(3))
