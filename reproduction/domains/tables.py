"""The runs of Table 1 and Figures 2 and 3: a table and a trial give the rows, and a method is fitted on them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from coverwell import fit_together, metrics
from coverwell.errors import NotEnoughMemoryError
from coverwell.predictor import FittedTeam
from coverwell.training.device import device_from
from reproduction.data.tables import TABLES, Table, load_table
from reproduction.lines import Line
from reproduction.methods import OURS, PUBLISHED, TABLE_METHODS, Method, table_settings
from reproduction.study import Place, Study

Array = NDArray[np.float64]
Positions = NDArray[np.intp]
Levels = tuple[float, ...]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
BY_PATIENT, UNIQUE = "parkinsons by patient", " unique"
DATA = (*TABLES, BY_PATIENT, f"red wine{UNIQUE}", f"white wine{UNIQUE}")
TEST_SHARE = 0.2
# Where each level has its own fit, the point prediction is that of the level next to this one.
DEFAULT_LEVEL = 0.9
# How many trials are fitted as one stack on a CPU: networks side by side gain little once there are about ten, and
# smaller units are less to lose.
TRIALS_ON_CPU, MANY_NETWORKS = 5, 10
# The cost of a row that does not depend on its columns, in columns.
COLUMNS_FOR_FREE = 25
# Figure 2, with the levels of the paper.
LEVEL_OF, OTHER_LEVEL = {"boston": 0.95, "parkinsons": 0.99}, 0.9
MOST_ROUNDS = {OURS: 40, PUBLISHED: 50}
ROUND_MEASURES = ("rmse", "coverage", "width")


@dataclass(frozen=True, eq=False)
class Rows:
    """Training and test rows of one trial; `groups` of the training rows, where the split is by group."""

    X: Array
    y: Array
    groups: NDArray[Any] | None
    X_test: Array
    y_test: Array


def random_split(n_rows: int, split: int, groups: NDArray[Any] | None = None) -> tuple[Positions, Positions]:
    """Training and test rows, 80 to 20, of the groups where there are any, which stay whole.

    Splits 0 to 19 are reported on, 100 to 104 are for choosing settings.
    """
    splitter = (ShuffleSplit if groups is None else GroupShuffleSplit)(1, test_size=TEST_SHARE, random_state=split)
    train, test = next(splitter.split(np.empty((n_rows, 0)), groups=groups))
    return train, test


@cache
def table(data: str) -> Table:
    """The whole table: one of the six, or a variant of it."""
    whole = load_table("parkinsons" if data == BY_PATIENT else data.removesuffix(UNIQUE))
    if not data.endswith(UNIQUE):
        return whole
    # Of rows that agree in every feature and the target, the first.
    _, first = np.unique(np.column_stack([whole.X, whole.y]), axis=0, return_index=True)
    kept = np.sort(first)
    return replace(whole, X=whole.X[kept], y=whole.y[kept])


def rows_of(data: str, trial: int) -> Rows:
    """The rows of a trial: always the same, the same for every method."""
    whole = table(data)
    groups = whole.groups if data == BY_PATIENT else None
    train, test = random_split(len(whole.y), trial, groups)
    of_train = None if groups is None else groups[train]
    return Rows(whole.X[train], whole.y[train], of_train, whole.X[test], whole.y[test])


def _fit(models: list[list[Any]], rows: list[Rows], watch: Callable[..., None] | None = None) -> Line:
    """Fit the models of all trials as one stack; what it took for each trial."""
    started = time.perf_counter()
    data = [(r.X, r.y, r.groups) for r, own in zip(rows, models, strict=True) for _ in own]
    fit_together([model for own in models for model in own], data, on_round=watch)
    return {"seconds": round((time.perf_counter() - started) / len(rows), 3), "stack": len(rows)}


@dataclass(frozen=True)
class TableStudy(Study):
    """Methods on tables; a trial is a random split, and a run has all levels."""

    FILE: ClassVar[str] = "results.jsonl"
    VARIANT: ClassVar[str] = "levels"
    FIELDS: ClassVar[str] = (
        "n_train n_test rmse coverage width interval_score weighted_interval_score seed rounds members seconds stack"
    )
    QUICK: ClassVar[Mapping[str, Any]] = {"trials": 2, "data": ("boston", "auto mpg")}
    SETTINGS: ClassVar[str] = "configuration.json"

    methods: tuple[Method, ...] = TABLE_METHODS
    trials: int = 5
    data: tuple[str, ...] = TABLES
    levels: Levels = LEVELS

    @classmethod
    def settings(cls) -> dict[str, Any]:
        return {method.slug: table_settings(method) for method in TABLE_METHODS}

    def places(self, method: Method) -> Iterator[Place]:
        return ((data, self.levels) for data in self.data)

    def per_unit(self, method: Method) -> int:
        if device_from(self.device).type != "cpu":
            return method.trials_on_gpu
        return 1 if method.n_networks(len(self.levels)) >= MANY_NETWORKS else TRIALS_ON_CPU

    def cost(self, method: Method, place: Place) -> float:
        n_rows, n_columns = table(place[0]).X.shape
        return float(n_rows * (COLUMNS_FOR_FREE + n_columns) * method.n_networks(len(self.levels)) * method.cost)

    def measure(self, method: Method, place: Place, trials: Sequence[int]) -> list[Line]:
        """Fit the trials as one stack, or as smaller ones if memory is short."""
        rows = [rows_of(place[0], trial) for trial in trials]
        asked: Sequence[Any] = self.levels if method.one_per_level else [self.levels]
        models = [[method.build(one, t, self.device, quick=self.quick) for one in asked] for t in trials]
        try:
            effort = _fit(models, rows)
        except NotEnoughMemoryError as error:
            if len(trials) == 1:
                raise
            warnings.warn(f"{error}. The stack of {len(trials)} trials is fitted as two", RuntimeWarning, stacklevel=2)
            halves = (trials[: len(trials) // 2], trials[len(trials) // 2 :])
            return [line for half in halves for line in self.measure(method, place, half)]
        return [{**self._measured(method, own, r), **effort} for r, own in zip(rows, models, strict=True)]

    def _measured(self, method: Method, models: list[Any], rows: Rows) -> Line:
        default = models[min(range(len(models)), key=lambda k: abs(self.levels[k] - DEFAULT_LEVEL))]
        y_hat, bounds = default.predict(rows.X_test), _bounds(models, rows.X_test)
        score = None
        if len(self.levels) >= metrics.FEWEST_LEVELS:
            score = metrics.weighted_interval_score(rows.y_test, y_hat, *bounds, np.array(self.levels))
        line = {
            "n_train": len(rows.y),
            "n_test": len(rows.y_test),
            "rmse": metrics.rmse(rows.y_test, y_hat),
            **_scores(rows.y_test, *bounds, self.levels),
            "weighted_interval_score": score,
            "rounds": len(default.rounds_),
            "members": default.predictor_.fitted_teams[0].n_members,
        }
        if method.epistemic:
            line["epistemic"] = _scores(rows.y_test, *_bounds(models, rows.X_test, noise=False), self.levels)
        return line


def _bounds(models: list[Any], X: Array, **options: Any) -> tuple[Array, Array]:
    """Lower and upper bounds, (row, level), from one model of all levels or one model per level."""
    each = [[side.reshape(len(X), -1) for side in model.predict_interval(X, **options)] for model in models]
    lower, upper = (np.concatenate(sides, axis=1) for sides in zip(*each, strict=True))
    return lower, upper


def _scores(y: Array, lower: Array, upper: Array, levels: Levels) -> Line:
    of_levels = list(zip(lower.T, upper.T, levels, strict=True))
    return {
        "coverage": [metrics.coverage(y, low, up) for low, up, _ in of_levels],
        "width": [metrics.average_width(low, up) for low, up, _ in of_levels],
        "interval_score": [metrics.interval_score(y, low, up, level) for low, up, level in of_levels],
    }


@dataclass(frozen=True)
class RoundStudy(Study):
    """Figure 2: error, coverage and width by round of Algorithm 1, all trials of a method on a table as one stack.

    The methods are those with the paper's matchings. Beside the test rows, a line has the measures on the model's own
    rows: those that networks left out or, as published, those they were trained on.
    """

    FILE: ClassVar[str] = "rounds.jsonl"
    VARIANT: ClassVar[str] = "levels"
    FIELDS: ClassVar[str] = "test own n_train n_test seconds stack"
    QUICK: ClassVar[Mapping[str, Any]] = {"trials": 2}

    methods: tuple[Method, ...] = tuple(method for method in TABLE_METHODS if "matching" in method.settings)
    trials: int = 5
    data: tuple[str, ...] = tuple(LEVEL_OF)

    def places(self, method: Method) -> Iterator[Place]:
        return ((data, (LEVEL_OF.get(data, OTHER_LEVEL),)) for data in self.data)

    def per_unit(self, method: Method) -> int:
        return self.trials

    def cost(self, method: Method, place: Place) -> float:
        return table(place[0]).X.size * method.n_networks(1) * method.cost

    def measure(self, method: Method, place: Place, trials: Sequence[int]) -> list[Line]:
        data, levels = place
        rows = [rows_of(data, trial) for trial in trials]
        # The paper's figure is about I's intervals, and after so many rounds little changes.
        asked = {**method.settings, **(method.quick if self.quick else {})}.get("max_rounds", math.inf)
        how = {"shape": "interval", "max_rounds": min(asked, MOST_ROUNDS[method.kind]), "quick": self.quick}
        models = [method.build(levels, trial, self.device, **how) for trial in trials]
        on_test: list[list[Line]] = [[] for _ in trials]

        def watch(present: list[list[FittedTeam]]) -> None:
            for seen, teams, own in zip(on_test, present, rows, strict=True):
                seen.append(_before_ranks(teams[0], own))

        effort = _fit([[model] for model in models], rows, watch)
        return [
            {
                "n_train": len(r.y),
                "n_test": len(r.y_test),
                # Others of the stack may train on after a trial has settled: its rounds are as many as it records.
                "test": {name: [one[name] for one in seen[: len(model.rounds_)]] for name in ROUND_MEASURES},
                "own": {name: [float(np.squeeze(vars(one)[name])) for one in model.rounds_] for name in ROUND_MEASURES},
                **effort,
            }
            for r, model, seen in zip(rows, models, on_test, strict=True)
        ]


def _before_ranks(team: FittedTeam, rows: Rows) -> Line:
    """Error, coverage and width of the learned intervals on the test rows, before any ranks."""
    estimate = team.estimate(rows.X_test)
    mean, (below, above) = estimate.mean[:, 0], estimate.half_width[:, 0, :, 0].T  # one target, one level
    lower, upper = mean - below, mean + above
    return {
        "rmse": metrics.rmse(rows.y_test, mean),
        "coverage": metrics.coverage(rows.y_test, lower, upper),
        "width": metrics.average_width(lower, upper),
    }
