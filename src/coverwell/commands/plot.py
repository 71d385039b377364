"""`coverwell plot`: pictures of a model, and of how it does on rows whose targets are known."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.commands.judgements import read_outcome
from coverwell.commands.messages import BadInput, check_output, clear_messages
from coverwell.commands.models import TableModel
from coverwell.commands.options import (
    DATA_ARGUMENT,
    DEVICE_OPTION,
    FORCE_OPTION,
    MODEL_ARGUMENT,
    QUANTILES_OPTION,
    SKIP_OPTION,
    TEXT_OPTIONS,
    together,
)
from coverwell.description import describe
from coverwell.evaluation import Outcome
from coverwell.persistence import load
from coverwell.plots.figures import (
    calibration_figure,
    check_figure_name,
    intervals_figure,
    rounds_figure,
    save_figure,
    slices_figure,
    widths_figure,
)
from coverwell.table_files import TableFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot"]

OUT_OPTION = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The figure to write: .png, .svg or .pdf."
)
TARGET_OPTION = click.option(
    "--target", multiple=True, metavar="COLUMN", help="Only this target; may be given again.  [default: all]"
)
COVERAGE_OPTION = click.option(
    "--coverage", type=float, metavar="SHARE", help="One of the fitted levels.  [default: the highest]"
)
UNIT_OPTION = click.option("--unit", metavar="TEXT", help="The unit of the targets, for the axes.")


# Around the options of its own, a picture that needs rows has these.
_with_data = together(MODEL_ARGUMENT, DATA_ARGUMENT, OUT_OPTION, TARGET_OPTION)
_reading = together(DEVICE_OPTION, TEXT_OPTIONS, SKIP_OPTION, FORCE_OPTION)


@click.group()
def plot() -> None:
    """Draw a model, or how it does on rows with known targets.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --out intervals.png
    """


@plot.command(short_help="Rows with their intervals and observed values.")
@_with_data
@COVERAGE_OPTION
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
    show_default=True,
    help="Draw at most so many rows, chosen at random; the title counts all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of that choice.")
@_reading
def intervals(
    out: Path,
    force: bool,
    coverage: float | None,
    unit: str | None,
    along: str | None,
    rows: int,
    seed: int,
    **asked: Any,
) -> None:
    """Draw rows of DATA with their predictions, intervals and observed values, those outside marked.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --along age --unit EUR --out intervals.png
    """
    with clear_messages():
        _check_figure(out, force=force, inputs=(asked["model"], asked["data"]))
        outcome = _outcome(**asked)
        level = _level(outcome.levels, coverage)
        places = None if along is None else _along(outcome, along)
        figure = intervals_figure(outcome, level, along=places, along_name=along or "", unit=unit, most=rows, seed=seed)
        _write(figure, out)


@plot.command(short_help="Coverage reached against coverage asked.")
@_with_data
@_reading
def calibration(out: Path, force: bool, **asked: Any) -> None:
    """Draw the share of rows inside their intervals at every fitted level, beside the share to expect.

    A model that was fitted with several levels (coverwell fit --coverage 0.5 --coverage 0.9 ...) has a curve, others
    have a single point.

    \b
    Example:
      coverwell plot calibration model.safetensors test.csv --out calibration.png
    """
    with clear_messages():
        _check_figure(out, force=force, inputs=(asked["model"], asked["data"]))
        _write(calibration_figure(_outcome(**asked)), out)


@plot.command(short_help="Average width by asked coverage.")
@_with_data
@UNIT_OPTION
@_reading
def widths(out: Path, force: bool, unit: str | None, **asked: Any) -> None:
    """Draw the average width at every fitted level, beside the width that one size for all rows would need.

    \b
    Example:
      coverwell plot widths model.safetensors test.csv --unit EUR --out widths.png
    """
    with clear_messages():
        _check_figure(out, force=force, inputs=(asked["model"], asked["data"]))
        _write(widths_figure(_outcome(**asked), unit=unit), out)


@plot.command(short_help="Coverage in slices of the rows, the worst on top.")
@_with_data
@COVERAGE_OPTION
@click.option("--group", multiple=True, metavar="COLUMN", help="Also a slice for each value here; may be given again.")
@QUANTILES_OPTION
@click.option("--worst", type=click.IntRange(min=1), default=20, show_default=True, help="How many slices are drawn.")
@_reading
def slices(
    out: Path, force: bool, coverage: float | None, group: tuple[str, ...], quantiles: int, worst: int, **asked: Any
) -> None:
    """Draw the coverage of the rows of each category and between the quantiles of each feature, with its uncertainty.

    The worst are those with the lowest upper end of their confidence interval. Looking at many slices finds some that
    fall short by chance: those that do so by more, however many were looked at, are marked.

    \b
    Example:
      coverwell plot slices model.safetensors test.csv --group city --out slices.png
    """
    with clear_messages():
        _check_figure(out, force=force, inputs=(asked["model"], asked["data"]))
        outcome = _outcome(**asked, groups=group, quantiles=quantiles)
        _write(slices_figure(outcome, _level(outcome.levels, coverage), most=worst), out)


@plot.command(short_help="Error, coverage and width by round of training.")
@MODEL_ARGUMENT
@OUT_OPTION
@TARGET_OPTION
@COVERAGE_OPTION
@UNIT_OPTION
@FORCE_OPTION
def rounds(
    model: Path, out: Path, target: tuple[str, ...], coverage: float | None, unit: str | None, force: bool
) -> None:
    """Draw how error, coverage and width of MODEL changed from round to round of its training.

    \b
    Example:
      coverwell plot rounds model.safetensors --out rounds.png
    """
    with clear_messages():
        _check_figure(out, force=force, inputs=(model,))
        fitted = describe(load(model))
        places = _places(fitted.target_names, target)
        _write(rounds_figure(fitted, _level(fitted.levels, coverage), targets=places, unit=unit), out)


def _check_figure(out: Path, *, force: bool, inputs: tuple[Path, ...]) -> None:
    """Raise before any work unless the figure can be drawn and written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('figures need matplotlib; install the extra `plots`: pip install "coverwell[plots]"')
    check_figure_name(out)
    check_output(out, force=force, inputs=inputs)


def _outcome(
    model: Path,
    data: Path,
    *,
    target: tuple[str, ...],
    device: str,
    skip_missing: bool,
    groups: tuple[str, ...] = (),
    quantiles: int = 4,
    **text: Any,
) -> Outcome:
    """The predictions and intervals of the chosen targets for the rows of a file."""
    table = TableFile(data, **text)
    fitted = TableModel.load(model, device=device)
    places = _places(fitted.targets, target)  # a target that the model does not have, before any work
    outcome = read_outcome(fitted, table, groups=groups, skip_missing=skip_missing, quantiles=quantiles)
    return outcome.of_targets(places)


def _places(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """Where the wanted targets stand among all; all of them if none is named."""
    if unknown := [name for name in wanted if name not in names]:
        raise BadInput(f"the model has no target {', '.join(unknown)}; its targets are {', '.join(names)}")
    return [place for place, name in enumerate(names) if not wanted or name in wanted]


def _level(levels: tuple[float, ...], coverage: float | None) -> int:
    if coverage is None:
        return len(levels) - 1
    if coverage not in levels:
        raise BadInput(f"--coverage {coverage:g} was not fitted; the fitted levels are {', '.join(map(str, levels))}")
    return levels.index(coverage)


def _along(outcome: Outcome, name: str) -> Any:
    """The values of a feature, if rows can stand along them."""
    if name not in outcome.features:
        raise BadInput(f"--along {name} is no feature of the model; its features are {', '.join(outcome.features)}")
    values = outcome.features[name]
    if values.dtype.kind not in "iufM":
        held = "true and false alone" if set(values) <= {"true", "false", None} else "text"
        raise BadInput(
            f"--along {name} holds {held}; rows can stand along numbers or dates, or see coverwell plot slices"
        )
    return values


def _write(figure: Figure, out: Path) -> None:
    save_figure(figure, out)
    click.echo(f"wrote {out}")
