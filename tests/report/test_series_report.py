"""The whole report on a series: bands, rolling coverage, the worst stretch."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from coverwell.report import write_series_report


def written(path):
    return path.read_text("utf-8").replace("\u00a0", " ")


def test_the_report_has_bands_rolling_coverage_and_the_worst_stretch(forecaster, series, tmp_path):
    n_bytes = write_series_report(forecaster, series, tmp_path / "report.html")
    html = written(tmp_path / "report.html")
    keys = ["reached", "bands", "rolling", "misses", "residuals", "rounds", "data", "provenance"]
    assert re.findall(r'<section id="(\w+)"', html) == keys
    assert n_bytes < 5_000_000
    backtest = forecaster.backtest(series)
    inside = (backtest.lower[:, 0, 1] <= backtest.y[:, 0]) & (backtest.y[:, 0] <= backtest.upper[:, 0, 1])
    assert f"{inside.sum()} of 200 values lie inside their 90 % interval, {100 * inside.mean():.1f} %" in html
    shares = [inside[first : first + 50].mean() for first in range(151)]
    first = series.index[200 + int(np.argmin(shares))]
    assert f"The worst 50 values in a row begin at {first:%Y-%m-%d %H:%M}" in html.replace(" 00:00", "")


def test_rolling_coverage_is_drawn_with_and_without_live_calibration(forecaster, series, tmp_path):
    write_series_report(forecaster, series, tmp_path / "report.html")
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', written(tmp_path / "report.html"), re.DOTALL)[1])
    (table, *_) = [table for table in data["tables"] if "live" in table]
    expected = forecaster.backtest(series).rolling_coverage(50, level=0.8)
    np.testing.assert_allclose(table["live"], expected, rtol=1e-5)
    assert table["static"] != table["live"]


def test_a_series_of_counts_is_reported_on_by_step(series, tmp_path):
    from coverwell import LSTM, MatchedForecaster

    values = series.to_numpy()
    made = MatchedForecaster(coverage=0.8, past=8, horizon=1, network=LSTM(hidden=4), max_rounds=1, folds=2, live=False)
    made.set_params(random_state=0).fit(values[:150])
    write_series_report(made, values[:220], tmp_path / "report.html", title="Counts")
    html = written(tmp_path / "report.html")
    assert "step 150 to step 219" in html
    assert "reached without live calibration" not in html


def test_a_period_that_was_learned_is_called_so(forecaster, series, tmp_path):
    write_series_report(forecaster, series, tmp_path / "report.html", start=series.index[150])
    assert "50 of the steps had been seen by the forecaster before" in written(tmp_path / "report.html")
    write_series_report(forecaster, series, tmp_path / "report.html")
    assert "had been seen by the forecaster before" not in written(tmp_path / "report.html")


def test_times_of_less_than_a_second_stay_apart(series, tmp_path):
    from coverwell import LSTM, MatchedForecaster

    quick = series.set_axis(pd.date_range("2024-01-01", periods=len(series), freq="100ms", name="when"))
    made = MatchedForecaster(coverage=0.8, past=8, network=LSTM(hidden=4), max_rounds=1, folds=2, random_state=0)
    write_series_report(made.fit(quick[:150]), quick[:220], tmp_path / "report.html")
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', written(tmp_path / "report.html"), re.DOTALL)[1])
    (table, *_) = [table for table in data["tables"] if "static_lower" in table]
    assert len(set(table["time"])) == len(table["time"]) == 70


def test_bad_input_is_told_in_one_line_and_nothing_is_written(forecaster, series, tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(ValueError, match=r"coverage 0\.5 was not fitted"):
        write_series_report(forecaster, series, path, coverage=0.5)
    with pytest.raises(ValueError, match="at least 10 values that came after a forecast of them, got 4"):
        write_series_report(forecaster, series[:205], path)
    with pytest.raises(TypeError, match="takes a fitted forecaster, got dict; see write_report"):
        write_series_report({}, series, path)
    assert list(tmp_path.iterdir()) == []
