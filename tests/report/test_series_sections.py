"""What is said about a period: no more than was measured, and nothing about live calibration where there was none."""

import pytest
from coverwell.report.series_sections import bands_section, reached_section, rolling_section, verdict
from coverwell.report.series_views import lowest_by_chance, views_of


@pytest.fixture(scope="module")
def backtest(forecaster, series):
    return forecaster.backtest(series)


def words(*sections):
    """All that readers are told."""
    told = []
    for section in sections:
        told.append(section.lead)
        for block in section.blocks:
            told += [getattr(block, "text", ""), getattr(block, "told", ""), *getattr(block, "heads", ())]
            told += [name for name, _ in getattr(block, "entries", ())]
            told += [mark.text for mark in getattr(block, "marks", ())]
    return " ".join(told)


def test_without_live_calibration_nothing_is_said_about_it(backtest):
    views = views_of(backtest, live=False)
    assert "live calibration is off" in bands_section("load", views).lead
    said = words(reached_section(views), bands_section("load", views), rolling_section(views))
    assert said.count("live calibration") == 1
    assert "without it" not in said
    specs = str([block.spec for block in (*bands_section("load", views).blocks, *rolling_section(views).blocks)])
    assert "static" not in specs


def test_a_long_name_of_a_series_fits_beside_its_axis(backtest):
    chart = bands_section("the load of a town whose name goes on and on", views_of(backtest, live=True)).blocks[0]
    assert chart.spec["layer"][0]["encoding"]["y"]["title"] == "the load of a town whose name goe…"


def test_with_live_calibration_both_intervals_are_told(backtest):
    views = views_of(backtest, live=True)
    said = words(reached_section(views), bands_section("load", views), rolling_section(views))
    assert "reached without live calibration" in said
    assert "interval, with live calibration" in said


def test_the_worst_stretch_stands_beside_what_chance_brings(backtest):
    view = views_of(backtest, live=True)[1]
    chance = lowest_by_chance(0.9, 200, 50)
    assert verdict(view).endswith(f"one period of twenty has a worst stretch below {100 * chance:.1f} %.")


def test_the_lowest_window_is_always_drawn(backtest):
    view = views_of(backtest, live=True)[1]
    (chart,) = rolling_section([view]).blocks
    told = f"between {100 * min(record['live'] for record in chart.records):.1f} %"
    assert told in chart.told


def test_steps_that_were_seen_before_are_called_flattering(backtest):
    first = reached_section(views_of(backtest, live=True), n_seen_before=12).blocks[0]
    assert first.tone == "bad"
    assert first.text.startswith("✕ 12 of the steps had been seen by the forecaster before")
