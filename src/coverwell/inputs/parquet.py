"""Parquet files as one long table, read in parts: only the part in hand is in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import TableFileError
from coverwell.inputs.frames import listed
from coverwell.tables import PARQUET, TableFile, needed_polars

if TYPE_CHECKING:
    import polars as pl

# Smaller parts would decode large row groups too often; those of wide tables have about so many numbers.
PART_ROWS, PART_NUMBERS = 2**15, 2**22


@dataclass(frozen=True)
class Part:
    """Some rows of one file."""

    path: Path
    first: int  # in the file
    n_rows: int
    number: int  # of the first row, in the whole table


class TableFiles:
    """A table in several Parquet files, for `fit` and `predict_interval` of tables that are larger than memory.

    Rows are counted through the files in the order of their names (a pattern, a folder) or in the order that is given
    (a sequence). The same files in the same order give the same folds.

    Parameters
    ----------
    paths : path, pattern such as ``"sales-*.parquet"``, folder, or sequence of paths
    columns : sequence of str, optional
        The columns to use, targets and groups among them; all if None.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import polars as pl
    >>> rows = pl.DataFrame({"area": [50.0, 80.0], "price": [1.0, 2.0]})
    >>> with TemporaryDirectory() as folder:
    ...     rows.write_parquet(f"{folder}/sales-1.parquet")
    ...     rows.write_parquet(f"{folder}/sales-2.parquet")
    ...     table = TableFiles(f"{folder}/sales-*.parquet")
    ...     print(len(table), table.columns)
    4 ['area', 'price']
    """

    def __init__(self, paths: Any, columns: Sequence[str] | None = None) -> None:
        self.paths = _found(paths)
        first, *others = self.paths
        self.types: dict[str, Any] = TableFile(first).schema
        for path in others:
            types = TableFile(path).schema
            for name in (*self.types, *types):
                if name not in types or name not in self.types:
                    has, lacks = (first, path) if name in self.types else (path, first)
                    where = f"{name!r} is in {has} and not in {lacks}"
                    raise TableFileError(f"all files must have the same columns, but {where}")
                if types[name] != self.types[name]:
                    both = f"{name!r} is {self.types[name]} in {first} and {types[name]} in {path}; convert one of them"
                    raise TableFileError(f"columns must have the same type in all files, but {both}")
        if columns is not None:
            self.check_has(columns)
            self.types = {name: self.types[name] for name in columns}
        self._seen = {path: _state_of(path) for path in self.paths}

    def __repr__(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{type(self).__name__}({str(self.paths[0])!r}{more})"

    def __len__(self) -> int:
        return sum(self.rows_of_files.values())

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.types)

    @cached_property
    def rows_of_files(self) -> dict[Path, int]:
        """How many rows each file has, from its footer."""
        counts, polars = {}, needed_polars()
        for path in self.paths:
            with TableFile(path).clear_errors():
                counts[path] = int(polars.scan_parquet(path, glob=False).select(polars.len()).collect().item())
        if not sum(counts.values()):
            raise TableFileError(f"there must be rows to read, but {listed(list(map(str, self.paths)))} has none")
        return counts

    def check_has(self, names: Sequence[str], what: str = "column") -> None:
        """Raise unless all of these columns are there."""
        TableFile(self.paths[0]).check_has(names, what)
        if unused := [name for name in names if name not in self.types]:
            raise TableFileError(f"{what} {listed(unused)} is in the files, but not among the chosen columns; add it")

    def parts(self, most: int = PART_ROWS) -> list[Part]:
        """The whole table in parts of at most so many rows, in order."""
        rows = max(1, min(most, PART_ROWS, PART_NUMBERS // len(self.types)))
        parts, number = [], 0
        for path, n_rows in self.rows_of_files.items():
            parts += [Part(path, i, min(rows, n_rows - i), number + i) for i in range(0, n_rows, rows)]
            number += n_rows
        return parts

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows of a part."""
        if _state_of(part.path) != self._seen[part.path]:
            raise TableFileError(f"{part.path} has changed since it was opened; begin again when it is complete")
        lazy = needed_polars().scan_parquet(part.path, glob=False).slice(part.first, part.n_rows)
        with TableFile(part.path).clear_errors():
            # A part at a time, decoded whole: batches that polars prefetches would not be bounded.
            frame: pl.DataFrame = lazy.select(self.columns if columns is None else list(columns)).collect()
        if len(frame) != part.n_rows:
            raise TableFileError(f"{part.path} has changed while it was read; begin again when it is complete")
        return frame

    def take(self, numbers: NDArray[np.int64], columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows with these numbers, which are counted from 0 through all files and must ascend."""
        numbers = np.asarray(numbers)
        if len(numbers) and (numbers[0] < 0 or numbers[-1] >= len(self) or (np.diff(numbers) <= 0).any()):
            raise ValueError(f"row numbers must ascend from 0 to at most {len(self) - 1}")
        taken: list[pl.DataFrame] = []
        for part in self.parts():
            first, last = np.searchsorted(numbers, [part.number, part.number + part.n_rows])
            if first < last or not (len(numbers) or taken):
                taken.append(self.read(part, columns)[numbers[first:last] - part.number])
        return needed_polars().concat(taken)  # type: ignore[no-any-return]


def _found(paths: Any) -> list[Path]:
    """The files that are meant, all of them Parquet."""
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        matching = path.glob(f"*{PARQUET}") if path.is_dir() else map(Path, glob.glob(str(path)))
        found = [path] if path.is_file() else sorted(matching)
    else:
        found = [Path(path) for path in paths]
        if absent := [path for path in found if not path.is_file()]:
            raise FileNotFoundError(f"there must be a file {absent[0]}, but there is none; look at its path")
    if not found:
        raise FileNotFoundError(f"there must be a file {paths}, but none matches; look at the folder and the pattern")
    if other := [path for path in found if path.suffix.lower() != PARQUET]:
        way_out = "convert it: polars.scan_csv(...).sink_parquet(...)"
        raise TableFileError(f"tables are streamed from {PARQUET} files, got {other[0].name!r}; {way_out}")
    if len(set(found)) < len(found):
        raise ValueError(f"every file must be given once, got {listed(list(map(str, found)))}")
    return found


def _state_of(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
