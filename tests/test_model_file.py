"""A loaded model predicts the same bits; a file that is not whole is an error and nothing else."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from torch import nn

import coverwell
from coverwell import MLP, IQRFit, MatchedRegressor, ModelFileError, SigmaFit
from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.estimator import IntervalRegressor
from coverwell.files import read_tensors, write_tensors
from coverwell.matching import Unmatched
from coverwell.scaling import ConstantDataWarning

SMALL = MLP(hidden=8, bins=4)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.stack([X[:, 0] + RNG.normal(size=60), X[:, 1] * RNG.normal(size=60)], axis=1)
X_NEW = RNG.normal(size=(25, 3)).clip(X.min(axis=0), X.max(axis=0))


def fitted(y: Any = Y[:, 0], x: Any = X, **parameters: Any) -> MatchedRegressor:
    small = {"network": SMALL, "max_rounds": 2, "repeats": 1, "folds": 3, "random_state": 0}
    return MatchedRegressor(**{**small, **parameters}).fit(x, y)


@pytest.fixture(scope="module")
def model() -> MatchedRegressor:
    """One fitted model, to be left as it is."""
    return fitted()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def reloaded(model: MatchedRegressor, path: Path, **own: Any) -> MatchedRegressor:
    coverwell.save(model, path)
    return coverwell.load(path, **own)


def assert_same_predictions(one: MatchedRegressor, other: MatchedRegressor, x: Any = X_NEW) -> None:
    """Equal to the bit, joint boxes too where there are any."""
    np.testing.assert_array_equal(one.predict(x), other.predict(x), strict=True)
    for joint in (False, True) if one.calibration else (False,):
        for bound, same in zip(
            one.predict_interval(x, joint=joint), other.predict_interval(x, joint=joint), strict=True
        ):
            np.testing.assert_array_equal(bound, same, strict=True)


FITS = {
    "cross": {"coverage": 0.8},
    "cross, levels": {"y": Y, "coverage": (0.9, 0.5), "matching": "iqr"},
    "cross, list of levels": {"coverage": [0.8, np.float64(0.5)], "matching": IQRFit(0.6, 0.2, 0.2)},
    "cv+": {"coverage": [0.8], "calibration": "cv+", "matching": SigmaFit(0.3)},
    "cv+, targets": {"y": Y, "calibration": "cv+", "coverage": [0.5, 0.8]},
    "split": {"coverage": 0.8, "calibration": "split", "calibration_size": 0.4, "matching": None},
    "split, targets": {
        "y": Y,
        "calibration": "split",
        "calibration_size": 0.5,
        "coverage": [0.8],
        "matching": Unmatched(),
    },
    "no ranks": {"y": Y[:, :1], "calibration": None, "interval_network": MLP(hidden=4, layers=1, bins=0)},
    "as published": {
        "calibration": None,
        "folds": None,
        "interval_loss": "paper",
        "network": MLP(8, dropout=0.0, bins=0),
    },
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS.keys())
def test_a_loaded_model_is_the_saved_one(fit: dict[str, Any], path: Path) -> None:
    model = fitted(**fit)
    again = reloaded(model, path)
    assert_same_predictions(model, again)
    assert again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_equal([vars(r) for r in again.rounds_], [vars(r) for r in model.rounds_])
    assert (again.out_of_fold_ is None) == (model.out_of_fold_ is None)
    if model.out_of_fold_ is not None:
        np.testing.assert_equal(vars(again.out_of_fold_), vars(model.out_of_fold_))
    coverwell.save(again, path.with_name("again"))
    assert path.read_bytes() == path.with_name("again").read_bytes()


def test_names_and_index_are_kept(path: Path) -> None:
    frame = pd.DataFrame(X, columns=["rooms", "größe", "age"])
    new = pd.DataFrame(X_NEW, columns=frame.columns, index=[f"row {i}" for i in range(len(X_NEW))])
    model = fitted(pd.DataFrame(Y, columns=["price", "rent"]), frame)
    again = reloaded(model, path)
    assert list(again.feature_names_in_) == list(frame.columns)
    pd.testing.assert_frame_equal(again.predict_interval(new).to_frame(), model.predict_interval(new).to_frame())
    with pytest.raises(ValueError, match="feature names"):
        again.predict(new.rename(columns={"age": "years"}))


MIXED = pd.DataFrame(X[:, :2], columns=["rooms", "age"]).assign(
    rooms=np.where(np.arange(60) % 5, X[:, 0], np.nan),
    heating=np.array(["gas", "Öl", None])[np.arange(60) % 3],
    garden=np.arange(60) % 2 == 0,
    sold=pd.date_range("2024-01-01", periods=60, freq="7h"),
    currency="euro",
)


@pytest.fixture(scope="module")
def mixed() -> MatchedRegressor:
    """One model fitted on columns of all kinds, to be left as it is."""
    with pytest.warns(ConstantDataWarning, match="'currency'"):
        return fitted(x=MIXED)


def test_columns_are_read_as_before_they_were_saved(mixed: MatchedRegressor, path: Path) -> None:
    again = reloaded(mixed, path)
    assert again.columns_ == mixed.columns_
    assert_same_predictions(mixed, again, MIXED)
    coverwell.save(again, path.with_name("again"))
    assert path.read_bytes() == path.with_name("again").read_bytes()


WRONG_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "not there": lambda learned: learned.pop("columns_"),
    "nothing": lambda learned: learned.update(columns_=None),
    "text": lambda learned: learned.update(columns_={"columns": "all"}),
    "a name": lambda learned: learned.update(columns_="columns"),
    "a list": lambda learned: learned.update(columns_=[]),
    "no columns": lambda learned: learned["columns_"]["columns"].update(columns=[]),
    "a column too few": lambda learned: learned["columns_"]["columns"]["columns"].pop(),
    "a column twice": lambda learned: learned["columns_"]["columns"]["columns"].append(
        learned["columns_"]["columns"]["columns"][0]
    ),
    "no kind": lambda learned: learned["columns_"]["columns"]["columns"][0].pop("kind"),
    "an unknown kind": lambda learned: learned["columns_"]["columns"]["columns"][0]["kind"].update(name="os.system"),
    "a median that is text": lambda learned: learned["columns_"]["columns"]["columns"][0]["kind"].update(median="1"),
    "fewer features": lambda learned: learned["columns_"]["columns"]["columns"][0].update(kept=[""]),
    "an unknown reason": lambda learned: learned["columns_"]["columns"]["dropped"][0].update(reason="luck"),
}


@pytest.mark.parametrize("wrong", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS.keys())
def test_columns_that_cannot_have_been_learned_are_refused(
    mixed: MatchedRegressor, path: Path, wrong: Callable[[dict[str, Any]], Any]
) -> None:
    coverwell.save(mixed, path)
    header, arrays = read_tensors(path)
    wrong(header["model"]["learned"])
    write_tensors(path, header, arrays)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is whole, but no model can be made of it here"):
        coverwell.load(path)


def test_a_loaded_model_is_an_estimator_like_any_other(model: MatchedRegressor, path: Path) -> None:
    again = reloaded(model, path)
    with pytest.raises(NotFittedError):
        clone(again).predict(X_NEW)
    assert_same_predictions(clone(again).fit(X, Y[:, 0]), model)
    assert_same_predictions(again.fit(X, Y[:, 1]), fitted(Y[:, 1]))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_and_pickles_predict_the_same_bits(
    model: MatchedRegressor, path: Path, copied: Callable[[MatchedRegressor], MatchedRegressor]
) -> None:
    assert_same_predictions(copied(model), model)
    assert_same_predictions(copied(reloaded(model, path)), model)


def test_weights_are_stored_as_they_were_trained(model: MatchedRegressor, path: Path) -> None:
    coverwell.save(model, path)
    weights = {name: array for name, array in read_tensors(path)[1].items() if "_team." in name}
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    assert len(weights) == 2 * (2 + 5 * 2)  # two teams, each with two buffers and five layers


def test_a_weight_that_float32_would_round_is_stored_whole(model: MatchedRegressor, path: Path) -> None:
    changed = copy.deepcopy(model)
    for parameter in changed.ensembles_[0].mean_team.parameters():
        parameter.mul_(1 / 3)
    changed.ensembles_[0].interval_team.linears[-1].bias.fill_(1e-300)
    assert_same_predictions(changed, reloaded(changed, path))


def test_the_networks_are_those_that_were_trained_whatever_was_set_later(path: Path) -> None:
    model = fitted()
    model.set_params(network=MLP(hidden=16))
    again = reloaded(model, path)
    assert again.network == MLP(hidden=16)
    assert_same_predictions(model, again)


def test_loading_leaves_the_random_state_of_the_caller_as_it_was(path: Path) -> None:
    coverwell.save(fitted(network=nn.Linear), path)
    before = torch.get_rng_state()
    coverwell.load(path, network=nn.Linear)
    assert torch.equal(torch.get_rng_state(), before)


# Baselines.

BASELINES: dict[str, tuple[type[IntervalRegressor], dict[str, Any]]] = {
    "MC dropout": (MCDropoutRegressor, {"n_samples": 7, "length_scale": 0.5}),
    "concrete": (ConcreteDropoutRegressor, {"n_samples": 7, "members": 2, "calibration": "split"}),
    "Bayes": (BayesByBackpropRegressor, {"n_samples": 7, "prior_scale": 0.5, "kl_weight": 0.1}),
    "quantiles": (NeuralQuantileRegressor, {"calibration": "split"}),
    "heteroscedastic": (HeteroscedasticRegressor, {"batch_size": 16, "learning_rate": 0.01}),
    "ensemble": (DeepEnsembleRegressor, {"members": 3, "calibration": "split", "calibration_size": 0.3}),
}
each_baseline = pytest.mark.parametrize(("kind", "parameters"), BASELINES.values(), ids=BASELINES.keys())


def fitted_baseline(kind: type[IntervalRegressor], y: Any = Y, x: Any = X, **parameters: Any) -> Any:
    small = {"coverage": [0.8, 0.5], "network": MLP(hidden=8, layers=2, bins=4), "max_epochs": 10, "random_state": 0}
    return kind(**{**small, **parameters}).fit(x, y)


@each_baseline
def test_a_loaded_baseline_is_the_saved_one(
    kind: type[IntervalRegressor], parameters: dict[str, Any], path: Path
) -> None:
    for y, coverage in ((Y, [0.8, 0.5]), (Y[:, 0], 0.8), (Y[:, :1], (0.5,))):
        model = fitted_baseline(kind, y, coverage=coverage, **parameters)
        again: Any = reloaded(model, path)
        assert type(again) is kind
        assert_same_predictions(model, again)
        if hasattr(model, "n_samples") or kind is DeepEnsembleRegressor:
            doubt, same = (m.predict_interval(X_NEW, noise=False).width for m in (model, again))
            np.testing.assert_array_equal(doubt, same, strict=True)
        assert again.get_params() == model.get_params()
        assert vars(again).keys() == vars(model).keys()
        np.testing.assert_equal([vars(r) for r in again.rounds_], [vars(r) for r in model.rounds_])
        coverwell.save(again, path.with_name("again"))
        assert path.read_bytes() == path.with_name("again").read_bytes()


@each_baseline
def test_a_loaded_baseline_can_be_fitted_again(
    kind: type[IntervalRegressor], parameters: dict[str, Any], path: Path
) -> None:
    model = fitted_baseline(kind, **parameters)
    assert_same_predictions(clone(reloaded(model, path)).fit(X, Y), model)


@each_baseline
def test_a_baseline_with_its_own_network_is_saved_with_it(
    kind: type[IntervalRegressor], parameters: dict[str, Any], path: Path
) -> None:
    model = fitted_baseline(kind, **parameters | {"network": None, "max_epochs": 1, "batch_size": 60})
    again = reloaded(model, path)
    assert again.get_params()["network"] is None
    assert_same_predictions(model, again)


def test_learned_rates_come_back(path: Path) -> None:
    model = fitted_baseline(ConcreteDropoutRegressor)
    again: Any = reloaded(model, path)
    np.testing.assert_array_equal(again.rates_, model.rates_, strict=True)


def test_a_loaded_baseline_samples_the_networks_it_was_fitted_with(path: Path) -> None:
    """Also where another number of samples has been asked for since."""
    model = fitted_baseline(MCDropoutRegressor, n_samples=5)
    model.set_params(n_samples=50)
    again: Any = reloaded(model, path)
    assert again.n_samples == 50
    assert_same_predictions(model, again)


def test_a_baseline_with_a_network_of_the_users_own_is_given_it_again(path: Path) -> None:
    model = fitted_baseline(DeepEnsembleRegressor, network=normalised, members=2)
    assert_same_predictions(model, reloaded(model, path, network=normalised))
    with pytest.raises(ModelFileError, match=r"load\(path, network=\.\.\.\)"):
        coverwell.load(path)
    with pytest.raises(ModelFileError, match="load it without matching="):
        coverwell.load(path, network=normalised, matching=SigmaFit())


WRONG_BASELINE: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "a weight is missing": lambda model, arrays: without(arrays, "linears.0.weight"),
    "a rate is missing": lambda model, arrays: without(arrays, "rate_logit"),
    "a rate has another shape": lambda model, arrays: replaced(arrays, "rate_logit", lambda r: r[:, 1:]),
    "another law": lambda model, arrays: model["learned"]["ensembles_"][0].update(law={"class": "QuantileLaw"}),
    "no law": lambda model, arrays: model["learned"]["ensembles_"][0].pop("law"),
    "another kind of team": lambda model, arrays: model["learned"]["ensembles_"][0]["team"]["network"].update(
        {"class": "DropoutMLP"}
    ),
    "other members": lambda model, arrays: model["learned"]["ensembles_"][0]["team"].update(members=2),
    "a parameter of another baseline": lambda model, arrays: model["parameters"].update(kl_weight=1.0),
    "an abstract class": lambda model, arrays: model.update({"class": "SampledRegressor"}),
}


@pytest.mark.parametrize("wrong", WRONG_BASELINE.values(), ids=WRONG_BASELINE.keys())
def test_a_whole_baseline_file_with_the_wrong_content_is_refused(
    path: Path, wrong: Callable[[dict[str, Any], dict[str, Any]], Any]
) -> None:
    coverwell.save(fitted_baseline(ConcreteDropoutRegressor), path)
    header, arrays = read_tensors(path)
    wrong(header["model"], arrays)
    write_tensors(path, header, arrays)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is whole, but no model can be made of it here"):
        coverwell.load(path)


# A user's own code.


def normalised(n_features: int, n_outputs: int) -> nn.Module:
    """With a whole number (the batches seen) among its buffers."""
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, n_outputs))


@dataclass(frozen=True)
class Doubled(SigmaFit):
    """A strategy of the user's: twice the outputs, of which half are not used."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return 2 * super().n_outputs(n_targets, n_levels)

    def sigma(self, outputs: torch.Tensor, n_targets: int) -> torch.Tensor:
        return super().sigma(outputs[..., : 2 * n_targets], n_targets)


class Halved(NamedTuple):
    """A strategy that is also a tuple."""

    inner: Unmatched = Unmatched()

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return self.inner.n_outputs(n_targets, n_levels)

    def mean(self, outputs: torch.Tensor, n_targets: int) -> torch.Tensor:
        return 0.5 * self.inner.mean(outputs, n_targets)

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, target: Any) -> torch.Tensor:
        return (self.mean(outputs, y.shape[-1]) - y).square().mean(dim=(1, 2))


OWN = {
    "network": {"network": normalised},
    "interval network": {"interval_network": normalised},
    "both": {"network": nn.Linear, "interval_network": normalised},
    "matching": {"matching": Doubled()},
    "a tuple": {"matching": Halved()},
    "all": {"network": normalised, "matching": Doubled(0.2), "calibration": "cv+", "coverage": 0.8},
}


@pytest.mark.parametrize("parameters", OWN.values(), ids=OWN.keys())
def test_objects_of_the_users_own_are_given_again(parameters: dict[str, Any], path: Path) -> None:
    model = fitted(**parameters)
    own = {name: value for name, value in parameters.items() if "network" in name or name == "matching"}
    again = reloaded(model, path, **own)
    assert_same_predictions(model, again)
    assert again.get_params() == model.get_params()
    for name in own:
        with pytest.raises(ModelFileError, match=rf"model\.safetensors .* load\(path, {name}=\.\.\.\)"):
            coverwell.load(path, **{other: value for other, value in own.items() if other != name})


def failing(n_features: int, n_outputs: int) -> nn.Module:
    raise RuntimeError("out of order")


@pytest.mark.parametrize("network", [nn.Linear, MLP(hidden=3), failing, lambda n_features, n_outputs: "no module"])
def test_another_network_than_the_fitted_one_is_an_error(network: Any, path: Path) -> None:
    coverwell.save(fitted(network=normalised), path)
    with pytest.raises(ModelFileError, match=r"no model can be made of it here .* objects of your own"):
        coverwell.load(path, network=network)


def test_another_matching_than_the_fitted_one_is_an_error(path: Path) -> None:
    coverwell.save(fitted(matching=Doubled()), path)
    with pytest.raises(ModelFileError, match="no model can be made of it here"):
        coverwell.load(path, matching=SigmaFit())


@pytest.mark.parametrize("own", [{"network": nn.Linear}, {"interval_network": SMALL}, {"matching": SigmaFit()}])
def test_an_object_that_is_not_needed_is_an_error(model: MatchedRegressor, path: Path, own: dict[str, Any]) -> None:
    coverwell.save(model, path)
    with pytest.raises(ModelFileError, match=f"load it without {next(iter(own))}="):
        coverwell.load(path, **own)


def test_a_splitter_comes_back_as_its_description_and_is_not_taken_for_none(path: Path) -> None:
    model = fitted(folds=KFold(3), calibration="split", calibration_size=0.4)
    again = reloaded(model, path)
    assert again.folds == str(KFold(3))
    assert_same_predictions(model, again)
    coverwell.save(again, path.with_name("again"))
    assert path.read_bytes() == path.with_name("again").read_bytes()
    with pytest.raises(ValueError, match=r"KFold\(n_splits=3"):
        again.fit(X, Y)
    again.set_params(folds=KFold(3)).fit(X, Y[:, 0])


def test_a_random_state_object_comes_back_as_none(path: Path) -> None:
    model = fitted(random_state=np.random.RandomState(0))
    again = reloaded(model, path)
    assert again.random_state is None
    assert_same_predictions(model, again)


# What cannot be saved.


def test_an_unfitted_model_cannot_be_saved(path: Path) -> None:
    with pytest.raises(NotFittedError):
        coverwell.save(MatchedRegressor(), path)
    assert not path.exists()


class Special(MatchedRegressor):
    """A subclass may do anything, so a file cannot stand for it."""


@pytest.mark.parametrize("other", [LinearRegression(), make_pipeline(MatchedRegressor()), Special()])
def test_what_is_not_ours_cannot_be_saved(other: Any, path: Path) -> None:
    with pytest.raises(TypeError, match=r"save takes one of MatchedRegressor, .*MCDropoutRegressor.*, fitted, got"):
        coverwell.save(other, path)


def test_an_existing_file_survives_a_save_that_fails(model: MatchedRegressor, path: Path) -> None:
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


def test_a_network_with_a_state_beside_its_tensors_cannot_be_saved(model: MatchedRegressor, path: Path) -> None:
    changed = copy.deepcopy(model)
    changed.ensembles_[0].mean_team.extra = Remembering(1, 1)
    with pytest.raises(TypeError, match="_extra_state cannot be saved: it must be a tensor, got dict"):
        coverwell.save(changed, path)


# What cannot be loaded.


def test_a_missing_file_is_not_found(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        coverwell.load(path)


class Harmful:
    """Writes a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def test_no_pickle_is_opened(path: Path) -> None:
    for write in (pickle.dump, torch.save):
        with path.open("wb") as file:
            write(Harmful(path.with_name("victim")), file)
        with pytest.raises(ModelFileError, match="damaged or not a model file"):
            coverwell.load(path)
    assert not path.with_name("victim").exists()


def without(arrays: dict[str, Any], part: str) -> None:
    del arrays[next(name for name in arrays if part in name)]


def replaced(arrays: dict[str, Any], part: str, change: Callable[[Any], Any]) -> None:
    name = next(name for name in sorted(arrays) if part in name)
    arrays[name] = change(arrays[name])


WRONG: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "a weight is missing": lambda model, arrays: without(arrays, "linears.0.weight"),
    "an array is missing": lambda model, arrays: without(arrays, "inputs.centre"),
    "a weight has another shape": lambda model, arrays: replaced(arrays, "linears.0.weight", lambda w: w[:, :, 1:]),
    "a weight has another type": lambda model, arrays: replaced(arrays, "linears.0.weight", lambda w: w.astype(int)),
    "a weight too many": lambda model, arrays: arrays.update({"ensembles_.0.mean_team.more": np.zeros(3)}),
    "a factor has another shape": lambda model, arrays: replaced(arrays, "factor_", lambda f: f[0]),
    "a factor has another type": lambda model, arrays: replaced(arrays, "factor_", lambda f: f.astype(np.float32)),
    "a scaler has another shape": lambda model, arrays: replaced(arrays, "inputs.low", lambda c: c[:1]),
    "another number of features": lambda model, arrays: model["learned"].update(n_features_in_=4),
    "another number of names": lambda model, arrays: model["learned"].update(feature_names_in_={"strings": ["a"]}),
    "another number of targets": lambda model, arrays: model["learned"].update(target_names_={"tuple": ["a", "b"]}),
    "other levels": lambda model, arrays: model["learned"].update(_fitted_levels={"tuple": [0.8]}),
    "an impossible level": lambda model, arrays: model["learned"].update(_fitted_levels={"tuple": [2.0]}),
    "no ensembles": lambda model, arrays: model["learned"].update(ensembles_=[]),
    "ensembles of another kind": lambda model, arrays: model["learned"].update(ensembles_=[1]),
    "nothing learned": lambda model, arrays: model.update(learned={}),
    "a method in its place": lambda model, arrays: model["learned"].update(predict=1),
    "a class in its place": lambda model, arrays: model["learned"].update(__class__={"class": "Round"}),
    "another class": lambda model, arrays: model.update({"class": "LinearRegression"}),
    "a class by its path": lambda model, arrays: model["parameters"].update(
        matching={"class": "os.system", "c": "true"}
    ),
    "a function of Python's": lambda model, arrays: model["parameters"].update(
        matching={"class": "eval", "source": "1"}
    ),
    "an impossible network": lambda model, arrays: model["parameters"].update(network={"class": "MLP", "hidden": -1}),
    "a huge network": lambda model, arrays: model["learned"]["ensembles_"][0]["mean_team"]["network"].update(
        hidden=2**40
    ),
    "an unknown parameter": lambda model, arrays: model["parameters"].update(colour="red"),
    "an unknown kind of value": lambda model, arrays: model["parameters"].update(coverage={"set": [0.9]}),
    "a value of the user's nobody knows": lambda model, arrays: model["parameters"].update(
        coverage={"own": "coverage"}
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_whole_file_with_the_wrong_content_is_refused(
    model: MatchedRegressor, path: Path, wrong: Callable[[dict[str, Any], dict[str, Any]], Any]
) -> None:
    coverwell.save(model, path)
    header, arrays = read_tensors(path)
    wrong(header["model"], arrays)
    write_tensors(path, header, arrays)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is whole, but no model can be made of it here"):
        coverwell.load(path)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three bits flipped, a stretch of bytes gone, doubled or overwritten, or the end missing."""
    damaged = bytearray(content)
    # Half of the damage falls on the header, which is the smaller and the more delicate part.
    size = len(content) if rng.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    start = int(rng.integers(size))
    stop = start + int(rng.integers(1, 200))
    match rng.integers(5):
        case 0:
            for place in rng.integers(size, size=rng.integers(1, 4)):
                damaged[place] ^= 1 << int(rng.integers(8))
        case 1:
            del damaged[start:stop]
        case 2:
            damaged[start:start] = damaged[start:stop]
        case 3:
            damaged[start:stop] = rng.bytes(len(damaged[start:stop]))
        case 4:
            del damaged[start:]
    return bytes(damaged)


def test_no_damage_is_loaded(model: MatchedRegressor, path: Path) -> None:
    """Every damaged file is refused, or predicts as if nothing had happened."""
    coverwell.save(model, path)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    refusals = []
    for damaged in [b"", content[:7], content[:-1], content + b"\0", *(mutated(content, rng) for _ in range(400))]:
        path.write_bytes(damaged)
        try:
            again = coverwell.load(path)
        except ModelFileError as error:
            refusals.append(str(error))
        else:
            assert_same_predictions(model, again)
    assert len(refusals) > 390
    assert all("model.safetensors" in refusal for refusal in refusals)
