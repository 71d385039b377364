"""How a baseline's networks are trained, and the fitted team that this leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from coverwell.baselines.heads import OutputHead
from coverwell.baselines.random_weights import RandomTeam, repeated
from coverwell.estimator import OnRound, Trained
from coverwell.inputs.mirroring import NOT_MIRRORED, Mirroring
from coverwell.inputs.scaling import InputScaling, TargetScaling
from coverwell.networks.team import Network, Team
from coverwell.paper.algorithm import History, Measures, measure
from coverwell.paper.losses import Levels
from coverwell.predictor import FittedTeam
from coverwell.training.learner import Learner, Objective, Settings, outputs_of
from coverwell.training.rows import Rows

__all__ = ["EPOCHS_PER_ROUND", "BaselineTeam", "BaselineTraining"]

EPOCHS_PER_ROUND = 10
# How many networks of a random team are evaluated after a round. They are always the same draws, so that rounds differ
# by their weights alone.
N_EVALUATED, EVALUATION_SEED = 5, 0
# How many weights of sampled networks are held at a time, and how many an exported model may have: half a gigabyte in
# float32, where a file may have two.
NUMBERS_AT_A_TIME = 2**24
MOST_NUMBERS = 2**27


class BaselineTeam(FittedTeam):
    """A trained team and its head. Random networks are sampled for every prediction, always the same ones."""

    def __init__(
        self,
        team: Team,
        head: OutputHead,
        levels: tuple[float, ...],
        inputs: InputScaling,
        targets: TargetScaling,
        mirroring: Mirroring = NOT_MIRRORED,
        *,
        n_samples: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(levels, inputs, targets, mirroring)
        self.team, self.head, self.n_samples, self.seed = team, head, n_samples, seed

    @property
    def n_members(self) -> int:
        return self.team.n_members

    def scaled_estimate(self, x: Tensor, *, noise: bool) -> tuple[Tensor, Tensor]:
        outputs = torch.cat([self.run(team, x) for team in self.networks()])  # (network, row, output)
        mean, half_width = self.head.combined(outputs[None], self.levels, noise=noise)
        return mean[0], self.mirroring.own(half_width[0], axis=0)

    def networks(self) -> Iterator[Team]:
        """The team itself, or samples of a random one, as many at a time as memory allows."""
        if not isinstance(self.team, RandomTeam):
            yield self.team
            return
        at_a_time = max(1, NUMBERS_AT_A_TIME // self.team.numbers_per_sample)
        generator = torch.Generator().manual_seed(self.seed)
        for first in range(0, self.n_samples, at_a_time):
            yield self.team.sample(min(at_a_time, self.n_samples - first), generator)

    def for_export(self) -> FittedTeam:
        """The same with the sampled networks in place, because no graph can draw them."""
        if not isinstance(self.team, RandomTeam):
            return self
        parts, n_numbers = [], 0
        for team in self.networks():
            parts.append(team)
            n_numbers += sum(values.numel() for values in team.state_dict().values())
            if n_numbers > MOST_NUMBERS:
                raise ValueError(
                    f"a model may be exported with up to {MOST_NUMBERS:,} weights, got more in the {self.n_samples} "
                    "samples of its networks; fit with a smaller n_samples, or a smaller network"
                )
        levels = tuple(self.coverage[0].tolist())
        return BaselineTeam(_Joined(parts), self.head, levels, self.inputs, self.targets, self.mirroring)


class _Joined(Team):
    """Several deployed teams as one, all of which are given the same rows.

    Shape: input `(1, batch, ...)`, output `(member, batch, output)`.
    """

    def __init__(self, teams: list[Team]) -> None:
        super().__init__()
        self.n_members, self.precision = sum(team.n_members for team in teams), teams[0].precision
        self.teams = nn.ModuleList(teams)

    def for_members(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([team(team.for_members(x)) for team in self.teams if isinstance(team, Team)])


@dataclass(frozen=True)
class BaselineTraining:
    """Rounds of some epochs, until the loss on held-out rows no longer falls."""

    network: Network
    head: OutputHead
    settings: Settings
    max_rounds: int
    patience: int  # rounds
    n_samples: int = 1

    @property
    def device(self) -> torch.device:
        return self.settings.device

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def shortened(self) -> BaselineTraining:
        """One round: enough to see whether memory suffices."""
        return replace(self, max_rounds=1)

    def run(self, rows: Rows, on_round: OnRound) -> tuple[Trained, History]:
        """Train all jobs at once; each ends at the round with the lowest loss on its held-out rows."""
        rows = rows.to(self.device)
        learner = Learner.of(self.network, rows, self._n_outputs(rows), self.settings)
        history = History(rows, (learner,), patience=self.patience)
        for _ in range(self.max_rounds):
            loss = learner.descend(rows, EPOCHS_PER_ROUND, self.objective(rows, learner.team))
            held_out_loss, measures = self.evaluated(rows, learner.average)
            history.add(measures, (loss,), (held_out_loss,))
            on_round(history, lambda: self._trained(rows, learner))
            if history.settled:
                break
        history.restore()
        return self._trained(rows, learner), history

    def objective(self, rows: Rows, team: Team) -> Objective:
        """The head's loss on a batch; for random networks, the evidence lower bound with its sign changed.

        The bound is a sum over rows and targets less the penalty, and the loss an average over both.
        """
        levels = Levels.of(rows.to_members(rows.coverage))
        n_values = rows.trains.flatten(end_dim=1).sum(dim=1) * rows.y.shape[-1]

        def objective(outputs: Tensor, batch: Tensor) -> Tensor:
            per_member = self.head.losses(outputs, rows.batch_of(rows.y, batch), levels).mean(dim=1)
            return per_member + team.penalty() / n_values if isinstance(team, RandomTeam) else per_member

        return objective

    @torch.no_grad()
    def evaluated(self, rows: Rows, team: Team) -> tuple[Float[Tensor, " job"], Measures]:
        """The loss of each job on its held-out rows, and the measures of its intervals there."""
        if isinstance(team, RandomTeam):
            n, networks = N_EVALUATED, team.sample(N_EVALUATED, torch.Generator().manual_seed(EVALUATION_SEED))
        else:
            n, networks = 1, team
        outputs = outputs_of(networks, rows.x, rows.y.dtype)  # (member and network, row, output)
        levels = Levels.of(rows.to_members(rows.coverage))
        of_networks = Levels(repeated(levels.coverage, n), repeated(levels.z, n))
        losses = self.head.losses(outputs, repeated(rows.to_members(rows.y), n), of_networks)
        by_job = rows.by_job(losses.unflatten(0, (-1, n)).mean(dim=1))  # (job, member, row)
        held_out_loss = (by_job * rows.leaves_out).sum(dim=(1, 2)) / rows.leaves_out.sum(dim=(1, 2))
        estimate = self.head.combined(outputs.unflatten(0, (-1, n)), levels, noise=True)
        members = torch.arange(len(rows.left_out), device=outputs.device)[:, None]
        return held_out_loss, measure(rows, *(rows.out_of_fold(part[members, rows.left_out]) for part in estimate))

    def _n_outputs(self, rows: Rows) -> int:
        return self.head.n_outputs(rows.y.shape[-1], rows.coverage.shape[-1])

    def _trained(self, rows: Rows, learner: Learner) -> Trained:
        teams: list[FittedTeam] = []
        for job in range(rows.n_jobs):
            members = slice(job * rows.members_per_job, (job + 1) * rows.members_per_job)
            teams.append(
                BaselineTeam(
                    learner.members_of(members, self.network, tuple(rows.x.shape[2:]), self._n_outputs(rows)),
                    self.head,
                    rows.levels[job],
                    rows.inputs[job],
                    rows.targets[job],
                    rows.mirroring,
                    n_samples=self.n_samples,
                    seed=rows.seeds[job],
                )
            )
        return Trained(teams, [None] * rows.n_jobs)
