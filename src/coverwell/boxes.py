"""Boxes around what images show: cut at the edges of their images."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.errors import BoxOutsideImageWarning

Boxes = NDArray[np.float64]  # (image, 4): left, top, width, height
Mask = NDArray[np.bool_]


def clip_boxes(
    boxes: ArrayLike, sizes: ArrayLike, *, clip: str | None = "warn", image_ids: ArrayLike | None = None
) -> Boxes:
    """The boxes, cut at the edges of their images.

    Parameters
    ----------
    boxes : array-like of shape (n_images, 4), left, top, width and height
    sizes : array-like of shape (n_images, 2), width and height of the images
    clip : {"warn", "refuse"} or None
        What happens to boxes past an edge: cut with a `BoxOutsideImageWarning`, refused with a ValueError, or kept,
        even those outside their image as a whole.
    image_ids : array-like of shape (n_images,), how messages call the images; by default their positions

    Raises
    ------
    ValueError
        If a box is not finite or has no area, if a box to be cut lies outside its image as a whole, and with
        ``"refuse"`` if one is past an edge.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell.boxes import clip_boxes
    >>> boxes, sizes = np.array([[10.0, 20.0, 30.0, 40.0]]), np.array([[60, 60]])
    >>> clip_boxes(boxes, sizes, clip="refuse")
    array([[10., 20., 30., 40.]])
    >>> clip_boxes(boxes, sizes - 5, clip="refuse")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: boxes must lie inside their images; not so for 1 of 1, first image 0: left 10, top 20, width 30, ...
    """
    if clip not in ("warn", "refuse", None):
        raise ValueError(f"clip must be 'warn', 'refuse' or None, got {clip!r}")
    boxes, sizes = _numbers("boxes", boxes), _numbers("sizes", sizes)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or sizes.shape != (len(boxes), 2):
        raise ValueError(f"boxes must be (image, 4) and sizes (image, 2), got {boxes.shape} and {sizes.shape}")
    ids = np.arange(len(boxes)) if image_ids is None else np.asarray(image_ids)
    no_box: Mask = ~np.isfinite(boxes).all(axis=1) | np.any(boxes[:, 2:] <= 0, axis=1)
    if no_box.any():
        bad = _described(no_box, boxes, sizes, ids)
        raise ValueError(f"boxes must be finite, wider and higher than 0; not so {bad}")
    past: Mask = np.any(boxes[:, :2] < 0, axis=1) | np.any(boxes[:, :2] + boxes[:, 2:] > sizes, axis=1)
    if clip is None or not past.any():
        return boxes
    if clip == "refuse":
        way_out = "mend them, cut them by clip='warn', or keep them by clip=None"
        raise ValueError(f"boxes must lie inside their images; not so {_described(past, boxes, sizes, ids)}; {way_out}")
    start, end = np.maximum(boxes[:, :2], 0.0), np.minimum(boxes[:, :2] + boxes[:, 2:], sizes)
    cut = np.concatenate([start, end - start], axis=1)
    beyond: Mask = np.any(cut[:, 2:] <= 0, axis=1)
    if beyond.any():
        raise ValueError(f"boxes must at least reach into their images; not so {_described(beyond, boxes, sizes, ids)}")
    message = f"boxes past the edge of their images were cut there {_described(past, boxes, sizes, ids)}"
    warnings.warn(message, BoxOutsideImageWarning, stacklevel=2)
    return np.where(past[:, None], cut, boxes)  # the others keep their bits


def _numbers(name: str, values: ArrayLike) -> Boxes:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, one row for each image; {error}") from None


def _described(bad: Mask, boxes: Boxes, sizes: Boxes, ids: NDArray[Any]) -> str:
    """How many boxes are bad, and the first of them."""
    first = int(np.flatnonzero(bad)[0])
    left, top, width, height = (f"{value:g}" for value in boxes[first])
    return (
        f"for {bad.sum()} of {bad.size}, first image {ids[first]}: left {left}, top {top}, width {width}, height "
        f"{height} in {sizes[first, 0]:g} x {sizes[first, 1]:g} pixels"
    )
