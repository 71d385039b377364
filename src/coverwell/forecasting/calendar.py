"""Where in the day, the week or the year a step lies, as numbers that a network can learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["CALENDAR", "calendar_columns", "calendar_features", "check_calendar", "check_names", "library_of"]

Array = NDArray[np.float64]
Times = NDArray[Any]  # datetime64: local wall-clock times
DAY = 86_400.0  # seconds

# What follows is arithmetic on float64 alone, with operations that numpy and torch share: arrays give features of the
# training rows, tensors the same features within an exported model.


def library_of(values: Any) -> Any:
    """The module, numpy or torch, whose functions take these values."""
    return torch if isinstance(values, torch.Tensor) else np


def _hour(seconds: Any) -> list[Any]:
    """Three waves of the day: enough for a morning and an evening peak of different shapes."""
    return _waves((seconds - DAY * _floored(seconds, DAY)) / DAY, harmonics=3)


def _weekday(seconds: Any) -> list[Any]:
    day = _floored(seconds, DAY) + 3  # 1 January 1970 was a Thursday
    weekday = day - 7 * _floored(day, 7.0)
    return [1.0 * (weekday == number) for number in range(7)]


def _month(seconds: Any) -> list[Any]:
    day = _floored(seconds, DAY)
    year = _floored(day, 365.2425) + 1970  # or the one before or after
    year = year + 1.0 * (day >= _new_year(year + 1)) - 1.0 * (day < _new_year(year))
    begin, end = DAY * _new_year(year), DAY * _new_year(year + 1)
    return _waves((seconds - begin) / (end - begin), harmonics=1)


def _new_year(year: Any) -> Any:
    """Days from 1970 to the first day of a year: 365 for each, and a leap day in every 4 but 100 but 400 years."""
    past = year - 1
    return 365 * (year - 1970) + _floored(past, 4.0) - _floored(past, 100.0) + _floored(past, 400.0) - 477


def _waves(phase: Any, *, harmonics: int) -> list[Any]:
    """Sine and cosine of a position in a cycle, 0 to 1, and of its multiples."""
    library = library_of(phase)
    turns = [2 * np.pi * k * phase for k in range(1, harmonics + 1)]
    return [wave for turn in turns for wave in (library.sin(turn), library.cos(turn))]


def _floored(x: Any, divisor: float) -> Any:
    return library_of(x).floor(x / divisor)


def _wave_names(name: str, harmonics: int) -> tuple[str, ...]:
    return tuple(f"{name}_{wave}{k}" for k in range(1, harmonics + 1) for wave in ("sin", "cos"))


DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# The names of the columns, and how they are computed from seconds since 1970 by the local clock.
CALENDAR: dict[str, tuple[tuple[str, ...], Callable[[Any], list[Any]]]] = {
    "hour": (_wave_names("hour", 3), _hour),
    "weekday": (tuple(f"weekday_{day}" for day in DAYS), _weekday),
    "month": (_wave_names("month", 1), _month),
}


def calendar_columns(seconds: Any, names: Sequence[str]) -> Any:
    """The calendar of these float64 seconds since 1970, (..., ) -> (..., column), of an array or a tensor."""
    return library_of(seconds).stack([column for name in names for column in CALENDAR[name][1](seconds)], -1)


def calendar_features(times: Times, names: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """The calendar of these times, `(step, column)`, and the names of the columns.

    "hour" is the position in the day, minutes included, as three waves; "weekday" is one column of 0 and 1 for each
    day; "month" is the position in the year as one wave.

    >>> features, columns = calendar_features(np.array(["2024-01-01T06:00"], "datetime64[s]"), ["hour"])
    >>> dict(zip(columns[:2], features[0, :2].round(6).tolist()))
    {'hour_sin1': 1.0, 'hour_cos1': 0.0}
    """
    check_names(names)
    if not names:
        return np.zeros((len(times), 0)), ()
    features: Array = calendar_columns(times.astype("datetime64[s]").astype(np.float64), names)
    return features, tuple(column for name in names for column in CALENDAR[name][0])


def check_calendar(times: Times, names: Sequence[str]) -> None:
    """Refuse what is the same at all times of the training series, such as the hour of daily values."""
    for name in names:
        features, _ = calendar_features(times, [name])
        if len(times) > 1 and (features == features[0]).all():
            raise ValueError(
                f"a calendar must vary over the series, but {name!r} is the same at all {len(times)} steps; leave it "
                f"out of calendar={tuple(names)!r}"
            )


def check_names(names: Any) -> None:
    """Raise unless these are different names of calendar features."""
    if isinstance(names, str):
        raise TypeError(f"calendar must be a sequence of names, got the text {names!r}; write ({names!r},)")
    if not isinstance(names, Sequence):
        raise TypeError(f"calendar must be a sequence of names, such as ('hour', 'weekday') or (), got {names!r}")
    unknown = [name for name in names if name not in CALENDAR]
    if unknown:
        raise ValueError(f"calendar must be made of {', '.join(map(repr, CALENDAR))}, got {unknown[0]!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"each calendar name counts once, got {tuple(names)!r}")
