"""The tables of coverage.md, from the stored lines alone, and what in them is outside of its band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from coverage_bands import (
    ALLOWED,
    FEW_ROWS,
    NONE,
    OF_FEW,
    PROBABILITY,
    SPLIT,
    Cell,
    Part,
    band_of_mean,
    spread_as_ranks,
)
from random_laws import ATOMS, GROUPS, REPEATS
from table_fits import LEVELS, Line, levels_for

from reproduction.tables.typeset import markdown, stamp

FEWEST = 20  # parts, for a cell to be judged
STEP = 10  # fits, in the search for how many are needed
ALL = "all"
SIZES = {"60 to 199 rows": 200, "200 to 599 rows": 600, "600 to 2,000 rows": np.inf}
OUTSIDE = "OUTSIDE"

Key = tuple[str, str, float]  # method, kind of law, level
Cells = dict[Key, list[Part]]


def parts_of(lines: Sequence[Line], broken: str | None) -> Cells:
    """What was counted, by method, kind of law and level."""
    cells: Cells = {}
    for line in sorted((one for one in lines if "law" in one and one["broken"] == broken), key=lambda one: one["law"]):
        for method, counted in line["found"].items():
            for n_ranked, n_new, covered, *ends in counted:
                inside, size = ends[0] if ends else covered, line.get("rows_per_group", 0)
                beyond = not {*REPEATS}.isdisjoint(line["kinds"])
                beyond |= ATOMS[0] in line["kinds"] and "local" in method
                levels = levels_for(n_ranked) if n_ranked else LEVELS
                for level, n_covered, n_inside in zip(levels, covered, inside, strict=True):
                    part = Part(level, n_ranked, n_new, n_covered, n_inside, size, beyond)
                    for kind in kinds_of(line, method):
                        cells.setdefault((method, kind, level), []).append(part)
    return cells


def kinds_of(line: Line, method: str) -> list[str]:
    """The rows of a method's table in which a law counts; groups and rows that come again have their own alone."""
    for kind in (GROUPS, *REPEATS):
        if kind in line["kinds"]:
            return [kind]
    size = next(name for name, below in SIZES.items() if line["n_rows"] < below)
    *kinds, estimator = line["kinds"]
    return [ALL, size, *kinds, *([estimator] if method.startswith("around") else [])]


def calibration_of(method: str) -> str:
    return method.split(", ")[1]


def judged(cells: Cells) -> dict[Key, Cell]:
    """The cells of enough parts."""
    return {key: Cell.of(calibration_of(key[0]), own) for key, own in cells.items() if len(own) >= FEWEST}


def fits_needed(key: Key, parts: Sequence[Part]) -> int | None:
    """How many parts are enough for a cell to be outside, and to stay there; None if it is not."""
    needed = None
    for n in [*range(len(parts), FEWEST, -STEP), FEWEST]:
        if Cell.of(calibration_of(key[0]), parts[:n]).holds:
            return needed
        needed = n
    return needed


def spread(lines: Sequence[Line]) -> dict[tuple[str, float], tuple[float, int]]:
    """For "split", by method and level: the probability of a spread among fits like this one, and of how many."""
    found = {}
    tied = {*ATOMS, GROUPS, *REPEATS}
    smooth = parts_of([line for line in lines if tied.isdisjoint(line.get("kinds", ()))], None)
    for (method, kind, level), parts in smooth.items():
        if calibration_of(method) == SPLIT and kind == ALL and len(parts) >= FEWEST:
            found[method, level] = spread_as_ranks(parts, np.random.default_rng(0)), len(parts)
    return found


def ranks_alone(lines: Sequence[Line], broken: str | None) -> Iterator[tuple[str, int, float, dict[int, float]]]:
    """Calibration, ranked rows, level and the mean coverage after some draws."""
    for line in lines:
        if "ranks" in line and line["broken"] == broken:
            for place, level in enumerate(levels_for(line["n_ranked"])):
                means = {int(n): values[place] for n, values in line["means"].items()}
                yield line["ranks"], line["n_ranked"], level, means


def draws_needed(n_ranked: int, level: float, means: dict[int, float]) -> int | None:
    """How many draws are enough for the mean to be outside, and to stay there; None if it is not."""
    needed = None
    for n in sorted(means, reverse=True):
        low, high = band_of_mean(level, n_ranked, n)
        if low <= means[n] <= high:
            return needed
        needed = n
    return needed


# What failed ---------------------------------------------------------------------------------------------------------


def failures(lines: Sequence[Line]) -> list[str]:
    """Everything outside of its band, and everything broken that nothing shows; a line of text each."""
    found = []
    for (method, kind, level), cell in judged(parts_of(lines, None)).items():
        if not cell.holds:
            where = f"{method}, {kind}, {level:g}, {cell.n_parts} fits"
            found.append(f"{where}: covered {cell.covered:.4f}, band {cell.low:.4f} to {cell.high:.4f}")
    for (method, level), (probability, _) in spread(lines).items():
        if probability < 1 - PROBABILITY:
            found.append(f"{method}, {level:g}: the spread among fits is not that of ranks, p = {probability:.1e}")
    for name, n_ranked, level, means in ranks_alone(lines, None):
        if draws_needed(n_ranked, level, means) is not None:
            found.append(f"ranks alone, {name}, {n_ranked} rows, {level:g}: covered {means[max(means)]:.4f}")
    for broken in sorted({line["broken"] for line in lines} - {None}):
        alone = {name for name, n, level, means in ranks_alone(lines, broken) if draws_needed(n, level, means)}
        if missing := {name for name, *_ in ranks_alone(lines, broken)} - alone:
            found.append(f"broken on purpose ({broken}), not found: {', '.join(sorted(missing))}")
        cells = judged(parts_of(lines, broken))
        if broken == "rank" and cells and all(cell.holds for cell in cells.values()):
            found.append(f"broken on purpose ({broken}), found on no law")
    return found


# The report ----------------------------------------------------------------------------------------------------------


def report(lines: list[Line]) -> str:
    """All cells as Markdown."""
    cells = parts_of(lines, None)
    found, seconds = judged(cells), sum(line.get("seconds", 0.0) for line in lines)
    n_laws = sum(line["broken"] is None for line in lines if "law" in line)
    outside = failures(lines)
    parts = [
        "# Coverage as a test",
        f"Made by `make test-coverage` from `coverage.jsonl` in this folder: {n_laws:,} laws drawn at random, a table "
        f"of each, and every calibration on it; {seconds / 60:.0f} minutes of one core with what is broken on purpose. "
        f"{stamp(lines)}.",
        INTRODUCTION,
        f"**Outside: {len(outside)}**, of {len(found):,} cells. If coverage is exactly as promised, the probability "
        f"that any of them is outside by chance is at most {len(found) * (1 - PROBABILITY):.2g} (Bonferroni).",
        *(["\n".join(f"- {line}" for line in outside)] if outside else []),
    ]
    for method in sorted({method for method, _, _ in cells}, key=_place):
        parts += [f"## {method[0].upper()}{method[1:]}", _table(method, cells, found)]
    parts += ['## Spread among fits of "split"', SPREAD, _spread_table(lines)] if spread(lines) else []
    if any("ranks" in line for line in lines):
        parts += ["## Ranks alone", RANKS_ALONE, _ranks_table(lines)]
    for broken in sorted({line["broken"] for line in lines} - {None}, reverse=True):
        parts += [f"## Broken on purpose: {broken}", BROKEN[broken], *_broken_tables(lines, broken)]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = f"""\
A law has 60 to 2,000 rows, 1 to 12 numbers, 0 to 3 categories and one of four kinds of noise. Some laws have gaps,
targets of few values, groups, rows that come again or extreme scales, and some are data frames. Networks (*matched*),
regressors (*around*) and their settings are dealt at random and are often bad: a promise holds for any fit. A level
that needs more rows than there are is left out. New rows come from the same law, and from new groups where there are
groups.

A cell is the share of all new rows of its fits that are covered. In brackets is the central band of
{100 * PROBABILITY:g} % in which the promise puts it; cells of fewer than {FEWEST} fits are not judged. Where targets
are equal, ends hit them, and two shares stand in a cell: strictly inside, which must not be above the band, and
covered, which must not be below it.

- **split**: k / (n + 1), k the rank of the level among n rows. The band is that of a sum of beta-binomial counts. With
  `hold_for`, the cells are about the groups that have enough rows for ranks of their own.
- **cross, local**: no theorem. The band of exact ranks of all rows, wider by an allowance. Below it is {ALLOWED:g},
  and {OF_FEW:g} for fewer than {FEW_ROWS} rows. Above, it is what errors that fall with the root of the number of rows
  would give, since the ranked rows were predicted from four fifths of the rows. Rows that may have been seen in
  training, and ends that "local" moves to values of the target, may cover more. The allowances were fixed before these
  laws ran.
- **cv+**: at least 2p - 1 less the term of its theorem. **none** promises nothing.
- **groups**: a new group of m rows stands among the others, so the share is k / (n + m) to (k + m) / (n + m) on
  average. How fits spread is not known then, so the band is that of a normal mean, with the spread that they have.
  "cv+" promises nothing for groups.

Groups and rows that come again are in no other row of a table."""

SPREAD = """\
If ranks are exact, the law of coverage among fits is known, not only its mean. The probability of counts that follow it
less closely (Kolmogorov and Smirnov), and of how many fits; without equal targets, groups and rows that come again.
Below .0001 is a miss."""

RANKS_ALONE = """\
Many targets at once, around a regressor that has seen none of them: each has ranks of its own, and its coverage is
known exactly. The mean and its band. "cross" and "cv+" are exact here too."""

NEEDED = """\
The tables say how many draws of ranks alone, and how many fits on laws, put a cell outside for good."""

BROKEN = {
    "rank": f"""\
The (k - 1)-th score in place of the k-th, wherever scores are ranked. {NEEDED} The allowance of "cross" and "local"
hides one rank of 100, and "cv+" promises too little for laws to show it: for these, ranks alone do.""",
    "leak": f"""\
5 % of the ranked rows were trained on by the members that judge them. It shows where training rows are fitted much
better than others, as by a tree, and at low levels more than at high ones. Ranks alone must show it. On laws, it moves
the coverage of trees by .02 to .03 at .5, and that of networks by less than .01: too little for the bands of so many
fits, and until this was seen, a leak that no law shows counted as a failure. {NEEDED}""",
}


def _place(method: str) -> tuple[int, str]:
    order = ("matched, local", "around, local", "matched, cross", "around, cross", "matched, cv+", "around, cv+")
    return (order.index(method), "") if method in order else (len(order), method)


def _table(method: str, cells: Cells, found: dict[Key, Cell]) -> str:
    kinds = dict.fromkeys([ALL, *SIZES])
    kinds |= dict.fromkeys(sorted(kind for name, kind, _ in cells if name == method and kind not in kinds))
    rows = []
    for kind in kinds:
        own = [found.get((method, kind, level)) for level in LEVELS]
        if any(own):
            n_parts = max(len(cells.get((method, kind, level), ())) for level in LEVELS)
            rows.append([kind, str(n_parts), *("-" if cell is None else _text(method, cell) for cell in own)])
    return markdown(
        ["laws", "groups" if "hold_for" in method and SPLIT in method else "fits", *map(_level, LEVELS)], rows
    )


def _level(level: float) -> str:
    return f"{level:g}"


def _text(method: str, cell: Cell) -> str:
    share = f"{cell.covered:.3f}" if cell.covered - cell.inside < 5e-4 else f"{cell.inside:.3f}, {cell.covered:.3f}"
    band = "" if calibration_of(method) == NONE else f" ({cell.low:.3f} to {cell.high:.3f})"
    return f"{share}{band}{'' if cell.holds else f' {OUTSIDE}'}"


def _spread_table(lines: Sequence[Line]) -> str:
    found = spread(lines)
    methods = dict.fromkeys(method for method, _ in found)
    texts = {key: f"{probability:.2g} ({n})" for key, (probability, n) in found.items()}
    return markdown(["", *map(_level, LEVELS)], [[m, *(texts.get((m, p), "-") for p in LEVELS)] for m in methods])


def _ranks_table(lines: Sequence[Line]) -> str:
    texts: dict[tuple[str, int], dict[float, str]] = {}
    for name, n_ranked, level, means in ranks_alone(lines, None):
        n_draws = max(means)
        low, high = band_of_mean(level, n_ranked, n_draws)
        outside = "" if draws_needed(n_ranked, level, means) is None else f" {OUTSIDE}"
        text = f"{means[n_draws]:.4f} ({low:.4f} to {high:.4f}){outside}"
        texts.setdefault((name, n_ranked), {})[level] = text
    rows = [[name, str(n), *(own.get(level, "-") for level in LEVELS)] for (name, n), own in sorted(texts.items())]
    return markdown(["", "rows", *map(_level, LEVELS)], rows)


def _broken_tables(lines: Sequence[Line], broken: str) -> Iterator[str]:
    texts: dict[tuple[str, int], dict[float, str]] = {}
    for name, n_ranked, level, means in ranks_alone(lines, broken):
        needed = draws_needed(n_ranked, level, means)
        texts.setdefault((name, n_ranked), {})[level] = "not found" if needed is None else f"{needed} draws"
    if texts:
        rows = [[name, str(n), *(own.get(level, "-") for level in LEVELS)] for (name, n), own in sorted(texts.items())]
        yield markdown(["ranks alone", "rows", *map(_level, LEVELS)], rows)
    cells = parts_of(lines, broken)
    found, rows = judged(cells), []
    for method in sorted({method for method, _, _ in cells if calibration_of(method) != NONE}, key=_place):
        own = {key: cell for key, cell in found.items() if key[0] == method}
        n_outside = sum(not cell.holds for cell in own.values())
        needed = [(fits_needed(key, cells[key]), key) for key, cell in own.items() if not cell.holds]
        fewest = [f"{n} fits ({kind}, {level:g})" for n, (_, kind, level) in sorted(needed)[:1]]
        everywhere = [_needed(key, cells, own) for key in ((method, ALL, level) for level in LEVELS)]
        rows.append([method, f"{n_outside} of {len(own)}", *(fewest or ["-"]), *everywhere])
    if rows:
        yield markdown(["laws", "cells outside", "found by fewest", *(f"all, {_level(p)}" for p in LEVELS)], rows)


def _needed(key: Key, cells: Cells, own: dict[Key, Cell]) -> str:
    if key not in own:
        return "-"
    return "not found" if own[key].holds else f"{fits_needed(key, cells[key])} fits"
