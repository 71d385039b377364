"""Accuracy and calibration of the default on eighteen tables and five synthetic distributions, on splits 0 to 19.

One JSON line per fit (method, data, split) goes to results/accuracy.jsonl; what is there is not run again, so that the
command can be stopped and started at will. The tables in results/accuracy.md are made from those lines, and from those
of the competitors, alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import accuracy_report
import numpy as np
import torch
from flat_settings import FIRST_VERSION, as_arguments
from machine import seconds_of
from peers import TRIALS, n_trials
from result_lines import environment, read_lines
from table_fits import QUICK_ROUNDS, QUICK_TABLES, Line, add_arguments, interval_scores, levels_for, run_jobs, size_of

from coverwell import MatchedRegressor, fit_together, metrics
from coverwell.regressor import AS_PUBLISHED
from coverwell.training.device import device_from
from reproduction.data.tables import DEVELOPMENT_TABLES
from reproduction.domains.tables import BY_PATIENT, Rows, rows_of, table
from tests.synthetic import laws

METHODS: dict[str, dict[str, Any]] = {
    "coverwell": {},
    "0.1.0": FIRST_VERSION,
    "as published, Sigma Fit": AS_PUBLISHED,
    "as published, IQR Fit": {**AS_PUBLISHED, "matching": "iqr"},
}
OTHER_LEVELS = (0.6, 0.73, 0.85)  # asked after the fit; 0.73 lies between those that are ranked
LAWS = laws()
LAW_ROWS, LAW_TEST_ROWS = 1000, 100_000
LAW_COST = 1.0  # of a fit: after those of the tables


def drawn(name: str, split: int) -> Rows:
    """The rows of one run: a split of a table, or a draw from a distribution."""
    if name not in LAWS:
        return rows_of(name, split)
    X, y = LAWS[name].draw(LAW_ROWS, random_state=split)
    return Rows(X, y, None, *LAWS[name].draw(LAW_TEST_ROWS, random_state=1_000_000 + split))


def run(method: str, name: str, splits: Sequence[int], device: str, more: dict[str, Any]) -> list[Line]:
    """A line for each split: a fit of all levels, as published one fit of each, measured on the test rows."""
    settings, published = as_arguments({**METHODS[method], **more}), method.startswith("as published")
    rows = [drawn(name, split) for split in splits]
    levels = levels_for(len(rows[0].y))
    each = levels if published else [levels]
    models = [
        [MatchedRegressor(asked, random_state=split, device=device, **settings) for asked in each] for split in splits
    ]
    tables = [(own.X, own.y, own.groups) for own, fits in zip(rows, models, strict=True) for _ in fits]
    seconds = seconds_of(
        lambda: fit_together([model for fits in models for model in fits], tables), device_from(device)
    )
    known = levels if published else tuple(sorted({*levels, *OTHER_LEVELS}))
    lines = []
    for split, own, fits in zip(splits, rows, models, strict=True):
        found = [model.predict_interval(own.X_test, coverage=None if published else known) for model in fits]
        lower, upper = (np.column_stack(sides) for sides in zip(*found, strict=True))  # (row, level)
        model = fits[levels.index(0.9)] if published else fits[0]
        line = {
            "method": method,
            "data": name,
            "split": split,  # also the seed, of a stack the first one
            "levels": known,
            "asked": levels,
            **measured(name, own, model.predict(own.X_test), lower, upper, known),
            "rounds": len(model.rounds_),
            "members": model.predictor_.fitted_teams[0].n_members,
            "seconds": round(seconds / len(splits), 2),
            "stack": len(splits),
            **environment(device),
        }
        lines.append(line)
    return lines


def measured(name: str, rows: Rows, y_hat: np.ndarray, lower: np.ndarray, upper: np.ndarray, levels: Any) -> Line:
    """Scores on the test rows. Where the distribution is known, no drawn targets blur the error and the coverage."""
    found: Line = {
        "n_train": len(rows.y),
        "n_test": len(rows.y_test),
        "values": len(np.unique(rows.y)),
        "rmse": metrics.rmse(rows.y_test, y_hat),
        **interval_scores(rows.y_test, lower, upper, levels),
        "strictly_inside": np.mean((lower < rows.y_test[:, None]) & (rows.y_test[:, None] < upper), axis=0).tolist(),
    }
    if name in LAWS:
        law, X, sides = LAWS[name], rows.X_test, zip(lower.T, upper.T, strict=True)
        oracle = [np.column_stack(side) for side in zip(*(law.true_interval(X, p) for p in levels), strict=True)]
        found["rmse"] = metrics.rmse(law.true_mean(X), y_hat)
        found["coverage"] = [float(np.mean(law.exact_coverage(X, low, high))) for low, high in sides]
        found["oracle_score"] = interval_scores(rows.y_test, *oracle, levels)["interval_score"]
    return found


def jobs_of(methods: Sequence[str], names: Sequence[str], splits: Sequence[int], stack: int, path: Path) -> Iterator:
    """What is not there yet, as (method, data, splits), large tables first, which have fewer splits."""
    done = {(line["method"], line["data"], line["split"]) for line in read_lines(path)}
    for name in sorted(names, key=lambda name: LAW_COST if name in LAWS else size_of(name), reverse=True):
        n_rows = LAW_ROWS if name in LAWS else len(table(name).y)
        for method in methods:
            own = [split for split in splits if split < n_trials(n_rows) and (method, name, split) not in done]
            yield from ((method, name, own[at : at + stack]) for at in range(0, len(own), stack))


def main() -> None:
    every = (*DEVELOPMENT_TABLES, *LAWS, BY_PATIENT)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["coverwell"], choices=list(METHODS))
    parser.add_argument("--data", nargs="+", default=every, choices=every)
    parser.add_argument("--splits", nargs="+", type=int, default=range(TRIALS), help="fewer of a table with many rows")
    add_arguments(parser)
    given = parser.parse_args()
    end, name, more = time.time() + given.seconds, "accuracy", {}
    if given.quick:
        given.data, given.splits, name = (*QUICK_TABLES, next(iter(LAWS))), range(2), "accuracy-quick"
        more = QUICK_ROUNDS
    path = given.out / f"{name}.jsonl"
    jobs = [(*job, given.device, more) for job in jobs_of(given.methods, given.data, given.splits, given.stack, path)]
    failed = run_jobs(run, jobs, path, given.jobs, end)
    if lines := read_lines(path):
        text = accuracy_report.report(lines)
        path.with_suffix(".md").write_text(text)
        print(text)
    if failed:
        sys.exit("These fits failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
