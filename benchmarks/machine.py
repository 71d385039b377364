"""Where and how a benchmark was run: the machine, its load and the versions, in numbers and in words; the clocks.

Ways that are compared take turns in one process, so that all meet the same load, and the fastest turn of each counts.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coverwell

BUSY = 1.5  # a load average above which a run says that others were at work
CPU = torch.device("cpu")
Work = Callable[[], object]


# The machine ---------------------------------------------------------------------------------------------------------


def environment(device: torch.device = CPU, *, packages: dict[str, str] | None = None, **facts: Any) -> dict[str, Any]:
    """Where a run starts and under what load; `packages` are versions beside these, `facts` the run's own."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        **facts,
        "load before": load(),
        "versions": {
            "coverwell": coverwell.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            **(packages or {}),
            "python": platform.python_version(),
        },
    }


def at_the_end(where: dict[str, Any]) -> dict[str, Any]:
    """The environment of a run that is over, with the load that it leaves."""
    return {**where, "load after": load()}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def load() -> float:
    return round(os.getloadavg()[0], 2)


# In words ------------------------------------------------------------------------------------------------------------


def place(where: dict[str, Any]) -> str:
    """What stands under a table; a GPU and the weights of a trunk are named where the run had them."""
    gpu = f"{where['gpu']}, host " if where.get("gpu") else ""
    weights = f"trunk's weights: {where['weights']}; " if "weights" in where else ""
    return (
        f"({where['date']}: {gpu}{where['cpu']}, {where['cores']} cores, load average {where['load before']} before "
        f"and {where['load after']} after{', others were at work' if busy(where) else ''}; {weights}"
        f"seed {where['seed']}; {versions_in_words(where)}.)"
    )


def busy(where: dict[str, Any]) -> bool:
    """Whether others were at work: before a run, or after it beside the run itself, which may load all cores."""
    return bool(where["load before"] > BUSY or where["load after"] > where["cores"] + BUSY - 1)


def versions_in_words(where: dict[str, Any]) -> str:
    return ", ".join(f"{package} {number}" for package, number in where["versions"].items())


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# Clocks --------------------------------------------------------------------------------------------------------------


def seconds_of(work: Work, device: torch.device) -> float:
    """CPU seconds of the process where torch has one thread of the CPU, else those of the clock."""
    on_gpu = device.type == "cuda"
    read = time.process_time if not on_gpu and torch.get_num_threads() == 1 else time.perf_counter
    if on_gpu:
        torch.cuda.synchronize()
    start = read()
    work()
    if on_gpu:
        torch.cuda.synchronize()
    return read() - start


def in_turns(works: dict[str, Work], device: torch.device, turns: int, *, per_turn: int = 1) -> dict[str, Any]:
    """The fastest turn of each way, and all of them, in seconds per one of the `per_turn` things a turn does.

    On a GPU a turn that is not timed comes first: kernels are loaded in it.
    """
    if device.type == "cuda":
        for work in works.values():
            work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            found[name].append(seconds_of(work, device) / per_turn)
    return {name: fastest(times) for name, times in found.items()}


def fastest(times: list[float]) -> dict[str, Any]:
    return {"seconds": min(times), "all": times}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Torch has so many threads inside, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
