"""The grid: what is missing, how it is cut, and what a run adds to a results file."""

import json
import sys
from dataclasses import replace

import pytest

from coverwell import MLP, MatchedRegressor
from reproduction.domains.tables import TableStudy
from reproduction.lines import ResultsFileError, key_of, only_writer
from reproduction.methods import TABLE_METHODS, Method
from reproduction.study import run

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
    few = grid(tiny(trials_on_gpu=5), trials=8, device="meta")
    assert [unit.trials for unit in few.units()] == [(0, 1, 2, 3, 4), (5, 6, 7)]
    # What is done does not change who else is fitted together.
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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_second_command_on_the_same_file_is_refused(path):
    with only_writer(path), pytest.raises(ResultsFileError, match="another command is writing"):
        run(grid(), path)
    assert stored_keys(path) == []
