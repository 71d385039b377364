"""A page says what was measured and no more, escapes what it is given, and loads nothing."""

import copy
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.description import ModelDescription
from coverwell.evaluation import forecast_outcome, outcome_of
from coverwell.report import page as page_module
from coverwell.report.facts import lowest_by_chance
from coverwell.report.page import check_library, rendered, write_page
from coverwell.slices import as_text

EVIL = "<script>alert('\"&')</script>"


@pytest.fixture(scope="module")
def described(model):
    return ModelDescription(model)


def single_network(X, y=None, **options):
    """The outcome of a network that leaves nothing out, on the rows from 40 on."""
    options = {"coverage": 0.8, "network": MLP(hidden=4), "max_epochs": 20, "random_state": 0, **options}
    made = HeteroscedasticRegressor(**options)
    made.fit(X[:40], X[:40, 0])
    y_test = X[40:, 0] if y is None else y(made.predict_interval(X[40:]))
    return outcome_of(made, X[40:], y_test), ModelDescription(made)


@pytest.mark.parametrize(
    ("n_inside", "tone", "sentences"),
    [
        (16, "good", ["16 of 20 rows lie inside their 80 % interval of y: 80.0 %.", "They do not prove them right."]),
        (16, "good", ["✓ That is inside the expected band (65.0 % to 95.0 %)", "No slices of the rows were compared"]),
        (8, "bad", ["✕ That is below the expected band", "too narrow"]),
        (20, "bad", ["✕ That is above the expected band", "wider than was asked for"]),
    ],
)
def test_the_verdict_says_no_more_than_was_measured(by_hand, described, page_of, n_inside, tone, sentences):
    outcome = by_hand(np.where(np.arange(20) < n_inside, 0.0, 9.0), -np.ones(20), np.ones(20), name="y")
    page = page_of(outcome, described)
    (verdict,) = page.paragraphs("reached", tone)
    assert all(sentence in verdict for sentence in sentences)
    assert not {"worst", "slices", "bands", "rolling", "images"} & set(page.sections)


def test_a_slice_that_is_surely_short_is_named_though_the_whole_is_right(by_hand, described, page_of):
    inside = np.array([True] * 160 + [False] * 40)
    y, city = np.where(inside, 0.0, 9.0), np.where(inside, "Rome", "Oslo")
    page = page_of(by_hand(y, -np.ones(200), np.ones(200), name="y", groups={"city": city}), described)
    (verdict,) = page.paragraphs("reached", "bad")
    assert "✓ That is inside the expected band" in verdict
    assert "But 1 of 2 slices of the rows fall short by more than chance: city Oslo (0.0 % of 40 rows)." in verdict


def test_a_level_that_holds_does_not_hide_another_that_does_not(page_of):
    X = np.random.default_rng(0).normal(size=(60, 1))
    # Outside the narrow interval, inside the wide one.
    found = single_network(X, lambda interval: interval.upper.mean(axis=1), coverage=[0.3, 0.9], max_epochs=10)
    page = page_of(*found)
    (narrow,), (wide,) = page.paragraphs("reached", "bad"), page.paragraphs("reached", "good")
    assert "✕ That is below the expected band" in narrow
    assert "other level" not in narrow
    assert wide.endswith("✕ 1 of 1 other levels misses its band.")


def test_several_targets_are_also_counted_all_at_once_and_bands_missed_by_chance_are_counted(page_of):
    X = np.random.default_rng(0).normal(size=(60, 2))
    made = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), folds=2, repeats=1, random_state=0)
    made.set_params(schedule=Schedule(max_rounds=1))
    outcome = outcome_of(made.fit(X[:40], X[:40]), X[40:], X[40:])
    plain = page_of(outcome, ModelDescription(made)).paragraphs("reached", "plain")
    first, second = (outcome.view(target, 1).inside for target in (0, 1))
    assert f"at once in {100 * (first & second).mean():.1f} % of the rows" in plain[1]
    assert "Of 4 bands, up to 0.4 are missed on average even if all intervals are right." in plain[2]
    assert "The band allows for the 40 training rows whose ranks set the widths." in plain[2]


@pytest.mark.parametrize(
    ("calibration", "sentence"), [(None, "No ranks set the widths"), ("split", "this model does not know how many")]
)
def test_a_single_network_says_what_it_does_not_know(page_of, calibration, sentence):
    page = page_of(*single_network(np.random.default_rng(0).normal(size=(60, 15)), calibration=calibration))
    assert sentence in page.text("reached")
    assert "at once" not in page.text("reached")
    assert "Training went through 2 rounds of 10 epochs." in page.text("rounds")
    assert "This model does not know how many rows it was fitted on" in page.text("drift")
    assert "3 more inputs, which differ less surely" in page.text("drift")


def test_what_the_networks_look_at_comes_with_the_largest_scale_first_and_the_weights_of_the_blend(page_of):
    X = np.random.default_rng(0).normal(size=(60, 12))
    options = {"network": MLP(hidden=4, scaled=True), "schedule": Schedule(max_rounds=1), "folds": 2, "repeats": 1}
    made = MatchedRegressor(0.8, companions=("forest", Ridge(alpha=2)), **options, random_state=0)
    outcome = outcome_of(made.fit(X[:40], X[:40, 3]), X[40:], X[40:, 3])
    described = ModelDescription(made)
    text, scales = page_of(outcome, described).text("looks"), made.column_scales_
    order = np.argsort(-scales)
    assert " ".join(f"column {place} {scales[place]:.2f}" for place in order[:10]) in text
    assert f"relative to the largest; and 2 more of at most {scales[order[10]]:.2f}" in text
    weights = made.predictor_.fitted_teams[0].weights[:, 0].tolist()
    assert list(described.blend.items()) == list(zip(("networks", "forest", "Ridge(alpha=2)"), weights, strict=True))
    told = [f"{weight:.2f}" if weight else "not used" for weight in weights]
    assert "networks {} forest {} Ridge(alpha=2) {}".format(*told) in text
    assert "not used" in told


def test_both_kinds_of_networks_count_together_in_the_blend(model):
    described = ModelDescription(copy.deepcopy(model))
    (team,) = described.regressor.predictor_.fitted_teams
    team.weights = torch.tensor([[0.5], [0.2], [0.3]])  # the last is a first team beside the second
    assert described.blend == pytest.approx({"networks": 0.8, "forest": 0.2})
    team.weights = None
    assert described.blend == {}


def test_without_scales_and_companions_nothing_is_said_about_them(page_of):
    page = page_of(*single_network(np.random.default_rng(0).normal(size=(60, 2))))
    assert "looks" not in page.sections


def test_training_names_the_best_round_and_where_the_deployed_model_is_shown(evaluated, flats, page_of):
    outcome, described = evaluated(flats(20))
    rmse = described.by_round[0][:, 0]
    text = page_of(outcome, described).text("rounds")
    lowest = f"{rmse.min():.4g} in round {rmse.argmin() + 1}, the lowest"
    assert f"RMSE by round: {lowest}; {rmse[-1]:.4g} after the last." in text
    assert "The model keeps the networks of the round with the lowest error, which need not be the last." in text
    assert 'with companions and calibration, stands under "Asked and reached coverage".' in text


def test_groups_of_a_row_or_two_are_counted_and_not_among_the_worst(evaluated, flats, page_of):
    rows = flats(200, seed=1)
    outcome, described = evaluated(rows, groups={"customer": np.arange(200) // 2})
    text = page_of(outcome, described).text("worst")
    assert "customer:" not in text
    n_small = outcome.views[0].slices.n_small
    assert n_small >= 100
    assert f"{n_small} slices of fewer than 20 rows are left out." in text


def test_the_first_of_very_many_warnings_are_shown_and_the_others_counted(evaluated, flats, page_of):
    outcome, described = evaluated(flats(20), n_skipped=3)
    page = page_of(replace(outcome, warnings=tuple(f"row {number}" for number in range(13))), described)
    notes = page.paragraphs("reached", "note")
    assert (notes[0], notes[-1], len(notes)) == ("Warning while predicting: row 0", "There were 3 more warnings.", 11)
    assert page.paragraphs("data", "note") == ["3 rows without a target left out."]


def test_a_badly_covered_city_is_named_first_with_what_its_interval_does_not_allow_for(evaluated, flats, page_of):
    outcome, described = evaluated(flats(400, odd_city="Lima", seed=1))
    worst = page_of(outcome, described).paragraphs("worst", "bad")[-1]  # at 0.9
    assert worst.startswith("Worst: city: Lima.")
    assert f"where all rows together reach {100 * outcome.views[1].inside.mean():.1f} %." in worst
    assert "which does not allow for its being the worst of many" in worst
    assert f"Chance alone brings any of {len(outcome.views[1].slices)} slices so low in less than 0.0001" in worst


def test_an_input_that_has_moved_is_named(evaluated, flats, page_of):
    rows = flats(200, seed=1)
    page = page_of(*evaluated(rows.filter(rows["city"] == "Bern")))
    (verdict,) = page.paragraphs("drift", "bad")
    assert "most surely city=Bern" in verdict
    (table,) = [table for table in page.tables if "difference" in table]
    assert (table["name"][0], table["expected"][0]) == ("city=Bern", 0)


def test_with_live_calibration_both_intervals_are_shown_and_without_it_nothing_is_said_about_it(
    forecaster, series, page_of
):
    outcome, described = forecast_outcome(forecaster, series), ModelDescription(forecaster)
    both = page_of(replace(outcome, n_seen=12), described)
    assert both.paragraphs("reached", "bad")[0].startswith("✕ The forecaster had seen 12 of the steps before")
    chance = f"one period of twenty has a worst stretch below {100 * lowest_by_chance(0.9, 200, 50):.1f} %."
    assert chance in both.text("reached")
    for key, words in (("reached", "reached without live calibration"), ("bands", "static"), ("rolling", "without it")):
        assert words in both.text(key)
    described.live = False
    alone = page_of(replace(outcome, static=None), described)
    words = " ".join(alone.text(key) for key in ("reached", "bands", "rolling"))
    assert words.count("live calibration") == 1
    assert "live calibration is off" in words
    assert not any("static" in name for table in alone.tables for name in table)
    long = replace(outcome, target_names=("the load of a town whose name goes on and on", outcome.target_names[1]))
    described.target_names = long.target_names
    html = page_of(long, described).html
    assert '"the load of a town whose name goe\\u2026"' in html


def test_four_targets_that_are_no_boxes_are_shown_as_numbers(image_model, page_of):
    model, X, y = image_model()
    for boxes in (True, None):
        page = page_of(outcome_of(model, X, y, boxes=boxes), ModelDescription(model))
        assert page.html.count("data:image/jpeg;base64") == 12
        assert ("outer: contains them all" in page.text("images")) == bool(boxes)
        assert ("y3: observed" in page.text("images")) == (not boxes)


def test_texts_with_html_in_them_are_escaped(by_hand, described):
    groups = {EVIL: np.repeat([EVIL, "b & c"], 10)}
    outcome = by_hand(np.zeros(20), -np.ones(20), np.ones(20), name="y", groups=groups, warnings=(EVIL,))
    html = rendered(outcome, described, title=EVIL, subtitle=EVIL)
    assert "<script>alert" not in html
    assert html.count("<script") == html.count("</script>") == 3
    assert "&lt;script&gt;alert" in html


def test_only_what_can_be_chosen_has_a_control_and_other_blocks_are_hidden(evaluated, by_hand, flats, described):
    alone = rendered(by_hand(np.zeros(20), -np.ones(20), np.ones(20), name="y"), described, title="A title")
    assert "<select" not in alone
    assert 'class="toolbar' not in alone
    outcome, _ = evaluated(flats(30))
    html = rendered(outcome, described, title="A title", level=1)
    assert re.findall(r'<select id="choose-(\w+)"', html) == ["level", "column"]
    hidden = re.findall(r"""<div class="block figures" data-when='(.*?)'( hidden)?>""", html)
    assert hidden == [('{"target":0,"level":0}', " hidden"), ('{"target":0,"level":1}', "")]


def test_a_page_loads_nothing_and_holds_the_charting_library_with_its_licence(evaluated, flats, described):
    html = rendered(evaluated(flats(30))[0], described, title="A title")
    head = html.split('<script type="application/json"')[0]
    assert re.findall(r"(?:src|srcset|action)\s*=\s*[\"'](?!data:)", head) == []
    assert set(re.findall(r"href=\"([^#\"]*)", html)) <= {"data:,", ""}
    assert "@import" not in html
    assert "url(http" not in html
    assert "default-src 'none'" in html
    assert "BSD-3-Clause licence" in html
    assert len(html) < 1_500_000


def test_a_page_beyond_the_limit_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="must stay below 1,000 bytes, got 1,001"):
        write_page("x" * 1001, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "package"), [("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")])
def test_a_missing_package_is_named_with_the_extra_that_has_it(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"reports need {package}; install the extra `report`"):
        check_library()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.datetime64("NaT"), "missing"),
        (np.datetime64("2024-01-31T00:00"), "2024-01-31"),
        (np.datetime64("2024-01-31T10:30:00"), "2024-01-31 10:30"),
        (np.datetime64("2024-01-31T10:30:05"), "2024-01-31 10:30:05"),
        (1.0, "1"),
        (0.1 + 0.2, "0.3"),
        ("Oslo", "Oslo"),
    ],
)
def test_a_value_takes_as_few_characters_as_it_needs(value, text):
    assert as_text(value) == text
