"""From checked arrays to jobs: which rows each team may see, who trains on what, and everything scaled."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, PredefinedSplit, ShuffleSplit

from coverwell.folds import Job, as_tensor, who_trains_and_speaks
from coverwell.inputs.mirroring import NOT_MIRRORED, Mirroring
from coverwell.inputs.scaling import ConstantDataWarning, Inputs, InputScaler, TargetScaler, UnscaledInputs, varies
from coverwell.metrics import coverage_rank

__all__ = ["Plan", "Prepared", "check_plan", "levels_from", "prepare", "target_names_of"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
# With "auto", tables of up to this many rows have more than the fewest repeats.
REPEATED_ROWS = 6000
FEWEST_REPEATS, MOST_REPEATS = 2, 5
# Levels closer to 0 or 1 than this are not told from them in float32.
MARGIN = 1e-6
# The square of a number beyond this is no longer finite.
LARGEST_NUMBER = 1e150


@dataclass(frozen=True)
class Plan:
    """How rows become jobs."""

    levels: tuple[float, ...]
    folds: Any
    repeats: int | str
    calibration: str | None
    calibration_size: float
    unit_range: bool  # targets to [0, 1], the unit of the published weights
    bounded: bool = True  # whether inputs are held within the range of the training rows
    # Those of each job's networks, where they go on training.
    scalers: tuple[tuple[Inputs, TargetScaler], ...] = ()
    scaled: bool = True  # features of pictures are not
    mirroring: Mirroring = NOT_MIRRORED

    def n_repeats(self, n_rows: int) -> int:
        """How many members leave each row out."""
        if self.repeats != "auto":
            return int(self.repeats)
        if self.folds is None or self.calibration == "cv+":
            return 1
        return int(np.clip(round(REPEATED_ROWS / n_rows), FEWEST_REPEATS, MOST_REPEATS))


@dataclass(frozen=True)
class Prepared:
    """One call of `fit`, scaled: a job per team, and the rows that each leaves to the ranks.

    A picture with its mirror image is one row of X, `(picture, view, ...)`, and of y; in a job it is two.
    """

    X: NDArray[Any]
    y: Array
    jobs: list[Job]
    inputs: list[Inputs]
    targets: list[TargetScaler]
    ranked: list[Rows]  # rows kept from a job, for "split" and "cv+"
    seed: int
    mirroring: Mirroring = NOT_MIRRORED


def prepare(
    X: NDArray[Any], y: Array, groups: NDArray[Any] | None, plan: Plan, random_state: np.random.RandomState
) -> Prepared:
    """The jobs of one fit; `X` is (row, feature) or features of pictures, and `y` (row, target)."""
    if plan.scaled:
        _check_magnitude(X, "X")
        _warn_of_constant_columns(X)
    _check_magnitude(y, "y")
    _warn_of_constant_targets(y)
    plan.mirroring.check(y)
    _check_folds(plan)
    rows_of_jobs = _rows_of_jobs(X, groups, plan, random_state)
    before = plan.scalers or (None,) * len(rows_of_jobs)
    if len(before) != len(rows_of_jobs):
        raise ValueError(
            f"warm_start goes on from as many teams as there were, {len(before)}, got {len(rows_of_jobs)}; keep "
            "calibration and folds, or fit with warm_start=False"
        )
    parts = [
        _job(X, y, rows, None if groups is None else groups[rows], plan, scalers, random_state)
        for rows, scalers in zip(rows_of_jobs, before, strict=True)
    ]
    jobs, inputs, targets = zip(*parts, strict=True)
    return Prepared(
        X=X,
        y=y,
        jobs=list(jobs),
        inputs=list(inputs),
        targets=list(targets),
        ranked=[np.setdiff1d(np.arange(len(X)), rows) for rows in rows_of_jobs],
        seed=random_state.randint(2**31 - 1),
        mirroring=plan.mirroring,
    )


def check_plan(n_rows: int, groups: NDArray[Any] | None, plan: Plan) -> None:
    """Raise what `prepare` would raise about folds and numbers of rows, before inputs that take long to compute."""
    _check_folds(plan)
    if plan.folds is not None and not isinstance(plan.folds, Integral):
        return  # splits of the user's own may be good for one pass only
    rows, random_state = np.empty((n_rows, 0)), np.random.RandomState(0)
    for own in _rows_of_jobs(rows, groups, plan, random_state):
        _who_trains_and_speaks(rows[own], None if groups is None else groups[own], plan, random_state)


def _rows_of_jobs(
    X: NDArray[Any], groups: NDArray[Any] | None, plan: Plan, random_state: np.random.RandomState
) -> list[Rows]:
    """The rows that each job may see: all, all but the calibration rows, or all but one fold."""
    n = len(X)
    if plan.calibration == "split":
        if groups is not None and len(np.unique(groups)) < 2:
            raise ValueError("calibration='split' keeps whole groups for the ranks and needs at least 2 groups, got 1")
        kind = ShuffleSplit if groups is None else GroupShuffleSplit
        splitter = kind(1, test_size=plan.calibration_size, random_state=random_state.randint(2**31 - 1))
        train, kept = next(splitter.split(X, groups=groups))
        _check_enough_rows(len(kept), plan.levels, f"calibration='split' keeps {len(kept)} of {n} rows")
        return [np.sort(train)]
    if plan.calibration == "cv+":
        _check_enough_rows(n, plan.levels, f"calibration='cv+' ranks {n} rows")
        _check_enough_folds(plan.folds, n, groups)
        trains, _ = who_trains_and_speaks(X, folds=plan.folds, repeats=1, groups=groups, random_state=random_state)
        if not (trains.sum(axis=0) == len(trains) - 1).all():
            raise ValueError("calibration='cv+' needs folds that leave every row out exactly once")
        return [np.flatnonzero(mask) for mask in trains]
    return [np.arange(n)]


def _job(
    X: NDArray[Any],
    y: Array,
    rows: Rows,
    groups: NDArray[Any] | None,
    plan: Plan,
    scalers: tuple[Inputs, TargetScaler] | None,
    random_state: np.random.RandomState,
) -> tuple[Job, Inputs, TargetScaler]:
    """The job of these rows, which are in ascending order; `groups` are theirs."""
    mirroring, own_y = plan.mirroring, y[rows]
    if plan.calibration == "cv+" and not plan.scaled:
        # Features may be too many for a copy in each job. All jobs look at all of them, and nobody trains on, or speaks
        # about, those that are not the job's own. Splitters, which are to count rows, get their numbers.
        own = _who_trains_and_speaks(rows, groups, plan, random_state)
        trains, speaks = (_among_all(mask, rows, len(X)) for mask in own)
    else:
        all_on_disk = len(rows) == len(X) and not plan.scaled
        X, y = X if all_on_disk else X[rows], own_y
        trains, speaks = _who_trains_and_speaks(X, groups, plan, random_state)
    flat = mirroring.flat(X)
    inputs, targets = _inputs_of(flat, plan), TargetScaler.of(mirroring.rows(own_y), unit_range=plan.unit_range)
    if scalers is not None:  # networks that go on training keep their units, over the range of all that was seen
        inputs, targets = _around(scalers[0], inputs), scalers[1]
    x = as_tensor(inputs.transform(flat))
    job = Job(
        x=x.float() if plan.scaled else x,
        y=torch.from_numpy(targets.transform(mirroring.rows(y))).float(),
        trains=torch.from_numpy(mirroring.repeated(trains, axis=1)),
        speaks=torch.from_numpy(mirroring.repeated(speaks, axis=1)),
        coverage=torch.tensor(plan.levels),
    )
    return job, inputs, targets


def _among_all(mask: NDArray[np.bool_], rows: Rows, n_rows: int) -> NDArray[np.bool_]:
    """A mask (member, own row) as one over all rows."""
    among_all = np.zeros((len(mask), n_rows), dtype=bool)
    among_all[:, rows] = mask
    return among_all


def _inputs_of(rows: NDArray[Any], plan: Plan) -> Inputs:
    return InputScaler.of(rows, bounded=plan.bounded) if plan.scaled else UnscaledInputs(rows.shape[1:])


def _around(before: Inputs, now: Inputs) -> Inputs:
    """What networks that go on training have seen, before and now."""
    if isinstance(before, InputScaler) and isinstance(now, InputScaler):
        return InputScaler.around([before, now])
    return before


def _who_trains_and_speaks(
    X: NDArray[Any], groups: NDArray[Any] | None, plan: Plan, random_state: np.random.RandomState
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two masks (member, row), checked."""
    repeats = plan.n_repeats(len(X))
    if plan.folds is None:
        trains = speaks = np.ones((repeats, len(X)), dtype=bool)
    else:
        _check_enough_folds(plan.folds, len(X), groups)
        trains, speaks = who_trains_and_speaks(
            X, folds=plan.folds, repeats=repeats, groups=groups, random_state=random_state
        )
    if not speaks.any():
        raise ValueError("folds must leave rows out, the given splitter leaves none out")
    if plan.calibration == "cross":
        n_ranked = int(speaks.any(axis=0).sum())
        _check_enough_rows(n_ranked, plan.levels, f"calibration='cross' ranks {n_ranked} of {len(X)} rows")
    if not trains.any(axis=1).all():
        raise ValueError("folds must give every member rows to train on, the given splitter has a fold without any")
    return trains, speaks


def levels_from(coverage: Any) -> tuple[float, ...]:
    """The asked levels as floats, in the order they were asked for."""
    values = tuple(coverage) if np.ndim(coverage) else (coverage,)
    if not values:
        raise ValueError("coverage must hold at least one level, got an empty sequence")
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < 1:
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {value!r}")
        if not MARGIN <= float(value) <= 1 - MARGIN:
            raise ValueError(f"coverage must lie at least {MARGIN:g} from 0 and 1, got {value!r}")
    if len(set(values)) < len(values):
        raise ValueError(f"coverage must not hold a level twice, got {values}")
    return tuple(float(value) for value in values)


def target_names_of(y: Any, targets: NDArray[Any]) -> tuple[str, ...]:
    """The names that a series or data frame of targets carries, or y, y0, y1, ...; `targets` is y as an array."""
    if hasattr(y, "columns"):
        return tuple(str(name) for name in y.columns)
    if getattr(y, "name", None) not in (None, ""):  # polars calls a series without a name ""
        return (str(y.name),)
    n_targets = 1 if targets.ndim == 1 else targets.shape[1]
    return ("y",) if n_targets == 1 else tuple(f"y{t}" for t in range(n_targets))


def _warn_of_constant_columns(X: Array) -> None:
    constant = np.flatnonzero(~varies(X))
    if len(constant):
        warnings.warn(
            f"{len(constant)} of {X.shape[1]} columns of X are constant and carry no information (the first: column "
            f"{constant[0]})",
            ConstantDataWarning,
            stacklevel=2,
        )


def _warn_of_constant_targets(y: Array) -> None:
    if not varies(y).all():
        warnings.warn("y is constant: its intervals will be close to empty", ConstantDataWarning, stacklevel=2)


def _check_magnitude(values: Array, name: str) -> None:
    largest = np.abs(values).max()
    if largest > LARGEST_NUMBER:
        raise ValueError(f"{name} must lie within {LARGEST_NUMBER:g} of zero, got {largest:g}; give it in larger units")


def _check_folds(plan: Plan) -> None:
    folds = plan.folds
    if isinstance(folds, type):
        raise ValueError(f"folds must be a splitter, not its class; write {folds.__name__}(...)")
    if folds is None or isinstance(folds, Integral) or (hasattr(folds, "split") and not isinstance(folds, str)):
        fixed = isinstance(folds, PredefinedSplit)
    elif isinstance(folds, Iterable) and not isinstance(folds, str):
        fixed = True
    else:
        raise ValueError(f"folds must be a whole number, a scikit-learn splitter or None, got {folds!r}")
    if fixed and plan.calibration in ("split", "cv+"):
        raise ValueError(
            f"calibration={plan.calibration!r} splits part of the rows, but the given folds are fixed for all of them; "
            "give a number of folds or another splitter, or calibration='cross'"
        )


def _check_enough_rows(n: int, levels: tuple[float, ...], what: str) -> None:
    try:
        coverage_rank(max(levels), n)
    except ValueError as error:
        raise ValueError(f"{what}: {error}, or fit with calibration=None") from None


def _check_enough_folds(folds: Any, n_rows: int, groups: NDArray[Any] | None) -> None:
    if not isinstance(folds, Integral):
        return
    if isinstance(folds, bool) or int(folds) < 2:
        raise ValueError(f"folds must be at least 2, a splitter, or None, got {folds!r}")
    n, what = (n_rows, "rows") if groups is None else (len(np.unique(groups)), "groups")
    if n < int(folds):
        raise ValueError(f"folds={folds} needs at least as many {what}, got {n}; give fewer folds or more {what}")
