"""Prediction intervals that hold on new rows, for deep regression models."""

from coverwell._version import __version__
from coverwell.estimator import fit_together
from coverwell.intervals import PredictionInterval
from coverwell.matching import IQRFit, Matching, SigmaFit
from coverwell.networks import MLP
from coverwell.persistence import ModelFileError, load, save
from coverwell.regressor import MatchedRegressor
from coverwell.scaling import ConstantDataWarning, ExtrapolationWarning
from coverwell.training import NonFiniteLossError

__all__ = [
    "MLP",
    "ConstantDataWarning",
    "ExtrapolationWarning",
    "IQRFit",
    "MatchedRegressor",
    "Matching",
    "ModelFileError",
    "NonFiniteLossError",
    "PredictionInterval",
    "SigmaFit",
    "__version__",
    "fit_together",
    "load",
    "save",
]
