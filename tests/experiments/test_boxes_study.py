"""The runs of Table 3: which there are, that a line says what happened, and that features are computed once."""

import json

import numpy as np
import pytest
import torch
from coverwell.experiments.boxes_data import BoxedPictures, TrunkWeights, box_problem, trunk_weights
from coverwell.experiments.boxes_methods import BOX_METHODS, STUDY
from coverwell.experiments.boxes_study import (
    BOX_FIELDS,
    BOX_KEY,
    EXAMPLES,
    BoxGrid,
    Source,
    examples,
    line_of,
    measured,
)
from coverwell.experiments.methods import named_among
from coverwell.experiments.results import ResultsFileError, key_of

from coverwell import PredictionInterval, metrics
from coverwell.networks.resnet import ResNet18Trunk

QUICK = Source(quick=True)


def methods(*slugs):
    return named_among(BOX_METHODS, slugs)


def keys(grid, done=()):
    return [(unit.method.slug, unit.source.data, unit.source.weights.name, unit.trial) for unit in grid.units(done)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Generated pictures seen through a trunk from a file, whose features are kept."""
    folder = tmp_path_factory.mktemp("features")
    torch.manual_seed(0)
    torch.save(ResNet18Trunk().state_dict(), folder / "trunk.pth")
    source = Source(weights=trunk_weights(folder / "trunk.pth"), features=folder / "kept", quick=True)
    grid = BoxGrid(methods("sigma-fit", "sigma-fit-published", "hnn"), source, device="cpu")
    assert grid.keep_features() > 0
    return grid


@pytest.fixture(scope="module")
def line(kept):
    (method,) = methods("sigma-fit")
    return line_of(method, kept.source, 1, device="cpu")


def files(grid):
    return sorted(path.name for path in grid.source.features.iterdir())


# Which runs there are.


def test_every_method_is_run_with_every_seed_and_what_is_done_is_left_out():
    grid = BoxGrid(STUDY, QUICK, trials=2)
    whole = keys(grid)
    assert len(whole) == len(set(whole)) == 2 * len(STUDY)
    assert keys(grid, done=set(whole[::2])) == whole[1::2]
    costs = [unit.cost for unit in grid.units()]
    assert costs == sorted(costs, reverse=True)


def test_results_on_other_pictures_or_from_other_weights_are_refused(box_line):
    whole = Source(weights=TrunkWeights("x.pth", "made-up.pth (sha256 00000000)", layer4=False))
    grid = BoxGrid(methods("hnn"), whole)
    grid.check_same([box_line("hnn")])
    with pytest.raises(ResultsFileError, match=r"results on cub train-0 test-0 with weights made-up.*--out"):
        grid.check_same([box_line("hnn", data="cub train-0 test-0")])
    with pytest.raises(ResultsFileError, match="now cub with weights other"):
        BoxGrid(methods("hnn"), Source(weights=TrunkWeights("y.pth", "other.pth", False))).check_same([box_line("hnn")])


# What is kept.


def test_features_are_kept_once_for_methods_that_see_the_same(kept):
    before = files(kept)
    assert len(before) == 4  # of either half, with mirror images for two methods and without them for one
    kept.keep_features()
    assert files(kept) == before


def test_a_run_computes_no_features_of_its_own(kept, line):
    assert len(files(kept)) == 4


def test_nothing_is_kept_of_a_random_trunk_or_where_all_is_done(kept, tmp_path):
    assert BoxGrid(methods("hnn"), QUICK).keep_features() == 0.0
    nowhere = Source(weights=kept.source.weights, features=tmp_path / "none", quick=True)
    grid = BoxGrid(methods("hnn"), nowhere)
    assert grid.keep_features(done=set(keys(grid))) == 0.0
    assert not (tmp_path / "none").exists()


# What a line says.


def test_a_line_is_json_and_has_all_fields_with_the_key_first(line, kept):
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert set(BOX_FIELDS) <= set(line)
    assert list(line)[1:5] == list(BOX_KEY)
    assert key_of(line, BOX_KEY) == ("sigma-fit", "generated pictures", kept.source.weights.name, 1)
    assert (line["seed"], line["layer4"], line["n_train"], line["n_test"]) == (1, "fresh", 40, 20)


def test_a_line_is_about_the_test_pictures_and_the_seed_decides(line, kept):
    (method,) = methods("sigma-fit")
    model = method.build(1, "cpu", weights=kept.source.weights, features=kept.source.features, quick=True)
    problem = box_problem(generated=True)
    model.fit(problem.train.images, problem.train.fractions)
    prediction, interval = model.predict(problem.test.images), model.predict_interval(problem.test.images)
    joint = model.predict_interval(problem.test.images, joint=True)
    again = measured(problem.test, prediction, interval, joint)
    assert {name: line[name] for name in again} == again
    assert line["joint"]["reached"] == metrics.joint_coverage(problem.test.fractions, *joint)


def test_methods_without_ranks_have_no_joint_boxes_and_only_pictured_ones_have_examples(kept, line):
    (method,) = methods("sigma-fit-published")
    published = line_of(method, kept.source, 0, device="cpu")
    assert published["joint"] is None
    assert "examples" not in published
    assert "examples" in line


# Measures by hand: two pictures of 100 x 50 and 200 x 100 pixels, both boxes in the same fractions.

PICTURES = BoxedPictures(
    None,
    boxes=np.array([[10.0, 5.0, 50.0, 25.0], [20.0, 10.0, 100.0, 50.0]]),
    sizes=np.array([[100, 50], [200, 100]]),
    image_ids=np.array([4, 9]),
)
PREDICTION = np.array([[0.1, 0.1, 0.5, 0.5], [0.2, 0.1, 0.5, 0.5]])  # the second is a tenth too far to the right


def interval(reach):
    return PredictionInterval(PREDICTION - reach, PREDICTION + reach, coverage=0.95, target_names=tuple("xywh"))


def test_measures_are_in_per_cent_of_the_side_and_in_pixels_of_the_original():
    found = measured(PICTURES, PREDICTION, interval(0.05), None)
    assert found["reached"] == [0.5, 1.0, 1.0, 1.0]
    assert found["together"] == 0.5
    assert found["iou"] == pytest.approx((1 + 2 / 3) / 2)  # 4/5 of each box in common: 0.8 / 1.2
    assert found["percent"]["width"] == pytest.approx([10.0] * 4)
    assert found["pixels"]["width"] == pytest.approx([15.0, 7.5, 15.0, 7.5])  # of 10 and 20, 5 and 10
    assert found["percent"]["rmse"] == pytest.approx([10 / np.sqrt(2), 0, 0, 0], abs=1e-12)
    assert found["pixels"]["rmse"] == pytest.approx([20 / np.sqrt(2), 0, 0, 0], abs=1e-12)
    # missed by 5 % of 200 pixels in one of two pictures, at 40 for each
    assert found["pixels"]["interval_score"] == pytest.approx([15 + 200, 7.5, 15, 7.5])


def test_the_constant_width_has_the_coverage_that_was_reached_in_either_unit():
    found = measured(PICTURES, PREDICTION, interval(0.15), None)
    assert found["reached"] == [1.0] * 4
    assert found["percent"]["constant_width"] == pytest.approx([20.0, 0, 0, 0], abs=1e-12)
    assert found["pixels"]["constant_width"] == pytest.approx([40.0, 0, 0, 0], abs=1e-12)
    half = measured(PICTURES, PREDICTION, interval(0.05), None)
    assert half["percent"]["constant_width"][0] == pytest.approx(0, abs=1e-12)  # one of two is covered by no width


def test_examples_are_the_narrowest_the_middle_and_the_widest():
    n = 20
    rng = np.random.default_rng(0)
    sizes = np.full((n, 2), (200, 100))
    pictures = BoxedPictures(None, np.tile([20.0, 10.0, 100.0, 50.0], (n, 1)), sizes, np.arange(n) + 100)
    reach = rng.permutation(n)[:, None] / 100 + np.zeros((1, 4))
    prediction = pictures.fractions + 0.01
    bounds = PredictionInterval(prediction - reach, prediction + reach, coverage=0.95)
    found = examples(pictures, prediction, bounds)
    assert tuple(found) == EXAMPLES
    widths = {name: [one["width_percent"] for one in chosen] for name, chosen in found.items()}
    assert widths == {"narrowest": [0, 2, 4], "median": [16, 18, 20], "widest": [34, 36, 38]}
    widest = found["widest"][-1]
    row = widest["image_id"] - 100
    assert reach[row, 0] == 0.19
    assert (widest["size"], widest["truth"]) == ([200, 100], [20.0, 10.0, 100.0, 50.0])
    np.testing.assert_allclose(widest["lower"], (prediction - reach)[row] * (200, 100, 200, 100), atol=0.005)


def test_equal_widths_are_ordered_by_the_number_of_the_image_and_few_pictures_are_enough():
    found = examples(PICTURES, PREDICTION, interval(0.05))
    assert [[one["image_id"] for one in chosen] for chosen in found.values()] == [[4, 9]] * len(EXAMPLES)
