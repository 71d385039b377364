"""`coverwell export`: a model file as an ONNX file."""

import hashlib
import json

import numpy as np
import polars as pl
import pytest

import coverwell

onnxruntime = pytest.importorskip("onnxruntime")


def test_an_exported_model_predicts_what_the_model_predicts(run, model, houses, tmp_path):
    out = tmp_path / "new folder" / "model.onnx"
    result = run("export", model, out)
    assert result.stdout.startswith(f"wrote {out}: {out.stat().st_size:,} bytes\n  input  X ")
    session = onnxruntime.InferenceSession(out)
    told = json.loads(session.get_modelmeta().custom_metadata_map["coverwell"])
    rows = houses.select(
        pl.col("area"),
        pl.col("city").replace_strict(told["columns"][1]["codes"], return_dtype=pl.Float64),
        pl.col("sold").str.to_datetime(time_unit="us").dt.epoch("s").cast(pl.Float64),
        pl.col("garden").cast(pl.Float64),
    ).to_numpy()
    lower, upper = session.run(["lower", "upper"], {"X": rows})
    interval = coverwell.load(model).predict_interval(houses, (0.5, 0.8))
    sd = np.array([houses[name].std() for name in told["targets"]])[:, None]
    assert (np.abs(lower - interval.lower) / sd).max() < 1e-5
    assert (np.abs(upper - interval.upper) / sd).max() < 1e-5


def test_json_has_the_metadata_and_the_sha256_of_the_model_file(run, model, tmp_path):
    out = tmp_path / "model.onnx"
    found = json.loads(run("export", model, out, "--json", "--precision", "float64").stdout)
    assert (found["out"], found["bytes"], found["precision"]) == (str(out), out.stat().st_size, "float64")
    assert found["model_sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert [column["name"] for column in found["columns"]] == ["area", "city", "sold", "garden"]
    assert (found["targets"], found["levels"]) == (["rent", "price"], [0.5, 0.8])
