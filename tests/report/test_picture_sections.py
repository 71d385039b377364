"""Reports on models of pictures: boxes in pictures, as small files inside the page."""

import base64
import io
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from coverwell.report.picture_sections import are_boxes, jpeg
from PIL import Image
from torch import nn

from coverwell import MatchedRegressor
from coverwell.inputs.images import images_of
from coverwell.networks.team import LoopTeam
from coverwell.report import write_report

SIDE = 32


def shown(n):
    """Pictures (n, 3, side, side) with a bright rectangle, and its box in fractions of the sides."""
    rng = np.random.default_rng(0)
    images, boxes = rng.integers(0, 60, (n, 3, SIDE, SIDE), dtype=np.uint8), np.empty((n, 4))
    for image, box in zip(images, boxes, strict=True):
        left, top, width, height = rng.integers(4, 12, 4)
        image[:, top : top + height, left : left + width] = 230
        box[:] = np.array([left, top, width, height]) / SIDE
    return images, boxes


@dataclass(frozen=True)
class Small:
    """A network for pictures that is far faster than a ResNet-18."""

    usual: ClassVar[dict[str, float]] = {"mean_epochs": 2, "interval_epochs": 2, "max_rounds": 1, "repeats": 1}

    size: int = SIDE
    mirror: str | None = None
    cache: str | None = None

    def trunk(self):
        return nn.AvgPool2d(SIDE // 4)

    def build(self, n_members, input_shape, n_outputs):
        n_inputs = math.prod(input_shape)
        members = [nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, n_outputs)) for _ in range(n_members)]
        return LoopTeam(members, n_outputs)


@pytest.fixture(scope="module")
def model():
    images, boxes = shown(24)
    return MatchedRegressor(0.8, network=Small(), folds=2, device="cpu", random_state=0).fit(images, boxes)


def test_four_fractions_are_boxes_only_if_the_model_or_the_user_says_so(model):
    _, boxes = shown(5)
    assert not are_boxes(model, boxes, None)
    assert are_boxes(model, boxes, True)
    images, boxes = shown(24)
    mirrored = MatchedRegressor(0.8, network=Small(mirror="boxes"), folds=2, device="cpu", random_state=0)
    mirrored.fit(images, boxes)
    assert are_boxes(mirrored, boxes, None)
    assert not are_boxes(mirrored, boxes, False)


def test_targets_that_cannot_be_boxes_are_refused(model, tmp_path):
    _, boxes = shown(5)
    with pytest.raises(ValueError, match=r"boxes are four targets \(left, top, width, height\), but the model has 3"):
        are_boxes(model, boxes[:, :3], True)
    with pytest.raises(ValueError, match=r"fractions of the pictures' sides, got values from .* divide them"):
        are_boxes(model, 100 * boxes, True)


def test_four_targets_that_are_no_boxes_are_told_in_numbers(model, tmp_path):
    images, boxes = shown(40)
    write_report(model, images[24:], boxes[24:], tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "outer: what holds them all" not in html
    assert "y3: observed" in html


def test_a_picture_in_the_page_is_a_small_jpeg_of_what_was_given():
    images, _ = shown(1)
    kind, content = jpeg(images_of(images), 0).split(",")
    picture = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (kind, picture.format, picture.size) == ("data:image/jpeg;base64", "JPEG", (240, 240))
    whole = np.asarray(picture, dtype=float).mean()
    assert whole == pytest.approx(images.mean(), abs=6)
    assert len(content) < 60_000


def test_the_report_shows_pictures_and_no_columns(model, tmp_path):
    images, boxes = shown(40)
    assert write_report(model, images[24:], boxes[24:], tmp_path / "report.html", boxes=True) < 5_000_000
    html = (tmp_path / "report.html").read_text("utf-8")
    sections = re.findall(r'<section id="(\w+)"', html)
    assert "pictures" in sections
    assert not {"worst", "slices", "drift"} & set(sections)
    assert html.count("data:image/jpeg;base64") >= 6
    assert "outer: what holds them all" in html


def test_groups_of_pictures_are_slices(model, tmp_path):
    images, boxes = shown(40)
    groups = {"camera": np.repeat(["old", "new"], 8)}
    write_report(model, images[24:], boxes[24:], tmp_path / "report.html", groups=groups)
    html = (tmp_path / "report.html").read_text("utf-8")
    assert {"worst", "slices"} <= set(re.findall(r'<section id="(\w+)"', html))
    assert "camera: old" in html
