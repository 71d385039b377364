"""`coverwell predict`: predictions with their intervals or sets for the rows of files, part by part."""

from __future__ import annotations

import functools
import operator
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import BadInput, check_output, print_json
from coverwell.tables import PARQUET, TableFile, needed_polars, table_suffix, write_table

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from coverwell.cli.rows import Reader


@click.command(short_help="Predictions and intervals or sets for the rows of files.")
@options.MODEL
@options.FILES
@options.out("The file to write: .csv, .tsv or .parquet.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column of DATA; may be given several times.")
@click.option(
    "--coverage",
    multiple=True,
    metavar="SHARE",
    callback=options.shares,
    help="Intervals or sets at these levels, as 0.5,0.9 or given again; any will do.  [default: the fitted ones]",
)
@click.option(
    "--quantiles",
    multiple=True,
    metavar="SHARE",
    callback=options.shares,
    help="Add the quantiles at these shares, as 0.05,0.5,0.95 or given again. Not for classes.",
)
@click.option(
    "--float32",
    is_flag=True,
    help="Compute the networks in single precision: about twice as fast. Predictions and bounds then differ by "
    "some 1e-6 of the target's standard deviation; without it they are those of the Python API to the last digit.",
)
@options.DEVICE
@options.TEXT
@options.JSON
@options.FORCE
def predict(
    model: Path,
    tables: list[TableFile],
    out: Path,
    keep: tuple[str, ...],
    coverage: list[float],
    quantiles: list[float],
    float32: bool,
    device: str,
    as_json: bool,
    force: bool,
) -> None:
    """Write predictions and intervals or sets for every row of DATA, files that may be larger than the memory.

    The columns of a target `price` at coverage 0.9 are price, price_lower_0.9 and price_upper_0.9; then comes
    price_quantile_0.05 for --quantiles 0.05. Those of a target `kind` of classes are kind, the likeliest class, then
    kind_probability_cat for each class, and kind_set_0.9: the classes in the set, as cat|dog, in .parquet as a list.

    Rows keep their order, those of several files one file after the other. Columns are found by name; others than those
    that MODEL was fitted on are ignored. OUT appears when it is complete, and not before.

    \b
    Example:
      coverwell predict model.safetensors new.csv --out predictions.csv --keep id --quantiles 0.05,0.5,0.95
    """
    start = time.perf_counter()
    suffix = table_suffix(out, to_write=True)
    check_output(out, force=force, inputs=[model, *(table.path for table in tables)])

    import numpy as np
    import torch

    from coverwell.cli.rows import Reader
    from coverwell.model_file import load_predictor
    from coverwell.networks.team import Team
    from coverwell.options import levels_from
    from coverwell.prediction import class_names, columns_of_classes, prediction_columns
    from coverwell.sets import ClassPredictor
    from coverwell.training.device import device_from

    polars, (source, predictor, targets) = needed_polars(), load_predictor(model)
    levels, classes = levels_from(coverage or predictor.levels), None
    if isinstance(predictor, ClassPredictor):
        if quantiles:
            raise BadInput(f"--quantiles are of targets of numbers, and {model} predicts classes; leave it out")
        classes = class_names(predictor.classes)
        if suffix != PARQUET:
            _check_in_text(classes, out)
    names = prediction_columns(targets, levels, keep, quantiles, classes)
    if float32:
        for team in (module for module in predictor.modules() if isinstance(module, Team)):
            team.to(torch.float32)
            team.precision = torch.float32
    for table in tables:  # kept columns must be there, of one type in all files, and of one that OUT can hold
        table.check_has(keep, "column to keep:")
        for name in keep:
            kind, first = table.schema[name], tables[0].schema[name]
            if kind != first:
                both = f"{first} in {tables[0].path} and {kind} in {table.path}; convert one of them"
                raise ValueError(f"--keep {name} must have one type in all files, but it is {both}")
            if suffix != PARQUET and (kind.is_nested() or kind in (polars.Binary, polars.Object)):
                cannot = f"--keep {name} cannot be written to {out}, since text files hold no {kind}"
                raise ValueError(f"{cannot}; let --out end in .parquet, or do not keep it")
    readers, parts = [Reader(source, targets, model, table) for table in tables], list[int]()
    predictor = predictor.to(device_from(device))
    outside = [predictor.inputs.count_outside(np.empty((0, *predictor.inputs.shape)))]

    def predicted(rows: NDArray[Any]) -> list[Any]:
        outside.append(predictor.inputs.count_outside(rows))
        if isinstance(predictor, ClassPredictor):
            found = predictor.classified(rows, levels)
            return columns_of_classes(*found, predictor.classes, in_text=suffix != PARQUET)
        return predictor.prediction(rows, levels, quantiles).columns

    write_table(out, _parts(predicted, readers, keep, names, parts))
    n_rows, seconds, beyond = sum(parts), time.perf_counter() - start, functools.reduce(operator.add, outside)
    beyond.warn(source.names)
    if as_json:
        found: dict[str, Any] = {"out": str(out), "rows": n_rows, "outside": beyond.n_outside, "columns": names}
        found |= {} if classes is None else {"classes": classes}
        print_json({**found, "seconds": round(seconds, 3)})
    else:
        more = f", {beyond.n_outside:,} of them outside the training range" if beyond.n_outside else ""
        click.echo(f"wrote {out}: {n_rows:,} rows in {seconds:.1f} s{more}")


def _check_in_text(names: list[str], out: Path) -> None:
    """Raise if a set of these classes could not be read from a text file."""
    from coverwell.prediction import BETWEEN_CLASSES

    if odd := [name for name in names if BETWEEN_CLASSES in name]:
        cannot = f"{out} cannot have sets of classes such as {odd[0]!r}, since {BETWEEN_CLASSES} stands between them"
        raise BadInput(f"{cannot} in a text file; let --out end in .parquet")


def _parts(
    predicted: Callable[[NDArray[Any]], list[Any]],
    readers: list[Reader],
    keep: tuple[str, ...],
    names: list[str],
    sizes: list[int],
) -> Iterator[pl.DataFrame]:
    """The rows of all files, predicted part by part; `sizes` gets the number of rows of each."""
    from tqdm import tqdm

    from coverwell.cli.rows import ROWS_IN_A_PART

    needed = [list(dict.fromkeys([*reader.names, *keep])) for reader in readers]  # whatever is missing is found first
    with tqdm(disable=not sys.stderr.isatty(), desc="rows", unit=" rows", unit_scale=True) as bar:
        for reader, columns in zip(readers, needed, strict=True):
            first = 0
            for part in reader.table.parts(columns, ROWS_IN_A_PART):
                features, last = reader.features(part, first), first + len(part)
                try:
                    rows = reader.source.rows(features, None)
                except ValueError as error:  # the model counts the rows that it is given
                    raise ValueError(f"rows {first + 1} to {last} of {reader.table.path}: {error}") from None
                yield needed_polars().DataFrame(dict(zip(names, [*part.select(keep), *predicted(rows)], strict=True)))
                first = last
                sizes.append(len(part))
                bar.update(len(part))
