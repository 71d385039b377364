"""What all our estimators share: checked rows in, predictions and intervals out, several fits as one stack.

A kind of estimator adds its parameters, how its rows become jobs, and how jobs are trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import chain
from numbers import Integral, Real
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from torch import nn
from tqdm import tqdm

from coverwell.algorithm import Measures, Record
from coverwell.calibration import Estimate
from coverwell.device_memory import OfJobs, run_within_memory
from coverwell.folds import Job
from coverwell.held_out import Speaker, Stretch, stretch_of
from coverwell.inputs.columns import Columns
from coverwell.inputs.scaling import InputScaler
from coverwell.inputs.source import ImageSource, InputSource, without_cache
from coverwell.intervals import PredictionInterval
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network
from coverwell.preparation import Plan, Prepared, check_plan, levels_from, prepare, target_names_of
from coverwell.rounds import Round, rounds_of
from coverwell.streaming import TableFiles, estimate_files, fit_streamed
from coverwell.training import device_from, few_threads, seeded

__all__ = [
    "IntervalRegressor",
    "Training",
    "auto_batch_size",
    "check_count",
    "check_number",
    "check_share",
    "fit_together",
]

Array = NDArray[np.float64]
Groups = NDArray[Any] | None
# X is a table, or for a network that takes pictures whatever `coverwell.inputs.images.images_of` takes.
Table = tuple[Any, ArrayLike, ArrayLike | None]

# Parameters in which models of one stack may differ.
OWN_TO_EACH = ("coverage", "calibration_size", "random_state", "verbose")


@runtime_checkable
class Training(OfJobs, Protocol):
    """How a kind of estimator trains jobs."""

    @property
    def batch_size(self) -> int: ...

    @property
    def max_rounds(self) -> int: ...

    @property
    def networks(self) -> Sequence[Network]: ...

    def with_networks(self, change: Callable[[Network], Network]) -> Training:
        """The same with every network changed."""
        ...


class IntervalRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor with a prediction interval for every row; the verbs of all our estimators."""

    coverage: float | Sequence[float] | Array
    calibration: str | None
    device: str
    random_state: Any
    verbose: int
    network: Any

    _bounded = True  # whether a network is asked outside the range of its training rows; a forecaster may have it so

    ensembles_: list[Any]
    rounds_: list[Round]
    factor_: Array | None
    joint_factor_: Array | None
    scores_: list[Array] | None
    source_: InputSource

    def fit(self, X: Any, y: Any, groups: Any = None) -> Any:
        """Train the networks and calibrate their intervals.

        Parameters
        ----------
        X : array-like or data frame (n, feature); images for a network that takes them
            A data frame may have columns of text, booleans and dates, and missing values (`coverwell.inputs.columns`).
            Images are an array (n, channel, height, width), a `torch.utils.data.Dataset`, a list or a data frame of
            file paths: whatever `coverwell.inputs.images.images_of` takes. `TableFiles` are read part by part, for
            tables that are larger than memory (`MatchedRegressor` alone, see `coverwell.streaming`).
        y : array-like (n,) or (n, target)
            Of `TableFiles`, the name or names of the columns to predict.
        groups : array-like (n,), optional
            Rows of one group (a patient, a house, a day) are held out together, so that training stops, and intervals
            are calibrated, for groups that were not seen. Of `TableFiles`, the name of a column.
        """
        if isinstance(X, TableFiles):
            return fit_streamed(self, X, y, groups=groups)
        fit_together([self], [(X, y, groups)])
        return self

    def predict(self, X: Any) -> Array:
        """The prediction for each row, `(n,)` or `(n, target)` as y was."""
        mean: Array = np.mean([estimate.mean for estimate in self._estimates(X)], axis=0)
        return mean[:, 0] if self._one_dimensional else mean

    def predict_interval(
        self, X: Any, coverage: float | Sequence[float] | Array | None = None, *, joint: bool = False
    ) -> PredictionInterval:
        """The interval for each row; unpacks into lower and upper bounds.

        Parameters
        ----------
        X : array-like or data frame (n, feature), or pictures, as in `fit`
        coverage : float or sequence of float, optional
            Some of the fitted levels; all that were asked for if None.
        joint : bool
            Boxes that contain all targets of a row together, in place of one interval per target.
        """
        check_is_fitted(self)
        wanted = self._wanted(coverage)
        return self._interval(X, wanted, self._stretch, self._estimates(X), joint=joint)

    @property
    def columns_(self) -> Columns:
        """How columns of a data frame with named columns become numbers; not for other inputs."""
        if self.source_.columns is None:
            raise AttributeError("the model was fitted on rows without named columns, and has no columns_")
        return self.source_.columns

    @property
    def trunk_(self) -> nn.Module:
        """The frozen layers that images are seen through; not for tables."""
        if not isinstance(self.source_, ImageSource) or self.source_.trunk is None:
            raise AttributeError("the model was fitted on a table, and has no trunk_")
        return self.source_.trunk

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensembles_")

    def __getstate__(self) -> dict[str, Any]:
        for ensemble in getattr(self, "ensembles_", ()):
            ensemble.to(torch.device("cpu"))  # a pickle from a GPU opens where there is none
        state: dict[str, Any] = super().__getstate__()
        if "source_" in state:  # the folder of features is this machine's; an unfitted model takes it to workers
            networks = {name: state[name] for name in ("network", "interval_network") if name in state}
            state = {**state, **{name: without_cache(network) for name, network in networks.items()}}
        return state

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # What a kind of estimator says.

    def _written_out(self) -> dict[str, Any]:
        """All parameters, with numbers for "auto" where they do not depend on the rows: what results are kept with."""
        return {name: self._usual(name) for name in self.get_params()}

    def _usual(self, name: str) -> Any:
        """A parameter; for "auto", what the network's recipe has as its usual number, and "auto" where it has none."""
        value = getattr(self, name)
        is_auto = isinstance(value, str) and value == "auto"
        return getattr(self.network, "usual", {}).get(name, value) if is_auto else value

    def _check_choices(self) -> None:
        """Raise unless the parameters are such that rows can be prepared."""
        raise NotImplementedError

    def _plan(self, groups: Groups, random_state: np.random.RandomState) -> Plan:
        """How rows become jobs."""
        raise NotImplementedError

    def _training(self, n_rows: int) -> Training:
        """How jobs of this many rows are trained."""
        raise NotImplementedError

    def _ensemble(self, trained: Any, prepared: Prepared, job: int) -> Speaker:
        """What speaks for one job from now on."""
        raise NotImplementedError

    # Reading: from rows to estimates to bounds.

    def _estimates(self, X: Any, **reading: Any) -> list[Estimate]:
        check_is_fitted(self)
        if isinstance(X, TableFiles):
            return estimate_files(self, X, **reading)
        rows = self.source_.rows(X, self)
        if self.source_.scaled:
            seen = InputScaler.around([ensemble.inputs for ensemble in self.ensembles_])
            seen.warn_if_far_outside(rows, self.source_.names)
        device = device_from(self.device)
        return [ensemble.estimate(rows, device, **reading) for ensemble in self.ensembles_]

    def _stretched(self, X: Array) -> Estimate:
        """The prediction for rows of our own making, and how far its calibrated interval reaches; not for "cv+"."""
        (ensemble,) = self.ensembles_
        estimate: Estimate = ensemble.estimate(X, device_from(self.device))
        assert self.factor_ is not None  # a single team has factors
        return Estimate(estimate.mean, estimate.reach * self.factor_[:, None, :])

    def _interval(
        self,
        X: Any,
        wanted: float | Sequence[float] | Array,
        stretch: Stretch,
        estimates: list[Estimate],
        *,
        joint: bool,
    ) -> PredictionInterval:
        places = [self._fitted_levels.index(level) for level in levels_from(wanted)]
        lower, upper = stretch.bounds(estimates, self._fitted_levels, joint=joint)
        lower, upper = lower[..., places], upper[..., places]
        if isinstance(wanted, Real):
            lower, upper = lower[..., 0], upper[..., 0]
        if self._one_dimensional:
            lower, upper = lower[:, 0], upper[:, 0]
        return PredictionInterval(
            lower,
            upper,
            coverage=float(wanted) if isinstance(wanted, Real) else levels_from(wanted),
            target_names=self.target_names_,
            index=getattr(X, "index", None) if hasattr(X, "iloc") else None,  # a list has an `index` method
        )

    def _wanted(self, coverage: float | Sequence[float] | Array | None) -> float | Sequence[float] | Array:
        """The level or levels that are asked for, all of them fitted."""
        wanted = self.coverage if coverage is None else coverage
        unknown = [level for level in levels_from(wanted) if level not in self._fitted_levels]
        if unknown:
            raise ValueError(
                f"coverage {unknown} was not fitted; the fitted levels are {list(self._fitted_levels)}: "
                "choose among them, or fit with the level in coverage=[...]"
            )
        return wanted

    # Finishing: what was trained becomes what users read.

    @property
    def _stretch(self) -> Stretch:
        return Stretch(self.factor_, self.joint_factor_, self.scores_)

    def _finish(
        self, prepared: Prepared, trained: list[Any], ensembles: list[Any], record: Record, jobs: slice
    ) -> None:
        """Calibrate, and keep the record of the rounds."""
        self.rounds_ = rounds_of(
            record,
            jobs,
            prepared.targets,
            self._fitted_levels,
            one_target=self._one_dimensional,
            one_level=isinstance(self.coverage, Real),
        )
        stretch = stretch_of(self.calibration, prepared, trained[0].said, ensembles, device_from(self.device))
        self.factor_, self.joint_factor_, self.scores_ = stretch.factor, stretch.joint_factor, stretch.scores

    # Checking and scaling.

    def _prepare(self, X: Any, y: ArrayLike, groups: ArrayLike | None, start: Sequence[Speaker]) -> Prepared:
        self._check_choices()
        self._fitted_levels = tuple(sorted(levels_from(self.coverage)))
        before = getattr(self, "source_", None)  # of networks that go on training
        source = InputSource.of(X, self.network, getattr(self, "interval_network", None), before)
        read, targets = source.fit(X, y, self)
        self.target_names_ = target_names_of(y, targets)
        self._one_dimensional = targets.ndim == 1
        group_of_row = None if groups is None else _checked_groups(groups, len(targets))
        targets = targets.reshape(len(targets), -1)
        random_state = check_random_state(self.random_state)
        scalers = tuple((speaker.inputs, speaker.targets) for speaker in start)
        plan = replace(self._plan(group_of_row, random_state), scalers=scalers, bounded=self._bounded)
        plan = replace(plan, scaled=source.scaled, mirroring=source.mirroring)
        if not source.scaled:
            check_plan(len(targets), group_of_row, plan)  # before the features, which may take long
        rows = read(random_state)
        self.source_ = source
        _check_goes_on(start, source.row_shape)
        return prepare(rows, targets, group_of_row, plan, random_state)

    def _forget(self) -> None:
        """Drop everything that a fit has set."""
        for name in [
            name for name in vars(self) if name.endswith("_") or name in ("_one_dimensional", "_fitted_levels")
        ]:
            delattr(self, name)


def fit_together(
    models: Sequence[IntervalRegressor],
    tables: Sequence[Table],
    *,
    on_round: Callable[[list[list[Any]]], None] | None = None,
) -> None:
    """Fit several models at once, as one stack of members: what a study of many splits needs on a GPU.

    Parameters
    ----------
    models : sequence of estimators of one class
        Alike in everything but `random_state`, `calibration_size`, `verbose` and the values in `coverage`. The first
        model's seed draws the weights and batches of the whole stack, so a model fitted with others differs in its bits
        from the same model alone.
    tables : sequence of (X, y, groups)
        One per model, alike in the number of columns and targets; groups may be None.
    on_round : function, optional
        Called after every round with the present ensembles of each model, before any calibration: for curves over the
        rounds. It costs a copy of all networks each time.
    """
    before = [dict(vars(model)) for model in models]
    for model, was in zip(models, before, strict=True):
        model._forget()
        if _start_of(was):  # members that go on see through the same eyes
            model.source_ = was["source_"]
    try:
        _fit_together(models, tables, [_start_of(was) for was in before], on_round)
    except BaseException:  # Ctrl-C too: unfitted, not broken; a model that was to go on stays what it was
        for model, was in zip(models, before, strict=True):
            model._forget()
            model.__dict__.update(was if was.get("warm_start") else {})
        raise


def _start_of(before: dict[str, Any]) -> list[Any]:
    """The speakers that a model goes on from, given what it was."""
    return list(before.get("ensembles_", ())) if before.get("warm_start") else []


def _fit_together(
    models: Sequence[IntervalRegressor],
    tables: Sequence[Table],
    starts: Sequence[list[Any]],
    on_round: Callable[[list[list[Any]]], None] | None,
) -> None:
    _check_alike(models, tables)
    prepared = [model._prepare(*table, start) for model, table, start in zip(models, tables, starts, strict=True)]
    jobs = [job for p in prepared for job in p.jobs]
    _check_stackable(jobs)
    training = models[0]._training(max(len(job.y) for job in jobs))
    if any(starts):
        _check_can_go_on(jobs, starts)
        training = replace(training, start=tuple(chain.from_iterable(starts)))  # type: ignore[type-var]
    ends = np.cumsum([len(p.jobs) for p in prepared]).tolist()
    parts = [slice(end - len(p.jobs), end) for p, end in zip(prepared, ends, strict=True)]

    def ensembles(model: IntervalRegressor, p: Prepared, trained: list[Any]) -> list[Speaker]:
        return [model._ensemble(t, p, job) for job, t in enumerate(trained)]

    with (
        seeded(prepared[0].seed, training.device),
        few_threads(_operations_per_step(jobs, training)),
        _progress_bar(models[0], training.max_rounds) as show,
    ):

        def progress(measures: Measures, present: Callable[[], list[Any]]) -> None:
            show(measures)
            if on_round is not None:
                now = present()
                on_round([ensembles(m, p, now[part]) for m, p, part in zip(models, prepared, parts, strict=True)])

        trained, record = run_within_memory(training, jobs, progress)
        if training.device.type == "cuda":
            torch.cuda.empty_cache()  # what replayed steps have held is of no use to the next fit
    for model, p, part in zip(models, prepared, parts, strict=True):
        final = ensembles(model, p, trained[part])
        model._finish(p, trained[part], final, record, part)
        model.ensembles_ = final  # last: a model that has them is fitted


def _checked_groups(groups: ArrayLike, n_rows: int) -> NDArray[Any]:
    """The group of each row: all texts, all numbers or all times, and none missing."""
    one_each: NDArray[Any] = column_or_1d(np.asarray(groups, dtype=object))
    if len(one_each) != n_rows:
        raise ValueError(f"groups must have one entry per row, got {len(one_each)} for {n_rows} rows")
    if not isinstance(groups, np.ndarray) or groups.dtype.kind not in "biuU":  # these have one kind and no gaps
        _check_kinds_of_groups(one_each)
    checked: NDArray[Any] = column_or_1d(check_array(groups, ensure_2d=False, dtype=None))
    return checked


def _check_kinds_of_groups(groups: NDArray[np.object_]) -> None:
    """Raise for a missing group, and for 1 beside "1", which one array would make the same."""
    kinds = [_kind_of_group(group) for group in groups]
    for row, kind in enumerate(kinds):
        if kind is None:
            raise ValueError(
                f"groups must have a value in every row, got {groups[row]} in row {row} (counted from 0); fill it in"
            )
        if kind != kinds[0]:
            raise ValueError(
                f"groups must be of one kind, got {groups[0]!r} in row 0 and {groups[row]!r} in row {row} (counted "
                "from 0); convert them"
            )


def _kind_of_group(group: Any) -> Any:
    """What can be told from others of its kind; None for a missing group, of which each library has its own sign."""
    if group is None or type(group).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(group, Real | np.datetime64) and group != group:  # NaN, and numpy's own sign for times
        return None
    kinds = (bool | np.bool_, Real, str, date | np.datetime64)
    return next((kind for kind in kinds if isinstance(group, kind)), type(group))


def _check_goes_on(start: Sequence[Speaker], shape: tuple[int, ...]) -> None:
    if start and shape != start[0].inputs.shape:
        before, now = (s[0] if len(s) == 1 else s for s in (start[0].inputs.shape, shape))
        raise ValueError(f"warm_start goes on from networks of {before} columns, got {now}; fit with warm_start=False")


def _check_alike(models: Sequence[IntervalRegressor], tables: Sequence[Any]) -> None:
    if len(models) != len(tables) or not models:
        raise ValueError(f"fit_together needs one table (X, y, groups) per model, got {len(tables)} for {len(models)}")
    first = models[0]
    for model in models:
        if type(model) is not type(first):
            kinds = f"{type(first).__name__} and {type(model).__name__}"
            raise ValueError(f"models that are fitted together must be of one class, got {kinds}; fit them one by one")
        for name, shared in first.get_params(deep=False).items():
            value = getattr(model, name)
            if name not in OWN_TO_EACH and value is not shared and value != shared:
                raise ValueError(
                    f"models that are fitted together must have the same {name}, got {shared!r} and {value!r}; fit "
                    "them one by one"
                )


def _check_stackable(jobs: Sequence[Job]) -> None:
    shapes = {(tuple(job.x.shape[1:]), job.y.shape[1], len(job.coverage), len(job.trains)) for job in jobs}
    if len(shapes) > 1:
        got = " beside ".join(
            f"{x[0]} columns, {n_targets} targets, {n_levels} levels and {n_members} members"
            for x, n_targets, n_levels, n_members in sorted(shapes)
        )
        raise ValueError(
            "tables that are fitted together must be alike in columns, targets, levels and members, got "
            f"{got}; the members are alike where repeats is a number"
        )


def _check_can_go_on(jobs: Sequence[Job], starts: Sequence[list[Any]]) -> None:
    """Raise unless every job has a start with as many inputs, targets, levels and members as it has itself."""
    if not all(starts):
        raise ValueError("models that are fitted together with warm_start must all be fitted before, or none of them")
    for job, was in zip(jobs, chain.from_iterable(starts), strict=True):
        now = (*job.x.shape[1:], job.y.shape[1], len(job.coverage), len(job.trains))
        before = (*was.inputs.shape, len(was.targets.centre), len(was.coverage), was.mean_team.n_members)
        if now != before:
            raise ValueError(
                "warm_start goes on from networks of the same columns, targets, levels and members, got "
                f"{now} after {before}; fit with warm_start=False, or give repeats and folds as numbers"
            )


@contextmanager
def _progress_bar(model: IntervalRegressor, max_rounds: int) -> Iterator[Callable[[Measures], None]]:
    with tqdm(total=max_rounds, disable=not model.verbose, desc="rounds", unit="round") as bar:

        def show(measures: Measures) -> None:
            bar.update()
            bar.set_postfix(
                coverage=f"{float(measures.coverage.mean()):.3f}",
                score=f"{float(measures.score.mean()):.4g}",
                refresh=False,
            )

        yield show


def auto_batch_size(n_rows: int) -> int:
    """Small batches for small tables, which otherwise see few steps an epoch."""
    return 64 if n_rows < 1000 else 128 if n_rows < 2500 else 256


def _operations_per_step(jobs: Sequence[Job], training: Training) -> float:
    """Roughly the floating-point operations of one training step of our own networks."""
    members = sum(len(job.trains) for job in jobs)
    network = training.networks[0]
    for name in ("mlp", "lstm", "resnet"):
        network = getattr(network, name, network)  # a random network is made of one
    operations_per_row = getattr(network, "operations_per_row", MLP().operations_per_row)  # a user's own: a guess
    return 6.0 * members * training.batch_size * float(operations_per_row(jobs[0].x[0].numel()))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None, or_auto: bool = False
) -> None:
    """Raise unless the value is a number above, or at least, a limit, or "auto" where that is allowed."""
    if or_auto and isinstance(value, str) and value == "auto":
        return
    if above is not None and (not _is_number(value) or not value > above):
        must = "a positive number" if above == 0 else f"a number above {above:g}"
        raise ValueError(f"{name} must be {must}, got {value!r}")
    if least is not None and (not _is_number(value) or not value >= least):
        raise ValueError(f"{name} must be a number of at least {least:g}, got {value!r}")


def check_share(name: str, value: Any) -> None:
    """Raise unless the value lies strictly between 0 and 1."""
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def check_count(name: str, value: Any, *, or_auto: bool = False) -> None:
    """Raise unless the value is a whole number of at least 1, or "auto" where that is allowed."""
    if or_auto and isinstance(value, str) and value == "auto":
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        what = "'auto' or a whole number" if or_auto else "a whole number"
        raise ValueError(f"{name} must be {what} of at least 1, got {value!r}")
