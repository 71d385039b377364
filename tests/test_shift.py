"""Recalibration for other rows: weights, ranks and what it refuses; predictions, files and exports stay right."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from coverwell import MLP, IntervalAround, MatchedForecaster, MatchedRegressor, Schedule, load, metrics, save
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.calibration import ROWS_PER_VALUE, Correction, KeptRows, Split, effective_rows
from coverwell.description import ModelDescription
from coverwell.errors import ExtrapolationWarning, FarOffTargetWarning
from coverwell.inputs.parquet import TableFiles
from coverwell.shift import FEWEST_NEW, Recalibration, cut, density_ratio, new_factor

BRIEF = {"network": MLP(hidden=8, layers=2, bins=0), "folds": 2, "repeats": 1, "random_state": 0, "companions": ()}
BRIEF |= {"schedule": Schedule(max_rounds=1, mean_epochs=2, interval_epochs=2)}


def draw(n_rows, seed, shift=0.0, n_targets=1):
    """Noise that grows with the first of three columns, of which `shift` moves the mean."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) + np.array([shift, 0, 0])
    y = X[:, 1:2] + np.exp(0.6 * X[:, :1]) * rng.normal(size=(n_rows, n_targets))
    return X, y if n_targets > 1 else y[:, 0]


def around(calibration="cross", coverage=(0.5, 0.9), n_targets=1, n_rows=500):
    return IntervalAround(LinearRegression(), coverage, calibration=calibration, random_state=0).fit(
        *draw(n_rows, 0, n_targets=n_targets)
    )


def bounds(model, X, **asked):
    return np.stack(list(model.predict_interval(X, **asked)))


@pytest.fixture
def model():
    return around()


# Weights.


def test_odds_of_the_classifier_are_the_ratio_of_densities():
    rng, shift = np.random.default_rng(0), 0.8
    ranked, new = rng.normal(size=(3000, 3)), rng.normal(size=(1500, 3)) + np.array([shift, 0, 0])
    weight, unlike = density_ratio(ranked, new)
    truth = np.exp(shift * ranked[:, 0] - shift**2 / 2)
    assert np.corrcoef(np.log(weight), np.log(truth))[0, 1] > 0.95
    assert weight.mean() == pytest.approx(1, abs=0.15)
    assert effective_rows(weight) == pytest.approx(3000 * np.exp(-(shift**2)), rel=0.25)  # E[w]^2 / E[w^2]
    assert not unlike.any()


def test_a_shift_that_no_line_divides_is_found_too():
    rng = np.random.default_rng(0)
    ranked, new = rng.uniform(-1, 1, size=(2, 600, 2))
    weight, _ = density_ratio(ranked, new[new.prod(axis=1) > 0])  # two quadrants
    there = ranked.prod(axis=1) > 0
    assert weight[there].mean() > 3 * weight[~there].mean()


def test_a_few_rows_cannot_have_all_of_the_weight():
    assert_array_equal(cut(np.array([0.0] * 99 + [100.0])), [0.0] * 99 + [2.5])  # .25 * sqrt(100) times the mean
    assert_array_equal(cut(np.ones(4)), np.ones(4))


def test_equal_rows_weigh_the_same_and_change_nothing(model):
    X, _ = draw(500, 0)
    fitted = bounds(model, X)
    assert not model.recalibrate(X[:300]).recalibration_.changed
    assert str(model.recalibration_) == "300 new rows look like those of the fit, nothing had to change"
    assert_array_equal(bounds(model, X), fitted)


def test_values_that_come_again_are_no_sign_of_other_rows():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(900, 3)) / 3  # what a model keeps of them is rounded to single precision
    X[500:, 0] = X[500:, 0].clip(1 / 3)
    y = X[:, 0] + rng.normal(size=900)
    model = IntervalAround(LinearRegression(), calibration="cross", random_state=0).fit(X[:500], y[:500])
    found = model.recalibrate(X[500:]).recalibration_
    assert (found.share_outside, 200 < found.n_effective < 400) == (0, True)  # two thirds of the 500 are like these


@pytest.mark.parametrize("repeats", [(1, 10), (4, 1)], ids=["new rows", "ranked rows"])
def test_rows_that_come_again_are_not_known_by_the_others(repeats):
    of_ranked, of_new = repeats
    rng = np.random.default_rng(0)
    ranked, new = (np.repeat(rng.normal(size=(300 // n, 3)), n, axis=0) for n in (of_ranked, of_new))
    weight, unlike = density_ratio(ranked, new)
    assert effective_rows(weight) == pytest.approx(len(ranked))
    assert not unlike.any()


def test_new_rows_may_all_be_the_same():
    weight, _ = density_ratio(np.random.default_rng(0).normal(size=(300, 3)), np.zeros((40, 3)))
    assert effective_rows(weight) < 100


# Factors.


def test_a_factor_moves_by_weighted_over_unweighted_ranks():
    # 4 scores at .5: rank 2.5, the third. Twice the weight on 4: of 5 + 25/7 * ... the fourth.
    scores = np.arange(1.0, 5.0)[:, None, None]
    fitted, enough = np.array([[0.6]]), np.array([True])
    same = new_factor(fitted, scores, np.ones(4), (0.5,), enough, anew=False)
    assert_allclose(same, fitted)
    up = new_factor(fitted, scores, np.array([1.0, 1.0, 1.0, 4.0]), (0.5,), enough, anew=False)
    assert_allclose(up, fitted * 4 / 3)
    assert_allclose(new_factor(fitted, scores, np.ones(4), (0.5,), enough, anew=True), [[3.0]])


def test_levels_without_enough_rows_follow_the_highest_that_has():
    scores = np.repeat(np.arange(1.0, 10.0)[:, None, None], 3, axis=2)
    fitted, enough = np.array([[1.0, 2.0, 3.0]]), np.array([True, True, False])
    found = new_factor(fitted, scores, np.ones(9), (0.5, 0.9, 0.99), enough, anew=True)
    assert_allclose(found, [[5.0, 9.0, 3.0 * 9 / 2]])


def test_a_factor_of_zero_may_grow():
    scores = np.array([0.0] * 7 + [1.0, 2.0, 3.0])[:, None, None]
    weight = np.array([1.0] * 7 + [9.0] * 3)
    found = new_factor(np.zeros((1, 1)), scores, weight, (0.5,), np.array([True]), anew=False)
    assert_array_equal(found, [[2.0]])


# Coverage.


@pytest.mark.parametrize("calibration", ["cross", "split"])
def test_coverage_holds_after_a_shift_and_did_not_before(calibration):
    model = around("cross" if calibration == "cross" else Split(0.5))
    X, y = draw(20_000, 1, shift=1.0)
    before = metrics.coverage(y, *model.predict_interval(X, coverage=0.9))
    predictions = model.predict(X)
    found = model.recalibrate(draw(500, 2, shift=1.0)[0]).recalibration_
    after = metrics.coverage(y, *model.predict_interval(X, coverage=0.9))
    assert before < 0.8
    # Ranks of so many rows; what the classifier errs is allowed as much again.
    assert after == pytest.approx(0.9, abs=2 * 2 * np.sqrt(0.09 / found.n_effective))
    assert_array_equal(model.predict(X), predictions)
    assert found.n_new == 500
    assert found.n_effective < found.n_ranked


def test_targets_of_new_rows_give_exact_ranks():
    model = around(n_rows=200)
    X, y = draw(99, 3, shift=1.0)
    model.recalibrate(X, y)
    radius = np.diff(bounds(model, X, coverage=0.9), axis=0)[0] / 2
    assert_allclose(radius, np.sort(np.abs(y - model.predict(X)))[89])  # ceil(100 * .9) = 90
    assert model.recalibration_ == Recalibration(99, 99, 99.0, True, model.recalibration_.share_outside)
    assert str(model.recalibration_).startswith("ranks of 99 new rows")


def test_new_targets_in_a_data_frame_go_by_name():
    X, y = draw(300, 0, n_targets=2)
    targets = pd.DataFrame({"low": y[:, 0], "high": 10 * y[:, 1]})
    model = IntervalAround(LinearRegression(), calibration="cross", random_state=0).fit(X, targets)
    factor = model.recalibrate(X[:100], targets[:100]).factor_
    assert_array_equal(model.recalibrate(X[:100], targets[["high", "low"]][:100]).factor_, factor)
    with pytest.raises(ValueError, match="y_new must have the targets low, high, as in training, got low, other"):
        model.recalibrate(X[:100], targets[:100].rename(columns={"high": "other"}))


@pytest.mark.parametrize("labelled", [False, True])
def test_boxes_hold_all_targets_of_new_rows(labelled):
    model = around(Split(0.5), 0.8, n_targets=2)
    X, y = draw(400, 4, shift=1.0, n_targets=2)
    new_X, new_y = draw(10_000, 5, shift=1.0, n_targets=2)
    before = metrics.joint_coverage(new_y, *model.predict_interval(new_X, joint=True))
    found = model.recalibrate(X, y if labelled else None).recalibration_
    after = metrics.joint_coverage(new_y, *model.predict_interval(new_X, joint=True))
    assert before < 0.72
    assert after == pytest.approx(0.8, abs=2 * 2 * np.sqrt(0.16 / found.n_effective))


def test_any_level_quantiles_and_distributions_follow(model):
    X, _ = draw(200, 6)
    model.recalibrate(draw(500, 2, shift=1.0)[0])
    levels = np.array([0.3, 0.5, 0.73, 0.9, 0.99])
    widths = np.diff(bounds(model, X, coverage=levels), axis=0)[0]
    assert (np.diff(widths, axis=1) >= 0).all()
    ends = model.predict_quantiles(X, [0.05, 0.95])
    assert_allclose(ends.T, bounds(model, X, coverage=0.9))
    assert_allclose(model.predict_distribution(X).quantile([0.05, 0.95]), ends)


def test_ends_stay_at_values_and_groups_keep_their_factors():
    X, y = draw(600, 0)
    X[:, 2] = np.repeat([0.0, 1.0], 300)
    y = np.round(y + 3 * X[:, 2] * np.random.default_rng(1).normal(size=600)).clip(-4, 4)
    assert len(np.unique(y)) * ROWS_PER_VALUE < 600
    model = MatchedRegressor(0.9, hold_for=2, **BRIEF).fit(X, y)
    factors = model.predictor_.fitted_teams[0].group_factors[0].factor.clone()
    model.recalibrate(X[X[:, 0] > -0.2])
    assert model.recalibration_.changed
    assert set(np.unique(bounds(model, X))) <= set(np.unique(y))
    assert torch.equal(model.predictor_.fitted_teams[0].group_factors[0].factor, factors)


# State.


def test_every_recalibration_starts_from_the_fit(model):
    one, other = draw(100, 7, shift=0.7)[0], draw(100, 8, shift=-0.7)[0]
    known = draw(50, 9)
    fitted = bounds(model, one)
    first = bounds(model.recalibrate(one), one)
    assert not np.array_equal(first, fitted)
    model.recalibrate(*known).recalibrate(other)
    assert_array_equal(bounds(model.recalibrate(one), one), first)
    assert_array_equal(bounds(model.recalibrate(draw(500, 0)[0][:100]), one), fitted)
    assert not hasattr(model.fit(*draw(100, 0)), "recalibration_")


@pytest.mark.parametrize("estimator", [LinearRegression(), KNeighborsRegressor()], ids=["a module", "a foreign one"])
@pytest.mark.parametrize("calibration", ["local", "split"])
def test_any_regressor_can_be_recalibrated_and_pickled(estimator, calibration):
    model = IntervalAround(estimator, 0.8, calibration=calibration, random_state=0).fit(*draw(200, 0))
    X, y = draw(60, 1, shift=0.5)
    for given in ((X,), (X, y)):
        model.recalibrate(*given)
        assert_array_equal(bounds(pickle.loads(pickle.dumps(model)), X), bounds(model, X))


def test_baselines_with_ranks_can_be_recalibrated():
    X, y = draw(200, 0)
    model = HeteroscedasticRegressor(0.8, calibration="split", max_epochs=10, random_state=0).fit(X, y)
    X, y = draw(60, 1, shift=1.0)
    assert model.recalibrate(X, y).factor_.shape == (1, 1)
    assert metrics.coverage(y, *model.predict_interval(X)) == pytest.approx(np.ceil(61 * 0.8) / 60)


def test_files_hold_both_states(tmp_path):
    path, X = tmp_path / "model.safetensors", draw(100, 1, shift=1.0)[0]
    model = MatchedRegressor(0.8, **BRIEF).fit(*draw(150, 0))
    fitted = bounds(model, X)
    model.recalibrate(X)
    save(model, path)
    again = load(path)
    assert again.recalibration_ == model.recalibration_
    assert_array_equal(bounds(again, X), bounds(model, X))
    assert ModelDescription(again).n_ranked == int(model.recalibration_.n_effective)
    assert_array_equal(bounds(again.recalibrate(draw(150, 0)[0]), X), fitted)
    assert ModelDescription(again).n_ranked == 150


def test_what_is_exported_has_the_new_factors_and_no_rows(model):
    correction = model.recalibrate(*draw(100, 7, shift=0.7)).predictor_.correction.only_asked()
    assert correction.kept is None
    assert_array_equal(correction.factor, model.factor_)


def test_of_many_rows_a_sample_is_kept():
    correction = Correction((0.9,), (0.5, 0.9), np.ones((1, 2)), np.ones((1, 2)))
    X = np.arange(20_000.0)[:, None]
    kept = KeptRows.of(X, np.repeat(X[:, :, None], 2, axis=2), correction, seed=0)
    again = KeptRows.of(X, np.repeat(X[:, :, None], 2, axis=2), correction, seed=0)
    assert kept.rows.shape == (5000, 1)
    assert torch.equal(kept.scores[:, 0, 0], kept.rows[:, 0])
    assert torch.equal(kept.rows, again.rows)
    wide = KeptRows.of(np.ones((3000, 500)), np.ones((3000, 1, 2)), correction, seed=0)
    assert 0.9 * 2**19 < wide.rows.numel() + wide.scores.numel() <= 2**19
    with pytest.raises(ValueError, match="kept rows"):
        KeptRows(np.ones((2, 1), "f4"), np.ones((2, 1, 2), "f4"), np.ones((1, 2)), np.ones((1, 2)), np.array([1.0, 0]))


# What it refuses.


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (lambda X, y: (X[:, :2],), "2 features"),
        (lambda X, y: (X[:0],), "0 sample"),
        (lambda X, y: (X[: FEWEST_NEW - 1],), "at least 20 new rows to compare, got 19"),
        (lambda X, y: (np.where(X > 2, np.nan, X),), "every number must be finite"),
        (lambda X, y: (X, y[:-1]), r"y_new must have 1 target for each of 60 rows, got the shape \(59,\)"),
        (lambda X, y: (X, np.column_stack([y, y])), r"got the shape \(60, 2\)"),
        (
            lambda X, y: (X, np.where(y > y[5], np.nan, y)),
            "y_new must hold a finite target for every row, but 52 of 60 rows have none",
        ),
        (lambda X, y: (X[:8], y[:8]), r"too few rows .*ranks of 8 new rows.*: coverage 0.9 by ranks needs at least 9"),
        (
            lambda X, y: (X + np.array([50, 0, 0]),),
            "too few rows .* 100 % of these lie outside, .* in column 0.*: .* targets of the new rows too",
        ),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(model, given, line):
    X, y = draw(60, 1, shift=1.0)
    before = bounds(model.recalibrate(X, y), X)
    found = model.recalibration_
    with pytest.raises(ValueError, match=line) as caught:
        model.recalibrate(*given(X, y))
    assert "\n" not in str(caught.value)
    assert_array_equal(bounds(model, X), before)
    assert model.recalibration_ is found


def test_targets_and_new_rows_may_lie_very_far_off():
    X, y = draw(300, 0)
    with pytest.warns(FarOffTargetWarning):
        model = IntervalAround(LinearRegression(), random_state=0).fit(X, np.where(np.arange(300) == 7, 1e60, y))
    kept = model.predictor_.correction.kept
    assert torch.isfinite(kept.scores).all()
    new, _ = draw(100, 1)
    new[0, 0] = 1e100
    assert model.recalibrate(new).recalibration_.n_new == 100


def test_a_model_that_is_not_fitted_or_files_of_rows_are_refused(model):
    with pytest.raises(ValueError, match="not fitted yet"):
        IntervalAround(LinearRegression()).recalibrate(draw(60, 1)[0])
    with pytest.raises(TypeError, match="recalibrate takes rows in memory, got TableFiles"):
        model.recalibrate(TableFiles.__new__(TableFiles))


@pytest.mark.parametrize("calibration", ["cv+", None])
def test_without_kept_rows_it_says_so(calibration):
    model = MatchedRegressor(0.8, **BRIEF | {"calibration": calibration}).fit(*draw(60, 0))
    with pytest.raises(ValueError, match=re.escape(f"keep, got {calibration!r} and a table")):
        model.recalibrate(*draw(60, 1))


def test_series_have_no_rows_to_weigh():
    small = {"network": MLP(hidden=4), "schedule": BRIEF["schedule"]}
    forecaster = MatchedForecaster(past=4, folds=2, **small).fit(np.sin(np.arange(60.0)))
    assert not hasattr(forecaster, "recalibrate")
    assert forecaster.regressor_.predictor_.correction.kept is None


def test_new_rows_outside_bring_a_warning(model):
    X, _ = draw(300, 1, shift=2.2)
    with pytest.warns(ExtrapolationWarning, match="% of the new rows lie outside what the model was fitted on"):
        model.recalibrate(X)
    assert model.recalibration_.share_outside > 0.05
    assert " of these lie outside" in str(model.recalibration_)
