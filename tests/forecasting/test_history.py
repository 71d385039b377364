"""Series and covariates become values at regular steps; gaps are refused, or filled without looking ahead."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from coverwell.forecasting.history import Clock, _covariates, causal_fill, read_history, read_rows
from coverwell.forecasting.windows import calendar_features, known_ahead

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
    left_out, as_nan = read_history(sparse, missing="fill"), read_history(whole, missing="fill")
    assert_array_equal(left_out.values, as_nan.values)
    assert list(left_out.clock.index(0, n)) == list(as_nan.clock.index(0, n))


@pytest.mark.parametrize("left_out", [True, False])
def test_gaps_are_refused_with_their_number_the_first_and_the_way_out(left_out):
    series = pandas_series("hours")
    series.iloc[[3, 4, 8]] = np.nan
    match = r'its 12 steps \(every 1 hour\), but 3 are missing, the first at 2024-01-01 03:00:00.*missing="fill"'
    with pytest.raises(ValueError, match=match):
        read_history(series.dropna() if left_out else series, missing="error")


def test_business_days_are_days_with_gaps():
    index = pd.date_range("2024-01-01", periods=10, freq="B")
    timeline = read_history(pd.Series(values_for(10), index=index), missing="fill")
    assert np.flatnonzero(np.isnan(timeline.values)).tolist() == [5, 6]
    assert timeline.clock.kind == "pandas"
    assert timeline.clock.freq is None


gappy = arrays(np.float64, st.integers(1, 40), elements=st.sampled_from([np.nan, -1.0, 0.0, 2.5]))


@given(values=gappy, cut=st.integers(1, 40))
def test_a_fill_never_depends_on_later_values(values, cut):
    values = np.concatenate([[7.0], values])
    assert_array_equal(causal_fill(values)[:cut], causal_fill(values[:cut]))


@given(values=gappy)
def test_a_fill_keeps_what_was_observed_and_repeats_it(values):
    values = np.concatenate([[7.0], values])
    assert_array_equal(causal_fill(values), pd.Series(values).ffill())  # the twin


def test_nothing_is_taken_from_the_future_to_fill_a_gap_at_the_beginning():
    assert_array_equal(causal_fill(np.array([np.nan, np.nan, 1.0])), [np.nan, np.nan, 1.0])


def read_beside(table, series, *, missing="error", what="covariates"):
    return _covariates(table, series.clock, len(series), what, missing)


@pytest.fixture
def hours():
    """A series of the first eight of twelve hours."""
    return read_history(pandas_series("hours").iloc[:8], missing="error")


def weather(index) -> pd.DataFrame:
    return pd.DataFrame({"heat": np.arange(12.0), 3: np.arange(12) % 2 == 0}, index=index)


def test_an_array_lies_beside_the_series_row_by_row(hours):
    values, names = read_beside(np.arange(20).reshape(10, 2), hours)
    assert_array_equal(values, np.arange(20.0).reshape(10, 2))
    assert names == ("x0", "x1")
    values, names = read_beside(list(range(8)), hours)
    assert values.shape == (8, 1)
    assert names == ("x0",)


def test_a_table_is_aligned_by_its_stamps_and_keeps_its_names(hours):
    table = weather(HOURS.shift(-2))
    values, names = read_beside(table, hours)
    assert names == ("heat", "3")
    assert_array_equal(values[:, 0], np.arange(2, 12))  # two rows from before the series are left out
    gap, _ = read_beside(table[["heat"]].drop(HOURS[8]), hours, missing="fill")
    assert_array_equal(gap[:, 0], [2, 3, 4, 5, 6, 7, 8, 9, 9, 11])  # and do not fill gaps at its end
    assert_array_equal(values[:, 1], [1, 0] * 5)
    values, names = read_beside(weather(HOURS)["heat"], hours)
    assert (values.shape, names) == ((12, 1), ("heat",))  # four rows known ahead


def test_stamps_in_another_unit_zone_or_library_are_the_same_times():
    timeline = read_history(pandas_series("clocks go back"), missing="error")
    expected = np.arange(12.0)
    local = INDEXES["clocks go back"]
    table = weather(local)[["heat"]]
    as_polars = pl.DataFrame(
        {"when": pl.Series(local.tz_convert("UTC").tz_localize(None).to_numpy()).dt.replace_time_zone("UTC")}
    ).with_columns(heat=pl.Series(expected))
    for other in (table.tz_convert("UTC"), table.set_axis(local.as_unit("ns")), as_polars):
        values, names = read_beside(other, timeline)
        assert_array_equal(values[:, 0], expected)
        assert names == ("heat",)


def test_periods_and_numbers_are_aligned_as_well():
    for index in (INDEXES["months"], pd.RangeIndex(5, 17)):
        timeline = read_history(pd.Series(values_for(8), index=index[2:10]), missing="error")
        values, _ = read_beside(weather(index)["heat"], timeline)
        assert_array_equal(values[:, 0], np.arange(2, 12))


def test_gaps_of_covariates_are_filled_causally_or_refused(hours):
    table = weather(HOURS)[["heat"]]
    with_nan = table.mask(table["heat"].isin([3, 4, 9]))
    for gaps in (with_nan, with_nan.dropna()):
        values, _ = read_beside(gaps, hours, missing="fill")
        assert_array_equal(values[:, 0], [0, 1, 2, 2, 2, 5, 6, 7, 8, 8, 10, 11])
        match = r"column heat of covariates .* but 3 are missing, the first at 2024-01-01 03:00:00.*missing=\"fill\""
        with pytest.raises(ValueError, match=match):
            read_beside(gaps, hours)


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        (
            np.zeros((7, 2)),
            ValueError,
            "covariates must have a row for each of the 8 steps up to 2024-01-01 07:00:00, got 7",
        ),
        (np.zeros((0, 2)), ValueError, "8 steps up to 2024-01-01 07:00:00, got none"),
        (np.zeros((8, 2, 2)), ValueError, r"shape \(step,\) or \(step, column\), got the shape \(8, 2, 2\)"),
        (
            weather(HOURS).iloc[:6],
            ValueError,
            "8 steps up to 2024-01-01 07:00:00, got 6, the last at 2024-01-01 05:00:00",
        ),
        (weather(HOURS).iloc[2:], ValueError, "2 are missing, the first at 2024-01-01 00:00:00"),
        (weather(HOURS).drop(HOURS[4]), ValueError, "1 are missing, the first at 2024-01-01 04:00:00"),
        (weather(HOURS.shift(30, "min")), ValueError, "2024-01-01 00:30:00 lies between"),
        (weather(HOURS[[0, 0, *range(2, 12)]]), ValueError, "time stamps of covariates must differ"),
        (weather(HOURS[::-1]), ValueError, "time stamps of covariates must be in order"),
        (weather(range(12)), ValueError, "series has points in time without a time zone, but covariates has Ran"),
        (weather(HOURS.tz_localize("UTC")), ValueError, "points in time without a time zone, but covariates"),
        (weather(HOURS.to_period()), ValueError, "without a time zone, but covariates has PeriodIndex"),
        (weather(HOURS).assign(sky="grey"), TypeError, "covariates must hold numbers, but column 'sky' is of"),
        (weather(HOURS).set_axis(["a", "a"], axis=1), ValueError, "of covariates needs its own name, got 'a' more"),
        (weather(HOURS).set_axis([1, "1"], axis=1), ValueError, "of covariates needs its own name, got '1' more"),
        (weather(HOURS).replace(5.0, np.inf), ValueError, "column heat of covariates must be finite.*05:00:00"),
    ],
)
def test_covariates_that_do_not_fit_are_refused_with_the_reason(hours, table, error, match):
    with pytest.raises(error, match=match):
        read_beside(table, hours)


@pytest.mark.parametrize(
    ("series", "index", "match"),
    [
        (values_for(8), HOURS, "the series has no time stamps, but covariates has DatetimeIndex"),
        (pandas_series("clocks go back"), HOURS, "the series has points in time in Europe/Berlin, but covariates"),
        (pandas_series("months"), HOURS, "the series has periods of frequency M, but covariates has DatetimeIndex"),
        (pandas_series("months"), INDEXES["quarters"], r"frequency M, but covariates has PeriodIndex of period\[Q-D"),
    ],
)
def test_stamps_of_another_kind_than_the_series_are_refused(series, index, match):
    with pytest.raises(ValueError, match=match):
        read_beside(weather(index), read_history(series, missing="error"))


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
    with pytest.raises(ValueError, match=r"series must start with an observed value; the first is at 2024-01-01 03:"):
        read_history(pandas_series("hours").mask(HOURS[3] > HOURS), missing="fill")
    with pytest.raises(ValueError, match="column empty of covariates must have observed values, but all 12"):
        read_beside(weather(HOURS)[[]].assign(empty=np.nan), hours, missing="fill")


LATER = HOURS[:6].to_numpy()
LOAD = pd.Series(np.arange(6.0), index=HOURS[:6], name="load")
LOAD_IN_POLARS = pl.DataFrame({"when": HOURS[:6].to_numpy(), "load": np.arange(6.0)})


def test_names_are_kept_and_the_nameless_is_y():
    for series in (LOAD, LOAD.to_frame(), LOAD_IN_POLARS, pl.Series("load", [1.0, 2.0])):
        assert read_history(series, missing="error").name == "load"
    for series in (LOAD.rename(None), [1.0, 2.0], pl.Series([1.0, 2.0])):
        assert read_history(series, missing="error").name == "y"


def test_every_number_type_becomes_float64_with_nan_for_missing():
    in_pandas = [pd.Series([1, 2, None], dtype="Int64"), pd.Series([1, 2, np.nan], dtype="float32")]
    for values in (*in_pandas, pl.Series("load", [1, 2, None]), np.array([1, 2, np.nan], dtype=np.float16)):
        read = read_history(values, missing="fill").values
        assert read.dtype == np.float64
        assert_array_equal(read, [1, 2, np.nan])


@pytest.mark.parametrize(
    ("series", "error", "match"),
    [
        ([], ValueError, "at least one value, got none"),
        (pd.Series([], index=pd.DatetimeIndex([]), dtype=float), ValueError, "at least one value, got none"),
        ([1.0, np.inf, -np.inf], ValueError, "but 2 values are not, the first at 1; replace them with NaN"),
        (np.full(4, np.nan), ValueError, "series must have observed values, but all 4 are missing"),
        (np.zeros((5, 2)), ValueError, r"series must have one dimension, got the shape \(5, 2\); take one column"),
        (np.zeros((5, 1)), ValueError, r"got the shape \(5, 1\).*\.ravel\(\)"),
        (3.0, ValueError, r"got the shape \(\)"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows differ in length"),
        (["a", "b"], TypeError, "series must hold numbers, got list of <U1"),
        (["1", "2"], TypeError, "series must hold numbers"),
        ([1.0, None], TypeError, "convert it to float, with nan for missing values"),
        ([1.0, 2j], TypeError, "must hold numbers"),
        (pd.Series([1.0, 2j]), TypeError, "must hold numbers, but column None is of complex128"),
        (pd.Series(["a", "b"]), TypeError, "must hold numbers, but column None is of"),
        (pd.DataFrame({"t": HOURS, "y": 1.0}), TypeError, r'column \'t\' is of datetime.*\.set_index\("t"\)'),
        (pd.DataFrame({"a": [1.0], "b": [2.0]}), ValueError, r"one column of numbers, got a, b; choose one"),
        (pl.DataFrame({"t": LATER, "a": 1.0, "b": 2.0}), ValueError, "got a, b"),
        (pl.DataFrame({"t": LATER}), ValueError, "must have a column of numbers, got none"),
        (pl.DataFrame({"t": LATER, "u": LATER}), ValueError, r"one time column, got 2 \(t, u\)"),
        (pl.DataFrame({"t": [None, date(2024, 1, 1)], "y": [1.0, 2.0]}), ValueError, "but 1 have none"),
        (pl.DataFrame({"t": LATER, "y": "a"}), TypeError, "column 'y' is of String"),
        (pl.DataFrame({"y": [1.0]}).lazy(), TypeError, r"got LazyFrame; use \.collect\(\)"),
        (pd.Series([1.0, 2.0], index=["mon", "tue"]), TypeError, "must be a DatetimeIndex.*pd.to_datetime"),
        (pd.Series([1.0], index=pd.MultiIndex.from_tuples([(1, 2)])), TypeError, "got MultiIndex of object"),
        (pd.Series([1.0, 2.0], index=[0.0, 0.5]), TypeError, "or whole numbers, got Index of float64"),
        (pd.Series([1.0, 2.0], index=pd.DatetimeIndex(["2024-01-01", None])), ValueError, "but 1 have none; drop them"),
    ],
)
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_what_is_no_table_of_numbers_is_refused_with_the_reason(series, error, match, missing):
    with pytest.raises(error, match=match):
        read_history(series, missing=missing)


MORNING = pd.date_range("2024-01-01 05:00", periods=6, freq="h", name="when")
VALUES = [1.0, 2.0, np.nan, 4.0, 5.0, 6.0]
NAMES = ("promo", "price")


def history_of(series=VALUES, covariates=None, past_covariates=None, *, calendar=(), missing="fill"):
    return read_history(series, covariates, past_covariates, calendar=calendar, missing=missing)


def ahead_history(n_ahead=8, index=None, missing="fill"):
    """Six steps, and two covariates known as far as `n_ahead` steps."""
    table = np.stack([np.arange(n_ahead), 10.0 * np.arange(n_ahead)], axis=1)
    series = VALUES if index is None else pd.Series(VALUES, index[:6])
    frame = pd.DataFrame(table, columns=list(NAMES), index=None if index is None else index[:n_ahead])
    return history_of(series, frame if index is not None else table, missing=missing)


def test_gaps_stay_nan_in_the_values_and_hold_the_value_before_in_the_filled_ones():
    history = history_of()
    assert_array_equal(history.values, VALUES)
    assert_array_equal(history.filled, [1, 2, 2, 4, 5, 6])
    assert known_ahead(history, np.array([[5, 6], [6, 7]])).shape == (2, 2, 0)  # beyond the series nothing is known


def test_the_calendar_goes_on_by_itself_and_comes_before_the_users_covariates():
    features = calendar_features(pd.date_range(MORNING[0], periods=9, freq="h").to_numpy(), ["hour"])
    history = history_of(pd.Series(VALUES, MORNING), calendar=("hour",))
    assert_array_equal(known_ahead(history, np.arange(2, 9)), features[2:])
    assert_array_equal(known_ahead(history, np.array([[4, 5], [5, 6]])), features[[[4, 5], [5, 6]]])
    history.check_known(1000)
    history = history_of(pd.Series(VALUES, MORNING), np.arange(8.0), calendar=("hour",))
    assert_array_equal(known_ahead(history, np.arange(8)), np.column_stack([features[:8], np.arange(8)]))


def test_a_history_grows_by_a_value_or_a_gap():
    history = history_of(past_covariates=np.arange(6.0))
    grown = history.grown(7.0, np.array([[9.0]])).grown(np.nan, np.array([[9.5]]))
    assert len(history) == 6
    assert_array_equal(grown.values[6:], [7, np.nan])
    assert_array_equal(grown.filled[6:], [7, 7])
    assert_array_equal(grown.past[6:, 0], [9, 9.5])


def test_what_must_be_known_ahead_is_named_with_the_first_step_that_is_not():
    history = ahead_history(7, pd.date_range("2024-01-01", periods=9, freq="h"))
    history.check_known(1)
    with pytest.raises(ValueError, match="for the next 3 steps, 2 rows are missing from 2024-01-01 07:00:00 on"):
        history.check_known(3)
    history_of().check_known(99)  # nothing to know


def test_rows_ahead_replace_what_was_known_and_go_on_from_there():
    history = ahead_history(7).with_ahead([[-1, -2], [-3, -4]], 6, missing="error")
    assert_array_equal(history.ahead[5:], [[5, 50], [-1, -2], [-3, -4]])
    again = history.with_ahead([[-1, -2], [-3, -4]], 6, missing="error")
    assert_array_equal(again.ahead, history.ahead)  # the same rows twice are the same rows
    revised = history.with_ahead([[7.0, 7.0]], 6, missing="error")
    assert_array_equal(revised.ahead[6:], [[7, 7], [-3, -4]])  # what is known further ahead stays


def test_rows_with_time_stamps_are_about_their_times():
    index = pd.date_range("2024-01-01", periods=12, freq="h")
    history = ahead_history(7, index)
    rows = pd.DataFrame({"promo": [1.0, 2, 3], "price": [4.0, 5, 6]}, index=index[5:8])
    known = history.with_ahead(rows, 6, missing="error")
    assert_array_equal(known.ahead[5:], [[5, 50], [2, 5], [3, 6]])  # step 5 has been seen: it stays
    with pytest.raises(ValueError, match="must be about steps from 2024-01-01 06:00:00 on, got 2 rows before it"):
        history.with_ahead(rows.set_axis(index[3:6])[:2], 6, missing="error")


def test_rows_with_whole_numbers_for_stamps_are_about_those_steps():
    plan = pd.DataFrame({"promo": np.arange(9.0)})
    history = history_of(pd.Series(VALUES), plan[:6])
    with pytest.raises(ValueError, match="1 rows are missing before 7, from 6 on"):
        history.with_ahead(plan.loc[[7]], 6, missing="error")
    assert_array_equal(history.with_ahead(plan.loc[[6, 7]], 6, missing="error").ahead[6:], [[6.0], [7.0]])


def test_rows_after_a_step_that_nobody_knows_are_refused_or_the_step_filled():
    with pytest.raises(ValueError, match="without a gap: 2 rows are missing before 8, from 6 on"):
        ahead_history(6).with_ahead([[1, 2]], 8, missing="error")
    filled = ahead_history(6).with_ahead([[1, 2]], 8, missing="fill")
    assert_array_equal(filled.ahead[5:], [[5, 50], [5, 50], [5, 50], [1, 2]])


def test_a_missing_covariate_is_refused_or_holds_the_value_before():
    rows = [[1, np.nan], [np.nan, 4]]
    with pytest.raises(ValueError, match="covariates must be finite"):
        ahead_history(6).with_ahead(rows, 6, missing="error")
    assert_array_equal(ahead_history(6).with_ahead(rows, 6, missing="fill").ahead[6:], [[1, 50], [1, 4]])
    history = history_of(past_covariates=np.arange(6.0))
    assert_array_equal(history.past_row(np.nan, 6, missing="fill"), [[5.0]])
    with pytest.raises(ValueError, match="past_covariates must be finite"):
        history.past_row([np.nan], 6, missing="error")


def test_the_past_row_is_that_of_its_step():
    history = history_of(
        pd.Series(VALUES, MORNING), past_covariates=pd.DataFrame({"wind": np.arange(6.0)}, index=MORNING)
    )
    later = pd.date_range(MORNING[-1] + MORNING.freq, periods=3, freq="h")
    assert_array_equal(history.past_row(3.0, 6, missing="fill"), [[3.0]])
    assert_array_equal(history.past_row(pd.DataFrame({"wind": [3.0]}, index=later[:1]), 6, missing="fill"), [[3.0]])
    with pytest.raises(ValueError, match=r"one row, of the step 2024-01-01 11:00:00, got 1 rows from .* 12:00:00 on"):
        history.past_row(pd.DataFrame({"wind": [3.0]}, index=later[1:2]), 6, missing="fill")
    with pytest.raises(ValueError, match="one row, of the step 2024-01-01 11:00:00, got 2 rows"):
        history.past_row([3.0, 4.0], 6, missing="fill")
    with pytest.raises(ValueError, match=r"must have a row for this step \(wind\), got none"):
        history.past_row(None, 6, missing="fill")
    assert history_of().past_row(None, 6, missing="fill").shape == (1, 0)


def test_one_row_may_be_given_as_a_line_or_a_table():
    line = pd.Series({"promo": 1.0, "price": 2.0})
    for rows in ([1.0, 2.0], (1, 2), np.array([[1.0, 2.0]]), line, line.to_frame().T, pl.DataFrame(dict(line))):
        table, steps = read_rows(rows, NAMES, "covariates", Clock())
        assert_array_equal(table, [[1.0, 2.0]])
        assert steps is None
    for numbers in (3.0, [3.0, 4.0], pd.Series([3.0, 4.0])):  # each number is a row of a single covariate
        table, _ = read_rows(numbers, ("wind",), "covariates", Clock())
        assert_array_equal(table, np.reshape(numbers, (-1, 1)))


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], ValueError, "the 2 columns promo, price, got 3"),
        ([1.0, 2.0, 3.0, 4.0], ValueError, "the 2 columns promo, price, got 4"),
        (5.0, ValueError, "covariates must have the shape"),
        (pd.DataFrame({"price": [1.0], "promo": [2.0]}), ValueError, "columns promo, price, got price, promo"),
        (pd.DataFrame({"promo": [1.0]}), ValueError, "columns promo, price, got promo"),
        ([["a", "b"]], TypeError, "covariates must hold numbers"),
        ([[np.inf, 1.0]], ValueError, "rows of 2 finite numbers"),
        (np.zeros((0, 2)), ValueError, "rows of 2 finite numbers"),
        (pd.DataFrame([[1.0, 2.0]], MORNING[:1], NAMES), ValueError, "the series has no time stamps"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, error, said):
    with pytest.raises(error, match=said):
        read_rows(rows, NAMES, "covariates", Clock())


def test_rows_that_leave_a_step_out_are_refused():
    clock = ahead_history(7, MORNING.append(MORNING[-1:] + MORNING.freq)).clock
    rows = pd.DataFrame({"promo": [1.0, 2.0], "price": [1.0, 2.0]}, index=MORNING[[0, 2]])
    with pytest.raises(ValueError, match="must have a row for every step, every 1 hour"):
        read_rows(rows, NAMES, "covariates", clock)


def test_rows_for_a_forecaster_that_has_no_covariates_are_refused():
    with pytest.raises(ValueError, match="covariates came, but the forecaster was fitted without"):
        history_of().with_ahead([[1.0]], 6, missing="fill")
    with pytest.raises(ValueError, match="past_covariates came, but the forecaster was fitted without"):
        history_of().past_row([1.0], 6, missing="fill")


def test_values_come_back_as_the_user_has_them():
    values = np.array([1.0, 2.0])
    series = Clock.of(MORNING).labelled(values, 3, "load")
    pd.testing.assert_series_equal(series, pd.Series(values, MORNING[3:5], name="load"))
    frame = Clock.of(pl.Series("when", MORNING.to_numpy())).labelled(values, 3, "load")
    assert frame.columns == ["when", "load"]
    assert frame["load"].to_list() == [1.0, 2.0]
    assert Clock().labelled(values, 6, "load") is values
