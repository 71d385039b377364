"""The runs on series: the same hours in both readings, linear forecasts, and lines that hold what happened."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from coverwell import LSTM, MatchedForecaster, Schedule
from reproduction.data.series import SERIES, load_series
from reproduction.domains.series import (
    GAPPY,
    INTERPOLATED,
    LONELY,
    OBSERVED,
    Problem,
    SeriesStudy,
    calibrator_of,
    linear_forecast,
    live_backtest,
    problem,
    readings_of,
)
from reproduction.methods import CALENDAR, SERIES_METHODS

pytestmark = pytest.mark.usefixtures("data_folder")


def methods(*slugs):
    return tuple(method for method in SERIES_METHODS if method.slug in slugs)


def keys(study, done=()):
    return [(unit.method.slug, *unit.place, *unit.trials) for unit in study.units(done)]


# Problems.


@pytest.mark.parametrize("data", SERIES)
def test_both_readings_test_the_same_hours_after_the_first_30_percent(data):
    whole = load_series(data)
    first_of_test = whole.time[int(0.3 * len(whole.time))]
    for reading in readings_of(data):
        posed = problem(data, reading)
        assert posed.time[posed.start] == first_of_test
        assert not np.isnan(posed.y[0])
        assert np.isnan(posed.y).any() == (data in GAPPY and reading == OBSERVED)
        assert (posed.past_covariates is None) == (data in LONELY)
    n = len(posed.y)  # of the last reading, which agrees with the first wherever a target was observed
    observed = problem(data, OBSERVED).y
    came = ~np.isnan(observed[:n])
    np.testing.assert_array_equal(observed[:n][came], posed.y[came])
    assert np.isnan(observed[n:]).all()


def test_the_calendar_is_what_a_forecaster_makes_of_the_index():
    posed = problem("tas2016", OBSERVED)
    y, index = posed.y[:700], pd.DatetimeIndex(posed.time[:700])
    once = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
    asked = {"past": 4, "network": LSTM(hidden=2, layers=1), "folds": 2, "schedule": once, "random_state": 0}
    (method,) = methods("sigma-fit-calendar")
    by_index = MatchedForecaster(0.9, calendar=CALENDAR, device="cpu", **asked).fit(pd.Series(y, index=index))
    given = posed.covariates(method, 701)["covariates"]
    by_columns = MatchedForecaster(0.9, device="cpu", **asked).fit(y, covariates=given[:700])
    ahead = by_columns.predict(covariates=given[700:])
    np.testing.assert_allclose(by_index.predict(), ahead)


# Which runs there are.


def test_series_without_gaps_are_run_once_and_the_others_in_both_readings():
    found = keys(SeriesStudy(methods("hnn")))
    assert len(found) == len(set(found)) == 9
    assert {reading for _, data, reading, _ in found if data == "nsw2013"} == {"observed"}
    one_reading = keys(SeriesStudy(methods("hnn"), reading="interpolated"))
    assert {data: reading for _, data, reading, _ in one_reading} == {
        **dict.fromkeys(SERIES, "observed"),
        **dict.fromkeys(GAPPY, "interpolated"),
    }


def test_what_would_repeat_another_run_is_not_run():
    asked = methods("ar48", "hnn", "sigma-fit-covariates", "sigma-fit-covariates-refit")
    assert set(keys(SeriesStudy(asked, 2, data=("traffic",)))) == {
        ("ar48", "traffic", "observed", 0),  # nothing random in it
        *(("hnn", "traffic", "observed", trial) for trial in (0, 1)),
        *(("sigma-fit-covariates-refit", "traffic", "observed", trial) for trial in (0, 1)),
    }


# Linear forecasts.


def posed_by(y, start):
    time = np.datetime64("2020-01-01", "s") + np.arange(len(y)) * np.timedelta64(3600, "s")
    return Problem("made up", time, np.asarray(y, dtype=float), None, start)


def noisy(n=600, seed=0):
    return np.random.default_rng(seed).normal(size=n).cumsum()


def test_without_lags_the_forecast_is_the_last_value_that_was_observed():
    np.testing.assert_array_equal(linear_forecast(posed_by([1, 2, np.nan, 4, 5], 3), 0), [np.nan, 1, 2, 2, 4])


def test_an_autoregression_is_least_squares_on_observed_targets_of_the_training_part():
    y, lags, start = noisy(), 5, 400
    other = np.where(np.arange(600) < start, y, 9.0)
    both = [linear_forecast(posed_by(series, start), lags)[: start + 1] for series in (y, other)]
    np.testing.assert_array_equal(*both)
    gappy = y.copy()
    gappy[100:110] = np.nan
    filled = np.where(np.isnan(gappy), y[99], gappy)
    rows = np.lib.stride_tricks.sliding_window_view(filled, lags)[:-1]
    kept = [t for t in range(lags, start) if not 100 <= t < 110]
    twin = LinearRegression().fit(rows[np.array(kept) - lags], y[kept])
    found = linear_forecast(posed_by(gappy, start), lags)
    assert np.isnan(found[:lags]).all()
    np.testing.assert_allclose(found[lags:], twin.predict(rows), rtol=1e-8, atol=1e-8)


def test_static_bounds_keep_the_width_of_the_start_and_live_ones_follow_the_misses():
    y = noisy(3000)
    y[1000:] *= 3  # steps three times as large
    posed = posed_by(y, 1000)
    forecast = linear_forecast(posed, 0)
    calibrator = calibrator_of(posed, forecast, 0.9, rate=0.05)
    backtest = live_backtest(posed, forecast, calibrator)
    np.testing.assert_allclose(backtest.static_upper - backtest.static_lower, 2 * calibrator.factor)
    assert calibrator.n_updates == 0  # the backtest leaves it as it was
    assert backtest.scores(static=True)["coverage"] < 0.6
    low, high = np.log([backtest.factor.min(), backtest.factor.max()])
    assert abs(backtest.scores()["coverage"] - 0.9) <= (high - low + 0.05) / (0.05 * 2000)


@pytest.mark.parametrize(
    ("data", "observed", "interpolated"),
    [
        *[("nsw2013", 218.96, None), ("tas2016", 32.40, None), ("traffic", 1.393e8, None)],
        *[("bike sharing", 111.56, 111.23), ("beijing pm2.5", 23.66, 23.08), ("air quality", 0.831, 0.739)],
    ],
)
def test_persistence_errors_are_those_of_the_same_files_read_before(data, observed, interpolated):
    errors = []
    for reading in readings_of(data):
        posed = problem(data, reading)
        errors.append(np.sqrt(np.nanmean((posed.y - linear_forecast(posed, 0))[posed.start :] ** 2)))
    assert errors == pytest.approx([rmse for rmse in (observed, interpolated) if rmse], rel=1e-3)


@pytest.mark.parametrize(("data", "score"), [("nsw2013", 531), ("tas2016", 118), ("air quality", 3.55)])
def test_the_interval_scores_of_ar48_at_rate_005_are_those_measured_before(data, score):
    posed = problem(data, readings_of(data, (INTERPOLATED,))[0])
    forecast = linear_forecast(posed, 48)
    backtest = live_backtest(posed, forecast, calibrator_of(posed, forecast, 0.95, rate=0.05))
    assert backtest.scores()["interval_score"] == pytest.approx(score, rel=4e-3)


# Lines.


@pytest.fixture(scope="module")
def posed(data_folder):
    return problem("air quality", "observed")


def line_of(slug):
    study = SeriesStudy(methods(slug), device="cpu", quick=True, data=("air quality",), reading="observed")
    (unit,) = study.units()
    (line,) = unit.lines()
    return line


@pytest.fixture(scope="module")
def line(posed):
    return line_of("sigma-fit-covariates-refit")


def test_a_line_is_json_and_counts_only_targets_that_were_observed(line, posed):
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert {*SeriesStudy.key(), *SeriesStudy.FIELDS.split()} < set(line)
    assert line["n_train"] == posed.start == 2807
    assert line["n_test"] == int((~np.isnan(posed.y[posed.start :])).sum()) == 5340
    assert line["n_refits"] == 1


def test_a_figure_gets_the_middle_of_the_test_period_and_the_rolling_coverage(line, posed):
    excerpt, path = line["excerpt"], line["rolling"]
    first = posed.start + (len(posed.y) - posed.start) // 2
    assert (excerpt["start"], excerpt["step_seconds"]) == (str(posed.time[first]), 3600)
    np.testing.assert_allclose(np.array(excerpt["y"], dtype=float), posed.y[first : first + 336], rtol=1e-5)
    assert (np.array(excerpt["lower"]) < np.array(excerpt["upper"])).all()
    came = np.flatnonzero(~np.isnan(posed.y[posed.start :]))
    assert path["start"] == str(posed.time[posed.start])
    assert (path["steps"][0], path["steps"][-1]) == (came[499], came[-1])
    for kind in ("live", "static"):
        assert len(path[kind]) == len(path["steps"]) == 200
        assert min(path[kind]) >= line[kind]["worst_rolling_coverage"]


def test_linear_lines_hold_scores_at_a_fixed_rate_too():
    line = line_of("ar48")
    assert line["fixed_rate"]["rate"] == line["rate"] == 0.05  # so that both are the same here
    assert {name: line["fixed_rate"][name] for name in line["live"]} == line["live"]
    assert line["rmse"] == pytest.approx(0.6999, rel=1e-3)
    assert line["live"]["worst_rolling_coverage"] >= 0.9
