"""What forecasts see far outside the range that was learned: counted by name, with one warning."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting.history import Array, History
from coverwell.forecasting.windows import Windows
from coverwell.inputs.scaling import Scaling

Counts = NDArray[np.int64]  # (name,)


def names_of(history: History) -> tuple[str, ...]:
    """What may lie outside what was learned: the series and its covariates."""
    return (history.name, *history.past_names, *history.ahead_names)


def no_counts(history: History) -> Counts:
    return np.zeros(len(names_of(history)), dtype=np.int64)


def by_name(history: History, counts: Counts) -> dict[str, int]:
    """The counts with their names; a past covariate and one known ahead may share one, and are added up."""
    found = dict.fromkeys(names_of(history), 0)
    for name, count in zip(names_of(history), counts.tolist(), strict=True):
        found[name] += count
    return found


def count_outside(windows: Windows, history: History, rows: Array, inputs: Scaling) -> Counts:
    """How many of these rows see each of the names outside its range of training, by more than that range."""
    outside = inputs.outside(rows, by=1.0)
    n, n_past, n_ahead = windows.n_past * windows.channels, windows.n_past_covariates, len(history.ahead_names)
    seen = outside[:, :n].reshape(len(rows), windows.n_past, windows.channels).max(axis=1)
    known = outside[:, n:].reshape(len(rows), windows.horizon, windows.n_known).max(axis=1)
    # Between them are changes, gaps and the calendar.
    places = [0, *range(windows.channels - n_past, windows.channels)]
    return np.append(seen.sum(axis=0)[places], known.sum(axis=0)[windows.n_known - n_ahead :])


def added(so_far: Counts, new: Counts, history: History, n: int, *, stacklevel: int = 3) -> Counts:
    """The counts with those of `n` new forecasts; a warning names what lies far outside for the first time."""
    first = np.flatnonzero((so_far == 0) & (new > 0))
    if len(first):
        names = names_of(history)
        which = ", ".join(f"{names[place]!r} ({new[place]} of {n} forecasts)" for place in first)
        text = f"{which} {'lie' if len(first) > 1 else 'lies'} far outside what was learned: the level of a series is "
        text += "moved back into its range, and covariates are held at its border. A refit takes them in. Said once; "
        warnings.warn(f"{text}n_outside_ counts further forecasts", ExtrapolationWarning, stacklevel)
    return so_far + new
