"""The runs of the comparison: their rows, and lines whose numbers can be worked out again."""

from dataclasses import replace

import numpy as np
import pytest
from coverwell.experiments import random_split, split_by_group, study
from coverwell.experiments.methods import Method
from coverwell.experiments.results import FIELDS, append, read_results

from coverwell import MLP, MatchedRegressor, datasets, metrics
from coverwell.baselines import MCDropoutRegressor

SMALL = MLP(hidden=4, layers=2, dropout=0.0, bins=0)
TINY = {"network": SMALL, "folds": None, "calibration": None, "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def tiny(**changes):
    return Method(slug="tiny", title="Tiny", kind="extra", regressor=MatchedRegressor, settings=TINY, **changes)


def test_a_trial_is_the_random_split_of_its_number():
    table, rows = datasets.load("boston"), study.rows_of("boston", 3)
    train, test = random_split(len(table.y), 3)
    np.testing.assert_array_equal(rows.X, table.X[train])
    np.testing.assert_array_equal(rows.y_test, table.y[test])
    assert rows.groups is None


def test_by_patient_the_split_is_by_group_and_the_groups_go_to_the_fit():
    table, rows = datasets.load("parkinsons"), study.rows_of("parkinsons by patient", 3)
    train, test = split_by_group(table.groups, 3)
    np.testing.assert_array_equal(rows.groups, table.groups[train])
    np.testing.assert_array_equal(rows.X, table.X[train])
    np.testing.assert_array_equal(rows.X_test, table.X[test])


@pytest.mark.parametrize(("name", "n_rows"), [("red wine unique", 1359), ("white wine unique", 3961)])
def test_unique_wines_keep_the_first_of_equal_rows(name, n_rows):
    whole, unique = datasets.load(name.removesuffix(" unique")), study.table(name)
    seen = dict.fromkeys(tuple(row) for row in np.column_stack([whole.X, whole.y]))
    assert len(unique.y) == n_rows
    np.testing.assert_array_equal(np.column_stack([unique.X, unique.y]), list(seen))


def test_a_line_has_all_fields_and_numbers_that_the_model_gives_again(tmp_path):
    levels = (0.5, 0.9)
    (line,) = study.lines_of(tiny(), "boston", [1], levels=levels, device="cpu")
    append(tmp_path / "results.jsonl", [line])
    assert read_results(tmp_path / "results.jsonl") == [line]
    assert set(line) == set(FIELDS)
    rows = study.rows_of("boston", 1)
    model = MatchedRegressor(levels, device="cpu", random_state=1, **TINY).fit(rows.X, rows.y)
    lower, upper = model.predict_interval(rows.X_test)
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
    (line,) = study.lines_of(tiny(one_per_level=True), "boston", [0], levels=levels, device="cpu")
    rows = study.rows_of("boston", 0)
    models = [MatchedRegressor(level, device="cpu", random_state=0, **TINY) for level in levels]
    study.fit_together(models, [(rows.X, rows.y, None)] * 3)
    assert line["rmse"] == metrics.rmse(rows.y_test, models[1].predict(rows.X_test))
    widths = [metrics.average_width(*model.predict_interval(rows.X_test)) for model in models]
    assert line["width"] == widths


def test_trials_of_one_stack_are_those_of_their_own_rows():
    lines = study.lines_of(tiny(), "boston", [0, 4], levels=(0.9,), device="cpu")
    assert [(line["trial"], line["seed"], line["stack"]) for line in lines] == [(0, 0, 2), (4, 4, 2)]
    assert lines[0]["rmse"] != lines[1]["rmse"]
    assert lines[0]["seconds"] == lines[1]["seconds"]


def test_nine_levels_have_a_weighted_interval_score_and_a_second_reading_its_own_scores():
    settings = {"network": replace(SMALL, dropout=0.5), "max_epochs": 5}
    method = Method("mc", "MC", "extra", MCDropoutRegressor, settings=settings, epistemic=True)
    (line,) = study.lines_of(method, "boston", [0], levels=study.STUDY_LEVELS, device="cpu")
    assert line["weighted_interval_score"] > 0
    doubt = line["epistemic"]
    assert set(doubt) == {"coverage", "width", "interval_score"}
    assert all(narrow < wide for narrow, wide in zip(doubt["width"], line["width"], strict=True))


def test_names_of_data_may_have_dashes_and_upper_case():
    assert study.data_from(["Auto-MPG", "red_wine unique"]) == ("auto mpg", "red wine unique")
    with pytest.raises(ValueError, match=r"one of crime, .*white wine unique; got 'autos'"):
        study.data_from(["autos"])
    with pytest.raises(ValueError, match="each data set must be named once, got red wine"):
        study.data_from(["red wine", "boston", "red-wine"])


def test_levels_rise_and_lie_between_0_and_1():
    assert study.levels_from([0.9, 0.5]) == (0.5, 0.9)
    for level in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            study.levels_from([0.5, level])
    with pytest.raises(ValueError, match=r"each level must be named once, got 0\.5"):
        study.levels_from([0.5, 0.50])
