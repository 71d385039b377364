"""Live calibration: a width factor that follows the misses, around any point forecaster.

Adaptive conformal inference (Gibbs and Candes 2021) on the logarithm of the factor. When a forecast meets its truth,

    log factor <- log factor + rate (miss - (1 - p)),    miss = 1 if the truth was outside, 0 if inside.

For any series and any forecasts, once T of them met their truths while the factor stayed inside its bounds,

    |mean miss - (1 - p)| <= (range of the log factor + rate) / (rate T),

because all moves together lead from the first log factor to the last. The range is that of the factors in use so far.
This is proven for every T, step ahead and level, for the intervals as they were given (several levels are made nested
first). It does not cover a stretch of time, the coverage given x, or widths, and ends where the factor is held at a
bound. Coverage over a rolling window, and which rate is good, are only measured (`reproduction/table2.md`): large rates
follow fast, and their widths jump.

With rate="adaptive", log factor = blend + correction. The blend (`forecasting/blend.py`) follows at several rates and
favours those that have done well lately. The correction moves as above, at a small rate of its own, so that the
statement holds with its range and rate, whatever the blend does.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from numbers import Real
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import ArrayLike, NDArray

from coverwell import metrics
from coverwell.calibration import Estimate, rank_factor, scores_of
from coverwell.errors import FactorBoundWarning
from coverwell.forecasting.blend import CORRECTION, Blend
from coverwell.options import check_count, check_number, levels_from, stored
from coverwell.prediction import PredictionInterval

Array = NDArray[np.float64]
Coverage = float | Sequence[float] | Array
Numbers = ArrayLike | float | int  # numpy counts a float as array-like by way of complex, which type checks do not

# The rates to choose from. Lower rates let the coverage of a few hundred steps sink when the series drifts.
RATES = (0.05, 0.1, 0.2, 0.4)
ADAPTIVE = "adaptive"


@stored
class LiveCalibrator:
    """Intervals around any point forecaster, whose width follows the misses.

    At each time call `interval` with the forecasts of the next steps, and then `update` with the next truth. Feedback
    for step h comes h updates later. Each step and level has its own factor; levels keep the order of `coverage`.

    Parameters
    ----------
    coverage : float or sequence of float
    rate : float or "adaptive", how far a miss moves the logarithm of the factor
        "adaptive" blends several rates by how well each has done lately; `from_residuals` chooses one on past data.
    horizon : int, steps ahead that are forecast each time
    start : float or array (level,) or (step, level), the factor at the start
    farthest : float, the factor is held between start / farthest and start * farthest, with a `FactorBoundWarning`
    state : str, optional, a `state_dict` to go on from, as JSON

    Attributes
    ----------
    correction : ndarray (step, level), the sum of all moves of the log factor by misses of the given intervals
    correction_rate : float, the rate of those moves: `rate`, where it is a number
    n_updates : int, truths that were given, the missing ones included
    n_scored : ndarray (step,), forecasts of each step that met their truth: T in the statement

    Examples
    --------
    Yesterday's value as the forecast of a random walk, and a first width that is too small:

    >>> import numpy as np
    >>> walk = np.random.default_rng(0).normal(size=4000).cumsum()
    >>> live = LiveCalibrator(0.9, rate=0.05, start=1.0)
    >>> for yesterday, today in zip(walk[:-1], walk[1:]):
    ...     lower, upper = live.interval(yesterday)
    ...     live.update(today)
    >>> round(1 - live.missed, 2), 1.2 < live.factor < 2.2  # the right factor is 1.64
    (0.9, True)
    """

    def __init__(
        self,
        coverage: Coverage = 0.9,
        *,
        rate: float | str = 0.05,
        horizon: int = 1,
        start: Numbers = 1.0,
        farthest: float = 20.0,
        state: str | None = None,
    ) -> None:
        levels = levels_from(coverage)
        check_count("horizon", horizon)
        check_number("rate", rate, above=0.0, below=math.inf, words=(ADAPTIVE,))
        check_number("farthest", farthest, above=1.0, below=math.inf)
        self.coverage = float(coverage) if isinstance(coverage, Real) else levels
        self.rate = rate if isinstance(rate, str) else float(rate)
        self.horizon, self.farthest = int(horizon), float(farthest)
        shape = (self.horizon, len(levels))
        self.start = np.broadcast_to(_array("start", start, [(), shape[1:], shape]), shape).copy()
        if not (self.start > 0).all():
            way_out = "residuals must be of rows that the forecaster was not trained on"
            raise ValueError(f"start must be positive, got {self.start.min():g}; {way_out}")
        self._allowed: Array = 1 - np.array(levels)  # (level,)
        self._outwards = slice(None) if list(levels) == sorted(levels) else np.argsort(levels)
        self._limit = np.array(math.log(self.farthest))  # an array: numpy is slow to take in a float at every step
        self._blend = Blend(levels, self.horizon, float(self._limit)) if self.rate == ADAPTIVE else None
        self.correction_rate: float = CORRECTION if isinstance(self.rate, str) else self.rate
        self.correction = np.zeros(shape)  # log(factor / start) less the blend, (step, level)
        # What was given by the time when it meets its truth: two ends, and for a blend the mean and the widths.
        self._due = np.full((self.horizon, 2 if self._blend is None else 5, *shape), np.nan)
        self._n_missed = np.zeros(shape, dtype=np.int64)
        self.n_scored = np.zeros(self.horizon, dtype=np.int64)
        self.n_updates = 0
        if state is not None:
            self.load_state_dict(json.loads(state))

    @classmethod
    def from_residuals(
        cls,
        residuals: Numbers,
        coverage: Coverage = 0.9,
        *,
        scale: Numbers = 1.0,
        rate: float | str = "auto",
        farthest: float = 20.0,
    ) -> LiveCalibrator:
        """A calibrator whose start is the coverage rank of past residuals, and whose rate was chosen on them.

        Parameters
        ----------
        residuals : array-like (time,) or (time, step)
            Truth less forecast: row t holds the errors of what was forecast at time t, NaN where there is no truth.
            Those of rows that the forecaster was trained on are too small; take others where you can.
        scale : as in `interval`, with an axis of time before all others where it is an array
        rate : float, "adaptive", or "auto" for the best one on the residuals
        """
        errors, levels = _array("residuals", residuals, missing=True), levels_from(coverage)
        if errors.ndim not in (1, 2) or not errors.size:
            raise ValueError(f"residuals must have the shape (time,) or (time, step), got {errors.shape}")
        errors = errors.reshape(len(errors), -1)
        horizon = errors.shape[1]
        half_width = _half_width(scale, *errors.shape, len(levels))
        scores = scores_of(errors, Estimate(np.zeros_like(errors), half_width))  # (time, step, level)
        by_step = [rank_factor(scores[~np.isnan(errors[:, h]), h : h + 1], levels) for h in range(horizon)]
        start = np.concatenate(by_step)
        if rate == "auto":
            y = np.zeros(len(errors))  # forecasts of minus the error; a time with any error missing has no truth
            for h in range(horizon):
                y[h:][np.isnan(errors[: len(errors) - h, h])] = np.nan
            trials = [cls(levels, rate=trial, horizon=horizon, start=start, farthest=farthest) for trial in RATES]
            rate = best_rate(trials, -np.nan_to_num(errors), half_width, y)
        check_number("rate", rate, above=0.0, below=math.inf, words=(ADAPTIVE,), or_auto=True)
        return cls(coverage, rate=rate, horizon=horizon, start=start, farthest=farthest)

    @property
    def state(self) -> str:
        return json.dumps(self.state_dict())

    @property
    def factor(self) -> float | Array:
        """The factor that the next interval will have, (step, level); a float where there is one of each."""
        factor = self.start * np.exp(self._log_factor)
        return factor.item() if factor.size == 1 else factor

    @property
    def missed(self) -> float | Array:
        """The share of forecasts that missed their truth, shaped as `factor`; NaN before the first."""
        missed = self._n_missed / np.where(self.n_scored > 0, self.n_scored, np.nan)[:, None]
        return missed.item() if missed.size == 1 else missed

    def interval(self, prediction: Numbers, scale: Numbers = 1.0) -> PredictionInterval:
        """The intervals around the forecasts made now, (step,) or (step, level); a second call replaces the first.

        Parameters
        ----------
        prediction : float or array (step,), the forecasts of the next steps; a float where the horizon is 1
        scale : float or array (step,), (step, level) or (step, side, level)
            The half-width of an interval of factor 1; with a side axis, below and above the forecast.
        """
        mean = _array("prediction", prediction)
        if mean.shape != (self.horizon,) and not (mean.shape == () and self.horizon == 1):
            raise ValueError(f"prediction must have one number for each of {self.horizon} steps, got {mean.shape}")
        half_width = _half_width(scale, self.horizon, len(self._allowed))
        given = self._given(self.start * np.exp(self._log_factor), mean.reshape(-1, 1), half_width)
        _by_origin(self._due)[0] = given
        lower, upper = given[:2, :, 0] if isinstance(self.coverage, float) else given[:2]
        return PredictionInterval(lower, upper, coverage=self.coverage)

    def update(self, y: Numbers) -> None:
        """Let the factors follow the next truth; NaN if it is missing, which drops what was due for it."""
        truth = one_truth(y)
        if np.isnan(self._due[0]).all():
            raise ValueError("no interval is due for this truth; call interval(...) with a forecast before each update")
        self._follow(np.array([truth]))

    def drop_pending(self) -> None:
        """Forget the intervals that wait for their truth: what comes next belongs to another time."""
        self._due[:] = np.nan

    def run(self, mean: Numbers, half_width: Numbers, y: Numbers) -> tuple[Array, Array, Array]:
        """What a loop of `interval` and `update` over a whole period gives, bit for bit, and faster.

        Parameters
        ----------
        mean : array-like (time, step), row t holds what was forecast at time t for its next steps
        half_width : array-like (time, step, side, level), what `interval` takes as `scale`
        y : array-like (time,), the truths, NaN where missing: y[t] belongs to step 1 of row t, and step 2 of row t - 1

        Returns
        -------
        lower, upper, factor : arrays (time, step, level), the intervals as they were given, and the factor then in use
        """
        shape = (len(np.atleast_1d(mean)), self.horizon)
        truths, means = _array("y", y, [shape[:1]], missing=True), _array("mean", mean, [shape])
        widths = _array("half_width", half_width, [(*shape, 2, len(self._allowed))], least=0.0)
        ends, factors = self._follow(truths, means, widths)
        return ends[:, 0].copy(), ends[:, 1].copy(), factors

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on, as lists and numbers that JSON can hold."""
        arrays = {"start": self.start, "log_factor_over_start": self.correction, "n_missed": self._n_missed}
        arrays |= {"n_scored": self.n_scored, "pending": np.where(np.isnan(self._due), np.array(None), self._due)}
        numbers = {name: getattr(self, name) for name in ("rate", "horizon", "farthest", "n_updates")}
        coverage = self.coverage if isinstance(self.coverage, float) else list(self.coverage)
        state = {"coverage": coverage} | numbers | {name: array.tolist() for name, array in arrays.items()}
        return state if self._blend is None else state | {"blend": self._blend.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of one of the same coverage and horizon; its rate, start and bounds come along."""
        try:
            settings = {name: state[name] for name in ("rate", "horizon", "start", "farthest")}
            fresh = LiveCalibrator(state["coverage"], **settings)
            shape = fresh.start.shape
            correction = _array("log_factor_over_start", state["log_factor_over_start"], [shape])
            if (np.abs(correction) > math.log(fresh.farthest)).any():
                raise ValueError(f"the factor must lie within {fresh.farthest:g} times its start")
            n_missed = _array("n_missed", state["n_missed"], [shape]).astype(np.int64)
            n_scored = _array("n_scored", state["n_scored"], [shape[:1]]).astype(np.int64)
            due = np.array(state["pending"], dtype=np.float64)  # None becomes NaN
            due, n_updates = _array("pending", due, [fresh._due.shape], missing=True), int(state["n_updates"])
            if fresh._blend is not None:
                fresh._blend.load_state_dict(state["blend"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not the state_dict of a LiveCalibrator: {error!r}") from error
        mine, theirs = (f"coverage={one.coverage!r} and horizon={one.horizon}" for one in (self, fresh))
        if mine != theirs:
            raise ValueError(f"the state is of a calibrator with {theirs}, this one has {mine}; make one like that")
        vars(self).update(vars(fresh))
        self.correction, self._due, self._n_missed = correction, due, n_missed
        self.n_scored, self.n_updates = n_scored, n_updates

    @property
    def _log_factor(self) -> Array:
        """log(factor / start), (step, level)."""
        if self._blend is None:
            return self.correction
        log_factor: Array = np.minimum(np.maximum(self._blend.log_factor + self.correction, -self._limit), self._limit)
        return log_factor

    def _follow(self, y: Array, *forecasts: Array) -> tuple[Array, Array]:
        """Ends (time, side, step, level) and factors of a period: give the intervals and let factors follow the truths.

        `forecasts` are means (time, step) and half-widths (time, step, side, level), or nothing.
        """
        n_times, shape = len(y), self.correction.shape
        due = np.concatenate([self._due, np.full((n_times, *self._due.shape[1:]), np.nan)])
        given = _by_origin(due)  # a view: what is given at a time is read when it is due
        factors, log_factors = np.empty((n_times, *shape)), np.empty((n_times + 1, *shape))
        log_factors[0] = log_factor = self._log_factor
        made = zip(forecasts[0][..., None], forecasts[1], strict=True) if forecasts else repeat(None, n_times)
        for t, (truth, forecast) in enumerate(zip(y.tolist(), made, strict=True)):
            if forecast is not None:
                factors[t] = factor = self.start * np.exp(log_factor)
                given[t] = self._given(factor, *forecast)
            if not math.isnan(truth):
                self._meet(truth, due[t])
                log_factor = self._log_factor
            log_factors[t + 1] = log_factor
        self._due = due[n_times:].copy()
        lower, upper, values = due[:n_times, 0], due[:n_times, 1], y[:, None, None]
        self.n_updates += n_times
        self.n_scored = self.n_scored + (~np.isnan(lower[..., 0]) & ~np.isnan(values[..., 0])).sum(axis=0)
        self._n_missed = self._n_missed + ((values < lower) | (values > upper)).sum(axis=0)
        at_bound = np.abs(log_factors) >= self._limit
        reached = np.argwhere(at_bound[1:] & ~at_bound[:-1])  # being held at a bound is not reaching it
        if len(reached):
            t, step, level = reached[0]
            factor = (self.start * np.exp(log_factors[t + 1]))[step, level]
            times = "" if len(reached) == 1 else f" (the first of {len(reached)} times)"
            text = f"the factor of step {step + 1} at coverage {1 - self._allowed[level]:g} has reached its bound "
            text += f"{factor:g} and is held there{times}: mean coverage is no longer promised"
            warnings.warn(f"{text}; check scale and start, or widen farthest", FactorBoundWarning, stacklevel=3)
        return given[:n_times, :2], factors

    def _meet(self, truth: float, due: Array) -> None:
        """Let the correction and the blend follow one truth, given what was due for it."""
        lower, upper, *learned = due  # (step, level), NaN where no interval was given
        missed = (truth < lower) | (truth > upper)
        known = lower == lower  # NaN is not itself: unmoved
        moved = self.correction + self.correction_rate * (missed - self._allowed) * known
        self.correction = np.minimum(np.maximum(moved, -self._limit), self._limit)
        if self._blend is not None:
            mean, below, above = learned
            with np.errstate(divide="ignore", invalid="ignore"):  # of widths of zero
                self._blend.follow(np.where(truth < mean, (mean - truth) / below, (truth - mean) / above))

    def _given(self, factor: Array, mean: Array, half_width: Array) -> Array:
        """What waits for its truth: the ends, and for a blend the mean and the learned widths, (side, step, level)."""
        ends = self._ends(factor, mean, half_width)
        if self._blend is None:
            return ends
        return np.concatenate([ends, np.broadcast_to(mean, ends[:1].shape), self.start * half_width.swapaxes(0, 1)])

    def _ends(self, factor: Array, mean: Array, half_width: Array) -> Array:
        lower, upper = mean - factor * half_width[:, 0], mean + factor * half_width[:, 1]
        if lower.shape[1] > 1:
            lower[:, self._outwards] = np.minimum.accumulate(lower[:, self._outwards], axis=1)
            upper[:, self._outwards] = np.maximum.accumulate(upper[:, self._outwards], axis=1)
        return np.stack([lower, upper])


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts of a period, one row for each time at which one was made, and what came.

    Attributes
    ----------
    stamps : the user's time stamps of all forecast steps
    name : str, of the series
    y, prediction : arrays (time, step), y NaN where no value was observed, or the series ended
    lower, upper : arrays (time, step, level), the intervals as they were given
    static_lower, static_upper : arrays (time, step, level)
        The intervals as they would have been if their width had not followed the misses.
    factor : array (time, step, level), by how much live calibration stretched them; 1 without
    levels : tuple of float, from the innermost to the outermost
    n_outside : dict from the name of the series and of each covariate to the forecasts that saw it far outside what was
        learned
    """

    stamps: Any
    name: str
    y: Array
    prediction: Array
    lower: Array
    upper: Array
    static_lower: Array
    static_upper: Array
    factor: Array
    levels: tuple[float, ...]
    n_outside: Mapping[str, int] = field(default_factory=dict)

    @property
    def index(self) -> Any:
        """The user's time stamps of the first forecast step of each row."""
        return self.stamps[: len(self)]

    def __len__(self) -> int:
        return len(self.prediction)

    def __repr__(self) -> str:
        far = "".join(f", {name!r} far outside in {n}" for name, n in self.n_outside.items() if n)
        what = f"{len(self)} forecasts of {self.name}, {self.y.shape[1]} steps ahead, coverage {self.levels}"
        return f"Backtest({what}{far})"

    def scores(self, step: int = 1, level: float | None = None, *, static: bool = False) -> dict[str, float]:
        """Error, coverage, width and interval score of one step ahead and one level, over the values that came.

        Parameters
        ----------
        step : int, how many steps ahead
        level : float, optional, one of the levels; the outermost if None
        static : bool, whether to score the static intervals
        """
        lower, upper = (self.static_lower, self.static_upper) if static else (self.lower, self.upper)
        k, place, came = self._place(step, level)
        y, low, high = self.y[came, k], lower[came, k, place], upper[came, k, place]
        return {
            "rmse": float(metrics.rmse(y, self.prediction[came, k])),
            "coverage": float(metrics.coverage(y, low, high)),
            "width": float(metrics.average_width(low, high)),
            "interval_score": float(metrics.interval_score(y, low, high, self.levels[place])),
        }

    def rolling_coverage(self, window: int = 500, step: int = 1, level: float | None = None) -> Array:
        """The coverage of every `window` values in a row among those that came, (value,)."""
        k, place, came = self._place(step, level)
        y = self.y[came, k]
        inside = (self.lower[came, k, place] <= y) & (y <= self.upper[came, k, place])
        return metrics.rolling_coverage(inside, window)

    def to_frame(self, step: int = 1) -> Any:
        """A pandas data frame of one step ahead: y, prediction, and for each level its bounds."""
        import pandas as pd

        k, _, _ = self._place(step, None)
        columns = {"y": self.y[:, k], "prediction": self.prediction[:, k]}
        for place, level in enumerate(self.levels):
            columns[f"lower_{level:g}"] = self.lower[:, k, place]
            columns[f"upper_{level:g}"] = self.upper[:, k, place]
        return pd.DataFrame(columns, index=pd.Index(self.stamps[k : k + len(self)]))

    def _place(self, step: int, level: float | None) -> tuple[int, int, NDArray[np.bool_]]:
        """The places of a step and a level, and which values came."""
        if not 1 <= step <= self.y.shape[1]:
            raise ValueError(f"step must lie between 1 and the horizon {self.y.shape[1]}, got {step!r}")
        if level is not None and level not in self.levels:
            raise ValueError(f"level must be one of {list(self.levels)}, got {level!r}")
        place = len(self.levels) - 1 if level is None else self.levels.index(level)
        return step - 1, place, ~np.isnan(self.y[:, step - 1])


def _by_origin(due: Array) -> Array:
    """Ends by the time when they are due as a view by the time of their forecast: step h of row t is due at t + h."""
    by_time, by_side, by_step, by_level = due.strides
    shape = (len(due) - due.shape[2] + 1, *due.shape[1:])
    return as_strided(due, shape, (by_time, by_side, by_step + by_time, by_level))


def best_rate(
    trials: Sequence[LiveCalibrator], mean: Array, half_width: Array, y: Array, *, window: int = metrics.ROLLING_WINDOW
) -> float:
    """The rate of the new calibrator that has the lowest interval score, among those that hold their rolling coverage.

    A rate holds it if no `window` forecasts in a row, of any step and level, cover less than p - (1 - p). If none does,
    it is the rate whose worst window covers most. In the score levels weigh alike: it is multiplied by (1 - p) / 2.
    """
    ahead, ranked = truths_ahead(y, mean.shape[1]), []
    for trial in trials:
        levels = levels_from(trial.coverage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FactorBoundWarning)
            lower, upper, _ = trial.run(mean, half_width, y)
        scores, shortfalls = [], [0.0]  # below p - (1 - p)
        for step, place in np.ndindex(lower.shape[1:]):
            known, level = ~np.isnan(ahead[:, step]), levels[place]
            truths, low, high = ahead[known, step], lower[known, step, place], upper[known, step, place]
            scores.append((1 - level) / 2 * float(metrics.interval_score(truths, low, high, level)))
            if len(truths) >= window:
                worst = metrics.rolling_coverage((low <= truths) & (truths <= high), window).min()
                shortfalls.append(round(2 * level - 1 - float(worst), 9))  # 2 x .9 - 1 is a little above .8
        ranked.append((max(shortfalls), float(np.mean(scores)), trial.correction_rate))
    return min(ranked)[2]


def truths_ahead(y: Array, horizon: int) -> Array:
    """The truth of every step of every row, (time, step), NaN beyond the end; y[t] is that of step 1 of row t."""
    return sliding_window_view(np.append(y, np.full(horizon - 1, np.nan)), horizon).copy()


def one_truth(y: Numbers) -> float:
    """The truth of one time as a float; NaN if it is missing."""
    if np.shape(y) != ():
        raise ValueError(f"y must be one finite number, or NaN if it is missing, got {y!r}")
    return float(_array("y", y, missing=True))


def _half_width(scale: Numbers, *leading_and_levels: int) -> Array:
    """A scale of any allowed shape as (..., step, side, level), given the sizes of the leading axes and of level."""
    *leading, n_levels = leading_and_levels
    full, by_level = (*leading, 2, n_levels), (*leading, n_levels)
    values = _array("scale", scale, [full[:k] for k in range(len(leading) + 1)] + [by_level, full], least=0.0)
    values = values[..., None, :] if values.shape == by_level else values
    return np.broadcast_to(values.reshape(values.shape + (1,) * (len(full) - values.ndim)), full)


def _array(name: str, values: Numbers, shapes: Any = None, *, least: float = -math.inf, missing: bool = False) -> Array:
    """The values as float64 of one of these shapes; all finite, or NaN where they may be missing."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":  # text that spells a number is a mistake further up
        raise TypeError(f"{name} must hold numbers, got {array.dtype} from {type(values).__name__}; convert it first")
    odd = np.isinf(array) if missing else ~np.isfinite(array)
    if odd.any():
        allowed, found = (" or NaN where missing", "infinite") if missing else ("", "NaN or infinite")
        raise ValueError(f"{name} must be finite{allowed}, got {odd.sum()} {found} values")
    if shapes is not None and array.shape not in shapes:
        raise ValueError(f"{name} must have one of the shapes {shapes}, got {array.shape}")
    if (array < least).any():
        raise ValueError(f"{name} must not be negative, got {array.min():g}")
    return array.astype(np.float64)
