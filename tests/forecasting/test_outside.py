"""What lies far outside what was learned: counted by name, and said once."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting.history import read_history
from coverwell.forecasting.outside import added, by_name, count_outside, no_counts
from coverwell.forecasting.windows import Windows
from coverwell.inputs.scaling import Scaling

N = 30
SERIES, WIND, PLAN = np.tile([0.0, 1.0], N // 2), np.tile([[0.0], [2.0]], (N // 2, 1)), np.tile([[5.0], [6.0]], (20, 1))


def history_of(series=SERIES, wind=WIND, plan=PLAN):
    ahead, past = pd.DataFrame(plan, columns=["plan"]), pd.DataFrame(wind, columns=["wind"])
    return read_history(series, ahead, past, calendar=(), missing="error")


def counts(n_rows=5, **changed):
    learned = history_of()
    windows = Windows.of(learned, past=3, horizon=2, differences=True)
    inputs = Scaling.of(windows.rows(learned, windows.origins(learned)), bounded=True)
    new = history_of(**changed)
    return count_outside(windows, new, windows.rows(new, np.arange(N - n_rows, N)), inputs)


def changed(values, step, value):
    values = values.copy()
    values[step] = value
    return values


def test_each_name_is_counted_by_the_forecasts_that_see_it_far_outside():
    assert_array_equal(counts(), [0, 0, 0])
    assert_array_equal(counts(series=changed(SERIES, N - 1, 2.5)), [1, 0, 0])  # by 1.5 ranges
    assert_array_equal(counts(series=changed(SERIES, N - 1, 1.9)), [0, 0, 0])
    assert_array_equal(counts(wind=changed(WIND, N - 3, -9.0)), [0, 3, 0])  # in windows that end there and 1, 2 later
    assert_array_equal(counts(plan=changed(PLAN, N + 1, 9.0)), [0, 0, 1])  # step 2 of the last forecast


def test_a_name_is_said_the_first_time_and_counted_always():
    history = history_of()
    with pytest.warns(ExtrapolationWarning, match=r"'wind' \(2 of 5 forecasts\) lies far outside"):
        so_far = added(no_counts(history), np.array([0, 2, 0]), history, 5)
    so_far = added(so_far, np.array([0, 3, 0]), history, 5)  # and no warning
    assert by_name(history, so_far) == {"y": 0, "wind": 5, "plan": 0}
    alike = read_history(SERIES, PLAN, WIND, calendar=(), missing="error")  # both are x0
    assert by_name(alike, so_far) == {"y": 0, "x0": 5}
    with pytest.warns(ExtrapolationWarning, match=r"'y' \(1 of 1 forecasts\), .* \(1 of 1 forecasts\) lie far"):
        added(so_far, np.array([1, 1, 1]), history, 1)
