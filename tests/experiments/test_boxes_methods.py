"""The methods of Table 3: what each is told, and that a change of it cannot go unseen."""

import json
import pickle
from pathlib import Path

import pytest
from coverwell.experiments.boxes_data import RANDOM_WEIGHTS, TrunkWeights
from coverwell.experiments.boxes_methods import BOX_METHODS, PICTURED, SMALL, STUDY, boxes_configuration
from coverwell.experiments.methods import named_among

from coverwell import MatchedRegressor
from coverwell.networks import ResNet18


def method(slug):
    return named_among(BOX_METHODS, [slug])[0]


def test_names_and_titles_are_unique():
    for name in ("slug", "title"):
        found = [getattr(one, name) for one in BOX_METHODS]
        assert len(set(found)) == len(found)


def test_the_paper_s_methods_and_others_are_studied_and_the_small_one_only_by_name():
    asked = {"hnn", "iqr-fit", "sigma-fit", "mc-dropout", "quantiles", "deep-ensemble"}
    assert {one.slug for one in STUDY} == asked | {"sigma-fit-published", "iqr-fit-published", "sigma-fit-once"}
    assert [one.slug for one in SMALL] == ["small"]
    assert [one.slug for one in PICTURED] == ["sigma-fit", "small"]


@pytest.mark.parametrize("one", BOX_METHODS, ids=lambda one: one.slug)
def test_every_regressor_is_built_with_the_given_weights_and_folder(one):
    weights = TrunkWeights("some/file.pth", "file.pth", layer4=False)
    model = one.build(3, "cpu", weights=weights, features=Path("folder"))
    assert (model.coverage, model.random_state, model.device) == (0.95, 3, "cpu")
    assert (model.network.weights, model.network.cache, model.network.size) == ("some/file.pth", "folder", 224)
    assert one.build(3, "cpu", weights=RANDOM_WEIGHTS, quick=True).network.size == 32
    assert pickle.loads(pickle.dumps(one)).told() == one.told()  # it travels to workers


def test_ours_has_no_settings_but_its_matching():
    for slug, matching in (("sigma-fit", "sigma"), ("iqr-fit", "iqr")):
        network = ResNet18(weights=None, mirror="boxes")
        expected = MatchedRegressor(0.95, matching, network=network, device="cpu", random_state=0)
        assert method(slug).build(0, "cpu").get_params() == expected.get_params()


def test_as_published_leaves_nothing_out_and_uses_neither_ranks_nor_dropout_nor_mirror_images():
    for slug, matching in (("sigma-fit-published", "sigma"), ("iqr-fit-published", "iqr")):
        told = method(slug).build(0, "cpu")
        assert (told.folds, told.calibration, told.interval_loss, told.matching) == (None, None, "paper", matching)
        assert (told.network.dropout, told.network.mirror) == (0.0, None)


def test_the_small_method_has_one_member_and_ranks_of_rows_kept_apart():
    told = method("small").build(0, "cpu")
    assert (told.folds.get_n_splits(), told.repeats, told.calibration) == (1, 1, "split")


def test_the_stored_settings_are_json_name_all_that_could_change_and_no_place_of_this_machine():
    told = boxes_configuration()
    assert json.loads(json.dumps(told)) == told
    assert list(told) == [one.slug for one in BOX_METHODS]
    parameters = told["sigma-fit"]["parameters"]
    assert "auto" not in {value.strip("'") for value in parameters.values()}
    assert parameters["max_rounds"] == repr(ResNet18.usual["max_rounds"])
    assert "weights='imagenet'" in told["hnn"]["network"]
    assert "cache=None" in told["hnn"]["network"]
    assert not {"device", "random_state", "network"} & set(parameters)
