"""What a model must have learned for it to be used: checked once it was read from a file, which may come from anywhere.

Types and shapes are those of hints. Whether parts fit together is tried with one row, through all that users can ask
for.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain
from numbers import Integral
from operator import attrgetter
from threading import get_ident
from typing import Any, get_type_hints

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn
from torch.nn.modules import module

from coverwell.hints import check_hints, fits
from coverwell.inputs.source import ImageSource, InputSource
from coverwell.networks.resnet import ResNet18Trunk
from coverwell.options import levels_from
from coverwell.predictor import Predictor
from coverwell.sets import ClassPredictor
from coverwell.shift import Recalibration

BUFFERS = {"centre", "spread"}  # of every scaling but that of images' features
LEARNED = re.compile(r"[a-z]\w*_")  # names of what `fit` learned
# What some fits set, scikit-learn or `watch`; the classes of estimators say what all of them do. Users may add more.
SOMETIMES: dict[str, Any] = {
    "n_features_in_": int,
    "feature_names_in_": np.ndarray,
    "n_rows_": int,
    "n_ranked_": int,
    "n_effective_": float,
    "out_of_fold_rows_": Int64[np.ndarray, " row"],
    "recalibration_": Recalibration,
    "watch_": str,
    "bounded_": bool,
}
SIZES = tuple[int, tuple[tuple[int, ...], int]]  # members, the shape of an input, and outputs
FREE = 2**16  # numbers up to this size cost nothing in a recipe, whatever they are for
MOST_NUMBERS = 2**26  # of the features of an image
MOST_TOGETHER = 2**40  # members times inputs times outputs
ENDLESS = "threshold", "low", "high"  # of trees and of scalings; all other numbers of a model are finite
SHARES = np.array([0.001, 0.3, 0.999])  # of quantiles that are tried


# Networks, before they are built.


def check_sizes(recipe: Any, sizes: Any, weights: Mapping[str, Tensor]) -> None:
    """Raise for a number in a recipe, or in the sizes of its team, that is larger than all its weights together."""
    n_weights = sum(tensor.numel() for tensor in weights.values())
    most, found = max(n_weights, FREE), list(numbers_in(sizes))
    most_asked = max(*found, *numbers_in(recipe), 0, 0)
    known = fits(sizes, SIZES) and min(found) >= 1
    if not known or math.prod(found) > MOST_TOGETHER or most_asked > most:
        raise ValueError(f"{recipe} and {sizes} cannot be those of a network of {n_weights} weights")


def numbers_in(asked: Any) -> Iterator[int]:
    """The whole numbers of a recipe, and of those inside it."""
    if isinstance(asked, Integral):
        yield int(asked)
    elif isinstance(asked, tuple):
        for item in asked:
            yield from numbers_in(item)
    elif is_dataclass(asked):
        yield from numbers_in(tuple(getattr(asked, one.name) for one in fields(asked)))


@contextmanager
def no_larger(weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Stop the building of a network that comes to have many times as many tensors as these."""
    n_made, most, mine = 0, 1000 + 10 * len(weights), get_ident()

    def count(*_: Any) -> None:
        nonlocal n_made
        n_made += get_ident() == mine  # other threads may build networks of their own
        if n_made > most and get_ident() == mine:
            raise ValueError(f"a network of {len(weights)} tensors would be built with more than {most}")

    hooks = [
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# What fits learn.


def learned_by(cls: type[Any]) -> dict[str, Any]:
    """What every fitted model of a class has, by name."""
    hints = {name: hint for name, hint in get_type_hints(cls).items() if LEARNED.fullmatch(name)}
    return {name: hint for name, hint in hints.items() if name not in SOMETIMES}


def check_learned(model: Any) -> None:
    """Raise unless a regressor, classifier or forecaster has all that it needs, and this fits together."""
    name, due = type(model).__name__, learned_by(type(model))
    learned = {key: value for key, value in vars(model).items() if LEARNED.fullmatch(key)}
    if absent := [key for key in due if key not in learned and not hasattr(type(model), key)]:
        raise ValueError(f"a fitted {name} must have {', '.join(absent)}")
    check_hints(name, learned, due | SOMETIMES)
    if "predictor_" in due:
        check_estimator(model)
    else:
        with warnings.catch_warnings(action="ignore"):
            model.check_learned()


def check_estimator(model: Any) -> None:
    """Raise unless what `fit` learned fits together."""
    source, names, n = model.source_, model.target_names_, getattr(model, "n_features_in_", 0)
    check_predictor(source, model.predictor_, names)
    in_order = not (model.one_dimensional_ and len(names) > 1) and (n > 0 or not source.scaled)
    named = getattr(model, "feature_names_in_", None)
    if named is not None and source.columns is not None:
        left_out = dict(source.columns.dropped)
        if (found := [name for name in named if name not in left_out]) != source.table_columns:
            raise ValueError(f"the columns must be {source.table_columns}, got {found}")
    of_array = source.scaled and source.columns is None
    n_named = n if named is None else len(named)
    if not in_order or n_named != n or (of_array and source.row_shape != (n,)):
        must = f"a target of one dimension must be one, and {n} features have {n} names if any"
        raise ValueError(f"{must}, got {len(names)} and {n_named} for rows of {source.row_shape}")
    check_records(model)


def check_records(model: Any) -> None:
    """Raise unless rounds and out-of-fold rows have the targets, or classes, and the levels of the model."""
    n_targets, n_levels = len(model.target_names_), len(model.predictor_.levels)
    sizes, numbers = (n_targets, *[n_targets * n_levels] * 3), attrgetter("rmse", "coverage", "width", "interval_score")
    shapes = {tuple(map(np.shape, numbers(one))) for one in model.rounds_}
    if len(shapes) > 1 or any(tuple(map(math.prod, one)) != sizes for one in shapes):
        raise ValueError(f"all rounds must have {sizes} numbers, got the shapes {shapes}")
    known, classes = model.out_of_fold_, getattr(model, "classes_", None)
    n_out = n_targets if classes is None else len(classes)
    if known is not None and list(vars(known).values())[-1].shape[1:] != (n_out, n_levels):
        raise ValueError(f"out-of-fold rows must have {n_out} targets or classes and {n_levels} levels")
    if classes is not None and not np.array_equal(classes, model.predictor_.classes):
        raise ValueError(f"the classes must be {model.predictor_.classes}, got {classes}")


@torch.no_grad()
def check_predictor(source: InputSource, predictor: Predictor, names: tuple[str, ...]) -> None:
    """Raise unless these fit together: a row must have a prediction, bounds of all levels and quantiles."""
    levels, correction = levels_from(predictor.levels), predictor.correction
    features = source.names if source.columns is None else source.columns.feature_names
    fits = features is None or (source.names, source.row_shape) == (features, (len(features),))
    if not fits or not all(isinstance(name, str) for name in names):
        raise ValueError(f"targets must be names, got {names!r}, and rows be {features}, got {source.names}")
    rising = list(levels_from(correction.levels)) == sorted(correction.levels)
    if correction.asked != levels or not rising or not {*levels} <= {*correction.levels}:
        raise ValueError(f"the correction must know the levels {levels} among rising ones, got {correction.levels}")
    of_inputs = {*BUFFERS, "low", "high"} if source.scaled else set()
    due = [list(levels)], source.row_shape, source.mirroring, of_inputs, BUFFERS
    for team in predictor.fitted_teams:
        buffers = [set(dict(scaling.named_buffers())) for scaling in (team.inputs, team.targets)]
        if (team.coverage.tolist(), team.inputs.shape, team.mirroring, *buffers) != due:
            raise ValueError(f"every team must have the levels, rows and numbers for scaling {due}")
        if any(not (one.spread > 0).all() for one in (team.inputs, team.targets) if one.spread is not None):
            raise ValueError("rows and targets must be scaled by numbers above zero")
    row = np.zeros((1, *source.row_shape)) if source.scaled else image_features(source)
    n_targets = 1 if isinstance(predictor, ClassPredictor) else len(predictor.fitted_teams[0].targets.centre)
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        shapes = [tuple(output.shape) for output in predictor(torch.from_numpy(row))]
        finite = all(map(is_finite, chain(finite_in(predictor), tried(predictor, row, n_targets))))
    if shapes != predictor.output_shapes(1) or n_targets != len(names) or not finite:
        raise ValueError(f"there must be a prediction and finite bounds, or sets, for each of {len(names)} targets")
    kept = correction.kept
    if kept is not None and (kept.rows.shape[1:], kept.factor.shape) != (source.row_shape, correction.factor_shape):
        raise ValueError(f"kept rows must be of {source.row_shape}, with the factors of the correction")


def tried(predictor: Predictor, row: Float64[np.ndarray, "1 ..."], n_targets: int) -> Iterator[np.ndarray]:
    """All that a model can be asked for of a row."""
    between = [0.5 * predictor.correction.levels[0]]
    if isinstance(predictor, ClassPredictor):
        yield from predictor.classified(row)
        yield from predictor.classified(row, between)
        return
    for joint in (False, True) if predictor.correction.is_joint or n_targets == 1 else (False,):
        for asked in ((None, SHARES), (between,)):
            found = vars(predictor.prediction(row, *asked, joint=joint)).values()
            yield from (part for part in found if part is not None)


def finite_in(predictor: Predictor) -> Iterator[Tensor]:
    """The numbers of a model that must be finite; those of modules, such as a user's, may be anything."""
    for name, numbers in chain(predictor.named_parameters(), predictor.named_buffers()):
        if name.rpartition(".")[2] not in ENDLESS and ".members." not in name:
            yield numbers


def is_finite(values: Any) -> bool:
    return bool(torch.as_tensor(values).isfinite().all())


def image_features(source: InputSource) -> np.ndarray:
    """Features of one image without anything on it, of the shape that the trunk gives."""
    assert isinstance(source, ImageSource)  # the other kind of source
    if source.trunk is None or 3 * source.size**2 > MOST_NUMBERS or math.prod(source.row_shape) > MOST_NUMBERS:
        raise ValueError(f"images must be of an ordinary size, with a trunk, got {source.size} and {source.row_shape}")
    ours = isinstance(source.trunk, ResNet18Trunk)
    with torch.device("meta" if ours else "cpu"):
        trunk: nn.Module = ResNet18Trunk() if ours else source.trunk
        found = tuple(trunk.eval()(torch.zeros(1, 3, source.size, source.size)).shape[1:])
    if found != source.row_shape:
        raise ValueError(f"features of images must have the shape {found}, got {source.row_shape}")
    return np.zeros((1, *(() if source.mirroring is None else (2,)), *source.row_shape))
