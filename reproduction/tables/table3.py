"""Table 3 of the paper beside ours, and what it was to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from coverwell import metrics
from reproduction.domains.boxes import COVERAGE, CUB, GENERATED, TARGETS
from reproduction.lines import Line
from reproduction.methods import BOX_METHODS, OURS, ordered, title_of
from reproduction.tables import typeset
from reproduction.tables.typeset import LEGENDS, PAPER, Estimate, Record, Target, markdown, with_error

BOX = "box"  # what is measured of a box as a whole, not of x, y, w and h
WHOLE = {"iou": "mean IoU", "joint_coverage": "joint", "together": "all four separately"}
WITH_UNIT = LEGENDS["box_measures"]
UNITS = {"percent": "% of the side", "pixels": "pixels"}
NUMBERS, TEXTS = PAPER["table3"], LEGENDS["table3"]
# A row of the paper stands above the first of our rows that answers it.
PAPER_ABOVE = {"hnn": "hnn", "iqr-fit-published": "iqr-fit"}
COLUMNS = "method title metric unit part trials mean error paper target bound reached"


class Results(typeset.SeedResults):
    """Result lines by method, all on the same images and from the same weights."""

    def __init__(self, lines: Iterable[Line]) -> None:
        super().__init__(lines, BOX_METHODS)
        if not self.lines:
            raise ValueError("results on boxes are needed, got none; run the study first")
        for name in ("data", "weights", "layer4", "n_train", "n_test"):
            found = sorted({str(line[name]) for line in self.lines})
            if len(found) > 1:
                raise ValueError(
                    f"results of one table must agree in {name}, got {' and '.join(found)}; keep them in folders of "
                    "their own"
                )
        self.data = str(self.lines[0]["data"])

    def estimate(self, method: str, name: str, part: str, unit: str = "percent") -> Estimate | None:
        """Mean over seeds and its standard error; None where there is no such run, or nothing to measure."""
        found = [measure(line, name, part, unit) for line in self.where(method=method)]
        return typeset.mean_of_seeds([value for value in found if value is not None])


def measure(line: Line, name: str, part: str, unit: str = "percent") -> float | None:
    """One measure of a line, of x, y, w or h or of the box; None where the run has nothing to measure.

    "joint_coverage" and "joint_width" are of boxes made to hold together, which need ranks; "together" is the share of
    images in which the four separate intervals all hold. "width_ratio" is the average width over that of intervals of
    one width around the same predictions with the same coverage.
    """
    joint = line["joint"]
    if name in ("iou", "together"):
        return float(line[name])
    if name.startswith("joint") and joint is None:
        return None
    if name == "joint_coverage":
        return float(joint["reached"])
    if name == "joint_error":
        return abs(float(joint["reached"]) - float(line["coverage"]))
    place = TARGETS.index(part)
    if name == "joint_width":
        return float(joint["width"][unit][place])
    if name == "calibration_error":
        return abs(float(line["reached"][place]) - float(line["coverage"]))
    if name == "width_ratio":
        constant = float(line[unit]["constant_width"][place])
        return float(line[unit]["width"][place]) / constant if constant > 0 else None
    return float(line[unit][name][place])


def papers(method: str, name: str, part: str) -> float | None:
    """The paper's number, whether ours is as published or by default; None where it has none."""
    numbers = NUMBERS.get(method.removesuffix("-published"), {}).get(name)
    if numbers is None or (len(numbers) == 1) != (part == BOX):
        return None
    number: float = numbers[0 if part == BOX else TARGETS.index(part)]
    return number


def title(method: str) -> str:
    """The name that readers see."""
    return title_of(method, BOX_METHODS)


# What it was to show --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoxTarget(Target):
    """A bound for one measure, to be held by each of its parts."""

    parts: tuple[str, ...] = TARGETS
    unit: str = "percent"


ASKED = (
    BoxTarget("IoU at least 0.83", "iou", 0.83, at_least=True, parts=(BOX,)),
    BoxTarget("CE at most 0.01", "calibration_error", 0.01),
    BoxTarget("AW at most 0.9 of a constant width, in % of the side", "width_ratio", 0.9),
    BoxTarget("AW at most 0.9 of a constant width, in pixels", "width_ratio", 0.9, unit="pixels"),
    BoxTarget("joint coverage within 0.01 of asked", "joint_error", 0.01, parts=(BOX,)),
)


def compared(found: Results, target: BoxTarget, method: str) -> dict[str, tuple[float, bool]]:
    """Value and whether it holds by part, wherever there are runs; values are means over seeds."""
    values = {part: found.estimate(method, target.measure, part, target.unit) for part in target.parts}
    return {part: (one.mean, target.holds(one.mean, target.bound)) for part, one in values.items() if one is not None}


def _asked_methods(found: Results) -> list[str]:
    """Ours, if these are all photographs in the official split."""
    own = [method.slug for method in BOX_METHODS if method.kind == OURS and method.slug in found.methods]
    return own if found.data == CUB else []


def target_sections(found: Results) -> Iterator[str]:
    """Markdown: a table of all bounds for each of our methods; a miss is shown as a miss."""
    if found.data != CUB:
        yield TEXTS["unofficial"].format(data=found.data)
    for method in _asked_methods(found):
        rows = []
        for target in ASKED:
            by_part = compared(found, target, method)
            cells = dict.fromkeys((*TARGETS, BOX), "") | dict.fromkeys(target.parts, "-")
            cells |= {part: f"{value:.4f}{'' if held else ' missed'}" for part, (value, held) in by_part.items()}
            verdict = "reached" if set(by_part) == set(target.parts) else "open"
            rows.append(
                [target.name, *cells.values(), verdict if all(held for _, held in by_part.values()) else "missed"]
            )
        yield f"**{title(method)}**, means over seeds:"
        yield markdown(["asked", *TARGETS, "whole box", "verdict"], rows)


# The tables -----------------------------------------------------------------------------------------------------------


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write `table3.md` and `table3.csv`; returns both paths."""
    found = Results(lines)
    return typeset.write(folder, {"table3.md": _document(found), "table3.csv": typeset.csv(COLUMNS, _records(found))})


def _document(found: Results) -> Iterator[str]:
    yield f"# Table 3: boxes around birds at {COVERAGE} asked, the paper's and ours"
    if found.data == GENERATED:
        yield TEXTS["nothing"]
    first, seeds = found.lines[0], typeset.span({len(found.where(method=method)) for method in found.methods})
    images = "CUB-200-2011, official split" if found.data == CUB else found.data
    yield TEXTS["made"].format(images=images, seeds=seeds, **first)
    yield f"Ran on: {typeset.stamp(found.lines)}."
    yield TEXTS["legend"]
    yield "## Against the targets"
    yield from target_sections(found)
    yield "## The whole box"
    yield TEXTS["whole"]
    yield _table(found, list(WHOLE), [BOX], list(WHOLE.values()))
    yield "## CE, |coverage - 0.95|"
    yield _table(found, ["calibration_error"], TARGETS, TARGETS)
    expected = metrics.expected_calibration_error(COVERAGE, first["n_test"], first["n_train"])
    low, high = metrics.coverage_band(COVERAGE, first["n_test"], first["n_train"])
    yield TEXTS["expected"].format(expected=expected, low=low, high=high)
    for name, head in WITH_UNIT.items():
        yield f"## {head}"
        if name == "width_ratio":
            yield TEXTS["ratio"]
        yield _table_with_units(found, name)
    yield "## Rounds and seconds"
    if found.data != GENERATED:
        yield TEXTS["features"]
    yield _effort(found)


def _shown(found: Results) -> Iterator[tuple[str, str | None, bool]]:
    """Methods, the paper's method that stands above, and whether there are results of ours."""
    for method in ordered({*found.methods, *PAPER_ABOVE}, BOX_METHODS):
        yield method, PAPER_ABOVE.get(method), method in found.methods


def _table(found: Results, names: Sequence[str], parts: Sequence[str], heads: Sequence[str]) -> str:
    """Shares of images, a column for each measure and part."""
    rows = []
    for method, above, ours in _shown(found):
        if above is not None:
            numbers = [f"{value:g}" for value in NUMBERS[above][names[0]]]
            rows.append([title(above), "paper", *numbers, *[""] * (len(heads) - len(numbers))])
        if ours:
            cells = [found.estimate(method, name, part) for name in names for part in parts]
            rows.append([title(method), "ours", *[with_error(one, share=True) for one in cells]])
    return markdown(["method", "whose", *heads], rows)


def _table_with_units(found: Results, name: str) -> str:
    rows = []
    for method, above, ours in _shown(found):
        if above is not None and name in NUMBERS[above]:
            rows.append([title(above), "paper", "not stated", *[f"{value:g}" for value in NUMBERS[above][name]]])
        for unit, words in UNITS.items() if ours else ():
            cells = [found.estimate(method, name, part, unit) for part in TARGETS]
            if any(one is not None for one in cells):
                rows.append([title(method), "ours", words, *map(with_error, cells)])
    return markdown(["method", "whose", "unit", *TARGETS], rows)


def _effort(found: Results) -> str:
    rows = []
    for method in found.methods:
        for line in found.where(method=method):
            speed = line["n_test"] / line["predict_seconds"] if line["predict_seconds"] else float("nan")
            seconds = [f"{line['fit_seconds']:.1f}", f"{line['predict_seconds']:.1f}", f"{speed:.0f}"]
            rows.append([title(method), str(line["seed"]), line["device"], str(line["rounds"]), *seconds])
    return markdown(["method", "seed", "device", "rounds", "fit s", "intervals s", "pictures a second"], rows)


def _records(found: Results) -> Iterator[Record]:
    asked = [(name, "", BOX) for name in WHOLE] + [("calibration_error", "", part) for part in TARGETS]
    asked += [(name, unit, part) for name in (*WITH_UNIT, "constant_width") for unit in UNITS for part in TARGETS]
    for method in found.methods:
        for name, unit, part in asked:
            own = found.estimate(method, name, part, unit or "percent")
            if own is not None:
                yield (
                    _record(method, name, unit, part)
                    | vars(own)
                    | {"paper": "" if unit else papers(method, name, part)}
                )
    for method, numbers in NUMBERS.items():  # beside no width of ours: their unit is not known
        for part, width in zip(TARGETS, numbers["width"], strict=True):
            yield _record(method, "width", "not stated", part) | {"paper": width}
    for target in ASKED:
        for method in _asked_methods(found):
            unit = target.unit if target.measure == "width_ratio" else ""
            for part, (value, reached) in compared(found, target, method).items():
                verdict = {"mean": value, "target": target.name, "bound": target.bound, "reached": reached}
                yield _record(method, target.measure, unit, part) | verdict


def _record(method: str, name: str, unit: str, part: str) -> Record:
    return {"method": method, "title": title(method), "metric": name, "unit": unit, "part": part}
