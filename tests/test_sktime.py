"""Forecasters as sktime's: the same numbers on its indices and horizons; run by `make test-adapters`."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coverwell import LSTM, MatchedForecaster, MatchedRegressor, Schedule

pytest.importorskip("sktime")

from coverwell.sktime import SktimeForecaster

pytestmark = [
    pytest.mark.filterwarnings("ignore:The default of config ``remember_data``:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*forecasts see values far outside"),
]
N = 100
VALUES = np.sin(np.arange(N + 8) / 3) + 0.1 * np.random.default_rng(0).normal(size=N + 8)
INDICES = {
    "months": pd.period_range("2010-01", periods=N + 8, freq="M"),
    "starts of months": pd.date_range("2010-01", periods=N + 8, freq="MS"),
    "ends of quarters": pd.date_range("1990-01", periods=N + 8, freq="QE"),
    "months without freq": pd.DatetimeIndex(list(pd.date_range("2010-01", periods=N + 8, freq="MS"))),
    "three hours": pd.date_range("2010-01", periods=N + 8, freq="3h"),
    "weeks": pd.date_range("2010-01", periods=N + 8, freq="W-WED"),
    "days": pd.date_range("2010-01", periods=N + 8, freq="D", tz="UTC"),
    "counts": pd.RangeIndex(5, N + 13),
}


def short(**parameters):
    brief = {"past": 4, "folds": 2, "network": LSTM(hidden=4), "schedule": Schedule(max_rounds=1), "random_state": 0}
    return MatchedForecaster([0.5, 0.9], **(brief | parameters))


def series(index):
    y = pd.Series(VALUES, index=index, name="load")
    return y, pd.DataFrame({"wave": np.cos(np.arange(N + 8) / 3), "odd": np.arange(N + 8) % 2.0}, index=index)


@pytest.mark.parametrize("kind", INDICES)
def test_forecasts_and_updates_are_those_of_the_forecaster(kind):
    (y, X), index = series(INDICES[kind]), INDICES[kind]
    adapter = SktimeForecaster(short()).fit(y[:N], X=X[:N], fh=[1, 3])
    inner = short(horizon=3).fit(VALUES[:N], X.to_numpy()[:N])
    for n in (N, N + 1, N + 4):
        coming = X.to_numpy()[n : n + 3]
        found = adapter.predict_interval(coverage=[0.9, 0.5], X=X[n : n + 3])
        np.testing.assert_allclose(adapter.predict(X=X[n : n + 3]), inner.predict(coming)[[0, 2]], rtol=1e-12)
        own = inner.predict_interval([0.9, 0.5])
        expected = np.stack([own.lower, own.upper], axis=-1)[[0, 2]].reshape(2, 4)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert found.index.equals(index[[n, n + 2]])
        new = slice(n, {N: N + 1, N + 1: N + 4}.get(n, n))
        adapter.update(y[new], X=X[new]) if new.stop > n else None
        for step in range(n, new.stop):  # predict has told both what comes, except for the last steps
            known = inner.history_.ahead[step + 1 :]
            last = X.to_numpy()[[step]] if len(known) == 0 else known[-1:]
            inner.update(VALUES[step], covariates=np.concatenate([X.to_numpy()[[step]], known, *[last] * 3])[:4])


def test_other_levels_lie_between_those_that_are_calibrated():
    y, _ = series(INDICES["months"])
    adapter = SktimeForecaster(short()).fit(y[:N], fh=[1, 2])
    found = adapter.predict_interval(coverage=[0.5, 0.7, 0.9])["load"]
    widths = [(found[level]["upper"] - found[level]["lower"]).to_numpy() for level in (0.5, 0.7, 0.9)]
    assert (widths[0] < widths[1]).all()
    assert (widths[1] < widths[2]).all()
    whole = adapter.predict_proba()
    np.testing.assert_allclose(whole.ppf(0.95)["load"], found[0.9]["upper"])
    np.testing.assert_allclose(whole.quantile(0.35), adapter.predict_quantiles(alpha=0.35))


def test_gaps_are_allowed_where_the_forecaster_fills_them():
    y, _ = series(INDICES["months"])
    y.iloc[[20, N]] = np.nan
    adapter = SktimeForecaster(short(missing="fill"))
    assert adapter.get_tag("capability:missing_values")
    assert not SktimeForecaster(short()).get_tag("capability:missing_values")
    assert adapter.fit(y[:N], fh=1).update(y[N : N + 2]).predict().index[0] == INDICES["months"][N + 2]


def test_the_live_widths_follow_the_misses():
    y, _ = series(INDICES["months"])
    adapter = SktimeForecaster(short(rate=0.2)).fit(y[:N], fh=1)
    before = adapter.predict_interval(coverage=0.9)["load"][0.9]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter.update(y[N:] + 5 * (-1) ** np.arange(8))
    after = adapter.predict_interval(coverage=0.9)["load"][0.9]
    assert (after["upper"] - after["lower"]).iloc[0] > (before["upper"] - before["lower"]).iloc[0]


def test_covariates_with_holes_are_refused():
    y, X = series(INDICES["months"])
    adapter = SktimeForecaster(short()).fit(y[:N], X=X[:N], fh=[1, 3])
    with pytest.raises(ValueError, match="covariates must have a row for every step"):
        adapter.predict(X=X.iloc[[N, N + 2]])
    with pytest.raises(ValueError, match="X must have a row for every step from 2018-05 on"):
        adapter.update(y[N : N + 1], X=X.iloc[[N, N + 2]])


def test_steps_that_are_past_are_refused():
    y, _ = series(INDICES["months"])
    with pytest.raises(NotImplementedError, match="in-sample"):
        SktimeForecaster(short()).fit(y[:N], fh=[-1, 1])
    fitted = SktimeForecaster(short()).fit(y[:N], fh=INDICES["months"][N : N + 2])
    with pytest.raises(NotImplementedError, match="in-sample"):
        fitted.update(y[N : N + 1]).predict()


def test_counts_by_two_are_refused():
    y = pd.Series(VALUES, index=np.arange(N + 8) * 2)
    with pytest.raises(ValueError, match="whole numbers in the index of y must rise by 1"):
        SktimeForecaster(short()).fit(y, fh=1)


def test_regressors_are_refused():
    with pytest.raises(TypeError, match="forecaster must be one of coverwell, unfitted, got MatchedRegressor"):
        SktimeForecaster(MatchedRegressor()).fit(pd.Series(VALUES), fh=1)


def test_the_example_of_the_guide_runs():
    guide = Path(__file__).parents[1] / "docs" / "integrations.md"
    blocks = re.findall(r"^```py\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    (example,) = (code for code in blocks if "coverwell.sktime " in code)
    names = {}
    exec(example, names)
    assert len(names["intervals"]) == 3
