"""Every kind of index comes back from its clock, each stamp finds its step, and irregular stamps are refused."""

import json
import sys
from dataclasses import asdict
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest
from dateutil.tz import tzoffset

from coverwell.forecasting.history import Clock, read_history

BERLIN = "Europe/Berlin"
CLOCKS_GO_BACK = pd.date_range("2024-10-26 20:00", periods=12, freq="h", tz=BERLIN, name="when")

PANDAS_INDEXES = {
    "hours": pd.date_range("2024-01-01", periods=12, freq="h", name="when"),
    "half hours": pd.date_range("2024-02-29 22:00", periods=12, freq="30min"),
    "days": pd.date_range("2024-01-01", periods=12, freq="D"),
    "weeks": pd.date_range("2024-01-01", periods=12, freq="W-WED"),
    "nanoseconds": pd.date_range("2024-01-01", periods=12, freq="h", unit="ns"),
    "seconds": pd.date_range("2024-01-01", periods=12, freq="h", unit="s"),
    "clocks go back": CLOCKS_GO_BACK,
    "clocks go forward": pd.date_range("2024-03-30 20:00", periods=12, freq="h", tz=BERLIN),
    "utc": pd.date_range("2024-01-01", periods=12, freq="D", tz="UTC"),
    "fixed offset": pd.date_range("2024-01-01", periods=12, freq="D", tz="+02:00"),
    "no frequency": pd.DatetimeIndex(pd.date_range("2024-01-01", periods=12, freq="h").to_numpy()),
    "months": pd.period_range("2024-01", periods=12, freq="M", name="month"),
    "quarters": pd.period_range("2020Q1", periods=12, freq="Q"),
    "two-hour periods": pd.period_range("2024-01-01", periods=12, freq="2h"),
}


def values_for(n: int) -> np.ndarray:
    return np.sin(np.arange(n))


def pandas_series(case: str) -> pd.Series:
    return pd.Series(values_for(12), index=PANDAS_INDEXES[case], name="load")


def clock_of(series, missing="error") -> Clock:
    return read_history(series, missing=missing).clock


def polars_frame(first: date = datetime(2024, 10, 26, 20), step: timedelta = timedelta(hours=1)) -> pl.DataFrame:
    return pl.DataFrame({"when": [first + i * step for i in range(12)], "load": values_for(12)})


IN_BERLIN = pl.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone(BERLIN)
POLARS_FRAMES = {
    "hours": polars_frame(),
    "clocks go back": polars_frame().with_columns(IN_BERLIN),
    "days": polars_frame(date(2024, 1, 1), timedelta(days=1)),
    "nanoseconds": polars_frame().with_columns(pl.col("when").cast(pl.Datetime("ns"))),
}


def every_kind() -> list:
    kinds = [pytest.param(pandas_series(case), index, id=f"pandas {case}") for case, index in PANDAS_INDEXES.items()]
    kinds += [pytest.param(frame, frame["when"], id=f"polars {case}") for case, frame in POLARS_FRAMES.items()]
    return [*kinds, pytest.param(values_for(12), np.arange(12), id="array")]


@pytest.mark.parametrize("case", PANDAS_INDEXES)
def test_a_pandas_index_comes_back_and_goes_on_as_pandas_would(case):
    index, clock = PANDAS_INDEXES[case], clock_of(pandas_series(case).iloc[:7])
    back = clock.index(0, 12)
    pd.testing.assert_index_equal(back, index, exact=True)
    assert back.freq == index.freq
    pd.testing.assert_index_equal(clock.index(7, 5), index[7:], exact=True)
    assert len(clock.index(7, 0)) == 0


@pytest.mark.parametrize("case", POLARS_FRAMES)
def test_a_polars_time_column_comes_back_as_it_was(case):
    frame = POLARS_FRAMES[case]
    clock = clock_of(frame[:7])
    assert clock.index(0, 12).equals(frame["when"], check_dtypes=True, check_names=True)


def test_arrays_lists_and_polars_series_count_from_zero():
    for series in (values_for(5), list(values_for(5)), pl.Series("load", values_for(5)), np.arange(5)):
        assert clock_of(series) == Clock()
        np.testing.assert_array_equal(clock_of(series).index(3, 4), [3, 4, 5, 6])


def test_a_pandas_series_that_counts_keeps_its_own_numbers():
    years = pd.Series([1.0, 2.0, 3.0], index=[1990, 1991, 1992])
    clock = clock_of(years)
    np.testing.assert_array_equal(clock.index(3, 2), [1993, 1994])
    assert clock.position(1991) == 1
    tail = pd.Series(values_for(9)).iloc[4:]
    np.testing.assert_array_equal(clock_of(tail).index(0, 5), [4, 5, 6, 7, 8])


def test_one_stamp_with_a_frequency_is_enough_to_know_the_step():
    hour = pandas_series("hours").iloc[:1]
    pd.testing.assert_index_equal(clock_of(hour).index(0, 12), PANDAS_INDEXES["hours"])


@pytest.mark.parametrize(("series", "index"), every_kind())
def test_the_position_of_each_stamp_is_its_row(series, index):
    clock = clock_of(series)
    assert [clock.position(index[i]) for i in range(12)] == list(range(12))
    assert clock.position(clock.index(-2, 1)[0]) == -2


def test_a_period_may_be_named_by_text_period_or_a_day_within():
    clock = clock_of(pandas_series("months"))
    for at in ("2024-03", pd.Period("2024-03", "M"), datetime(2024, 3, 1), np.datetime64("2024-03"), "2024-03-15"):
        assert clock.position(at) == 2
    with pytest.raises(ValueError, match="the series has periods of frequency M, but the time has PeriodIndex"):
        clock.position(pd.Period("2024Q1", "Q"))
    with pytest.raises(ValueError, match="a period as text must look like 2024-01, got 'soon'"):
        clock.position("soon")


@pytest.mark.parametrize(
    ("series", "at", "match"),
    [
        (
            pandas_series("hours"),
            "2024-01-01 05:30",
            "every 1 hour from 2024-01-01 00:00:00; 2024-01-01 05:30:00 lies",
        ),
        (pandas_series("hours"), np.datetime64("2024-01-01T05:00:00.000000001"), "lies between"),
        (pandas_series("hours"), pd.Timestamp("2024-01-01 05:00:00.000000001"), "lies between"),
        (pd.Series([1.0, 2.0, 3.0], index=[10, 12, 14]), 13, "every 2 from 10; 13 lies between"),
        (
            pandas_series("two-hour periods"),
            "2024-01-01 01:00",
            "every period of frequency 2h from 2024-01-01 00:00",
        ),
    ],
)
def test_a_time_between_two_steps_is_refused(series, at, match):
    with pytest.raises(ValueError, match=match):
        clock_of(series).position(at)


def test_the_steps_of_an_array_are_whole_numbers():
    for at in ("3", 3.0, True, datetime(2024, 1, 1)):
        with pytest.raises(TypeError, match="are whole numbers, got"):
            Clock().position(at)


@pytest.mark.parametrize(("series", "index"), every_kind())
def test_a_clock_is_the_same_after_a_trip_through_json(series, index):
    clock = clock_of(series)
    back = Clock(**json.loads(json.dumps(asdict(clock))))
    assert back == clock
    assert type(back.index(0, 12)) is type(clock.index(0, 12))
    assert list(back.index(0, 12)) == list(index)
    if hasattr(index, "dtype"):
        assert back.index(0, 12).dtype == index.dtype


def test_time_stamps_need_pandas_and_numbers_do_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"time stamps need pandas; install it with pip install 'coverwell\[forecast"):
        Clock("pandas", "2024-01-01", 1, "s").index(0, 1)
    assert clock_of(values_for(5)).label(5) == "5"


def test_the_calendar_follows_local_clocks_when_they_change():
    for series in (pandas_series("clocks go back"), POLARS_FRAMES["clocks go back"]):
        hours = clock_of(series).times(0, 12).astype("datetime64[h]").astype(int) % 24
        first = 20 if isinstance(series, pd.Series) else 22  # the polars frame begins at 20:00 UTC
        expected = [*range(first, 24), 0, 1, 2, 2, *range(3, 12)][:12]
        assert hours.tolist() == expected


def test_the_time_of_a_period_is_its_beginning():
    times = clock_of(pandas_series("quarters")).times(1, 2)
    assert times.tolist() == [datetime(2020, 4, 1), datetime(2020, 7, 1)]


def test_an_array_has_no_calendar():
    with pytest.raises(ValueError, match=r"a calendar needs time stamps.*DatetimeIndex.*calendar=\(\)"):
        clock_of(values_for(5)).times(0, 5)


def test_a_time_may_be_given_in_many_ways():
    frame = pl.DataFrame({"when": list(PANDAS_INDEXES["hours"].to_pydatetime()), "load": values_for(12)})
    times = ["2024-01-01 05:00", "2024-01-01T05:00:00", datetime(2024, 1, 1, 5), pd.Timestamp("2024-01-01 05:00")]
    times += [np.datetime64("2024-01-01T05"), np.datetime64("2024-01-01T05:00:00.000000000")]
    for clock in (clock_of(pandas_series("hours")), clock_of(frame)):
        assert [clock.position(at) for at in times] == [5] * len(times)


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
    assert clock_of(pandas_series("clocks go back")).position(at) == step


@pytest.mark.parametrize(
    ("case", "at", "error", "match"),
    [
        ("hours", 5, TypeError, "must be text, a datetime, a datetime64 or a pandas Timestamp, got 5"),
        ("hours", "noon", ValueError, "must look like 2024-03-31 14:30, got 'noon'"),
        ("hours", pd.NaT, ValueError, "got NaT"),
        ("hours", np.datetime64("NaT"), ValueError, "got NaT"),
        ("clocks go back", pd.NaT, ValueError, "got NaT"),
        (
            "hours",
            "2024-01-01 05:00+01:00",
            ValueError,
            "the series has points in time without a time zone, but the time has",
        ),
        ("clocks go back", "2024-10-27 02:00", ValueError, "show 2024-10-27 02:00:00 twice or never.*give the offset"),
    ],
)
def test_what_is_no_time_of_the_series_is_refused(case, at, error, match):
    with pytest.raises(error, match=match):
        clock_of(pandas_series(case)).position(at)


def hourly(*rows: int, minutes: int = 0) -> pd.Series:
    """A series with these hours of a day as stamps, the last one late by some minutes."""
    index = PANDAS_INDEXES["hours"][list(rows)].to_series()
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
        clock_of(series, missing)


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_irregular_steps_are_refused_with_the_step_and_the_first_breach(missing):
    match = (
        r"the smallest is 1 hour, the most frequent 1 hour, and 2024-01-01 04:20:00 comes 80 minutes after.*resample"
    )
    with pytest.raises(ValueError, match=match):
        clock_of(hourly(0, 1, 2, 3, 4, minutes=20), missing)


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_one_stray_stamp_does_not_make_a_grid_of_minutes(missing):
    index = pd.date_range("2024-01-01", periods=48, freq="h").union([pd.Timestamp("2024-01-01 05:01")])
    match = r"the most frequent 1 hour, and 2024-01-01 05:01:00 comes only 1 minute after"
    with pytest.raises(ValueError, match=match):
        clock_of(pd.Series(1.0, index=index), missing)


@pytest.mark.parametrize(
    ("freq", "letter"), [("MS", "M"), ("ME", "M"), ("QS", "Q"), ("QE", "Q"), ("YS", "Y"), ("YE", "Y")]
)
@pytest.mark.parametrize("n", [2, 3, 30])
def test_calendar_months_ask_for_periods(freq, letter, n):
    index = pd.date_range("2023-07-01", periods=n, freq=freq)
    with pytest.raises(ValueError, match=rf'calendar months differ in length.*PeriodIndex.*to_period\("{letter}"\)'):
        clock_of(pd.Series(values_for(n), index=index))
    with pytest.raises(ValueError, match="calendar months differ in length"):
        clock_of(pl.DataFrame({"t": index.to_numpy(), "y": values_for(n)}))


@pytest.mark.parametrize(("freq", "words"), [("30D", "30 days"), ("80min", "80 minutes"), ("7ms", "7 milli")])
def test_a_step_has_words_and_thirty_days_are_not_months(freq, words):
    index = pd.date_range("2024-01-01", periods=6, freq=freq)
    assert clock_of(pd.Series(1.0, index=index)).step_in_words().startswith(words)


@pytest.mark.parametrize("first", ["2024-01-01", "2024-03-25"])
def test_days_in_a_zone_whose_clocks_change_are_refused_in_every_season(first):
    index = pd.date_range(first, periods=12, freq="D", tz=BERLIN)
    with pytest.raises(
        ValueError, match=r"days in Europe/Berlin differ in length when clocks change; use .*tz_localize"
    ):
        clock_of(pd.Series(1.0, index=index))
    frame = pl.DataFrame({"t": pl.Series(index.tz_localize(None).to_numpy()).dt.replace_time_zone(BERLIN), "y": 1.0})
    with pytest.raises(ValueError, match="days in Europe/Berlin differ in length"):
        clock_of(frame)


def test_a_time_zone_without_a_name_is_refused():
    hours = pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC")
    index = hours.tz_convert(tzoffset(None, 3600))
    with pytest.raises(ValueError, match=r"time zone of the series must have a name, such as Europe/Berlin"):
        clock_of(pd.Series(1.0, index=index))
