"""A period and its covariates beside what was seen before."""

import numpy as np
import pandas as pd
from coverwell.report.series_data import series_data_section

from coverwell.forecasting.history import read_history


def history(n, *, jump=0.0):
    index = pd.date_range("2024-01-01", periods=n, freq="h")
    wind = pd.DataFrame({"wind": np.arange(n) % 5.0}, index=index)
    price = pd.DataFrame({"price": np.r_[np.zeros(n - 2), jump, jump]}, index=index)
    return read_history(
        pd.Series(np.arange(n) % 7.0, index=index, name="load"), wind, price, calendar=(), missing="fill"
    )


def test_series_and_covariates_are_told_in_both_periods():
    table, text = series_data_section(history(20), history(30), 20).blocks
    assert [row[:3] for row in table.rows] == [
        ("load", "seen by the forecaster", "20"),
        ("load", "this report", "10"),
        ("price", "seen by the forecaster", "20"),
        ("price", "this report", "10"),
        ("wind", "seen by the forecaster", "20"),
        ("wind", "this report", "10"),
    ]
    assert table.rows[0][4:7] == ("0", "3", "6")
    assert text.text.startswith("All values of this period lie in the range")


def test_values_that_no_training_step_had_are_named():
    text = series_data_section(history(20), history(30, jump=9.0), 20).blocks[1].text
    assert text == "Outside the range of all that the forecaster had seen: 2 values of price (20 %)."
