"""Synthetic laws whose true intervals are known, and boxes cut at the edges of their images."""

from coverwell.datasets import synthetic
from coverwell.datasets.boxes import clip_boxes

__all__ = ["clip_boxes", "synthetic"]
