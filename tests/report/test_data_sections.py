"""Columns in a line each, and the words about drift."""

import numpy as np
import polars as pl
import pytest
from coverwell.report.data_sections import column_row, data_section, drift_section
from coverwell.report.judged import judged_rows

from coverwell import MLP
from coverwell.baselines import HeteroscedasticRegressor


def test_a_column_of_numbers_is_told_by_range_and_median():
    row = column_row("area", np.array([3.0, 1.0, np.nan, 2.0]), "numbers", "0 of 9")
    assert row == ("area", "numbers", "1 of 4", "0 of 9", "3", "1 to 3, median 2")


def test_a_column_of_texts_is_told_by_its_most_frequent_values():
    values = np.array(["a", "b", "a", None, "c", "d", "e", "a"], dtype=object)
    row = column_row("kind", values, "categories", "unknown")
    assert row[2] == "1 of 8"
    assert row[5].startswith("a 42.9 %, b 14.3 %")
    assert row[5].endswith(", ...")


def test_a_column_without_values_is_told_as_such():
    assert column_row("empty", np.full(3, np.nan), "numbers", "0 of 9")[-1] == "none"


def test_every_column_stands_in_the_table_with_its_gaps_in_training(model, flats):
    rows = flats(60, seed=1)
    table = data_section(judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy())).blocks[0]
    assert [row[0] for row in table.rows] == ["y", "area", "city", "listed", "garden"]
    assert table.rows[1][2:4] == ("4 of 60", "8 of 120")


def test_rows_that_were_left_out_are_counted(model, flats):
    rows = flats(60, seed=1)
    section = data_section(judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy(), n_skipped=3))
    assert section.blocks[-1].text == "3 rows without a target left out."


def test_where_the_training_rows_were_not_counted_drift_says_so():
    X = np.random.default_rng(0).normal(size=(60, 1))
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=10, random_state=0)
    section = drift_section(judged_rows(made.fit(X[:40], X[:40, 0]), X[40:], X[40:, 0]))
    assert "How many rows it was fitted on is not known" in section.blocks[0].text


def test_an_input_that_has_moved_is_named(model, flats):
    rows = flats(200, seed=1)
    rows = rows.filter(rows["city"] == "Bern")
    section = drift_section(judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy()))
    verdict, chart, table, *_ = section.blocks
    assert verdict.tone == "bad"
    assert "most surely city=Bern" in verdict.text
    assert chart.records[0]["name"] == "city=Bern"
    assert not chart.records[0]["fits"]
    assert table.rows[0][:3] == ("city=Bern", f"{100 * (flats(120)['city'] == 'Bern').mean():.1f} %", "100.0 %")


def test_inputs_beyond_those_that_are_drawn_are_listed_in_a_table_that_is_folded():
    X = np.random.default_rng(0).normal(size=(60, 15))
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=1, random_state=0)
    section = drift_section(judged_rows(made.fit(X[:40], X[:40, 0]), X[40:], X[40:, 0]))
    *_, shown, others = section.blocks
    assert not shown.folded
    assert others.folded
    assert others.caption == "3 more inputs, which differ less surely"
    assert len({row[0] for row in [*shown.rows, *others.rows]}) == 15


def test_a_difference_of_very_many_deviations_is_told_in_a_few_signs(model, flats):
    rows = flats(60, seed=1).with_columns(area=pl.lit(1e200))
    with pytest.warns(UserWarning, match="far outside the range"):
        judged = judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy())
    told = drift_section(judged).blocks[2].rows[0]
    assert told[0] == "area"
    assert max(map(len, told)) < 20


def test_means_of_dates_are_dates(model, flats):
    rows = flats(60, seed=1)
    _, _, *tables = drift_section(judged_rows(model, rows.drop("rent"), rows["rent"].to_numpy())).blocks
    (listed,) = [row for table in tables for row in table.rows if row[0] == "listed"]
    assert listed[1].startswith("2024-0")
