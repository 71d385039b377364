"""Calibration: how much learned intervals must be widened or narrowed to reach the asked coverage.

The score of a row is the factor by which its interval would just contain its target. Each calibration is one object: it
decides which rows it ranks, how their ranks become a correction, and what that promises. None of the promises is
conditional on x: they are about the average over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32, Float64
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.inputs.scaling import without_far_off
from coverwell.options import check_enough_rows, check_number, coverage_rank, named, stored
from coverwell.paper.losses import z_score
from coverwell.training.rows import Rows, split_rows

if TYPE_CHECKING:
    from coverwell.predictor import FittedTeam

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

ENOUGH_BY_ALL = 1000  # rows that all members leave out, to learn from them what an average over all is worth
ROUNDING = 1e-9  # of sums of weights, and of levels
# A half-width of zero would need an infinite factor.
SMALLEST_HALF_WIDTH = 1e-12
ROWS_PER_VALUE = 5  # of a target with few values, at least
FEW_INSIDE = 3  # values in most intervals: their reach is chosen. Where there are more, ends only move inwards
REACHES = tuple(np.arange(10) / 10)
MOST_KEPT, MOST_NUMBERS_KEPT = 5000, 2**19  # rows with their scores, and numbers of them: 2 MB in a model file


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-widths of the interval below and above it, for some rows."""

    mean: Array  # (..., row, target)
    half_width: Array  # (..., row, target, side, level)
    contrast: Array | None = None  # (..., row, target), companions less networks, where there are companions
    # Half-widths of each member by itself that a calibration has given their shape, (member and row, target, side,
    # level), for rows that several members leave out.
    alone: Array | None = None


@dataclass(frozen=True)
class Ranked:
    """Rows that are ranked, by their numbers among those of the fit, and what they were given."""

    places: Places
    y: Array  # (row, target), scaled
    estimate: Estimate
    weight: Array | None = None  # (row,)


# Levels at which every calibration ranks, as far as the rows suffice: bounds of others lie between them.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
CENTRAL = 0.5, 0.96


def grid_of(levels: tuple[float, ...], n_ranked: int | None = None) -> tuple[float, ...]:
    """The asked levels and those of the grid for which so many rows have a rank, ascending."""
    enough = [level for level in GRID if n_ranked is None or level * (n_ranked + 1) <= n_ranked]
    return tuple(sorted({*levels, *enough}))


def central_places(levels: Sequence[float]) -> list[int]:
    """The places of the levels at which a fit scores widths to choose between them."""
    return [place for place, level in enumerate(levels) if CENTRAL[0] <= level <= CENTRAL[1]] or [0]


def grid_matrix(levels: tuple[float, ...], grid: tuple[float, ...]) -> Array:
    """What takes half-widths at some levels to those at a grid, (level, grid): linear in the normal quantile.

    Inside the first level and outside the last they are in proportion to it.
    """
    known, wanted = (z_score(torch.tensor(one, dtype=torch.float64)).numpy() for one in (levels, grid))
    matrix = np.stack([np.interp(wanted, known, row) for row in np.eye(len(known))])
    matrix[0] *= np.where(wanted < known[0], wanted / known[0], 1.0)
    matrix[-1] *= np.where(wanted > known[-1], wanted / known[-1], 1.0)
    return matrix


@stored
class Correction(nn.Module):
    """What a calibration has learned: factors of the half-widths, or for CV+ the scores of rows each team left out.

    Parameters
    ----------
    asked : ascending levels that were asked for
    levels : ascending levels that it knows, the grid, with those among them
    factor, joint_factor : (target, level), for each target and for boxes that contain all targets of a row together
    scores : for CV+, (row, target, level) of each team
    expand : (fitted level, level), takes half-widths to the grid; None for those that are there already
    atoms : values to which the ends are moved, where the targets take few
    kept : ranked rows, to be ranked again with weights
    """

    factor: Tensor | None
    joint_factor: Tensor | None
    expand: Tensor | None

    def __init__(
        self,
        asked: tuple[float, ...],
        levels: tuple[float, ...],
        factor: Float64[np.ndarray, "target level"] | None = None,
        joint_factor: Float64[np.ndarray, "target level"] | None = None,
        scores: list[Float64[np.ndarray, "_ target level"]] | None = None,
        expand: Float64[np.ndarray, "fitted level"] | None = None,
        atoms: Atoms | None = None,
        kept: KeptRows | None = None,
    ) -> None:
        super().__init__()
        for part in (factor, joint_factor, expand, *(scores or ())):
            if part is not None and part.shape[-1] != len(levels):
                raise ValueError(f"a correction of {len(levels)} levels got numbers of the shape {part.shape}")
        self.atoms, self.kept = atoms, kept
        self.asked, self.levels, self.n_scores = tuple(asked), tuple(levels), len(scores or ())
        for name, values in {"factor": factor, "joint_factor": joint_factor, "expand": expand}.items():
            self.register_buffer(name, None if values is None else torch.as_tensor(values))
        for place, part in enumerate(scores or ()):
            self.register_buffer(f"scores_{place}", torch.as_tensor(part))

    @property
    def scores(self) -> list[Tensor]:  # (row, target, level) each
        return [getattr(self, f"scores_{place}") for place in range(self.n_scores)]

    @property
    def factor_shape(self) -> tuple[int, ...] | None:
        return None if self.factor is None else tuple(self.factor.shape)

    @property
    def asked_factor(self) -> Tensor | None:
        """The factors of the asked levels, (target, level)."""
        return None if self.factor is None else self.factor[:, [self.levels.index(level) for level in self.asked]]

    def only_asked(self) -> Correction:
        """The same without the levels that nobody asked for."""
        places = [self.levels.index(level) for level in self.asked]
        factor, joint_factor = (
            None if part is None else part[:, places].numpy() for part in (self.factor, self.joint_factor)
        )
        scores = [part[..., places].numpy() for part in self.scores]
        return Correction(self.asked, self.asked, factor, joint_factor, scores, atoms=self.atoms)

    @property
    def is_joint(self) -> bool:
        """Whether there are ranks over all targets together."""
        return self.factor is None or self.joint_factor is not None

    def forward(
        self,
        means: list[Tensor],
        half_widths: list[Tensor],
        levels: tuple[float, ...],
        joint: bool = False,
        moved: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Bounds (row, target, level) from each team's means and half-widths; each level contains the one inside it.

        If `moved`, ends are at values of the targets, where these are few.
        """
        if self.expand is not None:
            half_widths = [half_width @ self.expand for half_width in half_widths]
        if self.factor is None:
            scores = [part.amax(dim=1, keepdim=True) if joint else part for part in self.scores]
            if levels != self.asked:
                lower, upper = _cv_plus_bounds(means, half_widths, scores, self.levels)
                return -self.nested(-lower, levels), self.nested(upper, levels)
            places = [self.levels.index(level) for level in levels]
            half_widths, scores = ([part[..., places] for part in parts] for parts in (half_widths, scores))
            lower, upper = _cv_plus_bounds(means, half_widths, scores, levels)
            return -outwards(-lower), outwards(upper)
        if joint and not self.is_joint and len(self.factor) > 1:
            raise ValueError("joint=True needs ranks over all targets together; fit with a calibration other than None")
        factor = self.joint_factor if joint and self.joint_factor is not None else self.factor
        (mean,), (half_width,) = means, half_widths
        below, above = self.nested(factor * half_width.movedim(-2, 0), levels)
        lower, upper = mean[..., None] - below, mean[..., None] + above
        return self.atoms(lower, upper) if moved and self.atoms is not None else (lower, upper)

    def nested(self, half_width: Tensor, levels: tuple[float, ...]) -> Tensor:
        """Some levels of half-widths, or of upper ends, at the grid, each at least the one inside it.

        Asked levels do not depend on the others, which lie between them.
        """
        places = [self.levels.index(level) for level in self.asked]
        asked = outwards(half_width[..., places])
        if levels == self.asked:
            return asked
        limits = torch.cat([asked, torch.full_like(asked[..., :1], torch.inf)], dim=-1)
        next_asked = [sum(level > inner for inner in self.asked) for level in self.levels]
        limit = limits[..., next_asked]
        is_asked = torch.tensor([level in self.asked for level in self.levels], device=half_width.device)
        whole = outwards(torch.where(is_asked, limit, torch.minimum(half_width, limit)))
        return whole[..., [self.levels.index(level) for level in levels]]


@stored
class KeptRows(nn.Module):
    """Ranked rows with their scores, and the factors of the fit: what other ranks of these rows start from.

    Parameters
    ----------
    rows : (row, feature), in units of the inputs' scaling
    scores : (row, target, level), of the half-widths before the factor
    factor, joint_factor : (target, level)
    weight : (row,), how much they count; None where all count alike
    """

    rows: Tensor
    scores: Tensor
    factor: Tensor
    joint_factor: Tensor
    weight: Tensor | None

    def __init__(
        self,
        rows: Float32[np.ndarray, "row feature"],
        scores: Float32[np.ndarray, "row target level"],
        factor: Float64[np.ndarray, "target level"],
        joint_factor: Float64[np.ndarray, "target level"],
        weight: Float64[np.ndarray, " row"] | None = None,
    ) -> None:
        super().__init__()
        if weight is not None and not (weight > 0).all():
            raise ValueError(f"kept rows must have a weight above zero each, got {weight.min():g}")
        self.register_buffer("weight", None if weight is None else torch.as_tensor(weight))
        for name, values in {"rows": rows, "scores": scores, "factor": factor, "joint_factor": joint_factor}.items():
            self.register_buffer(name, torch.as_tensor(values))

    @classmethod
    def of(cls, X: Array, scores: Array, correction: Correction, seed: int, weight: Array | None = None) -> KeptRows:
        """Rows in single precision; of many a sample."""
        assert correction.factor is not None  # that of ranks
        assert correction.joint_factor is not None
        most = min(MOST_KEPT, MOST_NUMBERS_KEPT // (X.shape[1] + scores[0].size))
        if len(X) > most:
            places = np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))
            X, scores, weight = X[places], scores[places], None if weight is None else weight[places]
        factor, joint_factor = (part.cpu().numpy() for part in (correction.factor, correction.joint_factor))
        scores = np.minimum(scores, np.finfo(np.float32).max)  # that of a target that is far off may be larger
        return cls(X.astype(np.float32), scores.astype(np.float32), factor, joint_factor, weight)


@stored
class Atoms(nn.Module):
    """Ends moved to values that the targets take, where these are few: grades, counts.

    A lower end goes to the next value above it, or to the one below if that is nearer than `reach` of the way; upper
    ends the other way round. With a reach of zero the same values are covered as before.

    Parameters
    ----------
    values : for each target its values, ascending; empty for one that takes many
    reach : (target,), in [0, 1)
    """

    reach: Tensor

    def __init__(self, values: Sequence[Array], reach: Array) -> None:
        super().__init__()
        self.n_targets = len(values)
        self.register_buffer("reach", torch.as_tensor(reach))
        for target, own in enumerate(values):
            self.register_buffer(f"values_{target}", torch.as_tensor(own))

    @property
    def values(self) -> list[Tensor]:
        return [getattr(self, f"values_{target}") for target in range(self.n_targets)]

    @classmethod
    def of(
        cls, y: Array, lower: Array, upper: Array, levels: tuple[float, ...], weight: Array | None = None
    ) -> Atoms | None:
        """The values of y (row, target), with the reach that scores best where intervals hold few; None if many."""
        values = [np.unique(own) for own in y.T]
        values = [own if 1 < len(own) <= len(y) / ROWS_PER_VALUE else own[:0] for own in values]
        if not any(map(len, values)):
            return None
        tail, losses = (1 - np.array(levels)) / 2, []
        for reach in REACHES:
            atoms = cls(values, np.full(len(values), reach))
            low, high = (side.numpy() for side in atoms(torch.from_numpy(lower), torch.from_numpy(upper)))
            missed = np.maximum(low - y[..., None], 0) + np.maximum(y[..., None] - high, 0)
            losses.append(weighted_mean(tail * (high - low) + missed, weight, axis=(0, 2)))
        inside = [
            np.searchsorted(own, upper[:, target], side="right") - np.searchsorted(own, lower[:, target])
            for target, own in enumerate(values)
        ]
        few = [np.median(n_values) <= FEW_INSIDE for n_values in inside]
        return cls(values, np.where(few, np.array(REACHES)[np.argmin(losses, axis=0)], 0.0))

    def forward(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        lows, highs = list(lower.unbind(dim=1)), list(upper.unbind(dim=1))
        for target, (values, reach) in enumerate(zip(self.values, self.reach, strict=True)):
            if len(values):
                lows[target], highs[target] = (
                    snapped(lows[target], values, reach),
                    -snapped(-highs[target], -values.flip(0), reach),
                )
                # Between two values there may be none: the nearer end is then both.
                highs[target] = torch.maximum(lows[target], highs[target])
        # Levels are ascending: the inner one may have gone to a value that the outer one has just missed.
        return -outwards(-torch.stack(lows, dim=1)), outwards(torch.stack(highs, dim=1))


def snapped(ends: Tensor, values: Tensor, reach: Tensor) -> Tensor:
    """Lower ends, moved to one of the ascending values."""
    above = (values < ends[..., None]).sum(dim=-1).clamp(max=len(values) - 1)  # the next value
    below = (above - 1).clamp(min=0)
    step = (values[above] - values[below]).clamp_min(torch.finfo(values.dtype).tiny)
    return torch.where((ends - values[below]) / step < reach, values[below], values[above])


def outwards(values: Tensor) -> Tensor:
    """Values on the last axis, innermost level first, each at least the one before it."""
    largest = [values[..., 0]]
    for place in range(1, values.shape[-1]):
        largest.append(torch.maximum(largest[-1], values[..., place]))
    return torch.stack(largest, dim=-1)


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
    moves_ends: ClassVar[bool] = False  # whether ends go to values of the target, where it takes few
    holds_gaps: ClassVar[bool] = False  # whether coverage is held for rows with the same gaps, without being asked for

    def rows_of_jobs(
        self, X: NDArray[Any], groups: Any, folds: Any, levels: tuple[float, ...], random_state: np.random.RandomState
    ) -> list[Places]:
        """The rows that each team may see, in ascending order."""
        return [np.arange(len(X))]

    def shaped(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Estimate | None:
        """The members' outputs with half-widths of another shape, which the teams are given too; by default as is."""
        return members

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        """The correction of trained teams, from their rows and the members' scaled outputs, (member, row, ...)."""
        ...

    def ranked(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Ranked | None:
        """The rows whose ranks may be kept apart for groups of them; by default none."""
        return None


@named("calibration", "cross")
@dataclass(frozen=True)
class Cross(Calibration):
    """Ranks of out-of-fold scores. Every row trains; coverage is measured near the asked level, without a theorem."""

    promise: ClassVar[str] = "near the asked level as measured; no finite-sample theorem"
    ranks_out_of_fold: ClassVar[bool] = True

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        assert members is not None  # estimators that offer "cross" keep them
        y, members, leaves_out = out_of_fold_members(rows, members, as_given=True)
        levels, n_known, weight = rows.levels[0], members.half_width.shape[-1], rows.seen_weight
        grid = grid_of(levels, n_out_of_fold(leaves_out, weight))
        expand = None if n_known == len(grid) else grid_matrix(levels, grid)
        if expand is not None:
            members = Estimate(members.mean, members.half_width @ expand)
        scores = CrossScores.of(y, members, leaves_out, weight)
        factor = cross_factor(scores, grid)
        # Where the factor is zero, since many rows are predicted exactly, the mean score is the unit.
        unit = np.where(factor > 0, factor, scores.averaged.mean(axis=0))
        unit = np.where(unit > 0, unit, 1.0)
        joint_factor = unit * cross_factor(scores.joint(unit), grid)
        return Correction(levels, grid, factor, joint_factor, expand=expand)

    def ranked(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Ranked | None:
        assert members is not None  # estimators that offer "cross" keep them
        assert rows.given is not None  # rows of a fit know what they were made from
        y, members, leaves_out = out_of_fold_members(rows, members, as_given=True)
        average, some = average_out_of_fold(members, leaves_out), leaves_out.any(axis=0)
        places = np.setdiff1d(np.arange(len(rows.given[1])), rows.held_back[0])[some]
        return Ranked(places, y[some], Estimate(average.mean[some], average.half_width[some]), rows.weight_of(places))


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
        grid = grid_of(rows.levels[0], len(rows.given[1]) if rows.given else None)
        expand = grid_matrix(rows.levels[0], grid)
        return Correction(rows.levels[0], grid, scores=held_back_scores(teams, rows, expand), expand=expand)


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
        weight = rows.weight_of(rows.held_back[0])
        grid = grid_of(rows.levels[0], len(rows.held_back[0]) if weight is None else rows_worth(weight))
        expand = grid_matrix(rows.levels[0], grid)
        (scores,) = held_back_scores(teams, rows, expand)
        # The largest score as it is: in units of the factor it would depend on the rows that are ranked.
        joint = np.broadcast_to(scores.max(axis=1, keepdims=True), scores.shape)
        factor, joint_factor = rank_factor(scores, grid, weight), rank_factor(joint, grid, weight)
        return Correction(rows.levels[0], grid, factor, joint_factor, expand=expand)

    def ranked(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Ranked | None:
        assert rows.given is not None  # rows of a fit know what they were made from
        (team,), (X, y), (places,) = teams, rows.given, rows.held_back
        if rows.given_weight is not None:
            places = places[rows.given_weight[places] > 0]
        return Ranked(places, *team.against(X[places], y[places]), rows.weight_of(places))


@named("calibration", None)
@dataclass(frozen=True)
class Uncalibrated(Calibration):
    """The learned intervals as they are."""

    promise: ClassVar[str] = "none: the learned intervals as they are"

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        levels, grid = rows.levels[0], grid_of(rows.levels[0])
        return Correction(levels, grid, np.ones((rows.y.shape[-1], len(grid))), expand=grid_matrix(levels, grid))


# Scores and ranks.


def scores_of(y: Array, estimate: Estimate) -> Array:
    """The factor by which each interval just contains y, (..., row, target, level)."""
    residual = (y - estimate.mean)[..., None]
    below = np.maximum(estimate.half_width[..., 0, :], SMALLEST_HALF_WIDTH)
    above = np.maximum(estimate.half_width[..., 1, :], SMALLEST_HALF_WIDTH)
    return np.maximum(-residual / below, residual / above)


def held_back_scores(teams: Sequence[FittedTeam], rows: Rows, expand: Array) -> list[Array]:
    """Scores of the rows that each team never saw, at the levels of a grid."""
    assert rows.given is not None  # rows of a fit know what they were made from
    X, y = rows.given
    return [scores_by(team, X[places], y[places], expand) for team, places in zip(teams, rows.held_back, strict=True)]


def scores_by(team: FittedTeam, X: NDArray[Any], y: Array, expand: Array | None = None) -> Array:
    """A team's scores of rows in the user's units, in scaled units: the smallest half-width knows no unit of y."""
    y, estimate = team.against(X, y)
    half_width = estimate.half_width if expand is None else estimate.half_width @ expand
    return scores_of(y, Estimate(estimate.mean, half_width))


def out_of_fold_members(rows: Rows, members: Estimate, *, as_given: bool = False) -> tuple[Array, Estimate, Mask]:
    """Targets (row, target), members' estimates (member, row, ...) and who leaves a row out, one row for an image.

    Targets are those that networks learned from or, for ranks, those that are far off `as_given`.
    """
    y, leaves_out = rows.y[0].double().cpu().numpy(), rows.leaves_out[0].cpu().numpy()
    if as_given and rows.score is None and rows.given is not None and rows.given[0].ndim == 2:
        given = np.delete(rows.given[1], rows.held_back[0], axis=0)
        far_off = given != without_far_off(given)
        y[far_off] = rows.targets[0].cpu()(torch.from_numpy(given)).numpy()[far_off]
    if (mirroring := rows.mirroring) is not None:
        scaling = rows.targets[0].cpu()
        mean = scaling(mirroring.merged(scaling.inverse(torch.from_numpy(members.mean)))).numpy()
        members = Estimate(mean, mirroring.own(members.half_width, axis=1))
        y, leaves_out = mirroring.own(y, axis=0), mirroring.own(leaves_out, axis=1)
    return y, members, leaves_out


def check_weights(calibration: Calibration, rows: Rows) -> int | None:
    """How many rows of equal weight the ranked ones are worth, where rows have weights; raises if too few."""
    if rows.given_weight is None or calibration.name is None:
        return None
    if calibration.one_team_per_fold:
        way_out = "give 'local', 'cross' or 'split' with sample_weight"
        raise ValueError(f"calibration={calibration.name!r} ranks all rows alike: {way_out}")
    leaves_out = rows.leaves_out[0].cpu().numpy()
    if rows.mirroring is not None:
        leaves_out = rows.mirroring.own(leaves_out, axis=1)
    n = n_out_of_fold(leaves_out, rows.seen_weight)
    if calibration.holds_back:
        n = rows_worth(rows.given_weight[rows.held_back[0]])
    check_enough_rows(n, rows.levels[0], f"calibration={calibration.name!r} ranks rows that are worth {n} by weight")
    return n


def average_out_of_fold(members: Estimate, leaves_out: Mask) -> Estimate:
    """Average over the members that leave a row out: (member, row, ...) -> (row, ...)."""
    weight = leaves_out / np.maximum(leaves_out.sum(axis=0), 1)
    mean, half_width = np.einsum("mr,mrt->rt", weight, members.mean), members.half_width
    contrast = None if members.contrast is None else np.einsum("mr,mrt->rt", weight, members.contrast)
    return Estimate(mean, np.einsum("mr,mrtsl->rtsl", weight, half_width), contrast)


def left_out_together(leaves_out: Mask) -> Mask:
    """Which rows each member leaves out together with others, (member, row)."""
    together: Mask = leaves_out & (leaves_out.sum(axis=0) > 1)
    return together


@dataclass(frozen=True)
class CrossScores:
    """Out-of-fold scores, (row, target, level), and the sizes of the teams behind them."""

    averaged: Array
    singles: Array
    n_left_out: float
    n_members: int
    by_all: CrossScores | None = None  # the scores of rows that all members leave out, where others have one each
    weight: Array | None = None  # of the averaged scores
    weight_of_singles: Array | None = None

    @classmethod
    def of(cls, y: Array, members: Estimate, leaves_out: Mask, weight: Array | None = None) -> CrossScores:
        """Scores of the averages over the members that leave a row out, and of those members one by one."""
        ranked, by_all = rows_apart(leaves_out, weight)
        scores = cls._of(y, members, leaves_out, weight, ranked)
        return scores if by_all is None else replace(scores, by_all=cls._of(y, members, leaves_out, weight, by_all))

    @classmethod
    def _of(cls, y: Array, members: Estimate, leaves_out: Mask, weight: Array | None, some: Mask) -> CrossScores:
        together, alone = left_out_together(leaves_out), members.alone
        if alone is not None:
            alone = alone[some[together.nonzero()[1]]] if together[:, some].any(axis=0).all() else None
        y, leaves_out = y[some], leaves_out[:, some]
        weight = None if weight is None else weight[some]
        members = Estimate(members.mean[:, some], members.half_width[:, some])
        if alone is None:
            singles = scores_of(y, members)[leaves_out]  # (member, row, ...) -> (member and row, ...)
        else:
            singles = scores_of(y[leaves_out.nonzero()[1]], Estimate(members.mean[leaves_out], alone))
        return cls(
            averaged=scores_of(y, average_out_of_fold(members, leaves_out)),
            singles=singles,
            n_left_out=float(leaves_out.sum(axis=0).mean()),
            n_members=len(leaves_out),
            weight=weight,
            weight_of_singles=None if weight is None else np.broadcast_to(weight, leaves_out.shape)[leaves_out],
        )

    def joint(self, unit: Array) -> CrossScores:
        """The largest score of each row in units (target, level), as those of one target."""
        averaged, singles = ((part / unit).max(axis=1, keepdims=True) for part in (self.averaged, self.singles))
        by_all = None if self.by_all is None else self.by_all.joint(unit)
        return replace(self, averaged=averaged, singles=singles, by_all=by_all)


def rows_apart(leaves_out: Mask, weight: Array | None) -> tuple[Mask, Mask | None]:
    """Rows whose scores are ranked, and those that all members leave out, where enough are and the others by one."""
    n_left_out, n_members = leaves_out.sum(axis=0), len(leaves_out)
    some, one, by_all = n_left_out > 0, n_left_out == 1, n_left_out == n_members
    n_by_all = by_all.sum() if weight is None else rows_worth(weight[by_all])
    apart = n_members > 1 and one.any() and (one | by_all)[some].all() and n_by_all >= ENOUGH_BY_ALL
    return (one, by_all) if apart else (some, None)


def n_out_of_fold(leaves_out: Mask, weight: Array | None) -> int:
    """How many rows of equal weight those that some member leaves out are worth."""
    some = leaves_out.any(axis=0)
    if weight is None:
        return int(some.sum())
    return min(rows_worth(weight[some]), rows_worth(weight[rows_apart(leaves_out, weight)[0]]))


def rank_factor(
    scores: Array, levels: Sequence[float], weight: Array | None = None, *, or_largest: bool = False
) -> Array:
    """The score at the rank of each target and level; scores (row, target, level) -> (target, level).

    It is the smallest score such that rows up to it have the asked share of the weight of all rows and of a new one,
    which counts as large: as one row without weights (row,), as a row drawn in proportion to them on average otherwise.
    Where that leaves no rank the largest score stands for it if `or_largest`; otherwise it is an error.
    """
    weight = np.ones(len(scores)) if weight is None else weight
    total, n_effective = weight.sum(), effective_rows(weight)
    order = np.argsort(scores, axis=0, kind="stable")
    ordered, up_to = np.take_along_axis(scores, order, axis=0), np.cumsum(weight[order], axis=0)
    factor = np.empty(scores.shape[1:])
    for place, level in enumerate(levels):
        if not or_largest:
            coverage_rank(level, max(1, int(n_effective + ROUNDING)))
        needed = level * total * (1 + 1 / n_effective) - ROUNDING * total
        first = np.minimum((up_to[:, :, place] < needed).sum(axis=0), len(scores) - 1)
        factor[:, place] = ordered[first, np.arange(scores.shape[1]), place]
    return factor


def weighted_mean(values: NDArray[Any], weight: Array | None, axis: int | tuple[int, ...] | None = None) -> Any:
    """The mean over some axes of values (row, ...), by the weights of rows if there are some."""
    if weight is None:
        return values.mean(axis=axis)
    wide = np.broadcast_to(weight.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    return np.average(values, axis=axis, weights=wide)


def effective_rows(weight: Array) -> float:
    """How many rows of equal weight are worth as much as these (Kish 1965)."""
    weight = weight / weight.max()  # their squares are finite
    return float(weight.sum() ** 2 / np.square(weight).sum())


def rows_worth(weight: Array) -> int:
    """The same as a whole number, none of no weight at all."""
    return int(effective_rows(weight) + ROUNDING) if weight.any() else 0


def cross_factor(scores: CrossScores, levels: tuple[float, ...]) -> Array:
    """The factor (target, level) from out-of-fold ranks, brought from the size of an out-of-fold team to the whole one.

    Where one member leaves out each row, rows that all leave out tell how much less their average errs.
    """
    factor = rank_factor(scores.averaged, levels, scores.weight)
    if (by_all := scores.by_all) is not None:
        whole = rank_factor(by_all.averaged, levels, by_all.weight)
        single = rank_factor(by_all.singles, levels, by_all.weight_of_singles)
        ratio = np.divide(whole, single, out=np.ones_like(whole), where=single > 0)
        return np.asarray(factor * np.minimum(ratio, 1.0))
    if scores.n_left_out <= 1:
        return factor
    single = rank_factor(scores.singles, levels, scores.weight_of_singles)
    return deployed_factor(factor, single, scores.n_left_out, scores.n_members)


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
