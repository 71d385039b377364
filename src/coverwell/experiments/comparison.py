"""Ours by default against every other method and peer, on the trials that both have."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from coverwell.experiments import summary
from coverwell.experiments.interval_table import measured
from coverwell.experiments.summary import DEFAULTS, TABLES, Estimate, Line, Selection
from coverwell.experiments.typeset import markdown, number, with_error

__all__ = ["Verdict", "best", "calibration_ratios", "ratios", "records", "sections", "verdicts"]

# The highest ratio to the best competitor, or to what to expect, that will do over the tables.
TARGETS = {"interval_score": 1.0, "rmse": 1.02, "calibration_error": 1.2}
RATIOS = {"interval_score": "interval score", "rmse": "RMSE"}
SUMMARIES = {
    "interval_score": "interval score over the best competitor's, geometric mean",
    "rmse": "RMSE over the best competitor's, geometric mean",
    "calibration_error": "CE over what to expect, mean",
}
LEGEND = (
    "Ratios of means on the trials that both have, in brackets the corrected standard error; below 1 ours is better. "
    "[n]: they share only n trials. The best competitor of a table is the one with the highest ratio, for each measure "
    "by itself. Our own variants and the epistemic-only readings do not compete."
)


@dataclass(frozen=True)
class Verdict:
    """What one of ours reaches over the tables, against a target."""

    measure: str
    value: float
    tables: int

    @property
    def target(self) -> float:
        """The highest value that will do."""
        return TARGETS[self.measure]

    @property
    def reached(self) -> bool:
        """Whether the target is."""
        return self.value <= self.target

    def __str__(self) -> str:
        return f"{number(self.value)} {'reached' if self.reached else 'missed'}{_some_tables(self.tables)}"


def ratios(chosen: Selection, own: str, measure: str, data: str) -> dict[str, Estimate]:
    """Ours over each competitor on one table."""
    read = _reader(measure, chosen.asked)
    mine = chosen.of(own, data)
    found = {other: summary.paired_ratio(mine, chosen.of(other, data), read) for other in chosen.competitors}
    return {other: ratio for other, ratio in found.items() if ratio is not None}


def best(found: dict[str, Estimate]) -> str:
    """The competitor with the highest ratio, the hardest one to beat; of equal ones the first."""
    return max(found, key=lambda other: found[other].mean)


def calibration_ratios(chosen: Selection, method: str) -> dict[str, float]:
    """CE over what to expect, by table."""
    return {
        data: one.values["calibration_error"].mean / one.expected_error
        for data in TABLES
        for one in measured(chosen, data)
        if one.method == method and not one.reading
    }


def verdicts(chosen: Selection, own: str) -> dict[str, Verdict]:
    """Every target that the lines allow to judge, by measure."""
    found = []
    for measure in RATIOS:
        by_table = [each for data in TABLES if (each := ratios(chosen, own, measure, data))]
        if by_table:
            value = summary.geometric_mean(each[best(each)].mean for each in by_table)
            found.append(Verdict(measure, value, len(by_table)))
    over_expected = list(calibration_ratios(chosen, own).values())
    if over_expected:
        found.append(Verdict("calibration_error", statistics.fmean(over_expected), len(over_expected)))
    return {one.measure: one for one in found}


def sections(chosen: Selection) -> Iterator[str]:
    """Markdown: the verdicts, then ours over every competitor."""
    owns = [own for own in DEFAULTS if own in chosen.methods]
    yield "## Ours by default against every other method"
    if not owns:
        yield "Not judged: there are no results of ours by default."
        return
    yield LEGEND
    yield _verdict_table(chosen, owns)
    yield "### Calibration error over what to expect"
    yield _calibration_table(chosen)
    for own in owns if chosen.competitors else ():
        for measure, name in RATIOS.items():
            yield f"### {summary.plain_title(own)}: {name} over that of the others"
            yield _ratio_table(chosen, own, measure)


def records(chosen: Selection) -> Iterator[dict[str, object]]:
    """Long form: every ratio on every table, then the verdicts."""
    for own in DEFAULTS:
        where = {"method": own, "title": summary.title(own), "level": chosen.asked}
        for measure in RATIOS:
            for data in TABLES:
                for other, ratio in ratios(chosen, own, measure, data).items():
                    yield {**where, "data": data, "metric": f"{measure}_ratio", **vars(ratio), "over": other}
        for measure, one in verdicts(chosen, own).items():
            over = "expected" if measure == "calibration_error" else "best of each table"
            summed = {"data": f"{one.tables} tables", "metric": f"{measure}_ratio", "mean": one.value, "over": over}
            yield {**where, **summed, "target": one.target, "reached": one.reached}


def _reader(measure: str, asked: float) -> Callable[[Line], float]:
    if measure == "rmse":
        return lambda line: float(line["rmse"])
    return lambda line: summary.at(line, measure, asked)


def _verdict_table(chosen: Selection, owns: list[str]) -> str:
    found = [verdicts(chosen, own) for own in owns]
    rows = [
        [name, f"at most {TARGETS[measure]}", *[str(each.get(measure, "-")) for each in found]]
        for measure, name in SUMMARIES.items()
    ]
    return markdown(["over the six tables", "target", *[summary.plain_title(own) for own in owns]], rows)


def _calibration_table(chosen: Selection) -> str:
    rows = []
    for method in chosen.methods:
        found = calibration_ratios(chosen, method)
        cells = [number(found[data], 3) if data in found else "-" for data in TABLES]
        mean = f"{number(statistics.fmean(found.values()), 3)}{_some_tables(len(found))}" if found else "-"
        rows.append([summary.title(method), *cells, mean])
    return markdown(["method", *TABLES, "mean"], rows)


def _ratio_table(chosen: Selection, own: str, measure: str) -> str:
    by_table = {data: ratios(chosen, own, measure, data) for data in TABLES}
    rows = []
    for other in chosen.competitors:
        found = [by_table[data].get(other) for data in TABLES]
        rows.append([summary.title(other), *_ratio_cells(found, chosen.trials)])
    bests = [best(each) if each else None for each in by_table.values()]
    rows.append(["best competitor", *["-" if name is None else summary.title(name) for name in bests], ""])
    hardest = [None if name is None else each[name] for name, each in zip(bests, by_table.values(), strict=True)]
    rows.append(["over the best", *_ratio_cells(hardest, chosen.trials)])
    return markdown(["ours over", *TABLES, "geometric mean"], rows)


def _ratio_cells(found: Iterable[Estimate | None], trials: int) -> list[str]:
    found = list(found)
    means = [one.mean for one in found if one is not None]
    over_all = f"{number(summary.geometric_mean(means))}{_some_tables(len(means))}" if means else "-"
    return [*[with_error(one, of=trials) for one in found], over_all]


def _some_tables(count: int) -> str:
    """How many tables, where not all."""
    return "" if count == len(TABLES) else f" ({count} of {len(TABLES)} tables)"
