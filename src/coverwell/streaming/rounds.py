"""Algorithm 1 on a stream: every round learns from the next buffer of rows, and is measured on one fixed sample.

The losses, the averaged weights, the out-of-fold words, the best round and the patience are those of
`coverwell.algorithm`. What differs: F and I learn a round from a buffer, so a row comes back when the stream comes
round to it; and the unit of the widths, the reached coverage and the scores of a round are those of the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from torch import Tensor

from coverwell.algorithm import (
    Measures,
    Recipe,
    Record,
    Watch,
    enclose_loss,
    match_loss,
    measure,
    out_of_fold_mean,
    out_of_fold_reach,
    residual_scale,
)
from coverwell.folds import Problem
from coverwell.streaming.row_hash import seed_of
from coverwell.streaming.rows import Buffer
from coverwell.streaming.workers import LaneBatches, SharedLearner, SharedProblem, lanes_of, of_first

__all__ = ["BatchPlan", "alternate_on_stream"]

MEAN, INTERVAL = 0, 1


@dataclass(frozen=True)
class BatchPlan:
    """How batches are drawn from a buffer."""

    batch_size: int
    seed: int


def alternate_on_stream(
    mean: SharedLearner,
    interval: SharedLearner,
    recipe: Recipe,
    stream: Iterator[Buffer],
    plan: BatchPlan,
    progress: Callable[[Measures, Tensor], None],
) -> Record:
    """Algorithm 1; the problem of both learners is the sample, before and after. They are left at their best round."""
    rounds = _StreamedRounds(mean, interval, recipe, stream, plan)
    sample = rounds.sample
    unit = sample.y.new_ones(1, sample.y.shape[-1])  # y: its own spread
    reached = sample.coverage[:, None, :].expand(-1, sample.y.shape[-1], -1)  # gamma starts at 1 / z(asked)
    watch = Watch(mean, interval, recipe)
    for _ in range(recipe.max_rounds):
        buffer = rounds.next_buffer()
        mean_loss = rounds.train_mean(buffer, unit, reached)
        y_mean = rounds.said_by_mean(sample)
        unit = residual_scale(sample, y_mean)
        interval_loss = rounds.train_interval(buffer, unit)
        del buffer  # before the next one is read
        measures = rounds.measured(y_mean, unit)
        reached = measures.coverage
        watch.take(measures, mean_loss, interval_loss, unit)
        progress(measures, unit)
        if watch.settled:
            break
    watch.restore()
    _settle_intervals(rounds, recipe, watch)
    return watch.record()


def _settle_intervals(rounds: _StreamedRounds, recipe: Recipe, watch: Watch) -> None:
    """Train the best I a little more around the best F: the two come from different rounds."""
    sample, scale = rounds.sample, watch.best_interval.scale
    y_mean = rounds.said_by_mean(sample)
    watch.best_interval.score.fill_(float("inf"))
    watch.offer_interval(rounds.measured(y_mean, scale), scale)
    scale = residual_scale(sample, y_mean)
    for _ in range(recipe.closing_rounds):
        rounds.train_interval(rounds.next_buffer(), scale)
        watch.offer_interval(rounds.measured(y_mean, scale), scale)
    watch.best_interval.restore()


class _StreamedRounds:
    """Both teams, and the stream that they learn from."""

    def __init__(
        self, mean: SharedLearner, interval: SharedLearner, recipe: Recipe, stream: Iterator[Buffer], plan: BatchPlan
    ) -> None:
        self.mean, self.interval = mean, interval
        self.recipe = recipe
        self.sample = mean.problem
        self.stream = stream
        self.plan = plan
        self.n_buffers = 0

    def next_buffer(self) -> Buffer:
        self.n_buffers += 1
        return next(self.stream)

    def train_mean(self, buffer: Buffer, unit: Tensor, reached: Tensor) -> Tensor:
        """F learns a buffer, and what I says about its rows; returns F's loss."""
        reach = self.said_by_interval(buffer.problem, unit)
        shared = SharedProblem.of(buffer.problem, self.mean.workers)
        loss = match_loss(self.recipe, shared, reach, reached, unit)
        return self._descend(self.mean, MEAN, buffer, self.recipe.mean_epochs, loss)

    def train_interval(self, buffer: Buffer, unit: Tensor) -> Tensor:
        """I learns intervals around what F says about a buffer's rows; returns I's loss."""
        y_mean = self.said_by_mean(buffer.problem)
        shared = SharedProblem.of(buffer.problem, self.interval.workers)
        loss = enclose_loss(self.recipe, shared, y_mean, unit, unit)
        return self._descend(self.interval, INTERVAL, buffer, self.recipe.interval_epochs, loss)

    def said_by_mean(self, problem: Problem) -> Tensor:
        """F's prediction for each row by members that did not train on it, (job, row, target)."""
        with _looking_at(self.mean, problem):
            return out_of_fold_mean(self.mean, self.recipe.matching)

    def said_by_interval(self, problem: Problem, unit: Tensor) -> Tensor:
        """I's reach for each row by members that did not train on it, (job, row, target, side, level)."""
        with _looking_at(self.interval, problem):
            return out_of_fold_reach(self.interval, unit)

    def measured(self, y_mean: Tensor, unit: Tensor) -> Measures:
        """The measures of the sample, with the same bits on all workers, so that all take the same decisions."""
        own = measure(self.sample, y_mean, self.said_by_interval(self.sample, unit))
        return Measures(*(of_first(self.mean.workers, getattr(own, field.name)) for field in fields(Measures)))

    def _descend(
        self,
        learner: SharedLearner,
        network: int,
        buffer: Buffer,
        epochs: int,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        batches = LaneBatches(
            buffer.problem.trains[0],
            buffer.lanes,
            own=lanes_of(learner.workers),
            longest=buffer.longest,
            batch_size=self.plan.batch_size,
            epochs=epochs,
            seed=seed_of(self.plan.seed, self.n_buffers, network),
        )
        with _looking_at(learner, buffer.problem, batches):
            last = learner.descend(epochs, loss)
        learner.agree()
        return last


@contextmanager
def _looking_at(learner: SharedLearner, problem: Problem, batches: LaneBatches | None = None) -> Iterator[None]:
    """The learner with other rows; a buffer is not held longer than it is used."""
    sample, before = learner.problem, learner.batches
    learner.problem = problem
    learner.batches = before if batches is None else batches  # type: ignore[assignment]
    try:
        yield
    finally:
        learner.problem, learner.batches = sample, before
