"""`coverwell evaluate`: how a model does on rows whose targets are known, as a whole and in slices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import print_json
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coverwell.evaluation import ClassOutcome, Covered, Outcome, SetView, View
    from coverwell.slices import Slice, Slices

COVERAGE_HEADS = ("coverage", "expected", "CE", "expected")
HEADS = ("target", "asked", "RMSE", *COVERAGE_HEADS, "width", "interval score")
HEADS_OF_SETS = ("target", "asked", *COVERAGE_HEADS, "mean set size")
OF_CLASSES = {
    "accuracy": "accuracy",
    "Brier score": "brier_score",
    "log loss": "log_loss",
    "reliability error": "reliability_error",
    "expected": "expected_reliability_error",
}
SLICE_HEADS = ("slice", "rows", "coverage", "95 % interval")


@click.command(short_help="How a model does on rows with known targets.")
@options.MODEL
@options.DATA
@options.GROUPS
@options.QUANTILES
@click.option("--worst", type=click.IntRange(min=0), default=5, help="How many slices are named.")
@click.option("--all-slices", is_flag=True, help="Print every slice, not the worst alone; --json always has all.")
@options.KNOWN_ROWS
@options.JSON
def evaluate(model: Path, table: TableFile, worst: int, all_slices: bool, as_json: bool, **reading: Any) -> None:
    """Evaluate MODEL on the rows of DATA, which has the targets too and should have no rows of the training.

    For each target and level: the error (RMSE); the coverage, beside the band in which nine of ten samples of so many
    rows have it if the intervals are right; the calibration error (CE), beside the one to expect; the mean width; and
    the interval score (width, and a fine for every miss; lower is better). Then the coverage of slices: the rows of one
    group, of one category, or between two quantiles of a feature. The worst are named, those first that fall short by
    more than chance, each with a 95 % interval and a bound for the probability that chance alone makes any of all the
    slices look so bad. Slices of fewer than 20 rows are among them only if they fall short by more than chance. Slices
    of two columns are named if they fall short by more than chance, and more surely than either column alone.

    For a target of classes: accuracy, Brier score (0 to 2), log loss, and the reliability error of the probabilities,
    beside the one to expect if they are right. For each level the coverage, and the mean size of the sets. Slices are
    also those by class and by size of set. A class that the training never had counts as missed.

    \b
    Example:
      coverwell evaluate model.safetensors test.csv --group city
    """
    from coverwell.cli.rows import read_outcome
    from coverwell.evaluation import SIZE, ClassOutcome

    outcome = read_outcome(model, table, **reading)
    if as_json:
        about = {"data": str(table.path), "rows": len(outcome), "rows_skipped": outcome.n_skipped}
        if isinstance(outcome, ClassOutcome):
            about |= {"classes": outcome.classes.tolist(), **outcome.scores}
        print_json({**about, "results": [_content(view, worst) for view in outcome.views]})
        return
    skipped = f" ({outcome.n_skipped:,} without a target left out)" if outcome.n_skipped else ""
    click.echo(f"{table.path}: {len(outcome):,} rows{skipped}\n")
    columns = list(outcome.groups)
    if isinstance(outcome, ClassOutcome):
        _print_sets(outcome)
        columns = [*dict.fromkeys([*outcome.target_names, *columns]), SIZE]
    else:
        _print_intervals(outcome)
    for view in outcome.views:
        _print_slices(view, columns, worst, all_slices=all_slices)


def _print_slices(view: Covered, columns: list[str], worst: int, *, all_slices: bool) -> None:
    """The slices by some columns, or all of them; and those that are covered least."""
    from coverwell.slices import FEWEST_ROWS

    name = f"{view.name} at {view.asked:g}"
    listed = {f"by {column}": view.slices.of(column) for column in columns}
    for title, parts in (listed | ({"all slices": view.slices.slices} if all_slices else {})).items():
        click.echo(f"\n{name}, {title}:")
        counts = [(f"{part.column} {part.values}", f"{part.n_rows:,}") for part in parts]
        shares = [(f"{part.coverage:.3f}", f"{part.low:.3f} to {part.high:.3f}") for part in parts]
        _print_table(SLICE_HEADS, [(*count, *share) for count, share in zip(counts, shares, strict=True)])
    if worst and not all_slices:
        n_small = view.slices.n_small
        small = f" ({n_small:,} of fewer than {FEWEST_ROWS} rows left out)" if n_small else ""
        click.echo(f"\n{name}, the worst of {len(view.slices)} slices{small}:")
        _print_worst(view.slices, worst)
        if view.pairs.short:
            n_short, n = len(view.pairs.short), view.pairs.n_searched
            click.echo(f"\n{name}, slices of two columns that fall short ({n_short:,} of {n:,}):")
            _print_worst(view.pairs, worst)


def _print_intervals(outcome: Outcome) -> None:
    lines = []
    for view in outcome.views:
        scores = view.scores
        widths = (f"{scores[name]:.4g}" for name in ("width", "interval_score"))
        lines.append((view.name, f"{view.asked:g}", f"{scores['rmse']:.4g}", *_coverage_cells(scores), *widths))
    _print_table(HEADS, lines)
    for view in outcome.views:
        sizes = ", ".join(f"{share:.3f}" for share in view.by_size)
        _print_coverage(view, [f"{sizes} from the narrowest intervals to the widest"])


def _print_sets(outcome: ClassOutcome) -> None:
    (name,) = outcome.target_names
    _print_table(("target", *OF_CLASSES), [(name, *(f"{outcome.scores[score]:.3f}" for score in OF_CLASSES.values()))])
    click.echo()
    lines = []
    for view in outcome.views:
        lines.append((name, f"{view.asked:g}", *_coverage_cells(view.scores), f"{view.scores['size']:.2f}"))
    _print_table(HEADS_OF_SETS, lines)
    for view in outcome.views:
        bare = f"{view.scores['coverage_if_empty']:.3f} if sets could be empty"
        _print_coverage(view, [bare] if view.alone.any() else [])


def _coverage_cells(scores: dict[str, Any]) -> list[str]:
    low, high = scores["band"]
    errors = (f"{scores[name]:.3f}" for name in ("calibration_error", "expected_calibration_error"))
    return [f"{scores['coverage']:.3f}", f"{low:.3f} to {high:.3f}", *errors]


def _print_coverage(view: Covered, parts: list[str]) -> None:
    """One line with the coverage of some parts of the rows, and of the worst slab."""
    parts += [] if view.worst_slab is None else [f"{view.worst_slab:.3f} in the worst slab"]
    if parts:
        click.echo(f"{view.name} at {view.asked:g}: coverage {', '.join(parts)}")


def _print_worst(slices: Slices, most: int) -> None:
    for part in slices.worst(most):
        chance = f"by chance in at most {max(slices.chance(part), 1e-6):.1g} of cases"
        chance = chance if part in slices.short else "could be chance"
        inside = f"{part.n_inside:,} of {part.n_rows:,} rows inside; {chance}"
        reached = f"coverage {part.coverage:.3f} ({part.low:.3f} to {part.high:.3f})"
        click.echo(f"  {part.name}: {reached}, {inside}")


def _content(view: View | SetView, worst: int) -> dict[str, Any]:
    names = ("column", "values", "second", "n_rows", "n_inside", "coverage", "low", "high")

    def entries(slices: Slices, parts: Iterable[Slice]) -> list[dict[str, Any]]:
        chances = [{"chance_of_any": slices.chance(part)} for part in parts]
        return [{name: getattr(part, name) for name in names} | more for part, more in zip(parts, chances, strict=True)]

    slices, pairs = view.slices, view.pairs
    found: dict[str, Any] = {"slices": entries(slices, slices), "worst_slices": entries(slices, slices.worst(worst))}
    found |= {"n_slices": len(slices), "n_small_slices": slices.n_small}
    found |= {"pairs": entries(pairs, pairs.short), "n_pairs": pairs.n_searched}
    about = {"worst_slab_coverage": view.worst_slab, "coverage_by_size": view.by_size}
    return {"target": view.name, "asked": view.asked, **view.scores, **about, **found}


def _print_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for first, *others in (heads, *rows):
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        click.echo("  ".join([first.ljust(widths[0]), *cells]).rstrip())
