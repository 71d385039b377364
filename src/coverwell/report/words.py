"""How a report writes numbers, shares, values and what it shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coverwell.evaluation import Outcome, View

LEAST_CHANCE = 0.0001
FEWEST_IN_A_TABLE, ROWS_OF_ALL_TABLES = 3, 500


def number(value: float) -> str:
    """A number to four digits.

    Examples
    --------
    >>> number(1234.5678), number(0.00012345), number(float("nan"))
    ('1235', '0.0001234', 'none')
    """
    if not math.isfinite(value):
        return "none"
    if 1000 <= abs(value) < 1e9:
        return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:.4g}"


def share(value: float) -> str:
    """A share to a tenth of a percent: 0.8599 is "86.0 %"."""
    return f"{100 * value:.1f} %"


def span(low: float, high: float) -> str:
    """A range of shares, such as "80.0 to 94.5 %"."""
    return f"{100 * low:.1f} to {share(high)}"


def counted(count: int, what: str) -> str:
    """A count with its noun, such as "1 row" or "1,200 rows"."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def chance_of(probability: float) -> str:
    """A bound on a probability as far as its digits mean something: "at most 0.02", "less than 0.0001"."""
    return f"at most {probability:.1g}" if probability >= LEAST_CHANCE else f"less than {LEAST_CHANCE}"


def as_text(value: Any) -> str:
    """A value in as few characters as it needs; "missing" for none."""
    if value is None or value != value:
        return "missing"
    if isinstance(value, np.datetime64):
        short = (value.astype(f"datetime64[{unit}]") for unit in ("D", "m", "s"))  # the first that says it all
        return str(next((moment for moment in short if moment == value), value)).replace("T", " ")
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def noun(outcome: Outcome) -> str:
    """What an outcome is made of."""
    return "row" if outcome.times is None else "value"


def when(view: View) -> dict[str, int]:
    """The choices that show a view."""
    return {"target": view.target, "level": view.level}


def room_for(outcome: Outcome, most: int) -> int:
    """How many rows a table of each view may have, `most` at best: a page holds those of all views."""
    return max(FEWEST_IN_A_TABLE, min(most, ROWS_OF_ALL_TABLES // len(outcome.views)))
