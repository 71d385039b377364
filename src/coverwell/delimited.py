"""Text files of rows and columns, as blocks of whole rows in UTF-8: every row with as many fields as the header.

A file is read piece by piece, so it may be larger than the memory; it may be compressed by gzip, and in any encoding
that Python knows. Lines without anything are left out. Whatever is wrong is a `TableFileError` of one line that says
where.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import BlankLinesWarning, TableFileError

__all__ = ["BlankLinesWarning", "Block", "DelimitedText", "TableFileError"]

Mask = NDArray[np.bool_]

BYTES_IN_HAND = 2**22
LONGEST_ROW = 2**26  # bytes; more than that without the end of a row is a quote that is not closed
NEW_LINE, RETURN, QUOTE = b"\n", b"\r", b'"'
GZIP = b"\x1f\x8b"
UTF8 = "utf-8"
BLANK_LINES = re.compile(rb"(?: *\r?\n)*")
OTHER_FILES = {
    b"PK\x03\x04": "a zip archive, as spreadsheets are; save it as CSV",
    b"PAR1": "a Parquet file; let its name end in .parquet",
    b"BZh": "compressed by bzip2; unpack it first",
    b"\xfd7zXZ": "compressed by xz; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it first",
}


@dataclass(frozen=True)
class Block:
    """Whole rows, and the number of the line in which they begin."""

    content: bytes
    first_line: int

    @cached_property
    def marks(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.content, np.uint8)

    @cached_property
    def outside(self) -> Mask | None:
        """Which bytes are not between quotes; None where nothing is quoted. A doubled quote ends and begins at once."""
        if QUOTE not in self.content:
            return None
        quotes = (self.marks == ord(QUOTE)).view(np.uint8)
        outside: Mask = np.bitwise_xor.accumulate(quotes) == 0
        return outside

    def where(self, mark: bytes) -> Mask:
        """Where a mark stands that is not quoted."""
        found: Mask = self.marks == ord(mark)
        return found if self.outside is None else found & self.outside

    def line_of(self, place: int) -> int:
        return self.first_line + int(np.count_nonzero(self.marks[:place] == ord(NEW_LINE)))


@dataclass(frozen=True)
class DelimitedText:
    """The rows of a text file below its header.

    Parameters
    ----------
    path : Path
    separator : str
        One ASCII character, between the columns.
    encoding : str
        As Python names it.
    """

    path: Path
    separator: str
    encoding: str = UTF8

    @cached_property
    def header(self) -> list[str]:
        """The fields of the first line that has any."""
        return self._split_header(self._first_block())[0]

    def blocks(self) -> Iterator[Block]:
        """The rows in blocks, each with as many fields as the header; warns of blank lines at the end."""
        n_blank = 0
        for number, block in enumerate(self._cut()):
            rows, n_above = (block, 0) if number else self._split_header(block)[1:]
            checked, n_between = self._checked(rows)
            n_blank += n_above + n_between
            if checked.content:
                yield checked
        if n_blank:
            lines = "blank line was" if n_blank == 1 else "blank lines were"
            warnings.warn(f"{n_blank} {lines} left out of {self.path}", BlankLinesWarning, stacklevel=2)

    def check_every_row(self, block: Block) -> None:
        """Raise with the line of the first row, or of the first text, that cannot be read."""
        try:
            block.content.decode(UTF8)
        except UnicodeDecodeError as error:
            wrong = f"line {block.line_of(error.start)} has the byte 0x{block.content[error.start]:02x}"
            raise TableFileError(self._not_utf8(wrong, "cp1252")) from None
        self._without_blank_rows(block)
        lines = block.content.split(NEW_LINE)
        if odd := [number for number, line in enumerate(lines) if line.count(QUOTE) % 2]:
            raise TableFileError(
                f"{self.path} cannot be read as a table: look at line {block.first_line + odd[0]} for a quote that is "
                "not closed; a quote within a text must be doubled, and the text be quoted"
            )

    def _checked(self, block: Block) -> tuple[Block, int]:
        """The block without blank lines, and how many there were.

        As many separators as there should be in all are taken for good: a row with too few would need another with too
        many, and such a row is an error when the block is parsed.
        """
        n_between = len(self.header) - 1
        n_separators = np.count_nonzero(block.where(self.separator.encode()))
        if n_between and n_separators == n_between * np.count_nonzero(block.where(NEW_LINE)):
            return block, 0
        return self._without_blank_rows(block)

    def _without_blank_rows(self, block: Block) -> tuple[Block, int]:
        n_fields = len(self.header)
        ends = np.flatnonzero(block.where(NEW_LINE))
        if not len(ends):
            return block, 0
        starts = np.concatenate([[0], ends[:-1] + 1])
        found = np.add.reduceat(block.where(self.separator.encode()), starts, dtype=np.intp) + 1
        kept, n_blank = np.ones(len(block.content), dtype=bool), 0
        for row in np.flatnonzero((found != n_fields) | (ends - starts <= len(RETURN))):
            start, end = int(starts[row]), int(ends[row])
            if not block.content[start:end].strip(b" \r"):
                kept[start : end + 1], n_blank = False, n_blank + 1
            elif found[row] != n_fields:
                raise TableFileError(self._ragged(block.line_of(start), int(found[row])))
        return Block(block.marks[kept].tobytes(), block.first_line), n_blank

    def _ragged(self, line: int, found: int) -> str:
        expected = len(self.header)
        fields = "field" if found == 1 else "fields"
        return (
            f"line {line} of {self.path} has {found} {fields}, but its header has {expected}; mend the line, or give "
            f"the right --delimiter, which is {self.separator!r} here"
        )

    def _first_block(self) -> Block:
        for block in self._cut():
            return block
        return Block(b"", 1)

    def _split_header(self, block: Block) -> tuple[list[str], Block, int]:
        """The names of the columns, the rows below them, and how many blank lines were above."""
        start = BLANK_LINES.match(block.content).end()  # type: ignore[union-attr]  # it matches nothing at all too
        below = Block(block.content[start:], block.line_of(start))
        ends = np.flatnonzero(below.where(NEW_LINE))
        if not len(ends):
            raise TableFileError(f"{self.path} is empty; it must have a line of column names, and rows below it")
        end = int(ends[0]) + 1
        line = below.content[:end]
        if b"\x00" in line:
            raise TableFileError(self._not_utf8(f"line {below.first_line} has the byte 0x00", "utf-16-le"))
        try:
            text = line.decode(UTF8)
        except UnicodeDecodeError as error:
            wrong = f"line {below.first_line} has the byte 0x{line[error.start]:02x}"
            raise TableFileError(self._not_utf8(wrong, "cp1252")) from None
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator))
        return names, Block(below.content[end:], below.line_of(end)), below.first_line - block.first_line

    def _cut(self) -> Iterator[Block]:
        """The file cut where rows end."""
        rest, line = b"", 1
        for piece in self._pieces():
            content = rest + piece
            if end := _end_of_rows(content):
                block = Block(content[:end], line)
                yield block
                line = block.line_of(end)
            elif len(content) > LONGEST_ROW:
                raise TableFileError(self._endless(line))
            rest = content[end:]
        if rest:
            block = Block(rest + NEW_LINE, line)
            if not block.where(NEW_LINE)[-1]:
                raise TableFileError(self._endless(line))
            yield block

    def _endless(self, line: int) -> str:
        return (
            f"{self.path} cannot be read as a table: the row that begins in line {line} has no end; look for a quote "
            "that is not closed"
        )

    def _pieces(self) -> Iterator[bytes]:
        """The content in UTF-8, without the mark that some systems put first."""
        n_before, started = 0, False
        decoder = None if self.encoding == UTF8 else codecs.getincrementaldecoder(self.encoding)()
        for raw in self._raw():
            try:
                piece = raw if decoder is None else decoder.decode(raw, final=not raw).encode(UTF8)
            except UnicodeError as error:
                raise TableFileError(
                    f"{self.path} is not in the encoding {self.encoding} ({error}, after {n_before:,} bytes); give the "
                    "right --encoding"
                ) from None
            if not started and piece:
                self._check_begin(piece)
                piece, started = piece.removeprefix(codecs.BOM_UTF8), True
            n_before += len(raw)
            yield piece

    def _raw(self) -> Iterator[bytes]:
        """The bytes of the file, unpacked; the last are none."""
        try:
            with self._open() as file:
                while raw := file.read(BYTES_IN_HAND):
                    yield raw
            yield b""
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableFileError(
                f"{self.path} is a damaged gzip file ({error}); take another copy, or pack it again"
            ) from None

    def _open(self) -> io.BufferedIOBase:
        with self.path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
        return gzip.open(self.path) if packed else self.path.open("rb")

    def _check_begin(self, piece: bytes) -> None:
        for begin, what in OTHER_FILES.items():
            if piece.startswith(begin):
                raise TableFileError(f"{self.path} is no text but {what}")
        if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise TableFileError(self._not_utf8("it begins as UTF-16 does", "utf-16"))
        if RETURN in piece and NEW_LINE not in piece:
            raise TableFileError(
                f"the lines of {self.path} end as on old Macs, by a carriage return alone; save it with other line "
                "ends, for example by tr '\\r' '\\n'"
            )

    def _not_utf8(self, wrong: str, likely: str) -> str:
        return (
            f"{self.path} must be UTF-8 text, but {wrong}; say how it was saved, for example by --encoding {likely}, "
            "or save it as UTF-8"
        )


def _end_of_rows(content: bytes) -> int:
    """Behind the last row that is whole, 0 if there is none: the end of a line before which all quotes are closed."""
    end = content.rfind(NEW_LINE) + 1
    n_quotes = int(np.count_nonzero(np.frombuffer(content, np.uint8, end) == ord(QUOTE))) if end else 0
    while n_quotes % 2:
        before = content.rfind(NEW_LINE, 0, end - 1) + 1
        n_quotes -= content.count(QUOTE, before, end)
        end = before
    return end
