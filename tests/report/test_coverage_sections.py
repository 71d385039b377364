"""The verdict says what was measured, and bins of width hold what they should."""

import numpy as np
import pytest
from coverwell.report.coverage_sections import reached_section, verdict, width_bins
from coverwell.report.judged import judged_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coverwell import MLP, MatchedRegressor
from coverwell.baselines import HeteroscedasticRegressor


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


def told_in(section):
    return " ".join(block.text for block in section.blocks if block.kind == "text")


def test_a_level_that_holds_does_not_hide_another_that_does_not():
    X = np.random.default_rng(0).normal(size=(60, 1))
    made = HeteroscedasticRegressor([0.3, 0.9], network=MLP(hidden=4), max_epochs=10, random_state=0)
    upper = made.fit(X[:40], X[:40, 0]).predict_interval(X[40:]).upper  # (row, level)
    judged = judged_rows(made, X[40:], upper.mean(axis=1))  # outside the narrow interval, inside the wide one
    narrow, wide = (block.text for block in reached_section(judged).blocks if block.kind == "text" and block.when)
    assert "✕ That is below the expected band" in narrow
    assert "other level" not in narrow
    assert "✓ That is inside the expected band" in wide
    assert wide.endswith("✕ Of 1 other level, 1 misses its band.")


def test_several_targets_are_also_counted_all_at_once_and_bands_missed_by_chance_are_counted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    made = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), folds=2, repeats=1, max_rounds=1, random_state=0)
    judged = judged_rows(made.fit(X[:40], X[:40]), X[40:], X[40:])
    section = reached_section(judged)
    first, second = (judged.of_target(target)[1].inside for target in (0, 1))
    both = f"at once in {100 * (first & second).mean():.1f} % of the rows"
    assert [both in block.text for block in section.blocks if getattr(block, "when", {}) == {"level": 1}] == [True]
    assert "Of 4 bands, up to 0.4 are missed on average even if all intervals are right." in told_in(section)
    assert "The band allows for the 40 training rows whose ranks set the widths." in told_in(section)


@pytest.mark.parametrize(
    ("calibration", "told"), [(None, "No ranks set the widths"), ("split", "how many is not known")]
)
def test_where_no_ranks_are_known_the_band_says_whether_there_were_any(calibration, told):
    X = np.random.default_rng(0).normal(size=(60, 1))
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=10, calibration=calibration, random_state=0)
    section = reached_section(judged_rows(made.fit(X[:40], X[:40, 0]), X[40:], X[40:, 0]))
    assert told in told_in(section)
    assert "at once" not in told_in(section)


def test_the_table_of_all_levels_counts_the_slices_that_fall_short(model, flats):
    rows = flats(400, odd_city="Lima", seed=1)
    judged = judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy())
    (table,) = [block for block in reached_section(judged).blocks if block.kind == "table"]
    place = table.heads.index("slices short")
    n_slices = len(judged.views[0].judgement.slices)
    assert [row[place] for row in table.rows] == [f"{view.ranked.n_short} of {n_slices}" for view in judged.views]
    assert judged.views[1].ranked.n_short >= 1


def test_the_error_of_a_single_row_has_no_standard_error(view):
    width = np.r_[0.5, np.full(39, 1.0)]  # equal widths stay together, so the narrowest is alone
    first, _ = width_bins(view(np.zeros(40), np.zeros(40), -width / 2, width / 2))
    assert first.n_rows == 1
    assert np.isnan(first.standard_error)


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
