"""A series in a file: what came after all that a forecaster has seen, joined to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.commands.messages import BadInput
from coverwell.forecasting.clocks import CountClock
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.table_files import TableFile, needed_polars
from coverwell.text_kinds import Kind, check_finite, typed

if TYPE_CHECKING:
    import polars as pl

__all__ = ["later_values"]

Array = NDArray[np.float64]


def later_values(model: SeriesForecaster, table: TableFile) -> dict[str, Any]:
    """Series and covariates for a backtest: all that was seen, and after it the rows of a file.

    The file has the values that came, in order, in a column with the name of the series, and the covariates of the fit
    by their names. Rows that the forecaster has seen already are left out where the file has a column of times;
    without one, its first row is the step after the last that was seen.
    """
    seen = model.history_
    names = [seen.name, *seen.past_names, *seen.ahead_names]
    table.check_has([seen.name], "column with the values of the series:")
    table.check_has([*seen.past_names, *seen.ahead_names], "covariate that the forecaster was fitted on:")
    rows = table.read()
    numbers = typed(rows.select(names), dict.fromkeys(names, Kind.NUMBER), path=table.path, decimal=table.decimal)
    check_finite(numbers, path=table.path, rows=range(len(numbers)))
    later = _later(model, rows, names, table)
    values = {name: numbers[name].to_numpy().astype(np.float64)[later] for name in names}
    return {
        "series": np.concatenate([seen.values, values[seen.name]]),
        "start": len(seen),
        "covariates": _joined(seen.ahead[: len(seen)], values, seen.ahead_names),
        "past_covariates": _joined(seen.past, values, seen.past_names),
    }


def _joined(seen: Array, values: dict[str, Array], names: tuple[str, ...]) -> Array | None:
    return np.concatenate([seen, np.column_stack([values[name] for name in names])]) if names else None
