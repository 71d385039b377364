"""Curves over the coverage that was asked for: what was reached, and how wide the intervals are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.plots.style import BAR, CENTRE, CurveStyle, axes_or_new, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_calibration_curve", "draw_width_curve"]

Array = NDArray[np.float64]

DIAGONAL = "perfect calibration"
LONE_BAND = 8.0  # points, the width of a band at a single level


def draw_calibration_curve(
    ax: Axes | None,
    asked: ArrayLike,
    reached: ArrayLike,
    *,
    label: str | None = None,
    style: CurveStyle | None = None,
    error: ArrayLike | None = None,
    band: tuple[ArrayLike, ArrayLike] | None = None,
    band_label: str | None = None,
) -> Axes:
    """Coverage that was reached against the one that was asked for, with the diagonal on which both agree.

    Call it once for every method; the diagonal is drawn once.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    asked, reached : array-like (level,)
    label : str, optional
        The name in the legend, which is the caller's to draw.
    style : CurveStyle, optional
    error : array-like (level,), optional
        Half the length of a thin bar at every level.
    band : two array-likes (level,), optional
        Lowest and highest coverage to expect, shaded.
    band_label : str, optional
        The name of the band in the legend.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_calibration_curve(Figure().subplots(), [0.5, 0.9], [0.4, 0.95], label="a method")
    >>> ax.get_legend_handles_labels()[1]
    ['a method']
    """
    asked, reached = _curve(asked, reached)
    ax = axes_or_new(ax)
    if band is not None:
        _shade(ax, asked, band, band_label)
    if not any(line.get_gid() == DIAGONAL for line in ax.lines):
        ax.plot([0, 1], [0, 1], color=CENTRE, linewidth=0.8, zorder=1, gid=DIAGONAL)
    _draw_curve(ax, asked, reached, label=label, style=style, error=error)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="asked coverage", ylabel="reached coverage")
    return ax


def draw_width_curve(
    ax: Axes | None,
    asked: ArrayLike,
    width: ArrayLike,
    *,
    unit: str | None = None,
    label: str | None = None,
    style: CurveStyle | None = None,
    error: ArrayLike | None = None,
) -> Axes:
    """Average width against the coverage that was asked for; the axis of widths starts at zero.

    Call it once for every method.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    asked, width : array-like (level,)
    unit : str, optional
        The unit of the target, for the axis.
    label, style, error
        As in `draw_calibration_curve`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_width_curve(Figure().subplots(), [0.5, 0.9], [1.0, 3.0], unit="miles per gallon")
    >>> ax.get_ylabel()
    'average width (miles per gallon)'
    """
    asked, width = _curve(asked, width)
    ax = axes_or_new(ax)
    _draw_curve(ax, asked, width, label=label, style=style, error=error)
    ax.set(xlim=(0, 1), xlabel="asked coverage", ylabel=with_unit("average width", unit))
    highest = ax.dataLim.y1  # of all curves that were drawn here
    ax.set_ylim(0, 1.05 * highest if highest > 0 else 1)
    return ax


def _curve(asked: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    """Both as arrays (level,)."""
    asked, values = np.asarray(asked, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if asked.ndim != 1 or asked.size == 0 or values.shape != asked.shape:
        raise ValueError(
            f"a curve has one value at every level: expected two arrays of one shape (level,), got {asked.shape} and "
            f"{values.shape}; draw several methods one after the other"
        )
    if not (np.diff(asked) > 0).all() or asked[0] <= 0 or asked[-1] >= 1:
        raise ValueError(f"asked must rise strictly between 0 and 1, got {asked.tolist()}; sort the levels first")
    return asked, values


def _draw_curve(
    ax: Axes, asked: Array, values: Array, *, label: str | None, style: CurveStyle | None, error: ArrayLike | None
) -> None:
    style = style or CurveStyle()
    ax.plot(
        asked,
        values,
        color=style.colour,
        linestyle=style.dash,
        linewidth=style.thickness,
        marker=style.marker,
        markersize=2.6 + 0.6 * style.thickness,
        label=label,
        zorder=3,
    )
    if error is not None:
        ax.errorbar(asked, values, _curve(asked, error)[1], fmt="none", ecolor=style.colour, elinewidth=0.8, zorder=3)
    ax.spines[["top", "right"]].set_visible(False)


def _shade(ax: Axes, asked: Array, band: tuple[ArrayLike, ArrayLike], label: str | None) -> None:
    low, high = (_curve(asked, edge)[1] for edge in band)
    if len(asked) > 1:
        ax.fill_between(asked, low, high, color=BAR, alpha=0.7, linewidth=0, zorder=0, label=label)
    else:  # between one level and itself there is no area
        ax.vlines(asked, low, high, color=BAR, alpha=0.7, linewidth=LONE_BAND, zorder=0, label=label or "")
