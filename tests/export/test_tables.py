"""Regressors on tables as graphs: what their columns are called, rows to check them on, and how they were read."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from coverwell.export import to_onnx
from coverwell.export.tables import draft_of_table

from coverwell import MLP, MatchedRegressor, TableFiles

BRIEF = {"network": MLP(hidden=3), "folds": 2, "repeats": 1, "max_rounds": 1, "random_state": 0, "device": "cpu"}


def test_columns_have_the_names_of_the_frame_or_are_counted(random_regressor):
    counted = draft_of_table(random_regressor(n_features=2)[0], np.float32).told["columns"]
    assert counted == [{"name": "column 0", "kind": "numbers"}, {"name": "column 1", "kind": "numbers"}]
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = MatchedRegressor(0.8, **BRIEF).fit(pd.DataFrame(rows, columns=["a", "b"]), rows[:, 0])
    named = draft_of_table(model, np.float32).told["columns"]
    assert [(column["name"], column["missing"]) for column in named] == [("a", "NaN"), ("b", "NaN")]


def test_examples_are_spread_as_the_training_rows_were(random_regressor):
    model, _ = random_regressor(n_features=3)
    draft, inputs = draft_of_table(model, np.float32), model.ensembles_[0].inputs
    scaled = (draft.examples["X"] - inputs.centre) / inputs.spread
    n = scaled.size
    assert abs(scaled.mean()) < 4 / np.sqrt(n)  # four standard errors
    assert abs(scaled.std() - 1) < 4 / np.sqrt(2 * n)


@pytest.mark.parametrize("calibration", ["cross", "split", None])
def test_a_model_that_was_fitted_part_by_part_is_exported_like_any_other(
    calibration, run_file, largest_difference, tmp_path
):
    rng = np.random.default_rng(0)
    city, area = rng.choice(["Rome", "Oslo", "Bern"], 600), rng.gamma(5, 20, 600)
    rows = pl.DataFrame({"city": city, "area": area, "rent": area + 50 * (city == "Oslo") + rng.normal(size=600)})
    rows = rows.with_columns(area=pl.when(pl.col("area") > 40).then("area"), price=300 * pl.col("rent"))
    for number in (0, 1):
        rows[300 * number : 300 * (number + 1)].write_parquet(tmp_path / f"{number}.parquet")
    model = MatchedRegressor([0.5, 0.8], calibration=calibration, **BRIEF).fit(TableFiles(tmp_path), ["rent", "price"])
    columns = to_onnx(model, tmp_path / "model.onnx")["columns"]
    assert [column["name"] for column in columns] == ["city", "area"]
    codes = [columns[0]["codes"][name] for name in city]
    X = np.stack([codes, rows["area"].fill_null(np.nan).to_numpy()], axis=1)
    said = run_file(tmp_path / "model.onnx", {"X": X})
    sd = rows.select("rent", "price").to_numpy().std(axis=0)
    assert largest_difference(said, model, rows.select("city", "area"), sd) < 1e-5
