"""Values of a file that came after all that a forecaster has seen, whatever its time stamps are."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from coverwell import LSTM, MatchedForecaster, Schedule
from coverwell.cli.report import later_values
from coverwell.tables import TableFile

N, SEEN = 120, 90


def fitted(series, past=None, ahead=None, missing="error"):
    made = MatchedForecaster(
        coverage=0.8, past=8, network=LSTM(hidden=4), schedule=Schedule(max_rounds=1), folds=2, missing=missing
    )
    return made.set_params(random_state=0).fit(series[:SEEN], ahead, None if past is None else past[:SEEN])


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return (5 + np.sin(np.arange(N) / 4) + 0.2 * rng.normal(size=N)).round(4)


@pytest.fixture(scope="module")
def hours():
    return pd.date_range("2024-01-01", periods=N, freq="h", name="when")


def check_twin(model, path, series, **covariates):
    """A backtest of the joined values is that of the whole series."""
    given = later_values(model, TableFile(path))
    backtest = model.backtest(given.pop("series"), **given)
    twin = model.backtest(series, **covariates)
    np.testing.assert_array_equal(backtest.y, twin.y)
    np.testing.assert_array_equal(backtest.lower, twin.lower)


def test_pandas_with_past_covariates_and_rows_that_were_seen_already(values, hours, tmp_path):
    frame = pd.DataFrame({"load": values, "price": values[::-1]}, index=hours)
    frame[SEEN - 10 :].to_csv(tmp_path / "later.csv")
    model = fitted(frame["load"], past=frame[["price"]])
    check_twin(model, tmp_path / "later.csv", frame["load"], past_covariates=frame[["price"]])


def test_polars_with_covariates_known_ahead(values, hours, tmp_path):
    frame = pl.DataFrame({"when": hours.to_numpy(), "load": values, "price": values[::-1]})
    frame[SEEN:].write_parquet(tmp_path / "later.parquet")
    series, ahead = frame.select("when", "load"), frame.select("when", "price")
    check_twin(fitted(series, ahead=ahead), tmp_path / "later.parquet", series, covariates=ahead)


def test_counts_go_on_where_the_forecaster_ended(values, tmp_path):
    pl.DataFrame({"value": values[SEEN:]}).write_csv(tmp_path / "later.csv")
    model = fitted(values)
    pl.DataFrame({model.history_.name: values[SEEN:]}).write_csv(tmp_path / "later.csv")
    check_twin(model, tmp_path / "later.csv", values)
    with pytest.raises(ValueError, match="this forecaster counts steps; leave it out"):
        later_values(model, TableFile(tmp_path / "later.csv"), time=model.history_.name)


def test_steps_that_the_file_does_not_have_are_gaps(values, hours, tmp_path):
    series = pd.Series(values, index=hours, name="load")
    series[SEEN:].drop(hours[SEEN + 5]).to_csv(tmp_path / "later.csv")
    model = fitted(series, missing="fill")
    with_gap = series.copy()
    with_gap.iloc[SEEN + 5] = np.nan
    check_twin(model, tmp_path / "later.csv", with_gap)
