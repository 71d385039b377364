import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.metrics import mean_pinball_loss
from torch.distributions import Categorical, MixtureSameFamily, Normal

from coverwell import MLP
from coverwell.baselines import training
from coverwell.baselines.bayes_by_backprop import BayesNetwork
from coverwell.baselines.dropout import DropoutNetwork
from coverwell.baselines.training import SMALLEST_SIGMA, BaselineTeam, BaselineTraining, NormalHead, QuantileHead
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.paper.losses import Levels, z_score
from coverwell.training.device import Settings
from coverwell.training.rows import Rows

PLAIN = MLP(hidden=16, layers=2, dropout=0.2, bins=0)
RANDOM = {
    "dropout": DropoutNetwork(PLAIN, length_scale=0.01),
    "concrete": DropoutNetwork(PLAIN, length_scale=0.01, learned=True),
    "bayes": BayesNetwork(PLAIN, prior_scale=1.0, kl_weight=1.0),
}
NETWORKS = {"plain": PLAIN, **RANDOM}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
every_random = pytest.mark.parametrize("network", RANDOM.values(), ids=RANDOM)


def rows_of(seed, *, n_rows=40, n_members=2, noise=0.5, n_targets=1, coverage=(0.8,)):
    """One job whose member m leaves out the rows whose number is m modulo 4."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3))
    y = np.repeat(x[:, :1], n_targets, axis=1) + noise * rng.normal(size=(n_rows, n_targets))
    left_out = torch.arange(n_rows) % 4 == torch.arange(n_members)[:, None]
    parts = (torch.from_numpy(x).float(), torch.from_numpy(y).float(), ~left_out, left_out, torch.tensor(coverage))
    scalings = {"inputs": [Scaling((3,))], "targets": [Scaling((n_targets,))]}
    return Rows(*(part[None] for part in parts), levels=[coverage], lengths=[n_rows], seeds=[seed], **scalings)


EASY = rows_of(0)
BOTH = Rows.stack([EASY, rows_of(1, n_rows=24, noise=3.0)])  # the second has little to learn, and is over-fitted sooner


def training_of(network=PLAIN, head=None, *, patience=3, **changes):
    numbers = {"max_rounds": 12, "batch_size": 8, "learning_rate": 0.03, "ema_decay": 0.8} | changes
    settings = Settings(device=torch.device("cpu"), **numbers)
    return BaselineTraining(network, head or NormalHead(), settings, patience)


def run(rows, how, seed=0):
    """The trained teams, the history, and the teams as they were after each round."""
    rounds = []
    torch.manual_seed(seed)
    trained, history = how.run(rows, lambda present, _: rounds.append([t.team for t in present(None).teams]))
    return [team.team for team in trained.teams], history, rounds


def networks_of(team):
    """What is evaluated after a round, and how many networks a member has there."""
    if not isinstance(team, training.RandomTeam):
        return team, 1
    generator = torch.Generator().manual_seed(training.EVALUATION_SEED)
    return team.sample(training.N_EVALUATED, generator), training.N_EVALUATED


def held_out_loss(team, rows, job):
    """Of each member on the rows that it left out, averaged over all of them; for random ones, over networks too."""
    networks, n = networks_of(team)
    with torch.no_grad():
        outputs = networks(rows.x[job].double().expand(networks.n_members, -1, -1))
    y, coverage = (
        rows.y[job].double().expand(len(outputs), -1, -1),
        rows.coverage[job].double().expand(len(outputs), -1),
    )
    losses = NormalHead().losses(outputs, y, Levels(coverage, z_score(coverage))).unflatten(0, (-1, n)).mean(dim=1)
    return losses[rows.leaves_out[job]].mean().item()


def same_state(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


# Rounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_rounds", [12, 40])
def test_each_job_ends_at_its_lowest_held_out_loss_after_as_many_rounds_more_as_its_patience(max_rounds):
    teams, history, rounds = run(BOTH, training_of(max_rounds=max_rounds))
    n_rounds = history.n_rounds.tolist()
    for job in range(2):
        losses = [held_out_loss(present[job], BOTH, job) for present in rounds[: n_rounds[job]]]
        assert same_state(teams[job], rounds[int(np.argmin(losses))][job])
        assert n_rounds[job] == min(max_rounds, np.argmin(losses) + 1 + 3)
    assert len(history.rounds) == len(rounds) == max(n_rounds)


@every_random
def test_a_random_team_ends_where_the_same_few_of_its_networks_did_best(network):
    (team,), history, rounds = run(EASY, training_of(network))
    losses = [held_out_loss(present[0], EASY, 0) for present in rounds]
    assert same_state(team, rounds[int(np.argmin(losses))][0])
    assert history.n_rounds.tolist() == [min(12, int(np.argmin(losses)) + 1 + 3)]


class Scripted(NormalHead):
    """A normal head whose loss on held-out rows is given beforehand, by round and job."""

    def __init__(self, script):
        object.__setattr__(self, "script", iter(script))

    def losses(self, outputs, y, levels):
        losses = super().losses(outputs, y, levels)
        if torch.is_grad_enabled():  # in training
            return losses
        of_members = torch.tensor(next(self.script)).repeat_interleave(len(losses) // 2)  # two jobs
        return of_members[:, None].expand_as(losses)


def test_a_job_that_has_ended_keeps_its_round_though_it_would_do_better_while_others_go_on():
    """With a patience of 2 the second job ends after its fourth round, and never sees its fifth."""
    script = [(5.0, 3.0), (4.0, 2.0), (3.0, 4.0), (2.0, 2.0), (1.0, 0.0), (1.5, 0.0), (1.0, 0.0), (0.0, 0.0)]
    teams, history, rounds = run(Rows.stack([EASY, rows_of(1)]), training_of(head=Scripted(script), patience=2))
    assert history.n_rounds.tolist() == [7, 4]
    assert len(rounds) == 7  # the eighth, which would be better, is never trained
    assert same_state(teams[0], rounds[4][0])  # the first of two equal ones
    assert same_state(teams[1], rounds[1][1])


@every_network
def test_what_a_job_learns_does_not_depend_on_the_job_beside_it(network):
    one, other = (run(Rows.stack([rows_of(n), rows_of(1)]), training_of(network, max_rounds=3))[0] for n in (0, 5))
    assert same_state(one[1], other[1])
    assert not same_state(one[0], other[0])


def test_the_measures_of_a_round_are_those_of_the_rows_that_were_left_out():
    job = rows_of(0, n_members=4)  # every row is left out by one member
    _, history, rounds = run(job, training_of(max_rounds=1))
    with torch.no_grad():
        mean, sigma = NormalHead().moments(rounds[0][0](job.x.double().expand(4, -1, -1)))
    rows = torch.arange(40)
    mean, sigma, y = mean[rows % 4, rows, 0], sigma[rows % 4, rows, 0], job.y[0, :, 0]
    half_width, measures = 1.2815515655446004 * sigma, history.rounds[0]  # of the central 80 %
    assert measures.rmse.item() == pytest.approx((y - mean).square().mean().sqrt().item(), rel=1e-5)
    assert measures.width.item() == pytest.approx(2 * half_width.mean().item(), rel=1e-5)
    assert measures.coverage.item() == pytest.approx(((y - mean).abs() <= half_width).double().mean().item())


@every_random
@pytest.mark.parametrize("n_targets", [1, 2])
def test_the_penalty_is_shared_out_over_the_values_that_a_member_trains_on(network, n_targets):
    """The evidence lower bound is a sum over rows and targets less one penalty; the loss is that sum per value."""
    rows = Rows.stack([rows_of(0, n_targets=n_targets), rows_of(1, n_rows=24, n_targets=n_targets)])
    team = network.build(4, (3,), 2 * n_targets)
    outputs, batch = torch.randn(4, 5, 2 * n_targets), torch.arange(5).expand(4, -1)
    with torch.no_grad():
        loss, penalty = training_of(network).objective(rows, team)(outputs, batch), team.penalty()
    y = rows.y[:, :5].repeat_interleave(2, dim=0)
    data = NormalHead().losses(outputs, y, rows.levels_of_members).mean(dim=1)
    assert_allclose(loss, data + penalty / (n_targets * torch.tensor([30.0, 30.0, 18.0, 18.0])), rtol=1e-5)


# The fitted team -----------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).uniform(10, 20, size=(30, 3))
Y = np.random.default_rng(1).normal(500, 40, size=(30, 2))


def fitted_team(network, head=None, *, n_members=2, n_samples=4, seed=0, mirroring=None):
    head, levels = head or NormalHead(), (0.5, 0.9)
    torch.manual_seed(0)
    team = network.build(n_members, (3,), head.n_outputs(2, 2)).deployed()
    scalings = Scaling.of(X, bounded=True), Scaling.of(Y)
    return BaselineTeam(team, head, levels, *scalings, mirroring, n_samples=n_samples, seed=seed)


def assert_same_estimate(one, other, **tolerance):
    assert_allclose(one.mean, other.mean, **tolerance)
    assert_allclose(one.half_width, other.half_width, **tolerance)


@pytest.mark.parametrize("head", [NormalHead(), QuantileHead()])
def test_an_estimate_combines_all_members_in_the_users_units(head):
    team = fitted_team(PLAIN, head)
    estimate = team.estimate(X)
    x = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    mean, half_width = head.combined(team.team(x.expand(2, -1, -1))[None], team.levels, noise=True)
    assert_allclose(estimate.mean, mean[0].numpy() * Y.std(axis=0) + Y.mean(axis=0))
    assert_allclose(estimate.half_width, half_width[0].numpy() * Y.std(axis=0)[:, None, None])
    assert estimate.half_width.shape == (30, 2, 2, 2)  # (row, target, side, level)


@every_random
def test_an_estimate_does_not_change_from_call_to_call_but_from_seed_to_seed(network):
    one, other = (fitted_team(network, seed=seed) for seed in (0, 1))
    assert_array_equal(one.estimate(X).mean, one.estimate(X).mean)
    assert (one.estimate(X).mean != other.estimate(X).mean).any()


@every_random
def test_every_member_is_sampled_equally_often_in_every_part(network, monkeypatch):
    team = fitted_team(network, n_members=3, n_samples=5)
    assert [part.n_members for part in team.networks()] == [15]
    monkeypatch.setattr(training, "NUMBERS_AT_A_TIME", 2 * team.team.numbers_per_sample)
    assert [part.n_members for part in team.networks()] == [6, 6, 3]
    assert np.isfinite(team.estimate(X).half_width).all()


def test_a_plain_team_is_not_sampled_whatever_the_number_of_samples():
    team = fitted_team(PLAIN, n_samples=50)
    assert list(team.networks()) == [team.team]
    assert team.for_export() is team


@every_random
@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_a_team_for_export_holds_the_samples_and_draws_nothing(network, at_a_time, monkeypatch):
    team = fitted_team(network, n_samples=5)
    monkeypatch.setattr(training, "NUMBERS_AT_A_TIME", at_a_time * team.team.numbers_per_sample)
    exported, estimate = team.for_export(), team.estimate(X)
    assert sum(part.n_members for part in exported.fixed) == 10
    assert {id(part) for part in exported.networks()} <= {id(module) for module in exported.modules()}
    assert_same_estimate(exported.estimate(X), estimate, rtol=1e-12)
    assert len(team.fixed) == 0


def test_the_means_of_an_image_and_its_mirror_image_are_averaged_and_the_half_width_is_the_images_own():
    """Each view alone, as a row of its own, gives the parts."""
    views = np.stack([X[:10], X[10:20]], axis=1)  # (image, view, feature)
    own, of_mirror_images = (fitted_team(PLAIN).estimate(views[:, view]) for view in (0, 1))
    assert (np.abs(own.half_width - of_mirror_images.half_width) > 1e-3).any(axis=(1, 2, 3)).all()
    together = fitted_team(PLAIN, mirroring=Mirroring("same")).estimate(views)
    assert_same_estimate(together, replace(own, mean=(own.mean + of_mirror_images.mean) / 2))


# Output heads ----------------------------------------

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
