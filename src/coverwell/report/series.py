"""Sections on a series: stretches of its forecasts, and coverage through time."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from coverwell import metrics
from coverwell.description import ModelDescription
from coverwell.evaluation import Outcome, View
from coverwell.plots.charts import draw_forecast, draw_rolling_coverage
from coverwell.plots.grammar import Axis, Chart, Mark, Tip, shortened
from coverwell.prediction import PredictionInterval
from coverwell.report.page import Block, Choice, Graph, Section, prose
from coverwell.report.words import as_text, when

STRETCH, MOST_WINDOW, MOST_WINDOWS_DRAWN = 150, 500, 400  # values
STRETCHES = ("the worst stretch", "the beginning", "the end")
PERIODS, ONE_IN_TWENTY = 200, 0.05  # that are simulated, and what the worst of them is taken to be


def bands(outcome: Outcome, model: ModelDescription) -> Section | None:
    """The forecasts of three stretches of the period, with the observed values."""
    if outcome.times is None:
        return None
    blocks: list[Block] = []
    for view in outcome.views:
        n = min(STRETCH, len(view.y))
        for place, first in enumerate((worst_stretch(view, n)[0], 0, len(view.y) - n)):
            rows = slice(first, first + n)
            about = {"stretch": STRETCHES[place], "n": n, "n_inside": int(view.inside[rows].sum()), "asked": view.asked}
            caption = prose("bands", first=time_of(view, first), last=time_of(view, first + n - 1), **about)
            blocks.append(Graph(_stretch(view, rows), caption, {**when(view), "stretch": place}))
    return Section("bands", blocks, Choice("stretch", "Period", STRETCHES), lead={"live": model.live})


def _stretch(view: View, rows: slice) -> Chart:
    def interval(of: View) -> PredictionInterval:
        return PredictionInterval(of.lower[rows], of.upper[rows], coverage=view.asked)

    static = None if view.static is None else interval(view.static)
    known: dict[str, Any] = {"prediction": view.prediction[rows], "y": view.y[rows], "static": static}
    chart = draw_forecast.chart(view.times[rows], interval(view), **known)
    return replace(chart, x=_titled(chart.x), y=Axis(shortened(view.name)))


def _titled(across: Axis) -> Axis:
    return replace(across, title=None if across.kind == "time" else "step")


def rolling(outcome: Outcome, model: ModelDescription) -> Section | None:
    """Coverage over a moving window."""
    if outcome.times is None:
        return None
    blocks: list[Block] = []
    for view in outcome.views:
        window = window_of(len(view.y))
        shares = metrics.rolling_coverage(view.inside, window)
        static = None if view.static is None else metrics.rolling_coverage(view.static.inside, window)
        drawn = np.round(np.linspace(0, len(shares) - 1, min(len(shares), MOST_WINDOWS_DRAWN))).astype(int)
        drawn = np.unique([*drawn, shares.argmin()])  # the lowest is always among them
        label = "reached" if static is None else "with live calibration"
        times = view.times[drawn + window - 1]
        chart = draw_rolling_coverage.chart(times, shares[drawn], asked=view.asked, label=label)
        asked, line = replace(chart.marks[0], label="asked"), chart.marks[1]
        chart = replace(chart, marks=[asked, line], x=_titled(chart.x), y=Axis("coverage of the window", "share"))
        if static is not None:
            marks = [asked, Mark("line", "time", "static", "", "other", "without it", dash="--"), line]
            table, tips = {**chart.table, "static": static[drawn]}, [*chart.tips, Tip("static", "without it", "share")]
            chart = replace(chart, table=table, marks=marks, tips=tips)
        blocks.append(Graph(chart, prose("rolling", window=window, shares=shares, static=static), when(view)))
    return Section("rolling", blocks)


def stretch_verdict(view: View) -> str:
    """The worst window of the period, beside what chance brings."""
    window = window_of(len(view.y))
    first, lowest = worst_stretch(view, window)
    by_chance = lowest_by_chance(view.asked, len(view.y), window)
    return prose("stretch_verdict", window=window, begins=time_of(view, first), lowest=lowest, by_chance=by_chance)


def time_of(view: View, place: int) -> str:
    """A date, or which step."""
    time = view.times[place]
    return as_text(time) if isinstance(time, np.datetime64) else f"step {time}"


def window_of(n_values: int) -> int:
    """How many values a moving window has: a quarter of them, 500 at most."""
    return max(1, min(MOST_WINDOW, n_values // 4))


def worst_stretch(view: View, n: int) -> tuple[int, float]:
    """Where the `n` consecutive values with the fewest inside begin, and their coverage; the first of equals."""
    shares = metrics.rolling_coverage(view.inside, n)
    return int(shares.argmin()), float(shares.min())


@functools.cache
def lowest_by_chance(asked: float, n_values: int, n: int) -> float:
    """The coverage that the worst `n` of so many values in a row falls below in one period of twenty.

    It holds if each value is inside with the asked probability, independently of the others, and is found by drawing
    periods: the windows overlap, so no plain formula gives it.
    """
    rng = np.random.default_rng(0)
    lowest = [metrics.rolling_coverage(rng.random(n_values) < asked, n).min() for _ in range(PERIODS)]
    return float(np.quantile(lowest, ONE_IN_TWENTY, method="lower"))
