import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from tests.synthetic import laws
from torch import nn

from coverwell import MLP
from coverwell.baselines import DeepEnsembleRegressor, HeteroscedasticRegressor

NETWORK = MLP(hidden=32, layers=3, bins=4, dropout=0.0)
LAW = laws()["homoscedastic"]
X, Y = LAW.draw(200, random_state=0)
ROWS = np.linspace(X.min(), X.max(), 40)[:, None]


def fitted(**changes):
    usual = {"network": NETWORK, "max_epochs": 60, "learning_rate": 5e-3, "random_state": 0}
    return DeepEnsembleRegressor(0.9, **usual | changes).fit(X, Y)


@pytest.fixture(scope="module", name="model")
def five_networks():
    return fitted()


def test_by_default_there_are_five_and_each_starts_from_weights_of_its_own(model):
    weight = model.ensembles_[0].team.layers[0].weight
    assert len(weight) == 5
    assert len(weight.flatten(1).unique(dim=0)) == 5


def test_the_interval_is_that_of_the_normal_law_with_the_moments_of_the_mixture(model):
    x = torch.from_numpy((ROWS - X.mean(axis=0)) / X.std(axis=0))
    outputs = model.ensembles_[0].team(x.expand(5, -1, -1)).numpy()
    means = outputs[..., 0] * Y.std() + Y.mean()
    sigmas = (np.log1p(np.exp(outputs[..., 1])) + 1e-3) * Y.std()
    assert_allclose(model.predict(ROWS), means.mean(axis=0))
    z = stats.norm.ppf(0.95)
    total = np.sqrt((sigmas**2 + means**2).mean(axis=0) - means.mean(axis=0) ** 2)
    assert_allclose(model.predict_interval(ROWS).width, 2 * z * total)
    assert_allclose(model.predict_interval(ROWS, noise=False).width, 2 * z * means.std(axis=0))


def test_the_average_errs_no_more_than_its_members_do_on_average(model):
    """By Jensen's inequality, for the squared error of any members; equal only where all say the same."""
    x = torch.from_numpy((ROWS - X.mean(axis=0)) / X.std(axis=0))
    means = model.ensembles_[0].team(x.expand(5, -1, -1))[..., 0].numpy() * Y.std() + Y.mean()
    truth = LAW.true_mean(ROWS)
    single = ((means - truth) ** 2).mean()
    together = ((model.predict(ROWS) - truth) ** 2).mean()
    assert together < single
    assert_allclose(single - together, means.var(axis=0).mean())


def test_it_covers_about_what_is_asked(model):
    """With 180 training rows of spread 0.3, within four errors of a share; networks that doubt may cover more."""
    x = LAW.draw(2000, random_state=1)[0]
    reached = LAW.exact_coverage(x, *model.predict_interval(x)).mean()
    assert abs(reached - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 180)


def test_one_member_is_a_heteroscedastic_network():
    one = fitted(members=1, max_epochs=10)
    twin = HeteroscedasticRegressor(0.9, network=NETWORK, max_epochs=10, learning_rate=5e-3, random_state=0).fit(X, Y)
    assert_array_equal(one.predict(ROWS), twin.predict(ROWS))
    assert_array_equal(one.predict_interval(ROWS).lower, twin.predict_interval(ROWS).lower)
    assert_array_equal(one.predict_interval(ROWS, noise=False).width, np.zeros(40))


def test_members_agree_more_where_there_are_rows_than_where_there_are_none():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 0.35, 100), rng.uniform(0.65, 1, 100)])[:, None]
    y = np.sin(2 * np.pi * x[:, 0]) + 0.05 * rng.normal(size=200)
    network = MLP(hidden=32, layers=3, bins=0, dropout=0.0)
    model = DeepEnsembleRegressor(0.9, network=network, max_epochs=100, learning_rate=5e-3, random_state=0).fit(x, y)
    doubt = model.predict_interval(np.array([[0.2], [0.5], [0.8]]), noise=False).width
    assert doubt[1] > 2 * max(doubt[0], doubt[2])


def test_each_member_holds_out_rows_of_its_own():
    prepared = DeepEnsembleRegressor(members=4, validation_size=0.25, random_state=0)._prepare(X, Y, None, [])
    trains, speaks = prepared.jobs[0].trains, prepared.jobs[0].speaks
    assert trains.shape == (4, 200)
    assert_array_equal(speaks.sum(dim=1), [50] * 4)
    assert_array_equal(trains, ~speaks)
    assert len(speaks.unique(dim=0)) == 4


def test_networks_of_the_users_own_can_be_members():
    def own(n_features, n_outputs):
        return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))

    model = fitted(network=own, members=3, max_epochs=10)
    total, doubt = model.predict_interval(ROWS), model.predict_interval(ROWS, noise=False)
    assert (doubt.width > 0).all()
    assert (doubt.width < total.width).all()
