"""Prediction intervals that hold on new rows, for deep regression models.

Names are imported when they are first used: `import coverwell` alone loads neither torch nor scikit-learn.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from coverwell._version import __version__

if TYPE_CHECKING:
    from coverwell import baselines as baselines
    from coverwell import errors as errors
    from coverwell import metrics as metrics
    from coverwell.around import IntervalAround
    from coverwell.classifier import MatchedClassifier
    from coverwell.estimator import fit_together
    from coverwell.forecasting import Backtest, Forecaster, LiveCalibrator, MatchedForecaster
    from coverwell.inputs.parquet import TableFiles
    from coverwell.model_file import load, save
    from coverwell.monitor import CoverageMonitor
    from coverwell.networks import LSTM, MLP, ResNet18
    from coverwell.onnx import to_onnx
    from coverwell.options import Schedule
    from coverwell.paper.matching import IQRFit, SigmaFit
    from coverwell.prediction import PredictionInterval
    from coverwell.regressor import MatchedRegressor

__all__ = ["LSTM", "MLP", "Backtest", "CoverageMonitor", "Forecaster", "IQRFit", "IntervalAround", "LiveCalibrator"]
__all__ += ["MatchedClassifier", "MatchedForecaster", "MatchedRegressor", "PredictionInterval", "ResNet18", "Schedule"]
__all__ += ["SigmaFit", "TableFiles", "__version__", "fit_together", "load", "save", "to_onnx"]

_NAMES_OF = {
    "around": ("IntervalAround",),
    "classifier": ("MatchedClassifier",),
    "estimator": ("fit_together",),
    "onnx": ("to_onnx",),
    "forecasting": ("Backtest", "Forecaster", "LiveCalibrator", "MatchedForecaster"),
    "prediction": ("PredictionInterval",),
    "paper.matching": ("IQRFit", "SigmaFit"),
    "networks": ("LSTM", "MLP", "ResNet18"),
    "model_file": ("load", "save"),
    "monitor": ("CoverageMonitor",),
    "options": ("Schedule",),
    "regressor": ("MatchedRegressor",),
    "inputs.parquet": ("TableFiles",),
}
_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names}

if not TYPE_CHECKING:  # type checkers see the imports above, and nothing else

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            globals()[name] = getattr(import_module(f"coverwell.{_HOMES[name]}"), name)
            return globals()[name]
        if find_spec(f"coverwell.{name}") is not None:
            return import_module(f"coverwell.{name}")
        raise AttributeError(f"module 'coverwell' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
