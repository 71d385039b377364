"""Errors in a series or a setting are raised at the border, before anything is trained."""

import numpy as np
import pandas as pd
import pytest

from coverwell import LSTM, MatchedForecaster, Schedule

N = 120
VALUES = np.sin(np.arange(N) / 3) + 0.1 * np.random.default_rng(0).normal(size=N)
HOURS = pd.date_range("2024-01-01", periods=N, freq="h")
SERIES = pd.Series(VALUES, HOURS)
COVARIATES = np.random.default_rng(1).normal(size=(N, 2))


def unfitted(**changes):
    brief = {"past": 4, "network": LSTM(hidden=4, layers=1), "folds": 2, "schedule": Schedule(max_rounds=1)}
    # Set one by one: the checks of types in this test run would be faster than ours.
    return MatchedForecaster(0.8).set_params(**brief | {"random_state": 0} | changes)


def at(place, value, values=VALUES):
    changed = np.array(values, dtype=float)
    changed[place] = value
    return changed


@pytest.fixture(scope="module")
def fitted():
    return unfitted().fit(SERIES)


def assert_refused(said, *arguments, error=ValueError, **changes):
    forecaster = unfitted(**changes)
    with pytest.raises(error, match=said):
        forecaster.fit(*arguments)
    assert not hasattr(forecaster, "regressor_")


@pytest.mark.parametrize(
    ("series", "missing", "said"),
    [
        (SERIES.drop(HOURS[60:63]), "error", 'but 3 are missing, the first at 2024-01-03 12:00:00.*missing="fill"'),
        (np.full(N, 3.5), "error", "the series must vary, but all its 120 values are 3.5"),
        (VALUES[:4], "error", r"2 windows of past \+ horizon = 6 steps .* got 0 in 4 steps; give a longer series"),
        (VALUES[:6], "error", r"at least 2 windows of past \+ horizon = 6 steps .* got 1 in 6 steps"),
        (VALUES[:25], "error", "2 blocks of time with 6 steps .* on both sides need 33 steps or more, got 25"),
        (at(0, np.nan), "fill", "must start with an observed value"),
        (at(np.arange(N) % 2 == 1, np.nan), "fill", "6 steps whose last 2 were observed, got 0"),
        (at(slice(1, None), np.nan), "fill", "must vary, but"),
    ],
)
def test_a_series_that_cannot_be_learned_is_refused(series, missing, said):
    assert_refused(said, series, missing=missing, horizon=2)


def test_the_shortest_series_that_is_not_refused_is_fitted():
    forecaster = unfitted().fit(VALUES[:27])
    assert np.isfinite(forecaster.predict()).all()
    for train, out in forecaster.time_folds_.split(forecaster.windows_.origins(forecaster.history_)):
        assert len(train) > 0
        assert len(out) > 0


def test_runs_of_nan_are_filled_where_that_is_allowed():
    forecaster = unfitted(missing="fill").fit(at(slice(60, 80), np.nan))
    assert forecaster.windows_.flags
    assert len(forecaster.regressor_.out_of_fold_.prediction) == N - 4 - 20  # filled values are no targets


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"past": 0}, "past must be a whole number of at least 1, got 0"),
        ({"past": 4.0}, "past must be a whole number of at least 1, got 4.0"),
        ({"horizon": 1.5}, "horizon must be a whole number of at least 1, got 1.5"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"rate": -1}, "rate must be 'adaptive', 'auto' or a positive number, got -1"),
        ({"rate": np.inf}, "rate must be 'adaptive', 'auto' or a positive number, got inf"),
        ({"rate": "fast"}, "rate must be 'adaptive', 'auto' or a positive number, got 'fast'"),
        ({"refit_every": 0}, "refit_every must be a whole number of at least 1, got 0"),
        ({"refit_every": "week"}, "refit_every must be a whole number of at least 1, got 'week'"),
        ({"missing": "drop"}, 'missing must be "error" or "fill", got \'drop\''),
        ({"calendar": ("day",)}, r"calendar must be made of 'hour', 'weekday', 'month', each once, got \('day',\)"),
        ({"calendar": ("hour", "hour")}, r"each once, got \('hour', 'hour'\)"),
        ({"calendar": "hour"}, r"must be a sequence of names, such as \('hour', 'weekday'\) or \(\), got 'hour'"),
        ({"calendar": None}, "calendar must be a sequence of names"),
        ({"schedule": 0}, r"schedule must be a Schedule\(...\) or None, got 0"),
        ({"matching": "best"}, "matching must be"),
        ({"shape": "round"}, "shape must be"),
        ({"coverage": 90.0}, "coverage must lie strictly between 0 and 1, got 90.0"),
        ({"coverage": []}, "coverage must hold at least one level"),
        ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"folds": "five"}, "folds must be a whole number of at least 2, got 'five'"),
        ({"folds": None}, "calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None"),
        ({"folds": 60}, "60 blocks of time with 5 steps"),
        ({"calibration": "split"}, "calibration must be 'cross' or None for a series, got 'split': .* overlap"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_trained(settings, said):
    assert_refused(said, SERIES, error=(ValueError, TypeError), **settings)


def test_a_calendar_needs_time_stamps_and_must_vary():
    assert_refused("a calendar needs time stamps, and this series has none", VALUES, calendar=("hour",))
    days = SERIES.set_axis(pd.date_range("2024", periods=N))
    assert_refused("'hour' is the same at all 120 steps", days, calendar=("hour",))


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (None, "must leave 4 steps before it .* got the step 2024-01-06 00:00:00 after those that have been seen"),
        (HOURS[3], "start must leave 4 steps before it and be one of the 120 steps of the series"),
        ("2024-01-06", "to 2024-01-05 23:00:00, got the step 2024-01-06 00:00:00"),
        ("2024-01-05 00:30", "lies between two of them"),
        ("soon", "must look like"),
    ],
)
def test_a_backtest_needs_a_start_within_the_series(fitted, start, said):
    with pytest.raises(ValueError, match=said):
        fitted.backtest(SERIES, start=start)


def test_a_stamp_in_the_far_future_is_refused_and_not_walked_to(fitted):
    forecaster = unfitted(missing="fill").fit(SERIES)
    with pytest.raises(ValueError, match="a gap must not be longer than the 120 steps that have been seen"):
        forecaster.update(0.0, at="2042-01-01")
    assert len(forecaster.history_) == N
