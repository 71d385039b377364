"""The paper's Figures 2 to 5 from result lines alone, as PNG and SVG: equal lines give equal bytes."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell import plots
from coverwell.files import new_file
from coverwell.inputs.images import images_of
from coverwell.plots import CurveStyle
from coverwell.prediction import PredictionInterval
from reproduction.data.series import SERIES
from reproduction.data.tables import TABLES
from reproduction.domains.boxes import COVERAGE, EXAMPLES, GENERATED, BoxProblem
from reproduction.domains.series import OBSERVED
from reproduction.domains.tables import DATA, LEVEL_OF, OTHER_LEVEL, ROUND_MEASURES
from reproduction.lines import Line
from reproduction.methods import BOX_METHODS, SERIES_METHODS, title_of
from reproduction.tables import splits, table2
from reproduction.tables.typeset import LEGENDS, span

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

WIDTH, DPI = 7.5, 200  # inches: a printed page
FONT_SIZE, TICK_SIZE = 8.0, 7.0  # points, on that page
# Okabe and Ito's colours without their yellow, which print loses on white.
BLACK, GREY, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    *("#000000", "#7F7F7F", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"),
)


@contextmanager
def new_figure(height: float, **layout: Any) -> Iterator[Figure]:
    """A figure of this height in inches, to be drawn inside the block. Raises ImportError without matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    with matplotlib.rc_context({"font.size": FONT_SIZE, "axes.linewidth": 0.6}):
        yield Figure(figsize=(WIDTH, height), **layout)


def _add_legend(figure: Figure, texts: Mapping[str, str] | None = None, **where: Any) -> None:
    """One legend for all panels, every label once: those with a text in the order of the texts, then the others."""
    found: dict[str, Artist] = {}
    for ax in figure.axes:
        found |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if texts is not None:
        others = {label: label for label in sorted(found) if label not in texts}
        found = {text: found[label] for label, text in {**texts, **others}.items() if label in found}
    where = {"loc": "upper center", "ncols": len(found), **where}
    figure.legend(list(found.values()), list(found), frameon=False, **where)


def _note(name: str, width: int, lines: Iterable[Line], **words: Any) -> str:
    devices = ", ".join(sorted({line["device"] for line in lines}))
    return textwrap.fill(LEGENDS[name]["note"].format(devices=devices, **words), width)


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG; returns both paths."""
    import matplotlib

    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    unstamped = ({"Software": None}, {"Date": None, "Creator": None})
    with matplotlib.rc_context({"svg.hashsalt": "coverwell"}):
        for path, metadata in zip(paths, unstamped, strict=True):
            with new_file(path) as file:
                figure.savefig(file, format=path.suffix[1:], dpi=DPI, metadata=metadata)
    return paths


# Figure 2: error, coverage and width by round of Algorithm 1, on the test rows ----------------------------------------

ROUND_STYLES = {"sigma-fit": ("Sigma Fit", VERMILION), "iqr-fit": ("IQR Fit", BLUE)}


def draw_figure2(lines: Sequence[Line]) -> Figure:
    """Two rows of panels for each table, of 0.1.0 and as published, with the same axes; a column for each measure."""
    tables = [name for name in DATA if any(line["data"] == name for line in lines)]
    if not tables:
        raise ValueError("Figure 2 needs results by round, got none; run the command first")
    with new_figure(2 * len(tables) * 1.75 + 0.9, layout="constrained") as figure:
        axes = figure.subplots(2 * len(tables), len(ROUND_MEASURES), squeeze=False)
        for place, data in enumerate(tables):
            pair = axes[2 * place : 2 * place + 2]
            for row, form in zip(pair, ("", "-published"), strict=True):
                for ax, measure in zip(row, ROUND_MEASURES, strict=True):
                    _draw_rounds(ax, lines, data, form, measure)
            for both, measure in zip(pair.T, ROUND_MEASURES, strict=True):
                _share_height(both, from_zero=measure == "width")
        _add_legend(figure, loc="outside upper center", ncols=4)
        note = _note("figure2", 140, lines, trials=len({line["trial"] for line in lines}))
        figure.supxlabel(note, fontsize="small")
    return figure


def _draw_rounds(ax: Axes, lines: Sequence[Line], data: str, form: str, measure: str) -> None:
    level = LEVEL_OF.get(data, OTHER_LEVEL)
    asked = level if measure == "coverage" else None
    for slug, (name, colour) in ROUND_STYLES.items():
        runs = [line for line in lines if line["method"] == slug + form and line["data"] == data]
        if runs:
            by_round = [
                zip_longest(*(one[rows][measure] for one in runs), fillvalue=np.nan) for rows in ("own", "test")
            ]
            own, test = (np.array(list(values)).T for values in by_round)  # (trial, round), NaN after its end
            style = CurveStyle(colour, "", "-", 1.6)
            plots.draw_rounds(ax, test, label=f"{name}, test rows", style=style, asked=asked)
            rounds, means = np.arange(1, own.shape[1] + 1), np.nanmean(own, axis=0)
            ax.plot(rounds, means, "--", color=colour, linewidth=0.8, label=f"{name}, own rows")
    unit = next(unit for table, unit in splits.UNITS.items() if data.startswith(table))
    titles = {"rmse": f"RMSE ({unit})", "coverage": f"coverage, asked {level}", "width": f"width ({unit})"}
    ax.set_title(titles[measure])
    ax.locator_params(axis="x", integer=True)
    if measure == ROUND_MEASURES[0]:
        ax.set_ylabel(f"{data},\n{'as published' if form else 'ours, 0.1.0'}", fontweight="bold")


def _share_height(axes: Iterable[Any], *, from_zero: bool) -> None:
    drawn = [ax for ax in axes if ax.lines]
    limits = [ax.get_ylim() for ax in drawn]
    for ax in axes:
        ax.set_visible(ax in drawn)
    for ax in drawn:
        ax.set_ylim(0.0 if from_zero else min(low for low, _ in limits), max(high for _, high in limits))


# Figure 3: reached coverage and average width against the asked coverage, for all six tables --------------------------

TRIALS, COLUMNS = 20, 3  # at most; tables beside each other
FARTHEST = 2.0  # a curve that ends above so many times the median end leaves its panel, with a note
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TICKS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
DEFAULT, FIRST_VERSION, OTHERS = 4.0, 2.2, 0.9  # thickness: curves lie on thicker ones, so that none hides another
PUBLISHED, EARLIER, RANKED = "--", "-.", ":"
# Curves of one family share colour and marker and differ in dash.
STYLES = {
    "mc-dropout": CurveStyle(ORANGE, "^", "-", OTHERS),
    "concrete-dropout": CurveStyle(GREEN, "v", "-", OTHERS),
    "quantiles": CurveStyle(PURPLE, "s", "-", OTHERS),
    "bnn": CurveStyle(GREY, "P", "-", OTHERS),
    "hnn": CurveStyle(SKY, "D", "-", OTHERS),
    "sigma-fit-published": CurveStyle(VERMILION, "o", PUBLISHED, OTHERS),
    "coverwell": CurveStyle(VERMILION, "o", "-", DEFAULT),
    "sigma-fit": CurveStyle(VERMILION, "o", EARLIER, FIRST_VERSION),
    "iqr-fit-published": CurveStyle(BLUE, "X", PUBLISHED, OTHERS),
    "iqr-fit": CurveStyle(BLUE, "X", EARLIER, FIRST_VERSION),
    "deep-ensemble": CurveStyle(BLACK, "*", "-", OTHERS),
    "deep-ensemble-split": CurveStyle(BLACK, "*", RANKED, OTHERS),
    "quantiles-split": CurveStyle(PURPLE, "s", RANKED, OTHERS),
}
UNKNOWN = CurveStyle(GREY, "x", "-.", OTHERS)


@dataclass(frozen=True, eq=False)
class Curve:
    """One method on one table: means over the trials at every level."""

    method: str
    runs: list[Line]
    asked: Array
    coverage: Array
    width: Array

    @property
    def style(self) -> CurveStyle:
        return STYLES.get(self.method, UNKNOWN)


def draw_figure3(lines: Iterable[Line]) -> Figure:
    """For each table a panel of coverage, and below it a panel of widths; without 0.1.0 where today's default ran."""
    chosen = [line for line in lines if line["trial"] < TRIALS and line["data"] in TABLES]
    if any(line["method"] == splits.DEFAULT for line in chosen):
        chosen = [line for line in chosen if line["method"] not in splits.FIRST_VERSION]
    if not chosen:
        raise ValueError(f"Figure 3 needs results on one of {', '.join(TABLES)}, got none; run the study first")
    by_table = {name: curves_of(chosen, name) for name in splits.data_of(chosen)}
    columns = min(COLUMNS, len(by_table))
    rows = 2 * math.ceil(len(by_table) / columns)
    with new_figure(2.2 * rows + 1.1, layout="constrained") as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for place, (name, curves) in enumerate(by_table.items()):
            row, column = 2 * (place // columns), place % columns
            _draw_curves(axes[row, column], axes[row + 1, column], name, curves)
        for ax in axes.flat:
            ax.set_visible(ax.has_data())
        titles = {title: title for title in splits.TITLES.values()}
        _add_legend(figure, titles, loc="outside upper center", ncols=3)
        trials = span({len(curve.runs) for curves in by_table.values() for curve in curves})
        figure.supxlabel(_note("figure3", 140, chosen, trials=trials), fontsize="small")
    return figure


def curves_of(lines: Sequence[Line], data: str) -> list[Curve]:
    """The curve of every method that was run on this table: means over the trials, at the levels that all have."""
    curves = []
    for method in splits.methods_of(lines):
        runs = splits.select(lines, method=method, data=data)
        if runs:
            asked = [each for each in sorted(runs[0]["levels"]) if all(splits.has_level(line, each) for line in runs)]
            if not asked:
                raise ValueError(
                    f"the trials of {method} on {data} have no level in common; run them with the same levels"
                )
            coverage, width = (
                np.array([statistics.fmean(splits.at(line, measure, level) for line in runs) for level in asked])
                for measure in ("coverage", "width")
            )
            curves.append(Curve(method, runs, np.array(asked), coverage, width))
    return curves


def _draw_curves(above: Axes, ax: Axes, data: str, curves: list[Curve]) -> None:
    fewest = min(curves, key=lambda curve: len(curve.runs))
    for curve in sorted(curves, key=lambda curve: -curve.style.thickness):
        band = coverage_band(curve) if curve is fewest else None  # the other curves have none
        title = splits.title(curve.method)
        plots.draw_calibration_curve(above, curve.asked, curve.coverage, label=title, style=curve.style, band=band)
        plots.draw_width_curve(ax, curve.asked, curve.width, unit=splits.UNITS[data], style=curve.style)
    above.set_title(data, fontweight="bold")
    above.set(xticks=SHARES, yticks=SHARES)
    # Normal quantiles on the axis: the widths of a normal law lie on a line, and the high levels stand apart. Beyond
    # the axis they stay finite, as matplotlib needs.
    ax.set_xscale(
        "function",
        functions=(
            lambda coverage: norm.ppf((1 + np.clip(coverage, 0, 0.9999)) / 2),
            lambda half_width: 2 * norm.cdf(half_width) - 1,
        ),
    )
    ax.set_xlim(0, 0.994)
    ax.set_xticks(TICKS, [f"{tick}".lstrip("0") for tick in TICKS])
    ends = {splits.title(curve.method): float(curve.width.max()) for curve in curves}
    highest = FARTHEST * statistics.median(ends.values())
    ax.set_ylim(0, 1.05 * max(end for end in ends.values() if end <= highest))
    outside = [f"{title} (up to {end:.3g})" for title, end in ends.items() if end > highest]
    if outside:
        ax.set_title(textwrap.fill(f"outside the panel: {', '.join(outside)}", 48), fontsize="small", loc="left")


def coverage_band(curve: Curve) -> tuple[Array, Array]:
    """What exact ranks would reach."""
    sizes, trials = (curve.runs[0]["n_test"], curve.runs[0]["n_train"]), len(curve.runs)
    edges = [splits.mean_coverage_band(float(level), *sizes, trials=trials) for level in curve.asked]
    low, high = np.array(edges).T  # (level, 2) -> (2, level)
    return low, high


# Figure 4: forecast bands on the test period of all six series, and their coverage through time -----------------------

FIGURE4 = {
    method.slug: f"figure4{method.slug.removeprefix('sigma-fit')}" for method in SERIES_METHODS if method.in_figure
}
PANEL_HEIGHT, LEGEND_HEIGHT, NOTE_HEIGHT = 3.1, 0.5, 0.9  # inches: six series fill a printed page
# How much of a series is drawn, by its step in seconds: with more, bands of a series that moves far become hairlines.
SHOWN_HOURS = {300: 10, 1800: 36, 3600: 96}
FLOOR = 0.90  # what 500 steps in a row should not fall below
LABEL_ROOM = 0.06  # of coverage, below the lowest curve
KINDS = {"static": CurveStyle(plots.OTHER, "", "--", 0.9), "live": CurveStyle(plots.INSIDE, "", "-", 1.2)}


def write_figure4(lines: Sequence[Line], folder: Path) -> list[Path]:
    """Write a figure for each method that is shown; returns the paths."""
    chosen = {name: (own, method) for method, name in FIGURE4.items() if (own := lines_of_figure4(lines, method))}
    if not chosen:
        raise ValueError(f"Figure 4 needs results of {' or '.join(FIGURE4)}, got none; run the study with them first")
    return [path for name, own in chosen.items() for path in write(draw_figure4(*own), folder, name)]


def lines_of_figure4(lines: Iterable[Line], method: str) -> dict[str, Line]:
    """The line of each series: the first seed, with observed targets if there are any."""
    own = [line for line in lines if line["method"] == method]
    best_last = sorted(own, key=lambda line: (line["reading"] == OBSERVED, -line["trial"]))
    by_series = {line["data"]: line for line in best_last}
    return {data: by_series[data] for data in SERIES if data in by_series}


def draw_figure4(lines: dict[str, Line], method: str) -> Figure:
    """For each series a stretch of forecasts, and below it the rolling coverage."""
    columns = min(2, len(lines))
    rows = math.ceil(len(lines) / columns)
    height = PANEL_HEIGHT * rows + LEGEND_HEIGHT + NOTE_HEIGHT
    lowest = min(share for line in lines.values() for name in KINDS for share in line["rolling"][name])
    with new_figure(height) as figure:
        # Places by hand: a solver of layouts may differ in the last digit from one run to the next.
        edges = {"left": 0.09, "right": 0.98, "top": 1 - LEGEND_HEIGHT / height, "bottom": NOTE_HEIGHT / height}
        grid = figure.add_gridspec(rows, columns, **edges, wspace=0.24, hspace=0.24)
        for place, (data, line) in enumerate(lines.items()):
            cell = grid[place // columns, place % columns].subgridspec(2, 1, height_ratios=(2.4, 1), hspace=0.32)
            bands, below = figure.add_subplot(cell[0]), figure.add_subplot(cell[1])
            time = _times(line["excerpt"], np.arange(len(line["excerpt"]["y"])))
            time = time[time - time[0] < np.timedelta64(SHOWN_HOURS[line["excerpt"]["step_seconds"]], "h")]
            _draw_bands(bands, data, line["excerpt"], time)
            _draw_rolling(below, line)
            below.axvspan(time[0], time[-1], color="#DDDDDD", zorder=0, linewidth=0)
            below.set_ylim(lowest - LABEL_ROOM, 1.0)
            for ax in (bands, below):
                ax.yaxis.set_label_coords(-0.14, 0.5)
                _label_dates(ax)
        _add_legend(figure)
        words = {"title": title_of(method, SERIES_METHODS), "percent": 100 * COVERAGE, "coverage": COVERAGE}
        *others, last = ["", *[data for data in SERIES if data not in lines]]
        named = " and ".join(filter(None, [", ".join(others[1:]), last]))
        gap = f", and was not run on {named}" if named else ""
        note = _note("figure4", 135, lines.values(), gap=gap, floor=FLOOR, **words)
        figure.text(0.5, 0.008, note, fontsize="small", ha="center", va="bottom")
    return figure


def _times(clock: Line, steps: Any) -> NDArray[Any]:
    """Time stamps of some steps."""
    stamps: NDArray[Any] = np.datetime64(clock["start"], "s") + np.timedelta64(clock["step_seconds"], "s") * steps
    return stamps


def _draw_bands(ax: Axes, data: str, excerpt: Line, time: NDArray[Any]) -> None:
    names, unit = ("y", "prediction", "lower", "upper", "static_lower", "static_upper"), table2.IN_UNIT.get(data, 1.0)
    # None becomes NaN.
    y, prediction, *bounds = (np.array(excerpt[name], dtype=np.float64)[: len(time)] / unit for name in names)
    live, static = (PredictionInterval(*pair, coverage=COVERAGE) for pair in (bounds[:2], bounds[2:]))
    plots.draw_forecast(ax, time, live, prediction=prediction, y=y, static=static)
    came = ~np.isnan(y)
    n_live, n_static = (int(each.contains(y)[came].sum()) for each in (live, static))
    title = f"{data}: {n_live} of {came.sum()} inside live, {n_static} static"
    ax.set_title(title, fontsize=FONT_SIZE, loc="left")
    ax.set_ylabel(LEGENDS["series_axes"][data])


def _draw_rolling(ax: Axes, line: Line) -> None:
    path = line["rolling"]
    time = _times(path, np.array(path["steps"]))
    for place, (name, style) in zip((0.42, 0.02), KINDS.items(), strict=True):
        plots.draw_rolling_coverage(ax, time, path[name], asked=COVERAGE, style=style)
        worst = f"lowest {name}: {line[name]['worst_rolling_coverage']:.3f}"
        ax.text(place, 0.06, worst, transform=ax.transAxes, color=style.colour, fontsize="small")
    ax.axhline(FLOOR, color="#888888", linewidth=0.6, linestyle=":", zorder=1)
    ax.set_xlim(time[0], time[-1])
    ax.set_ylabel("coverage")


def _label_dates(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    ax.xaxis.get_offset_text().set_fontsize(TICK_SIZE)
    ax.tick_params(labelsize=TICK_SIZE)


# Figure 5: true and predicted boxes, and the inner and outer boxes of the intervals -----------------------------------

PHOTOGRAPHS, PHOTOGRAPH_SIDE = "photographs", 400  # the folder of what must not be published; pixels
FIGURE5 = [method.slug for method in BOX_METHODS if method.in_figure]
BOX_TEXTS = {name: f"{name} box" for name in ("true", "predicted", "inner", "outer")}


def write_photographs(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure on photographs, as PNG, into a folder that git ignores."""
    path = folder / PHOTOGRAPHS / f"{name}.png"
    with new_file(path.with_name(".gitignore")) as file:
        file.write(b"# The photographs remain their photographers'.\n*\n")
    with new_file(path) as file:
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return [path]


def photograph(problem: BoxProblem, number: int) -> NDArray[Any]:
    """A test image by its number, squeezed to a square: (height, width, 3) in [0, 1]."""
    places = np.flatnonzero(problem.test.image_ids == number)
    if not places.size:
        raise ValueError(f"image {number} is not among the test images of {problem.data}; name the same --shards")
    seen: NDArray[Any] = images_of(problem.test.images).read(int(places[0]), PHOTOGRAPH_SIDE).permute(1, 2, 0).numpy()
    return seen


def line_of_figure5(lines: Iterable[Line]) -> Line:
    """The first seed of the first method that is shown."""
    own = [line for line in lines if "examples" in line and line["method"] in FIGURE5]
    if not own:
        raise ValueError(f"Figure 5 needs results of {' or '.join(FIGURE5)}, got none; run the study with them first")
    return min(own, key=lambda line: (FIGURE5.index(line["method"]), line["trial"]))


def draw_figure5(line: Line, problem: BoxProblem | None = None) -> Figure:
    """A row each for the narrowest, the middle and the widest intervals, on the photographs of a problem if given."""
    examples = [line["examples"][name] for name in EXAMPLES]
    height = 2.35 * len(EXAMPLES) + 0.5 + 1.25
    with new_figure(height) as figure:
        # Places by hand, as in Figure 4.
        edges = {"left": 0.1, "right": 0.985, "top": 1 - 0.5 / height, "bottom": 1.25 / height}
        grid = figure.add_gridspec(len(EXAMPLES), max(map(len, examples)), **edges, wspace=0.2, hspace=0.2)
        for row, shown in enumerate(examples):
            for column, example in enumerate(shown):
                ax = figure.add_subplot(grid[row, column])
                boxes = {name: np.array(example[name]) for name in ("lower", "upper", "prediction", "truth", "size")}
                below = None if problem is None else photograph(problem, example["image_id"])
                plots.draw_box(ax, **boxes, image=below)
                ax.set_title(f"image {example['image_id']}: {example['width_percent']:.1f} %", fontsize=FONT_SIZE)
                ax.tick_params(labelsize=TICK_SIZE)
                ax.set_ylabel(f"{EXAMPLES[row]}\npixels" if column == 0 else "")
                ax.set_xlabel("pixels" if row == len(EXAMPLES) - 1 else "")
        _to_one_scale(figure)
        _add_legend(figure, BOX_TEXTS)
        words = {"title": title_of(line["method"], BOX_METHODS), "percent": 100 * COVERAGE, "n": len(examples[0])}
        words |= {"seed": line["seed"], "n_test": line["n_test"]}
        alone = "" if problem else " The photographs are not ours to print: boxes alone."
        generated = " These numbers mean nothing: images of our own making." * (line["data"] == GENERATED)
        note = _note("figure5", 135, [line], **words, alone=alone, generated=generated)
        figure.text(0.5, 0.008, note, fontsize="small", ha="center", va="bottom")
    return figure


def _to_one_scale(figure: Figure) -> None:
    """Let all panels show squares of one size, so that an inch is as many pixels in each of them."""
    limits = [(ax, np.array(ax.get_xlim()), np.array(ax.get_ylim())) for ax in figure.axes]
    span = max(float(np.ptp(ends)) for _, *both in limits for ends in both)
    for ax, x, y in limits:
        ax.set_xlim(x.min(), x.min() + span)
        ax.set_ylim(y.min() + span, y.min())
