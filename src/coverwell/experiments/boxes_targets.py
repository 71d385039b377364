"""What Table 3 was to show, computed from its lines; a miss is shown as a miss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coverwell.experiments.boxes_data import TARGETS
from coverwell.experiments.boxes_methods import BOX_METHODS, OURS
from coverwell.experiments.boxes_summary import BOX, UNITS, BoxSelection, title
from coverwell.experiments.typeset import markdown

__all__ = ["ASKED", "Asked", "Judged", "judge", "records", "sections"]

OWN = tuple(method.slug for method in BOX_METHODS if method.kind == OURS)
PARTS = (*TARGETS, BOX)


@dataclass(frozen=True)
class Asked:
    """A bound for one measure, to be held by each of its parts."""

    name: str
    measure: str
    bound: float
    parts: tuple[str, ...]
    unit: str = "percent"
    at_least: bool = False  # whether the bound is from below

    def holds(self, value: float) -> bool:
        # Shares of whole counts: 0.96 less 0.95 is 0.01, give or take a rounding error.
        value, bound = round(value, 9), round(self.bound, 9)
        return value >= bound if self.at_least else value <= bound


ASKED = (
    Asked("IoU at least 0.83", "iou", 0.83, (BOX,), at_least=True),
    Asked("CE at most 0.01", "calibration_error", 0.01, TARGETS),
    *(
        Asked(f"AW at most 0.9 of a constant width, in {words}", "width_ratio", 0.9, TARGETS, unit)
        for unit, words in UNITS.items()
    ),
    Asked("joint coverage within 0.01 of asked", "joint_error", 0.01, (BOX,)),
)


@dataclass(frozen=True)
class Judged:
    """A method against a bound, in one part of the box."""

    value: float
    reached: bool

    def __str__(self) -> str:
        return f"{self.value:.4f}{'' if self.reached else ' missed'}"


def judge(chosen: BoxSelection, asked: Asked, method: str) -> dict[str, Judged]:
    """By part, wherever there are runs to judge by; values are means over seeds."""
    found = {part: chosen.estimate(method, asked.measure, part, asked.unit) for part in asked.parts}
    return {part: Judged(one.mean, asked.holds(one.mean)) for part, one in found.items() if one is not None}


def sections(chosen: BoxSelection) -> Iterator[str]:
    """Markdown: a table of all bounds for each of our methods."""
    if not chosen.is_official:
        yield f"Nothing is asked of results on {chosen.data}: the targets are about all photographs of CUB."
        return
    for method in [method for method in OWN if method in chosen.methods]:
        rows = []
        for asked in ASKED:
            found = judge(chosen, asked, method)
            cells = [str(found[part]) if part in found else _gap(asked, part) for part in PARTS]
            rows.append([asked.name, *cells, _verdict(asked, found)])
        yield f"**{title(method)}**, means over seeds:"
        yield markdown(["asked", *TARGETS, "whole box", "verdict"], rows)


def records(chosen: BoxSelection) -> Iterator[dict[str, object]]:
    """Long form: every verdict."""
    for asked in ASKED if chosen.is_official else ():
        for method in [method for method in OWN if method in chosen.methods]:
            for part, one in judge(chosen, asked, method).items():
                where = {"method": method, "title": title(method), "metric": asked.measure, "part": part}
                unit = asked.unit if asked.measure == "width_ratio" else ""
                verdict = {"target": asked.name, "bound": asked.bound, "reached": one.reached}
                yield {**where, "unit": unit, "mean": one.value, **verdict}


def _gap(asked: Asked, part: str) -> str:
    return "-" if part in asked.parts else ""


def _verdict(asked: Asked, found: dict[str, Judged]) -> str:
    if any(not one.reached for one in found.values()):
        return "missed"
    return "reached" if set(found) == set(asked.parts) else "open"
