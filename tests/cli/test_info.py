"""`coverwell info`: what a model file holds, in words and as JSON."""

import json

import pytest

import coverwell


@pytest.fixture
def model(folder):
    return folder / "model.safetensors"


def test_the_text_says_what_is_predicted_from_what_and_how_it_was_made(run, model):
    text = run("info", model).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines() if not line.startswith(" "))
    told = {name: value.strip() for name, value in lines.items()}
    assert told["targets"] == "rent, price"
    assert told["coverage"] == "0.5, 0.8"
    assert told["features"] == "area, city, sold, garden"
    assert told["calibration"] == "cross, ranks of 90 rows"
    assert told["training"].startswith("90 rows, 1 rounds in ")
    assert told["seed"] == "3"
    assert f"coverwell {coverwell.__version__}" in told["versions"]
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
    assert (found["training_rows"], found["rows_ranked"], found["bytes"]) == (90, 90, model.stat().st_size)


def test_a_file_that_is_no_model_is_told(refused, run, folder, tmp_path):
    assert "damaged or not a model file" in refused("info", folder / "test.csv")
    assert "does not exist" in run("info", tmp_path / "nothing").stderr
