"""Figure 4 of the paper, for all six series: forecast bands on the test period, and their coverage through time."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.experiments.results import Line
from coverwell.experiments.series_data import OBSERVED, SERIES
from coverwell.experiments.series_methods import COVERAGE, PICTURED
from coverwell.experiments.series_summary import UNITS, title
from coverwell.experiments.typeset import write_figure
from coverwell.intervals import PredictionInterval
from coverwell.plots import INSIDE, OTHER, CurveStyle, draw_forecast, draw_rolling_coverage

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NAMES", "draw", "write"]

Array = NDArray[np.float64]
Stamps = NDArray[Any]  # datetime64

NAMES = {method.slug: f"figure4{method.slug.removeprefix('sigma-fit')}" for method in PICTURED}
COLUMNS = 2  # series beside each other
WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT, NOTE_HEIGHT = 7.5, 3.1, 0.5, 0.9  # inches: six series fill a printed page
FONT_SIZE, TICK_SIZE = 8.0, 7.0  # points, on that page
# How much of a series is drawn, by its step in seconds: with more, bands of a series that moves far become hairlines.
SHOWN_HOURS = {300: 10, 1800: 36, 3600: 96}
FLOOR = 0.90  # what 500 steps in a row should not fall below
TARGETS = {
    "nsw2013": "demand (MW)",
    "bike sharing": "rentals per hour",
    "tas2016": "demand (MW)",
    "traffic": "1e8 bits per 5 minutes",
    "beijing pm2.5": "PM2.5 (ug/m3)",
    "air quality": "CO (mg/m3)",
}
KINDS = {"static": CurveStyle(OTHER, "", "--", 0.9), "live": CurveStyle(INSIDE, "", "-", 1.2)}
LABEL_ROOM = 0.06  # of coverage, below the lowest curve


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write a figure for each method that is pictured, as PNG and SVG. Raises ImportError without matplotlib."""
    lines = list(lines)
    written = [
        write_figure(draw(own, method), folder, name)
        for method, name in NAMES.items()
        if (own := _chosen(lines, method))
    ]
    if not written:
        raise ValueError(f"Figure 4 needs results of {' or '.join(NAMES)}, got none; run the study with them first")
    return [path for paths in written for path in paths]


def _chosen(lines: Iterable[Line], method: str) -> dict[str, Line]:
    """The line of each series: the first seed, with observed targets if there is such a run."""
    own = [line for line in lines if line["method"] == method]
    best_first = sorted(own, key=lambda line: (line["reading"] != OBSERVED, line["trial"]))
    by_series = {line["data"]: line for line in reversed(best_first)}
    return {data: by_series[data] for data in SERIES if data in by_series}


def draw(lines: dict[str, Line], method: str) -> Figure:
    """The figure of one method: for each series a stretch of forecasts, and below it the rolling coverage."""
    import matplotlib
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    columns = min(COLUMNS, len(lines))
    rows = math.ceil(len(lines) / columns)
    height = PANEL_HEIGHT * rows + LEGEND_HEIGHT + NOTE_HEIGHT
    lowest = min(share for line in lines.values() for name in KINDS for share in line["rolling"][name])
    with matplotlib.rc_context({"font.size": FONT_SIZE, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, height))
        # Places by hand: a solver of layouts may differ in the last digit from one run to the next.
        top, bottom = 1 - LEGEND_HEIGHT / height, NOTE_HEIGHT / height
        grid = figure.add_gridspec(
            rows, columns, left=0.09, right=0.98, top=top, bottom=bottom, wspace=0.24, hspace=0.24
        )
        for place, (data, line) in enumerate(lines.items()):
            cell = grid[place // columns, place % columns].subgridspec(2, 1, height_ratios=(2.4, 1), hspace=0.32)
            bands, below = figure.add_subplot(cell[0]), figure.add_subplot(cell[1])
            _draw_series(bands, below, data, line)
            below.set_ylim(lowest - LABEL_ROOM, 1.0)
        _add_legend(figure)
        _add_note(figure, method, lines)
    return figure


def _draw_series(bands: Axes, below: Axes, data: str, line: Line) -> None:
    time = _stamps(line["excerpt"])
    time = time[time - time[0] < np.timedelta64(SHOWN_HOURS[line["excerpt"]["step_seconds"]], "h")]
    _draw_bands(bands, data, line["excerpt"], time)
    _draw_rolling(below, line)
    below.axvspan(time[0], time[-1], color="#DDDDDD", zorder=0, linewidth=0)
    for ax in (bands, below):
        ax.yaxis.set_label_coords(-0.14, 0.5)


def _draw_bands(ax: Axes, data: str, excerpt: Line, time: Stamps) -> None:
    unit = UNITS[data][1]
    values = {
        name: np.array(excerpt[name], dtype=np.float64)[: len(time)] / unit  # None becomes NaN
        for name in ("y", "prediction", "lower", "upper", "static_lower", "static_upper")
    }
    live = PredictionInterval(values["lower"], values["upper"], coverage=COVERAGE)
    static = PredictionInterval(values["static_lower"], values["static_upper"], coverage=COVERAGE)
    draw_forecast(ax, time, live, prediction=values["prediction"], y=values["y"], static=static)
    came = ~np.isnan(values["y"])
    inside = {name: int(each.contains(values["y"])[came].sum()) for name, each in (("live", live), ("static", static))}
    ax.set_title(
        f"{data}: {inside['live']} of {came.sum()} inside live, {inside['static']} static",
        fontsize=FONT_SIZE,
        loc="left",
    )
    ax.set_ylabel(TARGETS[data])
    _label_dates(ax)


def _draw_rolling(ax: Axes, line: Line) -> None:
    path = line["rolling"]
    step = np.timedelta64(path["step_seconds"], "s")
    time = np.datetime64(path["start"], "s") + step * np.array(path["steps"])
    for place, (name, style) in zip((0.42, 0.02), KINDS.items(), strict=True):
        draw_rolling_coverage(ax, time, path[name], asked=COVERAGE, style=style)
        worst = f"lowest {name}: {line[name]['worst_rolling_coverage']:.3f}"
        ax.text(place, 0.06, worst, transform=ax.transAxes, color=style.colour, fontsize="small")
    ax.axhline(FLOOR, color="#888888", linewidth=0.6, linestyle=":", zorder=1)
    ax.set_xlim(time[0], time[-1])
    ax.set_ylabel("coverage")
    _label_dates(ax)


def _label_dates(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    ax.xaxis.get_offset_text().set_fontsize(TICK_SIZE)
    ax.tick_params(labelsize=TICK_SIZE)


def _stamps(excerpt: Line) -> Stamps:
    stamps: Stamps = np.datetime64(excerpt["start"], "s") + np.timedelta64(excerpt["step_seconds"], "s") * np.arange(
        len(excerpt["y"])
    )
    return stamps


def _add_legend(figure: Figure) -> None:
    found: dict[str, Artist] = {}
    for ax in figure.axes:
        found |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(list(found.values()), list(found), loc="upper center", ncols=len(found), frameon=False)


def _add_note(figure: Figure, method: str, lines: dict[str, Line]) -> None:
    devices = sorted({line["device"] for line in lines.values()})
    not_run = [data for data in SERIES if data not in lines]
    gap = f", and was not run on {_listed(not_run)}" if not_run else ""
    note = (
        f"{title(method)}, {100 * COVERAGE:.0f} % asked, one step ahead, from the middle of the test period on; ran on "
        f"{', '.join(devices)}{gap}. Shaded: the live interval, whose width follows the misses. Dashed: the same fit "
        "with the width it learned. Crosses: outside the live interval. Below: share inside among the last 500 values "
        f"that came, live (blue) and static (dashed), through the whole test period; thin line {COVERAGE}, dotted "
        f"{FLOOR:.2f}, grey the time shown above."
    )
    figure.text(0.5, 0.008, textwrap.fill(note, 135), fontsize="small", ha="center", va="bottom")


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
