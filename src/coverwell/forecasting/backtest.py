"""What live operation over a period would have given, and how good that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


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

    @property
    def index(self) -> Any:
        """The user's time stamps of the first forecast step of each row."""
        return self.stamps[: len(self)]

    def __len__(self) -> int:
        return len(self.prediction)

    def __repr__(self) -> str:
        return f"Backtest({len(self)} forecasts of {self.name}, {self.y.shape[1]} steps ahead, coverage {self.levels})"

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

    def to_frame(self, step: int = 1) -> pd.DataFrame:
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
