"""How soon the alarm of `CoverageMonitor` rings after coverage has dropped, how seldom it rings without a cause.

Streams are drawn: every row is missed with the probability that its time has, independent of others. All streams of a
case run side by side, through the same bets as the monitor's. A row takes in one y and its interval, on one thread.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from machine import CPU, at_the_end, environment, in_turns, place, threads

from coverwell import CoverageMonitor
from coverwell.monitor import ODDS, reserve, staked

HERE = Path(__file__).parent
SEED = 0
FALSE_ALARMS = 0.01
COVERAGES, DROPS, QUIET = (0.9, 0.95), (0.02, 0.05, 0.1), (0, 2000)
TARGET_ROWS, TARGET_MICROSECONDS = 500, 50  # to notice a drop of 0.05 from the start; for an update


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    streams: int = 1000
    most_rows: int = 50_000  # after a drop
    quiet_streams: int = 2000
    quiet_rows: int = 100_000
    turns: int = 5
    updates: int = 2000


FULL = Sizes()
QUICK = Sizes(streams=20, most_rows=3000, quiet_streams=20, quiet_rows=1000, turns=1, updates=20)


# Measuring -----------------------------------------------------------------------------------------------------------


def money(n_streams: int, coverage: float, miss_rates: Iterator[float], seed: int) -> Iterator[np.ndarray]:
    """The money of every stream after each row."""
    rng, stakes = np.random.default_rng(seed), np.zeros((n_streams, len(ODDS)))
    for n_rows, rate in enumerate(miss_rates, start=1):
        missed = (rng.random((n_streams, 1)) < rate).astype(float)
        stakes = staked(stakes, missed, n_rows, 1 - coverage)
        yield stakes.sum(axis=1) + reserve(n_rows)


def delays(sizes: Sizes, coverage: float, drop: float, quiet: int) -> dict[str, Any]:
    """Rows from the drop to the alarm, over the streams in which it did not ring before."""
    n_rows = quiet + sizes.most_rows
    rates = (1 - coverage + drop * (n >= quiet) for n in range(n_rows))
    rung_at = np.full(sizes.streams, n_rows + 1)
    for n, found in enumerate(money(sizes.streams, coverage, rates, SEED), start=1):
        rung_at[(found >= 1 / FALSE_ALARMS) & (rung_at > n_rows)] = n
        if (rung_at <= n_rows).all():
            break
    after = rung_at[rung_at > quiet] - quiet
    about = {"coverage": coverage, "drop": drop, "quiet": quiet, "before": int((rung_at <= quiet).sum())}
    quantiles = dict(zip(("median", "q90"), np.quantile(after, [0.5, 0.9]).tolist(), strict=True))
    return {**about, **quantiles, "mean": float(after.mean()), "never": int((rung_at > n_rows).sum())}


def false_alarms(sizes: Sizes, coverage: float) -> dict[str, Any]:
    rung = np.zeros(sizes.quiet_streams, dtype=bool)
    for found in money(sizes.quiet_streams, coverage, iter([1 - coverage] * sizes.quiet_rows), SEED + 1):
        rung |= found >= 1 / FALSE_ALARMS
    return {"coverage": coverage, "rung": int(rung.sum())}


def updates(sizes: Sizes) -> dict[str, Any]:
    """Microseconds per row, after many rows."""
    rng, n = np.random.default_rng(SEED), sizes.updates
    y, unlike, lower, upper = rng.normal(size=n), rng.chisquare(5, n), np.full(n, -1.645), np.full(n, 1.645)
    monitor = CoverageMonitor().update(y, lower, upper)
    rows = list(zip(y.tolist(), lower.tolist(), upper.tolist(), unlike.tolist(), strict=True))

    def each(update: Callable[..., object]) -> Callable[[], None]:
        def work() -> None:
            for row in rows:
                update(*row)

        return work

    ways = {
        "one row": each(lambda y, lower, upper, _: monitor.update(y, lower, upper)),
        "one row and its group": each(lambda y, lower, upper, _: monitor.update(y, lower, upper, "hill")),
        "one row's inputs": each(lambda _, __, ___, unlike: monitor.update_inputs(unlike)),
        f"a row among {n:,}": lambda: monitor.update(y, lower, upper),
    }
    return {way: 1e6 * time["seconds"] for way, time in in_turns(ways, CPU, sizes.turns, per_turn=n).items()}


def measure(sizes: Sizes) -> dict[str, Any]:
    where = environment(seed=SEED)
    with threads(1):
        dropped = [delays(sizes, *case) for case in product(COVERAGES, DROPS, QUIET)]
        quiet = [false_alarms(sizes, coverage) for coverage in COVERAGES]
        found = {"delays": dropped, "false alarms": quiet, "microseconds": updates(sizes)}
    return {"environment": at_the_end(where), "sizes": asdict(sizes), **found}


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    sizes = results["sizes"]
    n_streams, n_rows = sizes["quiet_streams"], sizes["quiet_rows"]
    texts = [
        "# The alarm",
        f"`make bench-alarm`. `CoverageMonitor` with `false_alarms={FALSE_ALARMS:g}` on drawn streams: rows from the "
        f"start of a drop in coverage to the alarm, over {sizes['streams']:,} streams each.",
        "\n".join(delay_table(results["delays"])),
        delay_lines(results["delays"]),
        f"Without a drop, {n_streams:,} streams of {n_rows:,} rows each, whose rows are missed exactly as often as "
        f"allowed. At most {100 * FALSE_ALARMS:g} % may ring, over streams of any length:",
        "\n".join(
            f"- {case['coverage']:g}: {case['rung']} streams rang, {100 * case['rung'] / n_streams:.2f} %."
            for case in results["false alarms"]
        ),
        f"Microseconds per row, the fastest of {sizes['turns']} turns, in CPU time; target: below "
        f"{TARGET_MICROSECONDS}:",
        "\n".join(f"- {way}: {cost:.1f}" for way, cost in results["microseconds"].items()),
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def delay_table(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| asked | covered after it | quiet rows before | median rows | mean | nine of ten within | rang before it |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in found:
        lines.append(
            f"| {case['coverage']:g} | {case['coverage'] - case['drop']:g} | {case['quiet']:,} | "
            f"{case['median']:,.0f} | {case['mean']:,.0f} | {case['q90']:,.0f} | {case['before']} |"
        )
    return lines


def delay_lines(found: list[dict[str, Any]]) -> str:
    asked = [case for case in found if case["drop"] == 0.05 and case["quiet"] == 0]
    verdicts = [
        f"{case['median']:,.0f} at {case['coverage']:g}, {'reached' if case['median'] < TARGET_ROWS else 'MISSED'}"
        for case in asked
    ]
    never = sum(case["never"] for case in found)
    target = f"Target for a drop of 0.05 from the start: a median below {TARGET_ROWS} rows; {'; '.join(verdicts)}."
    return f"{target} {never} streams had not rung at the end."


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few streams, seconds: whether everything runs")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = measure(QUICK if asked.quick else FULL)
    file = asked.out / ("alarm-quick.json" if asked.quick else "alarm.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
