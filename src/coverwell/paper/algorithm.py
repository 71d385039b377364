"""Algorithm 1 of the paper: the mean network F and the interval network I are trained in turns.

F learns the targets and matches its uncertainty to I's widths; I learns intervals around F. Whatever one network learns
from the other comes from members that did not train on the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.paper.losses import Interval, IntervalLoss, Levels
from coverwell.paper.matching import Matching, MatchTarget
from coverwell.registry import stored
from coverwell.training.learner import BestState, Learner
from coverwell.training.rows import Rows

__all__ = [
    "History",
    "Measures",
    "Recipe",
    "Round",
    "alternate",
    "half_widths",
    "interval_objective",
    "mean_objective",
    "measure",
    "n_interval_outputs",
    "residual_scale",
]

PerJob = Float[Tensor, "job target level"]
PerTarget = Float[Tensor, "job target"]

# A residual scale of zero would make the sigmoid of Eq. 2 infinitely steep; targets are of order one here.
SMALLEST_SCALE = 1e-4
# Standard deviation over mean absolute deviation of a normal distribution; the latter is more robust to outliers.
SD_PER_MEAN_DEVIATION = 1.2533


@dataclass(frozen=True)
class Recipe:
    """What the alternation needs to know beside the networks and the rows."""

    matching: Matching
    interval_loss: IntervalLoss
    max_rounds: int
    mean_epochs: int
    interval_epochs: int
    patience: int
    closing_rounds: int = 2
    literal: bool = False  # as published: losses in the unit of y, a stop when the training losses have settled


def alternate(
    F: Learner,
    I: Learner,
    recipe: Recipe,
    rounds: Iterator[Rows],
    judged: Rows,
    on_round: Callable[[History], None] = lambda history: None,
    *,
    start: PerTarget | None = None,
) -> History:
    """Algorithm 1, until the out-of-fold scores of no job improve; both averaged teams end at their best round.

    `rounds` gives the rows of each round: the same ones in memory, the next buffer of a stream. Every round is measured
    on the rows `judged`. For teams that continue an earlier training, `start` is the unit of their widths, and they are
    themselves a round that can be the best.
    """
    history = History(judged, (F, I), patience=recipe.patience, literal=recipe.literal)
    if start is not None:
        history.unit = start
    history.half_width = _out_of_fold_half_width(I, judged, history.unit)
    if start is not None:
        measures = measure(judged, _out_of_fold_mean(F, judged, recipe.matching), history.half_width)
        history.offer(measures, measures.scores)
    for _ in range(recipe.max_rounds):
        _one_round(F, I, recipe, next(rounds), history)
        on_round(history)
        if history.settled:
            break
    history.restore()
    if not recipe.literal:
        _settle_intervals(F, I, recipe, rounds, history)
    return history


def _one_round(F: Learner, I: Learner, recipe: Recipe, rows: Rows, history: History) -> None:
    judged, unit = history.judged, history.unit
    half_width = history.half_width if rows is judged else _out_of_fold_half_width(I, rows, unit)  # I is frozen
    objective = mean_objective(recipe.matching, rows, half_width, history.coverage, unit)
    mean_loss = F.descend(rows, recipe.mean_epochs, objective)
    y_mean = _out_of_fold_mean(F, rows, recipe.matching)  # F is frozen
    judged_mean = y_mean if rows is judged else _out_of_fold_mean(F, judged, recipe.matching)
    scale = residual_scale(judged, judged_mean)
    unit = unit if recipe.literal else scale
    interval_loss = I.descend(rows, recipe.interval_epochs, interval_objective(recipe, rows, y_mean, unit, scale))
    history.unit, history.half_width = unit, _out_of_fold_half_width(I, judged, unit)
    measures = measure(judged, judged_mean, history.half_width)
    history.add(measures, (mean_loss, interval_loss), measures.scores)


def _settle_intervals(
    F: Learner,
    I: Learner,
    recipe: Recipe,
    rounds: Iterator[Rows],
    history: History,
) -> None:
    """Train the best I a little more around the best F: the two come from different rounds."""
    judged, best = history.judged, history.best[1]
    y_mean = _out_of_fold_mean(F, judged, recipe.matching)
    best.score.fill_(torch.inf)

    def keep(unit: Tensor) -> None:
        measures = measure(judged, y_mean, _out_of_fold_half_width(I, judged, unit))
        best.offer(measures.scores[1], unit)

    keep(best.unit)
    scale = residual_scale(judged, y_mean)
    for _ in range(recipe.closing_rounds):
        rows = next(rounds)
        y_rows = y_mean if rows is judged else _out_of_fold_mean(F, rows, recipe.matching)
        I.descend(rows, recipe.interval_epochs, interval_objective(recipe, rows, y_rows, scale, scale))
        del rows  # before the next buffer of a stream is read
        keep(scale)
    best.restore()


def mean_objective(
    matching: Matching, rows: Rows, half_width: Tensor, empirical_coverage: PerJob, scale: PerTarget
) -> Callable[[Tensor, Tensor], Tensor]:
    """F's loss on a batch (Eq. 7 or 10), with I's half-widths held fixed."""
    width = half_width.sum(dim=-2)  # (job, row, target, side, level) -> (job, row, target, level)
    # Rows that no member leaves out, as the first of TimeSeriesSplit, get the average width.
    width = torch.where(rows.has_out_of_fold[..., None, None], width, rows.mean_out_of_fold(width)[:, None])
    fixed = {
        "empirical_coverage": rows.to_members(empirical_coverage),
        "coverage": rows.to_members(rows.coverage),
        "scale": rows.to_members(scale),
    }

    def objective(outputs: Tensor, batch: Tensor) -> Tensor:
        target = MatchTarget(width=rows.batch_of(width, batch), **fixed)
        return matching.loss(outputs, rows.batch_of(rows.y, batch), target)

    return objective


def interval_objective(
    recipe: Recipe, rows: Rows, y_mean: Tensor, unit: PerTarget, scale: PerTarget
) -> Callable[[Tensor, Tensor], Tensor]:
    """I's loss on a batch (Eq. 5), with F's means held fixed. Widths come in `unit`, the loss knows the residual scale."""
    levels = Levels.of(rows.to_members(rows.coverage))
    unit, scale = rows.to_members(unit), rows.to_members(scale)

    def objective(outputs: Tensor, batch: Tensor) -> Tensor:
        centre = rows.batch_of(y_mean, batch)
        below, above = half_widths(outputs, levels, unit).unbind(dim=-2)
        interval = Interval(centre[..., None] - below, centre[..., None] + above)
        return recipe.interval_loss(rows.batch_of(rows.y, batch), centre, interval, levels.coverage, scale=scale)

    return objective


def n_interval_outputs(n_targets: int, n_levels: int) -> int:
    """How many numbers I emits per row: one increment per target, side and level."""
    return 2 * n_targets * n_levels


def half_widths(outputs: Tensor, levels: Levels, unit: Tensor) -> Tensor:
    """Distances of the bounds below and above the mean, delta_l and delta_u, from I's outputs.

    The outputs are increments from each level to the next one outwards, so intervals are nested by construction. An
    output of zero gives the normal half-width for residuals of the given unit.

    Shape: outputs `(member, batch, output)`, unit `(member, target)`; result `(member, batch, target, side, level)`.
    """
    n_levels, n_targets = levels.z.shape[-1], unit.shape[-1]
    steps = torch.diff(levels.z, prepend=torch.zeros_like(levels.z[:, :1]), dim=-1)
    start = torch.log(torch.expm1(steps))  # softplus(start) = steps
    increments = softplus(outputs.unflatten(-1, (n_targets, 2, n_levels)) + start[:, None, None, None, :])
    return unit[:, None, :, None, None] * increments.cumsum(dim=-1)


def _out_of_fold_mean(F: Learner, rows: Rows, matching: Matching) -> Float[Tensor, "job row target"]:
    """F's prediction for each row, averaged over members that did not train on it."""
    return rows.out_of_fold(matching.mean(F.left_out_outputs(rows), rows.y.shape[-1]))


def _out_of_fold_half_width(I: Learner, rows: Rows, unit: Tensor) -> Float[Tensor, "job row target side level"]:
    """I's half-widths for each row, averaged over members that did not train on it."""
    levels = Levels.of(rows.to_members(rows.coverage))
    return rows.out_of_fold(half_widths(I.left_out_outputs(rows), levels, rows.to_members(unit)))


def residual_scale(rows: Rows, y_mean: Tensor) -> PerTarget:
    """A robust standard deviation of the out-of-fold residuals."""
    deviation = rows.mean_out_of_fold((rows.y - y_mean).abs())
    return (SD_PER_MEAN_DEVIATION * deviation).clamp_min(SMALLEST_SCALE)


@dataclass(frozen=True)
class Measures:
    """How F and I do on rows they did not train on (unless literal), for every job.

    `score` is the pinball loss of both bounds: the interval score times (1 - asked) / 2, so that levels weigh alike.
    """

    rmse: PerTarget
    coverage: PerJob
    width: PerJob
    score: PerJob

    @property
    def scores(self) -> tuple[Float[Tensor, " job"], Float[Tensor, " job"]]:
        """What F and I are compared by from round to round."""
        return self.rmse.square().mean(dim=1), self.score.mean(dim=(1, 2))


def measure(rows: Rows, y_mean: Tensor, half_width: Tensor) -> Measures:
    """Measures of out-of-fold means (job, row, target) and half-widths (job, row, target, side, level)."""
    residual = (rows.y - y_mean)[..., None]  # (job, row, target, level)
    below, above = half_width.unbind(dim=-2)
    inside = (-below <= residual) & (residual <= above)
    missed = (residual - above).clamp_min(0) + (-below - residual).clamp_min(0)
    width = below + above
    tail = (1 - rows.coverage)[:, None, None, :] / 2
    average = rows.mean_out_of_fold
    values = (
        average((rows.y - y_mean).square()).sqrt(),
        average(inside.to(residual.dtype)),
        average(width),
        average(tail * width + missed),
    )
    return Measures(*map(rows.workers.of_first, values))  # all workers take the same decisions


class History:
    """The rounds of every job: what was measured, the best state of each network, and when to stop.

    Algorithm 1 follows two networks, F and I; a baseline follows one.
    """

    def __init__(self, judged: Rows, learners: Sequence[Learner], *, patience: int, literal: bool = False) -> None:
        n_jobs, n_targets = judged.n_jobs, judged.y.shape[-1]
        self.judged, self.patience, self.literal = judged, patience, literal
        self.unit = judged.y.new_ones(n_jobs, n_targets)  # of the widths; y starts with its own spread
        self.coverage = judged.coverage[:, None, :].expand(-1, n_targets, -1)  # gamma starts at 1 / z(asked)
        self.half_width = self.unit.new_empty(0)  # of I for the rows `judged`
        self.best = [BestState(learner, self.unit) for learner in learners]
        self.going = torch.ones(n_jobs, dtype=torch.bool, device=self.unit.device)  # jobs that have not settled
        self.last_better = torch.zeros(n_jobs, dtype=torch.long, device=self.unit.device)
        self.n_rounds = torch.zeros_like(self.last_better)
        self.rounds: list[Measures] = []
        self.losses: list[Float[Tensor, "job network"]] = []
        self.seconds: list[float] = []
        self.started = time.perf_counter()

    @property
    def settled(self) -> bool:
        return not bool(self.going.any())

    @property
    def best_unit(self) -> PerTarget:
        """The unit of the widths of the restored I."""
        return self.best[-1].unit

    def add(self, measures: Measures, losses: Sequence[Tensor], scores: Sequence[Tensor]) -> None:
        """Note one round, keep each network where its score is the best so far, and see which jobs go on."""
        self.rounds.append(measures)
        self.losses.append(torch.stack([self.judged.by_job(loss).mean(dim=1) for loss in losses], dim=1))
        self.seconds.append(time.perf_counter() - self.started)
        self.started = time.perf_counter()
        self.n_rounds += self.going
        if self.literal:
            scores = [torch.full_like(scores[0], -len(self.rounds))] * len(scores)  # keep the last round
            self.offer(measures, scores)
            self.going = self.going & ~self._losses_settled()
        else:
            self.last_better = torch.where(self.offer(measures, scores), len(self.rounds), self.last_better)
            self.going = self.going & (len(self.rounds) - self.last_better < self.patience)

    def offer(self, measures: Measures, scores: Sequence[Tensor]) -> Tensor:
        """Keep the present state of each network where it is the best of a job that goes on; says where one is."""
        self.coverage = measures.coverage
        better = [best.offer(score, self.unit, self.going) for best, score in zip(self.best, scores, strict=True)]
        return torch.stack(better).any(dim=0)

    def _losses_settled(self) -> Tensor:
        """Whether all training losses moved less than 1 % over the last 3 rounds."""
        if len(self.losses) <= 3:
            return torch.zeros_like(self.going)
        before, now = self.losses[-4], self.losses[-1]
        return ((now - before).abs() < 0.01 * before.abs()).all(dim=1)

    def restore(self) -> None:
        """Put every network back into its best state."""
        for best in self.best:
            best.restore()

    def described(
        self, jobs: slice, rows: Rows, *, one_target: bool, one_level: bool
    ) -> list[Round]:
        """The rounds of the model that these jobs belong to, in its units, averaged over jobs that had not settled."""
        spread = np.stack([scaling.spread.cpu().numpy() for scaling in rows.targets])  # (job, target)
        tail = (1 - np.array(rows.levels[0])) / 2

        def read(values: Tensor, going: NDArray[np.bool_], unit: Any = 1.0) -> Any:
            mean = (values[jobs].double().cpu().numpy() * unit)[going].mean(axis=0)  # (target,) or (target, level)
            mean = mean[..., 0] if one_level and mean.ndim == 2 else mean
            mean = mean[0] if one_target else mean
            return float(mean) if mean.ndim == 0 else mean

        described = []
        n_rounds = self.n_rounds[jobs].cpu().numpy()
        for number, (measures, losses) in enumerate(zip(self.rounds, self.losses, strict=True)):
            going = n_rounds > number
            if not going.any():
                break
            loss = losses[jobs].double().cpu().numpy()[going].mean(axis=0)  # (network,)
            described.append(
                Round(
                    rmse=read(measures.rmse, going, spread),
                    coverage=read(measures.coverage, going),
                    width=read(measures.width, going, spread[..., None]),
                    interval_score=read(measures.score, going, spread[..., None] / tail),
                    mean_loss=float(loss[0]),
                    interval_loss=float(loss[1]) if len(loss) > 1 else None,
                    seconds=self.seconds[number],
                )
            )
        return described


@stored
@dataclass(frozen=True)
class Round:
    """One round of training, measured on rows that the members did not train on, in the target's units.

    Coverage, width and score are those of the interval that I learns, before calibration and before F helps to shape
    it. With `folds=None` nobody is left out, and the measures are those of the training rows. A baseline has no second
    network, so no `interval_loss`, and its rounds are ten epochs each.

    Each number is a float, or an array over targets (`rmse`) or over targets and levels where there are several.
    """

    rmse: Any
    coverage: Any
    width: Any
    interval_score: Any
    mean_loss: float
    interval_loss: float | None
    seconds: float
