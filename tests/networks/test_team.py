import inspect

import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell.networks.mlp import MLP
from coverwell.networks.team import FactoryNetwork, LoopTeam, Network, Team, network_from


class Normed(nn.Module):
    """A module with parameters and with buffers, one of them an integer."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, n_outputs))

    def forward(self, x):
        return self.body(x)


NETWORKS = {"stacked": MLP(hidden=6, layers=3, bins=4), "loop": FactoryNetwork(Normed)}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())


def built(network, n_members, seed):
    torch.manual_seed(seed)
    team = network.build(n_members=n_members, input_shape=(3,), n_outputs=2)
    team.adapt(torch.randn(1, 40, 3), torch.ones(1, 40, dtype=torch.bool))
    return team.eval()


def test_a_loop_team_gives_the_outputs_of_its_modules_for_their_own_rows():
    modules = [nn.Linear(3, 2) for _ in range(4)]
    x = torch.randn(4, 5, 3)
    outputs = LoopTeam(modules, n_outputs=2)(x)
    assert outputs.shape == (4, 5, 2)
    for m in range(4):
        assert_array_equal(outputs[m].detach(), modules[m](x[m]).detach())


def test_a_loop_team_takes_inputs_of_any_shape():
    def window_network(n_steps, n_outputs):
        return nn.Sequential(nn.Flatten(), nn.Linear(4 * 2, n_outputs))

    team = FactoryNetwork(window_network).build(n_members=2, input_shape=(4, 2), n_outputs=3)
    assert team(torch.zeros(2, 7, 4, 2)).shape == (2, 7, 3)


@pytest.mark.parametrize(
    ("module", "n_outputs", "said"),
    [
        (nn.Linear(3, 5), 2, r"for 4 rows it gave \(4, 5\); .* n_outputs = 2"),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten(start_dim=0)), 1, r"it gave \(4,\)"),
        (nn.LSTM(3, 2), 2, "it gave tuple"),
    ],
)
def test_a_module_with_other_outputs_is_refused_with_the_right_number(module, n_outputs, said):
    with pytest.raises(ValueError, match=said):
        LoopTeam([module], n_outputs)(torch.zeros(1, 4, 3))


@every_network
@pytest.mark.parametrize("members", [slice(1, 3), slice(0, 1), slice(None)], ids=str)
def test_copied_members_change_and_no_others(network, members):
    source, goal = built(network, 4, seed=0), built(network, 4, seed=1)
    x = torch.randn(4, 6, 3)
    before, expected = goal(x).detach(), source(x).detach()
    goal.copy_from(source, members, members)
    after = goal(x).detach()
    copied = range(4)[members]
    for m in range(4):
        assert_array_equal(after[m], (expected if m in copied else before)[m])
        if m in copied:
            assert (after[m] != before[m]).any()


@every_network
def test_copied_members_share_no_memory(network):
    source, goal = built(network, 2, seed=0), built(network, 2, seed=1)
    goal.copy_from(source, slice(None))
    x = torch.randn(2, 6, 3)
    before = goal(x).detach()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(1.0)
    assert_array_equal(goal(x).detach(), before)


@every_network
def test_single_precision_is_copied_into_a_team_in_double_precision(network):
    team, precise = built(network, 2, seed=0), built(network, 2, seed=1).double()
    precise.copy_from(team, slice(None))
    x = torch.randn(2, 6, 3)
    outputs = precise(x.double()).detach()
    assert outputs.dtype == torch.float64
    assert_allclose(outputs, team(x).detach(), atol=1e-5)


@every_network
def test_deployed_members_are_a_team_of_their_own_ready_to_predict(network):
    team = built(network, 4, seed=0).train()
    part = team.deployed(slice(2, 4))
    assert part.n_members == 2
    assert not part.training
    assert not any(parameter.requires_grad for parameter in part.parameters())
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    outputs = part(x[2:])
    assert_array_equal(outputs, team.eval().double()(x)[2:].detach())
    with torch.no_grad():
        for parameter in team.parameters():
            parameter.add_(1.0)
    assert_array_equal(part(x[2:]), outputs)  # a copy
    assert {type(module) for module in part.modules()} == {type(module) for module in team.modules()}


def test_a_stacked_team_has_the_member_axis_first_everywhere():
    team = built(NETWORKS["stacked"], 4, seed=0)
    assert {value.shape[0] for value in team.state_dict().values()} == {4}


def test_a_factory_is_called_once_per_member_with_the_sizes():
    calls = []

    def factory(n_features, n_outputs):
        calls.append((n_features, n_outputs))
        return nn.Linear(n_features, n_outputs)

    team = FactoryNetwork(factory).build(n_members=3, input_shape=(4,), n_outputs=2)
    assert calls == [(4, 2)] * 3
    assert isinstance(team, Team)
    assert team.n_members == 3
    outputs = team(torch.ones(3, 1, 4)).detach()
    assert len(outputs.unique()) == 6  # every member starts from weights of its own


def test_a_factory_that_gives_no_module_is_refused():
    with pytest.raises(TypeError, match=r"must give a torch\.nn\.Module when called, got int"):
        FactoryNetwork(lambda n_features, n_outputs: 0).build(n_members=1, input_shape=(4,), n_outputs=2)


def test_a_recipe_is_taken_as_it_is():
    recipe = MLP(hidden=7)
    assert isinstance(recipe, Network)
    assert network_from(recipe) is recipe


def test_a_function_becomes_a_network():
    assert network_from(Normed) == FactoryNetwork(Normed)


def test_a_module_that_is_already_built_is_refused_because_every_member_needs_its_own():
    with pytest.raises(TypeError, match="every member needs one of its own"):
        network_from(nn.Linear(3, 2))


def test_anything_else_is_refused():
    unchecked = inspect.unwrap(network_from)  # the shape checks of the test run would refuse it first
    with pytest.raises(TypeError, match=r"must be a recipe .* got 'mlp'"):
        unchecked("mlp")


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("network", [MLP(hidden=4, bins=0), FactoryNetwork(nn.Linear)], ids=["stacked", "loop"])
def test_members_get_the_rows_of_their_job(network, n_jobs):
    x = torch.arange(n_jobs * 15.0).reshape(n_jobs, 5, 3)
    team = network.build(4, (3,), 2)
    assert_array_equal(team.for_members(x), x.repeat_interleave(4 // n_jobs, dim=0))


def test_members_of_one_job_that_run_one_after_the_other_look_at_the_same_memory():
    x = torch.zeros(1, 5, 3)
    assert FactoryNetwork(nn.Linear).build(4, (3,), 2).for_members(x).data_ptr() == x.data_ptr()
