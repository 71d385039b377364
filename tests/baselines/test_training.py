from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP
from coverwell.baselines import voices
from coverwell.baselines.bayes_by_backprop import BayesMLP
from coverwell.baselines.concrete_dropout import ConcreteMLP
from coverwell.baselines.laws import NormalLaw, QuantileLaw
from coverwell.baselines.mc_dropout import DropoutMLP
from coverwell.baselines.voices import Voices, VoiceTraining, voices_of
from coverwell.ensemble import learner_of
from coverwell.folds import Job, stack_jobs
from coverwell.inputs.mirroring import Mirroring
from coverwell.inputs.scaling import InputScaler, TargetScaler

CPU = torch.device("cpu")
PLAIN = MLP(hidden=16, layers=2, dropout=0.2, bins=0)
NETWORKS = {
    "plain": PLAIN,
    "dropout": DropoutMLP(PLAIN, length_scale=0.01),
    "concrete": ConcreteMLP(PLAIN, length_scale=0.01),
    "bayes": BayesMLP(PLAIN, prior_scale=1.0, kl_weight=1.0),
}


def job_of(seed, *, n_rows=40, n_members=2, noise=0.5, n_targets=1, coverage=(0.8,)):
    """Member m leaves out the rows whose number is m modulo 4."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3))
    y = np.repeat(x[:, :1], n_targets, axis=1) + noise * rng.normal(size=(n_rows, n_targets))
    left_out = torch.arange(n_rows) % 4 == torch.arange(n_members)[:, None]
    return Job(
        torch.from_numpy(x).float(), torch.from_numpy(y).float(), ~left_out, left_out, torch.tensor(list(coverage))
    )


def training_of(network=PLAIN, law=None, **changes):
    usual = {"max_rounds": 12, "patience": 3, "batch_size": 8, "learning_rate": 0.03, "memory": 0.8, "device": CPU}
    return VoiceTraining(network, law or NormalLaw(), **usual | changes)


def run(jobs, training, seed=0):
    """The trained teams, the record, and the teams as they were after each round."""
    history = []
    torch.manual_seed(seed)
    trained, record = training.run(jobs, lambda measures, present: history.append([t.team for t in present()]))
    return [t.team for t in trained], record, history


def held_out_loss(team, job, law=None):
    """Of each member on the rows that it left out, averaged over all of these; for random ones over the judges."""
    n_members = team.n_members
    speaking = voices_of(team, voices.JUDGES, torch.Generator().manual_seed(voices.JUDGES_SEED))
    n_voices = speaking.n_members // n_members
    with torch.no_grad():
        said = speaking(job.x.double().expand(speaking.n_members, -1, -1))
    y = job.y.double().expand(speaking.n_members, -1, -1)
    coverage = job.coverage.double().expand(speaking.n_members, -1)
    each = (law or NormalLaw()).losses(said, y, coverage).unflatten(0, (n_members, n_voices)).mean(dim=1)
    return each[job.speaks].mean().item()


def same_state(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


# Rounds --------------------------------------------------------------------------------------------------------------


def test_each_job_is_left_at_the_round_whose_held_out_loss_was_the_lowest():
    jobs = [job_of(0), job_of(1, n_rows=24, noise=3.0)]  # the second, with little to learn, is over-fitted sooner
    teams, record, history = run(jobs, training_of())
    for place, job in enumerate(jobs):
        losses = [held_out_loss(present[place], job) for present in history[: record.n_rounds[place]]]
        assert same_state(teams[place], history[int(np.argmin(losses))][place])
        assert held_out_loss(teams[place], job) == pytest.approx(min(losses))


@pytest.mark.parametrize("name", ["dropout", "concrete", "bayes"])
def test_a_random_team_is_left_where_the_same_few_of_its_networks_did_best(name):
    job = job_of(0)
    (team,), record, history = run([job], training_of(NETWORKS[name]))
    losses = [held_out_loss(present[0], job) for present in history]
    assert same_state(team, history[int(np.argmin(losses))][0])
    assert record.n_rounds == [min(12, int(np.argmin(losses)) + 1 + 3)]


def test_a_job_ends_when_its_loss_has_not_fallen_for_as_many_rounds_as_the_patience():
    jobs = [job_of(0), job_of(1, n_rows=24, noise=3.0)]
    _, record, history = run(jobs, training_of(max_rounds=40))
    for place, job in enumerate(jobs):
        losses = [held_out_loss(present[place], job) for present in history[: record.n_rounds[place]]]
        assert record.n_rounds[place] == np.argmin(losses) + 1 + 3
    assert len(record.rounds) == len(history) == max(record.n_rounds) < 40


class Scripted(NormalLaw):
    """A normal law whose loss on held-out rows is told beforehand, by round and job."""

    def __init__(self, script):
        object.__setattr__(self, "script", iter(script))

    def losses(self, outputs, y, coverage):
        each = super().losses(outputs, y, coverage)
        if torch.is_grad_enabled():  # in training
            return each
        told = torch.tensor(next(self.script)).repeat_interleave(len(each) // 2)  # two jobs
        return told[:, None].expand_as(each)


def test_a_job_that_has_ended_keeps_its_round_though_it_would_do_better_while_others_go_on():
    """With a patience of 2 the second job ends after its fourth round, and never sees its fifth."""
    script = [(5.0, 3.0), (4.0, 2.0), (3.0, 4.0), (2.0, 2.0), (1.0, 0.0), (1.5, 0.0), (1.0, 0.0), (0.0, 0.0)]
    teams, record, history = run([job_of(0), job_of(1)], training_of(law=Scripted(script), patience=2))
    assert record.n_rounds == [7, 4]
    assert len(history) == 7  # the eighth, which would be better, is never trained
    assert same_state(teams[0], history[4][0])  # the first of two equal ones
    assert same_state(teams[1], history[1][1])


def test_training_ends_after_the_most_rounds_whatever_the_loss_does():
    _, record, history = run([job_of(0)], training_of(max_rounds=2, patience=50))
    assert record.n_rounds == [2]
    assert len(history) == len(record.losses) == len(record.seconds) == 2


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_what_a_job_learns_does_not_depend_on_the_job_beside_it(network):
    usual, other = job_of(0), job_of(5)
    one = run([usual, job_of(1)], training_of(network, max_rounds=3))[0]
    changed = run([other, job_of(1)], training_of(network, max_rounds=3))[0]
    assert same_state(one[1], changed[1])
    assert not same_state(one[0], changed[0])


def test_a_judgement_is_the_same_each_time_it_is_made():
    problem = stack_jobs([job_of(0), job_of(1)], CPU)
    for network in NETWORKS.values():
        learner = learner_of(network, problem, problem.trains, 2, batch_size=8, learning_rate=0.01, memory=0.8)
        training = training_of(network)
        assert_array_equal(training._judge(learner)[0], training._judge(learner)[0])


def test_the_measures_of_a_round_are_those_of_the_rows_that_were_left_out():
    job = job_of(0, n_members=4)  # every row is left out by one member
    _, record, history = run([job], training_of(max_rounds=1))
    with torch.no_grad():
        mean, sigma = NormalLaw().moments(history[0][0](job.x.double().expand(4, -1, -1)))
    rows = torch.arange(40)
    mean, sigma, y = mean[rows % 4, rows, 0], sigma[rows % 4, rows, 0], job.y[:, 0]
    assert record.rounds[0].rmse.item() == pytest.approx((y - mean).square().mean().sqrt().item(), rel=1e-5)
    reach = 1.2815515655446004 * sigma  # of the central 80 %
    assert record.rounds[0].width.item() == pytest.approx(2 * reach.mean().item(), rel=1e-5)
    assert record.rounds[0].coverage.item() == pytest.approx(((y - mean).abs() <= reach).double().mean().item())


@pytest.mark.parametrize("name", ["dropout", "concrete", "bayes"])
def test_the_penalty_is_shared_out_over_the_rows_that_a_member_trains_on(name):
    """The bound of the evidence is a sum over rows less one penalty; the loss is that sum per row."""
    first, second = job_of(0), job_of(1, n_rows=24)
    problem = stack_jobs([first, second], CPU)
    learner = learner_of(NETWORKS[name], problem, problem.trains, 2, batch_size=8, learning_rate=0.01, memory=0.8)
    outputs, rows = torch.randn(4, 5, 2), torch.arange(5).expand(4, -1)
    with torch.no_grad():
        loss = training_of(NETWORKS[name])._loss(learner)(outputs, rows)
        penalty = learner.team.penalty()
    y = torch.stack([first.y[:5], first.y[:5], second.y[:5], second.y[:5]])
    data = NormalLaw().losses(outputs, y, torch.full((4, 1), 0.8)).mean(dim=1)
    assert_allclose(loss, data + penalty / torch.tensor([30.0, 30.0, 18.0, 18.0]), rtol=1e-5)


def test_with_two_targets_the_penalty_is_shared_out_over_both():
    job = job_of(0)
    job = replace(job, y=torch.cat([job.y, -job.y], dim=1))
    problem = stack_jobs([job], CPU)
    network = NETWORKS["bayes"]
    learner = learner_of(network, problem, problem.trains, 4, batch_size=8, learning_rate=0.01, memory=0.8)
    outputs, rows = torch.randn(2, 5, 4), torch.arange(5).expand(2, -1)
    with torch.no_grad():
        loss = training_of(network)._loss(learner)(outputs, rows)
        penalty = learner.team.penalty()
    data = NormalLaw().losses(outputs, job.y[:5].expand(2, -1, -1), torch.full((2, 1), 0.8)).mean(dim=1)
    assert_allclose(loss, data + penalty / 60, rtol=1e-5)


def test_without_a_penalty_the_loss_is_that_of_the_law():
    problem = stack_jobs([job_of(0, n_members=1, coverage=(0.5, 0.8))], CPU)
    learner = learner_of(PLAIN, problem, problem.trains, 5, batch_size=8, learning_rate=0.01, memory=0.8)
    outputs, rows = torch.randn(1, 6, 5), torch.arange(6)[None]
    loss = training_of(PLAIN, QuantileLaw())._loss(learner)(outputs, rows)
    assert_allclose(loss, QuantileLaw().losses(outputs, problem.y[:, :6], problem.coverage).mean(dim=1))


def test_a_team_in_training_is_not_what_is_left_behind():
    """What speaks is the average over epochs, in float64 and with no gradient."""
    teams, _, _ = run([job_of(0)], training_of(max_rounds=1))
    assert not teams[0].training
    for weight in teams[0].parameters():
        assert weight.dtype == torch.float64
        assert not weight.requires_grad


# Voices --------------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).uniform(10, 20, size=(30, 3))
Y = np.random.default_rng(1).normal(500, 40, size=(30, 2))


def voices_of_recipe(network, law=None, *, n_members=2, n_samples=4, coverage=(0.5, 0.9), seed=0):
    law = law or NormalLaw()
    torch.manual_seed(0)
    team = network.build(n_members, (3,), law.n_outputs(2, len(coverage))).double().eval().requires_grad_(False)
    inputs, targets = InputScaler.of(X), TargetScaler.of(Y, unit_range=False)
    return Voices(team, law, coverage, inputs, targets, n_samples, seed)


@pytest.mark.parametrize("law", [NormalLaw(), QuantileLaw()])
def test_an_estimate_is_the_reading_of_all_members_in_the_users_units(law):
    speaker = voices_of_recipe(PLAIN, law)
    estimate = speaker.estimate(X, CPU)
    x = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    outputs, levels = speaker.team(x.expand(2, -1, -1))[None], torch.tensor([[0.5, 0.9]], dtype=torch.float64)
    said = law.read(outputs, levels, noise=True)
    assert_allclose(estimate.mean, said.mean[0].numpy() * Y.std(axis=0) + Y.mean(axis=0))
    assert_allclose(estimate.reach, said.reach[0].numpy() * Y.std(axis=0)[:, None, None])
    assert estimate.reach.shape == (30, 2, 2, 2)  # (row, target, side, level)


@pytest.mark.parametrize("name", ["dropout", "concrete", "bayes"])
def test_an_estimate_does_not_change_from_call_to_call_but_from_seed_to_seed(name):
    one, other = (voices_of_recipe(NETWORKS[name], seed=seed) for seed in (0, 1))
    assert_array_equal(one.estimate(X, CPU).mean, one.estimate(X, CPU).mean)
    assert (one.estimate(X, CPU).mean != other.estimate(X, CPU).mean).any()


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_rows_in_parts_are_told_the_same_as_rows_at_once(network, monkeypatch):
    speaker = voices_of_recipe(network)
    whole = speaker.estimate(X, CPU)
    monkeypatch.setattr("coverwell.ensemble.ROWS_AT_A_TIME", 7)
    parts = speaker.estimate(X, CPU)
    assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    assert_allclose(parts.reach, whole.reach, rtol=1e-12)


@pytest.mark.parametrize("name", ["dropout", "concrete", "bayes"])
def test_every_member_is_sampled_equally_often_in_every_part(name, monkeypatch):
    speaker = voices_of_recipe(NETWORKS[name], n_members=3, n_samples=5)
    n_numbers = sum(weight.numel() for weight in speaker.team.parameters())
    assert [team.n_members for team in speaker._speaking()] == [15]
    monkeypatch.setattr(voices, "NUMBERS_AT_A_TIME", 2 * n_numbers)
    assert [team.n_members for team in speaker._speaking()] == [6, 6, 3]
    assert np.isfinite(speaker.estimate(X, CPU).reach).all()


def test_a_plain_team_speaks_for_itself_whatever_the_number_of_samples():
    speaker = voices_of_recipe(PLAIN, n_samples=50)
    assert voices_of(speaker.team, 50, torch.Generator()) is speaker.team
    assert list(speaker._speaking()) == [speaker.team]


def test_of_a_picture_and_its_mirror_image_the_means_are_averaged_and_the_reach_is_the_pictures_own():
    """Each view alone, as a row of its own, says what the parts are."""
    speaker = voices_of_recipe(PLAIN)
    views = np.stack([X[:10], X[10:20]], axis=1)  # (picture, view, feature)
    own, of_mirror_images = (speaker.estimate(views[:, view], CPU) for view in (0, 1))
    assert (np.abs(own.reach - of_mirror_images.reach) > 1e-3).any(axis=(1, 2, 3)).all()
    together = replace(speaker, mirroring=Mirroring("same")).estimate(views, CPU)
    assert_allclose(together.mean, (own.mean + of_mirror_images.mean) / 2)
    assert_allclose(together.reach, own.reach)
