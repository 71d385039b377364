"""Photographs with boxes as the study of Table 3 reads them: the official split of CUB, a part of it, or made up."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell import datasets
from coverwell.datasets.boxes import InOriginalPixels
from coverwell.datasets.images import ARCHIVES
from coverwell.datasets.store import sha256_of
from coverwell.experiments.methods import one_of_each
from coverwell.networks.resnet import ResNet18Trunk
from coverwell.networks.weights import imagenet_weights

__all__ = [
    "CUB",
    "GENERATED",
    "RANDOM_WEIGHTS",
    "SMALL_SHARDS",
    "TARGETS",
    "BoxProblem",
    "BoxedPictures",
    "TrunkWeights",
    "box_problem",
    "data_name",
    "shards_from",
    "trunk_weights",
]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CUB, GENERATED = "cub", "generated pictures"
TARGETS = ("x", "y", "w", "h")  # left, top, width and height
SMALL_SHARDS = ("train-0", "test-0")
HALVES = ("train", "test")

# Pictures of our own making: enough for ranks at 0.95, which need 19, of half of those that train.
N_GENERATED = {"train": 40, "test": 20}
GENERATED_SIDE = 32
GENERATED_SIZES = ((400, 300), (300, 400))  # what their sides are said to be, so that pixels differ from fractions


@dataclass(frozen=True, eq=False)
class BoxedPictures(InOriginalPixels):
    """Pictures of one half of the split.

    Attributes
    ----------
    images : whatever `coverwell.inputs.images.images_of` takes
    boxes : array (picture, 4)
        Left, top, width and height in pixels of the original image.
    sizes : array (picture, 2)
        Width and height of the original image.
    image_ids : array (picture,)
    """

    images: Any
    boxes: Array
    sizes: Integers
    image_ids: Integers

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """Boxes to predict."""

    data: str
    train: BoxedPictures
    test: BoxedPictures


@cache
def box_problem(shards: tuple[str, ...] | None = None, *, generated: bool = False) -> BoxProblem:
    """CUB's official split, or those of its shards that are named, or pictures of our own making.

    Boxes past the edge of their photograph (30 of 11,788) are cut there.
    """
    if generated:
        return BoxProblem(GENERATED, _generated("train", seed=0), _generated("test", seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", datasets.BoxOutsideImageWarning)  # known, and said where results are shown
        cub = datasets.load_images(CUB, shards=shards)
    halves = [cub.take(cub.train), cub.take(~cub.train)]
    train, test = (BoxedPictures(half.images, half.boxes, half.sizes, half.image_ids) for half in halves)
    return BoxProblem(data_name(shards), train, test)


def data_name(shards: tuple[str, ...] | None = None, *, generated: bool = False) -> str:
    """What result lines call the pictures."""
    return GENERATED if generated else " ".join((CUB, *(shards or ())))


def shards_from(names: Sequence[str]) -> tuple[str, ...]:
    """The shards of these names, with at least one of either half of the split.

    Examples
    --------
    >>> shards_from(["test-0", "train-0"])
    ('train-0', 'test-0')
    """
    known = ARCHIVES[CUB].shards
    asked = one_of_each("shard", [name.strip().lower() for name in names])
    for name in asked:
        if name not in known:
            raise ValueError(f"a shard must be one of {', '.join(known)}; got {name!r}")
    for half in HALVES:
        if not any(name.startswith(half) for name in asked):
            raise ValueError(f"shards must have one to train on and one to test on, got no {half} shard")
    return tuple(name for name in known if name in asked)


@dataclass(frozen=True)
class TrunkWeights:
    """The file that a ResNet-18 starts from.

    Attributes
    ----------
    path : str or None
        None is random weights.
    name : str
        What result lines call it: the file's name and the first digits of its sha256.
    layer4 : bool
        Whether the file has layer 4; otherwise members start it fresh.
    """

    path: str | None
    name: str
    layer4: bool


RANDOM_WEIGHTS = TrunkWeights(path=None, name="random", layer4=False)


def trunk_weights(path: Path | None = None) -> TrunkWeights:
    """A file of weights, checked to be those of a ResNet-18; by default torchvision's, trained on ImageNet."""
    file = imagenet_weights() if path is None else path
    absent = ResNet18Trunk().load_weights(file)
    return TrunkWeights(str(file), f"{file.name} (sha256 {sha256_of(file)[:8]})", "layer4" not in absent)


# Pictures of our own making ------------------------------------------------------------------------------------------


def _generated(half: str, seed: int) -> BoxedPictures:
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
    return BoxedPictures(images, boxes, sizes, np.arange(1, n + 1, dtype=np.int64))
