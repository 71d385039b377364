"""Forests as arrays send every row where scikit-learn does, and their leaf tables are what a loop over trees gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats, integers
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from coverwell import trees as trees_file
from coverwell.model_file import _Reader, _Writer
from coverwell.trees import Nodes, Trees, grow, joined, leaf_distribution, leaf_means, out_of_bag, quantile_of
from tests.exported import onnx_outputs


def table_of(n, n_features=6, *, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    X[rng.random(X.shape) < missing] = np.nan
    return X, y


def grown(X, y, **changes):
    settings = {"n_trees": 20, "min_leaf": 3, "max_features": 0.5, "max_rows": 10_000, "random_state": 0}
    return grow(X, y, **{**settings, **changes})


def stumps(threshold):
    """Two trees: one splits feature 0 and sends missing values left, the other is a leaf."""
    split = Nodes(*map(np.array, ([1, -1, -1], [2, -1, -1], [0, -2, -2], [threshold, -2, -2], [1, 0, 0])), VALUES)
    leaf = Nodes(*map(np.array, ([-1], [-1], [-2], [-2.0], [0])), np.array([[10.0]]))
    return split, leaf


VALUES = np.array([[0.0], [1.0], [3.0]])


def test_a_forest_of_two_trees_worked_out_by_hand():
    x = torch.tensor([[-1.0], [0.5], [0.51], [torch.nan]])
    for mean, expected in ((True, [5.5, 5.5, 6.5, 5.5]), (False, [11.0, 11.0, 13.0, 11.0])):
        trees = joined(stumps(0.5), 1, precision=np.float32, mean=mean)
        assert trees(x)[:, 0].tolist() == expected
        assert trees.depth == 1


@given(floats(-1e300, 1e300), integers(-2, 2))
def test_rows_beside_a_threshold_go_where_scikit_learn_sends_them(threshold, steps):
    trees = joined(stumps(threshold)[:1], 1, precision=np.float32, mean=True)
    with np.errstate(over="ignore"):
        value = np.float32(threshold)
        for _ in range(abs(steps)):
            value = np.nextafter(value, np.float32(np.copysign(np.inf, steps)))
    found = trees(torch.tensor([[value]]))
    assert found.item() == (1.0 if float(value) <= threshold else 3.0)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_leaves_are_those_of_scikit_learn(missing):
    X, y = table_of(800, missing=missing)
    forest = RandomForestRegressor(12, min_samples_leaf=2, max_features=0.5, random_state=0).fit(X, y)
    trees = joined([Nodes.of(tree.tree_) for tree in forest.estimators_], 6, precision=np.float32, mean=True)
    rows, _ = table_of(3000, missing=missing, seed=1)
    own, theirs = trees.leaves(torch.from_numpy(rows)).numpy(), forest.apply(rows)
    assert own.shape == theirs.shape
    for place in range(theirs.shape[1]):
        pairs = np.unique(np.stack([own[:, place], theirs[:, place]]), axis=1)
        assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
    assert trees.depth == max(tree.tree_.max_depth for tree in forest.estimators_) > trees_file.LEVELS_TOGETHER


def test_few_rows_at_a_time_change_nothing(monkeypatch):
    X, y = table_of(500)
    trees, in_bag = grown(X, y)
    whole, kept = trees(torch.from_numpy(X)), out_of_bag(trees, trees.table.numpy(), X, in_bag)
    monkeypatch.setattr(trees_file, "PAIRS_AT_A_TIME", 20 * 37)
    assert torch.equal(trees(torch.from_numpy(X)), whole)
    assert trees(torch.from_numpy(X[:0])).shape == (0, 1)
    for found, expected in zip(out_of_bag(trees, trees.table.numpy(), X, in_bag), kept, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(leaf_means(trees, X, y[:, None], in_bag), trees.table.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_gpu_gives_the_same():
    X, y = table_of(3000, missing=0.1)
    trees, _ = grown(X, y)
    own, leaves = trees(torch.from_numpy(X)), trees.leaves(torch.from_numpy(X))
    there, rows = trees.cuda(), torch.from_numpy(X).cuda()
    assert torch.equal(there.leaves(rows).cpu(), leaves)
    torch.testing.assert_close(there(rows).cpu(), own)


def test_every_tree_sees_the_asked_share_of_whole_units():
    X, y = table_of(400)
    units = np.random.default_rng(0).integers(0, 50, len(X))
    _, in_bag = grown(X, y, units=units)
    for seen in in_bag:
        assert len(np.unique(units[seen])) == round(0.632 * 50)
        assert not np.isin(units[~seen], units[seen]).any()
    assert (grown(X, y)[1].sum(axis=1) == round(0.632 * 400)).all()
    assert (grown(X, y, max_rows=100)[1].sum(axis=1) == 100).all()
    in_bag = grown(X, y, units=units, max_rows=100)[1]
    assert (in_bag.sum(axis=1) <= 100).all()
    assert (in_bag.sum(axis=1) > 70).all()
    assert grown(X, y, units=np.zeros(400))[1].all()


def test_a_seed_decides_the_forest():
    X, y = table_of(200)
    first, again, other = (grown(X, y, random_state=seed) for seed in (1, 1, 2))
    for own, same in zip(first[0].buffers(), again[0].buffers(), strict=True):
        np.testing.assert_array_equal(own, same)
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


def test_a_forest_is_as_accurate_as_that_of_scikit_learn():
    (X, y), (rows, truth) = (make_friedman1(3000, noise=1.0, random_state=seed) for seed in (0, 1))
    own = grown(X, y, n_trees=100)[0](torch.from_numpy(rows))[:, 0].numpy()
    forest = RandomForestRegressor(100, min_samples_leaf=3, max_features=0.5, random_state=0).fit(X, y)
    ours, theirs = (np.mean((prediction - truth) ** 2) for prediction in (own, forest.predict(rows)))
    assert abs(ours / theirs - 1) < 0.05


def test_leaf_tables_are_those_of_a_loop_over_trees():
    X, y = table_of(150)
    targets, knots = np.stack([y, y**2], axis=1), np.quantile(y, [0.1, 0.5, 0.9])
    trees, in_bag = grown(X, targets, n_trees=6)
    means, shares = leaf_means(trees, X, targets, in_bag), leaf_distribution(trees, X, y, in_bag, knots)
    leaves = trees.leaves(torch.from_numpy(X)).numpy()
    assert len(means) == len(shares) == sum(len(np.unique(leaves[:, tree])) for tree in range(6))
    for tree in range(6):
        for leaf in np.unique(leaves[:, tree]):
            rows = (leaves[:, tree] == leaf) & in_bag[tree]
            assert rows.sum() >= 3
            np.testing.assert_allclose(means[leaf], targets[rows].mean(axis=0))
            np.testing.assert_allclose(shares[leaf], [(y[rows] <= knot).mean() for knot in knots], rtol=1e-6)


def test_out_of_bag_rows_are_averaged_over_the_trees_that_have_not_seen_them():
    X, y = table_of(80)
    trees, in_bag = grown(X, y, n_trees=4)
    table = np.random.default_rng(0).random((len(trees.table), 3))
    values, n_trees = out_of_bag(trees, table, X, in_bag)
    leaves = trees.leaves(torch.from_numpy(X)).numpy()
    np.testing.assert_array_equal(n_trees, 4 - in_bag.sum(axis=0))
    assert (n_trees == 0).any()
    for row in range(len(X)):
        if n_trees[row]:
            np.testing.assert_allclose(values[row], table[leaves[row, ~in_bag[:, row]]].mean(axis=0))
        else:
            assert np.isnan(values[row]).all()


def test_averaged_leaf_distributions_tell_the_spread_of_each_row():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (4000, 2))
    z = rng.normal(size=4000) * np.where(X[:, 0] < 0.5, 1.0, 3.0)
    knots = np.quantile(z, np.linspace(0.005, 0.995, 60))
    trees, in_bag = grown(X, z, n_trees=60, min_leaf=20)
    cdf, _ = out_of_bag(trees, leaf_distribution(trees, X, z, in_bag, knots), X, in_bag)
    bounds = quantile_of(torch.from_numpy(cdf), torch.from_numpy(knots).float(), torch.tensor([0.1, 0.9])).numpy()
    inside = (z >= bounds[:, 0]) & (z <= bounds[:, 1])
    for part in (X[:, 0] < 0.5, X[:, 0] >= 0.5):
        assert abs(inside[part].mean() - 0.8) < 0.05  # 4 standard errors of 2,000 rows are .036


@given(arrays(float, 9, elements=floats(0, 1)), floats(0.001, 0.999))
def test_quantiles_invert_the_distribution_function(steps, share):
    cdf = np.append(np.sort(steps), 1.0) + 1e-3 * np.arange(10)
    cdf, knots = cdf / cdf[-1], np.arange(10.0) ** 2
    found = quantile_of(torch.tensor(cdf[None]), torch.tensor(knots), torch.tensor([share], dtype=torch.float64))
    assert found.item() == pytest.approx(np.interp(share, cdf, knots), abs=1e-9)


def test_quantiles_of_jumps_and_beyond_the_knots_are_knots():
    cdf, knots = torch.tensor([[0.2, 0.2, 0.9], [torch.nan] * 3]), torch.tensor([-1.0, 0.0, 5.0])
    found = quantile_of(cdf, knots, torch.tensor([0.1, 0.2, 0.55, 0.95]))
    assert found[0].tolist() == pytest.approx([-1.0, -1.0, 2.5, 5.0])
    assert found[1].isnan().all()


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_onnx_gives_the_same_quantiles(missing):
    X, y = table_of(300, missing=missing)
    trees, in_bag = grown(X, y)
    knots = np.quantile(y, np.linspace(0.01, 0.99, 40))
    forest = trees.with_table(leaf_distribution(trees, X, y, in_bag, knots))

    class Graph(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.forest, self.means, self.knots = forest, trees, torch.nn.Buffer(torch.tensor(knots).float())

        def forward(self, x):
            return quantile_of(self.forest(x), self.knots, torch.tensor([0.05, 0.5, 0.95])), self.means(x)

    rows, _ = table_of(77, missing=missing, seed=1)
    expected = Graph()(torch.from_numpy(rows))
    for found, own in zip(onnx_outputs(Graph(), rows), expected, strict=True):
        np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_onnx_walks_trees_of_one_leaf_and_missing_values(precision):
    trees = joined([*stumps(0.5), *stumps(-np.inf)], 1, precision=precision, mean=False)
    rows = np.array([[-1.0], [0.5], [0.51], [np.nan]])
    (found,) = onnx_outputs(trees, rows)
    assert found[:, 0].tolist() == trees(torch.from_numpy(rows))[:, 0].tolist() == [24.0, 24.0, 26.0, 22.0]


def test_model_files_hold_forests():
    X, y = table_of(200, missing=0.1)
    trees, _ = grown(X, y)
    writer = _Writer()
    stored = writer.value(trees, "forest")
    again = _Reader("", writer.arrays, {}).value(stored)
    assert torch.equal(again(torch.from_numpy(X)), trees(torch.from_numpy(X)))


@pytest.mark.parametrize(
    "forge",
    [
        lambda arrays: arrays["child"].__setitem__(0, 0),  # a root that splits no more: its children are lost
        lambda arrays: arrays["child"].__setitem__(-1, 0),  # a way back to the root
        lambda arrays: arrays["child"].__setitem__(0, 10**6),
        lambda arrays: arrays["feature"].__setitem__(0, 99),
        lambda arrays: arrays["feature"].__setitem__(0, -1),
        lambda arrays: arrays.__setitem__("table", arrays["table"][1:]),
        lambda arrays: arrays.__setitem__("table", arrays["table"][:, 0, None, None]),
        lambda arrays: arrays.__setitem__("threshold", arrays["threshold"][1:]),
        lambda arrays: arrays.__setitem__("n_trees", 19),
        lambda arrays: arrays.__setitem__("n_trees", -1),
    ],
)
def test_arrays_that_are_no_trees_are_refused(forge):
    X, y = table_of(200)
    trees, _ = grown(X, y)
    arrays = {name: getattr(trees, name).numpy().copy() for name in ("feature", "threshold", "child", "table")}
    arrays |= {"n_trees": 20, "n_features": 6}
    assert isinstance(Trees(**arrays), Trees)
    forge(arrays)
    with pytest.raises(ValueError, match="do not form such trees"):
        Trees(**arrays)


def test_rows_of_another_width_are_refused():
    X, y = table_of(50)
    with pytest.raises(ValueError, match="6 features as in the fit, got 5"):
        grown(X, y)[0](torch.zeros(3, 5))


def test_deep_chains_are_walked_to_their_end():
    X = np.arange(300.0)[:, None]
    tree = DecisionTreeRegressor().fit(X, 2.0 ** np.arange(300.0))
    trees = joined([Nodes.of(tree.tree_)], 1, precision=np.float32, mean=True)
    assert trees.depth > 100
    np.testing.assert_array_equal(trees(torch.from_numpy(X))[:, 0].numpy(), tree.predict(X))
