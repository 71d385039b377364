"""Where training runs: device, seed, threads, and what to do when memory is short."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch.backends import cudnn

from coverwell.errors import NotEnoughMemoryError
from coverwell.networks.mlp import MLP
from coverwell.training.learner import Settings
from coverwell.training.rows import Rows

__all__ = ["device_from", "few_threads", "run_within_memory", "seeded"]

Result = TypeVar("Result", covariant=True)
# Floating-point operations of one step below which a second thread waits more than it works.
SMALL_STEP = 4e9


def device_from(choice: str | torch.device) -> torch.device:
    """The device that is asked for; "auto" is CUDA where there is one."""
    if choice == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(choice)
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or another name that torch knows, got {choice!r}"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(choice)!r} is not available here; use device='cpu' or 'auto'")
    return device


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw everything inside from one seed, and leave the caller's random state as it was.

    On a GPU, convolutions also run in a fixed order.
    """
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), _same_bits() if cuda else nullcontext():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed GPUs that are not ours
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def _same_bits() -> Iterator[None]:
    before = cudnn.deterministic
    cudnn.deterministic = True
    try:
        yield
    finally:
        cudnn.deterministic = before


@runtime_checkable
class Trainable(Protocol[Result]):
    """How an estimator trains all jobs at once."""

    @property
    def settings(self) -> Settings: ...

    @property
    def network(self) -> Any: ...

    def run(self, rows: Rows, on_round: Callable[..., None]) -> Result: ...

    def shortened(self) -> Trainable[Result]:
        """The same with as little training as shows whether it fits into memory."""
        ...


@contextmanager
def few_threads(training: Trainable[Any], rows: Rows) -> Iterator[None]:
    """One thread while training steps are small, the caller's number for large ones; restored afterwards."""
    per_row = getattr(training.network, "operations_per_row", MLP().operations_per_row)  # a user's own: a guess
    n_networks = training.settings.batch_size * rows.trains.shape[0] * rows.trains.shape[1]
    small = 6.0 * n_networks * float(per_row(rows.x[0, 0].numel())) < SMALL_STEP
    before = torch.get_num_threads()
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_within_memory(training: Trainable[Result], rows: Rows, on_round: Callable[..., None]) -> Result:
    """Train the jobs; where memory is too short, say how many members would fit.

    Raises
    ------
    NotEnoughMemoryError
    """
    try:
        return training.run(rows, on_round)
    except (RuntimeError, MemoryError) as error:
        if not _is_about_memory(error):
            raise
    fits = _what_fits(training.shortened(), rows)
    raise NotEnoughMemoryError(_memory_of(training.settings.device), rows.n_jobs, rows.members_per_job, fits)


def _what_fits(training: Trainable[Any], rows: Rows) -> tuple[int, int]:
    """The numbers of jobs and of members of a job that survive a short training, found by halving."""
    n_jobs, n_members = rows.n_jobs, rows.members_per_job
    while n_jobs * n_members > 1:
        # Only here, where the error and the tensors that its traceback held are gone, can their memory be used again.
        gc.collect()
        if training.settings.device.type == "cuda":
            torch.cuda.empty_cache()
        n_jobs, n_members = (n_jobs // 2, n_members) if n_jobs > 1 else (1, n_members // 2)
        try:
            training.run(rows.few(n_jobs, n_members), lambda *_: None)
        except (RuntimeError, MemoryError) as error:
            if not _is_about_memory(error):
                raise
        else:
            return n_jobs, n_members
    return 0, 0


def _is_about_memory(error: BaseException) -> bool:
    # A CPU's allocator has no error of its own.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _memory_of(device: torch.device) -> str:
    if device.type != "cuda":
        return f"the {device.type} has free" if device.type != "cpu" else "this machine has free"
    free, total = torch.cuda.mem_get_info(device)
    return f"{torch.cuda.get_device_name(device)} has ({total / 1e9:.1f} GB, {free / 1e9:.1f} GB free)"
