"""Concrete Dropout: MC Dropout whose rates are learned with the weights (Gal, Hron and Kendall 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.random_weights import Draws, MaskedWeights, RandomNetwork, inputs_of
from coverwell.estimator import check_number
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.team import Team
from coverwell.paper.losses import PerMember
from coverwell.registry import stored

__all__ = ["ConcreteDropoutRegressor", "ConcreteNetwork", "ConcreteTeam", "entropy", "relaxed_toss"]

# Of the relaxation; the published value. Near zero it is a coin toss, whose gradient is lost.
TEMPERATURE = 0.1
# A uniform number of exactly 0 or 1 has no logit.
MARGIN = 1e-6


def relaxed_toss(logit: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """The concrete relaxation of a coin toss: near 1 with about the probability sigmoid(logit), else near 0."""
    uniform = uniform.clamp(MARGIN, 1 - MARGIN)
    return torch.sigmoid((logit + uniform.logit()) / temperature)


def entropy(rate: Tensor) -> Tensor:
    """The uncertainty of a coin toss, in nats."""
    return -rate * rate.log() - (1 - rate) * torch.log1p(-rate)


@stored
@dataclass(frozen=True)
class ConcreteNetwork(RandomNetwork):
    """Recipe of a network with learned dropout rates, which start at its own."""

    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        return ConcreteTeam(self, n_members, input_shape, n_outputs)


class ConcreteTeam(MaskedWeights):
    """MLPs or LSTMs that drop inputs of their layers, with a learned rate for each weight that they enter.

    An MLP drops the inputs of its first layer too.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, recipe: ConcreteNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(recipe, n_members, input_shape, n_outputs)
        self.length_scale, start = recipe.length_scale, recipe.plain.dropout
        self.rate_logit = nn.Parameter(torch.full((n_members, len(self.places)), math.log(start / (1 - start))))

    @property
    def places(self) -> list[str]:
        return ["linears.0.weight", *super().places] if isinstance(self.plain, MLP) else super().places

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        return self.rate_logit.sigmoid()

    def dropped(self, rate: Tensor, draws: Draws, inputs: Tensor) -> Tensor:
        """In training the relaxation, through which rates learn; in samples the coin toss, which is its limit."""
        if draws.generator is not None:
            return super().dropped(rate, draws, inputs)
        return relaxed_toss(rate.logit(), draws.random(torch.rand, inputs), TEMPERATURE)

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        if not (self.training and isinstance(self.means, MLPTeam)):
            return super().forward(x)
        x = self.means.code(x) if self.means.code else x
        for place, linear in enumerate(self.means.layers):
            x = x if place == 0 else x.relu()
            logit = self.rate_logit[:, place, None, None]
            kept = 1 - relaxed_toss(logit, torch.rand_like(x), TEMPERATURE)
            x = linear(x * kept / (1 - logit.sigmoid()))
        return x

    def penalty(self) -> PerMember:
        """Weights near a normal prior, and rates that are not surer than they must be."""
        n_inputs = [inputs_of(name, self.weights[name])[0].numel() for name in self.places]
        tosses = (entropy(self.rates) * self.rates.new_tensor(n_inputs)).sum(dim=1)
        return 0.5 * self.length_scale**2 * self.squared_weights() - tosses


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class ConcreteDropoutRegressor(SampledRegressor):
    """Concrete Dropout with a noise that depends on the row (Gal, Hron and Kendall 2017).

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
    network : MLP or LSTM, optional
        Its `dropout` is where the rates start; an `LSTM(...)` needs one.
    n_samples : int, default=50
        How many networks are sampled for a prediction.
    length_scale : float, default=0.01
        Of the prior over the weights: larger holds them nearer to zero.
    members, validation_size, calibration, max_epochs, patience, batch_size, learning_rate, device, random_state, verbose
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

        The places of an LSTM are, layer by layer, what enters from the layer below (from the second layer on) and what
        returns from the step before; the last is what enters the head.
        """
        check_is_fitted(self)
        team = self.predictor_.fitted_teams[0].team
        assert isinstance(team, ConcreteTeam)  # `trained_network` builds no other
        rates: NDArray[np.float64] = team.rates.double().cpu().numpy()
        return rates

    def check_params(self) -> None:
        super().check_params()
        check_number("length_scale", self.length_scale, least=0.0)
        if not self.plain_network.dropout > 0:
            raise ValueError(f"network must have a dropout above 0 for its rates to start at, got {self.network!r}")

    def trained_network(self) -> ConcreteNetwork:
        return ConcreteNetwork(self.plain_network, self.length_scale)
