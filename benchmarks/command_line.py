"""Speed and memory of `coverwell predict`: a large text file, on one thread, in double and in single precision.

Every command is a process of its own, on one thread of torch and of polars. Seconds are CPU seconds of the whole
process, start and imports included: those of the clock less what other programs take away; the clock's are given
beside them. Both precisions take turns, so that both meet the same load, and the fastest turn counts. Rows per second
leave out the start, which is measured by a file of one row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from machine import at_the_end, environment, place

import coverwell
from coverwell import MLP, MatchedRegressor, Schedule

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src"
SEED = 0
TARGET_SECONDS, TARGET_BYTES = 30.0, 1e9  # of the network of 64 units
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
PRECISIONS: dict[str, tuple[str, ...]] = {"float64": (), "float32": ("--float32",)}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: int = 1_000_000
    features: int = 20
    trained: int = 2_000
    rounds: int = 3
    turns: int = 2
    hidden: int = 64
    default_rows: int = 100_000  # of which the default network is asked; 0 to leave it out

    @property
    def models(self) -> dict[str, MatchedRegressor]:
        """The models that are asked, unfitted."""
        how: dict[str, Any] = {"schedule": Schedule(max_rounds=self.rounds), "random_state": SEED, "device": "cpu"}
        small = MatchedRegressor(network=MLP(hidden=self.hidden), folds=5, repeats=1, **how)
        default = {"the default": MatchedRegressor(**how)} if self.default_rows else {}
        return {f"hidden {self.hidden}, five members": small, **default}


FULL = Sizes()
QUICK = Sizes(rows=200, features=4, trained=40, rounds=1, turns=1, hidden=4, default_rows=0)


def table(n_rows: int, n_features: int, seed: int) -> pl.DataFrame:
    x = np.random.default_rng(seed).uniform(-2, 2, size=(n_rows, n_features)).round(6)
    return pl.DataFrame(x, schema=[f"x{number}" for number in range(n_features)])


def target_of(x: pl.DataFrame) -> pl.Series:
    """Curved in two columns, with noise that a third one widens."""
    a, b, c, *_ = (column.to_numpy() for column in x)
    noise = np.random.default_rng(SEED).normal(size=len(x))
    return pl.Series("y", np.sin(2 * a) + a * b + (0.2 + 0.2 * np.abs(c)) * noise)


# Measuring -----------------------------------------------------------------------------------------------------------


def command_of(*arguments: object) -> dict[str, float]:
    """CPU seconds, seconds by the clock and the most memory of one command, which must succeed."""
    variables = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(SOURCES)}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "coverwell", *map(str, arguments)], env=variables, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    clock = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"coverwell {' '.join(map(str, arguments))} ended with exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {"cpu": used.ru_utime + used.ru_stime, "clock": clock, "bytes": float(used.ru_maxrss * unit)}


def predict_times(sizes: Sizes, folder: Path) -> list[dict[str, Any]]:
    """What each model takes for its rows in both precisions, and by how much these differ."""
    return [
        predict_times_of(name, model, n_rows, sizes, folder)
        for (name, model), n_rows in zip(sizes.models.items(), (sizes.rows, sizes.default_rows), strict=False)
    ]


def predict_times_of(name: str, model: MatchedRegressor, n_rows: int, sizes: Sizes, folder: Path) -> dict[str, Any]:
    x = table(sizes.trained, sizes.features, SEED)
    y = target_of(x)
    file, rows, one_row, out = (folder / name for name in ("model.safetensors", "rows.csv", "one.csv", "out.csv"))
    coverwell.save(model.fit(x, y), file)
    table(n_rows, sizes.features, SEED + 1).write_csv(rows)
    table(1, sizes.features, SEED + 1).write_csv(one_row)
    start = command_of("predict", file, one_row, "--out", out, "--force")["cpu"]
    turns: dict[str, list[dict[str, float]]] = {precision: [] for precision in PRECISIONS}
    for _ in range(sizes.turns):
        for precision, options in PRECISIONS.items():
            out = folder / f"{precision}.csv"
            turns[precision].append(command_of("predict", file, rows, "--out", out, "--force", *options))
    team = model.predictor_.fitted_teams[0].mean_team
    return {
        "model": name,
        "rows": n_rows,
        "network": asdict(team.recipe),
        "members": team.n_members,
        "start": start,
        "ways": {precision: fastest(found, start, n_rows) for precision, found in turns.items()},
        "largest difference": difference(folder / "float64.csv", folder / "float32.csv") / float(y.to_numpy().std()),
    }


def fastest(turns: list[dict[str, float]], start: float, n_rows: int) -> dict[str, Any]:
    best = min(turns, key=lambda turn: turn["cpu"])
    seconds = max(best["cpu"] - start, 1e-9)
    return {**best, "bytes": max(turn["bytes"] for turn in turns), "rows per second": n_rows / seconds, "all": turns}


def difference(one: Path, other: Path) -> float:
    """The largest between two files of predictions and bounds."""
    return float(np.abs(pl.read_csv(one).to_numpy() - pl.read_csv(other).to_numpy()).max())


def measure(sizes: Sizes, scratch: Path | None) -> dict[str, Any]:
    where = environment(packages={"polars": pl.__version__}, seed=SEED)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        found = predict_times(sizes, Path(folder))
    return {
        "environment": at_the_end(where),
        "sizes": asdict(sizes),
        "found": found,
    }


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    sizes, found = results["sizes"], results["found"]
    texts = [
        "# Speed of the command line",
        "`make bench-command-line`. `coverwell predict` on one thread, from a text file to a text file: "
        f"rows of {sizes['features']} features, one target, one level. Seconds are CPU seconds of the whole process, "
        f"next to wall-clock seconds; the fastest of {sizes['turns']} runs counts. Rows per second leave out the "
        "start; memory is the maximum over all runs.",
        "\n".join(predict_table(found)),
        "\n\n".join(predict_lines(found)),
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def predict_table(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| model | networks | rows | precision | seconds | wall clock | rows per second | memory, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in found:
        networks = f"{case['members']} + {case['members']} of {case['network']['hidden']} units"
        for precision, way in case["ways"].items():
            lines.append(
                f"| {case['model']} | {networks} | {case['rows']:,} | {precision} | {way['cpu']:.1f} | "
                f"{way['clock']:.1f} | "
                f"{way['rows per second']:,.0f} | {way['bytes'] / 1e6:,.0f} |"
            )
    return lines


def predict_lines(found: list[dict[str, Any]]) -> list[str]:
    first = found[0]
    lines = [
        f"Target for {first['model']}: below {TARGET_SECONDS:g} s and {TARGET_BYTES / 1e6:,.0f} MB. "
        + "; ".join(f"{precision} {verdict(way)}" for precision, way in first["ways"].items())
        + "."
    ]
    lines += [
        f"{case['model']}: predictions and bounds in float32 differ from those in float64 by at most "
        f"{case['largest difference']:.1e} of the target's standard deviation. The start takes {case['start']:.1f} s."
        for case in found
    ]
    return lines


def verdict(way: dict[str, Any]) -> str:
    return "reached" if way["cpu"] < TARGET_SECONDS and way["bytes"] < TARGET_BYTES else "MISSED"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, seconds: whether everything runs")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--scratch", type=Path, help="folder for the tables, some 400 MB")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = measure(QUICK if asked.quick else FULL, asked.scratch)
    file = asked.out / ("command-line-quick.json" if asked.quick else "command-line.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
