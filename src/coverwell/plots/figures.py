"""Whole figures of an outcome or a model, with a panel for each target, and the files they go to."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.files import new_file
from coverwell.plots.chart import COLOURS, CurveStyle, percent, with_unit
from coverwell.plots.charts import draw_calibration_curve, draw_intervals, draw_rounds, draw_slices, draw_width_curve
from coverwell.plots.classes import draw_confusion, draw_reliability, draw_set_sizes
from coverwell.prediction import PredictionInterval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from coverwell.description import ModelDescription
    from coverwell.evaluation import ClassOutcome, Outcome, SetView, View

WIDTH, SQUARE, MOST_BESIDE = 9.0, 4.5, 3  # inches of a figure and of a panel of curves; how many stand side by side
ROWS_HEIGHT, ROUNDS_HEIGHT, SLICE_HEIGHT, AROUND_SLICES = 4.6, 2.8, 0.26, 1.5  # inches
CLASS_HEIGHT, AROUND_CLASSES = 0.35, 1.6
LETTERS_PER_INCH = 11.0  # of a title
DPI = 200
UNSTAMPED: dict[str, dict[str, Any]] = {  # neither time nor version, so that a figure made again is the same file
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
TO_EXPECT = "nine of ten samples lie here if coverage is as asked"
PLAIN = CurveStyle(COLOURS["other"], "s", "--", 2.2)
ONE_WIDTH = "one width for all rows that covers as many of them"


def intervals_figure(
    outcome: Outcome,
    level: int,
    *,
    along: NDArray[Any] | None = None,
    along_name: str = "feature",
    unit: str | None = None,
    most: int = 200,
    seed: int = 0,
) -> Figure:
    """Rows with their intervals, at most `most` at random; the title counts all, even those not placed by `along`."""
    placed = np.ones(len(outcome), dtype=bool) if along is None else ~(along != along)  # NaN and NaT differ from all
    if not placed.any():
        raise ValueError(f"{along_name} is missing in every row; choose another feature")
    rows = np.flatnonzero(placed)
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    views = outcome.of_level(level)
    figure, axes = _panels(len(views), 1, (WIDTH, ROWS_HEIGHT * len(views)))
    about: dict[str, Any] = {"along": None if along is None else along[rows], "along_name": along_name, "unit": unit}
    for ax, view in zip(axes, views, strict=True):
        bounds, n = (view.lower[rows], view.upper[rows]), len(view.y)
        interval = PredictionInterval(*bounds, coverage=view.asked, target_names=(view.name,))
        draw_intervals(ax, interval, prediction=view.prediction[rows], y=view.y[rows], **about)
        absent = "" if placed.all() else f" ({np.sum(~placed):,} have no {along_name})"
        shown = f"{len(rows):,} of {n:,} rows are drawn{absent}; of all, " if len(rows) < n else ""
        _set_title(ax, f"{view.name}: {shown}{_inside(view)}")
    return figure


def calibration_figure(outcome: Outcome | ClassOutcome) -> Figure:
    """Coverage against asked coverage, with the band of nine in ten samples if coverage is as asked."""

    def draw(ax: Axes, views: list[Any]) -> None:
        levels, reached = [view.asked for view in views], [view.scores["coverage"] for view in views]
        low, high = np.array([view.scores["band"] for view in views]).T
        label = f"reached{_lone(outcome, percent(round(reached[0], 3)))}"
        draw_calibration_curve(ax, levels, reached, label=label, band=(low, high), band_label=TO_EXPECT)
        ax.set_aspect("equal")

    return _curves(outcome, draw)


def widths_figure(outcome: Outcome, *, unit: str | None = None) -> Figure:
    """Average width by asked coverage, beside the one width that would cover as many rows."""

    def draw(ax: Axes, views: list[View]) -> None:
        equal = [float(metrics.constant_width(view.y, view.prediction, view.scores["coverage"])) for view in views]
        own = [view.scores["width"] for view in views]
        for width, label, style in ((equal, ONE_WIDTH, PLAIN), (own, "average width of the intervals", None)):
            label += _lone(outcome, f"{width[0]:.4g}")
            draw_width_curve(ax, list(outcome.levels), width, unit=unit, label=label, style=style)

    return _curves(outcome, draw)


def _curves(outcome: Outcome | ClassOutcome, draw: Callable[[Axes, list[Any]], None]) -> Figure:
    """A panel of curves over the levels for each target, and one legend below them."""
    n_panels = len(outcome.target_names)
    n_columns = min(n_panels, MOST_BESIDE)
    n_rows = math.ceil(n_panels / n_columns)
    figure, axes = _panels(n_panels, n_columns, (SQUARE * max(n_columns, 1.2), SQUARE * n_rows + 0.6))
    for target, (ax, name) in enumerate(zip(axes, outcome.target_names, strict=True)):
        draw(ax, outcome.of_target(target))
        _set_title(ax, f"{name}, {len(outcome):,} rows")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=1, frameon=False)
    return figure


def reliability_figure(outcome: ClassOutcome) -> Figure:
    """How often the likeliest class is the right one, against its probability."""

    def draw(ax: Axes, views: list[SetView]) -> None:
        draw_reliability(ax, *outcome.padded)
        ax.set_aspect("equal")

    figure = _curves(outcome, draw)
    error, chance = (outcome.scores[name] for name in ("reliability_error", "expected_reliability_error"))
    told = f"{outcome.target_names[0]}, {len(outcome):,} rows: error {error:.3f}, by chance {chance:.3f}"
    _set_title(figure.axes[0], told)
    return figure


def sizes_figure(outcome: ClassOutcome, level: int) -> Figure:
    """How many rows have a set of each size, and how often the true class is in sets of this size."""
    view = outcome.views[level]
    figure, (ax,) = _panels(1, 1, (WIDTH, ROWS_HEIGHT))
    draw_set_sizes(ax, view.sets, view.y)
    told = f"{view.name}: sets of {view.scores['size']:.2f} classes on average"
    _set_title(ax, f"{told}; {_inside(view)}")
    return figure


def classes_figure(outcome: ClassOutcome, level: int, *, most: int = 12) -> Figure:
    """Of the rows of each true class, the percentage whose set holds each of the classes."""
    view = outcome.views[level]
    n_shown = min(most, len(np.unique(outcome.places[outcome.places >= 0])))
    figure, (ax,) = _panels(1, 1, (WIDTH, CLASS_HEIGHT * n_shown + AROUND_CLASSES))
    draw_confusion(ax, view.sets, view.y, most=most)
    _set_title(ax, f"{view.name}: percentage of rows whose set holds the class; {_inside(view)}")
    return figure


def slices_figure(outcome: Outcome | ClassOutcome, level: int, *, most: int = 20) -> Figure:
    """The coverage of the worst slices of the rows, for each target."""
    views = outcome.of_level(level)
    n_parts = max(len(view.slices.worst(most)) for view in views)
    figure, axes = _panels(len(views), 1, (WIDTH, (SLICE_HEIGHT * n_parts + AROUND_SLICES) * len(views)))
    for ax, view in zip(axes, views, strict=True):
        n, n_shown = len(view.slices), len(view.slices.worst(most))
        draw_slices(ax, view.slices, most=most)
        shown = f"the {n_shown} worst of {n} slices" if n_shown < n else f"all {n} slices"
        _set_title(ax, f"{view.name}: {shown}, the worst on top", room=0.6)
    return figure


def rounds_figure(model: ModelDescription, level: int, targets: Sequence[int] = (), unit: str | None = None) -> Figure:
    """Error, coverage and width by round, for each target or some of them; error and width begin at zero.

    Of classes the error is the root of the Brier score, and the threshold of scores stands for the width.
    """
    if not model.rounds:
        raise ValueError(f"rounds are those of networks, and an {model.name} has none; draw something else of it")
    shown, asked = targets or range(len(model.target_names)), model.levels[level]
    rmse, coverage, width = model.by_round
    error, size, learned = "RMSE", "average width", "width are those of the learned intervals"
    if model.classes:
        error, size, learned, width = "root of the Brier score", "average threshold", "threshold are learned", width / 2
    measures = {with_unit(error, unit): rmse, f"coverage, asked {percent(asked)}": coverage[..., level]}
    measures[with_unit(size, unit)] = width[..., level]
    figure, axes = _panels(3 * len(shown), 3, (WIDTH, ROUNDS_HEIGHT * len(shown) + 0.6))
    for row, target in enumerate(shown):
        for ax, (title, values) in zip(axes[3 * row : 3 * row + 3], measures.items(), strict=True):
            is_share = title.startswith("coverage")
            draw_rounds(ax, values[None, :, target], asked=asked if is_share else None)
            ax.set_ylim(0, 1 if is_share else None)
            _set_title(ax, title, room=1 / 3)
        axes[3 * row].set_ylabel(model.target_names[target], fontweight="bold")
    on = "rows that the networks did not train on" if model.leaves_out else "the training rows"
    note = f"Measured on {on}; coverage and {learned}, before calibration."
    figure.suptitle(textwrap.fill(note, int(WIDTH * LETTERS_PER_INCH)), fontsize="medium")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in; equal figures give equal bytes."""
    import matplotlib

    form = path.suffix.lower().removeprefix(".")
    with matplotlib.rc_context({"svg.hashsalt": "coverwell"}), new_file(path) as file:
        figure.savefig(file, format=form, dpi=DPI, metadata=UNSTAMPED[form])


def _inside(view: View | SetView) -> str:
    reached = percent(view.inside.mean().round(3))
    return f"{view.inside.sum():,} of {len(view.inside):,} inside, {reached} (asked {percent(view.asked)})"


def _lone(outcome: Outcome | ClassOutcome, value: str) -> str:
    """The value itself, for the legend, where a single panel has a single point."""
    return f": {value}" if len(outcome.levels) == len(outcome.target_names) == 1 else ""


def _panels(n: int, n_columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # no pyplot, so no window and no global state

    figure, n_rows = Figure(figsize=size, layout="constrained"), math.ceil(n / n_columns)
    return figure, [figure.add_subplot(n_rows, n_columns, place) for place in range(1, n + 1)]


def _set_title(ax: Axes, title: str, room: float = 1.0) -> None:
    """A title in lines that fit into a share of the figure's width."""
    letters = int(room * ax.figure.get_figwidth() * LETTERS_PER_INCH)  # type: ignore[union-attr]
    ax.set_title(textwrap.fill(title, letters), fontsize="medium")
