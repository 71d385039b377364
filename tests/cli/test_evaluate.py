"""`coverwell evaluate`: the metrics of the rows, what to expect of them, and the worst parts by name."""

import json
import re

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import coverwell
from coverwell import MLP, MatchedRegressor, Schedule, metrics


def results(run, *arguments):
    result = run("evaluate", *arguments, "--json")
    return json.loads(result.stdout)


def test_the_numbers_are_those_of_the_metrics_on_the_apis_predictions(run, folder, model, houses):
    found = results(run, model, folder / "test.csv")
    assert (found["rows"], found["rows_skipped"]) == (40, 0)
    assert [(entry["target"], entry["asked"]) for entry in found["results"]] == [
        (target, level) for target in ("rent", "price") for level in (0.5, 0.8)
    ]
    fitted, test = coverwell.load(model), houses[90:]
    lower, upper = fitted.predict_interval(test, coverage=0.8)
    y, entry = test["price"].to_numpy(), found["results"][3]
    assert entry["rmse"] == metrics.rmse(y, fitted.predict(test)[:, 1])
    assert entry["coverage"] == metrics.coverage(y, lower[:, 1], upper[:, 1])
    assert entry["width"] == metrics.average_width(lower[:, 1], upper[:, 1])
    assert entry["interval_score"] == metrics.interval_score(y, lower[:, 1], upper[:, 1], 0.8)
    assert entry["calibration_error"] == pytest.approx(abs(entry["coverage"] - 0.8))
    assert entry["band"] == list(metrics.coverage_band(0.8, n_test=40, n_train=90))
    assert entry["expected_calibration_error"] == metrics.expected_calibration_error(0.8, n_test=40, n_train=90)


def test_every_feature_and_group_is_cut_into_parts_that_hold_all_rows(run, folder, model):
    groups = ("--group", "id", "--group", "city")
    entry = results(run, model, folder / "test.csv", *groups, "--quantiles", 8)["results"][0]
    by_column = {}
    for part in entry["slices"]:
        by_column.setdefault(part["column"], []).append(part)
    assert list(by_column) == ["id", "city", "area", "sold", "garden"]
    assert all(sum(part["n_rows"] for part in parts) == 40 for parts in by_column.values())
    assert len(by_column["id"]) == 40
    assert [part["values"] for part in by_column["garden"]] == ["false", "true"]
    assert by_column["area"][-1]["values"] == "missing"
    assert len(by_column["sold"]) == 8
    assert by_column["sold"][0]["values"].startswith("2020-")
    assert entry["n_slices"] == len(entry["slices"])


def test_a_part_that_is_missed_is_named_first_and_is_hardly_chance(run, folder, model, houses, tmp_path):
    price = pl.when(pl.col("city") == "Oslo").then(pl.col("price") + 1e5).otherwise(pl.col("price"))
    houses[90:].with_columns(price).write_csv(tmp_path / "moved.csv")
    entry = results(run, model, tmp_path / "moved.csv")["results"][3]
    worst = entry["worst_slices"][0]
    assert (worst["column"], worst["values"], worst["coverage"]) == ("city", "Oslo", 0.0)
    assert worst["chance_of_any"] == pytest.approx(entry["n_slices"] * 0.2 ** worst["n_rows"])
    text = run("evaluate", model, tmp_path / "moved.csv").stdout
    line = next(line for line in text.partition("price at 0.8, the worst of")[2].splitlines() if "city Oslo" in line)
    assert f"coverage 0.000 (0.000 to {worst['high']:.3f}), 0 of {worst['n_rows']} rows inside; by chance in at" in line


def test_what_is_short_by_two_columns_is_named_at_the_fit_in_the_file_and_on_new_rows(run, tmp_path):
    rng = np.random.default_rng(1)
    table = pl.DataFrame({"area": rng.normal(size=1600).round(3), "side": rng.choice(["left", "right"], 1600)})
    odd = (table["area"] > 0.7).to_numpy() & (table["side"] == "left").to_numpy()
    table = table.with_columns(rent=table["area"] + np.where(odd, 6, 0.5) * rng.normal(size=1600))
    table[:800].write_csv(tmp_path / "old.csv")
    table[800:].write_csv(tmp_path / "new.csv")
    brief = ("--calibration", "cross", "--companions", "none", "--max-rounds", 1, "--folds", 2)
    file = tmp_path / "rent.safetensors"
    fitted = run("fit", tmp_path / "old.csv", "--target", "rent", *brief, "--out", file)
    (line,) = [line for line in fitted.stdout.splitlines() if "slices of out-of-fold rows" in line]
    assert "rent in area" in line
    assert "& side left is covered" in line
    assert line.partition(";")[0].strip() in fitted.stderr  # a warning, with a way out
    assert f"slices:      {line.strip()}" in run("info", file).stdout
    worst = json.loads(run("info", file, "--json").stdout)["worst_slices"][0]
    assert (worst["column"], worst["second"], worst["target"]) == ("area", ["side", "left"], "rent")
    assert worst["coverage"] == worst["n_inside"] / worst["n_rows"] < 0.8
    (entry,) = results(run, file, tmp_path / "new.csv")["results"]
    pair, text = entry["pairs"][0], run("evaluate", file, tmp_path / "new.csv").stdout
    assert (pair["column"], pair["second"]) == ("area", ["side", "left"])
    assert pair["chance_of_any"] == pytest.approx(entry["n_pairs"] * binom.cdf(pair["n_inside"], pair["n_rows"], 0.9))
    assert f"rent at 0.9, slices of two columns that fall short ({len(entry['pairs'])} of {entry['n_pairs']}):" in text
    sizes = ", ".join(f"{share:.3f}" for share in entry["coverage_by_size"])
    slab = f"{entry['worst_slab_coverage']:.3f} in the worst slab"
    assert f"rent at 0.9: coverage {sizes} from the narrowest intervals to the widest, {slab}\n" in text


def test_the_text_has_a_table_the_groups_and_the_worst_parts(run, folder, model):
    text = run("evaluate", model, folder / "test.csv", "--group", "city", "--worst", 2).stdout
    heads = text.splitlines()[2].split()
    assert heads[:4] == ["target", "asked", "RMSE", "coverage"]
    assert len([line for line in text.splitlines() if line.startswith(("rent  ", "price "))]) >= 4
    assert "price at 0.8, by city:" in text
    small = re.findall(r"the worst of 14 slices \((\d+) of fewer than 20 rows left out\):", text)
    assert len(small) == 4
    found = json.loads(run("evaluate", model, folder / "test.csv", "--group", "city", "--json").stdout)["results"]
    assert [entry["n_small_slices"] for entry in found] == list(map(int, small))
    assert text.count("rows inside; ") == sum(min(2, 14 - int(n)) for n in small)
    everything = run("evaluate", model, folder / "test.csv", "--all-slices").stdout
    assert "garden true" in everything
    assert "the worst of" not in everything


def test_without_ranks_the_band_is_the_binomials(run, tmp_path):
    x = np.random.default_rng(5).normal(size=(40, 2))
    small = MatchedRegressor(
        0.8, network=MLP(hidden=4, bins=0), calibration=None, folds=2, repeats=1, schedule=Schedule(max_rounds=1)
    )
    coverwell.save(small.fit(pl.DataFrame(x, schema=["a", "b"]), pl.Series("y", x[:, 0])), tmp_path / "m")
    pl.DataFrame(np.c_[x, x[:, 0]], schema=["a", "b", "y"]).write_csv(tmp_path / "t.csv")
    (entry,) = results(run, tmp_path / "m", tmp_path / "t.csv")["results"]
    assert entry["band"] == pytest.approx(list(binom.ppf([0.05, 0.95], 40, 0.8) / 40))
    counts = np.arange(41)
    assert entry["expected_calibration_error"] == pytest.approx(abs(counts / 40 - 0.8) @ binom.pmf(counts, 40, 0.8))


def test_rows_without_a_target_are_an_error_or_skipped_on_request(run, refused, model, houses, tmp_path):
    price = pl.when(pl.int_range(pl.len()) < 4).then(None).otherwise(pl.col("price"))
    houses[90:].with_columns(price.alias("price")).write_csv(tmp_path / "gaps.csv")
    assert "the target price is missing in 4 of 40 rows" in refused("evaluate", model, tmp_path / "gaps.csv")
    found = results(run, model, tmp_path / "gaps.csv", "--skip-missing")
    assert (found["rows"], found["rows_skipped"]) == (36, 4)
    whole = coverwell.load(model).predict(houses[94:])
    assert found["results"][0]["rmse"] == pytest.approx(metrics.rmse(houses["rent"][94:], whole[:, 0]))


@pytest.mark.parametrize(
    ("change", "options", "part"),
    [
        (pl.col("price").alias("cost"), (), "has no column for the target: price"),
        (pl.lit("much").alias("price"), (), "the target price must hold numbers, but row 1"),
        (pl.col("city"), ("--group", "town"), "no column for --group: town"),
        (pl.col("area").alias("size"), (), "fitted on: area"),
    ],
)
def test_rows_that_cannot_be_evaluated_are_refused_in_one_line(refused, model, houses, tmp_path, change, options, part):
    frame = houses[90:].with_columns(change)
    if change.meta.output_name() in ("cost", "size"):
        frame = frame.drop(change.meta.root_names())
    frame.write_csv(tmp_path / "t.csv")
    assert part in refused("evaluate", model, tmp_path / "t.csv", *options)


def test_a_word_for_a_missing_value_is_no_group(run, model, houses, tmp_path):
    words = ["NA", " north ", "north", "south"] * 10
    houses[90:].with_columns(side=pl.Series(words)).write_csv(tmp_path / "sides.csv")
    text = run("evaluate", model, tmp_path / "sides.csv", "--group", "side", "--all-slices").stdout
    assert {line.split()[1] for line in text.splitlines() if line.startswith("side ")} == {"north", "south", "missing"}


# Of classes ----------------------------------------------------------------------------------------------------------


def test_the_numbers_of_classes_are_those_of_the_metrics_on_the_apis_predictions(run, flowers, irises, classifier):
    (test, y), fitted = irises, coverwell.load(classifier)
    probability, classes = fitted.predict_proba(test), fitted.classes_
    found = json.loads(run("evaluate", classifier, flowers / "new.csv", "--json").stdout)
    assert found["classes"] == classes.tolist()
    assert found["accuracy"] == fitted.score(test, y)
    for name in ("brier_score", "log_loss", "reliability_error"):
        assert found[name] == pytest.approx(getattr(metrics, name)(y, probability, classes))
    assert found["expected_reliability_error"] == pytest.approx(metrics.expected_reliability_error(probability))
    for entry, level in zip(found["results"], (0.5, 0.9), strict=True):
        sets = fitted.predict_set(test, level)
        inside = sets.contains(y)
        assert (entry["asked"], entry["coverage"], entry["size"]) == (level, inside.mean(), sets.size.mean())
        assert entry["coverage_if_empty"] == fitted.predict_set(test, level, allow_empty=True).contains(y).mean()
        assert entry["band"] == list(metrics.coverage_band(level, n_test=60, n_train=90))
        by_size = {int(size): tuple(found) for size, found in entry["coverage_by_size"].items()}
        assert by_size == metrics.coverage_by_set_size(inside, sets.size)
        of_kind = {part["values"]: part["coverage"] for part in entry["slices"] if part["column"] == "kind"}
        assert of_kind == {name: inside[y == name].mean() for name in classes}


def test_the_text_of_classes_has_scores_levels_and_coverage_by_class_and_by_size(run, flowers, classifier):
    text = run("evaluate", classifier, flowers / "new.csv", "--worst", 1).stdout
    heads = [line.split() for line in text.splitlines() if line.startswith("target ")]
    assert heads[0][:3] == ["target", "accuracy", "Brier"]
    assert heads[1][-3:] == ["mean", "set", "size"]
    assert "kind at 0.5: coverage 0." in text  # if sets could be empty
    for title in ("kind at 0.9, by kind:", "kind at 0.9, by classes in the set:", "kind at 0.9, the worst of "):
        assert title in text


def test_a_class_never_seen_is_a_warning_and_missed_and_a_file_of_no_other_is_refused(
    run, refused, flowers, classifier, lilies
):
    result = run("evaluate", classifier, lilies, "--json")
    assert result.stderr.startswith("Warning: ")
    n_unseen = lilies.read_text().count("lily")
    assert f"{n_unseen} rows have classes never seen in training (lily): no set has it" in result.stderr
    found = json.loads(result.stdout)
    assert found["n_unseen"] == n_unseen
    (part,) = [part for part in found["results"][1]["slices"] if part["values"] == "lily"]
    assert (part["n_inside"], part["n_rows"]) == (0, n_unseen)
    lilies.write_text(
        "".join(line for line in lilies.read_text().splitlines(True) if line.endswith(("kind\n", "lily\n")))
    )
    assert "y must have one of the 3 that were fitted, such as setosa" in refused("evaluate", classifier, lilies)
