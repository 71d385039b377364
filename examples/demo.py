"""A first look: four ways to rents with intervals, their scores on new flats, and a plot.

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
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from coverwell import IntervalAround, MatchedRegressor, PredictionInterval, Schedule, metrics
from coverwell.calibration import Split
from coverwell.plots import draw_intervals

Array = NDArray[np.float64]

ASKED = 0.9
SEED = 0
KEPT = 0.2  # of the buildings, for the ranks of "split"

NOTES = """\
coverage   share of the new flats inside their interval
error      |coverage - requested|, next to its expected value for exact ranks
band       contains the coverage of exact ranks nine times out of ten
RMSE, width and interval score (lower is better) are in EUR.

default               MatchedRegressor(): two teams of networks and a forest, local calibration
around a forest       IntervalAround(forest): local calibration around scikit-learn's forest of 200 trees
forest, split ranks   the same forest on 80 % of the buildings; one width for all from the ranks of the rest
MLP, split ranks      the same with scikit-learn's MLPRegressor, four hidden layers of 128, early stopping
The rents are made up, by examples/make_flats.py. benchmarks/results has real tables."""


@dataclass(frozen=True)
class Flats:
    """Flats with their rents, and the building of each."""

    X: pd.DataFrame
    y: Array
    building: NDArray[Any]

    @classmethod
    def read(cls, name: str) -> Flats:
        """From a file beside this one."""
        table = pd.read_csv(Path(__file__).with_name(name), parse_dates=["listed"])
        columns = table.drop(columns=["id", "building", "rent"])
        return cls(columns, table["rent"].to_numpy(float), table["building"].to_numpy())


@dataclass(frozen=True)
class Result:
    """One method's predictions and intervals for the new flats."""

    name: str
    prediction: Array
    interval: PredictionInterval
    n_ranked: int  # flats whose ranks set the intervals
    seconds: float = 0.0


def numbers() -> Any:
    """Text as a column for each level, dates as days, the mean and a flag for what is missing."""
    text = OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_include="str")
    gaps = SimpleImputer(add_indicator=True), make_column_selector(dtype_include=["number", "bool"])
    return make_column_transformer(text, gaps)


def methods(**more: Any) -> dict[str, Any]:
    """The estimators by their names; `more` are numbers for the networks' schedule."""
    forest = make_pipeline(numbers(), RandomForestRegressor(200, random_state=SEED))
    network = MLPRegressor(hidden_layer_sizes=(128,) * 4, early_stopping=True, max_iter=1000, random_state=SEED)
    scaled = make_pipeline(numbers(), StandardScaler(), network)
    plain = TransformedTargetRegressor(scaled, transformer=StandardScaler())
    return {
        "default": MatchedRegressor(ASKED, schedule=Schedule(**more), random_state=SEED),
        "around a forest": IntervalAround(forest, ASKED, random_state=SEED),
        "forest, split ranks": IntervalAround(forest, ASKED, calibration=Split(KEPT), random_state=SEED),
        "MLP, split ranks": IntervalAround(plain, ASKED, calibration=Split(KEPT), random_state=SEED),
    }


def compare(flats: Flats, new: Flats, **more: Any) -> list[Result]:
    """The results of all methods, fitted so that their intervals hold for buildings they have not seen."""
    results = []
    for name, model in methods(**more).items():
        started = time.perf_counter()
        model.fit(flats.X, flats.y, groups=flats.building)
        prediction, interval = model.predict(new.X), model.predict_interval(new.X)
        n_ranked = round(len(flats.y) * (KEPT if isinstance(model.calibration, Split) else 1))
        results.append(Result(name, prediction, interval, n_ranked, time.perf_counter() - started))
    return results


def report(results: Sequence[Result], y_new: Array) -> str:
    """The table of scores as text, one line per method."""
    columns = ("", "RMSE", "requested", "coverage", "error", "expected", "band", "width", "interval score", "seconds")
    cells = [columns, *(_scores(result, y_new) for result in results)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    return "\n".join(lines)


def _scores(result: Result, y_new: Array) -> tuple[str, ...]:
    lower, upper = result.interval
    low, high = metrics.coverage_band(ASKED, len(y_new), result.n_ranked)
    return (
        result.name,
        f"{metrics.rmse(y_new, result.prediction):.1f}",
        f"{ASKED:.2f}",
        f"{metrics.coverage(y_new, lower, upper):.3f}",
        f"{metrics.calibration_error(y_new, lower, upper, ASKED):.3f}",
        f"{metrics.expected_calibration_error(ASKED, len(y_new), result.n_ranked):.3f}",
        f"{low:.2f} to {high:.2f}",
        f"{metrics.average_width(lower, upper):.0f}",
        f"{metrics.interval_score(y_new, lower, upper, ASKED):.0f}",
        f"{result.seconds:.1f}",
    )


def plot_if_possible(result: Result, y_new: Array, path: Path) -> str:
    """A sentence with the file of the plot, or with what to install for it."""
    try:
        draw(result, y_new, path)
    except ImportError:
        return "No plot: matplotlib is missing. Install the extra `plots`: pip install 'coverwell[plots]'."
    return f"{path} shows the intervals of {result.name}."


def draw(result: Result, y_new: Array, path: Path) -> None:
    """Write the plot; raises ImportError if matplotlib is missing."""
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = draw_intervals(figure.subplots(), result.interval, prediction=result.prediction, y=y_new)
    inside = result.interval.contains(y_new)
    ax.set_title(
        f"{result.name}: {inside.sum():,} of {len(inside):,} new flats inside, "
        f"{100 * inside.mean():.1f} % (requested: {100 * ASKED:.0f} %)"
    )
    ax.set_xlabel("flat, from the lowest prediction to the highest")
    ax.set_ylabel("rent (EUR)")
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the time it took, and write the plot."""
    parser = argparse.ArgumentParser(description="Intervals for rents.")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="the file of the plot (default: demo.png)")
    parser.add_argument("--max-rounds", type=int, help="the maximum number of training rounds (default: the library's)")
    options = parser.parse_args(arguments)
    more = {} if options.max_rounds is None else {"max_rounds": options.max_rounds}
    started = time.perf_counter()
    flats, new = Flats.read("flats.csv"), Flats.read("flats_new.csv")
    print(f"{len(flats.y)} flats to learn from, {len(new.y):,} new ones, of other buildings; four methods", flush=True)
    results = compare(flats, new, **more)
    print(f"\n{report(results, new.y)}\n\n{NOTES}\n")
    print(plot_if_possible(results[0], new.y, options.plot))
    print(f"It took {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
