"""Modules made of scikit-learn's models predict the same."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import ensemble, linear_model, svm
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from coverwell.model_file import _Reader, _Writer
from coverwell.portable import portable
from tests.exported import onnx_outputs

N = 300
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, -100]
y = np.exp(0.3 * X[:, 0]) + 0.1 * np.abs(X[:, 1]) + rng.random(N)
ROWS = rng.normal(size=(500, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, -100]


def holed(rows):
    return np.where(np.random.default_rng(1).random(rows.shape) < 0.1, np.nan, rows)


TREES = [
    DecisionTreeRegressor(min_samples_leaf=2),
    ExtraTreeRegressor(max_depth=6),
    ensemble.RandomForestRegressor(10),
    ensemble.ExtraTreesRegressor(10),
    ensemble.GradientBoostingRegressor(n_estimators=20, init="zero"),
    ensemble.GradientBoostingRegressor(n_estimators=20, loss="quantile", alpha=0.3, subsample=0.5),
    ensemble.HistGradientBoostingRegressor(max_iter=30),
    ensemble.HistGradientBoostingRegressor(max_iter=30, loss="quantile", quantile=0.8),
    ensemble.HistGradientBoostingRegressor(max_iter=30, loss="poisson"),
    ensemble.HistGradientBoostingRegressor(max_iter=30, loss="gamma", monotonic_cst=[1, 0, 0, 0]),
]
LINEAR = [
    linear_model.LinearRegression(),
    linear_model.LinearRegression(fit_intercept=False, positive=True),
    linear_model.Ridge(),
    linear_model.RidgeCV(),
    linear_model.Lasso(0.01),
    linear_model.LassoCV(),
    linear_model.ElasticNet(0.01),
    linear_model.HuberRegressor(max_iter=1000),
    linear_model.BayesianRidge(),
    linear_model.ARDRegression(),
    linear_model.Lars(),
    linear_model.OrthogonalMatchingPursuit(n_nonzero_coefs=2),
    linear_model.TheilSenRegressor(max_subpopulation=100, random_state=0),
    linear_model.QuantileRegressor(alpha=0.01),
    linear_model.PoissonRegressor(max_iter=1000),
    linear_model.TweedieRegressor(power=1.5, max_iter=1000),
    linear_model.TweedieRegressor(power=0, max_iter=1000),
]
SCALED = [
    make_pipeline(StandardScaler(), svm.LinearSVR(max_iter=100_000)),
    make_pipeline(StandardScaler(with_mean=False), svm.SVR(kernel="linear")),
    make_pipeline(MinMaxScaler((-1, 2)), "passthrough", linear_model.Ridge()),
    make_pipeline("passthrough", MinMaxScaler(clip=True), linear_model.Ridge()),
    make_pipeline(SimpleImputer(strategy="median"), StandardScaler(with_std=False), ensemble.RandomForestRegressor(5)),
    make_pipeline(SimpleImputer(), linear_model.GammaRegressor(max_iter=1000)),
    GridSearchCV(make_pipeline(StandardScaler(), linear_model.Ridge()), {"ridge__alpha": [0.1, 1.0]}),
]
SEVERAL = [
    DecisionTreeRegressor(),
    ensemble.RandomForestRegressor(5),
    ensemble.ExtraTreesRegressor(5),
    linear_model.LinearRegression(),
    linear_model.LinearRegression(fit_intercept=False),
    linear_model.MultiTaskLasso(0.01),
]
OTHERS = [
    KNeighborsRegressor(),
    svm.SVR(),
    PLSRegression(),
    ensemble.AdaBoostRegressor(),
    ensemble.GradientBoostingRegressor(init=linear_model.LinearRegression()),
    ensemble.HistGradientBoostingRegressor(categorical_features=[0]),
    TransformedTargetRegressor(linear_model.Ridge(), func=np.log, inverse_func=np.exp),
    make_pipeline(PolynomialFeatures(), linear_model.Ridge()),
    make_pipeline(SimpleImputer(add_indicator=True), linear_model.Ridge()),
]


def check(estimator, rows):
    module = portable(estimator)
    expected = np.reshape(estimator.predict(rows), (len(rows), -1))
    scale = np.abs(expected).max(axis=0)
    found = module(torch.from_numpy(np.array(rows))).numpy()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=1e-9, atol=1e-9)
    return module


@pytest.mark.parametrize("estimator", [*TREES, *LINEAR, *SCALED], ids=str)
def test_the_module_predicts_the_same(estimator):
    check(estimator.fit(X, y), ROWS)


@pytest.mark.parametrize("estimator", SEVERAL, ids=str)
def test_several_targets(estimator):
    check(estimator.fit(X, np.stack([y, y**2], axis=1)), ROWS)


@pytest.mark.parametrize("estimator", [*TREES[:4], TREES[6], SCALED[4]], ids=str)
def test_missing_values_go_where_the_model_sends_them(estimator):
    check(estimator.fit(holed(X), y), holed(ROWS))


def test_a_split_between_missing_and_known():
    rows = np.where(rng.random((N, 1)) < 0.5, np.nan, rng.normal(size=(N, 1)))
    target = np.isnan(rows[:, 0]) + 0.0
    for tree in (DecisionTreeRegressor(), ensemble.HistGradientBoostingRegressor(max_iter=5)):
        check(tree.fit(rows, target), np.array([[np.nan], [-1e30], [0.0], [1e30]]))


def test_named_columns_bring_no_warning():
    check(linear_model.Ridge().fit(pd.DataFrame(X, columns=list("abcd")), y), pd.DataFrame(ROWS, columns=list("abcd")))


@pytest.mark.parametrize("estimator", OTHERS, ids=str)
def test_other_models_have_no_module(estimator):
    assert portable(estimator.fit(np.where(np.arange(4) == 0, X.round(), X), y)) is None


def test_a_predict_of_the_users_own_is_noticed():
    class Doubled(linear_model.Ridge):
        def predict(self, X):
            return 2 * super().predict(X)

    assert portable(Doubled().fit(X, y)) is None


@pytest.mark.parametrize("estimator", [TREES[2], TREES[8], SCALED[4]], ids=str)
def test_model_files_and_onnx_hold_them(estimator):
    module, rows = check(estimator.fit(X, y), ROWS), torch.from_numpy(ROWS)
    writer = _Writer()
    stored = writer.value(module, "model")
    assert torch.equal(_Reader("", writer.arrays, {}).value(stored)(rows), module(rows))
    (found,) = onnx_outputs(module, ROWS)
    np.testing.assert_allclose(found, module(rows), rtol=1e-9)
