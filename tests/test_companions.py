"""Companions: learners beside F, fitted on the same folds, that count by what they predict out of fold."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from coverwell import MLP, MatchedRegressor, Schedule, fit_together, load, matched, metrics, save
from coverwell.companions import Foreign, fit_companions, fit_forest
from coverwell.local import Local
from coverwell.paper import algorithm
from coverwell.portable import LinearMap
from coverwell.predictor import MeanTeam
from coverwell.trees import Trees

RNG = np.random.default_rng(0)
N = 90
X = RNG.normal(size=(N, 3))
Y = np.stack([3 * X[:, 0] + 0.1 * RNG.normal(size=N), 50 * np.sign(X[:, 1]) + RNG.normal(size=N)], axis=1)
X_NEW = RNG.normal(size=(20, 3)).clip(X.min(axis=0), X.max(axis=0))
GROUPS = np.repeat(np.arange(18), 5)
SHORT = {"network": MLP(hidden=4, layers=2, bins=0), "folds": 3, "repeats": 1, "random_state": 0}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=2, interval_epochs=2), "calibration": "cross"}


def fitted(companions, y=Y[:, 0], groups=None, **changes):
    return MatchedRegressor(0.8, companions=companions, **SHORT | changes).fit(X, y, groups=groups)


def weights_of(model):
    """(part, target), the networks first."""
    (team,) = model.predictor_.fitted_teams
    return team.weights.numpy()


def masks(n_members=3, n_rows=N):
    left_out = np.arange(n_rows) % n_members == np.arange(n_members)[:, None]
    return ~left_out, left_out


class Fixed(RegressorMixin, BaseEstimator):
    """A regressor for which the test writes down what it does."""

    def __init__(self, predicts=lambda X: np.zeros(len(X)), fails_below=0):
        self.predicts, self.fails_below = predicts, fails_below

    def fit(self, X, y):
        if len(X) < self.fails_below:
            raise RuntimeError("too few rows")
        self.fitted_ = True
        return self

    def predict(self, X):
        return self.predicts(X)


# What they predict and how much they count ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("companion", "module"),
    [
        ("forest", Trees),
        (Ridge(), LinearMap),
        (make_pipeline(StandardScaler(), Ridge()), None),
        (GradientBoostingRegressor(n_estimators=5, random_state=0), Trees),
        (KernelRidge(alpha=0.1), Foreign),
    ],
    ids=["forest", "Ridge", "Pipeline", "boosting", "a foreign one"],
)
@pytest.mark.parametrize("n_targets", [1, 2])
def test_the_prediction_is_the_blend_of_networks_and_companion(companion, module, n_targets):
    if n_targets == 2 and isinstance(companion, GradientBoostingRegressor):
        pytest.skip("boosting has one target")
    y = Y[:, :n_targets]
    model = fitted((companion,), y)
    (team,) = model.predictor_.fitted_teams
    weights = weights_of(model)
    assert weights.shape == (2, n_targets)
    assert (weights >= 0).all()
    assert_allclose(weights.sum(axis=0), 1.0)
    (beside,) = team.companions
    assert module is None or isinstance(beside, module)
    x = team.inputs(torch.from_numpy(X_NEW))
    networks = team.targets.inverse(team.scaled_estimate(x, noise=True)[0]).numpy()
    own = beside(torch.from_numpy(X_NEW)).numpy()
    if companion != "forest":  # the deployed one is fitted on all rows
        assert_allclose(own, clone(companion).fit(X, y.squeeze()).predict(X_NEW).reshape(-1, n_targets), rtol=1e-6)
    assert_allclose(model.predict(X_NEW), weights[0] * networks + weights[1] * own, rtol=1e-9)
    assert (weights[1] > 0.5).all()  # two epochs of four units have learned less


def test_each_target_has_weights_of_its_own():
    """A line is what a linear regression finds, a step what a forest finds."""
    weights = weights_of(fitted(("forest", LinearRegression()), Y))
    assert weights.shape == (3, 2)
    assert weights[2, 0] > 0.9
    assert weights[1, 1] > 0.9


def test_a_companion_that_says_nothing_does_not_count():
    schedule = Schedule(max_rounds=3, mean_epochs=10)
    weights = weights_of(fitted((Fixed(lambda X: 100 * np.sin(1e3 * X[:, 0])),), schedule=schedule))
    assert weights[0, 0] > 0.99


def overwritten(X):
    X *= 0
    return X[:, 0]


def test_a_companion_that_writes_into_its_rows_does_not_reach_those_of_the_user():
    model, table = fitted((Fixed(overwritten),)), X_NEW.copy()
    model.predict(table)
    assert_array_equal(table, X_NEW)


def test_the_out_of_fold_predictions_of_a_regressor_are_those_of_copies_that_left_the_row_out():
    trains, leaves_out = masks()
    ((module,), found) = fit_companions((Ridge(),), X, Y, trains, leaves_out, None, 0)
    assert found.shape == (N, 1, 2)
    for own, left_out in zip(trains, leaves_out, strict=True):
        assert_allclose(found[left_out, 0], Ridge().fit(X[own], Y[own]).predict(X[left_out]))
    assert_allclose(module(torch.from_numpy(X)).numpy(), Ridge().fit(X, Y).predict(X), rtol=1e-9)


def test_further_repeats_leave_the_predictions_of_a_regressor_as_they_are():
    trains, leaves_out = masks()
    order = np.random.default_rng(0).permutation(N)
    once = fit_companions((Ridge(),), X, Y, trains, leaves_out, None, 0)[1]
    both = [np.vstack([one, one[:, order]]) for one in (trains, leaves_out)]
    assert_array_equal(fit_companions((Ridge(),), X, Y, *both, None, 0)[1], once)


def test_rows_that_nobody_left_out_have_the_mean_for_a_prediction():
    trains, leaves_out = masks()
    leaves_out[:, :5] = False
    found = fit_companions((Ridge(),), X, Y, trains, leaves_out, None, 0)[1]
    assert_allclose(found[:5, 0], np.tile(Y.mean(axis=0), (5, 1)))


def test_a_target_does_not_reach_the_out_of_bag_prediction_of_its_own_row_or_group():
    """The shift of a group can be learned from its own rows alone: out of bag nothing of it may show."""
    shift = 10 * np.random.default_rng(1).normal(size=18)[GROUPS, None]
    one_hot = np.eye(18)[GROUPS]
    _, of_rows = fit_forest(one_hot, shift, None, 0)
    _, of_groups = fit_forest(one_hot, shift, GROUPS, 0)
    correlation = [np.corrcoef(found[:, 0], shift[:, 0])[0, 1] for found in (of_rows, of_groups)]
    assert correlation[0] > 0.9
    assert correlation[1] < 0.3


@pytest.mark.parametrize("unit", [2.0**-50, 2.0**50])  # powers of two: nothing is rounded
def test_a_forest_does_not_depend_on_the_unit_of_a_target_or_of_its_neighbour(unit):
    module, found = fit_forest(X, Y * [unit, 1], None, 0)
    twin, expected = fit_forest(X, Y, None, 0)
    rows = torch.from_numpy(X_NEW)
    assert_array_equal(found / [unit, 1], expected)
    assert_array_equal(module(rows).numpy() / [unit, 1], twin(rows).numpy())


def test_a_forest_explains_new_rows_as_it_said_out_of_bag():
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(1000, 3))
    y = np.sin(6 * x[:, :1]) + 0.3 * rng.normal(size=(1000, 1))
    module, found = fit_forest(x[:500], y[:500], None, 0)
    new = module(torch.from_numpy(x[500:])).numpy()
    errors = [np.mean((values - own) ** 2) for values, own in ((found, y[:500]), (new, y[500:]))]
    assert abs(errors[0] - errors[1]) < 4 * np.sqrt(2 * 2 * errors[1] ** 2 / 500)  # squares of normal errors


def test_what_is_random_is_drawn_from_the_seed():
    boosting = GradientBoostingRegressor(n_estimators=3, subsample=0.5)
    one, again, other = (fitted((boosting,), random_state=seed).predict(X_NEW) for seed in (0, 0, 1))
    assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split", None])
def test_every_calibration_has_companions(calibration):
    model = fitted(("forest", Ridge()), Y, calibration=calibration)
    assert len(model.predictor_.teams) == (3 if calibration == "cv+" else 1)
    for team in model.predictor_.fitted_teams:
        assert len(team.companions) == 2
    assert model.predict_interval(X_NEW).contains(model.predict(X_NEW)).all()


@pytest.mark.parametrize("changes", [{"companions": ()}, {"folds": None, "calibration": None}], ids=str)
def test_without_companions_or_folds_the_networks_are_alone(changes):
    model = fitted(**{"companions": ("forest",)} | changes)
    (team,) = model.predictor_.fitted_teams
    assert team.weights is None
    assert len(team.companions) == 0


def test_a_forest_is_saved_with_its_model_and_a_pickle_holds_any_companion(tmp_path):
    model = fitted(("forest",), Y, calibration="local")
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_array_equal(loaded.predict(X_NEW), model.predict(X_NEW))
    assert_array_equal(loaded.predict_interval(X_NEW).lower, model.predict_interval(X_NEW).lower)
    mixed = fitted((KernelRidge(), make_pipeline(StandardScaler(), Ridge())), Y)
    assert_array_equal(pickle.loads(pickle.dumps(mixed)).predict(X_NEW), mixed.predict(X_NEW))


# Bad input -----------------------------------------------------------------------------------------------------------


class Drawn:
    """Predicts at random."""

    def __call__(self, X):
        return np.random.default_rng().normal(size=len(X))


@pytest.mark.parametrize(
    ("companions", "error", "message"),
    [
        ("forest", TypeError, r"companions must be a tuple such as \('forest',\) .*, got 'forest'"),
        (Ridge(), TypeError, r"companions must be a tuple .*, got Ridge\(\)"),
        (("wood",), ValueError, "a companion must be 'forest' or a regressor, got 'wood'"),
        ((Ridge,), TypeError, "a regressor with fit and predict, .*Ridge.* is a class"),
        ((StandardScaler(),), TypeError, r"a regressor with fit and predict, StandardScaler\(\) has no predict"),
        ((3,), TypeError, "a regressor with fit and predict, 3 has no fit"),
        ((Fixed(fails_below=80),), ValueError, "companion Fixed.* failed on 60 rows: too few rows; leave"),
        ((Fixed(lambda X: 1 / 0),), ValueError, "companion Fixed.* failed to predict 30 rows: division by zero; leave"),
        ((Fixed(Drawn()),), ValueError, "must predict the same for the same rows, .* give it a fixed random_state"),
        ((Fixed(lambda X: np.zeros((len(X), 2))),), ValueError, r"predict 1 finite numbers .* of shape \(30, 2\)"),
        ((Fixed(lambda X: np.full(len(X), np.nan)),), ValueError, "must predict 1 finite numbers for each of 30 rows"),
    ],
)
def test_a_companion_that_cannot_serve_is_refused_and_nothing_is_half_fitted(companions, error, message):
    model = MatchedRegressor(0.8, **SHORT).set_params(companions=companions)
    with pytest.raises(error, match=message):
        model.fit(X, Y[:, 0])
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("companions", [("forest", Ridge()), (KernelRidge(),)], ids=["modules", "foreign"])
def test_a_gpu_blends_as_a_cpu_does(companions):
    model = fitted(companions, Y, device="cuda", calibration="local")
    on_gpu = model.predict(X_NEW)
    assert_allclose(model.set_params(device="cpu").predict(X_NEW), on_gpu, rtol=1e-4, atol=1e-3)


def test_a_second_network_is_trained_where_scores_still_fall_and_nowhere_else(monkeypatch):
    """Two tables in one stack: pure noise, which settles at once, and a plane without any, which does not."""
    short = {"mean_epochs": 1, "interval_epochs": 1, "max_rounds": 2}
    monkeypatch.setattr(matched, "DEFAULTS", {**matched.DEFAULTS, **short})
    monkeypatch.setattr(matched, "ROUNDS_BEFORE", 2)
    monkeypatch.setattr(matched, "SECOND_LONGER", 1)
    monkeypatch.setattr(algorithm, "FEWEST_STEPS", 0)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (1000, 2))
    targets = rng.normal(size=1000), rows @ [3.0, 1.0]
    poor = (DummyRegressor(),)  # a companion that leaves all to the networks
    models = [MatchedRegressor(companions=poor, repeats=1, random_state=seed) for seed in range(2)]
    fit_together(models, [(rows, y, None) for y in targets])
    has_second = [any(isinstance(part, MeanTeam) for part in model.predictor_.modules()) for model in models]
    assert has_second == [False, True]
    settled, going = (len(model.rounds_) for model in models)
    assert settled == 2 < going
    for model, y in zip(models, targets, strict=True):
        assert metrics.coverage(y, *model.predict_interval(rows)) > 0.85


def test_members_of_a_second_team_each_hold_their_own_first_one(monkeypatch):
    """Ranks compare members with averages over them, so each must err by itself; the averages are unchanged."""
    short = {"mean_epochs": 1, "interval_epochs": 1, "max_rounds": 2}
    monkeypatch.setattr(matched, "DEFAULTS", {**matched.DEFAULTS, **short})
    monkeypatch.setattr(matched, "SECOND_LONGER", 1)
    seen, shaped = [], Local.shaped
    monkeypatch.setattr(Local, "shaped", lambda self, *given: seen.append(given) or shaped(self, *given))
    rows = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    MatchedRegressor(companions=(DummyRegressor(),), repeats=2, random_state=0).fit(rows, rows @ [3.0, 1.0])
    ((team,), held, members), scaled = seen[0], torch.from_numpy
    own, first, y = team.mean_team, team.companions[-1], team.targets
    x = team.inputs(scaled(rows)).float()[None]
    of_second, of_first = (
        one.mean(net(net.for_members(x)).double(), 1).detach().numpy()
        for one, net in ((team.matching, own), (first.matching, first.mean_team))
    )
    dummy = y(team.companions[0](scaled(rows))).numpy()
    weights = team.weights.numpy()
    expected = weights[0] * of_second + weights[2] * of_first + weights[1] * dummy
    left_out = held.leaves_out[0].numpy()
    assert weights[2] > 0
    # The dummy is another one for each fold, and no more than noise apart.
    assert_allclose(members.mean[left_out], expected[left_out], atol=5e-3 + 0.2 * weights[1].item())
