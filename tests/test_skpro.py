"""Regressors as skpro's: the same numbers, in its data frames and distributions; run by `make test-adapters`."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule
from coverwell.prediction import PredictedDistribution

pytest.importorskip("skpro")

from skpro.metrics import CRPS, PinballLoss

from coverwell.skpro import QuantileDistribution, SkproRegressor

SHORT = {"schedule": Schedule(max_rounds=1), "repeats": 1, "companions": (), "network": MLP(hidden=8)}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"area": rng.gamma(5, 20, 80), "city": rng.choice(["Rome", "Oslo"], 80)}, index=range(100, 180))
    X.loc[[101, 140], "area"] = np.nan
    y = pd.DataFrame({"price": X["area"].fillna(90) + 10 * rng.normal(size=80), "rent": rng.normal(size=80)})
    return X, y


@pytest.fixture(scope="module")
def model(table):
    return SkproRegressor(MatchedRegressor([0.5, 0.9], random_state=0, **SHORT)).fit(*table)


def test_predictions_intervals_and_quantiles_are_those_of_the_regressor(model, table):
    X, _ = table
    inner = model.regressor_
    pd.testing.assert_frame_equal(model.predict(X), pd.DataFrame(inner.predict(X), X.index, ["price", "rent"]))
    pd.testing.assert_frame_equal(
        model.predict_interval(X, [0.9, 0.7]), inner.predict_interval(X, [0.9, 0.7]).to_frame(), check_names=False
    )
    quantiles = model.predict_quantiles(X, [0.2, 0.6])
    assert quantiles.columns.tolist() == [("price", 0.2), ("price", 0.6), ("rent", 0.2), ("rent", 0.6)]
    np.testing.assert_array_equal(quantiles, inner.predict_quantiles(X, [0.2, 0.6]).reshape(80, 4))


def test_distributions_have_the_quantiles_and_the_crps_of_ours(model, table):
    X, y = table
    ours, theirs = model.regressor_.predict_distribution(X), model.predict_proba(X)
    np.testing.assert_array_equal(theirs.quantile([0.05, 0.3]), ours.quantile([0.05, 0.3]).reshape(80, 4))
    np.testing.assert_allclose(theirs.cdf(y), ours.cdf(y.to_numpy()))
    scores = CRPS(multivariate=True).evaluate_by_index(y, theirs)
    np.testing.assert_allclose(scores.squeeze(), ours.crps(y.to_numpy()).sum(axis=1), rtol=1e-9)
    assert PinballLoss()(y, model.predict_quantiles(X, [0.1, 0.9])) > 0


def test_the_distance_of_two_draws_is_that_of_a_closed_form():
    """Twice the integral of F(1 - F): over the line from 1/4 to 3/4, and over both exponential tails."""
    known = PredictedDistribution(np.array([0.25, 0.75]), np.array([[[0.0, 1.0]]]))
    tail = 1 / np.log(3)  # of the quantiles 0 and 1 at 1/4 and 3/4
    inside, beyond = 1 / 2 * (1 / 4 + 3 / 4) - (1 / 16 + 3 / 16 + 9 / 16) / 3, tail * (1 / 4 - 1 / 32)
    energy = QuantileDistribution(known, pd.RangeIndex(1), pd.Index(["y"])).energy()
    assert energy.iloc[0, 0] == pytest.approx(2 * (inside + 2 * beyond), rel=1e-12)


def test_parts_of_a_distribution_are_distributions_of_these_rows(model, table):
    X, _ = table
    whole = model.predict_proba(X)
    for part, expected in (
        (whole.iloc[[3, 1]], whole.mean().iloc[[3, 1]]),
        (whole.loc[[101], ["rent"]], whole.mean().loc[[101], ["rent"]]),
    ):
        pd.testing.assert_frame_equal(part.mean(), expected, check_index_type=False)
    assert whole.iloc[2, 1].ppf(0.5) == whole.ppf(0.5).iloc[2, 1]


def test_classifiers_are_refused(table):
    X, y = table
    with pytest.raises(TypeError, match="regressor must be one of coverwell, unfitted, got MatchedClassifier"):
        SkproRegressor(MatchedClassifier()).fit(X, y)


def test_the_example_of_the_guide_runs():
    guide = Path(__file__).parents[1] / "docs" / "integrations.md"
    blocks = re.findall(r"^```py\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    (example,) = (code for code in blocks if "coverwell.skpro " in code)
    names = {}
    exec(example, names)
    assert len(names["intervals"]) == 50
