"""`coverwell fit`: the model that the Python API gives, and every fault of a table in one line and without a file."""

import json

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell import MatchedClassifier, MatchedRegressor, Schedule, TableFiles
from coverwell.checkpoint import CheckpointFile
from coverwell.model_file import read_tensors

QUICKLY = ("--folds", 2, "--max-rounds", 1, "--device", "cpu")
BRIEF = {"folds": 2, "schedule": Schedule(max_rounds=1), "device": "cpu"}  # the same for the Python API


@pytest.fixture
def out(tmp_path):
    return tmp_path / "new" / "model.safetensors"


@pytest.fixture
def table(tmp_path):
    """Writes a frame or text as CSV."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        content.write_csv(path) if isinstance(content, pl.DataFrame) else path.write_text(content)
        return path

    return write


@pytest.fixture
def numbers():
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(rng.normal(size=(60, 2)), schema=["a", "b"])
    return frame.with_columns(y=frame["a"] + rng.normal(size=60), g=pl.Series(np.repeat(np.arange(12), 5)))


def test_the_model_is_the_one_that_the_python_api_gives(folder, houses):
    model = coverwell.load(folder / "model.safetensors")
    train = houses[:90]
    twin = MatchedRegressor([0.5, 0.8], random_state=3, **BRIEF)
    twin.fit(train.select("area", "city", "sold", "garden"), train.select("rent", "price"))
    new = houses[90:]
    np.testing.assert_array_equal(model.predict(new), twin.predict(new))
    np.testing.assert_array_equal(model.predict_interval(new).upper, twin.predict_interval(new).upper)
    assert model.target_names_ == ("rent", "price")
    assert model.verbose == 0


def test_it_says_what_was_done_with_every_column_and_what_came_out(folder):
    text = (folder / "fit.txt").read_text()
    assert text.startswith("fitted on 90 rows: 1 round in ")
    for part in ("area: numbers; 6 of 90 missing", "city: categories", "sold: dates", "garden: booleans"):
        assert part in text
    assert text.count("price: RMSE") == 2  # at two levels
    assert text.endswith(f"wrote {folder / 'model.safetensors'}\n")


def test_a_parquet_file_gives_the_same_model_as_the_same_table_in_text(folder, houses, run, out, tmp_path):
    houses[:90].with_columns(pl.col("sold").str.to_date()).write_parquet(tmp_path / "houses.parquet")
    targets = ("--target", "rent", "--target", "price", "--coverage", 0.8, "--coverage", 0.5)
    options = (*targets, "--ignore", "id", "--seed", 3, *QUICKLY)
    run("fit", tmp_path / "houses.parquet", *options, "--out", out)
    models = [coverwell.load(path) for path in (out, folder / "model.safetensors")]
    np.testing.assert_array_equal(*(model.predict(houses[90:]) for model in models))


def test_json_has_what_the_text_says(run, table, numbers, out):
    gaps = numbers.with_columns(y=pl.when(pl.int_range(60) % 20 == 7).then(None).otherwise(pl.col("y")))
    options = ("--target", "y", "--ignore", "g", "--skip-missing", *QUICKLY)
    result = run("fit", table(gaps), *options, "--out", out, "--json")
    found = json.loads(result.stdout)
    assert (found["rows"], found["rows_skipped"], found["rounds"], found["out"]) == (57, 3, 1, str(out))
    assert len(coverwell.load(out).out_of_fold_.prediction) == 57
    assert found["columns"] == ["a: numbers", "b: numbers"]
    (entry,) = found["out_of_fold"]
    assert (entry["target"], entry["asked"]) == ("y", 0.9)
    assert 0.8 <= entry["coverage"] <= 1.0  # ranked on these rows
    assert result.stderr == ""  # nobody sees a bar


def test_decimal_commas_give_the_model_of_decimal_points(run, table, numbers, out, tmp_path):
    content = table(numbers).read_text().replace(",", ";").replace(".", ",")
    options = ("--target", "y", *QUICKLY, "--delimiter", ";", "--decimal", ",")
    run("fit", table(content), *options, "--out", out)
    run("fit", table(numbers), "--target", "y", *QUICKLY, "--out", tmp_path / "m")
    models = [coverwell.load(path) for path in (out, tmp_path / "m")]
    rows = numbers.select("a", "b", "g")
    np.testing.assert_array_equal(*(model.predict(rows) for model in models))


def test_rows_of_one_group_are_never_apart_and_the_group_is_no_feature(run, table, numbers, out):
    run("fit", table(numbers), "--target", "y", "--group", "g", *QUICKLY, "--out", out)
    model = coverwell.load(out)
    assert list(model.feature_names_in_) == ["a", "b"]
    twin = MatchedRegressor(random_state=0, **BRIEF)
    twin.fit(numbers.select("a", "b"), numbers["y"], groups=numbers["g"].cast(str).to_numpy())
    np.testing.assert_array_equal(model.predict(numbers.select("a", "b")), twin.predict(numbers.select("a", "b")))


@pytest.mark.parametrize("calibration", ["cv+", "split", "none"])
def test_the_calibration_may_be_chosen(run, table, numbers, out, calibration):
    options = ("--target", "y", "--calibration", calibration, "--coverage", 0.8, "--matching", "iqr", *QUICKLY)
    run("fit", table(numbers), *options, "--out", out)
    model = coverwell.load(out)
    assert (model.calibration, model.matching) == (None if calibration == "none" else calibration, "iqr")


def test_rows_count_by_the_column_of_weights_which_is_no_feature(run, table, numbers, out):
    weighted = numbers.with_columns(w=pl.int_range(60) % 4)
    options = ("--target", "y", "--weight", "w", "--ignore", "g", *QUICKLY, "--out", out, "--json")
    result = run("fit", table(weighted), *options)
    twin = MatchedRegressor(random_state=0, **BRIEF)
    twin.fit(numbers.select("a", "b"), numbers["y"], sample_weight=weighted["w"])
    model = coverwell.load(out)
    np.testing.assert_array_equal(*(one.predict(numbers.select("a", "b")) for one in (model, twin)))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    (entry,), known, own = json.loads(result.stdout)["out_of_fold"], twin.out_of_fold_, weighted["w"].to_numpy()
    error = np.where(own > 0, numbers["y"] - known.prediction[:, 0], 0.0)
    assert entry["rmse"] == pytest.approx(np.sqrt(np.average(error**2, weights=own)))
    assert entry["width"] == pytest.approx(np.average(np.nan_to_num(known.upper - known.lower)[:, 0, 0], weights=own))
    assert "weights:     rows are worth 38.6 of 60\n" in run("info", out).stdout  # 90^2 / 210
    assert json.loads(run("info", out, "--json").stdout)["rows_worth"] == pytest.approx(90**2 / 210)


def test_columns_that_tell_nothing_are_warned_of(run, table, numbers, out):
    odd = numbers.with_columns(one=pl.lit("same"), none=pl.lit(None, dtype=pl.String), y=pl.col("y"))
    result = run("fit", table(odd), "--target", "y", *QUICKLY, "--out", out)
    assert "Warning: " in result.stderr
    for name in ("one", "none"):
        assert name in result.stderr
        assert f"{name}: left out" in result.stdout


def test_a_target_with_few_values_brings_a_hint_in_one_line(run, table, numbers, out):
    classes = numbers.with_columns(y=(pl.col("y") > 0).cast(int))
    result = run("fit", table(classes), "--target", "y", *QUICKLY, "--out", out)
    assert result.stderr == "Warning: y has only 2 values (0, 1): if these are classes, give --classify\n"
    assert "y: RMSE" in result.stdout  # no guess


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        ("a,y\n1,2\n", ("--target", "z"), ["no column for the target: z", "its columns are a, y"]),
        ("a,y\n1,2\n2,cheap\n", ("--target", "y"), ["the target y must hold numbers, but row 2", "'cheap'"]),
        ("a,y\n1,2\n2,\n3,NA\n", ("--target", "y"), ["missing in 2 of 3 rows", "first in row 2", "--skip-missing"]),
        ("a,y\n1,\n2,\n", ("--target", "y", "--skip-missing"), ["no row of", "has a value"]),
        ("a,y\n1,2\n", ("--target", "y", "--target", "y"), ["every --target must be named once"]),
        ("a,y\n1,2\n", ("--target", "y", "--group", "h"), ["no column for --group: h"]),
        ("a,y\n1,2\n", ("--target", "y", "--group", "y"), ["--group y is a target"]),
        ("a,y\n1,2\n", ("--target", "y", "--weight", "w"), ["no column for --weight: w"]),
        ("a,y\n1,2\n", ("--target", "y", "--weight", "y"), ["--weight y is a target"]),
        ("a,y,w\n1,2,1\n2,3,\n", ("--target", "y", "--weight", "w"), ["--weight w", "has none in row 2"]),
        ("a,y,w\n1,2,1\n2,3,-1\n", ("--target", "y", "--weight", "w"), ["--weight w", "has -1 in row 2"]),
        ("a,y,w\n1,2,1\n2,3,x\n", ("--target", "y", "--weight", "w"), ["the weight w must hold numbers", "row 2"]),
        ("a,y,g\n1,2,1\n2,3,\n", ("--target", "y", "--group", "g"), ["must have a value in every row", "row 2"]),
        ("a,y\n1,2\n", ("--target", "y", "--ignore", "b"), ["no column for --ignore: b"]),
        ("a,y\n1,2\n", ("--target", "y", "--ignore", "a"), ["no column to learn from"]),
        ("a;y\n1;2\n", ("--target", "y"), ["--delimiter ';'"]),
        ("", ("--target", "y"), ["is empty"]),
        ("a,y\n1,2\n", ("--target", "y"), ["has one row to learn from, but --folds 5 needs at least 5"]),
        ("a,y\n1,2\n2,1e200\n", ("--target", "y"), ["target y must lie within 1e+150 of zero", "1e+200"]),
        ("a,y\n1,NA\n2,3\ninf,4\n", ("--target", "y", "--skip-missing"), ["column a must hold finite", "row 3"]),
        ("a,p,p_lower_0.9\n1,2,3\n", ("--target", "p", "--target", "p_lower_0.9"), ["two columns named p_lower_0.9"]),
        ("a;y\n1,5;2\n", ("--target", "a", "--delimiter", ";"), ["row 1", "'1,5'", "give --decimal ,"]),
        ("a,y\n1,2\n2,inf\n", ("--target", "y"), ["target y must hold finite numbers", "row 2", "is infinite"]),
        ("a,y\n1,2\n2,3\n3,4\n4,5\n", ("--target", "y"), ["folds=5 needs at least as many rows, got 4"]),
        ("a,y\n1,2\n2,3\n3,4\n4,5\n", ("--target", "y", "--folds", 2), ["needs at least 9 rows, got 4"]),
        ("a,y\n,2\n,3\n", ("--target", "y"), ["no column tells rows apart", "'a': no value in any row"]),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line_and_no_file_is_written(
    refused, table, out, content, options, parts
):
    message = refused("fit", table(content), *options, "--out", out)
    for part in parts:
        assert part in message
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--coverage", "1"), "shares must lie strictly between 0 and 1, as 0.5,0.9 do, got '1'"),
        (("--coverage", "most"), "strictly between 0 and 1, as 0.5,0.9 do, got 'most'"),
        (("--calibration", "isotonic"), "'isotonic' is not one of"),
        (("--device", "abacus"), "device must be 'auto'"),
        (("--seed", "-1"), "-1 is not in the range"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(tried, table, out, options, message):
    result = tried("fit", table(""), "--target", "y", *options, "--out", out)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_text_in_a_parquet_file_stays_text(run, tmp_path, out):
    rows = {"zip": ["01", "02", "3"] * 20, "garage": ["None", "attached", "built-in"] * 20, "y": np.arange(60.0)}
    pl.DataFrame(rows).write_parquet(tmp_path / "zip.parquet")
    run("fit", tmp_path / "zip.parquet", "--target", "y", *QUICKLY, "--out", out)
    report = coverwell.load(out).columns_.report()
    assert report == ("zip: categories ('01', '02', '3')", "garage: categories ('None', 'attached', 'built-in')")


@pytest.mark.parametrize("blank", ["NA", "  ", ""])
def test_a_word_for_a_missing_value_is_no_group(refused, table, out, blank):
    rows = "".join(f"{i},{blank if i == 7 else i % 5},{i}\n" for i in range(30))
    message = refused("fit", table("a,g,y\n" + rows), "--target", "y", "--group", "g", *QUICKLY, "--out", out)
    assert message == "--group g must have a value in every row, but has none in row 8; fill it in"


def test_a_group_of_lists_is_refused_in_one_line(refused, tmp_path, out):
    rows = pl.DataFrame({"a": np.arange(30.0), "g": [[1, 2]] * 30, "y": np.arange(30.0)})
    rows.write_parquet(tmp_path / "lists.parquet")
    options = ("--target", "y", "--group", "g", *QUICKLY, "--out", out)
    assert "look at the columns of that file" in refused("fit", tmp_path / "lists.parquet", *options)
    assert not out.exists()


@pytest.fixture
def sales(tmp_path):
    """Two Parquet files of 300 rows each."""
    rng = np.random.default_rng(2)
    frame = pl.DataFrame(rng.normal(size=(600, 2)), schema=["a", "b"]).with_columns(unused=pl.lit(1.0))
    frame = frame.with_columns(y=frame["a"] + rng.normal(size=600), g=pl.Series(np.arange(600) // 4))
    paths = [tmp_path / "sales-1.parquet", tmp_path / "sales-2.parquet"]
    for path, part in zip(paths, (frame[:300], frame[300:]), strict=True):
        part.write_parquet(path)
    return paths


def test_a_streamed_fit_is_the_one_that_the_python_api_gives(run, sales, out):
    options = ("--streamed", "--target", "y", "--group", "g", "--ignore", "unused", *QUICKLY)
    result = run("fit", *sales, *options, "--out", out)
    assert result.output.startswith("fitted on 600 rows: 1 round in ")
    files = TableFiles(sales, columns=["a", "b", "y", "g"])
    twin = MatchedRegressor(0.9, random_state=0, **BRIEF).fit(files, "y", "g")
    np.testing.assert_array_equal(coverwell.load(out).predict_interval(files).upper, twin.predict_interval(files).upper)
    assert twin.predict(files).shape == (600,)


def test_a_streamed_fit_takes_a_column_of_weights(run, sales, out):
    run("fit", *sales, "--streamed", "--target", "y", "--group", "g", "--weight", "unused", *QUICKLY, "--out", out)
    files = TableFiles(sales)
    twin = MatchedRegressor(0.9, random_state=0, **BRIEF).fit(files, "y", "g", "unused")
    np.testing.assert_array_equal(coverwell.load(out).predict(files), twin.predict(files))
    assert twin.feature_names_in_.tolist() == ["a", "b"]


@pytest.fixture
def birds(tmp_path):
    """Two Parquet files of 300 rows each, with classes of text, of whole numbers and of truths."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=600)
    place = np.digitize(a + rng.normal(size=600) / 2, [-0.5, 0.5])
    frame = pl.DataFrame({"a": a, "species": np.array(["wren", "crow", "rook"])[place], "n": 1.0 * place, "up": a > 0})
    paths = [tmp_path / "birds-1.parquet", tmp_path / "birds-2.parquet"]
    for path, part in zip(paths, (frame[:300], frame[300:]), strict=True):
        part.write_parquet(path)
    return paths


@pytest.mark.parametrize(
    ("options", "own", "ordered", "classes"),
    [
        (["--target", "species", "--ordered", "wren,crow,rook"], "species", ["wren", "crow", "rook"], None),
        (["--target", "n", "--classify", "--ordered"], "n", True, [0.0, 1.0, 2.0]),
        (["--target", "up", "--hold-for", "class"], "up", False, [False, True]),
    ],
)
def test_a_streamed_fit_of_classes_is_the_one_that_the_python_api_gives(
    run, birds, out, options, own, ordered, classes
):
    others = [name for name in ("species", "n", "up") if name != own]
    ignored = [part for name in others for part in ("--ignore", name)]
    found = json.loads(run("fit", *birds, "--streamed", *options, *ignored, *QUICKLY, "--json", "--out", out).stdout)
    files, hold_for = TableFiles(birds, columns=["a", own]), ["class"] if own == "up" else None
    twin = MatchedClassifier(0.9, ordered=ordered, hold_for=hold_for, random_state=0, **BRIEF).fit(files, own)
    np.testing.assert_array_equal(coverwell.load(out).predict_set(files).members, twin.predict_set(files).members)
    assert found["classes"] == (classes or ordered)
    assert found["rows"] == found["rows_evaluated"] == 600
    truth = pl.concat(map(pl.read_parquet, birds))[own].to_numpy()[:, None] == twin.classes_
    inside = (twin.out_of_fold_.members[..., 0] & truth).any(axis=1)
    assert found["out_of_fold"][0]["coverage"] == pytest.approx(inside.mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "species", "--target", "a"], "classes must be the only target, but species is one of species, a"),
        (["--target", "species", "--calibration", "local"], "--calibration must be cross, split or none for classes"),
        (
            ["--target", "species", "--ordered", "wren,crow"],
            "--ordered must name every class of species once, crow, rook",
        ),
        (["--target", "a", "--classify"], "'a' must hold classes, got "),
        (["--target", "n", "--ordered"], "--ordered is for classes; leave it out, or give --classify"),
    ],
)
def test_classes_that_cannot_be_streamed_are_refused(refused, birds, out, options, message):
    assert message in refused("fit", *birds, "--streamed", *options, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["sales-2.parquet"], "one file is read into memory, got 2; give --streamed"),
        (["--streamed", "--skip-missing"], "--skip-missing is for a table that is read whole"),
        (["--streamed", "--calibration", "cv+"], "a streamed fit can be calibrated by one of"),
        (["--streamed", "--ignore", "z"], "column for --ignore: z"),
        (["--streamed"], "a streamed fit needs at least 500 rows, got 300"),
    ],
)
def test_what_cannot_be_streamed_is_refused(refused, sales, out, options, message):
    more = [sales[1] if option == "sales-2.parquet" else option for option in options]
    assert message in refused("fit", sales[0], *more, "--target", "y", "--out", out)
    assert not out.exists()


@pytest.fixture(params=[(), ("--streamed",)], ids=["in memory", "streamed"])
def fit_of_two_rounds(request, tmp_path):
    """A command without its --out."""
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(rng.normal(size=(600, 2)), schema=["a", "b"])
    frame.with_columns(y=frame["a"] + rng.normal(size=600)).write_parquet(tmp_path / "rows.parquet")
    brief = ("--folds", 2, "--max-rounds", 2, "--device", "cpu", "--companions", "none")
    return ("fit", tmp_path / "rows.parquet", *request.param, "--target", "y", *brief, "--out")


def test_a_stopped_fit_says_so_and_goes_on_with_resume(fit_of_two_rounds, tmp_path, tried, run, refused, monkeypatch):
    def write_and_stop(file, content, write=CheckpointFile.write):
        write(file, content)
        raise KeyboardInterrupt

    out, checkpoint = tmp_path / "model.safetensors", tmp_path / "model.safetensors.checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "write", write_and_stop)
        stopped = tried(*fit_of_two_rounds, out, "--resume")
    assert stopped.exit_code == 130
    assert stopped.stderr.endswith(
        f"\nStopped. {checkpoint} keeps the last finished round: the same fit goes on from there, on the command line "
        "with --resume.\n"
    )
    assert not out.exists()
    line = refused(*fit_of_two_rounds, out)
    assert line == f"{checkpoint} keeps a fit that was stopped; give --resume to go on, or --force to start anew"
    assert "is of a fit with random_state=0, not 1" in refused(*fit_of_two_rounds, out, "--resume", "--seed", 1)
    assert " s, 1 of them before it was stopped\n" in run(*fit_of_two_rounds, out, "--resume").stdout
    assert not checkpoint.exists()
    run(*fit_of_two_rounds, tmp_path / "other")
    ours, theirs = (read_tensors(path)[1] for path in (out, tmp_path / "other"))
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])
    checkpoint.write_bytes(b"of another fit")
    run(*fit_of_two_rounds, out, "--force")
    assert not checkpoint.exists()
