"""How the mean network F is matched to the intervals of I: Sigma Fit, IQR Fit, or a strategy of the user's.

A strategy says how many numbers F must emit per row, which of them is the mean, and what F's loss is.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.options import check_number, named
from coverwell.paper import losses
from coverwell.paper.losses import Coverage, Interval, Levels, PerLevel, PerMember, Scale, Values

Outputs = Float[Tensor, "member batch output"]
HalfWidth = Float[Tensor, "member batch target side level"]

# gamma = 1 / z(empirical coverage) is infinite at 0 and zero at 1: keep the coverage away from both.
LOWEST_COVERAGE, HIGHEST_COVERAGE = 0.05, 0.999
# A sigma of zero makes Eq. 7 infinite; targets are of order one when they reach a network.
SMALLEST_SIGMA = 1e-4


@dataclass(frozen=True)
class MatchTarget:
    """What F is matched to in one batch.

    Attributes
    ----------
    width : tensor (member, batch, target, level)
        Width of I's interval, from members that did not train on the row.
    empirical_coverage : tensor (member, target, level)
        Coverage of I's intervals, alpha_v in the paper.
    coverage : tensor (1 or member, level)
        Coverage that was asked for.
    scale : tensor (1 or member, target)
        Size of a typical residual; dividing by it makes a loss free of the target's unit.
    """

    width: PerLevel
    empirical_coverage: Float[Tensor, "member target level"]
    coverage: Coverage
    scale: Scale


@runtime_checkable
class Matching(Protocol):
    """What a strategy must offer; see `SigmaFit` for an example to copy.

    A strategy may also have `half_width(outputs, n_targets, levels)`: the half-widths of F's own interval below and
    above its mean, `(member, batch, target, side, level)`. With it, F helps to shape the deployed interval.
    """

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        """How many numbers F emits per row."""

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        """The prediction among F's outputs."""

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        """F's loss on one batch."""


@named("matching", "sigma")
@dataclass(frozen=True)
class SigmaFit:
    """F emits a mean and a standard deviation; sigma is held near gamma w / 2 (Eq. 7).

    Paper: computed in units of the residual scale, so that `match_weight` means the same on every data set. With
    several levels, sigma is matched to all of them.

    Parameters
    ----------
    match_weight : float
        How strongly sigma is held near I's widths, beside the likelihood.

    Examples
    --------
    >>> from coverwell import MatchedRegressor
    >>> model = MatchedRegressor(coverage=0.9, matching=SigmaFit(match_weight=1.0))
    """

    match_weight: float = 0.5

    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("match_weight", self.match_weight, least=0.0, below=math.inf)

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return 2 * n_targets

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        return outputs[..., :n_targets]

    def sigma(self, outputs: Outputs, n_targets: int) -> Values:
        """The standard deviation among F's outputs."""
        return softplus(outputs[..., n_targets:]) + SMALLEST_SIGMA

    def half_width(self, outputs: Outputs, n_targets: int, levels: Levels) -> HalfWidth:
        """Half-widths of F's own interval (Eq. 6), the same on both sides."""
        return losses.gaussian_half_width(self.sigma(outputs, n_targets), levels.z)

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        unit = target.scale[:, None, :]
        return losses.sigma_fit_loss(
            y / unit,
            self.mean(outputs, y.shape[-1]) / unit,
            self.sigma(outputs, y.shape[-1]) / unit,
            width=target.width / unit[..., None],
            gamma=1 / losses.z_score(target.empirical_coverage.clamp(LOWEST_COVERAGE, HIGHEST_COVERAGE)),
            match_weight=self.match_weight,
            balanced=self.balanced,
        )


@named("matching", "balanced")
@dataclass(frozen=True)
class BalancedFit(SigmaFit):
    """Sigma Fit with a likelihood in which easy and hard rows weigh alike for the mean (Seitzer et al. 2022).

    Parameters
    ----------
    match_weight : float
        How strongly sigma is held near I's widths, beside the likelihood.
    """

    balanced: ClassVar[bool] = True


@named("matching", "iqr")
@dataclass(frozen=True)
class IQRFit:
    """F emits a mean and one pair of quantiles per level; their range is held near w (Eq. 10).

    F's quantiles do not shape the deployed interval: they follow the training rows too closely.

    Paper: computed in units of the residual scale, so that the weights mean the same on every data set.

    Parameters
    ----------
    match_weight : float
        How strongly the range of the quantiles is held near I's widths, beside the squared error.
    upper_weight, lower_weight : float
        Weights of the pinball losses of the upper and the lower quantiles.

    Examples
    --------
    >>> from coverwell import MatchedRegressor
    >>> model = MatchedRegressor(coverage=0.9, matching=IQRFit(match_weight=0.6))
    """

    match_weight: float = 0.4
    upper_weight: float = 0.3
    lower_weight: float = 0.3

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(name, value, least=0.0, below=math.inf)

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets * (1 + 2 * n_levels)

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        return outputs[..., :n_targets]

    def quantiles(self, outputs: Outputs, n_targets: int) -> Interval:
        """The lower and upper quantiles among F's outputs."""
        lower, upper = outputs[..., n_targets:].chunk(2, dim=-1)
        shape = (*outputs.shape[:-1], n_targets, -1)  # (member, batch, target, level)
        return Interval(lower.reshape(shape), upper.reshape(shape))

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        unit = target.scale[:, None, :]
        lower, upper = self.quantiles(outputs, y.shape[-1])
        return losses.iqr_fit_loss(
            y / unit,
            self.mean(outputs, y.shape[-1]) / unit,
            Interval(lower / unit[..., None], upper / unit[..., None]),
            width=target.width / unit[..., None],
            coverage=target.coverage,
            **vars(self),
        )


@named("confidence", "confidence")
@dataclass(frozen=True)
class ConfidenceFit:
    """F emits a logit for each class; its confidence is drawn down where I's threshold is wide.

    Paper: our own, for classes. A row's doubt is I's threshold for the score of its true class, times `match_weight`.

    Parameters
    ----------
    match_weight : float
        The doubt of a row whose threshold is 1, where every class fits; in [0, 1].
    """

    match_weight: float = 0.1

    def __post_init__(self) -> None:
        check_number("match_weight", self.match_weight, least=0.0, below=1.0)

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        """The probabilities of the classes."""
        return outputs.softmax(dim=-1)

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        threshold = 0.5 * target.width.mean(dim=(2, 3))  # half the width, over the levels
        return losses.confidence_loss(y, outputs, doubt=self.match_weight * threshold.clamp(0, 1))


@named("confidence", None)
@dataclass(frozen=True)
class CrossEntropy:
    """F emits a logit for each class and is trained on the cross-entropy alone: the control for matching."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        """The probabilities of the classes."""
        return outputs.softmax(dim=-1)

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        return losses.confidence_loss(y, outputs, doubt=y.new_zeros(y.shape[:2]))


@named("matching", None)
@dataclass(frozen=True)
class Unmatched:
    """F emits a mean alone and is trained on the squared error: the control for matching."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets

    def mean(self, outputs: Outputs, n_targets: int) -> Values:
        return outputs

    def loss(self, outputs: Outputs, y: Values, target: MatchTarget) -> PerMember:
        return losses.squared_error_loss(y, self.mean(outputs, y.shape[-1]))
