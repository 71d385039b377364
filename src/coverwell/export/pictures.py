"""A regressor on pictures as a graph: the frozen layers, the mirror image where there is one, and the trained tails."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.export.drafts import Draft, expected_of, outputs_of_regressor, spoiled
from coverwell.export.graph import LAST, Graph, Input
from coverwell.export.networks import trunk_features
from coverwell.export.speakers import spoken_by
from coverwell.features import features_of

__all__ = ["draft_of_pictures"]

N_EXAMPLES, SEED = 2, 0
FEATURE_ROUNDING = 2.0**-10  # the distance of two neighbouring numbers in float16
WIDTH = 3  # the axis of (row, channel, height, width)


def draft_of_pictures(model: IntervalRegressor, precision: Any) -> Draft:
    graph, size, n_views = Graph(), model.picture_size_, model.ensembles_[0].mirroring.n_views
    about = f"RGB in [0, 1], squeezed to {size} x {size} (bilinear, with antialiasing), whatever the sides were"
    x = graph.input(Input("X", np.float32, (3, size, size), about))
    views = [x, graph.sliced(x, -1, -LAST, axis=WIDTH, step=-1)][:n_views]
    features = [trunk_features(graph, model.trunk_, view, size) for view in views]
    spoken = [spoken_by(graph, speaker, features, precision) for speaker in model.ensembles_]
    outputs = spoiled(graph, outputs_of_regressor(graph, model, spoken), graph.nan_unless_finite(x, 4))
    examples = np.random.default_rng(SEED).random((N_EXAMPLES, 3, size, size), dtype=np.float32)
    shape = model.ensembles_[0].inputs.shape
    return Draft(
        graph,
        outputs,
        {"kind": "pictures", "size": size, "mirror": model.ensembles_[0].mirroring.targets},
        {"X": examples},
        partial(_expected, model, examples),
        model.ensembles_[0].targets.spread,
        between={f"view_{n}": (graph.cast(view, np.float64), shape) for n, view in enumerate(features)},
    )


def _expected(model: IntervalRegressor, examples: NDArray[Any], between: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What the model says about the graph's own features, after these were found to be the model's.

    Features are kept in float16. One that lies between two such numbers is rounded up by one way to compute it and down
    by the other: a thousandth of the feature, which would hide an error of the layers behind it.
    """
    n_views = len(between)
    own = features_of(examples, model.trunk_, size=model.picture_size_, mirrored=n_views > 1, device="cpu")
    features = np.stack([between[f"view_{n}"] for n in range(n_views)], axis=1).reshape(own.shape)
    typical = np.sqrt(np.mean(np.square(own, dtype=np.float64)))
    largest = float(np.max(np.abs(features - own) / (np.abs(own, dtype=np.float64) + typical)))
    if not largest <= FEATURE_ROUNDING:
        raise ValueError(
            f"the exported trunk must give the model's features within {FEATURE_ROUNDING:g} of their size, but they "
            f"lie {largest:.2g} apart; nothing was written"
        )
    return expected_of(model, features.astype(own.dtype))
