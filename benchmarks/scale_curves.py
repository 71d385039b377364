"""Seconds and memory of a fit against rows, members and levels, and of one whole pass over a million rows; on a CPU.

Every measurement is a process of its own on one thread, unless it says otherwise. Fits have the default settings but
for two rounds, since a longer fit has more rounds of the same cost, and for five members, where members are not what
grows: by default small tables have more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
import speed
import torch
from flat_settings import as_arguments
from machine import threads, three_digits
from scale_training import Case, stack_of

from coverwell import MatchedRegressor
from coverwell.training import rows as training_rows
from coverwell.training.device import auto_batch_size

ROUNDS, FEATURES, ROWS = 2, 20, 1_000
FOLDS = 5
NUMBERS: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 10_000, 100_000, 1_000_000),
    "stack": (1, 5, 25, 50, 75),
    "levels": (1, 2, 5, 10, 20),
}
QUICK_NUMBERS: dict[str, tuple[int, ...]] = {"rows": (200, 400), "stack": (1, 5), "levels": (1, 2)}
TITLES = {"rows": "rows", "stack": "members", "levels": "levels"}
BILLION = 1e9
EPOCH = Case(members=5, hidden=64, batch_size=auto_batch_size(1_000_000), rows=1_000_000, features=FEATURES)
QUICK_EPOCH = Case(members=2, hidden=4, batch_size=8, rows=64, features=FEATURES)
EPOCH_SECONDS = 30.0  # target on two cores; assessed on one thread, which is what a fit takes for such small steps


# Fits of growing size ------------------------------------------------------------------------------------------------


def settings_of(curve: str, number: int) -> dict[str, Any]:
    """The settings of one point of a curve."""
    if curve == "stack":
        return {"folds": None, "calibration": None} if number == 1 else {"folds": FOLDS, "repeats": number // FOLDS}
    if curve == "levels":
        return {"coverage": tuple(np.linspace(0.5, 0.95, number)) if number > 1 else 0.9, "repeats": 1}
    return {"repeats": 1}


def point(curve: str, number: int) -> dict[str, Any]:
    """Seconds and the most memory of one fit, which has this process to itself."""
    n_rows = number if curve == "rows" else ROWS
    X, y = speed.random_table(n_rows, FEATURES)
    before = speed.peak_megabytes()
    arguments = {"max_rounds": ROUNDS, "device": "cpu", "random_state": 0, **settings_of(curve, number)}
    model = MatchedRegressor(**as_arguments(arguments))
    times = speed.times_of_fit(model, X, y)
    return {
        "number": number,
        "rows": n_rows,
        "members": model.predictor_.fitted_teams[0].n_members,
        "rounds": len(model.rounds_),
        "most rows per epoch": training_rows.MOST_ROWS_PER_EPOCH,
        **times,
        "peak megabytes": speed.peak_megabytes(),
        "megabytes before": before,
    }


def measure(curve: str, device: torch.device, *, quick: bool) -> list[dict[str, Any]]:
    need_cpu(device)
    numbers = (QUICK_NUMBERS if quick else NUMBERS)[curve]
    return [in_own_process(curve, str(number)) for number in numbers]


def need_cpu(device: torch.device) -> None:
    if device.type != "cpu":
        raise ValueError(f"this part is measured on a CPU, got the device {device}; leave it out of --parts")


def in_own_process(*words: str) -> dict[str, Any]:
    return speed.run([sys.executable, __file__, *words])


def slopes(found: list[dict[str, Any]], what: str) -> list[float]:
    """Exponents of growth between neighbouring points: 1 is linear, 0 does not grow."""
    return [float(np.log(b[what] / a[what]) / np.log(b["number"] / a["number"])) for a, b in pairwise(found)]


def per_unit(found: list[dict[str, Any]], what: str) -> float:
    """What one more row, member or level costs, by the last two points."""
    before, last = found[-2:]
    return float((last[what] - before[what]) / (last["number"] - before["number"]))


# One whole pass ------------------------------------------------------------------------------------------------------


def measure_epoch(device: torch.device, *, quick: bool) -> dict[str, Any]:
    need_cpu(device)
    numbers = sorted({1, os.cpu_count() or 1})
    return {"passes": [in_own_process("epoch", str(n), *(["--quick"] if quick else [])) for n in numbers]}


def epoch(n_threads: int, *, quick: bool) -> dict[str, Any]:
    """Seconds of one pass over all rows, in which no row is left out; a fit takes fewer of so many."""
    case = QUICK_EPOCH if quick else EPOCH
    training_rows.MOST_ROWS_PER_EPOCH = case.rows
    with threads(n_threads):
        stack = stack_of(case, torch.device("cpu"))
        cpu, clock = time.process_time(), time.perf_counter()
        stack.descend(stack.squared_error, epochs=1)
        times = {"CPU seconds": time.process_time() - cpu, "clock seconds": time.perf_counter() - clock}
    return {
        "threads": n_threads,
        "members": case.members,
        "hidden": case.hidden,
        "rows": case.rows,
        "features": case.features,
        "batch": stack.batches.batch_size,
        **times,
        "peak megabytes": speed.peak_megabytes(),
    }


# The report ----------------------------------------------------------------------------------------------------------


def lines_of(curve: str, found: list[dict[str, Any]], device: str) -> str:
    title = TITLES[curve]
    others = f"{ROUNDS} rounds" + ("" if curve == "stack" else f" and {FOLDS} members")
    others += f", {FEATURES} features" + ("" if curve == "rows" else f", {ROWS:,} rows")
    text = [
        f"### Time and memory against {title}",
        "",
        f"Fits with default settings except {others}, each in its own process. An epoch shows a member at most "
        f"{found[0]['most rows per epoch']:,} rows.",
        "",
        f"| {title} | CPU seconds | peak MB | MB before the fit |",
        "|---|---|---|---|",
    ]
    for one in found:
        text.append(
            f"| {one['number']:,} | {three_digits(one['CPU seconds'])} "
            f"| {one['peak megabytes']:,.0f} | {one['megabytes before']:,.0f} |"
        )
    return "\n".join([*text, "", growth_in_words(curve, found)])


def growth_in_words(curve: str, found: list[dict[str, Any]]) -> str:
    exponents = ", ".join(f"{slope:.2f}" for slope in slopes(found, "CPU seconds"))
    return (
        f"Exponents of the seconds from point to point: {exponents} (1 is linear). By the last two points, each "
        f"additional {TITLES[curve].removesuffix('s')} costs {three_digits(1e3 * per_unit(found, 'CPU seconds'))} ms "
        f"and {three_digits(2**10 * per_unit(found, 'peak megabytes'))} kB."
    )


def epoch_lines(found: dict[str, Any], device: str) -> str:
    first = found["passes"][0]
    clocks = ", ".join(
        f"{one['clock seconds']:.1f} s with {'one thread' if one['threads'] == 1 else str(one['threads']) + ' threads'}"
        for one in found["passes"]
    )
    verdict = "reached" if first["CPU seconds"] <= EPOCH_SECONDS else "MISSED"
    assessed = f" Target {EPOCH_SECONDS:g} s: {verdict}." if first["rows"] >= EPOCH.rows else ""
    return (
        f"### One pass over {first['rows']:,} rows\n\n{first['members']} members of hidden {first['hidden']} without "
        f"encodings, {first['features']} features, batches of {first['batch']}, every member on every row: "
        f"{first['CPU seconds']:.1f} CPU seconds on one thread; wall clock: {clocks}; peak memory "
        f"{max(one['peak megabytes'] for one in found['passes']):,.0f} MB.{assessed}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement; its result as a line of JSON.")
    parser.add_argument("curve", choices=[*NUMBERS, "epoch"])
    parser.add_argument("number", type=int)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.curve == "epoch":
        print(json.dumps(epoch(asked.number, quick=asked.quick)))
    else:
        print(json.dumps(point(asked.curve, asked.number)))


if __name__ == "__main__":
    main()
