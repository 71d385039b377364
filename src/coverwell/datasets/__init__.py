"""Public data for experiments.

`load` gives any of the public data by its name. `load_table`, `load_series` and `load_images` give one kind each, under
the names in `names`, `series_names` and `image_names`.
"""

from coverwell.datasets.boxes import BoxedImages, BoxOutsideImageWarning, clip_boxes
from coverwell.datasets.by_name import load
from coverwell.datasets.image_files import ImageFile, ImageFileError, ImageFiles
from coverwell.datasets.images import image_names, load_images
from coverwell.datasets.series import Series, load_series, series_names
from coverwell.datasets.store import DatasetChecksumError, DatasetNotFoundError, PackagedDataWarning
from coverwell.datasets.tables import Dataset, load_table, names

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
    "image_names",
    "load",
    "load_images",
    "load_series",
    "load_table",
    "names",
    "series_names",
]
