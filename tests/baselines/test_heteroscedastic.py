import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from tests.synthetic import laws
from torch.nn.functional import softplus

from coverwell import MLP
from coverwell.baselines import HeteroscedasticRegressor

LAW = laws()["heteroscedastic"]  # N(sin(2 pi x), (0.1 + 0.5 x)^2)
LEVELS = [0.5, 0.9]
N = 1500
ROWS = np.linspace(0.02, 0.98, 49)[:, None]


@pytest.fixture(scope="module", name="model")
def on_a_known_law():
    network = MLP(hidden=32, layers=3, bins=8, dropout=0.0)
    model = HeteroscedasticRegressor(LEVELS, network=network, learning_rate=5e-3, max_epochs=80, random_state=0)
    return model.fit(*LAW.draw(N, random_state=0))


def sd_of(model, x):
    return model.predict_interval(x, 0.9).width / (2 * stats.norm.ppf(0.95))


def test_the_mean_is_that_of_the_law(model):
    """Some twenty weights do the work: the error is that of a mean over a twentieth of the training rows."""
    true_sd = 0.1 + 0.5 * ROWS[:, 0]
    error = (model.predict(ROWS) - LAW.true_mean(ROWS)) / (true_sd / math.sqrt(0.9 * N / 20))
    assert np.sqrt(np.mean(error**2)) < 2.0
    assert np.abs(error).max() < 5.0


def test_the_standard_deviation_is_that_of_the_law(model):
    """A standard deviation from m rows has a relative error of 1 / sqrt(2 m)."""
    ratio = sd_of(model, ROWS) / (0.1 + 0.5 * ROWS[:, 0])
    error = 1 / math.sqrt(2 * 0.9 * N / 20)
    assert np.sqrt(np.mean((ratio - 1) ** 2)) < 2.0 * error
    assert np.abs(ratio - 1).max() < 5.0 * error


def test_coverage_is_the_asked_one_on_average_and_near_it_everywhere(model):
    x, _ = LAW.draw(2000, random_state=1)
    lower, upper = model.predict_interval(x)
    for place, p in enumerate(LEVELS):
        reached = LAW.exact_coverage(x, lower[:, place], upper[:, place])
        assert abs(reached.mean() - p) < 4 * math.sqrt(p * (1 - p) / (0.9 * N))
        assert (np.abs(reached - p) < 0.2).mean() > 0.95


def test_levels_come_from_one_standard_deviation(model):
    inner, outer = model.predict_interval(ROWS).width.T
    assert_allclose(outer / inner, stats.norm.ppf(0.95) / stats.norm.ppf(0.75))


def test_the_prediction_is_the_middle_of_every_interval(model):
    lower, upper = model.predict_interval(ROWS)
    assert_allclose((lower + upper) / 2, np.repeat(model.predict(ROWS)[:, None], 2, axis=1))


def test_a_linear_network_finds_the_least_squares_line_and_the_spread_around_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = x @ [1.0, -2.0] + 5 + 0.7 * rng.normal(size=400)
    model = HeteroscedasticRegressor(
        0.9, network=MLP(hidden=1, layers=1, bins=0), learning_rate=0.01, max_epochs=200, random_state=0
    ).fit(x, y)
    team, scale = model.ensembles_[0].team, y.std()
    slope = team.layers[0].weight[0, :, 0].numpy() * scale / x.std(axis=0)
    assert_allclose(slope, [1.0, -2.0], atol=4 * 0.7 / math.sqrt(360))
    sd = softplus(team.layers[0].bias[0, 0, 1]).item() * scale
    assert_allclose(sd, 0.7, rtol=4 / math.sqrt(2 * 360))


def test_it_has_no_second_reading(model):
    with pytest.raises(TypeError, match="noise"):
        model.predict_interval(ROWS, noise=False)
