"""The table of intervals, which the paper shows only as curves: coverage, calibration error, width, interval score."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from coverwell.experiments import summary
from coverwell.experiments.summary import Estimate, Line, Selection
from coverwell.experiments.typeset import markdown, number, with_error

__all__ = ["COLUMNS", "Measured", "measured", "records", "sections"]

HEAD = ("method", "trials", "RMSE", "coverage", "CE", "to expect", "average width", "interval score")
# The comparison with other methods adds its records to the same file: a ratio has the method that it is over.
COLUMNS = (
    *("method", "title", "reading", "data", "metric", "level"),
    *("trials", "mean", "error", "expected", "over", "target", "reached"),
)
LEGEND = (
    "Mean over the trials, in brackets the corrected standard error. CE: mean over the trials of |coverage - asked|, "
    "beside what to expect if all training rows were ranked exactly. RMSE, width and interval score are in the unit of "
    "the target. Lower is better, but a narrow width means little where coverage is missed. *Epistemic only*: the same "
    "fit, without its observation noise."
)
NOTES = {
    "parkinsons by patient": "Whole patients are held out. Rows of one patient resemble each other, so coverage "
    "scatters far more than what to expect of exact ranks says, which takes rows as exchangeable.",
    "red wine unique": "Repeated rows dropped, the first one kept.",
    "white wine unique": "Repeated rows dropped, the first one kept.",
}


@dataclass(frozen=True)
class Measured:
    """One method on one table, in its usual or its epistemic-only reading."""

    method: str
    reading: str
    values: dict[str, Estimate]
    expected_error: float

    @property
    def title(self) -> str:
        """Method and reading."""
        return summary.title(self.method) + (f", {self.reading}" if self.reading else "")


def measured(chosen: Selection, data: str) -> Iterator[Measured]:
    """All methods on one table, each with all its readings."""
    for method in chosen.methods:
        lines = chosen.of(method, data)
        for reading, read in (("", lines), ("epistemic only", summary.epistemic(lines))):
            if read:
                expected = statistics.fmean(summary.expected_errors(read, chosen.asked))
                yield Measured(method, reading, _values(read, chosen.asked), expected)


def _values(lines: list[Line], asked: float) -> dict[str, Estimate]:
    found = {
        "rmse": [line["rmse"] for line in lines],
        "coverage": [summary.at(line, "coverage", asked) for line in lines],
        "calibration_error": summary.calibration_errors(lines, asked),
        "width": [summary.at(line, "width", asked) for line in lines],
        "interval_score": [summary.at(line, "interval_score", asked) for line in lines],
    }
    return {name: summary.estimate(values, lines) for name, values in found.items()}


def sections(chosen: Selection) -> Iterator[str]:
    """Markdown: one table for each data set."""
    yield "## Each table by itself"
    yield LEGEND
    for data in chosen.data:
        yield f"### {data}"
        if data in NOTES:
            yield NOTES[data]
        yield markdown(HEAD, [_row(one) for one in measured(chosen, data)])


def _row(one: Measured) -> list[str]:
    rmse, coverage, error, width, score = (with_error(value) for value in one.values.values())
    trials = str(one.values["rmse"].trials)
    return [one.title, trials, rmse, coverage, error, number(one.expected_error, 3), width, score]


def records(chosen: Selection) -> Iterator[dict[str, object]]:
    """Long form: one record for each method, reading, table and metric."""
    for data in chosen.data:
        for one in measured(chosen, data):
            where = {"method": one.method, "title": summary.title(one.method), "reading": one.reading, "data": data}
            for metric, value in one.values.items():
                expected = one.expected_error if metric == "calibration_error" else None
                yield {**where, "metric": metric, "level": chosen.asked, **vars(value), "expected": expected}
