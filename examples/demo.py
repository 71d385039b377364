"""A first look: five methods on scikit-learn's diabetes table, their scores, and a plot.

`make demo` runs it, or `python examples/demo.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.model_selection import ShuffleSplit
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coverwell import MatchedRegressor, PredictionInterval, Schedule, metrics
from coverwell.plots import draw_intervals
from coverwell.regressor import AS_PUBLISHED

Array = NDArray[np.float64]

ASKED = 0.9
SPLIT = 0
PLAIN_LAYERS = (128, 128, 128, 128)  # five linear layers, as wide as ours

NOTES = """\
coverage   share of the test rows inside their interval
error      |coverage - requested|, next to its expected value for exact ranks
band       contains the coverage of exact ranks nine times out of ten
RMSE, width and interval score (lower is better) are in points of disease progression.

default              two teams of networks and a forest, local calibration
Sigma Fit, IQR Fit   the paper's two strategies: networks alone, cross ranks
as published         Sigma Fit with one network, intervals from residuals on its training rows; no ranks
plain, split ranks   scikit-learn's MLPRegressor, early stopping, on 80 % of the training rows; ranks from the rest
This is one split of a small table: it does not show which method is better."""


@dataclass(frozen=True)
class Rows:
    """Training and test rows."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


@dataclass(frozen=True)
class Result:
    """One method's predictions and intervals for the test rows."""

    name: str
    prediction: Array
    interval: PredictionInterval
    n_ranked: int  # rows whose ranks set the intervals, or would if the method had any
    seconds: float = 0.0


def split(n_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Four rows of five to train on, the others to test on."""
    return next(ShuffleSplit(1, test_size=0.2, random_state=SPLIT).split(np.empty((n_rows, 1))))


def diabetes() -> Rows:
    """scikit-learn's bundled diabetes table, 80 to 20."""
    X, y = load_diabetes(return_X_y=True)
    train, test = split(len(y))
    return Rows(X[train], y[train], X[test], y[test])


def compare(rows: Rows, **more: Any) -> list[Result]:
    """The results of all methods; `more` are numbers for the schedule of all but the last."""
    alone = {"companions": (), "calibration": "cross", "schedule": Schedule(**more)}
    methods = {
        "default": {"schedule": Schedule(**more)},
        "Sigma Fit": {"matching": "sigma", **alone},
        "IQR Fit": {"matching": "iqr", **alone},
        "as published": {**AS_PUBLISHED, **({"schedule": Schedule(**more)} if more else {})},
    }
    results = [_matched(name, rows, settings) for name, settings in methods.items()]
    return [*results, _plain("plain, split ranks", rows)]


def _matched(name: str, rows: Rows, settings: dict[str, Any]) -> Result:
    started = time.perf_counter()
    model = MatchedRegressor(ASKED, random_state=SPLIT, **settings).fit(rows.X, rows.y)
    prediction, interval = model.predict(rows.X_test), model.predict_interval(rows.X_test)
    return Result(name, prediction, interval, len(rows.y), time.perf_counter() - started)


def _plain(name: str, rows: Rows) -> Result:
    """A network trained on the squared error; the residuals of rows it has not seen give one width for all."""
    started = time.perf_counter()
    train, kept = split(len(rows.y))
    network = MLPRegressor(hidden_layer_sizes=PLAIN_LAYERS, early_stopping=True, max_iter=1000, random_state=SPLIT)
    model = TransformedTargetRegressor(make_pipeline(StandardScaler(), network), transformer=StandardScaler())
    model.fit(rows.X[train], rows.y[train])
    residuals = np.sort(np.abs(rows.y[kept] - model.predict(rows.X[kept])))
    half_width = residuals[metrics.coverage_rank(ASKED, len(kept)) - 1]
    prediction = model.predict(rows.X_test)
    interval = PredictionInterval(prediction - half_width, prediction + half_width, coverage=ASKED)
    return Result(name, prediction, interval, len(kept), time.perf_counter() - started)


def report(results: Sequence[Result], y_test: Array) -> str:
    """The table of scores as text, one line per method."""
    columns = ("", "RMSE", "requested", "coverage", "error", "expected", "band", "width", "interval score", "seconds")
    cells = [columns, *(_scores(result, y_test) for result in results)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    return "\n".join(lines)


def _scores(result: Result, y_test: Array) -> tuple[str, ...]:
    lower, upper = result.interval
    low, high = metrics.coverage_band(ASKED, len(y_test), result.n_ranked)
    return (
        result.name,
        f"{metrics.rmse(y_test, result.prediction):.1f}",
        f"{ASKED:.2f}",
        f"{metrics.coverage(y_test, lower, upper):.3f}",
        f"{metrics.calibration_error(y_test, lower, upper, ASKED):.3f}",
        f"{metrics.expected_calibration_error(ASKED, len(y_test), result.n_ranked):.3f}",
        f"{low:.2f} to {high:.2f}",
        f"{metrics.average_width(lower, upper):.0f}",
        f"{metrics.interval_score(y_test, lower, upper, ASKED):.0f}",
        f"{result.seconds:.1f}",
    )


def plot_if_possible(result: Result, y_test: Array, path: Path) -> str:
    """A sentence with the file of the plot, or with what to install for it."""
    try:
        draw(result, y_test, path)
    except ImportError:
        return "No plot: matplotlib is missing. Install the extra `plots`: pip install 'coverwell[plots]'."
    return f"{path} shows the intervals of {result.name}."


def draw(result: Result, y_test: Array, path: Path) -> None:
    """Write the plot; raises ImportError if matplotlib is missing."""
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = draw_intervals(figure.subplots(), result.interval, prediction=result.prediction, y=y_test)
    inside = result.interval.contains(y_test)
    ax.set_title(
        f"{result.name} on diabetes: {inside.sum()} of {len(inside)} test rows inside, "
        f"{100 * inside.mean():.1f} % (requested: {100 * ASKED:.0f} %)"
    )
    ax.set_xlabel("test row, from the lowest prediction to the highest")
    ax.set_ylabel("disease progression after one year (points)")
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the time it took, and write the plot."""
    parser = argparse.ArgumentParser(description="Intervals on scikit-learn's diabetes table.")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="the file of the plot (default: demo.png)")
    parser.add_argument("--max-rounds", type=int, help="the maximum number of training rounds (default: the library's)")
    options = parser.parse_args(arguments)
    more = {} if options.max_rounds is None else {"max_rounds": options.max_rounds}
    started = time.perf_counter()
    rows = diabetes()
    print(f"diabetes: {len(rows.y)} training and {len(rows.y_test)} test rows; five methods, some seconds", flush=True)
    results = compare(rows, **more)
    print(f"\n{report(results, rows.y_test)}\n\n{NOTES}\n")
    print(plot_if_possible(results[0], rows.y_test, options.plot))
    print(f"It took {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
