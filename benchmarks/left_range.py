"""Live coverage of series that leave the range they were trained in: made-up ones, and training parts of public ones.

A made-up series is trained on 1,000 steps. Then its level shifts by 5 to 20 of its standard deviations, after 500 steps
a trend adds 10 to 30 more, and in the last 500 its noise is two to four times as large. Nothing is refitted. Each fit
is tried three ways: with levels as they are and a rate chosen in training, as before; with levels moved into the range;
and as it is now, with rates that are blended as well. Constants were chosen on seeds 100 to 103 of each kind and on the
last third of each public training part. Lines that are stored are not measured again.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
from result_lines import environment, read_lines
from selection_forecasting import training_part
from table_fits import Line, add_arguments, run_jobs

from coverwell import LSTM, MatchedForecaster, Schedule
from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting import LiveCalibrator
from coverwell.forecasting.forecaster import rate_of
from coverwell.forecasting.windows import Windows
from reproduction.data.series import SERIES
from reproduction.domains.series import OBSERVED

ASKED, ASKED_PUBLIC, WITHIN = 0.9, 0.95, 0.012
N_FIT, N_PHASE, PAST = 1000, 500, 24
KINDS = ("autoregression", "daily cycle", "slow walk", "busy hours", "volatile", "skewed")
DOZEN, MANY, PUBLIC = PARTS = ("a dozen", "other seeds", "public series")
SEEDS = {DOZEN: (0, 1), MANY: tuple(range(200, 206))}
SMALL = {"network": LSTM(hidden=16, layers=1), "schedule": Schedule(max_rounds=6, batch_size=64)}
QUICK = {"network": LSTM(hidden=4, layers=1), "schedule": Schedule(max_rounds=1)}
ABOUT = {
    DOZEN: "Seeds 0 and 1, with small networks and short training (`LSTM(hidden=16, layers=1)`, 6 rounds).",
    MANY: "Small networks. The worst 500 steps in a row are those of the worst series.",
    PUBLIC: "Small networks, at .95: the first two thirds of the training part are fitted, the last third is "
    "gone through live. No step of a test period is used.",
}
BEFORE, MOVED, NOW = WAYS = ("before", "levels moved", "now")


def innovations(kind: str, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    n = len(scale)
    noise = rng.gamma(2.0, size=n) / np.sqrt(2) - np.sqrt(2) if kind == "skewed" else rng.normal(size=n)
    hour = np.arange(n) % 24
    if kind == "busy hours":
        noise *= np.where((hour >= 7) & (hour < 20), 1.5, 0.5)
    if kind == "volatile":
        variance = np.ones(n)
        for t in range(1, n):
            variance[t] = 0.05 + 0.85 * variance[t - 1] + 0.1 * variance[t - 1] * noise[t - 1] ** 2
        noise *= np.sqrt(variance)
    return noise * scale


def made_up(kind: str, seed: int) -> np.ndarray:
    """A series of this kind: 1,000 steps, 500 after a shift, 500 of a trend, 500 of more noise."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    step = np.arange(N_FIT + 3 * N_PHASE)
    noise = innovations(kind, np.where(step >= N_FIT + 2 * N_PHASE, rng.uniform(2, 4), 1.0), rng)
    kept = {"slow walk": 0.99, "autoregression": 0.8, "volatile": 0.8}.get(kind, 0.5)
    series = np.zeros(len(step))
    for t in range(1, len(step)):
        series[t] = kept * series[t - 1] + noise[t]
    if kept == 0.5:
        series += 4 * np.sin(2 * np.pi * step / 24)
    deviation = series[:N_FIT].std()
    shift, slope = (rng.choice([-1, 1]) * rng.uniform(*ends) * deviation for ends in ((5, 20), (0.02, 0.06)))
    return series + shift * (step >= N_FIT) + slope * np.clip(step - N_FIT - N_PHASE, 0, N_PHASE)


def each_way(forecaster: MatchedForecaster, series: np.ndarray, start: int) -> dict[str, dict[str, float]]:
    """The scores of a period as before, with levels moved, and now."""
    found = {NOW: scores_of(forecaster, series, start)}
    chosen = rate_of(forecaster.regressor_, forecaster.windows_, forecaster.history_)
    forecaster = copy.copy(forecaster)
    forecaster.calibrator_ = LiveCalibrator(forecaster.regressor_.predictor_.levels, rate=chosen)
    found[MOVED] = scores_of(forecaster, series, start)
    with patch.object(Windows, "within", lambda windows, rows, inputs: rows):
        found[BEFORE] = scores_of(forecaster, series, start)
    return found


def scores_of(forecaster: MatchedForecaster, series: np.ndarray, start: int) -> dict[str, float]:
    with warnings.catch_warnings(action="ignore", category=ExtrapolationWarning):
        backtest = forecaster.backtest(series, start=start)
    outside, *_ = backtest.n_outside.values()
    return {**backtest.scores(), "worst_500": float(backtest.rolling_coverage(500).min()), "n_outside": outside}


def n_warnings(forecaster: MatchedForecaster, values: np.ndarray) -> int:
    """How many warnings live updates with these values bring."""
    live = copy.deepcopy(forecaster)
    with warnings.catch_warnings(record=True, action="always") as caught:
        for value in values:
            live.update(value)
    return len(caught)


def measure(part: str, data: str, seed: int, more: dict[str, Any]) -> list[Line]:
    level, start = (ASKED_PUBLIC, 0) if part == PUBLIC else (ASKED, N_FIT)
    if part == PUBLIC:
        problem, start = training_part(data, OBSERVED)
        series = problem.y
    else:
        series = made_up(data, seed)
    started = time.perf_counter()
    forecaster = MatchedForecaster(level, past=PAST, missing="fill", device="cpu", random_state=seed, **more)
    forecaster.fit(series[:start])
    line = {"part": part, "data": data, "seed": seed, "n_live": len(series) - start, "asked": level}
    line["fit_seconds"] = round(time.perf_counter() - started, 1)
    if part == DOZEN:
        line["n_warnings"] = n_warnings(forecaster, series[start:])
    return [{**line, "found": each_way(forecaster, series, start), **environment("cpu")}]


def report(lines: Sequence[Line]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in lines[0]["versions"].items())
    text = [
        "# Series that leave the range they were trained in",
        f"`make bench-range`; {lines[0]['device']}, {versions}. " + " ".join((__doc__ or "").split("\n\n")[1].split()),
    ]
    for part, about in ABOUT.items():
        own = [line for line in lines if line["part"] == part]
        if own:
            text += [f"## {part.capitalize()}\n\n{about}", table_of(own), in_words(own)]
    return "\n\n".join(text) + "\n"


def in_words(lines: Sequence[Line]) -> str:
    """How far coverage lies from what was asked."""
    off = {way: np.array([line["found"][way]["coverage"] - line["asked"] for line in lines]) for way in WAYS}
    said = [f"{way} {np.abs(each).max():.4f} at most, {each.mean():+.4f} on average" for way, each in off.items()]
    n_within = int((np.abs(off[NOW]) <= WITHIN).sum())
    text = f"Coverage less what was asked: {'; '.join(said)}. Within {WITHIN}: {n_within} of {len(lines)}."
    if "n_warnings" in lines[0]:
        most = max(line["n_warnings"] for line in lines)
        text += f" Warnings of a fit's {lines[0]['n_live']:,} live updates: at most {most}."
    return text


def table_of(lines: Sequence[Line]) -> str:
    """A line for each series; of many, one for each kind."""
    heads = ["series", *(f"coverage {way}" for way in WAYS), "worst 500 before", "now"]
    heads += ["interval score, levels moved / before", "now / before", "RMSE now / before", "seen far outside"]
    text = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    groups = {f"{line['data']}, {line['seed']}": [line] for line in lines}
    if lines[0]["part"] == MANY:
        groups = {
            f"{kind}, mean of {len(own)}": own for kind in KINDS if (own := [x for x in lines if x["data"] == kind])
        }
    if len(lines) > 1:
        groups["all"] = list(lines)
    for name, own in groups.items():
        found = {way: [line["found"][way] for line in own] for way in WAYS}
        cells = [f"{np.mean([one['coverage'] for one in found[way]]):.4f}" for way in WAYS]
        cells += [f"{min(one['worst_500'] for one in found[way]):.3f}" for way in (BEFORE, NOW)]
        ways = ((MOVED, "interval_score"), (NOW, "interval_score"), (NOW, "rmse"))
        cells += [f"{over_before(found, way, score):.3f}" for way, score in ways]
        cells.append(f"{sum(one['n_outside'] for one in found[NOW]) / sum(line['n_live'] for line in own):.0%}")
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def over_before(found: dict[str, list[dict[str, float]]], way: str, score: str) -> float:
    """A score over that of before, a geometric mean."""
    pairs = zip(found[way], found[BEFORE], strict=True)
    return float(np.exp(np.mean([np.log(one[score] / other[score]) for one, other in pairs])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, stacks=False)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    path = arguments.out / ("range-quick.jsonl" if arguments.quick else "range.jsonl")
    known = read_lines(path) if path.exists() else []
    done = {(line["part"], line["data"], line["seed"]) for line in known}
    if arguments.quick:
        jobs = [(DOZEN, "daily cycle", 0, QUICK)]
    else:
        jobs = [(PUBLIC, data, 0, SMALL) for data in SERIES]
        for part, seeds in SEEDS.items():
            jobs += [(part, kind, seed, SMALL) for seed, kind in product(seeds, KINDS)]
    jobs = [job for job in jobs if job[0] in arguments.parts and job[:3] not in done]
    failed = run_jobs(measure, jobs, path, arguments.jobs, time.time() + arguments.seconds)
    text = report(read_lines(path))
    path.with_suffix(".md").write_text(text)
    print(text)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
