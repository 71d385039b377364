"""Misses are ordered by how far outside they lie; bins of residuals count every row."""

import numpy as np
import pytest
from coverwell.report.row_sections import histogram_of, largest_misses, miss_in_numbers, residual_bins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def test_the_farthest_outside_comes_first_and_rows_inside_are_no_misses(view):
    found = view([0.0, 5.0, -4.0, 1.0], np.zeros(4), -np.ones(4), np.ones(4))
    assert largest_misses(found).tolist() == [1, 2]
    assert found.missed_by.tolist() == [0.0, 4.0, 3.0, 0.0]


def test_a_miss_is_told_as_far_as_it_has_digits(view):
    told = view([1000000.52, 28.05838, 3e100], np.zeros(3), -np.ones(3), [1000000.1, 11.51959, 1.0])
    assert miss_in_numbers(told, 0) == ["1,000,000.520", "0.000", "-1.000", "1,000,000.100", "0.420"]
    assert miss_in_numbers(told, 1) == ["28.1", "0.0", "-1.0", "11.5", "16.5"]
    assert miss_in_numbers(told, 2)[0] == "3e+100"


def test_far_ends_are_left_out_of_the_bins_and_counted():
    residuals = np.concatenate([np.linspace(-1, 1, 1000), [1e6]])
    bins, n_beyond = residual_bins(residuals)
    assert sum(rows for *_, rows in bins) == len(residuals) - n_beyond
    assert n_beyond >= 1
    assert bins[-1][1] <= 1.0


def test_equal_residuals_are_one_bin():
    bins, n_beyond = residual_bins(np.full(30, 2.0))
    assert (bins, n_beyond) == ([(1.0, 3.0, 30)], 0)


@given(residuals=arrays(np.float64, st.integers(10, 80), elements=st.floats(-1e6, 1e6)))
def test_every_row_is_in_one_bin_or_counted_as_beyond(residuals):
    bins, n_beyond = residual_bins(residuals)
    assert sum(rows for *_, rows in bins) + n_beyond == len(residuals)
    assert n_beyond <= 0.05 * len(residuals) + 1


def test_the_histogram_tells_mean_and_quartiles():
    chart = histogram_of("rent", np.array([-2.0, -1.0, 0.0, 1.0, 7.0]), {})
    assert chart.told.startswith("rent: the mean of the residuals is 1, half of them lie between -1 and 1.")
    assert sum(record["rows"] for record in chart.records) == pytest.approx(5)
