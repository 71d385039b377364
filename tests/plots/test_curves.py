"""Curves over the asked coverage: honest axes, and bands below the curves."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from coverwell.plots import CurveStyle, draw_calibration_curve, draw_width_curve

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


def test_a_higher_curve_of_widths_that_comes_later_is_not_cut_off():
    ax = curve_axes(draw_width_curve, ASKED, [1.0, 2.0, 3.0])
    draw_width_curve(ax, ASKED, [2.0, 4.0, 9.0], error=[0.0, 0.0, 2.0])
    draw_width_curve(ax, ASKED, [0.5, 1.0, 2.0])
    low, high = ax.get_ylim()
    assert low == 0
    assert 11 <= high < 12


@pytest.mark.parametrize("width", [0.0, 140.0])
def test_a_single_width_does_not_lie_on_the_edge_of_the_axes(width):
    ax = curve_axes(draw_width_curve, [0.9], [width])
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > width


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


def test_the_band_of_a_single_level_can_be_seen():
    ax = curve_axes(draw_calibration_curve, [0.9], [0.88], band=([0.85], [0.95]), band_label="to expect")
    assert ax.get_legend_handles_labels()[1] == ["to expect"]
    (band,) = ax.collections
    np.testing.assert_array_equal(band.get_segments(), [[[0.9, 0.85], [0.9, 0.95]]])
    assert band.get_linewidth()[0] > ax.lines[-1].get_linewidth()
