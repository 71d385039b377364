"""Predictions of one peer on the splits of one table; run by peers.py in the peers' own environment.

It is given the training rows and the inputs of the test rows, not their targets. For every split it prints one line of
JSON: the prediction and both bounds of every test row, what was fitted, the CPU seconds it took, and the versions.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import platform
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from conformal_tights import ConformalCoherentQuantileRegressor
from mapie.regression import ConformalizedQuantileRegressor, CrossConformalRegressor
from ngboost import NGBRegressor
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

TREES = 200
FOLDS = 5
CONFORMALIZE_SHARE = 0.2
VALIDATION_SHARE = 0.2
MOST_BOOSTING_ROUNDS = 1000
STOPPING_ROUNDS = 50

PACKAGES = {"mapie": "mapie", "ngboost": "ngboost", "conformal-tights": "conformal-tights", "xgboost": "xgboost"}
PACKAGES |= {"sklearn": "scikit-learn", "numpy": "numpy"}


class Split(NamedTuple):
    """What a peer may see of one split, the coverage it is asked for, and its seed."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    asked: float
    seed: int


class Prediction(NamedTuple):
    """What a peer says about the test rows; boosting rounds, and trees or models side by side."""

    y_hat: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rounds: int
    members: int


def mapie_cqr_boosting(split: Split) -> Prediction:
    """MAPIE's conformalized quantile regression: three models by their pinball losses, then ranks on rows held out.

    The correction is MAPIE's default, one for each bound.
    """
    X, X_ranks, y, y_ranks = train_test_split(split.X, split.y, test_size=CONFORMALIZE_SHARE, random_state=split.seed)
    boosting = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=split.seed)
    model = ConformalizedQuantileRegressor(boosting, confidence_level=split.asked)
    model.fit(X, y).conformalize(X_ranks, y_ranks)
    y_hat, interval = model.predict_interval(split.X_test)
    return Prediction(y_hat, interval[:, 0, 0], interval[:, 1, 0], rounds=boosting.max_iter, members=3)


def mapie_cv_plus_forest(split: Split) -> Prediction:
    """MAPIE's CV+ around a random forest.

    The point is the forest of all training rows, an option of MAPIE that suits it better than its default, the mean of
    the forests of the folds. The intervals are the same.
    """
    forest = RandomForestRegressor(TREES, n_jobs=1, random_state=split.seed)
    model = CrossConformalRegressor(
        forest, confidence_level=split.asked, method="plus", cv=FOLDS, random_state=split.seed
    )
    model.fit_conformalize(split.X, split.y)
    y_hat, interval = model.predict_interval(split.X_test, aggregate_point_predictions=None)
    return Prediction(y_hat, interval[:, 0, 0], interval[:, 1, 0], rounds=0, members=TREES * (FOLDS + 1))


def ngboost_default(split: Split) -> Prediction:
    """NGBoost as its README shows it: a normal law, 500 rounds, all training rows."""
    model = NGBRegressor(verbose=False, random_state=split.seed).fit(split.X, split.y)
    return _of_normal_law(model, split)


def ngboost_early_stopping(split: Split) -> Prediction:
    """NGBoost with the number of rounds that is best on held-out rows, then fitted to all rows, as in its paper."""
    X, X_val, y, y_val = train_test_split(split.X, split.y, test_size=VALIDATION_SHARE, random_state=split.seed)
    trial = NGBRegressor(n_estimators=MOST_BOOSTING_ROUNDS, verbose=False, random_state=split.seed)
    trial.fit(X, y, X_val=X_val, Y_val=y_val, early_stopping_rounds=STOPPING_ROUNDS)
    best = trial.best_val_loss_itr + 1  # counted from 0
    model = NGBRegressor(n_estimators=best, verbose=False, random_state=split.seed).fit(split.X, split.y)
    return _of_normal_law(model, split)


def _of_normal_law(model: Any, split: Split) -> Prediction:
    law = model.pred_dist(split.X_test)
    reach = norm.ppf((1 + split.asked) / 2) * law.scale
    return Prediction(law.loc, law.loc - reach, law.loc + reach, rounds=len(model.base_models), members=1)


def conformal_tights(split: Split) -> Prediction:
    """Conformal Tights around XGBoost, with its `predict_interval`.

    XGBoost keeps its squared error for the point, as the RMSE is assessed; around the intervals Conformal Tights sets
    the absolute error by itself.
    """
    boosting = XGBRegressor(n_jobs=1)
    model = ConformalCoherentQuantileRegressor(estimator=boosting, random_state=split.seed).fit(split.X, split.y)
    interval = model.predict_interval(split.X_test, coverage=split.asked)
    rounds = model.estimator_.get_booster().num_boosted_rounds()
    return Prediction(model.predict(split.X_test), interval[:, 0], interval[:, 1], rounds=rounds, members=3)


def forest_oob(split: Split) -> Prediction:
    """A random forest with one width for all rows, from the ranks of its out-of-bag residuals."""
    forest = RandomForestRegressor(TREES, oob_score=True, n_jobs=1, random_state=split.seed).fit(split.X, split.y)
    sizes = np.sort(np.abs(split.y - forest.oob_prediction_))
    rank = math.ceil((len(sizes) + 1) * Fraction(str(split.asked)))  # as metrics.coverage_rank of coverwell
    y_hat, reach = forest.predict(split.X_test), sizes[rank - 1]
    return Prediction(y_hat, y_hat - reach, y_hat + reach, rounds=0, members=TREES)


PEERS: dict[str, Callable[[Split], Prediction]] = {
    "mapie-cqr-boosting": mapie_cqr_boosting,
    "mapie-cv-plus-forest": mapie_cv_plus_forest,
    "ngboost": ngboost_default,
    "ngboost-early-stopping": ngboost_early_stopping,
    "conformal-tights": conformal_tights,
    "forest-oob": forest_oob,
}


def answer(method: str, split: Split) -> dict[str, Any]:
    started = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for our lines alone
        outputs = PEERS[method](split)
    seconds = time.process_time() - started
    arrays = {name: getattr(outputs, name).astype(float).tolist() for name in ("y_hat", "lower", "upper")}
    versions = {name: version(package) for name, package in PACKAGES.items()}
    versions["python"] = platform.python_version()
    return {**arrays, "rounds": outputs.rounds, "members": outputs.members, "seconds": seconds, "versions": versions}


def main() -> None:
    """Print one line for every split in the file: `peers_runner.py METHOD FILE`."""
    method, path = sys.argv[1:]
    logging.disable(logging.INFO)  # MAPIE tells of all bounds that cross; peers.py counts them
    rows = dict(np.load(path))
    for at, seed in enumerate(rows["seeds"]):
        split = Split(rows["X"][at], rows["y"][at], rows["X_test"][at], float(rows["asked"]), int(seed))
        print(json.dumps(answer(method, split)), flush=True)


if __name__ == "__main__":
    main()
