import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.calibration import Estimate
from coverwell.inputs.mirroring import NOT_MIRRORED, Mirroring
from coverwell.inputs.scaling import TargetScaler

BOXES = np.array([[0.1, 0.2, 0.5, 0.3], [0.0, 0.0, 1.0, 1.0], [0.7, 0.1, 0.2, 0.8]])
numbers = st.floats(-0.5, 1.5)


def reaches(n_images, n_targets=4, seed=0):
    return np.random.default_rng(seed).uniform(size=(n_images, n_targets, 2, 1))


def test_a_box_by_hand():
    """From 0.1 to 0.6 of the width, seen in a mirror: from 0.4 to 0.9."""
    assert_allclose(Mirroring("boxes").mirrored(np.array([0.1, 0.2, 0.5, 0.3])), [0.4, 0.2, 0.5, 0.3])


@given(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=5))
def test_a_box_mirrored_twice_is_the_box(boxes):
    mirroring, boxes = Mirroring("boxes"), np.array(boxes)
    assert_allclose(mirroring.mirrored(mirroring.mirrored(boxes)), boxes, atol=1e-12)


def test_other_targets_stay_the_same_in_a_mirror():
    assert_array_equal(Mirroring("same").mirrored(BOXES), BOXES)


def test_rows_are_images_each_followed_by_its_mirror_image():
    mirroring = Mirroring("boxes")
    rows = mirroring.rows(BOXES)
    assert_array_equal(rows[::2], BOXES)
    assert_array_equal(rows[1::2], mirroring.mirrored(BOXES))
    assert_array_equal(mirroring.own(rows, axis=0), BOXES)
    features = np.arange(3 * 2 * 4).reshape(3, 2, 4)
    assert_array_equal(mirroring.flat(features)[1::2], features[:, 1])
    assert mirroring.shape_of_row(features) == (4,)


def test_who_trains_on_an_image_trains_on_its_mirror_image():
    mask = np.array([[True, False, True]])
    assert_array_equal(Mirroring("same").repeated(mask, axis=1), [[True, True, False, False, True, True]])


def test_rows_are_read_in_place():
    features = np.zeros((3, 2, 4, 5), dtype=np.float16)
    assert Mirroring("same").flat(features).base is features


def test_the_mean_of_an_image_is_that_of_both_views_and_its_reach_its_own():
    mirroring = Mirroring("boxes")
    own, of_mirror_image = np.array([[0.1, 0.2, 0.5, 0.3]]), np.array([[0.2, 0.4, 0.6, 0.3]])  # back: x = 0.2
    reach = reaches(1)
    said = mirroring.together(np.concatenate([own, of_mirror_image]), reach)
    assert_allclose(said.mean, [[0.15, 0.3, 0.55, 0.3]])
    assert_array_equal(said.reach, reach)


def test_views_that_agree_are_what_they_say():
    mirroring = Mirroring("boxes")
    assert_allclose(mirroring.together(mirroring.rows(BOXES), reaches(3)).mean, BOXES)


def test_in_scaled_units_the_same_is_said():
    mirroring, rng = Mirroring("boxes"), np.random.default_rng(1)
    scaler = TargetScaler.of(mirroring.rows(BOXES), unit_range=False)
    said = Estimate(rng.normal(size=(2, 6, 4)), rng.uniform(size=(2, 6, 4, 2, 1)))  # (member, row, ...)
    joined = mirroring.together_scaled(said, scaler)
    for member in range(2):
        by_hand = mirroring.together(scaler.inverse(said.mean[member]), said.reach[member, ::2])
        assert_allclose(scaler.inverse(joined.mean[member]), by_hand.mean)
        assert_array_equal(joined.reach[member], by_hand.reach)


def test_without_a_mirror_everything_stays_as_it_is():
    said = Estimate(BOXES[None], reaches(3)[None])
    assert NOT_MIRRORED.n_views == 1
    assert NOT_MIRRORED.flat(BOXES) is BOXES
    assert NOT_MIRRORED.rows(BOXES) is BOXES
    assert NOT_MIRRORED.repeated(BOXES, axis=1) is BOXES
    assert NOT_MIRRORED.shape_of_row(BOXES) == (4,)
    assert_array_equal(NOT_MIRRORED.own(torch.arange(6), axis=0), torch.arange(6))
    assert NOT_MIRRORED.together_scaled(said, TargetScaler.of(BOXES, unit_range=True)) is said
    assert NOT_MIRRORED.together(said.mean, said.reach).mean is said.mean


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


def test_boxes_a_little_past_the_edge_are_boxes():
    Mirroring("boxes").check(BOXES + np.array([0.05, 0.0, 0.0, 0.0]))


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
