"""A page: sections of texts, tables and charts, some of them shown only for what the reader has chosen.

Charts are drawn by Vega-Lite, whose text the package vl-convert-python carries: below one megabyte inside the page.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from coverwell.files import new_file
from coverwell.plots.grammar import Chart, percent
from coverwell.report import words
from coverwell.report.vega import Spec, legend, specification

MOST_BYTES = 5_000_000
DIGITS, MOST_DIGITS = 6, 15  # of numbers in charts; a double has 15
LICENCE = (
    "Vega, Vega-Lite, Vega-Embed: Copyright (c) 2015-2026, University of Washington Interactive Data Lab, and their "
    "contributors. BSD-3-Clause licence: redistribution and use in source and binary forms, with or without "
    "modification, are permitted provided that this notice is kept; the software is provided as is, without warranty "
    "of any kind."
)
When = Mapping[str, int]  # the option of each choice that a block belongs to; empty for a block that is always shown


@dataclass(frozen=True)
class Choice:
    """What a reader may choose."""

    key: str
    label: str
    options: Sequence[str]
    chosen: int = 0


@dataclass(frozen=True)
class Text:
    """A paragraph; its tone is "plain", "good", "bad" or "note"."""

    text: str
    tone: str = "plain"
    when: When = field(default_factory=dict)
    kind = "text"


@dataclass(frozen=True)
class Figures:
    """A few numbers with their names, set large."""

    entries: Sequence[tuple[str, str]]
    when: When = field(default_factory=dict)
    kind = "figures"


@dataclass(frozen=True)
class Table:
    """A table; columns named in `texts` are set to the left. Folded, it opens on demand."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[str] = ()
    when: When = field(default_factory=dict)
    folded: bool = False
    kind = "table"


@dataclass(frozen=True)
class Graph:
    """A chart, and its content in words; what its marks show can be opened as a table if `in_numbers`."""

    chart: Chart
    caption: str
    when: When = field(default_factory=dict)
    in_numbers: bool = True
    has_legend: bool = True
    kind = "chart"

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        return legend(self.chart) if self.has_legend else []


@dataclass(frozen=True)
class Legend:
    """The legend of several charts: sign, colour and meaning of each mark."""

    legend: Sequence[tuple[str, str, str]]
    when: When = field(default_factory=dict)
    kind = "signs"


@dataclass(frozen=True)
class Image:
    """An image and boxes in it: name, left, top, width and height in fractions of its sides."""

    uri: str
    boxes: Sequence[tuple[str, float, float, float, float]]
    caption: str
    when: When = field(default_factory=dict)
    kind = "image"


Block = Text | Figures | Table | Graph | Legend | Image


@dataclass(frozen=True)
class Section:
    """A part of a page: its heading and lead are the texts of its key, the lead with some values of its own."""

    key: str
    blocks: Sequence[Block]
    choice: Choice | None = None
    beside: bool = False  # whether charts stand side by side where there is room
    lead: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    sections: Sequence[Section]
    choices: Sequence[Choice] = ()  # for the whole page


def write_page(page: Page, path: Path) -> int:
    """Write a page, whole or not at all; how many bytes it has."""
    content = rendered(page).encode()
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"a report must stay below {MOST_BYTES:,} bytes, got {len(content):,}; fit fewer targets or levels, or "
            "report on fewer groups"
        )
    with new_file(path) as file:
        file.write(content)
    return len(content)


def rendered(page: Page) -> str:
    """The whole page as HTML."""
    store = _Store()
    choices = [*page.choices, *(section.choice for section in page.sections if section.choice)]
    chosen = {choice.key: choice.chosen for choice in choices}
    assets = files("coverwell.report")
    text: str = _template("page.html.j2", autoescape=True, trim_blocks=True, finalize=_unbroken).render(
        page=page,
        choices=choices,
        shown=lambda block: all(chosen[key] == place for key, place in block.when.items()),
        prose=prose,
        place_of=store.place_of,
        as_json=_as_json,
        style=(assets / "page.css").read_text("utf-8"),
        script=(assets / "page.js").read_text("utf-8"),
        library=_chart_library,
        data=lambda: _as_json({"chosen": chosen, "specs": store.specs, "tables": store.tables}),
    )
    return text


def prose(name: str, /, **values: Any) -> str:
    """One of the texts of a report, filled with values."""
    text = getattr(_template("texts.j2").module, name)(**values)
    return " ".join(str(text).split())


@functools.cache
def _template(name: str, **options: Any) -> Any:
    jinja2 = _needed("jinja2", "jinja2")
    loader = jinja2.PackageLoader("coverwell.report", "")
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **options)
    filters = (words.share, words.span, words.number, words.counted, words.chance_of, percent)
    environment.filters |= {format.__name__: format for format in filters}
    return environment.get_template(name)


def check_library() -> None:
    """Raise before any work unless pages can be made."""
    _needed("jinja2", "jinja2")
    _needed("vl_convert", "vl-convert-python")


def library_versions() -> dict[str, str]:
    """The versions of what draws."""
    converter = _needed("vl_convert", "vl-convert-python")
    return {"vega": converter.get_vega_version(), "vl-convert-python": converter.__version__}


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


class _Store:
    """What charts share is stored once: equal specifications, and tables that are the same object."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.tables: list[dict[str, Any]] = []
        self._places: dict[Any, int] = {}

    def place_of(self, chart: Chart) -> str:
        """Where specification and table of a chart are stored."""
        spec = specification(chart)
        key = _as_json(spec)
        if key not in self._places:
            self._places[key] = len(self.specs)
            self.specs.append(spec)
        if id(chart.table) not in self._places:
            self._places[id(chart.table)] = len(self.tables)
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
