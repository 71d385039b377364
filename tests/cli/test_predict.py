"""`coverwell predict`: the numbers of the Python API to the last digit, in order, whole or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell import MLP, MatchedClassifier, MatchedForecaster, MatchedRegressor, Schedule
from coverwell.cli import rows as cli_rows
from coverwell.predictor import ROWS_AT_A_TIME

SOURCES = Path(__file__).parents[2] / "src"
BRIEF = Schedule(max_rounds=1)
BOUNDS = ("", "_lower_0.5", "_upper_0.5", "_lower_0.8", "_upper_0.8")
NAMES = [f"{target}{bound}" for target in ("rent", "price") for bound in BOUNDS]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "predictions.csv"


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A small model of numbers alone, in a folder of its own."""
    rng = np.random.default_rng(2)
    rows = pl.DataFrame(rng.normal(size=(60, 3)), schema=["a", "b", "c"])
    small = MatchedRegressor(0.8, network=MLP(hidden=8, bins=4), folds=3, repeats=1, schedule=BRIEF, random_state=0)
    path = tmp_path_factory.mktemp("plain") / "plain.safetensors"
    coverwell.save(small.fit(rows, pl.Series("y", rng.normal(size=60))), path)
    return path


def expected(model, rows):
    """What the Python API says, in the columns of the file."""
    fitted = coverwell.load(model)
    shape = (len(rows), len(fitted.target_names_), len(fitted.predictor_.levels))
    bounds = fitted.predict_interval(rows, coverage=fitted.predictor_.levels)
    bounds = np.stack([bound.reshape(shape) for bound in bounds], axis=-1).reshape(*shape[:2], -1)
    prediction = fitted.predict(rows).reshape(*shape[:2], 1)
    return np.concatenate([prediction, bounds], axis=-1).reshape(len(rows), -1)


def as_printed(values):
    """Numbers as the shortest texts that stand for them alone."""
    return [[repr(float(value)) for value in row] for row in values]


def texts(path):
    """The cells of a CSV file without quotes, below its header."""
    return [line.split(",") for line in path.read_text().splitlines()[1:]]


def test_predictions_are_those_of_the_api_to_the_last_printed_digit(run, folder, model, houses, out):
    result = run("predict", model, folder / "test.csv", "--out", out, "--device", "cpu")
    assert pl.read_csv(out).columns == NAMES
    assert texts(out) == as_printed(expected(model, houses[90:]))
    assert result.stdout.startswith(f"wrote {out}: 40 rows in ")
    assert result.stderr == ""  # nobody sees a bar


def test_a_file_of_several_parts_has_the_bits_of_one_call(run, plain, out, tmp_path, monkeypatch):
    """Parts end where the estimator's own steps end, so every row meets the same arithmetic."""
    monkeypatch.setattr(cli_rows, "ROWS_IN_A_PART", ROWS_AT_A_TIME)
    values = np.random.default_rng(3).normal(size=(2 * ROWS_AT_A_TIME + 77, 3)).clip(-1, 1)
    rows = pl.DataFrame(values, schema=list("abc"))
    rows.write_csv(tmp_path / "new.csv")
    run("predict", plain, tmp_path / "new.csv", "--out", out)
    np.testing.assert_array_equal(pl.read_csv(out).to_numpy(), expected(plain, rows))


def test_any_levels_and_quantiles_are_those_of_the_api_to_the_last_printed_digit(run, folder, model, houses, out):
    asked = ("--coverage", "0.73", "--coverage", 0.5, "--quantiles", "0.95,0.05", "--quantiles", 0.5, "--keep", "id")
    found = json.loads(run("predict", model, folder / "test.csv", "--out", out, "--json", *asked).stdout)["columns"]
    assert pl.read_csv(out).columns == found
    fitted, rows = coverwell.load(model), houses[90:]
    quantiles, interval = fitted.predict_quantiles(rows, [0.05, 0.5, 0.95]), fitted.predict_interval(rows, [0.5, 0.73])
    names, columns = ["id"], [rows["id"].to_list()]
    for t, target in enumerate(("rent", "price")):
        names += [target, *(f"{target}_{end}_{level}" for level in (0.5, 0.73) for end in ("lower", "upper"))]
        names += [f"{target}_quantile_{share}" for share in (0.05, 0.5, 0.95)]
        ends = [bound[:, t, place] for place in (0, 1) for bound in interval]
        columns += [list(map(repr, c.tolist())) for c in (fitted.predict(rows)[:, t], *ends, *quantiles[:, t].T)]
    assert found == names
    assert texts(out) == [list(row) for row in zip(*columns, strict=True)]


def test_quantiles_of_one_target_come_part_by_part_in_the_order_of_their_rows(run, plain, out, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_rows, "ROWS_IN_A_PART", ROWS_AT_A_TIME)
    values = np.random.default_rng(3).normal(size=(ROWS_AT_A_TIME + 77, 3)).clip(-1, 1)
    rows = pl.DataFrame(values, schema=list("abc"))
    rows.write_parquet(tmp_path / "new.parquet")
    run("predict", plain, tmp_path / "new.parquet", "--out", out, "--quantiles", "0.01,0.3")
    frame = pl.read_csv(out)
    assert frame.columns == ["y", "y_lower_0.8", "y_upper_0.8", "y_quantile_0.01", "y_quantile_0.3"]
    np.testing.assert_array_equal(frame[:, :3].to_numpy(), expected(plain, rows))
    quantiles = coverwell.load(plain).predict_quantiles(rows, [0.01, 0.3])
    np.testing.assert_array_equal(frame[:, 3:].to_numpy(), quantiles)


@pytest.mark.parametrize("option", ["--quantiles", "--coverage"])
@pytest.mark.parametrize(
    ("shares", "wrong"), [("1", "1"), ("0.5,-0.1", "-0.1"), ("nan", "nan"), ("half,0.5", "half"), ("0.5,", "")]
)
def test_levels_and_quantiles_that_are_no_shares_are_refused(refused, plain, folder, out, option, shares, wrong):
    line = refused("predict", plain, folder / "test.csv", "--out", out, option, shares)
    must = f"shares must lie strictly between 0 and 1, as 0.5,0.9 do, got '{wrong}'"
    assert line == f"Invalid value for '{option}': {must} (see coverwell predict --help)"
    assert not out.exists()


def test_a_kept_column_named_like_a_quantile_is_refused(refused, plain, out, tmp_path):
    (tmp_path / "new.csv").write_text("a,b,c,y_quantile_0.5\n0,0,0,1\n")
    asked = ("--keep", "y_quantile_0.5", "--quantiles", 0.5)
    assert "two columns named y_quantile_0.5" in refused("predict", plain, tmp_path / "new.csv", "--out", out, *asked)


def test_kept_columns_come_first_and_are_copied_to_the_letter(run, model, out, tmp_path):
    content = "id,area,city,sold,garden,note\n007,50.00,Rome,2020-05-01,TRUE,NA\n008, 60,Oslo,2020-06-01,false,\n"
    (tmp_path / "new.csv").write_text(content)
    run("predict", model, tmp_path / "new.csv", "--out", out, "--keep", "id", "--keep", "area", "--keep", "note")
    assert out.read_text().splitlines()[0] == ",".join(["id", "area", "note", *NAMES])
    assert [row[:3] for row in texts(out)] == [["007", "50.00", "NA"], ["008", " 60", ""]]


@pytest.fixture
def nameless(tmp_path):
    """A small model that was fitted on an array of two columns, and the array."""
    x = np.random.default_rng(4).normal(size=(40, 2)).round(3)
    model = MatchedRegressor(0.8, network=MLP(hidden=4, bins=0), folds=2, repeats=1, schedule=BRIEF).fit(x, x[:, 0])
    coverwell.save(model, tmp_path / "m")
    return model, x


def test_a_model_without_column_names_takes_a_file_with_as_many_columns(run, refused, nameless, out, tmp_path):
    model, x = nameless
    pl.DataFrame(x, schema=["first", "second"]).write_csv(tmp_path / "new.csv")
    run("predict", tmp_path / "m", tmp_path / "new.csv", "--out", out)
    np.testing.assert_array_equal(pl.read_csv(out)["y"].to_numpy(), model.predict(x))
    (tmp_path / "more.csv").write_text("a,b,c\n1,2,3\n")
    message = refused("predict", tmp_path / "m", tmp_path / "more.csv", "--out", tmp_path / "o.csv")
    assert "fitted without column names on 2 columns, but" in message


def test_truths_count_as_0_and_1_for_a_model_without_column_names(run, refused, nameless, out, tmp_path):
    model, _ = nameless
    (tmp_path / "new.csv").write_text("a,b\ntrue,0.5\nfalse,0.25\n")
    run("predict", tmp_path / "m", tmp_path / "new.csv", "--out", out)
    np.testing.assert_array_equal(pl.read_csv(out)["y"].to_numpy(), model.predict([[1, 0.5], [0, 0.25]]))
    (tmp_path / "odd.csv").write_text("a,b\nNA,1\ntrue,0.5\nmaybe,0.25\n")
    message = refused("predict", tmp_path / "m", tmp_path / "odd.csv", "--out", tmp_path / "o.csv")
    assert message.startswith("column a must hold true or false, but row 3 of")
    assert "has 'maybe'" in message


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_other_kinds_of_files_have_the_same_numbers_and_columns_are_found_by_name(run, model, houses, tmp_path, suffix):
    shuffled = houses[90:].select("garden", "price", "sold", pl.lit("x").alias("more"), "city", "area")
    shuffled.write_csv(tmp_path / "new.csv")
    out = tmp_path / f"predictions{suffix}"
    result = run("predict", model, tmp_path / "new.csv", "--out", out, "--json")
    found = json.loads(result.stdout)
    assert (found["out"], found["rows"], found["columns"]) == (str(out), 40, NAMES)
    frame = pl.read_parquet(out) if suffix == ".parquet" else pl.read_csv(out, separator="\t")
    np.testing.assert_array_equal(frame.to_numpy(), expected(model, houses[90:]))


def test_decimal_commas_and_other_encodings_give_the_same_predictions(run, folder, model, houses, out, tmp_path):
    content = (folder / "test.csv").read_text().replace(",", ";").replace(".", ",").replace("id", "Geb\u00e4ude")
    (tmp_path / "new.csv").write_text(content, encoding="cp1252")
    options = ("--delimiter", ";", "--decimal", ",", "--encoding", "cp1252", "--keep", "Geb\u00e4ude", "--keep", "area")
    run("predict", model, tmp_path / "new.csv", "--out", out, *options)
    assert pl.read_csv(out).columns == ["Geb\u00e4ude", "area", *NAMES]
    np.testing.assert_array_equal(pl.read_csv(out).select(NAMES).to_numpy(), expected(model, houses[90:]))
    assert pl.read_csv(out, infer_schema=False)["area"][1] == content.splitlines()[2].split(";")[1]  # to the letter


@pytest.mark.parametrize(
    ("column", "kind"),
    [([[1], [2]], "List(Int64)"), ([{"a": 1}, {"a": 2}], "Struct"), ([b"\x00", b"\xff"], "Binary")],
)
def test_kept_columns_that_text_cannot_hold_are_refused_before_any_work(run, refused, plain, tmp_path, column, kind):
    rows = pl.DataFrame({"a": [0.1, 0.2], "b": [0.1, 0.2], "c": [0.1, 0.2], "more": column})
    rows.write_parquet(tmp_path / "new.parquet")
    message = refused(
        "predict", plain, tmp_path / "new.parquet", "--out", tmp_path / "deep" / "o.csv", "--keep", "more"
    )
    assert "--keep more cannot be written to" in message
    assert f"text files hold no {kind}" in message
    run("predict", plain, tmp_path / "new.parquet", "--out", tmp_path / "o.parquet", "--keep", "more")
    assert pl.read_parquet(tmp_path / "o.parquet")["more"].to_list() == column


def test_single_precision_is_close_and_not_the_same(run, folder, model, houses, out):
    run("predict", model, folder / "test.csv", "--out", out, "--float32")
    found, exact = pl.read_csv(out).to_numpy(), expected(model, houses[90:])
    spread = np.repeat([houses["rent"].std(), houses["price"].std()], len(BOUNDS))
    assert 0 < np.abs((found - exact) / spread).max() < 1e-5  # as the help says: some 1e-6


def test_values_that_training_never_had_are_warned_of_and_predicted(run, model, out, tmp_path):
    (tmp_path / "new.csv").write_text("area,city,sold,garden\n1e6,Paris,2020-05-01,true\n50,,2020-05-01,true\n")
    result = run("predict", model, tmp_path / "new.csv", "--out", out)
    warnings = result.stderr.splitlines()
    assert all(line.startswith("Warning: ") for line in warnings)
    assert any("city" in line and "never seen in training" in line for line in warnings)
    assert any("outside the range of the training inputs (in area" in line for line in warnings)
    assert len(texts(out)) == 2


def test_warnings_of_many_parts_are_counted_not_repeated(run, plain, out, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_rows, "ROWS_IN_A_PART", 2)
    (tmp_path / "new.csv").write_text("a,b,c\n" + "".join(f"{999 + i},0,0\n0,0,{i % 3 * 500}\n" for i in range(20)))
    result = run("predict", plain, tmp_path / "new.csv", "--out", out)
    lines = result.stderr.splitlines()
    assert len(set(lines)) == len(lines) <= 5
    assert "33 of 40 rows lie outside" in lines[0]


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        ("area,city,sold\n1,Rome,2020-01-01\n", (), ["no column that model.safetensors was fitted on: garden"]),
        ("area,City,sold,garden\n1,Rome,2020-01-01,true\n", (), ["fitted on: city", "did you mean City?"]),
        ("area,city,sold,garden\nbig,Rome,2020-01-01,true\n", (), ["column area must hold numbers", "row 1", "'big'"]),
        ("area,city,sold,garden\n1,Rome,2020-01-01,maybe\n", (), ["garden must hold true or false", "'maybe'"]),
        ("area,city,sold,garden\n1,Rome,soon,true\n", (), ["sold"]),
        ("area,city,sold,garden\ninf,Rome,2020-01-01,true\n", (), ["area must hold finite numbers, but row 1 of"]),
        ("area,city,sold,garden\n", (), ["no rows"]),
        ("area,city,sold,garden\n1,Rome,2020-01-01,true\n", ("--keep", "id"), ["no column to keep: id"]),
        ("area,city,sold,garden,price\n1,Rome,2020-01-01,true,2\n", ("--keep", "price"), ["two columns named price"]),
        ("area,city,sold,garden\n1,Rome,2020-01-01,true\n", ("--keep", "area") * 2, ["every column once"]),
    ],
)
def test_rows_that_cannot_be_predicted_are_refused_in_one_line_and_no_file_is_written(
    refused, model, out, tmp_path, content, options, parts
):
    (tmp_path / "new.csv").write_text(content)
    message = refused("predict", model, tmp_path / "new.csv", "--out", out, *options)
    for part in parts:
        assert part in message
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_a_fault_far_down_leaves_no_file_and_keeps_the_one_that_was_there(refused, plain, out, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_rows, "ROWS_IN_A_PART", 2)
    (tmp_path / "new.csv").write_text("a,b,c\n" + "0,0,0\n" * 9 + "0,0,oh\n")
    out.write_text("before")
    message = refused("predict", plain, tmp_path / "new.csv", "--out", out, "--force")
    assert "row 10" in message
    assert out.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_model_says_of_a_part_comes_with_the_rows_of_that_part(refused, model, out, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_rows, "ROWS_IN_A_PART", 2)
    rows = "1,Rome,2020-01-01,true\n" * 3 + "1,Rome,soon,true\n"
    (tmp_path / "new.csv").write_text("area,city,sold,garden\n" + rows)
    message = refused("predict", model, tmp_path / "new.csv", "--out", out)
    assert message.startswith(f"rows 3 to 4 of {tmp_path / 'new.csv'}: ")
    assert "sold" in message


def test_a_model_for_other_things_than_tables_is_refused(refused, folder, out, tmp_path):
    brief = Schedule(max_rounds=1, mean_epochs=1)
    series = MatchedForecaster(0.8, past=3, network=coverwell.LSTM(hidden=2), schedule=brief)
    coverwell.save(series.fit(np.sin(np.arange(80.0))), tmp_path / "series.safetensors")
    message = refused("predict", tmp_path / "series.safetensors", folder / "test.csv", "--out", out)
    assert "holds a MatchedForecaster, not one for tables; use it in Python" in message


FULL_DISK = """
import resource, sys
from coverwell.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # no file may become longer: writing fails as on a full disk
model, data, folder = sys.argv[1:]
for command in (
    ["predict", model, data, "--out", f"{folder}/out.csv"],
    ["predict", model, data, "--out", f"{folder}/out.parquet"],
    ["fit", data, "--target", "price", "--folds", "2", "--max-rounds", "1", "--out", f"{folder}/model.safetensors"],
):
    try:
        main(command)
    except SystemExit as end:
        print(end.code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on the size of files")
def test_a_full_disk_is_refused_in_one_line_with_exit_code_1_and_leaves_nothing(folder, model, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(model), str(folder / "test.csv"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "1", "1"]
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    assert len(errors) == 3
    for line in errors:
        assert line.startswith("Error: File too large")
        assert "nothing was written" in line
    assert list(tmp_path.iterdir()) == []


def test_rows_of_several_files_come_one_file_after_the_other(run, folder, model, out, tmp_path):
    both = [folder / "test.csv", folder / "houses.csv"]
    run("predict", model, *both, "--out", out, "--keep", "id", "--device", "cpu")
    alone = []
    for path in both:
        run("predict", model, path, "--out", tmp_path / "one.csv", "--keep", "id", "--force")
        alone += (tmp_path / "one.csv").read_text().splitlines()[1:]
    assert out.read_text().splitlines()[1:] == alone


def test_a_kept_column_has_one_type_in_all_files(refused, folder, model, houses, out, tmp_path):
    houses[90:].with_columns(id=pl.int_range(40)).write_parquet(tmp_path / "numbered.parquet")
    houses[90:].write_parquet(tmp_path / "named.parquet")
    paths = (tmp_path / "named.parquet", tmp_path / "numbered.parquet")
    line = refused("predict", model, *paths, "--out", out, "--keep", "id")
    assert line.startswith("--keep id must have one type in all files, but it is String in ")


# Of classes ----------------------------------------------------------------------------------------------------------


def test_classes_come_with_their_probabilities_and_with_a_set_for_each_level_as_in_the_api(
    run, flowers, irises, classifier, out
):
    (rows, _), fitted = irises, coverwell.load(classifier)
    asked = ("--coverage", "0.8,0.98", "--keep", "petal", "--json")
    found = json.loads(run("predict", classifier, flowers / "new.csv", "--out", out, *asked).stdout)
    classes = ["setosa", "versicolor", "virginica"]
    probabilities = [f"kind_probability_{name}" for name in classes]
    assert found["classes"] == classes
    assert found["columns"] == ["petal", "kind", *probabilities, "kind_set_0.8", "kind_set_0.98"]
    frame = pl.read_csv(out)
    assert frame["kind"].to_list() == fitted.predict(rows).tolist()
    np.testing.assert_array_equal(frame[probabilities].to_numpy(), fitted.predict_proba(rows))
    for level in (0.8, 0.98):
        sets = fitted.predict_set(rows, level).to_list()
        assert [text.split("|") for text in frame[f"kind_set_{level}"]] == sets
    assert max(map(len, sets)) > 1


def test_sets_of_a_parquet_file_are_lists_of_the_classes_own_type(run, tmp_path, out):
    rng = np.random.default_rng(0)
    rows = pl.DataFrame(rng.normal(size=(60, 2)), schema=["a", "b"])
    grade = (rows["a"] + 0.3 * rng.normal(size=60) > 0).to_numpy() + 2 * (rows["b"] > 0).to_numpy()
    fitted = MatchedClassifier([0.5, 0.9], network=MLP(hidden=4), folds=2, repeats=1, schedule=BRIEF, companions=())
    path, new = tmp_path / "grade.safetensors", tmp_path / "new.parquet"
    coverwell.save(fitted.fit(rows, pl.Series("grade", grade)), path)
    rows.write_parquet(new)
    run("predict", path, new, "--out", tmp_path / "out.parquet")
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert frame.schema["grade_set_0.9"] == pl.List(pl.Int64)
    assert frame["grade_set_0.9"].to_list() == fitted.predict_set(rows, 0.9).to_list()
    assert frame["grade"].to_list() == fitted.predict(rows).tolist()


def test_what_is_of_numbers_is_refused_for_classes(refused, flowers, classifier, out):
    message = refused("predict", classifier, flowers / "new.csv", "--out", out, "--quantiles", 0.5)
    assert message == f"--quantiles are of targets of numbers, and {classifier} predicts classes; leave it out"
    assert not out.exists()


def test_classes_that_could_not_be_told_apart_in_a_set_need_a_parquet_file(run, refused, tmp_path, out):
    rows = "".join(f"{i},{['left|right', 'up'][i % 2]}\n" for i in range(40))
    (tmp_path / "way.csv").write_text(f"a,way\n{rows}")
    model = tmp_path / "way.safetensors"
    brief = ("--folds", 2, "--max-rounds", 1, "--companions", "none")
    run("fit", tmp_path / "way.csv", "--target", "way", *brief, "--out", model)
    message = refused("predict", model, tmp_path / "way.csv", "--out", out)
    assert "cannot have sets of classes such as 'left|right'" in message
    run("predict", model, tmp_path / "way.csv", "--out", tmp_path / "way.parquet")
    assert set(pl.read_parquet(tmp_path / "way.parquet")["way_set_0.9"].explode()) == {"left|right", "up"}
