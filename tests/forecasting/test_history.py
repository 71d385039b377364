import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from coverwell.forecasting.calendar import calendar_features
from coverwell.forecasting.clock import Clock
from coverwell.forecasting.history import read_history, read_rows

HOURS = pd.date_range("2024-01-01 05:00", periods=6, freq="h", name="when")
VALUES = [1.0, 2.0, np.nan, 4.0, 5.0, 6.0]
NAMES = ("promo", "price")


def history_of(series=VALUES, covariates=None, past_covariates=None, *, calendar=(), missing="fill"):
    return read_history(series, covariates, past_covariates, calendar=calendar, missing=missing)


def ahead_history(n_ahead=8, index=None, missing="fill"):
    """Six steps, and two covariates known as far as `n_ahead` steps."""
    table = np.stack([np.arange(n_ahead), 10.0 * np.arange(n_ahead)], axis=1)
    series = VALUES if index is None else pd.Series(VALUES, index[:6])
    frame = pd.DataFrame(table, columns=list(NAMES), index=None if index is None else index[:n_ahead])
    return history_of(series, frame if index is not None else table, missing=missing)


# A history and its panel ---------------------------------------------------------------------------------------------


def test_gaps_stay_nan_in_the_values_and_hold_the_value_before_in_the_filled_ones():
    history = history_of()
    assert_array_equal(history.values, VALUES)
    assert_array_equal(history.filled, [1, 2, 2, 4, 5, 6])
    panel = history.panel(1, 2)
    assert_array_equal(panel.values, [2, 2, 4, 5, 6])
    assert_array_equal(panel.observed, [True, False, True, True, True])
    assert panel.past.shape == (5, 0)
    assert panel.known.shape == (7, 0)  # two steps beyond the series


def test_the_calendar_goes_on_to_the_horizon_by_itself():
    history = history_of(pd.Series(VALUES, HOURS), calendar=("hour",))
    times = pd.date_range(HOURS[2], periods=4 + 3, freq="h").to_numpy()
    assert_array_equal(history.panel(2, 3).known, calendar_features(times, ["hour"])[0])
    history.check_known(1000)


def test_the_calendar_comes_before_the_users_covariates():
    covariates = np.arange(8.0)
    history = history_of(pd.Series(VALUES, HOURS), covariates, calendar=("weekday",))
    known = history.panel(0, 2).known
    assert known.shape == (8, 8)
    assert_array_equal(known[:, 0], np.ones(8))  # a Monday
    assert_array_equal(known[:, 7], covariates)


def test_a_panel_reaches_as_far_as_covariates_are_known():
    assert len(ahead_history(8).panel(0, 5).known) == 8
    assert len(ahead_history(8).panel(0, 1).known) == 7


def test_a_history_grows_by_a_value_or_a_gap():
    history = history_of(past_covariates=np.arange(6.0))
    grown = history.grown(7.0, np.array([[9.0]])).grown(np.nan, np.array([[9.5]]))
    assert len(history) == 6
    assert_array_equal(grown.values[6:], [7, np.nan])
    assert_array_equal(grown.filled[6:], [7, 7])
    assert_array_equal(grown.past[6:, 0], [9, 9.5])


def test_what_must_be_known_ahead_is_told_with_the_first_step_that_is_not():
    history = ahead_history(7, pd.date_range("2024-01-01", periods=9, freq="h"))
    history.check_known(1)
    with pytest.raises(ValueError, match="for the next 3 steps, 2 rows are missing from 2024-01-01 07:00:00 on"):
        history.check_known(3)
    history_of().check_known(99)  # nothing to know


# Rows that come later ------------------------------------------------------------------------------------------------


def test_rows_ahead_replace_what_was_known_and_go_on_from_there():
    history = ahead_history(7).with_ahead([[-1, -2], [-3, -4]], 6, missing="error")
    assert_array_equal(history.ahead[5:], [[5, 50], [-1, -2], [-3, -4]])
    again = history.with_ahead([[-1, -2], [-3, -4]], 6, missing="error")
    assert_array_equal(again.ahead, history.ahead)  # the same rows twice are the same rows
    assert history.same_ahead(again, 2)
    revised = history.with_ahead([[7.0, 7.0]], 6, missing="error")
    assert_array_equal(revised.ahead[6:], [[7, 7], [-3, -4]])  # what is known further ahead stays
    assert not history.same_ahead(revised, 2)


def test_rows_with_time_stamps_are_about_their_times():
    index = pd.date_range("2024-01-01", periods=12, freq="h")
    history = ahead_history(7, index)
    rows = pd.DataFrame({"promo": [1.0, 2, 3], "price": [4.0, 5, 6]}, index=index[5:8])
    told = history.with_ahead(rows, 6, missing="error")
    assert_array_equal(told.ahead[5:], [[5, 50], [2, 5], [3, 6]])  # step 5 has been seen: it stays
    with pytest.raises(ValueError, match="must be about steps from 2024-01-01 06:00:00 on, got 2 rows before it"):
        history.with_ahead(rows.set_axis(index[3:6])[:2], 6, missing="error")


def test_rows_after_a_step_that_nobody_knows_are_refused_or_the_step_filled():
    with pytest.raises(ValueError, match="without a gap: 2 rows are missing before 8, from 6 on"):
        ahead_history(6).with_ahead([[1, 2]], 8, missing="error")
    filled = ahead_history(6).with_ahead([[1, 2]], 8, missing="fill")
    assert_array_equal(filled.ahead[5:], [[5, 50], [5, 50], [5, 50], [1, 2]])


def test_a_missing_covariate_is_refused_or_holds_the_value_before():
    rows = [[1, np.nan], [np.nan, 4]]
    with pytest.raises(ValueError, match="covariates must be finite"):
        ahead_history(6).with_ahead(rows, 6, missing="error")
    assert_array_equal(ahead_history(6).with_ahead(rows, 6, missing="fill").ahead[6:], [[1, 50], [1, 4]])
    history = history_of(past_covariates=np.arange(6.0))
    assert_array_equal(history.past_row(np.nan, 6, missing="fill"), [[5.0]])
    with pytest.raises(ValueError, match="past_covariates must be finite"):
        history.past_row([np.nan], 6, missing="error")


def test_the_past_row_is_that_of_its_step():
    history = history_of(pd.Series(VALUES, HOURS), past_covariates=pd.DataFrame({"wind": np.arange(6.0)}, index=HOURS))
    later = pd.date_range(HOURS[-1] + HOURS.freq, periods=3, freq="h")
    assert_array_equal(history.past_row(3.0, 6, missing="fill"), [[3.0]])
    assert_array_equal(history.past_row(pd.DataFrame({"wind": [3.0]}, index=later[:1]), 6, missing="fill"), [[3.0]])
    with pytest.raises(ValueError, match=r"one row, of the step 2024-01-01 11:00:00, got 1 rows from .* 12:00:00 on"):
        history.past_row(pd.DataFrame({"wind": [3.0]}, index=later[1:2]), 6, missing="fill")
    with pytest.raises(ValueError, match="one row, of the step 2024-01-01 11:00:00, got 2 rows"):
        history.past_row([3.0, 4.0], 6, missing="fill")
    with pytest.raises(ValueError, match=r"must have a row for this step \(wind\), got none"):
        history.past_row(None, 6, missing="fill")
    assert history_of().past_row(None, 6, missing="fill").shape == (1, 0)


@pytest.mark.parametrize(
    "rows",
    [
        [1.0, 2.0],
        (1, 2),
        np.array([[1.0, 2.0]]),
        pd.Series({"promo": 1.0, "price": 2.0}),
        pd.DataFrame({"promo": [1.0], "price": [2.0]}),
        pl.DataFrame({"promo": [1.0], "price": [2.0]}),
    ],
    ids=lambda rows: f"{type(rows).__module__.partition('.')[0]} {type(rows).__name__}",
)
def test_one_row_may_be_given_as_a_line_or_a_table(rows):
    table, steps = read_rows(rows, NAMES, "covariates", Clock())
    assert_array_equal(table, [[1.0, 2.0]])
    assert steps is None


@pytest.mark.parametrize(
    ("rows", "expected"), [(3.0, [[3.0]]), ([3.0, 4.0], [[3.0], [4.0]]), (pd.Series([3.0, 4.0]), [[3.0], [4.0]])]
)
def test_of_a_single_covariate_each_number_is_a_row(rows, expected):
    assert_array_equal(read_rows(rows, ("wind",), "covariates", Clock())[0], expected)


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], ValueError, "the 2 columns promo, price, got 3"),
        ([1.0, 2.0, 3.0, 4.0], ValueError, "the 2 columns promo, price, got 4"),
        (5.0, ValueError, "covariates must have the shape"),
        (pd.DataFrame({"price": [1.0], "promo": [2.0]}), ValueError, "columns promo, price, got price, promo"),
        (pd.DataFrame({"promo": [1.0]}), ValueError, "columns promo, price, got promo"),
        ([["a", "b"]], TypeError, "covariates must hold numbers"),
        ([[np.inf, 1.0]], ValueError, "rows of 2 finite numbers"),
        (np.zeros((0, 2)), ValueError, "rows of 2 finite numbers"),
        (pd.DataFrame({"promo": [1.0], "price": [2.0]}, index=HOURS[:1]), ValueError, "the series has no time stamps"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, error, said):
    with pytest.raises(error, match=said):
        read_rows(rows, NAMES, "covariates", Clock())


def test_rows_that_leave_a_step_out_are_refused():
    clock = ahead_history(7, HOURS.append(HOURS[-1:] + HOURS.freq)).clock
    rows = pd.DataFrame({"promo": [1.0, 2.0], "price": [1.0, 2.0]}, index=HOURS[[0, 2]])
    with pytest.raises(ValueError, match="must have a row for every step, every 1 hour"):
        read_rows(rows, NAMES, "covariates", clock)


def test_rows_for_a_forecaster_that_has_no_covariates_are_refused():
    with pytest.raises(ValueError, match="covariates came, but the forecaster was fitted without"):
        history_of().with_ahead([[1.0]], 6, missing="fill")
    with pytest.raises(ValueError, match="past_covariates came, but the forecaster was fitted without"):
        history_of().past_row([1.0], 6, missing="fill")


# Labels --------------------------------------------------------------------------------------------------------------


def test_values_come_back_as_the_user_has_them():
    values = np.array([1.0, 2.0])
    series = Clock.of(HOURS).labelled(values, 3, "load")
    pd.testing.assert_series_equal(series, pd.Series(values, HOURS[3:5], name="load"))
    frame = Clock.of(pl.Series("when", HOURS.to_numpy())).labelled(values, 3, "load")
    assert frame.columns == ["when", "load"]
    assert frame["load"].to_list() == [1.0, 2.0]
    assert Clock().labelled(values, 6, "load") is values
