"""The six series are what their sources say they are, on complete grids, with the gaps that the sources have."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reproduction.data.series import SERIES, Series, load_series
from reproduction.data.store import CATALOGUE, ChecksumError

ABOUT = CATALOGUE["series"]
NOWHERE = "http://127.0.0.1:9/series.csv"  # the discard port: nobody answers
HOUR = np.timedelta64(3600, "s")

# steps, missing targets, first and last stamp, seconds from one to the next
GRIDS = {
    "nsw2013": (17520, 0, "2013-01-01T00:30", "2014-01-01T00:00", 1800),
    "bike sharing": (17544, 165, "2011-01-01T00:00", "2012-12-31T23:00", 3600),
    "tas2016": (17568, 0, "2016-01-01T00:30", "2017-01-01T00:00", 1800),
    "traffic": (14772, 0, "2005-06-07T07:00", "2005-07-28T13:55", 300),
    "beijing pm2.5": (43824, 2067, "2010-01-01T00:00", "2014-12-31T23:00", 3600),
    "air quality": (9357, 1683, "2004-03-10T18:00", "2005-04-04T14:00", 3600),
}
# smallest, largest and mean target, then half a unit of the last digit that the sources print
TARGETS = {
    "nsw2013": (5113, 13788, 7982, 0.5),
    "bike sharing": (1, 977, 189.5, 0.05),
    "tas2016": (518.3, 1539.8, 1065, 0.5),
    "traffic": (7.22e8, 8.82e9, 3.81e9, 5e6),
    "beijing pm2.5": (0, 994, 98.6, 0.05),
    "air quality": (0.1, 11.9, 2.15, 0.005),
}


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder and a cache without files, and no proxy on the way to an address that is dead."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path


def original(folder: Path, name: str) -> bytes:
    """The uncompressed content of a series' file, read without our store."""
    plain = folder / "forecasting" / ABOUT[name]["file"]
    return plain.read_bytes() if plain.is_file() else gzip.decompress(Path(f"{plain}.gz").read_bytes())


def load_made_up(name: str, content: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Series:
    """The series read from content of our own in place of the public file."""
    (folder / "made_up.csv").write_bytes(content.encode("ascii"))
    sha256 = hashlib.sha256(content.encode("ascii")).hexdigest()
    file = {"file": "made_up.csv", "sha256": sha256, "address": NOWHERE}
    monkeypatch.setitem(ABOUT, name, {**ABOUT[name], **file})
    return load_series(name)


def series_of(y: list[float]) -> Series:
    """An hourly series with its own positions as covariate."""
    n = len(y)
    return Series(
        name="made up",
        time=np.datetime64("2020-01-01T00:00:00", "s") + np.arange(n) * HOUR,
        y=np.array(y, dtype=np.float64),
        past_covariates=np.arange(n, dtype=np.float64)[:, None],
        past_covariate_names=("position",),
        target_name="load",
        unit="kW",
        source="nobody",
        notes="Made up.",
    )


def persistence_rmse(y: NDArray[np.float64], start: int) -> float:
    return float(np.sqrt(np.mean((y[start:] - y[start - 1 : -1]) ** 2)))


def persistence_rmse_where_measured(y: NDArray[np.float64]) -> float:
    """The last measured value as the forecast, over the last 70 % of the steps, scored where there is a target."""
    start = int(0.3 * y.size)
    carried = pd.Series(y).ffill().to_numpy()
    return float(np.sqrt(np.nanmean((y[start:] - carried[start - 1 : -1]) ** 2)))


# The six public series


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"one of nsw2013, bike sharing, .*, air quality; got 'nsw2012'"):
        load_series("nsw2012")


@pytest.mark.parametrize("name", SERIES)
def test_the_file_has_the_published_checksum(shared_data: Path, name: str) -> None:
    assert hashlib.sha256(original(shared_data, name)).hexdigest() == ABOUT[name]["sha256"]


@pytest.mark.parametrize("name", SERIES)
def test_the_grid_is_regular_and_as_published(data_folder: Path, name: str) -> None:
    series = load_series(name)
    n_steps, n_missing, first, last, seconds = GRIDS[name]
    assert series.time.dtype == "datetime64[s]"
    assert series.time.shape == series.y.shape == (n_steps,)
    assert series.time[0] == np.datetime64(first)
    assert series.time[-1] == np.datetime64(last)
    assert series.step == np.timedelta64(seconds, "s")
    assert (np.diff(series.time) == series.step).all()
    assert np.isnan(series.y).sum() == n_missing


@pytest.mark.parametrize("name", SERIES)
def test_the_target_is_as_published(data_folder: Path, name: str) -> None:
    y = load_series(name).y
    *published, tolerance = TARGETS[name]
    assert [np.nanmin(y), np.nanmax(y), np.nanmean(y)] == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize("name", SERIES)
def test_a_series_describes_itself(data_folder: Path, name: str) -> None:
    series = load_series(name)
    assert series.name == name
    assert series.y.dtype == series.past_covariates.dtype == np.float64
    assert series.past_covariates.shape == (series.y.size, len(set(series.past_covariate_names)))
    assert series.target_name not in series.past_covariate_names
    assert "doi 10." in series.source or "AEMO" in series.source
    assert any(licence in series.source for licence in ("CC BY 4.0", "no licence", "copyright permissions"))
    assert series.unit
    assert series.notes


@pytest.mark.parametrize("spelling", ["air quality", "Air_Quality", "AIR-QUALITY"])
def test_spaces_may_be_written_otherwise(data_folder: Path, spelling: str) -> None:
    assert load_series(spelling).name == "air quality"


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("nsw2013", 218.96),
        ("bike sharing", 111.23),  # 111.59 with the rows one after the other, see below
        ("tas2016", 32.40),
        ("traffic", 1.393e8),
        ("beijing pm2.5", 23.08),
        ("air quality", 0.739),
    ],
)
def test_interpolated_persistence_has_the_known_error(data_folder: Path, name: str, published: float) -> None:
    series = load_series(name)
    n_dropped = np.isfinite(series.y).argmax()  # the test period starts at the same hour with and without the first gap
    error = persistence_rmse(series.interpolated().y, int(0.3 * series.y.size) - n_dropped)
    last_digit = {"traffic": 1e5, "air quality": 0.001}.get(name, 0.01)
    assert error == pytest.approx(published, abs=last_digit / 2)


def test_bike_persistence_has_the_other_known_error_when_rows_follow_each_other(data_folder: Path) -> None:
    y = load_series("bike sharing").y
    rows = y[np.isfinite(y)]
    assert persistence_rmse(rows, int(0.3 * rows.size)) == pytest.approx(111.59, abs=0.005)


@pytest.mark.parametrize(
    ("name", "error"), [("bike sharing", 111.56), ("beijing pm2.5", 23.66), ("air quality", 0.831)]
)
def test_measured_targets_are_harder_than_interpolated_ones(data_folder: Path, name: str, error: float) -> None:
    series = load_series(name)
    last_digit = 0.001 if name == "air quality" else 0.01
    measured = persistence_rmse_where_measured(series.y)
    assert measured == pytest.approx(error, abs=last_digit / 2)
    straight = series.interpolated().y
    assert measured > persistence_rmse(straight, int(0.3 * straight.size))


@pytest.mark.parametrize("name", SERIES)
def test_interpolation_leaves_measured_targets_alone(data_folder: Path, name: str) -> None:
    series = load_series(name)
    filled = series.interpolated()
    assert np.isfinite(filled.y).all()
    before = series.y[np.isin(series.time, filled.time)]
    np.testing.assert_array_equal(filled.y[np.isfinite(before)], before[np.isfinite(before)])
    assert np.isnan(series.y).sum() - np.isnan(before).sum() == series.y.size - filled.y.size  # only gaps were dropped


def test_beijing_begins_with_a_day_that_interpolation_drops(data_folder: Path) -> None:
    series = load_series("beijing pm2.5")
    assert np.isfinite(series.y).argmax() == 24
    filled = series.interpolated()
    assert filled.time[0] == np.datetime64("2010-01-02T00:00:00")
    assert filled.y.shape == filled.time.shape == (43800,)
    np.testing.assert_array_equal(filled.past_covariates, series.past_covariates[24:])


def test_beijing_wind_blows_from_one_direction_at_a_time(data_folder: Path) -> None:
    series = load_series("beijing pm2.5")
    wind = [name for name in series.past_covariate_names if name.startswith("cbwd")]
    assert wind == ["cbwd_NE", "cbwd_NW", "cbwd_SE", "cbwd_cv"]
    at = [series.past_covariate_names.index(name) for name in wind]
    assert (series.past_covariates[:, at].sum(axis=1) == 1).all()
    assert np.isfinite(series.past_covariates).all()


def test_bike_covariates_are_weather_and_miss_the_same_hours(data_folder: Path) -> None:
    series = load_series("bike sharing")
    assert series.past_covariate_names == ("weathersit", "temp", "atemp", "hum", "windspeed")
    np.testing.assert_array_equal(np.isnan(series.past_covariates).any(axis=1), np.isnan(series.y))
    np.testing.assert_array_equal(np.isnan(series.past_covariates).all(axis=1), np.isnan(series.y))
    assert (series.past_covariates[:, 0] == 4).sum() == 3


def test_air_quality_covariates_miss_as_many_values_as_published(data_folder: Path) -> None:
    series = load_series("air quality")
    missing = dict(zip(series.past_covariate_names, np.isnan(series.past_covariates).sum(axis=0).tolist(), strict=True))
    assert missing.pop("NOx(GT)") == 1639
    assert missing.pop("NO2(GT)") == 1642
    assert set(missing.values()) == {366}
    assert len(missing) == 9
    assert "NMHC(GT)" not in missing


@pytest.mark.parametrize("name", SERIES)
def test_pandas_reads_the_same_targets_from_the_file(data_folder: Path, name: str) -> None:
    about = ABOUT[name]
    path = data_folder / "forecasting" / about["file"]
    table = pd.read_csv(
        path if path.is_file() else f"{path}.gz",
        sep=about.get("separator", ","),
        decimal=about.get("decimal", "."),
        na_values=[-200] if name == "air quality" else None,
    ).dropna(how="all")
    expected = table.iloc[:, 1] if name == "traffic" else table[about["target"]]
    y = load_series(name).y
    np.testing.assert_array_equal(y[np.isfinite(y)], expected.dropna().to_numpy(dtype=np.float64))


# Content of our own, in the layouts of the sources


def test_demand_stamps_have_slashes(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE",
        "NSW1,2013/01/01 00:30:00,70.5,4.25,TRADE",
        "NSW1,2013/01/01 01:00:00,69,-200,TRADE",
    )
    series = load_made_up("nsw2013", "\n".join(lines), empty_folder, monkeypatch)
    assert series.time.astype(str).tolist() == ["2013-01-01T00:30:00", "2013-01-01T01:00:00"]
    assert series.y.tolist() == [70.5, 69]
    assert series.past_covariates.tolist() == [[4.25], [-200]]  # a price, not a code


def test_bike_hours_without_a_row_are_missing(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "instant,dteday,hr,weathersit,temp,atemp,hum,windspeed,casual,registered,cnt\r\n"
    rows = "1,2011-01-01,22,1,0.5,0.4,0.3,0.2,1,2,3\r\n2,2011-01-02,1,2,0.6,0.5,0.4,0.3,4,5,9\r\n"
    series = load_made_up("bike sharing", header + rows, empty_folder, monkeypatch)
    assert series.time[0] == np.datetime64("2011-01-01T22:00:00")
    np.testing.assert_array_equal(series.y, [3, np.nan, np.nan, 9])
    gap = [np.nan] * 5
    np.testing.assert_array_equal(series.past_covariates, [[1, 0.5, 0.4, 0.3, 0.2], gap, gap, [2, 0.6, 0.5, 0.4, 0.3]])


def test_traffic_is_read_under_a_header_that_is_a_sentence(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "Time,Bits, measured, somewhere\n2005-06-07 07:00:00,35\n2005-06-07 07:05:00,37"  # no last newline
    series = load_made_up("traffic", content, empty_folder, monkeypatch)
    assert series.time.astype(str).tolist() == ["2005-06-07T07:00:00", "2005-06-07T07:05:00"]
    assert series.y.tolist() == [35, 37]
    assert series.past_covariates.shape == (2, 0)


def test_beijing_is_read_with_na_and_wind_by_direction(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "No,year,month,day,hour,pm2.5,DEWP,TEMP,PRES,cbwd,Iws,Is,Ir",
        "1,2010,1,31,23,NA,-21,-11.5,1021,NW,1.79,0,0",
        "2,2010,2,1,0,129,-20,-12,1020,cv,4.92,1,2",
    )
    series = load_made_up("beijing pm2.5", "\r\n".join(lines), empty_folder, monkeypatch)
    assert series.time.astype(str).tolist() == ["2010-01-31T23:00:00", "2010-02-01T00:00:00"]
    np.testing.assert_array_equal(series.y, [np.nan, 129])
    assert series.past_covariate_names == ("DEWP", "TEMP", "PRES", "cbwd_NW", "cbwd_cv", "Iws", "Is", "Ir")
    assert series.past_covariates.tolist() == [[-21, -11.5, 1021, 1, 0, 1.79, 0, 0], [-20, -12, 1020, 0, 1, 4.92, 1, 2]]


def test_air_quality_has_decimal_commas_a_code_for_missing_and_empty_lines(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);C6H6(GT);PT08.S2(NMHC);NOx(GT);PT08.S3(NOx);NO2(GT);PT08.S4(NO2);"
        "PT08.S5(O3);T;RH;AH;;",
        "10/03/2004;23.00.00;2,6;1360;150;11,9;1046;166;1056;113;1692;1268;13,6;48,9;0,7578;;",
        "11/03/2004;00.00.00;-200;1292;112;-200,0;955;103;1174;92;1559;972;-200;47,7;0,7255;;",
        ";;;;;;;;;;;;;;;;",
        ";;;;;;;;;;;;;;;;",
    )
    series = load_made_up("air quality", "\r\n".join(lines) + "\r\n", empty_folder, monkeypatch)
    assert series.time.astype(str).tolist() == ["2004-03-10T23:00:00", "2004-03-11T00:00:00"]
    np.testing.assert_array_equal(series.y, [2.6, np.nan])
    np.testing.assert_array_equal(
        series.past_covariates,
        [
            [1360, 11.9, 1046, 166, 1056, 113, 1692, 1268, 13.6, 48.9, 0.7578],
            [1292, np.nan, 955, 103, 1174, 92, 1559, 972, np.nan, 47.7, 0.7255],
        ],
    )


@pytest.mark.parametrize(
    ("stamps", "complaint"),
    [
        (["07:00:00", "07:05:00", "07:11:00"], "whole steps of 300 s after 2005-06-07 07:00:00, got .*07:11:00"),
        (["07:00:00", "07:05:00", "07:05:00"], "must differ, but 2005-06-07 07:05:00 comes more than once"),
    ],
)
def test_stamps_off_the_grid_or_twice_are_refused(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, stamps: list[str], complaint: str
) -> None:
    content = "\n".join(["Time,bits", *(f"2005-06-07 {stamp},1" for stamp in stamps)])
    with pytest.raises(ValueError, match=complaint):
        load_made_up("traffic", content, empty_folder, monkeypatch)


# Files that are not there


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("nsw2013", "Join PRICE_AND_DEMAND_201301_NSW1.csv to PRICE_AND_DEMAND_201312_NSW1.csv in order"),
        ("bike sharing", "unpack hour.csv"),
        ("tas2016", "Join PRICE_AND_DEMAND_201601_TAS1.csv"),
        ("traffic", "5-minute values from 2005-06-07"),
        ("air quality", "unpack AirQualityUCI.csv"),
    ],
)
def test_an_address_that_cannot_give_the_file_comes_with_another_way(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    monkeypatch.setitem(ABOUT, name, {**ABOUT[name], "address": NOWHERE})
    with pytest.raises(FileNotFoundError, match=way) as missing:
        load_series(name)
    assert all(part in str(missing.value) for part in [ABOUT[name]["file"], str(empty_folder), "COVERWELL_DATA"])


def test_a_file_with_other_content_comes_with_the_way_to_the_right_one(empty_folder: Path) -> None:
    (empty_folder / "hour.csv").write_bytes(b"instant,dteday\n")
    with pytest.raises(ChecksumError, match=r"not the published file.*unpack hour\.csv"):
        load_series("bike sharing")


def test_an_address_that_gives_the_file_needs_no_other_way(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ABOUT, "beijing pm2.5", {**ABOUT["beijing pm2.5"], "address": NOWHERE})
    with pytest.raises(FileNotFoundError) as missing:
        load_series("beijing pm2.5")
    assert "How to get" not in str(missing.value)


# Interpolation


def test_interpolation_draws_straight_lines_and_drops_open_ends() -> None:
    series = series_of([np.nan, np.nan, 1, np.nan, np.nan, 4, 2, np.nan])
    filled = series.interpolated()
    assert filled.y.tolist() == [1, 2, 3, 4, 2]
    np.testing.assert_array_equal(filled.time, series.time[2:7])
    assert filled.past_covariates[:, 0].tolist() == [2, 3, 4, 5, 6]
    assert filled.step == series.step
    assert np.isnan(series.y).sum() == 5  # the original keeps its gaps
    assert "straight lines" in filled.notes


def test_gaps_of_covariates_stay() -> None:
    series = series_of([1, np.nan, 3])
    series.past_covariates[1] = np.nan
    assert np.isnan(series.interpolated().past_covariates[:, 0]).tolist() == [False, True, False]


def test_a_series_without_a_measured_target_cannot_be_interpolated() -> None:
    with pytest.raises(ValueError, match="all 3 are missing"):
        series_of([np.nan] * 3).interpolated()


@given(y=st.lists(st.one_of(st.just(np.nan), st.floats(-1e9, 1e9)), min_size=2, max_size=30))
def test_interpolation_equals_that_of_pandas_and_repeating_it_changes_nothing(y: list[float]) -> None:
    if np.isnan(y).all():
        y[0] = 0.0
    series = series_of(y)
    filled = series.interpolated()
    expected = pd.Series(series.y).interpolate(limit_area="inside").dropna().to_numpy()
    np.testing.assert_allclose(filled.y, expected, rtol=1e-9, atol=1e-6)
    assert filled.interpolated().y.tolist() == filled.y.tolist()
