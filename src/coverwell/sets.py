"""Sets of classes: what a fit leaves that predicts probabilities and the sets that contain the true class.

A set holds the classes whose score is at most a threshold. The threshold of a row is a mixture of one for all rows,
which gives the smallest sets, and of the conditional quantile that I learned, which gives hard rows larger sets.
Whatever sets the size of thresholds (ranks, levels, groups, weights) is the code of intervals: the score of the true
class stands for the residual, zero for the mean, and a threshold for both half-widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import SMALLEST_HALF_WIDTH, Correction, Estimate, rank_factor, weighted_mean
from coverwell.groups import CLASS, GroupFactors
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.networks.team import Team
from coverwell.options import stored
from coverwell.paper.matching import Matching
from coverwell.paper.scores import Score
from coverwell.predictor import FittedTeam, MatchedTeam, Predictor
from coverwell.probabilities import Calibrator
from coverwell.training.rows import Rows

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of I's threshold in the mixture, tried out of fold
FEWEST_OF_A_SIZE = 30  # rows whose sets have one size, for their coverage to count
SHORT_OF_A_SIZE = 0.05  # by how much sets of one size may cover less than asked
ROUNDING = 1e-12  # of scores


@stored
class Thresholds(nn.Module):
    """Thresholds from I's: a part that is the same for all rows, and a share of I's own.

    Parameters
    ----------
    base, share : (level,)

    Shape: input and output `(row, 1, side, level)`.
    """

    base: Tensor
    share: Tensor

    def __init__(self, base: Array, share: Array) -> None:
        super().__init__()
        if np.ndim(base) != 1 or np.shape(base) != np.shape(share):
            raise ValueError(f"base and share must have one number for each level, got {np.shape(base)}")
        for name, values in {"base": base, "share": share}.items():
            self.register_buffer(name, torch.as_tensor(np.asarray(values, dtype=np.float64)))

    def forward(self, half_width: Tensor) -> Tensor:
        return self.base + self.share * half_width

    def of(self, half_width: Array) -> Array:
        found: Array = self(torch.from_numpy(half_width)).numpy()
        return found


class TeamOfClasses(FittedTeam):
    """A team whose means are the probabilities of the classes, and whose half-widths are thresholds of scores.

    Shape: input `(row, ...)`, outputs `(row, class)` and `(row, class, side, level)`.
    """

    score: Score
    calibrator: Calibrator | None
    thresholds: Thresholds | None
    by_class: GroupFactors | None

    @property
    def n_classes(self) -> int:
        return len(self.targets.centre)

    def forward(
        self, rows: Tensor, noise: bool = True
    ) -> tuple[Float[Tensor, "row class"], Float[Tensor, "row class side level"]]:
        p, half_width = super().forward(rows, noise)
        return self.probabilities(p), half_width

    def probabilities(self, p: Float[Tensor, "row class"]) -> Float[Tensor, "row class"]:
        """Calibrated from blended ones, which rounding leaves a little below zero."""
        p = p.clamp_min(0)
        p = p / p.sum(dim=1, keepdim=True)
        return p if self.calibrator is None else self.calibrator(p)

    @torch.no_grad()
    def normalised(self, p: Array, *, calibrate: bool = False) -> Array:
        """Probabilities (..., class) that sum to one, calibrated or not; equal ones where there are none."""
        flat = torch.from_numpy(np.ascontiguousarray(p).reshape(-1, p.shape[-1])).clamp_min(0)
        flat = torch.where(flat.sum(dim=1, keepdim=True) > 0, flat, torch.ones_like(flat))
        flat = flat / flat.sum(dim=1, keepdim=True)
        if calibrate and self.calibrator is not None:
            flat = self.calibrator(flat)
        found: Array = flat.numpy().reshape(p.shape)
        return found

    def hold(self, factors: Sequence[GroupFactors]) -> None:
        by_class = [one for one in factors if one.name == CLASS]
        super().hold([one for one in factors if one.name != CLASS])
        for one in by_class:  # of candidates, whose place is their class
            keys, factor, n_rows = (part.cpu().numpy() for part in (one.keys, one.factor, one.n_rows))
            self.by_class = GroupFactors(CLASS, np.zeros(1, dtype=np.int64), keys, factor, n_rows, one.levels)

    def shaped(self, rows: Tensor, mean: Tensor, half_width: Tensor, contrast: Tensor) -> Tensor:
        if self.thresholds is not None:
            half_width = self.thresholds(half_width)
        for factors in self.groups:
            half_width = half_width * factors(rows)
        if self.by_class is None:
            return half_width.expand(-1, self.n_classes, -1, -1)
        classes = torch.arange(self.n_classes, device=half_width.device, dtype=half_width.dtype)
        factor: Tensor = self.by_class(classes[:, None])  # (class, 1, 1, level)
        return half_width * factor.movedim(0, 1)

    def against(self, X: NDArray[Any], y: Array) -> tuple[Array, Estimate]:
        """Zeros, and for each row the score of its class below zero beside its threshold: y is 1 at the class."""
        estimate = self.estimate(X)
        scores = self.score.of(torch.from_numpy(estimate.mean)).numpy()
        of_class = (scores * y).sum(axis=1, keepdims=True)
        threshold = np.take_along_axis(estimate.half_width, y.argmax(axis=1)[:, None, None, None], axis=1)
        return np.zeros_like(of_class), Estimate(-of_class, threshold)


@stored
class ClassTeam(TeamOfClasses, MatchedTeam):
    """A mean team whose average is the probabilities of the classes, and an interval team that gives thresholds.

    Shape: that of a `TeamOfClasses`.
    """

    def __init__(
        self,
        mean_team: Team,
        interval_team: Team,
        matching: Matching,
        unit: Array,
        coverage: Sequence[float] | Array,
        inputs: Scaling,
        targets: Scaling,
        mirroring: Mirroring | None = None,
        *,
        score: Score,
        both: bool = False,
        companions: Sequence[nn.Module] = (),
        weights: Array | None = None,
        groups: Sequence[GroupFactors] = (),
        calibrator: Calibrator | None = None,
        thresholds: Thresholds | None = None,
        by_class: GroupFactors | None = None,
    ) -> None:
        known: dict[str, Any] = {"companions": companions, "weights": weights, "groups": groups}
        super().__init__(mean_team, interval_team, matching, unit, coverage, inputs, targets, mirroring, **known)
        self.score, self.calibrator, self.thresholds, self.by_class = score, calibrator, thresholds, by_class


@stored
class ClassPredictor(Predictor):
    """Predicts the probabilities of the classes and, for each level, which of them are in the set.

    Parameters
    ----------
    levels, teams, correction : as in `Predictor`; one team
    classes : (class,), the labels

    Shape: input `(row, ...)`; outputs probabilities `(row, class)` and sets `(row, class, level)`.
    """

    def __init__(
        self, levels: tuple[float, ...], teams: Sequence[FittedTeam], correction: Correction, classes: NDArray[Any]
    ) -> None:
        super().__init__(levels, teams, correction)
        self.classes = classes

    def forward(self, rows: Tensor, joint: bool = False) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (team,) = self.fitted_teams
        p, half_width = team(rows)
        _, upper = self.correction([torch.zeros_like(p)], [half_width], self.levels)
        return p, self.sets(p, upper)

    def output_shapes(self, n_rows: int) -> list[tuple[int, ...]]:
        return [(n_rows, len(self.classes)), (n_rows, len(self.classes), len(self.levels))]

    @property
    def score(self) -> Score:
        (team,) = self.fitted_teams
        assert isinstance(team, TeamOfClasses)
        return team.score

    def bounds(
        self, estimates: Sequence[Estimate], levels: Sequence[float] | None = None, *, joint: bool = False
    ) -> tuple[Array, Array]:
        """Thresholds (row, class, level) as upper bounds of scores, and their negatives."""
        return super().bounds([replace(one, mean=np.zeros_like(one.mean)) for one in estimates], levels)

    def sets(
        self,
        p: Float[Tensor, "row class"],
        thresholds: Float[Tensor, "row class level"],
        allow_empty: bool = False,
    ) -> Bool[Tensor, "row class level"]:
        """Which classes are in the set of each level; the likeliest one in any case, unless sets may be empty."""
        return sets_of(self.score.of(p), p, thresholds, allow_empty)

    def classified(self, X: NDArray[Any], levels: Sequence[float] | None = None) -> tuple[Array, Mask]:
        """Probabilities (row, class) and sets of the asked levels or of others, (row, class, level), part by part."""
        found = self.prediction(X, levels)
        return found.mean, self.sets(torch.from_numpy(found.mean), torch.from_numpy(found.upper)).numpy()


def sets_of(scores: Tensor, p: Tensor, thresholds: Tensor, allow_empty: bool = False) -> Tensor:
    inside = scores[..., None] <= thresholds + ROUNDING
    if allow_empty:
        return inside
    likeliest = p.argmax(dim=-1, keepdim=True) == torch.arange(p.shape[-1], device=p.device)
    return inside | likeliest[..., None]


# What a fit learns from the members' outputs.


def scored(
    rows: Rows, members: Estimate, average: Estimate, team: TeamOfClasses, leaves_out: Mask
) -> tuple[Rows, Estimate, Array]:
    """The rows and the members' outputs as residuals of scores around zero, and calibrated probabilities out of fold.

    `average` is that over the members that leave a row out. The average of their scores is moved to the score of their
    average, which is what is deployed.
    """
    y, p = rows.y[0].double().cpu().numpy(), team.normalised(average.mean, calibrate=True)
    # Companions are in the averages already.
    known: dict[str, Any] = {"targets": [Scaling.unit(1)], "mirroring": None, "beside": None}
    if (mirroring := rows.mirroring) is not None:  # one row for an image, without its mirror image
        y = mirroring.own(y, axis=0)
        known |= {"x": mirroring.own(rows.x, axis=1), "trains": mirroring.own(rows.trains, axis=2), "lengths": [len(y)]}
        known |= {} if rows.weight is None else {"weight": mirroring.own(rows.weight, axis=1)}
    of_average = of_class(team.score, p, y)
    of_members = of_class(team.score, team.normalised(members.mean, calibrate=True), y)
    share = leaves_out / np.maximum(leaves_out.sum(axis=0), 1)
    moved = of_members + of_average - np.einsum("mr,mrt->rt", share, of_members)
    zero = torch.zeros(1, len(y), 1)
    residuals = replace(rows, y=zero, leaves_out=torch.from_numpy(leaves_out)[None], **known)
    return residuals, Estimate(-moved, members.half_width), p


def of_class(score: Score, p: Array, y: Array) -> Array:
    """The score of each row's class, (..., row, 1), from probabilities (..., row, class)."""
    found: Array = (score.of(torch.from_numpy(p)).numpy() * y).sum(axis=-1, keepdims=True)
    return found


def best_thresholds(
    p: Array, y: Array, learned: Array, score: Score, levels: Sequence[float], weight: Array | None
) -> Thresholds:
    """The mixture of one threshold for all rows and of I's (row, level) for each level, from out-of-fold rows.

    The one with the smallest sets among those in which no size of set is covered much less than asked.
    """
    scores = score.of(torch.from_numpy(p)).numpy()  # (row, class)
    own, levels = (scores * y).sum(axis=1), tuple(levels)  # of the true class
    over_learned = own[:, None] / np.maximum(learned, SMALLEST_HALF_WIDTH)
    same = np.repeat(own[:, None], len(levels), axis=1)
    ranks = partial(rank_factor, weight=weight, or_largest=True)  # "split" may leave few rows for training
    constant, factor = (ranks(one[:, None], levels)[0] for one in (same, over_learned))  # (level,)
    shares = np.empty(len(levels))
    for place, level in enumerate(levels):
        found = []
        for share in SHARES:
            mixed = (1 - share) * constant[place] + share * factor[place] * learned[:, place]
            ratio = own / np.maximum(mixed, SMALLEST_HALF_WIDTH)
            threshold = mixed * ranks(ratio[:, None, None], (level,))[0, 0]
            of_rows = torch.from_numpy(threshold)[:, None, None]
            sets = sets_of(torch.from_numpy(scores), torch.from_numpy(p), of_rows)[..., 0].numpy()
            short = max(0.0, level - SHORT_OF_A_SIZE - coverage_of_worst_size(sets, y > 0))
            found.append((short, float(weighted_mean(sets.sum(axis=1), weight)), share))
        shares[place] = min(found)[2]
    return Thresholds((1 - shares) * constant, shares * factor)


def coverage_of_worst_size(sets: Mask, is_true: Mask) -> float:
    """The lowest coverage of sets of one size, where enough have it; both (row, class)."""
    sizes, inside = sets.sum(axis=1), (sets & is_true).any(axis=1)
    counts, n_inside = np.bincount(sizes), np.bincount(sizes, inside)
    enough = counts >= FEWEST_OF_A_SIZE
    return float((n_inside[enough] / counts[enough]).min(initial=1.0))
