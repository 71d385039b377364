"""Tables larger than memory: streamed through `fit` and `predict_interval`."""

from coverwell.inputs.parquet import TableFiles
from coverwell.streaming.fit import estimate_files, estimates_of_parts, fit_streamed

__all__ = ["TableFiles", "estimate_files", "estimates_of_parts", "fit_streamed"]
