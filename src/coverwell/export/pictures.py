"""A regressor on pictures as a graph: the frozen layers, the mirror image where there is one, and the trained tails."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.export.drafts import Draft, expected_of, outputs_of_regressor, spoiled
from coverwell.export.graph import LAST, Graph, Input, Value
from coverwell.export.networks import trunk_features
from coverwell.export.speakers import spoken_by
from coverwell.inputs.features import features_of
from coverwell.inputs.images import ROUNDING
from coverwell.inputs.source import ImageSource

__all__ = ["draft_of_pictures"]

N_EXAMPLES, SEED = 2, 0
LARGEST_FEATURE_DIFFERENCE = 1e-4  # before they are rounded, of a feature's size; float32 leaves some 1e-5
WIDTH = 3  # the axis of (row, channel, height, width)


def draft_of_pictures(model: IntervalRegressor, precision: Any) -> Draft:
    graph, source = Graph(), _source(model)
    size, n_views, trunk = source.size, source.mirroring.n_views, model.trunk_
    about = f"RGB in [0, 1], squeezed to {size} x {size} (bilinear, with antialiasing), whatever the sides were"
    x = graph.input(Input("X", np.float32, (3, size, size), about))
    pixels = graph.op("Clip", x, np.float32(0), np.float32(1))
    views = [pixels, graph.sliced(pixels, -1, -LAST, axis=WIDTH, step=-1)][:n_views]
    seen = [trunk_features(graph, trunk, view, size) for view in views]
    features = [graph.cast(graph.cast(view, np.float16), np.float32) for view in seen]  # as estimators keep them
    spoken = [spoken_by(graph, speaker, features, precision) for speaker in model.ensembles_]
    outputs = spoiled(graph, outputs_of_regressor(graph, model, spoken), _nan_unless_in_range(graph, x, pixels))
    examples = np.random.default_rng(SEED).random((N_EXAMPLES, 3, size, size), dtype=np.float32)
    shape = model.ensembles_[0].inputs.shape
    return Draft(
        graph,
        outputs,
        {"kind": "pictures", "size": size, "mirror": model.ensembles_[0].mirroring.targets},
        {"X": examples},
        partial(_expected, model, examples),
        model.ensembles_[0].targets.spread,
        between={f"view_{n}": (graph.cast(view, np.float64), shape) for n, view in enumerate(seen)},
    )


def _source(model: IntervalRegressor) -> ImageSource:
    assert isinstance(model.source_, ImageSource)
    return model.source_


def _nan_unless_in_range(graph: Graph, x: Value, pixels: Value) -> Value:
    """0 for a picture that the model takes, else NaN, (row, 1): one in 0 to 255 would have bounds like any other."""
    beyond = graph.op("Greater", graph.op("Abs", graph.op("Sub", x, pixels)), np.float32(ROUNDING))
    return graph.nan_unless_finite(graph.op("Where", beyond, np.float32(np.nan), x), 4)


def _expected(model: IntervalRegressor, examples: NDArray[Any], between: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What the model says about the graph's own features, after these were found to be the model's.

    Features are kept in float16. One that lies between two such numbers is rounded up by one way to compute it and down
    by the other, which would hide an error of the layers behind it. So they are compared before that.
    """
    n_views, size = len(between), _source(model).size
    own = features_of(examples, model.trunk_, size=size, mirrored=n_views > 1, device="cpu", dtype="float32")
    own = own.astype(np.float64)
    features = np.stack([between[f"view_{n}"] for n in range(n_views)], axis=1).reshape(own.shape)
    largest = float(np.max(np.abs(features - own) / (np.abs(own) + np.sqrt(np.mean(own**2)))))
    if not largest <= LARGEST_FEATURE_DIFFERENCE:
        raise ValueError(
            f"the exported trunk must give the model's features within {LARGEST_FEATURE_DIFFERENCE:g} of their size, "
            f"but they lie {largest:.2g} apart; nothing was written"
        )
    return expected_of(model, features.astype(np.float16))
