"""Boxes in pictures, and between which boxes they are said to lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.plots.style import BAND, CENTRE, INSIDE, OTHER, OUTSIDE, PAPER, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_box", "inner_and_outer"]

Array = NDArray[np.float64]

ROUND_PICTURE = 0.02  # of its longer side, so that no line lies on the frame
BOX_STYLES = {
    "outer": (INSIDE, "-", 1.0),
    "inner": (INSIDE, ":", 1.2),
    "predicted": (OTHER, "-", 1.8),
    "true": (OUTSIDE, "--", 1.5),
}

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
    ax: Axes | None,
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
    ax : matplotlib Axes or None
        None makes a new figure.
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
    ax = axes_or_new(ax)
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
