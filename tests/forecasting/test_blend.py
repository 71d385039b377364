"""Rates that are blended: how each follows, and which of them count."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.forecasting.blend import BLENDED, SHARE, Blend

RATES = np.array(BLENDED)


def after(errors):
    blend = Blend((0.9,), horizon=1, limit=3.0)
    for error in errors:
        blend.follow(np.array([[error]]))
    return blend


def test_each_rate_follows_the_misses_of_its_own_width_as_worked_out_by_hand():
    blend = after([100.0])
    assert_allclose(blend.log_factors[:, 0, 0], 0.9 * RATES)
    assert_allclose(blend.weights, 0.25)  # all widths were 1
    assert_allclose(blend.log_factor, 0.9 * RATES.mean())
    width = np.exp(0.9 * RATES)
    blend.follow(np.array([[1.05]]))  # outside the widths of .01 and .03, 1.009 and 1.027, inside the others
    assert_allclose(blend.log_factors[:, 0, 0], [*(1.8 * RATES[:2]), *(0.8 * RATES[2:])])
    loss = np.where(width < 1.05, 0.9 * (1.05 - width), 0.1 * (width - 1.05)) / np.exp(0.9 * RATES.mean())
    weights = np.exp(-2 * loss)
    assert_allclose(blend.weights[:, 0, 0], (1 - SHARE) * weights / weights.sum() + SHARE / 4)


def test_slow_rates_count_while_noise_is_steady_and_fast_ones_when_it_has_grown():
    rng = np.random.default_rng(0)
    steady = np.abs(rng.normal(size=2000)) / 1.645
    calm = [after(steady[:n]).weights[:, 0, 0] for n in range(500, 2001, 100)]
    assert np.mean(calm, axis=0)[0] > np.mean(calm, axis=0)[3]
    grown = after([*steady, *(4 * steady[:12])]).weights[:, 0, 0]
    assert grown[3] > grown[0]


def test_an_error_that_is_not_known_changes_nothing_of_its_step():
    blend = Blend((0.5, 0.9), horizon=2, limit=3.0)
    blend.follow(np.array([[2.0, 2.0], [np.nan, np.nan]]))
    assert (blend.log_factors[:, 0] > 0).all()
    assert_array_equal(blend.log_factors[:, 1], 0)
    assert_array_equal(blend.weights[:, 1], 0.25)


def test_factors_stay_within_the_limit():
    assert after([1e9] * 50).log_factors.max() == 3.0


@pytest.mark.parametrize("name", ["log_factors", "weights"])
def test_a_state_goes_on_and_one_that_lacks_a_part_is_refused(name):
    blend, other = after([2.0, 0.1]), Blend((0.9,), horizon=1, limit=3.0)
    other.load_state_dict(blend.state_dict())
    assert other.state_dict() == blend.state_dict()
    with pytest.raises(KeyError):
        other.load_state_dict({key: value for key, value in blend.state_dict().items() if key != name})
