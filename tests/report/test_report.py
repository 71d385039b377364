"""Whole reports: their sections, what they name first, what they escape, and what they refuse."""

import re

import numpy as np
import pandas as pd
import pytest

from coverwell import LSTM, MLP, MatchedForecaster, MatchedRegressor, Schedule, report
from coverwell.errors import ExtrapolationWarning
from coverwell.report import write_report, write_series_report

BRIEF = Schedule(max_rounds=1)

OF_ROWS = ["reached", "calibration", "widths", "worst", "slices", "misses", "residuals", "looks", "rounds"]
OF_ROWS += ["data", "drift"]
OF_SERIES = ["reached", "bands", "rolling", "calibration", "widths", "misses", "residuals", "rounds", "data"]


def small(coverage=0.8):
    return MatchedRegressor(coverage, network=MLP(hidden=4), schedule=BRIEF, repeats=1, folds=2, random_state=0)


def test_a_report_has_all_sections_and_names_the_badly_covered_city(model, flats, tmp_path, page_of):
    rows, path = flats(400, odd_city="Lima", seed=1), tmp_path / "report.html"
    n_bytes = write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), path, title="For all", coverage=0.9)
    assert list(page_of(path).sections) == [*OF_ROWS, "provenance"]
    assert n_bytes == path.stat().st_size < 5_000_000
    html = page_of(path).html
    assert "<title>For all</title>" in html
    assert re.search(r"fall short by more than chance: city Lima \(", html)
    assert '<option value="1" selected>city</option>' in html


def test_pandas_and_polars_give_the_same_report(model, flats, tmp_path, page_of):
    rows = flats(40, seed=2)
    write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), tmp_path / "polars.html")
    write_report(model, rows.drop("rent").to_pandas(), rows["rent"].to_pandas(), tmp_path / "pandas.html")
    made = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert made.sub("", page_of(tmp_path / "polars.html").html) == made.sub("", page_of(tmp_path / "pandas.html").html)


def test_many_columns_are_cut_to_what_a_page_can_hold(tmp_path, page_of):
    X = np.random.default_rng(0).normal(size=(60, 150))
    model = small([0.5, 0.8]).fit(X[:40], X[:40, 0])
    with pytest.warns(ExtrapolationWarning):  # in so many columns most rows lie outside of some range
        assert write_report(model, X[40:], X[40:, 0], tmp_path / "report.html") < 5_000_000
    html = page_of(tmp_path / "report.html").html
    assert "30 of 150 columns can be chosen" in html
    assert "100 of 150 columns are listed" in html


def test_of_many_targets_and_levels_those_are_shown_whose_coverage_is_worst(tmp_path, page_of, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    Y = X[:, :1] + rng.normal(size=(120, 4))
    model = small([0.5, 0.8]).fit(X[:80], Y[:80])
    Y[80:, 2] *= 10
    monkeypatch.setattr(report, "MOST_VIEWS", 5)
    write_report(model, X[80:], Y[80:], tmp_path / "report.html")
    html = page_of(tmp_path / "report.html").html
    assert re.search(
        "of 4 targets with intervals; shown are the 2 whose coverage lies farthest from what was asked: .*y2", html
    )
    assert "All targets shown here of a row" in html


def test_a_series_has_its_own_sections_and_both_rolling_coverages(forecaster, series, tmp_path, page_of):
    path = tmp_path / "report.html"
    assert write_series_report(forecaster, series, path) < 5_000_000
    assert list(page_of(path).sections) == [*OF_SERIES, "provenance"]
    backtest = forecaster.backtest(series)
    inside = (backtest.lower[:, 0, 1] <= backtest.y[:, 0]) & (backtest.y[:, 0] <= backtest.upper[:, 0, 1])
    text = f"{inside.sum()} of 200 values lie inside their 90 % interval of load, 1 step ahead"
    assert text in page_of(path).html
    (table, *_) = [table for table in page_of(path).tables if "static" in table]
    np.testing.assert_allclose(table["coverage"], backtest.rolling_coverage(50, level=0.8), rtol=1e-5)
    assert table["static"] != table["coverage"]


def test_a_series_of_counts_is_reported_on_by_step_and_a_learned_period_is_called_so(series, tmp_path, page_of):
    values, path = series.to_numpy(), tmp_path / "report.html"
    made = MatchedForecaster(
        coverage=0.8, past=8, horizon=1, network=LSTM(hidden=4), schedule=BRIEF, folds=2, live=False
    )
    write_series_report(made.set_params(random_state=0).fit(values[:150]), values[:220], path, start=140)
    html = page_of(path).html
    assert "step 140 to step 219" in html
    assert "The forecaster had seen 10 of the steps before" in html
    assert "reached without live calibration" not in html


def test_times_of_less_than_a_second_stay_apart(series, tmp_path, page_of):
    quick = series.set_axis(pd.date_range("2024-01-01", periods=len(series), freq="100ms", name="when"))
    made = MatchedForecaster(coverage=0.8, past=8, network=LSTM(hidden=4), schedule=BRIEF, folds=2, random_state=0)
    write_series_report(made.fit(quick[:150]), quick[:220], tmp_path / "report.html")
    (table, *_) = [table for table in page_of(tmp_path / "report.html").tables if "static_lower" in table]
    assert len(set(table["time"])) == len(table["time"]) == 70


@pytest.mark.parametrize(("horizon", "shown"), [(3, [1, 2, 3]), (24, [1, 9, 16, 24])])
def test_the_first_the_last_and_some_steps_between_can_be_chosen(series, tmp_path, horizon, shown, page_of):
    made = MatchedForecaster(coverage=0.8, past=8, horizon=horizon, network=LSTM(hidden=4), schedule=BRIEF, folds=2)
    write_series_report(made.set_params(random_state=0).fit(series[:250]), series, tmp_path / "report.html")
    options = re.findall(r">load, (\d+) steps? ahead</option>", page_of(tmp_path / "report.html").html)
    assert [int(step) for step in options] == shown


def test_bad_input_is_refused_in_one_line_and_nothing_is_written(model, flats, forecaster, series, tmp_path):
    rows, path = flats(30), tmp_path / "report.html"
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    with pytest.raises(ValueError, match=r"coverage 0\.7 was not fitted; the fitted levels are 0\.5, 0\.9"):
        write_report(model, X, y, path, coverage=0.7)
    for n in (1, 9):
        with pytest.raises(ValueError, match=rf"at least 10 rows .* got {n}; give more rows"):
            write_report(model, X[:n], y[:n], path)
    with pytest.raises(ValueError, match="y must be finite, but row 7"):
        write_report(model, X, np.where(np.arange(30) == 7, np.nan, y), path)
    with pytest.raises(
        TypeError, match="a fitted regressor or classifier, got MatchedForecaster; see write_series_report"
    ):
        write_report(forecaster, X, y, path)
    with pytest.raises(TypeError, match="takes a fitted forecaster, got MatchedRegressor; see write_report"):
        write_series_report(model, series, path)
    with pytest.raises(TypeError, match="expected a fitted regressor, classifier or forecaster, got dict"):
        write_series_report({}, series, path)
    with pytest.raises(ValueError, match=r"coverage 0\.5 was not fitted"):
        write_series_report(forecaster, series, path, coverage=0.5)
    with pytest.raises(ValueError, match="at least 10 values that came after a forecast of them, got 4"):
        write_series_report(forecaster, series[:205], path)
    assert list(tmp_path.iterdir()) == []
