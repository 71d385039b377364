"""Processes of joblib as the place where units are run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from joblib.externals.loky import FIRST_COMPLETED, BrokenProcessPool, Future, ProcessPoolExecutor, wait
from tqdm import tqdm

from reproduction.study import Engine, Failure, Outcome, Unit, outcome_of

SECONDS_PER_LOOK = 0.2  # how often a worker looks whether the process that asked is still there
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
DIED = "its process ended before it was done, and so did that of a second try; was it killed, or short of memory?"


@dataclass(frozen=True)
class Processes(Engine):
    """Processes that work side by side on this machine, each with one thread.

    When one of them dies, joblib ends them all. Units that were waiting go to new ones. Of those that were being run,
    one may have killed its process: each is run once more, with nothing beside it, so that no other unit is blamed.
    """

    jobs: int

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome], None, None]:
        waiting, lost = deque(units), []
        while waiting:
            lost += yield from _side_by_side(waiting, self.jobs)
        for unit in lost:
            lost_again = yield from _side_by_side(deque([unit]), 1)
            yield from ((unit, Failure(str(unit), DIED)) for unit in lost_again)


def _side_by_side(waiting: deque[Unit], jobs: int) -> Generator[tuple[Unit, Outcome], None, list[Unit]]:
    """Run units that wait until there are none, or until a process dies; returns what was being run at that time."""
    lost = []
    running: dict[Future, Unit] = {}
    with _pool(min(jobs, len(waiting))) as pool:
        _refill(running, waiting, pool, jobs)
        while running:
            ended = {future: running.pop(future) for future in wait(running, return_when=FIRST_COMPLETED).done}
            _refill(running, waiting, pool, jobs)  # before the lines are written: no process need wait for that
            for future, unit in ended.items():
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(unit)
                else:
                    yield unit, _outcome_in(future, unit)
    return lost


def _refill(running: dict[Future, Unit], waiting: deque[Unit], pool: ProcessPoolExecutor, jobs: int) -> None:
    while waiting and len(running) < jobs:
        try:
            with _deaf_to_ctrl_c():  # the first call starts the processes
                future = pool.submit(outcome_of, waiting[0])
        except BrokenProcessPool:
            return
        running[future] = waiting.popleft()


def _outcome_in(future: Future, unit: Unit) -> Outcome:
    error = future.exception()  # not of the unit's own work: lines that do not pickle, for one
    outcome: Outcome = future.result() if error is None else Failure(str(unit), f"{type(error).__name__}: {error}")
    return outcome


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(jobs, initializer=_prepare_worker, initargs=(os.getpid(),), env=ONE_THREAD)
    try:
        yield pool
    finally:
        pool.shutdown(kill_workers=True)


def _prepare_worker(asker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too, but the process that asked ends them
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a worker prints is no output of the command
    threading.Thread(target=_end_with, args=(asker,), daemon=True).start()
    torch.set_num_threads(1)  # the other cores are for the other workers
    tqdm.set_lock(threading.RLock())  # its own would be a semaphore, which a process that is killed leaves behind


def _end_with(asker: int) -> None:
    """End this process when the one that asked is gone: a fit that nobody waits for is not worth finishing."""
    while os.getppid() == asker:
        time.sleep(SECONDS_PER_LOOK)
    os._exit(1)


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
