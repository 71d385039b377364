"""Forecasters as graphs."""

import numpy as np
import pandas as pd
import pytest
from coverwell.export import to_onnx

from coverwell import LSTM, MLP, Forecaster, MatchedForecaster
from coverwell.baselines import HeteroscedasticRegressor, MCDropoutRegressor

N = 300
BRIEF = {"network": LSTM(hidden=4), "folds": 2, "max_rounds": 1, "random_state": 0, "device": "cpu"}


def wave(seed=0):
    rng = np.random.default_rng(seed)
    index = pd.date_range("2023-12-01", periods=N, freq="h")
    return pd.Series(np.sin(np.arange(N) / 4) + 0.1 * rng.normal(size=N) + 5, index=index, name="load")


def inputs_of(model):
    """What the file is given about the present: one row."""
    history, past, horizon = model.history_, model.windows_.n_past, model.windows_.horizon
    times = history.clock.times(len(history), horizon) if history.calendar else None
    inputs = {
        "values": history.values[-past:],
        "before": history.filled[-past - 1 : -past] if model.missing == "fill" else None,
        "past_covariates": history.past[-past:] if history.past_names else None,
        "times": None if times is None else times.astype("datetime64[s]").astype(np.float64),
        "covariates": history.ahead[len(history) : len(history) + horizon] if history.ahead_names else None,
    }
    return {name: values[None] for name, values in inputs.items() if values is not None}


def check(model, run_file, path):
    """Compare the file's forecast of the next steps with the model's; the metadata come back."""
    metadata = to_onnx(model, path)
    said = run_file(path, inputs_of(model))
    interval = model.predict_interval(model.regressor_._fitted_levels)
    sd = np.nanstd(model.history_.values)
    np.testing.assert_allclose(said["prediction"][0], np.asarray(model.predict()), atol=1e-5 * sd)
    for name, bound in (("lower", interval.lower), ("upper", interval.upper)):
        assert said[name].shape == (1, model.horizon, len(metadata["levels"]))
        np.testing.assert_allclose(said[name][0], bound, atol=1e-5 * sd)
    assert [entry["name"] for entry in metadata["inputs"]] == list(inputs_of(model))
    return metadata


def test_a_process_without_torch_forecasts_with_calendar_and_covariates_as_the_model_does(served, tmp_path):
    rng = np.random.default_rng(1)
    calendar = ("weekday", "hour", "month")
    model = MatchedForecaster([0.5, 0.8], past=6, horizon=3, calendar=calendar, **BRIEF)
    model.fit(wave(), covariates=np.arange(N + 5.0)[:, None] % 7, past_covariates=rng.normal(size=(N, 2)))
    metadata = check(model, served, tmp_path / "model.onnx")
    assert (metadata["kind"], metadata["past"], metadata["horizon"]) == ("series", 6, 3)
    assert metadata["calendar"] == list(calendar)
    assert metadata["targets"] == ["step 1", "step 2", "step 3"]
    assert metadata["zone"] is None


def test_the_clock_by_which_times_are_told_is_that_of_the_series(run_file, tmp_path):
    series = wave().tz_localize("UTC").tz_convert("Asia/Kolkata")
    model = MatchedForecaster(0.8, past=6, horizon=2, calendar=("hour",), **BRIEF).fit(series)
    metadata = check(model, run_file, tmp_path / "model.onnx")
    assert metadata["zone"] == "Asia/Kolkata"
    assert metadata["inputs"][1]["is"].endswith("to what the clock shows in Asia/Kolkata")


def test_no_moment_at_all_has_no_forecast(run_file, tmp_path):
    model = MatchedForecaster(0.8, past=6, horizon=2, **BRIEF).fit(wave())
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"values": np.empty((0, 6))})  # an LSTM of no rows would end the process
    assert {name: values.shape for name, values in said.items()} == {
        "prediction": (0, 2),
        "lower": (0, 2, 1),
        "upper": (0, 2, 1),
    }


def test_the_live_factor_of_the_export_is_in_the_file_and_told(run_file, tmp_path):
    model = MatchedForecaster([0.5, 0.8], past=6, horizon=2, rate=0.2, **BRIEF).fit(wave())
    before = check(model, run_file, tmp_path / "before.onnx")["live_factor"]
    for value in (6.3, 3.7, 6.3):
        model.update(value)
    after = check(model, run_file, tmp_path / "after.onnx")["live_factor"]
    assert np.array(before).tolist() == np.ones((2, 2)).tolist()
    np.testing.assert_array_equal(after, model.calibrator_.factor)
    assert (np.array(after)[0] > 1.1).all()  # it missed three times


def test_gaps_are_filled_by_the_value_before_and_flagged(run_file, tmp_path):
    series = wave()
    series.iloc[[3, 40, 41, 150, N - 3, N - 2]] = np.nan
    model = MatchedForecaster(0.8, past=6, missing="fill", differences=False, **BRIEF).fit(series)
    assert np.isnan(inputs_of(model)["values"]).sum() == 2
    check(model, run_file, tmp_path / "model.onnx")


@pytest.mark.parametrize("gap", [1, 2, 5, 9])
def test_a_gap_of_any_length_is_filled_by_the_last_value_before_it(gappy, gap, run_file, tmp_path):
    model, path = gappy
    values = np.arange(1.0, 11.0)
    for first in range(11 - gap):
        gapped, filled = values.copy(), values.copy()
        gapped[first : first + gap], filled[first : first + gap] = np.nan, first  # 0 stands before the window
        said = run_file(path, {"values": gapped[None], "before": np.zeros((1, 1))})
        own = model.regressor_._stretched(filled[None])
        np.testing.assert_allclose(said["prediction"], own.mean, rtol=1e-6)


def test_a_gap_at_the_beginning_of_a_window_is_filled_by_the_value_before_it(run_file, tmp_path):
    series = wave()
    series.iloc[[40, N - 6]] = np.nan
    model = MatchedForecaster(0.8, past=6, missing="fill", **BRIEF).fit(series)
    assert np.isnan(inputs_of(model)["values"])[0].tolist() == [True, False, False, False, False, False]
    check(model, run_file, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", inputs_of(model) | {"before": np.array([[np.nan]])})
    assert all(np.isnan(values).all() for values in said.values())  # nothing to fill it by


@pytest.fixture(scope="module")
def gappy(tmp_path_factory):
    """A forecaster that fills gaps and has seen none, so that nothing tells it of them, and its file."""
    model = MatchedForecaster(0.8, past=10, missing="fill", differences=False, **BRIEF).fit(wave())
    path = tmp_path_factory.mktemp("gappy") / "model.onnx"
    to_onnx(model, path)
    return model, path


def test_a_gap_where_gaps_are_errors_gives_nan(run_file, tmp_path):
    model = MatchedForecaster(0.8, past=6, **BRIEF).fit(wave())
    to_onnx(model, tmp_path / "model.onnx")
    values = np.stack([model.history_.values[-6:]] * 2)
    values[1, 2] = np.nan
    for said in run_file(tmp_path / "model.onnx", {"values": values}).values():
        assert np.isfinite(said[0]).all()
        assert np.isnan(said[1]).all()


@pytest.mark.parametrize(
    "regressor",
    [
        HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=10, random_state=0, device="cpu"),
        MCDropoutRegressor(
            0.8, network=LSTM(hidden=4, dropout=0.3), n_samples=3, max_epochs=10, random_state=0, device="cpu"
        ),
    ],
    ids=lambda regressor: type(regressor).__name__,
)
def test_other_regressors_forecast_too(regressor, run_file, tmp_path):
    model = Forecaster(regressor, past=5, horizon=2, live=False).fit(wave().to_numpy())
    assert check(model, run_file, tmp_path / "model.onnx")["live_factor"] is None


def test_several_moments_can_be_asked_about_at_once(run_file, tmp_path):
    model = MatchedForecaster(0.8, past=6, live=False, **BRIEF).fit(wave())
    to_onnx(model, tmp_path / "model.onnx")
    backtest = model.backtest(wave(), start=wave().index[100])
    windows = np.lib.stride_tricks.sliding_window_view(wave().to_numpy(), 6)[94:-1]
    said = run_file(tmp_path / "model.onnx", {"values": windows})
    np.testing.assert_allclose(said["prediction"], backtest.prediction.reshape(len(windows), 1), atol=1e-5)
