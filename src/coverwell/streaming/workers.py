"""Several processes as one: batches that they make together, whatever their number.

Each worker owns some lanes of every batch. It computes what the team says about its own rows; the loss is computed by
all of them over the whole batch, since coverage is a property of a batch; and the gradients, each of own rows, are
summed. So the weights stay the same on all workers, and are those of one worker but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from coverwell.folds import Problem
from coverwell.networks.team import Team
from coverwell.streaming.row_hash import N_LANES, seed_of
from coverwell.training import LAST, MOST_ROWS_PER_EPOCH, Learner, Minibatches

__all__ = ["ALONE", "Alone", "LaneBatches", "SharedLearner", "SharedProblem", "Workers", "lanes_of", "of_first"]


@runtime_checkable
class Workers(Protocol):
    """The processes that fit one model together, as one of them sees it."""

    @property
    def rank(self) -> int:
        """This worker's place, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are: 1, 2, 4 or 8."""
        ...

    def together(self, own: Tensor) -> Tensor:
        """What all workers have, one after the other along the second axis, by rank: (member, own batch, ...) ->
        (member, batch, ...). The gradient of a worker's own part flows back to it, that of the others' to nobody."""
        ...

    def summed(self, gradients: list[Tensor]) -> list[Tensor]:
        """The sums over all workers, with the same bits on each."""
        ...


@dataclass(frozen=True)
class Alone:
    """One process that does everything."""

    rank: int = 0
    size: int = 1

    def together(self, own: Tensor) -> Tensor:
        return own

    def summed(self, gradients: list[Tensor]) -> list[Tensor]:
        return gradients


ALONE = Alone()


def lanes_of(workers: Workers) -> range:
    """The lanes that this worker owns."""
    if workers.size < 1 or N_LANES % workers.size:
        raise ValueError(f"the number of workers must divide {N_LANES}, got {workers.size}; take 1, 2, 4 or 8")
    n_own = N_LANES // workers.size
    return range(workers.rank * n_own, (workers.rank + 1) * n_own)


def of_first(workers: Workers, values: Tensor) -> Tensor:
    """The values of the first worker, with the same bits on all."""
    if workers.size == 1:
        return values
    flat = values.detach().reshape(1, -1)
    return workers.together(flat)[:, : flat.shape[1]].view_as(values)


@dataclass(frozen=True)
class SharedProblem(Problem):
    """One worker's rows as a loss sees them: what is looked up for a batch is the whole batch's."""

    workers: Workers = ALONE

    @classmethod
    def of(cls, own: Problem, workers: Workers) -> SharedProblem:
        return cls(own.x, own.y, own.trains, own.speaks, own.coverage, workers)

    def rows_of(self, table: Tensor, rows: Tensor) -> Tensor:
        return self.workers.together(super().rows_of(table, rows))


class LaneBatches:
    """Shuffled batches of a buffer's row numbers, `(member, own batch)`, with equal shares of all lanes.

    A round of some epochs passes over the rows once; where they are few, each epoch does, as without a stream.

    Parameters
    ----------
    trains : bool tensor (member, row)
    lanes : tensor (row,)
    own : sequence of int
        The lanes of this worker, to which all rows belong.
    longest : int
        The most rows that a member trains on in one lane, those of other workers included.
    batch_size, epochs, seed : int
    """

    def __init__(
        self,
        trains: Bool[Tensor, "member row"],
        lanes: Int[Tensor, " row"],
        *,
        own: Sequence[int],
        longest: int,
        batch_size: int,
        epochs: int,
        seed: int,
    ) -> None:
        self.rows = [(lanes == lane).nonzero()[:, 0] for lane in own]
        self.trains = [trains[:, rows] for rows in self.rows]
        self.counts = [part.sum(dim=1, keepdim=True) for part in self.trains]
        if any(int(count.min()) == 0 for count in self.counts):
            raise ValueError(
                "every member needs rows to train on in every buffer, but one has none; the folds are too uneven: "
                "give fewer folds, or smaller groups"
            )
        self.generators = [torch.Generator().manual_seed(seed_of(seed, lane)) for lane in own]
        self.longest = longest
        most = MOST_ROWS_PER_EPOCH // N_LANES
        per_epoch = longest if longest <= most else max(most, -(-longest // epochs))
        self.n_steps = -(-per_epoch // max(1, batch_size // N_LANES))
        self.share = -(-per_epoch // self.n_steps)  # even batches: as few rows as can be come twice
        self.place = longest
        self.order: list[Tensor] = []

    def epoch(self) -> Iterator[Int[Tensor, "member batch"]]:
        """The next batches; all rows are shuffled anew when they have been given."""
        if self.place >= self.longest:
            self.order, self.place = [self._shuffled(lane) for lane in range(len(self.rows))], 0
        places = torch.arange(self.place, self.place + self.n_steps * self.share, device=self.rows[0].device)
        self.place += self.n_steps * self.share
        shares = [
            order.gather(1, places % count).unflatten(1, (self.n_steps, self.share))
            for order, count in zip(self.order, self.counts, strict=True)
        ]
        yield from torch.cat(shares, dim=2).transpose(0, 1).contiguous()  # (step, member, batch)

    def _shuffled(self, lane: int) -> Int[Tensor, "member place"]:
        trains, rows = self.trains[lane], self.rows[lane]
        keys = torch.randint(LAST, trains.shape, dtype=torch.int32, generator=self.generators[lane]).to(trains.device)
        keys.masked_fill_(~trains, LAST)  # rows of others sort behind all of one's own
        return rows[keys.argsort(dim=1)]


class SharedLearner(Learner):
    """A team in training whose batches are made by several workers, from rows that change from round to round."""

    def __init__(
        self,
        team: Team,
        problem: Problem,
        *,
        learning_rate: float,
        memory: float,
        workers: Workers,
    ) -> None:
        batches = Minibatches(problem.trains.flatten(end_dim=1), batch_size=1)  # each round brings its own
        super().__init__(team, problem, batches, learning_rate=learning_rate, memory=memory)
        self.workers = workers
        if workers.size > 1:
            self.graphs = None  # what goes from worker to worker is not replayed

    def _step(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def step(rows: Tensor) -> Tensor:
            outputs = self.workers.together(self.team(self.problem.rows_of(self.problem.x, rows)))
            per_member = loss(outputs, rows)
            per_member.sum().backward()  # Adam is elementwise: members do not touch each other
            self._share_gradients()
            self.optimizer.step()
            return per_member.detach()

        return step

    def _share_gradients(self) -> None:
        learning = [weight for weight in self.optimizer.weights if weight.grad is not None]
        gradients = self.workers.summed([weight.grad for weight in learning if weight.grad is not None])
        for weight, gradient in zip(learning, gradients, strict=True):
            weight.grad = gradient

    @torch.no_grad()
    def agree(self) -> None:
        """Take over the first worker's weights: unlike processors may round a step differently, and that would grow."""
        if self.workers.size > 1:
            own = [*self.team.parameters(), *self.average.parameters()]
            first = of_first(self.workers, torch.cat([weight.flatten() for weight in own]))
            for weight, values in zip(own, first.split([weight.numel() for weight in own]), strict=True):
                weight.copy_(values.view_as(weight))
