"""The methods of Table 3, in its order: what each regressor is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sklearn.model_selection import ShuffleSplit

from coverwell.baselines import (
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.experiments.boxes_data import RANDOM_WEIGHTS, TrunkWeights
from coverwell.experiments.protocol import AS_PUBLISHED
from coverwell.networks.resnet import ResNet18
from coverwell.regressor import MatchedRegressor

__all__ = [
    "BASELINE",
    "BOX_METHODS",
    "COVERAGE",
    "EXTRA",
    "OURS",
    "PICTURED",
    "PUBLISHED",
    "QUICK_SIZE",
    "SMALL",
    "STUDY",
    "BoxMethod",
    "boxes_configuration",
]

BASELINE, EXTRA, PUBLISHED, OURS = "paper's baseline", "extra", "as published", "ours"
COVERAGE = 0.95

Settings = Mapping[str, Any]

NETWORK = ResNet18(mirror="boxes")
# What all baselines are told beside their network.
BASELINE_TRAINING: Settings = {"learning_rate": 1e-3, "batch_size": 128, "max_epochs": 60, "patience": 20}
# Paper: it speaks neither of dropout nor of mirror images.
AS_PUBLISHED_RESNET: Settings = {
    **{name: value for name, value in AS_PUBLISHED.items() if name != "network"},
    # Paper: ten epochs a turn; here as many as ours has, six, which after 50 rounds are 300 of each network.
    **{name: ResNet18.usual[name] for name in ("mean_epochs", "interval_epochs")},
    "repeats": 1,
}
# One member, ranks on a fifth of the rows, no mirror images, few epochs: less than a quarter of an hour on two cores.
# The member leaves out a part of its rows, not none: as published, widths start from the spread of y and take long.
SMALL_TRAINING: Settings = {
    "folds": ShuffleSplit(1, test_size=0.2, random_state=0),
    "repeats": 1,
    "calibration": "split",
    "max_rounds": 3,
    "mean_epochs": 5,
    "interval_epochs": 3,
    "batch_size": 32,
}
# Enough to show that everything runs, not what a method can do.
QUICK_SIZE = 32
QUICK_BASELINE: Settings = {"max_epochs": 1}
QUICK_ENSEMBLE: Settings = {**QUICK_BASELINE, "members": 2}
QUICK_ROUND: Settings = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}
QUICK_FOLDS: Settings = {**QUICK_ROUND, "folds": 2}


@dataclass(frozen=True)
class BoxMethod:
    """A way to boxes with intervals.

    Parameters
    ----------
    slug, title : str
        Its name on the command line and in results; its name in tables and figures.
    kind : str
        "paper's baseline", "extra", "as published" or "ours".
    regressor : type
        Made with the coverage, the network, `settings`, `device` and `random_state`.
    network : ResNet18
        Its file of weights and its cache are those that the study is given.
    settings, quick : mapping
        What differs from the regressor's defaults; and what differs further with `--quick`.
    pictured : bool
        Whether its lines hold the boxes that Figure 5 shows.
    by_name : bool
        Whether it is run only where it is named.
    cost : float
        Roughly the time for a picture: by this units of work are ordered, nothing else.
    """

    slug: str
    title: str
    kind: str
    regressor: type[Any]
    network: ResNet18 = NETWORK
    settings: Settings = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    pictured: bool = False
    by_name: bool = False
    cost: float = 1.0

    def build(
        self,
        seed: int | None,
        device: str,
        *,
        weights: TrunkWeights = RANDOM_WEIGHTS,
        features: Path | None = None,
        quick: bool = False,
    ) -> Any:
        """The regressor, not yet fitted."""
        settings = {**self.settings, **(self.quick if quick else {}), "device": device, "random_state": seed}
        return self.regressor(COVERAGE, network=self.network_with(weights, features, quick=quick), **settings)

    def network_with(self, weights: TrunkWeights, features: Path | None, *, quick: bool = False) -> ResNet18:
        """Its network, with this file of weights and this folder of features."""
        network = replace(self.network, weights=weights.path, cache=features)
        return replace(network, size=QUICK_SIZE) if quick else network

    def told(self) -> dict[str, Any]:
        """All settings with their defaults written out, as they are stored beside results."""
        model = self.build(None, "cpu")
        parameters = {name: repr(value) for name, value in model._written_out().items() if name not in DIFFER}
        return {"regressor": type(model).__name__, "network": repr(self.network), "parameters": parameters}


DIFFER = ("coverage", "network", "device", "random_state", "verbose", "warm_start")  # not what a method is told


def _baseline(slug: str, title: str, regressor: type[Any], **more: Any) -> BoxMethod:
    usual: Settings = {"kind": BASELINE, "settings": BASELINE_TRAINING, "quick": QUICK_BASELINE}
    return BoxMethod(slug, title, regressor=regressor, **{**usual, **more})


def _published(slug: str, title: str, **more: Any) -> BoxMethod:
    return BoxMethod(
        slug,
        title,
        PUBLISHED,
        MatchedRegressor,
        network=ResNet18(dropout=0.0, feature_dropout=0.0, mirror=None),
        settings={**AS_PUBLISHED_RESNET, **more},
        quick=QUICK_ROUND,
        cost=5.0,
    )


BOX_METHODS = (
    _baseline("mc-dropout", "MC Dropout", MCDropoutRegressor),
    _baseline("quantiles", "Quantile Estimator", NeuralQuantileRegressor),
    _baseline("hnn", "HNN", HeteroscedasticRegressor),
    _published("sigma-fit-published", "Sigma Fit, as published"),
    _published("iqr-fit-published", "IQR Fit, as published", matching="iqr"),
    BoxMethod("sigma-fit", "Sigma Fit", OURS, MatchedRegressor, quick=QUICK_FOLDS, pictured=True, cost=10.0),
    BoxMethod("iqr-fit", "IQR Fit", OURS, MatchedRegressor, settings={"matching": "iqr"}, quick=QUICK_FOLDS, cost=10.0),
    BoxMethod(
        "sigma-fit-once",
        "Sigma Fit, each picture left out once",
        EXTRA,
        MatchedRegressor,
        settings={"repeats": 1},
        quick=QUICK_FOLDS,
        cost=5.0,
    ),
    _baseline("deep-ensemble", "Deep Ensemble", DeepEnsembleRegressor, kind=EXTRA, quick=QUICK_ENSEMBLE, cost=5.0),
    BoxMethod(
        "small",
        "Sigma Fit, one split-calibrated member",
        EXTRA,
        MatchedRegressor,
        network=ResNet18(mirror=None),
        settings=SMALL_TRAINING,
        quick={**QUICK_ROUND, "calibration_size": 0.5},
        by_name=True,
        pictured=True,
    ),
)
STUDY = tuple(method for method in BOX_METHODS if not method.by_name)
SMALL = tuple(method for method in BOX_METHODS if method.by_name)
PICTURED = tuple(method for method in BOX_METHODS if method.pictured)


def boxes_configuration() -> dict[str, Any]:
    """What every method was told, written out with its defaults."""
    return {method.slug: method.told() for method in BOX_METHODS}
