"""Forecasts through time: bands, misses, and the rolling coverage."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from coverwell import PredictionInterval
from coverwell.plots import draw_forecast, draw_rolling_coverage

BAND = PredictionInterval(np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 4.0]), coverage=0.9)


def test_values_outside_the_band_are_marked_and_missing_ones_are_not():
    ax = draw_forecast(Figure().subplots(), [1, 2, 3], BAND, prediction=[1, 2, 3], y=[5.0, np.nan, 4.0])
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["observed, outside"].get_xydata(), [[1, 5]])  # 4 lies on its bound
    np.testing.assert_array_equal(lines["forecast"].get_ydata(), [1, 2, 3])
    assert ax.get_legend_handles_labels()[1] == ["90 % interval", "forecast", "observed", "observed, outside"]


def test_the_band_reaches_from_the_lower_to_the_upper_bounds():
    (band,) = draw_forecast(Figure().subplots(), [1, 2, 3], BAND, prediction=[1, 2, 3]).collections
    edges = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
    assert {(1, 0), (2, 1), (3, 2), (1, 2), (2, 3), (3, 4)} <= edges


def test_intervals_to_compare_with_are_two_lines_and_one_name():
    wide = PredictionInterval(BAND.lower - 1, BAND.upper + 1, coverage=0.9)
    time = np.datetime64("2024-01-01", "h") + np.arange(3)
    ax = draw_forecast(Figure().subplots(), time, BAND, prediction=[1, 2, 3], static=wide)
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata().tolist() for line in dashed] == [[-1, 0, 1], [3, 4, 5]]
    assert ax.get_legend_handles_labels()[1] == ["90 % interval", "static interval", "forecast"]


def test_a_forecast_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\), \(3,\) and \(3,\)"):
        draw_forecast(Figure().subplots(), [1, 2], BAND, prediction=[1, 2, 3])


def test_the_asked_coverage_is_drawn_once_beside_every_rolling_one():
    ax = Figure().subplots()
    for label, shares in (("static", [0.8, 0.9]), ("live", [0.94, 0.96])):
        draw_rolling_coverage(ax, [1, 2], shares, asked=0.95, label=label)
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.95, 0.95], [0.8, 0.9], [0.94, 0.96]]
    assert ax.get_legend_handles_labels()[1] == ["static", "live"]


def test_the_axis_of_a_rolling_coverage_shows_all_misses_up_to_the_highest():
    ax = draw_rolling_coverage(Figure().subplots(), [1, 2], [0.95, 0.96], asked=0.95)
    np.testing.assert_allclose(ax.get_ylim(), [0.85, 1.0])
    draw_rolling_coverage(ax, [1, 2], [0.3, 0.96], asked=0.95)
    np.testing.assert_allclose(ax.get_ylim(), [0.3, 1.0])
    draw_rolling_coverage(ax, [1, 2], [0.94, 0.96], asked=0.95)
    np.testing.assert_allclose(ax.get_ylim(), [0.3, 1.0])


@pytest.mark.parametrize("width", [9, 4])
def test_dates_below_the_axis_do_not_run_into_each_other(width):
    time = np.datetime64("2024-01-01", "h") + np.arange(120)
    level = np.zeros(120)
    figure = Figure(figsize=(width, 3), layout="constrained")
    ax = draw_forecast(
        figure.subplots(), time, PredictionInterval(level - 1, level + 1, coverage=0.9), prediction=level
    )
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    assert len(boxes) >= 3
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_a_rolling_coverage_without_its_times_is_refused():
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\) and \(3,\)"):
        draw_rolling_coverage(Figure().subplots(), [1, 2], [0.9, 0.9, 0.9], asked=0.9)
