"""Tables in files: read in parts as they are, written whole or not at all, and every fault told in one line."""

import gzip
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from coverwell import delimited
from coverwell.table_files import (
    TableFile,
    TableFileError,
    needed_polars,
    output_suffix,
    write_table,
)

FRAME = pl.DataFrame({"a": ["1", "2", "3"], "b": ["x", "y, z", 'say "hi"\nagain']})


@pytest.fixture
def written(tmp_path):
    """Writes bytes or text into a file and gives it as a table."""

    def write(content, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return TableFile(path, **options)

    return write


def refused(table, *parts):
    """The one line in which a table is refused."""
    with pytest.raises(TableFileError) as caught:
        table.read()
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(table.path), *parts):
        assert part in message


# Reading.


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".tab", ".parquet", ".CSV"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    write_table(path, iter([FRAME[:2], FRAME[2:]]))
    assert_frame_equal(TableFile(path).read(), FRAME)
    assert TableFile(path).columns == ["a", "b"]


@given(n_rows=st.integers(1, 50), size=st.integers(1, 20), parquet=st.booleans())
def test_parts_have_as_many_rows_as_asked_for_and_are_the_whole_table(tmp_path_factory, n_rows, size, parquet):
    path = tmp_path_factory.mktemp("parts") / ("t.parquet" if parquet else "t.csv")
    frame = pl.DataFrame({"row": [str(i) for i in range(n_rows)]})
    write_table(path, iter([frame]))
    parts = list(TableFile(path).parts(rows=size))
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert 0 < len(parts[-1]) <= size
    assert_frame_equal(pl.concat(parts), frame)


def test_columns_come_in_the_order_in_which_they_are_asked_for(written):
    assert written("a,b,c\n1,2,3\n").read(["c", "a"]).rows() == [("3", "1")]


def test_a_text_file_is_text_to_the_letter(written):
    table = written("id,x,y\n007,NA, 1.50\n008,,nan\n").read()
    assert table.rows() == [("007", "NA", " 1.50"), ("008", None, "nan")]


def test_another_delimiter_may_be_given(written):
    assert written("a;b\n1;2\n", delimiter=";").read().rows() == [("1", "2")]
    assert written("a,b\n1,2\n", "t.tsv", delimiter=",").read().rows() == [("1", "2")]


def test_blanks_around_names_do_not_count_and_a_column_without_a_name_gets_one(written):
    assert written(", a ,b\n0,1,2\n").columns == ["unnamed_1", "a", "b"]


@pytest.mark.parametrize("content", ["a,b\r\n1,ä\r\n", "a,b\n1,ä", "\ufeffa,b\n1,ä\n"])
def test_line_ends_and_marks_of_other_systems_are_understood(written, content):
    assert written(content).read().to_dicts() == [{"a": "1", "b": "ä"}]


# Text of other programs.


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.tsv.gz"])
def test_a_gzipped_file_is_read_whatever_its_name(written, name):
    mark = "\t" if "tsv" in name else ","
    assert written(gzip.compress(f"a{mark}b\n1{mark}2\n".encode()), name).read().rows() == [("1", "2")]


def test_a_table_is_not_written_gzipped(tmp_path):
    with pytest.raises(TableFileError, match=r"not written compressed; let 'out.csv.gz' end without .gz"):
        output_suffix(tmp_path / "out.csv.gz")


@pytest.mark.parametrize("encoding", ["latin1", "cp1252", "utf-16", "utf-16-le", "shift_jis", "utf-8-sig"])
def test_other_encodings_are_read_wherever_the_file_is_cut(written, encoding, monkeypatch):
    monkeypatch.setattr(delimited, "BYTES_IN_HAND", 3)
    letter = "\u30c6" if encoding == "shift_jis" else "\u00e9"
    table = written(f"a,{letter}\n1,caf{letter}\n".encode(encoding), encoding=encoding)
    assert table.read().to_dicts() == [{"a": "1", letter: f"caf{letter}"}]


def test_a_wrong_or_unknown_encoding_is_told(written):
    refused(written("a,b\n1,\u00e9\n".encode("latin1"), encoding="ascii"), "is not in the encoding ascii", "--encoding")
    for unknown in ("klingon", "rot13", "base64", ""):
        with pytest.raises(TableFileError, match="encoding must be one that Python knows"):
            written("a,b\n1,2\n", encoding=unknown)


def test_a_folder_or_nothing_at_the_place_of_a_table_is_told(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, what in (
        ("folder.csv", "is a folder"),
        ("gone.csv", "does not exist"),
        ("gone.parquet", "does not exist"),
    ):
        with pytest.raises(TableFileError, match=rf"{name} {what}; give a file"):
            TableFile(tmp_path / name).read()


# Faults.


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["is empty", "column names"]),
        ("a,b\n", ["has a header but no rows"]),
        ("a,b,a\n1,2,3\n", ["has a more than once", "rename or remove"]),
        ("a;b\n1;2\n", ["one column only, 'a;b'", "give --delimiter ';'"]),
        ("a\tb\n1\t2\n", ["give --delimiter tab"]),
        ("a,b\n1,caf\u00e9\n".encode("latin-1"), ["must be UTF-8", "line 2 has the byte 0xe9", "--encoding cp1252"]),
        ("a,caf\u00e9\n1,2\n".encode("latin-1"), ["must be UTF-8", "line 1 has the byte 0xe9"]),
        ("a,b\n1,2\n".encode("utf-16"), ["must be UTF-8", "begins as UTF-16 does", "--encoding utf-16"]),
        ("a,b\n1,2,3\n", ["line 2 of", "has 3 fields, but its header has 2", "--delimiter"]),
        ('a,b\n1,"x\n2,3\n', ["cannot be read as a table", "the row that begins in line 2 has no end", "quote"]),
        ('a,b\n1,5" pipe\n2,3\n3,6" pipe\n', ["cannot be read as a table", "line 2", "must be doubled"]),
        ('a,b\n1,2\n"1" ,2\n', ["cannot be read as a table"]),
        ("a,b,c\n1,2\n1,2,3,4\n", ["line 2 of", "has 2 fields, but its header has 3"]),
        ("a,b,c\n1,2,3,4\n1,2\n", ["line 2 of", "has 4 fields, but its header has 3"]),
        ("a,b\r1,2\r", ["end as on old Macs", "tr '\\r' '\\n'"]),
        (b"PK\x03\x04 and more", ["is no text but a zip archive, as spreadsheets are; save it as CSV"]),
        (b"PAR1 and more", ["let its name end in .parquet"]),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-4], ["is a damaged gzip file"]),
        ("a,b\n1,2\n".encode("utf-16-le"), ["line 1 has the byte 0x00", "--encoding utf-16-le"]),
        ("\n\n", ["is empty"]),
        (b"\xef\xbb\xbf", ["is empty"]),
        (b"\x00\x01\x02,\xff\n", ["must be UTF-8"]),
    ],
)
def test_a_broken_text_file_is_told_in_one_line_with_what_to_do(written, content, parts):
    refused(written(content), *parts)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n" * 10])
def test_a_broken_parquet_file_is_told_in_one_line(written, content):
    refused(written(content, "t.parquet"), "damaged or not a Parquet file")


def test_a_wrong_byte_far_down_is_found_with_its_line(written):
    refused(written(b"a\n" + b"x\n" * 600_000 + b"\xff\n"), "line 600002 has the byte 0xff")


def test_unknown_columns_are_told_with_a_likely_name_or_all_names(written):
    table = written("price,rooms\n1,2\n")
    with pytest.raises(TableFileError, match=r"has no target pirce; did you mean price\?"):
        table.check_has(["pirce"], "target")
    with pytest.raises(TableFileError, match="has no column xyz; its columns are price, rooms"):
        table.read(["xyz"])


@pytest.mark.parametrize("name", ["table.xlsx", "table", "table.gz", "table.parquet.gz"])
def test_another_kind_of_file_is_told(tmp_path, name):
    with pytest.raises(TableFileError, match=r"ends in \.csv, \.tsv, \.tab, \.parquet; got 'table"):
        TableFile(tmp_path / name)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "§"])
def test_a_delimiter_is_one_character(tmp_path, delimiter):
    with pytest.raises(TableFileError, match="one character"):
        TableFile(tmp_path / "t.csv", delimiter)


def test_a_missing_polars_is_told_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r'pip install "coverwell\[tables\]"'):
        needed_polars()


# Writing.


class Broken(Exception):
    """Something that goes wrong half way."""


def breaking():
    yield FRAME
    yield FRAME
    raise Broken


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_that_breaks_half_way_leaves_nothing_and_keeps_what_was_there(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    with pytest.raises(Broken):
        write_table(path, breaking())
    assert list(tmp_path.iterdir()) == []
    path.write_text("before")
    with pytest.raises(Broken):
        write_table(path, breaking())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
