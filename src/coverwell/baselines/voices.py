"""A baseline's team in training, and what it leaves behind: voices that are read as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from coverwell.algorithm import Measures, Record, measure
from coverwell.baselines.laws import Law
from coverwell.baselines.random_team import RandomTeam, repeated
from coverwell.calibration import Estimate
from coverwell.ensemble import Progress, estimate_in_parts, learner_of, members_of
from coverwell.folds import Job, as_tensor, stack_jobs
from coverwell.inputs.mirroring import NOT_MIRRORED, Mirroring
from coverwell.inputs.scaling import Inputs, TargetScaler
from coverwell.networks.team import Network, Team
from coverwell.training import BestRound, Learner, everywhere, spoken

__all__ = ["EPOCHS_PER_ROUND", "TrainedVoices", "VoiceTraining", "Voices", "voices_of"]

EPOCHS_PER_ROUND = 10
# How many networks of a random team judge a round; always the same, so that rounds differ by their weights alone.
JUDGES, JUDGES_SEED = 5, 0
# How many weights of sampled networks are held at a time.
NUMBERS_AT_A_TIME = 2**24


def voices_of(team: Team, n_samples: int, generator: torch.Generator) -> Team:
    """The networks that speak for a team, ordered by member: samples of a random one, or its members themselves."""
    return team.sample(n_samples, generator) if isinstance(team, RandomTeam) else team


@dataclass(frozen=True)
class TrainedVoices:
    """The team of one job."""

    team: Team
    said: None = None  # no word about rows that were left out is kept


@dataclass(frozen=True)
class Voices:
    """A trained team and how it is read, in the user's units."""

    team: Team
    law: Law
    coverage: tuple[float, ...]
    inputs: Inputs
    targets: TargetScaler
    n_samples: int
    seed: int
    mirroring: Mirroring = NOT_MIRRORED

    def to(self, device: torch.device) -> None:
        """Move the team to a device."""
        self.team.move(device)

    def estimate(self, X: NDArray[Any], device: torch.device, *, noise: bool = True) -> Estimate:
        """Mean and reach for these rows in float64; without `noise`, the doubt about the mean alone."""
        self.to(device)
        return estimate_in_parts(X, partial(self._estimate_part, device=device, noise=noise))

    @torch.no_grad()
    def _estimate_part(self, X: NDArray[Any], device: torch.device, *, noise: bool) -> Estimate:
        x = as_tensor(self.inputs.transform(self.mirroring.flat(X))).to(device)[None]
        outputs = torch.cat([spoken(team, x) for team in self._speaking()])  # (voice, row, output)
        coverage = torch.tensor([self.coverage], dtype=torch.float64, device=device)
        said = self.law.read(outputs[None], coverage, noise=noise)  # one team of all voices
        return self.mirroring.together(
            self.targets.inverse(said.mean[0].cpu().numpy()),
            self.mirroring.own(said.reach[0], axis=0).cpu().numpy() * self.targets.spread[:, None, None],
        )

    def _speaking(self) -> Iterator[Team]:
        """All voices, a part of them at a time; always the same ones."""
        if not isinstance(self.team, RandomTeam):
            yield self.team
            return
        all_numbers = sum(weight.numel() for weight in self.team.parameters())
        n_numbers = getattr(self.team, "numbers_per_sample", all_numbers)  # samples may share most of their weights
        at_a_time = max(1, NUMBERS_AT_A_TIME // n_numbers)
        generator = torch.Generator().manual_seed(self.seed)
        for first in range(0, self.n_samples, at_a_time):
            yield self.team.sample(min(at_a_time, self.n_samples - first), generator)


@dataclass(frozen=True)
class VoiceTraining:
    """How a baseline's jobs are trained: rounds of some epochs, until the loss on held-out rows no longer falls."""

    network: Network
    law: Law
    max_rounds: int
    patience: int  # rounds
    batch_size: int
    learning_rate: float
    memory: float
    device: torch.device

    @property
    def networks(self) -> tuple[Network]:
        return (self.network,)

    def with_networks(self, change: Callable[[Network], Network]) -> VoiceTraining:
        """The same with the network changed."""
        return replace(self, network=change(self.network))

    def shortened(self) -> VoiceTraining:
        """One round: enough to see whether memory suffices."""
        return replace(self, max_rounds=1)

    def run(self, jobs: Sequence[Job], progress: Progress) -> tuple[list[TrainedVoices], Record]:
        """Train all jobs at once and leave each at the round whose held-out loss was the lowest."""
        problem = stack_jobs(jobs, self.device)
        n_outputs = self.law.n_outputs(problem.y.shape[-1], problem.coverage.shape[-1])
        learner = learner_of(
            self.network,
            problem,
            problem.trains,
            n_outputs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            memory=self.memory,
        )

        def present() -> list[TrainedVoices]:
            return [TrainedVoices(members_of(job, learner, self.network, n_outputs)) for job in range(problem.n_jobs)]

        record = self._descend(learner, lambda measures: progress(measures, present))
        return present(), record

    def _descend(self, learner: Learner, progress: Callable[[Measures], None]) -> Record:
        problem = learner.problem
        unit = problem.y.new_ones(problem.n_jobs, problem.y.shape[-1])
        best = BestRound(learner, unit)
        rounds, losses, seconds = [], [], []
        going = torch.ones(problem.n_jobs, dtype=torch.bool, device=unit.device)
        last_better, n_rounds = torch.zeros_like(going, dtype=torch.long), torch.zeros_like(going, dtype=torch.long)
        for number in range(1, self.max_rounds + 1):
            started = time.perf_counter()
            loss = learner.descend(EPOCHS_PER_ROUND, self._loss(learner))
            held_out, measures = self._judge(learner)
            n_rounds += going
            better = best.offer(held_out, unit, going)
            last_better = torch.where(better, number, last_better)
            going = going & (number - last_better < self.patience)
            rounds.append(measures)
            losses.append(problem.of_job(loss).mean(dim=1, keepdim=True))
            seconds.append(time.perf_counter() - started)
            progress(measures)
            if not going.any():
                break
        best.restore()
        return Record(rounds, losses, seconds, n_rounds.tolist(), unit)

    def _loss(self, learner: Learner) -> Callable[[Tensor, Tensor], Tensor]:
        problem, team = learner.problem, learner.team
        coverage = problem.to_members(problem.coverage)
        n_values = learner.batches.counts[:, 0] * problem.y.shape[-1]

        def loss(outputs: Tensor, rows: Tensor) -> Tensor:
            per_member = self.law.losses(outputs, problem.rows_of(problem.y, rows), coverage).mean(dim=1)
            # The evidence's bound is a sum over rows and targets less the penalty; the loss is an average over both.
            return per_member + team.penalty() / n_values if isinstance(team, RandomTeam) else per_member

        return loss

    @torch.no_grad()
    def _judge(self, learner: Learner) -> tuple[Float[Tensor, " job"], Measures]:
        """The loss of each job's held-out rows, and what is measured on them."""
        problem = learner.problem
        speaking = voices_of(learner.average, JUDGES, torch.Generator().manual_seed(JUDGES_SEED))
        outputs = everywhere(speaking, problem.x, problem.y.dtype)  # (member * voice, row, output)
        n_voices = speaking.n_members // learner.average.n_members
        coverage = problem.to_members(problem.coverage)
        y = repeated(problem.to_members(problem.y), n_voices)
        each = self.law.losses(outputs, y, repeated(coverage, n_voices)).unflatten(0, (-1, n_voices)).mean(dim=1)
        by_job = problem.of_job(each)  # (job, member, row)
        held_out = (by_job * problem.speaks).sum(dim=(1, 2)) / problem.speaks.sum(dim=(1, 2))
        said = self.law.read(outputs.unflatten(0, (-1, n_voices)), coverage, noise=True)
        mean, reach = (problem.out_of_fold(problem.of_job(part)) for part in (said.mean, said.reach))
        return held_out, measure(problem, mean, reach)
