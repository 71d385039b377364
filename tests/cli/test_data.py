"""`coverwell data`: public data sets by name, as tables in files."""

import json

import numpy as np
import polars as pl
import pytest

from coverwell import datasets


@pytest.fixture
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def test_every_data_set_is_listed_with_its_kind(run):
    known = {"table": datasets.names(), "series": datasets.series_names(), "images": datasets.image_names()}
    lines = [line.split() for line in run("data", "list").stdout.splitlines()]
    assert lines == [[name.replace(" ", "-"), kind] for kind, names in known.items() for name in names]
    found = json.loads(run("data", "list", "--json").stdout)
    assert [entry["name"] for entry in found] == [name for names in known.values() for name in names]


@pytest.mark.usefixtures("_data")
def test_a_table_has_its_features_target_and_groups(run, tmp_path):
    out = tmp_path / "parkinsons.csv"
    result = run("data", "get", "Parkinsons", "--out", out)
    assert result.exit_code == 0, result.stderr
    table, loaded = pl.read_csv(out), datasets.load_table("parkinsons")
    assert table.columns == [*loaded.feature_names, loaded.target_name, "group"]
    np.testing.assert_array_equal(table.to_numpy(), np.c_[loaded.X, loaded.y, loaded.groups])
    assert f"wrote {out}: 5,875 rows of parkinsons" in result.stdout
    assert loaded.source in result.stdout


@pytest.mark.usefixtures("_data")
def test_a_series_has_its_times_and_its_gaps(run, tmp_path):
    out = tmp_path / "air.parquet"
    found = json.loads(run("data", "get", "air-quality", "--out", out, "--json").stdout)
    table, loaded = pl.read_parquet(out), datasets.load_series("air quality")
    assert table.columns == found["columns"] == ["time", loaded.target_name, *loaded.past_covariate_names]
    np.testing.assert_array_equal(table["time"].to_numpy(), loaded.time)
    assert table[loaded.target_name].null_count() == np.isnan(loaded.y).sum() > 0


@pytest.mark.usefixtures("_data")
def test_of_images_the_boxes_are_written(run, tmp_path, shared_data):
    if not (shared_data / "localization").is_dir():
        pytest.skip("the photographs are not there")
    out = tmp_path / "cub.csv"
    result = run("data", "get", "cub", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "boxes past the edge" in result.stderr
    table = pl.read_csv(out)
    assert table.columns == ["image", "left", "top", "width", "height", "image_width", "image_height", "train"]
    assert (table["left"] + table["width"] <= table["image_width"] + 1e-9).all()


def test_an_unknown_name_and_a_missing_file_are_told(refused, tmp_path, monkeypatch):
    message = refused("data", "get", "autos", "--out", tmp_path / "autos.csv")
    assert message.startswith("name must be one of crime, ")
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # no door there: the address does not answer
    monkeypatch.delenv("no_proxy", raising=False)
    message = refused("data", "get", "parkinsons", "--out", tmp_path / "p.csv", code=1)
    assert "parkinsons_updrs.data was not found" in message
    assert not list(tmp_path.glob("*.csv"))


def test_an_output_that_exists_or_is_of_another_kind_is_told(refused, tmp_path):
    (tmp_path / "b.csv").write_text("before")
    assert "exists" in refused("data", "get", "boston", "--out", tmp_path / "b.csv")
    assert "ends in .csv" in refused("data", "get", "boston", "--out", tmp_path / "b.txt")
    assert (tmp_path / "b.csv").read_text() == "before"
