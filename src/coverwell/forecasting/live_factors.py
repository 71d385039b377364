"""Width factors that follow the misses: the rule of live calibration, one truth at a time or over a whole period.

What the rule is, and what is proven of it, stands at the head of `live.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from coverwell.calibration import Estimate
from coverwell.estimator import check_count
from coverwell.forecasting.live_input import Numbers, check_finite_number, finite, start_factor
from coverwell.intervals import widen_outwards

__all__ = ["LiveFactors"]

Array = NDArray[np.float64]


class LiveFactors:
    """A factor for every step and level, and the ends that were given with it and wait for their truth.

    Levels go from the innermost to the outermost in every array here; `[..., as_asked]` has them as they were asked.
    """

    def __init__(
        self, levels: tuple[float, ...], *, rate: float, horizon: int, start: Numbers, farthest: float
    ) -> None:
        check_count("horizon", horizon)
        check_finite_number("rate", rate, above=0.0)
        check_finite_number("farthest", farthest, above=1.0)
        self.rate, self.horizon, self.farthest = float(rate), int(horizon), float(farthest)
        self.inwards_out = np.argsort(levels)
        self.as_asked = np.argsort(self.inwards_out)
        self.allowed: Array = 1 - np.array(levels)[self.inwards_out]  # (level,)
        self.start = self._inside(start_factor(start, self.horizon, len(levels)))
        self.limit = np.array(math.log(self.farthest))  # an array: numpy is slow to take in a float at every step
        self.drift = np.zeros_like(self.start)  # log(factor / start), (step, level)
        self.due = _nothing_due(self.horizon, self.horizon, len(levels))
        self.n_updates = 0
        self.n_judged = np.zeros(self.horizon, dtype=np.int64)
        self.n_missed = np.zeros(self.start.shape, dtype=np.int64)

    def factor(self, drift: Array) -> Array:
        """The factors at a log(factor / start), both (step, level)."""
        factor: Array = self.start * np.exp(drift)
        return factor

    def give(self, mean: Array, reach: Array) -> Array:
        """The ends (side, step, level) around the forecasts (step,) made now, which then wait for their truths."""
        ends = _ends(self.factor(self.drift), mean[:, None], self._signed(reach))
        _by_origin(self.due)[0] = ends
        return ends

    def awaits_truth(self) -> bool:
        """Whether any ends are due for the next truth."""
        return not np.isnan(self.due[0]).all()

    def judge(self, y: float) -> Array:
        """Let the factors follow one truth; their drift before and after, (2, step, level)."""
        due, before = self.due, self.drift
        self.drift = self._follow(before, due[0], y)
        self.due = np.concatenate([due[1:], _nothing_due(1, self.horizon, len(self.allowed))])
        self._count(due[:1], np.array([y]))
        return np.stack([before, self.drift])

    def run(self, estimate: Estimate, y: Array) -> tuple[Array, Array, Array]:
        """A loop of `give` and `judge`: ends (time, side, step, level), factors and drifts, levels inwards out."""
        n_times, shape = len(y), self.start.shape
        due = np.concatenate([self.due, _nothing_due(n_times, *shape)])
        ends = _by_origin(due)  # a view: what is given at a time is read when it is due
        factors, drifts = np.empty((n_times, *shape)), np.empty((n_times + 1, *shape))
        drifts[0] = drift = self.drift
        mean, reach = estimate.mean[..., None], self._signed(estimate.reach)
        for t, (truth, centre, distance) in enumerate(zip(y.tolist(), mean, reach, strict=True)):
            factors[t] = factor = self.factor(drift)
            ends[t] = _ends(factor, centre, distance)
            drifts[t + 1] = drift = self._follow(drift, due[t], truth)
        self.drift, self.due = drift, due[n_times:].copy()
        self._count(due[:n_times], y)
        return ends[:n_times], factors, drifts

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on, as lists and numbers that JSON can hold."""
        pending = [
            [None if np.isnan(row[0, h]).any() else row[:, h].tolist() for h in range(self.horizon)]
            for row in self.due[..., self.as_asked]
        ]
        return {
            "rate": self.rate,
            "horizon": self.horizon,
            "start": self.start[:, self.as_asked].tolist(),
            "farthest": self.farthest,
            "log_factor_over_start": self.drift[:, self.as_asked].tolist(),
            "n_updates": self.n_updates,
            "n_judged": self.n_judged.tolist(),
            "n_missed": self.n_missed[:, self.as_asked].tolist(),
            "pending": pending,  # by truths until due, then by step: None, or the lower and the upper bounds
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` told of factors with the same settings."""
        shape = self.start.shape
        self.drift = self._inside(_shaped(state, "log_factor_over_start", shape))
        if (np.abs(self.drift) > self.limit).any():
            raise ValueError(f"the factor must lie within {self.farthest:g} times its start")
        self.n_missed = self._inside(_shaped(state, "n_missed", shape)).astype(np.int64)
        self.n_judged = _shaped(state, "n_judged", shape[:1]).astype(np.int64)
        self.n_updates = int(state["n_updates"])
        for ahead, step in np.ndindex(self.horizon, self.horizon):
            ends = state["pending"][ahead][step]
            if ends is not None:
                self.due[ahead, :, step] = self._inside(finite("pending", ends).reshape(2, shape[1]))

    def _inside(self, values: Array) -> Array:
        """Values with the levels last as they are kept here; of one memory layout, on which the bits of exp depend."""
        return np.ascontiguousarray(values[..., self.inwards_out])

    def _follow(self, drift: Array, due: Array, y: float) -> Array:
        """The drift after one truth; `due` has the ends (side, step, level) given for it, NaN where there were none."""
        if math.isnan(y):
            return drift
        lower, upper = due
        feedback = _outside(y, lower, upper) - self.allowed  # miss - (1 - p)
        moved = drift + self.rate * feedback * (lower == lower)  # NaN differs from itself: no feedback
        held: Array = np.minimum(np.maximum(moved, -self.limit), self.limit)
        return held

    def _signed(self, reach: Array) -> Array:
        """Reaches (..., step, side, level) as signed distances from the mean, (..., side, step, level), inwards out."""
        distances = np.moveaxis(reach, -2, -3)[..., self.inwards_out]
        signed: Array = distances * np.array([-1.0, 1.0])[:, None, None]
        return signed

    def _count(self, due: Array, y: Array) -> None:
        """Add to the tallies what was due (time, side, step, level) for the truths (time,)."""
        lower, upper = due[:, 0], due[:, 1]
        values = y[:, None, None]
        self.n_updates += len(y)
        self.n_judged = self.n_judged + (~np.isnan(lower[..., 0]) & ~np.isnan(values[..., 0])).sum(axis=0)
        self.n_missed = self.n_missed + _outside(values, lower, upper).sum(axis=0)


def _ends(factor: Array, mean: Array, signed_reach: Array) -> Array:
    """Nested ends (side, step, level): factor (step, level), mean (step, 1), signed reach (side, step, level)."""
    ends = mean + factor * signed_reach
    if ends.shape[-1] > 1:
        ends[0], ends[1] = widen_outwards(ends[0], ends[1])
    return ends


def _outside(y: Array | float, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Whether a truth was missed; NaN, be it a truth or an interval, never is."""
    missed: NDArray[np.bool_] = (y < lower) | (y > upper)
    return missed


# Ends wait for their truth in an array (time, side, step, level), by the time when they are due; NaN where none are.


def _nothing_due(n_times: int, horizon: int, n_levels: int) -> Array:
    return np.full((n_times, 2, horizon, n_levels), np.nan)


def _by_origin(due: Array) -> Array:
    """The same memory by the time of the forecast: step h of row t is due at t + h (steps counted from 0)."""
    by_time, by_side, by_step, by_level = due.strides
    n_origins = len(due) - due.shape[2] + 1
    return as_strided(due, (n_origins, *due.shape[1:]), (by_time, by_side, by_step + by_time, by_level))


def _shaped(state: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Array:
    values = finite(name, state[name])
    if values.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {values.shape}")
    return values
