"""`coverwell predict`: predictions and intervals for the rows of a file, part by part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from coverwell.commands.messages import BadInput, at_a_terminal, check_output, clear_messages, print_json
from coverwell.commands.models import ROWS_IN_A_PART, FeatureReader, Said, TableModel
from coverwell.commands.options import (
    DATA_ARGUMENT,
    DELIMITER_OPTION,
    DEVICE_OPTION,
    FORCE_OPTION,
    JSON_OPTION,
    MODEL_ARGUMENT,
)
from coverwell.table_files import TableFile, needed_polars, suffix_of, write_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["predict", "prediction_columns"]


@click.command(short_help="Predictions and intervals for the rows of a file.")
@MODEL_ARGUMENT
@DATA_ARGUMENT
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
@DELIMITER_OPTION
@JSON_OPTION
@FORCE_OPTION
def predict(
    model: Path,
    data: Path,
    out: Path,
    keep: tuple[str, ...],
    float32: bool,
    device: str,
    delimiter: str | None,
    as_json: bool,
    force: bool,
) -> None:
    """Write predictions and intervals for every row of DATA, a file that may be larger than the memory.

    The columns of a target `price` at coverage 0.9 are price, price_lower_0.9 and price_upper_0.9. Rows keep their
    order. Columns are found by name; others than those that MODEL was fitted on are ignored. OUT appears when it is
    complete, and not before.

    \b
    Example:
      coverwell predict model.safetensors new.csv --out predictions.csv --keep id
    """
    with clear_messages():
        start = time.perf_counter()
        suffix_of(out)
        check_output(out, force=force, inputs=(model, data))
        table = TableFile(data, delimiter)
        fitted = TableModel.load(model, device=device, float32=float32)
        work = _Work(fitted, fitted.reader(table), keep)
        work.check()
        write_table(out, work.parts())
        seconds = time.perf_counter() - start
        if as_json:
            print_json({"out": str(out), "rows": work.n_done, "columns": work.columns, "seconds": round(seconds, 3)})
        else:
            click.echo(f"wrote {out}: {work.n_done:,} rows in {seconds:.1f} s")


@dataclass
class _Work:
    """The rows of a file, predicted part by part."""

    fitted: TableModel
    reader: FeatureReader
    keep: tuple[str, ...]
    n_done: int = 0

    @property
    def columns(self) -> list[str]:
        return [*self.keep, *prediction_columns(self.fitted)]

    def check(self) -> None:
        self.reader.table.check_has(self.keep, "column to keep:")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise BadInput(
                f"the output would have two columns named {twice}; keep every column once, and none that is named like "
                "a prediction"
            )

    def parts(self) -> Iterator[pl.DataFrame]:
        needed = list(dict.fromkeys([*self.reader.names, *self.keep]))
        with tqdm(disable=not at_a_terminal(), desc="rows", unit=" rows", unit_scale=True) as bar:
            for part in self.reader.table.parts(needed, ROWS_IN_A_PART):
                said = self.fitted.say(self.reader.features(part, self.n_done))
                yield needed_polars().DataFrame([*part.select(self.keep), *_as_series(self.fitted, said)])
                self.n_done += len(part)
                bar.update(len(part))


def prediction_columns(fitted: TableModel) -> list[str]:
    """The names of what is written: for each target its prediction, then both bounds of each level."""
    return [
        name
        for target in fitted.targets
        for name in (target, *(f"{target}_{bound}_{p!r}" for p in fitted.levels for bound in ("lower", "upper")))
    ]


def _as_series(fitted: TableModel, said: Said) -> list[pl.Series]:
    columns = []
    for target in range(len(fitted.targets)):
        columns.append(said.prediction[:, target])
        for level in range(len(fitted.levels)):
            columns += [said.lower[:, target, level], said.upper[:, target, level]]
    series = needed_polars().Series
    return [series(name, values) for name, values in zip(prediction_columns(fitted), columns, strict=True)]
