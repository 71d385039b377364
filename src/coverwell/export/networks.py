"""Trained teams as nodes of a graph: all voices of a team about the same rows, (voice, row, output) in float64."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.baselines.random_resnet import SampledTails, tails_of
from coverwell.export.graph import OPSET, Graph, Value, needed
from coverwell.networks.embeddings import PiecewiseLinear
from coverwell.networks.lstm import LSTMTeam, StackedLSTM
from coverwell.networks.mlp import MLPTeam, StackedLinear
from coverwell.networks.resnet import BasicBlock, ResNet18Tail, ResNet18Team, ResNet18Trunk
from coverwell.networks.team import LoopTeam, Team

__all__ = ["outputs_of", "trunk_features"]

# Numbers of an LSTM's gates: torch has enter, forget, candidate, leave, and ONNX enter, leave, forget, candidate.
ONNX_GATES = (0, 3, 1, 2)
SIDES = 4  # of a picture that are padded


def outputs_of(graph: Graph, team: Team, x: Value, row_shape: Sequence[int], precision: Any) -> Value:
    """What a team says about rows (row, ...) of this shape, given in float64; an MLP computes in `precision`."""
    if isinstance(team, MLPTeam):
        return graph.cast(_mlp(graph, team, x, precision), np.float64)
    x = graph.cast(x, np.float32)
    if isinstance(team, SampledTails):
        said = _sampled_tails(graph, team, x)
    elif isinstance(team, ResNet18Team):
        said = _tails(graph, tails_of(team), x)
    else:
        rows = graph.never_empty(x, 1 + len(row_shape))
        if isinstance(team, LSTMTeam):
            said = _lstm(graph, team, rows)
        else:
            said = _traced(graph, _one_network(team), rows, row_shape)
        said = graph.sliced(said, 0, graph.n_rows(x), axis=1)
    return graph.cast(said, np.float64)


# Tables --------------------------------------------------------------------------------------------------------------


def _mlp(graph: Graph, team: MLPTeam, x: Value, precision: Any) -> Value:
    if team.code is not None:
        x = _coded(graph, team.code, x)
    first, *others = team.layers
    x = _wide(graph, first, graph.cast(x, precision), precision)
    for layer in others:
        gain = 1 - team.rate  # for the units that would be silent in training
        weight, bias = gain * _array(layer.weight), _array(layer.bias)
        x = graph.op("MatMul", graph.op("Relu", x), weight.astype(precision))
        x = graph.op("Add", x, bias.astype(precision))
    return x


def _coded(graph: Graph, code: PiecewiseLinear, x: Value) -> Value:
    """Columns beside their piecewise-linear code; members of one job have the same edges.

    In float64: half the rows of a column with a few huge values may share less than a millionth of its range, and have
    bins there that are narrower than float32 can tell apart.
    """
    start, slope = (_array(edges)[0] for edges in (code.start, code.slope))  # (1, feature, bin)
    passed = graph.op("Mul", graph.op("Sub", graph.unsqueezed(x, 2), start), slope)
    passed = graph.op("Clip", passed, np.float64(0), np.float64(1))
    n_features, bins = start.shape[1:]
    return graph.concatenated([x, graph.reshaped(passed, 0, n_features * bins)], axis=1)


def _wide(graph: Graph, layer: StackedLinear, x: Value, precision: Any) -> Value:
    """A layer of all members on the same rows, as one product: (row, input) -> (member, row, output)."""
    weight, bias = _array(layer.weight), _array(layer.bias)
    n_members, n_inputs, n_outputs = weight.shape
    side_by_side = weight.transpose(1, 0, 2).reshape(n_inputs, n_members * n_outputs)
    wide = graph.op("MatMul", x, side_by_side.astype(precision))
    wide = graph.op("Add", wide, bias.reshape(-1).astype(precision))
    return graph.op("Transpose", graph.reshaped(wide, 0, n_members, n_outputs), perm=[1, 0, 2])


# Series --------------------------------------------------------------------------------------------------------------


def _lstm(graph: Graph, team: LSTMTeam, x: Value) -> Value:
    window = graph.sliced(x, 0, team.n_window, axis=1)
    steps = graph.reshaped(window, 0, team.lstm.steps, team.lstm.channels)
    sequence = graph.op("Transpose", steps, perm=[1, 0, 2])  # (step, row, channel)
    last = [_last_state(graph, team, member, sequence) for member in range(team.n_members)]
    head = team.head
    said = graph.op("MatMul", graph.concatenated(last, axis=0), _array(head.weight, np.float32))
    said = graph.op("Add", said, _array(head.bias, np.float32))
    if team.beside is not None:
        beside = graph.sliced(x, team.n_window, team.n_features, axis=1)
        said = graph.op("Add", said, _wide(graph, team.beside, beside, np.float32))
    if team.shortcut is not None:
        said = graph.op("Add", said, _wide(graph, team.shortcut, window, np.float32))
    return said


def _last_state(graph: Graph, team: LSTMTeam, member: int, sequence: Value) -> Value:
    """The last state of a member's last layer, (1, row, hidden)."""
    last = sequence
    for layer in team.layers:
        assert isinstance(layer, StackedLSTM)  # an LSTM team has no others
        all_states, last = graph.ops(
            "LSTM", sequence, *_gates(layer, member), n_results=2, hidden_size=layer.recurrent.shape[-1]
        )
        sequence = graph.op("Squeeze", all_states, np.array([1]))  # one direction
    return last


def _gates(layer: StackedLSTM, member: int) -> list[NDArray[np.float32]]:
    """Weights, recurrent weights and biases in the order of ONNX, of one direction; the second bias is zero."""
    weight, recurrent, bias = (
        _array(part[member], np.float32) for part in (layer.weight, layer.recurrent, layer.bias[:, 0])
    )
    ordered = [np.concatenate([np.split(part, 4)[gate] for gate in ONNX_GATES]) for part in (weight, recurrent, bias)]
    ordered[2] = np.concatenate([ordered[2], np.zeros_like(ordered[2])])
    return [part[None] for part in ordered]


# Pictures ------------------------------------------------------------------------------------------------------------


def trunk_features(graph: Graph, trunk: nn.Module, pictures: Value, size: int) -> Value:
    """What frozen layers say about pictures (row, 3, size, size)."""
    if isinstance(trunk, ResNet18Trunk):
        return _resnet_trunk(graph, trunk, pictures)
    return _traced(graph, trunk, pictures, (3, size, size))


def _resnet_trunk(graph: Graph, trunk: ResNet18Trunk, pictures: Value) -> Value:
    centred = graph.op("Sub", pictures, _array(trunk.mean, np.float32))
    x = graph.op("Div", centred, _array(trunk.sd, np.float32))
    x = graph.op("Relu", _convolution(graph, trunk.conv1, trunk.bn1, x))
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * SIDES)
    for layer in (trunk.layer1, trunk.layer2, trunk.layer3):
        x = _blocks(graph, layer, x)
    return x


def _blocks(graph: Graph, layer: nn.Module, x: Value) -> Value:
    for block in layer.children():
        assert isinstance(block, BasicBlock)  # a layer of a ResNet-18 has no others
        shortcut = x
        if block.downsample is not None:
            convolution, norm = block.downsample.children()
            shortcut = _convolution(graph, convolution, norm, x)
        within = graph.op("Relu", _convolution(graph, block.conv1, block.bn1, x))
        within = _convolution(graph, block.conv2, block.bn2, within)
        x = graph.op("Relu", graph.op("Add", within, shortcut))
    return x


def _convolution(graph: Graph, convolution: Any, norm: Any, x: Value) -> Value:
    """A convolution and the norm after it as one convolution with a bias."""
    weight, loudness = _array(convolution.weight), _array(norm.weight)
    loudness = loudness / np.sqrt(_array(norm.running_var) + norm.eps)
    bias = _array(norm.bias) - _array(norm.running_mean) * loudness
    folded = weight * loudness[:, None, None, None]
    return graph.op(
        "Conv",
        x,
        folded.astype(np.float32),
        bias.astype(np.float32),
        kernel_shape=list(convolution.kernel_size),
        strides=list(convolution.stride),
        pads=list(convolution.padding) * 2,
    )


def _tails(graph: Graph, tails: Sequence[ResNet18Tail], x: Value) -> Value:
    said = []
    for tail in tails:
        pooled = graph.mean(_blocks(graph, tail.layer4, x), (2, 3))
        outputs = graph.op("MatMul", pooled, _array(tail.fc.weight, np.float32).T)
        said.append(graph.unsqueezed(graph.op("Add", outputs, _array(tail.fc.bias, np.float32)), 0))
    return graph.concatenated(said, axis=0)


def _sampled_tails(graph: Graph, team: SampledTails, x: Value) -> Value:
    """Samples of a member are one wide head: (member, row, sample * output) -> (member * sample, row, output)."""
    wide = _tails(graph, tails_of(team.tails), x)
    n_samples, n_members = team.n_samples, team.n_members
    n_outputs = team.tails.n_outputs // n_samples
    apart = graph.reshaped(wide, 0, 0, n_samples, n_outputs)
    return graph.reshaped(graph.op("Transpose", apart, perm=[0, 2, 1, 3]), n_members, -1, n_outputs)


# Networks of the user's own ------------------------------------------------------------------------------------------


class _Members(nn.Module):
    """Modules of the user's, asked about the same rows: (row, ...) -> (member, row, output)."""

    def __init__(self, modules: nn.ModuleList) -> None:
        super().__init__()
        self.members = modules

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members])


class _Asked(nn.Module):
    """A team of the user's, asked about the same rows."""

    def __init__(self, team: Team) -> None:
        super().__init__()
        self.team = team

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.team(self.team.for_members(x[None]))
        return said


def _one_network(team: Team) -> nn.Module:
    return _Members(team.members) if isinstance(team, LoopTeam) else _Asked(team)


def _traced(graph: Graph, module: nn.Module, x: Value, row_shape: Sequence[int]) -> Value:
    """A module of the user's own in float32, as torch's exporter reads it."""
    traced = _exported(module, row_shape)
    prefix = f"own_{len(graph.nodes)}_"
    inner = graph.onnx.compose.add_prefix(traced, prefix).graph
    graph.nodes.append(graph.onnx.helper.make_node("Identity", [x], [inner.input[0].name]))
    graph.nodes += inner.node
    graph.constants |= {constant.name: constant for constant in inner.initializer}
    return str(inner.output[0].name)


def _exported(module: nn.Module, row_shape: Sequence[int]) -> Any:
    """An ONNX model of a module; what cannot be exported is told in one line."""
    needed("onnxscript")
    inliner = needed("onnx.inliner")
    module = copy.deepcopy(module).to("cpu", torch.float32).eval()
    rows = torch.zeros(3, *row_shape)  # neither 0 nor 1, which torch takes for fixed sizes
    try:
        with _silence(), torch.no_grad():
            # Read by torch.export here: some versions of torch.onnx else fall back to what one example row makes it do.
            read = torch.export.export(module, (rows,), dynamic_shapes=({0: torch.export.Dim("row")},), strict=False)
            program: Any = torch.onnx.export(read, dynamo=True, opset_version=OPSET, verbose=False)
            traced = inliner.inline_local_functions(program.model_proto)  # torch before 2.6 leaves functions
    except Exception as error:  # the exporter raises nearly anything about what it cannot read
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"this network of your own cannot be exported: torch.onnx ended with {type(error).__name__} ({reason}); "
            "give it a forward of plain tensor operations, or fit with one of ours, such as MLP()"
        ) from error
    if len(traced.graph.output) != 1:
        raise ValueError("this network of your own cannot be exported: it must give one tensor")
    return traced


@contextmanager
def _silence() -> Iterator[None]:
    """Without what torch's exporter prints, logs and warns of on its way, such as that torchvision is absent."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _array(tensor: Tensor, dtype: Any = np.float64) -> NDArray[Any]:
    return tensor.detach().cpu().numpy().astype(dtype)
