"""Predictions of one peer on the splits of one table; run by peers.py in the peers' own environment.

It is given the training rows and the inputs of the test rows, not their targets. For every split it prints one line of
JSON: the prediction and both bounds of every test row, what was fitted, the seconds it took, the device and the
versions; or the error that the peer raised. A peer's packages are imported when it is run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split

TREES = 200
FOLDS = 5
CONFORMALIZE_SHARE = 0.2
CQR_SHARE = 0.25
VALIDATION_SHARE = 0.2
MOST_BOOSTING_ROUNDS = 1000
STOPPING_ROUNDS = 50


class Split(NamedTuple):
    """What a peer may see of one split, the coverage it is asked for, its seed, and where networks run."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    asked: float
    seed: int
    device: str

    @property
    def levels(self) -> list[float]:
        """The levels of both bounds and the median."""
        outside = round((1 - self.asked) / 2, 9)
        return [outside, 0.5, 1 - outside]


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
    from mapie.regression import ConformalizedQuantileRegressor

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
    from mapie.regression import CrossConformalRegressor

    forest = RandomForestRegressor(TREES, n_jobs=1, random_state=split.seed)
    model = CrossConformalRegressor(
        forest, confidence_level=split.asked, method="plus", cv=FOLDS, random_state=split.seed
    )
    model.fit_conformalize(split.X, split.y)
    y_hat, interval = model.predict_interval(split.X_test, aggregate_point_predictions=None)
    return Prediction(y_hat, interval[:, 0, 0], interval[:, 1, 0], rounds=0, members=TREES * (FOLDS + 1))


def ngboost_default(split: Split) -> Prediction:
    """NGBoost as its README shows it: a normal law, 500 rounds, all training rows."""
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=split.seed).fit(split.X, split.y)
    return _of_normal_law(model, split)


def ngboost_early_stopping(split: Split) -> Prediction:
    """NGBoost with the number of rounds that is best on held-out rows, then fitted to all rows, as in its paper."""
    from ngboost import NGBRegressor

    X, X_val, y, y_val = train_test_split(split.X, split.y, test_size=VALIDATION_SHARE, random_state=split.seed)
    trial = NGBRegressor(n_estimators=MOST_BOOSTING_ROUNDS, verbose=False, random_state=split.seed)
    trial.fit(X, y, X_val=X_val, Y_val=y_val, early_stopping_rounds=STOPPING_ROUNDS)
    best = trial.best_val_loss_itr + 1  # counted from 0
    model = NGBRegressor(n_estimators=best, verbose=False, random_state=split.seed).fit(split.X, split.y)
    return _of_normal_law(model, split)


def _of_normal_law(model: Any, split: Split) -> Prediction:
    from scipy.stats import norm

    law = model.pred_dist(split.X_test)
    reach = norm.ppf((1 + split.asked) / 2) * law.scale
    return Prediction(law.loc, law.loc - reach, law.loc + reach, rounds=len(model.base_models), members=1)


def conformal_tights(split: Split) -> Prediction:
    """Conformal Tights around XGBoost, with its `predict_interval`.

    XGBoost keeps its squared error for the point, as the RMSE is assessed; around the intervals Conformal Tights sets
    the absolute error by itself.
    """
    from conformal_tights import ConformalCoherentQuantileRegressor
    from xgboost import XGBRegressor

    boosting = XGBRegressor(n_jobs=1)
    model = ConformalCoherentQuantileRegressor(estimator=boosting, random_state=split.seed).fit(split.X, split.y)
    interval = model.predict_interval(split.X_test, coverage=split.asked)
    rounds = model.estimator_.get_booster().num_boosted_rounds()
    return Prediction(model.predict(split.X_test), interval[:, 0], interval[:, 1], rounds=rounds, members=3)


def forest_oob(split: Split) -> Prediction:
    """A random forest with one width for all rows, from the ranks of its out-of-bag residuals."""
    forest = RandomForestRegressor(TREES, oob_score=True, n_jobs=1, random_state=split.seed).fit(split.X, split.y)
    y_hat, reach = forest.predict(split.X_test), _at_rank(np.abs(split.y - forest.oob_prediction_), split.asked)
    return Prediction(y_hat, y_hat - reach, y_hat + reach, rounds=0, members=TREES)


def quantile_forest(split: Split) -> Prediction:
    """A quantile forest with the leaves of its package's default, each of which keeps one row."""
    return _quantile_forest(split)


def quantile_forest_leaf_5(split: Split) -> Prediction:
    """A quantile forest with at least five rows a leaf, all of them kept, and half of the columns at a split."""
    return _quantile_forest(split, min_samples_leaf=5, max_samples_leaf=None, max_features=0.5)


def _quantile_forest(split: Split, **leaves: Any) -> Prediction:
    """Quantiles of the forest, moved by the ranks of its out-of-bag quantiles; all rows serve both.

    Where the target takes few values, so do the quantiles, and the move is mostly none: intervals end in values of the
    target.
    """
    from quantile_forest import RandomForestQuantileRegressor

    outer = split.levels[::2]
    forest = RandomForestQuantileRegressor(TREES, n_jobs=1, random_state=split.seed, **leaves).fit(split.X, split.y)
    lower, upper = forest.predict(split.X, outer, oob_score=True).T
    reach = _at_rank(np.maximum(lower - split.y, split.y - upper), split.asked)
    lower, upper = forest.predict(split.X_test, outer).T
    y_hat = forest.predict(split.X_test, "mean")
    return Prediction(y_hat, lower - reach, upper + reach, rounds=0, members=TREES)


def catboost_cqr(split: Split) -> Prediction:
    """CatBoost's three quantiles from one model, CQR; the point from a model of the squared error on all rows."""
    from catboost import CatBoostRegressor

    def boosting(loss: str) -> Any:
        return CatBoostRegressor(
            loss_function=loss, thread_count=1, random_seed=split.seed, verbose=False, allow_writing_files=False
        )

    quantiles = boosting("MultiQuantile:alpha=" + ",".join(map(str, split.levels)))
    point = boosting("RMSE").fit(split.X, split.y)
    of_cqr = _cqr(split, lambda X, y: quantiles.fit(X, y).predict)
    return of_cqr._replace(y_hat=point.predict(split.X_test), rounds=point.tree_count_, members=2)


def lightgbm_cqr(split: Split) -> Prediction:
    """LightGBM's quantiles, one model each, CQR; the point from a model of the squared error on all rows."""
    from lightgbm import LGBMRegressor

    how = {"n_jobs": 1, "random_state": split.seed, "verbose": -1}
    models = [LGBMRegressor(objective="quantile", alpha=level, **how) for level in split.levels[::2]]
    point = LGBMRegressor(**how).fit(split.X, split.y)

    def fit(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        fitted = [model.fit(X, y) for model in models]
        return lambda X: np.column_stack([model.predict(X) for model in fitted])

    of_cqr = _cqr(split, fit)
    return of_cqr._replace(y_hat=point.predict(split.X_test), rounds=point.n_estimators_, members=3)


def realmlp_cqr(split: Split) -> Prediction:
    """RealMLP with the pinball losses of three levels, CQR; the median is the prediction."""
    from pytabkit import RealMLP_TD_Regressor

    return _network(split, RealMLP_TD_Regressor)


def tabm_cqr(split: Split) -> Prediction:
    """TabM with the pinball losses of three levels, CQR; the median is the prediction."""
    from pytabkit import TabM_D_Regressor

    return _network(split, TabM_D_Regressor)


def _network(split: Split, kind: Any) -> Prediction:
    loss = f"multi_pinball({','.join(map(str, split.levels))})"
    how = {"device": split.device, "n_threads": 1, "random_state": split.seed}
    model = kind(train_metric_name=loss, val_metric_name=loss, **how)
    return _cqr(split, lambda X, y: model.fit(X, y).predict)


def _cqr(split: Split, fit: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> Prediction:
    """Conformalized quantile regression: `fit` gives a function from rows to quantiles, whose outer two are the bounds.

    The middle quantile is the prediction, where there is one. Ranks come from a quarter of the training rows.
    """
    X, X_ranks, y, y_ranks = train_test_split(split.X, split.y, test_size=CQR_SHARE, random_state=split.seed)
    quantiles = fit(X, y)
    on_ranks, on_test = quantiles(X_ranks), quantiles(split.X_test)
    reach = _at_rank(np.maximum(on_ranks[:, 0] - y_ranks, y_ranks - on_ranks[:, -1]), split.asked)
    return Prediction(on_test[:, 1], on_test[:, 0] - reach, on_test[:, -1] + reach, rounds=0, members=1)


def _at_rank(scores: np.ndarray, asked: float) -> float:
    """The score below which a new one lies with the coverage asked, as by metrics.coverage_rank of coverwell."""
    rank = math.ceil((len(scores) + 1) * Fraction(str(asked)))
    return float(np.sort(scores)[min(rank, len(scores)) - 1])


PEERS: dict[str, Callable[[Split], Prediction]] = {
    "mapie-cqr-boosting": mapie_cqr_boosting,
    "mapie-cv-plus-forest": mapie_cv_plus_forest,
    "ngboost": ngboost_default,
    "ngboost-early-stopping": ngboost_early_stopping,
    "conformal-tights": conformal_tights,
    "forest-oob": forest_oob,
    "quantile-forest": quantile_forest,
    "quantile-forest-leaf-5": quantile_forest_leaf_5,
    "catboost-cqr": catboost_cqr,
    "lightgbm-cqr": lightgbm_cqr,
    "realmlp-cqr": realmlp_cqr,
    "tabm-cqr": tabm_cqr,
}
# What the numbers of each rest on, beside numpy and scikit-learn.
PACKAGES = {
    "mapie-cqr-boosting": ["mapie"],
    "mapie-cv-plus-forest": ["mapie"],
    "ngboost": ["ngboost"],
    "ngboost-early-stopping": ["ngboost"],
    "conformal-tights": ["conformal_tights", "xgboost"],
    "quantile-forest": ["quantile_forest"],
    "quantile-forest-leaf-5": ["quantile_forest"],
    "catboost-cqr": ["catboost"],
    "lightgbm-cqr": ["lightgbm"],
    "realmlp-cqr": ["pytabkit", "torch"],
    "tabm-cqr": ["pytabkit", "torch"],
}


def imported(method: str) -> dict[str, str]:
    """Import what a peer needs, which is no part of its time; the versions."""
    versions = {}
    for name in [*PACKAGES.get(method, ()), "sklearn", "numpy"]:
        module = import_module(name)
        versions[name.replace("_", "-")] = str(getattr(module, "__version__", None) or version(name))
    return {**versions, "python": platform.python_version()}


def device_name(device: str) -> str:
    """The name of the device, which is ready on return."""
    if device == "cpu":
        return platform.machine() + " CPU"
    import torch

    torch.zeros(1, device=device)
    return str(torch.cuda.get_device_name(device))


def answer(method: str, split: Split) -> dict[str, Any]:
    """What the peer says, and its seconds: on a CPU those of the processor, on a GPU those of the clock."""
    clock = time.process_time if split.device == "cpu" else time.perf_counter
    started = clock()
    outputs = PEERS[method](split)
    seconds = clock() - started
    arrays = {name: getattr(outputs, name).astype(float).tolist() for name in ("y_hat", "lower", "upper")}
    return {**arrays, "rounds": outputs.rounds, "members": outputs.members, "seconds": seconds}


def main() -> None:
    """Print one line for every split in the file: `peers_runner.py METHOD FILE DEVICE`."""
    method, path, device = sys.argv[1:]
    logging.disable(logging.INFO)  # MAPIE tells of all bounds that cross; peers.py counts them
    warnings.simplefilter("ignore")
    about = {"versions": imported(method), "device": device_name(device)}
    rows = dict(np.load(path))
    for at, seed in enumerate(rows["seeds"]):
        split = Split(rows["X"][at], rows["y"][at], rows["X_test"][at], float(rows["asked"]), int(seed), device)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # standard output is for our lines alone
                found = {**answer(method, split), **about}
        except Exception as error:  # whatever a peer may raise: the other splits go on
            found = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
