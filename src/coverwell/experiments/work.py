"""Units of work of a study: run in one or several processes, and their lines added to a results file.

Only the process that was asked writes results, a whole unit at a time. So it may be killed at any moment: what is
written stays, and the same call later runs what is missing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from tqdm import tqdm

from coverwell.experiments.results import Line, append, key_of, only_writer, read_results

__all__ = ["Failure", "Unit", "Work", "run"]

SECONDS_PER_TICK = 5.0
BAR = "{percentage:3.0f}% |{bar}| {desc} [{elapsed} gone, {remaining} left]"


@runtime_checkable
class Unit(Protocol):
    """What one process does at a time; its text says what it is. It travels to workers, so it must pickle."""

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""

    def lines(self) -> list[Line]:
        """The result lines of the unit."""


@runtime_checkable
class Work(Protocol):
    """All runs that are asked for, of one study."""

    KEY: ClassVar[tuple[str, ...]]  # the fields that tell a run from all others
    FIELDS: ClassVar[tuple[str, ...]]  # what every line has

    def check_data(self) -> None:
        """Raise if data are missing, before anything is written."""

    def units(self, done: Container[Any] = ()) -> Sequence[Unit]:
        """What is not yet done, given the keys of the runs that are; the longest first."""


@dataclass(frozen=True)
class Failure:
    """What went wrong in a unit."""

    unit: str
    error: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.unit}: {self.error}"


Outcome = list[Line] | Failure


def run(work: Work, path: Path, *, jobs: int = 1) -> list[Failure]:
    """Run what is missing in a results file and add it; units that fail are reported and do not stop the others.

    Parameters
    ----------
    work : Work
        What is asked for.
    path : Path
        The results file; made if it is not there.
    jobs : int
        Processes that work side by side, each with one thread; 1 is this process itself.

    Returns
    -------
    list of Failure
        Empty if all that was asked for is now in the file.
    """
    failures = []
    work.check_data()
    with only_writer(path):
        stored = read_results(path, fields=work.FIELDS, key=work.KEY)
        units = work.units({key_of(line, work.KEY) for line in stored})
        with _progress(units) as bar, closing(_outcomes(units, jobs)) as outcomes:
            for unit, outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                    bar.write(f"failed: {outcome}", file=sys.stderr)
                else:
                    append(path, outcome)
                bar.set_description_str(f"last: {unit}", refresh=False)
                bar.update(unit.cost)
    return failures


@contextmanager
def _progress(units: Sequence[Unit]) -> Iterator[Any]:
    """A bar that moves by the cost of the units, so that its time left is not that of the short ones."""
    total = sum(unit.cost for unit in units)
    ended = threading.Event()

    def tick() -> None:  # a long unit must not look like a standstill
        while not ended.wait(SECONDS_PER_TICK):
            bar.refresh()

    with tqdm(total=total, bar_format=BAR, desc="first fits", miniters=0, smoothing=0, disable=not units) as bar:
        if sys.stderr.isatty():
            threading.Thread(target=tick, daemon=True).start()
        try:
            yield bar
        finally:
            ended.set()


def _outcome(unit: Unit) -> Outcome:
    try:
        return unit.lines()
    except ValueError as error:  # what our own checks say needs no traceback
        return Failure(str(unit), f"{type(error).__name__}: {error}")
    except Exception as error:
        return Failure(str(unit), f"{type(error).__name__}: {error}", traceback.format_exc())


def _outcomes(units: Sequence[Unit], jobs: int) -> Generator[tuple[Unit, Outcome]]:
    if jobs == 1:
        return ((unit, _outcome(unit)) for unit in units)
    return _outcomes_of_workers(units, jobs)


# Several processes. Each worker has a pipe of its own: it takes a unit and gives lines back, until its parent is gone.


class _Worker:
    """A process that runs units one at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process that has used CUDA or threads may hang
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_work, args=(its_end,), daemon=True)
        with _deaf_to_ctrl_c():
            self.process.start()
        its_end.close()  # so that its death is the end of the pipe

    def give(self, unit: Unit) -> None:
        self.unit = unit
        with suppress(OSError):  # it has just died: `take` says so
            self.pipe.send(unit)

    def take(self) -> Outcome:
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            return Failure(str(self.unit), f"its process ended with code {code}; was it killed, or short of memory?")
        return outcome

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _outcomes_of_workers(units: Sequence[Unit], jobs: int) -> Generator[tuple[Unit, Outcome]]:
    waiting = deque(units)
    workers: dict[Any, _Worker] = {}
    try:
        while waiting and len(workers) < jobs:
            _start(workers, waiting.popleft())
        while workers:
            for pipe in wait(list(workers)):
                worker = workers[pipe]
                unit, outcome = worker.unit, worker.take()
                alive = worker.process.is_alive()
                if waiting and alive:
                    worker.give(waiting.popleft())  # before the lines are written: it need not wait for that
                else:
                    workers.pop(pipe).end()
                if waiting and not alive:
                    _start(workers, waiting.popleft())
                yield unit, outcome
    finally:
        for worker in workers.values():
            worker.end()


def _start(workers: dict[Any, _Worker], unit: Unit) -> None:
    worker = _Worker()
    workers[worker.pipe] = worker
    worker.give(unit)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, in processes that are started here for good: it reaches them too, but their parent ends them."""
    if threading.current_thread() is not threading.main_thread():  # only that one may change signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(pipe: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # the other cores are for the other workers
    tqdm.set_lock(threading.RLock())  # its own would be a semaphore, which a process that is killed leaves behind
    with suppress(EOFError):  # the parent is gone
        while True:
            pipe.send(_outcome(pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in workers only
    wait([parent.sentinel])
    os._exit(1)  # a fit that nobody waits for is not worth finishing
