"""What past forecasts tell a live calibrator: the factor to start from, and the rate at which to follow the misses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import Estimate, rank_factor, stretch_scores
from coverwell.estimator import check_count
from coverwell.forecasting.live_factors import LiveFactors
from coverwell.forecasting.live_input import Numbers, checked_period, numbers, truths_ahead
from coverwell.metrics import ROLLING_WINDOW, interval_score, rolling_coverage
from coverwell.preparation import levels_from

__all__ = ["choose_rate", "forecasts_behind", "rank_start"]

Array = NDArray[np.float64]

# What `choose_rate` tries. Lower rates let the coverage of a few hundred steps sink when the series drifts.
RATES = (0.05, 0.1, 0.2, 0.4)


def choose_rate(
    estimate: Estimate,
    y: Numbers,
    coverage: float | Sequence[float] | Array,
    *,
    candidates: Sequence[float] = RATES,
    window: int = ROLLING_WINDOW,
    start: Numbers | None = None,
    farthest: float = 20.0,
) -> float:
    """The rate with the lowest interval score over past forecasts, among those that hold their rolling coverage.

    A rate holds it if no `window` judged forecasts in a row, of any step and level, cover less than p - (1 - p). If
    none does, it is the rate whose worst window covers most. Steps with fewer than `window` judged forecasts only count
    in the score, where levels weigh alike: the interval score times (1 - p) / 2.

    Parameters
    ----------
    estimate : Estimate
        Honest forecasts in time order: mean (time, step), reach (time, step, side, level).
    y : array-like (time,)
        Their truths, as in `run_live`.
    coverage : float or sequence of float
        Level or levels, each in (0, 1).
    candidates : sequence of float
        The rates to try.
    window : int
        Judged forecasts in a window.
    start : float or array (level,) or (step, level), optional
        The factor at the start; if None, the coverage rank of these forecasts.
    farthest : float
        See `LiveCalibrator`.
    """
    levels = levels_from(coverage)
    check_count("window", window)
    if not len(candidates):
        raise ValueError("candidates must hold at least one rate, got none")
    mean = numbers("estimate.mean", estimate.mean)
    horizon = mean.shape[1] if mean.ndim == 2 else 1
    estimate, truths = checked_period(estimate, y, horizon, len(levels))
    ahead = truths_ahead(truths, horizon)
    if start is None:
        start = rank_start(ahead - estimate.mean, estimate, levels)
    trials = []
    for rate in candidates:
        trial = LiveFactors(levels, rate=rate, horizon=horizon, start=start, farthest=farthest)
        ends, _, _ = trial.run(estimate, truths)
        score, shortfall = _measured(ends[..., trial.as_asked], ahead, levels, window)
        trials.append((max(shortfall, 0.0), score, float(rate)))
    return min(trials)[2]


def rank_start(errors: Array, estimate: Estimate, levels: tuple[float, ...]) -> Array:
    """The coverage rank (step, level) of what each interval had to be stretched by; errors (time, step) may be NaN."""
    start = np.empty((errors.shape[1], len(levels)))
    for h, known in enumerate(~np.isnan(errors.T)):
        around_zero = Estimate(np.zeros((known.sum(), 1)), estimate.reach[known, h : h + 1])
        start[h] = rank_factor(stretch_scores(errors[known, h : h + 1], around_zero), levels)[0]
    if not (start > 0).all():
        raise ValueError(
            f"the residual at the rank of coverage {levels} is 0, and no factor can grow from there: give residuals of "
            "rows that the forecaster was not trained on, or a start of your own"
        )
    return start


def forecasts_behind(errors: Array, reach: Array) -> tuple[Estimate, Array]:
    """Forecasts and truths (all 0) with these errors (time, step); a time with any NaN error has no truth."""
    y = np.zeros(len(errors))
    for h in range(errors.shape[1]):
        y[h:][np.isnan(errors[: len(errors) - h, h])] = np.nan
    return Estimate(-np.nan_to_num(errors), reach), y


def _measured(ends: Array, truths: Array, levels: tuple[float, ...], window: int) -> tuple[float, float]:
    """The mean score, and by how much the worst window falls below p - (1 - p), over all steps and levels."""
    scores, shortfalls = [], [-math.inf]
    for step, y in enumerate(truths.T):
        known = ~np.isnan(y)
        for position, level in enumerate(levels):
            lower, upper = ends[known, :, step, position].T
            scores.append((1 - level) / 2 * float(interval_score(y[known], lower, upper, level)))
            if known.sum() >= window:
                worst = rolling_coverage((lower <= y[known]) & (y[known] <= upper), window).min()
                shortfalls.append(round(2 * level - 1 - float(worst), 9))  # 2 x .9 - 1 is a little above .8
    return float(np.mean(scores)), float(max(shortfalls))
