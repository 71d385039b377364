"""Each column of a data frame as an array, by hand and pandas against polars."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from coverwell import MatchedRegressor
from coverwell.inputs.frames import as_times, columns_of, is_frame, is_named, read
from coverwell.inputs.source import TableSource

NAN = float("nan")
NOON = datetime(2024, 5, 1, 12)


def read_one(frame):
    (series,) = columns_of(frame).values()
    return read(series)


def polars_column(items, dtype=None):
    return pl.DataFrame({"a": pl.Series(items, dtype=dtype)})


def pandas_column(items, dtype=None):
    return pd.DataFrame({"a": pd.Series(items, dtype=dtype)})


KINDS = {
    "numbers": {
        "whole numbers": polars_column([2, None, 3]),
        "decimals": polars_column([Decimal("2"), None, Decimal("3")], pl.Decimal(10, 2)),
        "NaN and missing": polars_column([2.0, NAN, 3.0]),
        "durations": polars_column([timedelta(seconds=2), None, timedelta(seconds=3)]),
        "pandas floats": pandas_column([2, NAN, 3], "float32"),
        "pandas nullable": pandas_column([2, None, 3], "Int64"),
        "pandas nullable floats": pandas_column([2, None, 3], "Float64"),
        "pandas objects": pandas_column([2, None, 3.0], object),
        "pandas decimals": pandas_column([Decimal("2"), None, Decimal("3")], object),
        "pandas durations": pandas_column(pd.to_timedelta([2, None, 3], unit="s")),
        "pandas sparse": pandas_column(pd.arrays.SparseArray([2.0, NAN, 3.0])),
    },
    "booleans": {
        "polars": polars_column([True, None, False]),
        "pandas objects": pandas_column([True, None, False], object),
        "pandas nullable": pandas_column([True, None, False], "boolean"),
    },
    "text": {
        "polars": polars_column(["1", None, "2"]),
        "polars categories": polars_column(["1", None, "2"], pl.Categorical),
        "polars enumeration": polars_column(["1", None, "2"], pl.Enum(["2", "1"])),
        "pandas": pandas_column(["1", None, "2"]),
        "pandas objects": pandas_column(["1", None, 2], object),
        "pandas categories": pandas_column(["1", None, "2"], "category"),
        "pandas categories of numbers": pandas_column(pd.Categorical([1, None, 2])),
    },
}
PRESENT = {"numbers": [2.0, 3.0], "booleans": [1.0, 0.0], "text": ["1", "2"]}


@pytest.mark.parametrize(
    ("kind", "frame"),
    [pytest.param(kind, frame, id=f"{kind}, {name}") for kind in KINDS for name, frame in KINDS[kind].items()],
)
def test_every_kind_of_column_is_read_with_its_gaps(kind, frame):
    values = read_one(frame)
    assert values.kind == kind
    assert not values.plain
    assert_array_equal(values.missing, [False, True, False])
    assert values.present.tolist() == PRESENT[kind]
    assert values.array.dtype == (object if kind == "text" else np.float64)


TIMES = {
    "polars dates": (polars_column([date(2024, 5, 1), None]), None, "2024-05-01T00:00"),
    "polars times": (polars_column([NOON, None]), None, "2024-05-01T12:00"),
    "polars zone": (polars_column([NOON, None], pl.Datetime("us", "Asia/Tokyo")), "Asia/Tokyo", "2024-05-01T21:00"),
    "pandas times": (pandas_column([NOON, None]), None, "2024-05-01T12:00"),
    "pandas zone": (
        pandas_column(pd.to_datetime([NOON, None]).tz_localize("Asia/Tokyo")),
        "Asia/Tokyo",
        "2024-05-01T12:00",
    ),
    "pandas dates": (pandas_column([date(2024, 5, 1), None], object), None, "2024-05-01T00:00"),
    "objects with an offset": (pandas_column([NOON.replace(tzinfo=UTC), None], object), "UTC", "2024-05-01T12:00"),
    "text of a day": (polars_column(["2024-05-01", None]), None, "2024-05-01"),
    "text of a minute": (polars_column(["2024-05-01 12:30", None]), None, "2024-05-01T12:30"),
    "text of a moment": (polars_column(["2024-05-01T12:30:15.25", None]), None, "2024-05-01T12:30:15.25"),
    "text in UTC": (polars_column(["2024-05-01T12:30:00Z", None]), "UTC", "2024-05-01T12:30"),
    "text with an offset": (polars_column(["2024-05-01T12:30+02:00", None]), "UTC", "2024-05-01T10:30"),
}


@pytest.mark.parametrize(("frame", "zone", "shown"), TIMES.values(), ids=TIMES)
def test_times_are_what_the_local_clock_shows(frame, zone, shown):
    values = as_times(read_one(frame))
    assert (values.kind, values.zone) == ("times", zone)
    assert_array_equal(values.present, np.array([shown], dtype="datetime64[us]"))
    assert_array_equal(values.missing, [False, True])


@pytest.mark.parametrize(
    "items",
    [
        ["2024-05-01", "soon"],
        ["01.05.2024"],
        ["2024-02-30"],  # no such day
        ["2024"],
        ["now"],
        ["2024-05-01T12:30", "2024-05-01T12:30Z"],  # with and without a zone
        [20240501],
    ],
)
def test_other_text_and_numbers_are_no_times(items):
    assert as_times(read_one(polars_column(items))) is None


@pytest.mark.parametrize(
    "frame",
    [
        polars_column([None, None]),
        polars_column([NAN, None]),
        polars_column([None, None], pl.String),
        pandas_column([None, None], object),
        pandas_column([NAN, NAN]),
        pandas_column([None, None], "datetime64[ns]"),
    ],
)
def test_a_column_without_a_value_has_no_kind(frame):
    values = read_one(frame)
    assert values.kind is None
    assert values.missing.all()
    assert len(values.array) == 2


@pytest.mark.parametrize(
    ("frame", "error", "said"),
    [
        (polars_column([[1], [2]]), TypeError, "column 'a' must hold numbers, booleans, text or times, got List.*"),
        (polars_column([time(1), time(2)]), TypeError, "'a' must hold .* got Time; convert it, or leave it out"),
        (pandas_column([[1], [2]]), TypeError, "'a' must hold .* got objects of the type list; convert it"),
        (pandas_column([1j, 2j]), TypeError, "'a' must hold .* got complex128"),
        (pandas_column(pd.period_range("2024", periods=2, freq="Y")), TypeError, "'a' must hold .* got period"),
        (
            pandas_column([NOON, NOON.replace(tzinfo=UTC)], object),
            ValueError,
            "times of column 'a' must all have a time zone or all have none; convert them",
        ),
    ],
)
def test_what_is_no_kind_of_column_is_refused(frame, error, said):
    with pytest.raises(error, match=said):
        read_one(frame)


@pytest.mark.parametrize("other", [np.zeros((2, 2)), [[1, 2]], None, "a", pl.Series([1]), pd.Series([1])])
def test_other_things_are_no_frames(other):
    assert not is_frame(other)
    assert not is_named(other)
    with pytest.raises(TypeError, match=r"must be a data frame of pandas or polars, .* got"):
        columns_of(other)


def test_a_lazy_frame_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"got LazyFrame; use \.collect"):
        is_frame(polars_column([1]).lazy())


def test_names_of_pandas_columns_become_text_but_only_texts_are_names():
    assert list(columns_of(pd.DataFrame({0: [1], "b": [2]}))) == ["0", "b"]
    assert not is_named(pd.DataFrame({0: [1], "b": [2]}))
    assert not is_named(pd.DataFrame({("a", "b"): [1]}))
    assert all(is_named(library.DataFrame({"a": [1], "b": ["u"]})) for library in (pd, pl))


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_a_name_that_is_there_twice_is_refused(names):
    frame = pd.DataFrame([[1.0, 2.0]])
    frame.columns = names
    with pytest.raises(ValueError, match=f"each column of a table needs its own name, got '{names[1]}' more than once"):
        columns_of(frame)


@pytest.mark.parametrize("column", [pandas_column, polars_column])
def test_plain_are_numbers_and_booleans_without_gaps(column):
    assert all(read_one(column(items)).plain for items in ([1, 2], [0.5, 1.5], [True, False]))
    for odd in (["x", "y"], [1.0, NAN], [1.0, None], [NOON, NOON], [True, None], [timedelta(1), timedelta(2)]):
        assert not read_one(column(odd)).plain
    assert not read_one(pandas_column([1.5, 2.5], object)).plain
    assert read_one(pandas_column(pd.arrays.SparseArray([0, 0, 1]))).plain


MAY_NOT_PASS = {
    "text": (polars_column([None, "u"]), r"'a' holds String, such as 'u' in row 1 \(counted from 0\); convert it"),
    "dates": (polars_column([date(2024, 5, 1)]), "'a' holds Date, such as 2024-05-01T00:00:00.* in row 0"),
    "pandas times": (pandas_column([None, NOON]), r"'a' holds datetime64\[.s\], such as 2024-05-01T12.* in row 1"),
    "durations": (polars_column([timedelta(seconds=2)]), "'a' holds Duration.*, such as 2 in row 0"),
}


@pytest.mark.parametrize(("frame", "said"), MAY_NOT_PASS.values(), ids=MAY_NOT_PASS)
def test_other_columns_are_refused_by_name_and_row(frame, said):
    with pytest.raises(ValueError, match=said):
        TableSource(row_shape=(1,)).rows(frame, MatchedRegressor())
