"""`coverwell predict`: predictions and intervals for the rows of a file, part by part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from coverwell.commands.messages import BadInput, at_a_terminal, check_output, clear_messages, print_json
from coverwell.commands.models import ROWS_IN_A_PART, FeatureReader, TableModel
from coverwell.commands.options import (
    DEVICE_OPTION,
    FILES_ARGUMENT,
    FORCE_OPTION,
    JSON_OPTION,
    MODEL_ARGUMENT,
    TEXT_OPTIONS,
)
from coverwell.commands.targets import check_output_columns, prediction_columns
from coverwell.fitted_models import Said
from coverwell.table_files import PARQUET, TableFile, needed_polars, output_suffix, write_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["predict"]


@click.command(short_help="Predictions and intervals for the rows of files.")
@MODEL_ARGUMENT
@FILES_ARGUMENT
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The file to write: .csv, .tsv or .parquet."
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column of DATA; may be given several times.")
@click.option(
    "--float32",
    is_flag=True,
    help="Compute the networks in single precision: about twice as fast. Predictions and bounds then differ by "
    "some 1e-6 of the target's standard deviation; without it they are those of the Python API to the last digit.",
)
@DEVICE_OPTION
@TEXT_OPTIONS
@JSON_OPTION
@FORCE_OPTION
def predict(
    model: Path,
    data: tuple[Path, ...],
    out: Path,
    keep: tuple[str, ...],
    float32: bool,
    device: str,
    as_json: bool,
    force: bool,
    **text: Any,
) -> None:
    """Write predictions and intervals for every row of DATA, files that may be larger than the memory.

    The columns of a target `price` at coverage 0.9 are price, price_lower_0.9 and price_upper_0.9. Rows keep their
    order, those of several files one file after the other. Columns are found by name; others than those that MODEL was
    fitted on are ignored. OUT appears when it is complete, and not before.

    \b
    Example:
      coverwell predict model.safetensors new.csv --out predictions.csv --keep id
    """
    with clear_messages():
        start = time.perf_counter()
        output_suffix(out)
        check_output(out, force=force, inputs=(model, *data))
        tables = [TableFile(path, **text) for path in data]
        fitted = TableModel.load(model, device=device, float32=float32)
        work = _Work(fitted, [fitted.reader(table) for table in tables], keep, out)
        work.check()
        write_table(out, work.parts())
        seconds = time.perf_counter() - start
        if as_json:
            print_json({"out": str(out), "rows": work.n_done, "columns": work.columns, "seconds": round(seconds, 3)})
        else:
            click.echo(f"wrote {out}: {work.n_done:,} rows in {seconds:.1f} s")


@dataclass
class _Work:
    """The rows of files, predicted part by part."""

    fitted: TableModel
    readers: list[FeatureReader]
    keep: tuple[str, ...]
    out: Path
    n_done: int = 0

    @property
    def columns(self) -> list[str]:
        return [*self.keep, *prediction_columns(self.fitted.targets, self.fitted.levels)]

    def check(self) -> None:
        check_output_columns(self.columns)
        for reader in self.readers:
            self._check_can_keep(reader.table)

    def _check_can_keep(self, table: TableFile) -> None:
        table.check_has(self.keep, "column to keep:")
        first = self.readers[0].table
        for name in self.keep:
            if table.schema[name] != first.schema[name]:
                raise BadInput(
                    f"--keep {name} must have one type in all files, but it is {first.schema[name]} in {first.path} "
                    f"and {table.schema[name]} in {table.path}; convert one of them"
                )
        if output_suffix(self.out) == PARQUET:
            return
        for name in self.keep:
            if (kind := table.schema[name]).is_nested() or kind in (needed_polars().Binary, needed_polars().Object):
                raise BadInput(
                    f"--keep {name} cannot be written to {self.out}, since text files hold no {kind}; let --out end in "
                    ".parquet, or do not keep it"
                )

    def _said(self, reader: FeatureReader, part: pl.DataFrame, first: int) -> Said:
        features = reader.features(part, first)
        try:
            return self.fitted.say(features)
        except ValueError as error:  # the model counts the rows that it is given
            rows = f"rows {first + 1} to {first + len(part)} of {reader.table.path}"
            raise BadInput(f"{rows}: {' '.join(str(error).split())}") from None

    def parts(self) -> Iterator[pl.DataFrame]:
        with tqdm(disable=not at_a_terminal(), desc="rows", unit=" rows", unit_scale=True) as bar:
            for reader in self.readers:
                needed, before = list(dict.fromkeys([*reader.names, *self.keep])), self.n_done
                for part in reader.table.parts(needed, ROWS_IN_A_PART):
                    said = self._said(reader, part, self.n_done - before)
                    yield needed_polars().DataFrame([*part.select(self.keep), *_as_series(self.fitted, said)])
                    self.n_done += len(part)
                    bar.update(len(part))


def _as_series(fitted: TableModel, said: Said) -> list[pl.Series]:
    names = prediction_columns(fitted.targets, fitted.levels)
    return [needed_polars().Series(name, values) for name, values in zip(names, said.columns, strict=True)]
