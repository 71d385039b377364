"""Rows whose targets are known, and what a model says about them: what every section of a report is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.fitted_models import say
from coverwell.inputs.frames import columns_of, is_frame
from coverwell.inputs.source import ImageSource
from coverwell.judgements import JudgedRows, Judgement, column_of, judgements
from coverwell.report.bounds import Bounds
from coverwell.report.heard import heard_warnings
from coverwell.slices import Ranked
from coverwell.streaming.table_parts import TableFiles

__all__ = ["Judged", "View", "judged_rows"]

Array = NDArray[np.float64]
Column = NDArray[Any]

FEWEST_ROWS = 10
FEWEST_IN_A_TABLE, ROWS_OF_ALL_TABLES = 3, 500


@dataclass(frozen=True, eq=False)
class View(Bounds):
    """One target at one level: what a reader looks at."""

    judgement: Judgement
    target: int
    level: int

    @property
    def when(self) -> dict[str, int]:
        return {"target": self.target, "level": self.level}

    @property
    def ranked(self) -> Ranked:
        """The parts of the rows, the worst first."""
        return self.judgement.slices.ranked


@dataclass(frozen=True, eq=False)
class Judged:
    """A model, rows that it has not seen, and what it says about them."""

    model: IntervalRegressor
    X: Any
    rows: JudgedRows
    row_numbers: NDArray[np.int64]
    first_number: int  # whether rows are counted from 0 or from 1
    views: list[View]
    warnings: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        return len(self.rows.y)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.model.target_names_

    @property
    def levels(self) -> tuple[float, ...]:
        return self.model._fitted_levels

    @property
    def is_seen(self) -> bool:
        """Whether the rows are pictures."""
        return isinstance(self.model.source_, ImageSource)

    def room_for(self, most: int) -> int:
        """How many rows a table of each view may have, `most` at best: a page holds those of all views."""
        return max(FEWEST_IN_A_TABLE, min(most, ROWS_OF_ALL_TABLES // len(self.views)))

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
    n_skipped: int = 0,
) -> Judged:
    """What the model says about these rows, checked and judged; what it warns of is kept, and warned of again."""
    if isinstance(X, TableFiles):
        raise TypeError("a report takes rows that are in memory, got TableFiles; read the rows to judge by first")
    targets = _targets(_by_name(y, model.target_names_), len(model.target_names_))
    with heard_warnings() as warned:
        said = say(model, X)
    if len(said.prediction) != len(targets):
        raise ValueError(f"X and y must have the same rows, got {len(said.prediction)} and {len(targets)}")
    grouped = {str(name): _group(str(name), values, len(targets)) for name, values in (groups or {}).items()}
    columns = {} if isinstance(model.source_, ImageSource) else feature_columns(model, X)
    features = {name: column for name, column in columns.items() if name not in grouped}
    rows = JudgedRows(targets, said, features, grouped, n_skipped)
    numbers = np.arange(len(targets)) if row_numbers is None else np.asarray(row_numbers)
    if numbers.shape != (len(targets),) or numbers.dtype.kind not in "iu":
        raise ValueError(f"row_numbers must be a whole number for each of {len(targets)} rows, got {row_numbers!r:.80}")
    return Judged(
        model,
        X,
        rows,
        numbers,
        0 if row_numbers is None else 1,
        _views(model, rows, quantiles),
        tuple(warned),
    )


def feature_columns(model: IntervalRegressor, X: Any) -> dict[str, Column]:
    """Every feature as numbers, times or texts, NaN, NaT or None where it is missing."""
    if is_frame(X):
        given = columns_of(X)
        used = given if model.source_.columns is None else model.source_.columns.kinds
        return {name: column_of(given[name]) for name in used}
    names = getattr(model, "feature_names_in_", [f"column {place}" for place in range(model.n_features_in_)])
    return {str(name): column for name, column in zip(names, np.asarray(X, dtype=np.float64).T, strict=True)}


def _by_name(y: Any, names: tuple[str, ...]) -> Any:
    """The columns of a data frame in the order of the training; what has no names, or is a single target, as it is."""
    given = {str(name): name for name in getattr(y, "columns", ())}
    if len(given) < 2 or tuple(given) == names:
        return y
    if set(given) == set(names):
        return np.column_stack([np.asarray(y[given[name]]) for name in names])
    if names == tuple(f"y{place}" for place in range(len(names))):  # an array was fitted: its targets have no names
        return y
    raise ValueError(f"y must have the targets {', '.join(names)}, as in training, got {', '.join(given)}")


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
    given = np.asarray(values, dtype=object)
    if given.shape != (n_rows,):
        raise ValueError(f"group {name!r} must have one value for each of {n_rows} rows, got the shape {given.shape}")
    return np.array([None if value is None or value != value else str(value) for value in given], dtype=object)


def _views(model: IntervalRegressor, rows: JudgedRows, quantiles: int) -> list[View]:
    n_levels = len(model._fitted_levels)
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
        for place, judgement in enumerate(judgements(model, rows, quantiles=quantiles))
        for target, level in [divmod(place, n_levels)]
    ]
