"""The service has the numbers of `coverwell predict`, of the Python API, and of an exported model."""

import io
import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import coverwell
from coverwell import MatchedForecaster, MatchedRegressor, Schedule
from coverwell.cli import main
from coverwell.errors import ModelFileError
from coverwell.serve.models import load_served
from tests.serve.conftest import BRIEF, ROW, flats, in_json, serving


def predicted(model, rows, folder, *options):
    """The file that `coverwell predict` writes."""
    rows.write_csv(folder / "new.csv")
    arguments = ["predict", model, folder / "new.csv", "--out", folder / "out.csv", "--device", "cpu", *options]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return (folder / "out.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "query", "options"),
    [
        ("rent", "", ()),
        ("rent", "?coverage=0.73,0.5&quantiles=0.05", ("--coverage", "0.73,0.5", "--quantiles", 0.05)),
        ("kind", "", ()),
        ("kind", "?coverage=0.6", ("--coverage", 0.6)),
    ],
)
def test_csv_is_answered_by_the_bytes_that_predict_writes(name, query, options, folder, new, tmp_path, request):
    client = request.getfixturevalue(name)
    expected = predicted(folder / f"{name}.safetensors", new, tmp_path, *options)
    assert client.csv((tmp_path / "new.csv").read_bytes(), query) == (200, expected)


@pytest.mark.parametrize("name", ["rent", "kind"])
def test_rows_and_columns_of_json_have_the_numbers_of_csv(name, folder, new, tmp_path, request):
    client = request.getfixturevalue(name)
    expected = pl.read_csv(io.BytesIO(predicted(folder / f"{name}.safetensors", new, tmp_path)))
    rows = in_json(new)
    columns = {column: [row[column] for row in rows] for column in rows[0]}
    for status, found in (client.json({"rows": rows}), client.json({"columns": columns})):
        assert status == 200
        frame = pl.DataFrame(found.get("rows", found.get("columns")))
        sets = [column for column, kind in frame.schema.items() if kind == pl.List(pl.String)]
        assert frame.with_columns(pl.col(sets).list.join("|")).equals(expected)
        assert len(sets) == (name == "kind")


def test_an_exported_model_has_the_numbers_of_the_model_at_its_own_levels(rent, exported, new):
    rows = {"rows": in_json(new)}
    (_, own), (status, found) = rent.json(rows, "?coverage=0.9"), exported.json(rows, "?coverage=0.9")
    assert status == 200
    np.testing.assert_allclose(*(pl.DataFrame(one["rows"]).to_numpy() for one in (found, own)), rtol=1e-4)
    status, refused = exported.json(rows, "?coverage=0.8")
    assert status == 422
    assert refused["error"].startswith("coverage must be of 0.5, 0.9, the levels that rent.onnx was exported with")
    assert exported.json(rows, "?quantiles=0.5")[0] == 422
    assert b"outside" not in exported.get("/metrics")[2]  # an exported file does not have the training range


def test_rows_that_are_unlike_the_training_bring_warnings_and_are_counted(folder):
    with serving(folder / "rent.safetensors") as client:
        _, found = client.json({"rows": [ROW | {"area": 9e5}, ROW | {"city": "Atlantis"}, ROW]})
        metrics = client.get("/metrics")[2].decode().splitlines()
    assert [one for one in found["warnings"] if "outside the range" in one]
    assert "coverwell_rows_outside_total 1" in metrics
    assert "coverwell_rows_total 3" in metrics


def test_a_level_beyond_the_ranks_of_the_fit_is_refused_in_its_words(rent):
    status, found = rent.json({"rows": [ROW]}, "?coverage=0.9999")
    assert status == 422
    assert found["error"].startswith("coverage must be at most")


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    """A model that was fitted on an array, in a file of its own."""
    x = np.random.default_rng(4).normal(size=(40, 2)).round(3)
    model = MatchedRegressor(0.8, **BRIEF).fit(x, x[:, 0])
    path = tmp_path_factory.mktemp("plain") / "plain.safetensors"
    coverwell.save(model, path)
    return path, model


def test_a_model_without_column_names_takes_columns_in_order_and_no_gaps(nameless):
    path, model = nameless
    with serving(path) as client:
        status, found = client.csv("first,second\n0.5,1\n0.25,-1\n")
        assert status == 200
        expected = model.predict(np.array([[0.5, 1], [0.25, -1]]))
        np.testing.assert_array_equal(pl.read_csv(io.BytesIO(found))["y"].to_numpy(), expected)
        assert client.json({"columns": {"column 0": [0.5, 0.25], "column 1": [1, -1]}})[1]["columns"]["y"] == list(
            expected
        )
        status, found = client.csv("a,b,c\n1,2,3\n")
        assert (status, json.loads(found)["error"].split(", but ")[1][:22]) == (422, "the table has 3 beside")
        _, found = client.json({"rows": [{"column 0": None, "column 1": 1}]})
        assert found["error"] == "row 1, column column 0 must be a finite number, got null"
        assert json.loads(client.csv("a,b\n,1\n")[1])["error"].endswith("must be a finite number, got null")


def test_times_of_a_zone_are_given_with_any_offset(tmp_path):
    rows = flats(60).with_columns(pl.col("sold").dt.replace_time_zone("Europe/Zurich"))
    model = MatchedRegressor(0.8, **BRIEF).fit(rows, pl.Series("y", np.arange(60.0)))
    coverwell.save(model, tmp_path / "zoned.safetensors")
    with serving(tmp_path / "zoned.safetensors") as client:
        texts = ["2024-05-01T14:00+02:00", "2024-05-01T12:00Z", "2024-05-01T07:00-05:00"]
        status, found = client.json({"rows": [ROW | {"sold": text} for text in texts]})
        assert status == 200
        moment = pl.Series("sold", ["2024-05-01T14:00"]).str.to_datetime().dt.replace_time_zone("Europe/Zurich")
        (expected,) = model.predict(pl.DataFrame([ROW]).with_columns(moment))
        assert [row["y"] for row in found["rows"]] == [expected] * 3
        status, found = client.json({"rows": [ROW]})
        assert (status, "with an offset" in found["error"]) == (422, True)


def test_a_forecaster_is_refused_with_the_way_out(tmp_path):
    series = np.sin(np.arange(120) / 3)
    how = {**BRIEF, "schedule": Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)}
    how = {name: value for name, value in how.items() if name in ("schedule", "random_state", "device", "folds")}
    coverwell.save(MatchedForecaster(0.8, past=4, **how).fit(series), tmp_path / "series.safetensors")
    with pytest.raises(ModelFileError, match="holds a MatchedForecaster, not one for tables; use it in Python"):
        load_served(tmp_path / "series.safetensors")


def test_exported_files_of_other_kinds_and_damaged_ones_are_refused(tmp_path, exported_file):
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelFileError, match="damaged or not an ONNX file"):
        load_served(tmp_path / "text.onnx")
    content = bytearray(exported_file.read_bytes())
    place = content.index(b'"kind": "table"')
    content[place : place + 15] = b'"kind": "serie"'
    (tmp_path / "series.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match="is of the kind 'serie', and the service takes tables"):
        load_served(tmp_path / "series.onnx")
    place = content.index(b'"targets"')
    content[place : place + 9] = b'"torgets"'
    (tmp_path / "other.onnx").write_bytes(content.replace(b'"kind": "serie"', b'"kind": "table"'))
    with pytest.raises(ModelFileError, match=r"must be a file that coverwell export wrote for a table \(KeyError"):
        load_served(tmp_path / "other.onnx")
