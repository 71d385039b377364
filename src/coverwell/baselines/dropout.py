"""MC Dropout (Gal and Ghahramani 2016) and Concrete Dropout, which learns its rates (Gal, Hron and Kendall 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear

from coverwell.baselines.baseline import Sampled, SampledRegressor
from coverwell.baselines.classes import BaselineClassifier
from coverwell.baselines.training import Draws, RandomNetwork, RandomWeights, inputs_of, squares
from coverwell.networks.lstm import LSTM, StackedLSTM
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18, ResNet18Team
from coverwell.networks.team import State, Team
from coverwell.options import check_number, stored
from coverwell.paper.losses import PerMember

TEMPERATURE = 0.1  # of the concrete relaxation, as published; near zero it is a coin toss, whose gradient is lost
MARGIN = 1e-6  # a uniform number of exactly 0 or 1 has no logit


@stored
@dataclass(frozen=True)
class DropoutNetwork(RandomNetwork):
    """Recipe of a network that is sampled by its own dropout; rates that are learned start there."""

    length_scale: float
    learned: bool = False

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        if isinstance(self.plain, ResNet18):
            return DropoutResNet18Team(self, self.plain.build(n_members, input_shape, n_outputs))
        return DropoutTeam(self, n_members, input_shape, n_outputs)


def relaxed_toss(logit: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """The concrete relaxation of a coin toss: near 1 with about the probability sigmoid(logit), else near 0."""
    return torch.sigmoid((logit + uniform.clamp(MARGIN, 1 - MARGIN).logit()) / temperature)


class DropoutTeam(RandomWeights):
    """MLPs or LSTMs that drop hidden units, those of an LSTM at all steps alike.

    The rate is fixed, or learned for each weight that units enter; an MLP then drops its inputs as well.
    """

    def __init__(self, recipe: DropoutNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(recipe, n_members, input_shape, n_outputs)
        self.rate, self.length_scale, self.learned = recipe.plain.dropout, recipe.length_scale, recipe.learned
        # Whether units that are kept are divided by their share. At a fixed rate an MLP drops units by itself, without.
        self.rescaled = self.learned or not isinstance(self.means, MLPTeam)
        if not self.rescaled:
            self.means.rate = self.rate
        if self.learned:
            start = math.log(self.rate / (1 - self.rate))
            self.rate_logit = nn.Parameter(torch.full((n_members, len(self.places)), start))

    @property
    def places(self) -> list[str]:
        """The weights that hidden units enter; for an LSTM by layer, where they return and where they are passed on."""
        numbers = range(len(self.means.layers))
        if isinstance(self.means, MLPTeam):
            return [f"linears.{n}.weight" for n in numbers[0 if self.learned else 1 :]]
        _, *places = [f"layers.{n}.{kind}" for n in numbers for kind in ("weight", "recurrent")]
        return [*places, "head.weight"]

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        """The share of inputs that are dropped at each of the places."""
        if self.learned:
            return self.rate_logit.sigmoid()
        return next(self.parameters()).new_full((self.n_members, len(self.places)), self.rate)

    def kept(self, place: int, draws: Draws, inputs: Float[Tensor, "member ..."]) -> Float[Tensor, "draw ..."]:
        """What the inputs of a place are multiplied by: 0 where they are dropped.

        Rates learn through the relaxation of a coin toss; samples have the toss itself, which is its limit.
        """
        rate, uniform = self.rates[:, place].view(-1, *[1] * (inputs.ndim - 1)), draws.random(torch.rand, inputs)
        if self.learned and draws.generator is None:
            kept = 1 - relaxed_toss(rate.logit(), uniform, TEMPERATURE)
        else:
            kept = (uniform >= draws.of(rate)).to(inputs)
        return kept / (1 - draws.of(rate)) if self.rescaled else kept

    def drawn(self, draws: Draws) -> State:
        drawn = {name: draws.of(weight) for name, weight in self.weights.items()}
        for place, name in enumerate(self.places):
            drawn[name] = drawn[name] * self.kept(place, draws, inputs_of(name, self.weights[name]))
        return drawn

    def forward(self, x: Float[Tensor, "member batch feature"]) -> Float[Tensor, "member batch output"]:
        """In training, what an LSTM's unit passes on is dropped row by row, and what it returns for a whole batch."""
        if not (self.training and self.rescaled):
            return super().forward(x)
        if isinstance(self.means, MLPTeam):
            x = self.means.code(x) if self.means.code else x
            for place, dense in enumerate(self.means.layers):
                x, logit = x.relu() if place else x, self.rate_logit[:, place, None, None]
                kept = 1 - relaxed_toss(logit, torch.rand_like(x), TEMPERATURE)
                x = dense(x * kept / (1 - logit.sigmoid()))
            return x
        states = self.means.sequence_of(x)
        for n, layer in enumerate(self.means.layers):
            assert isinstance(layer, StackedLSTM)
            returned = self.kept(2 * n, Draws(), layer.recurrent[:, :1])  # (member, 1, unit)
            states = functional_call(layer, {"recurrent": layer.recurrent * returned}, (states,))
            states = states * self.kept(2 * n + 1, Draws(), states[:, :1])  # (member, 1, batch, unit)
        return self.means.outputs_from(states, x)

    def penalty(self) -> PerMember:
        """The distance from a normal prior of this length scale, expected over the draws.

        Rates that are learned are held back from being surer than they must be, by the entropy of each input's toss.
        """
        rates, terms = dict(zip(self.places, self.rates.unbind(dim=1), strict=True)), []
        for name, weight in self.weights.items():
            share = 1 - rates[name] if name in rates else 1.0  # a unit that is kept counts as 1 / share, or as 1
            terms.append(squares(weight) / share if self.rescaled else squares(weight) * share)
        penalty = 0.5 * self.length_scale**2 * torch.stack(terms).sum(dim=0)
        if not self.learned:
            return penalty
        n_inputs = [inputs_of(name, self.weights[name])[0].numel() for name in self.places]
        entropy = -self.rates * self.rates.log() - (1 - self.rates) * torch.log1p(-self.rates)
        return penalty - torch.stack([n * own for n, own in zip(n_inputs, entropy.unbind(1), strict=True)]).sum(dim=0)


class DropoutResNet18Team(ResNet18Team):
    """Tails of a ResNet-18 that drop pooled channels before their head.

    Shape: input `(member, batch, 256, height, width)`, output `(member, batch, output)`.
    """

    def __init__(self, recipe: DropoutNetwork, built: ResNet18Team) -> None:
        assert isinstance(recipe.plain, ResNet18)
        super().__init__(recipe.plain, list(built.members), built.n_outputs)
        self.recipe = replace(recipe, plain=replace(recipe.plain, weights=None))  # as of any trained ResNet-18
        self.rate, self.length_scale = recipe.plain.dropout, recipe.length_scale

    @property
    def heads(self) -> tuple[Float[Tensor, "member output channel"], Float[Tensor, "member output"]]:
        """The weights and biases of all heads."""
        weights = tuple(tail.get_parameter("fc.weight") for tail in self.members)
        return torch.stack(weights), torch.stack(tuple(tail.get_parameter("fc.bias") for tail in self.members))

    @property
    def numbers_per_sample(self) -> int:
        return sum(values.numel() for values in self.heads)

    def penalty(self) -> PerMember:
        """The distance of the head from a normal prior of this length scale; layer 4 is not random."""
        weights, biases = self.heads
        return 0.5 * self.length_scale**2 * (squares(weights) / (1 - self.rate) + squares(biases))

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> SampledTails:
        (weights, biases), draws = self.heads, Draws(n_samples, generator)
        kept = (draws.random(torch.rand, weights[:, :1]) >= self.rate) / (1 - self.rate)  # (sample, 1, channel)
        return SampledTails(self, draws.of(weights) * kept, draws.of(biases))


class SampledTails(Team):
    """Fixed heads, several for each member of a team, whose own layer 4, no copy, runs once for all of them.

    Shape: weights `(head, output, channel)`, biases `(head, output)`, input and output as those of a team.
    """

    precision = ResNet18Team.precision

    def __init__(self, team: ResNet18Team, weights: Tensor, biases: Tensor) -> None:
        super().__init__()
        self.team, self.n_members, self.n_samples = team, len(weights), len(weights) // team.n_members
        wide = (part.unflatten(0, (team.n_members, -1)).flatten(1, 2) for part in (weights, biases))
        self.weights, self.biases = map(nn.Buffer, wide)  # one wide head for each member

    def weight_of_row(self, n_inputs: int) -> int:
        return max(1, self.team.weight_of_row(n_inputs) // self.n_samples)

    def for_members(self, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row *input"]:
        return self.team.for_members(x)

    def forward(self, x: Float[Tensor, "member batch 256 height width"]) -> Float[Tensor, "head batch output"]:
        layers = (tail.get_submodule("layer4") for tail in self.team.members)
        pooled = [layer4(rows).mean(dim=(2, 3)) for layer4, rows in zip(layers, x, strict=True)]
        wide = torch.stack(list(map(linear, pooled, self.weights, self.biases)))  # (member, batch, sample and output)
        return cast(Tensor, wide.unflatten(-1, (self.n_samples, -1)).movedim(2, 1).flatten(0, 1))


@dataclass(eq=False, repr=False, kw_only=True)
class MCDropout(Sampled):
    """A network that is sampled by its own dropout (Gal and Ghahramani 2016).

    Parameters
    ----------
    network : MLP, LSTM or ResNet18, optional
        Its `dropout` is the share of units that are dropped, in training and in every sample. None is an MLP with 0.5.
        An `MLP(...)` has 0.1 and a `ResNet18(...)` 0.3 unless you set it; an `LSTM(...)` needs one. A ResNet-18 drops
        what enters its head, so that the samples of a member share its layer 4.
    n_samples : int, default=50
        How many networks are sampled for a prediction.
    length_scale : float, default=0.01
        Of the prior over the weights: larger holds them nearer to zero.
    """

    NETWORK = MLP(hidden=1024, layers=3, dropout=0.5)
    KINDS: ClassVar[tuple[type[MLP | LSTM | ResNet18], ...]] = (MLP, LSTM, ResNet18)
    LEARNED = False  # whether rates are

    length_scale: float = 0.01

    def check_params(self) -> None:
        super().check_params()
        check_number("length_scale", self.length_scale, least=0.0)
        if not self.plain_network().dropout > 0:
            raise ValueError(f"network must have a dropout above 0 to be sampled by, got {self.network!r}")

    def trained_network(self) -> DropoutNetwork:
        return DropoutNetwork(self.plain_network(), self.length_scale, self.LEARNED)


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class MCDropoutRegressor(MCDropout, SampledRegressor):
    """MC Dropout with a noise that depends on the row (Gal and Ghahramani 2016; Kendall and Gal 2017).

    Parameters are those of `MCDropout` and `BaselineEstimator`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80)
    >>> model = MCDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> bool((model.predict_interval(X, noise=False).width < model.predict_interval(X).width).all())
    True
    """


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class MCDropoutClassifier(MCDropout, BaselineClassifier):
    """MC Dropout for classes: the probabilities of the sampled networks, averaged (Gal and Ghahramani 2016).

    Parameters are those of `MCDropout` and `BaselineEstimator`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MCDropoutClassifier(coverage=0.9, max_epochs=20, random_state=0).fit(X, y)
    >>> bool(model.predict_set(X, 0.99).contains(y).mean() > 0.9)
    True
    """


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class ConcreteDropoutRegressor(MCDropoutRegressor):
    """Concrete Dropout with a noise that depends on the row (Gal, Hron and Kendall 2017).

    Other parameters are those of `MCDropoutRegressor`.

    Parameters
    ----------
    network : MLP or LSTM, optional
        Its `dropout` is where the rates start; an `LSTM(...)` needs one.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80)
    >>> model = ConcreteDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.rates_.shape  # (member, layer)
    (1, 5)
    """

    NETWORK = Sampled.NETWORK
    LEARNING_RATE = 2e-3
    KINDS = (MLP, LSTM)
    LEARNED = True

    @property
    def rates_(self) -> NDArray[np.float64]:
        """The learned dropout rates: (member, layer) of an MLP, (member, place) of an LSTM.

        Its places are, layer by layer, what enters from the layer below and what returns from the step before, without
        the inputs of the first layer; the last is what enters the head.
        """
        check_is_fitted(self)
        (team,) = (part for part in self.predictor_.modules() if isinstance(part, DropoutTeam))
        return cast(NDArray[np.float64], team.rates.double().cpu().numpy())
