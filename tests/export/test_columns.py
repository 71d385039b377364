"""Raw columns as numbers, and their features in a graph."""

import numpy as np
import pandas as pd
import pytest
from coverwell.export import to_onnx
from coverwell.export.columns import example_rows, features_from_codes, told

from coverwell import MLP, MatchedRegressor
from coverwell.inputs.columns import Columns

LEVELS = ["Rome", "Oslo", "Bern", "Nice"]


def flats(n=80, seed=0):
    """A frame of all kinds of columns, most with gaps, a level that occurs once, and its target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.gamma(5, 20, n),
            "city": [*rng.choice(LEVELS[:3], n - 1), "Lund"],
            "sold": pd.Timestamp("1999-12-30") + pd.to_timedelta(rng.integers(0, 5_000_000, n), unit="min"),
            "garden": pd.array(rng.random(n) < 0.5, dtype="boolean"),
        }
    )
    for number, name in enumerate(frame):
        frame.loc[number :: 11 + number, name] = None
    frame["rooms"], frame["lift"] = rng.integers(1, 6, n), rng.random(n) < 0.5
    return frame, frame["area"].fillna(50) * 2 + 50 * (frame["city"] == "Oslo") + rng.normal(size=n)


def as_codes(frame, columns):
    """The matrix that somebody fills who has nothing but the metadata."""
    raw = []
    for entry in map(told, columns.columns):
        values = frame[entry["name"]]
        if entry["kind"] == "text":
            codes = [np.nan if pd.isna(v) else entry["codes"].get(v, entry["unknown"]) for v in values]
        elif entry["kind"] == "times":
            codes = (values - pd.Timestamp("1970-01-01")).dt.total_seconds()
        else:
            codes = values.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        raw.append(np.asarray(codes, dtype=np.float64))
    return np.stack(raw, axis=1)


@pytest.fixture(scope="module")
def fitted():
    X, y = flats()
    network = MLP(hidden=8, bins=4)
    model = MatchedRegressor(0.8, network=network, folds=2, repeats=1, max_rounds=1, random_state=0, device="cpu")
    return model.fit(X, y), y.std()


def test_a_file_gives_what_the_model_says_about_a_frame(fitted, run_file, largest_difference, tmp_path):
    model, sd = fitted
    metadata = to_onnx(model, tmp_path / "model.onnx")
    X, _ = flats(seed=1)
    said = run_file(tmp_path / "model.onnx", {"X": as_codes(X, model.columns_)})
    assert largest_difference(said, model, X, sd) < 1e-5
    assert metadata["columns"] == [told(column) for column in model.columns_.columns]
    kinds = ["numbers", "text", "times", "booleans", "numbers", "booleans"]
    assert [entry["kind"] for entry in metadata["columns"]] == kinds


def test_the_codes_of_levels_are_their_places_and_all_others_are_unknown(fitted):
    model, _ = fitted
    city = told(model.columns_.columns[1])
    assert sorted(city["codes"]) == sorted(LEVELS[:3])
    assert sorted(city["codes"].values()) == [0, 1, 2]
    assert (city["unknown"], city["missing"]) == (-1, "NaN")


def test_features_from_codes_are_those_of_the_frame():
    X, _ = flats()
    columns = Columns.of(X)
    np.testing.assert_array_equal(features_from_codes(columns, as_codes(X, columns)), columns.transform(X))


def test_a_gap_in_a_frame_of_numbers_is_filled_by_the_median(run_file, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    told = {"folds": 2, "repeats": 1, "max_rounds": 1, "random_state": 0, "device": "cpu"}
    model = MatchedRegressor(0.8, network=MLP(hidden=4), **told).fit(X, X["a"] + rng.normal(size=40))
    to_onnx(model, tmp_path / "model.onnx")
    median = [column.kind.median for column in model.columns_.columns]
    said = run_file(tmp_path / "model.onnx", {"X": np.array([[np.nan, median[1]], median])})["prediction"]
    assert said[0] == said[1] == pytest.approx(model.predict(pd.DataFrame([median], columns=["a", "b"]))[0], abs=1e-5)


def test_examples_have_gaps_and_levels_of_every_kind():
    columns = Columns.of(flats()[0])
    n_features = len(columns.feature_names)
    rows = example_rows(columns, np.zeros(n_features), np.ones(n_features), np.random.default_rng(0), 300)
    assert np.isnan(rows).any(axis=0).all()
    assert set(rows[:, 1][~np.isnan(rows[:, 1])]) == {-1, 0, 1, 2}
    assert np.isfinite(features_from_codes(columns, rows)).all()
