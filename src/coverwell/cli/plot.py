"""`coverwell plot`: figures of a model, and of how it does on rows whose targets are known."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import check_output
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from coverwell.evaluation import Outcome

OUT_OPTION = options.out("The figure to write: .png, .svg or .pdf.")
TARGET_OPTION = click.option(
    "--target", multiple=True, metavar="COLUMN", help="Only this target; may be given again.  [default: all]"
)
UNIT_OPTION = click.option("--unit", metavar="TEXT", help="The unit of the targets, for the axes.")


# A figure of rows has these around its own options.
_with_data = options.together(options.MODEL, options.DATA, OUT_OPTION, TARGET_OPTION)
_reading = options.together(options.KNOWN_ROWS, options.FORCE)


@click.group()
def plot() -> None:
    """Draw a model, or how it does on rows with known targets.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --out intervals.png
    """


@plot.command(short_help="Rows with their intervals and observed values.")
@_with_data
@options.LEVEL
@UNIT_OPTION
@click.option(
    "--along",
    metavar="COLUMN",
    help="Place rows by this feature.  [default: from the lowest prediction to the highest]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=200,
    help="Draw at most so many rows, chosen at random; the title counts all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of that choice.")
@_reading
def intervals(
    out: Path, coverage: float | None, unit: str | None, along: str | None, rows: int, seed: int, **asked: Any
) -> None:
    """Draw rows of DATA with their predictions, intervals and observed values, those outside marked.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --along age --unit EUR --out intervals.png
    """
    outcome, level = _read(out, coverage=coverage, **asked)
    from coverwell.plots.figures import intervals_figure

    values = None if along is None else _along(outcome, along)
    figure = intervals_figure(outcome, level, along=values, along_name=along or "", unit=unit, most=rows, seed=seed)
    _write(figure, out)


@plot.command(short_help="Coverage reached against coverage asked.")
@_with_data
@_reading
def calibration(out: Path, **asked: Any) -> None:
    """Draw the share of rows inside their intervals at every fitted level, beside the share to expect.

    A model that was fitted with several levels (coverwell fit --coverage 0.5,0.9 ...) has a curve, others have a single
    point.

    \b
    Example:
      coverwell plot calibration model.safetensors test.csv --out calibration.png
    """
    outcome, _ = _read(out, **asked)
    from coverwell.plots.figures import calibration_figure

    _write(calibration_figure(outcome), out)


@plot.command(short_help="Average width by asked coverage.")
@_with_data
@UNIT_OPTION
@_reading
def widths(out: Path, unit: str | None, **asked: Any) -> None:
    """Draw the average width at every fitted level, beside the width that one size for all rows would need.

    \b
    Example:
      coverwell plot widths model.safetensors test.csv --unit EUR --out widths.png
    """
    outcome, _ = _read(out, **asked)
    from coverwell.plots.figures import widths_figure

    _write(widths_figure(outcome, unit=unit), out)


@plot.command(short_help="Coverage in slices of the rows, the worst on top.")
@_with_data
@options.LEVEL
@options.GROUPS
@options.QUANTILES
@click.option("--worst", type=click.IntRange(min=1), default=20, help="How many slices are drawn.")
@_reading
def slices(out: Path, coverage: float | None, worst: int, **asked: Any) -> None:
    """Draw the coverage of the rows of each category and between the quantiles of each feature, with its uncertainty.

    The worst are those with the lowest upper end of their confidence interval. Looking at many slices finds some that
    fall short by chance: those that do so by more, however many were looked at, are marked.

    \b
    Example:
      coverwell plot slices model.safetensors test.csv --group city --out slices.png
    """
    outcome, level = _read(out, coverage=coverage, **asked)
    from coverwell.plots.figures import slices_figure

    _write(slices_figure(outcome, level, most=worst), out)


@plot.command(short_help="Error, coverage and width by round of training.")
@options.MODEL
@OUT_OPTION
@TARGET_OPTION
@options.LEVEL
@UNIT_OPTION
@options.FORCE
def rounds(
    model: Path, out: Path, target: tuple[str, ...], coverage: float | None, unit: str | None, force: bool
) -> None:
    """Draw how error, coverage and width of MODEL changed from round to round of its training.

    \b
    Example:
      coverwell plot rounds model.safetensors --out rounds.png
    """
    _check_figure(out, force=force, inputs=(model,))
    from coverwell.description import describe
    from coverwell.evaluation import place_of_level
    from coverwell.plots.figures import rounds_figure

    fitted = describe(coverwell.load(model))
    places, level = _places(fitted.target_names, target), place_of_level(fitted.levels, coverage)
    _write(rounds_figure(fitted, level, targets=places, unit=unit), out)


def _check_figure(out: Path, *, force: bool, inputs: tuple[Path, ...]) -> None:
    """Raise before any work unless the figure can be drawn and written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('figures need matplotlib; install the extra `plots`: pip install "coverwell[plots]"')
    from coverwell.plots.figures import check_figure_name

    check_figure_name(out)
    check_output(out, force=force, inputs=inputs)


def _read(
    out: Path,
    *,
    model: Path,
    table: TableFile,
    target: tuple[str, ...],
    force: bool,
    coverage: float | None = None,
    **reading: Any,
) -> tuple[Outcome, int]:
    """The outcome of the chosen targets, and the place of the chosen level."""
    _check_figure(out, force=force, inputs=(model, table.path))
    from coverwell.cli.rows import read_outcome
    from coverwell.evaluation import place_of_level

    outcome = read_outcome(model, table, **reading)
    places, level = _places(outcome.target_names, target), place_of_level(outcome.levels, coverage)
    return outcome.of_targets(places), level


def _places(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """Where the wanted targets stand among all; all of them if none is named."""
    if unknown := [name for name in wanted if name not in names]:
        raise ValueError(f"the model has no target {', '.join(unknown)}; its targets are {', '.join(names)}")
    return [place for place, name in enumerate(names) if not wanted or name in wanted]


def _along(outcome: Outcome, name: str) -> Any:
    """The values of a feature, if rows can stand along them."""
    if name not in outcome.features:
        raise ValueError(f"--along {name} is no feature of the model; its features are {', '.join(outcome.features)}")
    values = outcome.features[name]
    if values.dtype.kind not in "iufM":
        held = "true and false alone" if set(values) <= {"true", "false", None} else "text"
        raise ValueError(
            f"--along {name} holds {held}; rows can stand along numbers or dates, or see coverwell plot slices"
        )
    return values


def _write(figure: Figure, out: Path) -> None:
    from coverwell.plots.figures import save_figure

    save_figure(figure, out)
    click.echo(f"wrote {out}")
