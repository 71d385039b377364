"""Coverage in parts of the rows: counted right, named right, and its uncertainty as wide as it should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from coverwell.slices import BY_CHANCE, Slice, Slices, slices_of

RNG = np.random.default_rng(0)
counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def named(slices):
    return [(part.values, part.n_rows, part.n_inside) for part in slices]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [("1 to 5", 5, 3), ("6 to 8", 3, 2)]),
        ([2, 3, 2, 3, 2, 3, 2, 3], [("2", 4, 3), ("3", 4, 2)]),  # few values stand alone
        ([1.0, np.nan, 1.0, np.nan, 1.0, 1.0, 1.0, 1.0], [("1", 6, 4), ("missing", 2, 1)]),
        ([np.nan] * 8, [("missing", 8, 5)]),
        (np.array([*"ab", None, *"aaaaa"], dtype=object), [("a", 6, 4), ("b", 1, 1), ("missing", 1, 0)]),
        (
            ["missing", None, *["others"] * 6],
            [("missing", 1, 1), ("others", 6, 3), ("missing", 1, 1)],
        ),  # levels
        (
            np.datetime64("2020-01-01") + np.arange(8),
            [("2020-01-01 to 2020-01-05", 5, 3), ("2020-01-06 to 2020-01-08", 3, 2)],
        ),
        (
            np.datetime64("2020-01-01T10:30") + np.arange(8),
            [("2020-01-01 10:30 to 2020-01-01 10:34", 5, 3), ("2020-01-01 10:35 to 2020-01-01 10:37", 3, 2)],
        ),
    ],
)
def test_columns_are_cut_as_worked_out_by_hand(column, expected):
    inside = [True, True, False, False, True, True, True, False]
    assert named(slices_of(inside, {"x": column}, asked=0.9, quantiles=2)) == expected


def test_the_rarer_levels_of_a_feature_are_one_slice_and_those_of_a_group_are_not():
    values = [f"level {i:02d}" for i in range(12) for _ in range(2 if i < 10 else 1)]
    inside = [True] * len(values)
    found = slices_of(inside, {"city": values}, asked=0.9)
    assert [part.values for part in found] == [*(f"level {i:02d}" for i in range(10)), "others"]
    assert found.slices[-1].n_rows == 2
    assert len(slices_of(inside, {}, groups={"city": values}, asked=0.9)) == 12


number = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.integers(-2, 2).map(float)
numbers = st.lists(number, min_size=1, max_size=60)


@given(values=numbers, quantiles=st.integers(2, 6), seed=st.integers(0, 99))
def test_every_row_is_in_exactly_one_part_of_each_column(values, quantiles, seed):
    inside = np.random.default_rng(seed).random(len(values)) < 0.7
    found = slices_of(inside, {"x": values, "text": [str(v) for v in values]}, asked=0.7, quantiles=quantiles)
    for column in ("x", "text"):
        parts = found.of(column)
        assert sum(part.n_rows for part in parts) == len(values)
        assert sum(part.n_inside for part in parts) == inside.sum()
        assert all(part.n_rows > 0 for part in parts)
    assert len(found.of("x")) <= quantiles + 1


@given(values=st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_rows_with_equal_numbers_are_never_apart(values):
    column = np.array(values)
    for value in set(values):  # the rows of one value inside, all others not: in exactly one part some are inside
        found = slices_of(column == value, {"x": column}, asked=0.9, quantiles=3)
        assert sum(part.n_inside > 0 for part in found) == 1


def test_parts_of_different_numbers_have_about_as_many_rows():
    found = slices_of([True] * 103, {"x": RNG.permutation(103.0 * np.arange(103))}, asked=0.9, quantiles=4)
    assert {part.n_rows for part in found} <= {25, 26, 27}


@pytest.mark.parametrize(("inside", "rows"), [(0, 5), (5, 5), (1, 1), (83, 90), (900, 1000)])
def test_the_confidence_interval_is_scipys_exact_one(inside, rows):
    twin = binomtest(inside, rows).proportion_ci(0.95, method="exact")
    part = Slice("x", "all", rows, inside)
    assert (part.low, part.high) == pytest.approx((twin.low, twin.high), abs=1e-12)


def test_the_chance_of_any_part_is_as_many_times_that_of_one_and_never_above_one():
    bad, good = Slice("x", "a", 50, 40), Slice("x", "b", 50, 50)
    slices = Slices(0.9, (bad, good, good, good))
    assert bad.chance(0.9) == pytest.approx(binomtest(40, 50, 0.9, alternative="less").pvalue)
    assert slices.chance(bad) == pytest.approx(4 * bad.chance(0.9))
    assert slices.chance(good) == 1.0


def test_honest_intervals_are_seldom_accused_and_a_part_that_is_missed_is_found():
    """Of 150 looks at 20 slices the bound of 5 % is passed in at most 7.5 on average; three standard errors on top."""
    accused, found = 0, 0
    groups = np.repeat(np.arange(20), 50)
    for _ in range(150):
        honest = RNG.random(1000) < 0.9
        accused += min(map((slices := slices_of(honest, {}, groups={"g": groups}, asked=0.9)).chance, slices)) < 0.05
        broken = honest & ~((groups == 7) & (RNG.random(1000) < 0.4))
        found += slices_of(broken, {}, groups={"g": groups}, asked=0.9).worst(1)[0].values == "7"
    assert accused < 7.5 + 3 * np.sqrt(150 * 0.05 * 0.95)
    assert found > 145


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inside": [0.9, 0.1]}, "True or False"),
        ({"inside": []}, "at least one row"),
        ({"columns": {"x": [1.0]}}, "column 'x' must have one value for each of 2 rows"),
        ({"asked": 1.0}, "strictly between 0 and 1"),
        ({"quantiles": 1}, "at least 2"),
    ],
)
def test_bad_input_is_refused(changed, message):
    given = {"inside": [True, False], "columns": {"x": [1.0, 2.0]}, "asked": 0.9, "quantiles": 4, **changed}
    inside, columns = given.pop("inside"), given.pop("columns")
    with pytest.raises(ValueError, match=message):
        slices_of(inside, columns, **given)


def test_parts_that_are_surely_short_come_before_small_ones_that_chance_explains():
    # Half of four rows says little: the rows of the second part are missed more surely.
    few, many, fine = Slice("x", "few", 4, 2), Slice("x", "many", 400, 300), Slice("x", "fine", 400, 370)
    assert Slices(0.9, (few, many, fine)).worst(2) == (many, few)
    small, large = Slice("id", "7", 4, 1), Slice("city", "Oslo", 1000, 850)
    found = Slices(0.9, (small, *[Slice("x", str(n), 10, 9) for n in range(30)], large))
    assert small.high < large.high
    assert found.worst(2) == (large, small)


@given(sizes=st.lists(counts, min_size=1, max_size=12), asked=st.sampled_from([0.5, 0.8, 0.99]))
def test_the_order_is_that_of_the_parts_one_by_one(sizes, asked):
    found = Slices(asked, tuple(Slice("city", str(place), *size) for place, size in enumerate(sizes)))
    one_by_one = sorted(found, key=lambda part: (found.chance(part) >= BY_CHANCE, part.high))
    assert list(found.worst(len(found))) == one_by_one
    assert len(found.short) == sum(found.chance(part) < BY_CHANCE for part in found)
    assert Slices(asked, ()).worst() == ()


def test_the_column_with_the_worst_part_comes_first():
    parts = Slice("area", "1 to 2", 40, 36), Slice("city", "Oslo", 40, 36), Slice("city", "Rome", 40, 10)
    found = Slices(0.9, parts)
    assert list(found.by_column) == ["city", "area"]
    assert [part.values for part in found.by_column["city"]] == ["Rome", "Oslo"]
