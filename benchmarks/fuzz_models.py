"""One small fitted model of every kind, kept as files, and what users do with each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import Ridge
from torch import nn

from coverwell import (
    LSTM,
    MLP,
    Forecaster,
    IntervalAround,
    MatchedClassifier,
    MatchedForecaster,
    MatchedRegressor,
    ResNet18,
    Schedule,
    TableFiles,
    baselines,
    load,
    save,
)
from coverwell.calibration import Split
from coverwell.description import ModelDescription
from coverwell.evaluation import class_outcome_of, outcome_of
from coverwell.model_file import load_predictor
from coverwell.networks.team import LoopTeam

Step = tuple[str, Callable[[], Any]]

RNG = np.random.default_rng(0)
N = 60
NUMBERS = RNG.normal(size=(N, 3))
TARGETS = np.stack([NUMBERS[:, 0] + RNG.normal(size=N), NUMBERS[:, 1] * RNG.normal(size=N)], axis=1)
TABLE = pd.DataFrame(NUMBERS, columns=["rooms", "age", "area"]).assign(
    rooms=np.where(np.arange(N) % 4, NUMBERS[:, 0], np.nan),
    heating=np.array(["gas", "Öl", None])[np.arange(N) % 3],
    garden=np.arange(N) % 2 == 0,
    sold=pd.date_range("2024-01-01", periods=N, freq="7h"),
)
SPECIES = np.array(["crow", "rook", "wren"])
HOURS = pd.date_range("2024-03-25", periods=130, freq="h", tz="Europe/Berlin")
SERIES = 20 + np.sin(np.arange(130) / 3) + 0.2 * RNG.normal(size=130)
IMAGES, BOXES = RNG.random((16, 3, 16, 16)), RNG.uniform(0.05, 0.45, (16, 4))

SMALL: dict[str, Any] = {
    "network": MLP(hidden=4, layers=2, bins=2, waves=1, scaled=True),
    "schedule": Schedule(max_rounds=2, mean_epochs=1, interval_epochs=1),
    "repeats": 1,
    "folds": 2,
    "random_state": 0,
    "device": "cpu",
}
FEW: dict[str, Any] = {"max_epochs": 10, "random_state": 0, "device": "cpu"}
WINDOWS: dict[str, Any] = {"past": 3, "missing": "fill", "network": LSTM(hidden=2, layers=1), "random_state": 0}


@dataclass(frozen=True)
class TinyImages:
    """A network for images that is small enough for thousands of files."""

    size: int = 16
    mirror: str | None = "boxes"
    cache: ClassVar[None] = None
    defaults: ClassVar[dict[str, float]] = {"max_rounds": 1}

    def trunk(self) -> nn.Module:
        return nn.Conv2d(3, 2, 8, stride=8)

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> LoopTeam:
        n = int(np.prod(input_shape))
        return LoopTeam([nn.Sequential(nn.Flatten(), nn.Linear(n, n_outputs)) for _ in range(n_members)], n_outputs)


OWN: dict[str, dict[str, Any]] = {"images": {"network": TinyImages()}}


def regressor(folder: Path) -> Any:
    return MatchedRegressor([0.5, 0.8], hold_for="garden", **SMALL).fit(TABLE, TARGETS[:, 0])


def plain(folder: Path) -> Any:
    return MatchedRegressor(0.8, calibration=Split(0.4), **SMALL).fit(NUMBERS, TARGETS)


def cv_plus(folder: Path) -> Any:
    return MatchedRegressor([0.8, 0.5], calibration="cv+", companions=(), matching="iqr", **SMALL).fit(NUMBERS, TARGETS)


def grades(folder: Path) -> Any:
    repeated = np.concatenate([NUMBERS[:30], NUMBERS[:30]])
    y = np.round(repeated[:, 0])
    return MatchedRegressor(0.8, **SMALL).fit(repeated, y)


def classifier(folder: Path) -> Any:
    wanted = {"ordered": ["crow", "rook", "wren"], "hold_for": "class", "conformity_score": "regularised"}
    return MatchedClassifier([0.5, 0.8], **wanted, **SMALL).fit(TABLE, SPECIES[np.arange(N) % 3])


def two_classes(folder: Path) -> Any:
    return MatchedClassifier(0.8, calibration="split", **SMALL).fit(NUMBERS, NUMBERS[:, 0] > 0)


def forecaster(folder: Path) -> Any:
    model = MatchedForecaster(
        [0.8, 0.5], horizon=2, calendar=("hour",), refit_every=40, folds=2, schedule=Schedule(max_rounds=1), **WINDOWS
    ).fit(pd.Series(SERIES[:120], index=HOURS[:120], name="load"), past_covariates=np.arange(120.0) % 5)
    return model.update(20.0, past_covariates=[1.0])


def around_baseline(folder: Path) -> Any:
    network = LSTM(hidden=2, layers=1, dropout=0.1)
    inner = baselines.MCDropoutRegressor(0.8, n_samples=2, **FEW, network=network)
    return Forecaster(inner, past=3).fit(
        pd.Series(SERIES[:120], index=pd.period_range("1990-01", periods=120, freq="M"))
    )


def around(folder: Path) -> Any:
    return IntervalAround(Ridge(), 0.8, folds=2, random_state=0).fit(NUMBERS, TARGETS[:, 0])


def concrete(folder: Path) -> Any:
    few = {"network": MLP(hidden=4, layers=2, bins=2), "n_samples": 3, "calibration": "split"}
    return baselines.ConcreteDropoutRegressor(0.8, **few, **FEW).fit(NUMBERS, TARGETS)


def bayes(folder: Path) -> Any:
    few = {"network": MLP(hidden=4, layers=2, bins=2), "n_samples": 3}
    return baselines.BayesByBackpropRegressor(0.8, **few, **FEW).fit(TABLE, TARGETS[:, 0])


def temperature(folder: Path) -> Any:
    network = MLP(hidden=4, layers=2, bins=2)
    return baselines.TemperatureScalingClassifier(0.8, network=network, **FEW).fit(NUMBERS, np.arange(N) % 3)


def images(folder: Path) -> Any:
    few = {**SMALL, "network": TinyImages(), "calibration": "cross"}
    return MatchedRegressor(0.5, **few).fit(IMAGES, BOXES)


def photographs(folder: Path) -> Any:
    network = ResNet18(weights=None, size=32)
    return baselines.HeteroscedasticRegressor(0.8, network=network, batch_size=8, **FEW).fit(
        RNG.random((12, 3, 32, 32)), BOXES[:12]
    )


def streamed(folder: Path) -> Any:
    many = np.tile(np.arange(N), 20)
    rows = TABLE.iloc[many].assign(area=RNG.normal(size=len(many)), y=RNG.normal(size=len(many)))
    rows.to_parquet(folder / "rows.parquet", index=False)
    files = TableFiles(folder / "rows.parquet")
    return MatchedRegressor(0.8, **{**SMALL, "repeats": "auto", "folds": 5}).fit(files, "y")


FITS: dict[str, Callable[[Path], Any]] = {
    fit.__name__: fit
    for fit in (
        regressor, plain, cv_plus, grades, classifier, two_classes, forecaster, around_baseline, around, concrete,
        bayes, temperature, images, streamed, photographs,
    )
}  # fmt: skip
IN_NAMED_COLUMNS = ("regressor", "classifier", "bayes", "streamed")


def files_in(folder: Path) -> dict[str, Path]:
    """The file of each kind of model, fitted if there is none yet."""
    paths = {name: folder / f"{name}.safetensors" for name in FITS}
    torch.set_num_threads(1)
    with warnings.catch_warnings(action="ignore"):
        for name, path in paths.items():
            if not path.exists():
                save(FITS[name](folder), path)
    return paths


def rows_for(name: str) -> Any:
    if name in ("images", "photographs"):
        return IMAGES[:2] if name == "images" else RNG.random((2, 3, 32, 32))
    return TABLE if name in IN_NAMED_COLUMNS else NUMBERS


def loaded_and_used(name: str, path: Path, folder: Path) -> Iterator[Step]:
    """All that is done with a file: loaded, described, asked for everything, saved again."""
    models: list[Any] = []
    yield "load", lambda: models.append(load(path, **OWN.get(name, {})))
    yield "load_predictor", lambda: load_predictor(path)
    for model in models:
        yield "repr", lambda: repr(model)
        yield "describe", lambda: description_of(model)
        yield from used(name, model)
        yield "save", lambda: save(model, folder / "again.safetensors")


def description_of(model: Any) -> list[Any]:
    about = ModelDescription(model)
    return [getattr(about, name) for name, one in vars(ModelDescription).items() if isinstance(one, property)]


def used(name: str, model: Any) -> Iterator[Step]:
    if "forecaster" in name or name == "around_baseline":
        yield from used_forecaster(model)
        return
    X = rows_for(name)
    yield "predict", lambda: model.predict(X)
    if hasattr(model, "predict_proba"):
        y = np.asarray(getattr(model, "classes_", SPECIES))[np.arange(len(X)) % 2]
        yield "predict_set", lambda: model.predict_set(X)
        yield "predict_set of other levels", lambda: model.predict_set(X, [0.3, 0.6])
        yield "classified", lambda: model.classified(X)
        yield "evaluate", lambda: class_outcome_of(model, X, y).scores
        if len(model.classes_) == 2:
            yield "predict_probability_interval", lambda: model.predict_probability_interval(X)
    else:
        y = np.zeros((len(X), len(getattr(model, "target_names_", "y"))))
        yield "predict_interval", lambda: model.predict_interval(X)
        yield "predict_interval of other levels", lambda: model.predict_interval(X, [0.3, 0.6])
        yield "joint", lambda: model.predict_interval(X, joint=True)
        yield "predict_quantiles", lambda: model.predict_quantiles(X, [0.01, 0.5])
        yield "predict_distribution", lambda: model.predict_distribution(X).cdf(0.0)
        yield "evaluate", lambda: [view.scores for view in outcome_of(model, X, y).views]
    yield "worst slices", lambda: list(map(str, model.worst_slices_))
    yield "rounds", lambda: str(model.rounds_)
    yield "recalibrate", lambda: model.recalibrate(X)
    yield "recalibrate by targets", lambda: model.recalibrate(X, y)


def used_forecaster(model: Any) -> Iterator[Step]:
    past = {"past_covariates": [1.0]} if isinstance(model, MatchedForecaster) else {}
    yield "predict", model.predict
    yield "predict_interval", model.predict_interval
    yield "static", lambda: model.predict_interval(static=True)
    yield "update", lambda: model.update(20.5, **past)
    yield "gap", lambda: model.update(np.nan, **past)
    yield "predict again", partial(model.predict_interval)
    yield "refit", model.refit


__all__ = ["FITS", "files_in", "loaded_and_used", "rows_for"]
