"""Values that came, and the intervals that were given for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bounds"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bounds:
    """One target, or one step ahead, at one level; all arrays have one entry for each value."""

    y: Array
    prediction: Array
    lower: Array
    upper: Array

    @property
    def inside(self) -> NDArray[np.bool_]:
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def width(self) -> Array:
        return self.upper - self.lower

    @property
    def missed_by(self) -> Array:
        """How far each value lies from its interval; 0 inside."""
        return np.maximum(self.lower - self.y, 0) + np.maximum(self.y - self.upper, 0)
