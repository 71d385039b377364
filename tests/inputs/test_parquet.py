import os

import numpy as np
import polars as pl
import pytest

from coverwell.errors import TableFileError
from coverwell.inputs.parquet import Part, TableFiles


def rows(first, n, **more):
    numbers = np.arange(first, first + n)
    return pl.DataFrame({"number": numbers, "half": numbers / 2, **more})


@pytest.fixture
def folder(tmp_path):
    """Three files of 70, 0 and 45 rows that count on."""
    rows(0, 70).write_parquet(tmp_path / "a.parquet", row_group_size=16)
    rows(0, 0).write_parquet(tmp_path / "b.parquet")
    rows(70, 45).write_parquet(tmp_path / "c.parquet")
    return tmp_path


@pytest.mark.parametrize("given", ["*.parquet", ".", "[abc].parquet"])
def test_a_pattern_or_a_folder_means_its_files_by_name(folder, given):
    assert [path.name for path in TableFiles(folder / given).paths] == ["a.parquet", "b.parquet", "c.parquet"]


def test_a_sequence_keeps_its_order(folder):
    files = TableFiles([folder / "c.parquet", str(folder / "a.parquet")])
    assert [path.name for path in files.paths] == ["c.parquet", "a.parquet"]
    assert repr(files).endswith("c.parquet' and 1 more)")


@pytest.mark.parametrize("size", [7, 16, 50, 1000])
def test_parts_are_the_whole_table_in_order(folder, size):
    files = TableFiles(folder)
    parts = files.parts(size)
    assert len(files) == sum(part.n_rows for part in parts) == 115
    assert max(part.n_rows for part in parts) <= size
    for part in parts:
        assert files.read(part, ["number"])["number"].to_list() == list(range(part.number, part.number + part.n_rows))


def test_a_part_is_in_one_file(folder):
    assert TableFiles(folder).parts(64) == [
        Part(folder / "a.parquet", 0, 64, 0),
        Part(folder / "a.parquet", 64, 6, 64),
        Part(folder / "c.parquet", 0, 45, 70),
    ]


@pytest.mark.parametrize("numbers", [[0], [3, 69, 70, 114], range(115), []])
def test_rows_are_taken_by_their_numbers(folder, numbers):
    taken = TableFiles(folder).take(np.array(numbers, dtype=int), ["number"])
    assert taken["number"].to_list() == list(numbers)


@pytest.mark.parametrize("numbers", [[-1], [115], [5, 4], [5, 5]])
def test_row_numbers_outside_the_table_are_refused(folder, numbers):
    with pytest.raises(ValueError, match="must ascend from 0 to at most 114"):
        TableFiles(folder).take(np.array(numbers))


def test_columns_can_be_chosen(folder):
    files = TableFiles(folder, columns=["half"])
    assert files.read(files.parts()[0]).columns == ["half"]
    with pytest.raises(TableFileError, match=r"target 'number' is in the files, but not among the chosen columns"):
        files.check_has(["number"], "target")
    with pytest.raises(TableFileError, match="did you mean number"):
        TableFiles(folder, columns=["nunber"])


def test_columns_may_stand_in_another_order(folder):
    rows(115, 3).select("half", "number").write_parquet(folder / "d.parquet")
    files = TableFiles(folder)
    assert files.read(files.parts()[-1]).columns == ["number", "half"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (rows(115, 3, extra=1.0), r"'extra' is in .*d\.parquet and not in .*a\.parquet"),
        (rows(115, 3).drop("half"), r"'half' is in .*a\.parquet and not in .*d\.parquet"),
        (
            rows(115, 3).cast({"half": pl.String}),
            r"'half' is Float64 in .*a\.parquet and String in .*d\.parquet; convert",
        ),
    ],
)
def test_files_with_other_columns_or_types_are_refused(folder, other, message):
    other.write_parquet(folder / "d.parquet")
    with pytest.raises(TableFileError, match=message):
        TableFiles(folder)


@pytest.mark.parametrize("given", ["none-*.parquet", "none.parquet"])
def test_a_pattern_that_matches_nothing_is_refused(folder, given):
    with pytest.raises(FileNotFoundError, match="none matches; look at the folder and the pattern"):
        TableFiles(folder / given)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["a.parquet", "x.parquet"], FileNotFoundError, r"x\.parquet, but there is none"),
        (["a.parquet", "a.parquet"], ValueError, "every file must be given once"),
        (["t.csv"], TableFileError, r"got 't\.csv'; convert it: polars\.scan_csv"),
        (["d.parquet"], TableFileError, r"d\.parquet is damaged or not a Parquet file"),
    ],
)
def test_files_that_cannot_be_streamed_are_refused(folder, names, error, message):
    (folder / "t.csv").write_text("a,b\n1,2\n")
    (folder / "d.parquet").write_bytes(b"not a table")
    with pytest.raises(error, match=message):
        TableFiles([folder / name for name in names])


def test_files_without_rows_are_refused(folder):
    with pytest.raises(TableFileError, match=r"there must be rows to read, but .*b\.parquet.* has none"):
        len(TableFiles(folder / "b.parquet"))


def test_a_file_that_changes_while_it_is_read_is_noticed(folder):
    files = TableFiles(folder)
    part = files.parts()[0]
    files.read(part)
    rows(0, 70).with_columns(half=0.0).write_parquet(folder / "a.parquet")
    os.utime(folder / "a.parquet", ns=(0, 0))
    with pytest.raises(TableFileError, match=r"a\.parquet has changed since it was opened; begin again"):
        files.read(part)
