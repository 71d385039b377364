"""MatchedForecaster: what it is told, and the regressor that learns its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.learning import fitting
from coverwell.forecasting.windows import Windows
from coverwell.matching import Matching
from coverwell.regressor import MatchedRegressor, NetworkChoice

__all__ = ["MatchedForecaster"]

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class MatchedForecaster(SeriesForecaster):
    """The next steps of a series with intervals, from two teams of LSTMs trained in turns.

    Folds are blocks of time: each member leaves one block out, and past + horizon steps on both sides of it.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of coming values that the interval is to contain; several levels give nested intervals from one fit.
    matching : "sigma", "iqr", None or an object with `Matching`'s methods, default="sigma"
    past, horizon, calendar, missing, differences, live, rate, refit_every
        As in `coverwell.forecasting.forecaster.SeriesForecaster`: how a moment of the series becomes a row, and how the
        forecaster follows the present.
    network, interval_network : recipe such as `LSTM(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is an `LSTM`. Rows are flat: the window step by step, then what is known ahead.
    folds : int or None, default=5
        Into how many blocks of time the series is cut; None is the paper's literal training.
    interval_loss, shape, calibration, mean_epochs, interval_epochs, max_rounds, patience, batch_size, learning_rate, \
device, random_state, verbose
        As in `MatchedRegressor`, with other defaults. `calibration` is "cross" or None: rows kept at random for ranks
        would overlap with the windows of others.

    Attributes
    ----------
    regressor_ : MatchedRegressor
    rounds_ : list of Round
    calibrator_, history_, windows_, rate_
        As in `coverwell.forecasting.forecaster.SeriesForecaster`.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import LSTM
    >>> series = np.sin(np.arange(400) / 5) + 0.1 * np.random.default_rng(0).normal(size=400)
    >>> forecaster = MatchedForecaster(0.8, past=8, network=LSTM(hidden=8), max_rounds=2, random_state=0).fit(series)
    >>> lower, upper = forecaster.predict_interval()
    >>> forecaster = forecaster.update(0.5)
    >>> bool(lower[0] < upper[0])
    True
    """

    coverage: float | Sequence[float] | Array = 0.9
    matching: str | Matching | None = "sigma"
    _: KW_ONLY
    network: NetworkChoice = None
    interval_network: NetworkChoice = None
    folds: int | None = 5
    interval_loss: str = "quantile"
    shape: str = "both"
    calibration: str | None = "cross"
    mean_epochs: int = 3
    interval_epochs: int = 3
    max_rounds: int = 15
    patience: int = 3
    batch_size: int | str = "auto"
    learning_rate: float = 4e-3
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def _unfitted(self, windows: Windows, n_rows: int) -> MatchedRegressor:
        passed = set(MatchedRegressor().get_params()) & set(self.get_params(deep=False))
        interval_network = self.interval_network
        settings = {name: getattr(self, name) for name in passed} | {
            "network": fitting(self.network, windows),
            "interval_network": None if interval_network is None else fitting(interval_network, windows),
            "batch_size": _auto_batch_size(n_rows) if self.batch_size == "auto" else self.batch_size,
        }
        return MatchedRegressor(**settings, repeats=1)


def _auto_batch_size(n_rows: int) -> int:
    """Large batches, which cost a GPU no more than small ones, as long as an epoch has five steps."""
    return int(np.clip(n_rows // 5, 16, 512))
