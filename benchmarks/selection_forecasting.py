"""Settings of the forecaster compared within the training parts of the six series: how its defaults were chosen.

No step of a test period is touched. A forecaster learns the first two thirds of a training part and goes through the
last third live. Each candidate changes some of the settings of the first one; the table holds its scores over those of
the first, so that numbers below 1 are better. Lines go to results/forecasting-selection.jsonl; what is there is not run
again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from flat_settings import as_arguments
from result_lines import append, environment, read_lines

from coverwell import LSTM, MatchedForecaster
from coverwell.forecasting import forecaster as forecasters
from coverwell.forecasting.windows import calendar_features
from reproduction.data.series import SERIES
from reproduction.domains.series import INTERPOLATED, OBSERVED, Problem, problem, readings_of
from reproduction.tables.typeset import markdown

LEARNED_SHARE = 2 / 3
COVERAGE = 0.95
RATE = 0.05
REFIT_EVERY = 336
USUAL_REFIT = forecasters.REFIT
FIRST = {"learning_rate": 1e-3, "batch_size": 256, "max_rounds": 12, "network": LSTM(dropout=0.0)}
LARGE = {"learning_rate": 4e-3, "batch_size": 512, "max_rounds": 15}
DEFAULT = {**LARGE, "network": LSTM(dropout=0.1)}


def refits(rounds: int, epochs: int, learning_rate: float) -> dict[str, Any]:
    """The default with refits of this kind."""
    brief = {"max_rounds": rounds, "mean_epochs": epochs, "interval_epochs": epochs, "learning_rate": learning_rate}
    return {**DEFAULT, "refit_every": REFIT_EVERY, "refit": brief}


CANDIDATES: dict[str, dict[str, Any]] = {
    "first": {},
    "no shortcut": {"network": LSTM(dropout=0.0, shortcut=False)},
    "dropout .2": {"network": LSTM(dropout=0.2)},
    "dropout .2 for I": {"interval_network": LSTM(dropout=0.2)},
    "10 epochs a turn": {"mean_epochs": 10, "interval_epochs": 10},
    "10 epochs a turn, 20 rounds": {"mean_epochs": 10, "interval_epochs": 10, "max_rounds": 20},
    "10 epochs a turn, 20 rounds, no shortcut": {
        "mean_epochs": 10,
        "interval_epochs": 10,
        "max_rounds": 20,
        "network": LSTM(dropout=0.0, shortcut=False),
    },
    "1 epoch a turn": {"mean_epochs": 1, "interval_epochs": 1, "max_rounds": 30, "patience": 5},
    "IQR Fit": {"matching": "iqr"},
    "squared error alone": {"matching": None},
    "shaped by I alone": {"shape": "interval"},
    "rate 3e-3": {"learning_rate": 3e-3, "max_rounds": 15},
    "rate 4e-3, batch 512": LARGE,
    "rate 8e-3, batch 512": {**LARGE, "learning_rate": 8e-3},
    "rate 4e-3, batch 512, no shortcut": {**LARGE, "network": LSTM(dropout=0.0, shortcut=False)},
    "default: rate 4e-3, batch 512, dropout .1": DEFAULT,
    "default, observed targets and chosen rate": {**DEFAULT, "reading": OBSERVED, "rate": "auto"},
    "default, calendar": {**DEFAULT, "calendar": ("hour", "weekday")},
    "default, hour": {**DEFAULT, "calendar": ("hour",)},
    "default, calendar, dropout .3": {**LARGE, "network": LSTM(dropout=0.3), "calendar": ("hour", "weekday")},
    "default, calendar and covariates": {**DEFAULT, "calendar": ("hour", "weekday"), "covariates": True},
    "default, refits 1 x 1 at 1e-3": refits(1, 1, 1e-3),
    "default, refits 1 x 1 at 4e-3": refits(1, 1, 4e-3),
    "default, refits 2 x 2 at 1e-3": refits(2, 2, 1e-3),
    "default, refits 1 x 3 at 4e-3": refits(1, 3, 4e-3),
    "default, refits 3 x 3 at 2e-3": refits(3, 3, 2e-3),
    "default, refits 2 x 2 at 2e-3": refits(2, 2, 2e-3),
}


def training_part(name: str, reading: str) -> tuple[Problem, int]:
    """The series up to its test period, and where its last third begins."""
    posed = problem(name, reading)
    past = None if posed.past_covariates is None else posed.past_covariates[: posed.start]
    part = Problem(name, posed.time[: posed.start], posed.y[: posed.start], past, posed.start)
    return part, int(posed.start * LEARNED_SHARE)


def run(candidate: str, name: str, device: str, **more: Any) -> dict[str, Any]:
    """One line: a candidate on one series."""
    settings = {"rate": RATE, **FIRST, **CANDIDATES[candidate], **more}
    reading = settings.pop("reading", INTERPOLATED if INTERPOLATED in readings_of(name) else OBSERVED)
    part, end = training_part(name, reading)
    calendar, covariates = settings.pop("calendar", ()), settings.pop("covariates", False)
    forecasters.REFIT = settings.pop("refit", USUAL_REFIT)
    seen = {}
    if calendar:
        seen["covariates"] = calendar_features(part.time, calendar)  # known ahead; needs no data frame
    if covariates and part.past_covariates is not None:
        seen["past_covariates"] = part.past_covariates
    forecaster = MatchedForecaster(COVERAGE, missing="fill", random_state=0, device=device, **as_arguments(settings))
    started = time.perf_counter()
    forecaster.fit(part.y[:end], **{what: rows[:end] for what, rows in seen.items()})
    backtest = forecaster.backtest(part.y, start=end, **seen)
    live, static = backtest.scores(), backtest.scores(static=True)
    return {
        "candidate": candidate,
        "data": name,
        "reading": reading,
        "seed": 0,
        "rmse": live["rmse"],
        "score": live["interval_score"],
        "static_coverage": static["coverage"],
        "rounds": len(forecaster.rounds_),
        "seconds": round(time.perf_counter() - started, 1),
        **environment(device),
    }


def report(lines: list[dict[str, Any]]) -> str:
    """Each candidate over the first, series by series: RMSE / live interval score."""
    base = {line["data"]: line for line in lines if line["candidate"] == "first"}
    names = [name for name in SERIES if name in base]
    rows = []
    for candidate in dict.fromkeys(line["candidate"] for line in lines):
        own = {line["data"]: line for line in lines if line["candidate"] == candidate}
        pairs = {n: (own[n]["rmse"] / base[n]["rmse"], own[n]["score"] / base[n]["score"]) for n in names if n in own}
        cells = ["-" if n not in pairs else f"{pairs[n][0]:.3f} / {pairs[n][1]:.3f}" for n in names]
        if candidate == "first":
            cells = [f"{base[n]['rmse']:.4g} / {base[n]['score']:.4g}" for n in names]
        means = np.exp(np.mean(np.log(list(pairs.values())), axis=0)) if pairs else (np.nan, np.nan)
        rows.append([candidate, *cells, f"{means[0]:.3f} / {means[1]:.3f}", str(len(pairs))])
    devices = sorted({f"{line['device']}, torch {line['versions']['torch']}" for line in lines})
    text = [
        "# How the forecaster's defaults were chosen",
        "",
        "`make bench-selection`: fitted on the first two thirds of each training part, evaluated live on its last "
        f"third at {COVERAGE} with rate {RATE}; no step of a test period is used. Devices: "
        f"{'; '.join(devices)}. Each cell: RMSE / live interval score, both relative to the first row, which has "
        "the values themselves and is where the search began. Below 1 is better; with one seed, differences of a per "
        "cent or two are noise. The last columns are the geometric mean over the series that were run, and their "
        "number, which differs: device time ran out for some. A `note` in a stored line describes how the run differed "
        "from what the command does now: lines on observed targets compare with the row of that name.",
        "",
        markdown(["candidate", *names, "geometric mean", "series"], rows).rstrip(),
        "",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "forecasting-selection.jsonl")
    parser.add_argument("--data", nargs="*", default=list(SERIES))
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES))
    parser.add_argument("--quick", action="store_true", help="see that it runs: two candidates, one series, one round")
    asked = parser.parse_args()
    more: dict[str, Any] = {}
    if asked.quick:
        asked.data, asked.candidates = ["air quality"], ["first", "default, refits 1 x 1 at 1e-3"]
        more = {"network": LSTM(hidden=4), "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}
        asked.out = asked.out.with_name("forecasting-selection-quick.jsonl")
    done = {(line["candidate"], line["data"]) for line in read_lines(asked.out)}
    for candidate in asked.candidates:
        for name in asked.data:
            if (candidate, name) not in done:
                append(asked.out, run(candidate, name, asked.device, **more))
    table = report(read_lines(asked.out))
    asked.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
