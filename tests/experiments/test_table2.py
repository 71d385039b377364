"""Table 2: every method in both readings, static beside live, the paper's rows above ours."""

import csv
import io
import json
from pathlib import Path

import pytest
from coverwell.experiments import table2
from coverwell.experiments.results import read_results
from coverwell.experiments.series_methods import SERIES_METHODS, series_configuration
from coverwell.experiments.series_study import SERIES_FIELDS, SERIES_KEY


@pytest.fixture(scope="module")
def written(series_lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table2")
    return {path.name: path.read_text(encoding="utf-8") for path in table2.write(series_lines, folder)}


def table(text, reading, head):
    """The rows of one table as lists of cells."""
    part = text.split(f"## {table2.HEADS[reading]}")[1].split("\n## ")[0]
    lines = part.split(f"### {head}\n\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_both_files_are_written_and_end_in_a_newline(written):
    assert list(written) == ["table2.md", "table2.csv"]
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in written.values())


@pytest.mark.parametrize("reading", ["observed", "interpolated"])
def test_every_method_has_a_row_without_a_hole(written, reading):
    for head, kinds in (("RMSE", 1), ("Interval score at 0.95", 2)):
        rows = table(written["table2.md"], reading, head)
        for method in SERIES_METHODS:
            own = [row for row in rows if row[0] == method.title and row[1] != "paper"]
            assert len(own) == kinds + (kinds > 1 and method.kind == "linear")
            assert not any("-" in row[2:] for row in own)


def test_the_papers_row_stands_above_ours_and_has_no_interval_scores(written):
    rows = table(written["table2.md"], "observed", "RMSE")
    place = next(k for k, row in enumerate(rows) if row[0] == "HNN")
    assert rows[place] == ["HNN", "paper", "124.59", "64.38", "22.81", "1.36", "22.83", "0.72"]
    assert rows[place + 1][:2] == ["HNN", "ours"]
    assert rows[place + 1][2] == "112.56 (0.56)"  # two seeds: 1.12 x 100, and 1 % more
    assert not any(row[1] == "paper" for row in table(written["table2.md"], "observed", "Interval score at 0.95"))


def test_static_and_live_rows_are_of_one_fit(written):
    rows = table(written["table2.md"], "observed", "CE, |coverage - 0.95|")
    own = {row[1]: row[2:] for row in rows if row[0] == "Sigma Fit" and row[1] != "paper"}
    assert own == {"ours, static": ["0.0500"] * 6, "ours, live": ["0.0010"] * 6}


def test_traffic_shows_the_calendars_run_where_there_are_no_covariates(written):
    rows = table(written["table2.md"], "observed", "RMSE")
    own = {row[0]: row[5] for row in rows if row[1] == "ours"}
    assert own["Sigma Fit, calendar and covariates"] == own["Sigma Fit, calendar"]


def test_the_head_says_where_it_ran_and_how_many_seeds(written):
    text = written["table2.md"]
    assert "`coverwell reproduce table2`" in text
    assert "1 to 2 seed(s)" in text
    assert "Ran on: made up (coverwell 0.0, torch 0.0)." in text
    assert "development data" in text


def test_the_baselines_that_are_worse_than_the_papers_are_counted_and_named(written):
    (sentence,) = [line for line in written["table2.md"].splitlines() if line.startswith("Are the baselines fair?")]
    # errors of ours: size x (100, 60, 20, 1.3, 20, .6), size 1.24, 1.21, 1.18, 1.15, 1.12
    assert "in 16 of 30 comparisons" in sentence
    assert "MC Dropout on bike sharing (74.40 to 62.68)" in sentence


def test_csv_holds_all_values_with_the_papers_beside_them(written):
    rows = list(csv.DictReader(io.StringIO(written["table2.csv"])))
    (row,) = [
        row
        for row in rows
        if (row["method"], row["data"], row["reading"], row["metric"]) == ("hnn", "traffic", "interpolated", "width")
        and row["intervals"] == "live"
    ]
    assert (float(row["mean"]), row["paper"]) == (pytest.approx(4 * 1.1 * 1.12 * 1.3), "5.62")
    assert {row["reached"] for row in rows} == {"", "yes", "no"}


def test_a_part_of_the_study_gives_a_part_of_the_table(series_line, tmp_path):
    table2.write([series_line("sigma-fit", "tas2016"), series_line("ar48", "tas2016")], tmp_path)
    rows = table((tmp_path / "table2.md").read_text(encoding="utf-8"), "interpolated", "RMSE")
    assert [row for row in rows if row[0] == "AR(48)"] == [["AR(48)", "ours", "-", "-", "20.00", "-", "-", "-"]]


def test_no_results_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="run the study first"):
        table2.write([], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_committed_tables_are_those_of_the_committed_lines(tmp_path):
    folder = Path(__file__).parents[2] / "reproduction"
    lines = read_results(folder / "series.jsonl", key=SERIES_KEY, fields=SERIES_FIELDS, version=None)
    paths = table2.write(lines, tmp_path)
    assert {path.name for path in paths} == {"table2.md", "table2.csv"}
    for path in paths:
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_the_committed_configuration_is_that_of_the_methods():
    stored = json.loads((Path(__file__).parents[2] / "reproduction" / "series_configuration.json").read_text())
    assert stored == series_configuration()
