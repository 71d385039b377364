"""Measures by round, of trials that end at different rounds."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from coverwell.plots import draw_rounds

ENDS_EARLY = [[3.0, 2.0, 1.0, 1.0], [5.0, 4.0, np.nan, np.nan]]


def rounds_axes(values, **options):
    return draw_rounds(Figure().subplots(), values, **options)


def test_the_mean_by_round_is_solid_while_all_trials_run_and_dotted_after():
    ax = rounds_axes(ENDS_EARLY, label="RMSE")
    whole, rest = ax.lines
    np.testing.assert_array_equal(whole.get_xydata(), [[1, 4], [2, 3]])
    np.testing.assert_array_equal(rest.get_xydata(), [[2, 3], [3, 1], [4, 1]])  # joined to the last common round
    assert (whole.get_linestyle(), rest.get_linestyle()) == ("-", ":")
    assert ax.get_legend_handles_labels()[1] == ["RMSE"]


def test_the_shade_by_round_goes_from_the_lowest_trial_to_the_highest():
    (shade,) = rounds_axes(ENDS_EARLY).collections
    edges = {tuple(point) for point in shade.get_paths()[0].vertices.tolist()}
    assert {(1, 3), (1, 5), (2, 2), (2, 4), (3, 1), (4, 1)} <= edges


def test_trials_of_equal_length_have_one_line_and_the_asked_level_another():
    asked, mean = rounds_axes([[0.8, 0.9], [0.9, 1.0]], asked=0.95).lines
    assert list(asked.get_ydata()) == [0.95, 0.95]
    np.testing.assert_allclose(mean.get_ydata(), [0.85, 0.95])


def test_a_single_round_is_a_point_that_can_be_seen():
    (point,) = rounds_axes([[2.0]]).lines
    assert point.get_ydata().tolist() == [2.0]
    assert point.get_marker() == "o"


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
