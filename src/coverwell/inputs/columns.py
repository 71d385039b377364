"""How the columns of a data frame become numbers: categories, booleans, dates and missing values.

Each kind of column has a fixed list of possible features, and those that vary over the training rows are kept: a flag
for missing values if some were missing, the hour of a date if the hours differ, nothing of a constant column. Only X is
read, never y, but all of its rows, also those that calibrate the intervals.
"""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.errors import ColumnWarning, ConstantDataWarning
from coverwell.inputs.frames import Values, as_times, columns_of, is_frame, is_named, listed, read
from coverwell.options import stored

Array = NDArray[np.float64]

MOST_LEVELS = 20  # with a feature of their own; rarer ones share one
FEWEST_ROWS = 2  # of a level with a feature of its own: one row teaches a network nothing about others
NEARLY_ALL = 0.95  # of the values differ in a column that looks like an identifier
FEWEST_NUMBERS = 20  # rows from which whole numbers may look like an identifier
DAY = 86_400e6  # microseconds

# What is put behind the name of a column to name its features. A level is "=level", so no level is taken for these.
ITSELF, MISSING, OTHER = "", " (missing)", " (other)"
KINDS = {"numbers", "booleans", "text", "times"}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OF_TIMES = tuple(f" ({part})" for part in ("year", "month sin", "month cos", "hour sin", "hour cos", *WEEKDAYS))
CONSTANT, EMPTY, IDENTIFIER = "one value only", "no value in any row", "text that differs in nearly every row"
DROPPED = {CONSTANT: ConstantDataWarning, EMPTY: ColumnWarning, IDENTIFIER: ColumnWarning}
# Text that was probably meant as something else, and how that is written.
MISTAKABLE = {
    "numbers with a decimal comma; write 6.8 instead of 6,8": re.compile(r"[+-]?\d+,\d+"),
    "dates; write 2025-03-20 instead of 20/03/2025 or 20.03.2025": re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d\d)?\d\d"),
}


@stored
@dataclass(frozen=True)
class Column:
    """How one column becomes features.

    Its values first become codes, in which NaN is a missing value: numbers and booleans are their own codes, text has
    the place of its level, -1 for one that is not known, and times are microseconds since 1970 by the local clock.

    The known levels of text are the most frequent ones, 20 at most, that occur at least twice. A level that was not
    seen in training is read as the rare ones are; if there were none, all its features are 0, as in no training row.
    """

    name: str
    kind: str  # "numbers", "booleans", "text" or "times"
    median: float = 0.0  # the code that stands for a missing value, the lower of two; text has a feature instead
    levels: tuple[str, ...] = ()  # of text
    zone: str | None = None  # of times
    kept: tuple[str, ...] = ()  # those of the features that vary over the training rows
    n_missing: int = 0
    like_identifier: bool = False

    def read(self, values: Values) -> Values:
        """Values of this column's kind, as far as they can be read so: dates written as text, 0 and 1 for booleans."""
        if self.kind == "times":
            return as_times(values) or values
        if self.kind == "booleans" and values.kind == "numbers" and np.isin(values.present, (0, 1)).all():
            return replace(values, kind="booleans")
        return values

    def codes(self, values: Values) -> Array:
        codes = values.array
        if self.kind == "text":
            code_of = {level: code for code, level in enumerate(self.levels)}
            codes = np.fromiter((code_of.get(level, -1) for level in codes), np.float64, len(codes))
        elif self.kind == "times":
            codes = codes.astype("datetime64[us]").astype(np.int64)
        return np.where(values.missing, np.nan, codes)

    @property
    def parts(self) -> tuple[str, ...]:
        """What stands behind the column's name in those of all its possible features."""
        if self.kind == "text":
            return (*(f"={level}" for level in self.levels), OTHER, MISSING)
        return (ITSELF, *(OF_TIMES if self.kind == "times" else ()), MISSING)

    def features(self, codes: Any) -> dict[str, Any]:
        """All features of codes, an array or, in an exported model, a tensor."""
        features, place = _features([self], codes[:, None])
        return {part: features[:, place[0, part]] for part in self.parts}

    def mismatch(self, values: Values) -> str | None:
        """What these values are, if they are not of this column's kind, with the first of them that is not."""
        wanted, got = (self.kind, self.zone), (values.kind, values.zone)
        if values.kind is None or got == wanted:
            return None
        must, has = (
            f"{kind} in the time zone {zone}" if zone else f"{kind} without a time zone" if kind == "times" else kind
            for kind, zone in (wanted, got)
        )
        return f"{self.name!r} must hold {must}, got {has} such as {values.shown(values.first_other(*wanted))}"

    def unseen(self, values: Values) -> list[str]:
        """What these values have that the training rows never had, as sentences."""
        n_rows, sentences = len(values.missing), []
        filled = "no known level" if self.kind == "text" else self._filled
        if MISSING not in self.kept and (n_missing := int(values.missing.sum())):
            sentences.append(f"is missing in {n_missing} of {n_rows} rows, never in training; read as {filled}")
        if self.kind == "text" and OTHER not in self.kept and (other := self.codes(values) < 0).any():
            where = f"in {int(other.sum())} of {n_rows} rows ({listed(sorted(set(values.array[other])))})"
            sentences.append(f"has levels that were never seen in training {where}; read as {filled}")
        return [f"{self.name!r} {sentence}" for sentence in sentences]

    @property
    def _filled(self) -> str:
        """What stands for a missing value."""
        if self.kind == "booleans":
            return f"the more frequent {str(bool(self.median)).lower()}"
        if self.kind == "times":
            return f"the median {np.datetime64(int(self.median), 'us')}"
        return "a level of its own" if self.kind == "text" else f"the median {self.median:.6g}"

    def described(self, n_rows: int) -> str:
        """How the column is read, in one line."""
        zone = "" if self.zone is None else f" in {self.zone}"
        read_as = {"text": f"categories ({listed(self.levels)})", "times": f"dates and times{zone}"}
        missing = f"; {self.n_missing} of {n_rows} missing, read as {self._filled}" if self.n_missing else ""
        other = "; rarer and unseen levels as one" if OTHER in self.kept else ""
        identifier = "; looks like an identifier" if self.like_identifier else ""
        return f"{self.name}: {read_as.get(self.kind, self.kind)}{other}{missing}{identifier}"


def _features(columns: Sequence[Column], codes: Any) -> tuple[Any, dict[tuple[int, str], int]]:
    """All features (row, feature) of codes (row, column), and the place of each by column and part.

    All columns at once: an exported model is as small for a hundred of them as for one.
    """
    library = library_of(codes)
    text, times = ([n for n, column in enumerate(columns) if column.kind == kind] for kind in ("text", "times"))
    gaps = library.isnan(codes)
    filled = library.where(gaps, library.asarray(np.array([column.median for column in columns])), codes)
    units = library.asarray(np.array([DAY if column.kind == "times" else 1.0 for column in columns]))
    blocks, missing = [filled / units], _flags(gaps)
    names = [(n, ITSELF) for n in range(len(columns))]
    if times:
        year, weekday, in_year, in_day = calendar_of(_taken(filled, times), DAY)
        days = _flags(weekday[..., None] == library.arange(7)).reshape(codes.shape[0], 7 * len(times))
        blocks += [year, *_wave(in_year), *_wave(in_day), days]  # waves, so that an end meets the next beginning
        names += [(n, part) for part in OF_TIMES[:5] for n in times]
        names += [(n, part) for n in times for part in OF_TIMES[5:]]
    if text:
        owner = np.repeat(text, [len(columns[n].levels) for n in text])
        level = np.concatenate([np.arange(len(columns[n].levels)) for n in text])
        known = _flags(_taken(codes, owner) == library.asarray(level))
        n_known = known @ library.asarray((owner[:, None] == text).astype(np.float64))  # (row, column of text)
        blocks += [known, 1 - n_known - _taken(missing, text)]
        names += [(n, f"={level}") for n in text for level in columns[n].levels] + [(n, OTHER) for n in text]
    names += [(n, MISSING) for n in range(len(columns))]
    return library.concatenate([*blocks, missing], 1), {name: place for place, name in enumerate(names)}


def _taken(values: Any, places: Any) -> Any:
    """Some columns of a matrix."""
    if isinstance(values, torch.Tensor):
        return values.index_select(1, torch.as_tensor(places))
    return np.take(values, places, axis=1)


def library_of(values: Any) -> Any:
    """The module, numpy or torch, whose functions take these values."""
    return torch if isinstance(values, torch.Tensor) else np


def _flags(mask: Any) -> Any:
    return mask.double() if isinstance(mask, torch.Tensor) else mask.astype(np.float64)


def calendar_of(moments: Any, day_length: float) -> tuple[Any, Any, Any, Any]:
    """Year, weekday from Monday on, and positions in the year and the day, 0 to 1, of times since 1970."""
    floor = library_of(moments).floor

    def new_year(year: Any) -> Any:  # days from 1970: 365 a year, and a leap day in every 4 but 100 but 400 years
        past = year - 1
        return floor(365.25 * past) - floor(past / 100) + floor(past / 400) - 719_162

    day = floor(moments / day_length)
    year = floor(day / 365.2425) + 1970  # or the one before or after
    year = year - 1 + (day >= new_year(year)) + (day >= new_year(year + 1))
    begin, end = day_length * new_year(year), day_length * new_year(year + 1)
    weekday = day + 3 - 7 * floor((day + 3) / 7)  # 1 January 1970 was a Thursday
    return year, weekday, (moments - begin) / (end - begin), (moments - day_length * day) / day_length


def _wave(phase: Any) -> tuple[Any, Any]:
    """Sine and cosine of a position in a cycle, 0 to 1; rounded, since the last digits of equal ones would differ."""
    turn = 2 * np.pi * phase
    if isinstance(turn, torch.Tensor):  # onnxruntime 1.17 has no cosine in float64
        return torch.sin(turn), torch.sin(turn + np.pi / 2)
    return np.sin(turn).round(12) + 0.0, np.cos(turn).round(12) + 0.0


@stored
@dataclass(frozen=True)
class Columns:
    """How the columns of a data frame become numbers, learned from training rows."""

    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...] = ()  # names of those that are left out, and why
    n_rows: int = 0  # that they were learned from
    plain: bool = False  # numbers and booleans alone, without gaps: one feature each, as in an array under names

    def __post_init__(self) -> None:
        """Raise for what no training can have left; model files come from anywhere."""
        names = (*(column.name for column in self.columns), *(name for name, _ in self.dropped))
        gaps = np.full((1, len(self.columns)), np.nan)
        known = bool(self.columns) and all(why in DROPPED for _, why in self.dropped)
        known = known and bool(np.isfinite(self.features(gaps)).all())
        for column in self.columns:
            in_order = tuple(part for part in column.parts if part in column.kept)
            zoned = column.zone is None or (column.kind == "times" and isinstance(column.zone, str))
            counted = isinstance(column.median, float) and 0 <= column.n_missing <= self.n_rows
            known &= column.kind in KINDS and column.kept == in_order and zoned and counted
        once = len(set(names)) == len(names) and (not self.plain or self.feature_names == names)
        if not (known and once):
            raise ValueError(f"columns must be of known kinds and named once, with finite medians, got {self}")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: the column's, and what the feature is unless it is the value itself."""
        return tuple(column.name + part for column in self.columns for part in column.kept)

    @property
    def kinds(self) -> dict[str, str]:
        """What each column that is used holds: "numbers", "booleans", "text" or "times"."""
        return {column.name: column.kind for column in self.columns}

    def transform(self, frame: Any) -> Array:
        """The features of each row, `(row, feature)`: all finite, always the same number of features.

        Columns are found by name, and other columns are ignored. Warns of values that training never had.
        """
        given = columns_of(frame)
        if absent := [column.name for column in self.columns if column.name not in given]:
            lacks = f"{listed(absent)} {'is' if len(absent) == 1 else 'are'} missing, got {listed(list(given))}"
            raise ValueError(f"the table must have all columns of the training, but {lacks}; add or rename columns")
        values = [(column, column.read(read(given[column.name]))) for column in self.columns]
        if others := list(filter(None, (column.mismatch(got) for column, got in values))):
            found = "; ".join(others[:5])
            raise ValueError(f"columns must hold what they held in training, but {found}; convert them")
        if unseen := [sentence for column, got in values for sentence in column.unseen(got)]:
            message = f"{'; '.join(unseen)}; no interval is to be trusted in these rows"
            warnings.warn(message, ColumnWarning, stacklevel=6)  # the line that asks an estimator for a prediction
        features: Array = self.features(np.column_stack([column.codes(got) for column, got in values]))
        return features

    def features(self, codes: Any) -> Any:
        """The features (row, feature) of codes (row, column), an array or a tensor."""
        library = library_of(codes)
        if self.plain:
            medians = [column.median for column in self.columns]
            return library.where(library.isnan(codes), library.asarray(np.array(medians)), codes)
        features, place = _features(self.columns, codes)
        return _taken(features, [place[n, part] for n, column in enumerate(self.columns) for part in column.kept])

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
    if plain and not is_named(X):
        return None
    n_rows = max((len(column.missing) for column in values.values()), default=0)
    if not n_rows:
        raise ValueError(f"a table must have rows and columns, got 0 rows and {len(values)} columns")
    found = {name: _column(name, as_times(column) or column, plain=plain) for name, column in values.items()}
    columns = tuple(column for column in found.values() if isinstance(column, Column))
    dropped = tuple((name, reason) for name, reason in found.items() if isinstance(reason, str))
    if not columns:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in dropped[:5])
        raise ValueError(f"no column tells rows apart ({reasons}); give columns of numbers, categories or dates")
    learned = Columns(columns, dropped, n_rows, plain)
    _warn_of_training_columns(learned, values)
    codes = [column.codes(column.read(values[column.name])) for column in columns]
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
    column = Column(name, values.kind, zone=values.zone)
    if is_text:
        counts = sorted(Counter(present.tolist()).items(), key=lambda item: (-item[1], item[0]))
        fewest = FEWEST_ROWS if len(counts) > 1 else 1
        column = replace(column, levels=tuple(level for level, count in counts[:MOST_LEVELS] if count >= fewest))
    else:
        middle = (len(present) - 1) // 2
        column = replace(column, median=float(np.partition(column.codes(values)[~values.missing], middle)[middle]))
    features = column.features(column.codes(values)).items()
    kept = (ITSELF,) if plain else tuple(part for part, values_of in features if (values_of != values_of[0]).any())
    counts_rows = nearly_all_differ and (rises_or_falls(present) or bool(np.ptp(present) < 2 * len(present)))
    n_missing = int(values.missing.sum())
    return replace(column, kept=kept, n_missing=n_missing, like_identifier=counts_rows) if kept else CONSTANT


def rises_or_falls(values: NDArray[Any]) -> bool:
    return len(set(np.sign(np.diff(values))) - {0}) < 2


def _warn_of_training_columns(learned: Columns, values: dict[str, Values]) -> None:
    for reason, category in DROPPED.items():
        if names := [name for name, why in learned.dropped if why == reason]:
            way_out = "; convert what holds numbers, or dates other than 2024-01-31" if reason == IDENTIFIER else ""
            warnings.warn(f"left out of X: {listed(names)} ({reason}){way_out}", category, stacklevel=3)
    if names := [column.name for column in learned.columns if column.like_identifier]:
        way_out = "it is used as numbers: leave it out of X if y does not depend on it"
        message = f"{listed(names)} numbers the rows, as an identifier does; {way_out}"
        warnings.warn(message, ColumnWarning, stacklevel=3)
    texts = {name: set(column.present.tolist()) for name, column in values.items() if column.kind == "text"}
    for meant, pattern in MISTAKABLE.items():
        if names := [name for name, levels in texts.items() if all(map(pattern.fullmatch, levels))]:
            warnings.warn(f"{listed(names)} is read as text, but looks like {meant}", ColumnWarning, stacklevel=3)
