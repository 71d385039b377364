"""The series and covariates that users give (arrays, pandas, polars), at regular steps, growing with every update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.calendar import calendar_features
from coverwell.forecasting.clock import Clock, Steps, check_order, kind_of
from coverwell.forecasting.windows import Panel

__all__ = ["History", "causal_fill", "read_covariates", "read_history", "read_rows", "read_series"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """A series on its clock and its covariates, as far as they have been seen.

    Attributes
    ----------
    values, filled : arrays (step,)
        The series, NaN where it was not observed, and with its gaps filled causally.
    past : array (step, covariate)
        Covariates that are known up to the present.
    ahead : array (step or more, covariate)
        Covariates that the user knows ahead, as far as they were given.
    """

    clock: Clock
    name: str
    values: Array
    filled: Array
    past: Array
    ahead: Array
    past_names: tuple[str, ...] = ()
    ahead_names: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_known(self) -> int | None:
        """For how many steps everything known ahead has been given; None if the calendar is all there is."""
        return len(self.ahead) if self.ahead_names else None

    def panel(self, first: int, horizon: int) -> Panel:
        """The steps from `first` on, with what is known ahead up to the horizon after the last step, or as given."""
        end = len(self) + horizon if self.n_known is None else min(len(self) + horizon, self.n_known)
        calendar = [calendar_features(self.clock.times(first, end - first), self.calendar)[0]] if self.calendar else []
        ahead = self.ahead[first:end] if self.ahead_names else np.zeros((end - first, 0))
        return Panel(
            values=self.filled[first:],
            observed=~np.isnan(self.values[first:]),
            past=self.past[first:],
            known=np.concatenate([*calendar, ahead], axis=1),
        )

    def grown(self, y: float, past: Array) -> History:
        """With one more step and the row of its past covariates; NaN is a gap."""
        return replace(
            self,
            values=np.append(self.values, y),
            filled=np.append(self.filled, self.filled[-1] if np.isnan(y) else y),
            past=np.concatenate([self.past, past]),
        )

    def past_row(self, rows: Any, step: int, *, missing: str) -> Array:
        """The past covariates that came with a step, (1, covariate); gaps hold the values before, if they may."""
        if rows is None and not self.past_names:
            return np.zeros((1, 0))
        if rows is None:
            raise ValueError(f"past_covariates must have a row for this step ({', '.join(self.past_names)}), got none")
        table, steps = read_rows(rows, self.past_names, "past_covariates", self.clock)
        if len(table) != 1 or (steps is not None and steps[0] != step):
            when = "" if steps is None else f" from {self.clock.label(int(steps[0]))} on"
            raise ValueError(
                f"past_covariates must be one row, of the step {self.clock.label(step)}, got {len(table)} rows{when}"
            )
        return _filled(table, self.past[-1:], "past_covariates", missing)

    def with_ahead(self, rows: Any, first: int, *, missing: str) -> History:
        """With rows known ahead, which replace what was known about their steps.

        The first is about step `first`, unless they have time stamps of their own. What is known about steps that have
        been seen stays.
        """
        if rows is None:
            return self
        table, steps = read_rows(rows, self.ahead_names, "covariates", self.clock)
        first = first if steps is None else int(steps[0])
        if first + len(table) <= len(self):
            raise ValueError(
                f"covariates must be about steps from {self.clock.label(len(self))} on, got {len(table)} rows before it"
            )
        table, first = table[max(0, len(self) - first) :], max(first, len(self))
        begin = min(first, len(self.ahead))
        if begin < first and missing == "error":
            raise ValueError(
                f"covariates must come without a gap: {first - begin} rows are missing before "
                f"{self.clock.label(first)}, from {self.clock.label(begin)} on"
            )
        between = np.full((first - begin, len(self.ahead_names)), np.nan)
        table = _filled(np.concatenate([between, table]), self.ahead[begin - 1 : begin], "covariates", missing)
        return replace(self, ahead=np.concatenate([self.ahead[:begin], table, self.ahead[begin + len(table) :]]))

    def same_ahead(self, other: History, horizon: int) -> bool:
        """Whether the same is known ahead about the next steps."""
        ahead = slice(len(self), len(self) + horizon)
        return np.array_equal(self.ahead[ahead], other.ahead[ahead])

    def check_known(self, horizon: int) -> None:
        """Raise unless everything is known about the next steps."""
        known, needed = self.n_known, len(self) + horizon
        if known is not None and known < needed:
            raise ValueError(
                f"covariates must be known for the next {horizon} steps, {needed - known} rows are missing from "
                f"{self.clock.label(known)} on; give them with covariates=..."
            )


def read_history(
    series: Any, covariates: Any, past_covariates: Any, *, calendar: Sequence[str], missing: str
) -> History:
    """A user's series and covariates, checked and on one clock."""
    alone = replace(read_series(series, missing=missing), calendar=tuple(calendar))
    ahead, ahead_names = read_covariates(covariates, alone, "covariates", missing=missing)
    past, past_names = read_covariates(past_covariates, alone, "past_covariates", missing=missing)
    return replace(alone, ahead=ahead, ahead_names=ahead_names, past=past, past_names=past_names)


def read_series(series: Any, *, missing: str) -> History:
    """A series at every step of its clock, without covariates.

    Steps without a stamp are gaps, as are NaN: an error with `missing="error"`, NaN with `missing="fill"`.

    >>> history = read_series([3.0, 1.0, 2.0], missing="error")
    >>> history.name, history.values, history.clock.index(3, 2)
    ('y', array([3., 1., 2.]), array([3, 4]))
    """
    if missing not in ("error", "fill"):
        raise ValueError(f'missing must be "error" or "fill", got {missing!r}')
    rows = _rows_of(series, "series")
    if rows.values.shape[1] != 1:
        names = ", ".join(str(name) for name in rows.names)
        raise ValueError(f"series must have one column of numbers, got {len(rows.names)} ({names}); choose one of them")
    if len(rows.values) == 0:
        raise ValueError("series must have at least one value, got none")
    clock = Clock() if rows.index is None else Clock.of(rows.index)
    values = _on_grid(rows, rows.steps(clock, "series"), clock, ["series"], missing)[:, 0]
    none = np.zeros((len(values), 0))
    return History(clock, rows.names[0] or "y", values, causal_fill(values)[0], past=none, ahead=none)


def read_covariates(table: Any, series: History, what: str, *, missing: str) -> tuple[Array, tuple[str, ...]]:
    """The covariates at the steps of a series, `(step, column)`, and their names; none without a table.

    Arrays are aligned by position, tables by their stamps. Rows from before the series are left out; later rows follow,
    except for past covariates. Gaps are an error with `missing="error"`; with "fill" they hold the last value before.
    """
    clock, n = series.clock, len(series)
    if table is None:
        return np.zeros((n, 0)), ()
    rows = _rows_of(table, what)
    if len(rows.values) == 0:
        raise ValueError(f"{what} must have a row for each of the {n} steps of the series, got none")
    names = tuple(f"x{i}" if name is None else name for i, name in enumerate(rows.names))
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of {what} must have different names, got {', '.join(names)}")
    steps = rows.steps(clock, what)
    check_order(steps, rows.index, what)
    end = int(steps[-1]) + 1
    if end < n:
        last = "" if rows.index is None else f", the last at {rows.index[-1]}, before {clock.label(n - 1)}"
        raise ValueError(
            f"{what} must have a row for each of the {n} steps of the series, got {len(rows.values)}{last}"
        )
    if end > n and what == "past_covariates":
        raise ValueError(
            f"{what} must end where the series ends, after {n} steps at {clock.label(n - 1)}, but reach {end} steps; "
            "cut them there, or give what is known ahead as covariates"
        )
    return causal_fill(_on_grid(rows, steps, clock, [f"column {name} of {what}" for name in names], missing))[0], names


def read_rows(rows: Any, names: tuple[str, ...], what: str, clock: Clock) -> tuple[Array, Steps | None]:
    """Rows of covariates that come one by one, (row, column), and which steps they are about, if they have stamps."""
    if not names:
        raise ValueError(f"{what} came, but the forecaster was fitted without; leave them out")
    given = _rows_of(_as_table(rows, names), what)
    named = tuple(name for name in given.names if name is not None)
    if len(given.names) != len(names) or named not in ((), names):
        came = ", ".join(named) if named else len(given.names)
        raise ValueError(f"{what} must have the {len(names)} columns {', '.join(names)}, got {came}")
    if not len(given.values) or np.isinf(given.values).any():
        raise ValueError(f"{what} must be rows of {len(names)} finite numbers, got {rows!r}")
    counts = given.index is not None and list(given.index) == list(range(len(given.values)))
    if given.index is None or counts:
        return given.values, None  # numbers that only count the rows have nothing to do with time
    steps = given.steps(clock, what)
    if (np.diff(steps) != 1).any():
        raise ValueError(f"{what} must have a row for every step, every {clock.step_in_words()}, got {rows!r}")
    return given.values, steps


def causal_fill(values: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Values (step, ...) with gaps, NaN, filled by the last value observed before; and where they were missing.

    >>> causal_fill(np.array([1.0, np.nan, np.nan, 4.0]))
    (array([1., 1., 1., 4.]), array([False,  True,  True, False]))
    """
    gaps = np.isnan(values)
    if gaps.all():
        raise ValueError(f"at least one value must be observed, but all {len(values)} are missing")
    if gaps[0].any():
        raise ValueError(
            f"a gap is filled by the value before it, and before the first there is none; begin at step "
            f"{int(gaps.argmin(axis=0).max())}, the first that was observed"
        )
    steps = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    last_observed = np.maximum.accumulate(np.where(gaps, 0, steps), axis=0)
    return np.take_along_axis(values, last_observed, axis=0), gaps


def _filled(rows: Array, before: Array, what: str, missing: str) -> Array:
    """Rows whose gaps hold the values of the row before them, if they may."""
    if not np.isnan(rows).any():
        return rows
    if missing == "error":
        raise ValueError(f"{what} must be finite, got {rows.tolist()}; missing='fill' repeats the last values")
    return causal_fill(np.concatenate([before, rows]))[0][len(before) :]


def _as_table(rows: Any, names: tuple[str, ...]) -> Any:
    """One row alone, a number or a line of them, as a table of one row; anything else as it is."""
    if hasattr(rows, "iloc"):
        is_row = rows.ndim == 1 and tuple(str(name) for name in rows.index) == names
    else:
        is_row = not hasattr(rows, "columns") and np.ndim(rows) == min(1, len(names) - 1)
    return np.asarray(rows).reshape(1, -1) if is_row else rows


# What users hold ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """What was given: numbers (row, column), the names of the columns, and the user's index if there is one."""

    values: Array
    names: tuple[str | None, ...]
    index: Any = None

    def steps(self, clock: Clock, what: str) -> Steps:
        """The step that each row is about."""
        return np.arange(len(self.values)) if self.index is None else clock.positions(self.index, what)


def _rows_of(table: Any, what: str) -> _Rows:
    """The rows of an array, a pandas or a polars object; `what` is its name in errors."""
    try:
        given = nw.from_native(table, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = ", ".join(map(str, table.columns))
        raise ValueError(f"the columns of {what} must have different names, got {names}") from None
    if isinstance(given, nw.LazyFrame):
        raise TypeError(f"{what} must be a DataFrame or Series, got {type(table).__name__}; use .collect()")
    if not isinstance(given, nw.DataFrame | nw.Series):
        return _array_rows(table, what)
    columns = [given] if isinstance(given, nw.Series) else list(given.iter_columns())
    index = nw.maybe_get_index(given)
    if index is None:  # polars has times in a column
        times = [column for column in columns if column.dtype in (nw.Datetime, nw.Date)]
        if len(times) > 1:
            names = ", ".join(column.name for column in times)
            raise ValueError(f"{what} must have one time column, got {len(times)} ({names}); drop the others")
        columns = [column for column in columns if column.name not in [time.name for time in times]]
        index = times[0].to_native() if times else None
    values = _numbers(columns, what)
    if index is not None:
        _check_stamps(index, what)
    return _Rows(values, tuple(str(c.name) if c.name not in (None, "") else None for c in columns), index)


def _array_rows(table: Any, what: str) -> _Rows:
    try:
        array = np.asarray(table)
    except ValueError:
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
    return _Rows(values, (None,) * values.shape[1])


def _numbers(columns: Sequence[Any], what: str) -> Array:
    """Columns of a data frame side by side, as numbers."""
    if not columns:
        raise ValueError(f"{what} must have a column of numbers, got none")
    for column in columns:
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise TypeError(
                f"{what} must hold numbers, but column {column.name!r} is of {column.to_native().dtype}; convert it or "
                f'leave it out; time stamps belong in the index of a pandas table (.set_index("{column.name}"))'
            )
    return np.column_stack([column.cast(nw.Float64).to_numpy() for column in columns])


def _check_stamps(index: Any, what: str) -> None:
    """Raise unless an index has a stamp for every row that a clock can count."""
    if kind_of(index) is None:
        raise TypeError(
            f"the index of {what} must be a DatetimeIndex, a PeriodIndex or whole numbers, got {type(index).__name__} "
            f"of {index.dtype}; use pd.to_datetime on it, or .reset_index(drop=True) to count rows"
        )
    n_missing = index.null_count() if kind_of(index) == "polars" else int(index.isna().sum())
    if n_missing:
        raise ValueError(f"every row of {what} needs a time stamp, but {n_missing} have none; drop them")


def _on_grid(rows: _Rows, steps: Steps, clock: Clock, columns: Sequence[str], missing: str) -> Array:
    """One row for each step from 0 to the last, NaN where there was none; checked."""
    values = np.full((int(steps[-1]) + 1, rows.values.shape[1]), np.nan)
    kept = steps >= 0
    values[steps[kept]] = rows.values[kept]
    infinite = np.argwhere(np.isinf(values))
    if len(infinite) > 0:
        step, column = infinite[0]
        raise ValueError(
            f"{columns[column]} must be finite, but {len(infinite)} values are not, the first at "
            f"{clock.label(int(step))}; replace them, with nan if they are unknown"
        )
    for gaps, name in zip(np.isnan(values).T, columns, strict=True):
        if gaps.all():
            raise ValueError(f"{name} must have observed values, but all {len(gaps)} are missing")
        if gaps.any() and missing == "error":
            raise ValueError(
                f"{name} must have a value at each of its {len(gaps)} steps (every {clock.step_in_words()}), but "
                f"{int(gaps.sum())} are missing, the first at {clock.label(int(gaps.argmax()))}; fill them yourself, "
                f'or use missing="fill", which repeats the last observed value'
            )
        if gaps[0]:
            raise ValueError(
                f"{name} must start with an observed value, because gaps are filled by the value before, but the "
                f"first one is at {clock.label(int(gaps.argmin()))}; let the series begin there"
            )
    return values
