"""Images with one box each; boxes past the edge of their images, and boxes in fractions of the image's sides."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.datasets.image_files import ImageFiles, Rows

Boxes = NDArray[np.float64]  # (image, 4): left, top, width, height
Mask = NDArray[np.bool_]


class BoxOutsideImageWarning(UserWarning):
    """Boxes ran past the edge of their images and were cut there."""


class InOriginalPixels:
    """What has boxes, and the sizes of their images, in pixels of the originals."""

    boxes: Boxes
    sizes: NDArray[np.int64]

    @property
    def sides(self) -> Boxes:
        """Side of the original that each number of a box refers to: width, height, width, height."""
        return np.tile(self.sizes.astype(np.float64), 2)

    @property
    def fractions(self) -> Boxes:
        """The boxes in fractions of the sides: left and width of the image's width, top and height of its height.

        They are the same for the original, a reduced copy, and a square to which either is squeezed.
        """
        return self.boxes / self.sides


@dataclass(frozen=True, eq=False)
class BoxedImages(InOriginalPixels):
    """Images with one box each.

    Parameters
    ----------
    name : str
        The name it was loaded by.
    images : ImageFiles
        The pictures, read when asked for. They may be reduced copies: boxes and sizes are those of the originals.
    boxes : ndarray of shape (n_images, 4), float64
        Left, top, width and height of the box, in pixels of the original image.
    sizes : ndarray of shape (n_images, 2), int64
        Width and height of the original image.
    image_ids : ndarray of shape (n_images,), int64
        The official number of each image; as loaded, ascending.
    train : ndarray of shape (n_images,), bool
        The official split: true for training, false for testing.
    classes : ndarray of shape (n_images,), int64
        Position in `class_names` of what is seen.
    class_names : tuple of str
        The names of all classes.
    source : str
        What to cite, and the licence.
    notes : str
        What was chosen or changed.
    """

    name: str
    images: ImageFiles
    boxes: Boxes = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)
    image_ids: NDArray[np.int64] = field(repr=False)
    train: NDArray[np.bool_] = field(repr=False)
    classes: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    source: str
    notes: str

    def __len__(self) -> int:
        return len(self.images)

    def to_pixels(self, fractions: ArrayLike) -> Boxes:
        """Fractions of the sides as pixels of the original images, the way back from `fractions`.

        Parameters
        ----------
        fractions : array-like of shape (..., n_images, 4)
            Left, top, width and height: boxes, ends of intervals, or widths of intervals, one row for each image.

        Returns
        -------
        ndarray of the same shape, float64
            In pixels of the original images.

        Raises
        ------
        ValueError
            If there is not one row of four numbers for each image.
        """
        values = np.asarray(fractions, dtype=np.float64)
        if values.shape[-2:] != (len(self), 4):
            raise ValueError(
                f"fractions must have one row of 4 for each of the {len(self)} images, got the shape {values.shape}; "
                "take() gives the images that belong to fewer rows"
            )
        pixels: Boxes = values * self.sides
        return pixels

    def take(self, rows: Rows) -> BoxedImages:
        """The images at these positions, or where a mask is true: ``cub.take(cub.train)``."""
        arrays = {name: getattr(self, name)[rows] for name in ("boxes", "sizes", "image_ids", "train", "classes")}
        return replace(self, images=self.images.take(rows), **arrays)


def clip_boxes(
    boxes: ArrayLike, sizes: ArrayLike, *, clip: str | None = "warn", image_ids: ArrayLike | None = None
) -> Boxes:
    """The boxes, cut at the edges of their images.

    Parameters
    ----------
    boxes : array-like of shape (n_images, 4)
        Left, top, width and height.
    sizes : array-like of shape (n_images, 2)
        Width and height of the images.
    clip : {"warn", "refuse"} or None
        What happens to boxes past an edge: cut with a `BoxOutsideImageWarning`, refused with a ValueError, or kept,
        even those outside their image as a whole.
    image_ids : array-like of shape (n_images,), optional
        How messages call the images; by default their positions.

    Raises
    ------
    ValueError
        If a box is not finite or has no area, if a box to be cut lies outside its image as a whole, and with
        ``"refuse"`` if one is past an edge.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import datasets
    >>> boxes, sizes = np.array([[10.0, 20.0, 30.0, 40.0]]), np.array([[60, 60]])
    >>> datasets.clip_boxes(boxes, sizes, clip="refuse")
    array([[10., 20., 30., 40.]])
    >>> datasets.clip_boxes(boxes, sizes - 5, clip="refuse")  # doctest: +ELLIPSIS
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
        raise ValueError(f"boxes must be finite, wider and higher than 0; not so {_told(no_box, boxes, sizes, ids)}")
    past: Mask = np.any(boxes[:, :2] < 0, axis=1) | np.any(boxes[:, :2] + boxes[:, 2:] > sizes, axis=1)
    if clip is None or not past.any():
        return boxes
    if clip == "refuse":
        way_out = "mend them, cut them by clip='warn', or keep them by clip=None"
        raise ValueError(f"boxes must lie inside their images; not so {_told(past, boxes, sizes, ids)}; {way_out}")
    cut = _cut(boxes, sizes)
    beyond: Mask = np.any(cut[:, 2:] <= 0, axis=1)
    if beyond.any():
        raise ValueError(f"boxes must at least reach into their images; not so {_told(beyond, boxes, sizes, ids)}")
    message = f"boxes past the edge of their images were cut there {_told(past, boxes, sizes, ids)}"
    warnings.warn(message, BoxOutsideImageWarning, stacklevel=2)
    return np.where(past[:, None], cut, boxes)  # the others keep their bits


def _numbers(name: str, values: ArrayLike) -> Boxes:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, one row for each image; {error}") from None


def _cut(boxes: Boxes, sizes: Boxes) -> Boxes:
    start, end = np.maximum(boxes[:, :2], 0.0), np.minimum(boxes[:, :2] + boxes[:, 2:], sizes)
    return np.concatenate([start, end - start], axis=1)


def _told(bad: Mask, boxes: Boxes, sizes: Boxes, ids: NDArray[Any]) -> str:
    """How many boxes are bad, and the first of them."""
    first = int(np.flatnonzero(bad)[0])
    left, top, width, height = (f"{value:g}" for value in boxes[first])
    return (
        f"for {bad.sum()} of {bad.size}, first image {ids[first]}: left {left}, top {top}, width {width}, height "
        f"{height} in {sizes[first, 0]:g} x {sizes[first, 1]:g} pixels"
    )
