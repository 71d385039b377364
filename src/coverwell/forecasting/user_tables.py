"""What users hold (arrays, pandas, polars) as rows of numbers, with the index beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.clocks import Clock, CountClock, PandasClock, PeriodClock, PolarsClock, name_as_text

__all__ = ["Rows", "rows_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """What was given: numbers, and the index beside them if there is one."""

    values: Array  # (row, column)
    names: tuple[str | None, ...]
    index: Any = None
    clock: type[Clock] = CountClock  # what reads the index


def rows_of(table: Any, what: str) -> Rows:
    """The rows of an array, a pandas or a polars object; `what` is its name in errors."""
    if type(table).__module__.startswith("polars"):
        return _polars_rows(table, what)
    if hasattr(table, "iloc"):
        return _pandas_rows(table, what)
    return _array_rows(table, what)


def _array_rows(table: Any, what: str) -> Rows:
    try:
        array = np.asarray(table)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{what} must be an array, but its rows differ in length") from None
    if array.ndim not in (1, 2) or (what == "series" and array.ndim != 1):
        wanted = "one dimension" if what == "series" else "the shape (step,) or (step, column)"
        raise ValueError(
            f"{what} must have {wanted}, got the shape {array.shape}; take one column of it, or use .ravel() if "
            f"there is only one"
        )
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{what} must hold numbers, got {type(table).__name__} of {array.dtype}; convert it to float, with nan for "
            f"missing values"
        )
    values = np.asarray(array if array.ndim == 2 else array[:, None], dtype=np.float64)
    return Rows(values, (None,) * values.shape[1])


def _pandas_rows(table: Any, what: str) -> Rows:
    columns = [table] if table.ndim == 1 else [table.iloc[:, i] for i in range(table.shape[1])]
    names = tuple(name_as_text(column.name) for column in columns)
    values = _stacked(columns, names, what, _pandas_numbers)
    return Rows(values, names, table.index, _pandas_clock(table.index, what))


def _pandas_numbers(column: Any) -> Array | None:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if not is_numeric_dtype(column.dtype) or is_complex_dtype(column.dtype):
        return None
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _pandas_clock(index: Any, what: str) -> type[Clock]:
    import pandas as pd

    known: dict[type, type[Clock]] = {pd.DatetimeIndex: PandasClock, pd.PeriodIndex: PeriodClock}
    clock = CountClock if pd.api.types.is_integer_dtype(index.dtype) else known.get(type(index))
    if clock is None:
        raise TypeError(
            f"the index of {what} must be a DatetimeIndex, a PeriodIndex or whole numbers, got {type(index).__name__} "
            f"of {index.dtype}; use pd.to_datetime on it, or .reset_index(drop=True) to count rows"
        )
    if index.hasnans:
        raise ValueError(f"every row of {what} needs a time stamp, but {int(index.isna().sum())} have none; drop them")
    return clock


def _polars_rows(table: Any, what: str) -> Rows:
    if hasattr(table, "collect"):
        raise TypeError(f"{what} must be a polars DataFrame or Series, got {type(table).__name__}; use .collect()")
    if not hasattr(table, "columns"):  # a Series
        return Rows(_stacked([table], (table.name or None,), what, _polars_numbers), (table.name or None,))
    times = [c for c in table.columns if hasattr(table[c].dtype, "time_zone") or str(table[c].dtype) == "Date"]
    if len(times) > 1:
        raise ValueError(f"{what} must have one time column, got {len(times)} ({', '.join(times)}); drop the others")
    names = tuple(c for c in table.columns if c not in times)
    values = _stacked([table[c] for c in names], names, what, _polars_numbers)
    if not times:
        return Rows(values, names)
    index = table[times[0]]
    if index.null_count() > 0:
        raise ValueError(f"every row of {what} needs a time stamp, but {index.null_count()} have none; drop them")
    return Rows(values, names, index, PolarsClock)


def _polars_numbers(column: Any) -> Array | None:
    import polars as pl

    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        return None
    return np.asarray(column.cast(pl.Float64).to_numpy())


def _stacked(
    columns: Sequence[Any], names: Sequence[str | None], what: str, read: Callable[[Any], Array | None]
) -> Array:
    """Columns side by side, each read as numbers."""
    if not columns:
        raise ValueError(f"{what} must have a column of numbers, got none")
    numbers = []
    for column, name in zip(columns, names, strict=True):
        read_column = read(column)
        if read_column is None:
            raise TypeError(
                f"{what} must hold numbers, but column {name!r} is of {column.dtype}; convert it or leave it out; time "
                f'stamps belong in the index of a pandas table (.set_index("{name}"))'
            )
        numbers.append(read_column)
    return np.column_stack(numbers)
