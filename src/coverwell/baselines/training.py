"""How a baseline's networks are trained, what their outputs mean, and the fitted team that this leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

from coverwell.estimator import OnRound, Trained
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.networks.lstm import LSTM, LSTMTeam
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import Network, State, Team
from coverwell.options import stored
from coverwell.paper.algorithm import History, Measures, half_widths, measure
from coverwell.paper.losses import Levels, Values, gaussian_half_width, gaussian_nll, pinball, quantile_levels
from coverwell.predictor import FittedTeam
from coverwell.training.device import Settings
from coverwell.training.learner import Learner, Objective, outputs_of
from coverwell.training.rows import Rows

Outputs = Float[Tensor, "member batch output"]
OfNetworks = Float[Tensor, "team network row output"]
PerRow = Float[Tensor, "member batch"]
Combined = tuple[
    Float[Tensor, "team row target"], Float[Tensor, "team row bounded side level"]
]  # of classes, one score

SMALLEST_SIGMA = 1e-3  # zero has an infinite likelihood; targets are of order one here
EPOCHS_PER_ROUND = 10
N_EVALUATED, EVALUATION_SEED = 5, 0  # networks of a random team after a round, always the same draws
NUMBERS_AT_A_TIME = 2**24  # weights of sampled networks that are held at a time
MOST_NUMBERS = 2**27  # weights of an exported model: half a gigabyte in float32, where a file may have two


@runtime_checkable
class OutputHead(Protocol):
    """How outputs are trained (the loss of each row), and how those of all networks of a team are combined.

    Without `noise`, the half-widths show the disagreement of the networks alone.
    """

    def n_outputs(self, n_targets: int, n_levels: int) -> int: ...
    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow: ...
    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined: ...


@stored
@dataclass(frozen=True)
class NormalHead:
    """A mean and a standard deviation for every row and target (Nix and Weigend 1994)."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return 2 * n_targets

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        """The negative log-likelihood without its constant, averaged over targets."""
        return gaussian_nll(y, *self.moments(outputs)).mean(dim=-1)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The means and standard deviations among the outputs."""
        mean, raw = outputs.chunk(2, dim=-1)
        return mean, softplus(raw) + SMALLEST_SIGMA

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """The normal distribution with the moments of the networks' mixture (Lakshminarayanan et al. 2017)."""
        means, sigmas = self.moments(outputs)
        variance = means.var(dim=1, correction=0)
        if noise:
            variance = variance + sigmas.square().mean(dim=1)
        return means.mean(dim=1), gaussian_half_width(variance.sqrt(), levels.z)


@stored
@dataclass(frozen=True)
class QuantileHead:
    """A median, and increments outwards to the quantiles of each level, so that no two ever cross."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets * (1 + 2 * n_levels)

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        """The pinball loss (Eq. 8) of the median and of both ends of every level, averaged over all of them."""
        median, half_width = self.quantiles(outputs, levels)
        below, above = half_width.unbind(dim=-2)
        quantiles = torch.cat([median[..., None] - below, median[..., None], median[..., None] + above], dim=-1)
        lower, upper = quantile_levels(levels.coverage)
        tau = torch.cat([lower, torch.full_like(lower[:, :1], 0.5), upper], dim=-1)
        return pinball(y, quantiles, tau).mean(dim=(-1, -2))

    def quantiles(self, outputs: Tensor, levels: Levels) -> tuple[Tensor, Tensor]:
        """The median (member, batch, target) and half-widths around it (member, batch, target, side, level)."""
        n_targets = outputs.shape[-1] // self.n_outputs(1, levels.coverage.shape[-1])
        unit = outputs.new_ones(len(outputs), n_targets)  # y is scaled: its own spread
        return outputs[..., :n_targets], half_widths(outputs[..., n_targets:], levels, unit)

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """The averages of the networks' quantiles."""
        median, half_width = self.quantiles(outputs.flatten(1, 2), levels)  # (team, network and row, ...)
        networks = (1, outputs.shape[1:3])
        return median.unflatten(*networks).mean(dim=1), half_width.unflatten(*networks).mean(dim=1)


@runtime_checkable
class RandomTeam(Protocol):
    """A team of random networks: training draws new weights for every batch, a prediction samples fixed networks.

    The penalty is how far each member's distribution lies from its prior, in nats. Sampled networks are ordered by
    member; a sample of each member has `numbers_per_sample` weights, all members together.
    """

    @property
    def numbers_per_sample(self) -> int: ...
    def penalty(self) -> Float[Tensor, " member"]: ...
    def sample(self, n_samples: int, generator: torch.Generator) -> Team: ...


@dataclass(frozen=True)
class RandomNetwork:
    """Recipe of a network with random weights, from that of a plain one."""

    plain: MLP | LSTM | ResNet18

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        raise NotImplementedError

    def operations_per_row(self, n_inputs: int) -> float:
        return self.plain.operations_per_row(n_inputs)


@dataclass(frozen=True)
class Draws:
    """Random numbers for weights: one draw for each member in training, or several from a generator."""

    n_samples: int = 1
    generator: torch.Generator | None = None

    def of(self, values: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """Values per member, given to each of its draws."""
        return values if self.n_samples == 1 else values.repeat_interleave(self.n_samples, dim=0)

    def random(self, kind: Callable[..., Tensor], like: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """Numbers by `torch.rand` or `torch.randn`, for each draw of these values."""
        if self.generator is None:
            return kind(like.shape, dtype=like.dtype, device=like.device)
        shape = (self.n_samples * len(like), *like.shape[1:])
        return kind(shape, generator=self.generator, dtype=torch.float64).to(like)  # the same on every device


class RandomWeights(Team):
    """Distributions over the weights of a plain team, whose own weights are their means.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    capturable = True
    recipe: RandomNetwork

    def __init__(self, recipe: RandomNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        self.recipe, self.n_members, self.sizes = recipe, n_members, (input_shape, n_outputs)
        self.means = self.plain_team(n_members)
        self.precision = self.means.precision

    def plain_team(self, n_members: int) -> MLPTeam | LSTMTeam:
        """A team of these sizes that draws nothing; networks other than these two have teams of their own."""
        return cast("MLPTeam | LSTMTeam", replace(self.recipe.plain, dropout=0.0).build(n_members, *self.sizes))

    @property
    def weights(self) -> State:
        """The mean weights and biases by name."""
        return dict(self.means.named_parameters())

    @property
    def numbers_per_sample(self) -> int:
        return sum(weight.numel() for weight in self.parameters())

    def adapt(self, inputs: Tensor, valid: Tensor) -> None:
        self.means.adapt(inputs, valid)

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        return cast(Tensor, self.means(x))

    def drawn(self, draws: Draws) -> State:
        """Random weights, by the names of the mean weights."""
        raise NotImplementedError

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> Team:
        with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
            team = self.plain_team(self.n_members * n_samples)
        draws = Draws(n_samples, generator)
        code = {name: draws.of(values) for name, values in self.means.named_buffers()}
        team.load_state_dict(code | self.drawn(draws), assign=True)
        return team.eval().requires_grad_(False)


def inputs_of(name: str, weight: Float[Tensor, "member ..."]) -> Float[Tensor, "member ..."]:
    """A slice of a weight with one number per input; LSTM layers have inputs last, linear ones outputs."""
    return weight[:, :1] if name.startswith("layers.") else weight[..., :1]


def squares(values: Float[Tensor, "member ..."]) -> Float[Tensor, " member"]:
    """The sum of squares of each member."""
    return values.square().flatten(start_dim=1).sum(dim=1)


@stored
class BaselineTeam(FittedTeam):
    """A trained team and its head. Random networks are sampled for every prediction, always the same ones."""

    def __init__(
        self,
        team: Team,
        head: OutputHead,
        coverage: Sequence[float] | NDArray[np.float64],
        inputs: Scaling,
        targets: Scaling,
        mirroring: Mirroring | None = None,
        *,
        n_samples: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(coverage, inputs, targets, mirroring)
        self.team, self.head, self.n_samples, self.seed = team, head, n_samples, seed
        self.fixed = nn.ModuleList()  # samples for an exported model

    @property
    def n_members(self) -> int:
        return self.team.n_members

    def scaled_estimate(self, x: Tensor, *, noise: bool) -> tuple[Tensor, Tensor]:
        outputs = torch.cat([self.run(team, x) for team in self.networks()])  # (network, row, output)
        mean, half_width = self.head.combined(outputs[None], self.levels, noise=noise)
        return mean[0], half_width[0] if self.mirroring is None else half_width[0, ::2]  # without mirror images

    def networks(self) -> Iterator[Team]:
        """The team itself, or samples of a random one, as many at a time as memory allows."""
        fixed = [team for team in self.fixed if isinstance(team, Team)]
        if fixed or not isinstance(self.team, RandomTeam):
            yield from fixed or [self.team]
            return
        at_a_time = max(1, NUMBERS_AT_A_TIME // self.team.numbers_per_sample)
        generator = torch.Generator().manual_seed(self.seed)
        for first in range(0, self.n_samples, at_a_time):
            yield self.team.sample(min(at_a_time, self.n_samples - first), generator)

    def for_export(self) -> FittedTeam:
        if not isinstance(self.team, RandomTeam):
            return self
        exported, n_numbers = copy.deepcopy(self), 0
        for team in self.networks():
            exported.fixed.append(team)
            n_numbers += sum(values.numel() for values in team.state_dict().values())
            if n_numbers > MOST_NUMBERS:
                raise ValueError(
                    f"a model may be exported with up to {MOST_NUMBERS:,} weights, got more in the {self.n_samples} "
                    "samples of its networks; fit with a smaller n_samples, or a smaller network"
                )
        return exported


@dataclass(frozen=True)
class BaselineTraining:
    """Rounds of some epochs, until the loss on held-out rows no longer falls."""

    network: Network
    head: OutputHead
    settings: Settings
    patience: int  # rounds
    n_samples: int = 1
    kind_of_team: type[BaselineTeam] = BaselineTeam

    def shortened(self) -> BaselineTraining:
        """One round: enough to see whether memory suffices."""
        return replace(self, settings=replace(self.settings, max_rounds=1))

    def run(self, rows: Rows, on_round: OnRound) -> tuple[Trained, History]:
        """Train all jobs at once; each ends at the round with the lowest loss on its held-out rows."""
        rows = rows.to(self.settings.device)
        n_outputs = self.head.n_outputs(rows.y.shape[-1], rows.coverage.shape[-1])
        learner = Learner(self.network, rows, n_outputs, self.settings)
        history = History(rows, (learner,), patience=self.patience)
        for _ in range(self.settings.max_rounds):
            loss = learner.descend(rows, EPOCHS_PER_ROUND, self.objective(rows, learner.team))
            history.add(self.evaluated(rows, learner.average), (loss,))
            on_round(lambda unit: self.trained(rows, learner.average), history)
            if not history.going.any():
                break
        history.best[0].restore()
        return self.trained(rows, learner.average), history

    def objective(self, rows: Rows, team: Team) -> Objective:
        """The head's loss on a batch; for random networks, the evidence lower bound with its sign changed.

        The bound is a sum over rows and targets less the penalty, and the loss an average over both. A class is one.
        """
        levels, n_values = rows.levels_of_members, rows.trains.sum(dim=2).flatten() * rows.n_bounded

        def objective(outputs: Tensor, batch: Tensor) -> Tensor:
            per_member = self.head.losses(outputs, rows.batch_of(rows.y, batch), levels).mean(dim=1)
            return per_member + team.penalty() / n_values if isinstance(team, RandomTeam) else per_member

        return objective

    @torch.no_grad()
    def evaluated(self, rows: Rows, team: Team) -> Measures:
        """Measures of the intervals for held-out rows; the best round is chosen by the loss there."""
        n, networks = 1, team
        if isinstance(team, RandomTeam):
            n, networks = N_EVALUATED, team.sample(N_EVALUATED, torch.Generator().manual_seed(EVALUATION_SEED))
        outputs = outputs_of(networks, rows.x, rows.y.dtype)  # (member and network, row, output)
        levels, left_out, of_networks = rows.levels_of_members, rows.out_of_fold_view.left_out, Draws(n).of
        each = Levels(of_networks(levels.coverage), of_networks(levels.z))
        losses = self.head.losses(outputs, of_networks(rows.to_members(rows.y)), each)
        by_job = losses.unflatten(0, (*rows.trains.shape[:2], n)).mean(dim=2)  # (job, member, row)
        held_out = rows.leaves_out if rows.weight is None else rows.leaves_out * rows.weight[:, None].to(by_job)
        held_out_loss = (by_job * held_out).sum(dim=(1, 2)) / held_out.sum(dim=(1, 2))
        estimate = self.head.combined(outputs.unflatten(0, (-1, n)), levels, noise=True)
        members = torch.arange(len(left_out), device=left_out.device)[:, None]
        measures = measure(rows, *(rows.out_of_fold(part[members, left_out]) for part in estimate))
        return replace(measures, scores=(held_out_loss,))

    def trained(self, rows: Rows, team: Team) -> Trained:
        """The team of each job."""
        teams: list[FittedTeam] = []
        for job, seed in enumerate(rows.seeds):
            own = team.deployed(slice(job * rows.members_per_job, (job + 1) * rows.members_per_job))
            known = (rows.levels[job], rows.inputs[job], rows.targets[job], rows.mirroring)
            more: dict[str, Any] = {} if rows.score is None else {"score": rows.score}
            teams.append(self.kind_of_team(own, self.head, *known, n_samples=self.n_samples, seed=seed, **more))
        return Trained(teams, [None] * len(teams))
