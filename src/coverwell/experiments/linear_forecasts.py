"""Linear peers of a forecaster: persistence and autoregression, with the same live calibration around them."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import Estimate
from coverwell.experiments.series_data import Problem
from coverwell.forecasting.backtest import Backtest
from coverwell.forecasting.history import causal_fill
from coverwell.forecasting.live import LiveCalibrator

__all__ = ["autoregression", "calibrator_of", "last_value", "live_backtest"]

Array = NDArray[np.float64]


def last_value(problem: Problem) -> Array:
    """Persistence: the value before as the forecast of every step, (step,); NaN at the first."""
    filled = causal_fill(problem.y)
    return np.concatenate([[np.nan], filled[:-1]])


def autoregression(problem: Problem, lags: int) -> Array:
    """Least squares of each value on the `lags` values before it, learned before the test period; (step,).

    NaN where there are not so many values before. Filled values are inputs, never targets.
    """
    filled, gaps = causal_fill(problem.y), np.isnan(problem.y)
    centre = filled[: problem.start].mean()
    windows = np.lib.stride_tricks.sliding_window_view(filled - centre, lags)[:-1]  # row t is before step t + lags
    rows = np.column_stack([windows, np.ones(len(windows))])
    learned = ~gaps[lags : problem.start]
    target = problem.y[lags : problem.start] - centre
    weights, *_ = np.linalg.lstsq(rows[: problem.start - lags][learned], target[learned], rcond=None)
    return np.concatenate([np.full(lags, np.nan), rows @ weights + centre])


def calibrator_of(problem: Problem, forecast: Array, coverage: float, *, rate: float | str) -> LiveCalibrator:
    """A calibrator that starts from the residuals of the training part."""
    residuals = (problem.y - forecast)[: problem.start]
    spoken = ~np.isnan(forecast[: problem.start])
    return LiveCalibrator.from_residuals(residuals[spoken], coverage, rate=rate)


def live_backtest(problem: Problem, forecast: Array, calibrator: LiveCalibrator) -> Backtest:
    """Forecasts of the test period with intervals that follow the misses, and with the width they started from."""
    test = slice(problem.start, None)
    mean = forecast[test, None]
    estimate = Estimate(mean, np.ones((*mean.shape, 2, 1)))
    static_lower, static_upper = estimate.bounds(calibrator.factor)
    live = copy.deepcopy(calibrator).run(mean, estimate.reach, problem.y[test])
    return Backtest(
        stamps=problem.time[test],
        name=problem.data,
        y=problem.y[test, None],
        prediction=mean,
        lower=live[0],
        upper=live[1],
        static_lower=static_lower,
        static_upper=static_upper,
        factor=live[2],
        levels=(float(np.max(calibrator.coverage)),),
    )
