"""Prediction intervals that hold on new rows, for deep regression models."""

from coverwell._version import __version__
from coverwell.estimator import fit_together
from coverwell.inputs.parquet import TableFiles
from coverwell.model_file import load, save
from coverwell.networks import LSTM, MLP, ResNet18
from coverwell.paper.matching import IQRFit, SigmaFit
from coverwell.prediction import PredictionInterval
from coverwell.regressor import MatchedRegressor, Schedule
