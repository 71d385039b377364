"""Live calibration: a width factor that follows the misses, around any point forecaster.

Adaptive conformal inference (Gibbs and Candes 2021) on the logarithm of the factor. After each judged forecast,

    log factor <- log factor + rate (miss - (1 - p)),    miss = 1 if the truth was outside, 0 if inside.

Proven, for any series and any forecasts: the sum of all moves is the way from the first log factor to the last one, so
after T judged forecasts, while the factor has stayed inside its bounds,

    |mean miss - (1 - p)| <= (range of the log factor + rate) / (rate T),

where the range is that of the factors in use so far; the last move adds at most one rate. It holds for every T, for
each step ahead and each level, and for the intervals that were really given (several levels are made nested first). It
says nothing about a stretch of time, about the coverage given x, or about widths. Where the factor is held at a bound
it no longer holds, and `FactorBoundWarning` says so.

Only measured: the coverage over a rolling window, and which rate is good. Six public series and over a dozen methods
are in `reproduction/table2.md`: the coverage of the worst 500 steps in a row, and the interval score. Large rates
follow fast and pay with widths that jump; `choose_rate` looks for the best on past forecasts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import Estimate
from coverwell.errors import FactorBoundWarning
from coverwell.forecasting.live_factors import LiveFactors
from coverwell.forecasting.live_input import (
    Numbers,
    checked_period,
    finite,
    numbers,
    one_truth,
    reach_from,
    truths_ahead,
)
from coverwell.forecasting.rates import choose_rate, forecasts_behind, rank_start
from coverwell.intervals import PredictionInterval
from coverwell.preparation import levels_from

__all__ = ["FactorBoundWarning", "LiveCalibrator", "run_live", "truths_ahead"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class LiveCalibrator:
    """Intervals around any point forecaster, whose width follows the misses.

    At each time call `interval` with the forecasts of the next steps, and then `update` with the next truth. A forecast
    for step h is judged h truths later, so feedback for step h arrives h steps late. Each step and level has its own
    factor. What is proven of it, and what is not, stands at the head of this module.

    All arrays with a level axis have the levels in the order in which `coverage` gives them.

    Parameters
    ----------
    coverage : float or sequence of float
        Level or levels, each in (0, 1).
    rate : float
        How far a miss moves the logarithm of the factor. `choose_rate` and `from_residuals` choose it on past data.
    horizon : int
        Steps ahead that are forecast each time.
    start : float or array (level,) or (step, level)
        The factor at the start.
    farthest : float
        The factor is held between start / farthest and start * farthest; reaching either gives a `FactorBoundWarning`.

    Attributes
    ----------
    n_updates : int
        Truths that were given, the missing ones included.
    n_judged : ndarray (step,)
        Forecasts of each step that met their truth: T in the statement.

    Examples
    --------
    Yesterday's value as the forecast of a random walk, and a first width that is too small:

    >>> import numpy as np
    >>> walk = np.random.default_rng(0).normal(size=4000).cumsum()
    >>> live = LiveCalibrator(0.9, rate=0.05, start=1.0)
    >>> for yesterday, today in zip(walk[:-1], walk[1:]):
    ...     lower, upper = live.interval(yesterday)
    ...     live.update(today)
    >>> round(1 - live.missed, 2)
    0.9
    >>> 1.2 < live.factor < 2.2  # the right one is 1.64
    True

    The state is plain JSON, and a restored calibrator goes on bit for bit:

    >>> import json
    >>> restored = LiveCalibrator(0.9)
    >>> restored.load_state_dict(json.loads(json.dumps(live.state_dict())))
    >>> restored.factor == live.factor
    True
    """

    def __init__(
        self,
        coverage: float | Sequence[float] | Array = 0.9,
        *,
        rate: float = 0.05,
        horizon: int = 1,
        start: Numbers = 1.0,
        farthest: float = 20.0,
    ) -> None:
        self.coverage = float(coverage) if isinstance(coverage, Real) else levels_from(coverage)
        self._factors = LiveFactors(levels_from(coverage), rate=rate, horizon=horizon, start=start, farthest=farthest)

    @classmethod
    def from_residuals(
        cls,
        residuals: Numbers,
        coverage: float | Sequence[float] | Array = 0.9,
        *,
        scale: Numbers = 1.0,
        rate: float | str = "auto",
        farthest: float = 20.0,
    ) -> LiveCalibrator:
        """A calibrator whose start is the coverage rank of past residuals, and whose rate was chosen on them.

        Residuals of rows that the forecaster was trained on are too small; take forecasts of rows it had not seen where
        you can. A start that is too small by a factor of 2.7 is made up for by some 1 / rate misses.

        Parameters
        ----------
        residuals : array-like (time,) or (time, step)
            Truth less forecast, in time order. Row t of several steps holds the errors of what was forecast at time t
            for its next steps. NaN where there is no truth.
        coverage : float or sequence of float
            Level or levels, each in (0, 1).
        scale : float or array (time,), (time, step), (time, step, level) or (time, step, side, level)
            How far an interval of factor 1 reached at that time, as will be given to `interval`.
        rate : float or "auto"
            "auto" takes what `choose_rate` finds best on the residuals.
        farthest : float
            See the class.

        Examples
        --------
        >>> import numpy as np
        >>> live = LiveCalibrator.from_residuals(np.random.default_rng(0).normal(size=1000), coverage=0.9)
        >>> live.rate, round(live.factor, 1)
        (0.05, 1.6)
        """
        errors = numbers("residuals", residuals)
        if errors.ndim not in (1, 2) or not errors.size:
            raise ValueError(f"residuals must have the shape (time,) or (time, step), got {errors.shape}")
        errors = errors.reshape(len(errors), -1)
        levels = levels_from(coverage)
        estimate, y = forecasts_behind(errors, reach_from(scale, *errors.shape, len(levels)))
        start = rank_start(errors, estimate, levels)
        if isinstance(rate, str):
            if rate != "auto":
                raise ValueError(f"rate must be a positive number or 'auto', got {rate!r}")
            rate = choose_rate(estimate, y, levels, start=start, farthest=farthest)
        return cls(coverage, rate=rate, horizon=errors.shape[1], start=start, farthest=farthest)

    @property
    def rate(self) -> float:
        return self._factors.rate

    @property
    def horizon(self) -> int:
        return self._factors.horizon

    @property
    def farthest(self) -> float:
        return self._factors.farthest

    @property
    def n_updates(self) -> int:
        return self._factors.n_updates

    @property
    def n_judged(self) -> Counts:
        return self._factors.n_judged

    @property
    def factor(self) -> float | Array:
        """The factor that the next interval will have, (step, level); a float where there is one of each."""
        return self._as_asked(self._factors.factor(self._factors.drift))

    @property
    def missed(self) -> float | Array:
        """The share of judged forecasts that missed, shaped as `factor`; NaN before the first."""
        judged = np.where(self.n_judged > 0, self.n_judged, np.nan)[:, None]
        return self._as_asked(self._factors.n_missed / judged)

    def interval(self, prediction: Numbers, scale: Numbers = 1.0) -> PredictionInterval:
        """The intervals around the forecasts made now; a second call before `update` replaces the first.

        Parameters
        ----------
        prediction : float or array (step,)
            The forecasts of the next `horizon` steps; a float where the horizon is 1.
        scale : float or array (step,), (step, level) or (step, side, level)
            How far an interval of factor 1 reaches to both sides of the forecast; with a side axis, below and above it.

        Returns
        -------
        PredictionInterval
            One row per step: bounds (step,), or (step, level) where `coverage` is a sequence.
        """
        mean = finite("prediction", prediction)
        if mean.shape != (self.horizon,) and not (mean.shape == () and self.horizon == 1):
            raise ValueError(f"prediction must have one number for each of {self.horizon} steps, got {mean.shape}")
        reach = reach_from(scale, self.horizon, len(self._factors.allowed))
        lower, upper = self._factors.give(mean.reshape(-1), reach)[..., self._factors.as_asked]
        if isinstance(self.coverage, float):
            lower, upper = lower[:, 0], upper[:, 0]
        return PredictionInterval(lower, upper, coverage=self.coverage)

    def update(self, y: Numbers) -> None:
        """Let the factors follow the next truth, a number; NaN if it is missing, which drops what was due for it.

        Anything else raises, and so does a truth for which no interval was asked; the calibrator is then unchanged.
        """
        truth = one_truth(y)
        if not self._factors.awaits_truth():
            raise ValueError("no interval is due for this truth; call interval(...) with a forecast before each update")
        _warn_of_bounds(self._factors, self._factors.judge(truth))

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on, as lists and numbers that JSON can hold."""
        coverage = self.coverage if isinstance(self.coverage, float) else list(self.coverage)
        return {"coverage": coverage, **self._factors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of one of the same coverage and horizon; its rate, start and bounds come along."""
        restored = _restored(state)
        for name in ("coverage", "horizon"):
            if getattr(restored, name) != getattr(self, name):
                raise ValueError(
                    f"the state is of a calibrator with {name}={getattr(restored, name)!r}, this one has "
                    f"{getattr(self, name)!r}; make one with the {name} of the state"
                )
        vars(self).update(vars(restored))

    def _as_asked(self, values: Array) -> float | Array:
        """Values (step, level) with the levels as they were asked; a float where there is one of each."""
        return float(values[0, 0]) if values.size == 1 else values[:, self._factors.as_asked]


def run_live(calibrator: LiveCalibrator, estimate: Estimate, y: Numbers) -> tuple[Array, Array, Array]:
    """What a loop of `interval` and `update` over a whole period gives, bit for bit, and faster.

    Parameters
    ----------
    calibrator : LiveCalibrator
        Goes on from its present state, and is left as the loop would leave it.
    estimate : Estimate
        Row t holds what was forecast at time t for its next steps: mean (time, step), reach (time, step, side, level).
    y : array-like (time,)
        The truths: y[t] is what step 1 of row t was about, step 2 of row t - 1, and so on. NaN where it is missing.

    Returns
    -------
    lower, upper, factor : arrays (time, step, level)
        The intervals as they were given at each time, and the factor then in use.

    Warns
    -----
    FactorBoundWarning
        Once for the whole period, with the number of times that a bound was reached.
    """
    factors = calibrator._factors
    estimate, truths = checked_period(estimate, y, factors.horizon, len(factors.allowed))
    ends, in_use, drifts = factors.run(estimate, truths)
    _warn_of_bounds(factors, drifts)
    asked = factors.as_asked
    return ends[:, 0][..., asked], ends[:, 1][..., asked], in_use[..., asked]


def _warn_of_bounds(factors: LiveFactors, drifts: Array) -> None:
    """Warn if a bound was reached along these drifts (time, step, level); being held there is not reaching it."""
    at_bound = np.abs(drifts) >= factors.limit
    reached = np.argwhere(at_bound[1:] & ~at_bound[:-1])
    if not len(reached):
        return
    t, step, level = reached[0]
    factor = float(factors.factor(drifts[t + 1])[step, level])
    times = "" if len(reached) == 1 else f" (the first of {len(reached)} times)"
    warnings.warn(
        f"the factor of step {step + 1} at coverage {1 - factors.allowed[level]:g} has reached its bound {factor:g} "
        f"and is held there{times}: mean coverage is no longer promised; check scale and start, or widen farthest",
        FactorBoundWarning,
        stacklevel=3,
    )


def _restored(state: Mapping[str, Any]) -> LiveCalibrator:
    try:
        settings = {name: state[name] for name in ("rate", "horizon", "start", "farthest")}
        restored = LiveCalibrator(state["coverage"], **settings)
        restored._factors.restore(state)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"this is not the state_dict of a LiveCalibrator: {error!r}") from error
    return restored
