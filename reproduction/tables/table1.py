"""Table 1 of the paper beside ours, and the intervals, which the paper shows only as curves: ours against others.

Ours by default, and as it was in 0.1.0, is compared with every other method and peer on the trials that both have.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from reproduction.data.tables import TABLES
from reproduction.lines import Line
from reproduction.tables import splits, typeset
from reproduction.tables.splits import (
    DEFAULT,
    FIRST_VERSION,
    OURS,
    Selection,
    at,
    estimate,
    geometric_mean,
    plain_title,
    title,
)
from reproduction.tables.typeset import LEGENDS, PAPER, Estimate, Record, markdown, number, stamp, with_error

ASKED = 0.9
FEW, MANY = 5, 20  # trials: as many as the paper has, and as many as we run
NUMBERS, TEXTS, INTERVAL_TEXTS = PAPER["table1"], LEGENDS["table1"], LEGENDS["intervals"]
BASELINES = tuple(method for method in NUMBERS if method not in OURS)
# Our rows below each of the paper's.
OUR_ROWS = {method: {method: "ours"} for method in BASELINES} | {
    method: {f"{method}-published": "ours, as published", method: "ours, 0.1.0"} for method in FIRST_VERSION
}
COMPARED = (DEFAULT, *FIRST_VERSION)
COLUMNS = "method title data metric level of_trials trials mean error paper worse"
PEERS_HEAD = "Peers, from `make bench-peers`"
MEASURES = ("rmse", "coverage", "calibration_error", "width", "interval_score")
INTERVAL_HEAD = ("method", "trials", "RMSE", "coverage", "CE", "to expect", "average width", "interval score")
# A ratio has the method that it is over, or what to expect.
INTERVAL_COLUMNS = "method title reading data metric level trials mean error expected over target reached"
# The highest ratio to the best competitor, or to what to expect, that will do over the tables.
TARGETS = {"interval_score": 0.90, "rmse": 0.97, "calibration_error": 1.15}
RATIOS = {"interval_score": "interval score", "rmse": "RMSE"}


def write(lines: Iterable[Line], folder: Path, peers: Iterable[Line] = ()) -> list[Path]:
    """Write `table1` (RMSE) and `intervals` (coverage, width, scores, comparison), each as Markdown and CSV.

    `peers` are lines of other packages on the same splits. Returns the four paths.
    """
    lines, peers = list(lines), list(peers)
    chosen = Selection(lines, peers, asked=ASKED, trials=MANY)
    head = list(_head(chosen, lines, peers))
    counts = (FEW, MANY) if any(line["trial"] >= FEW for line in chosen.lines) else (FEW,)
    tables = [part for count in counts for part in _sections(chosen, count)]
    texts = {
        "table1.md": ["# Table 1: RMSE at 0.9 asked, the paper's and ours", *head, *tables, TEXTS["legend"]],
        "table1.csv": typeset.csv(COLUMNS, _records(chosen, counts)),
        "intervals.md": ["# Intervals at 0.9 asked", *head, *interval_sections(chosen)],
        "intervals.csv": typeset.csv(INTERVAL_COLUMNS, _interval_records(chosen)),
    }
    return typeset.write(folder, texts)


def _head(chosen: Selection, lines: list[Line], peers: list[Line]) -> Iterator[str]:
    trials = typeset.span({len(run) for (_, data), run in chosen.runs.items() if data in TABLES and run})
    yield TEXTS["made"].format(trials=trials)
    yield f"Ran on: {stamp(lines)}."
    if peers:
        yield f"{PEERS_HEAD}, ran on: {stamp(peers)}."
    unused = len(lines) + len(peers) - len(chosen.lines)
    if unused:
        yield TEXTS["unused"].format(unused=unused)


def _sections(chosen: Selection, count: int) -> Iterator[str]:
    rows = []
    for method, numbers in NUMBERS.items():
        rows.append([plain_title(method), "paper", *[str(value) for value in numbers]])
        rows += [["", whose, *_cells(chosen, variant, count)] for variant, whose in OUR_ROWS[method].items()]
    shown = {variant for variants in OUR_ROWS.values() for variant in variants}
    for method in chosen.methods:
        if method == DEFAULT:
            rows.append([plain_title(method), "ours, by default", *_cells(chosen, method, count)])
        elif method not in shown:
            whose = "peer" if method in chosen.peer_methods else "extra"
            rows.append([title(method), whose, *_cells(chosen, method, count)])
    yield f"## First {count} trials"
    yield markdown(["method", "whose", *TABLES], rows)
    compared = {
        f"{title(method)} on {data}": worse
        for method, data in product(BASELINES, TABLES)
        if (worse := _beside_paper(chosen, method, data, count)[2]) is not None
    }
    yield typeset.fairness(TEXTS["fair"], compared)


def _cells(chosen: Selection, method: str, count: int) -> list[str]:
    found = [_beside_paper(chosen, method, data, count) for data in TABLES]
    return [with_error(own, of=count) + (" worse" if worse else "") for own, _, worse in found]


def _beside_paper(
    chosen: Selection, method: str, data: str, count: int
) -> tuple[Estimate | None, float | None, bool | None]:
    """Our error, the paper's for the method, as published or in 0.1.0, and whether ours is larger by its error."""
    lines, numbers = chosen.of(method, data, count), NUMBERS.get(method.removesuffix("-published"))
    own = estimate([line["rmse"] for line in lines], lines) if lines else None
    paper = None if numbers is None else numbers[TABLES.index(data)]
    if own is None or own.error is None or paper is None:
        return own, paper, None
    return own, paper, own.mean > paper + own.error


def _records(chosen: Selection, counts: Iterable[int]) -> Iterator[Record]:
    for count, method, data in product(counts, chosen.methods, TABLES):
        own, paper, worse = _beside_paper(chosen, method, data, count)
        if own is not None:
            where = {"method": method, "title": title(method), "data": data, "of_trials": count}
            yield {**where, "metric": "rmse", "level": ASKED, **vars(own), "paper": paper, "worse": worse}


# Intervals ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One method on one table, with the noise of the observations or "epistemic only"."""

    method: str
    reading: str
    values: dict[str, Estimate]
    expected_error: float


def measured(chosen: Selection, data: str) -> Iterator[Measured]:
    """All methods on one table, each with all its readings."""
    for method in chosen.methods:
        lines = chosen.of(method, data)
        epistemic = [{**line, **line["epistemic"]} for line in lines if "epistemic" in line]
        for reading, own in (("", lines), ("epistemic only", epistemic)):
            if own:
                values = {name: estimate([at(line, name, chosen.asked) for line in own], own) for name in MEASURES}
                expected = [splits.expected_error(chosen.asked, line["n_test"], line["n_train"]) for line in own]
                yield Measured(method, reading, values, statistics.fmean(expected))


@dataclass(frozen=True)
class Verdict:
    """What one of ours reaches over the tables, against a target: the highest value that will do."""

    measure: str
    value: float
    tables: int

    @property
    def reached(self) -> bool:
        return self.value <= TARGETS[self.measure]

    def __str__(self) -> str:
        return f"{number(self.value)} {'reached' if self.reached else 'missed'}{_some_tables(self.tables)}"


def ratios(chosen: Selection, own: str, measure: str, data: str) -> dict[str, Estimate]:
    """Ours over each competitor on one table."""
    value, mine = partial(at, measure=measure, asked=chosen.asked), chosen.of(own, data)
    found = {other: splits.paired_ratio(mine, chosen.of(other, data), value) for other in chosen.competitors}
    return {other: ratio for other, ratio in found.items() if ratio is not None}


def best(found: dict[str, Estimate]) -> str:
    """The competitor with the highest ratio, the hardest one to beat; of equal ones the first."""
    return max(found, key=lambda other: found[other].mean)


def _calibration_ratios(chosen: Selection, method: str) -> dict[str, float]:
    """CE over what to expect, by table."""
    return {
        data: one.values["calibration_error"].mean / one.expected_error
        for data in TABLES
        for one in measured(chosen, data)
        if one.method == method and not one.reading
    }


def verdicts(chosen: Selection, own: str) -> dict[str, Verdict]:
    """Every target for which there are results, by measure."""
    values = {}
    for measure in RATIOS:
        by_table = [each for data in TABLES if (each := ratios(chosen, own, measure, data))]
        if by_table:
            values[measure] = geometric_mean(each[best(each)].mean for each in by_table), len(by_table)
    over_expected = list(_calibration_ratios(chosen, own).values())
    if over_expected:
        values["calibration_error"] = statistics.fmean(over_expected), len(over_expected)
    return {measure: Verdict(measure, *value) for measure, value in values.items()}


def interval_sections(chosen: Selection) -> Iterator[str]:
    """Markdown: the verdicts, ours over every competitor, then one table for each data set."""
    yield "## Ours against every other method"
    owns = [own for own in COMPARED if own in chosen.methods]
    yield from _comparison(chosen, owns) if owns else ["Nothing to compare: there are no results of ours."]
    yield "## Each table by itself"
    yield INTERVAL_TEXTS["legend"]
    for data in chosen.data:
        yield f"### {data}"
        if data in INTERVAL_TEXTS:
            yield INTERVAL_TEXTS[data]
        rows = []
        for one in measured(chosen, data):
            name = title(one.method) + (f", {one.reading}" if one.reading else "")
            rmse, coverage, error, *others = (with_error(value) for value in one.values.values())
            trials, expected = str(one.values["rmse"].trials), number(one.expected_error, 3)
            rows.append([name, trials, rmse, coverage, error, expected, *others])
        yield markdown(INTERVAL_HEAD, rows)


def _comparison(chosen: Selection, owns: list[str]) -> Iterator[str]:
    yield INTERVAL_TEXTS["ratios"]
    found = [verdicts(chosen, own) for own in owns]
    rows = [
        [name, f"at most {TARGETS[measure]}", *[str(each.get(measure, "-")) for each in found]]
        for measure, name in LEGENDS["interval_summaries"].items()
    ]
    yield markdown(["over the six tables", "target", *map(title, owns)], rows)
    yield "### Calibration error over what to expect"
    rows = []
    for method in chosen.methods:
        by_table = _calibration_ratios(chosen, method)
        cells = [number(by_table[data], 3) if data in by_table else "-" for data in TABLES]
        mean = f"{number(statistics.fmean(by_table.values()), 3)}{_some_tables(len(by_table))}" if by_table else "-"
        rows.append([title(method), *cells, mean])
    yield markdown(["method", *TABLES, "mean"], rows)
    for measure, name in RATIOS.items() if chosen.competitors else ():
        yield f"### {title(owns[0])}: {name} over that of the others"
        yield _ratio_table(chosen, owns[0], measure)


def _ratio_table(chosen: Selection, own: str, measure: str) -> str:
    by_table = [ratios(chosen, own, measure, data) for data in TABLES]
    rows = [[title(other), *_ratio_cells([each.get(other) for each in by_table])] for other in chosen.competitors]
    bests = [best(each) if each else None for each in by_table]
    rows.append(["best competitor", *["-" if name is None else title(name) for name in bests], ""])
    hardest = [None if name is None else each[name] for name, each in zip(bests, by_table, strict=True)]
    rows.append(["over the best", *_ratio_cells(hardest)])
    return markdown(["ours over", *TABLES, "geometric mean"], rows)


def _ratio_cells(found: list[Estimate | None]) -> list[str]:
    means = [one.mean for one in found if one is not None]
    over_all = f"{number(geometric_mean(means))}{_some_tables(len(means))}" if means else "-"
    return [*[with_error(one, of=MANY) for one in found], over_all]


def _some_tables(count: int) -> str:
    """How many tables, where not all."""
    return "" if count == len(TABLES) else f" ({count} of {len(TABLES)} tables)"


def _interval_records(chosen: Selection) -> Iterator[Record]:
    """Long form: one record for each method, reading, table and metric, then every ratio, and the verdicts."""
    for data in chosen.data:
        for one in measured(chosen, data):
            where = {"method": one.method, "title": title(one.method), "reading": one.reading, "data": data}
            for metric, value in one.values.items():
                expected = one.expected_error if metric == "calibration_error" else None
                yield {**where, "metric": metric, "level": chosen.asked, **vars(value), "expected": expected}
    for own in COMPARED:
        whose: Record = {"method": own, "title": title(own), "level": chosen.asked}
        for measure, data in product(RATIOS, TABLES):
            for other, ratio in ratios(chosen, own, measure, data).items():
                yield {**whose, "data": data, "metric": f"{measure}_ratio", **vars(ratio), "over": other}
        for measure, verdict in verdicts(chosen, own).items():
            over = "expected" if measure == "calibration_error" else "best of each table"
            summed = {"data": f"{verdict.tables} tables", "metric": f"{measure}_ratio", "mean": verdict.value}
            yield {**whose, **summed, "over": over, "target": TARGETS[measure], "reached": verdict.reached}
