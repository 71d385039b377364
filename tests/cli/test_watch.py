"""`coverwell watch`: lines and exit codes, a state that later calls go on from, and streams that cannot be watched."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import coverwell
from coverwell import LSTM, CoverageMonitor, MatchedForecaster, Schedule
from coverwell.errors import ExtrapolationWarning
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
    rows = pl.concat([houses[90:].with_columns(pl.col("area") + 0.01 * k) for k in range(4)])
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


def test_rows_that_were_watched_before_are_left_out(run, model, stream, state):
    def n_new(*rows):
        printed = run("watch", model, stream(slice(*rows)), "--state", state).stdout
        return printed.splitlines()[-1].partition(": coverage")[0].replace(str(stream(slice(*rows))), "FILE")

    assert n_new(90, 105) == "15 new rows in FILE"
    assert n_new(105, 109) == "4 new rows in FILE"
    assert n_new(105, 109) == "0 new rows in FILE below 4 old ones"  # short, but what the last call ended with
    assert n_new(90, 105) == "0 new rows in FILE below 15 old ones"  # an older file
    assert n_new(95, 120) == "11 new rows in FILE below 14 old ones"  # a window that moves on
    assert n_new(90, 130) == "10 new rows in FILE below 30 old ones"  # all that there is
    assert json.loads(json.loads(state.read_bytes())["monitor"])["misses"]["n_rows"] == 40


def test_targets_that_come_in_late_count_no_row_twice(run, model, houses, state, tmp_path):
    def n_new(n_rows, *late):
        known = pl.int_range(pl.len()).is_in(late).not_()
        rows = houses[90 : 90 + n_rows].with_columns(pl.when(known).then("price").alias("price"))
        rows.write_csv(tmp_path / "late.csv")
        return run("watch", model, tmp_path / "late.csv", "--state", state, "--skip-missing").stdout.splitlines()[-1]

    assert n_new(20, 3, 18, 19).startswith(f"17 new rows in {tmp_path / 'late.csv'} (3 without a target left out): ")
    assert n_new(30, 25).startswith(f"11 new rows in {tmp_path / 'late.csv'} below 18 old ones (1 without")


def test_rows_that_come_twice_are_refused(run, refused, model, houses, state, tmp_path):
    path = tmp_path / "twice.csv"
    pl.concat([houses[90:110], houses[95:106]]).write_csv(path)
    line = refused("watch", model, path, "--state", state)
    assert f"rows 21 to 30 of {path} repeat earlier rows of the stream; leave them out, or" in line
    assert not state.exists()
    pl.concat([houses[90:110], houses[95:104]]).write_csv(path)  # nine may be chance
    assert "29 new rows" in run("watch", model, path, "--state", state).stdout


@pytest.mark.parametrize("kind", ["numbers", "times", "parquet"])
def test_a_column_of_times_tells_new_rows_from_old_ones(tried, model, houses, state, tmp_path, kind):
    number = pl.int_range(90, 130)
    time = pl.datetime_range(pl.datetime(2026, 2, 27), pl.datetime(2026, 4, 7), "1d") if kind != "numbers" else number
    rows = houses[90:].with_columns(time.alias("when"))
    path = tmp_path / ("stream.parquet" if kind == "parquet" else "stream.csv")

    def watched(which):
        which.write_parquet(path) if kind == "parquet" else which.write_csv(path)
        return tried("watch", model, path, "--state", state, "--time", "when")

    assert "20 new rows" in watched(rows[:20]).stdout
    assert "5 new rows in" in (later := watched(rows[10:25])).stdout
    assert later.stderr == ""
    after_a_gap = watched(rows[28:])
    assert f"12 new rows in {path}: " in after_a_gap.stdout
    assert f"column when of {path} jumps before row 1, {rows['when'][28]}"[:-9] in after_a_gap.stderr
    assert "3 rows seem to be missing" in after_a_gap.stderr
    before = state.read_bytes()
    falls = watched(pl.concat([rows[28:30], rows[10:12]]))
    assert (falls.exit_code, falls.stderr) == (
        2,
        f"Error: column when of {path} must not fall from row to row, but does in row 3; sort the rows\n",
    )
    without = watched(rows[30:].with_columns(pl.when(pl.col("id") != "h124").then("when").alias("when")))
    assert "must have a value in every row, but row 5 has none" in without.stderr
    assert state.read_bytes() == before


def test_times_that_cannot_be_told_apart_are_refused(refused, model, stream, state):
    line = refused("watch", model, stream(), "--state", state, "--time", "city")
    assert "column city of" in line
    assert "must hold numbers or times such as 2026-11-15 10:30, got '" in line
    assert "column for --time: when" in refused("watch", model, stream(), "--state", state, "--time", "when")


def test_inputs_that_have_changed_are_printed_and_ring_if_asked(tried, model, houses, state, tmp_path):
    larger = pl.when(pl.int_range(pl.len()) < 15).then("area").otherwise(20 * pl.col("area"))
    moved = houses[90:].with_columns(larger.alias("area"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        rent, price = coverwell.load(model).predict(moved).T  # nothing is missed
    moved.with_columns(rent=rent, price=price).write_csv(tmp_path / "moved.csv")

    def last_lines(*more):
        result = tried("watch", model, tmp_path / "moved.csv", "--state", state, "--false-alarms", 0.2, *more)
        return result.exit_code, *result.stdout.splitlines()[-2:]

    code, line, last = last_lines()
    assert (code, last.partition("an alarm from 5 on; ")[2]) == (0, "no alarm; inputs have changed")
    assert float(line.split(",")[4]) > 5
    assert line.split(",")[5] == "no"
    state.unlink()
    code, line, last = last_lines("--inputs")
    assert (code, last.partition("an alarm from 5 on; ")[2], line.split(",")[5]) == (1, "ALARM: inputs", "inputs")


def test_missing_inputs_are_read_as_in_predict(run, model, houses, state, tmp_path):
    rows = houses[90:].with_columns(pl.lit(None).cast(pl.Float64).alias("area"))
    rows.write_csv(tmp_path / "gaps.csv")
    printed = run("watch", model, tmp_path / "gaps.csv", "--state", state).stdout
    fitted = coverwell.load(model)
    interval = fitted.predict_interval(rows, coverage=0.8)
    monitor = CoverageMonitor(0.8).update(rows["rent", "price"].to_numpy(), *interval)
    assert f": {monitor}" in printed


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


# Series.

SEEN, N = 90, 150
BRIEF = {"network": LSTM(hidden=2, layers=1), "folds": 2, "schedule": Schedule(max_rounds=1), "random_state": 0}


@pytest.fixture(scope="module")
def load():
    """A series whose noise grows sixfold in the middle of what comes later, and a covariate."""
    rng, hours = np.random.default_rng(0), pd.date_range("2026-01-01", periods=N, freq="h", name="when")
    noise = rng.normal(size=N) * np.where(np.arange(N) < 110, 0.2, 1.2)
    return pd.DataFrame({"load": 5 + np.sin(np.arange(N) / 4) + noise, "plan": rng.normal(size=N)}, index=hours).round(
        4
    )


@pytest.fixture(scope="module")
def forecaster(load, tmp_path_factory):
    path = tmp_path_factory.mktemp("series") / "load.safetensors"
    fitted = MatchedForecaster([0.5, 0.8], past=4, **BRIEF).fit(
        load["load"][:SEEN], past_covariates=load[["plan"]][:SEEN]
    )
    coverwell.save(fitted, path)
    return path


@pytest.fixture
def series_state(tmp_path):
    return tmp_path / "state.safetensors"


def test_a_series_is_watched_as_in_live_use(tried, forecaster, load, series_state, tmp_path):
    load[SEEN - 10 :].to_csv(tmp_path / "later.csv")  # ten hours that were seen already
    out = tmp_path / "watch.csv"
    result = tried("watch", forecaster, tmp_path / "later.csv", "--state", series_state, "--batch", 25, "--out", out)
    fitted = coverwell.load(forecaster)
    backtest = fitted.backtest(load["load"], past_covariates=load[["plan"]])
    y, live, static = backtest.y[:, 0], CoverageMonitor(0.8), CoverageMonitor(0.8)
    live.update(y, backtest.lower[:, 0, 1], backtest.upper[:, 0, 1])
    static.update(y, backtest.static_lower[:, 0, 1], backtest.static_upper[:, 0, 1])
    assert (static.alarm, static.n_missed > live.n_missed) == (True, True)
    lines = lines_of(out)
    assert [line["rows"] for line in lines] == ["25", "50", "60"]
    assert float(lines[-1]["evidence"]) == pytest.approx(live.evidence, rel=1e-3)
    assert float(lines[-1]["static_evidence"]) == pytest.approx(static.evidence, rel=1e-3)
    assert [line["alarm"] for line in lines][::2] == ["no", "; ".join([*live.rung, "static intervals"])]
    assert (result.exit_code, result.stderr) == (1, "")
    told = live.summary([*live.rung, "static intervals"])
    assert (
        result.stdout.splitlines()[-1] == f"60 new rows in {tmp_path / 'later.csv'} after 2026-01-04 17:00:00: {told}"
    )
    moved = coverwell.load(series_state)  # where the next call goes on from
    for value, row in zip(load["load"][SEEN:], load["plan"][SEEN:], strict=True):
        fitted.update(value, past_covariates=[row])
    assert moved.predict_interval().lower == pytest.approx(fitted.predict_interval().lower, rel=1e-9)
    assert moved.predict().index[0] == pd.Timestamp("2026-01-07 06:00")
    fitted.monitor_ = live  # in Python a model keeps it
    coverwell.save(fitted, tmp_path / "fitted.safetensors")
    assert coverwell.load(tmp_path / "fitted.safetensors").monitor_.state == live.state


@pytest.mark.parametrize("grown", [True, False], ids=["a file that has grown", "a file of new rows"])
def test_a_later_call_on_a_series_goes_on_where_the_last_one_ended(tried, forecaster, load, tmp_path, grown):
    def watched(name, first, end, state):
        load[first:end].to_csv(tmp_path / name)
        more = ("--state", tmp_path / state, "--batch", 20, "--out", tmp_path / f"{state}.csv")
        return tried("watch", forecaster, tmp_path / name, *more)

    watched("part.csv", SEEN, 110, "parts.safetensors")
    before = (tmp_path / "parts.safetensors").read_bytes()
    again = watched("part.csv", SEEN, 110, "parts.safetensors")
    assert again.stdout.splitlines()[-1].startswith(
        f"0 new rows in {tmp_path / 'part.csv'} after 2026-01-05 13:00:00: "
    )
    assert (again.exit_code, (tmp_path / "parts.safetensors").read_bytes()) == (0, before)
    watched("part.csv", SEEN if grown else 110, N, "parts.safetensors")
    watched("whole.csv", SEEN, N, "whole.safetensors")
    first, other = ((tmp_path / f"{name}.safetensors.csv").read_text() for name in ("parts", "whole"))
    assert first == other
    first, other = (json.loads(coverwell.load(tmp_path / f"{name}.safetensors").watch_) for name in ("parts", "whole"))
    assert first == other


def test_gaps_in_a_series_are_refused_or_left_out(tried, refused, forecaster, load, series_state, tmp_path):
    gaps = load[SEEN:].drop(load.index[95]).assign(load=load["load"].where(load.index != load.index[98]))
    gaps.to_csv(tmp_path / "gaps.csv")
    line = refused("watch", forecaster, tmp_path / "gaps.csv", "--state", series_state)
    assert "must have all values at every step (every 1 hour), but some are missing at 2 of " in line
    assert "steps, the first 2026-01-04 23:00" in line
    assert not series_state.exists()
    fills = coverwell.load(forecaster).set_params(missing="fill")
    coverwell.save(fills, tmp_path / "fills.safetensors")
    filled = tried("watch", tmp_path / "fills.safetensors", tmp_path / "gaps.csv", "--batch", 1000)
    last = filled.stdout.splitlines()[-1]
    assert f"58 new rows in {tmp_path / 'gaps.csv'} after 2026-01-04 17:00:00 (2 without a value left out)" in last
    assert (tmp_path / "fills.watch.safetensors").exists()
    gaps.rename(index={load.index[-1]: pd.Timestamp("2126-01-01")}).to_csv(tmp_path / "typo.csv")
    line = refused("watch", forecaster, tmp_path / "typo.csv", "--state", series_state)
    assert "must not leave a gap longer than the 90 steps that were seen, but row 59 does" in line


def test_a_series_without_times_begins_with_what_was_watched(run, refused, load, tmp_path):
    path, later = tmp_path / "model.safetensors", tmp_path / "later.csv"
    values = load["load"].to_numpy()
    coverwell.save(MatchedForecaster(0.8, past=4, **BRIEF).fit(values[:SEEN]), path)

    def write(values):
        pl.DataFrame({"y": values}).write_csv(later)
        return later

    assert f"15 new rows in {later} after 89: " in run("watch", path, write(values[SEEN:105])).stdout
    assert f"0 new rows in {later} after 104: " in run("watch", path, write(values[SEEN:100])).stdout
    assert f"5 new rows in {later} after 104: " in run("watch", path, write(values[SEEN:110])).stdout
    line = refused("watch", path, write(values[SEEN + 1 :]))
    assert (
        "must begin with the 20 values of the last call, but row 1 differs; add new values below the old ones" in line
    )


def test_several_steps_ahead_are_watched_by_the_first_and_wait_for_what_must_be_known(run, load, tmp_path):
    path, plan = tmp_path / "model.safetensors", load[["plan"]]
    fitted = MatchedForecaster(0.8, past=4, horizon=3, **BRIEF).fit(load["load"][:SEEN], plan[:SEEN])
    coverwell.save(fitted, path)
    load[SEEN:105].to_csv(tmp_path / "later.csv")
    printed = run("watch", path, tmp_path / "later.csv").stdout
    backtest = fitted.backtest(load["load"][:105], covariates=plan[:105])
    assert len(backtest) == 13  # the last two forecasts need two more rows of the plan
    live = CoverageMonitor(0.8).update(backtest.y[:, 0], backtest.lower[:, 0, 0], backtest.upper[:, 0, 0])
    assert f"13 new rows in {tmp_path / 'later.csv'} after 2026-01-04 17:00:00: {live}" in printed
    load[SEEN:105].assign(load=load["load"].where(load.index < load.index[104])).to_csv(tmp_path / "later.csv")
    assert "0 new rows" in run("watch", path, tmp_path / "later.csv").stdout  # the value of the future is no gap


def test_what_does_not_fit_a_series_is_refused(refused, forecaster, load, series_state, tmp_path):
    load[SEEN:].to_csv(tmp_path / "later.csv")
    given = ("watch", forecaster, tmp_path / "later.csv", "--state", series_state)
    for option in (("--group", "plan"), ("--inputs",), ("--skip-missing",)):
        assert "--group, --inputs and --skip-missing are for models of rows" in refused(*given, *option)
    assert "coverage 0.7 was not fitted" in refused(*given, "--coverage", 0.7)
    assert "column for --time: hour" in refused(*given, "--time", "hour")
    series_state.write_bytes(forecaster.read_bytes())
    assert "state.safetensors is not what watch wrote; give another --state" in refused(*given)
    assert series_state.read_bytes() == forecaster.read_bytes()


# Of classes ----------------------------------------------------------------------------------------------------------


def test_a_row_is_missed_if_its_class_is_not_in_its_set(run, flowers, irises, classifier, state):
    (rows, y), fitted = irises, coverwell.load(classifier)
    missed = ~fitted.predict_set(rows, 0.5).contains(y)
    monitor = CoverageMonitor(0.5).update(missed.astype(float), np.zeros(60), np.zeros(60))
    monitor.update_inputs(unlikeness(fitted, rows))
    options = ("--coverage", 0.5, "--state", state)
    assert run("watch", classifier, flowers / "new.csv", *options).stdout.splitlines()[-1].endswith(f": {monitor}")
    again = run("watch", classifier, flowers / "new.csv", *options).stdout
    assert "\n0 new rows in " in again


def test_classes_never_seen_are_a_warning_and_ring_the_alarm(tried, classifier, lilies, state):
    result = tried("watch", classifier, lilies, "--state", state)
    assert result.exit_code == 1
    assert "never seen in training (lily): no set has it, so it counts as missed\n" in result.stderr
    assert result.stdout.endswith("ALARM: coverage\n")
