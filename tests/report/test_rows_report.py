"""The whole report on a table: what it names first, what it escapes, and what it refuses."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from coverwell.report.judged import judged_rows
from coverwell.report.slice_sections import worst_section

from coverwell import MLP, MatchedRegressor
from coverwell.report import Source, write_report
from coverwell.streaming import TableFiles


def written(path):
    return path.read_text("utf-8").replace("\u00a0", " ")


def test_a_badly_covered_subgroup_is_named_first(model, flats, tmp_path):
    rows = flats(400, odd_city="Lima", seed=1)
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    write_report(model, X, y, tmp_path / "report.html", coverage=0.9)
    section = worst_section(judged_rows(model, X, y))
    first = section.blocks[3:6]  # the second view, at 0.9: sentence, chart, table
    assert first[0].text.startswith("Worst: city: Lima.")
    assert first[0].tone == "bad"
    assert first[1].records[0]["name"].startswith("city: Lima")
    assert first[2].rows[0][0] == "city: Lima"
    html = written(tmp_path / "report.html")
    assert re.search(r"fall short by more than chance: city Lima \(", html)
    assert '<option value="1" selected>city</option>' in html


def test_the_report_has_all_sections_in_their_order(model, flats, tmp_path):
    rows = flats(60, seed=1)
    n_bytes = write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), tmp_path / "report.html", title="For all")
    html = written(tmp_path / "report.html")
    keys = ["reached", "calibration", "width", "worst", "slices", "misses", "residuals", "rounds", "data", "drift"]
    assert re.findall(r'<section id="(\w+)"', html) == [*keys, "provenance"]
    assert "<title>For all</title>" in html
    assert n_bytes == (tmp_path / "report.html").stat().st_size < 5_000_000


def test_names_and_levels_with_html_in_them_are_escaped(tmp_path):
    rng = np.random.default_rng(0)
    tag = "<script>alert(1)</script>"
    rows = pd.DataFrame({tag: rng.normal(size=60), "kind": rng.choice([tag, "b & c"], 60)})
    y = rows[tag] + rng.normal(size=60)
    model = MatchedRegressor(0.8, network=MLP(hidden=4), max_rounds=1, repeats=1, folds=2, random_state=0)
    model.fit(rows[:40], y[:40])
    groups = {tag + "2": rows["kind"][40:]}
    write_report(model, rows[40:], y[40:], tmp_path / "report.html", groups=groups, title=tag)
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "<script>alert" not in html
    assert html.count("<script") == html.count("</script>") == 3


def test_arrays_pandas_and_polars_give_the_same_report(model, flats, tmp_path):
    rows = flats(40, seed=2)
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    write_report(model, X, y, tmp_path / "polars.html")
    write_report(model, X.to_pandas(), rows["rent"].to_pandas(), tmp_path / "pandas.html")
    made = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert made.sub("", written(tmp_path / "polars.html")) == made.sub("", written(tmp_path / "pandas.html"))


def test_several_targets_of_an_array_can_be_chosen(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    Y = np.column_stack([X[:, 0], X[:, 1]]) + 0.1 * rng.normal(size=(60, 2))
    model = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), max_rounds=1, repeats=1, folds=2, random_state=0)
    model.fit(X[:40], Y[:40])
    write_report(model, X[40:], Y[40:], tmp_path / "report.html")
    html = written(tmp_path / "report.html")
    assert '<select id="choose-target"' in html
    assert '<option value="1">y1</option>' in html
    assert "column 1" in html


def test_constant_targets_are_reported_on(model, flats, tmp_path):
    rows = flats(30, seed=1)
    write_report(model, rows.drop("rent"), np.full(30, 5.0), tmp_path / "report.html")
    assert "30 rows" in written(tmp_path / "report.html")


def test_what_the_model_warns_of_stands_in_the_report(model, flats, tmp_path):
    rows = flats(30, seed=1).with_columns(area=pl.lit(9999.0))
    with pytest.warns(UserWarning, match="far outside the range"):
        write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), tmp_path / "report.html")
    assert "Warning while predicting: 30 of 30 rows lie far outside the range" in written(tmp_path / "report.html")


@pytest.mark.parametrize("n_rows", [1, 9])
def test_too_few_rows_are_refused_in_one_line(model, flats, tmp_path, n_rows):
    rows = flats(n_rows)
    with pytest.raises(ValueError, match=rf"at least 10 rows .* got {n_rows}; give more rows"):
        write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_told_in_one_line_and_nothing_is_written(model, flats, tmp_path, tmp_path_factory):
    rows = flats(30)
    parquet = tmp_path_factory.mktemp("parts") / "rows.parquet"
    rows.write_parquet(parquet)
    X, y = rows.drop("rent"), rows["rent"].to_numpy()
    gap = np.where(np.arange(30) == 7, np.nan, y)
    for message, bad in {
        "coverage 0.7 was not fitted; the fitted levels are 0.5, 0.9": {"coverage": 0.7},
        r"y must be finite, but row 7": {"y": gap},
        "X and y must have the same rows, got 30 and 29": {"y": y[1:]},
        "y must have 1 targets for each row": {"y": np.column_stack([y, y])},
        "y must hold numbers": {"y": np.array(["a"] * 30)},
        "group 'block' must have one value for each of 30 rows": {"groups": {"block": [1, 2]}},
        r"group 'pair' must have one value for each of 30 rows, got the shape \(30, 2\)": {
            "groups": {"pair": np.ones((30, 2))}
        },
        "row_numbers must be a whole number for each of 30 rows, got \\[1, 2\\]": {"row_numbers": [1, 2]},
        "must have all columns": {"X": X.drop("city")},
    }.items():
        given = {"X": X, "y": y, **bad}
        with pytest.raises(ValueError, match=message):
            write_report(model, given.pop("X"), given.pop("y"), tmp_path / "report.html", **given)
    with pytest.raises(TypeError, match="takes rows that are in memory, got TableFiles"):
        write_report(model, TableFiles([parquet]), y, tmp_path / "report.html")
    with pytest.raises(TypeError, match="takes a fitted regressor, got str"):
        write_report("model", X, y, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_many_columns_are_cut_to_what_a_page_can_hold(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 150))
    model = MatchedRegressor([0.5, 0.8], network=MLP(hidden=4), max_rounds=1, repeats=1, folds=2, random_state=0)
    model.fit(X[:40], X[:40, 0])
    assert write_report(model, X[40:], X[40:, 0], tmp_path / "report.html") < 5_000_000
    html = written(tmp_path / "report.html")
    assert "30 of 150 columns can be chosen" in html
    assert "100 of 150 columns are listed" in html


def test_files_are_named_with_their_sha256(model, flats, tmp_path):
    import hashlib

    from coverwell import save

    rows = flats(30)
    save(model, tmp_path / "m.safetensors")
    rows.write_csv(tmp_path / "test.csv")
    source = Source(tmp_path / "m.safetensors", tmp_path / "test.csv", "coverwell report ...")
    write_report(model, rows.drop("rent"), rows["rent"].to_numpy(), tmp_path / "report.html", source=source)
    html = written(tmp_path / "report.html")
    for name in ("m.safetensors", "test.csv"):
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() in html
    assert "coverwell report ..." in html
