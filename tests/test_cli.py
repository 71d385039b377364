"""The command line: what it writes, what it skips, and that every mistake is answered by one clear message."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import coverwell
from coverwell.cli import main
from coverwell.experiments import study
from coverwell.experiments.boxes_data import box_problem
from coverwell.experiments.boxes_methods import STUDY
from coverwell.experiments.boxes_study import BOX_FIELDS, BOX_KEY
from coverwell.experiments.results import only_writer, read_results
from coverwell.experiments.series_methods import SERIES_METHODS
from coverwell.experiments.series_study import SERIES_FIELDS, SERIES_KEY

SOURCES = Path(__file__).parents[1] / "src"
SMALL = ["--quick", "--methods", "hnn", "--data", "boston", "--trials", "1", "--device", "cpu"]
ONE_SERIES = ["--quick", "--data", "air-quality", "--reading", "observed", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def results(out):
    return out / "quick" / "results.jsonl"


def keys(path):
    return [(line["method"], line["data"], line["trial"], *line["levels"]) for line in read_results(path)]


def series_lines(out, folder="quick"):
    return read_results(out / folder / "series.jsonl", fields=SERIES_FIELDS, key=SERIES_KEY)


def assert_message(result, code, *parts):
    """One message on standard error and this exit code, no traceback."""
    assert result.exit_code == code
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in " ".join(result.stderr.split())


# What it does.


def test_the_version_is_the_packages():
    assert run("--version").output == f"coverwell, version {coverwell.__version__}\n"


COMMANDS = ("table1", "figure2", "figure3", "table2", "figure4", "table3", "figure5")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_help_text_has_an_example(command):
    text = run("reproduce", *command, "--help").output
    assert "Example:\n    coverwell reproduce" in text
    if command:
        for option in ("--trials", "--device", "--quick", "--out"):
            assert option in text
        assert ("--shards" if command[0] in ("table3", "figure5") else "--data") in text


@pytest.mark.parametrize(
    "command", ["", "fit", "predict", "evaluate", "info", "data", "data list", "data get", "reproduce", "plot"]
)
def test_every_command_has_a_help_text_with_an_example(command):
    text = run(*command.split(), "--help").output
    assert "Example:\n    coverwell " in text
    if command not in ("", "data", "plot", "reproduce"):
        assert f"coverwell {command}" in text.partition("Example:")[2]


def test_the_help_text_lists_every_command():
    listed = run("--help").output.partition("Commands:")[2]
    for command in ("fit", "predict", "evaluate", "plot", "info", "data", "reproduce"):
        assert f"\n  {command} " in listed


def test_table1_runs_what_is_missing_and_writes_its_tables(out):
    result = run("reproduce", "table1", *SMALL, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert keys(results(out)) == [("hnn", "boston", 0, *study.STUDY_LEVELS)]
    written = [Path(line.removeprefix("wrote ")) for line in result.stdout.splitlines()]
    assert out / "quick" / "table1.md" in written
    assert all(path.stat().st_size for path in written)
    before = results(out).read_bytes()
    again = run("reproduce", "table1", *SMALL, "--out", out)
    assert again.exit_code == 0
    assert again.stdout == result.stdout
    assert again.stderr == ""  # no bar: nothing to do
    assert results(out).read_bytes() == before


def test_figure3_takes_the_runs_of_table1_and_draw_only_runs_nothing(out):
    pytest.importorskip("matplotlib")
    levels = ("--levels", "0.5,0.9")
    run("reproduce", "table1", *SMALL, *levels, "--out", out)
    before = results(out).read_bytes()
    more = ["--trials", "3", "--draw-only"]  # three are asked for, but only one is there
    result = run("reproduce", "figure3", *SMALL, *levels, *more, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "wrote " in result.stdout
    assert results(out).read_bytes() == before


def test_figure2_has_a_results_file_of_its_own_from_which_it_can_be_drawn_again(out):
    pytest.importorskip("matplotlib")
    options = ["--quick", "--data", "auto-mpg", "--trials", "1", "--device", "cpu", "--out", out]
    result = run("reproduce", "figure2", *options)
    assert result.exit_code == 0, result.stderr
    assert not results(out).exists()
    before = (out / "quick" / "rounds.jsonl").read_bytes()
    picture = (out / "quick" / "figure2.png").read_bytes()
    (out / "quick" / "figure2.png").unlink()
    again = run("reproduce", "figure2", *options, "--draw-only")
    assert again.stdout == result.stdout
    assert (out / "quick" / "figure2.png").read_bytes() == picture
    assert (out / "quick" / "rounds.jsonl").read_bytes() == before


def test_drawing_figure2_without_results_is_told(out):
    pytest.importorskip("matplotlib")
    assert_message(
        run("reproduce", "figure2", "--draw-only", "--out", out),
        1,
        "rounds.jsonl has no results",
        "without --draw-only",
    )


def test_only_lines_of_exactly_the_asked_levels_are_drawn(out):
    run("reproduce", "table1", *SMALL, "--levels", "0.5,0.9", "--out", out)
    result = run("reproduce", "table1", "--quick", "--levels", "0.9", "--draw-only", "--out", out)
    assert_message(result, 1, "no results of the levels 0.9;", "without --draw-only")


def test_names_come_with_commas_or_one_by_one_with_blanks_or_dashes_in_any_case(out):
    names = ["--data", "Auto-MPG, boston", "--methods", "HNN", "--methods", "quantiles"]
    names += ["--levels", "0.9", "--levels", "0.5,0.8"]
    result = run("reproduce", "table1", *names, "--quick", "--trials", "1", "--out", out)
    assert result.exit_code == 0, result.stderr
    levels = (0.5, 0.8, 0.9)
    expected = {(method, data, 0, *levels) for method in ("hnn", "quantiles") for data in ("auto mpg", "boston")}
    assert set(keys(results(out))) == expected


# Series.


def test_the_quick_table2_runs_every_method_and_is_not_repeated(out):
    result = run("reproduce", "table2", *ONE_SERIES, "--out", out)
    assert result.exit_code == 0, result.stderr
    lines = series_lines(out)
    assert {line["method"] for line in lines} == {method.slug for method in SERIES_METHODS}
    assert {(line["data"], line["reading"], line["trial"]) for line in lines} == {("air quality", "observed", 0)}
    assert result.stdout.splitlines() == [f"wrote {out / 'quick' / name}" for name in ("table2.md", "table2.csv")]
    before = (out / "quick" / "series.jsonl").read_bytes()
    again = run("reproduce", "table2", *ONE_SERIES, "--out", out)
    assert (again.exit_code, again.stderr) == (0, "")  # no bar: nothing to do
    assert (out / "quick" / "series.jsonl").read_bytes() == before
    assert not (out / "quick" / "results.jsonl").exists()


def test_figure4_runs_what_it_shows_and_takes_the_runs_of_table2(out):
    pytest.importorskip("matplotlib")
    assert run("reproduce", "table2", *ONE_SERIES, "--methods", "sigma-fit", "--out", out).exit_code == 0
    result = run("reproduce", "figure4", *ONE_SERIES, "--methods", "sigma-fit", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert len(series_lines(out)) == 1
    pictures = [out / "quick" / f"figure4.{kind}" for kind in ("png", "svg")]
    assert result.stdout.splitlines() == [f"wrote {path}" for path in pictures]
    before = pictures[0].read_bytes()
    assert run("reproduce", "figure4", "--quick", "--draw-only", "--out", out).exit_code == 0
    assert pictures[0].read_bytes() == before


def test_figure4_without_the_methods_that_it_shows_is_told(out):
    pytest.importorskip("matplotlib")
    result = run("reproduce", "figure4", *ONE_SERIES, "--methods", "ar48", "--out", out)
    assert_message(result, 1, "Figure 4 needs results of sigma-fit or sigma-fit-covariates-refit")


def test_a_part_of_table2_keeps_its_settings_and_other_settings_are_refused(out):
    part = ["--methods", "ar48,persistence", "--data", "tas2016", "--device", "cpu", "--out", out]
    assert run("reproduce", "table2", *part).exit_code == 0
    stored = out / "series_configuration.json"
    assert not (out / "configuration.json").exists()
    assert run("reproduce", "table2", *part, "--trials", "2").exit_code == 0
    assert len(series_lines(out, ".")) == 2  # nothing is random in these: more seeds change nothing
    stored.write_text(stored.read_text().replace('"lags": 48', '"lags": 24'))
    before = stored.read_bytes()
    assert_message(run("reproduce", "table2", *part), 1, "results of ar48 with other settings", "--out")
    assert stored.read_bytes() == before
    assert run("reproduce", "table2", "--draw-only", "--out", out).exit_code == 0


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--methods", "deep-ensemble", "a method must be one of persistence, ar48"),
        ("--data", "boston", "a series must be one of nsw2013, bike sharing"),
        ("--reading", "guessed", "'guessed' is not one of 'observed', 'interpolated'"),
        ("--trials", "0", "0 is not in the range x>=1"),
        ("--device", "abacus", "device must be 'auto'"),
    ],
)
def test_a_wrong_option_of_table2_is_told_before_anything_is_done(out, option, value, message):
    assert_message(run("reproduce", "table2", option, value, "--out", out), 2, message)
    assert not out.exists()


def test_drawing_series_without_results_is_told(out):
    assert_message(run("reproduce", "table2", "--draw-only", "--out", out), 1, "series.jsonl has no results")


# Photographs.


def box_lines(folder):
    return read_results(folder / "boxes.jsonl", fields=BOX_FIELDS, key=BOX_KEY)


def test_the_quick_table3_runs_every_method_without_data_and_figure5_takes_its_runs(out, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ["--quick", "--device", "cpu", "--out", out]
    result = run("reproduce", "table3", *options)
    assert result.exit_code == 0, result.stderr
    assert {line["method"] for line in box_lines(out / "quick")} == {method.slug for method in STUDY}
    assert result.stdout.splitlines() == [f"wrote {out / 'quick' / name}" for name in ("table3.md", "table3.csv")]
    assert "mean nothing" in (out / "quick" / "table3.md").read_text()
    before = (out / "quick" / "boxes.jsonl").read_bytes()
    pictures = run("reproduce", "figure5", *options, "--photographs")
    assert (pictures.exit_code, pictures.stderr) == (0, "")  # no bar: nothing to do
    names = ("figure5.png", "figure5.svg", "photographs/figure5.png")
    assert pictures.stdout.splitlines() == [f"wrote {out / 'quick' / name}" for name in names]
    assert (out / "quick" / "boxes.jsonl").read_bytes() == before
    again = run("reproduce", "table3", *options, "--draw-only")
    assert again.stdout == result.stdout
    assert not (tmp_path / "coverwell").exists()  # nothing was kept of a random trunk


def test_the_small_method_is_run_only_by_its_name(out):
    result = run("reproduce", "figure5", "--quick", "--methods", "small", "--device", "cpu", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert [line["method"] for line in box_lines(out / "quick")] == ["small"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "bnn"], "a method must be one of mc-dropout, quantiles, hnn"),
        (["--shards", "train-0"], "got no test shard"),
        (["--shards", "train-9,test-0"], "a shard must be one of train-0"),
        (["--weights", "nowhere.pth"], "File 'nowhere.pth' does not exist"),
        (["--quick", "--small"], "leave out --small, --shards and --weights"),
        (["--quick", "--shards", "train-0,test-0"], "leave out --small, --shards and --weights"),
        (["--trials", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_option_of_table3_is_told_before_anything_is_done(out, options, message):
    assert_message(run("reproduce", "table3", *options, "--out", out), 2, message)
    assert not out.exists()


def test_a_file_that_holds_no_weights_is_told_with_its_name(out, tmp_path):
    (tmp_path / "text.pth").write_text("no weights")
    result = run("reproduce", "table3", "--small", "--weights", tmp_path / "text.pth", "--out", out)
    assert_message(result, 2, "--weights", "text.pth must be a state dict")
    assert not out.exists()


def test_missing_photographs_are_told_before_weights_are_looked_for(out, tmp_path, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    box_problem.cache_clear()
    result = run("reproduce", "table3", "--methods", "hnn", "--out", out)
    assert_message(result, 1, "the images were not found", "COVERWELL_DATA")
    assert not out.exists()


def test_missing_pillow_is_told_before_anything_is_done(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert_message(run("reproduce", "table3", "--small", "--out", out), 1, "pip install 'coverwell[images]'")
    assert not out.exists()


def test_drawing_boxes_without_results_is_told(out):
    assert_message(run("reproduce", "table3", "--draw-only", "--out", out), 1, "boxes.jsonl has no results")
    assert_message(run("reproduce", "table3", "--small", "--draw-only", "--out", out), 1, "small/boxes.jsonl has no")


def test_figure5_without_the_method_that_it_shows_is_told(out):
    pytest.importorskip("matplotlib")
    options = ["--quick", "--methods", "sigma-fit-published", "--device", "cpu", "--out", out]
    assert_message(run("reproduce", "figure5", *options), 2, "Figure 5 shows sigma-fit or small")


# Mistakes.


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--methods", "forest", "a method must be one of mc-dropout, concrete-dropout"),
        ("--methods", "hnn,HNN", "each method must be named once, got hnn"),
        ("--data", "autos", "a data set must be one of crime, red wine"),
        ("--data", ",", "at least one data set must be named"),
        ("--data", "red-wine-unique", "Table 1 needs at least one of crime, red-wine"),
        ("--data", "red-wine,red wine", "each data set must be named once, got red wine"),
        ("--levels", "0.5,1", "a level must lie strictly between 0 and 1, got 1.0"),
        ("--levels", "-0.5", "a level must lie strictly between 0 and 1, got -0.5"),
        ("--levels", "nan", "a level must lie strictly between 0 and 1, got nan"),
        ("--levels", "0.9,0.90", "each level must be named once, got 0.9"),
        ("--levels", "most", "levels must be numbers strictly between 0 and 1, got most"),
        ("--levels", "0.5", "Table 1 is about coverage 0.9"),
        ("--device", "abacus", "device must be 'auto', 'cpu', 'cuda' or another name that torch knows"),
        ("--device", "meta", "the device must be auto, cpu or cuda, got meta"),
        ("--trials", "0", "0 is not in the range x>=1"),
        ("--jobs", "0", "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_done(out, option, value, message):
    result = run("reproduce", "table1", option, value, "--out", out)
    assert_message(result, 2, message)
    assert not out.exists()


def test_missing_data_is_told_with_the_places_that_were_looked_in(out, tmp_path, monkeypatch):
    study.table.cache_clear()
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # no door there: the address does not answer
    monkeypatch.delenv("no_proxy", raising=False)
    result = run("reproduce", "table1", "--quick", "--data", "parkinsons", "--out", out)
    assert_message(result, 1, "parkinsons_updrs.data was not found", "COVERWELL_DATA")
    assert not out.exists()


def test_a_table_with_peers_is_not_replaced_by_one_without(out):
    peers = Path(__file__).parent / "experiments" / "data" / "peers-small.jsonl"
    assert run("reproduce", "table1", *SMALL, "--out", out, "--peers", peers).exit_code == 0
    before = (out / "quick" / "table1.md").read_bytes()
    assert_message(run("reproduce", "table1", *SMALL, "--out", out), 1, "has rows of peers", "--peers")
    assert (out / "quick" / "table1.md").read_bytes() == before


def test_results_of_other_settings_are_not_taken_for_those_of_now(out):
    small = ["--methods", "hnn", "--data", "auto-mpg", "--trials", "1", "--levels", "0.9", "--device", "cpu"]
    assert run("reproduce", "table1", *small, "--out", out).exit_code == 0
    stored = out / "configuration.json"
    stored.write_text(stored.read_text().replace('"max_epochs": "400"', '"max_epochs": "300"'))
    before = stored.read_bytes()
    assert_message(run("reproduce", "table1", *small, "--out", out), 1, "results of hnn with other settings", "--out")
    assert stored.read_bytes() == before


@pytest.mark.parametrize("figure", ["figure2", "figure3", "figure4", "figure5"])
def test_missing_matplotlib_is_told_before_any_training(out, figure, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert_message(run("reproduce", figure, "--quick", "--out", out), 1, "pip install 'coverwell[plots]'")
    assert not out.exists()


def test_a_file_of_another_version_is_told_and_stays_as_it_is(out):
    run("reproduce", "table1", *SMALL, "--levels", "0.9", "--out", out)
    version = f'"coverwell": "{coverwell.__version__}"'.encode()
    old = results(out).read_bytes().replace(version, b'"coverwell": "0.0.1"')
    results(out).write_bytes(old)
    result = run("reproduce", "table1", *SMALL, "--levels", "0.9", "--out", out)
    assert_message(result, 1, "line 1: written by coverwell 0.0.1", "--out")
    assert results(out).read_bytes() == old
    assert run("reproduce", "table1", *SMALL, "--levels", "0.9", "--draw-only", "--out", out).exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_second_command_in_the_same_folder_is_refused(out):
    with only_writer(results(out)):
        result = run("reproduce", "table1", *SMALL, "--out", out)
    assert_message(result, 1, "another command is writing to")
    assert keys(results(out)) == []


def test_a_run_that_fails_is_named_and_the_others_are_kept(out):
    # split ranks for 0.999 need 999 rows
    options = ["--quick", "--methods", "quantiles-split,hnn", "--data", "boston", "--trials", "1"]
    result = run("reproduce", "table1", *options, "--levels", "0.9,0.999", "--out", out)
    assert result.exit_code == 1
    assert "1 unit of work failed" in result.stderr
    assert "quantiles-split on boston, trial 0: ValueError: " in result.stderr
    assert keys(results(out)) == [("hnn", "boston", 0, 0.9, 0.999)]
    assert result.stdout == ""


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    assert_message(run("reproduce", "table1", "--out", tmp_path / "file"), 2, "is a file")
    assert_message(run("reproduce", "table1", *SMALL, "--out", tmp_path / "file" / "out"), 1, "NotADirectoryError")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_it_without_a_traceback_and_keeps_what_is_done(out):
    options = ["reproduce", "table1", *SMALL, "--trials", "500", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        [sys.executable, "-m", "coverwell", *options], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 60
        while not (results(out).exists() and results(out).stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "Stopped. What was finished is stored" in errors
    assert "Traceback" not in errors
    assert len(read_results(results(out))) >= 5
