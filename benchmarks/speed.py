"""Seconds per member beside UQ360, and time and memory against the number of rows; all on one thread.

UQ360's AuxiliaryIntervalPredictor runs in an environment of its own, made by this command. Both train five linear
layers of width 64 with batches of 64 for 10 rounds of 10 + 10 epochs, and every member sees the same number of rows.
Every measurement has a process of its own. Before the clock of the comparison starts, a short fit pays for what torch
loads only once, in both alike; ours is timed whole, with its extra epochs of I after the last round and the ranks.
Targets are assessed in CPU seconds, which on one thread are those of the clock, less what other programs take away.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import sklearn
import torch
from flat_settings import as_arguments
from machine import environment, versions_in_words

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.paper.algorithm import Recipe
from coverwell.training.rows import MOST_ROWS_PER_EPOCH
from reproduction.data import load_table
from reproduction.domains.tables import random_split

HERE = Path(__file__).parent
LOCK = HERE.parent / "requirements.lock"
PEER_ENVIRONMENT = HERE.parent / ".venv-uq360"
# UQ360 is installed without its dependencies; importing this algorithm needs only these.
PEER_NEEDS = ("torch", "numpy", "scipy")
PEER = "UQ360"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

SETTINGS = {"hidden": 64, "layers": 5, "batch_size": 64, "rounds": 10, "epochs": 10}
ROWS_OF_A_MEMBER = 404  # four fifths of 505 of boston's 506 rows
MEMBERS: dict[int, dict[str, Any]] = {
    1: {"folds": None, "repeats": 1, "calibration": None},
    5: {"folds": 5, "repeats": 1},
    25: {"folds": 5, "repeats": 5},
}
TIMES_FASTER = {5: 5.0, 25: 10.0}  # targets
WHITE_WINE_SECONDS = 120.0  # target
SIZES = (1_000, 10_000, 100_000)
SIZE_ROUNDS = 2
REPEATS = 5


def peer_python() -> Path:
    """The interpreter of UQ360's environment, which is made on the first call with our locked versions."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    done = PEER_ENVIRONMENT / ".installed"
    if not done.exists():
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        locked = {line.split("==")[0]: line for line in LOCK.read_text().split() if "==" in line}
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_ENVIRONMENT)], check=True)
        for package in PEER_NEEDS:
            subprocess.run([*pip, locked[package]], check=True)
        subprocess.run([*pip, "--no-deps", "uq360"], check=True)
        done.touch()
    return python


def table_like(name: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, str]:
    """A table by name, or where its file is not to be had a random one of its shape; and which of the two it is."""
    try:
        data = load_table(name)
        return data.X, data.y, name
    except FileNotFoundError:
        X, y = random_table(*shape)
        return X, y, f"a random table of the shape of {name}"


def random_table(n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    return X, X[:, 0] + np.sin(X[:, 1]) + (0.5 + 0.5 * (X[:, 2] > 0)) * rng.normal(size=n_rows)


def boston_like(n_rows: int) -> tuple[np.ndarray, np.ndarray, str]:
    """So many rows, scaled: UQ360 does not scale by itself."""
    X, y, what = table_like("boston", (506, 13))
    return ((X - X.mean(axis=0)) / X.std(axis=0))[:n_rows], ((y - y.mean()) / y.std())[:n_rows], what


def peer_seconds(seed: int) -> dict[str, Any]:
    """CPU seconds of one fit of one UQ360 model, and the versions it ran with."""
    X, y, _ = boston_like(ROWS_OF_A_MEMBER)
    table = PEER_ENVIRONMENT / "table.npz"
    np.savez(table, X=X, y=y)
    settings = json.dumps({**SETTINGS, "seed": seed})
    return run([str(PEER_ENVIRONMENT / "bin" / "python"), str(HERE / "uq360_runner.py"), str(table), settings])


def own_seconds(n_members: int, seed: int) -> dict[str, Any]:
    """CPU seconds of one whole fit of ours, every member training on as many rows as UQ360's model."""
    n_rows = ROWS_OF_A_MEMBER if n_members == 1 else ROWS_OF_A_MEMBER * 5 // 4
    X, y, _ = boston_like(n_rows)
    own_model(n_members, seed, max_rounds=1, mean_epochs=1, interval_epochs=1).fit(X, y)
    model = own_model(n_members, seed)
    seconds = times_of_fit(model, X, y)["CPU seconds"]
    return {"seconds": seconds, "rounds": len(model.rounds_)}


def own_model(n_members: int, seed: int, **changes: int) -> MatchedRegressor:
    settings: dict[str, Any] = {
        "network": MLP(hidden=SETTINGS["hidden"], layers=SETTINGS["layers"], dropout=0.0, bins=0),
        "batch_size": SETTINGS["batch_size"],
        "max_rounds": SETTINGS["rounds"],
        "patience": SETTINGS["rounds"],
        "mean_epochs": SETTINGS["epochs"],
        "interval_epochs": SETTINGS["epochs"],
    }
    arguments = as_arguments({**MEMBERS[n_members], **settings, **changes})
    return MatchedRegressor(0.9, device="cpu", random_state=seed, **arguments)


def beside_peer(repeats: int) -> dict[str, Any]:
    """Ours and UQ360's in turns, so that both meet the same load; the fastest fit of each counts."""
    peer_python()
    seconds: dict[str, list[float]] = {PEER: [], **{str(n): [] for n in MEMBERS}}
    rounds: set[int] = set()
    for seed in range(repeats):
        peer = peer_seconds(seed)
        seconds[PEER].append(peer["seconds"])
        for n in MEMBERS:
            own = in_own_process("members", n, seed)
            seconds[str(n)].append(own["seconds"])
            rounds.add(own["rounds"])
    if rounds != {SETTINGS["rounds"]}:
        raise RuntimeError(f"every fit must take {SETTINGS['rounds']} rounds to be compared, some took {rounds}")
    return {
        "data": boston_like(1)[2],
        "rows of a member": ROWS_OF_A_MEMBER,
        "settings": SETTINGS,
        "seeds": list(range(repeats)),
        "peer versions": peer["versions"],
        "CPU seconds of each fit": seconds,
        "CPU seconds per member": {name: min(s) / n_members_of(name) for name, s in seconds.items()},
        "median CPU seconds per member": {name: median(s) / n_members_of(name) for name, s in seconds.items()},
        "times faster": {n: min(seconds[PEER]) / min(s) * n_members_of(n) for n, s in seconds.items() if n != PEER},
    }


def n_members_of(name: str) -> int:
    return 1 if name == PEER else int(name)


def one_size(n_rows: int, seed: int) -> dict[str, Any]:
    """Time and peak memory of a default fit with few rounds on so many rows of 20 features."""
    X, y = random_table(n_rows, 20)
    before = peak_megabytes()
    model = MatchedRegressor(0.9, schedule=Schedule(max_rounds=SIZE_ROUNDS), device="cpu", random_state=seed)
    times = times_of_fit(model, X, y)
    schedule = model.resolved_params()["schedule"]
    epochs = len(model.rounds_) * (schedule.mean_epochs + schedule.interval_epochs)
    epochs += Recipe.closing_rounds * schedule.interval_epochs
    n_members = model.predictor_.fitted_teams[0].n_members
    seen = epochs * n_members * min(0.8 * n_rows, MOST_ROWS_PER_EPOCH)
    return {
        "rows": n_rows,
        "rounds": len(model.rounds_),
        "epochs": epochs,
        "members": n_members,
        **times,
        "microseconds per row seen": 1e6 * times["CPU seconds"] / seen,
        "peak megabytes": peak_megabytes(),
        "megabytes before": before,
    }


def white_wine(seed: int) -> dict[str, Any]:
    """Time of the default fit on the training rows of one split."""
    X, y, what = table_like("white wine", (4898, 11))
    train, _ = random_split(len(y), seed)
    model = MatchedRegressor(0.9, device="cpu", random_state=seed)
    times = times_of_fit(model, X[train], y[train])
    return {
        "data": what,
        "rows": len(train),
        "rounds": len(model.rounds_),
        "members": model.predictor_.fitted_teams[0].n_members,
        **times,
    }


def times_of_fit(model: MatchedRegressor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Seconds of the processor and of the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    model.fit(X, y)
    return {"CPU seconds": time.process_time() - cpu, "clock seconds": time.perf_counter() - clock}


def peak_megabytes() -> float:
    """The most memory this process has held; Linux counts in kilobytes, macOS in bytes.

    Where Linux tells of a process by itself that is taken: `getrusage` counts what its parent held at the start, too.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    own = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    if own is not None:
        return int(own) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def in_own_process(what: str, number: int, seed: int) -> dict[str, Any]:
    """The result of `--only what number seed`, from a fresh process."""
    return run([sys.executable, __file__, "--only", what, str(number), str(seed)])


def run(command: list[str]) -> dict[str, Any]:
    """What a command prints as JSON on its last line, run on one thread."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def only(what: str, number: int, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    if what == "members":
        return own_seconds(number, seed)
    return one_size(number, seed) if what == "rows" else white_wine(seed)


def measure(*, quick: bool) -> dict[str, Any]:
    results = {"environment": environment(packages={"scikit-learn": sklearn.__version__}, threads=1)}
    results["beside UQ360"] = beside_peer(1 if quick else REPEATS)
    results["sizes"] = [in_own_process("rows", n, 0) for n in SIZES[: 1 if quick else None]]
    if not quick:
        results["white wine"] = in_own_process("white wine", 0, 0)
    return results


def report(results: dict[str, Any]) -> str:
    parts = [heading(results["environment"]), peer_table(results["beside UQ360"]), size_table(results["sizes"])]
    if "white wine" in results:
        parts.append(wine_lines(results["white wine"]))
    return "\n\n".join(parts) + "\n"


def heading(where: dict[str, Any]) -> str:
    return (
        f"# Speed\n\n`make bench-speed`, {where['date']}: one thread of {where['cores']} cores ({where['cpu']}), "
        f"load average {where['load before']} before the start; {versions_in_words(where)}."
    )


def peer_table(found: dict[str, Any]) -> str:
    lines = [
        f"## Next to UQ360's AuxiliaryIntervalPredictor ({found['data']}, {found['rows of a member']} rows per member)",
        "",
        "Five linear layers of width 64, batch 64, 10 rounds of 10 + 10 epochs. Fits in turns with seeds "
        f"0 to {found['seeds'][-1]}; the ratio is that of the fastest fits. UQ360 {found['peer versions']['uq360']} "
        f"with torch {found['peer versions']['torch']}. Ours is the whole fit, {Recipe.closing_rounds} x 10 more "
        "epochs of I included (except for one member, which trains as published).",
        "",
        "| | CPU seconds per member (fastest) | (median) | times faster | target |",
        "|---|---|---|---|---|",
        row_of("UQ360, one model", found, PEER, "1", ""),
    ]
    for n in MEMBERS:
        ratio = found["times faster"][str(n)]
        target = TIMES_FASTER.get(n)
        verdict = "" if target is None else f"{target:g}: {'reached' if ratio >= target else 'MISSED'}"
        lines.append(row_of(f"coverwell, {n} stacked", found, str(n), f"{ratio:.1f}", verdict))
    return "\n".join(lines)


def row_of(label: str, found: dict[str, Any], name: str, ratio: str, verdict: str) -> str:
    fastest, middle = found["CPU seconds per member"][name], found["median CPU seconds per member"][name]
    return f"| {label} | {fastest:.3f} | {middle:.3f} | {ratio} | {verdict} |"


def size_table(sizes: list[dict[str, Any]]) -> str:
    lines = [
        f"## Time and memory by rows (20 features, defaults except {SIZE_ROUNDS} rounds, a fresh process each)",
        "",
        f"An epoch shows each member four fifths of the rows, at most {MOST_ROWS_PER_EPOCH:,}; small tables have more "
        "members. The time per row seen therefore shows the growth: constant means linear.",
        "",
        "| rows | members | CPU seconds | clock | CPU microseconds per row seen, member | peak MB | before the fit |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        lines.append(
            f"| {size['rows']:,} | {size['members']} | {size['CPU seconds']:.1f} | {size['clock seconds']:.1f} "
            f"| {size['microseconds per row seen']:.1f} | {size['peak megabytes']:.0f} "
            f"| {size['megabytes before']:.0f} |"
        )
    return "\n".join(lines)


def wine_lines(wine: dict[str, Any]) -> str:
    verdict = "reached" if wine["CPU seconds"] <= WHITE_WINE_SECONDS else "MISSED"
    return (
        f"## Default fit of white wine ({wine['data']}, split 0)\n\n{wine['CPU seconds']:.0f} CPU seconds "
        f"({wine['clock seconds']:.0f} wall clock) for {wine['rows']} rows, {wine['members']} members, "
        f"{wine['rounds']} rounds; target at most {WHITE_WINE_SECONDS:.0f}: {verdict}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repeat, the smallest size, no white wine")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs=3, metavar=("WHAT", "NUMBER", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, number, seed = arguments.only
        print(json.dumps(only(what, int(number), int(seed))))
        return
    results = measure(quick=arguments.quick)
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "speed-quick" if arguments.quick else "speed"
    (arguments.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / f"{name}.md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
