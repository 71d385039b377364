"""Output heads: what a network's outputs mean, a normal distribution or quantiles around a median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.options import stored
from coverwell.paper.algorithm import half_widths
from coverwell.paper.losses import Levels, Values, gaussian_half_width, gaussian_nll, pinball, quantile_levels

Outputs = Float[Tensor, "member batch output"]
OfNetworks = Float[Tensor, "team network row output"]
PerRow = Float[Tensor, "member batch"]
Combined = tuple[Float[Tensor, "team row target"], Float[Tensor, "team row target side level"]]

# A standard deviation of zero has an infinite likelihood; targets are of order one here.
SMALLEST_SIGMA = 1e-3


@runtime_checkable
class OutputHead(Protocol):
    """How outputs are trained, and how those of several networks are combined."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        """How many numbers a network emits per row."""

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        """The loss of each row."""

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """Mean and half-widths from all networks of a team; without `noise`, from their disagreement alone."""


@stored
@dataclass(frozen=True)
class NormalHead:
    """A mean and a standard deviation for every row and target (Nix and Weigend 1994)."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return 2 * n_targets

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        """The negative log-likelihood without its constant, averaged over targets."""
        return gaussian_nll(y, *self.moments(outputs)).mean(dim=-1)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The means and standard deviations among the outputs."""
        mean, raw = outputs.chunk(2, dim=-1)
        return mean, softplus(raw) + SMALLEST_SIGMA

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """The normal distribution with the moments of the networks' mixture (Lakshminarayanan et al. 2017).

        Its variance is the average noise plus the variance of the means; without noise, the latter alone.
        """
        means, sigmas = self.moments(outputs)
        variance = means.var(dim=1, correction=0)
        if noise:
            variance = variance + sigmas.square().mean(dim=1)
        return means.mean(dim=1), gaussian_half_width(variance.sqrt(), levels.z)


@stored
@dataclass(frozen=True)
class QuantileHead:
    """A median, and increments outwards to the quantiles of each level, so that no two ever cross."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets * (1 + 2 * n_levels)

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        """The pinball loss (Eq. 8) of the median and of both ends of every level, averaged over all of them."""
        median, half_width = self.quantiles(outputs, levels)
        below, above = half_width.unbind(dim=-2)
        quantiles = torch.cat([median[..., None] - below, median[..., None], median[..., None] + above], dim=-1)
        lower, upper = quantile_levels(levels.coverage)
        tau = torch.cat([lower, torch.full_like(lower[:, :1], 0.5), upper], dim=-1)
        return pinball(y, quantiles, tau).mean(dim=(-1, -2))

    def quantiles(self, outputs: Tensor, levels: Levels) -> tuple[Tensor, Tensor]:
        """The median (member, batch, target) and half-widths around it (member, batch, target, side, level)."""
        n_targets = outputs.shape[-1] // self.n_outputs(1, levels.coverage.shape[-1])
        unit = outputs.new_ones(len(outputs), n_targets)  # y is scaled: its own spread
        return outputs[..., :n_targets], half_widths(outputs[..., n_targets:], levels, unit)

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """The averages of the networks' quantiles."""
        median, half_width = self.quantiles(outputs.flatten(1, 2), levels)  # (team, network and row, ...)
        networks = (1, outputs.shape[1:3])
        return median.unflatten(*networks).mean(dim=1), half_width.unflatten(*networks).mean(dim=1)
