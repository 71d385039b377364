import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
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

from coverwell.inputs.mirroring import Mirroring
from coverwell.inputs.scaling import ConstantDataWarning, UnscaledInputs
from coverwell.preparation import Plan, levels_from, prepare, target_names_of

GROUPS = np.repeat(np.arange(12), 5)


def table(n_rows=60, n_features=3, n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_features)), 5 + 2 * rng.normal(size=(n_rows, n_targets))


def plan_of(**changes):
    usual = {
        "levels": (0.5, 0.8),
        "folds": 3,
        "repeats": 1,
        "calibration": "cross",
        "calibration_size": 0.2,
        "unit_range": False,
    }
    return Plan(**usual | changes)


def prepared(X=None, y=None, groups=None, *, seed=0, **changes):
    usual_X, usual_y = table()
    X, y = usual_X if X is None else X, usual_y if y is None else y
    return prepare(X, y, groups, plan_of(**changes), np.random.RandomState(seed))


def masks(job):
    return job.trains.numpy(), job.speaks.numpy()


def assert_groups_whole(trains, groups):
    for mask in trains:
        assert not set(groups[mask]) & set(groups[~mask])


# Levels and names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "levels"),
    [
        (0.9, (0.9,)),
        ([0.9], (0.9,)),
        ((0.9, 0.5), (0.9, 0.5)),
        (np.array([0.9, 0.5]), (0.9, 0.5)),
        (np.float64(0.9), (0.9,)),
        (pd.Series([0.5, 0.9]), (0.5, 0.9)),
    ],
)
def test_levels_are_floats_in_the_order_asked_for(asked, levels):
    assert levels_from(asked) == levels
    assert all(type(level) is float for level in levels_from(asked))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (0.0, "strictly between 0 and 1, got 0.0"),
        (1, "strictly between 0 and 1, got 1"),
        (-0.5, "got -0.5"),
        (90.0, "got 90.0"),
        (float("nan"), "got nan"),
        (True, "got True"),
        (None, "got None"),
        ("0.9", "got '0.9'"),
        (["0.9"], "got '0.9'"),
        (np.array(0.9), r"got array\(0.9\)"),
        ([0.5, 1.5], "got 1.5"),
        ([[0.5, 0.9]], "got "),
        ([], "at least one level"),
        ([0.9, 0.5, 0.9], r"twice, got \(0.9, 0.5, 0.9\)"),
    ],
)
def test_a_level_that_is_none_is_refused(asked, said):
    with pytest.raises(ValueError, match=f"coverage must .*{said}"):
        levels_from(asked)


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([1.0, 2.0], ("y",)),
        (np.zeros(2), ("y",)),
        (np.zeros((2, 1)), ("y",)),
        (np.zeros((2, 3)), ("y0", "y1", "y2")),
        (pd.Series([1.0, 2.0]), ("y",)),
        (pd.Series([1.0, 2.0], name="price"), ("price",)),
        (pd.Series([1.0, 2.0], name=0), ("0",)),
        (pd.DataFrame({"price": [1.0, 2.0], 7: [1.0, 2.0]}), ("price", "7")),
        (pl.Series([1.0, 2.0]), ("y",)),
        (pl.Series("price", [1.0, 2.0]), ("price",)),
        (pl.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}), ("a", "b")),
    ],
)
def test_targets_are_called_as_the_user_calls_them_or_y(y, names):
    assert target_names_of(y, np.asarray(y)) == names


# Who trains on what --------------------------------------------------------------------------------------------------


def test_a_fit_without_kept_rows_is_one_job_of_all_rows():
    (job,) = prepared(repeats=2).jobs
    trains, speaks = masks(job)
    assert trains.shape == (6, 60)
    assert_array_equal(speaks, ~trains)
    assert_array_equal(speaks.sum(axis=0), np.full(60, 2))  # every row is left out once per repeat
    assert len(prepared().ranked[0]) == 0


@given(
    folds=st.integers(2, 5),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    calibration=st.sampled_from(["cross", "cv+", "split", None]),
)
def test_a_group_stays_in_one_fold_and_on_one_side_of_the_ranks(folds, repeats, seed, calibration):
    groups = np.random.default_rng(seed).permutation(GROUPS)
    result = prepared(groups=groups, folds=folds, repeats=repeats, seed=seed, calibration=calibration)
    for job, kept in zip(result.jobs, result.ranked, strict=True):
        own = np.setdiff1d(np.arange(60), kept)
        assert not set(groups[kept]) & set(groups[own])
        assert_groups_whole(job.trains.numpy(), groups[own])


@pytest.mark.parametrize("splitter", [LeaveOneGroupOut(), GroupKFold(4)])
def test_a_splitter_by_group_gets_the_groups(splitter):
    trains, _ = masks(prepared(groups=GROUPS, folds=splitter).jobs[0])
    assert len(trains) == splitter.get_n_splits(groups=GROUPS)
    assert_groups_whole(trains, GROUPS)


@pytest.mark.parametrize("splitter", [KFold(4), LeaveOneOut(), RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)])
def test_a_splitter_is_followed(splitter):
    X, _ = table()
    trains, speaks = masks(prepared(folds=splitter).jobs[0])
    for mask, said, (train, test) in zip(trains, speaks, splitter.split(X), strict=True):
        assert_array_equal(np.flatnonzero(mask), train)
        assert_array_equal(np.flatnonzero(said), test)


def test_rows_without_a_fold_of_their_own_train_everybody_and_nobody_speaks_about_them():
    fold = np.where(GROUPS < 3, -1, GROUPS % 3)
    trains, speaks = masks(prepared(folds=PredefinedSplit(fold)).jobs[0])
    assert trains[:, fold == -1].all()
    assert not speaks[:, fold == -1].any()
    assert_array_equal(speaks.sum(axis=0), fold >= 0)


def test_in_order_of_time_members_train_on_the_past_alone():
    trains, speaks = masks(prepared(folds=TimeSeriesSplit(3)).jobs[0])
    last = [np.flatnonzero(mask).max() for mask in trains]
    assert last == [14, 29, 44]
    assert [np.flatnonzero(said).min() for said in speaks] == [15, 30, 45]


def test_a_list_of_splits_is_followed():
    X, _ = table()
    splits = list(KFold(3).split(X))
    trains, _ = masks(prepared(folds=splits).jobs[0])
    assert_array_equal(trains, masks(prepared(folds=KFold(3)).jobs[0])[0])


def test_literal_training_leaves_nobody_out_and_hears_everybody():
    trains, speaks = masks(prepared(folds=None, calibration=None, repeats=2).jobs[0])
    assert trains.shape == (2, 60)
    assert trains.all()
    assert speaks.all()


@pytest.mark.parametrize(
    ("changes", "n_rows", "n_repeats"),
    [
        ({}, 60, 5),
        ({}, 1000, 5),  # 6000 / 1000 = 6, at most 5
        ({}, 1500, 4),
        ({}, 3000, 2),
        ({}, 100_000, 2),  # at least 2
        ({"repeats": 7}, 60, 7),
        ({"calibration": "split"}, 1500, 4),
        ({"calibration": "cv+"}, 60, 1),  # every team has folds of its own
        ({"folds": None, "calibration": None}, 60, 1),
        ({"folds": None, "calibration": None, "repeats": 3}, 60, 3),
    ],
)
def test_small_tables_are_repeated_more_often(changes, n_rows, n_repeats):
    assert plan_of(**{"repeats": "auto"} | changes).n_repeats(n_rows) == n_repeats


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others():
    first, again, other = (prepared(seed=seed, calibration="split") for seed in (0, 0, 1))
    assert_array_equal(first.jobs[0].trains, again.jobs[0].trains)
    assert_array_equal(first.ranked[0], again.ranked[0])
    assert first.seed == again.seed != other.seed
    assert not np.array_equal(first.ranked[0], other.ranked[0])


# Rows kept for the ranks ---------------------------------------------------------------------------------------------


def test_split_keeps_its_share_of_the_rows_and_trains_on_the_rest():
    result = prepared(calibration="split", calibration_size=0.25)
    (job,), (kept,) = result.jobs, result.ranked
    assert len(kept) == 15
    assert job.trains.shape == (3, 45)


def test_cv_plus_has_a_team_per_fold_that_never_sees_it():
    result = prepared(calibration="cv+", folds=4)
    assert len(result.jobs) == 4
    assert_array_equal(np.sort(np.concatenate(result.ranked)), np.arange(60))  # each row is left out by one team
    for job, kept in zip(result.jobs, result.ranked, strict=True):
        assert job.trains.shape == (4, 60 - len(kept))


@pytest.mark.parametrize("calibration", ["split", "cv+"])
def test_kept_rows_touch_neither_scale_nor_range(calibration):
    X, y = table()
    first = prepared(X, y, calibration=calibration)
    kept = first.ranked[0]
    X[kept], y[kept] = 1e6, -1e9
    again = prepared(X, y, calibration=calibration)
    assert_array_equal(again.ranked[0], kept)
    for name in ("x", "y", "trains", "speaks"):
        assert_array_equal(getattr(first.jobs[0], name), getattr(again.jobs[0], name))
    for one, other in ((first.inputs[0], again.inputs[0]), (first.targets[0], again.targets[0])):
        for name, value in vars(one).items():
            assert_array_equal(value, getattr(other, name))


def test_jobs_are_scaled_and_in_the_precision_of_training():
    X, y = table(n_targets=2)
    (job,) = prepared(X, y).jobs
    assert job.x.dtype == job.y.dtype == torch.float32
    assert_allclose(job.x.mean(dim=0), np.zeros(3), atol=1e-6)
    assert_allclose(job.y.std(dim=0, correction=0), np.ones(2), rtol=1e-5)
    (published,) = prepared(X, y, unit_range=True).jobs
    assert_allclose(published.y.min(dim=0).values, np.zeros(2))
    assert_allclose(published.y.max(dim=0).values, np.ones(2))
    assert_allclose(job.coverage, [0.5, 0.8])


# What cannot be prepared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folds", ["five", 5.0, object()])
def test_folds_of_another_kind_are_refused(folds):
    with pytest.raises(ValueError, match="folds must be a whole number, a scikit-learn splitter or None, got"):
        prepared(folds=folds)


@pytest.mark.parametrize("folds", [1, 0, -3, True])
def test_fewer_than_two_folds_are_refused(folds):
    with pytest.raises(ValueError, match="folds must be at least 2, a splitter, or None, got"):
        prepared(folds=folds)


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split", None])
def test_more_folds_than_rows_or_groups_are_refused(calibration):
    with pytest.raises(ValueError, match=r"folds=61 needs at least as many rows, got .*fewer folds or more rows"):
        prepared(folds=61, calibration=calibration)
    with pytest.raises(ValueError, match=r"folds=13 needs at least as many groups, got .*fewer folds or more groups"):
        prepared(folds=13, groups=GROUPS, calibration=calibration)


@pytest.mark.parametrize("calibration", ["split", "cv+"])
@pytest.mark.parametrize("folds", [PredefinedSplit(GROUPS % 3), list(KFold(3).split(np.zeros(60)))])
def test_folds_fixed_for_all_rows_do_not_go_with_rows_kept_back(folds, calibration):
    with pytest.raises(ValueError, match=r"the given folds are fixed .* or calibration='cross'"):
        prepared(folds=folds, calibration=calibration)


def test_folds_that_leave_nothing_out_or_nothing_to_train_on_are_refused():
    everything = np.arange(60)
    with pytest.raises(ValueError, match="leaves none out"):
        prepared(folds=[(everything, everything[:3])])
    with pytest.raises(ValueError, match="rows to train on"):
        prepared(folds=[(everything[:0], everything)])


def test_cv_plus_needs_every_row_left_out_once():
    with pytest.raises(ValueError, match=r"cv\+' needs folds that leave every row out exactly once"):
        prepared(folds=TimeSeriesSplit(3), calibration="cv+")


@pytest.mark.parametrize(
    ("calibration", "n_rows", "said"),
    [
        ("cross", 18, "'cross' ranks 18 of 18 rows: coverage 0.95 by ranks needs at least 19 rows, got 18"),
        ("cv+", 18, r"'cv\+' ranks 18 rows: .*at least 19 rows, got 18"),
        ("split", 60, "'split' keeps 12 of 60 rows: .*at least 19 rows, got 12"),
    ],
)
def test_too_few_rows_for_the_level_is_an_error_that_says_how_many(calibration, n_rows, said):
    X, y = table(n_rows)
    with pytest.raises(ValueError, match=f"{said}.*or fit with calibration=None"):
        prepared(X, y, levels=(0.5, 0.95), calibration=calibration)


def test_just_enough_rows_for_the_level_are_enough():
    X, y = table(95)
    assert len(prepared(X, y, levels=(0.95,), calibration="split").ranked[0]) == 19
    X, y = table(19)
    prepared(X, y, levels=(0.95,), calibration="cross")


def test_one_group_cannot_be_split():
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        prepared(groups=np.zeros(60), calibration="split")


@pytest.mark.parametrize("name", ["X", "y"])
def test_numbers_whose_squares_overflow_are_refused(name):
    X, y = table()
    (X if name == "X" else y)[7] = 1e200
    with pytest.raises(ValueError, match=rf"{name} must lie within 1e\+150 of zero, got 1e\+200"):
        prepared(X, y)


def test_constant_columns_are_counted_in_a_warning():
    X, y = table()
    X[:, 1] = 3.0
    with pytest.warns(ConstantDataWarning, match="1 of 3 columns of X are constant .*column 1"):
        prepared(X, y)


def test_a_constant_target_is_a_warning_also_where_its_spread_rounds_to_zero():
    X, y = table(n_targets=2)
    y[:, 0] = 3.0
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        prepared(X, y)
    _, y = table()
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        prepared(X, 1e-200 * y)


@pytest.mark.parametrize("level", [1e-9, 1 - 1e-9])
def test_a_level_that_float32_does_not_tell_from_its_bound_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="at least 1e-06 from 0 and 1"):
        levels_from(level)


# Networks that go on training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calibration", "n_jobs"), [("cross", 1), ("cv+", 3)])
def test_networks_that_go_on_keep_their_units_over_the_range_of_all_that_was_seen(calibration, n_jobs):
    X, y = table()
    before = prepared(X, y, calibration=calibration)
    scalers = tuple(zip(before.inputs, before.targets, strict=True))
    assert len(scalers) == n_jobs
    after = prepared(3 * X + 1, 5 * y, calibration=calibration, scalers=scalers)
    for old, new, rows in zip(before.inputs, after.inputs, after.ranked, strict=True):
        seen = np.delete(3 * X + 1, rows, axis=0)
        assert_array_equal(new.centre, old.centre)
        assert_array_equal(new.spread, old.spread)
        assert_array_equal(new.low, np.minimum(old.low, seen.min(axis=0)))
        assert_array_equal(new.high, np.maximum(old.high, seen.max(axis=0)))
    for old, new in zip(before.targets, after.targets, strict=True):
        assert_array_equal(new.centre, old.centre)
        assert_array_equal(new.spread, old.spread)
    job, kept = after.jobs[0], np.delete(np.arange(60), after.ranked[0])
    assert_allclose(job.y, (5 * y[kept] - before.targets[0].centre) / before.targets[0].spread, rtol=1e-5)
    assert_allclose(job.x, (3 * X[kept] + 1 - before.inputs[0].centre) / before.inputs[0].spread, rtol=1e-4, atol=1e-6)


def test_a_first_training_takes_its_units_from_its_rows():
    X, y = table()
    assert plan_of().scalers == ()
    assert_array_equal(prepared(X, y).inputs[0].centre, X.mean(axis=0))


# Features of pictures ------------------------------------------------------------------------------------------------


def features(n_pictures=60, *, views=(), seed=0):
    """As short as they are kept, all of one channel constant, and read-only."""
    drawn = np.random.default_rng(seed).normal(size=(n_pictures, *views, 3, 2, 2)).astype(np.float16)
    drawn[..., 0, :, :] = 0
    drawn.flags.writeable = False
    return drawn


def test_features_are_neither_scaled_nor_copied_nor_looked_through():
    X, (_, y) = features(), table()
    ready = prepared(X, y, scaled=False)
    (job,) = ready.jobs
    assert job.x.dtype == torch.float16
    assert job.x.data_ptr() == X.ctypes.data
    assert ready.inputs == [UnscaledInputs((3, 2, 2))]


@pytest.mark.parametrize("calibration", ["cross", "split", "cv+"])
def test_a_picture_and_its_mirror_image_are_two_rows_of_one_fold(calibration):
    X, y = features(views=(2,)), np.random.default_rng(0).uniform(0, 0.5, size=(60, 4))
    mirroring = Mirroring("boxes")
    ready = prepared(X, y, GROUPS, scaled=False, mirroring=mirroring, calibration=calibration)
    for job, scaler, ranked in zip(ready.jobs, ready.targets, ready.ranked, strict=True):
        kept = np.setdiff1d(np.arange(60), ranked)
        held = np.arange(60) if calibration == "cv+" else kept  # teams of "cv+" look at all features, in place
        assert_array_equal(job.x[::2], X[held, 0])
        assert_array_equal(job.x[1::2], X[held, 1])
        assert_allclose(scaler.inverse(job.y.double().numpy()), mirroring.rows(y[held]), atol=1e-6)
        for mask in masks(job):
            assert_array_equal(mask[:, ::2], mask[:, 1::2])
        own = np.isin(held, kept)
        assert_groups_whole(job.trains.numpy()[:, ::2][:, own], GROUPS[kept])


def test_teams_of_cv_plus_share_the_features_and_train_on_what_those_of_a_table_do():
    X, (table_X, y) = features(), table()
    for groups in (None, GROUPS):
        ready = prepared(X, y, groups, scaled=False, calibration="cv+", folds=4)
        twin = prepared(table_X, y, groups, calibration="cv+", folds=4)
        assert len(ready.jobs) == 4
        for job, of_table, ranked, scaler in zip(ready.jobs, twin.jobs, ready.ranked, twin.targets, strict=True):
            assert job.x.data_ptr() == X.ctypes.data
            kept = np.setdiff1d(np.arange(60), ranked)
            for mask, of_rows in zip(masks(job), masks(of_table), strict=True):
                assert_array_equal(mask[:, kept], of_rows)
                assert not mask[:, ranked].any()
            assert_array_equal(job.y[kept], of_table.y)  # in the units of its own rows
            assert_allclose(job.y[ranked].double(), scaler.transform(y[ranked]), rtol=1e-6)
        assert_array_equal(np.sort(np.concatenate(ready.ranked)), np.arange(60))


def test_targets_are_scaled_over_pictures_and_mirror_images():
    """All boxes lie to the left; with their mirror images the mean x + width / 2 is in the middle."""
    y = np.random.default_rng(0).uniform(0, 0.3, size=(60, 4))
    (scaler,) = prepared(features(views=(2,)), y, scaled=False, mirroring=Mirroring("boxes")).targets
    assert scaler.centre[0] + scaler.centre[2] / 2 == pytest.approx(0.5)


def test_targets_that_cannot_be_mirrored_are_refused():
    with pytest.raises(ValueError, match="needs four targets"):
        prepared(features(views=(2,)), table()[1], scaled=False, mirroring=Mirroring("boxes"))
