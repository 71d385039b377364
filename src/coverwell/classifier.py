"""MatchedClassifier: probabilities of classes, and sets that contain the true class as often as asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float64
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from coverwell.calibration import Calibration, Estimate, Ranked, average_out_of_fold, out_of_fold_members, rows_worth
from coverwell.class_metrics import places_of
from coverwell.companions import FOREST
from coverwell.errors import FullSetsWarning, ManyClassesWarning, RareClassWarning
from coverwell.estimator import CalibratedEstimator, Coverage, Judged, OfOthers, Trained, index_of, kept_rows
from coverwell.groups import CLASS, Grouping
from coverwell.matched import MatchedEstimator, NetworkChoice
from coverwell.options import Schedule, fewest_for, levels_from, part_from, stored
from coverwell.paper.algorithm import History
from coverwell.paper.losses import IntervalLoss
from coverwell.paper.matching import Matching
from coverwell.paper.scores import Contiguous, Score, check_score
from coverwell.prediction import PredictionSet
from coverwell.predictor import MatchedTeam
from coverwell.probabilities import VennAbers, fit_calibrator
from coverwell.sets import ClassPredictor, ClassTeam, TeamOfClasses, best_thresholds, scored
from coverwell.training.device import device_from
from coverwell.training.rows import Rows

Array = NDArray[np.float64]
SETS = "it predicts classes; take predict_set or predict_proba, or MatchedRegressor for numbers"


@stored
@dataclass(frozen=True)
class SetsOutOfFold:
    """Probabilities (row, class) and sets (row, class, level) for the training rows, by members that left them out.

    Rows that nobody left out, or that were kept for the ranks of "split", have probabilities of NaN and empty sets.
    """

    probability: Float64[np.ndarray, "row class"]
    members: Bool[np.ndarray, "row class level"]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which rows some member left out."""
        return np.asarray(~np.isnan(self.probability).any(axis=1))


class SetClassifier(ClassifierMixin, CalibratedEstimator):
    """A classifier with a set of classes for every row."""

    predict_interval = OfOthers(SETS)
    predict_quantiles = OfOthers(SETS)
    predict_distribution = OfOthers(SETS)

    classes_: NDArray[Any]
    predictor_: ClassPredictor
    out_of_fold_: SetsOutOfFold | None
    venn_abers_: VennAbers | None

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        places = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def predict_proba(self, X: Any) -> Array:
        """The probabilities of the classes, `(n, class)`, in the order of `classes_`."""
        return self.predicted(X).mean

    def predict_set(self, X: Any, coverage: Coverage | None = None, *, allow_empty: bool = False) -> PredictionSet:
        """The set of classes for each row.

        Parameters
        ----------
        X : array-like or data frame (n, feature), or images, as in `fit`
        coverage : float or sequence of float, optional
            Any levels; the fitted ones if None. Sets of higher levels contain those of lower ones.
        allow_empty : bool
            By default the likeliest class is in every set. Without it, where nearly all rows are easy, some sets are
            empty: coverage is then as asked, not higher.
        """
        check_is_fitted(self)
        wanted = self.coverage if coverage is None else coverage
        levels = tuple(sorted(levels_from(wanted)))
        found = self.predicted(X, levels)
        sets = self.predictor_.sets(torch.from_numpy(found.mean), torch.from_numpy(found.upper), allow_empty).numpy()
        places: Any = [levels.index(level) for level in levels_from(wanted)]
        one = np.ndim(wanted) == 0
        return PredictionSet(
            sets[..., places[0] if one else places],
            coverage=levels_from(wanted)[0] if one else levels_from(wanted),
            classes=self.classes_,
            index=index_of(X),
        )

    def classified(self, X: Any, levels: tuple[float, ...] | None = None) -> tuple[Array, NDArray[np.bool_]]:
        """Probabilities (row, class) and sets (row, class, level) of the fitted levels or others, with one pass."""
        check_is_fitted(self)
        self.predictor_.moved(device_from(self.device))
        return self.predictor_.classified(self.rows_of(X), levels)

    def predict_probability_interval(self, X: Any) -> tuple[Array, Array]:
        """Lower and upper probability of the second of two classes, `(n,)` each (Venn-Abers).

        If rows are exchangeable, one of the two is calibrated: which one depends on the class that the row turns out to
        have. They are no confidence interval for the probability of a row, which no method can give.
        """
        check_is_fitted(self)
        if self.venn_abers_ is None:
            must = "an interval for the probability needs two classes and folds"
            raise ValueError(f"{must}, got {len(self.classes_)} classes and folds={getattr(self, 'folds', None)!r}")
        low, high = self.venn_abers_(torch.from_numpy(self.predict_proba(X)[:, 1]))
        return low.numpy(), high.numpy()

    # What a fit learns.

    def given_targets(self, y: Any, before: dict[str, Any]) -> Any:
        """The place of each row's class; sets `classes_`."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        self.classes_, codes = np.unique(labels_of(y), return_inverse=True)
        if not len(codes):
            return codes  # a source says what is wrong with no rows
        check_classes(self.classes_, np.bincount(codes))
        if before and not np.array_equal(before["classes_"], self.classes_):
            was, now = before["classes_"].tolist(), self.classes_.tolist()
            raise ValueError(f"warm_start goes on with the same classes, {was}, got {now}; fit with warm_start=False")
        return codes

    def new_targets(self, y: Any, n_rows: int) -> Array:
        labels = np.asarray(y).reshape(-1) if np.ndim(y) == 2 and np.shape(y)[1] == 1 else np.asarray(y)
        if labels.shape != (n_rows,):
            raise ValueError(f"y_new must have one class for each of {n_rows} rows, got the shape {labels.shape}")
        return np.eye(len(self.classes_))[places_of(labels, self.classes_)]

    def as_numbers(self, targets: NDArray[Any], weight: Array | None = None) -> Array:
        places = targets.astype(np.intp)
        if weight is not None and len(counted := np.unique(places[weight > 0])) < 2:
            only = self.classes_[counted[0]].item()
            raise ValueError(f"rows of a sample_weight above zero must have at least two classes, got only {only!r}")
        return np.eye(len(self.classes_))[places]

    @property
    def held_columns(self) -> Any:
        wanted = self.hold_for
        if wanted is None or isinstance(wanted, str | Integral):
            return None if isinstance(wanted, str) and wanted == CLASS else wanted
        return [one for one in wanted if one != CLASS] or None

    @property
    def holds_classes(self) -> bool:
        """Whether coverage is held within each class."""
        wanted = self.hold_for
        one = wanted is None or isinstance(wanted, str | Integral)
        return CLASS in ([wanted] if one else list(wanted))

    def groupings(self) -> list[Grouping]:
        n_columns = self.source_.row_shape[0] if self.source_.scaled else 0
        return [*super().groupings(), *[Grouping(CLASS, (n_columns,))] * self.holds_classes]

    def told_by(self, X: NDArray[Any], y: Array) -> Array:
        """Rows by whose values groups are told apart: the features of a table, and the class."""
        return np.column_stack([X, y.argmax(axis=1)]) if X.ndim == 2 else y.argmax(axis=1)[:, None].astype(np.float64)

    def check_groups(self, rows: NDArray[Any]) -> None:
        if self.holds_classes and self.chosen_calibration.name is None:
            raise ValueError("hold_for='class' needs ranks: give calibration='cross' or 'split', got None")
        super().check_groups(rows)

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        self.rounds_ = history.described(jobs, rows, one_target=True, one_level=np.ndim(self.coverage) == 0)
        (team,), members = trained.teams[jobs], trained.members[jobs][0]
        assert isinstance(team, TeamOfClasses)
        calibration, levels = calibration or self.chosen_calibration, rows.levels[0]
        self.out_of_fold_, self.venn_abers_, residuals, out_of_fold = None, None, rows, None
        if members is not None:
            y, members, leaves_out = out_of_fold_members(rows, members)
            some = np.asarray(leaves_out.any(axis=0))
            y, weight = y[some], None if rows.seen_weight is None else rows.seen_weight[some]
            raw = average_out_of_fold(members, leaves_out)
            team.calibrator = fit_calibrator(team.normalised(raw.mean[some]), y, weight, rows.seeds[0])
            residuals, members, p = scored(rows, members, raw, team, leaves_out)
            out_of_fold = Estimate(p[some], raw.half_width[some])
            if calibration.name is not None:
                learned = raw.half_width[some, 0, 1]
                team.thresholds = best_thresholds(p[some], y, learned, team.score, levels, weight)
                members = replace(members, half_width=team.thresholds.of(members.half_width))
            if len(self.classes_) == 2:
                self.venn_abers_ = VennAbers.of(p[some, 1], y[:, 1] > 0, weight)
        team.to(device_from(self.device))
        correction = calibration.correction([team], residuals, members)
        members = self.hold_groups(calibration, [team], residuals, members)
        if self.holds_classes:
            self.warn_of_rare_classes(calibration.ranked([team], residuals, members), rows)
        correction.kept = kept_rows(calibration, [team], residuals, members, correction)
        self.predictor_ = ClassPredictor(levels, [team], correction, self.classes_)
        if out_of_fold is not None:
            self.out_of_fold_ = self.sets_out_of_fold(rows, out_of_fold, some)
            self.warn_of_full_sets(self.out_of_fold_)

    def warn_of_rare_classes(self, ranked: Ranked | None, rows: Rows) -> None:
        """Say which class has too few ranked rows for the highest level."""
        assert rows.given is not None  # rows of a fit know what they were made from
        if ranked is None:
            return
        place, level = rows.given[1][ranked.places].argmax(axis=1), max(rows.levels[0])
        weight = np.ones(len(place)) if ranked.weight is None else ranked.weight
        worth = [rows_worth(weight[place == number]) for number in range(len(self.classes_))]
        needed = fewest_for(level)
        if few := [number for number, n in enumerate(worth) if n < needed]:
            rarest = min(few, key=worth.__getitem__)
            more = f", and {len(few) - 1} more classes have too few" if len(few) > 1 else ""
            what = f"coverage {level:g} within a class needs {needed} ranked rows of it"
            found = f"{self.classes_[rarest].item()!r} has {worth[rarest]}{more}"
            line = f"{what}, but {found}: there the ranks of other classes help, and coverage may be lower"
            warnings.warn(line, RareClassWarning, stacklevel=5)

    def warn_of_full_sets(self, known: SetsOutOfFold) -> None:
        """Say at which level all classes are in all sets."""
        full = known.members[known.known].all(axis=(0, 1))
        if full.any():
            level, n = self.predictor_.levels[int(full.argmax())], len(self.classes_)
            why = "the columns tell too little about the class"
            line = f"at coverage {level:g} every set holds all {n} classes: {why}, or a lower coverage would do"
            warnings.warn(line, FullSetsWarning, stacklevel=5)

    def sets_out_of_fold(self, rows: Rows, estimate: Estimate, some: NDArray[np.bool_]) -> SetsOutOfFold:
        """What members say of rows that they left out, as it is deployed."""
        assert rows.given is not None  # rows of a fit know what they were made from
        (X, y), (team,) = rows.given, self.predictor_.fitted_teams
        places = np.setdiff1d(np.arange(len(y)), rows.held_back[0])[some]
        p, half_width = (torch.from_numpy(part) for part in (estimate.mean, estimate.half_width))
        features = torch.from_numpy(X[places]) if X.ndim == 2 else p
        device = team.coverage.device
        shaped = team.shaped(features.to(device), p.to(device), half_width.to(device), p.to(device)).cpu().numpy()
        _, upper = self.predictor_.bounds([Estimate(estimate.mean, shaped)])
        members = np.zeros((*y.shape, upper.shape[2]), dtype=bool)
        members[places] = self.predictor_.sets(p, torch.from_numpy(upper)).numpy()
        probability = np.full(y.shape, np.nan)
        probability[places] = estimate.mean
        return SetsOutOfFold(probability, members)

    def judged(self, known: SetsOutOfFold, y: Array, seen: NDArray[Any], place: int) -> Judged:
        sets = known.members[seen, :, place]
        prediction = self.classes_[known.probability[seen].argmax(axis=1)].astype(str)
        # Not by size of set: where classes are hard to tell apart, small sets are covered less in all parts of a table.
        return np.asarray((sets & (y > 0)).any(axis=1, keepdims=True)), [{"prediction": prediction}]


@stored
@dataclass(eq=False, repr=False)
class MatchedClassifier(MatchedEstimator, SetClassifier):
    """Classification with a set of classes for every row, from two teams of networks trained in turns.

    F predicts probabilities, I the threshold that the score of the true class stays below, learned from members that
    left the row out. A set holds the classes whose score is at most the threshold.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows whose set is to contain the true class; several levels give nested sets from one fit.
    matching : "confidence", None or an object such as `ConfidenceFit(0.2)`, default="confidence"
        How F's confidence is matched to I's thresholds; None trains F on the cross-entropy alone.
    conformity_score : "probability", "adaptive", "regularised" or an object such as a `Score`, default="probability"
        How badly a class fits: one minus its probability gives the smallest sets, the others add up the probabilities
        of likelier classes.
    ordered : bool or sequence of classes, default=False
        Whether the classes have an order, as grades have: sets then have no gaps. True is the order of `classes_`.
    network, interval_network, folds, repeats, interval_loss, companions, schedule, warm_start, device, random_state,
    verbose
        As in `MatchedRegressor`. Companions are "forest" and classifiers with `predict_proba`. Folds have about the
        same share of each class.
    calibration : "cross", "split", None or an object such as `Split(size=0.3)`, default="cross"
        How thresholds are brought to the asked level: by ranks of out-of-fold rows, by those of rows kept for it (at
        least the asked coverage on average), or not at all.
    hold_for : "class", name or place of a column of X, or several, optional
        Coverage is held within each class, or within each group of rows that have the same value in a column. "class"
        is that of y, also where a column has this name.

    Attributes
    ----------
    classes_ : ndarray (class,)
        The classes, in the order of probabilities and sets.
    out_of_fold_ : SetsOutOfFold or None
        Probabilities and sets for the training rows, by members that left them out.
    rounds_, predictor_, source_, worst_slices_, factor_, column_scales_, columns_, n_features_in_, feature_names_in_,
    target_names_
        As in `MatchedRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MatchedClassifier(coverage=0.9, schedule=Schedule(max_rounds=2), repeats=1, random_state=0).fit(X, y)
    >>> found = model.predict_set(X[:5])
    >>> found.contains(y[:5]).all()
    np.True_
    """

    coverage: Coverage = 0.9
    matching: str | Matching | None = "confidence"
    _: KW_ONLY
    conformity_score: str | Score = "probability"
    ordered: Any = False
    network: NetworkChoice = None
    interval_network: NetworkChoice = None
    folds: Any = 5
    repeats: int | str = "auto"
    interval_loss: str | IntervalLoss = "quantile"
    calibration: Any = "cross"
    hold_for: Any = None
    companions: Sequence[Any] = (FOREST,)
    schedule: Schedule | None = None
    warm_start: bool = False
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    kind_of_matching: ClassVar[str] = "confidence"
    parts: ClassVar[tuple[str, ...]] = ("matching", "interval_loss", "calibration", "conformity_score")
    kind_of_team: ClassVar[type[MatchedTeam]] = ClassTeam
    adds_a_network: ClassVar[bool] = False
    kind_of_companions: ClassVar[tuple[str, str]] = ("classifier", "predict_proba")

    def check_params(self) -> None:
        super().check_params()
        part_from("conformity_score", self.conformity_score, Score)
        calibration = self.chosen_calibration
        if calibration.one_team_per_fold or calibration.moves_ends:
            raise ValueError(f"calibration of a classifier must be 'cross', 'split' or None, got {calibration.name!r}")

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        return {**super().dealing(groups, random_state), "score": self.chosen_score}

    @property
    def chosen_score(self) -> Score:
        """The conformity score as an object, for the classes in their order if they have one."""
        score: Score = part_from("conformity_score", self.conformity_score, Score)
        known = self.classes_.tolist()
        check_score(score, len(known))
        if isinstance(self.ordered, bool | np.bool_):
            return Contiguous(score, tuple(range(len(known)))) if self.ordered else score
        given = list(self.ordered) if hasattr(self.ordered, "__getitem__") else self.ordered  # not of a set
        order = [known.index(label) for label in given if label in known] if isinstance(given, list) else []
        if sorted(order) != list(range(len(known))) or len(given) > len(known):
            raise ValueError(f"ordered must be True, False or all classes in their order, got {given!r} for {known}")
        return Contiguous(score, tuple(order))


# What is given as classes.

MANY_NUMBERS, ROWS_OF_A_CLASS = 20, 10  # more classes than this, with fewer rows each on average, look like a quantity
KINDS_OF_CLASSES: tuple[Any, ...] = (bool | np.bool_, Real, str)
A_QUANTITY = "for a quantity, take MatchedRegressor, and at the command line leave out --classify"


def labels_of(y: Any) -> NDArray[Any]:
    """The class of each row: texts, whole numbers or booleans, and none missing."""
    from sklearn.utils.validation import assert_all_finite, column_or_1d

    given = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    if given.ndim == 2 and given.shape[1] > 1:
        raise ValueError(f"y must have one class for each row, got {given.shape[1]} columns; fit a classifier for each")
    labels: NDArray[Any] = column_or_1d(given, warn=True)
    labels = of_one_kind(labels) if labels.dtype == object else labels
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
        if (broken := labels != labels.round()).any():
            found = f"{labels[broken][0]:g} in row {broken.argmax()} (counted from 0)"
            raise ValueError(f"Unknown label type: y must hold classes, got the number {found}; {A_QUANTITY}")
    if len(labels) and labels.dtype.kind not in "biufU":
        raise ValueError(f"y must hold texts, whole numbers or booleans, got {labels[0]!r}; convert it to text")
    return labels


def of_one_kind(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels that came as objects, as an array of texts, numbers or booleans where they are of such a kind."""
    kinds: list[Any] = []
    for row, label in enumerate(labels.tolist()):
        if label is None or type(label).__name__ == "NAType" or label != label:
            must = "y must have a class in every row"
            raise ValueError(f"{must}, got {label!r} in row {row} (counted from 0); leave such rows out")
        kinds.append(next((kind for kind in KINDS_OF_CLASSES if isinstance(label, kind)), type(label)))
        if kinds[row] != kinds[0]:
            found = f"{labels[0]!r} in row 0 and {label!r} in row {row}"
            raise ValueError(f"y must hold classes of one kind, got {found}; convert them")
    return np.array(labels.tolist()) if kinds and kinds[0] in KINDS_OF_CLASSES else labels


def check_classes(classes: NDArray[Any], counts: NDArray[np.intp]) -> None:
    """Raise unless there are two classes, with two rows each; warn if they look like a quantity."""
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, got one class: {classes[0].item()!r}")
    many = classes.dtype.kind in "iuf" and len(classes) > MANY_NUMBERS
    many = many and counts.sum() < ROWS_OF_A_CLASS * len(classes)
    if counts.min() < 2:
        must = "each class needs at least two rows, one to learn from while the other is left out"
        way_out = A_QUANTITY if many else "leave it out, or join classes"
        raise ValueError(f"{must}, got one of class {classes[counts.argmin()].item()!r}; {way_out}")
    if many:
        line = f"y has {len(classes)} different numbers in {counts.sum()} rows, each a class of its own; {A_QUANTITY}"
        warnings.warn(line, ManyClassesWarning, stacklevel=6)
