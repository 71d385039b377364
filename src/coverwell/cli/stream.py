"""Rows that come in over time, in one file after the other: which of them are new."""

from __future__ import annotations

import hashlib
import math
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from coverwell.cli.messages import BadInput
from coverwell.tables import TableFile, needed_polars

if TYPE_CHECKING:
    import polars as pl

    from coverwell.forecasting.forecaster import SeriesForecaster
    from coverwell.forecasting.history import History, Steps

Array = NDArray[np.float64]
Digests = NDArray[np.uint64]

RUN = 10  # so many rows one after the other that were all watched before are no chance
REGULAR = 0.9  # the share of equal steps from which longer ones are gaps

# Tables.


def row_digests(rows: NDArray[Any], y: Array) -> Digests:
    lines = np.concatenate([rows.reshape(len(rows), -1), y], axis=1)
    found = b"".join(hashlib.blake2b(line.tobytes(), digest_size=8).digest() for line in lines)
    return np.frombuffer(found, dtype=np.uint64)


def n_watched(seen: Digests, now: Digests, path: Path, numbers: list[int]) -> int:
    """How many rows, which a file begins with, were watched before; an error if others come again.

    They end with the last rows that were watched. A row may well be equal to another one; a run of rows is no chance.
    """
    n, first = min(RUN, len(seen), len(now)), 0
    if n:
        ends = n + np.flatnonzero((sliding_window_view(now, n) == seen[-n:]).all(axis=1))
        first = int(max(ends[(n == RUN) | (ends == n)], default=0))
    if len(now) >= RUN and np.isin(_runs(now), _runs(seen)).all():
        return len(now)
    runs = _runs(np.append(seen, now[first:]))
    again = np.setdiff1d(np.arange(len(seen), len(runs)), np.unique(runs, return_index=True)[1])
    if len(again):
        row = first + int(again[0]) - len(seen)
        what = f"rows {numbers[row]} to {numbers[row + RUN - 1]} of {path} repeat earlier rows of the stream"
        raise BadInput(f"{what}; leave them out, or name a column that tells rows apart with --time")
    return first


def _runs(digests: Digests) -> Digests:
    """A digest of every run of rows."""
    if len(digests) < RUN:
        return digests[:0]
    odd = 2 * np.random.default_rng(0).integers(2**62, size=RUN, dtype=np.uint64) + np.uint64(1)
    runs: Digests = (sliding_window_view(digests, RUN) * odd).sum(axis=1, dtype=np.uint64)  # modulo 2^64
    return runs


def row_times(values: list[Any], last: float | None, what: str, numbers: list[int]) -> list[float]:
    """Times or numbers of rows as numbers, which must not fall; warns where a regular step is left out."""
    if None in values:
        raise BadInput(f"{what} must have a value in every row, but row {numbers[values.index(None)]} has none")
    found = [_time(str(value), what) for value in values]
    if falls := [place for place, (one, other) in enumerate(pairwise(found), start=1) if other < one]:
        raise BadInput(f"{what} must not fall from row to row, but does in row {numbers[falls[0]]}; sort the rows")
    new = [time for time in found if last is None or time > last]
    steps = [other - one for one, other in pairwise(new if last is None else [last, *new])]
    usual = median(steps) if steps else 0
    if steps and steps.count(usual) >= REGULAR * len(steps) and (longest := max(steps)) > usual > 0:
        place = len(found) - len(steps) + steps.index(longest)
        where = f"{what} jumps before row {numbers[place]}, {values[place]}"
        n_missing = round(sum(steps) / usual) - len(steps)
        warnings.warn(f"{where}: {n_missing:,} rows seem to be missing, and were not watched", stacklevel=2)
    return found


def _time(text: str, what: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{what} must hold numbers or times such as 2026-11-15 10:30, got {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# Series.


def later_rows(seen: History, table: TableFile, time: str | None, n_again: int = 0) -> Array:
    """What a file has about the steps after those that were seen: values, then covariates (step, column).

    A step without a row is NaN. For a series without time stamps the file begins with the last `n_again` steps that
    were seen, and must have their values.
    """
    names = [seen.name, *seen.past_names, *seen.ahead_names]
    table.check_has([seen.name], "column with the values of the series:")
    table.check_has(names[1:], "covariate that the forecaster was fitted on:")
    stamped = seen.clock.kind != "numbers"
    if time and not stamped:
        raise ValueError("--time is for series with time stamps, and this forecaster counts steps; leave it out")
    if stamped and not time and seen.clock.name not in table.columns:
        raise ValueError(f"{table.path} must have the time of every row; name that column with --time")
    time = (time or seen.clock.name) if stamped else None
    table.check_has([time] if time else [], "column for --time:")
    rows = table.read([*names, *([time] if time else [])])
    numbers = table.typed(rows.select(names), dict.fromkeys(names, "numbers"))
    given = numbers.cast(needed_polars().Float64).to_numpy()
    if time:
        steps = _steps(seen, rows[time], table)
    else:
        steps = len(seen) - n_again + np.arange(len(rows))
        again = seen.values[len(seen) - n_again :][: len(rows)]
        differs = (now := given[: len(again), 0]) != again
        if (differs := differs & ~(np.isnan(now) & np.isnan(again))).any():
            must = f"{table.path} must begin with the {n_again:,} values of the last call"
            raise ValueError(f"{must}, but row {differs.argmax() + 1} differs; add new values below the old ones")
    later = steps >= len(seen)
    values = np.full((int(steps[-1]) + 1 - len(seen) if later.any() else 0, len(names)), np.nan)
    values[steps[later] - len(seen)] = given[later]
    return values


def _steps(seen: History, times: pl.Series, table: TableFile) -> Steps:
    """The step of each row; they rise, and leave no gap longer than all that was seen."""
    if n_missing := times.null_count():
        raise ValueError(f"column {times.name} of {table.path} must have a time in every row, {n_missing} have none")
    steps = np.array([seen.clock.position(time) for time in times.to_list()], dtype=np.int64)
    if (falls := np.diff(steps) <= 0).any():
        row = falls.argmax() + 2
        raise ValueError(f"the times of {table.path} must rise from row to row, but row {row} does not; sort them")
    if (jumps := np.diff(steps, prepend=len(seen) - 1) > len(seen)).any():
        row = jumps.argmax() + 1
        what = f"must not leave a gap longer than the {len(seen):,} steps that were seen, but row {row} does"
        raise ValueError(f"the times of {table.path} {what}; look at its time, or fit again")
    return steps


def walk(forecaster: SeriesForecaster, rows: Array, level: float, path: Path) -> Array:
    """Move a forecaster on as in live use.

    Rows (step, column) are values, past covariates and those known ahead. Returns each value, and the ends of the
    interval of its step as it was issued and as it was learned, (step, 5).
    """
    history, n_past = forecaster.history_, len(forecaster.history_.past_names)
    n = 1 + int(max(np.flatnonzero(~np.isnan(rows[:, 0])), default=-1))  # later values have not come yet
    if history.ahead_names:  # what the last forecasts need to know about steps ahead may not have come either
        n_known = max(len(history.ahead) - len(history), len(rows))
        n = max(0, min(n, n_known - forecaster.windows_.horizon + 1))
    gaps = np.isnan(rows)
    gaps[n:, : 1 + n_past] = False
    if forecaster.missing == "error" and gaps.any():
        first = history.clock.label(len(history) + int(gaps.any(axis=1).argmax()))
        must = f"{path} must have all values at every step (every {history.clock.step_in_words()})"
        found = f"some are missing at {gaps.any(axis=1).sum():,} of {len(rows):,} steps, the first {first}"
        raise BadInput(f"{must}, but {found}; fill them in, or fit with missing='fill'")
    walked: list[tuple[float, ...]] = []
    for k in range(n):
        given = {"covariates": rows[:, 1 + n_past :]} if history.ahead_names and not walked else {}
        issued, learned = (forecaster.predict_interval(level, static=static, **given) for static in (False, True))
        ends = [float(end[0]) for end in (issued.lower, issued.upper, learned.lower, learned.upper)]
        walked.append((rows[k, 0], *ends))
        forecaster.update(rows[k, 0], past_covariates=rows[k : k + 1, 1 : 1 + n_past] if n_past else None)
    return np.array(walked).reshape(-1, 5)
