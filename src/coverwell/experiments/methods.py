"""The methods of the comparison, in the order of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.experiments.protocol import AS_PUBLISHED
from coverwell.networks.mlp import MLP
from coverwell.regressor import MatchedRegressor

__all__ = ["METHODS", "Method", "configuration", "methods_from", "named_among", "one_of_each"]

BASELINE, PUBLISHED, OURS, EXTRA = "paper's baseline", "as published", "ours", "extra"
# Enough to show that everything runs, not what a method can do.
A_FEW_EPOCHS = 30
QUICK_ROUNDS: Mapping[str, Any] = {"max_rounds": 3, "mean_epochs": 5, "interval_epochs": 5}
QUICK_EPOCHS: Mapping[str, Any] = {"max_epochs": A_FEW_EPOCHS}
# 0.99 by ranks needs 99 rows; of auto mpg, the smallest table, that is nearly a third of the 313 that train.
SPLIT_RANKS: Mapping[str, Any] = {"calibration": "split", "calibration_size": 0.33}


@dataclass(frozen=True)
class Method:
    """A way to intervals: which regressor, with which settings, and roughly what it costs.

    Parameters
    ----------
    slug, title : str
        Its name on the command line and in results; its name in tables and figures.
    kind : str
        "paper's baseline", "as published", "ours" or "extra".
    regressor : type
        Made with the coverage, `settings`, `device` and `random_state`.
    settings, quick : mapping
        What differs from the regressor's defaults; and what differs further with `--quick`.
    one_per_level : bool
        Whether each level needs a fit of its own; otherwise all levels come from one.
    epistemic : bool
        Whether `predict_interval(X, noise=False)` is a second reading, without the noise of the observations.
    members, epochs : int
    effort : float
        About how many networks one fit trains side by side, how often each sees its rows, and how long that takes
        beside the network of a plain baseline: by these units of work are cut and ordered, nothing else.
    """

    slug: str
    title: str
    kind: str
    regressor: type[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    one_per_level: bool = False
    epistemic: bool = False
    members: int = 1
    epochs: int = 200
    effort: float = 1.0

    def build(self, levels: Sequence[float], seed: int, device: str, *, quick: bool = False) -> list[Any]:
        """Regressors, not yet fitted, that together speak about all levels: one, or one per level in their order."""
        settings = {**self.settings, **(self.quick if quick else {}), "device": device, "random_state": seed}
        if self.one_per_level:
            return [self.regressor(level, **settings) for level in levels]
        return [self.regressor(tuple(levels), **settings)]

    def n_networks(self, n_levels: int) -> int:
        """About how many networks one trial trains side by side."""
        return self.members * (n_levels if self.one_per_level else 1)

    def cost_per_row(self, n_levels: int, *, quick: bool) -> float:
        """Roughly proportional to the time that one trial takes for each row."""
        return self.n_networks(n_levels) * self.effort * (A_FEW_EPOCHS if quick else self.epochs)


METHODS = (
    Method(
        slug="mc-dropout",
        title="MC Dropout",
        kind=BASELINE,
        regressor=MCDropoutRegressor,
        quick={**QUICK_EPOCHS, "network": MLP(hidden=128, layers=3, dropout=0.5)},
        epistemic=True,
        effort=20.0,  # much wider
    ),
    Method(
        slug="concrete-dropout",
        title="Concrete Dropout",
        kind=BASELINE,
        regressor=ConcreteDropoutRegressor,
        quick=QUICK_EPOCHS,
        epistemic=True,
        effort=3.0,
    ),
    Method(
        slug="quantiles",
        title="Quantile Estimator",
        kind=BASELINE,
        regressor=NeuralQuantileRegressor,
        quick=QUICK_EPOCHS,
    ),
    Method(
        slug="bnn",
        title="BNN",
        kind=BASELINE,
        regressor=BayesByBackpropRegressor,
        quick=QUICK_EPOCHS,
        epistemic=True,
        effort=5.0,
    ),
    Method(slug="hnn", title="HNN", kind=BASELINE, regressor=HeteroscedasticRegressor, quick=QUICK_EPOCHS),
    Method(
        slug="sigma-fit-published",
        title="Sigma Fit, as published",
        kind=PUBLISHED,
        regressor=MatchedRegressor,
        settings=AS_PUBLISHED,
        quick=QUICK_ROUNDS,
        one_per_level=True,
        epochs=1000,
        effort=0.4,  # narrower, and no code of the inputs
    ),
    Method(
        slug="iqr-fit-published",
        title="IQR Fit, as published",
        kind=PUBLISHED,
        regressor=MatchedRegressor,
        settings={**AS_PUBLISHED, "matching": "iqr"},
        quick=QUICK_ROUNDS,
        one_per_level=True,
        epochs=1000,
        effort=0.4,  # narrower, and no code of the inputs
    ),
    Method(
        slug="sigma-fit",
        title="Sigma Fit (our default)",
        kind=OURS,
        regressor=MatchedRegressor,
        quick={**QUICK_ROUNDS, "repeats": 1},
        members=20,
        epochs=300,
    ),
    Method(
        slug="iqr-fit",
        title="IQR Fit (ours, 40 rounds)",
        kind=OURS,
        regressor=MatchedRegressor,
        settings={"matching": "iqr", "max_rounds": 40},  # its longer training has not been measured
        quick={**QUICK_ROUNDS, "repeats": 1},
        members=20,
        epochs=300,
    ),
    Method(
        slug="deep-ensemble",
        title="Deep Ensemble",
        kind=EXTRA,
        regressor=DeepEnsembleRegressor,
        quick=QUICK_EPOCHS,
        epistemic=True,
        members=5,
    ),
    Method(
        slug="deep-ensemble-split",
        title="Deep Ensemble + split ranks",
        kind=EXTRA,
        regressor=DeepEnsembleRegressor,
        settings=SPLIT_RANKS,
        quick=QUICK_EPOCHS,
        members=5,
    ),
    Method(
        slug="quantiles-split",
        title="Quantile Estimator + split ranks (CQR)",
        kind=EXTRA,
        regressor=NeuralQuantileRegressor,
        settings=SPLIT_RANKS,
        quick=QUICK_EPOCHS,
    ),
)


def configuration() -> dict[str, Any]:
    """What every method was told, written out with its defaults: the same for all data."""
    return {method.slug: _told(method.build((0.9,), 0, "cpu")[0]) for method in METHODS}


def _told(model: Any) -> dict[str, Any]:
    differ = ("coverage", "device", "random_state", "verbose", "warm_start")  # the last is about a second fit
    training = model._training(n_rows=1000)
    return {
        "regressor": type(model).__name__,
        "parameters": {name: repr(value) for name, value in model._written_out().items() if name not in differ},
        "networks": [repr(network) for network in training.networks],
        "learning_rate": training.learning_rate,
    }


@runtime_checkable
class Named(Protocol):
    """A method of any study: it has a name on the command line."""

    @property
    def slug(self) -> str:
        """That name."""


AnyMethod = TypeVar("AnyMethod", bound=Named)


def methods_from(names: Sequence[str]) -> tuple[Method, ...]:
    """The methods of these names, in the order of the tables; blanks, underscores and upper case are allowed.

    Examples
    --------
    >>> [method.title for method in methods_from(["IQR fit", "sigma_fit"])]
    ['Sigma Fit (our default)', 'IQR Fit (ours, 40 rounds)']
    """
    return named_among(METHODS, names)


def named_among(methods: Sequence[AnyMethod], names: Sequence[str]) -> tuple[AnyMethod, ...]:
    """Those of a study's methods that are named, in the study's order."""
    asked = one_of_each("method", [name.strip().lower().replace(" ", "-").replace("_", "-") for name in names])
    known = [method.slug for method in methods]
    for slug in asked:
        if slug not in known:
            raise ValueError(f"a method must be one of {', '.join(known)}; got {slug!r}")
    return tuple(method for method in methods if method.slug in asked)


def one_of_each(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names, if there are any and none comes twice."""
    if not names:
        raise ValueError(f"at least one {what} must be named, got none")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"each {what} must be named once, got {', '.join(twice)} more than once")
    return tuple(names)
