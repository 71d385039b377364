"""What the peers that users know reach at 0.9 on the same random splits of eighteen tables, in their own environment.

One JSON line per fit (method, data, trial) goes to results/peers.jsonl; what is there is skipped, so that the command
can be stopped and started at will. The tables in results/peers.md are made from those lines alone. A peer that fails is
named at the end, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from result_lines import append
from tqdm import tqdm

import coverwell
from coverwell import metrics
from reproduction.data.tables import DEVELOPMENT_TABLES
from reproduction.domains.tables import TableStudy, random_split, table
from reproduction.lines import ANY_VERSION, FORMAT
from reproduction.tables import splits
from reproduction.tables.typeset import markdown, with_error

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-peers.txt"
PEER_ENVIRONMENT = HERE.parent / ".venv-peers"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

ASKED = 0.9
TRIALS = 20
# The test rows of a large table are many: fewer trials tell as much.
MANY_ROWS, TRIALS_OF_MANY_ROWS = 10_000, 5
# Trials that one process runs: so many that its start costs little, one where a fit takes long.
TRIALS_PER_PROCESS, MANY_CELLS = 5, 250_000
QUICK_TABLES = ("boston", "auto mpg")
TITLES = splits.PEERS
NETWORKS = ("realmlp-cqr", "tabm-cqr")  # the only ones that can use a GPU
SETTINGS = """\
The peers run with their documented defaults, on one thread; the seed is the number of the trial. Where their
documentation leaves a choice, or a default is a trap, we used what worked better for them on one to five of the splits
100 to 104 (not stored):

- MAPIE, CQR: scikit-learn's histogram gradient boosting with the pinball loss; 20 % of the training rows for the ranks.
  It needs more than 20 of those, and refuses concreteslump.
- MAPIE, CV+: 5 folds; 200 trees, where scikit-learn's default is 100; the point from the forest of all training rows,
  where MAPIE's default is the mean over the folds.
- NGBoost, defaults: normal distribution, 500 rounds, as in its README. On small tables its intervals are then far too
  narrow, hence a second row: the rounds chosen on 20 % of the training rows (at most 1000, stop after 50 without gain),
  then a fit to all of them, as in its paper.
- Conformal Tights: around XGBoost with its default, the squared error, since we report the RMSE (its README also shows
  the absolute error; the intervals are the same); `predict_interval`.
- random forest: 200 trees; one width for all rows.
- quantile forest: 200 trees; the .05 and .95 quantiles, both moved by the rank of the scores of conformalized quantile
  regression (CQR) of its out-of-bag quantiles; the mean as prediction. Once with its default leaves, once with at least
  five rows a leaf, all of them kept, and half of the columns at a split. Where the target takes whole numbers, the
  intervals mostly end in them.
- CatBoost and LightGBM: their quantiles (CatBoost: `MultiQuantile`), CQR on a quarter of the training rows; the
  prediction from a model of the squared error on all of them.
- RealMLP and TabM of pytabkit: one network with `multi_pinball(0.05,0.5,0.95)` as its loss and for early stopping, CQR
  on a quarter of the training rows; the median as prediction."""

Line = dict[str, Any]


class Cut(NamedTuple):
    """The rows of one table in several trials, each array with the trial as its first axis."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def peer_python(
    environment: Path = PEER_ENVIRONMENT, requirements: Path = REQUIREMENTS, alone: Sequence[str] = ()
) -> Path:
    """The interpreter of the peers' environment, which is made when it is missing or its versions have changed.

    Packages `alone` are installed without what they depend on.
    """
    python = environment / "bin" / "python"
    done = environment / ".installed"
    wanted = "\n".join([requirements.read_text(), *alone])
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(requirements)], check=True)
        if alone:
            subprocess.run([*pip, "--no-deps", *alone], check=True)
        done.write_text(wanted)
    return python


class Job(NamedTuple):
    """What one process does: one peer on some trials of one table."""

    method: str
    data: str
    trials: list[int]


@dataclass(frozen=True)
class Place:
    """Where peers run: their interpreter, the device of networks, and when to stop, by time.monotonic()."""

    python: Path
    device: str
    deadline: float

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


def cut(data: str, trials: list[int]) -> Cut:
    whole = table(data)
    drawn = [random_split(len(whole.y), trial) for trial in trials]
    train, test = (np.stack(rows) for rows in zip(*drawn, strict=True))  # (trial, row)
    return Cut(whole.X[train], whole.y[train], whole.X[test], whole.y[test])


def answers(job: Job, rows: Cut, place: Place) -> Iterator[dict[str, Any]]:
    """What the peer says about each trial, as soon as it says it. The peer never sees the test targets."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=rows.X, y=rows.y, X_test=rows.X_test, asked=ASKED, seeds=job.trials)
        device = place.device if job.method in NETWORKS else "cpu"
        command = [str(place.python), str(HERE / "peers_runner.py"), job.method, str(path), device]
        environment = {**os.environ, **ONE_THREAD}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as peer:
            end = threading.Timer(min(max(place.seconds_left(), 0), threading.TIMEOUT_MAX), peer.kill)
            end.daemon = True
            end.start()
            try:
                assert peer.stdout is not None
                for line in peer.stdout:
                    yield json.loads(line)
            finally:
                end.cancel()
    if peer.returncode != 0 and place.seconds_left() > 0:
        raise RuntimeError(f"ended with status {peer.returncode}: its own message stands above")


def measured(answer: dict[str, Any], y_test: np.ndarray) -> Line:
    """Scores at the level that was asked. Bounds that cross are swapped, which favours the peer, and counted."""
    bounds = np.array([answer["lower"], answer["upper"]])
    lower, upper = bounds.min(axis=0), bounds.max(axis=0)
    return {
        "rmse": metrics.rmse(y_test, answer["y_hat"]),
        "coverage": [metrics.coverage(y_test, lower, upper)],
        "width": [metrics.average_width(lower, upper)],
        "interval_score": [metrics.interval_score(y_test, lower, upper, ASKED)],
        "weighted_interval_score": None,  # needs more levels
        "crossed": int(np.sum(bounds[0] > bounds[1])),
    }


def line_of(job: Job, trial: int, n_train: int, y_test: np.ndarray, answer: dict[str, Any]) -> Line:
    """The stored line of one trial."""
    return {
        "format": FORMAT,
        "method": job.method,
        "data": job.data,
        "trial": trial,
        "seed": trial,
        "levels": [ASKED],
        "n_train": n_train,
        "n_test": len(y_test),
        **measured(answer, y_test),
        "rounds": answer["rounds"],
        "members": answer["members"],
        "seconds": round(answer["seconds"], 2),
        "stack": 1,
        "device": answer["device"],
        "versions": {"coverwell": coverwell.__version__, **answer["versions"]},
    }


def n_trials(n_rows: int, most: int = TRIALS) -> int:
    """How many trials of a table with so many rows are run."""
    return min(most, TRIALS_OF_MANY_ROWS) if n_rows > MANY_ROWS else most


def jobs_of(methods: Sequence[str], tables: Sequence[str], most: int, path: Path) -> list[Job]:
    """What is not there yet: the first trials of all peers and tables before the next ones, large tables first."""
    done = {(line["method"], line["data"], line["trial"]) for line in stored(path)}
    jobs = []
    for data in sorted(tables, key=lambda data: -table(data).X.size):
        X = table(data).X
        at_once = 1 if X.size > MANY_CELLS else TRIALS_PER_PROCESS
        for method in methods:
            missing = [trial for trial in range(n_trials(len(X), most)) if (method, data, trial) not in done]
            jobs += [Job(method, data, missing[at : at + at_once]) for at in range(0, len(missing), at_once)]
    return sorted(jobs, key=lambda job: job.trials[0] // TRIALS_PER_PROCESS)


def run(jobs: list[Job], path: Path, place: Place, workers: int) -> list[str]:
    """Add the lines of all jobs, so many at a time; what failed, a line of text each."""
    failed: list[str] = []
    lock = threading.Lock()
    bar = tqdm(total=sum(len(job.trials) for job in jobs), unit="fit")

    def work(job: Job) -> None:
        if place.seconds_left() <= 0:
            return
        rows = cut(job.data, job.trials)
        try:
            for trial, y_test, answer in zip(job.trials, rows.y_test, answers(job, rows, place), strict=False):
                with lock:
                    try:
                        if "error" in answer:
                            raise ValueError(answer["error"])
                        append(path, line_of(job, trial, len(rows.y[0]), y_test, answer))
                    except ValueError as error:  # also of scores, where predictions are not finite
                        failed.append(f"{job.method} on {job.data}, trial {trial}: {error}")
                    bar.update()
        except RuntimeError as error:
            failed.append(f"{job.method} on {job.data}, one of the trials {job.trials}: {error}")

    pool = ThreadPoolExecutor(workers)
    try:
        list(pool.map(work, jobs))
    finally:
        pool.shutdown(cancel_futures=True)
        bar.close()
    return failed


def stored(path: Path) -> list[Line]:
    """Lines of peers, whose numbers do not depend on the version of coverwell."""
    return TableStudy.stored(path, version=ANY_VERSION)


def report(lines: list[Line]) -> str:
    """All tables as Markdown."""
    devices = ", ".join(sorted({line["device"] for line in lines}))
    versions = sorted({f"{name} {number}" for line in lines for name, number in line["versions"].items()})
    parts = [
        "# Other packages on the same splits",
        f"Made by `make bench-peers` from `peers.jsonl` in this folder: level {ASKED}, random 80/20 splits 0 to "
        f"{TRIALS - 1}, on tables of more than {MANY_ROWS:,} rows, whose test parts are large, 0 to "
        f"{TRIALS_OF_MANY_ROWS - 1}; [n]: only n were run; -: none. Mean over the splits (corrected standard error). "
        f"{devices}; {', '.join(versions)}.",
        SETTINGS,
        crossings(lines),
        best(lines),
        section("RMSE", lines, lambda line: line["rmse"]),
        section(f"Interval score at {ASKED}", lines, lambda line: line["interval_score"][0]),
        section(f"Coverage at {ASKED}", lines, lambda line: line["coverage"][0]),
        calibration(lines),
        section(f"Average width at {ASKED}", lines, lambda line: line["width"][0]),
        section("Seconds of one fit and its predictions", lines, lambda line: line["seconds"], note=clock),
        "CPU seconds on one thread; *wall*: seconds of the clock on a GPU that several fits shared.",
    ]
    return "\n\n".join(parts) + "\n"


def crossings(lines: list[Line]) -> str:
    """Whose bounds crossed, and in what share of the test rows."""
    shares = {}
    for method in TITLES:
        own = [line for line in lines if line["method"] == method]
        if any(line["crossed"] for line in own):
            shares[method] = sum(line["crossed"] for line in own) / sum(line["n_test"] for line in own)
    named = "; ".join(f"{TITLES[method]} in {share:.2%} of the test rows" for method, share in shares.items())
    return f"Bounds that crossed were swapped, which lowers the interval score: {named or 'none'}."


def tables_of(lines: list[Line]) -> list[str]:
    return [data for data in DEVELOPMENT_TABLES if any(line["data"] == data for line in lines)]


def best(lines: list[Line]) -> str:
    """The lowest mean of each table and whose it is, among the peers that were run on most of its splits."""
    rows = []
    for data in tables_of(lines):
        runs = {method: splits.select(lines, method=method, data=data) for method in splits.methods_of(lines)}
        most = max(map(len, runs.values()))
        cells = []
        for measure in ("interval_score", "rmse"):
            found = {
                method: splits.estimate([splits.at(line, measure, ASKED) for line in run], run)
                for method, run in runs.items()
                if len(run) == most
            }
            first = min(found, key=lambda method: found[method].mean)
            cells += [with_error(found[first], of=most), TITLES[first]]
        rows.append([data, *cells])
    return "## The best of each table\n\n" + markdown(["", f"interval score at {ASKED}", "of", "RMSE", "of"], rows)


def section(
    title: str,
    lines: list[Line],
    value: Callable[[Line], float],
    *,
    note: Callable[[list[Line]], str] = lambda _: "",
    last: tuple[str, Callable[[list[Line]], str]] | None = None,
) -> str:
    """One table: a row for every data set, a column for every peer, and a last column of another kind."""
    methods, rows = splits.methods_of(lines), []
    for data in tables_of(lines):
        cells = []
        for method in methods:
            own = splits.select(lines, method=method, data=data)
            found = splits.estimate([value(line) for line in own], own) if own else None
            most = n_trials(own[0]["n_train"] + own[0]["n_test"]) if own else TRIALS
            cells.append(with_error(found, of=most) + note(own))
        rows.append([data, *cells, *([last[1]([line for line in lines if line["data"] == data])] if last else [])])
    return f"## {title}\n\n" + markdown(
        ["", *[TITLES[method] for method in methods], *([last[0]] if last else [])], rows
    )


def clock(lines: list[Line]) -> str:
    """What marks seconds that are not those of one thread."""
    return " *wall*" if any(not line["device"].endswith("CPU") for line in lines) else ""


def calibration(lines: list[Line]) -> str:
    """Mean distance between coverage reached and asked, and what exact ranks on all training rows would have."""

    def expected(own: list[Line]) -> str:
        return f"{metrics.expected_calibration_error(ASKED, own[0]['n_test'], own[0]['n_train']):.4g}"

    title, error = f"Calibration error (CE) at {ASKED}", lambda line: abs(line["coverage"][0] - ASKED)
    return section(title, lines, error, last=("to expect of exact ranks", expected))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    every = DEVELOPMENT_TABLES
    parser.add_argument("--methods", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--data", nargs="+", type=lambda name: name.replace("-", " "), default=every, choices=every)
    parser.add_argument("--trials", type=int, default=TRIALS, help="splits of a table; fewer of one with many rows")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time, each on one thread")
    parser.add_argument("--device", default="cpu", help="where RealMLP and TabM run, such as cuda")
    parser.add_argument("--python", type=Path, help="an interpreter that has the peers (default: that of .venv-peers)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so long; finished fits are kept"
    )
    parser.add_argument("--quick", action="store_true", help="one trial of the two small tables")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    for name in ("trials", "jobs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(given, name)}")
    if given.quick:
        given.data, given.trials, given.out = QUICK_TABLES, 1, given.out / "quick"
    return given


def main() -> None:
    given = arguments()
    deadline = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "peers.jsonl"
    place = Place(given.python or peer_python(), given.device, deadline)
    failed = run(jobs_of(given.methods, given.data, given.trials, path), path, place, given.jobs)
    text = report(stored(path))
    (given.out / "peers.md").write_text(text)
    print(text)
    if failed:
        sys.exit("These fits failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
