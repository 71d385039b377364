from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from coverwell import MLP, MatchedRegressor, Schedule, fit_together
from coverwell.baselines import DeepEnsembleRegressor
from coverwell.errors import NotEnoughMemoryError
from coverwell.networks.mlp import MLPTeam
from coverwell.training.device import SMALL_STEP, Settings, device_from, few_threads, seeded
from coverwell.training.rows import Rows

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=40)


class CrampedTeam(MLPTeam):
    """Asks the allocator for more than any machine has when it is larger than a number of members."""

    def forward(self, x):
        if self.n_members > self.recipe.most:
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


def model(most, **options):
    options = {"folds": 4, "repeats": 2, "random_state": 0, "device": "cpu", **options}
    return MatchedRegressor(network=Cramped(most=most), schedule=Schedule(max_rounds=2), **options)


def test_too_little_memory_is_an_error_with_the_number_of_networks_that_fit():
    regressor = model(most=3)
    with pytest.raises(
        NotEnoughMemoryError, match=r"^8 networks side by side need more memory .*; 2 fit: give"
    ) as caught:
        regressor.fit(X, Y)
    assert (caught.value.n_members, caught.value.members_that_fit) == (8, 2)  # 8, 4, 2
    assert not hasattr(regressor, "predictor_")


def test_if_not_even_one_network_fits_fewer_are_not_advised():
    with pytest.raises(NotEnoughMemoryError, match="not even one network fits: give a smaller batch_size") as caught:
        model(most=0).fit(X, Y)
    assert "repeats" not in str(caught.value)


def test_of_fits_side_by_side_as_many_are_named_as_fit():
    models = [model(most=8, random_state=seed) for seed in range(4)]
    with pytest.raises(NotEnoughMemoryError, match=r"^4 fits of 8 networks .*; 1 at a time fit: fit fewer") as caught:
        fit_together(models, [(X, Y, None)] * 4)
    assert (caught.value.n_jobs, caught.value.jobs_that_fit) == (4, 1)


def test_baselines_raise_it_too():
    with pytest.raises(NotEnoughMemoryError, match=r"^5 networks side by side .*; 2 fit"):
        DeepEnsembleRegressor(network=Cramped(most=2), members=5, max_epochs=2, random_state=0).fit(X, Y)


def test_another_error_of_the_network_stays_what_it_is():
    def broken(n_features, n_outputs):
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match=r"^no such layer$"):
        MatchedRegressor(network=broken, schedule=Schedule(max_rounds=1)).fit(X, Y)


def test_what_was_fitted_before_is_the_same_after_a_failed_fit_that_was_to_continue():
    regressor = model(most=8, warm_start=True).fit(X, Y)
    before = regressor.predict(X)
    regressor.set_params(network=Cramped(most=3))
    with pytest.raises(NotEnoughMemoryError):
        regressor.fit(X, Y)
    np.testing.assert_array_equal(regressor.predict(X), before)


# Device, seed, threads -----------------------------------------------------------------------------------------------


def test_the_device_is_the_one_that_is_asked_for_and_auto_is_cuda_where_there_is_one():
    assert device_from("cpu") == CPU
    assert device_from(CPU) == CPU
    assert device_from("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("choice", ["cuda", "cuda:1", torch.device("cuda")], ids=str)
def test_cuda_where_there_is_none_is_refused_with_a_way_out(choice):
    with pytest.raises(ValueError, match=rf"device '{choice}' is not available here; use device='cpu' or 'auto'"):
        device_from(choice)


def test_the_same_seed_gives_the_same_draws():
    draws = []
    for seed in (3, 3, 4):
        with seeded(seed, CPU):
            draws.append(torch.rand(5))
    assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def draw_and_fail():
    torch.rand(100)
    raise KeyboardInterrupt


def test_the_callers_random_state_is_left_as_it_was_after_an_exception():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt), seeded(1, CPU):
        draw_and_fail()
    assert_array_equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_callers_random_state_on_cuda_is_left_as_it_was(device):
    before = torch.cuda.get_rng_state()
    with seeded(1, torch.device(device)):
        torch.rand(3, device=device)
    assert_array_equal(torch.cuda.get_rng_state(), before)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Work:
    """Training whose steps take about so many operations."""

    def __init__(self, operations):
        self.settings, self.network = Settings(1, 1, 0.1, 0.0, CPU), self
        self.operations = operations

    def operations_per_row(self, n_inputs):
        return self.operations / 6

    def run(self, rows, on_round):
        raise NotImplementedError

    def shortened(self):
        return self


ROW = Rows(
    *(torch.ones(1, 1, 1, dtype=dtype) for dtype in (torch.float, torch.float, torch.bool, torch.bool)),
    torch.ones(1, 1),
)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("operations", "n_threads"), [(0.0, 1), (SMALL_STEP / 2, 1), (SMALL_STEP * 2, 2)])
def test_small_steps_take_one_thread_and_large_ones_the_callers(operations, n_threads):
    with few_threads(Work(operations), ROW):
        assert torch.get_num_threads() == n_threads
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_the_callers_number_of_threads_comes_back_after_an_exception():
    with pytest.raises(KeyboardInterrupt), few_threads(Work(0.0), ROW):
        draw_and_fail()
    assert torch.get_num_threads() == 2
