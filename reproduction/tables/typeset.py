"""How results are written: numbers with their errors, Markdown whose columns are aligned in the source too, CSV."""

from __future__ import annotations

import io
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from csv import DictWriter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coverwell.files import new_file
from reproduction.lines import Line
from reproduction.methods import Method, ordered

Record = dict[str, object]

HERE = Path(__file__).parents[1]
# The paper's numbers by table and method; the texts in tables and figures.
PAPER: Mapping[str, Mapping[str, Any]] = tomllib.loads((HERE / "paper.toml").read_text())
LEGENDS: Mapping[str, Mapping[str, str]] = {
    part: {name: " ".join(text.split()) for name, text in texts.items()}
    for part, texts in tomllib.loads((HERE / "legends.toml").read_text()).items()
}


@dataclass(frozen=True)
class Estimate:
    """A mean over trials, and its standard error; of one trial it is unknown."""

    mean: float
    error: float | None
    trials: int


def mean_of_seeds(values: Sequence[float]) -> Estimate | None:
    """Mean and standard error over seeds; None where there are no values."""
    if not values:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), error, len(values))


class SeedResults:
    """Result lines of a domain whose trials are seeds."""

    def __init__(self, lines: Iterable[Line], methods: Sequence[Method]) -> None:
        self.lines = sorted(lines, key=lambda line: int(line["trial"]))
        self.methods = ordered((line["method"] for line in self.lines), [method.slug for method in methods])

    def where(self, **values: object) -> list[Line]:
        """The lines that have these values, by seed."""
        return [line for line in self.lines if all(line[name] == value for name, value in values.items())]


@dataclass(frozen=True)
class Target:
    """A bound for one measure: a number, or a function that finds one in the results."""

    name: str
    measure: str
    bound: Any
    at_least: bool = False  # whether the bound is from below
    strictly: bool = False

    def holds(self, value: float, bound: float) -> bool:
        """Whether a value keeps to the bound. Shares are of whole counts: 0.9 less a rounding error is 0.9."""
        value, bound = round(value, 9), round(bound, 9)
        value, bound = (-value, -bound) if self.at_least else (value, bound)
        return value < bound if self.strictly else value <= bound


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, trailing zeros kept; a large one without an exponent."""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")  # 999.96 becomes "1000."


def with_error(found: Estimate | None, *, of: int | None = None, share: bool = False) -> str:
    """Mean to the second digit of its error, the error in brackets, and [n] where only n `of` the trials are there.

    A `share` without an error has four decimals: 0.0004 of some thousand rows needs no more.
    """
    if found is None:
        return "-"
    fewer = "" if of is None or found.trials == of else f" [{found.trials}]"
    if not found.error:  # one trial, or trials that all agree
        return (f"{found.mean:.4f}" if share else number(found.mean)) + fewer
    decimals = max(0, 1 - math.floor(math.log10(found.error)))
    return f"{found.mean:.{decimals}f} ({found.error:.{decimals}f}){fewer}"


def span(counts: Iterable[int]) -> str:
    """The smallest and the largest count in words."""
    found = sorted(counts)
    return " to ".join(str(count) for count in dict.fromkeys(found[:1] + found[-1:]))


def fairness(text: str, verdicts: Mapping[str, bool]) -> str:
    """How many baselines of ours are worse than the paper's, and which."""
    worse = [name for name, is_worse in verdicts.items() if is_worse]
    return text.format(worse=len(worse), compared=len(verdicts), names=f": {', '.join(worse)}" if worse else "")


def stamp(lines: Iterable[Line]) -> str:
    """Where these lines ran: every device with the versions that it ran, each once, sorted."""
    found = set()
    for line in lines:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(line["versions"].items()))
        found.add(f"{line['device']} ({versions})")
    return "; ".join(sorted(found))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; every row has as many cells as the head."""
    widths = [max(3, *(len(row[k]) for row in [head, *rows])) for k in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *rows]]
    padded.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(row) + " |" for row in padded)


def csv(columns: str, records: Iterable[Record]) -> str:
    """Comma-separated values of these columns, one line per record; a column that a record lacks stays empty."""
    text = io.StringIO()
    writer = DictWriter(text, columns.split(), restval="", lineterminator="\n")
    writer.writeheader()
    for record in records:
        # Seven significant digits: more than a reader needs, and the same on every machine.
        digits = {name: f"{value:.7g}" for name, value in record.items() if isinstance(value, float)}
        words = {name: "yes" if value else "no" for name, value in record.items() if isinstance(value, bool)}
        writer.writerow({**record, **digits, **words})
    return text.getvalue()


def write(folder: Path, texts: Mapping[str, str | Iterable[str]]) -> list[Path]:
    """Write files by name; the parts of a text that is not one string are paragraphs. Returns the paths."""
    whole = {name: text if isinstance(text, str) else "\n\n".join(text) + "\n" for name, text in texts.items()}
    for name, text in whole.items():
        with new_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in whole]
