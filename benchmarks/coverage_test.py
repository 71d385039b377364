"""Coverage as a test: every calibration on laws drawn at random, at five levels, beside the band of what it promises.

Fits are small and often bad, since a promise holds for any fit. One JSON line per law goes to results/coverage.jsonl,
with the counts of new rows that each method covers; what is there is not run again, so that the command can be stopped
and started at will. The tables in results/coverage.md are made from those lines alone. Some of the laws are run again
with ranks that are broken on purpose, which must be found. The exit status is 1 if a cell is outside its band, or if
what is broken is not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from coverage_bands import SPLIT
from coverage_report import failures, report
from numpy.typing import NDArray
from random_laws import HAS_FRAMES, Law
from result_lines import environment, read_lines
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from table_fits import LEVELS, Line, levels_for, run_jobs

from coverwell import MLP, IntervalAround, MatchedRegressor, Schedule, calibration, groups, local
from coverwell.baselines import HeteroscedasticRegressor, NeuralQuantileRegressor
from coverwell.calibration import CVPlus, Split
from coverwell.estimator import IntervalRegressor
from coverwell.training import rows as training_rows

N_LAWS, N_QUICK = 1000, 40
N_BROKEN = {"rank": 150, "leak": 300}  # a leak moves coverage less
N_NEW = 3000  # rows for each fit
CALIBRATIONS = ("local", "cross", "cv+", SPLIT)
ROUNDING = 1e-9  # of ends, in standard deviations of y
LEAK = 0.05  # of the ranked rows

# What is dealt to each law. A fit may be bad: nothing here was chosen by a score.
NETWORKS = (
    MLP(hidden=8, layers=1, dropout=0.0, bins=0),
    MLP(hidden=16, layers=2, bins=8),
    MLP(hidden=32, layers=2, dropout=0.0, bins=0),
    None,
)
COMPANIONS: tuple[tuple[str, ...], ...] = ((), (), (), ("forest",))
MATCHINGS = ("balanced", "sigma", "iqr", None)
ROUNDS, EPOCHS = (1, 2), (1, 2, 4)
SIZES = (0.2, 0.3, 0.5)
ESTIMATORS = {
    "ridge": Ridge(),
    "forest": RandomForestRegressor(10, min_samples_leaf=3),
    "tree": DecisionTreeRegressor(),
}
BASELINES = (HeteroscedasticRegressor, NeuralQuantileRegressor)

# Ranks alone: as many draws at once as there are targets, around a regressor that has seen none of them.
RANKED = (20, 40, 60, 150)
DRAWS = (50, 100, 200, 500, 1000, 2000)


# Methods -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dealt:
    """The settings of a law, drawn from its seed."""

    matched: dict[str, Any]
    estimator: str
    baseline: type[Any]
    network: MLP
    split: Split

    @classmethod
    def of(cls, law: Law) -> Dealt:
        rng = np.random.default_rng((law.seed, 3))

        def one(choices: Sequence[Any]) -> Any:
            return choices[rng.integers(len(choices))]

        schedule = Schedule(max_rounds=one(ROUNDS), mean_epochs=one(EPOCHS), interval_epochs=one(EPOCHS))
        networks = {"network": one(NETWORKS), "matching": one(MATCHINGS), "companions": one(COMPANIONS)}
        matched = {**networks, "schedule": schedule, "device": "cpu", "random_state": law.seed}
        return cls(matched, one(list(ESTIMATORS)), one(BASELINES), one(NETWORKS[:-1]), Split(one(SIZES)))

    def models(self, law: Law) -> Iterator[tuple[str, Callable[..., IntervalRegressor]]]:
        """Methods by name, each a function of the levels."""
        seed: dict[str, Any] = {"device": "cpu", "random_state": law.seed}
        around = partial(IntervalAround, make_pipeline(numbers_of(law), ESTIMATORS[self.estimator]), **seed)
        for name in CALIBRATIONS:
            ranks = self.split if name == SPLIT else name
            yield f"matched, {name}", partial(MatchedRegressor, calibration=ranks, **self.matched)
            yield f"around, {name}", partial(around, calibration=ranks)
            if law.n_levels and not law.rows_per_group and name in ("local", SPLIT):
                category = law.names[law.n_numbers] if law.frame else law.n_numbers
                yield f"around, {name}, hold_for", partial(around, calibration=ranks, hold_for=category)
        few = {"network": self.network, "max_epochs": 10, **seed}
        yield f"baseline, {SPLIT}", partial(self.baseline, calibration=self.split, **few)
        yield "matched, none", partial(MatchedRegressor, calibration=None, **self.matched)

    def n_ranked(self, calibration: str, law: Law) -> int:
        """How many rows are ranked; of groups, all rows of some."""
        if calibration != SPLIT:
            return 0 if calibration == "none" else law.n_rows
        unit = law.rows_per_group or 1
        return int(np.ceil(self.split.size * (law.n_rows // unit))) * unit


def numbers_of(law: Law) -> BaseEstimator:
    """What makes numbers of order one of the columns, for a regressor that needs them."""
    if not law.frame:
        return StandardScaler()
    numbers, text = law.names[: law.n_numbers], law.names[law.n_numbers :]
    known = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer((OneHotEncoder(handle_unknown="ignore"), text), (known, numbers))


# Measuring -----------------------------------------------------------------------------------------------------------


def measure(seed: int, broken: str | None) -> list[Line]:
    """One line: how many new rows of a law each method covers, at the levels for which it has ranks."""
    law, start = Law.of(seed), time.process_time()
    dealt = Dealt.of(law)
    table = law.draw(law.n_rows, np.random.default_rng((seed, 4)))
    new = law.draw(N_NEW, np.random.default_rng((seed, 5)), new_groups=True)[:2]
    found = {}
    with BROKEN[broken]():
        for name, make in dealt.models(law):
            n_ranked = dealt.n_ranked(name.split(", ")[1], law)
            model = make(coverage=levels_for(n_ranked) if n_ranked else LEVELS).fit(*table)
            by_group = name.endswith("hold_for") and SPLIT in name
            found[name] = list(counts_by_group(model, *new) if by_group else [counts(model, *new, n_ranked)])
    about = {"law": seed, "broken": broken, "kinds": [*law.kinds, dealt.estimator], "n_rows": law.n_rows}
    about |= {"rows_per_group": law.rows_per_group} if law.rows_per_group else {}
    return [{**about, "found": found, "seconds": round(time.process_time() - start, 2), **environment("cpu")}]


def counts(model: IntervalRegressor, X: Any, y: NDArray[np.float64], n_ranked: int) -> list[Any]:
    """How many rows there are, how many are covered at each level, and how many of these not at an end, if fewer."""
    lower, upper = model.predict_interval(X)
    tolerance, y = ROUNDING * y.std(), y[:, None]
    covered = ((lower - tolerance <= y) & (y <= upper + tolerance)).sum(axis=0).tolist()
    inside = ((lower + tolerance < y) & (y < upper - tolerance)).sum(axis=0).tolist()
    return [n_ranked, len(y), covered, *([inside] if inside != covered else [])]


def counts_by_group(model: IntervalRegressor, X: Any, y: NDArray[np.float64]) -> Iterator[list[Any]]:
    """The same for every group that has ranks of its own."""
    for factors in model.predictor_.fitted_teams[0].group_factors:
        group = factors.group_of(torch.from_numpy(model.source_.rows(X, model))).numpy()
        for place, n_ranked in enumerate(factors.n_rows[:-1].tolist()):
            own = np.flatnonzero(group == place)
            n_levels = len(levels_for(n_ranked))
            if len(own) and n_levels:
                n, n_new, *shares = counts(model, X.iloc[own] if hasattr(X, "iloc") else X[own], y[own], n_ranked)
                yield [n, n_new, *(share[:n_levels] for share in shares)]


class Memory(RegressorMixin, BaseEstimator):
    """A regressor that predicts zero, but for rows that it has seen."""

    def fit(self, X: Any, y: Any) -> Memory:
        self.known_ = {row.tobytes(): target for row, target in zip(X, y, strict=True)}
        self.zero_ = np.zeros_like(y[0])
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        return np.array([self.known_.get(row.tobytes(), self.zero_) for row in X])


def measure_ranks(name: str, n_ranked: int, broken: str | None, n_draws: int) -> list[Line]:
    """One line: the mean coverage of ranks alone, known exactly, over ever more draws.

    Targets are independent, so each has ranks of its own. The regressor has seen other rows; if it leaks, also some of
    those whose residuals are ranked.
    """
    rng, levels = np.random.default_rng((n_ranked, CALIBRATIONS.index(name))), levels_for(n_ranked)
    n_rows = 5 * n_ranked if name == SPLIT else n_ranked
    X, y = rng.normal(size=(n_rows, 1)), rng.normal(size=(n_rows, n_draws))
    n_known = max(1, round(LEAK * n_rows)) if broken == "leak" else 0
    other = rng.normal(size=(1, 1)), np.zeros((1, n_draws))
    regressor = Memory().fit(*(np.concatenate(both) for both in zip(other, (X[:n_known], y[:n_known]), strict=True)))
    with BROKEN["rank" if broken == "rank" else None]():
        model = IntervalAround(FrozenEstimator(regressor), levels, calibration=name, random_state=0).fit(X, y)
        lower, upper = (side[0] for side in model.predict_interval(rng.normal(size=(1, 1))))  # (draw, level)
    covered = norm.cdf(upper) - norm.cdf(lower)
    means = {n: covered[:n].mean(axis=0).round(6).tolist() for n in DRAWS if n <= n_draws}
    return [{"ranks": name, "n_ranked": n_ranked, "broken": broken, "means": means, **environment("cpu")}]


# Broken on purpose ---------------------------------------------------------------------------------------------------


@contextmanager
def one_rank_lower() -> Iterator[None]:
    """The (k - 1)-th smallest score in place of the k-th."""
    exact, rank = calibration.rank_factor, calibration.coverage_rank

    def broken(scores: Any, levels: Any, weight: None = None, *, or_largest: bool = False) -> Any:
        ordered = np.sort(scores, axis=0)
        return exact(np.concatenate([ordered[:1], ordered[:-1]]), levels, weight, or_largest=or_largest)

    with ExitStack() as changes:
        for module in (calibration, local, groups):
            changes.enter_context(patch.object(module, "rank_factor", broken))
        changes.enter_context(patch.object(calibration, "coverage_rank", lambda *a: max(rank(*a) - 1, 1)))  # for CV+
        yield


@contextmanager
def leaking() -> Iterator[None]:
    """Some of the ranked rows were trained on by the members that judge them."""
    dealt = training_rows.left_out_by

    def left_out_by(X: Any, folds: Any, repeats: Any, chosen: Any, *more: Any, **known: Any) -> Any:
        trains, leaves_out = dealt(X, folds, repeats, chosen, *more, **known)
        if chosen.ranks_out_of_fold:
            trains = trains | np.isin(np.arange(len(X)), drawn(np.arange(len(X)), round(LEAK * len(X))))
        return np.stack([trains, leaves_out])

    def with_trained(correction: Callable[..., Any]) -> Callable[..., Any]:
        def broken(self: Any, teams: Any, rows: Any, members: Any) -> Any:
            every, held_back = np.arange(len(rows.given[1])), []
            for places in rows.held_back:
                n = max(1, round(LEAK * len(places)))
                held_back.append(np.concatenate([drawn(np.setdiff1d(every, places), n), places[n:]]))
            return correction(self, teams, replace(rows, held_back=held_back), members)

        return broken

    with patch.object(training_rows, "left_out_by", left_out_by), ExitStack() as changes:
        for kind in (Split, CVPlus):
            changes.enter_context(patch.object(kind, "correction", with_trained(kind.correction)))
        yield


def drawn(places: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).choice(places, n, replace=False)


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


BROKEN = {None: as_it_is, "rank": one_rank_lower, "leak": leaking}


# The command ---------------------------------------------------------------------------------------------------------


def jobs_of(seeds: Sequence[int], broken: str | None, lines: Sequence[Line]) -> list[tuple[int, str | None]]:
    """The laws that are not there yet; those of data frames only where there is a package for these."""
    done = {(line["law"], line["broken"]) for line in lines if "law" in line}
    return [(s, broken) for s in seeds if (s, broken) not in done and (HAS_FRAMES or not Law.of(s).frame)]


def rank_jobs(n_draws: int, lines: Sequence[Line]) -> list[tuple[str, int, str | None, int]]:
    done = {(line["ranks"], line["n_ranked"], line["broken"]) for line in lines if "ranks" in line}
    every = ((name, n, broken) for broken in BROKEN for name in CALIBRATIONS[1:] for n in RANKED)
    return [(*job, n_draws) for job in every if job not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{N_QUICK} laws as they are; ranks alone, also broken")
    parser.add_argument("--laws", type=int, default=N_LAWS, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--broken", nargs="*", default=["rank", "leak"], choices=["rank", "leak"], help="what is broken"
    )
    parser.add_argument("--again", action="store_true", help="forget what is stored")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side, each with one thread")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no law later than this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    end, name, n_draws = time.time() + given.seconds, "coverage", DRAWS[-1]
    if given.quick:
        name, given.laws, given.broken, given.again, n_draws = "coverage-quick", N_QUICK, [], True, DRAWS[-2]
    path = given.out / f"{name}.jsonl"
    if given.again:
        path.unlink(missing_ok=True)
    lines, seeds = read_lines(path), range(given.first, given.first + given.laws)
    failed = run_jobs(measure_ranks, rank_jobs(n_draws, lines), path, given.jobs, end)
    for broken in (None, *given.broken):
        own = seeds if broken is None else seeds[: N_BROKEN[broken]]
        failed += run_jobs(measure, jobs_of(own, broken, lines), path, given.jobs, end)
    lines = read_lines(path)
    path.with_suffix(".md").write_text(report(lines))
    if failed:
        sys.exit("These failed, all others are stored:\n" + "\n".join(failed))
    if found := failures(lines):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
