"""Ray: whether it is there, a connection to a cluster or to one of our own on this machine, and what its nodes lack."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from coverwell.errors import ClusterError

__all__ = ["ClusterError", "connect", "needed_ray", "problems_of_nodes", "use_data_folder"]

SECONDS_TO_CONNECT = 15.0
SECONDS_TO_KNOCK = 5.0  # a port that nobody listens at is told sooner
SECONDS_OF_A_CHECK = 150.0  # data that are looked for at a public address may take a minute
# Result lines are small: the shared memory that Ray takes by default, a third of the machine's, is not needed.
BYTES_OF_OBJECTS = 100_000_000
DATA_FOLDER = "COVERWELL_DATA"
# Ray itself tries for two minutes, and may end the whole process then: another process tries first.
TRIAL = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False)"


def needed_ray() -> Any:
    """The module `ray`, or a sentence that names the extra."""
    try:
        import ray
    except ImportError:
        raise ImportError("Ray is not installed; install the extra `ray`: pip install 'coverwell[ray]'") from None
    return ray


def connect(address: str | None = None, *, num_cpus: int | None = None) -> bool:
    """Connect this process to Ray; returns whether that was new, and is to be ended by `ray.shutdown()`.

    Parameters
    ----------
    address : str, optional
        `host:port` of a running cluster, `"auto"` for one that runs on this machine, or None for one of our own, unless
        this process is connected already.
    num_cpus : int, optional
        How many CPUs a cluster of our own has; by default as many as the machine.

    Raises
    ------
    ClusterError
        If the address does not answer within some 20 seconds.
    """
    ray = needed_ray()
    if ray.is_initialized() and address is None:
        return False
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        own = {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": BYTES_OF_OBJECTS}
        ray.init(address="local", **own, **quiet)
    else:
        _check_answers(address)
        ray.init(address=address, **quiet)
    return True


def _check_answers(address: str) -> None:
    unanswered = f"no Ray cluster answers at {address!r}; is it running (`ray start --head`), and is the address right?"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=SECONDS_TO_KNOCK).close()
        except (OSError, OverflowError) as error:
            raise ClusterError(f"{unanswered} ({error})") from None
    try:
        trial = [sys.executable, "-c", TRIAL, address]
        done = subprocess.run(trial, timeout=SECONDS_TO_CONNECT, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{unanswered} (waited {SECONDS_TO_CONNECT:.0f} s)") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ClusterError(f"{unanswered} ({last})")


def use_data_folder(folder: str | None) -> None:
    """On a worker: look for data in the folder of the process that asked, unless the worker has one of its own."""
    if folder is not None:
        os.environ.setdefault(DATA_FOLDER, folder)


def problems_of_nodes(find_problem: Callable[..., str], *arguments: Any) -> list[str]:
    """What a function finds wrong when it runs on every node that has CPUs, each with the address of the node."""
    ray = needed_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    find = ray.remote(num_cpus=0, max_retries=0)(find_problem)  # beside whatever else the node does
    answers = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = find.options(scheduling_strategy=there).remote(*arguments)
            answers.append((node["NodeManagerAddress"], answer))
    problems = [(address, _problem(ray, answer)) for address, answer in answers]
    return [f"{address}: {problem}" for address, problem in problems if problem]


def _problem(ray: Any, answer: Any) -> str:
    try:
        problem: str = ray.get(answer, timeout=SECONDS_OF_A_CHECK)
    except ray.exceptions.GetTimeoutError:
        return f"did not answer within {SECONDS_OF_A_CHECK:.0f} s"
    except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
        return ""  # it has left, and work goes to the others
    except ray.exceptions.RayError as error:
        return " ".join(str(error).split())[-300:]
    return problem
