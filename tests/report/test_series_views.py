"""Steps, windows and stretches of a period, and views that agree with the backtest they come from."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from coverwell.report.series_views import lowest_by_chance, steps_shown, times_of, views_of, window_of, worst_stretch
from scipy.stats import binom


@pytest.mark.parametrize(("horizon", "shown"), [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 3, 4]), (24, [1, 9, 16, 24])])
def test_of_many_steps_the_first_the_last_and_some_between_are_shown(horizon, shown):
    assert steps_shown(horizon) == shown


def test_a_window_is_a_quarter_of_the_values_and_500_at_most():
    assert [window_of(n) for n in (10, 400, 10_000)] == [2, 100, 500]


def test_the_worst_stretch_is_the_first_with_the_fewest_inside():
    inside = np.array([True, False, True, True, False, False, True, False, False])
    found = worst_stretch(inside, 3)
    assert (found.first, found.n, found.coverage) == (3, 3, pytest.approx(1 / 3))


def test_views_have_the_scores_of_the_backtest(forecaster, series):
    backtest = forecaster.backtest(series)
    views = views_of(backtest, live=True)
    assert [(view.step, view.asked) for view in views] == [(1, 0.8), (1, 0.9), (2, 0.8), (2, 0.9)]
    for view in views:
        for static, inside in ((False, view.inside), (True, view.static_inside)):
            scores = backtest.scores(view.step, view.asked, static=static)
            assert inside.mean() == pytest.approx(scores["coverage"])
        assert view.times[0] == np.datetime64("2024-01-09T08") + np.timedelta64(view.step - 1, "h")
        assert len(view.y) == 200 - (view.step - 1)


def test_times_of_any_kind_become_dates_by_the_local_clock_or_counts():
    at = np.datetime64("2024-01-01T10")
    stamps = pd.date_range("2024-01-01 10:00", periods=2, freq="h")
    zoned = stamps.tz_localize("Europe/Rome")
    assert all(
        times_of(index)[0] == at for index in (stamps, zoned, stamps.to_period("h"), pl.Series(stamps.to_numpy()))
    )
    assert times_of(pl.Series(stamps.to_numpy()).dt.replace_time_zone("Europe/Rome"))[0] == at
    assert times_of(np.arange(3, 5)).tolist() == [3, 4]


def test_the_worst_stretch_by_chance_of_a_single_window_is_that_of_the_binomial_law():
    # 200 draws put the quantile of order 0.05 between those of order 0.01 and 0.12, save in one case of a thousand.
    found = lowest_by_chance(0.9, 100, 100)
    assert binom.ppf(0.01, 100, 0.9) / 100 <= found <= binom.ppf(0.12, 100, 0.9) / 100


def test_the_worst_of_many_windows_is_lower_than_a_single_one():
    assert lowest_by_chance(0.9, 2000, 100) < lowest_by_chance(0.9, 100, 100)
