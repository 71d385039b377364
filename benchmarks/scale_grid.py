"""Seconds of the paper's Table 1 and Figure 3 from scratch, as a user runs them, with several processes on one device.

Table 1 has the seven rows of the paper: five baselines, Sigma Fit and IQR Fit, the last two as in 0.1.0. Figure
3 has all methods and levels that its command has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

TRIALS = 5  # as in the paper
JOBS = 7
ROWS_OF_TABLE1 = ("mc-dropout", "concrete-dropout", "quantiles", "bnn", "hnn", "sigma-fit", "iqr-fit")
TARGETS = {"table1": 300.0, "figure3": 900.0}  # seconds on a GPU
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def options(what: str, *, quick: bool) -> list[str]:
    methods = ["--methods", ",".join(ROWS_OF_TABLE1)] if what == "table1" else []
    if quick:
        return ["--methods", "hnn", "--data", "boston", "--trials", "1", "--jobs", "1", "--quick"]
    return [*methods, "--trials", str(TRIALS), "--jobs", str(JOBS)]


def run_grid(what: str, arguments: list[str], device: torch.device) -> dict[str, Any]:
    """Seconds by the clock of one command into an empty folder, and its result lines."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "reproduction", what, *arguments, "--device", str(device)]
        started = time.perf_counter()
        subprocess.run([*command, "--out", folder], check=True, env={**os.environ, **ONE_THREAD})
        seconds = time.perf_counter() - started
        stored = next(Path(folder).rglob("results.jsonl"))
        return {"seconds": seconds, "lines": [json.loads(line) for line in stored.read_text().splitlines()]}


def measure(what: str, device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Seconds of one command, and what its result lines say of their own."""
    arguments = options(what, quick=quick)
    done = run_grid(what, arguments, device)
    runs = done["lines"]
    methods = dict.fromkeys(run["method"] for run in runs)
    return {
        "command": " ".join(["python -m reproduction", what, *arguments]),
        "seconds": done["seconds"],
        "fits": len(runs),
        "tables": len({run["data"] for run in runs}),
        "levels": len(runs[0]["levels"]),
        "trials": len({run["trial"] for run in runs}),
        "seconds of each method": {
            method: sum(run["seconds"] for run in runs if run["method"] == method) for method in methods
        },
    }


def lines_of(what: str, found: dict[str, Any], device: str) -> str:
    title = {"table1": "Table 1", "figure3": "Figure 3"}[what]
    target = TARGETS[what]
    verdict = "reached" if found["seconds"] <= target else "MISSED"
    assessed = f" Target {target / 60:g} minutes: {verdict}." if device == "cuda" else ""
    command = found["command"].replace("coverwell reproduce", "python -m reproduction")  # its name in older results
    each = ", ".join(f"{method} {seconds:.0f}" for method, seconds in found["seconds of each method"].items())
    return (
        f"### {title} from scratch\n\n`{command}`: {len(found['seconds of each method'])} methods, "
        f"{found['tables']} tables, {found['trials']} trials, {found['levels']} levels, {found['fits']} fits in "
        f"{found['seconds']:.0f} s of wall-clock time.{assessed} Processes share the device, so the seconds of "
        f"single methods add up to more: {each}."
    )
