"""Probabilities and sets of classes by peers on the splits of one table; run by classification.py in their environment.

They are given the training rows and the inputs of the test rows, not their classes, which are numbers from 0. For every
split and method it prints one line of JSON: the probabilities (row, class), the sets (row, class, level) where there
are any, the seconds and the versions; or the error that the peer raised.
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import joblib
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, train_test_split

TREES = 200
FOLDS = 5
RANKS_SHARE = 0.2
SIZES_SHARE = 0.2  # of these rows choose the penalty of RAPS, MAPIE's default
MOST_CLASSES_BY_PAIRS = 3  # venn-abers fits every pair of classes on every fold

BASES: dict[str, Callable[[int], Any]] = {
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "forest": lambda seed: RandomForestClassifier(TREES, oob_score=True, n_jobs=1, random_state=seed),
}


class Base(ClassifierMixin, BaseEstimator):
    """Boosting or a forest that is fitted once to the same rows, however many peers ask for it.

    `spared` are the seconds of the fits that were not made again: a peer's time counts them.
    """

    fits: ClassVar[dict[tuple[str, int, str], tuple[Any, float]]] = {}
    spared: ClassVar[float] = 0.0

    def __init__(self, name: str = "forest", seed: int = 0) -> None:
        self.name, self.seed = name, seed

    def fit(self, X: Any, y: Any) -> Base:
        key = (self.name, self.seed, joblib.hash((np.asarray(X).tobytes(), np.asarray(y).tobytes())))
        if key in self.fits:
            Base.spared += self.fits[key][1]
        else:
            started = time.process_time()
            fitted = BASES[self.name](self.seed).fit(X, y)
            self.fits[key] = fitted, time.process_time() - started
        self.model_ = self.fits[key][0]
        self.classes_ = self.model_.classes_
        self.n_features_in_ = self.model_.n_features_in_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(X))

    @property
    def oob_decision_function_(self) -> np.ndarray:
        """Of a forest; equal probabilities for a row that every tree was trained on."""
        found = self.model_.oob_decision_function_
        return np.where(np.isnan(found), 1 / found.shape[1], found)


class Split(NamedTuple):
    """What a peer may see of one split, the levels it is asked for, and its seed."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    levels: list[float]
    seed: int

    @property
    def folds(self) -> StratifiedKFold:
        return StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    def part(self) -> list[np.ndarray]:
        """Rows for fitting and rows kept for ranks, with their classes."""
        return train_test_split(
            self.X,
            self.y,
            test_size=RANKS_SHARE,
            stratify=self.y if self.kept_have_all else None,
            random_state=self.seed,
        )

    @property
    def kept_have_all(self) -> bool:
        """Whether there are as many kept rows as classes, without which they cannot be stratified."""
        return bool(RANKS_SHARE * len(self.y) >= self.n_classes)


class Answer(NamedTuple):
    """What a peer says of the test rows: probabilities (row, class), and sets (row, class, level) or None."""

    probability: np.ndarray
    sets: np.ndarray | None = None


def plain(base: str, split: Split) -> Answer:
    """All rows, nothing calibrated."""
    return Answer(Base(base, split.seed).fit(split.X, split.y).predict_proba(split.X_test))


def calibrated(method: str, base: str, split: Split) -> Answer:
    """scikit-learn's CalibratedClassifierCV: a calibrator for each fold, the mean of all."""
    model = CalibratedClassifierCV(Base(base, split.seed), method=method, cv=split.folds).fit(split.X, split.y)
    return Answer(model.predict_proba(split.X_test))


def venn_abers(base: str, split: Split) -> Answer:
    """Cross Venn-Abers; for many classes the form for a fitted model, with the rows kept."""
    from venn_abers import VennAbersCalibrator

    if split.n_classes <= MOST_CLASSES_BY_PAIRS:
        own = VennAbersCalibrator(Base(base, split.seed), inductive=False, n_splits=FOLDS, random_state=split.seed)
        return Answer(own.fit(split.X, split.y).predict_proba(split.X_test))
    X, X_ranks, y, y_ranks = split.part()
    model = Base(base, split.seed).fit(X, y)
    kept, new = model.predict_proba(X_ranks), model.predict_proba(split.X_test)
    return Answer(VennAbersCalibrator().predict_proba(p_cal=kept, y_cal=y_ranks, p_test=new))


def mapie_split(score: str, base: str, split: Split) -> Answer:
    """MAPIE's SplitConformalClassifier; where too few rows are kept for a level, the set is full."""
    from mapie.classification import SplitConformalClassifier

    X, X_ranks, y, y_ranks = split.part()
    model = Base(base, split.seed).fit(X, y)
    n_ranks = math.floor(SIZES_SHARE * len(y_ranks)) if score == "raps" else len(y_ranks)
    reached = [level for level in split.levels if n_ranks * (1 - level) > 1]
    own = SplitConformalClassifier(model, reached, score, prefit=True, random_state=split.seed)
    _, sets = own.conformalize(X_ranks, y_ranks).predict_set(split.X_test)
    full = np.ones((len(sets), split.n_classes, len(split.levels) - len(reached)), dtype=bool)
    return Answer(model.predict_proba(split.X_test), np.concatenate([sets, full], axis=2))


def mapie_cross(score: str, base: str, split: Split) -> Answer:
    """MAPIE's CrossConformalClassifier: all rows serve both; probabilities of the model of all rows."""
    from mapie.classification import CrossConformalClassifier

    model = Base(base, split.seed)
    own = CrossConformalClassifier(model, split.levels, score, cv=split.folds, random_state=split.seed)
    _, sets = own.fit_conformalize(split.X, split.y).predict_set(split.X_test)
    return Answer(model.fit(split.X, split.y).predict_proba(split.X_test), sets)


def torchcp_saps(base: str, split: Split) -> Answer:
    """TorchCP's SAPS with its default weight."""
    # Its training losses need torchsort, which must be compiled, its graphs another package: neither is used here.
    if "torchcp" not in sys.modules:
        package, sorting = ModuleType("torchcp"), ModuleType("torchsort")
        package.__path__ = find_spec("torchcp").submodule_search_locations
        sorting.soft_rank = sorting.soft_sort = None
        sys.modules |= {"torchcp": package, "torchsort": sorting}
    import torch
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import SAPS

    torch.manual_seed(split.seed)
    torch.set_num_threads(1)
    X, X_ranks, y, y_ranks = split.part()
    model = Base(base, split.seed).fit(X, y)
    kept, new = (torch.from_numpy(np.log(model.predict_proba(rows) + 1e-12)) for rows in (X_ranks, split.X_test))
    own, sets = SplitPredictor(SAPS()), []
    for level in split.levels:
        own.calculate_threshold(kept, torch.from_numpy(y_ranks), alpha=1 - level)
        sets.append(own.predict_with_logits(new).numpy().astype(bool))
    return Answer(new.exp().numpy(), np.stack(sets, axis=2))


def crepes_forest(split: Split, *, by_class: bool) -> Answer:
    """crepes with ranks of out-of-bag rows, of all classes together or of each by itself (Mondrian)."""
    from crepes import WrapClassifier

    own = WrapClassifier(Base("forest", split.seed))
    own.fit(split.X, split.y)
    own.calibrate(split.X, split.y, oob=True, class_cond=by_class, seed=split.seed)
    sets = [np.asarray(own.predict_set(split.X_test, labels=False, confidence=level)) for level in split.levels]
    return Answer(own.learner.predict_proba(split.X_test), np.stack(sets, axis=2).astype(bool))


PEERS: dict[str, Callable[[Split], Answer]] = {
    **{base: partial(plain, base) for base in BASES},
    **{
        f"{method}-{base}": partial(calibrated, method, base)
        for base in BASES
        for method in ("sigmoid", "isotonic", "temperature")
    },
    **{f"venn-abers-{base}": partial(venn_abers, base) for base in BASES},
    **{
        f"mapie-{score}-{base}": partial(mapie_split, score, base) for base in BASES for score in ("lac", "aps", "raps")
    },
    **{f"mapie-cross-{score}-{base}": partial(mapie_cross, score, base) for base in BASES for score in ("lac", "aps")},
    **{f"torchcp-saps-{base}": partial(torchcp_saps, base) for base in BASES},
    "crepes-forest": partial(crepes_forest, by_class=False),
    "crepes-by-class-forest": partial(crepes_forest, by_class=True),
}
FOR_SEVERAL = {
    name for name in PEERS if "-aps-" in name or "-raps-" in name
}  # MAPIE has them for more than two classes
PACKAGES = {"mapie": ["mapie"], "torchcp": ["torchcp", "torch"], "venn": ["venn_abers"], "crepes": ["crepes"]}


def versions_of(method: str) -> dict[str, str]:
    found = {name: version(name) for name in PACKAGES.get(method.partition("-")[0], ())}
    return {**found, **{name: import_module(name).__version__ for name in ("sklearn", "numpy")}}


def answer(method: str, split: Split) -> dict[str, Any]:
    """What the peer says, and the seconds of the processor."""
    warnings.simplefilter("ignore")  # TorchCP turns them on
    Base.spared, started = 0.0, time.process_time()
    found = PEERS[method](split)
    seconds = time.process_time() - started + Base.spared
    sets = None if found.sets is None else found.sets.astype(int).tolist()
    return {"probability": np.asarray(found.probability).tolist(), "sets": sets, "seconds": seconds}


def main(arguments: Sequence[str]) -> None:
    """Print one line for every split in the file and every method: `class_peers_runner.py FILE METHOD ...`."""
    path, *methods = arguments
    warnings.simplefilter("ignore")
    rows = dict(np.load(path))
    for at, seed in enumerate(rows["seeds"].tolist()):
        split = Split(rows["X"][at], rows["y"][at], rows["X_test"][at], rows["levels"].tolist(), seed)
        Base.fits.clear()
        for method in methods:
            try:
                with contextlib.redirect_stdout(sys.stderr):  # standard output is for our lines alone
                    found = answer(method, split)
                    found["versions"] = {**versions_of(method), "python": platform.python_version()}
            except Exception as error:  # whatever a peer may raise: the others go on
                found = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
            print(json.dumps({"seed": seed, "method": method, **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
