"""Local calibration: where intervals are wide and where narrow is learned from honest residuals, each side apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import (
    Cross,
    Estimate,
    average_out_of_fold,
    central_places,
    grid_matrix,
    grid_of,
    left_out_together,
    n_out_of_fold,
    out_of_fold_members,
    rank_factor,
    scores_of,
    weighted_mean,
)
from coverwell.options import named, stored
from coverwell.paper.losses import z_score
from coverwell.trees import Trees, grow, leaf_distribution, mean_of_unseen, out_of_bag, quantile_of

if TYPE_CHECKING:
    from coverwell.predictor import FittedTeam
    from coverwell.training.rows import Rows

Array = NDArray[np.float64]

# Tried out of fold on splits 100 to 102; `make bench-selection` does not compare them yet.
N_TREES = 100
MIN_LEAF = 5
SHARE_OF_FEATURES = 1 / 3
TREE_ROWS = 10_000
N_KNOTS = 33
SPREAD_WEIGHT = 1.5  # of |z| beside z in what the trees split by
MIXTURES = np.linspace(0.0, 1.0, 11)
SMALLEST = 1e-9


@stored
class LocalShape(nn.Module):
    """Half-widths from a forest of scaled residuals, mixed with those that I learned.

    The forest gives the conditional distribution of z = (y - mean) / sigma, where sigma is I's half-width over the
    normal one, given x, the prediction, sigma, I's asymmetry and how far companions and networks lie apart.

    Shape: rows `(row, feature)`, mean and contrast `(row, target)`, half-widths `(row, target, side, level)` at the
    asked levels, these in scaled units; result at the levels of the grid.
    """

    knots: Tensor
    mixture: Tensor
    factor: Tensor
    expand: Tensor
    shares: Tensor

    def __init__(
        self,
        levels: Sequence[float],
        grid: Sequence[float],
        forests: Sequence[Trees],
        knots: Array,
        mixture: Array,
        factor: Array,
    ) -> None:
        super().__init__()
        self.levels, self.grid, self.forests = tuple(levels), tuple(grid), nn.ModuleList(forests)
        asked, known = (torch.tensor(one, dtype=torch.float64) for one in (self.levels, self.grid))
        self.place = int((asked - 0.9).abs().argmin())  # of the level that sigma is taken from
        self.z = float(z_score(asked[self.place]))
        self.register_buffer("shares", torch.cat([(1 - known) / 2, (1 + known) / 2]), persistent=False)
        self.register_buffer("expand", torch.from_numpy(grid_matrix(self.levels, self.grid)), persistent=False)
        # (target, knot), the forest's share in the mixture (target,), and factors of I's own half-widths (target, grid)
        for name, values in {"knots": knots, "mixture": mixture, "factor": factor}.items():
            self.register_buffer(name, torch.as_tensor(values))

    def only_asked(self) -> LocalShape:
        """The same without the levels that nobody asked for."""
        factor = self.factor[:, [self.grid.index(level) for level in self.levels]]
        forests = [forest for forest in self.forests if isinstance(forest, Trees)]
        arrays = (part.numpy() for part in (self.knots, self.mixture, factor))
        return LocalShape(self.levels, self.levels, forests, *arrays)

    def forward(self, rows: Tensor, mean: Tensor, half_width: Tensor, contrast: Tensor) -> Tensor:
        sigma, features = self.features(rows, mean, half_width, contrast)
        return self.of(sigma, half_width, [forest(features(target)) for target, forest in enumerate(self.forests)])

    def of(self, sigma: Tensor, half_width: Tensor, cdfs: Sequence[Tensor]) -> Tensor:
        """Half-widths from the distribution of z that each target's forest gives, (row, knot)."""
        found = [
            self.sides(quantile_of(cdf.to(knots), knots, self.shares))
            for cdf, knots in zip(cdfs, self.knots, strict=True)
        ]
        return self.mixed(half_width, torch.stack(found, dim=1) * sigma[..., None, None])

    def of_unseen(self, known: dict[str, Array], in_bags: Sequence[NDArray[np.bool_]]) -> Array:
        """Half-widths by the trees that have not seen a row, (tree, row) for each target."""
        tensors = {name: torch.from_numpy(values) for name, values in known.items()}
        sigma, features = self.features(**tensors)
        cdfs = []
        for target, (forest, in_bag) in enumerate(zip(self.forests, in_bags, strict=True)):
            assert isinstance(forest, Trees)  # as `__init__` was given
            cdf = mean_of_unseen(forest, features(target).float().numpy(), in_bag)
            cdfs.append(torch.from_numpy(np.where(np.isnan(cdf), knot_shares(), cdf)))  # where all have: of all rows
        return self.of(sigma, tensors["half_width"], cdfs).numpy()

    def features(self, rows: Tensor, mean: Tensor, half_width: Tensor, contrast: Tensor) -> tuple[Tensor, Any]:
        """Sigma (row, target), and for each target what its forest looks at, (row, feature)."""
        below, above = half_width[..., self.place].clamp_min(SMALLEST).unbind(dim=-1)
        sigma = (below + above) / (2 * self.z)

        def of(target: int) -> Tensor:
            beside = [mean, sigma.log(), (above / below).log(), contrast / sigma]
            return torch.cat([rows, *[values[:, target, None].to(rows) for values in beside]], dim=1)

        return sigma, of

    def sides(self, quantiles: Tensor) -> Tensor:
        """Quantiles (row, both ends) as distances below and above zero, (row, side, level)."""
        below, above = quantiles.unflatten(1, (2, -1)).unbind(dim=1)
        return torch.stack([(-below).clamp_min(0), above.clamp_min(0)], dim=1)

    def mixed(self, half_width: Tensor, local: Tensor) -> Tensor:
        """I's half-widths at the grid and the forest's, mixed."""
        own = (half_width @ self.expand) * self.factor[:, None]
        share = self.mixture[:, None, None]
        return (1 - share) * own + share * local


@named("calibration", "local")
@dataclass(frozen=True)
class Local(Cross):
    """Conditional quantiles of out-of-fold residuals, mixed with I's shape by what they score; then ranks as "cross".

    It applies to tables; for images and windows of series it is "cross".
    """

    promise: ClassVar[str] = "near the asked level as measured; no finite-sample theorem"
    moves_ends: ClassVar[bool] = True
    holds_gaps: ClassVar[bool] = True

    def shaped(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Estimate | None:
        assert rows.given is not None  # rows of a fit know what they were made from
        X, _ = rows.given
        if members is None or X.ndim != 2:
            return members
        (team,), levels = teams, rows.levels[0]
        y, members, leaves_out = out_of_fold_members(rows, members)
        some = leaves_out.any(axis=0)
        average = average_out_of_fold(members, leaves_out)
        seen = X[np.setdiff1d(np.arange(len(X)), rows.held_back[0])]
        known = {name: values[some] for name, values in known_of(seen, average).items()}
        units, weight = (None if one is None else one[some] for one in (rows.units[0], rows.seen_weight))
        grid = grid_of(levels, n_out_of_fold(leaves_out, rows.seen_weight))
        team.shape, local, in_bags = fit_shape(y[some], levels, known, units, rows.seeds[0], grid, weight)
        if (altered := rows.altered) is not None:
            networks, place = team.out_of_fold(altered, leaves_out), np.cumsum(some)[altered.copy_of] - 1
            unseen = [in_bag[:, place] for in_bag in in_bags]
            altered.estimate = Estimate(networks.mean, team.shape.of_unseen(known_of(altered.X, networks), unseen))
        half_width = np.zeros((*average.half_width.shape[:-1], local.shape[-1]))
        half_width[some] = local
        of_average = np.broadcast_to(half_width, (len(members.mean), *half_width.shape))
        # The forest looks at predictions: what it says of an average's errors tells nothing about those of one member.
        together, alone = left_out_together(leaves_out), None
        if len(places := together.nonzero()[1]):
            contrast = None if members.contrast is None else members.contrast[together]
            member = Estimate(members.mean[together], members.half_width[together], contrast)
            unseen = [in_bag[:, (np.cumsum(some) - 1)[places]] for in_bag in in_bags]
            alone = team.shape.of_unseen(known_of(seen[places], member), unseen)
        return Estimate(members.mean, of_average, alone=alone)


def known_of(rows: Array, estimate: Estimate) -> dict[str, Array]:
    """What a shape is given of rows."""
    contrast = np.zeros_like(estimate.mean) if estimate.contrast is None else estimate.contrast
    return {"rows": rows, "mean": estimate.mean, "half_width": estimate.half_width, "contrast": contrast}


def fit_shape(
    y: Array,
    levels: tuple[float, ...],
    known: dict[str, Array],
    units: Any,
    seed: int,
    grid: tuple[float, ...],
    weight: Array | None = None,
) -> tuple[LocalShape, Array, list[NDArray[np.bool_]]]:
    """The shape learned from out-of-fold rows, and their own half-widths (row, target, side, grid), out of bag.

    Last, which rows the trees of each target have seen, (tree, row).
    """
    n_targets, mean = y.shape[1], known["mean"]
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in known.items()}
    knots, ones = np.empty((n_targets, N_KNOTS)), np.ones((n_targets, len(grid)))
    start = LocalShape(levels, grid, [], knots, ones[:, 0], ones)
    sigma, features = start.features(**tensors)
    forests, found, in_bags = [], [], []
    for target in range(n_targets):
        X = features(target).float().numpy()
        z = (y[:, target] - mean[:, target]) / sigma[:, target].numpy()
        knots[target] = quantiles_of(z, knot_shares(), weight)
        options: dict[str, Any] = {"n_trees": N_TREES, "min_leaf": MIN_LEAF, "max_rows": TREE_ROWS, "weight": weight}
        splits_by = np.column_stack([z, SPREAD_WEIGHT * np.abs(z)])
        trees, in_bag = grow(
            X, splits_by, max_features=SHARE_OF_FEATURES, units=units, random_state=seed + target, **options
        )
        table = leaf_distribution(trees, X, z, in_bag, knots[target], weight)
        cdf, n_trees = out_of_bag(trees, table, X, in_bag)
        everywhere = weighted_mean(z[:, None] <= knots[target], weight, axis=0)
        cdf = np.where(n_trees[:, None] > 0, cdf, everywhere).astype(np.float64)
        forests.append(trees.with_table(table))
        in_bags.append(in_bag)
        found.append(start.sides(quantile_of(torch.from_numpy(cdf), torch.from_numpy(knots[target]), start.shares)))
    local = (torch.stack(found, dim=1) * sigma[..., None, None]).numpy()
    own = known["half_width"] @ start.expand.numpy()
    factor = rank_factor(scores_of(y, Estimate(mean, own)), grid, weight)
    mixture = np.array(
        [best_mixture(y, mean, own * factor[:, None], local, grid, target, weight) for target in range(n_targets)]
    )
    shape = LocalShape(levels, grid, forests, knots, mixture, factor)
    return shape, shape.mixed(tensors["half_width"], torch.from_numpy(local)).numpy(), in_bags


def knot_shares() -> Array:
    """The shares at whose quantiles distribution functions are known: evenly spaced, and more in the tails."""
    tail = [0.0, 0.002, 0.005, 0.01]
    return np.array([*tail, *np.linspace(0.02, 0.98, N_KNOTS - 8), *[1 - share for share in tail[::-1]]])


def quantiles_of(values: Array, shares: Array, weight: Array | None) -> Array:
    """Quantiles of some values, linear between them, where each counts by its weight."""
    if weight is None:
        return np.quantile(values, shares)
    order = values.argsort()
    # From a value to the next lies the mean of their weights: where these are equal, as for numpy.
    share = np.append(0.0, (weight[order][1:] + weight[order][:-1]).cumsum())
    return np.interp(shares, share / share[-1], values[order])


def best_mixture(
    y: Array,
    mean: Array,
    own: Array,
    local: Array,
    grid: tuple[float, ...],
    target: int,
    weight: Array | None = None,
) -> float:
    """The forest's share with the lowest pinball loss, each mixture stretched to its levels."""
    chosen = central_places(grid)
    levels = tuple(grid[place] for place in chosen)
    y, mean = y[:, target, None], mean[:, target, None]
    losses = []
    for share in MIXTURES:
        half_width = ((1 - share) * own[:, target] + share * local[:, target])[:, None][..., chosen]
        stretched = half_width * rank_factor(scores_of(y, Estimate(mean, half_width)), levels, weight)[:, None]
        below, above = stretched[:, 0, 0], stretched[:, 0, 1]
        missed = np.maximum(y - mean - above, 0) + np.maximum(mean - below - y, 0)
        losses.append(weighted_mean((below + above) * (1 - np.array(levels)) / 2 + missed, weight))
    return float(MIXTURES[int(np.argmin(losses))])
