"""What time each step is, in the user's own kind of index.

All clocks count in whole steps from a first stamp; they differ in what a stamp is (a whole number, a point in time, a
period) and in the kind of index that they give back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.stamps import (
    Stamps,
    Times,
    check_order,
    equal_step_in_time,
    instant,
    regular_step,
    span_in_words,
    zone_name,
)

__all__ = ["Clock", "CountClock", "PandasClock", "PeriodClock", "PolarsClock", "Steps", "name_as_text"]

Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Clock(ABC):
    """What time each step is, in the user's own kind of index."""

    kind: ClassVar[str]
    start: Any  # stamp of step 0
    step: Any  # from one stamp to the next

    @classmethod
    @abstractmethod
    def of(cls, index: Any) -> Clock:
        """The clock of a regular index, which may have gaps."""

    @classmethod
    @abstractmethod
    def stamps_of(cls, index: Any) -> Stamps:
        """The stamps of a user's index as this kind of clock counts them."""

    @abstractmethod
    def index(self, first: int, n: int) -> Any:
        """The user's kind of index for the steps `first` to `first + n - 1`."""

    @abstractmethod
    def times(self, first: int, n: int) -> Times:
        """Local wall-clock times of the steps `first` to `first + n - 1`, to the second."""

    @abstractmethod
    def _stamp(self, at: Any) -> Any:
        """What a user calls a time, as a stamp."""

    @abstractmethod
    def refusal(self, other: type[Clock], index: Any) -> str | None:
        """Why stamps of another index cannot be placed on this clock; None where they can."""

    def to_dict(self) -> dict[str, Any]:
        """All there is to know about the clock, as JSON can hold it."""
        return {"kind": self.kind, **asdict(self)}

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Clock:
        """The clock that `to_dict` described."""
        content = dict(content)
        kind = content.pop("kind")
        if kind not in _CLOCKS:
            raise ValueError(f"kind of a clock must be one of {', '.join(_CLOCKS)}, got {kind!r}")
        return _CLOCKS[kind]._restored(content)

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> Clock:
        return cls(**content)

    def position(self, at: Any) -> int:
        """The step that a time stamp is, negative before the first; an error where it lies between two steps."""
        return int(self.positions(np.array([self._stamp(at)]), [at])[0])

    def positions(self, stamps: Stamps, labels: Any) -> Steps:
        """The steps that these stamps are; `labels` is what the user calls them."""
        steps, beside = np.divmod(stamps - self.start, self.step)
        between = np.flatnonzero(beside.astype(np.int64))
        if len(between) > 0:
            raise ValueError(
                f"a time stamp must be one of the steps of the series, every {self.step_in_words()} from "
                f"{self.label(0)}; {labels[int(between[0])]} lies between two of them"
            )
        return np.asarray(steps, dtype=np.int64)

    def label(self, step: int) -> str:
        """The stamp of a step as text."""
        return str(self.index(step, 1)[0])

    def step_in_words(self) -> str:
        return span_in_words(self.step)

    def _stamps(self, first: int, n: int) -> Any:
        return self.start + self.step * np.arange(first, first + n)


@dataclass(frozen=True)
class CountClock(Clock):
    """Whole numbers: arrays, and pandas objects whose index counts."""

    start: int = 0
    step: int = 1
    kind: ClassVar[str] = "numbers"

    @classmethod
    def of(cls, index: Any) -> CountClock:
        stamps = cls.stamps_of(index)
        if len(stamps) == 1:
            return cls(int(stamps[0]))
        return cls(int(stamps[0]), int(regular_step(stamps, index)))

    @classmethod
    def stamps_of(cls, index: Any) -> Stamps:
        return np.asarray(index, dtype=np.int64)

    def index(self, first: int, n: int) -> Steps:
        return np.asarray(self._stamps(first, n), dtype=np.int64)

    def times(self, first: int, n: int) -> Times:
        raise ValueError(
            "a calendar needs time stamps, and this series has none; give a pandas Series with a DatetimeIndex or a "
            "polars DataFrame with a time column, or leave the calendar out with calendar=()"
        )

    def _stamp(self, at: Any) -> int:
        if isinstance(at, bool) or not isinstance(at, int | np.integer):
            raise TypeError(f"the steps of a series without time stamps are whole numbers, got {at!r}")
        return int(at)

    def refusal(self, other: type[Clock], index: Any) -> str | None:
        return None if other is CountClock else "the series has no time stamps"


@dataclass(frozen=True)
class _TimeClock(Clock):
    """Points in time at equal distances: in UTC where there is a time zone, as they stand where there is none."""

    start: np.datetime64
    step: np.timedelta64
    tz: str | None = None
    name: str | None = None  # of the index

    @classmethod
    @abstractmethod
    def _wall(cls, index: Any) -> Times:
        """The stamps of an index as local clocks show them."""

    @classmethod
    @abstractmethod
    def _zone_of(cls, index: Any) -> str | None: ...

    def times(self, first: int, n: int) -> Times:
        return self._wall(self.index(first, n)).astype("datetime64[s]")

    def to_dict(self) -> dict[str, Any]:
        unit, _ = np.datetime_data(self.start.dtype)
        as_text = {"start": str(self.start), "step": int(self.step.astype(np.int64)), "unit": unit}
        return super().to_dict() | as_text

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> _TimeClock:
        unit = content.pop("unit")
        start, step = np.datetime64(content.pop("start"), unit), np.timedelta64(content.pop("step"), unit)
        return cls(start, step, **content)

    def _stamp(self, at: Any) -> np.datetime64:
        return instant(at, self.tz)

    def refusal(self, other: type[Clock], index: Any) -> str | None:
        if not issubclass(other, _TimeClock):
            return "the series has points in time as stamps"
        if (other._zone_of(index) is None) != (self.tz is None):
            return "the series has " + ("no time zone" if self.tz is None else f"the time zone {self.tz}")
        return None

    @classmethod
    def _equal_step(cls, index: Any) -> np.timedelta64:
        return equal_step_in_time(cls.stamps_of(index), cls._wall(index), cls._zone_of(index), index)


@dataclass(frozen=True)
class PandasClock(_TimeClock):
    """A pandas DatetimeIndex."""

    freq: str | None = None  # as pandas writes it, where the user's index had one
    kind: ClassVar[str] = "pandas"

    @classmethod
    def of(cls, index: Any) -> PandasClock:
        from pandas.tseries.offsets import Day, Tick, Week

        equal_steps = isinstance(index.freq, Tick | Day | Week)  # others, such as business days, leave days out
        known_to_go_on = len(index) == 1 and equal_steps
        step = cls._equal_step(index.append(index + index.freq) if known_to_go_on else index)
        freq = index.freqstr if equal_steps else None
        return cls(cls.stamps_of(index)[0], step, cls._zone_of(index), name_as_text(index.name), freq)

    @classmethod
    def stamps_of(cls, index: Any) -> Stamps:
        in_utc = index if index.tz is None else index.tz_convert(None)
        return np.asarray(in_utc.to_numpy())

    @classmethod
    def _wall(cls, index: Any) -> Times:
        return np.asarray(index.tz_localize(None).to_numpy())

    @classmethod
    def _zone_of(cls, index: Any) -> str | None:
        return None if index.tz is None else zone_name(index.tz)

    def index(self, first: int, n: int) -> Any:
        import pandas as pd

        index = pd.DatetimeIndex(self._stamps(first, n), name=self.name)
        if self.tz is not None:
            index = index.tz_localize("UTC").tz_convert(self.tz)
        index.freq = self.freq
        return index


@dataclass(frozen=True)
class PolarsClock(_TimeClock):
    """A polars column of datetimes or dates."""

    kind: ClassVar[str] = "polars"

    @classmethod
    def of(cls, index: Any) -> PolarsClock:
        return cls(cls.stamps_of(index)[0], cls._equal_step(index), cls._zone_of(index), index.name)

    @classmethod
    def stamps_of(cls, index: Any) -> Stamps:
        return np.asarray(index.to_numpy())  # UTC where there is a time zone

    @classmethod
    def _wall(cls, index: Any) -> Times:
        return np.asarray((index if cls._zone_of(index) is None else index.dt.replace_time_zone(None)).to_numpy())

    @classmethod
    def _zone_of(cls, index: Any) -> str | None:
        zone: str | None = getattr(index.dtype, "time_zone", None)  # dates have none
        return zone

    def index(self, first: int, n: int) -> Any:
        import polars as pl

        index = pl.Series(self.name, self._stamps(first, n))
        return index if self.tz is None else index.dt.replace_time_zone("UTC").dt.convert_time_zone(self.tz)


@dataclass(frozen=True)
class PeriodClock(Clock):
    """A pandas PeriodIndex: months, quarters and years, whose lengths differ, are equal steps here."""

    start: int  # pandas' number of the period
    step: int
    freq: str
    name: str | None = None
    kind: ClassVar[str] = "periods"

    @classmethod
    def of(cls, index: Any) -> PeriodClock:
        stamps = cls.stamps_of(index)
        check_order(stamps, index, "series")
        return cls(int(stamps[0]), int(index.freq.n), index.freqstr, name_as_text(index.name))

    @classmethod
    def stamps_of(cls, index: Any) -> Stamps:
        return np.asarray(index.asi8)

    def index(self, first: int, n: int) -> Any:
        import pandas as pd

        start = pd.Period(ordinal=self.start + first * self.step, freq=self.freq)
        return pd.period_range(start, periods=n, freq=self.freq, name=self.name)

    def times(self, first: int, n: int) -> Times:
        return np.asarray(self.index(first, n).start_time.to_numpy().astype("datetime64[s]"))

    def step_in_words(self) -> str:
        return f"period of frequency {self.freq}"

    def _stamp(self, at: Any) -> int:
        import pandas as pd

        if isinstance(at, pd.Period):
            if at.freqstr != self.freq:
                raise ValueError(f"the periods of the series have frequency {self.freq}, got {at!r}")
            return int(at.ordinal)
        when = at if isinstance(at, str) else pd.Timestamp(instant(at, None))  # text may be 2024Q1
        return int(pd.Period(when, freq=self.freq).ordinal)

    def refusal(self, other: type[Clock], index: Any) -> str | None:
        same = other is PeriodClock and index.freqstr == self.freq
        return None if same else f"the series has periods of frequency {self.freq}"


_CLOCKS: dict[str, type[Clock]] = {c.kind: c for c in (CountClock, PandasClock, PolarsClock, PeriodClock)}


def name_as_text(name: Any) -> str | None:
    """The name of an index or a column, which pandas lets be anything."""
    return None if name is None else str(name)
