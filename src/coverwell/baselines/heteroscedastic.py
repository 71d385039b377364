"""Heteroscedastic networks: a mean and a noise for every row, by maximum likelihood (Nix and Weigend 1994)."""

from dataclasses import dataclass

from coverwell.baselines.baseline import BaselineRegressor
from coverwell.baselines.heads import NormalHead
from coverwell.networks.mlp import MLP
from coverwell.options import stored

__all__ = ["HeteroscedasticRegressor"]


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class HeteroscedasticRegressor(BaselineRegressor):
    """A network that emits the mean and the standard deviation of a normal distribution, without doubt about itself.

    Parameters are those of `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = HeteroscedasticRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    HEAD = NormalHead()
    NETWORK = MLP(hidden=128, dropout=0.1)
