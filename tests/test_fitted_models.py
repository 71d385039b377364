"""What a model says at once is what it says verb by verb, and it knows how many rows stand behind its word."""

import numpy as np
import pytest
from coverwell.fitted_models import Said, n_ranked_rows, n_trained_rows, say

from coverwell import MLP, MatchedRegressor
from coverwell.baselines import HeteroscedasticRegressor

N = 60


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, X + 0.1 * rng.normal(size=(N, 2))


def fitted(rows, **options):
    options = {"folds": 3, "repeats": 1, "max_rounds": 1, **options}
    return MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), random_state=0, **options).fit(*rows)


def test_what_is_said_at_once_is_what_the_verbs_say(rows):
    model, X = fitted(rows), rows[0]
    said = say(model, X)
    lower, upper = model.predict_interval(X)
    np.testing.assert_array_equal(said.prediction, model.predict(X))
    np.testing.assert_array_equal(said.lower, lower)
    np.testing.assert_array_equal(said.upper, upper)


def test_columns_are_prediction_and_bounds_of_each_level_target_by_target():
    bounds = np.array([[[1.0, 0.0], [11.0, 10.0]]])  # (row, target, level)
    said = Said(np.array([[2.0, 12.0]]), bounds, bounds + 5)
    assert [column.tolist() for column in said.columns] == [
        *([2.0], [1.0], [6.0], [0.0], [5.0]),
        *([12.0], [11.0], [16.0], [10.0], [15.0]),
    ]


@pytest.mark.parametrize(("calibration", "ranked"), [("cross", N), ("split", 12), ("cv+", N), (None, None)])
def test_ranked_are_the_rows_whose_ranks_set_the_widths(rows, calibration, ranked):
    model = fitted(rows, calibration=calibration)
    assert n_ranked_rows(model) == ranked
    assert n_trained_rows(model) == N


def test_a_model_that_does_not_know_its_rows_says_none(rows):
    brief = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=10, calibration="split", random_state=0)
    model = brief.fit(*rows)
    assert (n_ranked_rows(model), n_trained_rows(model)) == (None, None)
