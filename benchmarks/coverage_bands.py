"""What each calibration promises about the coverage of a fit, and the band in which it puts the mean over many fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, betabinom, kstest, norm

from coverwell.metrics import coverage_rank

Array = NDArray[np.float64]
Cumulants = tuple[float, float, float]  # the second to the fourth

PROBABILITY = 0.9999  # of a band
FOLDS = 5
# How far below the asked level "near" may be, for calibrations without a theorem: as in accuracy.md, and twice that
# for tables of few rows.
ALLOWED, OF_FEW, FEW_ROWS = 0.005, 0.01, 500
SPLIT, CV_PLUS, NONE = "split", "cv+", "none"


@dataclass(frozen=True)
class Part:
    """New rows of one fit, or of one of its groups, at one level."""

    level: float
    n_ranked: int
    n_new: int
    covered: int  # rows within their interval, ends included
    inside: int  # ends excluded
    rows_per_group: int = 0  # 0: rows are not grouped
    goes_beyond: bool = False  # whether more coverage than asked is told of: rows seen before, ends at few values


@dataclass(frozen=True)
class Promise:
    """Bounds of the expected coverage of a part, and whether its law is that of ranks, but for the allowance."""

    lowest: float
    highest: float
    by_ranks: bool


def promise_of(calibration: str, part: Part) -> Promise:
    """What a calibration promises about the rows of a part.

    The k-th smallest of n scores covers a new, exchangeable row with probability k / (n + 1) if no scores are equal.
    With groups of m rows each, a new group stands among the others: the k-th of the others' scores is at least the k-th
    of all, and at most the (k + m)-th, and a share k / (n + m) of all rows has a score of at most the k-th.
    """
    n, size = part.n_ranked, part.rows_per_group
    if calibration == NONE or (calibration == CV_PLUS and size):
        return Promise(0.0, 1.0, by_ranks=False)
    if calibration == CV_PLUS:
        term = min(2 * (1 - 1 / FOLDS) / (n / FOLDS + 1), (1 - FOLDS / n) / (FOLDS + 1))
        return Promise(max(2 * part.level - 1 - term, 0.0), 1.0, by_ranks=False)
    k = coverage_rank(part.level, n)
    lowest, highest = (k / (n + size), (k + size) / (n + size)) if size else (k / (n + 1), k / (n + 1))
    if calibration != SPLIT:
        lowest -= ALLOWED if n >= FEW_ROWS else OF_FEW
        highest = 1.0 if part.goes_beyond else by_fewer_rows(highest)
    return Promise(lowest, highest, by_ranks=not size)


def by_fewer_rows(level: float) -> float:
    """What ranks of rows that 4 / 5 of the rows have predicted cover, if errors fall with the root of that number."""
    return float(2 * norm.cdf(norm.ppf((1 + level) / 2) * np.sqrt(FOLDS / (FOLDS - 1))) - 1)


@dataclass(frozen=True)
class Cell:
    """Coverage over the new rows of some parts, and where it may lie."""

    covered: float
    inside: float
    low: float
    high: float
    n_parts: int

    @property
    def holds(self) -> bool:
        """Where many targets are equal, no interval covers a given share: it lies between open and closed ones."""
        return self.covered >= self.low and self.inside <= self.high

    @classmethod
    def of(cls, calibration: str, parts: Sequence[Part]) -> Cell:
        """The parts by one calibration: by the law of ranks where it is known, else the parts tell how they spread."""
        promises, n_new = [promise_of(calibration, part) for part in parts], np.array([part.n_new for part in parts])
        covered, inside = (np.array([getattr(part, name) for part in parts]) for name in ("covered", "inside"))
        lowest, highest = (n_new @ [getattr(one, name) for one in promises] for name in ("lowest", "highest"))
        if all(promise.by_ranks for promise in promises):
            below, above = deviations(np.sum([of_count(p.level, p.n_ranked, p.n_new) for p in parts], axis=0))
        else:
            share = covered / n_new
            above = norm.ppf((1 + PROBABILITY) / 2) * np.sqrt(n_new**2 @ (share - share.mean()) ** 2)
            below = -above
        total = n_new.sum()
        low, high = max((lowest + below) / total, 0.0), min((highest + above) / total, 1.0)
        return cls(covered.sum() / total, inside.sum() / total, low, high, len(parts))


def deviations(cumulants: Sequence[float] | Array) -> tuple[float, float]:
    """The ends of the central band of a sum, from its mean; by Cornish and Fisher."""
    variance, third, fourth = cumulants
    skewness, excess = third / variance**1.5, fourth / variance**2

    def quantile(z: float) -> float:
        by_skewness = (z**2 - 1) * skewness / 6 - (2 * z**3 - 5 * z) * skewness**2 / 36
        return float(np.sqrt(variance) * (z + by_skewness + (z**3 - 3 * z) * excess / 24))

    z = norm.ppf((1 + PROBABILITY) / 2)
    return quantile(-z), quantile(z)


@cache
def of_count(level: float, n_ranked: int, n_new: int) -> Cumulants:
    """Cumulants of the number of new rows, out of so many, that exact ranks cover."""
    k = coverage_rank(level, n_ranked)
    return _cumulants(betabinom.stats(n_new, k, n_ranked + 1 - k, moments="vsk"))


def band_of_mean(level: float, n_ranked: int, n_draws: int) -> tuple[float, float]:
    """The band of the mean coverage by exact ranks, if that of each draw is known."""
    k = coverage_rank(level, n_ranked)
    cumulants = n_draws * np.array(_cumulants(beta.stats(k, n_ranked + 1 - k, moments="vsk")))
    below, above = deviations(cumulants)
    return k / (n_ranked + 1) + below / n_draws, k / (n_ranked + 1) + above / n_draws


def _cumulants(moments: tuple[Array, Array, Array]) -> Cumulants:
    variance, skewness, excess = map(float, moments)
    return variance, skewness * variance**1.5, excess * variance**2


def spread_as_ranks(parts: Sequence[Part], rng: np.random.Generator) -> float:
    """How probable coverage that follows its law less closely is, if ranks are exact (Kolmogorov and Smirnov)."""
    places = []
    for part in parts:
        k = coverage_rank(part.level, part.n_ranked)
        below, up_to = betabinom.cdf([part.covered - 1, part.covered], part.n_new, k, part.n_ranked + 1 - k)
        places.append(below + (up_to - below) * rng.random())
    return float(kstest(places, "uniform").pvalue)
