"""Forecasts of a time series with intervals that stay calibrated as it goes on."""

from coverwell.forecasting.forecaster import Forecaster, MatchedForecaster
from coverwell.forecasting.live import Backtest, LiveCalibrator

__all__ = ["Backtest", "Forecaster", "LiveCalibrator", "MatchedForecaster"]
