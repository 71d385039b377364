"""Ours against the others: the hardest competitor, the mean over tables, and verdicts that can go either way."""

import pytest

from coverwell import metrics
from reproduction.tables import intervals
from reproduction.tables.intervals import Verdict
from reproduction.tables.splits import Selection


def lines(method, data, *, rmse, score=1.0, coverage=0.9, trials=(0, 1)):
    base = {"method": method, "data": data, "levels": [0.9], "n_train": 400, "n_test": 100, "width": [1.0]}
    return [{**base, "trial": t, "rmse": rmse, "interval_score": [score], "coverage": [coverage]} for t in trials]


def selection(*parts, peers=()):
    return Selection([line for part in parts for line in part], list(peers), asked=0.9, trials=20)


def test_the_best_competitor_is_chosen_for_each_measure_by_itself():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=2.0, score=10.0),
        lines("hnn", "boston", rmse=1.0, score=20.0),
        lines("bnn", "boston", rmse=4.0, score=8.0),
    )
    best = [
        intervals.best(intervals.ratios(chosen, "sigma-fit", measure, "boston"))
        for measure in ("rmse", "interval_score")
    ]
    assert best == ["hnn", "bnn"]


def test_over_the_tables_the_ratios_to_the_best_are_averaged_geometrically():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=2.0, score=2.0),
        lines("hnn", "boston", rmse=1.0, score=1.0),
        lines("bnn", "boston", rmse=9.0, score=9.0),
        lines("sigma-fit", "crime", rmse=1.0, score=1.0),
        lines("bnn", "crime", rmse=8.0, score=2.0),
    )
    found = intervals.verdicts(chosen, "sigma-fit")
    assert found["rmse"].value == pytest.approx((2 / 8) ** 0.5)
    assert found["interval_score"].value == pytest.approx((2 / 2) ** 0.5)
    assert [found[measure].tables for measure in ("rmse", "interval_score")] == [2, 2]


def test_the_calibration_error_is_averaged_over_the_tables_relative_to_what_to_expect():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=1.0, coverage=0.87), lines("sigma-fit", "crime", rmse=1.0, coverage=0.90)
    )
    found = intervals.verdicts(chosen, "sigma-fit")
    half = 0.5 * 0.03 / metrics.expected_calibration_error(0.9, 100, 400)
    assert found["calibration_error"].value == pytest.approx(half)
    assert found.keys() == {"calibration_error"}  # nobody to compare with


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("interval_score", 1.0, "1.000 reached"),
        ("interval_score", 1.0001, "1.000 missed"),
        ("rmse", 1.02, "1.020 reached"),
        ("rmse", 1.03, "1.030 missed"),
        ("calibration_error", 1.19, "1.190 reached"),
        ("calibration_error", 1.21, "1.210 missed"),
    ],
)
def test_a_target_is_reached_or_missed_by_the_unrounded_value(measure, value, text):
    assert str(Verdict(measure, value, 6)) == text


def test_a_verdict_on_fewer_tables_says_so():
    assert str(Verdict("rmse", 0.9, 2)) == "0.9000 reached (2 of 6 tables)"


def test_our_own_variants_do_not_compete_and_peers_do():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=2.0),
        lines("iqr-fit", "boston", rmse=1.0),
        lines("sigma-fit-published", "boston", rmse=1.0),
        peers=lines("ngboost", "boston", rmse=4.0),
    )
    assert list(intervals.ratios(chosen, "sigma-fit", "rmse", "boston")) == ["ngboost"]


def test_only_shared_trials_are_compared():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=2.0, trials=(0, 1)),
        lines("sigma-fit", "boston", rmse=50.0, trials=(2,)),
        lines("hnn", "boston", rmse=4.0, trials=(0, 1, 7)),
    )
    ratio = intervals.ratios(chosen, "sigma-fit", "rmse", "boston")["hnn"]
    assert (ratio.mean, ratio.trials) == (0.5, 2)


def test_variants_of_a_table_do_not_enter_the_comparison():
    chosen = selection(
        lines("sigma-fit", "boston", rmse=1.0),
        lines("hnn", "boston", rmse=1.0),
        lines("sigma-fit", "parkinsons by patient", rmse=9.0),
        lines("hnn", "parkinsons by patient", rmse=1.0),
    )
    assert intervals.verdicts(chosen, "sigma-fit")["rmse"] == Verdict("rmse", 1.0, 1)


def test_without_ours_by_default_nothing_is_judged():
    text = "\n".join(intervals.sections(selection(lines("hnn", "boston", rmse=1.0))))
    assert "Not judged" in text


def test_without_competitors_only_the_calibration_error_is_judged():
    text = "\n".join(intervals.sections(selection(lines("sigma-fit", "boston", rmse=1.0))))
    assert text.count("reached") == 1
    assert "over that of the others" not in text


# Each table by itself.


def test_the_calibration_error_is_the_mean_distance_and_not_the_distance_of_the_mean():
    high, low = (lines("hnn", "boston", rmse=1.0, coverage=c, trials=(t,)) for t, c in enumerate((0.86, 0.94)))
    (one,) = intervals.measured(selection(high, low), "boston")
    assert one.values["coverage"].mean == pytest.approx(0.90)
    assert one.values["calibration_error"].mean == pytest.approx(0.04)
    assert one.expected_error == metrics.expected_calibration_error(0.9, 100, 400)


def test_a_method_without_observation_noise_has_a_second_row_with_the_same_error():
    second = {"coverage": [0.4], "width": [2.0], "interval_score": [40.0]}
    both = [{**one, "epistemic": second} for one in lines("mc-dropout", "boston", rmse=3.0)]
    with_noise, without, other = intervals.measured(selection(both, lines("hnn", "boston", rmse=3.0)), "boston")
    assert (with_noise.reading, without.reading, other.method) == ("", "epistemic only", "hnn")
    assert without.values["interval_score"].mean == 40.0
    assert without.values["rmse"] == with_noise.values["rmse"]
