import copy
import math
import pickle
import warnings
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import TimeSeriesSplit
from torch import nn

from coverwell import MLP, IQRFit, SigmaFit
from coverwell.algorithm import Recipe, reach_of
from coverwell.calibration import Estimate
from coverwell.ensemble import (
    FARTHEST,
    ROWS_AT_A_TIME,
    Ensemble,
    PairTraining,
    estimate_in_parts,
    shaped_by_both,
)
from coverwell.inputs.scaling import InputScaler, TargetScaler
from coverwell.losses import quantile_interval_loss
from coverwell.matching import Unmatched
from coverwell.networks.team import FactoryNetwork, LoopTeam
from coverwell.preparation import Plan, prepare
from coverwell.training import everywhere

CPU = torch.device("cpu")
SMALL = MLP(hidden=8, layers=3, bins=4)
Z80 = 1.2815515655446004  # z of 80 %


class Says(nn.Module):
    """The same numbers for every row."""

    def __init__(self, *numbers):
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers))

    def forward(self, x):
        return self.numbers.expand(len(x), -1)


def team_of(*members):
    return LoopTeam([Says(*numbers) for numbers in members], len(members[0])).double()


def identity_inputs(n_features=1):
    wide = np.full(n_features, 1e9)
    return InputScaler(np.zeros(n_features), np.ones(n_features), -wide, wide)


def prepared_table(n_rows=60, *, seed=0, n_targets=1, **changes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    y = 7 + X[:, :1] + 0.3 * rng.normal(size=(n_rows, n_targets))
    plan = {"levels": (0.8,), "folds": 3, "repeats": 1, "calibration": None, "calibration_size": 0.2} | changes
    return prepare(X, y, None, Plan(**plan, unit_range=False), np.random.RandomState(seed))


def training_of(network=SMALL, **changes):
    recipe = Recipe(
        matching=SigmaFit(),
        interval_loss=partial(quantile_interval_loss, steepness=40.0),
        max_rounds=2,
        mean_epochs=3,
        interval_epochs=3,
        patience=9,
    )
    usual = {"recipe": recipe, "both": False, "batch_size": 32, "learning_rate": 0.01, "memory": 0.8, "device": CPU}
    return PairTraining(mean_network=network, interval_network=network, **usual | changes)


def train(jobs, training, seed=0):
    torch.manual_seed(seed)
    return training.run(jobs, lambda measures, present: None)


def ensemble_of(prepared, trained, *, coverage=(0.8,), **changes):
    return Ensemble(
        trained.mean_team,
        trained.interval_team,
        SigmaFit(),
        coverage,
        trained.scale.double().numpy(),
        prepared.inputs[0],
        prepared.targets[0],
        **changes,
    )


def test_an_estimate_is_the_average_of_the_members_in_the_users_units():
    # Means 1 and 3 average to 2, in units of 10 around 100: 120. Outputs of 0 reach z = 1.28155 of the scale 0.5 on
    # both sides, in units of 10: 6.40776.
    ensemble = Ensemble(
        team_of((1.0,), (3.0,)),
        team_of((0.0, 0.0), (0.0, 0.0)),
        Unmatched(),
        (0.8,),
        np.array([0.5]),
        identity_inputs(),
        TargetScaler(np.array([100.0]), np.array([10.0])),
    )
    estimate = ensemble.estimate(np.zeros((4, 1)), CPU)
    assert_allclose(estimate.mean, np.full((4, 1), 120.0))
    assert_allclose(estimate.reach, np.full((4, 1, 2, 1), 10 * 0.5 * Z80))
    assert estimate.mean.dtype == estimate.reach.dtype == np.float64


def test_rows_are_estimated_in_parts_that_fit_together():
    prepared = prepared_table()
    (trained,), _ = train(prepared.jobs, training_of())
    ensemble = ensemble_of(prepared, trained)
    X = np.random.default_rng(1).normal(size=(ROWS_AT_A_TIME + 7, 3))
    whole = ensemble.estimate(X, CPU)
    last = ensemble.estimate(X[-9:], CPU)
    assert whole.mean.shape == (len(X), 1)
    assert_allclose(whole.mean[-9:], last.mean, rtol=1e-12)
    assert_allclose(whole.reach[-9:], last.reach, rtol=1e-12)


def test_of_features_only_as_many_rows_as_fit_are_spoken_about_at_a_time(monkeypatch):
    monkeypatch.setattr("coverwell.ensemble.NUMBERS_AT_A_TIME", 50)
    X, seen = np.arange(7 * 12, dtype=np.float16).reshape(7, 3, 2, 2), []

    def estimate_part(part):
        seen.append(len(part))
        return Estimate(part[:, 0, 0, :1].astype(float), part[:, 0, :1, :, None].astype(float))

    assert_array_equal(estimate_in_parts(X, estimate_part).mean, X[:, 0, 0, :1])
    assert seen == [4, 3]  # 12 numbers a row


@pytest.mark.parametrize("both", [False, True])
def test_what_members_say_about_their_own_rows_is_what_the_ensemble_says(both):
    prepared = prepared_table(n_targets=2)
    (trained,), record = train(prepared.jobs, training_of(both=both))
    estimate = ensemble_of(prepared, trained, both=both).estimate(prepared.X, CPU)
    scaler = prepared.targets[0]
    assert trained.said.mean.shape == (3, 60, 2)
    assert trained.said.reach.shape == (3, 60, 2, 2, 1)
    assert_allclose(scaler.inverse(trained.said.mean.mean(axis=0)), estimate.mean, rtol=1e-5)
    assert_allclose(trained.said.reach.mean(axis=0) * scaler.spread[:, None, None], estimate.reach, rtol=1e-4)
    assert_array_equal(trained.scale, record.scale[0])


@pytest.mark.parametrize("network", [SMALL, FactoryNetwork(nn.Linear)])
def test_jobs_that_train_together_are_taken_apart_again(network):
    parts = [prepared_table(60, seed=0), prepared_table(45, seed=1)]
    trained, record = train([part.jobs[0] for part in parts], training_of(network))
    assert len(record.n_rounds) == 2
    for part, own in zip(parts, trained, strict=True):
        assert own.mean_team.n_members == 3
        assert own.said.mean.shape == (3, len(part.X), 1)  # without padding
        estimate = ensemble_of(part, own).estimate(part.X, CPU)
        assert_allclose(part.targets[0].inverse(own.said.mean.mean(axis=0)), estimate.mean, rtol=1e-5)


def test_trained_teams_are_frozen_in_double_precision():
    prepared = prepared_table()
    (trained,), _ = train(prepared.jobs, training_of(MLP(hidden=8, dropout=0.5)))
    for team in (trained.mean_team, trained.interval_team):
        assert not team.training
        assert all(p.dtype == torch.float64 and not p.requires_grad for p in team.parameters())


def test_the_targets_of_a_row_do_not_touch_the_members_that_left_it_out():
    """F_k has no way to see fold k; I_k sees it only through the residuals and widths of others."""
    prepared = prepared_table()
    (job,) = prepared.jobs
    left_out = ~job.trains[0]
    changed = replace(job, y=torch.where(left_out[:, None], job.y + 5, job.y))
    recipe = replace(training_of().recipe, matching=Unmatched(), max_rounds=1)
    (one,), _ = train([job], training_of(recipe=recipe))
    (other,), _ = train([changed], training_of(recipe=recipe))
    same, moved = (
        [torch.equal(value, other.mean_team.state_of([m])[name]) for name, value in one.mean_team.state_of([m]).items()]
        for m in (0, 1)
    )
    assert all(same)
    assert not all(moved)


def test_a_member_without_a_row_that_others_left_out_can_still_be_trained():
    prepared = prepared_table(folds=TimeSeriesSplit(3))
    (job,) = prepared.jobs
    assert not (job.trains[0] & job.speaks.any(dim=0)).any()  # the first member knows the first rows only
    (trained,), record = train([job], training_of())
    assert torch.isfinite(record.scale).all()
    assert np.isfinite(trained.said.reach).all()


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "joblib"])
def test_a_copy_estimates_the_same_bits(how, tmp_path):
    prepared = prepared_table()
    (trained,), _ = train(prepared.jobs, training_of())
    ensemble = ensemble_of(prepared, trained)
    if how == "pickle":
        other = pickle.loads(pickle.dumps(ensemble))
    elif how == "deepcopy":
        other = copy.deepcopy(ensemble)
    else:
        joblib.dump(ensemble, tmp_path / "ensemble")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns about its own alignment
            other = joblib.load(tmp_path / "ensemble", mmap_mode="r")  # arrays that cannot be written to
    one, same = ensemble.estimate(prepared.X, CPU), other.estimate(prepared.X, CPU)
    assert_array_equal(one.mean, same.mean)
    assert_array_equal(one.reach, same.reach)


# The shape of both networks ------------------------------------------------------------------------------------------

LEVELS = torch.tensor([[0.5, 0.9]], dtype=torch.float64)


def inverse_softplus(value):
    return math.log(math.expm1(value))


class Reaches:
    """A strategy of the user's whose F emits a mean and its reach, as it is, on both sides and at every level."""

    def n_outputs(self, n_targets, n_levels):
        return n_targets * (1 + 2 * n_levels)

    def mean(self, outputs, n_targets):
        return outputs[..., :n_targets]

    def reach(self, outputs, n_targets, coverage):
        return outputs[..., n_targets:].unflatten(-1, (n_targets, 2, coverage.shape[-1]))

    def loss(self, outputs, y, target):
        return (self.mean(outputs, y.shape[-1]) - y).abs().mean(dim=(1, 2))


class ReachesNowhere:
    """The least a user has to write."""

    n_outputs, mean, loss = Reaches.n_outputs, Reaches.mean, Reaches.loss


def outputs_of(own):
    """What F of `Reaches` emits for a mean of zero and these reaches (member, batch, target, side, level)."""
    return torch.cat([torch.zeros(own.shape[:3], dtype=own.dtype), own.flatten(start_dim=2)], dim=-1)


def reaches(smallest, largest):
    """Hypothesis' reaches (2 members, 3 rows, 1 target, 2 sides, 2 levels)."""
    number = st.floats(smallest, largest, allow_nan=False)
    return st.lists(number, min_size=24, max_size=24).map(lambda n: torch.tensor(n).double().reshape(2, 3, 1, 2, 2))


def test_the_shape_of_both_is_a_geometric_mean_by_hand():
    # F's sigma of 2 reaches 2 z; I reaches 8 below and 0.5 above: sqrt(16 z) = 4 sqrt(z) and sqrt(z).
    of_mean = torch.tensor([[[7.0, inverse_softplus(2 - 1e-4)]]], dtype=torch.float64)
    reach = torch.tensor([[[[[8.0], [0.5]]]]], dtype=torch.float64)
    shaped = shaped_by_both(SigmaFit(), of_mean, reach, torch.tensor([[0.8]], dtype=torch.float64))
    assert_allclose(shaped, [[[[[4 * math.sqrt(Z80)], [math.sqrt(Z80)]]]]])


def test_members_are_shaped_one_by_one_and_averaged_afterwards():
    # Both members of I reach 0.5 z; sigmas of 0.5 and 2 give sqrt(0.5 x 0.5) z and sqrt(0.5 x 2) z, on average 0.75 z,
    # in units of 10. The mean is that of F in any shape.
    ensemble = Ensemble(
        team_of((1.0, inverse_softplus(0.5 - 1e-4)), (3.0, inverse_softplus(2 - 1e-4))),
        team_of((0.0, 0.0), (0.0, 0.0)),
        SigmaFit(),
        (0.8,),
        np.array([0.5]),
        identity_inputs(),
        TargetScaler(np.array([100.0]), np.array([10.0])),
        both=True,
    )
    estimate = ensemble.estimate(np.zeros((4, 1)), CPU)
    assert_allclose(estimate.mean, np.full((4, 1), 120.0))
    assert_allclose(estimate.reach, np.full((4, 1, 2, 1), 10 * 0.75 * Z80))


@given(own=reaches(-1e6, math.inf), reach=reaches(1e-6, 1e6))
def test_the_reach_of_f_counts_within_a_factor_of_that_of_i(own, reach):
    shaped = shaped_by_both(Reaches(), outputs_of(own), reach, LEVELS)
    farthest = math.sqrt(FARTHEST)
    assert (shaped >= reach / farthest * (1 - 1e-12)).all()
    assert (shaped <= reach * farthest * (1 + 1e-12)).all()
    near = (own >= reach / FARTHEST) & (own <= reach * FARTHEST)
    assert_allclose(shaped[near], (reach * own)[near].sqrt())
    assert_allclose(shaped[own > reach * FARTHEST], reach[own > reach * FARTHEST] * farthest)
    assert_allclose(shaped[own < reach / FARTHEST], reach[own < reach / FARTHEST] / farthest)


@given(own=reaches(1e-6, 1e6), reach=reaches(1e-6, 1e6))
def test_two_nested_reaches_have_a_nested_mean(own, reach):
    """Also where one level is bounded by the factor and the other is not."""
    shaped = shaped_by_both(Reaches(), outputs_of(own.cumsum(dim=-1)), reach.cumsum(dim=-1), LEVELS)
    inner, outer = shaped.unbind(dim=-1)
    assert (outer >= inner * (1 - 1e-12)).all()


@pytest.mark.parametrize("matching", [IQRFit(), Unmatched(), ReachesNowhere()], ids=lambda m: type(m).__name__)
def test_without_a_reach_of_its_own_f_leaves_that_of_i_as_it_is(matching):
    draw = torch.Generator().manual_seed(0)
    of_mean = torch.randn(2, 3, matching.n_outputs(1, 2), generator=draw, dtype=torch.float64)
    reach = torch.rand(2, 3, 1, 2, 2, generator=draw, dtype=torch.float64)
    assert_array_equal(shaped_by_both(matching, of_mean, reach, LEVELS), reach)


def test_what_a_member_says_is_the_geometric_mean_of_its_own_two_networks():
    prepared = prepared_table(n_targets=2, levels=(0.5, 0.8))
    (trained,), _ = train(prepared.jobs, training_of(both=True))
    x, levels = prepared.jobs[0].x.double()[None], torch.tensor([[0.5, 0.8]], dtype=torch.float64)
    of_interval = reach_of(everywhere(trained.interval_team, x), levels, trained.scale.double()[None])
    sigma = torch.nn.functional.softplus(everywhere(trained.mean_team, x)[..., 2:]) + 1e-4
    z = torch.tensor([0.6744897501960817, Z80], dtype=torch.float64)
    own = (sigma[..., None] * z)[..., None, :]  # (member, row, target, 1, level): the same on both sides
    assert trained.said.reach.shape == (3, 60, 2, 2, 2)
    assert_allclose(trained.said.reach, (of_interval * own).sqrt(), rtol=1e-4)


def test_f_and_i_learn_the_same_whether_f_has_a_say_or_not():
    prepared = prepared_table()
    (both,), _ = train(prepared.jobs, training_of(both=True))
    (interval,), _ = train(prepared.jobs, training_of(both=False))
    for name in ("mean_team", "interval_team"):
        one, other = (getattr(trained, name).state_dict() for trained in (both, interval))
        assert all(torch.equal(value, other[key]) for key, value in one.items())
    assert_array_equal(both.said.mean, interval.said.mean)
    assert (both.said.reach != interval.said.reach).all()


def test_jobs_that_train_together_are_shaped_at_levels_of_their_own():
    parts = [prepared_table(60, seed=0, levels=(0.5,)), prepared_table(45, seed=1, levels=(0.95,))]
    trained, _ = train([part.jobs[0] for part in parts], training_of(both=True))
    for part, own, level in zip(parts, trained, (0.5, 0.95), strict=True):
        estimate = ensemble_of(part, own, coverage=(level,), both=True).estimate(part.X, CPU)
        spread = part.targets[0].spread[:, None, None]
        assert_allclose(own.said.reach.mean(axis=0) * spread, estimate.reach, rtol=1e-4)


def test_a_reach_of_another_shape_is_refused_in_our_words():
    class Flat(SigmaFit):
        def reach(self, outputs, n_targets, coverage):
            return outputs[..., :1]

    reach = torch.ones(2, 5, 1, 2, 3)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 5, 1, 2, 3\).*got \(2, 5, 1\)"):
        shaped_by_both(Flat(), torch.zeros(2, 5, 2), reach, torch.tensor([[0.5, 0.8, 0.9]]))


# Going on from an earlier training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [SMALL, FactoryNetwork(nn.Linear)])
def test_teams_that_go_on_without_a_better_round_stay_what_they_were(network):
    parts = [prepared_table(60, seed=0), prepared_table(45, seed=1)]
    jobs = [part.jobs[0] for part in parts]
    trained, _ = train(jobs, training_of(network))
    before = tuple(ensemble_of(part, own) for part, own in zip(parts, trained, strict=True))
    # A step so long that nothing it leads to is better.
    went_on, record = train(jobs, replace(training_of(network, learning_rate=10.0), start=before), seed=9)
    assert record.n_rounds == [2, 2]
    for own, after in zip(trained, went_on, strict=True):
        for name in ("mean_team", "interval_team"):
            one, other = (getattr(part, name).state_dict() for part in (own, after))
            assert all(torch.equal(value, other[key]) for key, value in one.items())
        assert_array_equal(own.scale, after.scale)
        assert_allclose(own.said.mean, after.said.mean, rtol=1e-6)


def test_teams_that_go_on_are_at_once_as_good_as_they_were():
    prepared = prepared_table(200)
    (trained,), first = train(prepared.jobs, training_of())
    _, cold = train(prepared.jobs, training_of(), seed=1)
    _, warm = train(prepared.jobs, replace(training_of(), start=(ensemble_of(prepared, trained),)), seed=1)
    assert warm.rounds[0].rmse.item() < 1.02 * first.rounds[-1].rmse.item() < cold.rounds[0].rmse.item()
    assert warm.losses[0][0, 0] < cold.losses[0][0, 0]


# Networks changed before training ------------------------------------------------------------------------------------


def test_both_networks_are_changed_each_by_itself():
    training = replace(training_of(MLP(hidden=8)), interval_network=MLP(hidden=16))
    changed = training.with_networks(lambda network: replace(network, hidden=network.hidden + 1))
    assert changed.networks == (MLP(hidden=9), MLP(hidden=17))
    assert training.networks == (MLP(hidden=8), MLP(hidden=16))
