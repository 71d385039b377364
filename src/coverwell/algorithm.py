"""Algorithm 1 of the paper: the mean network F and the interval network I are trained in turns.

F learns the targets and matches its uncertainty to I's widths; I learns intervals around F. Whatever one network learns
from the other comes from members that did not train on the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.folds import Problem
from coverwell.intervals import Interval, z_score
from coverwell.losses import Levels, PerMember, Scale, Values
from coverwell.matching import Matching, MatchTarget
from coverwell.training import BestRound, Learner

__all__ = [
    "IntervalLoss",
    "Measures",
    "Recipe",
    "Record",
    "Watch",
    "alternate",
    "enclose_loss",
    "match_loss",
    "measure",
    "n_interval_outputs",
    "out_of_fold_mean",
    "out_of_fold_reach",
    "reach_of",
    "residual_scale",
]

PerJob = Float[Tensor, "job target level"]

# A residual scale of zero would make the sigmoid of Eq. 2 infinitely steep; targets are of order one here.
SMALLEST_SCALE = 1e-4
# The normal law's standard deviation over its mean absolute deviation: less moved by outliers than the former.
SD_PER_MEAN_DEVIATION = 1.2533


@runtime_checkable
class IntervalLoss(Protocol):
    """The loss of I on one batch, with its weights bound."""

    def __call__(
        self, y: Values, y_mean: Values, interval: Interval, coverage: Levels, *, scale: Scale
    ) -> PerMember: ...


@dataclass(frozen=True)
class Recipe:
    """What the alternation needs to know beside the networks and the data."""

    matching: Matching
    interval_loss: IntervalLoss
    max_rounds: int
    mean_epochs: int
    interval_epochs: int
    patience: int
    closing_rounds: int = 2
    literal: bool = False  # as published: losses in the unit of y, a stop when the training losses have settled


@dataclass(frozen=True)
class Measures:
    """How F and I do on the rows they speak about (those they did not train on, unless literal), for every job.

    `score` is the pinball loss of both bounds: the interval score times (1 - asked) / 2, so that levels weigh alike.
    """

    rmse: Float[Tensor, "job target"]
    coverage: PerJob
    width: PerJob
    score: PerJob


@dataclass(frozen=True)
class Record:
    """What the alternation leaves behind, job by job."""

    rounds: list[Measures]
    losses: list[Float[Tensor, "job network"]]  # training losses of F and I, or of the one network of a baseline
    seconds: list[float]
    n_rounds: list[int]  # rounds until the job had settled
    scale: Float[Tensor, "job target"]  # unit of the widths of the restored I


def n_interval_outputs(n_targets: int, n_levels: int) -> int:
    """How many numbers I emits per row: one increment per target, side and level."""
    return 2 * n_targets * n_levels


def reach_of(outputs: Tensor, coverage: Tensor, scale: Tensor) -> Tensor:
    """How far the interval reaches below and above the mean: delta_l and delta_u.

    The outputs are increments from each level to the next one outwards, so that intervals are nested by construction.
    An output of zero gives the normal law's reach for residuals of the given scale.

    Shape: outputs `(member, batch, output)`, coverage `(member, level)`, scale `(member, target)`; result
    `(member, batch, target, side, level)`.
    """
    n_levels, n_targets = coverage.shape[-1], scale.shape[-1]
    steps = torch.diff(z_score(coverage), prepend=torch.zeros_like(coverage[:, :1]), dim=-1)
    start = torch.log(torch.expm1(steps))  # softplus(start) = steps
    increments = softplus(outputs.unflatten(-1, (n_targets, 2, n_levels)) + start[:, None, None, None, :])
    return scale[:, None, :, None, None] * increments.cumsum(dim=-1)


def alternate(
    mean: Learner,
    interval: Learner,
    recipe: Recipe,
    progress: Callable[[Measures, Tensor], None],
    *,
    start: Float[Tensor, "job target"] | None = None,
) -> Record:
    """Algorithm 1, until no job's out-of-fold scores improve; both averaged teams are left at their best round.

    `progress` gets the measures of each round and the unit of its widths. For teams that go on from an earlier
    training, `start` is the unit of their widths, and they themselves are a round that can be the best.
    """
    problem = mean.problem
    unit = problem.y.new_ones(problem.n_jobs, problem.y.shape[-1]) if start is None else start  # y: its own spread
    reached = problem.coverage[:, None, :].expand(-1, problem.y.shape[-1], -1)  # gamma starts at 1 / z(asked)
    reach = out_of_fold_reach(interval, unit)
    watch = Watch(mean, interval, recipe)
    if start is not None:
        measures = measure(problem, out_of_fold_mean(mean, recipe.matching), reach)
        reached = measures.coverage
        watch.offer(measures, unit)
    for _ in range(recipe.max_rounds):
        mean_loss = mean.descend(recipe.mean_epochs, match_loss(recipe, problem, reach, reached, unit))
        y_mean = out_of_fold_mean(mean, recipe.matching)  # F is frozen: once per round
        scale = residual_scale(problem, y_mean)
        unit = unit if recipe.literal else scale
        interval_loss = interval.descend(recipe.interval_epochs, enclose_loss(recipe, problem, y_mean, unit, scale))
        reach = out_of_fold_reach(interval, unit)  # I is frozen: once per round
        measures = measure(problem, y_mean, reach)
        reached = measures.coverage
        watch.take(measures, mean_loss, interval_loss, unit)
        progress(measures, unit)
        if watch.settled:
            break
    watch.restore()
    if not recipe.literal:
        _settle_intervals(mean, interval, recipe, watch)
    return watch.record()


def _settle_intervals(mean: Learner, interval: Learner, recipe: Recipe, watch: Watch) -> None:
    """Train the best I a little more around the best F: the two come from different rounds."""
    y_mean = out_of_fold_mean(mean, recipe.matching)
    problem, scale = mean.problem, watch.best_interval.scale
    watch.best_interval.score.fill_(torch.inf)
    watch.offer_interval(measure(problem, y_mean, out_of_fold_reach(interval, scale)), scale)
    scale = residual_scale(problem, y_mean)
    for _ in range(recipe.closing_rounds):
        interval.descend(recipe.interval_epochs, enclose_loss(recipe, problem, y_mean, scale, scale))
        watch.offer_interval(measure(problem, y_mean, out_of_fold_reach(interval, scale)), scale)
    watch.best_interval.restore()


def match_loss(
    recipe: Recipe, problem: Problem, reach: Tensor, reached: PerJob, scale: Tensor
) -> Callable[[Tensor, Tensor], Tensor]:
    """F's loss, with what I says held fixed."""
    width = reach.sum(dim=-2)  # (job, row, target, side, level) -> (job, row, target, level)
    # Rows that nobody speaks about, as the first of TimeSeriesSplit, have no honest width: the average stands for it.
    width = torch.where(problem.heard[..., None, None], width, problem.mean_over_heard(width)[:, None])
    fixed = {
        "reached": problem.to_members(reached),
        "coverage": problem.to_members(problem.coverage),
        "scale": problem.to_members(scale),
    }

    def loss(outputs: Tensor, rows: Tensor) -> Tensor:
        target = MatchTarget(width=problem.rows_of(width, rows), **fixed)
        return recipe.matching.loss(outputs, problem.rows_of(problem.y, rows), target)

    return loss


def enclose_loss(
    recipe: Recipe, problem: Problem, y_mean: Tensor, unit: Tensor, scale: Tensor
) -> Callable[[Tensor, Tensor], Tensor]:
    """I's loss, with what F says held fixed; widths are emitted in the unit, the loss knows the residual scale."""
    coverage = problem.to_members(problem.coverage)
    unit, scale = problem.to_members(unit), problem.to_members(scale)

    def loss(outputs: Tensor, rows: Tensor) -> Tensor:
        centre = problem.rows_of(y_mean, rows)
        below, above = reach_of(outputs, coverage, unit).unbind(dim=-2)
        interval = Interval(centre[..., None] - below, centre[..., None] + above)
        return recipe.interval_loss(problem.rows_of(problem.y, rows), centre, interval, coverage, scale=scale)

    return loss


def out_of_fold_mean(mean: Learner, matching: Matching) -> Tensor:
    """F's prediction for each row by members that did not train on it, (job, row, target)."""
    problem = mean.problem
    return problem.of_left_out(matching.mean(mean.says_of_left_out(), problem.y.shape[-1]))


def out_of_fold_reach(interval: Learner, scale: Tensor) -> Tensor:
    """I's reach for each row by members that did not train on it, (job, row, target, side, level)."""
    problem = interval.problem
    said = interval.says_of_left_out()
    return problem.of_left_out(reach_of(said, problem.to_members(problem.coverage), problem.to_members(scale)))


def residual_scale(problem: Problem, y_mean: Tensor) -> Tensor:
    deviation = problem.mean_over_heard((problem.y - y_mean).abs())
    return (SD_PER_MEAN_DEVIATION * deviation).clamp_min(SMALLEST_SCALE)


def measure(problem: Problem, y_mean: Tensor, reach: Tensor) -> Measures:
    """The measures of predictions (job, row, target) and reaches (job, row, target, side, level)."""
    residual = (problem.y - y_mean)[..., None]  # (job, row, target, level)
    below, above = reach.unbind(dim=-2)
    inside = (-below <= residual) & (residual <= above)
    missed = (residual - above).clamp_min(0) + (-below - residual).clamp_min(0)
    width = below + above
    tail = (1 - problem.coverage)[:, None, None, :] / 2
    average = problem.mean_over_heard
    return Measures(
        rmse=average((problem.y - y_mean).square()).sqrt(),
        coverage=average(inside.to(residual.dtype)),
        width=average(width),
        score=average(tail * width + missed),
    )


class Watch:
    """Follows the rounds of every job: what was measured, the best states, and when to stop."""

    def __init__(self, mean: Learner, interval: Learner, recipe: Recipe) -> None:
        problem = mean.problem
        scale = problem.y.new_ones(problem.n_jobs, problem.y.shape[-1])
        self.recipe = recipe
        self.best_mean, self.best_interval = BestRound(mean, scale), BestRound(interval, scale)
        self.unsettled = torch.ones(problem.n_jobs, dtype=torch.bool, device=scale.device)
        self.last_better = torch.zeros(problem.n_jobs, dtype=torch.long, device=scale.device)
        self.n_rounds = torch.zeros_like(self.last_better)
        self.rounds: list[Measures] = []
        self.losses: list[Tensor] = []
        self.seconds: list[float] = []
        self.started = time.perf_counter()

    @property
    def settled(self) -> bool:
        return not bool(self.unsettled.any())

    def take(self, measures: Measures, mean_loss: Tensor, interval_loss: Tensor, scale: Tensor) -> None:
        """Note one round, keep it where it is the best, and see which jobs go on."""
        of_job = self.best_mean.learner.problem.of_job
        self.rounds.append(measures)
        self.losses.append(torch.stack([of_job(mean_loss).mean(dim=1), of_job(interval_loss).mean(dim=1)], dim=1))
        self.seconds.append(time.perf_counter() - self.started)
        self.started = time.perf_counter()
        self.n_rounds += self.unsettled
        if self.recipe.literal:
            latest = torch.full_like(self.best_mean.score, -len(self.rounds))  # the last round is the one to keep
            self.best_mean.offer(latest, scale, self.unsettled)
            self.best_interval.offer(latest, scale, self.unsettled)
            self.unsettled = self.unsettled & ~self._losses_settled()
        else:
            better = self.offer(measures, scale)
            self.last_better = torch.where(better, len(self.rounds), self.last_better)
            self.unsettled = self.unsettled & (len(self.rounds) - self.last_better < self.recipe.patience)

    def offer(self, measures: Measures, scale: Tensor) -> Tensor:
        """Keep both networks' present states where they are the best of a job that goes on, and say where one is."""
        better = self.best_mean.offer(measures.rmse.square().mean(dim=1), scale, self.unsettled)
        return better | self.best_interval.offer(measures.score.mean(dim=(1, 2)), scale, self.unsettled)

    def _losses_settled(self) -> Tensor:
        """Whether both training losses moved less than 1 % over the last 3 rounds."""
        if len(self.losses) <= 3:
            return torch.zeros_like(self.unsettled)
        before, now = self.losses[-4], self.losses[-1]
        return ((now - before).abs() < 0.01 * before.abs()).all(dim=1)

    def offer_interval(self, measures: Measures, scale: Tensor) -> None:
        self.best_interval.offer(measures.score.mean(dim=(1, 2)), scale, torch.ones_like(self.unsettled))

    def restore(self) -> None:
        self.best_mean.restore()
        self.best_interval.restore()

    def record(self) -> Record:
        return Record(self.rounds, self.losses, self.seconds, self.n_rounds.tolist(), self.best_interval.scale)
