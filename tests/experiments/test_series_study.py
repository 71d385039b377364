"""The runs of Table 2: which there are, and that a line says what happened."""

import json

import numpy as np
import pytest
from coverwell.experiments.methods import named_among
from coverwell.experiments.series_data import SERIES, problem
from coverwell.experiments.series_methods import SERIES_METHODS
from coverwell.experiments.series_study import SERIES_FIELDS, SERIES_KEY, SeriesGrid, line_of

from coverwell import metrics


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def methods(*slugs):
    return named_among(SERIES_METHODS, slugs)


def keys(grid, done=()):
    return [(unit.method.slug, unit.data, unit.reading, unit.trial) for unit in grid.units(done)]


def test_series_without_gaps_are_run_once_and_the_others_in_both_readings():
    found = keys(SeriesGrid(methods("hnn"), SERIES))
    assert len(found) == len(set(found)) == 9
    assert {reading for _, data, reading, _ in found if data == "nsw2013"} == {"observed"}
    assert {reading for _, data, reading, _ in found if data == "air quality"} == {"observed", "interpolated"}


def test_one_reading_leaves_out_the_other_but_no_series():
    found = keys(SeriesGrid(methods("hnn"), SERIES, readings=("interpolated",)))
    assert {data: reading for _, data, reading, _ in found} == {
        **dict.fromkeys(SERIES, "observed"),
        **dict.fromkeys(("bike sharing", "beijing pm2.5", "air quality"), "interpolated"),
    }


def test_what_would_repeat_another_run_is_not_run():
    grid = SeriesGrid(
        methods("ar48", "hnn", "sigma-fit-covariates", "sigma-fit-covariates-refit"), ("traffic",), trials=2
    )
    assert set(keys(grid)) == {
        ("ar48", "traffic", "observed", 0),  # nothing random in it
        *(("hnn", "traffic", "observed", trial) for trial in (0, 1)),
        *(("sigma-fit-covariates-refit", "traffic", "observed", trial) for trial in (0, 1)),
    }


def test_what_is_done_is_left_out_and_the_longest_comes_first():
    grid = SeriesGrid(SERIES_METHODS, SERIES)
    whole = keys(grid)
    assert keys(grid, done=set(whole[::2])) == whole[1::2]
    assert whole[0][1] == "beijing pm2.5"
    costs = [unit.cost for unit in grid.units()]
    assert costs == sorted(costs, reverse=True)


@pytest.fixture(scope="module")
def posed(shared_data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERWELL_DATA", str(shared_data))
        return problem("air quality", "observed")


@pytest.fixture(scope="module")
def line(posed):
    (method,) = methods("sigma-fit-covariates-refit")
    return line_of(method, posed, 0, device="cpu", quick=True)


def test_a_line_is_json_and_has_all_fields_with_the_key_first(line):
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert set(SERIES_FIELDS) <= set(line)
    assert list(line)[1:5] == list(SERIES_KEY)
    assert line["n_refits"] == 1


def test_only_targets_that_were_observed_are_counted(line, posed):
    assert line["n_train"] == posed.start == 2807
    assert line["n_test"] == int((~np.isnan(posed.y[posed.start :])).sum()) == 5340


def test_live_coverage_is_as_near_as_is_proven(line):
    low, high = np.log(line["factor_range"])
    rate = line["rate"]
    bound = (high - low + rate) / (rate * line["n_test"])
    assert abs(line["live"]["coverage"] - 0.95) <= bound


def test_the_excerpt_is_the_middle_of_the_test_period(line, posed):
    excerpt = line["excerpt"]
    first = posed.start + (len(posed.y) - posed.start) // 2
    assert (excerpt["start"], excerpt["step_seconds"]) == (str(posed.time[first]), 3600)
    y = np.array(excerpt["y"], dtype=float)
    np.testing.assert_allclose(y, posed.y[first : first + 336], rtol=1e-5)
    assert {len(excerpt[name]) for name in ("prediction", "lower", "upper", "static_lower", "static_upper")} == {336}
    assert (np.array(excerpt["lower"]) < np.array(excerpt["upper"])).all()


def test_the_path_of_the_rolling_coverage_never_lies_below_its_worst(line, posed):
    path = line["rolling"]
    assert path["start"] == str(posed.time[posed.start])
    came = np.flatnonzero(~np.isnan(posed.y[posed.start :]))
    assert (path["steps"][0], path["steps"][-1]) == (came[499], came[-1])
    for kind in ("live", "static"):
        assert len(path[kind]) == len(path["steps"]) == 200
        assert min(path[kind]) >= line[kind]["worst_rolling_coverage"]


def test_linear_lines_hold_a_second_reading_at_a_fixed_rate(posed):
    (method,) = methods("ar48")
    line = line_of(method, posed, 0, device="cpu")
    assert line["fixed_rate"]["rate"] == 0.05
    assert line["rate"] == 0.05  # so that both readings are the same here
    assert {name: line["fixed_rate"][name] for name in line["live"]} == line["live"]
    assert line["rmse"] == pytest.approx(0.6999, rel=1e-3)
    assert line["live"]["worst_rolling_coverage"] >= 0.9
    assert metrics.ROLLING_WINDOW == 500
