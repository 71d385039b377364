"""Companions: other learners beside F. Their out-of-fold predictions decide how much each counts.

A companion sees the rows as the networks do before scaling, (row, feature) numbers, and the targets in their own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.options import stored
from coverwell.trees import Trees, grow, leaf_means, out_of_bag

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]  # (member, row)

FOREST = "forest"
# Chosen by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection.md).
N_TREES = 100
TREE_ROWS = 10_000  # that one tree sees at most
SHARES_OF_FEATURES = (1 / 3, 1.0)  # tried at each split, by the out-of-bag error of a few trees
TRIAL_TREES, TRIAL_ROWS = 20, 4000


def check_companions(choices: Any) -> None:
    """Raise unless companions are a sequence of "forest" and regressors that can be fitted."""
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise TypeError(f"companions must be a tuple such as ('forest',) or (Ridge(),), got {choices!r}")
    for choice in choices:
        if isinstance(choice, str) and choice != FOREST:
            raise ValueError(f"a companion must be {FOREST!r} or a regressor, got {choice!r}")
        missing = [verb for verb in ("fit", "predict") if not callable(getattr(choice, verb, None))]
        if not isinstance(choice, str) and (isinstance(choice, type) or missing):
            lacks = "is a class" if isinstance(choice, type) else f"has no {missing[0]}"
            raise TypeError(f"a companion must be {FOREST!r} or a regressor with fit and predict, {choice!r} {lacks}")


def fit_companions(
    choices: Sequence[Any], X: Array, y: Array, trains: Masks, leaves_out: Masks, units: Any, seed: int
) -> tuple[list[nn.Module], Array]:
    """The companions of one job as modules, and what they predict for rows they did not train on.

    The second is (row, companion, target). `units` are rows that stay together, or None.
    """
    modules, found = [], []
    for number, choice in enumerate(choices):
        if isinstance(choice, str):
            module, out_of_fold = fit_forest(X, y, units, seed + number)
        else:
            module, out_of_fold = fit_estimator(choice, X, y, trains, leaves_out, seed + number)
        modules.append(module)
        found.append(out_of_fold)
    return modules, np.stack(found, axis=1)


def fit_forest(X: Array, y: Array, units: Any, seed: int) -> tuple[nn.Module, Array]:
    """A random forest and its out-of-bag predictions."""
    tried = []
    few = np.random.RandomState(seed).permutation(len(X))[:TRIAL_ROWS]
    # Trees weigh targets by their spread, and take one of a tiny spread for constant.
    centre, spread = y.mean(axis=0), np.maximum(y.std(axis=0), np.finfo(np.float64).tiny)
    y = (y - centre) / spread
    for share in SHARES_OF_FEATURES:
        own = None if units is None else units[few]
        _, out_of_fold = _forest(X[few], y[few], own, seed, TRIAL_TREES, share)
        tried.append(np.mean((out_of_fold - y[few]) ** 2))
    trees, out_of_fold = _forest(X, y, units, seed, N_TREES, SHARES_OF_FEATURES[int(np.argmin(tried))])
    return trees.with_table(trees.table.numpy() * spread + centre), out_of_fold * spread + centre


def _forest(X: Array, y: Array, units: Any, seed: int, n_trees: int, share: float) -> tuple[Trees, Array]:
    drawn: dict[str, Any] = {"max_rows": TREE_ROWS, "units": units, "random_state": seed}
    trees, in_bag = grow(X, y, n_trees=n_trees, min_leaf=1, max_features=share, **drawn)
    out_of_fold, _ = out_of_bag(trees, leaf_means(trees, X, y, in_bag), X, in_bag)
    return trees, np.where(np.isnan(out_of_fold), y.mean(axis=0), out_of_fold)


def fit_estimator(
    choice: Any, X: Array, y: Array, trains: Masks, leaves_out: Masks, seed: int
) -> tuple[nn.Module, Array]:
    """A user's regressor, fitted on all rows, and the predictions of its copies that were fitted fold by fold."""
    from coverwell.portable import portable

    sums, counts = np.zeros_like(y), np.zeros(len(y))
    once = np.cumsum(leaves_out, axis=0) <= 1  # the first repeat leaves every row out once
    for own, left_out in zip(trains, leaves_out & once, strict=True):
        if left_out.any():
            sums[left_out] += predicted(fitted(choice, X[own], y[own], seed), X[left_out], y.shape[1])
            counts[left_out] += 1
    whole = fitted(choice, X, y, seed)
    few = X[:TRIAL_ROWS]
    if not np.array_equal(predicted(whole, few, y.shape[1]), predicted(whole, few, y.shape[1])):
        raise ValueError(
            f"a companion must predict the same for the same rows, {choice!r} does not; give it a fixed random_state"
        )
    out_of_fold = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], y.mean(axis=0))
    return portable(whole) or Foreign(whole, y.shape[1]), out_of_fold


def fitted(choice: Any, X: Array, y: Array, seed: int) -> Any:
    """A fresh copy of a regressor, fitted; what it does at random is drawn from the seed."""
    from sklearn.base import clone

    copy = clone(choice)
    drawn = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    copy.set_params(**{name: seed for name in drawn if copy.get_params()[name] is None})
    try:
        return copy.fit(X, y[:, 0] if y.shape[1] == 1 else y)
    except Exception as error:
        size = f"{len(X)} rows of {X.shape[1]} numbers"
        raise ValueError(f"the companion {choice!r} failed on {size}: {error}; leave it out or mend it") from error


def predicted(regressor: Any, X: Array, n_targets: int) -> Array:
    """Its predictions, (row, target), checked."""
    values = np.asarray(regressor.predict(X), dtype=np.float64)
    if values.size != len(X) * n_targets or not np.isfinite(values).all():
        must = f"a companion must predict {n_targets} finite numbers for each of {len(X)} rows"
        raise ValueError(f"{must}, {regressor!r} gave an array of shape {values.shape}; leave it out or mend it")
    return values.reshape(len(X), n_targets)


@stored
class Foreign(nn.Module):
    """A fitted regressor that has no form as tensors: it predicts, but only a pickle can hold it."""

    def __init__(self, regressor: Any, n_targets: int) -> None:
        super().__init__()
        self.regressor, self.n_targets = regressor, n_targets

    def forward(self, rows: Tensor) -> Tensor:
        values = predicted(self.regressor, rows.detach().cpu().numpy(), self.n_targets)
        return torch.from_numpy(values).to(rows.device)
