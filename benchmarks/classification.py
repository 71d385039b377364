"""Sets and probabilities of `MatchedClassifier` beside what users know, on random splits of thirty tables with classes.

One JSON line per (method, data, split) goes to results/classification.jsonl; what is there is skipped, so that the
command can be stopped and started at will. Peers run in an environment of their own. Settings are chosen out of fold on
splits 100 to 104 (`--selection`), which have files of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from class_peers_runner import FOR_SEVERAL, PEERS
from class_report import BASELINES, BY_RANKS, OWN_SETS, report, selection_report
from class_tables import CLASS_TABLES, load_classes
from numpy.typing import NDArray
from peers import ONE_THREAD, peer_python
from result_lines import append, environment, read_lines
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit
from table_fits import Line, add_arguments, levels_for, run_jobs

from coverwell import MatchedClassifier, Schedule, metrics
from coverwell.baselines import DeepEnsembleClassifier, MCDropoutClassifier, TemperatureScalingClassifier
from coverwell.calibration import Split
from coverwell.sets import ROUNDING

HERE = Path(__file__).parent
REQUIREMENTS, ENVIRONMENT = HERE / "requirements-class-peers.txt", HERE.parent / ".venv-class-peers"
ALONE = ("torchcp==1.2.1",)  # whose dependencies are for graphs, language models and training losses

LEVELS = (0.8, 0.9, 0.95, 0.99)
TEST_SHARE = 0.2
FIRST_SPLITS, FIRST_SELECTION = 0, 100
SPLITS, SELECTION_SPLITS = 20, 5
SPLITS_PER_PROCESS = 5
QUICK_TABLES, QUICK_METHODS = ("wine", "monk-2"), ("coverwell", "temperature", "forest", "mapie-lac-forest")
DIGITS = 5  # of shares and scores in the stored lines

Array = NDArray[np.float64]

KINDS = dict(zip(OWN_SETS, (MCDropoutClassifier, DeepEnsembleClassifier, TemperatureScalingClassifier), strict=True))
MODELS: dict[str, Any] = {
    "coverwell": MatchedClassifier(LEVELS),
    "unmatched": MatchedClassifier(LEVELS, matching=None),
    "by-class": MatchedClassifier(LEVELS, hold_for="class"),
    "adaptive": MatchedClassifier(LEVELS, conformity_score="adaptive"),
    **{name: kind(LEVELS) for name, kind in KINDS.items()},
    **{f"{name}{BY_RANKS}": kind(LEVELS, calibration="split") for name, kind in KINDS.items()},
}


@cache
def encoded(data: str) -> Array:
    """The table as peers get it: a column for each text of a column of text, gaps as NaN."""
    return np.asarray(pd.get_dummies(load_classes(data)[0]).astype(float).to_numpy())


def split_of(data: str, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Training and test rows, 80 to 20 in every class."""
    X, y = load_classes(data)
    splitter = StratifiedShuffleSplit(1, test_size=TEST_SHARE, random_state=split)
    train, test = next(splitter.split(X, y))
    return train, test


def codes_of(data: str) -> NDArray[np.intp]:
    return np.unique(load_classes(data)[1], return_inverse=True)[1]


def size_of(data: str) -> int:
    """Roughly what a fit costs."""
    return int(encoded(data).size * len(np.unique(codes_of(data))))


def quality(p: Array, y: NDArray[np.intp]) -> Line:
    """What probabilities (row, class) are worth; y are the places of the classes."""
    p = np.asarray(p) / np.sum(p, axis=1, keepdims=True)
    return {
        "accuracy": round(float((p.argmax(axis=1) == y).mean()), DIGITS),
        "brier": round(metrics.brier_score(y, p), DIGITS),
        "log_loss": round(metrics.log_loss(y, p), DIGITS),
        "reliability_error": round(metrics.reliability_error(y, p), DIGITS),
        "expected_reliability_error": round(metrics.expected_reliability_error(p), DIGITS),
    }


def of_sets(sets: NDArray[np.bool_], y: NDArray[np.intp]) -> Line:
    """Coverage, mean size, and how many rows have sets of each size (from 0) and are inside, each by level.

    Sets are (row, class, level).
    """
    inside, sizes = sets[np.arange(len(y)), y].T, sets.sum(axis=1).T  # (level, row)
    rows = [np.bincount(one) for one in sizes]
    hits = [np.bincount(*hit_sizes, len(of)) for *hit_sizes, of in zip(sizes, inside, rows, strict=True)]
    return {
        "coverage": [round(float(one.mean()), DIGITS) for one in inside],
        "size": [round(float(one.mean()), DIGITS) for one in sizes],
        "rows_of_size": [one.tolist() for one in rows],
        "hits_of_size": [one.astype(int).tolist() for one in hits],
    }


def of_classes(sets: NDArray[np.bool_], y: NDArray[np.intp]) -> Line:
    """How many rows of each class are inside, and the shares of empty and of full sets, each by level."""
    n_classes, inside, sizes = sets.shape[1], sets[np.arange(len(y)), y].T, sets.sum(axis=1).T
    return {
        "empty": [round(float((one == 0).mean()), DIGITS) for one in sizes],
        "full": [round(float((one == n_classes).mean()), DIGITS) for one in sizes],
        "hits_of_class": [np.bincount(y[hit], minlength=n_classes).tolist() for hit in inside],
    }


def measured(p: Array, sets: NDArray[np.bool_] | None, never_empty: NDArray[np.bool_] | None, y: Any) -> Line:
    """One line's numbers: sets as they are, and with the likeliest class in every one."""
    found = quality(p, y) | {"rows_of_class": np.bincount(y, minlength=np.shape(p)[1]).tolist()}
    if sets is None or never_empty is None:
        return found
    return found | {"sets": of_sets(sets, y) | of_classes(sets, y), "never_empty": of_sets(never_empty, y)}


def with_likeliest(sets: NDArray[np.bool_], p: Array) -> NDArray[np.bool_]:
    likeliest = np.arange(p.shape[1]) == p.argmax(axis=1)[:, None]
    return np.asarray(sets | likeliest[..., None])


def about(method: str, data: str, split: int, levels: Sequence[float]) -> Line:
    train, test = split_of(data, split)
    sizes = {"n_train": len(train), "n_test": len(test)}
    return {"method": method, "data": data, "split": split, "seed": split, "levels": list(levels), **sizes}


def fitted(method: str, data: str, split: int, quick: bool) -> tuple[Any, float]:
    """One of our models or baselines, and the seconds of the processor that its fit took."""
    warnings.simplefilter("ignore")  # of sets that are all full, constant columns and outlying rows
    X, y = load_classes(data)
    train, _ = split_of(data, split)
    model = clone(MODELS[method])
    n_ranked = math.ceil(Split().size * len(train)) if model.calibration == "split" else len(train)
    model.set_params(coverage=levels_for(n_ranked, LEVELS), device="cpu", random_state=split)
    if quick:
        brief: Line = {"max_epochs": 10} if method in BASELINES else {"schedule": Schedule(max_rounds=1), "repeats": 1}
        model.set_params(**brief)
    started = time.process_time()
    model.fit(X.iloc[train], y[train])
    return model, round(time.process_time() - started, 2)


def measure(method: str, data: str, split: int, quick: bool) -> list[Line]:
    model, seconds = fitted(method, data, split, quick)
    X, _ = load_classes(data)
    _, test = split_of(data, split)
    rows = X.iloc[test]
    p = model.predict_proba(rows)
    sets, never_empty = (np.asarray(model.predict_set(rows, allow_empty=empty)) for empty in (True, False))
    y = codes_of(data)[test]
    line = about(method, data, split, model.coverage) | measured(p, sets, never_empty, y)
    line["sets"]["strictly"] = strictly_inside(model, rows, y)
    return [{**line, "seconds": seconds, "rounds": len(model.rounds_), **environment("cpu")}]


def strictly_inside(model: Any, rows: pd.DataFrame, y: NDArray[np.intp]) -> list[float]:
    """The share of rows whose score is below the threshold, by level: less than coverage where scores are the same."""
    found = model.predicted(rows, model.coverage)
    scores = model.predictor_.score.of(torch.from_numpy(found.mean)).numpy()
    at = np.arange(len(y)), y
    return [round(float(share), DIGITS) for share in (scores[at][:, None] < found.upper[at] - ROUNDING).mean(axis=0)]


def measure_out_of_fold(method: str, data: str, split: int, quick: bool) -> list[Line]:
    """The same of the training rows, by members that left them out."""
    model, seconds = fitted(method, data, split, quick)
    train, _ = split_of(data, split)
    found = model.out_of_fold_
    known, y = found.known, codes_of(data)[train]
    one, sets = quality(found.probability[known], y[known]), of_sets(found.members[known], y[known])
    kept = {name: sets[name] for name in ("coverage", "size")}
    line = {**about(method, data, split, model.coverage), **one, **kept, "seconds": seconds}
    return [{**line, "rounds": len(model.rounds_), **environment("cpu")}]


def measure_peers(python: str, methods: Sequence[str], data: str, splits: Sequence[int]) -> list[Line]:
    """The lines of all these peers on the same splits, in one process: peers around the same forest share its fits."""
    X, y = encoded(data), codes_of(data)
    parts = [split_of(data, split) for split in splits]
    train, tests = (
        np.stack([rows for rows, _ in parts]),
        {split: rows for split, (_, rows) in zip(splits, parts, strict=True)},
    )
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        X_test = np.stack([X[rows] for rows in tests.values()])
        np.savez(path, X=X[train], y=y[train], X_test=X_test, levels=LEVELS, seeds=splits)
        for answer in answers([python, str(HERE / "class_peers_runner.py"), str(path), *methods]):
            method, split = answer["method"], answer["seed"]
            line = about(method, data, split, LEVELS)
            if "error" in answer:
                lines.append({**line, "error": answer["error"], **environment("cpu")})
                continue
            p = np.array(answer["probability"])
            sets = None if answer["sets"] is None else np.array(answer["sets"], dtype=bool)
            never_empty = None if sets is None else with_likeliest(sets, p)
            line |= measured(p, sets, never_empty, y[tests[split]])
            own = {"seconds": round(answer["seconds"], 2), **environment("cpu"), "versions": answer["versions"]}
            lines.append({**line, **own})
    return lines


def answers(command: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What peers say; they never see the classes of the test rows."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}) as peer:
        assert peer.stdout is not None
        yield from map(json.loads, peer.stdout)
    if peer.returncode != 0:
        raise RuntimeError(f"the peers ended with status {peer.returncode}: their own message stands above")


def kept_without(lines: Iterable[Line], again: Sequence[str]) -> list[Line]:
    return [line for line in lines if line["method"] not in again]


def jobs_of(given: argparse.Namespace, lines: Sequence[Line]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What is not there yet, ours and peers': first splits of all tables before the next ones, small tables first."""
    done = {(line["method"], line["data"], line["split"]) for line in lines}
    tables = sorted(given.tables, key=size_of)
    first = FIRST_SELECTION if given.selection else FIRST_SPLITS
    splits = range(first + given.start, first + given.splits)
    ours = [
        (method, data, split, given.quick)
        for split in splits
        for method in given.methods
        for data in tables
        if method in MODELS and (method, data, split) not in done
        if not (given.selection and method in BASELINES)  # who leave no row out
    ]
    peers: list[tuple[Any, ...]] = []
    for at in range(splits.start, splits.stop, SPLITS_PER_PROCESS):
        chunk = range(at, min(at + SPLITS_PER_PROCESS, splits.stop))
        for data in tables:
            of_data = [m for m in given.methods if m in PEERS and (m not in FOR_SEVERAL or codes_of(data).max() > 1)]
            missing: dict[tuple[str, ...], list[int]] = {}
            for split in chunk:
                methods = tuple(method for method in of_data if (method, data, split) not in done)
                missing.setdefault(methods, []).append(split)
            peers += [(methods, data, which) for methods, which in missing.items() if methods]
    return ours, [] if given.selection else peers


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, stacks=False)
    every = [*MODELS, *PEERS]
    parser.add_argument("--methods", nargs="+", choices=every, default=every, metavar="METHOD", help=", ".join(every))
    parser.add_argument("--tables", nargs="+", choices=CLASS_TABLES, default=CLASS_TABLES, metavar="TABLE")
    parser.add_argument("--splits", type=int, help=f"of each table ({SPLITS}; to choose settings {SELECTION_SPLITS})")
    parser.add_argument("--start", type=int, default=0, help="leave out so many first splits")
    parser.add_argument("--again", nargs="+", choices=every, default=[], metavar="METHOD", help="forget what is stored")
    parser.add_argument("--selection", action="store_true", help="out of fold, for choosing settings; no peers")
    parser.add_argument("--python", type=Path, help="an interpreter that has the peers (default: .venv-class-peers)")
    given = parser.parse_args()
    given.splits = given.splits or (SELECTION_SPLITS if given.selection else SPLITS)
    if given.quick:
        given.tables, given.splits, given.out = QUICK_TABLES, 1, given.out / "quick"
        given.methods = [method for method in given.methods if method in QUICK_METHODS]
    return given


def main() -> None:
    given, end = arguments(), time.time()
    end += given.seconds
    path = given.out / ("classification-selection.jsonl" if given.selection else "classification.jsonl")
    lines = read_lines(path)
    if given.again:
        lines = kept_without(lines, given.again)
        path.unlink(missing_ok=True)
        append(path, *lines)
    ours, peers = jobs_of(given, lines)
    failed = []
    if peers and given.seconds:
        python = str(given.python or peer_python(ENVIRONMENT, REQUIREMENTS, ALONE))
        failed += run_jobs(measure_peers, [(python, *job) for job in peers], path, given.jobs, end)
    failed += run_jobs(measure_out_of_fold if given.selection else measure, ours, path, given.jobs, end)
    text = (selection_report if given.selection else report)(read_lines(path))
    path.with_suffix(".md").write_text(text)
    print(text)
    if failed:
        sys.exit("These failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
