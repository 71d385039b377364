"""Odd rows, levels, files and updates for models that were fitted on good ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_inputs as odd
import numpy as np
import pandas as pd
from fuzz_inputs import chosen
from fuzz_models import OWN, Step, files_in, rows_for

from coverwell import CoverageMonitor, LiveCalibrator, load

SERIES = "forecaster", "around_baseline"
OPTIONS = (
    ("--coverage", "0.5"), ("--coverage", "0.5,0.9"), ("--coverage", "2"), ("--coverage", "x"), ("--quantiles", "0.1"),
    ("--quantiles", "0,1"), ("--keep", "y"), ("--keep", "nothing"), ("--json",), ("--float32",), ("--device", "moon"),
)  # fmt: skip


def prepared(folder: Path) -> Callable[[np.random.Generator], Iterator[Step]]:
    paths = {name: path for name, path in files_in(folder).items() if name != "photographs"}
    models = {name: load(path, **OWN.get(name, {})) for name, path in paths.items()}
    tables = [name for name in paths if name not in (*SERIES, "images")]

    def case(rng: np.random.Generator) -> Iterator[Step]:
        kind = rng.random()
        if kind < 0.2:
            yield from by_command(rng, paths[chosen(rng, tables)], folder)
        elif kind < 0.4:
            name = chosen(rng, SERIES)
            yield from of_forecaster(rng, paths[name], load(paths[name]))
        elif kind < 0.5:
            yield from of_stream(rng)
        else:
            name = chosen(rng, list(set(models) - set(SERIES)) if rng.random() < 0.1 else tables)
            yield from of_rows(rng, name, models[name], paths[name])

    return case


def rows(rng: np.random.Generator, name: str) -> Any:
    """The rows of the fit with something changed, or something else altogether."""
    known = rows_for(name)
    if name == "images":
        return images(rng, known)
    n = int(chosen(rng, odd.SIZES))
    if rng.random() < 0.3:
        return odd.table(rng, n)
    if isinstance(known, np.ndarray):
        known = known[rng.integers(len(known), size=n)].copy()
        known[rng.random(known.shape) < 0.05] = chosen(rng, (np.nan, np.inf, 1e300, 1e12, -5.0))
        return known if rng.random() < 0.8 else known[:, : int(rng.integers(4))]
    known = known.iloc[rng.integers(len(known), size=n)].copy()
    for _ in range(int(rng.integers(3))):
        column = chosen(rng, list(known.columns)) if len(known.columns) else "a"
        match rng.integers(5):
            case 0:
                known = known.drop(columns=column)
            case 1:
                known = known.rename(columns={column: chosen(rng, odd.NAMES)})
            case 2:
                known.insert(0, "more", odd.column(rng, n), allow_duplicates=True)
            case _:
                values = odd.column(rng, n)
                if known.columns.is_unique:
                    known[column] = values if isinstance(values, np.ndarray | list) else list(values)
    if rng.random() < 0.1:
        known = known[rng.permutation(known.columns)]
    return known


def images(rng: np.random.Generator, known: Any) -> Any:
    wrong = [
        lambda: known,
        lambda: known * 255,
        lambda: known[:, :1],
        lambda: known[0],
        lambda: known.astype(np.uint8),
        lambda: np.where(rng.random(known.shape) < 0.1, np.nan, known),
        lambda: ["missing.png"],
        lambda: list(known),
        lambda: rng.random((2, 3, 1, 40)),
        lambda: odd.table(rng, 3),
    ]
    return chosen(rng, wrong)()


def of_rows(rng: np.random.Generator, name: str, model: Any, path: Path) -> Iterator[Step]:
    X, level = rows(rng, name), odd.level(rng)
    yield f"{name}: predict", lambda: model.predict(X)
    if hasattr(model, "predict_proba"):
        yield f"{name}: predict_set", lambda: model.predict_set(X, level)
    else:
        joint = rng.random() < 0.3
        yield f"{name}: predict_interval", lambda: model.predict_interval(X, level, joint=joint)
        yield f"{name}: predict_quantiles", lambda: model.predict_quantiles(X, level)
    if rng.random() < 0.1:
        own, y = load(path, **OWN.get(name, {})), odd.target(rng, 60)
        yield f"{name}: recalibrate", lambda: own.recalibrate(X, chosen(rng, (None, y)))
        yield f"{name}: afterwards", lambda: own.predict(rows_for(name))


def by_command(rng: np.random.Generator, model: Path, folder: Path) -> Iterator[Step]:
    n = int(chosen(rng, odd.SIZES))
    known = rows(rng, model.stem)
    table = known if isinstance(known, pd.DataFrame) else odd.frame(rng, n)
    if rng.random() < 0.5 and model.stem in ("plain", "around", "two_classes"):
        table = pd.DataFrame(rows_for(model.stem)[:n])
    data, out = (
        odd.file_of_bytes(rng, folder, table),
        folder / chosen(rng, ("out.csv", "out.parquet", "out.tsv", "out")),
    )
    more = [word for option in rng.permutation(len(OPTIONS))[: rng.integers(3)] for word in OPTIONS[option]]
    verb = chosen(rng, ("predict", "predict", "predict", "evaluate", "recalibrate", "watch"))
    if verb == "predict":
        yield "coverwell predict", lambda: odd.command("predict", model, data, "--out", out, "--force", *more)
    elif verb == "recalibrate":
        again = folder / "again.safetensors"
        yield "coverwell recalibrate", lambda: odd.command("recalibrate", model, data, "--out", again, "--force")
    else:
        yield f"coverwell {verb}", lambda: odd.command(verb, model, data)


def of_forecaster(rng: np.random.Generator, path: Path, model: Any) -> Iterator[Step]:
    name = path.stem
    for _ in range(3):
        y = chosen(rng, (20.0, np.nan, np.inf, 1e12, 1e300, None, "20", [20.0], True, 20))
        at = chosen(
            rng, (None, None, None, None, "2024-03-30 01:00", "soon", 5, pd.Timestamp("2030-01-01"), pd.NaT, 2.5)
        )
        past = chosen(rng, ([1.0], [1.0], [np.nan], [1.0, 2.0], None, "x", odd.table(rng, 1)))
        ahead = None if rng.random() < 0.8 else odd.table(rng, 3)
        more = {"past_covariates": past} if name == "forecaster" or rng.random() < 0.1 else {}
        yield f"{name}: update", lambda: model.update(y, at, covariates=ahead, **more)
        yield f"{name}: predict", lambda: model.predict(ahead)
        yield f"{name}: predict_interval", lambda: model.predict_interval(odd.level(rng), static=rng.random() < 0.2)
    if rng.random() < 0.2:
        series, start = odd.series(rng, 60), chosen(rng, (None, 10, "2024-03-25 12:00", -1, "x", 2.5))
        yield f"{name}: backtest", lambda: model.backtest(series, start)


def of_stream(rng: np.random.Generator) -> Iterator[Step]:
    """The calibrator and the monitor, which need no model."""
    kept: list[Any] = []
    if rng.random() < 0.5:
        start = chosen(rng, (1.0, 0, -1, np.nan, [1.0, 2.0], "x", np.ones((2, 1))))
        known = {"rate": chosen(rng, (0.05, 0, -1, np.nan, "auto")), "horizon": chosen(rng, (1, 2, 0, 2.5, "2"))}
        yield "LiveCalibrator", lambda: kept.append(LiveCalibrator(odd.level(rng), start=start, **known))
        for live in kept:
            yield "interval", lambda: live.interval(odd.target(rng, 2), odd.target(rng, 1))
            yield "update", lambda: live.update(odd.target(rng, 1))
            yield "run", lambda: live.run(odd.numbers(rng, 5), odd.numbers(rng, 5), odd.target(rng, 5))
            yield "load_state_dict", lambda: live.load_state_dict({**live.state_dict(), "start": odd.target(rng, 2)})
        return
    state = chosen(rng, (None, "{}", "x", "[]", CoverageMonitor().state, CoverageMonitor().state.replace("0", "-1")))
    yield "CoverageMonitor", lambda: kept.append(CoverageMonitor(odd.level(rng), state=state))
    for monitor in kept:
        n = int(rng.integers(1, 4))
        y, low, high = (odd.target(rng, n) if rng.random() < 0.3 else rng.normal(size=n) for _ in range(3))
        yield "monitor.update", lambda: monitor.update(y, low, high, chosen(rng, (None, None, ["a"] * n, y)))
        yield "monitor.update_inputs", lambda: monitor.update_inputs(odd.target(rng, n))
        yield "monitor.summary", lambda: str(monitor)
