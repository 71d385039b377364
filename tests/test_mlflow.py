"""Models in a real local MLflow store: what is logged, and what comes back."""

import json
import subprocess
import sys

import mlflow
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris
from torch import nn

import coverwell.mlflow
from coverwell import LSTM, MLP, MatchedClassifier, MatchedForecaster, MatchedRegressor, Schedule
from coverwell.errors import ModelFileError

SHORT = {"schedule": Schedule(max_rounds=1), "repeats": 1, "companions": (), "random_state": 0}
ELSEWHERE = """
import sys, mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
found = mlflow.pyfunc.load_model(sys.argv[2]).predict(pandas.read_parquet(sys.argv[3]), params={"coverage": [0.5]})
found.to_parquet(sys.argv[4])
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of files, as `mlflow` writes it without a server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = (tmp_path / "mlruns").as_uri()
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run():
        yield uri
    mlflow.set_tracking_uri(before)


def flats(n=60):
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=n, freq="D").to_numpy()
    frame = pd.DataFrame({"area": rng.gamma(5, 20, n), "rooms": rng.integers(1, 6, n), "since": day})
    frame["city"], frame["lift"] = rng.choice(["Rome", "Oslo"], n), rng.random(n) < 0.5
    frame.loc[[1, 5, 9], "area"] = np.nan
    price = 3 * frame["area"].fillna(90) + 20 * frame["rooms"] + 10 * rng.normal(size=n)
    return frame, price.rename("price")


@pytest.fixture(scope="module")
def model():
    return MatchedRegressor([0.8, 0.9], network=MLP(hidden=8), **SHORT).fit(*flats())


def test_a_logged_model_is_loaded_from_its_run_as_it_was(store, model):
    logged = coverwell.mlflow.log_model(model, "flats")
    X, _ = flats()
    again = coverwell.mlflow.load_model(f"runs:/{logged.run_id}/flats")
    np.testing.assert_array_equal([*again.predict_interval(X)], [*model.predict_interval(X)])


def test_another_process_predicts_the_same_intervals(store, model, tmp_path):
    X, _ = flats()
    X.to_parquet(tmp_path / "new.parquet")
    uri = coverwell.mlflow.log_model(model).model_uri
    arguments = [store, uri, tmp_path / "new.parquet", tmp_path / "found.parquet"]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *map(str, arguments)], check=True)
    found = pd.read_parquet(tmp_path / "found.parquet")
    assert list(found) == ["price", "price_lower_0.5", "price_upper_0.5"]
    np.testing.assert_array_equal(found.T, [model.predict(X), *model.predict_interval(X, 0.5)])


def test_the_artifact_holds_tensors_and_text_alone(model, tmp_path):
    coverwell.mlflow.save_model(model, tmp_path / "model")
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    tensors = files.pop("model.safetensors")
    assert json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])["__metadata__"]["coverwell"]
    examples = {"input_example.json", "serving_input_example.json"}
    assert set(files) == {"MLmodel", "python_env.yaml", "requirements.txt", *examples}
    assert all(content.decode().isprintable() for text in files.values() for content in text.splitlines())
    assert files["requirements.txt"].decode().startswith(f"coverwell=={coverwell.__version__}\ntorch==")


def test_the_signature_names_all_columns_and_its_example_can_be_predicted(model, tmp_path):
    coverwell.mlflow.save_model(model, tmp_path / "model", metadata={"of": "flats"})
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    X, _ = flats()
    assert served.metadata.signature.inputs.input_names() == list(X)
    example = served.input_example
    assert example.iloc[0].tolist()[:2] == [X["area"].sort_values().iloc[28], X["rooms"].sort_values().iloc[29]]
    found = served.predict(example)
    assert served.metadata.signature.outputs.input_names() == list(found)
    assert found.shape == (1, 5)
    assert served.metadata.metadata == {"of": "flats"}


def test_columns_may_hold_whole_numbers_or_categories(model, tmp_path):
    coverwell.mlflow.save_model(model, tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    X, _ = flats()
    X["area"] = np.arange(len(X)) + 70
    other = X.assign(area=X["area"].astype(float), city=X["city"].astype("category"))[list(X)[::-1]]
    pd.testing.assert_frame_equal(served.predict(X), served.predict(other))


def test_values_of_another_kind_are_named_by_the_model_itself(model, tmp_path):
    coverwell.mlflow.save_model(model, tmp_path / "model")
    X, _ = flats()
    with pytest.raises(ValueError, match="'rooms' must hold numbers, got text such as 'three'"):
        mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X.assign(rooms="three"))


def test_sets_of_classes_are_lists_beside_probabilities(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = MatchedClassifier(0.9, network=MLP(hidden=8), **SHORT).fit(X, y)
    coverwell.mlflow.save_model(model, tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    found = served.predict(X, params={"coverage": [0.6, 0.99]})
    assert list(found)[:4] == ["y", "y_probability_0", "y_probability_1", "y_probability_2"]
    assert found["y"].tolist() == model.predict(X).tolist()
    np.testing.assert_array_equal(found.iloc[:, 1:4], model.predict_proba(X))
    for level in (0.6, 0.99):
        assert found[f"y_set_{level}"].tolist() == model.predict_set(X, level).to_list()
    names = served.metadata.signature.outputs.input_names()
    assert names == list(served.predict(served.input_example))


def test_truth_values_are_classes_named_as_at_the_command_line():
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = MatchedClassifier(0.9, network=MLP(hidden=8), **SHORT).fit(X, X[:, 0] > 0)
    found = coverwell.mlflow.IntervalModel(model).predict(X)
    assert list(found) == ["y", "y_probability_false", "y_probability_true", "y_set_0.9"]


def test_times_with_a_zone_are_predicted_but_have_no_example(tmp_path):
    X, y = flats()
    X["since"] = X["since"].dt.tz_localize("Europe/Berlin")
    model = MatchedRegressor(0.9, network=MLP(hidden=8), **SHORT).fit(X, y)
    coverwell.mlflow.save_model(model, tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(served.predict(X)["price"], model.predict(X))
    assert served.metadata.saved_input_example_info is None


def test_a_forecaster_gives_its_next_steps_with_their_times(tmp_path):
    index = pd.period_range("2020-01", periods=100, freq="M")
    series = pd.Series(np.sin(np.arange(100.0)), index=index, name="load")
    holidays = pd.DataFrame({"off": np.arange(104.0) % 2}, index=pd.period_range("2020-01", periods=104, freq="M"))
    forecaster = MatchedForecaster(0.8, past=6, horizon=2, network=LSTM(hidden=4), schedule=Schedule(max_rounds=1))
    forecaster.fit(series, holidays)
    coverwell.mlflow.save_model(forecaster, tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    known, given = served.predict(pd.DataFrame()), served.predict(1 - holidays.iloc[100:102])
    assert list(known) == ["load", "load_lower_0.8", "load_upper_0.8"]
    np.testing.assert_array_equal(known.T, [forecaster.predict(), *forecaster.predict_interval()])
    assert known.index.equals(forecaster.predict().index)
    np.testing.assert_array_equal(given["load"], forecaster.predict(1 - holidays.iloc[100:102]))
    assert (given["load"] != known["load"]).any()


def test_a_forecaster_of_a_polars_series_gives_its_next_steps_too():
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 5, 3), "1h", eager=True)
    frame = pl.DataFrame({"time": times, "load": np.sin(np.arange(100.0))})
    brief = {"network": LSTM(hidden=4), "schedule": Schedule(max_rounds=1), "random_state": 0}
    forecaster = MatchedForecaster([0.5, 0.8], past=6, horizon=2, **brief).fit(frame)
    found = coverwell.mlflow.IntervalModel(forecaster).predict(None, {"coverage": [0.8, 0.5]})
    assert list(found) == ["load", *(f"load_{bound}_{level}" for level in (0.5, 0.8) for bound in ("lower", "upper"))]
    np.testing.assert_array_equal(found["load"], forecaster.predict()["load"])
    assert found.index.tolist() == forecaster.predict()["time"].to_list()


def test_a_model_with_code_of_its_users_is_refused_and_nothing_is_left(tmp_path):
    model = MatchedRegressor(network=nn.Linear, **SHORT).fit(np.eye(40, 3), np.arange(40))
    with pytest.raises(TypeError, match=r"use coverwell\.save: .* network of its user's own"):
        coverwell.mlflow.save_model(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_with_files_is_left_as_it_is(model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="must be a new or an empty folder"):
        coverwell.mlflow.save_model(model, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_models_of_other_flavours_are_refused(tmp_path):
    (tmp_path / "MLmodel").write_text("flavors: {onnx: {data: model.onnx}}\n")
    with pytest.raises(ModelFileError, match="must have the flavour coverwell, got onnx"):
        coverwell.mlflow.load_model(tmp_path.as_uri())


def test_rounds_become_metrics_of_the_run(store, model):
    coverwell.mlflow.log_rounds(model)
    run = mlflow.active_run().info.run_id
    (logged,) = mlflow.MlflowClient().get_metric_history(run, "coverage")
    assert (logged.step, logged.value) == (1, np.mean(model.rounds_[0].coverage))
