"""What live calibration is given, as checked arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.calibration import Estimate
from coverwell.estimator import check_count, check_number

__all__ = [
    "Numbers",
    "check_finite_number",
    "checked_period",
    "finite",
    "numbers",
    "one_truth",
    "reach_from",
    "start_factor",
    "truths_ahead",
]

Array = NDArray[np.float64]
# numpy counts a float as array-like by way of complex, which checks at run time do not follow.
Numbers = ArrayLike | float | int


def truths_ahead(y: Numbers, horizon: int) -> Array:
    """The truth of every step of every row, (time, step), NaN beyond the end; y[t] is what step 1 of row t was about.

    Examples
    --------
    >>> truths_ahead([1.0, 2.0, 3.0], horizon=2)
    array([[ 1.,  2.],
           [ 2.,  3.],
           [ 3., nan]])
    """
    check_count("horizon", horizon)
    values = numbers("y", y)
    if values.ndim != 1:
        raise ValueError(f"y must have the shape (time,), got {values.shape}")
    padded = np.concatenate([values, np.full(horizon - 1, np.nan)])
    return np.stack([padded[h : h + len(values)] for h in range(horizon)], axis=1)


def one_truth(y: Numbers) -> float:
    """The truth of one time as a float; NaN if it is missing."""
    value = numbers("y", y)
    if value.shape != () or np.isinf(value):
        raise ValueError(f"y must be one finite number, or NaN if it is missing, got {y!r}")
    return float(value)


def checked_period(estimate: Estimate, y: Numbers, horizon: int, n_levels: int) -> tuple[Estimate, Array]:
    """Forecasts and truths of a whole period as float64 arrays that fit together; a truth may be NaN."""
    truths = numbers("y", y)
    if truths.ndim != 1 or np.isinf(truths).any():
        raise ValueError(
            f"y must have the shape (time,) and hold finite numbers, or NaN where one is missing, got "
            f"shape {truths.shape} and {np.isinf(truths).sum()} infinite values"
        )
    mean, reach = finite("estimate.mean", estimate.mean), finite("estimate.reach", estimate.reach)
    shape = (len(truths), horizon)
    if mean.shape != shape or reach.shape != (*shape, 2, n_levels):
        raise ValueError(
            f"estimate must have a mean {shape} of (time, step) and a reach {(*shape, 2, n_levels)} of "
            f"(time, step, side, level), got {mean.shape} and {reach.shape}"
        )
    if (reach < 0).any():
        raise ValueError(f"estimate.reach must not be negative, got {reach.min():g}")
    return Estimate(mean, reach), truths


def start_factor(start: Numbers, horizon: int, n_levels: int) -> Array:
    """A start of any allowed shape as (step, level)."""
    values = finite("start", start)
    if values.shape not in ((), (n_levels,), (horizon, n_levels)):
        raise ValueError(
            f"start must be a number or have the shape ({n_levels},) or {(horizon, n_levels)} of (step, "
            f"level), got {values.shape}"
        )
    if not (values > 0).all():
        raise ValueError(f"start must be positive, got {values.min():g}")
    return np.broadcast_to(values, (horizon, n_levels)).copy()


def reach_from(scale: Numbers, *leading_and_levels: int) -> Array:
    """A scale of any allowed shape as (..., step, side, level); given the sizes of the leading axes, step and level."""
    values = finite("scale", scale)
    *leading, n_levels = leading_and_levels
    full = (*leading, 2, n_levels)
    shapes = [(), *(full[:k] for k in range(1, len(leading) + 1)), (*leading, n_levels), full]
    if values.shape not in shapes:
        raise ValueError(f"scale must have one of the shapes {shapes}, got {values.shape}")
    if (values < 0).any():
        raise ValueError(f"scale must not be negative, got {values.min():g}")
    if values.shape == (*leading, n_levels):
        values = values[..., None, :]
    else:
        values = values.reshape(values.shape + (1,) * (len(full) - values.ndim))
    return np.broadcast_to(values, full)


def numbers(name: str, values: Numbers) -> Array:
    """The values as float64, NaN and infinity among them."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":  # text that spells a number is a mistake further up
        raise TypeError(f"{name} must hold numbers, got {array.dtype} from {type(values).__name__}; convert it first")
    return array.astype(np.float64)


def finite(name: str, values: Numbers) -> Array:
    """The values as float64, all finite."""
    array = numbers(name, values)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {np.sum(~np.isfinite(array))} NaN or infinite values")
    return array


def check_finite_number(name: str, value: Any, *, above: float) -> None:
    """Raise unless the value is a finite number above a limit."""
    check_number(name, value, above=above)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
