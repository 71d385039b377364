"""A forecaster as a graph: from the last steps of a series, and what is known beside them, to the next steps.

A row is a moment: several may be asked about at once. The live factors are those of the export.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import Estimate
from coverwell.export.bounds import stretched
from coverwell.export.calendar import Moments, seconds_by_the_clock
from coverwell.export.drafts import Draft, Outputs, spoiled
from coverwell.export.graph import LAST, Graph, Input, Value
from coverwell.export.speakers import Spoken, spoken_by
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.learning import forecast
from coverwell.intervals import widen_outwards
from coverwell.scaling import ExtrapolationWarning

__all__ = ["draft_of_series"]

Array = NDArray[np.float64]

N_EXAMPLES = 8
HARMONICS = {"hour": 3, "month": 1}  # waves of the day and of the year


def draft_of_series(model: SeriesForecaster, precision: Any) -> Draft:
    graph, live = Graph(), _live_factor(model)
    inputs = _inputs(model)
    given = {entry.name: graph.input(entry) for entry in inputs}
    values = _filled(graph, given, model) if "before" in given else given["values"]
    rows = graph.concatenated([_window(graph, model, given, values), *_ahead(graph, model, given)], axis=1)
    (speaker,), factor = model.regressor_.ensembles_, model.regressor_.factor_
    assert factor is not None  # a single team has factors
    spoken = spoken_by(graph, speaker, [rows], precision)
    mean = graph.op("Add", spoken.mean, _last(graph, values, model)) if model.windows_.differences else spoken.mean
    ends = stretched(graph, Spoken(mean, spoken.reach), factor * live)
    sizes = live.shape
    outputs: Outputs = {"prediction": (mean, sizes[:1]), "lower": (ends[0], sizes), "upper": (ends[1], sizes)}
    examples, expected = _examples(model, live)
    return Draft(
        graph,
        spoiled(graph, outputs, graph.nan_unless_finite(rows, 2)),
        _told(model, live),
        {entry.name: examples[entry.name] for entry in inputs},
        lambda _: expected,
        speaker.targets.spread,
    )


def _inputs(model: SeriesForecaster) -> list[Input]:
    windows, history = model.windows_, model.history_
    gaps = "; NaN is a gap" if model.missing == "fill" else ""
    inputs = [Input("values", np.float64, (windows.n_past,), f"the last {windows.n_past} values, latest last{gaps}")]
    if model.missing == "fill":
        about = "the last value that was observed before those, for a gap at their beginning; else it may be NaN"
        inputs.append(Input("before", np.float64, (1,), about))
    if history.past_names:
        sizes = (windows.n_past, len(history.past_names))
        inputs.append(Input("past_covariates", np.float64, sizes, "of the same steps, in the order of their names"))
    if history.calendar:
        about = f"when the next steps begin: {seconds_by_the_clock(_zone(model))}"
        inputs.append(Input("times", np.float64, (windows.horizon,), about))
    if history.ahead_names:
        sizes = (windows.horizon, len(history.ahead_names))
        inputs.append(Input("covariates", np.float64, sizes, "of the next steps, in the order of their names"))
    return inputs


def _zone(model: SeriesForecaster) -> str | None:
    return model.history_.clock.tz


def _live_factor(model: SeriesForecaster) -> Array:
    """By how much live calibration stretches the next intervals, (step, level)."""
    shape = (model.windows_.horizon, len(model.regressor_._fitted_levels))
    return np.asarray(model.calibrator_.factor, dtype=np.float64).reshape(shape) if model.live else np.ones(shape)


# Rows ----------------------------------------------------------------------------------------------------------------


def _filled(graph: Graph, given: dict[str, Value], model: SeriesForecaster) -> Value:
    """Gaps filled by the value before them: by that of 1 step before, then of 2, 4, ... in what has been filled."""
    filled, distance = graph.concatenated([given["before"], given["values"]], axis=1), 1
    while distance <= model.windows_.n_past:
        parts = [graph.sliced(filled, 0, end, axis=1) for end in (distance, -distance)]
        earlier = graph.concatenated(parts, axis=1)  # the first have none before them
        filled = graph.op("Where", graph.op("IsNaN", filled), earlier, filled)
        distance *= 2
    return graph.sliced(filled, 1, LAST, axis=1)


def _window(graph: Graph, model: SeriesForecaster, given: dict[str, Value], values: Value) -> Value:
    """The last steps, channel by channel within each step: (row, step * channel)."""
    windows = model.windows_
    channels = [values]
    if windows.differences:
        before = [graph.sliced(values, 0, 1, axis=1), graph.sliced(values, 0, windows.n_past - 1, axis=1)]
        channels.append(graph.op("Sub", values, graph.concatenated(before, axis=1)))
    if windows.flags:
        channels.append(graph.cast(graph.op("IsNaN", given["values"]), np.float64))
    parts = [graph.unsqueezed(channel, 2) for channel in channels]
    parts += [given["past_covariates"]] if windows.n_past_covariates else []
    return graph.reshaped(graph.concatenated(parts, axis=2), 0, windows.n_past * windows.channels)


def _ahead(graph: Graph, model: SeriesForecaster, given: dict[str, Value]) -> list[Value]:
    """What is known about the next steps, step by step: (row, step * covariate)."""
    parts = []
    if model.history_.calendar:
        moments = Moments(graph, graph.op("Floor", given["times"]))
        parts = [feature for name in model.history_.calendar for feature in _calendar(graph, moments, name)]
    parts += [given["covariates"]] if model.history_.ahead_names else []
    if not parts:
        return []
    return [graph.reshaped(graph.concatenated(parts, axis=2), 0, model.windows_.horizon * model.windows_.n_known)]


def _calendar(graph: Graph, moments: Moments, name: str) -> list[Value]:
    """The features of a calendar name, each (row, step, 1) or (row, step, day)."""
    if name == "weekday":
        day = graph.unsqueezed(moments.weekday(), 2)
        return [graph.cast(graph.op("Equal", day, np.arange(7.0)), np.float64)]
    phase = moments.phase_of_day() if name == "hour" else moments.phase_of_year()
    waves = [wave for harmonic in range(1, HARMONICS[name] + 1) for wave in moments.waves(phase, harmonic)]
    return [graph.unsqueezed(wave, 2) for wave in waves]


def _last(graph: Graph, values: Value, model: SeriesForecaster) -> Value:
    return graph.sliced(values, model.windows_.n_past - 1, model.windows_.n_past, axis=1)


# What is told, and checked -------------------------------------------------------------------------------------------


def _told(model: SeriesForecaster, live: Array) -> dict[str, Any]:
    history = model.history_
    return {
        "kind": "series",
        "series": history.name,
        "past": model.windows_.n_past,
        "horizon": model.windows_.horizon,
        "step": history.clock.step_in_words(),
        "zone": _zone(model),
        "past_covariates": list(history.past_names),
        "covariates": list(history.ahead_names),
        "calendar": list(history.calendar),
        "latest_step": history.clock.label(len(history) - 1),
        "live_factor": live.tolist() if model.live else None,
    }


def _examples(model: SeriesForecaster, live: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Moments of the series that has been seen, and what the forecaster says there with the present factors."""
    windows, history = model.windows_, model.history_
    end = len(history) if history.n_known is None else min(len(history), history.n_known - windows.horizon)
    origins = np.arange(windows.n_past - 1, end)[-N_EXAMPLES:]  # the latest about which all is known
    steps = origins[:, None] + np.arange(1 - windows.n_past, 1)
    next_steps = origins[:, None] + np.arange(1, windows.horizon + 1)
    examples = {"values": history.values[steps], "past_covariates": history.past[steps]}
    examples["before"] = np.concatenate([[np.nan], history.filled])[steps[:, :1]]
    if history.ahead_names:
        examples["covariates"] = history.ahead[next_steps]
    if history.calendar:
        times = history.clock.times(0, len(history) + windows.horizon).astype("datetime64[s]").astype(np.float64)
        examples["times"] = times[next_steps]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        mean, half_width = forecast(model.regressor_, windows, history, origins)
    lower, upper = widen_outwards(*Estimate(mean, half_width).bounds(live))
    return examples, {"prediction": mean, "lower": lower, "upper": upper}
