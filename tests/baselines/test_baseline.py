"""What the six baselines for numbers promise, with errors that name what is wrong; truths of those that are not random.

The promises are the methods and shapes of MatchedRegressor.
"""

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import QuantileRegressor
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn.functional import softplus

from coverwell import LSTM, MLP, baselines, fit_together, load, save
from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
    TemperatureScalingClassifier,
)
from coverwell.calibration import Cross, Split, Uncalibrated
from coverwell.errors import ConstantDataWarning
from coverwell.networks.mlp import MLPTeam
from tests.synthetic import laws

SAMPLED = [MCDropoutRegressor, ConcreteDropoutRegressor, BayesByBackpropRegressor]
WITH_DOUBT = [*SAMPLED, DeepEnsembleRegressor]
PLAIN = [HeteroscedasticRegressor, NeuralQuantileRegressor, DeepEnsembleRegressor]
ALL = [*SAMPLED, *PLAIN]
FOR_CLASSES = [DeepEnsembleClassifier, MCDropoutClassifier, TemperatureScalingClassifier]  # in test_classes.py
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
    defaults = {"network": SMALL, "max_epochs": 10, "random_state": 0} | samples
    return kind(*coverage, **defaults | changes)


def fitted(kind, *coverage, y=ONE, x=X, groups=None, **changes):
    return unfitted(kind, *coverage, **changes).fit(x, y, groups=groups)


def team_of(model):
    return model.predictor_.fitted_teams[0].team


def rows_of(model, groups=None):
    """The rows that a model would train on."""
    return model.prepare(X, ONE, groups, {})


def assert_same_bits(one, other, x=X_NEW):
    assert_array_equal(one.predict(x), other.predict(x))
    for bound, same in zip(one.predict_interval(x), other.predict_interval(x), strict=True):
        assert_array_equal(bound, same)


def assert_unfitted(model):
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert not [name for name in vars(model) if name.endswith("_")]


# Shapes and levels ---------------------------------------------------------------------------------------------------


@every
def test_joint_boxes_contain_all_targets_more_often_than_separate_intervals_and_need_ranks(kind):
    model = fitted(kind, 0.8, y=Y, calibration=Split(size=0.4))
    together, apart = model.predict_interval(X, joint=True), model.predict_interval(X)
    assert together.contains(Y).all(axis=1).mean() > apart.contains(Y).all(axis=1).mean()
    with pytest.raises(ValueError, match=r"joint=True needs ranks .* fit with a calibration other than None"):
        fitted(kind, y=Y).predict_interval(X_NEW, joint=True)


# Without noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_DOUBT)
@pytest.mark.parametrize("calibration", ["split", None])
def test_intervals_without_noise_are_narrower_and_no_calibration_stretches_them(kind, calibration):
    model = fitted(kind, [0.5, 0.8], y=Y, calibration=calibration)
    doubt = model.predict_interval(X_NEW, noise=False)
    assert (doubt.width > 0).all()
    (estimate,) = model.estimates(X_NEW, noise=False)
    assert_allclose(doubt.lower, estimate.mean[..., None] - estimate.half_width[:, :, 0])
    assert_allclose(doubt.upper, estimate.mean[..., None] + estimate.half_width[:, :, 1])
    unstretched = model.predict_interval(X_NEW).width / model.factor_
    assert (doubt.width < unstretched).all()
    model.predictor_.correction.factor.mul_(7.0)
    assert_array_equal(model.predict_interval(X_NEW, noise=False).width, doubt.width)
    assert_allclose(model.predict_interval(X_NEW).width, unstretched * model.factor_)


@pytest.mark.parametrize("kind", WITH_DOUBT)
def test_intervals_without_noise_have_the_fitted_levels_and_no_joint_boxes(kind):
    model = fitted(kind, [0.5, 0.8], calibration="split")
    both = model.predict_interval(X_NEW, noise=False)
    assert_array_equal(model.predict_interval(X_NEW, 0.8, noise=False).lower, both.lower[:, 1])
    with pytest.raises(ValueError, match="joint=True needs ranks, which intervals without noise do not have"):
        model.predict_interval(X_NEW, joint=True, noise=False)
    with pytest.raises(NotFittedError):
        unfitted(kind).predict_interval(X_NEW, noise=False)


@pytest.mark.parametrize("kind", [HeteroscedasticRegressor, NeuralQuantileRegressor])
def test_networks_without_doubt_have_no_intervals_without_noise(kind):
    with pytest.raises(TypeError, match="noise"):
        fitted(kind).predict_interval(X_NEW, noise=False)


# Learning and calibration --------------------------------------------------------------------------------------------

LAW = laws()["heteroscedastic"]


@every
def test_calibration_by_split_covers_what_is_asked_whatever_the_network_has_learned(kind):
    """Ranks of 200 rows give a coverage of p, up to an error of sqrt(p (1 - p) / 200); ten epochs are no good fit."""
    p, n_kept = 0.8, 200
    x, y = LAW.draw(400, random_state=0)
    model = fitted(kind, p, x=x, y=y, calibration=Split(size=0.5), learning_rate=0.01)
    assert model.factor_.shape == (1, 1)
    assert model.factor_[0, 0] != 1
    rows, _ = LAW.draw(3000, random_state=1)
    coverage = LAW.exact_coverage(rows, *model.predict_interval(rows)).mean()
    assert abs(coverage - p) < 4 * math.sqrt(p * (1 - p) / n_kept)


@every
def test_without_calibration_nothing_is_stretched(kind):
    for calibration in (None, Uncalibrated()):
        assert_array_equal(fitted(kind, [0.5, 0.8], y=Y, calibration=calibration).factor_, np.ones((2, 2)))


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
    rows = rows_of(unfitted(kind, 0.5, members=3, calibration=calibration, validation_size=0.3), GROUPS)
    kept = rows.held_back[0]
    assert len(kept) == (0 if calibration is None else 20)  # a fifth of 18 groups, rounded up, of 5 rows each
    own = np.delete(GROUPS, kept)
    assert not set(own) & set(GROUPS[kept])
    assert len(rows.leaves_out[0].unique(dim=0)) == 3  # each member holds out rows of its own
    for trains, leaves_out in zip(rows.trains[0].numpy(), rows.leaves_out[0].numpy(), strict=True):
        assert_array_equal(trains, ~leaves_out)
        assert not set(own[trains]) & set(own[leaves_out])
        assert len(set(own[leaves_out])) == math.ceil(0.3 * len(set(own)))
    by_number, by_name = (fitted(kind, groups=groups) for groups in (GROUPS, [f"house {g:02}" for g in GROUPS]))
    assert_same_bits(by_number, by_name)


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


# scikit-learn's habits -----------------------------------------------------------------------------------------------


@every
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(kind):
    state = torch.get_rng_state()
    model, same, other = (fitted(kind, calibration="split", coverage=0.8, random_state=seed) for seed in (0, 0, 1))
    assert_same_bits(model, same)
    assert (model.predict(X_NEW) != other.predict(X_NEW)).all()
    assert_array_equal(torch.get_rng_state(), state)  # the caller's


@every
@pytest.mark.parametrize("network", [SMALL, LSTM(hidden=6, layers=2, dropout=0.1, steps=3)], ids=["mlp", "lstm"])
def test_a_row_has_its_interval_alone_and_pickles_copies_and_files_have_the_same_bits(kind, network, tmp_path):
    model = fitted(kind, [0.5, 0.8], y=Y, calibration="split", network=network)
    together = model.predict_interval(X_NEW)
    assert (together.width[..., 0] < together.width[..., 1]).all()
    tolerance = {"rtol": 1e-9} if network is SMALL else {"rtol": 1e-4, "atol": 1e-4}  # an LSTM predicts in float32
    for row in (0, 24):
        alone = model.predict_interval(X_NEW[[row]])
        assert_allclose(alone.lower, together.lower[[row]], **tolerance)
        assert_allclose(alone.upper, together.upper[[row]], **tolerance)
    save(model, tmp_path / "model.safetensors")
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), load(tmp_path / "model.safetensors")):
        assert_same_bits(same, model)
        assert same.network == network


def test_every_baseline_is_a_name_of_the_package():
    assert baselines.__all__ == sorted(kind.__name__ for kind in [*ALL, *FOR_CLASSES])
    stub = Path(baselines.__file__).with_suffix(".pyi").read_text()
    assert all(f" as {name}\n" in stub for name in baselines.__all__)


# A network of the user's own, and Ctrl-C -----------------------------------------------------------------------------


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


COUNTS = [(name, value) for name in ("members", "max_epochs", "patience") for value in (0, -1, 2.5, "many", True, None)]
WRONG = [
    *COUNTS,
    *[("batch_size", value) for value in (0, 2.5, "big", None)],
    *[("learning_rate", value) for value in (0.0, -1.0, math.nan, "fast", None, True)],
    *[("validation_size", value) for value in (0, 1, 1.5, -0.1, "half", None)],
    *[("calibration", value) for value in ("cross", "cv+", "none", 0, ["split"], Cross(), Split)],
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
    ("changes", "groups", "message"),
    [
        ({"validation_size": 0.995}, None, "validation_size must leave rows to train on, 0.995 holds out all 90"),
        ({"validation_size": 0.9}, GROUPS % 3, "validation_size must leave groups to train on, 0.9 holds out all 3"),
        (
            {"calibration": "split"},
            GROUPS % 2,
            "validation_size must leave groups .*all 1 .beside those that calibration='split' keeps.; .*more groups",
        ),
        ({"calibration": Split(size=0.02)}, None, "calibration='split' keeps 2 of 90 rows"),
        ({}, GROUPS[:-1], "groups must have one entry per row, got 89 for 90"),
    ],
)
def test_shares_that_the_rows_or_groups_do_not_allow_are_refused(changes, groups, message):
    with pytest.raises(ValueError, match=message):
        fitted(HeteroscedasticRegressor, groups=groups, **changes)


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


# Heteroscedastic networks --------------------------------------------------------------------------------------------

N_LAW, LEVELS = 1500, [0.5, 0.9]  # rows of N(sin(2 pi x), (0.1 + 0.5 x)^2)
GRID = np.linspace(0.02, 0.98, 49)[:, None]
TRUE_SD = 0.1 + 0.5 * GRID[:, 0]
LINEAR = MLP(hidden=1, layers=1, bins=0)


@pytest.fixture(scope="module", name="heteroscedastic")
def on_a_known_law():
    network = MLP(hidden=32, layers=3, bins=8, dropout=0.0)
    model = HeteroscedasticRegressor(LEVELS, network=network, learning_rate=5e-3, max_epochs=80, random_state=0)
    return model.fit(*LAW.draw(N_LAW, random_state=0))


def test_mean_and_standard_deviation_are_those_of_the_law(heteroscedastic):
    """Some twenty weights do the work: errors are those of moments over a twentieth of the training rows.

    A standard deviation from m rows has a relative error of 1 / sqrt(2 m).
    """
    m = 0.9 * N_LAW / 20
    mean_error = (heteroscedastic.predict(GRID) - LAW.true_mean(GRID)) / (TRUE_SD / math.sqrt(m))
    sd = heteroscedastic.predict_interval(GRID, 0.9).width / (2 * stats.norm.ppf(0.95))
    for error in (mean_error, (sd / TRUE_SD - 1) * math.sqrt(2 * m)):
        assert np.sqrt(np.mean(error**2)) < 2.0
        assert np.abs(error).max() < 5.0


def test_coverage_is_the_asked_one_on_average_and_near_it_everywhere(heteroscedastic):
    x, _ = LAW.draw(2000, random_state=1)
    lower, upper = heteroscedastic.predict_interval(x)
    for place, p in enumerate(LEVELS):
        coverage = LAW.exact_coverage(x, lower[:, place], upper[:, place])
        assert abs(coverage.mean() - p) < 4 * math.sqrt(p * (1 - p) / (0.9 * N_LAW))
        assert (np.abs(coverage - p) < 0.2).mean() > 0.95


def test_a_linear_network_finds_the_least_squares_line_and_the_spread_around_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = x @ [1.0, -2.0] + 5 + 0.7 * rng.normal(size=400)
    changes = {"network": LINEAR, "learning_rate": 0.01, "max_epochs": 200}
    (layer,) = team_of(fitted(HeteroscedasticRegressor, x=x, y=y, **changes)).layers
    slope = layer.weight[0, :, 0].numpy() * y.std() / x.std(axis=0)
    assert_allclose(slope, [1.0, -2.0], atol=4 * 0.7 / math.sqrt(360))
    assert_allclose(softplus(layer.bias[0, 0, 1]).item() * y.std(), 0.7, rtol=4 / math.sqrt(2 * 360))


# Quantile networks ---------------------------------------------------------------------------------------------------

N_LINE, SIGMA, P = 500, 0.5, 0.8


def on_a_line(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    return x, 2 * x[:, 0] - x[:, 1] + 3 + SIGMA * rng.normal(size=n)


X_LINE, Y_LINE = on_a_line(N_LINE, seed=0)
NEW_LINE = on_a_line(4000, seed=1)[0].clip(X_LINE.min(axis=0), X_LINE.max(axis=0))
Y_NEW_LINE = on_a_line(4000, seed=1)[1]


@pytest.fixture(scope="module", name="quantiles")
def quantiles_of_a_linear_network():
    """What the network gives for new rows, by their shares."""
    changes = {"network": LINEAR, "learning_rate": 0.01, "max_epochs": 150, "patience": 150}
    model = fitted(NeuralQuantileRegressor, P, x=X_LINE, y=Y_LINE, **changes)
    lower, upper = model.predict_interval(NEW_LINE)
    return {0.1: lower, 0.5: model.predict(NEW_LINE), 0.9: upper}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_linear_network_has_the_quantiles_of_scikit_learns_linear_quantile_regression(quantiles, share):
    """Both estimate the same truth, ours from nine tenths of the rows, and its ends by half-widths around the median.

    Most of the error is common to both, so they lie nearer to each other than a standard error or two. The standard
    error of a linear quantile at a row (Koenker and Bassett 1978) is sqrt(q (1 - q) h / N) / density, where h = 1 +
    |x|^2 / variance is the squared length of the row in the metric of the inputs, here uniform on [-1, 1].
    """
    lever = 1 + 3 * (NEW_LINE**2).sum(axis=1)
    error = np.sqrt(share * (1 - share) * lever / N_LINE) * SIGMA / stats.norm.pdf(stats.norm.ppf(share))
    twin = QuantileRegressor(quantile=share, alpha=0.0).fit(X_LINE, Y_LINE).predict(NEW_LINE)
    assert np.sqrt(np.mean(((quantiles[share] - twin) / error) ** 2)) < 1.0
    truth = 2 * NEW_LINE[:, 0] - NEW_LINE[:, 1] + 3 + SIGMA * stats.norm.ppf(share)
    assert (np.abs(quantiles[share] - truth) < 4 * error).all()


def test_the_share_of_new_rows_below_a_quantile_and_inside_is_the_asked_one(quantiles):
    """The error of the share: that of a quantile's level from 450 rows and three parameters, and that of counting."""
    for share, quantile in quantiles.items():
        error = math.sqrt(share * (1 - share) * (1 / (0.9 * N_LINE) + 1 / len(Y_NEW_LINE)))
        assert abs((quantile > Y_NEW_LINE).mean() - share) < 4 * error
    inside = ((quantiles[0.1] <= Y_NEW_LINE) & (quantiles[0.9] >= Y_NEW_LINE)).mean()
    assert abs(inside - P) < 4 * math.sqrt(P * (1 - P) * (1 / (0.9 * N_LINE) + 1 / len(Y_NEW_LINE)))


def test_half_widths_differ_where_the_law_is_skewed():
    law = laws()["skewed"]
    x, y = law.draw(1000, random_state=0)
    changes = {"network": MLP(hidden=32, layers=2, bins=8, dropout=0.0), "learning_rate": 0.01, "max_epochs": 60}
    model = fitted(NeuralQuantileRegressor, x=x, y=y, **changes)
    rows = np.linspace(0.1, 0.9, 9)[:, None]
    (lower, upper), median = model.predict_interval(rows), model.predict(rows)
    assert (upper - median > median - lower).mean() > 0.8
    x_new, _ = law.draw(2000, random_state=1)
    coverage = law.exact_coverage(x_new, *model.predict_interval(x_new)).mean()
    assert abs(coverage - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 900)


# Deep ensembles ------------------------------------------------------------------------------------------------------

EVEN = laws()["homoscedastic"]
X_EVEN, Y_EVEN = EVEN.draw(200, random_state=0)
ON_EVEN = np.linspace(X_EVEN.min(), X_EVEN.max(), 40)[:, None]
FIVE = {"network": MLP(hidden=32, layers=3, bins=4, dropout=0.0), "learning_rate": 5e-3, "x": X_EVEN, "y": Y_EVEN}


@pytest.fixture(scope="module", name="ensemble")
def five_networks():
    return fitted(DeepEnsembleRegressor, 0.9, max_epochs=60, **FIVE)


def test_an_ensembles_interval_has_the_moments_of_the_mixture_and_its_average_errs_less_than_its_members(ensemble):
    """By Jensen's inequality for the squared error; equal only where all members predict the same."""
    x = torch.from_numpy((ON_EVEN - X_EVEN.mean(axis=0)) / X_EVEN.std(axis=0))
    outputs = team_of(ensemble)(x.expand(5, -1, -1)).numpy()
    means = outputs[..., 0] * Y_EVEN.std() + Y_EVEN.mean()
    sigmas = (np.log1p(np.exp(outputs[..., 1])) + 1e-3) * Y_EVEN.std()
    assert_allclose(ensemble.predict(ON_EVEN), means.mean(axis=0))
    z = stats.norm.ppf(0.95)
    total = np.sqrt((sigmas**2 + means**2).mean(axis=0) - means.mean(axis=0) ** 2)
    assert_allclose(ensemble.predict_interval(ON_EVEN).width, 2 * z * total)
    assert_allclose(ensemble.predict_interval(ON_EVEN, noise=False).width, 2 * z * means.std(axis=0))
    truth = EVEN.true_mean(ON_EVEN)
    single, together = ((means - truth) ** 2).mean(), ((ensemble.predict(ON_EVEN) - truth) ** 2).mean()
    assert together < single
    assert_allclose(single - together, means.var(axis=0).mean())


def test_one_member_is_a_heteroscedastic_network():
    one, twin = fitted(DeepEnsembleRegressor, members=1, **FIVE), fitted(HeteroscedasticRegressor, **FIVE)
    assert_same_bits(one, twin, ON_EVEN)
    assert_array_equal(one.predict_interval(ON_EVEN, noise=False).width, np.zeros(40))


def test_members_agree_more_where_there_are_rows_than_where_there_are_none():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 0.35, 100), rng.uniform(0.65, 1, 100)])[:, None]
    y = np.sin(2 * np.pi * x[:, 0]) + 0.05 * rng.normal(size=200)
    changes = {"network": MLP(hidden=32, layers=3, bins=0, dropout=0.0), "max_epochs": 100, "learning_rate": 5e-3}
    model = fitted(DeepEnsembleRegressor, x=x, y=y, **changes)
    doubt = model.predict_interval(np.array([[0.2], [0.5], [0.8]]), noise=False).width
    assert doubt[1] > 2 * max(doubt[0], doubt[2])


# On windows of a series ----------------------------------------------------------------------------------------------

STEPS = 4


def windows(n, seed=0):
    """Rows of four past values of an autoregression, beside the hour of the day, and the value that follows."""
    rng = np.random.default_rng(seed)
    series = np.zeros(n + 50)
    for t in range(2, len(series)):
        series[t] = 1.2 * series[t - 1] - 0.5 * series[t - 2] + 0.3 * rng.normal()
    views = np.lib.stride_tricks.sliding_window_view(series[50 - STEPS :], STEPS + 1)[:n]
    return np.column_stack([views[:, :-1], np.arange(n) % 24]), views[:, -1]


@pytest.mark.parametrize("kind", SAMPLED)
def test_sampled_lstms_learn_an_autoregression(kind):
    """On 3000 new rows, at most 10 % above the noise's 0.3; a constant would be at 0.58, the last value at 0.37."""
    x, y = windows(600)
    x_new, y_new = windows(3000, seed=1)
    network = LSTM(hidden=8, layers=1, dropout=0.1, steps=STEPS)
    model = fitted(kind, x=x, y=y, network=network, max_epochs=60, learning_rate=0.01)
    assert np.sqrt(np.mean((model.predict(x_new) - y_new) ** 2)) < 0.33
    assert 0.8 < model.predict_interval(x_new).contains(y_new).mean() < 0.97


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@every
def test_a_step_that_is_replayed_gives_the_same_bits_as_one_that_is_not(kind, monkeypatch):
    replayed = fitted(kind, [0.5, 0.8], y=Y, max_epochs=30, device="cuda")
    monkeypatch.setattr(MLPTeam, "capturable", False)
    assert_same_bits(replayed, fitted(kind, [0.5, 0.8], y=Y, max_epochs=30, device="cuda"))
