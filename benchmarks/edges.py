"""How often rows outside the training range are inside their intervals, with the growth of widths there and without.

Of each table the two columns that matter most to a forest are cut on either side. A model trains on the rows within;
the fifth of all rows beyond is outside its range. New rows within show what the growth costs where nothing is outside
but by chance. A made-up law goes on straight beyond the range. Lines that are stored are not measured again.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from result_lines import environment, read_lines
from sklearn.ensemble import RandomForestRegressor
from table_fits import QUICK_ROUNDS, QUICK_TABLES, Line, add_arguments, run_jobs

from coverwell import MatchedRegressor, Schedule, metrics
from reproduction.domains.tables import rows_of

ASKED, BEYOND, MOST_ROWS, FEWEST = 0.9, 0.2, 1200, 20
MADE_UP = "made up"
# The tables that chose the rule, on other rows, were the first eight and red wine; numbers in every column.
TABLES = ("boston", "auto mpg", "crime", "energy", "stock", "pendulum", "autos", "solar", "concreteslump")
TABLES += ("skillcraft", "white wine", "sml")
SIDES = ("low", "high")
REACHES = (0.0, 0.5, 1.0, 2.0)  # of the made-up law: how far outside, in standard deviations of the column
PLACES = ("outside", "inside")


def made_up(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three columns, the first of which ends at 3, and new rows in which it goes on from there to 7."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(300, 3)), rng.normal(size=(4000, 3))
    X[:, 0], X_new[:, 0] = rng.uniform(-3, 3, 300), rng.uniform(0, 7, 4000)
    y, y_new = (2 * x[:, 0] + np.sin(2 * x[:, 1]) + 0.5 * rng.normal(size=len(x)) for x in (X, X_new))
    return X, y, X_new, y_new


def cut(data: str, rank: int, side: str, seed: int) -> tuple[np.ndarray, ...] | None:
    """Training rows within the cut, and new rows on both sides of it; None where hardly a row lies beyond."""
    rows = rows_of(data, seed)
    X, y = (np.concatenate(parts)[:MOST_ROWS] for parts in ((rows.X_test, rows.X), (rows.y_test, rows.y)))
    column = (
        RandomForestRegressor(min_samples_leaf=2, random_state=seed).fit(X, y).feature_importances_.argsort()[-1 - rank]
    )
    x = X[:, column] if side == "high" else -X[:, column]
    outside = x > np.quantile(x, 1 - BEYOND)
    if outside.sum() < FEWEST:
        return None
    new = outside | (np.arange(len(X)) < len(rows.y_test))
    return X[~new], y[~new], X[new], y[new]


def measure(data: str, rank: int, side: str, seed: int, more: dict[str, Any]) -> list[Line]:
    found = made_up(seed) if data == MADE_UP else cut(data, rank, side, seed)
    about = {"data": data, "rank": rank, "side": side, "seed": seed, **environment("cpu")}
    if found is None:
        return [{**about, "n_outside": 0}]
    X, y, X_new, y_new = found
    warnings.simplefilter("ignore")  # that rows lie outside
    model = MatchedRegressor(ASKED, device="cpu", random_state=seed, **more).fit(X, y)
    (team,), inputs = model.predictor_.fitted_teams, model.predictor_.inputs
    outside = inputs.outside(X_new)
    distance = np.where(outside, np.abs(inputs.unbounded(X_new.clip(X.min(0), X.max(0))) - inputs.unbounded(X_new)), 0)
    places = {"outside": outside.any(axis=1), "inside": ~outside.any(axis=1)}
    if data == MADE_UP:
        far = distance.max(axis=1)
        places = {f"{low:g}": (far > low) & (far <= low + 0.5) for low in REACHES} | places
    results: dict[str, Any] = {}
    for growth in ("growth", "none"):
        if growth == "none":
            team.edges = None
        lower, upper = model.predict_interval(X_new)
        for place, own in places.items():
            bounds = y_new[own], lower[own], upper[own]
            results |= {f"{place}, {growth}": [metrics.coverage(*bounds), metrics.interval_score(*bounds, ASKED)]}
    shares = {place: int(own.sum()) for place, own in places.items()}
    return [{**about, "n_rows": len(X), "n_outside": shares["outside"], "n_new": shares, "found": results}]


def report(lines: Sequence[Line]) -> str:
    used = [line for line in lines if line["n_outside"]]
    of_law, of_tables = ([line for line in used if (line["data"] == MADE_UP) == law] for law in (True, False))
    versions = ", ".join(f"{package} {version}" for package, version in lines[0]["versions"].items())
    seeds = sorted({line["seed"] for line in lines})
    text = [
        "# Rows outside the training range",
        f"`make bench-edges`; level {ASKED:g}, default settings, seeds {seeds[0]} to {seeds[-1]}; "
        f"{lines[0]['device']}, {versions}. Coverage is a mean over fits, with the growth of widths outside the range "
        "and without it. Interval scores are relative to those without, a geometric mean.",
        "## A straight law that goes on\n\nOf 300 rows the first column ends at 3; distances from there in its "
        "standard deviations, 1.73.",
        table_of(
            [(f"{low:g} to {low + 0.5:g}", f"{low:g}", of_law) for low in REACHES] + [("inside", "inside", of_law)]
        ),
        "## Tables\n\nThe two columns that matter most to a forest, each cut on its low and on its high side: the "
        "fifth of the rows beyond is not trained on. Some of the others lie outside by chance. The rule was chosen on "
        "other rows of most of these tables.",
        table_of([("all", place, of_tables) for place in PLACES]),
        table_of(
            [(name, "outside", [line for line in of_tables if line["data"] == name]) for name in names_in(of_tables)]
        ),
    ]
    return "\n\n".join(text) + "\n"


def names_in(lines: Sequence[Line]) -> list[str]:
    return [name for name in TABLES if any(line["data"] == name for line in lines)]


def table_of(rows: Sequence[tuple[str, str, Sequence[Line]]]) -> str:
    """A line for each place of some fits."""
    heads = ("", "rows", "coverage", "lowest", "without growth", "lowest", "interval score", "highest", "fits")
    text = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, place, all_lines in rows:
        own = [line for line in all_lines if line["n_new"][place]]
        if not own:
            continue
        grown, none = (np.array([line["found"][f"{place}, {growth}"] for line in own]) for growth in ("growth", "none"))
        ratio, label = grown[:, 1] / none[:, 1], name if name != "all" else place
        cells = [sum(line["n_new"][place] for line in own) // len(own)]
        cells += [f"{value:.3f}" for each in (grown, none) for value in (each[:, 0].mean(), each[:, 0].min())]
        cells += [f"{np.exp(np.log(ratio).mean()):.3f}", f"{ratio.max():.2f}", len(own)]
        text.append(f"| {label} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, stacks=False)
    parser.add_argument("--splits", type=int, default=1)
    arguments = parser.parse_args()
    end = time.time() + arguments.seconds
    tables, splits = (QUICK_TABLES[:1], 1) if arguments.quick else (TABLES, arguments.splits)
    more = {"schedule": Schedule(**QUICK_ROUNDS)} if arguments.quick else {}
    path = arguments.out / ("edges-quick.jsonl" if arguments.quick else "edges.jsonl")
    known = read_lines(path) if path.exists() else []
    done = {(line["data"], line["rank"], line["side"], line["seed"]) for line in known}
    jobs = [(MADE_UP, 0, "high", seed) for seed in range(1 if arguments.quick else 10)]
    jobs += list(product(tables, (0, 1), SIDES, range(splits)))
    failed = run_jobs(measure, [(*job, more) for job in jobs if job not in done], path, arguments.jobs, end)
    text = report(read_lines(path))
    path.with_suffix(".md").write_text(text)
    print(text)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
