"""`coverwell report`: a file for each kind of model, and one clear line where there can be none."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image

from coverwell import LSTM, MatchedForecaster, MatchedRegressor, ResNet18, Schedule, save
from coverwell.cli.report import later_values
from coverwell.tables import TableFile

BRIEF = Schedule(max_rounds=1)


@pytest.fixture
def refused(refused, tmp_path):
    """Runs a report that must end with one line, exit code 2 and no new file."""

    def run(*arguments):
        before = sorted(tmp_path.iterdir())
        message = refused("report", *arguments)
        assert sorted(tmp_path.iterdir()) == before
        return message

    return run


def written(path):
    return path.read_text("utf-8").replace("\u00a0", " ")


def test_a_report_is_written_and_names_command_files_and_groups(run, folder, model, tmp_path):
    out = tmp_path / "report.html"
    given = (model, folder / "test.csv", "--out", out, "--group", "id", "--title", "Houses of <1990>")
    result = run("report", *given)
    assert result.stdout == f"wrote {out}: {out.stat().st_size:,} bytes\n"
    html = written(out)
    assert f"coverwell report {model} {folder / 'test.csv'} --out {out} --group id --title" in html
    assert "Houses of &lt;1990&gt;" in html
    assert "40 rows of test.csv; prediction of rent, price" in html
    assert '<option value="0" selected>id</option>' in html or '<option value="0">id</option>' in html


def test_the_numbers_and_the_worst_slices_are_those_of_evaluate(folder, model, tmp_path, run):
    import json

    found = json.loads(run("evaluate", model, folder / "test.csv", "--json").stdout)["results"]
    run("report", model, folder / "test.csv", "--out", tmp_path / "report.html")
    html = written(tmp_path / "report.html")
    for entry in found:
        assert f"{100 * entry['coverage']:.1f} %" in html
        assert f"{100 * entry['band'][0]:.1f} % to {100 * entry['band'][1]:.1f} %" in html
        worst = entry["worst_slices"][0]
        assert f"Worst: {worst['column']}: {worst['values']}. {worst['n_inside']} of {worst['n_rows']} rows" in html


def test_rows_keep_the_numbers_they_have_in_the_file(run, folder, model, tmp_path, houses):
    rows = houses[90:].with_columns(rent=pl.Series([None, *houses["rent"][91:].to_list()]))
    rows = rows.with_columns(price=pl.when(pl.int_range(40) == 11).then(1e5).otherwise("price"))
    rows.write_csv(tmp_path / "test.csv")
    run("report", model, tmp_path / "test.csv", "--skip-missing", "--out", tmp_path / "report.html")
    html = written(tmp_path / "report.html")
    assert '<td role="cell" data-head="row">12</td><td role="cell" data-head="observed">100,000</td>' in html
    assert "Rows are counted from 1" in html
    assert "1 row without a target left out." in html


def test_a_tab_between_columns_is_named_in_the_command(run, model, tmp_path, houses):
    houses[90:].write_csv(tmp_path / "test.csv", separator="\t", decimal_comma=True)
    out, options = tmp_path / "report.html", ("--delimiter", "tab", "--decimal", ",")
    run("report", model, tmp_path / "test.csv", *options, "--out", out)
    assert "--delimiter tab" in written(out)


def test_bad_input_is_refused_in_one_line(folder, model, tmp_path, refused, houses):
    out = tmp_path / "report.html"
    test = houses[90:]
    bad = {
        "lacks.csv": (test.drop("city"), "has no column that model.safetensors was fitted on: city"),
        "target.csv": (test.drop("price"), "price"),
        "empty.csv": (test[:0], "has a header but no rows"),
        "one.csv": (test[:1], "a report needs at least 10 rows whose targets are known"),
    }
    for name, (rows, message) in bad.items():
        rows.write_csv(tmp_path / name)
        assert message in refused(model, tmp_path / name, "--out", out)
    data = folder / "test.csv"
    assert "coverage 0.7 was not fitted; the fitted levels are 0.5, 0.8" in refused(
        model, data, "--out", out, "--coverage", 0.7
    )
    assert "must go to a file that ends in .html" in refused(model, data, "--out", tmp_path / "report.pdf")
    assert "column for --group: block" in refused(model, data, "--out", out, "--group", "block")
    assert "boxes are for models of images" in refused(model, data, "--out", out, "--boxes")
    assert "--images is for models of images" in refused(model, data, "--out", out, "--images", "id")
    assert "--time is for forecasters" in refused(model, data, "--out", out, "--time", "sold")


def test_a_missing_extra_is_named(tried, folder, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = tried("report", model, folder / "test.csv", "--out", tmp_path / "report.html")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: reports need vl-convert-python; install the extra `report`")


def test_images_are_found_beside_the_table(run, tmp_path, refused):
    rng = np.random.default_rng(0)
    images, ages = rng.integers(0, 255, (22, 3, 32, 32), dtype=np.uint8), rng.normal(size=22)
    network = ResNet18(weights=None, size=32)
    brief = {"schedule": Schedule(1, 1, max_rounds=1), "folds": 2, "repeats": 1, "device": "cpu"}
    fitted = MatchedRegressor(0.7, network=network, random_state=0, **brief)
    save(fitted.fit(images[:12], ages[:12]), tmp_path / "model.safetensors")
    for place, image in enumerate(images[12:]):
        Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / f"{place}.png")
    rows = pl.DataFrame({"file": [f"{place}.png" for place in range(10)], "y": ages[12:]})
    rows.write_csv(tmp_path / "test.csv")
    given = (tmp_path / "model.safetensors", tmp_path / "test.csv", "--out", tmp_path / "report.html")
    assert "name the column of their files with --images" in refused(*given)
    run("report", *given, "--images", "file")
    assert "data:image/jpeg" in written(tmp_path / "report.html")
    assert "the model has 1" in refused(*given, "--images", "file", "--boxes", "--force")
    gone = rows.with_columns(file=pl.Series([*rows["file"][:-1], "gone.png"]))
    gone.write_csv(tmp_path / "test.csv")
    assert "gone.png" in refused(*given, "--images", "file", "--force")
    rows.with_columns(file=pl.Series([None, *rows["file"][1:]])).write_csv(tmp_path / "test.csv")
    assert "must name a file in every row, but row 1 has none" in refused(*given, "--images", "file", "--force")


def test_a_report_on_a_classifier_is_about_its_sets(run, refused, tmp_path, houses):
    options = ("--folds", 2, "--max-rounds", 1, "--device", "cpu", "--seed", 0)
    kinds = houses.drop("rent", "price", "id").with_columns(kind=pl.when(pl.col("area") > 90).then(1).otherwise(0))
    kinds[:90].write_csv(tmp_path / "train.csv")
    kinds[90:].with_columns(kind=pl.Series([None, *kinds["kind"][91:]])).write_csv(tmp_path / "test.csv")
    model, out = tmp_path / "kind.safetensors", tmp_path / "report.html"
    run("fit", tmp_path / "train.csv", "--target", "kind", "--classify", *options, "--out", model)
    given = (model, tmp_path / "test.csv", "--out", out)
    assert "the target kind is missing in 1 of 40 rows" in refused(*given)
    run("report", *given, "--skip-missing", "--group", "city")
    html = written(out)
    assert "39 rows of test.csv; prediction of kind, one of 2 classes, with sets" in html
    assert "1 row without a target left out." in html
    assert "Rows with their sets" in html
    assert "boxes are targets of a regressor" in refused(*given, "--skip-missing", "--boxes", "--force")


@pytest.fixture(scope="module")
def load_series():
    rng = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=260, freq="h", name="when")
    frame = pd.DataFrame({"load": 5 + np.sin(np.arange(260) / 4) + 0.2 * rng.normal(size=260)}, index=index).round(4)
    return frame.assign(price=rng.normal(size=260).round(3))


@pytest.fixture(scope="module")
def forecaster_file(load_series, tmp_path_factory):
    made = MatchedForecaster(coverage=0.8, past=8, network=LSTM(hidden=4), schedule=BRIEF, folds=2, random_state=0)
    seen = load_series[:200]
    made.fit(seen["load"], past_covariates=seen[["price"]])
    path = tmp_path_factory.mktemp("series") / "load.safetensors"
    save(made, path)
    return path


def test_a_report_on_a_forecaster_is_about_what_came_later(run, forecaster_file, load_series, tmp_path):
    load_series[190:].to_csv(tmp_path / "later.csv")  # ten hours that were seen already
    out = tmp_path / "report.html"
    run("report", forecaster_file, tmp_path / "later.csv", "--out", out)
    assert "60 forecasts of load, 2024-01-09 08:00 to 2024-01-11 19:00" in written(out)


def test_bad_files_of_a_series_are_refused_in_one_line(forecaster_file, load_series, tmp_path, refused):
    later, out = load_series[200:], tmp_path / "report.html"
    bad = {
        "name.csv": (later.rename(columns={"load": "lod"}), "column with the values of the series: load"),
        "price.csv": (later[["load"]], "covariate that the forecaster was fitted on: price"),
        "seen.csv": (load_series[:200], "has no values after 2024-01-09 07:00:00"),
        "time.csv": (later.rename_axis("hour"), "name that column with --time"),
        "order.csv": (later[::-1], "must rise from row to row, but row 2 does not"),
        "gap.csv": (later.drop(later.index[5]), "missing"),
    }
    for name, (rows, message) in bad.items():
        rows.to_csv(tmp_path / name)
        assert message in refused(forecaster_file, tmp_path / name, "--out", out)
    later.to_csv(tmp_path / "later.csv")
    given = (forecaster_file, tmp_path / "later.csv", "--out", out)
    assert "are for models of rows" in refused(*given, "--group", "price")
    assert "coverage 0.5 was not fitted" in refused(*given, "--coverage", 0.5)


N, SEEN = 120, 90


def fitted(series, past=None, ahead=None, missing="error"):
    made = MatchedForecaster(coverage=0.8, past=8, network=LSTM(hidden=4), schedule=BRIEF, folds=2, missing=missing)
    return made.set_params(random_state=0).fit(series[:SEEN], ahead, None if past is None else past[:SEEN])


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return (5 + np.sin(np.arange(N) / 4) + 0.2 * rng.normal(size=N)).round(4)


@pytest.fixture(scope="module")
def hours():
    return pd.date_range("2024-01-01", periods=N, freq="h", name="when")


def check_twin(model, path, series, **covariates):
    """A backtest of the joined values is that of the whole series."""
    given = later_values(model, TableFile(path))
    backtest = model.backtest(given.pop("series"), **given)
    twin = model.backtest(series, **covariates)
    np.testing.assert_array_equal(backtest.y, twin.y)
    np.testing.assert_array_equal(backtest.lower, twin.lower)


def test_pandas_with_past_covariates_and_rows_that_were_seen_already(values, hours, tmp_path):
    frame = pd.DataFrame({"load": values, "price": values[::-1]}, index=hours)
    frame[SEEN - 10 :].to_csv(tmp_path / "later.csv")
    model = fitted(frame["load"], past=frame[["price"]])
    check_twin(model, tmp_path / "later.csv", frame["load"], past_covariates=frame[["price"]])


def test_polars_with_covariates_known_ahead(values, hours, tmp_path):
    frame = pl.DataFrame({"when": hours.to_numpy(), "load": values, "price": values[::-1]})
    frame[SEEN:].write_parquet(tmp_path / "later.parquet")
    series, ahead = frame.select("when", "load"), frame.select("when", "price")
    check_twin(fitted(series, ahead=ahead), tmp_path / "later.parquet", series, covariates=ahead)


def test_counts_go_on_where_the_forecaster_ended(values, tmp_path):
    pl.DataFrame({"value": values[SEEN:]}).write_csv(tmp_path / "later.csv")
    model = fitted(values)
    pl.DataFrame({model.history_.name: values[SEEN:]}).write_csv(tmp_path / "later.csv")
    check_twin(model, tmp_path / "later.csv", values)
    with pytest.raises(ValueError, match="this forecaster counts steps; leave it out"):
        later_values(model, TableFile(tmp_path / "later.csv"), time=model.history_.name)


def test_steps_that_the_file_does_not_have_are_gaps(values, hours, tmp_path):
    series = pd.Series(values, index=hours, name="load")
    series[SEEN:].drop(hours[SEEN + 5]).to_csv(tmp_path / "later.csv")
    model = fitted(series, missing="fill")
    with_gap = series.copy()
    with_gap.iloc[SEEN + 5] = np.nan
    check_twin(model, tmp_path / "later.csv", with_gap)
