"""Charts of a report: those of `coverwell.plots` for a view, some that only a report has, and all of them in Vega-Lite.

Colours are variables of the page's style sheet, so that charts follow light, dark and print; legends are the page's.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell import metrics
from coverwell.evaluation import Outcome, SetView, View
from coverwell.plots import charts
from coverwell.plots.chart import BAR, CELL, COLOURS, SLICE, Axis, Chart, Mark, Tip, is_turned, shortened
from coverwell.prediction import PredictionInterval
from coverwell.report.facts import Shift, row_number, time_of, window_of

Array = NDArray[np.float64]
Spec = dict[str, Any]

MOST_WIDTHS, ROWS_PER_WIDTH = 10, 20  # bins of widths
NINE_OF_TEN = 1.6449  # standard errors to either side of a mean
MOST_WINDOWS_DRAWN = 400
MOST_POINTS = 3_000  # of all targets together
MOST_BINS, CENTRAL = 30, 0.99  # of residuals
Z_95 = float(norm.ppf(0.975))
CHOSEN = Mark("points", "asked", "value", label="the chosen level", marker="o", size=11.0, opacity=0.3, where="chosen")

EDGE = {"stroke": "var(--edge)", "strokeWidth": 0.75}  # of what is too pale to be seen by all
VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
DASHES = {"-": [1, 0], "--": [5, 3], ":": [2, 3]}
FORMATS = {"share": ".1~%", "number": ",.7~g", "count": ","}
SIGNS = {"area": "▮", "columns": "│", "rows": "▬", "diagonal": "╌", "bars": "▮", "cells": "▮"}
# Very large and very small numbers have so many digits that a chart has no room beside them.
SHORT_LABEL = (
    "datum.value && (abs(datum.value) >= 1e12 || abs(datum.value) < 1e-6) ? format(datum.value, '.3~e') : datum.label"
)
CELL_TEXT = "min(11, 0.5 * bandwidth('x'))"  # pixels: three digits have room in a cell
NAME_UP, MARKS_DOWN = -13, 8  # pixels: the name of a slice above, its marks below
PIXELS = 1.5  # of a line, for each point
DIGITS, MOST_DIGITS = 6, 15  # of stored numbers; a double has 15


def calibration_chart(view: View | SetView) -> Chart:
    """Coverage of a target against asked coverage, the level of the view marked."""
    views = view.outcome.of_target(view.target)
    low, high = np.array([one.scores["band"] for one in views]).T
    is_number = isinstance(view, View)
    label = f"where nine of ten samples lie if the {'intervals' if is_number else 'sets'} are right"
    found = [one.scores["coverage"] for one in views]
    chart = charts.draw_calibration_curve.chart([one.asked for one in views], found, band=(low, high), band_label=label)
    marks = [replace(mark, label="reached as asked") if mark.kind == "diagonal" else mark for mark in chart.marks]
    labels = ("reached, inside the band", "reached, outside the band") if is_number else ("as expected", "not expected")
    marks += [CHOSEN, *charts.split_points("asked", "value", "expected", labels=labels)]
    truths = {"expected": [one.is_expected for one in views], "chosen": [one is view for one in views]}
    table = {**chart.table, **{name: np.array(values) for name, values in truths.items()}}
    return replace(chart, table=table, marks=marks)


def width_error_chart(view: View, noun: str) -> Chart:
    """Whether wide intervals are where errors are large, in bins of about as many rows; equal widths stay together."""
    order = np.argsort(view.width, kind="stable")
    width, error, inside = view.width[order], np.abs(view.y - view.prediction)[order], view.inside[order]
    n_bins = max(1, min(MOST_WIDTHS, len(width) // ROWS_PER_WIDTH))
    cuts = np.round(np.linspace(0, len(width), n_bins + 1)).astype(int)[1:-1]
    cuts = np.unique(np.searchsorted(width, width[cuts], side="left"))
    bins = np.split(np.arange(len(width)), cuts[cuts > 0])
    columns = {"width": width, "error": error, "coverage": inside}
    table = {name: np.array([values[rows].mean() for rows in bins]) for name, values in columns.items()}
    table["n_rows"] = np.array([len(rows) for rows in bins])
    spread = np.array([error[rows].std(ddof=1) if len(rows) > 1 else np.nan for rows in bins])
    half = NINE_OF_TEN * spread / np.sqrt(table["n_rows"])
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
    rows, both = slice(first, last), [view] if view.static is None else [view, view.static]
    live, *static = (PredictionInterval(of.lower[rows], of.upper[rows], coverage=view.asked) for of in both)
    about: dict[str, Any] = {"prediction": view.prediction[rows], "y": view.y[rows], "static": (*static, None)[0]}
    chart = charts.draw_forecast.chart(view.times[rows], live, **about)
    return replace(chart, y=Axis(shortened(view.name)))


def rolling_chart(view: View) -> tuple[Chart, int, Array, Array | None]:
    """Coverage over a moving window, its size, and all shares, with live calibration and without it."""
    window = window_of(view)
    shares = metrics.rolling_coverage(view.inside, window)
    static = None if view.static is None else metrics.rolling_coverage(view.static.inside, window)
    drawn = np.round(np.linspace(0, len(shares) - 1, min(len(shares), MOST_WINDOWS_DRAWN))).astype(int)
    drawn = np.unique([*drawn, shares.argmin()])  # the lowest is always among them
    label, times = "reached" if static is None else "with live calibration", view.times[drawn + window - 1]
    chart = charts.draw_rolling_coverage.chart(times, shares[drawn], asked=view.asked, label=label)
    marks, table, tips = [replace(chart.marks[0], label="asked"), chart.marks[1]], chart.table, [*chart.tips]
    if static is not None:
        marks.insert(1, Mark("line", "time", "static", "", "other", "without it", dash="--"))
        table, tips = {**table, "static": static[drawn]}, [*tips, Tip("static", "without it", "share")]
    up = Axis("coverage of the window", "share")
    return replace(chart, table=table, marks=marks, tips=tips, y=up), window, shares, static


def residual_charts(outcome: Outcome, target: int) -> list[Chart]:
    """Observed minus predicted against predicted, for every level; one table for all."""
    views = outcome.of_target(target)
    view, most, noun = views[0], MOST_POINTS // len(outcome.target_names), "row" if outcome.times is None else "value"
    rows = np.arange(len(view.y))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), max(1, most), replace=False))
    table: dict[str, Any] = {"prediction": view.prediction[rows], "residual": (view.y - view.prediction)[rows]}
    table[noun] = [row_number(outcome, row) if noun == "row" else time_of(view, row) for row in rows.tolist()]
    table |= {f"inside {level}": one.inside[rows] for level, one in enumerate(views)}
    tips = [Tip(noun, noun, "count" if noun == "row" else "text"), Tip("prediction", "predicted")]
    tips.append(Tip("residual", "observed minus predicted"))
    axes = Axis("prediction"), Axis("observed minus predicted", zero=True)
    zero, look = Mark("rule", "", 0, colour="centre", thickness=0.7), ("inside its interval", "outside")
    found = []
    for level in range(len(views)):
        points = charts.split_points("prediction", "residual", f"inside {level}", labels=look, sizes=(3.5, 5.0))
        found.append(Chart(table, [zero, *points], *axes, tips))
    return found


def histogram(view: View, noun: str) -> tuple[Chart, float, Array, int]:
    """How often central residuals of each size occur, mean and quartiles of all, and how many are not drawn."""
    values = view.y - view.prediction
    low, high = np.quantile(values, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2], method="closest_observation")
    central = values[(values >= low) & (values <= high)]
    size = max(abs(low), abs(high))
    is_wide = high - low > MOST_BINS * np.spacing(size)  # or there are not even as many numbers between them
    n_bins = int(np.clip(round(2 * len(central) ** (1 / 3)), 5, MOST_BINS)) if is_wide else 1
    beside = 0.0 if is_wide else 0.5 * (size if size > 1e-300 else 1.0)
    counts, edges = np.histogram(central, bins=n_bins, range=(low - beside, high + beside))
    marks = [Mark("bars", "low", "rows", "high"), Mark("rule", 0, colour="outside", thickness=1.0, dash="--")]
    tips = [Tip("low", "from"), Tip("high", "to"), Tip("rows", f"{noun}s", "count")]
    axes = Axis("observed minus predicted"), Axis(f"{noun}s", zero=True)
    chart = Chart({"low": edges[:-1], "high": edges[1:], "rows": counts}, marks, *axes, tips, height=240)
    return chart, float(values.mean()), np.quantile(values, [0.25, 0.75]), len(values) - len(central)


def round_chart(measure: str, values: Array, asked: float | None = None) -> Chart:
    """A measure by round of training."""
    chart = charts.draw_rounds.chart(values[None], asked=asked)
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
    marks += charts.split_points("difference", "place", "expected", labels=labels)
    tips = [Tip("name", "input", "text"), Tip("difference", "difference (sd)")]
    across = Axis("test minus training (standard deviations)", zero=True)
    return Chart(table, marks, across, Axis(None, "slice"), tips, height=SLICE * len(drawn))


def specification(chart: Chart) -> Spec:
    """The layers of a chart; its records come to it in the page."""
    pointed = [mark.kind in ("points", "bars", "cells") for mark in chart.marks]
    tipped = pointed if any(pointed) else [mark.kind == "line" for mark in chart.marks]
    layers = [_layer(chart, mark, tips=tips) for mark, tips in zip(chart.marks, tipped, strict=True)]
    if chart.y.kind == "slice":  # the name of each above its marks, where a narrow screen has room for it
        text = {"type": "text", "align": "left", "color": "var(--ink)", "yOffset": NAME_UP, "fontSize": 12}
        place = {"y": _channel(chart, "y", "place"), "x": {"value": 2}, "text": {"field": "name"}}
        layers.append({"mark": text, "encoding": place})
    return {"width": "container", "height": chart.height, "layer": layers}


def legend(chart: Chart) -> list[tuple[str, str, str]]:
    """The sign, its colour and what it stands for, of every mark that has a label; signs differ without colour."""
    signs = []
    for mark in chart.marks:
        if mark.label and chart.rows(mark).any():
            point = "✚" if mark.marker == "X" else "●" if mark.opacity == 1 else "◉"
            others = {"points": point, "line": "━" if mark.dash == "-" else "╌", "rule": "─" if mark.x == "" else "│"}
            signs.append((SIGNS.get(mark.kind) or others[mark.kind], _colour(mark), mark.label))
    return signs


def _colour(mark: Mark) -> str:
    return VARIABLES.get(COLOURS.get(mark.colour, mark.colour), mark.colour)


def _layer(chart: Chart, mark: Mark, *, tips: bool) -> Spec:
    if mark.kind in ("rule", "diagonal"):
        return _reference(chart, mark)
    encoding: Spec = {"x": _channel(chart, "x", mark.x), "y": _channel(chart, "y", mark.y)}
    match mark.kind:
        case "cells":
            strength = {"type": "quantitative", "scale": {"domain": [0, 1], "range": [0, 1]}, "legend": None}
            encoding["opacity"] = {"field": mark.to, **strength}
        case "texts":
            encoding["text"] = {"field": mark.to}
        case "bars":
            encoding |= {"y2": {"datum": 0}} | ({"x2": {"field": mark.to}} if mark.to else {})
        case "rows":
            encoding["x2"] = {"field": mark.to}
        case _ if mark.to:
            encoding["y2"] = {"field": mark.to}
    if tips:
        forms = {kind: {"type": "quantitative", "format": form} for kind, form in FORMATS.items()}
        forms |= {"text": {}, "time": {"type": "temporal", "format": "%Y-%m-%d %H:%M:%S"}}
        encoding["tooltip"] = [{"field": tip.column, "title": tip.title, **forms[tip.kind]} for tip in chart.tips]
    layer: Spec = {"mark": {**_look(chart, mark), "color": _colour(mark)}, "encoding": encoding}
    if mark.where:
        column, negated = mark.where.removeprefix("!"), mark.where.startswith("!")
        layer["transform"] = [{"filter": f"{'!' if negated else ''}datum['{column}']"}]
    return layer


def _reference(chart: Chart, mark: Mark) -> Spec:
    """A line that no row of the table stands for."""
    look = {"color": _colour(mark), "strokeWidth": PIXELS * mark.thickness}
    if mark.kind == "diagonal":
        low, high = chart.x.domain or (0, 1)
        ends = {"values": [{"x": low, "y": low}, {"x": high, "y": high}]}
        line = {"type": "line", "strokeDash": [4, 3], **look}
        return {"data": ends, "mark": line, "encoding": {c: _channel(chart, c, c) for c in ("x", "y")}}
    if chart.y.kind == "slice" and mark.x != "":  # beside every slice, not through the names
        tick = {"type": "tick", "size": 26, "thickness": 1.5, "yOffset": MARKS_DOWN, "color": look["color"]}
        across = {**_channel(chart, "x", ""), "datum": mark.x}
        return {"mark": tick, "encoding": {"y": _channel(chart, "y", "place"), "x": across}}
    along, at = ("y", mark.y) if mark.x == "" else ("x", mark.x)
    line = {"type": "rule", "strokeDash": DASHES[mark.dash], **look}
    return {"data": {"values": [{}]}, "mark": line, "encoding": {along: {**_channel(chart, along, ""), "datum": at}}}


def _look(chart: Chart, mark: Mark) -> Spec:
    down: Spec = {"yOffset": MARKS_DOWN} if chart.y.kind == "slice" else {}
    edge, width = EDGE if mark.colour in ("bar", "band") else {}, PIXELS * mark.thickness
    match mark.kind:
        case "line":
            point = {"point": {"color": _colour(mark), "size": 24}} if mark.marker else {}
            return {"type": "line", "strokeWidth": width, "strokeDash": DASHES[mark.dash], **point}
        case "area":
            return {"type": "area", "opacity": mark.opacity, **edge}
        case "columns":
            return {"type": "bar", "width": width, **edge} if edge else {"type": "rule", "strokeWidth": width}
        case "rows" if edge:
            return {"type": "bar", "height": 14, **down, **edge}
        case "rows":
            return {"type": "rule", "strokeWidth": width, **down, **({"y2Offset": MARKS_DOWN} if down else {})}
        case "bars":
            return {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 1} | ({} if mark.to else edge)
        case "cells":
            return {"type": "rect"}
        case "texts":
            return {"type": "text", "fontSize": {"expr": CELL_TEXT} if chart.x.kind == "place" else 11}
    size, shape = (1.6 * (mark.size or 2.6)) ** 2, "cross" if mark.marker == "X" else "circle"
    return {"type": "point", "filled": True, "shape": shape, "size": size, "opacity": mark.opacity, **down}


def _channel(chart: Chart, name: str, column: str) -> Spec:
    axis = chart.x if name == "x" else chart.y
    field = {"field": column} if column else {}
    if axis.kind == "slice":
        scale: Spec = {"domain": list(range(len(chart.table["place"]))), "paddingInner": 0}
        return {**field, "type": "ordinal", "axis": None, "scale": scale}
    if axis.kind == "place":
        return {**field, "type": "ordinal", "title": axis.title, **_places(chart, name, axis.names)}
    ticks: Spec = {"labelOverlap": True, "tickCount": 5}
    if axis.kind == "time":
        ticks |= {"grid": False}
        return {**field, "type": "temporal", "title": axis.title, "scale": {"nice": False}, "axis": ticks}
    scale = {"zero": axis.zero} if axis.domain is None else {"domain": [float(end) for end in axis.domain]}
    if axis.kind == "round" and axis.domain is not None:
        scale["nice"] = False
        ticks |= {"grid": False, "values": sorted({round(x) for x in np.linspace(*axis.domain, 5)}), "format": "d"}
    else:
        ticks |= {"format": ".0%"} if axis.kind == "share" else {"labelExpr": SHORT_LABEL}
    return {**field, "type": "quantitative", "title": axis.title, "scale": scale, "axis": ticks}


def _places(chart: Chart, name: str, names: Sequence[str]) -> Spec:
    """Scale and axis of places that have names."""
    crossed = chart.y.kind == "place"
    scale = {"domain": list(range(len(names))), "padding": 0, "paddingInner": 1 - (CELL if crossed else BAR)}
    above = {"orient": "top"} if crossed and name == "x" else {}
    look = {"labelAngle": -90 if name == "x" and is_turned(names) else 0, "ticks": False, "domain": not crossed}
    return {"scale": scale, "axis": {**look, **above, "grid": False, "labelExpr": f"{json.dumps(names)}[datum.value]"}}


class ChartStore:
    """What charts share is stored once: equal specifications, and tables that are the same object."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.tables: list[dict[str, Any]] = []
        self._places: dict[Any, int] = {}
        self._kept: list[Any] = []  # a table that is gone could lend its id to another

    def place_of(self, chart: Chart) -> str:
        """Where specification and table of a chart are stored."""
        spec = specification(chart)
        key = as_json(spec)
        if key not in self._places:
            self._places[key] = len(self.specs)
            self.specs.append(spec)
        if id(chart.table) not in self._places:
            self._places[id(chart.table)] = len(self.tables)
            self._kept.append(chart.table)
            self.tables.append({name: _column(values) for name, values in chart.table.items()})
        return f"{self._places[key]} {self._places[id(chart.table)]}"


def _column(values: Any) -> list[Any]:
    """What JSON can hold: truths as 0 and 1, dates as texts, numbers to six digits, or more where these are equal."""
    column = np.asarray(values)
    if column.dtype.kind == "M":
        return [str(time) for time in column.astype("datetime64[ms]")]
    if column.dtype.kind != "f":
        return list(column.astype(int).tolist() if column.dtype.kind == "b" else column.tolist())
    finite = column[np.isfinite(column)]
    apart, largest = (float(np.ptp(finite)), float(np.abs(finite).max())) if len(finite) else (0.0, 0.0)
    hidden = max(0, math.ceil(math.log10(largest / apart))) if 0 < apart < math.inf else 0
    digits = min(DIGITS + hidden, MOST_DIGITS)
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in column.tolist()]


def as_json(content: Any) -> str:
    """JSON that may stand inside a page: no text in it can end a script or an attribute."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, default=np.generic.item)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")
