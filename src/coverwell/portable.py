"""Fitted models of scikit-learn as modules, which model files and ONNX can hold, where a few lines predict the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.inputs.scaling import Scaling
from coverwell.options import stored
from coverwell.trees import Nodes, Trees, joined

Array = NDArray[np.float64]

# Why a file cannot hold a fitted regressor.
NO_TENSORS = (
    "cannot be written to a file: it takes linear models, trees, forests and boosting of scikit-learn, also behind "
    "scalings, on columns of numbers without gaps; pickle the model instead"
)


@stored
class LinearMap(nn.Module):
    """A linear model: one row of coefficients and an intercept for each target."""

    coef: Tensor
    intercept: Tensor

    def __init__(self, coef: Array, intercept: Array) -> None:
        super().__init__()
        self.register_buffer("coef", torch.as_tensor(coef))
        self.register_buffer("intercept", torch.as_tensor(intercept))

    def forward(self, x: Float[Tensor, "row feature"]) -> Float[Tensor, "row target"]:
        return x.to(self.coef.dtype) @ self.coef.T + self.intercept


@stored
class Exponential(nn.Module):
    """The inverse of a log link."""

    def __init__(self) -> None:  # without it, model files would look for the arguments of `nn.Module`
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


@stored
class Filled(nn.Module):
    """Rows with one value per column in place of those that are missing."""

    values: Tensor

    def __init__(self, values: Array) -> None:
        super().__init__()
        self.register_buffer("values", torch.as_tensor(values))

    def forward(self, x: Float[Tensor, "row feature"]) -> Float[Tensor, "row feature"]:
        return torch.where(x.isnan(), self.values, x)


@stored
class Steps(nn.Module):
    """Modules one after the other."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Float[Tensor, "row feature"]) -> Float[Tensor, "row target"]:
        return functools.reduce(lambda rows, part: part(rows), self.parts, x)


def portable(estimator: Any) -> nn.Module | None:
    """A module that predicts the same as a fitted model of scikit-learn, `(row, feature)` to `(row, target)`.

    For trees, forests, gradient boosting without categories, linear models with or without a log link, pipelines of
    scalings and imputed means before one of these, searches over them, and frozen ones. None for all others.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    if isinstance(estimator, FrozenEstimator):
        return portable(estimator.estimator)
    if hasattr(estimator, "best_estimator_"):
        return portable(estimator.best_estimator_)
    if isinstance(estimator, Pipeline):
        *before, last = (step for _, step in estimator.steps if step not in (None, "passthrough"))
        parts = [*map(_transform, before), portable(last)]
        known = [part for part in parts if part is not None]
        module: nn.Module | None = Steps(known) if len(known) == len(parts) else None
    else:
        last, module = estimator, _trees_of(estimator) or _linear_of(estimator)
    if module is None:
        return None
    rows = np.random.default_rng(0).normal(scale=[[0.1], [1.0], [10.0]] * 8, size=(24, last.n_features_in_))
    logged = Steps([module, Exponential()])
    return next((candidate for candidate in (module, logged) if _agree(candidate, estimator, rows)), None)


@torch.no_grad()
def _agree(module: nn.Module, estimator: Any, rows: Array) -> bool:
    """Whether both predict the same for these rows: a class may have a `predict` of its own."""
    with warnings.catch_warnings(action="ignore"):  # that the rows have no names
        expected = np.reshape(estimator.predict(rows), (len(rows), -1))
    found = module(torch.from_numpy(rows)).numpy()
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=1e-9 * scale)


def _trees_of(estimator: Any) -> Trees | None:
    from sklearn import ensemble
    from sklearn.dummy import DummyRegressor
    from sklearn.tree import DecisionTreeRegressor

    n, base = getattr(estimator, "n_features_in_", 0), 0.0
    if isinstance(estimator, DecisionTreeRegressor):
        return joined([Nodes.of(estimator.tree_)], n, precision=np.float32, mean=True)
    if isinstance(estimator, ensemble.RandomForestRegressor | ensemble.ExtraTreesRegressor):
        nodes = [Nodes.of(tree.tree_) for tree in estimator.estimators_]
        return joined(nodes, n, precision=np.float32, mean=True)
    if isinstance(estimator, ensemble.GradientBoostingRegressor):
        if isinstance(estimator.init_, DummyRegressor):
            base = estimator.init_.constant_.item()
        elif estimator.init_ != "zero":
            return None
        nodes = [Nodes.of(tree.tree_) for tree in estimator.estimators_.flat]
        nodes = [tree._replace(value=tree.value * estimator.learning_rate) for tree in nodes]
        return _sum(nodes, base, n, np.float32)
    if isinstance(estimator, ensemble.HistGradientBoostingRegressor) and estimator.is_categorical_ is None:
        nodes = []
        for (predictor,) in estimator._predictors:  # scikit-learn has no public view of them
            node = predictor.nodes
            left = np.where(node["is_leaf"], -1, node["left"].astype(np.int64))
            split = node["feature_idx"], node["num_threshold"], node["missing_go_to_left"]
            nodes.append(Nodes(left, node["right"].astype(np.int64), *split, node["value"][:, None]))
        return _sum(nodes, np.asarray(estimator._baseline_prediction).item(), n, np.float64)
    return None


def _sum(nodes: list[Nodes], base: float, n_features: int, precision: type[np.floating]) -> Trees:
    """Boosted trees; the first also has what they start from."""
    first, *others = nodes
    start = first._replace(value=first.value + base)
    return joined([start, *others], n_features, precision=precision, mean=False)


def _linear_of(estimator: Any) -> LinearMap | None:
    if not hasattr(estimator, "coef_") or not hasattr(estimator, "intercept_"):
        return None
    coef = np.array(estimator.coef_, dtype=np.float64, ndmin=2)
    return LinearMap(coef, np.broadcast_to(estimator.intercept_, len(coef)).astype(np.float64))


def _transform(step: Any) -> nn.Module | None:
    """A fitted scaling or imputer as a module, if it is one that we know."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    shape = (getattr(step, "n_features_in_", 0),)
    if isinstance(step, StandardScaler):
        mean, scale = step.mean_ if step.with_mean else 0.0, step.scale_ if step.with_std else 1.0
        return Scaling(shape, *(np.broadcast_to(part, shape) for part in (mean, scale)))
    if isinstance(step, MinMaxScaler):
        bounds = (step.data_min_, step.data_max_) if step.clip else ()
        return Scaling(shape, -step.min_ / step.scale_, 1 / step.scale_, *bounds)
    if isinstance(step, SimpleImputer) and step.indicator_ is None and not np.isnan(step.statistics_).any():
        return Filled(step.statistics_.astype(np.float64))
    return None
