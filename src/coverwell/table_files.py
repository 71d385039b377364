"""Tables in files: CSV, TSV and Parquet, read in parts and written whole or not at all.

A text file is read as text, and each column becomes numbers or booleans, or stays text, in one place (`kinds_of` says
which, `typed` does it), so that a column is read in the same way when a model is fitted and when it is asked. Dates
stay text: `coverwell.columns` reads them. Whatever is wrong with a file is a `TableFileError` of one line.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from coverwell.files import new_file

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Kind", "TableFile", "TableFileError", "kinds_of", "needed_polars", "suffix_of", "typed", "write_table"]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = ".parquet"
SUFFIXES = (*DELIMITERS, PARQUET)
OTHER_DELIMITERS = (";", "\t", "|", ",")
# Texts that stand for no value; the empty text does so by itself.
MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "None", "?")
NOTHING = [*MISSING, ""]
WITH_ANOTHER_MEANING = ('"', "\n", "\r")
ROWS_IN_HAND = 2**16  # at a time, when a file is read in parts
BYTES_IN_HAND = 2**20
NEW_LINE = b"\n"


class TableFileError(ValueError):
    """A file does not hold a table that can be read, or lacks what is asked of it; the message is one line."""


class Kind(Enum):
    """What the texts of a column are."""

    WHOLE = "whole numbers"
    NUMBER = "numbers"
    BOOLEAN = "true or false"
    TEXT = "text"


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
    """A table in a file whose name ends in .csv, .tsv, .tab or .parquet.

    Parameters
    ----------
    path : Path
    delimiter : str, optional
        Between the columns of a text file; by default a comma, in .tsv and .tab files a tab.
    """

    path: Path
    delimiter: str | None = None

    def __post_init__(self) -> None:
        suffix_of(self.path)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in WITH_ANOTHER_MEANING):
            raise TableFileError(f"the delimiter must be one character such as ';', or tab, got {self.delimiter!r}")

    @property
    def is_text(self) -> bool:
        return suffix_of(self.path) != PARQUET

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns, all different."""
        polars = needed_polars()
        with _clear(self.path):
            names = self._header() if self.is_text else list(polars.read_parquet_schema(self.path))
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise TableFileError(
                f"every column must have a name of its own, but {self.path} has {_listed(twice)} more than once; "
                "rename or remove columns"
            )
        return names

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
            for part in self._lazy().select(columns).collect_batches(chunk_size=rows, maintain_order=True):
                held, n_held, empty = [*held, part], n_held + len(part), empty and len(part) == 0
                while n_held >= rows:  # polars gives about as many as it is asked for
                    whole = needed_polars().concat(held, rechunk=True)
                    yield whole[:rows]
                    held, n_held = [whole[rows:]], n_held - rows
            if empty:
                raise TableFileError(f"{self.path} has a header but no rows")
            if n_held:
                yield needed_polars().concat(held, rechunk=True)

    def _lazy(self) -> Any:
        polars = needed_polars()
        if not self.is_text:
            return polars.scan_parquet(self.path, glob=False)
        return polars.scan_csv(
            self.path, separator=self._separator, infer_schema=False, glob=False, new_columns=self.columns
        )

    @property
    def _separator(self) -> str:
        return self.delimiter or DELIMITERS[suffix_of(self.path)]

    def _header(self) -> list[str]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file, delimiter=self._separator), [])
        if not names:
            raise TableFileError(f"{self.path} is empty; it must have a line of column names, and rows below it")
        others = [mark for mark in OTHER_DELIMITERS if mark != self._separator and mark in names[0]]
        if len(names) == 1 and others:
            raise TableFileError(
                f"{self.path} has one column only, {_shortened(names[0])!r}: between its columns there seems to be "
                f"{others[0]!r}, not {self._separator!r}; give --delimiter {_typed_in_a_shell(others[0])}"
            )
        # The column that some programs write for row numbers has no name.
        return [name.strip() or f"unnamed_{place}" for place, name in enumerate(names, start=1)]


def kinds_of(frame: pl.DataFrame) -> dict[str, Kind]:
    """What the texts of each column are, judged by all rows."""
    return {name: _kind_of(frame[name]) for name in frame.columns if frame[name].dtype == needed_polars().String}


def typed(frame: pl.DataFrame, kinds: Mapping[str, Kind], *, path: Path, first_row: int = 0) -> pl.DataFrame:
    """The frame with text columns turned into what they are said to be; values that are not are an error.

    `first_row` is how many rows of the file come before the frame, for messages.
    """
    polars = needed_polars()
    if path.suffix.lower() == PARQUET:
        return frame  # it says itself what its columns are
    changed = []
    for name, kind in kinds.items():
        texts = frame[name]
        if texts.dtype != polars.String:
            continue
        values = _as(kind, texts)
        if odd := _odd(texts, values):
            row, text = odd
            raise TableFileError(
                f"column {name} must hold {kind.value}, but row {first_row + row + 1} of {path} has "
                f"{_shortened(text)!r}; mend it, or leave it empty where the value is missing"
            )
        changed.append(values)
    return frame.with_columns(changed)


def write_table(path: Path, parts: Iterator[pl.DataFrame]) -> None:
    """Write parts one below the other into a file that appears when all of it is there; not before, and not else."""
    first = next(parts)
    with new_file(path) as file:
        if suffix_of(path) == PARQUET:
            _write_parquet(file, first, parts)
            return
        for number, part in enumerate(chain([first], parts)):
            text = part.write_csv(separator=DELIMITERS[suffix_of(path)], include_header=number == 0)
            file.write(text.encode())


def _write_parquet(file: IO[bytes], first: pl.DataFrame, parts: Iterator[pl.DataFrame]) -> None:
    from polars.io.plugins import register_io_source

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        return chain([first], parts)

    lazy: Any = register_io_source(source, schema=first.schema)
    try:
        lazy.sink_parquet(file)
    except needed_polars().exceptions.PolarsError as error:  # it wraps what the system says about the disk
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (_first_line(error),))) from error


def _kind_of(texts: pl.Series) -> Kind:
    for kind in (Kind.WHOLE, Kind.NUMBER, Kind.BOOLEAN):
        if _odd(texts, _as(kind, texts)) is None:
            return kind
    return Kind.TEXT


def _as(kind: Kind, texts: pl.Series) -> pl.Series:
    """The values; null where there is none, or where the text is not of the kind."""
    polars = needed_polars()
    stripped = texts.str.strip_chars()
    match kind:
        case Kind.WHOLE:
            return stripped.cast(polars.Int64, strict=False)
        case Kind.NUMBER:
            return stripped.cast(polars.Float64, strict=False).fill_nan(None)
        case Kind.BOOLEAN:
            known = {"true": True, "false": False}
            return stripped.str.to_lowercase().replace_strict(known, default=None, return_dtype=polars.Boolean)
        case Kind.TEXT:
            return stripped.set(stripped.is_in(NOTHING), None)


def _odd(texts: pl.Series, values: pl.Series) -> tuple[int, str] | None:
    """Place and text of the first that became nothing without standing for nothing."""
    if values.null_count() == texts.null_count():
        return None
    odd = (values.is_null() & texts.is_not_null() & ~texts.str.strip_chars().is_in(NOTHING)).arg_true()
    return (odd[0], texts[odd[0]]) if len(odd) else None


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
    if wrong := _not_utf8(path):
        encoding = "utf-16" if "UTF-16" in wrong else "latin1"
        return f"{path} must be UTF-8 text, but {wrong}; save it as UTF-8, for example by iconv -f {encoding} -t utf-8"
    if "more fields" in str(error):
        return f"{path} has rows with more columns than its header; mend them, or give the right --delimiter"
    return f"{path} cannot be read as a table ({_first_line(error)}); look for a quote that is not closed"


def _not_utf8(path: Path) -> str | None:
    """What says that a file is not UTF-8, with the line where it does."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "it begins as UTF-16 does"
        file.seek(0)
        while content := file.read(BYTES_IN_HAND):
            try:
                decoder.decode(content)
            except UnicodeDecodeError as error:
                bad = error.object[error.start]
                return f"line {line + error.object.count(NEW_LINE, 0, error.start)} has the byte 0x{bad:02x}"
            line += content.count(NEW_LINE)
    return None


def suffix_of(path: Path) -> str:
    """The ending of a file's name, which says what kind of table it holds; raises unless it is a known one."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableFileError(f"a table must be in a file that ends in {', '.join(SUFFIXES)}; got {path.name!r}")
    return suffix


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _shortened(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _typed_in_a_shell(delimiter: str) -> str:
    return {"\t": "tab"}.get(delimiter, f"'{delimiter}'")
