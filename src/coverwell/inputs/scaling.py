"""Inputs and targets brought to order one, from the training rows alone, and images beside their mirror images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.errors import ConstantDataWarning, ExtrapolationWarning, FarOffTargetWarning, TwoValuesWarning
from coverwell.options import stored

Array = NDArray[np.float64]
Known = Array | None

LARGEST_NUMBER = 1e150  # the square of a number beyond this is no longer finite
FEWEST_OF_TWO_VALUES = 20  # rows, from which on two values look like classes
FAR_OUTSIDE = 0.5  # of the training range: further out a single row brings a warning
BY_CHANCE = 0.01  # at most, that rows like those of the fit are said to lie outside its range
MOST_NAMED = 5  # columns
# A target is far off if it lies so many times as far from the median as the given share of the targets.
FAR_OFF, MOST_TARGETS = 30.0, 0.9
MARGIN = 0.5  # sides of the image that a box may lie outside of it before it is taken for one in pixels
# A few boxes of any collection run past the edge. Where more than this share does so, each by more than this part of
# the side, the numbers are no widths and heights.
SHARE_PAST_EDGE, PAST_EDGE = 0.1, 0.1


@stored
class Scaling(nn.Module):
    """Each number minus a centre, over a spread; inputs are also held within the range seen in training.

    A network can output anything outside that range, so it is never asked there. Features of images are used as they
    are: `Scaling(shape)`. `n_rows` is how many training rows had set the range, those that belong together counted as
    one; 0 if that is not known.

    Shape: input and output `(..., *shape)`.
    """

    # All None where rows are used as they are; targets have no bounds.
    centre: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        shape: Iterable[int],
        centre: Known = None,
        spread: Known = None,
        low: Known = None,
        high: Known = None,
        *,
        n_rows: int = 0,
    ) -> None:
        super().__init__()
        self.shape, self.n_rows = tuple(shape), n_rows
        for name, values in {"centre": centre, "spread": spread, "low": low, "high": high}.items():
            known = None if values is None else torch.tensor(np.reshape(values, self.shape), dtype=torch.float64)
            self.register_buffer(name, known)

    @classmethod
    def of(cls, values: Array, *, bounded: bool | None = None, unit_range: bool = False, units: Any = None) -> Scaling:
        """The scaling of training rows `(row, *shape)`, by standard deviation, or to [0, 1] as in the paper.

        Inputs are `bounded` by their range or, if False, by infinity; targets (None) have no bounds. Rows of one unit
        (row,) belong together.
        """
        low, high = values.min(axis=0), values.max(axis=0)
        centre, spread = (low, high - low) if unit_range else (values.mean(axis=0), values.std(axis=0))
        if bounded is False:
            low, high = np.full_like(spread, -np.inf), np.full_like(spread, np.inf)
        known = centre, np.where(varies(values), spread, 1.0)
        if bounded is None:
            return cls(spread.shape, *known)
        return cls(spread.shape, *known, low, high, n_rows=len(values if units is None else np.unique(units)))

    @classmethod
    def unit(cls, n: int) -> Scaling:
        """Numbers as they are, such as one for each class."""
        return cls((n,), np.zeros(n), np.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        if self.centre is None:
            return x
        x = x if self.low is None else x.clamp(self.low, self.high)
        return (x - self.centre) / self.spread

    def inverse(self, x: Tensor) -> Tensor:
        """Scaled values in the user's units."""
        return x if self.centre is None else x * self.spread + self.centre

    def widened(self, other: Scaling) -> Scaling:
        """This scaling with the range of both: what teams that trained on different rows have seen together."""
        if self.low is None or other.low is None:
            return self
        low, high = torch.minimum(self.low.cpu(), other.low.cpu()), torch.maximum(self.high.cpu(), other.high.cpu())
        arrays = (buffer.cpu().numpy() for buffer in (self.centre, self.spread, low, high))
        return Scaling(self.shape, *arrays, n_rows=max(self.n_rows, other.n_rows))

    def unbounded(self, X: Array) -> Array:
        """Scaled values, not held within the range."""
        scaled: Array = (X - self.centre.cpu().numpy()) / self.spread.cpu().numpy()
        return scaled

    def unlikeness(self, X: Array) -> Array:
        """The mean square of each row's scaled values, not held within the range; about 1 in training."""
        mean_squares: Array = (self.unbounded(X) ** 2).reshape(len(X), -1).mean(axis=1)
        return mean_squares

    def outside(self, X: Array, by: float = 0.0) -> NDArray[np.bool_]:
        """Where a value lies outside the training range, by more than a multiple of that range."""
        if self.low is None:
            return np.zeros(X.shape, dtype=bool)
        low, high = self.low.cpu().numpy(), self.high.cpu().numpy()
        margin = by * (high - low) if by else 0.0  # of no bounds, 0 times infinity
        outside: NDArray[np.bool_] = (low - margin > X) | (high + margin < X)
        return outside

    def count_outside(self, X: Array) -> Outside:
        """How many of some rows lie outside the training range."""
        flat = len(X), int(np.prod(X.shape[1:]))
        beyond, n_far = self.outside(X).reshape(flat), 0
        n_outside = int(beyond.any(axis=1).sum())
        if n_outside:
            n_far = int(self.outside(X, FAR_OUTSIDE).reshape(flat).any(axis=1).sum())
        return Outside(len(X), n_outside, n_far, beyond.sum(axis=0), self.n_rows)


@dataclass(frozen=True)
class Outside:
    """How many rows lie outside the training range.

    Parameters
    ----------
    n_rows : of how many
    n_outside, n_far : in some column; by more than half the range
    by_column : in each
    n_fitted : how many rows had set the range; 0 if that is not known
    """

    n_rows: int
    n_outside: int
    n_far: int
    by_column: NDArray[np.intp]
    n_fitted: int

    def __add__(self, other: Outside) -> Outside:
        counts = self.n_rows + other.n_rows, self.n_outside + other.n_outside, self.n_far + other.n_far
        return Outside(*counts, self.by_column + other.by_column, self.n_fitted)

    @property
    def odd(self) -> NDArray[np.bool_]:
        """In which columns more rows lie outside than by chance.

        Of n rows in that range and m like them, k of the latter at the ends of the order have a probability of at most
        (k + 1) (m / (m + n))^k.
        """
        k, m = self.by_column, self.n_rows
        chance = (k + 1) * (m / max(m + self.n_fitted, 1)) ** k
        odd: NDArray[np.bool_] = (k > 0) & (chance * max(len(k), 1) < BY_CHANCE)
        return odd

    def in_columns(self, names: Sequence[str] | None, odd: NDArray[np.bool_] | None = None) -> str:
        """The columns in which rows lie outside, those with most of them first."""
        count = self.by_column if odd is None else np.where(odd, self.by_column, 0)
        columns = [place for place in np.argsort(-count, kind="stable")[:MOST_NAMED] if count[place]]
        return ", ".join(f"column {c}" if names is None else str(names[c]) for c in columns)

    def warn(self, names: Sequence[str] | None, stacklevel: int = 5) -> None:
        """Warn of rows far outside, and of more rows outside than by chance."""
        if not self.n_far and not self.odd.any():
            return
        where = f"outside the range of the training inputs (in {self.in_columns(names)})"
        far = f", {self.n_far} of them by more than half of it" if self.n_far else ""
        held = "networks and forests treat them as lying on its border, and their intervals are not to be trusted"
        warnings.warn(
            f"{self.n_outside} of {self.n_rows} rows lie {where}{far}; {held}", ExtrapolationWarning, stacklevel
        )


def varies(values: Array) -> NDArray[np.bool_]:
    """Which columns have more than one value; their standard deviation may round to zero or be rounding alone."""
    varies: NDArray[np.bool_] = (np.ptp(values, axis=0) > 0) & (values.std(axis=0) > 0)
    return varies


def without_far_off(y: Array) -> Array:
    """Targets (row, target) to learn from: those that are far off stand at the next ordinary value on their side."""
    distance = np.abs(y - np.median(y, axis=0))
    unit = np.quantile(distance, MOST_TARGETS, axis=0, method="lower")
    for target in np.flatnonzero(unit == 0):  # most rows have one value: those of the others count
        others = distance[distance[:, target] > 0, target]
        unit[target] = np.quantile(others, MOST_TARGETS, method="lower") if len(others) else np.inf
    ordinary = np.where(distance <= FAR_OFF * unit, y, np.nan)
    return np.clip(y, np.nanmin(ordinary, axis=0), np.nanmax(ordinary, axis=0))


def warn_of_far_off(y: Array) -> None:
    """Warn of targets (row, target) that networks do not learn from as they are."""
    learned = without_far_off(y)
    if not len(far := np.argwhere(y != learned)):
        return
    n_rows, (row, column) = len(np.unique(far[:, 0])), far[0]
    which = f"{n_rows} of {len(y)} targets lie {FAR_OFF:g} times as far from the median as {MOST_TARGETS:.0%} do"
    held = f"they count as missed, and are learned from as if they were {learned[row, column]:.6g}"
    message = f"{which} (first row {row}, counted from 0, with {y[row, column]:g}): {held}; mend them if they are wrong"
    warnings.warn(message, FarOffTargetWarning, stacklevel=4)


def check_values(X: Array | None, y: Array | None) -> None:
    """Raise for numbers whose squares are not finite; warn of columns and targets that hardly vary."""
    for name, values in (("X", X), ("y", y)):
        if values is not None and (largest := np.abs(values).max()) > LARGEST_NUMBER:
            must = f"must lie within {LARGEST_NUMBER:g} of zero"
            raise ValueError(f"{name} {must}, got {largest:g}; give it in larger units")
    if X is not None and len(constant := np.flatnonzero(~varies(X))):
        message = f"{len(constant)} of {X.shape[1]} columns of X are constant and carry no information"
        warnings.warn(f"{message} (the first: column {constant[0]})", ConstantDataWarning, stacklevel=3)
    if y is None:  # classes
        return
    if X is not None and X.ndim == 2:
        warn_of_far_off(y)
    if not varies(y).all():
        warnings.warn("y is constant: its intervals will be close to empty", ConstantDataWarning, stacklevel=3)
    low, high = y.min(axis=0), y.max(axis=0)
    two = np.flatnonzero(((y == low) | (y == high)).all(axis=0) & (high > low))
    if len(two) and len(y) >= FEWEST_OF_TWO_VALUES:
        which, ends = "y" if y.shape[1] == 1 else f"column {two[0]} of y", f"{low[two[0]]:g} and {high[two[0]]:g}"
        way_out = "if they are classes, take MatchedClassifier; with calibration='local'"
        message = f"{which} has only two values, {ends}: {way_out}, intervals will end at them"
        warnings.warn(message, TwoValuesWarning, stacklevel=3)


@stored
@dataclass(frozen=True)
class Mirroring:
    """What a mirror does to the targets of an image.

    "same" leaves them as they are. "boxes" are (x, y, width, height) in fractions of the image's sides, (x, y) the
    upper left corner: x becomes 1 - x - width.
    """

    targets: str

    def check(self, y: NDArray[Any]) -> None:
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
