"""What `coverwell fit` says of kinds of rows that are rare."""

import numpy as np
import polars as pl
import pytest

from coverwell.cli.rare import in_words, rare_kinds
from coverwell.inputs.columns import Column


@pytest.fixture(scope="module")
def flats():
    rng = np.random.default_rng(0)
    area, kind = rng.uniform(20, 90, 120).round(1), np.where(np.arange(120) < 5, "mill", "flat")
    rent = 10 * area + np.where(kind == "mill", 300, 20) * rng.normal(size=120)
    return pl.DataFrame({"area": area, "kind": kind, "rent": rent})


def test_levels_and_gaps_of_few_rows_are_named_the_rarest_first():
    table = pl.DataFrame({"kind": ["flat"] * 97 + ["mill"] * 3, "area": [1.0] * 99 + [None]})
    columns = [Column("kind", "text", levels=("flat", "mill")), Column("area", "numbers", n_missing=1)]
    rare = rare_kinds(columns, table)
    assert rare == {"no area": ("area", 1), "kind mill": ("kind", 3)}
    assert in_words(rare).startswith("rare: no area (1 row), kind mill (3 rows): too few rows to tell")
    assert rare_kinds(columns, pl.concat([table] * 20)[:1990]) == {"no area": ("area", 1)}  # 60 rows tell enough


def test_a_fit_says_so_unless_coverage_is_held_for_them(flats, tmp_path, run):
    flats.write_csv(tmp_path / "flats.csv")
    brief = ("--target", "rent", "--max-rounds", 1, "--folds", 2, "--out", tmp_path / "model.safetensors", "--force")
    assert "rare: kind mill (5 rows)" in run("fit", tmp_path / "flats.csv", *brief).stdout
    assert "rare:" not in run("fit", tmp_path / "flats.csv", *brief, "--hold-for", "kind").stdout
