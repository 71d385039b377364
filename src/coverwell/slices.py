"""Coverage in slices of the rows: by group, by quantile of numbers, by level of categories; the worst are named.

Intervals promise coverage on average; slices look for rows that are covered less. Some of many slices fall short by
chance alone, so each comes with its binomial uncertainty, and all of them with their number. Every fit looks at the
rows that its members left out, by one column and by two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, hypergeom

from coverwell.options import check_number, check_share, stored

__all__ = ["Slice", "Slices", "WorstSlice", "slices_of"]

Array = NDArray[np.float64]
Column = NDArray[Any]
Counts = NDArray[Any]
Mask = NDArray[np.bool_]
Parts = tuple[list[str], NDArray[np.intp]]  # the names of a column's slices, and the place of each row's slice

CONFIDENCE = 0.95
BY_CHANCE = 1 - CONFIDENCE  # a shortfall with less probability than this, over all slices together, is named
MOST_LEVELS = 10  # of a categorical feature: the most frequent; the rest are one slice
MISSING, OTHERS = "missing", "others"
COUNTS_APART, FIRST_COUNTS = (
    12,
    (1, 2, 3, 4, 5, 6, 11, 21, 51, 101, 201, 501),
)  # if there are larger counts than so many

FEWEST_ROWS = 20  # of a slice of two columns, and of one that is ranked among the worst though chance may explain it
MOST_PARTS = 640  # of columns that are looked at in pairs: the first 128 if each is cut into five
ROWS_AT_A_TIME = 20_000
QUANTILES, MOST_KEPT, FEWEST_KEPT = 4, 5, 3  # of the slices of a fit
LEAST_CHANCE = 1e-6


@dataclass(frozen=True)
class Slice:
    """The rows with some values in a column, and how many of them lie inside their intervals."""

    column: str
    values: str  # a level ("London"), a range ("2.5 to 4"), "missing" or "others"
    n_rows: int
    n_inside: int
    second: tuple[str, str] | None = None  # of a slice of two columns the other column, and the values there

    @property
    def name(self) -> str:
        """The columns and values, such as "rooms 5 to 7 & area 104.6 to 176.5"."""
        both = [(self.column, self.values), *([self.second] if self.second else [])]
        return " & ".join(f"{column} {values}" for column, values in both)

    @property
    def coverage(self) -> float:
        """The share of the rows inside."""
        return self.n_inside / self.n_rows

    @property
    def low(self) -> float:
        """The lower end of the exact 95 % confidence interval of the coverage (Clopper and Pearson 1934)."""
        return 1 - float(_upper_end(self.n_rows, self.n_rows - self.n_inside))

    @property
    def high(self) -> float:
        """The upper end of that interval."""
        return float(_upper_end(self.n_rows, self.n_inside))

    def chance(self, asked: float) -> float:
        """The probability of this few rows inside, or fewer, if each is inside with the asked probability."""
        return float(binom.cdf(self.n_inside, self.n_rows, asked))


def _upper_end(n_rows: Any, n_inside: Any) -> Any:
    missed = n_rows - n_inside
    return np.where(missed > 0, beta.ppf((1 + CONFIDENCE) / 2, n_inside + 1, np.maximum(missed, 1)), 1.0)


@dataclass(frozen=True)
class Slices:
    """All slices that were compared, in the order of the columns."""

    asked: float  # the asked coverage
    slices: tuple[Slice, ...]
    n_compared: int | None = None  # if there were more than these
    whole: tuple[int, int] | None = None  # all rows and those inside, if chance only decides which ones these are

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    def of(self, column: str) -> tuple[Slice, ...]:
        """The slices by one column."""
        return tuple(part for part in self.slices if part.column == column)

    def worst(self, n: int = 5) -> tuple[Slice, ...]:
        """First the slices that fall short by more than chance, then the others of at least `FEWEST_ROWS` rows.

        Each kind comes by the upper end of the confidence interval, so that a small slice must be missed often to
        come before a large one. Where all slices are small, all are ranked.
        """
        return tuple(self.ranked[: min(n, len(self) - self.n_small)])

    @property
    def ranked(self) -> list[Slice]:
        """All slices, the worst first; at the end those that are too small to be among the worst."""
        return self._ranked[0]

    @property
    def n_small(self) -> int:
        """How many slices are too small to be among the worst, since chance may explain what they miss."""
        return self._ranked[2]

    @property
    def short(self) -> list[Slice]:
        """Those that fall short by more than chance, the worst first."""
        return self.ranked[: self._ranked[1]]

    @cached_property
    def by_column(self) -> dict[str, list[Slice]]:
        """The slices of each column, the worst first; the column with the worst slice first."""
        columns: dict[str, list[Slice]] = {}
        for part in self.ranked:
            columns.setdefault(part.column, []).append(part)
        return columns

    @cached_property
    def _ranked(self) -> tuple[list[Slice], int, int]:
        """All slices in order, how many fall short, how many are small; computed at once, as there may be very many."""
        by_chance, is_few = self.bounds() >= BY_CHANCE, self._counts[0] < FEWEST_ROWS
        is_small = by_chance & is_few & (not is_few.all())
        # The last key counts first; ties keep order.
        order = np.lexsort([_upper_end(*self._counts), is_small, by_chance])
        return [self.slices[place] for place in order], int((~by_chance).sum()), int(is_small.sum())

    def bounds(self, rows_as_one: float = 1.0) -> Array:
        """What `chance` says of each slice, before it is cut at 1, if so many rows count as one."""

        def scaled(n_rows: Any, n_inside: Any) -> tuple[Any, Any]:
            n = np.round(n_rows / rows_as_one)
            return n, n - np.floor((n_rows - n_inside) / rows_as_one)

        whole = None if self.whole is None else scaled(*self.whole)
        return self.n_searched * chances(*scaled(*self._counts), self.asked, whole)

    def chance(self, part: Slice) -> float:
        """A bound on the probability that chance makes any slice this short, however they overlap (Bonferroni)."""
        one = np.array([part.n_rows]), np.array([part.n_inside])
        return min(1.0, self.n_searched * float(chances(*one, self.asked, self.whole)[0]))

    @property
    def n_searched(self) -> int:
        """How many slices were compared."""
        return len(self) if self.n_compared is None else self.n_compared

    @property
    def _counts(self) -> tuple[Counts, Counts]:
        """Rows of each slice, and how many of them are inside."""
        return np.array([part.n_rows for part in self], int), np.array([part.n_inside for part in self], int)


def chances(n_rows: Counts, n_inside: Counts, asked: float, whole: tuple[Any, Any] | None = None) -> Array:
    """The probability of this few rows inside, or fewer, for each slice, if each row is inside with the asked one.

    Of a `whole` with so many rows inside in all, as ranks leave it, a slice is a draw without replacement.
    """
    found: Array = binom.cdf(n_inside, n_rows, asked)
    if whole is not None:
        low = found < BY_CHANCE  # the others are no news, and this takes longer
        found[low] = hypergeom.cdf(n_inside[low], *whole, n_rows[low])
    return found


def slices_of(
    inside: ArrayLike,
    columns: Mapping[str, ArrayLike],
    *,
    asked: float,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
    n_columns: int = 1,
) -> Slices:
    """Cut the rows by each column, and count how many of each slice lie inside their intervals.

    Numbers and dates are cut at their quantiles, or into their values where these are few; other columns into their
    ten most frequent levels and the rest. Missing values are a slice of their own.

    Parameters
    ----------
    inside : array-like of bool (n,), whether each target lies in its interval
    columns : mapping from name to array-like (n,), the features to cut by
    asked : float, the asked coverage
    groups : mapping from name to array-like (n,); every value is a slice, however many there are
    quantiles : int, into how many slices numbers are cut
    n_columns : 1 or 2
        With 2, rows are cut by two columns at once, into slices of at least 20 rows. Of very many columns the first are
        taken. Only those are returned that fall short by more than chance, and more surely than the rows of either
        column alone.

    Examples
    --------
    >>> inside = [True, True, True, False]
    >>> found = slices_of(inside, {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> [(part.values, part.coverage) for part in found]
    [('Oslo', 0.5), ('Rome', 1.0)]
    """
    rows = np.asarray(inside)
    if rows.dtype != np.bool_ or rows.ndim != 1 or not len(rows):
        raise ValueError(f"inside must be True or False for each of at least one row, got {rows.dtype} {rows.shape}")
    check_share("asked", asked)
    check_number("n_columns", n_columns, least=1, below=3, whole=True)
    return (counted, pairs)[n_columns - 1](rows, cut(columns, groups or {}, len(rows), quantiles), asked)


def cut(columns: Mapping[str, Any], groups: Mapping[str, Any], n_rows: int, quantiles: int) -> dict[str, Parts]:
    check_number("quantiles", quantiles, least=2, whole=True)
    given = {name: np.asarray(values) for name, values in [*groups.items(), *columns.items()]}
    check_columns("column", given, n_rows)
    parts = {}
    for name, column in given.items():
        if name not in groups and column.dtype.kind in "iufM":
            parts[name] = by_quantile(column, quantiles)
        else:
            parts[name] = _by_level(column, most=None if name in groups else MOST_LEVELS)
    return parts


def counted(inside: Mask, parts: Mapping[str, Parts], asked: float, whole: tuple[int, int] | None = None) -> Slices:
    found: list[Slice] = []
    for column, (names, part_of_row) in parts.items():
        n_rows, n_inside = (np.bincount(rows, minlength=len(names)) for rows in (part_of_row, part_of_row[inside]))
        found += [Slice(column, one, int(n), int(k)) for one, n, k in zip(names, n_rows, n_inside, strict=True) if n]
    return Slices(float(asked), tuple(found), whole=whole)


def pairs(inside: Mask, parts: Mapping[str, Parts], asked: float, whole: tuple[int, int] | None = None) -> Slices:
    """The slices of two columns that fall short by more than chance, and more surely than either column alone."""
    large: dict[str, NDArray[np.intp]] = {}  # the parts of a column that have enough rows
    room = MOST_PARTS
    for column, (_, part_of_row) in parts.items():
        own = np.flatnonzero(np.bincount(part_of_row) >= FEWEST_ROWS)
        if len(own) <= room:
            large[column], room = own, room - len(own)
    named = [(column, parts[column][0][place]) for column, own in large.items() for place in own]
    n_rows, n_missed = np.zeros((2, len(named), len(named)))
    for first in range(0, len(inside) if named else 0, ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        flags = [parts[column][1][rows, None] == own for column, own in large.items()]
        is_in = np.concatenate(flags, axis=1).astype(np.float32)  # (row, part); sums of so few are exact
        missed = is_in[~inside[rows]]
        n_rows += is_in.T @ is_in
        n_missed += missed.T @ missed
    of_column = np.array([place for place, own in enumerate(large.values()) for _ in own], dtype=int)
    compared = (of_column[:, None] < of_column) & (n_rows >= FEWEST_ROWS)
    n_inside, n_compared = n_rows - n_missed, int(compared.sum())
    alone = chances(np.diag(n_rows), np.diag(n_inside), asked, whole)
    chance = chances(n_rows[compared], n_inside[compared], asked, whole)
    is_short = (n_compared * chance < BY_CHANCE) & (chance < np.minimum(alone[:, None], alone)[compared])
    found = []
    for a, b in np.argwhere(compared)[is_short]:
        (column, values), second = named[a], named[b]
        found.append(Slice(column, values, int(n_rows[a, b]), int(n_inside[a, b]), second))
    return Slices(float(asked), tuple(found), n_compared, whole)


def check_columns(what: str, columns: Mapping[str, Column], n_rows: int) -> None:
    for name, column in columns.items():
        if column.shape != (n_rows,):
            raise ValueError(f"{what} {name!r} must have one value for each of {n_rows} rows, got shape {column.shape}")


def by_quantile(column: Column, n_parts: int) -> Parts:
    """Slices of about as many rows each; equal values stay together."""
    missing = is_missing(column)
    ordered = np.sort(column[~missing])
    last = distinct = np.unique(ordered)  # the largest value of each slice
    if len(distinct) > n_parts:
        places = np.round(np.linspace(0, len(ordered) - 1, n_parts + 1)).astype(np.intp)[1:]
        last = np.unique(ordered[places])  # observed values: dates have no average
    first = distinct[np.concatenate([[0], np.searchsorted(distinct, last[:-1], side="right")])] if len(last) else last
    ends = [(as_text(low), as_text(high)) for low, high in zip(first, last, strict=True)]
    names = [low if low == high else f"{low} to {high}" for low, high in ends]
    return [*names, MISSING], np.where(missing, len(names), np.searchsorted(last, column, side="left"))


def by_count(counts: NDArray[np.intp]) -> Parts:
    """A slice for each count, or where some are large, for several that follow each other."""
    largest = int(counts.max())
    if largest <= COUNTS_APART:
        return [str(count) for count in range(largest + 1)], counts
    first = [0, *(count for count in FIRST_COUNTS if count <= largest)]
    last = [following - 1 for following in first[1:]] + [largest]
    names = [str(low) if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True)]
    return names, np.searchsorted(first, counts, side="right") - 1


def _by_level(column: Column, most: int | None) -> Parts:
    """One slice per level; beyond `most`, the rarer levels are one slice."""
    missing = is_missing(column)
    levels, level_of_row, counts = np.unique(column[~missing].astype(str), return_inverse=True, return_counts=True)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:most])
    place_of = np.full(len(levels), len(frequent))
    place_of[frequent] = np.arange(len(frequent))
    part_of_row = np.full(len(column), len(frequent) + 1)
    part_of_row[~missing] = place_of[level_of_row]
    return [*levels[frequent].tolist(), OTHERS, MISSING], part_of_row


def is_missing(column: Column) -> Mask:
    if column.dtype.kind == "O":
        return np.fromiter((value is None or value != value for value in column), dtype=bool, count=len(column))
    return np.asarray(column != column)  # only NaN and NaT differ from themselves


def as_text(value: Any) -> str:
    """A value in as few characters as it needs; "missing" for none."""
    if value is None or value != value:
        return MISSING
    if isinstance(value, np.datetime64):
        short = (value.astype(f"datetime64[{unit}]") for unit in ("D", "m", "s"))  # the first that says it all
        return str(next((moment for moment in short if moment == value), value)).replace("T", " ")
    if isinstance(value, float | np.floating):
        return f"{float(value):.{4 if abs(float(value)) < 1000 else 6}g}"
    return str(value)


# The slices of a fit.


@stored
@dataclass(frozen=True, kw_only=True)
class WorstSlice(Slice):
    """A slice of training rows, each judged by members that left it out; found among many at the fit.

    As text it is one line that says how short it falls, and how probable that is by chance.
    """

    target: str
    asked: float  # the asked coverage
    by_chance: float  # a bound on the probability that chance makes any of those searched so short
    n_searched: int  # slices, of all targets

    def __post_init__(self) -> None:
        """Raise for what no search can have found; model files come from anywhere."""
        texts = (self.column, self.values, self.target, *(self.second or ()))
        counted = all(isinstance(n, int) for n in (self.n_rows, self.n_inside, self.n_searched))
        shares = counted and 0 <= self.n_inside <= self.n_rows and 0 < self.asked < 1 and 0 <= self.by_chance <= 1
        if not (shares and self.n_rows > 0 and all(isinstance(text, str) for text in texts)):
            raise ValueError(f"a slice must have names, counts of rows and shares, got {vars(self)}")

    @property
    def is_short(self) -> bool:
        """Whether it falls short by more than chance."""
        return self.by_chance < BY_CHANCE

    def __str__(self) -> str:
        below, one_in = "less than " * (self.by_chance < LEAST_CHANCE), f"{1 / max(self.by_chance, LEAST_CHANCE):.2g}"
        chance = f"chance alone {below}1 in {float(one_in):,.0f}" if self.is_short else "may be chance"
        counts = f"{self.coverage:.2f} ({self.n_inside:,} of {self.n_rows:,} rows)"
        covered = f"{self.target} in {self.name} is covered {counts} where {self.asked:g} was asked"
        return f"of {self.n_searched:,} slices of out-of-fold rows, {covered}: {chance}"


def in_one_line(found: Sequence[WorstSlice]) -> str:
    """What a search has found: the slice that is least likely to be chance, and whether there are others."""
    return f"{found[0]}" + "; others fall short too" * any(one.is_short for one in found[1:])


def rows_as_one(inside: Mask, units: Column | None) -> float:
    """By how much misses scatter more between units of rows than if rows were independent; at least 1."""
    if units is None or inside.all() or not inside.any():
        return 1.0
    _, unit = np.unique(units, return_inverse=True)
    excess = np.bincount(unit, weights=inside - inside.mean())  # of rows inside
    return max(1.0, float((excess**2).sum() / (len(inside) * inside.var())))


def worst_slices(
    inside: Mask,
    columns: Mapping[str, Column],
    of_targets: Mapping[str, Mapping[str, Column]],
    asked: float,
    units: Column | None = None,
) -> tuple[WorstSlice, ...]:
    """The slices of one and two columns that fall short by more than chance, the surest first; else the least sure.

    Ranks leave about as many rows inside as was asked, so chance only decides which ones; where more are inside, each
    is so with the asked probability. Chance counts the slices of one column and those of two alike, however many more
    the latter are.

    Parameters
    ----------
    inside : bool (row, target), whether each target lies in its interval
    columns : by name, the features to cut by
    of_targets : for each target, by name, more columns
    asked : the asked coverage
    units : which rows belong together; where these are missed together, they count as fewer
    """
    shared = cut(columns, {}, len(inside), QUANTILES)
    found: list[tuple[float, str, Slice]] = []
    n_searched = 0
    for own, (target, more) in zip(inside.T, of_targets.items(), strict=True):
        parts = {**cut(more, {}, len(inside), QUANTILES), **shared}
        reached = float(own.mean())
        chance = (reached, (len(own), int(own.sum()))) if reached <= asked else (asked,)
        for family in (counted(own, parts, *chance), pairs(own, parts, *chance)):
            n_searched += family.n_searched
            bounds = 2 * inside.shape[1] * family.bounds(rows_as_one(own, units))
            found += [(bound, target, part) for bound, part in zip(bounds.tolist(), family, strict=True)]
    found.sort(key=lambda one: one[0])
    n_short = sum(bound < BY_CHANCE for bound, _, _ in found)
    kept = found[: min(MOST_KEPT, max(FEWEST_KEPT, n_short))]
    return tuple(
        WorstSlice(
            *(getattr(part, one.name) for one in fields(Slice)),
            target=target,
            asked=asked,
            by_chance=min(1.0, bound),
            n_searched=n_searched,
        )
        for bound, target, part in kept
    )
