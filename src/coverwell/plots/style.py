"""How all pictures look: colours, curves, percentages, dates, legends, and axes for a caller who has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CurveStyle", "axes_or_new", "legend_below", "percent", "short_dates", "with_unit"]

# Colours that remain apart for colour-blind readers (Okabe and Ito); markers differ as well.
INSIDE, OUTSIDE, BAR, CENTRE = "#0072B2", "#D55E00", "#BDC3C9", "#444444"
BAND, OTHER = "#B5D7EC", "#00805C"
PAPER = "#F2F2F2"  # where a picture would be

BELOW_LABELS = 3.6  # font sizes from the axes down to a legend: tick labels and the axis label stand between
LETTER, AROUND_LABEL = 0.55, 5.0  # font sizes: an average letter, and the handle and space beside a label


@dataclass(frozen=True)
class CurveStyle:
    """How a curve looks: everything that tells it from another one, in colour and without."""

    colour: str = INSIDE
    marker: str = "o"
    dash: str = "-"
    thickness: float = 1.4


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes that came, or those of a new figure, which a notebook or `matplotlib.pyplot.show()` shows."""
    if ax is not None:
        return ax
    from matplotlib import pyplot  # extra `plots`; its global state is what shows a figure that nobody holds

    new: Axes = pyplot.subplots(layout="constrained")[1]
    return new


def legend_below(ax: Axes, *, from_the_right: bool = False) -> Axes:
    """A legend under the axes, where it covers neither data nor labels, in as many columns as there is room for.

    Parameters
    ----------
    ax : matplotlib Axes
        With all that the legend is to name.
    from_the_right : bool
        Whether the legend ends where the axes end and may reach to the left under long names, in place of the middle.

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


def short_dates(ax: Axes) -> None:
    """Dates along the horizontal axis that do not run into each other, with the rest of the date once beside it."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def percent(share: float) -> str:
    """A share as readers say it.

    Examples
    --------
    >>> percent(0.9), percent(0.975)
    ('90 %', '97.5 %')
    """
    return f"{100 * share:.4g} %"


def with_unit(name: str, unit: str | None) -> str:
    """The name of a quantity with its unit, if that is known.

    Examples
    --------
    >>> with_unit("width", "miles per gallon"), with_unit("width", None)
    ('width (miles per gallon)', 'width')
    """
    return name if unit is None else f"{name} ({unit})"
