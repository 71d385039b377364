import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from coverwell import LSTM, MLP
from coverwell.baselines import BayesByBackpropRegressor
from coverwell.baselines.bayes_by_backprop import BayesNetwork, normal_kl
from coverwell.baselines.training import BaselineTraining, NormalHead
from coverwell.training.device import Settings
from coverwell.training.learner import Learner
from coverwell.training.rows import Rows

LINEAR = MLP(hidden=1, layers=1, bins=0)
# Networks of four inputs (an LSTM's are three steps of one channel, and one number beside them), and how many inputs
# each of their weights has; biases have one.
PLAIN = {"mlp": MLP(hidden=6, layers=3, bins=0), "lstm": LSTM(hidden=5, layers=2, steps=3)}
INPUTS = {
    "mlp": {"linears.0.weight": 4, "linears.1.weight": 6, "linears.2.weight": 6},
    "lstm": {
        **dict.fromkeys(["layers.0.recurrent", "layers.1.weight", "layers.1.recurrent", "head.weight"], 5),
        "shortcut.weight": 3,
    },
}
both_kinds = pytest.mark.parametrize("kind", PLAIN)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def team_of(n_members=2, kind="mlp", *, plain=None, kl_weight=1.0):
    """A team whose standard deviations all differ, and are large enough to matter."""
    torch.manual_seed(0)
    team = BayesNetwork(plain or PLAIN[kind], prior_scale=0.7, kl_weight=kl_weight).build(n_members, (4,), 2).double()
    for spread in team.spreads.parameters():
        torch.nn.init.uniform_(spread, -2.0, 0.0)
    return team.requires_grad_(False)


def test_the_divergence_of_two_normal_distributions_by_hand():
    """KL(N(1, 2^2) || N(0, 4^2)) = log 2 + (4 + 1) / 32 - 1 / 2."""
    value = normal_kl(torch.tensor(1.0), torch.tensor(2.0), 4.0)
    assert value.item() == pytest.approx(math.log(2) + 5 / 32 - 0.5)
    assert normal_kl(torch.tensor(0.0), torch.tensor(0.3), 0.3).item() == pytest.approx(0.0, abs=1e-7)


@given(mean=st.floats(-5, 5), sd=st.floats(1e-3, 10), prior_sd=st.floats(0.01, 10))
def test_the_divergence_is_that_of_torch_and_never_negative(mean, sd, prior_sd):
    mean, sd, prior = (torch.tensor(value, dtype=torch.float64) for value in (mean, sd, prior_sd))
    ours = normal_kl(mean, sd, prior_sd)
    assert_allclose(ours, kl_divergence(Normal(mean, sd), Normal(torch.zeros_like(mean), prior)), rtol=1e-9, atol=1e-9)
    assert ours >= -1e-12


@both_kinds
def test_the_penalty_is_the_sum_over_all_weights_times_its_weight(kind):
    """The prior of a weight has the scale over the root of its inputs, that of a bias the scale itself."""
    team = team_of(kind=kind, kl_weight=0.4)
    spreads = dict(team.spreads.named_parameters())
    for member in range(2):
        expected = 0.0
        for name, mean in team.weights.items():
            prior_sd = torch.full_like(mean[member], 0.7 / math.sqrt(INPUTS[kind].get(name, 1)))
            learned = Normal(mean[member], softplus(spreads[name][member]))
            expected += kl_divergence(learned, Normal(torch.zeros_like(prior_sd), prior_sd)).sum().item()
        assert team.penalty()[member].item() == pytest.approx(0.4 * expected)


@both_kinds
def test_sampled_weights_have_the_learned_means_and_spreads(kind):
    n, team = 4000, team_of(1, kind)
    samples, spreads = dict(team.sample(n, generator()).named_parameters()), dict(team.spreads.named_parameters())
    for name, mean in team.weights.items():
        sd = softplus(spreads[name][0])
        assert ((samples[name].mean(dim=0) - mean[0]).abs() < 4.8 * sd / math.sqrt(n)).all()
        assert_allclose(samples[name].std(dim=0), sd, rtol=4.8 / math.sqrt(2 * n))


def drawn_both_ways(team, n=8000):
    """Outputs for one row: of rows in training, which have weights of their own, and of sampled networks."""
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    torch.manual_seed(2)
    return row[0], team.train()(row.expand(1, n, -1))[0], team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]


def test_one_layers_outputs_have_the_mean_and_variance_of_a_sum_of_normal_weights():
    """Mean x.m + b and variance x^2.s^2 + s_b^2, whatever way it is drawn."""
    team, n = team_of(1, plain=LINEAR), 8000
    row, *both = drawn_both_ways(team, n)
    linear, spread = team.means.layers[0], team.spreads.layers[0]
    mean = (row @ linear.weight[0] + linear.bias[0])[0]
    sd = (row**2 @ softplus(spread.weight[0]) ** 2 + softplus(spread.bias[0]) ** 2).sqrt()[0]
    for drawn in both:
        assert ((drawn.mean(dim=0) - mean).abs() < 4.5 * sd / math.sqrt(n)).all()
        assert_allclose(drawn.std(dim=0), sd, rtol=4.5 / math.sqrt(2 * n))


def test_outputs_drawn_layer_by_layer_have_the_moments_of_outputs_by_drawn_weights():
    n = 8000
    _, in_training, by_weights = drawn_both_ways(team_of(1), n)
    error = by_weights.std(dim=0) * math.sqrt(2 / n)
    assert ((in_training.mean(dim=0) - by_weights.mean(dim=0)).abs() < 4.5 * error).all()
    # Products of normal numbers have heavier tails: the error of a variance comes from the fourth moment.
    squares = [(drawn - drawn.mean(dim=0)).square() for drawn in (in_training, by_weights)]
    error = ((squares[0].var(dim=0) + squares[1].var(dim=0)) / n).sqrt()
    assert ((squares[0].mean(dim=0) - squares[1].mean(dim=0)).abs() < 4.5 * error).all()


# The posterior -------------------------------------------------------------------------------------------------------


def trained(x, y, *, prior_scale=1.0, kl_weight=1.0, epochs=1200):
    """A Bayesian linear network after descent on all rows, averaged over the last epochs."""
    torch.manual_seed(0)
    everybody = torch.ones(1, 1, len(x), dtype=torch.bool)
    rows = Rows(x[None], y[None], trains=everybody, leaves_out=everybody, coverage=torch.tensor([[0.9]]))
    numbers = {"max_rounds": 1, "batch_size": len(x), "learning_rate": 0.01, "ema_decay": 1 - 2 / epochs}
    settings = Settings(device=torch.device("cpu"), **numbers)
    network = BayesNetwork(LINEAR, prior_scale, kl_weight)
    learner = Learner(network, rows, 2, settings)
    for _ in range(2):  # the second half of the way alone is averaged
        learner.n_epochs = 0
        objective = BaselineTraining(network, NormalHead(), settings, patience=1).objective(rows, learner.team)
        learner.descend(rows, epochs // 2, objective)
    return learner.average.double()


@pytest.fixture(scope="module", name="linear")
def linear_regression():
    """Rows of y = x.w + noise with correlated inputs, and the network trained on them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])  # a correlation of 0.8
    y = x @ [[0.7], [-0.4]] + 0.2 + 0.6 * rng.normal(size=(80, 1))
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    return x.double(), y.double(), trained(x, y)


def closed_form(x, y, team):
    """Precision and mean of the posterior of (weights, bias), at the noise that the network has learned.

    The bound is, in the means and variances of the weights w, that of y ~ N(x.w, 1 / l) with known l: the expectation
    of 1 / sigma^2 under the distribution of the weights behind sigma, which is drawn apart from w. Hence the posterior
    given l is normal with the precision A = X' diag(l) X + P and the mean A^-1 X' diag(l) y.
    """
    n = 4000
    outputs = team.sample(n, generator())(x.expand(n, -1, -1))
    _, sigma = NormalHead().moments(outputs)
    noise_precision = (sigma**-2).mean(dim=0)[:, 0]
    design = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    prior_precision = torch.diag(torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64))  # 1 / (scale^2 / n_inputs)
    precision = design.T @ (noise_precision[:, None] * design) + prior_precision
    return precision, torch.linalg.solve(precision, design.T @ (noise_precision[:, None] * y))[:, 0]


def test_the_posterior_mean_of_a_linear_network_is_that_of_bayesian_linear_regression(linear):
    x, y, team = linear
    precision, mean = closed_form(x, y, team)
    learned = torch.cat([team.means.layers[0].weight[0, :, 0], team.means.layers[0].bias[0, :, 0]])
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert ((learned - mean).abs() < 0.15 * sd).all()  # much nearer than the posterior is wide


def test_the_posterior_spread_of_a_linear_network_is_the_best_without_correlations(linear):
    """Of all normal distributions with independent weights, the nearest to precision A has the variances 1 / A_jj.

    The bound depends on a variance v by log(v) / 2 - A_jj v / 2, which is largest at 1 / A_jj. The margins of the
    weights of correlated inputs are wider than that, and the two can be told apart.
    """
    x, y, team = linear
    precision, _ = closed_form(x, y, team)
    spread = team.spreads.layers[0]
    learned = softplus(torch.cat([spread.weight[0, :, 0], spread.bias[0, :, 0]]))
    assert_allclose(learned, precision.diagonal().rsqrt(), rtol=0.05)
    margins = torch.linalg.inv(precision).diagonal().sqrt()
    assert (margins[:2] > 1.3 * learned[:2]).all()


def test_with_nothing_to_learn_but_the_prior_the_posterior_is_the_prior():
    rng = np.random.default_rng(1)
    x, y = (torch.from_numpy(rng.normal(size=(10, d))).float() for d in (4, 1))
    team = trained(x, y, prior_scale=0.8, kl_weight=1e5)
    for part, prior_sd in (("weight", 0.4), ("bias", 0.8)):
        means, spreads = (getattr(layers.layers[0], part) for layers in (team.means, team.spreads))
        assert_allclose(means, torch.zeros_like(means), atol=0.01 * prior_sd)
        assert_allclose(softplus(spreads), torch.full_like(spreads, prior_sd), rtol=0.01)


# The regressor -------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(120, 2))
Y = 3 * X[:, 0] + 0.5 * RNG.normal(size=120)


def fitted(x=X, y=Y, **changes):
    defaults = {"network": LINEAR, "learning_rate": 0.02, "max_epochs": 150, "kl_weight": 1.0, "random_state": 0}
    return BayesByBackpropRegressor(0.8, **defaults | changes).fit(x, y)


def test_doubt_falls_with_the_number_of_rows_and_with_the_temperature_of_the_posterior():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=(1920, 2))
    y = 3 * x[:, 0] + 0.5 * rng.normal(size=1920)
    rows = X.clip(x.min(axis=0), x.max(axis=0))
    models = fitted(), fitted(x, y, max_epochs=60), fitted(kl_weight=0.01)
    few, many, cold = (model.predict_interval(rows, noise=False).width.mean() for model in models)
    assert many < 0.4 * few  # sixteen times the rows: a quarter, if both had settled before they were stopped
    assert cold < 0.7 * few


def test_the_dropout_of_the_network_is_not_used():
    models = [fitted(network=MLP(hidden=8, layers=2, bins=0, dropout=rate), max_epochs=20) for rate in (0.0, 0.5)]
    assert_array_equal(models[0].predict(X), models[1].predict(X))
