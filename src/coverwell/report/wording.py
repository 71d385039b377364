"""How numbers, shares and values are written in a report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["as_text", "chance_of", "counted", "number", "precise", "share", "shortened_name", "span"]

LONGEST_NAME = 34  # characters; with a count of rows behind it, it fits into 360 pixels
LEAST_CHANCE = 0.0001


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


def precise(value: float) -> str:
    """A number to seven digits: a value stays apart from the bound that it lies beside.

    Examples
    --------
    >>> precise(123456.7), precise(1e5), precise(0.1 + 0.2), precise(2.5e-9)
    ('123,456.7', '100,000', '0.3', '2.5e-09')
    """
    return f"{value:,.7g}"


def share(value: float) -> str:
    """A share to a tenth of a percent.

    Examples
    --------
    >>> share(0.8599)
    '86.0 %'
    """
    return f"{100 * value:.1f} %"


def span(low: float, high: float) -> str:
    """From one share to another, where there is little room.

    Examples
    --------
    >>> span(0.8, 0.945)
    '80.0 to 94.5 %'
    """
    return f"{100 * low:.1f} to {share(high)}"


def counted(count: int, what: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def chance_of(probability: float) -> str:
    """A bound of a probability, as far as its digits mean something.

    Examples
    --------
    >>> chance_of(0.0234), chance_of(3e-12)
    ('at most 0.02', 'less than 0.0001')
    """
    return f"at most {probability:.1g}" if probability >= LEAST_CHANCE else f"less than {LEAST_CHANCE}"


def shortened_name(name: str, most: int = LONGEST_NAME) -> str:
    """A name that fits on a phone.

    Examples
    --------
    >>> shortened_name("temperature", 6)
    'tempe…'
    """
    return name if len(name) <= most else f"{name[: most - 1]}…"


def as_text(value: Any) -> str:
    """One value of a table as people read it; "missing" for none."""
    if value is None or value != value:
        return "missing"
    if isinstance(value, np.datetime64):
        units = ("D", "m", "s")  # the first that says it all
        short = (value.astype(f"datetime64[{unit}]") for unit in units)
        return str(next((moment for moment in short if moment == value), value)).replace("T", " ")
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)
