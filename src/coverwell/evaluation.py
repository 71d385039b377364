"""Outcomes: targets beside their predictions and intervals, and their scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell import metrics
from coverwell.description import ModelDescription, describe
from coverwell.inputs.parquet import TableFiles
from coverwell.slices import Parts, Slices, count_inside, cut

Array = NDArray[np.float64]
Column = NDArray[Any]
Mask = NDArray[np.bool_]

ROUNDING = 1e-6  # of the sides of an image
CALLER_OF_A_REPORT = 5  # stack level: the user's own line


@dataclass(frozen=True, eq=False)
class Outcome:
    """Targets beside their predictions and intervals: what `evaluate`, `plot`, `report` and studies read."""

    y: Array  # (row, target), NaN where nothing was observed; a forecaster's targets are its steps ahead
    prediction: Array  # (row, target)
    lower: Array  # (row, target, level)
    upper: Array
    levels: tuple[float, ...]  # the asked coverages, rising
    target_names: tuple[str, ...]
    n_ranked: int | None = None  # rows whose ranks set the widths; None without ranks, or where that is not known
    features: Mapping[str, Column] = field(default_factory=dict)  # (row,) each, to cut the rows by
    groups: Mapping[str, Column] = field(default_factory=dict)  # the same; each value is a slice
    quantiles: int = 4  # into how many slices numbers are cut
    row_numbers: NDArray[np.int64] | None = None  # in the user's file, from 1; by default rows are counted from 0
    n_skipped: int = 0  # rows left out because a target is missing
    n_seen: int = 0  # steps of a series that the model had seen before
    times: Column | None = None  # (row, target), dates or steps of a series
    static: Outcome | None = None  # a series without live calibration
    boxes: bool = False  # whether the targets are left, top, width and height of boxes in images
    inputs: Any = None  # the rows as the model takes them; of a series, its values and covariates by name
    warnings: tuple[str, ...] = ()  # of the model, while it predicted

    def __post_init__(self) -> None:
        numbers = self.row_numbers
        if numbers is not None and (numbers.shape != (len(self),) or numbers.dtype.kind not in "iu"):
            raise ValueError(f"row_numbers must be a whole number for each of {len(self)} rows, got {numbers!r:.80}")

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def views(self) -> list[View]:
        """Every target at every level."""
        return [self._view(target, level) for target, level in np.ndindex(self.lower.shape[1:])]

    def view(self, target: int, level: int) -> View:
        """A target at a level, both by their places."""
        return self.views[target * len(self.levels) + level]

    def of_targets(self, places: Sequence[int]) -> Outcome:
        """The same with some of the targets."""
        chosen = list(places)
        return replace(
            self,
            **{name: getattr(self, name)[:, chosen] for name in ("y", "prediction", "lower", "upper")},
            target_names=tuple(self.target_names[place] for place in chosen),
            times=None if self.times is None else self.times[:, chosen],
            static=None if self.static is None else self.static.of_targets(chosen),
        )

    def _view(self, target: int, level: int) -> View:
        known = ~np.isnan(self.y[:, target])
        rows: Any = slice(None) if known.all() else known  # a slice copies nothing
        y, prediction = self.y[rows, target], self.prediction[rows, target]
        lower, upper = self.lower[rows, target, level], self.upper[rows, target, level]
        times = np.array([]) if self.times is None else self.times[rows, target]
        return View(self, target, level, y, prediction, lower, upper, times, rows)

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """How each group and feature cuts the rows; the same for all targets and levels."""
        return cut(self.features, self.groups, len(self), self.quantiles)


@dataclass(frozen=True, eq=False)
class View:
    """One target at one level; arrays have one entry for each row whose target is known."""

    outcome: Outcome
    target: int
    level: int
    y: Array
    prediction: Array
    lower: Array
    upper: Array
    times: Column  # of a series
    rows: slice | Mask  # of the outcome

    @property
    def name(self) -> str:
        return self.outcome.target_names[self.target]

    @property
    def asked(self) -> float:
        return self.outcome.levels[self.level]

    @property
    def static(self) -> View | None:
        """The same without live calibration."""
        return None if self.outcome.static is None else self.outcome.static.view(self.target, self.level)

    @cached_property
    def inside(self) -> Mask:
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def width(self) -> Array:
        return self.upper - self.lower

    @cached_property
    def missed_by(self) -> Array:
        """How far each target lies from its interval; 0 inside."""
        return np.maximum(self.lower - self.y, 0) + np.maximum(self.y - self.upper, 0)

    @cached_property
    def scores(self) -> dict[str, Any]:
        """Error, coverage and its expected band, calibration error and its expectation, width and interval score."""
        asked, n_ranked, bounds = self.asked, self.outcome.n_ranked, (self.lower, self.upper)
        return {
            "rmse": metrics.rmse(self.y, self.prediction),
            "coverage": metrics.coverage(self.y, *bounds),
            "band": metrics.coverage_band(asked, len(self.y), n_ranked),
            "calibration_error": metrics.calibration_error(self.y, *bounds, asked),
            "expected_calibration_error": metrics.expected_calibration_error(asked, len(self.y), n_ranked),
            "width": metrics.average_width(*bounds),
            "interval_score": metrics.interval_score(self.y, *bounds, asked),
        }

    @property
    def is_expected(self) -> bool:
        """Whether the coverage lies in the expected band."""
        low, high = self.scores["band"]
        return bool(low <= self.scores["coverage"] <= high)

    @cached_property
    def slices(self) -> Slices:
        """Coverage by each group and feature."""
        parts = {column: (names, part_of_row[self.rows]) for column, (names, part_of_row) in self.outcome.parts.items()}
        return count_inside(self.inside, parts, self.asked)


def place_of_level(levels: tuple[float, ...], coverage: float | None) -> int:
    """The place of a level among the fitted ones; the highest if None."""
    if coverage is None:
        return len(levels) - 1
    if coverage not in levels:
        raise ValueError(f"coverage {coverage!r} was not fitted; the fitted levels are {', '.join(map(str, levels))}")
    return levels.index(coverage)


def outcome_of(
    model: object,
    X: Any,
    y: ArrayLike,
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
    row_numbers: ArrayLike | None = None,
    n_skipped: int = 0,
    feature_names: Sequence[str] | None = None,
    boxes: bool | None = None,
) -> Outcome:
    """A fitted regressor's predictions and intervals for rows whose targets are known.

    Parameters
    ----------
    model : fitted regressor
    X : array-like or data frame (n, feature), or images, as in `fit`
    y : array-like (n,) or (n, target)
        The columns of a data frame are taken by name.
    groups : mapping from name to array-like (n,), optional
        Columns in which every value is a slice; each replaces a feature of its name.
    quantiles, row_numbers, n_skipped
        As in `Outcome`.
    feature_names : sequence of str, optional
        Names for the columns of an array.
    boxes : bool, optional
        Whether the targets are boxes in images; by default as the model was fitted.
    """
    description = describe(model)
    if description.takes == "series":
        raise TypeError(f"expected a fitted regressor, got {description.name}; see forecast_outcome")
    if isinstance(X, TableFiles):
        raise TypeError("evaluation takes rows that are in memory, got TableFiles; read the rows first")
    targets = _targets(y, description.target_names)
    with _kept_warnings() as kept:
        prediction, lower, upper = description.predict(X)
    if len(prediction) != len(targets):
        raise ValueError(f"X and y must have the same rows, got {len(prediction)} and {len(targets)}")
    grouped = {str(name): _group(str(name), values, len(targets)) for name, values in (groups or {}).items()}
    features = description.features(X, feature_names)
    return Outcome(
        targets,
        prediction,
        lower,
        upper,
        description.levels,
        description.target_names,
        description.n_ranked,
        {name: column for name, column in features.items() if name not in grouped},
        grouped,
        quantiles,
        None if row_numbers is None else np.asarray(row_numbers),
        n_skipped,
        boxes=_are_boxes(description, targets, boxes),
        inputs=X,
        warnings=tuple(kept),
    )


def forecast_outcome(
    model: object, series: Any, start: Any = None, *, covariates: Any = None, past_covariates: Any = None
) -> Outcome:
    """Live operation of a fitted forecaster over a period; arguments as in `backtest`."""
    description = describe(model)
    if description.takes != "series":
        raise TypeError(f"expected a fitted forecaster, got {description.name}; see outcome_of")
    with _kept_warnings() as kept:
        backtest, columns, n_seen = description.backtest(series, start, covariates, past_covariates)
    stamps = _clock_times(backtest.stamps)
    steps = np.arange(len(backtest))[:, None] + np.arange(backtest.y.shape[1])
    common = (description.levels, description.target_names)
    static = Outcome(backtest.y, backtest.prediction, backtest.static_lower, backtest.static_upper, *common)
    return Outcome(
        backtest.y,
        backtest.prediction,
        backtest.lower,
        backtest.upper,
        *common,
        times=stamps[steps],
        static=static if description.live else None,
        inputs=columns,
        warnings=tuple(kept),
        n_seen=n_seen,
    )


@contextmanager
def _kept_warnings() -> Iterator[list[str]]:
    """A list that holds the texts of users' warnings, each once, when the block has ended; all are issued again."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    different = {(warning.category, str(warning.message)): warning for warning in caught}
    for warning in different.values():
        warnings.warn(warning.message, warning.category, stacklevel=CALLER_OF_A_REPORT)
    texts += [text for category, text in different if issubclass(category, UserWarning)]


def _targets(y: Any, names: tuple[str, ...]) -> Array:
    """The targets as finite numbers (row, target); the columns of a data frame by name where there are several."""
    given = {str(name): name for name in getattr(y, "columns", ())}
    if len(given) > 1 and set(given) == set(names):
        y = np.column_stack([np.asarray(y[given[name]]) for name in names])
    elif len(given) > 1 and names != tuple(f"y{place}" for place in range(len(names))):  # fitted with names
        raise ValueError(f"y must have the targets {', '.join(names)}, as in training, got {', '.join(given)}")
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("y must hold numbers; convert it, or leave out rows whose target is not known") from None
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or targets.shape[1] != len(names):
        raise ValueError(f"y must have {len(names)} targets for each row, as in training, got shape {targets.shape}")
    if not np.isfinite(targets).all():
        row = int((~np.isfinite(targets)).any(axis=1).argmax())
        raise ValueError(f"y must be finite, but row {row} (counted from 0) is not; leave such rows out")
    return targets


def _group(name: str, values: ArrayLike, n_rows: int) -> Column:
    given = np.asarray(values, dtype=object)
    if given.shape != (n_rows,):
        raise ValueError(f"group {name!r} must have one value for each of {n_rows} rows, got the shape {given.shape}")
    return np.array([None if value is None or value != value else str(value) for value in given], dtype=object)


def _are_boxes(description: ModelDescription, y: Array, asked: bool | None) -> bool:
    """Whether the targets are boxes: as asked, or as the model was fitted, since numbers alone do not show it."""
    boxes = description.boxes if asked is None else asked
    if boxes and description.takes != "images":
        raise ValueError("boxes are for models of images, and this one is of tables; leave it out")
    if boxes and y.shape[1] != 4:
        raise ValueError(f"boxes are four targets (left, top, width, height), but the model has {y.shape[1]}")
    if boxes and not ((y >= -ROUNDING).all() and (y <= 1 + ROUNDING).all()):
        raise ValueError(
            f"boxes must be given in fractions of the images' sides, got values from {y.min():g} to {y.max():g}; "
            "divide them by width and height"
        )
    return boxes


def _clock_times(stamps: Any) -> Column:
    """Stamps of any kind as dates by the local clock, or as counts."""
    if hasattr(stamps, "to_timestamp"):  # periods
        stamps = stamps.to_timestamp()
    if getattr(stamps, "tz", None) is not None:
        stamps = stamps.tz_localize(None)
    if getattr(getattr(stamps, "dtype", None), "time_zone", None) is not None:
        stamps = stamps.dt.replace_time_zone(None)
    values = np.asarray(stamps)
    return values.astype("datetime64[ms]") if values.dtype.kind == "M" else values
