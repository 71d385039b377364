"""What all estimators share: levels and names, several models fitted as one stack, groups, warm starts."""

import math
import pickle
import re
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule, TableFiles, fit_together
from coverwell.baselines import (
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)
from coverwell.baselines.training import BaselineTeam
from coverwell.calibration import Split
from coverwell.errors import FarOffTargetWarning
from coverwell.inputs.source import target_names_of
from coverwell.options import levels_from
from coverwell.predictor import MatchedTeam
from tests.synthetic import laws

BASELINES = [
    BayesByBackpropRegressor,
    ConcreteDropoutRegressor,
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
]
RNG = np.random.default_rng(0)
N = 60
X = RNG.uniform(size=(N, 3))
Y = np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=N)
X_NEW = RNG.uniform(size=(15, 3)).clip(X.min(axis=0), X.max(axis=0))
TABLE = (X, Y, None)


def unfitted(kind, *coverage, **changes):
    matched = {"folds": 3, "repeats": 1, "schedule": Schedule(max_rounds=2)}
    own = matched if kind in (MatchedRegressor, MatchedClassifier) else {"max_epochs": 20}
    network = MLP(hidden=8, layers=2, bins=4, dropout=0.2)
    return kind(*coverage, **{"network": network, "random_state": 0} | own | changes)


every = pytest.mark.parametrize("kind", [MatchedRegressor, *BASELINES])


# Memory of X ---------------------------------------------------------------------------------------------------------


def test_a_table_of_numbers_is_read_where_it_lies():
    model, table = unfitted(MatchedRegressor).fit(X, Y), X_NEW.copy()
    assert np.shares_memory(model.source_.rows(table, model), table)
    model.predict_interval(table)
    assert_array_equal(table, X_NEW)


def test_tables_that_cannot_be_read_in_place_predict_the_same():
    model, read_only = unfitted(MatchedRegressor).fit(X, Y), X_NEW.copy()
    read_only.flags.writeable = False
    packed = np.zeros(len(X_NEW), dtype=[("flag", "i4"), ("numbers", "f8", 3)])  # rows 28 bytes apart
    packed["numbers"] = X_NEW
    tables = read_only, X_NEW[::-1].copy()[::-1], packed["numbers"], X_NEW.astype(">f8")
    for table in tables:
        assert_array_equal(model.predict_interval(table).upper, model.predict_interval(X_NEW).upper)


# Targets that are far off --------------------------------------------------------------------------------------------


@every
def test_one_wrong_target_is_learned_as_the_next_ordinary_one(kind):
    wrong = Y.copy()
    wrong[7] = 1e12
    with pytest.warns(FarOffTargetWarning, match=r"1 of 60 targets .*first row 7, .* 1e\+12\): they count as missed"):
        model = unfitted(kind, calibration=None).fit(X, wrong)
    twin = unfitted(kind, calibration=None).fit(X, np.where(wrong > 1e6, np.delete(Y, 7).max(), Y))
    assert_array_equal(model.predict_interval(X_NEW).upper, twin.predict_interval(X_NEW).upper)


def test_a_wrong_target_counts_as_missed():
    wrong = Y.copy()
    wrong[7] = 1e12
    with pytest.warns(FarOffTargetWarning):
        model = unfitted(MatchedRegressor, (0.8, 0.98), calibration="cross").fit(X, wrong)
    width = model.predict_interval(X_NEW).width
    assert width[:, 0].max() < 20
    assert width[:, 1].min() > 1e10  # 0.98 of 60 rows is at the 60th rank


# Levels and names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "levels"),
    [
        (0.9, (0.9,)),
        ([0.9], (0.9,)),
        ((0.9, 0.5), (0.9, 0.5)),
        (np.array([0.9, 0.5]), (0.9, 0.5)),
        (np.float64(0.9), (0.9,)),
        (pd.Series([0.5, 0.9]), (0.5, 0.9)),
    ],
)
def test_levels_are_floats_in_the_order_asked_for(asked, levels):
    assert levels_from(asked) == levels
    assert all(type(level) is float for level in levels_from(asked))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (0.0, "strictly between 0 and 1, got 0.0"),
        (1, "strictly between 0 and 1, got 1"),
        (90.0, "got 90.0"),
        (1e-9, "at least 1e-06 from 0 and 1"),
        (1 - 1e-9, "at least 1e-06 from 0 and 1"),
        (float("nan"), "got nan"),
        (True, "got True"),
        (None, "got None"),
        ("0.9", "got '0.9'"),
        (["0.9"], "got '0.9'"),
        (np.array(0.9), r"got array\(0.9\)"),
        ([0.5, 1.5], "got 1.5"),
        ([[0.5, 0.9]], "got "),
        ([], "at least one level"),
        ([0.9, 0.5, 0.9], r"twice, got \(0.9, 0.5, 0.9\)"),
    ],
)
def test_anything_else_is_no_level(asked, message):
    with pytest.raises(ValueError, match=f"coverage must .*{message}"):
        levels_from(asked)


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([1.0, 2.0], ("y",)),
        (np.zeros(2), ("y",)),
        (np.zeros((2, 1)), ("y",)),
        (np.zeros((2, 3)), ("y0", "y1", "y2")),
        (pd.Series([1.0, 2.0]), ("y",)),
        (pd.Series([1.0, 2.0], name="price"), ("price",)),
        (pd.Series([1.0, 2.0], name=0), ("0",)),
        (pd.DataFrame({"price": [1.0, 2.0], 7: [1.0, 2.0]}), ("price", "7")),
        (pl.Series([1.0, 2.0]), ("y",)),
        (pl.Series("price", [1.0, 2.0]), ("price",)),
        (pl.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}), ("a", "b")),
    ],
)
def test_targets_have_the_users_names_or_y(y, names):
    assert target_names_of(y, np.asarray(y)) == names


TWO = np.stack([Y, 50 * X[:, 1] + 5 * RNG.normal(size=N)], axis=1)
SHAPES = [
    (Y, 0.8, (15,)),
    (Y, [0.8], (15, 1)),
    (Y, np.array([0.8, 0.5]), (15, 2)),
    (TWO[:, :1], 0.8, (15, 1)),
    (TWO[:, :1], [0.8], (15, 1, 1)),
    (TWO, 0.8, (15, 2)),
    (TWO, (0.5, 0.8, 0.9), (15, 2, 3)),
]


@every
def test_a_level_axis_comes_last_and_only_for_a_sequence(kind):
    for y, coverage, shape in SHAPES:
        model = unfitted(kind, coverage).fit(X, y)
        interval, y_hat = model.predict_interval(X_NEW), model.predict(X_NEW)
        assert interval.lower.shape == interval.upper.shape == shape
        assert interval.lower.dtype == interval.upper.dtype == y_hat.dtype == np.float64
        assert y_hat.shape == (15, *y.shape[1:])
        assert interval.contains(y_hat).all()
        assert interval.coverage == (coverage if isinstance(coverage, float) else tuple(coverage))
        assert (interval.width > 0).all()


@every
@pytest.mark.parametrize("calibration", [Split(0.4), None])
def test_levels_are_nested_and_come_in_the_order_they_are_asked_for(kind, calibration):
    levels = [0.8, 0.2, 0.5]
    model = unfitted(kind, levels, calibration=calibration).fit(X, TWO)
    for joint in (False, True) if calibration else (False,):
        lower, upper = model.predict_interval(X_NEW, joint=joint)
        assert (np.diff(lower[..., np.argsort(levels)]) <= 0).all()
        assert (np.diff(upper[..., np.argsort(levels)]) >= 0).all()
        assert_array_equal(model.predict_interval(X_NEW, 0.2, joint=joint).lower, lower[..., 1])
        assert_array_equal(model.predict_interval(X_NEW, [0.5, 0.8], joint=joint).upper, upper[..., [2, 0]])
        between = model.predict_interval(X_NEW, 0.7, joint=joint)  # in a call of its own
        assert ((lower[..., 0] <= between.lower) & (between.lower <= lower[..., 2])).all()
        assert ((upper[..., 2] <= between.upper) & (between.upper <= upper[..., 0])).all()
    if calibration is None:
        with pytest.raises(ValueError, match=r"joint=True needs ranks .* calibration other than None"):
            model.predict_interval(X_NEW, 0.7, joint=True)


@every
def test_intervals_quantiles_and_distributions_of_any_level_agree(kind):
    model = unfitted(kind, [0.8, 0.4]).fit(X, TWO)
    lower, upper = model.predict_interval(X_NEW, [0.2, 0.4, 0.6, 0.8, 0.95])
    assert (np.diff(lower) <= 0).all()
    assert (np.diff(upper) >= 0).all()
    fitted = model.predict_interval(X_NEW)
    assert_array_equal(fitted.lower, lower[..., [3, 1]])
    assert_array_equal(model.predict_quantiles(X_NEW, [0.9, 0.7]), fitted.upper)
    assert_array_equal(model.predict_quantiles(X_NEW, 0.975), upper[..., 4])
    distribution = model.predict_distribution(X_NEW)
    assert_array_equal(distribution.interval([0.8, 0.4]).lower, fitted.lower)
    shares = [0.03, 0.5, 0.62]
    assert_allclose(distribution.quantile(shares), model.predict_quantiles(X_NEW, shares), rtol=1e-12)


def test_quantiles_and_distributions_have_the_shape_of_y_the_names_and_the_index():
    frame = pd.DataFrame(X_NEW, index=np.arange(15) + 100)
    one, two = (unfitted(MatchedRegressor, 0.8).fit(X, y) for y in (Y, pd.DataFrame(TWO, columns=["a", "b"])))
    assert one.predict_quantiles(X_NEW, 0.3).shape == (15,)
    assert one.predict_quantiles(X_NEW, [0.3, 0.6]).shape == (15, 2)
    assert two.predict_quantiles(X_NEW, 0.3).shape == (15, 2)
    assert two.predict_quantiles(X_NEW, [0.3]).shape == (15, 2, 1)
    assert one.predict_distribution(X_NEW).cdf(0.0).shape == (15,)
    given = two.predict_distribution(frame).to_frame([0.3, 0.6])
    assert list(given.columns) == [("a", 0.3), ("a", 0.6), ("b", 0.3), ("b", 0.6)]
    assert_array_equal(given.index, frame.index)
    with pytest.raises(NotFittedError):
        unfitted(MatchedRegressor).predict_distribution(X_NEW)


# Several models as one stack -----------------------------------------------------------------------------------------


@every
def test_one_model_fitted_together_is_one_model_fitted_and_a_callback_changes_nothing(kind):
    model = unfitted(kind)
    assert fit_together([model], [TABLE], on_round=lambda present: None) is None
    assert_array_equal(model.predict(X_NEW), unfitted(kind).fit(X, Y).predict(X_NEW))


@every
def test_models_fitted_together_have_rows_levels_groups_and_units_of_their_own(kind):
    models = [unfitted(kind, [0.5, 0.9]), unfitted(kind, (0.8, 0.2), random_state=3)]
    fit_together(models, [TABLE, (X[:40], 1000 * Y[:40] + 5e4, np.arange(40) // 4)])
    for model, spread in zip(models, (Y.std(), 1000 * Y[:40].std()), strict=True):
        width = model.predict_interval(X_NEW).width
        assert width.shape == (15, 2)
        assert (0.1 * spread < width[:, np.argmax(model.coverage)]).all()
        assert (width < 20 * spread).all()
    assert models[1].predict_interval(X_NEW).coverage == (0.8, 0.2)
    assert abs(models[1].predict(X_NEW).mean() - 5e4) < 3000


@pytest.mark.parametrize("kind", BASELINES)
def test_models_fitted_together_by_split_are_each_calibrated_by_their_own_rows(kind):
    law, p = laws()["homoscedastic"], 0.8
    tables = [(*law.draw(n, random_state=n), None) for n in (200, 300)]
    models = [unfitted(kind, p, calibration=Split(size=0.5), random_state=seed) for seed in range(2)]
    fit_together(models, tables)
    rows, _ = law.draw(2000, random_state=9)
    for model, n_kept in zip(models, (100, 150), strict=True):
        coverage = law.exact_coverage(rows, *model.predict_interval(rows)).mean()
        assert abs(coverage - p) < 4 * math.sqrt(p * (1 - p) / n_kept)
    assert models[0].factor_ != models[1].factor_


@every
def test_after_every_round_the_callback_gets_the_present_teams_of_each_model(kind):
    models = [unfitted(kind, random_state=seed) for seed in range(2)]
    shown = []

    def look(present):
        assert not hasattr(models[0], "predictor_")
        shown.append([[team.estimate(X_NEW).mean[:, 0] for team in of_model] for of_model in present])
        kinds = {type(team) for of_model in present for team in of_model}
        assert kinds == {MatchedTeam if kind is MatchedRegressor else BaselineTeam}

    fit_together(models, [TABLE, (X[:40], Y[:40], None)], on_round=look)
    assert len(shown) == 2 == max(len(model.rounds_) for model in models)
    for round_ in shown:
        assert [len(of_model) for of_model in round_] == [1, 1]
    first, last = shown[0][0][0], shown[-1][0][0]
    assert (first != last).all()  # a copy of its time, not the networks that went on
    if kind is not MatchedRegressor:  # whose intervals are trained a little longer
        final = models[0].predict(X_NEW)
        assert min(np.abs(final - first).max(), np.abs(final - last).max()) < 1e-12  # one of the two was the best


SECOND = {
    "another class": (HeteroscedasticRegressor, NeuralQuantileRegressor, {}, "must be of one class, got Het.* and Neu"),
    "samples": (MCDropoutRegressor, None, {"n_samples": 3}, "must have the same n_samples, got 50 and 3"),
    "a weight": (BayesByBackpropRegressor, None, {"kl_weight": 0.5}, "must have the same kl_weight"),
    "members": (DeepEnsembleRegressor, None, {"members": 2}, "must have the same members, got 5 and 2"),
    "ranks": (HeteroscedasticRegressor, None, {"calibration": "split"}, "same calibration, got None and 'split'"),
    "levels": (NeuralQuantileRegressor, None, {"coverage": [0.5, 0.9]}, "alike in .*levels.* 2 levels"),
    "rounds": (MatchedRegressor, None, {"schedule": Schedule(max_rounds=5)}, "same schedule, got .*=2.* and .*=5"),
    "matching": (MatchedRegressor, None, {"matching": "iqr"}, "same matching, got 'balanced' and 'iqr'"),
    "folds": (MatchedRegressor, None, {"folds": 4}, "same folds, got 3 and 4"),
    "shape": (MatchedRegressor, None, {"shape": "interval"}, "same shape, got 'both' and 'interval'"),
}


@pytest.mark.parametrize(("kind", "other", "changes", "message"), SECOND.values(), ids=SECOND)
def test_models_that_differ_are_not_fitted_together(kind, other, changes, message):
    assert_left_unfitted([unfitted(kind), unfitted(other or kind, **changes)], [TABLE] * 2, message)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([TABLE, (X[:, :2], Y, None)], "alike in columns.* 2 columns.* 3 columns"),
        ([TABLE, (X, np.stack([Y, Y], axis=1), None)], "alike in columns, targets.* 2 targets"),
        ([TABLE, (np.tile(X, (50, 1)), np.tile(Y, 50), None)], "members.* 6 members .*15 .*where repeats is a number"),
        ([TABLE, (X, np.where(Y > 0.9, np.nan, Y), None)], "y contains NaN"),
        ([TABLE], r"one table \(X, y, groups\) per model, got 1 for 2"),
    ],
)
def test_tables_that_differ_are_not_fitted_together(tables, message):
    assert_left_unfitted([unfitted(MatchedRegressor, repeats="auto") for _ in range(2)], tables, message)
    with pytest.raises(ValueError, match="one table"):
        fit_together([], [])


def assert_left_unfitted(models, tables, message):
    models[0].fit(X, Y)
    with pytest.raises(ValueError, match=message):
        fit_together(models, tables)
    for model in models:
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        assert not [name for name in vars(model) if name.endswith("_")]


@every
def test_progress_is_shown_on_request_and_silence_is_the_default(kind, capfd):
    unfitted(kind).fit(X, Y)
    assert capfd.readouterr() == ("", "")
    unfitted(kind, verbose=1).fit(X, Y)
    shown = capfd.readouterr().err
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert lines[-1].startswith("2 rounds [00:0")
    assert "coverage=" in lines[-1]
    words = [re.match(r"\d rounds|[a-z]+( \d)?", line)[0] for line in lines]
    order = ["companions"] * (kind is MatchedRegressor) + ["round 1", "round 2", "calibration", "2 rounds"]
    assert [word for word in dict.fromkeys(words) if word != "round 3"] == order  # the last may be announced in vain


# Groups --------------------------------------------------------------------------------------------------------------

NUMBERED = np.arange(N) // 5
SAME_GROUPS = {
    "a list": NUMBERED.tolist(),
    "texts": [f"house {group:02}" for group in NUMBERED],
    "objects": np.array([f"house {group:02}" for group in NUMBERED], dtype=object),
    "pandas texts": pd.Series([f"house {group:02}" for group in NUMBERED], dtype="string"),
    "pandas nullable": pd.Series(NUMBERED, dtype="Int64"),
    "pandas categories": pd.Series([f"house {group:02}" for group in NUMBERED], dtype="category"),
    "pandas times": pd.Series(pd.Timestamp("2024-05-01") + pd.to_timedelta(NUMBERED, unit="D")),
    "polars": pl.Series(NUMBERED),
    "polars texts": pl.Series([f"house {group:02}" for group in NUMBERED]),
    "dates": [date(2024, 5, 1 + group) for group in NUMBERED],
    "numbers of two types": [float(group) if row % 2 else int(group) for row, group in enumerate(NUMBERED)],
    "a column": NUMBERED[:, None],
}


def objects(items):
    return np.array(items, dtype=object)


@pytest.fixture(scope="module")
def by_group():
    return unfitted(MatchedRegressor).fit(X, Y, groups=NUMBERED)


@pytest.mark.parametrize("groups", SAME_GROUPS.values(), ids=SAME_GROUPS)
def test_the_same_groups_give_the_same_model_in_any_container(by_group, groups):
    model = unfitted(MatchedRegressor).fit(X, Y, groups=groups)
    assert_array_equal(model.predict(X_NEW), by_group.predict(X_NEW))


WITHOUT = {
    "texts and None": (["a", "b"], None, [list, objects, pd.Series, pl.Series]),
    "texts and NaN": (["a", "b"], math.nan, [list, objects, pd.Series]),
    "numbers and None": ([1.0, 2.0], None, [list, objects, pd.Series, pl.Series]),
    "numbers and NaN": ([1.0, 2.0], math.nan, [list, np.array, pd.Series, pl.Series]),
}


@pytest.mark.parametrize(("others", "missing", "holders"), WITHOUT.values(), ids=WITHOUT)
def test_a_missing_group_is_refused_with_its_row(others, missing, holders):
    message = r"groups must have a value in every row, got .* in row 6 \(counted from 0\); fill it in"
    for holder in holders:
        with pytest.raises(ValueError, match=message):
            unfitted(MatchedRegressor).fit(X, Y, groups=holder([*others * 3, missing, *others * 26, missing]))


@pytest.mark.parametrize("dtype", ["Int64", "string", "category", "datetime64[ns]"])
def test_a_missing_group_of_pandas_is_refused_with_its_row(dtype):
    groups = pd.Series([*["2001", "2002"] * 3, None, *["2001", "2002"] * 26, None]).astype(dtype)
    for given in (groups, groups.to_numpy()) if dtype.startswith("datetime") else (groups,):
        with pytest.raises(ValueError, match=r"groups must have a value in every row, got .* in row 6 "):
            unfitted(MatchedRegressor).fit(X, Y, groups=given)


@pytest.mark.parametrize("other", ["1", True, date(2024, 5, 1)], ids=["text", "boolean", "date"])
def test_groups_of_several_kinds_are_refused(other):
    with pytest.raises(
        ValueError, match=r"groups must be of one kind, got 1 in row 0 and .* in row 3 .*; convert them"
    ):
        unfitted(MatchedRegressor).fit(X, Y, groups=[1, 2, 1, other, *[2] * (N - 4)])


# Continuing the last fit ---------------------------------------------------------------------------------------------


def test_models_fitted_together_continue_each_from_its_own_networks():
    folds = KFold(3)
    models = [unfitted(MatchedRegressor, warm_start=True, folds=folds, random_state=seed) for seed in range(2)]
    tables = [TABLE, (X[:40], 1000 * Y[:40] + 5e4, None)]
    fit_together(models, tables)
    before = [model.predictor_.fitted_teams[0] for model in models]
    fit_together(models, tables)
    for model, was in zip(models, before, strict=True):
        assert model.predictor_.fitted_teams[0] is not was
        assert_array_equal(model.predictor_.fitted_teams[0].targets.spread, was.targets.spread)
    assert abs(models[1].predict(X_NEW).mean() - 5e4) < 3000


def classifier(seed=0, **more):
    return unfitted(MatchedClassifier, 0.8, **{"random_state": seed, "companions": (), **more})


def test_classifiers_fitted_together_keep_their_own_classes_and_continue_through_a_pickle():
    folds, side = KFold(3), X[:, 0] > 0.5
    models = [classifier(seed, warm_start=True, folds=folds) for seed in range(2)]
    tables = [(X, np.where(side, "right", "left"), None), (X[:40], 3 - side[:40], None)]
    fit_together(models, tables)
    assert [model.classes_.tolist() for model in models] == [["left", "right"], [2, 3]]
    models = pickle.loads(pickle.dumps(models))
    before = [model.predictor_.fitted_teams[0] for model in models]
    fit_together(models, tables)
    for model, was, (rows, y, _) in zip(models, before, tables, strict=True):
        assert model.predictor_.fitted_teams[0] is not was
        # With all rows on one side a guess would be right for half of them: the standard deviation is half a root.
        assert model.score(rows, y) > 0.5 + 2 * 0.5 / np.sqrt(len(y))
        assert model.predict_set(rows).contains(y).mean() > 0.8 - 4 * np.sqrt(0.16 * 2 / len(y))
    with pytest.raises(ValueError, match=r"goes on with the same classes, .*, got .*; fit with warm_start=False"):
        models[0].fit(X, side)


def test_classifiers_that_differ_in_classes_or_score_are_not_fitted_together():
    halves, thirds = X[:, 0] > 0.5, (3 * X[:, 0]).astype(int)
    with pytest.raises(
        ValueError, match=r"must be alike in columns, targets, .* 2 targets, .* beside 3 columns, 3 targets"
    ):
        fit_together([classifier(), classifier()], [(X, halves, None), (X, thirds, None)])
    with pytest.raises(ValueError, match="must have the same conformity_score, got 'adaptive' and 'probability'"):
        fit_together([classifier(conformity_score="adaptive"), classifier()], [(X, halves, None)] * 2)


@pytest.mark.parametrize("kind", [MatchedRegressor, MatchedClassifier])
def test_tables_in_files_are_not_fitted_together(kind, tmp_path):
    pl.DataFrame({"a": X[:, 0], "y": Y}).write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match="fitted together take rows in memory, got TableFiles; fit them one by one"):
        fit_together([unfitted(kind)], [(TableFiles(tmp_path), "y", None)])


def test_models_fitted_together_continue_all_or_none():
    folds = KFold(3)
    fitted, fresh = (unfitted(MatchedRegressor, warm_start=True, folds=folds) for _ in range(2))
    fitted.fit(X, Y)
    before = fitted.predict(X_NEW)
    with pytest.raises(ValueError, match="must all be fitted before, or none of them"):
        fit_together([fitted, fresh], [TABLE, TABLE])
    assert_array_equal(fitted.predict(X_NEW), before)
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
