"""`coverwell report`: one HTML file that says how far a model can be trusted."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from coverwell.commands.judgements import rows_to_judge
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
)
from coverwell.commands.series_files import later_values
from coverwell.commands.targets import check_targets, groups_of, targets_of
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.inputs.source import ImageSource
from coverwell.persistence import load
from coverwell.report import Source, write_report, write_series_report
from coverwell.report.library import check_library
from coverwell.report.rows_report import place_of_level
from coverwell.table_files import TableFile
from coverwell.text_kinds import Kind, typed

__all__ = ["report"]


@click.command(short_help="One HTML file that says how far a model can be trusted.")
@MODEL_ARGUMENT
@DATA_ARGUMENT
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The report to write: .html.")
@click.option("--title", metavar="TEXT", help="At the head of the report.")
@click.option("--coverage", type=float, metavar="SHARE", help="The fitted level shown first.  [default: the highest]")
@click.option("--group", multiple=True, metavar="COLUMN", help="Also coverage for each value here; may be given again.")
@click.option("--time", metavar="COLUMN", help="For a forecaster: the column of times.  [default: its name in the fit]")
@click.option("--pictures", metavar="COLUMN", help="For a model of pictures: the column of their files.")
@click.option(
    "--boxes",
    is_flag=True,
    help="The four targets of pictures are boxes: left, top, width, height.  [default: as the model was fitted]",
)
@QUANTILES_OPTION
@DEVICE_OPTION
@TEXT_OPTIONS
@SKIP_OPTION
@FORCE_OPTION
@click.pass_context
def report(context: click.Context, /, model: Path, data: Path, out: Path, force: bool, **asked: Any) -> None:
    """Write a report on MODEL, judged by the rows of DATA, which has the targets too and no rows of the training.

    For a model of tables: coverage asked and reached, by level, by feature and by group with the worst slices named;
    width against error; the largest misses; residuals; training; columns, and how far they lie from those of the
    training. For a forecaster, DATA has the values that came later, in a column with the name of the series (and a
    column of times, if it was fitted with times). The file needs no network and opens in any browser.

    \b
    Example:
      coverwell report model.safetensors test.csv --group city --out report.html
    """
    with clear_messages():
        check_library()
        if out.suffix.lower() not in (".html", ".htm"):
            raise BadInput(f"a report must go to a file that ends in .html; got {out.name!r}")
        check_output(out, force=force, inputs=(model, data))
        source = Source(model, data, _command(context))
        table = TableFile(data, **{name: asked.pop(name) for name in ("delimiter", "decimal", "encoding")})
        n_bytes = _write(load(model), table, out, source, **asked)
        click.echo(f"wrote {out}: {n_bytes:,} bytes")


def _write(
    model: Any,
    table: TableFile,
    out: Path,
    source: Source,
    *,
    title: str | None,
    coverage: float | None,
    group: tuple[str, ...],
    time: str | None,
    pictures: str | None,
    boxes: bool,
    quantiles: int,
    device: str,
    skip_missing: bool,
) -> int:
    if isinstance(model, SeriesForecaster):
        if group or pictures or boxes or skip_missing:
            raise BadInput(
                "--group, --pictures, --boxes and --skip-missing are for models of rows; leave them out for a series"
            )
        place_of_level(model.regressor_._fitted_levels, coverage)  # before any work
        model.regressor_.set_params(device=device)
        series = later_values(model, table, time=time)
        return write_series_report(model, **series, path=out, coverage=coverage, title=title, source=source)
    if time:
        raise BadInput("--time is for forecasters, and this is a model of rows; leave it out")
    model.set_params(device=device)
    place_of_level(model._fitted_levels, coverage)
    is_seen = isinstance(model.source_, ImageSource)
    if is_seen != (pictures is not None):
        raise BadInput(
            f"{_name(source)} holds a model of pictures; name the column of their files with --pictures"
            if is_seen
            else f"--pictures is for models of pictures, and {_name(source)} holds one of tables; leave it out"
        )
    read = _read_pictures if is_seen else _read_rows
    X, y, groups, there = read(model, table, source, group=group, pictures=pictures, skip=skip_missing)
    return write_report(
        model,
        X,
        y,
        out,
        groups=groups,
        coverage=coverage,
        title=title,
        quantiles=quantiles,
        row_numbers=np.flatnonzero(there) + 1,
        n_skipped=int((~there).sum()),
        boxes=boxes or None,
        source=source,
    )


def _name(source: Source) -> str:
    return "the model" if source.model_file is None else str(source.model_file)


def _read_rows(
    model: Any, table: TableFile, source: Source, *, group: tuple[str, ...], pictures: str | None, skip: bool
) -> tuple[Any, Any, dict[str, Any], Any]:
    """Features, targets, groups, and which rows of the file these are."""
    fitted = TableModel(Path(_name(source)), model)
    rows = rows_to_judge(fitted, table, groups=group, skip_missing=skip)
    groups = {name: values.to_list() for name, values in rows.groups.items()}
    return rows.features, rows.y, groups, rows.there


def _read_pictures(
    model: Any, table: TableFile, source: Source, *, group: tuple[str, ...], pictures: str | None, skip: bool
) -> tuple[Any, Any, dict[str, Any], Any]:
    """The files of the pictures, as named in the table or beside it, in place of features."""
    assert pictures is not None
    targets = TableModel(Path(_name(source)), model).targets
    check_targets(table, targets)
    table.check_has([pictures], "column for --pictures:")
    table.check_has(group, "column for --group:")
    rows = table.read(list(dict.fromkeys([pictures, *targets, *group])))
    y, there = targets_of(rows, targets, table=table, skip=skip)
    names = typed(rows.select(pictures), {pictures: Kind.TEXT}, path=table.path)[pictures].filter(there)
    if names.null_count():
        row = int(np.flatnonzero(there)[names.is_null().arg_true()[0]]) + 1
        raise BadInput(f"column {pictures} of {table.path} must name a file in every row, but row {row} has none")
    files = [table.path.parent / str(name) for name in names.to_list()]
    groups = {name: groups_of(rows, name, path=table.path).filter(there).to_list() for name in group}
    return files, y.to_numpy(), groups, there


def _command(context: click.Context) -> str:
    """What was typed: the arguments, and the options that were given."""
    words = context.command_path.split()
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0])
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], "tab" if one == "\t" else str(one)]
    return shlex.join(words)
