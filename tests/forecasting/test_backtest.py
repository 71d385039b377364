import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import LSTM, Backtest, MatchedForecaster, Schedule
from coverwell.forecasting.history import read_history
from coverwell.forecasting.live import truths_ahead

LEVELS = (0.5, 0.9)
DAYS = pd.date_range("2024-02-26", periods=8, freq="D", name="day")
VALUES = np.array([0.0, 1.0, 2.0, np.nan, 4.0, 5.0, 6.0, 7.0])


def backtest_of(series=VALUES, *, first=2):
    """Forecasts of all but the first values, always 3, with half-widths of 1 and 2, the live ones twice as wide."""
    history = read_history(series, missing="fill")
    y = truths_ahead(history.values[first:], 2)
    half_width = np.broadcast_to([1.0, 2.0], (*y.shape, 2))
    stamps = history.clock.index(first, len(y) + 1)
    live, static = ((3.0 - k * half_width, 3.0 + k * half_width) for k in (2, 1))
    return Backtest(
        stamps, history.name, y, np.full(y.shape, 3.0), *live, *static, np.full(half_width.shape, 2.0), LEVELS
    )


def test_every_row_has_the_values_that_came_at_its_steps():
    backtest = backtest_of()
    assert len(backtest) == 6
    assert_array_equal(backtest.y[:, 0], [2, np.nan, 4, 5, 6, 7])
    assert_array_equal(backtest.y[:, 1], [np.nan, 4, 5, 6, 7, np.nan])  # the series ends before the last one comes
    assert backtest.lower.shape == backtest.upper.shape == backtest.factor.shape == (6, 2, 2)
    assert_array_equal(backtest.lower[0], [[1, -1], [1, -1]])
    assert_array_equal(backtest.static_lower[0], [[2, 1], [2, 1]])
    assert_array_equal(backtest.index, np.arange(2, 8))


def test_scores_by_hand():
    # One step ahead, without the gap, 2, 4, 5, 6, 7 came and 3 was said: errors 1, 1, 2, 3, 4 -> sum of squares 31.
    # Live at 0.9: from -1 to 7, all inside. At 0.5: from 1 to 5, so 6 and 7 are missed by 1 and 2, at 2 / 0.5 each.
    backtest = backtest_of()
    wide, narrow = backtest.scores(), backtest.scores(level=0.5)
    assert wide["rmse"] == narrow["rmse"] == pytest.approx(math.sqrt(31 / 5))
    assert (wide["coverage"], wide["width"], wide["interval_score"]) == (1.0, 8.0, 8.0)
    assert narrow["coverage"] == pytest.approx(3 / 5)
    assert narrow["interval_score"] == pytest.approx(4 + 4 * 3 / 5)
    # Static at 0.9: from 1 to 5 as well, but a miss costs 2 / 0.1.
    static = backtest.scores(static=True)
    assert static["interval_score"] == pytest.approx(4 + 20 * 3 / 5)
    assert backtest.scores(step=2)["rmse"] == pytest.approx(math.sqrt((1 + 4 + 9 + 16) / 4))


def test_rolling_coverage_is_over_the_values_that_came():
    # Inside at 0.5: 2, 4, 5 are, 6 and 7 are not.
    assert_allclose(backtest_of().rolling_coverage(2, level=0.5), [1, 1, 0.5, 0])


def test_a_step_or_level_that_was_not_forecast_is_refused():
    for call in (backtest_of().scores, backtest_of().rolling_coverage):
        with pytest.raises(ValueError, match="step must lie between 1 and the horizon 2, got 3"):
            call(step=3)
        with pytest.raises(ValueError, match=r"level must be one of \[0.5, 0.9\], got 0.8"):
            call(level=0.8)
    with pytest.raises(ValueError, match="step must lie between 1 and the horizon 2, got 0"):
        backtest_of().to_frame(0)


def test_a_frame_has_the_time_stamps_that_each_step_is_about():
    series = pd.Series(VALUES, DAYS, name="load")
    backtest = backtest_of(series)
    frame = backtest.to_frame()
    assert list(frame.columns) == ["y", "prediction", "lower_0.5", "upper_0.5", "lower_0.9", "upper_0.9"]
    assert_array_equal(frame.index, DAYS[2:])
    assert_array_equal(backtest.index, DAYS[2:])
    assert_array_equal(frame["y"], series[DAYS[2:]])
    ahead = backtest.to_frame(2)
    assert_array_equal(ahead.index[:-1], DAYS[3:])
    assert ahead.index[-1] == pd.Timestamp("2024-03-05")
    assert_array_equal(ahead["y"][:-1], series[DAYS[3:]])
    assert repr(backtest) == "Backtest(6 forecasts of load, 2 steps ahead, coverage (0.5, 0.9))"


@pytest.mark.parametrize(
    "series",
    [VALUES, pd.Series(VALUES, DAYS), pl.DataFrame({"day": DAYS.to_numpy(), "load": VALUES})],
    ids=["array", "pandas", "polars"],
)
@pytest.mark.parametrize("first", [2, 7])
def test_a_frame_can_be_made_of_any_period_and_step(series, first):
    backtest = backtest_of(series, first=first)
    for step in (1, 2):
        frame = backtest.to_frame(step)
        assert len(frame) == len(backtest) == 8 - first
        begin = first + step - 1
        assert frame.index[0] == (begin if series is VALUES else DAYS[0] + begin * DAYS.freq)


def test_a_backtest_shows_how_far_it_is_when_asked_to(capsys):
    brief = {"past": 4, "network": LSTM(hidden=3, layers=1), "folds": 2, "schedule": Schedule(max_rounds=1)}
    values = np.sin(np.arange(150) / 3) + 0.1 * np.random.default_rng(0).normal(size=150)
    for verbose in (0, 1):
        MatchedForecaster(0.8, refit_every=10, verbose=verbose, **brief).fit(values[:120]).backtest(values)
        assert ("backtest: 100%" in capsys.readouterr().err) == bool(verbose)
