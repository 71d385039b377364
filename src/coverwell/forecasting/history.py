"""What a forecaster has seen so far: a series and its companions, which grow with every update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.forecasting.calendar_features import calendar_features
from coverwell.forecasting.clocks import Clock, CountClock, Steps
from coverwell.forecasting.timeline import Timeline, causal_fill, read_covariates, read_series
from coverwell.forecasting.user_tables import rows_of
from coverwell.forecasting.windows import Panel

__all__ = ["History", "labelled", "read_history", "read_rows"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """A series on its clock, with what is known beside it; gaps are filled causally in `filled` alone.

    Attributes
    ----------
    values, filled : arrays (step,)
        The series, NaN where it was not observed, and with its gaps filled.
    past : array (step, covariate)
        Companions that are known up to the present.
    ahead : array (step or more, covariate)
        Companions that the user knows ahead, as far as they were given.
    """

    clock: Clock
    name: str
    values: Array
    filled: Array
    past: Array
    ahead: Array
    past_names: tuple[str, ...]
    ahead_names: tuple[str, ...]
    calendar: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_known(self) -> int | None:
        """For how many steps everything known ahead has been given; None if the calendar is all there is."""
        return len(self.ahead) if self.ahead_names else None

    def panel(self, first: int, horizon: int) -> Panel:
        """The steps from `first` on, with what is known ahead up to the horizon after the last step, or as given."""
        end = len(self) + horizon if self.n_known is None else min(len(self) + horizon, self.n_known)
        known = [calendar_features(self.clock.times(first, end - first), self.calendar)[0]] if self.calendar else []
        known += [self.ahead[first:end]] if self.ahead_names else []
        return Panel(
            values=self.filled[first:],
            observed=~np.isnan(self.values[first:]),
            past=self.past[first:],
            known=np.concatenate(known, axis=1) if known else np.zeros((end - first, 0)),
        )

    def grown(self, y: float, past: Array) -> History:
        """With one more step and the row of its past companions; NaN is a gap."""
        return replace(
            self,
            values=np.append(self.values, y),
            filled=np.append(self.filled, self.filled[-1] if np.isnan(y) else y),
            past=np.concatenate([self.past, past]),
        )

    def past_row(self, rows: Any, step: int, *, missing: str) -> Array:
        """The past companions that came with a step, (1, covariate); gaps hold the values before, if they may."""
        if rows is None and not self.past_names:
            return np.zeros((1, 0))
        if rows is None:
            raise ValueError(f"past_covariates must have a row for this step ({', '.join(self.past_names)}), got none")
        table, steps = read_rows(rows, self.past_names, "past_covariates", self.clock)
        if len(table) != 1 or (steps is not None and steps[0] != step):
            when = "" if steps is None else f" from {self.clock.label(int(steps[0]))} on"
            raise ValueError(
                f"past_covariates must be one row, of the step {self.clock.label(step)}, got {len(table)} rows{when}"
            )
        return _filled(table, self.past[-1:], "past_covariates", missing)

    def with_ahead(self, rows: Any, first: int, *, missing: str) -> History:
        """With rows known ahead, in place of what was known about their steps.

        The first is about step `first`, unless they have time stamps of their own. What is known about steps that have
        been seen stays.
        """
        if rows is None:
            return self
        table, steps = read_rows(rows, self.ahead_names, "covariates", self.clock)
        first = first if steps is None else int(steps[0])
        if first + len(table) <= len(self):
            raise ValueError(
                f"covariates must be about steps from {self.clock.label(len(self))} on, got {len(table)} rows before it"
            )
        table, first = table[max(0, len(self) - first) :], max(first, len(self))
        begin = min(first, len(self.ahead))
        if begin < first and missing == "error":
            raise ValueError(
                f"covariates must come without a gap: {first - begin} rows are missing before "
                f"{self.clock.label(first)}, from {self.clock.label(begin)} on"
            )
        between = np.full((first - begin, len(self.ahead_names)), np.nan)
        table = _filled(np.concatenate([between, table]), self.ahead[begin - 1 : begin], "covariates", missing)
        return replace(self, ahead=np.concatenate([self.ahead[:begin], table, self.ahead[begin + len(table) :]]))

    def same_ahead(self, other: History, horizon: int) -> bool:
        """Whether the same is known ahead about the next steps."""
        ahead = slice(len(self), len(self) + horizon)
        return np.array_equal(self.ahead[ahead], other.ahead[ahead])

    def check_known(self, horizon: int) -> None:
        """Raise unless everything is known about the next steps."""
        known, needed = self.n_known, len(self) + horizon
        if known is not None and known < needed:
            raise ValueError(
                f"covariates must be known for the next {horizon} steps, {needed - known} rows are missing from "
                f"{self.clock.label(known)} on; give them with covariates=..."
            )


def read_history(
    series: Any, covariates: Any, past_covariates: Any, *, calendar: Sequence[str], missing: str
) -> History:
    """A user's series and covariates, checked and on one clock."""
    timeline = read_series(series, missing=missing)
    ahead, ahead_names = _covariates(covariates, timeline, "covariates", missing=missing)
    past, past_names = _covariates(past_covariates, timeline, "past_covariates", missing=missing)
    return History(
        clock=timeline.clock,
        name=timeline.name,
        values=timeline.values,
        filled=causal_fill(timeline.values)[0],
        past=past,
        ahead=ahead,
        past_names=past_names,
        ahead_names=ahead_names,
        calendar=tuple(calendar),
    )


def _covariates(table: Any, timeline: Timeline, what: str, *, missing: str) -> tuple[Array, tuple[str, ...]]:
    if table is None:
        return np.zeros((len(timeline.values), 0)), ()
    return read_covariates(table, timeline, what=what, missing=missing, may_go_beyond=what == "covariates")


def read_rows(rows: Any, names: tuple[str, ...], what: str, clock: Clock) -> tuple[Array, Steps | None]:
    """Rows of covariates that come one by one, (row, column), and which steps they are about, if they have stamps."""
    if not names:
        raise ValueError(f"{what} came, but the forecaster was fitted without; leave them out")
    given = rows_of(_as_table(rows, names), what)
    named = tuple(name for name in given.names if name is not None)
    if len(given.names) != len(names) or named not in ((), names):
        came = ", ".join(named) if named else len(given.names)
        raise ValueError(f"{what} must have the {len(names)} columns {', '.join(names)}, got {came}")
    if not len(given.values) or np.isinf(given.values).any():
        raise ValueError(f"{what} must be rows of {len(names)} finite numbers, got {rows!r}")
    if given.index is None or (given.clock is CountClock and list(given.index) == list(range(len(given.values)))):
        return given.values, None  # numbers that only count the rows say nothing about time
    refusal = clock.refusal(given.clock, given.index)
    if refusal is not None:
        raise ValueError(f"{what} must have the kind of time stamps that the series has: {refusal}")
    steps = clock.positions(given.clock.stamps_of(given.index), given.index)
    if (np.diff(steps) != 1).any():
        raise ValueError(f"{what} must have a row for every step, every {clock.step_in_words()}, got {rows!r}")
    return given.values, steps


def _as_table(rows: Any, names: tuple[str, ...]) -> Any:
    """One row alone, a number or a line of them, as a table of one row; anything else as it is."""
    if hasattr(rows, "iloc"):
        is_row = rows.ndim == 1 and tuple(str(name) for name in rows.index) == names
    else:
        is_row = not hasattr(rows, "columns") and np.ndim(rows) == min(1, len(names) - 1)
    return np.asarray(rows).reshape(1, -1) if is_row else rows


def _filled(rows: Array, before: Array, what: str, missing: str) -> Array:
    """Rows whose gaps hold the values of the row before them, if they may."""
    if not np.isnan(rows).any():
        return rows
    if missing == "error":
        raise ValueError(f"{what} must be finite, got {rows.tolist()}; missing='fill' repeats the last values")
    columns = np.concatenate([before, rows]).T
    return np.column_stack([causal_fill(column)[0] for column in columns])[len(before) :]


def labelled(values: Array, index: Any, name: str) -> Any:
    """Values with their time stamps: a pandas series, a polars frame, or for plain counts the values alone."""
    library = type(index).__module__.partition(".")[0]
    if library == "pandas":
        import pandas as pd

        return pd.Series(values, index=index, name=name)
    if library == "polars":
        import polars as pl

        return pl.DataFrame([index, pl.Series(name, values)])
    return values
