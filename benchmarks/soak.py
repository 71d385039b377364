"""An hour of live use: does memory stay flat, and do results stay the same?

Four things run side by side at a steady, moderate pace. A forecaster takes in one value after the other and gives the
next interval; a `LiveCalibrator` follows a naive forecast of the same series; a `CoverageMonitor` watches the
forecaster; and `coverwell serve`, a process of its own, answers requests, good and bad ones. Sleep keeps both processes
together at a share of one core.

What is checked: every answer is that of the first request of its kind, byte by byte; a forecaster that was saved and
loaded in the middle goes on with the same bits; at the end, a backtest from the first state gives what was given live,
and so do replays of the calibrator and the monitor. Memory is compared after a warm-up and at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from machine import at_the_end, environment, place
from tqdm import tqdm

import coverwell
from coverwell import LSTM, CoverageMonitor, LiveCalibrator, MatchedForecaster, Schedule
from serve import PAGE, SEED, Client, Served, body_of, model_in, served

HERE = Path(__file__).parent
COVERAGE, FITTED, PAST = 0.9, 600, 24
SHARE = 0.33  # of one core, for both processes together
TURNS_PER_SECOND = 8.0  # at most
UPDATES, TWINS = 5, 100  # of a turn; that a loaded twin takes in beside the forecaster
TWIN_EVERY, LARGE_EVERY = 400, 100  # turns
WARM_UP, ENDS, BLOCKS = 0.2, 0.1, 20  # shares of the time; blocks, whose means give the slope
BYTES_OF_HISTORY = 24  # of a value: two copies that a forecaster holds, and one that it makes at each update
LARGEST_GROWTH = 16e6  # bytes an hour, beside the history
LARGEST_DIFFERENCE = 1e-5  # of a replay in one call, in standard deviations of the series: LSTMs are of float32
ROWS = {"one row": ("JSON", 1), "100 rows": ("CSV", 100), "5,000 rows": ("JSON", 5_000)}
BAD = {
    "no JSON": b'{"rows": [',
    "bad fields": b'{"rows": [{"area": "x"}, {}]}',
    "no bytes of UTF-8": b'{"rows": [{"area": "\xff"}]}',
}

Found = dict[str, Any]


def series(n: int) -> np.ndarray:
    """A daily wave with noise that grows and falls from week to week."""
    t = np.arange(n)
    scale = 1 + 0.5 * np.sin(2 * np.pi * t / 168)
    return 50 + 5 * np.sin(2 * np.pi * t / 24) + scale * np.random.default_rng(SEED).normal(size=n)


@dataclass
class Checks:
    """How many cases of each kind were tried, and how many were wrong."""

    tried: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)  # difference of a replay

    def add(self, name: str, right: bool, n: int = 1) -> None:
        self.tried[name] += n
        self.wrong[name] += 0 if right else n

    def add_each(self, name: str, differences: np.ndarray) -> None:
        """Cases of a replay, by how far each lies from what was given live."""
        self.tried[name] += len(differences)
        self.wrong[name] += int((~(differences <= LARGEST_DIFFERENCE)).sum())
        self.largest[name] = float(differences.max())


# What runs ------------------------------------------------------------------------------------------------------------


class Live:
    """A forecaster, a calibrator and a monitor on one series; all that they gave is kept, in memory that is there."""

    def __init__(self, folder: Path, n_steps: int) -> None:
        self.y, self.folder, self.step, self.twin_until = series(FITTED + n_steps + 1), folder, FITTED, 0
        short = Schedule(max_rounds=2, mean_epochs=5, interval_epochs=5)
        model = MatchedForecaster(
            COVERAGE, past=PAST, network=LSTM(hidden=8), schedule=short, random_state=SEED, device="cpu"
        )
        self.forecaster = model.fit(self.y[:FITTED])
        coverwell.save(self.forecaster, folder / "first.safetensors")
        errors = np.diff(self.y[:FITTED])
        self.naive = LiveCalibrator.from_residuals(errors, COVERAGE)
        self.first_naive = json.dumps(self.naive.state_dict())
        self.monitor, self.twin = CoverageMonitor(COVERAGE), None
        self.given = np.ones((n_steps, 4))  # lower, upper; those of the naive forecast
        self.given[:] = np.nan

    def update(self, checks: Checks) -> None:
        """One value: the intervals that wait for it, and then the value itself."""
        y, place = float(self.y[self.step]), self.step - FITTED
        lower, upper = _ends(self.forecaster.predict_interval())
        naive = _ends(self.naive.interval(self.y[self.step - 1]))
        self.given[place] = lower, upper, *naive
        self.monitor.update([y], [lower], [upper])
        self.naive.update(y)
        self.forecaster.update(y)
        if self.twin is not None:
            same = _ends(self.twin.predict_interval()) == (lower, upper)
            checks.add("saved and loaded in the middle", same)
            self.twin.update(y)
            self.twin = None if self.step >= self.twin_until else self.twin
        self.step += 1

    def begin_twin(self) -> None:
        """A copy by way of a file, which goes on beside the forecaster."""
        path = self.folder / "middle.safetensors"
        coverwell.save(self.forecaster, path)
        self.twin, self.twin_until = coverwell.load(path), self.step + TWINS - 1

    def replay(self, checks: Checks) -> None:
        """What was given live, against one call each from the state at the start."""
        n, end = self.step - FITTED, self.step
        y, given, unit = self.y[FITTED:end], self.given[:n], float(self.y.std())
        test = coverwell.load(self.folder / "first.safetensors").backtest(self.y[:end])
        again = np.stack([test.lower[:, 0, 0], test.upper[:, 0, 0]], axis=1)
        checks.add_each("live against a backtest", np.abs(again - given[:, :2]).max(axis=1) / unit)
        naive = LiveCalibrator(COVERAGE, rate=self.naive.rate, start=self.naive.start, state=self.first_naive)
        again = np.array(
            [_one_more(naive, before, now) for before, now in zip(self.y[FITTED - 1 : end - 1], y, strict=True)]
        )
        checks.add_each("calibrator, replayed", np.abs(again - given[:, 2:]).max(axis=1) / unit)
        monitor = CoverageMonitor(COVERAGE).update(y, given[:, 0], given[:, 1])
        same = (
            (monitor.n_rows, monitor.n_missed) == (self.monitor.n_rows, self.monitor.n_missed) == (n, monitor.n_missed)
        )
        checks.add("monitor, replayed", same and np.isclose(monitor.evidence, self.monitor.evidence, rtol=1e-9))


def _ends(interval: Iterable[Any]) -> tuple[float, ...]:
    """The ends of the interval of one step at one level."""
    return tuple(np.asarray(bound).item() for bound in interval)


def _one_more(calibrator: LiveCalibrator, forecast: float, y: float) -> tuple[float, ...]:
    ends = _ends(calibrator.interval(forecast))
    calibrator.update(y)
    return ends


class Asking:
    """One client of the service, and what it was told first."""

    def __init__(self, client: Client) -> None:
        self.client, self.n_rows, self.statuses = client, 0, Counter[str]()
        self.bodies = {name: (kind, body_of(n, kind), 200) for name, (kind, n) in ROWS.items()}
        self.bodies |= {name: ("JSON", body, 422 if name == "bad fields" else 400) for name, body in BAD.items()}
        self.expected: dict[str, bytes] = {}

    def ask(self, name: str, checks: Checks) -> None:
        kind, body, due = self.bodies[name]
        status, content = self.client.ask(body, kind)
        self.statuses[str(status)] += 1
        self.n_rows += ROWS[name][1] if status == 200 else 0
        checks.add(f"service: {name}", status == due and self.expected.setdefault(name, content) == content)

    def check_metrics(self, checks: Checks) -> None:
        """The service's own counts against the client's."""
        status, content = self.client.ask(None, path="/metrics")
        lines = dict(line.rsplit(" ", 1) for line in content.decode().splitlines() if not line.startswith("#"))
        name = 'coverwell_requests_total{{path="/predict",status="{}"}}'
        found = {status: int(lines.get(name.format(status), 0)) for status in self.statuses}
        rows = int(lines["coverwell_rows_total"]) == self.n_rows
        checks.add("service: counts", status == 200 and rows and found == dict(self.statuses))


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(seconds: float) -> Found:
    packages = {name: version(name) for name in ("starlette", "uvicorn", "polars")}
    where, checks = environment(packages=packages, seed=SEED), Checks()
    most_turns = int(seconds * TURNS_PER_SECOND) + 1
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), UPDATES * most_turns)
        with served(model_in(Path(folder))) as service:
            asking = Asking(service.client())
            samples = run(live, asking, service, checks, seconds)
        live.replay(checks)
    return {
        "environment": at_the_end(where),
        "seconds": seconds,
        "tried": dict(checks.tried),
        "wrong": dict(checks.wrong),
        "largest": checks.largest,
        "coverage": 1 - live.monitor.n_missed / live.monitor.n_rows,
        "alarm": live.monitor.alarm,
        "opened again": asking.client.n_opened_again,
        "samples": samples,
    }


def run(live: Live, asking: Asking, service: Served, checks: Checks, seconds: float) -> dict[str, list[float]]:
    """Turn after turn until the time is over; memory, CPU and the time of an update, a hundred times or more."""
    samples: dict[str, list[float]] = {name: [] for name in ("seconds", "updates", "live", "service", "cpu", "update")}
    start, turn, spent = time.monotonic(), 0, 0.0
    cpu_before = time.process_time() + service.cpu
    bar = tqdm(total=round(seconds), unit="s", mininterval=min(60.0, seconds / 10), disable=None)
    while (now := time.monotonic() - start) < seconds and live.step + UPDATES < len(live.y):
        before = time.perf_counter()
        for _ in range(UPDATES):
            live.update(checks)
        spent += time.perf_counter() - before
        asking.ask("100 rows" if turn % 4 == 3 else "one row", checks)
        if turn % LARGE_EVERY == 0:
            for name in ("5,000 rows", *BAD):
                asking.ask(name, checks)
            asking.check_metrics(checks)
        if turn % TWIN_EVERY == TWIN_EVERY // 4:
            live.begin_twin()
        turn += 1
        cpu = time.process_time() + service.cpu - cpu_before
        if now >= len(samples["seconds"]) * seconds / (10 * BLOCKS):
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
            numbers = now, turn * UPDATES, memory, service.bytes, cpu, spent / UPDATES
            for name, number in zip(samples, numbers, strict=True):
                samples[name].append(number)
        spent = 0.0
        bar.update(round(now) - bar.n)
        time.sleep(
            max(0.0, cpu / SHARE, turn / TURNS_PER_SECOND) - now
            if max(cpu / SHARE, turn / TURNS_PER_SECOND) > now
            else 0.0
        )
    bar.close()
    return samples


def growth(samples: dict[str, list[float]], name: str) -> Found:
    """Bytes after the warm-up and at the end, and the slope in bytes an hour with its standard error, from block means.

    What the values of the series take is left aside, which a forecaster keeps.
    """
    t, memory = np.array(samples["seconds"]), np.array(samples[name])
    if name == "live":
        memory = memory - BYTES_OF_HISTORY * np.array(samples["updates"])
    t, memory = t[len(t) * WARM_UP <= np.arange(len(t))], memory[len(t) * WARM_UP <= np.arange(len(t))]
    n = max(1, int(len(samples["seconds"]) * ENDS))
    blocks = [(t[part].mean(), memory[part].mean()) for part in np.array_split(np.arange(len(t)), min(BLOCKS, len(t)))]
    x, y = np.array(blocks).T
    x = (x - x.mean()) / 3600
    slope = float(x @ y / (x @ x))
    error = float(np.sqrt(((y - y.mean() - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))
    return {"after": float(memory[:n].mean()), "end": float(memory[-n:].mean()), "slope": slope, "error": error}


# The report -----------------------------------------------------------------------------------------------------------


def report(results: Found) -> str:
    samples, seconds = results["samples"], results["seconds"]
    n_updates = results["tried"]["live against a backtest"]
    share = samples["cpu"][-1] / samples["seconds"][-1]
    memory = [
        "| process | after the warm-up, MB | at the end, MB | growth, MB | slope, MB an hour | |",
        "|---|---|---|---|---|---|",
    ]
    for name, told in {"live": "live updates", "service": "service"}.items():
        found = growth(samples, name)
        grown = found["end"] - found["after"]
        verdict = "flat" if grown <= allowed(results) else "**GROWS**"
        numbers = " | ".join(f"{number / 1e6:,.2f}" for number in (found["after"], found["end"], grown))
        memory.append(f"| {told} | {numbers} | {found['slope'] / 1e6:.2f} ± {found['error'] / 1e6:.2f} | {verdict} |")
    cases = ["| check | tried | wrong |", "|---|---|---|"]
    cases += [f"| {name} | {tried:,} | {results['wrong'][name]:,} |" for name, tried in results["tried"].items()]
    cases.append(f"| all | {sum(results['tried'].values()):,} | {sum(results['wrong'].values()):,} |")
    n = max(1, int(len(samples["update"]) * ENDS))
    first, last = (1e3 * float(np.median(part)) for part in (samples["update"][:n], samples["update"][-n:]))
    kept = BYTES_OF_HISTORY * n_updates / 1e6
    texts = [
        "# Soak",
        f"`make soak`. {seconds / 60:,.0f} minutes: {n_updates:,} values of a series, live, beside a service that is "
        f"asked at a steady pace. Both processes together took {share:.2f} of one core.",
        "\n".join(memory),
        f"Resident memory. The warm-up is the first {WARM_UP:.0%} of the time. Growth is between the {ENDS:.0%} after "
        f"it and the last {ENDS:.0%}, and may be {LARGEST_GROWTH / 1e6:g} MB an hour. A forecaster keeps its series: "
        f"{BYTES_OF_HISTORY} bytes a value, {kept:.2f} MB in all, are left aside. The slope is that of {BLOCKS} block "
        "means, with its standard error.",
        "\n".join(cases),
        "Answers of the service must have the bytes of the first one of their kind (its connection was opened again "
        f"{results['opened again']} times, after pauses). A forecaster that was saved and "
        f"loaded must go on with the same bits. Replays may lie {LARGEST_DIFFERENCE:g} standard deviations of the "
        f"series away; the farthest lay {max(results['largest'].values()):.1g} away. Live, {results['coverage']:.4f} "
        f"was covered where {COVERAGE} was asked; its alarm {'RANG' if results['alarm'] else 'did not ring'}. "
        f"A live step took {first:.1f} ms at the beginning and {last:.1f} ms at the end.",
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def failed(results: Found) -> bool:
    """Whether a case was wrong, or memory grew."""
    grown = (growth(results["samples"], name) for name in ("live", "service"))
    return sum(results["wrong"].values()) > 0 or any(one["end"] - one["after"] > allowed(results) for one in grown)


def allowed(results: Found) -> float:
    """Bytes by which a process may grow; a run of a few minutes says little."""
    return LARGEST_GROWTH * max(results["seconds"], 600) / 3600


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--quick", action="store_true", help="a minute; written beside the stored results")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = measure(40.0 if asked.quick else asked.seconds)
    file = asked.out / ("soak-quick.json" if asked.quick else "soak.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))
    if failed(results):
        sys.exit("something was wrong, or memory grew: see above")


if __name__ == "__main__":
    main()
