"""Misses are ordered by how far outside they lie, bins of residuals count every row, and images are small files."""

import base64
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from coverwell.description import describe
from coverwell.evaluation import outcome_of
from coverwell.inputs.images import images_of
from coverwell.report import write_report
from coverwell.report.rows import images, jpeg, misses, misses_of, numbers_of_a_miss, residual_bins, residuals


def test_the_farthest_outside_comes_first_and_rows_inside_are_no_misses(by_hand):
    view = by_hand([0.0, 5.0, -4.0, 1.0], -np.ones(4), np.ones(4)).views[0]
    assert misses_of(view, 10).tolist() == [1, 2]
    assert misses_of(view, 1).tolist() == [1]


def test_a_miss_has_as_many_digits_as_it_needs(by_hand):
    view = by_hand([1000000.52, 28.05838, 3e100], -np.ones(3), [1000000.1, 11.51959, 1.0]).views[0]
    assert numbers_of_a_miss(view, 0) == ["1,000,000.520", "0.000", "-1.000", "1,000,000.100", "0.420"]
    assert numbers_of_a_miss(view, 1) == ["28.1", "0.0", "-1.0", "11.5", "16.5"]
    assert numbers_of_a_miss(view, 2)[0] == "3e+100"


def test_rows_are_named_by_their_numbers_and_shown_with_their_columns(evaluated, flats):
    rows = flats(60, odd_city="Lima", seed=1)
    outcome, described = evaluated(rows, row_numbers=np.arange(101, 161), groups={"block": np.arange(60)})
    table = misses(outcome, described).blocks[1]
    place = int(misses_of(outcome.views[1], 1)[0])
    assert table.heads[-5:] == ["block", "area", "city", "listed", "garden"]
    assert (table.rows[0][0], table.rows[0][6], table.rows[0][8]) == (str(101 + place), str(place), rows["city"][place])
    assert misses(outcome, described).lead["first"] == 1
    assert misses(*evaluated(rows)).lead["first"] == 0


def test_a_target_without_misses_says_so(by_hand, model):
    (block,) = misses(by_hand(np.zeros(20), -np.ones(20), np.ones(20)), describe(model)).blocks
    assert block.text == "No row of rent lies outside its interval."


def test_residuals_of_all_levels_share_one_table(evaluated, flats):
    outcome, described = evaluated(flats(60, seed=1))
    narrow, wide, histogram = residuals(outcome, described).blocks
    assert narrow.chart.table is wide.chart.table
    assert wide.chart.table["inside 1"].tolist() == outcome.views[1].inside.tolist()
    assert {mark.where for mark in wide.chart.marks} == {"", "inside 1", "!inside 1"}
    left_over = outcome.views[0].y - outcome.views[0].prediction
    assert histogram.chart.table["rows"].sum() == 60 - residual_bins(left_over)[2]
    assert f"the mean of the residuals is {left_over.mean():.4g}" in histogram.caption


def test_far_ends_are_left_out_of_the_bins_and_counted():
    values = np.concatenate([np.linspace(-1, 1, 1000), [1e6]])
    counts, edges, n_beyond = residual_bins(values)
    assert counts.sum() == len(values) - n_beyond
    assert n_beyond >= 1
    assert edges[-1] <= 1.0


def test_equal_residuals_are_one_bin():
    counts, edges, n_beyond = residual_bins(np.full(30, 2.0))
    assert (counts.tolist(), edges.tolist(), n_beyond) == ([30], [1.0, 3.0], 0)


@given(values=arrays(np.float64, st.integers(10, 80), elements=st.floats(-1e6, 1e6)))
def test_every_row_is_in_one_bin_or_counted_as_beyond(values):
    counts, _, n_beyond = residual_bins(values)
    assert counts.sum() + n_beyond == len(values)
    assert n_beyond <= 0.05 * len(values) + 1


@pytest.fixture(scope="module")
def of_images(image_model):
    return image_model()


def test_four_fractions_are_boxes_only_if_the_model_or_the_user_says_so(image_model, of_images):
    model, X, y = of_images
    assert [outcome_of(model, X, y, boxes=boxes).boxes for boxes in (None, True)] == [False, True]
    mirrored = image_model(mirror="boxes")
    assert [outcome_of(*mirrored, boxes=boxes).boxes for boxes in (None, False)] == [True, False]
    with pytest.raises(ValueError, match=r"fractions of the images' sides, got values from .* divide them"):
        outcome_of(model, X, 100 * y, boxes=True)
    with pytest.raises(ValueError, match=r"boxes are four targets \(left, top, width, height\), but the model has 3"):
        outcome_of(*image_model(n_targets=3), boxes=True)


def test_the_worst_images_come_first_with_their_boxes_in_fractions_or_their_numbers(of_images):
    outcome, described = outcome_of(*of_images, boxes=True), describe(of_images[0])
    legend, *pictures = images(outcome, described).blocks
    assert [text.split(":")[0] for *_, text in legend.legend] == ["true", "predicted", "inner", "outer"]
    assert len(pictures) == 12
    place = int(pictures[0].caption.split()[1].rstrip(","))
    boxes = {name: values for name, *values in pictures[0].boxes}
    assert boxes["true"] == pytest.approx(outcome.y[place], abs=1e-3)
    assert all(0 <= value <= 1 for values in boxes.values() for value in values)
    first, *_ = images(outcome_of(*of_images), described).blocks
    assert first.boxes == []
    assert "y3: observed" in first.caption


def test_an_image_in_the_page_is_a_small_jpeg_of_what_was_given(of_images):
    given = of_images[1][:1]
    kind, content = jpeg(images_of(given), 0).split(",")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (kind, image.format, image.size) == ("data:image/jpeg;base64", "JPEG", (240, 240))
    assert np.asarray(image, dtype=float).mean() == pytest.approx(given.mean(), abs=6)
    assert len(content) < 60_000


def test_a_report_on_images_shows_them_and_cuts_them_by_group_alone(of_images, tmp_path):
    for groups, sections in (({}, []), ({"camera": np.repeat(["old", "new"], 8)}, ["worst", "slices"])):
        path = tmp_path / "report.html"
        assert write_report(*of_images, path, boxes=True, groups=groups) < 5_000_000
        html = path.read_text("utf-8")
        found = re.findall(r'<section id="(\w+)"', html)
        assert "images" in found
        assert [key for key in found if key in ("worst", "slices", "drift")] == sections
        assert html.count("data:image/jpeg;base64") == 12
        assert ("camera: old" in html) == bool(groups)
