"""Work in processes: that it is added to a file once, and that no kill loses or doubles a line."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coverwell import MLP, MatchedRegressor
from coverwell.experiments.grid import Grid
from coverwell.experiments.methods import Method
from coverwell.experiments.results import ResultsFileError, key_of, only_writer, read_results
from coverwell.experiments.work import run

SOURCES = Path(__file__).parents[2] / "src"
LEVELS = (0.5, 0.9)
NETWORK = MLP(hidden=4, layers=2, dropout=0.0, bins=0)
TINY = {"network": NETWORK, "folds": None, "calibration": None, "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}


def tiny(slug="tiny", **changes):
    settings = TINY | changes.pop("settings", {})
    return Method(slug=slug, title=slug, kind="extra", regressor=MatchedRegressor, settings=settings, **changes)


BROKEN = tiny("broken", settings={"learning_rate": -1.0})


def grid(*methods, trials=2, data=("boston",), **changes):
    return Grid(methods or (tiny(),), data, trials, **{"levels": LEVELS, "device": "cpu"} | changes)


def keys(asked):
    return {(m.slug, d, t, asked.levels) for m in asked.methods for d in asked.data for t in range(asked.trials)}


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


# Running.


def test_a_run_adds_all_lines_and_a_second_run_does_nothing(path, capsys):
    asked = grid(tiny("a"), tiny("b", members=10), trials=3)
    assert run(asked, path) == []
    assert {key_of(line) for line in read_results(path)} == keys(asked)
    assert "left]" in capsys.readouterr().err
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert run(asked, path) == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert capsys.readouterr().err == ""


def test_more_trials_and_other_levels_are_added_to_what_is_there(path):
    run(grid(trials=1), path)
    first = path.read_bytes()
    run(grid(trials=2), path)
    run(grid(trials=1, levels=(0.9,)), path)
    assert path.read_bytes().startswith(first)
    assert {key_of(line)[2:] for line in read_results(path)} == {(0, LEVELS), (1, LEVELS), (0, (0.9,))}


def test_an_error_that_no_check_foresaw_comes_with_its_traceback(path):
    class Faulty:
        def __init__(self, *coverage, **settings):
            raise RuntimeError("out of order")

    (failure,) = run(grid(replace(tiny("a"), regressor=Faulty), trials=1), path)
    assert failure.error == "RuntimeError: out of order"
    assert "Traceback" in failure.traceback


def test_a_unit_that_fails_is_named_and_the_others_are_kept(path, capsys):
    (failure,) = run(grid(BROKEN, tiny("a"), trials=1), path)
    assert str(failure).startswith("broken on boston, trial 0: ValueError: learning_rate must be")
    assert failure.traceback == ""  # our own check said all there is to say
    assert str(failure) in capsys.readouterr().err
    assert [line["method"] for line in read_results(path)] == ["a"]


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
    assert {key_of(line) for line in read_results(path)} == keys(asked)
    assert path.read_bytes().startswith(content[: content[:-20].rindex(b"\n") + 1])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_second_command_on_the_same_file_is_refused(path):
    with only_writer(path), pytest.raises(ResultsFileError, match="another command is writing"):
        run(grid(), path)
    assert read_results(path) == []


# Killing. A process that has everything imported forks a child for each attempt, so that there is time for many.

ATTEMPTS = """
import os, signal, sys
from pathlib import Path
from coverwell import MLP, MatchedRegressor
from coverwell.experiments.grid import Grid
from coverwell.experiments.methods import Method
from coverwell.experiments.work import run

TINY = dict(folds=None, calibration=None, max_rounds=1, mean_epochs=1, interval_epochs=1,
            network=MLP(hidden=4, layers=2, dropout=0.0, bins=0))
METHODS = (
    Method("each", "each", "extra", MatchedRegressor, settings=TINY, members=10),  # a write for every trial
    Method("five", "five", "extra", MatchedRegressor, settings=TINY),  # a write for five trials
    Method("broken", "broken", "extra", MatchedRegressor, settings=dict(TINY, learning_rate=-1.0)),
)
LONG = dict(TINY, mean_epochs=10**6)
ENDLESS = (Method("endless", "endless", "extra", MatchedRegressor, settings=LONG, members=10),)

if __name__ == "__main__":
    for order, *arguments in map(str.split, sys.stdin):
        if order == "start":
            child = os.fork()
            if child == 0:
                methods, path, jobs, trials = globals()[arguments[0]], Path(arguments[1]), *map(int, arguments[2:])
                failures = run(Grid(methods, ("boston",), trials, levels=(0.5, 0.9), device="cpu"), path, jobs=jobs)
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
    places = {"PYTHONPATH": str(SOURCES), "COVERWELL_DATA": str(shared_data), "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}

    def order(*words) -> int:
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    with subprocess.Popen([sys.executable, str(script)], env={**os.environ, **places}, text=True, **pipes) as process:
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
    [(1, 20, 50), (2, 5, 1), pytest.param(2, 40, 10, marks=pytest.mark.slow)],
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
    found = [key_of(line) for line in read_results(path)]
    assert len(found) == len(set(found))
    assert set(found) == {(slug, "boston", trial, LEVELS) for slug in ("each", "five") for trial in range(trials)}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="sees processes in /proc")
def test_workers_do_not_outlive_a_parent_that_is_killed(attempt, tmp_path):
    child = attempt("start", "ENDLESS", tmp_path / "results.jsonl", 2, 2)
    assert wait_until(lambda: len(children_of(child)) == 3)  # two workers, and a tracker of multiprocessing
    workers = children_of(child)
    assert attempt("kill") == -signal.SIGKILL
    assert wait_until(lambda: not any(map(is_running, workers)))


def test_lines_are_plain_json_with_the_key_first(path):
    run(grid(trials=1), path)
    (line,) = path.read_text().splitlines()
    assert list(json.loads(line))[:6] == ["format", "method", "data", "trial", "seed", "levels"]
