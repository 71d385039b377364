"""Targets and groups as columns of a file: numbers in every row, or an error that says where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coverwell.commands.messages import BadInput
from coverwell.table_files import Kind, TableFile, needed_polars, typed

if TYPE_CHECKING:
    import polars as pl

__all__ = ["check_targets", "groups_of", "targets_of"]


def check_targets(table: TableFile, targets: Sequence[str]) -> None:
    """Raise unless the file has these columns, each named once."""
    if len(set(targets)) < len(targets):
        raise BadInput(f"every --target must be named once, got {', '.join(targets)}")
    table.check_has(targets, "column for the target:")


def targets_of(
    frame: pl.DataFrame, names: Sequence[str], *, path: Path, skip: bool
) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """The targets of the rows that have all of them, and which rows these are.

    Raises if a target is not a number, or is missing in rows that are not to be skipped.
    """
    polars = needed_polars()
    targets = typed(frame.select(names), dict.fromkeys(names, Kind.NUMBER), path=path)
    for name in names:
        if not targets[name].dtype.is_numeric():
            raise BadInput(f"the target {name} must hold numbers, but {path} has {targets[name].dtype}; convert it")
    targets = targets.with_columns(polars.all().cast(polars.Float64).fill_nan(None))
    for name in names:
        if (endless := targets[name].is_infinite()).any():
            row = int(endless.fill_null(value=False).arg_true()[0]) + 1
            raise BadInput(f"the target {name} must hold finite numbers, but row {row} of {path} is infinite; mend it")
    there = targets.select(polars.all_horizontal(polars.all().is_not_null())).to_series().to_numpy()
    n_missing = int((~there).sum())
    if n_missing and not skip:
        gaps = next(targets[name].is_null() for name in names if targets[name].null_count())
        raise BadInput(
            f"the target {gaps.name} is missing in {gaps.sum()} of {len(frame)} rows of {path}, first in row "
            f"{gaps.arg_true()[0] + 1}; fill them in, or give --skip-missing to leave such rows out"
        )
    if n_missing == len(frame):
        raise BadInput(f"no row of {path} has a value for all of the targets {', '.join(names)}")
    return targets.filter(there), there


def groups_of(frame: pl.DataFrame, name: str, *, path: Path) -> pl.Series:
    """The group of each row; blanks and words for a missing value are none."""
    groups = typed(frame.select(name), {name: Kind.TEXT}, path=path)[name]
    return groups.fill_nan(None) if groups.dtype.is_float() else groups
