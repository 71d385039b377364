"""How often rows with a gap in an important column are inside their intervals, beside rows without gaps.

Over two thirds of the variance of y come from one column, in which some values are missing at random, in new rows as in
training rows. Of a row with a gap hardly anything is known, so its interval has to be far wider than others. Rows with
the same gaps have ranks of their own; beside them, the same fit without.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from result_lines import environment

from coverwell import MatchedRegressor, Schedule, metrics

ASKED = 0.9
N_ROWS, N_TEST = 500, 20_000
SHARES = (0.02, 0.05, 0.2)
FIRST_SEED = 100  # draws before it chose how far groups are trusted
HEADS = (
    "share of gaps",
    "rows with a gap in training",
    "coverage, all rows",
    "with a gap",
    "without",
    "interval score",
)
HEADS += ("with a gap, ranks of all rows alike", "interval score", "draws")


def draw(n_rows: int, share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of five columns, the first of which has gaps, and y."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    y = 2 * X[:, 0] + X[:, 1] + np.sin(2 * X[:, 2]) + rng.normal(scale=0.5, size=n_rows)
    table = pd.DataFrame(X, columns=list("abcde"))
    table.loc[rng.random(n_rows) < share, "a"] = np.nan
    return table, y


def measure(share: float, seed: int, device: str, **more) -> dict:
    X, y = draw(N_ROWS, share, seed)
    X_new, y_new = draw(N_TEST, share, 10_000 + seed)
    model, gap = (
        MatchedRegressor(ASKED, device=device, random_state=seed, **more).fit(X, y),
        X_new["a"].isna().to_numpy(),
    )
    lower, upper = model.predict_interval(X_new)
    for team in model.predictor_.fitted_teams:
        del team.groups[:]
    low, high = model.predict_interval(X_new)
    return {
        "share": share,
        "seed": seed,
        "n_gaps": int(X["a"].isna().sum()),
        "coverage": metrics.coverage(y_new, lower, upper),
        "with_gap": metrics.coverage(y_new[gap], lower[gap], upper[gap]),
        "without": metrics.coverage(y_new[~gap], lower[~gap], upper[~gap]),
        "score": metrics.interval_score(y_new, lower, upper, ASKED),
        "with_gap_alike": metrics.coverage(y_new[gap], low[gap], high[gap]),
        "score_alike": metrics.interval_score(y_new, low, high, ASKED),
        **environment(device),
    }


def table(lines: list[dict]) -> str:
    text = [
        "# Coverage of rows with a gap in an important column",
        "",
        f"`python benchmarks/gaps.py`; level {ASKED:g}, {N_ROWS} training rows, {N_TEST:,} new ones, default settings; "
        "mean over draws, lowest and highest in brackets. How far groups are trusted was chosen among four rules by "
        f"draws before {FIRST_SEED}.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
    ]
    for share in dict.fromkeys(line["share"] for line in lines):
        own = [line for line in lines if line["share"] == share]
        gaps = [line["n_gaps"] for line in own]
        names = ("coverage", "with_gap", "without", "score", "with_gap_alike", "score_alike")
        cells = [_cell([line[name] for line in own]) for name in names]
        text.append(f"| {share:g} | {min(gaps)} to {max(gaps)} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(text) + "\n"


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one draw, two rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    draws, more = (
        (range(1), {"schedule": Schedule(max_rounds=2)})
        if arguments.quick
        else (range(FIRST_SEED, FIRST_SEED + arguments.draws), {})
    )
    lines: list[dict] = []
    for share in SHARES:
        for seed in draws:
            lines.append(measure(share, seed, arguments.device, **more))
        print(table(lines).splitlines()[-1], flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "gaps-quick" if arguments.quick else "gaps"
    (arguments.out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (arguments.out / f"{name}.md").write_text(table(lines))


if __name__ == "__main__":
    main()
