"""Coverage in parts of the rows: the worst by name, and all parts of a feature or group."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy.stats import binom

from coverwell.plots.style import percent
from coverwell.report.charts import parts_spec
from coverwell.report.judged import Judged, View
from coverwell.report.page import Block, Chart, Choice, Legend, Mark, Section, Table, Text
from coverwell.report.wording import LONGEST_NAME, chance_of, counted, share, shortened_name, span
from coverwell.slices import BY_CHANCE, Slice, Slices

__all__ = ["record_of", "slices_section", "worst_section"]

MOST_WORST, MOST_OF_A_COLUMN, MOST_COLUMNS = 10, 30, 30
MOST_RECORDS, MOST_CHARTS = 12_000, 1_000  # of all charts by column together: they are the bulk of a page
MARKS = (
    Mark("●", "inside", "coverage, with its 95 % confidence interval"),
    Mark("✚", "outside", "short by more than chance, however many slices were looked at"),
    Mark("▬", "bar", "where 19 of 20 slices of so many rows lie if each row is inside as asked"),
    Mark("│", "centre", "asked"),
)


def worst_section(judged: Judged) -> Section:
    """The worst parts of all, named."""
    blocks: list[Block] = []
    for view in judged.views:
        slices, parts = view.judgement.slices, view.ranked.parts[: judged.room_for(MOST_WORST)]
        records = [record_of(part, slices, place) for place, part in enumerate(parts)]
        told = f"The worst {len(parts)} of {counted(len(slices), 'slice')}, for {_about(view)}; the worst on top."
        blocks.append(Text(_sentence(view, parts[0]), _tone(slices, parts[0]), view.when))
        blocks.append(Chart(parts_spec(len(parts)), records, told, MARKS, view.when, in_numbers=False))
        blocks.append(_table("The same in numbers", slices, parts, view))
    lead = (
        "Coverage that is right on average may hide parts of the rows where it is not. First come those that fall "
        "short by more than chance, then the others; a slice of few rows must be missed often to come before a large "
        "one. Chance is reckoned for all slices of the chosen target and level together, if rows are independent and "
        "each is inside with the asked probability."
    )
    return Section("worst", "The worst slices", lead, blocks)


def slices_section(judged: Judged, first: View) -> Section:
    """All parts by the column that a reader chooses; the first one shown is the worst of the first view."""
    worst = list(first.ranked.by_column)
    columns = [*judged.rows.groups, *judged.rows.features]
    shown = _shown_columns(judged, columns, first)
    start = shown.index(worst[0])
    choice = Choice("column", "Feature or group", tuple(shown), start)
    blocks: list[Block] = [Legend(MARKS)]  # one for all: there may be a thousand charts
    for view in judged.views:
        slices = view.judgement.slices
        for place, column in enumerate(shown):
            worst_first = view.ranked.by_column[column]
            when = {**view.when, "column": place}
            cut = len(worst_first) > MOST_OF_A_COLUMN
            kept = worst_first[:MOST_OF_A_COLUMN] if cut else list(slices.of(column))
            records = [record_of(part, slices, row) for row, part in enumerate(kept)]
            few = f" The worst {len(kept)} of {len(worst_first):,} are drawn." if cut else ""
            told = f"Coverage by {column}, for {_about(view)}.{few}"
            blocks.append(Chart(parts_spec(len(kept)), records, told, when=when))
    if len(shown) < len(columns):
        blocks.append(
            Text(f"{len(shown)} of {len(columns)} columns can be chosen: those with the worst slices.", "note")
        )
    lead = "Numbers and dates are cut at their quantiles, categories by their levels; missing values are a slice."
    return Section("slices", "Coverage by feature and group", lead, blocks, choice)


def _shown_columns(judged: Judged, columns: list[str], first: View) -> list[str]:
    """The columns that can be chosen: all, or where they are too many for a page those with the worst parts."""
    of_column = {column: min(len(parts), MOST_OF_A_COLUMN) for column, parts in first.ranked.by_column.items()}
    drawn = np.cumsum(list(of_column.values())) * len(judged.views)
    n_blocks = np.arange(1, len(of_column) + 1) * len(judged.views)
    room = max(3, int(((drawn <= MOST_RECORDS) & (n_blocks <= MOST_CHARTS)).sum()))
    return [column for column in columns if column in list(of_column)[: min(room, MOST_COLUMNS)]]


def record_of(part: Slice, slices: Slices, place: int) -> dict[str, Any]:
    """A part as a chart shows it."""
    n, asked, chance = part.n_rows, slices.asked, slices.chance(part)
    band_low, band_high = _band(n, asked)
    return {
        "place": place,
        "name": _name(part),
        "rows": n,
        "coverage": part.coverage,
        "low": part.low,
        "high": part.high,
        "band_low": band_low,
        "band_high": band_high,
        "asked": asked,
        "fits": chance >= BY_CHANCE,
        "chance": _by_chance(chance, len(slices)),
    }


@functools.cache
def _band(n_rows: int, asked: float) -> tuple[float, float]:
    """In which the coverage of so many rows lies in 19 of 20 cases; many slices have as many rows."""
    low, high = (float(binom.ppf(level, n_rows, asked)) / n_rows for level in (BY_CHANCE / 2, 1 - BY_CHANCE / 2))
    return low, high


def _name(part: Slice) -> str:
    """A part in a line that fits on a phone; of a long name the values stay, which tell parts of a column apart."""
    values = shortened_name(part.values, LONGEST_NAME - 10)
    column = shortened_name(part.column, LONGEST_NAME - 2 - len(values))
    return f"{column}: {values} ({counted(part.n_rows, 'row')})"


def _about(view: View) -> str:
    return f"{view.judgement.target} at {percent(view.judgement.asked)}"


def _tone(slices: Slices, part: Slice) -> str:
    return "bad" if slices.chance(part) < BY_CHANCE else "plain"


def _sentence(view: View, part: Slice) -> str:
    slices = view.judgement.slices
    return (
        f"Worst: {part.column}: {part.values}. {part.n_inside:,} of {counted(part.n_rows, 'row')} inside, "
        f"{share(part.coverage)}, where all rows together reach {share(view.judgement.coverage)}. Taken "
        f"alone, its coverage has the 95 % confidence interval {share(part.low)} to {share(part.high)}, which does not "
        f"allow for its being the worst of many. {_by_chance(slices.chance(part), len(slices))}."
    )


def _by_chance(chance: float, n_slices: int) -> str:
    """Whether chance may have brought this, among all the parts that were looked at."""
    if chance >= BY_CHANCE:
        return f"Among {counted(n_slices, 'slice')}, chance alone may bring this"
    return f"Chance alone brings any of {counted(n_slices, 'slice')} so low in {chance_of(chance)} of cases"


def _table(caption: str, slices: Slices, parts: list[Slice], view: View) -> Table:
    heads = ("slice", "rows", "inside", "coverage", "95 % interval", "by chance")
    rows = [
        (
            f"{part.column}: {part.values}",
            f"{part.n_rows:,}",
            f"{part.n_inside:,}",
            share(part.coverage),
            span(part.low, part.high),
            "may be" if slices.chance(part) >= BY_CHANCE else chance_of(slices.chance(part)),
        )
        for part in parts
    ]
    return Table(caption, heads, rows, texts=("slice",), when=view.when)
