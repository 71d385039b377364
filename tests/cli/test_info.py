"""`coverwell info`: what a model file holds, in words and as JSON."""

import json

import coverwell


def test_the_text_says_what_is_predicted_from_what_and_how_it_was_made(run, model):
    text = run("info", model).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines() if not line.startswith(" "))
    found = {name: value.strip() for name, value in lines.items()}
    assert (found["targets"], found["coverage"], found["seed"]) == ("rent, price", "0.5, 0.8", "3")
    assert found["features"] == "area, city, sold, garden"
    assert found["calibration"] == "cross, ranks of 90 rows"
    assert found["training"].startswith("90 rows, 1 rounds in ")
    assert f"coverwell {coverwell.__version__}" in found["versions"]
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
