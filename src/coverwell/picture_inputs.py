"""Pictures as what an estimator is fitted on: which recipes take them, their files of weights, and X checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from coverwell.datasets.weights import imagenet_weights
from coverwell.networks.resnet import IMAGENET, ResNet18
from coverwell.networks.team import PictureNetwork
from coverwell.pictures import Pictures, pictures_of

__all__ = ["check_no_pictures", "checked_pictures", "picture_recipe", "with_file", "without_cache"]


def picture_recipe(network: Any) -> PictureNetwork | None:
    """What a user gave as a network, if it is a recipe for pictures."""
    return network if isinstance(network, PictureNetwork) and not isinstance(network, type) else None


def with_file(network: Any) -> Any:
    """A network whose weights are those of a file: "imagenet" is looked for, or fetched, here."""
    if isinstance(network, ResNet18):
        return replace(network, weights=imagenet_weights()) if network.weights == IMAGENET else network
    inner = getattr(network, "resnet", None)  # a random network is made of one
    return network if inner is None else replace(network, resnet=with_file(inner))


def without_cache(network: Any) -> Any:
    """A network that keeps no features: what a model has that may be opened elsewhere."""
    if isinstance(network, ResNet18):
        return replace(network, cache=None)
    return network


def checked_pictures(X: Any) -> Pictures:
    """What a user gave as pictures, not yet read."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        raise ValueError(
            f"the network takes pictures, but X is a table of the shape {X.shape}; give an array (picture, channel, "
            "height, width) or file paths, or a network for tables such as MLP()"
        )
    return pictures_of(X)


def check_no_pictures(X: Any) -> None:
    """Raise if X looks like pictures, where a table is needed."""
    if getattr(X, "ndim", None) == 4:
        raise ValueError(
            f"the network takes tables, but X has the shape {tuple(X.shape)}, as pictures have; give "
            "network=ResNet18(...) for pictures, or a table (row, feature)"
        )
