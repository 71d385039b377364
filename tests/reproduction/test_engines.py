"""Engines: no kill of a process or a node loses or doubles a line; what is wrong with a cluster is named."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import cloudpickle
import pytest
import torch
from click.testing import CliRunner

from coverwell import ray as coverwell_ray
from coverwell.errors import ClusterError
from reproduction.cli import main
from reproduction.domains import tables
from reproduction.domains.tables import TableStudy
from reproduction.engines import Processes, RayTasks
from reproduction.lines import key_of
from reproduction.methods import TABLE_METHODS, Method
from reproduction.study import Study, run

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

ROOT = Path(__file__).parents[2]
PLACES = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
QUICK = ["table1", "--quick", "--data", "boston", "--device", "cpu"]

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


def wait_until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()


@contextmanager
def meanwhile(deed):
    """Do something in a thread beside the block, and have it done by its end."""
    thread = threading.Thread(target=deed)
    thread.start()
    yield
    thread.join()


def children_of(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# Killing the process that asked: one that has everything imported forks a child for each of many attempts.

ATTEMPTS = """
import os, signal, sys
from pathlib import Path
from coverwell import MLP, MatchedRegressor
from reproduction.domains.tables import TableStudy
from reproduction.engines import Processes
from reproduction.methods import Method
from reproduction.study import run

TINY = dict(folds=None, calibration=None, max_rounds=1, mean_epochs=1, interval_epochs=1,
            network=MLP(hidden=4, layers=2, dropout=0.0, bins=0))
METHODS = (
    Method("each", "each", "extra", MatchedRegressor, TINY, members=10),  # a write for every trial
    Method("five", "five", "extra", MatchedRegressor, TINY),  # a write for five trials
    Method("broken", "broken", "extra", MatchedRegressor, dict(TINY, learning_rate=-1.0)),
)

if __name__ == "__main__":
    for order, *arguments in map(str.split, sys.stdin):
        if order == "start":
            child = os.fork()
            if child == 0:
                path, jobs, trials = Path(arguments[0]), *map(int, arguments[1:])
                grid = TableStudy(METHODS, trials, "cpu", data=("boston",), levels=(0.5, 0.9))
                failures = run(grid, path, on=None if jobs == 1 else Processes(jobs))
                os._exit(len(failures))
            print(child, flush=True)
        else:
            if order == "kill":
                os.kill(child, signal.SIGKILL)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def attempt(shared_data, tmp_path_factory):
    """Orders to a process that runs grids: `start` gives the number of the child, `kill` and `wait` how it ended."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    script = tmp_path_factory.mktemp("attempts") / "attempts.py"
    script.write_text(ATTEMPTS)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    environment = {**os.environ, **PLACES, "COVERWELL_DATA": str(shared_data)}

    def order(*words) -> int:
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    with subprocess.Popen([sys.executable, str(script)], env=environment, **pipes) as process:
        yield order  # the end of its orders is the end of the process


def whole_lines(path):
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


@pytest.mark.parametrize(
    ("jobs", "trials", "most_kills"),
    [(1, 10, 25), *(pytest.param(2, trials, kills, marks=pytest.mark.slow) for trials, kills in ((5, 1), (40, 10)))],
)
def test_killed_at_random_moments_again_and_again_nothing_is_lost_or_doubled(attempt, path, jobs, trials, most_kills):
    rng = random.Random(trials)
    kills, seen, code = 0, b"", -signal.SIGKILL
    while code == -signal.SIGKILL:
        child, workers = attempt("start", path, jobs, trials), []
        if kills < most_kills:
            if kills % 3 == 0:  # the others at any moment, also before the first line
                wait_until(lambda seen=seen: len(whole_lines(path)) > len(seen))
            time.sleep(rng.uniform(0, 0.1))
            workers = children_of(child)
            code = attempt("kill")
        else:
            code = attempt("wait")
        kills += code == -signal.SIGKILL
        assert whole_lines(path).startswith(seen)  # what was there is there
        seen = whole_lines(path)
        assert wait_until(lambda workers=workers: not any(map(is_running, workers)))
    assert kills >= min(most_kills, 3)
    assert code == -(-trials // 5)  # in the end nothing fails but what must: the stacks of `broken`
    found = [key_of(line, TableStudy.key()) for line in TableStudy.stored(path)]
    assert len(found) == len(set(found))
    assert set(found) == {(slug, "boston", (0.5, 0.9), trial) for slug in ("each", "five") for trial in range(trials)}


@pytest.mark.parametrize(
    "options", [["--jobs", "1"], ["--jobs", "2"], pytest.param(["--on", "ray"], marks=pytest.mark.slow)], ids=str
)
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_all_processes_without_a_traceback_and_keeps_what_is_done(tmp_path, options, request):
    where = ["--ray-address", request.getfixturevalue("cluster").address] if "ray" in options else []
    asked = ["--methods", "hnn", "--trials", "500", *options, *where, "--out", str(tmp_path)]
    command, results = [sys.executable, "-m", "reproduction", *QUICK, *asked], tmp_path / "quick" / "results.jsonl"
    how = {"start_new_session": True, "env": {**os.environ, **PLACES}, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **how) as process:
        wait_until(lambda: results.exists() and results.stat().st_size)
        workers = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as at a terminal, where workers get it too
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Stopped. What was finished is stored" in errors
    assert "Traceback" not in errors
    assert len(TableStudy.stored(results)) >= 5
    assert wait_until(lambda: not any(map(is_running, workers)))


# Workers that die. What a unit does is in the name of its method.


def _node():
    """The node of Ray that this runs on."""
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else "none"


@dataclass(frozen=True)
class Deeds(Study):
    FILE: ClassVar[str] = "deeds.jsonl"
    VARIANT: ClassVar[str] = "variant"
    FIELDS: ClassVar[str] = "threads"
    folder: Path = Path()
    only_in: int = 0  # the process that has the data; 0: all have them

    def places(self, method: Method) -> Iterator:
        yield "deeds", ""

    def cost(self, method: Method, place: tuple) -> float:
        if self.only_in not in (0, os.getpid()):
            raise FileNotFoundError("deeds.csv was not found")
        return 1.0

    def measure(self, method: Method, place: tuple, trials: tuple) -> list:
        name = method.slug
        with (self.folder / name).open("a") as begun:
            begun.write(f"{os.getpid()} {_node()}\n")
        if name == "dies beside a":
            wait_until((self.folder / "waits a").exists)
        if name.startswith("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("fails"):
            raise ValueError("out of order")
        time.sleep(name.startswith("sleeps"))
        while name.startswith("waits") and not (self.folder / "go").exists():
            time.sleep(0.01)
        threads = [torch.get_num_threads(), int(os.environ.get("OMP_NUM_THREADS", 0))]
        return [{"threads": threading.Lock() if name == "gives what does not pickle" else threads}]

    def begun(self, name: str) -> list:
        """The processes that have begun with a unit."""
        mark = self.folder / name
        return [int(line.split()[0]) for line in mark.read_text().splitlines()] if mark.exists() else []


def deeds(folder, *names, **changes):
    return Deeds(tuple(Method(name, name, "extra") for name in names), device="cpu", folder=folder, **changes)


def done_in(path):
    return sorted(line["method"] for line in Deeds.stored(path))  # raises if a run is there twice


def test_processes_work_side_by_side_with_one_thread_each_and_lines_that_cannot_travel_fail_alone(
    path, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    asked = deeds(tmp_path, "waits a", "waits b", "gives what does not pickle")

    def let_go():
        wait_until(lambda: asked.begun("waits a") and asked.begun("waits b"))
        (tmp_path / "go").touch()

    with meanwhile(let_go):
        (failure,) = run(asked, path, on=Processes(2))
    assert failure.unit == "gives what does not pickle on deeds, trial 0"
    assert "pickle" in failure.error
    assert [line["threads"] for line in Deeds.stored(path)] == [[1, 1], [1, 1]]
    assert len({os.getpid(), *asked.begun("waits a"), *asked.begun("waits b")}) == 3


def test_a_unit_that_ends_its_process_is_tried_twice_and_reported_and_the_others_are_kept(path, tmp_path):
    asked = deeds(tmp_path, "b", "dies")  # what waits behind it is another test's; processes take long to start
    (failure,) = run(asked, path, on=Processes(1))
    assert failure.unit == "dies on deeds, trial 0"
    assert "was it killed, or short of memory?" in failure.error
    assert done_in(path) == ["b"]
    assert [len(asked.begun(name)) for name in ("b", "dies")] == [1, 2]


@pytest.mark.slow
def test_what_ran_beside_a_unit_that_ends_its_process_is_done_again_and_not_blamed(path, tmp_path):
    asked = deeds(tmp_path, "dies beside a", "waits a", "b")

    def let_go():
        wait_until(lambda: len(asked.begun("dies beside a") + asked.begun("waits a")) == 3)  # a second try
        (tmp_path / "go").touch()

    with meanwhile(let_go):
        (failure,) = run(asked, path, on=Processes(2))
    assert failure.unit.startswith("dies beside a on")
    assert done_in(path) == ["b", "waits a"]
    assert [len(asked.begun(name)) for name in ("dies beside a", "waits a", "b")] == [2, 2, 1]


# Ray.

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
# A node that is killed is noticed in two seconds, not fifteen. Ray's workers give way to all else on a machine; beside
# other tests they would hardly come to work.
SYSTEM = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node with one CPU; tests add others and take them away again."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # else Ray looks for a server of its own to report to
        patch.setenv("PYTHONPATH", PLACES["PYTHONPATH"])
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "_system_config": SYSTEM}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def connected(cluster):
    """The cluster with this process connected to it: workers that have started once serve all tests."""
    import ray

    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()


@pytest.fixture
def added_node(connected):
    """Adds a node with one CPU; it is gone after the test."""
    nodes = []

    def add(**changes):
        nodes.append(connected.add_node(**NODE, **changes))
        return nodes[-1]

    yield add
    for node in nodes:
        if node in connected.worker_nodes:
            connected.remove_node(node)


def test_the_command_on_ray_gives_the_lines_of_a_run_without_it(connected, tmp_path):
    found = []
    for folder, more in (("here", []), ("there", ["--on", "ray", "--jobs", "1"])):
        asked = ["--methods", "hnn,quantiles", "--trials", "1", "--levels", "0.9", *more]
        result = CliRunner().invoke(main, [*QUICK, *asked, "--out", str(tmp_path / folder)])
        assert result.exit_code == 0, result.stderr
        lines = TableStudy.stored(tmp_path / folder / "quick" / "results.jsonl")
        found.append({line["method"]: {**line, "seconds": None} for line in lines})
    assert found[0] == found[1]
    assert set(found[0]) == {"hnn", "quantiles"}
    assert sys.modules["ray"].is_initialized()  # a connection that is not our own stays


def test_a_node_that_is_killed_in_the_middle_of_a_grid_loses_nothing_and_doubles_nothing(
    connected, added_node, path, tmp_path
):
    names = [f"sleeps {k}" for k in range(6)]
    asked, node = deeds(tmp_path, *names), added_node()

    def just_begun(mark):
        return node.node_id in mark.read_text() and time.time() - mark.stat().st_mtime < 0.3

    def kill_when_it_works():
        wait_until(lambda: any(map(just_begun, tmp_path.glob("sleeps*"))) and path.stat().st_size, 30)
        connected.remove_node(node, allow_graceful=False)

    with meanwhile(kill_when_it_works):
        assert run(asked, path, on=RayTasks()) == []
    assert done_in(path) == names
    assert sum(len(asked.begun(name)) for name in names) > 6  # what the node was doing was begun once more


def test_units_that_fail_or_die_without_a_retry_left_are_named_and_the_others_are_kept(connected, path, tmp_path):
    dead, failed = sorted(run(deeds(tmp_path, "fails", "dies", "b"), path, on=RayTasks(retries=0)), key=str)
    assert str(failed).startswith("fails on deeds, trial 0: ValueError: out of order (on the Ray node")
    assert dead.unit == "dies on deeds, trial 0"
    assert "WorkerCrashedError" in dead.error
    assert done_in(path) == ["b"]


def test_an_address_at_which_no_ray_listens_is_named_unless_there_is_nothing_to_do(path, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    start, asked = time.monotonic(), ["table1", "--on", "ray", "--ray-address", "127.0.0.1:1"]
    result = CliRunner().invoke(main, [*asked, "--out", str(path.parent)])
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    for part in ("no Ray cluster answers at '127.0.0.1:1'", "ray start --head"):
        assert part in " ".join(result.stderr.split())
    assert time.monotonic() - start < coverwell_ray.SECONDS_TO_KNOCK + 5
    monkeypatch.setattr(coverwell_ray, "SECONDS_TO_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"no Ray cluster answers at '{address}'.*waited 1 s"):
            run(deeds(tmp_path, "b"), path, on=RayTasks(address))
    assert not path.parent.exists()
    assert run(deeds(tmp_path, "b"), path) == run(deeds(tmp_path, "b"), path, on=RayTasks("127.0.0.1:1")) == []


@pytest.mark.parametrize(
    ("changes", "engine", "message"),
    [
        ({"only_in": os.getpid()}, {}, r"FileNotFoundError: deeds.csv was not found.*Nothing was run"),
        ({}, {"gpus": 0.5}, r"each unit needs 0\.5 GPU, but the Ray cluster has 0 in all"),
    ],
)
def test_a_cluster_without_the_data_or_the_gpus_is_refused_before_anything_runs(
    connected, path, tmp_path, changes, engine, message
):
    with pytest.raises(ClusterError, match=message):
        run(deeds(tmp_path, "b", **changes), path, on=RayTasks(**engine))
    assert not path.exists()


@pytest.mark.slow
def test_the_one_node_of_several_that_lacks_the_data_is_named(added_node, path, tmp_path):
    nowhere = {"COVERWELL_DATA": str(tmp_path / "nowhere"), "XDG_CACHE_HOME": str(tmp_path)}
    added_node(env_vars={**nowhere, "https_proxy": "http://127.0.0.1:9", "no_proxy": ""})  # no door there
    tables.table.cache_clear()
    with pytest.raises(ClusterError, match=r"parkinsons_updrs.data was not found.*COVERWELL_DATA") as caught:
        run(TableStudy(TABLE_METHODS[:1], 1, "cpu", data=("parkinsons",)), path, on=RayTasks())
    assert str(caught.value).count("was not found") == 1  # the other node has them
    assert not path.exists()
