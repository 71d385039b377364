"""Charts of a report: those of `coverwell.plots` for a view, and some that only a report has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell import metrics
from coverwell.evaluation import Outcome, View
from coverwell.plots.charts import (
    draw_calibration_curve,
    draw_forecast,
    draw_rolling_coverage,
    draw_rounds,
    split_points,
)
from coverwell.plots.grammar import SLICE, Axis, Chart, Mark, Tip, shortened
from coverwell.prediction import PredictionInterval
from coverwell.report.facts import Shift, row_number, time_of, window_of

Array = NDArray[np.float64]

MOST_WIDTHS, ROWS_PER_WIDTH = 10, 20  # bins of widths
NINE_OF_TEN = 1.6449  # standard errors to either side of a mean
MOST_WINDOWS_DRAWN = 400
MOST_POINTS = 3_000  # of all targets together
MOST_BINS, CENTRAL = 30, 0.99  # of residuals
Z_95 = float(norm.ppf(0.975))
CHOSEN = Mark("points", "asked", "value", label="the chosen level", marker="o", size=11.0, opacity=0.3, where="chosen")


def calibration_chart(view: View) -> Chart:
    """Coverage of a target against asked coverage, the level of the view marked."""
    outcome = view.outcome
    views = [outcome.view(view.target, level) for level in range(len(outcome.levels))]
    low, high = np.array([one.scores["band"] for one in views]).T
    band_label = "where nine of ten samples lie if the intervals are right"
    found = [one.scores["coverage"] for one in views]
    chart = draw_calibration_curve.chart(list(outcome.levels), found, band=(low, high), band_label=band_label)
    marks = [replace(mark, label="reached as asked") if mark.kind == "diagonal" else mark for mark in chart.marks]
    labels = "reached, inside the band", "reached, outside the band"
    marks += [CHOSEN, *split_points("asked", "value", "expected", labels=labels)]
    truths = {
        "expected": np.array([one.is_expected for one in views]),
        "chosen": np.array([one is view for one in views]),
    }
    return replace(chart, table={**chart.table, **truths}, marks=marks)


@dataclass(frozen=True)
class WidthBin:
    """Rows whose intervals are about equally wide."""

    n_rows: int
    width: float  # the mean
    error: float  # the mean size
    standard_error: float  # of that mean; NaN for a single row
    coverage: float


def width_bins(view: View) -> list[WidthBin]:
    """The rows from the narrowest intervals to the widest, in bins of as many each; equal widths stay together."""
    order = np.argsort(view.width, kind="stable")
    width, error, inside = view.width[order], np.abs(view.y - view.prediction)[order], view.inside[order]
    n_bins = max(1, min(MOST_WIDTHS, len(width) // ROWS_PER_WIDTH))
    cuts = np.round(np.linspace(0, len(width), n_bins + 1)).astype(int)[1:-1]
    cuts = np.unique(np.searchsorted(width, width[cuts], side="left"))
    bins = []
    for rows in np.split(np.arange(len(width)), cuts[cuts > 0]):
        spread = float(error[rows].std(ddof=1)) if len(rows) > 1 else float("nan")
        means = (float(width[rows].mean()), float(error[rows].mean()))
        bins.append(WidthBin(len(rows), *means, spread / len(rows) ** 0.5, float(inside[rows].mean())))
    return bins


def width_error_chart(bins: Sequence[WidthBin], noun: str) -> Chart:
    """Whether wide intervals are where errors are large."""
    table = {name: np.array([getattr(one, name) for one in bins]) for name in WidthBin.__annotations__}
    half = NINE_OF_TEN * table.pop("standard_error")
    table |= {"low": np.maximum(0.0, table["error"] - half), "high": table["error"] + half}
    marks = [
        Mark("columns", "width", "low", "high", label="where its true mean is to be expected (90 %)"),
        Mark("points", "width", "error", label="mean size of the error at about this width", marker="o", size=5.0),
    ]
    tips = [Tip("width", "mean width"), Tip("error", "mean size of the error"), Tip("low", "its true mean from (90 %)")]
    tips += [Tip("high", "to"), Tip("n_rows", f"{noun}s", "count"), Tip("coverage", "coverage", "share")]
    return Chart(table, marks, Axis("mean width of the interval"), Axis("mean size of the error", zero=True), tips)


def stretch_chart(view: View, first: int, last: int) -> Chart:
    """The forecasts of a stretch of the period, with the observed values."""
    rows = slice(first, last)

    def interval(of: View) -> PredictionInterval:
        return PredictionInterval(of.lower[rows], of.upper[rows], coverage=view.asked)

    static = None if view.static is None else interval(view.static)
    known: dict[str, Any] = {"prediction": view.prediction[rows], "y": view.y[rows], "static": static}
    chart = draw_forecast.chart(view.times[rows], interval(view), **known)
    return replace(chart, x=_titled(chart.x), y=Axis(shortened(view.name)))


def _titled(across: Axis) -> Axis:
    return replace(across, title=None if across.kind == "time" else "step")


def rolling_chart(view: View) -> tuple[Chart, int, Array, Array | None]:
    """Coverage over a moving window, its size, and all shares, with live calibration and without it."""
    window = window_of(len(view.y))
    shares = metrics.rolling_coverage(view.inside, window)
    static = None if view.static is None else metrics.rolling_coverage(view.static.inside, window)
    drawn = np.round(np.linspace(0, len(shares) - 1, min(len(shares), MOST_WINDOWS_DRAWN))).astype(int)
    drawn = np.unique([*drawn, shares.argmin()])  # the lowest is always among them
    label, times = "reached" if static is None else "with live calibration", view.times[drawn + window - 1]
    chart = draw_rolling_coverage.chart(times, shares[drawn], asked=view.asked, label=label)
    marks, table, tips = [replace(chart.marks[0], label="asked"), chart.marks[1]], chart.table, [*chart.tips]
    if static is not None:
        marks.insert(1, Mark("line", "time", "static", "", "other", "without it", dash="--"))
        table, tips = {**table, "static": static[drawn]}, [*tips, Tip("static", "without it", "share")]
    across, up = _titled(chart.x), Axis("coverage of the window", "share")
    return replace(chart, table=table, marks=marks, tips=tips, x=across, y=up), window, shares, static


def residual_charts(outcome: Outcome, target: int) -> list[Chart]:
    """Observed minus predicted against predicted, for every level; one table for all."""
    views, most = (
        outcome.views[target * len(outcome.levels) :][: len(outcome.levels)],
        MOST_POINTS // len(outcome.target_names),
    )
    view, n, noun = views[0], len(views[0].y), "row" if outcome.times is None else "value"
    rows = np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, max(1, most), replace=False))
    table: dict[str, Any] = {"prediction": view.prediction[rows], "residual": (view.y - view.prediction)[rows]}
    table[noun] = [row_number(outcome, row) if noun == "row" else time_of(view, row) for row in rows.tolist()]
    table |= {f"inside {level}": one.inside[rows] for level, one in enumerate(views)}
    tips = [Tip(noun, noun, "count" if noun == "row" else "text"), Tip("prediction", "predicted")]
    tips.append(Tip("residual", "observed minus predicted"))
    axes = Axis("prediction"), Axis("observed minus predicted", zero=True)
    zero, labels = Mark("rule", "", 0, colour="centre", thickness=0.7), ("inside its interval", "outside")
    points = [
        split_points("prediction", "residual", f"inside {level}", labels=labels, sizes=(3.5, 5.0))
        for level in range(len(views))
    ]
    return [Chart(table, [zero, *some], *axes, tips) for some in points]


def residual_bins(values: Array) -> tuple[NDArray[np.intp], Array, int]:
    """Counts and edges of equal bins over the central 99 % of the residuals, and how many lie beyond."""
    low, high = np.quantile(values, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2], method="closest_observation")
    central = values[(values >= low) & (values <= high)]
    n_bins = int(np.clip(round(2 * len(central) ** (1 / 3)), 5, MOST_BINS)) if high > low else 1
    around = (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))
    counts, edges = np.histogram(central, bins=n_bins, range=around)
    return counts, edges, len(values) - len(central)


def histogram(view: View, noun: str) -> tuple[Chart, float, Array, int]:
    """How often residuals of each size occur, their mean and quartiles, and how many are not drawn."""
    values = view.y - view.prediction
    counts, edges, n_beyond = residual_bins(values)
    marks = [Mark("bars", "low", "rows", "high"), Mark("rule", 0, colour="outside", thickness=1.0, dash="--")]
    tips = [Tip("low", "from"), Tip("high", "to"), Tip("rows", f"{noun}s", "count")]
    axes = Axis("observed minus predicted"), Axis(f"{noun}s", zero=True)
    chart = Chart({"low": edges[:-1], "high": edges[1:], "rows": counts}, marks, *axes, tips, height=240)
    return chart, float(values.mean()), np.quantile(values, [0.25, 0.75]), n_beyond


def round_chart(measure: str, values: Array, asked: float | None = None) -> Chart:
    """A measure by round of training."""
    chart = draw_rounds.chart(values[None], asked=asked)
    up = Axis(measure, zero=True) if asked is None else Axis(measure, "share", (0, 1))
    marks = [replace(mark, marker="o") for mark in chart.marks if mark.kind != "area"]  # there is one trial
    return replace(chart, marks=marks, y=up, tips=[chart.tips[0], replace(chart.tips[1], title=measure)])


def shift_chart(shifts: Sequence[Shift]) -> Chart | None:
    """Differences of inputs between training and test; None where all are infinite."""
    drawn = [shift for shift in shifts if math.isfinite(shift.difference)]
    if not drawn:
        return None
    half = Z_95 * np.array([shift.standard_error for shift in drawn])
    table = {"place": np.arange(len(drawn)), "name": [shortened(shift.name) for shift in drawn]}
    table |= {"difference": np.array([shift.difference for shift in drawn]), "low": -half, "high": half}
    table["expected"] = np.array([shift.is_expected for shift in drawn])
    labels = "difference of the means", "larger than chance allows, however many inputs were compared"
    marks = [Mark("rows", "low", "place", "high", "bar", "where 19 of 20 differences lie if nothing has changed", 12.0)]
    marks += split_points("difference", "place", "expected", labels=labels)
    tips = [Tip("name", "input", "text"), Tip("difference", "difference (sd)")]
    across = Axis("test minus training (standard deviations)", zero=True)
    return Chart(table, marks, across, Axis(None, "slice"), tips, height=SLICE * len(drawn))
