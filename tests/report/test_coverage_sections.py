"""The verdict says what was measured, and bins of width hold what they should."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coverwell.report.coverage_sections import verdict, width_bins


def twenty(view, n_inside, **options):
    y = np.where(np.arange(20) < n_inside, 0.0, 9.0)
    return view(y, np.zeros(20), -np.ones(20), np.ones(20), **options)


def test_coverage_inside_the_band_gives_no_reason_to_doubt_and_proves_nothing(view):
    text = verdict(twenty(view, 16))
    assert "16 of 20 rows lie inside their 80 % interval of rent: 80.0 %" in text
    assert "✓ That is inside the expected band (65.0 % to 95.0 %)" in text
    assert "They do not prove them right" in text


def test_coverage_below_the_band_is_called_too_narrow(view):
    text = verdict(twenty(view, 8))
    assert "✕ That is below the expected band" in text
    assert "too narrow" in text


def test_coverage_above_the_band_is_called_wider_than_asked(view):
    assert "wider than was asked for" in verdict(twenty(view, 20))


def test_a_part_that_is_surely_short_is_named_though_the_whole_is_right(view):
    inside = np.array([True] * 160 + [False] * 40)
    city = np.where(inside, "Rome", "Oslo")
    text = verdict(view(np.where(inside, 0.0, 9.0), np.zeros(200), -np.ones(200), np.ones(200), columns={"city": city}))
    assert "✓ That is inside the expected band" in text
    assert "But 1 of 2 slices of the rows fall short by more than chance: city Oslo (0.0 % of 40 rows)." in text


def test_where_nothing_can_be_cut_the_verdict_says_so(view):
    assert "No parts of the rows were looked at" in verdict(twenty(view, 16))


def test_bins_of_width_have_the_means_of_their_rows(view):
    width = np.repeat([1.0, 3.0], 20)
    error = np.repeat([0.25, 2.0], 20)
    narrow, wide = width_bins(view(error, np.zeros(40), -width / 2, width / 2))
    assert (narrow.n_rows, narrow.width, narrow.error, narrow.coverage) == (20, 1.0, 0.25, 1.0)
    assert (wide.n_rows, wide.width, wide.error, wide.coverage) == (20, 3.0, 2.0, 0.0)
    assert wide.standard_error == 0.0


def test_rows_that_are_equally_wide_are_one_bin(view):
    assert [one.n_rows for one in width_bins(view(np.zeros(100), np.zeros(100), -np.ones(100), np.ones(100)))] == [100]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is a function without state
@given(widths=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 7.0]), min_size=10, max_size=120))
def test_bins_hold_all_rows_once_from_narrow_to_wide(view, widths):
    width, n = np.array(widths), len(widths)
    bins = width_bins(view(np.zeros(n), np.zeros(n), -width / 2, width / 2))
    assert sum(one.n_rows for one in bins) == n
    assert [one.width for one in bins] == sorted({one.width for one in bins})
    assert sum(one.n_rows * one.width for one in bins) == pytest.approx(width.sum())
