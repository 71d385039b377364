"""Numbers that tell a network where in the day, the week or the year a step lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CALENDAR", "calendar_features", "check_calendar", "check_names"]

Array = NDArray[np.float64]
Times = NDArray[Any]  # datetime64: what local clocks show
Columns = dict[str, Array]

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _hour(times: Times) -> Columns:
    """Three waves of the day: enough for a morning and an evening peak of different shapes."""
    since_midnight = times - times.astype("datetime64[D]")
    return _waves("hour", since_midnight / np.timedelta64(1, "D"), harmonics=3)


def _weekday(times: Times) -> Columns:
    day = (times.astype("datetime64[D]").astype(np.int64) + 3) % 7  # 1 January 1970 was a Thursday
    return {f"weekday_{name}": (day == number).astype(np.float64) for number, name in enumerate(DAYS)}


def _month(times: Times) -> Columns:
    year = times.astype("datetime64[Y]")
    begin, end = year.astype(times.dtype), (year + 1).astype(times.dtype)
    return _waves("month", (times - begin) / (end - begin), harmonics=1)


def _waves(name: str, phase: Array, *, harmonics: int) -> Columns:
    """Sine and cosine of a position in a cycle, 0 to 1, and of its multiples."""
    columns = {}
    for k in range(1, harmonics + 1):
        columns[f"{name}_sin{k}"] = np.sin(2 * np.pi * k * phase)
        columns[f"{name}_cos{k}"] = np.cos(2 * np.pi * k * phase)
    return columns


CALENDAR: dict[str, Callable[[Times], Columns]] = {"hour": _hour, "weekday": _weekday, "month": _month}


def calendar_features(times: Times, names: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """The calendar of these times, `(step, column)`, and what each column is called.

    "hour" is the position in the day, minutes included, as three waves; "weekday" is one column of 0 and 1 for each
    day; "month" is the position in the year as one wave.

    >>> features, columns = calendar_features(np.array(["2024-01-01T06:00"], "datetime64[s]"), ["hour"])
    >>> dict(zip(columns[:2], features[0, :2].round(6).tolist()))
    {'hour_sin1': 1.0, 'hour_cos1': 0.0}
    """
    check_names(names)
    times = times.astype("datetime64[s]")
    columns: Columns = {}
    for name in names:
        columns |= CALENDAR[name](times)
    return np.array(list(columns.values())).reshape(len(columns), len(times)).T, tuple(columns)


def check_calendar(times: Times, names: Sequence[str]) -> None:
    """Refuse what says the same at all times of the training series, such as the hour of daily values."""
    for name in names:
        features, _ = calendar_features(times, [name])
        if len(times) > 1 and (features == features[0]).all():
            raise ValueError(
                f"a calendar must vary over the series, but {name!r} is the same at all {len(times)} steps; leave it "
                f"out of calendar={tuple(names)!r}"
            )


def check_names(names: Any) -> None:
    """Raise unless these are different names of what a calendar tells."""
    if isinstance(names, str):
        raise TypeError(f"calendar must be a sequence of names, got the text {names!r}; write ({names!r},)")
    if not isinstance(names, Sequence):
        raise TypeError(f"calendar must be a sequence of names, such as ('hour', 'weekday') or (), got {names!r}")
    unknown = [name for name in names if name not in CALENDAR]
    if unknown:
        raise ValueError(f"calendar must be made of {', '.join(map(repr, CALENDAR))}, got {unknown[0]!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"each calendar name counts once, got {tuple(names)!r}")
