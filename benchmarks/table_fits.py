"""What benchmarks on many tables share: the levels they ask for, and fits side by side in processes of one thread."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from result_lines import append
from tqdm import tqdm

from coverwell import metrics
from reproduction.engines import ONE_THREAD

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
QUICK_TABLES = ("boston", "auto mpg")
QUICK_ROUNDS = {"max_rounds": 2, "mean_epochs": 2, "interval_epochs": 2}
NO_WARNINGS = {"PYTHONWARNINGS": "ignore::UserWarning"}  # of constant columns and outlying rows, once per fit

Line = dict[str, Any]
Job = tuple[Any, ...]


def levels_for(n_rows: int, levels: Sequence[float] = LEVELS) -> tuple[float, ...]:
    """The levels for which so many rows have a rank: 0.99 needs 99 of them."""
    return tuple(level for level in levels if level * (n_rows + 1) <= n_rows)


def pinball(scores: Sequence[float], levels: Sequence[float]) -> float:
    """The mean pinball loss of the ends of intervals, from their interval scores at these levels."""
    losses = [(1 - level) / 2 * score for score, level in zip(scores, levels, strict=True)]
    return sum(losses) / len(losses)


def interval_scores(y: Any, lower: Any, upper: Any, levels: Sequence[float]) -> dict[str, list[float]]:
    """Coverage, width and interval score at each level, of bounds (row, level)."""
    each = list(zip(lower.T, upper.T, levels, strict=True))
    return {
        "coverage": [metrics.coverage(y, low, high) for low, high, _ in each],
        "width": [metrics.average_width(low, high) for low, high, _ in each],
        "interval_score": [metrics.interval_score(y, low, high, level) for low, high, level in each],
    }


def size_of(data: str) -> float:
    """Roughly what a fit of a table costs."""
    from reproduction.domains.tables import COLUMNS_FOR_FREE, table  # needs pandas, which not every study does

    n_rows, n_columns = table(data).X.shape
    return float(n_rows * (COLUMNS_FOR_FREE + n_columns))


def add_arguments(parser: argparse.ArgumentParser, *, stacks: bool = True) -> None:
    """The options of how fits are run."""
    parser.add_argument("--quick", action="store_true", help="a look: few splits of the two small tables, short rounds")
    if stacks:
        parser.add_argument("--stack", type=int, default=1, help="splits that are fitted at once, as on a GPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side, each with one thread")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no fit later than this; 0 writes the report alone"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")


def run_jobs(
    measure: Callable[..., list[Line]], jobs: Sequence[Job], path: Path, n_processes: int, end: float
) -> list[str]:
    """Add the lines of every job that starts before `end`, by the clock; what failed, a line of text each."""
    if not jobs or time.time() >= end:
        return []
    failed: list[str] = []
    context = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, {**ONE_THREAD, **NO_WARNINGS}),
        ProcessPoolExecutor(
            min(n_processes, len(jobs)), context, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
        tqdm(total=len(jobs), unit="fit") as bar,
    ):
        job_of: dict[Future[list[Line]], Job] = {pool.submit(_in_time, measure, end, *job): job for job in jobs}
        for future in as_completed(job_of):
            try:
                lines = future.result()
            except Exception as error:  # the others go on
                failed.append(f"{job_of[future]}: {error!r}")
                continue
            append(path, *lines)
            bar.update()
    return failed


def _in_time(measure: Callable[..., list[Line]], end: float, *job: Any) -> list[Line]:
    return measure(*job) if time.time() < end else []
