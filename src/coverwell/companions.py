"""Companions: other learners beside F. Their out-of-fold predictions decide how much each counts.

A companion sees the rows as the networks do before scaling, (row, feature) numbers, and the targets in their own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from torch import Tensor, nn
from tqdm import tqdm

from coverwell.calibration import weighted_mean
from coverwell.options import stored
from coverwell.training.rows import Altered
from coverwell.trees import Trees, grow, mean_of_unseen, out_of_bag

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]  # (member, row)

FOREST = "forest"
COMPANION, ESTIMATOR = "the companion", "the estimator"  # in errors, with what to do about it
WAYS_OUT = {COMPANION: "leave it out or mend it", ESTIMATOR: "mend it or give another"}
# Tried out of fold on splits 100 to 102; `make bench-selection` does not compare them yet.
N_TREES = 100
TREE_ROWS = 10_000  # that one tree sees at most
SHARES_OF_FEATURES = (1 / 3, 1.0)  # tried at each split, by the out-of-bag error of a few trees
TRIAL_TREES, TRIAL_ROWS = 20, 4000


def check_companions(choices: Any, kind: str = "regressor", verb: str = "predict") -> None:
    """Raise unless companions are a sequence of "forest" and estimators of a kind that can be fitted."""
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise TypeError(f"companions must be a tuple such as ('forest',) or (Ridge(),), got {choices!r}")
    for choice in choices:
        if isinstance(choice, str) and choice != FOREST:
            raise ValueError(f"a companion must be {FOREST!r} or a {kind}, got {choice!r}")
        missing = [one for one in ("fit", verb) if not has(choice, one)]
        if not isinstance(choice, str) and (isinstance(choice, type) or missing):
            lacks = "is a class" if isinstance(choice, type) else f"has no {missing[0]}"
            raise TypeError(f"a companion must be {FOREST!r} or a {kind} with fit and {verb}, {choice!r} {lacks}")


def has(choice: Any, verb: str) -> bool:
    """Whether an object has a method, or its class has: a stack gets its `predict` when it is fitted."""
    return hasattr(choice, verb) or hasattr(type(choice), verb)


def fit_companions(
    choices: Sequence[Any],
    X: Array,
    y: Array,
    trains: Masks,
    leaves_out: Masks,
    units: Any,
    seed: int,
    weight: Array | None = None,
    altered: Altered | None = None,
    *,
    classes: bool = False,
) -> tuple[list[nn.Module], Array]:
    """The companions of one job as modules, and what they predict for rows they did not train on.

    The second is (row, companion, target), with altered rows behind them. `units` are rows that stay together, or
    None; the weight is (row,). With `classes`, y is 1 at the class of a row, and probabilities are predicted.
    """
    modules, found = [], []
    for number, choice in enumerate(choices):
        if isinstance(choice, str):
            module, out_of_fold = fit_forest(X, y, units, seed + number, weight, altered, classes=classes)
        else:
            choice = AsProbabilities(choice) if classes else choice
            module, out_of_fold = fit_estimator(choice, X, y, trains, leaves_out, seed + number, weight, altered)
        modules.append(module)
        found.append(out_of_fold)
    return modules, np.stack(found, axis=1)


def fit_forest(
    X: Array,
    y: Array,
    units: Any,
    seed: int,
    weight: Array | None = None,
    altered: Altered | None = None,
    *,
    classes: bool = False,
) -> tuple[nn.Module, Array]:
    """A random forest and its out-of-bag predictions."""
    trees, out_of_fold, in_bag = grown_forest(X, y, units, seed, weight, classes=classes)
    if altered is not None:
        found = mean_of_unseen(trees, altered.X, in_bag[:, altered.copy_of])
        out_of_fold = np.concatenate([out_of_fold, np.where(np.isnan(found), y.mean(axis=0), found)])
    return trees, out_of_fold


def grown_forest(
    X: Array, y: Array, units: Any, seed: int, weight: Array | None = None, *, classes: bool = False
) -> tuple[Trees, Array, Masks]:
    """The same, and which rows each tree has seen, (tree, row)."""
    tried = []
    counting = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    few = np.random.RandomState(seed).permutation(counting)[:TRIAL_ROWS]
    # Trees weigh targets by their spread, and take one of a tiny spread for constant.
    centre, spread = y.mean(axis=0), np.maximum(y.std(axis=0), np.finfo(np.float64).tiny)
    if classes:  # the squared error of all together is their Gini impurity
        spread = np.ones_like(centre)
    y = (y - centre) / spread
    for share in SHARES_OF_FEATURES:
        own, mine = (None if part is None else part[few] for part in (units, weight))
        _, out_of_fold, _ = _forest(X[few], y[few], own, seed, TRIAL_TREES, share, mine)
        tried.append(weighted_mean((out_of_fold - y[few]) ** 2, mine))
    share = SHARES_OF_FEATURES[int(np.argmin(tried))]
    trees, out_of_fold, in_bag = _forest(X, y, units, seed, N_TREES, share, weight)
    return trees.with_table(trees.table.numpy() * spread + centre), out_of_fold * spread + centre, in_bag


def _forest(
    X: Array, y: Array, units: Any, seed: int, n_trees: int, share: float, weight: Array | None
) -> tuple[Trees, Array, Masks]:
    drawn: dict[str, Any] = {"max_rows": TREE_ROWS, "units": units, "random_state": seed, "weight": weight}
    trees, in_bag = grow(X, y, n_trees=n_trees, min_leaf=1, max_features=share, **drawn)
    out_of_fold, _ = out_of_bag(trees, trees.table.numpy(), X, in_bag)
    return trees, np.where(np.isnan(out_of_fold), weighted_mean(y, weight, axis=0), out_of_fold), in_bag


def fit_estimator(
    choice: Any,
    X: Array,
    y: Array,
    trains: Masks,
    leaves_out: Masks,
    seed: int,
    weight: Array | None = None,
    altered: Altered | None = None,
) -> tuple[nn.Module, Array]:
    """A user's regressor, fitted on all rows, and the predictions of its copies that were fitted fold by fold."""
    from coverwell.portable import portable

    whole, out_of_fold = cross_fitted(choice, X, y, trains, leaves_out, seed, weight=weight, altered=altered)
    return portable(whole) or Foreign(whole, y.shape[1]), out_of_fold


class AsProbabilities(RegressorMixin, BaseEstimator):
    """A classifier as a regressor of the probabilities of all classes, of which a fold may lack some."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return repr(self.estimator)  # errors name what the user gave

    def fit(self, X: Any, y: Array, **how: Any) -> AsProbabilities:
        self.n_classes_, self.estimator_ = y.shape[1], clone(self.estimator)
        self.estimator_.fit(X, y.argmax(axis=1), **how)
        return self

    def predict(self, X: Any) -> Array:
        p = np.zeros((len(X), self.n_classes_))
        p[:, self.estimator_.classes_.astype(np.intp)] = self.estimator_.predict_proba(X)
        return p


def cross_fitted(
    choice: Any,
    X: Any,
    y: Array,
    trains: Masks,
    leaves_out: Masks,
    seed: int,
    *,
    what: str = COMPANION,
    verbose: int = 0,
    weight: Array | None = None,
    altered: Altered | None = None,
) -> tuple[Any, Array]:
    """A copy of a regressor, fitted on all rows, and what copies of the folds predict, (row, target).

    X is an array or a data frame; altered rows come behind them. Nobody is fitted on rows of weight zero.
    """
    tables = [(X, np.arange(len(y)))] if altered is None else [(X, np.arange(len(y))), (altered.X, altered.copy_of)]
    found = [(np.zeros((len(rows), y.shape[1])), np.zeros(len(rows))) for _, rows in tables]
    once = np.cumsum(leaves_out, axis=0) <= 1  # the first repeat leaves every row out once
    parts = [(own, left_out) for own, left_out in zip(trains, leaves_out & once, strict=True) if left_out.any()]
    for own, left_out in tqdm(parts, disable=not verbose, desc="folds", unit="fold"):
        fold = fitted(choice, rows_at(X, own), y[own], seed, what, None if weight is None else weight[own])
        for (table, rows), (sums, counts) in zip(tables, found, strict=True):
            if (own := left_out[rows]).any():
                sums[own] += predicted(fold, rows_at(table, own), y.shape[1], what)
                counts[own] += 1
    counting = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    known = (X, y, seed, what) if counting.all() else (rows_at(X, counting), y[counting], seed, what)
    whole = fitted(choice, *known, None if weight is None else weight[counting])
    few = rows_at(X, np.arange(len(y)) < TRIAL_ROWS)
    first, second = (predicted(whole, few, y.shape[1], what) for _ in range(2))
    if not np.array_equal(first, second):
        must, way_out = f"{what} must predict the same for the same rows", "give it a fixed random_state"
        raise ValueError(f"{must}, {choice!r} does not; {way_out}")
    elsewhere = weighted_mean(y, weight, axis=0)
    sums, counts = map(np.concatenate, zip(*found, strict=True))
    return whole, np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], elsewhere)


def rows_at(X: Any, mask: NDArray[np.bool_]) -> Any:
    """Some rows of an array, a data frame or a list."""
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, np.flatnonzero(mask))


def fitted(choice: Any, X: Any, y: Array, seed: int, what: str = COMPANION, weight: Array | None = None) -> Any:
    """A fresh copy of a regressor, fitted; what it does at random is drawn from the seed."""
    name = None if weight is None else name_of_weight(choice)
    if weight is not None and name is None:
        line = f"sample_weight needs a fit that takes it, and {what} {choice!r} has none; {WAYS_OUT[what]}"
        raise ValueError(" ".join(line.split()))
    how, copy = {} if name is None else {name: weight}, clone(choice)
    drawn = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    copy.set_params(**{name: seed for name in drawn if copy.get_params()[name] is None})
    try:
        return copy.fit(X, y[:, 0] if y.shape[1] == 1 else y, **how)
    except Exception as error:
        line = f"{what} {choice!r} failed on {len(y)} rows: {error}; {WAYS_OUT[what]}"
        raise ValueError(" ".join(line.split())) from error


def name_of_weight(choice: Any) -> str | None:
    """What a regressor's `fit` calls the weights of rows, also for the last step of a pipeline or inside a search."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils.validation import has_fit_parameter

    if has_fit_parameter(choice, "sample_weight") or isinstance(choice, FrozenEstimator):
        return "sample_weight"
    if steps := getattr(choice, "steps", None):
        last, inner = steps[-1]
        return f"{last}__{name}" if (name := name_of_weight(inner)) else None
    inner = getattr(choice, "estimator", getattr(choice, "regressor", None))
    if not has(inner, "fit"):
        return None
    passes_on = any(one.kind is one.VAR_KEYWORD for one in signature(choice.fit).parameters.values())
    return name_of_weight(inner) if passes_on else None


def predicted(regressor: Any, X: Any, n_targets: int, what: str = COMPANION) -> Array:
    """Its predictions, (row, target), checked."""
    n_rows = len(X)
    try:
        values = np.asarray(regressor.predict(X), dtype=np.float64)
    except Exception as error:
        line = f"{what} {regressor!r} failed to predict {n_rows} rows: {error}; {WAYS_OUT[what]}"
        raise ValueError(" ".join(line.split())) from error
    if values.size != n_rows * n_targets or not np.isfinite(values).all():
        must = f"{what} must predict {n_targets} finite numbers for each of {n_rows} rows"
        raise ValueError(f"{must}, {regressor!r} gave an array of shape {values.shape}; {WAYS_OUT[what]}")
    return values.reshape(n_rows, n_targets)


@stored
class Foreign(nn.Module):
    """A fitted regressor that has no form as tensors: it predicts, but only a pickle can hold it."""

    def __init__(self, regressor: Any, n_targets: int) -> None:
        super().__init__()
        self.regressor, self.n_targets = regressor, n_targets

    def forward(self, rows: Tensor) -> Tensor:
        values = predicted(self.regressor, rows.detach().cpu().numpy().copy(), self.n_targets)  # it may write into them
        return torch.from_numpy(values).to(rows.device)
