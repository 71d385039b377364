"""What a fitted regressor says about rows, prediction and bounds at once, and how many rows stand behind its word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor

__all__ = ["Said", "n_ranked_rows", "n_trained_rows", "say"]

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
    estimates = model._estimates(X)
    lower, upper = model._stretch.bounds(estimates, model._fitted_levels, joint=False)
    return Said(np.mean([estimate.mean for estimate in estimates], axis=0), lower, upper)


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
