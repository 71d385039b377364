"""A regressor on the windows of a series: blocks of time, what it keeps of them, and how it learns on."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MatchedRegressor, Schedule
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting.forecaster import (
    DEFAULT_RATE,
    REFIT,
    _truths_in_a_row,
    folds_of,
    forecast,
    learn,
    network_for,
    rate_of,
    refitted,
)
from coverwell.forecasting.history import read_history
from coverwell.forecasting.live import choose_rate
from coverwell.forecasting.windows import Windows
from coverwell.networks import LSTM, MLP

N = 260
VALUES = 10 + np.sin(np.arange(N) / 3) + 0.1 * np.random.default_rng(0).normal(size=N)
SMALL = LSTM(hidden=3, layers=1)


def history_of(values=VALUES, *, gap=None):
    return read_history(np.where(np.arange(len(values)) == gap, np.nan, values), missing="fill")


def windows_on(history, past=4):
    return Windows.of(history, past=past, horizon=1, differences=True)


def regressor_on(windows, **changes):
    usual = {"network": network_for(SMALL, windows), "folds": 2, "repeats": 1, "random_state": 0}
    usual |= {"schedule": Schedule(max_rounds=1)}
    return MatchedRegressor(0.8, **usual | changes)


@pytest.fixture(scope="module")
def learned():
    history = history_of()
    windows = windows_on(history)
    regressor = regressor_on(windows)
    folds = folds_of(regressor, windows, history)
    learn(regressor, windows, folds, history)
    return regressor, windows, folds, history


def test_an_lstm_gets_the_steps_and_channels_of_the_windows_and_another_network_stays_as_it_is():
    windows = windows_on(history_of(), past=6)
    assert network_for(SMALL, windows) == LSTM(hidden=3, layers=1, steps=6, channels=2)
    assert network_for(MLP(hidden=5), windows) == MLP(hidden=5)


def test_gaps_have_a_channel_only_where_the_series_has_gaps():
    assert not windows_on(history_of()).flags
    assert windows_on(history_of(gap=30)).flags


def test_a_series_with_fewer_than_two_windows_is_refused():
    with pytest.raises(ValueError, match=r"at least 2 windows of past \+ horizon = 5 steps .* got 1 in 5 steps"):
        windows_on(history_of(VALUES[:5]))


def test_after_a_fit_the_regressor_says_the_number_of_folds_that_it_was_told(learned):
    regressor, *_ = learned
    assert regressor.folds == 2


def test_every_row_is_left_out_by_one_member_and_blocks_lie_far_from_each_other(learned):
    regressor, windows, folds, history = learned
    assert not np.isnan(regressor.out_of_fold_.prediction).any()
    assert (folds.n_folds, folds.first, folds.end, folds.embargo) == (2, 3, N, 5)
    (train, out), _ = folds.split(windows.origins(history))
    assert_array_equal(np.diff(out), np.ones(len(out) - 1))
    assert train.min() - out.max() == 6


def test_forecasts_are_the_last_value_and_the_learned_change(learned):
    regressor, windows, _, history = learned
    origins = np.array([50, 51])
    mean, half_width = forecast(regressor, windows, history, origins)
    change = regressor.predict(windows.rows(history, origins))
    assert_allclose(mean, change + VALUES[origins][:, None], rtol=1e-12)
    interval = regressor.predict_interval(windows.rows(history, origins))
    assert_allclose(half_width[:, :, 1, 0], interval.upper - change, rtol=1e-9)


def test_a_refit_goes_on_from_the_former_networks_and_leaves_them_alone(learned):
    regressor, windows, folds, history = learned
    before = regressor.predict(windows.rows(history, np.array([60])))
    fresh = refitted(regressor, windows, folds, history)
    assert_array_equal(regressor.predict(windows.rows(history, np.array([60]))), before)
    assert regressor.schedule.max_rounds == 1
    assert fresh.schedule.max_rounds == REFIT["max_rounds"]
    assert fresh.folds == 2
    units = [model.predictor_.fitted_teams[0].targets.spread for model in (fresh, regressor)]
    assert_array_equal(units[0], units[1])


def test_a_regressor_that_cannot_go_on_is_fitted_anew():
    history = history_of()
    windows = windows_on(history)
    regressor = HeteroscedasticRegressor(0.8, network=network_for(SMALL, windows), max_epochs=10, random_state=0)
    folds = folds_of(regressor, windows, history)
    learn(regressor, windows, folds, history)
    rows = windows.rows(history, np.array([70]))
    assert_array_equal(refitted(regressor, windows, folds, history).predict(rows), regressor.predict(rows))


def test_without_a_word_about_left_out_rows_the_rate_is_the_usual_one():
    history = history_of()
    assert rate_of(HeteroscedasticRegressor(), windows_on(history), history) == DEFAULT_RATE


def test_the_rate_is_what_choose_rate_makes_of_out_of_fold_forecasts():
    # Noise that comes in waves: an interval that follows fast is worth more here than one that hardly moves.
    n = 900
    size = np.where(np.arange(n) // 30 % 2 == 0, 0.05, 2.0)
    history = history_of(10 + size * np.random.default_rng(1).normal(size=n))
    windows = windows_on(history)
    regressor = regressor_on(windows)
    learn(regressor, windows, folds_of(regressor, windows, history), history)
    said, origins = regressor.out_of_fold_, windows.origins(history)
    last = history.values[origins][:, None]
    mean = said.prediction + last
    reach = np.stack([said.prediction - said.lower[..., 0], said.upper[..., 0] - said.prediction], axis=-1)[..., None]
    by_hand = choose_rate(mean, reach, history.values[origins + 1], (0.8,), start=1.0)
    assert rate_of(regressor, windows, history) == by_hand
    assert by_hand > DEFAULT_RATE


def test_values_far_outside_what_was_learned_bring_a_warning(learned):
    regressor, windows, *_ = learned
    far = history_of(np.append(VALUES, np.full(10, 1000.0)))
    with pytest.warns(ExtrapolationWarning, match="3 of 4 forecasts see values far outside"):
        forecast(regressor, windows, far, np.array([N - 1, N, N + 1, N + 5]))


def test_without_changes_levels_are_not_bounded_to_what_was_learned():
    history = history_of()
    windows = Windows.of(history, past=4, horizon=1, differences=False)
    regressor = regressor_on(windows)
    learn(regressor, windows, folds_of(regressor, windows, history), history)
    far = history_of(np.append(VALUES, np.full(5, 1000.0)))
    mean, _ = forecast(regressor, windows, far, np.array([N - 1, N + 4]))  # and no warning
    assert regressor.predictor_.inputs.high.isinf().all()
    assert mean[0, 0] != mean[1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folds": 1}, "folds must be at least 2 blocks of time, or None, got 1"),
        ({"folds": None}, "calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None"),
        ({"calibration": "split"}, "calibration must be 'cross' or None for a series, got 'split': .* overlap"),
        ({"calibration": "cv+"}, r"calibration must be 'cross' or None for a series, got 'cv\+'"),
        ({"folds": 60}, "60 blocks of time with 5 steps"),
        ({"folds": 2.5}, "folds must be a whole number of at least 1, got 2.5"),
        ({"folds": "five"}, "folds must be a whole number"),
    ],
)
def test_folds_that_cannot_be_blocks_of_time_are_refused(changes, message):
    history = history_of()
    windows = windows_on(history)
    with pytest.raises(ValueError, match=message):
        folds_of(regressor_on(windows, **changes), windows, history)


def test_after_a_gap_in_the_origins_truths_are_kept_from_the_rows_before_it():
    # Rows are of origins 0, 1, 2 and, after a gap, 6, 7, 8. With three steps ahead, the truth after origin 6 would be
    # taken for steps 2 and 3 of origins 2 and 1, and that after origin 7 for step 3 of origin 2.
    values, origins = np.arange(10.0), np.array([0, 1, 2, 6, 7, 8])
    assert_array_equal(_truths_in_a_row(values, origins, 3), [1, 2, 3, np.nan, np.nan, 9])
    assert_array_equal(_truths_in_a_row(values, origins, 1), [1, 2, 3, 7, 8, 9])
    assert_array_equal(values, np.arange(10.0))
