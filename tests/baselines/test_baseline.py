"""What all six baselines promise: the verbs and shapes of MatchedRegressor, and errors that name what is wrong."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import nn

from coverwell import MLP, PredictionInterval, fit_together
from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.datasets import synthetic
from coverwell.errors import ConstantDataWarning, NonFiniteLossError
from coverwell.networks.mlp import MLPTeam

SAMPLED = [MCDropoutRegressor, ConcreteDropoutRegressor, BayesByBackpropRegressor]
WITH_DOUBT = [*SAMPLED, DeepEnsembleRegressor]
PLAIN = [HeteroscedasticRegressor, NeuralQuantileRegressor, DeepEnsembleRegressor]
ALL = [*SAMPLED, *PLAIN]
SMALL = MLP(hidden=16, layers=2, bins=4, dropout=0.2)
RNG = np.random.default_rng(0)
N = 90
X = RNG.uniform(size=(N, 3))
Y = np.stack([np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=N), 50 * X[:, 1] + 5 * RNG.normal(size=N)], axis=1)
ONE, COLUMN = Y[:, 0], Y[:, :1]
X_NEW = RNG.uniform(size=(25, 3)).clip(X.min(axis=0), X.max(axis=0))
GROUPS = np.repeat(np.arange(18), 5)
every = pytest.mark.parametrize("kind", ALL)


def unfitted(kind, *coverage, **changes):
    samples = {"n_samples": 10} if kind in SAMPLED else {}
    usual = {"network": SMALL, "max_epochs": 10, "random_state": 0} | samples
    return kind(*coverage, **usual | changes)


def fitted(kind, *coverage, y=ONE, x=X, groups=None, **changes):
    return unfitted(kind, *coverage, **changes).fit(x, y, groups=groups)


def assert_same_bits(one, other, x=X_NEW):
    assert_array_equal(one.predict(x), other.predict(x))
    for bound, same in zip(one.predict_interval(x), other.predict_interval(x), strict=True):
        assert_array_equal(bound, same)


def assert_unfitted(model):
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert not [name for name in vars(model) if name.endswith("_")]


# Shapes and levels ---------------------------------------------------------------------------------------------------

SHAPES = [
    (ONE, 0.8, (25,)),
    (ONE, (0.8, 0.5), (25, 2)),
    (COLUMN, 0.8, (25, 1)),
    (COLUMN, [0.8], (25, 1, 1)),
    (Y, 0.8, (25, 2)),
    (Y, [0.5, 0.8, 0.9], (25, 2, 3)),
]


@every
def test_a_level_axis_comes_last_and_only_for_a_sequence(kind):
    for y, coverage, shape in SHAPES:
        model = fitted(kind, coverage, y=y)
        interval, y_hat = model.predict_interval(X_NEW), model.predict(X_NEW)
        assert isinstance(interval, PredictionInterval)
        assert interval.lower.shape == interval.upper.shape == shape
        assert interval.lower.dtype == interval.upper.dtype == y_hat.dtype == np.float64
        assert y_hat.shape == (25, *y.shape[1:])
        assert interval.contains(y_hat).all()
        assert interval.coverage == (coverage if isinstance(coverage, float) else tuple(coverage))
        assert np.isfinite(interval.width).all()
        assert (interval.width > 0).all()


@every
@pytest.mark.parametrize("calibration", ["split", None])
def test_levels_are_nested_and_come_in_the_order_they_are_asked_for(kind, calibration):
    levels = [0.8, 0.2, 0.5]
    model = fitted(kind, levels, y=Y, calibration=calibration)
    lower, upper = model.predict_interval(X_NEW)
    inside_out = np.argsort(levels)
    assert (np.diff(lower[..., inside_out]) <= 0).all()
    assert (np.diff(upper[..., inside_out]) >= 0).all()
    assert_array_equal(model.predict_interval(X_NEW, 0.2).lower, lower[..., 1])
    assert_array_equal(model.predict_interval(X_NEW, [0.5, 0.8]).upper, upper[..., [2, 0]])
    with pytest.raises(ValueError, match=r"coverage \[0\.7\] was not fitted"):
        model.predict_interval(X_NEW, 0.7)


@every
def test_joint_boxes_hold_all_targets_more_often_than_separate_intervals(kind):
    model = fitted(kind, 0.8, y=Y, calibration="split", calibration_size=0.4)
    together, apart = model.predict_interval(X, joint=True), model.predict_interval(X)
    assert (together.width > 0).all()
    assert together.contains(Y).all(axis=1).mean() > apart.contains(Y).all(axis=1).mean()


@every
def test_joint_boxes_of_several_targets_need_ranks(kind):
    with pytest.raises(ValueError, match=r"joint=True needs ranks .* fit with a calibration other than None"):
        fitted(kind, y=Y).predict_interval(X_NEW, joint=True)


# The second reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_DOUBT)
@pytest.mark.parametrize("calibration", ["split", None])
def test_the_reading_without_noise_is_narrower_and_no_calibration_stretches_it(kind, calibration):
    model = fitted(kind, [0.5, 0.8], y=Y, calibration=calibration)
    doubt = model.predict_interval(X_NEW, noise=False)
    assert (doubt.width > 0).all()
    estimate = model.ensembles_[0].estimate(X_NEW, torch.device("cpu"), noise=False)
    assert_allclose(doubt.lower, estimate.mean[..., None] - estimate.reach[:, :, 0])
    assert_allclose(doubt.upper, estimate.mean[..., None] + estimate.reach[:, :, 1])
    unstretched = model.predict_interval(X_NEW).width / model.factor_
    assert (doubt.width < unstretched).all()
    model.factor_ = 7.0 * model.factor_
    assert_array_equal(model.predict_interval(X_NEW, noise=False).width, doubt.width)
    assert_allclose(model.predict_interval(X_NEW).width, unstretched * model.factor_)


@pytest.mark.parametrize("kind", WITH_DOUBT)
def test_the_reading_without_noise_chooses_among_levels_and_has_no_joint_boxes(kind):
    model = fitted(kind, [0.5, 0.8], calibration="split")
    both = model.predict_interval(X_NEW, noise=False)
    assert_array_equal(model.predict_interval(X_NEW, 0.8, noise=False).lower, both.lower[:, 1])
    with pytest.raises(ValueError, match="joint=True needs ranks, and the reading without noise has none"):
        model.predict_interval(X_NEW, joint=True, noise=False)
    with pytest.raises(NotFittedError):
        unfitted(kind).predict_interval(X_NEW, noise=False)


# Learning and calibration --------------------------------------------------------------------------------------------

LAW = synthetic.laws()["heteroscedastic"]


@every
def test_calibration_by_split_covers_what_is_asked_whatever_the_network_says(kind):
    """Ranks of 200 rows give a coverage of p, up to an error of sqrt(p (1 - p) / 200); ten epochs are no good fit."""
    p, n_kept = 0.8, 200
    x, y = LAW.draw(400, random_state=0)
    model = fitted(kind, p, x=x, y=y, calibration="split", calibration_size=0.5, learning_rate=0.01)
    assert model.factor_.shape == (1, 1)
    assert model.factor_[0, 0] != 1
    rows, _ = LAW.draw(3000, random_state=1)
    reached = LAW.exact_coverage(rows, *model.predict_interval(rows)).mean()
    assert abs(reached - p) < 4 * math.sqrt(p * (1 - p) / n_kept)


@every
def test_without_calibration_nothing_is_stretched(kind):
    assert_array_equal(fitted(kind, [0.5, 0.8], y=Y).factor_, np.ones((2, 2)))


@every
def test_it_learns_each_target_in_its_own_unit(kind):
    model = fitted(kind, y=Y, max_epochs=150, learning_rate=0.02, network=MLP(32, layers=2, bins=4, dropout=0.1))
    error = np.sqrt(((model.predict(X) - Y) ** 2).mean(axis=0))
    assert (error < 0.6 * Y.std(axis=0)).all()
    width = model.predict_interval(X).width.mean(axis=0)
    assert width[1] > 10 * width[0]


@every
@pytest.mark.parametrize("calibration", ["split", None])
def test_groups_are_held_out_whole(kind, calibration):
    model = unfitted(kind, 0.5, members=3, calibration=calibration, validation_size=0.3)
    prepared = model._prepare(X, ONE, GROUPS, [])
    kept = prepared.ranked[0]
    assert len(kept) == (0 if calibration is None else 20)  # a fifth of 18 groups, rounded up, of 5 rows each
    own = np.delete(GROUPS, kept)
    assert not set(own) & set(GROUPS[kept])
    for trains, speaks in zip(prepared.jobs[0].trains.numpy(), prepared.jobs[0].speaks.numpy(), strict=True):
        assert_array_equal(trains, ~speaks)
        assert not set(own[trains]) & set(own[speaks])
        assert len(set(own[speaks])) == math.ceil(0.3 * len(set(own)))
    by_number, by_name = (fitted(kind, groups=groups) for groups in (GROUPS, [f"house {g:02}" for g in GROUPS]))
    assert_same_bits(by_number, by_name)


def test_rows_kept_for_the_ranks_touch_nothing_else():
    model = unfitted(HeteroscedasticRegressor, 0.5, calibration="split")
    kept = model._prepare(X, ONE, None, []).ranked[0]
    spoiled = X.copy()
    spoiled[kept] *= 3
    one, other = (fitted(HeteroscedasticRegressor, 0.5, x=x, calibration="split") for x in (X, spoiled))
    assert_array_equal(one.predict(X_NEW), other.predict(X_NEW))
    assert (one.factor_ != other.factor_).all()


@every
def test_rounds_are_ten_epochs_each_measured_in_the_users_units(kind):
    model = fitted(kind, [0.5, 0.8], y=Y, max_epochs=25, patience=1000)
    assert len(model.rounds_) == 3
    for record in model.rounds_:
        assert record.rmse.shape == (2,)
        assert record.coverage.shape == record.width.shape == record.interval_score.shape == (2, 2)
        assert record.interval_loss is None
        assert math.isfinite(record.mean_loss)
        assert (record.width[1] > 10 * record.width[0]).all()


def test_a_short_patience_ends_the_training():
    noise = RNG.normal(size=N)
    network = MLP(hidden=64, layers=3, bins=4, dropout=0.0)
    changes = {"y": noise, "network": network, "max_epochs": 400, "learning_rate": 0.01}
    short, long = (fitted(HeteroscedasticRegressor, patience=patience, **changes) for patience in (10, 100))
    assert len(short.rounds_) < 10 < len(long.rounds_) < 40


def test_batches_can_be_of_any_size():
    for batch_size in (3, 7, 10_000, "auto"):
        assert np.isfinite(fitted(HeteroscedasticRegressor, batch_size=batch_size).predict(X_NEW)).all()


# scikit-learn's habits -----------------------------------------------------------------------------------------------


@every
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(kind):
    state = torch.get_rng_state()
    model = fitted(kind, calibration="split", calibration_size=0.4)
    assert_same_bits(model, fitted(kind, calibration="split", calibration_size=0.4))
    other = fitted(kind, calibration="split", calibration_size=0.4, random_state=1)
    assert (model.predict(X_NEW) != other.predict(X_NEW)).all()
    assert_array_equal(torch.get_rng_state(), state)  # the caller's


@every
def test_a_row_is_told_the_same_alone_as_among_others(kind):
    model = fitted(kind, [0.5, 0.8], y=Y)
    together = model.predict_interval(X_NEW)
    for row in (0, 24):
        alone = model.predict_interval(X_NEW[[row]])
        assert_allclose(alone.lower, together.lower[[row]], rtol=1e-9)
        assert_allclose(model.predict(X_NEW[[row]]), model.predict(X_NEW)[[row]], rtol=1e-9)


@every
def test_pickles_and_copies_predict_the_same_bits(kind):
    model = fitted(kind, [0.5, 0.8], y=Y, calibration="split")
    assert_same_bits(pickle.loads(pickle.dumps(model)), model)
    assert_same_bits(copy.deepcopy(model), model)


@every
def test_a_clone_is_unfitted_and_a_refit_is_a_first_fit(kind):
    model = fitted(kind)
    twin = clone(model)
    assert_unfitted(twin)
    assert twin.get_params() == model.get_params()
    assert_same_bits(twin.fit(X, ONE), model)
    model.fit(X[:60, :2], Y[:60])
    assert model.n_features_in_ == 2
    assert_same_bits(model, fitted(kind, x=X[:60, :2], y=Y[:60]), X_NEW[:, :2])


def test_pandas_keeps_names_and_index():
    frame = pd.DataFrame(X, columns=["rooms", "age", "tax"])
    new = pd.DataFrame(X_NEW, columns=frame.columns, index=[f"new {i}" for i in range(25)])
    model = fitted(MCDropoutRegressor, x=frame, y=pd.DataFrame(Y, columns=["price", "rent"]))
    assert list(model.feature_names_in_) == ["rooms", "age", "tax"]
    assert model.target_names_ == ("price", "rent")
    for noise in (True, False):
        table = model.predict_interval(new, noise=noise).to_frame()
        assert list(table.index) == list(new.index)
        assert table.columns[0] == ("price", 0.9, "lower")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(new.rename(columns={"tax": "noise"}))


@every
def test_by_default_there_is_a_network_and_a_learning_rate(kind):
    model = kind(random_state=0, max_epochs=1)
    training = model._training(100)
    assert training.learning_rate == kind.LEARNING_RATE
    assert training.networks[0] == model._network()
    assert getattr(model._network(), "mlp", model._network()) == kind.NETWORK


# A network of the user's own, and Ctrl-C -----------------------------------------------------------------------------


class Interrupted(nn.Linear):
    """A network in whose forward pass somebody presses Ctrl-C: in training, or when it first speaks."""

    in_training = True

    def forward(self, x):
        if self.training == self.in_training:
            raise KeyboardInterrupt
        return super().forward(x)


class InterruptedLater(Interrupted):
    in_training = False


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("network", [Interrupted, InterruptedLater])
def test_ctrl_c_leaves_the_model_unfitted_and_not_broken(kind, network):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    for model in (unfitted(kind), fitted(kind)):
        with pytest.raises(KeyboardInterrupt):
            model.set_params(network=network).fit(X, ONE)
        assert_unfitted(model)
        assert_array_equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == threads
        assert_same_bits(model.set_params(network=SMALL).fit(X, ONE), fitted(kind))


def press_ctrl_c(present):
    raise KeyboardInterrupt


@every
def test_ctrl_c_after_a_round_leaves_all_models_unfitted(kind):
    models = [fitted(kind), unfitted(kind)]
    with pytest.raises(KeyboardInterrupt):
        fit_together(models, [(X, ONE, None)] * 2, on_round=press_ctrl_c)
    for model in models:
        assert_unfitted(model)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_network_may_be_a_function_of_the_users(kind):
    def own(n_features, n_outputs):
        return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, n_outputs))

    model = fitted(kind, [0.5, 0.8], y=Y, network=own)
    assert (model.predict_interval(X_NEW).width > 0).all()
    assert_same_bits(model, fitted(kind, [0.5, 0.8], y=Y, network=own))


# Bad input -----------------------------------------------------------------------------------------------------------


NOT_LAYERED = ["function", "module", "number", "team"]


@pytest.mark.parametrize("kind", SAMPLED)
@pytest.mark.parametrize("network", [nn.Linear, nn.Linear(3, 2), 7, SMALL.build(1, (3,), 2)], ids=NOT_LAYERED)
def test_only_an_mlp_or_an_lstm_can_be_made_random(kind, network):
    model = unfitted(kind).set_params(network=network)
    with pytest.raises(ValueError, match=r"one of MLP\(\.\.\.\), LSTM\(\.\.\.\), .*whose layers are made random"):
        model.fit(X, ONE)
    assert_unfitted(model)


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("network", [nn.Linear(3, 2), SMALL.build(1, (3,), 2)], ids=["module", "team"])
def test_one_module_is_no_network_for_every_member(kind, network):
    with pytest.raises(TypeError, match=r"network must be a recipe such as MLP.*every member needs one of its own"):
        fitted(kind, network=network)


COUNTS = [(name, value) for name in ("members", "max_epochs", "patience") for value in (0, -1, 2.5, "many", True, None)]
WRONG = [
    *COUNTS,
    *[("batch_size", value) for value in (0, 2.5, "big", None)],
    *[("learning_rate", value) for value in (0.0, -1.0, math.nan, "fast", None, True)],
    *[(name, value) for name in ("validation_size", "calibration_size") for value in (0, 1, 1.5, -0.1, "half", None)],
    *[("calibration", value) for value in ("cross", "cv+", "none", 0, ["split"])],
    *[("coverage", value) for value in (0.0, 1.0, -0.5, "most", None, [], [0.5, 0.5])],
    ("device", "abacus"),
]
WRONG_OF = {
    MCDropoutRegressor: [("length_scale", -1.0), ("length_scale", math.nan), ("length_scale", "long")],
    ConcreteDropoutRegressor: [("length_scale", -1.0), ("network", MLP(hidden=4, dropout=0.0))],
    BayesByBackpropRegressor: [("prior_scale", 0.0), ("prior_scale", "wide"), ("kl_weight", -1.0), ("kl_weight", None)],
}


@every
def test_a_wrong_value_of_a_parameter_is_refused_by_its_name(kind):
    samples = [("n_samples", value) for value in (0, 2.5, None)] if kind in SAMPLED else []
    for name, value in [*WRONG, *samples, *WRONG_OF.get(kind, [])]:
        model = unfitted(kind).set_params(**{name: value})  # nothing is checked before `fit`
        with pytest.raises(ValueError, match=rf"^{name} must") as caught:
            model.fit(X, ONE)
        assert repr(value) in str(caught.value) or value in ([], [0.5, 0.5])
        assert_unfitted(model)


@every
def test_one_group_cannot_be_held_out(kind):
    with pytest.raises(ValueError, match="needs at least 2 groups, got 1"):
        fitted(kind, groups=np.zeros(N))


@pytest.mark.parametrize(
    ("changes", "groups", "said"),
    [
        ({"validation_size": 0.995}, None, "validation_size must leave rows to train on, 0.995 holds out all 90"),
        ({"validation_size": 0.9}, GROUPS % 3, "validation_size must leave groups to train on, 0.9 holds out all 3"),
        (
            {"calibration": "split"},
            GROUPS % 2,
            "validation_size must leave groups .*all 1 .beside those that calibration='split' keeps.; .*more groups",
        ),
        ({"calibration": "split", "calibration_size": 0.02}, None, "calibration='split' keeps 2 of 90 rows"),
        ({}, GROUPS[:-1], "groups must have one entry per row, got 89 for 90"),
    ],
)
def test_shares_that_the_rows_or_groups_do_not_allow_are_refused(changes, groups, said):
    with pytest.raises(ValueError, match=said):
        fitted(HeteroscedasticRegressor, groups=groups, **changes)


@every
def test_rows_that_are_no_numbers_are_refused(kind):
    holed = X.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fitted(kind, x=holed)
    with pytest.raises(ValueError, match="NaN"):
        fitted(kind, y=np.where(ONE > 1, np.nan, ONE))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted(kind, y=ONE[:-1])


@every
def test_a_constant_target_is_fitted_with_a_warning_and_nothing_else(kind):
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        model = fitted(kind, y=np.full(N, 5.0), max_epochs=60, learning_rate=0.02)
    y_hat, interval = model.predict(X_NEW), model.predict_interval(X_NEW)
    assert np.isfinite(interval.width).all()
    assert_allclose(y_hat, np.full(25, 5.0), atol=0.5)


@every
def test_two_rows_can_be_fitted(kind):
    model = fitted(kind, x=X[:2], y=ONE[:2])
    assert np.isfinite(model.predict_interval(X[:2]).width).all()


def test_a_learning_rate_that_is_too_high_stops_with_a_way_out():
    model = unfitted(BayesByBackpropRegressor, learning_rate=1e30)
    with pytest.raises(NonFiniteLossError, match="lower learning_rate"):
        model.fit(X, ONE)
    assert_unfitted(model)


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@every
def test_a_step_that_is_replayed_gives_the_same_bits_as_one_that_is_not(kind, monkeypatch):
    replayed = fitted(kind, [0.5, 0.8], y=Y, max_epochs=30, device="cuda")
    monkeypatch.setattr(MLPTeam, "capturable", False)
    assert_same_bits(replayed, fitted(kind, [0.5, 0.8], y=Y, max_epochs=30, device="cuda"))
