"""Concrete Dropout: MC Dropout whose rates are learned with the weights (Gal, Hron and Kendall 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.random_lstm import Draws, SilencedLSTMTeam, silenced_places
from coverwell.baselines.random_team import fixed_team, repeated, speaking
from coverwell.estimator import check_number
from coverwell.losses import PerMember
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam

__all__ = [
    "ConcreteDropoutRegressor",
    "ConcreteLSTM",
    "ConcreteLSTMTeam",
    "ConcreteMLP",
    "ConcreteTeam",
    "entropy",
    "silence",
]

# Of the relaxation; the published value. Near zero it is a coin toss, whose gradient is lost.
TEMPERATURE = 0.1
# A uniform number of exactly 0 or 1 has no logit.
MARGIN = 1e-6


def silence(logit: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """The concrete relaxation of a coin toss: near 1 with about the probability sigmoid(logit), else near 0."""
    uniform = uniform.clamp(MARGIN, 1 - MARGIN)
    return torch.sigmoid((logit + uniform.logit()) / temperature)


def entropy(rate: Tensor) -> Tensor:
    """The uncertainty of a coin toss, in nats."""
    return -rate * rate.log() - (1 - rate) * torch.log1p(-rate)


class ConcreteTeam(MLPTeam):
    """An MLP team that silences the inputs of every layer, each layer with a rate of its own that is learned.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: ConcreteMLP, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network.mlp, n_members, n_features, n_outputs)
        self.recipe = self.network = network
        self.rate_logit = nn.Parameter(torch.full((n_members, len(self.layers)), _logit(network.mlp.dropout)))

    @property
    def rates(self) -> Float[Tensor, "member layer"]:
        """The learned share of silenced inputs of each layer."""
        return self.rate_logit.sigmoid()

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        x = self.code(x) if self.code else x
        for place, linear in enumerate(self.layers):
            x = x if place == 0 else x.relu()
            x = linear(self._drop(x, place) if self.training else x)
        return x

    def _drop(self, x: Tensor, place: int) -> Tensor:
        logit = self.rate_logit[:, place, None, None]
        kept = 1 - silence(logit, torch.rand_like(x), TEMPERATURE)
        return x * kept / (1 - logit.sigmoid())

    def penalty(self) -> PerMember:
        """The regulariser: weights near a normal prior, and rates that are not surer than they must be."""
        total = torch.zeros_like(self.rate_logit[:, 0])
        rates = self.rates
        for place, linear in enumerate(self.layers):
            rate, n_inputs = rates[:, place], linear.weight.shape[1]
            squares = linear.weight.square().sum(dim=(1, 2)) / (1 - rate) + linear.bias.square().sum(dim=(1, 2))
            total = total + 0.5 * self.network.length_scale**2 * squares - n_inputs * entropy(rate)
        return total

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> MLPTeam:
        """Networks with inputs of layers silenced by coin tosses, the limit of the relaxation."""
        layers = []
        for place, linear in enumerate(self.layers):
            rate = repeated(self.rates[:, place, None, None], n_samples)
            kept = speaking(linear, rate, n_samples, generator) / (1 - rate)
            layers.append((repeated(linear.weight, n_samples) * kept, repeated(linear.bias, n_samples)))
        return fixed_team(self, layers)


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


@dataclass(frozen=True)
class ConcreteMLP:
    """Recipe of an MLP with learned dropout rates, which start at the MLP's own."""

    mlp: MLP
    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> ConcreteTeam:
        return ConcreteTeam(self, n_members, input_shape[0], n_outputs)


class ConcreteLSTMTeam(SilencedLSTMTeam):
    """An LSTM team that silences hidden units, with a rate of its own for each weight that they enter.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: ConcreteLSTM, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network, network.lstm, n_members, n_features, n_outputs)
        self.network = network
        n_places = len(silenced_places(network.lstm))
        self.rate_logit = nn.Parameter(torch.full((n_members, n_places), _logit(network.lstm.dropout)))

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        return self.rate_logit.sigmoid()

    def silence(self, rate: Tensor, draws: Draws, inputs: Tensor) -> Tensor:
        """In training the relaxation, through which rates learn; in samples the coin toss that is its limit."""
        if not draws.in_training:
            return super().silence(rate, draws, inputs)
        return silence(rate.logit(), draws.uniform(inputs), TEMPERATURE)

    def penalty(self) -> PerMember:
        """The regulariser, as for an MLP; the numbers of the row are never silenced and have no rate."""
        n_inputs = self.lstm.hidden  # at every place
        return 0.5 * self.network.length_scale**2 * self.squared_weights() - n_inputs * entropy(self.rates).sum(dim=1)


@dataclass(frozen=True)
class ConcreteLSTM:
    """Recipe of an LSTM with learned dropout rates, which start at the LSTM's own."""

    lstm: LSTM
    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> ConcreteLSTMTeam:
        return ConcreteLSTMTeam(self, n_members, input_shape[0], n_outputs)


@dataclass(eq=False, repr=False, kw_only=True)
class ConcreteDropoutRegressor(SampledRegressor):
    """Concrete Dropout with a noise that depends on the row (Gal, Hron and Kendall 2017).

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
    network : MLP or LSTM, optional
        Its `dropout` is where the rates start; an `LSTM(...)` must be told one.
    n_samples : int, default=50
        How many networks are sampled for a prediction.
    length_scale : float, default=0.01
        Of the prior over the weights: larger holds them nearer to zero.
    members, validation_size, calibration, calibration_size, max_epochs, patience, batch_size, learning_rate, device, \
random_state, verbose
        As in `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = ConcreteDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.rates_.shape  # (member, layer)
    (1, 5)
    """

    NETWORK: ClassVar[MLP] = MLP(hidden=128, dropout=0.1)
    LEARNING_RATE: ClassVar[float] = 2e-3

    length_scale: float = 0.01

    @property
    def rates_(self) -> NDArray[np.float64]:
        """The learned dropout rates: (member, layer) of an MLP, (member, place) of an LSTM.

        Places of an LSTM are, layer by layer, what enters from the layer below (the first layer has none such) and what
        returns from the step before; the last one is what enters the head.
        """
        team = self._team()
        assert isinstance(team, ConcreteTeam | ConcreteLSTMTeam)  # `_network` builds no other
        rates: NDArray[np.float64] = team.rates.double().cpu().numpy()
        return rates

    def _check_choices(self) -> None:
        super()._check_choices()
        check_number("length_scale", self.length_scale, least=0.0)
        if not self._chosen().dropout > 0:
            raise ValueError(f"network must have a dropout above 0 for its rates to start at, got {self.network!r}")

    def _network(self) -> ConcreteMLP | ConcreteLSTM:
        network = self._chosen()
        if isinstance(network, LSTM):
            return ConcreteLSTM(network, self.length_scale)
        assert isinstance(network, MLP)  # of the kinds that pass
        return ConcreteMLP(network, self.length_scale)
