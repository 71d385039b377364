"""What all charts share: axes for a caller who has none, and legends that cover nothing."""

import inspect

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from coverwell import PredictionInterval, plots
from coverwell.plots import legend_below

INTERVAL = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 3.0]), coverage=0.9)
DRAWN_FROM_NOTHING = {
    "draw_box": lambda ax: plots.draw_box(ax, [1, 1, 6, 6], [2, 2, 8, 8], prediction=[1, 1, 7, 7], size=[20, 20]),
    "draw_intervals": lambda ax: plots.draw_intervals(ax, INTERVAL, prediction=[1, 2]),
}


@pytest.fixture
def no_figure_left():
    """pyplot keeps figures that it made until they are closed."""
    before = pyplot.get_fignums()
    yield before
    for number in set(pyplot.get_fignums()) - set(before):
        pyplot.close(number)


@pytest.mark.parametrize("draw", DRAWN_FROM_NOTHING.values(), ids=list(DRAWN_FROM_NOTHING))
def test_without_axes_a_new_figure_is_made_and_axes_that_came_are_drawn_on(draw, no_figure_left):
    ax = Figure().subplots()
    assert draw(ax) is ax
    assert pyplot.get_fignums() == no_figure_left
    new = draw(None)
    assert new.has_data()
    assert new is pyplot.gca()
    assert pyplot.get_fignums() != no_figure_left


def test_a_bad_call_leaves_no_empty_figure(no_figure_left):
    with pytest.raises(ValueError, match="one target at one level"):
        plots.draw_intervals(None, INTERVAL, prediction=[1.0])
    assert pyplot.get_fignums() == no_figure_left


def test_the_signature_names_the_axes_first_and_a_description_comes_without_them():
    assert list(inspect.signature(plots.draw_rounds).parameters) == ["ax", "values", "label", "style", "asked"]
    assert plots.draw_rounds.chart([[1.0, 2.0]]).table["value"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("size", [(9, 5), (9, 2), (4, 3)])
def test_a_legend_below_covers_neither_data_nor_labels_and_stays_in_the_figure(size):
    figure = Figure(figsize=size, layout="constrained")
    ax = figure.subplots()
    for place in range(4):
        ax.plot([0, 1], [place, 1], label=f"a name of ordinary length {place}")
    ax.set_xlabel("a label below the ticks")
    legend_below(ax)
    figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    assert not box.overlaps(ax.get_window_extent())
    assert not box.overlaps(ax.xaxis.label.get_window_extent())
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y0 >= 0
