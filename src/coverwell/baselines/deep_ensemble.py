"""Deep ensembles: several heteroscedastic networks from different starts (Lakshminarayanan et al. 2017)."""

from dataclasses import dataclass

from coverwell.baselines.baseline import MixtureRegressor
from coverwell.networks.mlp import MLP
from coverwell.options import stored

__all__ = ["DeepEnsembleRegressor"]


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class DeepEnsembleRegressor(MixtureRegressor):
    """Several networks, each with a mean and a noise for every row, combined into one normal distribution.

    Each holds out rows of its own; all stop together. There is no adversarial training.
    Parameters are those of `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = DeepEnsembleRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> total, doubt = model.predict_interval(X[:5]), model.predict_interval(X[:5], noise=False)
    >>> bool((doubt.width < total.width).all())
    True
    """

    NETWORK = MLP(hidden=128, dropout=0.1)

    members: int = 5
