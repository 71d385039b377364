"""Rows with their intervals: what is drawn where, and that nothing is hidden."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from coverwell import PredictionInterval
from coverwell.plots import draw_intervals

PREDICTION = np.array([3.0, 1.0, 2.0])
INTERVAL = PredictionInterval(PREDICTION - 1.0, np.array([4.0, 3.0, 5.0]), coverage=0.9)
Y = np.array([3.5, 9.0, 1.0])  # inside, above, on the lower bound


def drawn(**more):
    figure = Figure(layout="constrained")
    ax = draw_intervals(figure.subplots(), INTERVAL, prediction=PREDICTION, **more)
    figure.draw_without_rendering()
    return ax


def test_the_axes_that_came_go_back():
    ax = Figure().subplots()
    assert draw_intervals(ax, INTERVAL, prediction=PREDICTION, y=Y) is ax


def test_bars_go_from_the_lowest_prediction_to_the_highest():
    bars = drawn().collections[0].get_segments()
    np.testing.assert_array_equal(bars, [[[1, 0], [1, 3]], [[2, 1], [2, 5]], [[3, 2], [3, 4]]])


def test_observed_values_inside_and_outside_stand_at_their_rows():
    inside, outside = drawn(y=Y).collections[1:]
    np.testing.assert_array_equal(inside.get_offsets(), [[2, 1.0], [3, 3.5]])
    np.testing.assert_array_equal(outside.get_offsets(), [[1, 9.0]])


def test_inside_and_outside_differ_in_colour_and_in_marker():
    inside, outside = drawn(y=Y).collections[1:]
    assert to_hex(inside.get_facecolor()[0]) != to_hex(outside.get_facecolor()[0])
    assert len(inside.get_paths()[0].vertices) != len(outside.get_paths()[0].vertices)


def test_the_legend_counts_and_covers_no_data():
    ax = drawn(y=Y)
    legend = ax.get_legend()
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["90 % interval", "prediction", "observed, inside (2)", "observed, outside (1)"]
    assert not legend.get_window_extent().overlaps(ax.get_window_extent())


def test_without_observed_values_there_are_bars_and_predictions_only():
    ax = drawn()
    assert len(ax.collections) == 1
    assert ax.get_legend_handles_labels()[1] == ["90 % interval", "prediction"]


@pytest.mark.parametrize("shape", [(3, 2), (3, 1)])
def test_several_targets_or_levels_are_refused_with_the_way_out(shape):
    interval = PredictionInterval(np.zeros(shape), np.ones(shape), coverage=(0.5, 0.9)[: shape[1]])
    with pytest.raises(ValueError, match=r"one target at one level.*predict_interval"):
        draw_intervals(Figure().subplots(), interval, prediction=np.zeros(3))


def test_a_prediction_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        draw_intervals(Figure().subplots(), INTERVAL, prediction=[1.0, 2.0])


def test_along_a_feature_rows_stand_at_its_values():
    ax = drawn(along=[10.0, 30.0, 20.0], along_name="age", y=Y)
    bars = ax.collections[0].get_segments()
    np.testing.assert_array_equal([bar[0] for bar in bars], [[10, 2], [20, 1], [30, 0]])
    inside, outside = ax.collections[1:]
    np.testing.assert_array_equal(inside.get_offsets(), [[10, 3.5], [20, 1.0]])
    np.testing.assert_array_equal(outside.get_offsets(), [[30, 9.0]])
    assert ax.get_xlabel() == "age"


def test_the_target_and_its_unit_name_the_vertical_axis():
    interval = PredictionInterval(INTERVAL.lower, INTERVAL.upper, coverage=0.9, target_names=("price",))
    axes = [draw_intervals(Figure().subplots(), interval, prediction=PREDICTION, unit=unit) for unit in (None, "EUR")]
    assert [ax.get_ylabel() for ax in axes] == ["price", "price (EUR)"]


def test_bars_of_many_rows_are_thin_enough_to_stand_apart():
    n = 400
    many = PredictionInterval(np.zeros(n), np.ones(n), coverage=0.9)
    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = draw_intervals(figure.subplots(), many, prediction=np.full(n, 0.5))
    figure.draw_without_rendering()
    points_per_row = ax.get_window_extent().width / figure.dpi * 72 / n
    assert ax.collections[0].get_linewidth()[0] < points_per_row
    assert drawn().collections[0].get_linewidth()[0] == 3


@pytest.mark.parametrize("along", [[1.0, np.nan, 2.0], [1.0, 2.0], [1.0, np.inf, 2.0]])
def test_a_feature_with_gaps_or_of_another_length_is_refused_with_the_way_out(along):
    with pytest.raises(ValueError, match=r"one finite number per row, \(3,\).*leave such rows out"):
        draw_intervals(Figure().subplots(), INTERVAL, prediction=PREDICTION, along=along)


def test_a_feature_of_text_is_refused():
    with pytest.raises(ValueError, match="along must hold numbers or dates"):
        draw_intervals(Figure().subplots(), INTERVAL, prediction=PREDICTION, along=["a", "b", "c"])


def test_along_dates_rows_stand_at_their_days_and_missing_ones_are_refused():
    days = np.array(["2024-01-01", "2024-03-01", "2024-02-01"], dtype="datetime64[D]")
    ax = drawn(along=days, along_name="sold on")
    np.testing.assert_array_equal([bar[0, 0] for bar in ax.collections[0].get_segments()], date2num(np.sort(days)))
    assert any("2024" in text for text in [ax.xaxis.get_offset_text().get_text(), *map(str, tick_texts(ax))])
    days[1] = np.datetime64("NaT")
    with pytest.raises(ValueError, match="1 that are missing"):
        drawn(along=days)


def tick_texts(ax):
    return [label.get_text() for label in ax.get_xticklabels()]
