"""Arrays, pandas and polars objects are read as numbers with their names, or refused with the reason."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

from coverwell.forecasting.history import read_series

HOURS = pd.date_range("2024-01-01", periods=6, freq="h")
LOAD = pd.Series(np.arange(6.0), index=HOURS, name="load")
LOAD_IN_POLARS = pl.DataFrame({"when": HOURS.to_numpy(), "load": np.arange(6.0)})


def test_names_are_kept_and_the_nameless_is_y():
    assert read_series(LOAD, missing="error").name == "load"
    assert read_series(LOAD.to_frame(), missing="error").name == "load"
    assert read_series(LOAD_IN_POLARS, missing="error").name == "load"
    assert read_series(pl.Series("load", [1.0, 2.0]), missing="error").name == "load"
    assert read_series(LOAD.rename(None), missing="error").name == "y"
    assert read_series([1.0, 2.0], missing="error").name == "y"


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([1, 2, np.nan], dtype="float32"),
        pl.Series("load", [1, 2, None]),
        np.array([1, 2, np.nan], dtype=np.float16),
    ],
)
def test_every_number_type_becomes_float64_with_nan_for_missing(values):
    read = read_series(values, missing="fill").values
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, [1, 2, np.nan])


@pytest.mark.parametrize(
    ("series", "error", "match"),
    [
        (np.zeros((5, 2)), ValueError, r"series must have one dimension, got the shape \(5, 2\); take one column"),
        (np.zeros((5, 1)), ValueError, r"got the shape \(5, 1\).*\.ravel\(\)"),
        (3.0, ValueError, r"got the shape \(\)"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows differ in length"),
        (["a", "b"], TypeError, "series must hold numbers, got list of <U1"),
        (["1", "2"], TypeError, "series must hold numbers"),
        ([1.0, None], TypeError, "convert it to float, with nan for missing values"),
        ([1.0, 2j], TypeError, "must hold numbers"),
        (pd.Series([1.0, 2j]), TypeError, "must hold numbers, but column None is of complex128"),
        (pd.Series(["a", "b"]), TypeError, "must hold numbers, but column None is of"),
        (pd.DataFrame({"t": HOURS, "y": 1.0}), TypeError, r'column \'t\' is of datetime.*\.set_index\("t"\)'),
        (pd.DataFrame({"a": [1.0], "b": [2.0]}), ValueError, r"one column of numbers, got 2 \(a, b\); choose one"),
        (pl.DataFrame({"t": HOURS.to_numpy(), "a": 1.0, "b": 2.0}), ValueError, r"got 2 \(a, b\)"),
        (pl.DataFrame({"t": HOURS.to_numpy()}), ValueError, "must have a column of numbers, got none"),
        (pl.DataFrame({"t": HOURS.to_numpy(), "u": HOURS.to_numpy()}), ValueError, r"one time column, got 2 \(t, u\)"),
        (pl.DataFrame({"t": [None, date(2024, 1, 1)], "y": [1.0, 2.0]}), ValueError, "but 1 have none"),
        (pl.DataFrame({"t": HOURS.to_numpy(), "y": "a"}), TypeError, "column 'y' is of String"),
        (pl.DataFrame({"y": [1.0]}).lazy(), TypeError, r"got LazyFrame; use \.collect\(\)"),
        (pd.Series([1.0, 2.0], index=["mon", "tue"]), TypeError, "must be a DatetimeIndex.*pd.to_datetime"),
        (pd.Series([1.0], index=pd.MultiIndex.from_tuples([(1, 2)])), TypeError, "got MultiIndex of object"),
        (pd.Series([1.0, 2.0], index=[0.0, 0.5]), TypeError, "or whole numbers, got Index of float64"),
        (pd.Series([1.0, 2.0], index=pd.DatetimeIndex(["2024-01-01", None])), ValueError, "but 1 have none; drop them"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_what_is_no_table_of_numbers_is_refused_with_the_reason(series, error, match, missing):
    with pytest.raises(error, match=match):
        read_series(series, missing=missing)
