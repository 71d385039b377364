"""Charts on matplotlib's axes, which come with the extra `plots` and are imported when something is drawn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, cast, runtime_checkable

import numpy as np

from coverwell.plots.grammar import COLOURS, Axis, Chart, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS = (2.6, 6.0)  # points: the smallest and the largest mark of a step
BELOW_LABELS = 3.6  # font sizes from the axes down to a legend: tick labels and the axis label stand between
LETTER, AROUND_LABEL = 0.55, 5.0  # font sizes: an average letter, and the handle and space beside a label

P = ParamSpec("P")


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
    if ax is not None:
        return ax
    from matplotlib import pyplot  # its global state is what shows a figure that nobody holds

    new: Axes = pyplot.subplots(layout="constrained")[1]
    return new


def draw(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes, or on new ones, and return them."""
    ax = axes_or_new(ax)
    already = {line.get_gid() for line in ax.lines}
    shared = any(mark.once and mark.once in already for mark in chart.marks)
    for mark in chart.marks:
        if not mark.once or mark.once not in already:
            _draw_mark(ax, mark, chart)
    _set_axis(ax, "x", chart.x, shared=shared)
    if chart.y.kind == "slice":
        ax.set_yticks(chart.table["place"], chart.table["name"])
        ax.set_ylim(len(chart.table["place"]) - 0.5, -0.5)  # the first on top
    else:
        _set_axis(ax, "y", chart.y, shared=shared)
    ax.spines[["top", "right"]].set_visible(False)
    return legend_below(ax, from_the_right=chart.legend == "right") if chart.legend else ax


def _draw_mark(ax: Axes, mark: Mark, chart: Chart) -> None:
    look: dict[str, Any] = {"color": COLOURS.get(mark.colour, mark.colour), "label": mark.label, "zorder": mark.z}
    line = {**look, "linewidth": mark.thickness, "linestyle": mark.dash, "gid": mark.once or None}
    if mark.kind == "diagonal":
        ax.plot([0, 1], [0, 1], **line)
    elif mark.kind == "rule":
        ax.axhline(mark.y, **line) if mark.x == "" else ax.axvline(mark.x, **line)
    elif (rows := chart.rows(mark)).any():
        columns = [np.asarray(chart.table[name])[rows] for name in (mark.x, mark.y, mark.to) if name]
        _draw_rows(ax, mark, columns, look, line)


def _draw_rows(ax: Axes, mark: Mark, columns: list[Any], look: dict[str, Any], line: dict[str, Any]) -> None:
    x, y, *ends = columns
    span = {**look, "label": mark.label or "", "alpha": None if mark.opacity == 1 else mark.opacity}
    match mark.kind:
        case "line":
            ax.plot(x, y, marker=mark.marker, markersize=mark.size, **line)
        case "points":
            if mark.edge >= 0:  # below, the marker itself is a line
                look |= {"markeredgewidth": mark.edge} | ({"markeredgecolor": "white"} if mark.edge else {})
            ax.plot(x, y, linestyle="", marker=mark.marker, markersize=_size(ax, mark, len(x)), **look)
        case "area":
            ax.fill_between(x, y, *ends, linewidth=0, **span)
        case "columns":
            ax.vlines(x, y, *ends, linewidth=mark.thickness, **span)
        case "rows":
            ax.hlines(y, x, *ends, linewidth=mark.thickness, **span)
        case "bars":
            ax.bar(x, y, width=ends[0] - x, align="edge", **span)


def _size(ax: Axes, mark: Mark, n_steps: int) -> float:
    if mark.size:
        return mark.size
    room = 0.8 * ax.get_window_extent().width / ax.figure.dpi * 72 / n_steps  # points for each step, with a gap
    return float(np.clip(room, *DOTS))


def _set_axis(ax: Axes, name: str, axis: Axis, *, shared: bool) -> None:
    """Title, ends and ticks; where several charts share the axes, all of them stay in view."""
    if axis.title is not None:
        ax.set(**{f"{name}label": axis.title})
    if axis.domain is not None:
        ends = getattr(ax, f"get_{name}lim")() if shared else axis.domain
        low, high = min(axis.domain[0], ends[0]), max(axis.domain[1], ends[1])
        ax.set(**{f"{name}lim": (low, high)})
    elif axis.zero:
        highest = ax.dataLim.y1  # of all curves that were drawn here
        ax.set_ylim(0, 1.05 * highest if highest > 0 else 1)
    if axis.kind == "round":
        ax.locator_params(axis="x", integer=True)
    elif axis.kind == "time":
        _short_dates(ax)


def _short_dates(ax: Axes) -> None:
    """Dates that do not run into each other, with the rest of the date once beside them."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


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
    n_rows = -(-len(labels) // max(1, fitting))
    ax.legend(
        loc="upper right" if from_the_right else "upper center",
        bbox_to_anchor=(1.0 if from_the_right else 0.5, 0.0),
        borderaxespad=BELOW_LABELS,
        ncols=max(1, -(-len(labels) // max(1, n_rows))),
        frameon=False,
    )
    return ax
