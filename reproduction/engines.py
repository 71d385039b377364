"""Where units run: in processes of this machine, or as tasks of Ray, on a cluster whose nodes may come and go."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from joblib.externals.loky import FIRST_COMPLETED, BrokenProcessPool, Future, ProcessPoolExecutor, wait
from tqdm import tqdm

from coverwell._version import __version__
from coverwell.errors import ClusterError
from coverwell.ray import connect, needed_ray, problems_of_nodes
from reproduction.study import Engine, Failure, Outcome, Study, Unit, outcome_of

SECONDS_PER_LOOK = 0.2  # how often a worker checks that its parent is still there
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
DIED = "its process ended before it was done, and so did that of a second try; was it killed, or short of memory?"
DATA_FOLDER = "COVERWELL_DATA"


@dataclass(frozen=True)
class Processes(Engine):
    """Processes that work side by side on this machine, each with one thread.

    When one of them dies, joblib ends them all. Units that were waiting go to new ones. Any of those that were running
    may have killed its process: each runs once more, alone, so that no other unit is blamed.
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
    """Run units until none waits or a process dies; returns what was running at that time."""
    lost: list[Unit] = []
    running: dict[Future, Unit] = {}
    n_processes = min(jobs, len(waiting))
    pool = ProcessPoolExecutor(n_processes, initializer=_prepare_worker, initargs=(os.getpid(),), env=ONE_THREAD)
    try:
        _refill(running, waiting, pool, jobs)
        while running:
            ended = {future: running.pop(future) for future in wait(running, return_when=FIRST_COMPLETED).done}
            _refill(running, waiting, pool, jobs)  # before the lines are written: no process need wait for that
            for future, unit in ended.items():
                error = future.exception()  # not of the unit's own work: lines that do not pickle, for one
                if isinstance(error, BrokenProcessPool):
                    lost.append(unit)
                else:
                    yield unit, future.result() if error is None else Failure.of(unit, error)
    finally:
        pool.shutdown(kill_workers=True)
    return lost


def _refill(running: dict[Future, Unit], waiting: deque[Unit], pool: ProcessPoolExecutor, jobs: int) -> None:
    while waiting and len(running) < jobs:
        # The first call starts the processes. Ctrl-C reaches them too, but their parent ends them.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            future = pool.submit(outcome_of, waiting[0])
        except BrokenProcessPool:
            return
        finally:
            signal.signal(signal.SIGINT, before)
        running[future] = waiting.popleft()


def _prepare_worker(parent: int) -> None:
    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_PER_LOOK)
        os._exit(1)  # a fit that nobody waits for is not worth finishing

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a worker prints is no output of the command
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # the other cores are for the other workers
    tqdm.set_lock(threading.RLock())  # its own would be a semaphore, which a process that is killed leaves behind


@dataclass
class RayTasks(Engine):
    """Each unit is a task with one CPU and one thread. Ray runs it again, elsewhere, when its process or node dies.

    Lines come back to the process that asked, which alone writes. Workers look for data where their own variable
    `COVERWELL_DATA` points, or else where that of the asking process does.
    """

    address: str | None = None  # host:port of a running cluster, "auto" for one on this machine; None starts one
    jobs: int | None = None  # at most so many units at a time, by default as many as there are CPUs
    gpus: float = 0.0  # the share of a GPU that each unit takes: with 0.25, four units train on one side by side
    retries: int = 3
    _connected: bool = field(default=False, init=False, repr=False)

    def check(self, study: Study) -> None:
        """Raise `ClusterError` if no cluster answers, or if a node lacks the data, our version or the GPUs."""
        self._connect()
        there = needed_ray().cluster_resources()
        for kind, asked in (("CPU", 1.0), ("GPU", self.gpus)):
            if there.get(kind, 0.0) < asked:
                raise ClusterError(
                    f"each unit needs {asked:g} {kind}, but the Ray cluster has {there.get(kind, 0.0):g} in all; add "
                    "nodes that have it, or ask for less"
                )
        problems = problems_of_nodes(_problem_here, study, __version__, os.environ.get(DATA_FOLDER))
        if problems:
            raise ClusterError(
                f"not every Ray node can do the work. {'. '.join(problems)}. Nothing was run; put the data there, in a "
                f"folder that {DATA_FOLDER} names, and the same coverwell, or take the node out of the cluster"
            )

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome], None, None]:
        if not units:
            return
        self._connect()
        ray = needed_ray()
        task = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=self.retries)(_outcome_there)
        waiting = deque(units)
        running: dict[Any, Unit] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (self.jobs or len(units)):
                    unit = waiting.popleft()
                    running[task.remote(unit, os.environ.get(DATA_FOLDER))] = unit
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                unit = running.pop(done)
                try:
                    outcome = ray.get(done)
                except ray.exceptions.RayError as error:  # not of its own work: its node or process died too often
                    outcome = Failure.of(unit, error)
                yield unit, outcome
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """End the connection, if it was made here; a cluster of our own ends with it."""
        if self._connected:
            needed_ray().shutdown()
            self._connected = False

    def _connect(self) -> None:
        if not self._connected:
            self._connected = connect(self.address, num_cpus=self.jobs)


# What runs on Ray's workers.


def _use_data_folder(folder: str | None) -> None:
    if folder is not None:
        os.environ.setdefault(DATA_FOLDER, folder)


def _outcome_there(unit: Unit, data_folder: str | None) -> Outcome:
    _use_data_folder(data_folder)
    torch.set_num_threads(1)
    outcome = outcome_of(unit)
    if isinstance(outcome, Failure):
        node = needed_ray().util.get_node_ip_address()
        return replace(outcome, error=f"{outcome.error} (on the Ray node {node})")
    return outcome


def _problem_here(study: Study, version: str, data_folder: str | None) -> str:
    _use_data_folder(data_folder)
    if version != __version__:
        return f"coverwell {__version__} is installed, {version} is needed"
    try:
        study.units()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
