"""Rows as sections meet them: columns of any kind of table, and views that agree with the API."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from coverwell.report.judged import feature_columns, judged_rows

from coverwell import MLP, MatchedRegressor, metrics


def test_columns_of_pandas_and_polars_are_the_same(model, flats):
    X = flats(30, seed=1).drop("rent")
    ours, theirs = feature_columns(model, X), feature_columns(model, X.to_pandas())
    assert list(ours) == list(theirs) == ["area", "city", "listed", "garden"]
    assert np.isnan(ours["area"][0])
    assert ours["listed"].dtype.kind == theirs["listed"].dtype.kind == "M"
    assert set(ours["garden"]) == {"true", "false"}
    for name in ("city", "garden"):
        assert ours[name].tolist() == theirs[name].tolist()
    np.testing.assert_array_equal(ours["area"], theirs["area"])


def test_views_are_what_the_model_says(model, flats):
    rows = flats(30, seed=1)
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    narrow, wide = judged_rows(model, X, y).views
    lower, upper = model.predict_interval(X, coverage=0.9)
    np.testing.assert_array_equal(wide.lower, lower)
    np.testing.assert_array_equal(wide.upper, upper)
    np.testing.assert_array_equal(wide.prediction, model.predict(X))
    assert (narrow.when, wide.when) == ({"target": 0, "level": 0}, {"target": 0, "level": 1})
    assert wide.judgement.coverage == wide.inside.mean() == metrics.coverage(y, lower, upper)
    assert ((wide.missed_by > 0) == ~wide.inside).all()


def test_a_group_takes_the_place_of_a_feature_of_its_name(model, flats):
    rows = flats(30, seed=1)
    judged = judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy(), groups={"city": rows["city"].to_list()})
    assert list(judged.rows.features) == ["area", "listed", "garden"]
    assert list(judged.rows.groups) == ["city"]


def test_targets_of_a_data_frame_are_taken_by_name():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(60, 1)), rng.normal(size=(60, 2))
    y = pd.DataFrame({"rent": 5 + noise[:, 0], "price": 900 + noise[:, 1]})
    made = MatchedRegressor(0.8, network=MLP(hidden=4), max_rounds=1, folds=2, repeats=1, random_state=0)
    model = made.fit(X[:40], y[:40])
    for given in (y, y[["price", "rent"]], pl.DataFrame(y[["price", "rent"]].to_dict("list")), y.to_numpy()):
        np.testing.assert_array_equal(judged_rows(model, X, given).rows.y, y.to_numpy())
    with pytest.raises(ValueError, match="y must have the targets rent, price, as in training, got rent, cost"):
        judged_rows(model, X, y.rename(columns={"price": "cost"}))


def test_rows_are_counted_from_0_unless_they_have_numbers(model, flats):
    rows = flats(12)
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    assert judged_rows(model, X, y).row_numbers.tolist() == list(range(12))
    named = judged_rows(model, X, y, row_numbers=np.arange(5, 17))
    assert (named.row_numbers[0], named.first_number) == (5, 1)
    with pytest.raises(ValueError, match="at least 10 rows"):
        judged_rows(model, X[:3], y[:3])
