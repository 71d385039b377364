"""What users call a time is understood or refused, and stamps have one regular step or are refused."""

from datetime import datetime, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest
from dateutil.tz import tzoffset

from coverwell.forecasting.history import read_series

BERLIN = "Europe/Berlin"

INDEXES = {
    "hours": pd.date_range("2024-01-01", periods=12, freq="h"),
    "clocks go back": pd.date_range("2024-10-26 20:00", periods=12, freq="h", tz=BERLIN),
}


def values_for(n: int) -> np.ndarray:
    return np.sin(np.arange(n))


def pandas_series(case: str) -> pd.Series:
    return pd.Series(values_for(12), index=INDEXES[case], name="load")


# --- What users call a time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at",
    [
        "2024-01-01 05:00",
        "2024-01-01T05:00:00",
        datetime(2024, 1, 1, 5),
        np.datetime64("2024-01-01T05"),
        np.datetime64("2024-01-01T05:00:00.000000000"),
        pd.Timestamp("2024-01-01 05:00"),
    ],
)
def test_a_time_may_be_said_in_many_ways(at):
    assert read_series(pandas_series("hours"), missing="error").clock.position(at) == 5
    frame = pl.DataFrame({"when": list(INDEXES["hours"].to_pydatetime()), "load": values_for(12)})
    assert read_series(frame, missing="error").clock.position(at) == 5


@pytest.mark.parametrize(
    ("at", "step"),
    [
        ("2024-10-27 01:00", 5),  # as local clocks show it
        (datetime(2024, 10, 27, 3), 8),
        (np.datetime64("2024-10-27T03:00"), 8),
        ("2024-10-27 02:00+02:00", 6),  # the two hours that clocks call 2
        ("2024-10-27 02:00+01:00", 7),
        (datetime(2024, 10, 27, 1, tzinfo=timezone.utc), 7),  # noqa: UP017 as users write it
        (pd.Timestamp("2024-10-27 03:00"), 8),
        (pd.Timestamp("2024-10-27 03:00", tz=BERLIN), 8),
        (pd.Timestamp("2024-10-26 21:00", tz="America/New_York"), 7),
    ],
)
def test_a_time_without_a_zone_is_local_and_one_with_a_zone_is_exact(at, step):
    assert read_series(pandas_series("clocks go back"), missing="error").clock.position(at) == step


def test_the_hour_that_comes_twice_must_be_told_apart():
    clock = read_series(pandas_series("clocks go back"), missing="error").clock
    with pytest.raises(ValueError, match=r"show 2024-10-27 02:00:00 twice or never.*give the offset from UTC"):
        clock.position("2024-10-27 02:00")


@pytest.mark.parametrize(
    ("case", "at", "error", "match"),
    [
        ("hours", 5, TypeError, "must be text, a datetime, a datetime64 or a pandas Timestamp, got 5"),
        ("hours", "noon", ValueError, "must look like 2024-03-31 14:30, got 'noon'"),
        ("hours", pd.NaT, ValueError, "got NaT"),
        ("hours", np.datetime64("NaT"), ValueError, "got NaT"),
        ("clocks go back", pd.NaT, ValueError, "got NaT"),
        ("hours", "2024-01-01 05:00+01:00", ValueError, "have no time zone, but .* has one"),
    ],
)
def test_what_is_no_time_of_the_series_is_refused(case, at, error, match):
    with pytest.raises(error, match=match):
        read_series(pandas_series(case), missing="error").clock.position(at)


# --- Regular steps ---------------------------------------------------------------------------------------------------


def hourly(*rows: int, minutes: int = 0) -> pd.Series:
    """A series with these hours of a day as stamps, the last one late by some minutes."""
    index = INDEXES["hours"][list(rows)].to_series()
    index.iloc[-1] += pd.Timedelta(minutes=minutes)
    return pd.Series(values_for(len(rows)), index=pd.DatetimeIndex(index))


@pytest.mark.parametrize(
    ("series", "error", "match"),
    [
        (pd.Series([1.0], index=pd.DatetimeIndex(["2024-01-01"])), ValueError, "at least two time stamps, got one"),
        (hourly(0, 1, 1, 2, 2), ValueError, "must differ, but 2 repeat.*first of them 2024-01-01 01:00:00"),
        (hourly(0, 2, 1), ValueError, r"in order, but 2024-01-01 01:00:00 comes after 2024-01-01 02:00:00.*sort_index"),
        (pd.Series([1.0, 2.0], index=[1, 0]), ValueError, "in order, but 0 comes after 1"),
        (pd.Series([1.0, 2.0], index=pd.PeriodIndex(["2024-02", "2024-01"], freq="M")), ValueError, "in order"),
        (pl.DataFrame({"t": hourly(0, 2, 1).index.to_numpy(), "y": 1.0}), ValueError, "in order"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_stamps_that_are_not_in_order_or_too_few_are_refused(series, error, match, missing):
    with pytest.raises(error, match=match):
        read_series(series, missing=missing)


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_irregular_steps_are_refused_with_the_step_and_the_first_breach(missing):
    match = (
        r"smallest distance is 1 hour, the most frequent 1 hour, and 2024-01-01 04:20:00 comes 80 minutes after.*"
        r"\.resample.*\.asfreq"
    )
    with pytest.raises(ValueError, match=match):
        read_series(hourly(0, 1, 2, 3, 4, minutes=20), missing=missing)


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_one_stray_stamp_does_not_make_a_grid_of_minutes(missing):
    index = pd.date_range("2024-01-01", periods=48, freq="h").union([pd.Timestamp("2024-01-01 05:01")])
    match = r"the most frequent 1 hour, and 2024-01-01 05:01:00 comes only 1 minute after"
    with pytest.raises(ValueError, match=match):
        read_series(pd.Series(1.0, index=index), missing=missing)


@pytest.mark.parametrize(
    ("freq", "letter"), [("MS", "M"), ("ME", "M"), ("QS", "Q"), ("QE", "Q"), ("YS", "Y"), ("YE", "Y")]
)
@pytest.mark.parametrize("n", [2, 3, 30])
def test_calendar_months_ask_for_periods(freq, letter, n):
    index = pd.date_range("2023-07-01", periods=n, freq=freq)
    with pytest.raises(ValueError, match=rf'follow calendar months.*PeriodIndex.*to_period\("{letter}"\)'):
        read_series(pd.Series(values_for(n), index=index), missing="error")
    with pytest.raises(ValueError, match="follow calendar months"):
        read_series(pl.DataFrame({"t": index.to_numpy(), "y": values_for(n)}), missing="error")


def test_steps_of_thirty_days_are_not_months():
    index = pd.date_range("2024-01-01", periods=6, freq="30D")
    assert read_series(pd.Series(1.0, index=index), missing="error").clock.step_in_words() == "30 days"


@pytest.mark.parametrize("first", ["2024-01-01", "2024-03-25"])
def test_days_in_a_zone_whose_clocks_change_are_refused_in_every_season(first):
    index = pd.date_range(first, periods=12, freq="D", tz=BERLIN)
    with pytest.raises(ValueError, match=r"whole days must come without a time zone, got Europe/Berlin.*tz_localize"):
        read_series(pd.Series(1.0, index=index), missing="error")
    frame = pl.DataFrame({"t": pl.Series(index.tz_localize(None).to_numpy()).dt.replace_time_zone(BERLIN), "y": 1.0})
    with pytest.raises(ValueError, match="whole days must come without a time zone"):
        read_series(frame, missing="error")


def test_a_time_zone_without_a_name_is_refused():
    hours = pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC")
    index = hours.tz_convert(tzoffset(None, 3600))
    with pytest.raises(ValueError, match=r"time zone of the series must have a name, such as Europe/Berlin"):
        read_series(pd.Series(1.0, index=index), missing="error")
