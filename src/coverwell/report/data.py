"""Sections on the model and the data: training, columns, drift, and how the report was made."""

from __future__ import annotations

import hashlib
import math
import platform
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell._version import __version__
from coverwell.description import InputRange, ModelDescription
from coverwell.evaluation import Outcome
from coverwell.model_file import read_tensors
from coverwell.plots.charts import draw_rounds, split_points
from coverwell.plots.grammar import SLICE, Axis, Chart, Mark, Tip, shortened
from coverwell.report.page import Block, Graph, Section, Table, Text, library_versions, prose
from coverwell.report.words import as_text, chance_of, number, share

Array = NDArray[np.float64]

MOST_COLUMNS, MOST_SHIFTS = 100, 12
BY_CHANCE, Z_95 = 0.05, float(norm.ppf(0.975))
COLUMN_HEADS = ("column", "read as", "missing", "missing in training", "different values", "values")
SERIES_HEADS = ("column", "period", "steps", "missing", "lowest", "median", "highest", "mean", "standard deviation")
DRIFT_HEADS = ("input", "mean in training", "mean in test", "difference (sd)", "by chance", "rows out of range")


def rounds(outcome: Outcome, model: ModelDescription) -> Section:
    """Error, coverage and width by round of training, for each target and level."""
    rmse, coverage, width = model.by_round
    blocks: list[Block] = []

    def add(measure: str, values: Array, when: dict[str, int], asked: float | None = None) -> None:
        chart = draw_rounds.chart(values[None], asked=asked)
        up = Axis(measure, zero=True) if asked is None else Axis(measure, "share", (0, 1))
        tips = [chart.tips[0], replace(chart.tips[1], title=measure)]
        marks = [replace(mark, marker="o") for mark in chart.marks if mark.kind != "area"]  # there is one trial
        last = number(values[-1]) if asked is None else share(values[-1])
        caption = prose("rounds", measure=measure, last=last, asked=asked)
        blocks.append(Graph(replace(chart, marks=marks, y=up, tips=tips), caption, when))

    for target, name in enumerate(outcome.target_names):
        place = model.target_names.index(name)
        add("RMSE", rmse[:, place], {"target": target})
        for level, asked in enumerate(outcome.levels):
            when = {"target": target, "level": level}
            add("coverage", coverage[:, place, level], when, asked)
            add("mean width", width[:, place, level], when)
    return Section("rounds", blocks, beside=True, lead={"model": model})


def data(outcome: Outcome, model: ModelDescription) -> Section:
    """Every column: its kind, its gaps and its values."""
    if model.takes == "series":
        return _series_data(outcome, model)
    learned = {column.name: column for column in model.columns}
    columns = {**outcome.groups, **outcome.features}
    rows = [column_row(name, outcome.y[:, place], "target", "0") for place, name in enumerate(outcome.target_names)]
    for name, values in list(columns.items())[:MOST_COLUMNS]:
        kind = "group" if name in outcome.groups else learned[name].kind if name in learned else "numbers"
        in_training = f"{learned[name].n_missing:,} of {model.n_trained:,}" if name in learned else "unknown"
        rows.append(column_row(name, values, kind, in_training))
    texts = ("column", "read as", "values")
    blocks: list[Block] = [Table("The columns of the test rows", COLUMN_HEADS, rows, texts=texts)]
    if len(columns) > MOST_COLUMNS:
        blocks.append(Text(prose("columns_listed", n=MOST_COLUMNS, n_all=len(columns)), "note"))
    if model.dropped:
        blocks.append(Text(prose("columns_dropped", names=model.dropped), "note"))
    if outcome.n_skipped:
        blocks.append(Text(prose("rows_skipped", n=outcome.n_skipped), "note"))
    return Section("data", blocks, lead={"n": len(outcome)})


def column_row(name: str, values: NDArray[Any], kind: str, in_training: str) -> tuple[str, ...]:
    """A column in one line of the table."""
    is_text = values.dtype.kind == "O"
    present = values[[value is not None and value == value for value in values] if is_text else values == values]
    gaps, n_different = (
        f"{len(values) - len(present):,} of {len(values):,}",
        len(set(present) if is_text else np.unique(present)),
    )
    shown = "none"
    if len(present) and not is_text:
        low, middle, high = (as_text(value) for value in np.sort(present)[[0, (len(present) - 1) // 2, -1]])
        shown = f"{low} to {high}, median {middle}"
    elif len(present):
        counts = Counter(map(str, present)).most_common(4)
        frequent = [f"{shortened(level)} {share(count / len(present))}" for level, count in counts]
        shown = ", ".join([*frequent, *(["..."] if n_different > 4 else [])])
    return name, kind, gaps, in_training, f"{n_different:,}", shown


def _series_data(outcome: Outcome, model: ModelDescription) -> Section:
    """The series and its covariates in the period, beside those that the forecaster had seen."""
    rows, outside = [], []
    for name, before in model.seen.items():
        now = outcome.inputs[name]
        for period, values in (("seen by the forecaster", before), ("this report", now)):
            there = values[~np.isnan(values)]
            of = (there.min(), np.median(there), there.max(), there.mean(), there.std()) if len(there) else [np.nan] * 5
            rows.append((name, period, f"{len(values):,}", f"{len(values) - len(there):,}", *map(number, of)))
        n_outside = int(((now < np.nanmin(before)) | (now > np.nanmax(before))).sum())
        outside += [(name, n_outside, len(now))] if n_outside else []
    table = Table("Series and covariates in both periods", SERIES_HEADS, rows, texts=("column", "period"))
    return Section("series", [table, Text(prose("series", outside=outside), "note")], lead={"step": model.step})


@dataclass(frozen=True)
class Shift:
    """How one input differs between training and test rows."""

    name: str
    train_mean: float  # of an input that is 0 or 1, the share of ones
    test_mean: float
    difference: float  # of the means, in standard deviations over the training; infinite where that had one value
    standard_error: float  # of the difference, if both are samples of the same rows
    chance: float  # a bound on the probability that chance makes any of all inputs differ this much (Bonferroni)
    n_outside: int  # test rows outside the range of the training rows
    is_share: bool  # whether it is 0 or 1 in all rows


def shifts_between(inputs: InputRange, n_trained: int | None) -> list[Shift]:
    """Every input of the networks, the one that differs most surely first.

    A model keeps no training rows, only mean, standard deviation and range of each input (a column, a level of a
    category, a flag for a missing value). So an input whose spread or shape alone has changed is not found.
    """
    standard_error = float(np.sqrt(1 / len(inputs.rows) + (1 / n_trained if n_trained else 0.0)))
    shifts = []
    for place, name in enumerate(inputs.names):
        test, low, high = inputs.rows[:, place], inputs.low[place], inputs.high[place]
        mean, difference, chance = float(test.mean()), 0.0, 1.0
        if high > low:
            difference = float((mean - inputs.mean[place]) / inputs.deviation[place])
            chance = min(1.0, len(inputs.names) * float(2 * norm.sf(abs(difference) / standard_error)))
        elif not (test == low).all():
            difference, chance = float(np.copysign(np.inf, mean - low)), 0.0
        n_outside = int(((test < low) | (test > high)).sum())
        is_share = bool(low == 0 and high == 1 and np.isin(test, (0.0, 1.0)).all())
        means = float(inputs.mean[place]), mean
        shifts.append(Shift(name, *means, difference, standard_error, chance, n_outside, is_share))
    return sorted(shifts, key=lambda shift: (shift.chance, -abs(shift.difference)))


def drift(outcome: Outcome, model: ModelDescription) -> Section | None:
    """Which inputs differ between training and test rows."""
    if model.takes != "table":
        return None
    inputs = model.input_range(outcome.inputs)
    if inputs is None:
        return Section("drift", [Text(prose("no_drift"), "note")])
    shifts = shifts_between(inputs, model.n_trained)
    apart, outside = [s for s in shifts if s.chance < BY_CHANCE], [s for s in shifts if s.n_outside]
    most = max(shifts, key=lambda shift: shift.n_outside)
    about = {"apart": apart, "outside": outside, "most": most, "n_trained": model.n_trained}
    blocks: list[Block] = [Text(prose("drift", n=len(shifts), **about), "bad" if apart else "good")]
    if drawn := [shift for shift in shifts if math.isfinite(shift.difference)][:MOST_SHIFTS]:
        caption = prose("drift_caption", n=len(drawn), n_all=len(shifts))
        blocks.append(Graph(_shift_chart(drawn), caption, in_numbers=False))
    dates = {column.name for column in model.columns if column.kind == "dates and times"}
    rows = [_shift_row(shift, is_date=shift.name in dates) for shift in shifts[:MOST_COLUMNS]]
    caption = "Inputs in training and test; shares of inputs that are 0 or 1"
    blocks.append(Table(caption, DRIFT_HEADS, rows[:MOST_SHIFTS], texts=("input",)))
    if more := rows[MOST_SHIFTS:]:
        blocks.append(Table(prose("drift_more", n=len(more)), DRIFT_HEADS, more, texts=("input",), folded=True))
    return Section("drift", blocks)


def _shift_chart(shifts: list[Shift]) -> Chart:
    half = Z_95 * np.array([shift.standard_error for shift in shifts])
    table = {"place": np.arange(len(shifts)), "name": [shortened(shift.name) for shift in shifts]}
    table |= {"difference": np.array([shift.difference for shift in shifts]), "low": -half, "high": half}
    table["expected"] = np.array([shift.chance >= BY_CHANCE for shift in shifts])
    labels = "difference of the means", "larger than chance allows, however many inputs were compared"
    behind = "where 19 of 20 differences lie if nothing has changed"
    marks = [Mark("rows", "low", "place", "high", "bar", behind, 12.0)]
    marks += split_points("difference", "place", "expected", labels=labels)
    tips = [Tip("name", "input", "text"), Tip("difference", "difference (sd)")]
    across = Axis("test minus training (standard deviations)", zero=True)
    return Chart(table, marks, across, Axis(None, "slice"), tips, height=SLICE * len(shifts))


def _shift_row(shift: Shift, *, is_date: bool) -> tuple[str, ...]:
    def mean(value: float) -> str:
        if shift.is_share:
            return share(value)
        return str(np.datetime64(int(value), "D")) if is_date else number(value)  # dates count days since 1970

    difference = "one value in training"
    if math.isfinite(shift.difference):
        difference = f"{shift.difference:+.2f}" if abs(shift.difference) < 1000 else f"{shift.difference:+.3g}"
    chance = "may be" if shift.chance >= BY_CHANCE else chance_of(shift.chance)
    return shift.name, mean(shift.train_mean), mean(shift.test_mean), difference, chance, f"{shift.n_outside:,}"


@dataclass(frozen=True)
class Source:
    """What a report was made from, as far as it is known; files are named with their sha256."""

    model_file: Path | None = None
    data_file: Path | None = None
    command: str | None = None  # as it was typed


def provenance(source: Source, model: ModelDescription) -> Section:
    """The section at the end of every report."""
    rows = [("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    rows += [("command", source.command)] if source.command is not None else []
    for what, path in (("model file", source.model_file), ("data file", source.data_file)):
        if path is not None:
            with path.open("rb") as file:
                rows += [(what, path.name), (f"sha256 of the {what}", hashlib.file_digest(file, "sha256").hexdigest())]
    rows += [("model", model.name), *model.parameters.items()]
    if source.model_file is not None:
        rows.append(("versions that wrote the model", _listed(read_tensors(source.model_file)[0]["versions"])))
    versions = {"coverwell": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    versions |= {"numpy": np.__version__, "scikit-learn": sklearn.__version__, **library_versions()}
    rows += [("versions that made this report", _listed(versions)), ("device", model.device)]
    table = Table("Where this report comes from", ("what", "value"), rows, texts=("what", "value"))
    return Section("provenance", [table])


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in versions.items())
