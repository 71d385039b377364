"""Table 1: what *worse* means and which lines are used; intervals: the hardest competitor, and verdicts either way."""

import random

import pytest

from coverwell import metrics
from reproduction.tables import table1
from reproduction.tables.splits import Selection, title
from reproduction.tables.table1 import Verdict, interval_sections, ratios, verdicts


def lines(method, data="boston", *, rmse=1.0, score=1.0, coverage=0.9, trials=(0, 1)):
    base = {"method": method, "data": data, "levels": [0.9], "n_train": 400, "n_test": 100, "width": [1.0]}
    base |= {"interval_score": [score], "coverage": [coverage], "device": "made up", "versions": {"coverwell": "0.0"}}
    return [{**base, "trial": trial, "rmse": rmse} for trial in trials]


def with_errors(*values, method="hnn", data="boston"):
    return [line for t, value in enumerate(values) for line in lines(method, data, rmse=value, trials=(t,))]


SOME = [
    *with_errors(3.0, 3.5, 3.2, 2.9, 3.1, 3.3),
    *with_errors(2.0, 2.5, 2.1, method="sigma-fit"),
    *with_errors(3.0, 3.1, data="auto mpg"),
    *with_errors(3.2, 2.9, method="bnn", data="auto mpg"),
]


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ((4.7, 4.9), "4.80 (0.12) [2]"),  # above the paper's 4.762, but by less than the error
        ((4.9, 5.1), "5.00 (0.12) [2] worse"),
        ((4.0, 4.2), "4.10 (0.12) [2]"),
        ((9.9,), "9.900 [1]"),  # one trial is not compared
    ],
)
def test_worse_means_above_the_papers_number_by_more_than_the_error(values, cell, tmp_path):
    path, *_ = table1.write(with_errors(*values), tmp_path)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in path.read_text().splitlines()]
    place = next(k for k, row in enumerate(rows) if row[0] == "HNN")  # the paper's row, ours below it
    assert rows[place + 1][6] == cell


def test_the_fairness_line_counts_what_could_be_compared(tmp_path):
    found = [*with_errors(4.9, 5.1), *with_errors(0.1, 0.2, data="crime"), *with_errors(9.9, method="bnn")]
    path, *_ = table1.write(found, tmp_path)
    assert "in 1 of 2 comparisons: HNN on boston." in path.read_text()


def test_the_order_of_the_lines_does_not_matter(tmp_path):
    mixed = random.Random(0).sample(SOME, len(SOME))
    for one, other in zip(table1.write(SOME, tmp_path), table1.write(mixed, tmp_path / "mixed"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_head_names_devices_the_number_of_trials_and_what_was_not_used(tmp_path):
    late = {**SOME[0], "trial": 20, "device": "another device"}
    text = table1.write([*SOME, late], tmp_path)[0].read_text()
    for part in ("2 to 6 trials of each method", "Ran on: another device (", "made up (", "Lines not used: 1,"):
        assert part in text
    assert [row for row in text.splitlines() if row.startswith("## ")] == ["## First 5 trials", "## First 20 trials"]


def test_results_without_the_level_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"results at 0\.9 are needed"):
        table1.write([{**line, "levels": [0.8]} for line in SOME], tmp_path)
    assert list(tmp_path.iterdir()) == []


# Intervals.


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
        ("interval_score", 0.9, 6, "0.9000 reached"),
        ("interval_score", 0.90001, 6, "0.9000 missed"),
        ("rmse", 0.97, 6, "0.9700 reached"),
        ("rmse", 0.98, 6, "0.9800 missed"),
        ("calibration_error", 1.15, 6, "1.150 reached"),
        ("calibration_error", 1.16, 6, "1.160 missed"),
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


def test_without_ours_nothing_is_compared_and_the_default_comes_before_the_first_version():
    assert "Nothing to compare" in "\n".join(interval_sections(selection(lines("hnn"))))
    for own in (("coverwell", "sigma-fit"), ("sigma-fit",)):
        found = list(interval_sections(selection(lines("hnn"), *map(lines, own))))
        heads = [part for part in found if part.endswith("over that of the others")]
        assert all(head.startswith(f"### {title(own[0])}: ") for head in heads)
        assert len(heads) == 2


def test_the_default_has_a_row_of_its_own_once_it_was_run(tmp_path):
    for found, rows in ((SOME, 0), ([*SOME, *lines("coverwell")], 2)):  # the first 5 trials, the first 20
        path, *_ = table1.write(found, tmp_path)
        cells = [[cell.strip() for cell in row.strip("|").split("|")][:2] for row in path.read_text().splitlines()]
        assert cells.count(["coverwell", "ours, by default"]) == rows
        assert cells.count(["", "ours, 0.1.0"]) == 2 * 2


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
