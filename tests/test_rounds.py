import numpy as np
import pytest
import torch
from coverwell.algorithm import Measures, Record
from coverwell.rounds import rounds_of
from numpy.testing import assert_allclose

from coverwell import MLP, MatchedRegressor
from coverwell.inputs.scaling import TargetScaler
from coverwell.metrics import interval_score, rmse

SMALL = MLP(hidden=16, bins=4)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 3))
Y = np.stack([np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=120), 50 * X[:, 1] + 5 * RNG.normal(size=120)], axis=1)


def scaler(*spread):
    return TargetScaler(np.zeros(len(spread)), np.array(spread, dtype=float))


def measures(value, *, n_jobs=1, n_targets=1, n_levels=1):
    """The same number everywhere, times the job's number from 1."""
    job = torch.arange(1.0, n_jobs + 1)
    per_target = value * job[:, None].expand(-1, n_targets)
    per_level = per_target[..., None].expand(-1, -1, n_levels)
    return Measures(rmse=per_target, coverage=per_level / 10, width=2 * per_level, score=3 * per_level)


def record_of(rounds, n_rounds):
    n_jobs = len(n_rounds)
    losses = [torch.tensor([[10.0 + t, 20.0 + t]]).repeat(n_jobs, 1) for t in range(len(rounds))]
    return Record(rounds, losses, [0.5] * len(rounds), n_rounds, torch.ones(n_jobs, 1))


def read(record, jobs, targets, levels=(0.8,), *, one_target=True, one_level=True):
    return rounds_of(record, jobs, targets, levels, one_target=one_target, one_level=one_level)


def test_a_round_is_in_the_units_of_the_target():
    # Spread 4. Pinball score 3 at 80 %: the interval score is 3 x 2 / (1 - .8) = 30, times 4.
    (single,) = read(record_of([measures(1.0)], [1]), slice(0, 1), [scaler(4.0)])
    assert_allclose([single.rmse, single.coverage, single.width, single.interval_score], [4.0, 0.1, 8.0, 120.0])
    assert (single.mean_loss, single.interval_loss, single.seconds) == (10.0, 20.0, 0.5)


def test_jobs_are_averaged_over_those_that_had_not_settled():
    # Jobs 2 and 3 of three, of spread 1 and 10; the second job settled after one round.
    record = record_of([measures(1.0, n_jobs=3), measures(2.0, n_jobs=3), measures(9.0, n_jobs=3)], [3, 1, 2])
    first, second = read(record, slice(1, 3), [scaler(1.0), scaler(10.0)])
    assert_allclose(first.rmse, (2 * 1 + 3 * 10) / 2)
    assert_allclose(second.rmse, 2 * 3 * 10)  # and the third round belongs to the first job alone


@pytest.mark.parametrize(
    ("one_target", "one_level", "rmse_shape", "level_shape"),
    [(True, True, (), ()), (True, False, (), (2,)), (False, True, (3,), (3,)), (False, False, (3,), (3, 2))],
)
def test_numbers_are_floats_or_arrays_over_what_there_is_more_than_one_of(
    one_target, one_level, rmse_shape, level_shape
):
    n_targets, levels = 1 if one_target else 3, (0.8,) if one_level else (0.5, 0.8)
    record = record_of([measures(1.0, n_targets=n_targets, n_levels=len(levels))], [1])
    targets = [scaler(*range(1, n_targets + 1))]
    (single,) = read(record, slice(0, 1), targets, levels, one_target=one_target, one_level=one_level)
    for name in ("rmse", "coverage", "width", "interval_score"):
        expected = rmse_shape if name == "rmse" else level_shape
        assert np.shape(getattr(single, name)) == expected
        assert expected or type(getattr(single, name)) is float


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split", None])
def test_a_fit_leaves_one_record_per_round(calibration):
    model = MatchedRegressor(
        0.8, network=SMALL, folds=3, repeats=1, max_rounds=3, calibration=calibration, random_state=0
    ).fit(X, Y[:, 1])
    assert len(model.rounds_) == 3
    for single in model.rounds_:
        assert all(type(value) is float for value in vars(single).values())
        assert 0 <= single.coverage <= 1
        assert min(single.rmse, single.width, single.interval_score, single.seconds) > 0
    assert model.rounds_[-1].mean_loss < model.rounds_[0].mean_loss


def test_training_stops_when_patience_is_at_its_end():
    model = MatchedRegressor(
        network=SMALL, folds=3, repeats=1, max_rounds=60, patience=1, learning_rate=0.01, random_state=0
    )
    rounds = model.fit(X, Y[:, 0]).rounds_
    assert 1 < len(rounds) < 60
    last = rounds[-1]
    assert last.rmse >= min(r.rmse for r in rounds[:-1])
    assert last.interval_score >= min(r.interval_score for r in rounds[:-1])


@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_the_best_round_is_restored_and_so_no_round_was_better_out_of_fold(matching):
    levels, y = np.array([0.5, 0.8]), Y[:, 0]
    keen = {"network": MLP(hidden=32, dropout=0.0, bins=8), "learning_rate": 0.01, "max_rounds": 12, "patience": 99}
    model = MatchedRegressor(levels, matching, folds=3, repeats=2, random_state=0, **keen).fit(X, y)
    rounds, said = model.rounds_, model.out_of_fold_
    best = min(single.rmse for single in rounds)
    assert_allclose(rmse(y, said.prediction[:, 0]), best, rtol=1e-5)
    assert rounds[-1].rmse > 1.02 * best  # or nothing was tested
    # The out-of-fold bounds are stretched by the factor; undone, they are those of training.
    centre = said.prediction[:, :, None]
    lower, upper = (centre + (bound - centre) / model.factor_ for bound in (said.lower, said.upper))
    score = np.mean([interval_score(y, lower[:, 0, k], upper[:, 0, k], p) * (1 - p) for k, p in enumerate(levels)])
    scores = [((1 - levels) * single.interval_score).mean() for single in rounds]
    assert score <= min(scores) * 1.02  # around the best F, which need not be that of I's best round
    assert scores[-1] > 1.05 * min(scores)


def test_a_single_round_is_measured_out_of_fold_and_bettered_by_the_closing_rounds_alone():
    levels = np.array([0.5, 0.8])
    model = MatchedRegressor(
        levels, None, network=SMALL, folds=3, repeats=2, max_rounds=1, calibration=None, random_state=0
    ).fit(X, Y)
    (single,), said = model.rounds_, model.out_of_fold_
    assert_allclose(single.rmse, rmse(Y, said.prediction), rtol=1e-5)
    assert single.coverage.shape == single.width.shape == single.interval_score.shape == (2, 2)
    scores = [interval_score(Y, said.lower[..., k], said.upper[..., k], p) for k, p in enumerate(levels)]
    weight = (1 - levels) / Y.std(axis=0)[:, None]  # (target, level): what makes targets and levels weigh alike
    assert (np.stack(scores, axis=-1) * weight).mean() <= (single.interval_score * weight).mean() * (1 + 1e-5)
