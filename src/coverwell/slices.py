"""Coverage in slices of the rows: by group, by quantile of numbers, by level of categories; the worst are named."""

from coverwell.evaluation import Slice, Slices, slices_of

__all__ = ["Slice", "Slices", "slices_of"]
