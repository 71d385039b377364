"""Rows that come again: where equal inputs had equal targets in training, a row seen before has the target it had."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.inputs.scaling import Scaling
from coverwell.options import stored
from coverwell.training.rows import equal_rows

Array = NDArray[np.float64]

LEAST = 0.9  # the level up to which equal inputs must have equal targets
NEAR = 1e-9  # projections this near are those of one row: inputs are scaled


@stored
class Copies(nn.Module):
    """The training rows as two random projections of their scaled inputs, with the mean target of equal rows.

    Parameters
    ----------
    centre : (feature,), the inputs' own: far from zero, rows that differ would be rounded to one
    projections : (feature, 2)
    keys : (row, 2), the projected distinct rows, ascending in the first
    targets : (row, target)
    level : up to which copies agree: intervals of a row that was seen have no width, those of higher levels keep theirs
    """

    centre: Tensor
    projections: Tensor
    keys: Tensor
    targets: Tensor

    def __init__(self, centre: Array, projections: Array, keys: Array, targets: Array, level: float) -> None:
        super().__init__()
        self.level = level
        buffers = {"centre": centre, "projections": projections, "keys": keys, "targets": targets}
        for name, values in buffers.items():
            self.register_buffer(name, torch.as_tensor(values))

    @classmethod
    def of(
        cls, X: Array, y: Array, inputs: Scaling, grid: tuple[float, ...], weight: Array | None = None
    ) -> Copies | None:
        """What the rows (row, feature) and targets (row, target) show; None where too few copies agree to rely on."""
        weight = np.ones(len(X)) if weight is None else weight
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        group = equal_rows(X)
        if group is None:
            return None
        sizes, first = np.bincount(group), np.unique(group, return_index=True)[1]
        means = np.stack([np.bincount(group, weight * own) / np.bincount(group, weight) for own in y.T], axis=1)
        differ = np.bincount(group, np.abs(y - means[group]).max(axis=1) > NEAR * np.abs(y).max()) > 0
        repeated = sizes > 1
        # As any rank: one more set of copies, of which nothing is known, counts as one that differs.
        share = (repeated & ~differ).sum() / (repeated.sum() + 1)
        levels = [level for level in grid if level <= share]
        if not levels or levels[-1] < LEAST:
            return None
        centre, spread = (part.cpu().numpy() for part in (inputs.centre, inputs.spread))
        projections = np.random.RandomState(0).standard_normal((X.shape[1], 2)) / spread[:, None]
        keys = (X[first] - centre) @ projections
        order = np.argsort(keys[:, 0])
        return cls(centre, projections, keys[order], means[order], levels[-1])

    def forward(self, rows: Tensor) -> tuple[Bool[Tensor, " row"], Float[Tensor, "row target"]]:
        """Which rows were seen in training, and the targets they had there; those of others mean nothing."""
        keys = ((rows.to(self.keys) - self.centre)[..., None] * self.projections).sum(dim=1)
        if torch.compiler.is_compiling():  # ONNX cannot search
            place = (keys[:, :1] - self.keys[:, 0]).abs().argmin(dim=1)
        else:
            place = torch.searchsorted(self.keys[:, 0].contiguous(), keys[:, 0].contiguous() - NEAR)
            place = place.clamp(max=len(self.keys) - 1)
        return ((keys - self.keys[place]).abs() < NEAR).all(dim=1), self.targets[place]
