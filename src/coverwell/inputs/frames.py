"""What a data frame holds, pandas and polars alike: each column as an array, its kind, and where it has no value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ISO_TIME",
    "Values",
    "as_times",
    "check_numbers",
    "columns_of",
    "first_odd",
    "is_frame",
    "is_named",
    "is_plain",
    "listed",
    "read",
]

Mask = NDArray[np.bool_]

LONGEST_SHOWN = 60  # letters of a text in a message

# A date, or a date and a time, as ISO 8601 and most programs write them; other text is not taken for a time.
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True)
class Values:
    """One column. Where a value is missing, the array holds anything."""

    kind: str | None  # "numbers", "booleans", "text" or "times"; None where all are missing
    array: NDArray[Any]  # float64, float64 of 0 and 1, str objects, or datetime64[us] as local clocks show it
    missing: Mask
    zone: str | None = None  # of times
    whole: bool = False  # numbers that are stored as whole ones

    @property
    def present(self) -> NDArray[Any]:
        return self.array[~self.missing]

    def told(self, row: int) -> str:
        """The value of a row, and which row that is, for messages."""
        value = self.array[row]
        if self.kind == "text":
            shown = repr(value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}...")
        else:
            shown = f"{value:.6g}" if self.kind == "numbers" else str(bool(value) if self.kind == "booleans" else value)
        return f"{shown} in row {row} (counted from 0)"


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas, polars or another library that narwhals knows; a lazy one is refused."""
    frame = nw.from_native(_with_text_names(X), pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"a table must be a data frame, got {type(X).__name__}; use .collect()")
    return isinstance(frame, nw.DataFrame)


def columns_of(frame: Any) -> dict[str, nw.Series[Any]]:
    """The columns of a data frame by name."""
    if not is_frame(frame):
        raise TypeError(
            "a table must be a data frame of pandas or polars, with the columns that were fitted, got "
            f"{type(frame).__name__}"
        )
    return {series.name: series for series in nw.from_native(_with_text_names(frame), eager_only=True).iter_columns()}


def is_named(X: Any) -> bool:
    """Whether X is a data frame whose columns have texts as names, and types that `read` knows.

    Pandas may only count the columns; and it has sparse and complex ones.
    """
    if not is_frame(X) or (hasattr(X, "iloc") and not all(isinstance(name, str) for name in X.columns)):
        return False
    return all(series.dtype != nw.Unknown for series in columns_of(X).values())


def is_plain(frame: Any) -> bool:
    """Whether a data frame holds numbers and booleans alone, with no value missing: an array under names."""
    return all(_is_plain_column(series) for series in columns_of(frame).values())


def _is_plain_column(series: nw.Series[Any]) -> bool:
    if series.dtype == nw.Unknown:  # such as pandas' sparse columns
        return series.null_count() == 0 and series.to_numpy().dtype.kind in "biufc"
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean) or series.null_count() > 0:
        return False
    return not (series.dtype.is_float() and bool(series.is_nan().any()))


def check_numbers(frame: Any) -> None:
    """Raise unless a data frame holds numbers and booleans alone, some of which may be missing."""
    for name, series in columns_of(frame).items():
        if series.dtype.is_numeric() or series.dtype == nw.Boolean or _is_plain_column(series):
            continue
        values = read(series)
        if values.kind is None or (series.dtype == nw.Object and values.kind in ("numbers", "booleans")):
            continue
        raise ValueError(
            f"X must hold numbers, as in training, but column {name!r} holds {series.to_native().dtype}, such as "
            f"{values.told(int(values.missing.argmin()))}; convert it"
        )


def _with_text_names(X: Any) -> Any:
    """A pandas frame with names as text, each once; anything else as it is."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return X
    names = [str(name) for name in X.columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"each column needs a name of its own, got {listed(twice)} more than once; rename them")
    return X if names == list(X.columns) else X.set_axis(names, axis=1)


def read(series: nw.Series[Any]) -> Values:
    """A column as an array of its kind."""
    missing = np.array(series.is_null().to_numpy(), dtype=bool)  # a copy: some libraries lend theirs read-only
    dtype = series.dtype
    if missing.all():
        return _nothing(missing)
    if dtype.is_numeric():
        return _numbers(_filled(series, missing, 0).cast(nw.Float64).to_numpy(), missing, whole=dtype.is_integer())
    if dtype == nw.Boolean:
        return Values("booleans", _filled(series, missing, False).to_numpy().astype(np.float64), missing)
    if dtype == nw.Duration:
        return _numbers(series.to_numpy() / np.timedelta64(1, "s"), missing)
    if dtype in (nw.Date, nw.Datetime):
        return _times(series, missing)
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return Values("text", _as_text(series.to_list()), missing)
    if dtype == nw.Object:
        return _objects(series, missing)
    raise TypeError(
        f"column {series.name!r} must hold numbers, booleans, text or times, got {series.to_native().dtype}; convert "
        "it, or leave it out"
    )


def _filled(series: nw.Series[Any], missing: Mask, value: int) -> nw.Series[Any]:
    return series.fill_null(value) if missing.any() else series


def _nothing(missing: Mask) -> Values:
    return Values(None, np.zeros(len(missing)), missing)


def _numbers(array: NDArray[Any], missing: Mask, *, whole: bool = False) -> Values:
    missing = missing | np.isnan(array)  # polars tells NaN from a missing value; a network can use neither
    return (
        _nothing(missing) if missing.all() else Values("numbers", np.asarray(array, np.float64), missing, whole=whole)
    )


def _times(series: nw.Series[Any], missing: Mask) -> Values:
    zone = getattr(series.dtype, "time_zone", None)
    local = series if zone is None else series.dt.replace_time_zone(None)  # keeps what the clock shows
    return Values("times", local.to_numpy().astype("datetime64[us]"), missing, zone=zone)


def _as_text(items: Sequence[Any]) -> NDArray[np.object_]:
    text = np.empty(len(items), dtype=object)
    text[:] = [item if isinstance(item, str) else str(item) for item in items]
    return text


def _objects(series: nw.Series[Any], missing: Mask) -> Values:
    """A column of Python objects, by what they are: pandas has booleans with gaps, dates and decimals so."""
    items = series.to_list()
    present = [item for item, is_missing in zip(items, missing, strict=True) if not is_missing]
    types = set(map(type, present))
    if all(issubclass(t, bool | np.bool_) for t in types):
        return Values("booleans", np.where(missing, False, np.array(items, dtype=object)).astype(np.float64), missing)
    if all(issubclass(t, Real | Decimal) and not issubclass(t, bool) for t in types):
        return _numbers(np.where(missing, 0, np.array(items, dtype=object)).astype(np.float64), missing)
    if all(issubclass(t, date) for t in types):
        return _times_of(present, missing, name=series.name)
    if all(issubclass(t, str | bool | np.bool_ | Real | Decimal | date) for t in types):
        return Values("text", _as_text(items), missing)
    odd = next(t for t in types if not issubclass(t, str | bool | np.bool_ | Real | Decimal | date))
    raise TypeError(
        f"column {series.name!r} must hold numbers, booleans, text or times, got objects of the type {odd.__name__}; "
        "convert it, or leave it out"
    )


def as_times(values: Values) -> Values | None:
    """Text read as times, if all of it is ISO 8601; times as they are; None for anything else."""
    if values.kind != "text":
        return values if values.kind in ("times", None) else None
    present = values.present
    if not all(ISO_TIME.fullmatch(item) for item in present):
        return None
    try:
        return _times_of([datetime.fromisoformat(item) for item in present], values.missing)
    except ValueError:  # no such day, or some with a time zone and some without
        return None


def first_odd(values: Values, kind: str, zone: str | None = None) -> int:
    """The first row whose value cannot be read as this kind; where each alone could be, the first that has a value."""
    (rows,) = np.nonzero(~values.missing)
    could_be = COULD_BE.get(kind)
    odd = () if could_be is None else (row for row in rows if not could_be(values.array[row], zone))
    return int(next(iter(odd), rows[0]))


def _could_be_time(item: Any, zone: str | None) -> bool:
    if not isinstance(item, str) or not ISO_TIME.fullmatch(item):
        return False
    try:
        return (datetime.fromisoformat(item).tzinfo is None) == (zone is None)
    except ValueError:  # no such day
        return False


def _could_be_number(item: Any, zone: str | None) -> bool:
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True


def _could_be_boolean(item: Any, zone: str | None) -> bool:
    return item.lower() in ("true", "false") if isinstance(item, str) else bool(item in (0, 1))


COULD_BE: dict[str, Callable[[Any, str | None], bool]] = {
    "times": _could_be_time,
    "numbers": _could_be_number,
    "booleans": _could_be_boolean,
}


def _times_of(present: Sequence[date], missing: Mask, name: str | None = None) -> Values:
    """Times from Python's dates; those with an offset are brought to UTC, since it may differ from row to row."""
    aware = {getattr(item, "tzinfo", None) is not None for item in present}
    if len(aware) > 1:
        where = "" if name is None else f" of column {name!r}"
        raise ValueError(f"times{where} must all have a time zone or all have none; convert them")
    zone = "UTC" if True in aware else None
    if zone is not None:
        present = [item.astimezone(UTC).replace(tzinfo=None) for item in present if isinstance(item, datetime)]
    array = np.full(len(missing), np.datetime64("NaT", "us"))
    array[~missing] = np.array(present, dtype="datetime64[us]")
    return Values("times", array, missing, zone=zone)


def listed(names: Sequence[str]) -> str:
    """Up to five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
