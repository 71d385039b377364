"""Rows of a file as a fitted model takes them: features, and beside them targets and groups where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import TableFileError
from coverwell.inputs.scaling import LARGEST_NUMBER
from coverwell.inputs.source import InputSource
from coverwell.model_file import check_takes_tables, load
from coverwell.predictor import ROWS_AT_A_TIME
from coverwell.tables import KINDS, TableFile, needed_polars

if TYPE_CHECKING:
    import polars as pl

    from coverwell.evaluation import ClassOutcome, Outcome
    from coverwell.inputs.parquet import TableFiles

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# A multiple of the model's own steps: cut elsewhere, the last bit of a prediction could change.
ROWS_IN_A_PART = 4 * ROWS_AT_A_TIME


LIKE_A_NUMBER = r"^[+-]?[0-9.,]*[0-9][0-9.,]*(?:[eE][+-]?[0-9]+)?$"  # of a text that is none, as 1,5 or 1.000,5
FEW_VALUES, FEWEST_OF_EACH = 10, 10  # of whole numbers, and rows: targets that may be classes


def load_table_model(path: Path, *, device: str) -> Any:
    model = load(path)
    check_takes_tables(path, type(model).__name__, getattr(model, "source_", None))
    model.set_params(device=device)
    return model


def read_outcome(
    path: Path, table: TableFile, *, device: str, skip_missing: bool, group: Sequence[str] = (), quantiles: int = 4
) -> Outcome | ClassOutcome:
    """The rows of a file with all targets, beside what the model in `path` predicts: intervals, or sets of classes."""
    from coverwell.evaluation import class_outcome_of, outcome_of

    model = load_table_model(path, device=device)
    classes = getattr(model, "classes_", None)
    reader = Reader(model.source_, model.target_names_, path, table, classes=classes)
    X, y, about = reader.known_rows(group, skip_missing=skip_missing)
    about |= {"quantiles": quantiles, "feature_names": reader.names}
    return outcome_of(model, X, y, **about) if classes is None else class_outcome_of(model, X, y, **about)


@dataclass(frozen=True)
class Reader:
    """How the rows of a file become what a model takes."""

    source: InputSource
    targets: tuple[str, ...]
    path: Path  # of the model
    table: TableFile
    images: str | None = None  # the column that names image files
    classes: NDArray[Any] | None = None  # of a classifier

    @cached_property
    def names(self) -> list[str]:
        """The columns of the file that the model needs."""
        if self.images is not None:
            self.table.check_has([self.images], "column for --images:")
            return [self.images]
        if (names := self.source.table_columns) is not None:
            self.table.check_has(names, f"column that {self.path.name} was fitted on:")
            return names
        (n_features,) = self.source.row_shape
        others = [name for name in self.table.columns if name not in self.targets]
        if len(others) != n_features:
            has = f"{self.path} was fitted without column names on {n_features} columns, but {self.table.path} has"
            way_out = "give a file with exactly these columns, in order"
            raise ValueError(f"{has} {len(others)} beside the targets; {way_out}")
        return others

    def features(self, part: pl.DataFrame, first_row: int = 0) -> Any:
        """The features of rows as they come from the file: a frame, or an array for a model without names."""
        polars, rows = needed_polars(), range(first_row, first_row + len(part))
        frame = self.table.typed(part.select(self.names), self._kinds, rows)
        if self.images is not None or self.source.table_columns is not None:
            return frame
        return frame.select(polars.all().cast(polars.Float64)).to_numpy()

    @cached_property
    def _kinds(self) -> dict[str, str]:
        if self.images is not None:
            return {self.images: "text"}
        if self.source.columns is not None:
            return dict(self.source.columns.kinds)
        # Numbers alone, or booleans that count as 0 and 1: the first value decides.
        rows = next(self.table.parts(self.names, ROWS_IN_A_PART))
        texts = self.table.typed(rows, dict.fromkeys(self.names, "text"))
        first = {name: self.table.kinds(texts.select(name).drop_nulls().head(1)).get(name) for name in self.names}
        return {name: "booleans" if kind == "booleans" else "numbers" for name, kind in first.items()}

    def known_rows(self, groups: Sequence[str], *, skip_missing: bool) -> tuple[Any, NDArray[Any], dict[str, Any]]:
        """Features and targets of the rows that have all targets; and their groups and numbers, for an outcome."""
        names, targets = self.names, self.targets
        self.table.check_has(targets, "column for the target:")
        self.table.check_has(groups, "column for --group:")
        rows = self.table.read(list(dict.fromkeys([*names, *targets, *groups])))
        kind = None if self.classes is None else self._kind_of_classes(rows)
        y, there = targets_of(self.table, rows, targets, kind, skip=skip_missing)
        features: Any = self.features(rows)
        features = features[there] if isinstance(features, np.ndarray) else features.filter(there)
        if self.images is not None:
            files = features[self.images].to_list()
            if None in files:
                row, must = np.flatnonzero(there)[files.index(None)] + 1, "must name a file in every row"
                raise ValueError(f"column {self.images} of {self.table.path} {must}, but row {row} has none")
            features = [self.table.path.parent / str(name) for name in files]  # beside the table
        about = {
            "groups": {name: groups_of(self.table, rows, name).filter(there).to_list() for name in groups},
            "row_numbers": np.flatnonzero(there) + 1,
            "n_skipped": int((~there).sum()),
        }
        return features, y.to_numpy() if kind is None else y[targets[0]].to_numpy(), about

    def _kind_of_classes(self, rows: pl.DataFrame) -> str:
        assert self.classes is not None
        if self.classes.dtype.kind in "OU":
            return "text"
        if self.classes.dtype.kind == "b":
            return "booleans"
        return "whole" if self.table.kinds(rows.select(self.targets)).get(self.targets[0]) == "whole" else "numbers"


def training_rows(
    table: TableFile,
    names: list[str],
    targets: Sequence[str],
    *,
    group: str | None,
    weight: str | None,
    skip_missing: bool,
    classify: bool,
) -> tuple[Any, Any, NDArray[Any] | None, Array | None, int]:
    """Features, targets, groups and weights of the rows that have all targets, and how many others were left out.

    Targets are a data frame of numbers, or a series of classes.
    """
    rows = table.read(list(dict.fromkeys([*names, *targets, *filter(None, (group, weight))])))
    groups, weights = None, None
    kind = kind_of_class_target(table, rows.select(targets), classify=classify)
    y, there = targets_of(table, rows, targets, kind, skip=skip_missing)
    features = rows.select(names).filter(there)
    features = table.typed(features, table.kinds(features), there.nonzero()[0].tolist())
    if group is not None:
        of_rows = groups_of(table, rows, group)
        if (without := of_rows.is_null().to_numpy() & there).any():
            row = without.argmax() + 1
            raise ValueError(f"--group {group} must have a value in every row, but has none in row {row}; fill it in")
        groups = of_rows.cast(needed_polars().String).to_numpy()[there]
    if weight is not None:
        weights = weights_of(table, rows, weight)[there]
    return features, y if kind is None else y[targets[0]], groups, weights, len(rows) - len(y)


def streamed_classes(
    table: TableFile, files: TableFiles, targets: Sequence[str], *, classify: bool
) -> pl.Series | None:
    """The classes of a target that is read part by part; None where targets are numbers."""
    from coverwell.streaming.buffers import StreamedTable

    polars = needed_polars()
    empty = polars.DataFrame(schema={name: files.types[name] for name in targets})
    if kind_of_class_target(table, empty, classify=classify) is None:
        return None
    counts = StreamedTable.of(files, targets, None, classify=True).class_counts()
    classes: pl.Series = polars.Series(targets[0], list(counts))
    return classes


def kind_of_class_target(table: TableFile, targets: pl.DataFrame, *, classify: bool) -> str | None:
    """What the classes of a target are (text, booleans, whole numbers or numbers); None where targets are numbers."""
    kinds = table.kinds(targets) if table.is_text else {column.name: _kind_in_parquet(column) for column in targets}
    found = [name for name, kind in kinds.items() if classify or kind in ("text", "booleans")]
    if found and len(kinds) > 1:
        way_out = "fit one model for each" + (", or leave out --classify" if classify else "")
        raise ValueError(f"classes must be the only target, but {found[0]} is one of {', '.join(kinds)}; {way_out}")
    for name in found if table.is_text and not classify else ():
        if targets[name].str.strip_chars().str.contains(LIKE_A_NUMBER).any():  # one wrong cell makes no classes
            try:
                table.typed(targets, {name: "numbers"}, what="the target")
            except TableFileError as error:
                raise TableFileError(f"{error}; if they are classes, give --classify") from None
    return kinds[found[0]] if found else None


def _kind_in_parquet(column: pl.Series) -> str:
    polars = needed_polars()
    if column.dtype == polars.Boolean:
        return "booleans"
    return "text" if column.dtype in (polars.String, polars.Categorical, polars.Enum) else "numbers"


def few_values(y: pl.Series) -> list[int]:
    """The values of a target of few whole numbers, of which classes may be made; none for other targets."""
    values = y.unique().sort()
    is_few = len(values) <= min(FEW_VALUES, len(y) / FEWEST_OF_EACH) and len(values) > 1
    return [int(value) for value in values] if is_few and (values == values.round()).all() else []


def targets_of(
    table: TableFile, rows: pl.DataFrame, names: Sequence[str], kind: str | None = None, *, skip: bool
) -> tuple[pl.DataFrame, Mask]:
    """The targets of the rows that have all of them, and which rows these are; others are an error or skipped.

    A target of classes is of a `kind`; others are numbers.
    """
    polars, path = needed_polars(), table.path
    typed = table.typed(rows.select(names), dict.fromkeys(names, kind or "numbers"), what="the target")
    targets = _numbers(table, typed) if kind is None else _classes(table, typed, kind)
    there = targets.select(polars.all_horizontal(polars.all().is_not_null())).to_series().to_numpy()
    if not there.all() and not skip:
        gaps = next(column.is_null() for column in targets if column.null_count())
        where = f"{gaps.sum()} of {len(rows)} rows of {path}, first in row {gaps.arg_true()[0] + 1}"
        way_out = "fill them in, or give --skip-missing to leave these rows out"
        raise ValueError(f"the target {gaps.name} is missing in {where}; {way_out}")
    if not there.any():
        raise ValueError(f"no row of {path} has a value for all of the targets {', '.join(names)}")
    return targets.filter(there), there


def _numbers(table: TableFile, targets: pl.DataFrame) -> pl.DataFrame:
    polars, path = needed_polars(), table.path
    for column in targets:
        if not column.dtype.is_numeric():
            raise ValueError(f"the target {column.name} must hold numbers, but {path} has {column.dtype}; convert it")
    targets = targets.with_columns(polars.all().cast(polars.Float64).fill_nan(None))
    for column in targets:
        if (largest := float(np.abs(column.drop_nulls().to_numpy()).max(initial=0.0))) > LARGEST_NUMBER:
            must = f"the target {column.name} must lie within {LARGEST_NUMBER:g} of zero"
            raise ValueError(f"{must}, but {path} has {largest:g}; give it in larger units")
    return targets


def _classes(table: TableFile, targets: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Classes as text, as whole numbers, or as true and false."""
    polars, (column,) = needed_polars(), targets
    if kind == "text":
        return targets.cast(polars.String)
    if not column.dtype.is_numeric() and column.dtype != polars.Boolean:
        must = f"the target {column.name} must hold {KINDS[kind]}"
        raise ValueError(f"{must}, but {table.path} has {column.dtype}; convert it")
    if column.dtype.is_float():
        column = column.fill_nan(None)
        if (odd := (column != column.round()).fill_null(False)).any():
            row = int(odd.arg_max() or 0)
            must = f"the target {column.name} must hold text, whole numbers, or true and false for its classes"
            has = f"row {row + 1} of {table.path} has {column[row]:g}"
            raise ValueError(f"{must}, but {has}; leave out --classify if it is a quantity")
        column = column.cast(polars.Int64)
    return column.to_frame()


def weights_of(table: TableFile, rows: pl.DataFrame, name: str) -> Array:
    """How much each row counts."""
    weights = table.typed(rows.select(name), {name: "numbers"}, what="the weight")[name]
    if not weights.dtype.is_numeric():
        raise ValueError(f"--weight {name} must hold numbers, but {table.path} has {weights.dtype}; convert it")
    values: Array = weights.cast(needed_polars().Float64).to_numpy()
    if (wrong := ~(values >= 0)).any():  # also where there is none
        row = int(wrong.argmax())
        found = "none" if np.isnan(values[row]) else f"{values[row]:g}"
        must = "must have a number of at least 0 in every row"
        raise ValueError(f"--weight {name} {must}, but has {found} in row {row + 1}; 0 leaves a row out")
    return values


def groups_of(table: TableFile, rows: pl.DataFrame, name: str) -> pl.Series:
    """The group of each row; blanks and words for a missing value are none."""
    groups = table.typed(rows.select(name), {name: "text"})[name]
    return groups.fill_nan(None) if groups.dtype.is_float() else groups
