"""`coverwell data`: the public data sets by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from coverwell import datasets
from coverwell.commands.messages import check_output, clear_messages, print_json
from coverwell.commands.options import FORCE_OPTION, JSON_OPTION
from coverwell.datasets import BoxedImages, Dataset, Series
from coverwell.table_files import needed_polars, output_suffix, write_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["data"]


@click.group()
def data() -> None:
    """List the public data sets, or get one as a file.

    \b
    Example:
      coverwell data list
      coverwell data get boston --out boston.csv
    """


@data.command("list", short_help="The names of the data sets.")
@JSON_OPTION
def list_(as_json: bool) -> None:
    """List the data sets that `get` knows, and in Python `coverwell.datasets.load`.

    \b
    Example:
      coverwell data list
    """
    known = {"table": datasets.names(), "series": datasets.series_names(), "images": datasets.image_names()}
    found = [{"name": name, "kind": kind} for kind, names in known.items() for name in names]
    if as_json:
        print_json(found)
        return
    for entry in found:
        click.echo(f"{entry['name'].replace(' ', '-'):<18}{entry['kind']}")


@data.command(short_help="One data set as a table in a file.")
@click.argument("name")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The file to write: .csv, .tsv or .parquet."
)
@JSON_OPTION
@FORCE_OPTION
def get(name: str, out: Path, as_json: bool, force: bool) -> None:
    """Write the data set NAME into a file: features, target, and the group of each row where there are groups.

    It is looked for in the folder that the environment variable COVERWELL_DATA names, in the user's cache, in installed
    packages, and at its public address, and checked by its sha256. A series has a column `time`; of images the boxes
    and sizes are written, not the pictures.

    \b
    Example:
      coverwell data get auto-mpg --out cars.csv
    """
    with clear_messages():
        output_suffix(out)
        check_output(out, force=force)
        loaded = datasets.load(name)
        frame = needed_polars().DataFrame(_columns(loaded))
        write_table(out, iter([frame]))
        if as_json:
            told = {"out": str(out), "name": loaded.name, "rows": len(frame), "columns": frame.columns}
            print_json({**told, "source": loaded.source, "notes": loaded.notes})
        else:
            click.echo(f"wrote {out}: {len(frame):,} rows of {loaded.name}")
            click.echo(f"source: {loaded.source}")
            click.echo(f"notes: {loaded.notes}")


def _columns(loaded: Dataset | Series | BoxedImages) -> dict[str, Any]:
    """The columns of a table, by name; gaps are null."""
    if isinstance(loaded, Dataset):
        groups = {} if loaded.groups is None else {"group": loaded.groups}
        return {**dict(zip(loaded.feature_names, loaded.X.T, strict=True)), loaded.target_name: loaded.y, **groups}
    if isinstance(loaded, Series):
        names = (loaded.target_name, *loaded.past_covariate_names)
        values = zip(names, np.column_stack([loaded.y, loaded.past_covariates]).T, strict=True)
        return {"time": loaded.time.astype("datetime64[us]"), **{name: _with_gaps(column) for name, column in values}}
    sides = dict(zip(("left", "top", "width", "height"), loaded.boxes.T, strict=True))
    size = {"image_width": loaded.sizes[:, 0], "image_height": loaded.sizes[:, 1]}
    return {"image": loaded.image_ids, **sides, **size, "train": loaded.train}


def _with_gaps(column: Any) -> pl.Series:
    return needed_polars().Series(column).fill_nan(None)  # type: ignore[no-any-return]
