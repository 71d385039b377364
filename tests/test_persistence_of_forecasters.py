"""A forecaster comes back from its file with its networks, its history and its live factor, and goes on alike."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from torch import nn

from coverwell import LSTM, Forecaster, MatchedForecaster, Schedule, load, save
from coverwell.baselines import MCDropoutRegressor
from coverwell.errors import ModelFileError
from coverwell.model_file import read_tensors, write_tensors

N_FIT, N = 240, 260
Y = 20 + np.sin(np.arange(N) / 3) + 0.2 * np.random.default_rng(0).normal(size=N)
HOURS = pd.date_range("2024-03-25", periods=N, freq="h", tz="Europe/Berlin")
USUAL = {"past": 4, "missing": "fill"}
BRIEF = {"network": LSTM(hidden=3, layers=1), "folds": 2, "schedule": Schedule(max_rounds=1), "random_state": 0}


def in_use(forecaster, series, **fit):
    """A forecaster that has been fitted and has seen ten updates, one of them missing, and stands at a forecast."""
    forecaster.fit(series[:N_FIT], **fit)
    for step, value in enumerate(Y[N_FIT : N_FIT + 10]):
        more = {"past_covariates": [float(step)]} if "past_covariates" in fit else {}
        forecaster.update(np.nan if step == 3 else value, **more)
    forecaster.predict_interval()
    return forecaster


def assert_alike(one, other):
    assert_array_equal(np.asarray(one.predict()), np.asarray(other.predict()))
    for ours, theirs in zip(one.predict_interval(), other.predict_interval(), strict=True):
        assert_array_equal(ours, theirs)
    assert one.calibrator_.state_dict() == other.calibrator_.state_dict()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "forecaster.safetensors"


@pytest.fixture(scope="module")
def hourly():
    forecaster = MatchedForecaster([0.9, 0.5], horizon=2, calendar=("hour",), refit_every=15, **USUAL, **BRIEF)
    return in_use(forecaster, pd.Series(Y, index=HOURS, name="load"))


def test_a_loaded_forecaster_goes_on_as_the_saved_one_would(hourly, path):
    save(hourly, path)
    loaded = load(path)
    assert_alike(hourly, loaded)
    for value in Y[N_FIT + 10 : N_FIT + 18]:  # a refit falls among these
        hourly.update(value)
        loaded.update(value)
        assert_alike(hourly, loaded)
    assert loaded.n_since_fit_ == hourly.n_since_fit_


def test_parameters_stamps_and_names_come_back(hourly, path):
    save(hourly, path)
    loaded = load(path)
    assert repr(loaded) == repr(hourly)
    assert loaded.predict().index.equals(hourly.predict().index)
    assert str(loaded.predict().index.tz) == "Europe/Berlin"
    assert loaded.predict().name == "load"
    assert str(loaded.rounds_) == str(hourly.rounds_)
    assert loaded.rate_ == hourly.rate_


@pytest.mark.parametrize("kind", ["numbers", "polars", "periods"])
def test_every_kind_of_clock_comes_back(kind, path):
    series = {
        "numbers": Y,
        "polars": pl.DataFrame({"at": HOURS.tz_localize(None).to_list(), "load": Y}),
        "periods": pd.Series(Y, index=pd.period_range("1990-01", periods=N, freq="M")),
    }[kind]
    forecaster = in_use(MatchedForecaster(0.8, **USUAL, **BRIEF), series)
    save(forecaster, path)
    loaded = load(path)
    assert_alike(forecaster, loaded)
    assert loaded.history_.clock == forecaster.history_.clock


def test_a_baseline_inside_a_forecaster_comes_back_with_what_it_was_told(path):
    baseline = MCDropoutRegressor(
        0.8, network=LSTM(hidden=3, layers=1, dropout=0.1), max_epochs=10, n_samples=3, random_state=0
    )
    covariates = np.arange(N_FIT, dtype=float) % 5
    forecaster = in_use(Forecaster(baseline, **USUAL), Y, past_covariates=covariates)
    save(forecaster, path)
    loaded = load(path)
    assert_alike(forecaster, loaded)
    assert repr(loaded.regressor) == repr(baseline)


def test_a_network_of_the_users_own_is_given_again(path):
    forecaster = in_use(MatchedForecaster(0.8, **USUAL, **BRIEF | {"network": nn.Linear}), Y)
    save(forecaster, path)
    with pytest.raises(ModelFileError, match="network of its user's own"):
        load(path)
    assert_alike(forecaster, load(path, network=nn.Linear))


def _changed(path, change):
    header, arrays = read_tensors(path)
    model = json.loads(json.dumps(header["model"]))
    change(model["learned"], arrays)
    write_tensors(path, {"model": model}, arrays)


def _another_horizon(learned, arrays):
    learned["windows_"]["horizon"] = 3


def _a_short_history(learned, arrays):
    arrays["history_.filled"] = arrays["history_.filled"][:-1]


def _a_hole_in_the_history(learned, arrays):
    arrays["history_.filled"] = np.where(np.arange(len(arrays["history_.filled"])) == 5, np.nan, 1.0)


def _other_levels(learned, arrays):
    learned["calibrator_"] |= {"coverage": {"tuple": [0.4, 0.9]}, "state": None}


def _an_unknown_clock(learned, arrays):
    learned["history_"]["clock"]["kind"] = "sundial"


def _an_unfitted_regressor(learned, arrays):
    learned["regressor_"]["learned"] = {}


@pytest.mark.parametrize(
    "change",
    [
        _an_unfitted_regressor,
        _another_horizon,
        _a_short_history,
        _a_hole_in_the_history,
        _other_levels,
        _an_unknown_clock,
    ],
)
def test_a_whole_file_whose_parts_do_not_fit_together_is_refused(hourly, path, change):
    save(hourly, path)
    _changed(path, change)
    with pytest.raises(ModelFileError, match="no model can be made of it"):
        load(path)
