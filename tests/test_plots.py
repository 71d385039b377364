"""Pictures: what is drawn where, and that nothing is hidden."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from coverwell import PredictionInterval
from coverwell.plots import (
    CurveStyle,
    draw_box,
    draw_calibration_curve,
    draw_forecast,
    draw_intervals,
    draw_rolling_coverage,
    draw_rounds,
    draw_width_curve,
    inner_and_outer,
)

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


ASKED = [0.1, 0.5, 0.9]


def curve_axes(draw, *more, **options):
    figure = Figure(layout="constrained")
    ax = draw(figure.subplots(), *more, **options)
    figure.draw_without_rendering()
    return ax


@pytest.mark.parametrize("draw", [draw_calibration_curve, draw_width_curve])
def test_a_curve_goes_through_its_values_on_the_axes_that_came(draw):
    ax = Figure().subplots()
    assert draw(ax, ASKED, [0.2, 0.4, 0.8], label="a method") is ax
    line = ax.lines[-1]
    np.testing.assert_array_equal(line.get_xydata(), [[0.1, 0.2], [0.5, 0.4], [0.9, 0.8]])
    assert ax.get_legend_handles_labels()[1] == ["a method"]


def test_the_diagonal_is_drawn_once_however_many_curves_there_are():
    ax = curve_axes(draw_calibration_curve, ASKED, [0.2, 0.4, 0.8])
    draw_calibration_curve(ax, ASKED, [0.1, 0.5, 0.9])
    diagonals = [line for line in ax.lines if line.get_xydata().tolist() == [[0, 0], [1, 1]]]
    assert (len(diagonals), len(ax.lines)) == (1, 3)


def test_coverage_is_shown_from_none_to_all_on_both_axes():
    ax = curve_axes(draw_calibration_curve, ASKED, [0.4, 0.45, 0.5])
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))


def test_widths_start_at_zero_and_have_their_unit():
    ax = curve_axes(draw_width_curve, ASKED, [100.0, 101.0, 102.0], unit="miles per gallon")
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylabel() == "average width (miles per gallon)"
    assert curve_axes(draw_width_curve, ASKED, [1.0, 2.0, 3.0]).get_ylabel() == "average width"


def test_a_curve_looks_as_its_style_says():
    style = CurveStyle("#D55E00", "s", "--", 3.0)
    line = curve_axes(draw_width_curve, ASKED, [1.0, 2.0, 3.0], style=style).lines[0]
    look = (line.get_color(), line.get_marker(), line.get_linestyle(), line.get_linewidth())
    assert look == ("#D55E00", "s", "--", 3.0)


def test_error_bars_reach_their_error_up_and_down():
    ax = curve_axes(draw_width_curve, ASKED, [1.0, 2.0, 3.0], error=[0.5, 0.25, 1.0])
    (bars,) = ax.collections
    np.testing.assert_array_equal([bar[:, 1] for bar in bars.get_segments()], [[0.5, 1.5], [1.75, 2.25], [2, 4]])


def test_the_band_lies_below_the_curve_and_between_its_edges():
    ax = curve_axes(draw_calibration_curve, ASKED, [0.2, 0.4, 0.8], band=([0.05, 0.4, 0.85], [0.15, 0.6, 0.95]))
    (band,) = ax.collections
    edges = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
    assert {(0.1, 0.05), (0.1, 0.15), (0.5, 0.4), (0.5, 0.6), (0.9, 0.85), (0.9, 0.95)} <= edges
    assert band.get_zorder() < min(line.get_zorder() for line in ax.lines)


@pytest.mark.parametrize("draw", [draw_calibration_curve, draw_width_curve])
def test_several_methods_in_one_call_are_refused_with_the_way_out(draw):
    with pytest.raises(ValueError, match=r"got \(3,\) and \(2, 3\).*one after the other"):
        draw(Figure().subplots(), ASKED, np.zeros((2, 3)))


@pytest.mark.parametrize("asked", [[0.9, 0.5], [0.5, 0.5], [0.0, 0.5], [0.5, 1.0]])
def test_levels_that_do_not_rise_between_0_and_1_are_refused(asked):
    with pytest.raises(ValueError, match="asked must rise strictly between 0 and 1"):
        draw_width_curve(Figure().subplots(), asked, [1.0, 2.0])


ENDS_EARLY = [[3.0, 2.0, 1.0, 1.0], [5.0, 4.0, np.nan, np.nan]]


def test_the_mean_by_round_is_solid_while_all_trials_run_and_dotted_after():
    ax = curve_axes(draw_rounds, ENDS_EARLY, label="RMSE")
    whole, rest = ax.lines
    np.testing.assert_array_equal(whole.get_xydata(), [[1, 4], [2, 3]])
    np.testing.assert_array_equal(rest.get_xydata(), [[2, 3], [3, 1], [4, 1]])  # joined to the last common round
    assert (whole.get_linestyle(), rest.get_linestyle()) == ("-", ":")
    assert ax.get_legend_handles_labels()[1] == ["RMSE"]


def test_the_shade_by_round_goes_from_the_lowest_trial_to_the_highest():
    (shade,) = curve_axes(draw_rounds, ENDS_EARLY).collections
    edges = {tuple(point) for point in shade.get_paths()[0].vertices.tolist()}
    assert {(1, 3), (1, 5), (2, 2), (2, 4), (3, 1), (4, 1)} <= edges


def test_trials_of_equal_length_have_one_line_and_the_asked_level_another():
    asked, mean = curve_axes(draw_rounds, [[0.8, 0.9], [0.9, 1.0]], asked=0.95).lines
    assert list(asked.get_ydata()) == [0.95, 0.95]
    np.testing.assert_allclose(mean.get_ydata(), [0.85, 0.95])


def test_a_single_round_can_be_drawn():
    assert curve_axes(draw_rounds, [[2.0]]).lines[0].get_ydata().tolist() == [2.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], r"shape \(trial, round\), got \(2,\)"),
        ([[1.0, np.nan, 2.0]], "got gaps"),
        ([[np.nan, 1.0]], "got gaps"),
        ([[1.0, np.nan], [2.0, np.nan]], "no trial has round 2"),
    ],
)
def test_rounds_with_gaps_or_of_another_shape_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        draw_rounds(Figure().subplots(), values)


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


def test_a_rolling_coverage_without_its_times_is_refused():
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\) and \(3,\)"):
        draw_rolling_coverage(Figure().subplots(), [1, 2], [0.9, 0.9, 0.9], asked=0.9)


# Boxes.

LOWER, UPPER = np.array([20.0, 10.0, 60.0, 50.0]), np.array([40.0, 20.0, 100.0, 70.0])
SIZE = [200, 150]


def box_of(ax, label):
    """Left, top, width and height of an outline; None where there is none."""
    found = [patch for patch in ax.patches if patch.get_label() == label]
    return (*found[0].get_xy(), found[0].get_width(), found[0].get_height()) if found else None


def with_box(lower=LOWER, upper=UPPER, **more):
    return draw_box(Figure().subplots(), lower, upper, prediction=(lower + upper) / 2, size=SIZE, **more)


def test_inner_and_outer_box_by_hand():
    # left in [20, 40], right in [80, 140]; top in [10, 20], bottom in [60, 90]
    inner, outer = inner_and_outer(LOWER, UPPER)
    np.testing.assert_array_equal(inner, [40, 20, 40, 40])
    np.testing.assert_array_equal(outer, [20, 10, 120, 80])


@given(seed=st.integers(0, 1000))
def test_every_box_within_the_bounds_lies_between_the_inner_and_the_outer_one_and_both_are_tight(seed):
    rng = np.random.default_rng(seed)
    lower = rng.uniform(0, 10, 4)
    upper = lower + rng.uniform(0, 5, 4)
    inner, outer = inner_and_outer(lower, upper)
    corners = np.array(list(product(*zip(lower, upper, strict=True))))  # of all boxes the extreme ones
    boxes = np.concatenate([corners, rng.uniform(lower, upper, (50, 4))])
    start, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    np.testing.assert_allclose(outer[:2], start.min(axis=0))
    np.testing.assert_allclose(outer[:2] + outer[2:], end.max(axis=0))
    common = end.min(axis=0) - start.max(axis=0)
    if inner is None:
        assert (common <= 1e-9).any()
    else:
        np.testing.assert_allclose(inner[:2], start.max(axis=0))
        np.testing.assert_allclose(inner[2:], common)


def test_bounds_that_cross_or_are_not_four_are_refused():
    with pytest.raises(ValueError, match="four bounds each, none above its other"):
        inner_and_outer(UPPER, LOWER)
    with pytest.raises(ValueError, match="four bounds each"):
        inner_and_outer([1.0, 2.0], [3.0, 4.0])


def test_all_four_boxes_are_drawn_to_scale_with_y_downwards():
    ax = with_box(truth=np.array([30.0, 20.0, 70.0, 55.0]))
    assert box_of(ax, "true") == (30, 20, 70, 55)
    assert box_of(ax, "predicted") == (30, 15, 80, 60)
    assert box_of(ax, "inner") == (40, 20, 40, 40)
    assert box_of(ax, "outer") == (20, 10, 120, 80)
    assert ax.get_aspect() == 1
    bottom, top = ax.get_ylim()
    assert bottom > 150 > 0 > top


def test_boxes_are_told_apart_without_colour():
    ax = with_box(truth=np.array([30.0, 20.0, 70.0, 55.0]))
    looks = {
        (patch.get_linestyle(), patch.get_linewidth())
        for patch in ax.patches
        if patch.get_label() in ("true", "predicted", "inner", "outer")
    }
    assert len(looks) == 4


def test_the_outer_box_ends_at_the_edge_of_the_picture():
    ax = with_box(LOWER - 40, UPPER + 100)
    assert box_of(ax, "outer") == (0, 0, 200, 150)


def test_no_inner_box_is_drawn_where_boxes_have_nothing_in_common():
    ax = with_box(np.array([20.0, 10.0, 10.0, 50.0]), np.array([90.0, 20.0, 100.0, 70.0]))
    assert box_of(ax, "inner") is None
    assert box_of(ax, "outer") is not None
    assert box_of(ax, "true") is None  # none was given


def test_only_the_area_between_the_inner_and_the_outer_box_is_shaded():
    ax = with_box()
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())

    def colour_at(x, y):
        across, up = ax.transData.transform((x, y))
        return tuple(pixels[len(pixels) - 1 - int(up), int(across), :3])

    assert colour_at(125, 80) != colour_at(190, 140)
    assert colour_at(50, 30) == colour_at(190, 140)  # in the inner box: as outside of both


def test_a_picture_fills_the_frame_whatever_its_resolution():
    ax = with_box(picture=np.zeros((10, 10, 3)))
    (image,) = ax.images
    assert image.get_extent() == [0, 200, 150, 0]
