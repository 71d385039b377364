"""Fitted estimators in one safetensors file each, without pickle.

The tensors are the networks' weights and every other array that `fit` learned. The metadata entry `coverwell` is a JSON
object: its `format`, the `versions` of the packages that wrote it, the `sha256` of everything else in the file, and the
`model`: the estimator's class, its `parameters`, and what it `learned`.

An object with a `class` is one of `coverwell.options.STORED`, and its other entries are the constructor's arguments; no
other class is ever made. `array` is the name of a tensor, `team` a stack of trained networks, `trunk` the frozen
layers that images are seen through, and `own` an object of the user's, whose code is not stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_in
from safetensors.numpy import save as safetensors_bytes
from torch import Tensor, nn

from coverwell._version import __version__
from coverwell.errors import ModelFileError
from coverwell.files import new_file
from coverwell.hints import check_hints, fits, hints_of
from coverwell.inputs.source import InputSource, without_cache
from coverwell.learned import LEARNED, check_learned, check_predictor, check_sizes, no_larger
from coverwell.networks.resnet import ResNet18Trunk
from coverwell.networks.team import Team, network_from
from coverwell.options import STORED
from coverwell.paper.losses import IntervalLoss
from coverwell.paper.matching import Matching
from coverwell.portable import NO_TENSORS
from coverwell.predictor import Predictor

if TYPE_CHECKING:  # scikit-learn takes long to import, and `load_predictor` does without
    from sklearn.base import BaseEstimator

    from coverwell.matched import NetworkChoice

Arrays = dict[str, NDArray[Any]]

FORMAT = 2
TYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, SafetensorError, TypeError, ValueError)
# May be objects of the user's.
OWN = ("network", "interval_network", "matching", "interval_loss", "calibration", "conformity_score")
PACKAGES = (
    "portable",
    "regressor",
    "classifier",
    "around",
    "baselines",
    "forecasting",
    "monitor",
)  # imported when first needed


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor or forecaster into one safetensors file, whole or not at all.

    The user's own code is not stored: a model with a network or matching strategy of the user's is loaded with
    `load(path, network=...)` or `load(path, matching=...)`. A splitter in `folds` comes back as its description, to be
    replaced by `set_params(folds=...)` before another fit, and so does a regressor in `estimator` or `companions`. A
    `RandomState` in `random_state` comes back as None.

    Parameters
    ----------
    model : fitted estimator
    path : str or path
        An existing file is replaced once the new one is complete.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coverwell import MLP, MatchedRegressor, Schedule, load, save
    >>> X, y = np.eye(40, 3), np.arange(40)
    >>> model = MatchedRegressor(network=MLP(hidden=8), schedule=Schedule(max_rounds=1), repeats=1).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     bool((load(f"{folder}/model.safetensors").predict(X) == model.predict(X)).all())
    True
    """
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

    if not _is_stored(model) or not isinstance(model, BaseEstimator):
        raise TypeError(
            "save takes a regressor, classifier or forecaster of coverwell, such as a MatchedRegressor, got "
            f"{type(model).__name__}"
        )
    check_is_fitted(model)
    writer = _Writer()
    write_tensors(Path(path), {"model": writer.estimator(model)}, writer.arrays)


def load(
    path: str | os.PathLike[str],
    *,
    network: NetworkChoice = None,
    interval_network: NetworkChoice = None,
    matching: Matching | None = None,
    interval_loss: IntervalLoss | None = None,
    calibration: Any = None,
    conformity_score: Any = None,
) -> Any:
    """The estimator that `save` wrote, with predictions equal to the bit; no code from the file is run.

    Parameters
    ----------
    path : str or path
    network, interval_network, matching, interval_loss, calibration, conformity_score : optional
        For a model that was fitted with an object of the user's own: that object again. Not for others.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another kind or format, or needs one of the optional arguments.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coverwell import MatchedRegressor, Schedule, load, save
    >>> model = MatchedRegressor(network=nn.Linear, schedule=Schedule(max_rounds=1)).fit(np.eye(40, 3), np.arange(40))
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     load(f"{folder}/model.safetensors", network=nn.Linear).n_features_in_
    3
    """
    from sklearn.utils.validation import check_is_fitted

    own = network, interval_network, matching, interval_loss, calibration, conformity_score
    given = dict(zip(OWN, own, strict=True))
    with _reading(Path(path), given) as (stored, reader):
        model = reader.estimator(stored)
        check_is_fitted(model)
    if surplus := [name for name in OWN if given[name] is not None and name not in reader.taken]:
        raise ModelFileError(f"{path} needs no {surplus[0]}, it stores its own; load it without {surplus[0]}=")
    return model


def load_predictor(path: Path) -> tuple[InputSource, Predictor, tuple[str, ...]]:
    """How a model in a file reads tables, what predicts them and its targets' names, without importing scikit-learn."""
    with _reading(path, dict.fromkeys(OWN)) as (stored, reader):
        source = reader.value(stored["learned"].get("source_"))
        check_takes_tables(path, stored["class"], source)
        predictor, names = (reader.value(stored["learned"][name]) for name in ("predictor_", "target_names_"))
        check_predictor(source, predictor, names)
    return source, predictor, names


def holds_forecaster(path: Path) -> bool:
    with _reading(path, {}) as (stored, _):
        return "history_" in stored["learned"]


def check_takes_tables(path: Path, name: str, source: InputSource | None) -> None:
    """Raise unless a model of the class `name` predicts rows of a table; a forecaster has no source."""
    if source is None or not source.scaled:
        what = f"a {name}" if source is None else "a model for images"
        way_out = f"use it in Python: coverwell.load({str(path)!r})"
        raise ModelFileError(f"{path} holds {what}, not one for tables; {way_out}")


def _is_stored(value: Any) -> bool:
    return STORED.get(type(value).__name__) is type(value)


@dataclass
class _Writer:
    """From an estimator to JSON; arrays are put aside under the name of their place."""

    arrays: Arrays = field(default_factory=dict)
    interval_own: str = "network"  # what `load` must be given for an interval team of the user's

    def estimator(self, model: BaseEstimator, place: str = "") -> dict[str, Any]:
        parameters = model.get_params(deep=False)
        if isinstance(parameters.get("random_state"), np.random.RandomState):
            parameters["random_state"] = None
        if hasattr(parameters.get("folds"), "split"):  # a splitter; None would ask for the paper's literal training
            parameters["folds"] = str(parameters["folds"])
        self.interval_own = "network" if parameters.get("interval_network") is None else "interval_network"
        learned = {name: value for name, value in vars(model).items() if LEARNED.fullmatch(name)}
        learned.pop("estimators_", None)  # the predictor has them as modules
        check_hints(type(model).__name__, parameters, hints_of(type(model)))  # as when it is loaded
        return {
            "class": type(model).__name__,
            "parameters": {name: self.value(value, f"{place}parameters.{name}") for name, value in parameters.items()},
            "learned": {name: self.value(value, f"{place}{name}") for name, value in learned.items()},
        }

    def value(self, value: Any, place: str) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, Real):
            return int(value) if isinstance(value, Integral) else float(value)
        if type(value) in (list, tuple, nn.ModuleList):  # a named tuple may be a matching of the user's
            items = [self.value(item, f"{place}.{number}") for number, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, np.ndarray | Tensor):
            array = value.cpu().numpy() if isinstance(value, Tensor) else value
            if array.dtype.kind == "U":
                return {"texts": array.tolist()}
            if array.dtype == object and all(isinstance(item, str) for item in array):
                return {"strings": array.tolist()}
            if array.dtype.name not in TYPES:
                raise TypeError(f"{place} cannot be saved: an array may have the types {TYPES}, got {array.dtype}")
            self.arrays[place] = array
            return {"array": place}
        if isinstance(value, Team):
            self.state(value, place)
            own = self.interval_own if place.endswith("interval_team") else "network"
            sizes = {"n_members": value.n_members, "sizes": self.value(value.sizes, place)}
            return {"team": place, "network": self.part(value.recipe, place, own=own), **sizes}
        if place.endswith("source_.trunk"):
            self.state(value, place)
            return {"trunk": place, "ours": isinstance(value, ResNet18Trunk)}
        own = place.rpartition(".")[2]
        return self.part(value, place, own="conformity_score" if own == "score" else own)

    def state(self, module: nn.Module, place: str) -> None:
        """Weights in float32, in which they were trained, unless that would lose a bit."""
        for name, tensor in module.state_dict().items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{place}.{name} cannot be saved: it must be a tensor, got {type(tensor).__name__}")
            whole = tensor.cpu().numpy()
            with np.errstate(over="ignore"):
                short = whole.astype(np.float32) if whole.dtype == np.float64 else whole
            self.value(short if np.array_equal(short, whole) else whole, f"{place}.{name}")

    def part(self, value: Any, place: str, *, own: str) -> dict[str, Any] | str:
        """An object of ours as its constructor's arguments; for one of the user's, what `load` must be given."""
        value = without_cache(value)
        if _is_stored(value) and hasattr(value, "get_params"):
            return self.estimator(value, f"{place}.")
        if _is_stored(value):
            names = signature(type(value)).parameters
            arguments = {name: self.value(getattr(value, name), f"{place}.{name}") for name in names}
            return {"class": type(value).__name__, **arguments}
        if own in OWN:
            return {"own": own}
        if hasattr(value, "fit"):  # a regressor of the user's
            if "parameters." in place:
                return " ".join(str(value).split())
            raise TypeError(" ".join(f"{value!r} {NO_TENSORS}".split()))
        raise TypeError(f"{place} cannot be saved: it is a {type(value).__name__}, no part of a model that we know")


@dataclass
class _Reader:
    """From JSON and arrays back to an estimator, with the user's own objects where they are needed."""

    path: str
    arrays: Arrays
    given: dict[str, Any]
    taken: set[str] = field(default_factory=set)

    def estimator(self, stored: dict[str, Any]) -> Any:
        model = self.value({"class": stored["class"], **stored["parameters"]})
        for name, value in stored["learned"].items():
            if not LEARNED.fullmatch(name):
                raise ValueError(f"{name!r} is nothing that fit learns")
            setattr(model, name, self.value(value))
        if stored["learned"]:  # the regressor that a forecaster is given has learned nothing itself
            check_learned(model)
        return model

    def value(self, stored: Any) -> Any:
        match stored:
            case list():
                return [self.value(item) for item in stored]
            case {"class": _, "parameters": _, "learned": _}:
                return self.estimator(stored)
            case {"class": name, **entries}:
                for package in PACKAGES:
                    if name not in STORED:
                        import_module(f"coverwell.{package}")
                arguments = {str(key): self.value(entry) for key, entry in entries.items()}
                check_hints(name, arguments, hints_of(STORED[name]))
                return STORED[name](**arguments)
            case {"tuple": items}:
                return tuple(self.value(item) for item in items)
            case {"strings": items} if fits(items, list[str]):
                return np.array(items, dtype=object)
            case {"texts": items} if fits(items, list[str]):
                return np.array(items, dtype=np.str_)
            case {"array": name}:
                return self.arrays[name].copy()
            case {"own": name}:
                return self.own(name)
            case {"team": place, "network": network, "n_members": n_members, "sizes": sizes}:
                return self.team(place, network, n_members, self.value(sizes))
            case {"trunk": place, "ours": ours}:
                with torch.random.fork_rng(devices=[]):  # a trunk of the user's own recipe is made by it again
                    trunk: nn.Module = ResNet18Trunk() if ours else self.own("network").trunk()
                trunk.load_state_dict(self.state(place))  # checks names and shapes
                return trunk.eval().requires_grad_(False)
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

    def team(self, place: str, stored: Any, n_members: int, sizes: tuple[tuple[int, ...], int]) -> Team:
        network, own, weights = network_from(self.value(stored)), "own" in stored, self.state(place)
        check_sizes(network, (n_members, sizes), weights)
        # The shapes of our networks are enough, without memory. A user's may draw: the caller's random state is kept.
        with torch.random.fork_rng(devices=[]), nullcontext() if own else torch.device("meta"), no_larger(weights):
            team = network.build(n_members, *sizes)
            team.to(team.precision)
        state = {name: t.to(team.precision) if t.is_floating_point() else t for name, t in weights.items()}
        team.load_state_dict(state, assign=not own)  # checks names and shapes
        team.sizes = sizes
        return team.eval().requires_grad_(False)

    def state(self, place: str) -> dict[str, Tensor]:
        prefix = f"{place}."
        return {n.removeprefix(prefix): torch.tensor(a) for n, a in self.arrays.items() if n.startswith(prefix)}


# Tensor files.


def versions_here() -> dict[str, str]:
    versions = {package: version(package) for package in ("torch", "numpy", "scikit-learn")}
    return {"coverwell": __version__, **versions}


def write_tensors(path: Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Write a header and arrays, whole or not at all; equal ones give equal bytes."""
    with new_file(path) as file:
        file.write(tensor_bytes(header, arrays))


def tensor_bytes(header: dict[str, Any], arrays: Arrays) -> bytes:
    """What a file holds that has a header and arrays."""
    header = {**header, "format": FORMAT, "versions": versions_here()}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # the memory is written as it lies
    header["sha256"] = _sha256(header, arrays)
    return safetensors_bytes(arrays, {"coverwell": json.dumps(header, sort_keys=True)})


def read_tensors(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file whose content has the sha256 that it states."""
    return tensors_in(path.read_bytes(), path)


def tensors_in(content: bytes, path: Path) -> tuple[dict[str, Any], Arrays]:
    """The same from what a file holds; errors name its path."""
    with _malformed_means(f"{path} is damaged or not a model file", "take another copy, or save the model again"):
        arrays = arrays_in(content)  # checks all lengths and offsets
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        if "coverwell" not in metadata:
            raise ModelFileError(f"{path} must be a file that coverwell.save wrote, got another safetensors file")
        header = json.loads(metadata["coverwell"])
        stated, number, versions = header.pop("sha256"), header["format"], header["versions"]
        if isinstance(number, int) and number != FORMAT:
            raise ModelFileError(
                f"{path} has format {number}, but coverwell {__version__} reads {FORMAT}; load it with the version "
                f"that wrote it ({versions}), or fit and save the model again with this one"
            )
        if stated != _sha256(header, arrays):
            raise ValueError("its content does not have the stored sha256")
    return header, arrays


def _sha256(header: dict[str, Any], arrays: Arrays) -> str:
    """Of the header with sorted keys, and of the names, types, shapes and bytes of the arrays."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + safetensors_bytes(arrays)).hexdigest()


@contextmanager
def _reading(path: Path, given: dict[str, Any]) -> Iterator[tuple[dict[str, Any], _Reader]]:
    """The stored model of a file and its reader; what the block cannot read is a `ModelFileError`."""
    header, arrays = read_tensors(path)
    way_out = f"load it with the versions, and the objects of your own, that it was saved with: {header['versions']}"
    with _malformed_means(f"{path} is whole, but no model can be made of it here", way_out):
        yield header["model"], _Reader(str(path), arrays, given)


@contextmanager
def _malformed_means(what: str, way_out: str) -> Iterator[None]:
    """Turn what code raises that meets something `save` never writes into a `ModelFileError`."""
    try:
        yield
    except ModelFileError:
        raise
    except MALFORMED as error:
        reason = " ".join(str(error).split())  # in one line
        raise ModelFileError(f"{what} ({type(error).__name__}: {reason}); {way_out}") from error
