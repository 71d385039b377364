"""Single rows: the largest misses, and the residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.report.bounds import Bounds
from coverwell.report.charts import histogram_spec, residuals_spec
from coverwell.report.judged import Judged, View
from coverwell.report.page import Block, Chart, Mark, Section, Table, Text, When
from coverwell.report.wording import as_text, counted, number, precise, shortened_name

__all__ = [
    "histogram_of",
    "largest_misses",
    "miss_in_numbers",
    "misses_section",
    "residual_bins",
    "residuals_section",
]

Array = NDArray[np.float64]

MOST_MISSES, MOST_FEATURES = 10, 12
MOST_POINTS = 3_000  # of all targets together
MOST_BINS, CENTRAL = 30, 0.99
MISS_DIGITS, MOST_DECIMALS, LARGEST_WRITTEN_OUT = 3, 9, 1e12


def largest_misses(view: Bounds, most: int = MOST_MISSES) -> NDArray[np.intp]:
    """The places of the rows that lie farthest outside their intervals, the farthest first."""
    order = np.argsort(-view.missed_by, kind="stable")[:most]
    return order[view.missed_by[order] > 0]


def miss_in_numbers(view: Bounds, place: int) -> list[str]:
    """What was observed, predicted and given, and by how much it was missed: all as far as the miss has digits."""
    missed_by = float(view.missed_by[place])
    values = [float(column[place]) for column in (view.y, view.prediction, view.lower, view.upper)]
    decimals = max(0, MISS_DIGITS - 1 - math.floor(math.log10(missed_by)))
    if decimals > MOST_DECIMALS or max(map(abs, values)) > LARGEST_WRITTEN_OUT:
        return [precise(value) for value in (*values, missed_by)]
    return [f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in (*values, missed_by)]  # + 0.0: never "-0"


def misses_section(judged: Judged) -> Section:
    """The rows that lie farthest from their intervals, with what is known about them."""
    columns = {**judged.rows.groups, **judged.rows.features}
    named = list(columns)[:MOST_FEATURES]
    blocks: list[Block] = []
    for view in judged.views:
        places = largest_misses(view, judged.room_for(MOST_MISSES))
        n_missed = int((~view.inside).sum())
        if not len(places):
            blocks.append(Text(f"No row of {view.judgement.target} lies outside its interval.", when=view.when))
            continue
        caption = f"{view.judgement.target}: {len(places)} of {n_missed:,} rows outside, the farthest first"
        heads = ("row", "observed", "predicted", "lower", "upper", "missed by", *map(shortened_name, named))
        rows = [_row(judged, view, place, [columns[name] for name in named]) for place in places.tolist()]
        texts = tuple(shortened_name(name) for name in named if columns[name].dtype.kind not in "iuf")
        blocks.append(Table(caption, heads, rows, texts=texts, when=view.when))
    cut = f" Of {len(columns)} columns, the first {MOST_FEATURES} are shown." if len(columns) > MOST_FEATURES else ""
    lead = (
        "The values that surprised the model most: how far outside its interval each lies. Look here for wrong entries "
        f"and for what the columns do not tell. Rows are counted from {judged.first_number}.{cut}"
    )
    return Section("misses", "The largest misses", lead, blocks)


def _row(judged: Judged, view: View, place: int, columns: list[NDArray[Any]]) -> list[str]:
    told = [as_text(column[place]) for column in columns]
    return [f"{judged.row_numbers[place]:,}", *miss_in_numbers(view, place), *told]


def residuals_section(judged: Judged) -> Section:
    """Observed minus predicted: against the prediction, and how often each size occurs."""
    blocks: list[Block] = []
    for target, name in enumerate(judged.targets):
        views = judged.of_target(target)
        rows = _sample(judged.n_rows, MOST_POINTS // len(judged.targets))
        records = _points(judged, views, rows)
        sampled = (
            "" if len(rows) == judged.n_rows else f" {len(rows):,} of {judged.n_rows:,} rows are drawn, by chance."
        )
        marks = (Mark("●", "inside", "inside its interval"), Mark("✚", "outside", "outside"))
        for view in views:
            told = f"{name}: each mark is a row; at zero the prediction was exact.{sampled}"
            blocks.append(Chart(residuals_spec(view.level), records, told, marks, view.when, in_numbers=False))
        blocks.append(histogram_of(name, views[0].y - views[0].prediction, {"target": target}))
    lead = "Around zero without a pattern is good; a slope or a bend is something that the model has not learned."
    return Section("residuals", "Residuals", lead, blocks, beside=True)


def _points(judged: Judged, views: list[View], rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    inside = np.stack([view.inside for view in views])  # (level, row)
    first_level = np.where(inside.any(axis=0), inside.argmax(axis=0), len(views))
    prediction, residual = views[0].prediction, views[0].y - views[0].prediction
    return [
        {
            "row": int(judged.row_numbers[row]),
            "prediction": prediction[row],
            "residual": residual[row],
            "first_level": int(first_level[row]),
        }
        for row in rows
    ]


def _sample(n_rows: int, most: int) -> NDArray[np.intp]:
    """At most so many rows, in their order; the same ones every time."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, max(1, most), replace=False))


def residual_bins(residuals: Array) -> tuple[list[tuple[float, float, int]], int]:
    """Equal bins over the central 99 % of the residuals with their counts, and how many lie beyond."""
    low, high = np.quantile(residuals, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2], method="closest_observation")
    central = residuals[(residuals >= low) & (residuals <= high)]
    n_bins = int(np.clip(round(2 * len(central) ** (1 / 3)), 5, MOST_BINS)) if high > low else 1
    around = (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))
    counts, edges = np.histogram(central, bins=n_bins, range=around)
    bins = [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    return bins, len(residuals) - len(central)


def histogram_of(name: str, residuals: Array, when: When, what: str = "row") -> Chart:
    """How often residuals of each size occur."""
    bins, n_beyond = residual_bins(residuals)
    records = [{"low": low, "high": high, "rows": rows} for low, high, rows in bins]
    beyond = f" Not drawn: {counted(n_beyond, what)} at the far ends." if n_beyond else ""
    told = (
        f"{name}: the mean of the residuals is {number(float(residuals.mean()))}, half of them lie between "
        f"{number(float(np.quantile(residuals, 0.25)))} and {number(float(np.quantile(residuals, 0.75)))}.{beyond}"
    )
    return Chart(histogram_spec(f"{what}s"), records, told, when=when)
