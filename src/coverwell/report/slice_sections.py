"""Coverage in parts of the rows: the worst by name, and all parts of a feature or group."""

from __future__ import annotations

from typing import Any

from scipy.stats import binom

from coverwell.plots.style import percent
from coverwell.report.charts import parts_spec
from coverwell.report.judged import Judged, View
from coverwell.report.page import Block, Chart, Choice, Mark, Section, Table, Text
from coverwell.report.wording import LONGEST_NAME, chance_of, counted, share, shortened_name
from coverwell.slices import CONFIDENCE, Slice, Slices

__all__ = ["named_first", "record_of", "short_parts", "slices_section", "worst_section"]

BY_CHANCE = 1 - CONFIDENCE  # a shortfall with less probability than this, over all parts together, is named
MOST_WORST, MOST_OF_A_COLUMN, MOST_COLUMNS = 10, 30, 30
MOST_RECORDS = 12_000  # of all charts by column together: they are the bulk of a page
MARKS = (
    Mark("●", "inside", "coverage, with its 95 % confidence interval"),
    Mark("✚", "outside", "short by more than chance, however many slices were looked at"),
    Mark("▬", "bar", "where 19 of 20 slices of so many rows lie if each row is inside as asked"),
    Mark("│", "centre", "asked"),
)


def short_parts(slices: Slices) -> list[Slice]:
    """The parts that fall short by more than chance, the worst first."""
    return [part for part in slices.worst(len(slices)) if slices.chance(part) < BY_CHANCE]


def worst_section(judged: Judged) -> Section:
    """The worst parts of all, named."""
    blocks: list[Block] = []
    for view in judged.views:
        slices = view.judgement.slices
        parts = named_first(slices)
        records = [record_of(part, slices, place) for place, part in enumerate(parts)]
        told = f"The worst {len(parts)} of {counted(len(slices), 'slice')}, for {_about(view)}; the worst on top."
        blocks.append(Text(_sentence(slices, parts[0]), _tone(slices, parts[0]), view.when))
        blocks.append(Chart(parts_spec(len(parts)), records, told, MARKS, view.when))
        blocks.append(_table("The same in numbers", slices, parts, view))
    lead = (
        "Coverage that is right on average may hide parts of the rows where it is not. These are the parts that are "
        "surely covered least; a slice of few rows must be missed often to come before a large one."
    )
    return Section("worst", "The worst slices", lead, blocks)


def named_first(slices: Slices, most: int | None = MOST_WORST) -> list[Slice]:
    """The parts to be named: those that fall short by more than chance first, each kind with the worst on top."""
    worst = slices.worst(len(slices))
    return sorted(worst, key=lambda part: slices.chance(part) >= BY_CHANCE)[:most]


def slices_section(judged: Judged, first: View) -> Section:
    """All parts by the column that a reader chooses; the first one shown is the worst of the first view."""
    columns = list(dict.fromkeys(part.column for view in judged.views for part in view.judgement.slices))
    worst = list(dict.fromkeys(part.column for part in named_first(first.judgement.slices, most=None)))
    shown = _shown_columns(judged, columns, worst)
    start = shown.index(worst[0])
    choice = Choice("column", "Feature or group", tuple(shown), start)
    blocks: list[Block] = []
    for view in judged.views:
        slices = view.judgement.slices
        for place, column in enumerate(shown):
            parts = slices.of(column)
            when = {**view.when, "column": place}
            kept = _kept(parts)
            records = [record_of(part, slices, row) for row, part in enumerate(kept)]
            cut = "" if len(kept) == len(parts) else f" The worst {len(kept)} of {len(parts)} are drawn."
            told = f"Coverage by {column}, for {_about(view)}.{cut}"
            blocks.append(Chart(parts_spec(len(kept)), records, told, MARKS, when))
    if len(shown) < len(columns):
        blocks.append(
            Text(f"{len(shown)} of {len(columns)} columns can be chosen: those with the worst slices.", "note")
        )
    lead = "Numbers and dates are cut at their quantiles, categories by their levels; missing values are a slice."
    return Section("slices", "Coverage by feature and group", lead, blocks, choice)


def _shown_columns(judged: Judged, columns: list[str], worst: list[str]) -> list[str]:
    """The columns that can be chosen: all, or where they are too many for a page those with the worst parts."""
    n_parts = max((len(view.judgement.slices) for view in judged.views), default=0)
    per_column = max(1, n_parts // max(1, len(columns)))
    room = max(3, min(MOST_COLUMNS, MOST_RECORDS // (per_column * len(judged.views))))
    return [column for column in columns if column in worst[:room]]


def _kept(parts: tuple[Slice, ...]) -> list[Slice]:
    """The parts of a column in their order, or of a group with very many the worst."""
    if len(parts) <= MOST_OF_A_COLUMN:
        return list(parts)
    return sorted(parts, key=lambda part: part.high)[:MOST_OF_A_COLUMN]


def record_of(part: Slice, slices: Slices, place: int) -> dict[str, Any]:
    """A part as a chart shows it."""
    n, asked = part.n_rows, slices.asked
    band = [float(binom.ppf(level, n, asked)) / n for level in (BY_CHANCE / 2, 1 - BY_CHANCE / 2)]
    return {
        "place": place,
        "name": _name(part),
        "rows": n,
        "coverage": part.coverage,
        "low": part.low,
        "high": part.high,
        "band_low": band[0],
        "band_high": band[1],
        "asked": asked,
        "fits": slices.chance(part) >= BY_CHANCE,
        "chance": _chance(slices, part),
    }


def _name(part: Slice) -> str:
    """A part in a line that fits on a phone; of a long name the values stay, which tell parts of a column apart."""
    values = shortened_name(part.values, LONGEST_NAME - 10)
    column = shortened_name(part.column, LONGEST_NAME - 2 - len(values))
    return f"{column}: {values} ({counted(part.n_rows, 'row')})"


def _about(view: View) -> str:
    return f"{view.judgement.target} at {percent(view.judgement.asked)}"


def _tone(slices: Slices, part: Slice) -> str:
    return "bad" if slices.chance(part) < BY_CHANCE else "plain"


def _sentence(slices: Slices, part: Slice) -> str:
    named = f"{part.column}: {part.values}"
    return (
        f"Worst: {named}. {part.n_inside:,} of {counted(part.n_rows, 'row')} inside, {share(part.coverage)}; its true "
        f"coverage is to be expected between {share(part.low)} and {share(part.high)}. {_chance(slices, part)}."
    )


def _chance(slices: Slices, part: Slice) -> str:
    """Whether chance may have brought this, among all the parts that were looked at."""
    chance = slices.chance(part)
    if chance >= BY_CHANCE:
        return f"Among {counted(len(slices), 'slice')}, chance alone may bring this"
    return f"Chance alone brings any of {counted(len(slices), 'slice')} so low in {chance_of(chance)} of cases"


def _table(caption: str, slices: Slices, parts: list[Slice], view: View) -> Table:
    heads = ("slice", "rows", "inside", "coverage", "95 % interval", "by chance")
    rows = [
        (
            f"{part.column}: {part.values}",
            f"{part.n_rows:,}",
            f"{part.n_inside:,}",
            share(part.coverage),
            f"{share(part.low)} to {share(part.high)}",
            "may be" if slices.chance(part) >= BY_CHANCE else chance_of(slices.chance(part)),
        )
        for part in parts
    ]
    return Table(caption, heads, rows, texts=("slice",), when=view.when)
