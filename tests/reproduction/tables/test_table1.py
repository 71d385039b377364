"""Table 1: what *worse* means, which lines are used, and that their order does not matter."""

import csv
import random
from pathlib import Path

import pytest

from reproduction.domains.tables import TableStudy
from reproduction.tables import table1

STORED = Path(__file__).parents[3] / "reproduction" / "results.jsonl"


@pytest.fixture(scope="module")
def stored():
    """Some of the stored lines: two tables, six trials, a few methods."""
    methods = ("mc-dropout", "hnn", "sigma-fit-published", "sigma-fit", "iqr-fit", "deep-ensemble")
    lines = TableStudy.stored(STORED, version=None)
    chosen = [line for line in lines if line["method"] in methods and line["data"] in ("boston", "auto mpg")]
    return [line for line in chosen if line["trial"] < 6]


@pytest.fixture
def with_errors(stored):
    line = next(line for line in stored if (line["method"], line["data"]) == ("hnn", "boston"))
    line = {**line, "n_train": 404, "n_test": 102}

    def lines(*values, method="hnn", data="boston"):
        return [{**line, "method": method, "data": data, "trial": trial, "rmse": v} for trial, v in enumerate(values)]

    return lines


def rows_of(path, title):
    """The rows of the first Markdown table from the one that starts with this title on."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in path.read_text().splitlines()]
    start = next(k for k, row in enumerate(rows) if row[0] == title)
    return rows[start:]


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ((4.7, 4.9), "4.80 (0.12) [2]"),  # above the paper's 4.762, but by less than the error
        ((4.9, 5.1), "5.00 (0.12) [2] worse"),
        ((4.0, 4.2), "4.10 (0.12) [2]"),
        ((9.9,), "9.900 [1]"),  # one trial is not compared
    ],
)
def test_worse_means_above_the_papers_number_by_more_than_the_error(with_errors, values, cell, tmp_path):
    path, *_ = table1.write(with_errors(*values), tmp_path)
    assert rows_of(path, "HNN")[1][6] == cell


def test_the_fairness_line_counts_what_could_be_compared(with_errors, tmp_path):
    lines = [*with_errors(4.9, 5.1), *with_errors(0.1, 0.2, data="crime"), *with_errors(9.9, method="bnn")]
    path, *_ = table1.write(lines, tmp_path)
    assert "in 1 of 2 comparisons: HNN on boston." in path.read_text()


def test_ours_stand_below_the_papers_number_and_peers_have_rows_of_their_own(stored, with_errors, tmp_path):
    path, csv_path, *_ = table1.write(stored, tmp_path, with_errors(1.0, 2.0, method="ngboost"))
    whose = [row[1] for row in rows_of(path, "Sigma Fit")[:3]]
    assert whose == ["paper", "ours, as published", "ours, by default"]
    assert rows_of(path, "Deep Ensemble")[0][1] == "extra"
    assert rows_of(path, "NGBoost")[0][1] == "peer"
    with csv_path.open(newline="") as file:
        found = {(r["method"], r["data"], r["of_trials"]): r for r in csv.DictReader(file)}
    of_mc = [line for line in stored if (line["method"], line["data"]) == ("mc-dropout", "boston")]
    first = [line["rmse"] for line in of_mc if line["trial"] < 5]
    row = found["mc-dropout", "boston", "5"]
    assert float(row["mean"]) == pytest.approx(sum(first) / 5, rel=1e-6)
    assert (row["trials"], row["paper"], found["mc-dropout", "boston", "20"]["trials"]) == ("5", "5.51", "6")


def test_the_order_of_the_lines_does_not_matter(stored, tmp_path):
    mixed = random.Random(0).sample(stored, len(stored))
    for one, other in zip(table1.write(stored, tmp_path), table1.write(mixed, tmp_path / "mixed"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_head_says_where_it_ran_how_many_trials_and_what_was_not_used(stored, tmp_path):
    late = {**stored[0], "trial": 20, "device": "another device"}
    text = table1.write([*stored, late], tmp_path)[0].read_text()
    assert "6 trials of each method" in text
    assert "Ran on: NVIDIA" in text
    assert "another device (" in text
    assert "Lines not used: 1," in text
    (tmp_path / "few").mkdir()
    few = table1.write([line for line in stored if line["trial"] < 5], tmp_path / "few")[0].read_text()
    assert [row for row in few.splitlines() if row.startswith("## ")] == ["## First 5 trials"]


def test_results_without_the_level_are_refused_and_nothing_is_written(stored, tmp_path):
    lines = [{**line, "levels": [0.5, 0.8, 0.99]} for line in stored]
    with pytest.raises(ValueError, match=r"results at 0\.9 are needed"):
        table1.write(lines, tmp_path)
    assert list(tmp_path.iterdir()) == []
