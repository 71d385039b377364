"""Forests as plain arrays: grown by scikit-learn, walked by torch, with any table of values in their leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from coverwell.options import stored
from coverwell.training.rows import as_tensor

Array = NDArray[np.float64]

IN_BAG = 0.632  # the share of distinct rows in a bootstrap sample
PAIRS_AT_A_TIME = 2**18  # of a row and a tree: they and the nodes they visit stay in the cache
# Levels before the first look at which pairs have come to a leaf, and between two looks.
LEVELS_TOGETHER, LEVELS_BETWEEN = 12, 4


@stored
class Trees(nn.Module):
    """A forest as arrays: the mean or the sum over all trees of what their table holds for the leaf of a row.

    The first `n_trees` nodes are the roots. A row goes on to `child + 1`, the left side, where its value is at most the
    threshold, and to `child` otherwise. A leaf is its own child and has no threshold (NaN). Leaves are numbered in the
    order of their nodes. A missing value goes right; nodes that send it left look it up `n_features` columns further,
    in a copy of X with minus infinity in its place. Rows are compared in the precision of the thresholds.

    Shape: input `(row, feature)`, output `(row, output)`, table `(leaf, output)`.
    """

    feature: Tensor
    threshold: Tensor
    child: Tensor
    leaf: Tensor  # the number of the leaf at each node, or of the next one
    table: Tensor

    def __init__(
        self,
        feature: NDArray[np.int32],
        threshold: NDArray[np.floating],
        child: NDArray[np.int32],
        table: NDArray[np.floating],
        *,
        n_trees: int,
        n_features: int,
        mean: bool = True,
    ) -> None:
        super().__init__()
        self.n_trees, self.n_features, self.mean = n_trees, n_features, mean
        places = np.arange(len(child), dtype=np.int32)
        inner = child != places
        n_leaves, level = int((~inner).sum()), places[:n_trees]
        once = np.sort(np.concatenate([child[inner], child[inner] + 1]))  # so that every path ends in a leaf
        formed = (
            n_trees >= 1 and np.array_equal(once, places[n_trees:]) and table.shape == (n_leaves, *table.shape[1:2])
        )
        known = feature.shape == threshold.shape == child.shape and ((feature >= 0) & (feature < 2 * n_features)).all()
        if not formed or not known:
            raise ValueError(
                f"every node but the {n_trees} roots must be the child of one other and split by one of {n_features} "
                f"features, and the {n_leaves} leaves must have a row of values each; the arrays do not form such trees"
            )
        self.depth, self.reads_twice = 0, bool((feature >= n_features).any())
        while len(level := child[level[inner[level]]]):
            level, self.depth = np.concatenate([level, level + 1]), self.depth + 1
        buffers = {"feature": feature, "threshold": threshold, "child": child, "table": table}
        for name, values in {**buffers, "leaf": (~inner).cumsum(dtype=np.int32) - ~inner}.items():
            self.register_buffer(name, torch.as_tensor(values))

    def with_table(self, table: NDArray[np.floating]) -> Trees:
        """The same trees with other values in their leaves."""
        feature, threshold, child = (part.cpu().numpy() for part in (self.feature, self.threshold, self.child))
        return Trees(feature, threshold, child, table, n_trees=self.n_trees, n_features=self.n_features, mean=self.mean)

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "row feature"]) -> Float[Tensor, "row output"]:
        leaves = map(self.leaves, x.split(self.rows_at_a_time))
        weight = self.table.new_full((), 1 / self.n_trees if self.mean else 1.0)
        return torch.cat([self.bags(part, weight.expand(part.shape)) for part in leaves])

    def bags(self, leaves: Int[Tensor, "row tree"], weight: Float[Tensor, "row tree"]) -> Float[Tensor, "row output"]:
        """Weighted sums over trees of the values in some leaves."""
        return embedding_bag(leaves, self.table, per_sample_weights=weight.contiguous(), mode="sum")

    @property
    def rows_at_a_time(self) -> int:
        return max(1, PAIRS_AT_A_TIME // max(self.n_trees, self.n_features))

    @torch.no_grad()
    def leaves(self, x: Float[Tensor, "row feature"]) -> Int[Tensor, "row tree"]:
        """The leaf of each row in each tree."""
        if x.shape[0] > self.rows_at_a_time:
            return torch.cat([self.leaves(part) for part in x.split(self.rows_at_a_time)])
        row, tree = (torch.arange(n, dtype=torch.int32, device=x.device) for n in (x.shape[0], self.n_trees))
        shape = self.n_trees, x.shape[0]  # pairs of one tree side by side visit the same nodes
        pairs = row.expand(shape).reshape(-1), tree[:, None].expand(shape).reshape(-1)
        return self.leaves_of_pairs(x, *pairs).view(shape).T.contiguous()

    def leaves_of_pairs(
        self, x: Float[Tensor, "row feature"], row: Int[Tensor, "pair"], tree: Int[Tensor, "pair"]
    ) -> Int[Tensor, "pair"]:
        """The leaf of some rows in some trees."""
        if x.shape[1] != self.n_features:
            raise ValueError(f"rows must have {self.n_features} features as in the fit, got {x.shape[1]}")
        x = x.to(self.threshold.dtype)
        if self.reads_twice:
            x = torch.cat([x, torch.where(x.isnan(), -torch.inf, x)], dim=1)
        return self.leaf.index_select(0, self._ends(x.reshape(-1), row * x.shape[1], tree))

    def _ends(self, numbers: Tensor, start: Tensor, node: Tensor) -> Tensor:
        """The nodes at which pairs of a row, whose numbers begin at `start`, and a tree arrive."""
        ends, pair = node.clone(), torch.arange(len(node), device=node.device)
        for level in range(self.depth):
            if level >= LEVELS_TOGETHER and level % LEVELS_BETWEEN == 0:  # go on with those that are on their way
                ends.index_copy_(0, pair, node)
                going = (self.child.index_select(0, node) != node).nonzero()[:, 0]
                pair, start, node = (part.index_select(0, going) for part in (pair, start, node))
            node = self._next(numbers, start, node)
        return ends.index_copy_(0, pair, node)

    def _next(self, numbers: Tensor, start: Tensor, node: Tensor) -> Tensor:
        value = numbers.index_select(0, self.feature.index_select(0, node).add_(start))
        return self.child.index_select(0, node).add_(value <= self.threshold.index_select(0, node))


class Nodes(NamedTuple):
    """One tree as scikit-learn has it; leaves have -1 on their left."""

    left: NDArray[Any]
    right: NDArray[Any]
    feature: NDArray[Any]
    threshold: Array
    missing_left: NDArray[Any]
    value: Array  # (node, output)

    @classmethod
    def of(cls, tree: Any) -> Nodes:
        shape = tree.children_left, tree.children_right, tree.feature, tree.threshold
        return cls(*shape, tree.missing_go_to_left, tree.value[:, :, 0])


def joined(trees: Sequence[Nodes], n_features: int, *, precision: type[np.floating], mean: bool) -> Trees:
    """All trees in one, level by level, so that siblings are neighbours."""
    left, right, feature, threshold, missing_left, value = map(np.concatenate, zip(*trees, strict=True))
    sizes = [len(tree.left) for tree in trees]
    starts = np.cumsum(sizes) - sizes
    right = right + np.repeat(starts, sizes)
    left = np.where(left < 0, -1, left + np.repeat(starts, sizes))
    levels = [starts]
    while len(inner := levels[-1][left[levels[-1]] >= 0]):
        levels.append(np.stack([right[inner], left[inner]], axis=1).reshape(-1))
    order = np.concatenate(levels)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    left, right, feature, threshold, missing_left, value = (
        part[order] for part in (left, right, feature, threshold, missing_left, value)
    )
    leaf = left < 0
    with np.errstate(over="ignore"):
        short = threshold.astype(precision)  # rounded down, so that the same numbers of that precision are below it
        short = np.where(short > threshold, np.nextafter(short, precision(-np.inf)), short)
    return Trees(
        np.where(leaf, 0, feature + n_features * missing_left.astype(bool)).astype(np.int32),
        np.where(leaf, precision(np.nan), short),
        np.where(leaf, np.arange(len(order)), place[right]).astype(np.int32),
        value[leaf],
        n_trees=len(trees),
        n_features=n_features,
        mean=mean,
    )


def grow(
    X: NDArray[np.floating],
    y: Array,
    *,
    n_trees: int,
    min_leaf: int,
    max_features: float | int | str | None,
    max_rows: int,
    units: NDArray[Any] | None = None,
    random_state: Any = None,
    weight: Array | None = None,
) -> tuple[Trees, Bool[np.ndarray, "tree row"]]:
    """A forest of regression trees with the means of y in its leaves, and which rows each tree has seen.

    Each sees a random 63.2 % of the units (rows of one unit stay together; None: each row is one), without
    replacement and at most `max_rows` rows, but at least one unit; none of weight zero.
    """
    from sklearn import config_context
    from sklearn.tree import DecisionTreeRegressor
    from sklearn.utils import check_random_state

    y = np.ascontiguousarray(y, dtype=np.float64)
    rng, X = check_random_state(random_state), np.ascontiguousarray(X, dtype=np.float32)
    unit = np.arange(len(X)) if units is None else np.unique(units, return_inverse=True)[1]
    sizes, in_bag, nodes = np.bincount(unit), np.zeros((n_trees, len(X)), dtype=bool), []
    counting = np.flatnonzero(np.bincount(unit, weight))
    gaps = bool(np.isnan(X).any())  # a tree that does not check its rows takes them for numbers
    for seen in in_bag:
        drawn = rng.permutation(counting)[: round(IN_BAG * len(counting))]
        drawn = drawn[: max(1, np.searchsorted(sizes[drawn].cumsum(), max_rows, side="right"))]
        is_drawn = np.zeros(len(sizes), dtype=bool)
        is_drawn[drawn] = True
        seen[:] = is_drawn[unit]
        seed = rng.randint(2**31 - 1)
        tree = DecisionTreeRegressor(min_samples_leaf=min_leaf, max_features=max_features, random_state=seed)
        with config_context(skip_parameter_validation=True):  # checks take longer than a small tree
            own = None if weight is None else weight[seen]
            nodes.append(Nodes.of(tree.fit(X[seen], y[seen], own, check_input=gaps).tree_))
    return joined(nodes, X.shape[1], precision=np.float32, mean=True), in_bag


# Tables of leaves.


def leaf_means(
    trees: Trees,
    X: NDArray[np.floating],
    y: NDArray[np.floating],
    in_bag: Bool[np.ndarray, "tree row"],
    weight: Array | None = None,
) -> NDArray[np.floating]:
    """The mean of each column of y (row, target) over the rows of a leaf that its tree has seen; NaN if there are none.

    Shape: `(leaf, target)`, by the weight (row,) if there is one.
    """
    precise = as_tensor(y[:0]).dtype if weight is None else torch.float64
    sums = torch.zeros(len(trees.table), y.shape[1] + 1, dtype=precise)
    for first in range(0, len(X), trees.rows_at_a_time):
        part = slice(first, first + trees.rows_at_a_time)
        tree, row = as_tensor(in_bag[:, part]).nonzero().int().unbind(dim=1)
        leaf = trees.leaves_of_pairs(as_tensor(X[part]), row, tree)
        counted = np.pad(y[part], ((0, 0), (0, 1)), constant_values=1.0)
        counted = counted if weight is None else counted * weight[part, None]
        sums.index_add_(0, leaf, torch.from_numpy(counted).index_select(0, row))
    means: NDArray[np.floating] = (sums[:, :-1] / sums[:, -1:]).numpy()
    return means


def leaf_distribution(
    trees: Trees,
    X: NDArray[np.floating],
    z: Array,
    in_bag: Bool[np.ndarray, "tree row"],
    knots: Array,
    weight: Array | None = None,
) -> NDArray[np.float32]:
    """The share of the values z (row,) that a tree has seen in a leaf at or below each knot.

    Averaged over trees it is the conditional distribution function. Shape: `(leaf, knot)`.
    """
    shares: NDArray[np.float32] = leaf_means(trees, X, (z[:, None] <= knots).astype(np.float32), in_bag, weight)
    return shares.astype(np.float32, copy=False)


def out_of_bag(
    trees: Trees, table: NDArray[np.floating], X: NDArray[np.floating], in_bag: Bool[np.ndarray, "tree row"]
) -> tuple[NDArray[np.floating], NDArray[np.intp]]:
    """For each training row the average over the trees that have not seen it, NaN where all have, and their number.

    Shape: `(row, output)` and `(row,)`.
    """
    return mean_of_unseen(trees.with_table(table), X, in_bag), (~in_bag).sum(axis=0)


def mean_of_unseen(
    forest: Trees, X: NDArray[np.floating], in_bag: Bool[np.ndarray, "tree row"]
) -> NDArray[np.floating]:
    """For each row the average over the trees that have not seen it, NaN where all have, (row, output)."""
    parts = [forest.table.new_empty(0, forest.table.shape[1])]
    for first in range(0, len(X), forest.rows_at_a_time):
        part = slice(first, first + forest.rows_at_a_time)
        unseen = torch.from_numpy(~in_bag[:, part].T).to(forest.table)
        sums = forest.bags(forest.leaves(as_tensor(X[part]).to(forest.table.device)), unseen)
        parts.append(sums / unseen.sum(dim=1, keepdim=True))
    return torch.cat(parts).cpu().numpy()


def quantile_of(
    cdf: Float[Tensor, "row knot"], knots: Float[Tensor, "knot"], shares: Float[Tensor, "share"]
) -> Float[Tensor, "row share"]:
    """The quantiles of a distribution function known at ascending knots, linear between them and never outside."""
    # The first knot that reaches each share, (row, share).
    if torch.compiler.is_compiling():  # for ONNX, which has no search
        above = (cdf[..., None] < shares).sum(dim=1)
    else:
        above = torch.searchsorted(cdf.contiguous(), shares.expand(len(cdf), -1).contiguous())
    ends = (above - 1).clamp(min=0), above.clamp(max=len(knots) - 1)
    (low, high), (left, right) = (cdf.gather(1, end) for end in ends), (knots[end] for end in ends)
    part = (shares - low) / torch.where(high > low, high - low, 1.0)
    return left + part * (right - left)
