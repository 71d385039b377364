"""The paper's losses, one pure function per equation, each giving one number per member.

Axes: member (networks trained side by side), batch, target, level (from the innermost interval to the outermost).
Where the paper has one target and one level, a loss is averaged over both.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.options import check_number, named

Values = Float[Tensor, "member batch target"]
PerLevel = Float[Tensor, "member batch target level"]
Coverage = Float[Tensor, "#member level"]
Scale = Float[Tensor, "#member target"]
PerMember = Float[Tensor, " member"]

BATCH = 1


@dataclass(frozen=True)
class Interval:
    """Lower and upper bounds as tensors, levels from the innermost to the outermost; unpacks into the two."""

    lower: PerLevel
    upper: PerLevel

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.lower, self.upper))

    @property
    def width(self) -> PerLevel:
        """Distance between the bounds, w = delta_u + delta_l in the paper."""
        return self.upper - self.lower


@dataclass(frozen=True)
class Levels:
    """The asked levels and their normal half-widths `z_score(coverage)`; both `(1 or member, level)`."""

    coverage: Coverage
    z: Coverage


def z_score(coverage: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half-width, in standard deviations, of the central normal interval that covers this share: 1.96 for 95 %."""
    score: Tensor = torch.special.ndtri((1 + coverage) / 2)
    return score


def quantile_levels(coverage: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The quantile levels (tau_l, tau_u) at the two ends of a central interval (below Eq. 9)."""
    return (1 - coverage) / 2, (1 + coverage) / 2


def soft_coverage(y: Values, interval: Interval, steepness: float | Tensor) -> Float[Tensor, "member target level"]:
    """Share of the batch inside the interval, with a sigmoid for the indicator of Eq. 2."""
    inside = (y[..., None] - interval.lower) * (interval.upper - y[..., None])  # positive between the bounds
    return torch.sigmoid(steepness * inside).mean(dim=BATCH)


def coverage_loss(y: Values, interval: Interval, coverage: Coverage, steepness: float | Tensor) -> PerMember:
    """Distance between the asked and the empirical coverage, L_emce (Eq. 2)."""
    return (coverage[:, None, :] - soft_coverage(y, interval, steepness)).abs().mean(dim=(1, 2))


def noise_loss(y: Values, y_mean: Values, interval: Interval) -> PerMember:
    """Distance between half the width and the size of the residual, L_noise (Eq. 3).

    Paper: a mean over the batch where the paper prints a sum, so that the weight does not depend on the batch size.
    """
    residual = (y - y_mean).abs()[..., None]
    return (0.5 * interval.width - residual).abs().mean(dim=(1, 2, 3))


def sharpness_loss(y: Values, interval: Interval) -> PerMember:
    """Distance of the target from both bounds, L_sharp (Eq. 4).

    Paper: a mean over the batch where the paper prints a sum, so that the weight does not depend on the batch size.
    """
    lower, upper = interval
    return ((upper - y[..., None]).abs() + (y[..., None] - lower).abs()).mean(dim=(1, 2, 3))


def interval_loss(
    y: Values,
    y_mean: Values,
    interval: Interval,
    coverage: Coverage,
    *,
    scale: Scale,
    noise_weight: float = 0.1,
    sharpness_weight: float = 0.3,
    steepness: float = 40.0,
) -> PerMember:
    """The published loss of the interval network, L_I (Eq. 5).

    Paper: the steepness of the sigmoid is divided by the squared residual scale, so that one value suits all data.
    """
    return (
        coverage_loss(y, interval, coverage, steepness / scale.square()[:, None, :, None])
        + noise_weight * noise_loss(y, y_mean, interval)
        + sharpness_weight * sharpness_loss(y, interval)
    )


def gaussian_half_width(sigma: Values, z: Coverage) -> Float[Tensor, "member batch target side level"]:
    """Half-widths of the central interval of a normal distribution, the same on both sides (Eq. 6)."""
    one_side = sigma[..., None] * z[:, None, None, :]  # (member, batch, target, level)
    return torch.stack([one_side, one_side], dim=-2)


def squared_error_loss(y: Values, y_mean: Values) -> PerMember:
    """Mean squared error, the first term of Eq. 10."""
    return (y - y_mean).square().mean(dim=(1, 2))


def gaussian_nll(y: Values, y_mean: Values, sigma: Values) -> Values:
    """Negative log-likelihood of every value under a normal distribution, without its constant (Eq. 7, first term)."""
    return (y - y_mean).square() / (2 * sigma.square()) + sigma.log()


def sigma_fit_loss(
    y: Values,
    y_mean: Values,
    sigma: Values,
    *,
    width: PerLevel,
    gamma: Float[Tensor, "member target level"],
    match_weight: float,
    balanced: bool = False,
) -> PerMember:
    """Gaussian negative log-likelihood with sigma held near the scaled half-width, L_F of Sigma Fit (Eq. 7).

    If `balanced`, a row's likelihood is weighted by its sigma squared, over the batch's average: the mean then learns
    from all rows as by the squared error, not least from those that are hard (Seitzer et al. 2022, with beta = 1).
    """
    mismatch = (sigma[..., None] - 0.5 * gamma[:, None] * width).abs().mean(dim=-1)
    likelihood = gaussian_nll(y, y_mean, sigma)
    if balanced:
        weight = sigma.detach().square()
        likelihood = likelihood * weight / weight.mean(dim=1, keepdim=True)
    return (likelihood + match_weight * mismatch).mean(dim=(1, 2))


def pinball_loss(y: Values, quantile: PerLevel, level: Coverage) -> PerMember:
    """Mean pinball loss of a quantile at its level tau (Eq. 8)."""
    return pinball(y, quantile, level).mean(dim=(1, 2, 3))


def pinball(y: Values, quantile: PerLevel, level: Coverage) -> PerLevel:
    """The pinball loss of every value, whose mean is Eq. 8."""
    above = y[..., None] - quantile
    tau = level[:, None, None, :]
    return torch.maximum(tau * above, (tau - 1) * above)


def inter_quantile_range(lower: PerLevel, upper: PerLevel) -> PerLevel:
    """Distance between the upper and the lower quantile (Eq. 9)."""
    return upper - lower


def iqr_fit_loss(
    y: Values,
    y_mean: Values,
    quantiles: Interval,
    *,
    width: PerLevel,
    coverage: Coverage,
    match_weight: float,
    upper_weight: float,
    lower_weight: float,
) -> PerMember:
    """Squared error, pinball of both quantiles, and their range held near the width, L_F of IQR Fit (Eq. 10)."""
    lower_level, upper_level = quantile_levels(coverage)
    lower, upper = quantiles
    mismatch = (inter_quantile_range(lower, upper) - width).abs().mean(dim=(1, 2, 3))
    return (
        squared_error_loss(y, y_mean)
        + upper_weight * pinball_loss(y, upper, upper_level)
        + lower_weight * pinball_loss(y, lower, lower_level)
        + match_weight * mismatch
    )


def confidence_loss(
    classes: Float[Tensor, "member batch class"],
    logits: Float[Tensor, "member batch class"],
    *,
    doubt: Float[Tensor, "member batch"],
) -> PerMember:
    """Cross-entropy where a row is sure, drawn towards equal probabilities where it is in doubt.

    Paper: our own, for classes. The variance-weighted confidence-integrated loss of Seo, Seo and Han (2019), with I's
    width for the variance of dropout: (1 - doubt) CE + doubt KL(uniform || p). `classes` is 1 at the class of a row.
    """
    log_p = logits.log_softmax(dim=-1)
    n_classes = logits.shape[-1]
    cross_entropy = -(classes * log_p).sum(dim=-1)
    divergence = -log_p.mean(dim=-1) - math.log(n_classes)
    return ((1 - doubt) * cross_entropy + doubt * divergence).mean(dim=1)


@runtime_checkable
class IntervalLoss(Protocol):
    """The loss of I on one batch, with its weights bound."""

    # Whether targets are scaled to [0, 1], the unit of the published weights, or by their standard deviation.
    unit_range: ClassVar[bool]

    def __call__(self, y: Values, y_mean: Values, interval: Interval, coverage: Coverage, *, scale: Scale) -> PerMember:
        """One number per member."""


@named("interval_loss", "quantile")
@dataclass(frozen=True)
class QuantileLoss:
    """Our default loss of the interval network: Eq. 2 holds the level, the pinball loss (Eq. 8) shapes the width.

    Paper: Eqs. 3 and 4 learn nearly constant widths; the pinball loss of both bounds, in units of the residual scale,
    learns conditional ones.

    Parameters
    ----------
    steepness : float
        eta of Eq. 2, in units of the squared residual scale.
    """

    steepness: float = 40.0
    unit_range: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("steepness", self.steepness, above=0.0)

    def __call__(self, y: Values, y_mean: Values, interval: Interval, coverage: Coverage, *, scale: Scale) -> PerMember:
        unit = scale[:, None, :]
        held = coverage_loss(y, interval, coverage, self.steepness / scale.square()[:, None, :, None])
        below = pinball(y / unit, interval.lower / unit[..., None], (1 - coverage) / 2)
        above = pinball(y / unit, interval.upper / unit[..., None], (1 + coverage) / 2)
        return held + (below.mean(dim=(1, 2, 3)) + above.mean(dim=(1, 2, 3)))


@named("interval_loss", "paper")
@dataclass(frozen=True)
class PaperLoss:
    """The published interval loss (Eq. 5) with its weights.

    Parameters
    ----------
    noise_weight, sharpness_weight : float
        beta_n and beta_s of Eq. 5.
    steepness : float
        eta of Eq. 2, in units of the squared residual scale.
    """

    noise_weight: float = 0.1
    sharpness_weight: float = 0.3
    steepness: float = 40.0
    unit_range: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("steepness", self.steepness, above=0.0)
        check_number("noise_weight", self.noise_weight, least=0.0)
        check_number("sharpness_weight", self.sharpness_weight, least=0.0)

    def __call__(self, y: Values, y_mean: Values, interval: Interval, coverage: Coverage, *, scale: Scale) -> PerMember:
        return interval_loss(y, y_mean, interval, coverage, scale=scale, **vars(self))
