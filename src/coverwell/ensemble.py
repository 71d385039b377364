"""What one job leaves behind: its two teams and its scalers, ready to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.algorithm import Measures, Recipe, Record, alternate, n_interval_outputs, reach_of
from coverwell.calibration import Estimate
from coverwell.folds import Job, Problem, as_tensor, stack_jobs
from coverwell.inputs.mirroring import NOT_MIRRORED, Mirroring
from coverwell.inputs.scaling import Inputs, TargetScaler
from coverwell.matching import Matching
from coverwell.networks.team import Network, Team
from coverwell.training import Learner, Minibatches, spoken

__all__ = ["Ensemble", "PairTraining", "TrainedJob", "estimate_in_parts", "learner_of", "members_of", "shaped_by_both"]

# Gets the measures of a round, and a function that gives the teams as they are then.
Progress = Callable[[Measures, Callable[[], list[Any]]], None]
# How far F's own reach may lie from I's, as a factor.
FARTHEST = 10.0
# Rows predicted at a time; of pictures, as many as have so many numbers.
ROWS_AT_A_TIME = 8192
NUMBERS_AT_A_TIME = 2**25


@dataclass(frozen=True)
class PairTraining:
    """How the two teams of each job are trained: the networks, the recipe and the optimizer's settings."""

    mean_network: Network
    interval_network: Network
    recipe: Recipe
    both: bool  # whether F has a say in the shape of the intervals
    batch_size: int
    learning_rate: float
    memory: float
    device: torch.device
    start: tuple[Ensemble, ...] = ()  # the teams that each job goes on from, if it does

    @property
    def max_rounds(self) -> int:
        return self.recipe.max_rounds

    @property
    def networks(self) -> tuple[Network, Network]:
        return self.mean_network, self.interval_network

    def with_networks(self, change: Callable[[Network], Network]) -> PairTraining:
        """The same with both networks changed."""
        return replace(self, mean_network=change(self.mean_network), interval_network=change(self.interval_network))

    def shortened(self) -> PairTraining:
        """A round of one epoch each, from the start: enough to see whether memory suffices."""
        once = replace(self.recipe, max_rounds=1, mean_epochs=1, interval_epochs=1, closing_rounds=0)
        return replace(self, recipe=once, start=())

    def run(self, jobs: Sequence[Job], progress: Progress) -> tuple[list[TrainedJob], Record]:
        """Run Algorithm 1 on all jobs at once and take the teams apart again."""
        problem = stack_jobs(jobs, self.device)
        mean_outputs, interval_outputs = self.n_outputs(problem)
        mean = self._learner(self.mean_network, problem, problem.trains, mean_outputs)
        heard = problem.trains & problem.heard[:, None, :]  # I learns from honest residuals alone
        # A member that has none, such as the first of TimeSeriesSplit, learns the spread of its own targets.
        heard = torch.where(heard.any(dim=-1, keepdim=True), heard, problem.trains)
        interval = self._learner(self.interval_network, problem, heard, interval_outputs)

        scale = self._started(mean, interval)

        def present(scale: Tensor) -> list[TrainedJob]:
            return self.taken_apart(jobs, mean, interval, scale)

        record = alternate(
            mean,
            interval,
            self.recipe,
            lambda measures, unit: progress(measures, partial(present, unit)),
            start=scale,
        )
        return present(record.scale), record

    def _started(self, mean: Learner, interval: Learner) -> Tensor | None:
        """The unit of the widths of teams that go on from an earlier training, after they were put in place."""
        if not self.start:
            return None
        for job, before in enumerate(self.start):
            mean.start_from(job, before.mean_team)
            interval.start_from(job, before.interval_team)
        return mean.problem.y.new_tensor(np.stack([before.scale for before in self.start]))

    def n_outputs(self, problem: Problem) -> tuple[int, int]:
        """How many numbers F and I emit per row."""
        n_targets, n_levels = problem.y.shape[-1], problem.coverage.shape[-1]
        return self.recipe.matching.n_outputs(n_targets, n_levels), n_interval_outputs(n_targets, n_levels)

    def _learner(self, network: Network, problem: Problem, trains: Tensor, n_outputs: int) -> Learner:
        return learner_of(
            network,
            problem,
            trains,
            n_outputs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            memory=self.memory,
        )

    def taken_apart(self, jobs: Sequence[Job], mean: Learner, interval: Learner, scale: Tensor) -> list[TrainedJob]:
        """The teams of each job, and what their members say about its rows."""
        problem = mean.problem
        mean_outputs, interval_outputs = self.n_outputs(problem)
        matching, of_mean, n_targets = self.recipe.matching, mean.says(), problem.y.shape[-1]
        means = problem.of_job(matching.mean(of_mean, n_targets)).cpu()
        coverage, unit = problem.to_members(problem.coverage), problem.to_members(scale)
        reach = reach_of(interval.says(), coverage, unit)
        reaches = problem.of_job(shaped_by_both(matching, of_mean, reach, coverage) if self.both else reach).cpu()
        return [
            TrainedJob(
                members_of(job, mean, self.mean_network, mean_outputs),
                members_of(job, interval, self.interval_network, interval_outputs),
                scale[job].cpu(),
                Estimate(
                    means[job, :, : len(jobs[job].y)].double().numpy(),
                    reaches[job, :, : len(jobs[job].y)].double().numpy(),
                ),
            )
            for job in range(problem.n_jobs)
        ]


@dataclass(frozen=True)
class TrainedJob:
    """The two teams of one job, the unit of its widths, and what its members say about its own rows."""

    mean_team: Team
    interval_team: Team
    scale: Tensor
    said: Estimate  # (member, row, ...) in scaled units


@dataclass(frozen=True)
class Ensemble:
    """A mean team and an interval team whose averages are the prediction and its reach, in the user's units."""

    mean_team: Team
    interval_team: Team
    matching: Matching
    coverage: tuple[float, ...]
    scale: NDArray[np.float64]
    inputs: Inputs
    targets: TargetScaler
    both: bool = False
    mirroring: Mirroring = NOT_MIRRORED

    def to(self, device: torch.device) -> None:
        """Move both teams to a device."""
        self.mean_team.move(device)
        self.interval_team.move(device)

    def estimate(self, X: NDArray[Any], device: torch.device) -> Estimate:
        """Mean and reach for these rows, computed in float64 and averaged over the members."""
        self.to(device)
        return estimate_in_parts(X, partial(self._estimate_part, device=device))

    @torch.no_grad()
    def _estimate_part(self, X: NDArray[Any], device: torch.device) -> Estimate:
        x = as_tensor(self.inputs.transform(self.mirroring.flat(X))).to(device)[None]
        own = partial(self.mirroring.own, axis=1)
        coverage = torch.tensor([self.coverage], dtype=torch.float64, device=device)
        scale = torch.tensor(self.scale, device=device)[None]
        of_mean = spoken(self.mean_team, x)
        mean = self.matching.mean(of_mean, self.scale.shape[-1])
        reach = reach_of(spoken(self.interval_team, own(x)), coverage, scale)
        if self.both:
            reach = shaped_by_both(self.matching, own(of_mean), reach, coverage)
        return self.mirroring.together(
            self.targets.inverse(mean.mean(dim=0).cpu().numpy()),
            reach.mean(dim=0).cpu().numpy() * self.targets.spread[:, None, None],
        )


def estimate_in_parts(X: NDArray[Any], estimate_part: Callable[[NDArray[Any]], Estimate]) -> Estimate:
    """The estimate for all rows, made part by part: of rows that lie on disk, no more than a part is in memory."""
    step = ROWS_AT_A_TIME if X.ndim == 2 else max(1, NUMBERS_AT_A_TIME // X[0].size)
    parts = [estimate_part(X[i : i + step]) for i in range(0, len(X), step)]
    return Estimate(np.concatenate([p.mean for p in parts]), np.concatenate([p.reach for p in parts]))


def shaped_by_both(matching: Matching, of_mean: Tensor, reach: Tensor, coverage: Tensor) -> Tensor:
    """The geometric mean of I's reach and F's own, member by member; I's alone where F has none of its own.

    The two networks err in different places, and ranks set the size afterwards. F's reach counts within a factor of
    `FARTHEST` of I's: that of a strategy of the user's may lie anywhere.

    Shape: of_mean `(member, batch, output)`, reach and result `(member, batch, target, side, level)`.
    """
    own_reach = getattr(matching, "reach", None)
    if own_reach is None:
        return reach
    own = own_reach(of_mean, reach.shape[2], coverage)
    if own.shape != reach.shape:
        raise ValueError(
            f"the matching's reach must have the shape {tuple(reach.shape)} (member, batch, target, side, level), got "
            f"{tuple(own.shape)}; without a reach of its own, I alone shapes the intervals"
        )
    shaped: Tensor = (reach * own.clamp(reach / FARTHEST, reach * FARTHEST)).sqrt()
    return shaped


def learner_of(
    network: Network,
    problem: Problem,
    trains: Tensor,
    n_outputs: int,
    *,
    batch_size: int,
    learning_rate: float,
    memory: float,
) -> Learner:
    """A new team for all jobs, ready to train on the rows of the mask (job, member, row)."""
    n_members = problem.n_jobs * problem.members_per_job
    team = network.build(n_members, tuple(problem.x.shape[2:]), n_outputs).to(problem.y.device)
    team.adapt(problem.x, problem.valid)
    batches = Minibatches(trains.flatten(end_dim=1), batch_size)
    return Learner(team, problem, batches, learning_rate=learning_rate, memory=memory)


def members_of(job: int, learner: Learner, network: Network, n_outputs: int) -> Team:
    """One job's members as a team of their own, in the precision they speak in, on the CPU."""
    problem = learner.problem
    size = problem.members_per_job
    network = getattr(learner.team, "recipe", network)  # one that needs no file to start from
    with torch.random.fork_rng(devices=[]):  # a new team draws its start: who looks on must not change the rest
        team = network.build(size, tuple(problem.x.shape[2:]), n_outputs)
    team.set_state_of(slice(None), learner.average.state_of(slice(job * size, (job + 1) * size)))
    return team.to(team.precision).eval().requires_grad_(False)
