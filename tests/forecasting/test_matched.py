import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from coverwell import MatchedRegressor
from coverwell.forecasting import MatchedForecaster
from coverwell.forecasting.windows import Windows
from coverwell.matching import IQRFit
from coverwell.networks import LSTM

SERIES = 10 * np.sin(np.arange(200) / 4) + np.random.default_rng(0).normal(size=200)
WINDOWS = Windows(n_past=6, horizon=2, differences=True, flags=False, n_past_covariates=1, n_known=0)
SMALL = LSTM(hidden=4, layers=1)


@pytest.fixture(scope="module")
def fitted():
    return MatchedForecaster(0.8, past=6, network=SMALL, folds=2, max_rounds=1, random_state=0).fit(SERIES)


def test_the_parameters_are_those_of_the_forecaster_and_of_the_regressor():
    own = set(MatchedForecaster().get_params())
    assert {"past", "horizon", "calendar", "missing", "differences", "live", "rate", "refit_every"} < own
    assert "regressor" not in own
    left_out = set(MatchedRegressor().get_params()) - own
    # A series has no rows to keep at random; its folds are fixed; and a forecaster warm-starts by itself.
    expected = {"repeats", "calibration_size", "warm_start", "noise_weight", "sharpness_weight", "steepness"}
    assert left_out == expected


def test_the_regressor_gets_every_parameter_that_both_have():
    given = {
        "coverage": [0.9, 0.5],
        "matching": IQRFit(),
        "network": SMALL,
        "interval_network": LSTM(hidden=7),
        "folds": 4,
        "interval_loss": "paper",
        "shape": "interval",
        "calibration": None,
        "mean_epochs": 7,
        "interval_epochs": 8,
        "max_rounds": 9,
        "patience": 11,
        "batch_size": 33,
        "learning_rate": 0.123,
        "device": "cpu",
        "random_state": 5,
        "verbose": 1,
    }
    regressor = MatchedForecaster(**given)._unfitted(WINDOWS, 100)
    in_windows = {"network": LSTM(hidden=4, layers=1, steps=6, channels=3)}
    in_windows["interval_network"] = LSTM(hidden=7, steps=6, channels=3)
    for name, value in (given | in_windows).items():
        assert getattr(regressor, name) == value
    assert regressor.repeats == 1
    assert MatchedForecaster()._unfitted(WINDOWS, 100).interval_network is None  # as the other one


def test_batches_grow_with_the_rows_within_limits():
    sizes = [MatchedForecaster()._unfitted(WINDOWS, n).batch_size for n in (3, 80, 500, 2560, 10**6)]
    assert sizes == [16, 16, 100, 512, 512]


def test_a_clone_has_the_parameters_and_nothing_learned(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "regressor_")
    assert_array_equal(copied.fit(SERIES).predict(), fitted.predict())


def test_it_says_what_was_changed():
    text = repr(MatchedForecaster(0.8, past=6, calendar=("hour",)))
    assert text == "MatchedForecaster(calendar=('hour',), coverage=0.8, past=6)"


def test_parameters_are_taken_as_they_are_and_checked_at_fit():
    levels = [0.9, 0.5]
    forecaster = MatchedForecaster(levels, past=-3)
    assert forecaster.coverage is levels
    assert forecaster.past == -3
    assert forecaster.set_params(past=4).past == 4


def test_a_fitted_forecaster_goes_through_pickle_and_on(fitted):
    restored = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(restored.predict_interval().lower, fitted.predict_interval().lower)
    assert_array_equal(restored.update(5.0).predict(), pickle.loads(pickle.dumps(fitted)).update(5.0).predict())


def test_folds_are_blocks_of_time_far_from_each_other(fitted):
    folds = fitted.time_folds_
    assert (folds.n_folds, folds.first, folds.end, folds.embargo) == (2, 5, 200, 7)
    (train, out), _ = folds.split(fitted.windows_.origins(fitted.history_))
    assert_array_equal(np.diff(out), np.ones(len(out) - 1))
    assert train.min() - out.max() == 8
    said = fitted.regressor_.out_of_fold_
    assert not np.isnan(said.prediction).any()


def test_literal_training_has_no_folds_and_no_ranks():
    literal = MatchedForecaster(
        0.8, past=6, network=SMALL, folds=None, calibration=None, max_rounds=1, random_state=0, refit_every=1
    ).fit(SERIES)
    assert literal.regressor_.out_of_fold_ is None
    assert literal.rate_ == 0.05
    assert np.isfinite(literal.update(3.0).predict()).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"calibration": "split"}, r"calibration must be 'cross' or None for a series, got 'split': .* overlap"),
        ({"calibration": "cv+"}, "calibration must be 'cross' or None for a series, got 'cv+'"),
        ({"folds": None}, "calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None"),
        ({"folds": 1}, "folds must be at least 2 blocks of time, or None, got 1"),
        ({"folds": 2.5}, "folds must be a whole number of at least 1, got 2.5"),
        ({"matching": "best"}, "matching must be"),
        ({"shape": "round"}, "shape must be"),
        ({"max_rounds": 0}, "max_rounds must be 'auto' or a whole number of at least 1, got 0"),
        ({"batch_size": "large"}, "batch_size must be"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
        ({"coverage": 90.0}, "coverage must lie strictly between 0 and 1, got 90.0"),
        ({"coverage": []}, "coverage must hold at least one level"),
    ],
    ids=str,
)
def test_a_parameter_that_cannot_be_is_refused_at_fit(settings, said):
    usual = {"past": 6, "network": SMALL, "folds": 2, "max_rounds": 1}
    with pytest.raises(ValueError, match=said.replace("+", r"\+")):
        MatchedForecaster().set_params(**usual | settings).fit(SERIES)
