"""How much of a row's own target reaches its out-of-fold width.

Where the noise is the same everywhere, a width has nothing to learn from a residual: what correlation there is between
the width and the size of the residual on the training rows, beyond that on new rows, is a leak. Nothing of it may show
beyond three standard errors of a correlation over n rows.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from coverwell import MLP, MatchedRegressor, Schedule, fit_together
from coverwell.calibration import average_out_of_fold
from coverwell.training.rows import Rows
from tests.synthetic import laws

N_ROWS, N_NEW, N_DRAWS = 500, 10_000, 4
BAR = 3 / np.sqrt(N_ROWS)
EVEN = Schedule(max_rounds=10, patience=99, mean_epochs=10, interval_epochs=10, learning_rate=1e-3, growth=1.0)
SETTINGS = {"network": MLP(hidden=32), "repeats": 1, "schedule": EVEN, "companions": ()}
BESIDE = {"schedule": Schedule(max_rounds=2), "companions": ("forest",)}


def draw(n_rows, seed, n_empty):
    """Rows of the homoscedastic law, with columns of pure noise by which a network can distinguish rows."""
    X, y = laws()["homoscedastic"].draw(n_rows, random_state=seed)
    return np.hstack([X, np.random.default_rng(seed).uniform(size=(n_rows, n_empty))]), y


def correlation(width, residual):
    return np.corrcoef(width, np.abs(residual))[0, 1]


def leak_of(model, X, y, X_new, y_new):
    training, interval = model.out_of_fold_, model.predict_interval(X_new)
    old = correlation((training.upper - training.lower)[:, 0, 0], y - training.prediction[:, 0])
    return old - correlation(interval.width, y_new - model.predict(X_new))


@pytest.mark.parametrize(
    ("n_empty", "matching", "calibration"),
    [(7, "sigma", "cross"), (7, "sigma", "local"), pytest.param(7, "iqr", "cross", marks=pytest.mark.slow)]
    + [pytest.param(0, "sigma", "cross", marks=pytest.mark.slow)]
    + [pytest.param(n, "sigma", "cv+", marks=pytest.mark.slow) for n in (0, 7)],
)
def test_a_rows_own_target_does_not_reach_its_width(n_empty, matching, calibration):
    tables = [draw(N_ROWS, seed, n_empty) for seed in range(N_DRAWS)]
    settings = SETTINGS | (BESIDE if calibration == "local" else {})
    models = [
        MatchedRegressor(matching=matching, calibration=calibration, random_state=seed, **settings)
        for seed in range(N_DRAWS)
    ]
    fit_together(models, [(X, y, None) for X, y in tables])
    leaks = [
        leak_of(model, *table, *draw(N_NEW, 1000 + seed, n_empty))
        for seed, (model, table) in enumerate(zip(models, tables, strict=True))
    ]
    assert np.mean(leaks) < BAR


def test_the_leak_shows_where_intervals_learn_from_residuals_of_members_that_saw_the_row():
    """The test above can fail: the same networks on the same rows, but members also count for rows they train on."""
    tables = [draw(N_ROWS, seed, n_empty=7) for seed in range(N_DRAWS)]
    models = [MatchedRegressor(random_state=seed, **SETTINGS) for seed in range(N_DRAWS)]
    rows = Rows.stack([model.prepare(X, y, None, {}) for model, (X, y) in zip(models, tables, strict=True)])
    rows = replace(rows, leaves_out=rows.trains)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trained, _ = models[0].training_for(N_ROWS).run(rows, lambda present, history: None)
    leaks = []
    for seed, (team, members) in enumerate(zip(trained.teams, trained.members, strict=True)):
        average = average_out_of_fold(members, rows.leaves_out[seed].numpy())
        old = correlation(average.half_width[:, 0, :, 0].sum(axis=1), rows.y[seed, :, 0].numpy() - average.mean[:, 0])
        X_new, y_new = draw(N_NEW, 1000 + seed, n_empty=7)
        new = team.estimate(X_new)
        leaks.append(old - correlation(new.half_width[:, 0, :, 0].sum(axis=1), y_new - new.mean[:, 0]))
    assert np.mean(leaks) > BAR


def test_the_leak_shows_where_a_width_is_made_of_the_rows_own_residual():
    rng = np.random.default_rng(0)
    leaks = []
    for _ in range(N_DRAWS):
        size = np.abs(rng.normal(size=N_ROWS))
        neighbours = np.stack([np.roll(size, shift) for shift in range(-10, 11)])  # 21 neighbours, the row among them
        with_own, without = neighbours.mean(axis=0), np.delete(neighbours, 10, axis=0).mean(axis=0)
        leaks.append([np.corrcoef(width, size)[0, 1] for width in (with_own, without)])
    assert np.mean(leaks, axis=0)[0] > BAR
    assert np.mean(leaks, axis=0)[1] < BAR
