"""The runs of Table 3: a regressor learns boxes from the training pictures, and a line says how it does on the rest."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.experiments.boxes_data import (
    RANDOM_WEIGHTS,
    BoxedPictures,
    BoxProblem,
    TrunkWeights,
    box_problem,
    data_name,
)
from coverwell.experiments.boxes_methods import COVERAGE, BoxMethod
from coverwell.experiments.results import FORMAT, Line, ResultsFileError, environment
from coverwell.inputs.features import features_of
from coverwell.intervals import PredictionInterval

__all__ = ["BOX_FIELDS", "BOX_KEY", "EXAMPLES", "BoxGrid", "BoxUnit", "Source", "examples", "line_of"]

Array = NDArray[np.float64]

BOX_KEY = ("method", "data", "weights", "trial")  # no two lines of a file agree in all of these
BOX_FIELDS = (
    *("format", *BOX_KEY, "layer4", "seed", "coverage", "n_train", "n_test", "iou", "reached", "together", "joint"),
    *("percent", "pixels", "rounds", "fit_seconds", "predict_seconds", "device", "versions"),
)
EXAMPLES = ("narrowest", "median", "widest")
EXAMPLES_OF_EACH = 3
DECIMALS = 2  # of pixels that a figure shows


@dataclass(frozen=True)
class Source:
    """Which pictures, the weights of the trunk that sees them, and the folder in which its features are kept."""

    shards: tuple[str, ...] | None = None
    weights: TrunkWeights = RANDOM_WEIGHTS
    features: Path | None = None
    quick: bool = False  # pictures of our own making

    @property
    def data(self) -> str:
        return data_name(self.shards, generated=self.quick)

    def problem(self) -> BoxProblem:
        return box_problem(self.shards, generated=self.quick)


@dataclass(frozen=True)
class BoxUnit:
    """One run: a method with one seed."""

    method: BoxMethod
    source: Source
    trial: int
    device: str

    def __str__(self) -> str:
        return f"{self.method.slug} on {self.source.data}, trial {self.trial}"

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""
        return self.method.cost

    def lines(self) -> list[Line]:
        """The line of the run."""
        return [line_of(self.method, self.source, self.trial, device=self.device)]


@dataclass(frozen=True)
class BoxGrid:
    """All runs that are asked for; a trial is a seed."""

    KEY: ClassVar[tuple[str, ...]] = BOX_KEY
    FIELDS: ClassVar[tuple[str, ...]] = BOX_FIELDS

    methods: tuple[BoxMethod, ...]
    source: Source
    trials: int = 1
    device: str = "auto"

    def check_data(self) -> None:
        """Look for the pictures, so that missing ones are told before anything is written."""
        self.source.problem()

    def check_same(self, lines: Iterable[Line]) -> None:
        """Raise if there are results on other pictures or from other weights: they do not belong in one table."""
        now = (self.source.data, self.source.weights.name)
        for line in lines:
            before = (line["data"], line["weights"])
            if before != now:
                raise ResultsFileError(
                    f"results on {before[0]} with weights {before[1]} are there, and now {now[0]} with weights "
                    f"{now[1]} are asked for: give another folder with --out, or remove those lines"
                )

    def units(self, done: Container[Any] = ()) -> list[BoxUnit]:
        """What is not yet done, the longest first so that no worker is left with it at the end."""
        units = [
            BoxUnit(method, self.source, trial, self.device)
            for method in self.methods
            for trial in range(self.trials)
            if (method.slug, self.source.data, self.source.weights.name, trial) not in done
        ]
        return sorted(units, key=lambda unit: unit.cost, reverse=True)

    def keep_features(self, done: Container[Any] = ()) -> float:
        """Compute what the trunk says about all pictures, once, where methods will look for it; returns the seconds.

        Random weights differ from fit to fit: there is nothing to keep.
        """
        units = self.units(done)
        if not units or self.source.weights.path is None or self.source.features is None:
            return 0.0
        started = time.perf_counter()
        problem = self.source.problem()
        where = (self.source.weights, self.source.features)
        networks = [unit.method.network_with(*where, quick=self.source.quick) for unit in units]
        alike = {(network.size, network.mirror is not None): network for network in networks}
        for (size, mirrored), network in alike.items():
            for half in (problem.train, problem.test):
                features_of(
                    half.images,
                    network.trunk(),
                    size=size,
                    mirrored=mirrored,
                    device=self.device,
                    cache=self.source.features,
                    verbose=1,
                )
        return time.perf_counter() - started


def line_of(method: BoxMethod, source: Source, trial: int, *, device: str) -> Line:
    """Learn the training pictures' boxes, and measure on the test pictures."""
    problem, test = source.problem(), source.problem().test
    model = method.build(trial, device, weights=source.weights, features=source.features, quick=source.quick)
    started = time.perf_counter()
    model.fit(problem.train.images, problem.train.fractions)
    fitted = time.perf_counter()
    interval = model.predict_interval(test.images)
    ended = time.perf_counter()
    prediction = model.predict(test.images)
    # Only ranks say how far intervals must reach to hold together.
    joint = None if model.calibration is None else model.predict_interval(test.images, joint=True)
    where = {"method": method.slug, "data": source.data, "weights": source.weights.name, "trial": trial}
    line = {
        "format": FORMAT,
        **where,
        "layer4": "from the file" if source.weights.layer4 else "fresh",
        "seed": trial,
        "coverage": COVERAGE,
        "n_train": len(problem.train),
        "n_test": len(test),
        **measured(test, prediction, interval, joint),
        "rounds": len(model.rounds_),
        "fit_seconds": round(fitted - started, 3),
        "predict_seconds": round(ended - fitted, 3),
        **environment(device),
    }
    return line | ({"examples": examples(test, prediction, interval)} if method.pictured else {})


def measured(
    test: BoxedPictures, prediction: Array, interval: PredictionInterval, joint: PredictionInterval | None
) -> Line:
    """All measures, those with a unit in per cent of the image's side and in pixels of the original image."""
    y = test.fractions
    reached = np.asarray(metrics.coverage(y, *interval))
    return {
        "iou": metrics.iou(y, prediction),  # the same in fractions as in pixels: areas scale alike
        "reached": reached.tolist(),
        "together": metrics.joint_coverage(y, *interval),
        "joint": None if joint is None else _joint(test, joint),
        **{
            unit: _in_unit(y * factor, prediction * factor, interval.lower * factor, interval.upper * factor, reached)
            for unit, factor in _factors(test).items()
        },
    }


def _factors(test: BoxedPictures) -> dict[str, Array]:
    return {"percent": np.full_like(test.boxes, 100.0), "pixels": test.sides}


def _in_unit(y: Array, prediction: Array, lower: Array, upper: Array, reached: Array) -> Line:
    measures = {
        "rmse": metrics.rmse(y, prediction),
        "width": metrics.average_width(lower, upper),
        "constant_width": metrics.constant_width(y, prediction, reached),
        "interval_score": metrics.interval_score(y, lower, upper, COVERAGE),
    }
    return {name: np.asarray(values).tolist() for name, values in measures.items()}


def _joint(test: BoxedPictures, joint: PredictionInterval) -> Line:
    widths = {unit: (joint.width * factor).mean(axis=0).tolist() for unit, factor in _factors(test).items()}
    return {"reached": metrics.joint_coverage(test.fractions, *joint), "width": widths}


def examples(test: BoxedPictures, prediction: Array, interval: PredictionInterval) -> Line:
    """The pictures of Figure 5, chosen by rule: the narrowest, the middle and the widest intervals.

    Pictures stand in the order of their width, the mean over x, y, w and h in per cent of the image's side; equal ones
    by their number.
    """
    width = 100 * interval.width.mean(axis=1)
    order = np.lexsort((test.image_ids, width))
    n_shown = min(EXAMPLES_OF_EACH, len(order))
    middle = (len(order) - n_shown) // 2
    rows = (order[:n_shown], order[middle : middle + n_shown], order[-n_shown:])
    values = {"truth": test.fractions, "prediction": prediction, "lower": interval.lower, "upper": interval.upper}

    def shown(row: int) -> Line:
        pixels = {name: (value[row] * test.sides[row]).round(DECIMALS).tolist() for name, value in values.items()}
        about = {"image_id": int(test.image_ids[row]), "size": test.sizes[row].tolist()}
        return {**about, "width_percent": round(float(width[row]), DECIMALS), **pixels}

    return {name: [shown(int(row)) for row in found] for name, found in zip(EXAMPLES, rows, strict=True)}
