"""Series and covariates become values at regular steps; gaps are refused, or filled without looking ahead."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coverwell.forecasting.history import causal_fill, read_covariates, read_series

BERLIN = "Europe/Berlin"

INDEXES = {
    "hours": pd.date_range("2024-01-01", periods=12, freq="h", name="when"),
    "clocks go back": pd.date_range("2024-10-26 20:00", periods=12, freq="h", tz=BERLIN, name="when"),
    "months": pd.period_range("2024-01", periods=12, freq="M", name="month"),
    "quarters": pd.period_range("2020Q1", periods=12, freq="Q"),
}
HOURS = INDEXES["hours"]


def values_for(n: int) -> np.ndarray:
    return np.sin(np.arange(n))


def pandas_series(case: str) -> pd.Series:
    return pd.Series(values_for(12), index=INDEXES[case], name="load")


# --- Gaps ------------------------------------------------------------------------------------------------------------


@given(
    observed=st.lists(st.booleans(), min_size=5, max_size=60),
    case=st.sampled_from(["pandas", "zone", "periods", "numbers", "polars"]),
)
def test_leaving_stamps_out_is_the_same_as_nan(observed, case):
    keep = np.array([True, True, *observed, True])  # two neighbours show the step, the ends show the range
    n = len(keep)
    index = {
        "pandas": pd.date_range("2024-01-01", periods=n, freq="30min"),
        "zone": pd.date_range("2024-03-30 23:00", periods=n, freq="h", tz=BERLIN),
        "periods": pd.period_range("2024-01", periods=n, freq="M"),
        "numbers": pd.RangeIndex(7, 7 + n),
        "polars": pd.date_range("2024-01-01", periods=n, freq="h"),
    }[case]
    whole = pd.Series(np.where(keep, values_for(n), np.nan), index=index)
    if case == "polars":
        whole = pl.DataFrame({"when": index.to_numpy(), "y": whole.to_numpy()})
        sparse = whole.filter(pl.Series(keep))
    else:
        sparse = whole[keep]
    left_out, as_nan = read_series(sparse, missing="fill"), read_series(whole, missing="fill")
    np.testing.assert_array_equal(left_out.values, as_nan.values)
    assert list(left_out.clock.index(0, n)) == list(as_nan.clock.index(0, n))


@pytest.mark.parametrize("left_out", [True, False])
def test_gaps_are_refused_with_their_number_the_first_and_the_way_out(left_out):
    series = pandas_series("hours")
    series.iloc[[3, 4, 8]] = np.nan
    match = (
        r'each of its 12 steps \(every 1 hour\), but 3 are missing, the first at 2024-01-01 03:00:00.*missing="fill"'
    )
    with pytest.raises(ValueError, match=match):
        read_series(series.dropna() if left_out else series, missing="error")


def test_a_series_that_starts_with_a_gap_is_not_cut_silently():
    series = pandas_series("hours")
    series.iloc[:3] = np.nan
    with pytest.raises(ValueError, match=r"first one is at 2024-01-01 03:00:00; let the series begin there"):
        read_series(series, missing="fill")


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_a_series_without_any_observed_value_is_refused(missing):
    with pytest.raises(ValueError, match="series must have observed values, but all 4 are missing"):
        read_series(np.full(4, np.nan), missing=missing)


def test_missing_is_error_or_fill():
    with pytest.raises(ValueError, match='must be "error" or "fill", got \'drop\''):
        read_series([1.0, 2.0], missing="drop")


def test_business_days_are_days_with_gaps():
    index = pd.date_range("2024-01-01", periods=10, freq="B")
    timeline = read_series(pd.Series(values_for(10), index=index), missing="fill")
    assert np.flatnonzero(np.isnan(timeline.values)).tolist() == [5, 6]
    assert timeline.clock.kind == "pandas"
    assert timeline.clock.freq is None


@pytest.mark.parametrize(
    ("series", "error", "match"),
    [
        ([], ValueError, "at least one value, got none"),
        (pd.Series([], index=pd.DatetimeIndex([]), dtype=float), ValueError, "at least one value, got none"),
        ([1.0, np.inf, -np.inf], ValueError, "must be finite, but 2 values are not, the first at 1"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_a_series_of_no_or_infinite_values_is_refused(series, error, match, missing):
    with pytest.raises(error, match=match):
        read_series(series, missing=missing)


# --- Causal fill -----------------------------------------------------------------------------------------------------


gappy = arrays(np.float64, st.integers(1, 40), elements=st.sampled_from([np.nan, -1.0, 0.0, 2.5]))


@given(values=gappy, cut=st.integers(1, 40))
def test_a_fill_never_depends_on_later_values(values, cut):
    values = np.concatenate([[7.0], values])
    filled, flags = causal_fill(values)
    filled_early, flags_early = causal_fill(values[:cut])
    np.testing.assert_array_equal(filled[:cut], filled_early)
    np.testing.assert_array_equal(flags[:cut], flags_early)


@given(values=gappy)
def test_a_fill_keeps_what_was_observed_and_repeats_it(values):
    values = np.concatenate([[7.0], values])
    filled, flags = causal_fill(values)
    np.testing.assert_array_equal(flags, np.isnan(values))
    np.testing.assert_array_equal(filled, pd.Series(values).ffill())  # the twin


def test_a_leading_gap_cannot_be_filled_causally():
    with pytest.raises(ValueError, match="begin at step 2, the first that was observed"):
        causal_fill(np.array([np.nan, np.nan, 1.0]))
    with pytest.raises(ValueError, match="all 2 are missing"):
        causal_fill(np.array([np.nan, np.nan]))


# --- Covariates ------------------------------------------------------------------------------------------------------


def read_beside(table, series, *, missing="error", what="covariates"):
    return read_covariates(table, series, what, missing=missing)


@pytest.fixture
def hours():
    """A series of the first eight of twelve hours."""
    return read_series(pandas_series("hours").iloc[:8], missing="error")


def weather(index) -> pd.DataFrame:
    return pd.DataFrame({"heat": np.arange(12.0), 3: np.arange(12) % 2 == 0}, index=index)


def test_an_array_lies_beside_the_series_row_by_row(hours):
    values, names = read_beside(np.arange(20).reshape(10, 2), hours)
    np.testing.assert_array_equal(values, np.arange(20.0).reshape(10, 2))
    assert names == ("x0", "x1")
    values, names = read_beside(list(range(8)), hours)
    assert values.shape == (8, 1)
    assert names == ("x0",)


def test_a_table_is_aligned_by_its_stamps_and_keeps_its_names(hours):
    table = weather(HOURS.shift(-2))
    values, names = read_beside(table, hours)
    assert names == ("heat", "3")
    np.testing.assert_array_equal(values[:, 0], np.arange(2, 12))  # two rows from before the series are left out
    np.testing.assert_array_equal(values[:, 1], [1, 0] * 5)


def test_rows_from_before_the_series_do_not_fill_gaps_at_its_end(hours):
    table = weather(HOURS.shift(-2))[["heat"]].drop(HOURS[8])
    values, _ = read_beside(table, hours, missing="fill")
    np.testing.assert_array_equal(values[:, 0], [2, 3, 4, 5, 6, 7, 8, 9, 9, 11])


def test_covariates_known_ahead_go_beyond_the_end(hours):
    values, _ = read_beside(weather(HOURS), hours)
    assert len(values) == 12


def test_one_column_keeps_its_name(hours):
    _, names = read_beside(weather(HOURS)["heat"], hours)
    assert names == ("heat",)


def test_stamps_in_another_unit_zone_or_library_are_the_same_times():
    timeline = read_series(pandas_series("clocks go back"), missing="error")
    expected = np.arange(12.0)
    local = INDEXES["clocks go back"]
    table = weather(local)[["heat"]]
    as_polars = pl.DataFrame(
        {"when": pl.Series(local.tz_convert("UTC").tz_localize(None).to_numpy()).dt.replace_time_zone("UTC")}
    ).with_columns(heat=pl.Series(expected))
    for other in (table.tz_convert("UTC"), table.set_axis(local.as_unit("ns")), as_polars):
        values, names = read_beside(other, timeline)
        np.testing.assert_array_equal(values[:, 0], expected)
        assert names == ("heat",)


def test_periods_and_numbers_are_aligned_as_well():
    for index in (INDEXES["months"], pd.RangeIndex(5, 17)):
        timeline = read_series(pd.Series(values_for(8), index=index[2:10]), missing="error")
        values, _ = read_beside(weather(index)["heat"], timeline)
        np.testing.assert_array_equal(values[:, 0], np.arange(2, 12))


def test_gaps_of_covariates_are_filled_causally_or_refused(hours):
    table = weather(HOURS)[["heat"]]
    with_nan = table.mask(table["heat"].isin([3, 4, 9]))
    for gaps in (with_nan, with_nan.dropna()):
        values, _ = read_beside(gaps, hours, missing="fill")
        np.testing.assert_array_equal(values[:, 0], [0, 1, 2, 2, 2, 5, 6, 7, 8, 8, 10, 11])
        match = r"column heat of covariates .* but 3 are missing, the first at 2024-01-01 03:00:00.*missing=\"fill\""
        with pytest.raises(ValueError, match=match):
            read_beside(gaps, hours)


@given(values=arrays(np.float64, (9, 2), elements=st.sampled_from([np.nan, 1.0, 2.0])), cut=st.integers(1, 9))
def test_covariates_never_show_later_values(values, cut):
    values = np.vstack([[0.0, 0.0], values])
    all_rows, _ = read_beside(values, read_series(np.zeros(10), missing="error"), missing="fill")
    early_rows, _ = read_beside(values[:cut], read_series(np.zeros(cut), missing="error"), missing="fill")
    np.testing.assert_array_equal(all_rows[:cut], early_rows)


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        (np.zeros((7, 2)), ValueError, "covariates must have a row for each of the 8 steps of the series, got 7"),
        (np.zeros((0, 2)), ValueError, "8 steps of the series, got none"),
        (np.zeros((8, 2, 2)), ValueError, r"shape \(step,\) or \(step, column\), got the shape \(8, 2, 2\)"),
        (weather(HOURS).iloc[:6], ValueError, "got 6, the last at 2024-01-01 05:00:00, before 2024-01-01 07:00:00"),
        (weather(HOURS).iloc[2:], ValueError, "2 are missing, the first at 2024-01-01 00:00:00"),
        (weather(HOURS).drop(HOURS[4]), ValueError, "1 are missing, the first at 2024-01-01 04:00:00"),
        (weather(HOURS.shift(30, "min")), ValueError, "2024-01-01 00:30:00 lies between"),
        (weather(HOURS[[0, 0, *range(2, 12)]]), ValueError, "time stamps of covariates must differ"),
        (weather(HOURS[::-1]), ValueError, "time stamps of covariates must be in order"),
        (weather(range(12)), ValueError, "series has points in time as stamps, but covariates has RangeIndex"),
        (weather(HOURS.tz_localize("UTC")), ValueError, "the series has no time zone, but covariates"),
        (weather(HOURS.to_period()), ValueError, "points in time as stamps, but covariates has PeriodIndex"),
        (weather(HOURS).assign(sky="grey"), TypeError, "covariates must hold numbers, but column 'sky' is of"),
        (weather(HOURS).set_axis(["a", "a"], axis=1), ValueError, "must have different names, got a, a"),
        (weather(HOURS).replace(5.0, np.inf), ValueError, "column heat of covariates must be finite.*05:00:00"),
    ],
)
def test_covariates_that_do_not_fit_are_refused_with_the_reason(hours, table, error, match):
    with pytest.raises(error, match=match):
        read_beside(table, hours)


@pytest.mark.parametrize(
    ("series", "match"),
    [
        (values_for(8), "the series has no time stamps, but covariates has DatetimeIndex"),
        (pandas_series("clocks go back"), "the series has the time zone Europe/Berlin, but covariates"),
        (pandas_series("months"), "the series has periods of frequency M, but covariates has DatetimeIndex"),
    ],
)
def test_stamps_of_another_kind_than_the_series_are_refused(series, match):
    with pytest.raises(ValueError, match=match):
        read_beside(weather(HOURS), read_series(series, missing="error"))


def test_periods_of_another_frequency_than_the_series_are_refused():
    months = read_series(pandas_series("months"), missing="error")
    with pytest.raises(ValueError, match=r"periods of frequency M, but covariates has PeriodIndex of period\[Q-DEC\]"):
        read_beside(weather(INDEXES["quarters"]), months)


@pytest.mark.parametrize("table", [np.zeros(9), weather(HOURS).iloc[:9]])
def test_past_covariates_end_where_the_series_ends(hours, table):
    match = "past_covariates must end where the series ends, after 8 steps at 2024-01-01 07:00:00, but reach 9 steps"
    with pytest.raises(ValueError, match=match):
        read_beside(table, hours, what="past_covariates")
    values, _ = read_beside(table[:8], hours, what="past_covariates")
    assert len(values) == 8


def test_a_covariate_that_starts_with_a_gap_is_not_filled_from_the_future(hours):
    table = weather(HOURS)[["heat"]].mask(lambda t: t < 2)
    with pytest.raises(ValueError, match=r"column heat of covariates must start with .* is at 2024-01-01 02:00:00"):
        read_beside(table, hours, missing="fill")


def test_a_column_without_any_value_is_refused(hours):
    with pytest.raises(ValueError, match="column empty of covariates must have observed values, but all 12"):
        read_beside(weather(HOURS)[[]].assign(empty=np.nan), hours, missing="fill")
