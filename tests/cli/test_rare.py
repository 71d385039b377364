"""What `coverwell fit` says of categories that are rare."""

import numpy as np
import polars as pl
import pytest

from coverwell.cli.rare import in_words, rare_categories
from coverwell.inputs.columns import Column


@pytest.fixture(scope="module")
def flats():
    rng = np.random.default_rng(0)
    area, kind = rng.uniform(20, 90, 120).round(1), np.where(np.arange(120) < 5, "mill", "flat")
    rent = 10 * area + np.where(kind == "mill", 300, 20) * rng.normal(size=120)
    return pl.DataFrame({"area": area, "kind": kind, "rent": rent})


def test_categories_of_few_rows_are_named_the_rarest_first():
    table = pl.DataFrame({"kind": ["flat"] * 94 + ["mill"] * 3 + ["barn"] * 2 + ["hut"], "area": [1.0] * 100})
    columns = [Column("kind", "text", levels=("flat", "mill", "barn")), Column("area", "numbers")]
    rare = rare_categories(columns, table)
    assert rare == [("kind", "barn", 2), ("kind", "mill", 3)]
    assert in_words(rare).startswith("rare: kind barn (2 rows), kind mill (3 rows): too few to tell")
    assert rare_categories(columns, pl.concat([table] * 14)) == [("kind", "barn", 28)]  # 42 rows tell enough


def test_a_fit_says_so_unless_coverage_is_held_for_them(flats, tmp_path, run):
    flats.write_csv(tmp_path / "flats.csv")
    brief = ("--target", "rent", "--max-rounds", 1, "--folds", 2, "--out", tmp_path / "model.safetensors", "--force")
    assert "rare: kind mill (5 rows)" in run("fit", tmp_path / "flats.csv", *brief).stdout
    assert "rare:" not in run("fit", tmp_path / "flats.csv", *brief, "--hold-for", "kind").stdout
