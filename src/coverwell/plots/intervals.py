"""Every row with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.intervals import PredictionInterval
from coverwell.plots.style import (
    BAR,
    CENTRE,
    INSIDE,
    OUTSIDE,
    axes_or_new,
    legend_below,
    percent,
    short_dates,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_intervals"]

Array = NDArray[np.float64]

ROOMY = 100  # rows that a picture of usual width shows apart; with more, bars and markers shrink
THINNEST = 0.25  # of their usual size


def draw_intervals(
    ax: Axes | None,
    interval: PredictionInterval,
    *,
    prediction: ArrayLike,
    y: ArrayLike | None = None,
    along: ArrayLike | None = None,
    along_name: str = "feature",
    unit: str | None = None,
) -> Axes:
    """Every row's interval as a bar, with its prediction and, where it is known, the observed value.

    Rows stand side by side from the lowest prediction to the highest, or each at its value of a feature. The legend
    goes below the axes, where it covers nothing. Some hundred rows can be told apart; of more, draw a sample.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    interval : PredictionInterval
        Of one target and one level, bounds `(n,)`.
    prediction : array-like (n,)
    y : array-like (n,), optional
        What was observed; values inside and outside their interval differ in colour and marker.
    along : array-like (n,), optional
        Numbers or dates, such as a feature: where each row stands on the horizontal axis.
    along_name : str
        What these numbers are, for the axis.
    unit : str, optional
        The unit of the target, for the axis.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_intervals(Figure().subplots(), interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'prediction', 'observed, inside (1)', 'observed, outside (1)']
    """
    centre = np.asarray(prediction, dtype=np.float64)
    if interval.lower.ndim != 1 or centre.shape != interval.lower.shape:
        raise ValueError(
            "a picture shows one target at one level: bounds and prediction must have one shape (n,), got "
            f"{interval.lower.shape} and {centre.shape}; choose with predict_interval(X, coverage=...)"
        )
    inside = None if y is None else interval.contains(y)
    place = _ranks(centre) if along is None else _places(along, len(centre))
    ax, size = axes_or_new(ax), max(THINNEST, min(1.0, ROOMY / len(centre)))
    order = np.argsort(place, kind="stable")
    place, label = place[order], f"{percent(np.max(interval.coverage))} interval"
    ax.vlines(place, interval.lower[order], interval.upper[order], color=BAR, linewidth=3 * size, label=label)
    ax.plot(
        place, centre[order], linestyle="", marker="_", markersize=5 * max(size, 0.4), color=CENTRE, label="prediction"
    )
    if y is not None and inside is not None:
        _draw_observed(ax, place, np.asarray(y, dtype=np.float64)[order], inside[order], size)
    if along is None:
        ax.set_xlim(0, len(centre) + 1)
    elif np.asarray(along).dtype.kind == "M":
        short_dates(ax)
    ax.set_xlabel("row, from the lowest prediction to the highest" if along is None else along_name)
    ax.set_ylabel(with_unit(interval.target_names[0], unit))
    ax.spines[["top", "right"]].set_visible(False)
    return legend_below(ax)


def _ranks(values: Array) -> Array:
    """The place of each row among all, from 1 for the lowest value; rows of equal values stay in their order."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def _places(along: ArrayLike, n_rows: int) -> Array:
    values = np.asarray(along)
    if values.dtype.kind not in "biufM":
        raise ValueError(f"along must hold numbers or dates, got {values.dtype}; draw the rows of each text apart")
    places: Array = _days(values) if values.dtype.kind == "M" else values.astype(np.float64)
    if places.shape != (n_rows,) or not np.isfinite(places).all():
        raise ValueError(
            f"along must have one finite number per row, ({n_rows},), got {places.shape} with "
            f"{np.sum(~np.isfinite(places))} that are missing or infinite; leave such rows out"
        )
    return places


def _days(times: NDArray[Any]) -> Array:
    """Time stamps as the days that matplotlib counts."""
    from matplotlib.dates import date2num

    days: Array = np.where(np.isnat(times), np.nan, date2num(times))  # type: ignore[no-untyped-call]
    return days


def _draw_observed(ax: Axes, place: Array, y: Array, inside: NDArray[np.bool_], size: float) -> None:
    for rows, what, colour, marker in ((inside, "inside", INSIDE, "o"), (~inside, "outside", OUTSIDE, "X")):
        area = (18 if what == "inside" else 40) * max(size, 0.4)  # a miss is what one looks for
        label = f"observed, {what} ({rows.sum()})"
        ax.scatter(place[rows], y[rows], s=area, color=colour, marker=marker, linewidths=0, zorder=3, label=label)
