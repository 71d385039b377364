"""The arithmetic of `make bench-scale`: slopes, extrapolations, targets, and what is stored beside what."""

import json

import pytest
import scale
import scale_billion
import scale_curves
import scale_peers
import scale_precision


def points(*pairs):
    return [{"number": number, "CPU seconds": seconds} for number, seconds in pairs]


def test_growth_by_a_power_has_that_power_as_its_slope_and_the_last_two_points_say_what_one_more_costs():
    found = points((1_000, 3.0), (10_000, 30.0), (100_000, 3_000.0))
    assert scale_curves.slopes(found, "CPU seconds") == pytest.approx([1.0, 2.0])
    assert scale_curves.per_unit(points((1, 99.0), (10, 2.0), (30, 3.0)), "CPU seconds") == pytest.approx(0.05)


def test_one_fit_has_as_many_members_as_asked(monkeypatch):
    monkeypatch.setattr(scale_curves, "ROWS", 100)
    found = scale_curves.point("stack", 5)
    assert (found["members"], found["rounds"], found["rows"]) == (5, 2, 100)
    assert 0 < found["megabytes before"] <= found["peak megabytes"]


def streamed_fit(rows, seconds, rounds):
    own = {"rows": rows, "CPU seconds": seconds, "rounds": rounds, "rounds of a sweep": rows // 250_000}
    own |= {"CPU seconds of a sweep": 3.0 * rows / 250_000, "peak megabytes": 1000.0, "megabytes before": 300.0}
    return {**own, "megabytes of files": rows / 2**13, "members": 5}


def test_the_passes_of_a_streamed_fit_grow_and_its_rounds_do_not():
    """Three seconds a round; one second of start; two microseconds a row of passes."""
    found = [streamed_fit(1_000_000, 5 * 3.0 + 1.0 + 2.0, 5), streamed_fit(10_000_000, 8 * 3.0 + 1.0 + 20.0, 8)]
    cost = scale_billion.streamed(found)
    assert cost["hours of the passes"] == pytest.approx(2000 / 3600)
    assert cost["hours of the rounds"] == pytest.approx(300 / 3600)
    assert cost["hours of a sweep"] == pytest.approx(12_000 / 3600)
    assert cost["terabytes of files"] == pytest.approx(0.128)  # 128 bytes a row
    assert cost["gigabytes of memory"] == pytest.approx(1.048576)


def test_memory_of_a_fit_in_memory_grows_by_its_slope():
    found = [
        {"number": number, "rounds": 2, "CPU seconds": 10 + 2 * number * 3.6e-6, "peak megabytes": 400 + number / 2**10}
        for number in (10**5, 10**6)
    ]
    cost = scale_billion.in_memory(found)
    assert cost["hours"] == pytest.approx(1.0)  # 3.6 microseconds a row and round
    assert cost["terabytes"] == pytest.approx(1.024)  # a kilobyte a row


def test_seconds_are_shared_out_to_the_members_and_epochs_are_those_of_their_networks():
    seconds = {"UQ360": [2.5, 2.0], "1": [1.0], "25": [5.0]}
    mapie = {"networks": 6, "versions": {"mapie": "1"}, "CPU seconds of each fit": [3.0, 2.4]}
    rows = scale_peers.per_network({"beside UQ360": {"CPU seconds of each fit": seconds}, "MAPIE": mapie})
    assert rows["UQ360"] == {"members": 1, "epochs": 200, "fastest": 2.0, "median": 2.25}
    assert rows["1"]["epochs"] == 200  # as published: no epochs after the last round
    assert rows["25"] == {"members": 25, "epochs": 220, "fastest": 0.2, "median": 0.2}
    assert rows["MAPIE"] == {"members": 6, "epochs": 100, "fastest": pytest.approx(0.4), "median": pytest.approx(0.45)}


def precision_fit(table, way, coverage=0.9, width=2.0):
    own = {"table": table, "way": way, "splits": [100], "seconds": 1.0, "rounds": [4]}
    return {**own, "coverage": [coverage], "width": [width], "interval score": [3.0], "rmse": [1.0]}


def test_changes_of_precision_are_beside_fp32_table_by_table():
    fits = [precision_fit("boston", "FP32"), precision_fit("boston", "TF32", coverage=0.88, width=2.2)]
    fits.append(precision_fit("crime", "FP32"))
    assert scale_precision.change(fits, "TF32", "coverage", relative=False) == pytest.approx([-0.02])
    assert scale_precision.change(fits, "TF32", "width", relative=True) == pytest.approx([0.1])


def test_tables_that_are_not_run_again_stay_as_they_were(tmp_path):
    where = {"date": "2026-01-02", "cpu": "a processor", "cores": 2, "seed": 0, "load before": 0.0, "load after": 0.0}
    where |= {"versions": {"torch": "2"}}
    for table, coverage in (("boston", 0.7), ("crime", 0.9), ("boston", 0.8)):
        fits = [precision_fit(table, way, coverage) for way in scale_precision.WAYS]
        result = {"environment": where, "found": {"asked": 0.9, "timed": fits, "fits": fits}}
        scale.store(tmp_path / "scale.json", "cuda", "precision", result)
    fits = json.loads((tmp_path / "scale.json").read_text())["cuda"]["precision"]["found"]["fits"]
    assert {(fit["table"], *fit["coverage"]) for fit in fits} == {("boston", 0.8), ("crime", 0.9)}
    assert len(fits) == 6
