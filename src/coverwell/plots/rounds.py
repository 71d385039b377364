"""Measures by round of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.plots.style import CENTRE, CurveStyle, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_rounds"]

Array = NDArray[np.float64]


def draw_rounds(
    ax: Axes | None,
    values: ArrayLike,
    *,
    label: str | None = None,
    style: CurveStyle | None = None,
    asked: float | None = None,
) -> Axes:
    """A measure by round: its mean over the trials, and a shade from the lowest trial to the highest.

    Trials may end at different rounds. From the first round that one of them no longer has, the mean is of the
    trials that go on, which are not a random choice: there its line is thin and dotted.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure.
    values : array-like (trial, round)
        The measure after each round; NaN after a trial has ended.
    label, style
        As in `draw_calibration_curve`.
    asked : float, optional
        A level to compare with, drawn as a thin line across.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_rounds(Figure().subplots(), [[3.0, 2.0, 1.5], [5.0, 4.0, float("nan")]], label="RMSE")
    >>> [line.get_ydata().tolist() for line in ax.lines]
    [[4.0, 3.0], [3.0, 1.5]]
    """
    values = np.asarray(values, dtype=np.float64)
    running = _running_trials(values)
    ax = axes_or_new(ax)
    rounds = np.arange(1, values.shape[1] + 1)
    mean = np.nanmean(values, axis=0)  # (trial, round) -> (round,)
    whole = int(np.sum(running == len(values)))
    style = style or CurveStyle()
    if asked is not None:
        ax.axhline(asked, color=CENTRE, linewidth=0.8, zorder=1)
    ax.fill_between(
        rounds, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=style.colour, alpha=0.2, linewidth=0
    )
    ax.plot(
        rounds[:whole],
        mean[:whole],
        style.dash,
        marker="o" if whole == 1 else "",  # a line of one point cannot be seen
        color=style.colour,
        linewidth=style.thickness,
        label=label,
        zorder=3,
    )
    if whole < len(rounds):
        later = slice(max(whole - 1, 0), None)  # joined to the last round that all trials have
        ax.plot(rounds[later], mean[later], ":", color=style.colour, linewidth=0.7 * style.thickness, zorder=3)
    ax.set_xlim(*((1, len(rounds)) if len(rounds) > 1 else (0, 2)))
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("round")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _running_trials(values: Array) -> NDArray[np.intp]:
    """How many trials have each round; none may come back after it ended."""
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"values must have the shape (trial, round), got {values.shape}; one trial is values[None, :]")
    there = ~np.isnan(values)
    if not there[:, 0].all() or (np.diff(there.astype(int), axis=1) > 0).any():
        raise ValueError("every trial must have its rounds from the first on and NaN only after its last, got gaps")
    running: NDArray[np.intp] = there.sum(axis=0)
    if running[-1] == 0:
        raise ValueError(f"no trial has round {len(running)}; drop the rounds that none has")
    return running
