"""Outcomes: targets beside their predictions and intervals or sets, their scores, and the coverage of slices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from coverwell import metrics
from coverwell.class_metrics import SMALLEST, places_or_none
from coverwell.classifier import SetClassifier
from coverwell.description import ModelDescription, series_columns
from coverwell.errors import UnseenClassWarning
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import read_history
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.scaling import LARGEST_NUMBER
from coverwell.inputs.source import targets_by_name
from coverwell.prediction import PredictionSet
from coverwell.slices import Parts, Slices, by_count, check_columns, counted, cut, is_missing, pairs

Array = NDArray[np.float64]
Column = NDArray[Any]
Mask = NDArray[np.bool_]

SIZE = "classes in the set"  # cuts rows like a column
ROUNDING = 1e-6  # of the sides of an image
FEWEST_FOR_SLABS, MOST_FOR_SLABS, DIRECTIONS = 100, 5_000, 200  # rows, and directions that are tried
MOST_NAMED = 5  # classes
CALLER_OF_A_REPORT = 5  # stack level: the user's own line


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluated:
    """What outcomes of numbers and of classes say about their rows."""

    n_ranked: int | None = None  # rows whose ranks set the widths; None without ranks, or where that is not known
    features: Mapping[str, Column] = field(default_factory=dict)  # (row,) each, to cut the rows by
    groups: Mapping[str, Column] = field(default_factory=dict)  # the same; each value is a slice
    quantiles: int = 4  # into how many slices numbers are cut
    row_numbers: NDArray[np.int64] | None = None  # in the user's file, from 1; by default rows are counted from 0
    n_skipped: int = 0  # rows left out because a target is missing
    numbers: Array | None = None  # (row, input), those of a table as networks are given them
    inputs: Any = None  # the rows as the model takes them; of a series, its values and covariates by name
    warnings: tuple[str, ...] = ()  # of the model, while it predicted

    def __len__(self) -> int:
        raise NotImplementedError

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """How each group and feature cuts the rows; the same for all targets and levels."""
        return cut(self.features, self.groups, len(self), self.quantiles)


class Covered:
    """Rows of an outcome at one level: which of them are inside, and in which slices too few."""

    outcome: Evaluated
    name: str  # of the target
    asked: float
    rows: slice | Mask  # of the outcome

    @property
    def inside(self) -> Mask:
        raise NotImplementedError

    @property
    def scores(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def is_expected(self) -> bool:
        """Whether the coverage lies in the expected band."""
        return bool(self.scores["band"][0] <= self.scores["coverage"] <= self.scores["band"][1])

    @cached_property
    def slices(self) -> Slices:
        return counted(self.inside, self.parts, self.asked)

    @cached_property
    def pairs(self) -> Slices:
        """The slices of two columns that fall short by more than chance, and more surely than either column alone."""
        return pairs(self.inside, self.parts, self.asked)

    @property
    def parts(self) -> dict[str, Parts]:
        return {column: (names, part_of_row[self.rows]) for column, (names, part_of_row) in self.outcome.parts.items()}

    @cached_property
    def worst_slab(self) -> float | None:
        """Coverage of the worst slab of the rows of a table; None where they are few."""
        numbers = self.outcome.numbers
        if numbers is None or len(self.inside) < FEWEST_FOR_SLABS:
            return None
        some = np.random.default_rng(0).permutation(len(self.inside))[:MOST_FOR_SLABS]
        missed = 1.0 - self.inside[some]
        at = np.zeros(len(missed))  # what is inside lies at 0, and so do both ends
        return float(metrics.worst_slab_coverage(numbers[self.rows][some], missed, at, at, n_directions=DIRECTIONS))


@dataclass(frozen=True, eq=False)
class Outcome(Evaluated):
    """Targets beside their predictions and intervals: what `evaluate`, `plot`, `report` and studies read."""

    y: Array  # (row, target), NaN where nothing was observed; a forecaster's targets are its steps ahead
    prediction: Array  # (row, target)
    lower: Array  # (row, target, level)
    upper: Array
    levels: tuple[float, ...]  # the asked coverages, rising
    target_names: tuple[str, ...]
    n_seen: int = 0  # steps of a series that the model had seen before
    times: Column | None = None  # (row, target), dates or steps of a series
    static: Outcome | None = None  # a series without live calibration
    boxes: bool = False  # whether the targets are left, top, width and height of boxes in images

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


@dataclass(frozen=True, eq=False)
class View(Covered):
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

    @cached_property
    def by_size(self) -> list[float]:
        """Coverage of fifths of the rows, from the narrowest intervals to the widest."""
        shares = metrics.coverage_by_size(self.y, self.lower, self.upper)
        return [share for share in shares.tolist() if share == share]  # equal widths leave fewer


@dataclass(frozen=True, eq=False)
class ClassOutcome(Evaluated):
    """Classes beside their probabilities and sets: an outcome of a classifier."""

    y: Column  # (row,), labels
    probability: Array  # (row, class)
    members: Mask  # (row, class, level), which classes are in the set
    classes: Column  # (class,), labels
    levels: tuple[float, ...]  # the asked coverages, rising
    target_names: tuple[str, ...]  # one
    alone: Mask | None = None  # (row, level), sets that hold the likeliest class only because none may be empty

    n_seen: ClassVar[int] = 0  # these are of an `Outcome`
    times: ClassVar[None] = None
    static: ClassVar[None] = None
    boxes: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """The place of each row's class, -1 for a class that was never seen in training."""
        return places_or_none(self.y, self.classes)

    @cached_property
    def labels(self) -> Column:
        """The class of each row as text, written as in training if it was seen there: 1, also where it came as 1.0."""
        labels: Column = self.y.astype(str).astype(object)
        labels[self.places >= 0] = self.classes.astype(str)[self.places[self.places >= 0]]
        return labels

    @cached_property
    def prediction(self) -> Column:
        """The likeliest class of each row."""
        likeliest: Column = self.classes[self.probability.argmax(axis=1)]
        return likeliest

    @cached_property
    def of_rows(self) -> dict[str, Array]:
        """What each row adds to accuracy, Brier score and log loss.

        A class that was never seen counts as one of probability zero. Its log loss is infinite, and NaN here.
        """
        known, p = self.places >= 0, self.probability
        truth = np.eye(p.shape[1])[self.places] * known[:, None]
        of_truth = np.where(known, (p * truth).sum(axis=1), np.nan)
        return {
            "accuracy": (p.argmax(axis=1) == self.places).astype(np.float64),
            "brier_score": ((p - truth) ** 2).sum(axis=1) + ~known,
            "log_loss": -np.log(of_truth.clip(SMALLEST)),
        }

    @property
    def padded(self) -> tuple[NDArray[np.intp], Array]:
        """Places and probabilities of the classes, and one more class of probability zero for those never seen."""
        p = np.column_stack([self.probability, np.zeros(len(self))])
        return np.where(self.places < 0, p.shape[1] - 1, self.places), p

    @cached_property
    def scores(self) -> dict[str, Any]:
        """Accuracy, Brier score, log loss of the classes seen in training, reliability error and its expectation."""
        places, p = self.padded
        return {
            **{name: float(np.nanmean(values)) for name, values in self.of_rows.items()},
            "reliability_error": metrics.reliability_error(places, p),
            "expected_reliability_error": metrics.expected_reliability_error(p),
            "n_unseen": int((self.places < 0).sum()),
        }

    @cached_property
    def views(self) -> list[SetView]:
        """Every level."""
        return [
            SetView(self, place, self.target_names[0], level, slice(None)) for place, level in enumerate(self.levels)
        ]

    def view(self, target: int, level: int) -> SetView:
        return self.views[level]

    def of_target(self, target: int) -> list[SetView]:
        return self.views

    def of_level(self, level: int) -> list[SetView]:
        return [self.views[level]]

    def of_targets(self, places: Sequence[int]) -> ClassOutcome:
        return self

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """How the class, each group and each feature cuts the rows; the same for all levels."""
        (name,) = self.target_names
        groups = {name: self.labels, **{key: v for key, v in self.groups.items() if key != name}}
        return cut(self.features, groups, len(self), self.quantiles)


@dataclass(frozen=True, eq=False)
class SetView(Covered):
    """The sets of one level."""

    outcome: ClassOutcome
    level: int
    name: str  # of the target
    asked: float
    rows: slice  # of the outcome: all

    target: ClassVar[int] = 0  # these two are of a `View`
    static: ClassVar[None] = None

    @property
    def y(self) -> Column:
        return self.outcome.y

    @property
    def members(self) -> Mask:
        return self.outcome.members[..., self.level]

    @property
    def sets(self) -> PredictionSet:
        return PredictionSet(self.members, coverage=self.asked, classes=self.outcome.classes)

    @cached_property
    def inside(self) -> Mask:
        places = self.outcome.places
        found: Mask = self.members[np.arange(len(places)), places] & (places >= 0)
        return found

    @cached_property
    def size(self) -> NDArray[np.intp]:
        """How many classes are in each set."""
        found: NDArray[np.intp] = self.members.sum(axis=1)
        return found

    @cached_property
    def scores(self) -> dict[str, Any]:
        """Coverage and its expected band, calibration error and its expectation, and the mean size of the sets.

        `coverage_if_empty` is the coverage if sets could be empty, which is what ranks bring to the asked level.
        """
        reached, expected = float(self.inside.mean()), (self.asked, len(self.inside), self.outcome.n_ranked)
        return {
            "coverage": reached,
            "band": metrics.coverage_band(*expected),
            "calibration_error": abs(reached - self.asked),
            "expected_calibration_error": metrics.expected_calibration_error(*expected),
            "coverage_if_empty": float((self.inside & ~self.alone).mean()),
            "size": float(self.size.mean()),
        }

    @property
    def is_expected(self) -> bool:
        """Whether the coverage lies in the expected band, or above it only because no set may be empty."""
        low, high = self.scores["band"]
        return bool(low <= self.scores["coverage"] and self.scores["coverage_if_empty"] <= high)

    @property
    def alone(self) -> Mask:
        """Which sets hold the likeliest class only because none may be empty."""
        alone = self.outcome.alone
        return np.zeros(len(self.inside), dtype=bool) if alone is None else alone[:, self.level]

    @cached_property
    def missed_by(self) -> Array:
        """What the probability of the class lacks to 1; 0 inside."""
        p, places = self.outcome.probability, self.outcome.places
        of_class = np.where(places < 0, 0.0, p[np.arange(len(places)), places])
        return np.where(self.inside, 0.0, 1 - of_class)

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """How the class, each group, each feature and the size of the sets cut the rows."""
        return {**self.outcome.parts, SIZE: by_count(self.size)}

    @cached_property
    def by_size(self) -> dict[int, tuple[float, int]]:
        """For each size of set the coverage, and how many rows have it."""
        return metrics.coverage_by_set_size(self.inside, self.size)


def place_of_level(levels: tuple[float, ...], coverage: float | None) -> int:
    """The place of a level among the fitted ones; the highest if None."""
    if coverage is None:
        return len(levels) - 1
    if not isinstance(coverage, Real) or coverage not in levels:
        raise ValueError(f"coverage {coverage!r} was not fitted; the fitted levels are {', '.join(map(str, levels))}")
    return levels.index(coverage)


def outcome_of(
    model: object, X: Any, y: ArrayLike, *, n_skipped: int = 0, boxes: bool | None = None, **more: Any
) -> Outcome:
    """A fitted regressor's predictions and intervals for rows whose targets are known; arguments as in `write_report`.

    A group replaces a feature of its name; `feature_names` are for the columns of an array.
    """
    description = ModelDescription(model)
    if description.takes == "series" or description.classes:
        instead = "forecast_outcome" if description.takes == "series" else "class_outcome_of"
        raise TypeError(f"expected a fitted regressor, got {description.name}; see {instead}")
    targets = _targets(y, description.target_names)
    with _kept_warnings() as kept:
        found = description.regressor.predict_all(_in_memory(X))
    about = _about_rows(description, X, len(found.mean), len(targets), **more)
    about["boxes"] = description.boxes if boxes is None else boxes  # numbers alone do not show it
    if about["boxes"]:
        _check_boxes(description, targets)
    about |= {"levels": description.levels, "target_names": description.target_names, "warnings": tuple(kept)}
    return Outcome(targets, found.mean, found.lower, found.upper, n_skipped=n_skipped, **about)


def class_outcome_of(model: object, X: Any, y: ArrayLike, *, n_skipped: int = 0, **more: Any) -> ClassOutcome:
    """A fitted classifier's probabilities and sets for rows whose classes are known; arguments as in `outcome_of`."""
    description = ModelDescription(model)
    if not isinstance(model, SetClassifier):
        raise TypeError(f"expected a fitted classifier, got {description.name}; see outcome_of")
    labels = labels_of(y, model.classes_)
    with _kept_warnings() as kept:
        warn_of_unseen(labels, model.classes_, ", and the log loss leaves it out")
        found = model.predicted(_in_memory(X))
    given, sets = (torch.from_numpy(found.mean), torch.from_numpy(found.upper)), model.predictor_.sets
    about = _about_rows(description, X, len(found.mean), len(labels), **more)
    about |= {"levels": description.levels, "target_names": description.target_names, "warnings": tuple(kept)}
    about["alone"] = ~sets(*given, allow_empty=True).numpy().any(axis=1)
    return ClassOutcome(labels, found.mean, sets(*given).numpy(), model.classes_, n_skipped=n_skipped, **about)


def _in_memory(X: Any) -> Any:
    if isinstance(X, TableFiles):
        raise TypeError("evaluation takes rows that are in memory, got TableFiles; read the rows first")
    return X


def _about_rows(
    description: ModelDescription,
    X: Any,
    n_predicted: int,
    n_rows: int,
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    quantiles: int = 4,
    row_numbers: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What an outcome says about its rows, checked."""
    if n_predicted != n_rows:
        raise ValueError(f"X and y must have the same rows, got {n_predicted} and {n_rows}")
    numbers = None if row_numbers is None else np.asarray(row_numbers)
    if numbers is not None and (numbers.shape != (n_rows,) or numbers.dtype.kind not in "iu"):
        raise ValueError(f"row_numbers must be a whole number for each of {n_rows} rows, got {numbers!r:.80}")
    if groups is not None and not isinstance(groups, Mapping):
        raise TypeError(f"groups must be a mapping from a name to a value for each row, got {groups!r:.80}")
    grouped = {str(name): np.array(values, dtype=object) for name, values in (groups or {}).items()}
    check_columns("group", grouped, n_rows)
    for column in grouped.values():
        column[:] = [None if missing else str(value) for value, missing in zip(column, is_missing(column), strict=True)]
    features = description.features(X, feature_names)
    about: dict[str, Any] = {"n_ranked": description.n_ranked, "row_numbers": numbers, "quantiles": quantiles}
    about["features"] = {name: column for name, column in features.items() if name not in grouped}
    about["numbers"] = description.inputs(X) if description.takes == "table" else None
    return about | {"groups": grouped, "inputs": X}


def labels_of(y: Any, classes: Column) -> Column:
    """The classes as labels (row,); raises where there is none, or where none of them was fitted."""
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"y must have one class for each of at least one row, got the shape {labels.shape}")
    if (missing := is_missing(labels)).any():
        row = int(missing.argmax())
        raise ValueError(f"y must have a class in every row, but row {row} (counted from 0) has none; leave these out")
    if (places_or_none(labels, classes) < 0).all():
        fitted = f"one of the {len(classes)} that were fitted, such as {classes[0]}"
        raise ValueError(f"y must have {fitted}, but no row has one of them; the first has {labels[0]}")
    return labels


def warn_of_unseen(labels: Column, classes: Column, also: str = "") -> None:
    """Warn of classes that were not seen in training, and say what that means."""
    unseen = labels[places_or_none(labels, classes) < 0]
    if len(unseen):
        different = list(dict.fromkeys(map(str, unseen.tolist())))
        named = ", ".join(different[:MOST_NAMED]) + (", ..." if len(different) > MOST_NAMED else "")
        rows = "1 row has a class" if len(unseen) == 1 else f"{len(unseen):,} rows have classes"
        what = f"{rows} never seen in training ({named}): no set has it, so it counts as missed"
        warnings.warn(f"{what}{also}", UnseenClassWarning, stacklevel=2)


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
    if (largest := np.abs(targets).max(initial=0.0)) > LARGEST_NUMBER:
        raise ValueError(f"y must lie within {LARGEST_NUMBER:g} of zero, got {largest:g}; give it in larger units")
    return targets


def _check_boxes(description: ModelDescription, y: Array) -> None:
    if description.takes != "images":
        raise ValueError("boxes are for models of images, and this one is of tables; leave it out")
    if y.shape[1] != 4:
        raise ValueError(f"boxes are four targets (left, top, width, height), but the model has {y.shape[1]}")
    if (y < -ROUNDING).any() or (y > 1 + ROUNDING).any():
        got = f"got values from {y.min():g} to {y.max():g}; divide them by width and height"
        raise ValueError(f"boxes must be given in fractions of the images' sides, {got}")
