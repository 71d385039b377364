"""Seconds of `fit` and `predict_interval` beside another version of coverwell, both on one thread.

The other version is a checkout (`git worktree add --detach ../other 717ee48`); both run with the packages of this
environment. Every measurement has a process of its own, the versions take turns, and the fastest turn of each counts.
CPU seconds, so what other programs take away does not count; a short fit before the clock starts pays for what torch
loads once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
STORED, WRITTEN = HERE / "results" / "versions.json", HERE / "results" / "versions.md"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
N_ROWS, N_NEW, N_COLUMNS, TURNS = 600, 20_000, 10, 2
Case = tuple[Callable[[], Any], Callable[[Any], object], Callable[[Any], object]]  # a model, its fit, its intervals


def schedule(**numbers: Any) -> dict[str, Any]:
    """Training numbers as either version takes them."""
    try:
        from coverwell import Schedule
    except ImportError:  # 0.1.0
        return numbers
    return {"schedule": Schedule(**numbers)}


def table(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, N_COLUMNS))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + (0.3 + 0.2 * np.abs(X[:, 2])) * rng.normal(size=n)


def cases(folder: str) -> dict[str, Callable[[], Case]]:
    """What is measured, by name; nothing is made before its case is called."""
    return {
        "table, default": lambda: _regressor(),
        "table, IQR Fit": lambda: _regressor(matching="iqr"),
        "table, three levels": lambda: _regressor(coverage=[0.5, 0.8, 0.9]),
        "table, cv+": lambda: _regressor(calibration="cv+"),
        "table, data frame": lambda: _frame(),
        "deep ensemble": lambda: _baseline("DeepEnsembleRegressor"),
        "MC Dropout": lambda: _baseline("MCDropoutRegressor"),
        "series, 200 updates": lambda: _series(),
        "Parquet files": lambda: _files(folder),
        "images": lambda: _images(),
    }


def _regressor(rounds: int = 4, **options: Any) -> Case:
    from coverwell import MatchedRegressor

    (X, y), (new, _) = table(N_ROWS), table(N_NEW)
    new = new[:2_000] if options.get("calibration") == "cv+" else new  # it takes all members for every row
    how = {"device": "cpu", "random_state": 0, **schedule(max_rounds=rounds), **options}
    return lambda: MatchedRegressor(**how), lambda m: m.fit(X, y), lambda m: m.predict_interval(new)


def _frame() -> Case:
    import pandas as pd

    make, _, _ = _regressor()
    (X, y), (new, _) = table(N_ROWS), table(N_NEW)

    def frame(values: Any) -> Any:
        columns = {f"x{k}": column for k, column in enumerate(values.T)}
        return pd.DataFrame(
            columns | {"town": np.array(["Bern", "Linz", "Ulm"])[(values[:, 0] > 0) + (values[:, 1] > 0) * 1]}
        )

    rows, new_rows = frame(X), frame(new)
    return make, lambda m: m.fit(rows, y), lambda m: m.predict_interval(new_rows)


def _baseline(name: str) -> Case:
    from coverwell import baselines

    (X, y), (new, _) = table(N_ROWS), table(5_000)
    make = getattr(baselines, name)
    return (
        lambda: make(0.9, max_epochs=60, device="cpu", random_state=0),
        lambda m: m.fit(X, y),
        lambda m: m.predict_interval(new),
    )


def _series() -> Case:
    from coverwell import MatchedForecaster

    y = 50 + 5 * np.sin(np.arange(900) / 4) + np.random.default_rng(0).normal(size=900)
    short = schedule(max_rounds=1, mean_epochs=3, interval_epochs=3)

    def follow(model: Any) -> None:
        for value in y[700:]:
            model.predict_interval()
            model.update(value)

    return lambda: MatchedForecaster(past=24, device="cpu", random_state=0, **short), lambda m: m.fit(y[:700]), follow


def _files(folder: str) -> Case:
    import polars as pl

    from coverwell import MatchedRegressor, TableFiles

    X, y = table(N_NEW)
    rows = pl.DataFrame({f"x{k}": column for k, column in enumerate(X.T)} | {"y": y})
    for part in range(4):
        rows[part::4].write_parquet(f"{folder}/{part}.parquet")
    brief = schedule(max_rounds=1, mean_epochs=2, interval_epochs=2)
    make = lambda: MatchedRegressor(device="cpu", random_state=0, folds=3, repeats=1, **brief)  # noqa: E731
    return make, lambda m: m.fit(TableFiles(folder), "y"), lambda m: m.predict_interval(TableFiles(folder))


def _images() -> Case:
    from coverwell import MatchedRegressor, ResNet18

    rng = np.random.default_rng(0)
    images, boxes = rng.integers(0, 255, (60, 3, 64, 64), dtype=np.uint8), rng.uniform(0.2, 0.6, (60, 4))
    how = {"network": ResNet18(weights=None, size=64), "folds": 2, "repeats": 1, "device": "cpu", "random_state": 0}
    how |= schedule(max_rounds=1, mean_epochs=2, interval_epochs=2)
    return lambda: MatchedRegressor(0.8, **how), lambda m: m.fit(images, boxes), lambda m: m.predict_interval(images)


def measure(name: str) -> dict[str, float]:
    """CPU seconds of one fit and of its intervals, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        make_warm, fit_warm, _ = _regressor(rounds=1)
        fit_warm(make_warm())
        make, fit, predict = cases(folder)[name]()
        model, start = make(), time.process_time()
        fit(model)
        fitted = time.process_time()
        predict(model)
        return {"fit": fitted - start, "predict": time.process_time() - fitted}


def version_in(source: Path) -> str:
    return (source / "src" / "coverwell" / "_version.py").read_text().split('"')[1]


def run(names: list[str], other: Path, turns: int) -> dict[str, Any]:
    """Seconds by case, version and what was done: the fastest turn."""
    found: dict[str, Any] = {}
    for name in names:
        for _ in range(turns):
            for source in (other, HERE.parent):
                call = [sys.executable, str(Path(__file__).resolve()), "--measure", name]
                paths = {"PYTHONPATH": str(source / "src")}
                output = subprocess.run(call, env=os.environ | ONE_THREAD | paths, check=True, capture_output=True)
                for what, seconds in json.loads(output.stdout.splitlines()[-1]).items():
                    found.setdefault(name, {}).setdefault(version_in(source), {}).setdefault(what, []).append(seconds)
        print(name, "is measured", file=sys.stderr)
    return found


def report(stored: dict[str, Any]) -> str:
    """Markdown: seconds of both versions, and their ratio."""
    from machine import place

    old, new = stored["versions"]
    head = f"| case | fit, {old} | fit, {new} | ratio | intervals, {old} | intervals, {new} | ratio |"
    rows = []
    for name, by_version in stored["found"].items():
        cells = []
        for what in ("fit", "predict"):
            before, now = (min(by_version[version][what]) for version in (old, new))
            cells += [f"{before:.2f}", f"{now:.2f}", f"{now / before:.2f}"]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    note = f"CPU seconds on one thread, the fastest of {stored['turns']} turns."
    lines = ["# Fit and intervals beside an earlier version", "", note, "", head, "|---" * 7 + "|", *rows]
    return "\n".join([*lines, "", place(stored["where"]), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="the checkout of the other version")
    parser.add_argument("--quick", action="store_true", help="one turn of two cases; nothing is stored")
    parser.add_argument("--measure", metavar="CASE", help="measure one case in this process, and print its seconds")
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
        return
    if asked.beside is None or not (asked.beside / "src" / "coverwell").is_dir():
        parser.error(f"--beside must be a checkout of coverwell, got {asked.beside}")
    from machine import at_the_end, environment

    where = environment(seed=0)
    names = list(cases(""))[: 2 if asked.quick else None]
    turns = 1 if asked.quick else TURNS
    found = run(names, asked.beside.resolve(), turns)
    versions = [version_in(asked.beside), version_in(HERE.parent)]
    stored = {"versions": versions, "turns": turns, "found": found, "where": at_the_end(where)}
    if not asked.quick:
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
        WRITTEN.write_text(report(stored))
    print(report(stored))


if __name__ == "__main__":
    main()
