"""What all teams with random weights promise, on MLPs and on LSTMs."""

import math

import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.func import functional_call

from coverwell.baselines.bayes_by_backprop import BayesNetwork
from coverwell.baselines.dropout import DropoutNetwork
from coverwell.baselines.training import Draws
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam

N_WINDOW, N_FEATURES = 6, 7  # three steps of two channels, and one number beside them
PLAIN = {
    "mlp": MLP(hidden=6, layers=3, dropout=0.3, bins=3),
    "lstm": LSTM(hidden=5, layers=2, dropout=0.3, steps=3, channels=2),
}
METHODS = {
    "dropout": lambda plain: DropoutNetwork(plain, length_scale=0.1),
    "concrete": lambda plain: DropoutNetwork(plain, length_scale=0.1, learned=True),
    "bayes": lambda plain: BayesNetwork(plain, prior_scale=1.0, kl_weight=1.0),
}
RECIPES = {f"{method} {kind}": METHODS[method](plain) for method in METHODS for kind, plain in PLAIN.items()}
every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


ROWS = torch.randn(1, 9, N_FEATURES, generator=generator(7), dtype=torch.float64)


def built(recipe, n_members=2):
    """A team in double precision, adapted to rows that differ from member to member."""
    torch.manual_seed(0)
    team = recipe.build(n_members, (N_FEATURES,), 2).double()
    team.adapt(torch.randn(n_members, 50, N_FEATURES, dtype=torch.float64), torch.ones(n_members, 50, dtype=torch.bool))
    if isinstance(recipe.plain, LSTM):
        for parameter in team.means.shortcut.parameters():
            torch.nn.init.normal_(parameter)
    return team


def last_bias(team):
    return team.means.layers[-1].bias if isinstance(team.means, MLPTeam) else team.means.head.bias


@pytest.fixture(params=RECIPES, name="team")
def team_of_two(request):
    """Two members of one kind, whose outputs lie far apart: the second one's last bias is 1000 higher."""
    team = built(RECIPES[request.param]).eval().requires_grad_(False)
    last_bias(team)[1] += 1000.0
    return team


# Random numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.rand, torch.randn])
def test_draws_of_a_generator_come_again_and_leave_the_callers_random_state(kind):
    values, state = torch.zeros(2, 4), torch.get_rng_state()
    first, same = (Draws(3, generator()).random(kind, values) for _ in range(2))
    assert_array_equal(torch.get_rng_state(), state)
    assert first.shape == (6, 4)
    assert_array_equal(first, same)
    assert Draws().random(kind, values).shape == (2, 4)
    assert (torch.get_rng_state() != state).any()


# Training ------------------------------------------------------------------------------------------------------------


def test_outside_training_the_mean_weights_count(team):
    plain = team.recipe.plain.build(2, (N_FEATURES,), 2).double().eval()
    if isinstance(plain, MLPTeam) and team.recipe != RECIPES["dropout mlp"]:
        plain.rate = 0.0  # what is drawn is rescaled: the weights are the means
    plain.load_state_dict(team.means.state_dict())
    x = ROWS.expand(2, -1, -1).clone()
    assert_allclose(team(x), plain(x).detach(), rtol=1e-12)


def test_in_training_a_batch_of_bayesian_lstms_is_one_draw():
    """Equal rows have equal outputs, others in the next batch, and those of the drawn weights."""
    team = built(RECIPES["bayes lstm"]).train()
    x = ROWS[:, :1].expand(2, 6, -1)
    torch.manual_seed(5)
    outputs, following = team(x), team(x)
    assert_allclose(outputs.detach(), outputs[:, :1].expand_as(outputs).detach(), rtol=1e-12)
    assert (outputs != following).all()
    torch.manual_seed(5)
    by_weights = functional_call(team.means, team.drawn(Draws()), (x,))
    assert_array_equal(outputs.detach(), by_weights.detach())


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "bayes lstm"])
def test_in_training_every_other_team_draws_for_each_row(name):
    outputs = built(RECIPES[name]).train()(ROWS[:, :1].expand(2, 6, -1).clone())
    assert len(outputs.flatten(end_dim=1).unique(dim=0)) > 7  # of 12; a few units may be dropped alike by chance


@every_recipe
def test_a_training_step_makes_no_choice_by_a_number(recipe):
    """On tensors without numbers, as capturing a step for a GPU needs it; the way of a GPU is taken there."""
    team = built(recipe).to("meta").train()
    (team(ROWS.expand(2, -1, -1).to("meta")).square().mean(dim=(1, 2)) + team.penalty()).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in team.parameters())


@every_recipe
def test_every_parameter_learns_and_a_members_loss_has_gradients_for_that_member_alone(recipe):
    team = built(recipe).train()
    (team(ROWS.expand(2, -1, -1).clone())[1].square().mean() + team.penalty()[1]).backward()
    for parameter in team.parameters():
        assert_array_equal(parameter.grad[0], torch.zeros_like(parameter.grad[0]))
        assert (parameter.grad[1] != 0).any()
        assert torch.isfinite(parameter.grad).all()


# Samples -------------------------------------------------------------------------------------------------------------


def test_samples_are_ordered_by_member(team):
    outputs = team.sample(5, generator())(ROWS.expand(10, -1, -1).clone())
    assert (outputs[:5].abs() < 500).all()
    assert (outputs[5:] > 500).all()


def test_samples_differ_and_come_again_with_the_same_seed(team):
    first, same, other = (team.sample(4, generator(seed))(ROWS.expand(8, -1, -1).clone()) for seed in (0, 0, 1))
    assert_array_equal(first, same)
    assert (first != other).any()
    assert len(first[:4].unique(dim=0)) == 4


def test_a_sample_is_one_network_for_all_rows(team):
    samples = team.sample(3, generator())
    x = ROWS.expand(6, -1, -1).clone()
    together = samples(x)
    for row in range(9):
        assert_allclose(samples(x[:, [row]]), together[:, [row]], rtol=1e-12)
    assert_array_equal(samples(x), together)  # nothing is drawn any more


def test_over_samples_every_weight_has_its_mean(team):
    n = 4000
    samples = dict(team.sample(n, generator()).named_parameters())
    plain_dropout = isinstance(team.means, MLPTeam) and team.recipe == RECIPES["dropout mlp"]
    for name, weight in team.weights.items():
        share = 0.7 if plain_dropout and name in team.places else 1.0  # an MLP's own dropout does not rescale
        drawn = samples[name].unflatten(0, (2, n))
        error = drawn.std(dim=1) / math.sqrt(n)
        assert ((drawn.mean(dim=1) - share * weight).abs() <= 4.8 * error + 1e-12).all()


def test_sampling_leaves_the_team_and_the_callers_random_state_as_they_were(team):
    before, state = {name: value.clone() for name, value in team.state_dict().items()}, torch.get_rng_state()
    samples = team.sample(2, generator())
    for weight in samples.parameters():
        weight.add_(1.0)
    assert_array_equal(torch.get_rng_state(), state)
    for name, value in team.state_dict().items():
        assert_array_equal(value, before[name])


def test_members_that_are_deployed_have_the_distribution_that_they_had(team):
    """Whatever is drawn is a function of the weights: equal draws for one member give that member's samples."""
    part = team.deployed(slice(1, 2))
    assert part.n_members == 1
    assert_allclose(part.penalty(), team.penalty()[1:], rtol=1e-6)
    samples = part.double().sample(3, generator())
    assert samples.n_members == 3
    assert (samples(ROWS.expand(3, -1, -1).clone()) > 500).all()


@pytest.mark.parametrize("method", METHODS)
def test_samples_code_their_inputs_as_their_own_member_does(method):
    team = built(RECIPES[f"{method} mlp"]).eval().requires_grad_(False)
    samples, x = team.sample(3, generator()), ROWS.expand(6, -1, -1)
    assert_array_equal(samples.code(x), Draws(3).of(team.means.code(ROWS.expand(2, -1, -1))))
    assert (samples.code(x)[0] != samples.code(x)[3]).any()  # the members' edges come from different rows
