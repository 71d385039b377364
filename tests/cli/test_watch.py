"""`coverwell watch`: lines and exit codes, a state that later calls go on from, and streams that cannot be watched."""

import csv
import json

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell import LSTM, CoverageMonitor, MatchedForecaster, Schedule
from coverwell.monitor import unlikeness


@pytest.fixture
def stream(houses, tmp_path):
    """Writes rows of the houses to stream.csv: all that the model was not fitted to, or some, perhaps moved."""

    def write(rows=slice(90, None), moved_by=0.0, name="stream.csv"):
        moved = [pl.col(target) + moved_by for target in ("rent", "price")]
        houses[rows].with_columns(moved).write_csv(tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state.json"


def lines_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_lines_are_those_of_a_monitor_on_the_apis_intervals(run, model, stream, state, houses, tmp_path):
    out = tmp_path / "watch.csv"
    result = run("watch", model, stream(), "--batch", 15, "--group", "city", "--state", state, "--out", out)
    fitted, rows = coverwell.load(model), houses[90:]
    lower, upper = fitted.predict_interval(rows, coverage=0.8)
    monitor = CoverageMonitor(0.8).update(rows["rent", "price"].to_numpy(), lower, upper, rows["city"])
    monitor.update_inputs(unlikeness(fitted, rows))
    lines = lines_of(out)
    assert [line["rows"] for line in lines] == ["15", "30", "40"]
    last = lines[-1]
    assert (last["coverage"], last["alarm"]) == (f"{monitor.coverage_:.3f}", "no")
    assert float(last["evidence"]) == pytest.approx(monitor.evidence, rel=1e-3)
    assert float(last["input_evidence"]) == pytest.approx(monitor.input_evidence, rel=1e-3)
    assert last["worst_group"] == max(monitor.group_evidence, key=monitor.group_evidence.get)
    shares = [float(line["batch_coverage"]) for line in lines]
    assert np.average(shares, weights=[15, 15, 10]) == pytest.approx(monitor.coverage_, abs=1e-3)
    assert result.stdout.startswith(out.read_text())
    assert result.stdout.splitlines()[-1] == f"40 new rows in {stream()}: {monitor}"


def test_the_exit_code_is_1_once_the_alarm_has_rung(tried, model, stream, state):
    path = stream(moved_by=1e4)
    result = tried("watch", model, path, "--state", state)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "ALARM: coverage" in result.stdout
    quiet = tried("watch", model, stream(name="later.csv"), "--state", state)  # it stays
    assert quiet.exit_code == 1


def test_a_group_alone_rings_too(tried, model, houses, state, tmp_path):
    rows = pl.concat([houses[90:]] * 4)
    far = pl.when(pl.col("city") == "Oslo").then(1e5).otherwise(0.0)
    rows.with_columns(pl.col("rent") + far, pl.col("price") + far).write_csv(tmp_path / "stream.csv")
    result = tried("watch", model, tmp_path / "stream.csv", "--group", "city", "--state", state, "--false-alarms", 1e-9)
    assert result.exit_code == 1
    assert "group Oslo" in result.stdout


@pytest.mark.parametrize("grown", [True, False], ids=["a file that has grown", "a file of new rows"])
def test_a_later_call_goes_on_where_the_last_one_ended(run, model, stream, state, tmp_path, grown):
    parts, whole = tmp_path / "parts.csv", tmp_path / "whole.csv"
    asked = ("--batch", 20, "--group", "city")
    run("watch", model, stream(slice(90, 110)), *asked, "--state", state, "--out", parts)
    after_one = state.read_bytes()
    again = run("watch", model, stream(slice(90, 110)), *asked, "--state", state, "--out", parts)  # nothing is new
    assert "\n0 new rows in " in again.stdout
    assert state.read_bytes() == after_one
    run("watch", model, stream(slice(90 if grown else 110, 130)), *asked, "--state", state, "--out", parts)
    run("watch", model, stream(slice(90, 130)), *asked, "--state", tmp_path / "other.json", "--out", whole)
    assert parts.read_text() == whole.read_text()
    first, other = (json.loads(path.read_text())["monitor"] for path in (state, tmp_path / "other.json"))
    assert first == other


def test_the_state_lies_beside_the_model_by_default_and_a_level_may_be_chosen(run, folder, model, stream, tmp_path):
    own = tmp_path / "model.safetensors"
    own.write_bytes(model.read_bytes())
    run("watch", own, stream(), "--coverage", 0.5)
    assert json.loads((tmp_path / "model.watch.json").read_text())["--coverage"] == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "model.watch.json", "stream.csv"]


def test_rows_without_a_target_are_an_error_or_skipped(run, refused, model, houses, state, tmp_path):
    price = pl.when(pl.int_range(pl.len()) < 4).then(None).otherwise(pl.col("price"))
    houses[90:].with_columns(price.alias("price")).write_csv(tmp_path / "gaps.csv")
    line = refused("watch", model, tmp_path / "gaps.csv", "--state", state)
    assert "the target price is missing in 4 of 40 rows" in line
    assert not state.exists()
    assert "36 new rows" in run("watch", model, tmp_path / "gaps.csv", "--state", state, "--skip-missing").stdout


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--coverage", 0.5), "state.json goes on with --coverage 0.8, got 0.5; give the same, or another --state"),
        (("--false-alarms", 0.05), "goes on with --false-alarms 0.01, got 0.05"),
        (("--group", "city"), "goes on with --group None, got city"),
        (("--coverage", 0.7), "coverage 0.7 was not fitted"),
        (("--false-alarms", 2, "--state", "new.json"), "false_alarms must lie strictly between 0 and 1, got 2.0"),
        (("--batch", 0), "--batch"),
        (("--group", "town"), "--group"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_state_stays(
    run, refused, model, stream, state, options, part, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run("watch", model, stream(), "--state", state)
    before = state.read_bytes()
    assert part in refused("watch", model, stream(), "--state", state, *options)
    assert state.read_bytes() == before
    assert not (tmp_path / "new.json").exists()


def test_a_stream_without_the_target_and_files_of_another_kind_are_refused(refused, model, houses, stream, state):
    path = stream()
    state.write_text("{}")
    assert "state.json is not what watch wrote (KeyError('--coverage'))" in refused(
        "watch", model, path, "--state", state
    )
    state.unlink()
    houses[90:].drop("price").write_csv(path)
    assert "has no column for the target: price" in refused("watch", model, path, "--state", state)
    other = path.with_name("other.csv")
    other.write_text("a,b\n1,2\n")
    assert "--out must be a new file, or one that watch wrote" in refused("watch", model, stream(), "--out", other)
    assert "--state" in refused("watch", model, stream(), "--state", model)
    assert not state.exists()


def test_a_forecaster_is_refused_in_one_line(refused, stream, tmp_path):
    briefly = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
    series = np.sin(np.arange(60.0))
    forecaster = MatchedForecaster(past=4, network=LSTM(hidden=2, layers=1), folds=2, schedule=briefly).fit(series)
    coverwell.save(forecaster, tmp_path / "series.safetensors")
    line = refused("watch", tmp_path / "series.safetensors", stream())
    assert "holds a MatchedForecaster, not one for tables; use it in Python" in line
