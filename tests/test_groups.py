"""Coverage within groups: ranks of their own, drawn towards all rows, in files, exports and the command line."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import data, floats, integers, lists
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coverwell import MLP, IntervalAround, MatchedRegressor, Schedule, load, save
from coverwell.calibration import Split, rank_factor
from coverwell.description import ModelDescription
from coverwell.errors import ColumnWarning
from coverwell.groups import (
    FEWEST_ROWS,
    TRUSTS,
    GroupFactors,
    Grouping,
    best_trust,
    group_factors,
    left_out_bounds,
    sum_of_others,
)
from coverwell.onnx import to_onnx

SHORT = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 3, "random_state": 0, "companions": ()}
SHORT |= {"schedule": Schedule(max_rounds=1, mean_epochs=3, interval_epochs=3)}


def test_quantiles_are_scores_at_their_ranks():
    # 5 ranks of 4 scores: .5 is at rank 2.5, hence the third; .99 has none, and the largest stands for it.
    scores = np.repeat(np.array([4.0, 1.0, 3.0, 2.0])[:, None, None], 4, axis=2)
    assert_array_equal(rank_factor(scores, (0.2, 0.5, 0.8, 0.99), or_largest=True), [[1.0, 3.0, 4.0, 4.0]])


@given(own=lists(floats(0, 10), min_size=3, max_size=30, unique=True), level=floats(0.05, 0.95), data=data())
def test_bounds_of_rows_that_are_left_out_are_quantiles_of_the_others(own, level, data):
    scores, whole = np.array(own), integers(1, 9)
    weights = np.ones(len(own)), np.array(data.draw(lists(whole, min_size=len(own), max_size=len(own))), dtype=float)
    for weight in weights:
        others = [(np.delete(scores, place)[:, None, None], np.delete(weight, place)) for place in range(len(own))]
        expected = [rank_factor(one, (level,), mine, or_largest=True)[0, 0] for one, mine in others]
        assert_array_equal(left_out_bounds(scores, level, weight), expected)


def test_a_heavy_row_does_not_drown_the_others():
    assert_array_equal(sum_of_others(np.array([1e30, 1.0, 2.0])), [3.0, 1e30, 1e30])
    bounds = left_out_bounds(np.array([3.0, 1.0, 2.0, 4.0]), 0.5, np.array([1e15, 1.0, 1.0, 1.0]))
    assert_array_equal(bounds, [2.0, 3.0, 3.0, 3.0])


def test_groups_that_differ_are_trusted_and_groups_that_do_not_less():
    rng, levels, whole = np.random.default_rng(0), (0.5, 0.9), np.array([0.674, 1.645])
    alike = [np.repeat(np.abs(rng.normal(size=(8, 1))), 2, axis=1) for _ in range(30)]
    ones = np.ones(8)
    assert best_trust([(scores, ones, ones) for scores in alike], whole, levels) <= 0.5
    assert best_trust([(4 * scores, ones, ones) for scores in alike], whole, levels) == 1
    # Groups that count for next to nothing have no say.
    both = [(4 * scores, ones, 1e-6 * ones) for scores in alike] + [(scores, ones, ones) for scores in alike]
    assert best_trust(both, whole, levels) == best_trust(both[30:], whole, levels)
    assert (min(TRUSTS), max(TRUSTS)) == (0, 1)


def scores_of_groups(rng, sizes, scales):
    """Rows whose first column is their group, and their scores at two levels."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    X = np.column_stack([group, rng.normal(size=len(group))]).astype(float)
    return X, np.repeat((np.array(scales)[group] * np.abs(rng.normal(size=len(group))))[:, None, None], 2, axis=2)


def test_factors_of_large_groups_are_their_own_ranks_over_those_of_all_rows():
    rng, levels = np.random.default_rng(0), (0.5, 0.9)
    X, scores = scores_of_groups(rng, [900, 900, 2], [1.0, 3.0, 50.0])
    grouping, size = Grouping("kind", (0,)), np.ones((len(X), 1))
    (factors,) = group_factors([grouping], X, scores, size, levels, exact=True)
    whole = [np.sort(scores[:, 0, k])[int(np.ceil(1803 * level)) - 1] for k, level in enumerate(levels)]
    for group in (0, 1):
        own = np.sort(scores[X[:, 0] == group, 0, 0])
        ranks = [own[int(np.ceil(901 * level)) - 1] for level in levels]
        assert_allclose(factors.factor[group, 0], np.array(ranks) / whole)
    assert_array_equal(factors.factor[2], 1.0)  # two rows are too few for ranks of their own
    assert factors.n_rows.tolist() == [900, 900, 2]
    rows = torch.tensor([[0.0, 9.0], [1.0, 9.0], [2.0, 9.0], [7.0, 9.0]], dtype=torch.float64)
    assert factors.group_of(rows).tolist() == [0, 1, 2, 2]  # the last: of no known group
    assert_array_equal(factors(rows)[:, 0, 0], factors.factor[[0, 1, 2, 2], 0])
    assert_array_equal(factors.at((0.9,)).factor, factors.factor[..., 1:])


def test_groupings_that_overlap_hold_together():
    rng, n_rows, levels = np.random.default_rng(0), 8000, (0.9,)
    X = rng.integers(2, size=(n_rows, 2)).astype(float)
    scale = np.where(X[:, 0] > 0, 3.0, 1.0) * np.where(X[:, 1] > 0, 2.0, 1.0)
    scores = (scale * np.abs(rng.normal(size=n_rows)))[:, None, None]
    both = [Grouping("a", (0,)), Grouping("b", (1,))]
    found = group_factors(both, X, scores, np.ones((n_rows, 1)), levels, exact=True)
    product = np.prod([factors(torch.from_numpy(X)).numpy()[:, 0, 0, 0] for factors in found], axis=0)
    whole = np.sort(scores[:, 0, 0])[int(np.ceil((n_rows + 1) * 0.9)) - 1]
    covered = scores[:, 0, 0] <= whole * product
    for column in X.T:
        for value in (0, 1):
            assert abs(covered[column == value].mean() - 0.9) < 4 * np.sqrt(0.09 / (n_rows / 2))


def test_one_group_or_none_changes_nothing():
    X, scores = scores_of_groups(np.random.default_rng(0), [50], [1.0])
    assert group_factors([Grouping("kind", (0,))], X, scores, np.ones((50, 1)), (0.5, 0.9), exact=False) == []
    assert group_factors([], X, scores, np.ones((50, 1)), (0.5, 0.9), exact=False) == []


def test_factors_that_do_not_fit_their_groups_are_refused():
    places, keys, n_rows = np.array([0]), np.zeros((2, 1)), np.array([5, 5, 0])
    for factor, rows in ((np.ones((2, 1, 1)), n_rows), (np.ones((3, 1, 2)), n_rows), (np.ones((3, 1, 1)), n_rows[:2])):
        with pytest.raises(ValueError, match="2 groups by 1 columns must have"):
            GroupFactors("kind", places, keys, factor, rows, (0.9,))


# In a fit.


def draw(n_rows, seed):
    """Three districts, the last noisy; a column with gaps, without which a row is hardly known."""
    rng = np.random.default_rng(seed)
    district = rng.choice(["hill", "north", "port"], size=n_rows, p=[0.5, 0.3, 0.2])
    a, b = rng.normal(size=(2, n_rows))
    y = 2 * a + b + np.where(district == "port", 2.0, 0.4) * rng.normal(size=n_rows)
    return pd.DataFrame({"district": district, "a": np.where(rng.random(n_rows) < 0.1, np.nan, a), "b": b}), y


@pytest.fixture(scope="module")
def fitted():
    X, y = draw(600, 0)
    return MatchedRegressor((0.8, 0.9), hold_for="district", **SHORT).fit(X, y)


def coverage_by(model, by, n_rows=6000):
    X, y = draw(n_rows, 1)
    lower, upper = model.predict_interval(X, coverage=0.9)
    return pd.Series((lower <= y) & (y <= upper)).groupby(by(X).to_numpy()).mean()


def test_coverage_holds_in_every_district_and_with_and_without_gaps(fitted):
    # The smallest group has 60 rows: its ranks' coverage has a standard deviation of sqrt(.09 / 60) = .039.
    for by in (lambda X: X["district"], lambda X: X["a"].isna()):
        found = coverage_by(fitted, by)
        assert (found - 0.9).abs().max() < 3 * 0.039
    X, y = draw(600, 0)
    apart = MatchedRegressor(0.9, calibration="cross", **SHORT).fit(X.drop(columns="a").fillna(0.0), y)
    assert coverage_by(apart, lambda X: X["district"])["port"] < 0.9 - 2 * 0.039  # what it would be without


def test_split_ranks_hold_too_and_any_regressor_can_have_them():
    X, y = draw(1500, 0)
    model = MatchedRegressor(0.9, hold_for=["district"], **SHORT | {"calibration": Split(0.4)}).fit(X, y)
    around = IntervalAround(LinearRegression(), hold_for=0, calibration="cross", random_state=0)
    noisy = np.column_stack([X["district"] == "port", X["b"]]).astype(float)
    around.fit(noisy, y)
    # 600 rows are ranked, 120 of them in the smallest district.
    assert (coverage_by(model, lambda X: X["district"]) - 0.9).abs().max() < 3.5 * np.sqrt(0.09 / 120)
    (factors,) = around.predictor_.fitted_teams[0].group_factors
    assert factors.factor[1].min() > factors.factor[0].max()


def test_files_and_pickles_keep_the_groups(fitted, tmp_path):
    X, _ = draw(50, 2)
    path = tmp_path / "model.safetensors"
    save(fitted, path)
    for end, same in zip(fitted.predict_interval(X), load(path).predict_interval(X), strict=True):
        assert_array_equal(end, same)
    held = ModelDescription(load(path)).held_groups
    assert list(held) == ["missing values", "district"]
    assert sum(held["district"]) == 600


def test_an_exported_model_has_the_groups(fitted, tmp_path):
    pytest.importorskip("onnxscript")
    to_onnx(fitted, tmp_path / "model.onnx")  # compared with the model before the file is written
    assert (tmp_path / "model.onnx").exists()


def test_rows_of_other_groups_are_named(fitted):
    X, _ = draw(20, 3)
    with (
        pytest.warns(ColumnWarning, match="never seen in training"),
        pytest.warns(
            ColumnWarning, match="20 of 20 rows have a 'district'.* coverage is held for all such rows together"
        ),
    ):
        fitted.predict_interval(X.assign(district="moon"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hold_for": "town"}, "hold_for must name columns of X that vary, such as 'district'"),
        ({"hold_for": "b"}, f"groups of at least {FEWEST_ROWS} rows apart, got 100 groups of at most 1 in 100 rows"),
        ({"hold_for": "district", "calibration": "cv+"}, "hold_for needs a table and ranks"),
        ({"hold_for": "district", "calibration": None}, "hold_for needs a table and ranks"),
    ],
)
def test_groups_that_cannot_be_held_are_refused_before_anything_is_fitted(changes, message):
    X, y = draw(100, 0)
    model = MatchedRegressor(0.9, **SHORT | changes)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "predictor_")


def test_a_pipeline_may_hold_a_place_of_an_array():
    X, y = draw(200, 0)
    numbers = np.column_stack([X["district"] == "port", X["b"]]).astype(float)
    model = MatchedRegressor(0.9, hold_for=0, **SHORT | {"calibration": Split(0.5)})
    model = make_pipeline(StandardScaler(), model).fit(numbers, y)
    assert len(model[-1].predictor_.fitted_teams[0].group_factors) == 1
