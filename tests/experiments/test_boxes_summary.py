"""Result lines of boxes: what is read from them, and that only those that belong together stand together."""

import pytest
from coverwell.experiments.boxes_summary import BOX, PAPER, BoxSelection, measure, papers, title


def test_measures_are_read_by_part_and_unit(box_line):
    line = box_line("sigma-fit")
    assert measure(line, "iou", BOX) == 0.84
    assert measure(line, "together", BOX) == 0.87
    assert measure(line, "calibration_error", "y") == pytest.approx(0.005)
    assert (measure(line, "width", "w"), measure(line, "width", "w", "pixels")) == (22.0, 88.0)
    assert measure(line, "width_ratio", "x") == pytest.approx(0.8)
    assert measure(line, "joint_coverage", BOX) == 0.956
    assert measure(line, "joint_error", BOX) == pytest.approx(0.006)


def test_what_a_run_does_not_have_is_none(box_line):
    assert measure(box_line("hnn"), "joint_coverage", BOX) is None
    line = box_line("hnn")
    line["percent"] = {**line["percent"], "constant_width": [0.0] * 4}  # nothing was covered
    assert measure(line, "width_ratio", "x") is None


def test_an_estimate_is_the_mean_over_seeds_with_its_standard_error(box_line):
    chosen = BoxSelection([box_line("hnn", trial) for trial in (1, 0)])
    found = chosen.estimate("hnn", "width", "x")
    assert (found.mean, found.error, found.trials) == (pytest.approx(16.08), pytest.approx(0.08), 2)
    assert [line["trial"] for line in chosen.of("hnn")] == [0, 1]
    assert chosen.estimate("quantiles", "width", "x") is None
    assert chosen.estimate("hnn", "joint_coverage", BOX) is None


def test_methods_stand_in_the_order_of_the_study_and_unknown_ones_last(box_line):
    chosen = BoxSelection([box_line(method) for method in ("other", "sigma-fit", "hnn")])
    assert chosen.methods == ["hnn", "sigma-fit", "other"]
    assert (title("hnn"), title("other")) == ("HNN", "other")


def test_only_all_photographs_are_the_official_split(box_line):
    assert BoxSelection([box_line("hnn")]).is_official
    assert not BoxSelection([box_line("hnn", data="cub train-0 test-0")]).is_official


def test_results_on_different_pictures_or_weights_are_refused(box_line):
    with pytest.raises(ValueError, match="must agree in data, got cub and cub train-0 test-0"):
        BoxSelection([box_line("hnn"), box_line("sigma-fit", data="cub train-0 test-0")])
    other = {**box_line("sigma-fit"), "weights": "another.pth"}
    with pytest.raises(ValueError, match="must agree in weights"):
        BoxSelection([box_line("hnn"), other])
    with pytest.raises(ValueError, match="run the study first"):
        BoxSelection([])


def test_the_paper_s_numbers_are_found_for_both_ways_to_iqr_fit():
    for method in ("iqr-fit", "iqr-fit-published"):
        assert papers(method, "iou", BOX) == 0.557
        assert [papers(method, "calibration_error", part) for part in "xywh"] == [0.01, 0.02, 0.04, 0.04]
    assert papers("hnn", "width", "x") == 31.72
    assert papers("sigma-fit", "iou", BOX) is None
    assert papers("hnn", "rmse", "x") is None
    assert papers("hnn", "iou", "x") is None
    assert set(PAPER) == {"hnn", "iqr-fit"}
