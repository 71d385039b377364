"""Seconds and memory of fits that stream: one sweep over a million rows, the most memory at two sizes.

Every fit is a process of its own on one thread; the files are made before it, in a temporary folder. Seconds of a
sweep are those of as many rounds as it takes until every row was seen once by each of its members, by both networks:
reading, learning and the measures of every round, without the first pass and the ranks. They are CPU seconds on a CPU
and those of the clock beside a GPU, which does the learning while the CPU reads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import speed
import torch
from machine import three_digits
from scale_curves import EPOCH_SECONDS, FEATURES

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.streaming import TableFiles, fit_streamed
from coverwell.streaming.buffers import BUFFER_ROWS
from coverwell.tables import needed_polars

HIDDEN, MEMBERS = 64, 5
ROWS_OF_A_FILE = 500_000
SIZES, QUICK_SIZES = (1_000_000, 10_000_000), (600, 1_200)
MOST_TIMES_THE_MEMORY = 1.5  # target, of the larger size
ROUNDS_OF_THE_LARGER = 8  # memory does not need a whole sweep


def measure(device: torch.device, *, quick: bool) -> list[dict[str, Any]]:
    found = []
    for size in QUICK_SIZES if quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="coverwell-stream-") as folder:
            write(size, Path(folder))
            rounds = rounds_of(size) + 1 if size == SIZES[0] or quick else ROUNDS_OF_THE_LARGER
            arguments = ["--rounds", str(rounds), "--device", str(device)]
            found.append(speed.run([sys.executable, __file__, str(size), folder, *arguments]))
    return found


def rounds_of(size: int) -> int:
    """How many rounds see every row once."""
    return -(-size // BUFFER_ROWS)


def write(size: int, folder: Path) -> None:
    """Files of a table of so many rows."""
    polars = needed_polars()
    for number, first in enumerate(range(0, size, ROWS_OF_A_FILE)):
        X, y = random_rows(min(ROWS_OF_A_FILE, size - first), seed=number)
        columns = {f"x{place}": X[:, place] for place in range(FEATURES)}
        polars.DataFrame({**columns, "y": y}).write_parquet(folder / f"part-{number:04}.parquet")


def random_rows(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As `speed.random_table`, each file with a draw of its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, FEATURES)).astype(np.float32)
    return X, X[:, 0] + np.sin(X[:, 1]) + (0.5 + 0.5 * (X[:, 2] > 0)) * rng.normal(size=n_rows)


def fit(size: int, folder: Path, *, rounds: int, device: str) -> dict[str, Any]:
    """Seconds and the most memory of one streamed fit, which has this process to itself."""
    files = TableFiles(folder)
    network = MLP(hidden=HIDDEN, bins=0)
    schedule = Schedule(max_rounds=rounds, patience=rounds)
    model = MatchedRegressor(network=network, repeats=1, schedule=schedule, device=device, random_state=0)
    before, cpu, clock = speed.peak_megabytes(), time.process_time(), time.perf_counter()
    ends: list[tuple[float, float]] = []
    fit_streamed(model, files, "y", on_round=lambda _: ends.append((time.process_time(), time.perf_counter())))
    n_rounds = min(rounds_of(size), len(ends) - 1)  # after the first, before which comes the first pass
    return {
        "rows": size,
        "rounds": len(ends),
        "rounds of a sweep": rounds_of(size),
        "members": model.predictor_.fitted_teams[0].n_members,
        "CPU seconds": time.process_time() - cpu,
        "clock seconds": time.perf_counter() - clock,
        "CPU seconds of a sweep": (ends[n_rounds][0] - ends[0][0]) * rounds_of(size) / n_rounds,
        "clock seconds of a sweep": (ends[n_rounds][1] - ends[0][1]) * rounds_of(size) / n_rounds,
        "peak megabytes": speed.peak_megabytes(),
        "megabytes before": before,
        "megabytes on the GPU": torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None,
        "megabytes of files": sum(path.stat().st_size for path in files.paths) / 2**20,
    }


def lines(found: list[dict[str, Any]], device: str) -> str:
    first, on_gpu = found[0], device == "cuda"
    seconds = "clock seconds" if on_gpu else "CPU seconds"
    text = [
        "### Fits that stream",
        "",
        f"{first['members']} members of hidden {HIDDEN} without encodings, {FEATURES} features, Parquet files, one "
        "thread. A sweep shows every row once to each of its members, for both networks.",
        "",
        f"| rows | MB of files | rounds | {seconds} of the fit | of one sweep | peak MB | MB before the fit |"
        + (" MB on the GPU |" if on_gpu else ""),
        "|" + "---|" * (8 if on_gpu else 7),
    ]
    for one in found:
        text.append(
            f"| {one['rows']:,} | {one['megabytes of files']:,.0f} | {one['rounds']} "
            f"| {three_digits(one[seconds])} | {three_digits(one[f'{seconds} of a sweep'])} "
            f"| {one['peak megabytes']:,.0f} | {one['megabytes before']:,.0f} |"
            + (f" {one['megabytes on the GPU']:,.0f} |" if on_gpu else "")
        )
    return "\n".join(text) + ("" if on_gpu else verdicts(first, found[-1]))


def verdicts(first: dict[str, Any], last: dict[str, Any]) -> str:
    """Seconds of the smaller fit and memory of the larger one beside their targets, which are those of a CPU."""
    times = last["peak megabytes"] / first["peak megabytes"]
    fast, small = first["CPU seconds of a sweep"] <= EPOCH_SECONDS, times <= MOST_TIMES_THE_MEMORY
    return (
        f"\n\nTarget for one sweep over {first['rows']:,} rows {EPOCH_SECONDS:g} s: {'reached' if fast else 'MISSED'}. "
        f"{last['rows']:,} rows take {times:.2f} times the memory of {first['rows']:,}, target "
        f"{MOST_TIMES_THE_MEMORY:g}: {'reached' if small else 'MISSED'}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="One fit on the files of a folder; its result as a line of JSON.")
    parser.add_argument("size", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(fit(asked.size, asked.folder, rounds=asked.rounds, device=asked.device)))


if __name__ == "__main__":
    main()
