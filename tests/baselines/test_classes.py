"""Baselines for classes: averaged probabilities, the smallest sets, a temperature, ranks, and errors in one line."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss
from torch import nn

from coverwell import MLP, ResNet18, fit_together, load, save, to_onnx
from coverwell.baselines import DeepEnsembleClassifier, MCDropoutClassifier, TemperatureScalingClassifier
from coverwell.baselines.classes import ClassHead, LikelierMass
from coverwell.calibration import Split
from coverwell.paper.losses import Levels, z_score
from coverwell.sets import sets_of

KINDS = [MCDropoutClassifier, DeepEnsembleClassifier, TemperatureScalingClassifier]
every = pytest.mark.parametrize("kind", KINDS)
SMALL = MLP(hidden=16, layers=2, bins=0, dropout=0.2)
HEAD, LEVELS = ClassHead(), Levels(*(torch.tensor([[0.5, 0.8]]).double(),) * 2)
NAMES = np.array(["hill", "north", "station"])


def drawn(n, seed):
    """Rows, their classes, and the probabilities by which these were drawn: softmax of the columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=1.5, size=(n, 3))
    p = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
    return X, NAMES[(rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1)], p


X, Y, _ = drawn(150, 0)
X_NEW = drawn(40, 1)[0].clip(X.min(axis=0), X.max(axis=0))


def fitted(kind, coverage=(0.5, 0.8), x=X, y=Y, groups=None, sample_weight=None, **changes):
    few = {"n_samples": 5} if kind is MCDropoutClassifier else {}
    small = {"network": SMALL, "max_epochs": 10, "random_state": 0, "device": "cpu", **few}
    return kind(coverage, **{**small, **changes}).fit(x, y, groups=groups, sample_weight=sample_weight)


def smallest_set(p, level):
    """Of all sets of classes that have the level, one of the fewest classes, and of those the likeliest."""
    for size in range(1, len(p) + 1):
        best = max(combinations(range(len(p)), size), key=lambda chosen: p[list(chosen)].sum())
        if p[list(best)].sum() >= level - 1e-12 or size == len(p):
            return np.isin(np.arange(len(p)), best)
    raise AssertionError("the set of all classes has every level")


# The head and the score of the smallest set --------------------------------------------------------------------------


def test_probabilities_of_networks_are_averaged_and_not_their_logits():
    """(0.9 + 0.5) / 2 = 0.7; the average of the logits, (log 9 + 0) / 2, would give 0.75."""
    logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).double().log()[None, :, None]  # (team, network, row, class)
    p, thresholds = HEAD.combined(logits, LEVELS, noise=True)
    assert_allclose(p, [[[0.7, 0.3]]])
    assert thresholds.shape == (1, 1, 1, 2, 2)


def test_the_loss_is_the_cross_entropy_of_each_row():
    logits, places = torch.randn(1, 20, 3, generator=torch.Generator().manual_seed(0)).double(), np.arange(20) % 3
    losses = HEAD.losses(logits, torch.eye(3).double()[places][None], LEVELS)
    assert losses.mean().item() == pytest.approx(log_loss(places, logits[0].softmax(dim=1).numpy(), labels=[0, 1, 2]))


@pytest.mark.parametrize("normal", [True, False])
def test_a_set_is_complete_as_soon_as_its_probabilities_have_the_level(normal):
    p = torch.tensor([[0.3, 0.5, 0.2]]).double()
    sizes = {0.4: 1, 0.5: 1, 0.51: 2, 0.8: 2, 0.81: 3, 0.99: 3}
    levels = torch.tensor(list(sizes)).double()
    scores, thresholds = LikelierMass(normal=normal).of(p), z_score(levels) if normal else levels
    sets = sets_of(scores, p, thresholds.expand(1, 3, -1), allow_empty=True)[0]
    assert sets.sum(dim=0).tolist() == list(sizes.values())
    assert_array_equal(sets[:, 3], [True, True, False])


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5, unique=True), st.floats(0.01, 0.99))
def test_no_set_that_has_the_level_is_smaller(weights, level):
    p = np.array(weights) / np.sum(weights)
    scores = LikelierMass().of(torch.from_numpy(p[None]))
    found = sets_of(scores, torch.from_numpy(p[None]), z_score(torch.tensor([level]).double()).expand(1, len(p), 1))
    assert_array_equal(found[0, :, 0].numpy(), smallest_set(p, level))


# Sets and probabilities ----------------------------------------------------------------------------------------------


@every
def test_own_sets_are_the_smallest_at_fitted_levels_and_at_any_other(kind):
    model, levels = fitted(kind), [0.2, 0.5, 0.66, 0.8, 0.97]
    p, sets = model.predict_proba(X_NEW), model.predict_set(X_NEW, levels)
    for place, level in enumerate(levels):
        assert_array_equal(np.asarray(sets)[..., place], [smallest_set(row, level) for row in p])
    assert_array_equal(model.predict_set(X_NEW, allow_empty=True), model.predict_set(X_NEW))  # never empty
    assert_allclose(p.sum(axis=1), 1)
    assert_array_equal(model.predict(X_NEW), NAMES[p.argmax(axis=1)])


@every
@pytest.mark.parametrize("calibration", [None, "split"])
def test_sets_of_higher_levels_contain_those_of_lower_ones(kind, calibration):
    levels = np.linspace(0.1, 0.95, 12)
    sets = np.asarray(fitted(kind, (0.5, 0.8, 0.95), calibration=calibration).predict_set(X_NEW, levels))
    assert (sets[..., :-1] <= sets[..., 1:]).all()


@every
def test_ranks_cover_what_is_asked_whatever_the_network_has_learned(kind):
    """Ranks of 200 rows give a coverage of p, up to an error of sqrt(p (1 - p) / 200); ten epochs are no good fit."""
    p, n_kept = 0.8, 200
    x, y, _ = drawn(400, 2)
    model = fitted(kind, p, x, y, calibration=Split(size=0.5))
    x_new, y_new, _ = drawn(20_000, 3)
    inside = model.predict_set(x_new, allow_empty=True).contains(y_new)
    assert inside.mean() == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / n_kept))


def test_dropout_averages_the_probabilities_of_the_networks_that_it_samples():
    model = fitted(MCDropoutClassifier, members=2, n_samples=3)
    (team,) = model.predictor_.fitted_teams
    logits = torch.cat([team.run(part, team.inputs(torch.from_numpy(X_NEW))) for part in team.networks()])
    assert len(logits) == 6
    assert_allclose(model.predict_proba(X_NEW), logits.softmax(dim=2).mean(dim=0))
    assert logits.softmax(dim=2).std(dim=0).min() > 0


def test_the_prior_is_weighed_against_rows_and_not_against_their_classes():
    model = MCDropoutClassifier(network=SMALL, length_scale=10.0, max_epochs=10, random_state=0)
    rows = model.prepare(X, Y, None, {})
    training = model.training_for(len(X))
    team = training.network.build(1, (3,), 3)
    outputs, batch = torch.randn(1, 8, 3), torch.arange(8)[None]
    loss = training.objective(rows, team)(outputs, batch)
    of_rows = HEAD.losses(outputs, rows.y[0][batch], rows.levels_of_members).mean()
    assert_allclose(loss.item(), (of_rows + team.penalty() / rows.trains.sum()).item(), rtol=1e-5)


# The temperature -----------------------------------------------------------------------------------------------------


class Sharper(nn.Module):
    """Three times its inputs, whatever it is trained on."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x):
        return 3 * x + 0 * self.nothing


def test_the_temperature_takes_back_by_how_much_logits_are_too_large():
    """The logits of the law are the columns; the network says three times as much.

    The error of log T is 1 / sqrt(n I), with the information I = the mean variance of the logits under their softmax.
    """
    x = drawn(4000, 4)[0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)  # as it is scaled
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    y = (np.random.default_rng(5).uniform(size=(len(x), 1)) > p.cumsum(axis=1)).sum(axis=1)
    model = fitted(TemperatureScalingClassifier, x=x, y=y, network=Sharper, validation_size=0.5)
    information = ((p * x**2).sum(axis=1) - (p * x).sum(axis=1) ** 2).mean()
    assert np.log(model.temperature_) == pytest.approx(np.log(3), abs=4 / np.sqrt(2000 * information))
    assert_allclose(model.predict_proba(x[:50]), p[:50], atol=0.1)
    assert model.score(x, y) == np.mean(x.argmax(axis=1) == y)  # no class passes another


def test_the_temperature_is_learned_from_held_out_rows_by_their_weight():
    """Half of the rows have another class and no weight: as if they were not there."""
    weight = np.ones(len(X))
    weight[::2] = 0
    wrong = Y.copy()
    wrong[::2] = Y[1::2]
    one, other = (fitted(TemperatureScalingClassifier, y=y, sample_weight=weight) for y in (Y, wrong))
    assert one.temperature_ == other.temperature_
    assert fitted(TemperatureScalingClassifier, y=wrong).temperature_ != one.temperature_


def test_models_fitted_together_have_temperatures_of_their_own():
    models = [TemperatureScalingClassifier(network=SMALL, max_epochs=10, random_state=seed) for seed in (0, 1)]
    fit_together(models, [(X, Y, None), (X, Y[::-1], None)])
    one, other = models
    assert one.temperature_ != other.temperature_
    assert one.predict_proba(X_NEW).shape == other.predict_proba(X_NEW).shape == (40, 3)


# What all estimators do ----------------------------------------------------------------------------------------------


@every
def test_the_same_seed_gives_the_same_bits_and_groups_are_held_out_whole(kind):
    groups = np.arange(len(X)) // 5
    model, again = (fitted(kind, groups=groups) for _ in range(2))
    assert_array_equal(model.predict_proba(X_NEW), again.predict_proba(X_NEW))
    held_out = model.prepare(X, Y, groups, {}).leaves_out[0].numpy()
    assert all(len(set(one[groups == group])) == 1 for one in held_out for group in set(groups))


@every
@pytest.mark.parametrize("calibration", [None, "split"])
def test_a_loaded_model_is_the_saved_one(kind, calibration, tmp_path):
    model = fitted(kind, calibration=calibration)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert (type(again), again.get_params()) == (kind, model.get_params())
    assert_array_equal(again.predict_proba(X_NEW), model.predict_proba(X_NEW))
    assert_array_equal(again.predict_set(X_NEW, 0.7), model.predict_set(X_NEW, 0.7))
    assert getattr(again, "temperature_", None) == getattr(model, "temperature_", None)


@pytest.mark.parametrize(
    ("kind", "calibration"), [(DeepEnsembleClassifier, None), (TemperatureScalingClassifier, "split")]
)
def test_an_onnx_file_has_the_probabilities_and_sets_of_the_model(kind, calibration, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = fitted(kind, calibration=calibration)
    sets = np.asarray(model.predict_set(X_NEW))
    assert to_onnx(model, tmp_path / "model.onnx")["classes"] == NAMES.tolist()
    found, found_sets = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": X_NEW})
    assert_allclose(found, model.predict_proba(X_NEW), atol=1e-5)
    assert_array_equal(found_sets, sets)
    assert_array_equal(model.predict_set(X_NEW), sets)  # an export leaves the model as it was


@every
def test_ranks_can_be_those_of_other_rows(kind):
    x, y, _ = drawn(200, 6)
    model = fitted(kind, 0.8, x, y, calibration="split", network=MLP(hidden=8, layers=2, bins=0, dropout=0.2))
    x_new, y_new, _ = drawn(60, 7)
    x_new = x_new.clip(x.min(axis=0), x.max(axis=0))
    assert model.recalibrate(x_new, y_new).factor_.shape == (1, 1)
    inside = model.predict_set(x_new, allow_empty=True).contains(y_new)
    assert inside.mean() == pytest.approx(np.ceil(61 * 0.8) / 60)


def test_images_are_classified_with_their_mirror_images():
    rng = np.random.default_rng(0)
    images, y = rng.uniform(size=(12, 3, 32, 32)).astype(np.float32), np.arange(12) % 2
    network = ResNet18(weights=None, size=32, mirror="same")
    brief = {"network": network, "max_epochs": 1, "batch_size": 8, "validation_size": 0.3}
    model = fitted(TemperatureScalingClassifier, x=images, y=y, **brief)
    turned = images[:3, ..., ::-1].copy()
    assert_allclose(model.predict_proba(turned), model.predict_proba(images[:3]), atol=1e-5)


# Errors --------------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibration": "cross"}, "calibration must be 'split', .* got 'cross'"),
        ({"calibration": Split(0.01)}, "calibration='split' keeps 2 of 150 rows"),
        ({"members": 0}, "members must be .* got 0"),
        ({"coverage": 1.0}, "coverage must lie strictly between 0 and 1"),
        ({"y": np.zeros(len(X), dtype=int)}, "y must have at least two classes, got one class: 0"),
        (
            {"sample_weight": Y == "hill"},
            "rows of a sample_weight above zero must have .* two classes, got only 'hill'",
        ),
        ({"y": X[:, 0]}, "y must hold classes, got the number .* MatchedRegressor"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(kind, changes, words):
    with pytest.raises(ValueError, match=words):
        fitted(kind, **changes)


def test_what_only_other_estimators_have_is_said():
    model = fitted(TemperatureScalingClassifier)
    with pytest.raises(ValueError, match=r"coverage must be at most 0\.999"):
        model.predict_set(X_NEW, 0.9999)
    with pytest.raises(AttributeError, match="has no predict_interval: it predicts classes"):
        model.predict_interval(X_NEW)
    with pytest.raises(ValueError, match="an interval for the probability needs two classes and folds"):
        model.predict_probability_interval(X_NEW)


def test_a_temperature_is_that_of_one_network():
    with pytest.raises(ValueError, match=r"members must be 1, .* got 3; take DeepEnsembleClassifier for more"):
        fitted(TemperatureScalingClassifier, members=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"n_samples": 0}, "n_samples must be"), ({"network": MLP(dropout=0.0)}, "network must have a dropout above 0")],
)
def test_dropout_needs_a_rate_and_samples(changes, words):
    with pytest.raises(ValueError, match=words):
        fitted(MCDropoutClassifier, **changes)
