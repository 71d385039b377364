"""Forecasters for sktime (extra `sktime`): any of ours as one of its forecasters with intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from coverwell.forecasting import MatchedForecaster
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.prediction import PredictedDistribution, central_shares

try:
    from sktime.forecasting.base import BaseForecaster
except ImportError:
    raise ImportError("sktime is not installed; install the extra `sktime`: pip install 'coverwell[sktime]'") from None

__all__ = ["SktimeForecaster"]

LEVELS = (0.5, 0.8, 0.9, 0.95)  # of a forecaster that is not given
Array = NDArray[np.float64]


class SktimeForecaster(BaseForecaster):
    """A forecaster of coverwell for sktime: the next steps, with intervals and quantiles that follow its misses.

    The levels of the given forecaster are calibrated, and so are their two quantiles. Other levels and quantiles are
    interpolated between these; beyond the outermost ones tails are exponential.

    `update` takes in new values: the widths follow the misses, and networks are trained further if the forecaster has
    `refit_every`. With several steps ahead it needs rows of X for steps that are yet to come, and takes the last row
    that it was given for them; what `predict` is given replaces it.

    Parameters
    ----------
    forecaster : unfitted `MatchedForecaster` or `Forecaster`, optional
        Its horizon is set to the largest step of `fh`. None is a `MatchedForecaster` of the levels 0.5, 0.8, 0.9 and
        0.95.

    Attributes
    ----------
    forecaster_ : the fitted forecaster

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from coverwell import LSTM, MatchedForecaster, Schedule
    >>> from coverwell.sktime import SktimeForecaster
    >>> index = pd.period_range("2015-01", periods=120, freq="M")
    >>> y = pd.Series(np.sin(np.arange(120) / 2), index=index, name="load")
    >>> short = MatchedForecaster([0.5, 0.9], past=6, network=LSTM(hidden=4), schedule=Schedule(max_rounds=1))
    >>> forecaster = SktimeForecaster(short).fit(y, fh=[1, 2])
    >>> forecaster.predict_interval(coverage=0.9).columns.tolist()
    [('load', 0.9, 'lower'), ('load', 0.9, 'upper')]
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["coverwell"],
        "python_dependencies": "torch",
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:non_contiguous_X": False,
        "capability:categorical_in_X": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": False,
        "capability:update": True,
        "requires-fh-in-fit": True,
    }

    def __init__(self, forecaster: Any = None) -> None:
        self.forecaster = forecaster
        super().__init__()
        if getattr(forecaster, "missing", "error") == "fill":
            self.set_tags(**{"capability:missing_values": True})

    def _fit(self, y: pd.Series, X: pd.DataFrame | None, fh: Any) -> SktimeForecaster:
        chosen = MatchedForecaster(LEVELS) if self.forecaster is None else clone(self.forecaster)
        if not isinstance(chosen, SeriesForecaster):
            raise TypeError(f"forecaster must be one of coverwell, unfitted, got {self.forecaster!r}")
        if pd.api.types.is_integer_dtype(y.index.dtype) and (np.diff(y.index)[:1] > 1).any():
            raise ValueError(f"whole numbers in the index of y must rise by 1, got {y.index}; use a RangeIndex")
        chosen.set_params(horizon=int(self._steps(fh).max()))
        series = _clocked(y)
        self.forecaster_ = chosen.fit(series, None if X is None else _clocked(X, _period_of(series)))
        self.name_ = y.name
        return self

    def _update(self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True) -> SktimeForecaster:
        clock, n_seen = self.forecaster_.history_.clock, len(self.forecaster_.history_)
        y = self._own(y)
        for step, (at, value) in zip(clock.positions(y.index, "y"), y.items(), strict=True):
            if step >= n_seen:
                self.forecaster_.update(float(value), at, covariates=self._rows_from(X, at, int(step)))
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.Series:
        mean = np.asarray(self.forecaster_.predict(self._coming(X)))[self._steps(fh) - 1]
        return pd.Series(mean, index=fh.to_absolute_index(self.cutoff), name=self.name_)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: list[float]) -> pd.DataFrame:
        found = self._distribution(fh, X).quantile(alpha)
        columns = self._get_columns(method="predict_quantiles", alpha=alpha)
        return pd.DataFrame(found, index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _predict_proba(self, fh: Any, X: pd.DataFrame | None, marginal: bool = True) -> Any:
        from coverwell.skpro import QuantileDistribution  # sktime needs skpro for distributions

        found = self._distribution(fh, X)
        columns = self._get_columns(method="predict")
        one_target = replace(found, values=found.values[:, None])
        return QuantileDistribution(one_target, index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _distribution(self, fh: Any, X: pd.DataFrame | None) -> PredictedDistribution:
        levels = self.forecaster_.regressor_.predictor_.levels
        interval = self.forecaster_.predict_interval(levels, covariates=self._coming(X))
        values = np.concatenate([interval.lower[:, ::-1], interval.upper], axis=1)
        return PredictedDistribution(np.unique(central_shares(levels)), values[self._steps(fh) - 1])

    def _steps(self, fh: Any) -> NDArray[np.int64]:
        """The steps ahead, counted from 1."""
        return np.asarray(fh.to_relative(self.cutoff).to_numpy(), dtype=np.int64)

    def _own(self, table: Any) -> Any:
        """A series or table with the kind of stamps that the fit had."""
        clock = self.forecaster_.history_.clock
        return _clocked(table, clock.freq if clock.kind == "periods" else None)

    def _coming(self, X: pd.DataFrame | None) -> pd.DataFrame | None:
        """The rows of X after the present."""
        history = self.forecaster_.history_
        return None if X is None else self._own(X).loc[history.clock.index(len(history), 1)[0] :]

    def _rows_from(self, X: pd.DataFrame | None, at: Any, step: int) -> pd.DataFrame | None:
        """The rows of X from a step on, and then those known before; the last one again for steps without any."""
        if X is None:
            return None
        history, given = self.forecaster_.history_, self._own(X).loc[at:]
        if not np.array_equal(history.clock.positions(given.index, "X"), np.arange(step, step + len(given))):
            raise ValueError(f"X must have a row for every step from {at} on, got {list(given.index)}")
        rows = np.concatenate([given.to_numpy(dtype=np.float64), history.ahead[step + len(given) :]])
        n_missing = max(0, self.forecaster_.windows_.horizon + 1 - len(rows))
        return pd.DataFrame(np.concatenate([rows, *[rows[-1:]] * n_missing]), columns=given.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two small forecasters for sktime's own tests: a matched one, and one around a baseline."""
        from coverwell.baselines import HeteroscedasticRegressor
        from coverwell.forecasting import Forecaster
        from coverwell.networks import MLP
        from coverwell.options import Schedule

        small: dict[str, Any] = {"network": MLP(hidden=4), "device": "cpu", "random_state": 0}
        matched: dict[str, Any] = {"folds": None, "calibration": None, "schedule": Schedule(max_rounds=1)}
        return [
            {"forecaster": MatchedForecaster([0.5, 0.9], past=1, **matched, **small)},
            {"forecaster": Forecaster(HeteroscedasticRegressor([0.5, 0.9], max_epochs=2, **small), past=1)},
        ]


def _clocked(table: Any, freq: str | None = None) -> Any:
    """A series or table by periods, where its stamps have calendar steps of different lengths, such as months."""
    index = table.index
    if not isinstance(index, pd.DatetimeIndex):
        return table
    if freq is None:
        inferred = pd.infer_freq(index) if index.freq is None and len(index) > 2 else None
        step = pd.tseries.frequencies.to_offset(inferred) if inferred else index.freq
        equal = pd.tseries.offsets.Tick | pd.tseries.offsets.Day | pd.tseries.offsets.Week
        return table if step is None or isinstance(step, equal) else table.set_axis(index.to_period())
    return table.set_axis(index.to_period(freq))


def _period_of(table: Any) -> str | None:
    return table.index.freqstr if isinstance(table.index, pd.PeriodIndex) else None
