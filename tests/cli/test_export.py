"""`coverwell export` and `coverwell info`: a model file as an ONNX file, and what it holds."""

import hashlib
import json
import re

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell.onnx import LARGEST_LOCAL


def test_an_exported_model_predicts_what_the_model_predicts(run, model, houses, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    out = tmp_path / "new folder" / "model.onnx"
    result = run("export", model, out)
    assert result.stdout.startswith(f"wrote {out}: {out.stat().st_size:,} bytes\n  input  X ")
    session = onnxruntime.InferenceSession(out)
    about = json.loads(session.get_modelmeta().custom_metadata_map["coverwell"])
    rows = houses.select(
        pl.col("area"),
        pl.col("city").replace_strict(about["columns"][1]["codes"], return_dtype=pl.Float64),
        pl.col("sold").str.to_datetime(time_unit="us").dt.epoch("s").cast(pl.Float64),
        pl.col("garden").cast(pl.Float64),
    ).to_numpy()
    lower, upper = session.run(["lower", "upper"], {"X": rows})
    interval = coverwell.load(model).predict_interval(houses, (0.5, 0.8))
    sd = np.array([houses[name].std() for name in about["targets"]])[:, None]
    assert (np.abs(lower - interval.lower) / sd).max() < LARGEST_LOCAL
    assert (np.abs(upper - interval.upper) / sd).max() < LARGEST_LOCAL


def test_json_has_the_metadata_and_replaces_a_file_by_force_alone_and_one_that_is_read_never(
    run, refused, model, tmp_path
):
    pytest.importorskip("onnxruntime")
    out, read = tmp_path / "model.onnx", tmp_path / "read"
    out.write_text("mine")
    assert refused("export", model, out) == f"{out} exists; give another OUT, or --force to replace it"
    assert out.read_text() == "mine"
    read.symlink_to(model)
    assert f"OUT {read} is the file that is read" in refused("export", model, read, "--force")
    found = json.loads(run("export", model, out, "--json", "--precision", "float64", "--force").stdout)
    assert (found["out"], found["bytes"], found["precision"]) == (str(out), out.stat().st_size, "float64")
    assert found["model_sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert [column["name"] for column in found["columns"]] == ["area", "city", "sold", "garden"]
    assert (found["targets"], found["levels"]) == (["rent", "price"], [0.5, 0.8])


def test_the_text_says_what_is_predicted_from_what_and_how_it_was_made(run, model):
    text = run("info", model).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines() if not line.startswith(" "))
    found = {name: value.strip() for name, value in lines.items()}
    assert (found["targets"], found["coverage"], found["seed"]) == ("rent, price", "0.5, 0.8", "3")
    assert found["features"] == "area, city, sold, garden"
    assert found["calibration"] == "local, ranks of 90 rows"
    assert found["training"].startswith("90 rows, 1 round in ")
    assert f"coverwell {coverwell.__version__}" in found["versions"]
    assert re.fullmatch(r"[\d.]+ networks \+ [\d.]+ forest", found["blend"])
    assert "  city: categories" in text


def test_json_has_all_of_it(run, model):
    found = json.loads(run("info", model, "--json").stdout)
    fitted = coverwell.load(model)
    teams = [team for both in fitted.predictor_.teams for team in (both.mean_team, both.interval_team)]
    assert found["class"] == "MatchedRegressor"
    assert found["members"] == sum(team.n_members for team in teams)
    assert found["weights"] == sum(weights.numel() for team in teams for weights in team.parameters())
    assert found["columns"] == list(fitted.columns_.report())
    assert found["parameters"]["folds"] == 2
    assert list(found["blend"]) == ["networks", "forest"]
    assert sum(found["blend"].values()) == pytest.approx(1.0, abs=2e-3)
    assert (found["training_rows"], found["rows_ranked"], found["bytes"]) == (90, 90, model.stat().st_size)


def test_a_model_of_classes_is_exported_and_described(run, irises, classifier, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    out = tmp_path / "kind.onnx"
    printed = run("export", classifier, out).stdout.splitlines()
    assert [line.split()[:2] for line in printed[2:4]] == [["output", "probability"], ["output", "sets"]]
    assert printed[4].strip() == "3 classes setosa, versicolor, virginica"
    (rows, _), fitted = irises, coverwell.load(classifier)
    probability, sets = onnxruntime.InferenceSession(out).run(None, {"X": rows.to_numpy()})
    np.testing.assert_allclose(probability, fitted.predict_proba(rows), atol=1e-5)
    assert (sets == fitted.predict_set(rows, [0.5, 0.9]).members).mean() > 0.99  # one may lie at its threshold


def test_info_says_how_probabilities_and_sets_are_made_and_what_each_class_rests_on(run, flowers, classifier):
    lines = dict(line.split(":", 1) for line in run("info", classifier).stdout.splitlines() if line[0] != " ")
    found = {name: value.strip() for name, value in lines.items()}
    assert found["classes"] == "3 classes setosa, versicolor, virginica"
    assert (found["score"], found["matching"]) == ("probability", "confidence")
    assert re.fullmatch(r".* at 0\.5, .* at 0\.9", found["thresholds"])
    counts = dict(pl.read_csv(flowers / "old.csv")["kind"].value_counts().rows())
    about = json.loads(run("info", classifier, "--json").stdout)
    assert about["held_groups"] == {"class": counts}
    assert found["held for"].startswith("class, 3 groups: ")
    assert about["classes"] == sorted(counts)
    assert about["in_order"] is False
