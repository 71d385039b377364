"""Views of a few rows that can be worked out by hand, a small model of flats, and a small forecaster."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from coverwell.judgements import Judgement
from coverwell.report.judged import View

from coverwell import LSTM, MLP, MatchedForecaster, MatchedRegressor, metrics
from coverwell.slices import slices_of

N_TRAIN = 120


def view_of(y, prediction, lower, upper, *, asked=0.8, columns=None, groups=None):
    """One target at one level."""
    y, prediction, lower, upper = (np.asarray(values, dtype=float) for values in (y, prediction, lower, upper))
    inside = (lower <= y) & (y <= upper)
    judgement = Judgement(
        target="rent",
        asked=asked,
        rmse=metrics.rmse(y, prediction),
        coverage=metrics.coverage(y, lower, upper),
        band=metrics.coverage_band(asked, len(y), None),
        calibration_error=0.0,
        expected_calibration_error=0.0,
        width=metrics.average_width(lower, upper),
        interval_score=metrics.interval_score(y, lower, upper, asked),
        slices=slices_of(inside, columns or {}, asked=asked, groups=groups),
    )
    return View(y, prediction, lower, upper, judgement, 0, 0)


@pytest.fixture
def view():
    return view_of


def flats_frame(n, *, odd_city=None, seed=0):
    """Rents by area and city; those of `odd_city` scatter eight times as much."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 120, n).round(1)
    city = rng.choice(["Rome", "Oslo", "Bern", "Lima"], n)
    noise = rng.normal(size=n) * np.where(city == odd_city, 8.0, 1.0)
    return pl.DataFrame(
        {
            "area": [None if place % 15 == 0 else value for place, value in enumerate(area)],
            "city": city,
            "listed": np.datetime64("2024-01-01") + rng.integers(0, 300, n),
            "garden": rng.random(n) < 0.5,
            "rent": (area / 10 + noise).round(3),
        }
    )


@pytest.fixture(scope="session")
def flats():
    """Makes rows; see `flats_frame`."""
    return flats_frame


@pytest.fixture(scope="session")
def model():
    """Fitted at two levels to 120 rows of flats; to be left as it is."""
    rows = flats_frame(N_TRAIN)
    regressor = MatchedRegressor([0.5, 0.9], network=MLP(hidden=8), max_rounds=2, folds=3, repeats=1, random_state=0)
    return regressor.fit(rows.drop("rent"), rows["rent"].to_numpy())


def hourly(n, *, louder_from=None):
    """A daily wave with noise, three times as large from a step on."""
    rng = np.random.default_rng(3)
    noise = 0.3 * rng.normal(size=n) * np.where(np.arange(n) >= (n if louder_from is None else louder_from), 3, 1)
    values = 10 + 2 * np.sin(np.arange(n) * 2 * np.pi / 24) + noise
    return pd.Series(values.round(3), index=pd.date_range("2024-01-01", periods=n, freq="h", name="when"), name="load")


@pytest.fixture(scope="session")
def series():
    """400 hours, of which the forecaster has seen 200; from the 300th on they are noisier."""
    return hourly(400, louder_from=300)


@pytest.fixture(scope="session")
def forecaster(series):
    """To be left as it is."""
    network = LSTM(hidden=4)
    made = MatchedForecaster(coverage=[0.8, 0.9], past=12, horizon=2, network=network, max_rounds=1, folds=2)
    return made.set_params(random_state=0).fit(series[:200])
