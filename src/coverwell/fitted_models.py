"""What a fitted regressor predicts for rows, prediction and bounds at once, and how many rows set its widths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor

__all__ = ["Said", "feature_names", "n_ranked_rows", "n_trained_rows", "prediction_columns", "say"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Said:
    """Predictions (row, target) and bounds (row, target, level), levels in ascending order."""

    prediction: Array
    lower: Array
    upper: Array

    @property
    def columns(self) -> list[Array]:
        """For each target its prediction, then both bounds of each level, as `prediction_columns` names them."""
        _, n_targets, n_levels = self.lower.shape
        columns = []
        for target in range(n_targets):
            columns.append(self.prediction[:, target])
            for level in range(n_levels):
                columns += [self.lower[:, target, level], self.upper[:, target, level]]
        return columns


def say(model: IntervalRegressor, X: Any) -> Said:
    """What the model says about rows, its networks asked once for prediction and bounds."""
    estimates = model.estimates(X)
    lower, upper = model.predictor_.bounds(estimates)
    return Said(np.mean([estimate.mean for estimate in estimates], axis=0), lower, upper)


def prediction_columns(targets: Sequence[str], levels: Sequence[float], keep: Sequence[str] = ()) -> list[str]:
    """The columns of a table of predictions: those that are kept, then each target with both bounds of each level."""
    names = [*keep]
    for target in targets:
        names += [target, *(f"{target}_{bound}_{level!r}" for level in levels for bound in ("lower", "upper"))]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"predictions would have two columns named {twice[0]}; keep every column once, and let no target and no "
            "kept column be named like a prediction or a bound of another"
        )
    return names


def feature_names(model: IntervalRegressor) -> list[str] | None:
    """The columns that a model of tables needs, in order; None if it was fitted on an array without names."""
    if model.source_.columns is not None:
        return list(model.source_.columns.kinds)
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def n_ranked_rows(model: Any) -> int | None:
    """How many training rows' ranks set the widths; None if no ranks did, or if the model does not know."""
    if (of_stream := getattr(model, "n_ranked_", None)) is not None:
        return of_stream or None
    if model.scores_ is not None:
        return sum(len(scores) for scores in model.scores_)
    known = getattr(model, "out_of_fold_", None)
    if known is None or model.calibration is None:
        return None
    left_out = int((~np.isnan(known.prediction[:, 0])).sum())
    return left_out if model.calibration == "cross" else len(known.prediction) - left_out


def n_trained_rows(model: Any) -> int | None:
    """How many rows the model was fitted on, where it knows."""
    if (of_stream := getattr(model, "n_rows_", None)) is not None:
        return int(of_stream)
    if (known := getattr(model, "out_of_fold_", None)) is not None:
        return len(known.prediction)
    if model.source_.columns is not None and model.source_.columns.n_rows:
        return int(model.source_.columns.n_rows)
    return None if model.scores_ is None else n_ranked_rows(model)  # of "cv+", which ranks every row
