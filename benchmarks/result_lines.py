"""Results of the benchmarks as lines of JSON, in the manner of `reproduction.lines` but of any fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reproduction import lines
from reproduction.lines import environment

__all__ = ["append", "environment", "read_lines"]


def append(path: Path, *new: dict[str, Any]) -> None:
    """Add whole lines in one write; what a kill has left of a last line is cut off."""
    lines.append(path, new)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a results file; what a kill has left of a last line is passed over."""
    return [json.loads(line) for line in lines.whole_lines(path)]
