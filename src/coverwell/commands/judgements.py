"""Rows of a file whose targets are known, and what a model says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell.commands.models import TableModel
from coverwell.commands.targets import check_targets, groups_of, targets_of
from coverwell.judgements import JudgedRows, column_of
from coverwell.table_files import TableFile

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RowsToJudge", "read_rows", "rows_to_judge"]

Array = NDArray[np.float64]
Column = NDArray[Any]


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


def read_rows(
    fitted: TableModel, table: TableFile, *, groups: Sequence[str] = (), skip_missing: bool = False
) -> JudgedRows:
    """The rows of a file with all targets, and what the model says about them."""
    rows = rows_to_judge(fitted, table, groups=groups, skip_missing=skip_missing)
    return JudgedRows(
        rows.y,
        fitted.say(rows.features),
        {name: _column(rows.features, name, place) for place, name in enumerate(rows.names) if name not in groups},
        {name: _texts(values) for name, values in rows.groups.items()},
        n_skipped=int((~rows.there).sum()),
    )


def _column(features: Any, name: str, place: int) -> Column:
    if isinstance(features, np.ndarray):
        return features[:, place]
    return column_of(nw.from_native(features[name], series_only=True))


def _texts(column: pl.Series) -> Column:
    return np.array([None if value is None else str(value) for value in column.to_list()], dtype=object)
