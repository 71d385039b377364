"""Where in the day, the week or the year a step lies, as numbers that a network can learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Times = NDArray[Any]  # datetime64: local wall-clock times

DAY = 86_400.0  # seconds
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Three waves of the day are enough for a morning and an evening peak of different shapes.
CALENDAR = {
    "hour": ("hour_sin1", "hour_cos1", "hour_sin2", "hour_cos2", "hour_sin3", "hour_cos3"),
    "weekday": tuple(f"weekday_{day}" for day in DAYS),
    "month": ("month_sin1", "month_cos1"),
}


def calendar_features(times: Times, names: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """The calendar of these times, `(step, column)`, and the names of the columns.

    "hour" is the position in the day, minutes included, as three waves; "weekday" is one column of 0 and 1 for each
    day; "month" is the position in the year as one wave.

    >>> features, columns = calendar_features(np.array(["2024-01-01T06:00"], "datetime64[s]"), ["hour"])
    >>> dict(zip(columns[:2], features[0, :2].round(6).tolist()))
    {'hour_sin1': 1.0, 'hour_cos1': 0.0}
    """
    check_names(names)
    features: Array = calendar_columns(times.astype("datetime64[s]").astype(np.float64), names)
    return features, tuple(column for name in names for column in CALENDAR[name])


def calendar_columns(seconds: Any, names: Sequence[str]) -> Any:
    """The calendar of float64 seconds since 1970 by the local clock, (...) -> (..., column).

    Arithmetic that numpy and torch share: arrays give the features of training rows, tensors those of exported models.
    """
    library, columns = library_of(seconds), []
    day = library.floor(seconds / DAY)
    for name in names:
        if name == "weekday":
            since_monday = day + 3 - 7 * library.floor((day + 3) / 7)  # 1 January 1970 was a Thursday
            columns += [library.zeros_like(day) + (since_monday == number) for number in range(7)]
        else:
            phase = (seconds - DAY * day) / DAY if name == "hour" else _part_of_year(seconds, day)
            for k in range(1, len(CALENDAR[name]) // 2 + 1):
                turn = library.asarray(2 * np.pi * k, dtype=phase.dtype) * phase  # as a number, ONNX has it in float32
                columns += [library.sin(turn), library.cos(turn)]
    return library.stack(columns, -1) if columns else seconds[..., None][..., :0]


def _part_of_year(seconds: Any, day: Any) -> Any:
    """From 0 at New Year to 1 at the next."""

    def new_year(year: Any) -> Any:  # days from 1970: 365 a year, and a leap day in every 4 but 100 but 400 years
        past, floor = year - 1, library_of(year).floor
        return 365 * (year - 1970) + floor(past / 4) - floor(past / 100) + floor(past / 400) - 477

    year = library_of(day).floor(day / 365.2425) + 1970  # or the one before or after
    year = year - 1 + (day >= new_year(year)) + (day >= new_year(year + 1))
    begin, end = DAY * new_year(year), DAY * new_year(year + 1)
    return (seconds - begin) / (end - begin)


def library_of(values: Any) -> Any:
    """The module, numpy or torch, whose functions take these values."""
    return torch if isinstance(values, torch.Tensor) else np


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
