"""Arithmetic on the result lines of boxes: which belong together, their means over seeds, and the paper's numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from coverwell.experiments.boxes_data import CUB, TARGETS
from coverwell.experiments.boxes_methods import BOX_METHODS
from coverwell.experiments.results import Line
from coverwell.experiments.summary import Estimate

__all__ = ["BOX", "PAPER", "UNITS", "BoxSelection", "measure", "papers", "title"]

BOX = "box"  # what is measured of a box as a whole, in place of x, y, w and h
UNITS = {"percent": "% of the side", "pixels": "pixels"}
# Table 3 of the paper, at 0.95 asked. It does not say in which unit widths are, and has no other rows.
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "hnn": {
        "iou": (0.468,),
        "calibration_error": (0.11, 0.14, 0.12, 0.15),
        "width": (31.72, 26.33, 28.87, 29.14),
    },
    "iqr-fit": {
        "iou": (0.557,),
        "calibration_error": (0.01, 0.02, 0.04, 0.04),
        "width": (18.67, 16.42, 20.51, 21.13),
    },
}

_METHODS = {method.slug: method for method in BOX_METHODS}


class BoxSelection:
    """Result lines by method, all on the same pictures and from the same weights."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)
        if not self.lines:
            raise ValueError("results on boxes are needed, got none; run the study first")
        for name in ("data", "weights", "layer4", "n_train", "n_test"):
            found = sorted({str(line[name]) for line in self.lines})
            if len(found) > 1:
                raise ValueError(
                    f"results of one table must agree in {name}, got {' and '.join(found)}; keep them in folders of "
                    "their own"
                )
        found_methods = {line["method"] for line in self.lines}
        self.methods = [*[slug for slug in _METHODS if slug in found_methods], *sorted(found_methods - set(_METHODS))]

    @property
    def data(self) -> str:
        return str(self.lines[0]["data"])

    @property
    def is_official(self) -> bool:
        """Whether these are all photographs, in the official split."""
        return self.data == CUB

    def of(self, method: str) -> list[Line]:
        """One method's lines, by seed; none if it was not run."""
        return sorted((line for line in self.lines if line["method"] == method), key=lambda line: int(line["trial"]))

    def estimate(self, method: str, name: str, part: str, unit: str = "percent") -> Estimate | None:
        """Mean over seeds and its standard error; None where there is no such run, or nothing to measure."""
        found = [measure(line, name, part, unit) for line in self.of(method)]
        values = [value for value in found if value is not None]
        if not values:
            return None
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return Estimate(statistics.fmean(values), error, len(values))


def title(method: str) -> str:
    """The name that readers see; a method that we do not know keeps its own."""
    return _METHODS[method].title if method in _METHODS else method


def measure(line: Line, name: str, part: str, unit: str = "percent") -> float | None:
    """One measure of a line, of x, y, w or h or of the box; None where the run has nothing to measure.

    "joint_coverage" and "joint_width" are of boxes made to hold together, which need ranks; "together" is the share of
    pictures in which the four separate intervals all hold. "width_ratio" is the average width over that of intervals of
    one width around the same predictions with the same coverage.
    """
    if part == BOX:
        return _of_box(line, name)
    place = TARGETS.index(part)
    if name == "calibration_error":
        return abs(float(line["reached"][place]) - float(line["coverage"]))
    if name == "joint_width":
        return None if line["joint"] is None else float(line["joint"]["width"][unit][place])
    values = line[unit]
    if name == "width_ratio":
        constant = float(values["constant_width"][place])
        return float(values["width"][place]) / constant if constant > 0 else None
    return float(values[name][place])


def _of_box(line: Line, name: str) -> float | None:
    if name in ("iou", "together"):
        return float(line[name])
    if line["joint"] is None:
        return None
    reached = float(line["joint"]["reached"])
    return reached if name == "joint_coverage" else abs(reached - float(line["coverage"]))


def papers(method: str, name: str, part: str) -> float | None:
    """The paper's number, whether ours is as published or by default; None where it has none."""
    numbers = PAPER.get(method.removesuffix("-published"), {}).get(name)
    if numbers is None or (len(numbers) == 1) != (part == BOX):
        return None
    return numbers[0 if part == BOX else TARGETS.index(part)]
