"""The worst parts come first, with their uncertainty, and what chance may bring is called so."""

import numpy as np
from coverwell.report.judged import judged_rows
from coverwell.report.slice_sections import record_of, slices_section, worst_section
from scipy.stats import binom

from coverwell.slices import Slice, Slices, slices_of


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


def test_a_group_of_very_many_values_leaves_room_for_the_other_columns(model, flats):
    rows = flats(300, seed=1)
    groups = {"flat": np.arange(300)}
    judged = judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy(), groups=groups)
    section = slices_section(judged, judged.views[1])
    assert section.choice.options == ("flat", "area", "city", "listed", "garden")
    of_flats = section.blocks[1]
    assert len(of_flats.records) == 30
    assert of_flats.told.endswith("The worst 30 of 300 are drawn.")


def test_the_worst_part_is_told_with_what_its_interval_does_not_allow_for(model, flats):
    rows = flats(400, odd_city="Lima", seed=1)
    judged = judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy())
    text = worst_section(judged).blocks[3].text
    assert f"where all rows together reach {100 * judged.views[1].inside.mean():.1f} %." in text
    assert "Taken alone, its coverage has the 95 % confidence interval" in text
    assert "does not allow for its being the worst of many" in text


def test_of_a_long_name_the_values_stay():
    found = Slices(0.8, (Slice("a column whose name goes on and on and on", "2.5 to 4", 20, 12),))
    assert record_of(found.slices[0], found, 0)["name"] == "a column whose name goe…: 2.5 to 4 (20 rows)"
