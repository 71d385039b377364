"""How often rows with a gap in an important column are inside their intervals, beside rows without gaps.

Values are missing at random in one column, in new rows as in training rows. Of the made-up law, over two thirds of the
variance of y come from that column; of a table, it is the one that matters most to a forest of the training rows. Every
new row is looked at with the gap and without, and all rows together are the mixture of both. Rows with the same gaps
have ranks of their own; beside them, the same fit without. Lines that are stored are not measured again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_lines import append, environment, read_lines
from sklearn.ensemble import RandomForestRegressor

from coverwell import MatchedRegressor, Schedule, metrics
from reproduction.domains.tables import rows_of, table

ASKED = 0.9
WITHIN = 0.87, 0.93  # what rows with a gap are to be covered
N_ROWS, N_TEST, MOST_TRAIN, MOST_TEST = 500, 10_000, 1000, 2000
SHARES = (0.02, 0.05, 0.2)
FIRST_SEED = 120  # draws before it chose the rules
MADE_UP = "made up"
# Targets with many values: where they take few, ends at these values cover more than asked.
TABLES = ("boston", "auto mpg", "energy", "stock", "pendulum", "skillcraft", "crime", "sml")
SHORT = Schedule(max_rounds=2)
HEADS = ("share of gaps", "rows with a gap in training", "coverage, all rows", "without a gap", "with a gap")
HEADS += ("ranks of all rows alike", "interval score, over that of ranks alike", "of rows with a gap", "fits")


def draw(n_rows: int, share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of five columns, the first of which has gaps, and y."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    y = 2 * X[:, 0] + X[:, 1] + np.sin(2 * X[:, 2]) + rng.normal(scale=0.5, size=n_rows)
    made = pd.DataFrame(X, columns=list("abcde"))
    made.loc[rng.random(n_rows) < share, "a"] = np.nan
    return made, y


def split(data: str, share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray, str]:
    """Training rows with gaps, new rows without, and the column of the gaps."""
    rows = rows_of(data, seed)
    X, X_new = (pd.DataFrame(part, columns=table(data).feature_names) for part in (rows.X, rows.X_test))
    X, y = X[:MOST_TRAIN], rows.y[:MOST_TRAIN]
    forest = RandomForestRegressor(min_samples_leaf=2, random_state=seed).fit(X, y)
    column = str(X.columns[forest.feature_importances_.argmax()])
    hidden = np.random.default_rng(seed).random(len(X)) < share
    return X.assign(**{column: X[column].mask(hidden)}), y, X_new[:MOST_TEST], rows.y_test[:MOST_TEST], column


def evaluated(model: Any, X: pd.DataFrame, y: np.ndarray, column: str, share: float) -> dict[str, float]:
    """Coverage and interval score of all rows, of those without a gap and with one."""
    bounds = [model.predict_interval(rows) for rows in (X, X.assign(**{column: np.nan}))]
    without, with_gap = (metrics.coverage(y, *each) for each in bounds)
    score, score_with_gap = (metrics.interval_score(y, *each, ASKED) for each in bounds)
    return {
        "coverage": (1 - share) * without + share * with_gap,
        "without": without,
        "with_gap": with_gap,
        "score": (1 - share) * score + share * score_with_gap,
        "score_with_gap": score_with_gap,
    }


def measure(data: str, share: float, seed: int, device: str, **more: Any) -> dict:
    if data == MADE_UP:
        (X, y), (X_new, y_new), column = draw(N_ROWS, share, seed), draw(N_TEST, 0.0, 10_000 + seed), "a"
    else:
        X, y, X_new, y_new, column = split(data, share, seed)
    model = MatchedRegressor(ASKED, device=device, random_state=seed, **more).fit(X, y)
    found = evaluated(model, X_new, y_new, column, share)
    for team in model.predictor_.fitted_teams:
        del team.groups[:]
    return {
        "data": data,
        "share": share,
        "seed": seed,
        "column": column,
        "n_rows": len(X),
        "n_gaps": int(X[column].isna().sum()),
        **found,
        "alike": evaluated(model, X_new, y_new, column, share),
        **environment(device),
    }


def report(lines: Sequence[dict]) -> str:
    made_up = [line for line in lines if line["data"] == MADE_UP]
    of_tables = [line for line in lines if line["data"] != MADE_UP]
    versions = ", ".join(f"{package} {version}" for package, version in lines[0]["versions"].items())
    text = [
        "# Coverage of rows with a gap in an important column",
        f"`make bench-gaps`; level {ASKED:g}; {lines[0]['device']}, {versions}. Every new row is looked at with the "
        "gap and without; all rows are the mixture of both. Coverage is a mean over fits with its standard error, the "
        f"lowest and highest in brackets; bold: {WITHIN[0]:g} to {WITHIN[1]:g}. Interval scores are relative to those "
        "of the same fit with ranks of all rows alike, a geometric mean.",
        f"## A made-up law\n\n{N_ROWS} training rows, default settings, {_seeds(made_up)}. Earlier draws chose "
        "the rules.",
        _rows("law", made_up),
        f"## Tables\n\nAt most {MOST_TRAIN:,} training rows, two rounds, {_seeds(of_tables)}. The column of the gaps "
        "is the one that matters most to a forest of the training rows.",
        _rows("table", [{**line, "data": "all"} for line in of_tables]),
        "One by one, each mean is one of few fits:",
        _rows("table", of_tables),
    ]
    return "\n\n".join(text) + "\n"


def _seeds(lines: Sequence[dict]) -> str:
    seeds = [line["seed"] for line in lines]
    return f"seeds {min(seeds)} to {max(seeds)}"


def _rows(head: str, lines: Sequence[dict]) -> str:
    """A row for each law or table and share."""
    text = ["| " + " | ".join((head, *HEADS)) + " |", "|---" * (1 + len(HEADS)) + "|"]
    for data, share in dict.fromkeys((line["data"], line["share"]) for line in lines):
        own = [line for line in lines if (line["data"], line["share"]) == (data, share)]
        gaps = [line["n_gaps"] for line in own]
        cells = [_mean([line[name] for line in own]) for name in ("coverage", "without", "with_gap")]
        if WITHIN[0] <= np.mean([line["with_gap"] for line in own]) <= WITHIN[1]:
            cells[-1] = f"**{cells[-1]}**"
        cells.append(_mean([line["alike"]["with_gap"] for line in own]))
        for name in ("score", "score_with_gap"):
            cells.append(f"{np.exp(np.mean([np.log(line[name] / line['alike'][name]) for line in own])):.3f}")
        text.append(f"| {data} | {share:g} | {min(gaps)} to {max(gaps)} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(text)


def _mean(values: Sequence[float]) -> str:
    error = np.std(values) / max(len(values) - 1, 1) ** 0.5
    return f"{np.mean(values):.3f} ± {error:.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=20, help="of the made-up law")
    parser.add_argument("--splits", type=int, default=5, help="of each table")
    parser.add_argument("--quick", action="store_true", help="one draw, one split of one table, two rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of constant columns, and of rows outside
    path = arguments.out / ("gaps-quick.jsonl" if arguments.quick else "gaps.jsonl")
    if arguments.quick:
        path.unlink(missing_ok=True)
        jobs = [(data, 0) for data in (MADE_UP, TABLES[0])]
    else:
        jobs = [(MADE_UP, seed) for seed in range(FIRST_SEED, FIRST_SEED + arguments.draws)]
        jobs += [(data, seed) for data in TABLES for seed in range(arguments.splits)]
    stored = {(line["data"], line["seed"], line["share"]) for line in read_lines(path)}
    for data, seed in jobs:
        more = {} if data == MADE_UP and not arguments.quick else {"schedule": SHORT}
        for share in SHARES:
            if (data, seed, share) not in stored:
                append(path, measure(data, share, seed, arguments.device, **more))
                print(json.dumps(read_lines(path)[-1]), flush=True)
    path.with_suffix(".md").write_text(report(read_lines(path)))


if __name__ == "__main__":
    main()
