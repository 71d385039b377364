"""Inputs and targets brought to order one, from the training rows alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.errors import ConstantDataWarning, ExtrapolationWarning
from coverwell.options import stored

Array = NDArray[np.float64]
Known = Array | None

LARGEST_NUMBER = 1e150  # the square of a number beyond this is no longer finite


@stored
class Scaling(nn.Module):
    """Each number minus a centre, over a spread; inputs are also held within the range seen in training.

    A network can output anything outside that range, so it is never asked there. Values further outside than the range
    is wide bring a warning as well. Features of images are used as they are: `Scaling(shape)`.

    Shape: input and output `(..., *shape)`.
    """

    # All None where rows are used as they are; targets have no bounds.
    centre: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, shape: Iterable[int], centre: Known = None, spread: Known = None, low: Known = None, high: Known = None
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        for name, values in {"centre": centre, "spread": spread, "low": low, "high": high}.items():
            known = None if values is None else torch.tensor(np.reshape(values, self.shape), dtype=torch.float64)
            self.register_buffer(name, known)

    @classmethod
    def of(cls, values: Array, *, bounded: bool | None = None, unit_range: bool = False) -> Scaling:
        """The scaling of training rows `(row, *shape)`, by standard deviation, or to [0, 1] as in the paper.

        Inputs are `bounded` by their range or, if False, by infinity; targets (None) have no bounds.
        """
        low, high = values.min(axis=0), values.max(axis=0)
        centre, spread = (low, high - low) if unit_range else (values.mean(axis=0), values.std(axis=0))
        if bounded is False:
            low, high = np.full_like(spread, -np.inf), np.full_like(spread, np.inf)
        bounds = () if bounded is None else (low, high)
        return cls(spread.shape, centre, np.where(varies(values), spread, 1.0), *bounds)

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
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Scaling(self.shape, *(buffer.cpu().numpy() for buffer in (self.centre, self.spread, low, high)))

    def far_outside(self, X: Array) -> NDArray[np.bool_]:
        """Where a value lies outside the training range by more than that range."""
        if self.low is None:
            return np.zeros(X.shape, dtype=bool)
        low, high = self.low.cpu().numpy(), self.high.cpu().numpy()
        margin = high - low
        far: NDArray[np.bool_] = (low - margin > X) | (high + margin < X)
        return far

    def warn_if_far_outside(self, X: Array, names: Sequence[str] | None) -> None:
        """Warn where a value lies far outside the training range."""
        far = self.far_outside(X)
        if far.any():
            columns = np.flatnonzero(far.any(axis=0))[:5]
            shown = ", ".join(f"column {c}" if names is None else str(names[c]) for c in columns)
            where = f"far outside the range of the training inputs (in {shown})"
            held = "they are treated as lying on its border, and no interval is to be trusted there"
            message = f"{int(far.any(axis=1).sum())} of {len(X)} rows lie {where}; {held}"
            warnings.warn(message, ExtrapolationWarning, stacklevel=4)


def varies(values: Array) -> NDArray[np.bool_]:
    """Which columns have more than one value; their standard deviation may round to zero or be rounding alone."""
    varies: NDArray[np.bool_] = (np.ptp(values, axis=0) > 0) & (values.std(axis=0) > 0)
    return varies


def check_values(X: Array | None, y: Array) -> None:
    """Raise for numbers whose squares are not finite; warn of columns and targets that do not vary."""
    for name, values in (("X", X), ("y", y)):
        if values is not None and (largest := np.abs(values).max()) > LARGEST_NUMBER:
            must = f"must lie within {LARGEST_NUMBER:g} of zero"
            raise ValueError(f"{name} {must}, got {largest:g}; give it in larger units")
    if X is not None and len(constant := np.flatnonzero(~varies(X))):
        message = f"{len(constant)} of {X.shape[1]} columns of X are constant and carry no information"
        warnings.warn(f"{message} (the first: column {constant[0]})", ConstantDataWarning, stacklevel=3)
    if not varies(y).all():
        warnings.warn("y is constant: its intervals will be close to empty", ConstantDataWarning, stacklevel=3)
