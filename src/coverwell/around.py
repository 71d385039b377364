"""Intervals around a regressor that a user already has, from its out-of-fold residuals. No network is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from torch import Tensor, nn
from tqdm import tqdm

from coverwell.calibration import Estimate
from coverwell.companions import ESTIMATOR, Foreign, cross_fitted, has, predicted, rows_at
from coverwell.estimator import Coverage, IntervalRegressor, OnRound, Trained
from coverwell.groups import GroupFactors
from coverwell.inputs.frames import is_frame
from coverwell.inputs.scaling import Scaling, without_far_off
from coverwell.local import LocalShape
from coverwell.options import stored
from coverwell.paper.algorithm import History, residual_scale
from coverwell.paper.losses import z_score
from coverwell.portable import portable
from coverwell.predictor import FittedTeam
from coverwell.training.device import Settings
from coverwell.training.rows import Rows

Array = NDArray[np.float64]

NO_ROUNDS = Settings(max_rounds=0, batch_size=1, learning_rate=0.0, ema_decay=0.0, device=torch.device("cpu"))


@stored
class AroundTeam(FittedTeam):
    """A fitted regressor and half-widths of one size for all rows, which local calibration gives a shape.

    Parameters
    ----------
    model : the regressor as a module, or `Foreign` where it has no such form
    unit : (target,), the spread of the out-of-fold residuals, in scaled units
    coverage, inputs, targets, shape, groups : as in `FittedTeam`
    first : the column from which on rows have the regressor's predictions beside their features; None for a module,
        which makes them of the features
    """

    unit: Tensor

    def __init__(
        self,
        model: nn.Module,
        unit: Array,
        coverage: Sequence[float] | Array,
        inputs: Scaling,
        targets: Scaling,
        *,
        first: int | None = None,
        shape: LocalShape | None = None,
        groups: Sequence[GroupFactors] = (),
    ) -> None:
        super().__init__(coverage, inputs, targets, shape=shape, groups=groups)
        self.model, self.first = model, first
        self.register_buffer("unit", torch.as_tensor(unit))

    @property
    def n_members(self) -> int:
        return 1

    def forward(
        self, rows: Tensor, noise: bool = True
    ) -> tuple[Float[Tensor, "row target"], Float[Tensor, "row target side level"]]:
        features, n_targets = rows[:, : self.inputs.shape[0]], len(self.unit)
        mean = self.model(features) if self.first is None else rows[:, self.first : self.first + n_targets]
        mean = mean.to(self.unit)
        half_width = (self.unit[:, None, None] * self.z.expand(2, -1)).expand(mean.shape[0], -1, -1, -1)
        return mean, self.shaped(features, mean, half_width, torch.zeros_like(mean))


@dataclass(frozen=True)
class AroundTraining:
    """What is left to do after `prepare` has fitted the regressors: they become teams, with the spread of residuals."""

    settings: Settings = NO_ROUNDS
    network: None = None

    def shortened(self) -> AroundTraining:
        return self

    def run(self, rows: Rows, on_round: OnRound) -> tuple[Trained, History]:
        assert rows.beside is not None  # `prepare` has put the out-of-fold predictions there
        means = rows.beside[:, :, 0]  # (job, row, target)
        units, z = residual_scale(rows, means), z_score(torch.tensor(list(rows.levels), dtype=torch.float64))
        teams: list[FittedTeam] = []
        members: list[Estimate | None] = []
        for job, length in enumerate(rows.lengths):
            (model, first), levels, targets = rows.companions[job], rows.levels[job], rows.targets[job]
            own_unit, inputs = units[job].numpy(), rows.inputs[job]
            teams.append(AroundTeam(model, own_unit, levels, inputs, targets, first=first))
            half_width = (units[job, :, None] * z[job])[:, None].numpy()  # (target, 1, level)
            shape = rows.members_per_job, length, len(own_unit)
            mean = np.broadcast_to(means[job, :length].double().numpy(), shape)
            members.append(Estimate(mean, np.broadcast_to(half_width, (*shape, 2, len(levels)))))
        return Trained(teams, members), History(rows, (), patience=1)


@stored
@dataclass(eq=False, repr=False)
class IntervalAround(IntervalRegressor):
    """Prediction intervals around any regressor of scikit-learn's kind.

    Copies of the regressor that are fitted fold by fold predict the rows they have not seen. How far they miss sets the
    widths: by default a forest learns from it where the regressor errs more and to which side, and ranks bring the
    intervals to the asked level. The prediction is that of the regressor, fitted on all rows.

    Parameters
    ----------
    estimator : regressor with scikit-learn's `fit`, `predict` and `get_params`
        Also a pipeline or a search. It is given X as `fit` was, so a pipeline may encode the columns of a data frame
        itself. One that was fitted before on other rows can be wrapped in `sklearn.frozen.FrozenEstimator`: it stays as
        it is, and all rows given here set the widths.
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    folds : int or scikit-learn splitter, default=5
        Who predicts what: a row's residual comes from the first copy that was fitted without it.
    calibration : "local", "cross", "cv+", "split" or an object such as `Split(size=0.3)`, default="local"
        "local" widths depend on x, the others give every row the same. With "cv+" and "split" the prediction is that of
        the copies of the folds, or of one that was fitted on the rows not kept for the ranks. None is not possible: a
        regressor has no widths of its own.
    hold_for : name or place of a column of X, or several, optional
        Coverage is held within each group of rows that have the same value there; see `MatchedRegressor`.
    device : str, default="cpu"
        Where the forest predicts, and a regressor that a model file can hold.
    random_state : int, RandomState or None
        Of the folds and the forest, and of the estimator where its own is None.
    verbose : int, default=0
        1 shows what the fit is doing, and since when.

    Attributes
    ----------
    estimators_ : list of the fitted regressor, or for "cv+" of that of each fold; not in model files
    predictor_, source_, out_of_fold_, worst_slices_, factor_, columns_, n_features_in_, feature_names_in_,
    target_names_
        As in `MatchedRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from sklearn.linear_model import Ridge
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = IntervalAround(Ridge(), coverage=0.8, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    estimator: Any
    coverage: Coverage = 0.9
    _: KW_ONLY
    folds: Any = 5
    calibration: Any = "local"
    hold_for: Any = None
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    network = None
    holds_groups: ClassVar[bool] = True

    def check_params(self) -> None:
        estimator, calibration = self.estimator, self.chosen_calibration
        missing = [verb for verb in ("fit", "predict", "get_params") if not has(estimator, verb)]
        if isinstance(estimator, type) or missing:
            lacks = "is a class" if isinstance(estimator, type) else f"has no {missing[0]}"
            raise TypeError(f"estimator must be a regressor with fit, predict and get_params, {estimator!r} {lacks}")
        if hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator):
            way_out = "give it to MatchedClassifier(companions=[...]), whose sets and probabilities then rest on it too"
            raise TypeError(f"estimator must be a regressor, got the classifier {estimator!r}; {way_out}")
        if calibration.name is None:
            raise ValueError("calibration=None leaves nothing to set the widths; give 'cross' for one of all rows")
        if self.folds is None:
            raise ValueError("folds must be a whole number or a scikit-learn splitter, got None")

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        return {"folds": self.folds, "repeats": 1, "calibration": self.chosen_calibration, "unit_range": False}

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> AroundTraining:
        return AroundTraining()

    def prepare(
        self, X: Any, y: Any, groups: ArrayLike | None, before: dict[str, Any], sample_weight: Any = None
    ) -> Rows:
        """Rows with the fitted regressors and their out-of-fold predictions beside them."""
        rows = super().prepare(X, y, groups, before, sample_weight)
        out_of_fold = self.fit_estimators(X, rows)
        assert rows.given is not None  # rows of a fit know what they were made from
        (features, targets), models, found = rows.given, self.as_modules(), []
        n_features, n_targets = features.shape[1], targets.shape[1]
        places = [n_features + job * n_targets if isinstance(m, Foreign) else None for job, m in enumerate(models)]
        if self.chosen_calibration.holds_back and places[0] is not None:
            features = self.beside(X, features)
        # In float64, since trees and few values make residuals that are equal: ends must not fall short of them.
        for scaling, held_back in zip(rows.targets, rows.held_back, strict=True):
            seen, predictions = (np.delete(both, held_back, axis=0) for both in (targets, out_of_fold))
            own = torch.stack([scaling(torch.from_numpy(both)) for both in (without_far_off(seen), predictions)])
            found.append(nn.functional.pad(own, (0, 0, 0, rows.y.shape[1] - len(seen))))
        y, beside = torch.stack(found, dim=1)
        parts = list(zip(models, places, strict=True))
        return replace(rows, y=y, beside=beside[:, :, None], companions=parts, given=(features, targets))

    def fit_estimators(self, X: Any, rows: Rows) -> Array:
        """What copies predict for the rows that they have not seen, (row, target); sets `estimators_`."""
        assert rows.given is not None  # rows of a fit know what they were made from
        self.estimators_: list[Any] = []
        several, y, X = self.chosen_calibration.one_team_per_fold, rows.given[1], self.as_given(X, rows.given[0])
        out_of_fold, how = np.empty_like(y), dict[str, Any](what=ESTIMATOR, verbose=0 if several else self.verbose)
        for job, length in enumerate(tqdm(rows.lengths, disable=not (self.verbose and several), desc="folds")):
            held_back = np.isin(np.arange(len(y)), rows.held_back[job])
            trains, leaves_out = (masks[job, :, :length].numpy() for masks in (rows.trains, rows.leaves_out))
            dealt = trains, leaves_out & (not several), rows.seeds[job]  # teams of "cv+" need no folds of their own
            seen = rows_at(X, ~held_back) if held_back.any() else X
            own = y[~held_back], *dealt
            whole, found = cross_fitted(self.estimator, seen, *own, weight=rows.weight_of(~held_back), **how)
            if several:
                out_of_fold[held_back] = predicted(whole, rows_at(X, held_back), y.shape[1], ESTIMATOR)
            else:
                out_of_fold[~held_back] = found
            self.estimators_.append(whole)
        return out_of_fold

    def as_modules(self) -> list[nn.Module]:
        """The fitted regressors as modules on our rows, where all of them have this form and see the same numbers."""
        columns, n_targets = self.source_.columns, len(self.target_names_)
        modules = [portable(one) if columns is None or columns.plain else None for one in self.estimators_]
        known = [module for module in modules if module is not None]
        return known if len(known) == len(modules) else [Foreign(one, n_targets) for one in self.estimators_]

    def beside(self, X: Any, rows: Array) -> Array:
        """Rows with what each regressor predicts for X, as it was given, in columns of their own."""
        n_targets, X = len(self.target_names_), self.as_given(X, rows)
        return np.column_stack([rows, *(predicted(one, X, n_targets, ESTIMATOR) for one in self.estimators_)])

    def rows_of(self, X: Any) -> NDArray[Any]:
        rows, team = super().rows_of(X), self.predictor_.fitted_teams[0]
        return self.beside(X, rows) if isinstance(team, AroundTeam) and team.first is not None else rows

    def as_given(self, X: Any, rows: Array) -> Any:
        """What a regressor sees: the fitted columns of a data frame, and of anything else the rows that it became."""
        if not is_frame(X):
            return rows
        frame, names = nw.from_native(X, eager_only=True), getattr(self, "feature_names_in_", [])
        known = len(names) and set(names) <= set(frame.columns)
        return frame.select(*names).to_native() if known and list(names) != frame.columns else X
