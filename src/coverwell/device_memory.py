"""When a device has too little memory for the networks of a fit: how many of them do fit, and what to do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch

from coverwell.algorithm import Measures, Record
from coverwell.errors import NotEnoughMemoryError
from coverwell.folds import Job

__all__ = ["NotEnoughMemoryError", "OfJobs", "run_within_memory"]

Progress = Callable[[Measures, Callable[[], list[Any]]], None]


@runtime_checkable
class OfJobs(Protocol):
    """How jobs are trained side by side."""

    @property
    def device(self) -> torch.device: ...

    def run(self, jobs: Sequence[Job], progress: Progress) -> tuple[list[Any], Record]:
        """Train all jobs at once; `progress` gets each round's measures and a function that gives the present teams."""
        ...

    def shortened(self) -> OfJobs:
        """The same with as little training as shows whether it fits into memory."""
        ...


def run_within_memory(training: OfJobs, jobs: Sequence[Job], progress: Progress) -> tuple[list[Any], Record]:
    """Train the jobs; where memory does not suffice, say how many members would fit.

    Raises
    ------
    NotEnoughMemoryError
    """
    result = _tried(training, jobs, progress)
    if result is None:
        fits = _what_fits(training.shortened(), jobs)
        raise NotEnoughMemoryError(_memory_of(training.device), len(jobs), len(jobs[0].trains), fits)
    return result


def _what_fits(training: OfJobs, jobs: Sequence[Job]) -> tuple[int, int]:
    """The numbers of jobs and of members of a job that go through a short training, found by halving."""
    n_jobs, n_members = len(jobs), len(jobs[0].trains)
    while n_jobs * n_members > 1:
        n_jobs, n_members = (n_jobs // 2, n_members) if n_jobs > 1 else (1, n_members // 2)
        some = [replace(job, trains=job.trains[:n_members], speaks=job.speaks[:n_members]) for job in jobs[:n_jobs]]
        if _tried(training, some, lambda measures, present: None) is not None:
            return n_jobs, n_members
    return 0, 0


def _tried(training: OfJobs, jobs: Sequence[Job], progress: Progress) -> tuple[list[Any], Record] | None:
    try:
        return training.run(jobs, progress)
    except (RuntimeError, MemoryError) as error:
        if not _is_about_memory(error):
            raise
    # Only here, where the error and the tensors that its traceback holds are gone, can their memory be used again.
    gc.collect()
    if training.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _is_about_memory(error: BaseException) -> bool:
    # A CPU's allocator has no error of its own.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _memory_of(device: torch.device) -> str:
    if device.type != "cuda":
        return f"the {device.type} has free" if device.type != "cpu" else "this machine has free"
    free, total = torch.cuda.mem_get_info(device)
    return f"{torch.cuda.get_device_name(device)} has ({total / 1e9:.1f} GB, {free / 1e9:.1f} GB free)"
