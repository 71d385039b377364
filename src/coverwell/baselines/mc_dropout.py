"""MC Dropout: units are dropped in training and at prediction alike (Gal and Ghahramani 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.random_weights import Draws, MaskedWeights, RandomNetwork, repeated, squares
from coverwell.estimator import check_number
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18, ResNet18Tail, ResNet18Team
from coverwell.networks.team import Team
from coverwell.paper.losses import PerMember
from coverwell.registry import stored

__all__ = ["DropoutNetwork", "DropoutResNet18Team", "DropoutTeam", "MCDropoutRegressor", "SampledTails"]

Weights = Float[Tensor, "head output channel"]
Biases = Float[Tensor, "head output"]


@stored
@dataclass(frozen=True)
class DropoutNetwork(RandomNetwork):
    """Recipe of a network that is sampled by its own dropout."""

    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        if not isinstance(self.plain, ResNet18):
            return DropoutTeam(self, n_members, input_shape, n_outputs)
        team = self.plain.build(n_members, input_shape, n_outputs)
        assert isinstance(team, ResNet18Team)  # `ResNet18` builds no other
        return DropoutResNet18Team(self, tails_of(team), n_outputs)


class DropoutTeam(MaskedWeights):
    """MLPs or LSTMs that are sampled by dropping hidden units at one fixed rate.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, recipe: DropoutNetwork, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(recipe, n_members, input_shape, n_outputs)
        self.rate, self.length_scale = recipe.plain.dropout, recipe.length_scale
        if isinstance(self.means, MLPTeam):  # it drops its hidden units by itself, and does not rescale the others
            self.means.rate, self.rescaled = self.rate, False

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        return next(self.parameters()).new_full((self.n_members, len(self.places)), self.rate)

    def penalty(self) -> PerMember:
        """The distance from a normal prior of this length scale."""
        return 0.5 * self.length_scale**2 * self.squared_weights()


class DropoutResNet18Team(ResNet18Team):
    """Tails of a ResNet-18 that are sampled by dropping pooled channels before the head.

    Shape: input `(member, batch, 256, height, width)`, output `(member, batch, output)`.
    """

    def __init__(self, recipe: DropoutNetwork, tails: Sequence[ResNet18Tail], n_outputs: int) -> None:
        assert isinstance(recipe.plain, ResNet18)
        super().__init__(recipe.plain, tails, n_outputs)
        # Like any trained ResNet-18, without the file it started from.
        self.recipe = replace(recipe, plain=replace(recipe.plain, weights=None))
        self.rate, self.length_scale = recipe.plain.dropout, recipe.length_scale

    @property
    def numbers_per_sample(self) -> int:
        return sum(values.numel() for values in heads_of(self))

    def penalty(self) -> PerMember:
        """The distance of the head from a normal prior of this length scale.

        Layer 4 is not random, and batch norms behind its weights make their size of no account.
        """
        weights, biases = heads_of(self)
        return 0.5 * self.length_scale**2 * (squares(weights) / (1 - self.rate) + squares(biases))

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> SampledTails:
        weights, biases = heads_of(self)
        drawn = Draws(n_samples, generator).random(torch.rand, weights[:, :1])  # (member and sample, 1, channel)
        kept = (drawn >= self.rate) / (1 - self.rate)
        return SampledTails(self, repeated(weights, n_samples) * kept, repeated(biases, n_samples))


class SampledTails(Team):
    """Fixed tails, several for each member of a team, whose layer 4 runs once for all of them.

    Shape: input `(member, batch, 256, height, width)`, with the members of the team; output `(sample, batch, output)`,
    where samples are ordered by member.

    Parameters
    ----------
    team : ResNet18Team
        Its layers 4 are shared, not copied: samples are of use until it trains on.
    weights, biases : Tensor
        The heads, as many of each member, ordered by member.
    """

    precision = ResNet18Team.precision

    def __init__(self, team: ResNet18Team, weights: Weights, biases: Biases) -> None:
        super().__init__()
        self.n_members, n_outputs = biases.shape
        self.n_samples = self.n_members // team.n_members
        # One wide head for all samples of a member: their tails are then tails like any others.
        wide = (heads.unflatten(0, (team.n_members, -1)).flatten(1, 2) for heads in (weights, biases))
        tails = [_with_head(*parts) for parts in zip(tails_of(team), *wide, strict=True)]
        self.tails = ResNet18Team(ResNet18(dropout=0.0, weights=None), tails, self.n_samples * n_outputs)
        self.eval().requires_grad_(False)

    def weight_of_row(self, n_inputs: int) -> int:
        return max(1, self.tails.weight_of_row(n_inputs) // self.n_samples)

    def for_members(self, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row *input"]:
        return self.tails.for_members(x)

    def forward(self, x: Float[Tensor, "member batch 256 height width"]) -> Float[Tensor, "sample batch output"]:
        outputs: Tensor = self.tails(x)  # (member, batch, sample of the member and output)
        by_sample: Tensor = outputs.unflatten(-1, (self.n_samples, -1)).movedim(2, 1)
        return by_sample.flatten(0, 1)


def heads_of(team: ResNet18Team) -> tuple[Weights, Biases]:
    """The heads of all members."""
    tails = tails_of(team)
    return torch.stack([tail.fc.weight for tail in tails]), torch.stack([tail.fc.bias for tail in tails])


def tails_of(team: ResNet18Team) -> list[ResNet18Tail]:
    """The members of a team, with their own type."""
    return [tail for tail in team.members if isinstance(tail, ResNet18Tail)]


def _with_head(
    tail: ResNet18Tail, weight: Float[Tensor, "output channel"], bias: Float[Tensor, " output"]
) -> ResNet18Tail:
    """A tail on the same numbers, but with another head and without dropout."""
    with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
        other = ResNet18Tail(len(bias))
    other.load_state_dict({**tail.state_dict(), "fc.weight": weight, "fc.bias": bias}, assign=True)
    return other


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class MCDropoutRegressor(SampledRegressor):
    """MC Dropout with a noise that depends on the row (Gal and Ghahramani 2016; Kendall and Gal 2017).

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
    network : MLP, LSTM or ResNet18, optional
        Its `dropout` is the share of units that are dropped, in training and in every sample. None is an MLP with 0.5.
        An `MLP(...)` has 0.1 and a `ResNet18(...)` 0.3 unless you set it; an `LSTM(...)` needs one. A ResNet-18 drops
        what enters its head, so that the samples of a member share its layer 4.
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
    >>> model = MCDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> total, doubt = model.predict_interval(X[:5]), model.predict_interval(X[:5], noise=False)
    >>> bool((doubt.width < total.width).all())
    True
    """

    NETWORK: ClassVar[MLP] = MLP(hidden=1024, layers=3, dropout=0.5)
    KINDS: ClassVar[tuple[type[MLP | LSTM | ResNet18], ...]] = (MLP, LSTM, ResNet18)

    length_scale: float = 0.01

    def check_params(self) -> None:
        super().check_params()
        check_number("length_scale", self.length_scale, least=0.0)
        if not self.plain_network.dropout > 0:
            raise ValueError(f"network must have a dropout above 0 to be sampled by, got {self.network!r}")

    def trained_network(self) -> DropoutNetwork:
        return DropoutNetwork(self.plain_network, self.length_scale)
