"""Arithmetic on result lines of tables: which belong together, their means over random splits, how sure those are.

Sums are exact (`statistics`), so equal lines give equal tables on every machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise

from scipy.stats import norm

from coverwell import metrics
from reproduction.data.tables import TABLES
from reproduction.lines import Line
from reproduction.methods import TABLE_METHODS, ordered
from reproduction.tables.typeset import LEGENDS, Estimate

# What a width is measured in; a variant of a table has the unit of the table whose name it starts with.
UNITS, PEERS = LEGENDS["units"], LEGENDS["peers"]
# Every method that has a title, in the order in which tables and figures show them.
TITLES = {method.slug: method.title for method in TABLE_METHODS} | dict(PEERS)
expected_error = cache(metrics.expected_calibration_error)
DEFAULT, FIRST_VERSION = "coverwell", ("sigma-fit", "iqr-fit")
OURS = (DEFAULT, *FIRST_VERSION, "sigma-fit-published", "iqr-fit-published")


class Selection:
    """Result lines of the study and of peers at one level, of the first trials, by method and table."""

    def __init__(self, lines: list[Line], peers: list[Line], *, asked: float, trials: int) -> None:
        self.asked, self.trials = asked, trials
        self.peer_methods = {line["method"] for line in peers}
        fitting = [line for line in [*lines, *peers] if has_level(line, asked) and line["trial"] < trials]
        self.methods, self.data = methods_of(fitting), data_of(fitting)
        self.competitors = [method for method in self.methods if method not in OURS]
        self.runs = {(m, data): select(fitting, method=m, data=data) for m in self.methods for data in self.data}
        self.lines = [line for run in self.runs.values() for line in run]
        if not any(line["data"] in TABLES for line in self.lines):
            raise ValueError(
                f"results at {asked} are needed on at least one of {', '.join(TABLES)}, got none among "
                f"{len(lines) + len(peers)} lines; run the study with that level first"
            )

    def of(self, method: str, data: str, trials: int | None = None) -> list[Line]:
        """One method's lines on one table, by trial; none if it was not run."""
        return [line for line in self.runs.get((method, data), []) if line["trial"] < (trials or self.trials)]


def title(method: str) -> str:
    """The name that readers see; a method that has none keeps its own."""
    return TITLES.get(method, method)


def plain_title(method: str) -> str:
    """The title without the brackets that tell ours from the method as published: what the paper calls it."""
    return title(method).partition(" (")[0]


def methods_of(lines: Iterable[Line]) -> list[str]:
    """The methods of these lines, in the order of `TITLES`, unknown ones last."""
    return ordered((line["method"] for line in lines), TITLES)


def data_of(lines: Iterable[Line]) -> list[str]:
    """The data of these lines: the six tables in their order, then variants by name."""
    return ordered((line["data"] for line in lines), TABLES)


def select(lines: Iterable[Line], *, method: str, data: str) -> list[Line]:
    """One method's lines on one table, by trial; where a trial was run with several sets of levels, the largest set."""
    own = [line for line in lines if line["method"] == method and line["data"] == data]
    chosen = sorted(own, key=lambda line: (line["trial"], -len(line["levels"])))
    for earlier, later in pairwise(chosen):
        if earlier["trial"] == later["trial"] and len(earlier["levels"]) == len(later["levels"]):
            raise ValueError(
                f"a trial must be there once, but trial {later['trial']} of {method} on {data} came twice with "
                f"{len(later['levels'])} levels; remove one of the two lines from the results"
            )
    return list({line["trial"]: line for line in reversed(chosen)}.values())[::-1]


def at(line: Line, measure: str, asked: float) -> float:
    """One measure of a line at one level; CE is |coverage - asked|, the error of the prediction has no level."""
    if measure == "rmse":
        return float(line["rmse"])
    place = _place(line, asked)
    if place is None:
        raise ValueError(f"this line must have the level {asked}, got {line['levels']}; run the study with that level")
    if measure == "calibration_error":
        return abs(float(line["coverage"][place]) - asked)
    return float(line[measure][place])


def has_level(line: Line, asked: float) -> bool:
    """Whether a line has this level."""
    return _place(line, asked) is not None


def _place(line: Line, asked: float) -> int | None:
    """Where a level stands in a line; levels that print alike are the same."""
    return next((k for k, level in enumerate(line["levels"]) if math.isclose(level, asked, abs_tol=1e-9)), None)


def estimate(values: Sequence[float], lines: Sequence[Line]) -> Estimate:
    """Mean and corrected standard error, sd * sqrt(1 / trials + n_test / n_train), of one value per line.

    Training sets of random splits overlap, so their results are not independent, and sd / sqrt(trials) is too small
    (Nadeau and Bengio 2003).
    """
    error = None
    if len(values) > 1:
        ratio = statistics.fmean(line["n_test"] / line["n_train"] for line in lines)
        error = statistics.stdev(values) * math.sqrt(1 / len(values) + ratio)
    return Estimate(statistics.fmean(values), error, len(values))


def mean_coverage_band(
    asked: float, n_test: int, n_train: int, *, trials: int, probability: float = 0.9
) -> tuple[float, float]:
    """Where the mean coverage of exact ranks over so many random splits lies with this probability.

    For scores that do not depend on the split, splits of the same rows are independent draws of
    C ~ BetaBin(n_test; k, n_train + 1 - k), so the variance of the mean is that of C / n_test over the number of
    trials. Close to normal, and cut at 0 and 1. `metrics.coverage_band` is the band of one trial.
    """
    inside = metrics.coverage_rank(asked, n_train)
    outside = n_train + 1 - inside
    every = n_train + 1
    mean = inside / every
    variance = inside * outside * (every + n_test) / (n_test * every**2 * (every + 1))
    half_width = float(norm.ppf((1 + probability) / 2)) * math.sqrt(variance / trials)
    return max(mean - half_width, 0.0), min(mean + half_width, 1.0)


def paired_ratio(own: Iterable[Line], other: Iterable[Line], read: Callable[[Line], float]) -> Estimate | None:
    """Mean of the own values over mean of the other's, on the trials that both have; None where they share none.

    The error is that of a ratio of means to first order: the corrected standard error of own - ratio * other, over
    the mean of the other.
    """
    others = {line["trial"]: line for line in other}
    pairs = [(line, others[line["trial"]]) for line in own if line["trial"] in others]
    if not pairs:
        return None
    for mine, theirs in pairs:
        if (mine["n_train"], mine["n_test"]) != (theirs["n_train"], theirs["n_test"]):
            raise ValueError(
                f"lines can be paired only on the same split, but trial {mine['trial']} of {mine['data']} has "
                f"{mine['n_train']} + {mine['n_test']} rows for {mine['method']} and {theirs['n_train']} + "
                f"{theirs['n_test']} for {theirs['method']}; run one of them again"
            )
    values = [(read(mine), read(theirs)) for mine, theirs in pairs]
    base = statistics.fmean(theirs for _, theirs in values)
    ratio = statistics.fmean(mine for mine, _ in values) / base
    rest = [(mine - ratio * theirs) / base for mine, theirs in values]
    return Estimate(ratio, estimate(rest, [mine for mine, _ in pairs]).error, len(pairs))


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean under which a ratio and its inverse cancel."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
