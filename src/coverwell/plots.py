"""Pictures; each function takes the matplotlib Axes to draw on, and returns it.

matplotlib comes with the extra `plots`. This module itself does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.intervals import PredictionInterval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_intervals"]

# Colours that remain apart for colour-blind readers (Okabe and Ito); markers differ as well.
INSIDE, OUTSIDE, BAR, CENTRE = "#0072B2", "#D55E00", "#BDC3C9", "#444444"


def draw_intervals(
    ax: Axes, interval: PredictionInterval, *, prediction: ArrayLike, y: ArrayLike | None = None
) -> Axes:
    """Every row's interval as a bar, rows from the lowest prediction to the highest, with the observed values.

    The legend goes below the axes, where it covers nothing.

    Parameters
    ----------
    ax : matplotlib Axes
    interval : PredictionInterval
        Of one target and one level, bounds `(n,)`.
    prediction : array-like (n,)
    y : array-like (n,), optional
        What was observed; values inside and outside their interval differ in colour and marker.

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
    order = np.argsort(centre, kind="stable")
    place = np.arange(1, len(order) + 1)
    label = f"{100 * np.max(interval.coverage):.4g} % interval"
    ax.vlines(place, interval.lower[order], interval.upper[order], color=BAR, linewidth=3, label=label)
    ax.plot(place, centre[order], linestyle="", marker="_", markersize=5, color=CENTRE, label="prediction")
    if y is not None:
        _draw_observed(ax, place, np.asarray(y, dtype=np.float64)[order], interval.contains(y)[order])
    ax.set_xlabel("row, from the lowest prediction to the highest")
    ax.set_xlim(0, len(order) + 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, frameon=False)
    return ax


def _draw_observed(ax: Axes, place: NDArray[np.intp], y: NDArray[np.float64], inside: NDArray[np.bool_]) -> None:
    for rows, what, colour, marker in ((inside, "inside", INSIDE, "o"), (~inside, "outside", OUTSIDE, "X")):
        size = 18 if what == "inside" else 40
        label = f"observed, {what} ({rows.sum()})"
        ax.scatter(place[rows], y[rows], s=size, color=colour, marker=marker, linewidths=0, zorder=3, label=label)
