"""Forecasts of a time series with intervals that stay calibrated as it goes on."""

from coverwell.forecasting.backtest import Backtest
from coverwell.forecasting.forecaster import Forecaster, MatchedForecaster
from coverwell.forecasting.live import LiveCalibrator

__all__ = ["Backtest", "Forecaster", "LiveCalibrator", "MatchedForecaster"]
