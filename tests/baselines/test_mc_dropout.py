import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP
from coverwell.baselines import MCDropoutRegressor, voices
from coverwell.baselines.mc_dropout import DropoutLSTM, DropoutMLP
from coverwell.networks.lstm import LSTM

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(80, 3))
Y = np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=80)
X_NEW = RNG.uniform(size=(20, 3)).clip(X.min(axis=0), X.max(axis=0))


def team_of(n_members=2, *, dropout=0.5, hidden=12, layers=3, length_scale=0.1, seed=0):
    torch.manual_seed(seed)
    recipe = DropoutMLP(MLP(hidden=hidden, layers=layers, dropout=dropout, bins=0), length_scale)
    return recipe.build(n_members, (4,), 2).double().eval().requires_grad_(False)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fitted(y=Y, **changes):
    usual = {"network": MLP(hidden=16, layers=2, bins=4, dropout=0.5), "max_epochs": 20, "random_state": 0}
    return MCDropoutRegressor(0.8, **usual | changes).fit(X, y)


# The team ------------------------------------------------------------------------------------------------------------


def test_a_sample_is_the_forward_pass_with_some_hidden_units_set_to_zero():
    team = team_of()
    samples = team.sample(3, generator())
    x = torch.randn(6, 9, 4, generator=generator(1), dtype=torch.float64)
    for sample in range(6):
        member, hidden = sample // 3, x[sample]
        for place, linear in enumerate(team.layers):
            if place:
                weight = samples.layers[place].weight[sample]
                speaks = (weight != 0).any(dim=1)
                assert_array_equal(weight[speaks], linear.weight[member, speaks])
                hidden = hidden.relu() * speaks
            hidden = hidden @ linear.weight[member] + linear.bias[member]
        assert_allclose(samples(x)[sample], hidden, rtol=1e-10)


def test_inputs_are_never_silenced():
    team = team_of()
    samples = team.sample(3, generator())
    assert_array_equal(samples.layers[0].weight, team.layers[0].weight.repeat_interleave(3, dim=0))


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_the_share_of_silenced_units_is_the_rate(rate):
    samples = team_of(1, dropout=rate, hidden=20).sample(500, generator())
    for linear in samples.layers[1:]:
        silent = (linear.weight == 0).all(dim=2).double()  # (sample, unit)
        assert abs(silent.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())
        assert ((silent.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / 500)).all()


def test_samples_of_one_hidden_layer_average_to_the_network_that_silences_nobody():
    """The output layer is linear, so the mean over masks is the pass with every unit at its share of speaking."""
    team, n_samples = team_of(1, layers=2), 4000
    x = torch.randn(1, 6, 4, generator=generator(1), dtype=torch.float64)
    said = team.sample(n_samples, generator())(x.expand(n_samples, -1, -1))
    error = said.std(dim=0) / math.sqrt(n_samples)
    assert ((said.mean(dim=0) - team(x)[0]).abs() < 4.5 * error).all()


def test_training_and_samples_have_the_same_law():
    """Three layers: the mean and the spread of the outputs for one row, drawn in both ways."""
    team, n = team_of(1, layers=3), 6000
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    sampled = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    torch.manual_seed(2)
    trained = team.train()(row.expand(1, n, -1))[0]
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=0.08)  # 6 errors of 1 / sqrt(2 n), twice


def test_without_dropout_every_sample_is_the_network_itself():
    team = team_of(1, dropout=0.0)
    x = torch.randn(1, 6, 4, generator=generator(1), dtype=torch.float64)
    assert_allclose(team.sample(2, generator())(x.expand(2, -1, -1)), team(x).expand(2, -1, -1))


def test_the_penalty_by_hand():
    """Half the squared length scale, times the squares of all weights (of hidden units, by their share) and biases."""
    team = team_of(2, dropout=0.25, length_scale=0.3)
    for member in range(2):
        squares = [float((linear.weight[member] ** 2).sum()) for linear in team.layers]
        biases = sum(float((linear.bias[member] ** 2).sum()) for linear in team.layers)
        expected = 0.5 * 0.3**2 * (squares[0] + 0.75 * squares[1] + 0.75 * squares[2] + biases)
        assert team.penalty()[member].item() == pytest.approx(expected)


# The team on an LSTM -------------------------------------------------------------------------------------------------


def lstm_team_of(n_members=2, *, dropout=0.5, hidden=12, layers=2, length_scale=0.1):
    torch.manual_seed(0)
    recipe = DropoutLSTM(LSTM(hidden=hidden, layers=layers, dropout=dropout, steps=3), length_scale)
    return recipe.build(n_members, (4,), 2).double().eval().requires_grad_(False)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_a_sampled_lstm_silences_a_share_of_hidden_units_and_lets_the_others_speak_up(rate):
    team, n = lstm_team_of(1, dropout=rate), 500
    samples = dict(team.sample(n, generator()).named_parameters())
    for name, weight in team.weights():
        gain = samples[name] / weight
        if "recurrent" in name or name == "layers.1.weight":
            gain = gain[:, 0]  # (sample, input): the same for all gates
            assert_allclose(samples[name], weight * gain[:, None], rtol=1e-10)
        elif name == "head.weight":
            gain = gain[..., 0]
            assert_allclose(samples[name], weight * gain[..., None], rtol=1e-10)
        else:  # of numbers of the row, and biases
            assert_array_equal(samples[name], weight.expand(n, -1, -1))
            continue
        silent = (gain == 0).double()
        assert_allclose(gain[gain != 0], np.full(int((gain != 0).sum()), 1 / (1 - rate)), rtol=1e-10)
        assert abs(silent.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())
        assert ((silent.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / n)).all()


def test_an_lstms_recurrent_units_and_those_that_it_passes_on_are_silenced_apart():
    n = 4000
    samples = lstm_team_of(1, hidden=2).sample(n, generator())
    back = samples.layers[0].recurrent[:, 0, 0] == 0
    up = samples.layers[1].weight[:, 0, 0] == 0
    assert abs((back & up).double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_in_training_a_rows_silent_units_of_an_lstm_are_the_same_at_every_step(rate):
    team, said, heard = lstm_team_of(3, dropout=rate).train(), [], []
    lower, upper = team.means.layers
    lower.register_forward_hook(lambda _, __, states: said.append(states))
    upper.register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    torch.manual_seed(3)
    team(torch.randn(3, 100, 4, dtype=torch.float64))
    loudness = heard[0] / said[0]  # (member, step, batch, unit)
    assert_allclose(loudness, loudness[:, :1].expand_as(loudness), rtol=1e-12)
    silent = loudness[:, 0] == 0
    assert_allclose(loudness[:, 0][~silent], np.full(int((~silent).sum()), 1 / (1 - rate)), rtol=1e-12)
    assert abs(silent.double().mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())


def test_training_and_samples_of_an_lstm_have_the_same_law():
    """The mean and the spread of the outputs for one row, over 3000 batches and over 3000 samples."""
    n = 3000
    team = lstm_team_of(1)
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    sampled = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    many = DropoutLSTM(team.lstm, 0.1).build(n, (4,), 2).double().train()  # a member draws by itself
    many.load_state_dict({name: value.expand(n, -1, -1) for name, value in team.state_dict().items()})
    torch.manual_seed(2)
    trained = many(row.expand(n, -1, -1))[:, 0].detach()
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=0.11)  # 6 errors of 1 / sqrt(2 n), twice


def test_the_penalty_of_an_lstm_by_hand():
    """One unit, one output, one number beside three steps; all weights are 1, and 0 those of the shortcut.

    5 weights of the row, 4 of a step and 1 of the number beside, and 6 biases count as they are; 4 recurrent ones and 1
    of the head speak in a quarter of the draws, then as 4 each.
    """
    recipe = DropoutLSTM(LSTM(hidden=1, layers=1, dropout=0.75, steps=3), length_scale=0.3)
    team = recipe.build(1, (4,), 1).requires_grad_(False)
    for name, weight in team.weights():
        weight.fill_(0.0 if name.startswith("shortcut") else 1.0)
    assert team.penalty().item() == pytest.approx(0.5 * 0.3**2 * (5 + 6 + (4 + 1) * 0.25 * 4**2))


# The regressor -------------------------------------------------------------------------------------------------------


def test_a_network_that_silences_nobody_is_refused():
    with pytest.raises(ValueError, match="must have a dropout above 0 to be sampled by"):
        fitted(network=MLP(hidden=16, layers=2, dropout=0.0))
    with pytest.raises(ValueError, match="must have a dropout above 0 to be sampled by"):
        fitted(network=LSTM(hidden=16, steps=3))


def test_by_default_half_of_the_units_are_silenced():
    assert MCDropoutRegressor.NETWORK.dropout == 0.5


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_what_a_row_is_told_depends_neither_on_the_rows_beside_it_nor_on_the_call(model):
    together = model.predict_interval(X_NEW)
    again = model.predict_interval(X_NEW)
    assert_array_equal(again.lower, together.lower)
    for row in (0, 7, 19):
        alone = model.predict_interval(X_NEW[[row]])
        assert_allclose(alone.lower, together.lower[[row]], rtol=1e-9)
        assert_allclose(alone.upper, together.upper[[row]], rtol=1e-9)
    assert_allclose(model.predict(X_NEW[::-1])[::-1], model.predict(X_NEW), rtol=1e-9)


def test_one_sample_predicts_and_has_no_doubt():
    model = fitted(n_samples=1)
    assert (model.predict_interval(X_NEW).width > 0).all()
    assert_array_equal(model.predict_interval(X_NEW, noise=False).width, np.zeros(20))


def test_predictions_are_the_moments_of_the_samples(model):
    """The twin is worked out from the sampled networks, in the user's units."""
    said = model.ensembles_[0]
    team = said.team.sample(model.n_samples, generator(said.seed))
    x = torch.from_numpy((X_NEW - X.mean(axis=0)) / X.std(axis=0))
    outputs = team(x.expand(model.n_samples, -1, -1)).numpy()
    means, sigmas = outputs[..., 0], np.log1p(np.exp(outputs[..., 1])) + 1e-3
    assert_allclose(model.predict(X_NEW), means.mean(axis=0) * Y.std() + Y.mean())
    z = 1.2815515655446004  # of the central 80 %
    total = np.sqrt(means.var(axis=0) + (sigmas**2).mean(axis=0))
    assert_allclose(model.predict_interval(X_NEW).width, 2 * z * total * Y.std())
    assert_allclose(model.predict_interval(X_NEW, noise=False).width, 2 * z * means.std(axis=0) * Y.std())


def test_samples_in_several_parts_are_as_many_and_as_good(model, monkeypatch):
    whole, doubt = model.predict(X_NEW), model.predict_interval(X_NEW, noise=False)
    n_numbers = sum(weight.numel() for weight in model.ensembles_[0].team.parameters())
    monkeypatch.setattr(voices, "NUMBERS_AT_A_TIME", 8 * n_numbers)
    sizes = [team.n_members for team in model.ensembles_[0]._speaking()]
    assert sizes == [8, 8, 8, 8, 8, 8, 2]
    parts = model.predict(X_NEW)
    assert_array_equal(model.predict(X_NEW), parts)
    sd = doubt.width / (2 * 1.2815515655446004)
    assert (np.abs(parts - whole) < 5 * sd * math.sqrt(2 / 50)).all()  # other samples of the same law
    monkeypatch.setattr(voices, "NUMBERS_AT_A_TIME", 1)
    assert [team.n_members for team in model.ensembles_[0]._speaking()] == [1] * 50


def test_a_strong_prior_holds_the_weights_near_zero():
    free, held = (fitted(length_scale=scale, max_epochs=60, learning_rate=0.02) for scale in (0.0, 30.0))
    norms = [max(linear.weight.abs().max() for linear in model.ensembles_[0].team.layers) for model in (free, held)]
    assert norms[1] < 0.2 * norms[0]
    assert np.ptp(held.predict(X_NEW)) < 0.2 * np.ptp(free.predict(X_NEW))
