"""Table 3: every method with its units, the paper's rows above ours, no verdict on the paper's widths."""

import csv
import io
import json
from pathlib import Path

import pytest
from coverwell.experiments import table3
from coverwell.experiments.boxes_methods import STUDY, boxes_configuration
from coverwell.experiments.boxes_study import BOX_FIELDS, BOX_KEY
from coverwell.experiments.results import read_results

REPRODUCTION = Path(__file__).parents[2] / "reproduction"


@pytest.fixture(scope="module")
def written(box_lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table3")
    return {path.name: path.read_text(encoding="utf-8") for path in table3.write(box_lines, folder)}


def table(text, head):
    """The rows of one table as lists of cells."""
    lines = [line for line in text.split(f"## {head}\n")[1].split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_both_files_are_written_and_end_in_a_newline(written):
    assert list(written) == ["table3.md", "table3.csv"]
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in written.values())


@pytest.mark.parametrize(("head", "n_rows"), [("The whole box", 1), ("CE, |coverage - 0.95|", 1), ("RMSE", 2)])
def test_every_method_has_its_rows(written, head, n_rows):
    rows = table(written["table3.md"], head)
    for method in STUDY:
        assert len([row for row in rows if row[:2] == [method.title, "ours"]]) == n_rows


def test_the_papers_rows_stand_above_ours(written):
    rows = table(written["table3.md"], "CE, |coverage - 0.95|")
    place = rows.index(["HNN", "paper", "0.11", "0.14", "0.12", "0.15"])
    assert rows[place + 1] == ["HNN", "ours", *["0.0050"] * 4]
    place = rows.index(["IQR Fit", "paper", "0.01", "0.02", "0.04", "0.04"])
    assert rows[place + 1][:2] == ["IQR Fit, as published", "ours"]
    whole = table(written["table3.md"], "The whole box")
    assert ["HNN", "paper", "0.468", "", ""] in whole
    assert ["Sigma Fit", "ours", "0.8400", "0.9560", "0.8700"] in whole
    assert ["MC Dropout", "ours", "0.8400", "-", "0.8700"] in whole  # no ranks


def test_the_unit_of_the_papers_widths_is_not_stated_and_ours_stand_in_two(written):
    rows = table(written["table3.md"], "AW, average width")
    assert ["HNN", "paper", "not stated", "31.72", "26.33", "28.87", "29.14"] in rows
    own = {row[2]: row[3:] for row in rows if row[:2] == ["MC Dropout", "ours"]}  # 1.3 times the sizes
    assert own["% of the side"] == ["20.80", "14.30", "28.60", "31.20"]
    assert own["pixels"] == ["83.20", "57.20", "114.4", "124.8"]
    assert "unit its widths are: no verdict" in written["table3.md"]


def test_only_methods_with_ranks_have_joint_boxes(written):
    rows = table(written["table3.md"], "AW of joint boxes")
    assert {row[0] for row in rows} == {"Sigma Fit", "IQR Fit"}
    assert rows[0][2:] == ["% of the side", *["20.00"] * 4]


def test_several_seeds_have_a_standard_error(written):
    rows = table(written["table3.md"], "AW, average width")
    (row,) = [row for row in rows if row[:3] == ["HNN", "ours", "% of the side"]]
    assert row[3] == "17.7 (1.5)"  # 1.2 x 16 and 1.01 x 16


def test_the_verdicts_come_from_the_lines(box_line, tmp_path):
    """Widths are 0.8, 0.8, 0.88 and 0.8 of a constant one, times the size; worked out by hand."""
    lines = [
        box_line("sigma-fit", size=1.05),
        {**box_line("iqr-fit", iou=0.8299, joint=0.93), "reached": [0.95, 0.94, 0.9601, 0.96]},
        box_line("hnn", iou=0.1),  # nothing is asked of others
    ]
    table3.write(lines, tmp_path)
    text = (tmp_path / "table3.md").read_text(encoding="utf-8")
    part = text.split("## Against the targets\n")[1].split("\n## ")[0]
    sigma, iqr = part.split("**IQR Fit**")
    assert "**Sigma Fit**" in sigma
    assert table(f"## x\n{sigma}", "x") == [
        ["IoU at least 0.83", "", "", "", "", "0.8400", "reached"],
        ["CE at most 0.01", "0.0050", "0.0050", "0.0050", "0.0050", "", "reached"],
        [
            "AW at most 0.9 of a constant width, in % of the side",
            "0.8400",
            "0.8400",
            "0.9240 missed",
            "0.8400",
            "",
            "missed",
        ],
        ["AW at most 0.9 of a constant width, in pixels", "0.8400", "0.8400", "0.9240 missed", "0.8400", "", "missed"],
        ["joint coverage within 0.01 of asked", "", "", "", "", "0.0060", "reached"],
    ]
    assert table(f"## x\n{iqr}", "x") == [
        ["IoU at least 0.83", "", "", "", "", "0.8299 missed", "missed"],
        ["CE at most 0.01", "0.0000", "0.0100", "0.0101 missed", "0.0100", "", "missed"],
        ["AW at most 0.9 of a constant width, in % of the side", "0.8000", "0.8000", "0.8800", "0.8000", "", "reached"],
        ["AW at most 0.9 of a constant width, in pixels", "0.8000", "0.8000", "0.8800", "0.8000", "", "reached"],
        ["joint coverage within 0.01 of asked", "", "", "", "", "0.0200 missed", "missed"],
    ]


def test_the_head_says_what_was_run_where_and_from_which_weights(written):
    text = written["table3.md"]
    assert "`coverwell reproduce table3`" in text
    assert "CUB-200-2011, official split: 5994 pictures train, 5794 test; 1 to 2 seed(s)" in text
    assert "weights made-up.pth (sha256 00000000); layer 4, which is trained, starts fresh" in text
    assert "Ran on: made up (coverwell 0.0, torch 0.0)." in text
    assert "mean nothing" not in text


def test_results_on_generated_pictures_are_said_to_mean_nothing(box_line, tmp_path):
    table3.write([box_line("hnn", data="generated pictures")], tmp_path)
    text = (tmp_path / "table3.md").read_text(encoding="utf-8")
    assert "**These numbers mean nothing.**" in text
    assert "Nothing is asked of results on generated pictures" in text


def test_csv_holds_all_values_and_sets_the_papers_widths_beside_none_of_ours(written):
    rows = list(csv.DictReader(io.StringIO(written["table3.csv"])))
    (ours,) = [
        row
        for row in rows
        if (row["method"], row["metric"], row["unit"], row["part"]) == ("sigma-fit", "constant_width", "pixels", "h")
    ]
    assert float(ours["mean"]) == 120
    widths = {row["unit"]: row["paper"] for row in rows if row["metric"] == "width" and row["method"] == "hnn"}
    assert widths == {"percent": "", "pixels": "", "not stated": "29.14"}
    assert {row["paper"] for row in rows if (row["method"], row["metric"]) == ("hnn", "iou")} == {"0.468"}
    assert {row["reached"] for row in rows} == {"", "yes", "no"}


def test_a_part_of_the_study_gives_a_part_of_the_table(box_line, tmp_path):
    table3.write([box_line("sigma-fit")], tmp_path)
    rows = table((tmp_path / "table3.md").read_text(encoding="utf-8"), "The whole box")
    assert [row[:2] for row in rows] == [["HNN", "paper"], ["IQR Fit", "paper"], ["Sigma Fit", "ours"]]


def test_no_results_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="run the study first"):
        table3.write([], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_committed_tables_are_those_of_the_committed_lines(tmp_path):
    lines = read_results(REPRODUCTION / "boxes.jsonl", key=BOX_KEY, fields=BOX_FIELDS, version=None)
    for path in table3.write(lines, tmp_path):
        assert path.read_bytes() == (REPRODUCTION / path.name).read_bytes(), path.name


def test_the_committed_configuration_is_that_of_the_methods():
    stored = json.loads((REPRODUCTION / "boxes_configuration.json").read_text())
    assert stored == boxes_configuration()
