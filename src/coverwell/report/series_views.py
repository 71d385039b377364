"""Forecasts of a period and what came of them, one step ahead and one level at a time."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.forecasting import Backtest
from coverwell.report.bounds import Bounds

__all__ = [
    "SeriesView",
    "Stretch",
    "lowest_by_chance",
    "steps_shown",
    "times_of",
    "views_of",
    "window_of",
    "worst_stretch",
]

Array = NDArray[np.float64]

MOST_STEPS = 4  # ahead, that can be chosen
MOST_WINDOW = 500  # values
PERIODS, ONE_IN_TWENTY = 200, 0.05  # that are simulated, and what the worst of them is taken to be


@dataclass(frozen=True, eq=False)
class SeriesView(Bounds):
    """One step ahead at one level, over the values that came."""

    times: NDArray[Any]  # dates, or counts of steps
    static_lower: Array
    static_upper: Array
    asked: float
    step: int  # ahead
    live: bool  # whether widths followed the misses
    when: dict[str, int]

    @property
    def static_inside(self) -> NDArray[np.bool_]:
        return (self.static_lower <= self.y) & (self.y <= self.static_upper)

    @property
    def band(self) -> tuple[float, float]:
        """In which coverage is expected if each value is inside with the asked probability, independently."""
        return metrics.coverage_band(self.asked, len(self.y), None)

    @property
    def dates(self) -> bool:
        return self.times.dtype.kind == "M"


@dataclass(frozen=True)
class Stretch:
    """Values in a row, and the share of them inside."""

    first: int
    n: int
    coverage: float


def steps_shown(horizon: int) -> list[int]:
    """The steps ahead that can be chosen: all, or the first, the last and some between them."""
    return sorted({int(step) for step in np.round(np.linspace(1, horizon, min(horizon, MOST_STEPS)))})


def views_of(backtest: Backtest, *, live: bool) -> list[SeriesView]:
    """Every step ahead that can be chosen, at every level."""
    return [
        _view(backtest, step, level, place, live)
        for place, step in enumerate(steps_shown(backtest.y.shape[1]))
        for level in range(len(backtest.levels))
    ]


def _view(backtest: Backtest, step: int, level: int, place: int, live: bool) -> SeriesView:
    k = step - 1
    came = ~np.isnan(backtest.y[:, k])
    times = times_of(backtest.stamps)[k : k + len(backtest)]
    lower, upper = backtest.lower[came, k, level], backtest.upper[came, k, level]
    return SeriesView(
        backtest.y[came, k],
        backtest.prediction[came, k],
        lower,
        upper,
        times[came],
        backtest.static_lower[came, k, level],
        backtest.static_upper[came, k, level],
        asked=backtest.levels[level],
        step=step,
        live=live,
        when={"step": place, "level": level},
    )


def times_of(stamps: Any) -> NDArray[Any]:
    """Stamps of any kind as dates by the local clock, or as counts."""
    if hasattr(stamps, "to_timestamp"):  # periods
        stamps = stamps.to_timestamp()
    if getattr(stamps, "tz", None) is not None:
        stamps = stamps.tz_localize(None)
    if getattr(getattr(stamps, "dtype", None), "time_zone", None) is not None:
        stamps = stamps.dt.replace_time_zone(None)
    values = np.asarray(stamps)
    return values.astype("datetime64[ms]") if values.dtype.kind == "M" else values


def window_of(n_values: int) -> int:
    """How many values a moving window has: a quarter of them, 500 at most."""
    return max(1, min(MOST_WINDOW, n_values // 4))


def worst_stretch(inside: NDArray[np.bool_], n: int) -> Stretch:
    """The `n` values in a row of which the fewest are inside; the first of equals.

    Examples
    --------
    >>> worst_stretch(np.array([True, True, False, False, True]), 2)
    Stretch(first=2, n=2, coverage=0.0)
    """
    shares = metrics.rolling_coverage(inside, n)
    first = int(shares.argmin())
    return Stretch(first, n, float(shares[first]))


@functools.cache
def lowest_by_chance(asked: float, n_values: int, n: int) -> float:
    """The coverage that the worst `n` of so many values in a row falls below in one period of twenty.

    It holds if each value is inside with the asked probability, independently of the others, and is found by drawing
    such periods: the windows overlap, so no plain formula gives it.
    """
    rng = np.random.default_rng(0)
    lowest = [metrics.rolling_coverage(rng.random(n_values) < asked, n).min() for _ in range(PERIODS)]
    return float(np.quantile(lowest, ONE_IN_TWENTY, method="lower"))
