"""What was asked and what was reached: the verdict, the calibration curve, and whether width follows the error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coverwell.fitted_models import n_ranked_rows
from coverwell.metrics import joint_coverage
from coverwell.plots.style import percent
from coverwell.report.charts import calibration_spec, width_and_error_spec
from coverwell.report.heard import notes_on
from coverwell.report.judged import Judged, View
from coverwell.report.page import Block, Chart, Figures, Mark, Section, Table, Text
from coverwell.report.wording import counted, number, share, span

__all__ = ["WidthBin", "calibration_section", "reached_section", "verdict", "width_bins", "width_section"]

MOST_BINS, ROWS_PER_BIN = 10, 20
HARDLY = 1.2  # times the narrowest
NINE_OF_TEN = 1.6449  # standard errors to either side of a mean
RANKED = "The band allows for the {} training rows whose ranks set the widths."
UNRANKED = "No ranks set the widths: the band takes each row to be inside with exactly the asked probability."
UNKNOWN = (
    "The ranks of training rows set the widths, but how many is not known to this model: the band takes each row to be "
    "inside with exactly the asked probability, and is too narrow by what these ranks add."
)


def reached_section(judged: Judged) -> Section:
    """Asked, reached and expected, and what may be said about it."""
    blocks: list[Block] = []
    for view in judged.views:
        found = view.judgement
        low, high = found.band
        figures = (
            ("asked", percent(found.asked)),
            ("reached", share(found.coverage)),
            ("expected band", span(low, high)),
            ("typical error (RMSE)", number(found.rmse)),
            ("mean width", number(found.width)),
        )
        blocks += [Figures(figures, view.when), Text(verdict(view) + _elsewhere(judged, view), _tone(view), view.when)]
    blocks += [*notes_on(judged.warnings), _summary(judged), *_together(judged), Text(_about_band(judged))]
    lead = (
        "An interval is right for a row if the value that was observed lies in it; coverage is the share of such rows."
    )
    return Section("reached", "What was asked, and what was reached", lead, blocks)


def _about_band(judged: Judged) -> str:
    """What the band means, and how many of so many bands are missed by chance."""
    ranked = n_ranked_rows(judged.model)
    unranked = UNRANKED if judged.model.calibration is None else UNKNOWN
    several = (
        f" Of {len(judged.views)} bands, up to {number(0.1 * len(judged.views))} are missed on average even if all "
        "intervals are right."
        if len(judged.views) > 1
        else ""
    )
    return (
        f"Expected is the band in which nine of ten samples of {counted(judged.n_rows, 'row')} have their coverage if "
        f"the intervals are right and the rows are independent.{several} "
        f"{unranked if ranked is None else RANKED.format(f'{ranked:,}')} Rows that belong together (of one building, "
        "one patient, one day) make coverage vary more than the band says."
    )


def _together(judged: Judged) -> list[Text]:
    """Of several targets, how often all are inside at once: no interval was asked for that."""
    if len(judged.targets) == 1:
        return []
    said, model = judged.rows.said, judged.model
    is_joint = model.joint_factor_ is not None or model.scores_ is not None
    joint = "; intervals for all targets together are those of predict_interval(joint=True)" if is_joint else ""
    return [
        Text(
            f"All targets of a row lie inside their {percent(asked)} intervals at once in "
            f"{share(joint_coverage(judged.rows.y, said.lower[:, :, level], said.upper[:, :, level]))} of the rows. "
            f"Each interval is made for its own target, so this may well be less than was asked{joint}.",
            when={"level": level},
        )
        for level, asked in enumerate(judged.levels)
    ]


def verdict(view: View) -> str:
    """What was measured, in words that say no more than that."""
    found, n_inside = view.judgement, int(view.inside.sum())
    low, high = found.band
    measured = (
        f"{n_inside:,} of {len(view.y):,} rows lie inside their {percent(found.asked)} interval of {found.target}: "
        f"{share(found.coverage)}. "
    )
    if found.coverage < low:
        whole = (
            f"✕ That is below the expected band ({share(low)} to {share(high)}). If the intervals were right, at "
            "most one sample in twenty would fall so low: on rows like these they seem too narrow."
        )
    elif found.coverage > high:
        whole = (
            f"✕ That is above the expected band ({share(low)} to {share(high)}). If the intervals were right, at "
            "most one sample in twenty would reach so high: on rows like these they seem wider than was asked for."
        )
    else:
        whole = (
            f"✓ That is inside the expected band ({share(low)} to {share(high)}): taken together, these rows give no "
            "reason to doubt these intervals. They do not prove them right."
        )
    return f"{measured}{whole} {_of_slices(view)}"


def _elsewhere(judged: Judged, view: View) -> str:
    """That intervals of other targets or levels miss their band, where some do: no one shall see this one alone."""
    others = [other.judgement for other in judged.views if other is not view]
    n_missed = sum(not other.band[0] <= other.coverage <= other.band[1] for other in others)
    if not n_missed:
        return ""
    what = "level" if len(judged.targets) == 1 else "target or level"
    miss = "misses its" if n_missed == 1 else "miss their"
    return f" ✕ Of {counted(len(others), f'other {what}')}, {n_missed} {miss} band."


def _of_slices(view: View) -> str:
    found, looked, short = view.judgement, len(view.ranked.parts), view.ranked.short
    if not looked:
        return "No parts of the rows were looked at, since there are neither features nor groups to cut them by."
    if not short:
        return (
            f"None of {looked} slices of the rows falls short by more than chance, which does not prove that all hold."
        )
    worst = short[0]
    others = f", and {len(short) - 1} more" if len(short) > 1 else ""
    but = "But " if found.band[0] <= found.coverage <= found.band[1] else ""
    return (
        f"{but}{len(short)} of {looked} slices of the rows fall short by more than chance: "
        f"{worst.column} {worst.values} ({share(worst.coverage)} of {worst.n_rows:,} rows){others}."
    )


def _tone(view: View) -> str:
    low, high = view.judgement.band
    return "good" if low <= view.judgement.coverage <= high and not view.ranked.n_short else "bad"


def _summary(judged: Judged) -> Table:
    slices = ("slices short",) if judged.views[0].ranked.parts else ()
    heads = ("target", "asked", "reached", "expected", "band", *slices, "RMSE", "mean width", "interval score")
    rows = []
    for view in judged.views:
        found = view.judgement
        low, high = found.band
        place = "✓ inside" if low <= found.coverage <= high else "✕ below" if found.coverage < low else "✕ above"
        scores = (number(found.rmse), number(found.width), number(found.interval_score))
        short = [f"{view.ranked.n_short:,} of {len(view.ranked.parts):,}"] if view.ranked.parts else []
        rows.append(
            (found.target, percent(found.asked), share(found.coverage), span(low, high), place, *short, *scores)
        )
    return Table("All targets and levels", heads, rows, texts=("target",))


def calibration_section(judged: Judged) -> Section:
    """Coverage reached against coverage asked."""
    blocks: list[Block] = []
    for view in judged.views:
        records = [_point(other, chosen=other is view) for other in judged.of_target(view.target)]
        n_fit = sum(record["fits"] for record in records)
        told = (
            f"{view.judgement.target}: at {n_fit} of {counted(len(records), 'fitted level')} the coverage lies inside "
            "its expected band. The larger mark is the chosen level."
        )
        marks = (
            Mark("●", "inside", "reached, inside the band"),
            Mark("✚", "outside", "reached, outside the band"),
            Mark("▮", "bar", "where nine of ten samples lie if the intervals are right"),
            Mark("╌", "centre", "reached as asked"),
        )
        blocks.append(Chart(calibration_spec(), records, told, marks, view.when))
    lead = "If intervals are right, marks lie near the dashed line: about nine of ten within their grey bar."
    return Section("calibration", "Coverage at every level", lead, blocks)


def _point(view: View, *, chosen: bool) -> dict[str, Any]:
    found = view.judgement
    low, high = found.band
    fits = low <= found.coverage <= high
    return {
        "asked": found.asked,
        "reached": found.coverage,
        "low": low,
        "high": high,
        "fits": fits,
        "chosen": chosen,
    }


@dataclass(frozen=True)
class WidthBin:
    """Rows whose intervals are about equally wide."""

    n_rows: int
    width: float  # the mean
    error: float  # the mean size
    standard_error: float  # of that mean; NaN of a single row, which tells nothing about it
    coverage: float


def width_bins(view: View) -> list[WidthBin]:
    """The rows from the narrowest intervals to the widest, in bins of as many each; equal widths are never apart."""
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


def width_section(judged: Judged) -> Section:
    """Whether wide intervals are where errors are large."""
    blocks: list[Block] = []
    for view in judged.views:
        bins = width_bins(view)
        records = [
            {
                "width": one.width,
                "error": one.error,
                "low": np.maximum(0.0, one.error - NINE_OF_TEN * one.standard_error),
                "high": one.error + NINE_OF_TEN * one.standard_error,
                "rows": one.n_rows,
                "inside": one.coverage,
            }
            for one in bins
        ]
        marks = (
            Mark("●", "inside", "mean size of the error of rows with about this width"),
            Mark("│", "inside", "where its true mean is to be expected (90 %)"),
        )
        blocks.append(Chart(width_and_error_spec(), records, _told(bins), marks, view.when))
    lead = "Good intervals are wide where the prediction is unsure and narrow where it is not: the marks should rise."
    return Section("width", "Width against error", lead, blocks)


def _told(bins: list[WidthBin]) -> str:
    if len(bins) == 1:
        return "The intervals are equally wide, or the rows too few to be cut by width, so there is one mark only."
    first, last = bins[0], bins[-1]
    alike = " The widths hardly differ." if last.width < HARDLY * first.width else ""
    return (
        f"Where intervals are narrowest (mean width {number(first.width)}), the error is {number(first.error)} on "
        f"average; where they are widest ({number(last.width)}), it is {number(last.error)}.{alike}"
    )
