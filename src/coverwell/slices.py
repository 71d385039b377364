"""Coverage in parts of the rows, by group, by quantile of numbers, by level of categories; the worst parts named.

Intervals promise their coverage on average over rows. Where that average hides parts that are covered less is what this
module looks for. Looking at many parts finds some that are covered less by chance alone: every part comes with its
binomial uncertainty, and with the number of parts that were looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

__all__ = ["BY_CHANCE", "CONFIDENCE", "Ranked", "Slice", "Slices", "slices_of"]

Mask = NDArray[np.bool_]
Values = NDArray[Any]
Parts = tuple[list[str], NDArray[np.intp]]  # names, and the number of each row's part

CONFIDENCE = 0.95
BY_CHANCE = 1 - CONFIDENCE  # a shortfall with less probability than this, over all parts together, is named
MOST_LEVELS = 10  # of a column that is not a group, the most frequent; the others are one part together
MISSING, OTHERS = "missing", "others"


@dataclass(frozen=True)
class Slice:
    """The rows that have some values in a column, and how many of them are inside their intervals.

    Attributes
    ----------
    column : str
    values : str
        Which values: a level (`"London"`), a range (`"2.5 to 4"`), `"missing"` or `"others"`.
    n_rows, n_inside : int
    """

    column: str
    values: str
    n_rows: int
    n_inside: int

    @property
    def coverage(self) -> float:
        """The share of the rows that are inside."""
        return self.n_inside / self.n_rows

    @property
    def low(self) -> float:
        """The lowest coverage in the exact 95 % confidence interval (Clopper and Pearson 1934)."""
        missed = self.n_rows - self.n_inside
        return float(beta.ppf((1 - CONFIDENCE) / 2, self.n_inside, missed + 1)) if self.n_inside else 0.0

    @property
    def high(self) -> float:
        """The highest coverage in that interval."""
        missed = self.n_rows - self.n_inside
        return float(beta.ppf((1 + CONFIDENCE) / 2, self.n_inside + 1, missed)) if missed else 1.0

    def chance(self, asked: float) -> float:
        """The probability of so few rows inside, or fewer, if each is inside with the asked probability."""
        return float(binom.cdf(self.n_inside, self.n_rows, asked))


@dataclass(frozen=True)
class Slices:
    """All parts that were looked at, in the order of the columns.

    Attributes
    ----------
    asked : float
        The coverage that was asked for.
    slices : tuple of Slice
    """

    asked: float
    slices: tuple[Slice, ...]

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    def of(self, column: str) -> tuple[Slice, ...]:
        """The parts by one column."""
        return tuple(part for part in self.slices if part.column == column)

    def worst(self, n: int = 5) -> tuple[Slice, ...]:
        """The parts that are surely covered least: first those that fall short by more than chance, then the others.

        Each kind by the upper end of the confidence interval: a part of few rows has a wide one, so that it must be
        missed often to come before a large one.
        """
        return tuple(self.ranked.parts[:n])

    @cached_property
    def ranked(self) -> Ranked:
        """All parts in that order, judged at once as `chance` and `high` judge one: there may be very many."""
        n_rows, n_inside = (
            np.array([getattr(part, name) for part in self], dtype=int) for name in ("n_rows", "n_inside")
        )
        missed = n_rows - n_inside
        high = np.where(missed > 0, beta.ppf((1 + CONFIDENCE) / 2, n_inside + 1, np.maximum(missed, 1)), 1.0)
        by_chance = len(self) * binom.cdf(n_inside, n_rows, self.asked) >= BY_CHANCE
        order = np.lexsort([high, by_chance])  # the last key counts first; equals stay in their order
        return Ranked([self.slices[place] for place in order], int((~by_chance).sum()))

    def chance(self, part: Slice) -> float:
        """At most the probability that any of all these parts is so short of the asked coverage by chance (Bonferroni).

        It holds however the parts overlap, if each row is inside with the asked probability.
        """
        return min(1.0, len(self) * part.chance(self.asked))


@dataclass(frozen=True, eq=False)
class Ranked:
    """All parts that were looked at, the worst first.

    Attributes
    ----------
    parts : list of Slice
        In the order of `Slices.worst`.
    n_short : int
        How many fall short by more than chance.
    """

    parts: list[Slice]
    n_short: int

    @property
    def short(self) -> list[Slice]:
        return self.parts[: self.n_short]

    @cached_property
    def by_column(self) -> dict[str, list[Slice]]:
        """The parts of each column; the column with the worst part first."""
        columns: defaultdict[str, list[Slice]] = defaultdict(list)
        for part in self.parts:
            columns[part.column].append(part)
        return dict(columns)


def slices_of(
    inside: ArrayLike,
    columns: Mapping[str, ArrayLike],
    *,
    asked: float,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
) -> Slices:
    """The rows cut into parts by each column, and how many of each part are inside their intervals.

    Numbers and dates are cut at their quantiles, or into their values where there are no more of them than parts; other
    columns into their levels, of which the most frequent ten stand alone. Missing values are a part of their own.

    Parameters
    ----------
    inside : array-like of bool (n,)
        Whether each truth lies in its interval.
    columns : mapping from name to array-like (n,)
        The features by which to look.
    asked : float
        The coverage that was asked for.
    groups : mapping from name to array-like (n,), optional
        Columns of which every value is a part, however many there are.
    quantiles : int
        Into how many parts numbers are cut.

    Examples
    --------
    >>> inside = [True, True, True, False]
    >>> found = slices_of(inside, {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> [(part.values, part.coverage) for part in found]
    [('Oslo', 0.5), ('Rome', 1.0)]
    >>> found.worst(1)[0].values
    'Oslo'
    """
    rows = np.asarray(inside)
    if rows.dtype != np.bool_ or rows.ndim != 1 or not len(rows):
        raise ValueError(f"inside must be True or False for each of at least one row, got {rows.dtype} {rows.shape}")
    if not 0 < asked < 1:
        raise ValueError(f"asked must lie strictly between 0 and 1, got {asked!r}")
    if quantiles < 2:
        raise ValueError(f"quantiles must be at least 2, got {quantiles!r}")
    found: list[Slice] = []
    for name, values in (groups or {}).items():
        found += _counted(name, rows, _by_level(_column(name, values, len(rows)), most=None))
    for name, values in columns.items():
        column = _column(name, values, len(rows))
        ordered = column.dtype.kind in "iufM"
        parts = _by_quantile(column, quantiles) if ordered else _by_level(column, most=MOST_LEVELS)
        found += _counted(name, rows, parts)
    return Slices(float(asked), tuple(found))


def _column(name: str, values: ArrayLike, n_rows: int) -> Values:
    column = np.asarray(values)
    if column.shape != (n_rows,):
        raise ValueError(f"column {name!r} must have one value for each of {n_rows} rows, got shape {column.shape}")
    return column


def _counted(name: str, inside: Mask, parts: Parts) -> list[Slice]:
    names, part_of_row = parts
    n_rows = np.bincount(part_of_row, minlength=len(names))
    n_inside = np.bincount(part_of_row[inside], minlength=len(names))
    return [Slice(name, values, int(n), int(k)) for values, n, k in zip(names, n_rows, n_inside, strict=True) if n]


def _by_quantile(column: Values, n_parts: int) -> Parts:
    """Parts of about as many rows each; rows with equal values are never apart."""
    missing = _missing(column)
    ordered = np.sort(column[~missing])
    distinct = np.unique(ordered)
    if len(distinct) <= n_parts:
        last = distinct  # of each part, the largest value
    else:
        places = np.round(np.linspace(0, len(ordered) - 1, n_parts + 1)).astype(np.intp)[1:]
        last = np.unique(ordered[places])  # observed values: of dates there is no average
    first = distinct[np.concatenate([[0], np.searchsorted(distinct, last[:-1], side="right")])] if len(last) else last
    names = [_range(low, high) for low, high in zip(first, last, strict=True)]
    part_of_row = np.where(missing, len(names), np.searchsorted(last, column, side="left"))
    return [*names, MISSING], part_of_row


def _by_level(column: Values, most: int | None) -> Parts:
    """One part per level; beyond `most` of them the rarer ones are one part together."""
    missing = _missing(column)
    levels, level_of_row, counts = np.unique(column[~missing].astype(str), return_inverse=True, return_counts=True)
    frequent = np.arange(len(levels)) if most is None else np.sort(np.argsort(-counts, kind="stable")[:most])
    names = [*levels[frequent].tolist(), OTHERS, MISSING]
    number = np.full(len(levels), len(frequent))
    number[frequent] = np.arange(len(frequent))
    part_of_row = np.full(len(column), len(frequent) + 1)
    part_of_row[~missing] = number[level_of_row]
    return names, part_of_row


def _missing(column: Values) -> Mask:
    match column.dtype.kind:
        case "O":
            return np.fromiter((value is None or value != value for value in column), dtype=bool, count=len(column))
        case "f":
            return np.isnan(column)
        case "M":
            return np.isnat(column)
    return np.zeros(len(column), dtype=bool)


def _range(low: Any, high: Any) -> str:
    return _told(low) if low == high else f"{_told(low)} to {_told(high)}"


def _told(value: Any) -> str:
    """A value as people read it: dates without the time where it is midnight, numbers to a few digits."""
    if isinstance(value, np.datetime64):
        day = value.astype("datetime64[D]")
        return str(day if day == value else value.astype("datetime64[s]")).replace("T", " ")
    if isinstance(value, np.integer):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.6g}"
