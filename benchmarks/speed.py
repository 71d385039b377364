"""Seconds per member beside UQ360, and time and memory against the number of rows; all on one thread.

UQ360's AuxiliaryIntervalPredictor runs in an environment of its own, made by this command. Both train five linear
layers of width 64 with batches of 64 for 10 rounds of 10 + 10 epochs, and every member sees the same number of rows.
The sizes and the white wine fit run in a process each, so that the peak of memory is theirs alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coverwell
from coverwell import MLP, MatchedRegressor, datasets
from coverwell.experiments import random_split

HERE = Path(__file__).parent
PEER_ENVIRONMENT = HERE.parent / ".venv-uq360"
# UQ360 is installed without its dependencies; importing this algorithm needs only these.
PEER_NEEDS = ("numpy", "scipy")
SETTINGS = {"hidden": 64, "layers": 5, "batch_size": 64, "rounds": 10, "epochs": 10}
ROWS_OF_A_MEMBER = 400
MEMBERS = {
    1: {"folds": None, "repeats": 1, "calibration": None},
    5: {"folds": 5, "repeats": 1},
    25: {"folds": 5, "repeats": 5},
}
SIZES = (1_000, 10_000, 100_000)
SIZE_ROUNDS = 2


def peer_python() -> Path:
    """The interpreter of UQ360's environment, which is made on the first call."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    done = PEER_ENVIRONMENT / ".installed"
    if not done.exists():
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        lock = (HERE.parent / "requirements.lock").read_text().split()
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_ENVIRONMENT)], check=True)
        subprocess.run([*pip, next(line for line in lock if line.startswith("torch=="))], check=True)
        subprocess.run([*pip, *PEER_NEEDS], check=True)
        subprocess.run([*pip, "--no-deps", "uq360"], check=True)
        done.touch()
    return python


def boston_like(n_rows: int) -> tuple[np.ndarray, np.ndarray, str]:
    """So many rows of boston, scaled, or a random table of its size where the file is not to be had."""
    try:
        data = datasets.load("boston")
        X, y, what = data.X, data.y, "boston"
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        X, what = rng.normal(size=(506, 13)), "random table of boston's size"
        y = X @ rng.normal(size=13) + rng.normal(size=506)
    return (X[:n_rows] - X.mean(axis=0)) / X.std(axis=0), (y[:n_rows] - y.min()) / np.ptp(y), what


def peer_seconds(repeats: int) -> list[float]:
    """Seconds of each of some fits of one UQ360 model."""
    X, y, _ = boston_like(ROWS_OF_A_MEMBER)
    table = PEER_ENVIRONMENT / "table.npz"
    python = peer_python()
    np.savez(table, X=X, y=y)
    command = [str(python), str(HERE / "uq360_runner.py"), str(table), json.dumps({**SETTINGS, "repeats": repeats})]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout.splitlines()[-1])["seconds"])


def own_seconds(n_members: int, repeats: int) -> list[float]:
    """Seconds of each of some whole fits of ours, every member training on as many rows as UQ360's model."""
    n_rows = ROWS_OF_A_MEMBER if n_members == 1 else ROWS_OF_A_MEMBER * 5 // 4
    X, y, _ = boston_like(n_rows)
    seconds = []
    for seed in range(repeats):
        model = MatchedRegressor(
            0.9,
            network=MLP(hidden=SETTINGS["hidden"], layers=SETTINGS["layers"], dropout=0.0, bins=0),
            batch_size=SETTINGS["batch_size"],
            max_rounds=SETTINGS["rounds"],
            patience=SETTINGS["rounds"],
            mean_epochs=SETTINGS["epochs"],
            interval_epochs=SETTINGS["epochs"],
            device="cpu",
            random_state=seed,
            **MEMBERS[n_members],
        )
        started = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - started)
    return seconds


def beside_peer(repeats: int) -> dict[str, Any]:
    """Ours and UQ360's in turns, so that both meet the same load; the fastest fit of each counts."""
    times: dict[str, list[float]] = {"UQ360": [], **{str(n): [] for n in MEMBERS}}
    for _ in range(repeats):
        times["UQ360"] += peer_seconds(1)
        for n in MEMBERS:
            times[str(n)] += own_seconds(n, 1)
    peer = min(times["UQ360"])
    ours = {str(n): min(times[str(n)]) / n for n in MEMBERS}
    return {
        "data": boston_like(1)[2],
        "rows of a member": ROWS_OF_A_MEMBER,
        "settings": SETTINGS,
        "seconds": times,
        "UQ360, one model": peer,
        "ours, per member": ours,
        "times faster": {n: peer / seconds for n, seconds in ours.items()},
    }


def one_size(n_rows: int) -> dict[str, Any]:
    """Time and peak memory of a default fit with few rounds on so many rows of 20 features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 20))
    y = X[:, 0] + np.sin(X[:, 1]) + (0.5 + 0.5 * (X[:, 2] > 0)) * rng.normal(size=n_rows)
    before = _peak_megabytes()
    started = time.perf_counter()
    model = MatchedRegressor(0.9, repeats=2, max_rounds=SIZE_ROUNDS, device="cpu", random_state=0).fit(X, y)
    seconds = time.perf_counter() - started
    return {
        "rows": n_rows,
        "rounds": len(model.rounds_),
        "seconds": seconds,
        "microseconds per member and row seen": 1e6
        * seconds
        / (10 * len(model.rounds_) * 20 * min(0.8 * n_rows, 20_000)),
        "peak megabytes": _peak_megabytes(),
        "megabytes before": before,
    }


def white_wine() -> dict[str, Any]:
    """Time of the default fit on the training rows of split 0."""
    data = datasets.load("white wine")
    train, _ = random_split(len(data.y), 0)
    started = time.perf_counter()
    model = MatchedRegressor(0.9, device="cpu", random_state=0).fit(data.X[train], data.y[train])
    return {
        "rows": len(train),
        "rounds": len(model.rounds_),
        "members": model.ensembles_[0].mean_team.n_members,
        "seconds": time.perf_counter() - started,
    }


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_own_process(what: str) -> dict[str, Any]:
    """The result of `--only what`, from a fresh process."""
    command = [sys.executable, __file__, "--only", what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(results: dict[str, Any]) -> str:
    peer, sizes = results["beside UQ360"], results["sizes"]
    targets = {"1": None, "5": 5.0, "25": 10.0}
    text = [
        "# Speed",
        "",
        f"`make bench-speed` on one thread: {results['cpu']}, torch {results['versions']['torch']}.",
        "",
        f"## Beside UQ360's AuxiliaryIntervalPredictor ({peer['data']}, {peer['rows of a member']} rows a member)",
        "",
        "Five linear layers of width 64, batch 64, 10 rounds of 10 + 10 epochs; the fastest of "
        f"{len(peer['seconds']['UQ360'])} fits each, taken in turns.",
        "",
        "| | seconds per member | times faster | target |",
        "|---|---|---|---|",
        f"| UQ360, one model | {peer['UQ360, one model']:.2f} | 1 | |",
    ]
    for n, target in targets.items():
        ratio = peer["times faster"][n]
        verdict = "" if target is None else f"{target:g}: {'reached' if ratio >= target else 'MISSED'}"
        text.append(f"| coverwell, {n} stacked | {peer['ours, per member'][n]:.3f} | {ratio:.1f} | {verdict} |")
    text += [
        "",
        f"## Time and memory against rows (20 features, default networks, 10 members, {SIZE_ROUNDS} rounds)",
        "",
        "Above 20,000 rows of a member an epoch is 20,000 random rows, so the time of a round stops growing.",
        "",
        "| rows | seconds | microseconds per member and row seen | peak MB | of which before the fit |",
        "|---|---|---|---|---|",
    ]
    for size in sizes:
        text.append(
            f"| {size['rows']:,} | {size['seconds']:.1f} | {size['microseconds per member and row seen']:.1f} "
            f"| {size['peak megabytes']:.0f} | {size['megabytes before']:.0f} |"
        )
    wine = results.get("white wine")
    if wine:
        verdict = "reached" if wine["seconds"] <= 120 else "MISSED"
        text += [
            "",
            "## Default fit of white wine",
            "",
            f"{wine['seconds']:.0f} s for {wine['rows']} rows, {wine['members']} members, {wine['rounds']} rounds; "
            f"target at most 120 s: {verdict}.",
        ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repeat, the smallest size, no white wine")
    parser.add_argument("--only", help="a number of rows, or 'white wine': print that one result as JSON")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only:
        print(json.dumps(white_wine() if arguments.only == "white wine" else one_size(int(arguments.only))))
        return
    results: dict[str, Any] = {"beside UQ360": beside_peer(1 if arguments.quick else 5)}
    results["sizes"] = [in_own_process(str(n)) for n in SIZES[: 1 if arguments.quick else None]]
    if not arguments.quick:
        results["white wine"] = in_own_process("white wine")
    results["cpu"] = _cpu_name()
    results["versions"] = {
        "coverwell": coverwell.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "speed-quick" if arguments.quick else "speed"
    (arguments.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / f"{name}.md").write_text(report(results))
    print(report(results))


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
