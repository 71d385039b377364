"""Bad input: the error names what must hold and what came, and no half-fitted model is left behind."""

import copy
import inspect
import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, LeaveOneGroupOut, PredefinedSplit, TimeSeriesSplit
from sklearn.utils.validation import check_is_fitted
from torch import nn

from coverwell import MLP, IQRFit, MatchedRegressor, Schedule, SigmaFit
from coverwell.calibration import Split
from coverwell.errors import ConstantDataWarning, ExtrapolationWarning, NonFiniteLossError, TwoValuesWarning
from coverwell.paper.losses import PaperLoss, QuantileLoss

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + 0.3 * RNG.normal(size=N)
GROUPS = np.repeat(np.arange(12), 5)


SHORT = Schedule(max_rounds=2, mean_epochs=2, interval_epochs=2)


def unfitted(**changes):
    """A small model; parameters are set as `set_params` does, which takes anything and leaves the checks to `fit`."""
    network = MLP(hidden=8, layers=3, bins=4)
    model = MatchedRegressor(network=network, folds=3, repeats=1, schedule=SHORT, random_state=0)
    return model.set_params(**changes)


def spoilt(values, value):
    """A copy with one bad value, or a copy of objects where it does not fit in."""
    values = values.copy() if isinstance(value, float) else values.astype(object)
    values[(7,) * values.ndim if values.ndim == 1 else (7, 1)] = value
    return values


def assert_unfitted(model):
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    for verb in (model.predict, model.predict_interval, model.predict_distribution):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            verb(X)
    learned = set(vars(model)) - set(model.get_params())
    assert not learned


@pytest.fixture(scope="module")
def fitted_once():
    return unfitted().fit(X, Y)


@pytest.fixture
def fitted(fitted_once):
    return copy.deepcopy(fitted_once)


# Tables and targets --------------------------------------------------------------------------------------------------

BAD_DATA = {
    "NaN in X": (spoilt(X, np.nan), Y, "Input X contains NaN"),
    "infinity in X": (spoilt(X, np.inf), Y, "Input X contains infinity"),
    "NaN in y": (X, spoilt(Y, np.nan), "Input y contains NaN"),
    "infinity in y": (X, spoilt(Y, -np.inf), "Input y contains infinity"),
    "a word in X": (spoilt(X, "red"), Y, "could not convert string to float: 'red'"),
    "strings in X": (np.full((N, 3), "red"), Y, "strings.*[Cc]onvert your data to numeric"),
    "numbers as strings in X": (X.astype(str), Y, "strings.*[Cc]onvert your data to numeric"),
    "one word in all rows": (pd.DataFrame({"d": ["red"] * N}), Y, "no column tells rows apart"),
    "a word in y": (X, spoilt(Y, "red"), "could not convert string to float: 'red'"),
    "strings in y": (X, np.full(N, "red"), "y must hold numbers, got <U3; convert it first"),
    "numbers as strings in y": (X, Y.astype(str), "y must hold numbers"),
    "dates in y": (X, pd.date_range("2020", periods=N).to_numpy(), "y must hold numbers, got datetime64"),
    "complex numbers": (X, Y + 1j, "Complex data not supported"),
    "no rows": (X[:0], Y[:0], r"0 sample\(s\).*minimum of 2"),
    "no columns": (X[:, :0], Y, r"0 feature\(s\).*minimum of 1"),
    "one row": (X[:1], Y[:1], r"1 sample\(s\).*minimum of 2"),
    "one column as a vector": (X[:, 0], Y, "Expected 2D array, got 1D array"),
    "X of three axes": (X[:, :, None], Y, r"dim 3\b.* <= 2"),
    "y of three axes": (X, Y[:, None, None], r"dim 3\b.* <= 2"),
    "y of another length": (X, Y[:-1], r"inconsistent numbers of samples: \[60, 59\]"),
    "X too large to square": (1e200 * X, Y, r"X must lie within 1e\+150 of zero"),
    "y too large to square": (X, 1e200 * Y, r"y must lie within 1e\+150 of zero"),
    "fewer rows than folds": (X[:2], Y[:2], "folds=3 needs at least as many rows, got 2"),
    "too few rows for the level": (X[:8], Y[:8], "coverage 0.9 by ranks needs at least 9 rows, got 8"),
}


@pytest.mark.parametrize(("x", "y", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_is_refused_and_leaves_a_model_unfitted(fitted, x, y, message):
    for model in (unfitted(), fitted):
        with pytest.raises(ValueError, match=message):
            model.fit(x, y)
        assert_unfitted(model)


@pytest.mark.parametrize(
    ("changes", "groups", "message"),
    [
        ({"folds": 61}, None, "folds=61 needs at least as many rows, got 60; give fewer folds or more rows"),
        ({"folds": 13}, GROUPS, "folds=13 needs at least as many groups, got 12; give fewer folds or more groups"),
        ({"folds": 50, "calibration": "split"}, None, "folds=50 needs at least as many rows, got 48"),
        ({"folds": 12, "calibration": "cv+"}, GROUPS, "folds=12 needs at least as many groups, got 11"),
        ({"calibration": "split"}, GROUPS * 0, "at least 2 groups, got 1"),
        ({}, GROUPS[:-1], "groups must have one entry per row, got 59 for 60 rows"),
        ({}, np.where(GROUPS == 3, np.nan, GROUPS), r"a value in every row, got nan in row 15 \(counted from 0\)"),
        ({}, np.stack([GROUPS, GROUPS], axis=1), "1d array"),
        ({"folds": LeaveOneGroupOut()}, None, "'groups' parameter should not be None"),
        ({"folds": PredefinedSplit(GROUPS % 3), "calibration": "cv+"}, None, "the given folds are fixed"),
        ({"folds": list(KFold(3).split(X)), "calibration": "split"}, None, "the given folds are fixed"),
        ({"folds": TimeSeriesSplit(3), "calibration": "cv+"}, None, "leave every row out exactly once"),
        ({"coverage": 0.99}, None, "0.99 by ranks needs at least 99 rows, got 60.*calibration=None"),
        ({"coverage": 0.95, "calibration": "split"}, None, "keeps 12 of 60 rows: .*needs at least 19 rows, got 12"),
        ({"folds": None}, None, "calibration='local' needs folds, got folds=None; give folds=5"),
        ({"folds": None, "calibration": "cv+"}, None, r"calibration='cv\+' needs folds"),
    ],
)
def test_folds_groups_and_levels_that_the_rows_do_not_allow_are_refused(changes, groups, message):
    model = unfitted(**changes)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, groups=groups)
    assert_unfitted(model)


# Choices -------------------------------------------------------------------------------------------------------------

SHARE = "strictly between 0 and 1"
BAD_CHOICES = [
    ("coverage", 90, ValueError, f"{SHARE}, got 90"),
    ("coverage", "high", ValueError, f"{SHARE}, got 'high'"),
    ("coverage", [0.9, 0.5, 0.9], ValueError, "must not hold a level twice"),
    (
        "matching",
        "gamma",
        ValueError,
        r"'sigma', 'balanced', 'iqr', None, or an object such as SigmaFit\(\), got 'gamma'",
    ),
    ("matching", SigmaFit, TypeError, "pass an instance, not a class"),
    ("network", nn.Linear(3, 2), TypeError, "got a module: every member needs one of its own"),
    ("network", lambda n_features, n_outputs: "net", TypeError, "must give a torch.nn.Module when called, got str"),
    ("interval_network", nn.Linear(3, 2), TypeError, "got a module: every member needs one of its own"),
    ("folds", "five", ValueError, "a whole number, a scikit-learn splitter or None, got 'five'"),
    ("folds", 5.0, ValueError, "a whole number, a scikit-learn splitter or None, got 5.0"),
    ("folds", KFold, ValueError, r"a splitter, not its class; write KFold\(...\)"),
    ("folds", 1, ValueError, "at least 2, a splitter, or None, got 1"),
    ("repeats", "many", ValueError, "'auto' or a whole number of at least 1, got 'many'"),
    ("interval_loss", "winkler", ValueError, r"one of 'quantile', 'paper', or an object such as .*\(\), got 'winkler'"),
    ("interval_loss", None, ValueError, "one of 'quantile', 'paper', or an object .*got None"),
    ("interval_loss", QuantileLoss, TypeError, "pass an instance, not a class"),
    ("shape", "Both", ValueError, "must be 'both' or 'interval', got 'Both'"),
    ("calibration", "jackknife", ValueError, "must be one of .*'cross'.* got 'jackknife'"),
    ("calibration", True, TypeError, "must be a name or an object with the methods of .*Calibration, got True"),
    ("calibration", Split, TypeError, "pass an instance, not a class"),
    ("schedule", {"max_rounds": 3}, TypeError, r"must be a Schedule\(...\) or None, got {'max_rounds': 3}"),
    ("schedule", Schedule, TypeError, r"must be a Schedule\(...\) or None"),
    ("device", "abacus", ValueError, "device must be 'auto', 'cpu', 'cuda' or another .*got 'abacus'"),
    ("random_state", "lucky", ValueError, "'lucky' cannot be used to seed"),
    ("random_state", -1, ValueError, "random_state must be None, a RandomState or a whole number: Seed must"),
    ("folds", (), ValueError, r"or give splits, got none from \(\)"),
    ("coverage", 10**400, ValueError, "coverage must lie strictly between 0 and 1, got 1000"),
    ("hold_for", 2.5, TypeError, "hold_for must be the name or place of a column of X, or several, got 2.5"),
    ("hold_for", [["a"]], TypeError, r"hold_for must be the name or place of a column of X, or several, got \[\['a'"),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD_CHOICES)
def test_a_bad_choice_is_refused_by_fit(name, value, error, message):
    model = unfitted(**{name: value})
    with pytest.raises(error, match=message) as caught:
        model.fit(X, Y)
    if name not in ("interval_network", "random_state"):
        assert str(caught.value).startswith(name)
    assert_unfitted(model)


COUNT = "'auto' or a whole number of at least 1"
BAD_FIELDS = [
    (Split, "size", 1, f"lie {SHARE}, got 1"),
    (Split, "size", "some", f"lie {SHARE}, got 'some'"),
    (PaperLoss, "noise_weight", -0.1, "be a number of at least 0, got -0.1"),
    (PaperLoss, "sharpness_weight", float("nan"), "be a number of at least 0, got nan"),
    (PaperLoss, "steepness", 0.0, "be a positive number, got 0.0"),
    (QuantileLoss, "steepness", "steep", "be a positive number, got 'steep'"),
    (SigmaFit, "match_weight", -1.0, "be a number of at least 0, got -1.0"),
    (IQRFit, "match_weight", "much", "be a number of at least 0, got 'much'"),
    (Schedule, "learning_rate", 0, "be 'auto' or a positive number, got 0"),
    (Schedule, "learning_rate", "fast", "be 'auto' or a positive number, got 'fast'"),
    (Schedule, "mean_epochs", 0, f"be {COUNT}, got 0"),
    (Schedule, "interval_epochs", "ten", f"be {COUNT}, got 'ten'"),
    (Schedule, "max_rounds", 2.0, f"be {COUNT}, got 2.0"),
    (Schedule, "patience", -1, f"be {COUNT}, got -1"),
    (Schedule, "batch_size", "big", f"be {COUNT}, got 'big'"),
    (MLP, "hidden", 0, "be a whole number of at least 1, got 0"),
    (MLP, "layers", 0, "be a whole number of at least 1, got 0"),
    (MLP, "bins", -1, "be a whole number of at least 0, got -1"),
    (MLP, "dropout", 1.0, r"lie in \[0, 1\), got 1.0"),
]


@pytest.mark.parametrize(("part", "name", "value", "message"), BAD_FIELDS)
def test_a_bad_field_is_refused_when_the_object_is_made(part, name, value, message):
    make = inspect.unwrap(part.__init__)  # the checks of types in this test run would refuse some of them first
    with pytest.raises(ValueError, match=f"^{name} must {message}$"):
        make(object.__new__(part), **{name: value})


def test_groups_that_a_splitter_ignores_are_a_warning():
    with pytest.warns(UserWarning, match="groups parameter is ignored by KFold"):
        unfitted(folds=KFold(3)).fit(X, Y, groups=GROUPS)


# Networks and losses -------------------------------------------------------------------------------------------------


def one_too_many(n_features, n_outputs):
    return nn.Linear(n_features, n_outputs + 1)


def flat(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), nn.Flatten(0))


@pytest.mark.parametrize("network", [one_too_many, flat])
@pytest.mark.parametrize("name", ["network", "interval_network"])
def test_a_network_of_the_wrong_output_size_is_refused(network, name):
    model = unfitted(**{name: network})
    with pytest.raises(ValueError, match=r"must map .*to \(batch, 2\).*let its last layer have n_outputs = 2 units"):
        model.fit(X, Y)
    assert_unfitted(model)


class NaNNetwork(nn.Module):
    """Its outputs are NaN."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_features, n_outputs)

    def forward(self, x):
        return self.linear(x) / 0 * 0


class InfiniteLoss(SigmaFit):
    """A strategy whose loss is infinite."""

    def loss(self, outputs, y, target):
        return super().loss(outputs, y, target) + torch.inf


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": Schedule(max_rounds=2, learning_rate=1e12)},
        {"network": NaNNetwork},
        {"interval_network": NaNNetwork},
        {"matching": InfiniteLoss()},
    ],
)
@pytest.mark.parametrize("calibration", ["cross", "cv+"])
def test_a_loss_that_is_not_finite_stops_training(fitted, changes, calibration):
    for model in (unfitted(), fitted):
        model.set_params(calibration=calibration, **changes)
        with pytest.raises(NonFiniteLossError, match="NaN or infinite in training; lower learning_rate, or look for"):
            model.fit(X, Y)
        assert_unfitted(model)
    assert issubclass(NonFiniteLossError, FloatingPointError)


# Ctrl-C --------------------------------------------------------------------------------------------------------------


class Interrupted(SigmaFit):
    """A strategy in whose loss somebody presses Ctrl-C."""

    def __init__(self, after):
        super().__init__()
        object.__setattr__(self, "left", after)

    def loss(self, outputs, y, target):
        object.__setattr__(self, "left", self.left - 1)
        if self.left < 0:
            raise KeyboardInterrupt
        return super().loss(outputs, y, target)


class InterruptedNetwork(nn.Linear):
    """A network during whose predictions somebody presses Ctrl-C."""

    def forward(self, x):
        if not self.training:
            raise KeyboardInterrupt
        return super().forward(x)


@pytest.mark.parametrize("after", [0, 3, None])  # in the first round, in the second, or in the first outputs of I
@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_ctrl_c_leaves_the_model_unfitted_and_not_broken(fitted, after, calibration):
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    defaults = {"matching": "sigma", "interval_network": None, "calibration": calibration}
    for model in (unfitted(), fitted):
        changes = {"interval_network": InterruptedNetwork} if after is None else {"matching": Interrupted(after)}
        with pytest.raises(KeyboardInterrupt):
            model.set_params(**defaults | changes).fit(X, Y)
        assert_unfitted(model)
        assert_array_equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == threads
        model.set_params(**defaults).fit(X, Y)
        assert_array_equal(model.predict(X), unfitted(**defaults).fit(X, Y).predict(X))


# After fitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["predict", "predict_interval"])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:, :2], "X has 2 features, but MatchedRegressor is expecting 3 features"),
        (np.hstack([X, X]), "X has 6 features, but MatchedRegressor is expecting 3 features"),
        (spoilt(X, np.nan), "contains NaN in row 7, column 1, both counted from 0; every number must be finite"),
        (spoilt(X, np.inf), "Input X contains infinity in row 7, column 1"),
        (X.astype("datetime64[D]"), r"X must hold numbers, got datetime64\[D\]; convert it"),
        (X.astype(str), "strings.*[Cc]onvert your data to numeric"),
        (X[0], "Expected 2D array, got 1D array"),
        (X[:0], r"0 sample\(s\)"),
    ],
)
def test_bad_rows_at_prediction_are_refused_and_the_model_stays(fitted_once, verb, x, message):
    before = fitted_once.predict(X)
    with pytest.raises(ValueError, match=message):
        getattr(fitted_once, verb)(x)
    assert_array_equal(fitted_once.predict(X), before)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("level", [0.99, [0.5, 0.99]])
def test_a_level_above_the_highest_that_the_rows_have_ranks_for_is_refused(fitted_once, level, joint):
    # 60 rows: ranks up to 60 / 61 = .9836, of the grid up to .98.
    message = r"coverage must be at most 0.98, the highest level .* got 0.99; fit with more rows, or with this level in"
    with pytest.raises(ValueError, match=message):
        fitted_once.predict_interval(X, coverage=level, joint=joint)
    assert fitted_once.predict_interval(X, coverage=0.98, joint=joint).width.min() > 0


@pytest.mark.parametrize("share", [0.0, 1.0, [0.5, -0.1], "half"])
def test_levels_and_quantiles_outside_0_and_1_are_refused(fitted_once, share):
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1, got"):
        fitted_once.predict_quantiles(X, share)
    if not isinstance(share, str):
        with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1, got"):
            fitted_once.predict_interval(X, coverage=share)


# Warnings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split", None])
def test_a_constant_target_is_fitted_with_a_warning(calibration):
    model = unfitted(calibration=calibration, schedule=Schedule(max_rounds=5))
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        model.fit(X, np.full(N, 1000.0))
    interval = model.predict_interval(X)
    assert interval.contains(np.full(N, 1000.0)).mean() > 0.8
    assert interval.width.mean() < 0.5
    assert np.abs(model.predict(X) - 1000).max() < 0.5


@pytest.mark.parametrize("calibration", ["local", "cross"])
def test_a_target_with_two_values_is_fitted_with_a_warning_that_points_to_classification(calibration):
    y, model = np.where(X[:, 0] > 0, 2.5, -1.0), unfitted(calibration=calibration)
    line = "y has only two values, -1 and 2.5: if they are classes, take MatchedClassifier"
    with pytest.warns(TwoValuesWarning) as caught:
        model.fit(X, y)
    (message,) = [str(warning.message) for warning in caught]
    assert message == f"{line}; with calibration='local', intervals will end at them"
    ends = np.concatenate(list(model.predict_interval(X)))
    assert np.isin(ends, [-1.0, 2.5]).all() == (calibration == "local")


def test_one_of_several_targets_with_two_values_is_named_and_a_third_value_or_few_rows_are_no_sign_of_classes():
    two = np.where(X[:, 0] > 0, 1.0, 0.0)
    with pytest.warns(TwoValuesWarning, match="^column 1 of y has only two values, 0 and 1: "):
        unfitted().fit(X, np.stack([Y, two], axis=1))
    for y in (np.append(two[:-1], 2.0), two[:19]):
        unfitted(coverage=0.5).fit(X[: len(y)], y)  # in this test run a warning would be an error


def test_constant_columns_are_fitted_with_a_warning_and_have_no_effect():
    constant = np.hstack([X, np.full((N, 2), 7.0)])
    model = unfitted()
    with pytest.warns(ConstantDataWarning, match=r"2 of 5 columns of X are constant .*column 3"):
        model.fit(constant, Y)
    y_hat = model.predict(constant)
    other = constant.copy()
    other[:, 4] = 8.0
    with pytest.warns(ExtrapolationWarning, match="60 of 60 rows lie outside .*column 4"):
        assert_array_equal(model.predict(other), y_hat)


def test_an_extreme_value_is_moved_to_the_border_with_a_warning(fitted_once):
    border, extreme = X.copy(), X.copy()
    border[:4, 1] = X[:, 1].max()
    extreme[:4, 1] = [1e3, 1e10, 1e100, 1e300]
    expected = fitted_once.predict(border)
    with pytest.warns(ExtrapolationWarning, match=r"4 of 60 rows .*in column 1.* not to be trusted"):
        assert_array_equal(fitted_once.predict(extreme), expected)
    with pytest.warns(ExtrapolationWarning, match="column 1"):
        width = fitted_once.predict_interval(extreme).width
    assert_array_equal(width, fitted_once.predict_interval(border).width)


# Wrong types, which the shape checks of this test run would refuse before our own -------------------------------------

SCRIPT = """
import json, warnings
import numpy as np
from scipy import sparse
from coverwell import MLP, MatchedRegressor, Schedule

warnings.simplefilter("error")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X[:, 0] + rng.normal(size=60)
MODEL = {"network": MLP(hidden=4, layers=2), "folds": 2, "repeats": 1, "schedule": Schedule(max_rounds=1)}
DATA = {"sparse X": (sparse.csr_matrix(X), y), "no X": (None, y), "no y": (X, None)}
CHOICES = {"matching": 3, "network": "mlp", "interval_network": 3, "calibration": 3, "schedule": 10}
outcomes = {}


def note(name, model, act):
    try:
        act()
    except Exception as error:
        learned = sorted(set(vars(model)) - set(model.get_params()))
        outcomes[name] = [type(error).__name__, str(error), learned]


for name, (bad_X, bad_y) in DATA.items():
    model = MatchedRegressor(**MODEL).fit(X, y)
    note(name, model, lambda: model.fit(bad_X, bad_y))
for name, value in CHOICES.items():
    model = MatchedRegressor(**MODEL | {name: value})
    note(name, model, lambda: model.fit(X, y))
model = MatchedRegressor(**MODEL).fit(X, y)
note("level", model, lambda: model.predict_interval(X, coverage="high"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.predict(1000 * X)
    model.predict_interval(1000 * X)
outcomes["places"] = [warning.filename for warning in caught]
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def outcomes():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("sparse X", "TypeError", "Sparse data was passed for X, but dense data is required"),
        ("no X", "ValueError", "Expected 2D array, got scalar array"),
        ("no y", "ValueError", "requires y to be passed, but the target y is None"),
        ("matching", "TypeError", "matching must be a name or an object with the methods of .*Matching, got 3"),
        ("network", "TypeError", r"network must be a recipe such as MLP\(...\) or a function .*got 'mlp'"),
        ("interval_network", "TypeError", r"network must be a recipe such as MLP\(...\) or a function .*got 3"),
        ("calibration", "TypeError", "calibration must be a name or an object with .*Calibration, got 3"),
        ("schedule", "TypeError", r"schedule must be a Schedule\(...\) or None, got 10"),
    ],
)
def test_a_wrong_type_is_refused_with_our_message(outcomes, name, error, message):
    kind, raised, learned = outcomes[name]
    assert kind == error
    assert re.search(message, raised)
    assert learned == []


def test_a_wrong_type_at_prediction_is_refused_and_the_model_stays(outcomes):
    kind, message, learned = outcomes["level"]
    assert (kind, message) == ("ValueError", f"coverage must lie {SHARE}, got 'high'")
    assert "predictor_" in learned


def test_the_warning_about_an_extreme_value_points_at_the_callers_line(outcomes):
    assert outcomes["places"] == ["<string>", "<string>"]
