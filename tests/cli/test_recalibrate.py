"""`coverwell recalibrate`: the file is that of the method, and what cannot be done is said in one line."""

import json

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell.model_file import read_tensors


@pytest.fixture
def small(houses, tmp_path):
    """Rows of where the model will be used: small houses."""
    houses.filter(pl.col("area") < 95).write_csv(tmp_path / "small.csv")
    return tmp_path / "small.csv"


def rows_of(path):
    return pl.read_csv(path, try_parse_dates=False)


@pytest.mark.parametrize("labelled", [False, True])
def test_the_file_is_that_of_the_method(run, model, small, tmp_path, labelled):
    out, rows = tmp_path / "other.safetensors", rows_of(small)
    asked = ("--target", "price", "--target", "rent") if labelled else ()
    printed = run("recalibrate", model, small, *asked, "--out", out).stdout.splitlines()
    expected, found = coverwell.load(model), coverwell.load(out)
    before = expected.factor_
    expected.recalibrate(rows, rows["rent", "price"].to_numpy() if labelled else None)
    assert found.recalibration_ == expected.recalibration_
    np.testing.assert_array_equal(found.factor_, expected.factor_)
    assert printed[-1] == f"wrote {out}: {expected.recalibration_}"
    assert printed[0] == f"rent at 0.5: widths times {expected.factor_[0, 0]:.3f}, before {before[0, 0]:.3f}"
    assert len(printed) == 5  # two targets at two levels
    assert read_tensors(out)[0]["model"]["parameters"] == read_tensors(model)[0]["model"]["parameters"]


def test_info_says_what_the_widths_rest_on(run, model, small, tmp_path):
    out = tmp_path / "other.safetensors"
    run("recalibrate", model, small, "--target", "rent", "--target", "price", "--out", out)
    n = len(rows_of(small))
    assert f"new rows:    ranks of {n} new rows" in run("info", out).stdout
    about = json.loads(run("info", out, "--json").stdout)
    assert about["recalibration"] == {
        "n_new": n,
        "n_ranked": n,
        "n_effective": float(n),
        "labelled": True,
        "share_outside": about["recalibration"]["share_outside"],
    }
    assert about["rows_ranked"] == n
    assert "new rows" not in run("info", model).stdout


def test_rows_without_a_target_are_an_error_or_skipped(run, refused, model, small, tmp_path):
    rows, out, asked = rows_of(small), tmp_path / "other.safetensors", ("--target", "rent", "--target", "price")
    rent = pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise(pl.col("rent"))
    rows.with_columns(rent.alias("rent")).write_csv(small)
    assert "the target rent is missing in 3 of" in refused("recalibrate", model, small, *asked, "--out", out)
    assert not out.exists()
    assert "new rows" in run("recalibrate", model, small, *asked, "--skip-missing", "--out", out).stdout


@pytest.mark.parametrize(
    ("change", "options", "part"),
    [
        (lambda rows: rows, ("--target", "rent"), "--target must name what"),
        (lambda rows: rows.drop("city"), (), "has no column"),
        (lambda rows: rows[:5], (), "recalibrate needs at least 20 new rows to compare, got 5"),
        (lambda rows: rows[:3], ("--target", "rent", "--target", "price"), "needs at least 4 rows, got 3"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(refused, model, small, tmp_path, change, options, part):
    out = tmp_path / "other.safetensors"
    change(rows_of(small)).write_csv(small)
    assert part in refused("recalibrate", model, small, *options, "--out", out)
    assert not out.exists()


def test_the_model_itself_is_not_replaced(refused, model, small):
    assert "is the file that is read" in refused("recalibrate", model, small, "--out", model, "--force")


@pytest.mark.parametrize("labelled", [False, True])
def test_thresholds_of_classes_are_those_of_the_method(run, flowers, irises, classifier, tmp_path, labelled):
    out, (rows, y) = tmp_path / "other.safetensors", irises
    asked = ("--target", "kind") if labelled else ()
    printed = run("recalibrate", classifier, flowers / "new.csv", *asked, "--out", out).stdout.splitlines()
    expected, found = coverwell.load(classifier), coverwell.load(out)
    expected.recalibrate(rows, y if labelled else None)
    np.testing.assert_array_equal(found.factor_, expected.factor_)
    assert printed[0].startswith(f"kind at 0.5: thresholds times {expected.factor_[0, 0]:.3f}, before ")
    assert found.recalibration_.labelled == labelled


def test_a_class_never_seen_cannot_be_ranked(refused, classifier, lilies, tmp_path):
    out = tmp_path / "other.safetensors"
    message = refused("recalibrate", classifier, lilies, "--target", "kind", "--out", out)
    assert "y has classes that were not fitted, such as lily" in message
    assert message.endswith("leave out others")
    assert not out.exists()
