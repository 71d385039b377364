"""Intervals around regressors of every kind: honest, calibrated, in files where that is possible."""

import json
import pickle
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import ensemble, linear_model
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, TimeSeriesSplit, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeRegressor

import coverwell
from coverwell import Forecaster, IntervalAround, TableFiles, fit_together
from coverwell.calibration import Split
from coverwell.cli import main
from coverwell.description import ModelDescription
from coverwell.errors import ConstantDataWarning
from coverwell.options import coverage_rank
from coverwell.plots.figures import rounds_figure
from coverwell.report import write_report
from tests.synthetic import laws

LAW = laws()["many inputs"]
N = 400
X, y = LAW.draw(N, random_state=0)
X_NEW, _ = LAW.draw(2000, random_state=1)
LEVELS = 0.5, 0.9

PORTABLE = [
    LinearRegression(),
    Ridge(),
    linear_model.Lasso(0.01),
    linear_model.HuberRegressor(max_iter=1000),
    DecisionTreeRegressor(min_samples_leaf=5),
    ensemble.RandomForestRegressor(15),
    ensemble.ExtraTreesRegressor(15),
    ensemble.GradientBoostingRegressor(n_estimators=30),
    ensemble.HistGradientBoostingRegressor(max_iter=20),
    make_pipeline(StandardScaler(), Ridge()),
    GridSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0]}, cv=3),
]
OTHERS = [
    KNeighborsRegressor(10),
    SVR(C=10.0),
    KernelRidge(0.1, kernel="rbf", gamma=0.1),
    GaussianProcessRegressor(RBF(2.0) + WhiteKernel(0.5), optimizer=None, normalize_y=True),
    make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=20, early_stopping=True, learning_rate_init=0.05)),
    PLSRegression(3),
    TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh),
    ensemble.VotingRegressor([("line", Ridge()), ("near", KNeighborsRegressor())]),
    ensemble.StackingRegressor([("line", Ridge()), ("tree", DecisionTreeRegressor(max_depth=4))], cv=3),
    ensemble.BaggingRegressor(DecisionTreeRegressor(min_samples_leaf=3), 10),
]
BOOSTERS = {"lightgbm": "LGBMRegressor", "xgboost": "XGBRegressor", "catboost": "CatBoostRegressor"}


def around(estimator=None, coverage=0.9, **options):
    return IntervalAround(Ridge() if estimator is None else estimator, coverage, **{"random_state": 0, **options})


def exact_coverage(model, levels=LEVELS):
    """The share of new targets inside at each level, from the law itself."""
    lower, upper = model.predict_interval(X_NEW, coverage=levels)
    return np.array([LAW.exact_coverage(X_NEW, *ends).mean() for ends in zip(lower.T, upper.T, strict=True)])


def kth_smallest(values, level):
    return np.sort(values)[coverage_rank(level, len(values)) - 1]


def standard_error(n, levels=LEVELS):
    """Of the coverage of new rows, given the n rows whose ranks set the widths."""
    return np.sqrt([level * (1 - level) / (n + 2) for level in levels])


def name_of(estimator):
    return " ".join(str(estimator).split())


# Statistics.


@pytest.mark.parametrize("estimator", [*PORTABLE, *OTHERS], ids=name_of)
def test_new_rows_are_covered_as_asked(estimator):
    model = around(estimator, LEVELS).fit(X, y)
    assert (np.abs(exact_coverage(model) - LEVELS) < 3 * standard_error(N)).all()
    assert_allclose(model.predict(X_NEW), np.ravel(model.estimators_[0].predict(X_NEW)), rtol=1e-6)


@pytest.mark.parametrize("package", BOOSTERS)
def test_boosters_of_others_are_covered_as_asked(package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    kind = getattr(pytest.importorskip(package), BOOSTERS[package])
    model = around(kind(n_estimators=30, verbose=0), LEVELS).fit(X, y)
    assert (np.abs(exact_coverage(model) - LEVELS) < 3 * standard_error(N)).all()


@pytest.mark.parametrize("estimator", [Ridge(), KNeighborsRegressor(10)], ids=str)
@pytest.mark.parametrize("calibration", ["cross", "cv+", "split", Split(0.5)], ids=str)
def test_every_calibration_covers_as_asked(estimator, calibration):
    model = around(estimator, LEVELS, calibration=calibration).fit(X, y)
    n_ranked = {"split": N // 5, Split(0.5): N // 2}.get(calibration, N)
    assert (np.abs(exact_coverage(model) - LEVELS) < 3 * standard_error(n_ranked)).all()
    assert ModelDescription(model).n_ranked == n_ranked
    assert [part.shape for part in ModelDescription(model).by_round] == [(0, 1), (0, 1, 2), (0, 1, 2)]  # no rounds


def test_local_widths_follow_the_noise():
    law = laws()["heteroscedastic"]
    model = around(KNeighborsRegressor(20)).fit(*law.draw(600, random_state=0))
    rows = np.linspace(0.01, 0.99, 99)[:, None]
    left, _, right = model.predict_interval(rows).width.reshape(3, 33).mean(axis=1)
    assert left < 0.7 * right  # 0.35 in truth, 1 for a constant width
    constant = around(KNeighborsRegressor(20), calibration="cross").fit(*law.draw(600, random_state=0))
    assert np.ptp(constant.predict_interval(rows).width) < 1e-9


def test_a_regressor_that_repeats_its_training_rows_gets_no_zero_width():
    folds = KFold(5)
    model = around(KNeighborsRegressor(1), calibration="cross", folds=folds).fit(X, y)
    assert_array_equal(model.predict(X), y)
    residual = y - cross_val_predict(KNeighborsRegressor(1), X, y, cv=folds)
    assert_allclose(model.predict_interval(X).width / 2, kth_smallest(np.abs(residual), 0.9), atol=1e-5)
    # One row is the neighbour of several, so that ranks vary more than those of independent residuals.
    local = exact_coverage(around(KNeighborsRegressor(1), LEVELS).fit(X, y))
    assert (local > LEVELS - 3 * standard_error(N)).all()


# Twins.


def test_cross_has_the_width_of_the_ranked_residuals():
    folds = KFold(4)
    model = around(LinearRegression(), LEVELS, folds=folds, calibration="cross").fit(X, y)
    out_of_fold = cross_val_predict(LinearRegression(), X, y, cv=folds)
    assert_allclose(model.out_of_fold_.prediction[:, 0], out_of_fold, rtol=1e-12)
    lower, upper = model.predict_interval(X_NEW)
    prediction = LinearRegression().fit(X, y).predict(X_NEW)[:, None]
    half_width = [kth_smallest(np.abs(y - out_of_fold), level) for level in LEVELS]
    assert_allclose(lower, prediction - half_width, rtol=1e-12)
    assert_allclose(upper, prediction + half_width, rtol=1e-12)


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_ends_that_are_values_of_the_target_fall_short_of_them_by_nothing(calibration):
    # A tree with small leaves and whole targets often misses by a whole number: by the last bits, no more.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.round(2 * X[:, 0] + rng.normal(size=200))
    tree = FrozenEstimator(DecisionTreeRegressor(random_state=0).fit(X[:50], y[:50]))
    model = IntervalAround(tree, [0.6, 0.8, 0.95], calibration=calibration, random_state=0).fit(X[50:], y[50:])
    lower, upper = model.predict_interval(X)
    assert_allclose(lower, np.round(lower), rtol=0, atol=1e-13)
    assert_allclose(upper, np.round(upper), rtol=0, atol=1e-13)


@pytest.mark.parametrize("estimator", [LinearRegression(), KNeighborsRegressor(5)], ids=str)
def test_split_has_the_width_of_the_residuals_of_rows_that_were_kept(estimator):
    model = around(estimator, calibration="split").fit(X, y)
    kept = np.isnan(model.out_of_fold_.prediction[:, 0])
    fitted = clone(estimator).fit(X[~kept], y[~kept])
    assert kept.sum() == N // 5
    assert_allclose(model.predict(X_NEW), fitted.predict(X_NEW), rtol=1e-9)
    half_width = kth_smallest(np.abs(y - fitted.predict(X))[kept], 0.9)
    assert_allclose(model.predict_interval(X_NEW).width, 2 * half_width, rtol=1e-9)


@pytest.mark.parametrize("estimator", [LinearRegression(), KNeighborsRegressor(5)], ids=str)
@pytest.mark.parametrize("folds", [KFold(4), LeaveOneOut()], ids=str)
def test_cv_plus_has_the_bounds_of_its_authors(estimator, folds):
    """Barber et al. 2021: order statistics of each fold's prediction less and plus the residuals it left."""
    rows, targets = X[:40], y[:40]
    model = around(estimator, folds=folds, calibration="cv+").fit(rows, targets)
    below, above = [], []
    for train, left_out in folds.split(rows):
        fitted = clone(estimator).fit(rows[train], targets[train])
        residual = np.abs(targets[left_out] - fitted.predict(rows[left_out]))[:, None]
        below.append(fitted.predict(X_NEW) - residual)
        above.append(fitted.predict(X_NEW) + residual)
    k, prediction = coverage_rank(0.9, 40), model.predict(X_NEW)
    lower, upper = model.predict_interval(X_NEW)
    assert_allclose(lower, np.minimum(np.sort(np.concatenate(below), axis=0)[40 - k], prediction), rtol=1e-9)
    assert_allclose(upper, np.maximum(np.sort(np.concatenate(above), axis=0)[k - 1], prediction), rtol=1e-9)


def test_a_frozen_regressor_stays_and_all_rows_set_the_widths(tmp_path):
    frozen = LinearRegression().fit(*LAW.draw(50, random_state=2))
    model = around(FrozenEstimator(frozen), calibration="cross").fit(X, y)
    assert_allclose(model.predict(X_NEW), frozen.predict(X_NEW), rtol=1e-12)
    half_width = kth_smallest(np.abs(y - frozen.predict(X)), 0.9)
    assert_allclose(model.predict_interval(X_NEW).width, 2 * half_width, atol=1e-5)
    coverwell.save(model, tmp_path / "model.safetensors")
    assert_array_equal(coverwell.load(tmp_path / "model.safetensors").predict(X_NEW), model.predict(X_NEW))


# Rows, groups, targets and levels.


def flats(n=300):
    rng = np.random.default_rng(3)
    district, area = rng.choice(["north", "south", "west"], n), rng.uniform(30, 120, n)
    area[::17] = np.nan
    built = pd.to_datetime("1990-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), unit="D")
    rent = 5 * np.nan_to_num(area, nan=60.0) + 100 * (district == "south") + rng.normal(0, 20, n)
    return pd.DataFrame({"district": district, "area": area, "built": built}), pd.Series(rent, name="rent")


def encoded():
    """A pipeline that reads columns by their names: text, and numbers with gaps."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((OneHotEncoder(), ["district"]), (numbers, ["area"])), Ridge())


@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split"])
def test_a_pipeline_encodes_a_frame_itself(calibration):
    table, rent = flats()
    model = around(encoded(), calibration=calibration).fit(table, rent)
    expected = np.mean([one.predict(table) for one in model.estimators_], axis=0)
    assert_allclose(model.predict(table), expected, rtol=1e-12)
    assert model.columns_.kinds == {"district": "text", "area": "numbers", "built": "times"}
    interval = model.predict_interval(table.iloc[5:9])
    assert list(interval.to_frame().index) == [5, 6, 7, 8]
    assert interval.contains(rent[5:9]).shape == (4,)
    assert 0.8 < model.predict_interval(table).contains(rent).mean() <= 1.0


def test_a_polars_frame_is_given_as_it_is():
    table, rent = flats()
    model = around(encoded()).fit(pl.from_pandas(table), pl.from_pandas(rent))
    same = around(encoded()).fit(table, rent)
    assert_allclose(model.predict_interval(pl.from_pandas(table)).lower, same.predict_interval(table).lower, rtol=1e-9)


def test_gaps_are_left_to_a_regressor_that_can_read_them():
    table, rent = flats()
    boosting = ensemble.HistGradientBoostingRegressor(max_iter=20)
    model = around(boosting).fit(table[["area"]], rent)
    expected = boosting.fit(table[["area"]], rent).predict(table[["area"]])
    assert_allclose(model.predict(table), expected, rtol=1e-9)  # other columns are not looked at


def test_groups_are_held_out_whole():
    patient = np.repeat(np.arange(60), 5)
    level = np.random.default_rng(0).normal(size=60)[patient]
    rows = patient[:, None] + 0.01 * np.random.default_rng(1).normal(size=(300, 1))
    together = around(KNeighborsRegressor(1)).fit(rows, level, groups=patient)
    apart = around(KNeighborsRegressor(1)).fit(rows, level)
    equal = around(KNeighborsRegressor(1)).fit(rows.round(), level)  # equal rows need no group
    assert (np.abs(apart.out_of_fold_.prediction[:, 0] - level) < 1e-6).mean() > 0.9  # its own patient was there
    for held_out in (together, equal):
        assert (np.abs(held_out.out_of_fold_.prediction[:, 0] - level) > 1e-6).all()


@pytest.mark.parametrize("estimator", [Ridge(), KNeighborsRegressor(10)], ids=str)
@pytest.mark.parametrize("calibration", ["local", "cross", "cv+", "split"])
def test_boxes_contain_all_targets_together(estimator, calibration):
    rng = np.random.default_rng(4)
    Y = np.stack([y, 100 * rng.normal(size=N) + X[:, 0]], axis=1)
    of_law, noise = LAW.given(X_NEW).rvs(random_state=5), 100 * rng.normal(size=2000)
    Y_new = np.stack([of_law, noise + X_NEW[:, 0]], axis=1)
    model = around(estimator, calibration=calibration).fit(X, Y)
    assert model.predict(X_NEW).shape == model.predict_interval(X_NEW).lower.shape == (2000, 2)
    lower, upper = model.predict_interval(X_NEW, joint=True)
    inside = ((lower <= Y_new) & (Y_new <= upper)).all(axis=1).mean()
    n_ranked = N // 5 if calibration == "split" else N
    assert abs(inside - 0.9) < 3 * np.sqrt(0.09 / n_ranked + 0.09 / 2000)
    width = (upper - lower).mean(axis=0)
    assert 10 < width[1] / width[0] < 100  # each target in its own unit: about 330 beside 10


def test_any_level_after_the_fit():
    model = around(ensemble.ExtraTreesRegressor(15)).fit(X, y)
    levels = (0.25, 0.6, 0.73, 0.97)
    assert (np.abs(exact_coverage(model, levels) - levels) < 3 * standard_error(N, levels)).all()
    quantiles = model.predict_quantiles(X_NEW, [0.05, 0.95])
    assert_allclose(quantiles, np.stack(list(model.predict_interval(X_NEW)), axis=1), rtol=1e-9)
    assert model.predict_distribution(X_NEW[:3]).sample(5, random_state=0).shape[0] in (3, 5)


def test_rows_that_no_fold_leaves_out_have_no_out_of_fold_prediction():
    model = around(folds=TimeSeriesSplit(4)).fit(X, y)
    assert np.isnan(model.out_of_fold_.prediction[:80]).all()
    assert np.isfinite(model.out_of_fold_.prediction[80:]).all()


def test_one_seed_gives_one_model_also_of_a_random_regressor():
    forest = ensemble.RandomForestRegressor(5)
    one, same, other = (around(forest, random_state=seed).fit(X, y) for seed in (1, 1, 2))
    assert_array_equal(one.predict_interval(X_NEW).lower, same.predict_interval(X_NEW).lower)
    assert (one.predict(X_NEW) != other.predict(X_NEW)).any()
    assert forest.random_state is None


def test_models_fitted_together_are_those_fitted_alone():
    estimator = KNeighborsRegressor(5)
    options = [{"coverage": level, "random_state": seed, "calibration": "cv+"} for level, seed in ((0.8, 1), (0.9, 2))]
    alone = [around(estimator, **own).fit(X, y) for own in options]
    together = [around(estimator, **own) for own in options]
    fit_together(together, [(X, y, None)] * 2)
    for one, other in zip(alone, together, strict=True):
        assert_array_equal(one.predict_interval(X_NEW).lower, other.predict_interval(X_NEW).lower)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("estimator", [ensemble.ExtraTreesRegressor(15), KNeighborsRegressor(10)], ids=str)
@pytest.mark.parametrize("calibration", ["local", "cv+"])
def test_a_gpu_gives_the_same_numbers(estimator, calibration):
    there, here = (around(estimator, calibration=calibration, device=name).fit(X, y) for name in ("cuda", "cpu"))
    assert_allclose(there.predict_interval(X_NEW).lower, here.predict_interval(X_NEW).lower, rtol=1e-6)


def test_a_bar_shows_the_folds(capfd):
    for calibration in ("local", "cv+"):
        around(folds=3, calibration=calibration, verbose=1).fit(X, y)
        shown = capfd.readouterr().err
        assert "folds: 100%" in shown
        assert "round" not in shown
        assert "3/3" in shown
        assert "calibrated [00:0" in shown
    around().fit(X, y)
    assert capfd.readouterr().err == ""


# Files.


@pytest.mark.parametrize("estimator", PORTABLE, ids=name_of)
def test_a_model_file_gives_the_same_bits(estimator, tmp_path):
    model = around(estimator, LEVELS).fit(X, y)
    coverwell.save(model, tmp_path / "model.safetensors")
    again = coverwell.load(tmp_path / "model.safetensors")
    for levels in (LEVELS, 0.73):
        for mine, theirs in zip(*(one.predict_interval(X_NEW, levels) for one in (model, again)), strict=True):
            assert_array_equal(mine, theirs)
    assert again.estimator == " ".join(str(estimator).split())
    with pytest.raises(TypeError, match="estimator must be a regressor with fit, predict and get_params"):
        again.fit(X, y)


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_files_hold_every_calibration_and_several_targets(calibration, tmp_path):
    table, Y = pd.DataFrame(X[:, :2], columns=["a", "b"]), np.stack([y, y**2], axis=1)
    model = around(calibration=calibration).fit(table, Y)
    coverwell.save(model, tmp_path / "model.safetensors")
    again, rows = coverwell.load(tmp_path / "model.safetensors"), table[:10]
    assert_array_equal(again.predict_interval(rows, joint=True).lower, model.predict_interval(rows, joint=True).lower)


@pytest.mark.parametrize("estimator", [make_pipeline(StandardScaler(), Ridge()), PORTABLE[8]], ids=str)
def test_onnx_gives_the_same_numbers(estimator, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    model = around(estimator).fit(X, y)
    coverwell.to_onnx(model, tmp_path / "model.onnx")
    session = ort.InferenceSession(tmp_path / "model.onnx")
    prediction, lower, upper = session.run(None, {"X": X_NEW[:50]})
    interval = model.predict_interval(X_NEW[:50])
    for mine, theirs in ((model.predict(X_NEW[:50]), prediction), (interval.lower, lower), (interval.upper, upper)):
        assert_allclose(np.ravel(theirs), mine, rtol=1e-5)


@pytest.mark.parametrize("estimator", OTHERS, ids=name_of)
def test_other_regressors_are_pickled_and_say_so(estimator, tmp_path):
    model = around(estimator, calibration="cross").fit(X, y)
    must = "cannot be written to a file: it takes linear models, trees, .*; pickle the model instead$"
    for write in (coverwell.save, coverwell.to_onnx):
        with pytest.raises(TypeError, match=must) as caught:
            write(model, tmp_path / "model")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_interval(X_NEW).upper, model.predict_interval(X_NEW).upper)


def test_a_linear_model_on_columns_that_are_no_numbers_cannot_be_saved(tmp_path):
    table, rent = flats()
    with pytest.raises(TypeError, match="on columns of numbers without gaps; pickle"):
        coverwell.save(around(encoded()).fit(table, rent), tmp_path / "model")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of named columns in a file, beside a table with known targets."""
    folder = tmp_path_factory.mktemp("around")
    table = pd.DataFrame(X[:, :4], columns=list("abcd"))
    model = around(PORTABLE[5], LEVELS).fit(table, pd.Series(y, name="y"))
    coverwell.save(model, folder / "model.safetensors")
    table.assign(y=y).to_csv(folder / "test.csv", index=False)
    return folder


def run(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_line_reads_its_files(saved, tmp_path):
    model, test = saved / "model.safetensors", saved / "test.csv"
    shown = run("info", model)
    assert "IntervalAround, RandomForestRegressor(n_estimators=15)" in shown
    assert "local, ranks of 400 rows" in shown
    assert "networks" not in shown
    found = json.loads(run("info", model, "--json"))
    assert (found["rounds"], found["training_seconds"], found["training_rows"]) == (0, None, 400)
    run("predict", model, test, "--out", tmp_path / "out.csv", "--quantiles", "0.1,0.5")
    expected = coverwell.load(model).predict(pd.read_csv(test)[list("abcd")])
    assert_allclose(pd.read_csv(tmp_path / "out.csv").iloc[:, 0], expected, rtol=1e-12)
    run("evaluate", model, test)
    run("plot", "widths", model, test, "--out", tmp_path / "widths.png")
    run("report", model, test, "--out", tmp_path / "report.html")
    result = CliRunner().invoke(main, ["plot", "rounds", str(model), "--out", str(tmp_path / "rounds.png")])
    assert "rounds are those of networks, and an IntervalAround has none" in result.output


def test_a_model_that_no_file_can_hold_has_a_report(tmp_path):
    table, rent = flats()
    model = around(encoded()).fit(table, rent)
    assert write_report(model, table, rent, tmp_path / "report.html") < 5_000_000
    page = (tmp_path / "report.html").read_text()
    assert 'id="rounds"' not in page
    assert "ColumnTransformer" in page
    with pytest.raises(ValueError, match="an IntervalAround has none"):
        rounds_figure(ModelDescription(model), 0)


# scikit-learn.


def test_it_is_an_estimator_of_scikit_learns_kind():
    model = around(make_pipeline(StandardScaler(), Ridge()), folds=3)
    assert model.get_params()["estimator__ridge__alpha"] == 1.0
    copy = clone(model).set_params(estimator__ridge__alpha=5.0)
    assert (copy.estimator[-1].alpha, model.estimator[-1].alpha) == (5.0, 1.0)
    search = GridSearchCV(around(), {"estimator__alpha": [0.1, 1000.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"estimator__alpha": 0.1}
    assert search.best_estimator_.predict_interval(X_NEW).lower.shape == (2000,)
    pipeline = make_pipeline(StandardScaler(), around()).fit(X, y)
    assert pipeline.score(X, y) > 0.5
    assert str(around()) == "IntervalAround(estimator=Ridge(), random_state=0)"


def test_scikit_learns_checks_pass():
    script = """
import json, warnings
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.estimator_checks import check_estimator
from coverwell import IntervalAround
warnings.simplefilter("error")
takes_none = ["check_sample_weights_not_overwritten", "check_sample_weight_equivalence_on_dense_data"]
models = {IntervalAround(Ridge(), 0.8, random_state=0): {}}
models[IntervalAround(KNeighborsRegressor(1), 0.8, folds=3, random_state=0)] = dict.fromkeys(takes_none, "")
quiet = {"on_fail": None, "on_skip": None}
results = [one for m, but in models.items() for one in check_estimator(m, expected_failed_checks=but, **quiet)]
print(json.dumps([[one["check_name"], one["status"], str(one["exception"])] for one in results]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)
    assert len(results) > 80
    expected = [one for one in results if one[1] == "xfail"]
    assert [one for one in results if one[1] not in ("passed", "skipped", "xfail")] == []
    assert len(expected) == 2
    assert all("sample_weight needs a fit that takes it" in reason for _, _, reason in expected)


# Bad input.


class Told(RegressorMixin, BaseEstimator):
    """A regressor that does what a test tells it: `fits` and `predicts` are called with the number of rows."""

    def __init__(self, fits=None, predicts=None):
        self.fits, self.predicts = fits, predicts

    def fit(self, X, y):
        if self.fits:
            self.fits(len(X))
        return self

    def predict(self, X):
        return self.predicts(len(X)) if self.predicts else np.zeros(len(X))


def fails(n_rows):
    if n_rows < N:
        raise RuntimeError("no such rows\nat all")


def interrupts(n_rows):
    raise KeyboardInterrupt


CASES = [
    (Ridge, TypeError, "must be a regressor with fit, predict and get_params, <class .*Ridge'> is a class"),
    (StandardScaler(), TypeError, r"fit, predict and get_params, StandardScaler\(\) has no predict"),
    ("forest", TypeError, "fit, predict and get_params, 'forest' has no fit"),
    (SVC(), TypeError, r"must be a regressor, got the classifier SVC\(\)"),
    (
        Told(fits=fails),
        ValueError,
        "Told.* failed on 320 rows: no such rows at all; mend it or give another",
    ),
    (
        Told(predicts=np.random.default_rng(0).random),
        ValueError,
        "must predict the same for the same rows, Told",
    ),
    (Told(predicts=lambda n: np.full(n, np.nan)), ValueError, "must predict 1 finite numbers for each of 80 rows"),
    (
        Told(predicts=lambda n: np.zeros((n, 2))),
        ValueError,
        r"gave an array of shape \(80, 2\); mend it or give another",
    ),
    (FrozenEstimator(Ridge()), ValueError, r"failed on 320 rows: This Ridge instance is not fitted yet"),
    (Told(fits=interrupts), KeyboardInterrupt, "^$"),
]


@pytest.mark.parametrize(("estimator", "kind", "line"), CASES)
def test_a_bad_estimator_gets_one_line_and_leaves_nothing_behind(estimator, kind, line):
    model = around().fit(X, y).set_params(estimator=estimator)
    with pytest.raises(kind, match=line) as caught:
        model.fit(X, y)
    assert "\n" not in str(caught.value)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert [name for name in vars(model) if name.endswith("_")] == []


OPTIONS = [
    ({"calibration": None}, "calibration=None leaves nothing to set the widths; give 'cross'"),
    ({"calibration": "none"}, "calibration must be one of"),
    ({"folds": None}, "folds must be a whole number or a scikit-learn splitter, got None"),
    ({"folds": 1}, "folds must be at least 2"),
    ({"folds": KFold}, "folds must be a splitter, not its class"),
    ({"coverage": 1.0}, "coverage must lie strictly between 0 and 1"),
    ({"coverage": 0.999}, "needs at least 999 rows, got 400"),
]


@pytest.mark.parametrize(("options", "line"), OPTIONS, ids=str)
def test_bad_options_get_one_line(options, line):
    with pytest.raises(ValueError, match=line):
        around(**options).fit(X, y)


def test_a_constant_target_brings_a_warning_and_intervals_that_are_close_to_empty():
    with pytest.warns(ConstantDataWarning, match="y is constant"):
        model = around().fit(X, np.full(N, 7.0))
    lower, upper = model.predict_interval(X_NEW)
    assert_allclose(lower, 7.0, atol=1e-3)
    assert_allclose(upper, 7.0, atol=1e-3)


def test_whole_numbers_that_are_often_hit_exactly_bring_no_empty_box():
    grades = np.round(X[:, 0] * 3)
    rows = np.column_stack([grades, X[:, 1]])
    Y = np.stack([grades, np.round(y)], axis=1)
    model = around(DecisionTreeRegressor(max_depth=4), LEVELS).fit(rows, Y)
    lower, upper = model.predict_interval(rows, joint=True)
    inside = ((lower <= Y[..., None]) & (Y[..., None] <= upper)).all(axis=1).mean(axis=0)
    assert (inside >= np.array(LEVELS) - 0.05).all()
    assert (upper - lower).max() < 50  # the targets lie within 30 of each other


def test_series_and_streams_are_not_for_it(tmp_path):
    with pytest.raises(TypeError, match=r"one of our estimators with a network, unfitted, got IntervalAround"):
        Forecaster(around(), past=5).fit(np.sin(np.arange(200)))
    pl.DataFrame({"a": y, "b": y}).write_parquet(tmp_path / "table.parquet")
    with pytest.raises(
        TypeError, match="a streamed fit trains a MatchedRegressor or MatchedClassifier, got a IntervalAround"
    ):
        around().fit(TableFiles(tmp_path), "b")


def test_files_of_a_table_are_predicted_part_by_part(tmp_path):
    table = pd.DataFrame(X[:, :2], columns=["a", "b"])
    pl.from_pandas(table).write_parquet(tmp_path / "table.parquet")
    model = around().fit(table, y)
    assert_allclose(model.predict(TableFiles(tmp_path)), model.predict(table), rtol=1e-12)
