"""The values of a period, and its covariates, beside those that a forecaster has seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.history import History
from coverwell.report.page import Block, Section, Table, Text
from coverwell.report.wording import counted, number

__all__ = ["series_data_section"]

Array = NDArray[np.float64]
HEADS = ("column", "period", "steps", "missing", "lowest", "median", "highest", "mean", "standard deviation")


def series_data_section(seen: History, given: History, first: int) -> Section:
    """The steps of `given` from `first` on, beside all that was seen: the series, and each covariate."""
    before, now = _columns(seen, slice(0, len(seen))), _columns(given, slice(first, len(given)))
    rows = [
        (name, period, f"{len(values):,}", f"{int(np.isnan(values).sum()):,}", *map(number, _summary(values)))
        for name in before
        for period, values in (("seen by the forecaster", before[name]), ("this report", now[name]))
    ]
    outside = {name: _n_outside(before[name], now[name]) for name in before}
    told = [
        f"{counted(n, 'value')} of {name} ({number(100 * n / len(now[name]))} %)" for name, n in outside.items() if n
    ]
    text = (
        f"Outside the range of all that the forecaster had seen: {'; '.join(told)}."
        if told
        else "All values of this period lie in the range of those that the forecaster had seen."
    )
    lead = f"The series has steps of {seen.clock.step_in_words()}; what came is compared with what was seen before."
    blocks: list[Block] = [
        Table("Series and covariates in both periods", HEADS, rows, texts=("column", "period")),
        Text(text, "note"),
    ]
    return Section("data", "The data, and drift", lead, blocks)


def _columns(history: History, steps: slice) -> dict[str, Array]:
    """The series and its covariates by name; two of one name are told apart."""
    columns = {history.name: history.values[steps]}
    for names, table in ((history.past_names, history.past), (history.ahead_names, history.ahead)):
        for place, name in enumerate(names):
            columns[name if name not in columns else f"{name} (covariate)"] = table[steps, place]
    return columns


def _n_outside(before: Array, now: Array) -> int:
    return int(((now < np.nanmin(before)) | (now > np.nanmax(before))).sum())


def _summary(values: Array) -> tuple[float, ...]:
    there = values[~np.isnan(values)]
    if not len(there):
        return (float("nan"),) * 5
    return tuple(float(value) for value in (there.min(), np.median(there), there.max(), there.mean(), there.std()))
