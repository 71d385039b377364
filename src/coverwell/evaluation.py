"""Outcomes: targets beside their predictions and intervals, their scores, and the coverage of slices of the rows."""

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
from coverwell.description import ModelDescription, series_columns
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import read_history
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.source import targets_by_name
from coverwell.slices import Parts, Slices, check_columns, counted, cut, is_missing, pairs

Array = NDArray[np.float64]
Column = NDArray[Any]
Mask = NDArray[np.bool_]

ROUNDING = 1e-6  # of the sides of an image
FEWEST_FOR_SLABS, MOST_FOR_SLABS, DIRECTIONS = 100, 5_000, 200  # rows, and directions that are tried
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
    numbers: Array | None = None  # (row, input), those of a table as networks are given them
    inputs: Any = None  # the rows as the model takes them; of a series, its values and covariates by name
    warnings: tuple[str, ...] = ()  # of the model, while it predicted

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def views(self) -> list[View]:
        """Every target at every level."""
        views = []
        for target, level in np.ndindex(self.lower.shape[1:]):
            known = ~np.isnan(self.y[:, target])
            rows: Any = slice(None) if known.all() else known  # a slice copies nothing
            named = (self.target_names[target], self.levels[level])
            values = (self.y[rows, target], self.prediction[rows, target])
            bounds = (self.lower[rows, target, level], self.upper[rows, target, level])
            times = np.array([]) if self.times is None else self.times[rows, target]
            views.append(View(self, target, level, *named, *values, *bounds, times, rows))
        return views

    def view(self, target: int, level: int) -> View:
        return self.views[target * len(self.levels) + level]

    def of_target(self, target: int) -> list[View]:
        return self.views[target * len(self.levels) :][: len(self.levels)]

    def of_level(self, level: int) -> list[View]:
        return self.views[level :: len(self.levels)]

    def of_targets(self, places: Sequence[int]) -> Outcome:
        arrays = {name: getattr(self, name) for name in ("y", "prediction", "lower", "upper", "times")}
        chosen = {name: array[:, list(places)] for name, array in arrays.items() if array is not None}
        static = None if self.static is None else self.static.of_targets(places)
        return replace(self, **chosen, target_names=tuple(self.target_names[place] for place in places), static=static)

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
    name: str  # of the target
    asked: float
    y: Array
    prediction: Array
    lower: Array
    upper: Array
    times: Column  # of a series
    rows: slice | Mask  # of the outcome

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
        given, expected = (self.y, self.lower, self.upper), (self.asked, len(self.y), self.outcome.n_ranked)
        return {
            "rmse": metrics.rmse(self.y, self.prediction),
            "coverage": metrics.coverage(*given),
            "band": metrics.coverage_band(*expected),
            "calibration_error": metrics.calibration_error(*given, self.asked),
            "expected_calibration_error": metrics.expected_calibration_error(*expected),
            "width": metrics.average_width(self.lower, self.upper),
            "interval_score": metrics.interval_score(*given, self.asked),
        }

    @property
    def is_expected(self) -> bool:
        """Whether the coverage lies in the expected band."""
        return bool(self.scores["band"][0] <= self.scores["coverage"] <= self.scores["band"][1])

    @cached_property
    def slices(self) -> Slices:
        return counted(self.inside, self._parts, self.asked)

    @cached_property
    def pairs(self) -> Slices:
        """The slices of two columns that fall short by more than chance, and more surely than either column alone."""
        return pairs(self.inside, self._parts, self.asked)

    @property
    def _parts(self) -> dict[str, Parts]:
        return {column: (names, part_of_row[self.rows]) for column, (names, part_of_row) in self.outcome.parts.items()}

    @cached_property
    def by_size(self) -> list[float]:
        """Coverage of fifths of the rows, from the narrowest intervals to the widest."""
        shares = metrics.coverage_by_size(self.y, self.lower, self.upper)
        return [share for share in shares.tolist() if share == share]  # equal widths leave fewer

    @cached_property
    def worst_slab(self) -> float | None:
        """Coverage of the worst slab of the rows of a table; None where they are few."""
        if self.outcome.numbers is None or len(self.y) < FEWEST_FOR_SLABS:
            return None
        some = np.random.default_rng(0).permutation(len(self.y))[:MOST_FOR_SLABS]
        rows = (values[some] for values in (self.outcome.numbers[self.rows], self.y, self.lower, self.upper))
        return float(metrics.worst_slab_coverage(*rows, n_directions=DIRECTIONS))


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
    """A fitted regressor's predictions and intervals for rows whose targets are known; arguments as in `write_report`.

    A group replaces a feature of its name; `feature_names` are for the columns of an array.
    """
    description = ModelDescription(model)
    if description.takes == "series":
        raise TypeError(f"expected a fitted regressor, got {description.name}; see forecast_outcome")
    if isinstance(X, TableFiles):
        raise TypeError("evaluation takes rows that are in memory, got TableFiles; read the rows first")
    targets = _targets(y, description.target_names)
    with _kept_warnings() as kept:
        predicted = description.regressor.predict_all(X)
    if len(predicted.mean) != len(targets):
        raise ValueError(f"X and y must have the same rows, got {len(predicted.mean)} and {len(targets)}")
    numbers = None if row_numbers is None else np.asarray(row_numbers)
    if numbers is not None and (numbers.shape != (len(targets),) or numbers.dtype.kind not in "iu"):
        raise ValueError(f"row_numbers must be a whole number for each of {len(targets)} rows, got {numbers!r:.80}")
    grouped = {str(name): np.array(values, dtype=object) for name, values in (groups or {}).items()}
    check_columns("group", grouped, len(targets))
    for column in grouped.values():
        column[:] = [None if missing else str(value) for value, missing in zip(column, is_missing(column), strict=True)]
    features = description.features(X, feature_names)
    about: dict[str, Any] = {"n_ranked": description.n_ranked, "row_numbers": numbers, "n_skipped": n_skipped}
    about["features"] = {name: column for name, column in features.items() if name not in grouped}
    about["numbers"] = description.inputs(X) if description.takes == "table" else None
    about |= {"groups": grouped, "quantiles": quantiles, "inputs": X, "warnings": tuple(kept)}
    about["boxes"] = description.boxes if boxes is None else boxes  # numbers alone do not show it
    if about["boxes"]:
        _check_boxes(description, targets)
    names = (description.levels, description.target_names)
    return Outcome(targets, predicted.mean, predicted.lower, predicted.upper, *names, **about)


def forecast_outcome(
    model: object, series: Any, start: Any = None, *, covariates: Any = None, past_covariates: Any = None
) -> Outcome:
    """Live operation of a fitted forecaster over a period; arguments as in `backtest`."""
    description = ModelDescription(model)
    if not isinstance(model, SeriesForecaster):
        raise TypeError(f"expected a fitted forecaster, got {description.name}; see outcome_of")
    with _kept_warnings() as kept:
        found = model.backtest(series, start, covariates=covariates, past_covariates=past_covariates)
        given = read_history(series, covariates, past_covariates, calendar=model.calendar, missing=model.missing)
    n_seen = max(0, len(model.history_) - model.history_.clock.position(found.index[0]))
    columns = series_columns(given, slice(given.clock.position(found.index[0]), len(given)))
    steps = np.arange(len(found))[:, None] + np.arange(found.y.shape[1])
    common = (description.levels, description.target_names)
    static = Outcome(found.y, found.prediction, found.static_lower, found.static_upper, *common)
    live = replace(static, lower=found.lower, upper=found.upper, static=static if description.live else None)
    stamps = found.stamps.to_timestamp() if hasattr(found.stamps, "to_timestamp") else found.stamps  # periods
    if getattr(stamps, "tz", None) is not None:
        stamps = stamps.tz_localize(None)
    elif getattr(getattr(stamps, "dtype", None), "time_zone", None) is not None:
        stamps = stamps.dt.replace_time_zone(None)
    times = np.asarray(stamps)  # by the local clock, or counts
    times = times.astype("datetime64[ms]") if times.dtype.kind == "M" else times
    return replace(live, times=times[steps], inputs=columns, n_seen=min(len(found), n_seen), warnings=tuple(kept))


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
    """The targets as finite numbers (row, target)."""
    y = targets_by_name(y, names)
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("y must hold numbers; convert it, or leave out rows whose target is not known") from None
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or targets.shape[1] != len(names):
        raise ValueError(f"y must have {len(names)} targets for each row, as in training, got shape {targets.shape}")
    if not np.isfinite(targets).all():
        row = int((~np.isfinite(targets)).any(axis=1).argmax())
        raise ValueError(f"y must be finite, but row {row} (counted from 0) is not; leave these rows out")
    return targets


def _check_boxes(description: ModelDescription, y: Array) -> None:
    if description.takes != "images":
        raise ValueError("boxes are for models of images, and this one is of tables; leave it out")
    if y.shape[1] != 4:
        raise ValueError(f"boxes are four targets (left, top, width, height), but the model has {y.shape[1]}")
    if (y < -ROUNDING).any() or (y > 1 + ROUNDING).any():
        got = f"got values from {y.min():g} to {y.max():g}; divide them by width and height"
        raise ValueError(f"boxes must be given in fractions of the images' sides, {got}")
