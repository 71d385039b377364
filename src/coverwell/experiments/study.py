"""The runs of the comparison: a table and a trial give the rows, a method is fitted on them, a line says how well."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell import datasets, fit_together, metrics
from coverwell.device_memory import NotEnoughMemoryError
from coverwell.experiments.methods import Method, one_of_each
from coverwell.experiments.protocol import random_split, split_by_group
from coverwell.experiments.results import FORMAT, Line, environment

__all__ = ["DATA", "STUDY_LEVELS", "VARIANTS", "Rows", "data_from", "levels_from", "lines_of", "rows_of", "table"]

Array = NDArray[np.float64]

STUDY_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
BY_PATIENT = "parkinsons by patient"
UNIQUE = " unique"
VARIANTS = (BY_PATIENT, f"red wine{UNIQUE}", f"white wine{UNIQUE}")
DATA = (*datasets.names(), *VARIANTS)
# Where each level has its own fit, the point prediction is that of the level that most studies ask for.
USUAL_LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Rows:
    """Training and test rows of one trial; `groups` of the training rows, where the split is by group."""

    X: Array
    y: Array
    groups: NDArray[Any] | None
    X_test: Array
    y_test: Array


def data_from(names: Sequence[str]) -> tuple[str, ...]:
    """The names as `DATA` spells them; dashes or underscores may stand for blanks, upper case for lower.

    Examples
    --------
    >>> data_from(["Auto-MPG", "parkinsons by patient"])
    ('auto mpg', 'parkinsons by patient')
    """
    asked = one_of_each("data set", [name.strip().lower().replace("-", " ").replace("_", " ") for name in names])
    for name in asked:
        if name not in DATA:
            raise ValueError(f"a data set must be one of {', '.join(DATA)}; got {name!r}")
    return asked


def levels_from(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels in rising order, each strictly between 0 and 1 and none twice."""
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"a level must lie strictly between 0 and 1, got {level!r}")
    return tuple(sorted(float(level) for level in one_of_each("level", [repr(float(level)) for level in levels])))


@cache
def table(data: str) -> datasets.Dataset:
    """The whole table: one of the six, or a variant of it."""
    if data == BY_PATIENT:
        return datasets.load_table("parkinsons")
    if data.endswith(UNIQUE):
        return without_repeats(datasets.load_table(data.removesuffix(UNIQUE)))
    return datasets.load_table(data)


def without_repeats(data: datasets.Dataset) -> datasets.Dataset:
    """The table with the first of all rows that agree in every feature and the target."""
    _, first = np.unique(np.column_stack([data.X, data.y]), axis=0, return_index=True)
    kept = np.sort(first)
    return replace(data, X=data.X[kept], y=data.y[kept])


def rows_of(data: str, trial: int) -> Rows:
    """The rows of a trial: always the same, the same for every method."""
    whole = table(data)
    groups = whole.groups if data == BY_PATIENT else None
    train, test = random_split(len(whole.y), trial) if groups is None else split_by_group(groups, trial)
    of_train = None if groups is None else groups[train]
    return Rows(whole.X[train], whole.y[train], of_train, whole.X[test], whole.y[test])


def lines_of(
    method: Method, data: str, trials: Sequence[int], *, levels: tuple[float, ...], device: str, quick: bool = False
) -> list[Line]:
    """Fit a method on several trials as one stack, or as smaller ones if memory is short; one line for each."""
    try:
        return _lines_of_stack(method, data, trials, levels=levels, device=device, quick=quick)
    except NotEnoughMemoryError as error:
        if len(trials) == 1:
            raise
        half = len(trials) // 2
        warnings.warn(f"{error}. The stack of {len(trials)} trials is fitted as two", RuntimeWarning, stacklevel=2)
    parts = (trials[:half], trials[half:])
    return [line for p in parts for line in lines_of(method, data, p, levels=levels, device=device, quick=quick)]


def _lines_of_stack(
    method: Method, data: str, trials: Sequence[int], *, levels: tuple[float, ...], device: str, quick: bool
) -> list[Line]:
    rows = [rows_of(data, trial) for trial in trials]
    models = [method.build(levels, trial, device, quick=quick) for trial in trials]
    started = time.perf_counter()
    fit_together(
        [model for own in models for model in own],
        [(r.X, r.y, r.groups) for r, own in zip(rows, models, strict=True) for _ in own],
    )
    effort = {"seconds": round((time.perf_counter() - started) / len(trials), 3), "stack": len(trials)}
    return [
        {
            "format": FORMAT,
            "method": method.slug,
            "data": data,
            "trial": trial,
            "seed": trial,
            "levels": list(levels),
            **_measured(method, own, r, levels),
            **effort,
            **environment(device),
        }
        for trial, r, own in zip(trials, rows, models, strict=True)
    ]


def _measured(method: Method, models: list[Any], rows: Rows, levels: tuple[float, ...]) -> Line:
    usual = min(range(len(models)), key=lambda k: abs(levels[k] - USUAL_LEVEL))
    y_hat = models[usual].predict(rows.X_test)
    lower, upper = _bounds(models, rows.X_test)
    line = {
        "n_train": len(rows.y),
        "n_test": len(rows.y_test),
        "rmse": metrics.rmse(rows.y_test, y_hat),
        **_scores(rows.y_test, lower, upper, levels),
        "weighted_interval_score": None,
        "rounds": len(models[usual].rounds_),
        "members": _n_members(models[usual]),
    }
    if len(levels) >= metrics.FEWEST_LEVELS:
        score = metrics.weighted_interval_score(rows.y_test, y_hat, lower, upper, np.array(levels))
        line["weighted_interval_score"] = score
    if method.epistemic:
        line["epistemic"] = _scores(rows.y_test, *_bounds(models, rows.X_test, noise=False), levels)
    return line


def _n_members(model: Any) -> int:
    ensemble = model.ensembles_[0]
    team = ensemble.mean_team if hasattr(ensemble, "mean_team") else ensemble.team  # two kinds of networks, or one
    return int(team.n_members)


def _bounds(models: list[Any], X: Array, **reading: Any) -> tuple[Array, Array]:
    """Lower and upper bounds, (row, level), from one model of all levels or one model per level."""
    intervals = [model.predict_interval(X, **reading) for model in models]
    lower = np.concatenate([interval.lower.reshape(len(X), -1) for interval in intervals], axis=1)
    upper = np.concatenate([interval.upper.reshape(len(X), -1) for interval in intervals], axis=1)
    return lower, upper


def _scores(y: Array, lower: Array, upper: Array, levels: tuple[float, ...]) -> Line:
    of_levels = list(zip(lower.T, upper.T, levels, strict=True))
    return {
        "coverage": [metrics.coverage(y, low, up) for low, up, _ in of_levels],
        "width": [metrics.average_width(low, up) for low, up, _ in of_levels],
        "interval_score": [metrics.interval_score(y, low, up, level) for low, up, level in of_levels],
    }
