"""Local calibration: lower and upper quantiles of honest residuals, given the row."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from coverwell import MLP, MatchedRegressor, Schedule, load, save
from coverwell.calibration import Estimate, grid_matrix, grid_of, rank_factor, scores_of
from coverwell.local import LocalShape, best_mixture, fit_shape, knot_shares
from coverwell.paper.losses import z_score
from tests.synthetic import Law

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
# Around zero, skewed to the right on one side and to the left on the other, and wider to the right.
SKEWED = Law(
    "two sides",
    2,
    lambda X: stats.skewnorm(a=np.where(X[:, 0] < 0.5, 8.0, -8.0), loc=0.0, scale=0.2 + 0.8 * X[:, 1]),
)
SHORT = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 3, "random_state": 0}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=3, interval_epochs=3), "companions": ()}


def pinball(y, lower, upper, levels):
    """Mean over rows of the interval's two pinball losses, for each level; all (row, level) but y (row,)."""
    missed = np.maximum(y[:, None] - upper, 0) + np.maximum(lower - y[:, None], 0)
    return ((upper - lower) * (1 - levels) / 2 + missed).mean(axis=0)


def known_of(X, levels, n_targets=1):
    """What is known of rows whose networks have learned neither mean nor spread: zero, and the normal law."""
    half_width = np.broadcast_to(z_score(torch.tensor(levels)).numpy(), (len(X), n_targets, 2, len(levels)))
    zeros = np.zeros((len(X), n_targets))
    return {"rows": X, "mean": zeros, "half_width": half_width.copy(), "contrast": zeros}


@pytest.fixture(scope="module")
def learned():
    """A shape from 1500 rows of the law, and both it and the constant factor on 4000 new ones."""
    X, y = SKEWED.draw(1500, random_state=0)
    X_new, y_new = SKEWED.draw(4000, random_state=1)
    known, new = known_of(X, LEVELS), known_of(X_new, LEVELS)
    shape, own, _ = fit_shape(y[:, None], tuple(LEVELS.tolist()), known, None, 0)
    half_width = shape(**{name: torch.from_numpy(values) for name, values in new.items()}).numpy()
    return X, y, known, X_new, y_new, new, shape, own, half_width


def at_levels(half_width, grid):
    """Lower and upper bounds (row, level) around zero at the four levels."""
    places = [grid.index(level) for level in LEVELS]
    return -half_width[:, 0, 0, places], half_width[:, 0, 1, places]


def constant(y, known):
    """Half-widths stretched by one factor for all rows, from the ranks of these."""
    return rank_factor(scores_of(y[:, None], Estimate(known["mean"], known["half_width"])), tuple(LEVELS))


def test_local_quantiles_beat_one_factor_for_all_rows_out_of_fold_and_on_new_rows(learned):
    _, y, known, _, y_new, new, shape, own, half_width = learned
    factor = constant(y, known)[:, None]
    for rows, given, local in ((y, known, own), (y_new, new, half_width)):
        ends = given["half_width"] * factor
        plain = pinball(rows, -ends[:, 0, 0], ends[:, 0, 1], LEVELS)
        assert (pinball(rows, *at_levels(local, shape.grid), LEVELS) < 0.85 * plain).all()
    assert shape.mixture.item() >= 0.8


def test_each_side_is_near_the_true_quantile_of_the_row(learned):
    *_, X_new, _, _, shape, _, half_width = learned
    lower, upper = at_levels(half_width, shape.grid)
    for place, level in enumerate(LEVELS):
        true = SKEWED.true_interval(X_new, level)
        for side, end in zip((lower, upper), true, strict=True):
            # Where the true end lies beyond the prediction, the interval ends there.
            end = np.minimum(end, 0) if side is lower else np.maximum(end, 0)
            assert np.corrcoef(side[:, place], end)[0, 1] > 0.85
            assert np.abs(side[:, place] - end).mean() < 0.5 * np.abs(end - np.median(end)).mean()


def test_out_of_bag_rows_are_covered_as_new_rows_are(learned):
    """No row had a part in its own half-width: what covers the training rows covers others."""
    _, y, _, _, y_new, _, shape, own, half_width = learned
    shares = []
    for rows, local in ((y, own), (y_new, half_width)):
        lower, upper = at_levels(local, shape.grid)
        shares.append(((lower <= rows[:, None]) & (rows[:, None] <= upper)).mean(axis=0))
    error = np.sqrt(LEVELS * (1 - LEVELS) * (1 / len(y) + 1 / len(y_new)))
    assert (np.abs(shares[0] - shares[1]) < 3 * error).all()


def test_the_mixture_is_the_best_share_and_goes_to_the_better_of_two_shapes():
    rng = np.random.default_rng(0)
    scale = rng.lognormal(size=2000)
    y, mean, grid = (scale * rng.normal(size=2000))[:, None], np.zeros((2000, 1)), (0.5, 0.8, 0.9)
    z = z_score(torch.tensor(grid)).numpy()
    right = np.broadcast_to(scale[:, None, None, None] * z, (2000, 1, 2, 3))
    wrong = np.broadcast_to(rng.permutation(scale)[:, None, None, None] * z, (2000, 1, 2, 3))
    assert best_mixture(y, mean, own=wrong, local=right, grid=grid, target=0) == 1.0
    assert best_mixture(y, mean, own=right, local=wrong, grid=grid, target=0) == 0.0
    noisy = [right * np.exp(0.5 * rng.normal(size=(2000, 1, 1, 1))) for _ in range(2)]  # errors of their own
    assert 0.2 <= best_mixture(y, mean, own=noisy[0], local=noisy[1], grid=grid, target=0) <= 0.8


def test_knots_ascend_over_all_values():
    shares = knot_shares()
    assert (np.diff(shares) > 0).all()
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert_allclose(shares + shares[::-1], 1.0)


@pytest.mark.parametrize("levels", [(0.9,), (0.2, 0.95), (0.5, 0.8, 0.9)])
def test_a_normal_law_is_itself_on_the_grid(levels):
    """Half-widths in proportion to the normal quantile stay so, between the asked levels and beyond them."""
    grid = grid_of(levels, 500)
    assert set(levels) <= set(grid)
    assert max(grid) == 0.998  # 0.998 x 501 = 499.998, and 0.999 x 501 is beyond 500
    z, z_grid = (z_score(torch.tensor(one, dtype=torch.float64)).numpy() for one in (levels, grid))
    assert_allclose(3 * z @ grid_matrix(levels, grid), 3 * z_grid, rtol=1e-9)


# Fits ----------------------------------------------------------------------------------------------------------------


def table(n_rows=150, n_targets=2, seed=0):
    X, y = SKEWED.draw(n_rows, random_state=seed)
    other = 100 * X[:, 1] + 10 * np.random.default_rng(seed).normal(size=n_rows)
    return X, (np.stack([y, other], axis=1) if n_targets == 2 else y)


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return MatchedRegressor(0.9, calibration="local", **SHORT | {"companions": ("forest",)}).fit(X, y)


def test_a_fit_has_one_forest_per_target_and_shares_between_zero_and_one(fitted):
    (team,) = fitted.predictor_.fitted_teams
    assert isinstance(team.shape, LocalShape)
    assert len(team.shape.forests) == 2
    assert ((team.shape.mixture >= 0) & (team.shape.mixture <= 1)).all()
    assert fitted.predictor_.correction.levels == team.shape.grid


@pytest.mark.parametrize("joint", [False, True])
def test_a_loaded_model_a_pickle_and_the_saved_model_give_the_same_bits(fitted, tmp_path, joint):
    X, _ = table(seed=1)
    save(fitted, tmp_path / "model")
    for other in (load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        for coverage in (None, [0.3, 0.73, 0.9]):
            mine, yours = (model.predict_interval(X, coverage, joint=joint) for model in (fitted, other))
            assert_array_equal(mine.lower, yours.lower)
            assert_array_equal(mine.upper, yours.upper)
        assert_array_equal(fitted.predict_quantiles(X, [0.01, 0.4]), other.predict_quantiles(X, [0.01, 0.4]))


def test_new_rows_are_covered_as_asked_at_fitted_levels_and_at_others():
    n_rows, n_fits, n_new, levels = 400, 3, 2000, np.array([*LEVELS, 0.3, 0.73, 0.85, 0.925, 0.97])
    covered = []
    X_new, y_new = SKEWED.draw(n_new, random_state=100)
    for seed in range(n_fits):
        X, y = SKEWED.draw(n_rows, random_state=seed)
        changes = {"companions": ("forest",), "random_state": seed, "schedule": Schedule(max_rounds=2)}
        model = MatchedRegressor(LEVELS, calibration="local", **SHORT | changes).fit(X, y)
        covered.append(model.predict_interval(X_new, levels).contains(y_new).mean(axis=0))
    error = np.sqrt(levels * (1 - levels) * (1 / (n_rows * n_fits) + 1 / n_new))
    assert (np.abs(np.mean(covered, axis=0) - levels) < 3 * error).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_bounds_of_a_cpu():
    X, y = table()
    model = MatchedRegressor(0.9, calibration="local", device="cuda", **SHORT).fit(X, y)
    on_gpu = model.predict_interval(X)
    on_cpu = model.set_params(device="cpu").predict_interval(X)
    assert_allclose(on_gpu.lower, on_cpu.lower, rtol=1e-3, atol=1e-2)
    assert_allclose(on_gpu.upper, on_cpu.upper, rtol=1e-3, atol=1e-2)
