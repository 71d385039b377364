"""Rows of a file whose targets are known, and what a model says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.commands.models import TableModel
from coverwell.commands.targets import check_targets, groups_of, targets_of
from coverwell.evaluation import Outcome, outcome_of
from coverwell.table_files import TableFile

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RowsToJudge", "read_outcome", "rows_to_judge"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowsToJudge:
    """The rows of a file that have all targets."""

    names: list[str]  # of the features
    features: Any
    y: Array  # (row, target)
    groups: dict[str, pl.Series]
    there: NDArray[np.bool_]  # which rows of the file they are


def rows_to_judge(
    fitted: TableModel, table: TableFile, *, groups: Sequence[str] = (), skip_missing: bool = False
) -> RowsToJudge:
    """The rows of a file with all targets."""
    reader = fitted.reader(table)
    check_targets(table, fitted.targets)
    table.check_has(groups, "column for --group:")
    rows = table.read(list(dict.fromkeys([*reader.names, *fitted.targets, *groups])))
    y, there = targets_of(rows, fitted.targets, table=table, skip=skip_missing)
    features = reader.features(rows, 0)
    features = features[there] if isinstance(features, np.ndarray) else features.filter(there)
    of_groups = {name: groups_of(rows, name, path=table.path).filter(there) for name in groups}
    return RowsToJudge(reader.names, features, y.to_numpy(), of_groups, there)


def read_outcome(
    fitted: TableModel, table: TableFile, *, groups: Sequence[str] = (), skip_missing: bool = False, quantiles: int = 4
) -> Outcome:
    """The rows of a file with all targets, beside the model's predictions and intervals."""
    rows = rows_to_judge(fitted, table, groups=groups, skip_missing=skip_missing)
    return outcome_of(
        fitted.model,
        rows.features,
        rows.y,
        groups={name: values.to_list() for name, values in rows.groups.items()},
        quantiles=quantiles,
        n_skipped=int((~rows.there).sum()),
        feature_names=rows.names,
    )
