"""LSTM teams with random weights: new ones in every batch of the training, fixed ones in a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from coverwell.baselines.random_team import repeated
from coverwell.losses import PerMember
from coverwell.networks.lstm import LSTM, LSTMTeam, StackedLSTM
from coverwell.networks.team import Network, State, Team

__all__ = ["Draws", "RandomLSTMTeam", "SilencedLSTMTeam", "inputs_of", "silenced_places", "squares"]


@dataclass(frozen=True)
class Draws:
    """Random numbers for weights: one draw for each member in training, or several from a generator."""

    n_samples: int = 1
    generator: torch.Generator | None = None

    @property
    def in_training(self) -> bool:
        return self.generator is None

    def of(self, values: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """Values per member, given to each of its draws."""
        return values if self.in_training else repeated(values, self.n_samples)

    def uniform(self, like: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        return torch.rand_like(like) if self.in_training else self._drawn(torch.rand, like)

    def normal(self, like: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        return torch.randn_like(like) if self.in_training else self._drawn(torch.randn, like)

    def _drawn(self, draw: Any, like: Tensor) -> Tensor:
        # Drawn on the CPU: the same networks on every device.
        shape = (self.n_samples * like.shape[0], *like.shape[1:])
        drawn: Tensor = draw(shape, generator=self.generator, dtype=torch.float64).to(like)
        return drawn


class RandomLSTMTeam(Team, ABC):
    """A law over the weights of an LSTM team, whose means are themselves such a team.

    In training all rows of a batch share one draw: the recurrent weights act at every step, so that a draw for every
    row would need a product for every row (Fortunato, Blundell and Vinyals 2017). Otherwise the mean weights speak.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    capturable = LSTMTeam.capturable
    precision = LSTMTeam.precision

    def __init__(self, network: Network, lstm: LSTM, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.n_members, self.n_features, self.n_outputs = n_members, n_features, n_outputs
        self.recipe = network
        self.lstm = lstm
        self.means = self._plain_team(n_members)

    def _plain_team(self, n_members: int) -> LSTMTeam:
        """An LSTM team of these sizes that draws nothing by itself."""
        team = replace(self.lstm, dropout=0.0).build(n_members, (self.n_features,), self.n_outputs)
        assert isinstance(team, LSTMTeam)  # `LSTM` builds no other
        return team

    def weight_of_row(self, n_inputs: int) -> int:
        return self.means.weight_of_row(n_inputs)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The mean weights and biases by name, member first."""
        yield from self.means.named_parameters()

    @abstractmethod
    def drawn(self, draws: Draws) -> State:
        """Weights from the law, by the names of the mean weights."""

    @abstractmethod
    def penalty(self) -> PerMember:
        """How far each member's law lies from its prior, in nats."""

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        weights = self.drawn(Draws()) if self.training else {}
        outputs: Tensor = functional_call(self.means, weights, (x,))
        return outputs

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> LSTMTeam:
        """Some fixed networks from each member's law, ordered by member."""
        with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
            team = self._plain_team(self.n_members * n_samples)
        team.load_state_dict(self.drawn(Draws(n_samples, generator)), assign=True)
        return team.eval().requires_grad_(False)


class SilencedLSTMTeam(RandomLSTMTeam):
    """LSTMs whose hidden units fall silent, the same ones at every step (Gal and Ghahramani 2016, for recurrent nets).

    What a unit returns to its own layer's next step and what it passes on, to the layer above or the head, are silenced
    apart; numbers of the row never are. Who speaks is louder by 1 / (1 - rate), so that the means are the weights.
    """

    @property
    @abstractmethod
    def rates(self) -> Float[Tensor, "member place"]:
        """The share of silenced inputs of each weight in `silenced_places`."""

    @property
    def _layers(self) -> list[StackedLSTM]:
        return [layer for layer in self.means.layers if isinstance(layer, StackedLSTM)]

    def silence(self, rate: Tensor, draws: Draws, inputs: Tensor) -> Tensor:
        """1 for a silenced input and 0 for a speaking one."""
        return (draws.uniform(inputs) < draws.of(rate)).to(inputs)

    def _loudness(self, place: int, draws: Draws, inputs: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """What the inputs of a place are multiplied by: 0 for a silent one, more than 1 for the others."""
        rate = self.rates[:, place].view(-1, *[1] * (inputs.ndim - 1))
        return (1 - self.silence(rate, draws, inputs)) / (1 - draws.of(rate))

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        """In training a row has units of its own that pass nothing on; those that return nothing, a batch shares."""
        if not self.training:
            return super().forward(x)
        states = self.means.sequence_of(x)
        for n, layer in enumerate(self._layers):
            returned = self._loudness(2 * n, Draws(), layer.recurrent[:, :1])  # (member, 1, unit)
            states = functional_call(layer, {"recurrent": layer.recurrent * returned}, (states,))
            states = states * self._loudness(2 * n + 1, Draws(), states[:, :1])  # (member, 1, batch, unit)
        return self.means.answer(states, x)

    def drawn(self, draws: Draws) -> State:
        weights = dict(self.weights())
        drawn = {name: draws.of(weight) for name, weight in weights.items()}
        for place, name in enumerate(silenced_places(self.lstm)):
            drawn[name] = drawn[name] * self._loudness(place, draws, inputs_of(name, weights[name]))
        return drawn

    def squared_weights(self) -> PerMember:
        """The sum of squares of all weights and biases, expected over the draws."""
        places, rates = silenced_places(self.lstm), self.rates
        total = torch.zeros_like(rates[:, 0])
        for name, weight in self.weights():
            speaking = 1 - rates[:, places.index(name)] if name in places else 1.0
            total = total + squares(weight) / speaking  # a share speaks, each weight divided by that share
        return total


def silenced_places(lstm: LSTM) -> list[str]:
    """The weights that hidden units enter: by layer, where a unit returns to its own and where it is passed on."""
    _, *places = [f"layers.{n}.{kind}" for n in range(lstm.layers) for kind in ("weight", "recurrent")]
    return [*places, "head.weight"]


def inputs_of(name: str, weight: Float[Tensor, "member ..."]) -> Float[Tensor, "member ..."]:
    """A slice of a weight with one number per input; LSTM layers have inputs last, linear ones outputs."""
    return weight[:, :1] if name.startswith("layers.") else weight[..., :1]


def squares(values: Float[Tensor, "member ..."]) -> PerMember:
    return values.square().flatten(start_dim=1).sum(dim=1)
