"""Charts as Vega-Lite specifications without data, and their legends.

Colours are variables of the page's style sheet, so that charts follow light, dark and print without being drawn again.
Legends are the page's too: there they wrap on narrow screens.
"""

from __future__ import annotations

from typing import Any

from coverwell.plots.grammar import COLOURS, Axis, Chart, Mark, Tip

Spec = dict[str, Any]

EDGE = {"stroke": "var(--edge)", "strokeWidth": 0.75}  # of what is too pale to be seen by all
VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
DASHES = {"-": [1, 0], "--": [5, 3], ":": [2, 3]}
FORMATS = {"share": ".1~%", "number": ",.7~g", "count": ","}
# Very large and very small numbers have so many digits that a chart has no room beside them.
SHORT_LABEL = (
    "datum.value && (abs(datum.value) >= 1e12 || abs(datum.value) < 1e-6) ? format(datum.value, '.3~e') : datum.label"
)
NAME_UP, MARKS_DOWN = -13, 8  # pixels: the name of a slice above, its marks below
PIXELS = 1.5  # of a line, for each point


def specification(chart: Chart) -> Spec:
    """The layers of a chart; its records come to it in the page."""
    pointed = [mark.kind in ("points", "bars") for mark in chart.marks]
    tipped = pointed if any(pointed) else [mark.kind == "line" for mark in chart.marks]
    layers = [_layer(chart, mark, tips=tips) for mark, tips in zip(chart.marks, tipped, strict=True)]
    if chart.y.kind == "slice":  # the name of each above its marks, where a narrow screen has room for it
        text = {"type": "text", "align": "left", "color": "var(--ink)", "yOffset": NAME_UP, "fontSize": 12}
        place = {"y": _channel(chart, "y", "place"), "x": {"value": 2}, "text": {"field": "name"}}
        layers.append({"mark": text, "encoding": place})
    return {"width": "container", "height": chart.height, "layer": layers}


def legend(chart: Chart) -> list[tuple[str, str, str]]:
    """The sign, its colour and what it stands for, of every mark that has a label; colours never tell alone."""
    drawn = [mark for mark in chart.marks if mark.label and chart.rows(mark).any()]
    return [(_sign(mark), _colour(mark.colour), str(mark.label)) for mark in drawn]


def _sign(mark: Mark) -> str:
    if mark.kind == "points":
        return "✚" if mark.marker == "X" else "●" if mark.opacity == 1 else "◉"
    if mark.kind == "line":
        return "━" if mark.dash == "-" else "╌"
    if mark.kind == "rule":
        return "─" if mark.x == "" else "│"
    return {"area": "▮", "columns": "│", "rows": "▬", "diagonal": "╌", "bars": "▮"}[mark.kind]


def _colour(colour: str) -> str:
    return VARIABLES.get(COLOURS.get(colour, colour), colour)


def _layer(chart: Chart, mark: Mark, *, tips: bool) -> Spec:
    if mark.kind in ("rule", "diagonal"):
        return _reference(chart, mark)
    encoding: Spec = {"x": _channel(chart, "x", mark.x), "y": _channel(chart, "y", mark.y)}
    if mark.to:
        encoding["x2" if mark.kind in ("rows", "bars") else "y2"] = {"field": mark.to}
    if mark.kind == "bars":
        encoding["y2"] = {"datum": 0}
    if tips:
        encoding["tooltip"] = [_tip(tip) for tip in chart.tips]
    layer: Spec = {"mark": {**_look(chart, mark), "color": _colour(mark.colour)}, "encoding": encoding}
    if mark.where:
        column, negated = mark.where.removeprefix("!"), mark.where.startswith("!")
        layer["transform"] = [{"filter": f"{'!' if negated else ''}datum['{column}']"}]
    return layer


def _reference(chart: Chart, mark: Mark) -> Spec:
    """A line that no row of the table stands for."""
    look = {"color": _colour(mark.colour), "strokeWidth": PIXELS * mark.thickness}
    if mark.kind == "diagonal":
        ends = {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]}
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
    edge = EDGE if mark.colour in ("bar", "band") else {}
    width = PIXELS * mark.thickness
    match mark.kind:
        case "line":
            point = {"point": {"color": _colour(mark.colour), "size": 24}} if mark.marker else {}
            return {"type": "line", "strokeWidth": width, "strokeDash": DASHES[mark.dash], **point}
        case "area":
            return {"type": "area", "opacity": mark.opacity, **edge}
        case "columns" if not edge:
            return {"type": "rule", "strokeWidth": width}
        case "rows" if not edge:
            return {"type": "rule", "strokeWidth": width, **down, **({"y2Offset": MARKS_DOWN} if down else {})}
        case "columns":
            return {"type": "bar", "width": width, **edge}
        case "rows":
            return {"type": "bar", "height": 14, **down, **edge}
        case "bars":
            return {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 1}
    size = (1.6 * (mark.size or 2.6)) ** 2
    shape = "cross" if mark.marker == "X" else "circle"
    return {"type": "point", "filled": True, "shape": shape, "size": size, "opacity": mark.opacity, **down}


def _channel(chart: Chart, name: str, column: str) -> Spec:
    axis = chart.x if name == "x" else chart.y
    field = {"field": column} if column else {}
    if axis.kind == "slice":
        scale = {"domain": list(range(len(chart.table["place"]))), "paddingInner": 0}
        return {**field, "type": "ordinal", "axis": None, "scale": scale}
    return {**field, "type": "temporal" if axis.kind == "time" else "quantitative", "title": axis.title, **_scale(axis)}


def _scale(axis: Axis) -> Spec:
    ticks: Spec = {"labelOverlap": True, "tickCount": 5}
    if axis.kind == "time":
        return {"scale": {"nice": False}, "axis": {**ticks, "grid": False}}
    if axis.kind == "round" and axis.domain is not None:
        first, last = int(axis.domain[0]), int(axis.domain[1])
        whole = sorted({round(first + place * (last - first) / 4) for place in range(5)})
        scale = {"domain": axis.domain, "nice": False}
        return {"scale": scale, "axis": {**ticks, "grid": False, "values": whole, "format": "d"}}
    scale = {"zero": axis.zero} if axis.domain is None else {"domain": axis.domain}
    return {
        "scale": scale,
        "axis": {**ticks, **({"format": ".0%"} if axis.kind == "share" else {"labelExpr": SHORT_LABEL})},
    }


def _tip(tip: Tip) -> Spec:
    kinds = {"text": {}, "time": {"type": "temporal", "format": "%Y-%m-%d %H:%M:%S"}}
    form = kinds[tip.kind] if tip.kind in kinds else {"type": "quantitative", "format": FORMATS[tip.kind]}
    return {"field": tip.column, "title": tip.title, **form}
