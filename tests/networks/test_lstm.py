import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest, uniform
from torch import nn
from torch.func import functional_call

from coverwell.networks.lstm import LSTM, LSTMTeam, StackedLSTM, is_single_row

ways = pytest.mark.parametrize("way", [StackedLSTM.at_once, StackedLSTM.one_by_one], ids=lambda way: way.__name__)


def layer_of(*, n_members=3, n_inputs=2, hidden=5, seed=0):
    torch.manual_seed(seed)
    return StackedLSTM(n_members, n_inputs, hidden).double()


def sequences(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def lstm_of(layer, member):
    """The `torch.nn.LSTM` with the weights of one member; its second bias is zero."""
    hidden = layer.recurrent.shape[-1]
    twin = nn.LSTM(layer.weight.shape[-1], hidden, dtype=torch.float64)
    with torch.no_grad():
        twin.weight_ih_l0.copy_(layer.weight[member])
        twin.weight_hh_l0.copy_(layer.recurrent[member])
        twin.bias_ih_l0.copy_(layer.bias[member, 0])
        twin.bias_hh_l0.zero_()
    return twin


def build(n_members=3, n_outputs=2, n_beside=0, seed=0, **recipe):
    torch.manual_seed(seed)
    network = LSTM(**{"hidden": 5, "steps": 4, "channels": 2, **recipe})
    return network.build(n_members, (network.steps * network.channels + n_beside,), n_outputs).double()


def shaken(team):
    """The same team with a shortcut that counts."""
    with torch.no_grad():
        for parameter in team.shortcut.parameters():
            parameter.normal_()
    return team


def rows_for(team, n=7, seed=2):
    return sequences(team.n_members, n, team.n_features, seed=seed)


def test_one_step_by_hand():
    """Gates of 0 open half and their candidate is 0; a candidate of atanh(1/2) gives c = 1/4, h = tanh(1/4) / 2."""
    layer = StackedLSTM(1, 1, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[0.0], [0.0], [math.atanh(0.5)], [0.0]]]))
        layer.recurrent.zero_()
        layer.bias.zero_()
    for way in (layer.at_once, layer.one_by_one):
        first, second = way(torch.tensor([[[[1.0]], [[0.0]]]])).flatten().tolist()
        assert first == pytest.approx(math.tanh(0.25) / 2)
        assert second == pytest.approx(math.tanh(0.125) / 2)  # half of the cell is forgotten, nothing enters


@ways
@given(
    seed=st.integers(0, 2**16),
    n_members=st.integers(1, 3),
    steps=st.integers(1, 4),
    batch=st.integers(1, 4),
    hidden=st.integers(1, 4),
)
def test_a_layer_is_torchs_lstm_member_by_member(way, seed, n_members, steps, batch, hidden):
    layer = layer_of(n_members=n_members, hidden=hidden, seed=seed)
    x = sequences(n_members, steps, batch, 2, seed=seed)
    states = way(layer, x).detach()
    assert states.shape == (n_members, steps, batch, hidden)
    for m in range(n_members):
        assert_allclose(states[m], lstm_of(layer, m)(x[m])[0].detach(), atol=1e-12)


@ways
@pytest.mark.parametrize("steps", [1, 6])
def test_a_layer_has_the_gradients_of_torchs_lstm(way, steps):
    layer, x = layer_of(), sequences(3, steps, 4, 2).requires_grad_()
    cotangent = sequences(3, steps, 4, 5, seed=9)  # every state counts, each with a weight of its own
    (way(layer, x) * cotangent).sum().backward()
    for m in range(3):
        twin, own = lstm_of(layer, m), x[m].detach().clone().requires_grad_()
        (twin(own)[0] * cotangent[m]).sum().backward()
        assert_allclose(layer.weight.grad[m], twin.weight_ih_l0.grad, atol=1e-12)
        assert_allclose(layer.recurrent.grad[m], twin.weight_hh_l0.grad, atol=1e-12)
        assert_allclose(layer.bias.grad[m, 0], twin.bias_ih_l0.grad, atol=1e-12)
        assert_allclose(x.grad[m], own.grad, atol=1e-12)


def test_a_second_derivative_of_all_members_at_once_is_refused():
    """Its backward pass is written out without a record: a second one would be silently wrong."""
    layer, x = layer_of(), sequences(3, 4, 6, 2).requires_grad_()
    (slope,) = torch.autograd.grad(layer.at_once(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_both_ways_agree_in_the_precision_they_train_in():
    layer, x = layer_of(hidden=16).float(), sequences(3, 24, 8, 2).float()
    one, other = layer.at_once(x).detach(), layer.one_by_one(x).detach()
    assert_allclose(one, other, atol=1e-5)
    assert_array_equal(layer(x).detach(), other)  # what a CPU takes by itself


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("steps", [1, 6])
def test_a_gpu_gives_the_states_and_gradients_of_a_cpu(steps):
    cotangent, outputs, gradients = sequences(3, steps, 4, 5, seed=9), [], []
    for device in ("cpu", "cuda"):
        layer, x = layer_of().to(device), sequences(3, steps, 4, 2).to(device).requires_grad_()
        states = layer(x)
        (states * cotangent.to(device)).sum().backward()
        outputs.append(states.detach().cpu())
        gradients.append([v.grad.cpu() for v in (x, *layer.parameters())])
    assert_allclose(outputs[1], outputs[0], atol=1e-12)
    for on_gpu, on_cpu in zip(gradients[1], gradients[0], strict=True):
        assert_allclose(on_gpu, on_cpu, atol=1e-12)


@pytest.mark.parametrize("name", ["weight", "recurrent", "bias"])
def test_a_layer_starts_from_the_law_of_torchs_lstm(name):
    torch.manual_seed(0)
    bound = 1 / math.sqrt(16)
    values = getattr(StackedLSTM(20, 16, 16), name).detach().flatten()
    twin = getattr(nn.LSTM(16, 16), {"weight": "weight_ih_l0", "recurrent": "weight_hh_l0", "bias": "bias_ih_l0"}[name])
    for sample in (values, twin.detach().flatten()):
        assert kstest(sample, uniform(-bound, 2 * bound).cdf).pvalue > 1e-4


def test_the_network_of_the_paper_has_two_layers_of_128_units_and_a_linear_head():
    team = LSTM().build(1, (24,), 2)
    assert isinstance(team, LSTMTeam)
    assert [tuple(layer.weight.shape) for layer in team.layers] == [(1, 512, 1), (1, 512, 128)]
    assert [tuple(layer.recurrent.shape) for layer in team.layers] == [(1, 512, 128)] * 2
    assert tuple(team.head.weight.shape) == (1, 128, 2)


@pytest.mark.parametrize("n_beside", [0, 3])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_team_is_torchs_layers_a_head_a_shortcut_of_the_window_and_a_map_of_the_rest(layers, n_beside):
    team = shaken(build(layers=layers, n_beside=n_beside)).eval()
    x = rows_for(team)
    for m in range(3):
        states = x[m, :, :8].reshape(7, 4, 2).transpose(0, 1)  # step by step, channel within step
        for layer in team.layers:
            states = lstm_of(layer, m)(states)[0]
        expected = states[-1] @ team.head.weight[m] + team.head.bias[m]
        expected = expected + x[m, :, :8] @ team.shortcut.weight[m] + team.shortcut.bias[m]
        if n_beside:
            expected = expected + x[m, :, 8:] @ team.beside.weight[m] + team.beside.bias[m]
        assert_allclose(team(x)[m].detach(), expected.detach(), atol=1e-12)


def test_a_row_is_flat_step_by_step_with_the_channels_of_a_step_together():
    team = build(n_members=1, steps=3, channels=2, n_beside=1)
    sequence = team.sequence_of(torch.tensor([[[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 99.0]]]))
    assert_array_equal(sequence, [[[[1, 10]], [[2, 20]], [[3, 30]]]])  # (member, step, batch, channel)


def test_the_shortcut_starts_at_zero_and_learns():
    with_it, without = build().eval(), build(shortcut=False).eval()
    x = rows_for(with_it)
    assert_array_equal(with_it(x).detach(), without(x).detach())
    assert without.shortcut is None
    with_it(x).sum().backward()
    assert (with_it.shortcut.weight.grad != 0).all()


def test_what_one_member_sees_or_weighs_does_not_change_the_others_by_a_bit():
    team = shaken(build(n_beside=1)).float().eval()
    x = rows_for(team).float()
    before = team(x).detach()
    changed = x.clone()
    changed[0] += 1
    with torch.no_grad():
        for parameter in team.parameters():
            parameter[2] *= 1.5
    after = team(changed).detach()
    assert_array_equal(after[1], before[1])
    assert (after[[0, 2]] != before[[0, 2]]).all()


def test_a_members_loss_has_gradients_for_that_member_alone():
    team = build(n_beside=1)
    team(rows_for(team))[1].square().sum().backward()
    for parameter in team.parameters():
        assert_array_equal(parameter.grad[[0, 2]], torch.zeros_like(parameter[[0, 2]]))
        assert (parameter.grad[1] != 0).any()


def shares_passed_on(team, x):
    """What follows each layer receives of every state, over what the layer gives: 0 of a dropped unit."""
    given, received = [], []
    hooks = [layer.register_forward_hook(lambda _, __, states: given.append(states)) for layer in team.layers]
    hooks += [
        layer.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0])) for layer in team.layers[1:]
    ]
    hooks.append(team.head.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0])))
    with torch.no_grad():
        team(x)
    for hook in hooks:
        hook.remove()
    pairs = zip(received, given, strict=True)
    return [inputs / (states if inputs.ndim == 4 else states[:, -1]) for inputs, states in pairs]


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_in_training_a_share_of_the_units_is_dropped_after_every_layer(rate):
    team = build(hidden=40, dropout=rate).train()
    torch.manual_seed(3)
    for shares in shares_passed_on(team, rows_for(team, n=100)):
        dropped = shares == 0
        assert_allclose(shares[~dropped], torch.full_like(shares[~dropped], 1 / (1 - rate)), rtol=1e-12)
        n = 3 * 100 * 40  # members, rows, units; steps share
        assert abs(dropped.double().mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / n)


def test_a_rows_dropped_units_are_the_same_at_every_step_and_others_in_another_row():
    team = build(hidden=40, dropout=0.5).train()
    to_second_layer, _ = shares_passed_on(team, rows_for(team))
    dropped = to_second_layer == 0  # (member, step, batch, unit)
    assert_array_equal(dropped, dropped[:, :1].expand_as(dropped))
    assert len(dropped[:, 0].flatten(end_dim=1).unique(dim=0)) == 3 * 7


def test_in_training_what_stands_beside_and_the_window_reach_the_output_undropped():
    """With a head of zeros, dropout has nothing to drop."""
    team = shaken(build(n_beside=3, dropout=0.9)).train()
    with torch.no_grad():
        team.head.weight.zero_()
    x = rows_for(team)
    assert_array_equal(team(x).detach(), team.eval()(x).detach())


def test_outside_training_nothing_is_dropped():
    team, plain = build(dropout=0.9).eval(), build(dropout=0.0)
    x = rows_for(plain)
    assert_array_equal(team(x).detach(), plain.eval()(x).detach())
    assert_array_equal(plain.train()(x).detach(), plain.eval()(x).detach())


@pytest.mark.parametrize("name", ["hidden", "layers", "steps", "channels"])
@pytest.mark.parametrize("wrong", [0, -3, True], ids=repr)
def test_sizes_that_make_no_network_are_refused(name, wrong):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got {wrong!r}"):
        LSTM(**{name: wrong})


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_a_dropout_outside_zero_to_one_is_refused(dropout):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\)"):
        LSTM(dropout=dropout)


def test_rows_shorter_than_the_window_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"window of 24 steps and 2 channels, 48 numbers, got 47; set steps and"):
        LSTM(channels=2).build(1, (47,), 1)


def test_the_weight_of_a_row_by_hand():
    """Four gates of 128 units at 24 steps, over the 64 numbers that an MLP holds for an input."""
    assert LSTM().build(1, (24,), 1).weight_of_row(24) == 24 * 128 * 4 // 64
    assert LSTM(hidden=1, steps=1).build(1, (1,), 1).weight_of_row(1) == 1


def test_operations_by_hand():
    """Each step, four gates of 3 units: 2 channels and 3 states enter the first layer, 3 and 3 the second."""
    assert LSTM(hidden=3, layers=2, steps=5, channels=2).operations_per_row(10) == 5 * 4 * 3 * (2 + 3 + 3 + 3)


MEMBERS, STEPS, CHANNELS, HIDDEN = 3, 6, 2, 5
ROW = torch.randn(MEMBERS, STEPS, 1, CHANNELS, generator=torch.Generator().manual_seed(0))

with torch.no_grad():
    SERVED = is_single_row(ROW)
packed = pytest.mark.skipif(not SERVED, reason="this torch has no oneDNN")


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return StackedLSTM(MEMBERS, CHANNELS, HIDDEN).requires_grad_(False)


@torch.no_grad()
def assert_the_same_bits(layer, row=ROW):
    assert_array_equal(layer(row), layer.one_by_one(row))


@packed
def test_a_row_of_any_length_has_the_bits_of_torchs_lstm_by_weights_that_were_packed_once(layer):
    assert_the_same_bits(layer)
    once = layer._packed
    for steps in (1, 3, 50):
        assert_the_same_bits(layer, torch.randn(MEMBERS, steps, 1, CHANNELS))
    assert layer._packed is once is not None


@packed
@pytest.mark.parametrize("name", ["weight", "recurrent", "bias"])
def test_weights_that_are_changed_replaced_or_loaded_are_packed_again(layer, name):
    assert_the_same_bits(layer)
    getattr(layer, name).mul_(2)
    assert_the_same_bits(layer)
    setattr(layer, name, torch.nn.Parameter(getattr(layer, name).detach() + 1, requires_grad=False))
    assert_the_same_bits(layer)
    layer.load_state_dict(StackedLSTM(MEMBERS, CHANNELS, HIDDEN).state_dict())
    assert_the_same_bits(layer)


@packed
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_packs_for_itself(layer, copied):
    assert_the_same_bits(layer)
    other = copied(layer)
    assert other._packed is None
    other.weight = torch.nn.Parameter(other.weight.detach() + 1, requires_grad=False)
    assert_the_same_bits(other)
    assert_the_same_bits(layer)


@packed
@torch.no_grad()
def test_weights_for_one_call_are_those_of_that_call(layer):
    assert_the_same_bits(layer)
    other = {"recurrent": layer.recurrent * 3}
    called = functional_call(layer, other, (ROW,))
    assert_the_same_bits(layer)
    layer.recurrent.mul_(3)
    assert_array_equal(called, layer.one_by_one(ROW))


@packed
def test_several_rows_gradients_and_other_types_are_not_served(layer):
    with torch.no_grad():
        assert not is_single_row(ROW.expand(-1, -1, 2, -1))
        assert not is_single_row(ROW.double())
        assert not is_single_row(ROW.to("meta"))
    assert not is_single_row(ROW)  # gradients may be asked for
    x = ROW.clone().requires_grad_(True)
    layer(x).sum().backward()
    assert x.grad is not None
