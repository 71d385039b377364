"""The six series as the study reads them: the same hours in both readings, and gaps only where they are said to be."""

import numpy as np
import pytest
from coverwell.experiments.series_data import (
    CALENDAR,
    GAPPY,
    INTERPOLATED,
    LONELY,
    OBSERVED,
    SERIES,
    problem,
    readings_of,
    series_from,
)

from coverwell import LSTM, MatchedForecaster, datasets


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


@pytest.mark.parametrize("data", SERIES)
def test_both_readings_test_the_same_hours_after_the_first_30_percent(data):
    whole = datasets.load_series(data)
    first_of_test = whole.time[int(0.3 * len(whole.time))]
    for reading in readings_of(data):
        posed = problem(data, reading)
        assert posed.time[posed.start] == first_of_test
        assert not np.isnan(posed.y[0])
        assert np.isnan(posed.y).any() == (data in GAPPY and reading == OBSERVED)
        assert (posed.past_covariates is None) == (data in LONELY)


@pytest.mark.parametrize("data", GAPPY)
def test_readings_agree_wherever_a_target_was_observed(data):
    observed, lines = problem(data, OBSERVED), problem(data, INTERPOLATED)
    n = len(lines.y)
    came = ~np.isnan(observed.y[:n])
    np.testing.assert_array_equal(observed.y[:n][came], lines.y[came])
    assert np.isnan(observed.y[n:]).all()
    assert observed.start == lines.start


def test_a_series_without_gaps_has_one_reading_whatever_is_asked():
    assert readings_of("traffic", (INTERPOLATED,)) == (OBSERVED,)
    assert readings_of("air quality", (INTERPOLATED,)) == (INTERPOLATED,)


def test_the_calendar_is_what_a_forecaster_makes_of_the_index():
    pandas = pytest.importorskip("pandas")
    posed = problem("tas2016", OBSERVED)
    y, index = posed.y[:700], pandas.DatetimeIndex(posed.time[:700])
    told = {"past": 4, "network": LSTM(hidden=2, layers=1), "folds": 2, "max_rounds": 1, "random_state": 0}
    told |= {"mean_epochs": 1, "interval_epochs": 1, "device": "cpu"}
    by_name = MatchedForecaster(0.8, calendar=CALENDAR, **told).fit(pandas.Series(y[:600], index[:600]))
    by_hand = MatchedForecaster(0.8, **told).fit(y[:600], covariates=posed.calendar[:600])
    ours = by_hand.backtest(y, start=600, covariates=posed.calendar[:700])
    theirs = by_name.backtest(pandas.Series(y, index), start=index[600])
    np.testing.assert_array_equal(ours.upper, theirs.upper)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["bikes"], "a series must be one of nsw2013, bike sharing"),
        (["traffic", "Traffic"], "each series must be named once, got traffic"),
        ([], "at least one series must be named"),
    ],
)
def test_wrong_names_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        series_from(names)
