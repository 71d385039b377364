from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import PredefinedSplit

from coverwell import MLP, MatchedRegressor, fit_together
from coverwell.calibration import Estimate
from coverwell.datasets import synthetic
from coverwell.held_out import Stretch
from coverwell.metrics import coverage_rank
from coverwell.preparation import Plan, prepare

SMALL = MLP(hidden=16, bins=4)
TINY = {"network": MLP(hidden=4, layers=2, dropout=0.0, bins=0), "folds": 2, "repeats": 1, "max_rounds": 1}
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 3))
Y = np.stack([np.sin(6 * X[:, 0]) + 0.2 * RNG.normal(size=120), 50 * X[:, 1] + 5 * RNG.normal(size=120)], axis=1)


def fitted(y=Y, **changes):
    usual = {"coverage": (0.5, 0.8), "network": SMALL, "folds": 3, "repeats": 1, "max_rounds": 2, "random_state": 0}
    return MatchedRegressor(**usual | changes).fit(X, y)


# Stretch, by hand ----------------------------------------------------------------------------------------------------

# One row, two targets, reach 1 below and 2 above at the first level, 2 and 3 at the second.
ESTIMATE = Estimate(np.array([[10.0, 20.0]]), np.tile([[1.0, 2.0], [2.0, 3.0]], (1, 2, 1, 1)))


def test_factors_multiply_the_reach_and_each_level_contains_the_inner_one():
    factor = np.array([[1.0, 2.0], [4.0, 1.0]])
    lower, upper = Stretch(factor).bounds([ESTIMATE], (0.5, 0.8), joint=False)
    # Second target: 4 x 1 below at the inner level, 1 x 2 at the outer one, which is widened to 4.
    assert_allclose(lower, [[[9.0, 6.0], [16.0, 16.0]]])
    assert_allclose(upper, [[[12.0, 16.0], [28.0, 28.0]]])


def test_joint_boxes_have_factors_of_their_own():
    stretch = Stretch(np.ones((2, 2)), joint_factor=np.array([[1.0, 2.0], [3.0, 4.0]]))
    lower, upper = stretch.bounds([ESTIMATE], (0.5, 0.8), joint=True)
    assert_allclose(lower, [[[9.0, 6.0], [17.0, 12.0]]])
    assert_allclose(upper, [[[12.0, 16.0], [26.0, 32.0]]])


def test_without_ranks_there_are_no_joint_boxes():
    with pytest.raises(ValueError, match=r"joint=True needs ranks .* calibration other than None"):
        Stretch(np.ones((2, 2))).bounds([ESTIMATE], (0.5, 0.8), joint=True)


def test_cv_plus_takes_for_joint_boxes_the_largest_score_of_a_row():
    # Three rows left out by one team; at 50 % the rank is ceil(4 x .5) = 2, at 75 % it is 3.
    estimate = Estimate(np.array([[0.0, 0.0]]), np.ones((1, 2, 2, 2)))
    scores = np.array([[[1.0] * 2, [5.0] * 2], [[2.0] * 2, [1.0] * 2], [[3.0] * 2, [4.0] * 2]])
    stretch = Stretch(scores=[scores])
    _, apart = stretch.bounds([estimate], (0.5, 0.75), joint=False)
    _, together = stretch.bounds([estimate], (0.5, 0.75), joint=True)
    assert_allclose(apart, [[[2.0, 3.0], [4.0, 5.0]]])
    assert_allclose(together, [[[4.0, 5.0], [4.0, 5.0]]])  # the largest of each row: 5, 2, 4


# What a fit leaves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split", None])
def test_a_fit_leaves_factors_or_scores(calibration):
    model = fitted(calibration=calibration)
    if calibration == "cv+":
        assert model.factor_ is None
        assert [scores.shape for scores in model.scores_] == [(40, 2, 2)] * 3
        assert len(model.ensembles_) == 3
        return
    assert model.scores_ is None
    assert len(model.ensembles_) == 1
    assert model.factor_.shape == (2, 2)
    if calibration is None:
        assert_array_equal(model.factor_, np.ones((2, 2)))
        assert model.joint_factor_ is None
    else:
        assert (model.factor_ > 0).all()
        assert model.joint_factor_.shape == (2, 2)
        assert (model.joint_factor_ >= model.factor_).all()


def test_for_one_target_a_joint_box_is_its_interval():
    for calibration in ("cross", "cv+", "split"):
        model = fitted(Y[:, 0], calibration=calibration, repeats=2)
        for one, other in zip(model.predict_interval(X), model.predict_interval(X, joint=True), strict=True):
            assert_allclose(one, other)


@pytest.mark.parametrize("calibration", ["cross", "cv+"])
def test_the_out_of_fold_view_has_every_row(calibration):
    said = fitted(calibration=calibration).out_of_fold_
    assert said.prediction.shape == (120, 2)
    assert said.lower.shape == said.upper.shape == (120, 2, 2)
    assert np.isfinite(said.prediction).all()
    assert (np.diff(said.lower) <= 0).all()
    assert (np.diff(said.upper) >= 0).all()
    assert (said.lower <= said.prediction[..., None]).all()
    assert (said.prediction[..., None] <= said.upper).all()


def test_with_one_member_per_row_the_out_of_fold_bounds_hold_as_many_rows_as_the_rank_says():
    model = fitted(repeats=1)
    said = model.out_of_fold_
    inside = ((said.lower <= Y[..., None]) & (Y[..., None] <= said.upper)).sum(axis=0)  # (target, level)
    # The k-th score itself may fall on either side by rounding: scores are ranked in the units of training.
    assert (np.abs(inside - [coverage_rank(level, 120) for level in (0.5, 0.8)]) <= 1).all()


def test_rows_that_nobody_left_out_or_that_were_kept_for_ranks_are_missing_out_of_fold():
    fold = np.where(np.arange(120) < 30, -1, np.arange(120) % 3)
    assert_array_equal(np.isnan(fitted(folds=PredefinedSplit(fold)).out_of_fold_.prediction[:, 0]), fold == -1)
    kept = rows_kept_for_split(X, Y, coverage=(0.5, 0.8), folds=3)
    missing = np.isnan(fitted(calibration="split").out_of_fold_.prediction[:, 0])
    assert_array_equal(np.flatnonzero(missing), kept)


def test_literal_training_has_no_out_of_fold_view():
    assert fitted(folds=None, calibration=None).out_of_fold_ is None
    assert fitted(folds=None, calibration="split").out_of_fold_ is None


def test_the_out_of_fold_prediction_of_a_row_is_by_the_member_that_left_it_out():
    fold = np.arange(120) % 4
    model = fitted(Y[:, 0], folds=PredefinedSplit(fold), coverage=0.8)
    (ensemble,) = model.ensembles_
    for k in range(4):
        member = SMALL.build(1, (3,), 2).double().eval()
        member.set_state_of([0], ensemble.mean_team.state_of([k]))
        alone = replace(ensemble, mean_team=member, both=False).estimate(X[fold == k], torch.device("cpu"))
        assert_allclose(model.out_of_fold_.prediction[fold == k], alone.mean, rtol=1e-4, atol=1e-5)


# What the ranks promise ----------------------------------------------------------------------------------------------


def rows_kept_for_split(X, y, *, coverage, folds, calibration_size=0.2, seed=0):
    """The rows that calibration="split" keeps, found as `fit` finds them."""
    plan = Plan(coverage, folds, 1, "split", calibration_size, unit_range=False)
    return prepare(X, y.reshape(len(X), -1), None, plan, np.random.RandomState(seed)).ranked[0]


def exact_coverage(law, model, X):
    """The probability of falling inside the intervals, averaged over rows, for each level."""
    lower, upper = model.predict_interval(X)
    return np.array([law.exact_coverage(X, lo, up).mean() for lo, up in zip(lower.T, upper.T, strict=True)])


def test_split_covers_what_is_asked_with_many_rows_for_the_ranks():
    law, levels = synthetic.laws()["skewed"], np.array([0.5, 0.8, 0.9, 0.99])
    X, y = law.draw(4000, random_state=0)
    model = MatchedRegressor(levels, calibration="split", calibration_size=0.5, random_state=0, **TINY).fit(X, y)
    reached = exact_coverage(law, model, law.draw(20_000, random_state=1)[0])
    # Given the ranks of n rows, the coverage has the law Beta(k, n + 1 - k); X of 20,000 rows adds next to nothing.
    standard_error = np.sqrt(levels * (1 - levels) * (1 / 2000 + 1 / 20_000))
    assert (np.abs(reached - levels) < 4 * standard_error).all()


def test_split_covers_what_is_asked_on_average_over_fits_with_few_rows_for_the_ranks():
    # 19 rows for the ranks: k / 20 is exactly .5 and .9 on average over draws, and a rank too high or low is .05 off.
    law, levels, n_fits = synthetic.laws()["heteroscedastic"], np.array([0.5, 0.9]), 80
    models = [MatchedRegressor(levels, calibration="split", random_state=seed, **TINY) for seed in range(n_fits)]
    fit_together(models, [(*law.draw(95, random_state=seed), None) for seed in range(n_fits)])
    X_new, _ = law.draw(2000, random_state=10_000)
    reached = np.mean([exact_coverage(law, model, X_new) for model in models], axis=0)
    k = 20 * levels
    variance = k * (20 - k) / (20**2 * 21)  # of Beta(k, 20 - k)
    assert (np.abs(reached - levels) < 4 * np.sqrt(variance / n_fits)).all()


@pytest.mark.parametrize(
    ("law_name", "matching", "repeats"), [("heteroscedastic", "sigma", 1), ("skewed", "iqr", 1), ("skewed", "sigma", 3)]
)
def test_cross_ranks_cover_near_what_is_asked(law_name, matching, repeats):
    law, levels, n_rows, n_fits = synthetic.laws()[law_name], np.array([0.5, 0.8, 0.9, 0.95]), 600, 2
    models = [
        MatchedRegressor(levels, matching, network=SMALL, repeats=repeats, max_rounds=6, random_state=seed)
        for seed in range(n_fits)
    ]
    fit_together(models, [(*law.draw(n_rows, random_state=seed), None) for seed in range(n_fits)])
    X_new, _ = law.draw(4000, random_state=10_000)
    reached = np.mean([exact_coverage(law, model, X_new) for model in models], axis=0)
    standard_error = np.sqrt(levels * (1 - levels) / (n_rows * n_fits))
    assert (np.abs(reached - levels) < 3 * standard_error + 0.02).all()


def test_cv_plus_covers_at_least_its_promise_and_not_all():
    law, levels, n_rows = synthetic.laws()["heteroscedastic"], np.array([0.5, 0.8, 0.9, 0.95]), 400
    X, y = law.draw(n_rows, random_state=0)
    model = MatchedRegressor(levels, calibration="cv+", network=SMALL, folds=3, max_rounds=5, random_state=0).fit(X, y)
    reached = exact_coverage(law, model, law.draw(4000, random_state=1)[0])
    assert (reached >= 2 * levels - 1).all()
    assert (reached <= levels + 3 * np.sqrt(levels * (1 - levels) / n_rows) + 0.03).all()


def test_the_rows_kept_for_split_touch_nothing_but_the_factor():
    law = synthetic.laws()["many inputs"]
    X, y = law.draw(150, random_state=0)
    kept = rows_kept_for_split(X, y, coverage=(0.9,), folds=3)
    assert len(kept) == 30

    def fit(X, y):
        model = MatchedRegressor(
            0.9, calibration="split", network=SMALL, folds=3, repeats=1, max_rounds=2, random_state=0
        )
        return model.fit(X, y)

    one = fit(X, y)
    X_other, y_other = X.copy(), y.copy()
    X_other[kept] = 1e3 * np.random.default_rng(1).normal(size=(30, 10))
    y_other[kept] = -1e4 * np.random.default_rng(2).normal(size=30)
    other = fit(X_other, y_other)
    mine, yours = one.ensembles_[0], other.ensembles_[0]
    for team, same in ((mine.mean_team, yours.mean_team), (mine.interval_team, yours.interval_team)):
        for name, value in team.state_dict().items():  # weights and bin edges
            assert_array_equal(value, same.state_dict()[name])
    assert "code.start" in mine.mean_team.state_dict()
    assert_array_equal(mine.scale, yours.scale)
    for scaler, same in ((mine.inputs, yours.inputs), (mine.targets, yours.targets)):
        for name, value in vars(scaler).items():
            assert_array_equal(value, getattr(same, name))
    assert [r.interval_score for r in one.rounds_] == [r.interval_score for r in other.rounds_]  # the stop rule
    assert_array_equal(one.predict(X), other.predict(X))
    assert (one.factor_ != other.factor_).all()


def test_a_changed_training_row_does_change_the_teams():
    """The test above could fail: any other row is seen."""
    X, y = synthetic.laws()["many inputs"].draw(150, random_state=0)
    kept = rows_kept_for_split(X, y, coverage=(0.9,), folds=3)
    seen = np.setdiff1d(np.arange(150), kept)[0]
    states = []
    for shift in (0.0, 1.0):
        y[seen] += shift
        model = MatchedRegressor(0.9, calibration="split", random_state=0, **TINY | {"folds": 3}).fit(X, y)
        states.append(model.ensembles_[0].mean_team.state_dict())
    assert any((value != states[1][name]).any() for name, value in states[0].items())


@pytest.mark.parametrize("calibration", ["cross", "cv+", "split"])
def test_joint_boxes_hold_all_targets_together_as_often_as_asked(calibration):
    rng = np.random.default_rng(0)
    n_rows, n_new, p = 400, 4000, 0.8
    X = rng.uniform(size=(n_rows + n_new, 2))
    y = X @ rng.normal(size=(2, 3)) + rng.normal(size=(n_rows + n_new, 3)) * [0.1, 1.0, 5.0]
    model = MatchedRegressor(
        p, calibration=calibration, calibration_size=0.4, network=SMALL, folds=3, max_rounds=3, random_state=0
    ).fit(X[:n_rows], y[:n_rows])
    apart = model.predict_interval(X[n_rows:]).contains(y[n_rows:]).all(axis=1).mean()
    together = model.predict_interval(X[n_rows:], joint=True).contains(y[n_rows:]).all(axis=1).mean()
    n_ranks = 160 if calibration == "split" else n_rows
    assert abs(together - p) < 4 * np.sqrt(p * (1 - p) * (1 / n_ranks + 1 / n_new)) + 0.02
    assert apart < together - 0.1  # independent noise: about .8 to the third


@pytest.mark.parametrize("calibration", ["split", "cv+"])
def test_ranks_do_not_depend_on_the_unit_of_the_target(calibration: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + rng.normal(size=120)
    settings = {"network": MLP(hidden=8, bins=0), "folds": 3, "max_rounds": 1, "repeats": 1, "random_state": 0}
    covered = [
        MatchedRegressor(0.8, calibration=calibration, **settings)
        .fit(X, unit * y)
        .predict_interval(X)
        .contains(unit * y)
        for unit in (1.0, 1e-15)
    ]
    assert abs(covered[0].mean() - covered[1].mean()) <= 2 / 120
