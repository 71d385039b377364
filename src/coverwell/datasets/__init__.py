"""Synthetic laws whose true intervals are known, boxes cut at the edges of their images, and ImageNet's weights."""

from coverwell.datasets import synthetic
from coverwell.datasets.boxes import BoxOutsideImageWarning, clip_boxes
from coverwell.datasets.store import DatasetChecksumError, DatasetNotFoundError
from coverwell.datasets.weights import imagenet_weights

__all__ = [
    "BoxOutsideImageWarning",
    "DatasetChecksumError",
    "DatasetNotFoundError",
    "clip_boxes",
    "imagenet_weights",
    "synthetic",
]
