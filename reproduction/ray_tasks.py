"""Ray as the place where units are run: on this machine, or on a cluster whose nodes may come and go."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from coverwell._version import __version__
from coverwell.errors import ClusterError
from coverwell.ray import connect, needed_ray, problems_of_nodes
from reproduction.study import Engine, Failure, Outcome, Study, Unit, outcome_of

DATA_FOLDER = "COVERWELL_DATA"


@dataclass
class RayTasks(Engine):
    """Each unit is a task with one CPU and one thread. Ray runs it again, elsewhere, when its process or node dies.

    Lines come back to the process that asked, which alone writes. Workers look for data where their own variable
    `COVERWELL_DATA` says, or else where that of the asking process says.
    """

    address: str | None = (
        None  # host:port of a running cluster, "auto" for one on this machine, None for one of our own
    )
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
        most = len(units) if self.jobs is None else self.jobs
        waiting = deque(units)
        running: dict[Any, Unit] = {}
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    unit = waiting.popleft()
                    running[task.remote(unit, os.environ.get(DATA_FOLDER))] = unit
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                unit = running.pop(done)
                yield unit, _outcome_in(ray, done, unit)
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


def _outcome_in(ray: Any, reference: Any, unit: Unit) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:  # not of the unit's own work: its node or process died too often
        return Failure(str(unit), f"{type(error).__name__}: {' '.join(str(error).split())}")
    return outcome


# What runs on the workers, who look for data in the folder of the process that asked unless they have one of their own.


def _use_data_folder(folder: str | None) -> None:
    if folder is not None:
        os.environ.setdefault(DATA_FOLDER, folder)


def _outcome_there(unit: Unit, data_folder: str | None) -> Outcome:
    _use_data_folder(data_folder)
    torch.set_num_threads(1)  # the other cores are for the other workers
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
