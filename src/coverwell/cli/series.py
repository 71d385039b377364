"""A series in a file: the values that came after all that a forecaster has seen, joined to what it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.clock import Clock
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import History
from coverwell.tables import TableFile, needed_polars

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]


def later_values(model: SeriesForecaster, table: TableFile, *, time: str | None = None) -> dict[str, Any]:
    """What `backtest` needs: all that was seen, and after it the rows of a file.

    The file has the values in a column with the name of the series, and the covariates of the fit by their names. For
    a series with time stamps it also has a column of times; steps that were seen already are left out, and steps that
    it does not have are gaps. Without time stamps its first row is the step after the last that was seen.
    """
    seen = model.history_
    names = [seen.name, *seen.past_names, *seen.ahead_names]
    table.check_has([seen.name], "column with the values of the series:")
    table.check_has(names[1:], "covariate that the forecaster was fitted on:")
    time = _time_column(seen, table, time)
    rows = table.read([*names, *([time] if time else [])])
    numbers = table.typed(rows.select(names), dict.fromkeys(names, "numbers"))
    steps = np.arange(len(seen), len(seen) + len(rows)) if time is None else _steps(seen, rows[time], table)
    later = steps >= len(seen)
    if not later.any():
        raise ValueError(
            f"{table.path} has no values after {seen.clock.label(len(seen) - 1)}, the last that the forecaster has "
            "seen; give a file of what came later"
        )
    values = {name: np.full(int(steps[-1]) + 1 - len(seen), np.nan) for name in names}  # steps without a row are gaps
    for name in names:
        values[name][steps[later] - len(seen)] = numbers[name].cast(needed_polars().Float64).to_numpy()[later]
    series = np.concatenate([seen.values, values[seen.name]])
    return {
        "series": seen.clock.labelled(series, 0, seen.name),
        "start": seen.clock.index(len(seen), 1)[0],
        "covariates": _joined(seen.clock, seen.ahead[: len(seen)], values, seen.ahead_names),
        "past_covariates": _joined(seen.clock, seen.past, values, seen.past_names),
    }


def _time_column(seen: History, table: TableFile, asked: str | None) -> str | None:
    """The column of times: the one that was asked for, or the one that has the name of the times in the fit."""
    if seen.clock.kind == "numbers":
        if asked is not None:
            raise ValueError("--time is for series with time stamps, and this forecaster counts steps; leave it out")
        return None
    name = asked or seen.clock.name
    if name is None or (asked is None and name not in table.columns):
        raise ValueError(f"{table.path} must have the time of every row; name that column with --time")
    table.check_has([name], "column for --time:")
    return str(name)


def _steps(seen: History, times: pl.Series, table: TableFile) -> NDArray[np.int64]:
    """The step that each row is."""
    if n_missing := times.null_count():
        raise ValueError(f"column {times.name} of {table.path} must have a time in every row, {n_missing} have none")
    steps = np.array([seen.clock.position(time) for time in times.to_list()], dtype=np.int64)
    if (falls := np.diff(steps) <= 0).any():
        raise ValueError(
            f"the times of {table.path} must rise from row to row, but row {falls.argmax() + 2} does not; sort them"
        )
    return steps


def _joined(clock: Clock, seen: Array, values: dict[str, Array], names: tuple[str, ...]) -> Any:
    """Covariates of all steps, by name, with the stamps of the series."""
    if not names:
        return None
    table = np.concatenate([seen, np.column_stack([values[name] for name in names])])
    index = clock.index(0, len(table))
    if clock.kind in ("pandas", "periods"):
        import pandas as pd

        return pd.DataFrame(table, index=index, columns=list(names))
    frame = needed_polars().DataFrame(table, schema=list(names))
    return frame if clock.kind == "numbers" else frame.insert_column(0, index)
