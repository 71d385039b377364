"""What is left of trained jobs as nodes of a graph: a prediction and how far its interval reaches, in the user's units.

The arithmetic is that of `Ensemble` and `Voices`; an export is compared with them before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.baselines.laws import SMALLEST_SIGMA as SMALLEST_SIGMA_OF_LAW
from coverwell.baselines.laws import NormalLaw, QuantileLaw
from coverwell.baselines.voices import Voices
from coverwell.ensemble import FARTHEST, Ensemble
from coverwell.export.graph import LAST, Graph, Value
from coverwell.export.networks import outputs_of
from coverwell.held_out import Speaker
from coverwell.inputs.mirroring import Mirroring
from coverwell.inputs.scaling import InputScaler, TargetScaler
from coverwell.intervals import z_score
from coverwell.matching import SMALLEST_SIGMA, IQRFit, SigmaFit, Unmatched

__all__ = ["Spoken", "spoken_by"]

Array = NDArray[np.float64]

MOST_NUMBERS = 2**27  # of all networks of a speaker: half a gigabyte in float32, and a file may have two


@dataclass(frozen=True)
class Spoken:
    """An estimate in a graph: mean (row, target) and reach (row, target, side, level)."""

    mean: Value
    reach: Value


def spoken_by(graph: Graph, speaker: Speaker, views: Sequence[Value], precision: Any) -> Spoken:
    """What a speaker says about rows (row, ...) in float64; of pictures that have mirror images, about both views."""
    if isinstance(speaker, Ensemble):
        return _ensemble(graph, speaker, views, precision)
    if isinstance(speaker, Voices):
        return _voices(graph, speaker, views, precision)
    raise TypeError(f"only our own estimators can be exported, got what a {type(speaker).__name__} says")


def _ensemble(graph: Graph, ensemble: Ensemble, views: Sequence[Value], precision: Any) -> Spoken:
    matching, levels = ensemble.matching, np.array(ensemble.coverage)
    if type(matching) not in (SigmaFit, IQRFit, Unmatched):
        raise ValueError(
            f"a model with a matching of your own cannot be exported, got {type(matching).__name__}; fit with "
            "matching='sigma', 'iqr' or None"
        )
    n_targets, row_shape = len(ensemble.scale), ensemble.inputs.shape
    scaled = [_scaled(graph, ensemble.inputs, view) for view in views]
    of_mean = [outputs_of(graph, ensemble.mean_team, x, row_shape, precision) for x in scaled]
    means = [graph.mean(graph.sliced(outputs, 0, n_targets, axis=2), [0]) for outputs in of_mean]
    of_interval = outputs_of(graph, ensemble.interval_team, scaled[0], row_shape, precision)
    reach = _reach(graph, of_interval, levels, ensemble.scale)
    if ensemble.both and isinstance(matching, SigmaFit):
        sigma = _sigma(graph, graph.sliced(of_mean[0], n_targets, LAST, axis=2), SMALLEST_SIGMA)
        reach = _shaped_by_both(graph, reach, _normal_reach(graph, sigma, levels))
    return _in_units(graph, means, graph.mean(reach, [0]), ensemble.targets, ensemble.mirroring)


def _voices(graph: Graph, voices: Voices, views: Sequence[Value], precision: Any) -> Spoken:
    teams = _speaking(voices)
    scaled = [_scaled(graph, voices.inputs, view) for view in views]
    read = _LAWS[type(voices.law)]
    said = []
    for x in scaled:
        outputs = [outputs_of(graph, team, x, voices.inputs.shape, precision) for team in teams]
        said.append(read(graph, graph.concatenated(outputs, axis=0), voices))
    means = [mean for mean, _ in said]
    return _in_units(graph, means, said[0][1], voices.targets, voices.mirroring)


def _speaking(voices: Voices) -> list[Any]:
    """All networks that speak: of random ones the samples that always do."""
    teams, n_numbers = [], 0
    for team in voices._speaking():
        teams.append(team)
        n_numbers += sum(weight.numel() for weight in team.state_dict().values())
        if n_numbers > MOST_NUMBERS:
            raise ValueError(
                f"a model may be exported with up to {MOST_NUMBERS:,} weights, got more in the {voices.n_samples} "
                "samples of its networks; fit with a smaller n_samples, or a smaller network"
            )
    return teams


# From outputs to means and reaches -----------------------------------------------------------------------------------


def _normal_law(graph: Graph, outputs: Value, voices: Voices) -> tuple[Value, Value]:
    """Mean and reach of the normal law with the moments of the voices' mixture."""
    n_targets = len(voices.targets.centre)
    means = graph.sliced(outputs, 0, n_targets, axis=2)
    sigmas = _sigma(graph, graph.sliced(outputs, n_targets, LAST, axis=2), SMALLEST_SIGMA_OF_LAW)
    centre = graph.mean(means, [0], keepdims=True)
    apart = graph.op("Sub", means, centre)
    variance = graph.mean(graph.op("Mul", apart, apart), [0], keepdims=True)
    noise = graph.mean(graph.op("Mul", sigmas, sigmas), [0], keepdims=True)
    sd = graph.op("Sqrt", graph.op("Add", variance, noise))
    reach = graph.op("Expand", _normal_reach(graph, sd, np.array(voices.coverage)), np.array([1, 1, 1, 2, 1]))
    return graph.op("Squeeze", centre, np.array([0])), graph.op("Squeeze", reach, np.array([0]))


def _quantile_law(graph: Graph, outputs: Value, voices: Voices) -> tuple[Value, Value]:
    """The averages of the voices' medians and of their reaches."""
    n_targets = len(voices.targets.centre)
    medians = graph.sliced(outputs, 0, n_targets, axis=2)
    increments = graph.sliced(outputs, n_targets, LAST, axis=2)
    reach = _reach(graph, increments, np.array(voices.coverage), np.ones(n_targets))
    return graph.mean(medians, [0]), graph.mean(reach, [0])


_LAWS: dict[type[Any], Callable[[Graph, Value, Voices], tuple[Value, Value]]] = {
    NormalLaw: _normal_law,
    QuantileLaw: _quantile_law,
}


def _sigma(graph: Graph, raw: Value, smallest: float) -> Value:
    return graph.op("Add", graph.softplus(raw), np.float64(smallest))


def _normal_reach(graph: Graph, sigma: Value, levels: Array) -> Value:
    """(member, row, target) -> (member, row, target, 1, level), the same on both sides."""
    by_level = graph.reshaped(sigma, 0, 0, 0, 1, 1)
    return graph.op("Mul", by_level, _z(levels))


def _reach(graph: Graph, outputs: Value, levels: Array, scale: Array) -> Value:
    """As `coverwell.algorithm.reach_of`: (member, row, output) -> (member, row, target, side, level)."""
    steps = np.diff(_z(levels), prepend=0.0)
    apart = graph.reshaped(outputs, 0, 0, len(scale), 2, len(levels))
    increments = graph.softplus(graph.op("Add", apart, np.log(np.expm1(steps))))
    return graph.op("Mul", graph.op("CumSum", increments, np.array(4)), scale[:, None, None])


def _shaped_by_both(graph: Graph, reach: Value, own: Value) -> Value:
    """The geometric mean of two reaches, F's own within a factor of I's."""
    least, most = (graph.op("Mul", reach, np.float64(bound)) for bound in (1 / FARTHEST, FARTHEST))
    held = graph.op("Min", graph.op("Max", own, least), most)
    return graph.op("Sqrt", graph.op("Mul", reach, held))


def _z(levels: Array) -> Array:
    scores: Array = z_score(torch.tensor(levels)).numpy()
    return scores


# Units ---------------------------------------------------------------------------------------------------------------


def _scaled(graph: Graph, inputs: Any, x: Value) -> Value:
    if not isinstance(inputs, InputScaler):
        return x
    bounded = graph.op("Min", graph.op("Max", x, inputs.low), inputs.high)
    return graph.op("Div", graph.op("Sub", bounded, inputs.centre), inputs.spread)


def _in_units(
    graph: Graph, means: Sequence[Value], reach: Value, targets: TargetScaler, mirroring: Mirroring
) -> Spoken:
    in_units = [graph.op("Add", graph.op("Mul", mean, targets.spread), targets.centre) for mean in means]
    reach = graph.op("Mul", reach, targets.spread[:, None, None])
    if mirroring.targets is None:
        return Spoken(in_units[0], reach)
    own, of_mirror = in_units
    if mirroring.targets == "boxes":  # x becomes 1 - x - width
        turned = np.array([[-1.0, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 1, 0], [0, 0, 0, 1]])
        of_mirror = graph.op("Add", graph.op("MatMul", of_mirror, turned), np.array([1.0, 0, 0, 0]))
    return Spoken(graph.op("Mul", graph.op("Add", own, of_mirror), np.float64(0.5)), reach)
