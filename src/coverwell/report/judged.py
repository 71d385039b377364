"""Rows whose targets are known, and what a model says about them: what every section of a report is about."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.commands.judgements import JudgedRows, Judgement, column_of, judgements
from coverwell.commands.models import TableModel
from coverwell.estimator import IntervalRegressor
from coverwell.frames import columns_of, is_frame
from coverwell.report.bounds import Bounds

__all__ = ["Judged", "View", "judged_rows"]

Array = NDArray[np.float64]
Column = NDArray[Any]

FEWEST_ROWS = 10


@dataclass(frozen=True, eq=False)
class View(Bounds):
    """One target at one level: what a reader looks at."""

    judgement: Judgement
    target: int
    level: int

    @property
    def when(self) -> dict[str, int]:
        return {"target": self.target, "level": self.level}


@dataclass(frozen=True, eq=False)
class Judged:
    """A model, rows that it has not seen, and what it says about them."""

    fitted: TableModel
    X: Any
    rows: JudgedRows
    row_numbers: NDArray[np.int64]
    first_number: int  # whether rows are counted from 0 or from 1
    views: list[View]
    warnings: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        return len(self.rows.y)

    def of_target(self, target: int) -> list[View]:
        """All levels of a target."""
        return [view for view in self.views if view.target == target]


def judged_rows(
    model: IntervalRegressor,
    X: Any,
    y: ArrayLike,
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
    row_numbers: ArrayLike | None = None,
) -> Judged:
    """What the model says about these rows, checked and judged; what it warns of is kept, and warned of again."""
    fitted = TableModel(Path("model"), model)
    targets = _targets(y, len(fitted.targets))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = fitted.say(X)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=3)
    if len(said.prediction) != len(targets):
        raise ValueError(f"X and y must have the same rows, got {len(said.prediction)} and {len(targets)}")
    grouped = {str(name): _group(str(name), values, len(targets)) for name, values in (groups or {}).items()}
    columns = {} if hasattr(model, "trunk_") else feature_columns(model, X)
    features = {name: column for name, column in columns.items() if name not in grouped}
    rows = JudgedRows(targets, said, features, grouped)
    numbers = np.arange(len(targets)) if row_numbers is None else np.asarray(row_numbers, dtype=np.int64)
    return Judged(
        fitted,
        X,
        rows,
        numbers,
        0 if row_numbers is None else 1,
        _views(fitted, rows, quantiles),
        tuple(dict.fromkeys(str(warning.message) for warning in caught if issubclass(warning.category, UserWarning))),
    )


def feature_columns(model: IntervalRegressor, X: Any) -> dict[str, Column]:
    """Every feature as numbers, times or texts, NaN, NaT or None where it is missing."""
    if is_frame(X):
        given = columns_of(X)
        used = model.columns_.kinds if hasattr(model, "columns_") else given
        return {name: column_of(given[name]) for name in used}
    names = getattr(model, "feature_names_in_", [f"column {place}" for place in range(model.n_features_in_)])
    return {str(name): column for name, column in zip(names, np.asarray(X, dtype=np.float64).T, strict=True)}


def _targets(y: ArrayLike, n_targets: int) -> Array:
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("y must hold numbers; convert it, or leave out rows whose target is not known") from None
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or targets.shape[1] != n_targets:
        raise ValueError(f"y must have {n_targets} targets for each row, as in training, got the shape {targets.shape}")
    if len(targets) < FEWEST_ROWS:
        raise ValueError(
            f"a report needs at least {FEWEST_ROWS} rows whose targets are known, since fewer tell nothing about "
            f"coverage, got {len(targets)}; give more rows"
        )
    if not np.isfinite(targets).all():
        row = int((~np.isfinite(targets)).any(axis=1).argmax())
        raise ValueError(f"y must be finite, but row {row} (counted from 0) is not; leave such rows out")
    return targets


def _group(name: str, values: ArrayLike, n_rows: int) -> Column:
    column = np.array([None if v is None or v != v else str(v) for v in np.asarray(values, dtype=object)], dtype=object)
    if column.shape != (n_rows,):
        raise ValueError(f"group {name!r} must have one value for each of {n_rows} rows, got {column.shape}")
    return column


def _views(fitted: TableModel, rows: JudgedRows, quantiles: int) -> list[View]:
    n_levels = len(fitted.levels)
    return [
        View(
            rows.y[:, target],
            rows.said.prediction[:, target],
            rows.said.lower[:, target, level],
            rows.said.upper[:, target, level],
            judgement,
            target,
            level,
        )
        for place, judgement in enumerate(judgements(fitted, rows, quantiles=quantiles))
        for target, level in [divmod(place, n_levels)]
    ]
