import inspect

import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import FactoryNetwork, ImageNetwork, LoopTeam, Network, Team, network_from


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


def test_a_loop_team_says_what_its_modules_say_about_their_own_rows():
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


def test_a_module_with_another_number_of_outputs_is_refused_with_the_right_one():
    team = LoopTeam([nn.Linear(3, 5)], n_outputs=2)
    with pytest.raises(ValueError, match=r"for 4 rows it gave \(4, 5\); .* n_outputs = 2"):
        team(torch.zeros(1, 4, 3))


def test_a_module_that_forgets_the_output_axis_is_refused():
    team = LoopTeam([nn.Sequential(nn.Linear(3, 1), nn.Flatten(start_dim=0))], n_outputs=1)
    with pytest.raises(ValueError, match=r"it gave \(4,\)"):
        team(torch.zeros(1, 4, 3))


def test_a_module_that_gives_no_tensor_is_refused():
    team = LoopTeam([nn.LSTM(3, 2)], n_outputs=2)  # gives a tuple
    with pytest.raises(ValueError, match="it gave tuple"):
        team(torch.zeros(1, 4, 3))


def test_a_team_reads_nothing_off_its_inputs_unless_it_says_so():
    team = LoopTeam([nn.Linear(3, 2)], n_outputs=2)
    before = team.state_of(slice(None))
    team.adapt(torch.randn(1, 10, 3), torch.ones(1, 10, dtype=torch.bool))
    for name, value in team.state_of(slice(None)).items():
        assert_array_equal(value, before[name])


@every_network
@pytest.mark.parametrize("members", [slice(1, 3), [1, 2], [3, 0], slice(None)], ids=str)
def test_the_state_of_some_members_moves_them_and_no_others(network, members):
    source, goal = built(network, 4, seed=0), built(network, 4, seed=1)
    x = torch.randn(4, 6, 3)
    before = goal(x).detach()
    goal.set_state_of(members, source.state_of(members))
    after = goal(x).detach()
    moved = list(range(4))[members] if isinstance(members, slice) else members
    for m in range(4):
        assert_array_equal(after[m], (source(x).detach() if m in moved else before)[m])
        if m in moved:
            assert (after[m] != before[m]).any()


@every_network
def test_some_members_become_a_team_of_their_own(network):
    team, part = built(network, 4, seed=0), built(network, 2, seed=1)
    part.set_state_of(slice(None), team.state_of(slice(2, 4)))
    x = torch.randn(4, 6, 3)
    assert_array_equal(part(x[2:]).detach(), team(x)[2:].detach())


@every_network
def test_the_state_of_a_team_is_a_copy(network):
    team = built(network, 2, seed=0)
    state = team.state_of(slice(0, 1))
    kept = {name: value.clone() for name, value in state.items()}
    with torch.no_grad():
        for parameter in team.parameters():
            parameter.add_(1.0)
    for name, value in state.items():
        assert_array_equal(value, kept[name])


@every_network
def test_a_state_in_single_precision_goes_into_a_team_in_double_precision(network):
    team, precise = built(network, 2, seed=0), built(network, 2, seed=1).double()
    precise.set_state_of(slice(None), team.state_of(slice(None)))
    x = torch.randn(2, 6, 3)
    outputs = precise(x.double()).detach()
    assert outputs.dtype == torch.float64
    assert_allclose(outputs, team(x).detach(), atol=1e-5)


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


def test_a_module_class_is_a_factory():
    team = network_from(nn.Linear).build(n_members=2, input_shape=(3,), n_outputs=1)
    assert team(torch.zeros(2, 5, 3)).shape == (2, 5, 1)


def test_a_module_that_is_already_built_is_refused_because_every_member_needs_its_own():
    with pytest.raises(TypeError, match="every member needs one of its own"):
        network_from(nn.Linear(3, 2))


def test_a_recipe_class_in_place_of_a_recipe_is_refused():
    with pytest.raises(TypeError, match="got MLP"):
        network_from(MLP).build(n_members=1, input_shape=(3,), n_outputs=1)


def test_anything_else_is_refused():
    unchecked = inspect.unwrap(network_from)  # the shape checks of the test run would speak first
    with pytest.raises(TypeError, match=r"must be a recipe .* got 'mlp'"):
        unchecked("mlp")


@every_network
def test_a_team_moves_only_where_it_is_not_yet(network):
    team = built(network, 2, seed=0)
    before = {name: value.data_ptr() for name, value in team.state_dict().items()}
    team.move(torch.device("cpu"))
    assert {name: value.data_ptr() for name, value in team.state_dict().items()} == before
    team.move(torch.device("meta"))
    assert {value.device.type for value in team.state_dict().values()} == {"meta"}


@pytest.mark.parametrize(
    ("network", "precision"),
    [(NETWORKS["stacked"], torch.float64), (NETWORKS["loop"], torch.float64), (LSTM(hidden=4, steps=3), torch.float32)],
    ids=["stacked", "loop", "lstm"],
)
def test_a_kind_of_team_says_in_which_precision_it_speaks(network, precision):
    assert network.build(2, (3,), 2).precision == precision


def test_a_team_of_buffers_alone_is_moved_too():
    team = LoopTeam([nn.BatchNorm1d(2, affine=False)], 2)
    team.move(torch.device("meta"))
    assert all(buffer.device.type == "meta" for buffer in team.buffers())


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("network", [MLP(hidden=4, bins=0), FactoryNetwork(nn.Linear)], ids=["stacked", "loop"])
def test_members_get_the_rows_of_their_job(network, n_jobs):
    x = torch.arange(n_jobs * 15.0).reshape(n_jobs, 5, 3)
    team = network.build(4, (3,), 2)
    assert_array_equal(team.for_members(x), x.repeat_interleave(4 // n_jobs, dim=0))


def test_members_of_one_job_that_run_one_after_the_other_look_at_the_same_memory():
    x = torch.zeros(1, 5, 3)
    assert FactoryNetwork(nn.Linear).build(4, (3,), 2).for_members(x).data_ptr() == x.data_ptr()


def test_networks_for_tables_are_none_for_pictures():
    assert isinstance(ResNet18(), ImageNetwork)
    for network in (MLP(), LSTM(steps=2, channels=1), FactoryNetwork(nn.Linear)):
        assert not isinstance(network, ImageNetwork)
