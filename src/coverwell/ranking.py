"""The order in which parts of the rows are named: those that fall short by more than chance, then the others."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import beta, binom

from coverwell.slices import BY_CHANCE, CONFIDENCE, Slice, Slices

__all__ = ["Ranked", "ranked"]


@dataclass(frozen=True, eq=False)
class Ranked:
    """All parts that were looked at, the worst first.

    Attributes
    ----------
    parts : list of Slice
        First those that fall short by more than chance; each kind by the upper end of the confidence interval, so that
        a part of few rows must be missed often to come before a large one.
    n_short : int
        How many fall short by more than chance.
    """

    parts: list[Slice]
    n_short: int

    @property
    def short(self) -> list[Slice]:
        return self.parts[: self.n_short]

    @cached_property
    def by_column(self) -> dict[str, list[Slice]]:
        """The parts of each column; the column with the worst part first."""
        columns: defaultdict[str, list[Slice]] = defaultdict(list)
        for part in self.parts:
            columns[part.column].append(part)
        return dict(columns)


def ranked(slices: Slices) -> Ranked:
    """The parts as `Slices.worst` and `Slices.chance` have them, for all at once: a group may have very many values."""
    n_rows, n_inside = (
        np.array([getattr(part, name) for part in slices], dtype=int) for name in ("n_rows", "n_inside")
    )
    missed = n_rows - n_inside
    high = np.where(missed > 0, beta.ppf((1 + CONFIDENCE) / 2, n_inside + 1, np.maximum(missed, 1)), 1.0)
    by_chance = len(slices) * binom.cdf(n_inside, n_rows, slices.asked) >= BY_CHANCE
    order = np.lexsort([high, by_chance])  # the last key counts first; equals stay in their order
    return Ranked([slices.slices[place] for place in order], int((~by_chance).sum()))
