"""The methods of the comparison: their order, how they are named, and what they build."""

import inspect
import json
import pickle
from pathlib import Path

import pytest
from coverwell.experiments.methods import METHODS, configuration, methods_from, one_of_each

LEVELS = (0.5, 0.9, 0.95)
KINDS = ("paper's baseline", "as published", "ours", "extra")
by_slug = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.slug)


def test_slugs_and_titles_are_different_and_kinds_come_one_after_the_other():
    assert len({method.slug for method in METHODS}) == len({method.title for method in METHODS}) == len(METHODS)
    places = [KINDS.index(method.kind) for method in METHODS]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2, 3}


@by_slug
@pytest.mark.parametrize("quick", [False, True])
def test_a_method_builds_models_for_all_levels_with_the_seed_and_device_that_are_asked(method, quick):
    models = method.build(LEVELS, 7, "cpu", quick=quick)
    asked = [model.coverage for model in models]
    assert asked == (list(LEVELS) if method.one_per_level else [LEVELS])
    for model in models:
        assert (model.random_state, model.device) == (7, "cpu")
        for name, value in {**method.settings, **(method.quick if quick else {})}.items():
            assert getattr(model, name) == value


@by_slug
def test_quick_means_less_training(method):
    (full, *_), (quick, *_) = (method.build(LEVELS, 0, "cpu", quick=quick) for quick in (False, True))
    budget = "max_rounds" if hasattr(full, "max_rounds") else "max_epochs"
    assert quick._written_out()[budget] < full._written_out()[budget] / 5


@by_slug
def test_a_method_can_be_sent_to_another_process(method):
    assert pickle.loads(pickle.dumps(method)) == method


@by_slug
def test_a_second_reading_is_announced_where_the_regressor_has_one(method):
    has_one = "noise" in inspect.signature(method.regressor.predict_interval).parameters
    assert method.epistemic == (has_one and "calibration" not in method.settings)


def test_the_published_form_has_one_network_per_level():
    assert [m.slug for m in METHODS if m.one_per_level] == ["sigma-fit-published", "iqr-fit-published"]
    (published,) = methods_from(["sigma-fit-published"])
    assert published.n_networks(len(LEVELS)) == len(LEVELS)


def test_names_may_have_blanks_underscores_and_upper_case_and_come_in_the_tables_order():
    found = methods_from(["IQR fit", " sigma_fit"])
    assert [method.slug for method in found] == ["sigma-fit", "iqr-fit"]


def test_an_unknown_method_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of mc-dropout, .*, quantiles-split; got 'forest'"):
        methods_from(["sigma-fit", "forest"])


def test_names_must_come_once():
    with pytest.raises(ValueError, match="each method must be named once, got sigma-fit"):
        methods_from(["sigma-fit", "hnn", "Sigma Fit"])
    with pytest.raises(ValueError, match="at least one level must be named, got none"):
        one_of_each("level", [])


def test_the_stored_configuration_is_that_of_the_methods():
    path = Path(__file__).parents[2] / "reproduction" / "configuration.json"
    assert json.loads(path.read_text()) == configuration()  # a changed default makes the stored results stale
