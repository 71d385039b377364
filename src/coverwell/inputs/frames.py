"""Data frames of pandas, polars and others, column by column: an array, its kind, and where values are missing."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

LONGEST_SHOWN = 60  # letters of a text in a message
# A date, or a date and a time, as ISO 8601 and most programs write them; other text is not taken for a time.
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True)
class Values:
    """One column. Where a value is missing, the array may hold anything."""

    kind: str | None  # "numbers", "booleans", "text" or "times"; None where all are missing
    array: NDArray[Any]  # float64, float64 of 0 and 1, str objects, or datetime64[us] as local clocks show it
    missing: Mask
    zone: str | None = None  # of times
    whole: bool = False  # stored as whole numbers
    plain: bool = False  # stored as numbers or booleans, with none missing

    @property
    def present(self) -> NDArray[Any]:
        return self.array[~self.missing]

    def shown(self, row: int) -> str:
        """The value of a row, and which row that is, for messages."""
        value = self.array[row]
        if self.kind == "text":
            value = repr(value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}...")
        elif self.kind in ("numbers", "booleans"):
            value = f"{value:.6g}" if self.kind == "numbers" else bool(value)
        return f"{value} in row {row} (counted from 0)"

    def first_other(self, kind: str, zone: str | None) -> int:
        """The first row whose value cannot be read as this kind; if each alone could be, the first with a value."""

        def could_be(item: Any) -> bool:
            try:
                if kind == "times":
                    is_time = ISO_TIME.fullmatch(item) is not None
                    return is_time and (datetime.fromisoformat(item).tzinfo is None) == (zone is None)
                if kind == "booleans":
                    return item.lower() in ("true", "false") if isinstance(item, str) else bool(item in (0, 1))
                return kind != "numbers" or float(item) is not None
            except (TypeError, ValueError):  # no number, no such day, or no text at all
                return False

        (rows,) = np.nonzero(~self.missing)
        return int(next((row for row in rows if not could_be(self.array[row])), rows[0]))


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas, polars or another library that narwhals knows; a lazy one is refused."""
    frame = nw.from_native(with_text_names(X), pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"a table must be a data frame, got {type(X).__name__}; use .collect()")
    return isinstance(frame, nw.DataFrame)


def is_named(X: Any) -> bool:
    """Whether X is a data frame whose columns have names; pandas may only count them."""
    return is_frame(X) and all(isinstance(name, str) for name in X.columns)


def columns_of(frame: Any) -> dict[str, nw.Series[Any]]:
    """The columns of a data frame by name."""
    if not is_frame(frame):
        must = "a table must be a data frame of pandas or polars, with the columns that were fitted"
        raise TypeError(f"{must}, got {type(frame).__name__}")
    return {series.name: series for series in nw.from_native(with_text_names(frame), eager_only=True).iter_columns()}


def with_text_names(X: Any, what: str = "a table") -> Any:
    """A pandas frame with names as text, each once; anything else as it is."""
    if not nw.dependencies.is_pandas_like_dataframe(X):
        return X
    names = [str(name) for name in X.columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"each column of {what} needs its own name, got {listed(twice)} more than once; rename them")
    return X if names == list(X.columns) else X.set_axis(names, axis=1)


def read(series: nw.Series[Any]) -> Values:
    """A column as an array of its kind."""
    # A copy: some libraries lend theirs read-only.
    missing, dtype = np.array(series.is_null().to_numpy(), dtype=bool), series.dtype
    if missing.all():
        return Values(None, np.zeros(len(missing)), missing)
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = (series.fill_null(0 if dtype.is_numeric() else False) if missing.any() else series).cast(nw.Float64)
        kind = "numbers" if dtype.is_numeric() else "booleans"
        return _numbers(series, numbers.to_numpy(), missing, kind, plain=True)
    if dtype == nw.Duration:
        return _numbers(series, series.to_numpy() / np.timedelta64(1, "s"), missing)
    if dtype in (nw.Date, nw.Datetime):
        zone = getattr(dtype, "time_zone", None)
        local = series if zone is None else series.dt.replace_time_zone(None)  # keeps what the clock shows
        return Values("times", local.to_numpy().astype("datetime64[us]"), missing, zone=zone)
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return Values("text", _as_text(series), missing)
    if dtype == nw.Object:
        return _objects(series, missing)
    if dtype == nw.Unknown and (array := series.to_numpy()).dtype.kind in "biuf":  # pandas' sparse columns
        return _numbers(series, array, missing, plain=True)
    raise _no_column(series, str(series.to_native().dtype))


def _numbers(
    series: nw.Series[Any], array: NDArray[Any], missing: Mask, kind: str = "numbers", *, plain: bool = False
) -> Values:
    missing = missing | np.isnan(array)  # polars distinguishes NaN from a missing value; a network can use neither
    if (infinite := np.isinf(array) & ~missing).any():
        got = f"infinity in row {infinite.argmax()} (counted from 0); leave those rows out, or have no value there"
        raise ValueError(f"column {series.name!r} must hold finite numbers, got {got}")
    known, numbers = None if missing.all() else kind, np.asarray(array, np.float64)
    return Values(known, numbers, missing, whole=series.dtype.is_integer(), plain=plain and not missing.any())


def _objects(series: nw.Series[Any], missing: Mask) -> Values:
    """A column of Python objects, by their types: pandas stores booleans with gaps, dates and decimals like this."""
    items = np.array([*series.to_list(), None], dtype=object)[:-1]  # one axis, whatever the items are
    types = set(map(type, items[~missing]))

    def all_are(*kinds: Any) -> bool:
        return all(issubclass(t, kinds) for t in types)

    booleans = all_are(bool, np.bool_)
    if booleans or (all_are(Real, Decimal) and bool not in types):
        array = np.where(missing, 0, items).astype(np.float64)
        return _numbers(series, array, missing, "booleans" if booleans else "numbers")
    text = Values("text", _as_text(series), missing)
    if all_are(date):
        if (times := as_times(text)) is None:
            must = f"times of column {series.name!r} must all have a time zone or all have none"
            raise ValueError(f"{must}; convert them")
        return times
    if other := [t for t in types if not issubclass(t, str | bool | np.bool_ | Real | Decimal | date)]:
        raise _no_column(series, f"objects of the type {other[0].__name__}")
    return text


def _no_column(series: nw.Series[Any], got: str) -> TypeError:
    must = f"column {series.name!r} must hold numbers, booleans, text or times"
    return TypeError(f"{must}, got {got}; convert it, or leave it out")


def _as_text(series: nw.Series[Any]) -> NDArray[np.object_]:
    return np.array([str(item) for item in series.to_list()], dtype=object)


def as_times(values: Values) -> Values | None:
    """Text read as times, if all of it is ISO 8601; times as they are; None for anything else.

    Times with an offset are brought to UTC, since it may differ from row to row.
    """
    if values.kind != "text":
        return values if values.kind in ("times", None) else None
    if not all(ISO_TIME.fullmatch(item) for item in values.present):
        return None
    try:
        times = [datetime.fromisoformat(item) for item in values.present]
    except ValueError:  # no such day
        return None
    zoned = {time.tzinfo is not None for time in times}
    if len(zoned) > 1:
        return None
    array = np.full(len(values.missing), np.datetime64("NaT", "us"))
    array[~values.missing] = [time.astimezone(UTC).replace(tzinfo=None) if True in zoned else time for time in times]
    return Values("times", array, values.missing, zone="UTC" if True in zoned else None)


def as_column(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as numbers, times or texts; NaN, NaT or None where a value is missing."""
    values = as_times(given := read(series)) or given
    if values.kind == "booleans":
        column: NDArray[Any] = np.where(values.array > 0, "true", "false").astype(object)
    else:
        column = values.array.astype(object) if values.kind == "text" else values.array.copy()
    nothing: dict[str | None, Any] = {"times": np.datetime64("NaT"), "booleans": None, "text": None}
    column[values.missing] = nothing.get(values.kind, np.nan)
    return column


def listed(names: Sequence[str]) -> str:
    """Up to five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
