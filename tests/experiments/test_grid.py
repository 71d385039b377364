"""The grid: what is missing, and how it is cut."""

import pytest
from coverwell.experiments.grid import Grid
from coverwell.experiments.methods import METHODS, Method, methods_from

from coverwell import MLP, MatchedRegressor

LEVELS = (0.5, 0.9)
NETWORK = MLP(hidden=4, layers=2, dropout=0.0, bins=0)
TINY = {"network": NETWORK, "folds": None, "calibration": None, "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}


def tiny(slug="tiny", **changes):
    settings = TINY | changes.pop("settings", {})
    return Method(slug=slug, title=slug, kind="extra", regressor=MatchedRegressor, settings=settings, **changes)


def grid(*methods, trials=2, data=("boston",), **changes):
    return Grid(methods or (tiny(),), data, trials, **{"levels": LEVELS, "device": "cpu"} | changes)


def keys(asked):
    return {(m.slug, d, t, asked.levels) for m in asked.methods for d in asked.data for t in range(asked.trials)}


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def test_units_are_all_that_is_asked_and_not_done():
    asked = grid(tiny("a"), tiny("b"), trials=3, data=("boston", "auto mpg"))
    done = {("a", "boston", 1, LEVELS), ("b", "auto mpg", 0, LEVELS), ("b", "auto mpg", 1, (0.9,)), ("c", "x", 0, ())}
    left = {(unit.method.slug, unit.data, trial, unit.levels) for unit in asked.units(done) for trial in unit.trials}
    assert left == keys(asked) - done
    assert asked.units(keys(asked)) == []


def test_on_a_cpu_five_trials_are_one_stack_unless_one_trial_has_many_networks():
    few, many = tiny("few"), tiny("many", members=10)
    stacks = {slug: [] for slug in ("few", "many")}
    for unit in grid(few, many, trials=12).units():
        stacks[unit.method.slug].append(unit.trials)
    assert stacks["few"] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11)]
    assert sorted(stacks["many"]) == [(trial,) for trial in range(12)]


def test_one_network_per_level_makes_many_networks():
    (published,) = methods_from(["sigma-fit-published"])
    assert {unit.trials for unit in grid(published, levels=tuple(k / 20 for k in range(1, 11))).units()} == {(0,), (1,)}
    assert {unit.trials for unit in grid(published).units()} == {(0, 1)}


def test_on_other_devices_all_trials_are_one_stack():
    (unit,) = grid(tiny("many", members=50), trials=20, device="meta").units()
    assert unit.trials == tuple(range(20))


def test_what_is_done_does_not_change_who_else_is_fitted_together():
    done = {("tiny", "boston", trial, LEVELS) for trial in (0, 1, 2, 6)}
    assert {unit.trials for unit in grid(trials=10).units(done)} == {(3, 4), (5, 7, 8, 9)}


def test_the_longest_units_come_first():
    asked = Grid(METHODS, ("auto mpg", "parkinsons", "crime"), trials=5, device="cpu")
    costs = [unit.cost for unit in asked.units()]
    assert costs == sorted(costs, reverse=True)
    assert asked.units()[0].data == "parkinsons"
