"""Forecasts of a time series with intervals that stay calibrated as it goes on."""

from coverwell.forecasting.backtest import Backtest
from coverwell.forecasting.forecaster import Forecaster
from coverwell.forecasting.live import FactorBoundWarning, LiveCalibrator
from coverwell.forecasting.matched import MatchedForecaster

__all__ = ["Backtest", "FactorBoundWarning", "Forecaster", "LiveCalibrator", "MatchedForecaster"]
