"""Sections on coverage: of all rows, by level, by width, and in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coverwell import metrics
from coverwell.description import ModelDescription
from coverwell.evaluation import Outcome, View
from coverwell.plots.charts import draw_calibration_curve, slices_chart, split_points
from coverwell.plots.grammar import Axis, Chart, Mark, Tip, percent
from coverwell.report.page import Block, Choice, Figures, Graph, Legend, Section, Table, Text, prose
from coverwell.report.series import stretch_verdict
from coverwell.report.vega import legend
from coverwell.report.words import chance_of, noun, number, room_for, share, span, when
from coverwell.slices import BY_CHANCE, Slice, Slices

MOST_WARNINGS = 10
MOST_BINS, ROWS_PER_BIN = 10, 20  # of widths
NINE_OF_TEN = 1.6449  # standard errors to either side of a mean
MOST_WORST, MOST_OF_A_COLUMN, MOST_COLUMNS = 10, 30, 30
MOST_RECORDS, MOST_CHARTS = 12_000, 1_000  # of all charts by column together: they are the bulk of a page


def reached(outcome: Outcome, model: ModelDescription) -> Section:
    """Asked, reached and expected coverage, and the conclusions that these allow."""
    blocks: list[Block] = [Text(prose("seen_before", n=outcome.n_seen), "bad")] if outcome.n_seen else []
    for view in outcome.views:
        found, static = view.scores, view.static
        figures = [("asked", percent(view.asked)), ("reached", share(found["coverage"]))]
        figures.append(("expected band", span(*found["band"])))
        if static is not None:
            figures.append(("reached without live calibration", share(static.scores["coverage"])))
        figures += [("typical error (RMSE)", number(found["rmse"])), ("mean width", number(found["width"]))]
        tone = "good" if view.is_expected and not view.slices.short else "bad"
        blocks += [Figures(figures, when(view)), Text(verdict(view), tone, when(view))]
    blocks += [Text(prose("warning", text=text), "note") for text in outcome.warnings[:MOST_WARNINGS]]
    if len(outcome.warnings) > MOST_WARNINGS:
        blocks.append(Text(prose("more_warnings", n=len(outcome.warnings) - MOST_WARNINGS), "note"))
    blocks.append(_summary(outcome))
    if len(outcome.target_names) > 1 and outcome.times is None:
        for level, asked in enumerate(outcome.levels):
            at_once = metrics.joint_coverage(outcome.y, outcome.lower[..., level], outcome.upper[..., level])
            blocks.append(
                Text(prose("joint", asked=asked, found=at_once, has_joint=model.has_joint), when={"level": level})
            )
    blocks.append(Text(prose("about_band", outcome=outcome, model=model, noun=noun(outcome))))
    return Section("reached", blocks)


def verdict(view: View) -> str:
    """What was measured, in words that say no more than that."""
    parts = [prose("verdict", view=view, noun=noun(view.outcome))]
    parts.append(prose("slices_verdict", view=view) if view.outcome.times is None else stretch_verdict(view))
    others = [other for other in view.outcome.views if other is not view]
    if n_missed := sum(not other.is_expected for other in others):
        n_targets = len(view.outcome.target_names)
        parts.append(prose("elsewhere", n_missed=n_missed, n_others=len(others), n_targets=n_targets))
    return " ".join(parts)


def _summary(outcome: Outcome) -> Table:
    has_static, has_slices = outcome.static is not None, len(outcome.views[0].slices) > 0
    heads = ["target", "asked", "reached", *(["static"] if has_static else []), "expected", "band"]
    heads += [*(["slices short"] if has_slices else []), "RMSE", "mean width", "interval score"]
    rows = []
    for view in outcome.views:
        found = view.scores
        band = "✓ inside" if view.is_expected else "✕ below" if found["coverage"] < found["band"][0] else "✕ above"
        row = [view.name, percent(view.asked), share(found["coverage"])]
        row += [] if view.static is None else [share(view.static.scores["coverage"])]
        row += [span(*found["band"]), band]
        row += [f"{len(view.slices.short):,} of {len(view.slices):,}"] if has_slices else []
        rows.append([*row, *(number(found[score]) for score in ("rmse", "width", "interval_score"))])
    return Table("All targets and levels", heads, rows, texts=("target",))


def calibration(outcome: Outcome, model: ModelDescription) -> Section:
    """Coverage against asked coverage, the chosen level marked."""
    band_label = "where nine of ten samples lie if the intervals are right"
    blocks: list[Block] = []
    labels = "reached, inside the band", "reached, outside the band"
    chosen = Mark(
        "points", "asked", "value", label="the chosen level", marker="o", size=11.0, opacity=0.3, where="chosen"
    )
    for view in outcome.views:
        views = [outcome.view(view.target, level) for level in range(len(outcome.levels))]
        low, high = np.array([one.scores["band"] for one in views]).T
        found, expected = [one.scores["coverage"] for one in views], np.array([one.is_expected for one in views])
        chart = draw_calibration_curve.chart(list(outcome.levels), found, band=(low, high), band_label=band_label)
        marks = [replace(mark, label="reached as asked") if mark.kind == "diagonal" else mark for mark in chart.marks]
        marks += [chosen, *split_points("asked", "value", "expected", labels=labels)]
        table = {**chart.table, "expected": expected, "chosen": np.array([one is view for one in views])}
        caption = prose("calibration", name=view.name, n_expected=expected.sum(), n=len(views))
        blocks.append(Graph(replace(chart, table=table, marks=marks), caption, when(view)))
    return Section("calibration", blocks)


@dataclass(frozen=True)
class WidthBin:
    """Rows whose intervals are about equally wide."""

    n_rows: int
    width: float  # the mean
    error: float  # the mean size
    standard_error: float  # of that mean; NaN for a single row
    coverage: float


def width_bins(view: View) -> list[WidthBin]:
    """The rows from the narrowest intervals to the widest, in bins of as many each; equal widths stay together."""
    order = np.argsort(view.width, kind="stable")
    width, error, inside = view.width[order], np.abs(view.y - view.prediction)[order], view.inside[order]
    n_bins = max(1, min(MOST_BINS, len(width) // ROWS_PER_BIN))
    cuts = np.round(np.linspace(0, len(width), n_bins + 1)).astype(int)[1:-1]
    cuts = np.unique(np.searchsorted(width, width[cuts], side="left"))
    bins = []
    for rows in np.split(np.arange(len(width)), cuts[cuts > 0]):
        spread = float(error[rows].std(ddof=1)) if len(rows) > 1 else float("nan")
        means = (float(width[rows].mean()), float(error[rows].mean()))
        bins.append(WidthBin(len(rows), *means, spread / len(rows) ** 0.5, float(inside[rows].mean())))
    return bins


def widths(outcome: Outcome, model: ModelDescription) -> Section:
    """Whether wide intervals are where errors are large."""
    marks = [
        Mark("columns", "width", "low", "high", label="where its true mean is to be expected (90 %)"),
        Mark("points", "width", "error", label="mean size of the error at about this width", marker="o", size=5.0),
    ]
    tips = [Tip("width", "mean width"), Tip("error", "mean size of the error"), Tip("low", "its true mean from (90 %)")]
    tips += [Tip("high", "to"), Tip("n_rows", f"{noun(outcome)}s", "count"), Tip("coverage", "coverage", "share")]
    axes = Axis("mean width of the interval"), Axis("mean size of the error", zero=True)
    blocks: list[Block] = []
    for view in outcome.views:
        bins = width_bins(view)
        table = {name: np.array([getattr(one, name) for one in bins]) for name in WidthBin.__annotations__}
        half = NINE_OF_TEN * table.pop("standard_error")
        table |= {"low": np.maximum(0.0, table["error"] - half), "high": table["error"] + half}
        blocks.append(Graph(Chart(table, marks, *axes, tips), prose("widths", bins=bins), when(view)))
    return Section("widths", blocks)


def worst(outcome: Outcome, model: ModelDescription) -> Section | None:
    """The worst slices of all, named."""
    if not len(outcome.views[0].slices):
        return None
    blocks: list[Block] = []
    for view in outcome.views:
        found, parts = view.slices, view.slices.worst(room_for(outcome, MOST_WORST))
        chance = found.chance(parts[0])
        sentence = prose("worst", view=view, part=parts[0], chance=chance, by_chance=BY_CHANCE)
        blocks.append(Text(sentence, "bad" if chance < BY_CHANCE else "plain", when(view)))
        caption = prose("worst_caption", view=view, n=len(parts))
        blocks.append(Graph(slices_chart(found, parts), caption, when(view), in_numbers=False))
        blocks.append(_table(found, parts, when(view)))
    return Section("worst", blocks)


def _table(found: Slices, parts: Sequence[Slice], shown: dict[str, int]) -> Table:
    heads = ("slice", "rows", "inside", "coverage", "95 % interval", "by chance")
    rows = []
    for part in parts:
        chance = found.chance(part)
        counts = (f"{part.n_rows:,}", f"{part.n_inside:,}", share(part.coverage), span(part.low, part.high))
        rows.append((f"{part.column}: {part.values}", *counts, "may be" if chance >= BY_CHANCE else chance_of(chance)))
    return Table("The same in numbers", heads, rows, texts=("slice",), when=shown)


def slices(outcome: Outcome, model: ModelDescription) -> Section | None:
    """All slices by the column that a reader chooses; at first the one with the worst slice at the highest level."""
    first = outcome.view(0, len(outcome.levels) - 1).slices
    if not len(first):
        return None
    columns, room = [*outcome.groups, *outcome.features], _chosen_columns(first, len(outcome.views))
    shown = [column for column in columns if column in room]
    blocks: list[Block] = []
    for view in outcome.views:
        both_ends = [view.slices.worst(len(view.slices))[place] for place in (0, -1)]
        blocks.append(Legend(legend(slices_chart(view.slices, both_ends)), when(view)))  # one for all these charts
        for place, column in enumerate(shown):
            ranked = view.slices.by_column[column]
            is_cut = len(ranked) > MOST_OF_A_COLUMN
            parts = ranked[:MOST_OF_A_COLUMN] if is_cut else view.slices.of(column)
            caption = prose("slices", view=view, column=column, n=len(parts), n_all=len(ranked))
            shown_for = {**when(view), "column": place}
            blocks.append(Graph(slices_chart(view.slices, parts), caption, shown_for, has_legend=False))
    if len(shown) < len(columns):
        blocks.append(Text(prose("columns_chosen", n=len(shown), n_all=len(columns)), "note"))
    choice = Choice("column", "Feature or group", shown, shown.index(next(iter(first.by_column))))
    return Section("slices", blocks, choice)


def _chosen_columns(found: Slices, n_views: int) -> list[str]:
    """The columns that can be chosen: all, or where they are too many for a page those with the worst slices."""
    drawn = np.cumsum([min(len(parts), MOST_OF_A_COLUMN) for parts in found.by_column.values()]) * n_views
    n_charts = np.arange(1, len(drawn) + 1) * n_views
    room = max(3, int(((drawn <= MOST_RECORDS) & (n_charts <= MOST_CHARTS)).sum()))
    return list(found.by_column)[: min(room, MOST_COLUMNS)]
