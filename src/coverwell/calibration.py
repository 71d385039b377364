"""Calibration: how much learned intervals must be widened or narrowed to reach the asked coverage.

The score of a row is the factor by which its interval would just contain its target. Each calibration is one object: it
decides which rows it ranks, how their ranks become a correction, and what that promises. None of the promises is
conditional on x: they are about the average over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.options import check_enough_rows, check_number, coverage_rank, named, stored
from coverwell.training.rows import Rows, split_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coverwell.predictor import FittedTeam

Array = NDArray[np.float64]
Places = NDArray[np.intp]

# A half-width of zero would need an infinite factor.
SMALLEST_HALF_WIDTH = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-widths of the interval below and above it, for some rows."""

    mean: Array  # (..., row, target)
    half_width: Array  # (..., row, target, side, level)


@stored
class Correction(nn.Module):
    """What a calibration has learned: factors of the half-widths, or for CV+ the scores of rows each team left out."""

    factor: Tensor | None  # (target, level)
    joint_factor: Tensor | None  # for boxes that contain all targets of a row together

    def __init__(
        self, factor: Array | None = None, joint_factor: Array | None = None, scores: list[Array] | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("factor", None if factor is None else torch.as_tensor(factor))
        self.register_buffer("joint_factor", None if joint_factor is None else torch.as_tensor(joint_factor))
        self.n_scores = len(scores or ())
        for place, part in enumerate(scores or ()):
            self.register_buffer(f"scores_{place}", torch.as_tensor(part))

    @property
    def scores(self) -> list[Tensor]:  # (row, target, level) each
        return [getattr(self, f"scores_{place}") for place in range(self.n_scores)]

    @property
    def is_joint(self) -> bool:
        """Whether there are ranks over all targets together."""
        return self.factor is None or self.joint_factor is not None

    def forward(
        self, means: list[Tensor], half_widths: list[Tensor], levels: tuple[float, ...], joint: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Bounds (row, target, level) from each team's means and half-widths; each level contains the one inside it."""
        if self.factor is None:
            scores = [part.amax(dim=1, keepdim=True) if joint else part for part in self.scores]
            return widen_outwards(*_cv_plus_bounds(means, half_widths, scores, levels))
        if joint and not self.is_joint and len(self.factor) > 1:
            raise ValueError("joint=True needs ranks over all targets together; fit with a calibration other than None")
        factor = self.joint_factor if joint and self.joint_factor is not None else self.factor
        (mean,), (half_width,) = means, half_widths
        below, above = half_width.unbind(dim=-2)
        return widen_outwards(mean[..., None] - factor * below, mean[..., None] + factor * above)


def widen_outwards(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds in which each level contains the one inside it; levels on the last axis, innermost first."""
    lowest, highest = [lower[..., 0]], [upper[..., 0]]
    for place in range(1, lower.shape[-1]):
        lowest.append(torch.minimum(lowest[-1], lower[..., place]))
        highest.append(torch.maximum(highest[-1], upper[..., place]))
    return torch.stack(lowest, dim=-1), torch.stack(highest, dim=-1)


def _cv_plus_bounds(
    means: list[Tensor], half_widths: list[Tensor], scores: list[Tensor], levels: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """CV+ bounds (row, target, level) from each left-out team's estimate and the scores of the rows it left out."""
    n_scores = sum(len(part) for part in scores)
    centre = torch.stack(means).mean(dim=0)
    lower, upper = [], []
    for place, level in enumerate(levels):
        k = coverage_rank(level, n_scores)
        teams = [
            (m, w[..., place], part[:, None, :, place]) for m, w, part in zip(means, half_widths, scores, strict=True)
        ]
        below = torch.cat([mean - factor * width[..., 0] for mean, width, factor in teams])  # (score, row, target)
        above = torch.cat([mean + factor * width[..., 1] for mean, width, factor in teams])
        outer = n_scores - k + 1  # the k-th smallest from either side, without sorting the others
        # The bounds of two teams may cross; an interval that holds the prediction only covers more.
        lower.append(torch.minimum(below.topk(outer, dim=0, largest=False).values[-1], centre))
        upper.append(torch.maximum(above.topk(outer, dim=0).values[-1], centre))
    return torch.stack(lower, dim=-1), torch.stack(upper, dim=-1)


# The choices.


@runtime_checkable
class Calibration(Protocol):
    """One way to calibrate: its rows, its ranks, its promise. Unless it differs, one team sees all rows."""

    name: ClassVar[str | None] = "custom"  # or what `named` gives; None is no ranks at all
    promise: ClassVar[str]
    holds_back: ClassVar[bool] = False  # whether rows are kept from the teams, as `rows_of_jobs` then decides
    one_team_per_fold: ClassVar[bool] = False
    ranks_out_of_fold: ClassVar[bool] = False

    def rows_of_jobs(
        self, X: NDArray[Any], groups: Any, folds: Any, levels: tuple[float, ...], random_state: np.random.RandomState
    ) -> list[Places]:
        """The rows that each team may see, in ascending order."""
        return [np.arange(len(X))]

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        """The correction of trained teams, from their rows and the members' scaled outputs, (member, row, ...)."""
        ...


@named("calibration", "cross")
@dataclass(frozen=True)
class Cross(Calibration):
    """Ranks of out-of-fold scores. Every row trains; coverage is measured near the asked level, without a theorem."""

    promise: ClassVar[str] = "near the asked level as measured; no finite-sample theorem"
    ranks_out_of_fold: ClassVar[bool] = True

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        assert members is not None  # estimators that offer "cross" keep them
        scores, levels = CrossScores.of(*out_of_fold_members(rows, members)), rows.levels[0]
        factor = cross_factor(scores, levels)
        return Correction(factor, factor * cross_factor(scores, levels, joint_unit=factor))


@named("calibration", "cv+")
@dataclass(frozen=True)
class CVPlus(Calibration):
    """A team per fold, its interval stretched by the scores of the rows it left out (Barber et al. 2021)."""

    promise: ClassVar[str] = "at least 2p - 1 less a small term, for exchangeable rows"
    holds_back: ClassVar[bool] = True
    one_team_per_fold: ClassVar[bool] = True

    def rows_of_jobs(
        self, X: NDArray[Any], groups: Any, folds: Any, levels: tuple[float, ...], random_state: np.random.RandomState
    ) -> list[Places]:
        check_enough_rows(len(X), levels, f"calibration='cv+' ranks {len(X)} rows")
        trains = split_rows(X, folds, 1, groups, random_state)[0]
        if not (trains.sum(axis=0) == len(trains) - 1).all():
            raise ValueError("calibration='cv+' needs folds that leave every row out exactly once")
        return [np.flatnonzero(mask) for mask in trains]

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        return Correction(scores=held_back_scores(teams, rows))


@named("calibration", "split")
@dataclass(frozen=True)
class Split(Calibration):
    """Ranks of rows that touched nothing before: no scaling, no bin edges, no stop rule.

    Parameters
    ----------
    size : float
        Share of the rows (of the groups, if given) that is kept for the ranks.
    """

    size: float = 0.2

    promise: ClassVar[str] = "at least p on average, for exchangeable rows"
    holds_back: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("size", self.size, above=0.0, below=1.0)

    def rows_of_jobs(
        self, X: NDArray[Any], groups: Any, folds: Any, levels: tuple[float, ...], random_state: np.random.RandomState
    ) -> list[Places]:
        from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

        if groups is not None and len(np.unique(groups)) < 2:
            raise ValueError("calibration='split' keeps whole groups for the ranks and needs at least 2 groups, got 1")
        kind = ShuffleSplit if groups is None else GroupShuffleSplit
        splitter = kind(1, test_size=self.size, random_state=random_state.randint(2**31 - 1))
        train, kept = next(splitter.split(X, groups=groups))
        check_enough_rows(len(kept), levels, f"calibration='split' keeps {len(kept)} of {len(X)} rows")
        return [np.sort(train)]

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        (scores,) = held_back_scores(teams, rows)
        # The largest score as it is: in units of the factor it would depend on the rows that are ranked.
        joint = np.broadcast_to(scores.max(axis=1, keepdims=True), scores.shape)
        return Correction(rank_factor(scores, rows.levels[0]), rank_factor(joint, rows.levels[0]))


@named("calibration", None)
@dataclass(frozen=True)
class Uncalibrated(Calibration):
    """The learned intervals as they are."""

    promise: ClassVar[str] = "none: the learned intervals as they are"

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        return Correction(np.ones((rows.y.shape[-1], len(rows.levels[0]))))


# Scores and ranks.


def scores_of(y: Array, estimate: Estimate) -> Array:
    """The factor by which each interval just contains y, (..., row, target, level)."""
    residual = (y - estimate.mean)[..., None]
    below = np.maximum(estimate.half_width[..., 0, :], SMALLEST_HALF_WIDTH)
    above = np.maximum(estimate.half_width[..., 1, :], SMALLEST_HALF_WIDTH)
    return np.maximum(-residual / below, residual / above)


def held_back_scores(teams: Sequence[FittedTeam], rows: Rows) -> list[Array]:
    """Scores of the rows that each team never saw."""
    assert rows.given is not None  # rows of a fit know what they were made from
    X, y = rows.given
    return [scores_by(team, X[places], y[places]) for team, places in zip(teams, rows.held_back, strict=True)]


def scores_by(team: FittedTeam, X: NDArray[Any], y: Array) -> Array:
    """A team's scores of rows in the user's units, in scaled units: the smallest half-width knows no unit of y."""
    estimate, spread = team.estimate(X), team.targets.spread.cpu().numpy()
    return scores_of(team.scaled(y), Estimate(team.scaled(estimate.mean), estimate.half_width / spread[:, None, None]))


def out_of_fold_members(rows: Rows, members: Estimate) -> tuple[Array, Estimate, NDArray[np.bool_]]:
    """Targets (row, target), members' estimates (member, row, ...) and who leaves a row out, one row for an image."""
    y, leaves_out = rows.y[0].double().cpu().numpy(), rows.leaves_out[0].cpu().numpy()
    if (mirroring := rows.mirroring) is not None:
        scaling = rows.targets[0].cpu()
        mean = scaling(mirroring.merged(scaling.inverse(torch.from_numpy(members.mean)))).numpy()
        members = Estimate(mean, mirroring.own(members.half_width, axis=1))
        y, leaves_out = mirroring.own(y, axis=0), mirroring.own(leaves_out, axis=1)
    return y, members, leaves_out


def average_out_of_fold(members: Estimate, leaves_out: NDArray[np.bool_]) -> Estimate:
    """Average over the members that leave a row out: (member, row, ...) -> (row, ...)."""
    weight = leaves_out / np.maximum(leaves_out.sum(axis=0), 1)
    return Estimate(
        np.einsum("mr,mrt->rt", weight, members.mean), np.einsum("mr,mrtsl->rtsl", weight, members.half_width)
    )


@dataclass(frozen=True)
class CrossScores:
    """Out-of-fold scores, (row, target, level), and the sizes of the teams behind them."""

    averaged: Array
    singles: Array
    n_left_out: float
    n_members: int

    @classmethod
    def of(cls, y: Array, members: Estimate, leaves_out: NDArray[np.bool_]) -> CrossScores:
        """Scores of the averages over the members that leave a row out, and of those members one by one."""
        some = leaves_out.any(axis=0)
        y, leaves_out = y[some], leaves_out[:, some]
        members = Estimate(members.mean[:, some], members.half_width[:, some])
        return cls(
            averaged=scores_of(y, average_out_of_fold(members, leaves_out)),
            singles=scores_of(y, members)[leaves_out],  # (member, row, ...) -> (member and row, ...)
            n_left_out=float(leaves_out.sum(axis=0).mean()),
            n_members=len(leaves_out),
        )


def rank_factor(scores: Array, levels: tuple[float, ...]) -> Array:
    """The k-th smallest score of each target and level; scores (row, target, level) -> (target, level)."""
    ordered, factor = np.sort(scores, axis=0), np.empty(scores.shape[1:])
    for place, level in enumerate(levels):
        factor[:, place] = ordered[coverage_rank(level, len(scores)) - 1, :, place]
    return factor


def cross_factor(scores: CrossScores, levels: tuple[float, ...], *, joint_unit: Array | None = None) -> Array:
    """The factor (target, level) from out-of-fold ranks, brought from the size of an out-of-fold team to the whole one.

    With a `joint_unit` (target, level) it is one for all targets: of the largest score of each row, in these units.
    """
    averaged, singles = scores.averaged, scores.singles
    if joint_unit is not None:
        averaged = (averaged / joint_unit).max(axis=1, keepdims=True)
        singles = (singles / joint_unit).max(axis=1, keepdims=True)
    factor = rank_factor(averaged, levels)
    if scores.n_left_out <= 1:
        return factor
    return deployed_factor(factor, rank_factor(singles, levels), scores.n_left_out, scores.n_members)


def deployed_factor(factor: Array, single: Array, n_left_out: float, n_members: int) -> Array:
    """The factor of the whole team, from that of averages over the members that leave a row out and of single members.

    A row is left out by r members, but M members are deployed, whose average errs less. Members are exchangeable for a
    row that none of them trained on, so the expected squared error of an average over r of them is a + b / r, and so,
    to first order, is the square of the factor. Ranks of averages (r members) and of single members (r = 1) give a and
    b, hence the value at M.
    """
    r, M = n_left_out, n_members
    slope = np.maximum(single**2 - factor**2, 0.0) / (1 - 1 / r)  # b
    deployed = factor**2 - slope * (1 / r - 1 / M)
    least = factor**2 * r / M  # as if all of the error were the members' disagreement
    return np.asarray(np.sqrt(np.maximum(deployed, least)))
