"""Teams of networks with random weights: training draws new ones for every batch, prediction samples fixed networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from coverwell.networks.lstm import LSTM, LSTMTeam, StackedLSTM
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import State, Team
from coverwell.paper.losses import PerMember

__all__ = ["Draws", "MaskedWeights", "RandomNetwork", "RandomTeam", "RandomWeights", "inputs_of", "repeated", "squares"]


@runtime_checkable
class RandomTeam(Protocol):
    """What a team of random networks has beside a team's own methods."""

    @property
    def numbers_per_sample(self) -> int:
        """How many weights one sample of each member has of its own, all members together."""
        ...

    def penalty(self) -> PerMember:
        """How far each member's distribution lies from its prior, in nats."""
        ...

    def sample(self, n_samples: int, generator: torch.Generator) -> Team:
        """Some networks from each member's distribution, as a team ordered by member.

        A sample is one network for all rows, so that a prediction does not depend on the rows beside it.
        """
        ...


@dataclass(frozen=True)
class RandomNetwork:
    """Recipe of a network with random weights, from that of a plain one."""

    plain: MLP | LSTM | ResNet18

    def operations_per_row(self, n_inputs: int) -> float:
        return self.plain.operations_per_row(n_inputs)


@dataclass(frozen=True)
class Draws:
    """Random numbers for weights: one draw for each member in training, or several from a generator."""

    n_samples: int = 1
    generator: torch.Generator | None = None

    def of(self, values: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """Values per member, given to each of its draws."""
        return values if self.generator is None else repeated(values, self.n_samples)

    def random(self, kind: Callable[..., Tensor], like: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """Numbers by `torch.rand` or `torch.randn`, for each draw of such values."""
        if self.generator is None:
            return kind(like.shape, dtype=like.dtype, device=like.device)
        # Drawn on the CPU: the same networks on every device.
        return kind((self.n_samples * len(like), *like.shape[1:]), generator=self.generator, dtype=torch.float64).to(like)


class RandomWeights(Team):
    """Distributions over the weights of a plain team, whose own weights are their means.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    capturable = True

    def __init__(self, recipe: RandomNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        self.recipe, self.n_members, self.sizes = recipe, n_members, (input_shape, n_outputs)
        self.plain = replace(recipe.plain, dropout=0.0)
        self.means = self.plain_team(n_members)
        self.precision = self.means.precision

    def plain_team(self, n_members: int) -> MLPTeam | LSTMTeam:
        """A team of these sizes that draws nothing."""
        team = self.plain.build(n_members, *self.sizes)
        assert isinstance(team, MLPTeam | LSTMTeam)  # networks of another kind are not made random here
        return team

    @property
    def weights(self) -> State:
        """The mean weights and biases by name."""
        return dict(self.means.named_parameters())

    @property
    def numbers_per_sample(self) -> int:
        return sum(weight.numel() for weight in self.parameters())

    def adapt(self, inputs: Tensor, valid: Tensor) -> None:
        self.means.adapt(inputs, valid)

    def weight_of_row(self, n_inputs: int) -> int:
        return self.means.weight_of_row(n_inputs)

    def drawn(self, draws: Draws) -> State:
        """Random weights, by the names of the mean weights."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        outputs: Tensor = self.means(x)
        return outputs

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> Team:
        """Some fixed networks from each member's distribution, ordered by member."""
        with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
            team = self.plain_team(self.n_members * n_samples)
        code = {name: repeated(values, n_samples) for name, values in self.means.named_buffers()}
        team.load_state_dict(code | self.drawn(Draws(n_samples, generator)), assign=True)
        if isinstance(team, MLPTeam) and team.code:
            team.code.share()
        return team.eval().requires_grad_(False)


class MaskedWeights(RandomWeights):
    """Networks whose hidden units are dropped at random (Gal and Ghahramani 2016).

    An LSTM's units are dropped for all steps alike (Gal and Ghahramani 2016, for recurrent networks): what a unit
    returns to its own layer and what it passes on are dropped apart, and numbers of the row never are.
    """

    rescaled = True  # whether units that are kept are divided by their share, so that the means are the weights

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        """The share of inputs that are dropped from each of the weights in `places`."""
        raise NotImplementedError

    @property
    def places(self) -> list[str]:
        """The weights that hidden units enter: for an LSTM, by layer, returning to their own and passed on."""
        if isinstance(self.plain, MLP):
            return [f"linears.{n}.weight" for n in range(1, self.plain.layers)]
        _, *places = [f"layers.{n}.{kind}" for n in range(self.plain.layers) for kind in ("weight", "recurrent")]
        return [*places, "head.weight"]

    def dropped(self, rate: Tensor, draws: Draws, inputs: Tensor) -> Tensor:
        """1 for an input that is dropped and 0 for others."""
        return (draws.random(torch.rand, inputs) < draws.of(rate)).to(inputs)

    def kept(self, place: int, draws: Draws, inputs: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """What the inputs of a place are multiplied by: 0 where they are dropped."""
        rate = self.rates[:, place].view(-1, *[1] * (inputs.ndim - 1))
        kept = 1 - self.dropped(rate, draws, inputs)
        return kept / (1 - draws.of(rate)) if self.rescaled else kept

    def drawn(self, draws: Draws) -> State:
        drawn = {name: draws.of(weight) for name, weight in self.weights.items()}
        for place, name in enumerate(self.places):
            drawn[name] = drawn[name] * self.kept(place, draws, inputs_of(name, self.weights[name]))
        return drawn

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        """In training, what an LSTM's unit passes on is dropped row by row, and what it returns for a whole batch."""
        if not (self.training and isinstance(self.means, LSTMTeam)):
            return super().forward(x)
        states = self.means.sequence_of(x)
        for n, layer in enumerate(self.means.layers):
            assert isinstance(layer, StackedLSTM)
            returned = self.kept(2 * n, Draws(), layer.recurrent[:, :1])  # (member, 1, unit)
            states = functional_call(layer, {"recurrent": layer.recurrent * returned}, (states,))
            states = states * self.kept(2 * n + 1, Draws(), states[:, :1])  # (member, 1, batch, unit)
        return self.means.answer(states, x)

    def squared_weights(self) -> PerMember:
        """The sum of squares of all weights and biases, expected over the draws."""
        rates, terms = dict(zip(self.places, self.rates.unbind(dim=1), strict=True)), []
        for name, weight in self.weights.items():
            share = 1 - rates[name] if name in rates else 1.0  # a unit that is kept counts as 1 / share, or as it is
            terms.append(squares(weight) / share if self.rescaled else squares(weight) * share)
        return torch.stack(terms).sum(dim=0)


def repeated(values: Tensor, n_samples: int) -> Tensor:
    """Values per member, given to each of its samples: (member, ...) -> (member and sample, ...)."""
    return values.repeat_interleave(n_samples, dim=0)


def inputs_of(name: str, weight: Float[Tensor, "member ..."]) -> Float[Tensor, "member ..."]:
    """A slice of a weight with one number per input; LSTM layers have inputs last, linear ones outputs."""
    return weight[:, :1] if name.startswith("layers.") else weight[..., :1]


def squares(values: Float[Tensor, "member ..."]) -> PerMember:
    return values.square().flatten(start_dim=1).sum(dim=1)
