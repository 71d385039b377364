import ast
import copy
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import nn

from coverwell import MLP, IQRFit, MatchedRegressor, Schedule, SigmaFit, fit_together
from coverwell.calibration import Split
from coverwell.errors import TwoValuesWarning
from coverwell.metrics import interval_score, rmse
from coverwell.options import coverage_rank
from coverwell.paper.losses import PaperLoss, QuantileLoss
from coverwell.paper.matching import BalancedFit, Unmatched
from coverwell.training.learner import outputs_of
from tests.synthetic import LaplaceFit, laws

SMALL = MLP(hidden=16, layers=3, bins=4)
RNG = np.random.default_rng(0)
N = 90
X = RNG.uniform(size=(N, 3))
Y = np.stack([np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=N), 50 * X[:, 1] + 5 * RNG.normal(size=N)], axis=1)
ONE, COLUMN = Y[:, 0], Y[:, :1]
X_NEW = RNG.uniform(size=(25, 3)).clip(X.min(axis=0), X.max(axis=0))
GROUPS = np.repeat(np.arange(18), 5)
EPOCHS = {"mean_epochs": 3, "interval_epochs": 3}
TEN_EPOCHS = {"mean_epochs": 10, "interval_epochs": 10}
LONG = {"max_rounds": 15, "learning_rate": 0.02, "mean_epochs": 5, "interval_epochs": 2}
CALIBRATIONS = ["local", "cross", "cv+", "split", None]
# Networks alone, in rounds of one length: the truths about Algorithm 1.
ALONE = {"companions": (), "calibration": "cross", "growth": 1.0, "learning_rate": 1e-3, "patience": 6}
BESIDE = {"companions": ("forest",), "calibration": "local", "growth": 2.0}


AS_PUBLISHED = {"network": SMALL, "folds": None, "interval_loss": "paper", "shape": "interval", "calibration": None}


def scheduled(options):
    """Options with the numbers of the schedule in one object."""
    numbers = {field.name: options[field.name] for field in fields(Schedule) if field.name in options}
    return {name: value for name, value in options.items() if name not in numbers} | {"schedule": Schedule(**numbers)}


def unfitted(*coverage, **changes):
    defaults = {"network": SMALL, "folds": 3, "repeats": 1, "max_rounds": 2, "random_state": 0} | EPOCHS | ALONE
    return MatchedRegressor(*coverage, **scheduled(defaults | changes))


def fitted(*coverage, y=ONE, x=X, groups=None, **changes):
    return unfitted(*coverage, **changes).fit(x, y, groups=groups)


def assert_usable(model, x=X_NEW, shape=(25,)):
    """The model predicts finite numbers inside finite intervals."""
    lower, upper = model.predict_interval(x)
    y_hat = model.predict(x)
    assert y_hat.shape == lower.shape == upper.shape == shape
    assert np.isfinite(y_hat).all()
    assert np.isfinite(upper - lower).all()
    assert (lower < upper).all()
    assert (lower <= y_hat).all()  # where local quantiles lie on one side of the prediction, it is an end
    assert (y_hat <= upper).all()


def assert_same_bits(one, other, x=X_NEW):
    assert_array_equal(one.predict(x), other.predict(x))
    for bound, same in zip(one.predict_interval(x), other.predict_interval(x), strict=True):
        assert_array_equal(bound, same)


# Shapes and levels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_intervals_are_nested_in_every_row(calibration, matching):
    levels = [0.8, 0.2, 0.9, 0.5]
    model = fitted(levels, matching, y=Y, calibration=Split(0.4) if calibration == "split" else calibration)
    for joint in (False, True) if calibration else (False,):
        lower, upper = model.predict_interval(np.vstack([X, X_NEW]), joint=joint)
        inside_out = np.argsort(levels)
        assert (np.diff(lower[..., inside_out]) <= 0).all()
        assert (np.diff(upper[..., inside_out]) >= 0).all()


def test_several_targets_are_predicted_each_in_its_own_unit():
    model = fitted(y=Y, **LONG)
    error = np.sqrt(((model.predict(X) - Y) ** 2).mean(axis=0))
    assert (error < 0.5 * Y.std(axis=0)).all()
    width = model.predict_interval(X).width.mean(axis=0)
    assert width[1] > 10 * width[0]


# What can be chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "matching", ["sigma", "iqr", None, SigmaFit(match_weight=0.1), IQRFit(match_weight=0.1), Unmatched(), LaplaceFit()]
)
def test_every_matching_fits(matching):
    assert_usable(fitted(matching=matching))
    assert_usable(fitted([0.5, 0.8], matching, y=Y, calibration="split").set_params(coverage=0.8), shape=(25, 2))


def with_batch_norm(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, n_outputs))


def two_layers(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))


@pytest.mark.parametrize("network", [MLP(hidden=4, layers=2, bins=0), two_layers, with_batch_norm, nn.Linear])
@pytest.mark.parametrize("calibration", ["cross", "cv+"])
def test_a_network_is_a_recipe_or_a_factory(network, calibration):
    model = fitted(y=Y, network=network, calibration=calibration)
    assert_usable(model, shape=(25, 2))
    assert_same_bits(model, fitted(y=Y, network=network, calibration=calibration))
    assert_same_bits(model, copy.deepcopy(model))


def test_a_factory_learns():
    model = fitted(x=X, y=50 * X[:, 1], network=with_batch_norm, **LONG)
    assert model.score(X, 50 * X[:, 1]) > 0.9


def hidden_size(team):
    return team.linears[0].weight.shape[-1]


def test_the_interval_network_is_the_given_one_or_that_of_the_mean():
    own = fitted(network=SMALL, interval_network=MLP(hidden=5)).predictor_.fitted_teams[0]
    assert (hidden_size(own.mean_team), hidden_size(own.interval_team)) == (16, 5)
    same = fitted(network=SMALL).predictor_.fitted_teams[0]
    assert (hidden_size(same.mean_team), hidden_size(same.interval_team)) == (16, 16)
    mixed = fitted(network=SMALL, interval_network=two_layers)
    assert_usable(mixed)


@pytest.mark.parametrize("interval_loss", ["quantile", "paper"])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_every_interval_loss_goes_with_every_calibration(interval_loss, calibration):
    model = fitted([0.5, 0.8], y=Y, interval_loss=interval_loss, calibration=calibration)
    assert_usable(model.set_params(coverage=0.8), shape=(25, 2))


def test_weights_of_the_published_loss_matter():
    losses = [
        fitted(interval_loss=PaperLoss(sharpness_weight=weight)).rounds_[-1].interval_loss for weight in (0.1, 1.0)
    ]
    assert losses[0] < losses[1]
    steep = [fitted(interval_loss=QuantileLoss(steepness)).predict_interval(X_NEW).width for steepness in (1.0, 100.0)]
    assert (steep[0] != steep[1]).any()


def measures_of(model):
    """What the rounds record, but for the time they took."""
    return [{**asdict(one), "seconds": None} for one in model.rounds_]


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_shapes_share_the_prediction_and_the_rounds_and_differ_in_the_bounds(calibration):
    both, interval = (fitted([0.5, 0.8], y=Y, shape=shape, calibration=calibration) for shape in ("both", "interval"))
    assert_array_equal(both.predict(X_NEW), interval.predict(X_NEW))
    np.testing.assert_equal(measures_of(both), measures_of(interval))
    for bound, other in zip(both.predict_interval(X_NEW), interval.predict_interval(X_NEW), strict=True):
        assert (bound != other).all()
    assert_same_bits(both, fitted([0.5, 0.8], y=Y, calibration=calibration))  # the default


@pytest.mark.parametrize("folds", [3, None])
def test_without_ranks_both_shapes_are_that_of_i(folds):
    """Only I is trained to cover: nothing else would set the size of the combined shape."""
    both, interval = (fitted([0.5, 0.8], folds=folds, calibration=None, shape=s) for s in ("both", "interval"))
    assert_same_bits(both, interval)
    if folds is not None:
        assert_array_equal(both.out_of_fold_.upper, interval.out_of_fold_.upper)


@pytest.mark.parametrize("matching", ["iqr", None, LaplaceFit()])
def test_where_f_has_no_half_width_of_its_own_both_shapes_are_that_of_i(matching):
    assert_same_bits(fitted(matching=matching, shape="both"), fitted(matching=matching, shape="interval"))


def test_the_shape_of_both_is_the_geometric_mean_of_those_of_the_two_networks():
    # One network each: but for the factor of the ranks, nothing but the shape is between networks and bounds.
    literal = {"folds": None, "repeats": 1, "calibration": "split"}
    both, interval = (fitted(0.8, shape=shape, **literal) for shape in ("both", "interval"))
    (team,) = both.predictor_.fitted_teams
    x = team.inputs(torch.from_numpy(X_NEW))[None]
    outputs = outputs_of(team.mean_team, x, torch.float64)[0].numpy()
    sigma = (np.log1p(np.exp(outputs[:, 1])) + 1e-4) * team.targets.spread[0].item()
    prediction = interval.predict(X_NEW)
    for bound, of_interval in zip(both.predict_interval(X_NEW), interval.predict_interval(X_NEW), strict=True):
        half_width_of_interval = np.abs(of_interval - prediction) / interval.factor_
        by_hand = both.factor_ * np.sqrt(half_width_of_interval * 1.2815515655446004 * sigma)
        assert_allclose(np.abs(bound - prediction), by_hand[0], rtol=1e-9)


@pytest.mark.parametrize("shape", ["both", "interval"])
def test_as_many_training_rows_are_inside_their_out_of_fold_intervals_as_the_ranks_ask_for(shape):
    """So what `fit` ranks has the shape of what is shown. With one repeat there is no step to a larger team."""
    levels = [0.5, 0.8, 0.9]
    model = fitted(levels, shape=shape)
    view = model.out_of_fold_
    inside = (view.lower - 1e-6 <= ONE[:, None, None]) & (ONE[:, None, None] <= view.upper + 1e-6)
    assert_array_equal(inside.sum(axis=0)[0], [coverage_rank(level, N) for level in levels])


@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_the_intervals_of_the_form_as_published_are_those_that_i_has_learned(matching):
    """The last round, which is kept, was measured on the training rows."""
    model = MatchedRegressor(0.8, matching, random_state=0, schedule=Schedule(max_rounds=4, growth=1.0), **AS_PUBLISHED)
    assert_usable(model.fit(X, ONE))
    assert model.out_of_fold_ is None
    assert_array_equal(model.factor_, [[1.0]])
    assert_allclose(model.predict_interval(X).width.mean(), model.rounds_[-1].width, rtol=1e-5)
    ranked = clone(model).set_params(calibration="split").fit(X, ONE)  # with ranks added, still without F
    assert_same_bits(ranked, clone(ranked).set_params(shape="interval").fit(X, ONE))


@dataclass(frozen=True)
class InsideOut(LaplaceFit):
    """A user's strategy with a half-width of its own: wider above than below, and wrongly wider at lower levels."""

    def half_width(self, outputs, n_targets, levels):
        below = self.b(outputs, n_targets)[..., None] / levels.coverage[:, None, None, :]
        return torch.stack([below, 9 * below], dim=-2)


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_a_strategy_of_the_users_may_have_a_half_width_of_its_own(calibration):
    levels = [0.2, 0.5, 0.8]
    model = fitted(levels, InsideOut(), calibration=calibration)
    lower, upper = model.predict_interval(X_NEW)
    assert (np.diff(lower) <= 0).all()  # nested all the same
    assert (np.diff(upper) >= 0).all()
    by_interval = fitted(levels, InsideOut(), calibration=calibration, shape="interval").predict_interval(X_NEW)
    centre = model.predict(X_NEW)[:, None]
    lean, lean_of_interval = (
        np.mean((i.upper - centre) / i.width) for i in (model.predict_interval(X_NEW), by_interval)
    )
    assert lean > lean_of_interval + 0.1


def test_the_documented_defaults_are_those_of_the_constructor():
    entries = re.findall(r"^ +([\w, ]+) : .*default=(\S+)$", MatchedRegressor.__doc__, flags=re.MULTILINE)
    documented = {name: ast.literal_eval(value) for names, value in entries for name in names.split(", ")}
    assert (documented["shape"], documented["calibration"]) == ("both", "local")
    parameters = inspect.signature(MatchedRegressor).parameters
    assert documented == {name: parameters[name].default for name in documented}


@pytest.mark.parametrize(
    ("folds", "groups", "n_members"),
    [
        (4, None, 4),
        (4, GROUPS, 4),
        (KFold(4), None, 4),
        (KFold(4, shuffle=True, random_state=0), None, 4),
        (GroupKFold(4), GROUPS, 4),
        (LeaveOneGroupOut(), GROUPS // 6, 3),
        (PredefinedSplit(GROUPS % 4), None, 4),
        (PredefinedSplit(np.where(GROUPS < 5, -1, GROUPS % 4)), None, 4),
        (ShuffleSplit(4, test_size=0.3, random_state=0), None, 4),
        (TimeSeriesSplit(4), None, 4),
        (list(KFold(4).split(X)), None, 4),
    ],
)
@pytest.mark.parametrize("repeats", [1, 2])
def test_folds_are_a_number_or_a_splitter(folds, groups, n_members, repeats):
    model = fitted(0.8, folds=folds, groups=groups, repeats=repeats)
    assert model.predictor_.fitted_teams[0].mean_team.n_members == n_members * repeats
    assert model.predictor_.fitted_teams[0].interval_team.n_members == n_members * repeats
    assert_usable(model)


def test_with_groups_the_intervals_are_for_groups_not_seen():
    """Rows of a group share a shift, which can be learned from rows of the group and from nothing else."""
    rng = np.random.default_rng(0)
    x, y = np.eye(18)[GROUPS], 3 * rng.normal(size=18)[GROUPS] + 0.1 * rng.normal(size=N)
    network = MLP(hidden=16, layers=2, bins=0, dropout=0.0)
    of_rows, of_groups = (
        fitted(x=x, y=y, groups=g, network=network, **LONG).predict_interval(x).width for g in (None, GROUPS)
    )
    assert of_groups.mean() > 3 * of_rows.mean()


def test_batches_can_be_of_any_size():
    for batch_size in (1, 7, 10_000, "auto"):
        assert_usable(fitted(batch_size=batch_size, mean_epochs=1, interval_epochs=1, max_rounds=1))


# Data frames ---------------------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(X, columns=["rooms", "age", "tax"], index=[f"house {i}" for i in range(N)])
NEW_FRAME = pd.DataFrame(X_NEW, columns=FRAME.columns, index=[f"new {i}" for i in range(25)])
PRICES = pd.DataFrame(Y, columns=["price", "rent"], index=FRAME.index)


def test_pandas_keeps_names_and_index():
    model = fitted([0.8, 0.5], x=FRAME, y=PRICES)
    assert_array_equal(model.feature_names_in_, ["rooms", "age", "tax"])
    assert model.n_features_in_ == 3
    assert model.target_names_ == ("price", "rent")
    interval = model.predict_interval(NEW_FRAME)
    table = interval.to_frame()
    assert list(table.index) == list(NEW_FRAME.index)
    assert_array_equal(table["rent", 0.5, "upper"], interval.upper[:, 1, 1])


def test_pandas_and_numpy_give_the_same_bits():
    model = fitted(x=FRAME, y=PRICES["price"], **BESIDE)
    assert_array_equal(model.predict(NEW_FRAME), fitted(**BESIDE).predict(X_NEW))
    assert model.predict_interval(NEW_FRAME).to_frame().columns[0] == ("price", 0.9, "lower")


def test_wrong_names_are_refused():
    model = fitted(x=FRAME)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(NEW_FRAME.rename(columns={"tax": "noise"}))
    with pytest.raises(ValueError, match="same order"):
        model.predict_interval(NEW_FRAME[["tax", "age", "rooms"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X_NEW)


def test_lists_in_work():
    model = unfitted().fit(X.tolist(), ONE.tolist())
    assert_same_bits(model, fitted())
    table = model.predict_interval(X_NEW.tolist()).to_frame()
    assert list(table.index) == list(range(25))
    assert list(table.columns) == [("y", 0.9, "lower"), ("y", 0.9, "upper")]


def test_numbers_of_other_types_are_numbers():
    whole, y = (100 * X).astype(int), (10 * ONE).astype(int)
    expected = fitted(x=whole.astype(float), y=y.astype(float)).predict(whole)
    assert_array_equal(fitted(x=whole, y=y).predict(whole), expected)
    assert_array_equal(fitted(x=whole.astype(np.float32), y=y.astype(np.float32)).predict(whole), expected)
    assert_array_equal(fitted(x=whole.astype(object), y=y.astype(object)).predict(whole), expected)
    with pytest.warns(TwoValuesWarning):
        lower, upper = fitted(y=ONE > 0, **BESIDE).predict_interval(X)
    assert set(np.concatenate([lower, upper])) <= {0.0, 1.0}  # two values, so both ends are
    assert (lower <= upper).all()


# Rounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_fit_leaves_one_record_per_round(calibration):
    rounds = fitted(0.8, y=Y[:, 1], calibration=calibration, max_rounds=3, **TEN_EPOCHS).rounds_
    assert len(rounds) == 3
    for single in rounds:
        assert all(type(value) is float for value in vars(single).values())
        assert 0 <= single.coverage <= 1
        assert min(single.rmse, single.width, single.interval_score, single.seconds) > 0
    assert rounds[-1].mean_loss < rounds[0].mean_loss


@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_the_best_round_is_restored_and_so_no_round_was_better_out_of_fold(matching):
    levels = np.array([0.5, 0.8])
    keen = {"network": MLP(hidden=32, dropout=0.0, bins=8), "learning_rate": 0.01, "max_rounds": 12, "patience": 99}
    model = fitted(levels, matching, repeats=2, **keen, **TEN_EPOCHS)
    rounds, view = model.rounds_, model.out_of_fold_
    best = min(single.rmse for single in rounds)
    assert_allclose(rmse(ONE, view.prediction[:, 0]), best, rtol=1e-5)
    assert rounds[-1].rmse > 1.01 * best  # or nothing was tested
    # The out-of-fold bounds are stretched by the factor; undone, they are those of training.
    centre = view.prediction[:, :, None]
    lower, upper = (centre + (bound - centre) / model.factor_ for bound in (view.lower, view.upper))
    score = np.mean([interval_score(ONE, lower[:, 0, k], upper[:, 0, k], p) * (1 - p) for k, p in enumerate(levels)])
    scores = [((1 - levels) * single.interval_score).mean() for single in rounds]
    assert score <= min(scores) * 1.02  # around the best F, which need not be that of I's best round
    assert scores[-1] > 1.05 * min(scores)


def test_a_single_round_is_measured_out_of_fold_and_improved_by_the_closing_rounds_alone():
    levels = np.array([0.5, 0.8])
    model = fitted(levels, None, y=Y, repeats=2, max_rounds=1, calibration=None, **TEN_EPOCHS)
    (single,), view = model.rounds_, model.out_of_fold_
    assert_allclose(single.rmse, rmse(Y, view.prediction), rtol=1e-5)
    assert single.coverage.shape == single.width.shape == single.interval_score.shape == (2, 2)
    scores = [interval_score(Y, view.lower[..., k], view.upper[..., k], p) for k, p in enumerate(levels)]
    weight = (1 - levels) / Y.std(axis=0)[:, None]  # (target, level): what makes targets and levels weigh alike
    assert (np.stack(scores, axis=-1) * weight).mean() <= (single.interval_score * weight).mean() * (1 + 1e-5)


# scikit-learn's ways -------------------------------------------------------------------------------------------------


def test_it_works_in_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), unfitted(0.8))
    pipeline.fit(X, ONE)
    assert pipeline.predict(X_NEW).shape == (25,)
    assert np.isfinite(pipeline.score(X, ONE))
    lower, upper = pipeline[-1].predict_interval(pipeline[:-1].transform(X_NEW))
    assert (lower < upper).all()


def test_grid_search_finds_the_longer_training():
    search = GridSearchCV(
        unfitted(**LONG), {"schedule__max_rounds": [1, 8], "matching": ["sigma", IQRFit()]}, cv=KFold(2)
    )
    search.fit(X, ONE)
    assert search.best_params_["schedule__max_rounds"] == 8
    assert_usable(search.best_estimator_)


def test_groups_are_routed_by_scikit_learn():
    with sklearn.config_context(enable_metadata_routing=True):
        model = unfitted().set_fit_request(groups=True)
        scores = cross_val_score(model, X, ONE, cv=GroupKFold(2), params={"groups": GROUPS})
    train, test = next(GroupKFold(2).split(X, groups=GROUPS))
    by_hand = fitted(x=X[train], y=ONE[train], groups=GROUPS[train])
    assert_allclose(scores[0], by_hand.score(X[test], ONE[test]))


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_pickles_and_copies_predict_the_same_bits(calibration):
    model = fitted([0.5, 0.8], y=Y, companions=("forest",), calibration=calibration)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_same_bits(model, other)
        assert other.get_params() == model.get_params()
        assert len(other.rounds_) == len(model.rounds_)


def test_a_pickle_leaves_the_model_on_its_device():
    model = fitted(y=Y, companions=("forest",))
    assert model.__getstate__()["predictor_"] is model.predictor_  # on the CPU, nothing is copied
    before = {name: (id(tensor), tensor.device) for name, tensor in model.predictor_.state_dict(keep_vars=True).items()}
    elsewhere = model.predictor_.copied_to(torch.device("meta"))  # as a pickle does from a GPU to the CPU
    after = {name: (id(tensor), tensor.device) for name, tensor in model.predictor_.state_dict(keep_vars=True).items()}
    assert after == before
    found = elsewhere.state_dict(keep_vars=True)
    assert found.keys() == before.keys()
    assert {tensor.device.type for tensor in found.values()} == {"meta"}
    kept = model.predictor_.state_dict(keep_vars=True)
    assert all(type(found[name]) is type(kept[name]) for name in found)


def test_parameters_can_be_set_and_fit_does_not_change_them():
    model = unfitted().set_params(coverage=[0.5, 0.9], matching="iqr", schedule__max_rounds=1)
    before = model.get_params()
    model.fit(X, ONE)
    assert model.get_params() == before
    assert len(model.rounds_) == 1
    assert model.predict_interval(X_NEW).coverage == (0.5, 0.9)
    model.set_params(schedule__max_rounds=2).fit(X, ONE)
    assert len(model.rounds_) == 2


def test_a_refit_forgets_the_first_fit():
    model = fitted([0.5, 0.8], x=FRAME, y=PRICES, calibration="cv+")
    model.set_params(coverage=0.9, calibration="cross").fit(X, ONE)
    assert_same_bits(model, fitted())
    assert not hasattr(model, "feature_names_in_")
    assert vars(model).keys() == vars(fitted()).keys()


# Randomness, threads and what is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split"])
@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(calibration, matching):
    changes = {"companions": ("forest",), "calibration": calibration}
    first, again, other = (fitted(0.8, matching, random_state=seed, **changes) for seed in (0, 0, 1))
    assert_same_bits(first, again)
    assert [r.interval_score for r in first.rounds_] == [r.interval_score for r in again.rounds_]
    assert (first.predict(X_NEW) != other.predict(X_NEW)).all()
    assert (first.predict_interval(X_NEW).width != other.predict_interval(X_NEW).width).all()


def test_a_random_state_object_is_drawn_from_and_none_is_random():
    assert_same_bits(fitted(random_state=np.random.RandomState(0)), fitted(random_state=0))
    state = np.random.RandomState(0)
    first, second = fitted(random_state=state), fitted(random_state=state)
    assert (first.predict(X_NEW) != second.predict(X_NEW)).all()
    assert (fitted(random_state=None).predict(X_NEW) != fitted(random_state=None).predict(X_NEW)).all()


def test_fresh_processes_give_the_same_bits():
    script = """
        import hashlib
        import numpy as np
        import torch
        from coverwell import MLP, MatchedRegressor, Schedule

        torch.set_num_threads(1)
        rng = np.random.default_rng(5)
        X, y = rng.uniform(size=(60, 3)), rng.normal(size=60)
        schedule = Schedule(max_rounds=2)
        model = MatchedRegressor(network=MLP(hidden=8), folds=3, repeats=2, schedule=schedule, random_state=7).fit(X, y)
        parts = [model.predict(X), *model.predict_interval(X)]
        print(hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    one, other = (subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2))
    assert one == other


def test_the_callers_random_states_and_threads_are_left_alone():
    torch.manual_seed(11)
    torch_before, numpy_before = torch.get_rng_state(), np.random.mtrand._rand.get_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = fitted()
        model.predict_interval(X_NEW)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert_array_equal(torch.get_rng_state(), torch_before)
    for one, other in zip(np.random.mtrand._rand.get_state(), numpy_before, strict=True):
        assert_array_equal(one, other)
    assert_same_bits(model, fitted())  # and the callers' threads and seeds do not matter


# Far outside ---------------------------------------------------------------------------------------------------------


def test_no_training_row_is_far_outside_for_any_team_of_cv_plus():
    x = X.copy()
    x[np.arange(3), np.arange(3)] = 50.0  # seen by all teams but one each
    model = fitted(x=x, calibration="cv+")
    model.predict_interval(x)  # warnings are errors


# Fitting several models together -------------------------------------------------------------------------------------


def test_models_fitted_together_on_tables_of_different_length_are_all_sound():
    law, sizes, p = laws()["heteroscedastic"], (150, 400), 0.8
    tables = [(*law.draw(n, random_state=n), None) for n in sizes]
    changes = {"max_rounds": 8, "learning_rate": 3e-3, **TEN_EPOCHS}
    models = [unfitted(p, random_state=seed, **changes) for seed in range(2)]
    assert fit_together(models, tables) is None
    X_new, y_new = law.draw(4000, random_state=9)
    for model, n in zip(models, sizes, strict=True):
        assert model.out_of_fold_.prediction.shape == (n, 1)
        coverage = law.exact_coverage(X_new, *model.predict_interval(X_new)).mean()
        assert abs(coverage - p) < 4 * np.sqrt(p * (1 - p) / n) + 0.02
        assert model.score(X_new, y_new) > 0.4


@pytest.mark.parametrize("calibration", ["cv+", "split"])
def test_every_calibration_can_be_fitted_together(calibration):
    models = [unfitted(0.8, calibration=calibration, random_state=seed) for seed in range(2)]
    fit_together(models, [(X, ONE, None), (X[:60], ONE[:60], None)])
    for model in models:
        assert_usable(model)
        assert len(model.predictor_.teams) == (3 if calibration == "cv+" else 1)


# Going on from the last fit ------------------------------------------------------------------------------------------

LATER = {"warm_start": True, "folds": KFold(3)}


def state_of(model):
    """Everything that a fit has set, and what it predicts."""
    fitted_names = sorted(name for name in vars(model) if name.endswith("_"))
    return fitted_names, model.factor_.tobytes(), model.predict(X_NEW).tobytes(), id(model.predictor_)


def test_another_fit_goes_on_from_the_networks_of_the_last():
    cold, warm = fitted(folds=KFold(3)), fitted(**LATER)
    assert_same_bits(cold, warm)  # the first fit has nothing to go on from
    first = warm.rounds_
    warm.fit(X, ONE)
    assert warm.rounds_[0].rmse < 1.01 * first[-1].rmse
    assert warm.rounds_[0].mean_loss < first[0].mean_loss
    assert warm.rounds_[-1].rmse < first[-1].rmse
    assert_same_bits(cold.fit(X, ONE), fitted(folds=KFold(3)))  # without warm_start a fit begins anew


@pytest.mark.parametrize("changes", [{}, BESIDE], ids=["alone", "beside a forest"])
def test_going_on_never_ends_with_a_worse_out_of_fold_error(changes):
    model = fitted(**LATER | changes, learning_rate=0.01)
    errors = []
    for rate in (0.01, 10.0, 0.01):  # the second is far too large
        model.set_params(schedule__learning_rate=rate).fit(X, ONE)
        errors.append(np.mean((model.out_of_fold_.prediction[:, 0] - ONE) ** 2))
    assert errors[1] <= errors[0] * (1 + 1e-6)
    assert errors[2] <= errors[1] * (1 + 1e-6)


def test_networks_that_go_on_keep_their_units_when_the_data_grow():
    model = fitted(**LATER, x=X[:60], y=ONE[:60])
    scaler = model.predictor_.fitted_teams[0].targets
    model.fit(X, 3 * ONE)
    assert_array_equal(model.predictor_.fitted_teams[0].targets.spread, scaler.spread)
    assert len(model.out_of_fold_.prediction) == N
    seen = model.predictor_.fitted_teams[0].inputs
    assert_array_equal(seen.low, X.min(axis=0))
    assert_array_equal(seen.high, X.max(axis=0))
    assert_usable(model)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("network", [SMALL, nn.Linear], ids=["MLP", "a user's own"])
def test_every_calibration_and_kind_of_network_can_go_on(calibration, network):
    model = fitted(calibration=calibration, network=network, warm_start=True, y=Y)
    assert_usable(model.fit(X, Y), shape=(25, 2))


def test_literal_training_can_go_on():
    model = fitted(folds=None, calibration=None, warm_start=True)
    first = model.rounds_[-1].mean_loss
    assert model.fit(X, ONE).rounds_[-1].mean_loss < first


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({"network": MLP(hidden=8, layers=3, bins=4)}, ONE, "same kind, size and outputs, but network or matching"),
        ({"network": nn.Linear}, ONE, "same kind, size and outputs, but network or matching"),
        ({"matching": "iqr"}, ONE, "same kind, size and outputs, but network or matching"),
        ({"calibration": "cv+"}, ONE, "as many teams as there were, 1, got 3; keep calibration and folds"),
        ({}, Y, r"same columns, targets, levels and members, got \(3, 2, 1, 3\) after \(3, 1, 1, 3\)"),
        ({"coverage": [0.5, 0.9]}, ONE, r"got \(3, 1, 2, 3\) after \(3, 1, 1, 3\)"),
        ({"folds": KFold(4)}, ONE, r"got \(3, 1, 1, 4\) after .*=False, or give repeats and folds as numbers"),
        ({"shape": "round"}, ONE, "shape must be 'both' or 'interval', got 'round'"),
        ({}, np.full(N, np.nan), "y contains NaN"),
    ],
)
def test_a_fit_that_cannot_continue_leaves_the_model_as_it_was(changes, y, message):
    model = fitted(**LATER)
    before, parameters = state_of(model), model.get_params()
    with pytest.raises(ValueError, match=message):
        model.set_params(**changes).fit(X, y)
    assert state_of(model.set_params(**parameters)) == before


def test_a_table_of_other_columns_cannot_continue_and_leaves_the_model_as_it_was():
    model = fitted(**LATER)
    before = state_of(model)
    with pytest.raises(ValueError, match="from networks of 3 columns, got 2; fit with warm_start=False"):
        model.fit(X[:, :2], ONE)
    assert state_of(model) == before


class Interrupted(nn.Linear):
    """A network that Ctrl-C meets in training, when the test asks for it."""

    now = False

    def forward(self, x):
        if self.training and Interrupted.now:
            raise KeyboardInterrupt
        return super().forward(x)


def test_an_interrupted_fit_that_continues_leaves_the_model_as_it_was():
    model = fitted(network=Interrupted, warm_start=True)
    before = state_of(model)
    Interrupted.now = True
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, ONE)
    finally:
        Interrupted.now = False
    assert state_of(model) == before
    assert_usable(model.fit(X, ONE))


def test_auto_for_tables_is_few_epochs_that_double_until_a_round_is_no_better():
    training = MatchedRegressor(device="cpu").training_for(n_rows=100)
    recipe = training.recipe
    assert (recipe.mean_epochs, recipe.interval_epochs, recipe.max_rounds, recipe.patience) == (8, 4, 6, 1)
    assert (recipe.growth, recipe.closing_rounds, training.settings.learning_rate) == (2.0, 0, 5e-3)


def test_batches_grow_with_the_rows():
    sizes = [
        MatchedRegressor(device="cpu").training_for(n).settings.batch_size for n in (2, 999, 1000, 2499, 2500, 10**6)
    ]
    assert sizes == [64, 64, 128, 128, 256, 256]


def test_auto_is_resolved_where_it_does_not_depend_on_the_rows():
    resolved = MatchedRegressor(schedule=Schedule(max_rounds=7)).resolved_params()
    schedule = resolved["schedule"]
    assert (schedule.mean_epochs, schedule.max_rounds, schedule.learning_rate) == (8, 7, 5e-3)
    assert (schedule.batch_size, resolved["repeats"], resolved["device"]) == ("auto", "auto", "auto")


def test_fields_of_options_can_be_set_by_name():
    model = unfitted().set_params(
        schedule__patience=3, network__hidden=5, calibration="split", calibration__size=0.4, matching__match_weight=2.0
    )
    assert model.schedule.patience == 3
    assert model.schedule.max_rounds == 2
    assert model.network.hidden == 5
    assert model.calibration == Split(0.4)
    assert model.matching == BalancedFit(2.0)
    with pytest.raises(ValueError, match="Invalid parameter 'schedule__speed': schedule has the fields mean_epochs, "):
        model.set_params(schedule__speed=3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [{"calibration": "cv+", "folds": 4}, {"warm_start": True}], ids=["cv+", "again"])
def test_a_gpu_serves_several_teams_and_fits_that_continue(options):
    model = fitted(device="cuda", **options).fit(X, ONE)
    lower, upper = model.predict_interval(X)
    assert (lower < upper).all()
