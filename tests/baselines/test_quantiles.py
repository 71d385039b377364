import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.linear_model import QuantileRegressor
from tests.synthetic import laws

from coverwell import MLP
from coverwell.baselines import NeuralQuantileRegressor

LINEAR = MLP(hidden=1, layers=1, bins=0)
N, SIGMA, P = 500, 0.5, 0.8


def linear_law(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    return x, 2 * x[:, 0] - x[:, 1] + 3 + SIGMA * rng.normal(size=n)


X, Y = linear_law(N, seed=0)
X_NEW, Y_NEW = linear_law(4000, seed=1)
X_NEW = X_NEW.clip(X.min(axis=0), X.max(axis=0))


@pytest.fixture(scope="module", name="model")
def linear_network():
    return NeuralQuantileRegressor(
        P, network=LINEAR, learning_rate=0.01, max_epochs=150, patience=150, random_state=0
    ).fit(X, Y)


def standard_error(x, share):
    """Of a linear quantile at each row, from N rows (Koenker and Bassett 1978): sqrt(q (1 - q) h / N) / density.

    h = 1 + |x|^2 / variance is the squared length of the row in the metric of the inputs, here uniform on [-1, 1].
    """
    density = stats.norm.pdf(stats.norm.ppf(share)) / SIGMA
    lever = 1 + 3 * (x**2).sum(axis=1)
    return np.sqrt(share * (1 - share) * lever / N) / density


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_linear_network_has_the_quantiles_of_scikit_learns_linear_quantile_regression(model, share):
    """Both estimate the same truth, ours from nine tenths of the rows, and its ends as reaches from the median.

    Most of the error is common to both, so they lie nearer to each other than a standard error or two.
    """
    twin = QuantileRegressor(quantile=share, alpha=0.0).fit(X, Y).predict(X_NEW)
    lower, upper = model.predict_interval(X_NEW)
    said = {0.1: lower, 0.5: model.predict(X_NEW), 0.9: upper}[share]
    error = standard_error(X_NEW, share)
    assert np.sqrt(np.mean(((said - twin) / error) ** 2)) < 1.0
    truth = 2 * X_NEW[:, 0] - X_NEW[:, 1] + 3 + SIGMA * stats.norm.ppf(share)
    assert (np.abs(said - truth) < 4 * error).all()


def test_the_share_of_new_rows_below_a_quantile_and_inside_is_the_asked_one(model):
    """The error of the share: that of a quantile's level from 450 rows and three parameters, and that of counting."""
    lower, upper = model.predict_interval(X_NEW)
    for share, quantile in ((0.1, lower), (0.5, model.predict(X_NEW)), (0.9, upper)):
        error = math.sqrt(share * (1 - share) * (1 / (0.9 * N) + 1 / len(Y_NEW)))
        assert abs((quantile > Y_NEW).mean() - share) < 4 * error
    inside = ((lower <= Y_NEW) & (upper >= Y_NEW)).mean()
    assert abs(inside - P) < 4 * math.sqrt(P * (1 - P) * (1 / (0.9 * N) + 1 / len(Y_NEW)))


def test_bounds_are_of_unequal_reach_where_the_law_is_skewed():
    law = laws()["skewed"]
    x, y = law.draw(1000, random_state=0)
    network = MLP(hidden=32, layers=2, bins=8, dropout=0.0)
    model = NeuralQuantileRegressor(0.9, network=network, learning_rate=0.01, max_epochs=60, random_state=0).fit(x, y)
    rows = np.linspace(0.1, 0.9, 9)[:, None]
    lower, upper = model.predict_interval(rows)
    median = model.predict(rows)
    assert (upper - median > median - lower).mean() > 0.8
    x_new, _ = law.draw(2000, random_state=1)
    reached = law.exact_coverage(x_new, *model.predict_interval(x_new)).mean()
    assert abs(reached - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 900)


def test_levels_are_nested_in_every_row():
    levels = [0.9, 0.1, 0.5]
    model = NeuralQuantileRegressor(levels, network=LINEAR, max_epochs=10, random_state=0).fit(X, Y)
    lower, upper = model.predict_interval(X_NEW)
    inside_out = np.argsort(levels)
    assert (np.diff(lower[:, inside_out]) < 0).all()
    assert (np.diff(upper[:, inside_out]) > 0).all()
    assert (lower[:, 1] < model.predict(X_NEW)).all()


def test_members_speak_with_the_average_of_their_quantiles():
    model = NeuralQuantileRegressor(0.8, network=LINEAR, members=3, max_epochs=10, random_state=0).fit(X, Y)
    speaker = model.ensembles_[0]
    assert speaker.team.n_members == 3
    coefficients = speaker.team.layers[0].weight.numpy()[:, :, 0].mean(axis=0) * Y.std() / X.std(axis=0)
    slope = model.predict(np.array([[0.5, 0.0]])) - model.predict(np.array([[-0.5, 0.0]]))
    assert_allclose(slope, coefficients[:1])
