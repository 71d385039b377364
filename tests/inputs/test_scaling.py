import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from coverwell.errors import ExtrapolationWarning
from coverwell.inputs.scaling import Scaling, without_far_off

tables = arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 4)), elements=st.floats(-1e6, 1e6))
# A constant column first, then a range of 0 to 4.
TRAINING = np.array([[7.0, 0.0], [7.0, 4.0]])
ODD = np.array([[1.0], [3.0], [5.0], [7.0]])  # mean 4, variance (9 + 1 + 1 + 9) / 4 = 5
both_units = pytest.mark.parametrize("unit_range", [False, True])


def scaled(scaling, values):
    return scaling(torch.from_numpy(np.asarray(values))).numpy()


def back(scaling, values):
    return scaling.inverse(torch.from_numpy(np.asarray(values))).numpy()


def random_table(seed, n_columns=3):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.normal(size=n_columns), rng.lognormal(size=n_columns), size=(50, n_columns))


def test_inputs_by_hand_are_drawn_to_the_border_of_the_training_range():
    scaling = Scaling.of(ODD, bounded=True)
    assert_allclose(scaled(scaling, [[4.0], [7.0]]), [[0.0], [3 / np.sqrt(5)]])
    assert_allclose(scaled(scaling, [[1e9], [-1e9], [8.0]]), scaled(scaling, [[7.0], [1.0], [7.0]]))


def test_targets_by_hand():
    assert_allclose(scaled(Scaling.of(ODD), ODD)[:, 0], np.array([-3, -1, 1, 3]) / np.sqrt(5))
    assert_allclose(scaled(Scaling.of(ODD, unit_range=True), ODD)[:, 0], [0, 1 / 3, 2 / 3, 1])


@given(seed=st.integers(0, 2**16))
def test_training_rows_are_scaled_as_by_scikit_learns_scalers(seed):
    X = random_table(seed)
    for scaling in (Scaling.of(X), Scaling.of(X, bounded=True)):
        assert_allclose(scaled(scaling, X), StandardScaler().fit_transform(X), atol=1e-9)
    assert_allclose(scaled(Scaling.of(X, unit_range=True), X), MinMaxScaler().fit_transform(X), atol=1e-9)


@given(X=tables, new=st.floats(-1e12, 1e12))
def test_scaled_inputs_are_finite_and_never_beyond_those_of_training(X, new):
    scaling = Scaling.of(X, bounded=True)
    seen, outside = scaled(scaling, X), scaled(scaling, np.full((1, X.shape[1]), new))
    assert np.isfinite(seen).all()
    assert (outside >= seen.min(axis=0)).all()
    assert (outside <= seen.max(axis=0)).all()


@both_units
@given(y=tables)
def test_scaling_targets_back_gives_what_was_scaled(unit_range, y):
    scaling = Scaling.of(y, unit_range=unit_range)
    assert np.isfinite(scaled(scaling, y)).all()
    assert_allclose(back(scaling, scaled(scaling, y)), y, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(y).max()))
    far = y.max(axis=0, keepdims=True) + 100  # targets have no bounds
    assert_allclose(back(scaling, scaled(scaling, far)), far, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(y).max()))


@pytest.mark.parametrize("value", [0.1, -3.0, 1e20])
def test_a_constant_input_becomes_zero_and_stays_zero_for_any_value(value):
    scaling = Scaling.of(np.full((1000, 1), value), bounded=True)  # the mean may differ from the value by rounding
    assert_allclose(scaled(scaling, [[value], [value + 5], [-7.0]]), np.zeros((3, 1)), atol=1e-12 * abs(value))


@both_units
def test_a_constant_target_becomes_zero_and_comes_back(unit_range):
    y = np.full((9, 2), [0.1, -3.0])
    scaling = Scaling.of(y, unit_range=unit_range)
    assert_allclose(scaled(scaling, y), np.zeros((9, 2)), atol=1e-12)
    assert_allclose(back(scaling, np.zeros((9, 2))), y)


def test_a_column_whose_spread_rounds_to_zero_is_taken_for_constant():
    scaling = Scaling.of(np.array([[0.0], [1e-200]]), bounded=True)
    assert np.isfinite(scaled(scaling, [[1.0], [-1.0]])).all()
    assert_array_equal(scaling.spread, [1.0])


def test_inputs_may_have_more_than_one_axis():
    windows = np.random.default_rng(0).normal(size=(20, 6, 2))
    scaling = Scaling.of(windows, bounded=True)
    assert scaling.shape == (6, 2)
    assert_allclose(scaled(scaling, windows).mean(axis=0), np.zeros((6, 2)), atol=1e-12)
    assert_allclose(scaled(scaling, windows).std(axis=0), np.ones((6, 2)))


def test_a_single_row_brings_a_warning_when_it_lies_half_a_range_away():
    scaling = Scaling.of(TRAINING, bounded=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaling.count_outside(np.array([[7.0, -2.0], [7.0, 6.0]])).warn(None)  # 0 - 2 and 4 + 2: just not far
    for rows, said in (
        ([[7.0, 6.1], [7.0, 2.0]], "1 of 2 rows .*column 1.*, 1 of them by more than half of it"),
        ([[7.0, 6.1], [7.0, -2.1]], "2 of 2 rows"),
        ([[7.1, 2.0]], "1 of 1 rows .*column 0"),  # any other value in a constant column
    ):
        with pytest.warns(ExtrapolationWarning, match=said):
            scaling.count_outside(np.array(rows)).warn(None)


def test_rows_that_lie_nearer_bring_a_warning_when_chance_does_not_explain_them():
    X = np.linspace(0.0, 1.0, 99)[:, None] * [1.0, 1.0]
    scaling, near, inside = Scaling.of(X, bounded=True), np.array([[0.5, 1.01]]), np.array([[0.5, 0.5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = scaling.count_outside(near)
        one.warn(None)  # by chance, 2 x (1 / 100) x 2 columns
        few = one + scaling.count_outside(np.repeat(inside, 400, axis=0))
        few.warn(None)
    assert (few.n_rows, few.n_outside, few.n_far, few.by_column.tolist()) == (401, 1, 0, [0, 1])
    with pytest.warns(ExtrapolationWarning, match=r"3 of 3 rows lie outside the range .* \(in b\); "):
        scaling.count_outside(np.repeat(near, 3, axis=0)).warn(["a", "b"])  # 4 x (3 / 102)^3 x 2


def test_rows_like_those_of_training_hardly_ever_bring_a_warning():
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(300):
        rows = rng.standard_t(3, size=(140, 5))
        alarms += Scaling.of(rows[40:], bounded=True).count_outside(rows[:40]).odd.any()
    assert alarms <= 9  # of 300 at most 1 % each: more has a probability below 1 in 1,000


def test_the_warning_names_the_columns_but_not_more_than_five():
    scaling, names = Scaling.of(np.tile([[0.0], [1.0]], (1, 8)), bounded=True), [f"c{k}" for k in range(8)]
    X = np.full((3, 8), 0.5)
    X[0, [1, 6]] = 99.0
    said = r"1 of 3 rows .*\(in c1, c6\).*; .* not to be trusted"
    with pytest.warns(ExtrapolationWarning, match=said):
        scaling.count_outside(X).warn(names)
    with pytest.warns(ExtrapolationWarning, match=r"\(in c0, c1, c2, c3, c4\)"):
        scaling.count_outside(np.full((3, 8), 99.0)).warn(names)


def test_inputs_without_bounds_stay_where_they_are_and_are_never_outside():
    X, far = np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[1000.0, 6.0]])
    free, held = Scaling.of(X, bounded=False), Scaling.of(X, bounded=True)
    assert_array_equal(scaled(free, far), [[999.0, 1.0]])  # mean 1, spread 1; the constant has spread 1
    assert_array_equal(scaled(held, far), [[1.0, 0.0]])
    assert not free.outside(far, by=0.5).any()
    assert_array_equal(held.outside(far), [[True, True]])
    assert free.count_outside(far).n_outside == 0


def test_a_widened_scaling_has_the_units_of_the_first_and_the_range_of_both():
    first, second = (Scaling.of(np.array([[low], [high]]), bounded=True) for low, high in ((0.0, 2.0), (1.0, 9.0)))
    both = first.widened(second)
    assert_array_equal(scaled(both, [[-5.0], [2.0], [20.0]]), [[-1.0], [1.0], [8.0]])
    assert_array_equal(scaled(first, [[20.0]]), [[1.0]])


def test_features_of_images_are_neither_scaled_nor_copied():
    features = torch.ones(3, 4, 2, 2, dtype=torch.float16)
    scaling = Scaling((4, 2, 2))
    assert scaling(features) is features
    assert scaling.shape == (4, 2, 2)
    assert scaling.widened(scaling) is scaling
    assert scaling.count_outside(np.full((3, 4, 2, 2), 1e9)).n_outside == 0


def test_targets_far_off_are_learned_as_the_next_ordinary_one():
    y = np.array([*range(-9, 10), 1e12, 271.0, -1e6])[:, None]  # 90 % lie within 9.9 of the median, 0.5
    learned = without_far_off(y)
    assert_array_equal(learned[:19], y[:19])
    assert learned[19:, 0].tolist() == [271.0, 271.0, -9.0]  # 271 is 27.3 times as far


@given(values=tables)
def test_targets_are_learned_as_they_are_unless_they_lie_far_off(values):
    assume(len(values) != 3)  # two of them may lie together: then the third is far off
    values = values % 10 + 20.0 * (np.arange(len(values)) % 2)[:, None]
    assert_array_equal(without_far_off(values), values)


def test_counts_of_mostly_zeros_are_no_far_off_targets():
    y = np.array([0.0] * 97 + [1.0, 3.0, 2000.0])[:, None]
    assert without_far_off(y)[-2:, 0].tolist() == [3.0, 3.0]
    assert_array_equal(without_far_off(y[:-1]), y[:-1])
