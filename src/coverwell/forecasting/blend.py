"""Width factors that follow misses at several rates, blended by how well each has done lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coverwell.forecasting.history import Array

# Chosen on made-up series and on the training parts of six public ones (benchmarks/results/range.md).
BLENDED = (0.01, 0.03, 0.1, 0.3)
CORRECTION = 0.01  # the rate of the misses of the intervals as they were given, on top of the blend
EAGERNESS, SHARE, LARGEST_LOSS = 2.0, 0.02, 3.0


class Blend:
    """The logarithm of a factor for each step and level: a weighted mean over rates.

    Each rate follows the misses of its own width. After each truth its weight falls with the pinball loss of that width
    (exponential weights), and a small share of all weight is dealt out evenly (fixed share, Herbster and Warmuth 1998),
    so that a rate that did badly can come back.
    """

    def __init__(self, levels: Sequence[float], horizon: int, limit: float) -> None:
        self.levels, self.limit = np.array(levels), limit
        self.rates = np.array(BLENDED)[:, None, None]
        shape = len(BLENDED), horizon, len(levels)
        self.log_factors, self.weights = np.zeros(shape), np.full(shape, 1 / len(BLENDED))

    @property
    def log_factor(self) -> Array:
        mean: Array = (self.weights * self.log_factors).sum(axis=0)
        return mean

    def follow(self, error: Array) -> None:
        """Take in the size of errors in learned half-widths, (step, level); NaN where there is none."""
        width, p, known = np.exp(self.log_factors), self.levels, ~np.isnan(error)
        missed = error > width
        loss = np.where(missed, p * (error - width), (1 - p) * (width - error)) / np.exp(self.log_factor)
        weights = self.weights * np.exp(-EAGERNESS * np.minimum(loss, LARGEST_LOSS))
        weights = (1 - SHARE) * weights / weights.sum(axis=0) + SHARE / len(weights)
        moved = (self.log_factors + self.rates * (missed - (1 - p))).clip(-self.limit, self.limit)
        self.weights, self.log_factors = (
            np.where(known, weights, self.weights),
            np.where(known, moved, self.log_factors),
        )

    def state_dict(self) -> dict[str, Any]:
        return {"log_factors": self.log_factors.tolist(), "weights": self.weights.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, if it can be one of this blend."""
        arrays = {name: np.array(state[name], dtype=np.float64) for name in ("log_factors", "weights")}
        log_factors, weights = arrays.values()
        if not (log_factors.shape == weights.shape == self.weights.shape and (np.abs(log_factors) <= self.limit).all()):
            raise ValueError(f"log factors of rates must have the shape {self.weights.shape} and lie within the bound")
        if not ((weights > 0).all() and np.allclose(weights.sum(axis=0), 1)):
            raise ValueError("weights of rates must be positive and add up to 1")
        self.log_factors, self.weights = log_factors, weights
