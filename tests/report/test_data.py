"""Columns in a line each, the record of training, drift, and where a report comes from."""

import hashlib
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from coverwell import MLP, MatchedRegressor, Schedule, save
from coverwell._version import __version__
from coverwell.baselines import HeteroscedasticRegressor
from coverwell.description import describe
from coverwell.evaluation import forecast_outcome, outcome_of
from coverwell.report.data import Source, column_row, data, drift, provenance, rounds, shifts_between
from coverwell.report.page import prose


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (np.array([3.0, 1.0, np.nan, 2.0]), ("1 of 4", "3", "1 to 3, median 2")),
        (np.full(3, np.nan), ("3 of 3", "0", "none")),
        (np.array(["a", "b", None], dtype=object), ("1 of 3", "2", "a 50.0 %, b 50.0 %")),
        (np.array(list("aaabcde"), dtype=object), ("0 of 7", "5", "a 42.9 %, b 14.3 %, c 14.3 %, d 14.3 %, ...")),
        (
            np.array(["2024-01-02", "NaT"], dtype="datetime64[s]"),
            ("1 of 2", "1", "2024-01-02 to 2024-01-02, median 2024-01-02"),
        ),
    ],
)
def test_a_column_is_its_gaps_and_its_values(values, row):
    name, kind, gaps, in_training, n_different, shown = column_row("area", values, "numbers", "0 of 9")
    assert (name, kind, in_training) == ("area", "numbers", "0 of 9")
    assert (gaps, n_different, shown) == row


def test_every_column_stands_in_the_table_with_its_gaps_in_training(evaluated, flats):
    table, note = data(*evaluated(flats(60, seed=1), n_skipped=3)).blocks
    assert [row[0] for row in table.rows] == ["y", "area", "city", "listed", "garden"]
    assert table.rows[1][1:4] == ("numbers", "4 of 60", "8 of 120")
    assert note.text == "3 rows without a target left out."


def test_charts_of_training_hold_the_record_of_the_model(model, evaluated, flats):
    error, coverage, width, *_ = blocks = rounds(*evaluated(flats(20))).blocks
    assert error.chart.table["round"].tolist() == [1, 2]
    assert error.chart.table["value"] == pytest.approx([one.rmse for one in model.rounds_])
    assert coverage.chart.table["value"] == pytest.approx([one.coverage[0] for one in model.rounds_])
    assert width.chart.table["value"] == pytest.approx([one.width[0] for one in model.rounds_])
    assert coverage.chart.marks[0].y == 0.5
    assert len(blocks) == 5


def test_the_shown_steps_of_a_forecaster_alone_are_drawn(forecaster, series):
    outcome = forecast_outcome(forecaster, series).of_targets([1])
    first = rounds(outcome, describe(forecaster)).blocks[0]
    assert first.chart.table["value"] == pytest.approx(np.array([one.rmse for one in forecaster.rounds_])[:, 1])
    assert first.when == {"target": 0}


def single_network(X, **options):
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=20, random_state=0, **options)
    made.fit(X[:40], X[:40, 0])
    return outcome_of(made, X[40:], X[40:, 0]), describe(made)


def test_a_single_network_has_rounds_of_ten_epochs_and_does_not_know_its_rows():
    outcome, described = single_network(np.random.default_rng(0).normal(size=(60, 15)))
    lead = prose("rounds_lead", **rounds(outcome, described).lead)
    assert lead.startswith("Training went through 2 rounds of 10 epochs.")
    verdict, _, shown, others = drift(outcome, described).blocks
    assert "This model does not know how many rows it was fitted on" in verdict.text
    assert (shown.folded, others.folded) == (False, True)
    assert others.caption == "3 more inputs, which differ less surely"
    assert len({row[0] for row in [*shown.rows, *others.rows]}) == 15


@pytest.fixture(scope="module")
def plain():
    """A model of two plain columns: the first has mean 0.5 and deviation 0.5, the second counts."""
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    made = MatchedRegressor(network=MLP(hidden=4), schedule=Schedule(max_rounds=1), repeats=1, folds=2, random_state=0)
    return describe(made.fit(X, X[:, 1]))


def shifts_of(described, X):
    return shifts_between(described.input_range(X), described.n_trained)


def test_a_difference_is_in_standard_deviations_of_the_training_rows(plain):
    first, second = shifts_of(plain, np.column_stack([np.ones(40), np.full(40, 29.5)]))
    assert (first.name, second.name) == ("column 0", "column 1")
    assert first.difference == pytest.approx((1 - 0.5) / 0.5)
    assert first.is_share
    assert first.standard_error == pytest.approx((1 / 40 + 1 / 60) ** 0.5)
    assert first.chance < 0.05
    assert second.difference == pytest.approx(0.0)
    assert second.chance == 1.0


def test_rows_outside_the_range_of_training_are_counted_and_the_surest_difference_comes_first(plain):
    first, *_ = shifts_of(plain, np.column_stack([np.tile([0.0, 1.0], 10), np.arange(50.0, 70.0)]))
    assert (first.name, first.n_outside) == ("column 1", 10)


def test_new_samples_of_the_same_rows_are_rarely_called_different(plain):
    # By Bonferroni, at most one sample in twenty has any input with a chance below 0.05; of 40 samples at most 7, save
    # in one case of a thousand.
    rng = np.random.default_rng(0)
    X = np.column_stack([np.tile([0.0, 1.0], 30), np.arange(60.0)])
    samples = [X[rng.integers(0, 60, 30)] for _ in range(40)]
    assert sum(any(shift.chance < 0.05 for shift in shifts_of(plain, s)) for s in samples) <= 7


def test_levels_gaps_and_dates_of_a_frame_are_inputs_with_their_own_units(evaluated, flats):
    rows, training = flats(60, seed=1), flats(120)
    outcome, described = evaluated(rows)
    found = {shift.name: shift for shift in shifts_of(described, rows.drop("rent"))}
    assert found["city=Oslo"].is_share
    assert found["city=Oslo"].train_mean == pytest.approx((training["city"] == "Oslo").mean())
    assert found["area (missing)"].test_mean == pytest.approx(4 / 60)
    _, _, *tables = drift(outcome, described).blocks
    (listed,) = [row for table in tables for row in table.rows if row[0] == "listed"]
    assert listed[1].startswith("2024-0")


def test_an_input_that_has_moved_is_named(evaluated, flats):
    rows = flats(200, seed=1)
    verdict, chart, table, *_ = drift(*evaluated(rows.filter(rows["city"] == "Bern"))).blocks
    assert verdict.tone == "bad"
    assert "most surely city=Bern" in verdict.text
    assert chart.chart.table["name"][0] == "city=Bern"
    assert not chart.chart.table["expected"][0]
    assert (table.rows[0][0], table.rows[0][2]) == ("city=Bern", "100.0 %")


def test_a_difference_of_very_many_deviations_takes_few_characters(evaluated, flats):
    with pytest.warns(UserWarning, match="far outside the range"):
        outcome, described = evaluated(flats(60, seed=1).with_columns(area=pl.lit(1e200)))
    row = drift(outcome, described).blocks[2].rows[0]
    assert row[0] == "area"
    assert max(map(len, row)) < 20


def test_a_series_and_its_covariates_are_compared_with_what_was_seen(forecaster, series):
    outcome = forecast_outcome(forecaster, series)
    described = describe(forecaster)
    table, text = data(outcome, described).blocks
    assert [row[:3] for row in table.rows] == [
        ("load", "seen by the forecaster", "200"),
        ("load", "this report", "200"),
    ]
    n_outside = int(((series[200:] < series[:200].min()) | (series[200:] > series[:200].max())).sum())
    assert n_outside > 0
    assert text.text.startswith(f"Outside the range of all that the forecaster had seen: {n_outside} values of load (")
    outcome.inputs["load"][:] = series[:200].mean()
    assert data(outcome, described).blocks[1].text.startswith("All values of this period lie in the range")


def test_without_files_model_versions_and_device_are_named(model):
    (table,) = provenance(Source(), describe(model)).blocks
    rows = dict(table.rows)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", rows["made"])
    assert rows["model"] == "MatchedRegressor"
    assert rows["calibration"] == "cross"
    assert f"coverwell {__version__}" in rows["versions that made this report"]
    assert str(torch.__version__) in rows["versions that made this report"]
    assert rows["device"] in ("cpu", "cuda")
    assert not any("sha256" in name for name in rows)


def test_files_are_named_with_their_sha256(model, tmp_path):
    save(model, tmp_path / "m.safetensors")
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "test.csv")
    source = Source(tmp_path / "m.safetensors", tmp_path / "test.csv", "coverwell report ...")
    rows = dict(provenance(source, describe(model)).blocks[0].rows)
    for what, name in (("model file", "m.safetensors"), ("data file", "test.csv")):
        assert rows[what] == name
        assert rows[f"sha256 of the {what}"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert rows["command"] == "coverwell report ..."
    assert "torch" in rows["versions that wrote the model"]
