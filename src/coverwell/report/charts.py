"""How each kind of chart is drawn, as Vega-Lite specifications without data.

Colours are variables of the page's style sheet, so that charts follow light, dark and print without being drawn again.
Legends are the page's too: there they wrap on narrow screens.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Spec",
    "bands_spec",
    "box_spec",
    "calibration_spec",
    "histogram_spec",
    "parts_spec",
    "residuals_spec",
    "rolling_spec",
    "rounds_spec",
    "shifts_spec",
    "width_and_error_spec",
]

Spec = dict[str, Any]

INSIDE, OUTSIDE, BAR, CENTRE = "var(--inside)", "var(--outside)", "var(--bar)", "var(--centre)"
BAND, OTHER, INK = "var(--band)", "var(--other)", "var(--ink)"
EDGE = {"stroke": "var(--edge)", "strokeWidth": 0.75}  # of what is too pale to be seen by all
PERCENT, SHARE, VALUE, COUNT = ".0%", ".1~%", ",.7~g", ","
# Very large and very small numbers have so many digits that a chart has no room beside them.
SHORT_LABEL = (
    "datum.value && (abs(datum.value) >= 1e12 || abs(datum.value) < 1e-6) ? format(datum.value, '.3~e') : datum.label"
)
ROW = 46  # pixels for each part: its name above, its interval below
NAME_UP, MARKS_DOWN = -13, 8


def calibration_spec() -> Spec:
    """Coverage reached against coverage asked; fields asked, reached, low, high, fits and chosen."""
    x = _quantity("asked", "coverage asked", format=PERCENT, domain=[0, 1])
    y = _quantity("reached", "coverage reached", format=PERCENT, domain=[0, 1])
    return _chart(
        {
            "mark": {"type": "line", "color": CENTRE, "strokeWidth": 1, "strokeDash": [4, 3]},
            "data": {"values": [{"asked": 0, "reached": 0}, {"asked": 1, "reached": 1}]},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "bar", "width": 12, "color": BAR, **EDGE},
            "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        },
        {"mark": {"type": "line", "color": INSIDE, "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
        {
            "mark": {"type": "point", "filled": True, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                **_told_apart("fits"),
                "size": {"condition": {"test": "datum.chosen", "value": 190}, "value": 80},
                "tooltip": _tips(
                    asked=(SHARE, "asked"),
                    reached=(SHARE, "reached"),
                    low=(SHARE, "expected from"),
                    high=(SHARE, "to"),
                ),
            },
        },
        height=320,
    )


def width_and_error_spec() -> Spec:
    """Size of the errors against width, in bins; fields width, error, low, high, rows and inside."""
    x = _quantity("width", "mean width of the interval")
    y = _quantity("error", "mean size of the error", zero=True)
    tips = _tips(
        width=(VALUE, "mean width"),
        error=(VALUE, "mean size of the error"),
        low=(VALUE, "its true mean from (90 %)"),
        high=(VALUE, "to"),
        rows=(COUNT, "rows"),
        inside=(SHARE, "coverage"),
    )
    return _chart(
        {
            "mark": {"type": "rule", "strokeWidth": 2, "color": INSIDE},
            "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "color": INSIDE, "opacity": 1},
            "encoding": {"x": x, "y": y, "tooltip": tips},
        },
        height=280,
    )


def parts_spec(n_parts: int) -> Spec:
    """Coverage of parts of the rows, one below the other; fields as `slice_sections.record_of` gives them."""
    y = _places("place", n_parts)
    x = _quantity("coverage", "coverage", format=PERCENT, domain=[0, 1])
    tips = _tips(
        name=(None, "slice"),
        coverage=(SHARE, "coverage"),
        low=(SHARE, "95 % interval from"),
        high=(SHARE, "to"),
        chance=(None, "by chance"),
    )
    return _chart(
        {
            "mark": {"type": "bar", "height": 14, "color": BAR, "yOffset": MARKS_DOWN, **EDGE},
            "encoding": {"y": y, "x": {**x, "field": "band_low"}, "x2": {"field": "band_high"}},
        },
        {
            "mark": {"type": "tick", "size": 26, "thickness": 1.5, "color": CENTRE, "yOffset": MARKS_DOWN},
            "encoding": {"y": y, "x": {**x, "field": "asked"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, "yOffset": MARKS_DOWN, "y2Offset": MARKS_DOWN},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": _colour("fits")},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "yOffset": MARKS_DOWN},
            "encoding": {"y": y, "x": x, **_told_apart("fits"), "tooltip": tips},
        },
        _names(y),
        height=ROW * n_parts,
    )


def shifts_spec(n_parts: int) -> Spec:
    """Differences of test from training, one below the other; fields name, difference, low, high, fits and place."""
    y = _places("place", n_parts)
    x = _quantity("difference", "test minus training (standard deviations)", zero=True)
    tips = _tips(name=(None, "input"), difference=(".2f", "difference (sd)"))
    return _chart(
        {
            "mark": {"type": "bar", "height": 14, "color": BAR, "yOffset": MARKS_DOWN, **EDGE},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "yOffset": MARKS_DOWN},
            "encoding": {"y": y, "x": x, **_told_apart("fits"), "tooltip": tips},
        },
        {**_names(y), "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "name"}}},
        height=ROW * n_parts,
    )


def residuals_spec(level: int) -> Spec:
    """Observed minus predicted against predicted; fields prediction, residual, row, and the first level with it inside.

    Levels are nested, so a row that is inside at one is inside at all that come after it.
    """
    fits = {"calculate": f"datum.first_level <= {level}", "as": "fits"}
    x = _quantity("prediction", "prediction", zero=False)
    y = _quantity("residual", "observed minus predicted", zero=True)
    return {
        **_chart(
            {
                "mark": {"type": "rule", "color": CENTRE, "strokeWidth": 1},
                "data": {"values": [{"zero": 0}]},
                "encoding": {"y": {"field": "zero", "type": "quantitative"}},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.75},
                "encoding": {
                    "x": x,
                    "y": y,
                    **_told_apart("fits"),
                    "size": {"condition": {"test": "datum.fits", "value": 30}, "value": 60},
                    "tooltip": _tips(
                        row=(COUNT, "row"),
                        prediction=(VALUE, "predicted"),
                        residual=(VALUE, "observed minus predicted"),
                    ),
                },
            },
            height=280,
        ),
        "transform": [fits],
    }


def histogram_spec(what: str) -> Spec:
    """How often residuals of each size occur; fields low, high and rows, whose name is `what`."""
    x: Spec = {"field": "low", "type": "quantitative", "title": "observed minus predicted"}
    x["axis"] = _axis(grid=False, labelExpr=SHORT_LABEL)
    return _chart(
        {
            "mark": {"type": "rect", "color": INSIDE, "stroke": "var(--paper)", "strokeWidth": 1},
            "encoding": {
                "x": {**x, "scale": {"zero": False, "nice": False}},
                "x2": {"field": "high"},
                "y": _quantity("rows", what, zero=True),
                "y2": {"datum": 0},
                "tooltip": _tips(low=(VALUE, "from"), high=(VALUE, "to"), rows=(COUNT, what)),
            },
        },
        {
            "mark": {"type": "rule", "color": OUTSIDE, "strokeWidth": 1.5, "strokeDash": [4, 3]},
            "data": {"values": [{"zero": 0}]},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        },
        height=240,
    )


def rounds_spec(title: str, n_rounds: int, *, share: bool = False) -> Spec:
    """A measure by round; fields round, value and asked, which may be missing."""
    ticks = sorted({round(1 + place * (n_rounds - 1) / 4) for place in range(5)})
    x = {"field": "round", "type": "quantitative", "title": "round", "scale": {"zero": False, "nice": False}}
    x["axis"] = _axis(grid=False, values=ticks, format="d")
    shape = {"format": PERCENT, "domain": [0, 1]} if share else {"zero": True}
    asked = {
        "mark": {"type": "line", "color": CENTRE, "strokeWidth": 1, "strokeDash": [4, 3]},
        "encoding": {"x": x, "y": {"field": "asked", "type": "quantitative"}},
    }
    return _chart(
        *([asked] if share else []),
        {
            "mark": {"type": "line", "color": INSIDE, "strokeWidth": 1.5, "point": {"color": INSIDE, "size": 24}},
            "encoding": {
                "x": x,
                "y": _quantity("value", title, **shape),
                "tooltip": _tips(round=("d", "round"), value=(SHARE if share else VALUE, title)),
            },
        },
        height=200,
    )


def bands_spec(name: str, *, dates: bool, live: bool = True) -> Spec:
    """A stretch of a series; fields time, y, prediction, lower, upper, static_lower, static_upper and fits."""
    x = _time(dates)
    y = {"type": "quantitative", "title": name, "scale": {"zero": False}, "axis": _axis(labelExpr=SHORT_LABEL)}
    lines = [
        {
            "mark": {"type": "line", "color": OTHER, "strokeWidth": 1, "strokeDash": [5, 3]},
            "encoding": {"x": x, "y": {**y, "field": bound}},
        }
        for bound in (("static_lower", "static_upper") if live else ())
    ]
    tips = _tips(y=(VALUE, "observed"), prediction=(VALUE, "predicted"), lower=(VALUE, "lower"), upper=(VALUE, "upper"))
    return _chart(
        {
            "mark": {"type": "area", "color": BAND, "opacity": 1, **EDGE, "strokeWidth": 0.5},
            "encoding": {"x": x, "y": {**y, "field": "lower"}, "y2": {"field": "upper"}},
        },
        *lines,
        {
            "mark": {"type": "line", "color": INSIDE, "strokeWidth": 1.4},
            "encoding": {"x": x, "y": {**y, "field": "prediction"}},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "invalid": "filter"},
            "encoding": {
                "x": x,
                "y": {**y, "field": "y"},
                **_told_apart("fits", inside=INK),
                "size": {"condition": {"test": "datum.fits", "value": 14}, "value": 60},
                "tooltip": [_time_tip(dates), *tips],
            },
        },
        height=320,
    )


def rolling_spec(*, dates: bool, live: bool = True) -> Spec:
    """Coverage over a moving window; fields time, live, static and asked."""
    x = _time(dates)
    compared = {"static": (SHARE, "without live calibration")} if live else {}
    tips = [_time_tip(dates), *_tips(live=(SHARE, "coverage of the window"), **compared)]

    def line(field: str, **style: Any) -> Spec:
        y = _quantity(field, "coverage of the window", format=PERCENT, zero=False)
        return {
            "mark": {"type": "line", **style},
            "encoding": {"x": x, "y": y, "tooltip": tips},
        }

    return _chart(
        line("asked", color=CENTRE, strokeWidth=1),
        *([line("static", color=OTHER, strokeWidth=1.5, strokeDash=[5, 3])] if live else []),
        line("live", color=INSIDE, strokeWidth=2),
        height=240,
    )


# Colour, dashes and thickness of each box; on photographs they are the same in light and dark.
BOXES: dict[str, tuple[str, list[int], float]] = {
    "outer": ("#0072B2", [1, 0], 1.5),
    "inner": ("#0072B2", [2, 3], 2.0),
    "predicted": ("#00805C", [1, 0], 2.5),
    "true": ("#D55E00", [6, 4], 2.5),
}
PICTURE = 240  # pixels


def box_spec() -> Spec:
    """A picture and boxes in it, all in fractions of its sides; fields name, left, right, top, bottom, and picture."""
    x: Spec = {"type": "quantitative", "scale": {"domain": [0, 1], "nice": False}, "axis": None}
    y: Spec = {**x, "scale": {"domain": [0, 1], "nice": False, "reverse": True}}
    corners = {
        "x": {**x, "field": "left"},
        "x2": {"field": "right"},
        "y": {**y, "field": "top"},
        "y2": {"field": "bottom"},
    }
    image: Spec = {
        "mark": {"type": "image", "width": PICTURE, "height": PICTURE, "aspect": False},
        "transform": [{"filter": "isValid(datum.picture)"}],
        "encoding": {"x": {**x, "datum": 0.5}, "y": {**y, "datum": 0.5}, "url": {"field": "picture"}},
    }

    def outline(name: str, colour: str, dash: list[int], thickness: float) -> Spec:
        stroke = {"stroke": colour, "strokeDash": dash, "strokeWidth": thickness}
        return {
            "mark": {"type": "rect", "filled": False, "clip": True, **stroke},
            "transform": [{"filter": f"datum.name == '{name}'"}],
            "encoding": {**corners, "tooltip": [{"field": "name"}]},
        }

    # White below every line: a photograph may have the line's own colour.
    lines = [
        outline(name, *line)
        for name, (colour, dash, thick) in BOXES.items()
        for line in (("#ffffff", [1, 0], thick + 1.5), (colour, dash, thick))
    ]
    return {"width": PICTURE, "height": PICTURE, "layer": [image, *lines]}


def _chart(*layers: Spec, height: int) -> Spec:
    return {"width": "container", "height": height, "layer": list(layers)}


def _quantity(
    field: str, title: str, *, format: str | None = None, domain: list[int] | None = None, zero: bool = False
) -> Spec:
    scale: Spec = {"zero": zero} if domain is None else {"domain": domain}
    axis = _axis(labelExpr=SHORT_LABEL) if format is None else _axis(format=format)
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _axis(**more: Any) -> Spec:
    return {"labelOverlap": True, "tickCount": 5, **more}


def _time(dates: bool) -> Spec:
    return {
        "field": "time",
        "type": "temporal" if dates else "quantitative",
        "title": None if dates else "step",
        "scale": {"nice": False} if dates else {"nice": False, "zero": False},
        "axis": _axis(grid=False),
    }


def _places(field: str, n_parts: int) -> Spec:
    domain = list(range(n_parts))
    return {"field": field, "type": "ordinal", "axis": None, "scale": {"domain": domain, "paddingInner": 0}}


def _names(y: Spec) -> Spec:
    """The name of each part above its marks, where a narrow screen has room for it."""
    return {
        "mark": {"type": "text", "align": "left", "color": INK, "yOffset": NAME_UP, "fontSize": 12},
        "encoding": {"y": y, "x": {"value": 2}, "text": {"field": "name"}},
    }


def _told_apart(field: str, inside: str = INSIDE) -> Spec:
    """Colour and shape of what is inside and what is not."""
    shapes = {"condition": {"test": f"datum.{field}", "value": "circle"}, "value": "cross"}
    return {"color": _colour(field, inside), "shape": shapes}


def _colour(field: str, inside: str = INSIDE) -> Spec:
    return {"condition": {"test": f"datum.{field}", "value": inside}, "value": OUTSIDE}


def _tips(**fields: tuple[str | None, str]) -> list[Spec]:
    """What is told about a mark: of each field its format, if it is a number, and its name."""
    return [
        {"field": field, "title": title, **({} if form is None else {"format": form, "type": "quantitative"})}
        for field, (form, title) in fields.items()
    ]


def _time_tip(dates: bool) -> Spec:
    kind = {"type": "temporal", "format": "%Y-%m-%d %H:%M:%S"} if dates else {"type": "quantitative", "format": COUNT}
    return {"field": "time", "title": "time" if dates else "step", **kind}
