"""The methods of Table 2, in its order: what each forecaster is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.estimator import IntervalRegressor
from coverwell.experiments.protocol import AS_PUBLISHED
from coverwell.experiments.series_data import CALENDAR
from coverwell.forecasting import Forecaster, MatchedForecaster
from coverwell.forecasting.learning import NETWORK, REFIT, USUAL_RATE
from coverwell.forecasting.live import RATES
from coverwell.networks.lstm import LSTM
from coverwell.regressor import MatchedRegressor

__all__ = [
    "BASELINE",
    "COVERAGE",
    "FIXED_RATE",
    "LINEAR",
    "OURS",
    "PAST",
    "PICTURED",
    "PUBLISHED",
    "REFIT_EVERY",
    "SERIES_METHODS",
    "Linear",
    "Networks",
    "SeriesMethod",
    "series_configuration",
]

LINEAR, BASELINE, PUBLISHED, OURS = "linear", "paper's baseline", "as published", "ours"
COVERAGE = 0.95
PAST = 24
REFIT_EVERY = 336  # a week of half-hours
FIXED_RATE = 0.05  # a second reading of the linear methods, beside the rate that is chosen

Settings = Mapping[str, Any]

# What all baselines are told beside their network.
BASELINE_TRAINING: Settings = {"learning_rate": 4e-3, "batch_size": 512, "max_epochs": 60, "patience": 20}
AS_PUBLISHED_LSTM: Settings = {
    **AS_PUBLISHED,
    "network": LSTM(hidden=128, layers=2, dropout=0.0, shortcut=False),
    "batch_size": 256,
}
# Enough to show that everything runs, not what a method can do.
QUICK_HIDDEN = 8
QUICK_BASELINE: Settings = {"max_epochs": 1}
QUICK_SAMPLES: Settings = {**QUICK_BASELINE, "n_samples": 5}
QUICK_ROUND: Settings = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}
QUICK_OURS: Settings = {**QUICK_ROUND, "folds": 2}
QUICK_REFIT_EVERY = 6500  # once in each series of a quick run


@dataclass(frozen=True)
class Linear:
    """The last value, or an autoregression; `lags` is how many values before it sees, 0 for the last value itself."""

    slug: str
    title: str
    lags: int
    kind: str = LINEAR
    cost: float = 0.1  # roughly the time for a step of the series, in any unit

    def told(self) -> dict[str, Any]:
        """All settings, as they are stored beside results."""
        return {"lags": self.lags, "rates": list(RATES), "fixed_rate": FIXED_RATE, "coverage": COVERAGE}


@dataclass(frozen=True)
class Networks:
    """A forecaster of LSTMs.

    Parameters
    ----------
    slug, title : str
        Its name on the command line and in results; its name in tables and figures.
    kind : str
        "paper's baseline", "as published" or "ours".
    model : type
        `MatchedForecaster`, or a regressor that `Forecaster` wraps.
    network : LSTM, optional
        None is the forecaster's own.
    settings, quick : mapping
        What the model is told; and what differs with `--quick`.
    forecasting : mapping
        What the forecaster is told: how the series is read, and how it follows the present.
    calendar, past_covariates : bool
        What it sees beside the series.
    alone : str, optional
        The method that this one is on a series with nothing measured beside it.
    pictured : bool
        Whether its lines hold an excerpt for Figure 4.
    cost : float
        Roughly the time for a step of the series: by this units of work are ordered, nothing else.
    """

    slug: str
    title: str
    kind: str
    model: type[Any]
    network: LSTM | None = None
    settings: Settings = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    forecasting: Settings = field(default_factory=dict)
    calendar: bool = False
    past_covariates: bool = False
    alone: str | None = None
    pictured: bool = False
    cost: float = 1.0

    def build(self, seed: int | None, device: str, *, quick: bool = False) -> Forecaster | MatchedForecaster:
        """The forecaster, not yet fitted."""
        settings = {**self.settings, **(self.quick if quick else {}), "device": device, "random_state": seed}
        settings["network"] = _tiny(self.network) if quick else self.network
        forecasting = {"past": PAST, "missing": "fill", **self.forecasting}
        if quick and "refit_every" in forecasting:
            forecasting["refit_every"] = QUICK_REFIT_EVERY
        if self.model is MatchedForecaster:
            return MatchedForecaster(COVERAGE, **settings, **forecasting)
        return Forecaster(self.model(COVERAGE, **settings), **forecasting)

    def told(self) -> dict[str, Any]:
        """All settings with their defaults written out, as they are stored beside results."""
        forecaster = self.build(None, "cpu")
        told = {"forecaster": type(forecaster).__name__, "parameters": _parameters(forecaster), "seen": self._seen()}
        if self.model is not MatchedForecaster:
            regressor = forecaster.regressor
            told |= {"regressor": type(regressor).__name__, "regressor_parameters": _parameters(regressor)}
        if self.network is None:
            told["network"] = repr(NETWORK)
        if "refit_every" in self.forecasting:
            told["refit"] = {name: repr(value) for name, value in REFIT.items()}
        return told | {"usual_rate": USUAL_RATE, "rates": list(RATES)}

    def _seen(self) -> list[str]:
        return [*(CALENDAR if self.calendar else ()), *(["past_covariates"] if self.past_covariates else [])]


SeriesMethod = Linear | Networks


def _tiny(network: LSTM | None) -> LSTM:
    chosen = network or NETWORK
    return LSTM(hidden=QUICK_HIDDEN, layers=chosen.layers, dropout=chosen.dropout, shortcut=chosen.shortcut)


def _parameters(model: Any) -> dict[str, str]:
    differ = ("regressor", "device", "random_state", "verbose")
    told = model._written_out() if isinstance(model, IntervalRegressor) else model.get_params(deep=False)
    return {name: repr(value) for name, value in told.items() if name not in differ}


def _baseline(slug: str, title: str, model: type[Any], *, dropout: float, sampled: bool = False) -> Networks:
    return Networks(
        slug=slug,
        title=title,
        kind=BASELINE,
        model=model,
        network=LSTM(hidden=128, layers=2, dropout=dropout),
        settings=BASELINE_TRAINING,
        quick=QUICK_SAMPLES if sampled else QUICK_BASELINE,
        cost=2.0 if sampled else 1.0,
    )


def _published(slug: str, title: str, **more: Any) -> Networks:
    # Paper: it says nothing of changes between steps; the network sees and forecasts the values themselves.
    return Networks(
        slug=slug,
        title=title,
        kind=PUBLISHED,
        model=MatchedRegressor,
        network=AS_PUBLISHED_LSTM["network"],
        settings={name: value for name, value in AS_PUBLISHED_LSTM.items() if name != "network"} | more,
        quick=QUICK_ROUND,
        forecasting={"differences": False},
        cost=8.0,
    )


def _ours(slug: str, title: str, *, matching: str = "sigma", refits: bool = False, **more: Any) -> Networks:
    return Networks(
        slug=slug,
        title=title,
        kind=OURS,
        model=MatchedForecaster,
        settings={"matching": matching},
        quick=QUICK_OURS,
        forecasting={"refit_every": REFIT_EVERY} if refits else {},
        cost=20.0 if refits else 5.0,
        **more,
    )


SERIES_METHODS: tuple[SeriesMethod, ...] = (
    Linear("persistence", "Persistence", lags=0),
    Linear("ar48", "AR(48)", lags=48),
    _baseline("mc-dropout", "MC Dropout", MCDropoutRegressor, dropout=0.5, sampled=True),
    _baseline("concrete-dropout", "Concrete Dropout", ConcreteDropoutRegressor, dropout=0.1, sampled=True),
    _baseline("quantiles", "Quantile Estimator", NeuralQuantileRegressor, dropout=0.1),
    _baseline("bnn", "BNN", BayesByBackpropRegressor, dropout=0.1, sampled=True),
    _baseline("hnn", "HNN", HeteroscedasticRegressor, dropout=0.1),
    _published("sigma-fit-published", "Sigma Fit, as published"),
    _published("iqr-fit-published", "IQR Fit, as published", matching="iqr"),
    _ours("sigma-fit", "Sigma Fit", pictured=True),
    _ours("iqr-fit", "IQR Fit", matching="iqr"),
    _ours("sigma-fit-calendar", "Sigma Fit, calendar", calendar=True),
    _ours(
        "sigma-fit-covariates",
        "Sigma Fit, calendar and covariates",
        calendar=True,
        past_covariates=True,
        alone="sigma-fit-calendar",
    ),
    _ours(
        "sigma-fit-covariates-refit",
        "Sigma Fit, calendar, covariates and refits",
        refits=True,
        calendar=True,
        past_covariates=True,
        pictured=True,
    ),
)


PICTURED = tuple(method for method in SERIES_METHODS if isinstance(method, Networks) and method.pictured)


def series_configuration() -> dict[str, Any]:
    """What every method was told, written out with its defaults: the same for all series."""
    return {method.slug: method.told() for method in SERIES_METHODS}
