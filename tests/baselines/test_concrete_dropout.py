import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP
from coverwell.baselines import ConcreteDropoutRegressor
from coverwell.baselines.concrete_dropout import TEMPERATURE, ConcreteLSTM, ConcreteMLP, entropy, silence
from coverwell.baselines.random_lstm import Draws, silenced_places
from coverwell.networks.lstm import LSTM

logits = st.floats(-8, 8)
uniforms = st.floats(0, 1)
temperatures = st.floats(0.01, 2)


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def team_of(n_members=2, *, dropout=0.2, hidden=12, layers=3, length_scale=0.3, seed=0):
    torch.manual_seed(seed)
    recipe = ConcreteMLP(MLP(hidden=hidden, layers=layers, dropout=dropout, bins=0), length_scale)
    return recipe.build(n_members, (4,), 2).double()


def with_rates(team, rates):
    """The same team at these rates, (member, layer)."""
    with torch.no_grad():
        team.rate_logit.copy_(tensor(rates).logit())
    return team


# The relaxation ------------------------------------------------------------------------------------------------------


@given(logit=logits, uniform=uniforms, temperature=temperatures)
def test_silence_is_a_share(logit, uniform, temperature):
    assert 0 <= silence(tensor(logit), tensor(uniform), temperature) <= 1


@given(logit=logits, uniform=uniforms, temperature=temperatures, more=st.floats(0, 1))
def test_silence_grows_with_the_rate_and_with_the_draw(logit, uniform, temperature, more):
    here = silence(tensor(logit), tensor(uniform), temperature)
    assert silence(tensor(logit + more), tensor(uniform), temperature) >= here
    assert silence(tensor(logit), tensor(uniform + more).clamp(max=1.0), temperature) >= here


def test_silence_by_hand():
    """A rate of 1/2 and a draw of 3/4 have logits 0 and log 3; at temperature 1/2 the share is 9 / 10."""
    assert silence(tensor(0.0), tensor(0.75), 0.5).item() == pytest.approx(0.9)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_at_a_low_temperature_silence_is_a_coin_toss_with_the_rate(rate):
    n = 40_000
    draws = torch.rand(n, generator=generator(), dtype=torch.float64)
    tossed = silence(tensor(rate).logit(), draws, 1e-5)
    assert ((tossed < 1e-3) | (tossed > 1 - 1e-3)).double().mean() > 0.999
    assert abs(tossed.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / n)


@pytest.mark.parametrize("temperature", [TEMPERATURE, 1.0])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_at_any_temperature_a_unit_is_rather_silent_than_not_with_the_rate(rate, temperature):
    n = 40_000
    draws = torch.rand(n, generator=generator(), dtype=torch.float64)
    share = (silence(tensor(rate).logit(), draws, temperature) > 0.5).double().mean()
    assert abs(share - rate) < 4 * math.sqrt(rate * (1 - rate) / n)


@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_the_ends_of_the_draw_have_a_finite_slope(uniform):
    logit = tensor(0.3).requires_grad_()
    silence(logit, tensor(uniform), TEMPERATURE).backward()
    assert torch.isfinite(logit.grad)


# The team ------------------------------------------------------------------------------------------------------------


def test_rates_start_at_the_dropout_of_the_network_one_for_every_layer():
    assert_allclose(team_of(dropout=0.2).rates.detach(), np.full((2, 3), 0.2))


def test_the_regulariser_by_hand():
    """length_scale^2 / 2 (|W|^2 / (1 - rate) + |b|^2), less the entropy of the rate for every input of a layer."""
    rates = [[0.1, 0.3, 0.5], [0.2, 0.4, 0.9]]
    team = with_rates(team_of(), rates).requires_grad_(False)
    for member in range(2):
        expected = 0.0
        for place, linear in enumerate(team.layers):
            p, n_inputs = rates[member][place], (4, 12, 12)[place]
            weights, biases = float((linear.weight[member] ** 2).sum()), float((linear.bias[member] ** 2).sum())
            entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
            expected += 0.3**2 / 2 * (weights / (1 - p) + biases) - n_inputs * entropy
        assert team.penalty()[member].item() == pytest.approx(expected)


def test_the_gradient_of_the_rates_is_the_slope_of_the_loss_for_the_same_draws():
    team = team_of(1).train()
    x = torch.randn(1, 30, 4, generator=generator(1), dtype=torch.float64)

    def loss():
        torch.manual_seed(5)
        return team(x).square().mean() + 0.01 * team.penalty().sum()

    loss().backward()
    slope, step = team.rate_logit.grad.clone(), 1e-6
    assert (slope != 0).all()
    for place in range(3):
        ends = []
        for side in (step, -step):
            with torch.no_grad():
                team.rate_logit[0, place] += side
            ends.append(loss().item())
            with torch.no_grad():
                team.rate_logit[0, place] -= side
        assert slope[0, place].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("start", [0.05, 0.9])
def test_with_no_word_from_data_or_weights_the_rates_go_to_one_half(start):
    team = team_of(dropout=start, length_scale=0.0)
    optimizer = torch.optim.Adam([team.rate_logit], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        team.penalty().sum().backward()
        optimizer.step()
    assert_allclose(team.rates.detach(), np.full((2, 3), 0.5), atol=1e-3)


def test_samples_silence_a_share_of_inputs_equal_to_the_rate_of_the_layer_and_member():
    rates, n_samples = [[0.1, 0.3, 0.5], [0.2, 0.4, 0.8]], 600
    samples = with_rates(team_of(), rates).sample(n_samples, generator())
    for place, linear in enumerate(samples.layers):
        silent = (linear.weight == 0).all(dim=2).double().unflatten(0, (2, n_samples))  # (member, sample, input)
        for member in range(2):
            p, n = rates[member][place], silent[member].numel()
            assert abs(silent[member].mean() - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_over_samples_every_input_of_a_layer_has_its_own_value_on_average():
    """What is kept is divided by the share that is kept: the mean of a sampled weight is the weight."""
    rates, n_samples = [[0.1, 0.3, 0.5]], 4000
    team = with_rates(team_of(1), rates)
    samples = team.sample(n_samples, generator())
    for place, (linear, sampled) in enumerate(zip(team.layers, samples.layers, strict=True)):
        p = rates[0][place]
        gain = (sampled.weight / linear.weight).detach()  # 0 or 1 / (1 - p)
        error = math.sqrt(p / (1 - p) / n_samples)
        assert ((gain.mean(dim=0) - 1).abs() < 4.5 * error).all()
        assert_array_equal(sampled.bias, linear.bias.detach().expand(n_samples, -1, -1))


def test_at_a_rate_of_one_half_the_relaxed_inputs_too_have_their_own_value_on_average():
    """The relaxation is symmetric there, so that its mean is exact at any temperature."""
    n = 20_000
    team = with_rates(team_of(1), [[0.5, 0.5, 0.5]])
    torch.manual_seed(3)
    x = torch.ones(1, n, 4, dtype=torch.float64)
    dropped = team._drop(x, 0).detach()
    assert abs(dropped.mean() - 1) < 4 * dropped.std() / math.sqrt(4 * n)


def test_outside_training_nothing_is_dropped():
    team = team_of(1).eval().requires_grad_(False)
    x = torch.randn(1, 7, 4, generator=generator(1), dtype=torch.float64)
    expected = x[0]
    for place, linear in enumerate(team.layers):
        expected = (expected.relu() if place else expected) @ linear.weight[0] + linear.bias[0]
    assert_allclose(team(x)[0], expected, rtol=1e-10)


def test_in_training_other_units_are_silent_in_every_row_and_pass():
    team = team_of(1).train().requires_grad_(False)
    x = torch.ones(1, 5, 4, dtype=torch.float64)
    first, second = team(x), team(x)
    assert len(first[0].unique(dim=0)) == 5
    assert (first != second).all()


# The team on an LSTM -------------------------------------------------------------------------------------------------


def lstm_team_of(n_members=2, *, hidden=12, length_scale=0.3, dropout=0.2):
    torch.manual_seed(0)
    recipe = ConcreteLSTM(LSTM(hidden=hidden, layers=2, dropout=dropout, steps=3), length_scale)
    return recipe.build(n_members, (4,), 2).double()


def test_the_entropy_of_a_coin_toss_by_hand():
    assert entropy(tensor(0.5)).item() == pytest.approx(math.log(2))
    assert entropy(tensor(0.2)).item() == pytest.approx(0.2 * math.log(5) + 0.8 * math.log(1.25))


def test_rates_of_an_lstm_start_at_its_dropout_one_for_every_place():
    assert_allclose(lstm_team_of().rates.detach(), np.full((2, 4), 0.2))


def test_the_regulariser_of_an_lstm_by_hand():
    """As for an MLP; the numbers of the row, 3 steps and 1 beside, have no rate."""
    rates = [[0.1, 0.3, 0.5, 0.7], [0.2, 0.4, 0.6, 0.9]]
    team = with_rates(lstm_team_of(), rates).requires_grad_(False)
    places = ["layers.0.recurrent", "layers.1.weight", "layers.1.recurrent", "head.weight"]
    for member in range(2):
        share = dict(zip(places, rates[member], strict=True))
        expected = 0.0
        for name, weight in team.weights():
            expected += 0.3**2 / 2 * float((weight[member] ** 2).sum()) / (1 - share.get(name, 0.0))
        expected += sum(12 * (p * math.log(p) + (1 - p) * math.log(1 - p)) for p in rates[member])
        assert team.penalty()[member].item() == pytest.approx(expected)


def test_samples_of_an_lstm_silence_a_share_equal_to_the_rate_of_the_place_and_member():
    rates, n_samples = [[0.1, 0.3, 0.5, 0.7], [0.2, 0.4, 0.6, 0.8]], 600
    team = with_rates(lstm_team_of(), rates)
    samples = dict(team.sample(n_samples, generator()).named_parameters())
    for place, name in enumerate(silenced_places(team.lstm)):
        silent = (samples[name] == 0).all(dim=2 if name == "head.weight" else 1).double().unflatten(0, (2, n_samples))
        for member in range(2):
            p, n = rates[member][place], silent[member].numel()
            assert abs(silent[member].mean() - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_in_training_an_lstms_units_are_silenced_by_the_relaxation_and_in_samples_by_a_coin_toss():
    team, units = lstm_team_of(), torch.zeros(2, 1, 12, dtype=torch.float64)
    rate = team.rates[:, 1, None, None]
    torch.manual_seed(4)
    relaxed = team.silence(rate, Draws(), units)
    torch.manual_seed(4)
    uniform = torch.rand(2, 1, 12, dtype=torch.float64)
    assert_allclose(relaxed.detach(), silence(tensor(0.2).logit(), uniform, TEMPERATURE), rtol=1e-6)
    assert set(team.silence(rate, Draws(20, generator()), units).unique().tolist()) == {0.0, 1.0}


def test_the_gradient_of_an_lstms_rates_is_the_slope_of_the_loss_for_the_same_draws():
    team = lstm_team_of(1).train()
    x = torch.randn(1, 30, 4, generator=generator(1), dtype=torch.float64)

    def loss():
        torch.manual_seed(5)
        return team(x).square().mean() + 0.01 * team.penalty().sum()

    loss().backward()
    slope, step = team.rate_logit.grad.clone(), 1e-6
    assert (slope != 0).all()
    for place in range(4):
        ends = []
        for side in (step, -step):
            with torch.no_grad():
                team.rate_logit[0, place] += side
            ends.append(loss().item())
            with torch.no_grad():
                team.rate_logit[0, place] -= side
        assert slope[0, place].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-8)


# The regressor -------------------------------------------------------------------------------------------------------


def fitted(x, y, **changes):
    usual = {"network": MLP(hidden=16, layers=2, bins=0, dropout=0.1), "learning_rate": 0.02, "random_state": 0}
    return ConcreteDropoutRegressor(0.8, **usual | {"max_epochs": 100} | changes).fit(x, y)


def test_rates_rise_where_there_is_nothing_to_learn_and_stay_low_where_there_is():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    signal = fitted(x, x @ [3.0, -2.0, 1.0, 2.0] + 0.1 * rng.normal(size=300))
    noise = fitted(x, rng.normal(size=300))
    assert signal.rates_.shape == noise.rates_.shape == (1, 2)
    assert signal.rates_[0, 0] < 0.1 < noise.rates_[0, 0]  # from a start of 0.1
    assert noise.rates_[0, 0] > 2 * signal.rates_[0, 0]


def test_every_member_has_rates_of_its_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    rates = fitted(x, x[:, 0], members=3, max_epochs=20).rates_
    assert rates.shape == (3, 2)
    assert len(np.unique(rates[:, 0])) == 3


def test_a_network_without_dropout_has_no_rate_to_start_at():
    model = ConcreteDropoutRegressor(network=MLP(hidden=16, dropout=0.0))
    with pytest.raises(ValueError, match="network must have a dropout above 0 for its rates to start at, got MLP"):
        model.fit(np.eye(10), np.arange(10.0))
