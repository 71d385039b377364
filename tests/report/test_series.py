"""A period in words and charts: no more than was measured, and nothing about live calibration where there was none."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from coverwell.description import describe
from coverwell.evaluation import forecast_outcome
from coverwell.report.coverage import reached, verdict
from coverwell.report.page import prose
from coverwell.report.series import bands, lowest_by_chance, rolling, time_of, window_of, worst_stretch


@pytest.fixture(scope="module")
def outcome(forecaster, series):
    return forecast_outcome(forecaster, series)


@pytest.fixture(scope="module")
def described(forecaster):
    return describe(forecaster)


def words_of(*sections):
    """All that readers see."""
    seen = []
    for section in sections:
        seen.append(prose(f"{section.key}_lead", **section.lead))
        for block in section.blocks:
            seen += [getattr(block, "text", ""), getattr(block, "caption", ""), *getattr(block, "heads", ())]
            seen += [name for name, _ in getattr(block, "entries", ())]
            seen += [text for *_, text in getattr(block, "legend", ())]
    return " ".join(seen)


def test_a_window_is_a_quarter_of_the_values_and_500_at_most():
    assert [window_of(n) for n in (10, 400, 10_000)] == [2, 100, 500]


def test_the_worst_stretch_is_the_first_with_the_fewest_inside(by_hand):
    inside = np.array([True, False, True, True, False, False, True, False, False])
    view = by_hand(np.where(inside, 0.0, 9.0), -np.ones(9), np.ones(9)).views[0]
    assert worst_stretch(view, 3) == (3, pytest.approx(1 / 3))


def test_the_worst_stretch_stands_beside_what_chance_brings(outcome):
    view = outcome.views[1]
    shares = [view.inside[first : first + 50].mean() for first in range(151)]
    text = verdict(view)
    assert f"The worst 50 values in a row begin at {time_of(view, int(np.argmin(shares)))}" in text
    assert f"one period of twenty has a worst stretch below {100 * lowest_by_chance(0.9, 200, 50):.1f} %." in text


def test_the_worst_stretch_by_chance_of_a_single_window_is_that_of_the_binomial_law():
    # 200 draws put the quantile of order 0.05 between those of order 0.01 and 0.12, save in one case of a thousand.
    found = lowest_by_chance(0.9, 100, 100)
    assert binom.ppf(0.01, 100, 0.9) / 100 <= found <= binom.ppf(0.12, 100, 0.9) / 100
    assert lowest_by_chance(0.9, 2000, 100) < found


def test_with_live_calibration_both_intervals_are_shown_and_without_it_nothing_is_said_about_it(outcome, described):
    both = words_of(*(section(outcome, described) for section in (reached, bands, rolling)))
    assert "reached without live calibration" in both
    assert "static interval" in both
    assert "with live calibration" in both
    alone, plain = replace(outcome, static=None), replace(described, live=False)
    sections = [section(alone, plain) for section in (reached, bands, rolling)]
    words = words_of(*sections)
    assert words.count("live calibration") == 1
    assert "live calibration is off" in words
    assert "without it" not in words
    assert not any(
        "static" in name for block in (*sections[1].blocks, *sections[2].blocks) for name in block.chart.table
    )


def test_three_stretches_are_drawn_of_every_view(outcome, described):
    section = bands(outcome, described)
    worst, first, last = (block.chart.table for block in section.blocks[3:6])
    view = outcome.views[1]
    assert first["y"].tolist() == view.y[:150].tolist()
    assert last["time"].tolist() == view.times[-150:].tolist()
    assert worst["outside"].sum() == 150 - round(150 * worst_stretch(view, 150)[1])
    assert section.blocks[3].when == {"target": 0, "level": 1, "stretch": 0}


def test_a_long_name_of_a_series_fits_beside_its_axis(outcome, described):
    named = replace(outcome, target_names=("the load of a town whose name goes on and on", *outcome.target_names[1:]))
    assert bands(named, described).blocks[0].chart.y.title == "the load of a town whose name goe…"


def test_the_lowest_window_is_always_drawn(outcome, described):
    for block, view in zip(rolling(outcome, described).blocks, outcome.views, strict=True):
        assert f"between {100 * min(block.chart.table['coverage']):.1f} % and" in block.caption
        lowest = worst_stretch(view, window_of(len(view.y)))[1]
        assert min(block.chart.table["coverage"]) == lowest


def test_steps_that_were_seen_before_are_called_flattering(outcome, described):
    first = reached(replace(outcome, n_seen=12), described).blocks[0]
    assert first.tone == "bad"
    assert first.text.startswith("✕ The forecaster had seen 12 of the steps before")
    assert reached(outcome, described).blocks[0].kind == "figures"


def test_rows_of_a_table_have_no_sections_on_time(evaluated, flats):
    assert bands(*evaluated(flats(20))) is None
    assert rolling(*evaluated(flats(20))) is None
