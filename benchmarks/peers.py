"""What the peers that users know reach at 0.9 on the same random splits of the six tables, in their own environment.

One JSON line per fit (method, data, trial) goes to results/peers.jsonl; what is there is skipped, so that the command
can be stopped and started at will. The tables in results/peers.md are made from those lines alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from result_lines import append
from tqdm import tqdm

import coverwell
from coverwell import metrics
from reproduction.data import load_table
from reproduction.domains.tables import TableStudy, random_split
from reproduction.lines import FORMAT
from reproduction.tables import splits
from reproduction.tables.typeset import markdown, with_error

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-peers.txt"
PEER_ENVIRONMENT = HERE.parent / ".venv-peers"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

ASKED = 0.9
TRIALS = 20
TABLES = ("auto mpg", "boston", "red wine", "white wine", "parkinsons", "crime")  # by the time they take
QUICK_TABLES = ("boston", "auto mpg")
TITLES = splits.PEERS
SETTINGS = """\
The peers run with their documented defaults, on one thread; the seed is the number of the trial. Where their
documentation leaves a choice, or a default is a trap, we used what worked better for them on one to five of the splits
100 to 104 (not stored):

- MAPIE, CQR: scikit-learn's histogram gradient boosting with the pinball loss; 20 % of the training rows for the ranks.
- MAPIE, CV+: 5 folds; 200 trees, where scikit-learn's default is 100; the point from the forest of all training rows,
  where MAPIE's default is the mean over the folds.
- NGBoost, defaults: normal distribution, 500 rounds, as in its README. On small tables its intervals are then far too
  narrow, hence a second row: the rounds chosen on 20 % of the training rows (at most 1000, stop after 50 without gain),
  then a fit to all of them, as in its paper.
- Conformal Tights: around XGBoost with its default, the squared error, since we report the RMSE (its README also shows
  the absolute error; the intervals are the same); `predict_interval`.
- random forest: 200 trees; one width for all rows."""

Line = dict[str, Any]


class Cut(NamedTuple):
    """The rows of one table in several trials, each array with the trial as its first axis."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def peer_python() -> Path:
    """The interpreter of the peers' environment, which is made when it is missing or its versions have changed."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    done = PEER_ENVIRONMENT / ".installed"
    wanted = REQUIREMENTS.read_text()
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        done.write_text(wanted)
    return python


def cut(data: str, trials: list[int]) -> Cut:
    table = load_table(data)
    drawn = [random_split(len(table.y), trial) for trial in trials]
    train, test = (np.stack(rows) for rows in zip(*drawn, strict=True))  # (trial, row)
    return Cut(table.X[train], table.y[train], table.X[test], table.y[test])


def answers(method: str, rows: Cut, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """What the peer says about each trial, as soon as it says it. The peer never sees the test targets."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=rows.X, y=rows.y, X_test=rows.X_test, asked=ASKED, seeds=seeds)
        command = [str(peer_python()), str(HERE / "peers_runner.py"), method, str(path)]
        environment = {**os.environ, **ONE_THREAD}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as peer:
            assert peer.stdout is not None
            for line in peer.stdout:
                yield json.loads(line)
    if peer.returncode != 0:
        raise RuntimeError(f"{method} ended with status {peer.returncode}: its own message stands above")


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


def lines_of(method: str, data: str, trials: list[int]) -> Iterator[Line]:
    """Fit one peer on these trials of one table and yield one line for each."""
    rows = cut(data, trials)
    for trial, y_test, answer in zip(trials, rows.y_test, answers(method, rows, trials), strict=True):
        yield {
            "format": FORMAT,
            "method": method,
            "data": data,
            "trial": trial,
            "seed": trial,
            "levels": [ASKED],
            "n_train": rows.y.shape[1],
            "n_test": len(y_test),
            **measured(answer, y_test),
            "rounds": answer["rounds"],
            "members": answer["members"],
            "seconds": round(answer["seconds"], 2),
            "stack": 1,
            "device": platform.machine() + " CPU",
            "versions": {"coverwell": coverwell.__version__, **answer["versions"]},
        }


def run(methods: Sequence[str], tables: Sequence[str], n_trials: int, path: Path) -> None:
    """Add every line that is not there yet, table by table."""
    done = {(line["method"], line["data"], line["trial"]) for line in TableStudy.stored(path, version=None)}
    groups = [
        (method, data, [trial for trial in range(n_trials) if (method, data, trial) not in done])
        for data in tables
        for method in methods
    ]
    with tqdm(total=sum(len(trials) for _, _, trials in groups), unit="fit") as bar:
        for method, data, trials in groups:
            bar.set_description(f"{method} on {data}")
            for line in lines_of(method, data, trials) if trials else ():
                append(path, line)
                bar.update()


def report(lines: list[Line]) -> str:
    """All tables as Markdown."""
    devices = ", ".join(sorted({line["device"] for line in lines}))
    versions = sorted({f"{name} {number}" for line in lines for name, number in line["versions"].items()})
    tables = [data for data in TABLES if any(line["data"] == data for line in lines)]
    most = max(line["trial"] for line in lines) + 1
    parts = [
        "# Other packages on the same splits",
        f"Made by `make bench-peers` from `peers.jsonl` in this folder: level {ASKED}, random 80/20 splits 0 to "
        f"{most - 1}; [n]: only n were run. Mean over the splits (corrected standard error). {devices}; "
        f"{', '.join(versions)}.",
        SETTINGS,
        crossings(lines),
        section("RMSE", lines, tables, lambda line: line["rmse"]),
        section(f"Interval score at {ASKED}", lines, tables, lambda line: line["interval_score"][0]),
        section(f"Coverage at {ASKED}", lines, tables, lambda line: line["coverage"][0]),
        calibration(lines, tables),
        section(f"Average width at {ASKED}", lines, tables, lambda line: line["width"][0]),
        section("CPU seconds of one fit and its predictions", lines, tables, lambda line: line["seconds"]),
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


def section(title: str, lines: list[Line], tables: list[str], value: Callable[[Line], float], *last: list[str]) -> str:
    """One table: a row for every peer, a column for every data set."""
    most = max(line["trial"] for line in lines) + 1
    rows = []
    for method in splits.methods_of(lines):
        runs = [splits.select(lines, method=method, data=data) for data in tables]
        found = [splits.estimate([value(line) for line in own], own) if own else None for own in runs]
        rows.append([TITLES[method], *[with_error(one, of=most) for one in found]])
    return f"## {title}\n\n" + markdown(["", *tables], [*rows, *last])


def calibration(lines: list[Line], tables: list[str]) -> str:
    """Mean distance between coverage reached and asked, and what exact ranks on all training rows would have."""
    expected = []
    for data in tables:
        line = next(line for line in lines if line["data"] == data)
        expected.append(metrics.expected_calibration_error(ASKED, line["n_test"], line["n_train"]))
    last_row = ["to expect of exact ranks", *[f"{error:.4g}" for error in expected]]
    return section(
        f"Calibration error (CE) at {ASKED}", lines, tables, lambda line: abs(line["coverage"][0] - ASKED), last_row
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--data", nargs="+", type=lambda name: name.replace("-", " "), default=TABLES, choices=TABLES)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--quick", action="store_true", help="one trial of the two small tables")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    if given.trials < 1:
        parser.error(f"--trials must be at least 1, got {given.trials}")
    if given.quick:
        given.data, given.trials, given.out = QUICK_TABLES, 1, given.out / "quick"
    return given


def main() -> None:
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "peers.jsonl"
    run(given.methods, given.data, given.trials, path)
    text = report(TableStudy.stored(path, version=None))
    (given.out / "peers.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
