"""Regressors for skpro (extra `skpro`): any of ours as one of its probabilistic regressors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from coverwell.estimator import IntervalRegressor
from coverwell.prediction import PredictedDistribution
from coverwell.regressor import MatchedRegressor

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:
    raise ImportError("skpro is not installed; install the extra `skpro`: pip install 'coverwell[skpro]'") from None

__all__ = ["QuantileDistribution", "SkproRegressor"]

Array = NDArray[np.float64]


class QuantileDistribution(BaseDistribution):
    """What `predict_distribution` gives, as a distribution of skpro.

    Parameters
    ----------
    distribution : PredictedDistribution
        Its values are (row, target, level).
    index, columns : pandas Index
        The labels of rows and targets.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell.prediction import PredictedDistribution
    >>> from coverwell.skpro import QuantileDistribution
    >>> known = PredictedDistribution(np.array([0.25, 0.75]), np.array([[[1.0, 2.0]], [[0.0, 4.0]]]))
    >>> median = QuantileDistribution(known, index=[0, 1], columns=["y"]).ppf(0.5)
    >>> median["y"].tolist()
    [1.5, 2.0]
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["coverwell"],
        "capabilities:exact": ["cdf", "energy", "mean", "ppf"],
        "capabilities:approx": ["pdfnorm", "var"],
        "distr:measuretype": "mixed",
    }

    def __init__(self, distribution: PredictedDistribution, index: Any = None, columns: Any = None) -> None:
        self.distribution, self.index, self.columns = distribution, index, columns
        super().__init__(index=index, columns=columns)

    def _of_own(self, values: Any) -> Array:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), self.distribution.values.shape[:-1])

    def _shaped(self, values: Array) -> Any:
        return values if self.ndim else values.item()

    def _cdf(self, x: Any) -> Any:
        return self._shaped(self.distribution.cdf(self._of_own(x)))

    def _ppf(self, p: Any) -> Any:
        return self._shaped(self.distribution.quantiles_at(self._of_own(p)[..., None])[..., 0])

    def _mean(self) -> Any:
        return self._shaped(self.distribution.mean())

    def _energy_x(self, x: Any) -> Any:
        """E|X - x|: the CRPS is this minus half of E|X - X'|."""
        return self._summed(self.distribution.crps(self._of_own(x)) + self._half_spread)

    def _energy_self(self) -> Any:
        return self._summed(2 * self._half_spread)

    @property
    def _half_spread(self) -> Array:
        """Half of E|X - X'|, from the CRPS of a value beyond nearly all others, where E|X - x| is x minus the mean."""
        far = self.distribution.quantile(1 - 2**-53)
        return far - self.distribution.mean() - self.distribution.crps(far)

    def _summed(self, values: Array) -> Any:
        return values.sum(axis=1) if self.ndim else values.item()

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> QuantileDistribution:
        rows, columns = (slice(None) if at is None else np.atleast_1d(at) for at in (rowidx, colidx))
        whole = self.distribution
        names = tuple(np.array(whole.target_names)[columns].tolist())
        part = replace(whole, values=whole.values[rows][:, columns], target_names=names, index=None)
        scalar = np.ndim(rowidx) == np.ndim(colidx) == 0 and rowidx is not None and colidx is not None
        labels = (None, None) if scalar else (self.index[rows], self.columns[columns])
        return QuantileDistribution(part, *labels)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> QuantileDistribution:
        return self._iloc(rowidx, colidx)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        values = np.array([[[1.0, 2.0, 4.0]], [[0.0, 0.5, 3.0]], [[2.0, 3.0, 3.5]]])
        known = PredictedDistribution(np.array([0.1, 0.5, 0.9]), values)
        return [
            {"distribution": known, "index": pd.RangeIndex(3), "columns": pd.Index(["a"])},
            {"distribution": replace(known, values=values[:1])},
        ]


class SkproRegressor(BaseProbaRegressor):
    """A regressor of coverwell for skpro: predictions, intervals, quantiles and distributions as data frames.

    Parameters
    ----------
    regressor : unfitted regressor of coverwell, optional
        None is a `MatchedRegressor()`.

    Attributes
    ----------
    regressor_ : the fitted regressor

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MLP, MatchedRegressor, Schedule
    >>> from coverwell.skpro import SkproRegressor
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> X, y = pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame({"y": y})
    >>> short = MatchedRegressor([0.5, 0.9], network=MLP(hidden=8), schedule=Schedule(max_rounds=1), repeats=1)
    >>> model = SkproRegressor(short).fit(X, y)
    >>> model.predict_interval(X, coverage=0.8).columns.tolist()
    [('y', 0.8, 'lower'), ('y', 0.8, 'upper')]
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["coverwell"],
        "python_dependencies": "torch",
        "capability:multioutput": True,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, regressor: Any = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> SkproRegressor:
        chosen = MatchedRegressor() if self.regressor is None else clone(self.regressor)
        if not isinstance(chosen, IntervalRegressor):
            raise TypeError(f"regressor must be one of coverwell, unfitted, got {self.regressor!r}")
        self.regressor_ = chosen.fit(_named(X), y)
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._frame(X, self.regressor_.predict(_named(X)), "predict")

    def _predict_interval(self, X: pd.DataFrame, coverage: list[float]) -> pd.DataFrame:
        bounds = np.stack([*self.regressor_.predict_interval(_named(X), coverage)], axis=-1)
        return self._frame(X, bounds, "predict_interval", coverage=coverage)

    def _predict_quantiles(self, X: pd.DataFrame, alpha: list[float]) -> pd.DataFrame:
        return self._frame(X, self.regressor_.predict_quantiles(_named(X), alpha), "predict_quantiles", alpha=alpha)

    def _predict_proba(self, X: pd.DataFrame) -> QuantileDistribution:
        found = self.regressor_.predict_distribution(_named(X))
        return QuantileDistribution(found, index=X.index, columns=self._get_columns(method="predict"))

    def _frame(self, X: pd.DataFrame, values: Array, method: str, **levels: Any) -> pd.DataFrame:
        columns = self._get_columns(method=method, **levels)
        return pd.DataFrame(values.reshape(len(X), -1), index=X.index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two small regressors for skpro's own tests: a matched one, and a baseline."""
        from coverwell.baselines import HeteroscedasticRegressor
        from coverwell.networks import MLP
        from coverwell.options import Schedule

        small: dict[str, Any] = {"network": MLP(hidden=8), "device": "cpu", "random_state": 0}
        brief: dict[str, Any] = {"schedule": Schedule(max_rounds=1), "folds": 2, "repeats": 1, "companions": ()}
        return [
            {"regressor": MatchedRegressor([0.5, 0.9], **brief, **small)},
            {"regressor": HeteroscedasticRegressor([0.5, 0.9], max_epochs=5, **small)},
        ]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """The table with names of text; skpro allows numbers among them."""
    return X.set_axis(X.columns.astype(str), axis=1)
