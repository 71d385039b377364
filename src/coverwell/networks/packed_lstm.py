"""LSTM layers that speak about a single row on a CPU: what a live forecast asks for at every step of time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["PackedLSTM"]

# torch's own number of this kind of recurrence.
LSTM_KIND = 2


class PackedLSTM:
    """Weights in the order in which oneDNN reads them, which is behind torch's LSTM on a CPU; the same bits, sooner.

    torch.lstm brings the weights into that order in every call, which for a single row is 40 % of its time.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.sources = [weight.detach() for weight in weights]  # held, so that nobody else can have their places
        self.versions = [weight._version for weight in weights]
        from_inputs, from_states, bias = self.sources
        self.hidden = from_states.shape[-1]
        pack = torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight
        one_row = [1, 1, from_inputs.shape[-1]]
        self.members = [
            (*pack(own, back, self.hidden, False, True, False, one_row), shift, torch.zeros_like(shift))
            for own, back, shift in zip(from_inputs, from_states, bias[:, 0], strict=True)
        ]

    @staticmethod
    def serves(x: Float[Tensor, "member step batch channel"]) -> bool:
        """Whether these sequences are of one row, on a CPU, without gradients, and oneDNN is there."""
        if x.shape[2] != 1 or x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_grad_enabled():
            return False
        return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_mkldnn_rnn_layer_weight")

    def is_of(self, weights: Sequence[Tensor]) -> bool:
        """Whether these are the weights that were packed, unchanged since."""
        same = all(kept.data_ptr() == now.data_ptr() for kept, now in zip(self.sources, weights, strict=True))
        return same and self.versions == [weight._version for weight in weights]

    def states(self, x: Float[Tensor, "member step batch channel"]) -> Float[Tensor, "member step batch hidden"]:
        start, layer = x.new_zeros(x.shape[2], self.hidden), torch.ops.aten.mkldnn_rnn_layer
        members = [
            layer(rows, *own, start, start, False, [], LSTM_KIND, self.hidden, 1, True, False, False, False)[0]
            for rows, own in zip(x, self.members, strict=True)
        ]
        return torch.stack(members)
