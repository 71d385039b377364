import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.inputs.scaling import Mirroring

BOXES = np.array([[0.1, 0.2, 0.5, 0.3], [0.0, 0.0, 1.0, 1.0], [0.7, 0.1, 0.2, 0.8]])
numbers = st.floats(-0.5, 1.5)


def test_a_box_by_hand():
    """From 0.1 to 0.6 of the width, seen in a mirror: from 0.4 to 0.9."""
    assert_allclose(Mirroring("boxes").mirrored(np.array([0.1, 0.2, 0.5, 0.3])), [0.4, 0.2, 0.5, 0.3])
    assert_array_equal(Mirroring("same").mirrored(BOXES), BOXES)


@given(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=5))
def test_a_box_mirrored_twice_is_the_box(boxes):
    mirroring, boxes = Mirroring("boxes"), np.array(boxes)
    assert_allclose(mirroring.mirrored(mirroring.mirrored(boxes)), boxes, atol=1e-12)


def test_rows_are_images_each_followed_by_its_mirror_image():
    mirroring = Mirroring("boxes")
    rows = mirroring.rows(BOXES)
    assert_array_equal(rows[::2], BOXES)
    assert_array_equal(rows[1::2], mirroring.mirrored(BOXES))
    for values in (rows, torch.from_numpy(rows)):
        assert_array_equal(mirroring.own(values, axis=0), BOXES)
    features = np.arange(3 * 2 * 4).reshape(3, 2, 4)
    assert_array_equal(mirroring.flat(features)[1::2], features[:, 1])


def test_rows_are_read_in_place():
    features = np.zeros((3, 2, 4, 5), dtype=np.float16)
    assert Mirroring("same").flat(features).base is features


def test_the_mean_of_an_image_is_that_of_both_views():
    mirroring = Mirroring("boxes")
    own, of_mirror_image = [0.1, 0.2, 0.5, 0.3], [0.2, 0.4, 0.6, 0.3]  # back: x = 0.2
    assert_allclose(mirroring.merged(torch.tensor([own, of_mirror_image])), [[0.15, 0.3, 0.55, 0.3]], rtol=1e-6)
    members = torch.from_numpy(np.stack([mirroring.rows(BOXES)] * 2))  # views that agree, (member, row, target)
    assert_allclose(mirroring.merged(members), np.stack([BOXES] * 2))


@pytest.mark.parametrize("n_targets", [1, 3, 5])
def test_boxes_have_four_numbers(n_targets):
    with pytest.raises(ValueError, match=rf"mirror='boxes' needs four targets .* got {n_targets}; give mirror='same'"):
        Mirroring("boxes").check(np.zeros((2, n_targets)))
    Mirroring("same").check(np.zeros((2, n_targets)))


FAR_OUT = np.array([[0.8, 0.1, 0.8, 0.2]])  # ends at 1.6


@pytest.mark.parametrize(
    "boxes", [100 * BOXES, BOXES - 1, BOXES * [1, 100, 1, 100], np.concatenate([*[BOXES] * 9, FAR_OUT])]
)
def test_boxes_in_pixels_are_refused(boxes):
    with pytest.raises(ValueError, match=r"needs boxes in fractions .* divide pixels by the width or height"):
        Mirroring("boxes").check(boxes)


@pytest.mark.parametrize("numbers", [(0.0, 0.3), (0.3, 0.0), (-0.1, 0.3), (0.3, -0.1)])
def test_boxes_without_an_area_are_refused(numbers):
    boxes = np.concatenate([BOXES, [[0.1, 0.2, *numbers]], BOXES])
    with pytest.raises(ValueError, match=r"wider and higher than 0, got 1 of 7 that are not, first image 3 with"):
        Mirroring("boxes").check(boxes)
    Mirroring("same").check(boxes)


def random_boxes(n, seed=0):
    rng = np.random.default_rng(seed)
    sides = rng.uniform(0.1, 0.9, size=(n, 2))
    return np.concatenate([rng.uniform(0, 1 - sides), sides], axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_corners_in_place_of_widths_and_heights_are_refused_by_that_name(seed):
    boxes = random_boxes(50, seed)
    Mirroring("boxes").check(boxes)
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    with pytest.raises(ValueError, match=r"inside their images, got \d+ of 50 .* corners \(x1, y1, x2, y2\), give x2"):
        Mirroring("boxes").check(corners)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_few_boxes_far_past_the_edge_are_an_accident_and_many_are_not(axis):
    """One in ten is the most; both edges count."""
    boxes = random_boxes(50)
    boxes[:5, axis], boxes[:5, axis + 2] = 0.7, 0.45  # ends at 1.15
    Mirroring("boxes").check(boxes)
    boxes[5, axis], boxes[5, axis + 2] = 0.7, 0.45
    with pytest.raises(ValueError, match="got 6 of 50 far past the right or lower edge, first image 0 with x"):
        Mirroring("boxes").check(boxes)
    boxes[:6, axis + 2] = 0.39  # at 1.09
    Mirroring("boxes").check(boxes)
