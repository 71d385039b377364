"""Targets and groups as columns of a file: numbers in every row, or an error that says where they are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coverwell.commands.messages import BadInput
from coverwell.preparation import LARGEST_NUMBER
from coverwell.table_files import TableFile, needed_polars
from coverwell.text_kinds import Kind, check_finite, typed

if TYPE_CHECKING:
    import polars as pl

__all__ = ["check_output_columns", "check_targets", "groups_of", "prediction_columns", "targets_of"]


def check_targets(table: TableFile, targets: Sequence[str]) -> None:
    """Raise unless the file has these columns, each named once."""
    if len(set(targets)) < len(targets):
        raise BadInput(f"every --target must be named once, got {', '.join(targets)}")
    table.check_has(targets, "column for the target:")


def prediction_columns(targets: Sequence[str], levels: Sequence[float]) -> list[str]:
    """The names of what is written: for each target its prediction, then both bounds of each level."""
    return [
        name
        for target in targets
        for name in (target, *(f"{target}_{bound}_{p!r}" for p in levels for bound in ("lower", "upper")))
    ]


def check_output_columns(names: Sequence[str]) -> None:
    """Raise unless the columns that are written, or will be, have different names."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadInput(
            f"predictions would have two columns named {twice[0]}; keep every column once, and let no target and no "
            "kept column be named like a prediction or a bound of another"
        )


def targets_of(
    frame: pl.DataFrame, names: Sequence[str], *, table: TableFile, skip: bool
) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """The targets of the rows that have all of them, and which rows these are.

    Raises if a target is not a number, or is missing in rows that are not to be skipped.
    """
    polars, path = needed_polars(), table.path
    targets = typed(frame.select(names), dict.fromkeys(names, Kind.NUMBER), path=path, decimal=table.decimal)
    for name in names:
        if not targets[name].dtype.is_numeric():
            raise BadInput(f"the target {name} must hold numbers, but {path} has {targets[name].dtype}; convert it")
    targets = targets.with_columns(polars.all().cast(polars.Float64).fill_nan(None))
    check_finite(targets, path=path, rows=range(len(targets)), what="the target")
    for name in names:
        largest = float(np.abs(targets[name].drop_nulls().to_numpy()).max(initial=0.0))
        if largest > LARGEST_NUMBER:
            raise BadInput(
                f"the target {name} must lie within {LARGEST_NUMBER:g} of zero, but {path} has {largest:g}; give it in "
                "larger units"
            )
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
