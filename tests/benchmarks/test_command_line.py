import json
from pathlib import Path

import command_line
import polars as pl
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The folder in which a quick run wrote."""
    folder = tmp_path_factory.mktemp("results")
    command_line.main(["--quick", "--out", str(folder), "--scratch", str(folder)])
    return folder


def read(folder, name="command-line-quick.json"):
    return json.loads((folder / name).read_text())


@pytest.mark.slow
def test_a_quick_run_measures_both_precisions(quick_run):
    results = read(quick_run)
    (case,) = results["found"]
    assert set(case["ways"]) == {"float64", "float32"}
    assert case["members"] == 5
    assert 0 < case["largest difference"] < 1e-4
    for way in case["ways"].values():
        assert way["cpu"] == min(turn["cpu"] for turn in way["all"]) > 0
        assert 1e8 < way["bytes"] < 1e10
    assert results["environment"]["versions"]["polars"] == pl.__version__


@pytest.mark.slow
def test_the_text_is_written_from_the_numbers_and_nothing_else_is_left(quick_run):
    assert (quick_run / "command-line-quick.md").read_text() == command_line.report(read(quick_run))
    assert sorted(path.name for path in quick_run.iterdir()) == ["command-line-quick.json", "command-line-quick.md"]


def test_a_command_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match=r"coverwell --no-such-option ended with exit code 2"):
        command_line.command_of("--no-such-option")


def test_the_fastest_turn_counts_and_the_most_memory():
    turns = [{"cpu": 5.0, "clock": 6.0, "bytes": 1.0}, {"cpu": 3.0, "clock": 9.0, "bytes": 2.0}]
    found = command_line.fastest([turns[1], {**turns[0], "bytes": 4.0}], start=1.0, n_rows=100)
    assert (found["cpu"], found["bytes"], found["rows per second"]) == (3.0, 4.0, 50.0)


def test_the_target_is_missed_by_time_or_memory():
    assert command_line.verdict({"cpu": 29.0, "bytes": 9e8}) == "reached"
    assert command_line.verdict({"cpu": 31.0, "bytes": 9e8}) == "MISSED"
    assert command_line.verdict({"cpu": 29.0, "bytes": 2e9}) == "MISSED"


def test_the_committed_text_comes_from_the_committed_numbers():
    folder = BENCHMARKS / "results"
    assert (folder / "command-line.md").read_text() == command_line.report(read(folder, "command-line.json"))
