"""Coverage in slices of the rows: by group, by quantile of numbers, by level of categories; the worst are named.

Intervals promise coverage on average; slices look for rows that are covered less. Some of many slices fall short by
chance alone, so each comes with its binomial uncertainty, and all of them with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from coverwell.options import check_number, check_share

__all__ = ["Slice", "Slices", "slices_of"]

Column = NDArray[Any]
Mask = NDArray[np.bool_]
Parts = tuple[list[str], NDArray[np.intp]]  # the names of a column's slices, and the place of each row's slice

CONFIDENCE = 0.95
BY_CHANCE = 1 - CONFIDENCE  # a shortfall with less probability than this, over all slices together, is named
MOST_LEVELS = 10  # of a categorical feature: the most frequent; the rest are one slice
MISSING, OTHERS = "missing", "others"


@dataclass(frozen=True)
class Slice:
    """The rows with some values in a column, and how many of them lie inside their intervals."""

    column: str
    values: str  # a level ("London"), a range ("2.5 to 4"), "missing" or "others"
    n_rows: int
    n_inside: int

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

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    def of(self, column: str) -> tuple[Slice, ...]:
        """The slices by one column."""
        return tuple(part for part in self.slices if part.column == column)

    def worst(self, n: int = 5) -> tuple[Slice, ...]:
        """First the slices that fall short by more than chance, then the others.

        Each kind comes by the upper end of the confidence interval, so that a small slice must be missed often to
        come before a large one.
        """
        return tuple(self._ranked[0][:n])

    @property
    def short(self) -> list[Slice]:
        """Those that fall short by more than chance, the worst first."""
        return self._ranked[0][: self._ranked[1]]

    @cached_property
    def by_column(self) -> dict[str, list[Slice]]:
        """The slices of each column, the worst first; the column with the worst slice first."""
        columns: dict[str, list[Slice]] = {}
        for part in self._ranked[0]:
            columns.setdefault(part.column, []).append(part)
        return columns

    @cached_property
    def _ranked(self) -> tuple[list[Slice], int]:
        """All slices, the worst first, and how many fall short; computed at once, as there may be very many."""
        n_rows, n_inside = (np.array([getattr(p, name) for p in self], dtype=int) for name in ("n_rows", "n_inside"))
        by_chance = len(self) * binom.cdf(n_inside, n_rows, self.asked) >= BY_CHANCE
        order = np.lexsort([_upper_end(n_rows, n_inside), by_chance])  # the last key counts first; ties keep order
        return [self.slices[place] for place in order], int((~by_chance).sum())

    def chance(self, part: Slice) -> float:
        """A bound on the probability that chance makes any slice this short, however they overlap (Bonferroni)."""
        return min(1.0, len(self) * part.chance(self.asked))


def slices_of(
    inside: ArrayLike,
    columns: Mapping[str, ArrayLike],
    *,
    asked: float,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
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
    return counted(rows, cut(columns, groups or {}, len(rows), quantiles), asked)


def cut(columns: Mapping[str, Any], groups: Mapping[str, Any], n_rows: int, quantiles: int) -> dict[str, Parts]:
    check_number("quantiles", quantiles, least=2, whole=True)
    given = {name: np.asarray(values) for name, values in [*groups.items(), *columns.items()]}
    check_columns("column", given, n_rows)
    parts = {}
    for name, column in given.items():
        if name not in groups and column.dtype.kind in "iufM":
            parts[name] = _by_quantile(column, quantiles)
        else:
            parts[name] = _by_level(column, most=None if name in groups else MOST_LEVELS)
    return parts


def counted(inside: Mask, parts: Mapping[str, Parts], asked: float) -> Slices:
    found: list[Slice] = []
    for column, (names, part_of_row) in parts.items():
        n_rows, n_inside = (np.bincount(rows, minlength=len(names)) for rows in (part_of_row, part_of_row[inside]))
        found += [Slice(column, one, int(n), int(k)) for one, n, k in zip(names, n_rows, n_inside, strict=True) if n]
    return Slices(float(asked), tuple(found))


def check_columns(what: str, columns: Mapping[str, Column], n_rows: int) -> None:
    for name, column in columns.items():
        if column.shape != (n_rows,):
            raise ValueError(f"{what} {name!r} must have one value for each of {n_rows} rows, got shape {column.shape}")


def _by_quantile(column: Column, n_parts: int) -> Parts:
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
