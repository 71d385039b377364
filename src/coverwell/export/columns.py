"""Raw columns as the numbers of one matrix, and the features of each kind of column as nodes of a graph.

Numbers are themselves, booleans 0 and 1, categories the place of their level in the list of the metadata (any other
number, such as -1, is a level that is not known), times seconds since 1970 by the local clock. NaN is a missing value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.export.calendar import SECONDS_OF_DAY, Moments, seconds_by_the_clock
from coverwell.export.graph import Graph, Value
from coverwell.inputs.column_kinds import ITSELF, MISSING, OTHER, WEEKDAYS, Booleans, Categories, Kind, Numbers, Times
from coverwell.inputs.columns import Column, Columns
from coverwell.inputs.frames import Values

__all__ = ["features_from_codes", "features_in_graph", "told"]

Array = NDArray[np.float64]
Features = dict[str, Value]


def features_in_graph(graph: Graph, columns: Columns, x: Value) -> Value:
    """The features (row, feature) of raw columns (row, column); numbers that stand side by side are filled at once."""
    features = []
    for alone, run in groupby(enumerate(columns.columns), key=lambda entry: _is_filled_alone(entry[1])):
        places, named = zip(*run, strict=True)
        if alone:
            raw = graph.sliced(x, places[0], places[-1] + 1, axis=1)
            features.append(_filled(graph, [column.kind for column in named], raw))
            continue
        for place, column in zip(places, named, strict=True):
            made = _MAKERS[type(column.kind)](graph, column.kind, graph.sliced(x, place, place + 1, axis=1))
            features += [made[part] for part in column.kept]
    return graph.concatenated(features, axis=1)


def _is_filled_alone(column: Column) -> bool:
    """Whether a column gives its number and nothing beside it."""
    return isinstance(column.kind, Numbers | Booleans) and column.kept == (ITSELF,)


def _filled(graph: Graph, kinds: Sequence[Numbers | Booleans], raw: Value) -> Value:
    """Columns (row, kind) with the usual value of each where none is."""
    usual = [kind.median if isinstance(kind, Numbers) else float(kind.usual) for kind in kinds]
    return graph.op("Where", graph.op("IsNaN", raw), np.array(usual), raw)


def _of_numbers(graph: Graph, kind: Numbers | Booleans, raw: Value) -> Features:
    return {ITSELF: _filled(graph, [kind], raw), MISSING: graph.cast(graph.op("IsNaN", raw), np.float64)}


def _of_categories(graph: Graph, kind: Categories, raw: Value) -> Features:
    missing = graph.cast(graph.op("IsNaN", raw), np.float64)
    flags = graph.cast(graph.op("Equal", raw, np.arange(len(kind.levels), dtype=np.float64)[None]), np.float64)
    known = {f"={level}": graph.sliced(flags, n, n + 1, axis=1) for n, level in enumerate(kind.levels)}
    is_one_of_them = graph.op("ReduceSum", flags, np.array([1]), keepdims=1)
    other = graph.op("Sub", np.float64(1), graph.op("Add", is_one_of_them, missing))
    return {**known, OTHER: other, MISSING: missing}


def _of_times(graph: Graph, kind: Times, raw: Value) -> Features:
    missing = graph.op("IsNaN", raw)
    seconds = graph.op("Where", missing, np.float64(_seconds(np.datetime64(kind.median, "us"))), raw)
    moments = Moments(graph, seconds)
    month, hour = moments.waves(moments.phase_of_year()), moments.waves(moments.phase_of_day())
    weekday = graph.op("Equal", moments.weekday(), np.arange(7.0)[None])
    flags = graph.cast(weekday, np.float64)
    calendar = {
        "year": moments.year(),
        **dict(zip(("month sin", "month cos"), month, strict=True)),
        **dict(zip(("hour sin", "hour cos"), hour, strict=True)),
        **{name: graph.sliced(flags, n, n + 1, axis=1) for n, name in enumerate(WEEKDAYS)},
    }
    named = {f" ({part})": feature for part, feature in calendar.items()}
    return {ITSELF: moments.days(), **named, MISSING: graph.cast(missing, np.float64)}


_MAKERS: dict[type[Kind], Callable[[Graph, Any, Value], Features]] = {
    Numbers: _of_numbers,
    Booleans: _of_numbers,
    Categories: _of_categories,
    Times: _of_times,
}


def told(column: Column) -> dict[str, Any]:
    """How a raw column is written as numbers, for whoever fills the matrix."""
    kind = column.kind
    entry: dict[str, Any] = {"name": column.name, "kind": kind.name, "missing": "NaN"}
    if isinstance(kind, Categories):
        return {**entry, "codes": {level: code for code, level in enumerate(kind.levels)}, "unknown": -1}
    if isinstance(kind, Booleans):
        return {**entry, "codes": {"false": 0, "true": 1}}
    if isinstance(kind, Times):
        return {**entry, "unit": seconds_by_the_clock(kind.zone)}
    return entry


def features_from_codes(columns: Columns, raw: Array) -> Array:
    """The features of raw columns (row, column) as the model itself makes them: what a graph is checked against."""
    features = [f for column, codes in zip(columns.columns, raw.T, strict=True) for f in _model_features(column, codes)]
    return np.stack(features, axis=1)


def _model_features(column: Column, codes: Array) -> list[Array]:
    missing, kind = np.isnan(codes), column.kind
    numbers = np.where(missing, 0.0, codes)
    values: NDArray[Any] = numbers
    if isinstance(kind, Categories):
        unknown = "".join(kind.levels) + "?"  # longer than any level
        levels = np.array([*kind.levels, unknown], dtype=object)
        values = levels[np.where((numbers >= 0) & (numbers < len(kind.levels)), numbers, -1).astype(np.int64)]
    elif isinstance(kind, Times):
        values = (numbers * 1e6).round().astype(np.int64).astype("datetime64[us]")
    return column.features(Values(kind.name, values, missing))


def example_rows(columns: Columns, centre: Array, spread: Array, rng: np.random.Generator, n_rows: int) -> Array:
    """Raw rows near those of the training, some values missing; centre and spread are those of the features."""
    place_of = {name: place for place, name in enumerate(columns.feature_names)}
    raw = np.empty((n_rows, len(columns.columns)))
    for number, column in enumerate(columns.columns):
        own = place_of.get(column.name + ITSELF)
        normal = rng.normal(size=n_rows)
        if isinstance(column.kind, Categories):
            raw[:, number] = rng.integers(-1, len(column.kind.levels), n_rows)
        elif isinstance(column.kind, Booleans):
            raw[:, number] = rng.integers(0, 2, n_rows)
        elif isinstance(column.kind, Times):
            days = normal * 1000 if own is None else centre[own] + spread[own] * normal
            raw[:, number] = np.floor(days * SECONDS_OF_DAY)
        else:
            raw[:, number] = normal if own is None else centre[own] + spread[own] * normal
    raw[rng.random(raw.shape) < 0.1] = np.nan
    return raw


def _seconds(moment: np.datetime64) -> float:
    return float(moment.astype("datetime64[us]").astype(np.int64) / 1e6)
