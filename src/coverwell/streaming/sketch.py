"""Ranks of more scores than fit into memory, from counts in bins that are as wide as the scores are large."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "RELATIVE_ERROR", "SMALLEST", "ScoreSketch"]

Array = NDArray[np.float64]

# A rank from the sketch lies between the exact one and this much more of it: intervals err on the wide side.
RELATIVE_ERROR = 1e-3
# Scores below the first edge count as the edge; those above the last are known by the largest alone.
SMALLEST, LARGEST = 1e-6, 1e6

LOG_STEP = math.log1p(RELATIVE_ERROR)
N_BINS = math.ceil(math.log(LARGEST / SMALLEST) / LOG_STEP)


class ScoreSketch:
    """Counts of non-negative scores, column by column, in logarithmic bins: 0.2 MB a column for any number of scores.

    Parameters
    ----------
    n_columns : int
        Each has ranks of its own.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = ScoreSketch(1)
    >>> sketch.add(np.arange(1.0, 101.0)[:, None])
    >>> value = sketch.ranked(90)[0]
    >>> bool(90 <= value <= 90 * 1.001)
    True
    """

    def __init__(self, n_columns: int) -> None:
        self.n_scores = 0
        self.counts = np.zeros((n_columns, N_BINS + 2), dtype=np.int64)
        self.largest = np.zeros(n_columns)

    def add(self, scores: Array) -> None:
        """Count scores (row, column)."""
        if scores.ndim != 2 or scores.shape[1] != len(self.counts):
            raise ValueError(f"scores must be (row, {len(self.counts)}), got the shape {scores.shape}")
        if not (np.isfinite(scores).all() and (scores >= 0).all()):
            raise ValueError("scores must be finite and not negative; look for extreme values in the targets")
        if not len(scores):
            return
        with np.errstate(divide="ignore"):  # a score of zero belongs to the first bin
            place = np.ceil(np.log(scores / SMALLEST) / LOG_STEP)
        bins = np.clip(place, 0, N_BINS + 1).astype(np.int64)
        for column, own in enumerate(bins.T):
            self.counts[column] += np.bincount(own, minlength=N_BINS + 2)
        self.largest = np.maximum(self.largest, scores.max(axis=0))
        self.n_scores += len(scores)

    def merge(self, other: ScoreSketch) -> None:
        """Count what another sketch has counted too."""
        self.counts += other.counts
        self.largest = np.maximum(self.largest, other.largest)
        self.n_scores += other.n_scores

    def ranked(self, rank: int) -> Array:
        """The score of this rank, counted from 1, in each column: at least the exact one.

        It is at most `RELATIVE_ERROR` of the exact one above it, and never above the largest score, except for scores
        below 1e-6, which count as that, and above 1e6, which count as the largest.
        """
        if not 1 <= rank <= self.n_scores:
            raise ValueError(f"the rank must be between 1 and the number of scores, {self.n_scores}, got {rank}")
        bins = (self.counts.cumsum(axis=1) >= rank).argmax(axis=1)
        edges = SMALLEST * np.exp(LOG_STEP * bins)
        # A score on an edge may round into either bin; the next double above the edge is above both.
        edges = np.where(bins > N_BINS, np.inf, edges * (1 + 1e-12))
        return np.minimum(edges, np.maximum(self.largest, SMALLEST))
