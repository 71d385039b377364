"""The worst parts come first, with their uncertainty, and what chance may bring is called so."""

import numpy as np
from scipy.stats import binom

from coverwell.report.slice_sections import named_first, record_of, short_parts
from coverwell.slices import Slice, Slices, slices_of


def test_a_part_is_short_if_chance_does_not_explain_it_among_all_parts():
    found = Slices(0.9, (Slice("city", "Oslo", 40, 20), Slice("city", "Rome", 40, 36), Slice("city", "Bern", 5, 4)))
    assert [part.values for part in short_parts(found)] == ["Oslo"]


def test_parts_that_are_surely_short_come_before_small_ones_that_chance_explains():
    small, large = Slice("id", "7", 4, 1), Slice("city", "Oslo", 1000, 850)
    found = Slices(0.9, (small, *[Slice("x", str(n), 10, 9) for n in range(30)], large))
    assert found.worst(1) == (small,)  # by the upper end of its confidence interval, 0.81
    assert named_first(found)[:2] == [large, small]


def test_a_record_has_the_confidence_interval_and_the_band_of_its_size():
    found = Slices(0.8, (Slice("city", "Oslo", 20, 12),))
    record = record_of(found.slices[0], found, 0)
    assert record["name"] == "city: Oslo (20 rows)"
    assert record["coverage"] == 0.6
    assert record["low"] < 0.6 < record["high"]
    assert record["band_low"] == binom.ppf(0.025, 20, 0.8) / 20
    assert record["band_high"] == binom.ppf(0.975, 20, 0.8) / 20
    assert record["fits"] == (binom.cdf(12, 20, 0.8) >= 0.05)


def test_the_chance_counts_all_parts_that_were_looked_at():
    rows = np.ones(200, dtype=bool)
    rows[:30] = False
    found = slices_of(rows, {"half": np.repeat(["a", "b"], 100)}, asked=0.95)
    record = record_of(found.worst(1)[0], found, 0)
    assert record["chance"].startswith("Chance alone brings any of 2 slices so low in less than ")
    assert record["chance"].endswith("less than 0.0001 of cases")
    assert 2 * binom.cdf(70, 100, 0.95) < 0.0001


def test_of_a_long_name_the_values_stay():
    found = Slices(0.8, (Slice("a column whose name goes on and on and on", "2.5 to 4", 20, 12),))
    assert record_of(found.slices[0], found, 0)["name"] == "a column whose name goe…: 2.5 to 4 (20 rows)"
