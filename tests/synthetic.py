"""Synthetic laws whose conditional distribution is known in every row, and a matching strategy of a user's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch.nn.functional import softplus

Inputs = NDArray[np.float64]  # (batch, feature)
Values = NDArray[np.float64]  # (batch,)


@dataclass(frozen=True)
class Law:
    """A joint law of inputs, uniform on the unit cube, and a target with a known distribution given the inputs.

    `given` maps inputs (row, feature) to the distribution of the target in each row, a frozen one of scipy.

    Examples
    --------
    >>> from tests.synthetic import laws
    >>> law = laws()["heteroscedastic"]
    >>> X, y = law.draw(1000, random_state=0)
    >>> X.shape, y.shape
    ((1000, 1), (1000,))
    >>> lower, upper = law.true_interval(X, coverage=0.9)
    >>> print(f"{law.exact_coverage(X, lower, upper).mean():.2f}")
    0.90
    """

    name: str
    n_features: int
    given: Callable[[Inputs], Any]

    def draw(self, n: int, random_state: int | np.random.Generator | None = None) -> tuple[Inputs, Values]:
        """Independent rows: inputs (n, feature) and targets (n,)."""
        rng = np.random.default_rng(random_state)
        X = rng.uniform(size=(n, self.n_features))
        return X, self.given(X).rvs(size=n, random_state=rng)

    def true_interval(self, X: Inputs, coverage: float) -> tuple[Values, Values]:
        """The central interval: below and above it lie (1 - coverage) / 2 of the targets, in every row."""
        conditional = self.given(X)
        return conditional.ppf((1 - coverage) / 2), conditional.ppf((1 + coverage) / 2)

    def true_mean(self, X: Inputs) -> Values:
        """The mean of the target in each row."""
        return self.given(X).mean()

    def cdf(self, X: Inputs, y: Values) -> Values:
        """The probability, in each row, of a target of at most `y`."""
        return self.given(X).cdf(y)

    def exact_coverage(self, X: Inputs, lower: Values, upper: Values) -> Values:
        """The probability, in each row, that the target falls between `lower` and `upper`; 0 where they are crossed."""
        return np.maximum(self.cdf(X, upper) - self.cdf(X, lower), 0.0)


def laws() -> dict[str, Law]:
    """Every law, by name.

    Examples
    --------
    >>> from tests.synthetic import laws
    >>> list(laws())
    ['homoscedastic', 'heteroscedastic', 'skewed', 'heavy tailed', 'many inputs']
    """
    every = (
        Law("homoscedastic", 1, lambda X: stats.norm(loc=_wave(X), scale=0.3)),
        # The spread grows sixfold from left to right.
        Law("heteroscedastic", 1, lambda X: stats.norm(loc=_wave(X), scale=0.1 + 0.5 * X[:, 0])),
        # Exponential at the left, less skewed and wider to the right.
        Law("skewed", 1, lambda X: stats.gamma(a=1 + 4 * X[:, 0], loc=_wave(X), scale=0.2)),
        # Student's t: finite variance, infinite fourth moment.
        Law("heavy tailed", 1, lambda X: stats.t(df=4, loc=_wave(X), scale=0.2)),
        # The spread depends on input 6; inputs 7 to 10 have no effect.
        Law("many inputs", 10, lambda X: stats.norm(loc=_friedman(X), scale=0.5 + 2 * X[:, 5])),
    )
    return {law.name: law for law in every}


def _wave(X: Inputs) -> Values:
    return np.sin(2 * np.pi * X[:, 0])


def _friedman(X: Inputs) -> Values:
    """Friedman's first function, of inputs 1 to 5."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


@dataclass(frozen=True)
class LaplaceFit:
    """A strategy as a user would write it: F emits a mean and the scale b of a Laplace law.

    The law's central interval at coverage p has the half-width b ln(1 / (1 - p)), so b is held near
    w / (2 ln(1 / (1 - alpha_v))).
    """

    match_weight: float = 0.5

    def n_outputs(self, n_targets, n_levels):
        return 2 * n_targets

    def mean(self, outputs, n_targets):
        return outputs[..., :n_targets]

    def b(self, outputs, n_targets):
        return softplus(outputs[..., n_targets:]) + 1e-3

    def wanted(self, target):
        depth = -torch.log1p(-target.empirical_coverage.clamp(0.05, 0.99))[:, None]
        return target.width / (2 * depth)

    def loss(self, outputs, y, target):
        b = self.b(outputs, y.shape[-1])
        likelihood = (y - self.mean(outputs, y.shape[-1])).abs() / b + b.log()
        mismatch = (b[..., None] - self.wanted(target)).abs().mean(dim=-1)
        return (likelihood + self.match_weight * mismatch).mean(dim=(1, 2))
