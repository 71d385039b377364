"""How a chart is described: a table, marks that name its columns, and two axes.

matplotlib draws a description (`coverwell.plots`), and a report turns the same one into Vega-Lite (`coverwell.report`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Table = dict[str, Any]  # columns of one length

# Colours that colour-blind readers can tell apart (Okabe and Ito); markers and dashes differ as well.
COLOURS = {
    "inside": "#0072B2",
    "outside": "#D55E00",
    "bar": "#BDC3C9",
    "centre": "#444444",
    "band": "#B5D7EC",
    "other": "#00805C",
    "paper": "#F2F2F2",
    "ink": "black",
}
SLICE = 46  # pixels on a page: the name above, the marks below


@dataclass(frozen=True)
class CurveStyle:
    """How a curve looks: what tells it from others, in colour and without."""

    colour: str = COLOURS["inside"]
    marker: str = "o"
    dash: str = "-"
    thickness: float = 1.4


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and from where to where; None leaves that to the data."""

    title: str | None
    kind: Literal["number", "share", "time", "round", "slice"] = "number"
    domain: tuple[Any, Any] | None = None
    zero: bool = False  # whether it begins at zero


@dataclass(frozen=True)
class Mark:
    """One layer of a chart. x, y and `to`, the other end of an area, bar or column, name columns of the table."""

    kind: Literal["line", "area", "columns", "rows", "points", "rule", "diagonal", "bars"]
    x: Any = ""  # of a rule: its place, or "" for all across
    y: Any = ""
    to: str = ""
    colour: str = "inside"  # one of COLOURS, or any other
    label: str | None = None  # in the legend
    thickness: float = 1.4  # points, as sizes below
    dash: str = "-"
    marker: str = ""
    size: float = 6.0  # 0 is as much as the steps leave room for
    edge: float = 0.0  # white around a marker
    opacity: float = 1.0
    where: str = ""  # a column: draw rows where it is true, or with "!" before it, where it is false
    once: str = ""  # a name: drawn once, however many charts share the axes
    z: float = 2.0  # matplotlib's order, in which spines have 2.5


@dataclass(frozen=True)
class Tip:
    """A column that a page shows when a reader points at a mark, and in the table below the chart."""

    column: str
    title: str
    kind: Literal["number", "share", "count", "time", "text"] = "number"


@dataclass(frozen=True, eq=False)
class Chart:
    table: Table
    marks: Sequence[Mark]
    x: Axis
    y: Axis
    tips: Sequence[Tip] = ()
    legend: Literal["", "below", "right"] = ""  # of a figure: left to the caller, below the axes, or to their end
    height: int = 280  # pixels on a page, of slices SLICE for each

    def rows(self, mark: Mark) -> NDArray[np.bool_]:
        """The rows of the table that a mark draws; one without any is not in the legend."""
        if not mark.where:
            return np.ones(len(next(iter(self.table.values()))), dtype=bool)
        return np.asarray(self.table[mark.where.removeprefix("!")], dtype=bool) ^ mark.where.startswith("!")


def percent(share: float) -> str:
    """A share in percent: 0.975 is "97.5 %"."""
    return f"{100 * share:.4g} %"


def with_unit(name: str, unit: str | None) -> str:
    """A quantity with its unit, if that is known."""
    return name if unit is None else f"{name} ({unit})"


def shortened(name: str, most: int = 34) -> str:
    """A name of at most so many characters, with an ellipsis where it is cut."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
