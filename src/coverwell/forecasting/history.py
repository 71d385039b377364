"""The series and covariates that users give (arrays, pandas, polars), at regular steps, growing with every update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.clock import Clock, Steps, check_stamps
from coverwell.inputs.frames import with_text_names
from coverwell.options import stored

Array = NDArray[np.float64]


@stored
@dataclass(frozen=True)
class History:
    """A series on its clock and its covariates, as far as they have been seen."""

    clock: Clock
    name: str
    values: Array  # (step,), NaN where nothing was observed
    past: Array  # (step, covariate): known up to the present
    ahead: Array  # (step or more, covariate): known ahead, as far as they were given
    past_names: tuple[str, ...] = ()
    ahead_names: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def filled(self) -> Array:
        return causal_fill(self.values)

    @property
    def n_known(self) -> int | None:
        """For how many steps everything known ahead has been given; None if the calendar is all there is."""
        return len(self.ahead) if self.ahead_names else None

    def grown(self, y: float, past: Array) -> History:
        """With one more step and the row of its past covariates; NaN is a gap."""
        return replace(self, values=np.append(self.values, y), past=np.concatenate([self.past, past]))

    def past_row(self, rows: Any, step: int, *, missing: str) -> Array:
        """The past covariates that came with a step, (1, covariate); gaps hold the values before, if they may."""
        if rows is None and not self.past_names:
            return np.zeros((1, 0))
        if rows is None:
            raise ValueError(f"past_covariates must have a row for this step ({', '.join(self.past_names)}), got none")
        table, steps = read_rows(rows, self.past_names, "past_covariates", self.clock)
        if len(table) != 1 or (steps is not None and steps[0] != step):
            when = "" if steps is None else f" from {self.clock.label(int(steps[0]))} on"
            due = f"one row, of the step {self.clock.label(step)}"
            raise ValueError(f"past_covariates must be {due}, got {len(table)} rows{when}")
        return _filled_after(self.past[-1:], table, "past_covariates", missing)

    def with_ahead(self, rows: Any, first: int, *, missing: str) -> History:
        """With rows known ahead, from step `first` on unless they have stamps, which replace what was known.

        What is known about steps that have been seen stays.
        """
        if rows is None:
            return self
        table, steps = read_rows(rows, self.ahead_names, "covariates", self.clock)
        first, n, label = first if steps is None else int(steps[0]), len(self), self.clock.label
        if first + len(table) <= n:
            raise ValueError(f"covariates must be about steps from {label(n)} on, got {len(table)} rows before it")
        table, first = table[max(0, n - first) :], max(first, n)
        begin = min(first, len(self.ahead))
        if begin < first and missing == "error":
            missing_rows = f"{first - begin} rows are missing before {label(first)}, from {label(begin)} on"
            raise ValueError(f"covariates must come without a gap: {missing_rows}")
        table = np.concatenate([np.full((first - begin, len(self.ahead_names)), np.nan), table])
        table = _filled_after(self.ahead[begin - 1 : begin], table, "covariates", missing)
        return replace(self, ahead=np.concatenate([self.ahead[:begin], table, self.ahead[begin + len(table) :]]))

    def check_known(self, horizon: int) -> None:
        """Raise unless everything is known about the next steps."""
        known, needed = self.n_known, len(self) + horizon
        if known is not None and known < needed:
            lacking = f"{needed - known} rows are missing from {self.clock.label(known)} on"
            raise ValueError(f"covariates must be known for the next {horizon} steps, {lacking}; give covariates=...")


def read_history(
    series: Any, covariates: Any = None, past_covariates: Any = None, *, calendar: Sequence[str] = (), missing: str
) -> History:
    """A user's series and covariates, checked and on one clock; steps without a stamp are gaps, as are NaN."""
    if missing not in ("error", "fill"):
        raise ValueError(f'missing must be "error" or "fill", got {missing!r}')
    given, names, index = _table(series, "series")
    if len(names) != 1:
        raise ValueError(f"series must have one column of numbers, got {', '.join(map(str, names))}; choose one")
    if len(given) == 0:
        raise ValueError("series must have at least one value, got none")
    clock = Clock() if index is None else Clock.of(index)
    steps = np.arange(len(given)) if index is None else clock.positions(index, "series")
    values = _on_grid(given, steps, clock, ["series"], missing)[:, 0]
    ahead, ahead_names = _covariates(covariates, clock, len(values), "covariates", missing)
    past, past_names = _covariates(past_covariates, clock, len(values), "past_covariates", missing)
    return History(clock, names[0] or "y", values, past, ahead, past_names, ahead_names, tuple(calendar))


def _covariates(table: Any, clock: Clock, n: int, what: str, missing: str) -> tuple[Array, tuple[str, ...]]:
    """The covariates (step, column) at the n steps of a series, and after it, and their names; none without a table."""
    if table is None:
        return np.zeros((n, 0)), ()
    given, found, index = _table(table, what)
    names = tuple(f"x{i}" if name is None else name for i, name in enumerate(found))
    steps = np.arange(len(given)) if index is None else clock.positions(index, what)
    end = int(steps[-1]) + 1 if len(steps) else 0
    if end < n:
        came = f"{len(given)}, the last at {index[-1]}" if index is not None and end else f"{len(given) or 'none'}"
        raise ValueError(f"{what} must have a row for each of the {n} steps up to {clock.label(n - 1)}, got {came}")
    if end > n and what == "past_covariates":
        end_of_series = f"where the series ends, after {n} steps at {clock.label(n - 1)}, but reach {end} steps"
        raise ValueError(f"{what} must end {end_of_series}; cut them there, or give what is known ahead as covariates")
    return causal_fill(_on_grid(given, steps, clock, [f"column {name} of {what}" for name in names], missing)), names


def read_rows(rows: Any, names: tuple[str, ...], what: str, clock: Clock) -> tuple[Array, Steps | None]:
    """Rows of covariates that come one by one, (row, column), and which steps they are about, if they have stamps."""
    if not names:
        raise ValueError(f"{what} came, but the forecaster was fitted without; leave them out")
    if hasattr(rows, "iloc"):
        one_row = rows.ndim == 1 and tuple(map(str, rows.index)) == names
    else:
        one_row = not hasattr(rows, "columns") and np.ndim(rows) == min(1, len(names) - 1)
    given, found, index = _table(np.asarray(rows).reshape(1, -1) if one_row else rows, what)
    named = tuple(name for name in found if name is not None)
    if len(found) != len(names) or named not in ((), names):
        came = ", ".join(named) if named else len(found)
        raise ValueError(f"{what} must have the {len(names)} columns {', '.join(names)}, got {came}")
    if not len(given) or np.isinf(given).any():
        raise ValueError(f"{what} must be rows of {len(names)} finite numbers, got {rows!r}")
    if index is None or list(index) == list(range(len(given))):  # counting the rows has nothing to do with time
        return given, None
    steps = clock.positions(index, what)
    if (np.diff(steps) != 1).any():
        raise ValueError(f"{what} must have a row for every step, every {clock.step_in_words()}, got {rows!r}")
    return given, steps


def causal_fill(values: Array) -> Array:
    """Values (step, ...) whose gaps, NaN, hold the last value observed before; a gap at the beginning stays."""
    steps = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    last_observed = np.maximum.accumulate(np.where(np.isnan(values), 0, steps), axis=0)
    return np.take_along_axis(values, last_observed, axis=0)


def _filled_after(before: Array, rows: Array, what: str, missing: str) -> Array:
    """Rows whose gaps hold the values of the row before them, if they may."""
    if np.isnan(rows).any() and missing == "error":
        raise ValueError(f"{what} must be finite, got {rows.tolist()}; missing='fill' repeats the last values")
    return causal_fill(np.concatenate([before, rows]))[len(before) :]


def _on_grid(given: Array, steps: Steps, clock: Clock, columns: Sequence[str], missing: str) -> Array:
    """One row for each step from 0 to the last, NaN where there was none; checked."""
    values = np.full((int(steps[-1]) + 1, given.shape[1]), np.nan)
    values[steps[steps >= 0]] = given[steps >= 0]
    for column, name in zip(values.T, columns, strict=True):
        infinite, gaps = np.isinf(column), np.isnan(column)
        if infinite.any():
            first = clock.label(int(infinite.argmax()))
            found = f"{infinite.sum()} values are not, the first at {first}; replace them with NaN if they are unknown"
            raise ValueError(f"{name} must be finite, but {found}")
        if gaps.all():
            raise ValueError(f"{name} must have observed values, but all {len(gaps)} are missing")
        if gaps.any() and missing == "error":
            must = f"{name} must have a value at each of its {len(gaps)} steps (every {clock.step_in_words()})"
            missed = f"{gaps.sum()} are missing, the first at {clock.label(int(gaps.argmax()))}"
            raise ValueError(f'{must}, but {missed}; fill them, or use missing="fill", which repeats the value before')
        if gaps[0]:
            first = clock.label(int(gaps.argmin()))
            raise ValueError(f"{name} must start with an observed value; the first is at {first}: let it begin there")
    return values


def _table(table: Any, what: str) -> tuple[Array, tuple[str | None, ...], Any]:
    """Numbers (row, column), names of columns and the index or None of an array, a pandas or a polars object."""
    given = nw.from_native(with_text_names(table, what), allow_series=True, pass_through=True)
    if isinstance(given, nw.LazyFrame):
        raise TypeError(f"{what} must be a DataFrame or Series, got {type(table).__name__}; use .collect()")
    if not isinstance(given, nw.DataFrame | nw.Series):
        values = _numbers(table, what)
        return values, (None,) * values.shape[1], None
    columns = [given] if isinstance(given, nw.Series) else list(given.iter_columns())
    index = nw.maybe_get_index(given)
    if index is None:  # polars has times in a column
        times = [column for column in columns if column.dtype in (nw.Datetime, nw.Date)]
        if len(times) > 1:
            names = ", ".join(column.name for column in times)
            raise ValueError(f"{what} must have one time column, got {len(times)} ({names}); drop the others")
        columns = [column for column in columns if column.dtype not in (nw.Datetime, nw.Date)]
        index = times[0].to_native() if times else None
    if not columns:
        raise ValueError(f"{what} must have a column of numbers, got none")
    for column in columns:
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            found = f"column {column.name!r} is of {column.to_native().dtype}"
            way_out = f'convert it or leave it out; time stamps belong in the index (.set_index("{column.name}"))'
            raise TypeError(f"{what} must hold numbers, but {found}; {way_out}")
    if index is not None:
        check_stamps(index, what)
    values = np.column_stack([column.cast(nw.Float64).to_numpy() for column in columns])
    return values, tuple(str(c.name) if c.name not in (None, "") else None for c in columns), index


def _numbers(table: Any, what: str) -> Array:
    """The numbers (row, column) of an array, a list or a number."""
    try:
        array = np.asarray(table)
    except ValueError:
        raise ValueError(f"{what} must be an array, but its rows differ in length") from None
    if array.ndim not in (1, 2) or (what == "series" and array.ndim != 1):
        wanted = "one dimension" if what == "series" else "the shape (step,) or (step, column)"
        raise ValueError(f"{what} must have {wanted}, got the shape {array.shape}; take one column, or use .ravel()")
    if array.dtype.kind not in "biuf":
        found = f"{type(table).__name__} of {array.dtype}"
        raise TypeError(f"{what} must hold numbers, got {found}; convert it to float, with nan for missing values")
    return (array if array.ndim == 2 else array[:, None]).astype(np.float64)
