"""Boxes in images, and the boxes between which they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.plots.chart import COLOURS, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

AROUND_IMAGE = 0.02  # of its longer side, so that no line lies on the frame
RING = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])  # around a square
BOX_STYLES = {"outer": ("inside", "-", 1.0), "inner": ("inside", ":", 1.2)}  # colour, dash and thickness
BOX_STYLES |= {"predicted": ("other", "-", 1.8), "true": ("outside", "--", 1.5)}


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
        must = "lower and upper must be four bounds each, none above its other"
        raise ValueError(f"{must}, got {low.tolist()} and {high.tolist()}")
    # With x in [x-, x+] and w in [w-, w+], the left edge x lies in [x-, x+] and the right edge x + w in
    # [x- + w-, x+ + w+]. So all these boxes contain [x+, x- + w-], and none reaches beyond [x-, x+ + w+].
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
    image: NDArray[Any] | None = None,
) -> Axes:
    """The predicted box in its image, and between which boxes the true one is expected; to scale, in pixels.

    The area between the inner and the outer box (see `inner_and_outer`) is shaded; both are cut at the edges of the
    image. No inner box is drawn where boxes within the bounds may have nothing in common.

    Parameters
    ----------
    lower, upper : array-like (4,), bounds of left, top, width and height
    prediction, truth : array-like (4,), left, top, width and height
    size : array-like (2,), width and height of the image
    image : array (height, width, 3), drawn behind the boxes and stretched to `size`; without it there is only a frame

    Examples
    --------
    >>> ax = draw_box(None, [10, 10, 60, 60], [20, 20, 80, 80], prediction=[15, 15, 70, 70], size=[200, 150])
    >>> [round(float(end)) for end in ax.get_ylim()]
    [154, -4]
    """
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path
    from matplotlib.patheffects import Normal, Stroke

    width, height = sides = np.asarray(size, dtype=np.float64)
    inner, outer = (None if box is None else _cut(box, sides) for box in inner_and_outer(lower, upper))
    ax = axes_or_new(ax)
    ax.add_patch(Rectangle((0, 0), width, height, zorder=0, fc=COLOURS["paper"], ec=COLOURS["centre"], lw=0.6))
    if image is not None:
        ax.imshow(image, extent=(0, width, height, 0), aspect="equal", interpolation="antialiased", zorder=0.5)
    if outer is not None:
        rings = [outer[:2] + RING * outer[2:]]
        rings += [] if inner is None else [inner[:2] + RING[::-1] * inner[2:]]  # a hole runs the other way round
        path = Path.make_compound_path(*(Path(ring, closed=True) for ring in rings))
        ax.add_patch(PathPatch(path, zorder=0.8, fc=COLOURS["band"], lw=0, alpha=0.7 if image is None else 0.25))
    for name, box in {"outer": outer, "inner": inner, "predicted": prediction, "true": truth}.items():
        if box is not None:
            colour, dash, thickness = BOX_STYLES[name]
            corner, (across, down) = np.split(np.asarray(box, dtype=np.float64), 2)
            outline = Rectangle(tuple(corner), across, down, fill=False, ec=COLOURS[colour], ls=dash, lw=thickness)
            ax.add_patch(outline).set_label(name)
            if image is not None:  # which may have the line's own colour
                outline.set_path_effects([Stroke(linewidth=thickness + 1.4, foreground="white"), Normal()])
    around = AROUND_IMAGE * max(width, height)
    ax.set(xlim=(-around, width + around), ylim=(height + around, -around), aspect="equal")  # down, as pixels count
    return ax


def _cut(box: Array, sides: Array) -> Array | None:
    """The part of a box that lies in its image, if any."""
    start, end = np.clip([box[:2], box[:2] + box[2:]], 0, sides)
    return np.concatenate([start, end - start]) if (end > start).all() else None
