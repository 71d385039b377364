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

from coverwell.baselines.laws import SMALLEST_SIGMA, Law, NormalLaw, QuantileLaw

NORMAL, QUANTILE = NormalLaw(), QuantileLaw()
# Two teams whose levels differ.
LEVELS = torch.tensor([[0.5, 0.8, 0.95], [0.2, 0.6, 0.9]], dtype=torch.float64)
seeds = st.integers(0, 2**16)


def outputs_of(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("law", [NORMAL, QUANTILE])
def test_both_are_laws(law):
    assert isinstance(law, Law)


# Normal --------------------------------------------------------------------------------------------------------------


def test_a_normal_law_emits_two_numbers_per_target_whatever_the_levels():
    assert [NORMAL.n_outputs(n_targets, n_levels) for n_targets, n_levels in ((1, 1), (1, 5), (3, 2))] == [2, 2, 6]


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
    assert_allclose(NORMAL.losses(outputs, y, LEVELS[:1]), [[0.5 * 1.5**2 + math.log(2)]])


def test_a_standard_deviation_stays_above_zero_and_its_loss_finite():
    outputs = torch.tensor([[[0.0, -1e6]]])
    assert NORMAL.moments(outputs)[1].item() == pytest.approx(SMALLEST_SIGMA)
    assert torch.isfinite(NORMAL.losses(outputs, torch.ones(1, 1, 1), torch.tensor([[0.9]]))).all()


@given(seed=seeds, n_voices=st.integers(1, 6))
def test_voices_are_read_with_the_mean_and_variance_of_their_mixture(seed, n_voices):
    outputs = outputs_of(2, n_voices, 5, 4, seed=seed, scale=2.0)
    means, sigmas = NORMAL.moments(outputs)  # (team, voice, row, target)
    components = Normal(means.movedim(1, -1), sigmas.movedim(1, -1))
    mixture = MixtureSameFamily(Categorical(torch.ones(n_voices, dtype=torch.float64)), components)
    reading = NORMAL.read(outputs, LEVELS, noise=True)
    assert_allclose(reading.mean, mixture.mean, atol=1e-9)
    z = torch.from_numpy(stats.norm.ppf((1 + LEVELS.numpy()) / 2))[:, None, None, :]
    expected = mixture.stddev[..., None] * z  # (team, row, target, level)
    for side in (0, 1):
        assert_allclose(reading.reach[..., side, :], expected, rtol=1e-7)


def test_two_voices_by_the_law_of_total_variance():
    """Means 1 and 5, standard deviations 1 and 3: the mean is 3, the variance (1 + 9) / 2 + 4 = 9."""
    raw = [math.log(math.expm1(sd - SMALLEST_SIGMA)) for sd in (1.0, 3.0)]
    outputs = torch.tensor([[1.0, raw[0]], [5.0, raw[1]]], dtype=torch.float64)[None, :, None, :]
    covered = torch.tensor([[0.95]], dtype=torch.float64)
    z = stats.norm.ppf(0.975)
    total, doubt = (NORMAL.read(outputs, covered, noise=noise) for noise in (True, False))
    assert_allclose(total.mean, [[[3.0]]])
    assert_allclose(total.reach.flatten(), [3 * z, 3 * z])
    assert_allclose(doubt.mean, [[[3.0]]])
    assert_allclose(doubt.reach.flatten(), [2 * z, 2 * z])


@given(seed=seeds)
def test_without_noise_the_reach_is_the_spread_of_the_means_alone(seed):
    outputs = outputs_of(2, 4, 5, 4, seed=seed)
    reading = NORMAL.read(outputs, LEVELS, noise=False)
    spread = outputs[..., :2].numpy().std(axis=1)  # (team, row, target)
    z = stats.norm.ppf((1 + LEVELS.numpy()) / 2)[:, None, None, :]
    assert_allclose(reading.reach[..., 0, :], spread[..., None] * z, rtol=1e-7, atol=1e-12)
    assert (reading.reach < NORMAL.read(outputs, LEVELS, noise=True).reach).all()


def test_one_voice_has_no_doubt():
    outputs = outputs_of(2, 1, 5, 4)
    assert_array_equal(NORMAL.read(outputs, LEVELS, noise=False).reach, torch.zeros(2, 5, 2, 2, 3))


# Quantiles -----------------------------------------------------------------------------------------------------------


def test_a_quantile_law_emits_a_median_and_two_ends_per_level_for_each_target():
    assert [QUANTILE.n_outputs(t, levels) for t, levels in ((1, 1), (1, 5), (3, 2))] == [3, 11, 15]


@settings(max_examples=10)
@given(seed=seeds)
def test_the_quantile_loss_is_scikit_learns_pinball_loss_averaged_over_quantiles_and_targets(seed):
    outputs, y = outputs_of(2, 6, 14, seed=seed), outputs_of(2, 6, 2, seed=seed + 1, scale=2.0)
    median, reach = QUANTILE.quantiles(outputs, 2, LEVELS)
    losses = QUANTILE.losses(outputs, y, LEVELS)
    for member in range(2):
        for row in range(6):
            expected = []
            for target in range(2):
                told, centre = y[member, row, target : target + 1], median[member, row, target]
                expected.append(mean_pinball_loss(told, centre[None], alpha=0.5))
                for place, level in enumerate(LEVELS[member].tolist()):
                    below, above = reach[member, row, target, :, place]
                    expected.append(mean_pinball_loss(told, (centre - below)[None], alpha=(1 - level) / 2))
                    expected.append(mean_pinball_loss(told, (centre + above)[None], alpha=(1 + level) / 2))
            assert losses[member, row].item() == pytest.approx(np.mean(expected), rel=1e-9)


@given(
    outputs=st.lists(st.floats(-1e4, 1e4), min_size=14, max_size=14),
    inner=st.floats(0.01, 0.9),
    step=st.floats(0.001, 0.08),
)
def test_bounds_never_cross_and_each_level_holds_the_one_inside_it_whatever_the_outputs(outputs, inner, step):
    levels = torch.tensor([[inner, inner + step, 0.99]], dtype=torch.float64)
    said = torch.tensor(outputs, dtype=torch.float64)[None, None, None, :]  # one team, one voice, one row
    reach = QUANTILE.read(said, levels, noise=True).reach
    assert torch.isfinite(reach).all()
    assert (reach >= 0).all()
    assert (reach.diff(dim=-1) >= 0).all()


def test_outputs_of_zero_are_the_quantiles_of_a_standard_normal_law():
    reading = QUANTILE.read(torch.zeros(2, 1, 3, 14, dtype=torch.float64), LEVELS, noise=True)
    assert_array_equal(reading.mean, torch.zeros(2, 3, 2))
    for team in range(2):
        z = stats.norm.ppf((1 + LEVELS[team].numpy()) / 2)
        assert_allclose(reading.reach[team], np.broadcast_to(z, (3, 2, 2, 3)))


@given(seed=seeds, n_voices=st.integers(1, 5))
def test_voices_are_read_with_the_averages_of_their_quantiles(seed, n_voices):
    outputs = outputs_of(2, n_voices, 4, 14, seed=seed)
    reading = QUANTILE.read(outputs, LEVELS, noise=True)
    alone = [QUANTILE.read(outputs[:, [voice]], LEVELS, noise=True) for voice in range(n_voices)]
    assert_allclose(reading.mean, torch.stack([one.mean for one in alone]).mean(dim=0), atol=1e-12)
    assert_allclose(reading.reach, torch.stack([one.reach for one in alone]).mean(dim=0), atol=1e-12)


def test_the_best_constant_quantiles_are_those_of_the_rows():
    """Descent on the loss, with nothing but constants to learn, ends at the quantiles of the targets."""
    y = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(1, 401, 1)))
    level = torch.tensor([[0.8]], dtype=torch.float64)
    constants = torch.zeros(1, 1, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([constants], lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        QUANTILE.losses(constants.expand(1, 401, 3), y, level).mean().backward()
        optimizer.step()
    reading = QUANTILE.read(constants.detach()[None], level, noise=True)
    median, (below, above) = reading.mean.item(), reading.reach.flatten().tolist()
    # A flat minimum: the loss hardly tells a quantile from the next rows, here within three ranks of 401.
    for said, share in ((median - below, 0.1), (median, 0.5), (median + above, 0.9)):
        low, high = np.quantile(y.flatten(), [share - 3 / 401, share + 3 / 401])
        assert low <= said <= high
