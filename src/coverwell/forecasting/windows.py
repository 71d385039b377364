"""Windows of a series as rows of a table: what a network sees at each moment, its targets, and folds of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from coverwell.forecasting.history import Array, History, Steps
from coverwell.inputs.columns import calendar_of, library_of
from coverwell.inputs.scaling import Scaling
from coverwell.options import stored

CALENDAR = ("hour", "weekday", "month")
DAY = 86_400.0  # seconds


@stored
@dataclass(frozen=True)
class Windows:
    """How a moment of a series becomes a row.

    The row of an *origin*, the latest step that has been seen, holds the last `n_past` steps, channel by channel within
    each step, and then what is known ahead about the next `horizon` steps. Channels are the level, the change from the
    step before within the window, whether the value was missing, and the past covariates.
    """

    n_past: int
    horizon: int
    differences: bool  # whether targets are changes from the value at the origin, and changes have a channel
    flags: bool  # whether gaps have a channel
    n_past_covariates: int
    n_known: int

    @classmethod
    def of(cls, history: History, *, past: int, horizon: int, differences: bool) -> Windows:
        """The windows of this series; an error where it has too few of them."""
        flags, n_known = bool(np.isnan(history.values).any()), known_ahead(history, np.arange(0)).shape[1]
        windows = cls(past, horizon, differences, flags, history.past.shape[1], n_known)
        n_rows = len(windows.origins(history))
        if n_rows < 2:
            needed = f"2 windows of past + horizon = {past + horizon} steps whose last {horizon} were observed"
            found = f"got {n_rows} in {len(history)} steps; give a longer series or a shorter past"
            raise ValueError(f"the series must hold at least {needed}, {found}")
        return windows

    @property
    def channels(self) -> int:
        return 1 + self.differences + self.flags + self.n_past_covariates

    @property
    def n_columns(self) -> int:
        return self.n_past * self.channels + self.horizon * self.n_known

    def origins(self, history: History) -> Steps:
        """The origins whose window lies in the series and whose targets have all been observed."""
        origins = np.arange(self.n_past - 1, len(history) - self.horizon)
        return origins[~np.isnan(history.values[self.ahead(origins)]).any(axis=1)]

    def ahead(self, origins: Steps) -> Steps:
        """The steps that are forecast at each origin, (origin, step)."""
        return origins[:, None] + np.arange(1, self.horizon + 1)

    def rows(self, history: History, origins: Steps) -> Array:
        """What a network sees at each origin, (origin, column)."""
        steps = origins[:, None] + np.arange(1 - self.n_past, 1)
        missing, known = 1.0 * np.isnan(history.values[steps]), known_ahead(history, self.ahead(origins))
        return np.asarray(self.encoded(history.filled[steps], missing, history.past[steps], known))

    def encoded(self, values: Any, missing: Any, past: Any, known: Any) -> Any:
        """Rows (moment, column), as arrays or tensors; `missing` is 1 where a value was filled in.

        `values` and `missing` are (moment, step), `past` and `known` (moment, step, covariate); not read without any.
        """
        library = library_of(values)
        channels, n = [values], values.shape[0]
        if self.differences:
            channels.append(values - library.concatenate([values[:, :1], values[:, :-1]], 1))
        if self.flags:
            channels.append(missing)
        window = library.concatenate([library.stack(channels, -1), *([past] if self.n_past_covariates else [])], -1)
        ahead = [known.reshape(n, self.horizon * self.n_known)] if self.n_known else []
        return library.concatenate([window.reshape(n, self.n_past * self.channels), *ahead], 1)

    @property
    def levels(self) -> slice:
        """The columns of the levels, the first channel of every step."""
        return slice(0, self.n_past * self.channels, self.channels)

    def level_range(self, inputs: Scaling) -> LevelRange | None:
        """The range of the levels in training, where changes are learned."""
        if not self.differences:
            return None
        low, high, centre = (buffer[self.levels] for buffer in (inputs.low, inputs.high, inputs.centre))
        return LevelRange(float(low.min()), float(high.max()), float(centre.mean()))

    def within(self, rows: Array, inputs: Scaling) -> Array:
        """Rows whose levels are moved into the range of training, where changes are learned."""
        moved, level_range = rows.copy(), self.level_range(inputs)
        if level_range is not None:
            moved[:, self.levels] = level_range.moved(rows[:, self.levels])
        return moved

    def targets(self, history: History, origins: Steps) -> Array:
        """What a network is to forecast at each origin, (origin, step)."""
        return history.filled[self.ahead(origins)] - self.anchors(history, origins)

    def anchors(self, history: History, origins: Steps) -> Array:
        """What is added to a network's output to make it a value of the series, (origin, 1)."""
        return history.filled[origins][:, None] * float(self.differences)


@dataclass(frozen=True)
class LevelRange:
    """The range of the levels that windows had in training, and their mean."""

    low: float
    high: float
    centre: float

    def moved(self, values: Any) -> Any:
        """Windows (moment, step) that leave the range, each moved back as a whole, as an array or a tensor.

        A window with more than a quarter of its values just outside is moved to the border; fewer may be outliers. One
        that lies further out than the range is wide has a level of which nothing was learned, and is moved to the
        centre.
        """
        library, n = library_of(values), values.shape[1]
        ordered = values.sort(1).values if isinstance(values, Tensor) else np.sort(values, axis=1)
        low, high, centre = (library.asarray(v, dtype=values.dtype) for v in (self.low, self.high, self.centre))
        below = library.clip(low - ordered[:, n // 4], 0, None)
        above = library.clip(ordered[:, n - 1 - n // 4] - high, 0, None)
        far = library.clip((below + above) / (high - low), 0, 1)
        median = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
        return values + ((1 - far) * (below - above) + far * (centre - median))[:, None]


class WindowEncoding(nn.Module):
    """The rows of `Windows` and their anchors from raw inputs, in torch alone: the first layer of an exported model.

    Levels are moved into a range, if there is one.

    Values are NaN in gaps; `before` is the last value observed before the window, `times` are seconds since 1970 by the
    local clock.
    """

    def __init__(self, windows: Windows, calendar: Sequence[str] = (), level_range: LevelRange | None = None) -> None:
        super().__init__()
        self.windows, self.calendar, self.level_range = windows, tuple(calendar), level_range

    def forward(
        self,
        values: Float[Tensor, "moment past"],
        before: Float[Tensor, "moment 1"] | None = None,
        past_covariates: Float[Tensor, "moment past _"] | None = None,
        times: Float[Tensor, "moment horizon"] | None = None,
        covariates: Float[Tensor, "moment horizon _"] | None = None,
    ) -> tuple[Float[Tensor, "moment column"], Float[Tensor, "moment 1"]]:
        filled, missing = values, torch.isnan(values).to(values.dtype)
        if before is not None:
            filled, distance = torch.cat([before, values], 1), 1
            while distance <= self.windows.n_past:  # by the value 1 step before, then 2, 4, ... in what has been filled
                earlier = torch.cat([filled[:, :distance], filled[:, :-distance]], 1)
                filled = torch.where(torch.isnan(filled), earlier, filled)
                distance *= 2
            filled = filled[:, 1:]
        calendar = None if times is None else calendar_features(torch.floor(times), self.calendar)
        known = [part for part in (calendar, covariates) if part is not None]
        seen = filled if self.level_range is None else self.level_range.moved(filled)
        rows: Tensor = self.windows.encoded(seen, missing, past_covariates, torch.cat(known, -1) if known else None)
        return rows, filled[:, -1:] * float(self.windows.differences)


def known_ahead(history: History, steps: Steps) -> Array:
    """What is known about these steps, (..., covariate): the calendar, then the user's covariates."""
    ahead = history.ahead[steps] if history.ahead_names else np.zeros((*steps.shape, 0))
    if not history.calendar:
        return ahead
    first, end = (int(steps.min()), int(steps.max()) + 1) if steps.size else (0, 0)
    calendar = calendar_features(history.clock.times(first, end - first), history.calendar)
    return np.concatenate([calendar[steps - first], ahead], axis=-1)


def calendar_features(times: Any, names: Sequence[str]) -> Any:
    """The calendar of local times, datetime64 or a tensor of float64 seconds since 1970, (...) -> (..., column).

    "hour" is the position in the day, minutes included, as three waves; "weekday" is one column of 0 and 1 for each
    day from Monday on; "month" is the position in the year as one wave.
    """
    seconds = times if isinstance(times, Tensor) else times.astype("datetime64[s]").astype(np.float64)
    library, columns = library_of(seconds), []
    _, weekday, in_year, in_day = calendar_of(seconds, DAY)
    for name in names:
        if name == "weekday":
            columns += [library.zeros_like(weekday) + (weekday == number) for number in range(7)]
            continue
        phase = in_day if name == "hour" else in_year
        # Three waves of the day are enough for a morning and an evening peak of different shapes.
        for k in (1, 2, 3) if name == "hour" else (1,):
            turn = library.asarray(2 * np.pi * k, dtype=phase.dtype) * phase  # as a number, ONNX has it in float32
            columns += [library.sin(turn), library.cos(turn)]
    return library.stack(columns, -1) if columns else seconds[..., None][..., :0]


@stored
@dataclass(frozen=True)
class TimeFolds:
    """Which block of time, and so which fold, every step belongs to, now and after more steps have come.

    The steps of the first fit are cut into `n_folds` long blocks. Later steps are given out in turns, `block` steps at
    a time: a member whose training goes on has still not seen what it left out.
    """

    n_folds: int
    first: int  # the first origin of the first fit
    end: int  # the step after its last one
    block: int
    embargo: int

    @classmethod
    def of(cls, n_folds: int, windows: Windows, history: History) -> TimeFolds:
        """Blocks of this series; an error where it is too short for them."""
        embargo, first, n_steps = windows.n_past + windows.horizon, int(windows.origins(history)[0]), len(history)
        needed = first + n_folds * (2 * embargo + windows.horizon + 1)  # with less, a member could have no rows
        if n_folds > 1 and n_steps < needed:
            blocks = f"{n_folds} blocks of time with {embargo} steps (past + horizon) kept free on both sides"
            raise ValueError(f"{blocks} need {needed} steps or more, got {n_steps}; give fewer folds or a shorter past")
        # Later blocks are a fifth of the first ones: a series that grows week by week soon has some of every fold.
        return cls(n_folds, first, n_steps, max(2 * embargo, (n_steps - first) // (5 * n_folds)), embargo)

    def fold_of(self, steps: Steps) -> Steps:
        within = (steps - self.first) * self.n_folds // max(1, self.end - self.first)
        later = (steps - self.end) // self.block % self.n_folds
        return np.where(steps < self.end, within, later)

    def split(self, origins: Steps) -> list[tuple[Steps, Steps]]:
        """For every fold the places of the origins that train and of those that are left out.

        An origin within the embargo of a left-out one, which may still be to come, does neither: windows would overlap.
        """
        steps = np.arange(origins[-1] + self.embargo + 1)
        fold, has_row = self.fold_of(steps), np.isin(steps, origins) | (steps > origins[-1])
        parts = []
        for left_out in range(self.n_folds):
            out = has_row & (fold == left_out)
            n_before = np.append(0, np.cumsum(out))  # left-out steps before each step
            near = n_before[origins + self.embargo + 1] > n_before[np.maximum(origins - self.embargo, 0)]
            parts.append((np.flatnonzero(~near), np.flatnonzero(out[origins])))
        return parts
