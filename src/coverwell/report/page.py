"""A page: sections of texts, tables and charts, some of them shown only for what the reader has chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from coverwell.files import new_file
from coverwell.report.charts import Spec
from coverwell.report.library import chart_library, needed_jinja

__all__ = [
    "Chart",
    "Choice",
    "Figures",
    "Legend",
    "Mark",
    "Page",
    "Section",
    "Table",
    "Text",
    "When",
    "rendered",
    "write_page",
]

MOST_BYTES = 5_000_000
DIGITS, MOST_DIGITS = 6, 15  # of numbers in charts; 15 are all that a number has
Record = Mapping[str, Any]
When = Mapping[str, int]  # which option of each choice a block is about; a block about all of them says nothing


@dataclass(frozen=True)
class Choice:
    """What a reader may choose."""

    key: str
    label: str
    options: tuple[str, ...]
    chosen: int = 0

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.options) > 1


@dataclass(frozen=True)
class Mark:
    """A sign of a chart, and what it stands for; colours never tell alone."""

    sign: str
    colour: str  # the name of a colour of the style sheet
    text: str


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

    entries: tuple[tuple[str, str], ...]
    when: When = field(default_factory=dict)
    kind = "figures"


@dataclass(frozen=True)
class Table:
    """A table; columns named in `texts` are set to the left, the others as numbers. Folded, it opens on demand."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    texts: tuple[str, ...] = ()
    when: When = field(default_factory=dict)
    folded: bool = False
    kind = "table"


@dataclass(frozen=True)
class Chart:
    """A chart: how it is drawn, the records that it shows, and in words what is to be seen.

    What it tells of a mark that is pointed at can be opened as a table, unless `in_numbers` is false.
    """

    spec: Spec
    records: Sequence[Record]
    told: str
    marks: tuple[Mark, ...] = ()
    when: When = field(default_factory=dict)
    in_numbers: bool = True
    kind = "chart"


@dataclass(frozen=True)
class Legend:
    """Signs that several charts share."""

    marks: tuple[Mark, ...]
    when: When = field(default_factory=dict)
    kind = "signs"


Block = Text | Figures | Table | Chart | Legend


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, a sentence for readers who are no statisticians, blocks, and a choice of its own."""

    key: str
    heading: str
    lead: str
    blocks: Sequence[Block]
    choice: Choice | None = None
    beside: bool = False  # whether charts stand side by side where there is room


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    sections: Sequence[Section]
    choices: tuple[Choice, ...] = ()  # for the whole page


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
    jinja2 = needed_jinja()
    assets = files("coverwell.report") / "assets"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_unbroken
    )
    store = _Store()
    all_choices = [*page.choices, *(section.choice for section in page.sections if section.choice)]
    chosen = {choice.key: choice.chosen for choice in all_choices}
    text: str = environment.from_string((assets / "page.html").read_text("utf-8")).render(
        page=page,
        chosen=chosen,
        choices=all_choices,
        shown=lambda block: all(chosen[key] == place for key, place in block.when.items()),
        place_of=store.place_of,
        as_json=_as_json,
        style=(assets / "page.css").read_text("utf-8"),
        script=(assets / "page.js").read_text("utf-8"),
        library=chart_library,
        data=lambda: _as_json({"chosen": chosen, "specs": store.specs, "tables": store.tables}),
    )
    return text


def _unbroken(value: Any) -> Any:
    """A text in which no line begins with a percent sign."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


class _Store:
    """What charts share is stored once: specifications that are equal, and records that are the same list."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.tables: list[dict[str, Any]] = []
        self._spec_places: dict[str, int] = {}
        self._table_places: dict[int, int] = {}

    def place_of(self, chart: Chart) -> str:
        """Where specification and records of a chart are stored."""
        text = _as_json(chart.spec)
        if text not in self._spec_places:
            self._spec_places[text] = len(self.specs)
            self.specs.append(chart.spec)
        if id(chart.records) not in self._table_places:
            self._table_places[id(chart.records)] = len(self.tables)
            self.tables.append(_by_columns(chart.records))
        return f"{self._spec_places[text]} {self._table_places[id(chart.records)]}"


def _by_columns(records: Sequence[Record]) -> dict[str, Any]:
    """The names of the fields once, and the values of each."""
    names = list(records[0]) if records else []
    return {name: _rounded([record[name] for record in records]) for name in names}


def _rounded(values: list[Any]) -> list[Any]:
    """Numbers to as many digits as a chart of them shows: six, and more where they differ only far behind the first."""
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    lowest, highest = min(numbers, default=0.0), max(numbers, default=0.0)
    apart, largest = highest - lowest, max(abs(lowest), abs(highest))
    hidden = max(0, math.ceil(math.log10(largest / apart))) if 0 < apart < math.inf else 0
    return [_plain(value, min(DIGITS + hidden, MOST_DIGITS)) for value in values]


def _as_json(content: Any) -> str:
    """JSON that may stand inside a page: no text in it can end a script or an attribute."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, default=_plain)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")


def _plain(value: Any, digits: int = DIGITS) -> Any:
    """What JSON can hold: numbers to some digits, and nothing for what is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
