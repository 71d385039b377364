"""The monitor: bets worked out by hand, what Ville's inequality promises, and a state that goes on to the same bits."""

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, lists
from sklearn.neighbors import KNeighborsRegressor

import coverwell
from coverwell import MLP, CoverageMonitor, IntervalAround, MatchedRegressor, Schedule
from coverwell.monitor import MOST_MONEY, ODDS, Evidence, reserve, staked, unlikeness


def watched(misses, coverage=0.9, **more):
    """A monitor after these misses and hits."""
    y = 2.0 * np.asarray(misses, dtype=float)
    return CoverageMonitor(coverage, **more).update(y, np.zeros(len(y)), np.ones(len(y)))


# The bets.


def test_the_money_after_three_rows_is_the_one_worked_out_by_hand():
    rates = [1.3 / 10.3, 1.8 / 10.8, 3 / 12]  # odds of 1 to 9, times 1.3, 1.8 and 3
    money = 0.0
    first, second, third = 1 - 0.5 / 1.01**0.5, 0.5 / 1.01**0.5 - 0.5 / 1.02**0.5, 0.5 / 1.02**0.5 - 0.5 / 1.03**0.5
    for q in rates:
        miss, hit = q / 0.1, (1 - q) / 0.9
        money += first / 3 * miss * hit * miss + second / 3 * hit * miss + third / 3 * miss
    monitor = watched([1, 0, 1])
    assert monitor.evidence == pytest.approx(money + 0.5 / 1.03**0.5, rel=1e-12)
    assert (monitor.n_rows, monitor.n_missed) == (3, 2.0)
    assert monitor.coverage_ == pytest.approx(1 / 3)


@given(allowed=floats(0.001, 0.999), less=floats(0, 1))
def test_a_stake_keeps_its_mean_at_the_allowed_rate_and_loses_below_it(allowed, less):
    def mean_factor(rate):
        after = [staked(np.ones(len(ODDS)), x, 10**15, allowed) for x in (0.0, 1.0)]  # by then nothing is added
        return (1 - rate) * after[0] + rate * after[1]

    assert mean_factor(allowed) == pytest.approx(np.ones(len(ODDS)), rel=1e-9)
    assert (mean_factor(less * allowed) <= 1 + 1e-9).all()
    assert (mean_factor((1 + allowed) / 2) > 1).all()


def test_stakes_and_reserve_are_the_money_of_the_start():
    rows = range(1, 2000)
    assert reserve(0) == 1
    assert 1 - reserve(1) > 0.5  # for what is wrong from the start
    assert all(0 < reserve(n) < reserve(n - 1) for n in rows)
    fresh = sum(reserve(n - 1) - reserve(n) for n in rows)
    assert fresh + reserve(rows[-1]) == pytest.approx(1)


@pytest.mark.parametrize(("coverage", "rate"), [(0.9, 0.1), (0.95, 0.05), (0.5, 0.5), (0.9, 0.05)])
def test_streams_that_hold_their_coverage_ring_as_seldom_as_promised(coverage, rate):
    n_streams, n_rows, share, rng = 2000, 3000, 0.05, np.random.default_rng(0)
    stakes, rung = np.zeros((n_streams, len(ODDS))), np.zeros(n_streams, dtype=bool)
    for n in range(1, n_rows + 1):
        stakes = staked(stakes, (rng.random((n_streams, 1)) < rate).astype(float), n, 1 - coverage)
        rung |= stakes.sum(axis=1) + reserve(n) >= 1 / share
    assert rung.mean() <= share + 4 * (share * (1 - share) / n_streams) ** 0.5  # four standard deviations


def test_a_drop_of_five_points_is_noticed_within_500_rows_and_later_after_quiet_rows():
    def median_delay(quiet):
        rng, delays = np.random.default_rng(1), []
        for _ in range(9):
            monitor, rate = CoverageMonitor(0.9), 0.1
            for n in range(quiet + 4000):
                rate = 0.1 if n < quiet else 0.15
                monitor.update(2.0 * (rng.random() < rate), 0.0, 1.0)
                if monitor.alarm:
                    break
            delays.append(monitor.n_rows - quiet)
        return np.median(delays)

    assert 100 < median_delay(0) < 500 < median_delay(2000) < 1500


def test_too_wide_intervals_never_ring():
    monitor = watched(np.zeros(5000))
    assert (monitor.evidence, monitor.alarm, monitor.coverage_) == (1.0, False, 1.0)


def test_the_alarm_stays_and_the_evidence_only_grows():
    monitor, evidence = watched(np.ones(20)), []
    assert monitor.alarm
    for _ in range(300):
        evidence.append(monitor.update(0.5, 0.0, 1.0).evidence)
    assert monitor.alarm
    assert evidence == sorted(evidence)
    assert "ALARM: coverage" in str(monitor)


def test_endless_misses_do_not_overflow():
    monitor = watched(np.ones(3000))
    assert MOST_MONEY < monitor.evidence < math.inf


# Rows, batches and groups.


@given(misses=lists(booleans(), min_size=1, max_size=40))
def test_a_batch_is_its_rows_one_by_one_and_the_share_missed_has_no_order(misses):
    together, alone = watched(misses), CoverageMonitor(0.9)
    for miss in misses:
        alone.update(2.0 * miss, 0.0, 1.0)
    assert alone.state == together.state
    assert watched(misses[::-1]).n_missed == together.n_missed == sum(misses)


def test_ends_are_inside():
    assert CoverageMonitor().update([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]).n_missed == 0


def test_of_several_targets_the_share_that_is_missed_counts():
    monitor = CoverageMonitor().update([[2.0, 0.5], [0.5, 0.5]], np.zeros((2, 2)), np.ones((2, 2)))
    assert (monitor.n_rows, monitor.n_missed, monitor.coverage_) == (2, 0.5, 0.75)
    half = Evidence(1 - 0.9)
    half.add(0.5)
    half.add(0.0)
    assert monitor.evidence == half.largest


def test_a_group_has_the_evidence_of_its_rows_alone_less_the_more_groups_came_before():
    misses, groups = [1, 0, 1, 1, 0, 1], ["a", "b", "b", "a", "c", "c"]
    y = 2.0 * np.array(misses)
    monitor = CoverageMonitor().update(y, np.zeros(6), np.ones(6), groups)
    alone = {"a": [1, 1], "b": [0, 1], "c": [0, 1]}
    expected = {n: watched(alone[n]).evidence / c for n, c in (("a", 2), ("b", 6), ("c", 12))}
    assert monitor.group_evidence == pytest.approx(expected, rel=1e-12)
    assert monitor.evidence == watched(misses).evidence
    grouped = np.argsort(groups, kind="stable")  # how the groups' rows mix does not matter
    again = CoverageMonitor().update(y[grouped], np.zeros(6), np.ones(6), np.array(groups)[grouped])
    assert again.group_evidence == monitor.group_evidence


def test_a_group_that_is_missed_is_named_though_the_whole_is_covered():
    n = 2000
    groups = np.where(np.arange(n) % 20, "most", "few")
    y = np.where((groups == "few") & (np.arange(n) % 40 == 0), 2.0, 0.5)  # half of them
    monitor = CoverageMonitor().update(y, np.zeros(n), np.ones(n), groups)
    assert (monitor.alarm, monitor.group_alarms, monitor.rung) == (False, ["few"], ["group few"])
    assert monitor.coverage_ == 0.975


def test_false_alarms_of_many_groups_together_are_as_few_as_promised():
    n_streams, share, rng, n_rung = 100, 0.1, np.random.default_rng(2), 0
    for _ in range(n_streams):
        groups, y = rng.integers(0, 10, 200), 2.0 * (rng.random(200) < 0.1)
        monitor = CoverageMonitor(false_alarms=share).update(y, np.zeros(200), np.ones(200), groups)
        n_rung += bool(monitor.group_alarms)
    assert n_rung / n_streams <= share + 4 * (share * (1 - share) / n_streams) ** 0.5


# Inputs.


def test_the_rank_of_a_row_is_bet_on():
    monitor = CoverageMonitor().update_inputs([4.0, 1.0])
    draws = np.random.default_rng(np.random.PCG64(0)).random(2)
    by_hand = Evidence(0.5)
    by_hand.add(draws[0])  # one row, of rank 0 to 1
    by_hand.add(draws[1] / 2)  # below the other
    assert json.loads(monitor.state)["inputs"]["stakes"] == by_hand.stakes.tolist()


def test_inputs_in_any_order_ring_as_seldom_as_promised_and_a_shift_rings():
    n_streams, share, rng, n_rung = 200, 0.1, np.random.default_rng(3), 0
    for _ in range(n_streams):
        monitor = CoverageMonitor(false_alarms=share).update_inputs(rng.chisquare(3, 300).round())  # with ties
        n_rung += monitor.input_alarm
    assert n_rung / n_streams <= share + 4 * (share * (1 - share) / n_streams) ** 0.5
    shifted = CoverageMonitor().update_inputs(rng.chisquare(3, 300)).update_inputs(rng.chisquare(3, 200) + 4)
    assert shifted.input_alarm
    assert (shifted.alarm, shifted.rung) == (False, ["inputs"])


def test_inputs_come_in_batches_or_one_by_one():
    values = np.random.default_rng(4).chisquare(3, 30)
    alone = CoverageMonitor()
    for value in values:
        alone.update_inputs(value)
    assert alone.state == CoverageMonitor().update_inputs(values).state


def small_model():
    X = np.random.default_rng(5).normal([10.0, -3.0], [2.0, 0.5], size=(60, 2))
    schedule = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
    network = MLP(hidden=4, bins=0)
    return MatchedRegressor(network=network, folds=2, repeats=1, schedule=schedule, companions=()).fit(X, X[:, 0]), X


def test_unlikeness_is_the_mean_square_of_scaled_inputs_and_a_model_file_keeps_its_monitor(tmp_path):
    model, X = small_model()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    assert unlikeness(model, X) == pytest.approx((scaled**2).mean(axis=1))
    model.monitor_ = CoverageMonitor(0.9).update(2.0, 0.0, 1.0, "a").update_inputs(unlikeness(model, X))
    coverwell.save(model, tmp_path / "model.safetensors")
    assert coverwell.load(tmp_path / "model.safetensors").monitor_.state == model.monitor_.state


@pytest.mark.parametrize("calibration", ["local", "cv+"])
def test_unlikeness_does_not_look_at_predictions_beside_the_inputs(calibration):
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = IntervalAround(KNeighborsRegressor(), calibration=calibration, random_state=0).fit(X, X[:, 0])
    assert (unlikeness(model, X) == model.predictor_.inputs.unlikeness(X)).all()


# State and bad input.


def test_a_restored_state_goes_on_to_the_same_bits():
    rng = np.random.default_rng(6)
    y, groups, inputs = rng.normal(size=200), rng.choice(["a", "b"], 200), rng.chisquare(2, 200)
    lower, upper = np.full(200, -1.3), np.full(200, 1.3)
    whole = CoverageMonitor().update(y, lower, upper, groups).update_inputs(inputs)
    half = CoverageMonitor().update(y[:77], lower[:77], upper[:77], groups[:77]).update_inputs(inputs[:77])
    went_on = CoverageMonitor(state=half.state).update(y[77:], lower[77:], upper[77:], groups[77:])
    assert went_on.update_inputs(inputs[77:]).state == whole.state


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [0.0], [1.0]), r"must have the same shape, .*got \(2,\), \(1,\) and \(1,\)"),
        ((np.zeros((1, 1, 1)),) * 3, "must have the same shape, of rows or of rows and targets"),
        ((math.nan, 0.0, 1.0), "y must not be NaN, got 1 such values; leave these rows out"),
        (([1.0, 1.0], [0.0, math.nan], [1.0, 1.0]), "lower must not be NaN"),
        ((1.0, 2.0, 1.0), "lower must not lie above upper, got 2 and 1; give them in the order y, lower, upper"),
        (("much", 0.0, 1.0), "y must hold numbers, got 'much'; convert it first"),
        (([1.0, 1.0], [0.0, 0.0], [1.0, 1.0], ["a"]), "groups must name a group for each of 2 rows, got 1"),
        (([1.0, 1.0], [0.0, 0.0], [1.0, 1.0], ["a", None]), "every row must have a group"),
        ((1.0, 0.0, 1.0, [math.nan]), "every row must have a group"),
    ],
)
def test_bad_rows_are_an_error_and_change_nothing(arguments, message):
    monitor = watched([1, 0])
    before = monitor.state
    with pytest.raises(ValueError, match=message):
        monitor.update(*arguments)
    assert monitor.state == before


@pytest.mark.parametrize("bad", [-1.0, [1.0, math.nan], [[1.0]], math.inf])
def test_bad_inputs_are_an_error_and_change_nothing(bad):
    monitor = CoverageMonitor()
    before = monitor.state
    with pytest.raises(ValueError, match="unlikeness must be a finite number of at least 0 for each row"):
        monitor.update_inputs(bad)
    assert monitor.state == before


@pytest.mark.parametrize("name", ["coverage", "false_alarms"])
@pytest.mark.parametrize("value", [0.0, 1.0, 1.5, math.nan])
def test_shares_lie_strictly_between_0_and_1(name, value):
    with pytest.raises(ValueError, match=f"{name} must lie strictly between 0 and 1, got"):
        CoverageMonitor(**{name: value})


def test_a_state_of_another_kind_or_level_is_refused():
    state = watched([1, 0]).state
    with pytest.raises(ValueError, match=r"of a monitor with coverage=0.9 .* this one has coverage=0.8 .*the same"):
        CoverageMonitor(0.8, state=state)
    with pytest.raises(ValueError, match=r"false_alarms=0.01, this one .*false_alarms=0.05"):
        CoverageMonitor(0.9, false_alarms=0.05, state=state)
    no_stakes = {**json.loads(state), "misses": {"allowed": 0.1, "stakes": [1.0]}}
    for broken in ("", "[]", "{}", json.dumps(no_stakes)):
        with pytest.raises(ValueError, match="this is not the state of a CoverageMonitor"):
            CoverageMonitor(state=broken)


def test_data_frames_and_numbers_of_any_kind_are_taken():
    frame = pl.DataFrame({"y": [1, 3], "lower": [0, 0], "upper": [2, 2], "city": ["Rome", "Oslo"]})
    monitor = CoverageMonitor().update(frame["y"], frame["lower"], frame["upper"], frame["city"])
    assert (monitor.n_missed, list(monitor.group_evidence)) == (1.0, ["Rome", "Oslo"])
    assert math.isnan(CoverageMonitor().coverage_)
    assert str(monitor).endswith("an alarm from 100 on; no alarm")


def test_a_monitor_without_rows_says_so():
    assert str(CoverageMonitor(0.9)) == "no rows yet"
