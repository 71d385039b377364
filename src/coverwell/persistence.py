"""Fitted estimators in one safetensors file each (see `coverwell.files`), without pickle.

The tensors are the networks' weights and every other array that `fit` learned. The header's entry `model` has the
estimator's class, its parameters, and what `fit` learned. In it, an object with a `class` is one of ours, its other
entries the constructor's arguments; `array` is the name of a tensor; `own` is an object of the user's, whose code is
not stored; `estimator` is one inside another, as a forecaster's regressor; `trunk` is the place of the frozen layers
that pictures are seen through; `columns` is how the columns of a data frame become numbers. Only classes of the lists
at the end of this module are made.
"""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from coverwell import baselines
from coverwell.algorithm import n_interval_outputs
from coverwell.baselines.bayes_by_backprop import BayesLSTM, BayesMLP
from coverwell.baselines.concrete_dropout import ConcreteLSTM, ConcreteMLP
from coverwell.baselines.laws import NormalLaw, QuantileLaw
from coverwell.baselines.mc_dropout import DropoutLSTM, DropoutMLP, DropoutResNet18
from coverwell.baselines.voices import Voices
from coverwell.columns import Columns
from coverwell.ensemble import Ensemble
from coverwell.estimator import IntervalRegressor
from coverwell.files import TYPES, ModelFileError, malformed_means, read_tensors, write_tensors
from coverwell.forecasting import Forecaster, LiveCalibrator, MatchedForecaster
from coverwell.forecasting.clock import Clock
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import History
from coverwell.forecasting.windows import TimeFolds, Windows
from coverwell.held_out import OutOfFold
from coverwell.matching import IQRFit, Matching, SigmaFit, Unmatched
from coverwell.mirroring import Mirroring
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18, ResNet18Trunk
from coverwell.networks.team import Network, Team, network_from
from coverwell.picture_inputs import without_cache
from coverwell.preparation import levels_from
from coverwell.regressor import MatchedRegressor, NetworkChoice
from coverwell.rounds import Round
from coverwell.scaling import InputScaler, TargetScaler, UnscaledInputs

__all__ = ["ModelFileError", "load", "save"]

OWN = ("network", "interval_network", "matching")  # parameters that may be objects of the user's
# Names of what `fit` learned.
LEARNED = re.compile(r"[a-z]\w*_|_fitted_levels|_one_dimensional")


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor or forecaster into one safetensors file, whole or not at all.

    The user's own code is not stored: a model with a network or matching strategy of the user's is loaded with
    `load(path, network=...)` or `load(path, matching=...)`. A splitter in `folds` comes back as its description, to be
    replaced by `set_params(folds=...)` before another fit, and a `RandomState` in `random_state` comes back as None.

    Parameters
    ----------
    model : fitted estimator
    path : str or path
        By custom it ends in `.safetensors`. An existing file is replaced once the new one is complete.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MLP, MatchedRegressor, load, save
    >>> X, y = make_regression(n_samples=40, n_features=3, random_state=0)
    >>> model = MatchedRegressor(network=MLP(hidden=8), max_rounds=1, repeats=1, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     again = load(f"{folder}/model.safetensors")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    if type(model) not in ESTIMATORS.values():
        raise TypeError(f"save takes one of {', '.join(ESTIMATORS)}, fitted, got {type(model).__name__}")
    check_is_fitted(model)
    writer = _Writer()
    write_tensors(Path(path), {"model": writer.estimator(model)}, writer.arrays)


def load(
    path: str | os.PathLike[str],
    *,
    network: NetworkChoice = None,
    interval_network: NetworkChoice = None,
    matching: Matching | None = None,
) -> Any:
    """The estimator that `save` wrote, with predictions equal to the bit; no code from the file is run.

    Parameters
    ----------
    path : str or path
    network, interval_network, matching : optional
        For a model that was fitted with an object of the user's own: that object again. Not for others.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is damaged, of another kind or too new, or needs one of the optional arguments.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MatchedRegressor, load, save
    >>> X, y = make_regression(n_samples=40, n_features=3, random_state=0)
    >>> model = MatchedRegressor(network=torch.nn.Linear, max_rounds=1, repeats=1, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     again = load(f"{folder}/model.safetensors", network=torch.nn.Linear)
    >>> again.n_features_in_
    3
    """
    header, arrays = read_tensors(Path(path))
    given = {"network": network, "interval_network": interval_network, "matching": matching}
    reader = _Reader(str(path), arrays, given)
    way_out = f"load it with the versions, and the objects of your own, that it was saved with: {header['versions']}"
    with malformed_means(f"{path} is whole, but no model can be made of it here", way_out):
        model = reader.estimator(header["model"])
    if surplus := [name for name in OWN if given[name] is not None and name not in reader.taken]:
        raise ModelFileError(f"{path} needs no {surplus[0]}, it stores its own; load it without {surplus[0]}=")
    return model


@dataclass
class _Writer:
    """From an estimator to JSON; arrays are put aside under the name of their place."""

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    interval_own: str = "network"  # what `load` must be given for an interval team of the user's

    def estimator(self, model: Any, place: str = "") -> dict[str, Any]:
        parameters = model.get_params(deep=False)
        if isinstance(parameters.get("random_state"), np.random.RandomState):
            parameters["random_state"] = None
        if hasattr(parameters.get("folds"), "split"):  # a splitter; None would ask for the paper's literal training
            parameters["folds"] = str(parameters["folds"])
        self.interval_own = "network" if parameters.get("interval_network") is None else "interval_network"
        return {
            "class": type(model).__name__,
            "parameters": {name: self.value(value, f"{place}parameters.{name}") for name, value in parameters.items()},
            "learned": {
                name: self.value(value, f"{place}{name}")
                for name, value in vars(model).items()
                if LEARNED.fullmatch(name)
            },
        }

    def value(self, value: Any, place: str) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, Real):
            return int(value) if isinstance(value, Integral) else float(value)
        if type(value) in (list, tuple):  # a named tuple may be a matching of the user's
            items = [self.value(item, f"{place}.{number}") for number, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, np.ndarray):
            return self.array(value, place)
        if isinstance(value, Team):
            return self.team(value, place)
        if isinstance(value, nn.Module):
            self.state(value, place)
            return {"trunk": place, "ours": isinstance(value, ResNet18Trunk)}
        if isinstance(value, Columns):
            return {"columns": value.to_json()}
        if isinstance(value, Clock):
            return {"clock": asdict(value)}
        if isinstance(value, LiveCalibrator):
            return {"calibrator": value.state_dict()}
        if type(value) in ESTIMATORS.values():
            return {"estimator": self.estimator(value, f"{place}.")}
        return self.part(value, place, own=place.rpartition(".")[2])

    def array(self, value: NDArray[Any], place: str) -> dict[str, Any]:
        if value.dtype == object and all(isinstance(item, str) for item in value):
            return {"strings": value.tolist()}
        if value.dtype.str not in TYPES.values():
            raise TypeError(f"{place} cannot be saved: an array may have the types {list(TYPES)}, got {value.dtype}")
        self.arrays[place] = value
        return {"array": place}

    def state(self, module: nn.Module, place: str) -> None:
        for name, tensor in module.state_dict().items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{place}.{name} cannot be saved: it must be a tensor, got {type(tensor).__name__}")
            self.array(_as_trained(tensor.cpu().numpy()), f"{place}.{name}")

    def team(self, team: Team, place: str) -> dict[str, Any]:
        self.state(team, place)
        own = self.interval_own if place.endswith("interval_team") else "network"
        return {"team": place, "members": team.n_members, "network": self.part(_recipe_of(team), place, own=own)}

    def part(self, value: Any, place: str, *, own: str) -> dict[str, Any]:
        """An object of ours, field by field; for one of the user's, what `load` must be given."""
        value = without_cache(value)
        if type(value) in PARTS.values():
            entries = {f.name: self.value(getattr(value, f.name), f"{place}.{f.name}") for f in fields(value)}
            return {"class": type(value).__name__, **entries}
        if own in OWN:
            return {"own": own}
        raise TypeError(f"{place} cannot be saved: it is a {type(value).__name__}, none of {', '.join(PARTS)}")


@dataclass
class _Reader:
    """From JSON and arrays back to an estimator, with the user's own objects where they are needed."""

    path: str
    arrays: dict[str, NDArray[Any]]
    given: dict[str, Any]
    taken: set[str] = field(default_factory=set)

    def estimator(self, stored: dict[str, Any], *, may_be_unfitted: bool = False) -> Any:
        cls = ESTIMATORS[stored["class"]]
        model = cls(**{name: self.value(value) for name, value in stored["parameters"].items()})
        for name, value in stored["learned"].items():
            if not LEARNED.fullmatch(name):
                raise ValueError(f"{name!r} is nothing that fit learns")
            setattr(model, name, self.value(value))
        if stored["learned"] or not may_be_unfitted:
            check = _check_forecaster if isinstance(model, SeriesForecaster) else _check_learned
            check(model)
        return model

    def value(self, stored: Any) -> Any:
        match stored:
            case list():
                return [self.value(item) for item in stored]
            case {"class": name}:  # first: a part may have entries with the names below
                return self.part(PARTS[name], {key: entry for key, entry in stored.items() if key != "class"})
            case {"tuple": items}:
                return tuple(self.value(item) for item in items)
            case {"strings": items}:
                return np.array(items, dtype=object)
            case {"array": name}:
                return self.arrays[name].copy()
            case {"own": name}:
                return self.own(name)
            case {"trunk": place, "ours": ours}:
                return self.trunk(place, ours=ours)
            case {"columns": content}:
                return Columns.from_json(content)
            case {"clock": content}:
                return Clock(**content)
            case {"calibrator": state}:
                calibrator = LiveCalibrator(state["coverage"], horizon=state["horizon"])
                calibrator.load_state_dict(state)
                return calibrator
            case {"estimator": entries}:  # the regressor that a forecaster was told has learned nothing itself
                return self.estimator(entries, may_be_unfitted=True)
            case dict():
                raise ValueError(f"unknown entry {sorted(stored)}")
        return stored

    def own(self, name: str) -> Any:
        if self.given[name] is None:
            raise ModelFileError(
                f"{self.path} holds a model with a {name} of its user's own, whose code is not stored; load it with "
                f"load(path, {name}=...), given what the model was fitted with"
            )
        self.taken.add(name)
        return self.given[name]

    def part(self, cls: Any, entries: dict[str, Any]) -> Any:
        if cls is Voices:
            team = entries.pop("team")
            parts = {name: self.value(entry) for name, entry in entries.items()}
            n_outputs = parts["law"].n_outputs(len(parts["targets"].centre), len(parts["coverage"]))
            return Voices(team=self.team(team, parts["inputs"].shape, n_outputs), **parts)
        if cls is not Ensemble:
            return cls(**{name: self.value(entry) for name, entry in entries.items()})
        mean, interval = entries.pop("mean_team"), entries.pop("interval_team")
        parts = {name: self.value(entry) for name, entry in entries.items()}
        n_targets, n_levels, input_shape = len(parts["scale"]), len(parts["coverage"]), parts["inputs"].shape
        return Ensemble(
            mean_team=self.team(mean, input_shape, parts["matching"].n_outputs(n_targets, n_levels)),
            interval_team=self.team(interval, input_shape, n_interval_outputs(n_targets, n_levels)),
            **parts,
        )

    def team(self, stored: dict[str, Any], input_shape: tuple[int, ...], n_outputs: int) -> Team:
        network, prefix = network_from(self.value(stored["network"])), f"{stored['team']}."
        own = "own" in stored["network"]
        # Of our networks the shapes are enough, without memory. A user's may draw: the caller's random state is kept.
        with torch.random.fork_rng(devices=[]), nullcontext() if own else torch.device("meta"):
            team = network.build(stored["members"], input_shape, n_outputs)
            team.to(team.precision)
        stored_as = self.state(prefix)
        state = {name: t.to(team.precision) if t.dtype == torch.float32 else t for name, t in stored_as.items()}
        types = {name: tensor.dtype for name, tensor in team.state_dict().items()}
        if odd := sorted(n for n in types.keys() | state.keys() if n not in state or types.get(n) != state[n].dtype):
            raise ValueError(f"{len(odd)} tensors are missing, unknown or of another type (the first: {odd[0]})")
        team.load_state_dict(state, assign=not own)  # checks the shapes
        return team.eval().requires_grad_(False)

    def trunk(self, place: str, *, ours: bool) -> nn.Module:
        """The frozen layers that pictures are seen through; those of a user's own recipe are made by it again."""
        with torch.random.fork_rng(devices=[]):
            trunk: nn.Module = ResNet18Trunk() if ours else self.own("network").trunk()
        trunk.load_state_dict(self.state(f"{place}."))  # checks names and shapes
        return trunk.eval().requires_grad_(False)

    def state(self, prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(prefix): torch.tensor(a) for n, a in self.arrays.items() if n.startswith(prefix)}


def _as_trained(array: NDArray[Any]) -> NDArray[Any]:
    """Weights in float32, in which they were trained, unless that would lose a bit."""
    with np.errstate(over="ignore"):
        short = array.astype(np.float32) if array.dtype == np.float64 else array
    return short if np.array_equal(short, array) else array


def _recipe_of(team: Team) -> Network | None:
    """The recipe of a team of ours; None of a user's own modules."""
    recipe: Network | None = getattr(team, "recipe", None)
    return recipe


def _check_learned(model: IntervalRegressor) -> None:
    """Raise unless what `fit` learned has the shapes that predictions need."""
    levels = levels_from(model._fitted_levels)
    target, level = len(model.target_names_), len(levels)
    _check_stretch(model, target, level)
    arrays: list[tuple[Any, tuple[int, ...]]] = []
    n_inputs = _n_inputs(model)
    for ensemble in model.ensembles_:
        if isinstance(ensemble.inputs, InputScaler):
            arrays += [(array, (n_inputs,)) for array in vars(ensemble.inputs).values()]
        arrays += [(array, (target,)) for array in vars(ensemble.targets).values()]
        if isinstance(ensemble, Ensemble):
            arrays.append((ensemble.scale, (target,)))
            _check_mirroring(ensemble)
    for array, shape in arrays:
        _check_array(array, shape)
    if not all(isinstance(name, str) for name in (model.device, *model.target_names_)):
        raise ValueError(f"device and targets must be names, got {model.device!r} and {model.target_names_!r}")
    if hasattr(model, "trunk_") != isinstance(model.ensembles_[0].inputs, UnscaledInputs):
        raise ValueError("networks for pictures, and no others, must have a trunk")
    n_names = len(getattr(model, "feature_names_in_", range(getattr(model, "n_features_in_", 0))))
    if n_names != getattr(model, "n_features_in_", 0) or (model._one_dimensional and target > 1):
        raise ValueError(f"there must be names for all features and {target} targets")
    if {ensemble.coverage for ensemble in model.ensembles_} != {levels}:
        raise ValueError(f"every ensemble must have the levels {levels}")


def _check_array(array: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float64:
        found = f"{array.shape} in {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"an array must have the shape {shape} in float64, got {found}")


def _check_stretch(model: IntervalRegressor, n_targets: int, n_levels: int) -> None:
    """Raise unless there are factors, or scores of each team's left-out rows."""
    if model.scores_ is None:
        _check_array(model.factor_, (n_targets, n_levels))
        if model.joint_factor_ is not None:
            _check_array(model.joint_factor_, (n_targets, n_levels))
        return
    if len(model.scores_) != len(model.ensembles_) or model.factor_ is not None:
        raise ValueError(f"there must be factors, or scores for each of {len(model.ensembles_)} teams")
    for scores in model.scores_:
        _check_array(scores, (len(scores), n_targets, n_levels))


def _check_mirroring(ensemble: Ensemble) -> None:
    """Raise unless the mirroring is one that the inputs can have: a row of a table has no mirror image."""
    known = (None, "same", "boxes") if isinstance(ensemble.inputs, UnscaledInputs) else (None,)
    if not isinstance(ensemble.mirroring, Mirroring) or ensemble.mirroring.targets not in known:
        raise ValueError(f"mirroring must be one of {known}, got {ensemble.mirroring!r}")


def _n_inputs(model: IntervalRegressor) -> int:
    """How many numbers a network is given per row of a table; 0 of pictures."""
    if not hasattr(model, "columns_"):
        return int(getattr(model, "n_features_in_", 0))
    if not isinstance(model.columns_, Columns):
        raise ValueError(f"columns_ must tell how columns are read, got {type(model.columns_).__name__}")
    return len(model.columns_.feature_names)


def _check_forecaster(model: SeriesForecaster) -> None:
    """Raise unless the parts of a forecaster fit together."""
    windows, history, regressor = model.windows_, model.history_, model.regressor_
    n_steps, levels = len(history), list(regressor._fitted_levels)
    if regressor.n_features_in_ != windows.n_columns or len(regressor.target_names_) != windows.horizon:
        raise ValueError(f"the regressor must have learned rows of {windows.n_columns} columns")
    if [len(history.filled), len(history.past)] != [n_steps, n_steps] or n_steps < windows.n_past:
        raise ValueError(f"the history must have values for each of its {n_steps} steps")
    if np.isnan(history.filled).any() or model.calibrator_.horizon != windows.horizon:
        raise ValueError("the history must be filled, and the calibrator have the forecaster's horizon")
    if list(levels_from(model.calibrator_.coverage)) != levels:
        raise ValueError(f"the calibrator must have the levels {levels}")


# All classes that a file may name.
ESTIMATORS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        MatchedRegressor,
        *(getattr(baselines, name) for name in baselines.__all__),
        Forecaster,
        MatchedForecaster,
    )
}
PARTS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        BayesLSTM,
        BayesMLP,
        ConcreteLSTM,
        ConcreteMLP,
        DropoutLSTM,
        DropoutMLP,
        DropoutResNet18,
        Ensemble,
        History,
        InputScaler,
        IQRFit,
        LSTM,
        MLP,
        Mirroring,
        NormalLaw,
        OutOfFold,
        QuantileLaw,
        ResNet18,
        Round,
        SigmaFit,
        TargetScaler,
        TimeFolds,
        Unmatched,
        UnscaledInputs,
        Voices,
        Windows,
    )
}
