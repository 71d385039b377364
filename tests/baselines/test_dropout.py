import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP
from coverwell.baselines import BayesByBackpropRegressor, ConcreteDropoutRegressor, MCDropoutRegressor, voices
from coverwell.baselines.mc_dropout import DropoutLSTM, DropoutMLP, DropoutResNet18
from coverwell.baselines.random_resnet import heads_of
from coverwell.baselines.random_team import RandomTeam
from coverwell.inputs.features import features_of
from coverwell.networks.lstm import LSTM
from coverwell.networks.resnet import ResNet18, ResNet18Tail, ResNet18Trunk
from coverwell.persistence import load, save

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(80, 3))
Y = np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=80)
X_NEW = RNG.uniform(size=(20, 3)).clip(X.min(axis=0), X.max(axis=0))


def team_of(n_members=2, *, dropout=0.5, hidden=12, layers=3, length_scale=0.1, seed=0):
    torch.manual_seed(seed)
    recipe = DropoutMLP(MLP(hidden=hidden, layers=layers, dropout=dropout, bins=0), length_scale)
    return recipe.build(n_members, (4,), 2).double().eval().requires_grad_(False)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fitted(y=Y, **changes):
    usual = {"network": MLP(hidden=16, layers=2, bins=4, dropout=0.5), "max_epochs": 20, "random_state": 0}
    return MCDropoutRegressor(0.8, **usual | changes).fit(X, y)


# The team ------------------------------------------------------------------------------------------------------------


def test_a_sample_is_the_forward_pass_with_some_hidden_units_set_to_zero():
    team = team_of()
    samples = team.sample(3, generator())
    x = torch.randn(6, 9, 4, generator=generator(1), dtype=torch.float64)
    for sample in range(6):
        member, hidden = sample // 3, x[sample]
        for place, linear in enumerate(team.layers):
            if place:
                weight = samples.layers[place].weight[sample]
                speaks = (weight != 0).any(dim=1)
                assert_array_equal(weight[speaks], linear.weight[member, speaks])
                hidden = hidden.relu() * speaks
            hidden = hidden @ linear.weight[member] + linear.bias[member]
        assert_allclose(samples(x)[sample], hidden, rtol=1e-10)


def test_inputs_are_never_silenced():
    team = team_of()
    samples = team.sample(3, generator())
    assert_array_equal(samples.layers[0].weight, team.layers[0].weight.repeat_interleave(3, dim=0))


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_the_share_of_silenced_units_is_the_rate(rate):
    samples = team_of(1, dropout=rate, hidden=20).sample(500, generator())
    for linear in samples.layers[1:]:
        silent = (linear.weight == 0).all(dim=2).double()  # (sample, unit)
        assert abs(silent.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())
        assert ((silent.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / 500)).all()


def test_samples_of_one_hidden_layer_average_to_the_network_that_silences_nobody():
    """The output layer is linear, so the mean over masks is the pass with every unit at its share of speaking."""
    team, n_samples = team_of(1, layers=2), 4000
    x = torch.randn(1, 6, 4, generator=generator(1), dtype=torch.float64)
    said = team.sample(n_samples, generator())(x.expand(n_samples, -1, -1))
    error = said.std(dim=0) / math.sqrt(n_samples)
    assert ((said.mean(dim=0) - team(x)[0]).abs() < 4.5 * error).all()


def test_training_and_samples_have_the_same_law():
    """Three layers: the mean and the spread of the outputs for one row, drawn in both ways."""
    team, n = team_of(1, layers=3), 6000
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    sampled = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    torch.manual_seed(2)
    trained = team.train()(row.expand(1, n, -1))[0]
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=0.08)  # 6 errors of 1 / sqrt(2 n), twice


def test_without_dropout_every_sample_is_the_network_itself():
    team = team_of(1, dropout=0.0)
    x = torch.randn(1, 6, 4, generator=generator(1), dtype=torch.float64)
    assert_allclose(team.sample(2, generator())(x.expand(2, -1, -1)), team(x).expand(2, -1, -1))


def test_the_penalty_by_hand():
    """Half the squared length scale, times the squares of all weights (of hidden units, by their share) and biases."""
    team = team_of(2, dropout=0.25, length_scale=0.3)
    for member in range(2):
        squares = [float((linear.weight[member] ** 2).sum()) for linear in team.layers]
        biases = sum(float((linear.bias[member] ** 2).sum()) for linear in team.layers)
        expected = 0.5 * 0.3**2 * (squares[0] + 0.75 * squares[1] + 0.75 * squares[2] + biases)
        assert team.penalty()[member].item() == pytest.approx(expected)


# The team on an LSTM -------------------------------------------------------------------------------------------------


def lstm_team_of(n_members=2, *, dropout=0.5, hidden=12, layers=2, length_scale=0.1):
    torch.manual_seed(0)
    recipe = DropoutLSTM(LSTM(hidden=hidden, layers=layers, dropout=dropout, steps=3), length_scale)
    return recipe.build(n_members, (4,), 2).double().eval().requires_grad_(False)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_a_sampled_lstm_silences_a_share_of_hidden_units_and_lets_the_others_speak_up(rate):
    team, n = lstm_team_of(1, dropout=rate), 500
    samples = dict(team.sample(n, generator()).named_parameters())
    for name, weight in team.weights():
        gain = samples[name] / weight
        if "recurrent" in name or name == "layers.1.weight":
            gain = gain[:, 0]  # (sample, input): the same for all gates
            assert_allclose(samples[name], weight * gain[:, None], rtol=1e-10)
        elif name == "head.weight":
            gain = gain[..., 0]
            assert_allclose(samples[name], weight * gain[..., None], rtol=1e-10)
        else:  # of numbers of the row, and biases
            assert_array_equal(samples[name], weight.expand(n, -1, -1))
            continue
        silent = (gain == 0).double()
        assert_allclose(gain[gain != 0], np.full(int((gain != 0).sum()), 1 / (1 - rate)), rtol=1e-10)
        assert abs(silent.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())
        assert ((silent.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / n)).all()


def test_an_lstms_recurrent_units_and_those_that_it_passes_on_are_silenced_apart():
    n = 4000
    samples = lstm_team_of(1, hidden=2).sample(n, generator())
    back = samples.layers[0].recurrent[:, 0, 0] == 0
    up = samples.layers[1].weight[:, 0, 0] == 0
    assert abs((back & up).double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_in_training_a_rows_silent_units_of_an_lstm_are_the_same_at_every_step(rate):
    team, said, heard = lstm_team_of(3, dropout=rate).train(), [], []
    lower, upper = team.means.layers
    lower.register_forward_hook(lambda _, __, states: said.append(states))
    upper.register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    torch.manual_seed(3)
    team(torch.randn(3, 100, 4, dtype=torch.float64))
    loudness = heard[0] / said[0]  # (member, step, batch, unit)
    assert_allclose(loudness, loudness[:, :1].expand_as(loudness), rtol=1e-12)
    silent = loudness[:, 0] == 0
    assert_allclose(loudness[:, 0][~silent], np.full(int((~silent).sum()), 1 / (1 - rate)), rtol=1e-12)
    assert abs(silent.double().mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())


def test_training_and_samples_of_an_lstm_have_the_same_law():
    """The mean and the spread of the outputs for one row, over 3000 batches and over 3000 samples."""
    n = 3000
    team = lstm_team_of(1)
    row = torch.randn(1, 1, 4, generator=generator(1), dtype=torch.float64)
    sampled = team.sample(n, generator())(row.expand(n, -1, -1))[:, 0]
    many = DropoutLSTM(team.lstm, 0.1).build(n, (4,), 2).double().train()  # a member draws by itself
    many.load_state_dict({name: value.expand(n, -1, -1) for name, value in team.state_dict().items()})
    torch.manual_seed(2)
    trained = many(row.expand(n, -1, -1))[:, 0].detach()
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=0.11)  # 6 errors of 1 / sqrt(2 n), twice


def test_the_penalty_of_an_lstm_by_hand():
    """One unit, one output, one number beside three steps; all weights are 1, and 0 those of the shortcut.

    5 weights of the row, 4 of a step and 1 of the number beside, and 6 biases count as they are; 4 recurrent ones and 1
    of the head speak in a quarter of the draws, then as 4 each.
    """
    recipe = DropoutLSTM(LSTM(hidden=1, layers=1, dropout=0.75, steps=3), length_scale=0.3)
    team = recipe.build(1, (4,), 1).requires_grad_(False)
    for name, weight in team.weights():
        weight.fill_(0.0 if name.startswith("shortcut") else 1.0)
    assert team.penalty().item() == pytest.approx(0.5 * 0.3**2 * (5 + 6 + (4 + 1) * 0.25 * 4**2))


# The team on a ResNet-18 ---------------------------------------------------------------------------------------------


def resnet_team_of(n_members=2, *, dropout=0.5, n_outputs=2, length_scale=0.1):
    torch.manual_seed(0)
    recipe = DropoutResNet18(ResNet18(dropout=dropout, weights=None), length_scale)
    return recipe.build(n_members, (256, 2, 2), n_outputs).eval().requires_grad_(False)


PICTURES = torch.randn(4, 256, 2, 2, generator=generator(5))


def about_pictures(team):
    return team(team.for_members(PICTURES[None]))


def gains_of(samples, team, n_samples):
    """By how much the samples' heads multiply each channel, (sample, channel); the same for all outputs."""
    wide = torch.stack([tail.fc.weight for tail in samples.tails.members])  # (member, sample * output, channel)
    weights = wide.unflatten(1, (n_samples, -1)).flatten(0, 1)
    gain = weights / heads_of(team)[0].repeat_interleave(n_samples, dim=0)
    assert_allclose(gain, gain[:, :1].expand_as(gain), rtol=1e-6)
    return gain[:, 0]


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_a_sampled_resnet_silences_a_share_of_pooled_channels_and_lets_the_others_speak_up(rate):
    team, n = resnet_team_of(1, dropout=rate), 100
    gain = gains_of(team.sample(n, generator()), team, n)
    silent = (gain == 0).double()
    assert_allclose(gain[gain != 0], np.full(int((gain != 0).sum()), 1 / (1 - rate)), rtol=1e-6)
    assert abs(silent.mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / silent.numel())
    assert ((silent.mean(dim=0) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / n)).all()
    assert ((silent.mean(dim=1) - rate).abs() < 4.5 * math.sqrt(rate * (1 - rate) / 512)).all()


def test_members_of_a_resnet_and_their_samples_are_silenced_apart():
    team = resnet_team_of(2)
    silent = gains_of(team.sample(3, generator()), team, 3) == 0
    assert len(silent.unique(dim=0)) == 6


def test_samples_of_a_resnet_are_ordered_by_member_and_come_again_with_the_same_seed():
    team = resnet_team_of(2)
    team.members[1].fc.bias.add_(1000.0)
    first, same, other = (about_pictures(team.sample(3, generator(seed))) for seed in (0, 0, 1))
    assert_array_equal(first, same)
    assert (first != other).any()
    assert (first[:3] < 500).all()
    assert (first[3:] > 500).all()


def test_samples_of_a_resnet_average_to_the_network_that_silences_nobody():
    """The head is linear, and who speaks is louder by the share of those who do not."""
    team, n = resnet_team_of(1), 4000
    said = about_pictures(team.sample(n, generator()))
    error = said.std(dim=0) / math.sqrt(n)
    assert ((said.mean(dim=0) - about_pictures(team)[0]).abs() < 4.5 * error).all()


def test_training_and_samples_of_a_resnet_have_the_same_law():
    """The mean and the spread of the outputs for one picture, drawn in both ways."""
    team, n = resnet_team_of(1), 3000
    sampled = team.sample(n, generator())(PICTURES[None, :1])[:, 0]
    for module in team.modules():
        module.training = isinstance(module, torch.nn.Dropout)  # batch norms by the statistics that samples have
    torch.manual_seed(2)
    trained = team(PICTURES[None, :1].expand(1, n, -1, -1, -1))[0]
    error = sampled.std(dim=0) * math.sqrt(2 / n)
    assert ((sampled.mean(dim=0) - trained.mean(dim=0)).abs() < 4.5 * error).all()
    assert_allclose(sampled.std(dim=0), trained.std(dim=0), rtol=0.11)  # 6 errors of 1 / sqrt(2 n), twice


def test_the_penalty_of_a_resnet_by_hand():
    """All 512 weights of a head are 0.5 and a bias is 2; a weight speaks in a quarter of the draws, then as 2."""
    team = resnet_team_of(2, dropout=0.75, n_outputs=1, length_scale=0.3)
    team.members[0].fc.weight.fill_(0.5)
    team.members[0].fc.bias.fill_(2.0)
    team.members[1].fc.weight.fill_(0.0)
    team.members[1].fc.bias.fill_(0.0)
    expected = 0.5 * 0.3**2 * (512 * 0.25 * 2.0**2 + 2.0**2)
    assert_allclose(team.penalty(), [expected, 0.0], rtol=1e-6)


def test_the_penalty_of_a_resnet_pulls_at_its_head_alone():
    team = resnet_team_of(1).requires_grad_(True)
    team.penalty().sum().backward()
    pulled = {name for name, weight in team.named_parameters() if weight.grad is not None}
    assert pulled == {"members.0.fc.weight", "members.0.fc.bias"}


def test_a_resnet_team_is_random_and_a_sample_has_a_head_of_its_own():
    team = resnet_team_of(3, n_outputs=4)
    assert isinstance(team, RandomTeam)
    assert team.numbers_per_sample == 3 * (512 * 4 + 4)


def test_a_trained_resnet_needs_no_file_of_weights_to_be_built_again(tmp_path):
    team = resnet_team_of(1)
    whole = {**ResNet18Trunk().state_dict(), **team.members[0].state_dict()}
    torch.save(whole, tmp_path / "resnet18.pth")
    started = DropoutResNet18(ResNet18(dropout=0.5, weights=tmp_path / "resnet18.pth"), 0.1)
    built = started.build(1, (256, 2, 2), 2).requires_grad_(False)
    assert_array_equal(built.members[0].layer4[0].conv1.weight, team.members[0].layer4[0].conv1.weight)
    assert built.recipe == DropoutResNet18(ResNet18(dropout=0.5, weights=None), 0.1)


def test_features_of_another_shape_are_refused_by_a_random_resnet_too():
    with pytest.raises(ValueError, match="takes features of the shape"):
        DropoutResNet18(ResNet18(weights=None), 0.1).build(1, (3, 32, 32), 2)


# The regressor -------------------------------------------------------------------------------------------------------


def test_a_network_that_silences_nobody_is_refused():
    with pytest.raises(ValueError, match="must have a dropout above 0 to be sampled by"):
        fitted(network=MLP(hidden=16, layers=2, dropout=0.0))
    with pytest.raises(ValueError, match="must have a dropout above 0 to be sampled by"):
        fitted(network=LSTM(hidden=16, steps=3))
    with pytest.raises(ValueError, match="must have a dropout above 0 to be sampled by"):
        fitted(network=ResNet18(dropout=0.0, weights=None))


def test_another_network_is_refused_with_those_that_can_be_silenced():
    with pytest.raises(ValueError, match=r"must be one of MLP\(...\), LSTM\(...\), ResNet18\(...\), .* got 7"):
        fitted(network=7)


@pytest.mark.parametrize("kind", [ConcreteDropoutRegressor, BayesByBackpropRegressor])
def test_other_random_networks_refuse_a_resnet_and_say_what_they_take(kind):
    model = kind(0.8, network=ResNet18(weights=None))
    with pytest.raises(ValueError, match=r"must be one of MLP\(...\), LSTM\(...\), whose .* got ResNet18\("):
        model.fit(np.zeros((20, 3, 32, 32)), np.zeros(20))


def test_by_default_half_of_the_units_are_silenced():
    assert MCDropoutRegressor.NETWORK.dropout == 0.5


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_what_a_row_is_told_depends_neither_on_the_rows_beside_it_nor_on_the_call(model):
    together = model.predict_interval(X_NEW)
    again = model.predict_interval(X_NEW)
    assert_array_equal(again.lower, together.lower)
    for row in (0, 7, 19):
        alone = model.predict_interval(X_NEW[[row]])
        assert_allclose(alone.lower, together.lower[[row]], rtol=1e-9)
        assert_allclose(alone.upper, together.upper[[row]], rtol=1e-9)
    assert_allclose(model.predict(X_NEW[::-1])[::-1], model.predict(X_NEW), rtol=1e-9)


def test_one_sample_predicts_and_has_no_doubt():
    model = fitted(n_samples=1)
    assert (model.predict_interval(X_NEW).width > 0).all()
    assert_array_equal(model.predict_interval(X_NEW, noise=False).width, np.zeros(20))


def test_predictions_are_the_moments_of_the_samples(model):
    """The twin is worked out from the sampled networks, in the user's units."""
    said = model.ensembles_[0]
    team = said.team.sample(model.n_samples, generator(said.seed))
    x = torch.from_numpy((X_NEW - X.mean(axis=0)) / X.std(axis=0))
    outputs = team(x.expand(model.n_samples, -1, -1)).numpy()
    means, sigmas = outputs[..., 0], np.log1p(np.exp(outputs[..., 1])) + 1e-3
    assert_allclose(model.predict(X_NEW), means.mean(axis=0) * Y.std() + Y.mean())
    z = 1.2815515655446004  # of the central 80 %
    total = np.sqrt(means.var(axis=0) + (sigmas**2).mean(axis=0))
    assert_allclose(model.predict_interval(X_NEW).width, 2 * z * total * Y.std())
    assert_allclose(model.predict_interval(X_NEW, noise=False).width, 2 * z * means.std(axis=0) * Y.std())


def test_samples_in_several_parts_are_as_many_and_as_good(model, monkeypatch):
    whole, doubt = model.predict(X_NEW), model.predict_interval(X_NEW, noise=False)
    n_numbers = sum(weight.numel() for weight in model.ensembles_[0].team.parameters())
    monkeypatch.setattr(voices, "NUMBERS_AT_A_TIME", 8 * n_numbers)
    sizes = [team.n_members for team in model.ensembles_[0]._speaking()]
    assert sizes == [8, 8, 8, 8, 8, 8, 2]
    parts = model.predict(X_NEW)
    assert_array_equal(model.predict(X_NEW), parts)
    sd = doubt.width / (2 * 1.2815515655446004)
    assert (np.abs(parts - whole) < 5 * sd * math.sqrt(2 / 50)).all()  # other samples of the same law
    monkeypatch.setattr(voices, "NUMBERS_AT_A_TIME", 1)
    assert [team.n_members for team in model.ensembles_[0]._speaking()] == [1] * 50


def test_a_strong_prior_holds_the_weights_near_zero():
    free, held = (fitted(length_scale=scale, max_epochs=60, learning_rate=0.02) for scale in (0.0, 30.0))
    norms = [max(linear.weight.abs().max() for linear in model.ensembles_[0].team.layers) for model in (free, held)]
    assert norms[1] < 0.2 * norms[0]
    assert np.ptp(held.predict(X_NEW)) < 0.2 * np.ptp(free.predict(X_NEW))


# The regressor on pictures -------------------------------------------------------------------------------------------


def squares_on_noise(n, seed=0):
    """Grey noise with a bright square, and where it begins, in fractions of the side."""
    rng = np.random.default_rng(seed)
    pictures = rng.uniform(0, 0.4, size=(n, 1, 32, 32))
    corners = rng.integers(0, 20, size=(n, 2))
    for picture, (left, top) in zip(pictures, corners, strict=True):
        picture[0, top : top + 12, left : left + 12] += 0.6
    return pictures, corners / 32


SEEN, CORNERS = squares_on_noise(60)
UNSEEN = squares_on_noise(10, seed=1)[0]


@pytest.fixture(scope="module")
def of_pictures():
    network = ResNet18(dropout=0.5, weights=None, size=32)
    usual = {"max_epochs": 10, "batch_size": 20, "n_samples": 20, "random_state": 0, "device": "cpu"}
    return MCDropoutRegressor([0.5, 0.8], network=network, **usual).fit(SEEN, CORNERS)


def test_pictures_have_intervals_and_doubt_is_a_part_of_them(of_pictures):
    total, doubt = (of_pictures.predict_interval(UNSEEN, noise=noise).width for noise in (True, False))
    assert total.shape == (10, 2, 2)
    assert (doubt > 0).all()
    assert (doubt < total).all()
    assert (total[..., 0] < total[..., 1]).all()


def test_what_a_picture_is_told_depends_neither_on_those_beside_it_nor_on_the_call(of_pictures):
    together = of_pictures.predict_interval(UNSEEN)
    assert_array_equal(of_pictures.predict_interval(UNSEEN).lower, together.lower)
    for row in (0, 7):
        alone = of_pictures.predict_interval(UNSEEN[[row]])
        assert_allclose(alone.lower, together.lower[[row]], rtol=1e-3, atol=1e-4)  # float32
        assert_allclose(alone.upper, together.upper[[row]], rtol=1e-3, atol=1e-4)


def test_a_prediction_passes_layer_4_once_for_all_samples(of_pictures, monkeypatch):
    passes, whole = [], ResNet18Tail.forward

    def counted(tail, features):
        passes.append(len(features))
        return whole(tail, features)

    monkeypatch.setattr(ResNet18Tail, "forward", counted)
    of_pictures.predict(UNSEEN)
    assert passes == [10]


def test_predictions_of_pictures_are_the_moments_of_the_samples(of_pictures):
    """The twin passes layer 4 for itself and silences channels of the sampled heads' choice."""
    said = of_pictures.ensembles_[0]
    tail = said.team.members[0]
    features = features_of(UNSEEN, of_pictures.trunk_, size=32, device="cpu")
    pooled = tail.layer4(torch.from_numpy(np.array(features)).float()).mean(dim=(2, 3)).numpy()
    gains = gains_of(said.team.sample(20, generator(said.seed)), said.team, 20).numpy()
    outputs = (gains[:, None] * pooled) @ tail.fc.weight.numpy().T + tail.fc.bias.numpy()  # (sample, row, output)
    means = outputs[..., :2]
    spread, centre = CORNERS.std(axis=0), CORNERS.mean(axis=0)
    assert_allclose(of_pictures.predict(UNSEEN), means.mean(axis=0) * spread + centre, rtol=1e-4)
    z = 1.2815515655446004  # of the central 80 %
    doubt = of_pictures.predict_interval(UNSEEN, 0.8, noise=False).width
    assert_allclose(doubt, 2 * z * means.std(axis=0) * spread, rtol=1e-3)


def test_mirror_images_of_pictures_are_predicted_mirrored():
    """Boxes (x, y, width, height), both views averaged: the same samples speak about a picture and its mirror image."""
    boxes = np.column_stack([CORNERS[:20], RNG.uniform(0.3, 0.4, size=(20, 2))])
    network = ResNet18(dropout=0.5, weights=None, size=32, mirror="boxes")
    usual = {"max_epochs": 1, "batch_size": 20, "n_samples": 5, "random_state": 0, "device": "cpu"}
    model = MCDropoutRegressor(0.8, network=network, **usual).fit(SEEN[:20], boxes)
    said, mirrored = model.predict(UNSEEN), model.predict(UNSEEN[..., ::-1])
    assert_allclose(mirrored[:, 0], 1 - said[:, 0] - said[:, 2], atol=1e-5)
    assert_allclose(mirrored[:, 1:], said[:, 1:], atol=1e-5)


def test_a_file_gives_a_model_of_pictures_back_with_the_same_bits(of_pictures, tmp_path):
    save(of_pictures, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.network == of_pictures.network
    for bound, same in zip(again.predict_interval(UNSEEN), of_pictures.predict_interval(UNSEEN), strict=True):
        assert_array_equal(bound, same)
