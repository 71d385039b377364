"""Boxes in images, and the boxes between which they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.plots.axes import axes_or_new
from coverwell.plots.grammar import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

AROUND_IMAGE = 0.02  # of its longer side, so that no line lies on the frame
BOX_STYLES = {"outer": ("inside", "-", 1.0), "inner": ("inside", ":", 1.2)}  # colour, dash and thickness
BOX_STYLES |= {"predicted": ("other", "-", 1.8), "true": ("outside", "--", 1.5)}

# With x in [x-, x+] and w in [w-, w+], the left edge x lies in [x-, x+] and the right edge x + w in
# [x- + w-, x+ + w+]. So all these boxes contain [x+, x- + w-], and none reaches beyond [x-, x+ + w+].


def inner_and_outer(lower: ArrayLike, upper: ArrayLike) -> tuple[Array | None, Array]:
    """The largest box inside all boxes within the bounds, or None, and the smallest box that contains them all.

    Parameters
    ----------
    lower, upper : array-like (4,)
        Bounds of left, top, width and height; the boxes that come back have the same four numbers.

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
    """The predicted box in its image, and between which boxes the true one is expected; to scale, in pixels.

    The area between the inner and the outer box (see `inner_and_outer`) is shaded; both are cut at the edges of the
    image. No inner box is drawn where boxes within the bounds may have nothing in common.

    Parameters
    ----------
    lower, upper : array-like (4,)
        Bounds of left, top, width and height.
    prediction, truth : array-like (4,)
        Left, top, width and height.
    size : array-like (2,)
        Width and height of the image.
    picture : array (height, width, 3), optional
        The image, drawn behind the boxes and stretched to `size`; without it there is only a frame.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> lower, upper = [10, 10, 60, 60], [20, 20, 80, 80]
    >>> ax = draw_box(Figure().subplots(), lower, upper, prediction=[15, 15, 70, 70], size=[200, 150])
    >>> [round(float(end)) for end in ax.get_ylim()]
    [154, -4]
    """
    from matplotlib.patches import Rectangle

    width, height = np.asarray(size, dtype=np.float64)
    inner, outer = (None if box is None else _cut(box, width, height) for box in inner_and_outer(lower, upper))
    ax, is_over = axes_or_new(ax), picture is not None
    frame: dict[str, Any] = {"facecolor": COLOURS["paper"], "edgecolor": COLOURS["centre"], "linewidth": 0.6}
    ax.add_patch(Rectangle((0, 0), width, height, zorder=0, **frame))
    if picture is not None:
        ax.imshow(picture, extent=(0, width, height, 0), aspect="equal", interpolation="antialiased", zorder=0.5)
    if outer is not None:
        _shade_between(ax, inner, outer, 0.25 if is_over else 0.7)
    for name, box in {"outer": outer, "inner": inner, "predicted": prediction, "true": truth}.items():
        if box is not None:
            _draw_outline(ax, np.asarray(box, dtype=np.float64), name, is_over=is_over)
    around = AROUND_IMAGE * max(width, height)
    ax.set_xlim(-around, width + around)
    ax.set_ylim(height + around, -around)  # downwards, as pixels are counted
    ax.set_aspect("equal")
    return ax


def _cut(box: Array, width: float, height: float) -> Array | None:
    """The part of a box that lies in its image, if any."""
    start = np.clip(box[:2], 0, (width, height))
    sides = np.clip(box[:2] + box[2:], 0, (width, height)) - start
    return np.concatenate([start, sides]) if (sides > 0).all() else None


def _draw_outline(ax: Axes, box: Array, name: str, *, is_over: bool) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    colour, dash, thickness = BOX_STYLES[name]
    look: dict[str, Any] = {"edgecolor": COLOURS[colour], "linestyle": dash, "linewidth": thickness, "label": name}
    outline = Rectangle((box[0], box[1]), box[2], box[3], fill=False, **look)
    if is_over:  # an image may have the line's own colour
        outline.set_path_effects([Stroke(linewidth=thickness + 1.4, foreground="white"), Normal()])
    ax.add_patch(outline)


def _shade_between(ax: Axes, inner: Array | None, outer: Array, opacity: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    def corners(box: Array) -> Array:
        left, top, width, height = box
        around: Array = np.array([[0, 0], [width, 0], [width, height], [0, height], [0, 0]]) + np.array([left, top])
        return around

    rings = [corners(outer)] + ([] if inner is None else [corners(inner)[::-1]])  # a hole runs the other way round
    codes = [code for _ in rings for code in (Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY)]
    path = Path(np.concatenate(rings), codes)
    ax.add_patch(PathPatch(path, facecolor=COLOURS["band"], alpha=opacity, linewidth=0, zorder=0.8))
