"""An image and its mirror image: two rows to train on, one after the other, and one image to predict for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.options import stored

Array = NDArray[np.float64]

MARGIN = 0.5  # sides of the image that a box may lie outside of it before it is taken for one in pixels
# A few boxes of any collection run past the edge. Where more than this share does so, each by more than this part of
# the side, the numbers are no widths and heights.
SHARE_PAST_EDGE, PAST_EDGE = 0.1, 0.1


@stored
@dataclass(frozen=True)
class Mirroring:
    """What a mirror does to the targets of an image.

    "same" leaves them as they are. "boxes" are (x, y, width, height) in fractions of the image's sides, (x, y) the
    upper left corner: x becomes 1 - x - width.
    """

    targets: str

    def check(self, y: Array) -> None:
        """Raise unless these targets, (image, target), can be mirrored."""
        if self.targets != "boxes":
            return
        if y.shape[1] != 4:
            way_out = "give mirror='same' where a mirror image has the same targets, or None"
            raise ValueError(f"mirror='boxes' needs four targets (x, y, width, height), got {y.shape[1]}; {way_out}")
        ends = y[:, :2] + y[:, 2:]
        _check_fractions(y.min(), y.max())
        flat = np.flatnonzero((y[:, 2:] <= 0).any(axis=1))
        if len(flat):
            width, height = y[flat[0], 2:]
            raise ValueError(
                f"mirror='boxes' needs boxes wider and higher than 0, got {len(flat)} of {len(y)} that are not, first "
                f"image {flat[0]} with width {width:.6g} and height {height:.6g}; mend them or leave them out, or give "
                "mirror=None where the targets are no boxes"
            )
        past = np.flatnonzero((ends > 1 + PAST_EDGE).any(axis=1))
        if len(past) > SHARE_PAST_EDGE * len(y):  # as corners do where they are taken for widths and heights
            x_end, y_end = ends[past[0]]
            raise ValueError(
                f"mirror='boxes' needs boxes (x, y, width, height) inside their images, got {len(past)} of {len(y)} "
                f"far past the right or lower edge, first image {past[0]} with x + width = {x_end:.6g} and y + height "
                f"= {y_end:.6g}; if these are corners (x1, y1, x2, y2), give x2 - x1 as the width and y2 - y1 as the "
                "height, and if (x, y) is the centre, take off half the width and height"
            )
        _check_fractions(y.min(), ends.max())  # not one may end so far outside

    def flat(self, X: Any) -> Any:
        """Inputs (image, view, ...), an array or a tensor, as rows; contiguous ones are not copied."""
        return X.reshape(-1, *X.shape[2:])

    def rows(self, y: Array) -> Array:
        """Targets (image, target) as those of all rows."""
        return np.stack([y, self.mirrored(y)], axis=1).reshape(-1, y.shape[1])

    def own(self, values: Any, axis: int) -> Any:
        """The values of the images themselves, from an array or a tensor of values for all rows."""
        return values[(slice(None),) * axis + (slice(None, None, 2),)]

    def mirrored(self, y: Array | Tensor) -> Tensor:
        """Targets (..., target) of the mirror images; mirrored twice they are what they were."""
        if self.targets != "boxes":
            return torch.as_tensor(y)
        x, top, width, height = torch.as_tensor(y).unbind(dim=-1)
        return torch.stack([1 - x - width, top, width, height], dim=-1)

    def merged(self, mean: Tensor) -> Tensor:
        """One mean per image, in the user's units, from the means of all rows.

        It averages the prediction for the image and that for its mirror image, mirrored back. Half-widths are those of
        the image itself: a mirrored x depends on x and width, and how far their sum errs is unknown.

        Shape: `(..., row, target)` -> `(..., image, target)`.
        """
        return (mean[..., ::2, :] + self.mirrored(mean[..., 1::2, :])) / 2


def _check_fractions(lowest: float, highest: float) -> None:
    if lowest < -MARGIN or highest > 1 + MARGIN:
        got = f"boxes from {lowest:.6g} to {highest:.6g}; divide pixels by the width or height of their image"
        raise ValueError(f"mirror='boxes' needs boxes in fractions of the images' sides, got {got}")
