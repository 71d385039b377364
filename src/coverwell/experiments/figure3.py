"""Figure 3 of the paper, for all six tables: reached coverage and average width against the asked coverage."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell.experiments import summary
from coverwell.experiments.summary import TABLES, UNITS, Line
from coverwell.experiments.typeset import write_figure
from coverwell.plots import CurveStyle, draw_calibration_curve, draw_width_curve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "write"]

Array = NDArray[np.float64]

TRIALS = 20
COLUMNS = 3  # tables beside each other
WIDTH, PANEL_HEIGHT, MARGIN = 7.5, 2.2, 1.1  # inches: six tables fill a printed page
FONT_SIZE = 8.0  # points, on that page
FARTHEST = 2.0  # a curve that ends above so many times the median end leaves its panel, and a note says so
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TICKS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)

# Okabe and Ito's colours without their yellow, which print loses on white. Curves of one family share colour and
# marker and differ in dash.
BLACK, GREY, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    *("#000000", "#7F7F7F", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"),
)
SIGMA, IQR, OTHERS = 4.0, 2.2, 0.9  # thickness: curves lie on thicker ones, so that none hides another
PUBLISHED, RANKED = "--", ":"
STYLES = {
    "mc-dropout": CurveStyle(ORANGE, "^", "-", OTHERS),
    "concrete-dropout": CurveStyle(GREEN, "v", "-", OTHERS),
    "quantiles": CurveStyle(PURPLE, "s", "-", OTHERS),
    "bnn": CurveStyle(GREY, "P", "-", OTHERS),
    "hnn": CurveStyle(SKY, "D", "-", OTHERS),
    "sigma-fit-published": CurveStyle(VERMILION, "o", PUBLISHED, OTHERS),
    "sigma-fit": CurveStyle(VERMILION, "o", "-", SIGMA),
    "iqr-fit-published": CurveStyle(BLUE, "X", PUBLISHED, OTHERS),
    "iqr-fit": CurveStyle(BLUE, "X", "-", IQR),
    "deep-ensemble": CurveStyle(BLACK, "*", "-", OTHERS),
    "deep-ensemble-split": CurveStyle(BLACK, "*", RANKED, OTHERS),
    "quantiles-split": CurveStyle(PURPLE, "s", RANKED, OTHERS),
}
UNKNOWN = CurveStyle(GREY, "x", "-.", OTHERS)


@dataclass(frozen=True, eq=False)
class Curve:
    """One method on one table: means over the trials at every level."""

    method: str
    asked: Array
    coverage: Array
    width: Array
    n_trials: int
    n_test: int
    n_train: int


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write `figure3.png` and `figure3.svg`; returns both paths. Raises ImportError where matplotlib is missing."""
    return write_figure(draw(lines), folder, "figure3")


def draw(lines: Iterable[Line]) -> Figure:
    """The figure: for each table a panel of coverage, and below it a panel of widths."""
    import matplotlib
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    chosen = [line for line in summary.first_trials(lines, TRIALS) if line["data"] in TABLES]
    if not chosen:
        raise ValueError(f"Figure 3 needs results on one of {', '.join(TABLES)}, got none; run the study first")
    by_table = {name: curves_of(chosen, name) for name in summary.data_of(chosen)}
    columns = min(COLUMNS, len(by_table))
    rows = 2 * math.ceil(len(by_table) / columns)
    with matplotlib.rc_context({"font.size": FONT_SIZE, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, PANEL_HEIGHT * rows + MARGIN), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for place, (name, curves) in enumerate(by_table.items()):
            row, column = 2 * (place // columns), place % columns
            _draw_coverage(axes[row, column], name, curves)
            _draw_widths(axes[row + 1, column], name, curves)
        for ax in axes.flat:
            ax.set_visible(ax.has_data())
        _add_legend(figure)
        _add_note(figure, _trials(by_table.values()), sorted({line["device"] for line in chosen}))
    return figure


def curves_of(lines: Sequence[Line], data: str) -> list[Curve]:
    """The curve of every method that was run on this table."""
    runs = {method: summary.select(lines, method=method, data=data) for method in summary.methods_of(lines)}
    return [_curve(method, run) for method, run in runs.items() if run]


def _curve(method: str, run: list[Line]) -> Curve:
    """Means over the trials, at the levels that all trials have."""
    asked = [level for level in sorted(run[0]["levels"]) if len(summary.with_level(run, level)) == len(run)]
    if not asked:
        raise ValueError(
            f"the trials of {method} on {run[0]['data']} have no level in common; run them with the same levels"
        )
    coverage = [statistics.fmean(summary.at(line, "coverage", level) for line in run) for level in asked]
    width = [statistics.fmean(summary.at(line, "width", level) for line in run) for level in asked]
    return Curve(
        method, np.array(asked), np.array(coverage), np.array(width), len(run), run[0]["n_test"], run[0]["n_train"]
    )


def _draw_coverage(ax: Axes, data: str, curves: list[Curve]) -> None:
    for curve in _thick_first(curves):
        title, style = summary.title(curve.method), _style(curve)
        draw_calibration_curve(ax, curve.asked, curve.coverage, label=title, style=style, band=_band(curve, curves))
    ax.set_title(data, fontweight="bold")
    ax.set(xticks=SHARES, yticks=SHARES)


def _thick_first(curves: list[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda curve: -_style(curve).thickness)


def _style(curve: Curve) -> CurveStyle:
    return STYLES.get(curve.method, UNKNOWN)


def _band(curve: Curve, curves: list[Curve]) -> tuple[Array, Array] | None:
    """What exact ranks would reach, for the curve of the fewest trials; the other curves have none."""
    if curve is not min(curves, key=lambda one: one.n_trials):
        return None
    edges = [
        summary.mean_coverage_band(float(level), curve.n_test, curve.n_train, trials=curve.n_trials)
        for level in curve.asked
    ]
    low, high = np.array(edges).T  # (level, 2) -> (2, level)
    return low, high


def _draw_widths(ax: Axes, data: str, curves: list[Curve]) -> None:
    for curve in _thick_first(curves):
        draw_width_curve(ax, curve.asked, curve.width, unit=UNITS[data], style=_style(curve))
    # Normal quantiles on the axis: the widths of a normal law lie on a line, and the high levels stand apart.
    ax.set_xscale("function", functions=(_normal_quantile, _normal_coverage))
    ax.set_xlim(0, 0.994)
    ax.set_xticks(TICKS, [f"{tick}".lstrip("0") for tick in TICKS])
    ends = {summary.title(curve.method): float(curve.width.max()) for curve in curves}
    highest = FARTHEST * statistics.median(ends.values())
    ax.set_ylim(0, 1.05 * max(end for end in ends.values() if end <= highest))
    outside = [f"{title} (up to {end:.3g})" for title, end in ends.items() if end > highest]
    if outside:
        ax.set_title(textwrap.fill(f"outside the panel: {', '.join(outside)}", 48), fontsize="small", loc="left")


def _normal_quantile(coverage: Array) -> Array:
    """Half the width of a standard normal's central interval; beyond the axis it stays finite, as matplotlib needs."""
    quantile: Array = norm.ppf((1 + np.clip(coverage, 0, 0.9999)) / 2)
    return quantile


def _normal_coverage(half_width: Array) -> Array:
    coverage: Array = 2 * norm.cdf(half_width) - 1
    return coverage


def _add_legend(figure: Figure) -> None:
    """One legend for all panels, above them: every method once, in the order of the tables."""
    found: dict[str, Artist] = {}
    for ax in figure.axes:
        found |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    order = [summary.title(method) for method in summary.TITLES]
    labels = sorted(found, key=lambda label: (order.index(label) if label in order else len(order), label))
    figure.legend([found[label] for label in labels], labels, loc="outside upper center", ncols=3, frameon=False)


def _trials(curves_of_tables: Iterable[list[Curve]]) -> str:
    counts = {curve.n_trials for curves in curves_of_tables for curve in curves}
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def _add_note(figure: Figure, trials: str, devices: list[str]) -> None:
    note = (
        f"Means over {trials} trials, on test rows; ran on {', '.join(devices)}. Thin line: reached as asked. Grey: "
        "where nine of ten means would lie if ranks were exact (fewest trials). Widths start at zero; their levels are "
        "spaced by normal quantiles. A narrow width means little where the coverage above it is missed. Thick: ours by "
        "default. Dashed: ours as published. Dotted: with split ranks."
    )
    figure.supxlabel(textwrap.fill(note, 140), fontsize="small")
