"""Public data for experiments, and synthetic laws whose true intervals are known."""

from coverwell.datasets import synthetic
from coverwell.datasets.series import Series, load_series, series_names
from coverwell.datasets.store import DatasetChecksumError, DatasetNotFoundError, PackagedDataWarning
from coverwell.datasets.tables import Dataset, load, names

__all__ = [
    "Dataset",
    "DatasetChecksumError",
    "DatasetNotFoundError",
    "PackagedDataWarning",
    "Series",
    "load",
    "load_series",
    "names",
    "series_names",
    "synthetic",
]
