"""Table 2 of the paper beside ours, in both readings of the series, and what it was to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from coverwell.experiments import series_targets
from coverwell.experiments.results import Line
from coverwell.experiments.series_data import INTERPOLATED, OBSERVED, READINGS, SERIES, readings_of
from coverwell.experiments.series_methods import BASELINE, COVERAGE, LINEAR, PAST, REFIT_EVERY, SERIES_METHODS
from coverwell.experiments.series_summary import (
    INTERVALS,
    LEGEND_NAMES,
    MEASURES,
    PAPER,
    PAPERS_BASELINES,
    UNITS,
    SeriesSelection,
    papers,
    stand_in,
    title,
)
from coverwell.experiments.summary import Estimate, stamp
from coverwell.experiments.typeset import csv_text, markdown, number, with_error
from coverwell.files import new_file

__all__ = ["write"]

COLUMNS = (
    *("method", "title", "data", "reading", "metric", "intervals", "trials", "mean", "error", "paper"),
    *("target", "bound", "reached"),
)
HEADS = {
    OBSERVED: "Observed targets: gaps are filled by the value before, and no filled value is learned or judged",
    INTERPOLATED: "Interpolated gaps, as the paper seems to have done: straight lines there are targets like any other",
}
LEGEND = (
    "*Static*: the interval as it was learned, its width never changed. *Live*: the same fit, its width following the "
    "misses, as a forecaster in use would. *Live, rate 0.05*: linear methods once more, at a fixed rate in place of "
    "the one chosen on the training part. *As published*: the paper's losses, one network on the values themselves, "
    "nothing left out, no ranks; its static row is the paper's method. *Calendar*: hour and weekday of the forecast "
    "step. *Covariates*: what was measured beside the series, up to the present (traffic has none: its cell is that "
    f"of the calendar). *Refits*: training goes on every {REFIT_EVERY} steps with all that has come. Brackets: the "
    "standard error over seeds, where there are several. -: not run. The paper gives no interval scores, one number "
    "for each cell, and the same numbers for Concrete Dropout and BNN."
)
# Where a row of the paper is shown: above the first of our rows that answers it.
PAPER_ABOVE = {method: method for method in PAPERS_BASELINES} | {
    "sigma-fit-published": "sigma-fit",
    "iqr-fit-published": "iqr-fit",
}


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write `table2.md` and `table2.csv`; returns both paths."""
    chosen = SeriesSelection(lines)
    texts = {
        "table2.md": "\n\n".join(_document(chosen)) + "\n",
        "table2.csv": csv_text(COLUMNS, _records(chosen)),
    }
    for name, text in texts.items():
        with new_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


def _document(chosen: SeriesSelection) -> Iterator[str]:
    yield f"# Table 2: one-step forecasts of six series at {COVERAGE} asked, the paper's and ours"
    yield from _head(chosen)
    yield LEGEND
    for reading in READINGS:
        yield f"## {HEADS[reading]}"
        if reading == INTERPOLATED:
            yield "Series without gaps (nsw2013, tas2016, traffic) are the same runs as above."
        yield "### Against the targets"
        yield from series_targets.sections(chosen, reading)
        for name in MEASURES:
            yield f"### {LEGEND_NAMES[name]}"
            yield _table(chosen, reading, name)
            if name == "rmse" and reading == INTERPOLATED:
                yield _fairness(chosen)
    yield "## Rate, rounds, refits and seconds"
    yield _effort(chosen)


def _head(chosen: SeriesSelection) -> Iterator[str]:
    seeds = sorted({len(chosen.of(m, d, r)) for m in _trained(chosen) for d in chosen.data for r in READINGS} - {0})
    counts = " to ".join(str(count) for count in dict.fromkeys(seeds[:1] + seeds[-1:]))
    yield (
        "Made by `coverwell reproduce table2` from the lines of `series.jsonl` beside this file. "
        f"{PAST} past steps, one step ahead, the first 30 % of the steps train and the rest is the test period; one "
        f"configuration for all series{f'; {counts} seed(s) for each network' if counts else ''}. The six series have "
        "been looked at often: they are development data."
    )
    yield f"Ran on: {'; '.join(stamp(chosen.lines))}."


def _trained(chosen: SeriesSelection) -> list[str]:
    linear = {method.slug for method in SERIES_METHODS if method.kind == LINEAR}
    return [method for method in chosen.methods if method not in linear]


def _table(chosen: SeriesSelection, reading: str, name: str) -> str:
    rows = []
    for method in [method.slug for method in SERIES_METHODS]:
        rows += _paper_row(method, name)
        rows += _our_rows(chosen, method, reading, name)
    heads = [data if name == "calibration_error" else f"{data} ({UNITS[data][0]})" for data in SERIES]
    return markdown(["method", "whose", *heads], rows)


def _paper_row(method: str, name: str) -> list[list[str]]:
    papers_method = PAPER_ABOVE.get(method)
    if papers_method is None or name not in PAPER[papers_method]:
        return []
    return [[title(papers_method), "paper", *[f"{value:g}" for value in PAPER[papers_method][name]]]]


def _our_rows(chosen: SeriesSelection, method: str, reading: str, name: str) -> list[list[str]]:
    kinds = ("live",) if name == "rmse" else INTERVALS
    rows = []
    for kind in kinds:
        found = [chosen.estimate(method, data, reading, name, kind) for data in SERIES]
        if any(one is not None for one in found):
            whose = "ours" if name == "rmse" else f"ours, {INTERVALS[kind]}"
            rows.append([title(method), whose, *[_cell(one, name) for one in found]])
    return rows


def _cell(found: Estimate | None, name: str) -> str:
    if found is not None and name == "calibration_error" and not found.error:
        return f"{found.mean:.4f}"  # 0.0004 needs no more digits
    return with_error(found)


def _fairness(chosen: SeriesSelection) -> str:
    """How often a baseline of ours is worse than the paper's."""
    verdicts = {}
    for method in [method.slug for method in SERIES_METHODS if method.kind == BASELINE]:
        for data in SERIES:
            found, paper = (
                chosen.estimate(method, data, INTERPOLATED, "rmse", "live"),
                papers(method, data, "rmse"),
            )
            if found is not None and paper is not None:
                verdicts[f"{title(method)} on {data} ({number(found.mean)} to {paper:g})"] = found.mean > paper
    worse = [name for name, is_worse in verdicts.items() if is_worse]
    listed = f": {', '.join(worse)}" if worse else ""
    return f"Are the baselines fair? Ours has the larger RMSE in {len(worse)} of {len(verdicts)} comparisons{listed}."


def _effort(chosen: SeriesSelection) -> str:
    rows = []
    for method in chosen.methods:
        for data in chosen.data:
            for reading in readings_of(data):
                runs = chosen.of(method, data, reading) if stand_in(method, data) == method else []
                for line in runs[:1]:
                    seconds = [f"{line['fit_seconds']:.1f}", f"{line['backtest_seconds']:.1f}"]
                    counts = [str(line["rounds"]), str(line["n_refits"])]
                    sizes = [str(line["n_train"]), str(line["n_test"])]
                    rows.append([title(method), data, reading, *sizes, f"{line['rate']:g}", *counts, *seconds])
    return markdown(
        ["method", "series", "reading", "train", "judged", "rate", "rounds", "refits", "fit s", "test s"], rows
    )


def _records(chosen: SeriesSelection) -> Iterator[dict[str, object]]:
    for reading in READINGS:
        for method in chosen.methods:
            for data in chosen.data:
                for name in MEASURES:
                    yield from _records_of(chosen, method, data, reading, name)
        yield from series_targets.records(chosen, reading)


def _records_of(
    chosen: SeriesSelection, method: str, data: str, reading: str, name: str
) -> Iterator[dict[str, object]]:
    """In the units of the columns: traffic in 1e8 bits."""
    for kind in ("live",) if name == "rmse" else INTERVALS:
        found = chosen.estimate(method, data, reading, name, kind)
        if found is not None:
            where = {"method": method, "title": title(method), "data": data, "reading": reading, "metric": name}
            yield {
                **where,
                "intervals": "" if name == "rmse" else kind,
                **vars(found),
                "paper": papers(method, data, name),
            }
