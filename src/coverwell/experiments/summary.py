"""Arithmetic on result lines: which belong together, their means, how sure those are, and what exact ranks would give.

A line is one fit: a method on one trial of one table, with all its levels (see `coverwell reproduce`). Sums are exact
(`statistics`), so equal lines give equal tables on every machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from scipy.stats import norm

from coverwell import datasets, metrics
from coverwell.experiments.methods import METHODS

__all__ = [
    "DEFAULTS",
    "OURS",
    "PEERS",
    "TABLES",
    "TITLES",
    "UNITS",
    "Estimate",
    "Selection",
    "at",
    "calibration_errors",
    "corrected_error",
    "data_of",
    "epistemic",
    "estimate",
    "expected_errors",
    "first_trials",
    "geometric_mean",
    "mean_coverage_band",
    "methods_of",
    "paired_ratio",
    "plain_title",
    "select",
    "stamp",
    "title",
    "with_level",
]

Line = dict[str, Any]

TABLES = datasets.names()
# What a width is measured in; a variant of a table has the unit of the table whose name it starts with.
UNITS = {
    "crime": "scaled crime rate",
    "red wine": "quality points",
    "white wine": "quality points",
    "parkinsons": "UPDRS points",
    "boston": "thousand dollars",
    "auto mpg": "miles per gallon",
}
PEERS = {
    "mapie-cqr-boosting": "MAPIE CQR, gradient boosting",
    "mapie-cv-plus-forest": "MAPIE CV+, random forest",
    "ngboost": "NGBoost",
    "ngboost-early-stopping": "NGBoost, early stopping",
    "conformal-tights": "conformal-tights",
    "forest-oob": "random forest, out-of-bag ranks",
}
# Every method that we know by name, in the order in which tables and figures show them.
TITLES = {method.slug: method.title for method in METHODS} | PEERS
DEFAULTS = ("sigma-fit", "iqr-fit")
OURS = (*DEFAULTS, "sigma-fit-published", "iqr-fit-published")


@dataclass(frozen=True)
class Estimate:
    """A mean over trials, and its corrected standard error; one trial says nothing about its error."""

    mean: float
    error: float | None
    trials: int


class Selection:
    """Result lines at one level, of the first trials, by method and table.

    Parameters
    ----------
    lines, peers : lists of dict
        Those of the study, and those of other packages on the same splits.
    asked : float
        The level; lines without it are not used.
    trials : int
        How many trials; lines of later ones are not used.
    """

    def __init__(self, lines: list[Line], peers: list[Line], *, asked: float, trials: int) -> None:
        self.asked, self.trials = asked, trials
        self.peer_methods = {line["method"] for line in peers}
        fitting = first_trials(with_level([*lines, *peers], asked), trials)
        self.methods, self.data = methods_of(fitting), data_of(fitting)
        self.competitors = [method for method in self.methods if method not in OURS]
        self.runs = {
            (method, data): select(fitting, method=method, data=data) for method in self.methods for data in self.data
        }
        self.lines = [line for run in self.runs.values() for line in run]
        if not any(line["data"] in TABLES for line in self.lines):
            raise ValueError(
                f"results at {asked} are needed on at least one of {', '.join(TABLES)}, got none among "
                f"{len(lines) + len(peers)} lines; run the study with that level first"
            )

    def of(self, method: str, data: str, trials: int | None = None) -> list[Line]:
        """One method's lines on one table, by trial; none if it was not run."""
        return first_trials(self.runs.get((method, data), []), trials or self.trials)


def title(method: str) -> str:
    """The name that readers see; a method that we do not know keeps its own."""
    return TITLES.get(method, method)


def plain_title(method: str) -> str:
    """The title without the brackets that tell ours from the method as published: what the paper calls it."""
    return title(method).partition(" (")[0]


def methods_of(lines: Iterable[Line]) -> list[str]:
    """The methods of these lines, in the order of `TITLES`, unknown ones last."""
    known = list(TITLES)
    found = {line["method"] for line in lines}
    return sorted(found, key=lambda method: (known.index(method) if method in TITLES else len(known), method))


def data_of(lines: Iterable[Line]) -> list[str]:
    """The data of these lines: the six tables in their order, then variants by name."""
    found = {line["data"] for line in lines}
    return [name for name in TABLES if name in found] + sorted(found - set(TABLES))


def with_level(lines: Iterable[Line], asked: float) -> list[Line]:
    """The lines that have this level."""
    return [line for line in lines if _place(line, asked) is not None]


def first_trials(lines: Iterable[Line], count: int) -> list[Line]:
    """The lines of trials 0 to count - 1."""
    return [line for line in lines if line["trial"] < count]


def select(lines: Iterable[Line], *, method: str, data: str) -> list[Line]:
    """One method's lines on one table, by trial; where a trial was run with several sets of levels, the largest set."""
    own = [line for line in lines if line["method"] == method and line["data"] == data]
    chosen = sorted(own, key=lambda line: (_trial(line), -len(line["levels"])))
    for earlier, later in pairwise(chosen):
        if _trial(earlier) == _trial(later) and len(earlier["levels"]) == len(later["levels"]):
            raise ValueError(
                f"a trial must be there once, but trial {_trial(later)} of {method} on {data} came twice with "
                f"{len(later['levels'])} levels; remove one of the two lines from the results"
            )
    largest: dict[int, Line] = {}
    for line in chosen:
        largest.setdefault(_trial(line), line)
    return list(largest.values())


def epistemic(lines: Iterable[Line]) -> list[Line]:
    """The second reading of the lines that have one: coverage, width and score without the observation noise."""
    return [{**line, **line["epistemic"]} for line in lines if "epistemic" in line]


def at(line: Line, measure: str, asked: float) -> float:
    """One measure of a line at one level."""
    place = _place(line, asked)
    if place is None:
        raise ValueError(f"this line must have the level {asked}, got {line['levels']}; run the study with that level")
    return float(line[measure][place])


def estimate(values: Sequence[float], lines: Sequence[Line]) -> Estimate:
    """Mean and corrected standard error of one value per line."""
    return Estimate(statistics.fmean(values), corrected_error(values, lines), len(values))


def corrected_error(values: Sequence[float], lines: Sequence[Line]) -> float | None:
    """Corrected standard error sd * sqrt(1 / trials + n_test / n_train) of a mean over random splits.

    Training sets of random splits overlap, so their results are not independent, and sd / sqrt(trials) is too small
    (Nadeau and Bengio 2003).
    """
    if len(values) < 2:
        return None
    ratio = statistics.fmean(line["n_test"] / line["n_train"] for line in lines)
    return statistics.stdev(values) * math.sqrt(1 / len(values) + ratio)


def calibration_errors(lines: Iterable[Line], asked: float) -> list[float]:
    """|coverage - asked| of every line; their mean is the table's CE."""
    return [abs(at(line, "coverage", asked) - asked) for line in lines]


def expected_errors(lines: Iterable[Line], asked: float) -> list[float]:
    """What to expect of `calibration_errors` if all training rows were ranked exactly."""
    return [_expected_error(asked, line["n_test"], line["n_train"]) for line in lines]


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
    reach = float(norm.ppf((1 + probability) / 2)) * math.sqrt(variance / trials)
    return max(mean - reach, 0.0), min(mean + reach, 1.0)


def paired_ratio(own: Iterable[Line], other: Iterable[Line], read: Callable[[Line], float]) -> Estimate | None:
    """Mean of the own values over mean of the other's, on the trials that both have; None where they share none.

    The error is that of a ratio of means to first order: the corrected standard error of own - ratio * other, over
    the mean of the other.
    """
    others = {_trial(line): line for line in other}
    pairs = [(line, others[_trial(line)]) for line in own if _trial(line) in others]
    if not pairs:
        return None
    for mine, theirs in pairs:
        _check_same_split(mine, theirs)
    values = [(read(mine), read(theirs)) for mine, theirs in pairs]
    base = statistics.fmean(theirs for _, theirs in values)
    ratio = statistics.fmean(mine for mine, _ in values) / base
    rest = [(mine - ratio * theirs) / base for mine, theirs in values]
    return Estimate(ratio, corrected_error(rest, [mine for mine, _ in pairs]), len(pairs))


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean under which a ratio and its inverse cancel."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def stamp(lines: Iterable[Line]) -> list[str]:
    """Where these lines ran: every device with the versions that it ran, each once, sorted."""
    found = set()
    for line in lines:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(line["versions"].items()))
        found.add(f"{line['device']} ({versions})")
    return sorted(found)


def _trial(line: Line) -> int:
    return int(line["trial"])


def _place(line: Line, asked: float) -> int | None:
    """Where a level stands in a line; levels that print alike are the same."""
    places = [k for k, level in enumerate(line["levels"]) if math.isclose(level, asked, abs_tol=1e-9)]
    return places[0] if places else None


def _check_same_split(mine: Line, theirs: Line) -> None:
    sizes = [(line["n_train"], line["n_test"]) for line in (mine, theirs)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"lines can be paired only on the same split, but trial {_trial(mine)} of {mine['data']} has "
            f"{sizes[0][0]} + {sizes[0][1]} rows for {mine['method']} and {sizes[1][0]} + {sizes[1][1]} for "
            f"{theirs['method']}; run one of them again"
        )


@cache
def _expected_error(asked: float, n_test: int, n_train: int) -> float:
    return metrics.expected_calibration_error(asked, n_test, n_train)
