"""Settings of the baselines, compared by out-of-fold scores on splits 100 to 104 of the six tables.

The rule is that of selection.py: no test row is predicted, and one setting is taken for all tables. A baseline keeps no
out-of-fold predictions, so its training rows are cut into five folds, each predicted by a fit on the other four. Each
candidate changes some of the settings of the first one. Lines go to results/selection-baselines.jsonl; what is there is
not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_lines import append, environment, read_lines
from selection import LEVELS, SPLITS, scores
from sklearn.model_selection import KFold

from coverwell import MLP, baselines, fit_together
from reproduction.data.tables import TABLES, load_table
from reproduction.domains.tables import random_split

FOLDS = 5

MC, CONCRETE, BAYES = "MCDropoutRegressor", "ConcreteDropoutRegressor", "BayesByBackpropRegressor"
# Where each search began; the defaults of the classes are where it ended.
NETWORKS = {
    MC: MLP(hidden=256, dropout=0.5),
    CONCRETE: MLP(hidden=128, dropout=0.1),
    BAYES: MLP(hidden=128, dropout=0.0),
    "NeuralQuantileRegressor": MLP(hidden=128, dropout=0.1),
    "HeteroscedasticRegressor": MLP(hidden=128, dropout=0.1),
    "DeepEnsembleRegressor": MLP(hidden=128, dropout=0.1),
}


def sized(name: str, **changes: Any) -> dict[str, Any]:
    """The settings that a search began with, its network changed."""
    first = NETWORKS[name]
    beside = {"kl_weight": 1.0} if name == BAYES else {}
    return {"network": MLP(**{**vars(first), **changes}), "learning_rate": 1e-3, **beside}


def plain_candidates(name: str) -> dict[str, dict[str, Any]]:
    return {
        "first": sized(name),
        "hidden 64": sized(name, hidden=64),
        "hidden 256": sized(name, hidden=256),
        "no dropout": sized(name, dropout=0.0),
        "dropout .2": sized(name, dropout=0.2),
        "dropout .3": sized(name, dropout=0.3),
        "no bins": sized(name, bins=0),
        "4 layers": sized(name, layers=4),
        "learning rate 2e-3": {**sized(name), "learning_rate": 2e-3},
        "learning rate 5e-4": {**sized(name), "learning_rate": 5e-4},
        "a fifth held out": {**sized(name), "validation_size": 0.2},
    }


CANDIDATES: dict[str, dict[str, dict[str, Any]]] = {
    MC: {
        "first": sized(MC),
        "hidden 128": sized(MC, hidden=128),
        "hidden 512": sized(MC, hidden=512),
        "hidden 1024": sized(MC, hidden=1024),
        "no bins": sized(MC, bins=0),
        "4 layers": sized(MC, layers=4),
        "3 layers": sized(MC, layers=3),
        "3 layers, hidden 512": sized(MC, layers=3, hidden=512),
        "3 layers, hidden 1024": sized(MC, layers=3, hidden=1024),
        "learning rate 2e-3": {**sized(MC), "learning_rate": 2e-3},
        "learning rate 5e-4": {**sized(MC), "learning_rate": 5e-4},
        "length scale .1": {**sized(MC), "length_scale": 0.1},
    },
    CONCRETE: {
        "first": sized(CONCRETE),
        "hidden 64": sized(CONCRETE, hidden=64),
        "hidden 256": sized(CONCRETE, hidden=256),
        "start .05": sized(CONCRETE, dropout=0.05),
        "start .3": sized(CONCRETE, dropout=0.3),
        "no bins": sized(CONCRETE, bins=0),
        "4 layers": sized(CONCRETE, layers=4),
        "length scale .1": {**sized(CONCRETE), "length_scale": 0.1},
        "length scale .001": {**sized(CONCRETE), "length_scale": 0.001},
        "learning rate 2e-3": {**sized(CONCRETE), "learning_rate": 2e-3},
        "learning rate 5e-4": {**sized(CONCRETE), "learning_rate": 5e-4},
    },
    BAYES: {
        "first": sized(BAYES),
        "KL weight .3": {**sized(BAYES), "kl_weight": 0.3},
        "KL weight .1": {**sized(BAYES), "kl_weight": 0.1},
        "KL weight .03": {**sized(BAYES), "kl_weight": 0.03},
        "KL weight .01": {**sized(BAYES), "kl_weight": 0.01},
        "KL weight .003": {**sized(BAYES), "kl_weight": 0.003},
        "KL weight .03, prior scale 2": {**sized(BAYES), "kl_weight": 0.03, "prior_scale": 2.0},
        "KL weight .03, hidden 64": {**sized(BAYES, hidden=64), "kl_weight": 0.03},
        "KL weight .03, no bins": {**sized(BAYES, bins=0), "kl_weight": 0.03},
        "KL weight .03, 3 layers": {**sized(BAYES, layers=3), "kl_weight": 0.03},
        "KL weight .03, learning rate 2e-3": {**sized(BAYES), "kl_weight": 0.03, "learning_rate": 2e-3},
    },
    **{
        name: plain_candidates(name)
        for name in ("NeuralQuantileRegressor", "HeteroscedasticRegressor", "DeepEnsembleRegressor")
    },
}


def run(method: str, candidate: str, data_name: str, splits: list[int], device: str, **more: Any) -> dict[str, Any]:
    """One line: a candidate on all folds of all splits of a table, fitted as one stack."""
    data = load_table(data_name)
    rows = [random_split(len(data.y), split)[0] for split in splits]
    folds = [
        (own[fit], own[left_out])
        for split, own in zip(splits, rows, strict=True)
        for fit, left_out in KFold(FOLDS, shuffle=True, random_state=split).split(own)
    ]
    settings = {**CANDIDATES[method][candidate], **more}
    kind = getattr(baselines, method)
    models = [kind(LEVELS, random_state=number, device=device, **settings) for number in range(len(folds))]
    started = time.perf_counter()
    fit_together(models, [(data.X[fit], data.y[fit], None) for fit, _ in folds])
    seconds = round(time.perf_counter() - started, 1)
    y_hat, lower, upper = np.full(len(data.y), np.nan), *(np.full((len(data.y), len(LEVELS)), np.nan) for _ in "lu")
    each = []
    for first in range(0, len(folds), FOLDS):
        for model, (_, left_out) in zip(models[first : first + FOLDS], folds[first : first + FOLDS], strict=True):
            y_hat[left_out] = model.predict(data.X[left_out])
            lower[left_out], upper[left_out] = model.predict_interval(data.X[left_out])
        own = rows[first // FOLDS]
        each.append(scores(data.y[own], y_hat[own], lower[own], upper[own]))
    return {
        "method": method,
        "candidate": candidate,
        "data": data_name,
        "splits": splits,
        **{key: [line[key] for line in each] for key in each[0]},
        "rounds": [len(model.rounds_) for model in models],
        "seconds": seconds,
        **environment(device),
    }


def report(lines: list[dict[str, Any]]) -> str:
    """For each method its candidates over the first, table by table: RMSE / weighted score."""
    devices = sorted({f"{line['device']}, torch {line['versions']['torch']}" for line in lines})
    text = [
        "# How the settings of the baselines were chosen",
        f"`make bench-selection`: five-fold out-of-fold scores on splits 100 to 104, no test row was predicted. "
        f"Devices: {'; '.join(devices)}. Each cell: out-of-fold RMSE / mean pinball loss over the levels .5 to .99, "
        "both relative to the first row, which has the values themselves. Below 1 is better. The last column is the "
        "geometric mean over the tables and both scores. The candidate with the lowest one was chosen, among those "
        "that were run on all tables.",
    ]
    for method in dict.fromkeys(line["method"] for line in lines):
        text += [f"## {method}", candidates_table([line for line in lines if line["method"] == method])]
    return "\n\n".join(text) + "\n"


def candidates_table(lines: list[dict[str, Any]]) -> str:
    """One method's candidates; only tables on which its first candidate was run."""
    means = {(line["candidate"], line["data"]): [np.mean(line["rmse"]), np.mean(line["weighted"])] for line in lines}
    tables = [name for name in TABLES if ("first", name) in means]
    rows = [f"| candidate | {' | '.join(tables)} | both |", "|" + "---|" * (len(tables) + 2)]
    for candidate in dict.fromkeys(line["candidate"] for line in lines):
        shares = {t: np.divide(means[candidate, t], means["first", t]) for t in tables if (candidate, t) in means}
        shown = {t: means["first", t] for t in tables} if candidate == "first" else shares
        cells = [f"{shown[t][0]:.4g} / {shown[t][1]:.4g}" if t in shown else "-" for t in tables]
        both = f"{np.exp(np.mean(np.log(list(shares.values())))):.4f}" if len(shares) == len(tables) else "-"
        rows.append(f"| {candidate} | {' | '.join(cells)} | {both} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--data", nargs="*", default=TABLES)
    parser.add_argument("--candidates", nargs="*", help="some of the candidates (default: all of a method)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="one split of the two small tables, twenty epochs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    splits, more, name = list(SPLITS), {}, "selection-baselines"
    if arguments.quick:
        splits, more, name, arguments.data = [100], {"max_epochs": 20}, f"{name}-quick", ["boston", "auto mpg"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{name}.jsonl"
    done = {(line["method"], line["candidate"], line["data"]) for line in read_lines(path)}
    for method in arguments.methods:
        for data in arguments.data:
            for candidate in arguments.candidates or CANDIDATES[method]:
                if (method, candidate, data) in done:
                    continue
                line = run(method, candidate, data, splits, arguments.device, **more)
                append(path, line)
                shown = {key: line[key] for key in ("method", "candidate", "data", "seconds")}
                print(json.dumps({**shown, "rmse": round(float(np.mean(line["rmse"])), 4)}), flush=True)
    (arguments.out / f"{name}.md").write_text(report(read_lines(path)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
