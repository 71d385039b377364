"""Charts on axes: values where they belong, honest axes, marks that differ without colour, and nothing covered."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from coverwell import PredictionInterval
from coverwell.plots import (
    CurveStyle,
    draw_calibration_curve,
    draw_forecast,
    draw_intervals,
    draw_rolling_coverage,
    draw_rounds,
    draw_slices,
    draw_width_curve,
)
from coverwell.slices import Slice, Slices

ASKED = [0.1, 0.5, 0.9]


def axes_of(draw, *given, size=(9, 3), **options):
    """The axes of a chart, laid out."""
    figure = Figure(figsize=size, layout="constrained")
    ax = draw(figure.subplots(), *given, **options)
    figure.draw_without_rendering()
    return ax


def labelled(ax):
    """Lines, and bars of a collection, by their names in the legend."""
    return {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}


def edges_of(collection):
    return {tuple(point) for point in collection.get_paths()[0].vertices.tolist()}


@pytest.mark.parametrize("draw", [draw_calibration_curve, draw_width_curve])
def test_a_curve_goes_through_its_values_on_the_axes_that_came(draw):
    ax = Figure().subplots()
    assert draw(ax, ASKED, [0.2, 0.4, 0.8], label="a method") is ax
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[0.1, 0.2], [0.5, 0.4], [0.9, 0.8]])
    assert list(labelled(ax)) == ["a method"]


def test_the_diagonal_is_drawn_once_and_coverage_is_shown_from_none_to_all():
    ax = axes_of(draw_calibration_curve, ASKED, [0.4, 0.45, 0.5])
    draw_calibration_curve(ax, ASKED, [0.1, 0.5, 0.9])
    diagonals = [line for line in ax.lines if line.get_xydata().tolist() == [[0, 0], [1, 1]]]
    assert (len(diagonals), len(ax.lines)) == (1, 3)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))


def test_a_higher_curve_of_widths_that_comes_later_is_not_cut_off():
    ax = axes_of(draw_width_curve, ASKED, [1.0, 2.0, 3.0])
    draw_width_curve(ax, ASKED, [2.0, 4.0, 9.0], error=[0.0, 0.0, 2.0])
    draw_width_curve(ax, ASKED, [0.5, 1.0, 2.0], unit="EUR")
    low, high = ax.get_ylim()
    assert low == 0
    assert 11 <= high < 12
    assert ax.get_ylabel() == "average width (EUR)"


def test_a_curve_looks_as_its_style_says_and_has_bars_of_its_error():
    ax = axes_of(
        draw_width_curve, ASKED, [1.0, 2.0, 3.0], style=CurveStyle("#D55E00", "s", "--", 3.0), error=[0.5, 0.25, 1.0]
    )
    line, (bars,) = ax.lines[0], ax.collections
    look = (line.get_color(), line.get_marker(), line.get_linestyle(), line.get_linewidth())
    assert look == ("#D55E00", "s", "--", 3.0)
    np.testing.assert_array_equal([bar[:, 1] for bar in bars.get_segments()], [[0.5, 1.5], [1.75, 2.25], [2, 4]])


def test_the_band_lies_below_the_curve_and_between_its_edges():
    ax = axes_of(draw_calibration_curve, ASKED, [0.2, 0.4, 0.8], band=([0.05, 0.4, 0.85], [0.15, 0.6, 0.95]))
    (band,) = ax.collections
    assert {(0.1, 0.05), (0.1, 0.15), (0.5, 0.4), (0.5, 0.6), (0.9, 0.85), (0.9, 0.95)} <= edges_of(band)
    assert band.get_zorder() < min(line.get_zorder() for line in ax.lines)


def test_the_band_of_a_single_level_can_be_seen():
    ax = axes_of(draw_calibration_curve, [0.9], [0.88], band=([0.85], [0.95]), band_label="to expect")
    band = labelled(ax)["to expect"]
    np.testing.assert_array_equal(band.get_segments(), [[[0.9, 0.85], [0.9, 0.95]]])
    assert band.get_linewidth()[0] > ax.lines[-1].get_linewidth()


@pytest.mark.parametrize("draw", [draw_calibration_curve, draw_width_curve])
def test_bad_curves_are_refused_with_the_way_out(draw):
    with pytest.raises(ValueError, match=r"got \(3,\) and \(2, 3\).*one after the other"):
        draw(Figure().subplots(), ASKED, np.zeros((2, 3)))
    for asked in ([0.9, 0.5], [0.5, 0.5], [0.0, 0.5], [0.5, 1.0]):
        with pytest.raises(ValueError, match="asked must rise strictly between 0 and 1"):
            draw(Figure().subplots(), asked, [1.0, 2.0])


PREDICTION = np.array([3.0, 1.0, 2.0])
INTERVAL = PredictionInterval(PREDICTION - 1.0, np.array([4.0, 3.0, 5.0]), coverage=0.9)
Y = np.array([3.5, 9.0, 1.0])  # inside, above, on the lower bound


def rows(**more):
    return axes_of(draw_intervals, INTERVAL, prediction=PREDICTION, **more)


def test_bars_go_from_the_lowest_prediction_to_the_highest():
    (bars,) = rows().collections
    np.testing.assert_array_equal(bars.get_segments(), [[[1, 0], [1, 3]], [[2, 1], [2, 5]], [[3, 2], [3, 4]]])
    assert list(labelled(rows())) == ["90 % interval", "prediction"]


def test_observed_values_inside_and_outside_differ_in_place_colour_and_marker():
    ax = rows(y=Y)
    inside, outside = labelled(ax)["observed, inside (2)"], labelled(ax)["observed, outside (1)"]
    np.testing.assert_array_equal(inside.get_xydata(), [[2, 1.0], [3, 3.5]])
    np.testing.assert_array_equal(outside.get_xydata(), [[1, 9.0]])
    assert inside.get_color() != outside.get_color()
    assert inside.get_marker() != outside.get_marker()
    assert not ax.get_legend().get_window_extent().overlaps(ax.get_window_extent())


def test_along_a_feature_or_dates_rows_stand_at_their_values():
    ax = rows(along=[10.0, 30.0, 20.0], along_name="age", y=Y)
    np.testing.assert_array_equal([bar[0] for bar in ax.collections[0].get_segments()], [[10, 2], [20, 1], [30, 0]])
    np.testing.assert_array_equal(labelled(ax)["observed, outside (1)"].get_xydata(), [[30, 9.0]])
    assert ax.get_xlabel() == "age"
    days = np.array(["2024-01-01", "2024-03-01", "2024-02-01"], dtype="datetime64[D]")
    (bars, *_) = rows(along=days).collections
    np.testing.assert_array_equal([bar[0, 0] for bar in bars.get_segments()], date2num(np.sort(days)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prediction": [1.0, 2.0]}, r"one target at one level.*\(3,\) and \(2,\).*predict_interval"),
        ({"along": [1.0, np.nan, 2.0]}, r"one finite number per row, \(3,\).*leave these rows out"),
        ({"along": [1.0, 2.0]}, r"one finite number per row, \(3,\)"),
        ({"along": np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[D]")}, "1 that are missing"),
        ({"along": ["a", "b", "c"]}, "along must hold numbers or dates"),
    ],
)
def test_bad_rows_are_refused_with_the_way_out(changed, message):
    with pytest.raises(ValueError, match=message):
        draw_intervals(Figure().subplots(), INTERVAL, **{"prediction": PREDICTION, **changed})


BAND = PredictionInterval(np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 4.0]), coverage=0.9)


def test_values_outside_the_band_are_marked_and_missing_ones_are_not():
    ax = axes_of(draw_forecast, [1, 2, 3], BAND, prediction=[1, 2, 3], y=[5.0, np.nan, 4.0])
    assert list(labelled(ax)) == ["90 % interval", "forecast", "observed", "observed, outside"]
    np.testing.assert_array_equal(labelled(ax)["observed, outside"].get_xydata(), [[1, 5]])  # 4 lies on its bound
    np.testing.assert_array_equal(labelled(ax)["forecast"].get_ydata(), [1, 2, 3])
    assert {(1, 0), (2, 1), (3, 2), (1, 2), (2, 3), (3, 4)} <= edges_of(ax.collections[0])


def test_intervals_to_compare_with_are_two_lines_and_one_name():
    wide = PredictionInterval(BAND.lower - 1, BAND.upper + 1, coverage=0.9)
    time = np.datetime64("2024-01-01", "h") + np.arange(3)
    ax = axes_of(draw_forecast, time, BAND, prediction=[1, 2, 3], static=wide)
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata().tolist() for line in dashed] == [[-1, 0, 1], [3, 4, 5]]
    assert list(labelled(ax)) == ["90 % interval", "static interval", "forecast"]


@pytest.mark.parametrize("width", [9, 4])
def test_dates_below_the_axis_do_not_run_into_each_other(width):
    time, level = np.datetime64("2024-01-01", "h") + np.arange(120), np.zeros(120)
    interval = PredictionInterval(level - 1, level + 1, coverage=0.9)
    ax = axes_of(draw_forecast, time, interval, prediction=level, size=(width, 3))
    boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    assert len(boxes) >= 3
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_the_asked_coverage_is_drawn_once_and_all_misses_are_in_view():
    ax = Figure().subplots()
    for label, lowest, shown in (("static", 0.95, 0.85), ("live", 0.3, 0.3), ("other", 0.94, 0.3)):
        draw_rolling_coverage(ax, [1, 2], [lowest, 0.96], asked=0.95, label=label)
        np.testing.assert_allclose(ax.get_ylim(), [shown, 1.0])
    assert [list(line.get_ydata()) for line in ax.lines][:2] == [[0.95, 0.95], [0.95, 0.96]]
    assert len(ax.lines) == 4
    assert list(labelled(ax)) == ["static", "live", "other"]


def test_series_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\), \(3,\) and \(3,\)"):
        draw_forecast(Figure().subplots(), [1, 2], BAND, prediction=[1, 2, 3])
    with pytest.raises(ValueError, match=r"one shape \(n,\), got \(2,\) and \(3,\)"):
        draw_rolling_coverage(Figure().subplots(), [1, 2], [0.9, 0.9, 0.9], asked=0.9)


def test_the_mean_by_round_is_solid_while_all_trials_run_and_dotted_after():
    ax = axes_of(draw_rounds, [[3.0, 2.0, 1.0, 1.0], [5.0, 4.0, np.nan, np.nan]], label="RMSE")
    whole, rest = ax.lines
    np.testing.assert_array_equal(whole.get_xydata(), [[1, 4], [2, 3]])
    np.testing.assert_array_equal(rest.get_xydata(), [[2, 3], [3, 1], [4, 1]])  # joined to the last common round
    assert (whole.get_linestyle(), rest.get_linestyle()) == ("-", ":")
    assert list(labelled(ax)) == ["RMSE"]
    assert {(1, 3), (1, 5), (2, 2), (2, 4), (3, 1), (4, 1)} <= edges_of(ax.collections[0])


def test_trials_of_equal_length_have_one_line_and_the_asked_level_another():
    asked, mean = axes_of(draw_rounds, [[0.8, 0.9], [0.9, 1.0]], asked=0.95).lines
    assert list(asked.get_ydata()) == [0.95, 0.95]
    np.testing.assert_allclose(mean.get_ydata(), [0.85, 0.95])
    (point,) = axes_of(draw_rounds, [[2.0]]).lines
    assert (point.get_ydata().tolist(), point.get_marker()) == ([2.0], "o")  # a single round can be seen


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


# Slices. Of 100 rows 60 are inside where 90 were asked for: by more than chance. Of 4 rows 2 may be chance.

SURELY_SHORT, PERHAPS_SHORT = Slice("city", "Oslo", 100, 60), Slice("city", "Rome", 4, 2)
AS_ASKED = Slice("age", "18 to 30", 1000, 900)
FOUND = Slices(0.9, (AS_ASKED, PERHAPS_SHORT, SURELY_SHORT))


def names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_the_worst_slice_is_on_top_and_every_name_has_its_number_of_rows():
    ax = axes_of(draw_slices, FOUND)
    assert names(ax) == ["city: Oslo (100 rows)", "age: 18 to 30 (1,000 rows)"]  # four rows of Rome are too few
    bottom, top = ax.get_ylim()
    assert top < 0 < bottom
    assert names(axes_of(draw_slices, FOUND, most=1)) == ["city: Oslo (100 rows)"]
    assert names(axes_of(draw_slices, Slices(0.9, (Slice("city", "Lima", 1, 1),)))) == ["city: Lima (1 row)"]


def test_a_point_stands_at_the_coverage_with_its_confidence_interval_and_the_band_of_chance():
    # Of 4 rows with probability .9 each: P(at most 1) = .0037, P(at most 2) = .0523; so 2 to 4 inside
    ax = axes_of(draw_slices, Slices(0.9, (PERHAPS_SHORT,)))
    np.testing.assert_allclose(labelled(ax)["reached"].get_xydata(), [[0.5, 0]])
    band, interval = (bars.get_segments()[0] for bars in ax.collections[:2])
    np.testing.assert_allclose(band, [[0.5, 0], [1.0, 0]])
    np.testing.assert_allclose(interval, [[PERHAPS_SHORT.low, 0], [PERHAPS_SHORT.high, 0]])
    assert labelled(ax)["asked, 90 %"].get_xdata() == [0.9, 0.9]
    low, high = ax.get_xlim()
    assert low == 0
    assert high >= 1


def test_only_slices_that_are_short_by_more_than_chance_are_marked_as_such():
    found = labelled(axes_of(draw_slices, FOUND))
    short, others = found["reached, short by more than chance (of 3 slices)"], found["reached"]
    np.testing.assert_allclose(short.get_xydata(), [[0.6, 0]])
    np.testing.assert_allclose(others.get_xydata(), [[0.9, 1]])
    assert short.get_marker() != others.get_marker()
    assert short.get_color() != others.get_color()
    # All slices count, even where few are drawn. At most 79 of 100 with probability .9 each: one look in 1,200.
    part = Slice("city", "Oslo", 100, 79)
    many = Slices(0.9, (part, *[Slice("city", str(k), 100, 90) for k in range(999)]))
    labels = [" ".join(labelled(axes_of(draw_slices, found, most=1))) for found in (Slices(0.9, (part,)), many)]
    assert ["more than chance" in label for label in labels] == [True, False]


def test_twenty_names_of_any_length_do_not_overlap_in_five_inches_and_keep_their_values():
    column = "a column with a name that goes on and on"
    parts = tuple(Slice(column, f"level {k} of very many more", 50, 30 + k) for k in range(20))
    ax = axes_of(draw_slices, Slices(0.9, parts), size=(9, 6))
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[k + 1 :])
    assert all(box.x0 >= 0 for box in boxes)
    assert names(ax)[0] == "a colum…: level 0 of very many mo… (50 rows)"
    assert ax.get_window_extent().width > ax.figure.bbox.width / 3
    legend = ax.get_legend().get_window_extent()
    assert not legend.overlaps(ax.xaxis.label.get_window_extent())
    assert 0 <= legend.x0 < legend.x1 <= ax.figure.bbox.width


@pytest.mark.parametrize(("slices", "most"), [(Slices(0.9, ()), 5), (FOUND, 0)])
def test_nothing_to_draw_is_refused_with_the_way_out(slices, most):
    with pytest.raises(ValueError, match=r"there must be a slice to draw.*cut the rows by a column"):
        draw_slices(Figure().subplots(), slices, most=most)
