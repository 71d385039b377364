"""Inputs and targets brought to order one, from the training rows alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.errors import ExtrapolationWarning
from coverwell.options import stored

__all__ = ["InputScaling", "TargetScaling", "varies"]

Array = NDArray[np.float64]


@stored
class InputScaling(nn.Module):
    """Each input minus its mean, over its standard deviation, held within the range seen in training.

    A network can output anything outside that range, so it is never asked there. Values further outside than the range
    is wide bring a warning as well. Features of images are used as they are: `identity`.

    Shape: input and output `(row, *shape)`.
    """

    centre: Tensor | None
    spread: Tensor | None
    low: Tensor | None
    high: Tensor | None

    def __init__(
        self,
        shape: Iterable[int],
        centre: Array | None = None,
        spread: Array | None = None,
        low: Array | None = None,
        high: Array | None = None,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        for name, values in {"centre": centre, "spread": spread, "low": low, "high": high}.items():
            self.register_buffer(name, None if values is None else torch.tensor(values, dtype=torch.float64))

    @classmethod
    def of(cls, X: Array, *, bounded: bool = True) -> InputScaling:
        """The scaling of these training rows; one that is not bounded has an endless range."""
        spread = X.std(axis=0)
        low, high = (X.min(axis=0), X.max(axis=0)) if bounded else (np.full_like(spread, b) for b in (-np.inf, np.inf))
        return cls(spread.shape, X.mean(axis=0), np.where(varies(X), spread, 1.0), low, high)

    @classmethod
    def identity(cls, shape: Iterable[int]) -> InputScaling:
        """Rows of this shape as they are."""
        return cls(shape)

    def forward(self, x: Tensor) -> Tensor:
        if self.centre is None:
            return x
        return (x.clamp(self.low, self.high) - self.centre) / self.spread

    def widened(self, other: InputScaling) -> InputScaling:
        """This scaling with the range of both: what teams that trained on different rows have seen together."""
        if self.centre is None or self.spread is None or self.low is None or self.high is None:
            return self
        assert other.low is not None and other.high is not None  # teams of one model are scaled alike
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return InputScaling(self.shape, *(b.cpu().numpy() for b in (self.centre, self.spread, low, high)))

    def far_outside(self, X: Array) -> NDArray[np.bool_]:
        """Where a value lies outside the training range by more than that range."""
        if self.low is None or self.high is None:
            return np.zeros(X.shape, dtype=bool)
        low, high = self.low.cpu().numpy(), self.high.cpu().numpy()
        margin = high - low
        far: NDArray[np.bool_] = (low - margin > X) | (high + margin < X)
        return far

    def warn_if_far_outside(self, X: Array, names: Sequence[str] | None) -> None:
        """Warn where a value lies far outside the training range."""
        far = self.far_outside(X)
        if not far.any():
            return
        columns = np.flatnonzero(far.any(axis=0))[:5]
        shown = [str(names[c]) if names is not None else f"column {c}" for c in columns]
        warnings.warn(
            f"{int(far.any(axis=1).sum())} of {len(X)} rows lie far outside the range of the training inputs "
            f"(in {', '.join(shown)}); they are treated as lying on its border, and no interval is to be trusted there",
            ExtrapolationWarning,
            stacklevel=4,
        )


@stored
class TargetScaling(nn.Module):
    """Each target minus a centre, over a spread: by standard deviation, or to [0, 1] as in the paper.

    Shape: input and output `(..., target)`.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, centre: Array, spread: Array) -> None:
        super().__init__()
        self.register_buffer("centre", torch.tensor(centre, dtype=torch.float64))
        self.register_buffer("spread", torch.tensor(spread, dtype=torch.float64))

    @classmethod
    def of(cls, y: Array, *, unit_range: bool) -> TargetScaling:
        """The scaling of these training targets, shape `(row, target)`."""
        centre, spread = (y.min(axis=0), np.ptp(y, axis=0)) if unit_range else (y.mean(axis=0), y.std(axis=0))
        return cls(centre, np.where(varies(y), spread, 1.0))

    def forward(self, y: Tensor) -> Tensor:
        return (y - self.centre) / self.spread

    def inverse(self, y: Tensor) -> Tensor:
        """Scaled values in the user's units."""
        return y * self.spread + self.centre


def varies(values: Array) -> NDArray[np.bool_]:
    """Which columns have more than one value; their standard deviation may round to zero or be rounding alone."""
    varies: NDArray[np.bool_] = (np.ptp(values, axis=0) > 0) & (values.std(axis=0) > 0)
    return varies
