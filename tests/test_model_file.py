"""A loaded model predicts the same bits; a file that is not whole is an error and nothing else."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save as safetensors_bytes
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from torch import nn

import coverwell
from coverwell import LSTM, MLP, Forecaster, IQRFit, MatchedForecaster, MatchedRegressor, Schedule, SigmaFit, baselines
from coverwell.baselines.baseline import MixtureRegressor
from coverwell.calibration import Cross, Split
from coverwell.errors import ConstantDataWarning, ModelFileError
from coverwell.model_file import read_tensors, write_tensors
from coverwell.paper.losses import PaperLoss, QuantileLoss
from coverwell.paper.matching import Unmatched

SMALL = MLP(hidden=8, bins=4)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.stack([X[:, 0] + RNG.normal(size=60), X[:, 1] * RNG.normal(size=60)], axis=1)
X_NEW = RNG.normal(size=(25, 3)).clip(X.min(axis=0), X.max(axis=0))
NO_MODEL = r"model\.safetensors is whole, but no model can be made of it here"


def fitted(y=Y[:, 0], x=X, **parameters):
    small = {"network": SMALL, "schedule": Schedule(max_rounds=2), "repeats": 1, "folds": 3, "random_state": 0}
    return MatchedRegressor(**{**small, **parameters}).fit(x, y)


@pytest.fixture(scope="module")
def model():
    """One fitted model, to be left as it is."""
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def reloaded(model, path, **own):
    coverwell.save(model, path)
    return coverwell.load(path, **own)


def assert_same_predictions(one, other, x=X_NEW):
    """Equal to the bit, joint boxes too where there are any."""
    np.testing.assert_array_equal(one.predict(x), other.predict(x), strict=True)
    for joint in (False, True) if one.calibration else (False,):
        bounds = (model.predict_interval(x, joint=joint) for model in (one, other))
        for bound, same in zip(*bounds, strict=True):
            np.testing.assert_array_equal(bound, same, strict=True)


def assert_saved_again_the_same(again, path):
    coverwell.save(again, path.with_name("again"))
    assert path.read_bytes() == path.with_name("again").read_bytes()


FITS = {
    "cross": {"coverage": 0.8, "calibration": Cross(), "interval_loss": QuantileLoss(steepness=30.0)},
    "cross, levels": {"y": Y, "coverage": (0.9, 0.5), "matching": "iqr"},
    "cross, list of levels": {"coverage": [0.8, np.float64(0.5)], "matching": IQRFit(0.6, 0.2, 0.2)},
    "cv+": {"coverage": [0.8], "calibration": "cv+", "matching": SigmaFit(0.3)},
    "cv+, targets": {"y": Y, "calibration": "cv+", "coverage": [0.5, 0.8]},
    "split": {"coverage": 0.8, "calibration": Split(0.4), "matching": None},
    "split, targets": {"y": Y, "calibration": Split(size=0.5), "coverage": [0.8], "matching": Unmatched()},
    "no ranks": {"y": Y[:, :1], "calibration": None, "interval_network": MLP(hidden=4, layers=1, bins=0)},
    "as published": {"calibration": None, "folds": None, "interval_loss": PaperLoss(noise_weight=0.2)},
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS.keys())
def test_a_loaded_model_is_the_saved_one(fit, path):
    model = fitted(**fit)
    again = reloaded(model, path)
    assert_same_predictions(model, again)
    assert again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_equal([vars(r) for r in again.rounds_], [vars(r) for r in model.rounds_])
    assert (again.out_of_fold_ is None) == (model.out_of_fold_ is None)
    if model.out_of_fold_ is not None:
        np.testing.assert_equal(vars(again.out_of_fold_), vars(model.out_of_fold_))
    assert_saved_again_the_same(again, path)


MIXED = pd.DataFrame(X[:, :2], columns=["rooms", "age"]).assign(
    rooms=np.where(np.arange(60) % 5, X[:, 0], np.nan),
    heating=np.array(["gas", "Öl", None])[np.arange(60) % 3],
    garden=np.arange(60) % 2 == 0,
    sold=pd.date_range("2024-01-01", periods=60, freq="7h"),
    currency="euro",
)


@pytest.fixture(scope="module")
def mixed():
    """One model fitted on columns of all kinds, to be left as it is."""
    with pytest.warns(ConstantDataWarning, match="'currency'"):
        return fitted(x=MIXED)


def test_columns_are_read_as_before_they_were_saved(mixed, path):
    again = reloaded(mixed, path)
    assert again.columns_ == mixed.columns_
    assert_same_predictions(mixed, again, MIXED)
    assert_saved_again_the_same(again, path)


def test_a_loaded_model_is_an_estimator_like_any_other(model, path):
    again = reloaded(model, path)
    with pytest.raises(NotFittedError):
        clone(again).predict(X_NEW)
    assert_same_predictions(clone(again).fit(X, Y[:, 0]), model)
    assert_same_predictions(again.fit(X, Y[:, 1]), fitted(Y[:, 1]))


def test_a_loaded_model_goes_on_training_where_the_saved_one_stood(path):
    model = fitted(warm_start=True)
    again = reloaded(model, path)
    assert_same_predictions(model.fit(X, Y[:, 0]), again.fit(X, Y[:, 0]))


def test_weights_are_stored_as_they_were_trained(model, path):
    coverwell.save(model, path)
    weights = {name: array for name, array in read_tensors(path)[1].items() if "_team." in name}
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    assert len(weights) == 2 * (2 + 5 * 2)  # two teams, each with two buffers and five layers


def test_a_weight_that_float32_would_round_is_stored_whole(model, path):
    changed = copy.deepcopy(model)
    (team,) = changed.predictor_.fitted_teams
    for parameter in team.mean_team.parameters():
        parameter.mul_(1 / 3)
    team.interval_team.linears[-1].bias.fill_(1e-300)
    assert_same_predictions(changed, reloaded(changed, path))


def test_the_networks_are_those_that_were_trained_whatever_was_set_later(path):
    model = fitted()
    model.set_params(network=MLP(hidden=16))
    again = reloaded(model, path)
    assert again.network == MLP(hidden=16)
    assert_same_predictions(model, again)


def test_loading_leaves_the_random_state_of_the_caller_as_it_was(path):
    coverwell.save(fitted(network=nn.Linear), path)
    before = torch.get_rng_state()
    coverwell.load(path, network=nn.Linear)
    assert torch.equal(torch.get_rng_state(), before)


# Baselines and forecasters.

BASELINES = {
    "MC dropout": (baselines.MCDropoutRegressor, {"n_samples": 7, "length_scale": 0.5}),
    "concrete": (baselines.ConcreteDropoutRegressor, {"n_samples": 7, "members": 2, "calibration": "split"}),
    "Bayes": (baselines.BayesByBackpropRegressor, {"n_samples": 7, "prior_scale": 0.5, "kl_weight": 0.1}),
    "quantiles": (baselines.NeuralQuantileRegressor, {"calibration": "split"}),
    "heteroscedastic": (baselines.HeteroscedasticRegressor, {"batch_size": 16, "learning_rate": 0.01}),
    "ensemble": (baselines.DeepEnsembleRegressor, {"members": 3, "calibration": Split(0.3)}),
}
each_baseline = pytest.mark.parametrize(("kind", "parameters"), BASELINES.values(), ids=BASELINES.keys())


def fitted_baseline(kind, y=Y, **parameters):
    small = {"coverage": [0.8, 0.5], "network": MLP(hidden=8, layers=2, bins=4), "max_epochs": 10, "random_state": 0}
    return kind(**{**small, **parameters}).fit(X, y)


@each_baseline
def test_a_loaded_baseline_is_the_saved_one(kind, parameters, path):
    for y, coverage in ((Y, [0.8, 0.5]), (Y[:, 0], 0.8)):
        model = fitted_baseline(kind, y, coverage=coverage, **parameters)
        again = reloaded(model, path)
        assert type(again) is kind
        assert_same_predictions(model, again)
        if isinstance(model, MixtureRegressor):
            doubt, same = (m.predict_interval(X_NEW, noise=False).width for m in (model, again))
            np.testing.assert_array_equal(doubt, same, strict=True)
        assert again.get_params() == model.get_params()
        assert vars(again).keys() == vars(model).keys()
        np.testing.assert_equal([vars(r) for r in again.rounds_], [vars(r) for r in model.rounds_])
        assert_saved_again_the_same(again, path)
    assert_same_predictions(clone(again).fit(X, Y[:, 0]), model)


HOURS = pd.date_range("2024-03-25", periods=260, freq="h", tz="Europe/Berlin")
SERIES = 20 + np.sin(np.arange(260) / 3) + 0.2 * RNG.normal(size=260)
FORECASTER = {"past": 4, "missing": "fill", "network": LSTM(hidden=3, layers=1), "folds": 2, "random_state": 0}
BRIEF = {"schedule": Schedule(max_rounds=1)}


def in_use(forecaster, series, **fit):
    """A forecaster that has been fitted and has seen ten updates, one of them missing, and stands at a forecast."""
    forecaster.fit(series[:240], **fit)
    for step, value in enumerate(SERIES[240:250]):
        more = {"past_covariates": [float(step % 5)]} if "past_covariates" in fit else {}
        forecaster.update(np.nan if step == 3 else value, **more)
    forecaster.predict_interval()
    return forecaster


def assert_alike(one, other):
    np.testing.assert_array_equal(np.asarray(one.predict()), np.asarray(other.predict()))
    for ours, theirs in zip(one.predict_interval(), other.predict_interval(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert one.calibrator_.state_dict() == other.calibrator_.state_dict()


@pytest.fixture(scope="module")
def hourly():
    forecaster = MatchedForecaster([0.9, 0.5], horizon=2, calendar=("hour",), refit_every=15, **FORECASTER, **BRIEF)
    return in_use(forecaster, pd.Series(SERIES, index=HOURS, name="load"))


def test_a_loaded_forecaster_goes_on_as_the_saved_one_would(hourly, path):
    saved, again = copy.deepcopy(hourly), reloaded(hourly, path)
    assert repr(again) == repr(saved)
    assert (again.predict().name, str(again.predict().index.tz)) == ("load", "Europe/Berlin")
    assert (str(again.rounds_), again.rate_) == (str(saved.rounds_), saved.rate_)
    assert_alike(saved, again)
    for value in SERIES[250:258]:  # a refit falls among these
        saved.update(value)
        again.update(value)
        assert_alike(saved, again)
    assert again.n_since_fit_ == saved.n_since_fit_


@pytest.mark.parametrize("kind", ["numbers", "polars", "periods"])
def test_every_kind_of_clock_comes_back(kind, path):
    series = {
        "numbers": SERIES,
        "polars": pl.DataFrame({"at": HOURS.tz_localize(None).to_list(), "load": SERIES}),
        "periods": pd.Series(SERIES, index=pd.period_range("1990-01", periods=260, freq="M")),
    }[kind]
    forecaster = in_use(MatchedForecaster(0.8, **FORECASTER, **BRIEF), series)
    again = reloaded(forecaster, path)
    assert_alike(forecaster, again)
    assert again.history_.clock == forecaster.history_.clock


def test_a_baseline_inside_a_forecaster_comes_back_with_its_parameters(path):
    network = LSTM(hidden=3, layers=1, dropout=0.1)
    baseline = baselines.MCDropoutRegressor(0.8, network=network, max_epochs=10, n_samples=3, random_state=0)
    covariates = np.arange(240, dtype=float) % 5
    forecaster = in_use(Forecaster(baseline, past=4, missing="fill"), SERIES, past_covariates=covariates)
    again = reloaded(forecaster, path)
    assert_alike(forecaster, again)
    assert repr(again.regressor) == repr(baseline)


WRONG_FORECASTER = {
    "an unfitted regressor": lambda learned, arrays: learned["regressor_"].update(learned={}),
    "another horizon": lambda learned, arrays: learned["windows_"].update(horizon=3),
    "a short history": lambda learned, arrays: replaced(arrays, "history_.values", lambda values: values[:-1]),
    "a hole in it": lambda learned, arrays: replaced(arrays, "history_.values", lambda values: values * np.nan),
    "other levels": lambda learned, arrays: learned["calibrator_"].update(coverage={"tuple": [0.4, 0.9]}, state=None),
    "an unknown clock": lambda learned, arrays: learned["history_"]["clock"].update(kind="sundial"),
    "an unknown time zone": lambda learned, arrays: learned["history_"]["clock"].update(tz="Mars/Base"),
    "a frequency that is no text": lambda learned, arrays: learned["history_"]["clock"].update(freq=5),
    "no blocks": lambda learned, arrays: learned["time_folds_"].update(n_folds=0),
    "blocks without end": lambda learned, arrays: learned["time_folds_"].update(n_folds=10**12),
    "no steps since the fit": lambda learned, arrays: learned.pop("n_since_fit_"),
    "no time to start at": lambda learned, arrays: learned["history_"]["clock"].update(start="soon"),
    "another calendar": lambda learned, arrays: learned["history_"].update(calendar={"tuple": []}),
    "unknown covariates": lambda learned, arrays: learned["history_"].update(ahead_names={"tuple": ["x"]}),
}


@pytest.mark.parametrize("wrong", WRONG_FORECASTER.values(), ids=WRONG_FORECASTER.keys())
def test_a_forecaster_whose_parts_do_not_fit_together_is_refused(hourly, path, wrong):
    assert_refused(hourly, path, lambda model, arrays: wrong(model["learned"], arrays))


# A user's own code.


def normalised(n_features: int, n_outputs: int) -> nn.Module:
    """With a whole number (the batches seen) among its buffers."""
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, n_outputs))


class Halved(NamedTuple):
    """A strategy that is also a tuple."""

    inner: Unmatched = Unmatched()

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return self.inner.n_outputs(n_targets, n_levels)

    def mean(self, outputs: torch.Tensor, n_targets: int) -> torch.Tensor:
        return 0.5 * self.inner.mean(outputs, n_targets)

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, target: Any) -> torch.Tensor:
        return (self.mean(outputs, y.shape[-1]) - y).square().mean(dim=(1, 2))


def test_baselines_and_forecasters_with_networks_of_the_users_own_are_given_them_again(path):
    baseline = fitted_baseline(baselines.DeepEnsembleRegressor, network=normalised, members=2)
    assert_same_predictions(baseline, reloaded(baseline, path, network=normalised))
    with pytest.raises(ModelFileError, match=r"load\(path, network=\.\.\.\)"):
        coverwell.load(path)
    with pytest.raises(ModelFileError, match="load it without matching="):
        coverwell.load(path, network=normalised, matching=SigmaFit())
    forecaster = in_use(MatchedForecaster(0.8, **FORECASTER | {"network": nn.Linear}, **BRIEF), SERIES)
    assert_alike(forecaster, reloaded(forecaster, path, network=nn.Linear))


class OwnLoss(QuantileLoss):
    """A loss of the user's."""


class OwnSplit(Split):
    """A calibration of the user's."""


OWN = {
    "network": {"network": normalised},
    "interval network": {"interval_network": normalised},
    "both": {"network": nn.Linear, "interval_network": normalised},
    "matching": {"matching": Halved()},
    "loss and calibration": {"interval_loss": OwnLoss(), "calibration": OwnSplit(0.4)},
    "all": {"network": normalised, "matching": Halved()},
}


@pytest.mark.parametrize("own", OWN.values(), ids=OWN.keys())
def test_objects_of_the_users_own_are_given_again(own, path):
    model = fitted(coverage=0.8, **own)
    again = reloaded(model, path, **own)
    assert_same_predictions(model, again)
    assert again.get_params() == model.get_params()
    for name in own:
        with pytest.raises(ModelFileError, match=rf"model\.safetensors .* load\(path, {name}=\.\.\.\)"):
            coverwell.load(path, **{other: value for other, value in own.items() if other != name})


def failing(n_features: int, n_outputs: int) -> nn.Module:
    raise RuntimeError("out of order")


@pytest.mark.parametrize("network", [nn.Linear, MLP(hidden=3), failing, lambda n_features, n_outputs: "no module"])
def test_another_network_than_the_fitted_one_is_an_error(network, path):
    coverwell.save(fitted(network=normalised), path)
    with pytest.raises(ModelFileError, match=r"no model can be made of it here .* objects of your own"):
        coverwell.load(path, network=network)


def test_another_matching_than_the_fitted_one_is_an_error(path):
    coverwell.save(fitted(y=Y, matching=Halved()), path)
    with pytest.raises(ModelFileError, match="no model can be made of it here"):
        coverwell.load(path, matching=SigmaFit())


@pytest.mark.parametrize("own", [{"network": nn.Linear}, {"interval_network": SMALL}, {"matching": SigmaFit()}])
def test_an_object_that_is_not_needed_is_an_error(model, path, own):
    coverwell.save(model, path)
    with pytest.raises(ModelFileError, match=f"load it without {next(iter(own))}="):
        coverwell.load(path, **own)


def test_a_splitter_comes_back_as_its_description_and_is_not_taken_for_none(path):
    model = fitted(folds=KFold(3), calibration=Split(0.4))
    again = reloaded(model, path)
    assert again.folds == str(KFold(3))
    assert_same_predictions(model, again)
    assert_saved_again_the_same(again, path)
    with pytest.raises(ValueError, match=r"KFold\(n_splits=3"):
        again.fit(X, Y)
    again.set_params(folds=KFold(3)).fit(X, Y[:, 0])


def test_a_random_state_object_comes_back_as_none(path):
    model = fitted(random_state=np.random.RandomState(0))
    again = reloaded(model, path)
    assert again.random_state is None
    assert_same_predictions(model, again)


# What cannot be saved.


def test_an_unfitted_model_cannot_be_saved(path):
    with pytest.raises(NotFittedError):
        coverwell.save(MatchedRegressor(), path)
    assert not path.exists()


class Special(MatchedRegressor):
    """A subclass may do anything, so a file cannot stand for it."""


@pytest.mark.parametrize("other", [LinearRegression(), make_pipeline(MatchedRegressor()), Special()])
def test_what_is_not_ours_cannot_be_saved(other, path):
    with pytest.raises(TypeError, match=r"takes a regressor, classifier or forecaster of coverwell, .* got"):
        coverwell.save(other, path)


def test_an_existing_file_survives_a_save_that_fails(model, path):
    coverwell.save(model, path)
    before = path.read_bytes()
    broken = copy.deepcopy(model)
    for value, name in ((object(), "object"), (np.zeros(2, dtype=complex), "complex128"), ({}, "dict")):
        broken.rounds_ = [value]
        with pytest.raises(TypeError, match=rf"rounds_\.0 cannot be saved: .*{name}"):
            coverwell.save(broken, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


class Remembering(nn.Linear):
    """A module with a state that is not a tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 0}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Nothing to set."""


def test_a_network_with_a_state_beside_its_tensors_cannot_be_saved(model, path):
    changed = copy.deepcopy(model)
    changed.predictor_.fitted_teams[0].mean_team.extra = Remembering(1, 1)
    with pytest.raises(TypeError, match="_extra_state cannot be saved: it must be a tensor, got dict"):
        coverwell.save(changed, path)


# What cannot be loaded.


def test_a_missing_file_is_not_found(path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        coverwell.load(path)


class Harmful:
    """Writes a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def test_no_pickle_is_opened(path):
    for write in (pickle.dump, torch.save):
        with path.open("wb") as file:
            write(Harmful(path.with_name("victim")), file)
        with pytest.raises(ModelFileError, match="damaged or not a model file"):
            coverwell.load(path)
    assert not path.with_name("victim").exists()


def without(arrays, part):
    del arrays[next(name for name in arrays if part in name)]


def replaced(arrays, part, change):
    name = next(name for name in sorted(arrays) if part in name)
    arrays[name] = change(arrays[name])


def team_of(model):
    return model["learned"]["predictor_"]["teams"][0]


def correction_of(model):
    return model["learned"]["predictor_"]["correction"]


WRONG = {
    "a weight is missing": lambda model, arrays: without(arrays, "linears.0.weight"),
    "an array is missing": lambda model, arrays: without(arrays, "inputs.centre"),
    "a weight has another shape": lambda model, arrays: replaced(arrays, "linears.0.weight", lambda w: w[:, :, 1:]),
    "a weight has another type": lambda model, arrays: replaced(arrays, "linears.0.weight", lambda w: w.astype(int)),
    "a weight too many": lambda model, arrays: arrays.update({"predictor_.teams.0.mean_team.more": np.zeros(3)}),
    "a factor has another shape": lambda model, arrays: replaced(arrays, "correction.factor", lambda f: f.repeat(2)),
    "a joint factor has another shape": lambda model, arrays: replaced(arrays, "joint_f", lambda f: f.repeat(2)),
    "a scaling has another shape": lambda model, arrays: replaced(arrays, "inputs.low", lambda c: c[:2]),
    "another number of features": lambda model, arrays: model["learned"].update(n_features_in_=4),
    "another number of names": lambda model, arrays: model["learned"].update(feature_names_in_={"strings": ["a"]}),
    "another number of targets": lambda model, arrays: model["learned"].update(target_names_={"tuple": ["a", "b"]}),
    "a target without a name": lambda model, arrays: model["learned"].update(target_names_={"tuple": [[]]}),
    "other levels": lambda model, arrays: model["learned"]["predictor_"].update(levels={"tuple": [0.8]}),
    "an impossible level": lambda model, arrays: model["learned"]["predictor_"].update(levels={"tuple": [2.0]}),
    "other levels of a team": lambda model, arrays: replaced(arrays, "teams.0.coverage", lambda c: c / 2),
    "no teams": lambda model, arrays: model["learned"]["predictor_"].update(teams=[]),
    "teams of another kind": lambda model, arrays: model["learned"]["predictor_"].update(teams=[1]),
    "scores that are none": lambda model, arrays: model["learned"]["predictor_"]["correction"].update(scores=1),
    "no correction": lambda model, arrays: model["learned"]["predictor_"]["correction"].update(factor=None),
    "another thing to mirror": lambda model, arrays: team_of(model).update(mirroring={"class": "MLP"}),
    "a mirror": lambda model, arrays: team_of(model).update(mirroring={"class": "Mirroring", "targets": "same"}),
    "a range without an end": lambda model, arrays: team_of(model)["inputs"].update(high=""),
    "no centre of inputs": lambda model, arrays: team_of(model)["inputs"].update(centre=None),
    "no spread of inputs": lambda model, arrays: team_of(model)["inputs"].pop("spread"),
    "no range of inputs": lambda model, arrays: team_of(model)["inputs"].update(low=None),
    "no centre of targets": lambda model, arrays: team_of(model)["targets"].update(centre=None),
    "no spread of targets": lambda model, arrays: team_of(model)["targets"].pop("spread"),
    "no scaling": lambda model, arrays: team_of(model)["targets"].update(centre=None, spread=None),
    "nothing learned": lambda model, arrays: model.update(learned={}),
    "a method in its place": lambda model, arrays: model["learned"].update(predict=1),
    "a class in its place": lambda model, arrays: model["learned"].update(__class__={"class": "Round"}),
    "an attribute that is missing": lambda model, arrays: model["learned"].pop("rounds_"),
    "no number of features": lambda model, arrays: model["learned"].pop("n_features_in_"),
    "text where a number was": lambda model, arrays: team_of(model)["inputs"].update(n_rows="60"),
    "rounds that are none": lambda model, arrays: model["learned"].update(rounds_=["first"]),
    "rounds of other sizes": lambda model, arrays: model["learned"]["rounds_"][0].update(coverage={"array": "x"}),
    "levels that do not rise": lambda model, arrays: correction_of(model)["levels"]["tuple"].reverse(),
    "levels that are text": lambda model, arrays: correction_of(model).update(levels={"tuple": ["a", "b"]}),
    "a factor that is no number": lambda model, arrays: replaced(arrays, "correction.factor", lambda f: f * np.nan),
    "kept rows of other widths": lambda model, arrays: replaced(arrays, "kept.rows", lambda rows: rows[:, 1:]),
    "bounds of other rows": lambda model, arrays: replaced(arrays, "out_of_fold_.lower", lambda b: b[1:]),
    "knots of another forest": lambda model, arrays: replaced(arrays, "shape.knots", lambda knots: knots[:, 1:]),
    "a weight that is no number": lambda model, arrays: replaced(arrays, "linears.1.bias", lambda bias: bias * np.nan),
    "a spread of zero": lambda model, arrays: replaced(arrays, "inputs.spread", lambda spread: 0 * spread),
    "a leaf without end": lambda model, arrays: replaced(arrays, "forests.0.table", lambda table: table + np.inf),
    "very many layers": lambda model, arrays: team_of(model)["mean_team"]["network"].update(layers=10**9),
    "a device without a name": lambda model, arrays: model["parameters"].update(device=0),
    "another class": lambda model, arrays: model.update({"class": "LinearRegression"}),
    "a class that is no estimator": lambda model, arrays: model.update({"class": "MLP"}),
    "a class by its path": lambda model, arrays: model["parameters"].update(matching={"class": "os.system", "c": "ls"}),
    "a function of Python's": lambda model, arrays: model["parameters"].update(matching={"class": "eval", "s": "1"}),
    "an impossible network": lambda model, arrays: model["parameters"].update(network={"class": "MLP", "hidden": -1}),
    "a huge network": lambda model, arrays: team_of(model)["mean_team"]["network"].update(hidden=2**40),
    "an unknown parameter": lambda model, arrays: model["parameters"].update(colour="red"),
    "an unknown kind of value": lambda model, arrays: model["parameters"].update(coverage={"set": [0.9]}),
    "an own value nobody knows": lambda model, arrays: model["parameters"].update(coverage={"own": "coverage"}),
}


def assert_refused(model, path, wrong):
    coverwell.save(model, path)
    header, arrays = read_tensors(path)
    wrong(header["model"], arrays)
    write_tensors(path, header, arrays)
    with pytest.raises(ModelFileError, match=NO_MODEL) as refusal:
        coverwell.load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_whole_file_with_the_wrong_content_is_refused(model, path, wrong):
    assert_refused(model, path, wrong)


def first(source):
    return source["columns"]["columns"]["tuple"][0]


WRONG_BASELINE = {
    "a rate is missing": lambda model, arrays: without(arrays, "rate_logit"),
    "a rate has another shape": lambda model, arrays: replaced(arrays, "rate_logit", lambda r: r[:, 1:]),
    "another head": lambda model, arrays: team_of(model).update(head={"class": "QuantileHead"}),
    "no head": lambda model, arrays: team_of(model).pop("head"),
    "another kind of team": lambda model, arrays: team_of(model)["team"]["network"].update(learned=False),
    "other members": lambda model, arrays: team_of(model)["team"].update(n_members=2),
    "a parameter of another baseline": lambda model, arrays: model["parameters"].update(kl_weight=1.0),
    "an abstract class": lambda model, arrays: model.update({"class": "SampledRegressor"}),
}


@pytest.mark.parametrize("wrong", WRONG_BASELINE.values(), ids=WRONG_BASELINE.keys())
def test_a_whole_baseline_file_with_the_wrong_content_is_refused(path, wrong):
    assert_refused(fitted_baseline(baselines.ConcreteDropoutRegressor), path, wrong)


WRONG_COLUMNS = {
    "nothing": lambda source: source.update(columns=None),
    "text": lambda source: source.update(columns="all"),
    "a list": lambda source: source.update(columns=[]),
    "another source": lambda source: source.update({"class": "os.system"}),
    "no columns": lambda source: source["columns"].update(columns={"tuple": []}),
    "a column too few": lambda source: source["columns"]["columns"]["tuple"].pop(),
    "a column twice": lambda source: source["columns"]["columns"]["tuple"].append(first(source)),
    "no kind": lambda source: first(source).pop("kind"),
    "an unknown kind": lambda source: first(source).update(kind="os.system"),
    "a median that is text": lambda source: first(source).update(median="1"),
    "a median that is a list": lambda source: first(source).update(median=[1.0]),
    "fewer features": lambda source: first(source).update(kept={"tuple": [""]}),
    "features in another order": lambda source: first(source)["kept"]["tuple"].reverse(),
    "a negative count": lambda source: first(source).update(n_missing=-1),
    "a count that is text": lambda source: source["columns"].update(n_rows="60"),
    "a time zone of numbers": lambda source: first(source).update(zone="UTC"),
    "an unknown reason": lambda source: source["columns"]["dropped"]["tuple"][0].update(tuple=["a", "luck"]),
}


@pytest.mark.parametrize("wrong", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS.keys())
def test_columns_that_cannot_have_been_learned_are_refused(mixed, path, wrong):
    assert_refused(mixed, path, lambda model, arrays: wrong(model["learned"]["source_"]))


def test_columns_in_another_order_than_the_fitted_names_are_refused(mixed, path):
    assert_refused(mixed, path, lambda model, arrays: model["learned"]["feature_names_in_"]["strings"].reverse())


# Damage.


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """The bytes of a small model that reads a column of text, its rows and their bounds."""
    rows = pd.DataFrame({"a": X[:, 0], "city": np.where(X[:, 1] > 0, "Rome", "Oslo")})
    small = fitted(x=rows, coverage=0.8, network=MLP(hidden=4, layers=2, bins=2), folds=2)
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    coverwell.save(small, path)
    return path.read_bytes(), rows, small.predict_interval(rows).upper


def damaged(content, rng):
    """A bit flipped, bytes gone, doubled or overwritten, or the end missing; half of it in the header."""
    size = len(content) if rng.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    start = int(rng.integers(size))
    stop = min(len(content), start + int(rng.integers(1, 100)))
    flipped = bytes([content[start] ^ 1 << int(rng.integers(8))])
    changes = [flipped + content[start + 1 : stop], b"", 2 * content[start:stop], rng.bytes(stop - start)]
    kind = rng.integers(5)
    return content[:start] if kind == 4 else content[:start] + changes[kind] + content[stop:]


def test_each_of_1000_damaged_files_predicts_the_same_or_is_refused(small_file, path):
    (content, rows, expected), rng, refusals = small_file, np.random.default_rng(7), []
    ends = [b"", content[:7], content[:-1], content + b"\0"]
    for wrong in ends + [damaged(content, rng) for _ in range(1000)]:
        path.write_bytes(wrong)
        try:
            model = coverwell.load(path)
        except ModelFileError as error:
            refusals.append(str(error))
        else:
            np.testing.assert_array_equal(model.predict_interval(rows).upper, expected)
    assert len(refusals) > 950
    assert all(str(path) in refusal and "\n" not in refusal for refusal in refusals)
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # no code was run that left a trace


# Tensor files.

ARRAYS = {
    "weights": np.arange(6.0).reshape(2, 3).T,  # not contiguous
    "short": np.array([1.5, np.nan], dtype=np.float32),
    "empty": np.zeros((0, 2)),
    "count": np.array(3),
    "flags": np.array([True, False]),
}


def test_header_and_arrays_come_back_as_they_were(path):
    write_tensors(path, {"name": "é", "numbers": [0.1, 1, None]}, ARRAYS)
    header, arrays = read_tensors(path)
    assert (header["name"], header["numbers"]) == ("é", [0.1, 1, None])
    assert set(header["versions"]) == {"coverwell", "torch", "numpy", "scikit-learn"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    before = path.read_bytes()
    write_tensors(path, {"numbers": [0.1, 1, None], "name": "é"}, dict(reversed(ARRAYS.items())))
    assert path.read_bytes() == before  # the order of entries does not change a byte


def test_a_safetensors_file_of_others_is_refused(path):
    for metadata in (None, {"format": "pt"}):
        path.write_bytes(safetensors_bytes({"a": np.zeros(3)}, metadata))
        with pytest.raises(ModelFileError, match=r"a file that coverwell\.save wrote, got another"):
            read_tensors(path)


@pytest.mark.parametrize("number", [1, 3])
def test_a_file_of_another_format_names_the_versions_to_install(path, number):
    header = {"format": number, "versions": {"coverwell": "9.1"}, "sha256": "by other rules"}
    path.write_bytes(safetensors_bytes({}, {"coverwell": json.dumps(header)}))
    with pytest.raises(ModelFileError, match=rf"format {number}, but .* reads 2; load it .*'coverwell': '9\.1'.*fit"):
        read_tensors(path)


@pytest.mark.parametrize("text", ["", "[]", "null", "1", "{}", '{"format": "1"}', "[" * 100_000, '{"format": 2}'])
def test_a_header_that_is_not_ours_is_refused(path, text):
    path.write_bytes(safetensors_bytes({}, {"coverwell": text}))
    with pytest.raises(ModelFileError, match="is damaged or not a model file"):
        read_tensors(path)


@pytest.mark.parametrize("change", ["value", "name", "shape", "type", "header"])
def test_the_checksum_covers_values_names_shapes_types_and_header(path, change):
    write_tensors(path, {"a": 1}, {"x": np.arange(4.0)})
    with safe_open(path, framework="numpy") as file:
        text = file.metadata()["coverwell"]
    arrays = {
        "value": {"x": np.array([0.0, 1.0, 2.0, np.nextafter(3.0, 4.0)])},
        "name": {"z": np.arange(4.0)},
        "shape": {"x": np.arange(4.0).reshape(2, 2)},
        "type": {"x": np.arange(4.0).view(np.int64)},
    }
    text = text.replace('"a": 1', '"a": 2') if change == "header" else text
    path.write_bytes(safetensors_bytes(arrays.get(change, {"x": np.arange(4.0)}), {"coverwell": text}))
    with pytest.raises(ModelFileError, match="does not have the stored sha256"):
        read_tensors(path)
