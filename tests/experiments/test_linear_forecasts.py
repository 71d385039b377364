"""Persistence and autoregression: right by hand, by a twin, and by numbers measured before."""

import numpy as np
import pytest
from coverwell.experiments.linear_forecasts import autoregression, calibrator_of, last_value, live_backtest
from coverwell.experiments.series_data import INTERPOLATED, SERIES, Problem, problem, readings_of
from sklearn.linear_model import LinearRegression


def posed(y, start):
    time = np.datetime64("2020-01-01", "s") + np.arange(len(y)) * np.timedelta64(3600, "s")
    return Problem("made up", "observed", time, np.asarray(y, dtype=float), None, start)


def noisy(n=600, seed=0):
    return np.random.default_rng(seed).normal(size=n).cumsum()


@pytest.fixture
def paper_like(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    return lambda data: problem(data, readings_of(data, (INTERPOLATED,))[0])


def test_the_last_value_is_the_last_that_was_observed():
    np.testing.assert_array_equal(last_value(posed([1, 2, np.nan, 4, 5], 3)), [np.nan, 1, 2, 2, 4])


def test_an_autoregression_finds_the_law_of_a_series_that_has_one():
    y = [7.0]
    for _ in range(30):
        y.append(0.5 * y[-1] + 1)
    forecast = autoregression(posed(y, 20), lags=1)
    assert np.isnan(forecast[0])
    np.testing.assert_allclose(forecast[1:], y[1:], rtol=1e-9)


def test_an_autoregression_is_least_squares_on_the_training_part():
    y, lags, start = noisy(), 5, 400
    rows = np.lib.stride_tricks.sliding_window_view(y, lags)[:-1]
    twin = LinearRegression().fit(rows[: start - lags], y[lags:start])
    np.testing.assert_allclose(autoregression(posed(y, start), lags)[lags:], twin.predict(rows), rtol=1e-8, atol=1e-8)


def test_an_autoregression_learns_nothing_from_the_test_period_nor_from_filled_targets():
    y = noisy()
    other = np.where(np.arange(600) < 400, y, 9.0)
    np.testing.assert_array_equal(autoregression(posed(y, 400), 5)[:401], autoregression(posed(other, 400), 5)[:401])
    gappy = y.copy()
    gappy[100:110] = np.nan
    filled = np.where(np.isnan(gappy), y[99], gappy)
    lags = np.lib.stride_tricks.sliding_window_view(filled, 5)[:-1]
    kept = [t for t in range(5, 400) if not 100 <= t < 110]
    twin = LinearRegression().fit(lags[np.array(kept) - 5], y[kept])
    np.testing.assert_allclose(autoregression(posed(gappy, 400), 5)[5:], twin.predict(lags), rtol=1e-8, atol=1e-8)


def test_static_bounds_keep_the_width_of_the_start_and_live_ones_follow_the_misses():
    y = noisy(3000)
    y[1000:] *= 3  # steps three times as large
    asked = posed(y, 1000)
    forecast = last_value(asked)
    calibrator = calibrator_of(asked, forecast, 0.9, rate=0.05)
    backtest = live_backtest(asked, forecast, calibrator)
    width = backtest.static_upper - backtest.static_lower
    np.testing.assert_allclose(width, 2 * calibrator.factor)
    assert calibrator.n_updates == 0  # the backtest leaves it as it was
    assert backtest.scores(static=True)["coverage"] < 0.6
    low, high = np.log([backtest.factor.min(), backtest.factor.max()])
    assert abs(backtest.scores()["coverage"] - 0.9) <= (high - low + 0.05) / (0.05 * 2000)


@pytest.mark.parametrize(
    ("data", "rmse"),
    list(zip(SERIES, (218.96, 111.23, 32.40, 1.393e8, 23.08, 0.739), strict=True)),
)
def test_persistence_errors_are_those_of_the_same_files_read_before(paper_like, data, rmse):
    asked = paper_like(data)
    error = (asked.y - last_value(asked))[asked.start :]
    assert np.sqrt(np.mean(error**2)) == pytest.approx(rmse, rel=1e-3)


@pytest.mark.parametrize(("data", "score"), [("nsw2013", 531), ("tas2016", 118), ("air quality", 3.55)])
def test_the_interval_scores_of_ar48_at_rate_005_are_those_measured_before(paper_like, data, score):
    asked = paper_like(data)
    forecast = autoregression(asked, 48)
    backtest = live_backtest(asked, forecast, calibrator_of(asked, forecast, 0.95, rate=0.05))
    assert backtest.scores()["interval_score"] == pytest.approx(score, rel=4e-3)
