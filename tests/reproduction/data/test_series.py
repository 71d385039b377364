"""The six series are what their sources say they are, on complete grids, with the gaps that the sources have."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.data.series import SERIES, Series, load_series
from reproduction.data.store import CATALOGUE

ABOUT = CATALOGUE["series"]
NOWHERE = "http://127.0.0.1:9/series.csv"  # the discard port: nobody answers
GAP = np.nan

# steps, missing targets, first and last stamp, seconds from one to the next; then smallest, largest and mean target,
# and half a unit of the last digit that the sources print
PUBLISHED = {
    "nsw2013": (17520, 0, "2013-01-01T00:30", "2014-01-01T00:00", 1800, 5113, 13788, 7982, 0.5),
    "bike sharing": (17544, 165, "2011-01-01T00:00", "2012-12-31T23:00", 3600, 1, 977, 189.5, 0.05),
    "tas2016": (17568, 0, "2016-01-01T00:30", "2017-01-01T00:00", 1800, 518.3, 1539.8, 1065, 0.5),
    "traffic": (14772, 0, "2005-06-07T07:00", "2005-07-28T13:55", 300, 7.22e8, 8.82e9, 3.81e9, 5e6),
    "beijing pm2.5": (43824, 2067, "2010-01-01T00:00", "2014-12-31T23:00", 3600, 0, 994, 98.6, 0.05),
    "air quality": (9357, 1683, "2004-03-10T18:00", "2005-04-04T14:00", 3600, 0.1, 11.9, 2.15, 0.005),
}


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """A data folder and a cache without files, and no proxy on the way to an address that is dead."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path


@pytest.fixture
def load_made_up(empty_folder, monkeypatch):
    """The series read from content of our own."""

    def load(name, content):
        (empty_folder / "made_up.csv").write_text(content, encoding="ascii", newline="")
        sha256 = hashlib.sha256(content.encode("ascii")).hexdigest()
        file = {"file": "made_up.csv", "sha256": sha256, "address": NOWHERE}
        monkeypatch.setitem(ABOUT, name, {**ABOUT[name], **file})
        return load_series(name)

    return load


def series_of(y):
    """An hourly series with its own positions as covariate."""
    n = len(y)
    time = np.datetime64("2020-01-01T00:00:00", "s") + np.arange(n) * np.timedelta64(3600, "s")
    position = np.arange(n, dtype=np.float64)[:, None]
    return Series("made up", time, np.array(y, dtype=np.float64), position, ("position",), "load", "kW", "nobody", "-")


# The six public series


@pytest.mark.parametrize("name", SERIES)
def test_the_grid_is_regular_and_grid_and_target_are_as_published(data_folder, name):
    series = load_series(name.upper().replace(" ", "_"))
    n_steps, n_missing, first, last, seconds, *target, last_digit = PUBLISHED[name]
    assert series.name == name
    assert series.time.dtype == "datetime64[s]"
    assert series.time.shape == series.y.shape == (n_steps,)
    assert (series.time[0], series.time[-1]) == (np.datetime64(first), np.datetime64(last))
    assert (np.diff(series.time) == np.timedelta64(seconds, "s")).all()
    assert np.isnan(series.y).sum() == n_missing
    assert [np.nanmin(series.y), np.nanmax(series.y), np.nanmean(series.y)] == pytest.approx(target, abs=last_digit)
    assert series.past_covariates.shape == (n_steps, len(set(series.past_covariate_names)))
    assert series.target_name not in series.past_covariate_names
    assert "doi 10." in series.source or "AEMO" in series.source


def test_covariates_miss_what_the_sources_miss(data_folder):
    beijing = load_series("beijing pm2.5")
    wind = [at for at, name in enumerate(beijing.past_covariate_names) if name.startswith("cbwd")]
    assert (beijing.past_covariates[:, wind].sum(axis=1) == 1).all()  # from one direction at a time
    assert np.isfinite(beijing.past_covariates).all()
    assert np.isfinite(beijing.y).argmax() == 24
    assert beijing.interpolated().time[0] == np.datetime64("2010-01-02T00:00:00")
    bike = load_series("bike sharing")
    assert bike.past_covariate_names == ("weathersit", "temp", "atemp", "hum", "windspeed")
    np.testing.assert_array_equal(np.isnan(bike.past_covariates), np.isnan(bike.y)[:, None].repeat(5, axis=1))
    air = load_series("air quality")
    missing = dict(zip(air.past_covariate_names, np.isnan(air.past_covariates).sum(axis=0).tolist(), strict=True))
    assert (missing.pop("NOx(GT)"), missing.pop("NO2(GT)"), set(missing.values())) == (1639, 1642, {366})
    assert load_series("traffic").past_covariates.shape == (14772, 0)


# Content of our own, in the layouts of the sources

AIR = (
    "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);C6H6(GT);PT08.S2(NMHC);NOx(GT);PT08.S3(NOx);NO2(GT);PT08.S4(NO2);"
    "PT08.S5(O3);T;RH;AH;;\r\n"
    "10/03/2004;23.00.00;2,6;1360;150;11,9;1046;166;1056;113;1692;1268;13,6;48,9;0,7578;;\r\n"
    "11/03/2004;00.00.00;-200;1292;112;-200,0;955;103;1174;92;1559;972;-200;47,7;0,7255;;\r\n"
    ";;;;;;;;;;;;;;;;\r\n"
)
AIR_FIRST = [2.6, 1360, 11.9, 1046, 166, 1056, 113, 1692, 1268, 13.6, 48.9, 0.7578]
AIR_LAST = [GAP, 1292, GAP, 955, 103, 1174, 92, 1559, 972, GAP, 47.7, 0.7255]
BEIJING = (
    "No,year,month,day,hour,pm2.5,DEWP,TEMP,PRES,cbwd,Iws,Is,Ir\r\n"
    "1,2010,1,31,23,NA,-21,-11.5,1021,NW,1.79,0,0\r\n"
    "2,2010,2,1,0,129,-20,-12,1020,cv,4.92,1,2"
)
BEIJING_FIRST, BEIJING_LAST = [GAP, -21, -11.5, 1021, 1, 0, 1.79, 0, 0], [129, -20, -12, 1020, 0, 1, 4.92, 1, 2]
BIKE = (
    "instant,dteday,hr,weathersit,temp,atemp,hum,windspeed,casual,registered,cnt\r\n"
    "1,2011-01-01,22,1,0.5,0.4,0.3,0.2,1,2,3\r\n2,2011-01-02,1,2,0.6,0.5,0.4,0.3,4,5,9\r\n"
)
BIKE_FIRST, BIKE_LAST = [3, 1, 0.5, 0.4, 0.3, 0.2], [9, 2, 0.6, 0.5, 0.4, 0.3]
DEMAND = (
    "REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE\n"
    "NSW1,2013/01/01 00:30:00,70.5,4.25,TRADE\nNSW1,2013/01/01 01:00:00,69,-200,TRADE"  # a price, not a code
)
TRAFFIC = (
    "Time,Bits, measured, somewhere\n2005-06-07 07:00:00,35\n2005-06-07 07:05:00,37"  # a header that is a sentence
)


@pytest.mark.parametrize(
    ("name", "content", "first", "rows"),  # a row is the target and its covariates
    [
        ("nsw2013", DEMAND, "2013-01-01T00:30:00", [[70.5, 4.25], [69, -200]]),
        ("bike sharing", BIKE, "2011-01-01T22:00:00", [BIKE_FIRST, [GAP] * 6, [GAP] * 6, BIKE_LAST]),
        ("traffic", TRAFFIC, "2005-06-07T07:00:00", [[35], [37]]),
        ("beijing pm2.5", BEIJING, "2010-01-31T23:00:00", [BEIJING_FIRST, BEIJING_LAST]),
        ("air quality", AIR, "2004-03-10T23:00:00", [AIR_FIRST, AIR_LAST]),
    ],
)
def test_every_layout_is_read(load_made_up, name, content, first, rows):
    series = load_made_up(name, content)
    assert str(series.time[0]) == first
    np.testing.assert_array_equal(np.column_stack([series.y, series.past_covariates]), rows)


@pytest.mark.parametrize(
    ("stamps", "complaint"),
    [
        (["07:00:00", "07:05:00", "07:11:00"], "whole steps of 300 s after 2005-06-07 07:00:00, got .*07:11:00"),
        (["07:00:00", "07:05:00", "07:05:00"], "must differ, but 2005-06-07 07:05:00 comes more than once"),
    ],
)
def test_stamps_off_the_grid_or_twice_are_refused(load_made_up, stamps, complaint):
    content = "\n".join(["Time,bits", *(f"2005-06-07 {stamp},1" for stamp in stamps)])
    with pytest.raises(ValueError, match=complaint):
        load_made_up("traffic", content)


# Files that are not there


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("nsw2013", "Join PRICE_AND_DEMAND_201301_NSW1.csv to PRICE_AND_DEMAND_201312_NSW1.csv in order"),
        ("bike sharing", "unpack hour.csv"),
        ("tas2016", "Join PRICE_AND_DEMAND_201601_TAS1.csv"),
        ("traffic", "5-minute values from 2005-06-07"),
        ("air quality", "unpack AirQualityUCI.csv"),
        ("beijing pm2.5", None),  # its address gives the file
    ],
)
def test_an_address_that_cannot_give_the_file_comes_with_another_way(empty_folder, monkeypatch, name, way):
    monkeypatch.setitem(ABOUT, name, {**ABOUT[name], "address": NOWHERE})
    with pytest.raises(FileNotFoundError, match=way) as missing:
        load_series(name)
    assert all(part in str(missing.value) for part in [ABOUT[name]["file"], str(empty_folder), "COVERWELL_DATA"])
    assert ("How to get" in str(missing.value)) == (way is not None)


# Interpolation


def test_interpolation_draws_straight_lines_and_drops_open_ends():
    series = series_of([GAP, GAP, 1, GAP, GAP, 4, 2, GAP])
    series.past_covariates[4] = GAP
    filled = series.interpolated()
    assert filled.y.tolist() == [1, 2, 3, 4, 2]
    np.testing.assert_array_equal(filled.time, series.time[2:7])
    np.testing.assert_array_equal(filled.past_covariates[:, 0], [2, 3, GAP, 5, 6])  # gaps of covariates stay
    assert np.isnan(series.y).sum() == 5  # the original keeps its gaps
    with pytest.raises(ValueError, match="all 3 are missing"):
        series_of([GAP] * 3).interpolated()


@given(y=st.lists(st.one_of(st.just(GAP), st.floats(-1e9, 1e9)), min_size=2, max_size=30))
def test_interpolation_equals_that_of_pandas_and_repeating_it_changes_nothing(y):
    if np.isnan(y).all():
        y[0] = 0.0
    series = series_of(y)
    filled = series.interpolated()
    expected = pd.Series(series.y).interpolate(limit_area="inside").dropna().to_numpy()
    np.testing.assert_allclose(filled.y, expected, rtol=1e-9, atol=1e-6)
    assert filled.interpolated().y.tolist() == filled.y.tolist()
