import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.func import functional_call

from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.baselines.bayes_by_backprop import BayesLSTM
from coverwell.baselines.concrete_dropout import ConcreteLSTM
from coverwell.baselines.mc_dropout import DropoutLSTM
from coverwell.baselines.random_lstm import Draws, inputs_of, silenced_places, squares
from coverwell.baselines.random_team import RandomTeam
from coverwell.networks.lstm import LSTM, LSTMTeam
from coverwell.persistence import load, save

NETWORK = LSTM(hidden=5, layers=2, dropout=0.3, steps=3, channels=2)
N_WINDOW, N_FEATURES = 6, 7  # three steps of two channels, and one number beside them
RECIPES = {
    "dropout": DropoutLSTM(NETWORK, length_scale=0.1),
    "concrete": ConcreteLSTM(NETWORK, length_scale=0.1),
    "bayes": BayesLSTM(NETWORK, prior_scale=1.0, kl_weight=1.0),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def built(kind, n_members=2):
    torch.manual_seed(0)
    team = RECIPES[kind].build(n_members, (N_FEATURES,), 2).double()
    for parameter in team.means.shortcut.parameters():
        torch.nn.init.normal_(parameter)
    return team


@pytest.fixture(params=RECIPES, name="team")
def team_of_two(request):
    """Two members of one kind, whose outputs lie far apart: the second one's last bias is 1000 higher."""
    team = built(request.param).eval().requires_grad_(False)
    team.means.head.bias[1] += 1000.0
    return team


ROWS = torch.randn(1, 9, N_FEATURES, generator=generator(7), dtype=torch.float64)


# Random numbers ------------------------------------------------------------------------------------------------------


def test_draws_of_a_generator_are_ordered_by_member_and_come_again():
    values = torch.tensor([[1.0], [2.0]])
    assert_array_equal(Draws(3, generator()).of(values)[:, 0], [1, 1, 1, 2, 2, 2])
    assert Draws().of(values) is values
    for draw in (Draws.uniform, Draws.normal):
        first, same = (draw(Draws(3, generator()), values) for _ in range(2))
        assert first.shape == (6, 1)
        assert_array_equal(first, same)
        assert draw(Draws(), values).shape == (2, 1)


def test_draws_of_a_generator_leave_the_callers_random_state():
    state = torch.get_rng_state()
    Draws(3, generator()).normal(torch.zeros(2, 4))
    assert_array_equal(torch.get_rng_state(), state)


# The team ------------------------------------------------------------------------------------------------------------


def test_our_random_lstms_are_random_teams_and_a_plain_one_is_not(team):
    assert isinstance(team, RandomTeam)
    assert not isinstance(NETWORK.build(2, (N_FEATURES,), 2), RandomTeam)


def test_a_random_lstm_may_be_captured_and_speaks_in_the_precision_of_an_lstm(team):
    assert team.capturable
    assert team.precision == LSTMTeam.precision
    assert team.weight_of_row(N_FEATURES) == NETWORK.build(2, (N_FEATURES,), 2).weight_of_row(N_FEATURES)


def test_hidden_units_enter_the_weights_of_upper_layers_of_the_recurrence_and_of_the_head():
    assert silenced_places(LSTM(layers=1)) == ["layers.0.recurrent", "head.weight"]
    two = ["layers.0.recurrent", "layers.1.weight", "layers.1.recurrent", "head.weight"]
    assert silenced_places(LSTM(layers=2)) == two


def test_a_weights_inputs_are_on_the_axis_on_which_it_multiplies(team):
    sizes = {name: inputs_of(name, weight).shape for name, weight in team.weights() if not name.endswith("bias")}
    assert sizes == {
        "layers.0.weight": (2, 1, 2),
        "layers.0.recurrent": (2, 1, 5),
        "layers.1.weight": (2, 1, 5),
        "layers.1.recurrent": (2, 1, 5),
        "head.weight": (2, 5, 1),
        "beside.weight": (2, 1, 1),
        "shortcut.weight": (2, N_WINDOW, 1),
    }


def test_squares_by_hand():
    assert_array_equal(squares(torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])), [5, 9])


def test_outside_training_the_mean_weights_speak(team):
    plain = LSTM(hidden=5, layers=2, steps=3, channels=2).build(2, (N_FEATURES,), 2).double().eval()
    plain.load_state_dict(team.means.state_dict())
    x = ROWS.expand(2, -1, -1)
    assert_array_equal(team(x), plain(x).detach())


def test_in_training_a_batch_is_one_draw_from_the_law():
    """Rows that are the same are told the same, in the next batch something else, and by the weights of the draw."""
    team = built("bayes").train()
    x = ROWS[:, :1].expand(2, 6, -1)
    torch.manual_seed(5)
    said, following = team(x), team(x)
    assert_allclose(said.detach(), said[:, :1].expand_as(said).detach(), rtol=1e-12)
    assert (said != following).all()
    torch.manual_seed(5)
    by_weights = functional_call(team.means, team.drawn(Draws()), (x,))
    assert_array_equal(said.detach(), by_weights.detach())


@pytest.mark.parametrize("kind", ["dropout", "concrete"])
def test_in_training_rows_have_silent_units_of_their_own(kind):
    team = built(kind).train()
    said = team(ROWS[:, :1].expand(2, 6, -1))
    assert len(said.flatten(end_dim=1).unique(dim=0)) > 9  # of 12; five units may be silenced alike by chance


@pytest.mark.parametrize("kind", ["dropout", "concrete"])
def test_silence_leaves_what_stands_beside_as_it_is(kind):
    """Rows that differ beside the window alone differ by the mean weights' map of it, in training and in every sample.

    The head hears nothing here, so that no unit that a row silences for itself can change its output.
    """
    team, n = built(kind).requires_grad_(False), 20
    team.means.head.weight.zero_()
    moved = ROWS.clone()
    moved[..., N_WINDOW:] += 1.0
    expected = team.means.beside.weight.expand(-1, 9, -1)
    x, x_moved = (rows.expand(2, -1, -1) for rows in (ROWS, moved))
    assert_allclose(team.train()(x_moved) - team.train()(x), expected, atol=1e-12)
    samples = team.eval().sample(n, generator())
    added = samples(moved.expand(2 * n, -1, -1)) - samples(ROWS.expand(2 * n, -1, -1))
    assert_allclose(added, expected.repeat_interleave(n, dim=0), atol=1e-12)


def test_weights_of_what_stands_beside_have_a_law_in_a_bayesian_team():
    samples = built("bayes").sample(50, generator())
    assert len(samples.beside.weight.flatten().unique()) == samples.beside.weight.numel()


def test_units_that_return_nothing_are_shared_by_a_batch():
    """Where all that is passed on speaks, rows that are the same are told the same, in the next batch another thing."""
    team = built("concrete").train()
    with torch.no_grad():
        team.rate_logit[:, 1::2] = -50.0
    x = ROWS[:, :1].expand(2, 6, -1)
    said, following = team(x).detach(), team(x).detach()
    assert_allclose(said, said[:, :1].expand_as(said), rtol=1e-12)
    assert (said != following).all()


@pytest.mark.parametrize("kind", RECIPES)
def test_a_training_step_makes_no_choice_by_a_number(kind):
    """On tensors without numbers, which is what capturing a step for a GPU asks; the way of a GPU is taken there."""
    team = built(kind).to("meta").train()
    (team(ROWS.expand(2, -1, -1).to("meta")).square().mean(dim=(1, 2)) + team.penalty()).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in team.parameters())


@pytest.mark.parametrize("kind", RECIPES)
def test_every_parameter_learns_through_a_draw(kind):
    team = built(kind).train()
    (team(ROWS.expand(2, -1, -1)).square().mean(dim=(1, 2)) + team.penalty()).sum().backward()
    for parameter in team.parameters():
        assert (parameter.grad != 0).any()
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("kind", RECIPES)
def test_a_members_loss_has_gradients_for_that_member_alone(kind):
    team = built(kind).train()
    (team(ROWS.expand(2, -1, -1))[1].square().mean() + team.penalty()[1]).backward()
    for parameter in team.parameters():
        assert_array_equal(parameter.grad[0], torch.zeros_like(parameter.grad[0]))


def test_a_sample_is_an_ordinary_lstm_team_without_dropout(team):
    samples = team.sample(5, generator())
    assert type(samples) is LSTMTeam
    assert samples.recipe == LSTM(hidden=5, layers=2, dropout=0.0, steps=3, channels=2)
    assert samples.n_members == 10
    assert not samples.training
    assert not any(weight.requires_grad for weight in samples.parameters())


def test_samples_are_ordered_by_member(team):
    said = team.sample(5, generator())(ROWS.expand(10, -1, -1))
    assert (said[:5].abs() < 500).all()
    assert (said[5:] > 500).all()


def test_samples_differ_and_come_again_with_the_same_seed(team):
    first, same, other = (team.sample(4, generator(seed))(ROWS.expand(8, -1, -1)) for seed in (0, 0, 1))
    assert_array_equal(first, same)
    assert (first != other).any()
    assert len(first[:4].unique(dim=0)) == 4


def test_a_sample_is_one_network_for_all_rows(team):
    samples = team.sample(3, generator())
    together = samples(ROWS.expand(6, -1, -1))
    for row in range(9):
        assert_allclose(samples(ROWS[:, [row]].expand(6, -1, -1)), together[:, [row]], rtol=1e-12)
    assert_array_equal(samples(ROWS.expand(6, -1, -1)), together)  # nothing is drawn any more


def test_over_samples_every_weight_has_its_mean(team):
    n = 4000
    samples = dict(team.sample(n, generator()).named_parameters())
    for name, mean in team.weights():
        drawn = samples[name].unflatten(0, (2, n))
        error = drawn.std(dim=1) / math.sqrt(n)
        assert ((drawn.mean(dim=1) - mean).abs() <= 4.8 * error + 1e-12).all()


def test_sampling_leaves_the_team_and_the_callers_random_state_as_they_were(team):
    before, state = team.state_of(slice(None)), torch.get_rng_state()
    samples = team.sample(2, generator())
    for weight in samples.parameters():
        weight.add_(1.0)
    assert_array_equal(torch.get_rng_state(), state)
    for name, value in team.state_dict().items():
        assert_array_equal(value, before[name])


def test_a_penalty_is_one_number_per_member_and_belongs_to_that_member(team):
    before = team.penalty()
    assert before.shape == (2,)
    team.means.layers[0].recurrent[0] += 1.0
    after = team.penalty()
    assert after[0] != before[0]
    assert after[1] == before[1]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_rows_shorter_than_the_window_are_refused(recipe):
    with pytest.raises(ValueError, match="a row must hold a window of 3 steps and 2 channels, 6 numbers, got 5"):
        recipe.build(1, (5,), 2)


# The regressors ------------------------------------------------------------------------------------------------------

SAMPLED = [MCDropoutRegressor, ConcreteDropoutRegressor, BayesByBackpropRegressor]
ALL = [*SAMPLED, HeteroscedasticRegressor, NeuralQuantileRegressor, DeepEnsembleRegressor]
STEPS = 4


def windows(n, seed=0):
    """Rows of four past values of an autoregression, beside the hour of the day, and the value that follows."""
    rng = np.random.default_rng(seed)
    series = np.zeros(n + 50)
    for t in range(2, len(series)):
        series[t] = 1.2 * series[t - 1] - 0.5 * series[t - 2] + 0.3 * rng.normal()
    views = np.lib.stride_tricks.sliding_window_view(series[50 - STEPS :], STEPS + 1)[:n]
    return np.column_stack([views[:, :-1], np.arange(n) % 24]), views[:, -1]


X, Y = windows(150)
X_NEW = windows(20, seed=1)[0]


def fitted(kind, **changes):
    samples = {"n_samples": 10} if kind in SAMPLED else {}
    usual = {"network": LSTM(hidden=6, layers=2, dropout=0.1, steps=STEPS), "max_epochs": 10, "random_state": 0}
    return kind([0.5, 0.9], **usual | samples | changes).fit(X, Y)


@pytest.fixture(scope="module", params=ALL, ids=lambda kind: kind.__name__)
def model(request):
    return fitted(request.param)


def test_every_baseline_takes_an_lstm(model):
    width = model.predict_interval(X_NEW).width
    assert (width[:, 0] > 0).all()
    assert (width[:, 0] < width[:, 1]).all()


def test_what_a_row_is_told_does_not_depend_on_the_rows_beside_it(model):
    together = model.predict_interval(X_NEW)
    assert_array_equal(model.predict_interval(X_NEW).lower, together.lower)
    for row in (0, 7, 19):
        alone = model.predict_interval(X_NEW[[row]])
        assert_allclose(alone.lower, together.lower[[row]], rtol=1e-4, atol=1e-5)  # an LSTM speaks in float32
        assert_allclose(alone.upper, together.upper[[row]], rtol=1e-4, atol=1e-5)


def test_a_file_gives_the_same_bits_back(model, tmp_path):
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.network == model.network
    assert_array_equal(again.predict(X_NEW), model.predict(X_NEW))
    for bound, same in zip(again.predict_interval(X_NEW), model.predict_interval(X_NEW), strict=True):
        assert_array_equal(bound, same)


def test_the_learned_rates_of_an_lstm_are_told_by_place():
    """Two layers: each has a rate for what it returns and one for what it passes on."""
    rates = fitted(ConcreteDropoutRegressor, members=2).rates_
    assert rates.shape == (2, 4)
    assert ((rates > 0) & (rates < 1)).all()
    assert (rates != 0.1).all()  # where they started


@pytest.mark.parametrize("kind", SAMPLED)
def test_the_same_seed_gives_the_same_bits(kind):
    assert_array_equal(fitted(kind).predict(X_NEW), fitted(kind).predict(X_NEW))


@pytest.mark.parametrize("kind", SAMPLED)
def test_sampled_lstms_learn_an_autoregression(kind):
    """On 3000 new rows, at most 10 % above the noise's 0.3; a constant would be at 0.58, the last value at 0.37."""
    x, y = windows(600)
    x_new, y_new = windows(3000, seed=1)
    usual = {"max_epochs": 60, "learning_rate": 0.01, "n_samples": 10, "random_state": 0}
    model = kind(0.9, network=LSTM(hidden=8, layers=1, dropout=0.1, steps=STEPS), **usual).fit(x, y)
    assert np.sqrt(np.mean((model.predict(x_new) - y_new) ** 2)) < 0.33
    lower, upper = model.predict_interval(x_new)
    assert 0.8 < np.mean((lower <= y_new) & (y_new <= upper)) < 0.97
