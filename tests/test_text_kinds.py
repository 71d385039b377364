"""Columns of text become numbers, booleans or text, and a value of another kind is told with its row."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from coverwell.table_files import TableFile, TableFileError, write_table
from coverwell.text_kinds import Kind, check_finite, kinds_of, typed

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


def test_with_a_decimal_comma_a_point_makes_no_number(tmp_path):
    frame = pl.DataFrame({"x": ["1,5", " -2,25", "3", "1e-2", "NA"], "y": ["1.000", "2", "3,5", None, "4"]})
    kinds = kinds_of(frame, decimal=",")
    assert kinds == {"x": Kind.NUMBER, "y": Kind.TEXT}
    assert typed(frame, kinds, path=tmp_path, decimal=",")["x"].to_list() == [1.5, -2.25, 3.0, 0.01, None]
    with pytest.raises(TableFileError, match=r"row 1 of .* has '1\.000'; mend it"):
        typed(frame, {"y": Kind.NUMBER}, path=tmp_path, decimal=",")
    with pytest.raises(TableFileError, match=r"has '1,5'; if that is a decimal comma, give --decimal ,"):
        typed(frame, {"x": Kind.NUMBER}, path=tmp_path)
    with pytest.raises(TableFileError, match=r"decimal must be '\.' or ','"):
        TableFile(tmp_path / "t.csv", decimal=";")


def test_infinite_numbers_are_told_with_their_row(tmp_path):
    frame = pl.DataFrame({"n": [1, 2, 3], "x": [1.0, None, float("-inf")], "t": ["inf", "", "a"]})
    check_finite(frame[:2], path=tmp_path, rows=range(2))
    with pytest.raises(TableFileError, match=r"column x must hold finite numbers, but row 31 of .* is infinite"):
        check_finite(frame, path=tmp_path, rows=[10, 20, 30])


def test_a_parquet_file_says_itself_what_its_columns_are(tmp_path):
    frame = pl.DataFrame({"x": [1, 2]})
    assert kinds_of(frame) == {}
    assert_frame_equal(typed(frame, {"x": Kind.TEXT}, path=tmp_path), frame)
