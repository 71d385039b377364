"""The paper's losses, one pure function per equation, each giving one number per member.

Axes: member (networks trained side by side), batch, target, level (from the innermost interval to the outermost).
Where the paper has one target and one level, a loss is averaged over both.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.intervals import Interval, quantile_levels, z_score

__all__ = [
    "coverage_loss",
    "gaussian_interval",
    "gaussian_surprise",
    "inter_quantile_range",
    "interval_loss",
    "iqr_fit_loss",
    "noise_loss",
    "pinball",
    "pinball_loss",
    "quantile_interval_loss",
    "sharpness_loss",
    "sigma_fit_loss",
    "soft_coverage",
    "squared_error_loss",
]

Values = Float[Tensor, "member batch target"]
PerLevel = Float[Tensor, "member batch target level"]
Levels = Float[Tensor, "#member level"]
Scale = Float[Tensor, "#member target"]
PerMember = Float[Tensor, " member"]

BATCH = 1


def soft_coverage(y: Values, interval: Interval, steepness: float | Tensor) -> Float[Tensor, "member target level"]:
    """Share of the batch inside the interval, with a sigmoid for the indicator of Eq. 2."""
    lower, upper = interval
    inside = (y[..., None] - lower) * (upper - y[..., None])  # positive between the bounds
    return torch.sigmoid(steepness * inside).mean(dim=BATCH)


def coverage_loss(y: Values, interval: Interval, coverage: Levels, steepness: float | Tensor) -> PerMember:
    """Distance between the asked and the reached coverage, L_emce (Eq. 2)."""
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
    coverage: Levels,
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


def quantile_interval_loss(
    y: Values,
    y_mean: Values,
    interval: Interval,
    coverage: Levels,
    *,
    scale: Scale,
    steepness: float = 40.0,
) -> PerMember:
    """Our default loss of the interval network: Eq. 2 holds the level, the pinball loss (Eq. 8) shapes the width.

    Paper: Eqs. 3 and 4 learn nearly constant widths; the pinball loss of both bounds, in units of the residual scale,
    learns conditional ones. `y_mean` is not needed, because the bounds already stand around it.
    """
    lower_level, upper_level = quantile_levels(coverage)
    unit = scale[:, None, :]
    held = coverage_loss(y, interval, coverage, steepness / scale.square()[:, None, :, None])
    shaped = pinball_loss(y / unit, interval.lower / unit[..., None], lower_level) + pinball_loss(
        y / unit, interval.upper / unit[..., None], upper_level
    )
    return held + shaped


def gaussian_interval(y_mean: Values, sigma: Values, coverage: Levels) -> Interval:
    """The central interval of a normal law around the mean (Eq. 6)."""
    reach = sigma[..., None] * z_score(coverage)[:, None, None, :]  # (member, batch, target, level)
    return Interval(y_mean[..., None] - reach, y_mean[..., None] + reach)


def squared_error_loss(y: Values, y_mean: Values) -> PerMember:
    """Mean squared error, the first term of Eq. 10."""
    return (y - y_mean).square().mean(dim=(1, 2))


def gaussian_surprise(y: Values, y_mean: Values, sigma: Values) -> Values:
    """The negative log-likelihood of every value under a normal law, without its constant: the first term of Eq. 7."""
    return (y - y_mean).square() / (2 * sigma.square()) + sigma.log()


def sigma_fit_loss(
    y: Values,
    y_mean: Values,
    sigma: Values,
    *,
    width: PerLevel,
    gamma: Float[Tensor, "member target level"],
    match_weight: float,
) -> PerMember:
    """Gaussian negative log-likelihood with sigma held near the scaled half-width, L_F of Sigma Fit (Eq. 7)."""
    mismatch = (sigma[..., None] - 0.5 * gamma[:, None] * width).abs().mean(dim=-1)
    return (gaussian_surprise(y, y_mean, sigma) + match_weight * mismatch).mean(dim=(1, 2))


def pinball_loss(y: Values, quantile: PerLevel, level: Levels) -> PerMember:
    """Mean pinball loss of a quantile at its level tau (Eq. 8)."""
    return pinball(y, quantile, level).mean(dim=(1, 2, 3))


def pinball(y: Values, quantile: PerLevel, level: Levels) -> PerLevel:
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
    coverage: Levels,
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
