"""Tables larger than memory: streamed through `fit` and `predict_interval`."""

from coverwell.streaming.predictions import estimate_files, estimates_of_parts
from coverwell.streaming.streamed_fit import fit_streamed
from coverwell.streaming.table_parts import TableFiles

__all__ = ["TableFiles", "estimate_files", "estimates_of_parts", "fit_streamed"]
