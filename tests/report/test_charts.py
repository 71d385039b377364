"""Charts of a view: bins hold every row once, levels stand beside their bands, and the lowest window is drawn."""

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coverwell.evaluation import forecast_outcome
from coverwell.report.charts import (
    calibration_chart,
    histogram,
    residual_charts,
    rolling_chart,
    stretch_chart,
    width_error_chart,
)
from coverwell.report.facts import stretches, worst_stretch


def test_every_level_stands_beside_its_band_and_the_chosen_one_is_marked(evaluated, flats):
    views = evaluated(flats(60, seed=1))[0].views
    narrow, wide = (calibration_chart(view).table for view in views)
    assert (narrow["chosen"].tolist(), wide["chosen"].tolist()) == ([True, False], [False, True])
    assert wide["value"].tolist() == [view.scores["coverage"] for view in views]
    assert list(zip(wide["low"], wide["high"], strict=True)) == [view.scores["band"] for view in views]
    assert wide["expected"].tolist() == [view.is_expected for view in views]


def bins_of(by_hand, y, width):
    width = np.asarray(width)
    table = width_error_chart(by_hand(y, -width / 2, width / 2).views[0], "row").table
    return {name: values.tolist() for name, values in table.items()}


def test_bins_of_width_have_the_means_of_their_rows(by_hand):
    bins = bins_of(by_hand, np.repeat([0.25, 2.0], 20), np.repeat([1.0, 3.0], 20))
    assert (bins["n_rows"], bins["width"]) == ([20, 20], [1.0, 3.0])
    assert bins["error"] == bins["high"] == [0.25, 2.0]  # no spread, no error
    assert bins["coverage"] == [1.0, 0.0]


def test_equal_widths_are_one_bin_and_a_single_row_has_no_standard_error(by_hand):
    assert bins_of(by_hand, np.zeros(100), np.full(100, 2.0))["n_rows"] == [100]
    bins = bins_of(by_hand, np.zeros(40), np.r_[0.5, np.full(39, 1.0)])
    assert bins["n_rows"] == [1, 39]
    assert np.isnan(bins["high"][0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is a function without state
@given(widths=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 7.0]), min_size=10, max_size=120))
def test_bins_hold_all_rows_once_from_narrow_to_wide(by_hand, widths):
    bins = bins_of(by_hand, np.zeros(len(widths)), widths)
    assert sum(bins["n_rows"]) == len(widths)
    assert bins["width"] == sorted(set(bins["width"]))
    assert np.dot(bins["n_rows"], bins["width"]) == pytest.approx(sum(widths))


def test_the_lowest_window_is_always_drawn_and_a_stretch_has_its_own_rows(forecaster, series):
    outcome = forecast_outcome(forecaster, series)
    for view in outcome.views:
        chart, window, shares, static = rolling_chart(view)
        assert min(chart.table["coverage"]) == shares.min() == worst_stretch(view, window)[1]
        assert static.tolist() != shares.tolist()
        worst, first, last = (stretch_chart(view, *ends).table for ends in stretches(view))
        assert first["y"].tolist() == view.y[:150].tolist()
        assert last["time"].tolist() == view.times[-150:].tolist()
        assert worst["outside"].sum() == 150 - round(150 * worst_stretch(view, 150)[1])


def test_residuals_of_all_levels_share_one_table(evaluated, flats):
    outcome, _ = evaluated(flats(60, seed=1))
    narrow, wide = residual_charts(outcome, 0)
    assert narrow.table is wide.table
    assert wide.table["inside 1"].tolist() == outcome.views[1].inside.tolist()
    assert {mark.where for mark in wide.marks} == {"", "inside 1", "!inside 1"}
    chart, mean, quartiles, n_beyond = histogram(outcome.views[0], "row")
    assert chart.table["rows"].sum() == 60 - n_beyond
    assert mean == pytest.approx(wide.table["residual"].mean())
    assert quartiles.tolist() == pytest.approx(np.quantile(wide.table["residual"], [0.25, 0.75]).tolist())


def residual_bins(by_hand, residuals):
    """Counts and upper ends of the bins, and how many residuals lie beyond."""
    outcome = by_hand(residuals, -np.ones(len(residuals)), np.ones(len(residuals)))
    chart, *_, n_beyond = histogram(outcome.views[0], "row")
    return chart.table["rows"].tolist(), chart.table["high"].tolist(), n_beyond


def test_far_ends_are_left_out_of_the_bins_and_equal_residuals_are_one_bin(by_hand):
    _, ends, n_beyond = residual_bins(by_hand, np.concatenate([np.linspace(-1, 1, 1000), [1e6]]))
    assert n_beyond >= 1
    assert ends[-1] <= 1.0
    assert residual_bins(by_hand, np.full(30, 2.0)) == ([30], [3.0], 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=arrays(np.float64, st.integers(10, 80), elements=st.floats(-1e6, 1e6)))
@example(values=np.repeat([1.0, 1.0 + 2**-52], 5))
def test_every_row_is_in_one_bin_or_counted_as_beyond(by_hand, values):
    counts, _, n_beyond = residual_bins(by_hand, values)
    assert sum(counts) + n_beyond == len(values)
    assert n_beyond <= 0.05 * len(values) + 1
