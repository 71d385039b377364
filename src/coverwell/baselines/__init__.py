"""The methods that the paper compares with, and deep ensembles: the same verbs as `MatchedRegressor`."""

from coverwell.baselines.bayes_by_backprop import BayesByBackpropRegressor
from coverwell.baselines.concrete_dropout import ConcreteDropoutRegressor
from coverwell.baselines.deep_ensemble import DeepEnsembleRegressor
from coverwell.baselines.heteroscedastic import HeteroscedasticRegressor
from coverwell.baselines.mc_dropout import MCDropoutRegressor
from coverwell.baselines.quantiles import NeuralQuantileRegressor

__all__ = [
    "BayesByBackpropRegressor",
    "ConcreteDropoutRegressor",
    "DeepEnsembleRegressor",
    "HeteroscedasticRegressor",
    "MCDropoutRegressor",
    "NeuralQuantileRegressor",
]
