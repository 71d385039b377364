"""Coverage in parts of the rows: counted right, named right, and its uncertainty as wide as it should be."""

import itertools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, hypergeom
from sklearn.linear_model import LinearRegression

import coverwell.slices as slices_module
from coverwell import LSTM, IntervalAround, MatchedForecaster, Schedule, load, save
from coverwell.calibration import Split
from coverwell.errors import CoverageWarning, ModelFileError
from coverwell.model_file import read_tensors, write_tensors
from coverwell.slices import (
    BY_CHANCE,
    FEWEST_ROWS,
    Slice,
    Slices,
    WorstSlice,
    cut,
    in_one_line,
    pairs,
    rows_as_one,
    slices_of,
    worst_slices,
)

RNG = np.random.default_rng(0)
counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def named(slices):
    return [(part.values, part.n_rows, part.n_inside) for part in slices]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [("1 to 5", 5, 3), ("6 to 8", 3, 2)]),
        ([2, 3, 2, 3, 2, 3, 2, 3], [("2", 4, 3), ("3", 4, 2)]),  # few values stand alone
        ([1.0, np.nan, 1.0, np.nan, 1.0, 1.0, 1.0, 1.0], [("1", 6, 4), ("missing", 2, 1)]),
        ([np.nan] * 8, [("missing", 8, 5)]),
        (np.array([*"ab", None, *"aaaaa"], dtype=object), [("a", 6, 4), ("b", 1, 1), ("missing", 1, 0)]),
        (
            ["missing", None, *["others"] * 6],
            [("missing", 1, 1), ("others", 6, 3), ("missing", 1, 1)],
        ),  # levels
        (
            np.datetime64("2020-01-01") + np.arange(8),
            [("2020-01-01 to 2020-01-05", 5, 3), ("2020-01-06 to 2020-01-08", 3, 2)],
        ),
        (
            np.datetime64("2020-01-01T10:30") + np.arange(8),
            [("2020-01-01 10:30 to 2020-01-01 10:34", 5, 3), ("2020-01-01 10:35 to 2020-01-01 10:37", 3, 2)],
        ),
    ],
)
def test_columns_are_cut_as_worked_out_by_hand(column, expected):
    inside = [True, True, False, False, True, True, True, False]
    assert named(slices_of(inside, {"x": column}, asked=0.9, quantiles=2)) == expected


def test_the_rarer_levels_of_a_feature_are_one_slice_and_those_of_a_group_are_not():
    values = [f"level {i:02d}" for i in range(12) for _ in range(2 if i < 10 else 1)]
    inside = [True] * len(values)
    found = slices_of(inside, {"city": values}, asked=0.9)
    assert [part.values for part in found] == [*(f"level {i:02d}" for i in range(10)), "others"]
    assert found.slices[-1].n_rows == 2
    assert len(slices_of(inside, {}, groups={"city": values}, asked=0.9)) == 12


number = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.integers(-2, 2).map(float)
numbers = st.lists(number, min_size=1, max_size=60)


@given(values=numbers, quantiles=st.integers(2, 6), seed=st.integers(0, 99))
def test_every_row_is_in_exactly_one_part_of_each_column(values, quantiles, seed):
    inside = np.random.default_rng(seed).random(len(values)) < 0.7
    found = slices_of(inside, {"x": values, "text": [str(v) for v in values]}, asked=0.7, quantiles=quantiles)
    for column in ("x", "text"):
        parts = found.of(column)
        assert sum(part.n_rows for part in parts) == len(values)
        assert sum(part.n_inside for part in parts) == inside.sum()
        assert all(part.n_rows > 0 for part in parts)
    assert len(found.of("x")) <= quantiles + 1


@given(values=st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_rows_with_equal_numbers_are_never_apart(values):
    column = np.array(values)
    for value in set(values):  # the rows of one value inside, all others not: in exactly one part some are inside
        found = slices_of(column == value, {"x": column}, asked=0.9, quantiles=3)
        assert sum(part.n_inside > 0 for part in found) == 1


def test_parts_of_different_numbers_have_about_as_many_rows():
    found = slices_of([True] * 103, {"x": RNG.permutation(103.0 * np.arange(103))}, asked=0.9, quantiles=4)
    assert {part.n_rows for part in found} <= {25, 26, 27}


@pytest.mark.parametrize(("inside", "rows"), [(0, 5), (5, 5), (1, 1), (83, 90), (900, 1000)])
def test_the_confidence_interval_is_scipys_exact_one(inside, rows):
    twin = binomtest(inside, rows).proportion_ci(0.95, method="exact")
    part = Slice("x", "all", rows, inside)
    assert (part.low, part.high) == pytest.approx((twin.low, twin.high), abs=1e-12)


def test_the_chance_of_any_part_is_as_many_times_that_of_one_and_never_above_one():
    bad, good = Slice("x", "a", 50, 40), Slice("x", "b", 50, 50)
    slices = Slices(0.9, (bad, good, good, good))
    assert bad.chance(0.9) == pytest.approx(binomtest(40, 50, 0.9, alternative="less").pvalue)
    assert slices.chance(bad) == pytest.approx(4 * bad.chance(0.9))
    assert slices.chance(good) == 1.0


def test_honest_intervals_are_seldom_accused_and_a_part_that_is_missed_is_found():
    """Of 150 looks at 20 slices the bound of 5 % is passed in at most 7.5 on average; three standard errors on top."""
    accused, found = 0, 0
    groups = np.repeat(np.arange(20), 50)
    for _ in range(150):
        honest = RNG.random(1000) < 0.9
        accused += min(map((slices := slices_of(honest, {}, groups={"g": groups}, asked=0.9)).chance, slices)) < 0.05
        broken = honest & ~((groups == 7) & (RNG.random(1000) < 0.4))
        found += slices_of(broken, {}, groups={"g": groups}, asked=0.9).worst(1)[0].values == "7"
    assert accused < 7.5 + 3 * np.sqrt(150 * 0.05 * 0.95)
    assert found > 145


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inside": [0.9, 0.1]}, "True or False"),
        ({"inside": []}, "at least one row"),
        ({"columns": {"x": [1.0]}}, "column 'x' must have one value for each of 2 rows"),
        ({"asked": 1.0}, "strictly between 0 and 1"),
        ({"quantiles": 1}, "at least 2"),
    ],
)
def test_bad_input_is_refused(changed, message):
    given = {"inside": [True, False], "columns": {"x": [1.0, 2.0]}, "asked": 0.9, "quantiles": 4, **changed}
    inside, columns = given.pop("inside"), given.pop("columns")
    with pytest.raises(ValueError, match=message):
        slices_of(inside, columns, **given)


def test_parts_that_are_surely_short_come_before_small_ones_that_chance_explains():
    # Half of four rows says little: the rows of the second part are missed more surely.
    few, many, fine = Slice("x", "few", 20, 16), Slice("x", "many", 400, 300), Slice("x", "fine", 400, 370)
    assert Slices(0.9, (few, many, fine)).worst(2) == (many, few)
    small, large = Slice("id", "7", 20, 13), Slice("city", "Oslo", 1000, 850)
    found = Slices(0.9, (small, *[Slice("x", str(n), 20, 19) for n in range(60)], large))
    assert small.high < large.high
    assert found.worst(2) == (large, small)


@given(sizes=st.lists(counts, min_size=1, max_size=12), asked=st.sampled_from([0.5, 0.8, 0.99]))
def test_the_order_is_that_of_the_parts_one_by_one(sizes, asked):
    found = Slices(asked, tuple(Slice("city", str(place), *size) for place, size in enumerate(sizes)))
    few = FEWEST_ROWS if any(part.n_rows >= FEWEST_ROWS for part in found) else 0
    may_be = [found.chance(part) >= BY_CHANCE for part in found]
    keys = [(one, one and part.n_rows < few, part.high) for one, part in zip(may_be, found, strict=True)]
    assert found.ranked == [found.slices[place] for place in sorted(range(len(found)), key=keys.__getitem__)]
    assert list(found.worst(len(found))) == found.ranked[: len(found) - found.n_small]
    assert found.n_small == sum(part.n_rows < few and found.chance(part) >= BY_CHANCE for part in found)
    assert len(found.short) == sum(found.chance(part) < BY_CHANCE for part in found)
    assert Slices(asked, ()).worst() == ()


def test_a_slice_of_few_rows_is_among_the_worst_only_if_it_is_surely_short_or_all_are_small():
    customers = [Slice("customer", f"K{n}", 1, n % 2) for n in range(30)]
    oslo, missed = Slice("city", "Oslo", 40, 39), Slice("customer", "missed", 12, 1)
    found = Slices(0.9, (*customers, oslo, missed))
    assert found.worst(10) == (missed, oslo)
    assert (found.n_small, len(found)) == (30, 32)
    alone = Slices(0.9, tuple(customers))
    assert (len(alone.worst(10)), alone.n_small) == (10, 0)


def test_the_column_with_the_worst_part_comes_first():
    parts = Slice("area", "1 to 2", 40, 36), Slice("city", "Oslo", 40, 36), Slice("city", "Rome", 40, 10)
    found = Slices(0.9, parts)
    assert list(found.by_column) == ["city", "area"]
    assert [part.values for part in found.by_column["city"]] == ["Rome", "Oslo"]


# Slices of two columns.


def cells_one_by_one(inside, columns, asked):
    """The same search in loops: how many slices there are, and which are named."""
    parts = cut(columns, {}, len(inside), 4)
    chance_of = lambda rows: binom.cdf(inside[rows].sum(), rows.sum(), asked)  # noqa: E731
    cells = {}
    for (a, (names_a, of_a)), (b, (names_b, of_b)) in itertools.combinations(parts.items(), 2):
        for (i, first), (j, second) in itertools.product(enumerate(names_a), enumerate(names_b)):
            rows = (of_a == i) & (of_b == j)
            if rows.sum() >= FEWEST_ROWS:
                surest = min(chance_of(of_a == i), chance_of(of_b == j))
                cells[(a, first), (b, second)] = (rows.sum(), inside[rows].sum(), chance_of(rows), surest)
    short = {
        cell: (n, k) for cell, (n, k, chance, surest) in cells.items() if chance < min(surest, BY_CHANCE / len(cells))
    }
    return len(cells), short


@settings(max_examples=25)
@given(seed=st.integers(0, 999), asked=st.sampled_from([0.5, 0.9]))
def test_pairs_are_those_of_a_search_in_loops(seed, asked):
    rng = np.random.default_rng(seed)
    columns = {"x": rng.normal(size=400), "level": rng.choice(["a", "b", "c"], 400), "few": rng.integers(0, 3, 400)}
    columns["x"][rng.random(400) < 0.1] = np.nan
    bad = (columns["level"] == "b") & (columns["few"] == 1)
    inside = rng.random(400) < np.where(bad, 0.6 * asked, asked)
    found = pairs(inside, cut(columns, {}, 400, 4), asked)
    n_cells, short = cells_one_by_one(inside, columns, asked)
    assert found.n_searched == n_cells
    assert {((part.column, part.values), part.second): (part.n_rows, part.n_inside) for part in found} == short


def four_cells(low_and_left):
    """100 rows in each cell of two columns, of which 95 are inside, and so many in one of the cells."""
    floor, side = np.repeat(["high", "high", "low", "low"], 100), np.repeat(["left", "right", "left", "right"], 100)
    inside = np.concatenate([np.arange(100) < n for n in (95, 95, low_and_left, 95)])
    return inside, {"floor": floor, "side": side}


def test_a_cell_that_is_short_is_named_with_its_rows_and_how_probable_it_is():
    found = slices_of(*four_cells(50), asked=0.9, n_columns=2)
    (part,) = found
    assert part == Slice("floor", "low", 100, 50, ("side", "left"))
    assert part.name == "floor low & side left"
    assert (len(found), found.n_searched) == (1, 4)
    assert found.chance(part) == pytest.approx(4 * binomtest(50, 100, 0.9, alternative="less").pvalue)
    assert found.worst() == (part,)
    assert found.short == [part]
    assert not len(slices_of(*four_cells(90), asked=0.9, n_columns=2))  # by chance


def test_a_cell_is_not_named_where_one_of_its_columns_says_it_more_surely():
    floor, side = four_cells(95)[1].values()
    inside = np.where(floor == "low", np.tile(np.arange(100) < 60, 4), np.tile(np.arange(100) < 95, 4))
    assert slices_of(inside, {"floor": floor, "side": side}, asked=0.9).short[0].name == "floor low"
    assert not len(slices_of(inside, {"floor": floor, "side": side}, asked=0.9, n_columns=2))


def test_rows_in_several_blocks_are_counted_as_in_one(monkeypatch):
    inside, columns = four_cells(50)
    whole = slices_of(inside, columns, asked=0.9, n_columns=2)
    monkeypatch.setattr(slices_module, "ROWS_AT_A_TIME", 7)
    assert slices_of(inside, columns, asked=0.9, n_columns=2) == whole


def test_of_very_many_columns_the_first_are_taken_and_without_any_there_is_nothing(monkeypatch):
    inside, columns = RNG.random(800) < 0.9, {f"c{k}": RNG.integers(0, 4, 800) for k in range(12)}
    assert slices_of(inside, columns, asked=0.9, n_columns=2).n_searched == 16 * 12 * 11 / 2
    monkeypatch.setattr(slices_module, "MOST_PARTS", 31)
    assert slices_of(inside, columns, asked=0.9, n_columns=2).n_searched == 16 * 7 * 6 / 2  # of seven columns
    assert slices_of(inside, {}, asked=0.9, n_columns=2) == Slices(0.9, (), 0)
    with pytest.raises(ValueError, match="n_columns"):
        slices_of(inside, columns, asked=0.9, n_columns=3)


# The slices of a fit.


def test_rows_that_are_missed_together_count_as_fewer():
    inside = RNG.random(300) < 0.8
    assert rows_as_one(inside, None) == 1
    assert rows_as_one(np.repeat(inside, 4), np.repeat(np.arange(300), 4)) == pytest.approx(4)
    assert rows_as_one(np.ones(30, bool), np.repeat(np.arange(10), 3)) == 1
    # Of independent rows in 100 units of 10, the mean of 100 squares with a mean of 1 and a variance of about 2.
    assert rows_as_one(RNG.random(1000) < 0.5, np.repeat(np.arange(100), 10)) < 1 + 4 * np.sqrt(2 / 100)


@pytest.mark.parametrize("together", [1, 5])
def test_a_fit_seldom_accuses_honest_intervals(together):
    """The bound of 5 % counts slices of one column and of two; three standard errors on top."""
    accused, n_rows = 0, 600
    units = np.repeat(np.arange(n_rows // together), together)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        inside = (rng.random(n_rows // together) < 0.9)[units][:, None]
        columns = {f"x{k}": rng.normal(size=n_rows // together)[units] for k in range(4)}
        worst = worst_slices(inside, columns, {"y": {}}, 0.9, units)
        assert 3 <= len(worst) <= 5
        accused += worst[0].is_short
    assert accused < 5 + 3 * np.sqrt(100 * 0.05 * 0.95)


def test_slices_of_a_fit_are_those_of_one_column_and_of_two_with_half_of_the_chance_each():
    inside, columns = four_cells(50)  # 335 of 400 inside, fewer than asked: chance is which of them
    worst = worst_slices(inside[:, None], columns, {"y": {}}, 0.9)
    assert {part.name: part.by_chance for part in worst} == {
        "floor low & side left": pytest.approx(2 * 4 * hypergeom.cdf(50, 400, 335, 100)),
        "floor low": pytest.approx(2 * 4 * hypergeom.cdf(145, 400, 335, 200)),
        "side left": pytest.approx(2 * 4 * hypergeom.cdf(145, 400, 335, 200)),
    }
    assert {part.n_searched for part in worst} == {4 + 4}
    inside, columns = four_cells(80)  # 365 of 400, more than asked: each row is inside with the asked probability
    worst = worst_slices(inside[:, None], columns, {"y": {}}, 0.9)
    assert (worst[0].name, worst[0].by_chance) == (
        "floor low & side left",
        pytest.approx(2 * 4 * binom.cdf(80, 100, 0.9)),
    )


def test_several_targets_share_the_chance_and_have_columns_of_their_own():
    inside, columns = four_cells(50)
    both = np.stack([inside, np.ones(400, bool)], axis=1)
    worst = worst_slices(both, columns, {"rent": {}, "price": {"width": np.arange(400)}}, 0.9)
    assert (worst[0].target, worst[0].name) == ("rent", "floor low & side left")
    assert worst[0].by_chance == pytest.approx(2 * 2 * 4 * hypergeom.cdf(50, 400, 335, 100))
    # Four slices of one column and four of two; of the other target also four by width, which lie in one cell each.
    assert worst[0].n_searched == (4 + 4) + (8 + 12)


def test_it_says_itself_in_one_line():
    part = WorstSlice(
        "rooms", "5 to 7", 44, 31, ("area", "104 to 180"), target="rent", asked=0.9, by_chance=8.3e-5, n_searched=1240
    )
    line = "of 1,240 slices of out-of-fold rows, rent in rooms 5 to 7 & area 104 to 180 is covered 0.70 (31 of 44 rows)"
    assert str(part) == f"{line} where 0.9 was asked: chance alone 1 in 12,000"
    known = vars(part)
    assert str(WorstSlice(**known | {"by_chance": 1e-9})).endswith("chance alone less than 1 in 1,000,000")
    fine = WorstSlice(**known | {"by_chance": 0.3})
    assert str(fine).endswith("may be chance")
    assert in_one_line((part, part, part, fine)) == f"{part}; others fall short too"
    assert in_one_line((part, fine)) == str(part)
    assert in_one_line((fine, fine)) == str(fine)


N = 600
QUICK = {"calibration": "cross", "random_state": 0}


def flats(seed=0, spread=6.0):
    """A table in which rows of one cell, of two columns, are so much noisier."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"area": rng.normal(size=N), "floor": rng.choice(["low", "high"], N)})
    X["sold"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D")
    y = X["area"] + rng.normal(size=N) * np.where((X["area"] > 0.7) & (X["floor"] == "low"), spread, 1.0)
    return X, y.rename("rent")


class Linear(LinearRegression):
    """A regression on the area alone."""

    def fit(self, X, y):
        return super().fit(np.asarray(X["area"])[:, None], y)

    def predict(self, X):
        return super().predict(np.asarray(X["area"])[:, None])


def test_a_fit_names_where_its_out_of_fold_rows_are_short_and_model_files_keep_it(tmp_path):
    X, y = flats()
    model = IntervalAround(LinearRegression(), **QUICK).fit(X[["area"]].assign(low=X["floor"] == "low"), y)
    worst = model.worst_slices_[0]
    assert worst.is_short
    assert re.match(r"area 0\.\d+ to \d.* & low true", worst.name)
    known, inside = model.out_of_fold_, worst.n_inside
    low, high = (float(end) for end in re.findall(r"[\d.]+", worst.values))
    rows = (X["area"] > low - 1e-3) & (X["area"] < high + 1e-3) & (X["floor"] == "low")
    assert rows.sum() == worst.n_rows
    assert ((known.lower[rows, 0, 0] <= y[rows]) & (y[rows] <= known.upper[rows, 0, 0])).sum() == inside
    save(model, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").worst_slices_ == model.worst_slices_


def test_what_is_surely_short_is_a_warning_with_a_way_out_and_what_may_be_chance_is_none():
    X, y = flats()
    with pytest.warns(CoverageWarning, match=r"rent in .*area.* was asked: chance .*; more rows .* hold_for"):
        IntervalAround(Linear(), **QUICK).fit(X, y)
    with pytest.warns(CoverageWarning, match=r"more rows like these may help"):  # "cv+" takes no hold_for
        IntervalAround(Linear(), **(QUICK | {"calibration": "cv+"})).fit(X, y)
    X, y = flats(spread=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IntervalAround(Linear(), **QUICK).fit(X, y)
    assert len(model.worst_slices_) == 3
    assert not any(one.is_short for one in model.worst_slices_)


def test_slices_are_of_the_columns_as_they_were_given_and_of_what_the_model_says():
    X, y = flats()
    seen = set()
    for seed in range(4):
        X, y = flats(seed, spread=1.0)
        for one in IntervalAround(Linear(), **QUICK).fit(X, y).worst_slices_:
            seen |= {one.column, *((one.second or ())[:1])}
    assert seen <= {"area", "floor", "sold", "prediction", "width"}
    numbers = X[["area"]].to_numpy()
    names = {one.column for one in IntervalAround(LinearRegression(), **QUICK).fit(numbers, y).worst_slices_}
    assert names <= {"column 0", "prediction", "width"}


@pytest.mark.parametrize("calibration", ["cross", "cv+", Split(0.3)])
def test_every_calibration_counts_the_rows_that_were_left_out(calibration):
    X, y = flats()
    model = IntervalAround(LinearRegression(), [0.5, 0.9], calibration=calibration, random_state=0)
    model.fit(X[["area"]].to_numpy(), np.stack([y, -y], axis=1), groups=np.arange(N) // 2)
    known = model.out_of_fold_
    seen = ~np.isnan(known.prediction[:, 0])
    assert {one.asked for one in model.worst_slices_} == {0.9}
    assert {one.target for one in model.worst_slices_} <= {"y0", "y1"}
    for one in model.worst_slices_:
        if one.column == "column 0" and one.second is None:
            assert one.n_rows == pytest.approx(seen.sum() / 4, abs=2)


def test_windows_of_a_series_are_not_searched():
    series = np.sin(np.arange(160) / 5) + 0.1 * RNG.normal(size=160)
    forecaster = MatchedForecaster(past=8, network=LSTM(hidden=4), schedule=Schedule(max_rounds=1), random_state=0)
    assert forecaster.fit(series).regressor_.worst_slices_ == ()


@pytest.mark.parametrize(
    "change",
    [{"n_inside": 10**6}, {"by_chance": 2.0}, {"asked": "much"}, {"column": 3}, {"n_rows": 0}, {"n_searched": None}],
)
def test_a_model_file_with_slices_that_no_search_can_have_found_is_refused(tmp_path, change):
    X, y = flats()
    model = IntervalAround(LinearRegression(), **QUICK).fit(X[["area"]], y)
    save(model, tmp_path / "model.safetensors")
    header, arrays = read_tensors(tmp_path / "model.safetensors")
    header["model"]["learned"]["worst_slices_"]["tuple"][0].update(change)
    write_tensors(tmp_path / "other.safetensors", {"model": header["model"]}, arrays)
    with pytest.raises(ModelFileError):
        load(tmp_path / "other.safetensors")
