"""Calibration by the scores of all rows of a stream, counted in sketches: memory does not grow with the rows.

The factor is never below that of exact ranks, and at most 0.1 % above it. With several repeats it comes from two ranks,
of averages and of single members, and is at most some 0.3 % above where members err nearly alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.calibration import Correction, Cross, CrossScores, Estimate, Split, deployed_factor, scores_by, scores_of
from coverwell.metrics import coverage_rank
from coverwell.predictor import Predictor
from coverwell.streaming.buffers import PartRows, RowStream
from coverwell.training.rows import Rows, Workers

__all__ = ["RELATIVE_ERROR", "ScoreSketch", "StreamedCross", "StreamedSplit"]

Array = NDArray[np.float64]

# A rank from the sketch lies between the exact one and this much more of it: intervals err on the wide side.
RELATIVE_ERROR = 1e-3
# Scores below the first edge count as the edge; those above the last are known by the largest alone.
SMALLEST, LARGEST = 1e-6, 1e6

LOG_STEP = math.log1p(RELATIVE_ERROR)
N_BINS = math.ceil(math.log(LARGEST / SMALLEST) / LOG_STEP)


class ScoreSketch:
    """Counts of non-negative scores in logarithmic bins: 0.2 MB a target and level for any number of scores.

    Examples
    --------
    >>> import numpy as np
    >>> sketch = ScoreSketch(n_targets=1, n_levels=1)
    >>> sketch.add(np.arange(1.0, 101.0).reshape(100, 1, 1))
    >>> bool(90 <= sketch.ranked(90) <= 90 * 1.001)
    True
    """

    def __init__(self, n_targets: int, n_levels: int) -> None:
        self.n_scores = 0
        self.counts = np.zeros((n_targets, n_levels, N_BINS + 2), dtype=np.int64)
        self.largest = np.zeros((n_targets, n_levels))

    def add(self, scores: Array) -> None:
        """Count scores (row, target, level)."""
        if scores.shape[1:] != self.largest.shape:
            raise ValueError(f"scores must be (row, *{self.largest.shape}), got the shape {scores.shape}")
        if not (np.isfinite(scores).all() and (scores >= 0).all()):
            raise ValueError("scores must be finite and not negative; look for extreme values in the targets")
        if not len(scores):
            return
        with np.errstate(divide="ignore"):  # a score of zero belongs to the first bin
            place = np.ceil(np.log(scores / SMALLEST) / LOG_STEP)
        bins = np.clip(place, 0, N_BINS + 1).astype(np.int64)
        for target, level in np.ndindex(self.largest.shape):
            self.counts[target, level] += np.bincount(bins[:, target, level], minlength=N_BINS + 2)
        self.largest = np.maximum(self.largest, scores.max(axis=0))
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

    def factor(self, levels: tuple[float, ...]) -> Array:
        """The score of each level's rank, (target, level), as `rank_factor` gives it for scores in memory."""
        ranks = [coverage_rank(level, self.n_scores) for level in levels]
        return np.stack([self.ranked(rank)[:, place] for place, rank in enumerate(ranks)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class StreamedCross(Cross):
    """Ranks of the out-of-fold scores of all rows, of which each worker counts a share.

    `left_out_estimate` gives every member's means and half-widths for the rows that it leaves out, (member, place, ...).
    """

    stream: RowStream
    left_out_estimate: Callable[[Rows], tuple[Tensor, Tensor]]

    def correction(self, predictor: Predictor, rows: Rows, members: Estimate | None) -> Correction:
        # Targets of a box are compared in units of the sample's factor: the exact one needs the ranks of all rows.
        of_sample = super().correction(predictor, rows, members).factor
        assert of_sample is not None  # "cross" gives factors
        reference = np.maximum(of_sample.numpy(), SMALLEST)  # a target without noise has a factor of zero
        n_targets, n_levels = reference.shape
        own = ScoreSketch(n_targets, n_levels), ScoreSketch(n_targets, n_levels)
        joint = ScoreSketch(1, n_levels), ScoreSketch(1, n_levels)
        for part in self.stream.own_parts():
            scores = self.scores(part)
            for (averaged, singles), these in ((own, scores), (joint, scores.joint(reference))):
                averaged.add(these.averaged)
                singles.add(these.singles)
        for sketch in (*own, *joint):
            sketch.gather(rows.workers)
        return Correction(self._factor(*own, predictor.levels), reference * self._factor(*joint, predictor.levels))

    def scores(self, part: PartRows) -> CrossScores:
        """The out-of-fold scores of a part: of averages over repeats, and of single members."""
        rows, y = self.stream.rows(part), self.stream.scaled(part.X, part.y)[1].numpy()
        members = Estimate(*(self._by_repeat(values, rows) for values in self.left_out_estimate(rows)))
        singles = scores_of(y, members)  # (repeat, row, target, level)
        return CrossScores(
            averaged=scores_of(y, Estimate(members.mean.mean(axis=0), members.half_width.mean(axis=0))),
            singles=singles.reshape(-1, *singles.shape[2:]),
            n_left_out=float(self.stream.row_hash.repeats),
            n_members=self.stream.row_hash.n_members,
        )

    def _by_repeat(self, outputs: Tensor, rows: Rows) -> Array:
        """Outputs for left-out rows, (member, place, ...), as (repeat, row, ...): one member leaves a row out in each."""
        values, row_hash = outputs.double().cpu().numpy(), self.stream.row_hash
        by_repeat = np.empty((row_hash.repeats, rows.y.shape[1], *values.shape[2:]))
        for member, left_out in enumerate(rows.leaves_out[0].cpu().numpy()):
            by_repeat[member // row_hash.folds, left_out] = values[member, : left_out.sum()]
        return by_repeat

    def _factor(self, averaged: ScoreSketch, singles: ScoreSketch, levels: tuple[float, ...]) -> Array:
        factor, row_hash = averaged.factor(levels), self.stream.row_hash
        if row_hash.repeats == 1:
            return factor
        single = singles.factor(levels) / (1 + RELATIVE_ERROR)  # at most the exact one: more of it gives a smaller factor
        return deployed_factor(factor, single, n_left_out=float(row_hash.repeats), n_members=row_hash.n_members)


@dataclass(frozen=True, kw_only=True)
class StreamedSplit(Split):
    """Ranks of the scores of the rows that were kept for them, of which each worker counts a share."""

    stream: RowStream

    def correction(self, predictor: Predictor, rows: Rows, members: Estimate | None) -> Correction:
        (team,), levels = predictor.fitted_teams, predictor.levels
        own, joint = ScoreSketch(rows.y.shape[-1], len(levels)), ScoreSketch(1, len(levels))
        for part in self.stream.own_parts():
            kept = self.stream.row_hash.kept(part.keys)
            if kept.any():
                scores = scores_by(team, part.X[kept], part.y[kept])
                own.add(scores)
                joint.add(scores.max(axis=1, keepdims=True))
        for sketch in (own, joint):
            sketch.gather(rows.workers)
        factor = own.factor(levels)
        return Correction(factor, np.broadcast_to(joint.factor(levels), factor.shape).copy())
