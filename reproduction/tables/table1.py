"""Table 1 of the paper beside ours, and the table of intervals that the paper does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from reproduction.data.tables import TABLES
from reproduction.lines import Line
from reproduction.tables import intervals, typeset
from reproduction.tables.splits import DEFAULTS, OURS, Selection, estimate, plain_title, title
from reproduction.tables.typeset import LEGENDS, PAPER, Estimate, Record, markdown, stamp, with_error

ASKED = 0.9
FEW, MANY = 5, 20  # trials: as many as the paper has, and as many as we run
NUMBERS, TEXTS = PAPER["table1"], LEGENDS["table1"]
BASELINES = tuple(method for method in NUMBERS if method not in OURS)
# Our rows below each of the paper's.
OUR_ROWS = {method: {method: "ours"} for method in BASELINES} | {
    method: {f"{method}-published": "ours, as published", method: "ours, by default"} for method in DEFAULTS
}
COLUMNS = "method title data metric level of_trials trials mean error paper worse"
PEERS_HEAD = "Peers, from `make bench-peers`"


def write(lines: Iterable[Line], folder: Path, peers: Iterable[Line] = ()) -> list[Path]:
    """Write `table1` (RMSE) and `intervals` (coverage, width, scores, comparison), each as Markdown and CSV.

    `peers` are lines of other packages on the same splits. Returns the four paths.
    """
    lines, peers = list(lines), list(peers)
    chosen = Selection(lines, peers, asked=ASKED, trials=MANY)
    head = list(_head(chosen, lines, peers))
    counts = (FEW, MANY) if any(line["trial"] >= FEW for line in chosen.lines) else (FEW,)
    tables = [part for count in counts for part in _sections(chosen, count)]
    texts = {
        "table1.md": ["# Table 1: RMSE at 0.9 asked, the paper's and ours", *head, *tables, TEXTS["legend"]],
        "table1.csv": typeset.csv(COLUMNS, _records(chosen, counts)),
        "intervals.md": ["# Intervals at 0.9 asked", *head, *intervals.sections(chosen)],
        "intervals.csv": typeset.csv(intervals.COLUMNS, intervals.records(chosen)),
    }
    return typeset.write(folder, texts)


def _head(chosen: Selection, lines: list[Line], peers: list[Line]) -> Iterator[str]:
    trials = typeset.span({len(run) for (_, data), run in chosen.runs.items() if data in TABLES and run})
    yield TEXTS["made"].format(trials=trials)
    yield f"Ran on: {stamp(lines)}."
    if peers:
        yield f"{PEERS_HEAD}, ran on: {stamp(peers)}."
    unused = len(lines) + len(peers) - len(chosen.lines)
    if unused:
        yield TEXTS["unused"].format(unused=unused)


def _sections(chosen: Selection, count: int) -> Iterator[str]:
    rows = []
    for method, numbers in NUMBERS.items():
        rows.append([plain_title(method), "paper", *[str(value) for value in numbers]])
        rows += [["", whose, *_cells(chosen, variant, count)] for variant, whose in OUR_ROWS[method].items()]
    shown = {variant for variants in OUR_ROWS.values() for variant in variants}
    for method in chosen.methods:
        if method not in shown:
            whose = "peer" if method in chosen.peer_methods else "extra"
            rows.append([title(method), whose, *_cells(chosen, method, count)])
    yield f"## First {count} trials"
    yield markdown(["method", "whose", *TABLES], rows)
    compared = {
        f"{title(method)} on {data}": worse
        for method in BASELINES
        for data in TABLES
        if (worse := _is_worse(_error(chosen, method, data, count), _papers(method, data))) is not None
    }
    yield typeset.fairness(TEXTS["fair"], compared)


def _cells(chosen: Selection, method: str, count: int) -> list[str]:
    found = {data: _error(chosen, method, data, count) for data in TABLES}
    return [
        with_error(one, of=count) + (" worse" if _is_worse(one, _papers(method, data)) else "")
        for data, one in found.items()
    ]


def _error(chosen: Selection, method: str, data: str, count: int) -> Estimate | None:
    lines = chosen.of(method, data, count)
    return estimate([line["rmse"] for line in lines], lines) if lines else None


def _papers(method: str, data: str) -> float | None:
    """The paper's number for a method, whether ours is as published or by default."""
    numbers = NUMBERS.get(method.removesuffix("-published"))
    return None if numbers is None else numbers[TABLES.index(data)]


def _is_worse(found: Estimate | None, paper: float | None) -> bool | None:
    """Whether our mean lies above the paper's by more than its error; None where that cannot be said."""
    if found is None or found.error is None or paper is None:
        return None
    return found.mean > paper + found.error


def _records(chosen: Selection, counts: Iterable[int]) -> Iterator[Record]:
    for count in counts:
        for method in chosen.methods:
            for data in TABLES:
                found, paper = _error(chosen, method, data, count), _papers(method, data)
                if found is not None:
                    where = {"method": method, "title": title(method), "data": data, "of_trials": count}
                    verdict = {"paper": paper, "worse": _is_worse(found, paper)}
                    yield {**where, "metric": "rmse", "level": ASKED, **vars(found), **verdict}
