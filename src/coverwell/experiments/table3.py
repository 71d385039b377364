"""Table 3 of the paper beside ours, and what it was to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coverwell import metrics
from coverwell.experiments import boxes_targets
from coverwell.experiments.boxes_data import GENERATED, TARGETS
from coverwell.experiments.boxes_methods import BOX_METHODS, COVERAGE
from coverwell.experiments.boxes_summary import BOX, PAPER, UNITS, BoxSelection, papers, title
from coverwell.experiments.results import Line
from coverwell.experiments.summary import Estimate, stamp
from coverwell.experiments.typeset import csv_text, markdown, with_error
from coverwell.files import new_file

__all__ = ["write"]

COLUMNS = (
    *("method", "title", "metric", "unit", "part", "trials", "mean", "error", "paper"),
    *("target", "bound", "reached"),
)
LEGEND = (
    "x and y are the left and upper edge of the box, w and h its width and height. A network sees the photograph "
    "squeezed to a square and predicts fractions of its sides; *% of the side* is a hundred times that (the width for "
    "x and w, the height for y and h), *pixels* are those of the original photograph. *CE*: |coverage - 0.95| on the "
    "test photographs. *AW*: average width. *As published*: the paper's losses, one pair of networks, nothing left "
    "out, no ranks. Brackets: the standard error over seeds, where there are several. -: not run, or nothing to show. "
    "The paper has one number for each cell and does not say in which unit its widths are: no verdict on them."
)
WHOLE_LEGEND = (
    "*Joint*: coverage of the boxes made by `joint=True`, in which all four numbers are to lie together with 0.95; "
    "without ranks there are none. *All four separately*: the share of photographs in which the four intervals of the "
    "other tables all hold, which nobody promises."
)
RATIO_LEGEND = (
    "AW over the width of intervals that are all equally wide, around the same predictions and with the same coverage "
    "on the test photographs: below 1 is what knowing where to be wide has brought. The constant width is one in per "
    "cent, or one in pixels."
)


@dataclass(frozen=True)
class Column:
    """A measure as a table shows it."""

    measure: str
    head: str


WHOLE = (
    Column("iou", "mean IoU"),
    Column("joint_coverage", "joint"),
    Column("together", "all four separately"),
)
WITH_UNIT = {
    "width": "AW, average width",
    "width_ratio": "AW over a constant width",
    "joint_width": "AW of joint boxes",
    "rmse": "RMSE",
    "interval_score": "Interval score at 0.95",
}
# Where a row of the paper is shown: above the first of our rows that answers it.
PAPER_ABOVE = {"hnn": "hnn", "iqr-fit-published": "iqr-fit"}


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write `table3.md` and `table3.csv`; returns both paths."""
    chosen = BoxSelection(lines)
    texts = {
        "table3.md": "\n\n".join(_document(chosen)) + "\n",
        "table3.csv": csv_text(COLUMNS, _records(chosen)),
    }
    for name, text in texts.items():
        with new_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


def _document(chosen: BoxSelection) -> Iterator[str]:
    yield f"# Table 3: boxes around birds at {COVERAGE} asked, the paper's and ours"
    yield from _head(chosen)
    yield LEGEND
    yield "## Against the targets"
    yield from boxes_targets.sections(chosen)
    yield "## The whole box"
    yield WHOLE_LEGEND
    yield _whole(chosen)
    yield "## CE, |coverage - 0.95|"
    yield _calibration(chosen)
    yield _expected(chosen)
    for name, head in WITH_UNIT.items():
        yield f"## {head}"
        if name == "width_ratio":
            yield RATIO_LEGEND
        yield _with_unit(chosen, name)
    yield "## Rounds and seconds"
    if chosen.data != GENERATED:
        yield "The frozen layers' features are computed before, once for all methods, and are read from disk here."
    yield _effort(chosen)


def _head(chosen: BoxSelection) -> Iterator[str]:
    first = chosen.lines[0]
    if chosen.data == GENERATED:
        yield (
            "**These numbers mean nothing.** The pictures are bright rectangles on noise, the trunk is random, and "
            "there is hardly any training: a run to see that everything works."
        )
    seeds = sorted({len(chosen.of(method)) for method in chosen.methods})
    counts = " to ".join(str(count) for count in dict.fromkeys(seeds[:1] + seeds[-1:]))
    pictures = "CUB-200-2011, official split" if chosen.is_official else chosen.data
    yield (
        "Made by `coverwell reproduce table3` from the lines of `boxes.jsonl` beside this file. "
        f"{pictures}: {first['n_train']} pictures train, {first['n_test']} test; {counts} seed(s) for each method. A "
        f"frozen ResNet-18 up to layer 3 with weights {first['weights']}; layer 4, which is trained, starts "
        f"{first['layer4']}. Boxes past the edge of their photograph are cut there."
    )
    yield f"Ran on: {'; '.join(stamp(chosen.lines))}."


def _whole(chosen: BoxSelection) -> str:
    rows = []
    for method in _shown(chosen):
        if method in PAPER_ABOVE:
            iou = PAPER[PAPER_ABOVE[method]]["iou"][0]
            rows.append([title(PAPER_ABOVE[method]), "paper", f"{iou:g}", "", ""])
        if method in chosen.methods:
            found = [chosen.estimate(method, column.measure, BOX) for column in WHOLE]
            rows.append([title(method), "ours", *map(_share, found)])
    return markdown(["method", "whose", *[column.head for column in WHOLE]], rows)


def _calibration(chosen: BoxSelection) -> str:
    rows = []
    for method in _shown(chosen):
        rows += _paper_row(method, "calibration_error")
        if method in chosen.methods:
            found = [chosen.estimate(method, "calibration_error", part) for part in TARGETS]
            rows.append([title(method), "ours", *map(_share, found)])
    return markdown(["method", "whose", *TARGETS], rows)


def _with_unit(chosen: BoxSelection, name: str) -> str:
    rows = []
    for method in _shown(chosen):
        rows += [[*row[:2], "not stated", *row[2:]] for row in _paper_row(method, name)]
        for unit, words in UNITS.items() if method in chosen.methods else ():
            found = [chosen.estimate(method, name, part, unit) for part in TARGETS]
            if any(one is not None for one in found):
                rows.append([title(method), "ours", words, *map(with_error, found)])
    return markdown(["method", "whose", "unit", *TARGETS], rows)


def _shown(chosen: BoxSelection) -> list[str]:
    """Methods in the order of the study; those above whose rows the paper's stand, even where they were not run."""
    known = [method.slug for method in BOX_METHODS]
    return [
        *[slug for slug in known if slug in chosen.methods or slug in PAPER_ABOVE],
        *[slug for slug in chosen.methods if slug not in known],
    ]


def _paper_row(method: str, name: str) -> list[list[str]]:
    papers_method = PAPER_ABOVE.get(method)
    if papers_method is None or name not in PAPER[papers_method]:
        return []
    return [[title(papers_method), "paper", *[f"{value:g}" for value in PAPER[papers_method][name]]]]


def _share(found: Estimate | None) -> str:
    if found is not None and not found.error:
        return f"{found.mean:.4f}"  # of some thousand photographs
    return with_error(found)


def _expected(chosen: BoxSelection) -> str:
    first = chosen.lines[0]
    expected = metrics.expected_calibration_error(COVERAGE, first["n_test"], first["n_train"])
    low, high = metrics.coverage_band(COVERAGE, first["n_test"], first["n_train"])
    return (
        f"Exact ranks of as many pictures as train here would give a CE of {expected:.4f} on average, and a coverage "
        f"between {low:.4f} and {high:.4f} nine times out of ten."
    )


def _effort(chosen: BoxSelection) -> str:
    rows = []
    for method in chosen.methods:
        for line in chosen.of(method):
            speed = line["n_test"] / line["predict_seconds"] if line["predict_seconds"] else float("nan")
            seconds = [f"{line['fit_seconds']:.1f}", f"{line['predict_seconds']:.1f}", f"{speed:.0f}"]
            rows.append([title(method), str(line["seed"]), line["device"], str(line["rounds"]), *seconds])
    head = ["method", "seed", "device", "rounds", "fit s", "intervals s", "pictures a second"]
    return markdown(head, rows)


def _records(chosen: BoxSelection) -> Iterator[dict[str, object]]:
    for method in chosen.methods:
        for column in WHOLE:
            yield from _record(chosen, method, column.measure, BOX, "")
        for part in TARGETS:
            yield from _record(chosen, method, "calibration_error", part, "")
        for name in (*WITH_UNIT, "constant_width"):
            for unit in UNITS:
                for part in TARGETS:
                    yield from _record(chosen, method, name, part, unit)
    yield from _papers_widths()
    yield from boxes_targets.records(chosen)


def _record(chosen: BoxSelection, method: str, name: str, part: str, unit: str) -> Iterator[dict[str, object]]:
    found = chosen.estimate(method, name, part, unit or "percent")
    if found is not None:
        where = {"method": method, "title": title(method), "metric": name, "unit": unit, "part": part}
        yield {**where, **vars(found), "paper": None if unit else papers(method, name, part)}


def _papers_widths() -> Iterator[dict[str, object]]:
    """Beside no width of ours: their unit is not known."""
    for method, numbers in PAPER.items():
        for part, width in zip(TARGETS, numbers["width"], strict=True):
            where = {"method": method, "title": title(method), "metric": "width", "unit": "not stated", "part": part}
            yield {**where, "paper": width}
