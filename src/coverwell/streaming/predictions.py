"""Predictions and intervals for the rows of a table in files, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from coverwell.calibration import Estimate
from coverwell.streaming.table_parts import Part, TableFiles

__all__ = ["EstimatedPart", "estimate_files", "estimates_of_parts"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EstimatedPart:
    """What a model says about some rows, one estimate for each of its teams."""

    part: Part
    estimates: list[Estimate]


def estimates_of_parts(model: Any, files: TableFiles, **reading: Any) -> Iterator[EstimatedPart]:
    """What a fitted model says about all rows, in order: no more than a part of the table is in memory.

    Parameters
    ----------
    model : estimator
        A fitted one.
    files : TableFiles
        Files with the columns that it was fitted on.
    **reading
        What a kind of estimator takes beside the rows.
    """
    check_is_fitted(model)
    names = _features_in(model, files)
    named = hasattr(model, "feature_names_in_")
    for part in files.parts():
        frame = files.read(part, names)
        yield EstimatedPart(part, model._estimates(frame if named else frame.to_numpy(), **reading))


def estimate_files(model: Any, files: TableFiles, **reading: Any) -> list[Estimate]:
    """The same for all rows at once, one estimate for each team; memory for a mean and a reach per row is needed.

    Parameters
    ----------
    model : estimator
    files : TableFiles
    **reading
        As in `estimates_of_parts`.
    """
    by_part = [said.estimates for said in estimates_of_parts(model, files, **reading)]
    return [
        Estimate(np.concatenate([e.mean for e in team]), np.concatenate([e.reach for e in team]))
        for team in zip(*by_part, strict=True)
    ]


def _features_in(model: Any, files: TableFiles) -> list[str]:
    """The columns that the model was fitted on, all of which must be there."""
    fitted = getattr(model, "feature_names_in_", None)
    names = files.columns if fitted is None else [str(name) for name in fitted]
    files.check_has(names, "column that the model was fitted on:")
    return names
