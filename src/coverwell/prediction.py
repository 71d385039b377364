"""What users get for their rows: predictions, lower and upper bounds, and whole distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.class_metrics import places_or_none
from coverwell.options import check_count, check_share, levels_from
from coverwell.tables import needed_polars

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

BETWEEN_CLASSES = "|"  # of a set in a text file


@dataclass(eq=False, repr=False)
class PredictionInterval:
    """Lower and upper bounds for every row, target and level; unpacks into the two arrays.

    Parameters
    ----------
    lower, upper : ndarray
        `(n,)` for a one-dimensional target, `(n, target)` for two dimensions; a level axis last if several levels were
        asked for as a sequence.
    coverage : float or tuple of float
        The asked level, or levels.
    target_names : tuple of str
        One name per target.
    index : array-like, optional
        The user's row labels, kept for `to_frame`.

    Examples
    --------
    >>> import numpy as np
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> lower, upper = interval
    >>> interval.width
    array([2., 3.])
    >>> interval.contains([1.0, 9.0])
    array([ True, False])
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    _: KW_ONLY
    coverage: float | tuple[float, ...]
    target_names: tuple[str, ...] = ("y",)
    index: Any = None

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return iter((self.lower, self.upper))

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        return f"PredictionInterval({len(self)} rows, targets {list(self.target_names)}, coverage {self.coverage})"

    @property
    def width(self) -> NDArray[np.float64]:
        """Distance between the bounds, in the units of the target."""
        return self.upper - self.lower

    def contains(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether each value lies within its bounds, ends included; shaped as the bounds."""
        values = np.asarray(y, dtype=np.float64)
        row_shape = self.lower.shape[:-1] if isinstance(self.coverage, tuple) else self.lower.shape
        if values.shape != row_shape:
            raise ValueError(f"y must have the shape {row_shape} of the predictions, got {values.shape}")
        if isinstance(self.coverage, tuple):
            values = values[..., None]
        return (self.lower <= values) & (values <= self.upper)

    def to_frame(self) -> pd.DataFrame:
        """A pandas data frame with columns (target, coverage, bound) and the user's index."""
        import pandas as pd  # an optional companion: only this method needs it

        levels = self.coverage if isinstance(self.coverage, tuple) else (self.coverage,)
        shape = (len(self), len(self.target_names), len(levels))
        lower, upper = self.lower.reshape(shape), self.upper.reshape(shape)
        columns = {
            (name, level, bound): values[:, t, k]
            for t, name in enumerate(self.target_names)
            for k, level in enumerate(levels)
            for bound, values in (("lower", lower), ("upper", upper))
        }
        frame = pd.DataFrame(columns, index=self.index)
        frame.columns = pd.MultiIndex.from_tuples(list(columns), names=["target", "coverage", "bound"])
        return frame


@dataclass(eq=False, repr=False)
class PredictionSet:
    """Which classes are in the set of every row and level.

    Parameters
    ----------
    members : ndarray of bool
        `(n, class)`; a level axis last if several levels were asked for as a sequence.
    coverage : float or tuple of float
        The asked level, or levels.
    classes : ndarray (class,)
    index : array-like, optional
        The user's row labels, kept for `to_frame`.

    Examples
    --------
    >>> import numpy as np
    >>> found = PredictionSet(np.array([[True, False], [True, True]]), coverage=0.9, classes=np.array(["cat", "dog"]))
    >>> found.size
    array([1, 2])
    >>> found.contains(["dog", "dog"])
    array([False,  True])
    >>> found.to_list()
    [['cat'], ['cat', 'dog']]
    """

    members: NDArray[np.bool_]
    _: KW_ONLY
    coverage: float | tuple[float, ...]
    classes: NDArray[Any]
    index: Any = None

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"PredictionSet({len(self)} rows, {len(self.classes)} classes, coverage {self.coverage})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.members, dtype=dtype, copy=copy)

    @property
    def size(self) -> NDArray[np.intp]:
        """How many classes are in each set."""
        size: NDArray[np.intp] = self.members.sum(axis=1)
        return size

    def contains(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether the class of each row is in its set; a class that was never seen is in none."""
        labels = np.asarray(y)
        if labels.shape != (len(self),):
            raise ValueError(f"y must have one class for each of {len(self)} rows, got the shape {labels.shape}")
        place = places_or_none(labels, self.classes)
        known, inside = place >= 0, self.members[np.arange(len(self)), place]
        found: NDArray[np.bool_] = inside & (known if inside.ndim == 1 else known[:, None])
        return found

    def to_list(self) -> list[list[Any]]:
        """The classes in each set, for one level."""
        if self.members.ndim > 2:
            raise ValueError("to_list takes the sets of one level; ask predict_set for coverage=0.9, not a sequence")
        return [self.classes[row].tolist() for row in self.members]

    def to_frame(self) -> pd.DataFrame:
        """A pandas data frame of booleans with columns (coverage, class) and the user's index."""
        import pandas as pd  # an optional companion: only this method needs it

        levels = self.coverage if isinstance(self.coverage, tuple) else (self.coverage,)
        members = self.members.reshape(len(self), len(self.classes), len(levels))
        columns = pd.MultiIndex.from_product([levels, self.classes], names=["coverage", "class"])
        return pd.DataFrame(members.swapaxes(1, 2).reshape(len(self), -1), index=self.index, columns=columns)


# The distribution. With quantiles v_1 <= ... <= v_K at the levels p_1 < ... < p_K, the quantile function Q is linear
# between neighbours. Beyond them it goes on as the exponential through the two outermost quantiles:
#     Q(u) = v_1 + below log(u / p_1),              u < p_1,  below = (v_2 - v_1) / log(p_2 / p_1)
#     Q(u) = v_K - above log((1 - u) / (1 - p_K)),  u > p_K,  above = (v_K - v_{K-1}) / log((1 - p_{K-1}) / (1 - p_K))
# Equal quantiles are an atom. Where the two outermost ones are equal, there is no tail.


@dataclass(eq=False, repr=False)
class PredictedDistribution:
    """The distribution of the target of every row, from its quantiles; each target has its own.

    Between the levels, quantiles are interpolated linearly. Beyond the outermost ones, tails are exponential, through
    the two quantiles nearest to the end. Equal quantiles are an atom, a value with a probability of its own.

    Parameters
    ----------
    levels : ndarray (level,)
        At least two shares in (0, 1), ascending.
    values : ndarray (n, level) for a one-dimensional target, (n, target, level) for two dimensions
        The quantiles at these levels; they never fall from one level to the next.
    target_names : tuple of str
        One name per target.
    index : array-like, optional
        The user's row labels, kept for `to_frame` and `interval`.

    Examples
    --------
    >>> import numpy as np
    >>> levels, values = np.array([0.25, 0.5, 0.75]), np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 3.0]])
    >>> distribution = PredictedDistribution(levels, values)
    >>> distribution.quantile(0.625)
    array([3. , 1.5])
    >>> distribution.cdf([1.5, 0.0])
    array([0.375, 0.5  ])
    >>> distribution.crps([2.0, 2.0]).round(3)
    array([0.573, 0.906])
    """

    levels: Array
    values: Array
    _: KW_ONLY
    target_names: tuple[str, ...] = ("y",)
    index: Any = None

    def __post_init__(self) -> None:
        self.levels, self.values = (np.asarray(given, dtype=np.float64) for given in (self.levels, self.values))
        shares = self.levels
        if shares.ndim != 1 or len(shares) < 2 or not (np.diff(shares, prepend=0.0, append=1.0) > 0).all():
            raise ValueError(f"levels must be at least two ascending shares in (0, 1), got {shares.tolist()}")
        if self.values.ndim not in (2, 3) or self.values.shape[-1] != len(shares):
            shapes = f"(n, {len(shares)}) or (n, target, {len(shares)})"
            raise ValueError(f"values must have the shape {shapes}, one per level, got {self.values.shape}")
        if not (np.isfinite(self.values).all() and (self.values[..., 1:] >= self.values[..., :-1]).all()):
            raise ValueError("values must be finite and never fall from one level to the next; sort the last axis")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        targets = list(self.target_names)
        return f"PredictedDistribution({len(self)} rows, targets {targets}, {len(self.levels)} levels)"

    def cdf(self, y: float | ArrayLike) -> Array:
        """The probability of at most y, per row and target; y is one number, or shaped as the target was."""
        y, (below, above) = self._checked(y), self._tails
        first, last = self.values[..., 0], self.values[..., -1]
        place = (self.values <= y[..., None]).sum(axis=-1).clip(1, len(self.levels) - 1)
        start, end = (np.take_along_axis(self.values, at[..., None], axis=-1)[..., 0] for at in (place - 1, place))
        inside = _linear(y, start, end, self.levels[place - 1], self.levels[place])
        outside = np.where(
            y < first,
            _share_beyond(first - y, below, self.levels[0]),
            1 - _share_beyond(y - last, above, 1 - self.levels[-1]),
        )
        return np.where((first <= y) & (y < last), inside, outside)

    def quantile(self, q: float | ArrayLike) -> Array:
        """The value that a share q of the distribution lies below, per row and target.

        `(n,)` or `(n, target)` for one share in (0, 1), with an axis of shares last for a sequence.
        """
        shares = shares_from(q)
        quantiles = self.quantiles_at(shares.reshape((1,) * (self.values.ndim - 1) + (-1,)))
        return quantiles if np.ndim(q) else quantiles[..., 0]

    def quantiles_at(self, shares: Array) -> Array:
        """Quantiles (row, target, share) of shares that broadcast against the rows and targets."""
        p, (below, above), zeros = self.levels, self._tails, np.zeros_like(shares)
        after = np.searchsorted(p, shares, side="right")
        i, j = (after - 1).clip(0), after.clip(None, len(p) - 1)  # the neighbours; one and the same in a tail
        start, end = (np.take_along_axis(self.values, place, axis=-1) for place in (i, j))
        part = np.divide(shares - p[i], p[j] - p[i], out=zeros.copy(), where=i < j)
        inside = np.minimum(start + part * (end - start), end)  # rounding must not lift it above the next quantile
        low = np.log(shares / p[0], out=zeros.copy(), where=shares < p[0])
        high = np.log((1 - shares) / (1 - p[-1]), out=zeros, where=shares > p[-1])
        return np.asarray(inside + below[..., None] * low - above[..., None] * high)

    def sample(self, size: int, random_state: Any = None) -> Array:
        """Independent draws, `(n, size)` or `(n, target, size)`; those of several targets know nothing of each other.

        `random_state` is None, a seed or a `numpy.random.RandomState`, as in scikit-learn.
        """
        from sklearn.utils import check_random_state  # takes long to import

        check_count("size", size)
        above_zero = np.finfo(np.float64).tiny
        shares = check_random_state(random_state).uniform(above_zero, 1.0, (*self.values.shape[:-1], size))
        return self.quantiles_at(shares)

    def mean(self) -> Array:
        """The mean per row and target."""
        (below, above), weights = self._tails, np.convolve(np.diff(self.levels), [0.5, 0.5])  # of the trapezoid rule
        lowest, highest = self.values[..., 0] - below, self.values[..., -1] + above
        return np.asarray(self.levels[0] * lowest + self.values @ weights + (1 - self.levels[-1]) * highest)

    def interval(self, coverage: float | Sequence[float] | Array) -> PredictionInterval:
        """The central interval of one level or several, shaped as in `PredictionInterval`."""
        levels = levels_from(coverage)
        lower, upper = (self.quantile(ends) for ends in central_shares(levels))
        asked: float | tuple[float, ...] = levels
        if not np.ndim(coverage):
            lower, upper, asked = lower[..., 0], upper[..., 0], levels[0]
        return PredictionInterval(lower, upper, coverage=asked, target_names=self.target_names, index=self.index)

    def crps(self, y: float | ArrayLike) -> Array:
        """Continuous ranked probability score, per row and target: the integral of (F(t) - 1{t >= y})^2 over t.

        In the units of the target, lower is better; for a forecast of one point, it is the absolute error. It is exact.
        """
        y, (below, above) = self._checked(y), self._tails
        values = np.moveaxis(self.values, -1, 0)  # (level, row, target)
        score = _tail_score(values[0] - y, below, self.levels[0])
        score += _tail_score(y - values[-1], above, 1 - self.levels[-1])
        for p, q, start, end in zip(self.levels, self.levels[1:], values, values[1:], strict=False):
            middle = y.clip(start, end)
            share = _linear(middle, start, end, p, q)
            score += (middle - start) * _mean_square(p, share) + (end - middle) * _mean_square(1 - share, 1 - q)
        return score

    def to_frame(self, q: Sequence[float] | None = None) -> pd.DataFrame:
        """A pandas data frame of quantiles, at all levels or at q, with columns (target, q) and the user's index."""
        import pandas as pd  # an optional companion: only this method needs it

        shares = self.levels.tolist() if q is None else list(q)
        columns = pd.MultiIndex.from_product([self.target_names, shares], names=["target", "q"])
        quantiles = (self.values if q is None else self.quantile(shares)).reshape(len(self), len(columns))
        return pd.DataFrame(quantiles, index=self.index, columns=columns)

    @property
    def _tails(self) -> tuple[Array, Array]:
        """The mean distance of each tail from the outermost quantile; 0 where there is no tail."""
        values, low, high = self.values, np.log(self.levels[:2]), np.log1p(-self.levels[-2:])
        below = (values[..., 1] - values[..., 0]) / (low[1] - low[0])
        return below, (values[..., -1] - values[..., -2]) / (high[0] - high[1])

    def _checked(self, y: float | ArrayLike) -> Array:
        values, shape = np.asarray(y, dtype=np.float64), self.values.shape[:-1]
        if values.shape not in ((), shape):
            raise ValueError(f"y must be a number or have the shape {shape} of the predictions, got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"y must be finite, got {np.sum(~np.isfinite(values))} NaN or infinite values")
        return np.broadcast_to(values, shape)


def shares_from(q: float | ArrayLike) -> Array:
    """The shares of quantiles as an array (share,), all of them in (0, 1)."""
    shares = list(q) if np.ndim(q) else [q]  # type: ignore[arg-type]
    if not shares:
        raise ValueError("q must hold at least one share, got none")
    for share in shares:
        check_share("q", share)
    return np.array(shares, dtype=np.float64)


def central_shares(levels: Sequence[float]) -> Array:
    """The shares (end, level) below both ends of central intervals, as the decimals that they print: 0.05 for 0.9."""
    coverage = np.asarray(levels)
    return np.round([(1 - coverage) / 2, (1 + coverage) / 2], 12)


def _linear(y: Array, start: Array, end: Array, p: Array | float, q: Array | float) -> Array:
    """From p at the start to q at the end, p where both are one."""
    width = end - start
    return p + (q - p) * np.divide(y.clip(start, end) - start, width, out=np.zeros_like(width), where=width > 0)


def _share_beyond(distance: Array, scale: Array, share: float) -> Array:
    """The share of a tail that lies farther out than a distance from its start, where `share` lies beyond."""
    with np.errstate(over="ignore"):  # infinitely many tiny scales away
        ratio = np.divide(np.maximum(distance, 0), scale, out=np.full_like(scale, np.inf), where=scale > 0)
    return share * np.exp(-ratio)


def _mean_square(start: Array | float, end: Array | float) -> Array:
    """The mean of the square of what goes linearly from start to end."""
    return np.asarray((start**2 + start * end + end**2) / 3)


def _tail_score(distance: Array, scale: Array, share: float) -> Array:
    """The part of the CRPS beyond an outermost quantile, which lies at a distance from y, below 0 if y is inside.

    With G(t) = share exp(-t / scale) and d = max(distance, 0), the integral of (1 - G)^2 up to d and of G^2 after it.
    """
    distance = np.maximum(distance, 0)
    return distance - 2 * scale * (share - _share_beyond(distance, scale, share)) + scale * share**2 / 2


@dataclass(frozen=True)
class Prediction:
    """Predictions (row, target), bounds (row, target, level), levels ascending, and quantiles (row, target, share)."""

    mean: Array
    lower: Array
    upper: Array
    quantiles: Array | None = None

    @property
    def columns(self) -> list[Array]:
        """For each target its prediction, bounds and quantiles, in the order of `prediction_columns`."""
        _, n_targets, n_levels = self.lower.shape
        columns = []
        for target in range(n_targets):
            columns.append(self.mean[:, target])
            for level in range(n_levels):
                columns += [self.lower[:, target, level], self.upper[:, target, level]]
            columns += [] if self.quantiles is None else list(self.quantiles[:, target].T)
        return columns


def prediction_columns(
    targets: Sequence[str],
    levels: Sequence[float],
    keep: Sequence[str] = (),
    shares: Sequence[float] = (),
    classes: Sequence[str] | None = None,
) -> list[str]:
    """The columns of a table of predictions: those that are kept, then each target with its bounds and quantiles.

    A target of classes comes with the probability of each class, and a set for each level.
    """
    names = [*keep]
    for target in targets:
        names.append(target)
        if classes is not None:
            names += [f"{target}_probability_{label}" for label in classes]
            names += [f"{target}_set_{level!r}" for level in levels]
            continue
        names += [f"{target}_{bound}_{level!r}" for level in levels for bound in ("lower", "upper")]
        names += [f"{target}_quantile_{share!r}" for share in shares]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"predictions would have two columns named {twice[0]}; keep every column once, and let no target and no "
            "kept column be named like a prediction, a bound, a quantile, a probability or a set of another"
        )
    return names


def class_names(classes: NDArray[Any]) -> list[str]:
    """The classes as text, as they name columns."""
    names: list[str] = needed_polars().Series(classes).cast(needed_polars().String).to_list()
    return names


def columns_of_classes(p: Array, sets: NDArray[np.bool_], classes: NDArray[Any], *, in_text: bool) -> list[Any]:
    """The likeliest class, the probability of each, and the set of each level: as cat|dog in a text, or else a list.

    Shapes: p `(row, class)`, sets `(row, class, level)`.
    """
    polars = needed_polars()
    columns = [polars.Series(classes[p.argmax(axis=1)]), *p.T]
    labels = polars.Series(class_names(classes) if in_text else classes)
    for members in np.moveaxis(sets, 2, 0):
        different, of_row = np.unique(members, axis=0, return_inverse=True)
        of_sets = polars.Series([labels.filter(one) for one in different], dtype=polars.List(labels.dtype))
        columns.append((of_sets.list.join(BETWEEN_CLASSES) if in_text else of_sets).gather(of_row))
    return columns
