"""Coverage within groups of rows, not only on average: each group's half-widths have a factor from its own ranks.

Groups are rows with equal values in some columns: a district, or the same gaps. Groups are drawn towards all rows, as
far as rows that are left out one by one show that their own ranks cost more than they gain. What a gap costs is also
shown by other rows, in which the same values are hidden: small groups with gaps have the ranks of such copies.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import ROUNDING, central_places, rank_factor, rows_worth
from coverwell.errors import ColumnWarning
from coverwell.inputs.columns import MISSING
from coverwell.options import stored
from coverwell.training.rows import Altered

if TYPE_CHECKING:
    from coverwell.inputs.source import InputSource

Array = NDArray[np.float64]
Places = NDArray[np.intp]

FEWEST_ROWS = 5  # of a group with a factor of its own, unless copies show it
TRUSTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # how far groups are on their own
MOST_LEFT_OUT = 400  # rows of a group that are left out one by one: with more, its ranks are sure
CYCLES = 4  # over groupings that overlap
ROWS_AT_A_TIME = 2**16  # in which groups are looked for
OWN_RANKS = 200  # rows with the same gaps that need no copies of others beside them
FEWEST_COPIES, MOST_COPIES, MOST_PATTERNS = 30, 300, 20  # of rows for each pattern of gaps, and of patterns
# What the ranks of copies are multiplied by, the nearest to one first, and by how many standard errors the group's own
# rows must be better off with less or with more: rather too wide than too narrow.
NUDGES = np.exp(sorted(np.arange(-40, 41) / 20, key=abs))
NARROWER, WIDER = 1.0, 0.5


@dataclass(frozen=True)
class Grouping:
    """Columns of features by whose values rows are told apart, and what they say, for people."""

    name: str
    places: tuple[int, ...]


@stored
class GroupFactors(nn.Module):
    """The factor of the half-widths of each group; rows of no known group have the last one.

    Parameters
    ----------
    name : what tells the groups apart
    places : (place,), columns of the rows
    keys : (group, place), their values in each group
    factor : (group + 1, target, level)
    n_rows : (group + 1,), how many rows' ranks each rests on
    levels : of the half-widths

    Shape: input `(row, feature)`, output `(row, target, 1, level)`.
    """

    places: Tensor
    keys: Tensor
    factor: Tensor
    n_rows: Tensor

    def __init__(
        self,
        name: str,
        places: NDArray[np.int64],
        keys: Array,
        factor: Array,
        n_rows: NDArray[np.int64],
        levels: Sequence[float],
    ) -> None:
        super().__init__()
        shapes = (len(keys) + 1, *factor.shape[1:2], len(levels)), (len(keys), len(places)), (len(keys) + 1,)
        if (factor.shape, keys.shape, n_rows.shape) != shapes or (places < 0).any():
            raise ValueError(
                f"{len(keys)} groups by {len(places)} columns must have values, factors at {len(levels)} levels and "
                f"numbers of rows, one more than groups; got the shapes {keys.shape}, {factor.shape} and {n_rows.shape}"
            )
        self.name, self.levels = name, tuple(levels)
        for part, values in {"places": places, "keys": keys, "factor": factor, "n_rows": n_rows}.items():
            self.register_buffer(part, torch.as_tensor(values))

    def at(self, levels: Sequence[float]) -> GroupFactors:
        """The same without other levels."""
        factor = self.factor[..., [self.levels.index(level) for level in levels]]
        places, keys, own, n_rows = (part.numpy() for part in (self.places, self.keys, factor, self.n_rows))
        return GroupFactors(self.name, places, keys, own, n_rows, levels)

    def group_of(self, rows: Float[Tensor, "row feature"]) -> Int[Tensor, " row"]:
        """The group of each row; one more than there are for rows of none."""
        same = (rows.index_select(1, self.places)[:, None] == self.keys.to(rows)).all(dim=2)  # (row, group)
        no_group = ~same.any(dim=1, keepdim=True)
        return torch.cat([same, no_group], dim=1).to(torch.uint8).argmax(dim=1)

    def forward(self, rows: Float[Tensor, "row feature"]) -> Float[Tensor, "row target 1 level"]:
        return self.factor[self.group_of(rows)][:, :, None]


def group_factors(
    groupings: Sequence[Grouping],
    X: Array,
    scores: Array,
    size: Array,
    levels: Sequence[float],
    *,
    exact: bool,
    weight: Array | None = None,
    masked: tuple[Array, Array] | None = None,
) -> list[GroupFactors]:
    """What each grouping multiplies half-widths by, from the scores (row, target, level) of rows (row, feature).

    The score of a row is the factor by which its interval just contains its target, `size` (row, target) is that of
    the interval. Groupings that overlap take turns, each on the scores that the others leave, so that in the end all of
    them hold. If `exact`, a group is drawn towards all rows only where its own ranks do not suffice. `masked` are
    copies of rows in which values are hidden, and their scores.
    """
    weight = np.ones(len(X)) if weight is None else weight
    copies, of_copies = (X[:0], scores[:0]) if masked is None else masked
    learned = [_Learned.of(grouping, X, weight, copies) for grouping in groupings]
    learned = [one for one in learned if one.n_groups > 1]
    whole = rank_factor(scores, levels, weight, or_largest=True)
    for cycle in range(CYCLES if len(learned) > 1 else 1):
        for one in learned:
            others = [other for other in learned if other is not one]
            left = scores / prod(other.factor_of(other.group) for other in others)
            of_gaps = of_copies / prod(other.factor_of(other.copies) for other in others)
            one.rank(left, of_gaps, size, whole, levels, exact=exact, first=cycle == 0)
    return [one.factors(levels) for one in learned if one.factor is not None and (one.factor != 1).any()]


@dataclass
class _Learned:
    """The groups of one grouping while their factors are learned."""

    grouping: Grouping
    keys: Array  # (group, place)
    group: Places  # of each row; the last is that of all rows in no group of its own
    weight: Array  # of each row
    copies: Places  # the group of each masked copy
    trust: dict[int, float] = field(default_factory=dict)  # by target; 1 where it is not there
    factor: Array | None = None  # (group + 1, target, level)

    @classmethod
    def of(cls, grouping: Grouping, X: Array, weight: Array, copies: Array) -> _Learned:
        keys, group, counts = np.unique(X[:, grouping.places], axis=0, return_inverse=True, return_counts=True)
        shown = np.unique(copies[:, grouping.places], axis=0) if grouping.name == GAPS else keys[:0]
        own = np.flatnonzero((counts >= FEWEST_ROWS) | (keys[:, None] == shown).all(axis=2).any(axis=1))
        place = np.full(len(keys), len(own))
        place[own] = np.arange(len(own))
        same = (copies[:, None, grouping.places] == keys[own]).all(axis=2)  # (copy, group)
        of_copies = np.column_stack([same, np.ones(len(same), dtype=bool)]).argmax(axis=1)
        return cls(grouping, keys[own], place[group.reshape(-1)], weight, of_copies)

    @property
    def n_groups(self) -> int:
        return len(np.unique(self.group))

    def rows_of_groups(self) -> list[Places]:
        return [np.flatnonzero(self.group == place) for place in range(len(self.keys) + 1)]

    def factor_of(self, groups: Places) -> Array | float:
        """The factors of rows in these groups; one as long as none are learned."""
        return 1.0 if self.factor is None else self.factor[groups]

    def copies_of(self, group: int) -> Places:
        """The copies that show what the gaps of a group cost."""
        known = self.grouping.name == GAPS and group < len(self.keys)
        return np.flatnonzero(self.copies == group) if known else self.copies[:0]

    def rank(
        self,
        scores: Array,
        of_copies: Array,
        size: Array,
        whole: Array,
        levels: Sequence[float],
        *,
        exact: bool,
        first: bool,
    ) -> None:
        """Set the factors from scores, over those of all rows (target, level); the trust is chosen once."""
        rows = [own if len(own) >= FEWEST_ROWS else own[:0] for own in self.rows_of_groups()]
        for target in range(scores.shape[1]) if first else ():
            alone = [own for group, own in enumerate(rows) if not len(self.copies_of(group))]
            groups = [(scores[own, target], size[own, target], self.weight[own]) for own in alone]
            self.trust[target] = best_trust(groups, whole[target], levels)
        trust = np.array([self.trust.get(target, 1.0) for target in range(scores.shape[1])])[:, None]
        self.factor = np.ones((len(rows), *scores.shape[1:]))
        unit = np.where(whole > 0, whole, 1.0)
        for group, own in enumerate(rows):
            if len(copies := self.copies_of(group)):
                base = rank_factor(of_copies[copies], levels, or_largest=True)
                nudge = [best_nudge(scores[own, t], size[own, t], base[t], levels) for t in range(len(base))]
                self.factor[group] = np.where((base > 0) & (whole > 0), base / unit * np.array(nudge)[:, None], 1.0)
                continue
            n = rows_worth(self.weight[own])
            has_rank = np.array([level <= n / (n + 1) for level in levels])
            if len(own):
                ratio = own_ranks(scores, own, self.weight, levels) / unit
                drawn = np.where(ratio > 0, ratio, 1.0) ** np.where(exact & has_rank, 1.0, trust)
                self.factor[group] = np.where(whole > 0, drawn, 1.0)

    def factors(self, levels: Sequence[float]) -> GroupFactors:
        assert self.factor is not None  # learned
        n_rows = np.bincount(self.group, minlength=len(self.keys) + 1)
        places = np.array(self.grouping.places, dtype=np.int64)
        return GroupFactors(self.grouping.name, places, self.keys, self.factor, n_rows, levels)


def own_ranks(scores: Array, own: Places, weight: Array, levels: Sequence[float]) -> Array:
    """The scores at the ranks of some rows of their own, (target, level).

    Above the highest level for which so few rows have a rank, they are in proportion to the scores of all rows.
    """
    n = rows_worth(weight[own])
    reached = [min(level, n / (n + 1)) for level in levels]
    found = rank_factor(scores[own], reached, weight[own], or_largest=True)
    if reached == list(levels):
        return found
    of_all, up_to = (rank_factor(scores, some, weight, or_largest=True) for some in (levels, reached))
    return found * np.divide(of_all, up_to, out=np.ones_like(found), where=up_to > 0)


def best_trust(groups: Sequence[tuple[Array, Array, Array]], whole: Array, levels: Sequence[float]) -> float:
    """How far groups can be on their own at no loss, by that of rows that are left out one by one.

    Each has its scores (row, level), the sizes of its intervals (row,) and weights (row,); `whole` (level,) are those
    of all rows.
    """
    chosen, losses = central_places(levels), np.zeros(len(TRUSTS))
    for scores, size, weight in groups:
        for place in chosen if FEWEST_ROWS <= len(scores) <= MOST_LEFT_OUT and whole[chosen].min() > 0 else ():
            own, level = scores[:, place], levels[place]
            ratio = np.maximum(left_out_bounds(own, level, weight) / whole[place], np.finfo(float).tiny)
            for number, trust in enumerate(TRUSTS):
                bound = whole[place] * ratio**trust
                losses[number] += np.sum(weight * size * ((1 - level) * bound + np.maximum(own - bound, 0)))
    return float(max(trust for trust, loss in zip(TRUSTS, losses.tolist(), strict=True) if loss <= losses[0]))


def best_nudge(own: Array, size: Array, base: Array, levels: Sequence[float]) -> float:
    """What to multiply the ranks of copies (level,) by, as near to one as a group's own rows bear.

    They are scores (row, level) and sizes of intervals (row,). The pinball loss of the nearest lies within a share of a
    standard error of the lowest. Too few rows, which are none here, tell nothing.
    """
    if not len(own):
        return 1.0
    chosen = central_places(levels)
    bound = NUDGES[:, None, None] * base[chosen]  # (nudge, 1, level)
    short, share = np.maximum(own[:, chosen] - bound, 0), 1 - np.array(levels)[chosen]
    losses = size * (share * bound + short).sum(axis=2)  # (nudge, row)
    more = losses - losses[losses.sum(axis=1).argmin()]  # than the best
    error = more.std(axis=1, ddof=1) * np.sqrt(len(own))
    wider, narrower = (NUDGES[(more.sum(axis=1) <= n_errors * error).argmax()] for n_errors in (WIDER, NARROWER))
    return float(wider if wider > 1 else narrower)


def left_out_bounds(own: Array, level: float, weight: Array) -> Array:
    """For each score the one at the rank of a level among the others, as in `rank_factor`."""
    order, last = np.argsort(own), len(own) - 1
    mine, place, bounds = weight[order] / weight.max(), np.arange(len(own)), np.empty_like(own)
    up_to, total = mine.cumsum(), sum_of_others(mine)
    needed = level * (total + sum_of_others(np.square(mine)) / total) - ROUNDING * total
    # A score that is left out below the rank moves it up, by what it weighs.
    before, behind = np.searchsorted(up_to, needed), np.searchsorted(up_to, needed + mine)
    rank = np.where(before < place, before, behind)
    bounds[order] = own[order[np.minimum(rank, np.where(place == last, last - 1, last))]]
    return bounds


def sum_of_others(values: Array) -> Array:
    """For each value the sum of the others; not less it from the sum of all, in which it may drown them."""
    before, behind = np.append(0.0, values[:-1].cumsum()), np.append(values[:0:-1].cumsum()[::-1], 0.0)
    others: Array = before + behind
    return others


# Which groups.

GAPS = "missing values"
CLASS = "class"  # of a classifier's target


def groupings_of(source: InputSource, hold_for: Any = None) -> list[Grouping]:
    """What is missing tells rows apart, where something is; and so does each column that coverage is to be held for."""
    gaps: tuple[int, ...] = ()
    names = source.names or ()
    owners: dict[Any, list[int]] = {name: [place] for place, name in enumerate(names)}
    if not names:
        owners = {place: [place] for place in range(source.row_shape[0])}
    if source.columns is not None and not source.columns.plain:
        parts = [(column.name, part) for column in source.columns.columns for part in column.kept]
        gaps = tuple(place for place, (_, part) in enumerate(parts) if part == MISSING)
        owners = {}
        for place, (name, _) in enumerate(parts):
            owners.setdefault(name, []).append(place)
    if not source.scaled:
        return []  # images
    found = [Grouping(GAPS, gaps)] if gaps else []
    for column in asked_columns(hold_for, len(owners)):
        if column not in owners:
            known = ", ".join(map(repr, list(owners)[:10]))
            raise ValueError(f"hold_for must name columns of X that vary, such as {known}, got {column!r}")
        found.append(Grouping(str(column), tuple(owners[column])))
    return found


def asked_columns(hold_for: Any, n_columns: int) -> list[Any]:
    """The columns that are named; raises for values of groups."""
    if hold_for is None or isinstance(hold_for, str | Integral):
        return [] if hold_for is None else [hold_for]
    listed = isinstance(hold_for, Iterable)
    if not listed or not (hasattr(hold_for, "shape") or all(isinstance(one, str | Real) for one in hold_for)):
        raise TypeError(f"hold_for must be the name or place of a column of X, or several, got {hold_for!r:.80}")
    columns = np.asarray(hold_for, dtype=object) if hasattr(hold_for, "shape") else list(hold_for)
    if np.ndim(columns) != 1 or len(columns) > n_columns or len(set(columns)) < len(columns):
        raise ValueError(
            "hold_for must name columns of X, each once, since new rows need their groups too, got "
            f"{len(columns)} values; put them into X as a column, as in X.assign(band=...), and give its name, or place"
        )
    return list(columns)


def masked_copies(source: InputSource, X: Array, left_out: NDArray[np.bool_], seed: int) -> Altered | None:
    """Copies of rows that somebody leaves out, each with the gaps of some small group of rows; None if there is none.

    They are drawn from the rows with fewer of these gaps, or none.
    """
    gaps = next((one for one in groupings_of(source) if one.name == GAPS), None)
    if gaps is None or source.columns is None:
        return None
    column = np.array([number for number, one in enumerate(source.columns.columns) for _ in one.kept])  # of a feature
    keys, group, counts = np.unique(X[:, gaps.places], axis=0, return_inverse=True, return_counts=True)
    group, rng, copies, copy_of = group.reshape(-1), np.random.RandomState(seed), [X[:0]], [group[:0]]
    small = np.flatnonzero((counts <= OWN_RANKS) & keys.any(axis=1))
    for number in small[np.argsort(-counts[small], kind="stable")][:MOST_PATTERNS]:
        fewer = (keys <= keys[number]).all(axis=1) & (keys < keys[number]).any(axis=1)
        rows = rng.permutation(np.flatnonzero(fewer[group] & left_out))[:MOST_COPIES]
        if len(rows) >= FEWEST_COPIES:
            hidden = np.isin(column, column[list(gaps.places)][keys[number] > 0])
            copies.append(np.where(hidden, X[(group == number).argmax()], X[rows]))
            copy_of.append(rows)
    if len(copies) == 1:
        return None
    X, rows = np.concatenate(copies), np.concatenate(copy_of)
    return Altered(X, rows, np.full((len(X), 2), -1))


def check_groups(grouping: Grouping, X: Array) -> None:
    """Raise unless some group has enough rows, and there are several."""
    counts = np.unique(X[:, grouping.places], axis=0, return_counts=True)[1]
    if len(counts) < 2 or counts.max() < FEWEST_ROWS:
        found = f"{len(counts)} group{'s' * (len(counts) > 1)} of at most {counts.max()} in {len(X)} rows"
        raise ValueError(
            f"hold_for={grouping.name!r} must tell groups of at least {FEWEST_ROWS} rows apart, got {found}; "
            "give a column with larger groups, such as bands"
        )


@torch.no_grad()
def warn_of_other_groups(factors: Sequence[GroupFactors], X: Array) -> None:
    """Warn of rows for whose group coverage is not held."""
    for part in factors:
        if part.name == GAPS:
            continue
        rows = torch.from_numpy(X).split(ROWS_AT_A_TIME)  # (row, group, place) of all would not fit into memory
        n_others = sum(int((part.group_of(own.to(part.places.device)) == len(part.keys)).sum()) for own in rows)
        if n_others:
            warnings.warn(
                f"{n_others} of {len(X)} rows have a {part.name!r} that fewer than {FEWEST_ROWS} training rows had; "
                "coverage is held for all such rows together",
                ColumnWarning,
                stacklevel=5,  # the line that asks an estimator for a prediction
            )
