"""Metrics as plain functions of arrays: errors, coverage and the coverage to expect, widths, scores.

`y`, `y_hat`, `lower` and `upper` are `(n,)` for one target, which gives a float, or `(n, target)`, which gives an array
`(target,)`. Several coverage levels have the last axis: `(n, level)` or `(n, target, level)`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.stats import betabinom, binom

from coverwell.class_metrics import (
    brier_score,
    coverage_by_set_size,
    expected_reliability_error,
    log_loss,
    reliability,
    reliability_error,
)
from coverwell.options import check_count, check_share, coverage_rank
from coverwell.prediction import PredictedDistribution
from coverwell.slices import by_quantile

__all__ = [
    "average_width",
    "brier_score",
    "calibration_curve",
    "calibration_error",
    "constant_width",
    "coverage",
    "coverage_band",
    "coverage_by_set_size",
    "coverage_by_size",
    "coverage_rank",
    "crps",
    "expected_calibration_error",
    "expected_reliability_error",
    "interval_score",
    "iou",
    "joint_coverage",
    "log_loss",
    "pinball",
    "reliability",
    "reliability_error",
    "rmse",
    "rolling_coverage",
    "weighted_interval_score",
    "worst_slab_coverage",
]

Array = NDArray[np.float64]
Score = float | Array

FEWEST_LEVELS = 9  # with fewer, the trapezoid of the weighted interval score is no longer close to the CRPS
COUNT_ROUNDING = 1e-6  # a share times its count is that count up to floating-point rounding
FEWEST_IN_SLAB = 10  # rows
SLAB_NUMBERS = 2**22  # projections at a time
ROLLING_WINDOW = 500  # rows: the share inside has a standard error of .01 at coverage .95


def rmse(y: ArrayLike, y_hat: ArrayLike) -> Score:
    """Root mean squared error.

    Examples
    --------
    >>> rmse([0.0, 0.0], [3.0, -3.0])
    3.0
    """
    y, y_hat = _arrays(y=y, y_hat=y_hat)
    return _score(np.sqrt(((y - y_hat) ** 2).mean(axis=0)))


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Score:
    """Share of rows whose target lies inside its interval, bounds included.

    Examples
    --------
    >>> coverage([1.0, 2.0, 3.0, 9.0], [0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0])
    0.75
    """
    return _score(_inside(*_arrays(y=y, lower=lower, upper=upper)).mean(axis=0))


def joint_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of rows with every target inside its interval, bounds included.

    Examples
    --------
    >>> joint_coverage([[1.0, 2.0], [1.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]], [[3.0, 3.0], [3.0, 3.0]])
    0.5
    """
    inside = _inside(*_arrays(y=y, lower=lower, upper=upper))
    return float(inside.reshape(len(inside), -1).all(axis=1).mean())


def rolling_coverage(inside: ArrayLike, window: int = ROLLING_WINDOW) -> Array:
    """Share inside over every `window` consecutive rows: booleans (time, ...) -> shares (time - window + 1, ...).

    Examples
    --------
    >>> rolling_coverage([True, True, False, False], window=2)
    array([1. , 0.5, 0. ])
    """
    check_count("window", window)
    rows = np.asarray(inside)
    if rows.dtype != np.bool_:
        raise ValueError(f"inside must hold True and False, got {rows.dtype}; compare the targets with their bounds")
    if rows.ndim == 0 or len(rows) < window:
        raise ValueError(f"inside must hold at least one window of {window} rows, got shape {rows.shape}")
    counts = np.concatenate([np.zeros_like(rows[:1], dtype=np.int64), rows.cumsum(axis=0)])
    return np.asarray((counts[window:] - counts[:-window]) / window)


def calibration_error(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, asked: float) -> Score:
    """Distance between the coverage and the asked level; even exact ranks miss it (`expected_calibration_error`).

    Examples
    --------
    >>> calibration_error([1.0, 2.0, 3.0, 9.0], [0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0], asked=0.5)
    0.25
    """
    check_share("asked", asked)
    return _score(np.abs(_inside(*_arrays(y=y, lower=lower, upper=upper)).mean(axis=0) - asked))


# Exact ranks cover a new row when its score is at most the k-th smallest of n_train exchangeable scores without ties,
# k = ceil((n_train + 1) p). Given these, they cover with probability B ~ Beta(k, n_train + 1 - k), and cover
#     C ~ BetaBin(n_test; k, n_train + 1 - k)
# of n_test new rows. So C / n_test scatters around p even for a perfect method.


def expected_calibration_error(asked: float, n_test: int, n_train: int | None) -> float:
    """Calibration error to expect of exact ranks, E|C / n_test - asked| with C ~ BetaBin(n_test; k, n_train + 1 - k).

    Parameters
    ----------
    asked : float, in (0, 1)
    n_test : int, rows on which the coverage was counted
    n_train : int or None, rows whose ranks set the intervals; without ranks, C ~ Bin(n_test; asked)

    Examples
    --------
    >>> round(expected_calibration_error(0.9, n_test=100, n_train=400), 3)
    0.027
    """
    shares, probabilities = _coverage_law(asked, n_test, n_train)
    return float(np.abs(shares - asked) @ probabilities)


def coverage_band(asked: float, n_test: int, n_train: int | None, *, probability: float = 0.9) -> tuple[float, float]:
    """Lowest and highest coverage in the central band of what exact ranks give.

    Parameters
    ----------
    asked, n_test, n_train : as in `expected_calibration_error`
    probability : float, which the band holds at least, with at most half of the rest on either side

    Examples
    --------
    >>> coverage_band(0.9, n_test=100, n_train=400)
    (0.84, 0.95)
    """
    check_share("probability", probability)
    shares, probabilities = _coverage_law(asked, n_test, n_train)
    up_to = probabilities.cumsum()
    lowest, highest = np.searchsorted(up_to / up_to[-1], [(1 - probability) / 2, (1 + probability) / 2])
    return float(shares[lowest]), float(shares[highest])


def coverage_by_size(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, n_parts: int = 5) -> Array:
    """Coverage of the narrowest intervals, of the next ones, up to the widest: (part,) or (target, part).

    Rows are cut at quantiles of the width, and equal widths stay together; parts that are left empty are NaN. Intervals
    that hold for each x have every part near the asked level; `np.nanmin` is the worst part.

    Examples
    --------
    >>> coverage_by_size([0.0, 3.0, 5.0, 0.0], [-1.0, -1.0, -2.0, -2.0], [1.0, 1.0, 2.0, 2.0], n_parts=2)
    array([0.5, 0.5])
    """
    y, lower, upper = _arrays(y=y, lower=lower, upper=upper)
    check_count("n_parts", n_parts)
    inside, width = (values.reshape(len(y), -1) for values in (_inside(y, lower, upper), upper - lower))
    shares = np.full((width.shape[1], n_parts), np.nan)
    for target in range(width.shape[1]):
        part = by_quantile(width[:, target], n_parts)[1]
        n_rows, n_inside = np.bincount(part), np.bincount(part, weights=inside[:, target])
        shares[target, : len(n_rows)] = n_inside / n_rows
    return shares if y.ndim > 1 else shares[0]


# A slab is what lies between two parallel planes. The slab with the largest share of misses maximises their number less
# a rate for each of its rows, once that rate is its own share: from below, a few steps reach it (Dinkelbach 1967).


def worst_slab_coverage(
    X: ArrayLike,
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    share: float = 0.2,
    n_directions: int = 1000,
    random_state: int = 0,
) -> Score:
    """Coverage of the rows between two parallel planes where it seems lowest (Cauchois, Gupta and Duchi 2021).

    Among all slabs across random directions that hold a share of the rows, the one with the lowest coverage on one half
    of the rows is judged on the other half, then the other way round. So choosing does not lower it: intervals that
    hold for each x have it near the asked level, within the noise of the rows of one slab.

    Parameters
    ----------
    X : array-like (n, feature) of numbers; each is divided by its standard deviation
    y, lower, upper : array-like (n,) or (n, target)
    share : float, of the rows that a slab holds at least
    n_directions : int
    random_state : int, seed of the directions and halves

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.where(X[:, 0] < 0.25, 2.0, 0.5) * rng.normal(size=1000)
    >>> coverage(y, np.full(1000, -1.7), np.full(1000, 1.7)) > 0.85
    True
    >>> worst_slab_coverage(X, y, np.full(1000, -1.7), np.full(1000, 1.7)) < 0.7
    True
    """
    y, lower, upper = _arrays(y=y, lower=lower, upper=upper)
    rows = _finite("X", X)
    check_share("share", share)
    check_count("n_directions", n_directions)
    if rows.ndim != 2 or len(rows) != len(y):
        raise ValueError(f"X must have the shape (n, feature) with a row for each of {len(y)}, got {rows.shape}")
    least = int(np.ceil(share * (len(y) // 2) - COUNT_ROUNDING))
    if least < FEWEST_IN_SLAB:
        needed = int(np.ceil(2 * FEWEST_IN_SLAB / share))
        raise ValueError(f"a slab of a share of {share:g} needs at least {needed} rows, got {len(y)}; give more rows")
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    rng = np.random.default_rng(random_state)
    order, directions = rng.permutation(len(y)), rng.normal(size=(n_directions, rows.shape[1]))
    first, second = order[: len(y) // 2], order[len(y) // 2 :]
    found = []
    for missed in ~_inside(y, lower, upper).reshape(len(y), -1).T:
        counts = np.zeros(2)
        for chosen, judged in ((first, second), (second, first)):
            direction, low, high = _worst_slab(rows[chosen], missed[chosen], directions, least)
            place = rows[judged] @ direction
            held = missed[judged][(low <= place) & (place <= high)]
            counts += len(held) - held.sum(), len(held)
        found.append(counts[0] / counts[1])
    return _score(np.array(found) if y.ndim > 1 else np.float64(found[0]))


def _worst_slab(rows: Array, missed: NDArray[np.bool_], directions: Array, least: int) -> tuple[Array, float, float]:
    """The direction and both ends of the slab of at least so many rows with the largest share of misses."""
    rate, slab = -1.0, (directions[0], -np.inf, np.inf)
    for some in np.array_split(directions, -(-len(rows) * len(directions) // SLAB_NUMBERS)):
        place = some @ rows.T  # (direction, row)
        order = np.argsort(place, axis=1)
        up_to = np.pad(missed[order].cumsum(axis=1), ((0, 0), (1, 0)))  # misses before each row
        while True:
            excess = up_to - rate * np.arange(len(rows) + 1)
            gain = excess[:, least:] - np.minimum.accumulate(excess[:, :-least], axis=1)
            best, end = np.unravel_index(gain.argmax(), gain.shape)
            if gain[best, end] <= COUNT_ROUNDING:
                break
            start, end = excess[best, : end + 1].argmin(), end + least
            rate = (up_to[best, end] - up_to[best, start]) / (end - start)
            slab = some[best], *place[best, order[best, [start, end - 1]]].tolist()
    return slab


def average_width(lower: ArrayLike, upper: ArrayLike) -> Score:
    """Mean width of the intervals.

    Examples
    --------
    >>> average_width([0.0, 1.0], [1.0, 4.0])
    2.0
    """
    lower, upper = _arrays(lower=lower, upper=upper)
    return _score((upper - lower).mean(axis=0))


def constant_width(y: ArrayLike, y_hat: ArrayLike, coverage: float | ArrayLike) -> Score:
    """Width of the narrowest intervals around the predictions that all have the same width and cover a given share.

    A smaller mean width is what knowing where to be wide has gained. `coverage` is the share of these rows to cover, in
    [0, 1]: one per target, or one for all.

    Examples
    --------
    >>> constant_width([1.0, -2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], coverage=0.75)
    6.0
    """
    y, y_hat = _arrays(y=y, y_hat=y_hat)
    shares = _finite("coverage", np.asarray(coverage))
    if shares.shape not in ((), y.shape[1:]) or shares.min() < 0 or shares.max() > 1:
        raise ValueError(f"coverage must be shares in [0, 1], one or one per target of {y.shape}, got {coverage!r}")
    n_inside = np.ceil(np.broadcast_to(shares, y.shape[1:]) * len(y) - COUNT_ROUNDING).astype(np.intp)
    errors = np.concatenate([np.zeros_like(y[:1]), np.sort(np.abs(y - y_hat), axis=0)])  # [k] covers k rows
    return _score(2 * np.take_along_axis(errors, n_inside[None], axis=0)[0])


def interval_score(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, asked: float) -> Score:
    """Mean interval score (Winkler; Gneiting and Raftery 2007): width plus a penalty for misses. Lower is better.

    The penalty is 2 / (1 - asked) times the distance to the interval. The true quantiles at (1 - asked) / 2 and
    (1 + asked) / 2 have the lowest score on average, so it rewards intervals that are sharp *and* calibrated.

    Examples
    --------
    >>> interval_score([1.0, 3.0], [0.0, 0.0], [2.0, 2.0], asked=0.75)
    6.0
    """
    check_share("asked", asked)
    y, lower, upper = _arrays(y=y, lower=lower, upper=upper)
    missed_by = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return _score((upper - lower + 2 / (1 - asked) * missed_by).mean(axis=0))


def pinball(y: ArrayLike, quantile: ArrayLike, level: float) -> Score:
    """Mean pinball loss of predicted quantiles at a level in (0, 1). Lower is better, and lowest at the true quantile.

    Examples
    --------
    >>> pinball([1.0, -1.0], [0.0, 0.0], level=0.75)
    0.5
    """
    check_share("level", level)
    y, quantile = _arrays(y=y, quantile=quantile)
    return _score(_pinball(y, quantile, level).mean(axis=0))


def crps(y: ArrayLike, distribution: PredictedDistribution) -> Score:
    """Mean continuous ranked probability score of predicted distributions, exact. Lower is better.

    It is twice the pinball loss averaged over all levels, in the units of the target. The true distribution has the
    lowest score on average; that of a forecast of one point is its absolute error.

    Examples
    --------
    >>> from coverwell.prediction import PredictedDistribution
    >>> point = PredictedDistribution(np.array([0.1, 0.9]), np.zeros((2, 2)))
    >>> crps([3.0, -1.0], point)
    2.0
    """
    (y,) = _arrays(y=y)
    return _score(distribution.crps(y).mean(axis=0))


# The weighted interval score. With q(t) the quantile function of the forecast,
#     CRPS = 2 * integral over t in (0, 1) of pinball_t(y, q(t)).
# We know q at K levels t_1 < ... < t_K: both ends (1 - p) / 2 and (1 + p) / 2 of every interval, and the median at 1/2.
# The score is the trapezoid rule over them, with a loss of 0 at t = 0 and 1 as for any forecast with a finite mean.


def weighted_interval_score(
    y: ArrayLike, median: ArrayLike, lower: ArrayLike, upper: ArrayLike, asked: ArrayLike
) -> Score:
    """Mean weighted interval score: the pinball losses of all bounds and the median, a trapezoid close to the CRPS.

    Parameters
    ----------
    y, median : array-like (n,) or (n, target)
    lower, upper : array-like (n, level) or (n, target, level)
    asked : array-like (level,), at least nine different coverage levels in (0, 1), in the order of the bounds

    Examples
    --------
    >>> levels, point = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [[0.0] * 9]
    >>> round(weighted_interval_score([1.0], [0.0], point, point, levels), 4)
    0.95
    """
    y, median = _arrays(y=y, median=median)
    lower, upper, asked = _nested_bounds(y, lower, upper, asked)
    if len(asked) < FEWEST_LEVELS:
        needed = f"the weighted interval score needs at least {FEWEST_LEVELS} coverage levels"
        raise ValueError(f"{needed}, got {len(asked)}: ask for more levels, or use interval_score for each")
    levels = np.concatenate([[0.0], (1 - asked) / 2, [0.5], (1 + asked) / 2, [1.0]])
    quantiles = np.concatenate([lower, median[..., None], upper], axis=-1)  # (n, target, 2 * level + 1)
    losses = np.zeros((*y.shape, len(levels)))
    losses[..., 1:-1] = _pinball(y[..., None], quantiles, levels[1:-1])
    order = np.argsort(levels)
    return _score(2 * trapezoid(losses[..., order], levels[order]).mean(axis=0))


def calibration_curve(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, asked: ArrayLike) -> Array:
    """Coverage at every asked level, (level,) or (target, level); arguments as in `weighted_interval_score`.

    Examples
    --------
    >>> calibration_curve([0.0, 2.0], [[-1.0, -3.0], [-1.0, -3.0]], [[1.0, 3.0], [1.0, 3.0]], asked=[0.5, 0.9])
    array([0.5, 1. ])
    """
    (y,) = _arrays(y=y)
    lower, upper, _ = _nested_bounds(y, lower, upper, asked)
    return np.asarray(_inside(y[..., None], lower, upper).mean(axis=0))  # (n, target, level) -> (target, level)


def iou(boxes: ArrayLike, others: ArrayLike) -> float:
    """Mean intersection over union of boxes and the others in the same rows: 1 where equal, 0 where disjoint.

    Boxes are (n, 4): left, top, width and height. A box has no area unless its width and height are above 0.

    Examples
    --------
    >>> round(iou([[0.0, 0.0, 1.0, 1.0]], [[0.5, 0.0, 1.0, 1.0]]), 4)
    0.3333
    """
    boxes, others = _arrays(boxes=boxes, others=others)
    if boxes.shape[1:] != (4,):
        raise ValueError(f"boxes must have the shape (n, 4): left, top, width and height; got {boxes.shape}")
    start = np.maximum(boxes[:, :2], others[:, :2])
    end = np.minimum(boxes[:, :2] + boxes[:, 2:], others[:, :2] + others[:, 2:])
    common, area, other = (np.maximum(sides, 0.0).prod(axis=1) for sides in (end - start, boxes[:, 2:], others[:, 2:]))
    union = area + other - common
    return float(np.divide(common, union, out=np.zeros_like(common), where=union > 0).mean())


def _coverage_law(asked: float, n_test: int, n_train: int | None) -> tuple[Array, Array]:
    """Every share of `n_test` rows that can be covered, and its probability."""
    check_count("n_test", n_test)
    check_share("asked", asked)
    covered = np.arange(n_test + 1)
    if n_train is None:
        return covered / n_test, binom.pmf(covered, n_test, asked)
    rank = coverage_rank(asked, n_train)
    return covered / n_test, betabinom.pmf(covered, n_test, rank, n_train + 1 - rank)


def _inside(y: Array, lower: Array, upper: Array) -> NDArray[np.bool_]:
    return (lower <= y) & (y <= upper)


def _pinball(y: Array, quantile: Array, level: Array | float) -> Array:
    return np.maximum(level * (y - quantile), (level - 1) * (y - quantile))


def _score(value: Array | np.float64) -> Score:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def _arrays(**named: ArrayLike) -> list[Array]:
    """The arguments as finite float64 arrays of one shape, (n,) or (n, target), no lower bound above its upper one."""
    arrays = {name: _finite(name, values) for name, values in named.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or next(iter(arrays.values())).ndim not in (1, 2):
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"expected arrays of one shape, (n,) or (n, target), got {got}")
    if "upper" in arrays:
        _check_order(arrays["lower"], arrays["upper"])
    return list(arrays.values())


def _nested_bounds(y: Array, lower: ArrayLike, upper: ArrayLike, asked: ArrayLike) -> tuple[Array, Array, Array]:
    """Bounds with a level axis after the axes of y, and the levels."""
    lower, upper, asked = _finite("lower", lower), _finite("upper", upper), _finite("asked", asked)
    if asked.ndim != 1 or lower.shape != (*y.shape, len(asked)) or upper.shape != lower.shape:
        expected = "expected bounds of shape (n, level) or (n, target, level) and asked of shape (level,)"
        got = f"y {y.shape}, lower {lower.shape}, upper {upper.shape}, asked {asked.shape}"
        raise ValueError(f"{expected}, got {got}")
    for share in asked:
        check_share("asked", float(share))
    if len(np.unique(asked)) < len(asked):
        raise ValueError(f"the levels in asked must differ from each other, got {asked.tolist()}")
    _check_order(lower, upper)
    return lower, upper, asked


def _finite(name: str, values: ArrayLike) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {np.sum(~np.isfinite(array))} NaN or infinite values")
    return array


def _check_order(lower: Array, upper: Array) -> None:
    crossed = lower > upper
    if crossed.any():
        raise ValueError(f"lower must not lie above upper, but does in {crossed.sum()} of {crossed.size} places")
