"""Tables in files: CSV, TSV and Parquet, read in parts and written whole or not at all.

polars parses and writes them. It would silently fill short rows with missing values, and read a blank line as a row of
them, so the fields of a text file are counted first. Whatever is wrong with a file is a `TableFileError` of one line.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from coverwell.errors import BlankLinesWarning, DecimalCommaWarning, TableFileError
from coverwell.files import new_file

if TYPE_CHECKING:
    import polars as pl

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET, GZIPPED, UTF8 = ".parquet", ".gz", "utf-8"
SUFFIXES = (*DELIMITERS, PARQUET)
POINT, COMMA = DECIMALS = (".", ",")
DECIMAL_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NO_VALUE = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "")
# What a column of text may hold, beside text and times, which stay text.
KINDS = {"whole": "whole numbers", "numbers": "numbers", "booleans": "true or false"}
ROWS_AT_A_TIME, CHARACTERS_AT_A_TIME = 2**16, 2**22
LONGEST_ROW = 2**24  # characters; a longer one has a quote that is not closed
OTHER_FILES = {
    b"PK\x03\x04": "a zip archive, as spreadsheets are; save it as CSV",
    b"PAR1": "a Parquet file; let its name end in .parquet",
    b"BZh": "compressed by bzip2; unpack it first",
    b"\xfd7zXZ": "compressed by xz; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it first",
}


def needed_polars() -> Any:
    """The package polars, or an ImportError that names the extra that brings it."""
    try:
        import polars
    except ImportError:
        way_out = 'install the extra `tables`: pip install "coverwell[tables]"'
        raise ImportError(f"tables in files need polars; {way_out}") from None
    return polars


@dataclass(frozen=True)
class TableFile:
    """A table in a file whose name ends in .csv, .tsv, .tab or .parquet; text may be gzipped, as .csv.gz."""

    path: Path
    delimiter: str | None = None  # between the columns of a text file; a comma if None, in .tsv and .tab files a tab
    decimal: str = POINT  # the mark in numbers of a text file; with the comma, a text with a point is no number
    encoding: str = UTF8  # of a text file, as Python names it
    content: bytes | None = field(
        default=None, repr=False
    )  # in place of a file's; the path is then a name for messages

    def __post_init__(self) -> None:
        table_suffix(self.path)
        mark = COMMA if self.delimiter is None else self.delimiter
        if len(mark) != 1 or not mark.isascii() or mark in '"\r\n':
            raise TableFileError(f"the delimiter must be one character of ASCII such as ';', or tab, got {mark!r}")
        if self.decimal not in DECIMALS:
            raise TableFileError(f"decimal must be '.' or ',', got {self.decimal!r}")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            must = "encoding must be one that Python knows, such as cp1252 or utf-16"
            raise TableFileError(f"{must}, got {self.encoding!r}") from None

    @property
    def is_text(self) -> bool:
        return table_suffix(self.path) != PARQUET

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns, all different."""
        if self.content is None and not self.path.is_file():
            what = "is a folder" if self.path.is_dir() else "is no plain file"
            raise self._fault(f"{what if self.path.exists() else 'does not exist'}; give a file")
        if self.is_text:
            with self.clear_errors(), self._open() as file:
                names = self._header(file)[0]
        else:
            names = list(self.schema)
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            has = f"{self.path} has {_listed(twice)} more than once; rename or remove columns"
            raise TableFileError(f"every column must have a name of its own, but {has}")
        return names

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The polars type of each column; in a text file all are text."""
        if self.is_text:
            return dict.fromkeys(self.columns, needed_polars().String)
        with self.clear_errors():
            return dict(needed_polars().scan_parquet(self.path, glob=False).collect_schema())

    def check_has(self, names: Sequence[str], what: str = "column") -> None:
        """Raise unless all of these columns are there."""
        if unknown := [name for name in names if name not in self.columns]:
            close = difflib.get_close_matches(unknown[0], self.columns, n=1)
            hint = f"did you mean {close[0]}?" if close else f"its columns are {_listed(self.columns)}"
            raise self._fault(f"has no {what} {_listed(unknown)}; {hint}")

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """All rows; those of a text file as text."""
        return needed_polars().concat(list(self.parts(columns)))  # type: ignore[no-any-return]

    def parts(self, columns: Sequence[str] | None = None, rows: int = ROWS_AT_A_TIME) -> Iterator[pl.DataFrame]:
        """The rows in parts of so many each, the last of fewer; those of a text file as text."""
        columns = self.columns if columns is None else list(columns)
        self.check_has(columns)
        polars, n_rows, held = needed_polars(), 0, needed_polars().DataFrame()
        with self.clear_errors():
            if self.is_text:
                parts = self._text_parts(columns)
            else:  # about as many rows as asked for
                lazy = polars.scan_parquet(self.path, glob=False).select(columns)
                parts = lazy.collect_batches(chunk_size=rows, maintain_order=True)
            for part in parts:
                n_rows += len(part)
                held = polars.concat([held, part], rechunk=True) if len(held) else part
                while len(held) >= rows:
                    yield held[:rows]
                    held = held[rows:]
            if n_rows == 0:
                raise self._fault("has a header but no rows")
            if len(held):
                yield held

    def _text_parts(self, columns: list[str]) -> Iterator[pl.DataFrame]:
        polars, mark = needed_polars(), self._separator
        fields = mark.join(f'"{place}"' for place in range(len(self.columns)))  # a header says how many there are
        with self._open() as file:
            _, n_lines, n_blank = self._header(file)
            for text, line in self._blocks(file, n_lines + 1):
                rows, n_between = self._checked(text, line)
                n_blank += n_between
                content = f"{fields}\n{rows}".encode()
                lazy = polars.scan_csv(content, separator=mark, infer_schema=False, new_columns=self.columns)
                try:
                    yield lazy.select(columns).collect()
                except polars.exceptions.PolarsError:  # which does not name the line
                    self._checked(text, line, every_row=True)
                    for number, row in enumerate(text.split("\n"), line):
                        if row.count('"') % 2:
                            where = f"look at line {number} for a quote that is not closed"
                            way_out = "a quote within a text must be doubled, and the text be quoted"
                            raise self._fault(f"cannot be read as a table: {where}; {way_out}") from None
                    raise
        if n_blank:
            were = "blank line was" if n_blank == 1 else "blank lines were"
            warnings.warn(f"{n_blank} {were} left out of {self.path}", BlankLinesWarning, stacklevel=2)

    @property
    def _separator(self) -> str:
        return self.delimiter or DELIMITERS[table_suffix(self.path)]

    def _header(self, file: io.TextIOWrapper) -> tuple[list[str], int, int]:
        """The names of the columns, the number of the line that they end in, and how many blank lines stand above."""
        reader = csv.reader(file, delimiter=self._separator)
        rows = ((names, n) for n, names in enumerate(reader) if len(names) > 1 or "".join(names).strip())
        names, n_blank = next(rows, ([], 0))
        if not names:
            raise self._fault("is empty; it must have a line of column names, and rows below it")
        if "\0" in "".join(names):
            raise self._not_utf8(f"line {reader.line_num} has the byte 0x00", "utf-16-le")
        others = [mark for mark in (";", "\t", "|", ",") if mark != self._separator and mark in names[0]]
        if len(names) == 1 and others:
            in_a_shell = "tab" if others[0] == "\t" else f"'{others[0]}'"
            seems = f"between its columns there seems to be {others[0]!r}, not {self._separator!r}"
            raise self._fault(f"has one column only, {_short(names[0])!r}: {seems}; give --delimiter {in_a_shell}")
        # The column that some programs write for row numbers has no name.
        names = [name.strip() or f"unnamed_{place}" for place, name in enumerate(names, start=1)]
        return names, reader.line_num, n_blank

    def _blocks(self, file: io.TextIOWrapper, line: int) -> Iterator[tuple[str, int]]:
        """The text from this line on, cut where rows end, each block with the number of its first line."""
        rest = ""
        while len(rest) <= LONGEST_ROW and (piece := file.read(CHARACTERS_AT_A_TIME)):
            text = rest + piece
            end = text.rfind("\n") + 1
            n_quotes = text.count('"', 0, end) if '"' in text else 0
            while n_quotes % 2:  # a line end between quotes ends no row
                before = text.rfind("\n", 0, end - 1) + 1
                n_quotes, end = n_quotes - text.count('"', before, end), before
            yield text[:end], line
            rest, line = text[end:], line + text.count("\n", 0, end)
        if len(rest) > LONGEST_ROW or rest.count('"') % 2:
            what = f"the row that begins in line {line} has no end; look for a quote that is not closed"
            raise self._fault(f"cannot be read as a table: {what}")
        if rest:
            yield f"{rest}\n", line

    def _checked(self, text: str, line: int, *, every_row: bool = False) -> tuple[str, int]:
        """The rows without blank lines, and how many these were; raises if a row has too few or too many fields.

        It is enough if all fields together are as many as they should be: a row with too few then needs another with
        too many, and that is an error of polars.
        """
        n_fields, unquoted = len(self.columns), "".join(text.split('"')[::2]) if '"' in text else text
        n_expected = (n_fields - 1) * unquoted.count("\n")
        if n_expected and unquoted.count(self._separator) == n_expected and not every_row:
            return text, 0
        lines = [f"{content}\n" for content in text.split("\n")[:-1]]
        reader = csv.reader(lines, delimiter=self._separator)
        kept, n_blank, end = [], 0, 0
        for fields in reader:
            start, end = end, reader.line_num
            row = "".join(lines[start:end])
            if not row.strip(" \r\n"):
                n_blank += 1
            elif len(fields) == n_fields:
                kept.append(row)
            else:
                found = f"has {len(fields)} field{'s' * (len(fields) > 1)}, but its header has {n_fields}"
                way_out = f"mend the line, or give the right --delimiter, which is {self._separator!r} here"
                raise TableFileError(f"line {line + start} of {self.path} {found}; {way_out}")
        return "".join(kept), n_blank

    @contextmanager
    def _open(self) -> Iterator[io.TextIOWrapper]:
        with self._unpacked() as file:
            begin = file.read(CHARACTERS_AT_A_TIME)
            for mark, what in OTHER_FILES.items():
                if begin.startswith(mark):
                    raise self._fault(f"is no text but {what}")
            if codecs.lookup(self.encoding).name == UTF8 and begin.startswith(UTF16_MARKS):
                raise self._not_utf8("it begins as UTF-16 does", "utf-16")
            if b"\r" in begin and b"\n" not in begin:
                way_out = "save it with other line ends, for example by tr '\\r' '\\n'"
                raise self._fault(f"has lines that end as on old Macs, by a carriage return alone; {way_out}")
            file.seek(len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0)
            with io.TextIOWrapper(file, self.encoding, newline="\n") as text:
                yield text

    def _unpacked(self) -> io.BufferedReader | io.BytesIO | gzip.GzipFile:
        if self.content is not None:
            return io.BytesIO(self.content)
        with self.path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        return gzip.open(self.path) if is_packed else self.path.open("rb")

    def _not_utf8(self, wrong: str, likely: str) -> TableFileError:
        way_out = f"say how it was saved, for example by --encoding {likely}, or save it as UTF-8"
        return self._fault(f"must be UTF-8 text, but {wrong}; {way_out}")

    def _fault(self, what: str) -> TableFileError:
        return TableFileError(f"{self.path} {what}")

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Errors of polars or Python about the file as one line with a way out."""
        try:
            yield
        except TableFileError:
            raise
        except UnicodeError as error:
            with self._unpacked() as file:
                for number, line in enumerate(file if codecs.lookup(self.encoding).name == UTF8 else (), start=1):
                    try:
                        line.decode()
                    except UnicodeDecodeError as bad:
                        wrong = f"line {number} has the byte 0x{line[bad.start]:02x}"
                        raise self._not_utf8(wrong, "cp1252") from None
            what = f"is not in the encoding {self.encoding} ({error}); give the right --encoding"
            raise self._fault(what) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._fault(f"is a damaged gzip file ({error}); take another copy, or pack it again") from None
        except (csv.Error, needed_polars().exceptions.PolarsError) as error:
            why = str(error).strip().partition("\n")[0]
            if self.is_text:
                raise self._fault(f"cannot be read as a table ({why}); look for a quote that is not closed") from error
            raise self._fault(f"is damaged or not a Parquet file ({why}); write it again") from error

    def kinds(self, frame: pl.DataFrame) -> dict[str, str]:
        """What each column of text holds, by all its rows; none for a Parquet file, whose columns have types.

        Warns of text in which every value has, or could have, a decimal comma.
        """
        found, commas = {}, []
        for texts in frame if self.is_text else ():
            kinds = (kind for kind in KINDS if _first_unreadable(texts, as_kind(kind, texts, self.decimal)) is None)
            found[texts.name] = next(kinds, "text")
            if found[texts.name] == "text":
                some = as_kind("text", texts, POINT).drop_nulls()
                could_have = some.str.contains(f"^(?:{DECIMAL_COMMA}|[+-]?[0-9]+)$").all()
                if could_have and some.str.contains(COMMA, literal=True).any():
                    commas.append(texts.name)
        if commas:
            may = "may hold numbers with a decimal comma, and is read as text; if so, give --decimal ,"
            warnings.warn(f"{', '.join(commas)} of {self.path} {may}", DecimalCommaWarning, stacklevel=2)
        return found

    def typed(
        self, frame: pl.DataFrame, kinds: Mapping[str, str], rows: Sequence[int] | None = None, what: str = "column"
    ) -> pl.DataFrame:
        """The frame with its columns of text turned into what they hold; a Parquet file's columns have types already.

        A value of another kind is an error, and so is an infinite number. For the message, `rows` has the place of
        each row in the file, counted from 0, and `what` names the columns.
        """
        changed = (
            [as_kind(kinds[column.name], column, self.decimal) for column in frame] if self.is_text else list(frame)
        )
        for given, values in zip(frame, changed, strict=True):
            if self.is_text and (place := _first_unreadable(given, values)) is not None:
                must, has = KINDS[kinds[given.name]], f"has {_short(given[place])!r}"
            elif values.dtype.is_float() and (infinite := values.is_infinite()).any():
                must, has, place = "finite numbers", "is infinite", int(infinite.arg_true()[0])
            else:
                continue
            row = 1 + (place if rows is None else rows[place])
            way_out = "mend it, or leave it empty where the value is missing"
            if self.is_text and self.decimal == POINT and re.fullmatch(DECIMAL_COMMA, given[place].strip()):
                way_out = "if that is a decimal comma, give --decimal ,"
            raise TableFileError(f"{what} {given.name} must hold {must}, but row {row} of {self.path} {has}; {way_out}")
        return frame.with_columns(changed)


def as_kind(kind: str, texts: pl.Series, decimal: str) -> pl.Series:
    """The values; null where there is none, or where the text is not of the kind."""
    polars, stripped = needed_polars(), texts.str.strip_chars()
    match kind:
        case "whole":
            return stripped.cast(polars.Int64, strict=False)
        case "numbers":
            if decimal == COMMA:  # a point could only stand between thousands
                has_point = stripped.str.contains(POINT, literal=True)
                stripped = stripped.set(has_point, None).str.replace(COMMA, POINT, literal=True)
            return stripped.cast(polars.Float64, strict=False).fill_nan(None)
        case "booleans":
            known = {"true": True, "false": False}
            return stripped.str.to_lowercase().replace_strict(known, default=None, return_dtype=polars.Boolean)
    return stripped.set(stripped.is_in(NO_VALUE), None)


def unreadable(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Where a text is not of the kind, and does not stand for a missing value either."""
    return values.is_null() & texts.is_not_null() & ~texts.str.strip_chars().is_in(NO_VALUE)


def _first_unreadable(texts: pl.Series, values: pl.Series) -> int | None:
    if values.null_count() == texts.null_count():
        return None
    wrong = unreadable(texts, values)
    return wrong.arg_max() if wrong.any() else None


def write_table(path: Path, parts: Iterator[pl.DataFrame]) -> None:
    """Write parts one below the other into a file that appears when it is complete, and otherwise not at all."""
    suffix, first = table_suffix(path, to_write=True), next(parts)
    with new_file(path) as file:
        if suffix == PARQUET:
            _write_parquet(file, first, parts)
            return
        for number, part in enumerate(chain([first], parts)):
            file.write(part.write_csv(separator=DELIMITERS[suffix], include_header=number == 0).encode())


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
        if number := re.search(r"os error (\d+)", str(error)):  # it wraps errors of the system about the disk
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise


def table_suffix(path: Path, *, to_write: bool = False) -> str:
    """The ending of a file's name, the kind of its table; raises unless it is a known one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [GZIPPED] and to_write:
        way_out = f"let {path.name!r} end without {GZIPPED}, or in .parquet"
        raise TableFileError(f"a table is not written compressed; {way_out}")
    if suffixes[-1:] == [GZIPPED] and suffixes[-2:-1] != [PARQUET]:
        suffixes = suffixes[:-1]
    if not suffixes or suffixes[-1] not in SUFFIXES:
        raise TableFileError(f"a table must be in a file that ends in {', '.join(SUFFIXES)}; got {path.name!r}")
    return suffixes[-1]


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
