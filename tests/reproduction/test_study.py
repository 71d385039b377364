"""The grid and its engine: what is missing, how it is cut, and that no kill loses or doubles a line."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import cloudpickle
import pytest
import torch

from coverwell import MLP, MatchedRegressor
from reproduction.domains.tables import TableStudy
from reproduction.lines import ResultsFileError, key_of, only_writer
from reproduction.methods import TABLE_METHODS, Method
from reproduction.processes import Processes
from reproduction.study import Study, run

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

ROOT = Path(__file__).parents[2]
LEVELS = (0.5, 0.9)
NETWORK = MLP(hidden=4, layers=2, dropout=0.0, bins=0)
TINY = {"network": NETWORK, "folds": None, "calibration": None, "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}

pytestmark = pytest.mark.usefixtures("data_folder")


def tiny(slug="tiny", settings=None, **changes):
    return Method(slug, slug, "extra", MatchedRegressor, TINY | (settings or {}), **changes)


BROKEN = tiny("broken", {"learning_rate": -1.0})


def grid(*methods, trials=2, data=("boston",), **changes):
    return TableStudy(methods or (tiny(),), trials, data=data, **{"levels": LEVELS, "device": "cpu"} | changes)


def keys(asked):
    return {(m.slug, d, asked.levels, t) for m in asked.methods for d in asked.data for t in range(asked.trials)}


def stored_keys(path):
    return [key_of(line, TableStudy.key()) for line in TableStudy.stored(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


# What is missing, and how it is cut.


def test_units_are_all_that_is_asked_and_not_done_the_longest_first():
    asked = grid(tiny("a"), tiny("b"), trials=3, data=("boston", "auto mpg"))
    done = {("a", "boston", LEVELS, 1), ("b", "auto mpg", LEVELS, 0), ("b", "auto mpg", (0.9,), 1), ("c", "x", (), 0)}
    left = {(unit.method.slug, *unit.place, trial) for unit in asked.units(done) for trial in unit.trials}
    assert left == keys(asked) - done
    assert asked.units(keys(asked)) == []
    costs = [unit.cost for unit in replace(asked, methods=TABLE_METHODS, data=("auto mpg", "parkinsons")).units()]
    assert costs == sorted(costs, reverse=True)


def test_on_a_cpu_five_trials_are_one_stack_unless_one_trial_has_many_networks():
    many, published = tiny("many", members=10), tiny("published", one_per_level=True)
    stacks = {slug: [] for slug in ("tiny", "many")}
    for unit in grid(tiny(), many, trials=12).units():
        stacks[unit.method.slug].append(unit.trials)
    assert stacks["tiny"] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11)]
    assert sorted(stacks["many"]) == [(trial,) for trial in range(12)]
    ten_levels = tuple(k / 20 for k in range(1, 11))
    assert {unit.trials for unit in grid(published, levels=ten_levels).units()} == {(0,), (1,)}
    assert {unit.trials for unit in grid(published).units()} == {(0, 1)}
    assert [unit.trials for unit in grid(many, trials=20, device="meta").units()] == [tuple(range(20))]  # as on a GPU


def test_what_is_done_does_not_change_who_else_is_fitted_together():
    done = {("tiny", "boston", LEVELS, trial) for trial in (0, 1, 2, 6)}
    assert {unit.trials for unit in grid(trials=10).units(done)} == {(3, 4), (5, 7, 8, 9)}


# Running.


def test_a_run_adds_all_lines_and_a_second_run_does_nothing(path, capsys):
    asked = grid(tiny("a"), tiny("b", members=10), trials=3)
    assert run(asked, path) == []
    assert set(stored_keys(path)) == keys(asked)
    assert "left]" in capsys.readouterr().err
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert run(asked, path) == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert capsys.readouterr().err == ""
    assert list(json.loads(before[0].splitlines()[0]))[:6] == ["format", "method", "data", "levels", "trial", "seed"]


def test_more_trials_and_other_levels_are_added_to_what_is_there(path):
    run(grid(trials=1), path)
    first = path.read_bytes()
    run(grid(trials=2), path)
    run(grid(trials=1, levels=(0.9,)), path)
    assert path.read_bytes().startswith(first)
    assert {key[2:] for key in stored_keys(path)} == {(LEVELS, 0), (LEVELS, 1), ((0.9,), 0)}


def test_a_unit_that_fails_is_named_and_the_others_are_kept(path, capsys):
    (failure,) = run(grid(BROKEN, tiny("a"), trials=1), path)
    assert str(failure).startswith("broken on boston, trial 0: ValueError: learning_rate must be")
    assert failure.traceback == ""  # our own check said all there is to say
    assert str(failure) in capsys.readouterr().err
    assert [key[0] for key in stored_keys(path)] == ["a"]


def test_an_error_that_no_check_foresaw_comes_with_its_traceback(path):
    class Faulty:
        def __init__(self, *coverage, **settings):
            raise RuntimeError("out of order")

    (failure,) = run(grid(replace(tiny("a"), model=Faulty), trials=1), path)
    assert failure.error == "RuntimeError: out of order"
    assert "Traceback" in failure.traceback


def test_a_bad_file_is_refused_before_any_training_and_stays_as_it_is(path):
    path.parent.mkdir()
    path.write_bytes(b"nothing\n")
    with pytest.raises(ResultsFileError, match="line 1"):
        run(grid(), path)
    assert path.read_bytes() == b"nothing\n"


def test_a_line_that_broke_off_is_run_again(path):
    asked = grid(tiny(members=10), trials=3)
    run(asked, path)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    run(asked, path)
    assert set(stored_keys(path)) == keys(asked)
    assert path.read_bytes().startswith(content[: content[:-20].rindex(b"\n") + 1])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_second_command_on_the_same_file_is_refused(path):
    with only_writer(path), pytest.raises(ResultsFileError, match="another command is writing"):
        run(grid(), path)
    assert stored_keys(path) == []


# Killing. A process that has everything imported forks a child for each attempt, so that there is time for many.

ATTEMPTS = """
import os, signal, sys
from pathlib import Path
from coverwell import MLP, MatchedRegressor
from reproduction.domains.tables import TableStudy
from reproduction.methods import Method
from reproduction.processes import Processes
from reproduction.study import run

TINY = dict(folds=None, calibration=None, max_rounds=1, mean_epochs=1, interval_epochs=1,
            network=MLP(hidden=4, layers=2, dropout=0.0, bins=0))
METHODS = (
    Method("each", "each", "extra", MatchedRegressor, TINY, members=10),  # a write for every trial
    Method("five", "five", "extra", MatchedRegressor, TINY),  # a write for five trials
    Method("broken", "broken", "extra", MatchedRegressor, dict(TINY, learning_rate=-1.0)),
)
ENDLESS = (Method("endless", "endless", "extra", MatchedRegressor, dict(TINY, mean_epochs=10**6), members=10),)

if __name__ == "__main__":
    for order, *arguments in map(str.split, sys.stdin):
        if order == "start":
            child = os.fork()
            if child == 0:
                methods, path, jobs, trials = globals()[arguments[0]], Path(arguments[1]), *map(int, arguments[2:])
                grid = TableStudy(methods, trials, "cpu", data=("boston",), levels=(0.5, 0.9))
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
    places = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "COVERWELL_DATA": str(shared_data)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    environment = {**os.environ, **places, "OMP_NUM_THREADS": "1"}

    def order(*words) -> int:
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    with subprocess.Popen([sys.executable, str(script)], env=environment, **pipes) as process:
        yield order  # the end of its orders is the end of the process


def whole_lines(path):
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def wait_until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()


def children_of(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("jobs", "trials", "most_kills"),
    [(1, 10, 25), *(pytest.param(2, trials, kills, marks=pytest.mark.slow) for trials, kills in ((5, 1), (40, 10)))],
)
def test_killed_at_random_moments_again_and_again_nothing_is_lost_or_doubled(
    attempt, tmp_path, jobs, trials, most_kills
):
    path = tmp_path / "results.jsonl"
    rng = random.Random(trials)
    kills, seen, code = 0, b"", -signal.SIGKILL
    while code == -signal.SIGKILL:
        child, workers = attempt("start", "METHODS", path, jobs, trials), []
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
    found = stored_keys(path)
    assert len(found) == len(set(found))
    assert set(found) == {(slug, "boston", LEVELS, trial) for slug in ("each", "five") for trial in range(trials)}


@pytest.mark.slow  # also seen above, where workers are at the end of their work
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="sees processes in /proc")
def test_workers_do_not_outlive_a_parent_that_is_killed(attempt, tmp_path):
    child = attempt("start", "ENDLESS", tmp_path / "results.jsonl", 2, 2)
    begun = wait_until(lambda: len(children_of(child)) >= 3)  # two workers, and one or two trackers of what they hold
    workers = children_of(child)
    assert attempt("kill") == -signal.SIGKILL
    assert begun
    assert wait_until(lambda: not any(map(is_running, workers)))


# Workers that die, or are asked to stop. What a unit does is in the name of its method.


@dataclass(frozen=True)
class Deeds(Study):
    FILE: ClassVar[str] = "deeds.jsonl"
    VARIANT: ClassVar[str] = "variant"
    FIELDS: ClassVar[str] = "threads"
    folder: Path = field(default=Path())

    def places(self, method: Method) -> Iterator:
        yield "deeds", ""

    def cost(self, method: Method, place: tuple) -> float:
        return 1.0

    def measure(self, method: Method, place: tuple, trials: tuple) -> list:
        name = method.slug
        with (self.folder / name).open("a") as begun:
            begun.write(f"{os.getpid()}\n")
        if name == "dies beside a":
            wait_until((self.folder / "waits a").exists)
        if name.startswith("dies"):
            os._exit(3)
        while name.startswith("waits") and not (self.folder / "go").exists():
            time.sleep(0.01)
        threads = [torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"])]
        return [{"threads": threading.Lock() if name == "gives what does not pickle" else threads}]

    def begun(self, name: str) -> list:
        """The processes that have begun with a unit."""
        mark = self.folder / name
        return [int(pid) for pid in mark.read_text().split()] if mark.exists() else []


def deeds(folder, *names):
    return Deeds(tuple(Method(name, name, "extra") for name in names), device="cpu", folder=folder)


def done_in(path):
    return sorted(line["method"] for line in Deeds.stored(path))


@contextmanager
def meanwhile(deed):
    """Do something in a thread beside the block, and have it done by its end."""
    thread = threading.Thread(target=deed)
    thread.start()
    yield
    thread.join()


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


@pytest.mark.slow
def test_what_a_worker_that_is_killed_once_was_doing_is_done_again(path, tmp_path):
    asked = deeds(tmp_path, "waits a", "waits b", "c", "d")

    def kill_one():
        wait_until(lambda: asked.begun("waits a") and asked.begun("waits b"))
        os.kill(asked.begun("waits a")[0], signal.SIGKILL)
        (tmp_path / "go").touch()

    with meanwhile(kill_one):
        assert run(asked, path, on=Processes(2)) == []
    assert done_in(path) == ["c", "d", "waits a", "waits b"]
    assert len(asked.begun("waits a")) == 2


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_all_processes_without_a_traceback_and_keeps_what_is_done(tmp_path, jobs):
    command = [sys.executable, "-m", "reproduction", "table1", "--quick", "--methods", "hnn", "--data", "boston"]
    command += ["--trials", "500", "--device", "cpu", "--jobs", str(jobs), "--out", str(tmp_path)]
    results = tmp_path / "quick" / "results.jsonl"
    places = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(command, start_new_session=True, env=places, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: results.exists() and results.stat().st_size)
        workers = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as at a terminal, where workers get it too
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopped. What was finished is stored" in errors
    assert "Traceback" not in errors
    assert len(stored_keys(results)) >= 5
    assert wait_until(lambda: not any(map(is_running, workers)))
