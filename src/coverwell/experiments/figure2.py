"""Figure 2 of the paper: error, coverage and width by round of Algorithm 1, on the test rows.

Each run is one line of rounds.jsonl. Beside the test rows, a line has what the networks say about their own rows: those
they left out, or, as published, those they were trained on.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.ensemble import Ensemble
from coverwell.estimator import fit_together
from coverwell.experiments import study, summary
from coverwell.experiments.methods import OURS, PUBLISHED, Method, methods_from
from coverwell.experiments.results import FORMAT, KEY, Line, environment
from coverwell.experiments.typeset import write_figure
from coverwell.experiments.work import Engine, Failure
from coverwell.experiments.work import run as run_work
from coverwell.plots import CurveStyle, draw_rounds
from coverwell.training import device_from

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LEVEL_OF", "Rounds", "draw", "run", "write"]

LEVEL_OF = {"boston": 0.95, "parkinsons": 0.99}  # as in the paper
OTHER_LEVEL = 0.9
METHODS = ("sigma-fit", "iqr-fit", "sigma-fit-published", "iqr-fit-published")
MOST_ROUNDS = {OURS: 40, PUBLISHED: 50}
MEASURES = ("rmse", "coverage", "width")
FIELDS = ("format", *KEY, "test", "own", "n_train", "n_test", "seconds", "stack", "device", "versions")

WIDTH, PANEL_HEIGHT, MARGIN = 7.5, 1.75, 0.9  # inches
FONT_SIZE = 8.0
COLOURS = {"sigma-fit": "#D55E00", "iqr-fit": "#0072B2"}  # as in Figure 3
NAMES = {"sigma-fit": "Sigma Fit", "iqr-fit": "IQR Fit"}
AS_PUBLISHED = "-published"


def run(
    path: Path, *, trials: int, data: Sequence[str], device: str, quick: bool = False, on: Engine | None = None
) -> list[Failure]:
    """Add what is missing in a file of rounds; returns what went wrong."""
    return run_work(Rounds(tuple(data), trials, device, quick), path, on=on)


@dataclass(frozen=True)
class RoundsUnit:
    """All missing trials of a method on a table, fitted as one stack."""

    method: Method
    data: str
    trials: tuple[int, ...]
    device: str
    quick: bool

    def __str__(self) -> str:
        return f"{self.method.slug} on {self.data}, {len(self.trials)} trials"

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""
        per_row = self.method.cost_per_row(1, quick=self.quick)
        return float(len(self.trials) * study.table(self.data).X.size * per_row)

    def lines(self) -> list[Line]:
        """Fit the stack; one line per trial."""
        return _lines(self.method, self.data, _level(self.data), list(self.trials), self.device, quick=self.quick)


@dataclass(frozen=True)
class Rounds:
    """All runs by round that are asked for."""

    KEY: ClassVar[tuple[str, ...]] = KEY
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    data: tuple[str, ...]
    trials: int
    device: str = "auto"
    quick: bool = False

    def check_data(self) -> None:
        """Load every table, so that missing data are told before anything is written."""
        for name in self.data:
            study.table(name)

    def units(self, done: Container[Any] = ()) -> list[RoundsUnit]:
        """What is not yet done: all trials of a method on a table as one stack, the longest first."""
        units = []
        for name in self.data:
            for method in methods_from(METHODS):
                missing = [t for t in range(self.trials) if (method.slug, name, t, (_level(name),)) not in done]
                units += [RoundsUnit(method, name, tuple(missing), self.device, self.quick)] if missing else []
        return sorted(units, key=lambda unit: unit.cost, reverse=True)


def _level(data: str) -> float:
    return LEVEL_OF.get(data, OTHER_LEVEL)


def _lines(method: Method, data: str, level: float, trials: list[int], device: str, *, quick: bool) -> list[Line]:
    rows = [study.rows_of(data, trial) for trial in trials]
    models = [method.build((level,), trial, device, quick=quick)[0] for trial in trials]
    for model in models:  # the paper's figure is about I's intervals, and after so many rounds little changes
        model.set_params(shape="interval", max_rounds=min(model.max_rounds, MOST_ROUNDS[method.kind]))
    on_test: list[list[Line]] = [[] for _ in trials]

    def watch(ensembles: list[list[Ensemble]]) -> None:
        for seen, ensemble, own in zip(on_test, ensembles, rows, strict=True):
            seen.append(_measured(ensemble[0], own, level, device))

    started = time.perf_counter()
    fit_together(models, [(r.X, r.y, r.groups) for r in rows], on_round=watch)
    seconds = round((time.perf_counter() - started) / len(trials), 3)
    return [
        {
            "format": FORMAT,
            "method": method.slug,
            "data": data,
            "trial": trial,
            "seed": trial,
            "levels": [level],
            "n_train": len(r.y),
            "n_test": len(r.y_test),
            # Others of the stack may train on after a trial has settled: its own rounds are as many as it records.
            "test": {name: [one[name] for one in seen[: len(model.rounds_)]] for name in MEASURES},
            "own": {name: [float(np.squeeze(getattr(one, name))) for one in model.rounds_] for name in MEASURES},
            "seconds": seconds,
            "stack": len(trials),
            **environment(device),
        }
        for trial, r, model, seen in zip(trials, rows, models, on_test, strict=True)
    ]


def _measured(ensemble: Ensemble, rows: study.Rows, level: float, device: str) -> Line:
    """Error, coverage and width of the learned intervals on the test rows, before any ranks."""
    estimate = ensemble.estimate(rows.X_test, device_from(device))
    lower, upper = (bound[:, 0, 0] for bound in estimate.bounds(1.0))
    return {
        "rmse": metrics.rmse(rows.y_test, estimate.mean[:, 0]),
        "coverage": metrics.coverage(rows.y_test, lower, upper),
        "width": metrics.average_width(lower, upper),
    }


def write(lines: list[Line], folder: Path) -> list[Path]:
    """Write `figure2.png` and `figure2.svg`; returns both paths. Raises ImportError where matplotlib is missing."""
    return write_figure(draw(lines), folder, "figure2")


def draw(lines: list[Line]) -> Figure:
    """Two rows of panels for each table, by default and as published, with the same axes; a column for each measure."""
    import matplotlib
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    tables = [name for name in study.DATA if any(line["data"] == name for line in lines)]
    if not tables:
        raise ValueError("Figure 2 needs results by round, got none; run the command first")
    with matplotlib.rc_context({"font.size": FONT_SIZE, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, 2 * len(tables) * PANEL_HEIGHT + MARGIN), layout="constrained")
        axes = figure.subplots(2 * len(tables), len(MEASURES), squeeze=False)
        for place, data in enumerate(tables):
            for row, form in enumerate(("", AS_PUBLISHED)):
                for column, measure in enumerate(MEASURES):
                    _draw_panel(axes[2 * place + row, column], lines, data, form, measure)
            for above, below, measure in zip(axes[2 * place], axes[2 * place + 1], MEASURES, strict=True):
                _share_height(above, below, from_zero=measure == "width")
        found = {
            label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=4, frameon=False)
        figure.supxlabel(textwrap.fill(_note(lines), 140), fontsize="small")
    return figure


def _draw_panel(ax: Axes, lines: list[Line], data: str, form: str, measure: str) -> None:
    level = LEVEL_OF.get(data, OTHER_LEVEL)
    asked = level if measure == "coverage" else None
    for slug, name in NAMES.items():
        runs = [line for line in lines if line["method"] == slug + form and line["data"] == data]
        if not runs:
            continue
        own, test = (_by_round([line[rows][measure] for line in runs]) for rows in ("own", "test"))
        draw_rounds(ax, test, label=f"{name}, test rows", style=CurveStyle(COLOURS[slug], "", "-", 1.6), asked=asked)
        ax.plot(
            np.arange(1, own.shape[1] + 1),
            np.nanmean(own, axis=0),
            "--",
            color=COLOURS[slug],
            linewidth=0.8,
            label=f"{name}, own rows",
        )
    unit = "" if measure == "coverage" else f" ({summary.UNITS[_table_of(data)]})"
    ax.set_title({"rmse": "RMSE", "coverage": f"coverage, asked {level}", "width": "width"}[measure] + unit)
    ax.locator_params(axis="x", integer=True)
    if measure == MEASURES[0]:
        ax.set_ylabel(f"{data},\n{'as published' if form else 'by default'}", fontweight="bold")


def _table_of(data: str) -> str:
    return next(name for name in summary.UNITS if data.startswith(name))


def _by_round(curves: list[list[float]]) -> NDArray[np.float64]:
    """Curves of different lengths as one array (trial, round), NaN after their ends."""
    longest = max(len(curve) for curve in curves)
    return np.array([[*curve, *[math.nan] * (longest - len(curve))] for curve in curves])


def _share_height(*axes: Any, from_zero: bool) -> None:
    drawn = [ax for ax in axes if ax.lines]
    for ax in axes:
        ax.set_visible(ax in drawn)
    if not drawn:
        return
    low = 0.0 if from_zero else min(ax.get_ylim()[0] for ax in drawn)
    high = max(ax.get_ylim()[1] for ax in drawn)
    for ax in drawn:
        ax.set_ylim(low, high)


def _note(lines: list[Line]) -> str:
    trials = len({line["trial"] for line in lines})
    devices = ", ".join(sorted({line["device"] for line in lines}))
    return (
        f"Means over {trials} trials, shade from the lowest to the highest; ran on {devices}. Dotted where some trials "
        "have ended. Intervals as I learns them, before any ranks. Own rows: by default those that members left "
        "out, as published those that the network was trained on. Axes of a table are the same in both forms, and "
        "those of width begin at zero."
    )
