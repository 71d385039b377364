"""How a chart is described (a table, marks that name its columns, and two axes) and drawn on matplotlib's axes.

A report turns the same description into Vega-Lite. matplotlib comes with the extra `plots` and is imported when
something is drawn.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Table = dict[str, Any]  # columns of one length
P = ParamSpec("P")

# Colours that colour-blind readers can tell apart (Okabe and Ito); markers and dashes differ as well.
COLOURS = {"inside": "#0072B2", "outside": "#D55E00", "other": "#00805C", "bar": "#BDC3C9", "band": "#B5D7EC"}
COLOURS |= {"centre": "#444444", "paper": "#F2F2F2", "ink": "black"}
SLICE = 46  # pixels on a page: the name above, the marks below
BAR, CELL = 0.84, 0.94  # of the room between two places
DOTS = (2.6, 6.0)  # points: the smallest and the largest mark of a step
BELOW_LABELS = 3.6  # font sizes from the axes down to a legend: tick labels and the axis label stand between
LETTERS_ACROSS = 40  # of names side by side
LETTER, AROUND_LABEL = 0.55, 5.0  # font sizes: an average letter, and the handle and space beside a label


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
    kind: Literal["number", "share", "time", "round", "slice", "place"] = "number"
    domain: tuple[Any, Any] | None = None
    zero: bool = False  # whether it begins at zero
    names: tuple[str, ...] = ()  # of places, counted from 0; those of y go down, and then those of x stand above


@dataclass(frozen=True)
class Mark:
    """One layer of a chart. x, y and `to` name columns of the table.

    `to` is the other end of an area, bar or column; of bars at places there is none, of cells it is how strong their
    colour is (0 to 1), and of texts it is what they say.
    """

    kind: Literal["line", "area", "columns", "rows", "points", "rule", "diagonal", "bars", "cells", "texts"]
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
    return name if unit is None else f"{name} ({unit})"


def shortened(name: str, most: int = 34) -> str:
    """A name of at most so many characters, with an ellipsis where it is cut."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


@runtime_checkable
class Drawing(Protocol[P]):
    """A function that draws a chart on axes, and `chart`, which describes it alone."""

    chart: Callable[P, Chart]

    def __call__(self, ax: Axes | None, *args: P.args, **kwargs: P.kwargs) -> Axes: ...


def drawn(describe: Callable[P, Chart]) -> Drawing[P]:
    """Turn the description of a chart into a function that draws it; it takes the axes first."""

    @functools.wraps(describe)
    def drawing(ax: Axes | None, *args: P.args, **kwargs: P.kwargs) -> Axes:
        return draw(describe(*args, **kwargs), ax)

    own = inspect.signature(describe)
    first = inspect.Parameter("ax", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Axes | None")
    described = own.replace(parameters=[first, *own.parameters.values()], return_annotation="Axes")
    vars(drawing).update(chart=describe, __signature__=described)
    return cast("Drawing[P]", drawing)


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes themselves, or those of a new figure, which a notebook or `matplotlib.pyplot.show()` shows."""
    if ax is None:
        from matplotlib import pyplot  # its global state is what shows a figure that nobody holds

        ax = pyplot.subplots(layout="constrained")[1]
    return ax


def draw(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes, or on new ones, and return them."""
    ax = axes_or_new(ax)
    already = {line.get_gid() for line in ax.lines}
    new = [mark for mark in chart.marks if mark.once not in already]
    for mark in new:
        _draw_mark(ax, mark, chart)
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _set_axis(ax, name, axis, shared=len(new) < len(chart.marks))
    if chart.y.kind == "slice":
        ax.set_yticks(chart.table["place"], chart.table["name"])
        ax.set_ylim(len(chart.table["place"]) - 0.5, -0.5)  # the first on top
    ax.spines[["top", "right"]].set_visible(False)
    return legend_below(ax, from_the_right=chart.legend == "right") if chart.legend else ax


def _draw_mark(ax: Axes, mark: Mark, chart: Chart) -> None:
    rows, colour = chart.rows(mark), COLOURS.get(mark.colour, mark.colour)
    look: dict[str, Any] = {"color": colour, "zorder": mark.z}
    line: dict[str, Any] = {**look, "label": mark.label, "linewidth": mark.thickness, "linestyle": mark.dash}
    span: dict[str, Any] = {**look, "label": mark.label or "", "alpha": None if mark.opacity == 1 else mark.opacity}
    columns: Any = [np.asarray(chart.table[name])[rows] for name in (mark.x, mark.y, mark.to) if name in chart.table]
    match mark.kind:
        case "diagonal":
            ax.plot([0, 1], [0, 1], gid=mark.once or None, **line)
        case "rule":
            ax.axhline(mark.y, gid=mark.once or None, **line) if mark.x == "" else ax.axvline(mark.x, **line)
        case _ if not rows.any():
            return
        case "line":
            ax.plot(*columns, marker=mark.marker, markersize=mark.size, **line)
        case "points":
            room = 0.8 * ax.get_window_extent().width / ax.figure.dpi * 72 / rows.sum()  # points of a step, with a gap
            line |= {"linestyle": "", "marker": mark.marker, "markersize": mark.size or float(np.clip(room, *DOTS))}
            if mark.edge >= 0:  # below, the marker itself is a line
                line |= {"markeredgewidth": mark.edge} | ({"markeredgecolor": "white"} if mark.edge else {})
            ax.plot(*columns, **line)
        case "area":
            ax.fill_between(*columns, linewidth=0, **span)
        case "columns":
            ax.vlines(*columns, linewidth=mark.thickness, **span)
        case "rows":
            low, place, high = columns
            ax.hlines(place, low, high, linewidth=mark.thickness, **span)
        case "bars" if not mark.to:
            place, height = columns
            ax.bar(place, height, BAR, **span)
        case "bars":
            low, height, high = columns
            ax.bar(low, height, width=high - low, align="edge", **span)
        case "cells":
            from matplotlib.colors import to_rgba

            across, down, strength = columns
            colours = [to_rgba(colour, one) for one in strength]
            ax.bar(across, CELL, CELL, down - CELL / 2, color=colours, zorder=mark.z)
            ax.fill_between([], [], **span)  # for the legend, in full colour
        case "texts":
            for across, down, text in zip(*columns, strict=True):
                ax.text(across, down, text, ha="center", va="center", fontsize=mark.size, **look)


def _set_axis(ax: Axes, name: str, axis: Axis, *, shared: bool) -> None:
    """Title, ends and ticks; where several charts share the axes, all of them stay in view."""
    if axis.title is not None:
        ax.set(**{f"{name}label": axis.title})
    if axis.kind == "place":
        _name_places(ax, name, axis)
    elif axis.domain is not None:
        ends = getattr(ax, f"get_{name}lim")() if shared else axis.domain
        ax.set(**{f"{name}lim": (min(axis.domain[0], ends[0]), max(axis.domain[1], ends[1]))})
    elif axis.zero:
        ax.set_ylim(0, 1.05 * ax.dataLim.y1 if ax.dataLim.y1 > 0 else 1)  # of all curves that were drawn here
    if axis.kind == "round":
        ax.locator_params(axis="x", integer=True)
    elif axis.kind == "time":  # short dates, with the rest of the date once beside them
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        ax.xaxis.set_major_locator(locator := AutoDateLocator(minticks=3, maxticks=8))  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _name_places(ax: Axes, name: str, axis: Axis) -> None:
    n, ends = len(axis.names), (-0.5, len(axis.names) - 0.5)
    if name == "y":
        ax.set_yticks(range(n), axis.names)
        ax.set_ylim(*reversed(ends))
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.tick_params(length=0)
    else:
        ax.set_xticks(range(n), axis.names)
        ax.set_xlim(*ends)
        if is_turned(axis.names):
            ax.tick_params(axis="x", labelrotation=90)


def is_turned(names: Sequence[str]) -> bool:
    """Whether names of places have no room side by side."""
    return len(names) * max(map(len, names)) > LETTERS_ACROSS


def legend_below(ax: Axes, *, from_the_right: bool = False) -> Axes:
    """Put a legend under the axes, where it covers neither data nor labels, in as many columns as there is room for.

    With `from_the_right` it ends where the axes end and may reach to the left, under long tick labels.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> line = ax.plot([1, 2], label="forecast")
    >>> [text.get_text() for text in legend_below(ax).get_legend().get_texts()]
    ['forecast']
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    labels = ax.get_legend_handles_labels()[1]
    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    room = (ax.figure if from_the_right else ax).get_window_extent().width * 72 / ax.figure.dpi / size
    fitting = int(room / (LETTER * max(map(len, labels), default=0) + AROUND_LABEL))
    n_rows = max(1, math.ceil(len(labels) / max(1, fitting)))
    look: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": BELOW_LABELS}
    look |= {"loc": "upper right", "bbox_to_anchor": (1.0, 0.0)} if from_the_right else {}
    ax.legend(ncols=max(1, math.ceil(len(labels) / n_rows)), frameon=False, **look)
    return ax
