import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from coverwell import MLP
from coverwell.baselines import BayesByBackpropRegressor
from coverwell.baselines.bayes_by_backprop import START, BayesLSTM, BayesMLP, normal_kl
from coverwell.baselines.laws import NormalLaw
from coverwell.baselines.voices import VoiceTraining
from coverwell.ensemble import learner_of
from coverwell.folds import Job, stack_jobs
from coverwell.networks.lstm import LSTM

LINEAR = MLP(hidden=1, layers=1, bins=0)
CPU = torch.device("cpu")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def team_of(n_members=2, *, layers=3, prior_scale=0.7, kl_weight=1.0, seed=0):
    """A team whose standard deviations all differ, and are large enough to matter."""
    torch.manual_seed(seed)
    team = BayesMLP(MLP(hidden=6, layers=layers, bins=0), prior_scale, kl_weight).build(n_members, (4,), 2).double()
    for spread in team.spreads:
        for part in (spread.weight, spread.bias):
            torch.nn.init.uniform_(part, -2.0, 0.0)
    return team.requires_grad_(False)


def test_the_divergence_of_two_normal_laws_by_hand():
    """KL(N(1, 2^2) || N(0, 4^2)) = log 2 + (4 + 1) / 32 - 1 / 2."""
    value = normal_kl(torch.tensor(1.0), torch.tensor(2.0), 4.0)
    assert value.item() == pytest.approx(math.log(2) + 5 / 32 - 0.5)


@given(mean=st.floats(-5, 5), sd=st.floats(1e-3, 10), prior_sd=st.floats(0.01, 10))
def test_the_divergence_is_that_of_torch_and_never_negative(mean, sd, prior_sd):
    mean, sd, prior = (torch.tensor(value, dtype=torch.float64) for value in (mean, sd, prior_sd))
    ours = normal_kl(mean, sd, prior_sd)
    assert_allclose(ours, kl_divergence(Normal(mean, sd), Normal(torch.zeros_like(mean), prior)), rtol=1e-9, atol=1e-9)
    assert ours >= -1e-12


def test_no_divergence_from_the_prior_itself():
    assert normal_kl(torch.tensor(0.0), torch.tensor(0.3), 0.3).item() == pytest.approx(0.0, abs=1e-7)


def test_the_penalty_is_the_sum_over_all_weights_times_its_weight():
    """The prior of a weight has the scale over the root of the layer's inputs, that of a bias the scale itself."""
    team = team_of(kl_weight=0.4)
    for member in range(2):
        expected = 0.0
        for linear, spread, n_inputs in zip(team.layers, team.spreads, (4, 6, 6), strict=True):
            for part, prior_sd in (("weight", 0.7 / math.sqrt(n_inputs)), ("bias", 0.7)):
                mean, sd = getattr(linear, part)[member], softplus(getattr(spread, part)[member])
                prior = Normal(torch.zeros_like(mean), torch.full_like(mean, prior_sd))
                expected += kl_divergence(Normal(mean, sd), prior).sum().item()
        assert team.penalty()[member].item() == pytest.approx(0.4 * expected)


def test_at_the_start_every_spread_is_a_small_share_of_the_priors():
    team = BayesMLP(MLP(hidden=6, layers=2, bins=0), prior_scale=0.7, kl_weight=1.0).build(1, (4,), 2)
    assert_allclose(softplus(team.spreads[0].weight).detach(), np.full((1, 4, 6), START * 0.35), rtol=1e-5)
    assert_allclose(softplus(team.spreads[1].bias).detach(), np.full((1, 1, 2), START * 0.7), rtol=1e-5)


def test_outside_training_the_mean_weights_speak():
    team = team_of(1).eval()
    x = torch.randn(1, 7, 4, generator=generator(1), dtype=torch.float64)
    expected = x[0]
    for place, linear in enumerate(team.layers):
        expected = (expected.relu() if place else expected) @ linear.weight[0] + linear.bias[0]
    assert_allclose(team(x)[0], expected, rtol=1e-10)


def test_sampled_weights_have_the_learned_means_and_spreads():
    team, n = team_of(1), 4000
    samples = team.sample(n, generator())
    for linear, spread, sampled in zip(team.layers, team.spreads, samples.layers, strict=True):
        for part in ("weight", "bias"):
            drawn, mean = getattr(sampled, part), getattr(linear, part)[0]
            sd = softplus(getattr(spread, part)[0])
            assert ((drawn.mean(dim=0) - mean).abs() < 4.5 * sd / math.sqrt(n)).all()
            assert_allclose(drawn.std(dim=0), sd, rtol=4.5 / math.sqrt(2 * n))


def test_one_layers_outputs_have_the_mean_and_variance_of_a_sum_of_normal_weights():
    """Mean x.m + b and variance x^2.s^2 + s_b^2, whatever way it is drawn."""
    team, n = team_of(1, layers=1), 8000
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    linear, spread = team.layers[0], team.spreads[0]
    mean = (row[0] @ linear.weight[0] + linear.bias[0])[0]
    sd = (row[0] ** 2 @ softplus(spread.weight[0]) ** 2 + softplus(spread.bias[0]) ** 2).sqrt()[0]
    torch.manual_seed(2)
    in_training = team.train()(row.expand(1, n, -1))[0]
    by_weights = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    for drawn in (in_training, by_weights):
        assert ((drawn.mean(dim=0) - mean).abs() < 4.5 * sd / math.sqrt(n)).all()
        assert_allclose(drawn.std(dim=0), sd, rtol=4.5 / math.sqrt(2 * n))


def test_outputs_drawn_layer_by_layer_have_the_moments_of_outputs_by_drawn_weights():
    team, n = team_of(1, layers=3), 8000
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    torch.manual_seed(2)
    in_training = team.train()(row.expand(1, n, -1))[0]
    by_weights = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    error = by_weights.std(dim=0) * math.sqrt(2 / n)
    assert ((in_training.mean(dim=0) - by_weights.mean(dim=0)).abs() < 4.5 * error).all()
    # Products of normal laws have heavier tails than one: the error of a variance comes from the fourth moment.
    squares = [(drawn - drawn.mean(dim=0)).square() for drawn in (in_training, by_weights)]
    error = ((squares[0].var(dim=0) + squares[1].var(dim=0)) / n).sqrt()
    assert ((squares[0].mean(dim=0) - squares[1].mean(dim=0)).abs() < 4.5 * error).all()


def test_in_training_rows_have_weights_of_their_own():
    team = team_of(1).train()
    said = team(torch.ones(1, 5, 4, dtype=torch.float64))
    assert len(said[0].unique(dim=0)) == 5


# The posterior -------------------------------------------------------------------------------------------------------


def trained(x, y, *, prior_scale=1.0, kl_weight=1.0, epochs=1200):
    """A Bayesian linear network after descent on all rows, averaged over the last epochs."""
    torch.manual_seed(0)
    everybody = torch.ones(1, len(x), dtype=torch.bool)
    job = Job(x, y, trains=everybody, speaks=everybody, coverage=torch.tensor([0.9]))
    network = BayesMLP(LINEAR, prior_scale, kl_weight)
    problem = stack_jobs([job], CPU)
    learner = learner_of(
        network, problem, problem.trains, 2, batch_size=len(x), learning_rate=0.01, memory=1 - 2 / epochs
    )
    training = VoiceTraining(
        network, NormalLaw(), max_rounds=1, patience=1, batch_size=len(x), learning_rate=0.01, memory=0.9, device=CPU
    )
    for _ in range(2):  # the second half of the way alone is averaged
        learner.n_epochs = 0
        learner.descend(epochs // 2, training._loss(learner))
    return learner.average.double()


@pytest.fixture(scope="module", name="linear")
def linear_regression():
    """Rows of y = x.w + noise with inputs that hang together, and the network trained on them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])  # a correlation of 0.8
    y = x @ [[0.7], [-0.4]] + 0.2 + 0.6 * rng.normal(size=(80, 1))
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    return x.double(), y.double(), trained(x, y)


def closed_form(x, y, team):
    """Precision and mean of the posterior of (weights, bias), at the noise that the network has learned.

    The bound is, in the means and variances of the weights w, that of y ~ N(x.w, 1 / l) with known l: the expectation
    of 1 / sigma^2 under the law of the weights behind sigma, which is drawn apart from w. Hence the posterior given l
    is normal with the precision A = X' diag(l) X + P and the mean A^-1 X' diag(l) y.
    """
    n = 4000
    outputs = team.sample(n, generator())(x.expand(n, -1, -1))
    _, sigma = NormalLaw().moments(outputs)
    noise_precision = (sigma**-2).mean(dim=0)[:, 0]
    design = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    prior_precision = torch.diag(torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64))  # 1 / (scale^2 / n_inputs)
    precision = design.T @ (noise_precision[:, None] * design) + prior_precision
    return precision, torch.linalg.solve(precision, design.T @ (noise_precision[:, None] * y))[:, 0]


def test_the_posterior_mean_of_a_linear_network_is_that_of_bayesian_linear_regression(linear):
    x, y, team = linear
    precision, mean = closed_form(x, y, team)
    learned = torch.cat([team.layers[0].weight[0, :, 0], team.layers[0].bias[0, :, 0]])
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert ((learned - mean).abs() < 0.15 * sd).all()  # much nearer than the posterior is wide


def test_the_posterior_spread_of_a_linear_network_is_the_best_without_correlations(linear):
    """Of all normal laws with independent weights the nearest to a posterior of precision A has variances 1 / A_jj.

    The bound depends on a variance v by log(v) / 2 - A_jj v / 2, which is largest at 1 / A_jj. The weights of inputs
    that hang together have wider margins than that, and the two can be told apart.
    """
    x, y, team = linear
    precision, _ = closed_form(x, y, team)
    spread = team.spreads[0]
    learned = softplus(torch.cat([spread.weight[0, :, 0], spread.bias[0, :, 0]]))
    assert_allclose(learned, precision.diagonal().rsqrt(), rtol=0.05)
    margins = torch.linalg.inv(precision).diagonal().sqrt()
    assert (margins[:2] > 1.3 * learned[:2]).all()


def test_the_noise_of_a_linear_network_is_that_of_the_rows(linear):
    x, _, team = linear
    _, sigma = NormalLaw().moments(team.eval()(x[None]))
    assert_allclose(sigma.mean(), 0.6, atol=4 * 0.6 / math.sqrt(2 * 80))


def test_with_nothing_to_learn_but_the_prior_the_posterior_is_the_prior():
    rng = np.random.default_rng(1)
    x, y = (torch.from_numpy(rng.normal(size=(10, d))).float() for d in (4, 1))
    team = trained(x, y, prior_scale=0.8, kl_weight=1e5)
    for part, prior_sd in (("weight", 0.4), ("bias", 0.8)):
        assert_allclose(getattr(team.layers[0], part), 0.0 * getattr(team.layers[0], part), atol=0.01 * prior_sd)
        sds = softplus(getattr(team.spreads[0], part))
        assert_allclose(sds, torch.full_like(sds, prior_sd), rtol=0.01)


# The team on an LSTM -------------------------------------------------------------------------------------------------


def lstm_team_of(n_members=2, *, kl_weight=1.0):
    """A team whose standard deviations all differ, and are large enough to matter."""
    torch.manual_seed(0)
    recipe = BayesLSTM(LSTM(hidden=5, layers=2, steps=3), prior_scale=0.7, kl_weight=kl_weight)
    team = recipe.build(n_members, (4,), 2).double()
    for spread in team.spreads.parameters():
        torch.nn.init.uniform_(spread, -2.0, 0.0)
    return team.requires_grad_(False)


# Three steps of one channel, and one number beside them.
INPUTS = {
    "layers.0.weight": 1,
    "layers.0.recurrent": 5,
    "layers.1.weight": 5,
    "layers.1.recurrent": 5,
    "head.weight": 5,
    "beside.weight": 1,
    "shortcut.weight": 3,
}


def test_the_penalty_of_an_lstm_is_the_sum_over_all_weights_times_its_weight():
    team = lstm_team_of(kl_weight=0.4)
    spreads = dict(team.spreads.named_parameters())
    for member in range(2):
        expected = 0.0
        for name, mean in team.weights():
            prior_sd = torch.full_like(mean[member], 0.7 / math.sqrt(INPUTS.get(name, 1)))
            law = Normal(mean[member], softplus(spreads[name][member]))
            expected += kl_divergence(law, Normal(torch.zeros_like(prior_sd), prior_sd)).sum().item()
        assert team.penalty()[member].item() == pytest.approx(0.4 * expected)


def test_at_the_start_every_spread_of_an_lstm_is_a_small_share_of_the_priors():
    team = BayesLSTM(LSTM(hidden=5, layers=2, steps=3), prior_scale=0.7, kl_weight=1.0).build(1, (4,), 2)
    for name, spread in team.spreads.named_parameters():
        share = softplus(spread.detach()) / (0.7 / math.sqrt(INPUTS.get(name, 1)))
        assert_allclose(share, torch.full_like(share, START), rtol=1e-5)


def test_sampled_weights_of_an_lstm_have_the_learned_means_and_spreads():
    n, team = 4000, lstm_team_of(1)
    samples, spreads = dict(team.sample(n, generator()).named_parameters()), dict(team.spreads.named_parameters())
    for name, mean in team.weights():
        sd = softplus(spreads[name][0])
        assert ((samples[name].mean(dim=0) - mean[0]).abs() < 4.8 * sd / math.sqrt(n)).all()
        assert_allclose(samples[name].std(dim=0), sd, rtol=4.8 / math.sqrt(2 * n))


# The regressor -------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(120, 2))
Y = 3 * X[:, 0] + 0.5 * RNG.normal(size=120)


def fitted(x=X, y=Y, **changes):
    usual = {"network": LINEAR, "learning_rate": 0.02, "max_epochs": 150, "kl_weight": 1.0, "random_state": 0}
    return BayesByBackpropRegressor(0.8, **usual | changes).fit(x, y)


def test_doubt_falls_with_the_number_of_rows():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=(1920, 2))
    y = 3 * x[:, 0] + 0.5 * rng.normal(size=1920)
    rows = X.clip(x.min(axis=0), x.max(axis=0))
    few, many = (
        model.predict_interval(rows, noise=False).width.mean() for model in (fitted(), fitted(x, y, max_epochs=60))
    )
    assert many < 0.4 * few  # sixteen times the rows: a quarter, if both had settled before they were stopped


def test_a_colder_posterior_doubts_less():
    cold, warm = (fitted(kl_weight=weight).predict_interval(X, noise=False).width.mean() for weight in (0.01, 1.0))
    assert cold < 0.7 * warm


def test_the_dropout_of_the_network_is_not_used():
    models = [fitted(network=MLP(hidden=8, layers=2, bins=0, dropout=rate), max_epochs=20) for rate in (0.0, 0.5)]
    assert_array_equal(models[0].predict(X), models[1].predict(X))
