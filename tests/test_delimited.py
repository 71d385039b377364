"""Rows of text: cut where rows end, with as many fields as the header, without blank lines, faults with their line."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coverwell import delimited
from coverwell.delimited import BlankLinesWarning, Block, DelimitedText, TableFileError


@pytest.fixture
def text(tmp_path):
    """Writes text into a file and gives its rows."""

    def write(content):
        path = tmp_path / "table.csv"
        path.write_bytes(content.encode())
        return DelimitedText(path, ",")

    return write


def fields(text):
    """The rows of all blocks, parsed by another program."""
    content = b"".join(block.content for block in text.blocks()).decode()
    return list(csv.reader(io.StringIO(content, newline="")))


def test_a_line_end_or_a_comma_between_quotes_is_part_of_a_text():
    block = Block(b'1,"a,b\n""c"\n2,x\n', first_line=5)
    assert np.flatnonzero(block.where(b",")).tolist() == [1, 13]
    assert np.flatnonzero(block.where(b"\n")).tolist() == [11, 15]
    assert (block.line_of(0), block.line_of(12)) == (5, 7)


@pytest.mark.parametrize("content", ["a,b\n1,2\n\n3,4\n  \n\n", "\r\na,b\r\n1,2\r\n \r\n3,4\r\n\r\n"])
def test_blank_lines_are_left_out_and_counted(text, content):
    with pytest.warns(BlankLinesWarning, match=r"3 blank lines were left out of .*table\.csv"):
        assert fields(text(content)) == [["1", "2"], ["3", "4"]]


def test_a_blank_line_between_quotes_and_a_row_of_empty_cells_stay(text):
    assert fields(text('a,b\n1,"x\n\ny"\n,\n')) == [["1", "x\n\ny"], ["", ""]]


def test_blank_lines_of_a_single_column_are_left_out_too(text):
    with pytest.warns(BlankLinesWarning, match="1 blank line was left out"):
        assert fields(text('a\n1\n\n""\n2\n')) == [["1"], [""], ["2"]]


@pytest.mark.parametrize(
    ("rows", "line", "found"),
    [
        ("1,2,3\n4,5\n", 3, 2),
        ("1,2,3\n4,5,6,7\n", 3, 4),
        ('1,"x\ny",3\n\n\n9\n', 6, 1),
    ],
)
def test_a_row_with_another_number_of_fields_is_told_with_its_line(text, rows, line, found):
    with pytest.raises(TableFileError, match=rf"line {line} of .* has {found} fields?, but its header has 3; mend"):
        list(text(f"a,b,c\n{rows}").blocks())


@pytest.mark.parametrize(("rows", "found"), [("1,2\n1,2,3,4\n", 2), ("1,2,3,4\n1,2\n", 4)])
def test_rows_that_make_up_for_each_other_are_found_when_every_row_is_checked(text, rows, found):
    rows = text(f"a,b,c\n{rows}")
    (block,) = rows.blocks()
    with pytest.raises(TableFileError, match=rf"line 2 of .* has {found} fields"):
        rows.check_every_row(block)


@given(
    st.lists(st.lists(st.text('ab ,;"\n\r\t\u00e4', max_size=4), min_size=2, max_size=2), min_size=1, max_size=12),
    st.integers(1, 30),
)
def test_any_text_that_the_csv_module_writes_is_read_wherever_the_file_is_cut(tmp_path_factory, rows, piece):
    path, buffer = tmp_path_factory.mktemp("any") / "t.csv", io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["a", "b"], *rows])
    path.write_bytes(buffer.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BYTES_IN_HAND", piece)
        assert fields(DelimitedText(path, ",")) == rows


def test_lines_are_counted_through_all_blocks(text, monkeypatch):
    monkeypatch.setattr(delimited, "BYTES_IN_HAND", 10)
    rows = text("a,b\n" + "1,2\n" * 100 + "3\n" + "1,2\n" * 100)
    with pytest.raises(TableFileError, match="line 102 of"):
        list(rows.blocks())


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(text, monkeypatch):
    monkeypatch.setattr(delimited, "BYTES_IN_HAND", 100)
    monkeypatch.setattr(delimited, "LONGEST_ROW", 1000)
    rows = text('a,b\n1,"2\n' + "1,2\n" * 1000)
    with pytest.raises(TableFileError, match="the row that begins in line 2 has no end; look for a quote"):
        list(rows.blocks())
