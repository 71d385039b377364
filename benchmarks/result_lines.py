"""Results of the benchmarks as lines of JSON, in the manner of `coverwell.experiments.results` but of any fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coverwell.experiments import results
from coverwell.experiments.results import environment

__all__ = ["append", "environment", "read_lines"]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one whole line, or none of it; what a kill has left of a last line is cut off."""
    results.append(path, [line])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a results file; what a kill has left of a last line is passed over."""
    if not path.exists():
        return []
    whole, _ = results.whole_and_torn(path.read_bytes())
    return [json.loads(line) for line in whole]
