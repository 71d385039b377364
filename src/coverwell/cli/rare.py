"""Kinds of rows that are too rare in a table for anybody to know how well they are covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from coverwell.inputs.columns import Column

FEWEST_TO_TELL, RARE_SHARE = 30, 0.05  # rows, and their share of all
MOST_NAMED = 5


def rare_kinds(columns: list[Column], features: pl.DataFrame) -> dict[str, tuple[str, int]]:
    """Levels of text and gaps that few rows have, the rarest first: in words, with the column and how many rows."""
    found: dict[str, tuple[str, int]] = {}
    for column in columns:
        kinds = {f"no {column.name}": column.n_missing} if column.n_missing else {}
        if column.kind == "text":
            counts = features[column.name].drop_nulls().value_counts().rows()
            kinds |= {f"{column.name} {level}": n for level, n in counts if level in column.levels}
        rare = {kind: n for kind, n in kinds.items() if n < min(FEWEST_TO_TELL, RARE_SHARE * len(features))}
        found |= {kind: (column.name, n) for kind, n in rare.items()}
    return dict(sorted(found.items(), key=lambda item: item[1][1]))


def in_words(rare: dict[str, tuple[str, int]]) -> str:
    """One line on them, with the way out."""
    named = [f"{kind} ({n} row{'s' * (n > 1)})" for kind, (_, n) in list(rare.items())[:MOST_NAMED]]
    more = f" and {len(rare) - MOST_NAMED} more" if len(rare) > MOST_NAMED else ""
    first, _ = next(iter(rare.values()))
    told = "too few rows to tell how often such rows are covered, which may be far less than asked"
    return f"rare: {', '.join(named)}{more}: {told}; give more of them, or --hold-for {first}"
