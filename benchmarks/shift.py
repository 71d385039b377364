"""Coverage after the distribution of inputs has shifted, before and after `recalibrate`.

Test rows of the development tables are drawn with a probability in proportion to exp(tilt z), where z is the first
principal component of the inputs, scaled to a variance of one. Only the distribution of x changes, as `recalibrate`
without targets assumes. Half of the test rows, drawn so, are what the model is shown; the other half measures, each row
with its weight, then the halves change places. Fits are short, two rounds: the point is calibration.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from result_lines import environment, read_lines
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from table_fits import Line, add_arguments, run_jobs

from coverwell import MatchedRegressor, Schedule
from reproduction.domains.tables import rows_of

ASKED, SPLITS, SCHEDULE = 0.9, range(5), Schedule(max_rounds=2)
TILTS = (-1.5, 1.5)  # of one standard deviation of the first principal component
TABLES = ("crime", "red wine", "white wine", "parkinsons", "boston", "auto mpg", "stock", "pendulum", "energy")
TABLES += ("solar", "gas", "skillcraft", "sml")
N_LABELLED = 100  # new rows with targets
HOW = {"before": "before", "unlabelled": "after, without targets", "labelled": f"after, with {N_LABELLED} targets"}


def run(data: str, split: int, device: str) -> list[Line]:
    """A line for each tilt and half of a split."""
    rows, lines = rows_of(data, split), []
    model = MatchedRegressor(ASKED, schedule=SCHEDULE, random_state=split, device=device).fit(rows.X, rows.y)
    first = make_pipeline(StandardScaler(), PCA(1)).fit(rows.X)
    z = first.transform(rows.X_test)[:, 0] / first.transform(rows.X).std()
    fitted = weighted_scores(model, rows.X_test, rows.y_test)
    for tilt in TILTS:
        weight, rng = np.exp(tilt * z.clip(-3, 3)), np.random.default_rng(split)
        halves = np.array_split(rng.permutation(len(z)), 2)
        for number, (shown, other) in enumerate((halves, halves[::-1])):
            drawn = rng.choice(shown, len(shown), p=weight[shown] / weight[shown].sum())
            line: Line = {"data": data, "split": split, "tilt": tilt, "half": number, "n_shown": len(shown)}
            line["before"] = averages(fitted, other, weight)
            line |= recalibrated(model, rows.X_test[drawn], None, rows, other, weight, "unlabelled")
            line["labelled"] = None
            if len(shown) > N_LABELLED:
                few = rng.choice(shown, N_LABELLED, replace=False, p=weight[shown] / weight[shown].sum())
                line |= recalibrated(model, rows.X_test[few], rows.y_test[few], rows, other, weight, "labelled")
            lines.append({**line, **environment(device)})
    return lines


def recalibrated(
    model: MatchedRegressor, X: Any, y: Any, rows: Any, other: np.ndarray, weight: np.ndarray, how: str
) -> Line:
    """Coverage and score of the measuring half after a recalibration, and what the ranked rows are worth."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows outside
            model.recalibrate(X, y)
    except ValueError as error:
        if "too few rows" not in str(error):
            raise
        return {how: None}
    scores = weighted_scores(model, rows.X_test[other], rows.y_test[other])
    own = averages(scores, np.arange(len(other)), weight[other])
    return {how: own, f"{how}_worth": float(model.recalibration_.n_effective)}


def weighted_scores(model: MatchedRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each row whether it is inside, and its interval score: (row, 2)."""
    lower, upper = model.predict_interval(X)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return np.column_stack([(lower <= y) & (y <= upper), upper - lower + 2 / (1 - ASKED) * missed])


def averages(scores: np.ndarray, places: np.ndarray, weight: np.ndarray) -> list[float]:
    """Weighted means over some rows."""
    found: list[float] = np.average(scores[places], axis=0, weights=weight[places]).tolist()
    return found


def report(lines: Sequence[Line]) -> str:
    seen = sorted({line["device"] for line in lines})
    text = [
        "# Shifted inputs",
        "",
        f"`make bench-shift`; level {ASKED:g}, splits {min(SPLITS)} to {max(SPLITS)}, two rounds, {', '.join(seen)}. "
        "Test rows drawn with a probability in proportion to exp(tilt z), z the first principal component; tilts "
        f"{TILTS[0]:g} and {TILTS[1]:g}. Coverage: mean over splits, tilts and halves, with the mean distance of the "
        "means of both tilts from what is asked; interval score over that before. Worth: rows of equal weight, median. "
        "Refused: too few of them.",
        "",
        "| | rows shown | before | " + " | ".join(f"{words}, score" for words in list(HOW.values())[1:]) + " | worth "
        "| refused |",
        "|---|---|---|---|---|---|---|",
    ]
    away: dict[str, list[float]] = {how: [] for how in HOW}
    for data in dict.fromkeys(line["data"] for line in lines):
        own, cells = [line for line in lines if line["data"] == data], []
        done = [line for line in own if line["unlabelled"]]
        for how in HOW:
            by_tilt = [[line[how] for line in done if line["tilt"] == tilt and line[how]] for tilt in TILTS]
            if not all(by_tilt):
                cells.append("-")
                continue
            coverage = [float(np.mean([one[0] for one in part])) for part in by_tilt]
            away[how] += [abs(one - ASKED) for one in coverage]
            ratio = np.mean([line[how][1] for line in done if line[how]])
            ratio /= np.mean([line["before"][1] for line in done if line[how]])
            score = "" if how == "before" else f", {ratio:.3f}"
            cells.append(f"{np.mean(coverage):.3f} ({np.mean([abs(one - ASKED) for one in coverage]):.3f}){score}")
        worth = f"{np.median([line['unlabelled_worth'] for line in done]):.0f}" if done else "-"
        text.append(f"| {data} | {own[0]['n_shown']} | {' | '.join(cells)} | {worth} | {len(own) - len(done)} |")
    means = [f"{words}: {np.mean(away[how]):.4f}" for how, words in HOW.items() if away[how]]
    text += [
        "",
        f"Mean distance from {ASKED:g} over tables and tilts (target after: at most 0.02): {'; '.join(means)}.",
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=TABLES, choices=TABLES)
    add_arguments(parser)
    given = parser.parse_args()
    names, splits = (("auto mpg",), SPLITS[:1]) if given.quick else (given.data, SPLITS)
    path = given.out / f"shift{'-quick' * given.quick}.jsonl"
    given.out.mkdir(parents=True, exist_ok=True)
    done = {(line["data"], line["split"]) for line in read_lines(path)}
    jobs = [(data, split, given.device) for data in names for split in splits if (data, split) not in done]
    failed = run_jobs(run, jobs, path, given.jobs, time.time() + given.seconds)
    if lines := read_lines(path):
        path.with_suffix(".md").write_text(report(lines))
        print(report(lines))
    if failed:
        raise SystemExit("These fits failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
