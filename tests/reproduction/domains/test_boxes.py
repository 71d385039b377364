"""The runs on images: which there are, lines that hold what happened, and features that are computed once."""

import hashlib
import json

import numpy as np
import pytest
import torch

from coverwell import PredictionInterval, metrics
from coverwell.networks.resnet import ResNet18Tail, ResNet18Trunk
from reproduction.data.images import BoxedImages
from reproduction.domains.boxes import BoxStudy, Source, TrunkWeights, examples, measured, shards_from, trunk_weights
from reproduction.lines import ResultsFileError, key_of
from reproduction.methods import BOX_METHODS

QUICK = Source(generated=True)


def study(*slugs, source=QUICK, **changes):
    methods = tuple(method for method in BOX_METHODS if method.slug in slugs)
    return BoxStudy(methods, device="cpu", quick=True, source=source, **changes)


def line_of(slug, source, trials=1):
    unit = next(unit for unit in study(slug, source=source, trials=trials).units() if unit.trials == (trials - 1,))
    (line,) = unit.lines()
    return line


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Generated images seen through a trunk from a file, whose features are kept."""
    folder = tmp_path_factory.mktemp("features")
    torch.manual_seed(0)
    torch.save(ResNet18Trunk().state_dict(), folder / "trunk.pth")
    source = Source(weights=trunk_weights(folder / "trunk.pth"), features=folder / "kept", generated=True)
    asked = study("sigma-fit", "sigma-fit-published", "hnn", source=source)
    assert asked.keep_features() > 0
    return asked


@pytest.fixture(scope="module")
def line(kept):
    return line_of("sigma-fit", kept.source, trials=2)


# Images and weights.


@pytest.mark.parametrize("half", ["train", "test"])
def test_generated_images_are_bright_inside_their_box_and_dark_outside(half):
    boxed = getattr(QUICK.problem(), half)
    for image, (left, top, width, height) in zip(boxed.images, (32 * boxed.fractions).round(), strict=True):
        inside = np.zeros((32, 32), dtype=bool)
        inside[int(top) : int(top + height), int(left) : int(left + width)] = True
        assert image[:, inside].min() >= 130 > image[:, ~inside].max()
    assert len(boxed) == len(np.unique(boxed.image_ids))
    assert (boxed.boxes[:, :2] + boxed.boxes[:, 2:] <= boxed.sizes + 1e-9).all()


def test_shards_of_cub_keep_the_official_split(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem = Source(("train-0", "test-0")).problem()
    assert (problem.data, len(problem.train), len(problem.test)) == ("cub train-0 test-0", 999, 966)
    assert not set(problem.train.image_ids) & set(problem.test.image_ids)
    for half in (problem.train, problem.test):
        assert 0 <= half.fractions.min() <= half.fractions.max() <= 1
        assert (half.fractions[:, :2] + half.fractions[:, 2:]).max() <= 1 + 1e-12


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train-9", "test-0"], "a shard must be one of train-0, train-1"),
        (["train-0"], "got no test shard"),
        (["test-0", "test-1"], "got no train shard"),
        (["test-0", "test-0"], "each shard must be named once"),
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
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"other\.pth must hold the weights of a ResNet-18"):
        trunk_weights(tmp_path / "other.pth")


# Which runs there are.


def test_results_on_other_images_or_from_other_weights_are_refused(box_line):
    whole = Source(weights=TrunkWeights("x.pth", "made-up.pth (sha256 00000000)"))
    study("hnn", source=whole).check_same([box_line("hnn")])
    with pytest.raises(ResultsFileError, match=r"results on cub train-0 test-0 with weights made-up.*--out"):
        study("hnn", source=whole).check_same([box_line("hnn", data="cub train-0 test-0")])
    with pytest.raises(ResultsFileError, match="now cub with weights other"):
        study("hnn", source=Source(weights=TrunkWeights("y.pth", "other.pth"))).check_same([box_line("hnn")])


# What is kept.


def test_features_are_kept_once_for_methods_that_see_the_same_and_a_run_computes_none(kept, line):
    before = {path: path.stat().st_mtime_ns for path in kept.source.features.iterdir()}
    assert len(before) == 4  # of either half, with mirror images for two methods and without them for one
    kept.keep_features()
    assert {path: path.stat().st_mtime_ns for path in kept.source.features.iterdir()} == before
    assert study("hnn").keep_features() == 0.0  # nothing is kept of a random trunk


def test_nothing_is_kept_where_all_is_done(kept, tmp_path):
    nowhere = study("hnn", source=Source(weights=kept.source.weights, features=tmp_path / "none", generated=True))
    done = {(unit.method.slug, *unit.place, *unit.trials) for unit in nowhere.units()}
    assert nowhere.keep_features(done) == 0.0
    assert not (tmp_path / "none").exists()


# Lines.


def test_a_line_is_json_and_has_all_fields(line, kept):
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert set(BoxStudy.FIELDS.split()) < set(line)
    assert key_of(line, BoxStudy.key()) == ("sigma-fit", "generated images", kept.source.weights.name, 1)
    assert (line["seed"], line["layer4"], line["n_train"], line["n_test"]) == (1, "fresh", 40, 20)


def test_a_line_is_about_the_test_images_and_the_seed_decides(line, kept):
    method, problem = next(one for one in BOX_METHODS if one.slug == "sigma-fit"), kept.source.problem()
    network = kept.network(method)
    assert (network.weights, network.cache, network.size) == (kept.source.weights.path, str(kept.source.features), 32)
    model = method.build(0.95, 1, "cpu", quick=True, network=network)
    model.fit(problem.train.images, problem.train.fractions)
    prediction, interval = model.predict(problem.test.images), model.predict_interval(problem.test.images)
    joint = model.predict_interval(problem.test.images, joint=True)
    again = measured(problem.test, prediction, interval, joint)
    assert {name: line[name] for name in again} == again
    assert line["joint"]["reached"] == metrics.joint_coverage(problem.test.fractions, *joint)


def test_methods_without_ranks_have_no_joint_boxes_and_only_those_in_the_figure_have_examples(kept, line):
    published = line_of("sigma-fit-published", kept.source)
    assert published["joint"] is None
    assert "examples" not in published
    assert "examples" in line


# Measures by hand: two images of 100 x 50 and 200 x 100 pixels, both boxes in the same fractions.


def boxed(boxes, sizes, image_ids):
    return BoxedImages(
        "made up",
        np.empty(len(boxes)),
        boxes,
        sizes,
        image_ids,
        np.zeros(len(boxes), dtype=bool),
        np.full(len(boxes), "bird"),
    )


IMAGES = boxed(
    boxes=np.array([[10.0, 5.0, 50.0, 25.0], [20.0, 10.0, 100.0, 50.0]]),
    sizes=np.array([[100, 50], [200, 100]]),
    image_ids=np.array([4, 9]),
)
PREDICTION = np.array([[0.1, 0.1, 0.5, 0.5], [0.2, 0.1, 0.5, 0.5]])  # the second is a tenth too far to the right


def interval(half_width):
    return PredictionInterval(PREDICTION - half_width, PREDICTION + half_width, coverage=0.95)


def test_measures_are_in_per_cent_of_the_side_and_in_pixels_of_the_original():
    found = measured(IMAGES, PREDICTION, interval(0.05), None)
    assert found["reached"] == [0.5, 1.0, 1.0, 1.0]
    assert found["together"] == 0.5
    assert found["iou"] == pytest.approx((1 + 2 / 3) / 2)  # 4/5 of each box in common: 0.8 / 1.2
    assert found["percent"]["width"] == pytest.approx([10.0] * 4)
    assert found["pixels"]["width"] == pytest.approx([15.0, 7.5, 15.0, 7.5])  # of 10 and 20, 5 and 10
    assert found["percent"]["rmse"] == pytest.approx([10 / np.sqrt(2), 0, 0, 0], abs=1e-12)
    assert found["pixels"]["rmse"] == pytest.approx([20 / np.sqrt(2), 0, 0, 0], abs=1e-12)
    # missed by 5 % of 200 pixels in one of two images, at 40 for each
    assert found["pixels"]["interval_score"] == pytest.approx([15 + 200, 7.5, 15, 7.5])
    assert found["percent"]["constant_width"][0] == pytest.approx(0, abs=1e-12)  # one of two is covered by no width
    wider = measured(IMAGES, PREDICTION, interval(0.15), None)
    assert wider["reached"] == [1.0] * 4
    assert wider["percent"]["constant_width"] == pytest.approx([20.0, 0, 0, 0], abs=1e-12)
    assert wider["pixels"]["constant_width"] == pytest.approx([40.0, 0, 0, 0], abs=1e-12)


def test_examples_are_the_narrowest_the_middle_and_the_widest():
    n = 20
    rng = np.random.default_rng(0)
    sizes = np.full((n, 2), (200, 100))
    images = boxed(np.tile([20.0, 10.0, 100.0, 50.0], (n, 1)), sizes, np.arange(n) + 100)
    reach = rng.permutation(n)[:, None] / 100 + np.zeros((1, 4))
    prediction = images.fractions + 0.01
    bounds = PredictionInterval(prediction - reach, prediction + reach, coverage=0.95)
    found = examples(images, prediction, bounds)
    widths = {name: [one["width_percent"] for one in chosen] for name, chosen in found.items()}
    assert widths == {"narrowest": [0, 2, 4], "median": [16, 18, 20], "widest": [34, 36, 38]}
    widest = found["widest"][-1]
    row = widest["image_id"] - 100
    assert reach[row, 0] == 0.19
    assert (widest["size"], widest["truth"]) == ([200, 100], [20.0, 10.0, 100.0, 50.0])
    np.testing.assert_allclose(widest["lower"], (prediction - reach)[row] * (200, 100, 200, 100), atol=0.005)
    # Equal widths come in the order of the images' numbers, and few images are enough.
    found = examples(IMAGES, PREDICTION, interval(0.05))
    assert [[one["image_id"] for one in chosen] for chosen in found.values()] == [[4, 9]] * 3
