from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit
from sklearn.utils import check_random_state

from coverwell.folds import Job, Problem, as_tensor, stack_jobs, who_trains_and_speaks

CPU = torch.device("cpu")
seeds = st.integers(0, 2**16)


def job(n_rows, *, n_members=3, n_targets=2, seed=0, coverage=(0.5, 0.9)):
    """Random rows; member m leaves out the rows whose number is m modulo the number of members."""
    draw = torch.Generator().manual_seed(seed)
    left_out = torch.arange(n_rows) % n_members == torch.arange(n_members)[:, None]
    return Job(
        x=torch.randn(n_rows, 4, generator=draw),
        y=torch.randn(n_rows, n_targets, generator=draw),
        trains=~left_out,
        speaks=left_out,
        coverage=torch.tensor(coverage),
    )


def problem_with(speaks):
    """A problem of which only who speaks matters, (job, member, row)."""
    speaks = torch.as_tensor(speaks)
    n_jobs, _, n_rows = speaks.shape
    return Problem(
        torch.zeros(n_jobs, n_rows, 1), torch.zeros(n_jobs, n_rows, 1), ~speaks, speaks, torch.ones(n_jobs, 1)
    )


def random_problem(seed, *, n_jobs=2, n_members=4, n_rows=6):
    draw = torch.Generator().manual_seed(seed)
    speaks = torch.rand(n_jobs, n_members, n_rows, generator=draw) < 0.4
    speaks[:, 0, 0] = True  # somebody speaks in every job
    said = torch.randn(n_jobs, n_members, n_rows, 2, 3, generator=draw)
    return problem_with(speaks), said


def split(n_rows, *, folds, repeats=1, groups=None, seed=0):
    X = np.zeros((n_rows, 2))
    trains, _ = who_trains_and_speaks(
        X, folds=folds, repeats=repeats, groups=groups, random_state=check_random_state(seed)
    )
    return trains


# Jobs side by side ---------------------------------------------------------------------------------------------------


def test_jobs_of_equal_length_are_stacked_as_they_are():
    jobs = [job(6, seed=0), job(6, seed=1)]
    problem = stack_jobs(jobs, CPU)
    assert (problem.n_jobs, problem.members_per_job) == (2, 3)
    for k in range(2):
        for name in ("x", "y", "trains", "speaks", "coverage"):
            assert_array_equal(getattr(problem, name)[k], getattr(jobs[k], name))
    assert problem.valid.all()


def test_a_job_alone_is_not_copied():
    alone = job(5)
    assert stack_jobs([alone], CPU).x.data_ptr() == alone.x.data_ptr()


def test_jobs_that_share_their_inputs_are_not_copied_and_read_the_same_rows():
    first, second = job(6, seed=0), replace(job(6, seed=1), x=job(6, seed=0).x)
    shared, copied = stack_jobs([first, replace(second, x=first.x[:])], CPU), stack_jobs([first, second], CPU)
    assert shared.x.data_ptr() == first.x.data_ptr()
    assert shared.x.stride(0) == 0
    assert copied.x.stride(0) > 0
    assert_array_equal(shared.x, copied.x)
    rows = torch.tensor([[0, 4], [1, 1], [3, 2], [5, 0], [5, 5], [2, 4]])
    for name in ("x", "y"):
        assert_array_equal(shared.rows_of(getattr(shared, name), rows), copied.rows_of(getattr(copied, name), rows))


def test_parts_of_one_array_are_not_taken_for_the_same_part():
    whole = torch.arange(24.0).reshape(6, 4)
    first, second = (replace(job(3, seed=seed), x=whole[3 * seed : 3 * seed + 3]) for seed in (0, 1))
    assert_array_equal(stack_jobs([first, second], CPU).x, whole.reshape(2, 3, 4))


def test_a_read_only_map_of_a_file_becomes_a_tensor_in_place_and_without_a_warning(tmp_path):
    np.save(tmp_path / "features.npy", np.arange(12, dtype=np.float16).reshape(3, 4))
    features = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert as_tensor(features).data_ptr() == features.ctypes.data
    assert_array_equal(as_tensor(features), features)


def test_a_shorter_job_is_padded_with_rows_of_nobody():
    short, long = job(5, seed=0), job(8, seed=1)
    problem = stack_jobs([short, long], CPU)
    assert problem.x.shape == (2, 8, 4)
    assert_array_equal(problem.x[0, :5], short.x)
    assert_array_equal(problem.y[0, :5], short.y)
    assert_array_equal(problem.trains[0, :, :5], short.trains)
    assert_array_equal(problem.speaks[0, :, :5], short.speaks)
    assert not problem.trains[0, :, 5:].any()
    assert not problem.speaks[0, :, 5:].any()
    assert_array_equal(problem.valid, [[True] * 5 + [False] * 3, [True] * 8])
    assert_array_equal(problem.heard, problem.valid)
    assert_array_equal(problem.x[1], long.x)


def test_a_row_that_every_member_trains_on_is_real_but_not_heard():
    trains = torch.tensor([[[True, True, False], [True, False, False]]])
    speaks = torch.tensor([[[False, False, False], [False, True, False]]])
    problem = Problem(torch.zeros(1, 3, 1), torch.zeros(1, 3, 1), trains, speaks, torch.ones(1, 1))
    assert_array_equal(problem.valid, [[True, True, False]])
    assert_array_equal(problem.heard, [[False, True, False]])


def test_members_are_ordered_by_job():
    problem = stack_jobs([job(4, seed=0), job(4, seed=1)], CPU)
    assert_array_equal(problem.to_members(torch.tensor([[10.0], [20.0]])), [[10.0]] * 3 + [[20.0]] * 3)
    members = torch.arange(6.0)
    assert_array_equal(problem.of_job(members), [[0, 1, 2], [3, 4, 5]])
    assert_array_equal(problem.of_job(problem.to_members(torch.tensor([1.0, 2.0]))), [[1, 1, 1], [2, 2, 2]])


def test_every_member_takes_its_rows_from_the_table_of_its_job():
    jobs = [job(5, seed=0), job(7, seed=1)]
    problem = stack_jobs(jobs, CPU)
    rows = torch.tensor([[0, 4], [1, 1], [3, 2], [6, 0], [5, 5], [2, 6]])
    taken = problem.rows_of(problem.x, rows)
    assert taken.shape == (6, 2, 4)
    for member in range(6):
        assert_array_equal(taken[member], jobs[member // 3].x[rows[member]])


def test_inputs_may_have_more_than_one_axis():
    windows = [
        Job(torch.randn(n, 24, 2), torch.zeros(n, 1), *[torch.ones(2, n, dtype=torch.bool)] * 2, torch.tensor([0.9]))
        for n in (3, 5)
    ]
    problem = stack_jobs(windows, CPU)
    assert problem.x.shape == (2, 5, 24, 2)
    assert problem.rows_of(problem.x, torch.zeros(4, 6, dtype=torch.long)).shape == (4, 6, 24, 2)


# Out of fold ---------------------------------------------------------------------------------------------------------


def test_out_of_fold_by_hand():
    # Row 0 is spoken about by members 0 and 2: (1 + 7) / 2; row 1 by member 1 alone; row 2 by nobody.
    problem = problem_with([[[True, False, False], [False, True, False], [True, False, False]]])
    said = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]])
    assert_array_equal(problem.out_of_fold(said), [[4.0, 5.0, 0.0]])


def test_the_mean_over_heard_rows_by_hand():
    problem = problem_with([[[True, False, True]], [[True, True, True]]])
    values = torch.tensor([[[1.0, 10.0], [99.0, 99.0], [3.0, 30.0]], [[1.0, 0.0], [2.0, 0.0], [6.0, 3.0]]])
    assert_allclose(problem.mean_over_heard(values), [[2.0, 20.0], [3.0, 1.0]])  # (1 + 3) / 2, (1 + 2 + 6) / 3


@given(seed=seeds)
def test_out_of_fold_is_numpys_mean_over_the_members_that_speak(seed):
    problem, said = random_problem(seed)
    result = problem.out_of_fold(said)
    for k in range(2):
        for row in range(6):
            speakers = problem.speaks[k, :, row].numpy()
            twin = said[k, speakers, row].numpy().mean(axis=0) if speakers.any() else np.zeros((2, 3))
            assert_allclose(result[k, row], twin, atol=1e-6)


@given(seed=seeds)
def test_what_members_say_about_rows_they_train_on_is_not_heard(seed):
    problem, said = random_problem(seed)
    noisy = torch.where(problem.speaks[..., None, None], said, said + 1000.0)
    assert_array_equal(problem.out_of_fold(noisy), problem.out_of_fold(said))


@given(seed=seeds, order=st.permutations(range(4)))
def test_the_order_of_members_does_not_matter_out_of_fold(seed, order):
    problem, said = random_problem(seed)
    order = list(order)
    turned = problem_with(problem.speaks[:, order])
    assert_allclose(turned.out_of_fold(said[:, order]), problem.out_of_fold(said), atol=1e-6)


@given(seed=seeds)
def test_the_mean_over_heard_rows_is_numpys(seed):
    problem, said = random_problem(seed)
    values = said[:, 0]  # (job, row, ...)
    twin = [values[k][problem.heard[k]].numpy().mean(axis=0) for k in range(2)]
    assert_allclose(problem.mean_over_heard(values), twin, atol=1e-6)


@settings(max_examples=40)
@given(seed=seeds)
def test_padding_changes_neither_the_out_of_fold_view_nor_its_mean(seed):
    jobs = [job(5, seed=seed), job(9, seed=seed + 1)]
    together = stack_jobs(jobs, CPU)
    said = torch.randn(2, 3, 9, 2, generator=torch.Generator().manual_seed(seed))
    view, mean = together.out_of_fold(said), together.mean_over_heard(said[:, 0])
    for k, n in enumerate((5, 9)):
        alone = stack_jobs([jobs[k]], CPU)
        assert_allclose(alone.out_of_fold(said[k : k + 1, :, :n])[0], view[k, :n], atol=1e-6)
        assert_allclose(alone.mean_over_heard(said[k : k + 1, 0, :n])[0], mean[k], atol=1e-6)


# Who trains on what --------------------------------------------------------------------------------------------------


@given(n_rows=st.integers(6, 40), folds=st.integers(2, 6), repeats=st.integers(1, 4), seed=seeds)
def test_every_row_is_left_out_once_per_repeat(n_rows, folds, repeats, seed):
    trains = split(n_rows, folds=folds, repeats=repeats, seed=seed)
    assert trains.shape == (folds * repeats, n_rows)
    assert_array_equal((~trains).reshape(repeats, folds, n_rows).sum(axis=1), np.ones((repeats, n_rows)))
    left_out = (~trains).sum(axis=1)
    assert set(left_out) <= {n_rows // folds, -(-n_rows // folds)}  # folds of equal size, but for one row


@given(seed=seeds, folds=st.integers(2, 4), repeats=st.integers(1, 3))
def test_whole_groups_stay_in_one_fold(seed, folds, repeats):
    groups = np.random.default_rng(seed).integers(0, 5, size=40)
    groups[:5] = np.arange(5)
    trains = split(40, folds=folds, repeats=repeats, groups=groups, seed=seed)
    assert_array_equal((~trains).sum(axis=0), np.full(40, repeats))
    for member in trains:
        assert not set(groups[member]) & set(groups[~member])


def test_repeats_leave_out_other_rows_each_time():
    trains = split(100, folds=5, repeats=3)
    assert len(np.unique(trains, axis=0)) == 15


def test_rows_are_shuffled_before_they_are_split():
    left_out = ~split(100, folds=5)
    assert all((np.diff(np.flatnonzero(member)) > 1).any() for member in left_out)  # no fold is a block of rows


def test_the_same_seed_gives_the_same_members_and_another_seed_others():
    first, again, other = (split(30, folds=3, repeats=2, seed=seed) for seed in (0, 0, 1))
    assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    "splitter",
    [
        KFold(4),
        KFold(3, shuffle=True, random_state=0),
        ShuffleSplit(5, test_size=0.3, random_state=1),
        TimeSeriesSplit(4),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_splitter_of_scikit_learn_is_followed(splitter):
    trains = split(24, folds=splitter)
    expected = [train for train, _ in splitter.split(np.zeros((24, 2)))]
    assert len(trains) == len(expected)
    for member, rows in zip(trains, expected, strict=True):
        assert_array_equal(np.flatnonzero(member), np.sort(rows))


def test_a_splitter_by_group_gets_the_groups():
    groups = np.repeat(np.arange(6), 4)
    trains = split(24, folds=GroupKFold(3), groups=groups)
    for member in trains:
        assert not set(groups[member]) & set(groups[~member])


def test_a_list_of_splits_is_followed_in_every_repeat():
    splits = [(np.arange(5), np.arange(5, 10)), (np.arange(5, 10), np.arange(5))]
    trains = split(10, folds=splits, repeats=2)
    assert_array_equal(trains, np.array([[True] * 5 + [False] * 5, [False] * 5 + [True] * 5] * 2))


def test_a_number_of_folds_from_numpy_is_a_number_of_folds():
    groups = np.arange(40) % 8
    for given_groups in (None, groups):
        trains = split(40, folds=np.int64(4), repeats=2, groups=given_groups)
        assert_array_equal(trains, split(40, folds=4, repeats=2, groups=given_groups))


def test_rows_that_a_splitter_gives_to_neither_side_are_neither_trained_on_nor_spoken_about() -> None:
    X = np.zeros((40, 1))
    splitter = TimeSeriesSplit(3, gap=2)
    trains, speaks = who_trains_and_speaks(
        X, folds=splitter, repeats=1, groups=None, random_state=check_random_state(0)
    )
    for member, (train, test) in enumerate(splitter.split(X)):
        np.testing.assert_array_equal(np.flatnonzero(trains[member]), train)
        np.testing.assert_array_equal(np.flatnonzero(speaks[member]), test)


@given(n_jobs=st.integers(1, 3), n_members=st.integers(1, 6), n_rows=st.integers(1, 9), seed=seeds)
def test_words_about_the_rows_left_out_give_the_same_average_as_words_about_all_rows(n_jobs, n_members, n_rows, seed):
    draw = torch.Generator().manual_seed(seed)
    problem = problem_with(torch.rand(n_jobs, n_members, n_rows, generator=draw) < 0.4)
    said = torch.randn(n_jobs, n_members, n_rows, 2, generator=draw)
    about_left_out = said.flatten(0, 1).gather(1, problem.left_out[..., None].expand(-1, -1, 2))
    assert_allclose(problem.of_left_out(about_left_out), problem.out_of_fold(said), atol=1e-6)


def test_a_member_that_left_fewer_rows_out_is_given_row_0_in_place_of_more():
    problem = problem_with([[[False, True, True], [False, False, True], [False, False, False]]])
    assert_array_equal(problem.left_out, [[1, 2], [2, 0], [0, 0]])
    said = torch.tensor([[4.0, 6.0], [8.0, 99.0], [99.0, 99.0]])
    assert_array_equal(problem.of_left_out(said), [[0.0, 4.0, 7.0]])
