import numpy as np
import pytest
import scale_curves
import speed
import torch


def points(*pairs):
    return [{"number": number, "CPU seconds": seconds} for number, seconds in pairs]


def test_growth_by_a_power_has_that_power_as_its_slope():
    found = points((1_000, 3.0), (10_000, 30.0), (100_000, 3_000.0))
    assert scale_curves.slopes(found, "CPU seconds") == pytest.approx([1.0, 2.0])


def test_one_more_costs_what_the_last_two_points_say():
    assert scale_curves.per_unit(points((1, 99.0), (10, 2.0), (30, 3.0)), "CPU seconds") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("curve", "number", "told"),
    [
        ("rows", 1000, {"repeats": 1}),
        ("stack", 75, {"folds": 5, "repeats": 15}),
        ("stack", 1, {"folds": None, "calibration": None}),
        ("levels", 1, {"coverage": 0.9, "repeats": 1}),
    ],
)
def test_each_point_of_a_curve_changes_what_the_curve_is_about(curve, number, told):
    assert scale_curves.settings_of(curve, number) == told


def test_levels_rise_and_lie_within_bounds():
    levels = scale_curves.settings_of("levels", 20)["coverage"]
    assert len(levels) == 20
    assert list(levels) == sorted(set(levels))


def test_one_fit_has_as_many_members_as_it_was_told(monkeypatch):
    monkeypatch.setattr(scale_curves, "ROWS", 100)
    found = scale_curves.point("stack", 5)
    assert (found["members"], found["rounds"], found["rows"]) == (5, 2, 100)
    assert 0 < found["megabytes before"] <= found["peak megabytes"]


def test_one_pass_in_a_process_of_its_own_is_over_all_rows_and_its_memory_is_its_own():
    held = np.ones(50_000_000)  # 400 MB, all of them touched
    found = scale_curves.in_own_process("epoch", "1", "--quick")
    case = scale_curves.QUICK_EPOCH
    assert (found["threads"], found["rows"], found["batch"]) == (1, case.rows, case.batch_size)
    assert 0 < found["peak megabytes"] < speed.peak_megabytes() - held.nbytes / 2**21


@pytest.mark.parametrize(("seconds", "verdict"), [(29.0, "reached"), (31.0, "MISSED")])
def test_a_pass_is_judged_by_the_cpu_seconds_of_one_thread(seconds, verdict):
    one = {"threads": 1, "members": 5, "hidden": 64, "rows": 10**6, "features": 20, "batch": 256}
    one |= {"CPU seconds": seconds, "clock seconds": 50.0, "peak megabytes": 800.0}
    passes = [one, {**one, "threads": 2, "CPU seconds": 1.0}]
    assert f"Target 30 s: {verdict}." in scale_curves.epoch_lines({"passes": passes}, "cpu")


def test_a_gpu_is_refused():
    with pytest.raises(ValueError, match="this part is measured on a CPU, got the device cuda"):
        scale_curves.measure("rows", torch.device("cuda"), quick=True)
