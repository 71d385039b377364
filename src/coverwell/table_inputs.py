"""Tables as what an estimator is fitted on: checked, data frames read by columns, arrays taken as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_X_y, validate_data

from coverwell.columns import columns_for
from coverwell.frames import check_numbers, columns_of, is_frame, is_named
from coverwell.picture_inputs import check_no_pictures

__all__ = ["checked_table", "checked_table_and_targets", "input_names"]

Array = NDArray[np.float64]

TARGETS: dict[str, Any] = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}


def checked_table(model: BaseEstimator, X: Any) -> Array:
    """Rows to predict, as the fitted model's networks are given them."""
    check_no_pictures(X)
    if not _reads_columns(model, X):
        _check_holds_numbers(X)
        return _finite(validate_data(model, X, reset=False, ensure_all_finite=False), X)
    if model.columns_.plain:  # scikit-learn's rule for names: all of them, no others, in their order
        validate_data(model, X, reset=False, skip_check_array=True)
    rows: Array = check_array(model.columns_.transform(X))
    return rows


def checked_table_and_targets(
    model: BaseEstimator, X: Any, y: ArrayLike, *, goes_on: bool
) -> tuple[Array, NDArray[Any]]:
    """Rows to learn from, and their targets.

    A data frame is read by columns from now on: the model gets `columns_`. A model that goes on from a fit reads as it
    did then.
    """
    check_no_pictures(X)
    if not goes_on and (columns := columns_for(X)) is not None:
        model.columns_ = columns
    if not _reads_columns(model, X):
        _check_holds_numbers(X)
        table, targets = validate_data(model, X, y, ensure_all_finite=False, **TARGETS)
        return _finite(table, X), targets
    validate_data(model, X, y, skip_check_array=True)  # notes the names of the columns
    table, targets = check_X_y(model.columns_.transform(X), y, **TARGETS)
    return table, targets


def input_names(model: BaseEstimator) -> NDArray[np.object_] | None:
    """What the numbers of a row are called, if they have names."""
    if hasattr(model, "columns_"):
        return np.array(model.columns_.feature_names, dtype=object)
    names: NDArray[np.object_] | None = getattr(model, "feature_names_in_", None)
    return names


def _reads_columns(model: BaseEstimator, X: Any) -> bool:
    """Whether X is read by columns; a model of numbers alone takes arrays, and frames like them, as well."""
    columns = getattr(model, "columns_", None)
    return columns is not None and (not columns.plain or is_named(X))


def _check_holds_numbers(X: Any) -> None:
    """Raise for a frame, or an array, of anything else: as numbers, dates would be a count of some unit of time."""
    if is_frame(X):
        check_numbers(X)
    elif isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise ValueError(f"X must hold numbers, got {X.dtype}; convert it, or give a data frame")


def _finite(table: NDArray[Any], X: Any) -> Array:
    rows: Array = table.astype(np.float64)
    odd = ~np.isfinite(rows)
    if odd.any():
        row, column = np.argwhere(odd)[0].tolist()
        what = "NaN" if np.isnan(rows[row, column]) else "infinity"
        name = f" ({list(columns_of(X))[column]!r})" if is_frame(X) else ""
        raise ValueError(
            f"Input X contains {what} in row {row}, column {column}{name}, both counted from 0; every number must be "
            "finite: leave such rows out, or fit on a data frame with named columns, in which gaps are filled"
        )
    return rows
