"""A model judged by rows whose targets are known: error, coverage, width, and coverage in slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.estimator import IntervalRegressor
from coverwell.fitted_models import Said, n_ranked_rows
from coverwell.inputs.frames import as_times, read
from coverwell.slices import Slices, slices_of

__all__ = ["JudgedRows", "Judgement", "column_of", "judgements"]

Array = NDArray[np.float64]
Column = NDArray[Any]


@dataclass(frozen=True)
class JudgedRows:
    """Rows with known targets, and what a model says about them."""

    y: Array  # (row, target)
    said: Said
    features: dict[str, Column]  # that are not groups
    groups: dict[str, Column]
    n_skipped: int = 0  # rows that were left out, since a target is missing


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


def judgements(model: IntervalRegressor, rows: JudgedRows, *, quantiles: int = 4) -> list[Judgement]:
    """Every target at every level, numbers cut into so many slices."""
    return [
        _judgement(model, rows, target, level, quantiles)
        for target in range(len(model.target_names_))
        for level in range(len(model._fitted_levels))
    ]


def _judgement(model: IntervalRegressor, rows: JudgedRows, target: int, level: int, quantiles: int) -> Judgement:
    y, asked, n_ranked = rows.y[:, target], model._fitted_levels[level], n_ranked_rows(model)
    lower, upper = rows.said.lower[:, target, level], rows.said.upper[:, target, level]
    return Judgement(
        target=model.target_names_[target],
        asked=asked,
        rmse=float(metrics.rmse(y, rows.said.prediction[:, target])),
        coverage=float(metrics.coverage(y, lower, upper)),
        band=metrics.coverage_band(asked, len(y), n_ranked),
        calibration_error=float(metrics.calibration_error(y, lower, upper, asked)),
        expected_calibration_error=metrics.expected_calibration_error(asked, len(y), n_ranked),
        width=float(metrics.average_width(lower, upper)),
        interval_score=float(metrics.interval_score(y, lower, upper, asked)),
        slices=slices_of(
            (lower <= y) & (y <= upper), rows.features, asked=asked, groups=rows.groups, quantiles=quantiles
        ),
    )


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
