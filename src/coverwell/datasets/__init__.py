"""Public data for experiments, and synthetic laws whose true intervals are known."""

from coverwell.datasets import synthetic
from coverwell.datasets.images import (
    BoxedImages,
    BoxOutsideImageWarning,
    ImageFile,
    ImageFileError,
    ImageFiles,
    clip_boxes,
    load_images,
)
from coverwell.datasets.series import Series, load_series, series_names
from coverwell.datasets.store import DatasetChecksumError, DatasetNotFoundError, PackagedDataWarning
from coverwell.datasets.tables import Dataset, load, names

__all__ = [
    "BoxOutsideImageWarning",
    "BoxedImages",
    "Dataset",
    "DatasetChecksumError",
    "DatasetNotFoundError",
    "ImageFile",
    "ImageFileError",
    "ImageFiles",
    "PackagedDataWarning",
    "Series",
    "clip_boxes",
    "load",
    "load_images",
    "load_series",
    "names",
    "series_names",
    "synthetic",
]
