"""Seconds of one grid by the clock, on one and on two workers: processes of our own, and Ray on the same machine.

Each run starts from scratch, as a user's does: starting the workers, and Ray, is part of it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from scale_curves import need_cpu
from scale_grid import run_grid

ENGINES = {"processes": (), "Ray": ("--on", "ray")}
WORKERS = (1, 2)
GRID = ("--methods", "sigma-fit", "--data", "boston,auto-mpg", "--trials", "6")
QUICK_GRID = ("--methods", "hnn", "--data", "boston", "--trials", "2", "--quick")
LONG_ENOUGH = 180.0  # seconds on one worker, for the target to be assessed
TIMES_FASTER = 1.6  # target, of two workers of Ray


def measure(device: torch.device, *, quick: bool) -> dict[str, Any]:
    need_cpu(device)
    grid = QUICK_GRID if quick else GRID
    engines = {name: how for name, how in ENGINES.items() if name != "Ray" or importlib.util.find_spec("ray")}
    return {
        "grid": " ".join(grid),
        "seconds": {
            name: {
                str(workers): run_grid("table1", [*grid, "--jobs", str(workers), *how], device)["seconds"]
                for workers in WORKERS
            }
            for name, how in engines.items()
        },
    }


def times_faster(seconds: dict[str, float]) -> float:
    one, two = (seconds[str(workers)] for workers in WORKERS)
    return one / two


def lines(found: dict[str, Any], device: str) -> str:
    text = [
        "### One grid on one and on two workers",
        "",
        f"`python -m reproduction table1 {found['grid']}`, wall-clock time, including the start of the workers.",
        "",
        "| workers | " + " | ".join(f"{name}, seconds" for name in found["seconds"]) + " |",
        "|" + "---|" * (1 + len(found["seconds"])),
    ]
    for workers in WORKERS:
        cells = [f"{seconds[str(workers)]:.0f}" for seconds in found["seconds"].values()]
        text.append(f"| {workers} | " + " | ".join(cells) + " |")
    cells = [f"{times_faster(seconds):.2f}" for seconds in found["seconds"].values()]
    return "\n".join([*text, "| times faster | " + " | ".join(cells) + " |"]) + verdict(found["seconds"].get("Ray"))


def verdict(seconds: dict[str, float] | None) -> str:
    if seconds is None or seconds["1"] < LONG_ENOUGH:
        return ""
    assessed = "reached" if times_faster(seconds) >= TIMES_FASTER else "MISSED"
    return f"\n\nTarget for two Ray workers: {TIMES_FASTER:g} times faster than one: {assessed}."
