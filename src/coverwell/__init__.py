"""Prediction intervals that hold on new rows, for deep regression models."""

from coverwell._version import __version__
from coverwell.device_memory import NotEnoughMemoryError
from coverwell.estimator import fit_together
from coverwell.export import to_onnx
from coverwell.forecasting import Backtest, FactorBoundWarning, Forecaster, LiveCalibrator, MatchedForecaster
from coverwell.inputs.scaling import ConstantDataWarning, ExtrapolationWarning
from coverwell.intervals import PredictionInterval
from coverwell.matching import IQRFit, Matching, SigmaFit
from coverwell.networks import LSTM, MLP, ResNet18
from coverwell.persistence import ModelFileError, load, save
from coverwell.regressor import MatchedRegressor
from coverwell.streaming import TableFiles
from coverwell.training import NonFiniteLossError

__all__ = [
    "LSTM",
    "MLP",
    "Backtest",
    "ConstantDataWarning",
    "ExtrapolationWarning",
    "FactorBoundWarning",
    "Forecaster",
    "IQRFit",
    "LiveCalibrator",
    "MatchedForecaster",
    "MatchedRegressor",
    "Matching",
    "ModelFileError",
    "NonFiniteLossError",
    "NotEnoughMemoryError",
    "PredictionInterval",
    "ResNet18",
    "SigmaFit",
    "TableFiles",
    "__version__",
    "fit_together",
    "load",
    "save",
    "to_onnx",
]
