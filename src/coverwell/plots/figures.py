"""Whole figures of a model: a panel for each target, with titles, legends and sizes; and the files they go to."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.files import new_file
from coverwell.intervals import PredictionInterval
from coverwell.plots.curves import draw_calibration_curve, draw_width_curve
from coverwell.plots.intervals import draw_intervals
from coverwell.plots.rounds import draw_rounds
from coverwell.plots.slices import draw_slices
from coverwell.plots.style import OTHER, CurveStyle, percent, with_unit
from coverwell.rounds import Round
from coverwell.slices import Slices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Outcome",
    "calibration_figure",
    "check_figure_name",
    "intervals_figure",
    "rounds_figure",
    "save_figure",
    "slices_figure",
    "widths_figure",
]

Array = NDArray[np.float64]

WIDTH = 9.0  # inches
SQUARE, MOST_BESIDE = 4.5, 3  # inches of a panel of curves, and how many stand side by side
ROWS_HEIGHT, ROUNDS_HEIGHT, SLICE_HEIGHT, AROUND_SLICES = 4.6, 2.8, 0.26, 1.5  # inches
LETTERS_PER_INCH = 11.0  # of a title
DPI = 200
UNSTAMPED: dict[str, dict[str, Any]] = {  # neither time nor version, so that a figure made again is the same file
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
TO_EXPECT = "nine of ten samples lie here if the intervals are right"
PLAIN = CurveStyle(OTHER, "s", "--", 2.2)
EQUALLY_WIDE = "one width for all rows that covers as many of them"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a model says about rows whose targets are known.

    Attributes
    ----------
    y, prediction : array (row, target)
    lower, upper : array (row, target, level)
    levels : tuple of float
        The asked coverages, rising.
    target_names : tuple of str
    n_ranked : int or None
        How many rows were ranked to set the intervals, where that is known.
    """

    y: Array
    prediction: Array
    lower: Array
    upper: Array
    levels: tuple[float, ...]
    target_names: tuple[str, ...]
    n_ranked: int | None

    def interval(self, target: int, level: float, rows: Any = slice(None)) -> PredictionInterval:
        """The intervals of one target at one level."""
        place = self.levels.index(level)
        lower, upper = (bound[rows, target, place] for bound in (self.lower, self.upper))
        return PredictionInterval(lower, upper, coverage=level, target_names=(self.target_names[target],))


def intervals_figure(
    outcome: Outcome,
    level: float,
    *,
    along: NDArray[Any] | None = None,
    along_name: str = "feature",
    unit: str | None = None,
    most: int = 200,
    seed: int = 0,
) -> Figure:
    """Rows with their intervals; of more than `most` rows a random sample, while the title counts them all.

    Rows without a value of `along` have no place: they are counted, and not drawn.
    """
    placed = np.ones(len(outcome.y), dtype=bool) if along is None else ~(along != along)  # NaN and NaT differ from all
    if not placed.any():
        raise ValueError(f"{along_name} is missing in every row; choose another feature")
    rows = _sample(np.flatnonzero(placed), most, seed)
    figure, axes = _below_each_other(len(outcome.target_names), ROWS_HEIGHT)
    for target, (ax, name) in enumerate(zip(axes, outcome.target_names, strict=True)):
        draw_intervals(
            ax,
            outcome.interval(target, level, rows),
            prediction=outcome.prediction[rows, target],
            y=outcome.y[rows, target],
            along=None if along is None else along[rows],
            along_name=along_name,
            unit=unit,
        )
        inside = outcome.interval(target, level).contains(outcome.y[:, target])
        absent = "" if placed.all() else f" ({np.sum(~placed):,} have no {along_name})"
        shown = f"{len(rows):,} of {len(inside):,} rows are drawn{absent}; of all, " if len(rows) < len(inside) else ""
        reached = percent(_rounded(inside.mean()))
        _set_title(ax, f"{name}: {shown}{inside.sum():,} of {len(inside):,} inside, {reached} (asked {percent(level)})")
    return figure


def calibration_figure(outcome: Outcome) -> Figure:
    """Coverage reached against coverage asked, with the band of nine in ten samples if the intervals are right.

    Right is what exact ranks of the training rows give, where it is known how many were ranked; otherwise intervals
    that hold each row with exactly the asked probability, whose band is narrower.
    """
    figure, axes = _beside_each_other(len(outcome.target_names))
    band = _to_expect(outcome)
    for target, (ax, name) in enumerate(zip(axes, outcome.target_names, strict=True)):
        reached = _reached(outcome, target)
        label = f"reached{_lone(outcome, percent(_rounded(reached[0])))}"
        draw_calibration_curve(ax, list(outcome.levels), reached, label=label, band=band, band_label=TO_EXPECT)
        ax.set_aspect("equal")
        _set_title(ax, f"{name}, {len(outcome.y):,} rows")
    _add_legend(figure, axes)
    return figure


def widths_figure(outcome: Outcome, *, unit: str | None = None) -> Figure:
    """Average width by asked coverage, beside the width that intervals without any knowledge of the row would need."""
    figure, axes = _beside_each_other(len(outcome.target_names))
    for target, (ax, name) in enumerate(zip(axes, outcome.target_names, strict=True)):
        y, prediction = outcome.y[:, target], outcome.prediction[:, target]
        equal = np.array([metrics.constant_width(y, prediction, share) for share in _reached(outcome, target)])
        own = (outcome.upper - outcome.lower)[:, target].mean(axis=0)  # (row, level) -> (level,)
        for width, label, style in (
            (equal, EQUALLY_WIDE, PLAIN),
            (own, "average width of the intervals", CurveStyle()),
        ):
            label += _lone(outcome, f"{width[0]:.4g}")
            draw_width_curve(ax, list(outcome.levels), width, unit=unit, label=label, style=style)
        _set_title(ax, f"{name}, {len(outcome.y):,} rows")
    _add_legend(figure, axes)
    return figure


def slices_figure(by_target: Mapping[str, Slices], *, most: int = 20) -> Figure:
    """The coverage of the worst parts of the rows, for each target."""
    n_parts = max(min(most, len(slices)) for slices in by_target.values())
    figure, axes = _below_each_other(len(by_target), SLICE_HEIGHT * n_parts + AROUND_SLICES)
    for ax, (name, slices) in zip(axes, by_target.items(), strict=True):
        draw_slices(ax, slices, most=most)
        shown = f"the {most} worst of {len(slices)} slices" if most < len(slices) else f"all {len(slices)} slices"
        _set_title(ax, f"{name}: {shown}, the worst on top", room=0.6)
    return figure


def rounds_figure(
    rounds: Sequence[Round],
    *,
    level: float,
    levels: tuple[float, ...],
    target_names: tuple[str, ...],
    shown: Sequence[int] | None = None,
    unit: str | None = None,
    measured_on: str = "rows that the networks did not train on",
) -> Figure:
    """Error, coverage and width by round, for each target or those `shown`; axes of error and width begin at zero."""
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    shape = (len(rounds), len(target_names), -1)  # (round, target, level), of errors without levels (round, target, 1)
    place = levels.index(level)
    measures = {
        with_unit("RMSE", unit): (np.array([one.rmse for one in rounds]).reshape(shape)[..., 0], None),
        "coverage": (np.array([one.coverage for one in rounds]).reshape(shape)[..., place], level),
        with_unit("average width", unit): (np.array([one.width for one in rounds]).reshape(shape)[..., place], None),
    }
    targets = range(len(target_names)) if shown is None else shown
    figure = Figure(figsize=(WIDTH, ROUNDS_HEIGHT * len(targets) + 0.6), layout="constrained")
    panels = figure.subplots(len(targets), len(measures), squeeze=False)
    for target, row in zip(targets, panels, strict=True):
        for ax, (measure, (values, asked)) in zip(row, measures.items(), strict=True):
            draw_rounds(ax, values[None, :, target], asked=asked)
            ax.set_ylim(0, None if asked is None else 1)
            _set_title(ax, measure if asked is None else f"{measure}, asked {percent(asked)}", room=1 / len(measures))
        row[0].set_ylabel(target_names[target], fontweight="bold")
    note = f"Measured on {measured_on}; coverage and width are those of the learned intervals, before calibration."
    figure.suptitle(textwrap.fill(note, int(WIDTH * LETTERS_PER_INCH)), fontsize="medium")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in; equal figures give equal bytes."""
    import matplotlib

    check_figure_name(path)
    form = path.suffix.lower().removeprefix(".")
    with matplotlib.rc_context({"svg.hashsalt": "coverwell"}), new_file(path) as file:
        figure.savefig(file, format=form, dpi=DPI, metadata=UNSTAMPED[form])


def check_figure_name(path: Path) -> None:
    """Raise unless the name says in which format a figure is to be written."""
    if path.suffix.lower().removeprefix(".") not in UNSTAMPED:
        raise ValueError(f"a figure must go to a file that ends in .png, .svg or .pdf; got {path.name!r}")


def _reached(outcome: Outcome, target: int) -> Array:
    """The share inside at every level."""
    y, lower, upper = outcome.y[:, target], outcome.lower[:, target], outcome.upper[:, target]
    return metrics.calibration_curve(y, lower, upper, list(outcome.levels))


def _lone(outcome: Outcome, value: str) -> str:
    """The value itself, for the legend, where a curve is a single point; of several panels it would be the first's."""
    return f": {value}" if len(outcome.levels) == len(outcome.target_names) == 1 else ""


def _to_expect(outcome: Outcome) -> tuple[Array, Array]:
    """Lowest and highest coverage to expect at every level."""
    bands = [metrics.coverage_band(level, len(outcome.y), outcome.n_ranked) for level in outcome.levels]
    low, high = np.array(bands).T
    return low, high


def _sample(rows: NDArray[np.intp], most: int, seed: int) -> NDArray[np.intp]:
    """At most so many of the rows, in their order."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _rounded(share: float) -> float:
    """To a tenth of a percent."""
    return round(float(share), 3)


def _below_each_other(n_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height * n_panels), layout="constrained")
    return figure, list(figure.subplots(n_panels, 1, squeeze=False)[:, 0])


def _beside_each_other(n_panels: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    n_columns = min(n_panels, MOST_BESIDE)
    n_rows = math.ceil(n_panels / n_columns)
    figure = Figure(figsize=(SQUARE * max(n_columns, 1.2), SQUARE * n_rows + 0.6), layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for ax in axes[n_panels:]:
        ax.set_visible(False)
    return figure, axes[:n_panels]


def _set_title(ax: Axes, title: str, room: float = 1.0) -> None:
    """A title in lines that fit into such a share of a figure's width."""
    letters = int(room * ax.figure.get_figwidth() * LETTERS_PER_INCH)  # type: ignore[union-attr]
    ax.set_title(textwrap.fill(title, letters), fontsize="medium")


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below them."""
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=1, frameon=False)
