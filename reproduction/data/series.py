"""The six public time series of the paper's second experiment, on complete grids of time with their gaps left open."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.data.store import CATALOGUE, known_name, read

Values = NDArray[np.float64]
Stamps = NDArray[Any]  # datetime64[s]; NDArray[np.datetime64] would be stamps without a unit

SERIES = tuple(CATALOGUE["series"])


@dataclass(frozen=True, eq=False)
class Series:
    """A series to forecast, and what was measured at the same time as its target, so not known when it is forecast.

    Time stamps are regular and without a hole, in the clock of the source. Whatever was not measured is NaN.
    """

    name: str
    time: Stamps = field(repr=False)
    y: Values = field(repr=False)
    past_covariates: Values = field(repr=False)  # (step, covariate)
    past_covariate_names: tuple[str, ...] = field(repr=False)
    target_name: str
    unit: str
    source: str
    notes: str

    def interpolated(self) -> Series:
        """The series with straight lines over the gaps of its target, for comparison with the paper.

        A value inside a gap is made from the value after it: it reads the future, and is an easy target. Steps before
        the first and after the last measured target are dropped. Gaps in the covariates stay.
        """
        measured = np.flatnonzero(~np.isnan(self.y))
        if measured.size == 0:
            raise ValueError(f"y must hold a measured value to interpolate from, but all {self.y.size} are missing")
        kept = slice(measured[0], measured[-1] + 1)
        lines = np.interp(np.arange(self.y.size), measured, self.y[measured])
        return replace(
            self,
            time=self.time[kept].copy(),
            y=np.where(np.isnan(self.y), lines, self.y)[kept],
            past_covariates=self.past_covariates[kept].copy(),
            notes=f"{self.notes} Here, straight lines fill the gaps of the target.",
        )


def load_series(name: str) -> Series:
    """The series of that name; case does not matter, and underscores or hyphens may stand for spaces.

    Only Beijing's file can be downloaded as it is; for the others, the error explains how to get the file by hand.
    """
    known = known_name(name, SERIES)
    about = CATALOGUE["series"][known]
    frame = _frame(read(about, "forecasting")[0], about)
    names = (about["target"], *about.get("past_covariates", "").split())
    values = pd.concat([_columns(frame[name], about) for name in names], axis=1)
    if "missing_code" in about:
        values = values.where(values != about["missing_code"])
    on_grid = values.reindex(_grid(values.index, about["step_seconds"]))  # a step without a row stays missing
    rows = on_grid.to_numpy()
    return Series(
        name=known,
        time=on_grid.index.to_numpy().astype("datetime64[s]"),
        y=rows[:, 0].copy(),
        past_covariates=rows[:, 1:].copy(),
        past_covariate_names=tuple(on_grid.columns[1:]),
        target_name=about["target"],
        unit=about["unit"],
        source=about["source"].strip(),
        notes=about["notes"].strip(),
    )


def _frame(content: bytes, about: Mapping[str, Any]) -> pd.DataFrame:
    """The file's rows by time stamp, without lines that hold separators only."""
    parts = about["time"].split()
    named = {"names": about["columns"].split(), "skiprows": 1} if "columns" in about else {}
    # As text: how pandas reads numbers differs in the last bits from version to version.
    frame = pd.read_csv(io.BytesIO(content), sep=about.get("separator", ","), dtype=str, **named).dropna(how="all")
    text = frame[parts[0]].str.cat([frame[part] for part in parts[1:]], sep=" ")
    return frame.set_index(pd.to_datetime(text, format=about["time_format"]).rename("time"))


def _columns(column: pd.Series, about: Mapping[str, Any]) -> pd.Series | pd.DataFrame:
    """Its numbers, or a column of zeros and ones for each of its categories."""
    if column.name in about.get("categories", ()):
        return pd.get_dummies(column, prefix=column.name, dtype=np.float64)
    return column.str.replace(about.get("decimal", "."), ".", regex=False).astype(np.float64)


def _grid(stamps: pd.DatetimeIndex, step_seconds: int) -> pd.DatetimeIndex:
    """All stamps from the first to the last."""
    grid = pd.date_range(stamps.min(), stamps.max(), freq=pd.Timedelta(step_seconds, "s"))
    if not stamps.is_unique:
        raise ValueError(f"time stamps must differ, but {stamps[stamps.duplicated()][0]} comes more than once")
    if not stamps.isin(grid).all():
        off_grid = stamps[~stamps.isin(grid)][0]
        raise ValueError(f"time stamps must be whole steps of {step_seconds} s after {grid[0]}, got {off_grid}")
    return grid
