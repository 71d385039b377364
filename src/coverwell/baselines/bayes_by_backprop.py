"""Bayes by Backprop: a normal distribution over every weight, by variational inference (Blundell et al. 2015)."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.training import Draws, RandomNetwork, RandomWeights, inputs_of
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.team import State, Team
from coverwell.options import check_number, stored
from coverwell.paper.losses import PerMember

START = 0.05  # standard deviation over the prior's: small, or nothing is learned through the noise
SMALLEST_VARIANCE = 1e-12  # zero has no finite slope under the root


def normal_kl(mean: Tensor, sd: Tensor, prior_sd: float) -> Tensor:
    """KL(N(mean, sd^2) || N(0, prior_sd^2)), elementwise."""
    return torch.log(prior_sd / sd) + (sd.square() + mean.square()) / (2 * prior_sd**2) - 0.5


@stored
@dataclass(frozen=True)
class BayesNetwork(RandomNetwork):
    """Recipe of a network with a normal distribution over every weight."""

    prior_scale: float
    kl_weight: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        return BayesTeam(self, n_members, input_shape, n_outputs)


class BayesTeam(RandomWeights):
    """MLPs or LSTMs with a normal distribution over every weight and bias (LSTMs: Fortunato et al. 2017)."""

    def __init__(self, recipe: BayesNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(recipe, n_members, input_shape, n_outputs)
        self.prior_scale, self.kl_weight = recipe.prior_scale, recipe.kl_weight
        self.spreads = self.plain_team(n_members)  # a softplus turns its weights into standard deviations
        if isinstance(self.spreads, MLPTeam):
            self.spreads.code = None
        for name, spread in self.spreads.named_parameters():
            nn.init.constant_(spread, math.log(math.expm1(START * self.prior_sd(name, spread))))

    def prior_sd(self, name: str, weight: Tensor) -> float:
        """The prior of a weight narrows with the number of inputs, so that their sum does not grow (Neal 1996)."""
        n_inputs = 1 if name.endswith("bias") else inputs_of(name, weight)[0].numel()
        return self.prior_scale / math.sqrt(n_inputs)

    @property
    def normals(self) -> list[tuple[str, Tensor, Tensor]]:
        """The name, mean and standard deviation of all weights and biases."""
        pairs = zip(self.weights.items(), self.spreads.parameters(), strict=True)
        return [(name, mean, softplus(spread)) for (name, mean), spread in pairs]

    def drawn(self, draws: Draws) -> State:
        return {n: draws.of(mean) + draws.of(sd) * draws.random(torch.randn, mean) for n, mean, sd in self.normals}

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        """In training, every row of an MLP has weights of its own, and all rows of an LSTM's batch share one draw.

        For an MLP, the outputs of a layer are drawn instead of its weights: the same distribution, and a less noisy
        gradient (Kingma, Salimans and Welling 2015).
        """
        if not self.training:
            return super().forward(x)
        if not (isinstance(self.means, MLPTeam) and isinstance(self.spreads, MLPTeam)):
            return cast(Tensor, functional_call(self.means, self.drawn(Draws()), (x,)))
        x = self.means.code(x) if self.means.code else x
        for place, (linear, spread) in enumerate(zip(self.means.layers, self.spreads.layers, strict=True)):
            x = x.relu() if place else x
            of_bias, of_weight = softplus(spread.bias).square(), softplus(spread.weight).square()
            variance = torch.baddbmm(of_bias, x.square(), of_weight).clamp_min(SMALLEST_VARIANCE)
            x = linear(x) + variance.sqrt() * torch.randn_like(variance)
        return x

    def penalty(self) -> PerMember:
        """The KL divergence from the prior, times its weight."""
        parts = [normal_kl(mean, sd, self.prior_sd(name, mean)).sum(dim=(1, 2)) for name, mean, sd in self.normals]
        return self.kl_weight * torch.stack(parts).sum(dim=0)


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class BayesByBackpropRegressor(SampledRegressor):
    """A Bayesian neural network with a normal distribution over every weight, and a noise that depends on the row.

    Other parameters are those of `BaselineEstimator`.

    Parameters
    ----------
    network : MLP or LSTM, optional
        Its `dropout` is not used.
    n_samples : int, default=50
        How many networks are sampled for a prediction.
    prior_scale : float, default=1.0
        Standard deviation of the prior of a bias; that of a weight is smaller by the root of the layer's inputs.
    kl_weight : float, default=0.03
        Weight of the divergence from the prior. 1 is Bayes' rule, under which networks of this size learn little from
        some hundred rows; less is a colder posterior, and 0.03 had the best out-of-fold scores.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = BayesByBackpropRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:5]).lower.shape
    (5,)
    """

    NETWORK = MLP(hidden=128, dropout=0.0)
    LEARNING_RATE = 2e-3

    prior_scale: float = 1.0
    kl_weight: float = 0.03

    def check_params(self) -> None:
        super().check_params()
        check_number("prior_scale", self.prior_scale, above=0.0)
        check_number("kl_weight", self.kl_weight, least=0.0)

    def trained_network(self) -> BayesNetwork:
        return BayesNetwork(self.plain_network(), self.prior_scale, self.kl_weight)
