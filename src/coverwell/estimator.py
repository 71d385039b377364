"""What all our estimators share: `fit`, `predict` and `predict_interval`, and several fits as one stack.

A kind of estimator adds its parameters, how rows are dealt to its members, and how its teams are trained.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from coverwell.calibration import (
    Atoms,
    Calibration,
    Correction,
    Estimate,
    KeptRows,
    average_out_of_fold,
    check_weights,
    effective_rows,
    out_of_fold_members,
    scores_of,
)
from coverwell.checkpoint import Checkpoint, checkpoint_file, named_in_ctrl_c
from coverwell.errors import CoverageWarning
from coverwell.groups import CLASS, GAPS, Grouping, check_groups, group_factors, groupings_of, warn_of_other_groups
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.source import InputSource, checked_groups, checked_weight, target_names_of, without_cache
from coverwell.options import levels_from, part_from, random_state_from, stored
from coverwell.paper.algorithm import History, Round
from coverwell.prediction import PredictedDistribution, Prediction, PredictionInterval, central_shares, shares_from
from coverwell.predictor import FittedTeam, Predictor
from coverwell.shift import Recalibration, checked_targets, recalibration
from coverwell.slices import WorstSlice, worst_slices
from coverwell.training.device import (
    FEW_ROWS,
    Trainable,
    device_from,
    few_threads,
    one_thread,
    run_within_memory,
    seeded,
)
from coverwell.training.rows import Rows, check_dealing, equal_rows

Array = NDArray[np.float64]
Coverage = float | Sequence[float] | Array
# X is a table, or images for a network that takes them.
Table = tuple[Any, ArrayLike, ArrayLike | None] | tuple[Any, ArrayLike, ArrayLike | None, Any]
Judged = tuple[NDArray[np.bool_], list[dict[str, NDArray[Any]]]]
OnRound = Callable[[Callable[..., "Trained"], History], None]

# Parameters in which models of one stack may differ; calibrations may differ in their numbers.
OWN_TO_EACH = ("coverage", "random_state", "verbose")
CALIBRATION = "calibration"  # what a bar says
SEARCHED_ROWS, SEARCHED_LEVEL = 20_000, 0.9  # for slices that are short: at most so many, at the level next to this one
WIDTH_ROUNDING = 1e-12  # of the ends, in relation to the largest
SURE = 0.001  # the probability by chance below which such a slice is a warning


@dataclass(frozen=True)
class Trained:
    """What training leaves: a team for each job, and its members' outputs for its rows, if they are kept."""

    teams: list[FittedTeam]
    members: list[Estimate | None]  # (member, row, ...), in scaled units


@stored
@dataclass(frozen=True)
class OutOfFold:
    """Predictions (row, target) and bounds (row, target, level) for the training rows, by members that left them out.

    A row's own target has not trained its prediction. The bounds are stretched as the deployed ones are (for "cv+" not
    at all), but fewer members are averaged than are deployed, so they cover a little less. Rows that nobody left out,
    or that were kept for the ranks of "split", are NaN.
    """

    prediction: Float64[np.ndarray, "row target"]
    lower: Float64[np.ndarray, "row target level"]
    upper: Float64[np.ndarray, "row target level"]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which rows some member left out."""
        return np.asarray(~np.isnan(self.prediction).any(axis=1))

    @classmethod
    def of(cls, rows: Rows, members: Estimate, teams: Sequence[FittedTeam], correction: Correction) -> OutOfFold:
        """From the outputs of each member for its rows; for "cv+", from the team that left a row out."""
        assert rows.given is not None  # rows of a fit know what they were made from
        X, y = rows.given
        prediction = np.full(y.shape, np.nan)
        lower, upper = np.full((2, *y.shape, len(rows.levels[0])), np.nan)
        if correction.factor is None:
            correction = Correction(rows.levels[0], rows.levels[0], np.ones((y.shape[1], len(rows.levels[0]))))
            parts = [(places, team.estimate(X[places])) for places, team in zip(rows.held_back, teams, strict=True)]
        else:
            scaling = rows.targets[0].cpu()
            _, members, leaves_out = out_of_fold_members(rows, members)
            estimate, some = average_out_of_fold(members, leaves_out), leaves_out.any(axis=0)
            seen = np.setdiff1d(np.arange(len(X)), rows.held_back[0])
            mean, half_width = scaling.inverse(torch.from_numpy(estimate.mean)).numpy(), estimate.half_width
            half_width = half_width * scaling.spread.numpy()[:, None, None]
            parts = [(seen[some], Estimate(mean[some], half_width[some]))]
        for places, estimate in parts:
            prediction[places] = estimate.mean
            lower[places], upper[places] = Predictor(rows.levels[0], [], correction).bounds([estimate])
        return cls(prediction, lower, upper)

    def with_atoms(self, rows: Rows, correction: Correction) -> OutOfFold:
        """The same with ends at values of the targets, where these are few; tells the correction."""
        assert rows.given is not None  # rows of a fit know what they were made from
        known = np.flatnonzero(self.known)
        lower, upper, y = self.lower[known], self.upper[known], rows.given[1][known]
        atoms = Atoms.of(y, lower, upper, rows.levels[0], rows.weight_of(known))
        if atoms is None:
            return self
        correction.atoms, moved = atoms, np.full((2, *self.lower.shape), np.nan)
        moved[:, known] = torch.stack(atoms(torch.from_numpy(lower), torch.from_numpy(upper))).numpy()
        return OutOfFold(self.prediction, *moved)


class CalibratedEstimator(BaseEstimator):
    """What is fitted together, calibrated by ranks and knows what it covers: regressors and classifiers."""

    coverage: Coverage
    calibration: Any
    device: str
    random_state: Any
    verbose: int
    network: Any

    hold_for: Any = None  # columns for whose groups coverage is held
    holds_groups: ClassVar[bool] = False  # whether an estimator can
    resumable: ClassVar[bool] = False  # whether a fit can go on from a checkpoint
    bounded_ = True  # whether inputs are held within the range of the training rows; a forecaster may lift that
    searched = True  # whether a fit looks for slices that are short; not in the windows of a series, which overlap
    worst_slices_: tuple[WorstSlice, ...] = ()  # none where nothing was searched

    predictor_: Predictor
    source_: InputSource
    rounds_: list[Round]
    recalibration_: Recalibration
    target_names_: tuple[str, ...]
    one_dimensional_: bool
    out_of_fold_: Any

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, *, checkpoint: Any = None) -> Any:
        """Train the networks and calibrate their intervals.

        Parameters
        ----------
        X : array-like or data frame (n, feature); images for a network that takes them
            A data frame may have columns of text, booleans and dates, and missing values (see
            `coverwell.inputs.columns`). Images are an array (n, channel, height, width), a `torch.utils.data.Dataset`,
            a list or a data frame of file paths (see `coverwell.inputs.images`). `TableFiles` are read part by part,
            for tables that are larger than memory (`MatchedRegressor`, `MatchedClassifier`; see `coverwell.streaming`).
        y : array-like (n,) or (n, target)
            Of a classifier, the class of each row: texts, whole numbers or booleans. For `TableFiles`, the name or
            names of the columns to predict, or that of the classes.
        groups : array-like (n,), optional
            Rows of one group (a patient, a house, a day) are held out together, so that training stops, and intervals
            are calibrated, for groups that were not seen. For `TableFiles`, the name of a column.
        sample_weight : array-like (n,), optional
            How much each row counts in training, out-of-fold measures and ranks, relative to the others; not in how
            columns and targets are scaled. A row of weight zero is left out. Coverage is meant for new rows that come
            in proportion to the weights. For `TableFiles`, the name of a column.
        checkpoint : path, optional
            A file that gets the state of training after each round (`MatchedRegressor`, `MatchedClassifier`). If it is
            there, the fit goes on from it, to the same result as one that was never stopped. Rows, options and versions
            must be the same, and `random_state` a number. Remove it when the model is saved.
        """
        if isinstance(X, TableFiles):
            from coverwell.streaming import fit_streamed

            named: dict[str, Any] = {"groups": groups, "sample_weight": sample_weight}
            return fit_streamed(self, X, y, **named, checkpoint=checkpoint)
        fit_together([self], [(X, y, groups, sample_weight)], checkpoint=checkpoint)
        return self

    def recalibrate(self, X_new: Any, y_new: Any = None) -> Any:
        """Set the widths for rows that are distributed differently from those of the fit; predictions stay.

        Without targets, each ranked row of the fit is weighted by how much likelier it is among the new rows: coverage
        holds if only the distribution of X has changed. With targets, the new rows' own ranks set the widths: at least
        the asked coverage on average, for rows like them. `recalibration_` then says what the widths rest on. Every
        call starts from the fit.

        Parameters
        ----------
        X_new : array-like or data frame (n, feature)
            Rows from where the model will be used, as in `fit`; none of them trained it.
        y_new : array-like (n,) or (n, target), optional
            Their targets.

        Raises
        ------
        ValueError
            If the ranked rows are worth too few for a fitted level. The model then stays as it was.
        """
        check_is_fitted(self)
        factor, joint_factor, found = recalibration(self, X_new, y_new)
        correction = self.predictor_.correction
        correction.factor, correction.joint_factor = (
            torch.from_numpy(part).to(next(correction.buffers()).device) for part in (factor, joint_factor)
        )
        self.recalibration_ = found
        return self

    def rows_of(self, X: Any) -> NDArray[Any]:
        """X as the predictor takes it; warns where it lies outside of what was seen."""
        rows = self.source_.rows(X, self)
        if self.source_.scaled:
            self.predictor_.inputs.count_outside(rows).warn(self.source_.names)
            warn_of_other_groups(self.predictor_.fitted_teams[0].group_factors, rows)
        return rows

    def estimates(self, X: Any, *, noise: bool = True) -> list[Estimate]:
        """Each team's means and half-widths for these rows, before calibration."""
        check_is_fitted(self)
        if isinstance(X, TableFiles):
            from coverwell.streaming import estimate_files

            return estimate_files(self, X, noise=noise)
        return self.predictor_.moved(device_from(self.device)).estimates(self.rows_of(X), noise=noise)

    def predicted(
        self, X: Any, levels: tuple[float, ...] | None = None, shares: Any = (), *, joint: bool = False
    ) -> Prediction:
        """Predictions, bounds of the fitted levels or of others, and quantiles at some shares, for X as in `fit`.

        A classifier predicts probabilities, and its upper bounds are the thresholds of scores (row, class, level).
        """
        check_is_fitted(self)
        if isinstance(X, TableFiles):
            from coverwell.streaming import estimates_of_parts

            estimates = (found for _, found in estimates_of_parts(self, X))
            parts = [self.predictor_.calibrated(found, levels, shares, joint=joint) for found in estimates]
            return Prediction(*map(np.concatenate, zip(*parts, strict=True)))
        return self.predictor_.moved(device_from(self.device)).prediction(self.rows_of(X), levels, shares, joint=joint)

    @property
    def factor_(self) -> Array | None:
        """By how much the learned intervals are stretched, (target, level); None for "cv+"."""
        check_is_fitted(self)
        factor = self.predictor_.correction.asked_factor
        return None if factor is None else factor.cpu().numpy()

    @property
    def columns_(self) -> Any:
        """How columns of a data frame with named columns become numbers; None for arrays and images."""
        check_is_fitted(self)
        return self.source_.columns

    def __sklearn_is_fitted__(self) -> bool:
        return "predictor_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # a copy: the model itself keeps its cache
        if "predictor_" in state:  # a pickle from a GPU opens where there is none, without this machine's cache
            state["predictor_"] = self.predictor_.copied_to(torch.device("cpu"))
            for name in {"network", "interval_network"} & state.keys():
                state[name] = without_cache(state[name])
        return state

    # What a kind of estimator defines.

    def resolved_params(self) -> dict[str, Any]:
        """All parameters, with numbers for "auto" where they do not depend on the rows: for records of results."""
        defaults = getattr(self.network, "defaults", {})
        params = self.get_params(deep=False).items()
        return {name: defaults.get(name, v) if isinstance(v, str) and v == "auto" else v for name, v in params}

    def check_params(self) -> None:
        """Raise unless the parameters make sense, as far as that can be seen without rows."""
        raise NotImplementedError

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        """How rows are dealt to members: `folds`, `repeats`, `calibration` and `unit_range` of `Rows.of`."""
        raise NotImplementedError

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> Trainable[tuple[Trained, History]]:
        """How jobs of this many rows are trained; with a start, how its teams continue."""
        raise NotImplementedError

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        """Calibrate, by the model's own calibration or another, and keep what was learned: sets `predictor_`."""
        raise NotImplementedError

    def judged(self, known: Any, y: Array, seen: NDArray[Any], place: int) -> Judged:
        """Which out-of-fold rows lie inside at a level, (row, target), and what else tells the rows of a target apart.

        y (row, target) are the targets of the rows that are looked at, `seen` their numbers.
        """
        raise NotImplementedError

    def given_targets(self, y: Any, before: dict[str, Any]) -> Any:
        """What a source checks beside X: numbers. `before` is a fit that is continued."""
        return y

    def new_targets(self, y: Any, n_rows: int) -> Array:
        """Targets (row, target) of rows that come after the fit, checked."""
        return checked_targets(self, y, n_rows)

    def as_numbers(self, targets: NDArray[Any], weight: Array | None = None) -> Array:
        """What networks learn, (row, target), from the targets as they were checked and the weight of rows."""
        if targets.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, got {targets.dtype}; convert it first, or take MatchedClassifier")
        return targets.astype(np.float64).reshape(len(targets), -1)

    def hold_groups(
        self, calibration: Calibration, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None
    ) -> Estimate | None:
        """Give the team factors for groups of rows; returns the members' outputs with them."""
        assert rows.given is not None  # rows of a fit know what they were made from
        (X, y), groupings = rows.given, self.groupings()
        ranked = calibration.ranked(teams, rows, members) if groupings else None
        if ranked is None:
            return members
        (team,), half_width = teams, ranked.estimate.half_width
        levels = rows.levels[0] if team.shape is None else team.shape.grid
        scores, size = scores_of(ranked.y, ranked.estimate), half_width.mean(axis=(2, 3))
        told_by = self.told_by(X, y)
        exact, own = calibration.holds_back, told_by[ranked.places]
        copies = None
        if (altered := rows.altered) is not None and altered.estimate is not None:
            gaps = altered.edge[:, 0] < 0
            of_copies = scores_of(team.scaled(y[altered.copy_of]), altered.estimate)
            copies = altered.X[gaps], of_copies[gaps]
        known: dict[str, Any] = {"exact": exact, "weight": ranked.weight, "masked": copies}
        found = group_factors(groupings, own, scores, size, levels, **known)
        team.hold(found)
        if members is not None:
            seen = torch.from_numpy(np.delete(told_by, rows.held_back[0], axis=0))
            for factors in found:
                members = replace(members, half_width=members.half_width * factors(seen).numpy())
        team.to(device_from(self.device))
        return members

    def groupings(self) -> list[Grouping]:
        """The groups of rows within which coverage is held."""
        found = groupings_of(self.source_, self.held_columns) if self.holds_groups else []
        return [one for one in found if one.name != GAPS or self.chosen_calibration.holds_gaps]

    @property
    def held_columns(self) -> Any:
        """The columns of X for whose groups coverage is held."""
        return self.hold_for

    def told_by(self, X: NDArray[Any], y: Array) -> NDArray[Any]:
        """Rows (row, feature) by whose values the groups of `groupings` are told apart."""
        return X

    def search_slices(self, X: Any, rows: Rows) -> None:
        """Set `worst_slices_`, of out-of-fold rows of a table X; warns of one that is surely short."""
        known, levels = self.out_of_fold_, self.predictor_.levels
        if known is None or not (self.searched and self.source_.scaled) or self.chosen_calibration.name is None:
            return
        assert rows.given is not None  # rows of a fit know what they were made from
        seen = np.flatnonzero(known.known)
        if len(seen) > SEARCHED_ROWS:
            seen = np.sort(np.random.default_rng(rows.seeds[0]).permutation(seen)[:SEARCHED_ROWS])
        place = int(np.abs(np.array(levels) - SEARCHED_LEVEL).argmin())
        inside, more = self.judged(known, rows.given[1][seen], seen, place)
        of_targets, columns = dict(zip(self.target_names_, more, strict=True)), self.source_.shown(X, seen)
        if (units := rows.units[0] if rows.n_jobs == 1 else None) is not None:  # those of the rows not held back
            units = units[np.searchsorted(np.setdiff1d(np.arange(len(known.known)), rows.held_back[0]), seen)]
        self.worst_slices_ = worst_slices(inside, columns, of_targets, levels[place], units)
        if self.worst_slices_ and (worst := self.worst_slices_[0]).by_chance < SURE:
            can_hold = self.holds_groups and not self.chosen_calibration.one_team_per_fold
            help_it = "more rows like these" + (", or hold_for a column that tells them apart," * can_hold)
            warnings.warn(f"{worst}; {help_it} may help", CoverageWarning, stacklevel=4)

    @property
    def chosen_calibration(self) -> Calibration:
        """The calibration as an object."""
        return cast(Calibration, part_from("calibration", self.calibration, Calibration))

    # From a table to rows.

    def prepare(
        self, X: Any, y: Any, groups: ArrayLike | None, before: dict[str, Any], sample_weight: Any = None
    ) -> Rows:
        """Rows to train on; sets what is known about inputs and targets. `before` is a fit that is continued."""
        self.check_params()
        levels = tuple(sorted(levels_from(self.coverage)))
        self.source_ = InputSource.of(self.network, getattr(self, "interval_network", None), before.get("source_"))
        read, targets = self.source_.fit(X, self.given_targets(y, before), self)
        weight = None if sample_weight is None else checked_weight(sample_weight, len(targets))
        numbers = self.as_numbers(targets, weight)
        self.target_names_, self.one_dimensional_ = target_names_of(y, targets), targets.ndim == 1
        group_of_row = None if groups is None else checked_groups(groups, len(targets))
        random_state = random_state_from(self.random_state)
        dealing = {"levels": levels, "groups": group_of_row, **self.dealing(group_of_row, random_state)}
        if not self.source_.scaled:
            check_dealing(len(targets), **dealing)  # before the features of images, which take long
        rows = read(random_state) if callable(read) else read
        start, shape = before["predictor_"].fitted_teams if before else [], self.source_.row_shape
        if start and shape != start[0].inputs.shape:
            was, now = (s[0] if len(s) == 1 else s for s in (start[0].inputs.shape, shape))
            raise ValueError(f"warm_start goes on from networks of {was} columns, got {now}; fit with warm_start=False")
        self.check_groups(rows)
        honest = dealing["calibration"].ranks_out_of_fold and isinstance(dealing["folds"], Integral)
        if group_of_row is None and honest and rows.ndim == 2 and not start:
            dealing["groups"] = equal_rows(rows)
        dealt = Rows.of(
            rows,
            numbers,
            random_state=random_state,
            scaled=self.source_.scaled,
            bounded=self.bounded_,
            mirroring=self.source_.mirroring,
            start=start,
            weight=weight,
            **dealing,
        )
        if (n_ranked := check_weights(dealing["calibration"], dealt)) is not None:
            self.n_ranked_ = n_ranked
        if weight is not None:
            self.n_effective_ = effective_rows(weight)
        return self.with_companions(dealt)

    def check_groups(self, rows: NDArray[Any]) -> None:
        """Raise unless coverage can be held for the groups that are asked for."""
        if self.held_columns is None:
            return
        calibration = self.chosen_calibration
        if calibration.name is None or calibration.one_team_per_fold or not self.source_.scaled:
            raise ValueError(
                "hold_for needs a table and ranks that can be kept apart by group: give calibration='local', 'cross' "
                f"or 'split', got {calibration.name!r} and {'a table' if self.source_.scaled else 'images'}"
            )
        for grouping in self.groupings():
            if grouping.name not in (GAPS, CLASS):
                check_groups(grouping, rows)

    def with_companions(self, rows: Rows) -> Rows:
        """The rows with the out-of-fold predictions of companions beside them, for estimators that have some."""
        return rows

    def forget(self) -> None:
        """Drop everything that a fit has set."""
        for name in list(vars(self)):
            if name.endswith("_") and name != "bounded_":
                delattr(self, name)


class OfOthers:
    """A verb that another kind of estimator has: here it is no attribute, and the error says what to take."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, kind: type[Any]) -> Any:
        if estimator is None:
            return self
        raise AttributeError(f"{kind.__name__} has no {self.name}: {self.instead}")


class IntervalRegressor(MultiOutputMixin, RegressorMixin, CalibratedEstimator):
    """A regressor with a prediction interval for every row."""

    predict_proba = OfOthers("it predicts numbers; take MatchedClassifier for classes")
    predict_set = OfOthers("it predicts numbers; take predict_interval, or MatchedClassifier for classes")

    out_of_fold_: OutOfFold | None

    def predict(self, X: Any) -> Array:
        """The prediction for each row, `(n,)` or `(n, target)` as y was."""
        if isinstance(X, TableFiles):  # half-widths of all rows might not fit into memory
            return self.shaped(self.predicted(X).mean)
        mean: Array = np.mean([estimate.mean for estimate in self.estimates(X)], axis=0)
        return self.shaped(mean)

    def predict_interval(self, X: Any, coverage: Coverage | None = None, *, joint: bool = False) -> PredictionInterval:
        """The interval for each row; unpacks into lower and upper bounds.

        Parameters
        ----------
        X : array-like or data frame (n, feature), or images, as in `fit`
        coverage : float or sequence of float, optional
            Any levels; the fitted ones if None.
        joint : bool
            Boxes that contain all targets of a row together, instead of one interval per target.
        """
        check_is_fitted(self)
        wanted = self.coverage if coverage is None else coverage
        levels = levels_from(wanted)
        found = self.predicted(X, levels, joint=joint)
        return self.interval(X, wanted, found.lower, found.upper, levels)

    def predict_quantiles(self, X: Any, q: float | ArrayLike) -> Array:
        """The quantiles for each row at q, one share in (0, 1) or a sequence of them, which adds an axis at the end."""
        check_is_fitted(self)
        quantiles = self.shaped(self.quantiles_of(X, shares_from(q)))
        return quantiles if np.ndim(q) else quantiles[..., 0]

    def predict_distribution(self, X: Any) -> PredictedDistribution:
        """The distribution of the target of each row."""
        check_is_fitted(self)
        shares = np.unique(central_shares(self.predictor_.correction.levels))
        quantiles = self.shaped(self.quantiles_of(X, shares))
        return PredictedDistribution(shares, quantiles, target_names=self.target_names_, index=index_of(X))

    def quantiles_of(self, X: Any, shares: Array) -> Array:
        """Quantiles (row, target, share) at any shares in (0, 1)."""
        found = self.predicted(X, shares=shares).quantiles
        assert found is not None  # asked for
        return found

    def predict_all(self, X: Any) -> Prediction:
        """Predictions and the bounds of all fitted levels, with one pass through the networks."""
        return self.predicted(X)

    def interval(
        self, X: Any, wanted: Coverage, lower: Array, upper: Array, known: tuple[float, ...] | None = None
    ) -> PredictionInterval:
        """Bounds (row, target, known level) for X as users get them: the wanted levels, shaped as y was."""
        levels, known = levels_from(wanted), known or self.predictor_.levels
        places = [known.index(level) for level in levels]
        chosen = places[0] if isinstance(wanted, Real) else places
        return PredictionInterval(
            self.shaped(lower)[..., chosen],
            self.shaped(upper)[..., chosen],
            coverage=levels[0] if isinstance(wanted, Real) else levels,
            target_names=self.target_names_,
            index=index_of(X),
        )

    def shaped(self, values: Array) -> Array:
        """Values (row, target, ...) without the axis of targets if y had none."""
        return values[:, 0] if self.one_dimensional_ else values

    def fitted_coverage(self, coverage: Coverage | None) -> Coverage:
        """The wanted level or levels, all of them fitted."""
        wanted = self.coverage if coverage is None else coverage
        if unknown := [level for level in levels_from(wanted) if level not in self.predictor_.levels]:
            raise ValueError(
                f"coverage {unknown} was not fitted; the fitted levels are {list(self.predictor_.levels)}: "
                "choose among them, or fit with the level in coverage=[...]"
            )
        return wanted

    def judged(self, known: OutOfFold, y: Array, seen: NDArray[Any], place: int) -> Judged:
        prediction = known.prediction[seen]
        lower, upper = (side[seen, :, place] for side in (known.lower, known.upper))
        width = upper - lower
        rounding = WIDTH_ROUNDING * np.maximum(np.abs(lower), np.abs(upper)).max(axis=0)
        width = np.where(np.ptp(width, axis=0) <= rounding, width[0], width)  # one width for all is no slice
        more = [{"prediction": own, "width": widths} for own, widths in zip(prediction.T, width.T, strict=True)]
        return (lower <= y) & (y <= upper), more

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        """Calibrate, by the model's own calibration or another, and keep what was learned: sets `predictor_`."""
        one_target, one_level = self.one_dimensional_, isinstance(self.coverage, Real)
        self.rounds_ = history.described(jobs, rows, one_target=one_target, one_level=one_level)
        teams, members = trained.teams[jobs], trained.members[jobs][0]
        for team in teams:
            team.to(device_from(self.device))
        calibration = calibration or self.chosen_calibration
        members = calibration.shaped(teams, rows, members)
        correction = calibration.correction(teams, rows, members)
        members = self.hold_groups(calibration, teams, rows, members)
        self.out_of_fold_ = None if members is None else OutOfFold.of(rows, members, teams, correction)
        if calibration.moves_ends and self.out_of_fold_ is not None and self.source_.scaled:  # not for images
            self.out_of_fold_ = self.out_of_fold_.with_atoms(rows, correction)
        correction.kept = kept_rows(calibration, teams, rows, members, correction)
        self.predictor_ = Predictor(rows.levels[0], teams, correction)


def fit_together(
    models: Sequence[CalibratedEstimator],
    tables: Sequence[Table],
    *,
    on_round: Callable[[list[list[FittedTeam]]], None] | None = None,
    checkpoint: Any = None,
) -> None:
    """Fit several models at once, as one stack of members: what a study of many splits needs on a GPU.

    Parameters
    ----------
    models : sequence of estimators of one class
        Alike in everything but `random_state`, `verbose`, the numbers in `calibration` and the values in `coverage`.
        The first model's seed draws the weights and batches of the whole stack, so a model fitted with others differs
        in its bits from the same model alone.
    tables : sequence of (X, y, groups) or (X, y, groups, sample_weight)
        One per model, alike in the number of columns and targets; groups and weights may be None.
    on_round : function, optional
        Called after every round with the present teams of each model, before any calibration: for curves over the
        rounds. It costs a copy of all networks each time.
    checkpoint : path, optional
        As in `MatchedRegressor.fit`, for all models together.
    """
    before = list(map(dict, map(vars, models)))
    own_rows: list[Rows] = []
    start: list[FittedTeam] = []  # teams that continue training
    if checkpoint is not None and not models[0].resumable:
        kinds = "MatchedRegressor and MatchedClassifier"
        raise TypeError(f"a checkpoint is for {kinds}, got a {type(models[0]).__name__}; fit it without")
    file = checkpoint_file(checkpoint, *models)
    try:
        if len(models) != 1 or len(tables) != 1:
            _check_alike(models, tables)
        for model, table, was in zip(models, tables, before, strict=True):
            if isinstance(table[0], TableFiles):
                raise TypeError(
                    "models that are fitted together take rows in memory, got TableFiles; fit them one by one"
                )
            continued = was if "predictor_" in was and was.get("warm_start") else {}
            start += continued["predictor_"].fitted_teams if continued else []
            if "predictor_" in was:
                model.forget()
            own_rows.append(model.prepare(*table[:3], continued, *table[3:]))
        rows = own_rows[0] if len(models) == 1 and not start else _stacked(own_rows, start)
        training = models[0].training_for(rows.y.shape[1], start)
        if file is not None:
            kept = Checkpoint(file, models, rows)
            training = replace(cast(Any, training), checkpoint=kept)
        settings, ends = training.settings, np.cumsum([0, *map(len, map(attrgetter("y"), own_rows))]).tolist()
        parts = list(map(slice, ends, ends[1:]))  # each model's jobs
        bar = progress_bar(models[0].verbose, "round 1" if settings.max_rounds else CALIBRATION)
        if file is not None:
            resume_bar(bar, kept.n_rounds)

        def after_round(present: Callable[[Tensor], Trained], history: History) -> None:
            show_round(bar, history)
            if on_round is not None:
                teams = present(history.unit).teams
                on_round([teams[part] for part in parts])

        with bar, named_in_ctrl_c(file):
            with seeded(rows.seeds[0], settings.device), few_threads(training, rows):
                trained, history = run_within_memory(training, rows, after_round)
                if settings.device.type == "cuda":
                    torch.cuda.empty_cache()  # captured steps held memory that is of no use to the next fit
            bar.set_description_str(CALIBRATION)
            with one_thread(rows.y.shape[1] < FEW_ROWS):
                for model, table, own, part in zip(models, tables, own_rows, parts, strict=True):
                    model.set_fitted(own, trained, history, part)
                    model.search_slices(table[0], own)
            n_rounds = len(history.rounds)
            bar.set_description_str(f"{n_rounds} round{'s' * (n_rounds > 1)}" if n_rounds else "calibrated")
    except BaseException:  # Ctrl-C too: unfitted, not broken; a model that was to continue stays what it was
        for model, was in zip(models, before, strict=True):
            model.forget()
            model.__dict__.update(was if was.get("warm_start") else {})
        raise


def kept_rows(
    calibration: Calibration, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None, correction: Correction
) -> KeptRows | None:
    """The ranked rows of a table with their scores, to be ranked again; None without them."""
    assert rows.given is not None  # rows of a fit know what they were made from
    (X, _), inputs = rows.given, teams[0].inputs
    if X.ndim != 2 or inputs.centre is None or (ranked := calibration.ranked(teams, rows, members)) is None:
        return None
    estimate, expand = ranked.estimate, correction.expand
    if expand is not None:
        estimate = replace(estimate, half_width=estimate.half_width @ expand.cpu().numpy())
    own = X[ranked.places, : inputs.shape[0]]  # without the predictions of a regressor, if they are beside them
    known = scores_of(ranked.y, estimate), correction, rows.seeds[0], ranked.weight
    return KeptRows.of(inputs.unbounded(own), *known)


def index_of(X: Any) -> Any:
    return getattr(X, "index", None) if hasattr(X, "iloc") else None  # a list has an `index` method


def _check_alike(models: Sequence[CalibratedEstimator], tables: Sequence[Any]) -> None:
    if len(models) != len(tables) or not models:
        raise ValueError(f"fit_together needs one table (X, y, groups) per model, got {len(tables)} for {len(models)}")
    must = "models that are fitted together must"
    for model in models[1:]:
        if type(model) is not type(models[0]):
            kinds = f"{type(models[0]).__name__} and {type(model).__name__}"
            raise ValueError(f"{must} be of one class, got {kinds}; fit them one by one")
        for name, shared in models[0].get_params(deep=False).items():
            value = getattr(model, name)
            same = value is shared or name in OWN_TO_EACH or value == shared
            if not same and not (name == "calibration" and type(value) is type(shared) and not isinstance(value, str)):
                raise ValueError(f"{must} have the same {name}, got {shared!r} and {value!r}; fit them one by one")


def _stacked(stack: Sequence[Rows], start: Sequence[FittedTeam]) -> Rows:
    """All jobs of several models, which must be alike, and like the teams that they continue."""
    shapes = {(*r.x.shape[2:], r.y.shape[2], r.coverage.shape[1], r.members_per_job) for r in stack}
    if len(shapes) > 1:
        words = "{0} columns, {1} targets, {2} levels and {3} members"
        got = " beside ".join(words.format(shape[0], *shape[-3:]) for shape in sorted(shapes))
        raise ValueError(
            "tables that are fitted together must be alike in columns, targets, levels and members, got "
            f"{got}; the members are alike where repeats is a number"
        )
    if start and len(start) != sum(map(attrgetter("n_jobs"), stack)):
        raise ValueError("models that are fitted together with warm_start must all be fitted before, or none of them")
    for team in start:
        before = (*team.inputs.shape, len(team.targets.centre), team.coverage.shape[1], team.n_members)
        if {before} != shapes:
            raise ValueError(
                "warm_start goes on from networks of the same columns, targets, levels and members, got "
                f"{shapes.pop()} after {before}; fit with warm_start=False, or give repeats and folds as numbers"
            )
    return Rows.stack(stack) if len(stack) > 1 else stack[0]


def progress_bar(verbose: int, doing: str) -> Any:
    """What a fit is doing and since when, and how long the next round takes: nobody knows how many will follow."""
    return tqdm(disable=not verbose, desc=doing, bar_format="{desc} [{elapsed}{postfix}]")


def resume_bar(bar: Any, n_rounds: int) -> None:
    """Begin with the round after those of a checkpoint."""
    bar.update(n_rounds)
    bar.set_description_str(f"round {n_rounds + 1}")


def show_round(bar: Any, history: History) -> None:
    """Name the next round, if there is one, with the measures of the latest."""
    latest = history.rounds[-1]
    coverage, score = float(latest.coverage.mean()), float(latest.interval_score.mean())
    bar.update()
    seconds = history.seconds_to_come
    ahead = "" if seconds is None else f" of at most {history.max_rounds}, about {seconds:.1f} s"
    bar.set_description_str(f"round {bar.n + 1}{ahead}", refresh=False)
    bar.set_postfix(coverage=f"{coverage:.3f}", score=f"{score:.4g}")
