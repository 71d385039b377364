"""Tables in files: read in parts as they are, written whole or not at all, and every fault named in one line."""

import csv
import gzip
import io
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from coverwell import tables
from coverwell.errors import BlankLinesWarning, DecimalCommaWarning, TableFileError
from coverwell.tables import TableFile, needed_polars, table_suffix, write_table

FRAME = pl.DataFrame({"a": ["1", "2", "3"], "b": ["x", "y, z", 'say "hi"\nagain']})


@pytest.fixture
def written(tmp_path):
    """Writes bytes or text into a file and gives it as a table."""

    def write(content, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return TableFile(path, **options)

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(tables, "CHARACTERS_AT_A_TIME", 10)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.tab", "t.CSV", "t.parquet", "t[1].parquet", "t[1].csv"])
def test_a_written_table_is_read_again_and_its_name_is_no_pattern(tmp_path, name):
    write_table(tmp_path / name, iter([FRAME[:2], FRAME[2:]]))
    assert_frame_equal(TableFile(tmp_path / name).read(), FRAME)
    assert TableFile(tmp_path / name).columns == ["a", "b"]


@given(n_rows=st.integers(1, 50), size=st.integers(1, 20), parquet=st.booleans())
def test_parts_have_as_many_rows_as_asked_for_and_are_the_whole_table(tmp_path_factory, n_rows, size, parquet):
    path = tmp_path_factory.mktemp("parts") / ("t.parquet" if parquet else "t.csv")
    frame = pl.DataFrame({"row": [str(i) for i in range(n_rows)]})
    write_table(path, iter([frame]))
    parts = list(TableFile(path).parts(rows=size))
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert 0 < len(parts[-1]) <= size
    assert_frame_equal(pl.concat(parts), frame)


@given(
    st.lists(st.lists(st.text('ab ,;"\n\r\t\u00e4', max_size=4), min_size=2, max_size=2), min_size=1, max_size=12),
    st.integers(1, 30),
)
def test_any_text_that_the_csv_module_writes_is_read_wherever_the_file_is_cut(tmp_path_factory, rows, size):
    path, buffer = tmp_path_factory.mktemp("any") / "t.csv", io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["a", "b"], *rows])
    path.write_bytes(buffer.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHARACTERS_AT_A_TIME", size)
        assert TableFile(path).read().rows() == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("content", "options", "columns", "rows"),
    [
        ("id,x,y\n007,NA, 1.50\n008,,nan\n", {}, None, [("007", "NA", " 1.50"), ("008", None, "nan")]),
        ("a,b,c\n1,2,3\n", {}, ["c", "a"], [("3", "1")]),
        ("a;b\n1;2\n", {"delimiter": ";"}, None, [("1", "2")]),
        ("a,b\n1,2\n", {"delimiter": ",", "name": "t.tsv"}, None, [("1", "2")]),
        (", a ,b\n0,1,2\n", {}, ["unnamed_1", "a", "b"], [("0", "1", "2")]),
        ("a,b\r\n1,ä\r\n", {}, ["a", "b"], [("1", "ä")]),
        ("a,b\n1,ä", {}, None, [("1", "ä")]),
        ("\ufeffa,b\n1,ä\n", {}, ["a", "b"], [("1", "ä")]),
        ('a,"b\nc"\n1,"x\n\ny"\n,\n', {}, ["a", "b\nc"], [("1", "x\n\ny"), (None, None)]),
    ],
)
def test_a_text_file_is_text_to_the_letter(written, content, options, columns, rows):
    assert written(content, **options).read(columns).rows() == rows


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.tsv.gz"])
def test_a_gzipped_file_is_read_whatever_its_name(written, name):
    mark = "\t" if "tsv" in name else ","
    assert written(gzip.compress(f"a{mark}b\n1{mark}2\n".encode()), name).read().rows() == [("1", "2")]


def test_a_table_may_be_given_as_bytes_under_a_name():
    content = b"\xef\xbb\xbfa,b\n1,x\n2,\n"
    frame = TableFile(Path("request.csv"), content=content).read()
    assert_frame_equal(frame, pl.DataFrame({"a": ["1", "2"], "b": ["x", None]}))
    with pytest.raises(TableFileError, match=r"request.csv must be UTF-8 text, but line 1 has the byte 0x8b"):
        TableFile(Path("request.csv"), content=gzip.compress(content)).read()  # bytes are never unpacked


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("encoding", ["latin1", "cp1252", "utf-16", "utf-16-le", "shift_jis", "utf-8-sig"])
def test_other_encodings_are_read(written, encoding):
    letter = "\u30c6" if encoding == "shift_jis" else "\u00e9"
    table = written(f"a,{letter}\n1,caf{letter}\n2,\n".encode(encoding), encoding=encoding)
    assert table.read().to_dicts() == [{"a": "1", letter: f"caf{letter}"}, {"a": "2", letter: None}]


@pytest.mark.parametrize("content", ["a,b\n1,2\n\n3,4\n  \n\n", "\r\na,b\r\n1,2\r\n \r\n3,4\r\n\r\n"])
def test_blank_lines_are_left_out_and_counted(written, content):
    with pytest.warns(BlankLinesWarning, match=r"3 blank lines were left out of .*table\.csv"):
        assert written(content).read().rows() == [("1", "2"), ("3", "4")]
    with pytest.warns(BlankLinesWarning, match="1 blank line was left out"):
        assert written('a\n1\n\n""\n2\n').read().rows() == [("1",), ("",), ("2",)]


def refused(table, *parts):
    """The one line in which a table is refused."""
    with pytest.raises(TableFileError) as caught:
        table.read()
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(table.path), *parts):
        assert part in message


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
        ("a,b,c\n1,2,3\n4,5\n", ["line 3 of", "has 2 fields, but its header has 3; mend the line", "--delimiter"]),
        ("a,b,c\n1,2,3\n4,5,6,7\n", ["line 3 of", "has 4 fields, but its header has 3"]),
        ('a,b,c\n1,"x\ny",3\n\n\n9\n', ["line 6 of", "has 1 field, but its header has 3"]),
        ("a,b,c\n1,2\n1,2,3,4\n", ["line 2 of", "has 2 fields, but its header has 3"]),
        ("a,b,c\n1,2,3,4\n1,2\n", ["line 2 of", "has 4 fields, but its header has 3"]),
        ('a,b\n1,"x\n2,3\n', ["cannot be read as a table", "the row that begins in line 2 has no end", "quote"]),
        ('a,b\n1,5" pipe\n2,3\n3,6" pipe\n', ["cannot be read as a table", "line 2", "must be doubled"]),
        ('a,b\n1,2\n"1" ,2\n', ["cannot be read as a table"]),
        ("a,b\r1,2\r", ["lines that end as on old Macs", "tr '\\r' '\\n'"]),
        (b"PK\x03\x04 and more", ["is no text but a zip archive, as spreadsheets are; save it as CSV"]),
        (b"PAR1 and more", ["let its name end in .parquet"]),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-4], ["is a damaged gzip file"]),
        ("a,b\n1,2\n".encode("utf-16-le"), ["line 1 has the byte 0x00", "--encoding utf-16-le"]),
        ("\n\n", ["is empty"]),
        (b"\xef\xbb\xbf", ["is empty"]),
        (b"\x00\x01\x02,\xff\n", ["must be UTF-8"]),
        (b"a\n" + b"x\n" * 600_000 + b"\xff\n", ["line 600002 has the byte 0xff"]),
    ],
)
def test_a_broken_text_file_is_refused_in_one_line_with_what_to_do(written, content, parts):
    refused(written(content), *parts)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n" * 10])
def test_a_broken_parquet_file_is_refused_in_one_line(written, content):
    refused(written(content, "t.parquet"), "damaged or not a Parquet file")


@pytest.mark.usefixtures("small_blocks")
def test_lines_are_counted_through_all_blocks_and_an_open_quote_does_not_fill_the_memory(written, monkeypatch):
    refused(written("a,b\n" + "1,2\n" * 100 + "3\n" + "1,2\n" * 100), "line 102 of")
    monkeypatch.setattr(tables, "LONGEST_ROW", 1000)
    table = written('a,b\n1,"2\n' + "1,2\n" * 1000 + '"\n')
    refused(table, "the row that begins in line 2 has no end; look for a quote")


def test_a_wrong_or_unknown_encoding_is_refused(written):
    refused(written("a,b\n1,\u00e9\n".encode("latin1"), encoding="ascii"), "is not in the encoding ascii", "--encoding")
    for unknown in ("klingon", "rot13", "base64", ""):
        with pytest.raises(TableFileError, match="encoding must be one that Python knows"):
            written("a,b\n1,2\n", encoding=unknown)


def test_a_folder_or_nothing_at_the_place_of_a_table_is_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, what in {"folder.csv": "is a folder", "gone.csv": "does not", "gone.parquet": "does not exist"}.items():
        with pytest.raises(TableFileError, match=rf"{name} {what}.*; give a file"):
            TableFile(tmp_path / name).read()


def test_unknown_columns_are_named_with_a_likely_name_or_all_names(written):
    table = written("price,rooms\n1,2\n")
    with pytest.raises(TableFileError, match=r"has no target pirce; did you mean price\?"):
        table.check_has(["pirce"], "target")
    with pytest.raises(TableFileError, match="has no column xyz; its columns are price, rooms"):
        table.read(["xyz"])


def test_other_kinds_of_files_and_delimiters_are_refused():
    for name in ("table.xlsx", "table", "table.gz", "table.parquet.gz"):
        with pytest.raises(TableFileError, match=r"ends in \.csv, \.tsv, \.tab, \.parquet; got 'table"):
            TableFile(Path(name))
    for delimiter in ("", ";;", '"', "\n", "§"):
        with pytest.raises(TableFileError, match="one character"):
            TableFile(Path("t.csv"), delimiter)


def test_a_missing_polars_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r'pip install "coverwell\[tables\]"'):
        needed_polars()


KINDS = {
    "whole": (["1", " 2", "-3", None, "NA"], "whole", [1, 2, -3, None, None]),
    "number": (["1", "2.5", "1e-3", "?", "nan"], "numbers", [1.0, 2.5, 0.001, None, None]),
    "boolean": (["true", "False", " TRUE", None, "null"], "booleans", [True, False, True, None, None]),
    "text": (["a", "1", "true", None, "N/A"], "text", ["a", "1", "true", None, None]),
    "nothing": ([None, "NA", None, "", "?"], "whole", [None] * 5),
}


def test_columns_become_what_all_their_rows_are():
    table, frame = TableFile(Path("t.csv")), pl.DataFrame({name: texts for name, (texts, _, _) in KINDS.items()})
    kinds = table.kinds(frame)
    assert kinds == {name: kind for name, (_, kind, _) in KINDS.items()}
    typed = table.typed(frame, kinds)
    assert {column.name: column.to_list() for column in typed} == {name: kind[2] for name, kind in KINDS.items()}
    assert table.typed(frame.select("whole"), {"whole": "times"})["whole"].to_list() == ["1", "2", "-3", None, None]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("bits") / "t.csv"
    write_table(path, iter([pl.DataFrame({"x": values})]))
    table = TableFile(path)
    np.testing.assert_array_equal(table.typed(table.read(), {"x": "numbers"})["x"].to_numpy(), values)


@pytest.mark.parametrize(
    ("texts", "kind", "decimal", "message"),
    [
        (["1", "NA", "old"], "numbers", ".", "the x x must hold numbers, but row 13 of t.csv has 'old'; mend it"),
        (["true", "NA", "no"], "booleans", ".", "x must hold true or false, but row 13 of t.csv has 'no'; mend it"),
        (["1", "2", "-inf"], "numbers", ".", "x must hold finite numbers, but row 13 of t.csv is infinite; mend it"),
        (["1", "2", "1,5"], "numbers", ".", "has '1,5'; if that is a decimal comma, give --decimal ,"),
        (["1,5", "2", "1.000"], "numbers", ",", "row 13 of t.csv has '1.000'; mend it"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_row(texts, kind, decimal, message):
    frame = pl.DataFrame({"x": texts})
    with pytest.raises(TableFileError) as caught:
        TableFile(Path("t.csv"), decimal=decimal).typed(frame, {"x": kind}, rows=[10, 11, 12], what="the x")
    assert message in str(caught.value)


def test_with_a_decimal_comma_a_point_makes_no_number():
    frame = pl.DataFrame({"x": ["1,5", " -2,25", "3", "1e-2", "NA"], "y": ["1.000", "2", "3,5", None, "4"]})
    table = TableFile(Path("t.csv"), decimal=",")
    kinds = table.kinds(frame)
    assert kinds == {"x": "numbers", "y": "text"}
    assert table.typed(frame, kinds)["x"].to_list() == [1.5, -2.25, 3.0, 0.01, None]
    with pytest.raises(TableFileError, match=r"decimal must be '\.' or ','"):
        TableFile(Path("t.csv"), decimal=";")


def test_text_that_looks_like_decimal_commas_brings_a_warning():
    frame = pl.DataFrame({"a": ["1,5", " 2", "NA"], "b": ["1,5", "x", None], "c": ["1", "2", None]})
    with pytest.warns(DecimalCommaWarning, match=r"^a of t\.csv may hold numbers .* give --decimal ,$"):
        TableFile(Path("t.csv")).kinds(frame)
    assert TableFile(Path("t.csv"), decimal=",").kinds(frame)["a"] == "numbers"


def test_a_parquet_file_says_itself_what_its_columns_are():
    table, frame = TableFile(Path("t.parquet")), pl.DataFrame({"x": ["1", "NA"], "y": [1.0, None]})
    assert table.kinds(frame) == {}
    assert_frame_equal(table.typed(frame, {"x": "numbers"}), frame)
    with pytest.raises(TableFileError, match=r"column y must hold finite numbers, but row 2 of t\.parquet is infinite"):
        table.typed(frame.with_columns(y=pl.Series([None, np.inf])), {})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_that_breaks_half_way_leaves_nothing_and_keeps_what_was_there(tmp_path, suffix):
    def breaking():
        yield FRAME
        raise ConnectionError("half way")

    path = tmp_path / f"out{suffix}"
    with pytest.raises(ConnectionError, match="half way"):
        write_table(path, breaking())
    assert list(tmp_path.iterdir()) == []
    path.write_text("before")
    with pytest.raises(ConnectionError, match="half way"):
        write_table(path, breaking())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_is_not_written_gzipped(tmp_path):
    with pytest.raises(TableFileError, match=r"not written compressed; let 'out.csv.gz' end without .gz"):
        table_suffix(tmp_path / "out.csv.gz", to_write=True)
