"""Where in the day, the week and the year a step lies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coverwell.forecasting.windows import CALENDAR, calendar_features


def at(*times: str) -> np.ndarray:
    return np.array(times, "datetime64[s]")


EIGHTH = np.sin(np.pi / 8), np.cos(np.pi / 8)


@pytest.mark.parametrize(
    ("time", "name", "columns"),
    [
        ("2024-05-01T06:00", "hour", [1, 0, 0, -1, -1, 0]),  # three waves: at 90, 180 and 270 degrees
        ("2024-05-01T01:30", "hour", [*EIGHTH, np.sqrt(0.5), np.sqrt(0.5), *EIGHTH[::-1]]),  # minutes count
        ("1970-01-01", "weekday", [0, 0, 0, 1, 0, 0, 0]),  # from Monday on
        ("2024-01-01", "weekday", [1, 0, 0, 0, 0, 0, 0]),
        ("2024-03-31T23:59", "weekday", [0, 0, 0, 0, 0, 0, 1]),
        ("1969-12-31", "weekday", [0, 0, 1, 0, 0, 0, 0]),
        ("2024-01-01", "month", [0, 1]),
        ("2024-07-02", "month", [0, -1]),  # 183 of the 366 days of a leap year are over
    ],
)
def test_the_features_of_known_times(time, name, columns):
    np.testing.assert_allclose(calendar_features(at(time), [name]), [columns], atol=1e-12)


def test_columns_follow_the_order_of_the_names():
    times = at("2024-01-01", "2024-01-02T07:00")
    apart = [calendar_features(times, [name]) for name in ("weekday", "hour")]
    np.testing.assert_array_equal(calendar_features(times, ["weekday", "hour"]), np.concatenate(apart, axis=1))
    assert calendar_features(times, []).shape == (2, 0)


@given(second=st.integers(-(10**9), 4 * 10**9), week=st.integers(-500, 500))
def test_hour_and_weekday_come_back_every_week(second, week):
    times = np.array([second, second + week * 7 * 86400], "datetime64[s]")
    features = calendar_features(times, ["hour", "weekday"])
    np.testing.assert_array_equal(features[0], features[1])


@given(second=st.integers(-(10**9), 4 * 10**9))
def test_features_do_not_depend_on_the_other_times_or_the_unit(second):
    times = np.array([0, second, 10**9], "datetime64[s]")
    together = calendar_features(times.astype("datetime64[ns]"), CALENDAR)
    np.testing.assert_array_equal(together[1:2], calendar_features(times[1:2], CALENDAR))
