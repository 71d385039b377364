"""`coverwell evaluate`: how a model does on rows whose targets are known, as a whole and in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from coverwell.commands.judgements import read_outcome
from coverwell.commands.messages import clear_messages, print_json
from coverwell.commands.models import TableModel
from coverwell.commands.options import (
    DATA_ARGUMENT,
    DEVICE_OPTION,
    JSON_OPTION,
    MODEL_ARGUMENT,
    QUANTILES_OPTION,
    SKIP_OPTION,
    TEXT_OPTIONS,
)
from coverwell.evaluation import Outcome, View
from coverwell.slices import BY_CHANCE, Slice, Slices
from coverwell.table_files import TableFile

__all__ = ["evaluate"]

HEADS = ("target", "asked", "RMSE", "coverage", "expected", "CE", "expected", "width", "interval score")
SLICE_HEADS = ("slice", "rows", "coverage", "95 % interval")


@click.command(short_help="How a model does on rows with known targets.")
@MODEL_ARGUMENT
@DATA_ARGUMENT
@click.option("--group", multiple=True, metavar="COLUMN", help="Also coverage for each value here; may be given again.")
@QUANTILES_OPTION
@click.option("--worst", type=click.IntRange(min=0), default=5, show_default=True, help="How many slices are named.")
@click.option("--all-slices", is_flag=True, help="Print every slice, not the worst alone; --json always has all.")
@DEVICE_OPTION
@TEXT_OPTIONS
@SKIP_OPTION
@JSON_OPTION
def evaluate(
    model: Path,
    data: Path,
    group: tuple[str, ...],
    quantiles: int,
    worst: int,
    all_slices: bool,
    device: str,
    skip_missing: bool,
    as_json: bool,
    **text: Any,
) -> None:
    """Judge MODEL by the rows of DATA, which has the targets too and should have no rows of the training.

    For each target and level: the error (RMSE); the coverage, beside the band in which nine of ten samples of so many
    rows have it if the intervals are right; the calibration error (CE), beside the one to expect; the mean width; and
    the interval score (width, and a fine for every miss; lower is better). Then the coverage of slices: the rows of one
    group, of one category, or between two quantiles of a feature. The worst are named, those first that fall short by
    more than chance, each with a 95 % interval and a bound for the probability that chance alone makes any of all the
    slices look so bad.

    \b
    Example:
      coverwell evaluate model.safetensors test.csv --group city
    """
    with clear_messages():
        table = TableFile(data, **text)
        fitted = TableModel.load(model, device=device)
        outcome = read_outcome(fitted, table, groups=group, skip_missing=skip_missing, quantiles=quantiles)
        if as_json:
            print_json(_content(data, outcome, worst))
        else:
            _print(data, outcome, worst=worst, all_slices=all_slices)


def _content(data: Path, outcome: Outcome, worst: int) -> dict[str, Any]:
    """All of it, as what JSON can hold."""
    return {
        "data": str(data),
        "rows": len(outcome),
        "rows_skipped": outcome.n_skipped,
        "results": [
            {
                "target": view.name,
                "asked": view.asked,
                **view.scores,
                "slices": [_slice(view.slices, part) for part in view.slices],
                "worst_slices": [_slice(view.slices, part) for part in view.slices.worst(worst)],
                "n_slices": len(view.slices),
            }
            for view in outcome.views
        ],
    }


def _slice(slices: Slices, part: Slice) -> dict[str, Any]:
    return {
        **asdict(part),
        "coverage": part.coverage,
        "low": part.low,
        "high": part.high,
        "chance_of_any": slices.chance(part),
    }


def _print(data: Path, outcome: Outcome, *, worst: int, all_slices: bool) -> None:
    skipped = f" ({outcome.n_skipped:,} without a target left out)" if outcome.n_skipped else ""
    click.echo(f"{data}: {len(outcome):,} rows{skipped}\n")
    _print_table(HEADS, [_line(view) for view in outcome.views])
    for view in outcome.views:
        name = f"{view.name} at {view.asked:g}"
        for group in outcome.groups:
            _print_slices(f"{name}, by {group}:", view.slices.of(group))
        if all_slices:
            _print_slices(f"{name}, all slices:", view.slices.slices)
        elif worst:
            click.echo(f"\n{name}, the worst of {len(view.slices)} slices:")
            for part in view.slices.worst(worst):
                click.echo(f"  {_sentence(view.slices, part)}")


def _line(view: View) -> tuple[str, ...]:
    found, (low, high) = view.scores, view.scores["band"]
    return (
        view.name,
        f"{view.asked:g}",
        f"{found['rmse']:.4g}",
        f"{found['coverage']:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{found['calibration_error']:.3f}",
        f"{found['expected_calibration_error']:.3f}",
        f"{found['width']:.4g}",
        f"{found['interval_score']:.4g}",
    )


def _sentence(slices: Slices, part: Slice) -> str:
    chance = slices.chance(part)
    by_chance = (
        "as chance alone may bring" if chance >= BY_CHANCE else f"by chance in at most {max(chance, 1e-6):.1g} of cases"
    )
    return (
        f"{part.column} {part.values}: coverage {part.coverage:.3f} ({part.low:.3f} to {part.high:.3f}), "
        f"{part.n_inside:,} of {part.n_rows:,} rows inside; {by_chance}"
    )


def _print_slices(title: str, parts: tuple[Slice, ...]) -> None:
    click.echo(f"\n{title}")
    rows = [
        (f"{p.column} {p.values}", f"{p.n_rows:,}", f"{p.coverage:.3f}", f"{p.low:.3f} to {p.high:.3f}") for p in parts
    ]
    _print_table(SLICE_HEADS, rows)


def _print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        first, *others = (
            text.ljust(w) if not place else text.rjust(w)
            for place, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join([first, *others]).rstrip())
