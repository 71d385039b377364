"""Draws the plots of docs/how-it-works.md: PYTHONPATH=. python docs/images/how_it_works.py

It takes about a minute on one core. The distributions behind the data are known, so coverage can be measured on as many
new rows as needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from sklearn.model_selection import KFold

from coverwell import MatchedRegressor, Schedule, metrics
from coverwell.plots import BAND, BAR, CENTRE, INSIDE, OTHER, OUTSIDE, PAPER, CurveStyle, draw_intervals, draw_rounds
from coverwell.regressor import AS_PUBLISHED
from tests.synthetic import laws

FOLDER = Path(__file__).parent
ASKED = 0.9
N_ROWS, N_NEW = 300, 5000


def save(figure: Figure, name: str) -> None:
    """Write the file and print its name."""
    figure.savefig(FOLDER / f"{name}.png", dpi=130)
    print(f"wrote {FOLDER.name}/{name}.png")


def draw_folds() -> None:
    """Which rows each of five members trains on, and which it leaves out."""
    n_rows, n_folds = 30, 5
    left_out = np.zeros((n_folds, n_rows))
    for member, (_, rows) in enumerate(KFold(n_folds, shuffle=True, random_state=0).split(np.empty((n_rows, 1)))):
        left_out[member, rows] = 1
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    ax = figure.subplots()
    ax.pcolormesh(left_out, cmap=ListedColormap([BAR, INSIDE]), edgecolor="white", linewidth=2)
    ax.set(xlabel="row of the table", ylabel="member", xticks=[], yticks=np.arange(n_folds) + 0.5)
    ax.set_yticklabels([str(member + 1) for member in range(n_folds)])
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.legend(
        handles=[Patch(color=BAR, label="training row"), Patch(color=INSIDE, label="left out: its out-of-fold rows")],
        loc="upper center",
        bbox_to_anchor=(0.5, 1.28),
        ncols=2,
        frameon=False,
    )
    save(figure, "folds")


def draw_cross_fitting() -> None:
    """Residuals on training rows and out-of-fold rows, next to those on new rows; and the intervals."""
    law = laws()["many inputs"]
    (X, y), (X_new, y_new) = law.draw(N_ROWS, random_state=0), law.draw(N_NEW, random_state=1)
    literal = MatchedRegressor(ASKED, random_state=0, **AS_PUBLISHED).fit(X, y)
    crossed = MatchedRegressor(ASKED, repeats=1, random_state=0).fit(X, y)

    seen, left_out = np.abs(y - literal.predict(X)), np.abs(y - crossed.out_of_fold_.prediction[:, 0])
    new, new_crossed = (np.abs(y_new - model.predict(X_new)) for model in (literal, crossed))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    bins = np.linspace(0, np.quantile(new, 0.995), 30)
    draw_pair(left, seen, new, bins, "training rows")
    draw_pair(right, left_out, new_crossed, bins, "out-of-fold rows")
    left.set(title="as published: F on its training rows", ylabel="density of rows")
    right.set(title="cross-fitted: members that left the row out")
    save(figure, "residuals")

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    draw_rows(left, literal, X_new, y_new, "as published")
    draw_rows(right, crossed, X_new, y_new, "cross-fitted, calibrated")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, "both_intervals")


def draw_rows(ax: Axes, model: MatchedRegressor, X: Any, y: Any, name: str, n_drawn: int = 60) -> None:
    """Some new rows with their intervals, and the coverage of all of them."""
    reached = metrics.coverage(y, *model.predict_interval(X))
    draw_intervals(ax, model.predict_interval(X[:n_drawn]), prediction=model.predict(X[:n_drawn]), y=y[:n_drawn])
    ax.get_legend().remove()
    for drawn in (*ax.collections, *ax.lines):  # one legend for both, without the counts
        drawn.set_label(str(drawn.get_label()).partition(" (")[0])
    ax.set(title=f"{name}: {reached:.2f} of new rows inside", xlabel="new row, by its prediction", ylabel="", xticks=[])


def draw_pair(ax: Axes, seen: Any, new: Any, bins: Any, name: str) -> None:
    """Two histograms of the size of residuals."""
    ax.hist(new, bins, density=True, color=BAR, label=f"new rows, mean {new.mean():.2f}")
    ax.hist(
        seen, bins, density=True, histtype="step", linewidth=1.8, color=OUTSIDE, label=f"{name}, mean {seen.mean():.2f}"
    )
    ax.set(xlabel="size of the residual")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)


def draw_alternation() -> None:
    """Out-of-fold error, coverage and width by round."""
    X, y = laws()["many inputs"].draw(N_ROWS, random_state=0)
    model = MatchedRegressor(ASKED, repeats=1, schedule=Schedule(patience=10, max_rounds=16), random_state=0)
    rounds = model.fit(X, y).rounds_
    figure = Figure(figsize=(9, 3), layout="constrained")
    names = {"rmse": "RMSE of F", "coverage": "coverage of I", "width": "mean width of I"}
    for ax, colour, (name, title) in zip(figure.subplots(1, 3), (INSIDE, OUTSIDE, OTHER), names.items(), strict=True):
        values = np.array([[getattr(one, name) for one in rounds]])
        draw_rounds(ax, values, style=CurveStyle(colour=colour), asked=ASKED if name == "coverage" else None)
        ax.set_title(title)
    save(figure, "alternation")


def draw_nested_levels() -> None:
    """Intervals of one fit for four levels."""
    X, y = laws()["skewed"].draw(400, random_state=0)
    levels = [0.5, 0.8, 0.9, 0.99]
    model = MatchedRegressor(levels, repeats=1, shape="interval", random_state=0).fit(X, y)
    grid = np.linspace(0, 1, 200)[:, None]
    lower, upper = model.predict_interval(grid)  # (row, level)
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    ax = figure.subplots()
    for level, shade, low, high in zip(
        levels[::-1], (PAPER, "#D6E8F4", BAND, "#7DB6DB"), lower.T[::-1], upper.T[::-1], strict=True
    ):
        ax.fill_between(grid[:, 0], low, high, facecolor=shade, edgecolor=INSIDE, linewidth=0.6, label=f"{level:.0%}")
    ax.plot(X[:, 0], y, ".", color=CENTRE, markersize=3, label="training rows")
    ax.plot(grid[:, 0], model.predict(grid), color=INSIDE, label="prediction")
    ax.set(xlabel="x")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=2, loc="lower left")
    save(figure, "levels")


if __name__ == "__main__":
    draw_folds()
    draw_cross_fitting()
    draw_alternation()
    draw_nested_levels()
