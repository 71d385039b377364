import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell import LSTM, MLP, ResNet18, load, save
from coverwell.baselines import BayesByBackpropRegressor, ConcreteDropoutRegressor, MCDropoutRegressor
from coverwell.baselines.dropout import TEMPERATURE, DropoutNetwork, SampledTails, relaxed_toss
from coverwell.inputs.features import features_of
from coverwell.networks.resnet import ResNet18Tail, ResNet18Team, ResNet18Trunk

Z80 = 1.2815515655446004  # of the central 80 %


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def team_of(n_members=2, *, dropout=0.5, hidden=12, layers=3, length_scale=0.1, learned=False):
    torch.manual_seed(0)
    recipe = DropoutNetwork(MLP(hidden=hidden, layers=layers, dropout=dropout, bins=0), length_scale, learned)
    return recipe.build(n_members, (4,), 2).double().eval()


def lstm_team_of(n_members=2, *, dropout=0.5, hidden=12, length_scale=0.1, learned=False):
    torch.manual_seed(0)
    recipe = DropoutNetwork(LSTM(hidden=hidden, layers=2, dropout=dropout, steps=3), length_scale, learned)
    return recipe.build(n_members, (4,), 2).double().eval()


def with_rates(team, rates):
    """The same team at these rates, (member, place)."""
    with torch.no_grad():
        team.rate_logit.copy_(tensor(rates).logit())
    return team


def assert_share(dropped, rate):
    """Whether this share of draws (sample, unit) is dropped, in all and unit by unit, within four errors."""
    dropped = dropped.double()
    variance = rate * (1 - rate)
    assert abs(dropped.mean() - rate) < 4 * math.sqrt(variance / dropped.numel())
    assert ((dropped.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(variance / len(dropped))).all()


def assert_same_moments(sampled, trained):
    """Means within 4.5 errors; standard deviations within 6 errors of 1 / sqrt(2 n), twice."""
    n = len(sampled)
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=6 / math.sqrt(n))


ROW = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
BATCH = torch.randn(1, 30, 4, generator=generator(1), dtype=torch.float64)

# A fixed rate, on an MLP ---------------------------------------------------------------------------------------------


def test_a_sample_is_the_forward_pass_with_some_hidden_units_set_to_zero():
    team = team_of().requires_grad_(False)
    samples = team.sample(3, generator())
    x = torch.randn(6, 9, 4, generator=generator(1), dtype=torch.float64)
    for sample in range(6):
        member, hidden = sample // 3, x[sample]
        for place, linear in enumerate(team.means.layers):
            if place:  # inputs are never dropped
                weight = samples.layers[place].weight[sample]
                kept = (weight != 0).any(dim=1)
                assert_array_equal(weight[kept], linear.weight[member, kept])
                hidden = hidden.relu() * kept
            hidden = hidden @ linear.weight[member] + linear.bias[member]
        assert_allclose(samples(x)[sample], hidden, rtol=1e-10)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_the_share_of_dropped_units_is_the_rate(rate):
    samples = team_of(1, dropout=rate, hidden=20).sample(500, generator())
    for linear in samples.layers[1:]:
        assert_share((linear.weight == 0).all(dim=2), rate)


def test_training_and_samples_have_the_same_distribution():
    team, n = team_of(1, layers=3), 6000
    sampled = team.sample(n, generator())(ROW.expand(n, -1, -1))[:, 0]
    torch.manual_seed(2)
    assert_same_moments(sampled, team.train()(ROW.expand(1, n, -1).clone())[0].detach())


def test_the_penalty_by_hand():
    """Half the squared length scale, times the squares of all weights (of hidden units, by their share) and biases."""
    team = team_of(2, dropout=0.25, length_scale=0.3).requires_grad_(False)
    for member in range(2):
        squares = [float((linear.weight[member] ** 2).sum()) for linear in team.means.layers]
        biases = sum(float((linear.bias[member] ** 2).sum()) for linear in team.means.layers)
        expected = 0.5 * 0.3**2 * (squares[0] + 0.75 * squares[1] + 0.75 * squares[2] + biases)
        assert team.penalty()[member].item() == pytest.approx(expected)


# On an LSTM ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_a_sampled_lstm_drops_a_share_of_hidden_units_and_rescales_the_others(rate):
    team, n = lstm_team_of(1, dropout=rate).requires_grad_(False), 500
    samples = dict(team.sample(n, generator()).named_parameters())
    for name, weight in team.weights.items():
        if name not in team.places:  # of numbers of the row, and biases
            assert_array_equal(samples[name], weight.expand(n, -1, -1))
            continue
        axis = 2 if name == "head.weight" else 1  # outputs, or gates
        gain = (samples[name] / weight).select(axis, 0)  # (sample, input)
        assert_allclose(samples[name], weight * gain.unsqueeze(axis), rtol=1e-10)
        assert_allclose(gain[gain != 0], torch.full_like(gain[gain != 0], 1 / (1 - rate)), rtol=1e-10)
        assert_share(gain == 0, rate)


def test_an_lstms_units_that_return_and_those_that_are_passed_on_are_dropped_apart():
    n = 4000
    samples = lstm_team_of(1, hidden=2).sample(n, generator())
    both = (samples.layers[0].recurrent[:, 0, 0] == 0) & (samples.layers[1].weight[:, 0, 0] == 0)
    assert abs(both.double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_in_training_a_rows_dropped_units_of_an_lstm_are_the_same_at_every_step(rate):
    team, given_on, received = lstm_team_of(3, dropout=rate).train(), [], []
    lower, upper = team.means.layers
    lower.register_forward_hook(lambda _, __, states: given_on.append(states))
    upper.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    torch.manual_seed(3)
    team(torch.randn(3, 100, 4, dtype=torch.float64))
    gain = (received[0] / given_on[0]).detach()  # (member, step, batch, unit)
    assert_allclose(gain, gain[:, :1].expand_as(gain), rtol=1e-12)
    dropped = gain[:, 0] == 0
    assert_allclose(gain[:, 0][~dropped], np.full(int((~dropped).sum()), 1 / (1 - rate)), rtol=1e-12)
    assert_share(dropped.flatten(end_dim=1), rate)


def test_training_and_samples_of_an_lstm_have_the_same_distribution():
    team, n = lstm_team_of(1), 3000
    sampled = team.sample(n, generator())(ROW.expand(n, -1, -1))[:, 0]
    many = team.recipe.build(n, (4,), 2).double().train()  # each member draws by itself
    many.load_state_dict({name: value.expand(n, -1, -1) for name, value in team.state_dict().items()})
    torch.manual_seed(2)
    assert_same_moments(sampled, many(ROW.expand(n, -1, -1))[:, 0].detach())


def test_the_penalty_of_an_lstm_by_hand():
    """One unit, one output, one number beside three steps; all weights are 1, and those of the shortcut 0.

    5 weights of the row, 4 of a step and 1 of the number beside, and 6 biases count as they are; 4 recurrent ones and 1
    of the head are kept in a quarter of the draws, then as 4 each.
    """
    recipe = DropoutNetwork(LSTM(hidden=1, layers=1, dropout=0.75, steps=3), length_scale=0.3)
    team = recipe.build(1, (4,), 1).requires_grad_(False)
    for name, weight in team.weights.items():
        weight.fill_(0.0 if name.startswith("shortcut") else 1.0)
    assert team.penalty().item() == pytest.approx(0.5 * 0.3**2 * (5 + 6 + (4 + 1) * 0.25 * 4**2))


# On a ResNet-18 ------------------------------------------------------------------------------------------------------


def resnet_team_of(n_members=2, *, dropout=0.5, n_outputs=2, length_scale=0.1):
    """Tails in eval mode whose batch norms have statistics that differ from those of any batch."""
    torch.manual_seed(0)
    recipe = DropoutNetwork(ResNet18(dropout=dropout, weights=None), length_scale)
    team = recipe.build(n_members, (256, 2, 2), n_outputs)
    for norm in team.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return team.eval().requires_grad_(False)


TAILS = resnet_team_of(n_outputs=3)
IMAGES = torch.randn(5, 256, 2, 2, generator=generator(5))


def heads(n_samples, seed=1):
    drawn = torch.randn(2 * n_samples, 3, 513, generator=generator(seed))
    return drawn[..., :512] / 16, drawn[..., 512]


def of_images(team, images=IMAGES):
    return team(team.for_members(images[None]))


def gains_of(samples, team, n_samples):
    """By how much the samples' heads multiply each channel, (sample, channel); the same for all outputs."""
    gain = samples.weights.unflatten(1, (n_samples, -1)).flatten(0, 1) / team.heads[0].repeat_interleave(n_samples, 0)
    assert_allclose(gain, gain[:, :1].expand_as(gain), rtol=1e-6)
    return gain[:, 0]


def test_a_sampled_tail_is_its_members_layer_4_with_a_head_of_its_own():
    weights, biases = heads(n_samples=3)
    outputs = of_images(SampledTails(TAILS, weights, biases))
    assert outputs.shape == (6, 5, 3)
    for sample in range(6):
        pooled = TAILS.members[sample // 3].layer4(IMAGES).mean(dim=(2, 3))
        assert_allclose(outputs[sample], pooled @ weights[sample].T + biases[sample], rtol=1e-5, atol=1e-5)
    assert_array_equal(of_images(SampledTails(TAILS, *TAILS.heads)), of_images(TAILS))


def test_many_samples_pass_layer_4_once_for_each_member_and_take_the_memory_of_their_heads_alone():
    samples, passes = SampledTails(TAILS, *heads(n_samples=20)), []
    hooks = [t.layer4.register_forward_hook(lambda _, x, __: passes.append(x[0].shape)) for t in TAILS.members]
    of_images(samples)
    for hook in hooks:
        hook.remove()
    assert passes == [IMAGES.shape, IMAGES.shape]
    assert samples.team is TAILS
    # A row weighs what it weighs to one member, shared by its samples.
    weights = [SampledTails(TAILS, *heads(n)).weight_of_row(1024) for n in (1, 4)]
    assert weights == [ResNet18Team.weight_of_row(TAILS, 1024), 16] == [64, 16]


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_a_sampled_resnet_drops_a_share_of_pooled_channels_and_rescales_the_others(rate):
    team, n = resnet_team_of(1, dropout=rate), 100
    gain = gains_of(team.sample(n, generator()), team, n)
    assert_allclose(gain[gain != 0], np.full(int((gain != 0).sum()), 1 / (1 - rate)), rtol=1e-6)
    assert_share(gain == 0, rate)
    assert_share((gain == 0).T, rate)


def test_samples_of_a_resnet_differ_are_ordered_by_member_and_come_again_with_the_same_seed():
    team = resnet_team_of(2)
    assert len((gains_of(team.sample(3, generator()), team, 3) == 0).unique(dim=0)) == 6
    team.members[1].fc.bias.add_(1000.0)
    first, same, other = (of_images(team.sample(3, generator(seed))) for seed in (0, 0, 1))
    assert_array_equal(first, same)
    assert (first != other).any()
    assert (first[:3] < 500).all()
    assert (first[3:] > 500).all()


def test_training_and_samples_of_a_resnet_have_the_same_distribution():
    team, n = resnet_team_of(1), 3000
    sampled = team.sample(n, generator())(IMAGES[None, :1])[:, 0]
    error = sampled.std(dim=0) / math.sqrt(n)
    assert ((sampled.mean(dim=0) - team(IMAGES[None, :1])[0, 0]).abs() < 4.5 * error).all()  # the head is linear
    for module in team.modules():
        module.training = isinstance(module, nn.Dropout)  # batch norms by the statistics that samples have
    torch.manual_seed(2)
    assert_same_moments(sampled, team(IMAGES[None, :1].expand(1, n, -1, -1, -1))[0])


def test_the_penalty_of_a_resnet_by_hand_pulls_at_its_head_alone():
    """All 512 weights of a head are 0.5 and a bias is 2; a weight is kept in a quarter of the draws, then as 2."""
    team = resnet_team_of(2, dropout=0.75, n_outputs=1, length_scale=0.3)
    for tail, weight, bias in zip(team.members, (0.5, 0.0), (2.0, 0.0), strict=True):
        tail.fc.weight.fill_(weight)
        tail.fc.bias.fill_(bias)
    penalty = team.requires_grad_(True).penalty()
    assert_allclose(penalty.detach(), [0.5 * 0.3**2 * (512 * 0.25 * 2.0**2 + 2.0**2), 0.0], rtol=1e-6)
    penalty.sum().backward()
    pulled = {name for name, weight in team.named_parameters() if weight.grad is not None}
    assert pulled == {f"members.{m}.fc.{part}" for m in range(2) for part in ("weight", "bias")}


def test_a_trained_resnet_needs_no_file_of_weights_to_be_built_again(tmp_path):
    team = resnet_team_of(1)
    torch.save({**ResNet18Trunk().state_dict(), **team.members[0].state_dict()}, tmp_path / "resnet18.pth")
    started = DropoutNetwork(ResNet18(dropout=0.5, weights=tmp_path / "resnet18.pth"), 0.1)
    built = started.build(1, (256, 2, 2), 2).requires_grad_(False)
    assert_array_equal(built.members[0].layer4[0].conv1.weight, team.members[0].layer4[0].conv1.weight)
    assert built.recipe == DropoutNetwork(ResNet18(dropout=0.5, weights=None), 0.1)
    with pytest.raises(ValueError, match="takes features of the shape"):
        built.recipe.build(1, (3, 32, 32), 2)


# Learned rates -------------------------------------------------------------------------------------------------------

logits, uniforms, temperatures = st.floats(-8, 8), st.floats(0, 1), st.floats(0.01, 2)


@given(logit=logits, uniform=uniforms, temperature=temperatures, more=st.floats(0, 1))
def test_a_relaxed_toss_is_a_share_that_grows_with_the_rate_and_with_the_draw(logit, uniform, temperature, more):
    here = relaxed_toss(tensor(logit), tensor(uniform), temperature)
    assert 0 <= here <= 1
    assert relaxed_toss(tensor(logit + more), tensor(uniform), temperature) >= here
    assert relaxed_toss(tensor(logit), tensor(uniform + more).clamp(max=1.0), temperature) >= here


def test_a_relaxed_toss_by_hand():
    """A rate of 1/2 and a draw of 3/4 have logits 0 and log 3; at temperature 1/2 the share is 9 / 10."""
    assert relaxed_toss(tensor(0.0), tensor(0.75), 0.5).item() == pytest.approx(0.9)


@pytest.mark.parametrize("temperature", [1e-5, TEMPERATURE, 1.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_a_relaxed_toss_is_rather_1_than_0_with_the_rate_and_at_a_low_temperature_nothing_between(rate, temperature):
    n = 40_000
    draws = torch.rand(n, generator=generator(), dtype=torch.float64)
    tossed = relaxed_toss(tensor(rate).logit(), draws, temperature)
    assert abs((tossed > 0.5).double().mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / n)
    assert temperature > 1e-5 or ((tossed < 1e-3) | (tossed > 1 - 1e-3)).double().mean() > 0.999


@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_the_ends_of_the_draw_have_a_finite_slope(uniform):
    logit = tensor(0.3).requires_grad_()
    relaxed_toss(logit, tensor(uniform), TEMPERATURE).backward()
    assert torch.isfinite(logit.grad)


RATES = {"mlp": [[0.1, 0.3, 0.5], [0.2, 0.4, 0.8]], "lstm": [[0.1, 0.3, 0.5, 0.7], [0.2, 0.4, 0.6, 0.8]]}
KINDS = {"mlp": team_of, "lstm": lstm_team_of}
both_kinds = pytest.mark.parametrize("kind", KINDS)


@both_kinds
def test_the_regulariser_by_hand(kind):
    """length_scale^2 / 2 (|W|^2 / (1 - rate) + |b|^2), less the entropy of the rate for every input of a place."""
    team = with_rates(KINDS[kind](learned=True, length_scale=0.3), RATES[kind]).requires_grad_(False)
    for member, rates in enumerate(RATES[kind]):
        share, expected = dict(zip(team.places, rates, strict=True)), 0.0
        for name, weight in team.weights.items():
            expected += 0.3**2 / 2 * float((weight[member] ** 2).sum()) / (1 - share.get(name, 0.0))
        for name, p in share.items():
            n_inputs = 4 if name == "linears.0.weight" else 12
            expected += n_inputs * (p * math.log(p) + (1 - p) * math.log(1 - p))
        assert team.penalty()[member].item() == pytest.approx(expected)


@both_kinds
def test_the_gradient_of_the_rates_is_the_slope_of_the_loss_for_the_same_draws(kind):
    team = KINDS[kind](1, dropout=0.2, learned=True).train()

    def loss():
        torch.manual_seed(5)
        return team(BATCH).square().mean() + 0.01 * team.penalty().sum()

    loss().backward()
    slope, step = team.rate_logit.grad.clone(), 1e-6
    assert (slope != 0).all()
    for place in range(len(team.places)):
        ends = []
        for side in (step, -step):
            with torch.no_grad():
                team.rate_logit[0, place] += side
            ends.append(loss().item())
            with torch.no_grad():
                team.rate_logit[0, place] -= side
        assert slope[0, place].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("start", [0.05, 0.9])
def test_with_nothing_to_learn_from_data_or_weights_the_rates_go_to_one_half(start):
    team = team_of(dropout=start, length_scale=0.0, learned=True)
    optimizer = torch.optim.Adam([team.rate_logit], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        team.penalty().sum().backward()
        optimizer.step()
    assert_allclose(team.rates.detach(), np.full((2, 3), 0.5), atol=1e-3)


@both_kinds
def test_samples_drop_a_share_of_inputs_equal_to_the_rate_of_the_place_and_member(kind):
    n_samples, team = 600, with_rates(KINDS[kind](learned=True), RATES[kind])
    samples = dict(team.sample(n_samples, generator()).named_parameters())
    for place, name in enumerate(team.places):
        outputs = 1 if name.startswith("layers.") else 2
        dropped = (samples[name] == 0).all(dim=outputs).double().unflatten(0, (2, n_samples))  # (member, sample, input)
        for member in range(2):
            assert_share(dropped[member], RATES[kind][member][place])


# The regressors ------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(80, 3))
Y = np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=80)
X_NEW = RNG.uniform(size=(20, 3)).clip(X.min(axis=0), X.max(axis=0))


def fitted(x=X, y=Y, kind=MCDropoutRegressor, **changes):
    defaults = {"network": MLP(hidden=16, layers=2, bins=4, dropout=0.5), "max_epochs": 20, "random_state": 0}
    return kind(0.8, **defaults | changes).fit(x, y)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.mark.parametrize("kind", [MCDropoutRegressor, ConcreteDropoutRegressor])
@pytest.mark.parametrize("network", [MLP(hidden=16, dropout=0.0), LSTM(hidden=16, steps=3)])
def test_a_network_that_drops_nothing_is_refused(kind, network):
    with pytest.raises(ValueError, match=r"network must have a dropout above 0 to be sampled by, got (MLP|LSTM)"):
        fitted(kind=kind, network=network)


def test_only_mc_dropout_takes_a_resnet_and_all_say_what_they_take():
    with pytest.raises(ValueError, match=r"must be one of MLP\(...\), LSTM\(...\), ResNet18\(...\), .* got 7"):
        fitted(network=7)
    with pytest.raises(ValueError, match="must have a dropout above 0"):
        fitted(network=ResNet18(dropout=0.0, weights=None))
    for kind in (ConcreteDropoutRegressor, BayesByBackpropRegressor):
        with pytest.raises(ValueError, match=r"must be one of MLP\(...\), LSTM\(...\), whose .* got ResNet18\("):
            fitted(np.zeros((20, 3, 32, 32)), np.zeros(20), kind, network=ResNet18(weights=None))


def test_one_sample_predicts_and_has_no_doubt():
    model = fitted(n_samples=1)
    assert (model.predict_interval(X_NEW).width > 0).all()
    assert_array_equal(model.predict_interval(X_NEW, noise=False).width, np.zeros(20))


def test_predictions_are_the_moments_of_the_samples(model):
    """The twin is worked out from the sampled networks, in the user's units."""
    fitted_team = model.predictor_.fitted_teams[0]
    team = fitted_team.team.sample(model.n_samples, generator(fitted_team.seed))
    x = torch.from_numpy((X_NEW - X.mean(axis=0)) / X.std(axis=0))
    outputs = team(x.expand(model.n_samples, -1, -1)).numpy()
    means, sigmas = outputs[..., 0], np.log1p(np.exp(outputs[..., 1])) + 1e-3
    assert_allclose(model.predict(X_NEW), means.mean(axis=0) * Y.std() + Y.mean())
    total = np.sqrt(means.var(axis=0) + (sigmas**2).mean(axis=0))
    assert_allclose(model.predict_interval(X_NEW).width, 2 * Z80 * total * Y.std())
    assert_allclose(model.predict_interval(X_NEW, noise=False).width, 2 * Z80 * means.std(axis=0) * Y.std())


def test_a_strong_prior_holds_the_weights_near_zero():
    free, held = (fitted(length_scale=scale, max_epochs=60, learning_rate=0.02) for scale in (0.0, 30.0))
    teams = [model.predictor_.fitted_teams[0].team for model in (free, held)]
    norms = [max(weight.abs().max() for weight in team.weights.values() if weight.shape[1] > 1) for team in teams]
    assert norms[1] < 0.2 * norms[0]
    assert np.ptp(held.predict(X_NEW)) < 0.2 * np.ptp(free.predict(X_NEW))


CONCRETE = {
    "kind": ConcreteDropoutRegressor,
    "network": MLP(hidden=16, layers=2, bins=0, dropout=0.1),
    "learning_rate": 0.02,
}


def test_rates_rise_where_there_is_nothing_to_learn_and_stay_low_where_there_is():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    signal = fitted(x, x @ [3.0, -2.0, 1.0, 2.0] + 0.1 * rng.normal(size=300), max_epochs=100, **CONCRETE).rates_
    noise = fitted(x, rng.normal(size=300), max_epochs=100, **CONCRETE).rates_
    assert signal.shape == noise.shape == (1, 2)
    assert signal[0, 0] < 0.1 < noise[0, 0]  # from a start of 0.1
    assert noise[0, 0] > 2 * signal[0, 0]


@pytest.mark.parametrize(
    ("network", "n_places"), [(CONCRETE["network"], 2), (LSTM(hidden=6, layers=2, dropout=0.1, steps=3), 4)]
)
def test_every_member_has_rates_of_its_own_one_for_each_layer_or_place(network, n_places):
    rates = fitted(**CONCRETE | {"network": network}, members=3).rates_
    assert rates.shape == (3, n_places)
    assert len(np.unique(rates[:, 0])) == 3
    assert ((rates > 0) & (rates < 1) & (rates != 0.1)).all()  # not where they started


# On images -----------------------------------------------------------------------------------------------------------


def squares_on_noise(n, seed=0):
    """Grey noise with a bright square, and where it begins, in fractions of the side."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(0, 0.4, size=(n, 1, 32, 32))
    corners = rng.integers(0, 20, size=(n, 2))
    for image, (left, top) in zip(images, corners, strict=True):
        image[0, top : top + 12, left : left + 12] += 0.6
    return images, corners / 32


SEEN, CORNERS = squares_on_noise(60)
UNSEEN = squares_on_noise(10, seed=1)[0]


@pytest.fixture(scope="module")
def of_squares():
    network = ResNet18(dropout=0.5, weights=None, size=32)
    defaults = {"max_epochs": 10, "batch_size": 20, "n_samples": 20, "random_state": 0, "device": "cpu"}
    return MCDropoutRegressor([0.5, 0.8], network=network, **defaults).fit(SEEN, CORNERS)


def test_images_have_intervals_and_doubt_is_a_part_of_them(of_squares):
    total, doubt = (of_squares.predict_interval(UNSEEN, noise=noise).width for noise in (True, False))
    assert total.shape == (10, 2, 2)
    assert ((doubt > 0) & (doubt < total)).all()
    assert (total[..., 0] < total[..., 1]).all()


def test_the_interval_of_an_image_depends_neither_on_those_beside_it_nor_on_the_call_or_a_file(of_squares, tmp_path):
    together = of_squares.predict_interval(UNSEEN)
    save(of_squares, tmp_path / "model.safetensors")
    for same in (of_squares, load(tmp_path / "model.safetensors")):
        assert_array_equal(same.predict_interval(UNSEEN).lower, together.lower)
    alone = of_squares.predict_interval(UNSEEN[[7]])
    assert_allclose(alone.lower, together.lower[[7]], rtol=1e-3, atol=1e-4)  # float32
    assert_allclose(alone.upper, together.upper[[7]], rtol=1e-3, atol=1e-4)


def test_predictions_of_images_are_the_moments_of_the_samples(of_squares):
    """The twin passes layer 4 for itself and drops the channels that the sampled heads drop."""
    fitted_team = of_squares.predictor_.fitted_teams[0]
    team, (tail,) = fitted_team.team, fitted_team.team.members
    assert isinstance(tail, ResNet18Tail)
    features = features_of(UNSEEN, of_squares.source_.trunk, size=32, device="cpu")
    pooled = tail.layer4(torch.from_numpy(np.array(features)).float()).mean(dim=(2, 3)).numpy()
    gains = gains_of(team.sample(20, generator(fitted_team.seed)), team, 20).numpy()
    means = ((gains[:, None] * pooled) @ tail.fc.weight.numpy().T + tail.fc.bias.numpy())[..., :2]  # (sample, row, y)
    spread, centre = CORNERS.std(axis=0), CORNERS.mean(axis=0)
    assert_allclose(of_squares.predict(UNSEEN), means.mean(axis=0) * spread + centre, rtol=1e-4)
    doubt = of_squares.predict_interval(UNSEEN, 0.8, noise=False).width
    assert_allclose(doubt, 2 * Z80 * means.std(axis=0) * spread, rtol=1e-3)


def test_mirror_images_have_mirrored_predictions():
    """Boxes (x, y, width, height), both views averaged: the same samples predict for an image and its mirror image."""
    boxes = np.column_stack([CORNERS[:20], RNG.uniform(0.3, 0.4, size=(20, 2))])
    network = ResNet18(dropout=0.5, weights=None, size=32, mirror="boxes")
    model = fitted(SEEN[:20], boxes, network=network, max_epochs=1, batch_size=20, n_samples=5, device="cpu")
    own, mirrored = model.predict(UNSEEN), model.predict(UNSEEN[..., ::-1])
    assert_allclose(mirrored[:, 0], 1 - own[:, 0] - own[:, 2], atol=1e-5)
    assert_allclose(mirrored[:, 1:], own[:, 1:], atol=1e-5)
