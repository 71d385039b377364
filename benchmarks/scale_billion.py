"""What a billion rows would cost, from the slopes that were measured on fewer: an extrapolation, and marked as one."""

from __future__ import annotations

from typing import Any

from machine import three_digits
from scale_curves import BILLION, per_unit

ROUNDS = 100  # at most, in the version that was measured


HOUR = 3600.0


def streamed(found: list[dict[str, Any]]) -> dict[str, float]:
    """Hours, terabytes of files and gigabytes of memory of a streamed fit of a billion rows.

    A round costs the same at any length, so that the rest of a fit, its passes over the whole table, is what grows.
    """
    first, last = found[0], found[-1]
    per_round = first["CPU seconds of a sweep"] / first["rounds of a sweep"]
    passes = [one["CPU seconds"] - one["rounds"] * per_round for one in (first, last)]
    per_row = (passes[1] - passes[0]) / (last["rows"] - first["rows"])
    return {
        "hours of the passes": BILLION * per_row / HOUR,
        "hours of the rounds": ROUNDS * per_round / HOUR,
        "hours of a sweep": BILLION * first["CPU seconds of a sweep"] / first["rows"] / HOUR,
        "terabytes of files": BILLION * last["megabytes of files"] / last["rows"] * 2**20 / 1e12,
        "gigabytes of memory": last["peak megabytes"] * 2**20 / 1e9,
    }


def in_memory(found: list[dict[str, Any]]) -> dict[str, float]:
    """Hours of a round and terabytes of memory of a fit in memory."""
    return {
        "hours": BILLION * per_unit(found, "CPU seconds") / found[-1]["rounds"] / HOUR,
        "terabytes": BILLION * per_unit(found, "peak megabytes") * 2**20 / 1e12,
    }


def lines(parts: dict[str, Any]) -> str:
    """The costs in words; `parts` are those that were measured on a CPU."""
    texts = []
    if "rows" in parts:
        cost = in_memory(parts["rows"]["found"])
        texts.append(
            f"In memory, by the slope of the curve over rows: {three_digits(cost['terabytes'])} TB of memory and "
            f"{three_digits(cost['hours'])} hours per round on one thread, with the default networks and five members."
        )
    if "streaming" in parts:
        cost = streamed(parts["streaming"]["found"])
        texts.append(
            f"Streamed, from the streamed fits: files of {three_digits(cost['terabytes of files'])} TB and "
            f"{three_digits(cost['gigabytes of memory'])} GB of memory. On one thread, the passes over all rows take "
            f"{three_digits(cost['hours of the passes'])} hours, and {ROUNDS} rounds, the "
            f"maximum, {three_digits(cost['hours of the rounds'])} hours: rounds see a share of the rows. "
            f"Showing every row once to each of its members would take {three_digits(cost['hours of a sweep'])} hours."
        )
    return " ".join(["Extrapolated from measured slopes, not measured.", *texts]) if texts else ""
