"""What Table 3 was to show: a miss is a miss, and what was not run is open."""

import pytest
from coverwell.experiments.boxes_summary import BoxSelection
from coverwell.experiments.boxes_targets import ASKED, judge, records, sections

IOU, CALIBRATION, IN_PERCENT, IN_PIXELS, JOINT = ASKED


def verdicts(lines):
    """Of Sigma Fit, by what was asked."""
    _, table = sections(BoxSelection(lines))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[-1] for row in rows}


def test_a_run_that_holds_all_bounds_reaches_all(box_line):
    assert set(verdicts([box_line("sigma-fit")]).values()) == {"reached"}
    assert [one.name for one in ASKED] == list(verdicts([box_line("sigma-fit")]))


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"iou": 0.8299}, {IOU}),
        ({"reached": 0.9601}, {CALIBRATION}),
        ({"reached": 0.9399}, {CALIBRATION}),
        ({"joint": 0.9601}, {JOINT}),
        ({"size": 1.1}, {IN_PERCENT, IN_PIXELS}),  # 0.88 becomes 0.968 on w
    ],
)
def test_one_bound_that_is_not_held_is_a_miss_of_that_bound(box_line, changes, missed):
    found = verdicts([box_line("sigma-fit", **changes)])
    assert {name for name, verdict in found.items() if verdict == "missed"} == {asked.name for asked in missed}


@pytest.mark.parametrize("reached", [0.94, 0.96])
def test_a_bound_that_is_met_exactly_is_reached(box_line, reached):
    chosen = BoxSelection([box_line("sigma-fit", iou=0.83, reached=reached, joint=reached)])
    for asked in (IOU, CALIBRATION, JOINT):
        assert all(one.reached for one in judge(chosen, asked, "sigma-fit").values())


def test_each_of_the_four_numbers_must_hold_its_bound(box_line):
    line = box_line("sigma-fit")
    line["reached"] = [0.95, 0.95, 0.95, 0.93]
    found = judge(BoxSelection([line]), CALIBRATION, "sigma-fit")
    assert [one.reached for one in found.values()] == [True, True, True, False]
    assert str(found["h"]) == "0.0200 missed"
    assert verdicts([line])[CALIBRATION.name] == "missed"


def test_the_mean_over_seeds_is_judged(box_line):
    lines = [box_line("sigma-fit", 0, iou=0.85), box_line("sigma-fit", 1, iou=0.815)]
    assert verdicts(lines)[IOU.name] == "reached"


def test_what_cannot_be_judged_is_open(box_line):
    line = {**box_line("sigma-fit"), "joint": None}
    assert verdicts([line])[JOINT.name] == "open"


def test_nothing_is_asked_of_a_part_of_the_photographs_or_of_other_methods(box_line):
    part = BoxSelection([box_line("sigma-fit", data="cub train-0 test-0", iou=0.1)])
    (sentence,) = sections(part)
    assert sentence.startswith("Nothing is asked of results on cub train-0 test-0")
    assert list(records(part)) == []
    assert list(sections(BoxSelection([box_line("hnn")]))) == []


def test_records_hold_every_verdict(box_line):
    rows = list(records(BoxSelection([box_line("sigma-fit", iou=0.5), box_line("iqr-fit")])))
    assert len(rows) == 2 * (1 + 4 + 4 + 4 + 1)
    assert [row["method"] for row in rows if not row["reached"]] == ["sigma-fit"]
    assert {row["unit"] for row in rows} == {"", "percent", "pixels"}
