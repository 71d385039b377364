"""Conditional quantiles by the pinball loss (Koenker and Bassett 1978; Tagasovska and Lopez-Paz 2019)."""

from dataclasses import dataclass

from coverwell.baselines.baseline import BaselineRegressor
from coverwell.baselines.heads import QuantileHead
from coverwell.networks.mlp import MLP
from coverwell.options import stored

__all__ = ["NeuralQuantileRegressor"]


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class NeuralQuantileRegressor(BaselineRegressor):
    """A network that emits the median, which is the prediction, and both ends of every level, which never cross.

    With `calibration="split"` this is conformalized quantile regression (Romano et al. 2019), in its scaled form.
    Parameters are those of `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = NeuralQuantileRegressor(coverage=[0.5, 0.8], max_epochs=20, random_state=0).fit(X, y)
    >>> inner, outer = model.predict_interval(X[:5]).width.T
    >>> bool((inner < outer).all())
    True
    """

    HEAD = QuantileHead()
    NETWORK = MLP(hidden=128, dropout=0.1)
    LEARNING_RATE = 2e-3
