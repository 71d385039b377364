import math

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from coverwell.intervals import Interval, PredictionInterval, quantile_levels, widen_outwards, z_score

shares = st.floats(0.001, 0.999)
bounds = array_shapes(min_dims=1, max_dims=3, max_side=4).flatmap(
    lambda shape: st.tuples(*[arrays(np.float64, shape, elements=st.floats(-10, 10))] * 2)
)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_an_interval_unpacks_into_its_bounds_and_knows_its_width():
    lower, upper = torch.full((2, 3, 1, 1), -1.0), torch.full((2, 3, 1, 1), 2.5)
    interval = Interval(lower, upper)
    first, second = interval
    assert first is lower
    assert second is upper
    assert_array_equal(interval.width, np.full((2, 3, 1, 1), 3.5))  # 2.5 - (-1)


def test_bounds_of_different_shapes_are_no_interval():
    with pytest.raises(jaxtyping.TypeCheckError):
        Interval(torch.zeros(2, 3, 1, 1), torch.zeros(2, 3, 1, 2))


def test_z_scores_of_the_textbook():
    asked = double(0.5, 0.6826894921370859, 0.9, 0.95, 0.99)
    assert_allclose(z_score(asked), [0.674490, 1.0, 1.644854, 1.959964, 2.575829], atol=1e-6)


@given(share=shares)
def test_the_z_score_is_the_normal_quantile_of_the_upper_end(share):
    assert_allclose(z_score(double(share)).item(), norm.ppf((1 + share) / 2), rtol=1e-9)


@given(z=st.floats(0.01, 3.0))
def test_the_z_score_undoes_the_share_within_z_standard_deviations(z):
    share = math.erf(z / math.sqrt(2))  # P(|N| < z)
    assert_allclose(z_score(double(share)).item(), z, rtol=1e-6)


def test_quantile_levels_of_a_ninety_per_cent_interval():
    lower, upper = quantile_levels(double(0.9, 0.5))
    assert_allclose(lower, [0.05, 0.25])  # (1 - 0.9) / 2, (1 - 0.5) / 2
    assert_allclose(upper, [0.95, 0.75])  # (1 + 0.9) / 2, (1 + 0.5) / 2


@given(share=shares)
def test_quantile_levels_are_symmetric_and_the_coverage_apart(share):
    lower, upper = quantile_levels(double(share))
    assert_allclose(lower + upper, [1.0])
    assert_allclose(upper - lower, [share], rtol=1e-9)


def test_each_level_is_widened_to_contain_the_one_inside_it():
    lower, upper = widen_outwards(np.array([[-1.0, -0.5, -3.0]]), np.array([[2.0, 4.0, 3.0]]))
    assert_array_equal(lower, [[-1.0, -1.0, -3.0]])  # the second level is drawn out to the first
    assert_array_equal(upper, [[2.0, 4.0, 4.0]])  # the third to the second


@given(bounds=bounds)
def test_widened_levels_are_nested_contain_the_given_ones_and_stay_when_widened_again(bounds):
    lower, upper = widen_outwards(*bounds)
    assert (np.diff(lower, axis=-1) <= 0).all()
    assert (np.diff(upper, axis=-1) >= 0).all()
    assert (lower <= bounds[0]).all()
    assert (upper >= bounds[1]).all()
    again = widen_outwards(lower, upper)
    assert_array_equal(again[0], lower)
    assert_array_equal(again[1], upper)


@given(bounds=bounds)
def test_nested_levels_are_left_as_they_are(bounds):
    centre = 0.5 * (bounds[0] + bounds[1])
    steps = np.abs(bounds[1] - bounds[0]).cumsum(axis=-1)
    lower, upper = centre[..., :1] - steps, centre[..., :1] + steps
    widened = widen_outwards(lower, upper)
    assert_array_equal(widened[0], lower)
    assert_array_equal(widened[1], upper)


def test_a_prediction_interval_unpacks_and_has_a_length_a_width_and_a_short_name():
    interval = PredictionInterval(np.array([0.0, 1.0, 2.0]), np.array([2.0, 4.0, 6.0]), coverage=0.9)
    lower, upper = interval
    assert_array_equal(lower, [0.0, 1.0, 2.0])
    assert_array_equal(upper, [2.0, 4.0, 6.0])
    assert_array_equal(interval.width, [2.0, 3.0, 4.0])
    assert len(interval) == 3
    assert repr(interval) == "PredictionInterval(3 rows, targets ['y'], coverage 0.9)"


def test_both_ends_belong_to_the_interval():
    interval = PredictionInterval(np.zeros(4), np.ones(4), coverage=0.9)
    assert_array_equal(interval.contains([0.0, 1.0, -1e-9, 1 + 1e-9]), [True, True, False, False])


def test_one_value_is_compared_with_the_bounds_of_every_level():
    lower = np.array([[-1.0, -2.0], [-1.0, -2.0]])
    interval = PredictionInterval(lower, -lower, coverage=(0.5, 0.9))
    assert_array_equal(interval.contains([0.5, 1.5]), [[True, True], [False, True]])


def test_every_target_is_compared_with_its_own_bounds():
    lower = np.array([[0.0, 10.0], [0.0, 10.0]])
    interval = PredictionInterval(lower, lower + 1, coverage=0.9, target_names=("a", "b"))
    assert_array_equal(interval.contains([[0.5, 0.5], [10.5, 10.5]]), [[True, False], [False, True]])


@pytest.mark.parametrize(
    ("shape", "coverage", "wrong"),
    [((3,), 0.9, (4,)), ((3,), 0.9, (3, 1)), ((3, 2), 0.9, (3,)), ((3, 2), (0.5, 0.9), (3, 2))],
)
def test_values_of_another_shape_are_refused_with_the_right_one(shape, coverage, wrong):
    interval = PredictionInterval(np.zeros(shape), np.ones(shape), coverage=coverage)
    right = shape[:-1] if isinstance(coverage, tuple) else shape
    with pytest.raises(ValueError, match="must have the shape") as refused:
        interval.contains(np.zeros(wrong))
    assert str(right) in str(refused.value)
    assert str(wrong) in str(refused.value)


def test_a_frame_of_one_target_keeps_the_index():
    interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9, index=["a", "b"])
    frame = interval.to_frame()
    assert list(frame.columns) == [("y", 0.9, "lower"), ("y", 0.9, "upper")]
    assert list(frame.columns.names) == ["target", "coverage", "bound"]
    assert list(frame.index) == ["a", "b"]
    assert_array_equal(frame["y"][0.9]["upper"], [2.0, 4.0])


def test_a_frame_of_two_targets_and_two_levels_has_every_bound_in_its_column():
    lower = np.arange(12.0).reshape(3, 2, 2)  # (row, target, level)
    names = ("height", "weight")
    interval = PredictionInterval(lower, lower + 100, coverage=(0.5, 0.9), target_names=names)
    frame = interval.to_frame()
    assert frame.shape == (3, 8)
    for t, name in enumerate(names):
        for k, level in enumerate((0.5, 0.9)):
            assert_array_equal(frame[name, level, "lower"], lower[:, t, k])
            assert_array_equal(frame[name, level, "upper"], lower[:, t, k] + 100)


def test_a_frame_of_one_target_and_several_levels_holds_one_pair_per_level():
    lower = np.array([[0.0, -1.0], [5.0, 4.0]])
    frame = PredictionInterval(lower, lower + 2, coverage=(0.5, 0.9), index=pd.Index([7, 9], name="id")).to_frame()
    assert_array_equal(frame["y", 0.9, "lower"], [-1.0, 4.0])
    assert_array_equal(frame["y", 0.5, "upper"], [2.0, 7.0])
    assert frame.index.name == "id"
