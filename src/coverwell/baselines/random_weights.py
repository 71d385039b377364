"""Networks with random weights: training draws new ones for every batch, a prediction samples fixed networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.networks.lstm import LSTM, LSTMTeam
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import State, Team
from coverwell.paper.losses import PerMember


@runtime_checkable
class RandomTeam(Protocol):
    """What a team of random networks has beside a team's own methods."""

    @property
    def numbers_per_sample(self) -> int:
        """How many weights one sample of each member has of its own, all members together."""

    def penalty(self) -> PerMember:
        """How far each member's distribution lies from its prior, in nats."""

    def sample(self, n_samples: int, generator: torch.Generator) -> Team:
        """Some networks from each member's distribution, ordered by member; each is the same for all rows."""


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
        return repeated(values, self.n_samples)

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
        code = {name: repeated(values, n_samples) for name, values in self.means.named_buffers()}
        team.load_state_dict(code | self.drawn(Draws(n_samples, generator)), assign=True)
        return team.eval().requires_grad_(False)


def repeated(values: Tensor, n_samples: int) -> Tensor:
    """Values per member, given to each of its samples: (member, ...) -> (member and sample, ...)."""
    return values if n_samples == 1 else values.repeat_interleave(n_samples, dim=0)


def inputs_of(name: str, weight: Float[Tensor, "member ..."]) -> Float[Tensor, "member ..."]:
    """A slice of a weight with one number per input; LSTM layers have inputs last, linear ones outputs."""
    return weight[:, :1] if name.startswith("layers.") else weight[..., :1]


def squares(values: Float[Tensor, "member ..."]) -> PerMember:
    """The sum of squares of each member."""
    return values.square().flatten(start_dim=1).sum(dim=1)
