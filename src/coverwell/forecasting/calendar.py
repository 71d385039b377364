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
CALENDAR = ("hour", "weekday", "month")


def calendar_features(times: Times, names: Sequence[str]) -> Array:
    """The calendar of these times, (step, column).

    "hour" is the position in the day, minutes included, as three waves; "weekday" is one column of 0 and 1 for each
    day from Monday on; "month" is the position in the year as one wave.

    >>> calendar_features(np.array(["2024-01-01T06:00"], "datetime64[s]"), ["hour"])[0, :2].round(6).tolist()
    [1.0, 0.0]
    """
    return np.asarray(calendar_columns(times.astype("datetime64[s]").astype(np.float64), names))


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
            continue
        phase = (seconds - DAY * day) / DAY if name == "hour" else _part_of_year(seconds, day)
        # Three waves of the day are enough for a morning and an evening peak of different shapes.
        for k in (1, 2, 3) if name == "hour" else (1,):
            turn = library.asarray(2 * np.pi * k, dtype=phase.dtype) * phase  # as a number, ONNX has it in float32
            columns += [library.sin(turn), library.cos(turn)]
    return library.stack(columns, -1) if columns else seconds[..., None][..., :0]


def _part_of_year(seconds: Any, day: Any) -> Any:
    """From 0 at New Year to 1 at the next."""
    floor = library_of(day).floor

    def new_year(year: Any) -> Any:  # days from 1970: 365 a year, and a leap day in every 4 but 100 but 400 years
        past = year - 1
        return 365 * (year - 1970) + floor(past / 4) - floor(past / 100) + floor(past / 400) - 477

    year = floor(day / 365.2425) + 1970  # or the one before or after
    year = year - 1 + (day >= new_year(year)) + (day >= new_year(year + 1))
    begin, end = DAY * new_year(year), DAY * new_year(year + 1)
    return (seconds - begin) / (end - begin)


def library_of(values: Any) -> Any:
    """The module, numpy or torch, whose functions take these values."""
    return torch if isinstance(values, torch.Tensor) else np
