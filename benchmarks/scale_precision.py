"""Whether matrix products in TF32 make fits faster, and whether they hurt: out-of-fold scores on the six tables.

The default model is fitted on the training rows of splits 100 to 104, as one stack a table, with products in FP32, in
TF32, and in FP32 with other seeds: what another seed changes is what a difference has to be measured by. No test row is
predicted. Each fit has a process of its own; several run side by side, so that their seconds are not compared. Those
that are come from one table, on which both precisions take turns alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import Any

import numpy as np
import torch
from flat_settings import as_arguments
from scale_floors import precision

from coverwell import MatchedRegressor, fit_together, metrics
from reproduction.data import load_table
from reproduction.domains.tables import random_split

ASKED = 0.9
SPLITS = tuple(range(100, 105))
OTHER_SEEDS = 1000  # added to the numbers of the splits
WAYS = {"FP32": ("FP32", 0), "TF32": ("TF32", 0), "FP32, other seeds": ("FP32", OTHER_SEEDS)}
TABLES = ("parkinsons", "white wine", "red wine", "crime", "boston", "auto mpg")  # the longest first
TIMED = "boston"
TURNS = 2
AT_ONCE = 6
QUICK = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1, "repeats": 1}
SCORES = ("coverage", "width", "interval score", "rmse")


def fit(table: str, way: str, splits: Sequence[int], device: str, **changes: Any) -> dict[str, Any]:
    """Seconds of one stack, and its out-of-fold scores split by split."""
    name, more = WAYS[way]
    data = load_table(table)
    rows = [random_split(len(data.y), split)[0] for split in splits]
    arguments = {"device": device, **as_arguments(changes)}
    models = [MatchedRegressor(ASKED, random_state=split + more, **arguments) for split in splits]
    started = time.perf_counter()
    with precision(name):
        fit_together(models, [(data.X[own], data.y[own], None) for own in rows])
    seconds = time.perf_counter() - started
    each = [scores_of(model, data.y[own]) for model, own in zip(models, rows, strict=True)]
    return {
        "table": table,
        "way": way,
        "splits": list(splits),
        "seconds": seconds,
        "rounds": [len(model.rounds_) for model in models],
        **{score: [one[score] for one in each] for score in SCORES},
    }


def scores_of(model: MatchedRegressor, y: np.ndarray) -> dict[str, float]:
    found = model.out_of_fold_
    prediction, lower, upper = found.prediction[:, 0], found.lower[:, 0, 0], found.upper[:, 0, 0]
    return {
        "coverage": metrics.coverage(y, lower, upper),
        "width": metrics.average_width(lower, upper),
        "interval score": metrics.interval_score(y, lower, upper, ASKED),
        "rmse": metrics.rmse(y, prediction),
    }


def in_own_process(table: str, way: str, device: str, *, quick: bool) -> dict[str, Any]:
    words = [sys.executable, __file__, table, way, "--device", device, *(["--quick"] if quick else [])]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(device: torch.device, *, quick: bool, tables: Sequence[str] | None = None) -> dict[str, Any]:
    """Scores of all ways on the tables, and seconds of both precisions on one of them."""
    chosen = tables or (("boston",) if quick else TABLES)
    turns = 1 if quick else TURNS
    timed = [in_own_process(TIMED, way, str(device), quick=quick) for _ in range(turns) for way in ("FP32", "TF32")]
    with ThreadPoolExecutor(1 if device.type == "cpu" else AT_ONCE) as pool:
        waiting = [pool.submit(in_own_process, t, way, str(device), quick=quick) for t in chosen for way in WAYS]
        fits = [one.result() for one in waiting]
    return {"asked": ASKED, "timed": timed, "fits": fits}


def together(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """New results beside earlier ones of tables that were not run again."""
    again = {one["table"] for one in found["fits"]}
    return {**found, "fits": [one for one in before["fits"] if one["table"] not in again] + found["fits"]}


# The report ----------------------------------------------------------------------------------------------------------


def lines(found: dict[str, Any], device: str) -> str:
    text = [
        "### TF32 and FP32",
        "",
        f"Default fits at level {found['asked']}: means of out-of-fold scores over splits {SPLITS[0]} to {SPLITS[-1]}. "
        f"{seconds_in_words(found)}",
        "",
        "| table | products | coverage | width | interval score | RMSE | rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(found["fits"], key=lambda one: TABLES.index(one["table"])):
        cells = [f"{mean(one['coverage']):.4f}", *(f"{mean(one[score]):.4g}" for score in SCORES[1:])]
        text.append(f"| {one['table']} | {one['way']} | " + " | ".join(cells) + f" | {mean(one['rounds']):.1f} |")
    return "\n".join([*text, "", changes_in_words(found["fits"])])


def seconds_in_words(found: dict[str, Any]) -> str:
    """By seconds a round: stacks of other precision take other numbers of rounds."""
    words = []
    for way in ("FP32", "TF32"):
        own = [one for one in found["timed"] if one["way"] == way]
        best = min(own, key=lambda one: one["seconds"])
        per_round = best["seconds"] / max(best["rounds"])
        words.append(f"{best['seconds']:.1f} s in {way} ({1e3 * per_round:.0f} ms a round of {max(best['rounds'])})")
    return f"One stack of {len(found['timed'][0]['splits'])} splits of {TIMED}, alone: {', '.join(words)}."


def changes_in_words(fits: list[dict[str, Any]]) -> str:
    """How far TF32 and other seeds move each score from FP32, over all tables."""
    words = []
    for way in ("TF32", "FP32, other seeds"):
        shift = mean(change(fits, way, "coverage", relative=False))
        ratios = [1 + mean(change(fits, way, score, relative=True)) for score in SCORES[1:]]
        words.append(
            f"{way}: coverage {shift:+.4f}, width x {ratios[0]:.3f}, interval score x {ratios[1]:.3f}, RMSE x "
            f"{ratios[2]:.3f}"
        )
    return "Means over the tables, relative to FP32. " + ". ".join(words) + "."


def change(fits: list[dict[str, Any]], way: str, score: str, *, relative: bool) -> list[float]:
    """What a way changes beside FP32, table by table."""
    by_key = {(one["table"], one["way"]): mean(one[score]) for one in fits}
    pairs = [(by_key[table, way], by_key[table, "FP32"]) for table in TABLES if (table, way) in by_key]
    return [(own - base) / (base if relative else 1.0) for own, base in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description="One stack of fits; its result as a line of JSON.")
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    splits, changes = (SPLITS[:1], QUICK) if asked.quick else (SPLITS, {})
    print(json.dumps(fit(asked.table, asked.way, splits, asked.device, **changes)))


if __name__ == "__main__":
    main()
