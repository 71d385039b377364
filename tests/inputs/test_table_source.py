"""Estimators on data frames with text, dates and gaps, and on frames of numbers alone, which are arrays under names."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from coverwell import MLP, MatchedClassifier, MatchedRegressor, baselines
from coverwell.calibration import Split
from coverwell.errors import ColumnWarning, ExtrapolationWarning
from coverwell.options import Schedule

N = 60
RNG = np.random.default_rng(0)
AREA, HEATING = RNG.uniform(30, 200, N), np.array(["gas", "oil", "wood"])[np.arange(N) % 3]
Y = AREA + 20 * (HEATING == "oil") + RNG.normal(size=N)
CONTENT = {
    "area": [None if i % 7 == 0 else float(a) for i, a in enumerate(AREA)],
    "heating": HEATING.tolist(),
    "garden": (RNG.uniform(size=N) < 0.5).tolist(),
    "sold": [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(N)],
}
FRAME, POLARS = pd.DataFrame(CONTENT), pl.DataFrame(CONTENT)
NUMBERS = pd.DataFrame({"area": AREA, "rooms": np.arange(N) % 5, "garden": CONTENT["garden"]})

MATCHED = (MatchedRegressor, MatchedClassifier)
every = pytest.mark.parametrize("kind", [*MATCHED, *(getattr(baselines, name) for name in baselines.__all__)])


def unfitted(kind=MatchedRegressor, **changes):
    brief = {"folds": 3, "repeats": 1, "schedule": Schedule(max_rounds=2)}
    own = brief if kind in MATCHED else {"max_epochs": 5}
    network = MLP(hidden=8, layers=2, bins=4, dropout=0.2)
    return kind(**{"network": network, "random_state": 0} | own | changes)


@pytest.fixture(scope="module")
def fitted():
    """One fitted model, to be left as it is."""
    return unfitted().fit(FRAME, Y)


def targets_for(kind):
    return np.median(Y) < Y if is_classifier(kind()) else Y


def assert_same(one, X, other, X_other):
    assert_array_equal(one.predict(X), other.predict(X_other))
    if is_classifier(one):
        assert_array_equal(one.predict_proba(X), other.predict_proba(X_other))
        assert_array_equal(np.asarray(one.predict_set(X)), np.asarray(other.predict_set(X_other)))
        return
    for bound, same in zip(one.predict_interval(X), other.predict_interval(X_other), strict=True):
        assert_array_equal(bound, same)


@every
def test_a_frame_is_fitted_as_the_numbers_that_its_columns_become(kind):
    alike = {"calibration": "cross"} if kind is MatchedRegressor else {}  # "local" knows that a number stands for a gap
    y = targets_for(kind)
    model = unfitted(kind, **alike).fit(FRAME, y)
    table = model.columns_.transform(FRAME)
    assert table.shape[1] == 2 + 3 + 1 + 1 + 2 + 7
    assert_same(model, FRAME, unfitted(kind, **alike).fit(table, y), table)


@every
def test_a_frame_of_numbers_is_fitted_as_an_array(kind):
    y = targets_for(kind)
    model = unfitted(kind).fit(NUMBERS, y)
    array = NUMBERS.to_numpy(dtype=np.float64)
    assert_same(model, NUMBERS, unfitted(kind).fit(array, y), array)


def test_pandas_and_polars_give_the_same_model(fitted):
    assert_same(unfitted().fit(POLARS, Y), POLARS, fitted, FRAME)
    assert_same(fitted, POLARS, fitted, FRAME)


def test_names_are_those_of_the_frame_and_inputs_have_their_own(fitted):
    assert_array_equal(fitted.feature_names_in_, list(CONTENT))
    assert fitted.n_features_in_ == 4
    assert fitted.source_.names[:5] == ("area", "area (missing)", "heating=gas", "heating=oil", "heating=wood")
    assert fitted.source_.row_shape == (len(fitted.source_.names),) == (16,)
    numbers = unfitted().fit(NUMBERS, Y)
    for names in (numbers.source_.names, numbers.feature_names_in_):
        assert_array_equal(names, ["area", "rooms", "garden"])


def test_another_order_and_more_columns_change_nothing(fitted):
    other = FRAME[["sold", "garden", "heating", "area"]].assign(colour="red")
    assert_same(fitted, other, fitted, FRAME)


def houses(n, rng):
    """Rows with gaps, and with a town of which many are rare: some come up after training for the first time."""
    area, town = rng.uniform(30, 200, n), rng.geometric(0.08, n)
    frame = pl.DataFrame({"area": area, "town": [f"town {t}" for t in town], "gap": rng.uniform(size=n) < 0.1})
    price = area + 10 * np.sin(town) + rng.normal(size=n) * area / 10
    return frame.select("town", area=pl.when(~pl.col("gap")).then("area")), price


def test_calibrated_intervals_cover_new_rows_with_gaps_and_rare_and_unseen_levels():
    rng, level, n_calibration, n_new = np.random.default_rng(1), 0.9, 200, 4000
    model = unfitted(coverage=level, calibration=Split(size=0.5)).fit(*houses(2 * n_calibration, rng))
    frame, price = houses(n_new, rng)
    lower, upper = model.predict_interval(frame)
    # The coverage given the calibration rows is a beta variable; that of the new rows is binomial around it.
    deviation = np.sqrt(level * (1 - level) * (1 / n_calibration + 1 / n_new))
    assert abs(((lower <= price) & (price <= upper)).mean() - level) < 4 * deviation


@pytest.fixture(scope="module")
def of_numbers():
    """One model fitted on numbers alone, to be left as it is."""
    return unfitted().fit(NUMBERS, Y)


with_gap = {
    "pandas": NUMBERS.assign(area=[np.nan, *AREA[1:]]),
    "pandas nullable": NUMBERS.assign(area=pd.array([None, *AREA[1:]], dtype="Float64")),
    "polars": pl.DataFrame(NUMBERS).with_columns(area=pl.Series([None, *AREA[1:]])),
}


@pytest.mark.parametrize("frame", with_gap.values(), ids=with_gap)
def test_a_first_gap_among_numbers_is_filled_with_the_median_and_a_warning(of_numbers, frame):
    filled = NUMBERS.assign(area=[np.sort(AREA)[(N - 1) // 2], *AREA[1:]])
    said = "'area' is missing in 1 of 60 rows, never in training; read as the median .*no interval is to be trusted"
    with pytest.warns(ColumnWarning, match=said):
        assert_same(of_numbers, frame, of_numbers, filled)


STAMPS = pd.to_datetime(["2024-05-01"] * N)
OTHER_KINDS = {
    "text": (
        NUMBERS.assign(rooms=["3"] * 5 + ["three"] * 55),
        r"'rooms' must hold numbers, got text such as 'three' in row 5 \(counted from 0\); convert",
    ),
    "nothing but dates": (
        pd.DataFrame(dict.fromkeys(NUMBERS, STAMPS)),
        "'area' must hold numbers, got times.*'rooms' must hold numbers, got times.*'garden' must hold booleans",
    ),
    "infinity": (NUMBERS.assign(area=[1.0, np.inf] * 30), "column 'area' must hold finite numbers, .* in row 1"),
    "another order": (NUMBERS[["rooms", "area", "garden"]], "Feature names must be in the same order"),
    "another name": (NUMBERS.rename(columns={"area": "size"}), "feature names should match"),
}


@pytest.mark.parametrize("verb", ["predict", "predict_interval"])
@pytest.mark.parametrize(("X", "said"), OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_a_model_of_numbers_refuses_other_columns_by_name(of_numbers, verb, X, said):
    with pytest.raises(ValueError, match=said):
        getattr(of_numbers, verb)(X)


def test_a_model_of_named_numbers_takes_arrays_with_scikit_learns_warning(of_numbers):
    for nameless in (NUMBERS.to_numpy(np.float64), NUMBERS.astype(float).set_axis(range(3), axis=1)):
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            assert_array_equal(of_numbers.predict(nameless), of_numbers.predict(NUMBERS))


def test_a_frame_without_names_is_an_array():
    nameless = NUMBERS.set_axis(range(3), axis=1)
    model = unfitted().fit(nameless, Y)
    assert model.columns_ is None
    assert_array_equal(model.predict(nameless.set_axis([7, 8, 9], axis=1)), model.predict(nameless))
    gap = nameless.astype(float)
    gap.iloc[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN in row 3, column 1 \('1'\), both counted from 0"):
        model.predict(gap)
    said = r"X must hold numbers, as in training, but column '0' holds datetime64.*, such as 2024-05-01.* in row 0"
    with pytest.raises(ValueError, match=said):
        model.predict(pd.DataFrame(dict.fromkeys(range(3), STAMPS)))


def test_an_array_with_a_gap_is_told_by_row_and_column():
    array = NUMBERS.to_numpy(np.float64)
    array[[4, 9], [2, 0]] = np.nan, np.inf
    with pytest.raises(
        ValueError, match=r"contains NaN in row 4, column 2, both counted from 0; .* fit on a data frame"
    ):
        unfitted().fit(array, Y)


def test_a_value_far_outside_is_named_by_its_column(fitted):
    with pytest.warns(ExtrapolationWarning, match=r"1 of 60 rows lie outside .* \(in area\)"):
        fitted.predict(FRAME.assign(area=[1e6, *CONTENT["area"][1:]]))


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=["pandas", "polars"])
def test_frames_pass_through_pipelines_and_searches(fitted, frame):
    pipeline = make_pipeline(FunctionTransformer(), unfitted())
    search = GridSearchCV(pipeline, {"matchedregressor__shape": ["both"]}, cv=KFold(2)).fit(frame, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].columns_ == fitted.columns_


def test_a_refit_forgets_the_columns():
    model = unfitted().fit(FRAME, Y).fit(NUMBERS, Y)
    assert_same(model, NUMBERS, unfitted().fit(NUMBERS, Y), NUMBERS)
    assert model.fit(NUMBERS.to_numpy(np.float64), Y).columns_ is None


def test_a_model_that_goes_on_reads_as_it_did():
    model = unfitted(warm_start=True, folds=KFold(3)).fit(FRAME, Y)
    columns = model.columns_
    with pytest.warns(ColumnWarning, match="levels that were never seen"):
        model.fit(FRAME.assign(heating=["sun", *HEATING[1:]]), Y)
    assert model.columns_ is columns


def test_a_model_that_goes_on_from_numbers_takes_no_text():
    model = unfitted(warm_start=True, folds=KFold(3)).fit(NUMBERS, Y)
    before = model.predict(NUMBERS)
    with pytest.raises(ValueError, match="'garden' must hold booleans, got text such as 'gas' in row 0"):
        model.fit(NUMBERS.assign(garden=HEATING), Y)
    assert_array_equal(model.predict(NUMBERS), before)


def test_a_model_that_goes_on_finds_its_numbers_by_name():
    model = unfitted(warm_start=True, folds=KFold(3)).fit(NUMBERS, Y).fit(NUMBERS[["rooms", "garden", "area"]], Y)
    same = unfitted(warm_start=True, folds=KFold(3)).fit(NUMBERS, Y).fit(NUMBERS, Y)
    assert_same(model, NUMBERS[["rooms", "garden", "area"]], same, NUMBERS)


LARGE = FRAME.assign(area=[1e200, 1.0, np.nan] * 20)
BAD = {
    "nothing that tells rows apart": (pd.DataFrame({"d": ["red"] * N}), Y, ValueError, "no column tells rows apart"),
    "numbers too large to square": (LARGE, Y, ValueError, r"X must lie within 1e\+150"),
    "lists": (FRAME.assign(area=[[1]] * N), Y, TypeError, "column 'area' must hold numbers, booleans, text or times"),
    "a lazy frame": (POLARS.lazy(), Y, TypeError, r"got LazyFrame; use \.collect"),
    "no rows": (FRAME[:0], Y[:0], ValueError, "must have rows and columns, got 0 rows"),
    "another length": (FRAME, Y[1:], ValueError, r"inconsistent numbers of samples: \[60, 59\]"),
    "a target that is text": (FRAME, HEATING, ValueError, "y must hold numbers|could not convert"),
    "a target that is missing": (FRAME, [np.nan, *Y[1:]], ValueError, "Input y contains NaN"),
}


@pytest.mark.parametrize(("X", "y", "error", "said"), BAD.values(), ids=BAD)
def test_a_bad_frame_leaves_the_model_unfitted(X, y, error, said):
    model = unfitted()
    with pytest.raises(error, match=said):
        model.fit(X, y)
    assert not hasattr(model, "columns_")
    assert not hasattr(model, "source_")
    with pytest.raises(NotFittedError):
        model.predict(FRAME)


BAD_LATER = {
    "an array": (np.zeros((3, 4)), TypeError, "must be a data frame of pandas or polars, .* got ndarray"),
    "a column too few": (FRAME.drop(columns="area"), ValueError, "but 'area' is missing"),
    "another kind": (FRAME.assign(area="big"), ValueError, "'area' must hold numbers, got text such as 'big'"),
    "no rows": (FRAME[:0], ValueError, r"0 sample\(s\)"),
}


@pytest.mark.parametrize("verb", ["predict", "predict_interval"])
@pytest.mark.parametrize(("X", "error", "said"), BAD_LATER.values(), ids=BAD_LATER)
def test_bad_new_rows_are_refused_and_the_model_stays(fitted, verb, X, error, said):
    before = fitted.predict(FRAME)
    with pytest.raises(error, match=said):
        getattr(fitted, verb)(X)
    assert_array_equal(fitted.predict(FRAME), before)
