"""MC Dropout: units are silenced in training and at prediction alike (Gal and Ghahramani 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.baselines.baseline import SampledRegressor
from coverwell.baselines.random_lstm import Draws, SilencedLSTMTeam, silenced_places, squares
from coverwell.baselines.random_resnet import SampledTails, heads_of, tails_of
from coverwell.baselines.random_team import fixed_team, repeated, speaking
from coverwell.estimator import check_number
from coverwell.losses import PerMember
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.resnet import ResNet18, ResNet18Tail, ResNet18Team

__all__ = [
    "DropoutLSTM",
    "DropoutLSTMTeam",
    "DropoutMLP",
    "DropoutResNet18",
    "DropoutResNet18Team",
    "DropoutTeam",
    "MCDropoutRegressor",
]


class DropoutTeam(MLPTeam):
    """An MLP team that is sampled by silencing hidden units.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: DropoutMLP, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network.mlp, n_members, n_features, n_outputs)
        self.recipe = self.network = network

    def penalty(self) -> PerMember:
        """The distance from a normal prior of this length scale, of each unit kept with probability 1 - rate."""
        total = torch.zeros(self.n_members, device=self.layers[0].weight.device, dtype=self.layers[0].weight.dtype)
        for place, linear in enumerate(self.layers):
            kept = 1.0 if place == 0 else 1 - self.rate  # inputs are never silenced
            total = total + kept * _squares(linear.weight) + _squares(linear.bias)
        return 0.5 * self.network.length_scale**2 * total

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> MLPTeam:
        layers = []
        for place, linear in enumerate(self.layers):
            weight, bias = repeated(linear.weight, n_samples), repeated(linear.bias, n_samples)
            if place > 0:
                weight = weight * speaking(linear, self.rate, n_samples, generator)
            layers.append((weight, bias))
        return fixed_team(self, layers)


def _squares(values: Tensor) -> PerMember:
    return values.square().sum(dim=(1, 2))


@dataclass(frozen=True)
class DropoutMLP:
    """Recipe of an MLP that is sampled by its own dropout."""

    mlp: MLP
    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> DropoutTeam:
        return DropoutTeam(self, n_members, input_shape[0], n_outputs)


class DropoutLSTMTeam(SilencedLSTMTeam):
    """An LSTM team that is trained and sampled by silencing hidden units at one fixed rate.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, network: DropoutLSTM, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__(network, network.lstm, n_members, n_features, n_outputs)
        self.network = network

    @property
    def rates(self) -> Float[Tensor, "member place"]:
        n_places = len(silenced_places(self.lstm))
        return self.means.head.bias.new_full((self.n_members, n_places), self.lstm.dropout)

    def penalty(self) -> PerMember:
        """The distance from a normal prior of this length scale, as for an MLP."""
        return 0.5 * self.network.length_scale**2 * self.squared_weights()


@dataclass(frozen=True)
class DropoutLSTM:
    """Recipe of an LSTM that is sampled by its own dropout."""

    lstm: LSTM
    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> DropoutLSTMTeam:
        return DropoutLSTMTeam(self, n_members, input_shape[0], n_outputs)


class DropoutResNet18Team(ResNet18Team):
    """Tails of a ResNet-18 that are sampled by silencing pooled channels, where they enter the head.

    Shape: input `(member, batch, 256, height, width)`, output `(member, batch, output)`.
    """

    def __init__(self, network: DropoutResNet18, tails: Sequence[ResNet18Tail], n_outputs: int) -> None:
        super().__init__(network.resnet, tails, n_outputs)
        # Like that of any trained ResNet-18, without the file it started from.
        self.recipe = self.network = replace(network, resnet=replace(network.resnet, weights=None))

    @property
    def rate(self) -> float:
        return self.network.resnet.dropout

    @property
    def numbers_per_sample(self) -> int:
        """How many weights one sample of each member has of its own, all members together."""
        return sum(values.numel() for values in heads_of(self))

    def penalty(self) -> PerMember:
        """The distance of the head from a normal prior of this length scale, as for an LSTM.

        Layer 4 is not random, and batch norms behind its weights make their size of no account.
        """
        weights, biases = heads_of(self)
        expected = squares(weights) / (1 - self.rate)  # a share speaks, each weight divided by that share
        return 0.5 * self.network.length_scale**2 * (expected + squares(biases))

    @torch.no_grad()
    def sample(self, n_samples: int, generator: torch.Generator) -> SampledTails:
        weights, biases = heads_of(self)
        drawn = Draws(n_samples, generator).uniform(weights[:, :1])  # (member * sample, 1, channel)
        loudness = (drawn >= self.rate) / (1 - self.rate)
        return SampledTails(self, repeated(weights, n_samples) * loudness, repeated(biases, n_samples))


@dataclass(frozen=True)
class DropoutResNet18:
    """Recipe of a ResNet-18 that is sampled by its own dropout."""

    resnet: ResNet18
    length_scale: float

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> DropoutResNet18Team:
        plain = self.resnet.build(n_members, input_shape, n_outputs)
        assert isinstance(plain, ResNet18Team)  # `ResNet18` builds no other
        return DropoutResNet18Team(self, tails_of(plain), n_outputs)


@dataclass(eq=False, repr=False, kw_only=True)
class MCDropoutRegressor(SampledRegressor):
    """MC Dropout with a noise that depends on the row (Gal and Ghahramani 2016; Kendall and Gal 2017).

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
    network : MLP, LSTM or ResNet18, optional
        Its `dropout` is the share of units that are silenced, in training and in every sample. None is an MLP with 0.5;
        an `MLP(...)` has its own 0.1 unless it is told otherwise, a `ResNet18(...)` 0.3, and an `LSTM(...)` must be
        told. Of a ResNet-18, what enters the head is silenced, so that the samples of a member share its layer 4.
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
    >>> model = MCDropoutRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> total, doubt = model.predict_interval(X[:5]), model.predict_interval(X[:5], noise=False)
    >>> bool((doubt.width < total.width).all())
    True
    """

    NETWORK: ClassVar[MLP] = MLP(hidden=1024, layers=3, dropout=0.5)
    KINDS: ClassVar[tuple[type[MLP | LSTM | ResNet18], ...]] = (MLP, LSTM, ResNet18)

    length_scale: float = 0.01

    def _check_choices(self) -> None:
        super()._check_choices()
        check_number("length_scale", self.length_scale, least=0.0)
        if not self._chosen().dropout > 0:
            raise ValueError(f"network must have a dropout above 0 to be sampled by, got {self.network!r}")

    def _network(self) -> DropoutMLP | DropoutLSTM | DropoutResNet18:
        network = self._chosen()
        if isinstance(network, LSTM):
            return DropoutLSTM(network, self.length_scale)
        if isinstance(network, ResNet18):
            return DropoutResNet18(network, self.length_scale)
        return DropoutMLP(network, self.length_scale)
