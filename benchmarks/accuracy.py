"""Accuracy and calibration on eighteen tables and five synthetic laws, beside the plain team and the form as published.

One JSON line per run (method, data, split) goes to results/accuracy.jsonl; runs that are there are skipped, so that the
command can be stopped and started at will. The tables in results/accuracy.md are made from those lines alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accuracy_report
import numpy as np
import torch
from flat_settings import FIRST_VERSION, as_arguments
from result_lines import append, environment, read_lines
from sklearn.ensemble import RandomForestRegressor
from tqdm import tqdm

from coverwell import MatchedRegressor, fit_together, metrics
from coverwell.regressor import AS_PUBLISHED
from reproduction.data.tables import MORE_TABLES, load_table
from reproduction.domains.tables import LEVELS, random_split
from tests.synthetic import laws

# The default of the first runs, which shaped intervals by I alone and trained for at most 40 rounds.
FIRST: dict[str, Any] = {**FIRST_VERSION, "shape": "interval", "max_rounds": 40}
METHODS: dict[str, dict[str, Any]] = {
    "Sigma Fit": FIRST,
    "IQR Fit": {**FIRST, "matching": "iqr"},
    "plain team": {**FIRST, "matching": None},
    "Sigma Fit, default now": FIRST_VERSION,
    "as published, Sigma Fit": {**AS_PUBLISHED},
    "as published, IQR Fit": {**AS_PUBLISHED, "matching": "iqr"},
}
FOREST = "random forest, out-of-bag ranks"  # a yardstick on the same splits that needs no tuning
TABLES = ("boston", "auto mpg", "red wine", "crime", "white wine", "parkinsons", *MORE_TABLES)
BY_PATIENT = "parkinsons by patient"
SPLITS = 20
LAW_ROWS, LAW_TEST_ROWS = 1000, 100_000


class Run:
    """The rows of one run: a split of a table, or a draw from a law."""

    def __init__(self, name: str, split: int) -> None:
        self.name, self.split, self.groups = name, split, None
        self.law = laws().get(name)
        if self.law:
            self.X, self.y = self.law.draw(LAW_ROWS, random_state=split)
            self.X_test, self.y_test = self.law.draw(LAW_TEST_ROWS, random_state=1_000_000 + split)
            return
        data = load_table("parkinsons" if name == BY_PATIENT else name)
        train, test = random_split(len(data.y), split, data.groups if name == BY_PATIENT else None)
        self.X, self.y, self.X_test, self.y_test = data.X[train], data.y[train], data.X[test], data.y[test]
        self.groups = data.groups[train] if name == BY_PATIENT else None

    def measure(self, y_hat: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> dict[str, Any]:
        """Scores on the test rows; bounds (row, level)."""
        truth = self.law.true_mean(self.X_test) if self.law else self.y_test
        if self.law:  # the law is known: no noise from drawn targets
            coverage = [
                float(np.mean(self.law.exact_coverage(self.X_test, lo, up)))
                for lo, up in zip(lower.T, upper.T, strict=True)
            ]
            oracle = [self.law.true_interval(self.X_test, p) for p in LEVELS]
        else:
            coverage = [metrics.coverage(self.y_test, lo, up) for lo, up in zip(lower.T, upper.T, strict=True)]
            oracle = None
        scores = [
            metrics.interval_score(self.y_test, lo, up, p) for lo, up, p in zip(lower.T, upper.T, LEVELS, strict=True)
        ]
        measured = {
            "n_train": len(self.y),
            "n_test": len(self.y_test),
            "rmse": metrics.rmse(truth, y_hat),
            "coverage": coverage,
            "width": [metrics.average_width(lo, up) for lo, up in zip(lower.T, upper.T, strict=True)],
            "interval_score": scores,
        }
        if oracle:
            measured["oracle_score"] = [
                metrics.interval_score(self.y_test, lo, up, p) for (lo, up), p in zip(oracle, LEVELS, strict=True)
            ]
        return measured


def fit_and_measure(method: str, runs: list[Run], device: str, **more: Any) -> Iterator[dict[str, Any]]:
    """Fit one method on several runs as one stack and yield one line for each."""
    settings = as_arguments({**METHODS[method], **more})
    started = time.perf_counter()
    if method.startswith("as published"):  # one network per level
        models = [
            [MatchedRegressor(p, random_state=run.split, device=device, **settings) for p in LEVELS] for run in runs
        ]
    else:
        models = [[MatchedRegressor(LEVELS, random_state=run.split, device=device, **settings)] for run in runs]
    fit_together(
        [model for own in models for model in own],
        [(run.X, run.y, run.groups) for run, own in zip(runs, models, strict=True) for _ in own],
    )
    seconds = (time.perf_counter() - started) / len(runs)
    for run, own in zip(runs, models, strict=True):
        intervals = [model.predict_interval(run.X_test) for model in own]
        lower = np.concatenate([i.lower.reshape(len(run.X_test), -1) for i in intervals], axis=1)
        upper = np.concatenate([i.upper.reshape(len(run.X_test), -1) for i in intervals], axis=1)
        at = LEVELS.index(0.9) if len(own) > 1 else 0
        yield {
            "method": method,
            "data": run.name,
            "split": run.split,
            "levels": LEVELS,
            **run.measure(own[at].predict(run.X_test), lower, upper),
            "rounds": len(own[at].rounds_),
            "members": own[at].predictor_.fitted_teams[0].n_members,
            "seconds": round(seconds, 2),
            "stack": len(runs),
            **environment(device),
        }


def forest_and_measure(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """A random forest with a constant width from the ranks of its out-of-bag residuals."""
    for run in runs:
        started = time.perf_counter()
        forest = RandomForestRegressor(500, oob_score=True, n_jobs=-1, random_state=run.split).fit(run.X, run.y)
        sizes = np.sort(np.abs(run.y - forest.oob_prediction_))
        half_width = np.array([sizes[metrics.coverage_rank(p, len(sizes)) - 1] for p in LEVELS])
        y_hat = forest.predict(run.X_test)
        yield {
            "method": FOREST,
            "data": run.name,
            "split": run.split,
            "levels": LEVELS,
            **run.measure(y_hat, y_hat[:, None] - half_width, y_hat[:, None] + half_width),
            "rounds": 0,
            "members": 500,
            "seconds": round(time.perf_counter() - started, 2),
            "stack": 1,
            **environment("cpu"),
        }


def main() -> None:
    law_names = tuple(laws())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=[*METHODS, FOREST], choices=[*METHODS, FOREST])
    parser.add_argument("--data", nargs="*", default=[*TABLES, *law_names, BY_PATIENT])
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--stack", type=int, help="runs fitted at once (default: all on a GPU, one on a CPU)")
    parser.add_argument("--quick", action="store_true", help="three splits of the two small tables, on any device")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    more: dict[str, Any] = {}
    name = "accuracy"
    if arguments.quick:
        arguments.data, arguments.splits, name = ["boston", "auto mpg"], 3, "accuracy-quick"
        more = {"max_rounds": 12}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{name}.jsonl"
    done = {(line["method"], line["data"], line["split"]) for line in read_lines(path)}
    on_gpu = arguments.device == "cuda" or (arguments.device == "auto" and torch.cuda.is_available())
    size = arguments.stack or (SPLITS if on_gpu else 1)
    todo = [
        (method, data, split)
        for data in arguments.data
        for method in arguments.methods
        for split in range(arguments.splits)
        if (method, data, split) not in done
        and not (method.startswith("as published") and data == BY_PATIENT)
        and not (method == FOREST and data in law_names)
    ]
    with tqdm(total=len(todo), unit="run") as bar:
        while todo:
            method, data, _ = todo[0]
            part = [run for run in todo if run[:2] == (method, data)][:size]
            bar.set_description(f"{method} on {data}")
            runs = [Run(data, split) for _, _, split in part]
            lines = (
                forest_and_measure(runs)
                if method == FOREST
                else fit_and_measure(method, runs, arguments.device, **more)
            )
            for line in lines:
                append(path, line)
                bar.update()
            todo = [run for run in todo if run not in part]
    text = accuracy_report.report(read_lines(path), quick=arguments.quick)
    (arguments.out / f"{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
