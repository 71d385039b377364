"""Widths for rows that are distributed differently from those of the fit: other ranks, the same predictions.

With targets, the new rows are ranked themselves. Without, the ranked rows of the fit are weighted by how much likelier
they are among the new rows, w(x) = p_new(x) / p_fit(x): if only the distribution of x has changed, their scores are
then distributed as those of new rows (Tibshirani, Barber, Candes and Ramdas 2019). A classifier that tells new rows
from ranked ones gives w(x) as its odds. Where the rows of the fit had weights, p_fit is what these make of them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import effective_rows, rank_factor, rows_worth, scores_by
from coverwell.errors import ExtrapolationWarning
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.source import targets_by_name
from coverwell.options import coverage_rank, stored
from coverwell.training.device import device_from
from coverwell.training.rows import equal_rows

if TYPE_CHECKING:
    from coverwell.estimator import CalibratedEstimator

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEWEST_NEW, MOST_NEW = 20, 5000  # rows without targets that the classifiers learn from
FOLDS, SEED = 5, 0  # of the classifiers: equal new rows give equal widths
# Chosen on splits 100 to 102 of small tables, as the classifiers were.
CLEAR = 1.0  # standard errors by which a classifier must be better than chance
MOST_WEIGHT = 0.25  # of one of n rows: this many sqrt(n) times the mean weight
INVERSE_PENALTIES = 0.01, 0.1, 1.0  # of logistic regressions on inputs and their squares
BOOSTING = {"max_iter": 40, "learning_rate": 0.1, "max_leaf_nodes": 8, "l2_regularization": 5.0}
FARTHEST = 5.0  # standard deviations from the mean at which the classifiers' inputs are held
SURE = 0.98  # that a new row is one: beyond this no ranked row is like it
NEVER = 1e-4  # probabilities that are as good as 0
MOST_OUTSIDE = 0.05  # of the new rows, without a warning


@stored
@dataclass(frozen=True)
class Recalibration:
    """What the widths rest on since `recalibrate`.

    Parameters
    ----------
    n_new : how many new rows were given
    n_ranked : how many rows are ranked, those of the fit or the new ones; with weights, what they were worth
    n_effective : how many rows of equal weight they are worth
    labelled : whether the new rows had targets, and are ranked themselves
    share_outside : the share of new rows that no ranked row is like, or that lie outside the range of training rows
    """

    n_new: int
    n_ranked: int
    n_effective: float
    labelled: bool
    share_outside: float

    @property
    def changed(self) -> bool:
        """Whether widths are others than those of the fit."""
        return self.labelled or self.n_effective != self.n_ranked

    def __str__(self) -> str:
        outside = f"; {100 * self.share_outside:.0f} % of these lie outside" if self.share_outside else ""
        if self.labelled:
            return f"ranks of {self.n_new:,} new rows{outside}"
        if not self.changed:
            return f"{self.n_new:,} new rows look like those of the fit, nothing had to change{outside}"
        worth = f"are worth {int(self.n_effective):,} for {self.n_new:,} new ones"
        return f"{self.n_ranked:,} ranked rows {worth}{outside}"


def recalibration(model: CalibratedEstimator, X_new: Any, y_new: Any) -> tuple[Array, Array, Recalibration]:
    """Factors (target, level) for rows like the new ones, of each target and of boxes, and what they rest on."""
    correction = model.predictor_.correction
    if (kept := correction.kept) is None:
        what = "a table" if model.source_.scaled else "images"
        must = "recalibrate needs a table and its ranked rows, which calibration='local', 'cross' and 'split' keep"
        raise ValueError(f"{must}, got {model.chosen_calibration.name!r} and {what}; fit with one of these")
    if isinstance(X_new, TableFiles):
        raise TypeError(f"recalibrate takes rows in memory, got TableFiles; {MOST_NEW:,} of their rows are enough")
    inputs, labelled = model.predictor_.inputs, y_new is not None
    given = model.rows_of(X_new) if labelled else model.source_.rows(X_new, model)
    rows = given[:, : inputs.shape[0]]  # without predictions beside them
    if labelled:
        scores = new_scores(model, given, model.new_targets(y_new, len(rows)))
        before = weight = np.ones(len(rows))
        unlike, n_ranked = np.zeros(len(rows), dtype=bool), len(rows)
    else:
        rows, scores = sampled(rows), kept.scores.double().cpu().numpy()
        own = None if kept.weight is None else kept.weight.cpu().numpy()
        new = inputs.unbounded(rows).clip(-FARTHEST, FARTHEST)
        new = new.astype(np.float32).astype(np.float64)  # rounded like kept rows
        ratio, unlike = density_ratio(kept.rows.double().cpu().numpy(), new, own)
        before = np.ones(len(scores)) if own is None else own
        weight, n_ranked = before * ratio, rows_worth(before)
    outside = inputs.count_outside(rows)
    beyond = inputs.outside(rows) & outside.odd
    share_outside = float((unlike | beyond.any(axis=1)).mean())
    n_effective = effective_rows(weight) * (1 - unlike.mean())  # for the others they are worth nothing
    if np.array_equal(weight, before) and not unlike.any():
        n_effective = n_ranked
    found = Recalibration(len(given), n_ranked, float(n_effective), labelled, share_outside)
    check_worth(found, model, outside.in_columns(model.source_.names, outside.odd))
    n_worth, levels, asked = int(found.n_effective), correction.levels, max(correction.asked)
    enough = np.array([level <= asked or level * (n_worth + 1) <= n_worth for level in levels])
    fitted, of_boxes = (part.cpu().numpy() for part in (kept.factor, kept.joint_factor))
    unit = np.where(of_boxes > 0, of_boxes, 1.0)
    largest = unit * (scores / unit).max(axis=1, keepdims=True)
    how: dict[str, Any] = {"anew": labelled, "before": before}
    factor = new_factor(fitted, scores, weight, levels, enough, **how)
    return factor, new_factor(of_boxes, largest, weight, levels, enough, **how), found


def new_factor(
    fitted: Array,
    scores: Array,
    weight: Array,
    levels: tuple[float, ...],
    enough: Mask,
    *,
    anew: bool,
    before: Array | None = None,
) -> Array:
    """Scores at their ranks if `anew`; otherwise the fitted factor by how much weights move ranks, (target, level).

    `before` are the weights of the fit. So what brought the ranks to the size of the deployed team stays. Levels for
    which the rows are not enough follow the highest for which they are.
    """
    found = rank_factor(scores, levels, weight, or_largest=True)
    if not anew:
        own = rank_factor(scores, levels, before, or_largest=True)
        moved = fitted * np.divide(found, own, out=np.ones_like(found), where=own > 0)
        found = np.where(own > 0, moved, np.maximum(fitted, found))
    ratio = np.divide(found, fitted, out=np.ones_like(found), where=fitted > 0)
    return np.where(enough, found, fitted * ratio[:, enough][:, -1:])


def check_worth(found: Recalibration, model: CalibratedEstimator, columns: str) -> None:
    """Raise unless the ranked rows are worth enough for the fitted levels; warn of new rows that none of them is like.

    `columns` are those in which more of them lie outside than by chance.
    """
    where = f", beyond the training range in {columns}" if columns else ""
    try:
        coverage_rank(max(model.predictor_.levels), max(1, int(found.n_effective)))
    except ValueError as error:
        way_out = "" if found.labelled else ", or give the targets of the new rows too"
        raise ValueError(f"too few rows to recalibrate ({found}{where}): {error}{way_out}") from None
    if found.share_outside > MOST_OUTSIDE and not found.labelled:
        lie = f"{100 * found.share_outside:.0f} % of the new rows lie outside what the model was fitted on{where}"
        message = f"{lie}: no ranked row is like these, and no interval is to be trusted there"
        warnings.warn(message, ExtrapolationWarning, stacklevel=4)  # the line that asks an estimator to recalibrate


# New rows with targets.


def checked_targets(model: CalibratedEstimator, y_new: Any, n_rows: int) -> Array:
    """The targets (row, target) of all new rows."""
    from sklearn.utils.validation import check_array

    given = targets_by_name(y_new, model.target_names_, "y_new")
    y = check_array(given, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, copy=True)
    n_targets = len(model.target_names_)
    if len(y) != n_rows or y.size != n_rows * n_targets:
        must = f"y_new must have {n_targets} target{'s' * (n_targets > 1)} for each of {n_rows} rows"
        raise ValueError(f"{must}, got the shape {y.shape}")
    targets: Array = y.reshape(n_rows, n_targets)
    if n_odd := int((~np.isfinite(targets)).any(axis=1).sum()):
        must = "y_new must hold a finite target for every row"
        raise ValueError(f"{must}, but {n_odd} of {n_rows} rows have none; leave these out, or give X_new alone")
    return targets


def new_scores(model: CalibratedEstimator, rows: Array, y: Array) -> Array:
    """The scores of rows (row, target, level), of the half-widths before the factor."""
    (team,) = model.predictor_.moved(device_from(model.device)).fitted_teams
    expand = model.predictor_.correction.expand
    return scores_by(team, rows, y, None if expand is None else expand.cpu().numpy())


# New rows without targets.


def sampled(rows: Array) -> Array:
    """As many rows as classifiers learn from; raises where they are too few."""
    if len(rows) < FEWEST_NEW:
        way_out = "give more of them, or their targets too"
        raise ValueError(f"recalibrate needs at least {FEWEST_NEW} new rows to compare, got {len(rows)}; {way_out}")
    if len(rows) <= MOST_NEW:
        return rows
    return rows[np.random.default_rng(SEED).choice(len(rows), MOST_NEW, replace=False)]


def density_ratio(ranked: Array, new: Array, weight: Array | None = None) -> tuple[Array, Mask]:
    """How much likelier each ranked row is among the new ones, and which new rows are like none of the ranked ones.

    The best of a few classifiers gives the odds, by its log loss on rows that it has not seen. One that is no better
    than chance leaves all weights equal. Large weights are cut, so that their variance stays bounded. With weights,
    p_fit is the distribution that these make of the ranked rows. Equal rows stay in one fold: a tree that has seen one
    of them knows the others.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from coverwell.companions import name_of_weight

    alike: dict[str, Any] = {"class_weight": "balanced", "random_state": SEED}
    X, is_new = np.concatenate([ranked, new]).clip(-FARTHEST, FARTHEST), np.repeat([0, 1], [len(ranked), len(new)])
    logistic = [
        make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=500, **alike)) for C in INVERSE_PENALTIES
    ]
    choices = [(one, np.hstack([X, X**2])) for one in logistic]
    choices.append((HistGradientBoostingClassifier(**BOOSTING, **alike), X))
    mine = np.ones(len(X))
    if weight is not None:
        mine[: len(ranked)] = weight / weight.mean()
    unit = equal_rows(X)
    if unit is not None and len(np.unique(unit[is_new == 1])) < FOLDS:
        unit = None
    kind, balance = StratifiedKFold if unit is None else StratifiedGroupKFold, mine / np.bincount(is_new)[is_new]
    known: dict[str, Any] = {"groups": unit, "cv": kind(FOLDS, shuffle=True, random_state=SEED)}
    found: list[tuple[float, Array, Array]] = []
    for classifier, inputs in choices:
        by_weight = {} if weight is None else {name_of_weight(classifier): mine}
        p = cross_val_predict(classifier, inputs, is_new, method="predict_proba", params=by_weight, **known)[:, 1]
        p = p.clip(NEVER, 1 - NEVER)
        loss = -np.log(np.where(is_new == 1, p, 1 - p))
        found.append((float(np.average(loss, weights=balance)), loss, p))
    mean, loss, p = min(found, key=lambda one: one[0])
    excess = balance * (loss - mean)
    error = np.sqrt(np.sum((excess if unit is None else np.bincount(unit, excess)) ** 2)) / balance.sum()
    if mean > np.log(2) - CLEAR * error:
        return np.ones(len(ranked)), np.zeros(len(new), dtype=bool)
    return cut((p / (1 - p))[: len(ranked)]), p[len(ranked) :] > SURE


def cut(weight: Array) -> Array:
    """Weights of which none is many times the mean: what that errs is less than what it saves in variance."""
    held: Array = np.minimum(weight, weight.mean() * max(1.0, MOST_WEIGHT * np.sqrt(len(weight))))
    return held
