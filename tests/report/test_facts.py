"""Tables of a report: misses in order, columns in a line each, stretches, drift, images, and where a report is from."""

import base64
import hashlib
import io
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from scipy.stats import binom

from coverwell import MLP, MatchedRegressor, Schedule, save
from coverwell._version import __version__
from coverwell.description import ModelDescription
from coverwell.evaluation import forecast_outcome, outcome_of
from coverwell.report.facts import (
    Source,
    boxes_in,
    chosen_images,
    column_row,
    column_rows,
    is_training,
    jpeg,
    lowest_by_chance,
    miss_heads,
    miss_rows,
    more_slices,
    period_rows,
    shift_rows,
    shifts_of,
    slice_columns,
    slices_by,
    source_rows,
    worst_stretch,
)


def test_the_table_of_all_levels_has_the_scores_and_the_slices_that_fall_short(evaluated, flats, page_of):
    outcome, described = evaluated(flats(400, odd_city="Lima", seed=1))
    text = page_of(outcome, described).text("reached").partition("All targets and levels")[2]
    for view in outcome.views:
        assert f"{view.asked:.0%} {view.inside.mean():.1%}".replace("%", " %") in text
        assert f"{len(view.slices.short)} of {len(view.slices)} {view.scores['rmse']:.4g}" in text
    assert len(outcome.views[1].slices.short) >= 1


def test_slices_of_two_columns_stand_beside_those_that_the_fit_found(evaluated, flats, page_of):
    rows = flats(400, seed=1)
    odd = (rows["city"] == "Lima") & rows["garden"]
    outcome, described = evaluated(rows.with_columns(rent=rows["rent"] + 1e4 * odd))
    view = outcome.views[1]
    lines = more_slices(view, described)
    own = [line for line in lines if line[0] == "test"]
    assert [line[1] for line in own] == [part.name for part in view.pairs.short[:5]]
    assert any(("city Lima" in line[1]) and ("garden true" in line[1]) for line in own)
    of_fit = [one for one in described.worst_slices if one.asked == view.asked]
    assert [line[:3] for line in lines[len(own) :]] == [
        ("training, out of fold", one.name, str(one.n_rows)) for one in of_fit
    ]
    assert len(of_fit) >= 3
    text = page_of(outcome, described).text("worst").partition("what the fit found among training rows")[2]
    assert all(line[1] in text for line in lines)
    assert "is covered" in page_of(outcome, described).text("worst")


def test_a_group_of_very_many_values_leaves_room_for_the_other_columns(evaluated, flats):
    outcome, _ = evaluated(flats(300, seed=1), groups={"flat": np.arange(300)})
    columns, worst = slice_columns(outcome, outcome.views[1])
    assert columns == ["flat", "area", "city", "listed", "garden"]
    assert columns[worst] == next(iter(outcome.views[1].slices.by_column))
    parts, n_all = slices_by(outcome.views[1], "flat")
    assert (len(parts), n_all) == (30, 300)
    assert list(parts) == outcome.views[1].slices.by_column["flat"][:30]
    assert slices_by(outcome.views[1], "city")[0] == outcome.views[1].slices.of("city")


def test_the_farthest_outside_comes_first_and_rows_inside_are_no_misses(by_hand):
    view = by_hand([0.0, 5.0, -4.0, 1.0], -np.ones(4), np.ones(4)).views[0]
    assert [row[0] for row in miss_rows(view, 10)] == ["1", "2"]
    assert [row[0] for row in miss_rows(view, 1)] == ["1"]


def test_a_miss_has_as_many_digits_as_it_needs(by_hand):
    view = by_hand([1000000.52, 28.05838, 3e100], -np.ones(3), [1000000.1, 11.51959, 1.0]).views[0]
    huge, large, small = miss_rows(view, 3)
    assert small == ["0", "1,000,000.520", "0.000", "-1.000", "1,000,000.100", "0.420"]
    assert large == ["1", "28.1", "0.0", "-1.0", "11.5", "16.5"]
    assert huge[1] == "3e+100"


def test_rows_are_named_by_their_numbers_and_shown_with_their_columns(evaluated, flats):
    rows = flats(60, odd_city="Lima", seed=1)
    outcome, _ = evaluated(rows, row_numbers=np.arange(101, 161), groups={"block": np.arange(60)})
    assert miss_heads(outcome)[0][-5:] == ["block", "area", "city", "listed", "garden"]
    first = miss_rows(outcome.views[1], 10)[0]
    place = int(outcome.views[1].missed_by.argmax())
    assert (first[0], first[6], first[8]) == (str(101 + place), str(place), rows["city"][place])


def test_the_worst_stretch_is_the_first_with_the_fewest_inside(by_hand):
    inside = np.array([True, False, True, True, False, False, True, False, False])
    view = by_hand(np.where(inside, 0.0, 9.0), -np.ones(9), np.ones(9)).views[0]
    assert worst_stretch(view, 3) == (3, pytest.approx(1 / 3))


def test_the_worst_stretch_by_chance_of_a_single_window_is_that_of_the_binomial_law():
    # 200 draws put the quantile of order 0.05 between those of order 0.01 and 0.12, save in one case of a thousand.
    found = lowest_by_chance(0.9, 100, 100)
    assert binom.ppf(0.01, 100, 0.9) / 100 <= found <= binom.ppf(0.12, 100, 0.9) / 100
    assert lowest_by_chance(0.9, 2000, 100) < found


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (np.array([3.0, 1.0, np.nan, 2.0]), ("1 of 4", "3", "1 to 3, median 2")),
        (np.full(3, np.nan), ("3 of 3", "0", "none")),
        (np.array(["a", "b", None], dtype=object), ("1 of 3", "2", "a 50.0 %, b 50.0 %")),
        (np.array(list("aaabcde"), dtype=object), ("0 of 7", "5", "a 42.9 %, b 14.3 %, c 14.3 %, d 14.3 %, ...")),
        (
            np.array(["2024-01-02", "NaT"], dtype="datetime64[s]"),
            ("1 of 2", "1", "2024-01-02 to 2024-01-02, median 2024-01-02"),
        ),
    ],
)
def test_a_column_is_its_gaps_and_its_values(values, row):
    name, kind, gaps, in_training, n_different, shown = column_row("area", values, "numbers", "0 of 9")
    assert (name, kind, in_training) == ("area", "numbers", "0 of 9")
    assert (gaps, n_different, shown) == row


def test_every_column_stands_in_the_table_with_its_gaps_in_training(evaluated, flats):
    rows, n_columns = column_rows(*evaluated(flats(60, seed=1)))
    assert [row[0] for row in rows] == ["y", "area", "city", "listed", "garden"]
    assert rows[1][1:4] == ("numbers", "4 of 60", "8 of 120")
    assert n_columns == 5


def test_a_series_is_compared_with_what_was_seen(forecaster, series):
    outcome, described = forecast_outcome(forecaster, series), ModelDescription(forecaster)
    rows, outside = period_rows(outcome, described)
    assert [row[:3] for row in rows] == [("load", "seen by the forecaster", "200"), ("load", "this report", "200")]
    n_outside = int(((series[200:] < series[:200].min()) | (series[200:] > series[:200].max())).sum())
    assert outside == [("load", n_outside, 200)]
    assert n_outside > 0
    outcome.inputs["load"][:] = series[:200].mean()
    assert period_rows(outcome, described)[1] == []


@pytest.fixture(scope="module")
def plain():
    """A model of two plain columns: the first has mean 0.5 and deviation 0.5, the second counts."""
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    made = MatchedRegressor(network=MLP(hidden=4), schedule=Schedule(max_rounds=1), repeats=1, folds=2, random_state=0)
    return ModelDescription(made.fit(X, X[:, 1]))


def test_a_difference_is_in_standard_deviations_of_the_training_rows(plain):
    first, second = shifts_of(np.column_stack([np.ones(40), np.full(40, 29.5)]), plain)
    assert (first.name, second.name) == ("column 0", "column 1")
    assert first.difference == pytest.approx((1 - 0.5) / 0.5)
    assert first.is_share
    assert first.standard_error == pytest.approx((1 / 40 + 1 / 60) ** 0.5)
    assert (first.is_expected, second.is_expected) == (False, True)
    assert (second.difference, second.chance) == (pytest.approx(0.0), 1.0)


def test_rows_outside_the_range_of_training_are_counted_and_the_surest_difference_comes_first(plain):
    first, *_ = shifts_of(np.column_stack([np.tile([0.0, 1.0], 10), np.arange(50.0, 70.0)]), plain)
    assert (first.name, first.n_outside) == ("column 1", 10)


def test_new_samples_of_the_same_rows_are_rarely_called_different(plain):
    # By Bonferroni, at most one sample in twenty has any input with a chance below 0.05; of 40 samples at most 7, save
    # in one case of a thousand.
    rng = np.random.default_rng(0)
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    samples = [X[rng.integers(0, 60, 30)] for _ in range(40)]
    assert sum(not all(shift.is_expected for shift in shifts_of(s, plain)) for s in samples) <= 7


def test_levels_gaps_and_dates_of_a_frame_are_inputs_with_their_own_units(evaluated, flats):
    outcome, described = evaluated(flats(60, seed=1))
    shifts = shifts_of(outcome.inputs, described)
    found, training = {shift.name: shift for shift in shifts}, flats(120)
    assert found["city=Oslo"].is_share
    assert found["city=Oslo"].train_mean == pytest.approx((training["city"] == "Oslo").mean())
    assert found["area (missing)"].test_mean == pytest.approx(4 / 60)
    (listed,) = [row for row in shift_rows(shifts, described) if row[0] == "listed"]
    assert listed[1].startswith("2024-0")


def test_a_difference_of_very_many_deviations_takes_few_characters(evaluated, flats):
    with pytest.warns(UserWarning, match="outside the range"):
        outcome, described = evaluated(flats(60, seed=1).with_columns(area=pl.lit(1e200)))
    row = shift_rows(shifts_of(outcome.inputs, described), described)[0]
    assert row[0] == "area"
    assert max(map(len, row)) < 20


def test_the_rows_of_the_training_are_recognised_and_others_are_not(evaluated, flats, page_of):
    outcome, described = evaluated(flats(120))
    assert is_training(outcome, described)
    assert "✕ These seem to be the rows of the training" in page_of(outcome, described).text("reached")
    others, _ = evaluated(flats(120, seed=1))
    assert not is_training(others, described)
    assert "rows of the training:" not in page_of(others, described).text("reached")
    assert not is_training(evaluated(flats(120)[1:])[0], described)


def test_files_model_versions_and_device_are_named(model, tmp_path):
    save(model, tmp_path / "m.safetensors")
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "test.csv")
    source = Source(tmp_path / "m.safetensors", tmp_path / "test.csv", "coverwell report ...")
    rows = dict(source_rows(source, ModelDescription(model)))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", rows["made"])
    for what, name in (("model file", "m.safetensors"), ("data file", "test.csv")):
        assert rows[what] == name
        assert rows[f"sha256 of the {what}"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert rows["command"] == "coverwell report ..."
    assert (rows["model"], rows["calibration"]) == ("MatchedRegressor", "local")
    assert "torch" in rows["versions that wrote the model"]
    for version in (f"coverwell {__version__}", f"torch {torch.__version__}", "vega ", "vl-convert-python "):
        assert version in rows["versions that made this report"]
    assert rows["device"] in ("cpu", "cuda")
    assert not any("sha256" in name for name, _ in source_rows(Source(), ModelDescription(model)))


@pytest.fixture(scope="module")
def of_images(image_model):
    return image_model()


def test_four_fractions_are_boxes_only_if_the_model_or_the_user_says_so(image_model, of_images):
    model, X, y = of_images
    assert [outcome_of(model, X, y, boxes=boxes).boxes for boxes in (None, True)] == [False, True]
    mirrored = image_model(mirror="boxes")
    assert [outcome_of(*mirrored, boxes=boxes).boxes for boxes in (None, False)] == [True, False]
    with pytest.raises(ValueError, match=r"fractions of the images' sides, got values from .* divide them"):
        outcome_of(model, X, 100 * y, boxes=True)
    with pytest.raises(ValueError, match=r"boxes are four targets \(left, top, width, height\), but the model has 3"):
        outcome_of(*image_model(n_targets=3), boxes=True)


def test_the_worst_images_come_first_with_their_boxes_in_fractions(of_images):
    outcome = outcome_of(*of_images, boxes=True)
    chosen = chosen_images(outcome, 0)
    missed = np.max([view.missed_by / view.width.mean() for view in outcome.views], axis=0)
    n_worst = sum(is_worst for _, is_worst, _ in chosen)
    assert [place for place, *_ in chosen[:n_worst]] == np.argsort(-missed, kind="stable")[:n_worst].tolist()
    assert len({place for place, *_ in chosen}) == len(chosen) == n_worst + 6
    assert [is_inside for *_, is_inside in chosen] == [not missed[place] for place, *_ in chosen]
    place = chosen[0][0]
    boxes = {name: values for name, *values in boxes_in(outcome, place, 0)}
    assert boxes["true"] == pytest.approx(outcome.y[place], abs=1e-3)
    assert all(0 <= value <= 1 for values in boxes.values() for value in values)


def test_an_image_in_the_page_is_a_small_jpeg_of_what_was_given(of_images):
    given = of_images[1][:1]
    kind, content = jpeg(given, 0).split(",")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (kind, image.format, image.size) == ("data:image/jpeg;base64", "JPEG", (240, 240))
    assert np.asarray(image, dtype=float).mean() == pytest.approx(given.mean(), abs=6)
    assert len(content) < 60_000
