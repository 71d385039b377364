"""A page about an outcome: sections that templates make, some of their blocks shown only while they are chosen.

Charts are drawn by Vega-Lite, whose text the package vl-convert-python carries: below one megabyte inside the page.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from coverwell.description import ModelDescription
from coverwell.evaluation import Outcome, View
from coverwell.files import new_file
from coverwell.plots.charts import slices_chart
from coverwell.plots.grammar import Chart, percent
from coverwell.report import charts, facts, words
from coverwell.report.vega import Spec, legend, specification
from coverwell.slices import BY_CHANCE

MOST_BYTES = 5_000_000
DIGITS, MOST_DIGITS = 6, 15  # of numbers in charts; a double has 15
SECTIONS = {  # macros of sections.html.j2, which give a piece or nothing
    "reached": "Asked and reached coverage",
    "bands": "Forecasts and observed values",
    "rolling": "Coverage over time",
    "calibration": "Coverage at every level",
    "widths": "Width against error",
    "worst": "The worst slices",
    "slices": "Coverage by feature and group",
    "misses": "The largest misses",
    "images": "Images",
    "residuals": "Residuals",
    "rounds": "Training",
    "data": "The data",
    "drift": "Test rows beside training rows",
    "provenance": "How this was made",
}
LICENCE = (
    "Vega, Vega-Lite, Vega-Embed: Copyright (c) 2015-2026, University of Washington Interactive Data Lab, and their "
    "contributors. BSD-3-Clause licence: redistribution and use in source and binary forms, with or without "
    "modification, are permitted provided that this notice is kept; the software is provided as is, without warranty "
    "of any kind."
)
STRETCHES = ("the worst stretch", "the beginning", "the end")


@dataclass(frozen=True)
class Choice:
    """What a reader may choose."""

    key: str
    label: str
    options: Sequence[str]
    chosen: int = 0


def write_page(html: str, path: Path) -> int:
    """Write a page, whole or not at all; how many bytes it has."""
    content = html.encode()
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"a report must stay below {MOST_BYTES:,} bytes, got {len(content):,}; fit fewer targets or levels, or "
            "report on fewer groups"
        )
    with new_file(path) as file:
        file.write(content)
    return len(content)


def rendered(
    outcome: Outcome,
    model: ModelDescription,
    *,
    title: str,
    subtitle: str = "",
    level: int = 0,
    source: facts.Source | None = None,
) -> str:
    """The whole page as HTML; `level` is the place of the one that is shown first."""
    store, choices = ChartStore(), _choices(outcome, level)
    chosen = {key: choice.chosen for key, choice in choices.items()}
    context = {
        "choices": choices,
        "noun": "row" if outcome.times is None else "value",
        "place_of": store.place_of,
        "shown": lambda when: all(chosen[key] == place for key, place in when.items()),
        "source": source or facts.Source(),
    }
    environment = _environment()
    macros = environment.get_template("sections.html.j2").make_module(context)
    pieces = [(key, heading, getattr(macros, key)(outcome, model).strip()) for key, heading in SECTIONS.items()]
    assets = files("coverwell.report")
    page: str = environment.get_template("page.html.j2").render(
        **context,
        title=title,
        subtitle=subtitle,
        sections=[piece for piece in pieces if piece[2]],
        data=_as_json({"chosen": chosen, "specs": store.specs, "tables": store.tables}),
        style=(assets / "page.css").read_text("utf-8"),
        script=(assets / "page.js").read_text("utf-8"),
        library=_chart_library(),
    )
    return page


def _choices(outcome: Outcome, level: int) -> dict[str, Choice]:
    levels = [percent(one) for one in outcome.levels]
    choices = [Choice("target", "Target", outcome.target_names), Choice("level", "Level", levels, level)]
    if len((first := outcome.view(0, level)).slices):
        choices.append(Choice("column", "Feature or group", *facts.slice_columns(outcome, first)))
    if outcome.times is not None:
        choices.append(Choice("stretch", "Period", STRETCHES))
    return {choice.key: choice for choice in choices}


@functools.cache
def _environment() -> Any:
    jinja2 = _needed("jinja2", "jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coverwell.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_unbroken,
    )
    filters = (words.share, words.span, words.number, words.counted, words.chance_of, percent)
    environment.filters |= {format.__name__: format for format in filters}
    environment.filters["squeezed"] = lambda text: type(text)(re.sub(r"[ \n]+", " ", text).strip())
    for module in (facts, charts):
        environment.globals |= {name: value for name, value in vars(module).items() if callable(value)}
    environment.globals |= {"slices_chart": slices_chart, "legend_of": legend, "when": _when}
    environment.globals |= {"as_json": _as_json, "BY_CHANCE": BY_CHANCE}
    return environment


def _when(view: View, **more: int) -> dict[str, int]:
    """The choices that show a view."""
    return {"target": view.target, "level": view.level, **more}


def check_library() -> None:
    """Raise before any work unless pages can be made."""
    _needed("jinja2", "jinja2")
    _needed("vl_convert", "vl-convert-python")


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        message = f'reports need {package}; install the extra `report`: pip install "coverwell[report]"'
        raise ImportError(message) from None


@functools.cache
def _chart_library() -> str:
    """The charting library as the text of a script; it takes a few seconds, so once for all pages of a process."""
    bundle: str = _needed("vl_convert", "vl-convert-python").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside a page, these three would end the script or begin a comment; within strings the backslash changes nothing.
    for ends in ("</script", "</SCRIPT", "<!--"):
        bundle = bundle.replace(ends, ends.replace("<", "\\x3c"))
    return f"/*! {LICENCE} */\n{bundle}"


def _unbroken(value: Any) -> Any:
    """A text in which no line begins with a percent sign."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


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
        key = _as_json(spec)
        if key not in self._places:
            self._places[key] = len(self.specs)
            self.specs.append(spec)
        if id(chart.table) not in self._places:
            self._places[id(chart.table)] = len(self.tables)
            self._kept.append(chart.table)
            self.tables.append({name: _column(values) for name, values in chart.table.items()})
        return f"{self._places[key]} {self._places[id(chart.table)]}"


def _column(values: Any) -> list[Any]:
    """What JSON can hold: truths as 0 and 1, dates as texts, numbers to as many digits as a chart of them shows.

    These are six, and more where the numbers differ only far behind the first digit.
    """
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


def _as_json(content: Any) -> str:
    """JSON that may stand inside a page: no text in it can end a script or an attribute."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, default=np.generic.item)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")
