"""Inputs and targets brought to order one, from the training rows alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import ConstantDataWarning, ExtrapolationWarning

__all__ = [
    "ConstantDataWarning",
    "ExtrapolationWarning",
    "InputScaler",
    "Inputs",
    "TargetScaler",
    "UnscaledInputs",
    "varies",
]

Table = NDArray[np.float64]


@runtime_checkable
class Inputs(Protocol):
    """How rows are brought to what a network sees."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        ...

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows as the network sees them."""
        ...


@dataclass(frozen=True)
class InputScaler:
    """Each input minus its mean, over its standard deviation, bounded to the range seen in training.

    A network is free to say anything outside that range, so it is not asked there. Values beyond it by more than its
    width bring a warning as well.
    """

    centre: Table
    spread: Table
    low: Table
    high: Table

    @classmethod
    def of(cls, X: Table, *, bounded: bool = True) -> InputScaler:
        """The scaler of these training rows, shape `(row, ...)`; one that is not bounded has an endless range."""
        spread = X.std(axis=0)
        low, high = (X.min(axis=0), X.max(axis=0)) if bounded else (np.full_like(spread, b) for b in (-np.inf, np.inf))
        return cls(X.mean(axis=0), np.where(varies(X), spread, 1.0), low, high)

    @classmethod
    def around(cls, scalers: Sequence[InputScaler]) -> InputScaler:
        """The first scaler with the range of all: what teams that saw different rows have seen together."""
        low, high = np.min([s.low for s in scalers], axis=0), np.max([s.high for s in scalers], axis=0)
        return replace(scalers[0], low=low, high=high)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape

    def transform(self, X: Table) -> Table:
        return (np.clip(X, self.low, self.high) - self.centre) / self.spread

    def far_outside(self, X: Table) -> NDArray[np.bool_]:
        """Where a value lies outside the training range by more than that range."""
        margin = self.high - self.low
        far: NDArray[np.bool_] = (self.low - margin > X) | (self.high + margin < X)
        return far

    def warn_if_far_outside(self, X: Table, names: Sequence[str] | None) -> None:
        """Warn where a value lies far outside the training range."""
        far = self.far_outside(X)
        if not far.any():
            return
        columns = np.flatnonzero(far.any(axis=0))[:5]
        named = [names[c] if names is not None else f"column {c}" for c in columns]
        warnings.warn(
            f"{int(far.any(axis=1).sum())} of {len(X)} rows lie far outside the range of the training inputs "
            f"(in {', '.join(named)}); they are treated as lying on its border, and no interval is to be trusted there",
            ExtrapolationWarning,
            stacklevel=4,
        )


@dataclass(frozen=True)
class UnscaledInputs:
    """Rows as they are: what frozen layers say about images is of order one, and too much to be copied."""

    shape: tuple[int, ...]

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        return X


@dataclass(frozen=True)
class TargetScaler:
    """Each target minus a centre, over a spread: by standard deviation, or to [0, 1] as in the paper."""

    centre: Table
    spread: Table

    @classmethod
    def of(cls, y: Table, *, unit_range: bool) -> TargetScaler:
        """The scaler of these training targets, shape `(row, target)`."""
        centre, spread = (y.min(axis=0), np.ptp(y, axis=0)) if unit_range else (y.mean(axis=0), y.std(axis=0))
        return cls(centre, np.where(varies(y), spread, 1.0))

    def transform(self, y: Table) -> Table:
        return (y - self.centre) / self.spread

    def inverse(self, y: Table) -> Table:
        return y * self.spread + self.centre


def varies(values: Table) -> NDArray[np.bool_]:
    """Which columns have more than one value; their standard deviation may round to zero or be rounding alone."""
    varies: NDArray[np.bool_] = (np.ptp(values, axis=0) > 0) & (values.std(axis=0) > 0)
    return varies
