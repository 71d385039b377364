"""The whole path from images to intervals: a bright rectangle on noise, whose box is known."""

import copy
import math
import pickle
import shutil
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import Dataset

from coverwell import MLP, MatchedClassifier, MatchedRegressor, ResNet18, load, save
from coverwell.baselines import (
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    NeuralQuantileRegressor,
)
from coverwell.calibration import Split
from coverwell.errors import ImageError, ModelFileError
from coverwell.inputs.source import ImageSource, InputSource, TableSource
from coverwell.networks.team import LoopTeam
from coverwell.options import Schedule

SIDE = 32


def shown(n, seed=0, side=SIDE):
    """Images (n, 3, side, side), and boxes (x, y, width, height) in fractions of the side."""
    rng = np.random.default_rng(seed)
    images, boxes = rng.integers(0, 80, (n, 3, side, side), dtype=np.uint8), np.empty((n, 4))
    for image, box in zip(images, boxes, strict=True):
        width, height = rng.integers(side // 5, side // 2 + 1, 2)
        x, y = rng.integers(0, side - width + 1), rng.integers(0, side - height + 1)
        image[:, y : y + height, x : x + width] = rng.integers(170, 256, (3, 1, 1))
        box[:] = np.array([x, y, width, height]) / side
    return images, boxes


def written(images, folder):
    """Paths of the images as files."""
    paths = [folder / f"{number}.png" for number in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    return paths


class Shelf(Dataset):
    """Images one at a time, counting how often one is asked for."""

    def __init__(self, images, key=None):
        self.images, self.n_asked = images, 0
        if key is not None:
            self.key = key

    def __len__(self):
        return len(self.images)

    def __getitem__(self, position):
        self.n_asked += 1
        return torch.from_numpy(self.images[position])


class Coarse(nn.Module):
    """Brightness in sixteen fields, times a weight: a small frozen trunk."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, images):
        return self.weight * nn.functional.avg_pool2d(images, images.shape[-1] // 4)


@dataclass(frozen=True)
class Small:
    """A recipe of a user's own: far faster than a ResNet-18."""

    defaults: ClassVar[dict[str, float]] = {"mean_epochs": 4, "interval_epochs": 3, "max_rounds": 2, "repeats": 1}

    size: int = SIDE
    mirror: str | None = None
    cache: str | None = None

    def trunk(self):
        return Coarse()

    def build(self, n_members, input_shape, n_outputs):
        n_inputs = math.prod(input_shape)

        def member():
            hidden = nn.Linear(n_inputs, 64)
            return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(64, n_outputs))

        return LoopTeam([member() for _ in range(n_members)], n_outputs)


IMAGES, BOXES = shown(120)
NEW, NEW_BOXES = shown(60, seed=1)
SHORT = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
BRIEF = {"folds": 2, "schedule": SHORT, "device": "cpu", "random_state": 0}


def small(coverage=0.8, **options):
    network = Small(**{name: options.pop(name) for name in ("mirror", "cache") if name in options})
    schedule = Schedule(**{name: options.pop(name) for name in ("max_rounds", "mean_epochs") if name in options})
    options = {"device": "cpu", "random_state": 0, **options}
    return MatchedRegressor(coverage, network=network, schedule=schedule, **options)


def resnet(coverage=0.8, **options):
    network = ResNet18(weights=None, size=SIDE, mirror=options.pop("mirror"))
    return MatchedRegressor(coverage, network=network, **BRIEF | options)


@pytest.fixture(scope="module")
def fitted():
    """A ResNet-18 of few steps, with mirror images."""
    return resnet(mirror="boxes").fit(IMAGES[:40], BOXES[:40])


def mirrored(boxes):
    return np.stack([1 - boxes[:, 0] - boxes[:, 2], *boxes[:, 1:].T], axis=1)


def test_from_files_to_intervals_with_the_users_index(tmp_path):
    frame = pd.DataFrame({"path": written(IMAGES[:30], tmp_path)}, index=[f"bird {n}" for n in range(30)])
    boxes = pd.DataFrame(BOXES[:30], columns=["x", "y", "w", "h"], index=frame.index)
    model = resnet(mirror="boxes", calibration=Split(size=0.4), folds=None).fit(frame, boxes)
    interval = model.predict_interval(frame[10:])
    assert list(interval.index) == list(frame.index[10:])
    assert interval.target_names == ("x", "y", "w", "h")
    assert interval.lower.shape == (20, 4)
    prediction = model.predict(frame[10:])
    assert (interval.lower <= prediction).all()
    assert (prediction <= interval.upper).all()
    joint = model.predict_interval(frame[10:], joint=True)
    assert (joint.width >= interval.width - 1e-12).all()


def test_mirrored_images_have_mirrored_boxes(fitted):
    here, there = fitted.predict(NEW[:12]), fitted.predict(NEW[:12, ..., ::-1].copy())
    assert_allclose(mirrored(there), here, atol=1e-6)
    assert np.abs(there - here)[:, 0].max() > 0.001  # they are not simply all the same


def test_the_same_seed_gives_the_same_bits_and_the_callers_random_state_stays():
    before = torch.random.get_rng_state()
    one, two, other = (small(random_state=seed).fit(IMAGES, BOXES) for seed in (3, 3, 4))
    assert_array_equal(torch.random.get_rng_state(), before)
    assert_array_equal(one.predict(NEW), two.predict(NEW))
    assert one.source_.trunk.weight == two.source_.trunk.weight
    assert one.source_.trunk.weight != other.source_.trunk.weight  # without a file, the trunk is drawn too


@pytest.mark.parametrize("mirror", [None, "boxes"])
@pytest.mark.parametrize("calibration", ["split", "cross"])
def test_intervals_cover_new_images_as_often_as_asked(calibration, mirror):
    n, n_new, asked = 500, 500, 0.8
    images, boxes = shown(n + n_new, seed=5)
    model = small(asked, mirror=mirror, calibration=Split(size=0.4) if calibration == "split" else "cross")
    model.fit(images[:n], boxes[:n])
    n_ranked = int(0.4 * n) if calibration == "split" else n
    # Both the ranks and the new images are a sample. Four of its deviations; "cross" may cover a little more.
    tolerance = 4 * math.sqrt(asked * (1 - asked) * (1 / n_ranked + 1 / n_new))
    more = 0.03 if calibration == "cross" else 0.0
    for joint in (False, True):
        lower, upper = model.predict_interval(images[n:], joint=joint)
        inside = (lower <= boxes[n:]) & (boxes[n:] <= upper)
        reached = inside.all(axis=1).mean() if joint else inside.mean(axis=0)
        assert (np.abs(reached - asked) <= tolerance + more).all(), reached


def heights(boxes):
    """A class for each image, the same in the mirror: where the middle of the box lies."""
    return np.array(["above", "middle", "below"])[np.digitize(boxes[:, 1] + boxes[:, 3] / 2, [0.4, 0.6])]


def classifier(**options):
    schedule = Schedule(mean_epochs=options.pop("mean_epochs", 10))
    known = {"network": Small(mirror="same"), "folds": 3, "schedule": schedule, "device": "cpu", "random_state": 0}
    return MatchedClassifier(options.pop("coverage", 0.8), **known | options)


@pytest.fixture(scope="module")
def classes():
    return classifier(coverage=[0.8, 0.9], mean_epochs=40).fit(IMAGES, heights(BOXES))


def test_a_classifier_learns_from_images_and_a_mirror_image_has_the_same_set(classes):
    y, known = heights(BOXES), classes.out_of_fold_
    most_frequent = max(np.unique(y, return_counts=True)[1]) / len(y)
    assert (classes.classes_[known.probability.argmax(axis=1)] == y).mean() > most_frequent + 0.2
    assert classes.score(NEW, heights(NEW_BOXES)) > most_frequent + 0.2
    (p, sets), (turned, of_turned) = (classes.classified(images) for images in (NEW, NEW[..., ::-1].copy()))
    assert_allclose(turned, p, atol=1e-6)
    assert (sets == of_turned).mean() > 0.99  # I's threshold is that of the image itself
    assert (sets[..., 1] >= sets[..., 0]).all()


@pytest.mark.parametrize("options", [{}, {"network": Small()}, {"calibration": "split"}, {"matching": None}])
def test_sets_cover_new_images_as_often_as_asked(options):
    n, n_new, asked = 500, 500, 0.8
    images, boxes = shown(n + n_new, seed=6)
    model = classifier(coverage=asked, **options).fit(images[:n], heights(boxes[:n]))
    reached = model.predict_set(images[n:], allow_empty=True).contains(heights(boxes[n:])).mean()
    n_ranked, more = (0.2 * n, 0.0) if "calibration" in options else (n, 0.03)  # as of intervals
    assert abs(reached - asked) <= 4 * math.sqrt(asked * (1 - asked) * (1 / n_ranked + 1 / n_new)) + more


def test_every_fold_has_its_share_of_each_class_with_the_mirror_images():
    y = np.repeat(["robin", "wren", "tit"], [30, 12, 6])
    rows = classifier(repeats=2).prepare(IMAGES[:48], y, None, {})
    assert rows.leaves_out.shape == (1, 6, 96)
    places = rows.y[0].argmax(dim=1)  # of classes in their order: robin, tit, wren
    for leaves_out in rows.leaves_out[0]:
        assert torch.bincount(places[leaves_out]).tolist() == [20, 4, 8]
        assert (leaves_out[::2] == leaves_out[1::2]).all()


def test_a_classifier_looks_at_each_image_once():
    shelf = Shelf(IMAGES[:60])
    model = classifier(mean_epochs=1).fit(shelf, heights(BOXES[:60]))
    assert shelf.n_asked == 60
    model.classified(shelf)
    assert shelf.n_asked == 120


def test_a_classifier_of_images_comes_back_from_its_file(tmp_path):
    network = ResNet18(weights=None, size=SIDE, mirror="same")
    model = MatchedClassifier(0.8, network=network, repeats=1, **BRIEF).fit(IMAGES[:40], heights(BOXES[:40]))
    save(model, tmp_path / "birds.safetensors")
    again = load(tmp_path / "birds.safetensors")
    assert_array_equal(again.predict_proba(NEW[:9]), model.predict_proba(NEW[:9]))
    assert_array_equal(np.asarray(again.predict_set(NEW[:9])), np.asarray(model.predict_set(NEW[:9])))


def test_what_a_classifier_of_images_cannot_take_is_refused():
    y = heights(BOXES)
    with pytest.raises(ValueError, match=r"mirror='boxes' needs four targets .* got 1; give mirror='same'"):
        classifier(network=Small(mirror="boxes")).fit(IMAGES, y)
    with pytest.raises(ValueError, match="one entry per image, got 119 for 120 images"):
        classifier().fit(IMAGES, y[1:])
    with pytest.raises(ValueError, match=r"hold_for needs a table .* and images"):
        classifier(hold_for=0).fit(IMAGES, y)
    with pytest.raises(ValueError, match="table; the network takes images"):
        classifier().fit(np.zeros((120, 5)), y)


def test_a_fit_learns_where_the_boxes_are():
    error = np.abs(small(mirror="boxes", mean_epochs=40).fit(IMAGES, BOXES).predict(NEW) - NEW_BOXES).mean(axis=0)
    of_the_mean_box = np.abs(NEW_BOXES - BOXES.mean(axis=0)).mean(axis=0)
    assert (error < of_the_mean_box).all()
    assert (error[:2] < 0.6 * of_the_mean_box[:2]).all()


@pytest.mark.parametrize("mirror", [None, "same", "boxes"])
@pytest.mark.parametrize(("calibration", "folds"), [("cross", 3), ("split", 2), ("split", None), ("cv+", 3), (None, 3)])
def test_every_calibration_takes_images(calibration, folds, mirror):
    groups = None if folds is None else np.arange(len(IMAGES)) // 4
    model = small([0.8, 0.5], calibration=calibration, folds=folds, mirror=mirror, max_rounds=1, matching="iqr")
    model.fit(IMAGES, BOXES, groups=groups)
    interval = model.predict_interval(NEW)
    assert interval.lower.shape == (60, 4, 2)
    assert (interval.lower[..., 0] <= interval.lower[..., 1]).all()  # 0.8 around 0.5
    assert (interval.upper[..., 0] >= interval.upper[..., 1]).all()
    if folds is not None:
        said = model.out_of_fold_.prediction
        assert said.shape == BOXES.shape
        assert np.isnan(said).any() == (calibration == "split")


def test_an_out_of_fold_prediction_is_that_of_the_member_that_left_the_image_out():
    """Each of two members alone predicts what it left out, from both views together."""
    halves = [(np.arange(60, 120), np.arange(60)), (np.arange(60), np.arange(60, 120))]
    model = small(folds=halves, mirror="boxes", max_rounds=1).fit(IMAGES, BOXES)
    for member, (_, left_out) in enumerate(halves):
        alone = copy.deepcopy(model.predictor_)
        (team,) = alone.teams
        team.mean_team = LoopTeam([team.mean_team.members[member]], team.mean_team.n_outputs)
        team.interval_team = LoopTeam([team.interval_team.members[member]], team.interval_team.n_outputs)
        features = model.source_.rows(IMAGES[left_out], model)
        (estimate,) = alone.estimates(features)
        lower, upper = alone.bounds([estimate])
        assert_allclose(model.out_of_fold_.prediction[left_out], estimate.mean, atol=1e-5)
        assert_allclose(model.out_of_fold_.lower[left_out], lower, atol=1e-5)
        assert_allclose(model.out_of_fold_.upper[left_out], upper, atol=1e-5)


@pytest.mark.parametrize("mirror", [None, "same", "boxes"])
def test_the_factor_is_a_rank_of_what_is_said_out_of_fold_about_both_views_together(mirror):
    """In units of its own reach, the k-th image lies on the edge: by ranks worked out from what users can see."""
    model = small(0.8, folds=3, repeats=1, mirror=mirror, max_rounds=1).fit(IMAGES, BOXES)
    said, k = model.out_of_fold_, math.ceil(0.8 * (len(IMAGES) + 1))
    residual = BOXES - said.prediction
    below, above = said.prediction - said.lower[..., 0], said.upper[..., 0] - said.prediction
    score = np.maximum(residual / above, -residual / below)  # 1 on the edge of the stretched interval
    assert_allclose(np.sort(score, axis=0)[k - 1], 1.0, rtol=1e-4)
    joint = np.sort(score.max(axis=1))[k - 1]
    correction = model.predictor_.correction
    of_level = correction.joint_factor[:, [correction.levels.index(0.8)]]
    assert_allclose(of_level, joint * model.factor_, rtol=1e-4)
    (team,) = model.predictor_.fitted_teams
    assert team.shape is None  # local calibration looks at columns: for images it is "cross"
    assert len(team.companions) == 0


def test_what_a_team_of_cv_plus_leaves_out_does_not_touch_it():
    """All teams look at one array of features; other boxes in the first fold leave the first team as it was."""
    changed = BOXES.copy()
    changed[:40] = BOXES[:40][::-1]
    models = [small(calibration="cv+", folds=KFold(3), mirror="boxes", max_rounds=1) for _ in range(2)]
    one, other = (model.fit(IMAGES, y) for model, y in zip(models, (BOXES, changed), strict=True))
    for team, same in enumerate([True, False, False]):
        for name in ("mean_team", "interval_team"):
            mine, yours = (getattr(model.predictor_.teams[team], name).state_dict() for model in (one, other))
            assert all(torch.equal(value, yours[key]) for key, value in mine.items()) == same
    assert (one.predictor_.correction.scores[0] != other.predictor_.correction.scores[0]).any()


@pytest.mark.parametrize("mirror", [None, "boxes"])
def test_training_continues_through_the_same_trunk(mirror):
    model = small(mirror=mirror, warm_start=True, random_state=None, max_rounds=1).fit(IMAGES, BOXES)
    trunk, error = model.source_.trunk, np.abs(model.predict(IMAGES) - BOXES).mean()
    model.set_params(schedule=Schedule(max_rounds=3)).fit(IMAGES, BOXES)
    assert model.source_.trunk is trunk
    assert np.abs(model.predict(IMAGES) - BOXES).mean() < error


def test_a_model_for_tables_cannot_go_on_with_images():
    model = MatchedRegressor(0.8, network=MLP(hidden=4), warm_start=True, **BRIEF).fit(BOXES, BOXES)
    with pytest.raises(ValueError, match=r"warm_start goes on from networks of 4 columns, got \(3, 4, 4\)"):
        model.set_params(network=Small()).fit(IMAGES, BOXES)


def test_auto_is_the_networks_default_and_a_given_number_comes_first():
    training = MatchedRegressor(network=ResNet18(), device="cpu").training_for(5000)
    defaults = ResNet18.defaults
    names = ("mean_epochs", "interval_epochs", "max_rounds", "patience")
    assert [getattr(training.recipe, name) for name in names] == [defaults[name] for name in names]
    assert training.settings.learning_rate == defaults["learning_rate"]
    assert training.settings.batch_size == defaults["batch_size"]
    model = small(mean_epochs=7, folds=3, repeats=2).fit(IMAGES, BOXES)
    assert model.training_for(100).recipe.mean_epochs == 7
    assert model.training_for(100).recipe.interval_epochs == Small.defaults["interval_epochs"]
    assert len(model.rounds_) == Small.defaults["max_rounds"]
    assert model.predictor_.teams[0].n_members == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": "five"}, "folds must be"),
        ({"folds": 1000}, "folds=1000 needs"),
        ({"coverage": 0.999}, "calibration='local' ranks"),
        ({"calibration": Split(size=0.01)}, "calibration='split' keeps"),
    ],
    ids=str,
)
def test_choices_that_cannot_be_are_told_before_an_image_is_read(settings, message):
    shelf = Shelf(IMAGES)
    with pytest.raises(ValueError, match=message):
        small(**settings).fit(shelf, BOXES)
    assert shelf.n_asked == 0


def test_features_are_computed_once_for_all_members_rounds_and_later_fits(tmp_path):
    shelf = Shelf(IMAGES, key="the first 120")
    model = small(mirror="boxes", cache=str(tmp_path)).fit(shelf, BOXES)
    assert shelf.n_asked == len(IMAGES)  # a mirror image is not read again
    assert len(list(tmp_path.iterdir())) == 1
    again = clone(model).fit(shelf, BOXES)
    again.predict(shelf)
    assert shelf.n_asked == len(IMAGES)
    assert_array_equal(again.predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "file"])
def test_a_copy_predicts_the_same_bits(how, fitted, tmp_path):
    if how == "file":
        save(fitted, tmp_path / "model.safetensors")
        copied = load(tmp_path / "model.safetensors")
    else:
        copied = copy.deepcopy(fitted) if how == "deepcopy" else pickle.loads(pickle.dumps(fitted))
    assert_array_equal(copied.predict(NEW), fitted.predict(NEW))
    assert_array_equal(copied.predict_interval(NEW, joint=True).upper, fitted.predict_interval(NEW, joint=True).upper)
    assert copied.network == fitted.network


def test_a_loaded_model_needs_neither_weights_nor_cache(tmp_path):
    state = ResNet18(weights=None).trunk().state_dict()
    torch.save(state, tmp_path / "trunk.pth")
    network = ResNet18(weights=tmp_path / "trunk.pth", cache=tmp_path / "cache", size=SIDE)
    model = HeteroscedasticRegressor(0.8, network=network, max_epochs=1, device="cpu").fit(IMAGES[:20], BOXES[:20])
    assert_array_equal(model.source_.trunk.conv1.weight, state["conv1.weight"])
    prediction = model.predict(NEW[:5])
    save(model, tmp_path / "model.safetensors")
    pickled = pickle.dumps(model)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("on another machine such a folder may be impossible")
    (tmp_path / "trunk.pth").unlink()
    assert_array_equal(load(tmp_path / "model.safetensors").predict(NEW[:5]), prediction)
    assert_array_equal(pickle.loads(pickled).predict(NEW[:5]), prediction)
    assert model.network.cache == str(tmp_path / "cache")  # the model itself keeps it


def test_a_model_with_a_recipe_of_the_users_own_is_loaded_with_it(tmp_path):
    model = small(mirror="boxes").fit(IMAGES, BOXES)
    save(model, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"load\(path, network=...\)"):
        load(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors", network=Small(mirror="boxes"))
    assert_array_equal(again.predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("calibration", [None, "split"])
@pytest.mark.parametrize("kind", [HeteroscedasticRegressor, NeuralQuantileRegressor, DeepEnsembleRegressor])
def test_baselines_take_images(kind, calibration, tmp_path):
    network = Small(mirror="boxes")
    model = kind([0.5, 0.8], network=network, calibration=calibration, max_epochs=30, device="cpu", random_state=0)
    model.fit(IMAGES, BOXES)
    interval = model.predict_interval(NEW)
    assert (interval.lower < interval.upper).all()
    assert_allclose(mirrored(model.predict(NEW[..., ::-1].copy())), model.predict(NEW), atol=1e-6)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors", network=network)
    assert_array_equal(again.predict_interval(NEW).upper, interval.upper)


def test_a_fit_that_fails_leaves_nothing_of_it_nor_of_an_earlier_one(tmp_path):
    paths = written(IMAGES[:20], tmp_path)
    paths[7].write_bytes(paths[7].read_bytes()[:60])
    model = small().fit(IMAGES, BOXES)
    with pytest.raises(ImageError, match=r"nowhere\.png"):
        model.predict([tmp_path / "nowhere.png"])
    assert model.predict(NEW).shape == (60, 4)
    with pytest.raises(ImageError, match=r"7\.png"):
        model.set_params(network=Small(cache=str(tmp_path / "cache"))).fit(paths, BOXES[:20])
    with pytest.raises(NotFittedError):
        model.predict(NEW)
    assert not (tmp_path / "cache").exists()


def test_a_table_is_no_image_and_an_image_no_table():
    with pytest.raises(ValueError, match=r"got \(120, 4\), a table; the network takes images"):
        small().fit(BOXES, BOXES)
    with pytest.raises(ValueError, match=r"takes tables, but X has the shape \(120, 3, 32, 32\).*ResNet18"):
        MatchedRegressor().fit(IMAGES, BOXES)
    model = MatchedRegressor(0.8, network=MLP(hidden=4), **BRIEF).fit(BOXES, BOXES)
    with pytest.raises(ValueError, match="the network takes tables, but X has the shape"):
        model.predict(IMAGES)


@pytest.mark.parametrize(
    ("network", "interval_network", "said"),
    [
        (ResNet18(), MLP(), "must both take images or both take tables"),
        (None, ResNet18(), "must both take images or both take tables"),
        (ResNet18(), ResNet18(size=128), "must have the same size, .* got 224 and 128"),
        (ResNet18(), ResNet18(mirror="same"), "must have the same mirror, .* got None and 'same'"),
        (ResNet18(), ResNet18(weights=None), "must have the same weights, .* got 'imagenet' and None"),
    ],
)
def test_both_networks_see_the_same_images(network, interval_network, said):
    with pytest.raises(ValueError, match=said):
        MatchedRegressor(network=network, interval_network=interval_network).fit(IMAGES, BOXES)


def test_the_source_is_chosen_by_the_network_and_the_interval_network_may_differ_in_what_it_trains():
    for network in (Small(), ResNet18(mirror="same")):
        assert isinstance(InputSource.of(network), ImageSource)
    assert InputSource.of(network, ResNet18(dropout=0.1, mirror="same")).mirroring.targets == "same"
    for network in (None, MLP(), ResNet18, nn.Linear, nn.Linear(2, 3)):
        assert isinstance(InputSource.of(network), TableSource)


@pytest.mark.parametrize(
    ("images", "y", "groups", "said"),
    [
        (IMAGES, BOXES[:-1], None, "y must have one entry per image, got 119 for 120 images"),
        (IMAGES[:1], BOXES[:1], None, "at least 2 images are needed to learn from, got 1"),
        (IMAGES, BOXES, np.zeros(3), "groups must have one entry per row, got 3 for 120 rows"),
        (IMAGES, np.where(BOXES > 0.4, np.nan, BOXES), None, "y contains NaN"),
        (IMAGES, 32 * BOXES, None, "needs boxes in fractions"),
        (IMAGES, np.concatenate([BOXES[:, :2], BOXES[:, :2] + BOXES[:, 2:]], axis=1), None, "these are corners"),
        (IMAGES, BOXES * [1, 1, 1, 0], None, "needs boxes wider and higher than 0, got 120 of 120"),
        (IMAGES, BOXES[:, :3], None, "needs four targets"),
        (IMAGES.transpose(0, 2, 3, 1), BOXES, None, "move the channels"),
    ],
)
def test_bad_images_and_targets_are_refused_before_any_feature_is_computed(images, y, groups, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        small(mirror="boxes", cache=str(tmp_path)).fit(images, y, groups=groups)
    assert list(tmp_path.iterdir()) == []
