"""What the outputs of a baseline's networks mean: a normal law, or quantiles around a median.

A *voice* is one network that speaks about a row: a member, or a sample from a member's law over networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.algorithm import reach_of
from coverwell.intervals import quantile_levels, z_score
from coverwell.losses import Levels, Values, gaussian_surprise, pinball

__all__ = ["Law", "NormalLaw", "QuantileLaw", "Reading"]

Outputs = Float[Tensor, "member batch output"]
PerRow = Float[Tensor, "member batch"]

# A standard deviation of zero has an infinite likelihood; targets are of order one when they reach a network.
SMALLEST_SIGMA = 1e-3


@dataclass(frozen=True)
class Reading:
    """What all voices together say: a prediction and how far its interval reaches below and above it."""

    mean: Float[Tensor, "team row target"]
    reach: Float[Tensor, "team row target side level"]


@runtime_checkable
class Law(Protocol):
    """How a network's outputs are trained and read."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        """How many numbers a network emits per row."""
        ...

    def losses(self, outputs: Outputs, y: Values, coverage: Levels) -> PerRow:
        """The loss of each row."""
        ...

    def read(
        self, outputs: Float[Tensor, "team voice row output"], coverage: Float[Tensor, "team level"], *, noise: bool
    ) -> Reading:
        """All voices of each team as one; without `noise`, how far they disagree on the mean alone."""
        ...


@dataclass(frozen=True)
class NormalLaw:
    """A mean and a standard deviation for every row and target (Nix and Weigend 1994)."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return 2 * n_targets

    def losses(self, outputs: Outputs, y: Values, coverage: Levels) -> PerRow:
        """Negative log-likelihood without its constant, averaged over the targets."""
        return gaussian_surprise(y, *self.moments(outputs)).mean(dim=-1)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation among the outputs."""
        mean, raw = outputs.chunk(2, dim=-1)
        return mean, softplus(raw) + SMALLEST_SIGMA

    def read(
        self, outputs: Float[Tensor, "team voice row output"], coverage: Float[Tensor, "team level"], *, noise: bool
    ) -> Reading:
        """The normal law with the mean and variance of the voices' mixture (Lakshminarayanan et al. 2017).

        Its variance is the average noise plus the variance of the means; without noise, the latter alone.
        """
        means, sigmas = self.moments(outputs)
        variance = means.var(dim=1, correction=0)
        if noise:
            variance = variance + sigmas.square().mean(dim=1)
        one_side = variance.sqrt()[..., None] * z_score(coverage)[:, None, None, :]  # (team, row, target, level)
        return Reading(means.mean(dim=1), torch.stack([one_side, one_side], dim=-2))


@dataclass(frozen=True)
class QuantileLaw:
    """A median, and increments outwards to the quantiles of each level, so that no two ever cross."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets * (1 + 2 * n_levels)

    def losses(self, outputs: Outputs, y: Values, coverage: Levels) -> PerRow:
        """Pinball loss (Eq. 8) of the median and of both ends of every level, averaged over all of them."""
        median, reach = self.quantiles(outputs, y.shape[-1], coverage)
        below, above = reach.unbind(dim=-2)
        quantiles = torch.cat([median[..., None] - below, median[..., None], median[..., None] + above], dim=-1)
        lower, upper = quantile_levels(coverage)
        tau = torch.cat([lower, torch.full_like(lower[:, :1], 0.5), upper], dim=-1)
        return pinball(y, quantiles, tau).mean(dim=(-1, -2))

    def quantiles(self, outputs: Tensor, n_targets: int, coverage: Tensor) -> tuple[Tensor, Tensor]:
        """The median (member, batch, target) and the reach from it (member, batch, target, side, level)."""
        unit = torch.ones_like(outputs[:, 0, :n_targets])  # y has been scaled: its own spread
        return outputs[..., :n_targets], reach_of(outputs[..., n_targets:], coverage, unit)

    def read(
        self, outputs: Float[Tensor, "team voice row output"], coverage: Float[Tensor, "team level"], *, noise: bool
    ) -> Reading:
        """The averages of the voices' quantiles."""
        n_voices = outputs.shape[1]
        n_targets = outputs.shape[-1] // (1 + 2 * coverage.shape[-1])
        levels = coverage.repeat_interleave(n_voices, dim=0)
        median, reach = self.quantiles(outputs.flatten(0, 1), n_targets, levels)
        by_team = (-1, n_voices)
        return Reading(median.unflatten(0, by_team).mean(dim=1), reach.unflatten(0, by_team).mean(dim=1))
