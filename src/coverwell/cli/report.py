"""`coverwell report`: one HTML file that says how far a model can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import TYPED, BadInput, check_output
from coverwell.tables import TableFile, needed_polars

if TYPE_CHECKING:
    from coverwell.description import ModelDescription
    from coverwell.forecasting.forecaster import SeriesForecaster


@click.command(short_help="One HTML file that says how far a model can be trusted.")
@options.MODEL
@options.DATA
@options.out("The report to write: .html.")
@click.option("--title", metavar="TEXT", help="At the head of the report.")
@options.LEVEL
@options.GROUPS
@click.option("--time", metavar="COLUMN", help="For a forecaster: the column of times.  [default: its name in the fit]")
@click.option("--images", "--pictures", "images", metavar="COLUMN", help="For a model of images: the column of files.")
@click.option("--boxes", is_flag=True, help="The targets are left, top, width, height.  [default: as in the fit]")
@options.QUANTILES
@options.KNOWN_ROWS
@options.FORCE
@click.pass_context
def report(context: click.Context, /, model: Path, table: TableFile, out: Path, force: bool, **asked: Any) -> None:
    """Write a report on MODEL, evaluated on the rows of DATA, which has the targets too and no rows of the training.

    For a model of tables: coverage by level, by feature and by group with the worst slices named;
    width against error; the largest misses; residuals; training; columns, and how far they lie from those of the
    training. For a classifier: sets by size and by class, which classes are taken for which, and how far probabilities
    can be trusted. For a forecaster, DATA has the values that came later, in a column with the name of the series (and
    a column of times, if it was fitted with times). The file needs no network and opens in any browser.

    \b
    Example:
      coverwell report model.safetensors test.csv --group city --out report.html
    """
    from coverwell.description import ModelDescription
    from coverwell.evaluation import place_of_level
    from coverwell.forecasting.forecaster import SeriesForecaster
    from coverwell.report import Source, write_series_report
    from coverwell.report.page import check_library

    check_library()
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"a report must go to a file that ends in .html; got {out.name!r}")
    check_output(out, force=force, inputs=(model, table.path))
    description = ModelDescription(coverwell.load(model))
    place_of_level(description.levels, asked["coverage"])  # before any work
    description.regressor.set_params(device=asked.pop("device"))
    asked |= {"path": out, "source": Source(model, table.path, context.meta[TYPED])}
    if isinstance(description.model, SeriesForecaster):
        del asked["quantiles"]
        if any(asked.pop(name) for name in ("group", "images", "boxes", "skip_missing")):
            what = "--group, --images, --boxes and --skip-missing"
            raise BadInput(f"{what} are for models of rows; leave them out for a series")
        later = later_values(description.model, table, time=asked.pop("time"))
        n_bytes = write_series_report(description.model, **later, **asked)
    else:
        n_bytes = _write_rows(description, table, **asked)
    click.echo(f"wrote {out}: {n_bytes:,} bytes")


def _write_rows(about: ModelDescription, table: TableFile, *, images: str | None, boxes: bool, **asked: Any) -> int:
    from coverwell.cli.rows import Reader
    from coverwell.report import write_report

    path, takes_images = asked["source"].model_file, about.takes == "images"
    if asked.pop("time"):
        raise BadInput("--time is for forecasters, and this is a model of rows; leave it out")
    if takes_images and images is None:
        raise BadInput(f"{path} holds a model of images; name the column of their files with --images")
    if images is not None and not takes_images:
        raise BadInput(f"--images is for models of images, and {path} holds one of tables; leave it out")
    classes = getattr(about.model, "classes_", None)
    reader = Reader(about.regressor.source_, about.target_names, path, table, images, classes)
    X, y, known = reader.known_rows(asked.pop("group"), skip_missing=asked.pop("skip_missing"))
    return write_report(about.model, X, y, boxes=boxes or None, **known, **asked)


def later_values(model: SeriesForecaster, table: TableFile, *, time: str | None = None) -> dict[str, Any]:
    """What `backtest` needs: all that a forecaster has seen, and after it the rows of a file.

    The file has the values in a column with the name of the series, and the covariates of the fit by their names. For
    a series with time stamps it also has a column of times; steps that were seen already are left out, and steps that
    it does not have are gaps. Without time stamps its first row is the step after the last that was seen.
    """
    import numpy as np

    from coverwell.cli.stream import later_rows

    polars, seen = needed_polars(), model.history_
    values = later_rows(seen, table, time)
    if not len(values):
        last = f"{seen.clock.label(len(seen) - 1)}, the last that the forecaster has seen"
        raise ValueError(f"{table.path} has no values after {last}; give a file of what came later")
    past, ahead = np.split(values[:, 1:], [len(seen.past_names)], axis=1)
    past, ahead = np.concatenate([seen.past, past]), np.concatenate([seen.ahead[: len(seen)], ahead])
    return {
        "series": seen.clock.labelled(np.concatenate([seen.values, values[:, 0]]), 0, seen.name),
        "start": seen.clock.index(len(seen), 1)[0],
        "covariates": polars.DataFrame(ahead, schema=list(seen.ahead_names)) if seen.ahead_names else None,
        "past_covariates": polars.DataFrame(past, schema=list(seen.past_names)) if seen.past_names else None,
    }
