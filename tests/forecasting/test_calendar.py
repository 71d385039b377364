"""Where in the day, the week and the year a step lies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coverwell.forecasting.calendar import CALENDAR, calendar_features, check_calendar


def at(*times: str) -> np.ndarray:
    return np.array(times, "datetime64[s]")


def test_six_in_the_morning_is_a_quarter_of_the_day():
    features, columns = calendar_features(at("2024-05-01T06:00"), ["hour"])
    assert columns == ("hour_sin1", "hour_cos1", "hour_sin2", "hour_cos2", "hour_sin3", "hour_cos3")
    # The angles of the three harmonics are 90, 180 and 270 degrees.
    np.testing.assert_allclose(features, [[1, 0, 0, -1, -1, 0]], atol=1e-12)


def test_minutes_count_in_the_hour():
    features, _ = calendar_features(at("2024-05-01T01:30"), ["hour"])
    np.testing.assert_allclose(features[0, :2], [np.sin(np.pi / 8), np.cos(np.pi / 8)], atol=1e-12)


def test_the_weekday_of_known_dates_is_right():
    features, columns = calendar_features(at("1970-01-01", "2024-01-01", "2024-03-31T23:59", "1969-12-31"), ["weekday"])
    days = [columns[i] for i in features.argmax(axis=1)]
    assert days == ["weekday_thursday", "weekday_monday", "weekday_sunday", "weekday_wednesday"]
    np.testing.assert_array_equal(features.sum(axis=1), 1)


def test_the_month_is_the_share_of_the_year_that_has_passed():
    # 2 July 2024, 00:00: 183 of the 366 days of a leap year are over.
    features, columns = calendar_features(at("2024-01-01", "2024-07-02"), ["month"])
    assert columns == ("month_sin1", "month_cos1")
    np.testing.assert_allclose(features, [[0, 1], [0, -1]], atol=1e-12)


def test_columns_follow_the_order_of_the_names():
    features, columns = calendar_features(at("2024-01-01", "2024-01-02"), ["weekday", "hour"])
    assert features.shape == (2, 13)
    assert columns[0] == "weekday_monday"
    assert columns[7] == "hour_sin1"


def test_no_names_give_no_columns():
    features, columns = calendar_features(at("2024-01-01", "2024-01-02"), [])
    assert features.shape == (2, 0)
    assert columns == ()


@given(second=st.integers(-(10**9), 4 * 10**9), week=st.integers(-500, 500))
def test_hour_and_weekday_come_back_every_week(second, week):
    times = np.array([second, second + week * 7 * 86400], "datetime64[s]")
    features, _ = calendar_features(times, ["hour", "weekday"])
    np.testing.assert_array_equal(features[0], features[1])


@given(second=st.integers(-(10**9), 4 * 10**9))
def test_features_do_not_depend_on_the_other_times_or_the_unit(second):
    times = np.array([0, second, 10**9], "datetime64[s]")
    together, _ = calendar_features(times.astype("datetime64[ns]"), list(CALENDAR))
    alone, _ = calendar_features(times[1:2], list(CALENDAR))
    np.testing.assert_array_equal(together[1:2], alone)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'hour', 'weekday', 'month', got 'holiday'"):
        calendar_features(at("2024-01-01"), ["hour", "holiday"])


def test_a_bare_text_is_refused_with_the_way_to_write_it():
    with pytest.raises(TypeError, match=r"got the text 'hour'; write \('hour',\)"):
        calendar_features(at("2024-01-01"), "hour")


def test_a_name_given_twice_is_refused():
    with pytest.raises(ValueError, match="counts once"):
        calendar_features(at("2024-01-01"), ["hour", "hour"])


def test_the_hour_of_daily_values_is_refused():
    days = np.arange("2024-01-01", "2024-02-01", dtype="datetime64[D]")
    with pytest.raises(ValueError, match=r"'hour' is the same at all 31 steps; leave it out"):
        check_calendar(days, ["weekday", "hour"])


def test_half_hours_of_two_days_have_an_hour_and_a_weekday():
    times = at("2024-01-01") + np.arange(96) * np.timedelta64(30, "m")
    check_calendar(times, ["hour", "weekday", "month"])
    features, _ = calendar_features(times, ["hour"])
    assert len(np.unique(features.round(9), axis=0)) == 48
