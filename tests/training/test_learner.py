import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell.errors import NonFiniteLossError
from coverwell.networks.mlp import MLP, StackedLinear
from coverwell.networks.team import LoopTeam, Team
from coverwell.training.device import Settings
from coverwell.training.learner import Learner
from coverwell.training.rows import MOST_ROWS_PER_EPOCH, Batches, Rows

CPU = torch.device("cpu")
seeds = st.integers(0, 2**16)


def rows_of(*, n_jobs=2, n_members=2, n_rows=12, n_features=3, seed=0):
    """Random jobs; member m leaves out the rows whose number is m modulo the number of members."""
    draw = torch.Generator().manual_seed(seed)
    left_out = torch.arange(n_rows) % max(2, n_members) == torch.arange(n_members)[:, None]
    drawn = [
        (torch.randn(n_rows, n_features, generator=draw), torch.randn(n_rows, 1, generator=draw)) for _ in range(n_jobs)
    ]
    x, y = (torch.stack(part) for part in zip(*drawn, strict=True))
    leaves_out = left_out.repeat(n_jobs, 1, 1)
    return Rows(x, y, ~leaves_out, leaves_out, torch.full((n_jobs, 1), 0.9), lengths=[n_rows] * n_jobs)


def learner_of(rows, network=None, *, batch_size=4, learning_rate=0.01, ema_decay=0.9, seed=0):
    """A learner built as for a fit."""
    torch.manual_seed(seed)
    network = network or MLP(hidden=5, layers=2, dropout=0.0, bins=0)
    return Learner(network, rows, 1, Settings(9, batch_size, learning_rate, ema_decay, CPU))


def squared_error(rows):
    def loss(outputs, batch):
        return (outputs - rows.batch_of(rows.y, batch)).square().mean(dim=(1, 2))

    return loss


def state_of(team, members):
    """The parameters and buffers of some members."""
    return {name: value.clone() for name, value in team.deployed(members).float().state_dict().items()}


def weights(team):
    return {name: value.clone() for name, value in team.state_dict().items()}


# Batches ---------------------------------------------------------------------------------------------------------


def batches_of(trains, batch_size, seed=0):
    torch.manual_seed(seed)
    return list(Batches(trains, batch_size).epoch())


@given(seed=seeds, batch_size=st.integers(1, 20), counts=st.lists(st.integers(1, 15), min_size=1, max_size=4))
def test_unequal_members_pass_over_their_rows_evenly_and_never_over_those_of_others(seed, batch_size, counts):
    own = torch.arange(20) < torch.tensor(counts)[:, None]
    batches = batches_of(own, batch_size, seed)
    most = max(counts)
    size = min(batch_size, most)
    assert len(batches) == math.ceil(most / size)
    for member, rows in enumerate(torch.cat(batches, dim=1)):
        times = torch.bincount(rows, minlength=20)
        assert times[~own[member]].sum() == 0
        assert times[own[member]].min() >= 1  # every own row is seen
        assert times[own[member]].max() - times[own[member]].min() <= 1  # none twice more often than another


def test_each_epoch_and_each_member_has_an_order_of_its_own():
    own = torch.ones(2, 50, dtype=torch.bool)
    torch.manual_seed(0)
    batches = Batches(own, 50)
    first, second = next(batches.epoch()), next(batches.epoch())
    orders = torch.cat([first, second])
    assert len(orders.unique(dim=0)) == 4


def test_every_row_is_first_equally_often():
    torch.manual_seed(1)
    n_draws, n_rows = 8000, 8
    firsts = next(Batches(torch.ones(n_draws, n_rows, dtype=torch.bool), 1).epoch())[:, 0]
    share = torch.bincount(firsts, minlength=n_rows) / n_draws
    error = math.sqrt(1 / n_rows * (1 - 1 / n_rows) / n_draws)
    assert ((share - 1 / n_rows).abs() < 4 * error).all()


def test_an_epoch_over_a_long_table_is_a_bounded_number_of_different_random_rows():
    own = torch.ones(1, MOST_ROWS_PER_EPOCH + 5000, dtype=torch.bool)
    rows = torch.cat(batches_of(own, 500), dim=1)[0]
    assert len(rows) == MOST_ROWS_PER_EPOCH
    assert len(rows.unique()) == MOST_ROWS_PER_EPOCH
    assert rows.max() >= MOST_ROWS_PER_EPOCH  # from the whole table, not from its beginning


# Descent -------------------------------------------------------------------------------------------------------------


class LinearTeam(Team):
    def __init__(self, n_members, n_features, n_outputs):
        super().__init__()
        self.n_members = n_members
        self.linear = StackedLinear(n_members, n_features, n_outputs)

    def forward(self, x):
        return self.linear(x)


class LinearNetwork:
    def build(self, n_members, input_shape, n_outputs):
        return LinearTeam(n_members, input_shape[0], n_outputs)


@pytest.mark.parametrize("annealed", [False, True])
def test_within_a_round_that_anneals_the_rate_falls_to_zero_along_a_cosine(annealed):
    """The bias has a gradient of one throughout, by which Adam moves it by the rate in every step."""
    rows = rows_of(n_jobs=1, n_members=2)
    learner = learner_of(rows, LinearNetwork(), batch_size=3, learning_rate=0.01)
    seen = []

    def loss(outputs, batch):
        seen.append(learner.team.linear.bias[:, 0, 0].detach().clone())
        return outputs.mean(dim=(1, 2))

    for _ in range(2):  # each round begins with the whole rate
        seen.clear()
        learner.descend(rows, 4, loss, annealed=annealed)  # 6 of 12 rows train, in 2 steps: 8 steps in all
        moved = -np.diff([*map(np.asarray, seen), learner.team.linear.bias[:, 0, 0].detach().numpy()], axis=0)
        rates = 0.01 * (1 + np.cos(np.pi * np.arange(8) / 8)) / 2 if annealed else np.full(8, 0.01)
        assert_allclose(moved, np.stack([rates, rates], axis=1), rtol=1e-3, atol=1e-6)


def test_stacked_members_descend_as_each_would_with_an_optimizer_of_its_own():
    rows = rows_of(n_jobs=1, n_members=3)
    learner = learner_of(rows, LinearNetwork(), batch_size=100)  # one batch: its order does not matter
    twins = []
    for m in range(3):
        linear = nn.Linear(3, 1)
        with torch.no_grad():
            linear.weight.copy_(learner.team.linear.weight[m].T)
            linear.bias.copy_(learner.team.linear.bias[m, 0])
        twins.append(linear)
    learner.descend(rows, 20, squared_error(rows))
    for m, linear in enumerate(twins):
        optimizer = torch.optim.Adam(linear.parameters(), lr=0.01)
        own = rows.trains[0, m]
        for _ in range(20):
            optimizer.zero_grad()
            (linear(rows.x[0, own]) - rows.y[0, own]).square().mean().backward()
            optimizer.step()
        assert_allclose(learner.team.linear.weight[m].T.detach(), linear.weight.detach(), atol=1e-5)
        assert_allclose(learner.team.linear.bias[m, 0].detach(), linear.bias.detach(), atol=1e-5)


@pytest.mark.parametrize("change", ["data", "weights", "loss"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_change_of_one_member_leaves_the_others_to_the_bit_through_training(change, dropout):
    states = []
    for changed in (False, True):
        rows = rows_of(n_jobs=3, n_members=1)
        if changed and change == "data":
            rows.x[0] *= 2
            rows.y[0] += 1
        learner = learner_of(rows, MLP(hidden=5, layers=3, dropout=dropout, bins=3))
        if changed and change == "weights":
            with torch.no_grad():
                learner.team.linears[0].weight[0] += 0.1
        factor = torch.tensor([5.0 if changed and change == "loss" else 1.0, 1.0, 1.0])
        plain = squared_error(rows)
        torch.manual_seed(9)
        for _ in range(3):
            learner.descend(
                rows, 2, lambda outputs, batch, plain=plain, factor=factor: factor * plain(outputs, batch) ** 2
            )
        states.append([state_of(team, slice(m, m + 1)) for team in (learner.team, learner.average) for m in range(3)])
    for m in range(6):
        same = all(torch.equal(states[0][m][name], states[1][m][name]) for name in states[0][m])
        assert same == (m not in (0, 3))


def test_descent_returns_the_mean_loss_of_its_last_epoch():
    rows = rows_of()
    learner = learner_of(rows)  # 6 own rows in batches of 4: two steps an epoch
    scripted = iter(torch.arange(1.0, 7.0))

    def loss(outputs, batch):
        return 0 * outputs.sum(dim=(1, 2)) + next(scripted) * torch.tensor([1.0, 2.0, 3.0, 4.0])

    mean_loss = learner.descend(rows, 3, loss)
    assert_allclose(mean_loss, [5.5, 11.0, 16.5, 22.0])  # (5 + 6) / 2 times 1, 2, 3, 4


def test_the_loss_is_asked_about_the_rows_that_were_shown():
    rows = rows_of()
    learner = learner_of(rows, LinearNetwork(), learning_rate=0.0)
    seen = []

    def loss(outputs, batch):
        shown = rows.at(rows.x, batch)
        assert_allclose(outputs.detach(), learner.team(shown).detach(), atol=1e-6)
        seen.append(batch)
        return outputs.mean(dim=(1, 2))

    learner.descend(rows, 1, loss)
    for member, own in enumerate(torch.cat(seen, dim=1)):
        assert rows.trains[member // 2, member % 2, own].all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_the_training_with_a_way_out(bad):
    rows = rows_of()
    learner = learner_of(rows)
    only_third = torch.tensor([0.0, 0.0, bad, 0.0])
    with pytest.raises(NonFiniteLossError, match="lower learning_rate, or look for extreme values"):
        learner.descend(rows, 1, lambda outputs, batch: outputs.mean(dim=(1, 2)) + only_third)


# The average that predicts -------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(ema_decay=st.sampled_from([0.0, 0.5, 0.75, 0.9]), epochs=st.integers(1, 12))
def test_the_average_weighs_early_epochs_equally_and_later_ones_by_the_ema_decay(ema_decay, epochs):
    rows = rows_of(n_rows=4)
    learner = learner_of(rows, ema_decay=ema_decay)
    expected = None
    for epoch in range(1, epochs + 1):
        learner.descend(rows, 1, squared_error(rows))
        current = learner.team.linears[0].weight.detach().double().numpy()
        share = max(1 - ema_decay, 1 / epoch)
        expected = current if epoch == 1 else (1 - share) * expected + share * current
    assert_allclose(learner.average.linears[0].weight, expected, atol=1e-6)


def test_before_training_the_average_is_the_start():
    learner = learner_of(rows_of())
    for name, value in learner.team.state_dict().items():
        assert_array_equal(learner.average.state_dict()[name], value)


class NormedNetwork:
    """Members with running statistics, which are copied and not averaged."""

    def build(self, n_members, input_shape, n_outputs):
        modules = [
            nn.Sequential(nn.BatchNorm1d(input_shape[0]), nn.Linear(input_shape[0], n_outputs))
            for _ in range(n_members)
        ]
        return LoopTeam(modules, n_outputs)


def test_running_statistics_are_averaged_as_the_weights_are_and_counts_come_along():
    rows = rows_of()
    learner = learner_of(rows, NormedNetwork(), ema_decay=0.9)
    history = []
    for _ in range(3):
        learner.descend(rows, 1, squared_error(rows))
        history.append({name: buffer.clone() for name, buffer in learner.team.named_buffers()})
    for name, average in learner.average.named_buffers():
        if average.is_floating_point():
            assert_allclose(average, np.mean([state[name].numpy() for state in history], axis=0), atol=1e-6)
    counted = [int(buffer) for name, buffer in learner.average.named_buffers() if name.endswith("num_batches_tracked")]
    assert counted == [6] * 4  # 3 epochs of 2 steps


def test_the_average_predicts_without_dropout_and_without_gradient():
    rows = rows_of()
    learner = learner_of(rows, MLP(hidden=16, dropout=0.5))
    learner.descend(rows, 2, squared_error(rows))
    outputs = learner.outputs(rows)
    assert outputs.shape == (4, 12, 1)
    assert not outputs.requires_grad
    assert_array_equal(learner.outputs(rows), outputs)
    learner.descend(rows, 1, squared_error(rows))
    assert (learner.outputs(rows) != outputs).any()


def test_the_outputs_of_a_team_are_for_the_rows_of_its_job():
    rows = rows_of(n_jobs=2, n_members=2)
    learner = learner_of(rows, LinearNetwork())
    outputs = learner.outputs(rows)
    linear = learner.average.linear
    for member in range(4):
        expected = rows.x[member // 2] @ linear.weight[member] + linear.bias[member]
        assert_allclose(outputs[member], expected, atol=1e-6)


@pytest.mark.parametrize("literal", [False, True])
def test_outputs_for_left_out_rows_are_those_among_all_rows(literal):
    rows = rows_of(n_jobs=2, n_members=2)
    if literal:
        rows = replace(rows, leaves_out=torch.ones_like(rows.leaves_out))
    learner = learner_of(rows, LinearNetwork())
    about_all = learner.outputs(rows).gather(1, rows.out_of_fold_view.left_out[..., None])
    assert_allclose(learner.outputs(rows, left_out=True), about_all, atol=1e-6)


# Going on from a trained team ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network", [MLP(hidden=5, layers=2, dropout=0.0, bins=4), NormedNetwork()], ids=["MLP", "loop"]
)
def test_one_jobs_members_go_on_from_a_trained_team_and_the_others_stay(network):
    rows = rows_of(n_jobs=2, n_members=2)
    learner, before = learner_of(rows, network, seed=0), learner_of(rows, network, seed=1)
    before.descend(rows, 2, squared_error(rows))
    trained = before.average.deployed(slice(0, 2)).double()
    untouched = state_of(learner.team, slice(0, 2))
    learner.start_from(slice(2, 4), trained)
    for own in (learner.team, learner.average):
        for name, value in state_of(own, slice(2, 4)).items():
            assert_array_equal(value, trained.state_dict()[name].to(value))
        for name, value in state_of(own, slice(0, 2)).items():
            assert_array_equal(value, untouched[name])
        assert all(parameter.dtype == torch.float32 for parameter in own.parameters())


@pytest.mark.parametrize("ema_decay", [0.0, 0.5, 0.8, 0.9])
def test_what_a_learner_starts_from_weighs_as_much_as_all_earlier_epochs_would(ema_decay):
    rows = rows_of(n_jobs=1)
    learner, trained = learner_of(rows, ema_decay=ema_decay), learner_of(rows, seed=1).team
    learner.start_from(slice(0, 2), trained)
    learner.descend(rows, 1, squared_error(rows))
    for name, value in weights(learner.average).items():
        expected = ema_decay * trained.state_dict()[name] + (1 - ema_decay) * learner.team.state_dict()[name]
        assert_allclose(value, expected, atol=1e-6)


# Features kept in half the precision ---------------------------------------------------------------------------------


def test_rows_in_half_the_precision_are_learned_as_the_same_rows_in_full():
    """A network never sees the shorter numbers: batches and chunks are brought to the precision of y."""
    rows = rows_of()
    short = replace(rows, x=rows.x.half())
    full = replace(rows, x=rows.x.half().float())
    outputs = []
    for rows in (short, full):
        learner = learner_of(rows)
        torch.manual_seed(1)
        learner.descend(rows, 2, squared_error(rows))
        outputs.append(learner.outputs(rows))
    assert outputs[0].dtype == torch.float32
    assert_array_equal(*outputs)
