from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    TimeSeriesSplit,
)
from sklearn.utils import check_random_state

from coverwell.calibration import Calibration, Cross, Split
from coverwell.errors import ConstantDataWarning
from coverwell.inputs.scaling import Mirroring
from coverwell.options import part_from
from coverwell.predictor import FittedTeam
from coverwell.training.rows import Rows, as_tensor, left_out_by, split_rows

CPU = torch.device("cpu")
seeds = st.integers(0, 2**16)


def job(n_rows, *, n_members=3, n_targets=2, seed=0, coverage=(0.5, 0.9)):
    """Random rows; member m leaves out the rows whose number is m modulo the number of members."""
    draw = torch.Generator().manual_seed(seed)
    left_out = (torch.arange(n_rows) % n_members == torch.arange(n_members)[:, None])[None]
    x, y = torch.randn(1, n_rows, 4, generator=draw), torch.randn(1, n_rows, n_targets, generator=draw)
    return Rows(x, y, ~left_out, left_out, torch.tensor([coverage]), lengths=[n_rows])


def real(rows):
    """Which rows are no padding."""
    return (rows.trains | rows.leaves_out).any(dim=1)


def out_of_fold(rows, outputs):
    """The out-of-fold average from the outputs of every member for every row, (job, member, row, ...)."""
    left_out = rows.out_of_fold_view.left_out
    shape = (*left_out.shape, *outputs.shape[3:])
    chosen = outputs.flatten(0, 1).gather(
        1, left_out.reshape(*left_out.shape, *[1] * (outputs.dim() - 3)).expand(shape)
    )
    return rows.out_of_fold(chosen)


def rows_with(leaves_out):
    """A rows of which only who leaves_out matters, (job, member, row)."""
    leaves_out = torch.as_tensor(leaves_out)
    n_jobs, _, n_rows = leaves_out.shape
    x = torch.zeros(n_jobs, n_rows, 1)
    return Rows(x, x, ~leaves_out, leaves_out, torch.ones(n_jobs, 1))


def random_rows(seed, *, n_jobs=2, n_members=4, n_rows=6):
    draw = torch.Generator().manual_seed(seed)
    leaves_out = torch.rand(n_jobs, n_members, n_rows, generator=draw) < 0.4
    leaves_out[:, 0, 0] = True  # somebody leaves_out in every job
    outputs = torch.randn(n_jobs, n_members, n_rows, 2, 3, generator=draw)
    return rows_with(leaves_out), outputs


def split(n_rows, *, folds, repeats=1, groups=None, seed=0):
    X = np.zeros((n_rows, 2))
    return split_rows(X, folds, repeats, groups, check_random_state(seed))[0]


# Jobs side by side ---------------------------------------------------------------------------------------------------


def test_jobs_that_share_their_inputs_are_not_copied_and_read_the_same_rows():
    first, second = job(6, seed=0), replace(job(6, seed=1), x=job(6, seed=0).x)
    shared, copied = Rows.stack([first, replace(second, x=first.x[:])]), Rows.stack([first, second])
    assert shared.x.data_ptr() == first.x.data_ptr()
    assert shared.x.stride(0) == 0
    assert copied.x.stride(0) > 0
    assert_array_equal(shared.x, copied.x)
    batch = torch.tensor([[0, 4], [1, 1], [3, 2], [5, 0], [5, 5], [2, 4]])
    for name in ("x", "y"):
        assert_array_equal(shared.at(getattr(shared, name), batch), copied.at(getattr(copied, name), batch))


def test_parts_of_one_array_are_not_taken_for_the_same_part():
    whole = torch.arange(24.0).reshape(6, 4)
    first, second = (replace(job(3, seed=seed), x=whole[None, 3 * seed : 3 * seed + 3]) for seed in (0, 1))
    assert_array_equal(Rows.stack([first, second]).x, whole.reshape(2, 3, 4))


def test_a_read_only_map_of_a_file_becomes_a_tensor_in_place_and_without_a_warning(tmp_path):
    np.save(tmp_path / "features.npy", np.arange(12, dtype=np.float16).reshape(3, 4))
    features = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert as_tensor(features).data_ptr() == features.ctypes.data
    assert_array_equal(as_tensor(features), features)


def test_a_shorter_job_is_padded_with_rows_of_nobody():
    short, long = job(5, seed=0), job(8, seed=1)
    rows = Rows.stack([short, long])
    assert rows.x.shape == (2, 8, 4)
    assert_array_equal(rows.x[0, :5], short.x[0])
    assert_array_equal(rows.y[0, :5], short.y[0])
    assert_array_equal(rows.trains[0, :, :5], short.trains[0])
    assert_array_equal(rows.leaves_out[0, :, :5], short.leaves_out[0])
    assert not rows.trains[0, :, 5:].any()
    assert not rows.leaves_out[0, :, 5:].any()
    assert_array_equal(real(rows), [[True] * 5 + [False] * 3, [True] * 8])
    assert_array_equal(rows.out_of_fold_view.some, real(rows))
    assert_array_equal(rows.x[1], long.x[0])


def test_members_are_ordered_by_job():
    rows = Rows.stack([job(4, seed=0), job(4, seed=1)])
    assert_array_equal(rows.to_members(torch.tensor([[10.0], [20.0]])), [[10.0]] * 3 + [[20.0]] * 3)


def test_every_member_takes_its_rows_from_the_table_of_its_job():
    jobs = [job(5, seed=0), job(7, seed=1)]
    rows = Rows.stack(jobs)
    batch = torch.tensor([[0, 4], [1, 1], [3, 2], [6, 0], [5, 5], [2, 6]])
    taken = rows.at(rows.x, batch)
    assert taken.shape == (6, 2, 4)
    for member in range(6):
        assert_array_equal(taken[member], jobs[member // 3].x[0, batch[member]])


# Out of fold ---------------------------------------------------------------------------------------------------------


def test_out_of_fold_by_hand():
    # Row 0 is left out by members 0 and 2: (1 + 7) / 2; row 1 by member 1 alone; row 2 by nobody.
    rows = rows_with([[[True, False, False], [False, True, False], [True, False, False]]])
    outputs = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]])
    assert_array_equal(out_of_fold(rows, outputs), [[4.0, 5.0, 0.0]])


def test_the_mean_out_of_fold_rows_by_hand():
    rows = rows_with([[[True, False, True]], [[True, True, True]]])
    values = torch.tensor([[[1.0, 10.0], [99.0, 99.0], [3.0, 30.0]], [[1.0, 0.0], [2.0, 0.0], [6.0, 3.0]]])
    assert_allclose(rows.mean_out_of_fold(values), [[2.0, 20.0], [3.0, 1.0]])  # (1 + 3) / 2, (1 + 2 + 6) / 3


@given(seed=seeds)
def test_out_of_fold_is_numpys_mean_over_the_members_that_leave_a_row_out(seed):
    rows, outputs = random_rows(seed)
    result = out_of_fold(rows, outputs)
    for k in range(2):
        for row in range(6):
            leaving = rows.leaves_out[k, :, row].numpy()
            twin = outputs[k, leaving, row].numpy().mean(axis=0) if leaving.any() else np.zeros((2, 3))
            assert_allclose(result[k, row], twin, atol=1e-6)


@settings(max_examples=40)
@given(seed=seeds)
def test_padding_changes_neither_the_out_of_fold_view_nor_its_mean(seed):
    jobs = [job(5, seed=seed), job(9, seed=seed + 1)]
    together = Rows.stack(jobs)
    outputs = torch.randn(2, 3, 9, 2, generator=torch.Generator().manual_seed(seed))
    view, mean = out_of_fold(together, outputs), together.mean_out_of_fold(outputs[:, 0])
    for k, n in enumerate((5, 9)):
        alone = jobs[k]
        assert_allclose(out_of_fold(alone, outputs[k : k + 1, :, :n])[0], view[k, :n], atol=1e-6)
        assert_allclose(alone.mean_out_of_fold(outputs[k : k + 1, 0, :n])[0], mean[k], atol=1e-6)


# Who trains on what --------------------------------------------------------------------------------------------------


@given(n_rows=st.integers(6, 40), folds=st.integers(2, 6), repeats=st.integers(1, 4), seed=seeds)
def test_every_row_is_left_out_once_per_repeat(n_rows, folds, repeats, seed):
    trains = split(n_rows, folds=folds, repeats=repeats, seed=seed)
    assert trains.shape == (folds * repeats, n_rows)
    assert_array_equal((~trains).reshape(repeats, folds, n_rows).sum(axis=1), np.ones((repeats, n_rows)))
    left_out = (~trains).sum(axis=1)
    assert set(left_out) <= {n_rows // folds, -(-n_rows // folds)}  # folds of equal size, but for one row


def test_rows_are_shuffled_before_they_are_split():
    left_out = ~split(100, folds=5)
    assert all((np.diff(np.flatnonzero(member)) > 1).any() for member in left_out)  # no fold is a block of rows


def test_a_list_of_splits_is_followed_in_every_repeat():
    splits = [(np.arange(5), np.arange(5, 10)), (np.arange(5, 10), np.arange(5))]
    trains = split(10, folds=splits, repeats=2)
    assert_array_equal(trains, np.array([[True] * 5 + [False] * 5, [False] * 5 + [True] * 5] * 2))


def test_a_number_of_folds_from_numpy_is_a_number_of_folds():
    groups = np.arange(40) % 8
    for given_groups in (None, groups):
        trains = split(40, folds=np.int64(4), repeats=2, groups=given_groups)
        assert_array_equal(trains, split(40, folds=4, repeats=2, groups=given_groups))


def test_rows_that_a_splitter_gives_to_neither_side_are_neither_trained_on_nor_left_out() -> None:
    X = np.zeros((40, 1))
    splitter = TimeSeriesSplit(3, gap=2)
    trains, leaves_out = split_rows(X, splitter, 1, None, check_random_state(0))
    for member, (train, test) in enumerate(splitter.split(X)):
        np.testing.assert_array_equal(np.flatnonzero(trains[member]), train)
        np.testing.assert_array_equal(np.flatnonzero(leaves_out[member]), test)


def test_a_member_that_left_fewer_rows_out_is_given_row_0_in_place_of_more():
    rows = rows_with([[[False, True, True], [False, False, True], [False, False, False]]])
    assert_array_equal(rows.out_of_fold_view.left_out, [[1, 2], [2, 0], [0, 0]])
    outputs = torch.tensor([[4.0, 6.0], [8.0, 99.0], [99.0, 99.0]])
    assert_array_equal(rows.out_of_fold(outputs), [[0.0, 4.0, 7.0]])


# From tables to rows --------------------------------------------------------------------------------------------------

GROUPS = np.repeat(np.arange(12), 5)


def table(n_rows=60, n_features=3, n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_features)), 5 + 2 * rng.normal(size=(n_rows, n_targets))


def made(X=None, y=None, groups=None, *, seed=0, calibration="cross", **changes):
    """The rows of a fit."""
    default_X, default_y = table()
    X, y = default_X if X is None else X, default_y if y is None else y
    options = {"levels": (0.5, 0.8), "folds": 3, "repeats": 1} | changes
    calibration = part_from("calibration", calibration, Calibration)
    return Rows.of(X, y, groups=groups, calibration=calibration, random_state=np.random.RandomState(seed), **options)


def jobs_of(rows):
    """Each job by itself, without padding."""
    return [
        SimpleNamespace(
            x=rows.x[k, :n], y=rows.y[k, :n], trains=rows.trains[k, :, :n], leaves_out=rows.leaves_out[k, :, :n]
        )
        for k, n in enumerate(rows.lengths)
    ]


def job_of(rows):
    (job, *_) = jobs_of(rows)
    return job


def masks(job):
    return job.trains.numpy(), job.leaves_out.numpy()


def assert_groups_whole(trains, groups):
    for mask in trains:
        assert not set(groups[mask]) & set(groups[~mask])


def test_a_fit_without_kept_rows_is_one_job_of_all_rows():
    job = job_of(made(repeats=2))
    trains, leaves_out = masks(job)
    assert trains.shape == (6, 60)
    assert_array_equal(leaves_out, ~trains)
    assert_array_equal(leaves_out.sum(axis=0), np.full(60, 2))  # every row is left out once per repeat
    assert len(made().held_back[0]) == 0


@given(
    folds=st.integers(2, 5),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    calibration=st.sampled_from(["cross", "cv+", "split", None]),
)
def test_a_group_stays_in_one_fold_and_on_one_side_of_the_ranks(folds, repeats, seed, calibration):
    groups = np.random.default_rng(seed).permutation(GROUPS)
    result = made(groups=groups, folds=folds, repeats=repeats, seed=seed, calibration=calibration)
    for job, kept in zip(jobs_of(result), result.held_back, strict=True):
        own = np.setdiff1d(np.arange(60), kept)
        assert not set(groups[kept]) & set(groups[own])
        assert_groups_whole(job.trains.numpy(), groups[own])


@pytest.mark.parametrize("splitter", [LeaveOneGroupOut(), GroupKFold(4)])
def test_a_splitter_by_group_gets_the_groups(splitter):
    trains, _ = masks(job_of(made(groups=GROUPS, folds=splitter)))
    assert len(trains) == splitter.get_n_splits(groups=GROUPS)
    assert_groups_whole(trains, GROUPS)


SPLITTERS = [KFold(4), LeaveOneOut(), RepeatedKFold(n_splits=3, n_repeats=2, random_state=0), TimeSeriesSplit(4)]


@pytest.mark.parametrize("splitter", SPLITTERS, ids=lambda splitter: type(splitter).__name__)
def test_a_splitter_is_followed(splitter):
    X, _ = table()
    trains, leaves_out = masks(job_of(made(folds=splitter)))
    for mask, outputs, (train, test) in zip(trains, leaves_out, splitter.split(X), strict=True):
        assert_array_equal(np.flatnonzero(mask), train)
        assert_array_equal(np.flatnonzero(outputs), test)


def test_rows_without_a_fold_of_their_own_train_everybody_and_are_left_out_by_nobody():
    fold = np.where(GROUPS < 3, -1, GROUPS % 3)
    trains, leaves_out = masks(job_of(made(folds=PredefinedSplit(fold))))
    assert trains[:, fold == -1].all()
    assert not leaves_out[:, fold == -1].any()
    assert_array_equal(leaves_out.sum(axis=0), fold >= 0)


def test_literal_training_leaves_nobody_out_and_counts_everybody():
    trains, leaves_out = masks(job_of(made(folds=None, calibration=None, repeats=2)))
    assert trains.shape == (2, 60)
    assert trains.all()
    assert leaves_out.all()


@pytest.mark.parametrize(
    ("changes", "n_rows", "n_repeats"),
    [
        ({}, 60, 5),  # 1000 / 60 = 17, at most 5
        ({}, 250, 4),
        ({}, 400, 2),
        ({}, 10_000, 2),  # at least 2
        ({}, 20_001, 1),  # but for many rows
        ({"repeats": 7}, 60, 7),
        ({"calibration": "split"}, 400, 3),  # of which 320 train
        ({"calibration": "cv+"}, 60, 1),  # every team has folds of its own
        ({"folds": None, "calibration": None}, 60, 1),
        ({"folds": None, "calibration": None, "repeats": 3}, 60, 3),
    ],
)
def test_small_tables_are_repeated_more_often(changes, n_rows, n_repeats):
    folds = changes.get("folds", 3)
    X, y = table(n_rows, n_features=1)
    rows = made(X, y, **{"repeats": "auto"} | changes)
    assert rows.members_per_job == n_repeats * (1 if folds is None else folds)


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others():
    first, again, other = (made(seed=seed, calibration="split") for seed in (0, 0, 1))
    assert_array_equal(job_of(first).trains, job_of(again).trains)
    assert_array_equal(first.held_back[0], again.held_back[0])
    assert first.seeds == again.seeds != other.seeds
    assert not np.array_equal(first.held_back[0], other.held_back[0])


# Rows kept for the ranks ---------------------------------------------------------------------------------------------


def test_split_keeps_its_share_of_the_rows_and_trains_on_the_rest():
    result = made(calibration=Split(0.25))
    job, (kept,) = job_of(result), result.held_back
    assert len(kept) == 15
    assert job.trains.shape == (3, 45)


def test_cv_plus_has_a_team_per_fold_that_never_sees_it():
    result = made(calibration="cv+", folds=4)
    assert result.n_jobs == 4
    assert_array_equal(np.sort(np.concatenate(result.held_back)), np.arange(60))  # each row is left out by one team
    for job, kept in zip(jobs_of(result), result.held_back, strict=True):
        assert job.trains.shape == (4, 60 - len(kept))


@pytest.mark.parametrize("calibration", ["split", "cv+"])
def test_kept_rows_touch_neither_scale_nor_range(calibration):
    X, y = table()
    first = made(X, y, calibration=calibration)
    kept = first.held_back[0]
    X[kept], y[kept] = 1e6, -1e9
    again = made(X, y, calibration=calibration)
    assert_array_equal(again.held_back[0], kept)
    for name in ("x", "y", "trains", "leaves_out"):
        assert_array_equal(getattr(job_of(first), name), getattr(job_of(again), name))
    for one, other in ((first.inputs[0], again.inputs[0]), (first.targets[0], again.targets[0])):
        for name, value in one.named_buffers():
            assert_array_equal(value, getattr(other, name))


def test_jobs_are_scaled_and_in_the_precision_of_training():
    X, y = table(n_targets=2)
    job = job_of(made(X, y))
    assert job.x.dtype == job.y.dtype == torch.float32
    assert_allclose(job.x.mean(dim=0), np.zeros(3), atol=1e-6)
    assert_allclose(job.y.std(dim=0, correction=0), np.ones(2), rtol=1e-5)
    published = job_of(made(X, y, unit_range=True))
    assert_allclose(published.y.min(dim=0).values, np.zeros(2))
    assert_allclose(published.y.max(dim=0).values, np.ones(2))


# What cannot be prepared ---------------------------------------------------------------------------------------------


def test_folds_that_leave_nothing_out_or_nothing_to_train_on_are_refused():
    everything = np.arange(60)
    with pytest.raises(ValueError, match="leave none out"):
        made(folds=[(everything, everything[:3])])
    with pytest.raises(ValueError, match="rows to train on"):
        made(folds=[(everything[:0], everything)])


@pytest.mark.parametrize(
    ("calibration", "n_rows", "outputs"),
    [
        ("cross", 18, "'cross' ranks 18 of 18 rows: coverage 0.95 by ranks needs at least 19 rows, got 18"),
        ("cv+", 18, r"'cv\+' ranks 18 rows: .*at least 19 rows, got 18"),
        ("split", 60, "'split' keeps 12 of 60 rows: .*at least 19 rows, got 12"),
    ],
)
def test_too_few_rows_for_the_level_are_refused_with_their_number(calibration, n_rows, outputs):
    X, y = table(n_rows)
    with pytest.raises(ValueError, match=f"{outputs}.*or fit with calibration=None"):
        made(X, y, levels=(0.5, 0.95), calibration=calibration)


def test_just_enough_rows_for_the_level_are_enough():
    X, y = table(95)
    assert len(made(X, y, levels=(0.95,), calibration="split").held_back[0]) == 19
    X, y = table(19)
    made(X, y, levels=(0.95,), calibration="cross")


def test_a_constant_target_is_a_warning_also_where_its_spread_rounds_to_zero():
    X, y = table(n_targets=2)
    y[:, 0] = 3.0
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        made(X, y)
    _, y = table()
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        made(X, 1e-200 * y)


# Networks that go on training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calibration", "n_jobs"), [("cross", 1), ("cv+", 3)])
def test_networks_that_go_on_keep_their_units_over_the_range_of_all_that_was_seen(calibration, n_jobs):
    X, y = table()
    before = made(X, y, calibration=calibration)
    start = [FittedTeam((0.8,), *scalings) for scalings in zip(before.inputs, before.targets, strict=True)]
    assert len(start) == n_jobs
    after = made(3 * X + 1, 5 * y, calibration=calibration, start=start)
    for old, new, rows in zip(before.inputs, after.inputs, after.held_back, strict=True):
        seen = np.delete(3 * X + 1, rows, axis=0)
        assert_array_equal(new.centre, old.centre)
        assert_array_equal(new.spread, old.spread)
        assert_array_equal(new.low, np.minimum(old.low.numpy(), seen.min(axis=0)))
        assert_array_equal(new.high, np.maximum(old.high.numpy(), seen.max(axis=0)))
    for old, new in zip(before.targets, after.targets, strict=True):
        assert_array_equal(new.centre, old.centre)
        assert_array_equal(new.spread, old.spread)
    job, kept = job_of(after), np.delete(np.arange(60), after.held_back[0])
    for scaled, given_, old in ((job.y, 5 * y[kept], before.targets[0]), (job.x, 3 * X[kept] + 1, before.inputs[0])):
        assert_allclose(scaled, (given_ - old.centre.numpy()) / old.spread.numpy(), rtol=1e-4, atol=1e-6)


# Features of images ------------------------------------------------------------------------------------------------


def features(n_images=60, *, views=(), seed=0):
    """As short as they are kept, all of one channel constant, and read-only."""
    drawn = np.random.default_rng(seed).normal(size=(n_images, *views, 3, 2, 2)).astype(np.float16)
    drawn[..., 0, :, :] = 0
    drawn.flags.writeable = False
    return drawn


def test_features_are_neither_scaled_nor_copied_nor_looked_through():
    X, (_, y) = features(), table()
    ready = made(X, y, scaled=False)
    job = job_of(ready)
    assert job.x.dtype == torch.float16
    assert job.x.data_ptr() == X.ctypes.data
    assert ready.inputs[0].shape == (3, 2, 2)
    assert ready.inputs[0].centre is None


@pytest.mark.parametrize("calibration", ["cross", "split", "cv+"])
def test_a_image_and_its_mirror_image_are_two_rows_of_one_fold(calibration):
    X, y = features(views=(2,)), np.random.default_rng(0).uniform(0, 0.5, size=(60, 4))
    mirroring = Mirroring("boxes")
    ready = made(X, y, GROUPS, scaled=False, mirroring=mirroring, calibration=calibration)
    for job, scaler, kept_back in zip(jobs_of(ready), ready.targets, ready.held_back, strict=True):
        kept = np.setdiff1d(np.arange(60), kept_back)
        held = np.arange(60) if calibration == "cv+" else kept  # teams of "cv+" look at all features, in place
        assert_array_equal(job.x[::2], X[held, 0])
        assert_array_equal(job.x[1::2], X[held, 1])
        assert_allclose(scaler.inverse(job.y.double()), mirroring.rows(y[held]), atol=1e-6)
        for mask in masks(job):
            assert_array_equal(mask[:, ::2], mask[:, 1::2])
        own = np.isin(held, kept)
        assert_groups_whole(job.trains.numpy()[:, ::2][:, own], GROUPS[kept])


def test_teams_of_cv_plus_share_the_features_and_train_on_what_those_of_a_table_do():
    X, (table_X, y) = features(), table()
    for groups in (None, GROUPS):
        ready = made(X, y, groups, scaled=False, calibration="cv+", folds=4)
        twin = made(table_X, y, groups, calibration="cv+", folds=4)
        assert ready.n_jobs == 4
        for job, of_table, kept_back, scaler in zip(
            jobs_of(ready), jobs_of(twin), ready.held_back, twin.targets, strict=True
        ):
            assert job.x.data_ptr() == X.ctypes.data
            kept = np.setdiff1d(np.arange(60), kept_back)
            for mask, of_rows in zip(masks(job), masks(of_table), strict=True):
                assert_array_equal(mask[:, kept], of_rows)
                assert not mask[:, kept_back].any()
            assert_array_equal(job.y[kept], of_table.y)  # in the units of its own rows
            assert_allclose(job.y[kept_back].double(), scaler(torch.from_numpy(y[kept_back])), rtol=1e-6)
        assert_array_equal(np.sort(np.concatenate(ready.held_back)), np.arange(60))


def test_targets_are_scaled_over_images_and_mirror_images():
    """All boxes lie to the left; with their mirror images the mean x + width / 2 is in the middle."""
    y = np.random.default_rng(0).uniform(0, 0.3, size=(60, 4))
    (scaler,) = made(features(views=(2,)), y, scaled=False, mirroring=Mirroring("boxes")).targets
    assert scaler.centre[0] + scaler.centre[2] / 2 == pytest.approx(0.5)


def test_targets_that_cannot_be_mirrored_are_refused():
    with pytest.raises(ValueError, match="needs four targets"):
        made(features(views=(2,)), table()[1], scaled=False, mirroring=Mirroring("boxes"))


@pytest.mark.parametrize("groups", [None, np.arange(25_000) // 5], ids=["rows", "groups"])
def test_in_large_tables_some_rows_are_left_out_by_all(groups):
    options = {"levels": (0.9,), "random_state": check_random_state(0), "groups": groups}
    trains, leaves_out = left_out_by(np.zeros((25_000, 1)), 5, "auto", Cross(), **options)
    assert_array_equal(trains, ~leaves_out)
    count = leaves_out.sum(axis=0)
    assert set(count) == {1, 5}
    assert (count == 5).sum() == 2000
    if groups is not None:
        assert_array_equal(count.reshape(-1, 5).min(axis=1), count.reshape(-1, 5).max(axis=1))
    _, leaves_out = left_out_by(np.zeros((25_000, 1)), 5, 1, Cross(), **options)
    assert set(leaves_out.sum(axis=0)) == {1}  # repeats of the user's own
