"""Boxes are cut at the edges of their images."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coverwell.boxes import clip_boxes
from coverwell.errors import BoxOutsideImageWarning


def test_boxes_are_cut_at_all_four_edges() -> None:
    boxes = np.array([[-3.0, -4.0, 10.0, 10.0], [15.0, 5.0, 10.0, 10.0], [1.0, 1.0, 2.0, 2.0]])
    with pytest.warns(BoxOutsideImageWarning, match="for 2 of 3, first image 0"):
        cut = clip_boxes(boxes, np.array([[20, 12]] * 3))
    assert cut.tolist() == [[0, 0, 7, 6], [15, 5, 5, 7], [1, 1, 2, 2]]


@given(st.lists(st.tuples(*[st.floats(0, 50)] * 2, *[st.floats(0.5, 80)] * 2), min_size=1, max_size=9))
def test_cut_boxes_lie_in_their_images_and_in_their_boxes(rows: list[tuple[float, ...]]) -> None:
    boxes, sizes = np.array(rows), np.full((len(rows), 2), 60)
    past = (boxes[:, :2] + boxes[:, 2:] > 60).any()
    if past:
        with pytest.warns(BoxOutsideImageWarning):
            cut = clip_boxes(boxes, sizes)
    else:
        cut = clip_boxes(boxes, sizes)
    assert (cut[:, :2] == boxes[:, :2]).all()
    assert (cut[:, :2] + cut[:, 2:] <= 60 + 1e-12).all()
    assert (cut[:, 2:] <= boxes[:, 2:] + 1e-12).all()
    assert (cut[:, 2:] > 0).all()


@pytest.mark.parametrize("box", [[np.nan, 0, 1, 1], [0, 0, np.inf, 1], [0, 0, 0, 1], [0, 0, 1, -1]])
@pytest.mark.parametrize("clip", ["warn", "refuse", None])
def test_what_is_no_box_is_refused(box: list[float], clip: str | None) -> None:
    with pytest.raises(ValueError, match="finite, wider and higher than 0; not so for 1 of 1, first image 17"):
        clip_boxes(np.array([box], dtype=np.float64), np.array([[9, 9]]), clip=clip, image_ids=np.array([17]))


def test_a_box_outside_its_image_as_a_whole_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="at least reach into their images; not so for 1 of 1"):
        clip_boxes(np.array([[20.0, 0.0, 5.0, 5.0]]), np.array([[20, 20]]))


def test_a_box_outside_its_image_as_a_whole_is_refused_too_and_kept_only_where_all_are_kept() -> None:
    boxes, sizes = np.array([[20.0, 0.0, 5.0, 5.0]]), np.array([[20, 20]])
    with pytest.raises(ValueError, match="must lie inside their images; not so for 1 of 1"):
        clip_boxes(boxes, sizes, clip="refuse")
    assert clip_boxes(boxes, sizes, clip=None).tolist() == boxes.tolist()


def test_lists_and_data_frames_are_taken() -> None:
    boxes, sizes = [[15, 5, 10, 10], [1, 1, 2, 2]], [[20, 12]] * 2
    for kind in (list, pd.DataFrame):
        with pytest.warns(BoxOutsideImageWarning, match=r"for 1 of 2, first image bird: left 15, .* in 20 x 12 pixels"):
            cut = clip_boxes(kind(boxes), kind(sizes), image_ids=["bird", "nest"])
        assert cut.tolist() == [[15, 5, 5, 7], [1, 1, 2, 2]]
        assert cut.dtype == np.float64


@pytest.mark.parametrize("boxes", [[["left", 0, 1, 1]], [[0, 0, 1], [0, 0, 1, 1]], [[None, 0, 1, {}]]], ids=str)
def test_boxes_that_are_no_numbers_are_refused(boxes: list[Any]) -> None:
    with pytest.raises(ValueError, match="boxes must be an array of numbers, one row for each image"):
        clip_boxes(boxes, [[9, 9]] * len(boxes))
    with pytest.raises(ValueError, match="sizes must be an array of numbers"):
        clip_boxes([[0, 0, 1, 1]], [["wide", 9]])


@pytest.mark.parametrize(("boxes", "sizes"), [((3, 5), (3, 2)), ((3, 4), (2, 2)), ((4,), (1, 2)), ((3, 4), (3, 3))])
def test_boxes_and_sizes_of_other_shapes_are_refused(boxes: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"boxes must be \(image, 4\) and sizes \(image, 2\), got"):
        clip_boxes(np.ones(boxes), np.ones(sizes, dtype=np.int64))
