"""Time stamps: what users call a time, time zones, and the step that regular stamps have.

Points in time are in UTC where the user's stamps have a time zone, so that steps stay equal when local clocks change.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Stamps",
    "Times",
    "check_order",
    "equal_step_in_time",
    "instant",
    "regular_step",
    "span_in_words",
    "zone_name",
]

Stamps = NDArray[Any]  # int64, or datetime64 of any unit
Times = NDArray[Any]  # datetime64: what local clocks show

DAY = np.timedelta64(1, "D")
SHORTEST_MONTH = np.timedelta64(28, "D")
UNITS: dict[str, np.timedelta64] = {
    "day": DAY,
    "hour": np.timedelta64(1, "h"),
    "minute": np.timedelta64(1, "m"),
    "second": np.timedelta64(1, "s"),
    "millisecond": np.timedelta64(1, "ms"),
    "microsecond": np.timedelta64(1, "us"),
    "nanosecond": np.timedelta64(1, "ns"),
}


def instant(at: Any, zone: str | None) -> np.datetime64:
    """A user's time: in UTC for a series with a time zone, as it stands for one without."""
    if at != at:  # NaT
        raise ValueError("a time stamp must be given, got NaT")
    if isinstance(at, np.datetime64) and zone is None:
        return at
    moment = _moment(at)
    if zone is None and moment.tzinfo is not None:
        raise ValueError(f"the stamps of the series have no time zone, but {at} has one; give it without")
    if zone is not None:
        moment = (_in_zone(moment, zone) if moment.tzinfo is None else moment).astimezone(UTC)
    to_numpy = getattr(moment, "to_datetime64", None)  # a pandas Timestamp knows nanoseconds, a datetime does not
    return np.datetime64(moment.replace(tzinfo=None)) if to_numpy is None else to_numpy()


def _moment(at: Any) -> datetime:
    if isinstance(at, str):
        try:
            return datetime.fromisoformat(at)
        except ValueError:
            raise ValueError(f"a time stamp as text must look like 2024-03-31 14:30, got {at!r}") from None
    if isinstance(at, np.datetime64):
        at = at.astype("datetime64[us]").item()
    if isinstance(at, date) and not isinstance(at, datetime):
        return datetime.combine(at, time())
    if not isinstance(at, datetime):
        raise TypeError(f"a time stamp must be text, a datetime, a datetime64 or a pandas Timestamp, got {at!r}")
    return at


def _in_zone(moment: datetime, zone: str) -> datetime:
    """A wall-clock time with its zone; an error where clocks show that time twice or never."""
    local = datetime.combine(moment.date(), moment.time(), tzinfo=_zone(zone))
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        raise ValueError(
            f"clocks in {zone} show {moment} twice or never, because they change then; give the offset from UTC as "
            f"well, as in 2024-10-27 02:30+01:00"
        )
    return local


def _zone(name: str) -> tzinfo:
    """The time zone of a name, which may be a fixed offset such as UTC+02:00."""
    if name.startswith("UTC") and name != "UTC":
        offset = datetime.strptime(name, "UTC%z").tzinfo
        assert offset is not None  # %z was read
        return offset
    return ZoneInfo(name)


def zone_name(zone: tzinfo) -> str:
    """The name from which the zone can be made again, as a saved clock needs it."""
    try:
        _zone(str(zone))
    except (ValueError, KeyError, OSError):  # what zoneinfo raises for text that names no zone
        raise ValueError(
            f"the time zone of the series must have a name, such as Europe/Berlin, got {zone!r}; "
            f'use .tz_convert("UTC") or the name of the zone'
        ) from None
    return str(zone)


def _keeps_its_offset(zone: str) -> bool:
    return _zone(zone).utcoffset(None) is not None  # None where the offset depends on the date


def check_order(stamps: Stamps, index: Any, what: str) -> None:
    """Raise unless each stamp comes after the one before; `index` is what the user calls them."""
    distances = np.diff(stamps).astype(np.int64)
    back = np.flatnonzero(distances < 0)
    if len(back) > 0:
        at = int(back[0])
        raise ValueError(
            f"the time stamps of {what} must be in order, but {index[at + 1]} comes after {index[at]}; sort them first "
            f"(.sort_index() in pandas, .sort(...) in polars)"
        )
    twice = np.flatnonzero(distances == 0)
    if len(twice) > 0:
        raise ValueError(
            f"the time stamps of {what} must differ, but {len(twice)} repeat the one before, the first of them "
            f"{index[int(twice[0])]}; keep one row per stamp or average them (.groupby(level=0).mean() in pandas)"
        )


def regular_step(stamps: Stamps, index: Any) -> Any:
    """The smallest distance of neighbouring stamps, of which all others must be multiples."""
    if len(stamps) < 2:
        raise ValueError(
            f"the step of a series is read from at least two time stamps, got one ({index[0]}); give a longer series"
        )
    check_order(stamps, index, "series")
    distances = np.diff(stamps)
    step = distances.min()
    odd = np.flatnonzero((distances % step).astype(np.int64))
    if len(odd) > 0:
        raise _irregular(
            distances, f"{index[int(odd[0]) + 1]} comes {span_in_words(distances[odd[0]])} after the one before"
        )
    if _looks_like_a_stray(distances):
        at = int(distances.argmin())
        raise _irregular(distances, f"{index[at + 1]} comes only {span_in_words(step)} after the one before")
    return step


def equal_step_in_time(stamps: Stamps, wall: Times, zone: str | None, index: Any) -> np.timedelta64:
    """The regular step of points in time, after the checks that only these need; `wall` is what local clocks show."""
    check_order(stamps, index, "series")
    if len(stamps) > 1:
        _check_not_monthly(wall)
        if zone is not None and not _keeps_its_offset(zone):
            _check_shorter_than_a_day(wall, zone)
    step: np.timedelta64 = regular_step(stamps, index)
    return step


def _irregular(distances: NDArray[Any], breach: str) -> ValueError:
    usual = span_in_words(_most_frequent(distances))
    return ValueError(
        f"the time stamps of series must have equal steps (leaving some out is a gap); the smallest distance is "
        f"{span_in_words(distances.min())}, the most frequent {usual}, and {breach}; bring them to one step first "
        f'(.resample("1h").mean() or .asfreq("1h") in pandas, .group_by_dynamic(...) in polars)'
    )


def _looks_like_a_stray(distances: NDArray[Any]) -> bool:
    """Whether a few close stamps alone make the grid so fine that it would be almost empty."""
    step = distances.min()
    n_steps = distances.sum() // step + 1
    return bool(_most_frequent(distances) != step and n_steps > 10 * (len(distances) + 1))


def _most_frequent(distances: NDArray[Any]) -> Any:
    values, counts = np.unique(distances, return_counts=True)
    return values[counts.argmax()]


def _check_not_monthly(wall: Times) -> None:
    """Months, quarters and years differ in length: no step in time is theirs."""
    if np.diff(wall).min() < SHORTEST_MONTH:
        return
    days, months = wall.astype("datetime64[D]"), wall.astype("datetime64[M]")
    same_day = len(np.unique(wall - months.astype(wall.dtype))) == 1
    last_day = bool(((days + DAY).astype("datetime64[M]") > months).all())
    if same_day or last_day:
        letter = {1: "M", 3: "Q", 12: "Y"}.get(int(np.diff(months).min().astype(np.int64)), "M")
        raise ValueError(
            "the time stamps of series must have equal steps, but they follow calendar months, which differ in length; "
            f'use a PeriodIndex, where months are equal steps (series.to_period("{letter}") in pandas), or give the '
            "values as an array"
        )


def _check_shorter_than_a_day(wall: Times, zone: str) -> None:
    """A local day has 23 to 25 hours: daily stamps in such a zone are not equal steps, if not now then later."""
    if not (np.diff(wall) % DAY).astype(np.int64).any():
        raise ValueError(
            f"steps of whole days must come without a time zone, got {zone}, where a day is shorter or longer when "
            f"clocks change; use series.tz_localize(None) in pandas, a date column in polars"
        )


def span_in_words(step: Any) -> str:
    """A distance between stamps in words: in the largest unit that gives a whole number."""
    if not isinstance(step, np.timedelta64):
        return str(step)
    word, unit = next((word, unit) for word, unit in UNITS.items() if step % unit == np.timedelta64(0))
    count = step // unit
    return f"{count} {word}" + ("" if count == 1 else "s")
