"""`coverwell data`: the public data sets by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import check_output, print_json
from coverwell.tables import needed_polars, output_suffix, write_table

if TYPE_CHECKING:
    from coverwell.datasets import BoxedImages, Dataset, Series

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
@options.JSON
def list_(as_json: bool) -> None:
    """List the data sets that `get` knows, and in Python `coverwell.datasets.load`.

    \b
    Example:
      coverwell data list
    """
    from coverwell import datasets

    known = {"table": datasets.names(), "series": datasets.series_names(), "images": datasets.image_names()}
    found = [{"name": name, "kind": kind} for kind, names in known.items() for name in names]
    if as_json:
        print_json(found)
        return
    for entry in found:
        click.echo(f"{entry['name'].replace(' ', '-'):<18}{entry['kind']}")


@data.command(short_help="One data set as a table in a file.")
@click.argument("name")
@options.out("The file to write: .csv, .tsv or .parquet.")
@options.JSON
@options.FORCE
def get(name: str, out: Path, as_json: bool, force: bool) -> None:
    """Write the data set NAME into a file: features, target, and the group of each row where there are groups.

    It is looked for in the folder that the environment variable COVERWELL_DATA names, in the user's cache, in installed
    packages, and at its public address, and checked by its sha256. A series has a column `time`; of images the boxes
    and sizes are written, not the images.

    \b
    Example:
      coverwell data get auto-mpg --out cars.csv
    """
    from coverwell import datasets

    output_suffix(out)
    check_output(out, force=force)
    try:
        loaded = datasets.load(name)
    except (datasets.DatasetNotFoundError, datasets.DatasetChecksumError) as error:
        raise click.ClickException(" ".join(str(error).split())) from None
    frame = needed_polars().DataFrame(_columns(loaded))
    write_table(out, iter([frame]))
    if as_json:
        about = {"out": str(out), "name": loaded.name, "rows": len(frame), "columns": frame.columns}
        print_json({**about, "source": loaded.source, "notes": loaded.notes})
    else:
        click.echo(f"wrote {out}: {len(frame):,} rows of {loaded.name}\nsource: {loaded.source}\nnotes: {loaded.notes}")


def _columns(loaded: Dataset | Series | BoxedImages) -> dict[str, Any]:
    """The columns of a table, by name; gaps are null."""
    from coverwell.datasets import Dataset, Series

    if isinstance(loaded, Dataset):
        groups = {} if loaded.groups is None else {"group": loaded.groups}
        return {**dict(zip(loaded.feature_names, loaded.X.T, strict=True)), loaded.target_name: loaded.y, **groups}
    if isinstance(loaded, Series):
        columns = {loaded.target_name: loaded.y}
        columns |= dict(zip(loaded.past_covariate_names, loaded.past_covariates.T, strict=True))
        gaps_null = {name: needed_polars().Series(column).fill_nan(None) for name, column in columns.items()}
        return {"time": loaded.time.astype("datetime64[us]"), **gaps_null}
    sides = dict(zip(("left", "top", "width", "height"), loaded.boxes.T, strict=True))
    size = {"image_width": loaded.sizes[:, 0], "image_height": loaded.sizes[:, 1]}
    return {"image": loaded.image_ids, **sides, **size, "train": loaded.train}
