import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from coverwell import MLP, MatchedRegressor
from coverwell.errors import TableFileError
from coverwell.streaming import TableFiles, estimate_files, estimates_of_parts
from coverwell.streaming.table_parts import Part

N_ROWS = 100


def table():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N_ROWS))
    return pl.DataFrame({"y": a + b, "a": a, "b": b})


def model(**more):
    return MatchedRegressor(network=MLP(hidden=4, bins=0), max_rounds=1, repeats=1, device="cpu", **more)


@pytest.fixture(scope="module")
def fitted():
    return model(random_state=0).fit(table().select("a", "b"), table()["y"])


@pytest.fixture
def files(tmp_path):
    for number, rows in enumerate((slice(0, 40), slice(40, 100))):
        table()[rows].write_parquet(tmp_path / f"{number}.parquet")
    return TableFiles(tmp_path)


def test_predictions_of_files_are_those_of_their_rows(fitted, files):
    (estimate,) = estimate_files(fitted, files)
    np.testing.assert_allclose(estimate.mean[:, 0], fitted.predict(table().select("a", "b")), atol=1e-12)


def test_every_team_has_its_estimate(files):
    several = model(random_state=0, calibration="cv+", folds=3).fit(table().select("a", "b"), table()["y"])
    estimates = estimate_files(several, files)
    assert [e.reach.shape for e in estimates] == [(N_ROWS, 1, 2, 1)] * 3


def test_parts_are_predicted_in_order_and_found_in_their_files(fitted, files):
    said = list(estimates_of_parts(fitted, files))
    assert [s.part for s in said] == [Part(files.paths[0], 0, 40, 0), Part(files.paths[1], 0, 60, 40)]
    assert [len(s.estimates[0].mean) for s in said] == [40, 60]


def test_a_model_of_an_array_takes_the_columns_in_their_order(files):
    rows = table()
    without_names = model(random_state=0).fit(rows.select("a", "b").to_numpy(), rows["y"].to_numpy())
    (estimate,) = estimate_files(without_names, TableFiles(files.paths, columns=["a", "b"]))
    np.testing.assert_allclose(estimate.mean[:, 0], without_names.predict(rows.select("a", "b").to_numpy()), atol=1e-12)


def test_files_without_a_fitted_column_are_told(fitted, tmp_path):
    table().drop("b").write_parquet(tmp_path / "new.parquet")
    with pytest.raises(TableFileError, match="no column that the model was fitted on: b"):
        estimate_files(fitted, TableFiles(tmp_path))


def test_a_model_that_is_not_fitted_does_not_predict(files):
    with pytest.raises(NotFittedError):
        estimate_files(model(), files)
