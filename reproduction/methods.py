"""The methods of the three comparisons, read from methods.toml, and the one place where their models are built."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sklearn.model_selection import ShuffleSplit

from coverwell import baselines
from coverwell.calibration import Split
from coverwell.estimator import IntervalRegressor
from coverwell.forecasting import Forecaster, MatchedForecaster
from coverwell.forecasting.forecaster import DEFAULT_RATE, NETWORK, REFIT, SCHEDULE
from coverwell.forecasting.live import RATES
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18
from coverwell.paper.losses import PaperLoss
from coverwell.regressor import AS_PUBLISHED, MatchedRegressor, Schedule

Settings = Mapping[str, Any]

LINEAR, BASELINE, PUBLISHED, OURS, EXTRA = "linear", "paper's baseline", "as published", "ours", "extra"
CALENDAR = ("hour", "weekday")
LIVE = {"rate": "auto"}  # chosen on the training part, not blended while it goes on
FIXED_RATE = 0.05  # linear forecasts are calibrated at it too, beside the rate that is chosen
# Of a forecaster that brings its own network, with `--quick`: enough to see that everything runs.
QUICK_FORECASTER: Settings = {
    "network": LSTM(hidden=8, layers=NETWORK.layers, dropout=NETWORK.dropout, shortcut=NETWORK.shortcut),
    **dict.fromkeys(("max_rounds", "mean_epochs", "interval_epochs"), 1),
    "folds": 2,
}


@dataclass(frozen=True)
class Method:
    """A way to intervals: which model, with which settings, and roughly what it costs."""

    slug: str
    title: str
    kind: str
    model: type[Any] | None = None  # None: a linear forecast
    settings: Settings = field(
        default_factory=dict
    )  # what differs from the model's (as published: the paper's) defaults
    quick: Settings = field(default_factory=dict)  # what differs further with --quick
    cost: float = 1.0  # roughly the time of a network for a row: the longest units of work come first
    in_figure: bool = False  # whether its lines hold what Figure 4 or 5 shows
    by_name: bool = False  # whether it runs only where it is named
    # Tables: about how many networks a fit trains side by side, how many trials are one stack on a GPU, which few leave
    # idle, whether each level needs its own fit, and whether `predict_interval(X, noise=False)` has scores of its own.
    members: int = 1
    trials_on_gpu: int = 20
    one_per_level: bool = False
    epistemic: bool = False
    # Series: settings of the `Forecaster` around the model, None if it forecasts by itself; how many values a linear
    # forecast sees, 0 repeating the last one; what is seen beside the series, and the method it is where there is none.
    forecasting: Settings | None = None
    lags: int = 0
    covariates: tuple[str, ...] = ()
    alone: str | None = None

    def build(self, coverage: Any, seed: int | None, device: str, *, quick: bool = False, **more: Any) -> Any:
        """The model, not yet fitted."""
        settings = {**self.settings, **(self.quick if quick else {}), **more, "device": device, "random_state": seed}
        settings = {**(LIVE if self.model is MatchedForecaster else {}), **settings}
        assert self.model is not None, f"{self.slug} has no model"
        model = self.model(coverage, **_arguments(self.model, settings))
        return model if self.forecasting is None else Forecaster(model, **LIVE, **self.forecasting)

    def n_networks(self, n_levels: int) -> int:
        """About how many networks one trial trains side by side."""
        return self.members * (n_levels if self.one_per_level else 1)


def _arguments(model: type[Any], settings: Settings) -> dict[str, Any]:
    """Flat settings as the model takes them: numbers of the training in a `Schedule`, those of ranks in a `Split`."""
    arguments = dict(settings)
    if "calibration_size" in arguments:
        arguments["calibration"] = Split(arguments.pop("calibration_size"))
    if model in _MODELS.values():
        numbers = {name: arguments.pop(name) for name in vars(Schedule()) if name in arguments}
        arguments["schedule"] = replace(arguments.get("schedule", Schedule()), **numbers)
    return arguments


_MODELS = {model.__name__: model for model in (MatchedRegressor, MatchedForecaster)}
_PARTS = {part.__name__: part for part in (MLP, LSTM, ResNet18, ShuffleSplit)}


def _read(slug: str, about: Mapping[str, Any]) -> Method:
    kind, name = about["kind"], about.get("model")
    model = None if name is None else _MODELS.get(name) or getattr(baselines, name)
    settings = {**(AS_PUBLISHED if kind == PUBLISHED else {}), **_objects(about.get("settings", {}))}
    quick = {**(QUICK_FORECASTER if model is MatchedForecaster else {}), **_objects(about.get("quick", {}))}
    read = {"model": model, "settings": settings, "quick": quick, "cost": float(about.get("cost", 1.0))}
    return Method(slug, **{**about, **read, "covariates": tuple(about.get("covariates", ()))})


def _objects(settings: Settings) -> Settings:
    """The settings, with an object for each name and its parameters: {"LSTM": {"hidden": 8}}."""
    return {
        name: _PARTS[next(iter(value))](**next(iter(value.values()))) if isinstance(value, dict) else value
        for name, value in settings.items()
    }


TABLE_METHODS, SERIES_METHODS, BOX_METHODS = (
    tuple(_read(slug, about) for slug, about in methods.items())
    for methods in tomllib.loads(Path(__file__).with_name("methods.toml").read_text()).values()
)


def named(what: str, known: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The known names that are asked for, in their order; case, dashes, underscores and blanks do not matter."""
    spelled = {name.replace(" ", "-"): name for name in known}
    asked = [name.strip().lower().replace(" ", "-").replace("_", "-") for name in names]
    if not asked:
        raise ValueError(f"at least one {what} must be named, got none")
    for name in asked:
        if name not in spelled:
            raise ValueError(f"a {what} must be one of {', '.join(known)}; got {name!r}")
    twice = [spelled[name] for name in dict.fromkeys(asked) if asked.count(name) > 1]
    if twice:
        raise ValueError(f"each {what} must be named once, got {', '.join(twice)} more than once")
    return tuple(name for spelling, name in spelled.items() if spelling in asked)


def title_of(method: str, methods: Sequence[Method]) -> str:
    """The name that readers see; a method that is not known keeps its own."""
    return next((one.title for one in methods if one.slug == method), method)


def ordered(found: Iterable[str], known: Iterable[str]) -> list[str]:
    """The known names in their order, then the unknown ones, sorted."""
    found, known = set(found), list(known)
    return [*[name for name in known if name in found], *sorted(found - set(known))]


# Settings with their defaults, as they are stored beside results ------------------------------------------------------


def table_settings(method: Method) -> dict[str, Any]:
    """All settings of a method of Table 1."""
    model = method.build((0.9,), 0, "cpu")
    training = model.training_for(n_rows=1000)
    networks = [getattr(training, name) for name in ("network", "interval_network") if hasattr(training, name)]
    second = getattr(training, "second", None)
    networks += [] if second is None else [second.network]
    return {
        "regressor": type(model).__name__,
        "parameters": _parameters(model, but=("coverage", "warm_start")),
        "networks": [repr(network) for network in networks],
        "learning_rate": training.settings.learning_rate,
    }


def series_settings(method: Method, coverage: float) -> dict[str, Any]:
    """All settings of a method of Table 2."""
    if method.model is None:
        return {"lags": method.lags, "rates": list(RATES), "fixed_rate": FIXED_RATE, "coverage": coverage}
    forecaster = method.build(coverage, None, "cpu")
    found = {"forecaster": type(forecaster).__name__, "parameters": _parameters(forecaster, but=("regressor",))}
    found["seen"] = list(method.covariates)
    if method.forecasting is None:
        found["network"] = repr(NETWORK)
    else:
        regressor = forecaster.regressor
        found |= {"regressor": type(regressor).__name__, "regressor_parameters": _parameters(regressor)}
    if "refit_every" in method.settings:
        found["refit"] = {name: repr(value) for name, value in {"warm_start": True, **REFIT}.items()}
    return found | {"default_rate": DEFAULT_RATE, "rates": list(RATES)}


def box_settings(method: Method, coverage: float) -> dict[str, Any]:
    """All settings of a method of Table 3."""
    model = method.build(coverage, None, "cpu")
    parameters = _parameters(model, but=("coverage", "network", "warm_start"))
    return {"regressor": type(model).__name__, "network": repr(method.settings["network"]), "parameters": parameters}


def _parameters(model: Any, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Parameters, flat and with numbers for "auto", but for those that are no setting of a method."""
    found = model.resolved_params() if isinstance(model, IntervalRegressor) else model.get_params(deep=False)
    if "schedule" in found:
        found |= vars((found.pop("schedule") or Schedule()).resolved(SCHEDULE))
    if isinstance(model, IntervalRegressor):
        found["calibration_size"] = Split().size
        if isinstance(found["calibration"], Split):
            found |= {"calibration": "split", "calibration_size": found["calibration"].size}
    if isinstance(model, MatchedRegressor):
        found |= vars(PaperLoss())
    left_out = {*but, "device", "random_state", "verbose"}
    return {name: repr(found[name]) for name in sorted(found) if name not in left_out}
