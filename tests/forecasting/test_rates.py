import numpy as np
import pytest

from coverwell.calibration import Estimate
from coverwell.forecasting.live import LiveCalibrator, run_live
from coverwell.forecasting.rates import choose_rate
from coverwell.metrics import rolling_coverage


def around_zero(n_times):
    """Forecasts of 0 that reach 1 to both sides."""
    return Estimate(np.zeros((n_times, 1)), np.ones((n_times, 1, 2, 1)))


def test_steady_noise_takes_the_slowest_rate_and_waves_of_noise_a_faster_one():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=4000)
    waves = np.exp(1.5 * np.sin(np.arange(4000) / 30))
    assert choose_rate(around_zero(4000), noise, 0.9) == 0.05
    assert choose_rate(around_zero(4000), noise * waves, 0.9) > 0.05


def calm_with_a_storm():
    """Long calm noise and 200 louder steps, and two rates: the slow one scores better, and loses its coverage there."""
    y = np.random.default_rng(0).normal(size=6000)
    y[3000:3200] *= 1.6
    return y, {"candidates": (0.001, 0.2), "start": 1.645}


def worst_coverage(y, rate, window):
    lower, upper, _ = run_live(LiveCalibrator(0.9, rate=rate, start=1.645), around_zero(len(y)), y)
    return rolling_coverage((lower[:, 0, 0] <= y) & (y <= upper[:, 0, 0]), window).min()


def test_a_rate_that_loses_its_coverage_is_passed_over_though_its_score_is_better():
    y, choices = calm_with_a_storm()
    assert worst_coverage(y, 0.001, window=200) < 0.8 < worst_coverage(y, 0.2, window=200)
    assert choose_rate(around_zero(6000), y, 0.9, window=6000, **choices) == 0.001
    assert choose_rate(around_zero(6000), y, 0.9, window=200, **choices) == 0.2


def test_if_no_rate_holds_its_coverage_the_one_that_covers_most_is_taken():
    y, choices = calm_with_a_storm()
    assert worst_coverage(y, 0.001, window=50) < worst_coverage(y, 0.2, window=50) < 0.8
    assert choose_rate(around_zero(6000), y, 0.9, window=50, **choices) == 0.2


def test_a_past_shorter_than_the_window_is_judged_by_its_score():
    y, choices = calm_with_a_storm()
    assert choose_rate(around_zero(6000), y, 0.9, window=6001, **choices) == 0.001


def test_no_candidates_are_refused():
    with pytest.raises(ValueError, match="at least one rate"):
        choose_rate(around_zero(50), np.arange(1.0, 51.0), 0.9, candidates=())
