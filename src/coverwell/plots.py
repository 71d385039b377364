"""Pictures; each function takes the matplotlib Axes to draw on, and returns it.

matplotlib comes with the extra `plots`. This module itself does not import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.intervals import PredictionInterval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "CurveStyle",
    "draw_box",
    "draw_calibration_curve",
    "draw_forecast",
    "draw_intervals",
    "draw_rolling_coverage",
    "draw_rounds",
    "draw_width_curve",
    "inner_and_outer",
]

Array = NDArray[np.float64]

# Colours that remain apart for colour-blind readers (Okabe and Ito); markers differ as well.
INSIDE, OUTSIDE, BAR, CENTRE = "#0072B2", "#D55E00", "#BDC3C9", "#444444"
BAND, OTHER = "#B5D7EC", "#00805C"
PAPER = "#F2F2F2"  # where a picture would be
ROUND_PICTURE = 0.02  # of its longer side, so that no line lies on the frame
DIAGONAL = "perfect calibration"
ASKED = "asked coverage"


@dataclass(frozen=True)
class CurveStyle:
    """How a curve looks: everything that tells it from another one, in colour and without."""

    colour: str = INSIDE
    marker: str = "o"
    dash: str = "-"
    thickness: float = 1.4


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


def draw_calibration_curve(
    ax: Axes,
    asked: ArrayLike,
    reached: ArrayLike,
    *,
    label: str | None = None,
    style: CurveStyle | None = None,
    error: ArrayLike | None = None,
    band: tuple[ArrayLike, ArrayLike] | None = None,
) -> Axes:
    """Coverage that was reached against the one that was asked for, with the diagonal on which both agree.

    Call it once for every method; the diagonal is drawn once.

    Parameters
    ----------
    ax : matplotlib Axes
    asked, reached : array-like (level,)
    label : str, optional
        The name in the legend, which is the caller's to draw.
    style : CurveStyle, optional
    error : array-like (level,), optional
        Half the length of a thin bar at every level.
    band : two array-likes (level,), optional
        Lowest and highest coverage to expect, shaded.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_calibration_curve(Figure().subplots(), [0.5, 0.9], [0.4, 0.95], label="a method")
    >>> ax.get_legend_handles_labels()[1]
    ['a method']
    """
    asked, reached = _curve(asked, reached)
    if band is not None:
        _shade(ax, asked, band)
    if not any(line.get_gid() == DIAGONAL for line in ax.lines):
        ax.plot([0, 1], [0, 1], color=CENTRE, linewidth=0.8, zorder=1, gid=DIAGONAL)
    _draw_curve(ax, asked, reached, label=label, style=style, error=error)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="asked coverage", ylabel="reached coverage")
    return ax


def draw_width_curve(
    ax: Axes,
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
    ax : matplotlib Axes
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
    _draw_curve(ax, asked, width, label=label, style=style, error=error)
    ax.set(xlim=(0, 1), xlabel="asked coverage", ylabel="average width" if unit is None else f"average width ({unit})")
    ax.set_ylim(bottom=0)
    return ax


def draw_rounds(
    ax: Axes,
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
    ax : matplotlib Axes
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
        rounds[:whole], mean[:whole], style.dash, color=style.colour, linewidth=style.thickness, label=label, zorder=3
    )
    if whole < len(rounds):
        later = slice(max(whole - 1, 0), None)  # joined to the last round that all trials have
        ax.plot(rounds[later], mean[later], ":", color=style.colour, linewidth=0.7 * style.thickness, zorder=3)
    ax.set_xlim(1, max(len(rounds), 2))
    ax.set_xlabel("round")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def draw_forecast(
    ax: Axes,
    time: ArrayLike,
    interval: PredictionInterval,
    *,
    prediction: ArrayLike,
    y: ArrayLike | None = None,
    static: PredictionInterval | None = None,
) -> Axes:
    """A stretch of a series: the band of its intervals, the forecasts, and what came, values outside marked.

    Parameters
    ----------
    ax : matplotlib Axes
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
    label = f"{100 * np.max(interval.coverage):.4g} % interval"
    ax.fill_between(time, interval.lower, interval.upper, color=BAND, linewidth=0, label=label)
    if static is not None:
        for bound, name in ((static.lower, "static interval"), (static.upper, None)):
            ax.plot(time, bound, "--", color=OTHER, linewidth=0.7, label=name)
    ax.plot(time, centre, color=INSIDE, linewidth=0.8, label="forecast")
    if y is not None:
        _draw_came(ax, time, np.asarray(y, dtype=np.float64), interval)
    ax.set_xlim(time[0], time[-1])
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _draw_came(ax: Axes, time: NDArray[Any], y: Array, interval: PredictionInterval) -> None:
    outside = ~np.isnan(y) & ~((interval.lower <= y) & (y <= interval.upper))
    ax.plot(time, y, linestyle="", marker=".", markersize=2.6, color="black", markeredgewidth=0, label="observed")
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
    ax: Axes,
    time: ArrayLike,
    coverage: ArrayLike,
    *,
    asked: float,
    label: str | None = None,
    style: CurveStyle | None = None,
) -> Axes:
    """The coverage over a window that moves through time, against the one that was asked for.

    Call it once for every kind of interval; the line of the asked coverage is drawn once.

    Parameters
    ----------
    ax : matplotlib Axes
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
    style = style or CurveStyle()
    if not any(line.get_gid() == ASKED for line in ax.lines):
        ax.axhline(asked, color=CENTRE, linewidth=0.8, zorder=1, gid=ASKED)
    ax.plot(time, coverage, style.dash, color=style.colour, linewidth=style.thickness, label=label, zorder=3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


# Boxes. With x in [x-, x+] and w in [w-, w+], the left edge x lies in [x-, x+] and the right edge x + w in
# [x- + w-, x+ + w+]; so all such boxes reach over [x+, x- + w-], and none beyond [x-, x+ + w+].


def inner_and_outer(lower: ArrayLike, upper: ArrayLike) -> tuple[Array | None, Array]:
    """What all boxes have in common, and what holds them all, if left, top, width and height lie within these bounds.

    Parameters
    ----------
    lower, upper : array-like (4,)
        Bounds of left, top, width and height of one box.

    Returns
    -------
    inner : ndarray (4,) or None
        Left, top, width and height of the largest box that lies inside each of them; None where there is none.
    outer : ndarray (4,)
        The smallest box that contains them all.

    Examples
    --------
    >>> inner, outer = inner_and_outer([1.0, 1.0, 6.0, 6.0], [2.0, 2.0, 8.0, 8.0])
    >>> inner.tolist(), outer.tolist()
    ([2.0, 2.0, 5.0, 5.0], [1.0, 1.0, 9.0, 9.0])
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape != (4,) or high.shape != (4,) or not (low <= high).all():
        raise ValueError(
            f"lower and upper must be four bounds each, none above its other, got {low.tolist()} and {high.tolist()}"
        )
    inner = np.concatenate([high[:2], low[:2] + low[2:] - high[:2]])
    outer = np.concatenate([low[:2], high[:2] + high[2:] - low[:2]])
    return (inner if (inner[2:] > 0).all() else None), outer


def draw_box(
    ax: Axes,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    prediction: ArrayLike,
    size: ArrayLike,
    truth: ArrayLike | None = None,
    picture: NDArray[Any] | None = None,
) -> Axes:
    """The predicted box in its picture, and between which boxes it is said to lie; to scale, in pixels.

    The area between the inner and the outer box (see `inner_and_outer`) is shaded. Both are cut at the edges of the
    picture, where every box ends. No inner box is drawn where the bounds leave room for boxes that have nothing in
    common.

    Parameters
    ----------
    ax : matplotlib Axes
    lower, upper : array-like (4,)
        Bounds of left, top, width and height.
    prediction, truth : array-like (4,)
        Left, top, width and height.
    size : array-like (2,)
        Width and height of the picture.
    picture : array (height, width, 3), optional
        Drawn behind the boxes and stretched to `size`; without one there is only its frame.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_box(
    ...     Figure().subplots(), [10, 10, 60, 60], [20, 20, 80, 80], prediction=[15, 15, 70, 70], size=[200, 150]
    ... )
    >>> [round(float(end)) for end in ax.get_ylim()]
    [154, -4]
    """
    from matplotlib.patches import Rectangle

    width, height = np.asarray(size, dtype=np.float64)
    inner, outer = (None if box is None else _cut(box, width, height) for box in inner_and_outer(lower, upper))
    ax.add_patch(Rectangle((0, 0), width, height, facecolor=PAPER, edgecolor=CENTRE, linewidth=0.6, zorder=0))
    if picture is not None:
        ax.imshow(picture, extent=(0, width, height, 0), aspect="equal", interpolation="antialiased", zorder=0.5)
    if outer is not None:
        _shade_between(ax, inner, outer, over_picture=picture is not None)
    boxes = {"outer": outer, "inner": inner, "predicted": prediction, "true": truth}
    for name, box in boxes.items():
        if box is not None:
            _draw_outline(ax, np.asarray(box, dtype=np.float64), name, over_picture=picture is not None)
    around = ROUND_PICTURE * max(width, height)
    ax.set_xlim(-around, width + around)
    ax.set_ylim(height + around, -around)  # downwards, as pixels are counted
    ax.set_aspect("equal")
    return ax


BOX_STYLES = {
    "outer": (INSIDE, "-", 1.0),
    "inner": (INSIDE, ":", 1.2),
    "predicted": (OTHER, "-", 1.8),
    "true": (OUTSIDE, "--", 1.5),
}


def _cut(box: Array, width: float, height: float) -> Array | None:
    """The part of a box that lies in its picture, if any."""
    start = np.clip(box[:2], 0, (width, height))
    sides = np.clip(box[:2] + box[2:], 0, (width, height)) - start
    return np.concatenate([start, sides]) if (sides > 0).all() else None


def _draw_outline(ax: Axes, box: Array, name: str, *, over_picture: bool) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    colour, dash, thickness = BOX_STYLES[name]
    left, top, width, height = box
    outline = Rectangle(
        (left, top), width, height, fill=False, edgecolor=colour, linestyle=dash, linewidth=thickness, label=name
    )
    if over_picture:  # a photograph may have the line's own colour
        outline.set_path_effects([Stroke(linewidth=thickness + 1.4, foreground="white"), Normal()])
    ax.add_patch(outline)


def _shade_between(ax: Axes, inner: Array | None, outer: Array, *, over_picture: bool) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    def corners(box: Array, *, clockwise: bool) -> Array:
        left, top, width, height = box
        around: Array = np.array([[0, 0], [width, 0], [width, height], [0, height], [0, 0]]) + np.array([left, top])
        return around if clockwise else around[::-1]  # a hole runs the other way round

    rings = [corners(outer, clockwise=True)]
    if inner is not None:
        rings.append(corners(inner, clockwise=False))
    codes = [code for _ in rings for code in (Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY)]
    path = Path(np.concatenate(rings), codes)
    ax.add_patch(PathPatch(path, facecolor=BAND, alpha=0.25 if over_picture else 0.7, linewidth=0, zorder=0.8))


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


def _shade(ax: Axes, asked: Array, band: tuple[ArrayLike, ArrayLike]) -> None:
    low, high = (_curve(asked, edge)[1] for edge in band)
    ax.fill_between(asked, low, high, color=BAR, alpha=0.7, linewidth=0, zorder=0)


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
