"""What each kind of column gives, by hand."""

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.inputs.column_kinds import CALENDAR, KINDS, Booleans, Categories, Numbers, Times
from coverwell.inputs.frames import as_times, columns_of, read


def values_of(items):
    (series,) = columns_of(pl.DataFrame({"a": items}, strict=False)).values()
    values = read(series)
    return as_times(values) or values


@pytest.mark.parametrize(
    ("items", "median"), [([1.0, None, 3.0, 9.0], 3.0), ([4, 2, 8, 6], 4.0), ([1e308, 1.7e308], 1e308)]
)
def test_a_missing_number_is_the_median_the_lower_of_two(items, median):
    values = values_of(items)
    kind = Numbers.of(values)
    assert kind == Numbers(median)
    assert_array_equal(kind.features(values)[""], [median if item is None else item for item in items])
    assert_array_equal(kind.features(values)[" (missing)"], [item is None for item in items])


@pytest.mark.parametrize(
    ("items", "usual"), [([True, True, False, None], True), ([True, False, False], False), ([True, False], False)]
)
def test_a_missing_boolean_is_the_more_frequent_one(items, usual):
    values = values_of(items)
    kind = Booleans.of(values)
    assert kind == Booleans(usual)
    assert_array_equal(kind.features(values)[""], [usual if item is None else item for item in items])


def test_levels_are_known_if_they_occur_twice_the_most_frequent_first():
    values = values_of(["b", "a", "b", None, "c", "a", "b"])
    kind = Categories.of(values)
    assert kind.levels == ("b", "a")
    features = kind.features(values)
    assert_array_equal(features["=b"], [1, 0, 1, 0, 0, 0, 1])
    assert_array_equal(features["=a"], [0, 1, 0, 0, 0, 1, 0])
    assert_array_equal(features[" (other)"], [0, 0, 0, 0, 1, 0, 0])
    assert_array_equal(features[" (missing)"], [0, 0, 0, 1, 0, 0, 0])


def test_at_most_twenty_levels_are_known_and_equals_go_by_name():
    names = [f"{number:02}" for number in range(30)]
    kind = Categories.of(values_of([*names, *names, "29"]))
    assert kind.levels == ("29", *names[:19])


def test_a_single_level_beside_missing_values_is_known():
    assert Categories.of(values_of(["a", None])).levels == ("a",)


def test_every_row_of_categories_has_exactly_one_code():
    values = values_of(["b", "a", "b", None, "c", "a", " (missing)", "missing"])
    features = Categories(("b", "a", " (missing)")).features(values)
    assert_array_equal(np.sum(list(features.values()), axis=0), np.ones(8))


def test_a_time_is_days_a_year_and_positions_in_year_day_and_week():
    values = values_of(["2024-01-01T06:00", "2025-07-02T12:00", None])  # a Monday; the middle of 2025, a Wednesday
    kind = Times.of(values)
    assert kind == Times("2024-01-01T06:00:00.000000")
    features = kind.features(values)
    assert_array_equal(features[""], [19723.25, 20271.5, 19723.25])
    assert_array_equal(features[" (year)"], [2024, 2025, 2024])
    turn = 2 * np.pi * 0.25 / 366
    assert_allclose(features[" (month sin)"], [np.sin(turn), 0, np.sin(turn)], atol=1e-12)
    assert_allclose(features[" (month cos)"], [np.cos(turn), -1, np.cos(turn)], atol=1e-12)
    assert_array_equal(features[" (hour sin)"], [1, 0, 1])
    assert_array_equal(features[" (hour cos)"], [0, -1, 0])
    assert_array_equal(features[" (monday)"], [1, 0, 1])
    assert_array_equal(features[" (wednesday)"], [0, 1, 0])
    assert_array_equal(features[" (missing)"], [0, 0, 1])


def test_the_days_of_a_week_have_one_feature_each():
    week = values_of([f"1969-12-{day}" for day in range(22, 29)])  # before 1970, from a Monday on
    features = Times.of(week).features(week)
    assert_array_equal([features[f" ({day})"] for day in CALENDAR[-7:]], np.eye(7))


@pytest.mark.parametrize("items", [[1.0, None], [True, None], ["a", None], ["2024-05-01", None]])
def test_features_are_the_possible_ones_in_their_order(items):
    values = values_of(items)
    kind = KINDS[values.kind].of(values)
    assert tuple(kind.features(values)) == kind.possible


@pytest.mark.parametrize("kind", [Numbers(2.0), Booleans(True), Categories(("a",)), Times("2024-05-01")])
def test_a_column_without_any_value_has_features_all_the_same(kind):
    features = kind.features(values_of([None, None]))
    assert tuple(features) == kind.possible
    assert np.isfinite(list(features.values())).all()
    assert_array_equal(features[" (missing)"], [1, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Numbers(float("nan")),
        lambda: Numbers(float("inf")),
        lambda: Categories(()),
        lambda: Categories(("a", "a")),
        lambda: Times("now"),
        lambda: Times("NaT"),
    ],
)
def test_what_cannot_have_been_learned_is_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()
