"""`coverwell report`: one HTML file that says how far a model can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import TYPED, BadInput, check_output
from coverwell.tables import TableFile


@click.command(short_help="One HTML file that says how far a model can be trusted.")
@options.MODEL
@options.DATA
@options.out("The report to write: .html.")
@click.option("--title", metavar="TEXT", help="At the head of the report.")
@options.LEVEL
@options.GROUPS
@click.option("--time", metavar="COLUMN", help="For a forecaster: the column of times.  [default: its name in the fit]")
@click.option("--pictures", "--images", "images", metavar="COLUMN", help="For a model of images: the column of files.")
@click.option(
    "--boxes",
    is_flag=True,
    help="The four targets of images are boxes: left, top, width, height.  [default: as the model was fitted]",
)
@options.QUANTILES
@options.KNOWN_ROWS
@options.FORCE
@click.pass_context
def report(context: click.Context, /, model: Path, table: TableFile, out: Path, force: bool, **asked: Any) -> None:
    """Write a report on MODEL, evaluated on the rows of DATA, which has the targets too and no rows of the training.

    For a model of tables: coverage asked and reached, by level, by feature and by group with the worst slices named;
    width against error; the largest misses; residuals; training; columns, and how far they lie from those of the
    training. For a forecaster, DATA has the values that came later, in a column with the name of the series (and a
    column of times, if it was fitted with times). The file needs no network and opens in any browser.

    \b
    Example:
      coverwell report model.safetensors test.csv --group city --out report.html
    """
    from coverwell.description import describe
    from coverwell.evaluation import place_of_level
    from coverwell.report import Source
    from coverwell.report.page import check_library

    check_library()
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"a report must go to a file that ends in .html; got {out.name!r}")
    check_output(out, force=force, inputs=(model, table.path))
    fitted = coverwell.load(model)
    description = describe(fitted)
    place_of_level(description.levels, asked["coverage"])  # before any work
    write = _write_series if description.takes == "series" else _write_rows
    n_bytes = write(fitted, table, path=out, source=Source(model, table.path, context.meta[TYPED]), **asked)
    click.echo(f"wrote {out}: {n_bytes:,} bytes")


def _write_series(model: Any, table: TableFile, *, device: str, time: str | None, quantiles: int, **asked: Any) -> int:
    from coverwell.cli.series import later_values
    from coverwell.report import write_series_report

    if any(asked.pop(name) for name in ("group", "images", "boxes", "skip_missing")):
        raise BadInput(
            "--group, --pictures, --boxes and --skip-missing are for models of rows; leave them out for a series"
        )
    model.regressor_.set_params(device=device)
    return write_series_report(model, **later_values(model, table, time=time), **asked)


def _write_rows(
    model: Any,
    table: TableFile,
    *,
    device: str,
    time: str | None,
    group: tuple[str, ...],
    images: str | None,
    boxes: bool,
    skip_missing: bool,
    **asked: Any,
) -> int:
    from coverwell.cli.rows import Reader
    from coverwell.description import describe
    from coverwell.report import write_report

    path, takes_images = asked["source"].model_file, describe(model).takes == "images"
    if time:
        raise BadInput("--time is for forecasters, and this is a model of rows; leave it out")
    if takes_images and images is None:
        raise BadInput(f"{path} holds a model of images; name the column of their files with --pictures")
    if images is not None and not takes_images:
        raise BadInput(f"--pictures is for models of images, and {path} holds one of tables; leave it out")
    model.set_params(device=device)
    X, y, about = Reader(model.source_, model.target_names_, path, table, images).known_rows(
        group, skip_missing=skip_missing
    )
    return write_report(model, X, y, boxes=boxes or None, **about, **asked)
