"""Arithmetic on result lines: values worked out by hand, and bands that hold what they say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from coverwell import metrics
from reproduction.data.tables import TABLES
from reproduction.methods import TABLE_METHODS
from reproduction.tables import splits
from reproduction.tables.splits import Selection
from reproduction.tables.typeset import Estimate


def line(method="sigma-fit", data="boston", trial=0, **more):
    base = {"levels": [0.5, 0.9], "n_train": 400, "n_test": 100, "rmse": 3.0}
    measures = {"coverage": [0.52, 0.87], "width": [2.0, 9.0], "interval_score": [5.0, 12.0]}
    where = {"device": "x86_64 CPU", "versions": {"coverwell": "0.1.0", "torch": "2.13.0"}}
    return {"method": method, "data": data, "trial": trial, **base, **measures, **where, **more}


def of_trials(values, **more):
    return [line(trial=trial, rmse=value, **more) for trial, value in enumerate(values)]


def rmse(one):
    return one["rmse"]


def test_the_corrected_error_is_sd_times_root_of_one_over_trials_plus_the_ratio_of_rows():
    found = splits.estimate([1.0, 2.0, 3.0], of_trials([1.0, 2.0, 3.0]))
    assert (found.mean, found.trials) == (2.0, 3)
    assert found.error == pytest.approx(math.sqrt(1 / 3 + 100 / 400))

    lines = [line(n_test=100, n_train=400), line(trial=1, n_test=150, n_train=300)]  # the mean ratio counts
    assert splits.estimate([0.0, 2.0], lines).error == pytest.approx(math.sqrt(2) * math.sqrt(1 / 2 + 0.375))
    assert splits.estimate([3.0], [line()]) == Estimate(3.0, None, 1)


def test_nine_of_ten_mean_coverages_of_exact_ranks_lie_in_the_band():
    rng = np.random.default_rng(0)
    n_train, n_test, trials, repeats = 80, 20, 5, 2000
    rank = metrics.coverage_rank(0.8, n_train)
    # The same 100 scores, split at random again and again: only their order matters.
    scores = rng.permuted(np.tile(np.arange(n_train + n_test), (repeats * trials, 1)), axis=1)
    thresholds = np.sort(scores[:, :n_train], axis=1)[:, rank - 1, None]
    means = (scores[:, n_train:] <= thresholds).mean(axis=1).reshape(repeats, trials).mean(axis=1)
    low, high = splits.mean_coverage_band(0.8, n_test, n_train, trials=trials)
    share = np.mean((low <= means) & (means <= high))
    # Three standard errors of a share, and a step of the mean (1 / 100, a fifth of its sd) at the edges.
    assert share == pytest.approx(0.9, abs=3 * math.sqrt(0.09 / repeats) + 0.02)


@pytest.mark.parametrize("asked", [0.1, 0.5, 0.9, 0.95])
def test_the_band_of_one_trial_is_the_metrics_band_but_for_rounding_to_whole_rows(asked):
    band = splits.mean_coverage_band(asked, 200, 800, trials=1)
    assert band == pytest.approx(metrics.coverage_band(asked, 200, 800), abs=1.5 / 200)


def test_four_times_the_trials_halve_the_band_which_stays_between_none_and_all():
    (low, high), (lower, higher) = (splits.mean_coverage_band(0.5, 100, 400, trials=t) for t in (20, 5))
    assert higher - lower == pytest.approx(2 * (high - low))
    low, high = splits.mean_coverage_band(0.99, 20, 100, trials=1)
    assert 0 <= low < 0.99 < high == 1.0


def test_lines_of_one_method_and_table_come_by_trial_each_with_its_largest_set_of_levels():
    lines = [line(trial=2), line(trial=0), line(method="bnn"), line(data="crime"), line(trial=1)]
    assert [one["trial"] for one in splits.select(lines, method="sigma-fit", data="boston")] == [0, 1, 2]
    small = line(levels=[0.9], coverage=[0.8])
    for lines in ([small, line()], [line(), small]):
        assert splits.select(lines, method="sigma-fit", data="boston") == [line()]
    with pytest.raises(ValueError, match=r"trial 0 of sigma-fit on boston came twice.*remove one"):
        splits.select([line(), line()], method="sigma-fit", data="boston")


def test_a_level_is_found_by_its_value_and_not_by_its_last_bit():
    assert splits.at(line(levels=[0.1 + 0.2, 0.9]), "width", 0.3) == 2.0
    errors = [splits.at(line(coverage=[0.5, reached]), "calibration_error", 0.9) for reached in (0.87, 0.96)]
    assert errors == pytest.approx([0.03, 0.06])
    with pytest.raises(ValueError, match=r"must have the level 0.8, got \[0.5, 0.9\]"):
        splits.at(line(), "width", 0.8)


def test_a_ratio_is_of_means_over_the_shared_trials():
    own, other = of_trials([2.0, 4.0, 9.0]), of_trials([3.0, 1.0], method="bnn")
    ratio = splits.paired_ratio(own, other, rmse)
    assert (ratio.mean, ratio.trials) == (1.5, 2)
    # The rest is (2 - 4.5, 4 - 1.5) / 2 = (-1.25, 1.25) with sd 1.25 * sqrt(2).
    assert ratio.error == pytest.approx(1.25 * math.sqrt(2) * math.sqrt(1 / 2 + 1 / 4))
    ratio = splits.paired_ratio(of_trials([2.0, 4.0, 1.0]), of_trials([1.0, 2.0, 0.5], method="bnn"), rmse)
    assert ratio == Estimate(2.0, 0.0, 3)


def test_lines_without_shared_trials_or_of_other_splits_are_not_paired():
    assert splits.paired_ratio([line(trial=0)], [line(method="bnn", trial=1)], rmse) is None
    with pytest.raises(ValueError, match=r"400 \+ 100 rows for sigma-fit and 450 \+ 50 for bnn"):
        splits.paired_ratio([line()], [line(method="bnn", n_train=450, n_test=50)], rmse)


@given(lists(floats(0.01, 100), min_size=1, max_size=8))
def test_ratios_and_their_inverses_cancel_in_the_geometric_mean(ratios):
    assert splits.geometric_mean([*ratios, *(1 / ratio for ratio in ratios)]) == pytest.approx(1.0)


def test_ours_are_methods_of_the_study_and_those_of_the_first_version_have_the_papers_names():
    assert set(splits.OURS) == {method.slug for method in TABLE_METHODS if method.kind in ("ours", "as published")}
    own = (splits.DEFAULT, *splits.FIRST_VERSION)
    assert own == tuple(method.slug for method in TABLE_METHODS if method.kind == "ours")
    assert [splits.plain_title(method) for method in own] == ["coverwell", "Sigma Fit", "IQR Fit"]
    assert tuple(splits.UNITS) == TABLES


def test_a_selection_leaves_out_other_levels_and_later_trials_and_must_not_be_empty():
    lines = [line(), line(trial=1, levels=[0.5, 0.8]), line(trial=20), line(method="bnn", trial=3)]
    chosen = Selection(lines, [], asked=0.9, trials=20)
    assert chosen.lines == [line(method="bnn", trial=3), line()]
    assert (chosen.competitors, chosen.of("hnn", "boston"), chosen.of("bnn", "boston", 2)) == (["bnn"], [], [])
    with pytest.raises(ValueError, match=r"results at 0.8 are needed.*got none among 2 lines; run the study"):
        Selection([line()], [line(method="ngboost")], asked=0.8, trials=20)
