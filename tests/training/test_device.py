from dataclasses import dataclass

import numpy as np
import pytest
import torch

from coverwell import MLP, MatchedRegressor, fit_together
from coverwell.baselines import DeepEnsembleRegressor
from coverwell.device_memory import NotEnoughMemoryError
from coverwell.experiments import study
from coverwell.experiments.methods import Method
from coverwell.networks.mlp import MLPTeam

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=40)


class CrampedTeam(MLPTeam):
    """Asks the allocator for more than any machine has when it is larger than a number of members."""

    def forward(self, x):
        if self.n_members > self.mlp.most:
            torch.empty(2**60)
        return super().forward(x)


@dataclass(frozen=True)
class Cramped(MLP):
    """An MLP of which only so many fit into memory side by side."""

    hidden: int = 4
    layers: int = 2
    bins: int = 0
    most: int = 2

    def build(self, n_members, input_shape, n_outputs):
        return CrampedTeam(self, n_members, input_shape[0], n_outputs)


def model(most, **told):
    told = {"folds": 4, "repeats": 2, "max_rounds": 2, "random_state": 0, "device": "cpu", **told}
    return MatchedRegressor(network=Cramped(most=most), **told)


def test_too_little_memory_is_told_with_the_number_of_networks_that_fit():
    regressor = model(most=3)
    with pytest.raises(
        NotEnoughMemoryError, match=r"^8 networks side by side need more memory .*; 2 fit: give"
    ) as told:
        regressor.fit(X, Y)
    assert (told.value.n_members, told.value.members_that_fit) == (8, 2)  # 8, 4, 2
    assert not hasattr(regressor, "ensembles_")


def test_if_not_even_one_network_fits_fewer_are_not_advised():
    with pytest.raises(NotEnoughMemoryError, match="not even one network fits: give a smaller batch_size") as told:
        model(most=0).fit(X, Y)
    assert "repeats" not in str(told.value)


def test_of_fits_side_by_side_as_many_are_named_as_fit():
    models = [model(most=8, random_state=seed) for seed in range(4)]
    with pytest.raises(NotEnoughMemoryError, match=r"^4 fits of 8 networks .*; 1 at a time fit: fit fewer") as told:
        fit_together(models, [(X, Y, None)] * 4)
    assert (told.value.n_jobs, told.value.jobs_that_fit) == (4, 1)


def test_baselines_say_it_too():
    with pytest.raises(NotEnoughMemoryError, match=r"^5 networks side by side .*; 2 fit"):
        DeepEnsembleRegressor(network=Cramped(most=2), members=5, max_epochs=2, random_state=0).fit(X, Y)


def test_a_stack_of_trials_that_is_too_large_is_fitted_as_two(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    told = {"network": Cramped(most=2), "folds": 2, "repeats": 1, "max_rounds": 1, "mean_epochs": 1}
    method = Method(slug="cramped", title="Cramped", kind="extra", regressor=MatchedRegressor, settings=told)
    with pytest.warns(RuntimeWarning, match="The stack of 2 trials is fitted as two"):
        lines = study.lines_of(method, "boston", [0, 1], levels=(0.9,), device="cpu")
    assert [(line["trial"], line["stack"]) for line in lines] == [(0, 1), (1, 1)]


def test_another_error_of_the_network_stays_what_it_is():
    def broken(n_features, n_outputs):
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match=r"^no such layer$"):
        MatchedRegressor(network=broken, max_rounds=1).fit(X, Y)


def test_what_was_fitted_before_is_the_same_after_a_failed_fit_that_was_to_go_on():
    regressor = model(most=8, warm_start=True).fit(X, Y)
    said = regressor.predict(X)
    regressor.set_params(network=Cramped(most=3))
    with pytest.raises(NotEnoughMemoryError):
        regressor.fit(X, Y)
    np.testing.assert_array_equal(regressor.predict(X), said)
