"""A period in one call is the loop of forecasts and updates, the future is not seen, a failure changes nothing."""

import copy
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from coverwell import LSTM, MLP, IQRFit, MatchedRegressor, Schedule
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting import Forecaster, LiveCalibrator, MatchedForecaster
from coverwell.forecasting.forecaster import DEFAULT_RATE, REFIT, forecast, network_for, rate_of, refitted
from coverwell.forecasting.history import read_history
from coverwell.forecasting.live import RATES, best_rate
from coverwell.forecasting.windows import Windows

N_FIT, N = 240, 300
RNG = np.random.default_rng(0)
STEPS = np.arange(N + 10)
NOISE = RNG.normal(size=N + 10)
WAVE = 50 + 5 * np.sin(STEPS / 4) + 0.5 * NOISE
Y = WAVE[:N]
HOURS = pd.date_range("2024-03-30", periods=N + 10, freq="h", tz="Europe/Berlin", name="when")  # clocks change inside
LOAD = pd.Series(Y, HOURS[:N], name="load")
COVARIATES = np.stack([np.cos(STEPS / 4), RNG.normal(size=N + 10)], axis=1)
GAPS = np.array([20, 21, 22, 90, 200, 238, 239, 245, 246, 262, 280])
WITH_GAPS = np.where(np.isin(np.arange(N), GAPS), np.nan, Y)
SMALL = LSTM(hidden=4, layers=1)
ONE_ROUND, THREE_ROUNDS = Schedule(max_rounds=1), Schedule(max_rounds=3, learning_rate=0.01)
SIX_STEPS = Windows(n_past=6, horizon=2, differences=True, flags=False, n_past_covariates=1, n_known=0)


def unfitted(coverage=0.8, **changes):
    brief = {"past": 5, "network": SMALL, "folds": 2, "schedule": ONE_ROUND, "random_state": 0}
    return MatchedForecaster(coverage, **brief | changes)


def state_of(forecaster):
    """All that a verb may change: the history, the calibrator, the networks and the count to the next refit."""
    history = forecaster.history_
    return (
        *(getattr(history, name).tobytes() for name in ("values", "filled", "past", "ahead")),
        str(forecaster.calibrator_.state_dict()),
        id(forecaster.regressor_),
        forecaster.n_since_fit_,
        [array.tobytes() for array in copy.deepcopy(forecaster).predict_interval()],
    )


def as_array(values):
    if isinstance(values, pl.DataFrame):
        values = values[values.columns[-1]]
    return np.asarray(values)


def loop(forecaster, values, *, covariates=None, past_covariates=None):
    """What predicting and updating step by step gives: predictions, and bounds, live and static (time, step, level)."""
    forecaster = copy.deepcopy(forecaster)
    said = []
    for t, value in enumerate(values, len(forecaster.history_)):
        ahead = {"covariates": covariates[t : t + forecaster.horizon]} if covariates is not None else {}
        past = {"past_covariates": past_covariates[t]} if past_covariates is not None else {}
        prediction = as_array(forecaster.predict(**ahead))
        levels = forecaster.regressor_.predictor_.levels
        live, static = (forecaster.predict_interval(levels, static=static) for static in (False, True))
        said.append((prediction, *live, *static))
        forecaster.update(value, **past)
    return [np.stack(part) for part in zip(*said, strict=True)], forecaster


def assert_the_same(backtest, said, unit=0.5):
    names = ("prediction", "lower", "upper", "static_lower", "static_upper")
    for ours, theirs in zip((getattr(backtest, name) for name in names), said, strict=True):
        assert ours.shape == theirs.shape
        assert_allclose(ours, theirs, rtol=0, atol=1e-4 * unit)  # float32 rounding of values around 50


fitted = pytest.fixture(scope="module")
plain = fitted(lambda: unfitted().fit(Y[:N_FIT]))
three_steps = fitted(lambda: unfitted([0.9, 0.5], horizon=3).fit(Y[:N_FIT]))
stamped = fitted(lambda: unfitted([0.9, 0.5], horizon=2, calendar=("hour",)).fit(LOAD[:N_FIT]))
gapped = fitted(lambda: unfitted([0.5, 0.9], horizon=2, missing="fill").fit(WITH_GAPS[:N_FIT]))
with_past = fitted(lambda: unfitted(missing="fill").fit(Y[:N_FIT], past_covariates=COVARIATES[:N_FIT]))
with_known = fitted(lambda: unfitted().fit(Y[:N_FIT], COVARIATES[:N_FIT]))
refitting = fitted(lambda: unfitted(refit_every=20).fit(Y[:N_FIT]))
ar = fitted(lambda: unfitted([0.8, 0.95], schedule=THREE_ROUNDS, horizon=2, rate=0.05).fit(autoregression(600)))


def test_a_backtest_is_the_loop_of_forecasts_and_updates(plain):
    said, after = loop(plain, Y[N_FIT:])
    backtest = plain.backtest(Y)
    assert_the_same(backtest, said)
    assert len(backtest) == N - N_FIT
    assert_array_equal(backtest.y[:, 0], Y[N_FIT:])
    assert after.calibrator_.n_updates == N - N_FIT
    assert_allclose(backtest.factor[-1, 0, 0], plain.backtest(Y[:-1]).factor[-1, 0, 0], rtol=0.2)


NOT_ALL = np.where(np.isin(np.arange(N), [N_FIT + 7, *range(N_FIT + 20, N_FIT + 23)])[:, None], np.nan, COVARIATES[:N])


@pytest.mark.parametrize(
    ("kind", "series", "covariates"),
    [
        ("three_steps", Y, {}),
        ("gapped", WITH_GAPS, {}),
        ("stamped", LOAD, {}),
        ("with_past", Y, {"past_covariates": NOT_ALL}),
        ("with_known", Y, {"covariates": COVARIATES[:N]}),
    ],
    ids=["steps and levels", "gaps", "a calendar", "past covariates with gaps", "covariates known ahead"],
)
def test_a_backtest_is_the_loop_for_every_kind_of_series(kind, series, covariates, request):
    forecaster = request.getfixturevalue(kind)
    said, after = loop(forecaster, np.asarray(series)[N_FIT:], **covariates)
    backtest = forecaster.backtest(series, **covariates)
    assert_the_same(backtest, said)
    assert_array_equal(np.isnan(backtest.y[:, 0]), np.isnan(np.asarray(series)[N_FIT:]))
    n_came = (~np.isnan(backtest.y)).sum(axis=0)
    assert_array_equal(after.calibrator_.n_scored, n_came)  # a missing value is not compared with its forecast
    if kind == "stamped":
        assert_array_equal(backtest.index, HOURS[N_FIT:N])


def test_a_backtest_is_the_loop_with_refits(refitting):
    said, after = loop(refitting, Y[N_FIT:])
    backtest = refitting.backtest(Y)
    assert_the_same(backtest, said)
    assert after.n_since_fit_ == 0  # 60 updates: the third refit has just been made
    static = clone(refitting).set_params(refit_every=None).fit(Y[:N_FIT]).backtest(Y)
    assert_allclose(static.prediction[:20], backtest.prediction[:20], atol=1e-4)
    assert (static.prediction[20:] != backtest.prediction[20:]).all()


@pytest.mark.parametrize(("kind", "n_seen"), [("refitting", 13), ("three_steps", 10)])
def test_a_backtest_goes_on_to_the_next_refit_and_from_forecasts_that_wait_for_their_truth(kind, n_seen, request):
    ahead = copy.deepcopy(request.getfixturevalue(kind))
    for value in Y[N_FIT : N_FIT + n_seen]:
        ahead.update(value)
    ahead.predict_interval()
    said, _ = loop(ahead, Y[N_FIT + n_seen :])
    assert_the_same(ahead.backtest(Y), said)


@pytest.mark.filterwarnings("ignore::coverwell.errors.ExtrapolationWarning")
def test_a_backtest_of_a_later_period_counts_only_its_own_forecasts(three_steps):
    ahead = copy.deepcopy(three_steps)
    for value in (*Y[N_FIT : N_FIT + 8], 1e6):  # an outlier, and forecasts wait for what would have come after it
        ahead.update(value)
    ahead.predict_interval()
    begin = N_FIT + 30
    backtest = ahead.backtest(Y, start=begin)
    factor = ahead.calibrator_.factor
    # Step 2 meets its first truth with the second of the period, and step 3 with the third.
    assert_array_equal(backtest.factor[0], factor)
    assert_array_equal(backtest.factor[1, 1:], factor[1:])
    assert_array_equal(backtest.factor[2, 2], factor[2])
    assert (backtest.factor[3] != factor).any(axis=1).all()


def test_a_backtest_without_live_calibration_is_the_loop_and_nested():
    static = unfitted([0.5, 0.52, 0.9], horizon=2, live=False).fit(Y[:N_FIT])
    said, after = loop(static, Y[N_FIT:])
    backtest = static.backtest(Y)
    assert_the_same(backtest, said)
    assert (backtest.factor == 1).all()
    assert after.calibrator_.n_updates == 0
    static.regressor_.predictor_.correction.factor[:, 0] *= (
        3  # ranks of a few rows may leave an inner level wider than the next
    )
    lower, upper = static.predict_interval()
    assert (np.diff(lower) <= 0).all()
    assert (np.diff(upper) >= 0).all()


def test_a_backtest_begins_after_what_was_seen_or_at_the_given_start(stamped):
    series, whole = LOAD, stamped.backtest(LOAD)
    part = stamped.backtest(series[100:])  # step 0 is another one here
    assert_array_equal(part.index, whole.index)
    assert_allclose(part.prediction, whole.prediction, atol=1e-4)
    later = stamped.backtest(series, start=HOURS[260])
    assert later.index[0] == HOURS[260]
    assert_allclose(later.prediction, whole.prediction[260 - N_FIT :], atol=1e-4)
    for name in (str(HOURS[262].tz_localize(None)), HOURS[262].to_pydatetime()):
        assert stamped.backtest(series, start=name).index[0] == HOURS[262]
    assert len(stamped.backtest(series[290:], start=HOURS[296])) == 4  # a period within one day


def test_a_backtest_needs_covariates_and_steps_as_in_the_fit(stamped):
    plan = pd.DataFrame(COVARIATES[:N], columns=["promo", "price"])
    forecaster = unfitted().fit(Y[:N_FIT], plan[:N_FIT])
    for other, came in ((plan.set_axis(["price", "promo"], axis=1), r"\('price', 'promo'\)"), (None, r"\(\)")):
        with pytest.raises(ValueError, match=rf"covariates \('promo', 'price'\) .* got {came}"):
            forecaster.backtest(Y, covariates=other)
    for series, step in ((LOAD.set_axis(pd.date_range("2024", periods=N)), "1 day"), (Y, "1")):
        with pytest.raises(ValueError, match=f"must have the steps of the fit, 1 hour, got {step}"):
            stamped.backtest(series)


def test_covariates_that_end_early_end_the_backtest():
    forecaster = unfitted(horizon=3).fit(Y[:N_FIT], COVARIATES[: N_FIT + 3])
    assert len(forecaster.backtest(Y, covariates=COVARIATES[: N + 2])) == N - N_FIT
    assert len(forecaster.backtest(Y, covariates=COVARIATES[:N])) == N - N_FIT - 2
    with pytest.raises(ValueError, match="known for 3 steps from 299 on, got rows up to 299; give more rows"):
        forecaster.backtest(Y, covariates=COVARIATES[:N], start=N - 1)


@pytest.mark.filterwarnings("ignore::coverwell.errors.ExtrapolationWarning")
@pytest.mark.filterwarnings("ignore::coverwell.errors.FarOffTargetWarning")  # the jump, in a refit after it
@pytest.mark.parametrize("kind", ["plain", "gapped", "refitting"])
def test_forecasts_do_not_depend_on_later_values(kind, request):
    forecaster = request.getfixturevalue(kind)
    series = WITH_GAPS if kind == "gapped" else Y
    changed = series.copy()
    changed[270:] = 3 * changed[270:] + 7
    one, other = forecaster.backtest(series), forecaster.backtest(changed)
    made_before = 270 - N_FIT + 1  # the forecast of step 270 is the last that was made before it came
    for name in ("prediction", "lower", "upper", "factor"):
        assert_array_equal(getattr(one, name)[:made_before], getattr(other, name)[:made_before])
        assert (getattr(one, name)[made_before:] != getattr(other, name)[made_before:]).any()


def test_covariates_count_for_the_step_they_are_about_or_from_the_next_one_on(with_known, with_past):
    changed = COVARIATES[:N].copy()
    changed[270] += 1
    ahead = [with_known.backtest(Y, covariates=rows).prediction[:, 0] for rows in (COVARIATES[:N], changed)]
    assert_array_equal(np.flatnonzero(ahead[0] != ahead[1]), [270 - N_FIT])
    past = [with_past.backtest(Y, past_covariates=rows).prediction[:, 0] for rows in (COVARIATES[:N], changed)]
    assert_array_equal(np.flatnonzero(past[0] != past[1]), 271 - N_FIT + np.arange(5))  # while it is in the window


def test_a_pandas_series_gives_pandas_with_the_next_time_stamps(stamped):
    prediction, frame = stamped.predict(), stamped.predict_interval().to_frame()
    assert prediction.name == "load"
    assert list(frame.columns[0]) == ["load", 0.9, "lower"]
    for index in (prediction.index, frame.index):
        pd.testing.assert_index_equal(index, HOURS[N_FIT : N_FIT + 2])


def test_a_polars_frame_gives_polars_with_the_next_time_stamps():
    days = np.arange("2020-01-01", N_FIT + 1, dtype="datetime64[D]")
    forecaster = unfitted().fit(pl.DataFrame({"load": Y[:N_FIT], "when": days[:-1]}))
    prediction, interval = forecaster.predict(), forecaster.predict_interval()
    assert prediction.columns == ["when", "load"]
    assert prediction["when"].to_numpy() == interval.index.to_numpy() == days[-1:]
    assert len(interval.to_frame()) == 1


def test_months_give_months():
    months = pd.period_range("2000-01", periods=N_FIT, freq="M")
    forecaster = unfitted(calendar=("month",)).fit(pd.Series(Y[:N_FIT], months))
    assert forecaster.predict().index[0] == pd.Period("2020-01", "M")
    forecaster.update(50.0, at="2020-01")
    assert forecaster.predict().index[0] == pd.Period("2020-02", "M")


def test_levels_come_in_the_order_asked_for_and_nested_and_a_single_one_has_no_axis(three_steps, plain):
    assert plain.predict_interval().coverage == 0.8
    assert plain.predict_interval().lower.shape == (1,)
    both, one = three_steps.predict_interval(), three_steps.predict_interval(0.5)
    assert_array_equal(both.index, [240, 241, 242])
    assert (np.diff([both.lower[:, 0], three_steps.predict(), both.upper[:, 0]], axis=0) > 0).all()
    assert both.coverage == (0.9, 0.5)
    assert both.lower.shape == (3, 2)
    assert (both.width[:, 0] > both.width[:, 1]).all()
    assert one.coverage == 0.5
    assert_array_equal(one.lower, both.lower[:, 1])
    assert_array_equal(three_steps.predict_interval([0.5, 0.9]).upper, both.upper[:, ::-1])
    assert three_steps.predict_interval([0.5]).lower.shape == (3, 1)
    with pytest.raises(ValueError, match=r"\[0.8\] was not fitted; the fitted levels are \[0.5, 0.9\]"):
        three_steps.predict_interval(0.8)


def test_asking_twice_gives_the_same_and_changes_nothing(three_steps):
    before = state_of(three_steps)
    first, second = three_steps.predict_interval(), three_steps.predict_interval()
    assert_array_equal(first.lower, second.lower)
    first.lower[:] = three_steps.predict()[:] = 1e9  # what the user does with it is his own affair
    assert state_of(three_steps)[-1] == before[-1]


def test_values_are_in_the_users_units():
    series = Y[:N_FIT]
    one, other = unfitted(rate=0.05).fit(series), unfitted(rate=0.05).fit(1e6 * series - 3e7)
    assert_allclose(other.predict(), 1e6 * one.predict() - 3e7, rtol=1e-3)
    assert_allclose(other.predict_interval().width, 1e6 * one.predict_interval().width, rtol=1e-2)


def test_an_update_may_say_when_it_was(stamped):
    at = HOURS[N_FIT]
    named = [at, at.isoformat(), at.to_pydatetime(), at.tz_convert("UTC"), None]
    updated = [copy.deepcopy(stamped).update(51.0, at=name) for name in named]
    for one in updated:
        assert_array_equal(one.predict(), updated[0].predict())
        assert one.predict().index[0] == HOURS[N_FIT + 1]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (N_FIT - 1, "must come in order: .* has been seen already; the next one is 2024-04-09 01:00:00"),
        (N_FIT + 3, "next update must be 2024-04-09 01:00:00.*; give the 3 before it first, or .*missing='fill'"),
        (N_FIT + 0.5, "lies between two of them"),
    ],
)
def test_an_update_out_of_order_is_refused_and_changes_nothing(stamped, place, said):
    before = state_of(stamped)
    with pytest.raises(ValueError, match=said):
        stamped.update(51.0, at=HOURS[0] + place * pd.Timedelta("1h"))
    assert state_of(stamped) == before


def test_counts_are_time_stamps_too(plain):
    updated = copy.deepcopy(plain).update(51.0, at=N_FIT)
    with pytest.raises(ValueError, match="240 has been seen already; the next one is 241"):
        updated.update(52.0, at=N_FIT)
    with pytest.raises(TypeError, match="whole numbers"):
        updated.update(52.0, at="2024-01-01")


def test_a_later_time_leaves_a_gap(gapped, with_past):
    skipped = copy.deepcopy(gapped).update(50.0, at=N_FIT + 3)
    one_by_one = copy.deepcopy(gapped)
    for value in (np.nan, np.nan, np.nan, 50.0):
        one_by_one.update(value)
    assert state_of(skipped)[:5] == state_of(one_by_one)[:5]
    assert_array_equal(skipped.predict(), one_by_one.predict())
    assert_array_equal(skipped.history_.values[N_FIT:], [np.nan] * 3 + [50.0])
    assert skipped.calibrator_.n_scored[0] == 1
    skipped = copy.deepcopy(with_past).update(50.0, at=N_FIT + 2, past_covariates=[1.0, 2.0])
    assert_array_equal(skipped.history_.past[N_FIT:], [COVARIATES[N_FIT - 1]] * 2 + [[1.0, 2.0]])


def test_a_value_that_is_none_is_refused_and_changes_nothing(plain):
    before = state_of(plain)
    for y, said in ((np.nan, "missing='fill'"), (np.inf, "finite"), ("51", "numbers"), ([51.0, 52.0], "one finite")):
        with pytest.raises((ValueError, TypeError), match=said):
            plain.update(y)
    assert state_of(plain) == before


def test_a_forecast_that_was_given_is_the_one_that_counts(plain):
    given, quiet = copy.deepcopy(plain), copy.deepcopy(plain)
    upper = float(given.predict_interval().upper[0])
    for forecaster in (given, quiet):  # asked for or not, it is the same forecast
        inside, outside = copy.deepcopy(forecaster), copy.deepcopy(forecaster)
        assert inside.update(upper - 1e-6).calibrator_.missed == 0
        assert outside.update(upper + 1e-6).calibrator_.missed == 1


def test_a_method_needs_a_fit():
    calls = {"predict": (), "predict_interval": (), "update": (1.0,), "refit": (), "backtest": (Y,)}
    for name, arguments in calls.items():
        with pytest.raises(NotFittedError):
            getattr(unfitted(), name)(*arguments)


def test_a_change_of_parameters_waits_for_the_next_fit(plain):
    changed = copy.deepcopy(plain).set_params(past=7, horizon=2)
    assert_array_equal(changed.predict(), plain.predict())
    assert_array_equal(changed.backtest(Y).lower, plain.backtest(Y).lower)


def test_a_forecast_needs_the_covariates_of_its_steps(with_known):
    before = with_known.calibrator_.state_dict()
    for verb in (with_known.predict, with_known.predict_interval, lambda: with_known.update(50.0)):
        with pytest.raises(
            ValueError, match=r"known for the next 1 steps, 1 rows are missing from 240 on; .*covariates="
        ):
            verb()
    assert len(with_known.history_.ahead) == len(with_known.history_) == N_FIT
    assert with_known.calibrator_.state_dict() == before


def test_the_same_covariates_given_twice_are_about_the_same_step(with_known):
    forecaster = copy.deepcopy(with_known)
    row = COVARIATES[N_FIT : N_FIT + 1]
    prediction = forecaster.predict(row)
    assert_array_equal(forecaster.predict(row), prediction)
    forecaster.predict_interval(covariates=row)
    assert len(forecaster.history_.ahead) == N_FIT + 1
    forecaster.update(Y[N_FIT], covariates=row)
    assert len(forecaster.history_.ahead) == N_FIT + 1
    other = forecaster.predict(COVARIATES[N_FIT + 1 : N_FIT + 2])
    assert_allclose(other, with_known.backtest(Y, covariates=COVARIATES[:N]).prediction[1], atol=1e-4)


def test_covariates_that_are_known_better_change_the_forecast(with_known):
    forecaster = copy.deepcopy(with_known)
    first = forecaster.predict(COVARIATES[N_FIT : N_FIT + 1])
    better = forecaster.predict(COVARIATES[N_FIT : N_FIT + 1] - 0.5)
    assert first != better
    assert_array_equal(forecaster.predict(), better)


def test_a_row_that_comes_with_the_value_leaves_the_forecast_as_it_was_given(with_known):
    forecaster = copy.deepcopy(with_known)
    upper = float(forecaster.predict_interval(covariates=COVARIATES[N_FIT : N_FIT + 1]).upper[0])
    forecaster.update(upper + 1e-6, covariates=COVARIATES[N_FIT : N_FIT + 1] + 50)
    assert forecaster.calibrator_.missed == 1
    assert_array_equal(forecaster.history_.ahead[N_FIT], COVARIATES[N_FIT] + 50)


def test_an_update_needs_the_covariates_of_its_own_step_even_without_live_calibration():
    forecaster = unfitted(live=False, refit_every=2).fit(Y[:N_FIT], COVARIATES[:N_FIT, 0])
    with pytest.raises(ValueError, match="1 rows are missing from 240 on"):
        forecaster.update(50.0)
    forecaster.update(50.0, covariates=0.5).update(51.0, covariates=0.6)  # with a refit
    assert forecaster.n_since_fit_ == 0


class Moody(nn.Linear):
    """A network that the test can make fail when it is built; torch has none."""

    error = None

    def __init__(self, n_features, n_outputs):
        if Moody.error is not None:
            raise Moody.error
        super().__init__(n_features, n_outputs)


@pytest.fixture
def moody():
    yield unfitted(network=Moody, refit_every=3).fit(Y[:N_FIT])
    Moody.error = None


def test_an_interrupted_fit_leaves_the_forecaster_as_it_was(moody):
    before = state_of(moody)
    Moody.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        moody.fit(Y[:200])
    assert state_of(moody) == before
    never_fitted = clone(moody)
    with pytest.raises(KeyboardInterrupt):
        never_fitted.fit(Y[:N_FIT])
    with pytest.raises(NotFittedError):
        never_fitted.predict()


def test_a_failed_refit_leaves_the_forecaster_as_it_was(moody):
    moody.update(50.0).update(51.0)
    before = state_of(moody)
    Moody.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        moody.refit()
    with pytest.raises(KeyboardInterrupt):
        moody.update(52.0)  # a refit is due
    with pytest.raises(KeyboardInterrupt):
        moody.backtest(Y)
    assert state_of(moody) == before
    Moody.error = None
    assert moody.update(52.0).n_since_fit_ == 0


@pytest.mark.parametrize("kind", ["plain", "three_steps", "gapped", "refitting"])
def test_a_backtest_leaves_the_forecaster_as_it_was(kind, request):
    forecaster = copy.deepcopy(request.getfixturevalue(kind))
    forecaster.update(50.0).update(52.0).predict_interval()
    before = state_of(forecaster)
    forecaster.backtest(WITH_GAPS if kind == "gapped" else Y)
    forecaster.backtest(WITH_GAPS if kind == "gapped" else Y, start=260)
    assert state_of(forecaster) == before


def test_a_refit_goes_on_from_the_networks_and_keeps_the_live_factor(plain):
    forecaster = copy.deepcopy(plain)
    for value in Y[N_FIT:]:
        forecaster.update(value)
    state, before = forecaster.calibrator_.state_dict(), forecaster.regressor_
    assert forecaster.refit() is forecaster
    assert forecaster.calibrator_.state_dict() == state
    assert forecaster.regressor_ is not before
    assert len(before.out_of_fold_.prediction) == N_FIT - 5  # the former one is as it was
    assert len(forecaster.regressor_.out_of_fold_.prediction) == N - 5
    scalings = [regressor.predictor_.fitted_teams[0].targets for regressor in (before, forecaster.regressor_)]
    assert_array_equal(scalings[0].spread, scalings[1].spread)
    assert (before.schedule.max_rounds, forecaster.regressor_.schedule.max_rounds) == (1, REFIT["max_rounds"])


def test_refits_follow_a_change_that_the_first_networks_never_saw():
    rng = np.random.default_rng(1)
    series = np.empty(700)
    series[:2] = 0.0
    for t in range(2, 700):  # the sign with which the last change goes into the next one turns
        series[t] = series[t - 1] + (0.9 if t < 300 else -0.9) * (series[t - 1] - series[t - 2]) + 0.1 * rng.normal()
    first = unfitted(schedule=THREE_ROUNDS, rate=0.1).fit(series[:300])
    stays, follows = first.backtest(series), first.set_params(refit_every=50).backtest(series)
    assert_allclose(stays.prediction[:50], follows.prediction[:50], atol=1e-4)
    errors = [np.sqrt(np.mean((run.y - run.prediction)[250:] ** 2)) for run in (stays, follows)]
    assert errors[1] < 0.8 * errors[0]


def test_automatic_repeats_do_not_change_when_a_forecaster_is_trained_on():
    alone = {"calibration": "cross", "companions": ()}
    regressor = MatchedRegressor(
        0.8, network=MLP(hidden=4, layers=2, bins=0), folds=2, schedule=ONE_ROUND, random_state=0, **alone
    )
    long = np.tile(Y, 6)
    forecaster = Forecaster(regressor, past=4, rate=0.1).fit(long[:200])
    assert forecaster.regressor_.predictor_.fitted_teams[0].n_members == 10
    longer = copy.deepcopy(forecaster).fit(long[:600])  # as after 400 updates
    assert longer.regressor_.predictor_.fitted_teams[0].n_members == 4
    forecaster.history_ = longer.history_
    assert forecaster.refit().regressor_.predictor_.fitted_teams[0].n_members == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "calibration must be 'cross' or None for a series, got 'local': rows drawn at random would overlap"),
        ({"calibration": "cross"}, r"companions must not hold 'forest' for a series: .* give companions=\(\)"),
    ],
)
def test_what_leaves_out_rows_at_random_is_refused_for_a_series(changes, message):
    with pytest.raises(ValueError, match=message):
        Forecaster(MatchedRegressor(0.8, **changes), past=4).fit(Y[:200])


def parts(forecaster):
    return forecaster.regressor_, forecaster.windows_, forecaster.time_folds_, forecaster.history_


def test_every_row_is_left_out_by_one_member_and_blocks_lie_far_from_each_other(plain):
    regressor, windows, folds, history = parts(plain)
    assert regressor.folds == 2  # as it was asked for
    assert not np.isnan(regressor.out_of_fold_.prediction).any()
    assert (folds.n_folds, folds.first, folds.end, folds.embargo) == (2, 4, N_FIT, 6)
    (train, out), _ = folds.split(windows.origins(history))
    assert_array_equal(np.diff(out), np.ones(len(out) - 1))
    assert train.min() - out.max() == 7


def test_forecasts_are_the_last_value_and_the_learned_change(plain):
    regressor, windows, _, history = parts(plain)
    origins = np.array([50, 51])
    rows = windows.rows(history, origins)
    mean, half_width, _ = forecast(regressor, windows, history, origins)
    assert_allclose(mean, regressor.predict(rows) + Y[origins][:, None], rtol=1e-12)
    assert_allclose(half_width[:, :, 1, 0], regressor.predict_interval(rows).upper - regressor.predict(rows), rtol=1e-9)


def test_the_rate_is_the_best_one_on_out_of_fold_forecasts():
    # Noise that comes in waves: an interval that follows fast is worth more here than one that hardly moves.
    series = 10 + np.where(np.arange(900) // 30 % 2 == 0, 0.05, 2.0) * np.random.default_rng(1).normal(size=900)
    series[400] = np.nan
    forecaster = unfitted(horizon=3, missing="fill", rate="auto").fit(series)
    regressor, windows, _, history = parts(forecaster)
    left_out, origins = regressor.out_of_fold_, windows.origins(history)
    below, above = left_out.prediction - left_out.lower[..., 0], left_out.upper[..., 0] - left_out.prediction
    truths = series[origins + 1]
    (gap,) = np.flatnonzero(np.diff(origins) > 1)
    truths[gap + 1 : gap + 3] = np.nan  # else they would be taken for steps 2 and 3 of the rows before the gap
    trials = [LiveCalibrator((0.8,), rate=rate, horizon=3) for rate in RATES]
    mean = left_out.prediction + history.filled[origins][:, None]
    assert forecaster.rate_ == best_rate(trials, mean, np.stack([below, above], -1)[..., None], truths)
    assert rate_of(HeteroscedasticRegressor(), windows, history) == DEFAULT_RATE


def test_far_from_what_was_learned_forecasts_do_not_depend_on_the_level(plain):
    far, farther = (Y[N_FIT - 6 : N_FIT + 10] + shift for shift in (1000.0, 1e5))
    changes = []
    for values in (far, farther):
        history = read_history(np.append(Y[:N_FIT], values), missing="error")
        origins = np.arange(N_FIT + 5, N_FIT + 14)  # their windows lie whole in the new values
        mean, half_width, _ = forecast(plain.regressor_, plain.windows_, history, origins)
        changes.append((mean - history.values[origins][:, None], half_width))
    for one, other in zip(*changes, strict=True):
        assert_allclose(one, other, atol=1e-6)


def test_without_differences_the_network_sees_levels_as_they_are():
    levels = unfitted(differences=False).fit(Y[:N_FIT])
    far = read_history(np.append(Y[:N_FIT], np.full(10, 1000.0)), missing="error")
    mean, _, n_far = forecast(levels.regressor_, levels.windows_, far, np.array([N_FIT - 1, N_FIT + 4]))
    assert levels.regressor_.predictor_.inputs.high.isinf().all()
    assert mean[0, 0] != mean[1, 0]
    assert_array_equal(n_far, 0)


def test_what_lies_far_outside_is_named_once_and_counted_from_then_on():
    forecaster = unfitted().fit(Y[:N_FIT], past_covariates=COVARIATES[:N_FIT])
    assert list(forecaster.n_outside_.values()) == [0, 0, 0]
    series, past = np.append(Y[:N_FIT], np.full(8, 1e4)), COVARIATES[: N_FIT + 8].copy()
    past[N_FIT + 4 :, 1] = -1e6
    with pytest.warns(ExtrapolationWarning) as caught:
        backtest = forecaster.backtest(series, past_covariates=past)
    with warnings.catch_warnings(record=True, action="always") as caught_live:
        for step in range(N_FIT, N_FIT + 8):
            forecaster.update(series[step], past_covariates=past[step])
    said, said_live = ([str(warning.message) for warning in each] for each in (caught, caught_live))
    assert len(said) == 1
    assert "(7 of 8 forecasts)" in said[0]
    assert len(said_live) == 2  # the series, and later the covariate
    assert list(forecaster.n_outside_.values()) == list(backtest.n_outside.values()) == [7, 0, 3]
    assert "far outside in 7" in repr(backtest)


@pytest.mark.parametrize("network", [MLP(hidden=8, layers=2, bins=0), nn.Linear], ids=["MLP", "a user's own"])
def test_any_network_can_learn_the_flat_rows(network):
    forecaster = unfitted(network=network, horizon=2, refit_every=30).fit(Y[:N_FIT], COVARIATES[: N_FIT + 2])
    assert forecaster.regressor_.n_features_in_ == 5 * 2 + 2 * 2
    said, _ = loop(forecaster, Y[N_FIT:], covariates=COVARIATES)
    assert_the_same(forecaster.backtest(Y, covariates=COVARIATES[: N + 2]), said)


class Watched(HeteroscedasticRegressor):
    """Keeps the groups that it was fitted with."""

    def fit(self, X, y, groups=None):
        super().fit(X, y, groups=groups)
        self.groups_ = groups
        return self


def test_a_baseline_holds_out_blocks_of_time_and_is_calibrated_live():
    baseline = Watched([0.9, 0.5], network=SMALL, max_epochs=20, random_state=0)
    forecaster = Forecaster(baseline, past=5, horizon=2, refit_every=40, rate="auto").fit(Y[:N_FIT])
    groups = forecaster.regressor_.groups_
    assert len(groups) == N_FIT - 5 - 1
    assert_array_equal(np.diff(groups) >= 0, True)
    assert np.bincount(groups).min() >= 11  # twenty blocks of a dozen windows
    assert len(np.unique(groups)) == 20
    assert forecaster.rate_ == DEFAULT_RATE
    assert not hasattr(baseline, "predictor_")  # the user's own stays unfitted
    said, _ = loop(forecaster, Y[N_FIT:])
    assert_the_same(forecaster.backtest(Y), said)
    again = refitted(*parts(forecaster))  # it cannot go on: it is fitted anew
    row = forecaster.windows_.rows(forecaster.history_, np.array([70]))
    assert_array_equal(again.predict(row), forecaster.regressor_.predict(row))


def test_a_regressor_of_another_kind_is_refused():
    for regressor in (nn.Linear(2, 2), "lstm", MatchedRegressor):
        with pytest.raises(TypeError, match="regressor must be one of our estimators with a network, unfitted, got "):
            Forecaster(MatchedRegressor(), past=5).set_params(regressor=regressor).fit(Y[:N_FIT])


def test_same_seed_same_bits(plain):
    again = clone(plain)
    torch.manual_seed(99)
    assert_array_equal(again.fit(Y[:N_FIT]).backtest(Y).lower, plain.backtest(Y).lower)


def test_the_regressor_gets_every_parameter_that_both_have():
    given = {"coverage": [0.9, 0.5], "matching": IQRFit(), "network": SMALL, "interval_network": LSTM(hidden=7)}
    given |= {"folds": 4, "interval_loss": "paper", "shape": "interval", "calibration": None}
    given |= {"schedule": Schedule(7, 8, 9, 11, 33, 0.123, 1.5), "device": "cpu", "random_state": 5, "verbose": 1}
    assert set(given) == set(MatchedForecaster().get_params()) & set(MatchedRegressor().get_params())
    regressor = MatchedForecaster(**given)._unfitted(SIX_STEPS, 100)
    in_windows = {"network": LSTM(hidden=4, layers=1, steps=6, channels=3)}
    in_windows["interval_network"] = LSTM(hidden=7, steps=6, channels=3)
    for name, value in (given | in_windows).items():
        assert getattr(regressor, name) == value
    assert regressor.repeats == 1
    assert MatchedForecaster()._unfitted(SIX_STEPS, 100).interval_network is None  # as the other one
    assert network_for(MLP(hidden=5), SIX_STEPS) == MLP(hidden=5)


def test_batches_grow_with_the_rows_within_limits():
    schedules = [MatchedForecaster()._unfitted(SIX_STEPS, n).schedule for n in (3, 80, 500, 2560, 10**6)]
    assert schedules == [Schedule(3, 3, 15, 3, batch_size, 4e-3, 1.0) for batch_size in (16, 16, 100, 512, 512)]


def test_a_fitted_forecaster_goes_through_pickle_and_on(plain):
    restored = pickle.loads(pickle.dumps(plain))
    assert_array_equal(restored.predict_interval().lower, plain.predict_interval().lower)
    assert_array_equal(restored.update(51.0).predict(), copy.deepcopy(plain).update(51.0).predict())


def test_literal_training_has_no_folds_and_no_ranks():
    literal = unfitted(folds=None, calibration=None, refit_every=1, rate="auto").fit(Y[:N_FIT])
    assert literal.regressor_.out_of_fold_ is None
    assert literal.rate_ == 0.05
    assert np.isfinite(literal.update(51.0).predict()).all()
    assert len(literal.rounds_) <= 2  # those of the refit


def autoregression(n, *, shift=None, seed=0):
    """x_t = 0.7 x_{t-1} + e_t with normal e_t of deviation 1, from `shift` on of deviation 3."""
    rng = np.random.default_rng(seed)
    deviation = np.where(np.arange(n) < (n if shift is None else shift), 1.0, 3.0)
    noise, series = deviation * rng.normal(size=n), np.zeros(n)
    for t in range(1, n):
        series[t] = 0.7 * series[t - 1] + noise[t]
    return series


def test_a_stationary_series_is_covered_as_asked_also_without_live_calibration(ar):
    # The factor is a rank of 600 nearly independent residuals, and the share inside one of 2000: both have the variance
    # p (1 - p) / n. Two-step errors of neighbours share half of their noise: at most twice that.
    backtest = ar.backtest(autoregression(2600), start=600)
    for level in (0.8, 0.95):
        for step in (1, 2):
            tolerance = 4 * math.sqrt(step * level * (1 - level) * (1 / 600 + 1 / 2000))
            assert abs(backtest.scores(step, level, static=True)["coverage"] - level) < tolerance
    assert backtest.scores(1)["rmse"] < 1.1  # the law's own deviation is 1
    assert abs(backtest.scores(2)["rmse"] - math.sqrt(1 + 0.7**2)) < 0.15


def test_live_coverage_keeps_its_proven_distance_and_returns_after_a_shift(ar):
    with pytest.warns(ExtrapolationWarning):  # three times the noise goes to where no value has been
        backtest = ar.backtest(autoregression(2600, shift=600), start=600)
    for k, step in enumerate((1, 2)):
        for place, level in enumerate((0.8, 0.95)):
            spread = np.ptp(np.log(backtest.factor[:, k, place]))
            n_scored = 2000 - k
            bound = (spread + ar.rate_) / (ar.rate_ * n_scored)
            live = backtest.scores(step, level)["coverage"]
            assert abs(live - level) <= bound
            static = backtest.scores(step, level, static=True)["coverage"]
            # Three times the noise: an interval of z deviations covers as one of z / 3, plus what the rank may err.
            z = {0.8: 1.2816, 0.95: 1.96}[level]
            assert static < math.erf(z / 3 / math.sqrt(2)) + 0.1
            assert static < level - 0.2 < live
    assert backtest.factor[-1].min() > 2


def test_two_backtests_with_refits_agree_whatever_kind_of_seed_was_given():
    forecaster = unfitted(random_state=np.random.RandomState(0), refit_every=20).fit(Y[:N_FIT])
    first, second = forecaster.backtest(Y), forecaster.backtest(Y)
    assert_array_equal(first.lower, second.lower)


def test_gaps_that_come_after_a_fit_without_gaps_are_filled_and_do_not_count():
    forecaster = unfitted(missing="fill").fit(Y[:N_FIT])
    assert not forecaster.windows_.flags
    scored = forecaster.update(Y[N_FIT]).calibrator_.n_scored.copy()
    forecaster.update(np.nan)
    assert_array_equal(forecaster.calibrator_.n_scored, scored)
    assert forecaster.history_.filled[-1] == Y[N_FIT]
