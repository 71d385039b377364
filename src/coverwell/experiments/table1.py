"""Table 1 of the paper beside ours, and the table of intervals that the paper does not have, from result lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from coverwell.experiments import comparison, interval_table, summary
from coverwell.experiments.summary import DEFAULTS, OURS, TABLES, Estimate, Line, Selection
from coverwell.experiments.typeset import csv_text, markdown, with_error
from coverwell.files import new_file

__all__ = ["PAPER", "PEERS_HEAD", "write"]

ASKED = 0.9
FEW, MANY = 5, 20  # trials: as many as the paper has, and as many as we run

# Table 1 of the paper: RMSE at 0.9 asked, mean over 5 trials; columns as in TABLES.
PAPER = {
    "mc-dropout": (0.139, 0.686, 0.748, 2.78, 5.51, 4.61),
    "concrete-dropout": (0.144, 0.745, 0.764, 3.1, 5.88, 5.19),
    "quantiles": (0.152, 0.737, 0.782, 2.91, 4.802, 4.32),
    "bnn": (0.159, 0.823, 0.871, 2.493, 4.025, 3.07),
    "hnn": (0.138, 0.714, 0.757, 2.842, 4.762, 3.98),
    "sigma-fit": (0.138, 0.599, 0.702, 2.017, 4.088, 3.23),
    "iqr-fit": (0.138, 0.581, 0.691, 2.206, 4.011, 3.18),
}
BASELINES = tuple(method for method in PAPER if method not in OURS)
# Our rows below each of the paper's.
OUR_ROWS = {method: {method: "ours"} for method in BASELINES} | {
    method: {f"{method}-published": "ours, as published", method: "ours, by default"} for method in DEFAULTS
}
COLUMNS = ("method", "title", "data", "metric", "level", "of_trials", "trials", "mean", "error", "paper", "worse")
LEGEND = (
    "In brackets the corrected standard error, sd * sqrt(1 / trials + n_test / n_train); [n]: only n of the trials "
    f"were run; -: none. The paper gives means over {FEW} trials, without errors. *Worse*: our mean lies above the "
    "paper's for this method by more than one corrected standard error; a single trial is not judged. *As published*: "
    "the paper's losses, one network, nothing left out, no ranks. *By default*: what `MatchedRegressor` does when "
    "nothing is set; for IQR Fit `matching='iqr'`, and at most 40 rounds of training."
)
PEERS_HEAD = "Peers, from `make bench-peers`"


def write(lines: Iterable[Line], folder: Path, peers: Iterable[Line] = ()) -> list[Path]:
    """Write `table1` (RMSE) and `intervals` (coverage, width, scores, comparison), each as Markdown and CSV.

    Parameters
    ----------
    lines : iterable of dict
        Result lines of the study.
    folder : Path
        Where the files go.
    peers : iterable of dict, optional
        Lines of other packages on the same splits.

    Returns
    -------
    list of Path
        The four files.
    """
    lines, peers = list(lines), list(peers)
    chosen = Selection(lines, peers, asked=ASKED, trials=MANY)
    head = _head(chosen, lines, peers)
    texts = {
        "table1.md": _join("# Table 1: RMSE at 0.9 asked, the paper's and ours", head, *_sections(chosen), LEGEND),
        "table1.csv": csv_text(COLUMNS, _records(chosen)),
        "intervals.md": _join(
            "# Intervals at 0.9 asked", head, *comparison.sections(chosen), *interval_table.sections(chosen)
        ),
        "intervals.csv": csv_text(
            interval_table.COLUMNS, [*interval_table.records(chosen), *comparison.records(chosen)]
        ),
    }
    for name, text in texts.items():
        with new_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


def _join(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _head(chosen: Selection, lines: list[Line], peers: list[Line]) -> str:
    counts = sorted({len(run) for (_, data), run in chosen.runs.items() if data in TABLES and run})
    trials = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    text = [
        "Made by `coverwell reproduce table1` from the lines of `results.jsonl` beside this file. Random 80/20 splits, "
        f"{trials} trials of each method on each table; one configuration for all data. The six tables have been "
        "looked at often: they are development data.",
        f"Ran on: {'; '.join(summary.stamp(lines))}.",
    ]
    if peers:
        text.append(f"{PEERS_HEAD}, ran on: {'; '.join(summary.stamp(peers))}.")
    unused = len(lines) + len(peers) - len(chosen.lines)
    if unused:
        text.append(
            f"Lines not used: {unused}, because they lack the level {ASKED}, belong to trials from {MANY} on, or "
            "repeat a trial with fewer levels."
        )
    return "\n\n".join(text)


def _counts(chosen: Selection) -> tuple[int, ...]:
    """Over how many trials the table is shown: few, and many if there are more than few."""
    return (FEW, MANY) if any(line["trial"] >= FEW for line in chosen.lines) else (FEW,)


def _sections(chosen: Selection) -> Iterator[str]:
    for count in _counts(chosen):
        yield f"## First {count} trials"
        yield _table(chosen, count)
        yield _fairness(chosen, count)


def _table(chosen: Selection, count: int) -> str:
    rows = []
    for method, numbers in PAPER.items():
        rows.append([summary.plain_title(method), "paper", *[str(value) for value in numbers]])
        rows += [["", whose, *_cells(chosen, variant, count)] for variant, whose in OUR_ROWS[method].items()]
    shown = {variant for variants in OUR_ROWS.values() for variant in variants}
    for method in chosen.methods:
        if method not in shown:
            whose = "peer" if method in chosen.peer_methods else "extra"
            rows.append([summary.title(method), whose, *_cells(chosen, method, count)])
    return markdown(["method", "whose", *TABLES], rows)


def _cells(chosen: Selection, method: str, count: int) -> list[str]:
    found = [_error(chosen, method, data, count) for data in TABLES]
    marks = [" worse" if _is_worse(one, _papers(method, data)) else "" for one, data in zip(found, TABLES, strict=True)]
    return [with_error(one, of=count) + mark for one, mark in zip(found, marks, strict=True)]


def _error(chosen: Selection, method: str, data: str, count: int) -> Estimate | None:
    lines = chosen.of(method, data, count)
    return summary.estimate([line["rmse"] for line in lines], lines) if lines else None


def _papers(method: str, data: str) -> float | None:
    """The paper's number for a method, whether ours is as published or by default."""
    numbers = PAPER.get(method.removesuffix("-published"))
    return None if numbers is None else numbers[TABLES.index(data)]


def _is_worse(found: Estimate | None, paper: float | None) -> bool | None:
    """Whether our mean lies above the paper's by more than its error; None where that cannot be said."""
    if found is None or found.error is None or paper is None:
        return None
    return found.mean > paper + found.error


def _fairness(chosen: Selection, count: int) -> str:
    """How often a baseline of ours is worse than the paper's."""
    verdicts = {
        f"{summary.title(method)} on {data}": _is_worse(_error(chosen, method, data, count), _papers(method, data))
        for method in BASELINES
        for data in TABLES
    }
    judged = [name for name, worse in verdicts.items() if worse is not None]
    worse = [name for name in judged if verdicts[name]]
    names = f": {', '.join(worse)}" if worse else ""
    return (
        "Are the baselines fair? Ours is worse than the paper's, by more than one corrected standard error, in "
        f"{len(worse)} of {len(judged)} comparisons{names}."
    )


def _records(chosen: Selection) -> Iterator[dict[str, object]]:
    for count in _counts(chosen):
        for method in chosen.methods:
            for data in TABLES:
                found, paper = _error(chosen, method, data, count), _papers(method, data)
                if found is not None:
                    where = {"method": method, "title": summary.title(method), "data": data, "of_trials": count}
                    verdict = {"paper": paper, "worse": _is_worse(found, paper)}
                    yield {**where, "metric": "rmse", "level": ASKED, **vars(found), **verdict}
