"""What users get for their rows: predictions, and lower and upper bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd


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


@dataclass(frozen=True)
class Prediction:
    """Predictions (row, target) and bounds (row, target, level), levels in ascending order."""

    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @property
    def columns(self) -> list[NDArray[np.float64]]:
        """For each target its prediction, then both bounds of each level, as `prediction_columns` names them."""
        _, n_targets, n_levels = self.lower.shape
        columns = []
        for target in range(n_targets):
            columns.append(self.mean[:, target])
            for level in range(n_levels):
                columns += [self.lower[:, target, level], self.upper[:, target, level]]
        return columns


def prediction_columns(targets: Sequence[str], levels: Sequence[float], keep: Sequence[str] = ()) -> list[str]:
    """The columns of a table of predictions: those that are kept, then each target with both bounds of each level."""
    names = [*keep]
    for target in targets:
        names += [target, *(f"{target}_{bound}_{level!r}" for level in levels for bound in ("lower", "upper"))]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"predictions would have two columns named {twice[0]}; keep every column once, and let no target and no "
            "kept column be named like a prediction or a bound of another"
        )
    return names
