"""The methods of the comparisons: what they build, what is stored about them, and how they are named."""

import inspect
import pickle

import pytest

from coverwell import LSTM, MLP, MatchedRegressor, ResNet18, Schedule
from coverwell.calibration import Split
from coverwell.paper.losses import PaperLoss
from coverwell.regressor import AS_PUBLISHED
from reproduction.methods import BOX_METHODS, SERIES_METHODS, TABLE_METHODS, named

LEVELS = (0.5, 0.9)
KINDS = ("linear", "paper's baseline", "as published", "ours", "extra")
EVERY = [("tables", TABLE_METHODS), ("series", SERIES_METHODS), ("boxes", BOX_METHODS)]
TRAINED = [
    pytest.param(domain, method, id=f"{domain} {method.slug}")
    for domain, methods in EVERY
    for method in methods
    if method.model is not None
]


def method(slug, methods=TABLE_METHODS):
    return next(one for one in methods if one.slug == slug)


@pytest.mark.parametrize(("domain", "methods"), EVERY)
def test_slugs_and_titles_are_different_and_kinds_are_known(domain, methods):
    assert len({one.slug for one in methods}) == len({one.title for one in methods}) == len(methods)
    places = [KINDS.index(one.kind) for one in methods]
    assert places == sorted(places)


@pytest.mark.parametrize(("domain", "one"), TRAINED)
@pytest.mark.parametrize("quick", [False, True])
def test_a_model_is_built_with_the_coverage_seed_and_device_that_are_asked(domain, one, quick):
    model = one.build(LEVELS, 7, "cpu", quick=quick)
    inner = getattr(model, "regressor", model)
    assert (inner.coverage, inner.random_state, inner.device) == (LEVELS, 7, "cpu")
    for name, value in {**one.settings, **(one.quick if quick else {})}.items():
        if name == "calibration_size":
            assert inner.calibration == Split(size=value)
        elif name not in ("calibration", "schedule"):
            assert getattr(inner, name, None) == value or getattr(inner.schedule, name) == value
    assert repr(pickle.loads(pickle.dumps(one))) == repr(one)  # it travels to workers


@pytest.mark.parametrize("one", TABLE_METHODS, ids=lambda one: one.slug)
def test_scores_without_noise_are_announced_where_the_regressor_has_them(one):
    has_them = "noise" in inspect.signature(one.model.predict_interval).parameters
    assert one.epistemic == (has_them and "calibration" not in one.settings)


def test_as_published_leaves_nothing_out_and_calibrates_nothing_afterwards():
    for matching in ("sigma", "iqr"):
        tables, series, boxes = (method(f"{matching}-fit-published", methods) for _, methods in EVERY)
        for model in (tables.build(0.9, 0, "cpu"), series.build(0.95, 0, "cpu").regressor, boxes.build(0.95, 0, "cpu")):
            assert (model.matching, model.folds, model.calibration) == (matching, None, None)
            assert (model.interval_loss, model.shape, model.schedule.max_rounds) == ("paper", "interval", 50)
    assert tables.build(0.9, 0, "cpu").network == AS_PUBLISHED["network"] == MLP(64, layers=5, dropout=0.0, bins=0)
    assert tables.build(0.9, 0, "cpu").schedule == AS_PUBLISHED["schedule"]
    assert tables.one_per_level
    assert tables.n_networks(len(LEVELS)) == 2
    assert series.build(0.95, 0, "cpu").differences is False  # the values themselves
    network = LSTM(hidden=128, layers=2, dropout=0.0, shortcut=False)
    assert series.build(0.95, 0, "cpu").regressor.network == network
    assert (boxes.settings["network"].dropout, boxes.settings["network"].mirror) == (0.0, None)
    assert PaperLoss() == PaperLoss(noise_weight=0.1, sharpness_weight=0.3)


def test_coverwell_is_the_default():
    assert method("coverwell").build(0.9, 0, "cpu").get_params() == {
        **MatchedRegressor(0.9, device="cpu", random_state=0).get_params(),
        "schedule": Schedule(),
    }


def test_sigma_fit_is_the_default_of_the_first_version_and_iqr_fit_too_but_for_its_matching_and_rounds():
    alone = {"companions": [], "calibration": "cross", "schedule": Schedule()}
    default = MatchedRegressor(0.9, device="cpu", random_state=0).get_params() | alone
    networks = {"network": MLP(hidden=128, dropout=0.1), "interval_network": MLP(hidden=128, dropout=0.2)}
    constant = {"mean_epochs": 10, "interval_epochs": 10, "patience": 6, "learning_rate": 1e-3, "growth": 1.0}
    for name, matching, rounds in (("sigma-fit", "sigma", 100), ("iqr-fit", "iqr", 40)):
        schedule = Schedule(max_rounds=rounds, **constant)
        expected = {**default, **networks, "matching": matching, "schedule": schedule}
        assert method(name).build(0.9, 0, "cpu").get_params() == expected
    boxes = {**default, "matching": "iqr", "network": ResNet18(mirror="boxes")}
    assert method("iqr-fit", BOX_METHODS).build(0.9, 0, "cpu").get_params() == boxes


def test_names_may_have_blanks_underscores_and_upper_case_and_come_in_the_known_order():
    assert named("method", ["sigma-fit", "hnn", "iqr-fit"], ["IQR fit", " sigma_fit"]) == ("sigma-fit", "iqr-fit")
    assert named("series", ["air quality", "beijing pm2.5"], ["Beijing-PM2.5"]) == ("beijing pm2.5",)
