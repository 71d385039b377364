"""Bayes by Backprop: a normal law over every weight, learned by variational inference (Blundell et al. 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.random_lstm import Draws, RandomLSTMTeam, inputs_of
from coverwell.baselines.random_team import fixed_team, repeated
from coverwell.estimator import check_number
from coverwell.losses import PerMember
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam, StackedLinear
from coverwell.networks.team import State

__all__ = ["BayesByBackpropRegressor", "BayesLSTM", "BayesLSTMTeam", "BayesMLP", "BayesTeam", "normal_kl"]

# The standard deviation at the start, over the prior's: small, or nothing is learned through the noise.
START = 0.05
# A variance of zero has no finite slope under the root.
SMALLEST_VARIANCE = 1e-12


def normal_kl(mean: Tensor, sd: Tensor, prior_sd: float) -> Tensor:
    """KL(N(mean, sd^2) || N(0, prior_sd^2)), elementwise."""
    return torch.log(prior_sd / sd) + (sd.square() + mean.square()) / (2 * prior_sd**2) - 0.5


class BayesTeam(MLPTeam):
    """An MLP team with a normal law over every weight and bias; the MLP's own weights are the means.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: BayesMLP, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network.mlp, n_members, n_features, n_outputs)
        self.recipe = self.network = network
        self.spreads = nn.ModuleList(
            StackedLinear(n_members, linear.weight.shape[1], linear.weight.shape[2]) for linear in self.layers
        )
        for linear, spread in zip(self.layers, self._spreads, strict=True):
            weight_sd, bias_sd = self._prior_sds(linear)
            nn.init.constant_(spread.weight, _spread_at_start(weight_sd))
            nn.init.constant_(spread.bias, _spread_at_start(bias_sd))

    @property
    def _spreads(self) -> list[StackedLinear]:
        """What a softplus turns into the standard deviations of each layer's weights and biases."""
        return [spread for spread in self.spreads if isinstance(spread, StackedLinear)]

    def _prior_sds(self, linear: StackedLinear) -> tuple[float, float]:
        """The prior of a weight narrows with the number of inputs, so that their sum does not grow (Neal 1996)."""
        scale = self.network.prior_scale
        return scale / math.sqrt(linear.weight.shape[1]), scale

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        """In training every row has weights of its own; otherwise all have the mean weights.

        Outputs of a layer are drawn in place of its weights, which is the same in law, and less noisy in its gradient
        (Kingma, Salimans and Welling 2015).
        """
        x = self.code(x) if self.code else x
        for place, (linear, spread) in enumerate(zip(self.layers, self._spreads, strict=True)):
            x = x if place == 0 else x.relu()
            mean = linear(x)
            if not self.training:
                x = mean
                continue
            variance = torch.baddbmm(
                softplus(spread.bias).square(), x.square(), softplus(spread.weight).square()
            ).clamp_min(SMALLEST_VARIANCE)
            x = mean + variance.sqrt() * torch.randn_like(mean)
        return x

    def penalty(self) -> PerMember:
        """The KL divergence from the prior, times its weight."""
        total = torch.zeros(self.n_members, device=self.layers[0].weight.device, dtype=self.layers[0].weight.dtype)
        for linear, spread in zip(self.layers, self._spreads, strict=True):
            weight_sd, bias_sd = self._prior_sds(linear)
            total = total + normal_kl(linear.weight, softplus(spread.weight), weight_sd).sum(dim=(1, 2))
            total = total + normal_kl(linear.bias, softplus(spread.bias), bias_sd).sum(dim=(1, 2))
        return self.network.kl_weight * total

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> MLPTeam:
        layers = [
            (
                _drawn(linear.weight, softplus(spread.weight), n_samples, generator),
                _drawn(linear.bias, softplus(spread.bias), n_samples, generator),
            )
            for linear, spread in zip(self.layers, self._spreads, strict=True)
        ]
        return fixed_team(self, layers)


def _spread_at_start(prior_sd: float) -> float:
    """What a softplus turns into a small share of the prior's standard deviation."""
    return math.log(math.expm1(START * prior_sd))


def _drawn(mean: Tensor, sd: Tensor, n_samples: int, generator: torch.Generator) -> Tensor:
    mean, sd = repeated(mean, n_samples), repeated(sd, n_samples)
    # Drawn on the CPU: the same networks on every device.
    return mean + sd * torch.randn(mean.shape, generator=generator, dtype=torch.float64).to(mean)


@dataclass(frozen=True)
class BayesMLP:
    """Recipe of an MLP with a normal law over every weight."""

    mlp: MLP
    prior_scale: float
    kl_weight: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> BayesTeam:
        return BayesTeam(self, n_members, input_shape[0], n_outputs)


class BayesLSTMTeam(RandomLSTMTeam):
    """An LSTM team with a normal law over every weight and bias (Fortunato, Blundell and Vinyals 2017).

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: BayesLSTM, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network, network.lstm, n_members, n_features, n_outputs)
        self.network = network
        self.spreads = self._plain_team(n_members)  # a softplus turns them into standard deviations
        for name, spread in self.spreads.named_parameters():
            nn.init.constant_(spread, _spread_at_start(self._prior_sd(name, spread)))

    def _prior_sd(self, name: str, weight: Tensor) -> float:
        """As for an MLP; what enters a layer and what returns to it count apart."""
        n_inputs = 1 if name.endswith("bias") else inputs_of(name, weight)[0].numel()
        return self.network.prior_scale / math.sqrt(n_inputs)

    def drawn(self, draws: Draws) -> State:
        laws = zip(self.weights(), self.spreads.parameters(), strict=True)
        return {name: draws.of(mean) + draws.of(softplus(spread)) * draws.normal(mean) for (name, mean), spread in laws}

    def penalty(self) -> PerMember:
        """The KL divergence from the prior, times its weight."""
        divergences = [
            normal_kl(mean, softplus(spread), self._prior_sd(name, mean)).sum(dim=(1, 2))
            for (name, mean), spread in zip(self.weights(), self.spreads.parameters(), strict=True)
        ]
        return self.network.kl_weight * torch.stack(divergences).sum(dim=0)


@dataclass(frozen=True)
class BayesLSTM:
    """Recipe of an LSTM with a normal law over every weight."""

    lstm: LSTM
    prior_scale: float
    kl_weight: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> BayesLSTMTeam:
        return BayesLSTMTeam(self, n_members, input_shape[0], n_outputs)


@dataclass(eq=False, repr=False, kw_only=True)
class BayesByBackpropRegressor(SampledRegressor):
    """A Bayesian neural network with a normal law over every weight, and a noise that depends on the row.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
    network : MLP or LSTM, optional
        Its `dropout` is not used.
    n_samples : int, default=50
        How many networks are sampled for a prediction.
    prior_scale : float, default=1.0
        Standard deviation of the prior of a bias; that of a weight is smaller by the root of the layer's inputs.
    kl_weight : float, default=0.03
        Weight of the divergence from the prior. 1 is Bayes' rule, under which networks of this size learn little from
        some hundred rows; less is a colder posterior, and 0.03 had the best out-of-fold scores.
    members, validation_size, calibration, calibration_size, max_epochs, patience, batch_size, learning_rate, device, \
random_state, verbose
        As in `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = BayesByBackpropRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    NETWORK: ClassVar[MLP] = MLP(hidden=128, dropout=0.0)
    LEARNING_RATE: ClassVar[float] = 2e-3

    prior_scale: float = 1.0
    kl_weight: float = 0.03

    def _check_choices(self) -> None:
        super()._check_choices()
        check_number("prior_scale", self.prior_scale, above=0.0)
        check_number("kl_weight", self.kl_weight, least=0.0)

    def _network(self) -> BayesMLP | BayesLSTM:
        network = self._chosen()
        if isinstance(network, LSTM):
            return BayesLSTM(network, self.prior_scale, self.kl_weight)
        assert isinstance(network, MLP)  # of the kinds that pass
        return BayesMLP(network, self.prior_scale, self.kl_weight)
