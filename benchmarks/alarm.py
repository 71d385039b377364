"""How soon the alarm of `CoverageMonitor` rings after coverage has dropped, how seldom it rings without a cause.

Streams are drawn: every row is missed with the probability that its time has, independent of others. All streams of a
case run side by side, through the same bets as the monitor's. A row takes in one y and its interval, on one thread.
Other ways to bet run on the same streams, and so do intervals whose width follows the misses, as a forecaster's do.
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
from scipy.stats import binom, norm

from coverwell import CoverageMonitor
from coverwell.monitor import ODDS, reserve, staked

HERE = Path(__file__).parent
SEED = 0
FALSE_ALARMS = 0.01
COVERAGES, DROPS, QUIET = (0.9, 0.95), (0.02, 0.05, 0.1), (0, 2000)
TARGET_ROWS, TARGET_MICROSECONDS = 500, 50  # to notice a drop of 0.05 from the start; for an update
N_ROWS = 100_000  # over which at most FALSE_ALARMS may ring
LATE = (0, 2000, 50_000)  # quiet rows before a drop, for the other ways to bet
MEMORY = 400  # rows, of the rate that is learned
GROUPS, ONE_OF = 200, 20  # without a cause; one of which drops
RATES = (0.05, 0.2)  # of live calibration
NOISES = {"constant": 1.0, "a quarter larger": 1.25, "doubled": 2.0}  # after half of the rows
UNLIKE = (1.0, 1.5, 2.0)  # how much farther away the inputs of the second half lie

Found = dict[str, Any]
Money = Iterator[np.ndarray]  # of every stream, after each row


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    streams: int = 1000
    most_rows: int = 50_000  # after a drop
    quiet_streams: int = 2000
    quiet_rows: int = N_ROWS
    group_rows: int = 500  # of each group
    live_rows: int = 20_000
    input_streams: int = 1000
    input_rows: int = 4000
    turns: int = 5
    updates: int = 2000


FULL = Sizes()
QUICK = Sizes(20, 1000, 20, 1000, group_rows=20, live_rows=200, input_streams=5, input_rows=40, turns=1, updates=20)


# Measuring -----------------------------------------------------------------------------------------------------------


def misses(n_streams: int, miss_rates: Iterator[float], seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    for rate in miss_rates:
        yield (rng.random((n_streams, 1)) < rate).astype(float)


def money(n_streams: int, coverage: float, miss_rates: Iterator[float], seed: int) -> Money:
    """The monitor's."""
    stakes = np.zeros((n_streams, len(ODDS)))
    for n_rows, missed in enumerate(misses(n_streams, miss_rates, seed), start=1):
        stakes = staked(stakes, missed, n_rows, 1 - coverage)
        yield stakes.sum(axis=1) + reserve(n_rows)


def learned_rate(n_streams: int, coverage: float, miss_rates: Iterator[float], seed: int) -> Money:
    """All of it on the miss rate of about the last `MEMORY` rows, wherever that is above the allowed one."""
    found, allowed = np.ones(n_streams), 1 - coverage
    recent = np.full(n_streams, allowed)
    for missed in misses(n_streams, miss_rates, seed):
        rate = np.maximum(recent, allowed)
        found = found * np.where(missed[:, 0], rate / allowed, (1 - rate) / (1 - allowed))
        recent = recent + (missed[:, 0] - recent) / MEMORY
        yield found


def e_detector(n_streams: int, coverage: float, miss_rates: Iterator[float], seed: int) -> Money:
    """Of the monitor's bets, with a fresh 1 staked before every row; less the n rows, it is a supermartingale."""
    stakes = np.zeros((n_streams, len(ODDS)))
    for missed in misses(n_streams, miss_rates, seed):
        stakes = staked(stakes + 1 / len(ODDS), missed, 10**15, 1 - coverage)  # so late nothing of a reserve is left
        yield stakes.sum(axis=1) / N_ROWS


WAYS: dict[str, Callable[..., Money]] = {"the monitor": money, "learned rate": learned_rate, "e-detector": e_detector}


def delays(
    sizes: Sizes, coverage: float, drop: float, quiet: int, *, way: str = "the monitor", evidence: float = 1
) -> Found:
    """Rows from the drop to the alarm, at so many times the usual evidence, over streams that did not ring before."""
    n_rows = quiet + sizes.most_rows
    rates = (1 - coverage + drop * (n >= quiet) for n in range(n_rows))
    rung_at = np.full(sizes.streams, n_rows + 1)
    for n, found in enumerate(WAYS[way](sizes.streams, coverage, rates, SEED), start=1):
        rung_at[(found >= evidence / FALSE_ALARMS) & (rung_at > n_rows)] = n
        if (rung_at <= n_rows).all():
            break
    after = rung_at[rung_at > quiet] - quiet
    about = {"coverage": coverage, "drop": drop, "quiet": quiet, "before": int((rung_at <= quiet).sum())}
    quantiles = dict(zip(("median", "q90"), np.quantile(after, [0.5, 0.9]).tolist(), strict=True))
    return {**about, **quantiles, "mean": float(after.mean()), "never": int((rung_at > n_rows).sum())}


def window(coverage: float, drop: float) -> int:
    """The fewest rows in which an exact test of these rows alone notices the drop in half of the cases.

    It may ring in one of N_ROWS / rows windows with the probability FALSE_ALARMS in all.
    """
    for n in range(1, N_ROWS):
        least = binom.isf(FALSE_ALARMS * n / N_ROWS, n, 1 - coverage) + 1
        if binom.sf(least - 1, n, 1 - coverage + drop) >= 0.5:
            return n
    raise ValueError(f"no window of {N_ROWS} rows notices a drop of {drop}")


def false_alarms(sizes: Sizes, coverage: float) -> Found:
    rung = np.zeros(sizes.quiet_streams, dtype=bool)
    for found in money(sizes.quiet_streams, coverage, iter([1 - coverage] * sizes.quiet_rows), SEED + 1):
        rung |= found >= 1 / FALSE_ALARMS
    return {"coverage": coverage, "rung": int(rung.sum())}


def false_alarms_of_groups(sizes: Sizes) -> Found:
    """Streams in which any of many groups rang, all with their rows at the same pace, without a cause."""
    n, first = np.arange(1, GROUPS + 1), 0
    needed, rung = n * (n + 1) / FALSE_ALARMS, 0
    while first < sizes.quiet_streams:
        n_streams, seed = min(100, sizes.quiet_streams - first), SEED + 2 + first
        largest = np.zeros(n_streams * GROUPS)
        for found in money(n_streams * GROUPS, 0.9, iter([0.1] * sizes.group_rows), seed):
            largest = np.maximum(largest, found)
        rung += int((largest.reshape(n_streams, GROUPS) >= needed).any(axis=1).sum())
        first += n_streams
    return {"coverage": 0.9, "rung": rung}


def drops_in_a_group(sizes: Sizes) -> list[Found]:
    """Rows of its own until a group rings, by its place among the groups."""
    cases = product((0.05, 0.1, 0.2), (1, 5, ONE_OF))
    return [{**delays(sizes, 0.9, drop, 0, evidence=j * (j + 1)), "place": j} for drop, j in cases]


def live_alarms(sizes: Sizes, rate: float, noise: float) -> Found:
    """Streams that rang though, or because, the width follows the misses at this rate; the noise may change half-way.

    Residuals are Gaussian, and the interval is right at first.
    """
    rng, allowed, n_rows = np.random.default_rng(SEED), 0.1, sizes.live_rows
    log_factor, stakes = np.zeros((sizes.streams, 1)), np.zeros((sizes.streams, len(ODDS)))
    rung, n_missed = np.zeros(sizes.streams, dtype=bool), 0.0
    for n in range(1, n_rows + 1):
        residual = np.abs(rng.normal(size=(sizes.streams, 1))) * (noise if n > n_rows // 2 else 1.0)
        missed = (residual > norm.isf(allowed / 2) * np.exp(log_factor)).astype(float)
        log_factor = log_factor + rate * (missed - allowed)
        stakes, n_missed = staked(stakes, missed, n, allowed), n_missed + missed.mean()
        rung |= stakes.sum(axis=1) + reserve(n) >= 1 / FALSE_ALARMS
    return {"rate": rate, "noise": noise, "rung": int(rung.sum()), "coverage": 1 - n_missed / n_rows}


def input_alarms(sizes: Sizes, unlike: float) -> Found:
    """Rows of five Gaussian inputs until the alarm for inputs, after half of which they lie farther away."""
    rng, half, rung_at = np.random.default_rng(SEED), sizes.input_rows // 2, []
    for _ in range(sizes.input_streams):
        monitor, first = CoverageMonitor(), rng.chisquare(5, half) / 5
        monitor.update_inputs(first)
        early, n = monitor.input_alarm, 0
        for value in () if early else unlike * rng.chisquare(5, half) / 5:
            n += 1
            if monitor.update_inputs(value).input_alarm:
                break
        rung_at.append(0 if early else n if monitor.input_alarm else sizes.input_rows)
    found = np.array(rung_at)
    counts = {"before": int((found == 0).sum()), "rung": int((found <= half).sum())}
    return {"unlike": unlike, **counts, "median": float(np.median(found))}


def updates(sizes: Sizes) -> Found:
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


def measure(sizes: Sizes) -> Found:
    where = environment(seed=SEED)
    with threads(1):
        found = {
            "delays": [delays(sizes, *case) for case in product(COVERAGES, DROPS, QUIET)],
            "false alarms": [false_alarms(sizes, coverage) for coverage in COVERAGES],
            "ways": [{**delays(sizes, 0.9, 0.05, quiet, way=way), "way": way} for way, quiet in product(WAYS, LATE)],
            "windows": {str(coverage): window(coverage, 0.05) for coverage in COVERAGES},
            "groups": false_alarms_of_groups(sizes),
            "one group": drops_in_a_group(sizes),
            "live": [live_alarms(sizes, rate, noise) for noise, rate in product(NOISES.values(), (0.0, *RATES))],
            "inputs": [input_alarms(sizes, unlike) for unlike in UNLIKE],
            "microseconds": updates(sizes),
        }
    return {"environment": at_the_end(where), "sizes": asdict(sizes), **found}


# The report ----------------------------------------------------------------------------------------------------------


def report(results: Found) -> str:
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
        "## Other ways to bet",
        other_ways(results),
        "\n".join(way_table(results["ways"])),
        "## Groups",
        f"{n_streams:,} streams of {GROUPS} groups with {sizes['group_rows']:,} rows each, all missed exactly as often "
        f"as allowed at 0.9: in {results['groups']['rung']} streams any group rang, "
        f"{100 * results['groups']['rung'] / n_streams:.2f} %; at most {100 * FALSE_ALARMS:g} % may.",
        f"A drop from the start in one group of {ONE_OF}: rows of its own until it rings, by its place in the order in "
        f"which the groups appeared (with rows of all groups in turns, the stream has {ONE_OF} times as many):",
        "\n".join(group_table(results["one group"])),
        "## Series",
        f"Gaussian residuals at 0.9, {sizes['streams']:,} streams of {sizes['live_rows']:,} rows, whose noise changes "
        "half-way. Static intervals, and live ones whose width follows the misses:",
        "\n".join(live_table(results["live"], sizes["streams"])),
        "## Inputs",
        f"{sizes['input_streams']:,} streams of {sizes['input_rows']:,} rows with five Gaussian inputs, whose mean "
        f"square is so many times as large after half of the rows. At most {100 * FALSE_ALARMS:g} % may ring before "
        f"that; of so many streams, up to {chance(sizes['input_streams']):.1f} % by chance:",
        "\n".join(input_table(results["inputs"], sizes["input_streams"])),
        "## Time",
        f"Microseconds per row, the fastest of {sizes['turns']} turns, in CPU time; target: below "
        f"{TARGET_MICROSECONDS}:",
        "\n".join(f"- {way}: {cost:.1f}" for way, cost in results["microseconds"].items()),
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def other_ways(results: Found) -> str:
    windows = "; ".join(f"{n} rows at {coverage}" for coverage, n in results["windows"].items())
    share = f"{100 * FALSE_ALARMS:g} % over {N_ROWS:,} rows"
    return (
        "Rows from a drop of 0.05 at 0.9 to the alarm (median), by how late it comes, for other ways that keep false "
        f"alarms below {share}. *Learned rate* bets all money on the miss rate of about the last {MEMORY} rows. The "
        "*e-detector* (Shin, Ramdas and Rinaldo 2023) stakes a fresh 1 before every row and rings at "
        f"{N_ROWS / FALSE_ALARMS:,.0f}; for longer streams it promises nothing. To notice the drop in half of the "
        "cases, an exact binomial test of a window that begins with it, which may ring in any of the windows of "
        f"{N_ROWS:,} rows, needs {windows}."
    )


def chance(n_streams: int) -> float:
    """The share, in percent, that is not exceeded in 39 of 40 cases if FALSE_ALARMS are right."""
    return 100 * float(binom.ppf(0.975, n_streams, FALSE_ALARMS)) / n_streams


def way_table(found: list[Found]) -> list[str]:
    lines = ["| quiet rows before | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    for quiet in LATE:
        medians = [f"{case['median']:,.0f}" for case in found if case["quiet"] == quiet]
        lines.append(f"| {quiet:,} | {' | '.join(medians)} |")
    return lines


def group_table(found: list[Found]) -> list[str]:
    places = sorted({case["place"] for case in found})
    heads = [f"{place}{'st' if place == 1 else 'th'} to appear" for place in places]
    lines = [f"| covered after it | {' | '.join(heads)} |", "|---|" + "---|" * len(places)]
    for drop in sorted({case["drop"] for case in found}):
        medians = [f"{case['median']:,.0f}" for case in found if case["drop"] == drop]
        lines.append(f"| {0.9 - drop:g} | {' | '.join(medians)} |")
    return lines


def live_table(found: list[Found], n_streams: int) -> list[str]:
    lines = ["| noise | width | coverage | streams that rang |", "|---|---|---|---|"]
    for case in found:
        width = f"live, rate {case['rate']:g}" if case["rate"] else "static"
        noise = next(name for name, value in NOISES.items() if value == case["noise"])
        lines.append(f"| {noise} | {width} | {case['coverage']:.3f} | {100 * case['rung'] / n_streams:.1f} % |")
    return lines


def input_table(found: list[Found], n_streams: int) -> list[str]:
    lines = ["| times as large | rang before | rang in all | median rows after it |", "|---|---|---|---|"]
    for case in found:
        shares = [f"{100 * case[name] / n_streams:.1f} %" for name in ("before", "rung")]
        median = f"{case['median']:,.0f}" if case["rung"] > n_streams / 2 else ""
        lines.append(f"| {case['unlike']:g} | {' | '.join(shares)} | {median} |")
    return lines


def delay_table(found: list[Found]) -> list[str]:
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


def delay_lines(found: list[Found]) -> str:
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
