"""Calibrated bounds as nodes of a graph, each level containing the one inside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coverwell.export.graph import Graph, Value
from coverwell.export.speakers import Spoken
from coverwell.held_out import Stretch
from coverwell.metrics import coverage_rank

__all__ = ["bounds_in_graph", "centre_of", "stretched"]

Array = NDArray[np.float64]
Ends = tuple[Value, Value]

MOST_SCORES = 20_000  # of "cv+", all of which are compared for every row


def bounds_in_graph(
    graph: Graph, spoken: Sequence[Spoken], stretch: Stretch, levels: Sequence[float], *, joint: bool
) -> Ends:
    """Lower and upper bounds (row, target, level), as `Stretch.bounds` has them."""
    if stretch.scores is not None:
        scores = [part.max(axis=1, keepdims=True) if joint else part for part in stretch.scores]
        return _nested(graph, *_cv_plus(graph, spoken, scores, levels))
    factor = stretch.joint_factor if joint else stretch.factor
    assert factor is not None  # a stretch has either factors or scores
    return stretched(graph, spoken[0], factor)


def stretched(graph: Graph, spoken: Spoken, factor: Array) -> Ends:
    """Bounds whose reach is multiplied by a factor (target, level)."""
    below, above = (graph.op("Mul", _side(graph, spoken.reach, side), factor) for side in (0, 1))
    mean = graph.unsqueezed(spoken.mean, 2)
    return _nested(graph, graph.op("Sub", mean, below), graph.op("Add", mean, above), n_levels=factor.shape[1])


def _side(graph: Graph, reach: Value, side: int) -> Value:
    return graph.op("Gather", reach, np.array(side), axis=2)


def _nested(graph: Graph, lower: Value | list[Value], upper: Value | list[Value], n_levels: int = 1) -> Ends:
    """Each level at least as wide as the one before; levels are the last axis, or a list of their own."""
    lowers, uppers = (_apart(graph, ends, n_levels) for ends in (lower, upper))
    for level in range(1, len(lowers)):
        lowers[level] = graph.op("Min", lowers[level - 1], lowers[level])
        uppers[level] = graph.op("Max", uppers[level - 1], uppers[level])
    return graph.concatenated(lowers, axis=2), graph.concatenated(uppers, axis=2)


def _apart(graph: Graph, ends: Value | list[Value], n_levels: int) -> list[Value]:
    if isinstance(ends, list):
        return ends
    return [ends] if n_levels == 1 else [graph.sliced(ends, n, n + 1, axis=2) for n in range(n_levels)]


def _cv_plus(
    graph: Graph, spoken: Sequence[Spoken], scores: Sequence[Array], levels: Sequence[float]
) -> tuple[list[Value], list[Value]]:
    """As `coverwell.calibration.cv_plus_bounds`: ranks over every team's ends, stretched by the scores it left out."""
    n_scores = sum(map(len, scores))
    if n_scores > MOST_SCORES:
        raise ValueError(
            f"calibration='cv+' compares the scores of all training rows for every row; exported it may have up to "
            f"{MOST_SCORES:,}, got {n_scores:,}; fit with calibration='cross' or 'split', which need one factor"
        )
    centre = graph.unsqueezed(centre_of(graph, spoken), 2)
    lower, upper = [], []
    for place, level in enumerate(levels):
        n_beyond = np.array([n_scores - coverage_rank(level, n_scores) + 1])
        ends = [_all_ends(graph, said, part[..., place], place) for said, part in zip(spoken, scores, strict=True)]
        below, above = (graph.concatenated(side, axis=2) for side in zip(*ends, strict=True))  # (row, target, score)
        lowest = graph.ops("TopK", below, n_beyond, n_results=2, axis=2, largest=0)[0]
        highest = graph.ops("TopK", above, n_beyond, n_results=2, axis=2, largest=1)[0]
        last = int(n_beyond[0]) - 1
        lower.append(graph.op("Min", graph.sliced(lowest, last, last + 1, axis=2), centre))
        upper.append(graph.op("Max", graph.sliced(highest, last, last + 1, axis=2), centre))
    return lower, upper


def _all_ends(graph: Graph, said: Spoken, scores: Array, place: int) -> Ends:
    """Both ends of one level, (row, target, score): the reach stretched by every score (score, 1 or target)."""
    mean = graph.unsqueezed(said.mean, 2)
    below, above = (graph.sliced(_side(graph, said.reach, side), place, place + 1, axis=2) for side in (0, 1))
    by_target = scores.T
    return graph.op("Sub", mean, graph.op("Mul", below, by_target)), graph.op(
        "Add", mean, graph.op("Mul", above, by_target)
    )


def centre_of(graph: Graph, spoken: Sequence[Spoken]) -> Value:
    """The prediction (row, target): the average over the teams."""
    if len(spoken) == 1:
        return spoken[0].mean
    return graph.op("Mul", graph.op("Sum", *(said.mean for said in spoken)), np.float64(1 / len(spoken)))
