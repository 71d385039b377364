import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from coverwell.inputs.scaling import ExtrapolationWarning, Inputs, InputScaler, TargetScaler, UnscaledInputs

tables = arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 4)), elements=st.floats(-1e6, 1e6))
# A constant column first, then a range of 0 to 4.
TRAINING = np.array([[7.0, 0.0], [7.0, 4.0]])


def random_table(seed, n_columns=3):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.normal(size=n_columns), rng.lognormal(size=n_columns), size=(50, n_columns))


def test_inputs_by_hand():
    scaler = InputScaler.of(np.array([[1.0], [3.0], [5.0], [7.0]]))  # mean 4, variance (9 + 1 + 1 + 9) / 4 = 5
    assert_allclose(scaler.transform(np.array([[4.0], [7.0]])), [[0.0], [3 / np.sqrt(5)]])


def test_inputs_outside_the_training_range_are_drawn_to_its_border():
    scaler = InputScaler.of(np.array([[1.0], [3.0], [5.0], [7.0]]))
    far = scaler.transform(np.array([[1e9], [-1e9], [8.0]]))
    assert_allclose(far, scaler.transform(np.array([[7.0], [1.0], [7.0]])))


@given(seed=st.integers(0, 2**16))
def test_training_inputs_are_those_of_scikit_learns_standard_scaler(seed):
    X = random_table(seed)
    assert_allclose(InputScaler.of(X).transform(X), StandardScaler().fit_transform(X), atol=1e-9)


@given(X=tables, new=st.floats(-1e12, 1e12))
def test_scaled_inputs_are_finite_and_never_beyond_those_of_training(X, new):
    scaler = InputScaler.of(X)
    seen = scaler.transform(X)
    outside = scaler.transform(np.full((1, X.shape[1]), new))
    assert np.isfinite(seen).all()
    assert (outside >= seen.min(axis=0)).all()
    assert (outside <= seen.max(axis=0)).all()


@pytest.mark.parametrize("value", [0.1, -3.0, 1e20])
def test_a_constant_column_becomes_zero_and_stays_zero_for_any_value(value):
    scaler = InputScaler.of(np.full((1000, 1), value))  # the mean may differ from the value by rounding
    assert_allclose(
        scaler.transform(np.array([[value], [value + 5], [-7.0]])), np.zeros((3, 1)), atol=1e-12 * abs(value)
    )


def test_a_column_whose_spread_rounds_to_zero_is_taken_for_constant():
    scaler = InputScaler.of(np.array([[0.0], [1e-200]]))
    assert np.isfinite(scaler.transform(np.array([[1.0], [-1.0]]))).all()
    assert_array_equal(scaler.spread, [1.0])


def test_inputs_may_have_more_than_one_axis():
    windows = np.random.default_rng(0).normal(size=(20, 6, 2))
    scaled = InputScaler.of(windows).transform(windows)
    assert scaled.shape == windows.shape
    assert_allclose(scaled.mean(axis=0), np.zeros((6, 2)), atol=1e-12)
    assert_allclose(scaled.std(axis=0), np.ones((6, 2)))


def test_a_value_is_far_outside_when_it_is_a_whole_range_away():
    scaler = InputScaler.of(TRAINING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.warn_if_far_outside(np.array([[7.0, -4.0], [7.0, 8.0]]), None)  # 0 - 4 and 4 + 4: just not far
    with pytest.warns(ExtrapolationWarning, match="1 of 2 rows .*column 1"):
        scaler.warn_if_far_outside(np.array([[7.0, 8.1], [7.0, 2.0]]), None)
    with pytest.warns(ExtrapolationWarning, match="2 of 2 rows"):
        scaler.warn_if_far_outside(np.array([[7.0, 8.1], [7.0, -4.1]]), None)


def test_any_other_value_in_a_constant_column_is_far_outside():
    with pytest.warns(ExtrapolationWarning, match="1 of 1 rows .*column 0"):
        InputScaler.of(TRAINING).warn_if_far_outside(np.array([[7.1, 2.0]]), None)


def test_the_warning_names_the_columns_but_not_more_than_five():
    scaler = InputScaler.of(np.tile([[0.0], [1.0]], (1, 8)))
    names = [f"c{k}" for k in range(8)]
    X = np.full((3, 8), 0.5)
    X[0, [1, 6]] = 99.0
    with pytest.warns(
        ExtrapolationWarning, match=r"1 of 3 rows .*\(in c1, c6\); .* no interval is to be trusted there"
    ):
        scaler.warn_if_far_outside(X, names)
    with pytest.warns(ExtrapolationWarning, match=r"\(in c0, c1, c2, c3, c4\)"):
        scaler.warn_if_far_outside(np.full((3, 8), 99.0), names)


def test_targets_by_hand():
    y = np.array([[1.0], [3.0], [5.0], [7.0]])
    assert_allclose(TargetScaler.of(y, unit_range=False).transform(y)[:, 0], np.array([-3, -1, 1, 3]) / np.sqrt(5))
    assert_allclose(TargetScaler.of(y, unit_range=True).transform(y)[:, 0], [0, 1 / 3, 2 / 3, 1])


@given(seed=st.integers(0, 2**16))
def test_targets_are_scaled_as_scikit_learns_scalers_do(seed):
    y = random_table(seed)
    assert_allclose(TargetScaler.of(y, unit_range=False).transform(y), StandardScaler().fit_transform(y), atol=1e-9)
    assert_allclose(TargetScaler.of(y, unit_range=True).transform(y), MinMaxScaler().fit_transform(y), atol=1e-9)


@pytest.mark.parametrize("unit_range", [False, True])
@given(y=tables)
def test_scaling_targets_back_gives_what_was_scaled(unit_range, y):
    scaler = TargetScaler.of(y, unit_range=unit_range)
    scaled = scaler.transform(y)
    assert np.isfinite(scaled).all()
    assert_allclose(scaler.inverse(scaled), y, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(y).max()))


@pytest.mark.parametrize("unit_range", [False, True])
def test_targets_outside_the_training_range_are_not_bounded(unit_range):
    scaler = TargetScaler.of(np.array([[0.0], [10.0]]), unit_range=unit_range)
    assert_allclose(scaler.inverse(scaler.transform(np.array([[100.0]]))), [[100.0]])


@pytest.mark.parametrize("unit_range", [False, True])
def test_a_constant_target_becomes_zero_and_comes_back(unit_range):
    y = np.full((9, 2), [0.1, -3.0])
    scaler = TargetScaler.of(y, unit_range=unit_range)
    assert_allclose(scaler.transform(y), np.zeros((9, 2)), atol=1e-12)
    assert_allclose(scaler.inverse(np.zeros((9, 2))), y)


def test_a_scaler_that_is_not_bounded_leaves_values_where_they_are_and_never_finds_them_far_outside():
    X = np.array([[0.0, 5.0], [2.0, 5.0]])
    free, held = InputScaler.of(X, bounded=False), InputScaler.of(X)
    far = np.array([[1000.0, 6.0]])
    assert_array_equal(free.transform(far), [[999.0, 1.0]])  # mean 1, spread 1; the constant has spread 1
    assert_array_equal(held.transform(far), [[1.0, 0.0]])
    assert not free.far_outside(far).any()
    assert_array_equal(held.far_outside(far), [[True, True]])


def test_features_of_images_are_neither_scaled_nor_copied():
    features = np.ones((3, 4, 2, 2), dtype=np.float16)
    inputs = UnscaledInputs(features.shape[1:])
    assert inputs.transform(features) is features
    assert inputs.shape == (4, 2, 2)


def test_both_kinds_of_inputs_know_the_shape_of_a_row():
    assert isinstance(InputScaler.of(TRAINING), Inputs)
    assert isinstance(UnscaledInputs((4, 2, 2)), Inputs)
    assert InputScaler.of(TRAINING).shape == TRAINING.shape[1:]
