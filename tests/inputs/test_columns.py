"""From the columns of a data frame to numbers: by hand, pandas against polars, and what holds for all frames."""

import warnings
from dataclasses import replace
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.errors import ColumnWarning, ConstantDataWarning
from coverwell.inputs.columns import WEEKDAYS, Columns, columns_for

NAN = float("nan")
HOUSES = {
    "area": [50.0, None, 80.0, 65.0],
    "heating": ["gas", "oil", "gas", "oil"],
    "garden": [True, False, None, False],
    "sold": [datetime(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 2), None],
}
NAMES = (
    *("area", "area (missing)"),
    *("heating=gas", "heating=oil"),
    *("garden", "garden (missing)"),
    *("sold", "sold (month sin)", "sold (month cos)", "sold (monday)", "sold (tuesday)", "sold (missing)"),
)
both = pytest.mark.parametrize("library", [pd, pl])
any_warning = pytest.mark.filterwarnings("ignore::coverwell.errors.ColumnWarning")


def two_of(**columns):
    """Columns beside one that tells rows apart, each value twice."""
    return {"x": [1.0, 2.0, 3.0, 4.0, 4.0, 5.0], **columns}


def learned_from(items):
    """The features by name that a column with these training values has for them, and the column."""
    frame = pl.DataFrame({"a": items}, strict=False)
    columns = columns_for(frame)[0]
    names = [name.removeprefix("a") for name in columns.feature_names]
    return dict(zip(names, columns.transform(frame).T, strict=True)), columns.columns[0]


@pytest.mark.parametrize(
    ("items", "kind", "median"),
    [
        ([1.0, None, 3.0, 9.0], "numbers", 3.0),
        ([4, 2, None, 8, 6], "numbers", 4.0),  # the lower of two
        ([1e308, 1.7e308, None], "numbers", 1e308),
        ([True, True, False, None], "booleans", 1.0),
        ([True, False, False, None], "booleans", 0.0),
        ([True, False, None], "booleans", 0.0),
    ],
)
def test_a_missing_number_is_the_median_and_a_missing_boolean_the_more_frequent(items, kind, median):
    features, column = learned_from(items)
    assert (column.kind, column.median) == (kind, median)
    assert_array_equal(features[""], [median if item is None else item for item in items])
    assert_array_equal(features[" (missing)"], [item is None for item in items])


def test_levels_are_known_if_they_occur_twice_the_most_frequent_first():
    features, column = learned_from(["b", "a", "b", None, "c", "a", "b"])
    assert (column.kind, column.levels) == ("text", ("b", "a"))
    assert_array_equal(features["=b"], [1, 0, 1, 0, 0, 0, 1])
    assert_array_equal(features["=a"], [0, 1, 0, 0, 0, 1, 0])
    assert_array_equal(features[" (other)"], [0, 0, 0, 0, 1, 0, 0])
    assert_array_equal(features[" (missing)"], [0, 0, 0, 1, 0, 0, 0])


def test_at_most_twenty_levels_are_known_and_equals_go_by_name():
    names = [f"{number:02}" for number in range(30)]
    assert learned_from([*names, *names, "29"])[1].levels == ("29", *names[:19])
    assert learned_from(["a", None])[1].levels == ("a",)


def test_every_row_of_categories_has_exactly_one_code():
    features, _ = learned_from([*["b", "a", " (missing)"] * 2, None, "c", "missing"])
    assert_array_equal(np.sum(list(features.values()), axis=0), np.ones(9))


def test_a_time_is_days_a_year_and_positions_in_year_day_and_week():
    features, column = learned_from(["2024-01-01T06:00", "2025-07-02T12:00", None])  # a Monday; a Wednesday, mid-2025
    assert (column.kind, column.zone) == ("times", None)
    turn = 2 * np.pi * 0.25 / 366
    by_hand = {
        "": [19723.25, 20271.5, 19723.25],
        " (year)": [2024, 2025, 2024],
        " (month sin)": [np.sin(turn), 0, np.sin(turn)],
        " (month cos)": [np.cos(turn), -1, np.cos(turn)],
        " (hour sin)": [1, 0, 1],
        " (hour cos)": [0, -1, 0],
        " (monday)": [1, 0, 1],
        " (wednesday)": [0, 1, 0],
        " (missing)": [0, 0, 1],
    }
    assert features.keys() == by_hand.keys()
    for name, expected in by_hand.items():
        assert_allclose(features[name], expected, atol=1e-12)


def test_the_days_of_a_week_have_one_feature_each():
    features, _ = learned_from([f"1969-12-{day}" for day in range(22, 29)])  # before 1970, from a Monday on
    assert_array_equal([features[f" ({day})"] for day in WEEKDAYS], np.eye(7))


@both
def test_a_table_of_all_kinds_becomes_the_numbers_worked_out_by_hand(library):
    frame = library.DataFrame(HOUSES)
    columns = columns_for(frame)[0]
    assert columns.feature_names == NAMES
    turn = 2 * np.pi / 366
    sin, cos = np.sin(turn).round(12), np.cos(turn).round(12)
    assert_array_equal(
        columns.transform(frame),
        [
            [50, 0, 1, 0, 1, 0, 19723, 0, 1, 1, 0, 0],
            [65, 1, 0, 1, 0, 0, 19723, 0, 1, 1, 0, 0],
            [80, 0, 1, 0, 0, 1, 19724, sin, cos, 0, 1, 0],
            [65, 0, 0, 1, 0, 0, 19723, 0, 1, 1, 0, 1],
        ],
    )


@both
def test_the_report_says_how_each_column_is_read(library):
    columns = columns_for(library.DataFrame(HOUSES))[0]
    assert columns.kinds == {"area": "numbers", "heating": "text", "garden": "booleans", "sold": "times"}
    assert columns.report() == (
        "area: numbers; 1 of 4 missing, read as the median 65",
        "heating: categories ('gas', 'oil')",
        "garden: booleans; 1 of 4 missing, read as the more frequent false",
        "sold: dates and times; 1 of 4 missing, read as the median 2024-01-01T00:00:00.000000",
    )


def test_one_value_beside_missing_ones_leaves_the_flag():
    columns = columns_for(pl.DataFrame(two_of(a=[7.0, None, 7.0, 7.0, None, 7.0])))[0]
    assert columns.feature_names == ("x", "a (missing)")


LEFT_OUT = {
    "red": (["red"] * 6, ConstantDataWarning, "one value only"),
    "3": ([3] * 6, ConstantDataWarning, "one value only"),
    "true": ([True] * 6, ConstantDataWarning, "one value only"),
    "a day": ([datetime(2024, 1, 1)] * 6, ConstantDataWarning, "one value only"),
    "nothing": ([None] * 6, ColumnWarning, "no value in any row"),
    "NaN": ([NAN] * 6, ColumnWarning, "no value in any row"),
    "names": ([f"customer {i}" for i in range(6)], ColumnWarning, "text that differs in nearly every row"),
}


@both
@pytest.mark.parametrize(("column", "category", "reason"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_column_that_tells_nothing_is_left_out_with_a_warning(library, column, category, reason):
    with pytest.warns(category, match=rf"left out of X: 'a' \({reason}\)"):
        columns, _ = columns_for(library.DataFrame({"x": ["u", "v", "u"] * 2, "a": column}))
    assert columns.dropped == (("a", reason),)
    assert columns.feature_names == ("x=u", "x=v")
    assert columns.report()[-1] == f"a: left out, {reason}"
    assert_array_equal(columns.transform(library.DataFrame({"x": ["v"]})), [[0.0, 1.0]])  # it need not be there later


@both
@pytest.mark.parametrize("numbers", [list(range(100, 140)), [100 + i * 7 % 40 for i in range(40)]])
@pytest.mark.parametrize("other", [["gas", "oil"] * 20, [float(i % 7) for i in range(40)]], ids=["text", "numbers"])
def test_a_running_number_in_any_order_is_used_with_a_warning(library, other, numbers):
    frame = library.DataFrame({"id": numbers, "other": other})
    with pytest.warns(ColumnWarning, match="'id' numbers the rows, as an identifier does; it is used as numbers"):
        columns, _ = columns_for(frame)
    assert columns.feature_names[0] == "id"
    assert columns.report()[0] == "id: numbers; looks like an identifier"


@pytest.mark.parametrize(
    "numbers",
    [np.arange(40.0), np.arange(40) // 2, np.arange(40) * 7919 % 1009, np.arange(19)],
    ids=["not whole", "each twice", "far apart and out of order", "few"],
)
def test_other_numbers_do_not_look_like_an_identifier(numbers):
    assert not columns_for(pl.DataFrame({"a": numbers}))[0].columns[0].like_identifier


@both
def test_an_unseen_level_has_zeros_for_all_known_ones_and_a_warning(library):
    columns = columns_for(library.DataFrame({"a": ["u", "v", "u", "v"]}))[0]
    new = library.DataFrame({"a": ["v", "z", "u", "y"]})
    said = r"'a' has levels that were never seen in training in 2 of 4 rows \('y', 'z'\); read as no known level"
    with pytest.warns(ColumnWarning, match=said):
        table = columns.transform(new)
    assert_array_equal(table, [[0, 1], [0, 0], [1, 0], [0, 0]])


@both
def test_an_unseen_level_is_read_as_the_rare_ones_were(library):
    columns = columns_for(library.DataFrame({"a": ["u", "v", "u", "w"]}))[0]
    assert columns.feature_names == ("a=u", "a (other)")
    assert columns.report() == ("a: categories ('u'); rarer and unseen levels as one",)
    assert_array_equal(columns.transform(library.DataFrame({"a": ["u", "w", "never"]})), [[1, 0], [0, 1], [0, 1]])


@both
@pytest.mark.parametrize(
    ("training", "new", "filled"),
    [
        ([1.0, 2.0, 5.0, 9.0], [9.0, None], [[9.0], [2.0]]),
        ([True, True, True, False], [False, None], [[0.0], [1.0]]),
        (["u", "v", "u", "v"], ["v", None], [[0, 1], [0, 0]]),
    ],
)
def test_a_value_that_is_missing_for_the_first_time_is_filled_with_a_warning(library, training, new, filled):
    columns = columns_for(library.DataFrame({"a": training}))[0]
    with pytest.warns(ColumnWarning, match="'a' is missing in 1 of 2 rows, never in training; read as "):
        assert_array_equal(columns.transform(library.DataFrame({"a": new})), filled)


@both
def test_all_missing_columns_are_named(library):
    columns = columns_for(library.DataFrame(HOUSES))[0]
    with pytest.raises(ValueError, match="but 'area', 'sold' are missing, got 'heating', 'garden'; add or rename"):
        columns.transform(library.DataFrame({name: HOUSES[name] for name in ("heating", "garden")}))
    with pytest.raises(ValueError, match="but 'area' is missing"):
        columns.transform(library.DataFrame({name: HOUSES[name] for name in ("heating", "garden", "sold")}))


@both
def test_all_columns_of_another_kind_are_named(library):
    columns = columns_for(library.DataFrame(HOUSES))[0]
    odd = {"area": ["big"], "heating": [1], "garden": [0.5], "sold": ["yesterday"]}
    said = (
        "'area' must hold numbers, got text such as 'big' in row 0 .*; 'heating' must hold text, got numbers such as 1 "
        "in row 0 .*; 'garden' must hold booleans, got numbers such as 0.5 in row 0 .*; 'sold' must hold times without "
        "a time zone, got text such as 'yesterday' in row 0 .*; convert them"
    )
    with pytest.raises(ValueError, match=said):
        columns.transform(library.DataFrame(odd))


@both
@pytest.mark.parametrize(
    ("column", "items", "bad", "wanted"),
    [
        ("sold", ["2024-01-01", None, "2024-01-02", "31.01.2024", "soon"], "'31.01.2024'", "times without a time zone"),
        ("sold", ["2024-01-01", "x", None, "2024-02-30", None], "'x'", "times without a time zone"),
        ("area", ["1.5", None, "2", "big", "3"], "'big'", "numbers"),
        ("garden", ["true", "False", None, "perhaps", "true"], "'perhaps'", "booleans"),
        ("garden", [0, 1, None, 2, 3], "2", "booleans"),
    ],
)
def test_the_first_bad_value_of_a_column_is_shown_with_its_row(library, column, items, bad, wanted):
    new = library.DataFrame({**{name: [None] * 5 for name in HOUSES}, "heating": ["gas"] * 5, column: items})
    kind = "numbers" if column == "garden" and bad == "2" else "text"
    row = 1 if bad == "'x'" else 3
    said = rf"'{column}' must hold {wanted}, got {kind} such as {bad} in row {row} \(counted from 0\); convert"
    with pytest.raises(ValueError, match=said):
        columns_for(library.DataFrame(HOUSES))[0].transform(new)


def test_numbers_beside_text_in_one_pandas_column_do_not_hide_the_text():
    frame = pd.DataFrame({"a": [1.0, 2.0, None]})
    with pytest.raises(ValueError, match="'a' must hold numbers, got text such as 'big' in row 1"):
        columns_for(frame)[0].transform(pd.DataFrame({"a": pd.Series([1.5, "big", 2.5], dtype=object)}))


def test_another_time_zone_is_another_kind():
    times = pl.DataFrame({"a": [datetime(2024, 5, day) for day in (1, 1, 2, 9)]})
    in_tokyo = times.with_columns(pl.col("a").dt.replace_time_zone("Asia/Tokyo"))
    with pytest.raises(ValueError, match="without a time zone, got times in the time zone Asia/Tokyo such as 2024"):
        columns_for(times)[0].transform(in_tokyo)
    with pytest.raises(ValueError, match="in the time zone Asia/Tokyo, got times without a time zone"):
        columns_for(in_tokyo)[0].transform(times)


@both
@pytest.mark.parametrize(
    ("training", "same"),
    [([True, False, None], [1, 0, None]), ([datetime(2024, 5, 1), datetime(2024, 5, 9)], ["2024-05-01", "2024-05-09"])],
)
def test_zero_and_one_may_stand_for_booleans_and_text_for_times(library, training, same):
    training, same = library.DataFrame({"a": training}), library.DataFrame({"a": same})
    columns = columns_for(training)[0]
    assert_array_equal(columns.transform(same), columns.transform(training))


@both
@pytest.mark.parametrize("infinity", [float("inf"), -float("inf")])
def test_infinity_is_refused_in_training_and_later(library, infinity):
    said = r"column 'x' must hold finite numbers, got infinity in row {} \(counted from 0\); leave those rows out"
    for second in (None, 2.0):
        with pytest.raises(ValueError, match=said.format(2)):
            columns_for(library.DataFrame({"x": [1.0, second, infinity]}))
    columns = columns_for(library.DataFrame({"x": [1.0, None, 2.0]}))[0]
    with pytest.raises(ValueError, match=said.format(0)):
        columns.transform(library.DataFrame({"x": [infinity]}))


@both
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "must have rows and columns, got 0 rows and 0 columns"),
        ({"a": []}, "must have rows and columns, got 0 rows and 1 columns"),
        ({"a": ["u", "u"]}, "no column tells rows apart .'a': one value only.; give columns of numbers, categories"),
        ({"a": ["u", "v"], "b": [None, None]}, "no column tells rows apart .'a': text that differs .*; 'b': no value"),
    ],
)
def test_a_table_that_tells_nothing_is_refused(library, content, said):
    with pytest.raises(ValueError, match=said):
        columns_for(library.DataFrame(content))[0]


@both
def test_numbers_alone_stay_as_they_are(library):
    content = {"x": [3, 1, 2], "same": [7.0, 7.0, 7.0], "flag": [True, False, True]}
    columns, rows = columns_for(library.DataFrame(content))
    assert columns.plain
    assert columns.feature_names == tuple(content)
    assert columns.report() == ("x: numbers", "same: numbers", "flag: booleans")
    for table in (rows, columns.transform(library.DataFrame(content))):
        assert_array_equal(table, [[3, 7, 1], [1, 7, 0], [2, 7, 1]])
    with pytest.warns(ColumnWarning, match="'x' is missing in 1 of 2 rows, .* median 2; 'flag' is missing in 2 of 2"):
        table = columns.transform(library.DataFrame({"x": [5, None], "same": [7.0, 7.0], "flag": [None, None]}))
    assert_array_equal(table, [[5, 7, 1], [2, 7, 1]])


AREA, HEATING, GARDEN, SOLD = learned = columns_for(pl.DataFrame(HOUSES))[0].columns
SPOILT = {
    "no columns": lambda: Columns(()),
    "a column twice": lambda: Columns((AREA, AREA)),
    "a column used and left out": lambda: Columns((AREA,), (("area", "one value only"),)),
    "an unknown reason": lambda: Columns((AREA,), (("b", "bad luck"),)),
    "numbers alone, with flags": lambda: Columns(learned, plain=True),
    "a feature that is none": lambda: changed(HEATING, kept=("=gas", "=wood")),
    "an endless median": lambda: changed(AREA, median=float("inf")),
    "a median that is no number": lambda: changed(AREA, median=NAN),
    "a median that is text": lambda: changed(GARDEN, median="65"),
    "an unknown kind": lambda: changed(AREA, kind="colour"),
}


def changed(column, **changes):
    return Columns((replace(column, **changes),))


@pytest.mark.parametrize("make", SPOILT.values(), ids=SPOILT)
def test_what_was_never_learned_is_refused(make):
    with pytest.raises((ValueError, TypeError, LookupError)):
        make()


KINDS_OF_COLUMNS = [
    st.floats(allow_nan=True, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.sampled_from(["", "u", "v", "w", "nan", "None", " (missing)", "é"]),
    st.datetimes(),
]


@st.composite
def frames(draw):
    """Training and new rows of the same kinds, as lists."""
    kinds = draw(st.lists(st.sampled_from(KINDS_OF_COLUMNS), min_size=1, max_size=4))
    n_training, n_new = draw(st.integers(2, 12)), draw(st.integers(1, 4))

    def rows(kind, n):
        return st.lists(st.none() | kind, min_size=n, max_size=n)

    training = {f"c{i}": draw(rows(kind, n_training)) for i, kind in enumerate(kinds)}
    new = {name: draw(rows(kind, n_new)) for name, kind in zip(training, kinds, strict=True)}
    days = {"x": [date(2024, 1, 1 + i % 2) for i in range(n_training)]}
    return {**days, **training}, {"x": days["x"][:1] * n_new, **new}


def learn(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        warnings.simplefilter("ignore", ConstantDataWarning)
        return columns_for(rows)[0]


@any_warning
@given(frames())
def test_features_are_finite_and_always_as_many(rows):
    training, new = (pl.DataFrame(part) for part in rows)
    columns = learn(training)
    for part in (training, new):
        table = columns.transform(part)
        assert table.shape == (len(part), len(columns.feature_names))
        assert np.isfinite(table).all()


TYPES = ("float64", "float32", "int64", "int8", "uint32", "bool")


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4), st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_frame_of_numbers_alone_is_the_array_that_it_is(types, n_rows, random):
    content = {
        f"c{i}": np.array([random.randrange(100) / 4 for _ in range(n_rows)]).astype(t) for i, t in enumerate(types)
    }
    frame = pd.DataFrame(content)
    for columns, rows in (columns_for(frame), columns_for(pl.DataFrame(content))):
        assert_array_equal(rows, frame.to_numpy(dtype=np.float64))
        assert_array_equal(columns.transform(frame), frame.to_numpy(dtype=np.float64))


@settings(max_examples=50)
@given(frames())
def test_every_feature_varies_in_training_and_no_training_row_brings_a_warning(rows):
    training = pl.DataFrame(rows[0])
    table = learn(training).transform(training)  # a warning is an error in this test run
    assert (table != table[0]).any(axis=0).all()


@any_warning
@settings(max_examples=50)
@given(frames())
def test_pandas_and_polars_are_twins(rows):
    (training, new), (training_p, new_p) = ([library.DataFrame(part) for part in rows] for library in (pl, pd))
    columns, columns_p = learn(training), learn(training_p)
    # pandas turns whole numbers with gaps into others, which never look like a running number.
    assert [c.kept for c in columns.columns] == [c.kept for c in columns_p.columns]
    assert columns.dropped == columns_p.dropped
    assert_array_equal(columns.transform(new), columns_p.transform(new_p))


@any_warning
@settings(max_examples=30)
@given(frames(), st.randoms())
def test_the_order_of_columns_does_not_matter(rows, random):
    training, new = (pl.DataFrame(part) for part in rows)
    columns = learn(training)
    names = new.columns
    random.shuffle(names)
    assert_array_equal(columns.transform(new.select(names)), columns.transform(new))


@pytest.mark.parametrize(
    ("values", "meant"),
    [(["6,8", "-7,25", "6,8"], "decimal comma"), (["20/03/2025", "1/4/2025", "20/03/2025"], "2025-03-20")],
)
def test_text_that_was_meant_as_numbers_or_dates_is_told(values, meant):
    with pytest.warns(ColumnWarning, match=f"'fees' is read as text, but looks like .*{meant}"):
        columns_for(pd.DataFrame({"fees": values * 4, "area": np.arange(12.0)}))[0]


def test_text_that_only_in_part_looks_like_numbers_is_text():
    columns_for(pd.DataFrame({"code": ["6,8", "A,1", "7,2"] * 4}))[0]
