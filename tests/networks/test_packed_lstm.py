"""A single row through packed weights has the bits of torch's LSTM, also after the weights have changed."""

import copy
import pickle

import pytest
import torch
from coverwell.networks.packed_lstm import PackedLSTM
from numpy.testing import assert_array_equal
from torch.func import functional_call

from coverwell.networks.lstm import StackedLSTM

MEMBERS, STEPS, CHANNELS, HIDDEN = 3, 6, 2, 5
ROW = torch.randn(MEMBERS, STEPS, 1, CHANNELS, generator=torch.Generator().manual_seed(0))

with torch.no_grad():
    SERVED = PackedLSTM.serves(ROW)
pytestmark = pytest.mark.skipif(not SERVED, reason="this torch has no oneDNN")


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return StackedLSTM(MEMBERS, CHANNELS, HIDDEN).requires_grad_(False)


@torch.no_grad()
def assert_the_same_bits(layer, row=ROW):
    assert_array_equal(layer(row), layer.one_by_one(row))


def test_a_row_has_the_bits_of_torchs_lstm(layer):
    assert_the_same_bits(layer)
    assert layer._packed is not None


def test_rows_of_any_length_are_served_by_weights_that_were_packed_once(layer):
    assert_the_same_bits(layer)
    packed = layer._packed
    for steps in (1, 3, 50):
        assert_the_same_bits(layer, torch.randn(MEMBERS, steps, 1, CHANNELS))
    assert layer._packed is packed


@pytest.mark.parametrize("name", ["weight", "recurrent", "bias"])
def test_changed_weights_are_packed_again(layer, name):
    assert_the_same_bits(layer)
    getattr(layer, name).mul_(2)
    assert_the_same_bits(layer)
    setattr(layer, name, torch.nn.Parameter(getattr(layer, name).detach() + 1, requires_grad=False))
    assert_the_same_bits(layer)


def test_a_loaded_state_is_packed_again(layer):
    assert_the_same_bits(layer)
    layer.load_state_dict(StackedLSTM(MEMBERS, CHANNELS, HIDDEN).state_dict())
    assert_the_same_bits(layer)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_packs_for_itself(layer, copied):
    assert_the_same_bits(layer)
    other = copied(layer)
    assert other._packed is None
    other.weight = torch.nn.Parameter(other.weight.detach() + 1, requires_grad=False)
    assert_the_same_bits(other)
    assert_the_same_bits(layer)


@torch.no_grad()
def test_weights_for_one_call_are_those_of_that_call(layer):
    assert_the_same_bits(layer)
    other = {"recurrent": layer.recurrent * 3}
    called = functional_call(layer, other, (ROW,))
    assert_the_same_bits(layer)
    layer.recurrent.mul_(3)
    assert_array_equal(called, layer.one_by_one(ROW))


def test_several_rows_gradients_and_other_types_are_not_served(layer):
    with torch.no_grad():
        assert not PackedLSTM.serves(ROW.expand(-1, -1, 2, -1))
        assert not PackedLSTM.serves(ROW.double())
        assert not PackedLSTM.serves(ROW.to("meta"))
    assert not PackedLSTM.serves(ROW)  # gradients may be asked for
    x = ROW.clone().requires_grad_(True)
    layer(x).sum().backward()
    assert x.grad is not None
