import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coverwell.forecasting.history import Clock, History, read_history
from coverwell.forecasting.windows import CALENDAR, LevelRange, TimeFolds, WindowEncoding, Windows, calendar_features


def history_of(values, *, missing=(), past=None, known=None):
    values = np.asarray(values, dtype=float)
    observed = np.where(np.isin(np.arange(len(values)), missing), np.nan, values)
    past = np.zeros((len(values), 0)) if past is None else np.asarray(past, dtype=float)
    known = np.zeros((len(values), 0)) if known is None else np.asarray(known, dtype=float)
    names = [tuple(f"x{i}" for i in range(table.shape[1])) for table in (past, known)]
    return History(Clock(), "y", observed, past, known, *names)


def windows_of(n_past=3, horizon=1, *, differences=False, flags=False, n_past_covariates=0, n_known=0):
    return Windows(n_past, horizon, differences, flags, n_past_covariates, n_known)


def test_a_row_holds_the_last_steps_and_its_target_is_the_next_value():
    windows, history = windows_of(), history_of([1, 2, 4, 8, 16])
    origins = windows.origins(history)
    assert_array_equal(origins, [2, 3])
    assert_array_equal(windows.rows(history, origins), [[1, 2, 4], [2, 4, 8]])
    assert_array_equal(windows.targets(history, origins), [[8], [16]])
    assert_array_equal(windows.anchors(history, origins), [[0], [0]])


def test_with_differences_changes_stand_beside_levels_and_targets_are_changes_from_the_last_value():
    windows, history = windows_of(differences=True, horizon=2), history_of([1, 2, 4, 8, 16])
    origins = windows.origins(history)
    assert_array_equal(origins, [2])
    assert_array_equal(windows.rows(history, origins), [[1, 0, 2, 1, 4, 2]])  # level and change, step by step
    assert_array_equal(windows.targets(history, origins), [[4, 12]])
    assert_array_equal(windows.anchors(history, origins), [[4]])


def test_all_channels_come_step_by_step_and_then_what_is_known_about_the_next_steps():
    windows = windows_of(2, 2, differences=True, flags=True, n_past_covariates=2, n_known=1)
    history = history_of(
        [1, 3, 3, 7, 9],
        missing=[2],
        past=[[10, 20], [11, 21], [12, 22], [13, 23], [14, 24]],
        known=[[0.1], [0.2], [0.3], [0.4], [0.5]],
    )
    (row,) = windows.rows(history, np.array([2]))
    first, second = [3, 0, 0, 11, 21], [3, 0, 1, 12, 22]  # level, change, missing, and two companions
    assert_array_equal(row, [*first, *second, 0.4, 0.5])
    assert windows.channels == 5
    assert windows.n_columns == len(row) == 12
    assert_array_equal(windows.targets(history, np.array([2])), [[4, 6]])


def test_the_row_of_the_latest_step_needs_nothing_after_it_but_what_is_known():
    windows = windows_of(2, 2, n_known=1)
    history = history_of([1, 2, 3], known=np.arange(5.0)[:, None])
    assert_array_equal(windows.rows(history, np.array([2])), [[2, 3, 3, 4]])


def test_an_origin_needs_all_of_its_targets_observed():
    history = history_of(np.arange(10.0), missing=[5])
    assert_array_equal(windows_of(2, 1).origins(history), [1, 2, 3, 5, 6, 7, 8])
    assert_array_equal(windows_of(2, 2).origins(history), [1, 2, 5, 6, 7])


@pytest.mark.parametrize("n_steps", [1, 2, 4])
def test_a_series_shorter_than_past_and_horizon_has_no_origin(n_steps):
    assert len(windows_of(3, 2).origins(history_of(np.arange(n_steps)))) == 0
    assert len(windows_of(3, 2).origins(history_of(np.arange(5)))) == 1


@given(
    n_past=st.integers(1, 6),
    horizon=st.integers(1, 4),
    differences=st.booleans(),
    flags=st.booleans(),
    n_steps=st.integers(12, 30),
    seed=st.integers(0, 99),
)
def test_a_row_is_unchanged_by_later_values_and_its_target_is_back_in_units_with_its_anchor(
    n_past, horizon, differences, flags, n_steps, seed
):
    rng = np.random.default_rng(seed)
    windows = windows_of(n_past, horizon, differences=differences, flags=flags, n_past_covariates=1)
    values, missing = rng.normal(size=n_steps), 1 + rng.choice(n_steps - 1, size=2)
    past = rng.normal(size=(n_steps, 1))
    history = history_of(values, missing=missing, past=past)
    origins = windows.origins(history)
    cut = n_steps // 2
    later = np.arange(n_steps) > cut
    changed = history_of(
        np.where(later, 99.0, values), missing=missing[missing <= cut], past=np.where(later[:, None], 99.0, past)
    )
    before = origins[origins <= cut]
    assert_array_equal(windows.rows(history, before), windows.rows(changed, before))
    back = windows.targets(history, origins) + windows.anchors(history, origins)
    np.testing.assert_allclose(back, values[windows.ahead(origins)], atol=1e-12)
    assert windows.rows(history, origins).shape == (len(origins), windows.n_columns)


@pytest.mark.parametrize("differences", [True, False])
@pytest.mark.parametrize("calendar", [(), ("weekday", "hour", "month")])
@pytest.mark.parametrize(("n_past_covariates", "n_covariates"), [(0, 0), (2, 1)])
def test_the_encoding_in_torch_gives_the_rows_of_the_windows_from_raw_inputs(
    differences, calendar, n_past_covariates, n_covariates
):
    rng = np.random.default_rng(0)
    values = rng.normal(size=60)
    values[[3, 20, 21, 22, 23, 24, 40]] = np.nan  # a gap as long as a window among them
    past, covariates = rng.normal(size=(60, n_past_covariates)), rng.normal(size=(63, n_covariates))
    series = pd.Series(values, pd.date_range("2023-12-30 03:30", periods=60, freq="h"))
    history = read_history(
        series,
        covariates if n_covariates else None,
        past if n_past_covariates else None,
        calendar=calendar,
        missing="fill",
    )
    windows, origins = Windows.of(history, past=5, horizon=3, differences=differences), np.arange(5, 60)
    steps, ahead = origins[:, None] + np.arange(-4, 1), windows.ahead(origins)
    raw = {
        "values": history.values[steps],
        "before": history.filled[steps[:, :1] - 1],
        "past_covariates": past[steps] if n_past_covariates else None,
        "times": history.clock.times(0, 63)[ahead].astype(float) if calendar else None,
        "covariates": covariates[ahead] if n_covariates else None,
    }
    given = {name: None if array is None else torch.from_numpy(array) for name, array in raw.items()}
    rows, anchors = WindowEncoding(windows, calendar)(**given)
    assert rows.dtype == torch.float64
    n_window = windows.n_past * windows.channels
    assert_array_equal(rows[:, :n_window], windows.rows(history, origins)[:, :n_window])
    np.testing.assert_allclose(rows, windows.rows(history, origins), rtol=0, atol=1e-15)  # the two sines of a bit
    assert_array_equal(anchors, windows.anchors(history, origins))


def test_windows_outside_the_range_are_moved_to_its_border_and_from_afar_to_its_centre():
    level_range = LevelRange(low=0.0, high=10.0, centre=4.0)
    windows = np.array([[1.0, 9.0], [9.0, 12.0], [-2.0, 1.0], [99.0, 101.0], [14.0, 15.0], [-5.0, 20.0]])
    moved = level_range.moved(windows)
    assert_array_equal(moved[0], windows[0])
    np.testing.assert_allclose(moved[1], [7.0 - 0.2 * 4.5, 10.0 - 0.2 * 4.5])  # .2 of the way from a middle of 8.5 to 4
    np.testing.assert_allclose(moved[2], [0.0 + 0.2 * 2.5, 3.0 + 0.2 * 2.5])
    assert_array_equal(moved[3], [3.0, 5.0])
    np.testing.assert_allclose(np.diff(moved, axis=1), np.diff(windows, axis=1))  # changes stay
    np.testing.assert_allclose(moved[5].mean(), 4.0)  # wider than the range
    assert_array_equal(level_range.moved(torch.from_numpy(windows)), moved)


def test_a_window_with_one_outlier_stays_where_it_is():
    level_range, window = LevelRange(low=0.0, high=10.0, centre=4.0), np.array([[3.0, 4.0, 1e9, 5.0, 4.0]])
    assert_array_equal(level_range.moved(window), window)


def at(*times: str) -> np.ndarray:
    return np.array(times, "datetime64[s]")


EIGHTH = np.sin(np.pi / 8), np.cos(np.pi / 8)


@pytest.mark.parametrize(
    ("time", "name", "columns"),
    [
        ("2024-05-01T06:00", "hour", [1, 0, 0, -1, -1, 0]),  # three waves: at 90, 180 and 270 degrees
        ("2024-05-01T01:30", "hour", [*EIGHTH, np.sqrt(0.5), np.sqrt(0.5), *EIGHTH[::-1]]),  # minutes count
        ("1970-01-01", "weekday", [0, 0, 0, 1, 0, 0, 0]),  # from Monday on
        ("2024-01-01", "weekday", [1, 0, 0, 0, 0, 0, 0]),
        ("2024-03-31T23:59", "weekday", [0, 0, 0, 0, 0, 0, 1]),
        ("1969-12-31", "weekday", [0, 0, 1, 0, 0, 0, 0]),
        ("2024-01-01", "month", [0, 1]),
        ("2024-07-02", "month", [0, -1]),  # 183 of the 366 days of a leap year are over
    ],
)
def test_the_features_of_known_times(time, name, columns):
    np.testing.assert_allclose(calendar_features(at(time), [name]), [columns], atol=1e-12)


def test_columns_follow_the_order_of_the_names():
    times = at("2024-01-01", "2024-01-02T07:00")
    apart = [calendar_features(times, [name]) for name in ("weekday", "hour")]
    np.testing.assert_array_equal(calendar_features(times, ["weekday", "hour"]), np.concatenate(apart, axis=1))
    assert calendar_features(times, []).shape == (2, 0)


@given(second=st.integers(-(10**9), 4 * 10**9), week=st.integers(-500, 500))
def test_hour_and_weekday_come_back_every_week(second, week):
    times = np.array([second, second + week * 7 * 86400], "datetime64[s]")
    features = calendar_features(times, ["hour", "weekday"])
    np.testing.assert_array_equal(features[0], features[1])


@given(second=st.integers(-(10**9), 4 * 10**9))
def test_features_do_not_depend_on_the_other_times_or_the_unit(second):
    times = np.array([0, second, 10**9], "datetime64[s]")
    together = calendar_features(times.astype("datetime64[ns]"), CALENDAR)
    np.testing.assert_array_equal(together[1:2], calendar_features(times[1:2], CALENDAR))


def test_the_first_steps_are_cut_into_long_blocks_and_later_ones_given_out_in_turns():
    folds = TimeFolds(n_folds=2, first=2, end=12, block=3, embargo=1)
    assert_array_equal(folds.fold_of(np.arange(2, 12)), [0] * 5 + [1] * 5)
    assert_array_equal(folds.fold_of(np.arange(12, 22)), [0] * 3 + [1] * 3 + [0] * 3 + [1])


def test_origins_near_a_left_out_one_on_either_side_neither_train_nor_are_left_out():
    folds = TimeFolds(n_folds=3, first=0, end=12, block=4, embargo=1)
    train, out = folds.split(np.arange(12))[1]
    assert_array_equal(out, [4, 5, 6, 7])
    assert_array_equal(train, [0, 1, 2, 9, 10, 11])


time_folds = st.builds(
    TimeFolds,
    n_folds=st.integers(2, 5),
    first=st.integers(0, 10),
    end=st.integers(60, 120),
    block=st.integers(1, 30),
    embargo=st.integers(0, 12),
)


@given(folds=time_folds, n_later=st.integers(0, 100), seed=st.integers(0, 99))
def test_every_origin_is_left_out_once_and_trained_on_only_from_beyond_the_embargo(folds, n_later, seed):
    steps = np.arange(folds.first, folds.end + n_later)
    origins = steps[np.random.default_rng(seed).uniform(size=len(steps)) < 0.8]  # others had gaps as targets
    parts = folds.split(origins)
    assert len(parts) == folds.n_folds
    assert_array_equal(np.sort(np.concatenate([out for _, out in parts])), np.arange(len(origins)))
    for train, out in parts:
        distance = np.abs(origins[train][:, None] - origins[out])
        assert (distance > folds.embargo).all()
        # And none is kept away without need.
        rest = np.setdiff1d(np.arange(len(origins)), np.concatenate([train, out]))
        to_come = origins[-1] + 1 + np.arange(folds.embargo)
        left_out = folds.fold_of(origins[out])[:1]
        all_out = np.concatenate([origins[out], to_come[np.isin(folds.fold_of(to_come), left_out)]])
        assert (np.abs(origins[rest][:, None] - all_out) <= folds.embargo).any(axis=1).all()


@given(folds=time_folds, n_later=st.integers(1, 100))
def test_no_step_changes_its_fold_when_the_series_grows(folds, n_later):
    grown = np.arange(folds.first, folds.end + n_later)
    now = folds.fold_of(grown)
    assert_array_equal(now[: folds.end - folds.first], folds.fold_of(np.arange(folds.first, folds.end)))
    assert set(now) <= set(range(folds.n_folds))
    for out, (_, left_out) in enumerate(folds.split(grown)):
        assert_array_equal(now[left_out], np.full(len(left_out), out))


@given(folds=time_folds)
def test_blocks_of_the_first_fit_are_whole_and_nearly_equal(folds):
    fold = folds.fold_of(np.arange(folds.first, folds.end))
    assert (np.diff(fold) >= 0).all()
    sizes = np.bincount(fold, minlength=folds.n_folds)
    assert sizes.max() - sizes.min() <= 1


def test_a_fold_that_has_no_origins_yet_leaves_none_out_and_trains_up_to_the_embargo_before_its_first():
    folds = TimeFolds(n_folds=2, first=0, end=10, block=5, embargo=2)
    train, out = folds.split(np.arange(5))[1]
    assert len(out) == 0
    assert_array_equal(train, [0, 1, 2])  # 5 is to come and belongs to this fold


@given(
    n_folds=st.integers(2, 4),
    block=st.integers(1, 30),
    embargo=st.integers(1, 12),
    growth=st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_a_member_that_is_trained_on_keeps_the_embargo_to_all_that_it_leaves_out_later(n_folds, block, embargo, growth):
    folds = TimeFolds(n_folds, first=3, end=100, block=block, embargo=embargo)
    ends = np.cumsum([100, *growth])
    parts = [folds.split(np.arange(3, end)) for end in ends]
    for member in range(n_folds):
        trained = np.unique(
            np.concatenate([np.arange(3, end)[part[member][0]] for end, part in zip(ends, parts, strict=True)])
        )
        left_out = np.arange(3, ends[-1])[parts[-1][member][1]]
        if len(trained) and len(left_out):
            assert np.abs(trained[:, None] - left_out).min() > embargo
