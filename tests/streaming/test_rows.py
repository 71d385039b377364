import numpy as np
import polars as pl
import pytest
import torch

from coverwell.folds import Problem
from coverwell.inputs.columns import Columns
from coverwell.inputs.scaling import InputScaler, TargetScaler
from coverwell.streaming import rows as rows_module
from coverwell.streaming.row_hash import N_LANES, RowHash, group_keys, row_keys
from coverwell.streaming.rows import RowReader, TableLayout, buffers, survey
from coverwell.streaming.table_parts import TableFiles
from coverwell.table_files import TableFileError

N_ROWS = 1200
HASH = RowHash(seed=0, folds=3, repeats=1)


def frame(n=N_ROWS, **changed):
    numbers = np.arange(n, dtype=float)
    house = [f"house {k // 10}" for k in range(n)]
    return pl.DataFrame({"a": numbers, "b": np.sin(numbers), "house": house, "y": 2 * numbers}).with_columns(**changed)


@pytest.fixture
def folder(tmp_path):
    frame()[:500].write_parquet(tmp_path / "1.parquet")
    frame()[500:].write_parquet(tmp_path / "2.parquet")
    return tmp_path


def reader_of(files, group="house"):
    layout = TableLayout.of(files, ["y"], group)
    table = pl.concat([files.read(part) for part in files.parts()])
    columns = Columns.of(table.select(layout.features))
    return RowReader(
        files,
        layout,
        columns,
        InputScaler.of(columns.transform(table)),
        TargetScaler.of(table.select("y").to_numpy(), unit_range=False),
    )


def problem_of(reader, keys, numbers):
    """A sample of these rows, of which only sizes, folds and places matter here."""
    speaks = torch.from_numpy(HASH.left_out_by(keys))[None]
    x = torch.from_numpy(numbers.astype(np.float32))[None, :, None].expand(1, -1, 2)
    return Problem(x, x[..., :1], ~speaks, speaks, torch.tensor([[0.9]]))


def first_buffers(reader, n, *, rows, row_hash=HASH, lanes=range(N_LANES)):
    keys, numbers = group_keys([f"house {k // 10}" for k in range(N_ROWS)]), row_keys(0, N_ROWS)
    made = buffers(reader, row_hash, problem_of(reader, keys, numbers), numbers, lanes=lanes, rows=rows)
    return [next(made) for _ in range(n)]


def numbers_in(reader, buffer):
    """The row numbers of a buffer, from its targets, which are twice the number."""
    return np.rint(reader.targets.inverse(buffer.problem.y[0].double().numpy())[:, 0] / 2).astype(int)


# The first pass ------------------------------------------------------------------------------------------------------


def test_a_small_table_is_its_own_sample(folder):
    files = TableFiles(folder)
    sample = survey(files, TableLayout.of(files, ["y"], "house"), HASH)
    assert sample.numbers.tolist() == list(range(N_ROWS))
    assert sample.frame.columns == ["a", "b"]
    assert sample.targets[:, 0].tolist() == (2.0 * np.arange(N_ROWS)).tolist()
    assert sample.n_kept == 0


def test_kept_rows_are_not_in_the_sample(folder):
    files, row_hash = TableFiles(folder), RowHash(0, 3, 1, kept_share=0.5)
    sample = survey(files, TableLayout.of(files, ["y"], None), row_hash)
    kept = row_hash.kept(row_keys(0, N_ROWS))
    assert sample.numbers.tolist() == np.flatnonzero(~kept).tolist()
    assert sample.n_kept == kept.sum()


def test_a_sample_of_a_large_table_has_about_the_asked_size(folder, monkeypatch):
    monkeypatch.setattr(rows_module, "SAMPLE_ROWS", 300)
    files = TableFiles(folder)
    sample = survey(files, TableLayout.of(files, ["y"], None), HASH)
    assert abs(len(sample.numbers) - 300) < 4.5 * np.sqrt(300 * 0.75)
    assert sample.frame["a"].to_list() == sample.numbers.tolist()


@pytest.mark.parametrize(("value", "told"), [(None, "missing"), (float("nan"), "missing"), (float("inf"), "infinite")])
def test_a_target_without_a_number_is_told_with_its_row_and_file(folder, value, told):
    frame(y=pl.when(pl.col("a") == 640).then(value).otherwise(pl.col("y")))[500:].write_parquet(folder / "2.parquet")
    files = TableFiles(folder)
    with pytest.raises(
        TableFileError, match=rf"'y' must be a finite number in every row, but is {told} in row 141 of .*2"
    ):
        survey(files, TableLayout.of(files, ["y"], None), HASH)


def test_a_row_without_a_group_is_told_with_its_row_and_file(folder):
    frame(house=pl.when(pl.col("a") == 7).then(None).otherwise(pl.col("house")))[:500].write_parquet(
        folder / "1.parquet"
    )
    files = TableFiles(folder)
    with pytest.raises(
        TableFileError, match=r"'house' must have a value in every row, but has none in row 8 of .*1\.par"
    ):
        survey(files, TableLayout.of(files, ["y"], "house"), HASH)


def test_columns_have_one_use_each(folder):
    files = TableFiles(folder)
    layout = TableLayout.of(files, ["y", "b"], "house")
    assert (layout.features, layout.targets) == (("a",), ("y", "b"))
    for targets, group in ((["y", "y"], None), (["y"], "y"), ([], None)):
        with pytest.raises(ValueError, match="each once and none of them groups"):
            TableLayout.of(files, targets, group)
    with pytest.raises(TableFileError, match="no target z"):
        TableLayout.of(files, ["z"], None)
    with pytest.raises(TableFileError, match="the target 'house' must hold numbers, got String"):
        TableLayout.of(files, ["house"], None)
    with pytest.raises(ValueError, match="a column to learn from beside targets"):
        TableLayout.of(TableFiles(folder, columns=["y"]), ["y"], None)


# Buffers -------------------------------------------------------------------------------------------------------------


def test_buffers_of_one_sweep_are_the_whole_table(folder):
    reader = reader_of(TableFiles(folder))
    sweep = first_buffers(reader, 4, rows=400)
    found = np.concatenate([numbers_in(reader, buffer) for buffer in sweep[:3]])
    assert sorted(found) == list(range(N_ROWS))
    again = numbers_in(reader, sweep[3])
    assert list(again) != list(numbers_in(reader, sweep[0]))


def test_a_buffer_has_rows_from_all_over_the_table(folder):
    reader = reader_of(TableFiles(folder))
    (buffer,) = first_buffers(reader, 1, rows=400)
    parts = np.unique(numbers_in(reader, buffer) // 50)
    assert len(parts) >= 8
    assert parts[-1] - parts[0] > 8


def test_rows_keep_their_inputs_folds_and_lanes(folder):
    reader = reader_of(TableFiles(folder))
    (buffer,) = first_buffers(reader, 1, rows=400)
    numbers = numbers_in(reader, buffer)
    expected = reader.inputs.transform(np.column_stack([numbers, np.sin(numbers)]))
    np.testing.assert_allclose(buffer.problem.x[0], expected, atol=1e-5)
    keys = group_keys([f"house {k // 10}" for k in numbers])
    assert (buffer.problem.speaks[0].numpy() == HASH.left_out_by(keys)).all()
    assert (buffer.problem.trains[0] == ~buffer.problem.speaks[0]).all()
    assert (buffer.lanes.numpy() == HASH.lanes(numbers.astype(np.uint64))).all()


def test_a_table_that_fits_is_read_once(folder):
    reader = reader_of(TableFiles(folder))
    one, other = first_buffers(reader, 2, rows=5000)
    assert one is other
    assert one.problem.y.shape[1] == N_ROWS


def test_kept_rows_are_in_no_buffer(folder):
    reader = reader_of(TableFiles(folder, columns=["a", "b", "y"]), group=None)
    row_hash = RowHash(0, 3, 1, kept_share=0.2)
    kept = row_hash.kept(row_keys(0, N_ROWS))
    for buffer in first_buffers(reader, 2, rows=600, row_hash=row_hash):
        assert not kept[numbers_in(reader, buffer)].any()


def test_workers_have_the_rows_of_their_lanes_and_know_the_longest_of_all(folder):
    reader = reader_of(TableFiles(folder))
    (whole,) = first_buffers(reader, 1, rows=1200)
    halves = [first_buffers(reader, 1, rows=1200, lanes=own)[0] for own in (range(4), range(4, 8))]
    assert sum(half.problem.y.shape[1] for half in halves) == whole.problem.y.shape[1]
    assert {half.longest for half in halves} == {whole.longest}
    assert sorted(np.concatenate([numbers_in(reader, half) for half in halves])) == list(range(N_ROWS))


def test_a_buffer_in_which_a_member_finds_too_few_rows_gets_the_sample_too(folder):
    one_house = pl.lit("house 0")
    frame(house=one_house)[:500].write_parquet(folder / "1.parquet")
    frame(house=one_house)[500:].write_parquet(folder / "2.parquet")
    reader = reader_of(TableFiles(folder))
    (buffer,) = first_buffers(reader, 1, rows=400)
    assert buffer.problem.y.shape[1] == 400 + N_ROWS
    assert buffer.problem.trains[0].sum(dim=1).min() > 0


def test_what_is_wrong_with_a_column_is_told_with_the_rows_and_the_file(folder):
    reader = reader_of(TableFiles(folder))
    frame(b=pl.when(pl.col("a") == 640).then(float("inf")).otherwise(pl.col("b")))[500:].write_parquet(
        folder / "2.parquet"
    )
    reader = RowReader(TableFiles(folder), reader.layout, reader.columns, reader.inputs, reader.targets)
    with pytest.raises(TableFileError, match=r"in rows 1 to 700 of .*2\.parquet, column 'b' must hold finite numbers"):
        reader.rows(reader.files.parts()[-1])
