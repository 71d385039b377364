"""What live operation over a period would have given: coverage, bands, misses, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coverwell import metrics
from coverwell.plots.style import percent
from coverwell.report.charts import bands_spec, rolling_spec
from coverwell.report.heard import notes_on
from coverwell.report.page import Block, Chart, Choice, Figures, Mark, Section, Table, Text
from coverwell.report.row_sections import histogram_of, largest_misses, miss_in_numbers
from coverwell.report.series_views import SeriesView, lowest_by_chance, window_of, worst_stretch
from coverwell.report.wording import as_text, counted, number, share, shortened_name, span

__all__ = [
    "bands_section",
    "misses_section",
    "reached_section",
    "residuals_section",
    "rolling_section",
    "told_time",
    "verdict",
]

STRETCH = 150  # values in a picture
MOST_WINDOWS_DRAWN = 400
LIVE, STATIC = "with live calibration", "without it"
FLATTERED = (
    "✕ {} of the steps had been seen by the forecaster before: it is judged by what it knows, and all that follows "
    "flatters it. Begin the report after the last step that it has seen."
)


def told_time(time: Any) -> str:
    """A date, or which step."""
    return as_text(time) if isinstance(time, np.datetime64) else f"step {time}"


def reached_section(views: list[SeriesView], warnings: Sequence[str] = (), *, n_seen_before: int = 0) -> Section:
    """Asked, reached and expected; of steps that had been seen before, that they flatter."""
    blocks: list[Block] = [Text(FLATTERED.format(f"{n_seen_before:,}"), "bad")] if n_seen_before else []
    for view in views:
        low, high = view.band
        static = [("reached without live calibration", share(float(view.static_inside.mean())))] if view.live else []
        figures = [
            ("asked", percent(view.asked)),
            ("reached", share(float(view.inside.mean()))),
            ("expected band", span(low, high)),
            *static,
            ("typical error (RMSE)", number(float(metrics.rmse(view.y, view.prediction)))),
            ("mean width", number(float(view.width.mean()))),
        ]
        tone = "good" if low <= view.inside.mean() <= high else "bad"
        blocks += [Figures(tuple(figures), view.when), Text(verdict(view), tone, view.when)]
    blocks += [*notes_on(warnings), _summary(views)]
    lead = "A forecast is right if the value that came lies in its interval; coverage is the share of such values."
    return Section("reached", "What was asked, and what was reached", lead, blocks)


def verdict(view: SeriesView) -> str:
    """What was measured, in words that say no more than that."""
    low, high = view.band
    reached, n_values = float(view.inside.mean()), len(view.y)
    where = "✓ inside" if low <= reached <= high else "✕ below" if reached < low else "✕ above"
    worst = worst_stretch(view.inside, window_of(n_values))
    by_chance = lowest_by_chance(view.asked, n_values, worst.n)
    return (
        f"{int(view.inside.sum()):,} of {n_values:,} values lie inside their {percent(view.asked)} interval, "
        f"{share(reached)}: {where} the band of {share(low)} to {share(high)} in which nine of ten periods of so many "
        "values lie if each is inside with the asked probability, independently of the others. In a series misses "
        f"often come together, and then coverage varies more than this. The worst {worst.n} values in a row begin at "
        f"{told_time(view.times[worst.first])}, with {share(worst.coverage)} inside; with independent misses, one "
        f"period of twenty has a worst stretch below {share(by_chance)}."
    )


def _summary(views: list[SeriesView]) -> Table:
    static = ("without live calibration",) if views[0].live else ()
    heads = ("steps ahead", "asked", "reached", *static, "expected", "mean width", "interval score")
    return Table("All steps and levels", heads, [_line(view) for view in views])


def _line(view: SeriesView) -> tuple[str, ...]:
    low, high = view.band
    return (
        f"{view.step}",
        percent(view.asked),
        share(float(view.inside.mean())),
        *([share(float(view.static_inside.mean()))] if view.live else []),
        span(low, high),
        number(float(view.width.mean())),
        number(float(metrics.interval_score(view.y, view.lower, view.upper, view.asked))),
    )


def bands_section(name: str, views: list[SeriesView]) -> Section:
    """The forecasts of three stretches of the period, with what came."""
    options = ("the worst stretch", "the beginning", "the end")
    blocks: list[Block] = []
    for view in views:
        n = min(STRETCH, len(view.y))
        worst = worst_stretch(view.inside, n)
        for place, first in enumerate((worst.first, 0, len(view.y) - n)):
            rows = slice(first, first + n)
            told = (
                f"{options[place].capitalize()}: {counted(n, 'value')} from {told_time(view.times[first])} to "
                f"{told_time(view.times[first + n - 1])}; {int(view.inside[rows].sum())} of them inside at "
                f"{percent(view.asked)}."
            )
            live = (Mark("╌", "other", f"the interval {STATIC}"),) if view.live else ()
            marks = (
                Mark("▮", "band", f"{percent(view.asked)} interval{f', {LIVE}' if view.live else ''}"),
                *live,
                Mark("━", "inside", "forecast"),
                Mark("●", "ink", "value that came, inside"),
                Mark("✚", "outside", "value that came, outside"),
            )
            spec = bands_spec(shortened_name(name), dates=view.dates, live=view.live)
            blocks.append(Chart(spec, _band_records(view, rows), told, marks, {**view.when, "stretch": place}))
    follows = "it follows what was missed before" if views[0].live else "live calibration is off"
    lead = f"The band is where each value was said to lie, so many steps before it came; {follows}."
    choice = Choice("stretch", "Period", options)
    return Section("bands", "Forecasts and what came", lead, blocks, choice)


def _band_records(view: SeriesView, rows: slice) -> list[dict[str, Any]]:
    columns = {
        "time": [_json_time(time) for time in view.times[rows]],
        "y": view.y[rows].tolist(),
        "prediction": view.prediction[rows].tolist(),
        "lower": view.lower[rows].tolist(),
        "upper": view.upper[rows].tolist(),
        "static_lower": view.static_lower[rows].tolist(),
        "static_upper": view.static_upper[rows].tolist(),
        "fits": view.inside[rows].tolist(),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _json_time(time: Any) -> Any:
    return str(time.astype("datetime64[ms]")) if isinstance(time, np.datetime64) else int(time)


def rolling_section(views: list[SeriesView]) -> Section:
    """The share inside over a moving window."""
    blocks: list[Block] = []
    for view in views:
        window = window_of(len(view.y))
        live, static = (metrics.rolling_coverage(inside, window) for inside in (view.inside, view.static_inside))
        drawn = np.unique(np.round(np.linspace(0, len(live) - 1, min(len(live), MOST_WINDOWS_DRAWN))).astype(int))
        drawn = np.unique([*drawn, live.argmin()])  # the worst is always among them
        records = [
            {
                "time": _json_time(view.times[place + window - 1]),
                "live": live[place],
                "static": static[place],
                "asked": view.asked,
            }
            for place in drawn
        ]
        told = f"The share inside among the latest {window} values: between {share(live.min())} and {share(live.max())}"
        told += f" {LIVE}, between {share(static.min())} and {share(static.max())} {STATIC}." if view.live else "."
        with_live = (Mark("━", "inside", LIVE), Mark("╌", "other", STATIC))
        marks = (*(with_live if view.live else (Mark("━", "inside", "reached"),)), Mark("─", "centre", "asked"))
        blocks.append(Chart(rolling_spec(dates=view.dates, live=view.live), records, told, marks, view.when))
    lead = "Coverage that is right over the whole period may still be wrong for a long while; this shows when."
    return Section("rolling", "Coverage over time", lead, blocks)


def misses_section(views: list[SeriesView]) -> Section:
    """The values that lie farthest from their intervals."""
    blocks: list[Block] = []
    for view in views:
        places = largest_misses(view)
        if not len(places):
            blocks.append(Text("No value lies outside its interval.", when=view.when))
            continue
        heads = ("time", "observed", "predicted", "lower", "upper", "missed by")
        rows = [(told_time(view.times[place]), *miss_in_numbers(view, place)) for place in places.tolist()]
        caption = f"{len(places)} of {int((~view.inside).sum()):,} values outside, the farthest first"
        blocks.append(Table(caption, heads, rows, texts=("time",), when=view.when))
    return Section("misses", "The largest misses", "The values that surprised the forecaster most.", blocks)


def residuals_section(name: str, views: list[SeriesView]) -> Section:
    """How often residuals of each size occur."""
    first_of_step = {view.when["step"]: view for view in reversed(views)}
    blocks: list[Block] = [
        histogram_of(name, view.y - view.prediction, {"step": step}, "value")
        for step, view in sorted(first_of_step.items())
    ]
    return Section("residuals", "Residuals", "How far the values that came lie from the forecasts.", blocks)
