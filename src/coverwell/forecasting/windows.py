"""Windows of a series as rows of a table: what a network sees at each moment, what it is to say, and folds of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Panel", "TimeFolds", "Windows"]

Array = NDArray[np.float64]
Steps = NDArray[np.intp]


@dataclass(frozen=True)
class Panel:
    """A series and its companions on one grid of steps, without gaps.

    Attributes
    ----------
    values : array (step,)
        The series, gaps filled causally.
    observed : bool array (step,)
        Where the series was observed.
    past : array (step, covariate)
        Companions that are known up to the present.
    known : array (step or more, covariate)
        Companions that are known ahead, the calendar among them; may go on beyond the series.
    """

    values: Array
    observed: NDArray[np.bool_]
    past: Array
    known: Array

    def __len__(self) -> int:
        return len(self.values)

    def until(self, end: int) -> Panel:
        """The first steps alone; what is known ahead stays."""
        return Panel(self.values[:end], self.observed[:end], self.past[:end], self.known)


@dataclass(frozen=True)
class Windows:
    """How a moment of a series becomes a row.

    The row of an *origin*, the latest step that has been seen, holds the last `n_past` steps, channel by channel within
    each step, and then what is known ahead about the next `horizon` steps. Channels are the level, the change from the
    step before within the window, whether the value was missing, and the past companions.

    With `differences`, the target of a row is the change from the value at the origin, so that a forecast of zero is
    the last value; without, it is the value, and the level is the only channel of the series itself.
    """

    n_past: int
    horizon: int
    differences: bool
    flags: bool  # whether gaps have a channel
    n_past_covariates: int
    n_known: int

    @property
    def channels(self) -> int:
        return 1 + self.differences + self.flags + self.n_past_covariates

    @property
    def n_columns(self) -> int:
        return self.n_past * self.channels + self.horizon * self.n_known

    def origins(self, panel: Panel, first: int = 0) -> Steps:
        """The origins from `first` on whose window lies in the series and whose targets have all been observed."""
        origins = np.arange(max(first, self.n_past - 1), len(panel) - self.horizon)
        targets = origins[:, None] + np.arange(1, self.horizon + 1)
        observed: Steps = origins[panel.observed[targets].all(axis=1)]
        return observed

    def rows(self, panel: Panel, origins: Steps) -> Array:
        """What a network sees at each origin, (origin, column)."""
        steps = origins[:, None] + np.arange(1 - self.n_past, 1)  # (origin, step)
        values = panel.values[steps]
        channels = [values]
        if self.differences:
            channels.append(np.diff(values, axis=1, prepend=values[:, :1]))
        if self.flags:
            channels.append(1.0 - panel.observed[steps])
        window = np.concatenate([np.stack(channels, axis=-1), panel.past[steps]], axis=-1)
        window = window.reshape(len(origins), self.n_past * self.channels)
        ahead = panel.known[origins[:, None] + np.arange(1, self.horizon + 1)]
        return np.concatenate([window, ahead.reshape(len(origins), self.horizon * self.n_known)], axis=1)

    def targets(self, panel: Panel, origins: Steps) -> Array:
        """What a network is to say at each origin, (origin, step)."""
        ahead: Array = panel.values[origins[:, None] + np.arange(1, self.horizon + 1)]
        return ahead - self.anchors(panel, origins)

    def anchors(self, panel: Panel, origins: Steps) -> Array:
        """What is added to a network's word to make it a value of the series, (origin, 1)."""
        anchors: Array = panel.values[origins][:, None] * float(self.differences)
        return anchors


@dataclass(frozen=True)
class TimeFolds:
    """Which block of time, and so which fold, every step belongs to, now and after more steps have come.

    The steps of the first fit are cut into `n_folds` long blocks. Later steps are given out in turns, `block` steps at
    a time, so that no step ever changes its fold: a member that is trained on has still not seen what it left out.
    """

    n_folds: int
    first: int  # the first origin of the first fit
    end: int  # the step after its last one
    block: int
    embargo: int

    def fold_of(self, steps: Steps) -> Steps:
        within = (steps - self.first) * self.n_folds // max(1, self.end - self.first)
        later = (steps - self.end) // self.block % self.n_folds
        fold: Steps = np.where(steps < self.end, within, later)
        return fold

    def split(self, origins: Steps) -> list[tuple[Steps, Steps]]:
        """For every fold the places of the origins that train and of those that are left out.

        An origin within the embargo of a left-out one does neither: their windows or targets overlap or touch. That
        goes for the next origins too, which are still to come: a member that is trained on will leave some of them out.
        """
        to_come = np.arange(self.embargo) + origins[-1] + 1
        fold, next_fold = self.fold_of(origins), self.fold_of(to_come)
        parts = []
        for left_out in range(self.n_folds):
            out = fold == left_out
            all_out = np.concatenate([origins[out], to_come[next_fold == left_out]])
            parts.append((np.flatnonzero(~out & ~self._near(origins, all_out)), np.flatnonzero(out)))
        return parts

    def _near(self, origins: Steps, others: Steps) -> NDArray[np.bool_]:
        """Which origins have one of the others, in rising order, within the embargo."""
        if not len(others):
            return np.zeros(len(origins), dtype=bool)
        place = np.searchsorted(others, origins)
        after = others[np.minimum(place, len(others) - 1)]
        before = others[np.maximum(place - 1, 0)]
        near: NDArray[np.bool_] = np.minimum(np.abs(after - origins), np.abs(origins - before)) <= self.embargo
        return near
