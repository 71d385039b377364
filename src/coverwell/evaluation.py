"""Outcomes: targets beside their predictions and intervals, their scores, and the coverage of slices of the rows.

Intervals promise coverage on average; slices look for rows that are covered less. Some of many slices fall short by
chance alone, so each comes with its binomial uncertainty, and all of them with their number.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from coverwell import metrics
from coverwell.description import ModelDescription, series_columns
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import read_history
from coverwell.inputs.parquet import TableFiles
from coverwell.options import check_number, check_share

Array = NDArray[np.float64]
Column = NDArray[Any]
Mask = NDArray[np.bool_]
Parts = tuple[list[str], NDArray[np.intp]]  # the names of a column's slices, and the place of each row's slice

ROUNDING = 1e-6  # of the sides of an image
CALLER_OF_A_REPORT = 5  # stack level: the user's own line
CONFIDENCE = 0.95
BY_CHANCE = 1 - CONFIDENCE  # a shortfall with less probability than this, over all slices together, is named
MOST_LEVELS = 10  # of a categorical feature: the most frequent; the rest are one slice
MISSING, OTHERS = "missing", "others"


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
        return _cut(self.features, self.groups, len(self), self.quantiles)


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
        parts = {column: (names, part_of_row[self.rows]) for column, (names, part_of_row) in self.outcome.parts.items()}
        return _counted(self.inside, parts, self.asked)


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
    _check_columns("group", grouped, len(targets))
    for column in grouped.values():
        column[:] = [None if missing else str(value) for value, missing in zip(column, _missing(column), strict=True)]
    features = description.features(X, feature_names)
    about: dict[str, Any] = {"n_ranked": description.n_ranked, "row_numbers": numbers, "n_skipped": n_skipped}
    about["features"] = {name: column for name, column in features.items() if name not in grouped}
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


@dataclass(frozen=True)
class Slice:
    """The rows with some values in a column, and how many of them lie inside their intervals."""

    column: str
    values: str  # a level ("London"), a range ("2.5 to 4"), "missing" or "others"
    n_rows: int
    n_inside: int

    @property
    def coverage(self) -> float:
        """The share of the rows inside."""
        return self.n_inside / self.n_rows

    @property
    def low(self) -> float:
        """The lower end of the exact 95 % confidence interval of the coverage (Clopper and Pearson 1934)."""
        return 1 - float(_upper_end(self.n_rows, self.n_rows - self.n_inside))

    @property
    def high(self) -> float:
        """The upper end of that interval."""
        return float(_upper_end(self.n_rows, self.n_inside))

    def chance(self, asked: float) -> float:
        """The probability of this few rows inside, or fewer, if each is inside with the asked probability."""
        return float(binom.cdf(self.n_inside, self.n_rows, asked))


def _upper_end(n_rows: Any, n_inside: Any) -> Any:
    missed = n_rows - n_inside
    return np.where(missed > 0, beta.ppf((1 + CONFIDENCE) / 2, n_inside + 1, np.maximum(missed, 1)), 1.0)


@dataclass(frozen=True)
class Slices:
    """All slices that were compared, in the order of the columns."""

    asked: float  # the asked coverage
    slices: tuple[Slice, ...]

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    def of(self, column: str) -> tuple[Slice, ...]:
        """The slices by one column."""
        return tuple(part for part in self.slices if part.column == column)

    def worst(self, n: int = 5) -> tuple[Slice, ...]:
        """First the slices that fall short by more than chance, then the others.

        Each kind comes by the upper end of the confidence interval, so that a small slice must be missed often to
        come before a large one.
        """
        return tuple(self._ranked[0][:n])

    @property
    def short(self) -> list[Slice]:
        """Those that fall short by more than chance, the worst first."""
        return self._ranked[0][: self._ranked[1]]

    @cached_property
    def by_column(self) -> dict[str, list[Slice]]:
        """The slices of each column, the worst first; the column with the worst slice first."""
        columns: dict[str, list[Slice]] = {}
        for part in self._ranked[0]:
            columns.setdefault(part.column, []).append(part)
        return columns

    @cached_property
    def _ranked(self) -> tuple[list[Slice], int]:
        """All slices, the worst first, and how many fall short; computed at once, as there may be very many."""
        n_rows, n_inside = (np.array([getattr(p, name) for p in self], dtype=int) for name in ("n_rows", "n_inside"))
        by_chance = len(self) * binom.cdf(n_inside, n_rows, self.asked) >= BY_CHANCE
        order = np.lexsort([_upper_end(n_rows, n_inside), by_chance])  # the last key counts first; ties keep order
        return [self.slices[place] for place in order], int((~by_chance).sum())

    def chance(self, part: Slice) -> float:
        """A bound on the probability that chance makes any slice this short, however they overlap (Bonferroni)."""
        return min(1.0, len(self) * part.chance(self.asked))


def slices_of(
    inside: ArrayLike,
    columns: Mapping[str, ArrayLike],
    *,
    asked: float,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
) -> Slices:
    """Cut the rows by each column, and count how many of each slice lie inside their intervals.

    Numbers and dates are cut at their quantiles, or into their values where these are few; other columns into their
    ten most frequent levels and the rest. Missing values are a slice of their own.

    Parameters
    ----------
    inside : array-like of bool (n,), whether each target lies in its interval
    columns : mapping from name to array-like (n,), the features to cut by
    asked : float, the asked coverage
    groups : mapping from name to array-like (n,); every value is a slice, however many there are
    quantiles : int, into how many slices numbers are cut

    Examples
    --------
    >>> inside = [True, True, True, False]
    >>> found = slices_of(inside, {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> [(part.values, part.coverage) for part in found]
    [('Oslo', 0.5), ('Rome', 1.0)]
    """
    rows = np.asarray(inside)
    if rows.dtype != np.bool_ or rows.ndim != 1 or not len(rows):
        raise ValueError(f"inside must be True or False for each of at least one row, got {rows.dtype} {rows.shape}")
    check_share("asked", asked)
    return _counted(rows, _cut(columns, groups or {}, len(rows), quantiles), asked)


def _cut(columns: Mapping[str, Any], groups: Mapping[str, Any], n_rows: int, quantiles: int) -> dict[str, Parts]:
    check_number("quantiles", quantiles, least=2, whole=True)
    given = {name: np.asarray(values) for name, values in [*groups.items(), *columns.items()]}
    _check_columns("column", given, n_rows)
    parts = {}
    for name, column in given.items():
        if name not in groups and column.dtype.kind in "iufM":
            parts[name] = _by_quantile(column, quantiles)
        else:
            parts[name] = _by_level(column, most=None if name in groups else MOST_LEVELS)
    return parts


def _counted(inside: Mask, parts: Mapping[str, Parts], asked: float) -> Slices:
    found: list[Slice] = []
    for column, (names, part_of_row) in parts.items():
        n_rows, n_inside = (np.bincount(rows, minlength=len(names)) for rows in (part_of_row, part_of_row[inside]))
        found += [Slice(column, one, int(n), int(k)) for one, n, k in zip(names, n_rows, n_inside, strict=True) if n]
    return Slices(float(asked), tuple(found))


def _check_columns(what: str, columns: Mapping[str, Column], n_rows: int) -> None:
    for name, column in columns.items():
        if column.shape != (n_rows,):
            raise ValueError(f"{what} {name!r} must have one value for each of {n_rows} rows, got shape {column.shape}")


def _by_quantile(column: Column, n_parts: int) -> Parts:
    """Slices of about as many rows each; equal values stay together."""
    missing = _missing(column)
    ordered = np.sort(column[~missing])
    last = distinct = np.unique(ordered)  # the largest value of each slice
    if len(distinct) > n_parts:
        places = np.round(np.linspace(0, len(ordered) - 1, n_parts + 1)).astype(np.intp)[1:]
        last = np.unique(ordered[places])  # observed values: dates have no average
    first = distinct[np.concatenate([[0], np.searchsorted(distinct, last[:-1], side="right")])] if len(last) else last
    ends = [(as_text(low), as_text(high)) for low, high in zip(first, last, strict=True)]
    names = [low if low == high else f"{low} to {high}" for low, high in ends]
    return [*names, MISSING], np.where(missing, len(names), np.searchsorted(last, column, side="left"))


def _by_level(column: Column, most: int | None) -> Parts:
    """One slice per level; beyond `most`, the rarer levels are one slice."""
    missing = _missing(column)
    levels, level_of_row, counts = np.unique(column[~missing].astype(str), return_inverse=True, return_counts=True)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:most])
    place_of = np.full(len(levels), len(frequent))
    place_of[frequent] = np.arange(len(frequent))
    part_of_row = np.full(len(column), len(frequent) + 1)
    part_of_row[~missing] = place_of[level_of_row]
    return [*levels[frequent].tolist(), OTHERS, MISSING], part_of_row


def _missing(column: Column) -> Mask:
    if column.dtype.kind == "O":
        return np.fromiter((value is None or value != value for value in column), dtype=bool, count=len(column))
    return np.asarray(column != column)  # only NaN and NaT differ from themselves


def as_text(value: Any) -> str:
    """A value in as few characters as it needs; "missing" for none."""
    if value is None or value != value:
        return MISSING
    if isinstance(value, np.datetime64):
        short = (value.astype(f"datetime64[{unit}]") for unit in ("D", "m", "s"))  # the first that says it all
        return str(next((moment for moment in short if moment == value), value)).replace("T", " ")
    if isinstance(value, float | np.floating):
        return f"{float(value):.{4 if abs(float(value)) < 1000 else 6}g}"
    return str(value)
