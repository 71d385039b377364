"""Coverage by part: the worst on top, uncertainty drawn, and the whole axis shown."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from coverwell.plots import draw_slices
from coverwell.slices import Slice, Slices

# Of 100 rows 60 are inside where 90 were asked for: by more than chance. Of 4 rows 2 may be chance.
SURELY_SHORT = Slice("city", "Oslo", 100, 60)
PERHAPS_SHORT = Slice("city", "Rome", 4, 2)
AS_ASKED = Slice("age", "18 to 30", 1000, 900)
FOUND = Slices(0.9, (AS_ASKED, PERHAPS_SHORT, SURELY_SHORT))


def drawn(slices=FOUND, figure=None, **more):
    figure = figure or Figure(figsize=(9, 3), layout="constrained")
    ax = draw_slices(figure.subplots(), slices, **more)
    figure.draw_without_rendering()
    return ax


def names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_the_worst_part_is_on_top_and_every_name_has_its_number_of_rows():
    ax = drawn()
    assert names(ax) == ["city: Oslo (100 rows)", "age: 18 to 30 (1,000 rows)", "city: Rome (4 rows)"]
    bottom, top = ax.get_ylim()
    assert top < 0 < bottom


def test_a_single_row_is_one_row():
    assert names(drawn(Slices(0.9, (Slice("city", "Lima", 1, 1),)))) == ["city: Lima (1 row)"]


def test_points_stand_at_the_coverage_with_bars_to_the_ends_of_the_confidence_interval():
    ax = drawn(Slices(0.9, (AS_ASKED,)))
    (container,) = [one for one in ax.containers if hasattr(one, "has_xerr")]
    np.testing.assert_allclose(container.lines[0].get_xydata(), [[0.9, 0]])
    (bar,) = container.lines[2][0].get_segments()
    np.testing.assert_allclose(bar, [[AS_ASKED.low, 0], [AS_ASKED.high, 0]])


def test_the_band_behind_a_part_is_where_19_of_20_would_lie_by_chance():
    # Of 4 rows with probability .9 each: P(at most 1) = .0037, P(at most 2) = .0523; so 2 to 4 inside
    ax = drawn(Slices(0.9, (PERHAPS_SHORT,)))
    (band,) = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (0.5, 1.0)


def test_only_parts_that_are_short_by_more_than_chance_are_marked_as_such():
    labels = {one.get_label(): one for one in drawn().containers if hasattr(one, "has_xerr")}
    short = labels["reached, short by more than chance (of 3 slices)"]
    others = labels["reached"]
    np.testing.assert_allclose(short.lines[0].get_xydata(), [[0.6, 0]])
    np.testing.assert_allclose(others.lines[0].get_xydata(), [[0.9, 1], [0.5, 2]])
    assert short.lines[0].get_marker() != others.lines[0].get_marker()
    assert short.lines[0].get_color() != others.lines[0].get_color()


def test_how_many_parts_were_looked_at_counts_even_where_few_are_drawn():
    # At most 79 of 100 with probability .9 each: one look in 1,200, so among 1,000 looks it is nothing special.
    part = Slice("city", "Oslo", 100, 79)
    assert (
        "reached, short by more than chance (of 1 slices)" in drawn(Slices(0.9, (part,))).get_legend_handles_labels()[1]
    )
    many = Slices(0.9, (part, *[Slice("city", str(k), 100, 90) for k in range(999)]))
    assert not any("more than chance" in label for label in drawn(many, most=1).get_legend_handles_labels()[1])


def test_the_whole_axis_of_coverage_is_shown_and_the_asked_level_is_a_line():
    ax = drawn(Slices(0.9, (AS_ASKED,)))
    low, high = ax.get_xlim()
    assert low == 0
    assert high >= 1
    assert [list(line.get_xdata()) for line in ax.lines if line.get_label() == "asked, 90 %"] == [[0.9, 0.9]]


def test_at_most_so_many_parts_are_drawn_and_those_are_the_worst():
    assert names(drawn(most=1)) == ["city: Oslo (100 rows)"]


def test_twenty_names_of_any_length_do_not_overlap_in_five_inches():
    parts = tuple(Slice("a column with a long name", f"level {k} of very many more", 50, 30 + k) for k in range(20))
    ax = drawn(Slices(0.9, parts), Figure(figsize=(9, 6), layout="constrained"))
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[k + 1 :])
    assert all(box.x0 >= 0 for box in boxes)
    assert ax.get_window_extent().width > ax.figure.bbox.width / 3
    legend = ax.get_legend().get_window_extent()
    assert not legend.overlaps(ax.xaxis.label.get_window_extent())
    assert 0 <= legend.x0 < legend.x1 <= ax.figure.bbox.width


@pytest.mark.parametrize(("slices", "most"), [(Slices(0.9, ()), 5), (FOUND, 0)])
def test_nothing_to_draw_is_refused_with_the_way_out(slices, most):
    with pytest.raises(ValueError, match=r"there must be a part to draw.*cut the rows by a column"):
        draw_slices(Figure().subplots(), slices, most=most)
