"""The factor by which intervals are stretched, from the scores of all rows of a stream.

Scores go into a sketch (`coverwell.streaming.sketch`), so that memory does not grow with the rows. The factor is never
below that of exact ranks, and at most 0.1 % above it. With several repeats it comes from two ranks, of averages and of
single members, and is some 0.3 % above at most where members err nearly alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.algorithm import reach_of
from coverwell.calibration import Estimate, deployed_factor, stretch_scores
from coverwell.ensemble import Ensemble, shaped_by_both
from coverwell.folds import Problem
from coverwell.held_out import Stretch
from coverwell.matching import Matching
from coverwell.metrics import coverage_rank
from coverwell.streaming.row_hash import RowHash
from coverwell.streaming.rows import ReadRows, RowReader
from coverwell.streaming.sketch import RELATIVE_ERROR, SMALLEST, ScoreSketch
from coverwell.streaming.workers import ALONE, Workers
from coverwell.training import Learner

__all__ = ["Voices", "cross_stretch", "split_stretch"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Voices:
    """Both trained teams, as they speak about rows that they left out."""

    mean: Learner
    interval: Learner
    matching: Matching
    both: bool
    scale: Tensor  # (job, target)
    coverage: Tensor  # (job, level)

    @torch.no_grad()
    def about(self, rows: ReadRows, row_hash: RowHash) -> Estimate:
        """What the members that left a row out say about it, one in each repeat: (repeat, row, ...), scaled."""
        left_out = row_hash.left_out_by(rows.keys)
        problem = self._problem(rows, left_out)
        for learner in (self.mean, self.interval):
            learner.problem = problem
        of_mean, levels = self.mean.says_of_left_out(), problem.to_members(self.coverage)
        reach = reach_of(self.interval.says_of_left_out(), levels, problem.to_members(self.scale))
        if self.both:
            reach = shaped_by_both(self.matching, of_mean, reach, levels)
        mean = self.matching.mean(of_mean, rows.y.shape[-1])
        return Estimate(_by_repeat(mean, left_out, row_hash), _by_repeat(reach, left_out, row_hash))

    def _problem(self, rows: ReadRows, left_out: NDArray[np.bool_]) -> Problem:
        device = self.scale.device
        x, y = (torch.from_numpy(values).float()[None].to(device) for values in (rows.x, rows.y))
        speaks = torch.from_numpy(left_out)[None].to(device)
        return Problem(x, y, ~speaks, speaks, self.coverage)


def _by_repeat(said: Tensor, left_out: NDArray[np.bool_], row_hash: RowHash) -> Array:
    """What members say about the rows that they left out, (member, place, ...), as (repeat, row, ...)."""
    values = said.double().cpu().numpy()
    by_repeat = np.empty((row_hash.repeats, left_out.shape[1], *values.shape[2:]))
    for member, rows in enumerate(left_out):
        by_repeat[member // row_hash.folds, rows] = values[member, : int(rows.sum())]
    return by_repeat


def cross_stretch(
    voices: Voices,
    reader: RowReader,
    row_hash: RowHash,
    levels: tuple[float, ...],
    *,
    reference: Array,
    workers: Workers = ALONE,
) -> Stretch:
    """The stretch from the out-of-fold scores of all rows, of which each worker counts a share.

    For boxes that contain all targets together, scores are compared in units of `reference` (target, level), a factor
    that is about right: the exact one is known only when all rows have been ranked.
    """
    n_targets, n_levels = reference.shape
    reference = np.maximum(reference, SMALLEST)  # that of a law without noise may be zero
    averaged, single = ScoreSketch(n_targets * n_levels), ScoreSketch(n_targets * n_levels)
    joint_averaged, joint_single = ScoreSketch(n_levels), ScoreSketch(n_levels)
    for part in reader.files.parts()[workers.rank :: workers.size]:
        rows = reader.rows(part)
        said = voices.about(rows, row_hash)
        one_by_one = stretch_scores(rows.y, said)  # (repeat, row, target, level)
        together = stretch_scores(rows.y, Estimate(said.mean.mean(axis=0), said.reach.mean(axis=0)))
        for scores, own, joint in (
            (together, averaged, joint_averaged),
            (one_by_one.reshape(-1, n_targets, n_levels), single, joint_single),
        ):
            own.add(scores.reshape(len(scores), -1))
            joint.add((scores / reference).max(axis=1))
    for sketch in (averaged, single, joint_averaged, joint_single):
        _count_all(sketch, workers)
    factor = _deployed(averaged, single, row_hash, levels)
    return Stretch(factor, reference * _deployed(joint_averaged, joint_single, row_hash, levels))


def _deployed(averaged: ScoreSketch, single: ScoreSketch, row_hash: RowHash, levels: tuple[float, ...]) -> Array:
    factor = _ranked(averaged, levels)
    if row_hash.repeats == 1:
        return factor
    low = _ranked(single, levels) / (1 + RELATIVE_ERROR)  # at most the exact one: the more it is, the less comes out
    return deployed_factor(factor, low, n_left_out=float(row_hash.repeats), n_members=row_hash.n_members)


def split_stretch(
    ensemble: Ensemble,
    reader: RowReader,
    row_hash: RowHash,
    levels: tuple[float, ...],
    device: torch.device,
    *,
    workers: Workers = ALONE,
) -> Stretch:
    """The stretch from the scores of the rows that were kept for the ranks, by the whole team."""
    n_targets, n_levels = len(reader.targets.spread), len(levels)
    own, joint = ScoreSketch(n_targets * n_levels), ScoreSketch(n_levels)
    for part in reader.files.parts()[workers.rank :: workers.size]:
        frame = reader.files.read(part)
        kept = row_hash.kept(reader.layout.keys_of(frame, part))
        if not kept.any():
            continue
        y = reader.targets.transform(reader.layout.targets_of(frame, part)[kept])
        said = ensemble.estimate(reader.features(frame, part)[kept], device)
        scaled = Estimate(reader.targets.transform(said.mean), said.reach / reader.targets.spread[:, None, None])
        scores = stretch_scores(y, scaled)  # (row, target, level)
        own.add(scores.reshape(len(scores), -1))
        joint.add(scores.max(axis=1))
    for sketch in (own, joint):
        _count_all(sketch, workers)
    # The largest score as it is: in units of the factor it would depend on the rows that are ranked.
    return Stretch(_ranked(own, levels), np.broadcast_to(_ranked(joint, levels), (n_targets, n_levels)).copy())


def _count_all(sketch: ScoreSketch, workers: Workers) -> None:
    """Let a sketch of one worker's rows have counted those of all workers."""
    if workers.size == 1:
        return
    counts, n_scores = workers.summed([torch.from_numpy(sketch.counts), torch.tensor(sketch.n_scores)])
    sketch.counts, sketch.n_scores = counts.numpy(), int(n_scores)
    sketch.largest = workers.together(torch.from_numpy(sketch.largest)[:, None]).amax(dim=1).numpy()


def _ranked(sketch: ScoreSketch, levels: tuple[float, ...]) -> Array:
    """The score of each level's rank, (target, level)."""
    ranks = [coverage_rank(level, sketch.n_scores) for level in levels]
    by_rank = [sketch.ranked(rank).reshape(-1, len(levels))[:, place] for place, rank in enumerate(ranks)]
    return np.stack(by_rank, axis=-1)
