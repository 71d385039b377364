import math
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import TimeSeriesSplit
from torch import nn

from coverwell import MLP, SigmaFit
from coverwell.calibration import Uncalibrated
from coverwell.inputs.scaling import Scaling
from coverwell.matched import MatchedTraining
from coverwell.networks.team import FactoryNetwork, LoopTeam
from coverwell.paper.algorithm import Recipe
from coverwell.paper.losses import Levels, QuantileLoss, z_score
from coverwell.paper.matching import Unmatched
from coverwell.predictor import FARTHEST, ROWS_AT_A_TIME, FittedTeam, MatchedTeam, combined
from coverwell.training.device import Settings
from coverwell.training.rows import Rows

CPU = torch.device("cpu")
SMALL = MLP(hidden=8, layers=3, bins=4)
Z80 = 1.2815515655446004  # z of 80 %


class Fixed(nn.Module):
    """The same numbers for every row."""

    def __init__(self, *numbers):
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers))

    def forward(self, x):
        return self.numbers.expand(len(x), -1)


def team_of(*members):
    return LoopTeam([Fixed(*numbers) for numbers in members], len(members[0])).double()


def identity_inputs(n_features=1):
    wide = np.full(n_features, 1e9)
    return Scaling((n_features,), np.zeros(n_features), np.ones(n_features), -wide, wide)


def in_tens():
    """Targets in units of 10 around 100."""
    return Scaling((1,), np.array([100.0]), np.array([10.0]))


def table(n_rows=60, *, seed=0, n_targets=1, **changes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    y = 7 + X[:, :1] + 0.3 * rng.normal(size=(n_rows, n_targets))
    options = {"levels": (0.8,), "folds": 3, "repeats": 1, "calibration": Uncalibrated()} | changes
    return Rows.of(X, y, random_state=np.random.RandomState(seed), **options)


def training_of(network=SMALL, *, learning_rate=0.01, **changes):
    recipe = Recipe(SigmaFit(), QuantileLoss(), max_rounds=2, mean_epochs=3, interval_epochs=3, patience=9)
    settings = Settings(2, 32, learning_rate, 0.8, CPU)
    defaults = {"recipe": recipe, "both": False, "settings": settings}
    return MatchedTraining(network=network, interval_network=network, **defaults | changes)


def train(rows, training, seed=0):
    torch.manual_seed(seed)
    return training.run(rows, lambda present, history: None)


def team_and_members(rows, training, seed=0):
    """The team of a single job, and its members' outputs."""
    trained, _ = train(rows, training, seed)
    return trained.teams[0], trained.members[0]


def member(team, m):
    return team.deployed(slice(m, m + 1)).state_dict()


def test_an_estimate_is_the_average_of_the_members_in_the_users_units():
    # Means 1 and 3 average to 2, in units of 10 around 100: 120. An output of 0 is a half-width of z = 1.28155 of the
    # scale 0.5 on both sides, in units of 10: 6.40776.
    pair = team_of((1.0,), (3.0,)), team_of((0.0, 0.0), (0.0, 0.0))
    team = MatchedTeam(*pair, Unmatched(), np.array([0.5]), (0.8,), identity_inputs(), in_tens())
    estimate = team.estimate(np.zeros((4, 1)))
    assert_allclose(estimate.mean, np.full((4, 1), 120.0))
    assert_allclose(estimate.half_width, np.full((4, 1, 2, 1), 10 * 0.5 * Z80))
    assert estimate.mean.dtype == estimate.half_width.dtype == np.float64


def test_rows_are_estimated_in_parts_that_fit_together():
    team, _ = team_and_members(table(), training_of())
    X = np.random.default_rng(1).normal(size=(ROWS_AT_A_TIME + 7, 3))
    whole, last = team.estimate(X), team.estimate(X[-9:])
    assert whole.mean.shape == (len(X), 1)
    assert_allclose(whole.mean[-9:], last.mean, rtol=1e-12)
    assert_allclose(whole.half_width[-9:], last.half_width, rtol=1e-12)


def test_of_features_only_as_many_rows_as_fit_are_in_memory_at_a_time(monkeypatch):
    monkeypatch.setattr("coverwell.predictor.NUMBERS_AT_A_TIME", 50)
    X, seen = np.arange(7 * 12, dtype=np.float16).reshape(7, 3, 2, 2), []

    class First(FittedTeam):
        def scaled_estimate(self, x, *, noise):
            seen.append(len(x))
            return x[:, 0, 0, :1].double(), x[:, 0, :1, :, None].double()

    team = First((0.8,), Scaling((3, 2, 2)), Scaling((1,), np.zeros(1), np.ones(1)))
    assert_array_equal(team.estimate(X).mean, X[:, 0, 0, :1])
    assert seen == [4, 3]  # 12 numbers a row


@pytest.mark.parametrize("both", [False, True])
def test_the_members_outputs_for_their_rows_average_to_the_teams_estimate(both):
    rows = table(n_targets=2)
    trained, history = train(rows, training_of(both=both))
    (team,), (members,) = trained.teams, trained.members
    estimate, scaling = team.estimate(rows.given[0]), rows.targets[0]
    assert members.mean.shape == (3, 60, 2)
    assert members.half_width.shape == (3, 60, 2, 2, 1)
    assert_allclose(scaling.inverse(torch.from_numpy(members.mean.mean(axis=0))), estimate.mean, rtol=1e-5)
    spread = scaling.spread.numpy()[:, None, None]
    assert_allclose(members.half_width.mean(axis=0) * spread, estimate.half_width, rtol=1e-4)
    assert_array_equal(team.unit, history.best[1].unit[0])


@pytest.mark.parametrize("network", [SMALL, FactoryNetwork(nn.Linear)])
def test_jobs_that_train_together_are_taken_apart_again(network):
    parts = [table(60, seed=0), table(45, seed=1)]
    trained, history = train(Rows.stack(parts), training_of(network))
    assert len(history.n_rounds) == 2
    for part, team, members in zip(parts, trained.teams, trained.members, strict=True):
        assert team.mean_team.n_members == 3
        assert members.mean.shape == (3, len(part.given[0]), 1)  # without padding
        averaged = part.targets[0].inverse(torch.from_numpy(members.mean.mean(axis=0)))
        assert_allclose(averaged, team.estimate(part.given[0]).mean, rtol=1e-5)


def test_the_targets_of_a_row_do_not_touch_the_members_that_left_it_out():
    """F_k has no way to see fold k; I_k sees it only through the residuals and widths of others."""
    rows = table()
    left_out = ~rows.trains[0, 0]
    changed = replace(rows, y=torch.where(left_out[:, None], rows.y + 5, rows.y))
    recipe = replace(training_of().recipe, matching=Unmatched(), max_rounds=1)
    one, other = (team_and_members(r, training_of(recipe=recipe))[0].mean_team for r in (rows, changed))
    same, moved = ([torch.equal(v, member(other, m)[name]) for name, v in member(one, m).items()] for m in (0, 1))
    assert all(same)
    assert not all(moved)


def test_a_member_without_a_row_that_others_left_out_can_still_be_trained():
    rows = table(folds=TimeSeriesSplit(3))
    assert not (rows.trains[0, 0] & rows.leaves_out[0].any(dim=0)).any()  # the first member knows the first rows only
    team, members = team_and_members(rows, training_of())
    assert torch.isfinite(team.unit).all()
    assert np.isfinite(members.half_width).all()


def test_a_team_in_memory_that_cannot_be_written_to_estimates_the_same_bits(tmp_path):
    rows = table()
    team, _ = team_and_members(rows, training_of())
    joblib.dump(team, tmp_path / "team")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib warns about its own alignment
        other = joblib.load(tmp_path / "team", mmap_mode="r")
    one, same = team.estimate(rows.given[0]), other.estimate(rows.given[0])
    assert_array_equal(one.mean, same.mean)
    assert_array_equal(one.half_width, same.half_width)


# The shape of both networks ------------------------------------------------------------------------------------------


def levels_of(*levels):
    coverage = torch.tensor([levels], dtype=torch.float64)
    return Levels(coverage, z_score(coverage))


LEVELS = levels_of(0.5, 0.9)


def inverse_softplus(value):
    return math.log(math.expm1(value))


class OwnWidths:
    """A strategy of the user's whose F emits a mean and its half_width, as it is, on both sides and at every level."""

    def n_outputs(self, n_targets, n_levels):
        return n_targets * (1 + 2 * n_levels)

    def mean(self, outputs, n_targets):
        return outputs[..., :n_targets]

    def half_width(self, outputs, n_targets, levels):
        return outputs[..., n_targets:].unflatten(-1, (n_targets, 2, levels.z.shape[-1]))

    def loss(self, outputs, y, target):
        return (self.mean(outputs, y.shape[-1]) - y).abs().mean(dim=(1, 2))


def emitted(own):
    """What F of `OwnWidths` emits for a mean of zero and these half-widths (member, batch, target, side, level)."""
    return torch.cat([torch.zeros(own.shape[:3], dtype=own.dtype), own.flatten(start_dim=2)], dim=-1)


def widths(smallest, largest):
    """Hypothesis' half-widths (2 members, 3 rows, 1 target, 2 sides, 2 levels)."""
    number = st.floats(smallest, largest, allow_nan=False)
    return st.lists(number, min_size=24, max_size=24).map(lambda n: torch.tensor(n).double().reshape(2, 3, 1, 2, 2))


def test_the_shape_of_both_is_a_geometric_mean_by_hand():
    # F's sigma of 2 gives 2 z; I gives 8 below and 0.5 above: sqrt(16 z) = 4 sqrt(z) and sqrt(z).
    of_mean = torch.tensor([[[7.0, inverse_softplus(2 - 1e-4)]]], dtype=torch.float64)
    half_width = torch.tensor([[[[[8.0], [0.5]]]]], dtype=torch.float64)
    shaped = combined(SigmaFit(), of_mean, half_width, levels_of(0.8))
    assert_allclose(shaped, [[[[[4 * math.sqrt(Z80)], [math.sqrt(Z80)]]]]])


def test_members_are_shaped_one_by_one_and_averaged_afterwards():
    # Half-widths of 0.5 z by both members of I; sigmas of 0.5 and 2 give sqrt(0.5 x 0.5) z and sqrt(0.5 x 2) z, on
    # average 0.75 z, in units of 10. The mean is that of F in any shape.
    of_mean = team_of((1.0, inverse_softplus(0.5 - 1e-4)), (3.0, inverse_softplus(2 - 1e-4)))
    units = np.array([0.5]), (0.8,), identity_inputs(), in_tens()
    team = MatchedTeam(of_mean, team_of((0.0, 0.0), (0.0, 0.0)), SigmaFit(), *units, both=True)
    estimate = team.estimate(np.zeros((4, 1)))
    assert_allclose(estimate.mean, np.full((4, 1), 120.0))
    assert_allclose(estimate.half_width, np.full((4, 1, 2, 1), 10 * 0.75 * Z80))


@given(own=widths(-1e6, math.inf), half_width=widths(1e-6, 1e6))
def test_the_half_width_of_f_counts_within_a_factor_of_that_of_i(own, half_width):
    shaped = combined(OwnWidths(), emitted(own), half_width, LEVELS)
    farthest = math.sqrt(FARTHEST)
    assert (shaped >= half_width / farthest * (1 - 1e-12)).all()
    assert (shaped <= half_width * farthest * (1 + 1e-12)).all()
    near = (own >= half_width / FARTHEST) & (own <= half_width * FARTHEST)
    assert_allclose(shaped[near], (half_width * own)[near].sqrt())
    assert_allclose(shaped[own > half_width * FARTHEST], half_width[own > half_width * FARTHEST] * farthest)
    assert_allclose(shaped[own < half_width / FARTHEST], half_width[own < half_width / FARTHEST] / farthest)


@given(own=widths(1e-6, 1e6), half_width=widths(1e-6, 1e6))
def test_two_nested_half_widths_have_a_nested_mean(own, half_width):
    """Also where one level is bounded by the factor and the other is not."""
    shaped = combined(OwnWidths(), emitted(own.cumsum(dim=-1)), half_width.cumsum(dim=-1), LEVELS)
    inner, outer = shaped.unbind(dim=-1)
    assert (outer >= inner * (1 - 1e-12)).all()


def test_a_half_width_of_another_shape_is_refused_in_our_words():
    class Flat(SigmaFit):
        def half_width(self, outputs, n_targets, levels):
            return outputs[..., :1]

    half_width = torch.ones(2, 5, 1, 2, 3)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 5, 1, 2, 3\).*got \(2, 5, 1\)"):
        combined(Flat(), torch.zeros(2, 5, 2), half_width, levels_of(0.5, 0.8, 0.9))


# Continuing an earlier training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [SMALL, FactoryNetwork(nn.Linear)])
def test_teams_that_continue_without_a_better_round_stay_what_they_were(network):
    rows = Rows.stack([table(60, seed=0), table(45, seed=1)])
    trained, _ = train(rows, training_of(network))
    # A step so long that nothing it leads to is better.
    later, history = train(rows, training_of(network, learning_rate=10.0, start=trained.teams), seed=9)
    assert history.n_rounds.tolist() == [2, 2]
    for before, after in zip(trained.teams, later.teams, strict=True):
        assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())
    for before, after in zip(trained.members, later.members, strict=True):
        assert_allclose(before.mean, after.mean, rtol=1e-6)
