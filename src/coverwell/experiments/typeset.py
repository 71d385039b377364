"""How results are written: numbers, Markdown whose columns are aligned in the source too, CSV, and figures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coverwell.experiments.summary import Estimate
from coverwell.files import new_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["csv_text", "markdown", "number", "with_error", "write_figure"]

DPI = 200


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, trailing zeros kept; a large one without an exponent.

    Examples
    --------
    >>> number(2.1), number(0.13702), number(123456.7), number(0.00411, 2)
    ('2.100', '0.1370', '123457', '0.0041')
    """
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".rstrip(".")  # 999.96 becomes "1000."


def with_error(found: Estimate | None, *, of: int | None = None) -> str:
    """Mean to the second digit of its error, the error in brackets, and [n] where only n `of` the trials are there.

    Examples
    --------
    >>> with_error(Estimate(2.9314, 0.118, 3), of=5), with_error(Estimate(2.9314, None, 1)), with_error(None)
    ('2.93 (0.12) [3]', '2.931', '-')
    """
    if found is None:
        return "-"
    fewer = "" if of is None or found.trials == of else f" [{found.trials}]"
    if not found.error:  # one trial, or trials that all agree
        return number(found.mean) + fewer
    decimals = max(0, 1 - math.floor(math.log10(found.error)))
    return f"{found.mean:.{decimals}f} ({found.error:.{decimals}f}){fewer}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; every row has as many cells as the head."""
    widths = [max(3, *(len(row[k]) for row in [head, *rows])) for k in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *rows]]
    padded.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(row) + " |" for row in padded)


def csv_text(columns: Sequence[str], records: Iterable[dict[str, object]]) -> str:
    """Comma-separated values, one line per record; a column that a record lacks stays empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def _field(value: object) -> str:
    """Seven significant digits: more than a reader needs, and the same on every machine."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def write_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, equal bytes for equal results; returns both paths."""
    import matplotlib  # extra `plots`

    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    unstamped = ({"Software": None}, {"Date": None, "Creator": None})
    with matplotlib.rc_context({"svg.hashsalt": "coverwell"}):
        for path, metadata in zip(paths, unstamped, strict=True):
            with new_file(path) as file:
                figure.savefig(file, format=path.suffix[1:], dpi=DPI, metadata=metadata)
    return paths
