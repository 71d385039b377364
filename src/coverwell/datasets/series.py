"""The six public time series of the paper's second experiment, on complete grids of time with their gaps left open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.datasets.store import DataFile, DatasetChecksumError, DatasetNotFoundError, known_name, read
from coverwell.datasets.tables import UCI

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float64]
Stamps = NDArray[
    Any
]  # datetime64[s]; checkers of types at run time take NDArray[np.datetime64] for stamps without unit
Cells = dict[str, tuple[str, ...]]  # by column, as text

NOT_AVAILABLE = "NA"
AEMO = "https://aemo.com.au/energy-systems/electricity/national-electricity-market-nem/data-nem/aggregated-data"
DATAMARKET = "https://datamarket.com/data/set/232n"


@dataclass(frozen=True, eq=False)
class Series:
    """A series to forecast: one target, and what was measured beside it.

    Parameters
    ----------
    name : str
        The name it was loaded by.
    time : ndarray of shape (n_steps,), datetime64[s]
        Regular time stamps without a hole, in the clock of the source.
    y : ndarray of shape (n_steps,), float64
        The target; NaN where it was not measured.
    past_covariates : ndarray of shape (n_steps, n_covariates), float64
        What was measured at the same time as `y`, so not known when that `y` is forecast; NaN where missing.
    past_covariate_names : tuple of str
        One name for each column of `past_covariates`.
    target_name : str
        The name of the target.
    unit : str
        The unit of the target.
    source : str
        What to cite, and the licence.
    notes : str
        What was chosen, left out or is missing.
    """

    name: str
    time: Stamps = field(repr=False)
    y: Values = field(repr=False)
    past_covariates: Values = field(repr=False)
    past_covariate_names: tuple[str, ...] = field(repr=False)
    target_name: str
    unit: str
    source: str
    notes: str

    @property
    def step(self) -> np.timedelta64:
        """The time from each stamp to the next."""
        step: np.timedelta64 = self.time[1] - self.time[0]
        return step

    def interpolated(self) -> Series:
        """The series with straight lines over the gaps of its target, for comparison with the paper.

        A value inside a gap is made from the value after it: it reads the future, and is an easy target. Use it to
        compare with published numbers, not to learn how well a forecaster would have done.

        Steps before the first and after the last measured target have nothing to lie between. They are dropped, from
        the covariates too. Gaps in the covariates stay.
        """
        measured = np.flatnonzero(~np.isnan(self.y))
        if measured.size == 0:
            raise ValueError(f"y must hold a measured value to interpolate from, but all {self.y.size} are missing")
        kept = slice(measured[0], measured[-1] + 1)
        lines = np.interp(np.arange(self.y.size), measured, self.y[measured])
        return replace(
            self,
            time=self.time[kept].copy(),
            y=np.where(np.isnan(self.y), lines, self.y)[kept],
            past_covariates=self.past_covariates[kept].copy(),
            notes=f"{self.notes} Here, straight lines fill the gaps of the target.",
        )

    def to_pandas(self) -> pd.Series:
        """The target as a pandas series with a regular time index."""
        import pandas as pd  # an optional companion: only this method needs it

        index = pd.DatetimeIndex(self.time, freq=pd.Timedelta(self.step))
        return pd.Series(self.y.copy(), index=index, name=self.target_name)


@dataclass(frozen=True)
class Recipe:
    """How one file becomes a `Series`.

    `stamps` makes ISO 8601 texts from the cells. `past_covariates` and `columns` are names separated by blanks;
    `columns` is None where the file's first line, which is never data, has usable names. A covariate in `categories`
    becomes one column of zeros and ones per category. `missing_code` is a number that stands for a missing one.
    `by_hand` says how to get the file where its address is that of a page or an archive.
    """

    file: DataFile
    stamps: Callable[[Cells], list[str]]
    step: np.timedelta64
    target: str
    unit: str
    source: str
    notes: str
    past_covariates: str = ""
    categories: tuple[str, ...] = ()
    columns: str | None = None
    separator: str = ","
    decimal: str = "."
    missing_code: float = np.nan  # equal to no number, so nothing is missing by code
    by_hand: str = ""


def series_names() -> tuple[str, ...]:
    """The names that `load_series` knows.

    Examples
    --------
    >>> from coverwell import datasets
    >>> datasets.series_names()
    ('nsw2013', 'bike sharing', 'tas2016', 'traffic', 'beijing pm2.5', 'air quality')
    """
    return tuple(SERIES)


def load_series(name: str) -> Series:
    """The series of that name.

    It comes from the folder in the environment variable ``COVERWELL_DATA``, the user's cache or the public address,
    whichever has it first, and is checked by sha256. Only Beijing's file can be downloaded as it is; for the others,
    the error says how to get the file by hand.

    Parameters
    ----------
    name : str
        One of `series_names`; case does not matter, and underscores or hyphens may stand for spaces.

    Returns
    -------
    Series
        Time stamps, target, covariates, names, and what to cite.

    Raises
    ------
    ValueError
        If the name is unknown.
    DatasetNotFoundError
        If the file is nowhere; the message says where it was looked for.
    DatasetChecksumError
        If a file of that name, or the address, holds something else.

    Examples
    --------
    >>> from coverwell import datasets
    >>> series = datasets.load_series("bike_sharing")  # doctest: +SKIP
    >>> series.y.shape, series.step  # doctest: +SKIP
    ((17544,), np.timedelta64(3600,'s'))
    >>> datasets.load_series("bikes")
    Traceback (most recent call last):
    ...
    ValueError: name must be one of nsw2013, bike sharing, tas2016, traffic, beijing pm2.5, air quality; got 'bikes'
    """
    known = known_name(name, SERIES)
    return _series(known, SERIES[known])


def _series(name: str, recipe: Recipe) -> Series:
    cells = _cells(_content(recipe), recipe)
    covariates = {
        column: values
        for covariate in recipe.past_covariates.split()
        for column, values in _covariate(covariate, cells, recipe).items()
    }
    time, at = _grid(np.array(recipe.stamps(cells), dtype="datetime64[s]"), recipe.step)
    rows = np.full((time.size, 1 + len(covariates)), np.nan)  # a step without a row in the file stays missing
    rows[at] = np.column_stack([_numbers(cells[recipe.target], recipe), *covariates.values()])
    return Series(
        name=name,
        time=time,
        y=rows[:, 0].copy(),
        past_covariates=rows[:, 1:].copy(),
        past_covariate_names=tuple(covariates),
        target_name=recipe.target,
        unit=recipe.unit,
        source=recipe.source,
        notes=recipe.notes,
    )


def _content(recipe: Recipe) -> bytes:
    try:
        return read(recipe.file)
    except (DatasetNotFoundError, DatasetChecksumError) as error:
        if not recipe.by_hand:
            raise
        raise type(error)(f"{error} How to get {recipe.file.name}: {recipe.by_hand}") from error


def _cells(content: bytes, recipe: Recipe) -> Cells:
    """The cells of each column, as text, without lines that hold separators only."""
    header, *lines = content.decode("ascii").splitlines()
    columns = recipe.columns.split() if recipe.columns else header.split(recipe.separator)
    rows = [line.split(recipe.separator) for line in lines if line.strip(recipe.separator)]
    return dict(zip(columns, zip(*rows, strict=True), strict=True))


def _covariate(name: str, cells: Cells, recipe: Recipe) -> dict[str, Values]:
    """The columns that one covariate becomes: itself as numbers, or an indicator of each of its categories."""
    if name not in recipe.categories:
        return {name: _numbers(cells[name], recipe)}
    cell = np.array(cells[name])
    return {f"{name}_{category}": (cell == category).astype(np.float64) for category in sorted(set(cells[name]))}


def _numbers(cells: tuple[str, ...], recipe: Recipe) -> Values:
    """The cells as numbers, a missing one as NaN."""
    texts = (cell.replace(recipe.decimal, ".") for cell in cells)
    numbers = np.array([np.nan if text == NOT_AVAILABLE else float(text) for text in texts], dtype=np.float64)
    return np.where(numbers == recipe.missing_code, np.nan, numbers)


def _grid(stamps: Stamps, step: np.timedelta64) -> tuple[Stamps, NDArray[np.int64]]:
    """All stamps from the first to the last, and the position of each given one among them."""
    since_first = stamps - stamps.min()
    off_grid = stamps[since_first % step != np.timedelta64(0, "s")]
    if off_grid.size:
        raise ValueError(f"time stamps must be whole steps of {step} after {stamps.min()}, got {off_grid[0]}")
    at = (since_first // step).astype(np.int64)
    positions, counts = np.unique(at, return_counts=True)
    if positions.size < at.size:
        twice = stamps.min() + positions[counts > 1][0] * step
        raise ValueError(f"time stamps must differ, but {twice} comes more than once")
    return stamps.min() + np.arange(at.max() + 1) * step, at


def aemo_stamps(cells: Cells) -> list[str]:
    """From 2013/01/01 00:30:00."""
    return [stamp.replace("/", "-").replace(" ", "T") for stamp in cells["SETTLEMENTDATE"]]


def bike_stamps(cells: Cells) -> list[str]:
    """From the day 2011-01-01 and the hour 0."""
    return [f"{day}T{int(hour):02}:00:00" for day, hour in zip(cells["dteday"], cells["hr"], strict=True)]


def traffic_stamps(cells: Cells) -> list[str]:
    """From 2005-06-07 07:00:00."""
    return [stamp.replace(" ", "T") for stamp in cells["Time"]]


def beijing_stamps(cells: Cells) -> list[str]:
    """From year 2010, month 1, day 1, hour 0."""
    numbers = zip(*([int(cell) for cell in cells[unit]] for unit in ("year", "month", "day", "hour")), strict=True)
    return [f"{year:04}-{month:02}-{day:02}T{hour:02}:00:00" for year, month, day, hour in numbers]


def air_quality_stamps(cells: Cells) -> list[str]:
    """From the day 10/03/2004, which is in March, and the time 18.00.00."""
    days = ("-".join(reversed(date.split("/"))) for date in cells["Date"])
    return [f"{day}T{time.replace('.', ':')}" for day, time in zip(days, cells["Time"], strict=True)]


def _demand(region: str, year: int, state: str, sha256: str) -> Recipe:
    name = f"PRICE_AND_DEMAND_{year}_{region}.csv"
    return Recipe(
        file=DataFile(name, "forecasting", sha256, AEMO),
        stamps=aemo_stamps,
        step=np.timedelta64(30 * 60, "s"),
        target="TOTALDEMAND",
        unit="MW",
        past_covariates="RRP",
        source=(
            f"Australian Energy Market Operator (AEMO), Aggregated price and demand data, {region}, {year}; "
            "AEMO's copyright permissions: any use that names AEMO as the author"
        ),
        notes=(
            f"Electricity demand of {state}, half-hourly. A stamp is the end of its half hour in market time (UTC+10, "
            "no daylight saving). RRP is the regional price in AUD/MWh. Nothing is missing."
        ),
        by_hand=(
            f"its address is a page that offers monthly files. Join PRICE_AND_DEMAND_{year}01_{region}.csv to "
            f"PRICE_AND_DEMAND_{year}12_{region}.csv in order; keep the first header only, end each line with a "
            "newline alone, and take away quotes."
        ),
    )


SERIES = {
    "nsw2013": _demand(
        "NSW1", 2013, "New South Wales", "1d79cff55b09c23969e3af40d5e35b2171311de2d82300bff980062e51079f06"
    ),
    "bike sharing": Recipe(
        file=DataFile(
            name="hour.csv",
            folder="forecasting",
            sha256="e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
            address=f"{UCI}/00275/Bike-Sharing-Dataset.zip",
        ),
        stamps=bike_stamps,
        step=np.timedelta64(60 * 60, "s"),
        target="cnt",
        unit="rentals per hour",
        past_covariates="weathersit temp atemp hum windspeed",
        source=(
            "H. Fanaee-T, J. Gama, Event labeling combining ensemble detectors and background knowledge, Progress in "
            "Artificial Intelligence, 2013; UCI 275, doi 10.24432/C5W894; CC BY 4.0"
        ),
        notes=(
            "Rentals in Washington, D.C., hourly, 2011 and 2012. 165 hours have no row in the file: all their values "
            "are missing. casual and registered are left out, as they add up to the target. weathersit stays a number, "
            "from 1 (clear) to 4 (heavy rain, 3 hours only). A reading that puts the rows one after the other, without "
            "the missing hours, has a persistence error of 111.59 on its last 70 %; the interpolated grid has 111.23."
        ),
        by_hand="its address is a zip archive; unpack hour.csv from it.",
    ),
    "tas2016": _demand("TAS1", 2016, "Tasmania", "ef3a10949d06b7f7e5b50110e87aa9deb63a5dc8b4e64fd0f1ff5617e0c5fe06"),
    "traffic": Recipe(
        file=DataFile(
            name="internet-traffic-data-in-bits-A5M.csv",
            folder="forecasting",
            sha256="8d957bf698ec4198a7f1e1ed98d69c49f2a37868e00b63301d3f6994c314576e",
            address=DATAMARKET,
        ),
        stamps=traffic_stamps,
        step=np.timedelta64(5 * 60, "s"),
        target="bits",
        unit="bits per 5 minutes",
        columns="Time bits",  # the header's second name is a sentence
        source=(
            "P. Cortez, M. Rio, M. Rocha, P. Sousa, Multi-scale Internet traffic forecasting using neural networks and "
            "time series methods, Expert Systems 29(2), 2012, doi 10.1111/j.1468-0394.2010.00568.x; Time Series Data "
            "Library, series A5M; no licence stated"
        ),
        notes=(
            "A transatlantic link of a private internet provider, every 5 minutes, June and July 2005. Nothing is "
            "missing, and nothing else was measured."
        ),
        by_hand=(
            "the site at its address has closed. Public copies are named internet-traffic-data-in-bits-fr.csv, as are "
            "other series; rename the one with 5-minute values from 2005-06-07 07:00:00 on."
        ),
    ),
    "beijing pm2.5": Recipe(
        file=DataFile(
            name="PRSA_data_2010.1.1-2014.12.31.csv",
            folder="forecasting",
            sha256="4127f868775e31b3956522adc0ec75af8937dde6a3896e8beed3a376c6d27f1c",
            address=f"{UCI}/00381/PRSA_data_2010.1.1-2014.12.31.csv",
        ),
        stamps=beijing_stamps,
        step=np.timedelta64(60 * 60, "s"),
        target="pm2.5",
        unit="ug/m3",
        past_covariates="DEWP TEMP PRES cbwd Iws Is Ir",
        categories=("cbwd",),
        source=(
            "X. Liang et al., Assessing Beijing's PM2.5 pollution, Proc. R. Soc. A 471, 2015; "
            "UCI 381, doi 10.24432/C5JS49; CC BY 4.0"
        ),
        notes=(
            "Fine particles at one place in Beijing, hourly, 2010 to 2014. 2067 targets are missing, the first 24 "
            "among them; the weather is complete. The wind direction cbwd is one column of zeros and ones per "
            "direction; cv is calm or variable. Iws, Is and Ir are wind, hours of snow and hours of rain, added up."
        ),
    ),
    "air quality": Recipe(
        file=DataFile(
            name="AirQualityUCI.csv",
            folder="forecasting",
            sha256="13277ae5d8581e80b7be09d47c7d3d06fe9b8e957078f2cf6e859f955e62f996",
            address=f"{UCI}/00360/AirQualityUCI.zip",
        ),
        stamps=air_quality_stamps,
        step=np.timedelta64(60 * 60, "s"),
        target="CO(GT)",
        unit="mg/m3",
        past_covariates=(
            "PT08.S1(CO) C6H6(GT) PT08.S2(NMHC) NOx(GT) PT08.S3(NOx) NO2(GT) PT08.S4(NO2) PT08.S5(O3) T RH AH"
        ),
        separator=";",
        decimal=",",
        missing_code=-200.0,
        source=(
            "S. De Vito et al., On field calibration of an electronic nose for benzene estimation, Sensors and "
            "Actuators B 129(2), 2008; UCI 360, doi 10.24432/C59K5F; CC BY 4.0"
        ),
        notes=(
            "Carbon monoxide at a road in an Italian town, hourly, March 2004 to April 2005. 1683 targets are missing "
            "(-200 in the file). NMHC(GT) is left out: 8443 of its 9357 values are missing. (GT) marks the reference "
            "analyser, PT08 the sensors beside it."
        ),
        by_hand="its address is a zip archive; unpack AirQualityUCI.csv from it.",
    ),
}
