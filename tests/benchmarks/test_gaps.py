import json
from pathlib import Path

import gaps
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STORED = BENCHMARKS / "results" / "gaps.jsonl"


def test_the_stored_text_is_written_from_the_stored_numbers():
    lines = [json.loads(line) for line in STORED.read_text().splitlines()]
    assert STORED.with_suffix(".md").read_text() == gaps.table(lines)


def test_gaps_are_in_the_first_column_alone_and_as_many_as_asked():
    n_rows, share = 40_000, 0.05
    X, y = gaps.draw(n_rows, share, seed=3)
    n_gaps = int(X["a"].isna().sum())
    assert abs(n_gaps - share * n_rows) < 5 * (n_rows * share * (1 - share)) ** 0.5  # five standard deviations
    assert not X.drop(columns="a").isna().any().any()
    assert len(y) == n_rows


def test_over_two_thirds_of_the_variance_come_from_the_column_with_gaps():
    X, y = gaps.draw(40_000, 0.0, seed=3)
    assert (y - 2 * X["a"]).var() / y.var() == pytest.approx(0.30, abs=0.02)  # 1 + 1/2 + 1/4 of 5 3/4, about
