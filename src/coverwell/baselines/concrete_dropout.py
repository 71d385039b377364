"""Concrete Dropout: MC Dropout whose rates are learned with the weights (Gal, Hron and Kendall 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from coverwell.baselines.mc_dropout import DropoutNetwork, DropoutTeam, MCDropoutRegressor
from coverwell.baselines.random_weights import Draws, inputs_of
from coverwell.baselines.training import BaselineTeam
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.team import Team
from coverwell.options import stored
from coverwell.paper.losses import PerMember

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
class ConcreteNetwork(DropoutNetwork):
    """Recipe of a network with learned dropout rates, which start at its own."""

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        return ConcreteTeam(self, n_members, input_shape, n_outputs)


class ConcreteTeam(DropoutTeam):
    """MLPs or LSTMs with a learned rate for each weight that units enter; an MLP drops its inputs as well.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, recipe: ConcreteNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(recipe, n_members, input_shape, n_outputs)
        self.rescaled = True
        start = math.log(self.rate / (1 - self.rate))
        self.rate_logit = nn.Parameter(torch.full((n_members, len(self.places)), start))

    @property
    def places(self) -> list[str]:
        return ["linears.0.weight", *super().places] if isinstance(self.means, MLPTeam) else super().places

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        return self.rate_logit.sigmoid()

    def dropped(self, rate: Tensor, draws: Draws, inputs: Tensor) -> Tensor:
        """In training the relaxation, through which rates learn; in samples the coin toss, which is its limit."""
        if draws.generator is not None:
            return super().dropped(rate, draws, inputs)
        return relaxed_toss(rate.logit(), draws.random(torch.rand, inputs), TEMPERATURE)

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        if not isinstance(self.means, MLPTeam):
            return super().forward(x)
        x = self.means.code(x) if self.means.code else x
        for place, linear in enumerate(self.means.layers):
            x = x if place == 0 else x.relu()
            if self.training:
                logit = self.rate_logit[:, place, None, None]
                x = x * (1 - relaxed_toss(logit, torch.rand_like(x), TEMPERATURE)) / (1 - logit.sigmoid())
            x = linear(x)
        return x

    def penalty(self) -> PerMember:
        """Weights near a normal prior, and rates that are not surer than they must be."""
        n_inputs = [inputs_of(name, self.weights[name])[0].numel() for name in self.places]
        return super().penalty() - (entropy(self.rates) * self.rates.new_tensor(n_inputs)).sum(dim=1)


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class ConcreteDropoutRegressor(MCDropoutRegressor):
    """Concrete Dropout with a noise that depends on the row (Gal, Hron and Kendall 2017).

    Parameters
    ----------
    network : MLP or LSTM, optional
        Its `dropout` is where the rates start; an `LSTM(...)` needs one.
    n_samples, length_scale
        As in `MCDropoutRegressor`.
    others
        As in `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = ConcreteDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.rates_.shape  # (member, layer)
    (1, 5)
    """

    NETWORK = MLP(hidden=128, dropout=0.1)
    LEARNING_RATE = 2e-3
    KINDS = (MLP, LSTM)

    @property
    def rates_(self) -> NDArray[np.float64]:
        """The learned dropout rates: (member, layer) of an MLP, (member, place) of an LSTM.

        The places of an LSTM are, layer by layer, what enters from the layer below (from the second layer on) and what
        returns from the step before; the last is what enters the head.
        """
        check_is_fitted(self)
        (fitted,) = self.predictor_.fitted_teams
        assert isinstance(fitted, BaselineTeam)
        assert isinstance(fitted.team, ConcreteTeam)
        rates: NDArray[np.float64] = fitted.team.rates.double().cpu().numpy()
        return rates

    def trained_network(self) -> ConcreteNetwork:
        return ConcreteNetwork(self.plain_network, self.length_scale)
