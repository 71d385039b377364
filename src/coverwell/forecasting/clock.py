"""The time of every step of a series, in the user's own kind of index. Time zones, periods and offsets are pandas'."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.options import stored

Array = NDArray[np.float64]
Steps = NDArray[np.int64]
Stamps = NDArray[Any]  # int64, or datetime64 of any unit

KINDS = ("numbers", "pandas", "polars", "periods")
UNITS = ("day", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond")


@stored
@dataclass(frozen=True)
class Clock:
    """Equal steps from a first stamp.

    Attributes
    ----------
    kind : "numbers", "pandas", "polars" or "periods"
        What the user's index holds: whole numbers, points in time of either library, or pandas periods.
    start : int or str
        The first stamp: a number, the number of a period, or a point in time, in UTC where there is a time zone.
    step : int
        From one stamp to the next; between points in time in `unit`.
    unit, tz, name, freq : str or None
        Unit and zone of points in time, the name of the index, and its frequency as pandas writes it.
    """

    kind: str = "numbers"
    start: int | str = 0
    step: int = 1
    unit: str | None = None
    tz: str | None = None
    name: str | None = None
    freq: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind of a clock must be one of {', '.join(KINDS)}, got {self.kind!r}")

    @classmethod
    def of(cls, index: Any) -> Clock:
        """The clock of a user's regular index, which may have gaps."""
        kind, stamps, name = _kind_of(index), _stamps_of(index), None if index.name is None else str(index.name)
        check_order(stamps, index, "series")
        if kind == "periods":
            return cls(kind, int(stamps[0]), int(index.freq.n), name=name, freq=index.freqstr)
        if kind == "numbers":
            return cls(kind, int(stamps[0]), 1 if len(stamps) == 1 else int(_regular_step(stamps, index)))
        times, offsets = _in_pandas(index), _pandas().tseries.offsets
        zone = None if times.tz is None else _zone_name(times.tz)
        equal = isinstance(times.freq, offsets.Tick | offsets.Day | offsets.Week)  # business days leave days out
        whole = times.append(times + times.freq) if len(times) == 1 and equal else times
        if len(whole) > 1:
            _check_equal_lengths(whole)
        step = _regular_step(_stamps_of(whole).astype(stamps.dtype), index)
        unit, _ = np.datetime_data(stamps.dtype)
        return cls(str(kind), str(stamps[0]), int(step.astype(int)), unit, zone, name, times.freqstr if equal else None)

    def index(self, first: int, n: int) -> Any:
        """The user's kind of index for the steps `first` to `first + n - 1`."""
        if self.kind == "numbers":
            return self._origin + self._distance * np.arange(first, first + n)
        index = self._in_pandas(first, n)
        if self.kind != "polars":
            return index
        import polars as pl

        times = pl.Series(self.name, _stamps_of(index).astype(f"datetime64[{self.unit}]"))
        return times if self.tz is None else times.dt.replace_time_zone("UTC").dt.convert_time_zone(self.tz)

    def times(self, first: int, n: int) -> Stamps:
        """Local wall-clock times of the steps `first` to `first + n - 1`, to the second."""
        if self.kind == "numbers":
            raise ValueError(
                "a calendar needs time stamps, and this series has none; give a pandas Series with a DatetimeIndex or "
                "a polars frame with a time column, or leave it out with calendar=()"
            )
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
        """The stamp of a step as text."""
        return str(self.index(step, 1)[0])

    def step_in_words(self) -> str:
        return f"period of frequency {self.freq}" if self.kind == "periods" else _span_in_words(self._distance)

    def position(self, at: Any) -> int:
        """The step of a time stamp, negative before the first; an error where it lies between two steps."""
        if self.kind == "numbers" and (isinstance(at, bool) or not isinstance(at, int | np.integer)):
            raise TypeError(f"the steps of a series without time stamps are whole numbers, got {at!r}")
        if self.kind == "numbers":
            stamp = at
        else:
            stamp = self._period(at) if self.kind == "periods" else _instant(at, self.tz)
        return int(self._positions(np.array([stamp]), [at])[0])

    def positions(self, index: Any, what: str) -> Steps:
        """The steps that the stamps of another index are; an error where they are of another kind."""
        kind = _kind_of(index)
        if self.kind == "numbers":
            mine, alike = "no time stamps", kind == "numbers"
        elif self.kind == "periods":
            mine, alike = f"periods of frequency {self.freq}", kind == "periods" and index.freqstr == self.freq
        elif kind not in ("pandas", "polars"):
            mine, alike = "points in time as stamps", False
        else:
            mine = "no time zone" if self.tz is None else f"the time zone {self.tz}"
            alike = (_in_pandas(index).tz is None) == (self.tz is None)
        if not alike:
            raise ValueError(
                f"{what} must have the kind of time stamps that the series has: the series has {mine}, but {what} has "
                f"{type(index).__name__} of {index.dtype}; give both the same, or give {what} as an array, row by row"
            )
        return self._positions(_stamps_of(index), index)

    @property
    def _origin(self) -> Any:
        return self.start if self.unit is None else np.array(self.start, f"datetime64[{self.unit}]")[()]

    @property
    def _distance(self) -> Any:
        return self.step if self.unit is None else np.array(self.step, f"timedelta64[{self.unit}]")[()]

    def _in_pandas(self, first: int, n: int) -> Any:
        pd = _pandas()
        if self.kind == "periods":
            start = pd.Period(ordinal=self._origin + first * self.step, freq=self.freq)
            return pd.period_range(start, periods=n, freq=self.freq, name=self.name)
        index = pd.DatetimeIndex(self._origin + self._distance * np.arange(first, first + n), name=self.name)
        index = index if self.tz is None else index.tz_localize("UTC").tz_convert(self.tz)
        index.freq = self.freq
        return index

    def _positions(self, stamps: Stamps, labels: Any) -> Steps:
        steps, beside = np.divmod(stamps - self._origin, self._distance)
        between = np.flatnonzero(beside.astype(np.int64))
        if len(between) > 0:
            raise ValueError(
                f"a time stamp must be one of the steps of the series, every {self.step_in_words()} from "
                f"{self.label(0)}; {labels[int(between[0])]} lies between two of them"
            )
        return np.asarray(steps, dtype=np.int64)

    def _period(self, at: Any) -> int:
        pd = _pandas()
        if not isinstance(at, pd.Period):
            at = pd.Period(at if isinstance(at, str) else _instant(at, None), freq=self.freq)  # text may be 2024Q1
        if at.freqstr != self.freq:
            raise ValueError(f"the periods of the series have frequency {self.freq}, got {at!r}")
        return int(at.ordinal)


def check_stamps(index: Any, what: str) -> None:
    """Raise unless an index has a stamp for every row, of a kind that a clock can count."""
    if _kind_of(index) is None:
        raise TypeError(
            f"the index of {what} must be a DatetimeIndex, a PeriodIndex or whole numbers, got {type(index).__name__} "
            f"of {index.dtype}; use pd.to_datetime on it, or .reset_index(drop=True) to count rows"
        )
    n_missing = index.null_count() if _kind_of(index) == "polars" else int(index.isna().sum())
    if n_missing:
        raise ValueError(f"every row of {what} needs a time stamp, but {n_missing} have none; drop them")


def _kind_of(index: Any) -> str | None:
    """The kind of clock that counts these stamps; None where there is none."""
    if type(index).__module__.startswith("polars"):
        return "polars"
    pd = _pandas()
    known = {pd.DatetimeIndex: "pandas", pd.PeriodIndex: "periods"}
    return "numbers" if pd.api.types.is_integer_dtype(index.dtype) else known.get(type(index))


def check_order(stamps: Stamps, index: Any, what: str) -> None:
    """Raise unless each stamp comes after the one before; `index` has the user's names of them."""
    distances = np.diff(stamps).astype(np.int64)
    back, twice = np.flatnonzero(distances < 0), np.flatnonzero(distances == 0)
    if len(back) > 0:
        at = int(back[0])
        raise ValueError(
            f"the time stamps of {what} must be in order, but {index[at + 1]} comes after {index[at]}; sort them first "
            f"(.sort_index() in pandas, .sort(...) in polars)"
        )
    if len(twice) > 0:
        raise ValueError(
            f"the time stamps of {what} must differ, but {len(twice)} repeat the one before, the first of them "
            f"{index[int(twice[0])]}; keep one row per stamp or average them (.groupby(level=0).mean() in pandas)"
        )


def _pandas() -> Any:
    """The pandas module, imported when a series has time stamps."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("time stamps need pandas; install it with pip install 'coverwell[forecasting]'") from None
    return pd


def _in_pandas(index: Any) -> Any:
    """A user's points in time as a pandas index."""
    if _kind_of(index) != "polars":
        return index
    times, zone = _pandas().DatetimeIndex(index.to_numpy()), getattr(index.dtype, "time_zone", None)  # dates have none
    return times if zone is None else times.tz_localize("UTC").tz_convert(zone)


def _stamps_of(index: Any) -> Stamps:
    """Stamps whose distances are steps: in UTC where there is a time zone, so that steps stay equal."""
    match _kind_of(index):
        case "periods":
            return np.asarray(index.asi8)
        case "pandas":
            return np.asarray((index if index.tz is None else index.tz_convert(None)).to_numpy())
    return np.asarray(index.to_numpy())


def _instant(at: Any, zone: str | None) -> np.datetime64:
    """A user's time: in UTC for a series with a time zone, as it stands for one without."""
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
    if zone is None and moment.tz is not None:
        raise ValueError(f"the stamps of the series have no time zone, but {at} has one; give it without")
    if zone is not None and moment.tz is None:
        moment = moment.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
        if moment is pd.NaT:
            raise ValueError(
                f"clocks in {zone} show {pd.Timestamp(at)} twice or never, because they change then; give the offset "
                "from UTC as well, as in 2024-10-27 02:30+01:00"
            )
    utc: np.datetime64 = (moment if moment.tz is None else moment.tz_convert(None)).to_datetime64()
    return utc


def _zone_name(zone: Any) -> str:
    """The name from which the zone can be made again, as a saved clock needs it."""
    try:
        _pandas().Timestamp(0, tz=str(zone))
    except (ValueError, KeyError, OSError):  # what pandas raises for text that names no zone
        raise ValueError(
            f"the time zone of the series must have a name, such as Europe/Berlin, got {zone!r}; "
            f'use .tz_convert("UTC") or the name of the zone'
        ) from None
    return str(zone)


def _check_equal_lengths(times: Any) -> None:
    """Months differ in length, and so do local days where clocks change: their steps are not equal in time."""
    wall, day = times.tz_localize(None), _pandas().Timedelta("1D")
    distances, months = wall[1:] - wall[:-1], wall.to_period("M")
    if distances.min() >= 28 * day and (wall.is_month_end.all() or (wall - months.start_time).nunique() == 1):
        letter = {1: "M", 3: "Q", 12: "Y"}.get(int(np.diff(months.asi8).min()), "M")
        raise ValueError(
            "the time stamps of series must have equal steps, but they follow calendar months, which differ in length; "
            f'use a PeriodIndex, where months are equal steps (series.to_period("{letter}") in pandas), or give the '
            "values as an array"
        )
    changing = times.tz is not None and times.tz.utcoffset(None) is None  # an offset that depends on the date
    if changing and not (distances % day).any():
        raise ValueError(
            f"steps of whole days must come without a time zone, got {times.tz}, where a day is shorter or longer when "
            "clocks change; use series.tz_localize(None) in pandas, a date column in polars"
        )


def _regular_step(stamps: Stamps, index: Any) -> Any:
    """The smallest distance of neighbouring stamps, of which all others must be multiples."""
    if len(stamps) < 2:
        raise ValueError(
            f"the step of a series is read from at least two time stamps, got one ({index[0]}); give a longer series"
        )
    distances = np.diff(stamps)
    step, (values, counts) = distances.min(), np.unique(distances, return_counts=True)
    usual, odd = values[counts.argmax()], np.flatnonzero((distances % step).astype(np.int64))
    # A few close stamps alone may make the grid so fine that it would be almost empty.
    stray = usual != step and distances.sum() // step + 1 > 10 * len(stamps)
    if len(odd) > 0 or stray:
        at, only = (int(odd[0]), "") if len(odd) > 0 else (int(distances.argmin()), "only ")
        raise ValueError(
            "the time stamps of series must have equal steps (leaving some out is a gap); the smallest distance is "
            f"{_span_in_words(step)}, the most frequent {_span_in_words(usual)}, and {index[at + 1]} comes {only}"
            f"{_span_in_words(distances[at])} after the one before; bring them to one step first "
            f'(.resample("1h").mean() or .asfreq("1h") in pandas, .group_by_dynamic(...) in polars)'
        )
    return step


def _span_in_words(step: Any) -> str:
    """A distance between stamps in words: in the largest unit that gives a whole number."""
    if not isinstance(step, np.timedelta64):
        return str(step)
    span, one = _pandas().Timedelta(step), _pandas().Timedelta
    word = next(word for word in UNITS if not span % one(1, word))
    count = span // one(1, word)
    return f"{count} {word}" + ("" if count == 1 else "s")
