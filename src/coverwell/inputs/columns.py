"""From the columns of a data frame to numbers: categories, booleans, dates and missing values.

A column becomes one or more features. Which ones is learned from the training rows: each kind of column has a fixed
list of features that it could give, and those that vary over the training rows are kept. So a flag for missing values
is there where some were missing, the hour of a date where the hours differ, and a constant column leaves nothing.

Only X is read, never y; but all of its rows are, also those that calibrate the intervals later.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import ColumnWarning, ConstantDataWarning
from coverwell.inputs.column_kinds import ITSELF, KINDS, MISSING, OTHER, Booleans, Categories, Kind, Times
from coverwell.inputs.frames import (
    Values,
    as_times,
    columns_of,
    first_odd,
    is_frame,
    is_named,
    is_plain,
    listed,
    read,
)

__all__ = ["Column", "ColumnWarning", "Columns", "Dropped", "columns_for"]

Array = NDArray[np.float64]

NEARLY_ALL = 0.95  # of the values are different in a column that looks like an identifier
FEWEST_NUMBERS = 20  # rows from which on whole numbers may look like an identifier

# Text that was meant as something else, and how that is written.
MISTAKABLE = {
    "numbers with a decimal comma; write 6.8 in place of 6,8": re.compile(r"[+-]?\d+,\d+"),
    "dates; write 2025-03-20 in place of 20/03/2025 or 20.03.2025": re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d\d)?\d\d"),
}

CONSTANT, EMPTY, IDENTIFIER = "one value only", "no value in any row", "text that differs in nearly every row"


@dataclass(frozen=True)
class Column:
    """How one column becomes features."""

    name: str
    kind: Kind
    kept: tuple[str, ...]  # of the kind's features, those that vary over the training rows
    n_missing: int = 0
    like_identifier: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.like_identifier, bool):
            raise ValueError(f"a column must have a name, got {self.name!r}")
        if not isinstance(self.n_missing, int) or self.n_missing < 0:
            raise ValueError(f"the number of missing values must be a count, got {self.n_missing!r}")
        if not self.kept or self.kept != tuple(part for part in self.kind.possible if part in self.kept):
            raise ValueError(f"column {self.name!r} must give some of its features in their order, got {self.kept!r}")

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(self.name + part for part in self.kept)

    def read(self, values: Values) -> Values | None:
        """Values of this column's kind; None for those of another."""
        if values.kind is None:
            return values
        if isinstance(self.kind, Times):
            times = as_times(values)
            return times if times is not None and times.zone == self.kind.zone else None
        if isinstance(self.kind, Booleans) and values.kind == "numbers" and np.isin(values.present, (0, 1)).all():
            return replace(values, kind="booleans")
        return values if values.kind == self.kind.name else None

    def features(self, values: Values) -> list[Array]:
        """The kept features."""
        features = self.kind.features(values)
        return [features[part] for part in self.kept]

    def strange(self, values: Values) -> Iterable[str]:
        """What these values have that the training rows never had, as sentences."""
        n_rows = len(values.missing)
        if MISSING not in self.kept and (n_missing := int(values.missing.sum())):
            filled = "no known level" if isinstance(self.kind, Categories) else self.kind.told()[1]
            yield f"{self.name!r} is missing in {n_missing} of {n_rows} rows, never in training; read as {filled}"
        if isinstance(self.kind, Categories) and OTHER not in self.kept and (other := self.kind.is_other(values)).any():
            yield (
                f"{self.name!r} has levels that were never seen in training in {int(other.sum())} of {n_rows} rows "
                f"({listed(sorted(set(values.array[other])))}); read as no known level"
            )

    def told(self, n_rows: int) -> str:
        """How the column is read, in one line."""
        read_as, filled = self.kind.told()
        missing = f"; {self.n_missing} of {n_rows} missing, read as {filled}" if self.n_missing else ""
        other = "; rarer and unseen levels as one" if OTHER in self.kept else ""
        identifier = "; looks like an identifier" if self.like_identifier else ""
        return f"{self.name}: {read_as}{other}{missing}{identifier}"


@dataclass(frozen=True)
class Dropped:
    """A column that is left out, and why."""

    name: str
    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.reason not in (CONSTANT, EMPTY, IDENTIFIER):
            raise ValueError(f"a column must be left out for a known reason, got {self.reason!r}")


@dataclass(frozen=True)
class Columns:
    """How the columns of a data frame become numbers, learned from training rows.

    Examples
    --------
    >>> import polars as pl
    >>> from coverwell.inputs.columns import Columns
    >>> rows = pl.DataFrame({"area": [50.0, None, 80.0, 65.0], "heating": ["gas", "oil", "gas", "oil"]})
    >>> columns = Columns.of(rows)
    >>> columns.feature_names
    ('area', 'area (missing)', 'heating=gas', 'heating=oil')
    >>> columns.transform(rows)[1]
    array([65.,  1.,  0.,  1.])
    """

    columns: tuple[Column, ...]
    dropped: tuple[Dropped, ...] = ()
    n_rows: int = 0  # that they were learned from
    plain: bool = False  # numbers and booleans alone, without gaps: one feature each, as in an array under names

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns] + [column.name for column in self.dropped]
        if not self.columns or len(set(names)) < len(names):
            raise ValueError(f"there must be columns, each once, got {names}")
        if not isinstance(self.n_rows, int) or any(column.n_missing > self.n_rows for column in self.columns):
            raise ValueError(f"no more values can be missing than there are rows, got {self.n_rows!r} rows")
        if not isinstance(self.plain, bool) or (self.plain and (self.dropped or self.feature_names != tuple(names))):
            raise ValueError(f"every column must give one feature where all are numbers, got {self.feature_names}")

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """How the columns of this data frame become numbers; warns of those that are left out."""
        values = _values_of(frame)
        learned = [_learn(name, column) for name, column in values.items()]
        columns = tuple(column for column in learned if isinstance(column, Column))
        dropped = tuple(column for column in learned if isinstance(column, Dropped))
        if not columns:
            reasons = "; ".join(f"{column.name!r}: {column.reason}" for column in dropped[:5])
            raise ValueError(f"no column tells rows apart ({reasons}); give columns of numbers, categories or dates")
        _warn_of_training_columns(columns, dropped)
        _warn_of_mistakable_text(values)
        return cls(columns, dropped, len(frame))

    @classmethod
    def of_plain(cls, frame: Any) -> Columns:
        """How a frame of numbers alone is read: as the array that it is, until a new row has a gap."""
        columns = tuple(_learn_plain(name, values) for name, values in _values_of(frame).items())
        _warn_of_training_columns(columns, ())
        return cls(columns, n_rows=len(frame), plain=True)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: the column's, and for all but the column's own value what it tells."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def kinds(self) -> dict[str, str]:
        """What each column that is used holds: "numbers", "booleans", "text" or "times"."""
        return {column.name: column.kind.name for column in self.columns}

    def transform(self, frame: Any) -> Array:
        """The features of each row, `(row, feature)`: all finite, always the same number of features.

        Columns are found by name, and others than those learned from are ignored. Warns of values that training never
        had.
        """
        values = self._read(frame)
        table = np.empty((len(frame), len(self.feature_names)))
        features = [f for column in self.columns for f in column.features(values[column.name])]
        for place, feature in enumerate(features):
            table[:, place] = feature
        if strange := [told for column in self.columns for told in column.strange(values[column.name])]:
            message = f"{'; '.join(strange)}; no interval is to be trusted in these rows"
            warnings.warn(message, ColumnWarning, stacklevel=5)  # the line that asks an estimator for a prediction
        return table

    def _read(self, frame: Any) -> dict[str, Values]:
        given = columns_of(frame)
        if absent := [column.name for column in self.columns if column.name not in given]:
            raise ValueError(
                f"the table must have all columns that were learned from, but {listed(absent)} "
                f"{'is' if len(absent) == 1 else 'are'} missing, got {listed(list(given))}; add or rename columns"
            )
        found = {column.name: (column, read(given[column.name])) for column in self.columns}
        values = {name: column.read(got) for name, (column, got) in found.items()}
        if odd := [_of_another_kind(column, got) for name, (column, got) in found.items() if values[name] is None]:
            raise ValueError(f"columns must hold what they held in training, but {'; '.join(odd[:5])}; convert them")
        checked = {name: got for name, got in values.items() if got is not None}
        for name, got in checked.items():
            _check_finite(name, got)
        return checked

    def report(self) -> tuple[str, ...]:
        """How each column is read, or why it is left out: one line each."""
        used = [column.told(self.n_rows) for column in self.columns]
        return (*used, *(f"{column.name}: left out, {column.reason}" for column in self.dropped))

    def to_json(self) -> dict[str, Any]:
        """All that was learned, as what JSON can hold."""
        columns = [
            {**asdict(column), "kind": {"name": column.kind.name, **asdict(column.kind)}} for column in self.columns
        ]
        dropped = [asdict(column) for column in self.dropped]
        return {"columns": _plain(columns), "dropped": _plain(dropped), "n_rows": self.n_rows, "plain": self.plain}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Columns:
        """What `to_json` gave; raises for anything else."""
        columns = tuple(_column_from(entry) for entry in content["columns"])
        dropped = tuple(Dropped(**entry) for entry in content["dropped"])
        return cls(columns, dropped, content["n_rows"], content.get("plain", False))  # older files do not tell


def columns_for(X: Any) -> Columns | None:
    """How a data frame is read; None for arrays, and for frames of numbers without names or of sparse ones."""
    if not is_frame(X):
        return None
    if not is_plain(X):
        return Columns.of(X)
    return Columns.of_plain(X) if is_named(X) else None


def _values_of(frame: Any) -> dict[str, Values]:
    values = {name: read(series) for name, series in columns_of(frame).items()}
    if not values or not len(frame):
        raise ValueError(f"a table must have rows and columns, got {len(frame)} rows and {len(values)} columns")
    return values


def _learn_plain(name: str, values: Values) -> Column:
    _check_finite(name, values)
    assert values.kind is not None  # a plain column has values
    kind: Any = KINDS[values.kind]
    return Column(name, kind.of(values), (ITSELF,), like_identifier=_counts_rows(values))


def _learn(name: str, values: Values) -> Column | Dropped:
    values = as_times(values) or values
    _check_finite(name, values)
    if values.kind is None:
        return Dropped(name, EMPTY)
    if values.kind == "text" and _nearly_all_differ(values.present):
        return Dropped(name, IDENTIFIER)
    kind: Any = KINDS[values.kind]
    learned: Kind = kind.of(values)
    kept = tuple(part for part, feature in learned.features(values).items() if (feature != feature[0]).any())
    if not kept:
        return Dropped(name, CONSTANT)
    n_missing = int(values.missing.sum())
    return Column(name, learned, kept, n_missing, like_identifier=_counts_rows(values))


def _nearly_all_differ(present: NDArray[Any]) -> bool:
    return len(set(present.tolist())) >= max(2, NEARLY_ALL * len(present))


def _counts_rows(values: Values) -> bool:
    """Whether these are whole numbers that go up, or down, in nearly every row, as a running number does."""
    if not values.whole or len(values.present) < FEWEST_NUMBERS:
        return False
    steps = np.diff(values.present)
    return _nearly_all_differ(values.present) and bool((steps >= 0).all() or (steps <= 0).all())


def _check_finite(name: str, values: Values) -> None:
    if values.kind != "numbers" or np.isfinite(values.present).all():
        return
    row = int((~np.isfinite(values.array) & ~values.missing).argmax())
    raise ValueError(
        f"column {name!r} must hold finite numbers, got infinity in row {row} (counted from 0); leave such rows out, "
        "or have no value there"
    )


def _of_another_kind(column: Column, values: Values) -> str:
    zone = column.kind.zone if isinstance(column.kind, Times) else None
    wanted = column.kind.name + (_in_zone(zone) if isinstance(column.kind, Times) else "")
    got = f"{values.kind}{_in_zone(values.zone) if values.kind == 'times' else ''}"
    example = values.told(first_odd(values, column.kind.name, zone))
    return f"{column.name!r} must hold {wanted}, got {got} such as {example}"


def _in_zone(zone: str | None) -> str:
    return " without a time zone" if zone is None else f" in the time zone {zone}"


def _warn_of_training_columns(columns: Sequence[Column], dropped: Sequence[Dropped]) -> None:
    for reason, category in ((CONSTANT, ConstantDataWarning), (EMPTY, ColumnWarning), (IDENTIFIER, ColumnWarning)):
        if names := [column.name for column in dropped if column.reason == reason]:
            way_out = "; convert what holds numbers, or dates other than 2024-01-31" if reason == IDENTIFIER else ""
            warnings.warn(f"left out of X: {listed(names)} ({reason}){way_out}", category, stacklevel=3)
    if names := [column.name for column in columns if column.like_identifier]:
        warnings.warn(
            f"{listed(names)} counts from row to row, as an identifier does; it is used as numbers: leave it out of X "
            "if it is none of the things that y depends on",
            ColumnWarning,
            stacklevel=3,
        )


def _warn_of_mistakable_text(values: Mapping[str, Values]) -> None:
    texts = {name: set(column.present.tolist()) for name, column in values.items() if column.kind == "text"}
    for meant, pattern in MISTAKABLE.items():
        if names := [name for name, levels in texts.items() if all(map(pattern.fullmatch, levels))]:
            warnings.warn(f"{listed(names)} is read as text, but looks like {meant}", ColumnWarning, stacklevel=3)


def _column_from(entry: dict[str, Any]) -> Column:
    kind = dict(entry["kind"])
    name = kind.pop("name")
    if name == Categories.name:
        kind["levels"] = _tuple(kind["levels"])
    return Column(**{**entry, "kind": KINDS[name](**kind), "kept": _tuple(entry["kept"])})


def _tuple(items: Any) -> tuple[Any, ...]:
    if not isinstance(items, list):  # a text would become its letters
        raise ValueError(f"there must be a list, got {items!r}")
    return tuple(items)


def _plain(value: Any) -> Any:
    """Tuples as lists, in which JSON gives them back."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
