"""The coverage test: what it promises and counts, that its bands are right, and that it finds what is broken."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from coverage_bands import (
    PROBABILITY,
    Cell,
    Part,
    band_of_mean,
    by_fewer_rows,
    deviations,
    of_count,
    promise_of,
    spread_as_ranks,
)
from coverage_report import draws_needed, failures, fits_needed, parts_of, ranks_alone, report
from coverage_test import BROKEN, CALIBRATIONS, N_NEW, counts, jobs_of, measure, measure_ranks
from numpy.testing import assert_allclose, assert_array_equal
from random_laws import ATOMS, GAPS, GROUPS, NOISES, REPEATS, Law
from scipy.stats import beta, betabinom
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator

from coverwell import IntervalAround
from coverwell.calibration import Cross
from coverwell.metrics import coverage_rank
from coverwell.training import rows as training_rows

TAIL = (1 - PROBABILITY) / 2


def part(covered, *, level=0.9, n_ranked=99, n_new=1000, inside=None, **more):
    return Part(level, n_ranked, n_new, covered, covered if inside is None else inside, **more)


def exact_counts(rng, n_fits, *, level=0.9, n_ranked=99, n_new=1000, rank=0):
    """Fits by ranks as they should be, or another one."""
    k = coverage_rank(level, n_ranked) + rank
    drawn = betabinom.rvs(n_new, k, n_ranked + 1 - k, size=n_fits, random_state=rng)
    return [part(int(n), level=level, n_ranked=n_ranked, n_new=n_new) for n in drawn]


def seed_of(kind):
    """The first law of a kind with few rows."""
    return next(seed for seed in range(1000) if kind in (law := Law.of(seed)).kinds and law.n_rows < 200)


# Laws ----------------------------------------------------------------------------------------------------------------


def test_a_seed_says_all_about_a_law_and_every_kind_occurs():
    laws = [Law.of(seed) for seed in range(300)]
    kinds = Counter(kind for law in laws for kind in law.kinds)
    assert all(kinds[kind] >= 10 for kind in (*NOISES, *GAPS, *ATOMS, *REPEATS, GROUPS))
    assert min(law.n_rows for law in laws) < 80
    assert max(law.n_rows for law in laws) > 1500
    for law in laws[:20]:
        (X, y, _), (same, y_same, _) = (Law.of(law.seed).draw(70, np.random.default_rng(1)) for _ in range(2))
        assert_array_equal(np.asarray(X, dtype=str), np.asarray(same, dtype=str))
        assert_array_equal(y, y_same)
        assert X.shape == (70, len(law.names))


@pytest.mark.parametrize("kind", REPEATS)
def test_rows_that_come_again_are_from_a_pool_with_their_targets_or_without(kind):
    X, y, _ = Law.of(seed_of(kind)).draw(5000, np.random.default_rng(0))
    inputs, place = np.unique(np.asarray(X, dtype=str), axis=0, return_inverse=True)
    assert len(inputs) <= Law.of(seed_of(kind)).n_rows // 2
    n_targets = [len(np.unique(y[place == number])) for number in range(5)]
    assert (n_targets == [1] * 5) is (kind == "repeated rows")


def test_gaps_are_in_frames_and_new_rows_of_groups_come_from_groups_of_their_own():
    for kind in GAPS:
        X, _, _ = Law.of(seed_of(kind)).draw(500, np.random.default_rng(0))
        assert 0 < X.isna().to_numpy().mean() < 0.5
    law = Law.of(seed_of(GROUPS))
    _, _, groups = law.draw(law.n_rows, np.random.default_rng(0))
    assert set(Counter(groups.tolist()).values()) == {law.rows_per_group}
    _, _, new = law.draw(50, np.random.default_rng(0), new_groups=True)
    assert len(set(new.tolist())) == 50


# Promises and bands --------------------------------------------------------------------------------------------------


def test_promises_by_hand():
    ranks = promise_of("split", part(0, n_ranked=20))  # k = 19 of 21
    assert (ranks.lowest, ranks.highest, ranks.by_ranks) == (19 / 21, 19 / 21, True)
    groups = promise_of("split", part(0, n_ranked=20, rows_per_group=4))  # rows 19 to 23 of 24
    assert (groups.lowest, groups.highest, groups.by_ranks) == (19 / 24, 23 / 24, False)
    few, many = (promise_of("cross", part(0, n_ranked=n)) for n in (99, 999))
    assert_allclose([few.lowest, many.lowest], [0.89, 0.895])
    # Errors of 4 / 5 of the rows are larger by the root of 5 / 4: 1.645 becomes 1.839.
    assert_allclose([few.highest, many.highest], 2 * 0.96704 - 1, atol=1e-4)
    assert promise_of("local", part(0, goes_beyond=True)).highest == 1
    assert promise_of("split", part(0, goes_beyond=True)).highest == 0.9
    cv_plus = promise_of("cv+", part(0, n_ranked=100))  # the smaller of 1.6 / 21 and 0.95 / 6
    assert_allclose([cv_plus.lowest, cv_plus.highest], [0.8 - 1.6 / 21, 1])
    for nothing in (promise_of("none", part(0)), promise_of("cv+", part(0, rows_per_group=2))):
        assert (nothing.lowest, nothing.highest) == (0, 1)
    assert by_fewer_rows(0.5) == pytest.approx(0.549, abs=1e-3)


def test_ranks_of_rows_in_groups_cover_new_groups_within_the_promise():
    rng, n_groups, size, n_draws = np.random.default_rng(0), 10, 4, 4000
    scores = rng.normal(size=(n_draws, n_groups + 1, 1)) + 0.5 * rng.normal(size=(n_draws, n_groups + 1, size))
    known = np.sort(scores[:, 1:].reshape(n_draws, -1), axis=1)
    for level in (0.5, 0.9):
        asked = part(0, level=level, n_ranked=n_groups * size, rows_per_group=size)
        covered = (scores[:, 0] <= known[:, [coverage_rank(level, asked.n_ranked) - 1]]).mean(axis=1)
        promise, error = promise_of("split", asked), covered.std() / np.sqrt(n_draws)
        assert promise.lowest - 4 * error < covered.mean() < promise.highest + 4 * error


def test_the_band_of_a_sum_has_its_probability():
    # Against the law itself: the sum of thirty beta-binomial counts, skewed ones among them.
    fits = [(0.99, 120, 200)] * 10 + [(0.9, 20, 200)] * 10 + [(0.95, 60, 200)] * 10
    pmf, mean = np.ones(1), 0.0
    for level, n, n_new in fits:
        k = coverage_rank(level, n)
        pmf = np.convolve(pmf, betabinom.pmf(np.arange(n_new + 1), n_new, k, n + 1 - k))
        mean += n_new * k / (n + 1)
    below, above = deviations(np.sum([of_count(*fit) for fit in fits], axis=0))
    n_covered = np.arange(len(pmf))
    for outside in (n_covered < mean + below, n_covered > mean + above):
        assert TAIL / 3 < pmf[outside].sum() < 3 * TAIL


def test_the_band_of_known_coverage_is_that_of_a_mean_of_beta_variables():
    low, high = band_of_mean(0.9, 20, 400)
    error = beta(19, 2).std() / 20
    assert_allclose([low, high], 19 / 21 + error * np.array([-3.89, 3.89]), atol=0.2 * error)  # all but normal
    assert high - 19 / 21 < 19 / 21 - low  # skewed to the left


def test_a_cell_of_equal_targets_holds_between_open_and_closed_intervals():
    def cell(inside, covered):
        return Cell.of("split", [part(covered, inside=inside)] * 40)

    assert cell(850, 950).holds
    assert cell(900, 900).holds
    assert not cell(950, 960).holds
    assert not cell(840, 850).holds


def test_the_spread_among_fits_is_that_of_ranks_or_not():
    rng = np.random.default_rng(0)
    assert spread_as_ranks(exact_counts(rng, 300), rng) > 0.01
    assert spread_as_ranks([part(n) for n in rng.binomial(1000, 0.9, size=300).tolist()], rng) < TAIL


# Counting ------------------------------------------------------------------------------------------------------------


def test_targets_at_an_end_are_covered_and_not_inside():
    X, y = np.arange(60.0)[:, None], np.tile([-1.0, 0.0, 1.0], 20)
    zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0.0).fit(X, y))
    model = IntervalAround(zero, [0.5, 0.9], calibration="cross", random_state=0).fit(X, y)
    found = counts(model, X[:4], np.array([-1.0, 1.0, 0.5, 1.5]), n_ranked=60)
    assert found == [60, 4, [3, 3], [1, 1]]
    assert counts(model, X[:2], np.array([0.5, 1.5]), n_ranked=60) == [60, 2, [1, 1]]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of outlying rows
@pytest.mark.parametrize("kind", ["categories", "gaps by value", GROUPS])
def test_a_law_is_one_line_with_all_methods_and_is_not_run_again(kind):
    seed = next(seed for seed in range(1000) if kind in Law.of(seed).kinds and Law.of(seed).n_rows < 110)
    law, (line,) = Law.of(seed), measure(seed, None)
    methods = {f"{name}, {ranks}" for name in ("matched", "around") for ranks in CALIBRATIONS}
    assert methods | {"baseline, split", "matched, none"} <= line["found"].keys()
    for method, parts in line["found"].items():
        for n_ranked, n_new, *shares in parts:
            assert n_new == N_NEW or "hold_for" in method
            assert n_ranked == {"split": n_ranked, "none": 0}.get(method.split(", ")[1], law.n_rows)
            assert all(0 <= inner <= outer <= n_new for share in shares for inner, outer in pairwise(share))
    assert jobs_of([seed, seed + 1], None, [line]) == [(seed + 1, None)]
    assert (seed, "rank") in jobs_of([seed], "rank", [line])


# Broken on purpose ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALIBRATIONS[1:])
def test_ranks_are_within_their_band_and_what_is_broken_is_outside(name):
    lines = [line for broken in BROKEN for line in measure_ranks(name, 60, broken, 1000)]
    for broken in BROKEN:
        needed = [draws_needed(n, level, means) for _, n, level, means in ranks_alone(lines, broken)]
        assert any(needed) is (broken is not None)
    assert failures(lines) == []
    as_they_are = [{**line, "broken": "rank"} for line in lines if line["broken"] is None]
    assert failures(as_they_are) == [f"broken on purpose (rank), not found: {name}"]


def test_a_leak_lets_members_train_on_some_of_the_rows_that_they_leave_out():
    X, random_state = np.zeros((100, 1)), np.random.RandomState(0)
    dealing = (X, 5, 2, Cross(), (0.9,), random_state)
    with BROKEN["leak"]():
        trains, leaves_out = training_rows.left_out_by(*dealing, groups=None)
    assert (trains & leaves_out).any(axis=0).sum() == 5
    trains, leaves_out = training_rows.left_out_by(*dealing, groups=None)
    assert not (trains & leaves_out).any()


def test_fits_are_enough_once_the_cell_stays_outside():
    key, rng = ("matched, split", "all", 0.9), np.random.default_rng(0)
    assert fits_needed(key, exact_counts(rng, 200)) is None
    parts = exact_counts(rng, 400, rank=-1)
    needed = fits_needed(key, parts)
    assert 20 < needed < 400
    assert not any(Cell.of("split", parts[:n]).holds for n in range(needed, 401, 10))
    assert Cell.of("split", parts[: needed - 10]).holds


@pytest.mark.parametrize("rank", [0, -1])
def test_the_report_names_what_is_outside(rank):
    where, rng, n = {"device": "CPU", "versions": {"coverwell": "0"}}, np.random.default_rng(0), 150
    about = {"broken": None, "kinds": ["normal", "ridge"], "n_rows": 100, "seconds": 1.0, **where}
    counted = {p: exact_counts(rng, n, level=p, n_ranked=19, rank=rank * (p == 0.9)) for p in (0.5, 0.8, 0.9, 0.95)}
    each = [[19, 1000, [own[law].covered for own in counted.values()]] for law in range(n)]
    lines = [{"law": law, **about, "found": {"baseline, split": [each[law]]}} for law in range(n)]
    assert parts_of(lines, None)["baseline, split", "60 to 199 rows", 0.9] == counted[0.9]
    found, text = failures(lines), report(lines)
    assert [line.split(", ")[2:4] for line in found if "60 to 199" in line] == (
        [["60 to 199 rows", "0.9"]] if rank else []
    )
    assert ("OUTSIDE" in text, "**Outside: 0**" in text) == (rank < 0, rank == 0)
