"""Synthetic laws whose conditional distribution, and so whose true interval, is known in every row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Inputs = NDArray[np.float64]  # (batch, feature)
Values = NDArray[np.float64]  # (batch,)


@runtime_checkable
class Conditional(Protocol):
    """The distribution of the target in each row; scipy's frozen distributions are of this kind."""

    def cdf(self, x: Values) -> Values: ...
    def ppf(self, q: float) -> Values: ...
    def mean(self) -> Values: ...
    def rvs(self, size: int, random_state: np.random.Generator) -> Values: ...


@dataclass(frozen=True)
class Law:
    """A joint law of inputs, uniform on the unit cube, and a target with a known distribution given the inputs.

    `given` maps inputs (row, feature) to the distribution of the target in each row.

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
    given: Callable[[Inputs], Conditional]

    def draw(self, n: int, random_state: int | np.random.Generator | None = None) -> tuple[Inputs, Values]:
        """Independent rows: inputs (n, feature) and targets (n,)."""
        rng = np.random.default_rng(random_state)
        X = rng.uniform(size=(n, self.n_features))
        return X, self.given(X).rvs(size=n, random_state=rng)

    def true_interval(self, X: Inputs, coverage: float) -> tuple[Values, Values]:
        """The central interval: below and above it lie (1 - coverage) / 2 of the targets, in every row."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
        conditional = self._conditional(X)
        return conditional.ppf((1 - coverage) / 2), conditional.ppf((1 + coverage) / 2)

    def true_mean(self, X: Inputs) -> Values:
        """The mean of the target in each row."""
        return self._conditional(X).mean()

    def cdf(self, X: Inputs, y: Values) -> Values:
        """The probability, in each row, of a target of at most `y`."""
        return self._conditional(X).cdf(y)

    def exact_coverage(self, X: Inputs, lower: Values, upper: Values) -> Values:
        """The probability, in each row, that the target falls between `lower` and `upper`; 0 where they are crossed."""
        return np.maximum(self.cdf(X, upper) - self.cdf(X, lower), 0.0)

    def _conditional(self, X: Inputs) -> Conditional:
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n_rows, {self.n_features}) for {self.name!r}, got {X.shape}")
        return self.given(X)


def laws() -> dict[str, Law]:
    """Every law, by name.

    Examples
    --------
    >>> from tests.synthetic import laws
    >>> list(laws())
    ['homoscedastic', 'heteroscedastic', 'skewed', 'heavy tailed', 'many inputs']
    """
    every = (
        Law("homoscedastic", 1, homoscedastic),
        Law("heteroscedastic", 1, heteroscedastic),
        Law("skewed", 1, skewed),
        Law("heavy tailed", 1, heavy_tailed),
        Law("many inputs", 10, many_inputs),
    )
    return {law.name: law for law in every}


def homoscedastic(X: Inputs) -> Conditional:
    """Normal, the same spread everywhere: N(wave(x), 0.3^2)."""
    conditional: Conditional = stats.norm(loc=_wave(X), scale=0.3)
    return conditional


def heteroscedastic(X: Inputs) -> Conditional:
    """Normal, the spread growing sixfold from left to right: N(wave(x), (0.1 + 0.5 x)^2)."""
    conditional: Conditional = stats.norm(loc=_wave(X), scale=0.1 + 0.5 * X[:, 0])
    return conditional


def skewed(X: Inputs) -> Conditional:
    """wave(x) + Gamma(shape 1 + 4 x, scale 0.2): exponential at the left, less skewed and wider to the right."""
    conditional: Conditional = stats.gamma(a=1 + 4 * X[:, 0], loc=_wave(X), scale=0.2)
    return conditional


def heavy_tailed(X: Inputs) -> Conditional:
    """wave(x) + 0.2 t, Student's t with 4 degrees of freedom: finite variance, infinite fourth moment."""
    conditional: Conditional = stats.t(df=4, loc=_wave(X), scale=0.2)
    return conditional


def many_inputs(X: Inputs) -> Conditional:
    """Friedman's first function of inputs 1 to 5, normal noise of spread 0.5 + 2 x_6; inputs 7 to 10 have no effect."""
    mean = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    conditional: Conditional = stats.norm(loc=mean, scale=0.5 + 2 * X[:, 5])
    return conditional


def _wave(X: Inputs) -> Values:
    return np.sin(2 * np.pi * X[:, 0])
