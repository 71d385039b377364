"""The test rows themselves: their columns, and how far they lie from the training rows."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.fitted_models import n_trained_rows
from coverwell.report.charts import shifts_spec
from coverwell.report.drift import Z_95, Shift, shifts_between
from coverwell.report.judged import Judged
from coverwell.report.page import Block, Chart, Mark, Section, Table, Text
from coverwell.report.wording import as_text, chance_of, counted, number, share, shortened_name

__all__ = ["column_row", "data_section", "drift_section"]

MOST_COLUMNS, MOST_SHIFTS = 100, 12
BY_CHANCE = 0.05
KINDS = {"numbers": "numbers", "booleans": "true or false", "text": "categories", "times": "dates and times"}
COLUMN_HEADS = ("column", "read as", "missing", "missing in training", "different values", "values")


def data_section(judged: Judged) -> Section:
    """Every column: its kind, its gaps and its values."""
    known = judged.model.source_.columns
    learned = {} if known is None else {column.name: column for column in known.columns}
    n_trained = 0 if known is None else known.n_rows
    columns = {**judged.rows.groups, **judged.rows.features}
    rows = []
    for name, values in list(columns.items())[:MOST_COLUMNS]:
        column = learned.get(name)
        kind = "group" if name in judged.rows.groups else KINDS[column.kind.name] if column else "numbers"
        in_training = f"{column.n_missing:,} of {n_trained:,}" if column else "unknown"
        rows.append(column_row(name, values, kind, in_training))
    targets = [column_row(name, judged.rows.y[:, place], "target", "0") for place, name in enumerate(judged.targets)]
    blocks: list[Block] = [
        Table("The columns of the test rows", COLUMN_HEADS, [*targets, *rows], texts=("column", "read as", "values"))
    ]
    if len(columns) > MOST_COLUMNS:
        blocks.append(Text(f"{MOST_COLUMNS} of {len(columns)} columns are listed.", "note"))
    if dropped := [] if known is None else [f"{column.name} ({column.reason})" for column in known.dropped]:
        blocks.append(Text(f"Left out in training: {', '.join(dropped)}.", "note"))
    if judged.rows.n_skipped:
        blocks.append(Text(f"{counted(judged.rows.n_skipped, 'row')} without a target left out.", "note"))
    lead = f"{counted(judged.n_rows, 'row')} with known targets, which the model should not have seen in training."
    return Section("data", "The data", lead, blocks)


def column_row(name: str, values: NDArray[Any], kind: str, in_training: str) -> tuple[str, ...]:
    """A column in one line of the table."""
    if values.dtype.kind == "O":
        present = values[[value is not None and value == value for value in values]]
        n_different = len(set(present))
    else:
        present = values[values == values]  # NaN and NaT are not what they are
        n_different = len(np.unique(present))
    gaps = f"{len(values) - len(present):,} of {len(values):,}"
    return name, kind, gaps, in_training, f"{n_different:,}", _told(present)


def _told(present: NDArray[Any]) -> str:
    if not len(present):
        return "none"
    if present.dtype.kind in "iufM":
        ordered = np.sort(present)
        low, middle, high = (as_text(ordered[place]) for place in (0, (len(ordered) - 1) // 2, -1))
        return f"{low} to {high}, median {middle}"
    counts = Counter(map(str, present)).most_common(4)
    frequent = ", ".join(f"{shortened_name(level)} {share(count / len(present))}" for level, count in counts)
    return frequent + (", ..." if len(set(map(str, present))) > 4 else "")


def drift_section(judged: Judged) -> Section:
    """Which inputs differ between training and test rows."""
    shifts = shifts_between(judged.model, judged.X)
    lead = (
        "Intervals are meant for rows like those of the training. The model file keeps mean, standard deviation and "
        "range of every input over the training rows, not the rows themselves: these are compared, after gaps were "
        "filled as the model fills them. A change of spread or shape alone is not seen here."
    )
    if not shifts:
        return Section(
            "drift", "Test rows beside training rows", lead, [Text("This model keeps no such numbers.", "note")]
        )
    drawn = [shift for shift in shifts if math.isfinite(shift.difference)][:MOST_SHIFTS]
    tone = "bad" if shifts[0].chance < BY_CHANCE else "good"
    blocks: list[Block] = [Text(_verdict(shifts, n_trained_rows(judged.model)), tone)]
    if drawn:
        blocks.append(Chart(shifts_spec(len(drawn)), _records(drawn), _caption(drawn, shifts), MARKS, in_numbers=False))
    first, others = shifts[:MOST_SHIFTS], shifts[MOST_SHIFTS:MOST_COLUMNS]
    blocks.append(_table("Inputs in training and test; shares of inputs that are 0 or 1", first, _dates(judged)))
    if others:
        more = f"{counted(len(others), 'more input')}, which differ less surely"
        blocks.append(_table(more, others, _dates(judged), folded=True))
    return Section("drift", "Test rows beside training rows", lead, blocks)


def _verdict(shifts: list[Shift], n_trained: int | None) -> str:
    apart, outside = [s for s in shifts if s.chance < BY_CHANCE], [s for s in shifts if s.n_outside]
    told = [f"None of {counted(len(shifts), 'input')} differs in its mean by more than chance."]
    if apart:
        differ = "differs" if len(apart) == 1 else "differ"
        told = [
            f"{len(apart)} of {counted(len(shifts), 'input')} {differ} in the mean by more than chance, most surely "
            f"{apart[0].name}."
        ]
    if outside:
        most = max(outside, key=lambda shift: shift.n_outside)
        told.append(
            f"{counted(len(outside), 'input')} {'has' if len(outside) == 1 else 'have'} values outside the range of "
            f"training, most of all {most.name} ({counted(most.n_outside, 'row')}); there the model speaks as at the "
            "border of that range."
        )
    if n_trained is None:
        told.append("How many rows it was fitted on is not known to this model: what chance adds there is left out.")
    return " ".join(told)


MARKS = (
    Mark("●", "inside", "difference of the means"),
    Mark("✚", "outside", "larger than chance allows, however many inputs were compared"),
    Mark("▬", "bar", "where 19 of 20 differences lie if nothing has changed"),
)


def _caption(drawn: list[Shift], shifts: list[Shift]) -> str:
    return f"The {len(drawn)} of {counted(len(shifts), 'input')} whose means differ most surely; these on top."


def _records(shifts: list[Shift]) -> list[dict[str, Any]]:
    return [
        {
            "place": place,
            "name": shortened_name(shift.name),
            "difference": shift.difference,
            "low": -Z_95 * shift.standard_error,
            "high": Z_95 * shift.standard_error,
            "fits": shift.chance >= BY_CHANCE,
        }
        for place, shift in enumerate(shifts)
    ]


def _dates(judged: Judged) -> set[str]:
    """The inputs that count days since 1970."""
    known = judged.model.source_.columns
    return set() if known is None else {name for name, kind in known.kinds.items() if kind == "times"}


def _table(caption: str, shifts: list[Shift], dates: set[str], *, folded: bool = False) -> Table:
    heads = ("input", "mean in training", "mean in test", "difference (sd)", "by chance", "rows out of range")
    rows = [
        (
            shift.name,
            *(_mean(mean, shift, dates) for mean in (shift.train_mean, shift.test_mean)),
            _difference(shift.difference),
            "may be" if shift.chance >= BY_CHANCE else chance_of(shift.chance),
            f"{shift.n_outside:,}",
        )
        for shift in shifts
    ]
    return Table(caption, heads, rows, texts=("input",), folded=folded)


def _difference(difference: float) -> str:
    if not math.isfinite(difference):
        return "one value in training"
    return f"{difference:+.2f}" if abs(difference) < 1000 else f"{difference:+.3g}"


def _mean(mean: float, shift: Shift, dates: set[str]) -> str:
    if shift.is_share:
        return share(mean)
    return str(np.datetime64(int(mean), "D")) if shift.name in dates else number(mean)
