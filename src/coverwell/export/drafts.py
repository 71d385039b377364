"""What an export is made of before it is written, whatever the model is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.export.bounds import bounds_in_graph, centre_of
from coverwell.export.graph import Graph, Value
from coverwell.export.speakers import Spoken

__all__ = ["Draft", "Outputs", "expected_of", "has_joint_bounds", "outputs_of_regressor", "promise_of", "spoiled"]

Array = NDArray[np.float64]
Outputs = dict[str, tuple[Value, Sequence[int]]]

# What each calibration promises, of new rows like those of the training and on average over them.
PROMISES = {
    "cross": "near the asked share of new rows as measured, without a theorem: ranks of rows that networks left out",
    "cv+": "at least 2p - 1 of new rows at the level p, less a small term, if rows are exchangeable: ranks of all rows",
    "split": "at least the asked share of new rows on average, if rows are exchangeable: ranks of rows kept apart",
    None: "nothing: widths are as the networks learned them",
}


@dataclass(frozen=True)
class Draft:
    """A graph with its outputs, what the metadata tell of it, and by what it is checked.

    Attributes
    ----------
    examples : dict of arrays
        The inputs of a few rows.
    expected : function
        From what the graph has `between` its inputs and outputs for the examples to what the model says about them.
    unit : array (target,)
        The spread of each target, in which differences are judged.
    """

    graph: Graph
    outputs: Outputs
    told: dict[str, Any]
    examples: dict[str, NDArray[Any]]
    expected: Callable[[dict[str, Array]], dict[str, Array]]
    unit: Array
    between: Outputs = field(default_factory=dict)


def outputs_of_regressor(graph: Graph, model: IntervalRegressor, spoken: Sequence[Spoken]) -> Outputs:
    """The prediction and bounds of a regressor; for several targets also of boxes for all of them together."""
    n_targets, n_levels = len(model.target_names_), len(model._fitted_levels)
    outputs: Outputs = {"prediction": (centre_of(graph, spoken), (n_targets,))}
    for joint in (False, True) if has_joint_bounds(model) else (False,):
        prefix = "joint_" if joint else ""
        ends = bounds_in_graph(graph, spoken, model._stretch, model._fitted_levels, joint=joint)
        for name, end in zip(("lower", "upper"), ends, strict=True):
            outputs[prefix + name] = end, (n_targets, n_levels)
    return outputs


def expected_of(model: IntervalRegressor, rows: NDArray[Any]) -> dict[str, Array]:
    """What a regressor says about rows as its networks are given them, by the names of the outputs."""
    estimates = [ensemble.estimate(rows, torch.device("cpu")) for ensemble in model.ensembles_]
    expected = {"prediction": np.mean([estimate.mean for estimate in estimates], axis=0)}
    for joint in (False, True) if has_joint_bounds(model) else (False,):
        ends = model._stretch.bounds(estimates, model._fitted_levels, joint=joint)
        expected |= {
            ("joint_" if joint else "") + name: end for name, end in zip(("lower", "upper"), ends, strict=True)
        }
    return expected


def has_joint_bounds(model: IntervalRegressor) -> bool:
    """Whether there are several targets, and ranks over all of them together."""
    return len(model.target_names_) > 1 and (model.scores_ is not None or model.joint_factor_ is not None)


def promise_of(calibration: str | None) -> str:
    return PROMISES[calibration]


def spoiled(graph: Graph, outputs: Outputs, by: Value) -> Outputs:
    """Outputs that are NaN in rows where a number of the input cannot be used; `by` is 0 or NaN, (row, 1)."""
    return {
        name: (graph.op("Add", value, by if len(sizes) == 1 else graph.unsqueezed(by, 2)), sizes)
        for name, (value, sizes) in outputs.items()
    }
