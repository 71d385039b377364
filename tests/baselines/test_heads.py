import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.metrics import mean_pinball_loss
from torch.distributions import Categorical, MixtureSameFamily, Normal

from coverwell.baselines.training import SMALLEST_SIGMA, NormalHead, OutputHead, QuantileHead
from coverwell.paper.losses import Levels, z_score

NORMAL, QUANTILE = NormalHead(), QuantileHead()
seeds = st.integers(0, 2**16)


def levels_of(*coverage):
    values = torch.tensor(coverage, dtype=torch.float64)
    return Levels(values, z_score(values))


# Two teams whose levels differ.
LEVELS = levels_of([0.5, 0.8, 0.95], [0.2, 0.6, 0.9])
Z = stats.norm.ppf((1 + LEVELS.coverage.numpy()) / 2)[:, None, None, :]


def outputs_of(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("head", [NORMAL, QUANTILE])
def test_both_are_output_heads(head):
    assert isinstance(head, OutputHead)


def test_a_normal_head_emits_two_numbers_per_target_and_a_quantile_head_a_median_and_two_ends_per_level():
    sizes = ((1, 1), (1, 5), (3, 2))
    assert [NORMAL.n_outputs(*size) for size in sizes] == [2, 2, 6]
    assert [QUANTILE.n_outputs(*size) for size in sizes] == [3, 11, 15]


# Normal --------------------------------------------------------------------------------------------------------------


@given(seed=seeds)
def test_the_normal_loss_is_the_negative_log_likelihood_without_its_constant(seed):
    outputs, y = outputs_of(2, 7, 6, seed=seed, scale=3.0), outputs_of(2, 7, 3, seed=seed + 1)
    mean, raw = outputs[..., :3], outputs[..., 3:]
    twin = Normal(mean, raw.exp().log1p() + SMALLEST_SIGMA)  # log(1 + exp(raw)) is the softplus
    expected = -twin.log_prob(y) - 0.5 * math.log(2 * math.pi)
    assert_allclose(NORMAL.losses(outputs, y, LEVELS), expected.mean(dim=-1), rtol=1e-9, atol=1e-9)


def test_the_normal_loss_of_one_row_by_hand():
    raw = math.log(math.expm1(2 - SMALLEST_SIGMA))  # a standard deviation of 2
    outputs, y = torch.tensor([[[1.0, raw]]], dtype=torch.float64), torch.full((1, 1, 1), 4.0, dtype=torch.float64)
    assert_allclose(NORMAL.losses(outputs, y, levels_of([0.9])), [[0.5 * 1.5**2 + math.log(2)]])


def test_a_standard_deviation_stays_above_zero_and_its_loss_finite():
    outputs = torch.tensor([[[0.0, -1e6]]], dtype=torch.float64)
    assert NORMAL.moments(outputs)[1].item() == pytest.approx(SMALLEST_SIGMA)
    assert torch.isfinite(NORMAL.losses(outputs, torch.ones_like(outputs[..., :1]), levels_of([0.9]))).all()


@given(seed=seeds, n_networks=st.integers(1, 6))
def test_networks_are_combined_with_the_mean_and_variance_of_their_mixture(seed, n_networks):
    outputs = outputs_of(2, n_networks, 5, 4, seed=seed, scale=2.0)
    means, sigmas = NORMAL.moments(outputs)  # (team, network, row, target)
    components = Normal(means.movedim(1, -1), sigmas.movedim(1, -1))
    mixture = MixtureSameFamily(Categorical(torch.ones(n_networks, dtype=torch.float64)), components)
    mean, half_width = NORMAL.combined(outputs, LEVELS, noise=True)
    assert_allclose(mean, mixture.mean, atol=1e-9)
    for side in (0, 1):
        assert_allclose(half_width[..., side, :], mixture.stddev.numpy()[..., None] * Z, rtol=1e-7)


def test_two_networks_by_the_law_of_total_variance():
    """Means 1 and 5, standard deviations 1 and 3: the mean is 3, the variance (1 + 9) / 2 + 4 = 9."""
    raw = [math.log(math.expm1(sd - SMALLEST_SIGMA)) for sd in (1.0, 3.0)]
    outputs = torch.tensor([[1.0, raw[0]], [5.0, raw[1]]], dtype=torch.float64)[None, :, None, :]
    z = stats.norm.ppf(0.975)
    for noise, sd in ((True, 3), (False, 2)):
        mean, half_width = NORMAL.combined(outputs, levels_of([0.95]), noise=noise)
        assert_allclose(mean, [[[3.0]]])
        assert_allclose(half_width.flatten(), [sd * z, sd * z])


@given(seed=seeds)
def test_without_noise_the_half_width_is_the_spread_of_the_means_alone(seed):
    outputs = outputs_of(2, 4, 5, 4, seed=seed)
    _, doubt = NORMAL.combined(outputs, LEVELS, noise=False)
    spread = outputs[..., :2].numpy().std(axis=1)  # (team, row, target)
    assert_allclose(doubt[..., 0, :], spread[..., None] * Z, rtol=1e-7, atol=1e-12)
    assert (doubt < NORMAL.combined(outputs, LEVELS, noise=True)[1]).all()


def test_one_network_has_no_doubt():
    _, doubt = NORMAL.combined(outputs_of(2, 1, 5, 4), LEVELS, noise=False)
    assert_array_equal(doubt, torch.zeros(2, 5, 2, 2, 3))


# Quantiles -----------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=seeds)
def test_the_quantile_loss_is_scikit_learns_pinball_loss_averaged_over_quantiles_and_targets(seed):
    outputs, y = outputs_of(2, 6, 14, seed=seed), outputs_of(2, 6, 2, seed=seed + 1, scale=2.0)
    median, half_width = QUANTILE.quantiles(outputs, LEVELS)
    losses = QUANTILE.losses(outputs, y, LEVELS)
    for member, row in np.ndindex(2, 6):
        expected = []
        for target in range(2):
            observed, centre = y[member, row, target : target + 1], median[member, row, target]
            expected.append(mean_pinball_loss(observed, centre[None], alpha=0.5))
            for place, level in enumerate(LEVELS.coverage[member].tolist()):
                below, above = half_width[member, row, target, :, place]
                expected.append(mean_pinball_loss(observed, (centre - below)[None], alpha=(1 - level) / 2))
                expected.append(mean_pinball_loss(observed, (centre + above)[None], alpha=(1 + level) / 2))
        assert losses[member, row].item() == pytest.approx(np.mean(expected), rel=1e-9)


@given(
    outputs=st.lists(st.floats(-1e4, 1e4), min_size=14, max_size=14),
    inner=st.floats(0.01, 0.9),
    step=st.floats(0.001, 0.08),
)
def test_bounds_never_cross_and_each_level_contains_the_one_inside_it_whatever_the_outputs(outputs, inner, step):
    row = torch.tensor(outputs, dtype=torch.float64)[None, None, None, :]  # one team, one network, one row
    _, half_width = QUANTILE.combined(row, levels_of([inner, inner + step, 0.99]), noise=True)
    assert torch.isfinite(half_width).all()
    assert (half_width >= 0).all()
    assert (half_width.diff(dim=-1) >= 0).all()


def test_outputs_of_zero_are_the_quantiles_of_a_standard_normal_distribution():
    mean, half_width = QUANTILE.combined(torch.zeros(2, 1, 3, 14, dtype=torch.float64), LEVELS, noise=True)
    assert_array_equal(mean, torch.zeros(2, 3, 2))
    assert_allclose(half_width, np.broadcast_to(Z[:, :, :, None], (2, 3, 2, 2, 3)))


@given(seed=seeds, n_networks=st.integers(1, 5))
def test_networks_are_combined_with_the_averages_of_their_quantiles(seed, n_networks):
    outputs = outputs_of(2, n_networks, 4, 14, seed=seed)
    alone = [QUANTILE.combined(outputs[:, [network]], LEVELS, noise=True) for network in range(n_networks)]
    for part, parts in zip(QUANTILE.combined(outputs, LEVELS, noise=True), zip(*alone, strict=True), strict=True):
        assert_allclose(part, torch.stack(parts).mean(dim=0), atol=1e-12)


def test_the_best_constant_quantiles_are_those_of_the_rows():
    """Descent on the loss, with nothing but constants to learn, ends at the quantiles of the targets."""
    y = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(1, 401, 1)))
    constants = torch.zeros(1, 1, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([constants], lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        QUANTILE.losses(constants.expand(1, 401, 3), y, levels_of([0.8])).mean().backward()
        optimizer.step()
    mean, half_width = QUANTILE.combined(constants.detach()[None], levels_of([0.8]), noise=True)
    median, (below, above) = mean.item(), half_width.flatten().tolist()
    # A flat minimum: the loss hardly tells a quantile from the next rows, here within three ranks of 401.
    for learned, share in ((median - below, 0.1), (median, 0.5), (median + above, 0.9)):
        low, high = np.quantile(y.flatten(), [share - 3 / 401, share + 3 / 401])
        assert low <= learned <= high
