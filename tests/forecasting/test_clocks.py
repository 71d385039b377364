"""Every kind of index comes back from its clock, and each stamp finds its step."""

import json
from dataclasses import asdict
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from coverwell.forecasting.calendar import calendar_features
from coverwell.forecasting.clock import Clock
from coverwell.forecasting.history import read_series

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


def polars_frame(zone: str | None = None, *, days: bool = False) -> pl.DataFrame:
    first = datetime(2024, 10, 26, 20)
    stamps = [first + timedelta(hours=i) for i in range(12)]
    column = pl.Series("when", stamps)
    if zone is not None:
        column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    if days:
        column = pl.Series("when", [date(2024, 1, 1) + timedelta(days=i) for i in range(12)])
    return pl.DataFrame({"when": column, "load": values_for(12)})


POLARS_FRAMES = {
    "hours": polars_frame(),
    "clocks go back": polars_frame(BERLIN),
    "days": polars_frame(days=True),
    "nanoseconds": polars_frame().with_columns(pl.col("when").cast(pl.Datetime("ns"))),
}


def every_kind() -> list:
    kinds = [pytest.param(pandas_series(case), index, id=f"pandas {case}") for case, index in PANDAS_INDEXES.items()]
    kinds += [pytest.param(frame, frame["when"], id=f"polars {case}") for case, frame in POLARS_FRAMES.items()]
    return [*kinds, pytest.param(values_for(12), np.arange(12), id="array")]


# --- The index comes back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PANDAS_INDEXES)
def test_a_pandas_index_comes_back_as_it_was(case):
    index = PANDAS_INDEXES[case]
    back = read_series(pandas_series(case), missing="error").clock.index(0, 12)
    pd.testing.assert_index_equal(back, index, exact=True)
    assert back.freq == index.freq


@pytest.mark.parametrize("case", [c for c, index in PANDAS_INDEXES.items() if index.freq is not None])
def test_the_pandas_index_after_the_end_is_the_one_pandas_would_give(case):
    index = PANDAS_INDEXES[case]
    clock = read_series(pandas_series(case).iloc[:7], missing="error").clock
    pd.testing.assert_index_equal(clock.index(7, 5), index[7:], exact=True)
    assert len(clock.index(7, 0)) == 0


@pytest.mark.parametrize("case", POLARS_FRAMES)
def test_a_polars_time_column_comes_back_as_it_was(case):
    frame = POLARS_FRAMES[case]
    clock = read_series(frame[:7], missing="error").clock
    assert clock.index(0, 12).equals(frame["when"], check_dtypes=True, check_names=True)


def test_arrays_lists_and_polars_series_count_from_zero():
    for series in (values_for(5), list(values_for(5)), pl.Series("load", values_for(5)), np.arange(5)):
        timeline = read_series(series, missing="error")
        assert timeline.clock == Clock()
        np.testing.assert_array_equal(timeline.clock.index(3, 4), [3, 4, 5, 6])
        assert timeline.values.dtype == np.float64


def test_a_pandas_series_that_counts_keeps_its_own_numbers():
    years = pd.Series([1.0, 2.0, 3.0], index=[1990, 1991, 1992])
    clock = read_series(years, missing="error").clock
    np.testing.assert_array_equal(clock.index(3, 2), [1993, 1994])
    assert clock.position(1991) == 1
    tail = pd.Series(values_for(9)).iloc[4:]
    np.testing.assert_array_equal(read_series(tail, missing="error").clock.index(0, 5), [4, 5, 6, 7, 8])


def test_one_stamp_with_a_frequency_is_enough_to_know_the_step():
    hour = pandas_series("hours").iloc[:1]
    pd.testing.assert_index_equal(read_series(hour, missing="error").clock.index(0, 12), PANDAS_INDEXES["hours"])


# --- Positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("series", "index"), every_kind())
def test_the_position_of_each_stamp_is_its_row(series, index):
    clock = read_series(series, missing="error").clock
    assert [clock.position(index[i]) for i in range(12)] == list(range(12))


def test_steps_before_the_first_are_negative():
    clock = read_series(pandas_series("hours"), missing="error").clock
    assert clock.position("2023-12-31 22:00") == -2
    assert str(clock.index(-2, 1)[0]) == "2023-12-31 22:00:00"


def test_a_period_may_be_named_by_text_period_or_a_day_within():
    clock = read_series(pandas_series("months"), missing="error").clock
    for at in ("2024-03", pd.Period("2024-03", "M"), datetime(2024, 3, 1), np.datetime64("2024-03"), "2024-03-15"):
        assert clock.position(at) == 2
    with pytest.raises(ValueError, match="have frequency M, got Period"):
        clock.position(pd.Period("2024Q1", "Q"))


def test_a_time_between_two_steps_is_refused():
    match = r"every 1 hour from 2024-01-01 00:00:00; 2024-01-01 05:30 lies between"
    with pytest.raises(ValueError, match=match):
        read_series(pandas_series("hours"), missing="error").clock.position("2024-01-01 05:30")
    with pytest.raises(ValueError, match="every 2 from 10; 13 lies between"):
        Clock("numbers", 10, 2).position(13)
    with pytest.raises(ValueError, match="every period of frequency 2h from 2024-01-01 00:00; 2024-01-01 01:00 lies"):
        read_series(pandas_series("two-hour periods"), missing="error").clock.position("2024-01-01 01:00")


def test_a_nanosecond_beside_a_step_is_between_two_steps():
    clock = read_series(pandas_series("hours"), missing="error").clock
    for at in (np.datetime64("2024-01-01T05:00:00.000000001"), pd.Timestamp("2024-01-01 05:00:00.000000001")):
        with pytest.raises(ValueError, match="lies between"):
            clock.position(at)


@pytest.mark.parametrize("at", ["3", 3.0, True, datetime(2024, 1, 1)])
def test_the_steps_of_an_array_are_whole_numbers(at):
    with pytest.raises(TypeError, match="are whole numbers, got"):
        Clock().position(at)


# --- Saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("series", "index"), every_kind())
def test_a_clock_is_the_same_after_a_trip_through_json(series, index):
    clock = read_series(series, missing="error").clock
    back = Clock(**json.loads(json.dumps(asdict(clock))))
    assert back == clock
    assert type(back.index(0, 12)) is type(clock.index(0, 12))
    assert list(back.index(0, 12)) == list(index)
    if hasattr(index, "dtype"):
        assert back.index(0, 12).dtype == index.dtype


def test_clocks_with_different_steps_or_starts_differ():
    hours, later = (read_series(pandas_series("hours").iloc[i:], missing="error").clock for i in (0, 1))
    assert hours != later
    assert hours != read_series(pandas_series("half hours"), missing="error").clock


def test_an_unknown_kind_of_clock_is_refused():
    with pytest.raises(ValueError, match="must be one of numbers, pandas, polars, periods, got 'sundial'"):
        Clock("sundial")


# --- Local times -----------------------------------------------------------------------------------------------------


def test_the_calendar_follows_local_clocks_when_they_change():
    for series in (pandas_series("clocks go back"), POLARS_FRAMES["clocks go back"]):
        hours = read_series(series, missing="error").clock.times(0, 12).astype("datetime64[h]").astype(int) % 24
        first = 20 if isinstance(series, pd.Series) else 22  # the polars frame begins at 20:00 UTC
        expected = [*range(first, 24), 0, 1, 2, 2, *range(3, 12)][:12]
        assert hours.tolist() == expected


def test_the_time_of_a_period_is_its_beginning():
    times = read_series(pandas_series("quarters"), missing="error").clock.times(1, 2)
    assert times.tolist() == [datetime(2020, 4, 1), datetime(2020, 7, 1)]


@pytest.mark.parametrize(("series", "index"), every_kind()[:-1])
def test_the_times_of_every_clock_suit_the_calendar(series, index):
    times = read_series(series, missing="error").clock.times(2, 5)
    assert times.dtype == "datetime64[s]"
    features, _ = calendar_features(times, ["hour", "weekday", "month"])
    assert features.shape == (5, 15)


def test_an_array_has_no_calendar():
    with pytest.raises(ValueError, match=r"a calendar needs time stamps.*DatetimeIndex.*calendar=\(\)"):
        read_series(values_for(5), missing="error").clock.times(0, 5)
