"""Speed of forecasting: training LSTMs side by side, a live step, a refit, and a whole test period.

Ways that are compared take turns in one process, so that all meet the same load, and the fastest turn of each counts.
On one thread seconds are CPU seconds, those of the clock less what other programs take away; with more threads, and
on a GPU, they are the clock's. A live step is always timed by the clock. A run replaces the results of its own devices
and keeps those of others; `--parts` measures and replaces some tables alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import Work, at_the_end, environment, in_turns, place, seconds_of, threads, three_digits
from stacks import SEED, Stack
from torch import Tensor, nn

from coverwell import LSTM, Schedule
from coverwell.forecasting import LiveCalibrator, MatchedForecaster
from coverwell.forecasting.forecaster import NETWORK, REFIT
from coverwell.networks.lstm import StackedLSTM
from coverwell.training.learner import outputs_of

HERE = Path(__file__).parent
MEMBERS, LAYERS, STEPS, CHANNELS = 5, 2, 24, 2
UPDATE_MS = 5.0  # target
FIRST_FIT = 600  # steps; speed does not depend on what was learned
# The least training: the networks are as large as ever.
BRIEFLY: dict[str, Any] = {
    "schedule": Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1),
    "random_state": SEED,
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    hidden: int = 128
    rows: int = 5_000
    batch_sizes: tuple[int, ...] = (512, 256)
    turns: int = 3
    updates: int = 200
    update_runs: int = 7
    refit_steps: int = 10_000
    refit_hidden: int = 128
    backtest_steps: int = 12_000

    @property
    def network(self) -> LSTM:
        return LSTM(self.hidden, LAYERS, shortcut=False, steps=STEPS, channels=CHANNELS)

    def default_network(self, hidden: int) -> LSTM:
        """The forecaster's own network, with so many units."""
        return LSTM(hidden, NETWORK.layers, NETWORK.dropout, NETWORK.shortcut)


# On a CPU a refit of the whole network takes several minutes.
FULL = {"cpu": Sizes(turns=2, refit_hidden=32), "cuda": Sizes(turns=5)}
QUICK = Sizes(
    hidden=8,
    rows=100,
    batch_sizes=(50,),
    turns=1,
    updates=5,
    update_runs=2,
    refit_steps=FIRST_FIT,
    refit_hidden=4,
    backtest_steps=50,
)


def thread_numbers(device: torch.device) -> list[int]:
    return sorted({1, os.cpu_count() or 1}) if device.type == "cpu" else [1]


# Training ------------------------------------------------------------------------------------------------------------


class OneLSTM(nn.Module):
    """`torch.nn.LSTM` with a linear head, the same network as one member of ours."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, hidden, LAYERS, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, windows: Tensor) -> Tensor:
        output: Tensor = self.head(self.lstm(windows)[0][:, -1])
        return output


def random_rows(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(n, STEPS * CHANNELS, generator=generator)
    return x.to(device), x[:, -1:].sin().to(device)


def side_by_side(sizes: Sizes, batch_size: int, device: torch.device) -> Stack:
    return Stack.of(sizes.network, *random_rows(sizes.rows, device), MEMBERS, batch_size=batch_size)


def one_after_the_other(sizes: Sizes, batch_size: int, device: torch.device) -> Callable[[int], None]:
    """Trains as many networks of torch's for some epochs, each with an Adam of its own."""
    torch.manual_seed(SEED)
    x, y = random_rows(sizes.rows, device)
    x = x.unflatten(1, (STEPS, CHANNELS))
    models = [OneLSTM(sizes.hidden).to(device) for _ in range(MEMBERS)]
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3, fused=True) for model in models]

    def train(epochs: int) -> None:
        for model, optimizer in zip(models, optimizers, strict=True):
            for _ in range(epochs):
                for rows in torch.randperm(sizes.rows, device=device).split(batch_size):
                    loss = (model(x[rows]) - y[rows]).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()

    return train


def without_tf32(work: Work) -> None:
    """cuDNN rounds the factors of its products to ten bits unless it is set not to; our products are exact."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        work()
    finally:
        torch.backends.cudnn.allow_tf32 = before


def epoch_times(sizes: Sizes, batch_size: int, device: torch.device) -> dict[str, Any]:
    """Seconds per epoch of all members, in the ways that there are on a device."""
    stack = side_by_side(sizes, batch_size, device)
    even = stack.batches.batch_size
    torchs = one_after_the_other(sizes, even, device)
    epochs = 3 if device.type == "cuda" else 1  # as a turn of Algorithm 1 has, which captures a step once
    works: dict[str, Work] = {"side by side": partial(stack.descend, stack.squared_error, epochs)}
    if device.type == "cuda":
        ordinary = side_by_side(sizes, batch_size, device)
        ordinary.learner.graphs = None
        works["side by side, steps not captured"] = partial(ordinary.descend, ordinary.squared_error, epochs)
        works["torch.nn.LSTM, one after the other, without TF32"] = partial(without_tf32, partial(torchs, epochs))
    works["torch.nn.LSTM, one after the other"] = partial(torchs, epochs)
    return {"batch size": even, "ways": in_turns(works, device, sizes.turns, per_turn=epochs)}


def all_epoch_times(sizes: Sizes, device: torch.device) -> list[dict[str, Any]]:
    found = []
    for number in thread_numbers(device):
        with threads(number):
            found += [{"threads": number, **epoch_times(sizes, size, device)} for size in sizes.batch_sizes]
    return found


def layer_times(sizes: Sizes, device: torch.device) -> list[dict[str, Any]]:
    """Seconds of one stacked layer in its two ways, trained on a batch and asked about one row."""
    torch.manual_seed(SEED)
    layer = StackedLSTM(MEMBERS, sizes.hidden, sizes.hidden).to(device)
    found = []
    for batch, trained in [*((size, True) for size in sizes.batch_sizes), (1, False)]:
        x = torch.randn(MEMBERS, STEPS, batch, sizes.hidden, device=device)
        n = 3 if trained else 30

        def run(way: Callable[[Tensor], Tensor], x: Tensor = x, n: int = n, trained: bool = trained) -> None:
            with torch.set_grad_enabled(trained):
                for _ in range(n):
                    states = way(x)
                    if trained:
                        states.sum().backward()

        works: dict[str, Work] = {"at once": partial(run, layer.at_once), "one by one": partial(run, layer.one_by_one)}
        found.append({"batch": batch, "trained": trained, "ways": in_turns(works, device, 3, per_turn=n)})
    return found


# A forecaster at work ------------------------------------------------------------------------------------------------


def half_hours(n: int) -> np.ndarray:
    """A daily cycle with noise that stays for a while, as a load has."""
    noise = np.random.default_rng(SEED).normal(size=n)
    for t in range(1, n):
        noise[t] += 0.8 * noise[t - 1]
    return 100 + 20 * np.sin(2 * np.pi * np.arange(n) / 48) + 2 * noise


def fitted(n_steps: int, network: LSTM, device: torch.device) -> MatchedForecaster:
    forecaster = MatchedForecaster(0.95, past=STEPS, network=network, device=str(device), **BRIEFLY)
    fitted: MatchedForecaster = forecaster.fit(half_hours(n_steps))
    return fitted


def update_times(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Milliseconds of `update` and `predict_interval`, and of the networks alone, of the run with the lowest median."""
    forecaster, runs = fitted(FIRST_FIT, sizes.default_network(sizes.hidden), device), []
    truths = half_hours(FIRST_FIT + sizes.update_runs * sizes.updates)[FIRST_FIT:]
    for own in truths.reshape(sizes.update_runs, -1):
        whole = [clock_seconds(partial(live_step, forecaster, float(y))) for y in own]
        networks = [clock_seconds(partial(networks_alone, forecaster, device)) for _ in own]
        runs.append({"whole": in_milliseconds(whole), "networks": in_milliseconds(networks)})
    return {
        "network": asdict(forecaster.regressor_.network),
        "members": forecaster.regressor_.predictor_.fitted_teams[0].n_members,
        "updates": sizes.updates,
        "medians of all runs": [run["whole"]["median"] for run in runs],
        **min(runs, key=lambda run: run["whole"]["median"]),
    }


def live_step(forecaster: MatchedForecaster, y: float) -> None:
    forecaster.update(y)
    forecaster.predict_interval()


def networks_alone(forecaster: MatchedForecaster, device: torch.device) -> None:
    """What the two teams do in a live step."""
    row = torch.zeros(1, 1, forecaster.windows_.n_columns, dtype=torch.float64, device=device)
    (fitted_team,) = forecaster.regressor_.predictor_.moved(device).fitted_teams
    for team in (fitted_team.mean_team, fitted_team.interval_team):
        outputs_of(team, row, team.precision).cpu()


def clock_seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_milliseconds(seconds: list[float]) -> dict[str, float]:
    low, middle, high = 1e3 * np.percentile(seconds, [5, 50, 95])
    return {"median": middle, "5 %": low, "95 %": high}


def refit_times(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    forecaster = fitted(sizes.refit_steps, sizes.default_network(sizes.refit_hidden), device)
    return {
        "network": asdict(forecaster.regressor_.network),
        "steps": sizes.refit_steps,
        "settings": REFIT,
        "threads": torch.get_num_threads(),
        "seconds": seconds_of(forecaster.refit, device),
    }


def backtest_times(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Seconds of a whole test period, and of its live calibration alone."""
    n, start = sizes.backtest_steps, FIRST_FIT
    series, forecaster = half_hours(start + n), fitted(start, sizes.default_network(sizes.hidden), device)
    found: dict[str, Any] = {
        "network": asdict(forecaster.regressor_.network),
        "steps": n,
        "threads": torch.get_num_threads(),
        "backtest": seconds_of(lambda: forecaster.backtest(series, start=start), device),
    }
    for horizon in (1, 24):
        mean, half_width = np.zeros((n, horizon)), np.full((n, horizon, 2, 1), 40.0)
        calibrator = LiveCalibrator(0.95, horizon=horizon)
        found[f"run_live, {horizon} ahead"] = seconds_of(
            partial(calibrator.run, mean, half_width, series[start:] - 100), device
        )
    return found


# Everything ----------------------------------------------------------------------------------------------------------


def on_one_thread(times: Callable[[Sizes, torch.device], Any]) -> Callable[[Sizes, torch.device], Any]:
    def measured(sizes: Sizes, device: torch.device) -> Any:
        with threads(1):
            return times(sizes, device)

    return measured


PARTS: dict[str, Callable[[Sizes, torch.device], Any]] = {
    "epochs": all_epoch_times,
    "layers": on_one_thread(layer_times),
    "update": on_one_thread(update_times),
    "refit": refit_times,
    "backtest": backtest_times,
}


def measure(part: str, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """One table, with where and under what load it was measured."""
    where = environment(device, seed=SEED)
    found = PARTS[part](sizes, device)
    return {
        "environment": at_the_end(where),
        "sizes": asdict(sizes),
        "found": found,
    }


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    texts = [
        "# Speed of forecasting",
        "`make bench-forecasting`. On one thread, seconds are CPU seconds; with more, and on a GPU, wall-clock "
        "seconds. Alternatives ran in turns, and the fastest turn of each counts.",
    ]
    for name, parts in sorted(results.items()):
        texts.append("## GPU" if name == "cuda" else "## CPU")
        for part, lines in LINES.items():
            if part in parts:
                texts += [lines(parts[part]["found"], parts[part]["sizes"]), place(parts[part]["environment"])]
    return "\n\n".join(texts) + "\n"


def epoch_table(cases: list[dict[str, Any]], sizes: dict[str, Any]) -> str:
    lines = [
        f"### Training, seconds per epoch of {MEMBERS} networks",
        "",
        f"{LAYERS} layers of {sizes['hidden']} and a linear head, {STEPS} steps of {CHANNELS} channels, "
        f"{sizes['rows']:,} rows for each network; forward, backward and Adam.",
        "",
        "| batch | threads | way | seconds | torch.nn.LSTM's seconds over these |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        torchs = case["ways"]["torch.nn.LSTM, one after the other"]["seconds"]
        for way, times in case["ways"].items():
            ratio = torchs / times["seconds"]
            lines.append(
                f"| {case['batch size']} | {case['threads']} | {way} | {three_digits(times['seconds'])} | {ratio:.2f} |"
            )
    return "\n".join(lines)


def layer_table(layers: list[dict[str, Any]], sizes: dict[str, Any]) -> str:
    lines = [
        f"### One layer of {MEMBERS} members of {sizes['hidden']} units in its two ways, milliseconds on one thread",
        "",
        "| | all members at once | torch's LSTM, one by one | faster |",
        "|---|---|---|---|",
    ]
    for case in layers:
        times = {way: 1e3 * found["seconds"] for way, found in case["ways"].items()}
        what = f"forward and backward, batch of {case['batch']}" if case["trained"] else "forward, one row"
        faster = min(times, key=lambda way: times[way])
        lines.append(f"| {what} | {three_digits(times['at once'])} | {three_digits(times['one by one'])} | {faster} |")
    return "\n".join(lines)


def update_lines(found: dict[str, Any], _: dict[str, Any]) -> str:
    whole, networks = found["whole"], found["networks"]
    verdict = "reached" if whole["median"] < UPDATE_MS else "MISSED"
    medians = ", ".join(f"{value:.2f}" for value in found["medians of all runs"])
    return (
        f"### A live step: `update` and `predict_interval`, one thread\n\n"
        f"{found['members']} + {found['members']} members of {network_in_words(found['network'])}, "
        f"{found['updates']} steps: median {whole['median']:.2f} ms (5 % {whole['5 %']:.2f}, 95 % "
        f"{whole['95 %']:.2f}), of which the networks {networks['median']:.2f} ms; target below {UPDATE_MS:g} ms: "
        f"{verdict}. By the clock, the run with the lowest median; the medians of all runs: {medians}."
    )


def refit_lines(found: dict[str, Any], _: dict[str, Any]) -> str:
    settings = found["settings"]
    return (
        f"### A warm-started refit\n\n"
        f"{found['steps']:,} half-hours, {network_in_words(found['network'])}, up to {settings['max_rounds']} rounds "
        f"of {settings['mean_epochs']} + {settings['interval_epochs']} epochs, {threads_in_words(found['threads'])}: "
        f"{found['seconds']:.1f} s."
    )


def backtest_lines(found: dict[str, Any], _: dict[str, Any]) -> str:
    return (
        f"### A whole period of {found['steps']:,} steps\n\n"
        f"`backtest` with {network_in_words(found['network'])}, {threads_in_words(found['threads'])}: "
        f"{found['backtest']:.2f} s. Live calibration alone, `run_live`: {found['run_live, 1 ahead']:.3f} s one step "
        f"ahead, {found['run_live, 24 ahead']:.3f} s for 24 steps ahead."
    )


LINES: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "epochs": epoch_table,
    "layers": layer_table,
    "update": update_lines,
    "refit": refit_lines,
    "backtest": backtest_lines,
}


def network_in_words(network: dict[str, Any]) -> str:
    return f"LSTM(hidden={network['hidden']}, layers={network['layers']})"


def threads_in_words(number: int) -> str:
    return "one thread" if number == 1 else f"at most {number} threads"


def kept(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by device and part."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small networks, seconds: whether everything runs")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="one device alone; else the CPU, and a GPU if there")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="some of the tables")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    there = ["cpu", "cuda"] if torch.cuda.is_available() and not arguments.quick else ["cpu"]
    file = arguments.out / ("forecasting-quick.json" if arguments.quick else "forecasting.json")
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = kept(file)
    for name in [arguments.device] if arguments.device else there:
        sizes = QUICK if arguments.quick else FULL[name]
        for part in arguments.parts:
            results.setdefault(name, {})[part] = measure(part, sizes, torch.device(name))
            file.write_text(json.dumps(results, indent=1) + "\n")
            file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
