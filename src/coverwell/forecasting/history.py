"""The series and covariates that users give (arrays, pandas, polars) on a clock of regular steps, growing with updates.

Time zones, periods and offsets are pandas'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell.inputs.frames import with_text_names
from coverwell.options import stored

Array = NDArray[np.float64]
Steps = NDArray[np.int64]
Stamps = NDArray[Any]  # int64, or datetime64 of any unit

UNITS = ("day", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond")


@stored
@dataclass(frozen=True)
class Clock:
    """Equal steps from a first stamp."""

    kind: str = "numbers"  # or "pandas" or "polars", whose points in time the index holds, or pandas "periods"
    start: int | str = 0  # a number, the ordinal of a period, or a point in time, in UTC where there is a time zone
    step: int = 1  # between points in time in `unit`
    unit: str | None = None
    tz: str | None = None
    name: str | None = None
    freq: str | None = None  # as pandas writes it

    def __post_init__(self) -> None:
        """Raise for a clock that no series can have; model files come from anywhere."""
        kinds = ("numbers", "periods") if self.unit is None else ("pandas", "polars")
        if self.kind not in kinds or self.step < 1:
            raise ValueError(f"a clock has steps of numbers, periods, or times of pandas or polars, got {self}")
        self._stamps(0, 2) if self.kind == "numbers" else self._in_pandas(0, 2)

    @classmethod
    def of(cls, index: Any) -> Clock:
        """The clock of a user's regular index, which may have gaps."""
        times, name, pd = _checked(index, "series"), None if index.name is None else str(index.name), _pandas()
        if isinstance(times, pd.PeriodIndex):
            return cls("periods", times[0].ordinal, times.freq.n, name=name, freq=times.freqstr)
        if not isinstance(times, pd.DatetimeIndex):
            return cls("numbers", int(times[0]), 1 if len(times) == 1 else int(_regular_step(times)))
        offsets = pd.tseries.offsets
        equal = isinstance(times.freq, offsets.Tick | offsets.Day | offsets.Week)  # business days leave days out
        whole = times.append(times + times.freq) if len(times) == 1 and equal else times
        step, zone = _regular_step(whole), None if times.tz is None else str(times.tz)
        try:
            pd.Timestamp(0, tz=zone)
        except (ValueError, KeyError, OSError):  # what pandas raises for text that names no zone
            way_out = f'such as Europe/Berlin, got {times.tz!r}; use .tz_convert("UTC") or the name of the zone'
            raise ValueError(f"the time zone of the series must have a name, {way_out}") from None
        unit = times.unit if index is times else np.datetime_data(index.to_numpy().dtype)[0]  # polars has dates
        start = (times if zone is None else times.tz_convert(None)).to_numpy().astype(f"datetime64[{unit}]")[0]
        kind, n_units = "pandas" if index is times else "polars", step // pd.Timedelta(1, unit)
        return cls(kind, str(start), n_units, unit, zone, name, times.freqstr if equal else None)

    def index(self, first: int, n: int) -> Any:
        """The user's kind of index for the steps `first` to `first + n - 1`."""
        if self.kind == "numbers":
            return self._stamps(first, n)
        if self.kind != "polars":
            return self._in_pandas(first, n)
        import polars as pl

        times = pl.Series(self.name, self._stamps(first, n))
        return times if self.tz is None else times.dt.replace_time_zone("UTC").dt.convert_time_zone(self.tz)

    def times(self, first: int, n: int) -> Stamps:
        """Local wall-clock times of the steps `first` to `first + n - 1`, to the second."""
        if self.kind == "numbers":
            way_out = "give a pandas DatetimeIndex or a polars time column, or leave it out with calendar=()"
            raise ValueError(f"a calendar needs time stamps, and this series has none; {way_out}")
        index = self._in_pandas(first, n)
        wall = index.start_time if self.kind == "periods" else index.tz_localize(None)
        return np.asarray(wall.to_numpy().astype("datetime64[s]"))

    def labelled(self, values: Array, first: int, name: str) -> Any:
        """Values of the steps from `first` on: a pandas series, a polars frame, or for plain counts the array."""
        index = self.index(first, len(values))
        if self.kind == "polars":
            import polars as pl

            return pl.DataFrame([index, pl.Series(name, values)])
        return values if self.kind == "numbers" else _pandas().Series(values, index=index, name=name)

    def label(self, step: int) -> str:
        return str(self.index(step, 1)[0])

    def step_in_words(self) -> str:
        if self.kind == "periods":
            return f"period of frequency {self.freq}"
        return _in_words(self.step if self.unit is None else _pandas().Timedelta(self.step, self.unit))

    def position(self, at: Any) -> int:
        """The step of a time stamp, negative before the first; an error where it lies between two steps."""
        if self.kind == "numbers":
            if isinstance(at, bool) or not isinstance(at, int | np.integer):
                raise TypeError(f"the steps of a series without time stamps are whole numbers, got {at!r}")
            return int(self.positions(np.array([at]), "the time")[0])
        pd = _pandas()
        if self.kind == "periods":
            at = at if isinstance(at, str | pd.Period) else _instant(at, None)  # text such as 2024Q1
            try:
                stamps = pd.PeriodIndex([at if isinstance(at, pd.Period) else pd.Period(at, freq=self.freq)])
            except ValueError:
                raise ValueError(f"a period as text must look like {self.label(0)}, got {at!r}") from None
        else:
            stamps = pd.DatetimeIndex([_instant(at, self.tz)])
        return int(self.positions(stamps, "the time")[0])

    def positions(self, index: Any, what: str) -> Steps:
        """The steps that the stamps of an index are; an error unless they rise, on steps and of the clock's kind."""
        stamps, origin, step = _checked(index, what), self.start, self.step
        if self.unit is not None:
            mine = f"points in time {'without a time zone' if self.tz is None else f'in {self.tz}'}"
            alike = stamps.dtype.kind == "M" and (stamps.tz is None) == (self.tz is None)
            origin, step = self._in_pandas(0, 1)[0], _pandas().Timedelta(self.step, self.unit)
        elif self.kind == "periods":
            mine, alike = f"periods of frequency {self.freq}", getattr(stamps, "freqstr", None) == self.freq
        else:
            mine, alike = "no time stamps", stamps.dtype.kind in "iu"
        if not alike:
            raise ValueError(
                f"{what} must have the kind of time stamps that the series has: the series has {mine}, but {what} has "
                f"{type(index).__name__} of {index.dtype}; give both the same, or give {what} as an array, row by row"
            )
        steps, beside = divmod((stamps.asi8 if self.kind == "periods" else stamps) - origin, step)
        between = np.flatnonzero(np.asarray(beside, dtype=np.int64))
        if len(between) > 0:
            steps_of_series = f"every {self.step_in_words()} from {self.label(0)}"
            found = f"{index[int(between[0])]} lies between two of them"
            raise ValueError(f"a time stamp must be one of the steps of the series, {steps_of_series}; {found}")
        return np.asarray(steps, dtype=np.int64)

    def _stamps(self, first: int, n: int) -> Stamps:
        origin: Any = self.start if self.unit is None else np.array(self.start, f"datetime64[{self.unit}]")
        return np.asarray(origin + self.step * np.arange(first, first + n))

    def _in_pandas(self, first: int, n: int) -> Any:
        pd = _pandas()
        if self.kind == "periods":
            start = pd.Period(ordinal=self._stamps(first, 1)[0], freq=self.freq)
            return pd.period_range(start, periods=n, freq=self.freq, name=self.name)
        index = pd.DatetimeIndex(self._stamps(first, n), name=self.name)
        index = index if self.tz is None else index.tz_localize("UTC").tz_convert(self.tz)
        index.freq = self.freq
        return index


def _checked(index: Any, what: str) -> Any:
    """An index, pandas' or a polars column of times, in pandas; raises unless its stamps can be counted and rise."""
    if isinstance(index, np.ndarray):  # whole numbers
        return index
    times, pd = index, _pandas()
    if type(index).__module__.startswith("polars"):
        times, zone = pd.DatetimeIndex(index.to_numpy()), getattr(index.dtype, "time_zone", None)  # dates have none
        times = times if zone is None else times.tz_localize("UTC").tz_convert(zone)
    if not (isinstance(times, pd.DatetimeIndex | pd.PeriodIndex) or pd.api.types.is_integer_dtype(times.dtype)):
        way_out = "use pd.to_datetime on it, or .reset_index(drop=True) to count rows"
        must = f"the index of {what} must be a DatetimeIndex, a PeriodIndex or whole numbers"
        raise TypeError(f"{must}, got {type(index).__name__} of {index.dtype}; {way_out}")
    if n_missing := int(times.isna().sum()):
        raise ValueError(f"every row of {what} needs a time stamp, but {n_missing} have none; drop them")
    back, twice = (np.flatnonzero(found) for found in (times[1:] < times[:-1], times[1:] == times[:-1]))
    if len(back) > 0:
        before, after = times[int(back[0])], times[int(back[0]) + 1]
        way_out = "sort them first (.sort_index() in pandas, .sort(...) in polars)"
        raise ValueError(f"the time stamps of {what} must be in order, but {after} comes after {before}; {way_out}")
    if len(twice) > 0:
        found = f"{len(twice)} repeat the one before, the first of them {times[int(twice[0])]}"
        raise ValueError(f"the time stamps of {what} must differ, but {found}; average them (.groupby(level=0).mean())")
    return times


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("time stamps need pandas; install it with pip install 'coverwell[forecasting]'") from None
    return pd


def _instant(at: Any, zone: str | None) -> Any:
    """A user's time as a pandas Timestamp: in the zone of the series, if it has one, or without."""
    if at != at:
        raise ValueError("a time stamp must be given, got NaT")
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise ValueError(f"a time stamp as text must look like 2024-03-31 14:30, got {at!r}") from None
    if not isinstance(at, date | np.datetime64):  # a datetime is a date, and a pandas Timestamp is a datetime
        raise TypeError(f"a time stamp must be text, a datetime, a datetime64 or a pandas Timestamp, got {at!r}")
    pd = _pandas()
    moment = pd.Timestamp(at)
    if zone is not None and moment.tz is None:
        moment = moment.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
        if moment is pd.NaT:
            shown = f"clocks in {zone} show {pd.Timestamp(at)} twice or never, because they change then"
            raise ValueError(f"{shown}; give the offset from UTC as well, as in 2024-10-27 02:30+01:00")
    return moment


def _regular_step(index: Any) -> Any:
    """The smallest distance of neighbouring stamps, of which all others must be multiples."""
    if len(index) < 2:
        raise ValueError(f"a step is read from at least two time stamps, got one ({index[0]}); give a longer series")
    if index.dtype.kind == "M":
        _check_equal_lengths(index)
    distances = index[1:] - index[:-1]
    step, most_frequent = distances.min(), distances.to_series().mode()[0]
    odd = np.flatnonzero(np.asarray(distances % step, dtype=np.int64))
    # A few close stamps alone may make the grid so fine that it would be almost empty.
    stray = most_frequent != step and (index[-1] - index[0]) // step + 1 > 10 * len(index)
    if len(odd) > 0 or stray:
        at, only = (int(odd[0]), "") if len(odd) > 0 else (int(distances.argmin()), "only ")
        raise ValueError(
            f"the time stamps of series must have equal steps, or gaps; the smallest is {_in_words(step)}, the most "
            f"frequent {_in_words(most_frequent)}, and {index[at + 1]} comes {only}{_in_words(distances[at])} after "
            'the one before; use .resample("1h").mean() or .asfreq("1h") in pandas, .group_by_dynamic(...) in polars'
        )
    return step


def _check_equal_lengths(times: Any) -> None:
    """Months differ in length, and so do local days where clocks change: their steps are not equal in time."""
    wall, day = times.tz_localize(None), _pandas().Timedelta("1D")
    distances, months = wall[1:] - wall[:-1], wall.to_period("M")
    changing = times.tz is not None and times.tz.utcoffset(None) is None  # an offset that depends on the date
    if distances.min() >= 28 * day and (wall.is_month_end.all() or (wall - months.start_time).nunique() == 1):
        letter = {1: "M", 3: "Q", 12: "Y"}.get(int(np.diff(months.asi8).min()), "M")
        what = "calendar months differ in length"
        way_out = f'use a PeriodIndex (series.to_period("{letter}") in pandas), or give the values as an array'
    elif changing and not (distances % day).any():
        what = f"days in {times.tz} differ in length when clocks change"
        way_out = "use series.tz_localize(None) in pandas, a date column in polars"
    else:
        return
    raise ValueError(f"the time stamps of series must have equal steps, but {what}; {way_out}")


def _in_words(distance: Any) -> str:
    """A distance between stamps: a number, or a Timedelta in the largest unit that gives a whole number."""
    if isinstance(distance, int | np.integer):
        return str(distance)
    counts = {word: distance / _pandas().Timedelta(1, word) for word in UNITS}
    count, word = next((int(count), word) for word, count in counts.items() if count.is_integer())
    return f"{count} {word}" + "s" * (count > 1)


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
