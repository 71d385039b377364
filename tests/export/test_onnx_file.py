"""`to_onnx`: the file, its metadata, and what is refused."""

import hashlib
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from coverwell.export import onnx_file, to_onnx
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import coverwell
from coverwell import MatchedForecaster, MatchedRegressor


@pytest.fixture
def model_and_rows(random_regressor):
    return random_regressor(n_targets=2)


def test_a_process_without_torch_gives_the_models_numbers(model_and_rows, served, largest_difference, tmp_path):
    model, rows = model_and_rows
    to_onnx(model, tmp_path / "model.onnx")
    said = served(tmp_path / "model.onnx", {"X": rows})
    assert largest_difference(said, model, rows, model.ensembles_[0].targets.spread) < 1e-5


def test_the_metadata_tell_all_that_a_server_needs(model_and_rows, tmp_path):
    model, _ = model_and_rows
    (tmp_path / "model.safetensors").write_bytes(b"a model")
    told = to_onnx(model, tmp_path / "model.onnx", model_file=tmp_path / "model.safetensors")
    made = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert json.loads({entry.key: entry.value for entry in made.metadata_props}["coverwell"]) == told
    assert (told["format"], told["version"], told["class"]) == (1, coverwell.__version__, "MatchedRegressor")
    assert (told["targets"], told["levels"], told["kind"]) == (["y0", "y1"], [0.5, 0.9], "table")
    assert [column["name"] for column in told["columns"]] == [f"column {number}" for number in range(4)]
    assert told["promise"].startswith("near the asked share of new rows as measured, without a theorem")
    assert told["model_sha256"] == hashlib.sha256(b"a model").hexdigest()
    assert to_onnx(model, tmp_path / "model.onnx")["model_sha256"] is None


def test_names_types_and_shapes_are_those_of_the_graph(model_and_rows, tmp_path):
    model, _ = model_and_rows
    told = to_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for entries, found in ((told["inputs"], session.get_inputs()), (told["outputs"], session.get_outputs())):
        assert [(e["name"], e["shape"]) for e in entries] == [(f.name, f.shape) for f in found]
        assert all(len(entry["is"]) > 20 for entry in entries)
        assert {f.type for f in found} == {"tensor(double)"}


@pytest.mark.parametrize("n_rows", [0, 1, 7])
def test_any_number_of_rows_may_be_asked_about(model_and_rows, run_file, tmp_path, n_rows):
    model, rows = model_and_rows
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"X": rows[:n_rows]})
    assert said["lower"].shape == (n_rows, 2, 2)


def test_a_row_that_the_model_would_refuse_is_nan_and_no_other(model_and_rows, run_file, tmp_path):
    model, rows = model_and_rows
    to_onnx(model, tmp_path / "model.onnx")
    rows = rows[:3].copy()
    rows[1, 2], rows[2, 0] = np.nan, np.inf
    for values in run_file(tmp_path / "model.onnx", {"X": rows}).values():
        assert np.isfinite(values[0]).all()
        assert np.isnan(values[1:]).all()


def test_float64_is_exact_and_twice_as_large(model_and_rows, run_file, largest_difference, tmp_path):
    model, rows = model_and_rows
    for precision, most in (("float32", 1e-5), ("float64", 1e-12)):
        to_onnx(model, tmp_path / precision, precision=precision)
        said = run_file(tmp_path / precision, {"X": rows})
        assert largest_difference(said, model, rows, model.ensembles_[0].targets.spread) < most
    assert (tmp_path / "float64").stat().st_size > (tmp_path / "float32").stat().st_size


def test_a_graph_with_other_numbers_is_not_written(model_and_rows, monkeypatch, tmp_path):
    model, _ = model_and_rows
    monkeypatch.setattr(onnx_file, "LARGEST_DIFFERENCE", 1e-12)  # less than float32 can do
    (tmp_path / "model.onnx").write_bytes(b"the file before")
    with pytest.raises(ValueError, match=r"within 1e-12 standard deviations .* nothing was written.*float64"):
        to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == b"the file before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_would_be_too_large_is_refused(model_and_rows, monkeypatch, tmp_path):
    monkeypatch.setattr(onnx_file, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"up to 1,000 bytes, this model takes more; fit with fewer members"):
        to_onnx(model_and_rows[0], tmp_path / "model.onnx")


@pytest.mark.parametrize("model", [MatchedRegressor(), MatchedForecaster()], ids=lambda model: type(model).__name__)
def test_a_model_that_is_not_fitted_is_refused(model, tmp_path):
    with pytest.raises(NotFittedError, match=r"is not fitted yet; call fit before it is exported"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_is_none_of_our_estimators_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"regressor or forecaster of coverwell, got LinearRegression"):
        to_onnx(LinearRegression(), tmp_path / "model.onnx")


def test_an_unknown_precision_is_refused(model_and_rows, tmp_path):
    with pytest.raises(ValueError, match=r"precision must be 'float32' or 'float64', got 'float16'"):
        to_onnx(model_and_rows[0], tmp_path / "model.onnx", precision="float16")
