"""The pictures of Table 3: fractions and pixels, shards, generated rectangles and files of weights."""

import hashlib

import numpy as np
import pytest
import torch
from coverwell.experiments.boxes_data import TARGETS, BoxedPictures, box_problem, data_name, shards_from, trunk_weights

from coverwell.networks.resnet import ResNet18Tail, ResNet18Trunk


def test_fractions_are_of_the_width_for_x_and_w_and_of_the_height_for_y_and_h():
    boxes, sizes = np.array([[50.0, 30.0, 100.0, 60.0]]), np.array([[500, 300]])
    pictures = BoxedPictures(None, boxes, sizes, np.array([7]))
    np.testing.assert_array_equal(pictures.sides, [[500, 300, 500, 300]])
    np.testing.assert_allclose(pictures.fractions, [[0.1, 0.1, 0.2, 0.2]])
    assert TARGETS == ("x", "y", "w", "h")


@pytest.mark.parametrize("half", ["train", "test"])
def test_generated_pictures_are_bright_inside_their_box_and_dark_outside(half):
    pictures = getattr(box_problem(generated=True), half)
    for image, (left, top, width, height) in zip(pictures.images, (32 * pictures.fractions).round(), strict=True):
        inside = np.zeros((32, 32), dtype=bool)
        inside[int(top) : int(top + height), int(left) : int(left + width)] = True
        assert image[:, inside].min() >= 130 > image[:, ~inside].max()
    assert len(pictures) == len(np.unique(pictures.image_ids)) == len(pictures.boxes)
    assert (pictures.boxes[:, :2] + pictures.boxes[:, 2:] <= pictures.sizes + 1e-9).all()


def test_generated_halves_differ_and_are_always_the_same():
    first, second = box_problem(generated=True), box_problem.__wrapped__(generated=True)
    np.testing.assert_array_equal(first.train.images, second.train.images)
    n = len(first.test)
    assert (first.train.images[:n] != first.test.images).any()


def test_shards_of_cub_keep_the_official_split(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    problem = box_problem(("train-0", "test-0"))
    assert (problem.data, len(problem.train), len(problem.test)) == ("cub train-0 test-0", 999, 966)
    assert not set(problem.train.image_ids) & set(problem.test.image_ids)
    for half in (problem.train, problem.test):
        assert 0 <= half.fractions.min() <= half.fractions.max() <= 1
        assert (half.fractions[:, :2] + half.fractions[:, 2:]).max() <= 1 + 1e-12


def test_lines_name_the_pictures():
    assert data_name() == "cub"
    assert data_name(("train-1", "test-2")) == "cub train-1 test-2"
    assert data_name(generated=True) == "generated pictures"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train-9", "test-0"], "a shard must be one of train-0, train-1"),
        (["train-0"], "got no test shard"),
        (["test-0", "test-1"], "got no train shard"),
        (["test-0", "test-0"], "each shard must be named once"),
        ([], "at least one shard must be named"),
    ],
)
def test_shards_that_cannot_be_studied_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        shards_from(names)


def test_weights_are_known_by_name_and_digest_and_say_whether_layer_4_is_there(tmp_path):
    trunk, whole = tmp_path / "trunk.pth", tmp_path / "whole.pth"
    state = ResNet18Trunk().state_dict()
    torch.save(state, trunk)
    torch.save({**state, **ResNet18Tail(n_outputs=10).state_dict()}, whole)
    found = trunk_weights(trunk)
    digest = hashlib.sha256(trunk.read_bytes()).hexdigest()
    assert (found.path, found.name, found.layer4) == (str(trunk), f"trunk.pth (sha256 {digest[:8]})", False)
    assert trunk_weights(whole).layer4


def test_a_file_that_holds_no_resnet_is_refused(tmp_path):
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"other\.pth must hold the weights of a ResNet-18"):
        trunk_weights(tmp_path / "other.pth")
