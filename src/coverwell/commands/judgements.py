"""A model judged by rows of a file whose targets are known: error, coverage, width, and coverage in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.commands.models import Said, TableModel
from coverwell.commands.targets import check_targets, groups_of, targets_of
from coverwell.frames import as_times, read
from coverwell.slices import Slices, slices_of
from coverwell.table_files import TableFile

if TYPE_CHECKING:
    import polars as pl

__all__ = ["JudgedRows", "Judgement", "RowsToJudge", "column_of", "judgements", "read_rows", "rows_to_judge"]

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


@dataclass(frozen=True)
class JudgedRows:
    """Rows with known targets, and what a model says about them."""

    y: Array  # (row, target)
    said: Said
    features: dict[str, Column]  # that are not groups
    groups: dict[str, Column]
    n_skipped: int = 0


@dataclass(frozen=True)
class Judgement:
    """One target at one level."""

    target: str
    asked: float
    rmse: float
    coverage: float
    band: tuple[float, float]  # in which coverage is expected
    calibration_error: float
    expected_calibration_error: float
    width: float
    interval_score: float
    slices: Slices


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


def judgements(fitted: TableModel, rows: JudgedRows, *, quantiles: int = 4) -> list[Judgement]:
    """Every target at every level."""
    return [
        _judgement(fitted, rows, target, level, quantiles)
        for target in range(len(fitted.targets))
        for level in range(len(fitted.levels))
    ]


def _judgement(fitted: TableModel, rows: JudgedRows, target: int, level: int, quantiles: int) -> Judgement:
    y, asked = rows.y[:, target], fitted.levels[level]
    lower, upper = rows.said.lower[:, target, level], rows.said.upper[:, target, level]
    return Judgement(
        target=fitted.targets[target],
        asked=asked,
        rmse=float(metrics.rmse(y, rows.said.prediction[:, target])),
        coverage=float(metrics.coverage(y, lower, upper)),
        band=metrics.coverage_band(asked, len(y), fitted.n_ranked),
        calibration_error=float(metrics.calibration_error(y, lower, upper, asked)),
        expected_calibration_error=metrics.expected_calibration_error(asked, len(y), fitted.n_ranked),
        width=float(metrics.average_width(lower, upper)),
        interval_score=float(metrics.interval_score(y, lower, upper, asked)),
        slices=slices_of(
            (lower <= y) & (y <= upper), rows.features, asked=asked, groups=rows.groups, quantiles=quantiles
        ),
    )


def _column(features: Any, name: str, place: int) -> Column:
    if isinstance(features, np.ndarray):
        return features[:, place]
    return column_of(nw.from_native(features[name], series_only=True))


def column_of(series: nw.Series[Any]) -> Column:
    """A feature as numbers, times or texts, NaN, NaT or None where it is missing."""
    values = read(series)
    values = as_times(values) or values
    if values.kind == "booleans":
        column: Column = np.where(values.array > 0, "true", "false").astype(object)
    else:
        column = values.array.astype(object) if values.kind == "text" else values.array.copy()
    nothing: dict[str | None, Any] = {"times": np.datetime64("NaT"), "booleans": None, "text": None}
    column[values.missing] = nothing.get(values.kind, np.nan)
    return column


def _texts(column: pl.Series) -> Column:
    return np.array([None if value is None else str(value) for value in column.to_list()], dtype=object)
