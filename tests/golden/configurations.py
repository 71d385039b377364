"""Small fits whose predictions the golden file records: `python -m tests.golden.configurations` writes it.

Every fit is tiny, on the CPU with one thread. All constructor calls and all fitted attributes are in the first section:
a change of the public API changes that section and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit
from torch import nn

from coverwell import (
    LSTM,
    MLP,
    Forecaster,
    MatchedForecaster,
    MatchedRegressor,
    ResNet18,
    Schedule,
    TableFiles,
    fit_together,
)
from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.calibration import Split
from coverwell.paper.losses import PaperLoss, QuantileLoss
from coverwell.streaming import fit_streamed

Array = NDArray[Any]
Numbers = dict[str, Array]

FOLDER = Path(__file__).parent
# 0.1.0 gave other bits on processors of another maker, which add in another order.
GOLDEN_FILES = {"AuthenticAMD": FOLDER / "golden-amd.json", "GenuineIntel": FOLDER / "golden-intel.json"}
MODEL_FILE = FOLDER / "model-0.1.0.safetensors"
FORECASTER_FILE = FOLDER / "forecaster-0.1.0.safetensors"
N_NEW, N_OUT_OF_FOLD = 8, 12

# The public API ------------------------------------------------------------------------------------------------------

SMALL = MLP(hidden=16, layers=3, dropout=0.1, bins=4)
LINEAR_LAYERS = MLP(hidden=16, layers=5, dropout=0.0, bins=0)  # the paper's network
SMALL_LSTM = LSTM(hidden=4, layers=1)


def schedule(**numbers: Any) -> dict[str, Any]:
    """Epochs, rounds, patience, batch size and learning rate; `scheduled` makes one object of them."""
    return numbers


def scheduled(**options: Any) -> dict[str, Any]:
    """Options of an estimator, with the numbers of its schedule in one object."""
    names = {field.name for field in fields(Schedule)} & options.keys()
    numbers = {name: options.pop(name) for name in names}
    return {**options, "schedule": Schedule(**numbers)}


def paper_loss(**weights: float) -> dict[str, Any]:
    """The paper's interval loss with these weights (Eq. 5)."""
    return {"interval_loss": PaperLoss(**weights)}


def quantile_loss(**weights: float) -> dict[str, Any]:
    """The pinball loss with this steepness."""
    return {"interval_loss": QuantileLoss(**weights)}


def split(size: float) -> dict[str, Any]:
    """Split calibration on this share of the rows."""
    return {"calibration": Split(size)}


CONSTANT = schedule(patience=6, learning_rate=1e-3, growth=1.0)  # rounds of equal length, as in 0.1.0
QUICK = schedule(max_rounds=3, mean_epochs=3, interval_epochs=3) | CONSTANT
ALONE = {"companions": (), "calibration": "cross"}


def matched(coverage: Any = 0.9, matching: Any = "sigma", **options: Any) -> Any:
    """A small MatchedRegressor."""
    usual = {"network": SMALL, "folds": 3, "repeats": 2, "device": "cpu", "random_state": 0}
    return MatchedRegressor(coverage, matching, **scheduled(**usual | QUICK | ALONE | options))


def with_defaults() -> Any:
    """A MatchedRegressor with the networks, folds, members, losses and calibration that were the defaults of 0.1.0."""
    networks = {"network": MLP(hidden=128, dropout=0.1), "interval_network": MLP(hidden=128, dropout=0.2)}
    brief = schedule(max_rounds=2, mean_epochs=10, interval_epochs=10) | CONSTANT
    return MatchedRegressor(
        device="cpu", random_state=0, repeats=5, matching="sigma", **networks, **scheduled(**brief), **ALONE
    )


def with_resnet(*, size: int, mirror: str | None) -> Any:
    """A MatchedRegressor for images, with random weights."""
    network = ResNet18(weights=None, size=size, mirror=mirror)
    brief = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
    return MatchedRegressor(
        0.8, "sigma", network=network, folds=2, repeats=1, device="cpu", random_state=0, schedule=brief
    )


def baseline(kind: type[Any], coverage: Any = 0.9, **options: Any) -> Any:
    """A small baseline."""
    return kind(coverage, **{"network": SMALL, "max_epochs": 20, "device": "cpu", "random_state": 0} | options)


def sampled(kind: type[Any], **options: Any) -> Any:
    """A small baseline whose random network is sampled for predictions."""
    return baseline(kind, n_samples=10, **options)


def matched_forecaster(coverage: Any = 0.8, matching: Any = "sigma", **options: Any) -> Any:
    """A small MatchedForecaster."""
    usual = {"past": 5, "network": SMALL_LSTM, "folds": 2, "device": "cpu", "random_state": 0, "rate": "auto"}
    brief = schedule(max_rounds=2, mean_epochs=2, interval_epochs=2)
    return MatchedForecaster(coverage, matching, **scheduled(**usual | brief | options))


def forecaster_of(regressor: Any, **options: Any) -> Any:
    """A forecaster with this regressor on windows of the past."""
    return Forecaster(regressor, **{"past": 5, "rate": "auto"} | options)


def fit_files(model: Any, folder: str, target: Any, groups: str | None = None) -> Any:
    """Fit on all Parquet files of a folder, part by part."""
    return model.fit(TableFiles(folder), target, groups=groups)


def fit_buffers(model: Any, folder: str, target: str, buffer_rows: int) -> Any:
    """The same with this many rows in each round."""
    return fit_streamed(model, TableFiles(folder), target, buffer_rows=buffer_rows)


def predictions_of_files(model: Any, folder: str) -> Numbers:
    """Predictions and bounds for some rows of all Parquet files of a folder."""
    numbers = predictions_of(model, TableFiles(folder), "files.")
    return {name: values[:: len(values) // N_OUT_OF_FOLD] for name, values in numbers.items()}


def predictions_of(model: Any, X: Any, prefix: str = "", **reading: Any) -> Numbers:
    """Predictions and bounds for new rows."""
    lower, upper = model.predict_interval(X, **reading)
    return {f"{prefix}prediction": model.predict(X), f"{prefix}lower": lower, f"{prefix}upper": upper}


def out_of_fold_of(model: Any, prefix: str = "") -> Numbers:
    """Out-of-fold predictions and bounds of some training rows."""
    outputs = model.out_of_fold_
    arrays = {name: getattr(outputs, name) for name in ("prediction", "lower", "upper")}
    return {f"{prefix}out_of_fold.{name}": array[:: len(array) // N_OUT_OF_FOLD] for name, array in arrays.items()}


def rounds_of(model: Any, prefix: str = "") -> Numbers:
    """What was measured in each round: where training first differs is where these do."""
    names = ("rmse", "coverage", "width", "interval_score", "mean_loss")
    return {f"{prefix}rounds.{name}": np.array([getattr(r, name) for r in model.rounds_]) for name in names}


def forecast_of(forecaster: Any, covariates: Any = None) -> Numbers:
    """The next steps."""
    lower, upper = forecaster.predict_interval(covariates=covariates)
    return {"prediction": np.asarray(forecaster.predict()), "lower": lower, "upper": upper}


def backtest_of(forecaster: Any, series: Any, **covariates: Any) -> Numbers:
    """A period in one call."""
    result = forecaster.backtest(series, **covariates)
    names = ("prediction", "lower", "upper", "static_lower", "static_upper", "factor")
    return {f"backtest.{name}": getattr(result, name) for name in names}


# Data ----------------------------------------------------------------------------------------------------------------


def table(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    """Rows of three features, with noise that grows with the second."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, 10 + 3 * np.sin(X[:, 0]) + X[:, 2] + (0.3 + 0.2 * np.abs(X[:, 1])) * rng.normal(size=n)


def inner_rows(n: int = N_NEW) -> Array:
    """New rows inside the range of the training rows."""
    return np.random.default_rng(100).uniform(-1.8, 1.8, size=(n, 3))


def two_targets(n: int = 120) -> tuple[Array, Array]:
    X, y = table(n)
    second = 0.01 * (X[:, 1] ** 2 - y + np.random.default_rng(1).normal(size=n))
    return X, np.stack([y, second], axis=1)


def mixed_frame(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, text, booleans and dates, with gaps in each but the dates."""
    rng = np.random.default_rng(seed)
    area, town = rng.uniform(30, 90, n), rng.choice(["Bern", "Linz", "Ulm"], n)
    garden, day = rng.random(n) < 0.4, np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    price = 3 * area + 40 * (town == "Bern") + 20 * garden + rng.normal(0, 10, n)
    frame = pd.DataFrame({"area": area, "town": town, "garden": garden, "sold": day})
    frame.loc[rng.random(n) < 0.1, "area"] = np.nan
    frame["town"] = frame["town"].astype(object).where(rng.random(n) >= 0.1, None)
    frame["garden"] = frame["garden"].astype("boolean").mask(rng.random(n) < 0.1)
    return frame, pd.Series(price, name="price")


def boxes_on_noise(n: int, seed: int, side: int = 32) -> tuple[Array, Array]:
    """Images with a bright rectangle, and its box (x, y, width, height) in fractions of the side."""
    rng = np.random.default_rng(seed)
    images, boxes = rng.integers(0, 80, (n, 3, side, side), dtype=np.uint8), np.empty((n, 4))
    for image, box in zip(images, boxes, strict=True):
        width, height = rng.integers(side // 5, side // 2 + 1, 2)
        x, y = rng.integers(0, side - width + 1), rng.integers(0, side - height + 1)
        image[:, y : y + height, x : x + width] = rng.integers(170, 256, (3, 1, 1))
        box[:] = np.array([x, y, width, height]) / side
    return images, boxes


def wave(n: int, seed: int = 0) -> Array:
    return 50 + 5 * np.sin(np.arange(n) / 4) + 0.5 * np.random.default_rng(seed).normal(size=n)


@contextmanager
def parquet_files(*columns: str, n: int = 800) -> Iterator[str]:
    """A folder with two files: two numbers with gaps and a text, and of `house`, `y` and `z` the named columns."""
    rng = np.random.default_rng(3)
    a, b, house = rng.uniform(-2, 2, n), rng.uniform(0, 1, n), rng.integers(0, 60, n)
    y = np.sin(a) + 0.3 * (0.5 + b) * rng.normal(size=n)
    rows = pl.DataFrame(
        {
            "a": a,
            "b": pl.Series(np.where(b > 0.9, np.nan, b)).fill_nan(None),
            "kind": np.where(a + 0.1 * rng.normal(size=n) > 0, "up", "down"),
            "house": house,
            "y": y,
            "z": 5 - y + 0.1 * b,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = rows.select("a", "b", "kind", *columns)
        rows[: n // 2].write_parquet(f"{folder}/1.parquet")
        rows[n // 2 :].write_parquet(f"{folder}/2.parquet")
        yield folder


NEW_PARQUET_ROWS = pl.DataFrame(
    {
        "a": np.linspace(-1.7, 1.8, N_NEW),
        "b": [0.1, None, 0.3, 0.4, 0.5, None, 0.7, 0.8],
        "kind": ["down", "up"] * (N_NEW // 2),
    }
)

# Configurations ------------------------------------------------------------------------------------------------------

CONFIGURATIONS: dict[str, Callable[[], Numbers]] = {}


def configuration(function: Callable[[], Numbers]) -> Callable[[], Numbers]:
    CONFIGURATIONS[function.__name__] = function
    return function


def fitted(model: Any, X: Any, y: Any, new: Any, groups: Any = None, **reading: Any) -> Numbers:
    """Fit a MatchedRegressor; what it gives for new rows, out of fold and round by round."""
    model.fit(X, y, groups=groups)
    numbers = predictions_of(model, new, **reading) | rounds_of(model)
    numbers |= {} if model.folds is None else out_of_fold_of(model)
    return numbers | spread_of(y)


def spread_of(y: Any) -> Numbers:
    """The smallest standard deviation of a target: what absolute tolerances are measured by."""
    return {"spread": np.nanstd(np.asarray(y), axis=0).min(keepdims=True)}


# Models that are fitted on the plain table.
ON_TABLE: dict[str, Callable[[], Any]] = {
    "defaults": with_defaults,
    "sigma": lambda: matched(0.9, "sigma"),
    "iqr": lambda: matched(0.9, "iqr"),
    "unmatched": lambda: matched(0.9, None),
    "literal": lambda: matched(**LITERAL),
    "literal_iqr_levels": lambda: matched([0.5, 0.9], "iqr", **LITERAL),
    "paper_loss_with_folds": lambda: matched(**paper_loss(noise_weight=0.2, sharpness_weight=0.5, steepness=30.0)),
    "two_networks": lambda: matched(interval_network=LINEAR_LAYERS, shape="interval", **quantile_loss(steepness=20.0)),
    "no_calibration": lambda: matched(calibration=None),
    "settles_early": lambda: matched(**RESTLESS),
    "cv_plus_levels": lambda: matched([0.5, 0.8, 0.9], calibration="cv+"),
    "split_without_folds": lambda: matched(0.8, folds=None, **split(0.3)),
    "time_series_split": lambda: matched(folds=TimeSeriesSplit(3), repeats=1),
    "module_network": lambda: matched(network=own_network),
}
LITERAL = {"network": LINEAR_LAYERS, "folds": None, "repeats": "auto", "calibration": None, **paper_loss()}
RESTLESS = schedule(max_rounds=12, mean_epochs=4, interval_epochs=2, patience=1, batch_size=16, learning_rate=0.02)


def own_network(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, n_outputs))


def on_table(make: Callable[[], Any]) -> Numbers:
    return fitted(make(), *table(), inner_rows())


CONFIGURATIONS |= {name: partial(on_table, make) for name, make in ON_TABLE.items()}


@configuration
def cv_plus_groups_two_targets() -> Numbers:
    groups = np.arange(120) % 15
    return fitted(matched(calibration="cv+", repeats=1), *two_targets(), inner_rows(), groups)


@configuration
def split_groups() -> Numbers:
    groups = np.array([f"house {number % 25}" for number in range(160)])
    return fitted(matched(0.8, **split(0.3)), *table(160), inner_rows(), groups)


@configuration
def cross_groups() -> Numbers:
    return fitted(matched(0.8), *table(), inner_rows(), np.arange(120) // 6)


@configuration
def levels_targets_joint() -> Numbers:
    X, y = two_targets()
    model = matched([0.9, 0.5])
    numbers = fitted(model, X, y, inner_rows())
    numbers |= predictions_of(model, inner_rows(), "joint.", joint=True)
    return numbers | predictions_of(model, inner_rows(), "one_level.", coverage=0.5)


@configuration
def split_targets_joint() -> Numbers:
    X, y = two_targets(160)
    model = matched(0.8, "iqr", **split(0.3))
    return fitted(model, X, y, inner_rows()) | predictions_of(model, inner_rows(), "joint.", joint=True)


@configuration
def cv_plus_targets_joint() -> Numbers:
    X, y = two_targets()
    model = matched([0.5, 0.8], calibration="cv+", repeats=1)
    return fitted(model, X, y, inner_rows()) | predictions_of(model, inner_rows(), "joint.", joint=True)


@configuration
def pandas_frame() -> Numbers:
    frame, y = mixed_frame(150, seed=0)
    return fitted(matched(), frame, y, mixed_frame(N_NEW, seed=1)[0])


@configuration
def polars_frame() -> Numbers:
    frame, y = mixed_frame(150, seed=0)
    new = mixed_frame(N_NEW, seed=1)[0]
    return fitted(matched(), pl.from_pandas(frame), pl.Series("price", y.to_numpy()), pl.from_pandas(new))


@configuration
def warm_start() -> Numbers:
    X, y = table(150)
    model = matched(warm_start=True)
    first = fitted(model, X[:120], y[:120], inner_rows())
    second = fitted(model, X, y, inner_rows())
    return second | {f"first.{name}": numbers for name, numbers in first.items()}


@configuration
def together() -> Numbers:
    """Two models as one stack, on tables of different lengths."""
    (X, y), (X_longer, y_longer) = table(100), table(120, seed=5)
    models = [matched(0.9, random_state=0), matched(0.8, random_state=1)]
    fit_together(models, [(X, y, None), (X_longer, y_longer, None)])
    numbers = spread_of(y)
    for name, model in zip(("first.", "second."), models, strict=True):
        numbers |= predictions_of(model, inner_rows(), name) | out_of_fold_of(model, name) | rounds_of(model, name)
    return numbers


# Baselines -----------------------------------------------------------------------------------------------------------


def fitted_baseline(model: Any, y_of: Callable[[], tuple[Array, Array]] = table) -> Numbers:
    X, y = y_of()
    model.fit(X, y)
    return predictions_of(model, inner_rows()) | rounds_of(model) | spread_of(y)


@configuration
def deep_ensemble() -> Numbers:
    model = baseline(DeepEnsembleRegressor, [0.5, 0.9], members=3)
    return fitted_baseline(model) | predictions_of(model, inner_rows(), "without_noise.", noise=False)


@configuration
def deep_ensemble_split_joint() -> Numbers:
    model = baseline(DeepEnsembleRegressor, 0.8, members=2, **split(0.3))
    return fitted_baseline(model, two_targets) | predictions_of(model, inner_rows(), "joint.", joint=True)


@configuration
def mc_dropout() -> Numbers:
    model = sampled(MCDropoutRegressor)
    return fitted_baseline(model) | predictions_of(model, inner_rows(), "without_noise.", noise=False)


@configuration
def concrete_dropout() -> Numbers:
    return fitted_baseline(sampled(ConcreteDropoutRegressor))


@configuration
def bayes_by_backprop() -> Numbers:
    return fitted_baseline(sampled(BayesByBackpropRegressor))


@configuration
def neural_quantile() -> Numbers:
    return fitted_baseline(baseline(NeuralQuantileRegressor, [0.5, 0.8], **split(0.3)))


@configuration
def heteroscedastic() -> Numbers:
    return fitted_baseline(baseline(HeteroscedasticRegressor))


@configuration
def heteroscedastic_frame_groups() -> Numbers:
    frame, y = mixed_frame(150, seed=0)
    model = baseline(HeteroscedasticRegressor).fit(frame, y, groups=np.arange(150) // 5)
    return predictions_of(model, mixed_frame(N_NEW, seed=1)[0]) | rounds_of(model) | spread_of(y)


# Series --------------------------------------------------------------------------------------------------------------


def followed(forecaster: Any, updates: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Numbers:
    """The forecast at the start and after every update."""
    forecasts = [forecast_of(forecaster)]
    for update in updates:
        forecaster.update(**update)
        forecasts.append(forecast_of(forecaster))
    return {name: np.stack([forecast[name] for forecast in forecasts]) for name in forecasts[0]}


@configuration
def forecaster_live() -> Numbers:
    """Two steps ahead by the hour, with covariates of both kinds, gaps, live calibration and a refit on the way."""
    n, n_all = 150, 165
    rng = np.random.default_rng(7)
    hours = pd.date_range("2024-03-28", periods=n_all + 5, freq="h", tz="Europe/Berlin", name="when")
    ahead = pd.DataFrame({"tariff": np.cos(np.arange(n_all + 5) / 4)}, index=hours)
    weather = pd.DataFrame({"wind": rng.normal(size=n_all)}, index=hours[:n_all])
    values = wave(n_all) + ahead["tariff"].to_numpy()[:n_all]
    values[[20, 21, 90]] = np.nan
    series = pd.Series(values, index=hours[:n_all], name="load")
    forecaster = matched_forecaster(
        [0.5, 0.8], horizon=2, calendar=("hour", "weekday"), missing="fill", refit_every=6
    ).fit(series[:n], ahead, weather[:n])
    numbers = backtest_of(forecaster, series, covariates=ahead, past_covariates=weather) | rounds_of(forecaster)
    steps = [step for step in range(n, n + 11) if step != n + 3]  # one hour never comes
    updates = [{"y": values[s], "at": hours[s], "past_covariates": weather[s : s + 1]} for s in steps]
    return numbers | followed(forecaster, updates) | spread_of(values)


@configuration
def forecaster_plain() -> Numbers:
    """One step ahead without labels, IQR Fit, levels instead of differences, no live calibration, a rate of its own."""
    series = wave(150)
    forecaster = matched_forecaster(0.8, "iqr", differences=False, live=False, rate=0.03).fit(series[:130])
    numbers = backtest_of(forecaster, series) | rounds_of(forecaster)
    return numbers | followed(forecaster, [{"y": y} for y in series[130:135]]) | spread_of(series)


@configuration
def forecaster_of_baseline() -> Numbers:
    series = wave(150)
    regressor = baseline(DeepEnsembleRegressor, 0.8, network=SMALL_LSTM, members=2, max_epochs=10)
    forecaster = forecaster_of(regressor, horizon=2, refit_every=4).fit(series[:130])
    return followed(forecaster, [{"y": y} for y in series[130:138]]) | spread_of(series)


@configuration
def forecaster_of_sampled_lstms() -> Numbers:
    series, numbers = wave(120), {}
    for kind in (MCDropoutRegressor, ConcreteDropoutRegressor, BayesByBackpropRegressor):
        network = LSTM(hidden=4, layers=1, dropout=0.1)
        forecaster = forecaster_of(sampled(kind, network=network, max_epochs=10)).fit(series[:115])
        forecasts = followed(forecaster, [{"y": y} for y in series[115:]])
        numbers |= {f"{kind.__name__}.{name}": values for name, values in forecasts.items()}
    return numbers | spread_of(series)


@configuration
def forecaster_of_matched_mlp() -> Numbers:
    series = pd.Series(wave(150), index=pd.period_range("2010-01", periods=150, freq="M"), name="sales")
    regressor = matched(0.8, repeats=1, folds=2)
    forecaster = forecaster_of(regressor, horizon=3, calendar=("month",)).fit(series[:140])
    numbers = backtest_of(forecaster, series) | rounds_of(forecaster)
    return numbers | followed(forecaster, [{"y": y} for y in series[140:145]]) | spread_of(series)


# Images and files ----------------------------------------------------------------------------------------------------


@configuration
def images_with_mirrored_boxes() -> Numbers:
    images, boxes = boxes_on_noise(24, seed=0)
    new = boxes_on_noise(N_NEW, seed=1)[0]
    model = with_resnet(size=32, mirror="boxes")
    return fitted(model, images, boxes, new) | predictions_of(model, new, "joint.", joint=True)


def streamed(model: Any) -> Numbers:
    """What a fit on `parquet_files` gives; its targets have a standard deviation near 1."""
    numbers = predictions_of(model, NEW_PARQUET_ROWS) | out_of_fold_of(model) | rounds_of(model)
    return numbers | {"spread": np.array([1.0])}


@configuration
def streamed_groups() -> Numbers:
    with parquet_files("house", "y") as folder:
        model = fit_files(matched(), folder, "y", groups="house")
        return streamed(model) | predictions_of_files(model, folder)


@configuration
def streamed_buffers() -> Numbers:
    """Fewer rows in a round than there are."""
    with parquet_files("y", n=1600) as folder:
        return streamed(fit_buffers(matched(), folder, "y", buffer_rows=500))


@configuration
def streamed_iqr_levels_targets() -> Numbers:
    with parquet_files("y", "z") as folder:
        model = fit_files(matched([0.5, 0.8], "iqr", **split(0.3)), folder, ["y", "z"])
    return streamed(model) | predictions_of(model, NEW_PARQUET_ROWS, "joint.", joint=True)


# The golden file -----------------------------------------------------------------------------------------------------


def made_with() -> dict[str, str]:
    """What the bits of a training depend on beside the code."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "numpy": np.__version__, "cpu": capability, "processor": processor()}


def processor() -> str:
    """The maker of the processor, where the system tells it as Linux does."""
    known = Path("/proc/cpuinfo")
    found = re.search(r"^vendor_id\s*: (\w+)$", known.read_text(), re.MULTILINE) if known.exists() else None
    return found[1] if found else "unknown"


def run(name: str) -> Numbers:
    """The numbers of one configuration, trained with one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {key: np.asarray(values, dtype=np.float64) for key, values in CONFIGURATIONS[name]().items()}
    finally:
        torch.set_num_threads(n_threads)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the golden file.")
    parser.add_argument("--force", action="store_true", help="overwrite the golden file")
    args, path = parser.parse_args(), GOLDEN_FILES.get(processor())
    if path is None:
        parser.error(f"there is no golden file for this processor ({processor()}); give it one in GOLDEN_FILES")
    if path.exists() and not args.force:
        parser.error(f"{path} is there already; --force overwrites it")
    numbers = {name: {key: values.tolist() for key, values in run(name).items()} for name in CONFIGURATIONS}
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in numbers.items()]
    head = f'"made_with": {json.dumps(made_with())}'
    path.write_text("{\n" + ",\n".join([head, *lines]) + "\n}\n")


if __name__ == "__main__":
    main()
