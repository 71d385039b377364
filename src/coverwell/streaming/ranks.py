"""Calibration by the scores of all rows of a stream, counted in sketches: memory does not grow with the rows.

The factor is never below that of exact ranks, and at most 0.1 % above it. With several repeats it comes from two ranks,
of averages and of single members, and is at most some 0.3 % above where members err nearly alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.calibration import Correction, Cross, Estimate, Split, deployed_factor, scores_by, scores_of
from coverwell.options import coverage_rank
from coverwell.predictor import FittedTeam
from coverwell.streaming.buffers import RowStream, TableRows
from coverwell.training.rows import Rows, Workers

Array = NDArray[np.float64]

# A rank from the sketch lies between the exact one and this much more of it: intervals err on the wide side.
RELATIVE_ERROR = 1e-3
# Scores below the first edge count as the edge; those above the last are known by the largest alone.
SMALLEST, LARGEST = 1e-6, 1e6

LOG_STEP = math.log1p(RELATIVE_ERROR)
N_BINS = math.ceil(math.log(LARGEST / SMALLEST) / LOG_STEP)


class ScoreSketch:
    """Counts of non-negative scores in logarithmic bins: 0.2 MB a target and level for any number of scores."""

    def __init__(self, n_targets: int, n_levels: int) -> None:
        self.n_scores = 0
        self.counts = np.zeros((n_targets, n_levels, N_BINS + 2), dtype=np.int64)
        self.largest = np.zeros((n_targets, n_levels))

    def add(self, scores: Array) -> None:
        """Count scores (row, target, level)."""
        if not (np.isfinite(scores).all() and (scores >= 0).all()):
            raise ValueError("scores must be finite and not negative; look for extreme values in the targets")
        with np.errstate(divide="ignore"):  # a score of zero belongs to the first bin
            place = np.ceil(np.log(scores / SMALLEST) / LOG_STEP)
        bins = np.clip(place, 0, N_BINS + 1).astype(np.int64)
        for target, level in np.ndindex(self.largest.shape):
            self.counts[target, level] += np.bincount(bins[:, target, level], minlength=N_BINS + 2)
        self.largest = np.maximum(self.largest, scores.max(axis=0, initial=0.0))
        self.n_scores += len(scores)

    def gather(self, workers: Workers) -> None:
        """Count what the sketches of all workers have counted."""
        counts, n_scores = workers.summed([torch.from_numpy(self.counts), torch.tensor(self.n_scores)])
        largest = workers.together(torch.from_numpy(self.largest.reshape(-1, 1))).amax(dim=1)
        self.counts, self.n_scores = counts.numpy(), int(n_scores)
        self.largest = largest.numpy().reshape(self.largest.shape)

    def ranked(self, rank: int) -> Array:
        """The score of this rank, counted from 1, (target, level): at least the exact one.

        It is at most `RELATIVE_ERROR` of the exact one above it, and never above the largest score, except for scores
        below 1e-6, which count as that, and above 1e6, which count as the largest.
        """
        if not 1 <= rank <= self.n_scores:
            raise ValueError(f"the rank must be between 1 and the number of scores, {self.n_scores}, got {rank}")
        bins = (self.counts.cumsum(axis=-1) >= rank).argmax(axis=-1)
        edges = SMALLEST * np.exp(LOG_STEP * bins)
        # A score on an edge may round into either bin; the next double above the edge is above both.
        edges = np.where(bins > N_BINS, np.inf, edges * (1 + 1e-12))
        return np.minimum(edges, np.maximum(self.largest, SMALLEST))

    def factor(self, levels: tuple[float, ...], workers: Workers | None = None) -> Array:
        """The score of each level's rank among all workers' scores, (target, level), as `rank_factor` gives it."""
        if workers is not None:
            self.gather(workers)
        ranks = [coverage_rank(level, self.n_scores) for level in levels]
        return np.stack([self.ranked(rank)[:, place] for place, rank in enumerate(ranks)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class StreamedCross(Cross):
    """Ranks of the out-of-fold scores of all rows, of which each worker counts a share.

    `left_out_estimate` gives each member's means and half-widths for the rows that it leaves out, (member, place, ...).
    """

    stream: RowStream
    left_out_estimate: Callable[[Rows], tuple[Tensor, Tensor]]

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        # Targets of a box are compared in units of the sample's factor: that of all rows is not known yet.
        of_sample = super().correction(teams, rows, members).factor
        assert of_sample is not None  # "cross" gives factors
        unit = np.maximum(of_sample.numpy(), SMALLEST)  # a target without noise has a factor of zero
        averaged, singles = (ScoreSketch(len(unit) + 1, unit.shape[1]) for _ in range(2))
        for part in self.stream.own_parts():
            y, estimate = self.out_of_fold(part)
            average = Estimate(estimate.mean.mean(axis=0), estimate.half_width.mean(axis=0))
            averaged.add(_with_joint(scores_of(y, average), unit))
            singles.add(_with_joint(scores_of(y, estimate).reshape(-1, *unit.shape), unit))
        factor, row_hash = averaged.factor(rows.levels[0], rows.workers), self.stream.row_hash
        if row_hash.repeats > 1:
            single = singles.factor(rows.levels[0], rows.workers)
            single = single / (1 + RELATIVE_ERROR)  # at most the exact one: the larger, the smaller the result
            factor = deployed_factor(factor, single, n_left_out=float(row_hash.repeats), n_members=row_hash.n_members)
        return Correction(factor[:-1], unit * factor[-1])

    def out_of_fold(self, part: TableRows) -> tuple[Array, Estimate]:
        """Targets, and the estimates of the members that leave a row out, one in each repeat: (repeat, row, ...)."""
        rows, row_hash = self.stream.rows(part), self.stream.row_hash
        by_repeat = []
        for outputs in self.left_out_estimate(rows):
            values = np.empty((row_hash.repeats, len(part.y), *outputs.shape[2:]))
            for member, left_out in enumerate(rows.leaves_out[0].cpu().numpy()):
                own = outputs[member, : left_out.sum()]
                values[member // row_hash.folds, left_out] = own.double().cpu().numpy()
            by_repeat.append(values)
        return self.stream.scaled(part.X, part.y)[1].numpy(), Estimate(*by_repeat)


@dataclass(frozen=True, kw_only=True)
class StreamedSplit(Split):
    """Ranks of the scores of the rows that were kept for them, of which each worker counts a share."""

    stream: RowStream

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        (team,), unit = teams, np.ones((rows.y.shape[-1], len(rows.levels[0])))
        sketch = ScoreSketch(len(unit) + 1, unit.shape[1])
        for part in self.stream.own_parts():
            kept = self.stream.row_hash.kept(part.keys)
            if kept.any():
                sketch.add(_with_joint(scores_by(team, part.X[kept], part.y[kept]), unit))
        factor = sketch.factor(rows.levels[0], rows.workers)
        return Correction(factor[:-1], unit * factor[-1])


def _with_joint(scores: Array, unit: Array) -> Array:
    """Scores (row, target, level), and as another target the largest of a row, each in its unit: that of a box."""
    return np.concatenate([scores, (scores / unit).max(axis=1, keepdims=True)], axis=1)
