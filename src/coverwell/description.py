"""What evaluation, plots and reports read of a fitted model: the only place that knows its attributes."""

import warnings
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from coverwell.baselines.training import EPOCHS_PER_ROUND
from coverwell.classifier import SetClassifier
from coverwell.estimator import CalibratedEstimator, IntervalRegressor
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import History
from coverwell.groups import GAPS, GroupFactors, asked_columns
from coverwell.inputs.columns import MISSING, OTHER
from coverwell.inputs.source import ImageSource
from coverwell.paper.algorithm import Round
from coverwell.paper.scores import Contiguous
from coverwell.sets import ClassTeam
from coverwell.slices import WorstSlice
from coverwell.training.device import device_from

Array = NDArray[np.float64]
Column = NDArray[Any]

KINDS = {"numbers": "numbers", "booleans": "true or false", "text": "categories", "times": "dates and times"}
NETWORKS = "networks"
MOST_GROUPS = 8  # in a line, of each column
RECORDED = ("estimator", "calibration", "random_state", "folds", "repeats")


class ModelDescription:
    """A fitted estimator or forecaster as an evaluation or a report describes it; TypeError for anything else."""

    def __init__(self, model: object) -> None:
        if not isinstance(model, IntervalRegressor | SetClassifier | SeriesForecaster):
            raise TypeError(f"expected a fitted regressor, classifier or forecaster, got {type(model).__name__}")
        check_is_fitted(model)
        self.model, self.name = model, type(model).__name__
        # The model, or the one inside a forecaster.
        regressor = self.regressor = model.regressor_ if isinstance(model, SeriesForecaster) else model
        self.classes: tuple[str, ...] = tuple(map(str, getattr(model, "classes_", ())))  # none of a regressor
        source, correction = regressor.source_, regressor.predictor_.correction
        self.levels = regressor.predictor_.levels  # the fitted ones, rising
        self.target_names = regressor.target_names_  # a forecaster's targets are its steps ahead
        self.n_trained, self.n_ranked = _counts(regressor)
        self.n_effective: float | None = getattr(regressor, "n_effective_", None)  # what rows with weights are worth
        self.rounds: Sequence[Round] = regressor.rounds_
        self.is_ranked = regressor.chosen_calibration.name is not None  # whether ranks of rows set the widths
        self.promise: str = regressor.chosen_calibration.promise
        self.has_joint = correction.joint_factor is not None or correction.n_scores > 0  # for all targets together
        self.leaves_out = getattr(regressor, "folds", 0) is not None  # whether rounds have rows not trained on
        single = any(one.interval_loss is None for one in self.rounds)
        self.epochs = EPOCHS_PER_ROUND if single else None  # of a single network
        self.parameters = {name: str(getattr(regressor, name)) for name in RECORDED if hasattr(regressor, name)}
        self.recalibration = getattr(regressor, "recalibration_", None)
        self.device = str(device_from(regressor.device))
        self.boxes = source.mirroring is not None and source.mirroring.targets == "boxes"  # targets in images
        self.takes = "images" if isinstance(source, ImageSource) else "table"  # or "series"
        self.columns: dict[str, tuple[str, int]] = {}  # of a data frame: their kinds and gaps
        self.dropped: tuple[str, ...] = ()  # columns that were left out, with the reason
        self.live, self.step = False, ""  # whether a forecaster's widths follow its misses; its step in words
        self.seen: dict[str, Array] = {}  # the series and its covariates so far
        if isinstance(model, SeriesForecaster):
            history, steps = model.history_, range(1, model.windows_.horizon + 1)
            self.takes, self.live, self.step = "series", bool(model.live), history.clock.step_in_words()
            self.target_names = tuple(f"{history.name}, {k} step{'s' * (k > 1)} ahead" for k in steps)
            self.n_ranked = None  # live calibration moves on from the ranks
            self.seen = series_columns(history, slice(0, len(history)))
        elif source.columns is not None:
            self.columns = {c.name: (KINDS[c.kind], c.n_missing) for c in source.columns.columns}
            self.dropped = tuple(f"{name} ({reason})" for name, reason in source.columns.dropped)

    @property
    def worst_slices(self) -> tuple[WorstSlice, ...]:
        """Where training rows were covered least, as the fit found it; empty for images and series."""
        return self.regressor.worst_slices_

    @property
    def looked_at(self) -> list[tuple[str, float]]:
        """The inputs of the networks and their learned scales, the largest first; empty where none are learned."""
        scales = getattr(self.regressor, "column_scales_", None)
        if scales is None:
            return []
        names = self.regressor.source_.names or [f"column {place}" for place in range(len(scales))]
        return [(str(names[place]), float(scales[place])) for place in np.argsort(-scales, kind="stable")]

    @property
    def blend(self) -> dict[str, float]:
        """The weights of networks and companions in the prediction, averaged over teams and targets; empty without any.

        All networks count together, and so do companions of one name.
        """
        weights = [team.weights for team in self.regressor.predictor_.fitted_teams if team.weights is not None]
        names = [NETWORKS, *(" ".join(str(choice).split()) for choice in getattr(self.regressor, "companions", ()))]
        found: dict[str, float] = {}
        for place, weight in enumerate(torch.stack(weights).mean(dim=(0, 2)).tolist() if weights else []):
            name = names[place] if place < len(names) else NETWORKS  # behind the companions: those of the first rounds
            found[name] = found.get(name, 0.0) + weight
        return found

    @property
    def repeated_up_to(self) -> float | None:
        """The level up to which a row of the training table that comes again has its target; None where it has not."""
        copies = [team.copies for team in self.regressor.predictor_.fitted_teams if team.copies is not None]
        return copies[0].level if copies else None

    @property
    def of_classes(self) -> dict[str, Any]:
        """How a classifier makes probabilities and sets; empty for other models."""
        (team, *_) = self.regressor.predictor_.fitted_teams
        if not isinstance(team, ClassTeam):
            return {}
        thresholds = team.thresholds
        found: dict[str, Any] = {
            "classes": [self.classes[place] for place in self.class_order],
            "in_order": self.is_ordered,
            "score": getattr(team.score, "score", team.score).name,
            "calibrator": None if team.calibrator is None else type(team.calibrator).__name__,
            "matching": None if self.regressor.matching is None else str(self.regressor.matching),
        }
        if thresholds is None:
            return found | {"thresholds": dict.fromkeys(self.levels, "as learned")}
        kinds = zip(thresholds.base.tolist(), thresholds.share.tolist(), strict=True)
        words = ["one for all rows" if not own else "each row's own" if not base else "mixed" for base, own in kinds]
        return found | {"thresholds": dict(zip(self.levels, words, strict=True))}

    @property
    def held_groups(self) -> dict[str, dict[str, int]]:
        """What coverage is held for, and how many rows each group's ranks rest on, the fewest first."""
        (team, *_), found = self.regressor.predictor_.fitted_teams, {}
        parts = [(part, group_names(part, self.regressor.source_.names)) for part in team.group_factors]
        if (by_class := getattr(team, "by_class", None)) is not None:
            parts.append((by_class, [self.classes[int(place)] for (place,) in by_class.keys.tolist()]))
        for part, names in parts:
            counts = zip([*names, "all others"], part.n_rows.tolist(), strict=True)
            found[part.name] = dict(sorted(((group, n) for group, n in counts if n), key=itemgetter(1)))
        return found

    @property
    def holds_classes(self) -> bool:
        """Whether coverage is held within each class."""
        return getattr(self.regressor, "holds_classes", False)

    @property
    def is_ordered(self) -> bool:
        """Whether the classes have an order."""
        return isinstance(getattr(self.regressor.predictor_, "score", None), Contiguous)

    @property
    def class_order(self) -> tuple[int, ...]:
        """The places of the classes in their order, or in that of `classes` if they have none."""
        score: Any = getattr(self.regressor.predictor_, "score", None)
        return score.order if self.is_ordered else tuple(range(len(self.classes)))

    @property
    def weights(self) -> str:
        """How many rows of equal weight those of the fit are worth, in words; empty where all count alike."""
        of = "an unknown number" if self.n_trained is None else f"{self.n_trained:,}"
        return f"rows are worth {self.n_effective:,.1f} of {of}" if self.n_effective else ""

    @property
    def held_for(self) -> str:
        """The same in words, and what each group is promised; empty if there are no groups."""
        parts = []
        for name, groups in self.held_groups.items():
            (first, n_first), *more = list(groups.items())[:MOST_GROUPS]
            told = ", ".join(
                [f"{first} {n_first:,} row{'s' * (n_first > 1)}", *(f"{group} {n:,}" for group, n in more)]
            )
            rest = f", and {len(groups) - MOST_GROUPS} more of up to {max(groups.values()):,}"
            parts.append(f"{name}, {len(groups)} groups: {told}{rest * (len(groups) > MOST_GROUPS)}")
        parts += [self.held_promise] if parts else []
        hold_for = getattr(self.regressor, "hold_for", None)
        asked = [] if hold_for is None else asked_columns(hold_for, getattr(self.regressor, "n_features_in_", 1))
        alike = [str(column) for column in asked if str(column) not in self.held_groups]
        parts += [f"{name}: ranks of all rows, since its groups' own cost more than they gain" for name in alike]
        return "; ".join(parts)

    @property
    def held_promise(self) -> str:
        """What each group is promised; of "split" its theorem, if rows are grouped in one way only."""
        is_exact = self.regressor.chosen_calibration.holds_back and len(self.held_groups) == 1
        if not is_exact or (self.recalibration is not None and self.recalibration.changed):
            return "in each near the asked level, as measured"
        enough = next(n for n in count(1) if max(self.levels) <= n / (n + 1))
        return f"at least the asked level on average in each of {enough} rows or more, others are drawn towards all"

    @property
    def by_round(self) -> tuple[Array, Array, Array]:
        """Error (round, target), coverage and width (round, target, level) of the training, before calibration."""
        shape, names = (len(self.rounds), len(self.target_names)), ("rmse", "coverage", "width")
        rmse, coverage, width = (np.array([getattr(one, name) for one in self.rounds]) for name in names)
        by_level = *shape, len(self.levels)
        return rmse.reshape(shape), coverage.reshape(by_level), width.reshape(by_level)

    def features(self, X: Any, names: Sequence[str] | None = None) -> dict[str, Column]:
        """The features of a table by name, as numbers, times or texts; NaN, NaT or None where a value is missing."""
        return self.regressor.source_.shown(X, names=names) if self.takes == "table" else {}

    def inputs(self, X: Any) -> Array:
        """The inputs of the networks for a table, (row, input)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the predictions have warned of the same
            return self.regressor.source_.rows(X, self.regressor)

    def input_range(self, X: Any) -> tuple[list[str], Array, Array, Array, Array, Array]:
        """The inputs of the networks for a table: names, rows (row, input); mean, deviation and range of the fit."""
        rows = self.inputs(X)
        names = self.regressor.source_.names or [f"column {place}" for place in range(rows.shape[1])]
        predictor = self.regressor.predictor_
        scalings = [(team.inputs.centre.cpu(), team.inputs.spread.cpu()) for team in predictor.fitted_teams]
        mean, deviation = (np.mean([np.asarray(one) for one in some], axis=0) for some in zip(*scalings, strict=True))
        low, high = (np.asarray(end.cpu()) for end in (predictor.inputs.low, predictor.inputs.high) if end is not None)
        return list(names), rows, mean, deviation, low, high


def group_names(part: GroupFactors, names: Sequence[str] | None) -> list[str]:
    """The groups in words: a value, a level, or the columns in which values are missing."""
    of_places = [part.name if names is None else names[place] for place in part.places.tolist()]
    found = []
    for key in part.keys.tolist():
        known = dict(zip(of_places, key, strict=True))
        if part.name == GAPS:
            words = [name.removesuffix(MISSING) for name, flag in known.items() if flag]
        elif known.get(part.name + MISSING):
            words = ["missing"]
        else:
            parts = {name.removeprefix(part.name): value for name, value in known.items()}
            flags = {name: value for name, value in parts.items() if name.startswith("=") or name in (OTHER, MISSING)}
            words = [name.strip(" =()") for name, flag in flags.items() if flag]
            words += [f"{value:.10g}" for name, value in parts.items() if name not in flags]
        found.append(" & ".join(words) or "none")
    return found


def _counts(model: CalibratedEstimator) -> tuple[int | None, int | None]:
    """Rows of the fit, and rows whose ranks set the widths; None where no ranks did, or the model does not know."""
    columns, known, scores = model.source_.columns, model.out_of_fold_, model.predictor_.correction.scores
    n_trained, n_ranked = None if columns is None else columns.n_rows or None, sum(map(len, scores))
    if known is not None:
        n_trained, n_left_out = len(known.known), int(known.known.sum())
        if not scores and (calibration := model.chosen_calibration).name is not None:
            n_ranked = n_left_out if calibration.ranks_out_of_fold else n_trained - n_left_out
    n_trained, n_ranked = getattr(model, "n_rows_", n_trained), getattr(model, "n_ranked_", n_ranked)  # of a stream
    if (found := getattr(model, "recalibration_", None)) is not None and found.changed:
        n_ranked = int(found.n_effective)
    return n_trained, n_ranked or None


def series_columns(history: History, steps: slice) -> dict[str, Array]:
    """The series and its covariates by name; a covariate with the name of another says what it is."""
    columns = {history.name: history.values[steps]}
    for names, table in ((history.past_names, history.past), (history.ahead_names, history.ahead)):
        for place, name in enumerate(names):
            columns[name if name not in columns else f"{name} (covariate)"] = table[steps, place]
    return columns
