"""Coverage after a covariate shift, and after `recalibrate`.

Half of a table trains. Of the other half, a share is drawn with probabilities in proportion to exp(tilt z), where z is
the standardised position of a row along a direction, held within [-3, 2]: the first principal component, a random
column, or where training rows are missed most (least squares of out-of-fold misses). `recalibrate` sees half of the
drawn rows, and coverage is measured on the others.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from typing import Any

import numpy as np
from result_lines import environment, read_lines
from sklearn.ensemble import RandomForestRegressor
from table_fits import add_arguments, run_jobs

from coverwell import IntervalAround, MatchedRegressor, Schedule, metrics
from coverwell.shift import FEWEST_NEW
from reproduction.domains.tables import table

ASKED = 0.9
TILT, ENDS, DRAWN = 2.0, (-3.0, 2.0), 0.4
MOST_TRAIN, MOST_TEST, N_LABELLED = 1000, 4000, 100
# Targets with many values: where they take few, ends at these values cover more than asked.
TABLES = ("boston", "auto mpg", "stock", "energy", "pendulum", "skillcraft", "sml", "parkinsons", "elevators")
QUICK_TABLES = ("boston", "energy")
COMPONENT, COLUMN, MISSES = DIRECTIONS = ("first principal component", "random column", "where rows are missed")
NETWORKS, FOREST, ONE_WIDTH = MODELS = ("networks, local", "forest, local", "forest, cross")
HEADS = ("model", "direction", "draws", "no shift", "shifted", "after (X)", "CE shifted", "after (X)")
HEADS += ("interval score (X)", "worth, of ranked rows", "refused")
HEADS += ("draws (X, y)", "shifted", "after (X, y)", "CE shifted", "after (X, y)", "interval score (X, y)")


def model_of(name: str, seed: int, device: str) -> Any:
    if name == NETWORKS:
        return MatchedRegressor(ASKED, schedule=Schedule(max_rounds=2), device=device, random_state=seed)
    calibration = "local" if name == FOREST else "cross"
    return IntervalAround(RandomForestRegressor(min_samples_leaf=2), ASKED, calibration=calibration, random_state=seed)


def along(direction: str, X: np.ndarray, X_train: np.ndarray, missed: np.ndarray, rng: Any) -> np.ndarray:
    """How far the rows of X lie along a direction, standardised and held within the ends."""
    centre, spread, varies = X.mean(axis=0), X.std(axis=0), X.std(axis=0) > 0
    Z, Z_train = (((rows - centre) / np.where(varies, spread, 1))[:, varies] for rows in (X, X_train))
    axis = np.zeros(Z.shape[1])
    if direction == COMPONENT:
        axis = np.linalg.svd(Z, full_matrices=False)[2][0] * rng.choice([-1, 1])
    elif direction == COLUMN:
        axis[rng.integers(len(axis))] = rng.choice([-1, 1])
    else:
        ridge = Z_train.T @ Z_train + len(Z_train) / 10 * np.eye(len(axis))
        axis = np.linalg.solve(ridge, Z_train.T @ (missed - missed.mean()))
    return np.clip(Z @ axis / (Z @ axis).std(), *ENDS)


def measured(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    lower, upper = model.predict_interval(X)
    return {
        "coverage": metrics.coverage(y, lower, upper),
        "interval_score": metrics.interval_score(y, lower, upper, ASKED),
    }


def measure(name: str, data: str, split: int, device: str) -> list[dict]:
    """A line for each direction, of one fit."""
    whole, rng = table(data), np.random.default_rng(split)
    train, test = np.array_split(rng.permutation(len(whole.y)), 2)
    train, test = train[:MOST_TRAIN], test[:MOST_TEST]
    X_train, y_train, X, y = whole.X[train], whole.y[train], whole.X[test], whole.y[test]
    model = model_of(name, split, device).fit(X_train, y_train)
    known, lines = model.out_of_fold_, []
    missed = (known.lower[:, 0, 0] > y_train) | (y_train > known.upper[:, 0, 0])
    for direction in DIRECTIONS:
        model.recalibrate(X_train)  # starts from the fit
        chance = np.exp(TILT * along(direction, X, X_train, missed, rng))
        drawn = rng.choice(len(X), int(DRAWN * len(X)), replace=False, p=chance / chance.sum())
        new, rest = np.array_split(rng.permutation(drawn), 2)
        line = {"model": name, "data": data, "split": split, "direction": direction, "n_train": len(train)}
        line |= {"n_new": len(new), "no_shift": measured(model, X, y), "shifted": measured(model, X[rest], y[rest])}
        for way, given in {"X": (X[new],), "X, y": (X[new][:N_LABELLED], y[new][:N_LABELLED])}.items():
            if len(given[0]) < {"X": FEWEST_NEW, "X, y": N_LABELLED}[way]:
                continue
            try:
                found = model.recalibrate(*given).recalibration_
                about = {"worth": found.n_effective, "n_ranked": found.n_ranked, "outside": found.share_outside}
                line[way] = {**measured(model, X[rest], y[rest]), **about}
            except ValueError as error:  # worth too few
                line[way] = {**line["shifted"], "refused": str(error)}
        lines.append({**line, **environment(device)})
    return lines


def report(lines: list[dict]) -> str:
    n_tables, splits = len({line["data"] for line in lines}), sorted({line["split"] for line in lines})
    versions = ", ".join(f"{package} {version}" for package, version in lines[0]["versions"].items())
    text = [
        "# Coverage after a covariate shift, with and without `recalibrate`",
        f"`make bench-shift`; level {ASKED:g}, {n_tables} tables, splits {splits[0]} to {splits[-1]}, which are the "
        f"seeds; {lines[0]['device']}, {versions}. Half of a table trains, at most {MOST_TRAIN:,} rows. Of the others, "
        f"{100 * DRAWN:.0f} % are drawn, in proportion to exp({TILT:g} z) along one of three directions. Networks have "
        "two rounds, forests scikit-learn's 100 trees: the question is coverage, not sharpness.",
        f"(X): half of the drawn rows without targets. (X, y): {N_LABELLED} of them with targets, where there are so "
        f"many. Coverage is that of the other half, averaged over draws; CE is the mean of |coverage - {ASKED:g}|, "
        "chance in the few rows that measure it included; the interval score is relative to the one before, a "
        "geometric mean; worth is a median. Draws that were refused count with the widths of the fit.",
    ]
    rows = [HEADS, ["---"] * len(HEADS)]
    for name in dict.fromkeys(line["model"] for line in lines):
        for direction in (*DIRECTIONS, None):
            own = [line for line in lines if line["model"] == name and direction in (line["direction"], None)]
            rows.append([name, direction or "**all**", *cells(own)])
    table_rows = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n\n".join([*text, "\n".join(table_rows)]) + "\n"


def cells(lines: list[dict]) -> list[str]:
    """Of the lines of a model and a direction, for both ways to recalibrate."""
    found = []
    for way in ("X", "X, y"):
        own = [line for line in lines if way in line]
        before, after = ([line[when] for line in own] for when in ("shifted", way))
        coverage = [np.array([one["coverage"] for one in part]) for part in (before, after)]
        ratios = [new["interval_score"] / old["interval_score"] for old, new in zip(before, after, strict=True)]
        unshifted = [[line["no_shift"]["coverage"] for line in own]] if way == "X" else []
        found += [str(len(own)), *(f"{np.mean(part):.3f}" if own else "" for part in (*unshifted, *coverage))]
        found += [f"{np.mean(np.abs(part - ASKED)):.3f}" if own else "" for part in coverage]
        found.append(f"{np.exp(np.mean(np.log(ratios))):.3f}" if own else "")
        if way == "X":
            worth = [(one["worth"], one["n_ranked"]) for one in after if "worth" in one]
            found.append("{:.0f} of {:.0f}".format(*np.median(worth, axis=0)) if worth else "")
            found.append(str(sum("refused" in one for one in after)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, stacks=False)
    parser.add_argument("--first-split", type=int, default=0, help="100 to choose settings")
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    tables, n_splits = (QUICK_TABLES, 1) if given.quick else (TABLES, given.splits)
    splits = range(given.first_split, given.first_split + n_splits)
    path = given.out / ("shift-quick.jsonl" if given.quick else "shift.jsonl")
    if given.quick:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["model"], line["data"], line["split"]) for line in read_lines(path)}
    jobs = [job for job in product(MODELS, tables, splits) if job not in done]
    failed = run_jobs(measure, [(*job, given.device) for job in jobs], path, given.jobs, time.time() + given.seconds)
    places = {job: number for number, job in enumerate(product(MODELS, TABLES))}
    lines = sorted(read_lines(path), key=lambda line: (places[line["model"], line["data"]], line["split"]))
    path.with_suffix(".md").write_text(report(lines))
    if failed:
        sys.exit("These failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
