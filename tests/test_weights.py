"""`sample_weight`: rows that count more in training, in measures and in ranks, and rows that do not count at all."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import data, floats, integers
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from coverwell import MLP, IntervalAround, MatchedRegressor, Schedule, TableFiles, fit_together, load, save
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.calibration import (
    Cross,
    CrossScores,
    Estimate,
    Split,
    effective_rows,
    n_out_of_fold,
    rank_factor,
    rows_worth,
)
from coverwell.companions import fit_forest, name_of_weight
from coverwell.copies import Copies
from coverwell.description import ModelDescription
from coverwell.errors import TableFileError
from coverwell.groups import Grouping, group_factors
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.local import best_mixture, quantiles_of
from coverwell.paper.algorithm import blend_weights
from coverwell.report.facts import Source, source_rows
from coverwell.streaming.fit import RELATIVE_ERROR, ScoreSketch, check_fit
from coverwell.training.rows import MOST_ROWS_PER_EPOCH, Batches, Draw, Rows
from coverwell.trees import grow, leaf_means, out_of_bag

SHORT = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 3, "random_state": 0, "device": "cpu"}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=3, interval_epochs=3)}
N = 150


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + rng.normal(size=n)


X, y = draw(N)
WEIGHT = np.random.default_rng(1).integers(0, 4, size=N).astype(float)


def assert_same(first, second, X=X):
    for one, other in zip(first.predict_interval(X), second.predict_interval(X), strict=True):
        assert_array_equal(one, other)


# Batches.


@given(data=data(), n=integers(2, 40), n_members=integers(1, 3))
def test_a_row_comes_as_often_as_it_weighs_rounded_up_or_down(data, n, n_members):
    trains = torch.from_numpy(data.draw(arrays(bool, (n_members, n))))
    weight = torch.from_numpy(data.draw(arrays(float, n, elements=floats(0, 100)))).expand(n_members, -1)
    trains[:, 0], weight = True, weight.clone()
    weight[:, 0] = 1.0
    trains &= weight > 0
    drawn = Draw(trains, weight)()
    for member in range(n_members):
        own = trains[member]
        times = torch.bincount(drawn[member, : own.sum()], minlength=n)
        share = own.sum() * weight[member] * own / (weight[member] * own).sum()
        assert times[~own].sum() == 0
        assert (times - share).abs().max() < 1 + 1e-9


def test_rows_of_equal_weight_come_once_each_and_others_on_average_as_they_weigh():
    own = torch.tensor([[True, True, False, True]])
    torch.manual_seed(0)
    assert_array_equal(Draw(own, torch.full((1, 4), 7.0))().sort(dim=1).values[:, :3], [[0, 1, 3]])
    halves = Draw(torch.ones(99, 3, dtype=torch.bool), torch.tensor([0.5, 2.0, 0.5]).expand(99, -1))()
    assert ((halves == 1).sum(dim=1) == 2).all()  # exactly twice, and one of the two others
    n_draws, weight = 4000, torch.tensor([0.5, 2.0, 9.0, 0.7])
    drawn = Draw(own.expand(n_draws, -1), weight.expand(n_draws, -1))()[:, :3]
    times = torch.stack([(drawn == row).sum(dim=1) for row in range(4)]).double()
    expected = 3 * weight * own[0] / (weight * own[0]).sum()
    # Rounded up or down at random: a standard deviation of at most 1/2.
    assert ((times.mean(dim=1) - expected).abs() < 4.5 * 0.5 / math.sqrt(n_draws)).all()
    assert (times[1] == 2).any()
    assert (times[1] == 1).any()


def test_batches_of_a_long_table_are_as_many_as_without_weights():
    own = torch.ones(1, MOST_ROWS_PER_EPOCH + 5000, dtype=torch.bool)
    weight = torch.linspace(0.5, 1.5, own.shape[1])[None]
    torch.manual_seed(0)
    rows = torch.cat(list(Batches(own, 500, weight).epoch()), dim=1)[0]
    assert len(rows) == MOST_ROWS_PER_EPOCH
    # The share of the heavier half is 5/8.
    share = (rows >= own.shape[1] / 2).double().mean()
    assert abs(share - 5 / 8) < 4.5 * math.sqrt(15 / 64 / len(rows))


# Rows.


def rows_of(weight, calibration=None, **options):
    options = {"levels": (0.8,), "folds": 3, "repeats": 1, **options}
    known = {"calibration": calibration or Cross(), "random_state": np.random.RandomState(0)}
    return Rows.of(X, y[:, None], weight=weight, **known, **options)


def test_rows_of_weight_zero_train_nobody_and_are_left_out_by_nobody():
    rows, without = rows_of(WEIGHT), rows_of(None)
    counts = WEIGHT > 0
    for name in ("trains", "leaves_out"):
        assert not getattr(rows, name)[..., ~counts].any()
        assert_array_equal(getattr(rows, name)[..., counts], getattr(without, name)[..., counts])
    assert_allclose(rows.weight[0], WEIGHT / WEIGHT.mean())
    assert_array_equal(rows.x, without.x)  # no scaling looks at weights
    assert without.weight is None
    (places,) = (split := rows_of(WEIGHT, Split(0.4))).held_back
    assert_array_equal(split.weight_of(places), WEIGHT[places])
    assert_array_equal(split.seen_weight, np.delete(WEIGHT, places))
    assert float(split.weight.mean()) == pytest.approx(1.0)


def test_an_image_and_its_mirror_image_weigh_the_same():
    weight, images = np.arange(12.0), np.zeros((12, 2, 3, 1, 1), dtype=np.float32)
    known = {"calibration": Cross(), "random_state": np.random.RandomState(0), "mirroring": Mirroring("same")}
    rows = Rows.of(images, y[:12, None], weight=weight, levels=(0.5,), folds=2, repeats=1, scaled=False, **known)
    assert_allclose(rows.weight[0], np.repeat(weight / weight.mean(), 2))
    assert not rows.trains[..., :2].any()


def test_a_job_without_weights_beside_one_with_weights_has_ones():
    short, long = (Rows(*[part[:, :n] for part in (x, x)], *masks(n), torch.ones(1, 1)) for n in (3, 5))
    rows = Rows.stack([short, Rows(*[long.x, long.y], *masks(5), long.coverage, weight=torch.arange(5.0)[None])])
    assert_array_equal(rows.weight, [[1, 1, 1, 0, 0], [0, 1, 2, 3, 4]])
    assert_array_equal(rows.few(1, 1).weight, rows.weight[:1])
    assert Rows.stack([short, long]).weight is None


x = torch.zeros(1, 5, 1)


def masks(n):
    leaves_out = (torch.arange(n) % 2 == torch.arange(2)[:, None])[None]
    return ~leaves_out, leaves_out


def test_means_over_out_of_fold_rows_are_weighted_by_hand():
    leaves_out = torch.tensor([[[True, False, True, True]]])
    rows = Rows(x[:, :4], x[:, :4], ~leaves_out, leaves_out, torch.ones(1, 1), weight=torch.tensor([[1.0, 9, 2, 0]]))
    assert_allclose(rows.mean_out_of_fold(torch.tensor([[1.0, 50.0, 4.0, 70.0]])), [3.0])  # (1 + 2 * 4) / 3


def test_the_blend_is_that_of_the_heavy_rows():
    both = torch.tensor([[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]])[..., None]
    y, of_networks = both.clone(), both.clone()
    beside = both[:, :, None].clone()
    of_networks[:, 3:] += 1.0  # the networks are right on the first three rows, the companion on the others
    beside[:, :3] += 1.0
    everyone = torch.ones(1, 1, 6, dtype=torch.bool)
    for heavy, networks in ((slice(0, 3), 0.9), (slice(3, 6), 0.1)):
        weight = torch.ones(1, 6)
        weight[:, heavy] = 9.0
        rows = Rows(both, y, everyone, everyone, torch.ones(1, 1), beside=beside, weight=weight)
        # a (1 - share)^2 + b share^2 is least at a / (a + b).
        assert_allclose(blend_weights(rows, of_networks)[0, :, 0], [networks, 1 - networks], atol=1e-5)


# Forests.


def test_leaves_hold_weighted_means_and_no_tree_sees_a_row_of_weight_zero():
    grown = {"n_trees": 5, "min_leaf": 3, "max_features": 1.0, "max_rows": 10**4, "random_state": 0}
    trees, in_bag = grow(X, y, weight=WEIGHT, **grown)
    assert not in_bag[:, WEIGHT == 0].any()
    assert_allclose(leaf_means(trees, X, y[:, None], in_bag, WEIGHT), trees.table.numpy(), rtol=1e-9, atol=1e-12)
    ones, seen = grow(X, y, weight=np.ones(N), **grown)
    twin, as_ever = grow(X, y, **grown)
    assert_array_equal(seen, as_ever)
    assert_array_equal(ones.table, twin.table)


def test_a_forest_is_that_of_the_rows_that_count():
    _, found = fit_forest(np.zeros((N, 1)), y[:, None], None, 0, WEIGHT)
    few = np.where(np.arange(N) < 30, 1.0, 0.0)
    # One leaf: what most trees predict is the weighted mean of the rows they have seen.
    assert found.mean() == pytest.approx(np.average(y, weights=WEIGHT), abs=0.05)
    _, of_few = fit_forest(np.zeros((N, 1)), y[:, None], None, 0, few)
    assert of_few[30:].mean() == pytest.approx(y[:30].mean(), abs=0.05)
    trees, in_bag = grow(X, y, n_trees=3, min_leaf=1, max_features=1.0, max_rows=99, random_state=0, weight=few)
    assert_array_equal(out_of_bag(trees, trees.table.numpy(), X, in_bag)[1][30:], 3)


@given(values=arrays(float, 12, elements=floats(-5, 5)), share=floats(0, 1))
def test_quantiles_with_equal_weights_are_those_of_numpy(values, share):
    shares = np.array([0.0, share, 1.0])
    assert_allclose(quantiles_of(values, shares, np.full(12, 0.3)), np.quantile(values, shares), atol=1e-9)


def test_quantiles_by_hand():
    values, weight = np.array([3.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0])
    # Between 1 and 2 lies a weight of 1, between 2 and 3 one of 1.5.
    assert_allclose(quantiles_of(values, np.array([0.0, 0.4, 0.7, 1.0]), weight), [1.0, 2.0, 2.5, 3.0])


def test_the_mixture_is_that_of_the_heavy_rows():
    rng, grid = np.random.default_rng(0), (0.5, 0.8, 0.9)
    z, size, half = np.array([0.674, 1.282, 1.645]), np.tile([1.0, 4.0], 300), np.arange(600) < 300
    values, mean = (size * rng.normal(size=600))[:, None], np.zeros((600, 1))

    def widths(of_rows):
        return np.broadcast_to(of_rows[:, None, None, None] * z, (600, 1, 2, 3))

    # I knows the sizes of the first half of the rows, the forest those of the second.
    own, local = widths(np.where(half, size, 2.0)), widths(np.where(half, 2.0, size))
    first, second = np.where(half, 1.0, 1e-6), np.where(half, 1e-6, 1.0)
    assert best_mixture(values, mean, own, local, grid, 0, first) < 0.3
    assert best_mixture(values, mean, own, local, grid, 0, second) > 0.7


# Ranks.


def members_of(rng, n_members=4):
    leaves_out = np.arange(N) % n_members == np.arange(n_members)[:, None]
    shape = (n_members, N, 1, 2, 2)
    return Estimate(rng.normal(size=(n_members, N, 1)), np.exp(rng.normal(size=shape))), leaves_out


def test_scores_of_rows_of_weight_zero_do_not_rank():
    members, leaves_out = members_of(np.random.default_rng(0))
    counts = WEIGHT > 0
    weighted = CrossScores.of(y[:, None], members, leaves_out & counts, WEIGHT)
    few = Estimate(members.mean[:, counts], members.half_width[:, counts])
    left = CrossScores.of(y[counts, None], few, leaves_out[:, counts], WEIGHT[counts])
    for name in ("averaged", "weight"):
        assert_array_equal(getattr(weighted, name), getattr(left, name))
    assert_array_equal(weighted.weight_of_singles[:5], WEIGHT[leaves_out[0] & counts][:5])


def test_ranks_need_rows_that_are_worth_enough():
    weight = np.ones(20)
    weight[0] = 10.0
    assert effective_rows(weight) == pytest.approx(29**2 / 119)
    assert rows_worth(weight) == 7
    assert rows_worth(np.zeros(3)) == 0
    assert n_out_of_fold(np.eye(20, dtype=bool), None) == 20
    assert n_out_of_fold(np.eye(20, dtype=bool), weight) == 7
    with pytest.raises(ValueError, match=r"'cross' ranks rows that are worth 1 by weight: .* needs at least 9 rows"):
        MatchedRegressor(0.9, calibration="cross", **SHORT).fit(X, y, sample_weight=np.exp(9 * X[:, 0]))
    with pytest.raises(ValueError, match="'split' ranks rows that are worth 1 by weight"):
        MatchedRegressor(0.9, calibration="split", **SHORT).fit(X, y, sample_weight=np.exp(9 * X[:, 0]))


def test_grids_and_ranks_agree_where_few_rows_are_worth_much():
    """Levels of the grid have a rank by weight, or a fit would fail after its training."""
    weight = np.where(np.arange(N) % 10 == 0, 1.0, 0.01)
    for calibration in ("local", "cross", Split(0.5)):
        model = MatchedRegressor(0.5, calibration=calibration, companions=(), **SHORT).fit(X, y, sample_weight=weight)
        assert model.n_ranked_ < 25
        assert model.predictor_.correction.levels[-1] <= model.n_ranked_ / (model.n_ranked_ + 1)


def test_groups_have_weighted_ranks():
    rng = np.random.default_rng(0)
    group, weight = np.repeat([0.0, 1.0], 400), rng.integers(1, 4, size=800).astype(float)
    scores = (np.where(group > 0, 3.0, 1.0) * np.abs(rng.normal(size=800)))[:, None, None]
    grouping, known = Grouping("kind", (0,)), {"levels": (0.8,), "exact": True}
    (found,) = group_factors([grouping], group[:, None], scores, np.ones((800, 1)), weight=weight, **known)
    whole = rank_factor(scores, (0.8,), weight)
    for kind in (0, 1):
        own = rank_factor(scores[group == kind], (0.8,), weight[group == kind])
        assert_allclose(found.factor[kind], own / whole)


def test_split_covers_a_shifted_law_whose_density_ratio_is_the_weight():
    """Rows are uniform, new ones come in proportion to x: weighted ranks are exact, others too small (Tibshirani)."""
    n, n_new, rng = 4000, 40_000, np.random.default_rng(0)

    def law(x):
        return x[:, None], 0.1 * rng.normal(size=len(x)) * (0.2 + 5 * x**2)

    X, y = law(rng.uniform(size=n))
    X_new, y_new = law(np.sqrt(rng.uniform(size=n_new)))  # with density 2 x
    covered = []
    for weight in (X[:, 0], None):
        around = IntervalAround(LinearRegression(), 0.9, calibration=Split(0.5), random_state=0)
        around.fit(X, y, sample_weight=weight)
        covered.append(around.predict_interval(X_new).contains(y_new).mean())
    # x has a mean of 1/2 and a mean square of 1/3: the 2,000 ranked rows are worth 3/4 of them.
    sd = np.sqrt(0.09 * (1 / (0.75 * n / 2) + 1 / n_new))
    assert abs(covered[0] - 0.9) < 4 * sd
    assert covered[1] < 0.9 - 4 * sd


def test_recalibration_starts_from_the_weights_of_the_fit(tmp_path):
    """Fitted for rows that come in proportion to x, then used where they are uniform again."""
    rng, n = np.random.default_rng(0), 3000

    def law(x):
        return x[:, None], 0.1 * rng.normal(size=len(x)) * (0.2 + 5 * x**2)

    X, y = law(rng.uniform(size=n))
    model = IntervalAround(LinearRegression(), 0.9, calibration=Split(0.5), random_state=0).fit(
        X, y, sample_weight=X[:, 0]
    )
    X_new, y_new = law(rng.uniform(size=n))
    X_tilted, _ = law(np.sqrt(rng.uniform(size=n)))
    before = model.predict_interval(X_new)
    assert before.contains(y_new).mean() > 0.93
    save(model, tmp_path / "model.safetensors")
    assert not load(tmp_path / "model.safetensors").recalibrate(X_tilted).recalibration_.changed  # they are as weighted
    assert_array_equal(model.recalibrate(X_tilted).predict_interval(X_new).upper, before.upper)
    found = model.recalibrate(X_new)
    assert found.recalibration_.changed
    assert abs(found.predict_interval(X_new).contains(y_new).mean() - 0.9) < 0.02


# In a fit.


@pytest.mark.parametrize("calibration", ["local", "cross", "split", None])
def test_equal_weights_are_no_weights_to_the_bit(calibration):
    model = MatchedRegressor(0.8, calibration=calibration, **SHORT).fit(X, y)
    for weight in (np.ones(N), [3] * N):
        weighted = MatchedRegressor(0.8, calibration=calibration, **SHORT).fit(X, y, sample_weight=weight)
        assert_same(model, weighted)
        assert vars(weighted).keys() == vars(model).keys()


def opposed(n, seed):
    """Two kinds of rows, which inputs do not tell apart, with targets of 2 and -2."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.5
    return rng.normal(size=(n, 2)), np.where(kind, 2.0, -2.0) + 0.5 * rng.normal(size=n), kind


LONGER = SHORT | {"schedule": Schedule(max_rounds=1, mean_epochs=60, interval_epochs=60, learning_rate=0.01)}


def test_a_row_that_weighs_three_counts_like_three_rows():
    X, y, kind = opposed(300, 0)
    weight, times = np.where(kind, 3.0, 1.0), np.where(kind, 3, 1)
    X_new, y_new, new_kind = opposed(6000, 1)
    law = np.where(new_kind, 3.0, 1.0) / np.mean(np.where(new_kind, 3.0, 1.0))
    rmse, coverage, width = [], [], []
    for companions in ((), ("forest",)):
        weighted, twin = (MatchedRegressor(0.8, companions=companions, **LONGER) for _ in range(2))
        weighted.fit(X, y, sample_weight=weight)
        twin.fit(X.repeat(times, axis=0), y.repeat(times))
        for one in (weighted, twin):
            interval = one.predict_interval(X_new)
            rmse.append(np.sqrt(np.mean(law * (y_new - one.predict(X_new)) ** 2)))
            coverage.append(np.mean(law * interval.contains(y_new)))
            width.append(interval.width.mean())
        # 3/4 of the weight is at 2, the rest at -2: a mean of 1 instead of 0, and a standard deviation of 1.73.
        assert abs(weighted.predict(X_new).mean() - 1.0) < 4 * 1.73 / np.sqrt(effective_rows(weight))
    sd = np.sqrt(0.16 / effective_rows(weight))
    assert np.abs(np.array(coverage) - 0.8).max() < 4 * sd
    assert_allclose(rmse[::2], rmse[1::2], rtol=0.08)
    assert_allclose(width[::2], width[1::2], rtol=0.15)


def test_a_baseline_learns_from_the_rows_that_count():
    X, y, kind = opposed(300, 0)
    settings = {"network": MLP(hidden=8, layers=2, bins=0), "max_epochs": 40, "learning_rate": 0.01, "random_state": 0}
    model = HeteroscedasticRegressor(0.8, **settings)
    assert model.fit(X, y, sample_weight=np.where(kind, 1.0, 0.0)).predict(X).mean() > 1.5
    assert abs(model.fit(X, y).predict(X).mean()) < 0.5


def test_rows_of_weight_zero_have_no_out_of_fold_prediction_and_splitters_see_all_rows():
    blocks = PredefinedSplit(np.arange(N) // 2 % 3)
    model = MatchedRegressor((0.5, 0.8), **SHORT | {"folds": blocks}, companions=("forest", Ridge()), hold_for=0)
    banded = np.column_stack([X[:, 0] > 0, X[:, 1:]])
    model.fit(banded, np.column_stack([y, -y]), sample_weight=WEIGHT)
    assert_array_equal(np.isnan(model.out_of_fold_.prediction[:, 0]), WEIGHT == 0)
    assert model.n_effective_ == pytest.approx(WEIGHT.sum() ** 2 / (WEIGHT**2).sum())
    assert model.n_ranked_ == int(model.n_effective_)
    joint = model.predict_interval(banded, 0.5, joint=True)
    assert (joint.width > 0).all()


def test_literal_training_takes_weights():
    X, y, kind = opposed(200, 0)
    model = MatchedRegressor(0.8, companions=(), **LONGER | {"folds": None, "calibration": None})
    model.fit(X, y, sample_weight=np.where(kind, 1.0, 0.0))
    assert model.out_of_fold_ is None
    assert model.predict(X).mean() > 1.5


def test_another_fit_with_weights_continues_a_warm_start_and_bad_weights_leave_it_as_it_is():
    model = MatchedRegressor(0.8, warm_start=True, **SHORT).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="sample_weight must lie in"):
        model.fit(X, y, sample_weight=-WEIGHT)
    assert_array_equal(model.predict(X), before)
    model.fit(X, y, sample_weight=WEIGHT)
    assert (model.predict(X) != before).any()


def test_rows_that_come_again_have_the_targets_of_those_that_count():
    table = np.repeat(np.arange(40.0), 3)[:, None]
    targets, weight = np.repeat(np.arange(40.0), 3)[:, None], np.tile([1.0, 2.0, 0.0], 40)
    targets[2::3] = 99.0  # in rows that do not count
    known = Copies.of(table, targets, Scaling.of(table), (0.5, 0.9), weight)
    assert_allclose(known(torch.from_numpy(table))[1][:, 0], np.repeat(np.arange(40.0), 3))
    assert Copies.of(table, targets, Scaling.of(table), (0.5, 0.9)) is None


def test_models_that_are_fitted_together_may_have_weights_of_their_own():
    models = [MatchedRegressor(0.8, companions=(), **SHORT) for _ in range(2)]
    fit_together(models, [(X, y, None), (X[:120], y[:120], None, WEIGHT[:120])])
    assert not hasattr(models[0], "n_effective_")
    assert models[1].n_effective_ == pytest.approx(effective_rows(WEIGHT[:120]))


BAD = [
    (np.where(np.arange(N) == 7, -1.0, 1.0), r"must lie in \[0, 1e\+150\], got -1 in row 7 \(counted from 0\)"),
    (np.where(np.arange(N) == 7, np.nan, 1.0), "got nan in row 7"),
    (np.full(N, np.inf), "got inf in row 0"),
    (np.full(N, 1e160), r"got 1e\+160 in row 0"),
    (np.zeros(N), "above zero for some rows, got zero for all"),
    (np.ones(N - 1), rf"one number per row, got the shape \({N - 1},\) for {N} rows"),
    (np.ones((N, 1)), rf"one number per row, got the shape \({N}, 1\)"),
    (2.0, r"one number per row, got the shape \(\)"),
    ("w", r"one number per row, got the shape \(\)"),
    (["2"] * N, "must hold numbers, got '2'"),
    ([None, *[1.0] * (N - 1)], "must hold numbers, got None"),
]


@pytest.mark.parametrize(("weight", "message"), BAD)
def test_bad_weights_are_refused_in_one_line(weight, message):
    for model in (MatchedRegressor(0.8, **SHORT), IntervalAround(Ridge(), random_state=0)):
        before = model.get_params()
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(X, y, sample_weight=weight)
        assert "\n" not in str(caught.value)
        assert model.get_params() == before
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_weights_in_other_containers_are_the_same_weights():
    model = IntervalAround(Ridge(), 0.8, random_state=0).fit(X, y, sample_weight=WEIGHT)
    for weight in (WEIGHT.astype(int).tolist(), pl.Series(WEIGHT), WEIGHT.astype(object)):
        assert_same(model, IntervalAround(Ridge(), 0.8, random_state=0).fit(X, y, sample_weight=weight))


def test_cv_plus_refuses_weights_in_one_line():
    line = "calibration='cv\\+' ranks all rows alike: give 'local', 'cross' or 'split' with sample_weight"
    with pytest.raises(ValueError, match=f"^{line}$"):
        MatchedRegressor(0.8, calibration="cv+", **SHORT).fit(X, y, sample_weight=WEIGHT)


# Users' regressors.


class Recorder(RegressorMixin, BaseEstimator):
    """Notes the weights that it was fitted with."""

    def __init__(self, noted=None):
        self.noted = noted

    def fit(self, X, y, sample_weight=None):
        self.weight_ = sample_weight
        return self

    def predict(self, X):
        return np.full(len(X), 0.0 if self.weight_ is None else self.weight_.sum())


def test_a_regressor_is_fitted_with_the_weights_of_its_rows_and_never_on_rows_of_weight_zero():
    around = IntervalAround(Recorder(), 0.8, random_state=0).fit(X, y, sample_weight=WEIGHT)
    (whole,) = around.estimators_
    assert_array_equal(whole.weight_, WEIGHT[WEIGHT > 0])
    found = around.out_of_fold_.prediction[:, 0]
    assert (np.unique(found[WEIGHT > 0]) < WEIGHT.sum()).all()  # each predicted by a copy that has not seen it


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Ridge())),
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}, cv=2),
        TransformedTargetRegressor(Ridge()),
    ],
    ids=["itself", "pipeline", "search", "transformed"],
)
def test_intervals_lie_around_the_regressor_that_was_fitted_with_the_weights(estimator):
    around = IntervalAround(estimator, 0.8, random_state=0).fit(X, y, sample_weight=WEIGHT)
    own, counts = {name_of_weight(estimator): WEIGHT[WEIGHT > 0]}, WEIGHT > 0
    assert_allclose(around.predict(X), estimator.fit(X[counts], y[counts], **own).predict(X))


def test_a_regressor_that_is_frozen_stays_as_it_is():
    frozen = FrozenEstimator(KNeighborsRegressor().fit(*draw(50, 9)))
    around = IntervalAround(frozen, 0.8, random_state=0).fit(X, y, sample_weight=WEIGHT)
    assert_array_equal(around.predict(X), frozen.predict(X))


def test_a_regressor_that_takes_no_weights_is_named():
    neighbours = KNeighborsRegressor()
    for one in (neighbours, make_pipeline(StandardScaler(), neighbours), Pipeline([("a", "passthrough")])):
        assert name_of_weight(one) is None
    line = r"^sample_weight needs a fit that takes it, and the {} KNeighborsRegressor\(\) has none; {}$"
    with pytest.raises(ValueError, match=line.format("estimator", "mend it or give another")):
        IntervalAround(KNeighborsRegressor()).fit(X, y, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match=line.format("companion", "leave it out or mend it")):
        MatchedRegressor(companions=(KNeighborsRegressor(),), **SHORT).fit(X, y, sample_weight=WEIGHT)


def test_pipelines_pass_weights_on():
    alone = IntervalAround(Ridge(), 0.8, random_state=0).fit(StandardScaler().fit_transform(X), y, sample_weight=WEIGHT)
    steps = [("scaler", StandardScaler()), ("model", IntervalAround(Ridge(), 0.8, random_state=0))]
    pipeline = Pipeline(steps).fit(X, y, model__sample_weight=WEIGHT)
    assert_same(pipeline[-1], alone)
    assert pipeline.score(X, y, sample_weight=WEIGHT) != pipeline.score(X, y)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        model = IntervalAround(Ridge(), 0.8, random_state=0).set_fit_request(sample_weight=True)
        routed = Pipeline([("scaler", scaler), ("model", model)]).fit(X, y, sample_weight=WEIGHT)
    assert_same(routed[-1], alone)


# Files.


def test_files_keep_what_the_rows_are_worth(tmp_path):
    model = MatchedRegressor(0.8, **SHORT).fit(X, y, sample_weight=WEIGHT)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert_same(model, again)
    worth = f"rows are worth {effective_rows(WEIGHT):.1f} of {N}"
    assert ModelDescription(again).weights == worth
    assert ModelDescription(again).n_ranked == int(effective_rows(WEIGHT))
    assert ("weights", worth) in source_rows(Source(), ModelDescription(again))
    plain = ModelDescription(MatchedRegressor(0.8, **SHORT).fit(X, y))
    assert (plain.weights, plain.n_ranked) == ("", N)


# Streams.


def table_of(folder, X, y, weight):
    folder.mkdir()
    frame = pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(y=pl.Series(y), w=pl.Series(weight))
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame[rows].write_parquet(folder / f"{number}.parquet")
    return TableFiles(folder)


@pytest.mark.parametrize("calibration", ["local", "cross", "split"])
def test_a_streamed_fit_takes_a_column_of_weights(tmp_path, calibration):
    X, y, kind = opposed(900, 0)
    files = table_of(tmp_path / "rows", np.column_stack([X, X[:, 0]]), y, np.where(kind, 3, np.arange(900) % 2))
    model = MatchedRegressor(0.8, calibration=calibration, **LONGER).fit(files, "y", sample_weight="w")
    weight = np.where(kind, 3.0, np.arange(900) % 2)
    assert model.n_effective_ == pytest.approx(effective_rows(weight))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    # 6/7 of the weight is at 2, the rest at -2: a mean of 1.43, from 450 rows and a standard deviation of 1.4.
    assert abs(model.predict(files).mean() - 10 / 7) < 0.4
    assert (weight[model.out_of_fold_rows_] > 0).all()
    inside = model.predict_interval(files).contains(y)
    assert abs(np.average(inside, weights=weight) - 0.8) < 4 * np.sqrt(0.16 / model.n_ranked_)


@given(scores=arrays(float, 60, elements=floats(1e-3, 1e3)), level=floats(0.1, 0.8), seed=integers(0, 99))
def test_a_sketch_ranks_by_weight_as_exact_ranks_do(scores, level, seed):
    weight = np.random.default_rng(seed).uniform(0.5, 1.5, size=60)
    sketch = ScoreSketch(np.ones((1, 1)), weighted=True)
    for part in (slice(0, 25), slice(25, 60)):
        sketch.add(scores[part, None, None], weight[part])
    exact = rank_factor(scores[:, None, None], (level,), weight)
    ratio = sketch.factor((level,))[0] / exact[0]
    assert 1 <= ratio <= 1 + 1.000001 * RELATIVE_ERROR


def test_bad_weights_in_files_are_refused(tmp_path):
    X, y = draw(600)
    model = MatchedRegressor(0.8, **SHORT)
    for number, (weight, error, message) in enumerate(
        [
            (
                np.where(np.arange(600) == 350, -2.0, 1.0),
                TableFileError,
                r"in \[0, 1e\+150\], got -2 in row 51 of .*1\.par",
            ),
            ([None, *[1.0] * 599], TableFileError, "got nan in row 1 of"),
            (["a"] * 600, TableFileError, "the weights 'w' must hold numbers, got String"),
            (np.zeros(600), ValueError, "above zero for some rows"),
        ]
    ):
        files = table_of(tmp_path / str(number), X, y, weight)
        with pytest.raises(error, match=message):
            model.fit(files, "y", sample_weight="w")
    with pytest.raises(ValueError, match="another column than the targets, got 'y'"):
        model.fit(files, "y", sample_weight="y")
    with pytest.raises(TableFileError, match="no column of weights v"):
        model.fit(files, "y", sample_weight="v")
    with pytest.raises(TypeError, match="must name a column, got a ndarray"):
        check_fit(model, files, "y", groups=None, buffer_rows=600, sample_weight=np.ones(600))
