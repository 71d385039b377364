"""Coverage, calibration error, width and interval score, which the paper shows only as curves; ours against others.

Ours by default is compared with every other method and peer on the trials that both have.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from reproduction.data.tables import TABLES
from reproduction.tables import splits
from reproduction.tables.splits import DEFAULTS, Selection, at, estimate, geometric_mean, plain_title, title
from reproduction.tables.typeset import LEGENDS, Estimate, Record, markdown, number, with_error

MEASURES = ("rmse", "coverage", "calibration_error", "width", "interval_score")
HEAD = ("method", "trials", "RMSE", "coverage", "CE", "to expect", "average width", "interval score")
# A ratio has the method that it is over, or what to expect.
COLUMNS = "method title reading data metric level trials mean error expected over target reached"
# The highest ratio to the best competitor, or to what to expect, that will do over the tables.
TARGETS = {"interval_score": 1.0, "rmse": 1.02, "calibration_error": 1.2}
RATIOS = {"interval_score": "interval score", "rmse": "RMSE"}
SUMMARIES, TEXTS = LEGENDS["interval_summaries"], LEGENDS["intervals"]


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
        """Whether the target is."""
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


def calibration_ratios(chosen: Selection, method: str) -> dict[str, float]:
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
    over_expected = list(calibration_ratios(chosen, own).values())
    if over_expected:
        values["calibration_error"] = statistics.fmean(over_expected), len(over_expected)
    return {measure: Verdict(measure, *value) for measure, value in values.items()}


def sections(chosen: Selection) -> Iterator[str]:
    """Markdown: the verdicts, ours over every competitor, then one table for each data set."""
    yield "## Ours by default against every other method"
    owns = [own for own in DEFAULTS if own in chosen.methods]
    yield from _comparison(chosen, owns) if owns else ["Not judged: there are no results of ours by default."]
    yield "## Each table by itself"
    yield TEXTS["legend"]
    for data in chosen.data:
        yield f"### {data}"
        if data in TEXTS:
            yield TEXTS[data]
        rows = []
        for one in measured(chosen, data):
            name = title(one.method) + (f", {one.reading}" if one.reading else "")
            rmse, coverage, error, *others = (with_error(value) for value in one.values.values())
            trials, expected = str(one.values["rmse"].trials), number(one.expected_error, 3)
            rows.append([name, trials, rmse, coverage, error, expected, *others])
        yield markdown(HEAD, rows)


def _comparison(chosen: Selection, owns: list[str]) -> Iterator[str]:
    yield TEXTS["ratios"]
    found = [verdicts(chosen, own) for own in owns]
    rows = [
        [name, f"at most {TARGETS[measure]}", *[str(each.get(measure, "-")) for each in found]]
        for measure, name in SUMMARIES.items()
    ]
    yield markdown(["over the six tables", "target", *[plain_title(own) for own in owns]], rows)
    yield "### Calibration error over what to expect"
    rows = []
    for method in chosen.methods:
        by_table = calibration_ratios(chosen, method)
        cells = [number(by_table[data], 3) if data in by_table else "-" for data in TABLES]
        mean = f"{number(statistics.fmean(by_table.values()), 3)}{_some_tables(len(by_table))}" if by_table else "-"
        rows.append([title(method), *cells, mean])
    yield markdown(["method", *TABLES, "mean"], rows)
    for own in owns if chosen.competitors else ():
        for measure, name in RATIOS.items():
            yield f"### {plain_title(own)}: {name} over that of the others"
            yield _ratio_table(chosen, own, measure)


def _ratio_table(chosen: Selection, own: str, measure: str) -> str:
    by_table = [ratios(chosen, own, measure, data) for data in TABLES]
    rows = []
    for other in chosen.competitors:
        rows.append([title(other), *_ratio_cells([each.get(other) for each in by_table], chosen.trials)])
    bests = [best(each) if each else None for each in by_table]
    rows.append(["best competitor", *["-" if name is None else title(name) for name in bests], ""])
    hardest = [None if name is None else each[name] for name, each in zip(bests, by_table, strict=True)]
    rows.append(["over the best", *_ratio_cells(hardest, chosen.trials)])
    return markdown(["ours over", *TABLES, "geometric mean"], rows)


def _ratio_cells(found: Iterable[Estimate | None], trials: int) -> list[str]:
    found = list(found)
    means = [one.mean for one in found if one is not None]
    over_all = f"{number(geometric_mean(means))}{_some_tables(len(means))}" if means else "-"
    return [*[with_error(one, of=trials) for one in found], over_all]


def _some_tables(count: int) -> str:
    """How many tables, where not all."""
    return "" if count == len(TABLES) else f" ({count} of {len(TABLES)} tables)"


def records(chosen: Selection) -> Iterator[Record]:
    """Long form: one record for each method, reading, table and metric, then every ratio, and the verdicts."""
    for data in chosen.data:
        for one in measured(chosen, data):
            where = {"method": one.method, "title": title(one.method), "reading": one.reading, "data": data}
            for metric, value in one.values.items():
                expected = one.expected_error if metric == "calibration_error" else None
                yield {**where, "metric": metric, "level": chosen.asked, **vars(value), "expected": expected}
    for own in DEFAULTS:
        whose: Record = {"method": own, "title": title(own), "level": chosen.asked}
        for measure in RATIOS:
            for data in TABLES:
                for other, ratio in ratios(chosen, own, measure, data).items():
                    yield {**whose, "data": data, "metric": f"{measure}_ratio", **vars(ratio), "over": other}
        for measure, verdict in verdicts(chosen, own).items():
            over = "expected" if measure == "calibration_error" else "best of each table"
            summed = {"data": f"{verdict.tables} tables", "metric": f"{measure}_ratio", "mean": verdict.value}
            yield {**whose, **summed, "over": over, "target": TARGETS[measure], "reached": verdict.reached}
