"""Coverage within groups of rows, with `hold_for` and without.

Made-up rows of 20 groups and of three groupings that overlap, and tables: parkinsons by age, crime by clusters of its
inputs, the two wines by colour. Groups differ in size and noise. A fit with `hold_for` that is left without its factors
for groups is the same fit without.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from coverage_bands import PROBABILITY, deviations, of_count
from numpy.typing import NDArray
from result_lines import append, environment, read_lines
from scipy.stats import betabinom
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler

from coverwell import IntervalAround, MatchedRegressor, Schedule, metrics
from coverwell.calibration import Split
from reproduction.domains.tables import table

Array = NDArray[np.float64]

ASKED, ENOUGH, MOST_BELOW, MOST_SCORE = 0.9, 30, 0.03, 1.03
OF_ONE_FIT = 0.99  # probability of the band of a group in one fit
N_GROUPS, SIZES, NOISES = 20, (10, 300), (0.3, 3.0)
N_EACH = 500  # new made-up rows of a group
OVERLAPPING = {"district": 12, "floor": 5, "age band": 6}
N_OVERLAPPING, N_NEW = 1200, 20_000
N_TRAIN = 1000  # rows of a table, the others are new
YEARS, N_CLUSTERS = 2, 20
NETWORKS, FOREST, SPLIT = MODELS = ("networks, local", "forest, local", "forest, split")
HEADS = ("rows", "model", "rows of groups", f"groups of at least {ENOUGH}", "within the band", "above", "below")
HEADS += (
    "within without groups",
    "within in one fit",
    "lowest coverage",
    "without groups",
    "other groups",
    "lowest coverage",
    "without groups",
)
HEADS += ("coverage of all rows", "without groups", "interval score over without")


@dataclass(frozen=True)
class Rows:
    """Training rows, new rows, and the places of the columns for which coverage is held."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array
    held: dict[str, int]
    weight: Array | None = None  # of new rows, where groups are drawn more often than in training


def twenty_groups(split: int) -> Rows:
    """Made-up rows; the splits of a hundred have one law."""
    rng, law = np.random.default_rng(split), np.random.default_rng((split // 100, 1))
    sizes = np.geomspace(*SIZES, N_GROUPS).round().astype(int)
    noise = law.permutation(np.geomspace(*NOISES, N_GROUPS))
    of_train, of_new = np.repeat(np.arange(N_GROUPS), sizes), np.repeat(np.arange(N_GROUPS), N_EACH)
    (X, y), (X_new, y_new) = (drawn(rng, noise[group], group) for group in (of_train, of_new))
    return Rows(X, y, X_new, y_new, {"group": 5}, weight=sizes[of_new] / N_EACH)


def overlapping(split: int) -> Rows:
    """Made-up rows of three groupings whose noises are multiplied, but not quite."""
    rng, law = np.random.default_rng(split), np.random.default_rng((split // 100, 2))
    noises = [law.permutation(np.geomspace(0.5, 2.0, number)) for number in OVERLAPPING.values()]
    together = law.lognormal(sigma=0.3, size=tuple(OVERLAPPING.values()))
    chances = [law.permutation(np.geomspace(1, 20, number)) for number in OVERLAPPING.values()]
    parts = []
    for n_rows in (N_OVERLAPPING, N_NEW):
        groups = [rng.choice(len(chance), n_rows, p=chance / chance.sum()) for chance in chances]
        noise = np.prod([own[group] for own, group in zip(noises, groups, strict=True)], axis=0)
        parts += drawn(rng, noise * together[*groups], *groups)
    return Rows(*parts, dict(zip(OVERLAPPING, (5, 6, 7), strict=True)))


def drawn(rng: np.random.Generator, noise: Array, *groups: NDArray[np.intp]) -> tuple[Array, Array]:
    """Five columns and those of the groups, and y."""
    X = rng.normal(size=(len(noise), 5))
    y = 2 * X[:, 0] + X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * noise * rng.normal(size=len(noise))
    return np.column_stack([X, *groups]), y


def parkinsons(split: int) -> Rows:
    whole = table("parkinsons")
    age = whole.X[:, whole.feature_names.index("age")]
    return divided(whole.X, whole.y, {f"age, by {YEARS} years": age // YEARS * YEARS}, split)


def crime(split: int) -> Rows:
    whole = table("crime")
    clusters = KMeans(N_CLUSTERS, n_init=1, random_state=0).fit_predict(StandardScaler().fit_transform(whole.X))
    return divided(whole.X, whole.y, {"cluster": clusters}, split)


def wines(split: int) -> Rows:
    both = [table("red wine unique"), table("white wine unique")]
    colour = np.repeat([0, 1], [len(one.y) for one in both])
    return divided(
        np.concatenate([one.X for one in both]), np.concatenate([o.y for o in both]), {"colour": colour}, split
    )


def divided(X: Array, y: Array, groups: dict[str, Any], split: int) -> Rows:
    """A random part of a table trains."""
    order = np.random.default_rng(split).permutation(len(y))
    X = np.column_stack([X, *groups.values()])[order]
    held = {name: X.shape[1] - len(groups) + place for place, name in enumerate(groups)}
    return Rows(X[:N_TRAIN], y[order[:N_TRAIN]], X[N_TRAIN:], y[order[N_TRAIN:]], held)


CASES: dict[str, Callable[[int], Rows]] = {
    "20 groups, made up": twenty_groups,
    "three groupings that overlap, made up": overlapping,
    "parkinsons": parkinsons,
    "crime": crime,
    "wines": wines,
}
QUICK_CASES = tuple(CASES)[:2]


def model_of(name: str, hold_for: Sequence[int], seed: int, device: str) -> Any:
    how: dict[str, Any] = {"hold_for": list(hold_for), "random_state": seed, "device": device}
    if name == NETWORKS:
        return MatchedRegressor(ASKED, schedule=Schedule(max_rounds=2), **how)
    forest = RandomForestRegressor(50, min_samples_leaf=2, max_features=1 / 3)
    return IntervalAround(forest, ASKED, calibration="local" if name == FOREST else Split(0.5), **how)


def measure(case: str, name: str, split: int, device: str) -> dict[str, Any]:
    rows = CASES[case](split)
    model = model_of(name, list(rows.held.values()), split, device).fit(rows.X, rows.y)
    out_of_fold = ~np.isnan(model.out_of_fold_.prediction[:, 0])
    ranked = rows.X[~out_of_fold if name == SPLIT else out_of_fold]
    held = model.predict_interval(rows.X_new)
    for team in model.predictor_.fitted_teams:
        del team.groups[:]
    alike = model.predict_interval(rows.X_new)
    weight = np.ones(len(rows.y_new)) if rows.weight is None else rows.weight
    line: dict[str, Any] = {"case": case, "model": name, "split": split, "n_train": len(rows.y), "groups": []}
    for by, place in rows.held.items():
        for value in np.unique(rows.X_new[:, place]):
            own = rows.X_new[:, place] == value
            group = {"by": by, "group": float(value), "n_ranked": int((ranked[:, place] == value).sum())}
            group |= {"n_new": int(own.sum()), "weight": float(weight[own].sum())}
            for way, (lower, upper) in {"held": held, "alike": alike}.items():
                y, low, high = rows.y_new[own], lower[own], upper[own]
                group[way] = {
                    "covered": int(((low <= y) & (y <= high)).sum()),
                    "inside": int(((low < y) & (y < high)).sum()),
                    "interval_score": metrics.interval_score(y, low, high, ASKED),
                }
            line["groups"].append(group)
    return {**line, **environment(device)}


@dataclass(frozen=True)
class Group:
    """A group over the fits of a model."""

    name: str
    fits: list[dict[str, Any]]

    @property
    def n_ranked(self) -> float:
        return float(np.mean([fit["n_ranked"] for fit in self.fits]))

    def coverage(self, way: str = "held", ends: str = "covered") -> float:
        return sum(fit[way][ends] for fit in self.fits) / sum(fit["n_new"] for fit in self.fits)

    @property
    def error(self) -> float:
        """The standard error of the coverage, from how it differs between fits."""
        misses = [fit["n_new"] * (self.coverage() - fit["held"]["covered"] / fit["n_new"]) for fit in self.fits]
        return float(np.sqrt(np.square(misses).sum()) / sum(fit["n_new"] for fit in self.fits))

    @property
    def band(self) -> tuple[float, float]:
        """Where the coverage over all fits lies if each has exact ranks of the group's own rows."""
        of_fits = [of_count(ASKED, fit["n_ranked"], fit["n_new"]) for fit in self.fits]
        n_new = np.array([fit["n_new"] for fit in self.fits])
        expected = n_new @ [exact(fit["n_ranked"]) for fit in self.fits]
        below, above = deviations(np.sum(of_fits, axis=0))
        return (expected + below) / n_new.sum(), (expected + above) / n_new.sum()

    def side(self, way: str = "held") -> str:
        """Whether it is within its band, above or below; of equal targets at an end, any share may count."""
        low, high = self.band
        if self.coverage(way) < low:
            return "below"
        return "above" if self.coverage(way, "inside") > high else "within"

    @property
    def within_of_fits(self) -> list[bool]:
        """For each fit whether it is within the band of that fit."""
        found = []
        for fit in self.fits:
            k = metrics.coverage_rank(ASKED, fit["n_ranked"])
            law = betabinom(fit["n_new"], k, fit["n_ranked"] + 1 - k)
            low, high = law.ppf([(1 - OF_ONE_FIT) / 2, (1 + OF_ONE_FIT) / 2])
            found.append(bool(fit["held"]["covered"] >= low and fit["held"]["inside"] <= high))
        return found


def exact(n_ranked: int) -> float:
    """The expected coverage by exact ranks of so many rows."""
    return metrics.coverage_rank(ASKED, n_ranked) / (n_ranked + 1)


def groups_of(lines: Sequence[dict]) -> tuple[list[Group], list[Group]]:
    """The groups of a case and a model with enough rows in every fit, and the others."""
    found: dict[tuple, list[dict]] = {}
    for line in lines:
        for fit in line["groups"]:
            found.setdefault((fit["by"], fit["group"]), []).append(fit)
    groups = [Group(f"{by} {value:g}", fits) for (by, value), fits in found.items()]
    enough = [min(fit["n_ranked"] for fit in one.fits) >= ENOUGH for one in groups]
    return tuple([one for one, is_so in zip(groups, enough, strict=True) if is_so is way] for way in (True, False))


def of_all_rows(line: dict, way: str) -> tuple[float, float]:
    """Coverage and interval score of all new rows, where groups are as frequent as in training."""
    first = [group for group in line["groups"] if group["by"] == line["groups"][0]["by"]]
    weight = [group["weight"] for group in first]
    covered = np.average([group[way]["covered"] / group["n_new"] for group in first], weights=weight)
    return float(covered), float(np.average([group[way]["interval_score"] for group in first], weights=weight))


def score_ratio(lines: Sequence[dict]) -> float:
    """The interval score over that without groups."""
    held, alike = (np.array([of_all_rows(line, way)[1] for line in lines]) for way in ("held", "alike"))
    return float(np.exp(np.mean(np.log(held / alike))))


def parts_of(lines: Sequence[dict]) -> Iterator[tuple[str, str, list[dict]]]:
    for case, name in dict.fromkeys((line["case"], line["model"]) for line in lines):
        yield case, name, [line for line in lines if (line["case"], line["model"]) == (case, name)]


def cells(lines: Sequence[dict]) -> list[str]:
    """Of the lines of a case and a model."""
    large, others = groups_of(lines)
    in_fits = [within for group in large for within in group.within_of_fits]
    n_ranked = [fit["n_ranked"] for group in (*large, *others) for fit in group.fits]
    found = [f"{min(n_ranked)} to {max(n_ranked)}", str(len(large))]
    sides, alike = ([group.side(way) for group in large] for way in ("held", "alike"))
    found += [str(sides.count(side)) for side in ("within", "above", "below")] + [str(alike.count("within"))]
    found.append(f"{100 * np.mean(in_fits):.1f} %")
    for groups in (large, others):
        if groups is others:
            found.append(str(len(others)))
        found += [f"{min(g.coverage(way) for g in groups):.3f}" if groups else "" for way in ("held", "alike")]
    found += [f"{np.mean([of_all_rows(line, way)[0] for line in lines]):.3f}" for way in ("held", "alike")]
    return [*found, f"{score_ratio(lines):.3f}"]


def missed(lines: Sequence[dict]) -> list[str]:
    """What is missed in a case by a model, in words."""
    large, others = groups_of(lines)
    found = []
    for group in large:
        if (side := group.side()) != "within":
            found.append(f"{about(group)}, {side} its band {group.band[0]:.3f} to {group.band[1]:.3f}")
    low = [group for group in others if group.coverage() < ASKED - MOST_BELOW]
    found += [about(group) for group in sorted(low, key=Group.coverage)]
    if (ratio := score_ratio(lines)) > MOST_SCORE:
        found.append(f"the interval score is {ratio:.3f} of the one without groups")
    return found


def summary(lines: Sequence[dict]) -> str:
    """All cases and models together, in words."""
    parts = [groups_of(own) for _, _, own in parts_of(lines)]
    large, others = ([group for part in parts for group in part[place]] for place in (0, 1))
    counts = []
    for way in ("held", "alike"):
        sides, n_low = [group.side(way) for group in large], sum(g.coverage(way) < ASKED - MOST_BELOW for g in others)
        counts.append((*(sides.count(side) for side in ("within", "above", "below")), n_low))
    (within, above, below, n_low), (*alike, n_low_alike) = counts
    ratios = [score_ratio(own) for _, _, own in parts_of(lines)]
    return (
        f"Over all cases and models, of {len(large)} groups of at least {ENOUGH} ranked rows "
        f"{within} are within the band, {above} above and "
        f"{below} below; without groups {alike[0]}, {alike[1]} and {alike[2]}. Of {len(others)} other groups, {n_low} "
        f"are covered more than {MOST_BELOW:g} below {ASKED:g}; without groups {n_low_alike}. The interval score is "
        f"{min(ratios):.3f} to {max(ratios):.3f} of the one without."
    )


def about(group: Group) -> str:
    coverage, alike = f"{group.coverage():.3f} +- {group.error:.3f}", group.coverage("alike")
    return f"{group.name} ({group.n_ranked:.0f} ranked rows) is covered {coverage} (without groups {alike:.3f})"


def report(lines: list[dict]) -> str:
    splits = sorted({line["split"] for line in lines})
    versions = ", ".join(f"{package} {version}" for package, version in lines[0]["versions"].items())
    text = [
        "# Coverage within groups, with `hold_for` and without",
        f"`make bench-groups`; level {ASKED:g}, splits {splits[0]} to {splits[-1]}, which are the seeds; "
        f"{lines[0]['device']}, {versions}. Made up: {N_GROUPS} groups of {SIZES[0]} to {SIZES[1]} rows, the noisiest "
        f"with {NOISES[1] / NOISES[0]:.0f} times the noise of the quietest, and {N_OVERLAPPING:,} rows in groups that "
        f"overlap, by {', '.join(OVERLAPPING)}, all held at once. Tables: {N_TRAIN:,} random rows train, all others "
        f"are new; parkinsons by age in steps of {YEARS} years, crime by {N_CLUSTERS} clusters of its inputs "
        "(k-means), the two wines by colour, without repeated rows. Networks have two rounds, forests 50 trees; split "
        "keeps half of the rows for the ranks. Small groups were mended by other draws, of scores alone.",
        "The band is that of exact ranks of the rows of a group (beta-binomial). It holds "
        f"{100 * PROBABILITY:.2f} % of the means over {len(splits)} fits, so chance alone hardly puts one of all these "
        f"groups outside; in one fit it holds {100 * OF_ONE_FIT:.0f} %. Where many targets are equal to an end, any "
        f"share of them may count. Other groups have fewer than {ENOUGH} ranked rows in some fit. Lowest coverage is "
        "that of one group, over all fits. The score is a geometric mean over fits.",
        "Only split has exact ranks, where there is one grouping. In local fits, rows are ranked by what models of four"
        " fifths of the rows predict for them, which errs more than the model of all rows: coverage near, or a little "
        "above, the asked level is what they are for. The forests have no repeats to correct it by.",
    ]
    rows, short = [list(HEADS), ["---"] * len(HEADS)], []
    for case, name, own in parts_of(lines):
        rows.append([case, name, *cells(own)])
        short += [f"- {case}, {name}: {words}." for words in missed(own)]
    text += [summary(lines), "\n".join("| " + " | ".join(row) + " |" for row in rows)]
    text.append(
        f"**Missed** (asked: all groups of at least {ENOUGH} ranked rows within the band, others at most "
        f"{MOST_BELOW:g} below {ASKED:g}, scores at most {MOST_SCORE:g}):{' nothing.' * (not short)}"
    )
    return "\n\n".join([*text, *(["\n".join(short)] if short else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first-split", type=int, default=0, help="100 to choose settings")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="one split of the made-up rows")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of groups that few or no training rows had, and of worst slices
    splits = range(arguments.first_split, arguments.first_split + (1 if arguments.quick else arguments.splits))
    stored = arguments.out / ("groups-quick.jsonl" if arguments.quick else "groups.jsonl")
    if arguments.quick:
        stored.unlink(missing_ok=True)
    done = {(line["case"], line["model"], line["split"]) for line in read_lines(stored)}
    for job in product(QUICK_CASES if arguments.quick else CASES, MODELS, splits):
        if job not in done:
            append(stored, measure(*job, arguments.device))
            print(*job, sep=", ", flush=True)
    stored.with_suffix(".md").write_text(report(read_lines(stored)))


if __name__ == "__main__":
    main()
