"""Outcomes: scores worked out by hand, rows as users give them, and the model's own predictions and warnings."""

import warnings
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import make_classification

from coverwell import LSTM, MLP, MatchedClassifier, MatchedForecaster, MatchedRegressor, Schedule, metrics
from coverwell.evaluation import (
    SIZE,
    ClassOutcome,
    Outcome,
    class_outcome_of,
    forecast_outcome,
    outcome_of,
    place_of_level,
)
from coverwell.streaming import TableFiles

BRIEF = Schedule(max_rounds=1)

N_TRAIN = 40


def by_hand(n=10, **more):
    """The first target is inside at all levels in 8 of 10 rows, the second in all rows at the outer level alone."""
    y = np.zeros((n, 2))
    y[: n // 5, 0], y[:, 1] = 9.0, 2.0
    half_width = np.broadcast_to([1.0, 3.0], (n, 2, 2))
    return Outcome(y, np.zeros((n, 2)), -half_width, half_width, (0.5, 0.8), ("rent", "price"), **more)


@pytest.fixture(scope="module")
def model():
    """Of two named targets at two levels, fitted to a data frame."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.normal(size=N_TRAIN), "city": rng.choice(["Rome", "Oslo"], N_TRAIN)})
    made = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), folds=2, repeats=1, schedule=BRIEF, random_state=0)
    return made.fit(frame, targets(rng))


def targets(rng, n=N_TRAIN):
    return pd.DataFrame({"rent": 5 + rng.normal(size=n), "price": 900 + rng.normal(size=n)})


def rows(n=12):
    return pl.DataFrame(
        {
            "area": [None, *np.arange(1.0, n)],
            "city": ["Rome", None, *["Oslo"] * (n - 2)],
            "garden": [True, None, *[False] * (n - 2)],
            "listed": [date(2024, 1, 31), None, *[date(2024, 2, 1)] * (n - 2)],
        }
    )


def test_every_target_at_every_level_has_its_scores():
    views = by_hand().views
    assert [(view.name, view.asked) for view in views] == [("rent", 0.5), ("rent", 0.8), ("price", 0.5), ("price", 0.8)]
    assert [view.scores["coverage"] for view in views] == [0.8, 0.8, 0.0, 1.0]
    assert [view.scores["width"] for view in views] == [2.0, 6.0, 2.0, 6.0]
    assert views[0].scores["rmse"] == pytest.approx((2 * 81 / 10) ** 0.5)
    assert views[1].scores["interval_score"] == pytest.approx(6 + 2 / 0.2 * 2 * 6 / 10)
    assert views[0].missed_by.tolist() == [8.0] * 2 + [0.0] * 8
    assert by_hand().view(1, 0).name == "price"


def test_the_band_allows_for_the_rows_whose_ranks_set_the_widths():
    ranked, unranked = by_hand(200, n_ranked=40).view(0, 1), by_hand(200).view(0, 1)
    assert ranked.scores["band"] == metrics.coverage_band(0.8, 200, 40) != unranked.scores["band"]
    assert ranked.scores["expected_calibration_error"] == metrics.expected_calibration_error(0.8, 200, 40)
    assert ranked.is_expected
    assert not by_hand(200).view(1, 0).is_expected


def test_rows_without_a_target_count_for_nothing():
    whole, half = by_hand(), np.repeat(["a", "b"], 5).astype(object)
    y = whole.y.copy()
    y[:2, 0] = np.nan
    view = replace(whole, y=y, groups={"g": half}).view(0, 0)
    assert len(view.y) == len(view.inside) == 8
    assert view.scores["coverage"] == 1.0
    assert [(part.values, part.n_rows, part.n_inside) for part in view.slices] == [("a", 3, 3), ("b", 5, 5)]


def test_a_view_has_its_short_pairs_its_coverage_by_size_and_its_worst_slab():
    n = 400
    floor, side = np.repeat(["high", "low"], 200).astype(object), np.tile(["left", "right"], 200).astype(object)
    half, X = np.linspace(1, 2, n), np.random.default_rng(0).normal(size=(n, 2))
    missed = (floor == "low") & (side == "left") & (np.arange(n) % 4 == 0)
    y = np.where(missed, 9.0, 0.0)[:, None]
    bounds = (-half[:, None, None], half[:, None, None])
    outcome = Outcome(y, 0 * y, *bounds, (0.9,), ("y",), features={"floor": floor, "side": side}, numbers=X)
    (view,) = outcome.views
    assert [part.name for part in view.pairs] == ["floor low & side left"]
    assert (view.pairs.slices[0].n_rows, view.pairs.slices[0].n_inside, view.pairs.n_searched) == (100, 50, 4)
    known = view.y, view.lower, view.upper
    assert view.by_size == metrics.coverage_by_size(*known).tolist()
    assert view.by_size[0] == 1.0 > view.by_size[-1]
    order = np.random.default_rng(0).permutation(n)
    slab = metrics.worst_slab_coverage(X[order], *(values[order] for values in known), n_directions=200)
    assert view.worst_slab == slab
    assert replace(outcome, numbers=None).views[0].worst_slab is None
    few = replace(outcome, y=np.where(np.arange(n)[:, None] < 99, y, np.nan))
    assert few.views[0].worst_slab is None


def test_some_targets_stay_what_they_are():
    times = np.arange(20).reshape(10, 2)
    price = by_hand(times=times, static=by_hand()).of_targets([1])
    assert price.target_names == ("price",)
    assert price.views[1].scores == by_hand().view(1, 1).scores
    assert price.views[0].times.tolist() == times[:, 1].tolist()
    assert price.views[0].static.scores["coverage"] == 0.0


def test_an_outcome_has_the_predictions_of_the_model(model):
    X, y = pl.DataFrame({"area": np.linspace(-1, 1, 12), "city": "Rome"}), targets(np.random.default_rng(1), 12)
    outcome, (lower, upper) = outcome_of(model, X, y), model.predict_interval(X)
    np.testing.assert_array_equal(outcome.prediction, model.predict(X))
    np.testing.assert_array_equal(outcome.lower, lower)
    np.testing.assert_array_equal(outcome.upper, upper)
    assert (outcome.levels, outcome.target_names, outcome.n_ranked) == ((0.5, 0.8), ("rent", "price"), N_TRAIN)
    assert [place_of_level(outcome.levels, coverage) for coverage in (None, 0.5, 0.8)] == [1, 0, 1]
    with pytest.raises(ValueError, match=r"coverage 0\.7 was not fitted; the fitted levels are 0\.5, 0\.8"):
        place_of_level(outcome.levels, 0.7)


def test_warnings_of_the_model_are_kept_once_each_and_issued_again(model):
    X = pd.DataFrame({"area": np.full(12, 1e6), "city": "Rome"})
    with pytest.warns(UserWarning, match="outside the range") as issued:
        outcome = outcome_of(model, X, np.zeros((12, 2)))
    assert list(outcome.warnings) == [str(warning.message) for warning in issued]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome_of(model, X.assign(area=0.0), np.zeros((12, 2))).warnings == ()


@pytest.mark.parametrize("frame", [rows(), rows().to_pandas()], ids=["polars", "pandas"])
def test_columns_of_all_kinds_have_their_own_sign_for_a_missing_value(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = MatchedRegressor(0.5, network=MLP(hidden=4), folds=2, repeats=1, schedule=BRIEF, random_state=0)
        features = outcome_of(made.fit(frame, np.arange(12.0)), frame, np.arange(12.0)).features
    assert np.isnan(features["area"][0])
    assert features["city"][:3].tolist() == ["Rome", None, "Oslo"]
    assert features["garden"][:3].tolist() == ["true", None, "false"]
    assert features["listed"][0] == np.datetime64("2024-01-31")
    assert np.isnat(features["listed"][1])


def test_a_group_replaces_a_feature_of_its_name(model):
    X = pd.DataFrame({"area": np.zeros(12), "city": "Rome"})
    outcome = outcome_of(model, X, np.zeros((12, 2)), groups={"city": [None, *range(11)]})
    assert list(outcome.features) == ["area"]
    assert outcome.groups["city"].tolist()[:3] == [None, "0", "1"]


def test_targets_of_a_data_frame_are_taken_by_name(model):
    X, y = pd.DataFrame({"area": np.zeros(12), "city": "Rome"}), targets(np.random.default_rng(0), 12)
    swapped = y[["price", "rent"]]
    for given in (y, swapped, pl.DataFrame(swapped.to_dict("list")), y.to_numpy()):
        np.testing.assert_array_equal(outcome_of(model, X, given).y, y.to_numpy())
    with pytest.raises(ValueError, match="y must have the targets rent, price, as in training, got rent, cost"):
        outcome_of(model, X, y.rename(columns={"price": "cost"}))


def test_bad_rows_are_refused_in_one_line(model, tmp_path):
    X, y = pd.DataFrame({"area": np.zeros(12), "city": "Rome"}), np.zeros((12, 2))
    gap = np.where(np.arange(24).reshape(12, 2) == 15, np.nan, y)
    for message, bad in {
        r"y must be finite, but row 7 \(counted from 0\) is not": {"y": gap},
        r"y must lie within 1e\+150 of zero, got 1e\+160": {"y": np.where(np.isnan(gap), 1e160, gap)},
        "X and y must have the same rows, got 12 and 11": {"y": y[1:]},
        r"y must have 2 targets for each row, as in training, got shape \(12, 1\)": {"y": y[:, 0]},
        "y must hold numbers": {"y": np.full((12, 2), "a")},
        "group 'block' must have one value for each of 12 rows": {"groups": {"block": [1, 2]}},
        r"group 'pair' must have one value .* got shape \(12, 2\)": {"groups": {"pair": y}},
        "row_numbers must be a whole number for each of 12 rows": {"row_numbers": [1, 2]},
        "quantiles must be a whole number of at least 2, got 1": {"quantiles": 1},
        "must have all columns": {"X": X[["area"]]},
        "boxes are for models of images, and this one is of tables": {"boxes": True},
    }.items():
        given = {"X": X, "y": y, **bad}
        with pytest.raises(ValueError, match=message):
            outcome_of(model, given.pop("X"), given.pop("y"), **given).views[0].slices  # noqa: B018
    rows().write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match="rows that are in memory, got TableFiles"):
        outcome_of(model, TableFiles([tmp_path / "rows.parquet"]), y)
    for made, name in (("model", "str"), ({}, "dict")):
        with pytest.raises(TypeError, match=f"expected a fitted regressor, classifier or forecaster, got {name}"):
            outcome_of(made, X, y)


@pytest.fixture(scope="module")
def forecaster():
    made = MatchedForecaster(coverage=[0.8, 0.9], past=6, horizon=2, network=LSTM(hidden=4), schedule=BRIEF, folds=2)
    return made.set_params(random_state=0).fit(hourly(80))


def hourly(n):
    values = np.sin(np.arange(n) / 4) + 0.1 * np.random.default_rng(0).normal(size=n)
    return pd.Series(values, index=pd.date_range("2024-01-01 10:00", periods=n, freq="h"), name="load")


def test_a_forecast_has_the_scores_of_the_backtest_at_every_step_ahead(forecaster):
    series = hourly(120)
    outcome, backtest = forecast_outcome(forecaster, series), forecaster.backtest(series)
    assert outcome.target_names == ("load, 1 step ahead", "load, 2 steps ahead")
    for view in outcome.views:
        for static, of in ((False, view), (True, view.static)):
            scores = backtest.scores(view.target + 1, view.asked, static=static)
            assert {name: of.scores[name] for name in scores} == pytest.approx(scores)
        assert view.times[0] == np.datetime64("2024-01-04T18") + np.timedelta64(view.target, "h")
        assert len(view.y) == 40 - view.target
    assert outcome.n_seen == 0
    assert forecast_outcome(forecaster, series, series.index[70]).n_seen == 10
    np.testing.assert_array_equal(outcome.inputs["load"], series[80:])


def test_stamps_of_any_kind_become_dates_by_the_local_clock():
    for index in (
        pd.date_range("2024-01-01 10:00", periods=120, freq="h", tz="Europe/Rome"),
        pd.period_range("2024-01-01 10:00", periods=120, freq="h"),
    ):
        series = hourly(120).set_axis(index)
        made = MatchedForecaster(coverage=0.8, past=6, network=LSTM(hidden=4), schedule=BRIEF, folds=2, random_state=0)
        assert forecast_outcome(made.fit(series[:80]), series).times[0, 0] == np.datetime64("2024-01-04T18")


def test_regressors_and_forecasters_have_functions_of_their_own(model, forecaster):
    with pytest.raises(TypeError, match="expected a fitted regressor, got MatchedForecaster; see forecast_outcome"):
        outcome_of(forecaster, np.zeros((12, 2)), np.zeros(12))
    with pytest.raises(TypeError, match="expected a fitted forecaster, got MatchedRegressor; see outcome_of"):
        forecast_outcome(model, hourly(100))


# Of classes ----------------------------------------------------------------------------------------------------------


def sets_by_hand(**more):
    """Four rows of three classes at two levels; the last set would be empty at .5, and b is covered least."""
    p = [[0.8, 0.1, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.4, 0.3, 0.3]]
    low = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]]
    high = [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1]]
    alone = np.array([[False, False]] * 3 + [[True, False]])
    members = np.stack([low, high], axis=2).astype(bool)
    y, about = np.array(["a", "b", "c", "a"]), {"alone": alone, "n_ranked": 50, **more}
    return ClassOutcome(y, np.array(p), members, np.array(["a", "b", "c"]), (0.5, 0.8), ("kind",), **about)


def test_sets_have_the_scores_of_their_metrics():
    outcome = sets_by_hand()
    assert outcome.prediction.tolist() == ["a", "a", "c", "a"]
    low, high = (view.scores for view in outcome.views)
    assert (low["coverage"], low["size"], high["coverage"], high["size"]) == (0.75, 1.0, 1.0, 2.0)
    assert low["coverage_if_empty"] == 0.5  # the last row's class is there only because it is the likeliest
    given = (outcome.y, outcome.probability, outcome.classes)
    scores = {"accuracy": 0.75, "brier_score": (0.06 + 0.62 + 0.24 + 0.54) / 4, "log_loss": metrics.log_loss(*given)}
    assert {name: outcome.scores[name] for name in scores} == pytest.approx(scores)
    assert high["band"] == metrics.coverage_band(0.8, 4, 50)


def test_sets_are_judged_by_class_by_size_by_feature_and_by_group():
    view = sets_by_hand(features={"size": np.array([1.0, 1, 2, 2])}, groups={"kind": np.array(["x"] * 4)}).views[0]
    found = [(part.name, part.n_inside, part.n_rows) for part in view.slices]
    by_class = [("kind a", 2, 2), ("kind b", 0, 1), ("kind c", 1, 1)]
    assert found == [*by_class, ("size 1", 1, 2), ("size 2", 2, 2), ("classes in the set 1", 3, 4)]
    assert [part.values for part in view.slices.of("kind")] == ["a", "b", "c"]
    assert [(part.values, part.n_rows) for part in sets_by_hand().views[1].slices.of(SIZE)] == [
        ("1", 1),
        ("2", 2),
        ("3", 1),
    ]


def test_coverage_above_the_band_is_expected_where_no_set_may_be_empty():
    y, p = np.zeros(200, dtype=int), np.tile([0.9, 0.1], (200, 1))
    members = np.tile([[True], [False]], (200, 1, 1))
    alone = (np.arange(200) < 20)[:, None]  # 180 of 200 are inside without them
    given = (y, p, members, np.array([0, 1]), (0.9,), ("y",))
    assert ClassOutcome(*given, alone=alone).views[0].is_expected
    assert not ClassOutcome(*given).views[0].is_expected


def test_a_classifier_is_evaluated_as_it_predicts():
    X, y = make_classification(
        120, 3, n_informative=3, n_redundant=0, n_classes=3, n_clusters_per_class=1, random_state=0
    )
    y = np.array(["a", "b", "c"])[y]
    brief = {"schedule": Schedule(max_rounds=1), "repeats": 1, "folds": 2, "companions": (), "random_state": 0}
    model = MatchedClassifier([0.5, 0.9], network=MLP(hidden=4), **brief).fit(X[:60], y[:60])
    outcome = class_outcome_of(model, X[60:], y[60:], groups={"half": np.arange(60) < 30})
    found = model.predict_set(X[60:])
    np.testing.assert_array_equal(outcome.members, found.members)
    np.testing.assert_array_equal(outcome.prediction, model.predict(X[60:]))
    assert [view.scores["coverage"] for view in outcome.views] == found.contains(y[60:]).mean(axis=0).tolist()
    empty = ~model.predict_set(X[60:], allow_empty=True).members.any(axis=1)
    np.testing.assert_array_equal(outcome.alone, empty)
    assert outcome.n_ranked == 60
    assert list(outcome.views[0].parts) == ["y", "half", "column 0", "column 1", "column 2", SIZE]
    with pytest.raises(ValueError, match="X and y must have the same rows, got 2 and 1"):
        class_outcome_of(model, X[:2], ["a"])
    with pytest.raises(TypeError, match="expected a fitted regressor, got MatchedClassifier; see class_outcome_of"):
        outcome_of(model, X[:2], [1.0, 2.0])
    with pytest.raises(TypeError, match="expected a fitted classifier, got MatchedRegressor; see outcome_of"):
        class_outcome_of(MatchedRegressor(0.5, network=MLP(hidden=4), **brief).fit(X[:60], X[:60, 0]), X[:2], [1, 2])
