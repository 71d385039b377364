"""Coverage within groups: ranks of their own, drawn towards all rows, in files, exports and the command line."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import data, floats, integers, lists
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coverwell import MLP, IntervalAround, MatchedRegressor, Schedule, load, matched, save
from coverwell.calibration import Split, rank_factor
from coverwell.description import ModelDescription
from coverwell.errors import ColumnWarning
from coverwell.groups import (
    FEWEST_COPIES,
    FEWEST_ROWS,
    GAPS,
    MOST_COPIES,
    OWN_RANKS,
    TRUSTS,
    GroupFactors,
    Grouping,
    best_nudge,
    best_trust,
    group_factors,
    left_out_bounds,
    masked_copies,
    own_ranks,
    sum_of_others,
)
from coverwell.inputs.source import TableSource
from coverwell.onnx import to_onnx
from coverwell.report.facts import Source, source_rows
from coverwell.training.rows import Altered

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


def test_ranks_of_few_rows_end_in_proportion_to_those_of_all():
    rng, levels = np.random.default_rng(0), (0.5, 0.8, 0.9)
    scores, own, weight = rng.exponential(size=(400, 1, 3)), np.arange(5), np.ones(400)
    mine, of_all = np.sort(scores[own, 0], axis=0), np.sort(scores[:, 0], axis=0)
    beyond = of_all[360, 2] / of_all[334, 2]  # ranks of .9 and, the most that five rows reach, of 5 / 6: 361 and 335
    expected = [mine[2, 0], mine[4, 1], mine[4, 2] * beyond]
    assert_allclose(own_ranks(scores, own, weight, levels)[0], expected)


@pytest.mark.parametrize("exact", [False, True])
def test_a_small_noisy_group_is_covered_about_as_often_as_asked(exact):
    # Seven rows have no rank at .9. Without a factor of its own, the group is covered less than half of the time.
    sizes, scales = [7, *[40] * 10], [4.0, *np.geomspace(0.5, 2.0, 10)]
    covered = []
    for seed in range(200):
        X, scores = scores_of_groups(np.random.default_rng(seed), sizes, scales)
        size = np.ones((len(X), 1))
        (factors,) = group_factors([Grouping("kind", (0,))], X, scores[..., :1], size, (0.9,), exact=exact)
        bound = rank_factor(scores[..., :1], (0.9,)) * factors.factor[0].numpy()
        covered.append(2 * norm.cdf(bound.item() / scales[0]) - 1)
    assert np.mean(covered) == pytest.approx(0.9, abs=0.03)


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


# Altered copies.


def with_gaps(n_rows, **shares):
    """Numbers, text and dates, of whose columns some shares of values are missing."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=n_rows), "b": rng.choice(["x", "y", "z"], size=n_rows)})
    table["c"] = np.datetime64("2025-01-01") + rng.integers(500, size=n_rows)
    for column, share in shares.items():
        table.loc[rng.random(n_rows) < share, column] = None
    return table, rng.normal(size=n_rows)


def read(table, y):
    source = TableSource()
    rows, _ = source.fit(table, y, MatchedRegressor())
    return source, rows


def test_masked_copies_are_rows_as_they_would_be_read_with_the_gaps_of_others():
    table, y = with_gaps(600, a=0.1, b=0.05, c=0.1)
    source, rows = read(table, y)
    left_out = np.arange(600) % 3 > 0
    masked = masked_copies(source, rows, left_out, 0)
    hidden = masked.X[:, [source.names.index(f"{name} (missing)") for name in "abc"]] > 0
    by_hand = table.loc[masked.copy_of].reset_index(drop=True).mask(pd.DataFrame(hidden, columns=list("abc")))
    assert_array_equal(masked.X, source.rows(by_hand, MatchedRegressor()))
    own = table.isna().to_numpy()
    assert (hidden >= own[masked.copy_of]).all()
    assert (hidden > own[masked.copy_of]).any(axis=1).all()
    assert left_out[masked.copy_of].all()
    patterns, counts = np.unique(hidden, axis=0, return_counts=True)
    for pattern, count in zip(patterns, counts, strict=True):
        assert (own == pattern).all(axis=1).sum() <= OWN_RANKS
        fewer = left_out & (own <= pattern).all(axis=1) & (own < pattern).any(axis=1)
        assert count == min(fewer.sum(), MOST_COPIES) >= FEWEST_COPIES
    assert len(patterns) == np.unique(own, axis=0).any(axis=1).sum()


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 0.95}])
def test_there_are_no_copies_without_gaps_and_for_groups_that_are_too_large_or_nearly_all(shares):
    n_rows = 100 if shares == {"a": 0.95} else 600
    assert masked_copies(*read(*with_gaps(n_rows, **shares)), np.ones(n_rows, dtype=bool), 0) is None


def half_normal(n_rows, n_levels):
    """Scores (row, level) at evenly spaced ranks, in an order of their own."""
    ranks = np.random.default_rng(0).permutation(n_rows)
    return np.repeat(norm.isf((ranks + 0.5) / (2 * n_rows))[:, None], n_levels, axis=1)


@pytest.mark.parametrize(
    ("factor", "n_rows", "least", "most"), [(1, 10, 1, 1), (1, 100, 1, 1), (3, 100, 2, 3.5), (1 / 3, 100, 0.28, 0.5)]
)
def test_ranks_of_copies_stay_as_they_are_unless_the_rows_of_the_group_tell_otherwise(factor, n_rows, least, most):
    levels = (0.5, 0.9, 0.99)
    own, base = factor * half_normal(n_rows, 3), norm.ppf(0.5 + np.array(levels) / 2)
    found = best_nudge(own, np.ones(n_rows), base, levels)
    assert least <= found <= most
    assert best_nudge(7 * own, np.ones(n_rows), 7 * base, levels) == found  # in any unit


@pytest.mark.parametrize("n_gaps", [10, 1])
def test_a_small_group_with_gaps_has_the_ranks_of_its_copies(n_gaps):
    levels = (0.5, 0.9)
    X = (np.arange(400) < n_gaps)[:, None].astype(float)
    scores = np.concatenate([2 * half_normal(n_gaps, 2), half_normal(400 - n_gaps, 2)])[:, None]
    copies, size = 2 * half_normal(300, 2)[:, None], np.ones((400, 1))
    masked = np.ones((300, 1)), copies
    (factors,) = group_factors([Grouping(GAPS, (0,))], X, scores, size, levels, exact=False, masked=masked)
    assert_allclose(factors.factor[1], rank_factor(copies, levels) / rank_factor(scores, levels))
    assert factors.n_rows.tolist() == [400 - n_gaps, n_gaps, 0]


@pytest.mark.parametrize("second", [False, True])
def test_copies_that_hide_nothing_are_predicted_as_their_rows_are_out_of_fold(second, monkeypatch):
    X, y = draw(120, 0)
    same = []

    def unmasked(source, rows, left_out, seed):
        same.append(Altered(rows, np.arange(len(rows)), np.full((len(rows), 2), -1)))
        return same[0]

    monkeypatch.setattr(matched, "masked_copies", unmasked)
    monkeypatch.setattr(matched, "edge_copies", lambda *_: None)
    how = SHORT
    if second:
        monkeypatch.setattr(matched, "SECOND_ROWS", (100, 200))
        monkeypatch.setattr(matched, "SECOND_LONGER", 1)
        how = {"folds": 3, "random_state": 0, "schedule": Schedule(mean_epochs=1, interval_epochs=1)}
    model = MatchedRegressor(0.9, **how | {"companions": ("forest", Ridge())}).fit(X, y)
    (team,), (altered,), found = model.predictor_.fitted_teams, same, model.out_of_fold_
    assert len(team.companions) == 2 + second
    mean = team.targets.inverse(torch.from_numpy(altered.estimate.mean)).numpy()
    assert_allclose(mean, found.prediction, rtol=1e-5, atol=1e-5)
    place = list(team.shape.grid).index(0.9)
    ratio = (found.upper - found.lower)[:, :, 0] / altered.estimate.half_width[..., place].sum(axis=2)
    for gap in (X["a"].isna(), X["a"].notna()):  # factors are those of all rows, or of groups
        assert_allclose(ratio[gap], ratio[gap][:1].repeat(gap.sum(), axis=0), rtol=1e-4)


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
    about = ModelDescription(load(path))
    held = about.held_groups
    assert {name: set(groups) for name, groups in held.items()} == {
        "missing values": {"a", "none"},
        "district": {"port", "north", "hill"},
    }
    assert sum(held["district"].values()) == 600
    assert sum(held["missing values"].values()) == 600
    n = held["district"]
    told = f"district, 3 groups: port {n['port']} rows, north {n['north']}, hill {n['hill']}"
    assert about.held_for.endswith(f"; {told}; in each near the asked level, as measured")
    assert ("coverage held for", about.held_for) in source_rows(Source(), about)


def test_groups_of_split_ranks_are_told_with_their_promise():
    rng = np.random.default_rng(0)
    X, y = np.column_stack([np.arange(400) // 10, rng.normal(size=400)]), rng.normal(size=400)
    how = {"calibration": Split(0.9), "random_state": 0}
    about = ModelDescription(IntervalAround(LinearRegression(), 0.9, hold_for=0, **how).fit(X, y))
    assert sum(about.held_groups["0"].values()) == 360
    assert ", and 3" in about.held_for  # most of the 40 groups are not named
    assert about.held_for.endswith(
        "; at least the asked level on average in each of 9 rows or more, others are drawn towards all"
    )
    X[:, 1] = rng.integers(3, size=400)
    several = IntervalAround(LinearRegression(), 0.9, hold_for=[0, 1], **how).fit(X, y)
    assert ModelDescription(several).held_for.endswith("; in each near the asked level, as measured")


def test_a_column_whose_groups_do_not_differ_is_told():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(400) % 80, rng.normal(size=400)])
    model = IntervalAround(LinearRegression(), hold_for=0, calibration="cross", random_state=0)
    about = ModelDescription(model.fit(X, rng.normal(size=400)))
    assert about.held_groups == {}
    assert about.held_for == "0: ranks of all rows, since its groups' own cost more than they gain"


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
        ({"hold_for": ["district", "district"]}, "hold_for must name columns of X, each once.* got 2 values"),
        ({"hold_for": np.repeat(["old", "new"], 50)}, r"got 100 values; put them into X as a column, as in X.assign"),
        ({"hold_for": pd.Series([0, 1] * 50)}, "got 100 values; put them into X as a column"),
        ({"hold_for": np.zeros((100, 2))}, "got 100 values; put them into X as a column"),
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


def test_where_every_group_is_too_rare_for_ranks_all_rows_have_the_same():
    X = np.arange(3.0)[:, None]
    grouping = Grouping("kind", (0,))
    found = group_factors([grouping], X, np.ones((3, 1, 1)), np.ones((3, 1)), [0.5], exact=False)
    assert found == []


def test_a_table_in_which_no_two_rows_have_the_same_gaps_is_fitted():
    rng = np.random.default_rng(0)
    X = np.where(rng.uniform(size=(60, 12)) < 0.5, np.nan, rng.normal(size=(60, 12)))
    assert len(np.unique(np.isnan(X), axis=0)) == 60
    frame = pd.DataFrame(X, columns=list("abcdefghijkl"))
    model = IntervalAround(make_pipeline(SimpleImputer(), Ridge()), 0.8, random_state=0).fit(frame, rng.normal(size=60))
    assert np.isfinite(model.predict_interval(frame).width).all()
