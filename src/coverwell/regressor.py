"""MatchedRegressor: check, scale, build, run, read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from tqdm import tqdm

from coverwell.algorithm import Measures, Recipe, Record
from coverwell.calibration import Estimate
from coverwell.ensemble import Ensemble, TrainedJob, Training, train_together
from coverwell.folds import Job
from coverwell.held_out import OutOfFold, Stretch, out_of_fold_of, stretch_of
from coverwell.intervals import PredictionInterval
from coverwell.losses import interval_loss, quantile_interval_loss
from coverwell.matching import Matching, matching_from
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network, network_from
from coverwell.preparation import Plan, Prepared, levels_from, prepare, target_names_of
from coverwell.rounds import Round, rounds_of
from coverwell.scaling import InputScaler
from coverwell.training import device_from, few_threads, seeded

__all__ = ["MatchedRegressor", "Round", "fit_together"]

Array = NDArray[np.float64]
NetworkChoice = Network | Callable[[int, int], torch.nn.Module] | None

CALIBRATIONS = ("cross", "cv+", "split", None)
# Chosen by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection.md).
MEAN_NETWORK = MLP(hidden=128, dropout=0.1)
INTERVAL_NETWORK = MLP(hidden=128, dropout=0.2)
WEIGHT_MEMORY = 0.8
# What members of one stack share.
TRAINED_ALIKE = (
    "folds",
    "repeats",
    "calibration",
    "matching",
    "network",
    "interval_network",
    "interval_loss",
    "noise_weight",
    "sharpness_weight",
    "steepness",
    "mean_epochs",
    "interval_epochs",
    "max_rounds",
    "patience",
    "batch_size",
    "learning_rate",
    "device",
)


class MatchedRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Regression with a prediction interval for every row, from two teams of networks trained in turns.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    matching : "sigma", "iqr", None or an object with `Matching`'s methods, default="sigma"
        How F's uncertainty is matched to I's widths; None trains F on the squared error alone.
    network, interval_network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is an `MLP` with piecewise-linear inputs. A given `network` also serves for the intervals
        if there is no `interval_network`.
    folds : int, scikit-learn splitter or None, default=5
        Who trains on what; None is the paper's literal training, where nobody is left out.
    repeats : int or "auto", default="auto"
        How many members leave each row out; "auto" takes more on small tables.
    interval_loss : "quantile" or "paper", default="quantile"
        What shapes the widths: the pinball loss, or Eqs. 3 and 4.
    calibration : "cross", "cv+", "split" or None, default="cross"
        How the learned intervals are stretched to the asked level; see `coverwell.calibration` for what each promises.
    calibration_size : float, default=0.2
        Share of the rows (of the groups, if given) that "split" keeps for its ranks.
    noise_weight, sharpness_weight : float
        beta_n and beta_s of Eq. 5, for `interval_loss="paper"`.
    steepness : float, default=40.0
        eta of Eq. 2, in units of the squared residual scale.
    mean_epochs, interval_epochs : int, default=10
        Epochs of F and of I in each round, n_m and n_c.
    max_rounds : int, default=40
        At most so many rounds.
    patience : int, default=6
        Rounds without a better out-of-fold score after which training stops.
    batch_size : int or "auto", default="auto"
    learning_rate : float, default=1e-3
    device : str, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState or None
        Same seed, device, thread count and versions: same bits.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    rounds_ : list of Round
        One record per round.
    ensembles_ : list of Ensemble
        The trained teams: one, or one per fold for "cv+".
    out_of_fold_ : OutOfFold or None
        What the members that left a training row out say about it.
    factor_ : ndarray (target, level) or None
        By how much the learned intervals are stretched.
    n_features_in_, feature_names_in_, target_names_ : what was fitted.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = MatchedRegressor(coverage=0.8, max_rounds=2, repeats=1, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    def __init__(
        self,
        coverage: float | Sequence[float] | Array = 0.9,
        matching: str | Matching | None = "sigma",
        *,
        network: NetworkChoice = None,
        interval_network: NetworkChoice = None,
        folds: Any = 5,
        repeats: int | str = "auto",
        interval_loss: str = "quantile",
        calibration: str | None = "cross",
        calibration_size: float = 0.2,
        noise_weight: float = 0.1,
        sharpness_weight: float = 0.3,
        steepness: float = 40.0,
        mean_epochs: int = 10,
        interval_epochs: int = 10,
        max_rounds: int = 40,
        patience: int = 6,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-3,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.coverage = coverage
        self.matching = matching
        self.network = network
        self.interval_network = interval_network
        self.folds = folds
        self.repeats = repeats
        self.interval_loss = interval_loss
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.noise_weight = noise_weight
        self.sharpness_weight = sharpness_weight
        self.steepness = steepness
        self.mean_epochs = mean_epochs
        self.interval_epochs = interval_epochs
        self.max_rounds = max_rounds
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> MatchedRegressor:
        """Train both teams and calibrate their intervals.

        Parameters
        ----------
        X : array-like or data frame (n, feature)
        y : array-like (n,) or (n, target)
        groups : array-like (n,), optional
            Rows of one group (a patient, a house, a day) stay in one fold, so that the intervals are calibrated for
            groups that were not seen.
        """
        fit_together([self], [(X, y, groups)])
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The prediction for each row, `(n,)` or `(n, target)` as y was."""
        mean: Array = np.mean([estimate.mean for estimate in self._estimates(X)], axis=0)
        return mean[:, 0] if self._one_dimensional else mean

    def predict_interval(
        self, X: ArrayLike, coverage: float | Sequence[float] | Array | None = None, *, joint: bool = False
    ) -> PredictionInterval:
        """The interval for each row; unpacks into lower and upper bounds.

        Parameters
        ----------
        X : array-like or data frame (n, feature)
        coverage : float or sequence of float, optional
            Some of the fitted levels; all that were asked for if None.
        joint : bool
            Boxes that contain all targets of a row together, in place of one interval per target.
        """
        check_is_fitted(self)
        wanted = self.coverage if coverage is None else coverage
        places = self._places_of(levels_from(wanted))
        stretch = Stretch(self.factor_, self.joint_factor_, self.scores_)
        lower, upper = stretch.bounds(self._estimates(X), self._fitted_levels, joint=joint)
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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensembles_")

    def __getstate__(self) -> dict[str, Any]:
        for ensemble in getattr(self, "ensembles_", ()):
            ensemble.to(torch.device("cpu"))  # a pickle from a GPU opens where there is none
        state: dict[str, Any] = super().__getstate__()
        return state

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # Reading: from rows to estimates to bounds.

    def _estimates(self, X: ArrayLike) -> list[Estimate]:
        check_is_fitted(self)
        table = validate_data(self, X, reset=False).astype(np.float64)
        seen = InputScaler.around([ensemble.inputs for ensemble in self.ensembles_])
        seen.warn_if_far_outside(table, getattr(self, "feature_names_in_", None))
        device = device_from(self.device)
        return [ensemble.estimate(table, device) for ensemble in self.ensembles_]

    def _places_of(self, levels: tuple[float, ...]) -> list[int]:
        unknown = [level for level in levels if level not in self._fitted_levels]
        if unknown:
            raise ValueError(
                f"coverage {unknown} was not fitted; the fitted levels are {list(self._fitted_levels)}: "
                "choose among them, or fit with the level in coverage=[...]"
            )
        return [self._fitted_levels.index(level) for level in levels]

    # Checking and scaling.

    def _prepare(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None) -> Prepared:
        self._check_choices()
        self._fitted_levels = tuple(sorted(levels_from(self.coverage)))
        table, targets = validate_data(self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2)
        if targets.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, got {targets.dtype}; convert it first")
        self.target_names_ = target_names_of(y, targets)
        self._one_dimensional = targets.ndim == 1
        group_of_row = None if groups is None else column_or_1d(check_array(groups, ensure_2d=False, dtype=None))
        if group_of_row is not None and len(group_of_row) != len(table):
            raise ValueError(f"groups must have one entry per row, got {len(group_of_row)} for {len(table)} rows")
        plan = Plan(
            levels=self._fitted_levels,
            folds=self.folds,
            repeats=self.repeats,
            calibration=self.calibration,
            calibration_size=self.calibration_size,
            unit_range=self.interval_loss == "paper",
        )
        table, targets = table.astype(np.float64), targets.astype(np.float64).reshape(len(table), -1)
        return prepare(table, targets, group_of_row, plan, check_random_state(self.random_state))

    def _check_choices(self) -> None:
        matching_from(self.matching)
        if self.interval_loss not in ("quantile", "paper"):
            raise ValueError(f"interval_loss must be 'quantile' or 'paper', got {self.interval_loss!r}")
        if self.calibration not in CALIBRATIONS:
            raise ValueError(f"calibration must be one of {CALIBRATIONS}, got {self.calibration!r}")
        if self.folds is None and self.calibration in ("cross", "cv+"):
            raise ValueError(
                f"calibration={self.calibration!r} needs folds, got folds=None; give folds=5, or calibration='split' "
                "or None"
            )
        if not _is_number(self.calibration_size) or not 0 < self.calibration_size < 1:
            raise ValueError(f"calibration_size must lie strictly between 0 and 1, got {self.calibration_size!r}")
        for name in ("mean_epochs", "interval_epochs", "max_rounds", "patience"):
            _check_count(name, getattr(self, name))
        for name in ("repeats", "batch_size"):
            if getattr(self, name) != "auto":
                _check_count(name, getattr(self, name), or_auto=True)
        for name in ("learning_rate", "steepness"):
            if not _is_number(getattr(self, name)) or not getattr(self, name) > 0:
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        for name in ("noise_weight", "sharpness_weight"):
            if not _is_number(getattr(self, name)) or not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be a number of at least 0, got {getattr(self, name)!r}")

    # Building and running.

    def _training(self, n_rows: int) -> Training:
        literal = self.folds is None
        mean_network = MEAN_NETWORK if self.network is None else self.network
        same = INTERVAL_NETWORK if self.network is None else self.network
        interval_network = same if self.interval_network is None else self.interval_network
        recipe = Recipe(
            matching=matching_from(self.matching),
            interval_loss=self._bound_interval_loss(),
            max_rounds=self.max_rounds,
            mean_epochs=self.mean_epochs,
            interval_epochs=self.interval_epochs,
            patience=self.patience,
            literal=literal,
        )
        return Training(
            mean_network=network_from(mean_network),
            interval_network=network_from(interval_network),
            recipe=recipe,
            batch_size=_auto_batch_size(n_rows) if self.batch_size == "auto" else int(self.batch_size),
            learning_rate=self.learning_rate,
            memory=0.0 if literal else WEIGHT_MEMORY,
            device=device_from(self.device),
        )

    def _bound_interval_loss(self) -> Any:
        if self.interval_loss == "quantile":
            return partial(quantile_interval_loss, steepness=self.steepness)
        return partial(
            interval_loss,
            noise_weight=self.noise_weight,
            sharpness_weight=self.sharpness_weight,
            steepness=self.steepness,
        )

    def _finish(self, prepared: Prepared, trained: list[TrainedJob], record: Record, jobs: slice) -> None:
        """Turn trained jobs into a fitted estimator."""
        matching, levels = matching_from(self.matching), self._fitted_levels
        ensembles = [
            Ensemble(t.mean_team, t.interval_team, matching, levels, t.scale.double().numpy(), inputs, targets)
            for t, inputs, targets in zip(trained, prepared.inputs, prepared.targets, strict=True)
        ]
        self.rounds_ = rounds_of(
            record,
            jobs,
            prepared.targets,
            levels,
            one_target=self._one_dimensional,
            one_level=isinstance(self.coverage, Real),
        )
        device = device_from(self.device)
        stretch = stretch_of(self.calibration, prepared, trained[0], ensembles, device)
        self.factor_, self.joint_factor_, self.scores_ = stretch.factor, stretch.joint_factor, stretch.scores
        self.out_of_fold_: OutOfFold | None = None
        if self.folds is not None:
            self.out_of_fold_ = out_of_fold_of(prepared, trained[0], ensembles, stretch, device)
        self.ensembles_ = ensembles

    def _forget(self) -> None:
        """Drop everything that a fit has set."""
        for name in [
            name for name in vars(self) if name.endswith("_") or name in ("_one_dimensional", "_fitted_levels")
        ]:
            delattr(self, name)


def fit_together(
    models: Sequence[MatchedRegressor], tables: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike | None]]
) -> None:
    """Fit several models at once, as one stack of members: what a study of many splits needs on a GPU.

    Parameters
    ----------
    models : sequence of MatchedRegressor
        Alike in everything but `random_state` and the values in `coverage`. The first model's seed draws the weights
        and batches of the whole stack, so a model fitted with others differs in its bits from the same model alone.
    tables : sequence of (X, y, groups)
        One per model, alike in the number of columns and targets; groups may be None.
    """
    for model in models:
        model._forget()
    try:
        _fit_together(models, tables)
    except BaseException:  # Ctrl-C too: unfitted, not broken
        for model in models:
            model._forget()
        raise


def _fit_together(
    models: Sequence[MatchedRegressor], tables: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike | None]]
) -> None:
    _check_alike(models, tables)
    prepared = [model._prepare(*table) for model, table in zip(models, tables, strict=True)]
    jobs = [job for p in prepared for job in p.jobs]
    _check_stackable(jobs)
    training = models[0]._training(max(len(job.y) for job in jobs))
    with (
        seeded(prepared[0].seed, training.device),
        few_threads(_operations_per_step(jobs, training)),
        _progress(models[0], training.recipe.max_rounds) as progress,
    ):
        trained, record = train_together(jobs, training, progress)
    start = 0
    for model, p in zip(models, prepared, strict=True):
        part = slice(start, start + len(p.jobs))
        model._finish(p, trained[part], record, part)
        start = part.stop


def _check_alike(models: Sequence[MatchedRegressor], tables: Sequence[Any]) -> None:
    if len(models) != len(tables) or not models:
        raise ValueError(f"fit_together needs one table (X, y, groups) per model, got {len(tables)} for {len(models)}")
    first = models[0]
    for name in TRAINED_ALIKE:
        for model in models:
            if getattr(model, name) is not getattr(first, name) and getattr(model, name) != getattr(first, name):
                raise ValueError(
                    f"models that are fitted together must have the same {name}, got {getattr(first, name)!r} and "
                    f"{getattr(model, name)!r}; fit them one by one"
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


@contextmanager
def _progress(model: MatchedRegressor, max_rounds: int) -> Iterator[Callable[[Measures], None]]:
    with tqdm(total=max_rounds, disable=not model.verbose, desc="rounds", unit="round") as bar:

        def show(measures: Measures) -> None:
            bar.update()
            bar.set_postfix(
                coverage=f"{float(measures.coverage.mean()):.3f}",
                score=f"{float(measures.score.mean()):.4g}",
                refresh=False,
            )

        yield show


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_count(name: str, value: Any, *, or_auto: bool = False) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        what = "'auto' or a whole number" if or_auto else "a whole number"
        raise ValueError(f"{name} must be {what} of at least 1, got {value!r}")


def _auto_batch_size(n_rows: int) -> int:
    return 64 if n_rows < 1000 else 128 if n_rows < 2500 else 256


def _operations_per_step(jobs: Sequence[Job], training: Training) -> float:
    """Roughly the floating-point operations of one training step of the default networks."""
    members = sum(len(job.trains) for job in jobs)
    hidden = getattr(training.mean_network, "hidden", 128)
    width = jobs[0].x[0].numel() * (1 + getattr(training.mean_network, "bins", 0)) + 3 * hidden
    return 6.0 * members * training.batch_size * hidden * width
