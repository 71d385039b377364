"""Prediction intervals that hold on new rows, for deep regression models."""

from coverwell._version import __version__
from coverwell.estimator import fit_together
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.paper.matching import IQRFit, SigmaFit
from coverwell.prediction import PredictionInterval
from coverwell.regressor import MatchedRegressor, Schedule
from coverwell.networks import ResNet18
from coverwell.inputs.parquet import TableFiles
from coverwell.model_file import load, save
