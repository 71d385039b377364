"""Public data for experiments, and synthetic laws whose true intervals are known."""

from coverwell.datasets import synthetic
from coverwell.datasets.store import DatasetChecksumError, DatasetNotFoundError, PackagedDataWarning
from coverwell.datasets.tables import Dataset, load, names

__all__ = [
    "Dataset",
    "DatasetChecksumError",
    "DatasetNotFoundError",
    "PackagedDataWarning",
    "load",
    "names",
    "synthetic",
]
