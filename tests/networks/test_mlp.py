import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest, uniform
from torch import nn

from coverwell.networks.mlp import MLP, MLPTeam, PiecewiseLinear, StackedLinear, Waves
from coverwell.training.device import Adam

cells = st.floats(-5, 5, width=32)
rates = pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])


def build(recipe, *, n_members=3, n_features=4, n_outputs=2, seed=0):
    torch.manual_seed(seed)
    team = recipe.build(n_members=n_members, input_shape=(n_features,), n_outputs=n_outputs)
    team.adapt(torch.randn(1, 30, n_features), torch.ones(1, 30, dtype=torch.bool))
    return team.double()


def linear_of(stacked, member, gain=1.0):
    """The `torch.nn.Linear` with the weights of one member."""
    linear = nn.Linear(stacked.weight.shape[1], stacked.weight.shape[2], dtype=stacked.weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(gain * stacked.weight[member].T)
        linear.bias.copy_(stacked.bias[member, 0])
    return linear


def sequential_of(team, member):
    """The `torch.nn.Sequential` of one member; weights behind a hidden layer carry the share of units that are kept."""
    first, *others = team.linears
    layers = [linear_of(first, member)]
    for stacked in others:
        layers += [nn.ReLU(), linear_of(stacked, member, gain=1 - team.rate)]
    return nn.Sequential(*layers)


def counter(rate, hidden, n_outputs=1, n_members=1):
    """A network with one hidden layer of ones, whose output adds up the units that are kept."""
    team = MLP(hidden=hidden, layers=2, dropout=rate, bins=0).build(n_members, input_shape=(1,), n_outputs=n_outputs)
    with torch.no_grad():
        for parameter in team.parameters():
            parameter.zero_()
        team.linears[0].bias.fill_(1.0)
        team.linears[1].weight.fill_(1.0)
    return team


def test_a_stacked_layer_by_hand():
    layer = StackedLinear(1, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[3.0], [-1.0]]]))
        layer.bias.fill_(0.5)
    x = torch.tensor([[[2.0, 4.0]]])
    assert layer(x).item() == 2.5  # 0.5 + 2 x 3 - 4 x 1
    assert layer(x, gain=0.5).item() == 1.5  # 0.5 + 0.5 (2 x 3 - 4 x 1)


@given(seed=st.integers(0, 2**16), n_members=st.integers(1, 4), batch=st.integers(1, 5))
def test_a_stacked_layer_is_torchs_linear_member_by_member(seed, n_members, batch):
    torch.manual_seed(seed)
    layer = StackedLinear(n_members, 3, 2).double()
    x = torch.randn(n_members, batch, 3, dtype=torch.float64)
    for m in range(n_members):
        assert_allclose(layer(x)[m].detach(), linear_of(layer, m)(x[m]).detach(), atol=1e-12)


def test_a_stacked_layer_has_the_gradients_of_torchs_linear():
    layer = StackedLinear(3, 4, 2).double()
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    layer(x).square().sum().backward()
    for m in range(3):
        twin = linear_of(layer, m)
        twin(x[m]).square().sum().backward()
        assert_allclose(layer.weight.grad[m], twin.weight.grad.T, atol=1e-10)
        assert_allclose(layer.bias.grad[m, 0], twin.bias.grad, atol=1e-10)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_stacked_layer_starts_from_the_law_of_torchs_linear(name):
    torch.manual_seed(0)
    values = getattr(StackedLinear(40, 25, 100), name).detach().flatten()
    twin = getattr(nn.Linear(25, 4000), name).detach().flatten()
    bound = 1 / math.sqrt(25)
    for sample in (values, twin):
        assert kstest(sample, uniform(-bound, 2 * bound).cdf).pvalue > 1e-4


def adapted(columns, *, bins, n_members=1):
    """A code whose edges come from one job with these rows, (row, feature)."""
    rows = torch.as_tensor(columns, dtype=torch.float32)
    code = PiecewiseLinear(n_members, rows.shape[1], bins)
    code.adapt(rows[None], torch.ones(1, len(rows), dtype=torch.bool))
    return code


def numpy_code(x, edges):
    """The code of the values x by these edges: 1 for a bin passed, a fraction within, 0 before; 0 in an empty bin."""
    low, high = edges[:-1], edges[1:]
    span = np.where(high > low, high - low, 1.0)
    return np.where(high > low, np.clip((np.asarray(x)[:, None] - low) / span, 0, 1), 0.0)


def test_the_code_by_hand():
    code = adapted([[0.0], [1.0], [2.0], [3.0], [4.0]], bins=2)  # edges 0, 2, 4
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 9.0]).reshape(1, -1, 1)
    expected = [[-1, 0, 0], [0, 0, 0], [1, 0.5, 0], [2, 1, 0], [3, 1, 0.5], [4, 1, 1], [9, 1, 1]]
    assert_array_equal(code(x)[0], expected)


def test_all_columns_come_first_and_then_their_codes_one_by_one():
    code = adapted([[0.0, 10.0], [1.0, 20.0], [2.0, 40.0]], bins=2)  # edges 0, 1, 2 and 10, 20, 40
    assert code.n_outputs == 6
    assert_array_equal(code(torch.tensor([[[1.5, 15.0]]]))[0, 0], [1.5, 15.0, 1.0, 0.5, 0.5, 0.0])


@given(
    column=arrays(np.float32, 13, elements=cells),
    x=arrays(np.float32, 6, elements=cells),
    bins=st.sampled_from([1, 3, 4]),
)
def test_the_code_is_that_of_numpy_with_order_statistics_for_edges(column, x, bins):
    code = adapted(column[:, None], bins=bins)
    edges = np.sort(column)[:: 12 // bins].astype(np.float64)  # 12 steps between 13 rows
    outputs = code(torch.as_tensor(x).reshape(1, -1, 1))[0].numpy()
    span = np.diff(edges)
    assert_array_equal(outputs[:, 0], x)
    assert_allclose(outputs[:, 1:], numpy_code(x, edges), atol=1e-5 + 1e-6 / span[span > 0].min(initial=1.0))


def test_edges_are_the_nearest_observed_quantiles():
    column = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    code = adapted(column[:, None], bins=16)
    nearest = np.quantile(column, np.linspace(0, 1, 17), method="nearest")
    assert_array_equal(code.start[0, 0, 0], nearest[:-1])
    assert_allclose(code.slope[0, 0, 0], 1 / np.diff(nearest), rtol=1e-5)


@given(column=arrays(np.float32, 20, elements=cells), x=arrays(np.float32, 8, elements=cells))
def test_the_code_is_between_zero_and_one_and_rises_with_the_value(column, x):
    outputs = adapted(column[:, None], bins=5)(torch.as_tensor(np.sort(x)).reshape(1, -1, 1))[0, :, 1:]
    assert (outputs >= 0).all()
    assert (outputs <= 1).all()
    assert (outputs.diff(dim=0) >= 0).all()


def test_about_the_same_share_of_training_rows_lies_in_every_bin():
    column = np.random.default_rng(1).lognormal(size=801).astype(np.float32)
    outputs = adapted(column[:, None], bins=8)(torch.as_tensor(column).reshape(1, -1, 1))[0, :, 1:]
    passed = (outputs > 1 - 1e-6).sum(dim=0)
    assert_array_equal(passed, 801 - 100 * np.arange(1, 9))  # 800 steps of rank, 100 in each bin


@pytest.mark.parametrize(
    ("column", "bins", "x", "expected"),
    [
        ([3.0] * 10, 4, [2.0, 3.0, 4.0], [[0, 0, 0, 0]] * 3),  # constant: no code
        ([0.0] * 6 + [1.0] * 3, 4, [0.0, 0.25, 1.0], [[0, 0, 0, 0], [0, 0, 0.25, 0], [0, 0, 1, 0]]),  # 0, 0, 0, 1, 1
    ],
    ids=["one value", "two values"],
)
def test_a_column_of_few_values_has_fewer_bins(column, bins, x, expected):
    outputs = adapted(np.reshape(column, (-1, 1)), bins=bins)(torch.tensor(x).reshape(1, -1, 1))[0]
    assert_array_equal(outputs[:, 0], x)
    assert_array_equal(outputs[:, 1:], expected)


def test_values_that_lie_as_close_as_floats_can_give_a_finite_code():
    tiny = np.float32(np.finfo(np.float32).tiny)
    outputs = adapted([[0.0], [tiny], [1.0]], bins=2)(torch.tensor([0.0, tiny, 0.5, 3e38]).reshape(1, -1, 1))
    assert torch.isfinite(outputs).all()
    assert_array_equal(outputs[0, :, 1], [0, 1, 1, 1])


def test_the_members_of_a_job_share_its_edges_and_other_jobs_have_their_own():
    code = PiecewiseLinear(n_members=4, n_features=1, bins=2)
    jobs = torch.tensor([[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]]).reshape(2, 3, 1)
    code.adapt(jobs, torch.ones(2, 3, dtype=torch.bool))
    outputs = code(torch.full((4, 1, 1), 5.0))[:, 0, 1:]
    assert_array_equal(outputs, [[1, 1], [1, 1], [0.5, 0], [0.5, 0]])


def test_rows_of_padding_do_not_move_the_edges():
    rows = torch.randn(1, 50, 3)
    alone, padded = PiecewiseLinear(2, 3, 8), PiecewiseLinear(2, 3, 8)
    alone.adapt(rows, torch.ones(1, 50, dtype=torch.bool))
    padded.adapt(torch.cat([rows, torch.full((1, 30, 3), 99.0)], dim=1), torch.arange(80)[None] < 50)
    assert_array_equal(padded.start, alone.start)
    assert_array_equal(padded.slope, alone.slope)


def test_the_network_of_the_paper_has_five_linear_layers():
    team = build(MLP(hidden=8, bins=0))
    assert isinstance(team, MLPTeam)
    assert [tuple(linear.weight.shape) for linear in team.linears] == [(3, 4, 8), *[(3, 8, 8)] * 3, (3, 8, 2)]


def test_bins_widen_the_first_layer_alone():
    team = build(MLP(hidden=8, layers=3, bins=5))
    assert [tuple(linear.weight.shape) for linear in team.linears] == [(3, 24, 8), (3, 8, 8), (3, 8, 2)]  # 4 (1 + 5)


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_team_is_a_sequential_of_torch_member_by_member(layers, dropout):
    team = build(MLP(hidden=6, layers=layers, dropout=dropout, bins=0)).eval()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    for m in range(3):
        assert_allclose(team(x)[m].detach(), sequential_of(team, m)(x[m]).detach(), atol=1e-12)


def test_a_team_has_the_gradients_of_a_sequential():
    team = build(MLP(hidden=6, layers=3, dropout=0.0, bins=0))
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    team.train()(x).square().mean(dim=(1, 2)).sum().backward()
    for m in range(3):
        twin = sequential_of(team, m)
        twin(x[m]).square().mean().backward()
        for stacked, linear in zip(team.linears, twin[::2], strict=True):
            assert_allclose(stacked.weight.grad[m], linear.weight.grad.T, atol=1e-12)
            assert_allclose(stacked.bias.grad[m, 0], linear.bias.grad, atol=1e-12)


def test_inputs_and_weights_of_one_member_do_not_change_the_others_by_a_bit():
    team = build(MLP(hidden=6, bins=4)).float().eval()
    x = torch.randn(3, 9, 4)
    before = team(x).detach()
    changed = x.clone()
    changed[0] += 1
    with torch.no_grad():
        for parameter in team.parameters():
            parameter[2] *= 1.5
    after = team(changed).detach()
    assert_array_equal(after[1], before[1])
    assert (after[[0, 2]] != before[[0, 2]]).all()


@pytest.mark.parametrize("inputs", [{"bins": 0}, {"bins": 4}, {"bins": 2, "waves": 3, "scaled": True}], ids=str)
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_rows_that_members_share_are_computed_at_once_with_the_same_result(inputs, n_jobs):
    torch.manual_seed(0)
    team = MLP(hidden=8, layers=3, dropout=0.2, **inputs).build(n_members=3, input_shape=(5,), n_outputs=2).double()
    with torch.no_grad():
        for parameter in team.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # scales too
    team.adapt(torch.randn(n_jobs, 40, 5, dtype=torch.float64), torch.ones(n_jobs, 40, dtype=torch.bool))
    x = torch.randn(1, 30, 5, dtype=torch.float64)
    rows = team.eval().for_members(x.expand(n_jobs, -1, -1))  # jobs of one memory still have edges of their own
    assert (rows.stride(0) == 0) == (n_jobs == 1)
    shared = team(rows).detach()
    assert_allclose(shared, team(x.repeat(3, 1, 1)).detach(), rtol=1e-12, atol=1e-14)
    assert (shared[0] != shared[1]).all()
    some = team.deployed(slice(1, 3)).double()
    assert_allclose(some(x.repeat(2, 1, 1)), team(x.repeat(3, 1, 1)).detach()[1:], rtol=1e-5, atol=1e-6)


# Waves and scales ----------------------------------------------------------------------------------------------------

CODED = MLP(hidden=6, layers=2, dropout=0.0, bins=3, waves=2, scaled=True)


def test_waves_are_cosines_of_each_column_one_column_after_the_other():
    torch.manual_seed(0)
    waves = Waves(n_members=2, n_features=3, waves=4).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    frequency, phase = waves.frequency.detach().numpy(), waves.phase.detach().numpy()  # (member, 1, feature, wave)
    for m, row, column, wave in np.ndindex(2, 5, 3, 4):
        by_hand = np.cos(phase[m, 0, column, wave] + frequency[m, 0, column, wave] * x[m, row, column].item())
        assert_allclose(waves(x)[m, row, 4 * column + wave].item(), by_hand, rtol=1e-12)


@pytest.mark.parametrize("layers", [1, 3])
def test_scales_of_one_change_nothing(layers):
    changes = {"hidden": 6, "layers": layers, "bins": 3, "waves": 2}
    plain, scaled = (build(MLP(scaled=scaled, **changes)).eval() for scaled in (False, True))
    assert_array_equal(scaled.column_scales.detach(), np.ones((3, 4)))
    assert plain.column_scales is None
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    assert_array_equal(scaled(x).detach(), plain(x).detach())


def test_a_scale_stretches_a_column_with_its_bins_and_waves():
    """With a scale of zero, nothing of the column is left; the others are as before."""
    team = build(CODED).eval()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    other = x.clone()
    other[..., 2] += 1.0
    assert (team(x) != team(other)).any()
    with torch.no_grad():
        team.log_scale[:, 2] = -math.inf
    assert_array_equal(team.column_scales[0].detach(), [1, 1, 0, 1])
    assert_array_equal(team(x).detach(), team(other).detach())
    other[..., 1] += 1.0
    assert (team(x) != team(other)).any()


@pytest.mark.parametrize("name", ["log_scale", "waves.frequency", "waves.phase"])
def test_scales_and_waves_have_the_gradients_of_finite_differences(name):
    team = build(CODED)
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    parameter = dict(team.named_parameters())[name]
    loss = team(x).square().sum()
    loss.backward()
    step = 1e-6
    for place in [(0,) * parameter.dim(), tuple(size - 1 for size in parameter.shape)]:
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[place] += sign * step
                sides.append(team(x).square().sum().item())
                parameter[place] -= sign * step
        assert_allclose((sides[0] - sides[1]) / (2 * step), parameter.grad[place].item(), rtol=1e-4, atol=1e-6)
        assert parameter.grad[place] != 0


def test_the_scale_of_a_column_that_says_nothing_falls_below_that_of_one_that_does():
    torch.manual_seed(0)
    team = MLP(hidden=16, layers=2, dropout=0.0, bins=0, waves=2, scaled=True).build(3, (2,), 1).train()
    x = torch.randn(3, 300, 2)
    y = torch.sin(2 * x[..., :1]) + 0.3 * torch.randn(3, 300, 1)
    optimizer = Adam(team, 5e-3)
    for _ in range(200):
        (team(x) - y).square().mean(dim=(1, 2)).sum().backward()
        optimizer.step()
    scales = team.column_scales.detach()
    assert (scales[:, 1] < 0.7 * scales[:, 0]).all()  # in every member


@rates
def test_dropout_drops_its_share_of_hidden_units(rate):
    torch.manual_seed(1)
    hidden, batch = 1000, 200
    kept = counter(rate, hidden).train()(torch.zeros(1, batch, 1)).sum().item()
    n = hidden * batch
    assert abs(kept / n - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / n)


@rates
def test_units_are_dropped_independently_of_their_neighbours(rate):
    torch.manual_seed(2)
    batch, hidden = 20_000, 5
    team = counter(rate, hidden, n_outputs=hidden)
    with torch.no_grad():
        team.linears[1].weight.copy_(torch.eye(hidden)[None])
    dropped = team.train()(torch.zeros(1, batch, 1))[0] == 0  # (row, unit)
    both = rate**2
    error = math.sqrt(both * (1 - both) / batch)
    for first in range(hidden):
        for second in range(first):
            assert abs((dropped[:, first] & dropped[:, second]).double().mean() - both) < 4.5 * error
    following = (dropped[:-1] & dropped[1:]).double().mean(dim=0)  # a unit in one row and in the next
    assert ((following - both).abs() < 4.5 * error).all()


def test_members_are_dropped_independently():
    torch.manual_seed(3)
    batch = 20_000
    dropped = counter(0.5, 1, n_members=2).train()(torch.zeros(2, batch, 1))[..., 0] == 0
    assert abs((dropped[0] & dropped[1]).double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / batch)


@rates
def test_prediction_is_the_expectation_over_dropout_behind_one_hidden_layer(rate):
    team = build(MLP(hidden=50, layers=2, dropout=rate, bins=0), n_members=1, n_outputs=1)
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    n = 20_000
    draws = team.train()(x.expand(1, n, 4)).detach()
    expected = team.eval()(x).item()
    assert abs(draws.mean().item() - expected) < 4 * draws.std().item() / math.sqrt(n)


def test_a_rate_very_close_to_one_drops_nearly_every_unit():
    torch.manual_seed(4)
    team = counter(0.999999, hidden=1000).train()
    # 1,000 units x 100 rows: 0.1 are expected to be kept, or 100,000 x 2^-16 = 1.5 where 16 bits decide
    assert team(torch.zeros(1, 100, 1)).sum().item() < 20


def test_a_dropped_unit_is_not_trained():
    torch.manual_seed(5)
    team = counter(0.5, hidden=64)
    kept = team.train()(torch.zeros(1, 1, 1))
    kept.sum().backward()
    gradient = team.linears[0].bias.grad[0, 0]
    assert gradient.sum().item() == kept.item()  # 1 for a unit that was kept, 0 for a dropped one
    assert set(gradient.tolist()) == {0.0, 1.0}


def test_inputs_and_outputs_are_never_dropped():
    team = build(MLP(layers=1, dropout=0.9, bins=0)).train()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    assert_array_equal(team(x).detach(), team.eval()(x).detach())


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"layers": 0}, {"bins": -1}, {"waves": -1}], ids=str)
def test_sizes_that_make_no_network_are_refused(wrong):
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        MLP(**wrong)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_a_dropout_outside_zero_to_one_is_refused(dropout):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\)"):
        MLP(dropout=dropout)
