import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch

from coverwell.algorithm import Recipe, measure
from coverwell.folds import Problem
from coverwell.losses import quantile_interval_loss
from coverwell.matching import SigmaFit
from coverwell.networks.mlp import MLP
from coverwell.streaming.rounds import BatchPlan, _StreamedRounds, alternate_on_stream
from coverwell.streaming.row_hash import N_LANES, RowHash, row_keys
from coverwell.streaming.rows import Buffer
from coverwell.streaming.workers import ALONE, SharedLearner

HASH = RowHash(0, folds=3, repeats=1)
RECIPE = Recipe(
    matching=SigmaFit(),
    interval_loss=partial(quantile_interval_loss, steepness=40.0),
    max_rounds=4,
    mean_epochs=2,
    interval_epochs=2,
    patience=4,
)


def problem_of(first, n):
    rng = np.random.default_rng(first)
    x = torch.from_numpy(rng.normal(size=(1, n, 2))).float()
    y = x[..., :1] + 0.3 * torch.from_numpy(rng.normal(size=(1, n, 1))).float()
    speaks = torch.from_numpy(HASH.left_out_by(row_keys(first, n)))[None]
    return Problem(x, y, ~speaks, speaks, torch.tensor([[0.9]]))


def buffer_of(first, n=600):
    problem, lanes = problem_of(first, n), torch.from_numpy(HASH.lanes(row_keys(first, n)))
    longest = max(int(problem.trains[0][:, lanes == lane].sum(dim=1).max()) for lane in range(N_LANES))
    return Buffer(problem, lanes, longest)


def learners(sample):
    torch.manual_seed(0)
    return tuple(
        SharedLearner(
            MLP(hidden=8, layers=2, bins=0, dropout=0.0).build(3, (2,), 2),
            sample,
            learning_rate=1e-2,
            memory=0.5,
            workers=ALONE,
        )
        for _ in range(2)
    )


def stream(seen):
    """Buffers that are never alike, and weak references to them."""
    number = 0
    while True:
        number += 1
        buffer = buffer_of(10_000 * number)
        seen.append(weakref.ref(buffer.problem))
        yield buffer
        del buffer


def run(sample, seen, progress=lambda *_: None, recipe=RECIPE):
    mean, interval = learners(sample)
    record = alternate_on_stream(mean, interval, recipe, stream(seen), BatchPlan(64, seed=1), progress)
    return mean, interval, record


def test_every_round_takes_a_new_buffer_and_holds_no_other():
    alive, seen = [], []

    def count(*_):
        gc.collect()
        alive.append(sum(ref() is not None for ref in seen))

    run(problem_of(0, 500), seen, count)
    assert len(seen) == RECIPE.max_rounds + RECIPE.closing_rounds
    assert max(alive) <= 1  # the generator's own


def test_both_networks_learn_and_are_measured_on_the_sample():
    sample = problem_of(0, 500)
    mean, interval, record = run(sample, [])
    assert record.rounds[-1].rmse < 0.5 * record.rounds[0].rmse or float(record.rounds[-1].rmse) < 0.36
    assert mean.problem is sample
    assert interval.problem is sample
    assert [m.score.shape for m in record.rounds] == [(1, 1, 1)] * RECIPE.max_rounds


def test_the_networks_are_left_at_their_best_round():
    sample = problem_of(0, 500)
    mean, interval, record = run(sample, [])
    rounds = _StreamedRounds(mean, interval, RECIPE, iter(()), BatchPlan(64, 1))
    y_mean = rounds.said_by_mean(sample)
    found = measure(sample, y_mean, rounds.said_by_interval(sample, record.scale))
    assert float(found.rmse) == pytest.approx(min(float(m.rmse) for m in record.rounds), rel=1e-5)
    assert float(found.score) <= min(float(m.score) for m in record.rounds) * 1.05


def test_it_stops_when_scores_no_longer_improve():
    recipe = Recipe(**{**vars(RECIPE), "max_rounds": 200, "patience": 2})
    _, _, record = run(problem_of(0, 500), [], recipe=recipe)
    assert record.n_rounds[0] == len(record.rounds) < 200
