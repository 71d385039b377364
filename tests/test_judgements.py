"""A model judged by rows: numbers worked out by hand, and columns as slices need them."""

from datetime import date

import narwhals as nw
import numpy as np
import polars as pl
import pytest

from coverwell import MLP, MatchedRegressor, metrics
from coverwell.fitted_models import Said
from coverwell.judgements import JudgedRows, column_of, judgements

N_TRAIN = 40


@pytest.fixture(scope="module")
def model():
    """Of two targets at two levels; what it says is made by hand below."""
    X = np.random.default_rng(0).normal(size=(N_TRAIN, 2))
    made = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), folds=2, repeats=1, max_rounds=1, random_state=0)
    return made.fit(X, X)


def judged_rows(n=10):
    """Rows of which the first target is inside at all levels in 8 of 10, the second at the outer level alone in all."""
    y = np.zeros((n, 2))
    y[: n // 5, 0], y[:, 1] = 9.0, 2.0
    reach = np.array([1.0, 3.0])  # (level,)
    lower, upper = np.broadcast_to(-reach, (n, 2, 2)), np.broadcast_to(reach, (n, 2, 2))
    half = np.repeat(["a", "b"], n // 2).astype(object)
    return JudgedRows(y, Said(np.zeros((n, 2)), lower, upper), {"half": half}, {})


def test_every_target_at_every_level_is_judged_in_this_order(model):
    found = judgements(model, judged_rows())
    assert [(one.target, one.asked) for one in found] == [("y0", 0.5), ("y0", 0.8), ("y1", 0.5), ("y1", 0.8)]
    assert [one.coverage for one in found] == [0.8, 0.8, 0.0, 1.0]
    assert [one.width for one in found] == [2.0, 6.0, 2.0, 6.0]
    assert found[0].rmse == pytest.approx((2 * 81 / 10) ** 0.5)
    assert found[1].interval_score == pytest.approx(6 + 2 / 0.2 * 2 * 6 / 10)


def test_the_band_allows_for_the_rows_whose_ranks_set_the_widths(model):
    found = judgements(model, judged_rows(200))[1]
    assert found.band == metrics.coverage_band(0.8, 200, N_TRAIN) != metrics.coverage_band(0.8, 200, None)
    assert found.expected_calibration_error == metrics.expected_calibration_error(0.8, 200, N_TRAIN)


def test_slices_count_the_rows_that_are_inside(model):
    parts = judgements(model, judged_rows())[0].slices
    assert [(part.values, part.n_rows, part.n_inside) for part in parts] == [("a", 5, 3), ("b", 5, 5)]


def test_columns_of_all_kinds_have_their_own_sign_for_a_missing_value():
    frame = pl.DataFrame({"area": [1.5, None], "city": ["Oslo", None], "garden": [True, None]})
    frame = frame.with_columns(listed=pl.Series([date(2024, 1, 31), None]))
    area, city, garden, listed = (column_of(nw.from_native(column, series_only=True)) for column in frame)
    assert area[0] == 1.5
    assert np.isnan(area[1])
    assert city.tolist() == ["Oslo", None]
    assert garden.tolist() == ["true", None]
    assert listed[0] == np.datetime64("2024-01-31")
    assert np.isnat(listed[1])
