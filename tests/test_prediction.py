import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from coverwell.prediction import PredictionInterval


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
