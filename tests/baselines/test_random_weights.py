import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.baselines.bayes_by_backprop import BayesMLP
from coverwell.baselines.concrete_dropout import ConcreteMLP
from coverwell.baselines.mc_dropout import DropoutMLP
from coverwell.baselines.random_team import RandomTeam, fixed_team, repeated
from coverwell.networks.mlp import MLP

NETWORK = MLP(hidden=6, layers=3, dropout=0.3, bins=3)
RECIPES = {
    "dropout": DropoutMLP(NETWORK, length_scale=0.1),
    "concrete": ConcreteMLP(NETWORK, length_scale=0.1),
    "bayes": BayesMLP(NETWORK, prior_scale=1.0, kl_weight=1.0),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=RECIPES, name="team")
def team_of_two(request):
    """Two members of one kind, whose outputs lie far apart: the second one's last bias is 1000 higher."""
    torch.manual_seed(0)
    team = RECIPES[request.param].build(2, (4,), 2).double().eval()
    x = torch.randn(2, 50, 4, dtype=torch.float64)
    team.adapt(x, torch.ones(2, 50, dtype=torch.bool))
    with torch.no_grad():
        team.layers[-1].bias[1] += 1000.0
    return team.requires_grad_(False)


ROWS = torch.randn(1, 9, 4, generator=generator(7), dtype=torch.float64)


def test_our_random_networks_are_random_teams_and_a_plain_one_is_not(team):
    assert isinstance(team, RandomTeam)
    assert not isinstance(NETWORK.build(2, (4,), 2), RandomTeam)


def test_values_are_repeated_member_by_member():
    assert_array_equal(repeated(torch.tensor([[1.0], [2.0]]), 3)[:, 0], [1, 1, 1, 2, 2, 2])


def test_samples_are_ordered_by_member(team):
    samples = team.sample(5, generator())
    assert samples.n_members == 10
    said = samples(ROWS.expand(10, -1, -1))
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


def test_sampling_leaves_the_team_and_the_callers_random_state_as_they_were(team):
    before, state = team.state_of(slice(None)), torch.get_rng_state()
    samples = team.sample(2, generator())
    for weight in samples.parameters():
        weight.add_(1.0)
    assert_array_equal(torch.get_rng_state(), state)
    for name, value in team.state_dict().items():
        assert_array_equal(value, before[name])


def test_samples_code_their_inputs_as_their_own_member_does(team):
    samples = team.sample(3, generator())
    x = ROWS.expand(6, -1, -1)
    assert_array_equal(samples.code(x), repeated(team.code(ROWS.expand(2, -1, -1)), 3))
    assert (samples.code(x)[0] != samples.code(x)[3]).any()  # the members' edges come from different rows


def test_a_penalty_is_one_number_per_member_and_belongs_to_that_member(team):
    before = team.penalty()
    assert before.shape == (2,)
    team.layers[0].weight[0] += 1.0
    after = team.penalty()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_fixed_team_has_exactly_the_given_weights():
    plain = MLP(hidden=6, layers=3, dropout=0.3, bins=0).build(2, (4,), 2).double()
    torch.manual_seed(1)
    sizes = [(4, 6), (6, 6), (6, 2)]
    layers = [
        (torch.randn(4, n_in, n_out, dtype=torch.float64), torch.randn(4, 1, n_out, dtype=torch.float64))
        for n_in, n_out in sizes
    ]
    fixed = fixed_team(plain, layers)
    assert not fixed.training
    assert not any(weight.requires_grad for weight in fixed.parameters())
    x = torch.randn(4, 9, 4, dtype=torch.float64)
    expected = x
    for place, (weight, bias) in enumerate(layers):
        expected = expected.relu() if place else expected
        expected = expected @ weight + bias
    assert_allclose(fixed(x), expected, rtol=1e-12)
