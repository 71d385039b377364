"""Kinds of columns, and the features that each can give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell.inputs.frames import ISO_TIME, Values, listed

__all__ = ["ITSELF", "KINDS", "MISSING", "OTHER", "Booleans", "Categories", "Kind", "Numbers", "Times"]

Array = NDArray[np.float64]
Features = dict[str, Array]

MOST_LEVELS = 20  # with a feature of their own; rarer ones share one
FEWEST_ROWS = 2  # of a level with a feature of its own: a network learns nothing from one row about others

# What is put behind the name of a column to name its features. A level is "=level", so no level is taken for these.
ITSELF, MISSING, OTHER = "", " (missing)", " (other)"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
CALENDAR = ("year", "month sin", "month cos", "hour sin", "hour cos", *WEEKDAYS)


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are; a missing one becomes the median, the lower of two, with a flag beside it."""

    median: float
    name: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        if not isinstance(self.median, float) or not math.isfinite(self.median):
            raise ValueError(f"the median must be a finite number, got {self.median!r}")

    @classmethod
    def of(cls, values: Values) -> Numbers:
        return cls(float(_lower_median(values.present)))

    @property
    def possible(self) -> tuple[str, ...]:
        return (ITSELF, MISSING)

    def features(self, values: Values) -> Features:
        return {ITSELF: np.where(values.missing, self.median, values.array), MISSING: _flags(values.missing)}

    def told(self) -> tuple[str, str]:
        """What the column is read as, and what stands for a missing value."""
        return "numbers", f"the median {self.median:.6g}"


@dataclass(frozen=True)
class Booleans:
    """0 and 1; a missing one becomes the more frequent of the two, with a flag beside it."""

    usual: bool
    name: ClassVar[str] = "booleans"

    def __post_init__(self) -> None:
        if not isinstance(self.usual, bool):
            raise ValueError(f"the usual value must be true or false, got {self.usual!r}")

    @classmethod
    def of(cls, values: Values) -> Booleans:
        return cls(bool(_lower_median(values.present)))

    @property
    def possible(self) -> tuple[str, ...]:
        return (ITSELF, MISSING)

    def features(self, values: Values) -> Features:
        return {ITSELF: np.where(values.missing, float(self.usual), values.array), MISSING: _flags(values.missing)}

    def told(self) -> tuple[str, str]:
        return "booleans", f"the more frequent {str(self.usual).lower()}"


@dataclass(frozen=True)
class Categories:
    """One feature of 0 and 1 for each known level, one for all others together, one for missing values.

    Known are the most frequent levels, 20 at most, that occur at least twice. A level that was not seen in training is
    read as the rare ones are; where there were none, it has zeros for all known levels, as nothing else has.
    """

    levels: tuple[str, ...]
    name: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        if not self.levels or not all(isinstance(level, str) for level in self.levels):
            raise ValueError(f"the levels must be texts, at least one, got {self.levels!r}")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("each level must be there once")

    @classmethod
    def of(cls, values: Values) -> Categories:
        counts = sorted(Counter(values.present.tolist()).items(), key=lambda item: (-item[1], item[0]))
        fewest = FEWEST_ROWS if len(counts) > 1 else 1
        return cls(tuple(level for level, count in counts[:MOST_LEVELS] if count >= fewest))

    @property
    def possible(self) -> tuple[str, ...]:
        return (*(f"={level}" for level in self.levels), OTHER, MISSING)

    def features(self, values: Values) -> Features:
        codes = self._codes(values)
        known = {f"={level}": _flags(codes == code) for code, level in enumerate(self.levels)}
        other = (codes < 0) & ~values.missing
        return {**known, OTHER: _flags(other), MISSING: _flags(values.missing)}

    def is_other(self, values: Values) -> NDArray[np.bool_]:
        """Where there is a level that is not known."""
        other: NDArray[np.bool_] = (self._codes(values) < 0) & ~values.missing
        return other

    def _codes(self, values: Values) -> NDArray[np.int64]:
        """The number of each level, -1 of one that is not known or missing."""
        code_of = {level: code for code, level in enumerate(self.levels)}
        codes = np.fromiter((code_of.get(level, -1) for level in values.array), np.int64, len(values.array))
        return np.where(values.missing, -1, codes)

    def told(self) -> tuple[str, str]:
        return f"categories ({listed(self.levels)})", "a level of its own"


@dataclass(frozen=True)
class Times:
    """Days since 1970, the year, and where in the year, the week and the day a time lies, by its own clock.

    The positions in the year and the day are a sine and a cosine, so that an end meets the next beginning. A missing
    time becomes the median, with a flag beside it.
    """

    median: str  # ISO 8601
    zone: str | None = None
    name: ClassVar[str] = "times"

    def __post_init__(self) -> None:
        if not isinstance(self.median, str) or not ISO_TIME.fullmatch(self.median):
            raise ValueError(f"the median must be a time, got {self.median!r}")
        if datetime.fromisoformat(self.median).tzinfo is not None:  # a day that is none raises here
            raise ValueError(f"the median must be a time by the local clock, got {self.median!r}")
        if not isinstance(self.zone, str | None):
            raise ValueError(f"the zone must be the name of one or nothing, got {self.zone!r}")

    @classmethod
    def of(cls, values: Values) -> Times:
        return cls(str(_lower_median(values.present)), values.zone)

    @property
    def possible(self) -> tuple[str, ...]:
        return (ITSELF, *(f" ({part})" for part in CALENDAR), MISSING)

    def features(self, values: Values) -> Features:
        moments = np.full(len(values.missing), np.datetime64(self.median, "us"))
        moments[~values.missing] = values.present.astype("datetime64[us]")
        calendar = {f" ({part})": feature for part, feature in _calendar(moments).items()}
        return {ITSELF: moments.astype(np.int64) / 86_400e6, **calendar, MISSING: _flags(values.missing)}

    def told(self) -> tuple[str, str]:
        zone = "" if self.zone is None else f" in {self.zone}"
        return f"dates and times{zone}", f"the median {self.median}"


def _lower_median(present: NDArray[Any]) -> Any:
    """The middle value, the lower of two: one that occurred, also among whole numbers, booleans and times."""
    middle = (len(present) - 1) // 2
    return np.partition(present, middle)[middle]


def _flags(mask: NDArray[np.bool_]) -> Array:
    return mask.astype(np.float64)


def _calendar(moments: NDArray[Any]) -> Features:
    """The parts of the calendar by name, in the order of `CALENDAR`."""
    day, year = moments.astype("datetime64[D]"), moments.astype("datetime64[Y]")
    begin, end = year.astype(moments.dtype), (year + 1).astype(moments.dtype)
    weekday = (day.astype(np.int64) + 3) % 7  # 1 January 1970 was a Thursday
    return {
        "year": year.astype(np.float64) + 1970,
        **_wave("month", (moments - begin) / (end - begin)),
        **_wave("hour", (moments - day) / np.timedelta64(1, "D")),
        **{name: _flags(weekday == number) for number, name in enumerate(WEEKDAYS)},
    }


def _wave(name: str, phase: Array) -> Features:
    """Sine and cosine of a position in a cycle, 0 to 1; without the last digits, in which equal ones would differ."""
    turn = 2 * np.pi * phase
    return {f"{name} sin": np.sin(turn).round(12) + 0.0, f"{name} cos": np.cos(turn).round(12) + 0.0}


Kind = Numbers | Booleans | Categories | Times
KINDS: dict[str, Callable[..., Kind]] = {kind.name: kind for kind in (Numbers, Booleans, Categories, Times)}
