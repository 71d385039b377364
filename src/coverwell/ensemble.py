"""What one job leaves behind: its two teams and its scalers, ready to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.algorithm import Measures, Recipe, Record, alternate, n_interval_outputs, reach_of
from coverwell.calibration import Estimate
from coverwell.folds import Job, Problem, stack_jobs
from coverwell.matching import Matching
from coverwell.networks.team import Network, Team
from coverwell.scaling import InputScaler, TargetScaler
from coverwell.training import Learner, Minibatches, everywhere

__all__ = ["Ensemble", "Training", "train_together"]

# Rows predicted at a time.
ROWS_AT_A_TIME = 8192


@dataclass(frozen=True)
class Training:
    """How jobs are trained: the networks, the recipe and the optimizer's settings."""

    mean_network: Network
    interval_network: Network
    recipe: Recipe
    batch_size: int
    learning_rate: float
    memory: float
    device: torch.device


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
    inputs: InputScaler
    targets: TargetScaler

    def to(self, device: torch.device) -> None:
        """Move both teams to a device."""
        self.mean_team.to(device)
        self.interval_team.to(device)

    def estimate(self, X: NDArray[np.float64], device: torch.device) -> Estimate:
        """Mean and reach for these rows, computed in float64 and averaged over the members."""
        self.to(device)
        parts = [self._estimate_part(X[i : i + ROWS_AT_A_TIME], device) for i in range(0, len(X), ROWS_AT_A_TIME)]
        return Estimate(np.concatenate([p.mean for p in parts]), np.concatenate([p.reach for p in parts]))

    @torch.no_grad()
    def _estimate_part(self, X: NDArray[np.float64], device: torch.device) -> Estimate:
        x = torch.from_numpy(self.inputs.transform(X)).to(device)[None]
        coverage = torch.tensor([self.coverage], dtype=torch.float64, device=device)
        scale = torch.tensor(self.scale, device=device)[None]
        mean = self.matching.mean(everywhere(self.mean_team, x), self.scale.shape[-1])
        reach = reach_of(everywhere(self.interval_team, x), coverage, scale)
        return Estimate(
            self.targets.inverse(mean.mean(dim=0).cpu().numpy()),
            reach.mean(dim=0).cpu().numpy() * self.targets.spread[:, None, None],
        )


def train_together(
    jobs: Sequence[Job], training: Training, progress: Callable[[Measures], None]
) -> tuple[list[TrainedJob], Record]:
    """Run Algorithm 1 on all jobs at once and take the teams apart again."""
    problem = stack_jobs(jobs, training.device)
    n_targets, n_levels = problem.y.shape[-1], problem.coverage.shape[-1]
    mean_outputs = training.recipe.matching.n_outputs(n_targets, n_levels)
    mean = _learner(training.mean_network, problem, problem.trains, mean_outputs, training)
    heard = problem.trains & problem.heard[:, None, :]  # I learns from honest residuals alone
    # A member that has none, such as the first of TimeSeriesSplit, learns the spread of its own targets.
    heard = torch.where(heard.any(dim=-1, keepdim=True), heard, problem.trains)
    interval_outputs = n_interval_outputs(n_targets, n_levels)
    interval = _learner(training.interval_network, problem, heard, interval_outputs, training)
    record = alternate(mean, interval, training.recipe, progress)
    means = problem.of_job(training.recipe.matching.mean(mean.says(), n_targets)).cpu()
    coverage, scale = problem.to_members(problem.coverage), problem.to_members(record.scale)
    reaches = problem.of_job(reach_of(interval.says(), coverage, scale)).cpu()
    trained = [
        TrainedJob(
            _members_of(job, mean, training.mean_network, mean_outputs),
            _members_of(job, interval, training.interval_network, interval_outputs),
            record.scale[job].cpu(),
            Estimate(
                means[job, :, : len(jobs[job].y)].double().numpy(), reaches[job, :, : len(jobs[job].y)].double().numpy()
            ),
        )
        for job in range(problem.n_jobs)
    ]
    return trained, record


def _learner(network: Network, problem: Problem, trains: Tensor, n_outputs: int, training: Training) -> Learner:
    n_members = problem.n_jobs * problem.members_per_job
    team = network.build(n_members, tuple(problem.x.shape[2:]), n_outputs).to(training.device)
    team.adapt(problem.x, problem.valid)
    batches = Minibatches(trains.flatten(end_dim=1), training.batch_size)
    return Learner(team, problem, batches, learning_rate=training.learning_rate, memory=training.memory)


def _members_of(job: int, learner: Learner, network: Network, n_outputs: int) -> Team:
    """One job's members as a team of their own, in float64 on the CPU."""
    problem = learner.problem
    size = problem.members_per_job
    team = network.build(size, tuple(problem.x.shape[2:]), n_outputs)
    team.set_state_of(slice(None), learner.average.state_of(slice(job * size, (job + 1) * size)))
    return team.double().eval().requires_grad_(False)
