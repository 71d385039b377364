"""Odd tables, targets, options, series and files are learned from; what comes of it is used and saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_inputs as odd
import numpy as np
import pandas as pd
import torch
from fuzz_inputs import chosen
from fuzz_models import FEW, SMALL, WINDOWS, Step
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from coverwell import (
    LSTM,
    MLP,
    IntervalAround,
    MatchedClassifier,
    MatchedForecaster,
    MatchedRegressor,
    Schedule,
    load,
    save,
)
from coverwell import baselines as peers
from coverwell.calibration import Split

TINY = MLP(hidden=4, layers=2, bins=2)
SHORT = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
ANY = None, 0, 1, -1, 2, 2.5, 1e9, float("nan"), "x", "auto", (), [], "forest", ["forest"], True, {"a": 1}, object()
# Only values that a fit of a second can have, or that it refuses.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "calibration": ("local", "cross", "cv+", "split", None, Split(0.5), Split(0.01), "x", 3, Split),
    "matching": ("sigma", "iqr", "balanced", None, "confidence", "x", 3),
    "folds": (2, 3, 1, 0, -1, 2.5, None, "x", 1000, KFold(2), KFold(2, shuffle=True), [([0], [1])]),
    "repeats": (1, 2, 0, -1, 2.5, "x", "auto"),
    "companions": ((), ("forest",), ("x",), [LinearRegression()], [DecisionTreeRegressor(max_depth=1)], "forest", [3]),
    "network": (
        TINY,
        nn.Linear,
        lambda n, m: nn.Linear(n, m + 1),
        lambda n, m: None,
        MLP,
        3,
        "x",
        LSTM(hidden=2),
        Ridge(),
    ),
    "interval_network": (None, TINY, MLP(hidden=2, layers=1, bins=0), nn.Linear, "x"),
    "interval_loss": ("quantile", "paper", "x", 3),
    "shape": ("both", "interval", "x", 3),
    "hold_for": (None, "a", "rooms", 0, 5, -1, ["a", "b"], "class", [], 2.5, "nothing", np.array([0])),
    "schedule": (SHORT, None, 3, "x", Schedule(max_rounds=1, batch_size=1, mean_epochs=1, learning_rate=1e6)),
    "random_state": (0, None, np.random.RandomState(0), -1, "x", 2**40),
    "device": ("cpu", "auto", "moon", 3, "cuda:9"),
    "verbose": (0, 1, "x"),
    "conformity_score": ("probability", "adaptive", "regularised", "x", 3),
    "ordered": (False, True, ["crow", "rook", "wren"], ["x"], 3),
    "members": (1, 2, 0, "x"),
    "validation_size": (0.1, 0.9, 0, 1, "x"),
    "max_epochs": (10, 0, "x"),
    "n_samples": (2, 0, "x"),
    "estimator": (Ridge(), LinearRegression(), DecisionTreeRegressor(max_depth=2), Ridge, 3, "x", None),
    "past": (3, 1, 0, 1000, 2.5, "x"),
    "horizon": (1, 3, 0, 1000, "x"),
    "calendar": ((), ("hour",), ("weekday", "month"), "hour", ("x",), 3),
    "missing": ("fill", "error", "x"),
    "differences": (True, False),
    "rate": ("auto", 0.1, 0, "x"),
    "refit_every": (None, 5, 0, "x"),
    "live": (True, False),
}
BASELINES = [getattr(peers, name) for name in peers.__all__]
COMMAND = (
    ("--coverage", "0.5,0.9"), ("--coverage", "2"), ("--classify",), ("--ordered",), ("--group", "b"),
    ("--weight", "age"), ("--skip-missing",),
    ("--ignore", "a"), ("--calibration", "split"), ("--calibration", "none"), ("--hold-for", "a"),
    ("--companions", "none"), ("--json",), ("--matching", "iqr"), ("--seed", "3"), ("--folds", "2"), ("--streamed",),
)  # fmt: skip


def prepared(folder: Path) -> Callable[[np.random.Generator], Iterator[Step]]:
    torch.set_num_threads(1)

    def case(rng: np.random.Generator) -> Iterator[Step]:
        kind = rng.random()
        if kind < 0.2:
            yield from by_command(rng, folder)
        elif kind < 0.3:
            yield from of_series(rng, folder)
        else:
            yield from of_table(rng, folder)

    return case


def estimator(rng: np.random.Generator) -> Any:
    """One of ours, small, with a few options that may make no sense."""
    kind = rng.random()
    if kind < 0.5:
        model: Any = MatchedRegressor(**SMALL).set_params(schedule=SHORT, network=TINY)
    elif kind < 0.7:
        model = MatchedClassifier(**SMALL).set_params(schedule=SHORT, network=TINY)
    elif kind < 0.8:
        model = IntervalAround(Ridge(), folds=2)
    else:
        model = chosen(rng, BASELINES)(**FEW)
        if "n_samples" in model.get_params():
            model.set_params(n_samples=2)
        model.set_params(network=MLP(hidden=4, layers=2, bins=2, dropout=0.2))
    return changed(rng, model.set_params(coverage=odd.level(rng)))


def changed(rng: np.random.Generator, model: Any) -> Any:
    names = [name for name in model.get_params(deep=False) if name in OPTIONS]
    for name in rng.permutation(names)[: rng.integers(3)]:
        model.set_params(**{str(name): chosen(rng, ANY if rng.random() < 0.1 else OPTIONS[name])})
    return model


def of_table(rng: np.random.Generator, folder: Path) -> Iterator[Step]:
    n = int(chosen(rng, odd.SIZES))
    if rng.random() < 0.5:
        X, y = ordinary(rng, n)
    else:
        X, y = odd.table(rng, n), odd.target(rng, n)
    model, kept = estimator(rng), []
    groups = (
        None if rng.random() < 0.8 else chosen(rng, (odd.column(rng, n), rng.integers(0, 4, n), ["a"], np.zeros(n)))
    )
    weight = (
        None if rng.random() < 0.8 else chosen(rng, (rng.random(n), np.zeros(n), odd.column(rng, n), -np.ones(n), [1]))
    )
    name = type(model).__name__
    yield f"{name}.fit", lambda: kept.append(model.fit(X, y, groups=groups, sample_weight=weight))
    for fitted in kept:
        yield from afterwards(fitted, X, y, folder)


def ordinary(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Rows of a frame or an array without anything that is refused, but for their number or a single value."""
    n = max(n, 12)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n)
    y = chosen(rng, (y, y, np.round(y), y > 0, np.stack([y, -y], axis=1), np.where(y > 0, "crow", "rook")))
    if rng.random() < 0.3:
        X = X[rng.integers(max(1, n // 4), size=n)]
    if rng.random() < 0.5:
        return X, y
    frame = pd.DataFrame(X, columns=["a", "b", "rooms"]).assign(heating=odd.some(("gas", "Öl", None))(rng, n))
    return frame.assign(more=pd.Series(odd.column(rng, n))) if rng.random() < 0.5 else frame, y


def afterwards(fitted: Any, X: Any, y: Any, folder: Path) -> Iterator[Step]:
    name, path, again = type(fitted).__name__, folder / "fuzzed.safetensors", []
    yield f"{name}.predict", lambda: fitted.predict(X)
    if hasattr(fitted, "predict_set"):
        yield f"{name}.predict_set", lambda: fitted.predict_set(X)
    elif hasattr(fitted, "predict_interval"):
        yield f"{name}.predict_interval", lambda: fitted.predict_interval(X)
        yield f"{name}.predict_distribution", lambda: fitted.predict_distribution(X)
    yield f"{name} saved", lambda: save(fitted, path)
    if path.exists():
        own = {"network": fitted.network} if callable(getattr(fitted, "network", None)) else {}
        yield f"{name} loaded", lambda: again.append(load(path, **own))
        path.unlink()
    for loaded in again:
        yield f"{name} predicts the same", lambda: same(fitted.predict(X), loaded.predict(X))


def same(one: Any, other: Any) -> None:
    if not np.array_equal(one, other):
        raise AssertionError("a loaded model predicts something else")


def of_series(rng: np.random.Generator, folder: Path) -> Iterator[Step]:
    n, kept = int(chosen(rng, (0, 1, 5, 40, 80))), []
    model = MatchedForecaster(0.8, folds=2, schedule=SHORT, device="cpu", **WINDOWS)
    model = changed(rng, model.set_params(coverage=odd.level(rng)))
    series = odd.series(rng, n)
    names = [name for name in ("covariates", "past_covariates") if rng.random() < 0.1]
    more = {name: chosen(rng, (odd.numbers(rng, n + 3), odd.frame(rng, n), odd.table(rng, n))) for name in names}
    yield "forecaster.fit", lambda: kept.append(model.fit(series, **more))
    for fitted in kept:
        yield "forecaster.predict", fitted.predict
        yield "forecaster.predict_interval", fitted.predict_interval
        if not more:
            yield "forecaster.update", lambda: fitted.update(1.0)
        yield "forecaster saved", lambda: save(fitted, folder / "forecaster-fuzzed.safetensors")


def by_command(rng: np.random.Generator, folder: Path) -> Iterator[Step]:
    n = int(chosen(rng, odd.SIZES))
    rows = odd.frame(rng, n) if rng.random() < 0.5 else ordinary(rng, n)[0]
    rows = pd.DataFrame(rows)
    if "y" not in rows and rng.random() < 0.9:
        target = odd.column(rng, len(rows)) if rng.random() < 0.5 else rng.normal(size=len(rows))
        rows = rows.assign(y=pd.Series(target, index=rows.index))
    data = odd.file_of_bytes(rng, folder, rows)
    more = [word for place in rng.permutation(len(COMMAND))[: rng.integers(3)] for word in COMMAND[place]]
    wanted = ["--target", "y", "--out", folder / "by-command.safetensors", "--force", "--max-rounds", 1]
    small = [] if "--folds" in more else ["--folds", 2]
    yield "coverwell fit", lambda: odd.command("fit", data, *wanted, *small, *more)
