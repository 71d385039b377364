"""Tables in files: CSV, TSV and Parquet, read in parts and written whole or not at all.

A text file is read as text: `coverwell.delimited` has its rows, `coverwell.text_kinds` says what its columns are.
Whatever is wrong with a file is a `TableFileError` of one line.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from coverwell.delimited import UTF8, DelimitedText, TableFileError
from coverwell.files import new_file

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "TableFile",
    "TableFileError",
    "needed_polars",
    "output_suffix",
    "shortened",
    "suffix_of",
    "write_table",
]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET, GZIPPED = ".parquet", ".gz"
SUFFIXES = (*DELIMITERS, PARQUET)
OTHER_DELIMITERS = (";", "\t", "|", ",")
WITH_ANOTHER_MEANING = ('"', "\n", "\r")
ROWS_IN_HAND = 2**16  # at a time, when a file is read in parts
POINT, COMMA = ".", ","
# In a text of a number, between whole and rest; with the comma a point could only stand between thousands.
DECIMALS = (POINT, COMMA)


def needed_polars() -> Any:
    """The package polars, which reads and writes tables; an ImportError that names the extra where it is not there."""
    try:
        import polars
    except ImportError:
        raise ImportError(
            'tables in files need polars; install the extra `tables`: pip install "coverwell[tables]"'
        ) from None
    return polars


@dataclass(frozen=True)
class TableFile:
    """A table in a file whose name ends in .csv, .tsv, .tab or .parquet; text may be gzipped, as .csv.gz.

    Parameters
    ----------
    path : Path
    delimiter : str, optional
        Between the columns of a text file; by default a comma, in .tsv and .tab files a tab.
    decimal : "." or ",", default="."
        Between the whole and the rest of a number in a text file. With the comma, a text with a point is no number.
    encoding : str, default="utf-8"
        Of a text file, as Python names it.
    """

    path: Path
    delimiter: str | None = None
    decimal: str = POINT
    encoding: str = UTF8

    def __post_init__(self) -> None:
        suffix_of(self.path)
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in WITH_ANOTHER_MEANING
        ):
            raise TableFileError(
                f"the delimiter must be one character of ASCII such as ';', or tab, got {self.delimiter!r}"
            )
        if self.decimal not in DECIMALS:
            raise TableFileError(f"decimal must be '.' or ',', got {self.decimal!r}")
        _encoding_named(self.encoding)

    @property
    def is_text(self) -> bool:
        return suffix_of(self.path) != PARQUET

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns, all different."""
        if not self.path.is_file():
            what = (
                "is a folder" if self.path.is_dir() else "is no plain file" if self.path.exists() else "does not exist"
            )
            raise TableFileError(f"{self.path} {what}; give a file")
        with _clear(self.path):
            names = self._header() if self.is_text else list(self.schema)
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise TableFileError(
                f"every column must have a name of its own, but {self.path} has {_listed(twice)} more than once; "
                "rename or remove columns"
            )
        return names

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The type of each column, as polars names it; of a text file all are text."""
        if self.is_text:
            return dict.fromkeys(self.columns, needed_polars().String)
        with _clear(self.path):
            return dict(needed_polars().read_parquet_schema(self.path))

    def check_has(self, names: Sequence[str], what: str = "column") -> None:
        """Raise unless all of these columns are there."""
        if unknown := [name for name in names if name not in self.columns]:
            close = difflib.get_close_matches(unknown[0], self.columns, n=1)
            hint = f"did you mean {close[0]}?" if close else f"its columns are {_listed(self.columns)}"
            raise TableFileError(f"{self.path} has no {what} {_listed(unknown)}; {hint}")

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """All rows; of a text file as text."""
        polars = needed_polars()
        return polars.concat(list(self.parts(columns)))  # type: ignore[no-any-return]

    def parts(self, columns: Sequence[str] | None = None, rows: int = ROWS_IN_HAND) -> Iterator[pl.DataFrame]:
        """The rows in parts of so many each, the last of fewer; of a text file as text."""
        columns = self.columns if columns is None else list(columns)
        self.check_has(columns)
        with _clear(self.path):
            held: list[pl.DataFrame] = []
            n_held, empty = 0, True
            for part in self._text_parts(columns) if self.is_text else self._parquet_parts(columns, rows):
                held, n_held, empty = [*held, part], n_held + len(part), empty and len(part) == 0
                while n_held >= rows:
                    whole = needed_polars().concat(held, rechunk=True)
                    yield whole[:rows]
                    held, n_held = [whole[rows:]], n_held - rows
            if empty:
                raise TableFileError(f"{self.path} has a header but no rows")
            if n_held:
                yield needed_polars().concat(held, rechunk=True)

    def _parquet_parts(self, columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        lazy: Any = needed_polars().scan_parquet(self.path, glob=False).select(columns)
        yield from lazy.collect_batches(chunk_size=rows, maintain_order=True)  # about as many rows as it is asked for

    def _text_parts(self, columns: list[str]) -> Iterator[pl.DataFrame]:
        polars = needed_polars()
        # A header of our own says how many fields a row may have at most.
        header = self._separator.join(f'"{place}"' for place in range(len(self.columns))).encode() + b"\n"
        for block in self._text.blocks():
            lazy = polars.scan_csv(
                header + block.content, separator=self._separator, infer_schema=False, new_columns=self.columns
            )
            try:
                yield lazy.select(columns).collect()
            except polars.exceptions.PolarsError:
                self._text.check_every_row(block)
                raise

    @cached_property
    def _text(self) -> DelimitedText:
        return DelimitedText(self.path, self._separator, _encoding_named(self.encoding))

    @property
    def _separator(self) -> str:
        return self.delimiter or DELIMITERS[suffix_of(self.path)]

    def _header(self) -> list[str]:
        names = self._text.header
        others = [mark for mark in OTHER_DELIMITERS if mark != self._separator and mark in names[0]]
        if len(names) == 1 and others:
            raise TableFileError(
                f"{self.path} has one column only, {shortened(names[0])!r}: between its columns there seems to be "
                f"{others[0]!r}, not {self._separator!r}; give --delimiter {_typed_in_a_shell(others[0])}"
            )
        # The column that some programs write for row numbers has no name.
        return [name.strip() or f"unnamed_{place}" for place, name in enumerate(names, start=1)]


def write_table(path: Path, parts: Iterator[pl.DataFrame]) -> None:
    """Write parts one below the other into a file that appears when all of it is there; not before, and not else."""
    suffix = output_suffix(path)
    first = next(parts)
    with new_file(path) as file:
        if suffix == PARQUET:
            _write_parquet(file, first, parts)
            return
        for number, part in enumerate(chain([first], parts)):
            text = part.write_csv(separator=DELIMITERS[suffix], include_header=number == 0)
            file.write(text.encode())


def _write_parquet(file: IO[bytes], first: pl.DataFrame, parts: Iterator[pl.DataFrame]) -> None:
    from polars.io.plugins import register_io_source

    raised: list[BaseException] = []

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        try:
            yield from chain([first], parts)
        except (Exception, KeyboardInterrupt) as error:
            raised.append(error)
            raise

    lazy: Any = register_io_source(source, schema=first.schema)
    try:
        lazy.sink_parquet(file)
    except needed_polars().exceptions.PolarsError as error:
        if raised:  # which polars before 2 wraps
            raise raised[0] from None
        # It wraps what the system says about the disk.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (_first_line(error),))) from error


@contextmanager
def _clear(path: Path) -> Iterator[None]:
    """What polars or Python says about a file, as one line that says what to do."""
    polars = needed_polars()
    try:
        yield
    except TableFileError:
        raise
    except (UnicodeError, csv.Error, polars.exceptions.PolarsError) as error:
        raise TableFileError(_in_one_line(path, error)) from error


def _in_one_line(path: Path, error: Exception) -> str:
    if suffix_of(path) == PARQUET:
        return f"{path} is damaged or not a Parquet file ({_first_line(error)}); write it again"
    return f"{path} cannot be read as a table ({_first_line(error)}); look for a quote that is not closed"


def _encoding_named(name: str) -> str:
    """The one name of an encoding of text."""
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise TableFileError(
            f"encoding must be one that Python knows, such as cp1252 or utf-16, got {name!r}"
        ) from None


def suffix_of(path: Path) -> str:
    """The ending of a file's name, which says what kind of table it holds; raises unless it is a known one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [GZIPPED] and suffixes[-2:-1] != [PARQUET]:
        suffixes = suffixes[:-1]
    if not suffixes or suffixes[-1] not in SUFFIXES:
        raise TableFileError(f"a table must be in a file that ends in {', '.join(SUFFIXES)}; got {path.name!r}")
    return suffixes[-1]


def output_suffix(path: Path) -> str:
    """The same for a file to be written, which is not compressed."""
    if path.suffix.lower() == GZIPPED:
        raise TableFileError(
            f"a table is not written compressed; let {path.name!r} end without {GZIPPED}, or in .parquet"
        )
    return suffix_of(path)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def shortened(text: str, most: int = 40) -> str:
    """The beginning of a text, for messages."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _typed_in_a_shell(delimiter: str) -> str:
    return {"\t": "tab"}.get(delimiter, f"'{delimiter}'")
