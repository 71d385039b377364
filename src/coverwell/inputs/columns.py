"""How the columns of a data frame become numbers: categories, booleans, dates and missing values.

A column becomes one or more features. Each kind of column has a fixed list of possible features, and those that vary
over the training rows are kept: a flag for missing values if some were missing, the hour of a date if the hours differ,
nothing of a constant column. Only X is read, never y, but all of its rows, also those that calibrate the intervals.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.errors import ColumnWarning, ConstantDataWarning
from coverwell.inputs.frames import ISO_TIME, Values, as_times, columns_of, is_frame, is_named, listed, read
from coverwell.options import stored

Array = NDArray[np.float64]
Features = dict[str, Any]  # arrays, or tensors

MOST_LEVELS = 20  # with a feature of their own; rarer ones share one
FEWEST_ROWS = 2  # of a level with a feature of its own: one row teaches a network nothing about others
NEARLY_ALL = 0.95  # of the values differ in a column that looks like an identifier
FEWEST_NUMBERS = 20  # rows from which whole numbers may look like an identifier
DAY = 86_400e6  # microseconds

# What is put behind the name of a column to name its features. A level is "=level", so no level is taken for these.
ITSELF, MISSING, OTHER = "", " (missing)", " (other)"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
CONSTANT, EMPTY, IDENTIFIER = "one value only", "no value in any row", "text that differs in nearly every row"
DROPPED = {CONSTANT: ConstantDataWarning, EMPTY: ColumnWarning, IDENTIFIER: ColumnWarning}
# Text that was probably meant as something else, and how that is written.
MISTAKABLE = {
    "numbers with a decimal comma; write 6.8 instead of 6,8": re.compile(r"[+-]?\d+,\d+"),
    "dates; write 2025-03-20 instead of 20/03/2025 or 20.03.2025": re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d\d)?\d\d"),
}


def _check(holds: Any, must: str, got: Any) -> None:
    """Raise for what no training can have left; model files come from anywhere."""
    if not holds:
        raise ValueError(f"{must}, got {got!r}")


# Kinds of columns: what each learned from its training values; `codes`, its values as numbers, NaN for missing ones;
# `features`, all that it makes of codes: an array, or a tensor in an exported model; and `described`, what the column
# is read as and what stands for a missing value.


@stored
@dataclass(frozen=True)
class Numbers:
    """Numbers as they are; a missing one becomes the median, the lower of two, with a flag beside it."""

    median: float
    name: ClassVar[str] = "numbers"
    zone: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check(isinstance(self.median, float) and math.isfinite(self.median), "the median must be finite", self.median)

    def codes(self, values: Values) -> Array:
        return np.where(values.missing, np.nan, values.array)

    def features(self, codes: Any) -> Features:
        library = library_of(codes)
        missing = library.isnan(codes)
        return {ITSELF: library.where(missing, self.median, codes), MISSING: _flags(missing)}

    def described(self) -> tuple[str, str]:
        return "numbers", f"the median {self.median:.6g}"


@stored
@dataclass(frozen=True)
class Booleans(Numbers):
    """0 and 1; their lower median is the more frequent of the two."""

    name: ClassVar[str] = "booleans"

    def described(self) -> tuple[str, str]:
        return "booleans", f"the more frequent {str(bool(self.median)).lower()}"


@stored
@dataclass(frozen=True)
class Categories:
    """One feature of 0 and 1 for each known level, one for all others together, one for missing values.

    The known levels are the most frequent ones, 20 at most, that occur at least twice. A level that was not seen in
    training is read as the rare ones are; if there were none, all its features are 0, as in no training row.
    """

    levels: tuple[str, ...]
    name: ClassVar[str] = "text"
    zone: ClassVar[None] = None

    def __post_init__(self) -> None:
        texts = {level for level in self.levels if isinstance(level, str)}
        _check(0 < len(texts) == len(self.levels), "levels must be texts, each once", self.levels)

    def codes(self, values: Values) -> Array:
        """The place of each level; -1 for one that is not known."""
        code_of = {level: code for code, level in enumerate(self.levels)}
        codes = np.fromiter((code_of.get(level, -1) for level in values.array), np.float64, len(values.array))
        return np.where(values.missing, np.nan, codes)

    def features(self, codes: Any) -> Features:
        known = {f"={level}": _flags(codes == code) for code, level in enumerate(self.levels)}
        missing = _flags(library_of(codes).isnan(codes))
        return {**known, OTHER: 1 - sum(known.values()) - missing, MISSING: missing}

    def described(self) -> tuple[str, str]:
        return f"categories ({listed(self.levels)})", "a level of its own"


@stored
@dataclass(frozen=True)
class Times:
    """Days since 1970, the year, and where in the year, the week and the day a time lies, by its own clock.

    The positions in the year and the day are a sine and a cosine, so that an end meets the next beginning. A missing
    time becomes the median, with a flag beside it.
    """

    median: str  # ISO 8601, by the local clock
    zone: str | None = None
    name: ClassVar[str] = "times"

    def __post_init__(self) -> None:
        is_local = ISO_TIME.fullmatch(self.median) and datetime.fromisoformat(self.median).tzinfo is None
        _check(is_local, "the median must be a time by the local clock", self.median)

    def codes(self, values: Values) -> Array:
        """Microseconds since 1970 by the local clock."""
        return np.where(values.missing, np.nan, _microseconds(values.array))

    def features(self, codes: Any) -> Features:
        library = library_of(codes)
        missing = library.isnan(codes)
        moments = library.where(missing, float(_microseconds(np.datetime64(self.median))), codes)
        day = library.floor(moments / DAY)
        year = library.floor(day / 365.2425) + 1970  # or the one before or after
        year = year + _flags(day >= _new_year(year + 1)) - _flags(day < _new_year(year))
        begin, end = DAY * _new_year(year), DAY * _new_year(year + 1)
        weekday = day + 3 - 7 * library.floor((day + 3) / 7)  # 1 January 1970 was a Thursday
        return {
            ITSELF: moments / DAY,
            " (year)": year,
            **_wave("month", (moments - begin) / (end - begin)),
            **_wave("hour", (moments - DAY * day) / DAY),
            **{f" ({name})": _flags(weekday == number) for number, name in enumerate(WEEKDAYS)},
            MISSING: _flags(missing),
        }

    def described(self) -> tuple[str, str]:
        return "dates and times" + ("" if self.zone is None else f" in {self.zone}"), f"the median {self.median}"


Kind = Numbers | Categories | Times


def kind_of(values: Values) -> Kind:
    """The kind of a column with these training values."""
    if values.kind == "text":
        counts = sorted(Counter(values.present.tolist()).items(), key=lambda item: (-item[1], item[0]))
        fewest = FEWEST_ROWS if len(counts) > 1 else 1
        return Categories(tuple(level for level, count in counts[:MOST_LEVELS] if count >= fewest))
    middle = (len(values.present) - 1) // 2
    median = np.partition(values.present, middle)[middle]  # the lower of two: a value that occurred
    if values.kind == "times":
        return Times(str(median), values.zone)
    return (Booleans if values.kind == "booleans" else Numbers)(float(median))


def library_of(values: Any) -> Any:
    """The module, numpy or torch, whose functions take these values."""
    return torch if isinstance(values, torch.Tensor) else np


def _flags(mask: Any) -> Any:
    return mask.double() if isinstance(mask, torch.Tensor) else mask.astype(np.float64)


def _microseconds(times: Any) -> Any:
    return times.astype("datetime64[us]").astype(np.int64)


def _new_year(year: Any) -> Any:
    """Days from 1970 to the first day of a year: 365 a year, and a leap day in every 4 but 100 but 400 years."""
    past, floor = year - 1, library_of(year).floor
    return 365 * (year - 1970) + floor(past / 4) - floor(past / 100) + floor(past / 400) - 477


def _wave(name: str, phase: Any) -> Features:
    """Sine and cosine of a position in a cycle, 0 to 1; rounded, since the last digits of equal ones would differ."""
    turn = 2 * np.pi * phase
    if isinstance(turn, torch.Tensor):  # onnxruntime 1.17 has no cosine in float64
        return {f" ({name} sin)": torch.sin(turn), f" ({name} cos)": torch.sin(turn + np.pi / 2)}
    return {f" ({name} sin)": np.sin(turn).round(12) + 0.0, f" ({name} cos)": np.cos(turn).round(12) + 0.0}


@stored
@dataclass(frozen=True)
class Column:
    """How one column becomes features."""

    name: str
    kind: Kind
    kept: tuple[str, ...]  # those of the kind's features that vary over the training rows
    n_missing: int = 0
    like_identifier: bool = False

    def __post_init__(self) -> None:
        in_order = tuple(part for part in self.kind.features(np.zeros(0)) if part in self.kept)
        _check(self.kept == in_order != (), f"column {self.name!r} must give features in their order", self.kept)

    def read(self, values: Values) -> Values:
        """Values of this column's kind, as far as they can be read so: dates written as text, 0 and 1 for booleans."""
        if isinstance(self.kind, Times):
            return as_times(values) or values
        if isinstance(self.kind, Booleans) and values.kind == "numbers" and np.isin(values.present, (0, 1)).all():
            return replace(values, kind="booleans")
        return values

    def mismatch(self, values: Values) -> str | None:
        """What these values are, if they are not of this column's kind, with the first of them that is not."""
        wanted, got = (self.kind.name, self.kind.zone), (values.kind, values.zone)
        if values.kind is None or got == wanted:
            return None
        must, has = (
            f"{kind} in the time zone {zone}" if zone else f"{kind} without a time zone" if kind == "times" else kind
            for kind, zone in (wanted, got)
        )
        return f"{self.name!r} must hold {must}, got {has} such as {values.shown(values.first_other(*wanted))}"

    def unseen(self, values: Values) -> list[str]:
        """What these values have that the training rows never had, as sentences."""
        n_rows, is_text, sentences = len(values.missing), isinstance(self.kind, Categories), []
        filled = "no known level" if is_text else self.kind.described()[1]
        if MISSING not in self.kept and (n_missing := int(values.missing.sum())):
            sentences.append(f"is missing in {n_missing} of {n_rows} rows, never in training; read as {filled}")
        if is_text and OTHER not in self.kept and (other := self.kind.codes(values) < 0).any():
            where = f"in {int(other.sum())} of {n_rows} rows ({listed(sorted(set(values.array[other])))})"
            sentences.append(f"has levels that were never seen in training {where}; read as {filled}")
        return [f"{self.name!r} {sentence}" for sentence in sentences]

    def described(self, n_rows: int) -> str:
        """How the column is read, in one line."""
        read_as, filled = self.kind.described()
        missing = f"; {self.n_missing} of {n_rows} missing, read as {filled}" if self.n_missing else ""
        other = "; rarer and unseen levels as one" if OTHER in self.kept else ""
        identifier = "; looks like an identifier" if self.like_identifier else ""
        return f"{self.name}: {read_as}{other}{missing}{identifier}"


@stored
@dataclass(frozen=True)
class Columns:
    """How the columns of a data frame become numbers, learned from training rows.

    Examples
    --------
    >>> import polars as pl
    >>> from coverwell.inputs.columns import Columns
    >>> rows = pl.DataFrame({"area": [50.0, None, 80.0, 65.0], "heating": ["gas", "oil", "gas", "oil"]})
    >>> columns = Columns.of(rows)
    >>> columns.feature_names
    ('area', 'area (missing)', 'heating=gas', 'heating=oil')
    >>> columns.transform(rows)[1]
    array([65.,  1.,  0.,  1.])
    """

    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...] = ()  # names of those that are left out, and why
    n_rows: int = 0  # that they were learned from
    plain: bool = False  # numbers and booleans alone, without gaps: one feature each, as in an array under names

    def __post_init__(self) -> None:
        names = (*(column.name for column in self.columns), *(name for name, _ in self.dropped))
        _check(bool(self.columns) and len(set(names)) == len(names), "there must be columns, each once", names)
        known = all(reason in DROPPED for _, reason in self.dropped)
        _check(known, "a column must be left out for a known reason", self.dropped)
        one_each = not self.plain or self.feature_names == names
        _check(one_each, "every column must give one feature where all are numbers", self.feature_names)

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """How the columns of this data frame become numbers; warns of those that are left out."""
        return _learned({name: read(series) for name, series in columns_of(frame).items()}, plain=False)[0]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: the column's, and what the feature says about it unless it is the value itself."""
        return tuple(column.name + part for column in self.columns for part in column.kept)

    @property
    def kinds(self) -> dict[str, str]:
        """What each column that is used holds: "numbers", "booleans", "text" or "times"."""
        return {column.name: column.kind.name for column in self.columns}

    def transform(self, frame: Any) -> Array:
        """The features of each row, `(row, feature)`: all finite, always the same number of features.

        Columns are found by name, and other columns are ignored. Warns of values that training never had.
        """
        given = columns_of(frame)
        if absent := [column.name for column in self.columns if column.name not in given]:
            raise ValueError(
                f"the table must have all columns that were learned from, but {listed(absent)} "
                f"{'is' if len(absent) == 1 else 'are'} missing, got {listed(list(given))}; add or rename columns"
            )
        values = [(column, column.read(read(given[column.name]))) for column in self.columns]
        if others := list(filter(None, (column.mismatch(got) for column, got in values))):
            found = "; ".join(others[:5])
            raise ValueError(f"columns must hold what they held in training, but {found}; convert them")
        if unseen := [sentence for column, got in values for sentence in column.unseen(got)]:
            message = f"{'; '.join(unseen)}; no interval is to be trusted in these rows"
            warnings.warn(message, ColumnWarning, stacklevel=5)  # the line that asks an estimator for a prediction
        features: Array = self.features(np.column_stack([column.kind.codes(got) for column, got in values]))
        return features

    def features(self, codes: Any) -> Any:
        """The features (row, feature) of codes (row, column), an array or a tensor."""
        library = library_of(codes)
        if self.plain:
            medians = [column.kind.median for column in self.columns if isinstance(column.kind, Numbers)]
            return library.where(library.isnan(codes), library.asarray(np.array(medians)), codes)
        all_parts = [column.kind.features(codes[:, place]) for place, column in enumerate(self.columns)]
        kept = [parts[p] for column, parts in zip(self.columns, all_parts, strict=True) for p in column.kept]
        return library.stack(kept, 1)

    def report(self) -> tuple[str, ...]:
        """How each column is read, or why it is left out: one line each."""
        used = [column.described(self.n_rows) for column in self.columns]
        return (*used, *(f"{name}: left out, {reason}" for name, reason in self.dropped))


def columns_for(X: Any) -> tuple[Columns, Array] | None:
    """How a data frame is read, and its rows as numbers; None for arrays, and for numbers without names."""
    if not is_frame(X):
        return None
    values = {name: read(series) for name, series in columns_of(X).items()}
    plain = all(column.plain for column in values.values())
    return None if plain and not is_named(X) else _learned(values, plain=plain)


def _learned(values: dict[str, Values], *, plain: bool) -> tuple[Columns, Array]:
    """The columns, and the rows that they were learned from as numbers."""
    n_rows = max((len(column.missing) for column in values.values()), default=0)
    if not n_rows:
        raise ValueError(f"a table must have rows and columns, got {n_rows} rows and {len(values)} columns")
    found = {name: _column(name, as_times(column) or column, plain=plain) for name, column in values.items()}
    columns = tuple(column for column in found.values() if isinstance(column, Column))
    dropped = tuple((name, reason) for name, reason in found.items() if isinstance(reason, str))
    if not columns:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in dropped[:5])
        raise ValueError(f"no column tells rows apart ({reasons}); give columns of numbers, categories or dates")
    _warn_of_training_columns(columns, dropped, values)
    learned = Columns(columns, dropped, n_rows, plain)
    codes = [column.kind.codes(column.read(values[column.name])) for column in columns]
    return learned, learned.features(np.column_stack(codes))


def _column(name: str, values: Values, *, plain: bool) -> Column | str:
    """The column, or why it is left out."""
    if values.kind is None:
        return EMPTY
    present, is_text = values.present, values.kind == "text"
    may_identify = is_text or (values.whole and len(present) >= FEWEST_NUMBERS)
    nearly_all_differ = may_identify and len(set(present.tolist())) >= max(2, NEARLY_ALL * len(present))
    if is_text and nearly_all_differ:
        return IDENTIFIER
    kind, kept = kind_of(values), (ITSELF,)
    if not plain:
        kept = tuple(part for part, f in kind.features(kind.codes(values)).items() if (f != f[0]).any())
    if not kept:
        return CONSTANT
    counts_rows = nearly_all_differ and len(set(np.sign(np.diff(present))) - {0}) < 2
    return Column(name, kind, kept, int(values.missing.sum()), counts_rows)


def _warn_of_training_columns(
    columns: tuple[Column, ...], dropped: tuple[tuple[str, str], ...], values: dict[str, Values]
) -> None:
    for reason, category in DROPPED.items():
        if names := [name for name, why in dropped if why == reason]:
            way_out = "; convert what holds numbers, or dates other than 2024-01-31" if reason == IDENTIFIER else ""
            warnings.warn(f"left out of X: {listed(names)} ({reason}){way_out}", category, stacklevel=3)
    if names := [column.name for column in columns if column.like_identifier]:
        message = (
            "counts from row to row, as an identifier does; it is used as numbers: leave it out of X if it is none"
        )
        warnings.warn(f"{listed(names)} {message} of the things that y depends on", ColumnWarning, stacklevel=3)
    texts = {name: set(column.present.tolist()) for name, column in values.items() if column.kind == "text"}
    for meant, pattern in MISTAKABLE.items():
        if names := [name for name, levels in texts.items() if all(map(pattern.fullmatch, levels))]:
            warnings.warn(f"{listed(names)} is read as text, but looks like {meant}", ColumnWarning, stacklevel=3)
