"""The six series of Table 2 as the study reads them: where the test period begins, and what gaps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell import datasets
from coverwell.experiments.methods import one_of_each
from coverwell.forecasting.calendar import calendar_features

__all__ = [
    "CALENDAR",
    "GAPPY",
    "INTERPOLATED",
    "LONELY",
    "OBSERVED",
    "READINGS",
    "SERIES",
    "Problem",
    "problem",
    "readings_of",
    "series_from",
]

Array = NDArray[np.float64]
Stamps = NDArray[Any]  # datetime64

SERIES = datasets.series_names()
GAPPY = ("bike sharing", "beijing pm2.5", "air quality")  # the others have a value at every step
LONELY = ("traffic",)  # nothing was measured beside it
OBSERVED, INTERPOLATED = "observed", "interpolated"
READINGS = (OBSERVED, INTERPOLATED)
TRAIN_SHARE = 0.3  # as in the paper: the first 30 % of the steps
CALENDAR = ("hour", "weekday")


@dataclass(frozen=True, eq=False)
class Problem:
    """A series to forecast from step `start` on.

    Attributes
    ----------
    time : array (step,), datetime64
    y : array (step,)
        NaN where there is no target.
    past_covariates : array (step, covariate) or None
    start : int
        The first step of the test period; training sees the steps before it.
    """

    data: str
    reading: str
    time: Stamps
    y: Array
    past_covariates: Array | None
    start: int

    @property
    def step(self) -> np.timedelta64:
        step: np.timedelta64 = self.time[1] - self.time[0]
        return step

    @property
    def calendar(self) -> Array:
        """Hour and weekday of every step, (step, column): what `calendar=CALENDAR` makes of a series with an index."""
        return calendar_features(self.time, CALENDAR)[0]


@cache
def problem(data: str, reading: str) -> Problem:
    """One of the series in one of its readings; both have their test period at the same hours.

    "observed" leaves gaps open: they are filled by the value before, and never judged. "interpolated" puts straight
    lines there, as the paper seems to have done. Both begin with the first value that was measured.
    """
    whole = datasets.load_series(data)
    first = int(np.flatnonzero(~np.isnan(whole.y))[0])
    start = int(TRAIN_SHARE * len(whole.y)) - first
    past = whole.past_covariates if whole.past_covariate_names else None
    if reading == OBSERVED:
        return Problem(
            data, reading, whole.time[first:], whole.y[first:], None if past is None else past[first:], start
        )
    filled = whole.interpolated()
    return Problem(data, reading, filled.time, filled.y, None if past is None else filled.past_covariates, start)


def readings_of(data: str, asked: Sequence[str] = READINGS) -> tuple[str, ...]:
    """The readings in which a series is run: one that has no gaps has only one."""
    return tuple(asked) if data in GAPPY else (OBSERVED,)


def series_from(names: Sequence[str]) -> tuple[str, ...]:
    """The names as `SERIES` spells them; dashes or underscores may stand for blanks, upper case for lower.

    Examples
    --------
    >>> series_from(["Bike-Sharing", "tas2016"])
    ('bike sharing', 'tas2016')
    """
    asked = one_of_each("series", [name.strip().lower().replace("-", " ").replace("_", " ") for name in names])
    for name in asked:
        if name not in SERIES:
            raise ValueError(f"a series must be one of {', '.join(SERIES)}; got {name!r}")
    return asked
