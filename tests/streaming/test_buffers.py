import gc
import hashlib
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, text

from coverwell.companions import grown_forest
from coverwell.errors import TableFileError
from coverwell.inputs.columns import columns_for
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.scaling import Scaling
from coverwell.streaming import buffers
from coverwell.streaming.buffers import (
    N_LANES,
    Buffer,
    LaneBatches,
    RowHash,
    RowStream,
    SampledForest,
    StreamedTable,
    group_keys,
    lanes_of,
    seed_of,
)
from coverwell.training.rows import Rows
from coverwell.trees import Trees

N_ROWS, N_KEYS = 1200, 200_000
HASH = RowHash(seed=0, folds=3, repeats=1)


def row_keys(first, n_rows):
    return np.arange(first, first + n_rows, dtype=np.uint64)


def one_of_two(rank):
    """A worker that only knows its place."""
    return SimpleNamespace(rank=rank, size=2, together=print, summed=print, of_first=print)


@dataclass
class Threads:
    """Two threads of this process as workers that exchange rows."""

    rank: int
    box: list
    barrier: threading.Barrier
    size: int = 2

    def together(self, own):
        self.box[self.rank] = own
        self.barrier.wait(30)
        found = torch.cat(self.box, dim=1)
        self.barrier.wait(30)
        return found

    def summed(self, values):
        return [self.together(value[None, None]).sum(dim=1)[0] for value in values]

    def of_first(self, values):
        return self.together(values[None, None])[0, 0]


def by_two(work):
    """What each of two workers gives."""
    box, barrier = [None, None], threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, [Threads(rank, box, barrier) for rank in (0, 1)]))


def frame(n=N_ROWS, **changed):
    numbers = np.arange(n, dtype=float)
    house = [f"house {k // 10}" for k in range(n)]
    return pl.DataFrame({"a": numbers, "b": np.sin(numbers), "house": house, "y": 2 * numbers}).with_columns(**changed)


def write(folder, **changed):
    frame(**changed)[:500].write_parquet(folder / "1.parquet")
    frame(**changed)[500:].write_parquet(folder / "2.parquet")
    return TableFiles(folder)


@pytest.fixture
def files(tmp_path):
    return write(tmp_path)


def stream_of(files, *, group="house", row_hash=HASH, workers=None):
    """All rows are the sample."""
    table = StreamedTable.of(files, ["y"], group)
    whole = pl.concat([files.read(part) for part in files.parts()])
    columns = columns_for(whole.select(table.features))[0]
    X, y, numbers = columns.transform(whole), whole.select("y").to_numpy(), row_keys(0, N_ROWS)
    inputs, targets = Scaling.of(X, bounded=True), Scaling.of(y)
    left_out = torch.from_numpy(row_hash.left_out_by(numbers if group is None else group_keys(whole[group].to_list())))[
        None
    ]
    x, y = inputs(torch.from_numpy(X.copy()))[None].float(), targets(torch.from_numpy(y.copy()))[None].float()
    scaled = {"inputs": [inputs], "targets": [targets], "seeds": [7], "workers": workers}
    return RowStream(
        table, row_hash, columns, Rows(x, y, ~left_out, left_out, torch.tensor([[0.9]]), **scaled), numbers
    )


def first_buffers(stream, n, *, rows):
    made = stream.buffers(rows)
    return [next(made) for _ in range(n)]


def numbers_in(stream, buffer):
    """The row numbers of a buffer, from its targets, which are twice the number."""
    return np.rint(stream.sample.targets[0].inverse(buffer.y[0].double()).numpy()[:, 0] / 2).astype(int)


KEYS = row_keys(0, N_KEYS)
DEALT = RowHash(seed=3, folds=5, repeats=2, kept_share=0.2)


def within(share, expected, n, sds=4.5):
    """Whether a share of n draws is as near to the expected one as chance allows."""
    return abs(share - expected) < sds * np.sqrt(expected * (1 - expected) / n)


def test_bits_are_those_of_splitmix64():
    # The first number of the reference implementation, started at 1234567; a seed drops the last bit.
    assert seed_of(1234567) == 6457827717110365317 >> 1


def test_folds_lanes_sample_and_kept_rows_have_the_sizes_of_a_fair_draw():
    left_out = DEALT.left_out_by(KEYS)
    assert (left_out.reshape(2, 5, N_KEYS).sum(axis=1) == 1).all()  # every row is left out once in every repeat
    for fold in left_out:
        assert within(fold.mean(), 0.2, N_KEYS)
    for lane in range(N_LANES):
        assert within((DEALT.lanes(KEYS) == lane).mean(), 1 / N_LANES, N_KEYS)
    assert within(DEALT.kept(KEYS).mean(), 0.2, N_KEYS)
    assert within(DEALT.drawn(KEYS, 0.37).mean(), 0.37, N_KEYS)


def test_the_uses_of_a_row_do_not_depend_on_each_other():
    fold, other = DEALT.left_out_by(KEYS)[0], DEALT.left_out_by(KEYS)[5]
    lane, kept, sampled = DEALT.lanes(KEYS) == 0, DEALT.kept(KEYS), DEALT.drawn(KEYS, 0.5)
    uses = [(fold, 0.2), (other, 0.2), (lane, 1 / N_LANES), (kept, 0.2), (sampled, 0.5)]
    for place, (one, p) in enumerate(uses):
        for another, q in uses[place + 1 :]:
            assert within((one & another).mean(), p * q, N_KEYS)


def test_neither_neighbours_nor_seeds_are_alike():
    fold = DEALT.left_out_by(KEYS)[0]
    assert within((fold[1:] & fold[:-1]).mean(), 0.04, N_KEYS)
    same = (DEALT.left_out_by(KEYS)[:5] & RowHash(4, folds=5, repeats=2).left_out_by(KEYS)[:5]).any(axis=0)
    assert within(same.mean(), 0.2, N_KEYS)


@given(first=integers(0, 2**40), n=integers(1, 200), seed=integers(0, 2**31))
def test_a_row_is_dealt_alike_wherever_a_part_begins(first, n, seed):
    row_hash = RowHash(seed, folds=3, repeats=1, kept_share=0.5)
    whole, tail = row_keys(first, n), row_keys(first + n // 2, n - n // 2)
    assert (row_hash.left_out_by(whole)[:, n // 2 :] == row_hash.left_out_by(tail)).all()
    assert (row_hash.lanes(whole)[n // 2 :] == row_hash.lanes(tail)).all()
    assert (row_hash.kept(whole)[n // 2 :] == row_hash.kept(tail)).all()


def test_a_larger_share_contains_a_smaller_one():
    assert not (DEALT.drawn(KEYS, 0.1) & ~DEALT.drawn(KEYS, 0.2)).any()
    assert [DEALT.drawn(KEYS, share).mean() for share in (0.0, 1.0)] == [0.0, 1.0]


@given(name=text(max_size=4), other_name=text(max_size=4))
def test_rows_of_one_group_have_one_key_and_others_another(name, other_name):
    one, other, again = group_keys([name, other_name, name])
    assert one == again
    assert (one == other) == (name == other_name)


def test_keys_of_groups_never_change():  # models and files outlive a version
    expected = int.from_bytes(hashlib.blake2b(b"house 1", digest_size=8).digest(), "little")
    assert group_keys(["house 1"]).tolist() == [expected]


def test_seeds_differ_by_their_numbers_and_their_order():
    seeds = [seed_of(*numbers) for numbers in ((0,), (1,), (1, 0), (1, 2), (2, 1))]
    assert len(set(seeds)) == 5
    assert 0 <= min(seeds) <= max(seeds) < 2**63


@pytest.mark.parametrize(("group", "kept_share"), [("house", 0.0), (None, 0.5)])
def test_the_sample_of_a_small_table_is_all_of_it_but_for_the_kept_rows(files, group, kept_share):
    row_hash = RowHash(0, 3, 1, kept_share)
    sample, n_all, n_kept = StreamedTable.of(files, ["y"], group).survey(row_hash)
    kept = row_hash.kept(sample.keys if group else row_keys(0, N_ROWS))
    assert sample.numbers.tolist() == np.flatnonzero(~kept).tolist()
    assert sample.X["a"].to_list() == sample.numbers.tolist()
    assert sample.y[:, 0].tolist() == (2.0 * sample.numbers).tolist()
    assert ("house" in sample.X.columns) == (group is None)
    assert (n_all, n_kept) == (N_ROWS, kept.sum())


def test_a_sample_of_a_large_table_has_about_the_asked_size(files, monkeypatch):
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 300)
    sample, *_ = StreamedTable.of(files, ["y"], None).survey(HASH)
    assert abs(len(sample.numbers) - 300) < 4.5 * np.sqrt(300 * 0.75)
    assert sample.X["a"].to_list() == sample.numbers.tolist()


@pytest.mark.parametrize(("value", "what"), [(None, "missing"), (float("nan"), "missing"), (float("inf"), "infinite")])
def test_a_target_without_a_number_is_an_error_with_its_row_and_file(tmp_path, value, what):
    table = StreamedTable.of(write(tmp_path, y=pl.when(pl.col("a") == 640).then(value).otherwise("y")), ["y"], None)
    with pytest.raises(TableFileError, match=rf"'y' must be a finite number in every row, but is {what} in row 141 of"):
        table.survey(HASH)


def test_a_row_without_a_group_is_an_error_with_its_row_and_file(tmp_path):
    files = write(tmp_path, house=pl.when(pl.col("a") == 7).then(None).otherwise("house"))
    with pytest.raises(
        TableFileError, match=r"'house' must have a value in every row, but has none in row 8 of .*1\.par"
    ):
        StreamedTable.of(files, ["y"], "house").survey(HASH)


class FilesRead(TableFiles):
    """Files that note which rows are read."""

    def __init__(self, paths):
        super().__init__(paths)
        self.numbers = []

    def read(self, part, columns=None):
        self.numbers += range(part.number, part.number + part.n_rows)
        return super().read(part, columns)


def test_each_worker_reads_its_own_parts_and_has_what_one_alone_has(tmp_path):
    files = write(tmp_path, b=pl.col("a") % 7 / 7)
    by_rank = [FilesRead(files.paths) for _ in range(2)]
    tables = [StreamedTable.of(own, ["y"], "house", "b") for own in by_rank]
    alone, *expected = StreamedTable.of(files, ["y"], "house", "b").survey(HASH)
    for sample, *sums in by_two(lambda worker: tables[worker.rank].survey(HASH, worker)):
        assert sums == expected
        assert sample.X.equals(alone.X)
        for ours, theirs in zip(sample[1:], alone[1:], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert [own.numbers for own in by_rank] == [list(range(500)), list(range(500, N_ROWS))]
    for own in by_rank:
        own.numbers.clear()
    plain = [StreamedTable.of(own, ["y"], "house") for own in by_rank]
    by_two(lambda one: first_buffers(replace(stream_of(files, workers=one), table=plain[one.rank]), 1, rows=1200))
    assert sorted(by_rank[0].numbers + by_rank[1].numbers) == list(range(N_ROWS))
    assert min(len(own.numbers) for own in by_rank) >= 500


def test_a_table_of_one_part_is_the_same_for_two_workers(tmp_path):
    frame().write_parquet(tmp_path / "1.parquet")
    files = TableFiles(tmp_path)
    (alone,) = first_buffers(stream_of(files), 1, rows=10**6)
    first, second = by_two(lambda worker: first_buffers(stream_of(files, workers=worker), 1, rows=10**6)[0])
    assert first.y.shape[1] + second.y.shape[1] == alone.y.shape[1] == N_ROWS
    table = StreamedTable.of(files, ["y"], None)
    for sample, *_ in by_two(lambda worker: table.survey(HASH, worker)):
        assert sample.X.equals(table.survey(HASH)[0].X)


def test_workers_count_classes_together(tmp_path):
    table = StreamedTable.of(write(tmp_path, y=pl.col("house")), ["y"], None, classify=True)
    assert by_two(table.class_counts) == [table.class_counts()] * 2


def test_columns_have_one_use_each(files):
    table = StreamedTable.of(files, ["y", "b"], "house")
    assert (table.features, table.targets) == (("a",), ("y", "b"))
    for targets, group in ((["y", "y"], None), (["y"], "y"), ([], None)):
        with pytest.raises(ValueError, match="each once and none of them groups"):
            StreamedTable.of(files, targets, group)
    with pytest.raises(TableFileError, match="no target z"):
        StreamedTable.of(files, ["z"], None)
    with pytest.raises(TableFileError, match="the target 'house' must hold numbers, got String"):
        StreamedTable.of(files, ["house"], None)
    with pytest.raises(ValueError, match="a column to learn from beside targets"):
        StreamedTable.of(TableFiles(files.paths, columns=["y"]), ["y"], None)


def test_buffers_have_rows_from_all_over_the_table_and_those_of_one_sweep_are_all_of_it(files):
    stream = stream_of(files)
    sweep = first_buffers(stream, 4, rows=400)
    numbers = [numbers_in(stream, buffer) for buffer in sweep]
    assert sorted(np.concatenate(numbers[:3])) == list(range(N_ROWS))
    assert numbers[3].tolist() != numbers[0].tolist()
    assert [buffer.number for buffer in sweep] == [1, 2, 3, 4]
    parts = np.unique(numbers[0] // 50)
    assert len(parts) >= 8
    assert parts[-1] - parts[0] > 8


def test_rows_keep_their_inputs_folds_and_lanes(files):
    stream = stream_of(files)
    (buffer,) = first_buffers(stream, 1, rows=400)
    numbers = numbers_in(stream, buffer)
    expected = stream.sample.inputs[0](torch.from_numpy(np.column_stack([numbers, np.sin(numbers)])))
    torch.testing.assert_close(buffer.x[0], expected.float(), rtol=0, atol=1e-5)
    left_out = HASH.left_out_by(group_keys([f"house {k // 10}" for k in numbers]))
    assert (buffer.leaves_out[0].numpy() == left_out).all()
    assert (buffer.trains == ~buffer.leaves_out).all()
    assert (buffer.lanes.numpy() == HASH.lanes(numbers.astype(np.uint64))).all()


def test_a_table_that_fits_is_read_once_and_shuffled_anew_every_round(files):
    one, other = first_buffers(stream_of(files), 2, rows=5000)
    assert one.x.data_ptr() == other.x.data_ptr()
    assert one.y.shape[1] == N_ROWS
    batches = [next(buffer.batches(64, 1, honest=False).epoch()) for buffer in (one, one, other)]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def test_one_buffer_at_a_time_is_in_memory(files):
    seen = []
    for buffer in stream_of(files).buffers(400):
        gc.collect()
        assert sum(ref() is not None for ref in seen) == 0
        seen.append(weakref.ref(buffer.x))
        del buffer
        if len(seen) == 4:
            break


def test_kept_rows_are_in_no_buffer(files):
    row_hash = RowHash(0, 3, 1, kept_share=0.2)
    stream = stream_of(TableFiles(files.paths, columns=["a", "b", "y"]), group=None, row_hash=row_hash)
    kept = row_hash.kept(row_keys(0, N_ROWS))
    for buffer in first_buffers(stream, 2, rows=600):
        assert not kept[numbers_in(stream, buffer)].any()


def test_workers_have_the_rows_of_their_lanes_and_know_the_longest_of_all(files):
    stream = stream_of(files)
    (whole,) = first_buffers(stream, 1, rows=1200)
    halves = by_two(lambda worker: first_buffers(stream_of(files, workers=worker), 1, rows=1200)[0])
    assert {half.longest for half in halves} == {whole.longest}
    assert [half.lanes.unique().tolist() for half in halves] == [list(lanes_of(rank, 2)) for rank in (0, 1)]
    for half in halves:  # in the order of the whole
        own = torch.isin(whole.lanes, half.lanes)
        torch.testing.assert_close(half.x, whole.x[:, own], rtol=0, atol=0)
        torch.testing.assert_close(half.leaves_out, whole.leaves_out[..., own])
    assert sorted(np.concatenate([numbers_in(stream, half) for half in halves])) == list(range(N_ROWS))


def test_a_buffer_in_which_a_member_finds_too_few_rows_gets_the_sample_too(tmp_path):
    stream = stream_of(write(tmp_path))
    one_house = StreamedTable.of(write(tmp_path, house=pl.lit("house 0")), ["y"], "house")
    (buffer,) = first_buffers(replace(stream, table=one_house), 1, rows=400)
    assert buffer.y.shape[1] == 400 + N_ROWS
    assert buffer.trains[0].sum(dim=1).min() > 0


# Companions on the sample ---------------------------------------------------------------------------------------------


def test_a_row_is_predicted_by_the_trees_that_have_not_seen_it_or_its_group():
    """Two trees without a split, which predict 1 and 3; the first has seen 10 and 30, the second 20 and 30."""
    none, two = np.zeros(2, dtype=np.int32), np.arange(2, dtype=np.int32)
    trees = Trees(none, np.full(2, np.nan), two, np.array([[1.0], [3.0]]), n_trees=2, n_features=1)
    in_bag = np.array([[True, False, True], [False, True, True]])
    forest = SampledForest(trees, in_bag, np.array([10, 20, 30], dtype=np.uint64), np.array([7.0]))
    keys = np.array([20, 10, 10, 30, 5, 99], dtype=np.uint64)
    assert forest.out_of_bag(np.zeros((6, 1)), keys)[:, 0].tolist() == [1.0, 3.0, 3.0, 7.0, 2.0, 2.0]
    assert forest.out_of_bag(np.zeros((0, 1)), keys[:0]).shape == (0, 1)


def test_a_group_in_the_sample_does_not_tell_its_other_rows():
    """Each of 60 houses has a level of its own, which nobody can know without one of its rows."""
    house, rng = np.arange(1200) % 60, np.random.default_rng(0)
    y, keys = rng.normal(size=60)[house, None], group_keys([f"house {k}" for k in house])
    X, sample = house[:, None].astype(float), np.arange(1200) < 600
    trees, _, in_bag = grown_forest(X[sample], y[sample], keys[sample], 0)
    units, first = np.unique(keys[sample], return_index=True)
    forest = SampledForest(trees, in_bag[:, first], units, y.mean(axis=0))
    found = forest.out_of_bag(X[~sample], keys[~sample])
    told = forest.out_of_bag(X[~sample], keys[~sample] + np.uint64(1))  # as if the groups were others
    assert np.corrcoef(told[:, 0], y[~sample, 0])[0, 1] > 0.9
    assert abs(np.corrcoef(found[:, 0], y[~sample, 0])[0, 1]) < 4 / np.sqrt(60)


def test_rows_of_a_buffer_come_with_what_companions_predict_for_them(tmp_path):
    plain = stream_of(write(tmp_path))
    numbers = np.arange(N_ROWS, dtype=float)
    X, y = np.column_stack([numbers, np.sin(numbers)]), 2 * numbers[:, None]
    keys = group_keys([f"house {k // 10}" for k in range(N_ROWS)])
    trees, out_of_bag, in_bag = grown_forest(X, y, keys, 0)
    units, first = np.unique(keys, return_index=True)
    forest = SampledForest(trees, in_bag[:, first], units, y.mean(axis=0))
    expected = plain.sample.targets[0](torch.from_numpy(out_of_bag))
    sample = replace(plain.sample, beside=expected[None, :, None].float())
    stream = replace(plain, sample=sample, forests=[forest])
    (buffer,) = first_buffers(stream, 1, rows=400)
    torch.testing.assert_close(buffer.beside[0, :, 0], expected[numbers_in(stream, buffer)].float())
    one_house = StreamedTable.of(write(tmp_path, house=pl.lit("house 0")), ["y"], "house")
    (buffer,) = first_buffers(replace(stream, table=one_house), 1, rows=400)
    torch.testing.assert_close(buffer.beside[:, 400:], sample.beside)


def test_what_is_wrong_with_a_column_is_an_error_with_the_rows_and_the_file(tmp_path):
    stream = stream_of(write(tmp_path))
    files = write(tmp_path, b=pl.when(pl.col("a") == 640).then(float("inf")).otherwise("b"))
    with pytest.raises(TableFileError, match=r"in rows 1 to 700 of .*2\.parquet, column 'b' must hold finite numbers"):
        replace(stream, table=StreamedTable.of(files, ["y"], "house")).read(files.parts()[-1])


def rows_of_table(n=800, n_members=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, 4, generator=generator)
    y = x[..., :1].sin() + 0.1 * torch.randn(1, n, 1, generator=generator)
    left_out = (torch.randint(n_members, (n,), generator=generator) == torch.arange(n_members)[:, None])[None]
    return x, y, left_out, torch.randint(N_LANES, (n,), generator=generator)


def buffer_of(x, y, left_out, lanes, *, workers=None, trains=None):
    """The rows of this worker."""
    trains = ~left_out if trains is None else trains
    rank, size = (0, 1) if workers is None else (workers.rank, workers.size)
    own = torch.isin(lanes, torch.tensor(list(lanes_of(rank, size))))
    rows = (x[:, own], y[:, own], trains[..., own], left_out[..., own], torch.ones(1, 1))
    longest = max(int(trains[0][:, lanes == lane].sum(dim=1).max()) for lane in range(N_LANES))
    return Buffer(*rows, lanes=lanes[own], longest=longest, workers=workers, seeds=[7])


def test_workers_share_the_lanes():
    assert [lanes_of(0, 1), lanes_of(1, 2), lanes_of(1, 8)] == [range(8), range(4, 8), range(1, 2)]
    with pytest.raises(ValueError, match="must divide 8, got 3; take 1, 2, 4 or 8"):
        lanes_of(0, 3)


def test_batches_of_half_the_lanes_are_half_of_the_batches():
    _, *rest = rows_of_table()
    numbered = torch.arange(800.0)[None, :, None]
    batches = []
    for workers in (None, one_of_two(0), one_of_two(1)):
        buffer = buffer_of(numbered, *rest, workers=workers)
        batches.append([buffer.at(buffer.x, b) for b in buffer.batches(64, 1, honest=False).epoch()])
    for whole, first, second in zip(*batches, strict=True):
        assert torch.equal(whole, torch.cat([first, second], dim=1))


def test_an_epoch_of_few_rows_gives_every_member_its_rows_with_equal_shares_of_every_lane():
    buffer = buffer_of(*rows_of_table())
    batches = buffer.batches(64, 1, honest=True)
    for epoch in range(2):
        given = list(batches.epoch())
        for batch in given:
            for rows in batch:
                assert buffer.lanes[rows].bincount(minlength=8).unique().numel() == 1
        for member, rows in enumerate(torch.cat(given, dim=1)):
            assert set(rows.tolist()) == set(buffer.trains[0, member].nonzero()[:, 0].tolist()), epoch


def test_a_round_of_many_rows_passes_over_them_once():
    n_rows, epochs = 60_000, 3
    rows = torch.zeros(1, n_rows, 1), torch.zeros(1, n_rows, 1), torch.zeros(1, 1, n_rows, dtype=torch.bool)
    batches = LaneBatches(buffer_of(*rows, torch.arange(n_rows) % 8), 256, epochs, seed=0)
    given = torch.cat([batch for _ in range(epochs) for batch in batches.epoch()], dim=1)[0]
    times = given.bincount(minlength=n_rows)
    assert times.min() == 1
    assert len(given) - n_rows <= epochs * 8 * batches.n_steps  # to make batches even
    assert times.max() <= 2


def test_a_member_without_rows_is_an_error():
    x, y, left_out, lanes = rows_of_table()
    buffer = buffer_of(x, y, left_out, lanes, trains=torch.zeros_like(left_out))
    with pytest.raises(ValueError, match="every member needs rows to train on in every buffer"):
        buffer.batches(64, 1, honest=False)
