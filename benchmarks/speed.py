"""What a default fit costs beside competitors, what a prediction and a file cost, and seconds per member beside UQ360.

Fits run on one thread, each in a process of its own; competitors have environments of their own, those of peers.py and
one for UQ360, which this command makes. UQ360's AuxiliaryIntervalPredictor and ours both train five linear layers of
width 64 with batches of 64 for 10 rounds of 10 + 10 epochs, and every member sees the same number of rows. Before the
clock of that comparison starts, a short fit pays for what torch loads only once, in both alike; ours is timed whole,
with its extra epochs of I after the last round and the ranks. Targets are assessed in CPU seconds, which on one thread
are those of the clock, less what other programs take away.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import peers
import sklearn
import torch
from flat_settings import as_arguments
from machine import environment, versions_in_words

import coverwell
from coverwell import MLP, MatchedRegressor
from coverwell.baselines import DeepEnsembleRegressor
from coverwell.paper.algorithm import Recipe
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
    5: {"folds": 5, "repeats": 1, "calibration": "cross"},
    25: {"folds": 5, "repeats": 5, "calibration": "cross"},
}
TIMES_FASTER = {5: 5.0, 25: 10.0}  # targets
REPEATS = 5

FLATS, WINE, LARGE = "flats.csv", "white wine", "100,000 x 20"
SECONDS = {FLATS: 6.0, WINE: 20.0, LARGE: 90.0}  # targets of a default fit
OURS, ENSEMBLE = "coverwell", "deep ensemble"
BESIDE = ("forest-oob", "ngboost", "catboost-cqr", "realmlp-cqr")
PATIENCE = 90.0  # seconds of the clock after which a competitor's fit of the large table is stopped
PREDICTED_ROWS, PREDICTED_SECONDS, PREDICTED_MEGABYTES = 1_000_000, 30.0, 1000.0  # the last two are targets
FILE_MEGABYTES = 10.0  # target


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
        "growth": 1.0,
        "companions": (),
        "matching": "sigma",
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


STOPPED: dict[str, Any] = {"CPU seconds": None, "versions": {}}


def training_rows(name: str) -> tuple[Any, np.ndarray]:
    """What a default fit is given: of flats the columns of the file, of white wine the training rows of split 0."""
    if name == FLATS:
        table = pd.read_csv(HERE.parent / "examples" / FLATS, parse_dates=["listed"])
        return table.drop(columns=["id", "building", "rent"]), table["rent"].to_numpy(float)
    if name == LARGE:
        return random_table(100_000, 20)
    X, y, _ = table_like(name, (4898, 11))
    train, _ = random_split(len(y), 0)
    return X[train], y[train]


def as_numbers(X: Any) -> np.ndarray:
    """Columns as competitors take them: a column for each level of text, days, the mean for what is missing."""
    if isinstance(X, np.ndarray):
        return X
    days = (X["listed"] - X["listed"].min()).dt.days
    numbers = pd.get_dummies(X.assign(listed=days)).astype(float)
    return numbers.fillna(numbers.mean()).to_numpy()


def own_fit(name: str, seed: int) -> dict[str, Any]:
    """A default fit: its seconds and memory, and the size of its model file."""
    X, y = training_rows(name)
    before, model = peak_megabytes(), MatchedRegressor(0.9, device="cpu", random_state=seed)
    times = times_of_fit(model, X, y)
    found = {"peak megabytes": peak_megabytes(), "megabytes before": before, "rounds": len(model.rounds_)}
    return {"rows": len(y), **times, **found, "members": model.predictor_.fitted_teams[0].n_members}


def ensemble_fit(name: str, seed: int) -> dict[str, Any]:
    """A deep ensemble with our defaults, on the same columns."""
    X, y = training_rows(name)
    return times_of_fit(DeepEnsembleRegressor(0.9, device="cpu", random_state=seed), X, y)


def peer_fit(method: str, name: str, seed: int) -> dict[str, Any]:
    """The seconds of a competitor's fit; its prediction of ten rows is within them."""
    X, y = training_rows(name)
    X = as_numbers(X)
    rows = peers.Cut(X[None], y[None], X[None, :10], y[None, :10])
    place = peers.Place(peers.peer_python(), "cpu", time.monotonic() + PATIENCE)
    answers = list(peers.answers(peers.Job(method, name, [seed]), rows, place))
    if any("error" in answer for answer in answers):
        raise RuntimeError(f"{method} on {name}: {answers[0]['error']}")
    return {"CPU seconds": answers[0]["seconds"], "versions": answers[0]["versions"]} if answers else STOPPED


def beside_competitors(names: Any) -> dict[str, dict[str, Any]]:
    """One fit of each method, by table."""
    return {
        name: {
            OURS: in_own_process("fit", name, 0),
            ENSEMBLE: in_own_process("ensemble", name, 0, PATIENCE),
            **{method: peer_fit(method, name, 0) for method in BESIDE},
        }
        for name in names
    }


def one_prediction(n_threads: str, seed: int) -> dict[str, Any]:
    """Intervals of a million rows by a model of 10,000, on so many threads."""
    torch.set_num_threads(int(n_threads))
    X, y = random_table(PREDICTED_ROWS, 20)
    model = MatchedRegressor(0.9, device="cpu", random_state=seed).fit(X[:10_000], y[:10_000])
    clock = time.perf_counter()
    model.predict_interval(X)
    return {"clock seconds": time.perf_counter() - clock, "peak megabytes": peak_megabytes(), "threads": int(n_threads)}


def one_file(_: str, seed: int) -> dict[str, Any]:
    """The size of a default model of boston."""
    X, y, what = table_like("boston", (506, 13))
    model = MatchedRegressor(0.9, device="cpu", random_state=seed).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        coverwell.save(model, path)
        return {"data": what, "megabytes": path.stat().st_size / 1e6}


def times_of_fit(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
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


def in_own_process(what: str, of: Any, seed: int, patience: float | None = None) -> dict[str, Any]:
    """The result of `--only what of seed`, from a fresh process."""
    return run([sys.executable, __file__, "--only", what, str(of), str(seed)], patience)


def run(command: list[str], patience: float | None = None) -> dict[str, Any]:
    """What a command prints as JSON on its last line, run on one thread."""
    try:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return STOPPED
    return dict(json.loads(done.stdout.splitlines()[-1]))


ALONE = {
    "members": lambda n_members, seed: own_seconds(int(n_members), seed),
    "fit": own_fit,
    "ensemble": ensemble_fit,
    "prediction": one_prediction,
    "file": one_file,
}


def measure(*, quick: bool) -> Iterator[dict[str, Any]]:
    """The results after each part, so that one that fails loses no other."""
    results: dict[str, Any] = {"environment": environment(packages={"scikit-learn": sklearn.__version__}, threads=1)}
    results["fits"] = beside_competitors([FLATS] if quick else SECONDS)
    yield results
    if not quick:
        results["predictions"] = [in_own_process("prediction", n, 0) for n in (1, os.cpu_count())]
    results["file"] = in_own_process("file", "boston", 0)
    yield results
    results["beside UQ360"] = beside_peer(1 if quick else REPEATS)
    yield results


def report(results: dict[str, Any]) -> str:
    parts = {"fits": fit_table, "predictions": prediction_lines, "file": file_line, "beside UQ360": peer_table}
    written = [write(results[name]) for name, write in parts.items() if name in results]
    return "\n\n".join([heading(results["environment"]), *written]) + "\n"


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


def fit_table(fits: dict[str, dict[str, Any]]) -> str:
    """CPU seconds by table and method."""
    versions = [f"{p} {v}" for p, v in sorted({pair for of in fits.values() for pair in versions_of(of)})]
    lines = [
        "## A default fit beside competitors",
        "",
        "CPU seconds of one fit on one thread. flats.csv: 500 rows with text, dates and gaps, which competitors are "
        "given as numbers; white wine: the training rows of split 0; 100,000 x 20: made up. The competitors have their "
        "settings in `peers.md`; the deep ensemble is "
        f"`baselines.DeepEnsembleRegressor`. Stopped: after {PATIENCE:.0f} s by the clock. {', '.join(versions)}.",
        "",
        "| | rows | coverwell | target | peak MB (before the fit) | deep ensemble | "
        + " | ".join(peers.TITLES[method] for method in BESIDE)
        + " |",
        "|---" * (6 + len(BESIDE)) + "|",
    ]
    for name, found in fits.items():
        own, most = found[OURS], SECONDS[name]
        verdict = f"{most:g}: {'reached' if own['CPU seconds'] <= most else 'MISSED'}"
        memory = f"{own['peak megabytes']:.0f} ({own['megabytes before']:.0f})"
        times = [found[method]["CPU seconds"] for method in (ENSEMBLE, *BESIDE)]
        others = ["stopped" if seconds is None else f"{seconds:.1f}" for seconds in times]
        cells = [name, f"{own['rows']:,}", f"{own['CPU seconds']:.1f}", verdict, memory, *others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def versions_of(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What the competitors ran with, other than what all share."""
    shared = ("python", "numpy", "torch", "sklearn")
    each = [found[method]["versions"].items() for method in BESIDE]
    return [pair for pairs in each for pair in pairs if pair[0] not in shared]


def prediction_lines(found: list[dict[str, Any]]) -> str:
    lines = [f"## Intervals of {PREDICTED_ROWS:,} rows of 20 columns", ""]
    for run in found:
        fine = run["clock seconds"] <= PREDICTED_SECONDS and run["peak megabytes"] <= PREDICTED_MEGABYTES
        lines.append(
            f"- {run['threads']} thread{'s' * (run['threads'] > 1)}: {run['clock seconds']:.0f} s by the clock, peak "
            f"{run['peak megabytes']:.0f} MB with the rows themselves; target {PREDICTED_SECONDS:g} s and "
            f"{PREDICTED_MEGABYTES:g} MB: {'reached' if fine else 'MISSED'}"
        )
    return "\n".join(lines)


def file_line(found: dict[str, Any]) -> str:
    verdict = "reached" if found["megabytes"] <= FILE_MEGABYTES else "MISSED"
    return (
        f"## A default model file ({found['data']})\n\n{found['megabytes']:.1f} MB; target at most "
        f"{FILE_MEGABYTES:g}: {verdict}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest table alone, one repeat beside UQ360")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs=3, metavar=("WHAT", "OF", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, of, seed = arguments.only
        torch.set_num_threads(1)
        print(json.dumps(ALONE[what](of, int(seed))))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "speed-quick" if arguments.quick else "speed"
    for results in measure(quick=arguments.quick):
        (arguments.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
        (arguments.out / f"{name}.md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
