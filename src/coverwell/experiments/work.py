"""Units of work of a study: run in one or several processes, or on a cluster, and their lines added to a results file.

Only the process that was asked writes results, a whole unit at a time. So it may be killed at any moment: what is
written stays, and the same call later runs what is missing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from joblib.externals.loky import FIRST_COMPLETED, BrokenProcessPool, Future, ProcessPoolExecutor, wait
from tqdm import tqdm

from coverwell.experiments.results import Line, append, key_of, only_writer, read_results

__all__ = ["Engine", "Failure", "Here", "Outcome", "Processes", "Unit", "Work", "check", "outcome_of", "run"]

SECONDS_PER_TICK = 5.0
BAR = "{percentage:3.0f}% |{bar}| {desc} [{elapsed} gone, {remaining} left]"
SECONDS_PER_LOOK = 0.2  # how often a worker looks whether the process that asked is still there
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
DIED = "its process ended before it was done, and so did that of a second try; was it killed, or short of memory?"


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


@runtime_checkable
class Engine(Protocol):
    """Where units are run."""

    def check(self, work: Work) -> None:
        """Raise if work cannot be done there, before anything is written."""

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome]]:
        """What comes of each unit, once each and in any order; what still runs when this is closed is ended."""

    def close(self) -> None:
        """Give back what the engine holds."""


def run(work: Work, path: Path, *, on: Engine | None = None) -> list[Failure]:
    """Run what is missing in a results file and add it; units that fail are reported and do not stop the others.

    Parameters
    ----------
    work : Work
        What is asked for.
    path : Path
        The results file; made if it is not there.
    on : Engine, optional
        Where the units are run: `Here()`, by default, `Processes(jobs)`, or `coverwell.scale.RayTasks()`.

    Returns
    -------
    list of Failure
        Empty if all that was asked for is now in the file.
    """
    failures = []
    engine = Here() if on is None else on
    with closing(engine):
        check(work, path, engine)
        with only_writer(path):
            units = _missing(work, path)
            with _progress(units) as bar, closing(engine.outcomes(units)) as outcomes:
                for unit, outcome in outcomes:
                    if isinstance(outcome, Failure):
                        failures.append(outcome)
                        bar.write(f"failed: {outcome}", file=sys.stderr)
                    else:
                        append(path, outcome)
                    bar.set_description_str(f"last: {unit}", refresh=False)
                    bar.update(unit.cost)
    return failures


def check(work: Work, path: Path, engine: Engine) -> None:
    """Raise if data are missing here or where the units are to be run, and if the results file cannot be read."""
    work.check_data()
    if _missing(work, path):
        engine.check(work)


def _missing(work: Work, path: Path) -> Sequence[Unit]:
    stored = read_results(path, fields=work.FIELDS, key=work.KEY)
    return work.units({key_of(line, work.KEY) for line in stored})


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


def outcome_of(unit: Unit) -> Outcome:
    """The lines of a unit, or what went wrong in it."""
    try:
        return unit.lines()
    except ValueError as error:  # what our own checks say needs no traceback
        return Failure(str(unit), f"{type(error).__name__}: {error}")
    except Exception as error:
        return Failure(str(unit), f"{type(error).__name__}: {error}", traceback.format_exc())


class Here:
    """This process itself, a unit at a time."""

    def check(self, work: Work) -> None:
        """Nothing can be wrong here that `Work.check_data` does not find."""

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome]]:
        return ((unit, outcome_of(unit)) for unit in units)

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Processes:
    """Processes of joblib that work side by side on this machine, each with one thread.

    When one of them dies, joblib ends them all. Units that were waiting go to new ones. Of those that were being run,
    one may have killed its process: each is run once more, with nothing beside it, so that no other unit is blamed.
    """

    jobs: int

    def check(self, work: Work) -> None:
        """They see the data that this process sees."""

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome]]:
        waiting, lost = deque(units), []
        while waiting:
            lost += yield from _side_by_side(waiting, self.jobs)
        for unit in lost:
            lost_again = yield from _side_by_side(deque([unit]), 1)
            yield from ((unit, Failure(str(unit), DIED)) for unit in lost_again)

    def close(self) -> None:
        """They end with the outcomes."""


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
    error = future.exception()  # not of the unit's own work: such as lines that do not pickle
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
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a worker says is no output of the command
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
