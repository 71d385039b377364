"""Ranks: how much the learned intervals must be stretched to reach the asked coverage.

The score of a row is the factor by which its interval would have to be stretched to just contain its target. None of
the statements below is conditional on x: they speak of the average over rows.

- cross: ranks of out-of-fold scores. Every row trains. Near the asked level as measured; no finite-sample theorem.
- cv+: the interval of each left-out team, stretched by the scores of the rows it left out. Covers at least 2p - 1 less
  a small term, for exchangeable rows (Barber et al. 2021).
- split: ranks of rows that touched nothing before. Covers at least p on average, for exchangeable rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coverwell.metrics import coverage_rank

__all__ = [
    "CrossScores",
    "Estimate",
    "average",
    "cross_factor",
    "cross_scores",
    "cv_plus_bounds",
    "deployed_factor",
    "rank_factor",
    "stretch_scores",
]

Array = NDArray[np.float64]

# A reach of zero would need an infinite factor.
SMALLEST_REACH = 1e-12
# How many numbers CV+ holds at a time.
CHUNK = 2**24


@dataclass(frozen=True)
class Estimate:
    """A mean and how far the interval reaches below and above it, for some rows.

    Attributes
    ----------
    mean : array (..., row, target)
    reach : array (..., row, target, side, level)
    """

    mean: Array
    reach: Array

    def bounds(self, factor: Array | float) -> tuple[Array, Array]:
        """Lower and upper bounds (row, target, level), the reach multiplied by a factor (target, level)."""
        below, above = self.reach[..., 0, :], self.reach[..., 1, :]
        return self.mean[..., None] - factor * below, self.mean[..., None] + factor * above


@dataclass(frozen=True)
class CrossScores:
    """Out-of-fold scores, (row, target, level), and the sizes of the teams behind them."""

    averaged: Array
    singles: Array
    n_left_out: float
    n_members: int

    def joint(self, factor: Array) -> CrossScores:
        """One score for all targets: the largest, each in units of its own factor."""
        return replace(
            self,
            averaged=(self.averaged / factor).max(axis=1, keepdims=True),
            singles=(self.singles / factor).max(axis=1, keepdims=True),
        )


def stretch_scores(y: Array, estimate: Estimate) -> Array:
    """The factor by which each interval must be stretched to just contain y, (..., row, target, level)."""
    residual = (y - estimate.mean)[..., None]
    below = np.maximum(estimate.reach[..., 0, :], SMALLEST_REACH)
    above = np.maximum(estimate.reach[..., 1, :], SMALLEST_REACH)
    return np.maximum(-residual / below, residual / above)


def rank_factor(scores: Array, coverage: tuple[float, ...]) -> Array:
    """The k-th smallest score of each target and level; scores (row, target, level) -> (target, level)."""
    ordered = np.sort(scores, axis=0)
    ranks = [coverage_rank(level, len(scores)) - 1 for level in coverage]
    return np.stack([ordered[k, :, position] for position, k in enumerate(ranks)], axis=-1)


def average(estimate: Estimate, speaks: NDArray[np.bool_]) -> Estimate:
    """The average over the members that speak about a row: (member, row, ...) -> (row, ...)."""
    weight = speaks / np.maximum(speaks.sum(axis=0), 1)
    return Estimate(np.einsum("mr,mrt->rt", weight, estimate.mean), np.einsum("mr,mrtsl->rtsl", weight, estimate.reach))


def cross_scores(y: Array, members: Estimate, speaks: NDArray[np.bool_]) -> CrossScores:
    """Out-of-fold scores of the averages over the members that left a row out, and of those members one by one."""
    heard = speaks.any(axis=0)
    y, speaks = y[heard], speaks[:, heard]
    members = Estimate(members.mean[:, heard], members.reach[:, heard])
    return CrossScores(
        averaged=stretch_scores(y, average(members, speaks)),
        singles=stretch_scores(y, members)[speaks],  # (member, row, ...) -> (member and row, ...)
        n_left_out=float(speaks.sum(axis=0).mean()),
        n_members=len(speaks),
    )


def cross_factor(scores: CrossScores, coverage: tuple[float, ...]) -> Array:
    """The factor (target, level) from out-of-fold ranks, brought from the size of an out-of-fold team to the whole one.

    With one member per row there is nothing to compare: the plain rank is taken.
    """
    factor = rank_factor(scores.averaged, coverage)
    if scores.n_left_out <= 1:
        return factor
    single = rank_factor(scores.singles, coverage)
    return deployed_factor(factor, single, n_left_out=scores.n_left_out, n_members=scores.n_members)


def deployed_factor(factor: Array, single: Array, *, n_left_out: float, n_members: int) -> Array:
    """The factor of the whole team, from that of averages over the members that leave a row out and of single members.

    A row is left out by r members, but M members are deployed, whose average errs less. Members are exchangeable for a
    row that none of them trained on, so a squared error has the expectation a + b / r for an average over r of them,
    and so, to first order, has the square of the factor. Ranks of averages (r members) and of single members (r = 1)
    give a and b, hence the value at M.
    """
    r, M = n_left_out, n_members
    slope = np.maximum(single**2 - factor**2, 0.0) / (1 - 1 / r)  # b
    deployed = factor**2 - slope * (1 / r - 1 / M)
    least = factor**2 * r / M  # as if all of the error were the members' disagreement
    result: Array = np.sqrt(np.maximum(deployed, least))
    return result


def cv_plus_bounds(estimates: list[Estimate], scores: list[Array], coverage: tuple[float, ...]) -> tuple[Array, Array]:
    """CV+ bounds (row, target, level) from each left-out team's estimate and the scores of the rows it left out."""
    n_scores = sum(len(part) for part in scores)
    n_rows = len(estimates[0].mean)
    step = max(1, CHUNK // n_scores)
    parts = [
        _cv_plus_part([Estimate(e.mean[i : i + step], e.reach[i : i + step]) for e in estimates], scores, coverage)
        for i in range(0, n_rows, step)
    ]
    lower, upper = (np.concatenate(side) for side in zip(*parts, strict=True))
    return lower, upper


def _cv_plus_part(estimates: list[Estimate], scores: list[Array], coverage: tuple[float, ...]) -> tuple[Array, Array]:
    n_scores = sum(len(part) for part in scores)
    centre = np.mean([e.mean for e in estimates], axis=0)
    lower, upper = [], []
    for position, level in enumerate(coverage):
        k = coverage_rank(level, n_scores)
        ends = [_stretched(e, part[:, None, :, position], position) for e, part in zip(estimates, scores, strict=True)]
        below = np.sort(np.concatenate([end[0] for end in ends]), axis=0)  # (score, row, target)
        above = np.sort(np.concatenate([end[1] for end in ends]), axis=0)
        # The bounds of two teams may cross; an interval that holds the prediction only covers more.
        lower.append(np.minimum(below[n_scores - k], centre))
        upper.append(np.maximum(above[k - 1], centre))
    return np.stack(lower, axis=-1), np.stack(upper, axis=-1)


def _stretched(estimate: Estimate, scores: Array, position: int) -> tuple[Array, Array]:
    """Both ends of one level, stretched by every score: (score, 1, target) -> (score, row, target)."""
    reach = estimate.reach[..., position]
    return estimate.mean - scores * reach[..., 0], estimate.mean + scores * reach[..., 1]
