"""Forecasts of a series through time: their bands, and the share inside over a moving window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.intervals import PredictionInterval
from coverwell.plots.style import BAND, CENTRE, INSIDE, OTHER, OUTSIDE, CurveStyle, axes_or_new, percent, short_dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_forecast", "draw_rolling_coverage"]

Array = NDArray[np.float64]

ASKED = "asked coverage"
DOTS = (2.6, 6.0)  # points, the smallest and the largest mark of an observed value
MISSES_SHOWN = 3.0  # times those that the asked coverage allows, or more where there are more


def draw_forecast(
    ax: Axes | None,
    time: ArrayLike,
    interval: PredictionInterval,
    *,
    prediction: ArrayLike,
    y: ArrayLike | None = None,
    static: PredictionInterval | None = None,
) -> Axes:
    """A stretch of a series: the band of its intervals, the forecasts, and what came, values outside marked.

    The legend is the caller's to draw: `legend_below(ax)` covers nothing.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    time : array-like (n,)
        Numbers or `datetime64` stamps.
    interval : PredictionInterval
        Of one level, bounds `(n,)`.
    prediction : array-like (n,)
    y : array-like (n,), optional
        What was observed; NaN where nothing was.
    static : PredictionInterval, optional
        Other intervals to compare with, drawn as two thin lines.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_forecast(Figure().subplots(), [1, 2], interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'forecast', 'observed', 'observed, outside']
    """
    time, centre = np.asarray(time), np.asarray(prediction, dtype=np.float64)
    if interval.lower.ndim != 1 or not centre.shape == time.shape == interval.lower.shape:
        raise ValueError(
            "a picture shows one step ahead at one level: time, prediction and bounds must have one shape (n,), got "
            f"{time.shape}, {centre.shape} and {interval.lower.shape}"
        )
    ax, label = axes_or_new(ax), f"{percent(np.max(interval.coverage))} interval"
    ax.fill_between(time, interval.lower, interval.upper, color=BAND, linewidth=0, label=label)
    if static is not None:
        for bound, name in ((static.lower, "static interval"), (static.upper, None)):
            ax.plot(time, bound, "--", color=OTHER, linewidth=0.7, label=name)
    ax.plot(time, centre, color=INSIDE, linewidth=0.8, label="forecast")
    if y is not None:
        _draw_came(ax, time, np.asarray(y, dtype=np.float64), interval)
    ax.set_xlim(time[0], time[-1])
    if time.dtype.kind == "M":
        short_dates(ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _draw_came(ax: Axes, time: NDArray[Any], y: Array, interval: PredictionInterval) -> None:
    room = 0.8 * ax.get_window_extent().width / ax.figure.dpi * 72 / len(time)  # points for each step, with a gap
    outside = ~np.isnan(y) & ~((interval.lower <= y) & (y <= interval.upper))
    ax.plot(
        time,
        y,
        linestyle="",
        marker=".",
        markersize=float(np.clip(room, *DOTS)),
        color="black",
        markeredgewidth=0,
        label="observed",
    )
    ax.plot(
        time[outside],
        y[outside],
        linestyle="",
        marker="X",
        markersize=5,
        color=OUTSIDE,
        markeredgecolor="white",
        markeredgewidth=0.4,
        label="observed, outside",
    )


def draw_rolling_coverage(
    ax: Axes | None,
    time: ArrayLike,
    coverage: ArrayLike,
    *,
    asked: float,
    label: str | None = None,
    style: CurveStyle | None = None,
) -> Axes:
    """The coverage over a window that moves through time, against the one that was asked for.

    The axis ends at 1, where nothing is missed, and shows at least three times the misses that were asked for, so that
    small changes look small. Call it once for every kind of interval; the line of the asked coverage is drawn once.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    time : array-like (n,)
        Where each window ends.
    coverage : array-like (n,)
    asked : float
    label, style
        As in `draw_calibration_curve`, without markers.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_rolling_coverage(Figure().subplots(), [1, 2], [0.9, 0.96], asked=0.95, label="live")
    >>> ax.get_legend_handles_labels()[1]
    ['live']
    """
    time, coverage = np.asarray(time), np.asarray(coverage, dtype=np.float64)
    if time.ndim != 1 or time.shape != coverage.shape:
        raise ValueError(f"time and coverage must have one shape (n,), got {time.shape} and {coverage.shape}")
    ax, style = axes_or_new(ax), style or CurveStyle()
    lowest = min(1 - MISSES_SHOWN * (1 - asked), float(np.nanmin(coverage)))
    if any(line.get_gid() == ASKED for line in ax.lines):
        lowest = min(lowest, ax.get_ylim()[0])
    else:
        ax.axhline(asked, color=CENTRE, linewidth=0.8, zorder=1, gid=ASKED)
    ax.plot(time, coverage, style.dash, color=style.colour, linewidth=style.thickness, label=label, zorder=3)
    ax.set_ylim(max(0.0, lowest), 1.0)
    if time.dtype.kind == "M":
        short_dates(ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
