"""LSTM networks for windows of a time series, all members side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from coverwell.networks.mlp import StackedLinear
from coverwell.networks.team import Team
from coverwell.options import check_count, check_number, stored

Windows = Float[Tensor, "member batch feature"]
Sequences = Float[Tensor, "member step batch channel"]
States = Float[Tensor, "member step batch hidden"]

LSTM_KIND = 2  # torch's own number of this kind of recurrence
# What torch has no public name for: the kernels of torch.nn.LSTMCell on a GPU, oneDNN's order of weights (where oneDNN
# is there), and how often a tensor has changed in place.
kernels_of = attrgetter("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl")
fused_cell, fused_cell_backward = kernels_of(torch.ops.aten)
pack = getattr(torch.ops.mkldnn, "_reorder_mkldnn_rnn_layer_weight", None)
version_of = attrgetter("_version")


def _cell(inputs: Tensor, by_state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step, c = f c_before + i g and h = o tanh(c): h, c, and the activated gates i, f, g, o in torch's order.

    Shape: inputs and by_state `(row, 4 * hidden)`, cell `(row, hidden)`.
    """
    if inputs.device.type == "cuda":
        return cast("tuple[Tensor, Tensor, Tensor]", fused_cell(inputs, by_state, cell))
    gates = inputs + by_state
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    for part in (enter, forget, leave):
        part.sigmoid_()
    candidate.tanh_()
    new = torch.addcmul(enter * candidate, forget, cell)
    return new.tanh() * leave, new, gates


def _cell_backward(
    of_state: Tensor, of_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates before their activation, and of the cell before the step."""
    if gates.device.type == "cuda":
        of_gates, of_before, _ = fused_cell_backward(of_state, of_cell, before, cell, gates, False)
        return of_gates, of_before
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    tanh = cell.tanh()
    of_cell = torch.addcmul(of_cell, of_state * leave, 1 - tanh.square())
    of_enter, of_forget = of_cell * candidate * enter * (1 - enter), of_cell * before * forget * (1 - forget)
    of_candidate, of_leave = of_cell * enter * (1 - candidate.square()), of_state * tanh * leave * (1 - leave)
    return torch.cat([of_enter, of_forget, of_candidate, of_leave], dim=-1), of_cell * forget


class _Recurrence(torch.autograd.Function):
    """The states of one layer, from its inputs to the gates and its recurrent weights.

    The backward pass is written out: recorded step by step, the gradient of the recurrent weights would be a sum of as
    many small products as there are steps, and here it is one product.

    Shape: inputs `(member, step, batch, 4 * hidden)`, weight `(member, 4 * hidden, hidden)`, result as `States`.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        by_step = inputs.transpose(0, 1).contiguous().flatten(1, 2)  # (step, member and row, gate)
        by_member, hidden = (len(weight), -1), weight.shape[-1]
        state = cell = by_step.new_zeros(by_step.shape[1], hidden)
        states, cells, gates = [state], [cell], []
        for now in by_step:
            by_state = torch.bmm(state.unflatten(0, by_member), weight.transpose(1, 2)).flatten(0, 1)
            state, cell, activated = _cell(now, by_state, cell)
            states.append(state)
            cells.append(cell)
            gates.append(activated)
        ctx.save_for_backward(weight, *states[:-1], *cells, *gates)
        return cast(Tensor, torch.stack(states[1:]).unflatten(1, by_member).transpose(0, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        weight, *saved = ctx.saved_tensors
        n_steps, by_member = len(saved) // 3, (len(weight), -1)
        before, cells, gates = saved[:n_steps], saved[n_steps : 2 * n_steps + 1], saved[2 * n_steps + 1 :]
        of_states = gradients[0].transpose(0, 1).contiguous()  # (step, member, batch, hidden)
        of_inputs: list[Tensor] = []  # from the last step to the first
        of_cell = torch.zeros_like(cells[0])
        for step in range(n_steps - 1, -1, -1):
            of_state = of_states[step]
            if of_inputs:
                of_state = torch.baddbmm(of_state, of_inputs[-1].unflatten(0, by_member), weight)
            at_step = of_cell, cells[step], cells[step + 1], gates[step]
            of_gates, of_cell = _cell_backward(of_state.flatten(0, 1), *at_step)
            of_inputs.append(of_gates)
        of_all = torch.stack(of_inputs[::-1]).unflatten(1, by_member).transpose(0, 1)  # (member, step, batch, gate)
        all_before = torch.stack(before).unflatten(1, by_member).transpose(0, 1)
        of_weight = torch.bmm(of_all.flatten(1, 2).transpose(1, 2), all_before.flatten(1, 2))
        return of_all, of_weight


def is_single_row(x: Sequences) -> bool:
    """Whether these sequences are of one row, on a CPU, without gradients, and oneDNN is there."""
    if x.shape[2] != 1 or x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_grad_enabled():
        return False
    return torch.backends.mkldnn.is_available() and pack is not None


class StackedLSTM(nn.Module):
    """One LSTM layer per member, with torch's order of gates and layout of weights; one bias where torch adds two.

    Shape: input `(member, step, batch, channel)`, output `(member, step, batch, hidden)`.
    """

    def __init__(self, n_members: int, n_inputs: int, hidden: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)  # as torch.nn.LSTM starts
        shapes = (4 * hidden, n_inputs), (4 * hidden, hidden), (1, 4 * hidden)
        starts = (torch.empty(n_members, *shape).uniform_(-bound, bound) for shape in shapes)
        self.weight, self.recurrent, self.bias = map(nn.Parameter, starts)
        self._packed: Any = None  # the state of the weights, the weights, and their packed form for each member

    def forward(self, x: Sequences) -> States:
        # A CPU is faster with torch's own layer, member by member, a GPU with all members at once
        # (benchmarks/results/forecasting.md).
        if x.device.type != "cpu":
            return self.at_once(x)
        return self.one_row(x) if is_single_row(x) else self.one_by_one(x)

    def at_once(self, x: Sequences) -> States:
        """All members in batched matrix products, step by step."""
        gates = torch.baddbmm(self.bias, x.flatten(1, 2), self.weight.transpose(1, 2)).unflatten(1, x.shape[1:3])
        return cast(Tensor, _Recurrence.apply(gates, self.recurrent))  # type: ignore[no-untyped-call]

    def one_by_one(self, x: Sequences) -> States:
        """Each member through torch's own LSTM."""
        hidden = self.recurrent.shape[-1]
        start, no_bias = x.new_zeros(1, x.shape[2], hidden), x.new_zeros(4 * hidden)
        weights = zip(self.weight, self.recurrent, self.bias[:, 0], strict=True)
        options = (True, 1, 0.0, self.training, False, False)
        members = zip(x, weights, strict=True)
        return torch.stack([torch.lstm(rows, (start, start), [*own, no_bias], *options)[0] for rows, own in members])

    def one_row(self, x: Sequences) -> States:
        """The same bits as `one_by_one`, sooner: torch.lstm packs weights for oneDNN in each call, 40 % of its time."""
        weights, hidden = (self.weight, self.recurrent, self.bias), self.recurrent.shape[-1]
        state = [(weight.data_ptr(), version_of(weight)) for weight in weights]
        if self._packed is None or self._packed[0] != state:
            held = [weight.detach() for weight in weights]  # so that nothing else can have their places
            order = (hidden, False, True, False, [1, 1, x.shape[-1]])
            members = [
                (*pack(own, back, *order), shift, torch.zeros_like(shift))  # type: ignore[misc]
                for own, back, shift in zip(held[0], held[1], held[2][:, 0], strict=True)
            ]
            self._packed = state, held, members
        start, layer = x.new_zeros(x.shape[2], hidden), torch.ops.aten.mkldnn_rnn_layer
        options: tuple[Any, ...] = (start, start, False, [], LSTM_KIND, hidden, 1, True, False, False, False)
        return torch.stack([layer(rows, *own, *options)[0] for rows, own in zip(x, self._packed[2], strict=True)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # a copy packs for itself


class LSTMTeam(Team):
    """Linear maps of an LSTM's last state, of a row's other columns and, with a shortcut, of its window, added up.

    A row is flat: the window step by step, then other columns. The shortcut starts at zero.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    capturable = True
    precision = torch.float32

    def __init__(self, recipe: LSTM, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.n_members, self.n_features, self.n_window = n_members, n_features, recipe.steps * recipe.channels
        self.recipe = self.lstm = recipe
        sizes = [recipe.channels, *[recipe.hidden] * (recipe.layers - 1)]
        self.layers = nn.ModuleList(StackedLSTM(n_members, n_inputs, recipe.hidden) for n_inputs in sizes)
        self.head = StackedLinear(n_members, recipe.hidden, n_outputs)
        self.beside = StackedLinear(n_members, n, n_outputs) if (n := n_features - self.n_window) else None
        self.shortcut = StackedLinear(n_members, self.n_window, n_outputs) if recipe.shortcut else None
        for parameter in self.shortcut.parameters() if self.shortcut else ():
            nn.init.zeros_(parameter)

    def forward(self, x: Windows) -> Float[Tensor, "member batch output"]:
        states, rate = self.sequence_of(x), self.lstm.dropout
        for layer in self.layers:
            states = layer(states)
            if self.training and rate:  # of a row the same units at every step (Gal and Ghahramani 2016)
                states = states * torch.rand_like(states[:, :1]).ge_(rate) / (1 - rate)
        return self.outputs_from(states, x)

    def outputs_from(self, states: States, x: Windows) -> Float[Tensor, "member batch output"]:
        """The outputs, from the states of the last layer and the row itself."""
        outputs: Tensor = self.head(states[:, -1])
        if self.beside is not None:
            outputs = outputs + self.beside(x[..., self.n_window :])
        if self.shortcut is not None:
            outputs = outputs + self.shortcut(x[..., : self.n_window])
        return outputs

    def weight_of_row(self, n_inputs: int) -> int:
        # Four gates of every unit at every step; an MLP holds some sixty numbers for each input.
        return max(1, self.lstm.steps * self.lstm.hidden * 4 // 64)

    def sequence_of(self, x: Windows) -> Sequences:
        """The window, step by step."""
        window = x[..., : self.n_window].reshape(*x.shape[:2], self.lstm.steps, self.lstm.channels)
        return window.transpose(1, 2).contiguous()  # (member, batch, step, channel) -> (member, step, batch, channel)


@stored
@dataclass(frozen=True)
class LSTM:
    """Recipe of an LSTM for windows of a series; a forecaster sets `steps` and `channels` by itself.

    Parameters
    ----------
    hidden : int
        Units of each layer.
    layers : int
        Number of LSTM layers; the paper has 2.
    dropout : float
        Share of the units of each layer that are dropped in training, for what comes after the layer.
    shortcut : bool
        Whether a linear map of the window is added to the output: an autoregression, which the LSTM corrects.
    steps, channels : int
        The first `steps * channels` numbers of a row are the window, step by step; others join the last state.

    Examples
    --------
    >>> import torch
    >>> team = LSTM(hidden=8, steps=24, channels=2).build(n_members=3, input_shape=(24 * 2 + 5,), n_outputs=2)
    >>> team(torch.zeros(3, 10, 53)).shape
    torch.Size([3, 10, 2])
    """

    hidden: int = 128
    layers: int = 2
    dropout: float = 0.0
    shortcut: bool = True
    steps: int = 24
    channels: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "steps", "channels"):
            check_count(name, getattr(self, name))
        check_number("dropout", self.dropout, least=0, below=1)

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        n_window = self.steps * self.channels
        if input_shape[0] < n_window:
            window = f"a window of {self.steps} steps and {self.channels} channels, {n_window} numbers"
            raise ValueError(f"a row must hold {window}, got {input_shape[0]}; set steps and channels to what rows are")
        return LSTMTeam(self, n_members, input_shape[0], n_outputs)

    def operations_per_row(self, n_inputs: int) -> float:
        """Roughly the multiplications of one pass."""
        return float(self.steps * 4 * self.hidden * (self.channels + (2 * self.layers - 1) * self.hidden))
