"""`coverwell evaluate`: how a model does on rows whose targets are known, as a whole and in slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import print_json
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from coverwell.judgements import Judgement
    from coverwell.slices import Slice, Slices

__all__ = ["evaluate"]

HEADS = ("target", "asked", "RMSE", "coverage", "expected", "CE", "expected", "width", "interval score")
SLICE_HEADS = ("slice", "rows", "coverage", "95 % interval")


@click.command(short_help="How a model does on rows with known targets.")
@options.MODEL
@options.DATA
@options.GROUPS
@options.QUANTILES
@click.option("--worst", type=click.IntRange(min=0), default=5, show_default=True, help="How many slices are named.")
@click.option("--all-slices", is_flag=True, help="Print every slice, not the worst alone; --json always has all.")
@options.KNOWN_ROWS
@options.JSON
def evaluate(
    model: Path,
    table: TableFile,
    group: tuple[str, ...],
    quantiles: int,
    worst: int,
    all_slices: bool,
    device: str,
    skip_missing: bool,
    as_json: bool,
) -> None:
    """Evaluate MODEL on the rows of DATA, which has the targets too and should have no rows of the training.

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
    from coverwell.cli.rows import Reader, load_table_model
    from coverwell.judgements import judgements

    fitted = load_table_model(model, device=device)
    rows = Reader(fitted, model, table).judged(group, skip_missing=skip_missing)
    found = judgements(fitted, rows, quantiles=quantiles)
    if as_json:
        results = [_content(entry, worst) for entry in found]
        print_json({"data": str(table.path), "rows": len(rows.y), "rows_skipped": rows.n_skipped, "results": results})
        return
    skipped = f" ({rows.n_skipped:,} without a target left out)" if rows.n_skipped else ""
    click.echo(f"{table.path}: {len(rows.y):,} rows{skipped}\n")
    _print_table(HEADS, [_line(entry) for entry in found])
    for entry in found:
        name = f"{entry.target} at {entry.asked:g}"
        for column in rows.groups:
            _print_slices(f"{name}, by {column}:", entry.slices.of(column))
        if all_slices:
            _print_slices(f"{name}, all slices:", entry.slices.slices)
        elif worst:
            click.echo(f"\n{name}, the worst of {len(entry.slices)} slices:")
            for part in entry.slices.worst(worst):
                click.echo(f"  {_sentence(entry.slices, part)}")


def _content(entry: Judgement, worst: int) -> dict[str, Any]:
    """All of it, as what JSON can hold."""

    def listed(parts: Iterable[Slice]) -> list[dict[str, Any]]:
        names = ("column", "values", "n_rows", "n_inside", "coverage", "low", "high")
        return [
            {**{name: getattr(part, name) for name in names}, "chance_of_any": entry.slices.chance(part)}
            for part in parts
        ]

    scores = {name: value for name, value in vars(entry).items() if name != "slices"}
    worst_slices = listed(entry.slices.worst(worst))
    return {**scores, "slices": listed(entry.slices), "worst_slices": worst_slices, "n_slices": len(entry.slices)}


def _line(entry: Judgement) -> tuple[str, ...]:
    low, high = entry.band
    shares = (f"{share:.3f}" for share in (entry.calibration_error, entry.expected_calibration_error))
    coverage = (f"{entry.asked:g}", f"{entry.rmse:.4g}", f"{entry.coverage:.3f}", f"{low:.3f} to {high:.3f}")
    return (entry.target, *coverage, *shares, f"{entry.width:.4g}", f"{entry.interval_score:.4g}")


def _sentence(slices: Slices, part: Slice) -> str:
    from coverwell.slices import BY_CHANCE

    chance = slices.chance(part)
    by_chance = f"by chance in at most {max(chance, 1e-6):.1g} of cases"
    return (
        f"{part.column} {part.values}: coverage {part.coverage:.3f} ({part.low:.3f} to {part.high:.3f}), "
        f"{part.n_inside:,} of {part.n_rows:,} rows inside; "
        + ("as chance alone may bring" if chance >= BY_CHANCE else by_chance)
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
    for first, *others in (heads, *rows):
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        click.echo("  ".join([first.ljust(widths[0]), *cells]).rstrip())
