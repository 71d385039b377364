"""The regressor behind a forecaster: every use that forecasters make of an interval regressor, and of its inside."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import ConstantDataWarning, ExtrapolationWarning
from coverwell.estimator import IntervalRegressor
from coverwell.forecasting.history import History
from coverwell.forecasting.live import choose_rate
from coverwell.forecasting.windows import TimeFolds, Windows
from coverwell.networks.lstm import LSTM
from coverwell.options import Schedule, check_count
from coverwell.regressor import MatchedRegressor, NetworkChoice
from coverwell.training.device import device_from

Array = NDArray[np.float64]
Steps = NDArray[np.intp]

# Chosen on the first two thirds of each training part (benchmarks/results/forecasting-selection.md), as SCHEDULE was:
# what "auto" stands for in a forecaster's schedule.
NETWORK = LSTM(hidden=128, layers=2, dropout=0.1)
SCHEDULE = {"mean_epochs": 3, "interval_epochs": 3, "max_rounds": 15, "patience": 3, "learning_rate": 4e-3}
# How training goes on when a series has grown: briefly, from where it was. Longer refits were better in the same
# comparison; this lies between its candidates and is taken for what it costs.
REFIT: dict[str, Any] = {"max_rounds": 2, "mean_epochs": 2, "interval_epochs": 2, "learning_rate": 2e-3}
# The rate of live calibration for regressors that keep no out-of-fold predictions on which to choose it.
USUAL_RATE = 0.05
# Blocks of time that are held out whole where a regressor holds out rows to stop its training.
N_BLOCKS = 20


def network_for(network: NetworkChoice, windows: Windows) -> NetworkChoice:
    """The network for these windows: an `LSTM` gets their steps and channels, any other sees flat rows."""
    chosen = NETWORK if network is None else network
    return replace(chosen, steps=windows.n_past, channels=windows.channels) if isinstance(chosen, LSTM) else chosen


def folds_of(regressor: IntervalRegressor, windows: Windows, history: History) -> TimeFolds:
    """The blocks of time that stand for a regressor's folds; one where it has none."""
    if not isinstance(regressor, MatchedRegressor):
        return TimeFolds.of(1, windows, history)
    folds = regressor.folds
    if (calibration := regressor.chosen_calibration.name) not in ("cross", None):
        raise ValueError(
            f"calibration must be 'cross' or None for a series, got {regressor.calibration!r}: rows kept at random for "
            "ranks would overlap with the windows of others"
        )
    if folds is None and calibration == "cross":
        raise ValueError("calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None")
    if folds is not None:
        check_count("folds", folds)
    if folds == 1:
        raise ValueError("folds must be at least 2 blocks of time, or None, got 1")
    return TimeFolds.of(1 if folds is None else int(folds), windows, history)


def learn(regressor: IntervalRegressor, windows: Windows, folds: TimeFolds, history: History) -> None:
    """Fit a regressor on all rows of a series, with blocks of time left out whole."""
    origins = windows.origins(history)
    X, y = windows.rows(history, origins), windows.targets(history, origins)
    # Levels are all that a network without changes sees: bounded, it would not know where a series has gone.
    regressor.bounded_ = windows.differences
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantDataWarning)  # a window's first change is always 0
        if not isinstance(regressor, MatchedRegressor):
            regressor.fit(X, y, groups=np.arange(len(origins)) * N_BLOCKS // len(origins))
        elif regressor.folds is None:
            regressor.fit(X, y)
        else:  # the blocks serve this fit alone: the number that was asked for is kept
            n_folds = regressor.folds
            regressor.set_params(folds=folds.split(origins)).fit(X, y).set_params(folds=n_folds)


def refitted(regressor: IntervalRegressor, windows: Windows, folds: TimeFolds, history: History) -> IntervalRegressor:
    """A copy of the regressor, trained further with these steps; from the start if it cannot go on."""
    fresh = copy.copy(regressor)
    if isinstance(fresh, MatchedRegressor):
        n_members = fresh.predictor_.fitted_teams[0].n_members  # "auto" repeats would change with the rows
        schedule = replace(fresh.schedule or Schedule(), **REFIT)
        fresh.set_params(warm_start=True, schedule=schedule, repeats=n_members // folds.n_folds)
    learn(fresh, windows, folds, history)
    return fresh


def forecast(regressor: IntervalRegressor, windows: Windows, history: History, origins: Steps) -> tuple[Array, Array]:
    """The forecasts made at these origins, in the units of the series.

    Mean (origin, step), and calibrated half-width (origin, step, side, level), levels from the innermost outwards.
    """
    rows = windows.rows(history, origins)
    levels = slice(0, windows.n_past * windows.channels, windows.channels)  # the first channel of every step
    far = regressor.predictor_.inputs.far_outside(rows)[:, levels].any(axis=1)
    if far.any():
        warnings.warn(
            f"{int(far.sum())} of {len(rows)} forecasts see values far outside what was learned; these are treated as "
            "lying on its border. A refit takes them in",
            ExtrapolationWarning,
            stacklevel=4,
        )
    (estimate,) = regressor.predictor_.moved(device_from(regressor.device)).estimates(rows)
    factor = np.asarray(regressor.factor_)  # a single team has factors
    return estimate.mean + windows.anchors(history, origins), estimate.half_width * factor[:, None, :]


def rate_of(regressor: IntervalRegressor, windows: Windows, history: History) -> float:
    """The rate of live calibration, chosen on out-of-fold forecasts in time order."""
    out_of_fold = regressor.out_of_fold_ if isinstance(regressor, MatchedRegressor) else None
    if out_of_fold is None:
        return USUAL_RATE
    left_out = ~np.isnan(out_of_fold.prediction).any(axis=1)
    origins, mean = windows.origins(history)[left_out], out_of_fold.prediction[left_out]
    below, above = mean[..., None] - out_of_fold.lower[left_out], out_of_fold.upper[left_out] - mean[..., None]
    truths = _truths_in_a_row(history.filled, origins, windows.horizon)
    anchored = mean + windows.anchors(history, origins)
    return choose_rate(anchored, np.stack([below, above], axis=-2), truths, regressor.predictor_.levels, start=1.0)


def _truths_in_a_row(values: Array, origins: Steps, horizon: int) -> Array:
    """The value after each origin; NaN after a gap in the origins, where it is not what the rows before were about."""
    truths = values[origins + 1].copy()
    for place in np.flatnonzero(np.diff(origins) > 1):
        truths[place + 1 : place + horizon] = np.nan
    return truths
