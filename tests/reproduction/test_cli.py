"""The command line: what it writes, what it skips, and that every mistake is answered by one clear message."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import coverwell
from reproduction import data
from reproduction.cli import main
from reproduction.domains import tables
from reproduction.domains.boxes import BoxStudy, box_problem
from reproduction.domains.series import SeriesStudy
from reproduction.domains.tables import LEVELS, TableStudy
from reproduction.methods import SERIES_METHODS

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "results" / "peers.jsonl"
SMALL = ["--quick", "--methods", "hnn", "--data", "boston", "--trials", "1", "--device", "cpu"]
ONE_SERIES = ["--quick", "--data", "air-quality", "--reading", "observed", "--device", "cpu"]
COMMANDS = ("table1", "figure2", "figure3", "table2", "figure4", "table3", "figure5")

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def results(out):
    return out / "quick" / "results.jsonl"


def keys(path):
    return [(line["method"], line["data"], line["trial"], *line["levels"]) for line in TableStudy.stored(path)]


def assert_message(result, code, *parts):
    """One message on standard error and this exit code, no traceback."""
    assert result.exit_code == code
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in " ".join(result.stderr.split())


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data in any folder, and no door to the network."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    tables.table.cache_clear()
    box_problem.cache_clear()


# Tables.


@pytest.mark.parametrize("command", ["", *COMMANDS, "data"])
def test_every_help_text_has_an_example(command):
    text = run(*command.split(), "--help").output
    assert f"Example:\n    python -m reproduction {command}" in text
    if command in COMMANDS:
        for option in ("--trials", "--device", "--jobs", "--on", "--quick", "--out", "--draw-only"):
            assert option in text


def test_table1_runs_what_is_missing_and_writes_its_tables(out):
    result = run("table1", *SMALL, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert keys(results(out)) == [("hnn", "boston", 0, *LEVELS)]
    written = [Path(line.removeprefix("wrote ")) for line in result.stdout.splitlines()]
    assert out / "quick" / "table1.md" in written
    before = results(out).read_bytes()
    again = run("table1", *SMALL, "--out", out)
    assert (again.exit_code, again.stdout, again.stderr) == (0, result.stdout, "")  # no bar: nothing to do
    assert results(out).read_bytes() == before


def test_figure3_takes_the_runs_of_table1_and_draw_only_runs_nothing(out):
    # Names come with commas or one by one, with blanks or dashes, in any case.
    names = ["--data", "Auto-MPG, boston", "--methods", "HNN", "--methods", "quantiles"]
    asked = ["--quick", *names, "--levels", "0.9", "--levels", "0.5,0.8", "--device", "cpu", "--out", out]
    assert run("table1", *asked, "--trials", "1").exit_code == 0
    expected = {(method, data, 0, 0.5, 0.8, 0.9) for method in ("hnn", "quantiles") for data in ("auto mpg", "boston")}
    assert set(keys(results(out))) == expected
    before = results(out).read_bytes()
    result = run("figure3", *asked, "--trials", "3", "--draw-only")  # three are asked for, but only one is there
    assert result.exit_code == 0, result.stderr
    assert "wrote " in result.stdout
    assert results(out).read_bytes() == before
    result = run("table1", "--quick", "--levels", "0.9", "--draw-only", "--out", out)
    assert_message(result, 1, "no results of the levels 0.9;", "without --draw-only")


def test_figure2_has_a_results_file_of_its_own_from_which_it_can_be_drawn_again(out):
    options = ["--quick", "--data", "auto-mpg", "--trials", "1", "--device", "cpu", "--out", out]
    result = run("figure2", *options)
    assert result.exit_code == 0, result.stderr
    before = {path.name: path.read_bytes() for path in (out / "quick").iterdir()}
    assert set(before) == {"rounds.jsonl", "figure2.png", "figure2.svg"}
    assert run("figure2", *options, "--draw-only").stdout == result.stdout
    assert {path.name: path.read_bytes() for path in (out / "quick").iterdir()} == before


def test_a_table_with_peers_is_not_replaced_by_one_without(out):
    assert run("table1", *SMALL, "--out", out, "--peers", PEERS).exit_code == 0
    before = (out / "quick" / "table1.md").read_bytes()
    assert_message(run("table1", *SMALL, "--out", out), 1, "has rows of peers", "--peers")
    assert (out / "quick" / "table1.md").read_bytes() == before


# Series and images.


def test_the_quick_table2_runs_every_method_and_figure4_takes_its_runs(out):
    result = run("table2", *ONE_SERIES, "--out", out)
    assert result.exit_code == 0, result.stderr
    lines = SeriesStudy.stored(out / "quick" / "series.jsonl")
    assert {line["method"] for line in lines} == {method.slug for method in SERIES_METHODS}
    assert {(line["data"], line["reading"], line["trial"]) for line in lines} == {("air quality", "observed", 0)}
    assert result.stdout.splitlines() == [f"wrote {out / 'quick' / name}" for name in ("table2.md", "table2.csv")]
    before = (out / "quick" / "series.jsonl").read_bytes()
    figure = run("figure4", *ONE_SERIES, "--out", out)
    assert (figure.exit_code, figure.stderr) == (0, "")  # no bar: nothing to do
    assert f"wrote {out / 'quick' / 'figure4.png'}" in figure.stdout.splitlines()
    assert (out / "quick" / "series.jsonl").read_bytes() == before


def test_the_quick_table3_runs_every_method_without_data_and_figure5_takes_its_runs(out, tmp_path, nowhere):
    options = ["--quick", "--device", "cpu", "--out", out]
    result = run("table3", *options)
    assert result.exit_code == 0, result.stderr
    lines = BoxStudy.stored(out / "quick" / "boxes.jsonl")
    assert {line["method"] for line in lines} == {method.slug for method in BoxStudy().methods}
    assert "mean nothing" in (out / "quick" / "table3.md").read_text()
    before = (out / "quick" / "boxes.jsonl").read_bytes()
    figure = run("figure5", *options, "--photographs")
    assert (figure.exit_code, figure.stderr) == (0, "")  # no bar: nothing to do
    names = ("figure5.png", "figure5.svg", "photographs/figure5.png")
    assert figure.stdout.splitlines() == [f"wrote {out / 'quick' / name}" for name in names]
    assert "*" in (out / "quick" / "photographs" / ".gitignore").read_text().splitlines()
    assert (out / "quick" / "boxes.jsonl").read_bytes() == before
    assert run("table3", *options, "--draw-only").stdout == result.stdout
    assert not (tmp_path / "coverwell").exists()  # nothing was kept of a random trunk


# Settings.


def test_results_of_other_settings_are_not_taken_for_those_of_now(out):
    part = ["table2", "--methods", "ar48,persistence", "--data", "tas2016", "--device", "cpu", "--out", out]
    assert run(*part).exit_code == run(*part).exit_code == 0
    (stored,) = out.glob("*configuration.json")
    stored.write_text(stored.read_text().replace('"lags": 48', '"lags": 24'))
    before = stored.read_bytes()
    assert_message(run(*part), 1, "results of ar48 with other settings", "--out")
    assert (stored.name, stored.read_bytes()) == ("series_configuration.json", before)


# Data as files.


def test_data_sets_are_listed_and_a_table_has_its_features_target_and_groups(tmp_path):
    lines = [line.split() for line in run("data").stdout.splitlines()]
    assert lines == [[name.replace(" ", "-"), kind] for kind, names in data.KINDS.items() for name in names]
    path = tmp_path / "parkinsons.csv"
    result = run("data", "Parkinsons", "--out", path)
    assert result.exit_code == 0, result.stderr
    table, loaded = pd.read_csv(path), data.load_table("parkinsons")
    assert list(table.columns) == [*loaded.feature_names, loaded.target_name, "group"]
    np.testing.assert_allclose(table.to_numpy(), np.c_[loaded.X, loaded.y, loaded.groups], rtol=1e-15)
    assert f"wrote {path}: 5,875 rows of parkinsons" in result.stdout
    assert loaded.source in result.stdout


def test_a_series_has_its_times_and_its_gaps(tmp_path):
    assert run("data", "air-quality", "--out", tmp_path / "air.parquet").exit_code == 0
    table, loaded = pd.read_parquet(tmp_path / "air.parquet"), data.load_series("air quality")
    assert list(table.columns) == ["time", loaded.target_name, *loaded.past_covariate_names]
    np.testing.assert_array_equal(table["time"].to_numpy(), loaded.time)
    assert table[loaded.target_name].isna().sum() == np.isnan(loaded.y).sum() > 0


def test_what_cannot_be_written_is_named(tmp_path, nowhere):
    assert_message(run("data", "autos", "--out", tmp_path / "autos.csv"), 1, "name must be one of crime, ")
    message = "parkinsons_updrs.data was not found"
    assert_message(run("data", "parkinsons", "--out", tmp_path / "p.csv"), 1, message)
    (tmp_path / "b.csv").write_text("before")
    assert_message(run("data", "boston", "--out", tmp_path / "b.csv"), 2, "exists")
    assert_message(run("data", "boston", "--out", tmp_path / "b.txt"), 2, "ends in .csv")
    assert [path.name for path in tmp_path.glob("*.*")] == ["b.csv"]


# Mistakes.


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("table1", "--methods forest", "a method must be one of mc-dropout, concrete-dropout"),
        ("table1", "--methods hnn,HNN", "each method must be named once, got hnn"),
        ("table1", "--data autos", "a data set must be one of crime, red wine"),
        ("table1", "--data ,", "at least one data set must be named"),
        ("table1", "--data red-wine-unique", "Table 1 needs at least one of crime, red-wine"),
        ("table1", "--data red-wine,Red_Wine", "each data set must be named once, got red wine"),
        ("table1", "--levels 0.5,1", "a level must lie strictly between 0 and 1, got 1.0"),
        ("table1", "--levels nan", "a level must lie strictly between 0 and 1, got nan"),
        ("table1", "--levels 0.9,0.90", "each level must be named once, got 0.9"),
        ("table1", "--levels most", "levels must be numbers strictly between 0 and 1, got most"),
        ("table1", "--levels 0.5", "Table 1 is about coverage 0.9"),
        ("table1", "--device abacus", "device must be 'auto', 'cpu', 'cuda' or another name that torch knows"),
        ("table1", "--device meta", "the device must be auto, cpu or cuda, got meta"),
        ("table1", "--trials 0", "0 is not in the range x>=1"),
        ("table1", "--jobs 0", "0 is not in the range x>=1"),
        ("table2", "--methods deep-ensemble", "a method must be one of persistence, ar48"),
        ("table2", "--data boston", "a series must be one of nsw2013, bike sharing"),
        ("table2", "--reading guessed", "'guessed' is not one of 'observed', 'interpolated'"),
        ("table2", "--ray-address auto", "are for --on ray"),
        ("table3", "--methods bnn", "a method must be one of mc-dropout, quantiles, hnn"),
        ("table3", "--shards train-0", "got no test shard"),
        ("table3", "--shards train-9,test-0", "a shard must be one of train-0"),
        ("table3", "--weights nowhere.pth", "File 'nowhere.pth' does not exist"),
        ("table3", "--quick --small", "leave out --small, --shards and --weights"),
        ("table3", "--quick --shards train-0,test-0", "leave out --small, --shards and --weights"),
        ("figure5", "--quick --methods sigma-fit-published", "Figure 5 shows sigma-fit or small"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_done(out, command, options, message):
    assert_message(run(command, *options.split(), "--out", out), 2, message)
    assert not out.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_drawing_without_results_is_refused(out, command):
    assert_message(run(command, "--draw-only", "--out", out), 1, ".jsonl has no results", "without --draw-only")


def test_missing_data_are_named_with_the_places_that_were_looked_in(out, nowhere):
    result = run("table1", "--quick", "--data", "parkinsons", "--out", out)
    assert_message(result, 1, "parkinsons_updrs.data was not found", "COVERWELL_DATA")
    result = run("table3", "--methods", "hnn", "--out", out)  # before weights are looked for
    assert_message(result, 1, "the images were not found", "COVERWELL_DATA")
    assert not out.exists()


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("PIL", "table3 --small", "images"),
        ("ray", "table1 --on ray", "ray"),
        *(("matplotlib", f"{figure} --quick", "plots") for figure in ("figure2", "figure3", "figure4", "figure5")),
    ],
)
def test_a_missing_package_is_named_before_any_training(out, monkeypatch, module, command, extra):
    monkeypatch.setitem(sys.modules, module, None)
    assert_message(run(*command.split(), "--out", out), 1, f"pip install 'coverwell[{extra}]'")
    assert not out.exists()


def test_a_method_of_another_version_is_refused_and_stays_as_it_is_but_can_be_drawn_beside_others(out):
    options = [*SMALL, "--levels", "0.9", "--out", out]
    run("table1", *options)
    version = f'"coverwell": "{coverwell.__version__}"'.encode()
    old = results(out).read_bytes().replace(version, b'"coverwell": "0.0.1"')
    results(out).write_bytes(old)
    assert_message(run("table1", *options), 1, "line 1: written by coverwell 0.0.1", "--out")
    assert results(out).read_bytes() == old
    assert run("table1", *options, "--draw-only").exit_code == 0
    result = run("table1", *(option.replace("hnn", "quantiles") for option in map(str, options)))
    assert result.exit_code == 0, result.stderr
    assert results(out).read_bytes().startswith(old)


def test_a_run_that_fails_is_named_and_the_others_are_kept(out):
    # split ranks for 0.999 need 999 rows
    options = ["--quick", "--methods", "quantiles-split,hnn", "--data", "boston", "--trials", "1"]
    result = run("table1", *options, "--levels", "0.9,0.999", "--out", out)
    assert result.exit_code == 1
    assert "1 unit of work failed" in result.stderr
    assert "quantiles-split on boston, trial 0: ValueError: " in result.stderr
    assert keys(results(out)) == [("hnn", "boston", 0, 0.9, 0.999)]
    assert result.stdout == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    assert_message(run("table1", "--out", tmp_path / "file"), 2, "is a file")
    assert_message(run("table1", *SMALL, "--out", tmp_path / "file" / "out"), 1, "NotADirectoryError")
