"""Categories that too few rows have to tell how well these are covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from coverwell.inputs.columns import Column

FEWEST_TO_TELL, RARE_SHARE = 30, 0.05  # rows, and their share of all
MOST_NAMED = 5


def rare_categories(columns: list[Column], features: pl.DataFrame) -> list[tuple[str, str, int]]:
    """Column, category and number of rows, the rarest first."""
    fewest = min(FEWEST_TO_TELL, RARE_SHARE * len(features))
    found = [
        (column.name, level, n)
        for column in columns
        if column.kind == "text"
        for level, n in features[column.name].drop_nulls().value_counts().rows()
        if level in column.levels and n < fewest
    ]
    return sorted(found, key=lambda rare: (rare[2], rare[:2]))


def in_words(rare: list[tuple[str, str, int]]) -> str:
    """One line on them, with the way out."""
    named = [f"{column} {level} ({n} rows)" for column, level, n in rare[:MOST_NAMED]]
    more = f" and {len(rare) - MOST_NAMED} more" if len(rare) > MOST_NAMED else ""
    told = "too few to tell how often such rows are covered, which may be far less than asked"
    return f"rare: {', '.join(named)}{more}: {told}; give more of them, or --hold-for {rare[0][0]}"
