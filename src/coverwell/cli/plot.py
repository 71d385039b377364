"""`coverwell plot`: figures of a model, and of how it does on rows whose targets are known."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import check_output

if TYPE_CHECKING:
    from coverwell.evaluation import ClassOutcome, Outcome

OUT = options.out("The figure to write: .png, .svg or .pdf.")
TARGET = click.option("--target", multiple=True, metavar="COLUMN", help="Only this; again for more.  [default: all]")
UNIT = click.option("--unit", metavar="TEXT", help="The unit of the targets, for the axes.")


def _drawing(
    *own: Callable[[Any], Any], of_rows: bool = True, of_classes: bool | None = None
) -> Callable[[Callable[[], None]], Any]:
    """A command with options of its own that draws by the function of its name in `coverwell.plots.figures`.

    `of_classes` says whether it is for classes alone, or for numbers alone.
    """

    def drawing(kind: Callable[[], None]) -> Callable[..., None]:
        @functools.wraps(kind)
        def command(*, model: Path, out: Path, force: bool, target: Any, table: Any = None, **asked: Any) -> None:
            if importlib.util.find_spec("matplotlib") is None:
                raise ImportError('figures need matplotlib; install the extra `plots`: pip install "coverwell[plots]"')
            from coverwell.description import ModelDescription
            from coverwell.evaluation import place_of_level
            from coverwell.plots import figures

            if out.suffix.lower().removeprefix(".") not in figures.UNSTAMPED:
                raise ValueError(f"a figure must go to a file that ends in .png, .svg or .pdf; got {out.name!r}")
            check_output(out, force=force, inputs=(model, table.path) if of_rows else (model,))
            if of_rows:
                from coverwell.cli.rows import read_outcome

                names = ("device", "skip_missing", "group", "quantiles")
                drawn: Any = read_outcome(model, table, **{name: asked.pop(name) for name in names if name in asked})
                _check_kind(drawn, model, kind.__name__, of_classes)
                drawn = drawn.of_targets(_places(drawn.target_names, target))
            else:
                drawn = ModelDescription(coverwell.load(model))
                asked["targets"] = _places(drawn.target_names, target)
            if "coverage" in asked:
                asked["level"] = place_of_level(drawn.levels, asked.pop("coverage"))
            if asked.get("along") is not None:
                asked |= {"along": _along(drawn, asked["along"]), "along_name": asked["along"]}
            figures.save_figure(getattr(figures, f"{kind.__name__}_figure")(drawn, **asked), out)
            click.echo(f"wrote {out}")

        return command

    rows = [[options.DATA], [options.KNOWN_ROWS]] if of_rows else [[], []]
    return options.together(options.MODEL, *rows[0], OUT, TARGET, *own, *rows[1], options.FORCE, drawing)


@click.group()
def plot() -> None:
    """Draw a model, or how it does on rows with known targets.

    Targets of numbers have intervals and widths; targets of classes have reliability, sizes and classes.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --out intervals.png
    """


@plot.command(short_help="Rows with their intervals and observed values.")
@_drawing(
    options.LEVEL,
    UNIT,
    click.option("--along", metavar="COLUMN", help="Place rows by this feature.  [default: by their predictions]"),
    click.option("--rows", "most", type=click.IntRange(1), default=200, help="At most so many; the title counts all."),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the choice of rows."),
    of_classes=False,
)
def intervals() -> None:
    """Draw rows of DATA with their predictions, intervals and observed values, those outside marked.

    \b
    Example:
      coverwell plot intervals model.safetensors test.csv --along age --unit EUR --out intervals.png
    """


@plot.command(short_help="Coverage against requested coverage.")
@_drawing()
def calibration() -> None:
    """Draw the share of rows inside their intervals or sets at every fitted level, beside the share to expect.

    A model that was fitted with several levels (coverwell fit --coverage 0.5,0.9 ...) has a curve, others have a point.

    \b
    Example:
      coverwell plot calibration model.safetensors test.csv --out calibration.png
    """


@plot.command(short_help="Average width by requested coverage.")
@_drawing(UNIT, of_classes=False)
def widths() -> None:
    """Draw the average width at every fitted level, beside the width that one size for all rows would need.

    \b
    Example:
      coverwell plot widths model.safetensors test.csv --unit EUR --out widths.png
    """


@plot.command(short_help="Of classes: whether probabilities mean what they say.")
@_drawing(of_classes=True)
def reliability() -> None:
    """Draw how often the likeliest class of rows is the right one, against its probability.

    \b
    Example:
      coverwell plot reliability model.safetensors test.csv --out reliability.png
    """


@plot.command(short_help="Of classes: how many are in a set, and the coverage by that.")
@_drawing(options.LEVEL, of_classes=True)
def sizes() -> None:
    """Draw the share of rows whose set has one class, two and so on, and the coverage of these rows.

    \b
    Example:
      coverwell plot sizes model.safetensors test.csv --coverage 0.9 --out sizes.png
    """


@plot.command(short_help="Of classes: which share a set.")
@_drawing(
    options.LEVEL,
    click.option("--most", type=click.IntRange(2), default=12, help="At most so many classes."),
    of_classes=True,
)
def classes() -> None:
    """Draw, for the rows of each true class, how often their sets hold each of the classes.

    Of many classes, those are drawn that share sets most often.

    \b
    Example:
      coverwell plot classes model.safetensors test.csv --coverage 0.9 --out classes.png
    """


@plot.command(short_help="Coverage in slices of the rows, the worst on top.")
@_drawing(
    options.LEVEL,
    options.GROUPS,
    options.QUANTILES,
    click.option("--worst", "most", type=click.IntRange(min=1), default=20, help="How many slices are drawn."),
)
def slices() -> None:
    """Draw the coverage of the rows of each category and between the quantiles of each feature, with its uncertainty.

    The worst are those with the lowest upper end of their confidence interval. Looking at many slices finds some that
    fall short by chance: those that do so by more, however many were looked at, are marked.

    \b
    Example:
      coverwell plot slices model.safetensors test.csv --group city --out slices.png
    """


@plot.command(short_help="Error, coverage and width by round of training.")
@_drawing(options.LEVEL, UNIT, of_rows=False)
def rounds() -> None:
    """Draw how error, coverage and width or threshold of MODEL changed from round to round of its training.

    \b
    Example:
      coverwell plot rounds model.safetensors --out rounds.png
    """


def _check_kind(outcome: Outcome | ClassOutcome, model: Path, kind: str, of_classes: bool | None) -> None:
    """Raise unless a kind of figure is of what the model predicts."""
    from coverwell.evaluation import ClassOutcome

    if of_classes not in (None, found := isinstance(outcome, ClassOutcome)):
        has, others = ("classes", "reliability, sizes or classes") if found else ("numbers", "intervals or widths")
        other = "numbers" if found else "classes"
        raise ValueError(f"plot {kind} is for models of {other}, and {model} predicts {has}; draw {others}")


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
        way_out = "rows can stand along numbers or dates, or see coverwell plot slices"
        raise ValueError(f"--along {name} holds {held}; {way_out}")
    return values
