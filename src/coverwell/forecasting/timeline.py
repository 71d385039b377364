"""From what users hold (arrays, pandas, polars) to numbers at regular steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.clocks import Clock, CountClock, Steps
from coverwell.forecasting.stamps import check_order
from coverwell.forecasting.user_tables import Rows, rows_of

__all__ = ["Timeline", "causal_fill", "read_covariates", "read_series"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Timeline:
    """Values at regular steps. NaN where missing."""

    values: Array  # (step,)
    clock: Clock
    name: str


def read_series(series: Any, *, missing: str) -> Timeline:
    """The values of a series at every step of its clock.

    Steps without a stamp are gaps, as are NaN: an error with `missing="error"`, NaN with `missing="fill"`.

    >>> timeline = read_series([3.0, 1.0, 2.0], missing="error")
    >>> timeline.name, timeline.values, timeline.clock.index(3, 2)
    ('y', array([3., 1., 2.]), array([3, 4]))
    """
    _check_missing(missing)
    rows = rows_of(series, "series")
    if rows.values.shape[1] != 1:
        names = ", ".join(str(name) for name in rows.names)
        raise ValueError(f"series must have one column of numbers, got {len(rows.names)} ({names}); choose one of them")
    if len(rows.values) == 0:
        raise ValueError("series must have at least one value, got none")
    clock = CountClock() if rows.index is None else rows.clock.of(rows.index)
    values = _on_grid(rows, _steps(rows, clock))
    _check_finite(values, clock, ["series"])
    _check_gaps(values, clock, ["series"], missing)
    return Timeline(values[:, 0], clock, rows.names[0] or "y")


def read_covariates(
    table: Any, timeline: Timeline, *, what: str, missing: str, may_go_beyond: bool
) -> tuple[Array, tuple[str, ...]]:
    """The covariates at the steps of a series, `(step, column)`, and their names; later rows follow if they may.

    Arrays are aligned by position, tables by their stamps. Rows from before the series are left out. Gaps are an error
    with `missing="error"`; with `missing="fill"` they hold the last value observed before.
    """
    _check_missing(missing)
    rows, clock, n = rows_of(table, what), timeline.clock, len(timeline.values)
    if len(rows.values) == 0:
        raise ValueError(f"{what} must have a row for each of the {n} steps of the series, got none")
    names = tuple(f"x{i}" if name is None else name for i, name in enumerate(rows.names))
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of {what} must have different names, got {', '.join(names)}")
    if rows.index is not None:
        _check_same_clock(rows, clock, what)
    steps = _steps(rows, clock)
    _check_reach(int(steps[-1]) + 1, timeline, rows, what=what, may_go_beyond=may_go_beyond)
    values = _on_grid(rows, steps)
    columns = [f"column {name} of {what}" for name in names]
    _check_finite(values, clock, columns)
    _check_gaps(values, clock, columns, missing)
    return np.column_stack([causal_fill(column)[0] for column in values.T]), names


def causal_fill(values: Array) -> tuple[Array, Flags]:
    """Values with gaps, NaN, filled by the last value observed before; and which ones were missing.

    >>> causal_fill(np.array([1.0, np.nan, np.nan, 4.0]))
    (array([1., 1., 1., 4.]), array([False,  True,  True, False]))
    """
    gaps = np.isnan(values)
    if gaps.all():
        raise ValueError(f"at least one value must be observed, but all {len(values)} are missing")
    if gaps[0]:
        raise ValueError(
            f"a gap is filled by the value before it, and before the first there is none; begin at step "
            f"{int(gaps.argmin())}, the first that was observed"
        )
    last_observed = np.maximum.accumulate(np.where(gaps, 0, np.arange(len(values))))
    return values[last_observed], gaps


def _steps(rows: Rows, clock: Clock) -> Steps:
    if rows.index is None:
        return np.arange(len(rows.values))
    return clock.positions(rows.clock.stamps_of(rows.index), rows.index)


def _on_grid(rows: Rows, steps: Steps) -> Array:
    """One row for each step from 0 to the last, NaN where there was none."""
    values = np.full((int(steps[-1]) + 1, rows.values.shape[1]), np.nan)
    kept = steps >= 0
    values[steps[kept]] = rows.values[kept]
    return values


def _check_missing(missing: str) -> None:
    if missing not in ("error", "fill"):
        raise ValueError(f'missing must be "error" or "fill", got {missing!r}')


def _check_finite(values: Array, clock: Clock, columns: Sequence[str]) -> None:
    infinite = np.argwhere(np.isinf(values))
    if len(infinite) > 0:
        step, column = infinite[0]
        raise ValueError(
            f"{columns[column]} must be finite, but {len(infinite)} values are not, the first at "
            f"{clock.label(int(step))}; replace them, with nan if they are unknown"
        )


def _check_gaps(values: Array, clock: Clock, columns: Sequence[str], missing: str) -> None:
    """With "error" no gap may be there; with "fill" each column must start with an observed value."""
    for gaps, column in zip(np.isnan(values).T, columns, strict=True):
        if gaps.all():
            raise ValueError(f"{column} must have observed values, but all {len(gaps)} are missing")
        if gaps.any() and missing == "error":
            raise ValueError(
                f"{column} must have a value at each of its {len(gaps)} steps (every {clock.step_in_words()}), but "
                f"{int(gaps.sum())} are missing, the first at {clock.label(int(gaps.argmax()))}; fill them yourself, "
                f'or use missing="fill", which repeats the last observed value'
            )
        if gaps[0]:
            raise ValueError(
                f"{column} must start with an observed value, because gaps are filled by the value before, but the "
                f"first one is at {clock.label(int(gaps.argmin()))}; let the series begin there"
            )


def _check_same_clock(rows: Rows, clock: Clock, what: str) -> None:
    refusal = clock.refusal(rows.clock, rows.index)
    if refusal is not None:
        raise ValueError(
            f"{what} must have the kind of time stamps that the series has: {refusal}, but {what} has "
            f"{type(rows.index).__name__} of {rows.index.dtype}; give both the same, or give {what} as an array, "
            f"row by row beside the series"
        )
    check_order(rows.clock.stamps_of(rows.index), rows.index, what)


def _check_reach(reach: int, timeline: Timeline, rows: Rows, *, what: str, may_go_beyond: bool) -> None:
    """Covariates must reach the end of the series, and go beyond it only where the future may be known."""
    n = len(timeline.values)
    if reach < n:
        end = "" if rows.index is None else f", the last at {rows.index[-1]}, before {timeline.clock.label(n - 1)}"
        raise ValueError(f"{what} must have a row for each of the {n} steps of the series, got {len(rows.values)}{end}")
    if reach > n and not may_go_beyond:
        raise ValueError(
            f"{what} must end where the series ends, after {n} steps at {timeline.clock.label(n - 1)}, but reach "
            f"{reach} steps; cut them there, or give what is known ahead as covariates"
        )
