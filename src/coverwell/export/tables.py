"""A regressor on tables as a graph: from raw columns, written as numbers, to predictions and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.export.columns import example_rows, features_from_codes, features_in_graph, told
from coverwell.export.drafts import Draft, expected_of, outputs_of_regressor, spoiled
from coverwell.export.graph import Graph, Input
from coverwell.export.speakers import spoken_by
from coverwell.inputs.scaling import InputScaler

__all__ = ["draft_of_table"]

Array = NDArray[np.float64]

N_EXAMPLES, SEED = 64, 0


def draft_of_table(model: IntervalRegressor, precision: Any) -> Draft:
    graph, columns = Graph(), model.source_.columns
    n_columns = int(model.n_features_in_) if columns is None else len(columns.columns)
    x = graph.input(Input("X", np.float64, (n_columns,), "one column per raw column, in the order of `columns`"))
    features = x if columns is None else features_in_graph(graph, columns, x)
    spoken = [spoken_by(graph, speaker, [features], precision) for speaker in model.ensembles_]
    outputs = spoiled(graph, outputs_of_regressor(graph, model, spoken), graph.nan_unless_finite(features, 2))
    raw = _examples(model)
    rows = raw if columns is None else features_from_codes(columns, raw)
    return Draft(
        graph,
        outputs,
        {"kind": "table", "columns": _columns_told(model)},
        {"X": raw},
        lambda _: expected_of(model, rows),
        model.ensembles_[0].targets.spread,
    )


def _columns_told(model: IntervalRegressor) -> list[dict[str, Any]]:
    if model.source_.columns is not None:
        return [told(column) for column in model.source_.columns.columns]
    names = getattr(model, "feature_names_in_", [f"column {number}" for number in range(model.n_features_in_)])
    return [{"name": str(name), "kind": "numbers"} for name in names]


def _examples(model: IntervalRegressor) -> Array:
    """Rows near those of the training."""
    rng, inputs = np.random.default_rng(SEED), model.ensembles_[0].inputs
    assert isinstance(inputs, InputScaler)  # tables are scaled
    if model.source_.columns is not None:
        return example_rows(model.source_.columns, inputs.centre, inputs.spread, rng, N_EXAMPLES)
    rows: Array = inputs.centre + inputs.spread * rng.normal(size=(N_EXAMPLES, len(inputs.centre)))
    return rows
