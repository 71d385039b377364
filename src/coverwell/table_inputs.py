"""Tables as what an estimator is fitted on: checked, and read by columns where they hold more than numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_X_y, validate_data

from coverwell.columns import columns_for
from coverwell.picture_inputs import check_no_pictures

__all__ = ["checked_table", "checked_table_and_targets", "input_names"]

Array = NDArray[np.float64]

TARGETS: dict[str, Any] = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}


def checked_table(model: BaseEstimator, X: Any) -> Array:
    """Rows to predict, as the fitted model's networks are given them."""
    check_no_pictures(X)
    columns = getattr(model, "columns_", None)
    table = validate_data(model, X, reset=False) if columns is None else check_array(columns.transform(X))
    rows: Array = table.astype(np.float64)
    return rows


def checked_table_and_targets(
    model: BaseEstimator, X: Any, y: ArrayLike, *, goes_on: bool
) -> tuple[Array, NDArray[Any]]:
    """Rows to learn from, and their targets.

    A data frame with text, dates or missing values is read by columns from now on: the model gets `columns_`. A model
    that goes on from a fit reads as it did then.
    """
    check_no_pictures(X)
    if not goes_on and (columns := columns_for(X)) is not None:
        model.columns_ = columns
    if hasattr(model, "columns_"):
        validate_data(model, X, y, skip_check_array=True)  # notes the names of the columns
        table, targets = check_X_y(model.columns_.transform(X), y, **TARGETS)
    else:
        table, targets = validate_data(model, X, y, **TARGETS)
    return table.astype(np.float64), targets


def input_names(model: BaseEstimator) -> NDArray[np.object_] | None:
    """What the numbers of a row are called, if they have names."""
    if hasattr(model, "columns_"):
        return np.array(model.columns_.feature_names, dtype=object)
    names: NDArray[np.object_] | None = getattr(model, "feature_names_in_", None)
    return names
