"""How much of a row's own target reaches its width: simple against nested cross-fitting.

On data whose noise is the same everywhere, a width has nothing to learn from a residual. What correlation there is
between the out-of-fold width and the out-of-fold |residual|, beyond that on new rows, is a leak. Simple cross-fitting
is what `calibration="cross"` does: one team, whose interval members learn from residuals of mean members that saw the
left-out fold. Nested is what `calibration="cv+"` does: for each outer fold a team of its own that never touched it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from flat_settings import FIRST_VERSION, as_arguments
from result_lines import environment

from coverwell import MatchedRegressor, fit_together, metrics
from tests.synthetic import laws

N_TEST = 20_000
# The default when the leak was measured: intervals shaped by I alone, at most 40 rounds.
FIRST = {**FIRST_VERSION, "shape": "interval", "max_rounds": 40}
COLUMNS = ("noise", "n", "scheme", "members", "corr out of fold", "corr new rows", "leak", "limit", "coverage (at .9)")
COLUMNS += ("RMSE to true mean", "interval score")
WAYS = {"simple": "cross", "nested": "cv+"}


def correlation(width: np.ndarray, error: np.ndarray) -> float:
    return float(np.corrcoef(width, np.abs(error))[0, 1])


def measure(way: str, law_name: str, n_rows: int, draws: range, device: str, **more) -> list[dict]:
    law = laws()[law_name]
    tables = [law.draw(n_rows, random_state=draw) for draw in draws]
    settings = as_arguments({**FIRST, "calibration": WAYS[way], "device": device, **more})
    models = [MatchedRegressor(0.9, random_state=d, **settings) for d in draws]
    started = time.perf_counter()
    fit_together(models, [(X, y, None) for X, y in tables])
    seconds = (time.perf_counter() - started) / len(models)
    lines = []
    for draw, model, (_, y) in zip(draws, models, tables, strict=True):
        X_new, y_new = law.draw(N_TEST, random_state=10_000 + draw)
        out_of_fold, interval = model.out_of_fold_, model.predict_interval(X_new)
        # The same size of team on new rows as out of fold would be fairer still; the whole team is what users have.
        old = correlation((out_of_fold.upper - out_of_fold.lower)[:, 0, 0], y - out_of_fold.prediction[:, 0])
        new = correlation(interval.width, y_new - model.predict(X_new))
        lines.append(
            {
                "way": way,
                "law": law_name,
                "n": n_rows,
                "draw": draw,
                "out_of_fold": old,
                "new_rows": new,
                "leak": old - new,
                "coverage": float(np.mean(law.exact_coverage(X_new, *interval))),
                "rmse": float(metrics.rmse(law.true_mean(X_new), model.predict(X_new))),
                "score": float(metrics.interval_score(y_new, *interval, 0.9)),
                "members": sum(team.n_members for team in model.predictor_.fitted_teams),
                "seconds": seconds,
                **environment(device),
            }
        )
    return lines


def table(lines: list[dict]) -> str:
    text = [
        "# Leak of cross-fitting",
        "",
        "`make bench-leak`; mean over draws, standard error of the mean in brackets. The bar is 3 / sqrt(n).",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for key in dict.fromkeys((line["law"], line["n"], line["way"]) for line in lines):
        own = [line for line in lines if (line["law"], line["n"], line["way"]) == key]

        def cell(name: str, own: list[dict] = own) -> str:
            values = np.array([line[name] for line in own])
            return (
                f"{values.mean():.3f} ({values.std(ddof=1) / len(values) ** 0.5:.3f})"
                if len(own) > 1
                else f"{values[0]:.3f}"
            )

        law, n, way = key
        cells = [cell(name) for name in ("out_of_fold", "new_rows", "leak")]
        text.append(
            f"| {law} | {n} | {way} | {own[0]['members']} | {' | '.join(cells)} | {3 / n**0.5:.3f} "
            f"| {cell('coverage')} | {cell('rmse')} | {cell('score')} |"
        )
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="two draws of 300 rows, two rounds")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    draws, sizes, more = range(arguments.draws), (300, 1000), {}
    if arguments.quick:
        draws, sizes, more = range(2), (300,), {"max_rounds": 2}
    lines: list[dict] = []
    for law in ("homoscedastic", "heteroscedastic"):
        for n_rows in sizes:
            for way in WAYS:
                lines += measure(way, law, n_rows, draws, arguments.device, **more)
                print(table(lines).splitlines()[-1], flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "leak-quick" if arguments.quick else "leak"
    (arguments.out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (arguments.out / f"{name}.md").write_text(table(lines))


if __name__ == "__main__":
    main()
