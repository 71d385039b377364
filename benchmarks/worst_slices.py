"""How often a fit names the rows that it covers too little, and how often it accuses intervals that hold.

Five columns; in every law but the last, some rows have far more noise than their neighbours, or a gap in the column
that says most. "Named" is by more than chance (5 % over all slices searched), "warned" is the warning of a fit (0.1 %).
Out-of-fold coverage of these rows is what the search sees, coverage of new ones what users get.
Lines that are stored are not measured again.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from result_lines import append, environment, read_lines

from coverwell import MatchedRegressor, Schedule
from coverwell.errors import CoverageWarning

ASKED = 0.9
SIZES, N_TEST = (300, 1000), 5000
FIRST_SEED = 100  # draws before it chose how chance is counted
# What is odd, and the columns that tell it; a column of the prediction or of the width may tell it as well.
LAWS = {
    "a category of 2 % with six times the noise": {"kind"},
    "3 % with a gap in the first column": {"a"},
    "the noisiest fifth of a smooth law": {"d", "width"},
    "a quarter with four times the noise": {"d", "width"},
    "a sixteenth, of two columns, with five times the noise": {"d", "e", "width"},
    "none": set(),
}
HEADS = ("rows that are odd", "training rows", "of them odd", "their coverage out of fold", "new", "all new rows")
HEADS += ("named", "rightly", "warned", "worst slice is of these rows", "draws")


def draw(law: str, n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Columns, y, and which rows are odd."""
    rng = np.random.default_rng(seed)
    X, share, quarter = rng.normal(size=(n_rows, 5)), rng.random(n_rows), 0.6745
    smooth = 0.2 * np.exp(X[:, 3])
    odd, spread = {
        "a category of 2 % with six times the noise": (share < 0.02, 3.0),
        "3 % with a gap in the first column": (share < 0.03, 0.5),
        "the noisiest fifth of a smooth law": (X[:, 3] > 0.8416, smooth),
        "a quarter with four times the noise": (X[:, 3] > quarter, 2.0),
        "a sixteenth, of two columns, with five times the noise": ((X[:, 3] > quarter) & (X[:, 4] > quarter), 2.5),
        "none": (np.zeros(n_rows, dtype=bool), 0.5),
    }[law]
    scale = smooth if spread is smooth else np.where(odd, spread, 0.5)
    y = 2 * X[:, 0] + X[:, 1] + np.sin(2 * X[:, 2]) + scale * rng.normal(size=n_rows)
    table = pd.DataFrame(X, columns=list("abcde"))
    if "category" in law:
        table["kind"] = np.where(odd, "rare", rng.choice(["p", "q", "r"], n_rows))
    if "gap" in law:
        table.loc[odd, "a"] = np.nan
    return table, y, odd


def measure(law: str, n_rows: int, seed: int, device: str, **more) -> dict:
    X, y, odd = draw(law, n_rows, seed)
    X_new, y_new, odd_new = draw(law, N_TEST, 10_000 + seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MatchedRegressor(ASKED, device=device, random_state=seed, **more).fit(X, y)
        inside = model.predict_interval(X_new).contains(y_new)
    known, worst = model.out_of_fold_, model.worst_slices_[0]
    left_out = (known.lower[:, 0, 0] <= y) & (y <= known.upper[:, 0, 0])
    columns = {worst.column, *(worst.second or ())[:1]}
    return {
        "law": law,
        "n_rows": n_rows,
        "seed": seed,
        "n_odd": int(odd.sum()),
        "out_of_fold": float(left_out[odd].mean()) if odd.any() else None,
        "new": float(inside[odd_new].mean()) if odd_new.any() else None,
        "coverage": float(inside.mean()),
        "worst": worst.name,
        "by_chance": worst.by_chance,
        "named": worst.is_short,
        "right": bool(columns & LAWS[law]),
        "warned": any(issubclass(one.category, CoverageWarning) for one in caught),
        **environment(device),
    }


def table(lines: list[dict]) -> str:
    text = [
        "# How often a fit names the rows that it covers too little",
        "",
        f"`make bench-slices`; level {ASKED:g}, {N_TEST:,} new rows, default settings; means over "
        f"draws. How chance is counted was chosen by draws before {FIRST_SEED}.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
    ]
    for law, n_rows in dict.fromkeys((line["law"], line["n_rows"]) for line in lines):
        own = [line for line in lines if (line["law"], line["n_rows"]) == (law, n_rows)]
        n_odd = [line["n_odd"] for line in own]
        counts = (sum(line["named"] for line in own), sum(line["named"] and line["right"] for line in own))
        counts += (sum(line["warned"] for line in own), sum(line["right"] for line in own), len(own))
        shares = [_mean([line[name] for line in own]) for name in ("out_of_fold", "new", "coverage")]
        cells = [law, n_rows, f"{min(n_odd)} to {max(n_odd)}", *shares, *counts]
        text.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(text) + "\n"


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.3f}" if known else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one draw, two rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    path = arguments.out / ("worst-slices-quick.jsonl" if arguments.quick else "worst-slices.jsonl")
    draws, more = range(FIRST_SEED, FIRST_SEED + arguments.draws), {}
    if arguments.quick:
        path.unlink(missing_ok=True)
        draws, more = range(1), {"schedule": Schedule(max_rounds=2)}
    stored = {(line["law"], line["n_rows"], line["seed"]) for line in read_lines(path)}
    for case in ((law, n_rows, seed) for seed in draws for law in LAWS for n_rows in SIZES):
        if case not in stored:
            append(path, measure(*case, arguments.device, **more))
            print(*case, sep=" | ", flush=True)
    path.with_suffix(".md").write_text(table(read_lines(path)))


if __name__ == "__main__":
    main()
