"""Laws drawn at random, from which tables and new rows are drawn: what holds for all tables must hold for each of them.

A law has numbers and categories, of which some matter, and noise of one of four kinds. It may have gaps, targets of few
values, groups, rows that come again, extreme scales, and be a data frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_COLUMNS, MOST_CATEGORIES = 12, 3
FEWEST_ROWS, MOST_ROWS = 60, 2000
NOISES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "heavy tails": lambda rng, n: rng.standard_t(2.5, size=n),
    "uneven": lambda rng, n: rng.normal(size=n),  # times a spread that depends on the row
}
GAPS = "gaps at random", "gaps by value"
ATOMS = "rounded", "many zeros"
REPEATS = "repeated inputs", "repeated rows"  # the latter with their targets
GROUPS, EXTREME, FRAME, CATEGORIES = "groups", "extreme scales", "data frame", "categories"
HAS_FRAMES = find_spec("pandas") is not None
FEWEST_GROUPS = 20


@dataclass(frozen=True)
class Columns:
    """What stands behind the columns of some rows: numbers, categories, and where a number is not known."""

    numbers: Array  # (row, number)
    codes: NDArray[np.intp]  # (row, category)
    gaps: NDArray[np.bool_]  # (row, number)

    def at(self, places: NDArray[np.intp]) -> Columns:
        return Columns(self.numbers[places], self.codes[places], self.gaps[places])


@dataclass(frozen=True)
class Law:
    """One law. What it does not name here follows from its seed.

    Examples
    --------
    >>> law = Law.of(3)
    >>> X, y, groups = law.draw(law.n_rows, np.random.default_rng(0))
    >>> X.shape == (law.n_rows, law.n_numbers + len(law.n_levels)), y.shape == (law.n_rows,), groups
    (True, True, None)
    """

    seed: int
    n_rows: int  # of a table to fit
    n_numbers: int
    n_levels: tuple[int, ...]  # of each category
    noise: str
    gaps: str | None = None
    atoms: str | None = None
    repeats: str | None = None
    rows_per_group: int = 0  # 0: no groups
    extreme: bool = False
    frame: bool = False

    @classmethod
    def of(cls, seed: int) -> Law:
        """The law of a seed."""
        rng = np.random.default_rng((seed, 0))

        def one_of(choices: Any, share: float) -> Any:
            return rng.choice(choices).item() if rng.random() < share else None

        n_rows = round(np.exp(rng.uniform(np.log(FEWEST_ROWS), np.log(MOST_ROWS))))
        n_levels = tuple(rng.integers(2, 7, size=rng.integers(MOST_CATEGORIES + 1)).tolist())
        law = cls(seed, n_rows, int(rng.integers(1, MOST_COLUMNS + 1)), n_levels, rng.choice(list(NOISES)).item())
        law = replace(law, gaps=one_of(GAPS, 0.2), atoms=one_of(ATOMS, 0.2), extreme=rng.random() < 0.15)
        law = replace(law, frame=law.gaps is not None or (bool(n_levels) and rng.random() < 0.15))
        if (kind := rng.random()) < 0.12:
            size = rng.choice([2, 4, 8]).item()
            return replace(law, rows_per_group=size, n_rows=size * max(n_rows // size, FEWEST_GROUPS))
        return replace(law, repeats=REPEATS[kind < 0.18] if kind < 0.24 else None)

    @property
    def kinds(self) -> list[str]:
        """What is special about it."""
        own = {GROUPS: self.rows_per_group, EXTREME: self.extreme, FRAME: self.frame, CATEGORIES: self.n_levels}
        named = [self.noise, self.gaps, self.atoms, self.repeats]
        return [kind for kind in named if kind] + [kind for kind, there in own.items() if there]

    @property
    def names(self) -> list[str]:
        return [f"x{place}" for place in range(self.n_numbers)] + [f"c{place}" for place in range(len(self.n_levels))]

    def draw(self, n: int, rng: np.random.Generator, *, new_groups: bool = False) -> tuple[Any, Array, Any]:
        """Rows, targets and groups; if `new_groups`, every row comes from a group of its own."""
        size = 1 if new_groups else max(self.rows_per_group, 1)
        groups = np.repeat(np.arange(-(-n // size)), size)[:n]
        if self.repeats:
            columns, targets = self._pool
            places = rng.integers(len(targets), size=n)
            columns = columns.at(places)
            y = targets[places] if self.repeats == "repeated rows" else self._targets(columns, groups, rng)
        else:
            columns = self._columns(groups, rng)
            y = self._targets(columns, groups, rng)
        return self._table(columns), self._shift + self._scale * y, groups if self.rows_per_group else None

    @cached_property
    def _pool(self) -> tuple[Columns, Array]:
        """The rows that come again."""
        rng, groups = np.random.default_rng((self.seed, 1)), np.arange(self.n_rows // 2)
        columns = self._columns(groups, rng)
        return columns, self._targets(columns, groups, rng)

    @cached_property
    def _weights(self) -> dict[str, Any]:
        """How y depends on the columns."""
        rng, n = np.random.default_rng((self.seed, 2)), self.n_numbers
        relevant = rng.permutation(n) < rng.integers(1, n + 1)
        return {
            "linear": relevant * rng.normal(size=n),
            "waves": relevant * rng.normal(size=n),
            "effects": [rng.normal(size=levels) for levels in self.n_levels],
            "shares": [rng.dirichlet(np.full(levels, 3.0)) for levels in self.n_levels],
            "noise": np.exp(rng.uniform(np.log(0.1), np.log(3.0))),
            "group": np.exp(rng.uniform(np.log(0.2), np.log(2.0))),
            "gap": rng.uniform(0.02, 0.3),
            "skewed": rng.random(n) < 0.3,  # columns
            "powers": rng.uniform(-6, 6, size=n) if self.extreme else np.zeros(n),
            "y": (rng.uniform(-9, 9), rng.normal(scale=100)) if self.extreme else (0.0, 0.0),
        }

    @property
    def _scale(self) -> float:
        return float(10 ** self._weights["y"][0])

    @property
    def _shift(self) -> float:
        return float(self._scale * self._weights["y"][1])

    def _columns(self, groups: NDArray[np.intp], rng: np.random.Generator) -> Columns:
        n, weights = len(groups), self._weights
        numbers = rng.normal(size=(n, self.n_numbers))
        if self.rows_per_group:
            numbers[:, 0] = rng.normal(size=groups[-1] + 1)[groups]  # a column about the group
        drawn = [rng.choice(len(shares), size=n, p=shares) for shares in weights["shares"]]
        gaps = np.zeros(numbers.shape, dtype=bool)
        if self.gaps:
            odds = np.exp(1.5 * numbers) if self.gaps == "gaps by value" else 1.0
            share = weights["gap"] * odds / (1 - weights["gap"] + weights["gap"] * odds)
            gaps[:, : -(-self.n_numbers // 2)] = (rng.random(numbers.shape) < share)[:, : -(-self.n_numbers // 2)]
        return Columns(numbers, np.stack(drawn, axis=1) if drawn else np.empty((n, 0), dtype=np.intp), gaps)

    def _targets(self, columns: Columns, groups: NDArray[np.intp], rng: np.random.Generator) -> Array:
        weights, x = self._weights, columns.numbers
        y = x @ weights["linear"] + np.sin(2 * x) @ weights["waves"]
        for effects, codes in zip(weights["effects"], columns.codes.T, strict=True):
            y += effects[codes]
        if self.rows_per_group:
            y += weights["group"] * rng.normal(size=groups[-1] + 1)[groups]
        spread = np.exp(x[:, 0]) if self.noise == "uneven" else 1.0
        y += weights["noise"] * spread * NOISES[self.noise](rng, len(y))
        if self.atoms == "rounded":
            return np.round(y)
        return np.maximum(y, 0.0) if self.atoms == "many zeros" else y

    def _table(self, columns: Columns) -> Any:
        """An array with categories as numbers, or a data frame with gaps and categories as text."""
        numbers = np.where(self._weights["skewed"], np.exp(columns.numbers), columns.numbers)
        numbers = np.where(columns.gaps, np.nan, numbers * 10 ** self._weights["powers"])
        if not self.frame:
            return np.column_stack([numbers, columns.codes.astype(np.float64)])
        import pandas as pd  # data frames alone need it

        levels = [np.array([f"level {code}" for code in codes], dtype=object) for codes in columns.codes.T]
        return pd.DataFrame(dict(zip(self.names, [*numbers.T, *levels], strict=True)))
