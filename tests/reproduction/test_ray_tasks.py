"""Grids as Ray tasks: the same lines as without Ray, whatever dies; and what is wrong with a cluster is said."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from coverwell import MLP, MatchedRegressor
from coverwell import ray as coverwell_ray
from coverwell.errors import ClusterError
from reproduction.cli import main
from reproduction.domains import tables
from reproduction.domains.tables import TableStudy
from reproduction.lines import key_of
from reproduction.methods import Method
from reproduction.ray_tasks import RayTasks
from reproduction.study import run

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

ROOT = Path(__file__).parents[2]
LEVELS = (0.5, 0.9)
TINY = {
    "network": MLP(hidden=4, layers=2, dropout=0.0, bins=0),
    "folds": None,
    "calibration": None,
    "max_rounds": 1,
    "mean_epochs": 1,
    "interval_epochs": 1,
}
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
# A node that is killed is noticed in two seconds, not fifteen. Ray's workers give way to all else on a machine; beside
# other tests they would hardly come to work.
SYSTEM = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node with one CPU; tests add others and take them away again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # else Ray looks for a server of its own to report to
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "_system_config": SYSTEM}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def connected(cluster):
    """The cluster with this process connected to it: workers that have started once serve all tests."""
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


def tiny(slug, **changes):
    # Ten networks are so many that each trial is a unit of its own.
    return Method(slug, slug, "extra", MatchedRegressor, TINY | changes, members=10)


def grid(*methods, trials=2, data=("boston",)):
    return TableStudy(methods or (tiny("tiny"),), trials, "cpu", data=data, levels=LEVELS)


def _node():
    """The node that this runs on, if it is one of Ray's."""
    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else "none"


@dataclass(frozen=True)
class Slow(TableStudy):
    """A study whose units leave a mark when they begin, and take their time."""

    marks: Path = Path()
    seconds: float = 0.0

    def measure(self, method: Method, place: tuple, trials: tuple) -> list:
        (self.marks / f"{method.slug} {trials}; {os.getpid()}; {_node()}").touch()
        time.sleep(self.seconds)
        return super().measure(method, place, trials)


@dataclass(frozen=True)
class Deadly(Slow):
    """A unit of it ends its process: as a fault in compiled code does, or a system that is short of memory."""

    def measure(self, method: Method, place: tuple, trials: tuple) -> list:
        if trials == (0,):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(method, place, trials)


@dataclass(frozen=True)
class HereAlone(Slow):
    """A study whose data only the process that asks has."""

    asker: int = 0

    def cost(self, method: Method, place: tuple) -> float:
        if os.getpid() != self.asker:
            raise FileNotFoundError("boston.csv was not found")
        return 1.0


def like(kind, asked, marks, **more):
    """The same grid as another kind of study."""
    return kind(asked.methods, asked.trials, asked.device, data=asked.data, levels=asked.levels, marks=marks, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def numbers(path):
    """All that a line says, but how long it took, by its key."""
    lines = TableStudy.stored(path)  # raises if a run is there twice
    return {key_of(line, TableStudy.key()): {**line, "seconds": None} for line in lines}


# What it does.


def test_a_grid_on_ray_gives_the_lines_of_a_run_without_it(connected, path, tmp_path):
    asked = grid(tiny("a"), tiny("b", random_state=3), trials=2)
    assert run(asked, path, on=RayTasks()) == []
    assert run(asked, tmp_path / "local.jsonl") == []
    assert numbers(path) == numbers(tmp_path / "local.jsonl")
    assert len(numbers(path)) == 4
    assert ray.is_initialized()  # a connection that is not our own stays


def test_a_node_that_is_killed_in_the_middle_of_a_grid_loses_nothing_and_doubles_nothing(
    connected, added_node, path, marks, tmp_path
):
    asked = grid(trials=6)
    node = added_node()

    def just_begun():
        return any(time.time() - mark.stat().st_mtime < 0.3 for mark in marks.glob(f"*; {node.node_id}"))

    def kill_when_it_works():
        end = time.monotonic() + 30
        while not (just_begun() and path.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        connected.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_when_it_works)
    killer.start()
    assert run(like(Slow, asked, marks, seconds=1.0), path, on=RayTasks()) == []
    killer.join()
    begun = [mark.name.partition(";")[0] for mark in marks.iterdir()]
    assert len(begun) > len(set(begun)) == 6  # what the node was doing was begun once more
    assert run(asked, tmp_path / "local.jsonl") == []
    assert numbers(path) == numbers(tmp_path / "local.jsonl")


def test_a_unit_that_fails_is_named_with_its_node_and_the_others_are_kept(connected, path):
    (failure,) = run(grid(tiny("broken", learning_rate=-1.0), tiny("a"), trials=1), path, on=RayTasks())
    assert str(failure).startswith("broken on boston, trial 0: ValueError: learning_rate must be")
    assert "on the Ray node" in failure.error
    assert [line["method"] for line in TableStudy.stored(path)] == ["a"]


def test_a_unit_whose_process_dies_without_a_retry_left_is_reported_and_the_others_are_kept(connected, path, marks):
    (failure,) = run(like(Deadly, grid(), marks), path, on=RayTasks(retries=0))
    assert failure.unit == "tiny on boston, trial 0"
    assert "WorkerCrashedError" in failure.error
    assert [line["trial"] for line in TableStudy.stored(path)] == [1]


def test_nothing_to_do_needs_no_cluster(path):
    assert run(grid(), path) == []
    assert run(grid(), path, on=RayTasks("127.0.0.1:1")) == []


def test_the_command_runs_on_ray(connected, tmp_path):
    small = ["--quick", "--methods", "hnn", "--data", "boston", "--trials", "1", "--levels", "0.9", "--device", "cpu"]
    told = ["--on", "ray", "--jobs", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, ["table1", *small, *told])
    assert result.exit_code == 0, result.stderr
    assert [line["method"] for line in TableStudy.stored(tmp_path / "quick" / "results.jsonl")] == ["hnn"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_a_grid_on_ray_without_a_traceback_and_keeps_what_is_done(cluster, tmp_path):
    told = ["--quick", "--methods", "hnn", "--data", "boston", "--trials", "500", "--device", "cpu"]
    told += ["--on", "ray", "--ray-address", cluster.address, "--out", str(tmp_path)]
    command = [sys.executable, "-m", "reproduction", "table1", *told]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    results = tmp_path / "quick" / "results.jsonl"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not (results.exists() and results.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Stopped. What was finished is stored" in errors
    assert "Traceback" not in errors
    assert len(TableStudy.stored(results)) >= 5


# Mistakes.


def assert_message(result, code, *parts):
    assert result.exit_code == code
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in " ".join(result.stderr.split())


def test_an_address_at_which_nobody_listens_is_told_at_once_and_nothing_is_written(tmp_path):
    start = time.monotonic()
    told = ["table1", "--on", "ray", "--ray-address", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert_message(CliRunner().invoke(main, told), 1, "no Ray cluster answers at '127.0.0.1:1'", "ray start --head")
    assert time.monotonic() - start < coverwell_ray.SECONDS_TO_KNOCK + 5
    assert not (tmp_path / "out").exists()


def test_something_else_that_listens_at_the_address_is_told_and_nothing_is_written(path, monkeypatch):
    monkeypatch.setattr(coverwell_ray, "SECONDS_TO_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"no Ray cluster answers at '{address}'.*waited 1 s"):
            run(grid(), path, on=RayTasks(address))
    assert not path.exists()


def test_a_node_without_the_data_is_told_before_anything_is_run(connected, path, marks):
    asked = like(HereAlone, grid(), marks, asker=os.getpid())
    with pytest.raises(ClusterError, match=r"FileNotFoundError: boston.csv was not found.*Nothing was run"):
        run(asked, path, on=RayTasks())
    assert not path.exists()


@pytest.mark.slow
def test_the_one_node_of_several_that_lacks_the_data_is_told(added_node, path, tmp_path):
    nowhere = {"COVERWELL_DATA": str(tmp_path / "nowhere"), "XDG_CACHE_HOME": str(tmp_path)}
    added_node(env_vars={**nowhere, "https_proxy": "http://127.0.0.1:9", "no_proxy": ""})  # no door there
    tables.table.cache_clear()
    with pytest.raises(ClusterError, match=r"parkinsons_updrs.data was not found.*COVERWELL_DATA") as told:
        run(grid(data=("parkinsons",)), path, on=RayTasks())
    assert str(told.value).count("was not found") == 1  # the other node has them
    assert not path.exists()


def test_a_share_of_a_gpu_that_no_node_has_is_told(connected, path):
    with pytest.raises(ClusterError, match=r"each unit needs 0\.5 GPU, but the Ray cluster has 0 in all"):
        run(grid(), path, on=RayTasks(gpus=0.5))
    assert not path.exists()


def test_missing_ray_is_told_with_the_extra_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    told = ["table1", "--on", "ray", "--out", str(tmp_path / "out")]
    assert_message(CliRunner().invoke(main, told), 1, "pip install 'coverwell[ray]'")
    assert not (tmp_path / "out").exists()


def test_an_address_without_on_ray_is_refused(tmp_path):
    told = ["table2", "--ray-address", "auto", "--out", str(tmp_path / "out")]
    assert_message(CliRunner().invoke(main, told), 2, "are for --on ray")
    assert not (tmp_path / "out").exists()
