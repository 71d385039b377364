"""Beyond the range of training: half-widths grow with the distance, as far as rows near the border show.

Networks and forests take a row beyond the border of a column for one on it. How much predictions change there is seen
inside: rows of the outer tenth of a column are copied, moved back to where that tenth begins, and predicted by what has
left them out. The change over the distance gives the growth: for 90 % intervals, as much as 90 % of the copies need. It
ends where a row lies as far outside as the range is wide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import rank_factor
from coverwell.inputs.scaling import Scaling
from coverwell.options import stored
from coverwell.training.rows import Altered

Array = NDArray[np.float64]

OUTER = 0.1  # the share of rows on each side of a column that is moved back
FEWEST_COPIES, MOST_COPIES, MOST_OF_ALL = 10, 100, 3000  # of one side of a column, and together
MOST_COLUMNS = 100


@stored
class EdgeRates(nn.Module):
    """How much half-widths grow for each spread of a column that a row lies beyond its range.

    Parameters
    ----------
    places : (column,), of the rows
    rate : (side, column, target, level), in scaled units, before the factor of a calibration; the low side is first
    levels : of the half-widths

    Shape: input `(row, feature)`, output `(row, target, 1, level)`.
    """

    places: Tensor
    rate: Tensor

    def __init__(self, places: NDArray[np.int64], rate: Array, levels: Sequence[float]) -> None:
        super().__init__()
        if rate.ndim != 4 or (rate.shape[:2], rate.shape[3]) != ((2, len(places)), len(levels)) or (places < 0).any():
            raise ValueError(
                f"{len(places)} columns must have rates (side, column, target, level) at {len(levels)} levels, got "
                f"the shape {rate.shape}"
            )
        self.levels = tuple(levels)
        self.register_buffer("places", torch.as_tensor(places))
        self.register_buffer("rate", torch.as_tensor(rate))

    def at(self, levels: Sequence[float]) -> EdgeRates:
        """The same without other levels."""
        rate = self.rate[..., [self.levels.index(level) for level in levels]]
        return EdgeRates(self.places.numpy(), rate.numpy(), levels)

    def forward(self, inputs: Scaling, rows: Float[Tensor, "row feature"]) -> Float[Tensor, "row target 1 level"]:
        x = rows.to(inputs.spread)
        beyond = torch.stack([inputs.low - x, x - inputs.high], dim=1).clamp_min(0)  # (row, side, feature)
        beyond = torch.minimum(beyond, inputs.high - inputs.low) / inputs.spread
        return torch.einsum("rsc,sctl->rtl", beyond.index_select(2, self.places), self.rate)[:, :, None]


def edge_copies(X: Array, y: Array, left_out: NDArray[np.bool_], seed: int) -> Altered | None:
    """Copies of rows of the outer tenths of each column, moved back; None if there are too few.

    Of wide tables the columns whose ranks go most with those of a target are taken.
    """
    varied = np.array([place for place, column in enumerate(X.T) if len(np.unique(column)) > 2], dtype=np.int64)
    if len(varied) > MOST_COLUMNS:
        x, of_y = (values - values.mean(axis=0) for values in (ranks_of(X[:, varied]), ranks_of(y)))
        alike = np.abs(x.T @ of_y) / np.sqrt(np.outer(np.square(x).sum(axis=0), np.square(of_y).sum(axis=0)) + 1)
        varied = np.sort(varied[np.argsort(-alike.max(axis=1), kind="stable")[:MOST_COLUMNS]])
    most, rng = min(MOST_COPIES, MOST_OF_ALL // max(2 * len(varied), 1)), np.random.RandomState(seed)
    copies, copy_of, edge = [X[:0]], [np.zeros(0, dtype=np.intp)], [np.zeros((0, 2), dtype=np.int64)]
    for place in varied:
        for side, share in enumerate((OUTER, 1 - OUTER)):
            x, border = X[:, place], np.quantile(X[:, place], share, method="nearest")
            outer = np.flatnonzero(left_out & ((x > border) if side else (x < border)))
            if len(outer) >= FEWEST_COPIES:
                rows = rng.permutation(outer)[:most]
                moved = X[rows]
                moved[:, place] = border
                copies.append(moved)
                copy_of.append(rows)
                edge.append(np.tile([side, place], (len(rows), 1)))
    if len(copies) == 1:
        return None
    return Altered(np.concatenate(copies), np.concatenate(copy_of), np.concatenate(edge))


def ranks_of(values: Array) -> Array:
    """The rank of each value in its column."""
    ranks: Array = values.argsort(axis=0).argsort(axis=0).astype(np.float64)
    return ranks


def edge_rates(
    altered: Altered, X: Array, mean: Array, spread: Array, factor: Array, levels: Sequence[float]
) -> EdgeRates | None:
    """The growth that the copies among altered rows show; None where there is none.

    `X` are the rows and `mean` their out-of-fold predictions (row, target), in scaled units as those of the copies are;
    `spread` is that of each feature, and `factor` what a calibration multiplies half-widths by, (target, level).
    """
    assert altered.estimate is not None  # once a calibration has made it
    moved = altered.edge[:, 0] >= 0
    (sides, columns), copy_of = altered.edge[moved].T, altered.copy_of[moved]
    distance = np.abs(X[copy_of] - altered.X[moved]).max(axis=1, initial=0.0) / spread[columns]
    change = np.abs(mean[copy_of] - altered.estimate.mean[moved]) / distance[:, None]
    places, own = np.unique(columns, return_inverse=True)
    rate = np.zeros((2, len(places), *factor.shape))
    for side, column in np.unique(np.column_stack([sides, own]), axis=0):
        some = (sides == side) & (own == column)
        scores = np.repeat(change[some][..., None], len(levels), axis=2)
        # Weighted by the distance, the rank of the ratios is the slope of least pinball loss.
        rate[side, column] = rank_factor(scores, levels, distance[some], or_largest=True)
    rate /= np.where(factor > 0, factor, 1.0)
    used = rate.any(axis=(0, 2, 3))
    return EdgeRates(places[used].astype(np.int64), rate[:, used], levels) if used.any() else None
