"""Tables in files: read in parts as they are, written whole or not at all, and every fault told in one line."""

import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from coverwell.table_files import Kind, TableFile, TableFileError, kinds_of, needed_polars, typed, write_table

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


# Kinds.


KINDS = {
    "whole": (["1", " 2", "-3", None, "NA"], Kind.WHOLE),
    "number": (["1", "2.5", "1e-3", "?", "nan"], Kind.NUMBER),
    "boolean": (["true", "False", " TRUE", None, "null"], Kind.BOOLEAN),
    "text": (["a", "1", "true", None, "N/A"], Kind.TEXT),
    "nothing": ([None, "NA", None, "", "?"], Kind.WHOLE),
}


def test_the_kind_of_a_column_is_judged_by_all_rows():
    frame = pl.DataFrame({name: texts for name, (texts, _) in KINDS.items()})
    assert kinds_of(frame) == {name: kind for name, (_, kind) in KINDS.items()}


def test_columns_become_what_they_are(tmp_path):
    frame = pl.DataFrame({name: texts for name, (texts, _) in KINDS.items()})
    result = typed(frame, kinds_of(frame), path=tmp_path)
    assert result["whole"].to_list() == [1, 2, -3, None, None]
    assert result["number"].to_list() == [1.0, 2.5, 0.001, None, None]
    assert result["boolean"].to_list() == [True, False, True, None, None]
    assert result["text"].to_list() == ["a", "1", "true", None, None]
    assert result["nothing"].null_count() == 5


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("bits") / "t.csv"
    write_table(path, iter([pl.DataFrame({"x": values})]))
    table = TableFile(path).read()
    np.testing.assert_array_equal(typed(table, {"x": Kind.NUMBER}, path=path)["x"].to_numpy(), values)


def test_a_value_of_another_kind_is_told_with_its_row(tmp_path):
    frame = pl.DataFrame({"age": ["1", "NA", "old"]})
    with pytest.raises(TableFileError, match=r"column age must hold numbers, but row 13 of .* has 'old'; mend it"):
        typed(frame, {"age": Kind.NUMBER}, path=tmp_path, first_row=10)


def test_a_parquet_file_says_itself_what_its_columns_are(tmp_path):
    frame = pl.DataFrame({"x": [1, 2]})
    assert kinds_of(frame) == {}
    assert_frame_equal(typed(frame, {"x": Kind.TEXT}, path=tmp_path), frame)


# Faults.


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["is empty", "column names"]),
        ("a,b\n", ["has a header but no rows"]),
        ("a,b,a\n1,2,3\n", ["has a more than once", "rename or remove"]),
        ("a;b\n1;2\n", ["one column only, 'a;b'", "give --delimiter ';'"]),
        ("a\tb\n1\t2\n", ["give --delimiter tab"]),
        ("a,b\n1,caf\u00e9\n".encode("latin-1"), ["must be UTF-8", "line 2 has the byte 0xe9", "iconv"]),
        ("a,caf\u00e9\n1,2\n".encode("latin-1"), ["must be UTF-8", "line 1 has the byte 0xe9"]),
        ("a,b\n1,2\n".encode("utf-16"), ["must be UTF-8", "begins as UTF-16 does"]),
        ("a,b\n1,2,3\n", ["rows with more columns than its header", "--delimiter"]),
        ('a,b\n1,"x\n2,3\n', ["cannot be read as a table", "quote"]),
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


@pytest.mark.parametrize("name", ["table.xlsx", "table", "table.csv.gz"])
def test_another_kind_of_file_is_told(tmp_path, name):
    with pytest.raises(TableFileError, match=r"ends in \.csv, \.tsv, \.tab, \.parquet; got 'table"):
        TableFile(tmp_path / name)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
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
