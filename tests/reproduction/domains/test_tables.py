"""The runs on tables: their rows, lines whose numbers can be worked out again, and rounds seen from outside."""

import math
import statistics
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split

from coverwell import MLP, MatchedRegressor, Schedule, fit_together, metrics
from coverwell.baselines import MCDropoutRegressor
from coverwell.networks.mlp import MLPTeam
from reproduction.data.tables import load_table
from reproduction.domains import tables
from reproduction.domains.tables import RoundStudy, TableStudy, random_split, rows_of
from reproduction.methods import TABLE_METHODS, Method

SMALL = MLP(hidden=4, layers=2, dropout=0.0, bins=0)
SCHEDULE = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}
TINY = {"network": SMALL, "folds": None, "calibration": None}

pytestmark = pytest.mark.usefixtures("data_folder")


def tiny(settings=None, **changes):
    return Method("tiny", "Tiny", "extra", MatchedRegressor, {**TINY, **SCHEDULE, **(settings or {})}, **changes)


def lines_of(method, data="boston", trials=(0,), levels=(0.9,), **changes):
    """The lines of one unit; trials may be any."""
    study = TableStudy((method,), max(trials) + 1, "cpu", data=(data,), levels=levels, **changes)
    done = {("tiny", data, levels, trial) for trial in range(max(trials)) if trial not in trials}
    (unit,) = study.units(done)
    return unit.lines()


# Splits.


@pytest.mark.parametrize("n_rows", [5, 392, 506])
def test_a_random_split_is_scikit_learns_of_that_seed_80_to_20(n_rows):
    both = zip(random_split(n_rows, 7), train_test_split(np.arange(n_rows), test_size=0.2, random_state=7), strict=True)
    for own, twin in both:
        np.testing.assert_array_equal(own, twin)


def test_a_split_by_group_keeps_groups_whole_80_to_20():
    groups = np.repeat(np.arange(20), np.arange(1, 21))
    train, test = random_split(len(groups), 0, groups)
    assert sorted([*train, *test]) == list(range(len(groups)))
    assert not set(groups[train]) & set(groups[test])
    assert len(set(groups[test])) == 4


def test_a_trial_is_the_random_split_of_its_number_by_patient_if_asked():
    table, rows = load_table("boston"), rows_of("boston", 3)
    train, test = random_split(len(table.y), 3)
    np.testing.assert_array_equal(rows.X, table.X[train])
    np.testing.assert_array_equal(rows.y_test, table.y[test])
    assert rows.groups is None
    table, rows = load_table("parkinsons"), rows_of("parkinsons by patient", 3)
    train, test = random_split(len(table.y), 3, table.groups)
    np.testing.assert_array_equal(rows.groups, table.groups[train])
    np.testing.assert_array_equal(rows.X_test, table.X[test])


@pytest.mark.parametrize(("name", "n_rows"), [("red wine unique", 1359), ("white wine unique", 3961)])
def test_unique_wines_keep_the_first_of_equal_rows(name, n_rows):
    whole, unique = load_table(name.removesuffix(" unique")), tables.table(name)
    seen = dict.fromkeys(tuple(row) for row in np.column_stack([whole.X, whole.y]))
    assert len(unique.y) == n_rows
    np.testing.assert_array_equal(np.column_stack([unique.X, unique.y]), list(seen))


# Lines.


def test_a_line_has_all_fields_and_numbers_that_the_model_gives_again():
    levels = (0.5, 0.9)
    (line,) = lines_of(tiny(), trials=(1,), levels=levels)
    assert {*TableStudy.key(), *TableStudy.FIELDS.split()} < set(line)
    rows = rows_of("boston", 1)
    model = MatchedRegressor(levels, device="cpu", random_state=1, schedule=Schedule(**SCHEDULE), **TINY)
    lower, upper = model.fit(rows.X, rows.y).predict_interval(rows.X_test)
    assert line["rmse"] == metrics.rmse(rows.y_test, model.predict(rows.X_test))
    for k, level in enumerate(levels):
        assert line["coverage"][k] == metrics.coverage(rows.y_test, lower[:, k], upper[:, k])
        assert line["width"][k] == metrics.average_width(lower[:, k], upper[:, k])
        assert line["interval_score"][k] == metrics.interval_score(rows.y_test, lower[:, k], upper[:, k], level)
    assert (line["trial"], line["seed"], line["n_train"], line["n_test"]) == (1, 1, 404, 102)
    assert (line["rounds"], line["members"], line["stack"]) == (1, 1, 1)
    assert line["weighted_interval_score"] is None  # it needs nine levels


def test_where_each_level_has_its_own_fit_the_prediction_is_that_of_the_level_next_to_09():
    levels = (0.5, 0.85, 0.99)
    (line,) = lines_of(tiny(one_per_level=True), levels=levels)
    rows, how = rows_of("boston", 0), {"device": "cpu", "random_state": 0, "schedule": Schedule(**SCHEDULE), **TINY}
    models = [MatchedRegressor(level, **how) for level in levels]
    fit_together(models, [(rows.X, rows.y, None)] * 3)
    assert line["rmse"] == metrics.rmse(rows.y_test, models[1].predict(rows.X_test))
    assert line["width"] == [metrics.average_width(*model.predict_interval(rows.X_test)) for model in models]


def test_nine_levels_have_a_weighted_interval_score_and_epistemic_intervals_their_own_scores():
    settings = {"network": replace(SMALL, dropout=0.5), "max_epochs": 5}
    method = Method("mc", "MC", "extra", MCDropoutRegressor, settings, epistemic=True)
    (line,) = lines_of(method, levels=tables.LEVELS)
    assert line["weighted_interval_score"] > 0
    assert set(line["epistemic"]) == {"coverage", "width", "interval_score"}
    assert (np.array(line["epistemic"]["width"]) < line["width"]).all()


def test_trials_of_the_default_are_one_stack_whose_fits_have_all_levels():
    (method,) = (one for one in TABLE_METHODS if one.slug == "coverwell")
    study = TableStudy((method,), 2, "cpu", quick=True, data=("auto mpg",))
    lines = study.measure(method, ("auto mpg", tables.LEVELS), (0, 1))
    assert [line["stack"] for line in lines] == [2, 2]
    for line in lines:
        assert (np.diff(line["width"]) >= 0).all()
        assert (np.diff(line["coverage"]) >= 0).all()
        assert line["coverage"][-1] > 0.9
        assert line["weighted_interval_score"] > 0


class CrampedTeam(MLPTeam):
    """Asks for more memory than any machine has when it has more than two members."""

    def forward(self, x):
        if self.n_members > 2:
            torch.empty(2**60)
        return super().forward(x)


@dataclass(frozen=True)
class Cramped(MLP):
    def build(self, n_members, input_shape, n_outputs):
        return CrampedTeam(self, n_members, input_shape[0], n_outputs)


def test_a_stack_of_trials_that_is_too_large_is_fitted_as_two():
    cramped = tiny({"network": Cramped(hidden=4, layers=2, bins=0), "folds": 2, "repeats": 1})
    with pytest.warns(RuntimeWarning, match="The stack of 2 trials is fitted as two"):
        lines = lines_of(cramped, trials=(0, 1))
    assert [(line["trial"], line["stack"]) for line in lines] == [(0, 1), (1, 1)]


# Rounds.

PUBLISHED = ("sigma-fit-published", "iqr-fit-published")


@pytest.fixture(scope="module")
def by_round(data_folder):
    """One quick trial of every method, on auto mpg."""
    units = RoundStudy(trials=1, device="cpu", quick=True, data=("auto mpg",)).units()
    return {unit.method.slug: line for unit in units for line in unit.lines()}


def plain_model(slug):
    """The model of a line, not yet fitted, built without the study's code."""
    method = next(one for one in TABLE_METHODS if one.slug == slug)
    return method.build(0.9, 0, "cpu", quick=True).set_params(shape="interval")


def by_hand(y, prediction, lower, upper):
    return {
        "rmse": math.sqrt(statistics.fmean((y - prediction) ** 2)),
        "coverage": statistics.fmean((lower <= y) & (y <= upper)),
        "width": statistics.fmean(upper - lower),
    }


def test_each_round_has_a_value_of_each_measure_on_test_rows_and_on_own_rows(by_round):
    assert set(by_round) == {"sigma-fit", "iqr-fit", *PUBLISHED}
    for line in by_round.values():
        assert (line["levels"], line["n_train"], line["n_test"]) == ([0.9], 313, 79)
        for rows in ("test", "own"):
            assert list(line[rows]) == ["rmse", "coverage", "width"]
            assert np.isfinite(list(line[rows].values())).all()
            assert {len(values) for values in line[rows].values()} == {3}  # as many as a quick run has


@pytest.mark.parametrize("slug", PUBLISHED)
def test_as_published_the_last_round_is_what_a_model_fitted_without_looking_on_predicts(by_round, slug):
    rows = rows_of("auto mpg", 0)
    model = plain_model(slug).fit(rows.X, rows.y)
    expected = by_hand(rows.y_test, model.predict(rows.X_test), *model.predict_interval(rows.X_test))
    assert {name: values[-1] for name, values in by_round[slug]["test"].items()} == pytest.approx(expected, rel=1e-9)
    own = {name: [float(np.squeeze(getattr(one, name))) for one in model.rounds_] for name in tables.ROUND_MEASURES}
    assert by_round[slug]["own"] == own


def test_by_default_test_rows_are_measured_with_the_intervals_of_i_in_each_round_without_ranks(by_round):
    rows, seen = rows_of("auto mpg", 0), []

    def look(present):
        ((team,),) = present
        estimate = team.estimate(rows.X_test)
        mean, (below, above) = estimate.mean[:, 0], estimate.half_width[:, 0, :, 0].T
        seen.append(by_hand(rows.y_test, mean, mean - below, mean + above))

    fit_together([plain_model("sigma-fit")], [(rows.X, rows.y, None)], on_round=look)
    for name, values in by_round["sigma-fit"]["test"].items():
        assert values == pytest.approx([one[name] for one in seen], rel=1e-9)


def test_the_papers_levels_are_asked():
    units = RoundStudy(device="cpu", data=("boston", "parkinsons", "crime")).units()
    assert {unit.place for unit in units} == {("boston", (0.95,)), ("parkinsons", (0.99,)), ("crime", (0.9,))}
