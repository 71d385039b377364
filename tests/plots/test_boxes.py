"""Boxes in images: to scale, cut at the edges, and different without colour."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from coverwell.plots import draw_box, inner_and_outer

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


def test_all_four_boxes_are_drawn_to_scale_and_differ_without_colour():
    ax = with_box(truth=np.array([30.0, 20.0, 70.0, 55.0]))
    boxes = {"true": (30, 20, 70, 55), "predicted": (30, 15, 80, 60)}
    boxes |= {"inner": (40, 20, 40, 40), "outer": (20, 10, 120, 80)}
    assert {name: box_of(ax, name) for name in boxes} == boxes
    looks = {(patch.get_linestyle(), patch.get_linewidth()) for patch in ax.patches if patch.get_label() in boxes}
    assert len(looks) == 4
    assert ax.get_aspect() == 1
    bottom, top = ax.get_ylim()
    assert bottom > 150 > 0 > top  # downwards


def test_the_outer_box_ends_at_the_edge_of_the_image_and_there_may_be_no_inner_one():
    assert box_of(with_box(LOWER - 40, UPPER + 100), "outer") == (0, 0, 200, 150)
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


def test_an_image_fills_the_frame_whatever_its_resolution():
    ax = with_box(image=np.zeros((10, 10, 3)))
    (image,) = ax.images
    assert image.get_extent() == [0, 200, 150, 0]
