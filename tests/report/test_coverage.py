"""The verdict says what was measured, bins of width hold what they should, and the worst slices are named."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.description import describe
from coverwell.evaluation import outcome_of
from coverwell.report.coverage import calibration, reached, slices, verdict, width_bins, widths, worst

BRIEF = Schedule(max_rounds=1)


def twenty(by_hand, n_inside):
    y = np.where(np.arange(20) < n_inside, 0.0, 9.0)
    return by_hand(y, -np.ones(20), np.ones(20)).views[0]


@pytest.mark.parametrize(
    ("n_inside", "sentences"),
    [
        (16, ["16 of 20 rows lie inside their 80 % interval of rent: 80.0 %.", "They do not prove them right."]),
        (16, ["✓ That is inside the expected band (65.0 % to 95.0 %)", "No slices of the rows were compared"]),
        (8, ["✕ That is below the expected band", "too narrow"]),
        (20, ["✕ That is above the expected band", "wider than was asked for"]),
    ],
)
def test_the_verdict_says_no_more_than_was_measured(by_hand, n_inside, sentences):
    text = verdict(twenty(by_hand, n_inside))
    assert all(sentence in text for sentence in sentences)


def test_a_slice_that_is_surely_short_is_named_though_the_whole_is_right(by_hand):
    inside = np.array([True] * 160 + [False] * 40)
    city = np.where(inside, "Rome", "Oslo")
    text = verdict(by_hand(np.where(inside, 0.0, 9.0), -np.ones(200), np.ones(200), groups={"city": city}).views[0])
    assert "✓ That is inside the expected band" in text
    assert "But 1 of 2 slices of the rows fall short by more than chance: city Oslo (0.0 % of 40 rows)." in text


def texts_of(section):
    return " ".join(block.text for block in section.blocks if block.kind == "text")


def test_a_level_that_holds_does_not_hide_another_that_does_not():
    X = np.random.default_rng(0).normal(size=(60, 1))
    made = HeteroscedasticRegressor([0.3, 0.9], network=MLP(hidden=4), max_epochs=10, random_state=0)
    upper = made.fit(X[:40], X[:40, 0]).predict_interval(X[40:]).upper  # (row, level)
    outcome = outcome_of(made, X[40:], upper.mean(axis=1))  # outside the narrow interval, inside the wide one
    narrow, wide = (verdict(view) for view in outcome.views)
    assert "✕ That is below the expected band" in narrow
    assert "other level" not in narrow
    assert "✓ That is inside the expected band" in wide
    assert wide.endswith("✕ 1 of 1 other levels misses its band.")
    (tones,) = {
        tuple(
            block.tone
            for block in reached(outcome, describe(made)).blocks
            if getattr(block, "when", {}) and block.kind == "text"
        )
    }
    assert tones == ("bad", "good")


def test_several_targets_are_also_counted_all_at_once_and_bands_missed_by_chance_are_counted():
    X = np.random.default_rng(0).normal(size=(60, 2))
    made = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), folds=2, repeats=1, schedule=BRIEF, random_state=0)
    outcome = outcome_of(made.fit(X[:40], X[:40]), X[40:], X[40:])
    section = reached(outcome, describe(made))
    first, second = (outcome.view(target, 1).inside for target in (0, 1))
    both = f"at once in {100 * (first & second).mean():.1f} % of the rows"
    assert [both in block.text for block in section.blocks if block.when == {"level": 1}] == [True]
    assert "Of 4 bands, up to 0.4 are missed on average even if all intervals are right." in texts_of(section)
    assert "The band allows for the 40 training rows whose ranks set the widths." in texts_of(section)


@pytest.mark.parametrize(
    ("calibration", "sentence"), [(None, "No ranks set the widths"), ("split", "this model does not know how many")]
)
def test_where_no_ranks_are_known_the_band_says_whether_there_were_any(calibration, sentence):
    X = np.random.default_rng(0).normal(size=(60, 1))
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=10, calibration=calibration, random_state=0)
    section = reached(outcome_of(made.fit(X[:40], X[:40, 0]), X[40:], X[40:, 0]), describe(made))
    assert sentence in texts_of(section)
    assert "at once" not in texts_of(section)


def test_the_first_of_very_many_warnings_are_shown_and_the_others_counted(by_hand, model):
    outcome = by_hand(np.zeros(20), -np.ones(20), np.ones(20), warnings=tuple(f"row {number}" for number in range(13)))
    notes = [block.text for block in reached(outcome, describe(model)).blocks if getattr(block, "tone", "") == "note"]
    assert notes[0] == "Warning while predicting: row 0"
    assert notes[-1] == "There were 3 more warnings."
    assert len(notes) == 11


def test_the_table_of_all_levels_has_the_scores_and_the_slices_that_fall_short(evaluated, flats):
    outcome, described = evaluated(flats(400, odd_city="Lima", seed=1))
    (table,) = [block for block in reached(outcome, described).blocks if block.kind == "table"]
    place, found = table.heads.index("slices short"), outcome.views
    assert [row[place] for row in table.rows] == [f"{len(view.slices.short)} of {len(view.slices)}" for view in found]
    assert len(found[1].slices.short) >= 1
    assert [row[2] for row in table.rows] == [f"{100 * view.inside.mean():.1f} %" for view in found]


def test_the_chart_of_levels_shows_each_beside_its_band_and_marks_the_chosen_one(evaluated, flats):
    outcome, described = evaluated(flats(60, seed=1))
    narrow, wide = (block.chart.table for block in calibration(outcome, described).blocks)
    assert (narrow["chosen"].tolist(), wide["chosen"].tolist()) == ([True, False], [False, True])
    assert wide["value"].tolist() == [view.scores["coverage"] for view in outcome.views]
    assert list(zip(wide["low"], wide["high"], strict=True)) == [view.scores["band"] for view in outcome.views]


def bins_of(by_hand, y, width):
    width = np.asarray(width)
    return width_bins(by_hand(y, -width / 2, width / 2).views[0])


def test_bins_of_width_have_the_means_of_their_rows(by_hand):
    narrow, wide = bins_of(by_hand, np.repeat([0.25, 2.0], 20), np.repeat([1.0, 3.0], 20))
    assert (narrow.n_rows, narrow.width, narrow.error, narrow.coverage) == (20, 1.0, 0.25, 1.0)
    assert (wide.n_rows, wide.width, wide.error, wide.coverage) == (20, 3.0, 2.0, 0.0)
    assert wide.standard_error == 0.0


def test_equal_widths_are_one_bin_and_a_single_row_has_no_standard_error(by_hand):
    assert [one.n_rows for one in bins_of(by_hand, np.zeros(100), np.full(100, 2.0))] == [100]
    first, _ = bins_of(by_hand, np.zeros(40), np.r_[0.5, np.full(39, 1.0)])
    assert first.n_rows == 1
    assert np.isnan(first.standard_error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is a function without state
@given(widths=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 7.0]), min_size=10, max_size=120))
def test_bins_hold_all_rows_once_from_narrow_to_wide(by_hand, widths):
    bins = bins_of(by_hand, np.zeros(len(widths)), widths)
    assert sum(one.n_rows for one in bins) == len(widths)
    assert [one.width for one in bins] == sorted({one.width for one in bins})
    assert sum(one.n_rows * one.width for one in bins) == pytest.approx(sum(widths))


def test_widths_are_drawn_with_nine_tenths_of_their_uncertainty(evaluated, flats):
    outcome, described = evaluated(flats(60, seed=1))
    table = widths(outcome, described).blocks[1].chart.table
    bins = width_bins(outcome.views[1])
    assert table["high"].tolist() == pytest.approx([one.error + 1.6449 * one.standard_error for one in bins])
    assert (table["low"] >= 0).all()


def test_a_badly_covered_city_is_named_first_with_what_its_interval_does_not_allow_for(evaluated, flats):
    outcome, described = evaluated(flats(400, odd_city="Lima", seed=1))
    text, chart, table = worst(outcome, described).blocks[3:]  # the second view, at 0.9
    assert text.text.startswith("Worst: city: Lima.")
    assert text.tone == "bad"
    assert f"where all rows together reach {100 * outcome.views[1].inside.mean():.1f} %." in text.text
    assert "which does not allow for its being the worst of many" in text.text
    assert f"Chance alone brings any of {len(outcome.views[1].slices)} slices so low in less than 0.0001" in text.text
    assert chart.chart.table["name"][0].startswith("city: Lima")
    assert table.rows[0][0] == "city: Lima"


def test_a_group_of_very_many_values_leaves_room_for_the_other_columns(evaluated, flats):
    outcome, described = evaluated(flats(300, seed=1), groups={"flat": np.arange(300)})
    section = slices(outcome, described)
    assert section.choice.options == ["flat", "area", "city", "listed", "garden"]
    legend, flat, *_ = section.blocks
    assert legend.kind == "signs"
    assert len(flat.chart.table["name"]) == 30
    assert flat.caption.endswith("The worst 30 of 300 are drawn.")
    assert flat.legend == []


def test_where_nothing_can_be_cut_there_are_no_sections_on_slices(by_hand, model):
    outcome = by_hand(np.zeros(20), -np.ones(20), np.ones(20))
    assert worst(outcome, describe(model)) is None
    assert slices(outcome, describe(model)) is None
