"""The ablation: every candidate changes what it says, on the tables where it can; ratios are over shared splits."""

from dataclasses import replace

import numpy as np
import pytest
import selection
from result_lines import append
from selection import ATOMS, CANDIDATES, DEFAULT, EQUAL_ROWS, SECOND

from coverwell import MatchedRegressor, companions, estimator, matched
from coverwell.options import Schedule


@pytest.fixture
def data_folder(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def training_of(candidate):
    with CANDIDATES[candidate].in_place() as changes:
        return MatchedRegressor(**selection.as_arguments(changes)).training_for(1000)


def test_candidates_change_one_thing_of_the_training_and_leave_no_trace():
    default = training_of(DEFAULT)
    mean, interval, second = default.network, default.interval_network, default.second
    wider = training_of("twice as wide")
    assert wider.network == replace(mean, hidden=256)
    assert wider.interval_network == replace(interval, hidden=128)
    assert wider.second.network == second.network
    without = training_of("no column scales")
    assert [mean.scaled, interval.scaled, second.network.scaled] == [True, True, True]
    assert not any([without.network.scaled, without.interval_network.scaled, without.second.network.scaled])
    assert training_of("bins for waves").network == replace(mean, waves=0, bins=8)
    assert training_of("4 layers").interval_network == replace(interval, layers=4)
    assert default.second.network.bins > 0
    assert training_of("no second network") == replace(
        default, second=None, recipe=replace(default.recipe, max_rounds=6)
    )
    assert training_of("ReLU").network == replace(mean, activation="relu")
    assert training_of("dropout").network == replace(mean, dropout=0.1)
    assert (training_of("equal rounds").recipe.growth, default.recipe.growth) == (1, 2)
    assert (training_of("one long round").recipe.max_rounds, default.recipe.max_rounds) == (1, 4)
    assert not training_of("shaped by I alone").both
    assert default.both
    assert training_of(DEFAULT) == default


def test_equal_rows_are_found_by_default_alone():
    X = np.append(np.arange(30.0), 4.0)[:, None]
    with CANDIDATES["equal rows apart"].in_place():
        assert estimator.equal_rows(X) is None
    np.testing.assert_array_equal(estimator.equal_rows(X), np.append(np.arange(30), 4))


@pytest.mark.usefixtures("data_folder")
def test_what_a_candidate_removes_is_not_used(monkeypatch):
    """One short round, after which the scores still fall: a second network follows. Red wine has grades and copies."""
    short = {"mean_epochs": 1, "interval_epochs": 1, "max_rounds": 1}
    monkeypatch.setattr(matched, "DEFAULTS", {**matched.DEFAULTS, **short})
    monkeypatch.setattr(matched, "SECOND_LONGER", 1)
    monkeypatch.setattr(companions, "N_TREES", 5)
    used = {
        candidate: set(selection.run(candidate, "red wine", [100], "cpu", {})[0]["used"][0])
        for candidate in (DEFAULT, "no atoms", "no second network", "no local shape")
    }
    everything = {ATOMS, EQUAL_ROWS, SECOND}
    assert used == {
        DEFAULT: everything,
        "no atoms": everything - {ATOMS},
        "no second network": everything - {SECOND},
        "no local shape": everything,
    }


def line(candidate, data, splits, *, rmse, device="CPU", seconds=1.0, used=()):
    measured = dict.fromkeys(("rmse", "score", "weighted", "coverage"), rmse)
    about = {
        "candidate": candidate,
        "data": data,
        "splits": splits,
        "seconds": seconds,
        "used": [list(used)] * len(rmse),
    }
    return {**about, **measured, "device": device, "versions": {"coverwell": "1"}}


def test_ratios_are_over_the_splits_that_both_have_and_seconds_over_one_device():
    lines = [
        line(DEFAULT, "boston", [100, 101], rmse=[2.0, 4.0], seconds=3.0),
        line(DEFAULT, "boston", [102], rmse=[50.0], device="GPU"),
        line(DEFAULT, "crime", [100], rmse=[1.0], used=[ATOMS]),
        line("Sigma Fit", "boston", [101], rmse=[5.0], seconds=6.0),
        line("Sigma Fit", "crime", [100], rmse=[0.8], device="GPU"),
        line("no atoms", "crime", [100], rmse=[4.0]),
    ]
    found = selection.Scores(lines)
    assert found.ratio("rmse", "Sigma Fit", "boston") == 5 / 4
    assert found.ratio("seconds", "Sigma Fit", "boston") == 2
    assert found.ratio("seconds", "Sigma Fit", "crime") is None
    assert found.over("rmse", "Sigma Fit", ["boston", "crime"]) == "1.000"  # 5/4 and 4/5
    assert found.over("rmse", "no atoms", ["boston", "crime"]) == "2.000"  # boston has none: 1 and 4
    assert found.over("seconds", "Sigma Fit", ["boston", "crime"]) == "2.000 [1]"
    assert "| no atoms  | 4.000 | =" in selection.report(lines)


@pytest.mark.usefixtures("data_folder")
def test_large_tables_come_first_and_nothing_runs_twice_or_where_it_is_the_default(tmp_path):
    path = tmp_path / "selection.jsonl"
    append(path, line(DEFAULT, "red wine", [100], rmse=[1.0], used=[ATOMS]))
    append(path, line("no atoms", "red wine", [101], rmse=[1.0]))
    jobs = list(selection.jobs_of([DEFAULT, "no atoms"], ["boston", "red wine"], [100, 101, 102], 2, path))
    assert jobs == [
        (DEFAULT, "red wine", [101, 102]),
        ("no atoms", "red wine", [100, 102]),
        (DEFAULT, "boston", [100, 101]),
        (DEFAULT, "boston", [102]),
    ]


def test_schedules_of_candidates_are_complete():
    with CANDIDATES["equal rounds"].in_place() as changes:
        schedule = selection.as_arguments(changes)["schedule"]
    assert schedule == Schedule(10, 10, 100, 6, learning_rate=1e-3, growth=1.0)
