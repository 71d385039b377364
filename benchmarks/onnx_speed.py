"""Rows per second of an exported model in onnxruntime, beside the model itself in torch: a table, a series, images.

One thread each, in one process: CPU seconds, the ways take turns, and the fastest turn counts. Both are given arrays
and give the bounds of one level; the model is asked as users ask it, `predict_interval` for tables and images. A
forecaster predicts one moment at a time, so its regressor is asked about rows of windows, by the same steps as in a
backtest. Images go up to 20 at a time: 10,000 would be 6 GB of numbers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from machine import CPU, at_the_end, environment, in_turns, place, threads, three_digits

from coverwell import LSTM, MLP, MatchedForecaster, MatchedRegressor, ResNet18, Schedule, to_onnx

HERE = Path(__file__).parent
SEED = 0
BRIEFLY = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
Ask = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # rows to bounds


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    batches: tuple[int, ...] = (1, 100, 10_000)
    image_batches: tuple[int, ...] = (1, 20)
    turns: int = 5
    least_rows: int = 100  # of a turn: small batches are asked about again and again
    trained: int = 1000
    features: int = 20
    hidden: int = 128
    members: int = 15
    past: int = 24
    lstm: int = 32
    image_size: int = 224
    images: int = 16


FULL = Sizes()
QUICK = Sizes(
    batches=(1, 20),
    image_batches=(1, 2),
    turns=1,
    least_rows=1,
    trained=100,
    features=3,
    hidden=4,
    members=5,
    past=4,
    lstm=4,
    image_size=32,
    images=16,
)


# Models and how both are asked ---------------------------------------------------------------------------------------


def table_case(sizes: Sizes, file: Path) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(sizes.trained, sizes.features))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=sizes.trained)
    network = MLP(hidden=sizes.hidden)
    asked = {"folds": 5, "repeats": sizes.members // 5, "random_state": SEED, "device": "cpu"}
    model = MatchedRegressor(network=network, schedule=Schedule(max_rounds=1), **asked).fit(X, y)
    about = f"table: {sizes.members} + {sizes.members} networks of {sizes.hidden} units, {sizes.features} columns"
    ways = {
        "torch": _of_regressor(model),
        "onnxruntime, float64": _exported(model, file, "float64"),
        "onnxruntime": _exported(model, file, "float32"),
    }
    return _case(about, ways, lambda n: rng.normal(size=(n, sizes.features)), sizes.batches, float(y.std()), sizes)


def series_case(sizes: Sizes, file: Path) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    series = np.sin(np.arange(sizes.trained) / 4) + 0.2 * rng.normal(size=sizes.trained)
    network = LSTM(hidden=sizes.lstm)
    model = MatchedForecaster(past=sizes.past, network=network, folds=5, schedule=BRIEFLY, random_state=SEED).fit(
        series
    )
    about = f"series: 5 + 5 LSTMs of two layers of {sizes.lstm} units, {sizes.past} steps"
    ways = {"torch": _of_forecaster(model), "onnxruntime": _exported(model, file, "float32")}
    return _case(about, ways, lambda n: _windows(rng, n, sizes.past), sizes.batches, float(series.std()), sizes)


def image_case(sizes: Sizes, file: Path, *, weights: str | None) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    size = sizes.image_size
    images = rng.random((sizes.images, 3, size, size), dtype=np.float32)
    y = rng.normal(size=sizes.images)
    network = ResNet18(weights=weights, size=size)
    asked = {"folds": 2, "repeats": 1, "schedule": BRIEFLY, "random_state": SEED}
    model = MatchedRegressor(0.5, network=network, device="cpu", **asked).fit(images, y)
    about = f"images: ResNet-18 at {size} x {size}, 2 + 2 tails"
    ways = {"torch": _of_regressor(model), "onnxruntime": _exported(model, file, "float32")}

    def batch(n: int) -> np.ndarray:
        return rng.random((n, 3, size, size), dtype=np.float32)

    return _case(about, ways, batch, sizes.image_batches, float(y.std()), sizes)


def _windows(rng: np.random.Generator, n: int, past: int) -> np.ndarray:
    return np.sin(rng.uniform(0, 6, (n, 1)) + np.arange(past) / 4) + 0.2 * rng.normal(size=(n, past))


def _of_regressor(model: Any) -> Ask:
    def ask(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = model.predict_interval(X)
        return lower, upper

    return ask


def _of_forecaster(model: Any) -> Ask:
    """The forecaster's own steps, on many moments at once: windows become rows for the regressor, factors widen."""

    def ask(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.stack([windows, np.diff(windows, axis=1, prepend=windows[:, :1])], axis=-1).reshape(len(windows), -1)
        (estimate,) = model.regressor_.predictor_.estimates(rows)
        mean = estimate.mean[:, 0] + windows[:, -1]
        factor = model.regressor_.factor_[0, 0] * model.calibrator_.factor  # of the one step and level
        below, above = factor * estimate.half_width[:, 0, :, 0].T
        return mean - below, mean + above

    return ask


def _exported(model: Any, file: Path, precision: str) -> Ask:
    to_onnx(model, file, precision=precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def ask(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = session.run(["lower", "upper"], {given.name: X})
        return lower[:, 0, 0], upper[:, 0, 0]

    return ask


# Measuring -----------------------------------------------------------------------------------------------------------


def _case(
    about: str,
    ways: dict[str, Ask],
    batch: Callable[[int], np.ndarray],
    batches: tuple[int, ...],
    sd: float,
    sizes: Sizes,
) -> dict[str, Any]:
    found, difference = {}, 0.0
    for n_rows in batches:
        X = batch(n_rows)
        outputs = {name: ask(X) for name, ask in ways.items()}  # also the first call, in which memory is laid out
        for ends in outputs.values():
            apart = [np.abs(end - own).max() for end, own in zip(ends, outputs["torch"], strict=True)]
            difference = max(difference, *map(float, apart))
        found[str(n_rows)] = _rates(ways, X, sizes)
    return {"about": about, "batches": found, "largest difference": difference / sd}


def _rates(ways: dict[str, Ask], X: np.ndarray, sizes: Sizes) -> dict[str, float]:
    n_times = max(1, sizes.least_rows // len(X))

    def again(ask: Ask) -> Callable[[], None]:
        def work() -> None:
            for _ in range(n_times):
                ask(X)

        return work

    times = in_turns({name: again(ask) for name, ask in ways.items()}, CPU, sizes.turns, per_turn=n_times * len(X))
    return {name: 1 / max(way["seconds"], 1e-9) for name, way in times.items()}


def measure(sizes: Sizes, weights: str | None) -> dict[str, Any]:
    known_as = "random" if weights is None else Path(weights).name
    where = environment(packages={"onnxruntime": onnxruntime.__version__}, seed=SEED, weights=known_as)
    with tempfile.TemporaryDirectory() as folder, threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows drawn at random may lie far outside
        file = Path(folder) / "model.onnx"
        cases = (table_case, series_case, partial(image_case, weights=weights))
        found = [case(sizes, file) for case in cases]
    return {"environment": at_the_end(where), "sizes": asdict(sizes), "found": found}


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    texts = [
        "# Speed of exported models",
        "`make bench-onnx`. Rows per second from an array to the bounds of one level, on one thread of a CPU: the "
        "model in torch, and its export in onnxruntime, whose networks use float32 unless the table shows float64. "
        f"CPU seconds; they ran in turns, and the fastest of {results['sizes']['turns']} counts.",
        "\n".join(_table(results["found"])),
        "\n".join(
            f"- {case['about']}: bounds differ from those of the model by at most "
            f"{case['largest difference']:.1e} standard deviations of the target."
            for case in results["found"]
        ),
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def _table(found: list[dict[str, Any]]) -> list[str]:
    lines = ["| model | rows at a time | way | rows per second | against torch |", "|---|---|---|---|---|"]
    for case in found:
        for n_rows, ways in case["batches"].items():
            lines += [
                f"| {case['about']} | {int(n_rows):,} | {name} | {three_digits(rate)} | {rate / ways['torch']:.1f} |"
                for name, rate in ways.items()
            ]
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small networks, seconds: whether everything runs")
    parser.add_argument("--weights", help="file of the trunk's weights; else they are random, which is as fast")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = measure(QUICK if asked.quick else FULL, asked.weights)
    file = asked.out / ("onnx-quick.json" if asked.quick else "onnx.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
