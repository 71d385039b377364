"""What exports of all kinds share."""

import numpy as np
import pytest
from coverwell.export.drafts import expected_of, has_joint_bounds, promise_of

from coverwell.regressor import CALIBRATIONS


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_every_calibration_has_a_promise_of_one_sentence(calibration):
    assert "\n" not in promise_of(calibration)
    assert (calibration is None) == promise_of(calibration).startswith("nothing")


def test_boxes_for_all_targets_need_several_and_ranks(random_regressor):
    one, several = (random_regressor(n_targets=n)[0] for n in (1, 2))
    assert (has_joint_bounds(one), has_joint_bounds(several)) == (False, True)
    several.joint_factor_ = None
    assert not has_joint_bounds(several)


def test_what_is_expected_is_what_users_are_told(random_regressor):
    model, rows = random_regressor(n_targets=2)
    expected = expected_of(model, rows)
    interval, joint = (model.predict_interval(rows, joint=joint) for joint in (False, True))
    np.testing.assert_array_equal(expected["prediction"], model.predict(rows))
    np.testing.assert_array_equal(expected["lower"], interval.lower)
    np.testing.assert_array_equal(expected["joint_upper"], joint.upper)
