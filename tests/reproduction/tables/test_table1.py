"""Table 1: what *worse* means and which lines are used; intervals: the hardest competitor, and verdicts either way."""

import csv
import random
from pathlib import Path

import pytest

from coverwell import metrics
from reproduction.domains.tables import TableStudy
from reproduction.tables import table1
from reproduction.tables.splits import Selection
from reproduction.tables.table1 import Verdict, interval_sections, ratios, verdicts

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
    assert [rows_of(path, title)[0][1] for title in ("Deep Ensemble", "NGBoost")] == ["extra", "peer"]
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


def test_the_head_names_devices_the_number_of_trials_and_what_was_not_used(stored, tmp_path):
    late = {**stored[0], "trial": 20, "device": "another device"}
    text = table1.write([*stored, late], tmp_path)[0].read_text()
    for part in ("6 trials of each method", "Ran on: NVIDIA", "another device (", "Lines not used: 1,"):
        assert part in text
    few = table1.write([line for line in stored if line["trial"] < 5], tmp_path / "few")[0].read_text()
    assert [row for row in few.splitlines() if row.startswith("## ")] == ["## First 5 trials"]


def test_results_without_the_level_are_refused_and_nothing_is_written(stored, tmp_path):
    lines = [{**line, "levels": [0.5, 0.8, 0.99]} for line in stored]
    with pytest.raises(ValueError, match=r"results at 0\.9 are needed"):
        table1.write(lines, tmp_path)
    assert list(tmp_path.iterdir()) == []


# Intervals.


def lines(method, data="boston", *, rmse=1.0, score=1.0, coverage=0.9, trials=(0, 1)):
    base = {"method": method, "data": data, "levels": [0.9], "n_train": 400, "n_test": 100, "width": [1.0]}
    return [{**base, "trial": t, "rmse": rmse, "interval_score": [score], "coverage": [coverage]} for t in trials]


def selection(*parts, peers=()):
    return Selection([line for part in parts for line in part], list(peers), asked=0.9, trials=20)


def test_the_best_competitor_is_chosen_for_each_measure_and_table_and_ratios_are_averaged_geometrically():
    chosen = selection(
        lines("sigma-fit", rmse=2.0, score=10.0),
        lines("hnn", rmse=1.0, score=20.0),
        lines("bnn", rmse=4.0, score=8.0),
        lines("sigma-fit", "crime"),
        lines("bnn", "crime", rmse=8.0, score=2.0),
    )
    best = [table1.best(ratios(chosen, "sigma-fit", measure, "boston")) for measure in ("rmse", "interval_score")]
    assert best == ["hnn", "bnn"]
    found = verdicts(chosen, "sigma-fit")
    assert found["rmse"].value == pytest.approx((2 / 8) ** 0.5)
    assert found["interval_score"].value == pytest.approx((10 / 8 / 2) ** 0.5)
    assert [found[measure].tables for measure in ("rmse", "interval_score")] == [2, 2]


def test_the_calibration_error_is_averaged_over_the_tables_relative_to_what_to_expect():
    chosen = selection(lines("sigma-fit", coverage=0.87), lines("sigma-fit", "crime", coverage=0.90))
    found = verdicts(chosen, "sigma-fit")
    half = 0.5 * 0.03 / metrics.expected_calibration_error(0.9, 100, 400)
    assert found["calibration_error"].value == pytest.approx(half)
    assert found.keys() == {"calibration_error"}  # nobody to compare with
    text = "\n".join(interval_sections(chosen))
    assert text.count("reached") == 1
    assert "over that of the others" not in text


@pytest.mark.parametrize(
    ("measure", "value", "tables", "text"),
    [
        ("interval_score", 1.0, 6, "1.000 reached"),
        ("interval_score", 1.0001, 6, "1.000 missed"),
        ("rmse", 1.02, 6, "1.020 reached"),
        ("rmse", 1.03, 6, "1.030 missed"),
        ("calibration_error", 1.19, 6, "1.190 reached"),
        ("calibration_error", 1.21, 6, "1.210 missed"),
        ("rmse", 0.9, 2, "0.9000 reached (2 of 6 tables)"),
    ],
)
def test_a_target_is_reached_or_missed_by_the_unrounded_value(measure, value, tables, text):
    assert str(Verdict(measure, value, tables)) == text


def test_our_own_variants_do_not_compete_and_peers_do_on_shared_trials_of_the_six_tables():
    chosen = selection(
        lines("sigma-fit", rmse=2.0),
        lines("sigma-fit", rmse=50.0, trials=(2,)),
        lines("iqr-fit"),
        lines("sigma-fit-published"),
        lines("sigma-fit", "parkinsons by patient", rmse=9.0),
        lines("hnn", "parkinsons by patient"),
        peers=lines("ngboost", rmse=4.0, trials=(0, 1, 7)),
    )
    ((other, ratio),) = ratios(chosen, "sigma-fit", "rmse", "boston").items()
    assert (other, ratio.mean, ratio.trials) == ("ngboost", 0.5, 2)
    assert verdicts(chosen, "sigma-fit")["rmse"] == Verdict("rmse", 0.5, 1)


def test_without_ours_by_default_nothing_is_compared():
    assert "Nothing to compare" in "\n".join(interval_sections(selection(lines("hnn"))))


def test_the_calibration_error_is_the_mean_distance_and_not_the_distance_of_the_mean():
    high, low = (lines("hnn", coverage=c, trials=(t,)) for t, c in enumerate((0.86, 0.94)))
    (one,) = table1.measured(selection(high, low), "boston")
    assert one.values["coverage"].mean == pytest.approx(0.90)
    assert one.values["calibration_error"].mean == pytest.approx(0.04)
    assert one.expected_error == metrics.expected_calibration_error(0.9, 100, 400)


def test_a_method_without_observation_noise_has_a_second_row_with_the_same_error():
    second = {"coverage": [0.4], "width": [2.0], "interval_score": [40.0]}
    both = [{**one, "epistemic": second} for one in lines("mc-dropout", rmse=3.0)]
    with_noise, without, other = table1.measured(selection(both, lines("hnn", rmse=3.0)), "boston")
    assert (with_noise.reading, without.reading, other.method) == ("", "epistemic only", "hnn")
    assert without.values["interval_score"].mean == 40.0
    assert without.values["rmse"] == with_noise.values["rmse"]
