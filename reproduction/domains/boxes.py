"""The runs of Table 3 and Figure 5: a regressor learns boxes from the training images and is measured on the rest."""

from __future__ import annotations

import time
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.errors import BoxOutsideImageWarning
from coverwell.inputs.features import features_of
from coverwell.networks.resnet import ResNet18, ResNet18Trunk, imagenet_weights
from coverwell.prediction import PredictionInterval
from reproduction.data.images import SHARDS, BoxedImages, load_images
from reproduction.data.store import sha256_of
from reproduction.lines import Line, ResultsFileError
from reproduction.methods import BOX_METHODS, Method, box_settings, named
from reproduction.study import Place, Study

Array = NDArray[np.float64]

COVERAGE = 0.95
CUB, GENERATED = "cub", "generated images"
TARGETS = ("x", "y", "w", "h")  # left, top, width and height
SMALL_SHARDS = ("train-0", "test-0")
# Images of our own making: enough for ranks at 0.95, which need 19, of half of those that train. Their sides are called
# longer than they are, so that pixels differ from fractions.
N_GENERATED = {"train": 40, "test": 20}
GENERATED_SIDE, GENERATED_SIZES = 32, ((400, 300), (300, 400))
EXAMPLES, EXAMPLES_OF_EACH = ("narrowest", "median", "widest"), 3
DECIMALS = 2  # of pixels that a figure shows


@dataclass(frozen=True)
class TrunkWeights:
    """The file that a ResNet-18 starts from, None being random weights, and what result lines call it."""

    path: str | None = None
    name: str = "random"
    layer4: bool = False  # whether the file has layer 4; otherwise members start it fresh


def trunk_weights(path: Path | None = None) -> TrunkWeights:
    """A file of weights, checked to be those of a ResNet-18; by default torchvision's, trained on ImageNet."""
    file = imagenet_weights() if path is None else path
    absent = ResNet18Trunk().load_weights(file)
    return TrunkWeights(str(file), f"{file.name} (sha256 {sha256_of(file)[:8]})", "layer4" not in absent)


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """Boxes to predict."""

    data: str
    train: BoxedImages
    test: BoxedImages


@dataclass(frozen=True)
class Source:
    """Which images, the weights of the trunk that sees them, and the folder in which its features are kept."""

    shards: tuple[str, ...] | None = None
    weights: TrunkWeights = TrunkWeights()
    features: Path | None = None
    generated: bool = False

    @property
    def data(self) -> str:
        """What result lines call the images."""
        return GENERATED if self.generated else " ".join((CUB, *(self.shards or ())))

    def problem(self) -> BoxProblem:
        return box_problem(self.data, self.shards)


@cache
def box_problem(data: str, shards: tuple[str, ...] | None = None) -> BoxProblem:
    """CUB's official split, or those of its shards that are named, or images of our own making.

    Boxes past the edge of their photograph (30 of 11,788) are cut there.
    """
    if data == GENERATED:
        return BoxProblem(data, _generated("train", seed=0), _generated("test", seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoxOutsideImageWarning)  # known, and noted where results are shown
        cub = load_images(CUB, shards=shards)
    return BoxProblem(data, cub.take(cub.train), cub.take(~cub.train))


def _generated(half: str, seed: int) -> BoxedImages:
    """A bright rectangle on noise, whose box is known."""
    n = N_GENERATED[half]
    rng = np.random.default_rng(seed)
    sides = rng.integers(GENERATED_SIDE // 4, GENERATED_SIDE // 2, size=(n, 2), endpoint=True)
    corners = rng.integers(0, GENERATED_SIDE - sides, endpoint=True)
    images = rng.integers(0, 120, size=(n, 3, GENERATED_SIDE, GENERATED_SIDE), dtype=np.uint8)
    for image, (left, top), (width, height) in zip(images, corners, sides, strict=True):
        image[:, top : top + height, left : left + width] += 130
    sizes = np.array(GENERATED_SIZES, dtype=np.int64)[np.arange(n) % len(GENERATED_SIZES)]
    boxes = np.concatenate([corners, sides], axis=1) / GENERATED_SIDE * np.tile(sizes, 2)
    shapes = np.where(sides[:, 0] > sides[:, 1], "wide", "high")
    return BoxedImages(GENERATED, images, boxes, sizes, np.arange(1, n + 1), np.full(n, half == "train"), shapes)


def shards_from(names: Sequence[str]) -> tuple[str, ...]:
    """The shards of these names, with at least one of either half of the split."""
    asked = named("shard", SHARDS, names)
    for half in N_GENERATED:
        if not any(name.startswith(half) for name in asked):
            raise ValueError(f"shards must have one to train on and one to test on, got no {half} shard")
    return asked


@dataclass(frozen=True)
class BoxStudy(Study):
    """Methods on images with boxes; a trial is a seed."""

    FILE: ClassVar[str] = "boxes.jsonl"
    VARIANT: ClassVar[str] = "weights"
    FIELDS: ClassVar[str] = (
        "layer4 seed coverage n_train n_test iou reached together joint percent pixels "
        "rounds fit_seconds predict_seconds"
    )
    SETTINGS: ClassVar[str] = "boxes_configuration.json"

    methods: tuple[Method, ...] = tuple(method for method in BOX_METHODS if not method.by_name)
    source: Source = Source()

    @classmethod
    def settings(cls) -> dict[str, Any]:
        return {method.slug: box_settings(method, COVERAGE) for method in BOX_METHODS}

    def places(self, method: Method) -> Iterator[Place]:
        yield self.source.data, self.source.weights.name

    def cost(self, method: Method, place: Place) -> float:
        return method.cost * len(self.source.problem().train)

    def check_same(self, lines: Iterable[Line]) -> None:
        """Raise if there are results on other images or from other weights: they do not belong in one table."""
        data, weights = self.source.data, self.source.weights.name
        for line in lines:
            if (line["data"], line["weights"]) != (data, weights):
                raise ResultsFileError(
                    f"results on {line['data']} with weights {line['weights']} are there, and now {data} with weights "
                    f"{weights} are asked for: give another folder with --out, or remove those lines"
                )

    def keep_features(self, done: Container[Any] = ()) -> float:
        """Compute the trunk's features of all images, once, where methods will look for them; returns the seconds.

        Random weights differ from fit to fit: there is nothing to keep.
        """
        units = self.units(done)
        if not units or self.source.weights.path is None or self.source.features is None:
            return 0.0
        started, problem = time.perf_counter(), self.source.problem()
        networks = [self.network(unit.method) for unit in units]
        for (size, mirrored), network in {(one.size, one.mirror is not None): one for one in networks}.items():
            how = {"size": size, "mirrored": mirrored, "device": self.device, "cache": self.source.features}
            for half in (problem.train, problem.test):
                features_of(half.images, network.trunk(), **how, verbose=1)
        return time.perf_counter() - started

    def network(self, method: Method) -> ResNet18:
        """A method's network with the weights and the folder of features; with `--quick` for smaller images."""
        network: ResNet18 = method.settings["network"]
        size = GENERATED_SIDE if self.quick else network.size
        return replace(network, weights=self.source.weights.path, cache=self.source.features, size=size)

    def measure(self, method: Method, place: Place, trials: Sequence[int]) -> list[Line]:
        problem, (trial,) = self.source.problem(), trials
        train, test = problem.train, problem.test
        model = method.build(COVERAGE, trial, self.device, quick=self.quick, network=self.network(method))
        started = time.perf_counter()
        model.fit(train.images, train.fractions)
        fitted = time.perf_counter()
        interval = model.predict_interval(test.images)
        ended = time.perf_counter()
        prediction = model.predict(test.images)
        # Only ranks can widen intervals until they hold together.
        joint = None if model.calibration is None else model.predict_interval(test.images, joint=True)
        line = {
            "layer4": "from the file" if self.source.weights.layer4 else "fresh",
            "coverage": COVERAGE,
            "n_train": len(train),
            "n_test": len(test),
            **measured(test, prediction, interval, joint),
            "rounds": len(model.rounds_),
            "fit_seconds": round(fitted - started, 3),
            "predict_seconds": round(ended - fitted, 3),
        }
        return [line | ({"examples": examples(test, prediction, interval)} if method.in_figure else {})]


def measured(
    test: BoxedImages, prediction: Array, interval: PredictionInterval, joint: PredictionInterval | None
) -> Line:
    """All measures, those with a unit in per cent of the image's side and in pixels of the original image."""
    y, reached = test.fractions, np.asarray(metrics.coverage(test.fractions, *interval))
    line: Line = {
        "iou": metrics.iou(y, prediction),  # the same in fractions as in pixels: areas scale alike
        "reached": reached.tolist(),
        "together": metrics.joint_coverage(y, *interval),
        "joint": None if joint is None else {"reached": metrics.joint_coverage(y, *joint), "width": {}},
    }
    for unit, factor in {"percent": np.full_like(test.boxes, 100.0), "pixels": test.sides}.items():
        inside, lower, upper = prediction * factor, interval.lower * factor, interval.upper * factor
        measures = {
            "rmse": metrics.rmse(y * factor, inside),
            "width": metrics.average_width(lower, upper),
            "constant_width": metrics.constant_width(y * factor, inside, reached),
            "interval_score": metrics.interval_score(y * factor, lower, upper, COVERAGE),
        }
        line[unit] = {name: np.asarray(values).tolist() for name, values in measures.items()}
        if joint is not None:
            line["joint"]["width"][unit] = (joint.width * factor).mean(axis=0).tolist()
    return line


def examples(test: BoxedImages, prediction: Array, interval: PredictionInterval) -> Line:
    """The images of Figure 5, chosen by rule: the narrowest, the middle and the widest intervals.

    Images stand in the order of their width, the mean over x, y, w and h in per cent of the image's side; equal ones
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
